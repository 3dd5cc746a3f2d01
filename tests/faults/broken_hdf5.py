"""HDF5 structures broken from inside, with checksums that are right again: what HDF5 itself has to parse.

A flipped bit in a file of ours is refused by a checksum before anybody believes the byte. Whoever makes a
file to do harm writes the checksum, too. Here each structure of a good file (superblock, object headers,
indexes of chunks) is found by its signature, one field in it is set to something that hurts, and the checksum
is made anew.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

SIGNATURES = (
    *(b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"FHIB", b"BTHD", b"BTIN", b"BTLF", b"FAHD", b"FADB"),
    *(b"EAHD", b"EAIB", b"EADB", b"EASB", b"FSHD", b"FSSE", b"SMTB", b"SMLI"),
)
LONGEST = 4096
SUPERBLOCK = 44  # bytes before its checksum
MESSAGES = dict(
    enumerate(
        (
            *("dataspace", "link-info", "datatype", "old-fill", "fill", "link", "external", "layout"),
            *("bogus", "group-info", "filters", "attribute", "comment", "old-time", "shared-table"),
            *("continuation", "symbols", "time", "k-values", "driver", "attribute-info", "references"),
        ),
        1,
    )
)


@dataclass(frozen=True)
class Part:
    """One structure of a file: where it begins and where its checksum is."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class Broken:
    """A file with one lie in it: `words` at `place` of a structure."""

    name: str
    whole: bytes
    part: Part
    changes: tuple[tuple[int, bytes], ...]

    def data(self) -> bytes:
        """The bytes of the file, its checksum made anew."""
        copy = bytearray(self.whole)
        for place, words in self.changes:
            copy[place : place + len(words)] = words
        return repaired(copy, self.part)


def lookup3(data: bytes, lengths: np.ndarray) -> np.ndarray:
    """Bob Jenkins' hash of the first bytes, for many lengths at once: the checksum of HDF5's metadata."""
    lengths = np.asarray(lengths, np.uint32)
    room = -(-(int(lengths.max()) + 1) // 12) * 12 + 12
    padded = np.frombuffer(data[: int(lengths.max())].ljust(room, b"\0"), np.uint8)
    a, b, c = ((np.uint32(0xDEADBEEF) + lengths).astype(np.uint32) for _ in range(3))
    with np.errstate(over="ignore"):
        for block in range(int(lengths.max() + 11) // 12):
            left = lengths.astype(np.int64) - 12 * block
            here = padded[12 * block : 12 * block + 12]
            kept = np.where(np.arange(12) < left[:, None], here, 0).astype(np.uint8).view("<u4")
            live, last = left > 0, left <= 12
            mixed = _mixed(a + kept[:, 0], b + kept[:, 1], c + kept[:, 2])
            final = _final(a + kept[:, 0], b + kept[:, 1], c + kept[:, 2])
            a, b, c = (
                np.where(live, np.where(last, done, going), before)
                for done, going, before in zip(final, mixed, (a, b, c), strict=True)
            )
    return c


def _turned(value: np.ndarray, by: int) -> np.ndarray:
    return value << np.uint32(by) | value >> np.uint32(32 - by)


def _mixed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    for by_a, by_b, by_c in ((4, 6, 8), (16, 19, 4)):
        a = (a - c) ^ _turned(c, by_a)
        c = c + b
        b = (b - a) ^ _turned(a, by_b)
        a = a + c
        c = (c - b) ^ _turned(b, by_c)
        b = b + a
    return a, b, c


def _final(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    c = (c ^ b) - _turned(b, 14)
    a = (a ^ c) - _turned(c, 11)
    b = (b ^ a) - _turned(a, 25)
    c = (c ^ b) - _turned(b, 16)
    a = (a ^ c) - _turned(c, 4)
    b = (b ^ a) - _turned(a, 14)
    c = (c ^ b) - _turned(b, 24)
    return a, b, c


def parts(data: bytes) -> list[Part]:
    """Every structure of a file that carries a checksum: the length at which it agrees is its own."""
    found = [Part("superblock", 0, SUPERBLOCK)]
    for signature in SIGNATURES:
        at = data.find(signature)
        while at >= 0:
            longest = min(LONGEST, len(data) - at - 4)
            lengths = np.arange(6, longest + 1)
            stored = np.array([struct.unpack_from("<I", data, at + int(n))[0] for n in lengths], np.uint32)
            right = np.flatnonzero(lookup3(data[at : at + longest], lengths) == stored)
            if len(right):
                found.append(Part(signature.decode(), at, at + int(lengths[right[0]])))
            at = data.find(signature, at + 1)
    return sorted(found, key=lambda part: part.start)


def repaired(data: bytearray, part: Part) -> bytes:
    """The file with the checksum that the structure now has."""
    length = part.end - part.start
    value = lookup3(bytes(data[part.start : part.end]), np.array([length]))[0]
    struct.pack_into("<I", data, part.end, int(value))
    return bytes(data)


def messages(data: bytes, part: Part) -> Iterator[tuple[int, int, int]]:
    """(type, first byte, length) of the messages in an object header or its continuation."""
    if part.kind not in ("OHDR", "OCHK"):
        return
    at, order = part.start + 4, 0
    if part.kind == "OHDR":
        flags = data[part.start + 5]
        order = 2 if flags & 4 else 0
        at = part.start + 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0) + (1 << (flags & 3))
    while at + 4 + order <= part.end:
        kind, size = data[at], struct.unpack_from("<H", data, at + 1)[0]
        yield kind, at, size
        at += 4 + order + size


HURTFUL = (b"\xff", b"\x00", b"\x80", b"\x7f", b"\x01")
WORDS = (b"\xff" * 2, b"\xff" * 4, b"\xff" * 8, b"\x00" * 8, b"\x00\x00\x00\x80")


def broken_messages(data: bytes, found: list[Part]) -> Iterator[Broken]:
    """Of each kind of message the first one: its type, its length and what it says, byte by byte."""
    seen: set[tuple[str, int]] = set()
    for part in found:
        for kind, at, size in messages(data, part):
            if (part.kind, kind) in seen:
                continue
            seen.add((part.kind, kind))
            label = f"{part.kind}-{MESSAGES.get(kind, kind)}"
            for place in range(at, min(at + 4 + size, at + 28, part.end)):
                for value in HURTFUL:
                    yield Broken(f"{label}-{place - at}-{value.hex()}", data, part, ((place, value),))
            for other, name in MESSAGES.items():
                yield Broken(f"{label}-as-{name}", data, part, ((at, bytes([other])),))


def broken_fields(data: bytes, found: list[Part]) -> Iterator[Broken]:
    """Words of every structure at the ends of their range."""
    for part in found:
        rng = random.Random(part.start)
        places = range(part.start + 4, part.end)
        for place in rng.sample(places, min(len(places), 24)):
            for word in WORDS:
                if place + len(word) <= part.end:
                    name = f"{part.kind}-{part.start}-{place - part.start}-{word.hex()}"
                    yield Broken(name, data, part, ((place, word),))


def led_astray(data: bytes, found: list[Part]) -> Iterator[Broken]:
    """Every address of a structure in another one leads to itself, to others, to the end and beyond."""
    known = [part.start for part in found[1:]]
    beyond = [0, len(data) - 1, len(data), len(data) + 4096, 1 << 40, (1 << 64) - 2]
    for part in found:
        for place in range(part.start + 4, part.end - 7):
            held = struct.unpack_from("<Q", data, place)[0]
            if held in known:
                for target in (part.start, *random.Random(place).sample(known, 3), *beyond):
                    name = f"{part.kind}-{part.start}-{place - part.start}-to-{target}"
                    yield Broken(name, data, part, ((place, struct.pack("<Q", target)),))


def looping(data: bytes, found: list[Part]) -> Iterator[Broken]:
    """A header with a message that became a continuation: to the header, to itself, to nowhere."""
    for part in found:
        order = 2 if data[part.start + 5] & 4 else 0
        for kind, at, size in messages(data, part) if part.kind == "OHDR" else ():
            if size < 16 or kind == 16:
                continue
            whole = part.end + 4 - part.start
            for target, length in ((part.start, whole), (at, size), (0, 48), (len(data) - 8, 1 << 30)):
                lie = struct.pack("<QQ", target, length)
                changes = ((at, b"\x10"), (at + 4 + order, lie))
                yield Broken(f"{part.start}-continues-at-{target}", data, part, changes)
            break


def short_chunks(data: bytes) -> Iterator[Broken]:
    """Every dataset of one filtered chunk, with a chunk that is said to be no longer than its checksum."""
    for part in parts(data):
        order = 2 if part.kind == "OHDR" and data[part.start + 5] & 4 else 0
        for kind, at, _ in messages(data, part):
            body = at + 4 + order
            if kind != 8 or data[body : body + 3] != bytes(
                (4, 2, 2)
            ):  # its version, chunked, one and filtered
                continue
            rank, width = data[body + 3], data[body + 4]
            place = body + 5 + rank * width + 1
            for size in range(5):
                name = f"{part.kind}-{part.start}-chunk-of-{size}"
                yield Broken(name, data, part, ((place, struct.pack("<Q", size)),))


def everything(data: bytes) -> list[Broken]:
    """All of these."""
    found = parts(data)
    return [
        made for kind in (broken_messages, broken_fields, led_astray, looping) for made in kind(data, found)
    ]
