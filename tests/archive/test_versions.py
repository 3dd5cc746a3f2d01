"""Version 2 holds what version 1 had no room for; version 1 is read and extended as it is."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from command import tpca
from golden.make import HOME_V1
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder, natural, save

from tpca_cli.archive.index import BlockRecord, Entry, Index
from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import write_archive
from tpca_cli.errors import FileRefused

BLOBS = st.dictionaries(
    st.sampled_from(["xmp", "iptc", "text", "density"]), st.binary(min_size=1, max_size=4)
)
REASONS = st.lists(st.text(st.characters(codec="ascii", categories=["L"]), max_size=5), max_size=3)


def entry(number: int, metadata: dict[str, bytes], reasons: list[str], **other: object) -> Entry:
    name = b"%d" % number
    known = Entry(
        name, name.rjust(16, b"x"), number, 9, 2, 3, "L", 0, metadata=metadata, reasons=tuple(reasons)
    )
    return replace(known, **other)


def index_of(records: list[tuple[dict[str, bytes], list[str]]], first: int = 0) -> Index:
    entries = [entry(first + k, *record, mode_bits=0o600 + k % 8) for k, record in enumerate(records)]
    blocks = [BlockRecord(5, 0, k, 1, 0, 0, bytes(8)) for k in range(len(entries))]
    return Index.build(entries, blocks)


def kept(index: Index, image: int) -> tuple[dict[str, bytes], tuple[str, ...], int | None]:
    return index.metadata_of(image), index.missing_reasons(image), index.mode_bits(image)


@given(
    st.lists(st.tuples(BLOBS, REASONS), max_size=6),
    st.lists(st.tuples(BLOBS, REASONS), max_size=6),
    st.data(),
)
def test_metadata_reasons_and_modes_follow_their_images(one, other, data) -> None:
    """Through arrays, joining, replacing and choosing each image keeps its own; no blob is there twice."""
    records = one + other
    index = index_of(one).joined(index_of(other, len(one)))
    index = Index.from_arrays(index.to_arrays())
    expected = [
        (m, tuple(r), 0o600 + (k if k < len(one) else k - len(one)) % 8) for k, (m, r) in enumerate(records)
    ]
    assert [kept(index, image) for image in range(len(index))] == expected
    assert len(set(index.extras)) == len(index.extras)
    order = data.draw(st.permutations(range(len(records))))[: len(records) // 2 + 1]
    some = index.of_images(order, [BlockRecord(5, 0, k, 1, 0, 0, bytes(8)) for k in range(len(order))])
    assert [kept(some, at) for at in range(len(order))] == [expected[image] for image in order]
    used = {blob for image in order for blob in records[image][0].values()}
    assert set(some.extras) == used
    if len(index):
        gone = index.without([0])
        assert gone.metadata_of(0) == {} and gone.missing(0) == ""


def test_nothing_to_say_costs_next_to_nothing(tmp_path) -> None:
    folder(tmp_path / "in", 200, sizes=[(16, 16)])
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 20, "--force")
    with Archive(tmp_path / "a.h5") as archive:
        assert archive.version == 2 and archive.index.metadata == () == archive.index.reasons
        arrays = archive.index.to_arrays()
        first = sum(width for name, width in {"digest": 16, "mtime": 8, "source_size": 6}.items())
        planes = arrays["images"][first + 3 + 3 + 1 + 8 + 4 + 4 :]
    assert len({bytes(planes[:, k]) for k in range(200)}) == 1  # one record for all


def test_permissions_and_digests_of_128_bits_are_kept(tmp_path) -> None:
    paths = folder(tmp_path / "in", 3)
    for path, bits in zip(paths, (0o600, 0o640, 0o755), strict=True):
        path.chmod(bits)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 2, "--force")
    with Archive(tmp_path / "a.h5") as archive:
        assert [archive.index.mode_bits(k) for k in range(3)] == [0o600, 0o640, 0o755]
        assert archive.index.images["digest"].shape == (3, 16)
        assert [group.meta["peak"] for group in archive.groups] == [255]
        assert archive.info()["groups"][0]["peak"] == 255


def test_append_keeps_version_1_and_its_limits(tmp_path) -> None:
    target = tmp_path / "old.h5"
    shutil.copy(HOME_V1 / "tile16.h5", target)
    with Archive(target) as archive:
        before = [archive[k] for k in range(len(archive))]
    source = tmp_path / "in"
    save(source / "new.png", natural(24, 40))
    save(source / "other.png", natural(24, 40, 4))  # a group of its own, by the first model
    tpca("encode", source, "-o", target, "--append", "--force")
    with Archive(target) as archive, h5py.File(target, "r") as file:
        assert [archive.coder(k).predictor for k in range(len(archive.groups))] == [1, 1]
        assert archive.version == 1 == file.attrs["format_version"] and "metadata" not in file
        assert archive.index.images["digest"].shape[1] == 8 and archive.index.mode_bits(0) is None
        assert all(np.array_equal(archive[k], pixels) for k, pixels in enumerate(before))
    tpca("verify", target, "--against", source)
    assert tpca("encode", source, "-o", target, "--append", "--json").json["appended"]["unchanged"] == 2
    tpca("repack", target, "-o", tmp_path / "again.h5")
    with Archive(tmp_path / "again.h5") as archive:
        assert archive.version == 1 and np.array_equal(archive[0], before[0])


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("meta")
    folder(root / "in", 3)
    tpca("encode", root / "in", "-o", root / "a.h5", "--step", 2, "--force")
    return root / "a.h5"


def with_meta(archive: Path, target: Path, change) -> Path:
    """A copy whose first group is described otherwise, with right digests."""
    with Archive(archive) as opened:
        blocks = [opened.block_bytes(block) for block in range(len(opened.index.blocks["size"]))]
        meta = json.loads(json.dumps(dict(opened.groups[0].meta)))
        groups = [replace(opened.groups[0], meta=change(meta) or meta)]
        asked = {"psnr": 30.0}
        write_archive(target, opened.index, groups, blocks, target_asked=asked, force=True)
    return target


def test_an_unknown_feature_is_refused_by_name(archive, tmp_path) -> None:
    copy = with_meta(archive, tmp_path / "x.h5", lambda meta: meta.update(features=["steps-by-region"]))
    for command in (("inspect", copy), ("verify", copy), ("decode", copy, "-o", tmp_path / "out")):
        assert "steps-by-region" in tpca(*command, code=4).err


BAD = {
    "step is text": lambda meta: meta.update(step="coarse"),
    "step is huge": lambda meta: meta.update(step=1e300),
    "no method": lambda meta: meta.pop("method") and None,
    "method is a number": lambda meta: meta.update(method=3),
    "method with an escape": lambda meta: meta.update(method="\x1b[2Jrank1"),
    "digest is a list": lambda meta: meta.update(basis_digest=[]),
    "features is a number": lambda meta: meta.update(features=7),
    "a feature with an escape": lambda meta: meta.update(features=["\x1b[2J"]),
    "peak is zero": lambda meta: meta.update(peak=0),
    "peak is more than the type holds": lambda meta: meta.update(peak=256),
    "components is text": lambda meta: meta["coder"].update(components="all"),
    "components is negative": lambda meta: meta["coder"].update(components=-1),
    "framing of another kind": lambda meta: meta["coder"]["framing"].update(kind="\x1b]0;x\x07"),
    "framing without kind": lambda meta: meta["coder"]["framing"].pop("kind") and None,
    "lapped is missing": lambda meta: meta["coder"].pop("lapped") and None,
    "basis is a list": lambda meta: meta["coder"].update(basis=[1]),
    "frame is text": lambda meta: meta["coder"]["basis"].update(frame="8x8"),
    "bits is text": lambda meta: meta["coder"]["basis"].update(bits="many"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_description_is_refused(archive, tmp_path, name) -> None:
    copy = with_meta(archive, tmp_path / "x.h5", BAD[name])
    outcome = tpca("decode", copy, "-o", tmp_path / "out", code=4)
    assert "\x1b" not in outcome.err and "internal" not in outcome.err


def test_no_text_of_an_archive_reaches_the_terminal_raw(archive, tmp_path) -> None:
    evil = "\x1b[2J\x07\u202e"
    with Archive(archive) as opened:
        blocks = [opened.block_bytes(block) for block in range(len(opened.index.blocks["size"]))]
        images = dict(opened.index.images) | {"reasons": np.ones(3, np.int64), "flags": np.full(3, 2)}
        index = replace(opened.index, images=images, reasons=((evil, "why"),), skipped=((evil, evil),))
        write_archive(tmp_path / "x.h5", index, opened.groups, blocks, target_asked={"psnr": 30.0})
    for command in (("inspect",), ("inspect", "--list"), ("verify",)):
        outcome = tpca(command[0], tmp_path / "x.h5", *command[1:])
        assert not set(evil) & set(outcome.out + outcome.err) - set("[2J")
    facts = tpca("inspect", tmp_path / "x.h5", "--json").json
    assert facts["partial"] == 3 and facts["partial_reasons"] == {r"\x1b[2J\x07\u202e": 3, "why": 3}


@pytest.mark.parametrize("name", ["skipped", "reasons", "metadata"])
@pytest.mark.parametrize(
    "content",
    [b"{", b"[" * 100_000, b"7", b"[7]", b"[[7]]", b'[{"xmp":[]}]', b'[{"xmp":9}]', b'[["a"]]', b"\xff"],
)
def test_malformed_lists_are_refused(name, content) -> None:
    index = index_of([({}, [])])
    arrays = index.to_arrays() | {name: np.frombuffer(content, np.uint8)}
    if (name, content) == ("reasons", b'[["a"]]'):
        assert Index.from_arrays(arrays).reasons == (("a",),)
        return
    with pytest.raises(FileRefused):
        Index.from_arrays(arrays).check(5, [])
