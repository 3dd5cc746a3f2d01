"""Which names an archive may hold: those that are safe to write below any folder.

One rule for both sides: `scan` skips what breaks it, so that nothing is found to be unrestorable after the
originals are gone, and a file that breaks it is refused before anything is written.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Iterable, Sequence

from tpca_cli.errors import FileRefused, TpcaError, printable

MAX_COMPONENT = 255
MAX_NAME = 4000  # the system allows 4095 for a whole path: leave room for the folder


def name_problem(name: bytes) -> str | None:
    """Why a name must not be written below a folder, or None."""
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


def restored_names(names: Sequence[bytes], ending: bytes, kept: Collection[bytes] = ()) -> list[bytes]:
    """The file names of restored images: the stem stays, the ending is that of the new format.

    Where two would become one (`a.jpg` and `a.png`), the later keeps its whole name before the ending, and
    so does one that would take the name of a folder (`a.jpg` beside `a.png/b.jpg`). Nothing takes a name that
    is `kept` for another.
    """
    taken = folders_of(names) | set(kept)
    result: dict[bytes, bytes] = {}
    for name in sorted(names):
        folder, slash, last = name.rpartition(b"/")
        stem, dot, _ = last.rpartition(b".")
        target = folder + slash + (stem if dot and stem else last) + ending
        if target in taken:
            target = name + ending
            while target in taken:
                target += ending
        taken.add(target)
        result[name] = target
    return [result[name] for name in names]


def matching(
    names: Sequence[bytes], globs: Sequence[str], exactly: Collection[bytes] | None = None
) -> list[int]:
    """The positions of names that match a glob or are among those given `exactly`; TpcaError if none is.

    `*` also stands for `/`.
    """
    wanted = [os.fsencode(glob).decode("latin-1") for glob in globs]  # so that any bytes are text
    found = [
        position
        for position, name in enumerate(names)
        if (exactly is not None and name in exactly)
        or any(fnmatch.fnmatchcase(name.decode("latin-1"), glob) for glob in wanted)
    ]
    if not found:
        listed = [f"the {len(exactly)} names of the list"] if exactly is not None else []
        raise TpcaError(f"no image matches {', '.join([*globs, *listed])}; `tpca ls` shows the names")
    return found


def folders_of(names: Iterable[bytes]) -> set[bytes]:
    """Every folder above these names."""
    folders: set[bytes] = set()
    for name in names:
        folder = name.rpartition(b"/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition(b"/")[0]
    return folders


def check_names(names: Iterable[bytes]) -> None:
    """Refuse a whole list of names if one of them is unsafe, or if two would be the same file."""
    seen: set[bytes] = set()
    for name in names:
        problem = name_problem(name) or ("the same name twice" if name in seen else None)
        if problem:
            raise FileRefused(f"the archive holds {problem}: {printable(name)}; nothing was written")
        seen.add(name)
    for name in seen & folders_of(seen):
        raise FileRefused(f"the archive holds {printable(name)} both as a file and as a folder")
