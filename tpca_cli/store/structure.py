"""HDF5's own records, looked at before HDF5 believes them: their numbers decide how much it allocates and how
far it walks.

A checksum stops an accident, not a lie. So each object is looked at before it is opened: its header must
consist of known messages and lie within the file, its continuations must lead on, and the headers of indexes
and heaps must have the parameters that HDF5 always uses and count no more than the file has bytes.
Caller: `hdf5`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

NOWHERE = 2**64 - 1
_CONTINUATION, _LAYOUT, _LINK_INFO, _ATTRIBUTE_INFO = 16, 8, 2, 21
# padding, shape, links, type, fill values, other files, layout, group, filters, attributes, continuation,
# references
_MESSAGES = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 16, 21, 22})
_CHUNKED = 2
_MAX_PARTS = 4096
_MAX_DEPTH = 16  # of a tree: nodes are full to a fixed share, so a deeper one would not fit any file


class BadFile(Exception):
    """Why a file is refused, without its name; `Hdf5File.calls` makes a `FileRefused` of it."""

    def __init__(self, reason: str, other_format: str = "") -> None:
        super().__init__(reason)
        self.other_format = other_format  # that the file has, if that is the reason


def check_object(read: Callable[[int, int], bytes], length: int, address: int) -> None:
    """The header of one object, with the indexes that it names; BadFile unless HDF5 can read it in bounds.

    `read` gives bytes of the file, by their place and number; `length` is that of the file.
    """
    _Header(read, length).check(address)


class _Header:
    """One object header in its parts."""

    def __init__(self, read: Callable[[int, int], bytes], length: int) -> None:
        self._read = read
        self._length = length
        self._waiting: list[tuple[int, int]] = []  # continuations: where, and how long

    def check(self, address: int) -> None:
        """The first part, then every continuation once."""
        start, end, order = self._first(address)
        self._messages(start, end, order)
        seen = {address}
        while self._waiting:
            where, length = self._waiting.pop()
            if where in seen or len(seen) > _MAX_PARTS:
                raise BadFile("an object header that leads back to itself")
            seen.add(where)
            if self._bytes(where, 4) != b"OCHK" or length < 8:
                raise BadFile("an object header that leads nowhere")
            self._within(where, length)
            self._messages(where + 4, where + length - 4, order)

    def _first(self, address: int) -> tuple[int, int, int]:
        """Where the messages begin and end, and how many bytes each has for its order."""
        if self._bytes(address, 5) != b"OHDR\x02":
            raise BadFile("an object without a header")
        flags = self._bytes(address + 5, 1)[0]
        at = address + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        length = int.from_bytes(self._bytes(at, width), "little")
        self._within(at + width, length + 4)
        return at + width, at + width + length, 2 if flags & 4 else 0

    def _messages(self, at: int, end: int, order: int) -> None:
        while at + 4 + order <= end:
            kind, length, _ = struct.unpack("<BHB", self._bytes(at, 4))
            at += 4 + order
            if kind not in _MESSAGES:
                raise BadFile(f"an object header with a message of kind {kind}")
            if at + length > end:
                raise BadFile("a message that is longer than its header")
            self._message(kind, at, length)
            at += length

    def _message(self, kind: int, at: int, length: int) -> None:
        if kind == _CONTINUATION and length >= 16:
            where, size = struct.unpack("<QQ", self._bytes(at, 16))
            self._waiting.append((where, size))
        elif kind == _CONTINUATION:
            raise BadFile("an object header that leads nowhere")
        elif kind == _LAYOUT:
            self._layout(self._bytes(at, length))
        elif kind in (_LINK_INFO, _ATTRIBUTE_INFO) and length >= 2:
            self._dense(kind, self._bytes(at, length))

    def _layout(self, body: bytes) -> None:
        """Chunked data: the header of the index of their chunks."""
        if len(body) < 5 or body[:2] != bytes((4, _CHUNKED)):
            return
        _, _, flags, rank, width = body[:5]
        at = 5 + rank * width
        if width > 8 or len(body) <= at:
            raise BadFile("a dataset whose layout is cut short")
        kind = body[at]
        skipped = {1: 12 if flags & 2 else 0, 2: 0, 3: 1, 4: 5, 5: 6}.get(kind)
        if skipped is None or len(body) < at + 1 + skipped + 8:
            raise BadFile(f"a dataset with an index of chunks of kind {kind}")
        where = struct.unpack_from("<Q", body, at + 1 + skipped)[0]
        checks = {3: self._fixed_array, 4: self._growing_array, 5: self._tree}
        if where != NOWHERE and kind in checks:
            checks[kind](where)

    def _dense(self, kind: int, body: bytes) -> None:
        """Links or attributes that are stored apart: the headers of a heap and of one or two trees."""
        flags = body[1]
        at = 2 + ((8 if kind == _LINK_INFO else 2) if flags & 1 else 0)
        count = 3 if flags & 2 else 2
        if len(body) < at + 8 * count:
            raise BadFile("an object header that is cut short")
        heap, *trees = struct.unpack_from(f"<{count}Q", body, at)
        if heap != NOWHERE:
            self._heap(heap)
        for tree in trees:
            if tree != NOWHERE:
                self._tree(tree)

    def _growing_array(self, where: int) -> None:
        body = self._bytes(where, 68)
        if body[:5] != b"EAHD\0":
            raise BadFile("an index of chunks that is not there")
        # bits of a count, entries in the first block, in the least block, pointers, bits of a page
        if tuple(body[7:12]) != (32, 4, 16, 4, 10):
            raise BadFile("an index of chunks with unusual parameters")
        self._counts(struct.unpack_from("<6Q", body, 12))

    def _fixed_array(self, where: int) -> None:
        body = self._bytes(where, 24)
        if body[:5] != b"FAHD\0" or body[7] != 10:
            raise BadFile("an index of chunks with unusual parameters")
        self._counts(struct.unpack_from("<Q", body, 8))

    def _tree(self, where: int) -> None:
        body = self._bytes(where, 38)
        if body[:5] != b"BTHD\0":
            raise BadFile("a tree that is not there")
        node, record, depth, _, _, _, _, total = struct.unpack_from("<IHHBBQHQ", body, 6)
        if not 64 <= node <= 1 << 16 or not 0 < record <= node // 2 or depth > _MAX_DEPTH:
            raise BadFile("a tree with unusual parameters")
        self._counts((total,))

    def _heap(self, where: int) -> None:
        body = self._bytes(where, 142)
        if body[:5] != b"FRHP\0":
            raise BadFile("a heap that is not there")
        filters = struct.unpack_from("<H", body, 7)[0]
        width, start, direct, bits = struct.unpack_from("<HQQH", body, 110)
        rows = struct.unpack_from("<H", body, 140)[0]
        usual = width == 4 and 64 <= start <= direct <= 1 << 16 and bits <= 40 and rows <= 64
        if filters or not usual:
            raise BadFile("a heap with unusual parameters")
        huge, managed = struct.unpack_from("<Q", body, 14)[0], struct.unpack_from("<5Q", body, 54)
        self._counts((huge, *managed[2:4]))

    def _counts(self, counts: tuple[int, ...]) -> None:
        """No more of anything than the file has bytes."""
        if max(counts) > self._length:
            raise BadFile("an index that counts more than the file can hold")

    def _within(self, where: int, length: int) -> None:
        if where + length > self._length:
            raise BadFile("an object header that reaches beyond the end of the file")

    def _bytes(self, where: int, length: int) -> bytes:
        self._within(where, length)
        return self._read(where, length)
