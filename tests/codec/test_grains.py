"""The steps of JPEG files, found in pictures and kept to."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from pictures import natural
from PIL import Image

from tpca_cli.codec.basis_coding import arrays_of, coder_from_arrays, meta_of
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.contexts import LOWEST_HEED, replaced
from tpca_cli.codec.grains import find_grains
from tpca_cli.encode.fit_design import JPEG_UNITS, Design, sample_basis
from tpca_cli.errors import FileRefused
from tpca_cli.framing import Framing
from tpca_cli.sources.probe import Kind
from tpca_cli.tensor_pca.fixed_basis import FixedBasis, integer_basis

FRAMING = Framing("tile", 8, 8, 3)


def of_jpeg(quality: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """A picture that was a JPEG file, and its table of brightness (8, 8)."""
    file = io.BytesIO()
    rough = np.random.default_rng(seed).normal(0, 18, (128, 160, 3)).cumsum(axis=2) / 2
    pixels = np.rint(natural(128, 160, seed=seed) / 4 + 90 + rough).clip(20, 235).astype(np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling=0)
    image = Image.open(file)
    return np.asarray(image), np.array(image.quantization[0]).reshape(8, 8)


def basis_for(picture: np.ndarray, step: float) -> FixedBasis:
    return integer_basis(sample_basis(Design("rank1", FRAMING), [picture], Kind("u1", 3), step), "u1")


@pytest.mark.parametrize(("step", "for_error"), [(16.0, True), (120.0, False)])
def test_for_the_least_error_colors_of_jpeg_are_taken_where_grains_serve(
    step: float, for_error: bool
) -> None:
    picture, _ = of_jpeg(60)
    designs = [Design("rank1", FRAMING, seen=seen) for seen in (False, True)]
    found = [sample_basis(design, [picture], Kind("u1", 3), step) for design in designs]
    assert [integer_basis(basis, "u1").oblique for basis in found] == [for_error, True]


@pytest.mark.parametrize("quality", [60, 80])
def test_the_table_of_a_jpeg_file_is_found(quality: int) -> None:
    picture, table = of_jpeg(quality)
    basis = basis_for(picture, 16.0)
    assert basis.oblique
    coder = Coder.train([picture], FRAMING, basis, 16.0, lapped=False)
    assert coder.grains is not None and basis.indices is not None
    found = 0
    for (i, j, k), grain in zip(basis.indices, coder.grains, strict=True):
        if k == 0 and grain:
            assert grain == round(64 * table[i, j] * JPEG_UNITS[0])
            found += 1
    assert found > 20


def test_grains_leave_less_error_in_fewer_bytes() -> None:
    picture, _ = of_jpeg(70)
    basis = basis_for(picture, 16.0)
    coder = Coder.train([picture], FRAMING, basis, 16.0, lapped=False, effort=0)
    plain = Coder.train([picture], FRAMING, basis, 16.0, lapped=False, effort=0)
    object.__setattr__(plain, "grains", None)
    with_them, without = coder.encode([picture]), plain.encode([picture])
    price = [one.bits + float(one.sse.sum()) / (0.1 * 16**2) for one in (with_them, without)]
    assert price[0] < 0.95 * price[1]


def test_values_are_whole_multiples_of_grains() -> None:
    picture, _ = of_jpeg(70)
    basis = basis_for(picture, 12.0)
    coder = Coder.train([picture], FRAMING, basis, 12.0, lapped=False, effort=0)
    before = replace(coder, whole=0)
    blocks = [one.encode([picture]) for one in (coder, before)]
    assert blocks[0].sse.sum() < 0.8 * blocks[1].sse.sum() and blocks[0].bits < 1.05 * blocks[1].bits
    assert coder.grains is not None and basis.indices is not None
    values = coder.coefficients(blocks[0].data, [picture.shape[:2]])[0] * 64  # (frames, M)
    rows = (4 * coder.grains > 2 * 12 * 64) & basis.indices[:, :2].any(axis=1)
    assert rows.sum() > 20 and not (values[:, rows] % coder.grains[rows]).any()
    shrunk = before.coefficients(blocks[1].data, [picture.shape[:2]])[0] * 64
    assert (shrunk[:, rows] % coder.grains[rows]).any()
    model = coder.model  # an error of a grain counts as it would in the steps that were asked for
    counts = np.where(np.isin(np.arange(len(rows)), model.scan.lowest), LOWEST_HEED, 1.0)
    assert np.allclose(model.heed[0] * (12 * 64) ** 2, counts * model.quanta[0] ** 2)
    for wrong in (-1, 9, "many"):
        with pytest.raises(FileRefused):
            coder_from_arrays(meta_of(coder) | {"whole": wrong}, arrays_of(coder))
    arrays = {name: array for name, array in arrays_of(coder).items() if name != "grains"}
    with pytest.raises(FileRefused, match="grains"):
        coder_from_arrays(meta_of(coder), arrays)


def test_pictures_that_were_no_jpeg_have_none() -> None:
    picture = natural(128, 160, seed=3)
    assert not basis_for(picture, 16.0).oblique
    values = np.random.default_rng(1).laplace(0, 30, (64, 600))
    assert not find_grains(values, np.ones(64)).sizes.any()


def test_steps_below_a_grain_become_it() -> None:
    steps, grains = np.array([4.0, 11.0, 12.0, 40.0, 5.0]), np.array([8, 8, 8, 8, 0])
    assert replaced(steps, grains).tolist() == [8, 8, 12, 40, 5]
    assert replaced(steps, grains, 4).tolist() == [8, 8, 8, 40, 5]


@pytest.mark.parametrize("step", [6.0, 20.0])
def test_a_coder_with_grains_comes_back_from_its_arrays(step: float) -> None:
    picture, _ = of_jpeg(70)
    basis = basis_for(picture, step)
    coder = Coder.train([picture], FRAMING, basis, step, lapped=False, tune="visual")
    again = coder_from_arrays(meta_of(coder), arrays_of(coder))
    block = coder.encode([picture])
    assert np.array_equal(again.decode(block.data, [picture.shape[:2]])[0], block.decoded[0])
    arrays = arrays_of(coder)
    with pytest.raises(FileRefused):
        coder_from_arrays(meta_of(coder), arrays | {"grains": arrays["grains"][:-1]})


def test_oblique_colors_give_every_pixel_back() -> None:
    picture, _ = of_jpeg(70)
    basis = basis_for(picture, 16.0)
    frames = FRAMING.split(picture)
    assert np.abs(basis.reconstruct(basis.project(frames)).astype(int) - frames).max() <= 1
    again = FixedBasis.from_arrays(basis.meta, basis.to_arrays())
    assert again.oblique and np.array_equal(again.project(frames), basis.project(frames))
    plain = {name: value for name, value in basis.meta.items() if name != "oblique"}
    with pytest.raises(FileRefused, match="orthonormal"):
        FixedBasis.from_arrays(plain, basis.to_arrays())
    steep = basis.to_arrays()
    steep["factor2"] = steep["factor2"].copy()
    steep["factor2"][:, 1] = steep["factor2"][:, 0]
    with pytest.raises(FileRefused, match="far from orthonormal"):
        FixedBasis.from_arrays(basis.meta, steep)
