"""Files made to do harm, each from a good file by one change that plain h5py allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t
from harness import STORE, result

SECRET = b"the content of a file outside " * 8


@dataclass(frozen=True)
class Attack:
    """One change, and a word of the reason for which it must be refused."""

    name: str
    change: Callable[[h5py.File, Path], None]
    reason: str


def craft(attack: Attack, folder: Path) -> Path:
    """The file of an attack; `folder` also gets `secret`, which nobody may open."""
    path = folder / f"{attack.name}.h5"
    path.write_bytes(result(STORE))
    (folder / "secret").write_bytes(SECRET)
    with h5py.File(folder / "secret.h5", "w") as other:
        other["payload"] = np.frombuffer(SECRET, "u1")
        other["group/0/step"] = np.int64(1)
        other["0/step"] = np.int64(1)
        other["step"] = np.int64(1)
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        attack.change(file, folder)
    return path


def external(file: h5py.File, folder: Path) -> None:
    del file["payload"]
    file.create_dataset("payload", (len(SECRET),), "u1", external=[(str(folder / "secret"), 0, len(SECRET))])


def link(where: str, target: Any) -> Callable[[h5py.File, Path], None]:
    def change(file: h5py.File, folder: Path) -> None:
        del file[where]
        file[where] = target(folder)

    return change


def virtual(source: str | None) -> Callable[[h5py.File, Path], None]:
    def change(file: h5py.File, folder: Path) -> None:
        name = "." if source is None else str(folder / source)
        layout = h5py.VirtualLayout((60,), "f8")
        layout[:] = h5py.VirtualSource(name, "weights", (60,))
        del file["payload"]
        virtual_bytes = h5py.VirtualLayout((len(SECRET),), "u1")
        virtual_bytes[:] = h5py.VirtualSource(name, "payload", (len(SECRET),))
        file.create_virtual_dataset("payload", virtual_bytes)

    return change


def replaced(path: str, **options: Any) -> Callable[[h5py.File, Path], None]:
    """The dataset made anew with other properties."""

    def change(file: h5py.File, folder: Path) -> None:
        del file[path]
        file.create_dataset(path, **options)

    return change


def filtered(*filters: tuple[int, tuple[int, ...]]) -> Callable[[h5py.File, Path], None]:
    """A payload whose pipeline holds these filters, written without running them."""

    def change(file: h5py.File, folder: Path) -> None:
        del file["payload"]
        layout = h5p.create(h5p.DATASET_CREATE)
        layout.set_chunk((4096,))
        for number, values in filters:
            layout.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
        space = h5s.create_simple((4096,))
        made = h5d.create(file.id, b"payload", h5t.STD_U8LE, space, layout)
        made.write_direct_chunk((0,), bytes(4096), 0)

    return change


def bombs(count: int) -> Callable[[h5py.File, Path], None]:
    """Many datasets that inflate: none is large in itself, together they are."""

    def change(file: h5py.File, folder: Path) -> None:
        zeros = np.zeros((1 << 16, 4), "u4")
        del file["index"]
        shape = (count << 16, 4)
        made = file.create_dataset(
            "index", shape, "u4", chunks=zeros.shape, compression=9, shuffle=True, fletcher32=True
        )
        made[: len(zeros)] = zeros
        mask, data = made.id.read_direct_chunk((0, 0))
        for turn in range(1, count):
            made.id.write_direct_chunk((turn << 16, 0), data, mask)

    return change


def twice(file: h5py.File, folder: Path) -> None:
    file["extra"] = file["index"]


def cycle(file: h5py.File, folder: Path) -> None:
    file["group/2"] = file["/"]


def crowd(file: h5py.File, folder: Path) -> None:
    group = file["group"]
    for number in range(100_000):
        group.id.links.create_soft(str(number + 10).encode(), b"/group/0")


def attribute(name: str, value: Any) -> Callable[[h5py.File, Path], None]:
    def change(file: h5py.File, folder: Path) -> None:
        file.attrs[name] = value

    return change


def attribute_below(file: h5py.File, folder: Path) -> None:
    file["index"].attrs["note"] = 1


def many_attributes(file: h5py.File, folder: Path) -> None:
    for number in range(5000):
        file.attrs[f"a{number}"] = number


EXTERNAL = "keeps its data in another file"
ELSEWHERE = "is a link to elsewhere"
OUTSIDE = [
    Attack("external", external, EXTERNAL),
    Attack("link-leaf", link("payload", lambda d: h5py.ExternalLink(d / "secret.h5", "payload")), ELSEWHERE),
    Attack("link-group", link("group", lambda d: h5py.ExternalLink(d / "secret.h5", "group")), ELSEWHERE),
    Attack("link-middle", link("group/0", lambda d: h5py.ExternalLink(d / "secret.h5", "/")), ELSEWHERE),
    Attack("virtual", virtual("secret.h5"), "storage layout"),
]
INSIDE = [
    Attack("soft-leaf", link("payload", lambda d: h5py.SoftLink("/index")), ELSEWHERE),
    Attack("soft-group", link("group", lambda d: h5py.SoftLink("/")), ELSEWHERE),
    Attack("soft-middle", link("group/0", lambda d: h5py.SoftLink("/group/1")), ELSEWHERE),
    Attack("virtual-self", virtual(None), "storage layout"),
    Attack("contiguous", replaced("index", data=np.zeros((10, 4), "u4")), "storage layout"),
    Attack("twice", twice, "unexpected|twice|not of type"),
    Attack("cycle", cycle, "twice"),
    Attack("crowd", crowd, "unexpected names"),
    Attack("stranger", lambda file, d: file.create_group("stranger"), "unexpected name"),
    Attack("empty-group", lambda file, d: file.create_group("group/7"), "empty"),
    Attack("leading-zero", lambda file, d: file.move("group/1", "group/01"), "unexpected name"),
    Attack("group-for-data", lambda file, d: file.move("group", "extra"), "not what the format has"),
    Attack("missing", lambda file, d: file.pop("index"), "missing"),
    Attack("big-attribute", attribute("title", np.bytes_(b"x" * 63_000)), "too large"),
    Attack("array-attribute", attribute("count", np.arange(5)), "unexpected type"),
    Attack("vlen-attribute", attribute("title", "text"), "unexpected type|too large"),
    Attack("no-json", attribute("meta", np.bytes_(b"{]")), "UTF-8|JSON"),
    Attack("many-attributes", many_attributes, "attributes"),
    Attack("attribute-below", attribute_below, "attributes of its own"),
]
TYPES = [
    Attack("vlen", replaced("index", shape=(10, 4), dtype=h5py.vlen_dtype("u4")), "layout|type"),
    Attack("text", replaced("index", shape=(10, 4), dtype=h5py.string_dtype()), "layout|type"),
    Attack("reference", replaced("index", shape=(10, 4), dtype=h5py.ref_dtype, chunks=True), "type"),
    Attack("compound", replaced("index", shape=(10, 4), dtype="i4,f8", chunks=True), "type"),
    Attack("signed", replaced("index", shape=(10, 4), dtype="i4", chunks=True), "type"),
    Attack("big-endian", replaced("index", shape=(10, 4), dtype=">u4", chunks=True), "type"),
    Attack("wrong-shape", replaced("index", shape=(10, 5), dtype="u4", chunks=True), "shape"),
    Attack("wrong-rank", replaced("index", shape=(40,), dtype="u4", chunks=True), "shape"),
    Attack("no-shape", replaced("index", data=h5py.Empty("u4")), "layout|shape"),
]
FILTERS = [
    Attack("no-checksum", replaced("payload", data=np.zeros(9000, "u1"), chunks=(4096,)), "filters"),
    Attack("lzf", replaced("payload", data=np.zeros(9000, "u1"), compression="lzf"), "filters"),
    Attack("scale-offset", replaced("payload", data=np.zeros(9000, "u1"), scaleoffset=4), "filters"),
    Attack("n-bit", filtered((5, ())), "filters"),
    Attack("plugin", filtered((40123, (1, 2))), "filters"),
    Attack("deflate-twice", filtered((1, (9,)), (1, (9,)), (3, ())), "filters"),
    Attack("checksum-first", filtered((3, ()), (1, (9,))), "filters"),
]
HUGE = {"chunks": (1 << 16,), "fletcher32": True}
SIZES = [
    Attack("8TB", replaced("payload", shape=(1 << 43,), dtype="u1", **HUGE), "does not hold"),
    Attack(
        "8TB-tiny-chunks",
        replaced("payload", shape=(1 << 43,), dtype="u1", chunks=(1,), fletcher32=True),
        "hold",
    ),
    Attack("2^62", replaced("payload", shape=(1 << 62,), dtype="u1", **HUGE), "does not hold"),
    Attack(
        "chunk-4GB",
        replaced("index", shape=(1 << 27, 4), dtype="u4", chunks=(1 << 27, 4), fletcher32=True),
        "chunks of",
    ),
    Attack("thousand-bombs", bombs(1000), "bomb"),
]
