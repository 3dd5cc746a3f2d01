"""What tiles from everywhere say of a sample: nothing where it is all there is, and the truth elsewhere."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from pictures import Pixels, natural, noise

from tpca_cli.codec.coder import Coder
from tpca_cli.encode.fit_design import Design, sample_basis
from tpca_cli.encode.spread import Spread, sizes
from tpca_cli.framing import Framing
from tpca_cli.sources.probe import Kind
from tpca_cli.tensor_pca.fixed_basis import integer_basis

FRAMING = Framing("tile", 8, 8, 3)


def grainy(seed: int, grain: int) -> Pixels:
    mixed = natural(64, 64, 3, seed).astype(int) + noise(64, 64, 3, seed) // grain - 128 // grain
    return np.clip(mixed, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("step", [24.0, 40.0])
def test_a_sample_is_corrected_towards_all_images(step: float) -> None:
    smooth, rough = [grainy(k, 16) for k in range(4)], [grainy(k, 5) for k in range(4)]
    everything, sample = smooth + rough, smooth
    basis = integer_basis(sample_basis(Design("rank1", FRAMING), everything, Kind("u1", 3)), "u1")
    counted = [sizes(basis, map(FRAMING.split, pictures)) for pictures in (everything, sample)]
    spread = Spread(*counted, counted[1])
    coder = Coder.train(everything, FRAMING, basis, step, effort=0)
    whole, part = coder.encode(everything), coder.encode(sample)
    for found, corrected in (
        (whole.sse.sum() / part.sse.sum() / 2, spread.error_ratio(step, few=False)),
        (whole.bits / part.bits / 2, spread.size_ratio(step, few=True)),
    ):
        assert found > 1.02
        assert abs(np.log(found / corrected)) < 0.5 * abs(np.log(found))


def test_all_images_need_no_correction() -> None:
    pictures = [grainy(k, 16) for k in range(3)]
    basis = integer_basis(sample_basis(Design("rank1", FRAMING), pictures, Kind("u1", 3)), "u1")
    counted = sizes(basis, map(FRAMING.split, pictures))
    assert counted.sum() == pytest.approx(1)
    same = Spread(counted, counted, counted)
    assert same.error_ratio(9.0, few=True) == same.size_ratio(9.0, few=False) == 1


def test_large_tiles_are_counted_in_little_memory() -> None:
    framing = Framing("tile", 16, 16, 3)
    pictures = [grainy(k, 16) for k in range(2)]
    basis = integer_basis(sample_basis(Design("rank1", framing), pictures, Kind("u1", 3)), "u1")
    frames = np.concatenate(list(map(framing.split, pictures)) * 100)
    tracemalloc.start()
    try:
        counted = sizes(basis, [frames])
        assert tracemalloc.get_traced_memory()[1] < 16 * frames.size
    finally:
        tracemalloc.stop()
    assert np.allclose(counted, sizes(basis, map(framing.split, pictures)))


def test_flat_images_are_no_ratio() -> None:
    flat = np.zeros(256)
    flat[0] = 1.0
    assert Spread(flat, flat, flat).error_ratio(5.0, few=False) == 1
