"""From coefficients to pixels, the kernel gives the bits that the arrays give, however large the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from coders import without_trials
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import natural, noise

from tpca_cli.codec import kernel_run, learned
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.kernel_job import KERNEL
from tpca_cli.codec.kernel_run import Symbols
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.fixed_basis import FixedBasis

SHAPES = [(40, 150), (9, 17), (33, 8)]


def basis_of(tile: int, channels: int, seed: int) -> FixedBasis:
    rng = np.random.default_rng(seed)
    modes = [np.linalg.qr(rng.normal(size=(side, side)))[0] for side in (tile, tile, channels)]
    places = np.stack([axis.ravel() for axis in np.indices((tile, tile, channels))], axis=1)
    order = np.argsort(places.sum(axis=1), kind="stable")
    return FixedBasis.from_modes(modes, places[order], dtype=np.uint8)


def coder_of(tile: int, channels: int, lapped: bool, step: float, tune: str) -> Coder:
    sample = [natural(200, 176, channels, 3), noise(40, 48, channels, 4)]
    coder = Coder.train(
        sample,
        Framing("tile", tile, tile, channels),
        basis_of(tile, channels, 1),
        step,
        lapped=lapped,
        tune=tune,
    )
    assert coder.lapped == lapped and coder.restorer is not None
    return coder


CODERS = {
    (tile, channels, lapped): coder_of(tile, channels, lapped, 20.0, tune)
    for tile, channels, lapped, tune in [
        (8, 3, True, "visual"),
        (8, 3, False, "psnr"),
        (8, 1, True, "psnr"),
        (8, 2, True, "visual"),
        (8, 4, False, "visual"),
        (4, 3, False, "psnr"),
        (4, 1, False, "psnr"),
        (4, 4, False, "visual"),
        (16, 3, True, "psnr"),
        (32, 1, False, "psnr"),
    ]
}


def by_arrays(coder: Coder, block: bytes) -> list[np.ndarray]:
    values, grades = coder._decode(block, SHAPES)
    return coder._pictures(values, SHAPES, grades)


def grades_of(coder: Coder, rng: np.random.Generator) -> np.ndarray | int:
    """Any grade for each region."""
    if coder.factors is None:
        return 0
    found, side = [], coder.region
    for height, width in SHAPES:
        down, right = coder.framing.grid(height, width)
        grades = rng.integers(0, coder.factors.size, (-(-down // side), -(-right // side)), np.uint8)
        found.append(grades.repeat(side, axis=0).repeat(side, axis=1)[:down, :right].ravel())
    return np.concatenate(found)


@pytest.mark.parametrize("kind", CODERS)
@settings(max_examples=16)
@given(
    st.sampled_from([0, 1, 6, 40, 300, 5000, 10**6, 10**9]),
    st.sampled_from([0.01, 0.3, 1.0]),
    st.sampled_from(["bare", "filtered", "learned", "learned"]),
    st.integers(0, 999),
)
def test_the_kernel_gives_the_pixels_of_the_arrays(
    kind: tuple[int, int, bool], largest: int, share: float, way: str, seed: int
) -> None:
    coder = CODERS[kind] if way != "bare" else replace(CODERS[kind], restorer=None)
    if way == "learned" and coder.knows_networks:
        network = 1 + seed % learned.count()
        assert coder.restorer is not None
        coder = replace(coder, restorer=replace(coder.restorer, network=network))
    grid, rng = coder._grid(SHAPES), np.random.default_rng(seed)
    rows, zones = len(coder._scan.places), len(coder._scan.zones)
    values = rng.integers(-largest, largest + 1, (rows, grid.places.size))
    values[rng.random(values.shape) > share] = 0
    flags = np.ones((zones, grid.places.size), np.uint8)
    block = kernel_run.write_symbols(coder.model, grid, Symbols(values, flags, grades_of(coder, rng)))
    for ours, theirs in zip(coder.decode(block, SHAPES), by_arrays(coder, block), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def extremes(kind: str, height: int, width: int, channels: int, seed: int) -> np.ndarray:
    """Pictures that lapping makes large: black and white that meet at corners of tiles, or anywhere."""
    y, x = np.mgrid[0:height, 0:width]
    rng = np.random.default_rng(seed)
    if kind == "grain":
        return (rng.integers(0, 2, (height, width, channels)) * 255).astype(np.uint8)
    period, shift = (8, 0) if kind == "corners" else (4, int(rng.integers(0, 4)))
    board = ((y + shift) // period + (x + shift) // period) % 2 if kind != "stripes" else x // 4 % 2
    turned = (board[:, :, None] + rng.integers(0, 2, channels)) % 2  # (h, w, c)
    return (turned * 255).astype(np.uint8)


@pytest.mark.parametrize("kind", CODERS)
@pytest.mark.parametrize("look", ["natural", "noise", "corners", "squares", "stripes", "grain", "white"])
def test_the_kernel_codes_the_coefficients_of_the_arrays(kind: tuple[int, int, bool], look: str) -> None:
    coder, channels = CODERS[kind], kind[1]
    pictures = []
    for seed, (height, width) in enumerate(SHAPES):
        if look in ("natural", "noise"):
            pictures.append((natural if look == "natural" else noise)(height, width, channels, seed))
        elif look == "white":
            pictures.append(np.full((height, width, channels), 255, np.uint8))
        else:
            pictures.append(extremes(look, height, width, channels, seed))
    found = without_trials(coder, pictures)
    assert found.data == coder._code_again(pictures, coder._grades(pictures))[0]
    assert [int(e) for e in found.sse] == [
        int(((p.astype(int) - q) ** 2).sum()) for p, q in zip(pictures, found.decoded, strict=True)
    ]


@pytest.mark.parametrize("kind", CODERS)
def test_what_earlier_jobs_left_in_memory_changes_nothing(kind: tuple[int, int, bool]) -> None:
    coder = CODERS[kind]
    pictures = [natural(height, width, kind[1], 5) for height, width in SHAPES]
    found = coder.encode(pictures)
    symbols = kernel_run.read_symbols(coder.model, coder._grid(SHAPES), found.data)
    instance = KERNEL.instance()
    for rest in (0xFF, 0x35):
        instance.held, instance.memory(0)[instance.base :] = {}, rest
        assert coder.encode(pictures).data == found.data
        instance.held, instance.memory(0)[instance.base :] = {}, rest
        for ours, theirs in zip(coder.decode(found.data, SHAPES), found.decoded, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        instance.held, instance.memory(0)[instance.base :] = {}, rest
        again = kernel_run.read_symbols(coder.model, coder._grid(SHAPES), found.data)
        np.testing.assert_array_equal(again.values, symbols.values)
