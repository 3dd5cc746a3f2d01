"""The images of an archive as a tree of files that are made when somebody reads them, and as a folder.

A file is what `decode` would write. How long it is is known only once it was made, so asking for the size
makes it; sizes are remembered, and the files that were read last. `mount` shows the tree as a folder that can
only be read; mfusepy is imported here only.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpca_cli.archive.reader import Archive
from tpca_cli.decode.plan import AS_FILE, Target, plan
from tpca_cli.decode.run import file_of, selected
from tpca_cli.errors import OutputExists, StorageError, TpcaError, UsageError, printable
from tpca_cli.names import check_names

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


KEPT_BYTES = 1 << 26


@dataclass
class _Folder:
    """Names in a folder: folders and files."""

    folders: dict[bytes, _Folder] = field(default_factory=dict)
    files: dict[bytes, Target] = field(default_factory=dict)


@dataclass(frozen=True)
class Attributes:
    """What the system asks of a file or folder."""

    mode: int
    size: int
    mtime: float


class ImageTree:
    """Folders and files below `/`, by their paths in bytes. Wrong paths are OSErrors. Safe in threads."""

    def __init__(
        self,
        archive: Archive,
        *,
        select: Sequence[str] = (),
        format: str | None = None,
        components: int | None = None,
    ) -> None:
        if archive.holds_tensors:
            raise UsageError(f"{printable(archive.path)} holds tensors, no images: tpca decode restores them")
        self._archive, self._components = archive, components
        chosen, _ = selected(archive, select)
        targets = plan(archive, chosen, format)
        check_names([target.name for target in targets])
        archive.prepare()
        self.images = len(targets)
        self._root = _Folder()
        for target in targets:
            *folders, name = target.name.split(b"/")
            here = self._root
            for part in folders:
                here = here.folders.setdefault(part, _Folder())
            here.files[name] = target
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._kept_bytes = 0

    def _find(self, path: bytes) -> _Folder | Target:
        here = self._root
        *folders, name = [part for part in path.split(b"/") if part] or [b""]
        for part in folders:
            if part not in here.folders:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            here = here.folders[part]
        found = here if not name else here.folders.get(name) or here.files.get(name)
        if found is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return found

    def names(self, path: bytes) -> list[bytes]:
        """What is in a folder."""
        found = self._find(path)
        if isinstance(found, Target):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return sorted([*found.folders, *found.files])

    def attributes(self, path: bytes) -> Attributes:
        """Mode, size and time; nothing can be written."""
        found = self._find(path)
        if isinstance(found, _Folder):
            return Attributes(stat.S_IFDIR | 0o555, 0, 0.0)
        index, image = self._archive.index, int(self._archive.alive[found.position])
        bits = index.mode_bits(image)
        mode = stat.S_IFREG | ((0o777 if bits is None else bits) & 0o444)
        return Attributes(mode, self._size(found), int(index.images["mtime"][image]) / 1e6)

    def read(self, path: bytes, size: int, offset: int) -> bytes:
        """Bytes of a file."""
        found = self._find(path)
        if isinstance(found, _Folder):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        return self._content(found)[offset : offset + size]

    def _size(self, target: Target) -> int:
        if target.format == AS_FILE:  # the archive holds the source file
            return int(self._archive.index.images["source_size"][int(self._archive.alive[target.position])])
        known = self._sizes.get(target.position)
        return len(self._content(target)) if known is None else known

    def _content(self, target: Target) -> bytes:
        with self._lock:
            if target.position in self._kept:
                self._kept.move_to_end(target.position)
                return self._kept[target.position]
        try:
            data = file_of(self._archive, target, self._components).data
        except TpcaError as error:  # a damaged block, a disk or a server that fails
            number = error.errno if isinstance(error, StorageError) else None
            raise OSError(number or errno.EIO, str(error)) from error
        with self._lock:
            if target.position not in self._kept:
                self._kept[target.position] = data
                self._kept_bytes += len(data)
            self._sizes[target.position] = len(data)
            while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])
        return data
