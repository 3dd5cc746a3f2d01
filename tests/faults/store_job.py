"""A small writer and reader of the store, run as a program so that faults can hit it.

    store_job.py write TARGET [--force] [--blocks N] [--pause S]     exit codes as those of `tpca`
    store_job.py read TARGET                                         prints a fingerprint of all content
    store_job.py append TARGET                                       adds a block under the lock

Bulk data carry a digest per block in another dataset, as every format of the package does.
"""

from __future__ import annotations

import signal
import sys
import time
from hashlib import sha256
from itertools import pairwise
from types import FrameType
from typing import Any

import numpy as np

from tpca_cli import store
from tpca_cli.errors import FileRefused, Interrupted, TpcaError
from tpca_cli.store import Field, Schema

SCHEMA = Schema(
    "tpca-fault",
    1,
    {
        "index": Field("u4", (None, 4)),
        "weights": Field("f8", (None, None)),
        "group/*/step": Field("i8", ()),
        "payload": Field("u1", (None,), bulk=True),
        "digests": Field("u1", (None, 8)),
        "extra": Field("u2", (None,), optional=True),
    },
)
BLOCK = 3000


def block(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The same bytes on every machine, without compressible structure."""
    return np.frombuffer(b"".join(sha256(bytes([number % 251, part])).digest() for part in range(94)), "u1")[
        :BLOCK
    ]


def write(target: str, *, force: bool = False, blocks: int = 4, pause: float = 0.0) -> None:
    """Write a file with a little of everything."""
    with store.create(target, SCHEMA, force=force) as file:
        file.attrs({"title": "fault", "count": blocks, "scale": 0.5, "salt": b"\0\1"})
        file.meta({"blocks": blocks, "names": ["a", "b"]})
        file.put("index", np.arange(40, dtype="u4").reshape(10, 4))
        file.put("weights", np.linspace(-1, 1, 60).reshape(12, 5), compress=False)
        file.put("group/0/step", np.int64(7))
        file.put("group/1/step", np.int64(8))
        payload = file.stream("payload", "u1", (), 4096, compress=True)
        digests = []
        print("writing", flush=True)
        for number in range(blocks):
            data = block(number)
            payload.append(data)
            digests.append(np.frombuffer(store.digest_of(data), "u1"))
            time.sleep(pause)
        file.put("digests", np.array(digests, dtype="u1").reshape(-1, 8))


def append(target: str) -> None:
    """Add one block to what is there, losing nobody's work."""
    with (
        store.lock(target, wait=30),
        store.open_checked(target, SCHEMA) as old,
        store.create(target, SCHEMA, force=True, expect=old.identity) as file,
    ):
        count = old.attrs["count"]
        assert isinstance(count, int)
        file.attrs({**old.attrs, "count": count + 1})
        file.meta({**old.meta, "blocks": count + 1})
        for name in old.stored:
            if name not in ("payload", "digests"):
                file.put(name, old.array(name))
        payload = file.stream("payload", "u1", (), 4096, compress=True)
        payload.append(old.array("payload"))
        payload.append(block(count))
        digest = np.frombuffer(store.digest_of(block(count)), "u1").reshape(1, 8)
        file.put("digests", np.concatenate([old.array("digests"), digest]))


def fingerprint(target: str) -> str:
    """Everything that a file says, as one digest; FileRefused if any block is not what was written."""
    whole = sha256()
    with store.open_checked(target, SCHEMA) as file:
        whole.update(repr((sorted(file.attrs.items()), file.meta, tuple(file.stored))).encode())
        for name in file.stored:
            whole.update(repr((name, file.shapes[name])).encode())
            if name != "payload":
                whole.update(file.array(name).tobytes())
        for number, digest in enumerate(file.array("digests")):
            data = file.rows("payload", number * BLOCK, (number + 1) * BLOCK)
            if store.digest_of(data) != digest.tobytes():
                raise FileRefused(f"block {number} does not match its digest")
            whole.update(data.tobytes())
    return whole.hexdigest()


def stop(number: int, frame: FrameType | None) -> None:
    """The first signal becomes an exception, later ones must not disturb the cleanup."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def main(arguments: list[str]) -> int:
    """Run one action; the exit code."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)
    action, target, *options = arguments
    try:
        if action == "write":
            given = dict(pairwise(options))
            blocks, pause = int(given.get("--blocks", 4)), float(given.get("--pause", 0))
            write(target, force="--force" in options, blocks=blocks, pause=pause)
        elif action == "append":
            append(target)
        else:
            print(fingerprint(target))
    except (TpcaError, Interrupted) as error:
        print(f"store_job: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
