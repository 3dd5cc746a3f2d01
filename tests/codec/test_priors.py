"""The numbers that every coder starts from, and the script that fits them."""

from __future__ import annotations

from dataclasses import fields
from importlib import resources
from pathlib import Path

import fit_priors
import numpy as np
import pytest
from priors_estimate import start
from priors_evidence import Material, model_of

from tpca_cli.codec import kernel_run
from tpca_cli.codec.priors import SHAPES, Priors, shipped

SAMPLES = Path(__file__).resolve().parents[2] / "sample_data"


def check_tables(priors: Priors) -> None:
    """What the kernel relies on: whole numbers, frequencies that add up, sums that fit their types."""
    for field in fields(priors):
        array = getattr(priors, field.name)
        assert array.shape == SHAPES[field.name.upper()]
        assert np.array_equal(array, np.rint(array)), field.name
    assert np.all(priors.tables.sum(axis=2) == 2**16) and priors.tables.min() >= 1
    assert np.all(priors.flag_tables.sum(axis=1) == 2**16) and priors.flag_tables.min() >= 1
    assert priors.expected.min() >= 1 and priors.expected.max() <= 2**30
    assert np.all(np.diff(priors.expected) >= 0)
    for nonnegative in (priors.weights, priors.flag_weights, priors.lowest_weights, priors.position):
        assert nonnegative.min() >= 0
    largest = priors.weights[..., :-1] * priors.position.max() / 8
    assert largest.max() < 2**15, "a weight is 16 bits wide"
    totals = 2 * 4095 * largest.sum(axis=-1) + 2**30 * priors.weights[..., -1] * priors.position.max() / 2**16
    assert totals.max() < 2**32, "a sum of weighted magnitudes is 32 bits wide"
    assert np.abs(priors.offsets).max() < 256


def test_the_shipped_numbers_are_possible() -> None:
    check_tables(shipped())


def test_json_gives_the_same_numbers_back() -> None:
    again = Priors.from_json(shipped().to_json())
    for field in fields(again):
        assert np.array_equal(getattr(again, field.name), getattr(shipped(), field.name)), field.name


def test_the_shipped_file_has_one_row_per_line() -> None:
    text = resources.files("tpca_cli.codec").joinpath("priors.json").read_text()
    assert text == shipped().to_json()
    assert max(map(len, text.splitlines())) <= 200
    assert len(text.splitlines()) < 1000


def test_an_array_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="ADJUST"):
        Priors.from_json(shipped().to_json().replace('"ADJUST": [', '"ADJUST": [\n    0,'))


@pytest.fixture(scope="module")
def materials() -> list[Material]:
    folders = [SAMPLES / name for name in ("leaves", "hills", "badges")]
    return fit_priors.materials_of(folders, 30_000, tiles=(8,))


@pytest.fixture(scope="module")
def trained(materials: list[Material]) -> Priors:
    return fit_priors.train(materials, (8.0, 24.0), rounds=2, values=30_000)


def test_training_gives_numbers_that_the_kernel_can_use(trained: Priors) -> None:
    check_tables(trained)


def test_training_twice_gives_the_same_numbers() -> None:
    def once() -> str:
        materials = fit_priors.materials_of([SAMPLES / "leaves"], 30_000, tiles=(8,))
        return fit_priors.train(materials, (24.0,), rounds=1, values=10_000).to_json()

    assert once() == once()


def test_trained_numbers_code_as_small_as_the_shipped_ones(
    materials: list[Material], trained: Priors
) -> None:
    for step in (8.0, 24.0):
        ours, error = fit_priors.measure(materials, step, trained)
        theirs, other_error = fit_priors.measure(materials, step, shipped())
        assert ours <= 1.03 * theirs
        assert error <= 1.05 * other_error


def test_trained_numbers_decode_what_they_coded(materials: list[Material], trained: Priors) -> None:
    for material in materials:
        model = model_of(material, 12.0, trained)
        for grid, rows in material.blocks:
            data, values = kernel_run.encode(model, grid, rows)
            assert np.array_equal(kernel_run.decode(model, grid, data), values)


def test_a_start_that_knows_no_images_is_possible() -> None:
    check_tables(start())
