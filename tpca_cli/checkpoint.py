"""Finished work of a run that may be killed: `OUTPUT.partial/`, one file per finished job.

A job's result is a pure function of the plan and the source files, so a later run with the same plan takes it
over. Each file carries its own digest and is renamed into place whole; the folder is named after the plan, so
that another plan never meets these files. Nothing that does not check out is used; the end removes all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tpca_cli import store
from tpca_cli.errors import StorageError

DIGEST = 16


def plan_digest(plan: Mapping[str, Any], *blobs: bytes) -> str:
    """The name of a plan: its settings as JSON and whatever bytes belong to it."""
    state = hashlib.blake2b(json.dumps(plan, sort_keys=True).encode(), digest_size=DIGEST)
    for blob in blobs:
        state.update(len(blob).to_bytes(8, "little"))
        state.update(blob)
    return state.hexdigest()


class Checkpoint:
    """Results by number, on disk, for one plan."""

    def __init__(self, output: Path, plan: str) -> None:
        self.root = partial_folder(output)
        self.folder = self.root / plan
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError.of(error, self.folder, "make the folder") from error

    def put(self, number: int, header: Mapping[str, Any], data: bytes) -> None:
        """Keep a finished result; it is there whole or not at all."""
        head = json.dumps(header).encode()
        body = len(head).to_bytes(4, "little") + head + data
        digest = hashlib.blake2b(body, digest_size=DIGEST).digest()
        store.write_file(self._path(number), digest + body, force=True, durable=False)

    def get(self, number: int) -> tuple[dict[str, Any], bytes] | None:
        """A result that was kept earlier, or None; damage counts as absence."""
        try:
            raw = self._path(number).read_bytes()
        except OSError:
            return None
        body = raw[DIGEST:]
        if hashlib.blake2b(body, digest_size=DIGEST).digest() != raw[:DIGEST]:
            return None
        split = 4 + int.from_bytes(body[:4], "little")
        return json.loads(body[4:split]), body[split:]

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}"


def partial_folder(output: Path) -> Path:
    """The folder beside an output that keeps the finished blocks of an interrupted run."""
    return output.with_name(output.name + ".partial")


def remove_partial(output: Path) -> None:
    """Remove that folder with everything in it."""
    shutil.rmtree(partial_folder(output), ignore_errors=True)


@contextlib.contextmanager
def removed_unless_interrupted(output: Path) -> Iterator[None]:
    """The partial folder of `output` goes with the end of the work inside, and stays for a later run to take
    over when a signal or a failing device cut it short; but a full disk gets its room back."""
    try:
        yield
    except StorageError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remove_partial(output)
        raise
    except Exception:
        remove_partial(output)
        raise
    remove_partial(output)
