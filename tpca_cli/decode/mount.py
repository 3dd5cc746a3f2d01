"""The only module that imports mfusepy: shows an `ImageTree` as a folder that can only be read."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpca_cli.decode.tree import ImageTree
from tpca_cli.errors import OutputExists, StorageError, TpcaError, printable

STOPPED = 8
"""What libfuse 3 ends with when a signal stopped it."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def library() -> Any:
    """mfusepy; an error that says what to install where it, or FUSE itself, is missing."""
    try:
        import mfusepy
    except ImportError as error:
        raise TpcaError("tpca mount needs mfusepy: pip install 'tpca-cli[mount]'") from error
    except OSError as error:
        raise TpcaError(
            f"tpca mount needs libfuse ({error}): install fuse3 with your package manager"
        ) from error
    return mfusepy


def check_folder(folder: Path) -> None:
    """An empty folder that nothing is mounted on."""
    try:
        if os.path.ismount(folder) or os.listdir(folder):
            raise OutputExists(f"{printable(folder)} is not empty: mount on an empty folder")
    except OSError as error:
        raise StorageError.of(error, folder, "mount on") from error


def mount(tree: ImageTree, folder: Path, began: Callable[[], None]) -> None:
    """Show the tree until it is unmounted or a signal asks to stop; `began` is called once it is there."""
    fuse = library()

    class Operations(fuse.Operations):  # type: ignore[misc, name-defined]
        use_ns = True

        def init(self, path: str) -> None:
            began()

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            found = tree.attributes(os.fsencode(path))
            when = int(found.mtime * 1e9)
            return {
                "st_mode": found.mode,
                "st_size": found.size,
                "st_blocks": -(-found.size // 512),
                "st_nlink": 1,
                "st_uid": os.getuid(),
                "st_gid": os.getgid(),
                **dict.fromkeys(("st_mtime", "st_ctime", "st_atime"), when),
            }

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *map(os.fsdecode, tree.names(os.fsencode(path)))]

        def open(self, path: str, flags: int) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise fuse.FuseOSError(errno.EROFS)
            tree.attributes(os.fsencode(path))
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return tree.read(os.fsencode(path), size, offset)

    # libfuse unmounts at a signal, but only where nobody else handles it
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    try:
        fuse.FUSE(
            Operations(),
            os.fsdecode(os.path.abspath(folder)),
            foreground=True,
            ro=True,
            nosuid=True,
            nodev=True,
            fsname="tpca",
            subtype="tpca",
        )
    except RuntimeError as error:  # what libfuse had to say it has printed
        if error.args == (STOPPED,) and not os.path.ismount(folder):
            return
        raise StorageError(
            f"cannot mount on {printable(folder)}: FUSE ended with code {error}", errno.EIO
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
