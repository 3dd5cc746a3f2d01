"""Packing covers every image and every row exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.archive.packing import BAND_PIXELS, BLOCK_PIXELS, SMALL_PIXELS, pack
from tpca_cli.codec.grid import Grid
from tpca_cli.framing import CANVAS_PIXELS, Canvas, Framing

SHAPE = st.tuples(st.integers(1, 1500), st.integers(1, 1500))


@given(st.lists(SHAPE, max_size=40), st.sampled_from([2, 8, 16, 32]))
def test_jobs_cover_images_and_rows_once(shapes, tile) -> None:
    jobs = pack(shapes, Framing("tile", tile, tile, 3))
    covered = [image for job in jobs for image in range(job.first, job.first + job.count)]
    assert covered == list(range(len(shapes)))
    padded = [(-(-h // tile) * tile, -(-w // tile) * tile) for h, w in shapes]
    for job in jobs:
        pixels = [h * w for h, w in padded[job.first : job.first + job.count]]
        if not job.bands:
            close = max(h * w for h, w in padded) <= SMALL_PIXELS
            assert len(pixels) == 1 or sum(pixels) <= (BAND_PIXELS if close else BLOCK_PIXELS)
            continue
        h, _ = shapes[job.first]
        assert job.count == 1 and pixels[0] > BAND_PIXELS
        rows = [row for start, count in job.bands for row in range(start, start + count)]
        assert rows == list(range(h))
        assert all(start % tile == 0 for start, _ in job.bands)
        wide = padded[job.first][1]
        assert all(-(-count // tile) * tile * wide <= BAND_PIXELS + tile * wide for _, count in job.bands)


def test_a_few_small_images_are_packed_closely() -> None:
    framing = Framing("tile", 8, 8, 3)
    assert [job.count for job in pack([(64, 64)] * 300, framing)] == [128, 128, 44]
    # one that is larger, or more of them than a reader keeps: as others
    assert pack([(64, 64)] * 300 + [(136, 128)], framing)[0].count == 32
    assert pack([(64, 64)] * 1025, framing)[0].count == 32


def test_whole_frames_are_never_cut() -> None:
    assert [job.bands for job in pack([(2000, 2000)], Framing("whole", 2000, 2000, 1))] == [()]


@given(
    st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 4000)), max_size=30), st.sampled_from([2, 8, 32])
)
def test_no_canvas_of_several_images_is_large(shapes, tile) -> None:
    framing = Framing("tile", tile, tile, 3)
    for job in pack(shapes, framing):
        if job.count > 1:
            grids = [framing.grid(*shape) for shape in shapes[job.first : job.first + job.count]]
            assert Grid(grids).size * tile**2 <= CANVAS_PIXELS


def test_a_long_and_a_high_image_are_apart() -> None:
    ordinary = [(96, 192), (192, 96)] * 7
    framing = Framing("tile", 8, 8, 3)
    jobs = pack([*ordinary[:7], (1, 8000), (8000, 1), *ordinary[7:]], framing)
    assert not any({7, 8} <= set(range(job.first, job.first + job.count)) for job in jobs)
    assert [job.count for job in pack(ordinary, framing)] == [7, 7]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=20))
def test_a_canvas_is_as_large_as_the_grid_of_the_codec(grids) -> None:
    canvas = Canvas()
    for grid in grids:
        canvas = canvas.beside(*grid)
    assert canvas.places == Grid(grids).size
