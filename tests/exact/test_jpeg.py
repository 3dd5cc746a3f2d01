"""JPEG files come back bit for bit, or are not taken; hostile ones cost nothing but themselves."""

from __future__ import annotations

import io
import os
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise
from PIL import Image

from tpca_cli.errors import FileRefused
from tpca_cli.exact import jpeg
from tpca_cli.exact.coders import FileCoder, JpegCoder

KINDS = {
    "plain": {},
    "progressive": {"progressive": True},
    "best progressive": {"progressive": True, "quality": 98, "subsampling": 0},
    "coarse progressive": {"progressive": True, "quality": 20},
    "own tables": {"optimize": True},
    "full color": {"subsampling": 0},
    "half color": {"subsampling": 1},
    "restarts": {"restart_marker_blocks": 3},
    "progressive restarts": {"restart_marker_rows": 1, "progressive": True},
    "finest": {"quality": 100},
    "with more": {
        "exif": b"Exif\0\0II*\0\x08\0\0\0\0\0",
        "comment": b"a comment",
        "icc_profile": b"icc" * 50,
    },
}


def saved(pixels, mode="RGB", **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, "JPEG", **options)
    return out.getvalue()


def check_comes_back(files, shapes) -> bytes:
    coder = JpegCoder.train(files)
    block, taken = coder.encode_files(files, shapes)
    assert taken == [True] * len(files)
    again = JpegCoder.from_arrays(coder.to_arrays())
    assert again.decode_files(block, shapes) == files
    return block


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_comes_back_bit_for_bit(kind, mode):
    sizes = [(1, 1), (8, 8), (17, 40), (65, 33)]
    files = [saved(natural(h, w, seed=h), mode, **KINDS[kind]) for h, w in sizes]
    check_comes_back(files, sizes)


@settings(max_examples=40)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 100), st.booleans(), st.integers(0, 2))
def test_any_size_and_quality_comes_back(height, width, quality, progressive, subsampling):
    file = saved(
        noise(height, width, 3, seed=quality),
        quality=quality,
        progressive=progressive,
        subsampling=subsampling,
    )
    check_comes_back([file], [(height, width)])


def test_photographs_take_less_than_their_files():
    files = [saved(natural(64, 64, seed=seed), quality=85) for seed in range(30)]
    block = check_comes_back(files, [(64, 64)] * 30)
    assert len(block) < 0.6 * sum(map(len, files))  # most of such small files is headers that they share


def test_a_file_that_is_not_taken_apart_does_not_spoil_others():
    good = saved(natural(40, 40))
    cut, arithmetic = good[: len(good) // 2], good.replace(b"\xff\xc0", b"\xff\xc9", 1)
    coder = JpegCoder.train([good])
    block, taken = coder.encode_files([cut, good, arithmetic, b"", b"no picture"], [(40, 40)] * 5)
    assert taken == [False, True, False, False, False]
    assert coder.decode_files(block, [(40, 40)]) == [good]


def test_what_a_file_has_after_its_end_comes_back():
    check_comes_back([saved(natural(20, 20)) + b"\0trailing" * 9], [(20, 20)])


@settings(max_examples=150)
@given(st.data())
def test_mutated_files_come_back_or_are_not_taken(data):
    options = data.draw(st.sampled_from([{}, {"progressive": True}, {"restart_marker_blocks": 2}]))
    file = bytearray(saved(natural(24, 40, seed=3), **options))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(2, len(file) - 1))] = data.draw(st.integers(0, 255))
    coder = JpegCoder()
    block, taken = coder.encode_files([bytes(file)], [(24, 40)])
    assert not taken[0] or coder.decode_files(block, [(24, 40)]) == [bytes(file)]


@settings(max_examples=100)
@given(st.data())
def test_mutated_blocks_are_refused_or_give_some_files(data):
    files = [saved(natural(24, 40, seed=3)), saved(natural(16, 16, seed=4), progressive=True)]
    coder = JpegCoder.train(files)
    block = bytearray(coder.encode_files(files, [(24, 40), (16, 16)])[0])
    block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = coder.decode_files(bytes(block), [(24, 40), (16, 16)])
    except FileRefused:
        return
    assert len(found) == 2 and sum(map(len, found)) <= int.from_bytes(block[:4], "little")


def test_a_header_that_claims_a_huge_picture_takes_no_memory():
    file = bytearray(saved(natural(16, 16)))
    at = jpeg.frame_at(bytes(file))
    file[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    assert JpegCoder().encode_files([bytes(file)], [(65535, 65535)])[1] == [False]
    assert jpeg._coefficients(bytes(file)) < 1 << 20


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_other_files_come_back_bit_for_bit(files):
    block, taken = FileCoder().encode_files(files, [(1, 1)] * len(files))
    assert all(taken) and FileCoder().decode_files(block, [(1, 1)] * len(files)) == files


def test_files_that_inflate_to_more_than_they_say_are_refused():
    block, _ = FileCoder().encode_files([b"\0" * 1_000_000], [(1, 1)])
    with pytest.raises(FileRefused):
        FileCoder().decode_files((5).to_bytes(4, "little") + block[4:], [(1, 1)])
    with pytest.raises(FileRefused):
        FileCoder().decode_files(block[:-20], [(1, 1)])


def test_what_a_reader_would_take_for_a_trap_is_written_larger(monkeypatch):
    monkeypatch.setattr("tpca_cli.exact.coders.FILE_BYTES", 1000)
    for size in (1000, 100_000):
        block, _ = FileCoder().encode_files([bytes(size)], [(1, 1)])
        assert FileCoder().decode_files(block, [(1, 1)]) == [bytes(size)]
    deflated = (100_000).to_bytes(4, "little") + zlib.compress(bytes(100_000), 9)
    with pytest.raises(FileRefused, match="raise --max-pixels"):
        FileCoder().decode_files(deflated, [(1, 1)])
    assert FileCoder().decode_files(deflated, [(1, 1)], scale=100) == [bytes(100_000)]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 500))
def test_a_block_of_files_is_the_same_however_it_is_made_and_damage_is_seen(
    files: list[bytes], together: int
) -> None:
    lengths = b"".join(len(data).to_bytes(4, "little") for data in files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpca_cli.exact.coders.TOGETHER", together)
        coder = FileCoder()
        block, _ = coder.encode_files(files, [(1, 1)] * len(files))
        assert block == lengths + zlib.compress(b"".join(files), 9)
        assert coder.returns(block, files)
        assert not coder.returns(block, [*files[:-1], files[-1] + b"x"])
        assert not coder.returns(block[:-1], files)
        assert not coder.returns(block + b"x", files)


def test_a_large_file_is_packed_and_looked_at_in_little_more_than_its_block_takes() -> None:
    files = [os.urandom(24 << 20)]
    tracemalloc.start()
    try:
        block, _ = FileCoder().encode_files(files, [(1, 1)])
        assert FileCoder().returns(block, files)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(block)
    finally:
        tracemalloc.stop()


def test_headers_are_learned_from_few_files_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [saved(natural(24, 32, seed=k), comment=b"alike") for k in range(9)]
    whole, seen, skeletons_of = JpegCoder.train(files), list[int](), jpeg.skeletons_of

    def counted(some):
        seen.append(len(some))
        return skeletons_of(some)

    monkeypatch.setattr("tpca_cli.exact.coders.TOGETHER", 2 * len(files[0]))
    monkeypatch.setattr(jpeg, "skeletons_of", counted)
    assert JpegCoder.train(iter(files)) == whole
    assert sum(seen) == len(files) and max(seen) <= 3
