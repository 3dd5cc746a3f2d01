"""A folder that is being filled: every name stays inside it, no link is followed, no file is half there.

Folders are opened one component at a time, relative to the one above and refusing links, so that nothing
that was planted in the output, or is swapped in while we write, leads outside. A file is written under a
private name and then linked (never over another) or, with `force`, renamed into place: a planted link or
a hard link to somebody's file is replaced, its target untouched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from tpca_cli.errors import FileRefused, OutputExists, StorageError, printable

MAX_COMPONENT = 255
MAX_NAME = 4095
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def name_problem(name: bytes) -> str | None:
    """Why a name must not be written below a folder, or None: the rule for archives and for their makers."""
    if not name:
        return "an empty name"
    if b"\0" in name:
        return "a name with a NUL byte"
    if len(name) > MAX_NAME:
        return f"a name of {len(name)} bytes, more than {MAX_NAME}"
    if name.startswith(b"/"):
        return "an absolute name"
    for part in name.split(b"/"):
        if part in (b"", b".", b".."):
            return f"a name with the component '{part.decode()}'"
        if len(part) > MAX_COMPONENT:
            return f"a name with a component of {len(part)} bytes, more than {MAX_COMPONENT}"
    return None


def check_names(names: Iterable[bytes]) -> None:
    """Refuse a whole list of names if one of them is unsafe, or if two would be the same file."""
    seen: set[bytes] = set()
    folders: set[bytes] = set()
    for name in names:
        problem = name_problem(name) or ("the same name twice" if name in seen else None)
        if problem:
            raise FileRefused(f"the archive holds {problem}: {printable(name)}; nothing was written")
        seen.add(name)
        folders.update(name[:at] for at, byte in enumerate(name) if byte == 0x2F)
    for name in seen & folders:
        raise FileRefused(f"the archive holds {printable(name)} both as a file and as a folder")


class OutputTree:
    """The output folder of one run."""

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.root = root
        self.force = force
        try:
            root.mkdir(parents=True, exist_ok=True)
            os.close(os.open(root, DIRECTORY))
        except OSError as error:
            raise self._refusal(error, os.fsencode(root)) from None

    def check(self, names: Iterable[bytes]) -> None:
        """Before anything is written: all names are safe and, without `force`, none is taken."""
        names = list(names)
        check_names(names)
        if self.force:
            return
        base = os.fsencode(self.root)
        for name in names:
            if os.path.lexists(os.path.join(base, name)):
                raise OutputExists(
                    f"{printable(os.path.join(base, name))} exists: choose another folder or add --force"
                )

    def write(self, name: bytes, data: bytes, *, mtime_ns: int | None = None) -> None:
        """Put a whole file at `name`, with its folders."""
        *folders, last = name.split(b"/")
        try:
            with self._folder(folders) as folder:
                self._put(folder, last, data, mtime_ns)
        except OSError as error:
            raise self._refusal(error, os.path.join(os.fsencode(self.root), name)) from None

    def _put(self, folder: int, last: bytes, data: bytes, mtime_ns: int | None) -> None:
        temporary = b".tpca-" + secrets.token_hex(8).encode() + b".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(temporary, flags, 0o666, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                if mtime_ns is not None:
                    os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
            if self.force:
                os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                os.link(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)

    @contextlib.contextmanager
    def _folder(self, parts: list[bytes]) -> Iterator[int]:
        """The folder below the root as a descriptor; links on the way are refused by the system."""
        folder = os.open(self.root, DIRECTORY)
        try:
            for part in parts:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
                below = os.open(part, DIRECTORY, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    @staticmethod
    def _refusal(error: OSError, path: bytes) -> Exception:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return OutputExists(
                f"{printable(path)}: a link or a file stands where a folder belongs; remove it or choose "
                "another output folder"
            )
        if error.errno == errno.EEXIST:
            return OutputExists(f"{printable(path)} exists: choose another folder or add --force")
        return StorageError.of(error, path, "write")
