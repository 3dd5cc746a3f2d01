"""Finished work of a run that may be killed: `OUTPUT.partial/`, one file per finished job.

A job's result is a pure function of the plan and the source files, so a later run with the same plan takes it
over. Each file carries its own digest and is renamed into place whole; the folder is named after the plan, so
that another plan never meets these files. Nothing that does not check out is used; the end removes all.

`OUTPUT.partial/` carries a mark, a file `MARK` written when it is made. A folder without it, a link or a file
of that name belongs to somebody else: it is neither used nor removed, and stops a run before its work begins.
Only an empty folder is taken: a run may be killed before it leaves its mark.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tpca_cli import __version__, store
from tpca_cli.errors import OutputExists, StorageError, printable
from tpca_cli.store.files import NAME_BYTES, temporary_prefix

DIGEST = 16
MARK = "made-by-tpca"
_MARK_TEXT = b"Finished work of an interrupted run of tpca; the next run takes it over and removes it.\n"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LIBRARIES = ("Pillow", "simplejpeg", "numpy")
"""Whose version may decide a byte."""


def _plan_digest(plan: Mapping[str, Any], blobs: Iterable[bytes]) -> str:
    """The name of a plan: its settings as JSON, whatever bytes belong to it, and the program that ran it."""
    whole = {"plan": plan, "program": _versions()}
    state = hashlib.blake2b(json.dumps(whole, sort_keys=True).encode(), digest_size=DIGEST)
    for blob in blobs:
        state.update(len(blob).to_bytes(8, "little"))
        state.update(blob)
    return state.hexdigest()


class Checkpoint:
    """Results by number, on disk, for one plan: all that decides them, as JSON and as bytes."""

    def __init__(self, output: Path, plan: Mapping[str, Any], blobs: Iterable[bytes] = ()) -> None:
        self.root = claimed_folder(output)
        self.folder = self.root / _plan_digest(plan, blobs)
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError.of(error, self.folder, "make the folder") from error

    def put(self, number: int, header: Mapping[str, Any], data: bytes) -> None:
        """Keep a finished result; it is there whole or not at all."""
        head = json.dumps(header).encode()
        head = len(head).to_bytes(4, "little") + head
        digest = hashlib.blake2b(head, digest_size=DIGEST)
        digest.update(data)
        whole = b"".join((digest.digest(), head, data))
        store.write_file(self._path(number), whole, force=True, durable=False, mode=0o600)

    def get(self, number: int) -> tuple[dict[str, Any], bytes] | None:
        """A result that was kept earlier, or None; damage counts as absence."""
        try:
            raw = self._path(number).read_bytes()
        except OSError:
            return None
        body = memoryview(raw)[DIGEST:]
        if hashlib.blake2b(body, digest_size=DIGEST).digest() != raw[:DIGEST]:
            return None
        split = 4 + int.from_bytes(body[:4], "little")
        return json.loads(bytes(body[4:split])), bytes(body[split:])

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}"


def partial_folder(output: Path) -> Path:
    """Where the work for an output is kept: beside it, under a shorter name where that would be too long."""
    name = os.fsencode(output.name)
    if len(name) > NAME_BYTES - len(b".partial"):
        name = temporary_prefix(name)[:-1]
    return output.with_name(os.fsdecode(name + b".partial"))


def claimed_folder(output: Path) -> Path:
    """The partial folder of an output, made and marked; refused where something else has its name."""
    root = partial_folder(output)
    check_partial(output)
    try:
        with contextlib.suppress(FileExistsError):
            root.mkdir()
        here = os.open(root, _FOLDER)
        try:
            if not _marked(here):
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                mark = os.open(MARK, flags, 0o644, dir_fd=here)
                try:
                    os.write(mark, _MARK_TEXT)
                finally:
                    os.close(mark)
        finally:
            os.close(here)
    except OSError as error:
        raise StorageError.of(error, root, "make the folder") from error
    return root


def check_partial(output: Path) -> None:
    """Refuse an output whose partial folder would be somebody else's."""
    root = partial_folder(output)
    if _state(root) == "foreign":
        raise OutputExists(
            f"{printable(root)} is not what tpca makes there for work in progress: "
            "move it away, or choose another output"
        )


def remove_partial(output: Path) -> None:
    """Remove the partial folder of an output if it is ours.

    The mark goes last: where this run is killed meanwhile, the next one knows what is left for its own.
    """
    root = partial_folder(output)
    if _state(root) != "ours":
        return
    with contextlib.suppress(OSError):
        here = os.open(root, _FOLDER)
        try:
            for _, folders, files, at in os.fwalk(".", topdown=False, dir_fd=here):  # which follows no link
                for name in files:
                    if name != MARK:
                        os.unlink(name, dir_fd=at)
                for name in folders:
                    os.rmdir(name, dir_fd=at)
        finally:
            os.close(here)
    shutil.rmtree(root, ignore_errors=True)


def _state(root: Path) -> str:
    """Whether a path is free, ours (marked, or an empty folder) or foreign."""
    try:
        here = os.open(root, _FOLDER)
    except FileNotFoundError:
        return "free"
    except OSError:  # a file, a link, a folder that is closed to us
        return "foreign"
    try:
        return "ours" if _marked(here) or not os.listdir(here) else "foreign"
    except OSError:
        return "foreign"
    finally:
        os.close(here)


def _marked(folder: int) -> bool:
    try:
        mark = os.open(MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(mark).st_mode)
    finally:
        os.close(mark)


@functools.cache
def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"tpca": __version__}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@contextlib.contextmanager
def removed_unless_interrupted(output: Path, *again: type[Exception]) -> Iterator[None]:
    """The partial folder of `output` goes with the end of the work inside, and stays for a later run to take
    over when a signal or a failing device cut it short; but a full disk gets its room back. It stays as well
    when one of the errors is raised after which the work is begun `again` in another way."""
    try:
        yield
    except again:
        raise
    except StorageError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remove_partial(output)
        raise
    except Exception:
        remove_partial(output)
        raise
    remove_partial(output)
