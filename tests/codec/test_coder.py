"""Laws of the coder: pictures come back as measured, exactly when the step is fine, refused when damaged."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise

from tpca_cli.codec.basis_coding import arrays_of, coder_from_arrays, meta_of
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.kernel_job import LAMBDA
from tpca_cli.errors import FileRefused
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.fixed_basis import SCALE, FixedBasis

Pixels = np.ndarray


def checkerboard(height: int, width: int, channels: int = 3, dtype: Any = np.uint8) -> Pixels:
    board = np.indices((height, width)).sum(axis=0) % 2 * np.iinfo(dtype).max
    return np.repeat(board[..., None], channels, axis=2).astype(dtype)


def modes_of(frames: Pixels) -> list[np.ndarray]:
    found = []
    for axis in range(1, 4):
        unfolded = np.moveaxis(frames.astype(np.float64), axis, 0).reshape(frames.shape[axis], -1)
        found.append(np.linalg.eigh(unfolded @ unfolded.T)[1][:, ::-1])
    return found


def coder_of(
    pictures: list[Pixels],
    framing: Framing,
    step: float,
    *,
    dense: int = 0,
    keep: int | None = None,
    **more: Any,
) -> Coder:
    frames = np.concatenate([framing.split(picture) for picture in pictures])
    dtype = pictures[0].dtype
    if dense:
        flat = frames.reshape(len(frames), -1).T.astype(np.float64)
        basis = FixedBasis.from_dense(np.linalg.svd(flat)[0][:, :dense], framing.frame_shape, dtype=dtype)
    else:
        places = np.stack([axis.ravel() for axis in np.indices(framing.frame_shape)], axis=1)
        order = np.argsort(places.sum(axis=1), kind="stable")
        basis = FixedBasis.from_modes(modes_of(frames), places[order][:keep], dtype=dtype)
    return Coder.train(pictures, framing, basis, step, **more)


def taken_by(work: Callable[[], object]) -> int:
    """The most bytes of memory that some work holds at a time, besides that of kernels."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_filter_for_one_large_picture_takes_little_memory() -> None:
    picture = natural(600, 800)
    coder = coder_of([picture[:64, :64]], Framing("tile", 8, 8, 3), 10.0)
    assert taken_by(lambda: coder.with_filter([picture])) < 64 * picture.size


def again(coder: Coder) -> Coder:
    """The coder as a reader of the file rebuilds it."""
    return coder_from_arrays(json.loads(json.dumps(meta_of(coder))), arrays_of(coder))


def shapes_of(pictures: list[Pixels]) -> list[tuple[int, int]]:
    return [(picture.shape[0], picture.shape[1]) for picture in pictures]


def check_round_trip(coder: Coder, pictures: list[Pixels]) -> list[Pixels]:
    encoded = coder.encode(pictures)
    decoded = again(coder).decode(encoded.data, shapes_of(pictures))
    for picture, back, sse in zip(pictures, decoded, encoded.sse, strict=True):
        assert back.shape == picture.shape and back.dtype == picture.dtype
        assert int(((picture.astype(np.int64) - back) ** 2).sum()) == sse
    return decoded


MIXED = [natural(40, 56, seed=0), natural(17, 9, seed=1), natural(64, 8, seed=2), natural(190, 176, seed=3)]


@pytest.mark.parametrize(("tile", "step"), [(4, 6.0), (8, 0.25), (8, 60.0), (12, 0.25), (16, 30.0)])
def test_pictures_come_back_as_measured(tile: int, step: float) -> None:
    coder = coder_of(MIXED, Framing("tile", tile, tile, 3), step)
    decoded = check_round_trip(coder, MIXED)
    if step < 1:
        assert all(np.array_equal(a, b) for a, b in zip(MIXED, decoded, strict=True))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_every_kind_of_pixel_is_exact_at_a_fine_step(channels: int, dtype: type) -> None:
    pictures = [natural(24, 40, channels, 5, dtype), noise(9, 30, channels, 6, dtype)]
    pictures += [np.zeros((8, 8, channels), dtype), np.full((1, 1, channels), np.iinfo(dtype).max, dtype)]
    coder = coder_of(pictures, Framing("tile", 8, 8, channels), 0.25)
    decoded = check_round_trip(coder, pictures)
    assert all(np.array_equal(a, b) for a, b in zip(pictures, decoded, strict=True))


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=5), st.integers(0, 99)
)
def test_pictures_that_the_tables_never_saw(shapes: list[tuple[int, int]], seed: int) -> None:
    """Noise and checkerboards through a coder made for smooth pictures."""
    coder = COARSE.with_step(float(np.random.default_rng(seed).choice([0.5, 3.0, 40.0, 900.0])))
    pictures = [noise(h, w, 3, seed) if k % 2 else checkerboard(h, w) for k, (h, w) in enumerate(shapes)]
    check_round_trip(coder, pictures)


COARSE = coder_of(MIXED, Framing("tile", 8, 8, 3), 40.0)


def test_whole_frames_and_dense_bases() -> None:
    pictures = [natural(16, 12, seed=seed) for seed in range(30)]
    framing = Framing("whole", 16, 12, 3)
    for coder in (coder_of(pictures, framing, 5.0), coder_of(pictures, framing, 5.0, dense=20)):
        check_round_trip(coder, pictures)


def test_finer_steps_cost_more_and_err_less() -> None:
    results = [COARSE.with_step(step).encode(MIXED) for step in (5.0, 10.0, 20.0, 40.0, 80.0)]
    assert sorted((len(r.data) for r in results), reverse=True) == [len(r.data) for r in results]
    assert sorted(int(r.sse.sum()) for r in results) == [int(r.sse.sum()) for r in results]


def test_fewer_components_are_blurrier_and_their_error_is_what_was_dropped() -> None:
    picture = natural(64, 64, seed=4)
    framing = Framing("tile", 8, 8, 3)
    full = coder_of([picture], framing, 0.1, lapped=False)
    coefficients = full.basis.project(framing.split(picture)) / SCALE
    for keep in (1, 12, 60):
        capped = coder_of([picture], framing, 0.1, components=keep)
        error = int(capped.encode([picture]).sse[0])
        predicted = float((coefficients[:, keep:] ** 2).sum())
        # Rounding to pixels adds 1/12 per sample, less where clipping helps.
        assert error == pytest.approx(predicted + picture.size / 12, rel=2e-2)
    data = full.encode([picture]).data
    errors = []
    for keep in (0, 3, 30, 192, None):
        back = full.decode(data, [(64, 64)], keep)[0]
        errors.append(int(((back.astype(int) - picture) ** 2).sum()))
    assert errors == sorted(errors, reverse=True)


def tinted(height: int, width: int, seed: int) -> Pixels:
    """Colors that go with brightness, one way in the left half and the other way in the right half."""
    gray = natural(height, width, 1, seed)[..., 0].astype(np.int64)
    ways = np.where(np.arange(width) < width // 2, 1, -1)
    planes = [gray, 128 + ways * (gray - 128) // 2, 128 - ways * (gray - 128) // 3]
    return np.stack(planes, axis=-1).astype(np.uint8)


@pytest.mark.parametrize("lapped", [True, False])
def test_colors_that_follow_brightness_take_less(lapped: bool) -> None:
    pictures = [tinted(96, 128, seed) for seed in range(2)]
    second, third = (
        coder_of(pictures, Framing("tile", 8, 8, 3), 12.0, predictor=predictor, lapped=lapped, effort=0)
        for predictor in (2, 3)
    )
    assert second.shares is None and third.shares is not None and third.shares[:, 1].min() > 16
    before = second.encode(pictures)
    tried = (third.with_step(step).encode(pictures) for step in (11.0, 10.0, 9.5, 9.0, 8.5, 8.0))
    after = next(found for found in tried if found.sse.sum() <= before.sse.sum())
    assert len(after.data) < len(before.data)
    check_round_trip(third, pictures)


@pytest.mark.parametrize("lapped", [True, False])
def test_colors_are_not_left_to_brightness_that_misleads(lapped: bool) -> None:
    """Colors go with brightness from tile to tile, then there are gray edges: none gets a color."""
    training = [tinted(96, 128, seed) for seed in range(2)]
    coder = coder_of(training, Framing("tile", 8, 8, 3), 12.0, predictor=3, lapped=lapped, effort=0)
    gray = np.kron(np.random.default_rng(0).integers(20, 230, (8, 12)), np.ones((8, 8), np.int64))
    picture = np.stack([gray, 128 + (gray - 128) // 2, 128 - (gray - 128) // 3], axis=-1).astype(np.uint8)
    picture[24:40] = np.where(np.arange(16) % 8 < 4, 30, 200)[:, None, None]
    away = picture.astype(np.int64) - coder.encode([picture]).decoded[0]
    assert (away**2).reshape(8, 8, 12, 8, 3).mean(axis=(1, 3, 4)).max() < 20  # of any tile; 12^2 / 12 is 12
    check_round_trip(coder, [picture])


def test_a_block_does_not_depend_on_the_work_around_it() -> None:
    first = COARSE.encode(MIXED[:2]).data
    COARSE.encode(MIXED)
    assert again(COARSE).encode(MIXED[:2]).data == first


def test_training_twice_gives_the_same_coder() -> None:
    one, two = (coder_of(MIXED, Framing("tile", 8, 8, 3), 20.0) for _ in range(2))
    assert meta_of(one) == meta_of(two)
    assert all(np.array_equal(a, arrays_of(two)[name]) for name, a in arrays_of(one).items())


def test_damaged_blocks_are_refused_or_decode_to_the_right_shapes() -> None:
    data, shapes = COARSE.encode(MIXED).data, shapes_of(MIXED)
    rng = np.random.default_rng(0)
    for _ in range(60):
        wrong = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            wrong[rng.integers(len(wrong))] ^= int(rng.integers(1, 256))
        try:
            found = COARSE.decode(bytes(wrong), shapes)
        except FileRefused:
            continue
        assert shapes_of(found) == shapes
    for wrong in (b"", data[:10], data[:-3], data + b"\0\0", bytes(50), b"\xff" * 50):
        with pytest.raises(FileRefused):
            COARSE.decode(bytes(wrong), shapes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 0),
        ("step", 1 << 40),
        ("components", 0),
        ("components", 10**6),
        ("lapped", None),
        ("framing", {}),
        ("model", 2),
        ("model", 4),
        ("model", "more"),
    ],
)
def test_impossible_settings_are_refused(name: str, value: Any) -> None:
    meta = {**meta_of(COARSE), name: value}
    arrays = arrays_of(COARSE)
    if value is None:
        del meta[name]
    with pytest.raises(FileRefused):
        coder_from_arrays(meta, arrays)


@pytest.mark.parametrize(
    "name", ["scales", "lowest", "centers", "gains", "shares", "restore", "basis_factor0"]
)
def test_arrays_of_a_wrong_shape_are_refused(name: str) -> None:
    arrays = arrays_of(COARSE)
    assert name in arrays
    with pytest.raises(FileRefused):
        coder_from_arrays(meta_of(COARSE), {**arrays, name: arrays[name][:-1]})


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("lapped", [False, True])
def test_coding_with_regard_to_the_filter_costs_less(
    channels: int, lapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = [natural(120, 136, channels, seed) for seed in range(4)]
    coder = coder_of(pictures, Framing("tile", 8, 8, channels), 40.0, lapped=lapped)
    assert coder.restorer is not None

    def cost(passes: int) -> float:
        monkeypatch.setattr("tpca_cli.codec.coder.PASSES", passes)
        found = coder.encode(pictures)
        return found.bits * LAMBDA * coder.step**2 + int(found.sse.sum())

    once, twice, again = cost(1), cost(2), cost(3)
    assert again < twice < once
