"""Damaged, mismatched and lying archives through every command that reads: exit 4, or the same pixels.

Cases 25 to 32 and 40 of the table.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import HANG, QUICK, TPCA, archived, check_failed, contents, folder, forked, pixels, save, scaled
from forge import forged, set_attribute, with_column, with_meta
from harness import in_child, run
from pictures import noise

from tpca_cli.archive.reader import Archive


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damage")
    archived(root, 20, *QUICK, sizes=[(96, 128), (64, 64)])
    return root


def readers(archive: Path, out: Path) -> list[tuple[object, ...]]:
    return [("inspect", archive), ("verify", archive), ("decode", archive, "-o", out)]


def refused_by_all(archive: Path, out: Path) -> None:
    """Every command refuses the file and writes nothing."""
    for words in readers(archive, out):
        check_failed(forked(*words), 4)
    assert not out.exists() or not any(out.iterdir())


def test_25_truncated(place: Path, tmp_path: Path) -> None:
    data, rng = (place / "a.h5").read_bytes(), random.Random(25)
    for _ in range(scaled(20, 200)):
        (tmp_path / "x.h5").write_bytes(data[: rng.randrange(len(data))])
        refused_by_all(tmp_path / "x.h5", tmp_path / "out")


def test_26_one_bit_flipped(place: Path, tmp_path: Path) -> None:
    """Never other pixels with exit 0."""
    data, rng = (place / "a.h5").read_bytes(), random.Random(26)
    wanted, spoiled = contents(place / "a.h5"), tmp_path / "x.h5"

    def look() -> None:
        assert contents(spoiled) == wanted

    refused = 0
    for _ in range(scaled(150, 1000)):
        copy = bytearray(data)
        copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
        spoiled.write_bytes(copy)
        code, seconds, _ = in_child(look)
        assert code in (0, 4) and seconds < HANG, code
        refused += code == 4
    assert refused > 100


def test_26_a_basis_with_one_bit_flipped(place: Path, tmp_path: Path) -> None:
    fit = ("fit-basis", place / "in", "-o", tmp_path / "b.h5", "--tile", "8", "--method", "rank1")
    assert forked(*fit, timeout=60).code == 0
    data, rng, spoiled = (tmp_path / "b.h5").read_bytes(), random.Random(27), tmp_path / "x.h5"
    encode = ("encode", place / "in", "--basis", spoiled, "--step", "40", "-o", tmp_path / "y.h5", "--force")
    spoiled.write_bytes(data)
    assert forked(*encode).code == 0
    wanted = (tmp_path / "y.h5").read_bytes()
    for number in range(scaled(20, 1000)):
        copy = bytearray(data)
        copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
        spoiled.write_bytes(copy)
        ended = forked("verify", spoiled)
        if ended.code == 0:
            assert forked(*encode).code == 0 and (tmp_path / "y.h5").read_bytes() == wanted
        else:
            check_failed(ended, 4)
            if number < 5:
                check_failed(forked(*encode), 4)


def test_27_chunks_zeroed_or_swapped(tmp_path: Path) -> None:
    for k in range(12):  # too much for one chunk
        save(tmp_path / "in" / f"{k}.png", noise(256, 256, seed=k))
    archive = tmp_path / "a.h5"
    words = ("encode", tmp_path / "in", "-o", archive, "--step", "2", "--tile", "8", "--method", "rank1")
    assert forked(*words, "--force", timeout=60).code == 0
    with h5py.File(archive) as file:
        payload = file["payload"]
        chunks = [payload.id.get_chunk_info(k) for k in range(payload.id.get_num_chunks())]
    assert len(chunks) > 1
    data, (one, two) = archive.read_bytes(), chunks[:2]
    first = slice(one.byte_offset, one.byte_offset + one.size)
    second = slice(two.byte_offset, two.byte_offset + one.size)
    zeroed, swapped = bytearray(data), bytearray(data)
    zeroed[first] = bytes(one.size)
    swapped[first], swapped[second] = data[second], data[first]
    for spoiled in (zeroed, swapped):
        (tmp_path / "x.h5").write_bytes(spoiled)
        for words in (("verify", tmp_path / "x.h5"), ("decode", tmp_path / "x.h5", "-o", tmp_path / "out")):
            check_failed(forked(*words), 4)
        shutil.rmtree(tmp_path / "out")


def test_28_an_archive_with_the_wrong_basis(place: Path, tmp_path: Path) -> None:
    folder(tmp_path / "other", 8, seed=500)
    for name, source in (("right", place / "in"), ("wrong", tmp_path / "other")):
        fit = ("fit-basis", source, "-o", tmp_path / f"{name}.h5", "--tile", "8", "--method", "rank1")
        assert forked(*fit, timeout=60).code == 0
    archive = tmp_path / "a.h5"
    encode = ("encode", place / "in", "-o", archive, "--step", "20", "--link-basis")
    assert forked(*encode, "--basis", tmp_path / "right.h5").code == 0
    decode = ("decode", archive, "-o", tmp_path / "out")
    assert forked(*decode, "--basis", tmp_path / "right.h5").code == 0
    shutil.rmtree(tmp_path / "out")
    ended = forked(*decode, "--basis", tmp_path / "wrong.h5")
    check_failed(ended, 4)
    digest = Archive(archive).groups[0].meta["basis_digest"]
    assert digest in ended.err and ended.err.count("basis") >= 2
    check_failed(forked(*decode), 4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format_version", 3),
        ("format_version", 1),
        ("format_version", None),
        ("format_version", "1"),
        ("format", "tpca-other"),
        ("format", None),
        ("digest", "0" * 32),
        ("digest", None),
        ("meta", "{}"),
        ("meta", "not json"),
        ("meta", None),
        ("extra", 1.5),
        ("meta beside", "{}"),
    ],
)
def test_29_wrong_attributes(place: Path, tmp_path: Path, name: str, value: object) -> None:
    if name in ("extra", "meta beside"):
        shutil.copy2(place / "a.h5", tmp_path / "x.h5")
        with h5py.File(tmp_path / "x.h5", "r+", libver=("v110", "v110")) as file:
            file.attrs[name.split()[0]] = value
    else:
        set_attribute(place / "a.h5", tmp_path / "x.h5", name, value)
    refused_by_all(tmp_path / "x.h5", tmp_path / "out")


LIES = {
    "no such dtype": {"group": with_meta(dtype="f8")},
    "too many channels": {"group": with_meta(channels=9)},
    "channels that the coder has not": {"group": with_meta(channels=1)},
    "no coder": {"group": with_meta(coder={})},
    "step of zero": {"group": with_meta(coder__step=0)},
    "huge step": {"group": with_meta(coder__step=2**62)},
    "step is text": {"group": with_meta(coder__step="x")},
    "no components": {"group": with_meta(coder__components=0)},
    "too many components": {"group": with_meta(coder__components=10**9)},
    "huge frame": {
        "group": with_meta(coder__framing={"kind": "tile", "height": 10**6, "width": 10**6, "channels": 3})
    },
    "no framing": {"group": with_meta(coder__framing=None)},
    "image of no height": {"index": with_column("images", "height", 0, 0)},
    "image of huge size": {"index": with_column("images", "height", 0, 2**24 - 1)},
    "image in another mode": {"index": with_column("images", "mode", 0, 5)},
    "unknown mode": {"index": with_column("images", "mode", 0, 200)},
    "block count": {"index": with_column("blocks", "count", 0, 1)},
    "block of huge count": {"index": with_column("blocks", "count", 0, 2**24 - 1)},
    "block of no group": {"index": with_column("blocks", "group", 0, 7)},
    "block in bands": {"index": with_column("blocks", "rows", 0, 8)},
    "block size": {"index": with_column("blocks", "size", 0, 2**39)},
    "exif that is not there": {"index": with_column("images", "exif", 0, 99)},
}


@pytest.mark.parametrize("lie", LIES)
def test_29_fields_that_lie(place: Path, tmp_path: Path, lie: str) -> None:
    """The digests agree; only the content is impossible."""
    try:
        forged(place / "a.h5", tmp_path / "x.h5", **LIES[lie])  # type: ignore[arg-type]
    except Exception as error:  # our own writer could not be brought to write it
        pytest.fail(f"cannot forge: {error}")
    for words in (
        ("verify", tmp_path / "x.h5", "--decode"),
        ("decode", tmp_path / "x.h5", "-o", tmp_path / "out"),
    ):
        check_failed(forked(*words, memory=2**31), 4)


def test_30_not_a_tpca_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello")
    save(tmp_path / "x.png", noise(9, 9))
    os.mkfifo(tmp_path / "fifo")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(4)
    for name in ("empty", "text", "x.png", "fifo", "other.h5", ".", "/dev/zero", "/dev/null"):
        for command in ("inspect", "verify", "decode"):
            out = ["-o", tmp_path / "out"] if command == "decode" else []
            check_failed(forked(command, tmp_path / name, *out, timeout=HANG), 4)


@pytest.mark.parametrize(
    "lie",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"\xff" * len(data),
        lambda data: b"\xff\xff\xff\xff\x0f" + data,
        lambda data: bytes(len(data)),
        lambda data: data[::-1],
        lambda data: os.urandom(len(data)),
    ],
    ids=["nothing", "half", "ones", "long", "zeros", "backwards", "random"],
)
def test_31_coded_blocks_that_lie(place: Path, tmp_path: Path, lie: object) -> None:
    """Digests agree, so the coder must stand it: other pixels or exit 4, in bounded memory and time."""
    forged(place / "a.h5", tmp_path / "x.h5", payload=lie)  # type: ignore[arg-type]
    ended = forked("decode", tmp_path / "x.h5", "-o", tmp_path / "out", memory=2**31)
    assert ended.code in (0, 4) and "internal" not in ended.err, ended
    assert ended.peak < 600_000


def test_40_mutated_archives(place: Path, tmp_path: Path) -> None:
    """Bytes changed, cut, repeated, moved; through inspect and decode. 2,000 for a release."""
    data, rng = (place / "a.h5").read_bytes(), random.Random(40)
    wanted = {name: image.tobytes() for name, image in pixels(place / "a.h5").items()}
    spoiled, slowest, codes = tmp_path / "x.h5", 0.0, {0: 0, 3: 0, 4: 0}

    def look() -> None:
        Archive(spoiled).info()
        with Archive(spoiled) as archive:
            for position, name in enumerate(archive.names_bytes):
                assert archive[position].tobytes() == wanted[name]

    for _ in range(scaled(300, 2000)):
        spoiled.write_bytes(mutated(data, rng))
        code, seconds, _ = in_child(look, timeout=HANG)
        assert code in codes, code  # a signal or a wrong pixel would be something else
        codes[code] += 1
        slowest = max(slowest, seconds)
    assert slowest < HANG and codes[4] > 10 * codes[0]
    for _ in range(scaled(5, 50)):  # and through the commands themselves
        spoiled.write_bytes(mutated(data, rng))
        for words in readers(spoiled, tmp_path / "out"):
            assert forked(*words).code in (0, 3, 4)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to eight changes of a random kind."""
    copy = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        at, length = rng.randrange(len(copy)), rng.choice([1, 1, 2, 4, 8, 64, 512])
        kind = rng.randrange(6)
        if kind == 0:
            copy[at] = rng.randrange(256)
        elif kind == 1:
            copy[at : at + length] = rng.randbytes(length)
        elif kind == 2:
            copy[at : at + length] = bytes(length) if rng.random() < 0.5 else b"\xff" * length
        elif kind == 3:
            del copy[at : at + length]
        elif kind == 4:
            copy[at:at] = copy[at : at + length]
        else:
            other = rng.randrange(len(copy))
            copy[at : at + length] = copy[other : other + length]
    return bytes(copy)


def test_commands_are_those_of_the_program(place: Path) -> None:
    """The forked runs above stand for this."""
    assert run([*TPCA, "verify", place / "a.h5"]).code == 0
