"""From what the user typed to a sorted list of image files: folders, files, globs and @lists.

Hides the file system's surprises: links, loops, devices, unreadable folders, names that are not text. Paths
and names are bytes from here on. Nothing is decoded; `tensors` and the pipeline take the list from here.

Names, which an archive keeps: a folder's images are named relative to it, a glob's relative to its fixed
part, a file by its own name, the lines of an @list as written (without leading `/` and `../`). With several
sources, folders and globs put their folder's own name in front.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpca_cli import formats
from tpca_cli.errors import StorageError, TpcaError, UsageError, printable
from tpca_cli.names import name_problem

Source = str | bytes | os.PathLike[str] | os.PathLike[bytes]
HIDDEN = "hidden"
EXCLUDED = "left out by --include or --exclude"
EXAMPLES = 5  # ignored files that are named


UNREADABLE = "cannot be read"
"""How the reason begins where the system, not the content, is at fault."""


@dataclass(frozen=True, slots=True)
class ImageRef:
    """One file to read: where it is, what the archive calls it, and how to notice that it changed."""

    path: bytes
    name: bytes
    size: int
    mtime_ns: int
    linked: bool = False  # its name is a link: the file itself goes by another name
    file: int = field(default=0, compare=False)  # device and inode in one number, on this machine; 0: unknown

    def __reduce__(self) -> tuple[Any, ...]:  # there are many, and dataclasses travel slowly by themselves
        return ImageRef, (self.path, self.name, self.size, self.mtime_ns, self.linked)


@dataclass(frozen=True, slots=True)
class Skipped:
    """One file that is left out, and why."""

    path: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """What is no image and does not look like one, or is not wanted: how many, and a few of them."""

    others: int = 0
    hidden: int = 0
    examples: tuple[bytes, ...] = ()
    excluded: int = 0  # files and folders that patterns leave out
    text: str = field(init=False, compare=False)  # `3 other files and 1 hidden file ignored`, or nothing
    facts: dict[str, Any] = field(init=False, compare=False)  # the same for programs

    def __post_init__(self) -> None:
        parts = [_counted(self.others, "other file", "other files")] if self.others else []
        if self.hidden:
            parts.append(_counted(self.hidden, "hidden file or folder", "hidden files or folders"))
        ignored = [f"{' and '.join(parts)} ignored"] if parts else []
        text = ", ".join([*ignored, *([f"{self.excluded} {EXCLUDED}"] if self.excluded else [])])
        facts = {
            "ignored": self.others + self.hidden,
            "ignored_hidden": self.hidden,
            "ignored_examples": list(self.examples),
            "excluded": self.excluded,
        }
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "facts", facts)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


NOTHING_IGNORED = Ignored()


@dataclass(frozen=True, slots=True)
class Scan:
    """The images in the order of their names; skipped files deserve a warning, ignored ones a count."""

    refs: tuple[ImageRef, ...]
    skipped: tuple[Skipped, ...]
    ignored: tuple[Skipped, ...]
    repeated: int = 0  # names that lead to a file of another name, left out
    left_out: Ignored = field(init=False)  # the ignored in short

    def __post_init__(self) -> None:
        others = [item.path for item in self.ignored if item.reason not in (HIDDEN, EXCLUDED)]
        hidden = sum(item.reason == HIDDEN for item in self.ignored)
        excluded = len(self.ignored) - len(others) - hidden
        left_out = Ignored(len(others), hidden, tuple(others[:EXAMPLES]), excluded)
        object.__setattr__(self, "left_out", left_out)


def scan(sources: Sequence[Source], *, whole: bool = False, distinct: bool = False) -> Scan:
    """Every image of the sources, sorted by the bytes of its name, whatever order the disk lists them in.

    With `whole`, also files that are not read as images but look like media by content or by name. With
    `distinct`, each file once, by the first of its names: links and several sources may lead to one file.
    """
    sweep = _Sweep(sources if isinstance(sources, Sources) else None, whole)
    for source in sources:
        sweep.add_source(os.fsencode(source), several=len(sources) > 1)
    names = sorted(sweep.refs.values(), key=lambda ref: ref.name)
    refs = _by_first_name(names) if distinct else names
    return Scan(
        refs=tuple(refs),
        skipped=tuple(sorted(dict.fromkeys(sweep.skipped), key=lambda entry: entry.path)),
        ignored=tuple(sorted(dict.fromkeys(sweep.ignored), key=lambda entry: entry.path)),
        repeated=len(names) - len(refs),
    )


def require_some(found: Scan, sources: Sequence[Source]) -> None:
    """Sources without an image are an error: a disk that is not mounted looks like that."""
    if found.refs:
        return
    raise no_image("no image", sources, found.skipped, found.left_out)


def no_image(what: str, sources: Sequence[Source], skipped: Sequence[Skipped], ignored: Ignored) -> TpcaError:
    """The error for sources of which nothing is left, with the reason for each file."""
    where = ", ".join(printable(os.fsencode(source)) for source in sources)
    error = TpcaError(f"{what} in {where} ({len(skipped)} skipped, {ignored.text or 'nothing ignored'})")
    error.skipped = tuple((item.path, item.reason) for item in skipped)
    return error


def _by_first_name(refs: Sequence[ImageRef]) -> list[ImageRef]:
    seen: set[int] = set()
    kept = []
    for ref in refs:
        if not ref.file or ref.file not in seen:
            kept.append(ref)
            seen.add(ref.file)
    return kept


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder still to be listed; `above` are its own and its ancestors' inodes, to notice a mount loop."""

    path: bytes
    parts: tuple[bytes, ...]
    above: frozenset[tuple[int, int]]


class _Sweep:
    """Collects while walking; one instance per call of `scan`."""

    def __init__(self, patterns: Sources | None, whole: bool) -> None:
        self._patterns = patterns
        self._whole = whole
        self._real: dict[bytes, bytes] = {}  # folders without links
        self.refs: dict[bytes, ImageRef] = {}
        self.found = 0  # images, of which several sources may hold the same
        self.skipped: list[Skipped] = []
        self.ignored: list[Skipped] = []

    def add_source(self, source: bytes, several: bool) -> None:
        if os.path.lexists(source):
            is_folder, before, listed = os.path.isdir(source), self._noticed(), len(self.ignored)
            self._add_named(source, _own_name(source) if several or not is_folder else b"")
            excluded = any(item.reason == EXCLUDED for item in self.ignored[listed:])
            if several and is_folder and self._noticed() == before and not excluded:
                self.skipped.append(Skipped(source, "no image in this folder: is it mounted?"))
        elif source.startswith(b"@") and len(source) > 1:
            for line in _lines(source[1:]):
                self._add_named(line, _listed_name(line))
        elif glob.has_magic(source):
            root, pattern = _split_pattern(source)
            before = self.found
            if os.path.isdir(root or b"."):
                self._walk(root or b".", _own_name(root) if several else b"", pattern)
            if self.found == before:
                raise UsageError(f"no image matches {printable(source)}; check the pattern")
        else:
            raise UsageError(f"no such file or folder: {printable(source)}")

    def _noticed(self) -> int:
        return self.found + len(self.skipped)

    def _add_named(self, path: bytes, name: bytes) -> None:
        """A path that the user wrote out: a link is followed, and what is missing is an error."""
        try:
            found = os.lstat(path)
            link = stat.S_ISLNK(found.st_mode)
            if link:
                found = os.stat(path)
        except FileNotFoundError:
            raise UsageError(f"no such file or folder: {printable(path)}") from None
        except OSError as error:
            raise StorageError.of(error, path, "look at") from error
        if stat.S_ISDIR(found.st_mode):
            self._walk(path, name)
        elif self._wanted(path, name):
            self._add_file(os.path.realpath(path) if link else self._target(path), path, name, found)

    def _target(self, path: bytes) -> bytes:
        """The file of a path that is no link, without links; a list names many in few folders."""
        folder, last = os.path.split(path)
        if not last:
            return os.path.realpath(path)
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder or b".")
        return os.path.join(self._real[folder], last)

    def _walk(self, root: bytes, prefix: bytes, pattern: tuple[bytes, ...] = ()) -> None:
        """All below one folder that the pattern selects; no link to a folder is followed."""
        inside = os.path.realpath(root)
        top = os.stat(root)
        pending = [_Folder(root, (), frozenset([(top.st_dev, top.st_ino)]))]
        while pending:
            folder = pending.pop()
            try:
                with os.scandir(folder.path) as listing:
                    entries = list(listing)
            except OSError as error:
                self.skipped.append(Skipped(folder.path, f"folder cannot be listed: {error.strerror}"))
                continue
            for entry in entries:
                parts = (*folder.parts, entry.name)
                selected, promising = _match(parts, pattern)
                if entry.name.startswith(b"."):
                    if selected:
                        self.ignored.append(Skipped(entry.path, HIDDEN))
                elif self._excluded(name := b"/".join((prefix, *parts) if prefix else parts)):
                    if selected:
                        self.ignored.append(Skipped(entry.path, EXCLUDED))
                elif entry.is_dir(follow_symlinks=False):
                    key = _key(entry)
                    if key is None:
                        self.skipped.append(Skipped(entry.path, "folder cannot be looked at"))
                    elif key in folder.above:
                        self.ignored.append(Skipped(entry.path, "folder contains itself"))
                    elif selected or promising:
                        pending.append(_Folder(entry.path, parts, folder.above | {key}))
                elif selected and self._wanted(entry.path, name):
                    self._entry(entry, name, inside)

    def _excluded(self, name: bytes) -> bool:
        return self._patterns is not None and self._patterns.exclude.match(name)

    def _wanted(self, path: bytes, name: bytes) -> bool:
        """Whether the patterns choose a file; one that they do not is never looked at."""
        if self._patterns is None or self._patterns.wants(name):
            return True
        self.ignored.append(Skipped(path, EXCLUDED))
        return False

    def _entry(self, entry: os.DirEntry[bytes], name: bytes, inside: bytes) -> None:
        """One thing found in a folder: a file, a link or something that must not be opened."""
        target = path = entry.path
        try:
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                target = os.path.realpath(path)
                found = os.stat(target)
                if stat.S_ISDIR(found.st_mode):
                    self.ignored.append(Skipped(path, "link to a folder"))
                    return
                if not target.startswith(inside.rstrip(b"/") + b"/"):
                    self._leave_out(path, "link out of the folder")
                    return
        except OSError as error:
            self._leave_out(path, f"cannot be examined: {error.strerror}")
            return
        self._add_file(target, path, name, found)

    def _keeps(self, head: bytes, path: bytes) -> bool:
        """Whether a file counts that is not read: where all media do."""
        return self._whole and bool(formats.foreign(head, path) or formats.promises_media(path))

    def _leave_out(self, path: bytes, reason: str) -> None:
        """A thing that is not opened: its name decides whether that deserves a word."""
        (self.skipped if formats.promises_media(path) else self.ignored).append(Skipped(path, reason))

    def _add_file(self, target: bytes, path: bytes, name: bytes, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            self._leave_out(path, "not a regular file")
            return
        if found.st_size == 0:
            self._leave_out(path, "empty file")
            return
        try:
            head = _head(target)
        except OSError as error:  # it may be anything: an image, too
            self.skipped.append(Skipped(path, f"{UNREADABLE}: {error.strerror}"))
            return
        if formats.sniff(head) is None and not self._keeps(head, path):
            media = formats.foreign(head, path)
            if media is None:
                self._leave_out(path, "not an image by content")
            else:
                self.skipped.append(Skipped(path, f"{media} is not read"))
            return
        problem = name_problem(name)
        if problem is not None:
            self.skipped.append(Skipped(path, f"cannot be restored: {problem}"))
            return
        earlier = self.refs.get(name)
        if earlier is not None and earlier.path != target:
            raise UsageError(
                f"{printable(path)} and {printable(earlier.path)} would both be called {printable(name)}; "
                "give their common folder instead"
            )
        self.found += 1
        self.refs[name] = ImageRef(
            path=target,
            name=name,
            size=found.st_size,
            mtime_ns=found.st_mtime_ns,
            linked=target != path and os.path.islink(path),
            file=found.st_dev << 64 | found.st_ino if found.st_ino else 0,
        )


def _key(folder: os.DirEntry[bytes]) -> tuple[int, int] | None:
    """What tells one folder from all others; None if it is gone, or its path too long."""
    try:
        found = folder.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _head(path: bytes) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, formats.HEAD_BYTES)
    finally:
        os.close(descriptor)


def _lines(path: bytes) -> Iterator[bytes]:
    """The paths of an @list: one per line, or separated by NUL as `find -print0` writes them."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise UsageError(f"no such list: {printable(path)}") from None
    except OSError as error:
        raise StorageError.of(error, path, "read the list") from error
    for line in data.split(b"\0") if b"\0" in data else data.splitlines():
        if line:
            yield line


def _listed_name(path: bytes) -> bytes:
    parts = os.path.normpath(path).split(b"/")
    while parts and parts[0] in (b"", b".", b".."):
        parts.pop(0)
    return b"/".join(parts)


def _own_name(path: bytes) -> bytes:
    return os.path.basename(os.path.abspath(path or b"."))


def _split_pattern(source: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """A glob as the folder before its first wildcard and the parts from there on."""
    parts = source.split(b"/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = b"/".join(parts[:first])
    if not root and source.startswith(b"/"):
        root = b"/"
    return root, tuple(part for part in parts[first:] if part)


def _match(parts: tuple[bytes, ...], pattern: tuple[bytes, ...]) -> tuple[bool, bool]:
    """Whether the pattern selects this path (or a folder above it), and whether it may select below it."""
    if not pattern:
        return True, True
    if not parts:
        return False, True
    if pattern[0] == b"**":
        here, below = _match(parts, pattern[1:]), _match(parts[1:], pattern)
        return here[0] or below[0], True
    if fnmatch.fnmatchcase(parts[0], pattern[0]):
        return _match(parts[1:], pattern[1:])
    return False, False


class Sources(tuple[str, ...]):
    """Sources as the user named them, with patterns for the names of the images that are found there.

    A tuple, so that whatever takes a list of sources takes these; `scan` looks for the patterns.
    """

    include: Patterns
    exclude: Patterns

    def __new__(cls, sources: Iterable[str], include: Sequence[str], exclude: Sequence[str]) -> Sources:
        """The same sources, without what the patterns leave out."""
        made = super().__new__(cls, sources)
        made.include, made.exclude = Patterns(include), Patterns(exclude)
        return made

    def wants(self, name: bytes) -> bool:
        """Whether an image of this name is chosen."""
        return not self.exclude.match(name) and (not self.include or self.include.match(name))


class Patterns:
    """Globs of which one must match: the whole name or a folder above it, or, without `/`, any part of it.

    `*` also stands for `/`: `holiday/*`, `*.gif`, `thumbs`, `*/thumbs/*`.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        # bytes of any kind are text in this way, and matched one by one
        self._given = [os.fsencode(each).decode("latin-1").strip("/") for each in globs]
        self._whole = [re.compile(fnmatch.translate(each)) for each in self._given]
        self._part = [match for match, each in zip(self._whole, self._given, strict=True) if "/" not in each]

    def __bool__(self) -> bool:
        return bool(self._given)

    def match(self, name: bytes) -> bool:
        """Whether one of them matches a name, a folder above it or a part of it."""
        if not self._given:
            return False
        parts = name.decode("latin-1").split("/")
        paths = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        return any(each.match(path) for each in self._whole for path in paths) or any(
            each.match(part) for each in self._part for part in parts
        )
