"""The only module that imports h5py: without plugins, with signals deferred, over file objects of our own.

HDF5 crashes when its file driver fails at the wrong moment. So the file objects that it gets never raise:
they remember the first failure, report success, and our code asks for the failure after every call. What HDF5
writes after a failure is kept in memory, so that it can read it back while it closes the file.
"""

from __future__ import annotations

import atexit
import io
import math
import mmap
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca_cli.errors import FileRefused, OtherFormat, StorageError, TpcaError, printable
from tpca_cli.store.files import AnyPath, DeferredSignals
from tpca_cli.store.schema import Attribute
from tpca_cli.store.structure import NOWHERE, BadFile, check_object

if TYPE_CHECKING:
    from tpca_cli.store.remote import RemoteBytes

# HDF5 would load any library from a plugin folder to read a foreign filter; it reads this once, at start
os.environ["HDF5_PLUGIN_PRELOAD"] = "::"

with DeferredSignals():  # an import that a signal breaks in the middle does not say so
    from h5py import h5a, h5d, h5ds, h5f, h5fd, h5g, h5i, h5l, h5o, h5p, h5s, h5t, h5z
    from h5py._objects import phil

__all__ = [
    "BadFile",
    "Hdf5File",
    "InputFile",
    "LocalBytes",
    "OutputFile",
    "creation_properties",
    "h5a",
    "h5d",
    "h5ds",
    "h5g",
    "h5l",
    "h5o",
    "h5p",
    "h5s",
    "h5t",
    "h5z",
    "make_groups",
]


CHUNK_BYTES = 1 << 24  # no chunk is larger, decoded
GAP = 1 << 10  # between chunks there is little more than a checksum
_APART_BYTES = 1 << 22
_NAME = b"tpca"  # of every file, for HDF5
_MAGIC = b"\x89HDF\r\n\x1a\n"
_HEADER = struct.Struct("<8sBBBBQQQQI")
_ROOT = 36  # where the header has the address of the root
_ROOM = 16 << 20  # bytes that must be free for a new file: HDF5 ends the process where it finds too few


class LocalBytes:
    """The bytes behind a descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        found = os.fstat(fd)
        self.size = found.st_size
        self.regular = stat.S_ISREG(found.st_mode)
        self.device_inode = found.st_dev, found.st_ino  # which file this is, whatever has its name by now

    def fill(self, view: memoryview, offset: int) -> int:
        """Bytes from anywhere; fewer than the view holds only at the end of the file."""
        done = 0
        while done < len(view):
            count = os.preadv(self.fd, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    fill_once = fill

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


class InputFile:
    """A file as HDF5 reads it: never raises, keeps the first failure in `failure`."""

    def __init__(self, source: LocalBytes | RemoteBytes) -> None:
        self.source = source
        self._at = 0
        self.length = source.size  # that HDF5 believes in; what is missing of it reads as zeros
        self.failure: BaseException | None = None
        self._unwritten: list[tuple[int, bytes]] = []

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; the end is where HDF5 believes it is, even after a failure."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.length}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The position of the next read or write."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Bytes from the position; h5py asks for this method but reads through `readinto`."""
        buffer = bytearray(max(0, self.length - self._at) if size < 0 else size)
        self.readinto(buffer)
        return bytes(buffer)

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes from anywhere."""
        self._at = offset
        return self.read(size)

    def readinto(self, buffer: Any) -> int:
        """Fill the whole buffer: what cannot be read is zeros, and then a checksum of HDF5 complains."""
        view = memoryview(buffer).cast("B")
        done = 0
        try:
            done = self.source.fill(view, self._at)
        except BaseException as error:
            self._remember(error)
        view[done:] = bytes(len(view) - done)
        for offset, data in self._unwritten:
            start, stop = max(offset, self._at), min(offset + len(data), self._at + len(view))
            if start < stop:
                view[start - self._at : stop - self._at] = data[start - offset : stop - offset]
        self._at += len(view)
        return len(view)

    def stretches(self, parts: list[tuple[int, int]]) -> bytes:
        """Parts of the file, (start, stop), one after another; those that nearly touch are read at once.

        Not for HDF5: failures are raised, and threads do not wait for one another.
        """
        out = []
        while parts:
            count = 1
            while count < len(parts) and 0 <= parts[count][0] - parts[count - 1][1] <= GAP:
                count += 1
            near, parts = parts[:count], parts[count:]
            first, last = near[0][0], near[-1][1]
            data = bytearray(last - first)  # what is not in the file any more reads as zeros
            self.source.fill_once(memoryview(data), first)
            out += [memoryview(data)[start - first : stop - first] for start, stop in near]
        return b"".join(out)

    def flush(self) -> None:
        """Nothing is buffered here; durability is one fsync at the end."""

    def _remember(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error


class OutputFile(InputFile):
    """The same for writing: after a failure, writes go to memory instead of the file."""

    def __init__(self, fd: int) -> None:
        super().__init__(LocalBytes(fd))
        self._fd = fd

    def write(self, data: Any) -> int:
        """Write at the position; all of it, or the failure is remembered."""
        view = memoryview(data).cast("B")
        if self.failure is None:
            try:
                done = 0
                while done < len(view):
                    done += os.pwrite(self._fd, view[done:], self._at + done)
            except BaseException as error:
                self._remember(error)
        if self.failure is not None:
            self._unwritten.append((self._at, bytes(view)))
        self._at += len(view)
        self.length = max(self.length, self._at)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the length."""
        self.length = self._at if size is None else size
        if self.failure is None:
            try:
                os.ftruncate(self._fd, self.length)
            except BaseException as error:
                self._remember(error)
        return self.length

    def abandon(self) -> None:
        """Write nothing more to the file: it will not be kept."""
        self._remember(OSError("abandoned"))


class Hdf5File:
    """An HDF5 file over a file object of ours: every call into HDF5 runs inside `calls`."""

    def __init__(self, stream: InputFile, path: AnyPath) -> None:
        self.stream = stream
        self.path = path
        self.id: Any = None
        self._apart: Any = None  # a file in memory, for objects that are taken in later
        self._waiting = 0  # about the bytes in it

    def create(self) -> None:
        """Make the file anew."""
        try:
            mmap.mmap(-1, _ROOM).close()
        except OSError as error:
            raise MemoryError(f"no memory to make {printable(self.path)}") from error
        creation = h5p.create(h5p.FILE_CREATE)
        creation.set_obj_track_times(False)
        # attributes stay in the header: no heap for a few more than eight
        creation.set_attr_phase_change(32, 0)
        with phil:  # see `_release`, which knows of no property lists
            self.id = h5f.create(_NAME, h5f.ACC_TRUNC, creation, self._access())

    def apart(self, size: int) -> Any:
        """A file in memory for a small object of about this size, until `take_in`.

        HDF5 leaves room for attributes in the header of every object, more than the header itself takes;
        when it copies an object it leaves none.
        """
        if self._waiting + size > _APART_BYTES:
            self.take_in()
        if self._apart is None:
            access = h5p.create(h5p.FILE_ACCESS)
            access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
            access.set_fapl_core(1 << 16, False)
            self._apart = h5f.create(b"tpca-apart", h5f.ACC_TRUNC, None, access)
        self._waiting += size
        return self._apart

    def take_in(self) -> None:
        """Copy what is apart into the file."""
        if self._apart is not None:
            _copy(h5g.open(self._apart, b"/"), self.root)
            self._apart.close()
            self._apart, self._waiting = None, 0

    def open(self, *, cut: bool = False) -> None:
        """Open the file to read it, after a look at its header and at the object that it begins with.

        A `cut` one may be shorter than it says: what is missing reads as zeros, which no digest and no
        checksum agrees with.
        """
        self._check_header(cut)
        self.look_at(int.from_bytes(self.stream.read_at(_ROOT, 8), "little"))
        with phil:
            self.id = h5f.open(_NAME, h5f.ACC_RDONLY, self._access())

    def look_at(self, address: int) -> None:
        """BadFile unless HDF5 can read the header of the object at this address within bounds."""
        check_object(self.stream.read_at, self.stream.length, address)

    def _access(self) -> Any:
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
        access.set_fileobj_driver(h5fd.fileobj_driver, self.stream)
        return access

    def _check_header(self, cut: bool) -> None:
        """Refuse what is not a regular HDF5 file, closed by its writer and as long as it says."""
        size = self.stream.source.size
        if not self.stream.source.regular:
            raise BadFile("not a regular file")
        if size == 0:
            raise BadFile("the file is empty")
        head = self.stream.read(_HEADER.size)
        if head[:8] != _MAGIC:
            raise BadFile("not a tpca file")
        if size < _HEADER.size:
            raise BadFile("truncated")
        _, version, offsets, lengths, flags, base, extension, end, _, _ = _HEADER.unpack(head)
        if (version, offsets, lengths) != (3, 8, 8):
            raise BadFile("not a tpca file (another kind of HDF5)")
        if flags:
            raise BadFile("incomplete: its writer was stopped, or is still writing")
        if base != 0 or extension != NOWHERE:
            raise BadFile("not a tpca file (unexpected HDF5 features)")
        if end > size and not cut:
            raise BadFile(f"truncated: {size} bytes of {end}; of an archive, --salvage saves what is left")
        if end < size:
            raise BadFile(f"{size - end} foreign bytes after its end")
        self.stream.length = end

    @property
    def root(self) -> Any:
        """The root group."""
        return h5g.open(self.id, b"/")

    def set_attributes(self, values: Mapping[str, Attribute]) -> None:
        """All attributes of the root, in the order of their names."""
        root = self.root
        for name in sorted(values):
            _set_attribute(root, name, values[name])

    def replace_text(self, name: str, text: str) -> None:
        """Another text of the same length in an attribute of the root: nothing moves in the file."""
        attribute = h5a.open(self.root, name.encode("ascii"))
        content = np.array(text.encode(), dtype=f"S{len(text.encode())}")
        if attribute.get_type().get_size() != content.dtype.itemsize:
            raise ValueError(f"attribute {name!r} has another length")
        attribute.write(content, mtype=attribute.get_type())

    @contextmanager
    def calls(self, doing: str) -> Iterator[None]:
        """Around calls into HDF5: signals wait, and failures become errors that name the file.

        A failure of the system is a StorageError; anything else that HDF5 finds is a damaged file.
        """
        with DeferredSignals():
            try:
                try:
                    yield
                finally:
                    failure = self.stream.failure
                    if isinstance(failure, OSError):
                        raise StorageError.of(failure, self.path, doing) from failure
                    if failure is not None:
                        raise failure
            except (TpcaError, MemoryError):
                raise
            except BadFile as error:
                reason = f"{printable(self.path)} was refused: {error}"
                if error.other_format:
                    raise OtherFormat(reason, error.other_format) from error
                raise FileRefused(reason) from error
            except Exception as error:
                raise self._explained(error, doing) from error

    def _explained(self, error: Exception, doing: str) -> Exception:
        """What HDF5 complains of, as an error that names the file."""
        path = printable(self.path)
        if "memory allocation" in str(error):
            return MemoryError(f"not enough memory to {doing} {path}")
        reason = printable((" ".join(str(error).split()) or type(error).__name__)[:200])
        if doing == "write":
            return StorageError(f"cannot write {path}: {reason}")
        return FileRefused(f"{path} is damaged: {reason}")

    def close(self, *things: Any) -> None:
        """Close identifiers now: the garbage collector would do it where signals are not deferred."""
        file, self.id = self.id, None
        apart, self._apart = self._apart, None
        for thing in (*things, apart, file):
            if thing is not None and thing.valid:
                thing.close()


@atexit.register
def _release() -> None:
    """Close what threads still hold when Python ends: HDF5 would do it later, and call Python, which is gone.

    Threads wait for ever before they call HDF5 again: one that Python stops within a call keeps the lock of
    HDF5, which the end of the process waits for. Descriptors stay open: a thread may still be reading blocks,
    and must not read another file instead.
    """
    phil.acquire()
    with DeferredSignals():
        for file in h5f.get_obj_ids(types=h5f.OBJ_FILE):
            if h5f.get_name(file) == _NAME:
                while file.valid:  # until nobody holds it
                    h5i.dec_ref(file)


def creation_properties(kind: np.dtype[Any], chunk: tuple[int, ...] | None, level: int) -> Any:
    """The property list of a dataset: compact without a chunk, else chunked, checksummed, maybe deflated."""
    layout = h5p.create(h5p.DATASET_CREATE)
    layout.set_obj_track_times(False)
    layout.set_fill_time(h5d.FILL_TIME_NEVER)
    if chunk is None:
        layout.set_layout(h5d.COMPACT)
        return layout
    layout.set_chunk(bounded_chunk(chunk, kind.itemsize))
    if level:
        if kind.itemsize > 1:
            layout.set_shuffle()
        layout.set_deflate(level)
    layout.set_fletcher32()
    return layout


def bounded_chunk(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The chunk shape at most as large as allowed: leading axes shrink first."""
    chunk = list(shape)
    for axis in range(len(chunk)):
        rest = itemsize * math.prod(chunk[axis + 1 :])
        if rest * chunk[axis] <= CHUNK_BYTES:
            break
        chunk[axis] = max(1, CHUNK_BYTES // rest)
    return tuple(chunk)


def make_groups(file: Any, path: str) -> None:
    """The groups that a dataset is in."""
    # not left to HDF5, which may note the time of day in groups that it makes by itself
    root = h5g.open(file, b"/")
    plain = h5p.create(h5p.GROUP_CREATE)
    plain.set_obj_track_times(False)
    parts = path.encode().split(b"/")
    for end in range(1, len(parts)):
        group = b"/".join(parts[:end])
        if not root.links.exists(group):
            h5g.create(file, group, gcpl=plain)


def _copy(source: Any, target: Any) -> None:
    """Every object of a group into another, in the order of names; groups that both have become one."""
    for name in sorted(source):
        if target.links.exists(name):
            _copy(h5o.open(source, name), h5o.open(target, name))
        else:
            h5o.copy(source, name, target, name)


def _set_attribute(root: Any, name: str, value: Attribute) -> None:
    # fixed-size text, a number, or bytes
    if isinstance(value, str):
        text = value.encode()
        kind = h5t.C_S1.copy()
        kind.set_size(max(1, len(text)))
        kind.set_strpad(h5t.STR_NULLPAD)
        kind.set_cset(h5t.CSET_UTF8)
        content = np.array(text, dtype=f"S{max(1, len(text))}")
    elif isinstance(value, bytes):
        kind, content = h5t.STD_U8LE, np.frombuffer(value, "u1")
    elif isinstance(value, int):
        kind, content = h5t.STD_I64LE, np.array(value, "<i8")
    else:
        kind, content = h5t.IEEE_F64LE, np.array(value, "<f8")
    attribute = h5a.create(root, name.encode("ascii"), kind, h5s.create_simple(content.shape))
    if content.size:
        attribute.write(content, mtype=kind)
