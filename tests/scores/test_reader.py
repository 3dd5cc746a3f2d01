"""Scores as Python code sees them: a sequence of images by position or name, each the reader's own."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder

from tpca_cli import Scores
from tpca_cli.errors import UsageError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gray and color images on one basis; they share a block."""
    root = tmp_path_factory.mktemp("scores")
    folder(root / "in", 9, sizes=((12, 16),), channels=(1, 3))
    tpca("fit-basis", root / "in", "-o", root / "b.h5", "--components", 5)
    tpca("encode", root / "in", "-o", root / "s.h5", "--basis", root / "b.h5", "--plain", "--link-basis")
    return root


@pytest.fixture
def scores(made: Path) -> Iterator[Scores]:
    with Scores(made / "s.h5", basis=made / "b.h5") as opened:
        yield opened


def test_an_image_belongs_to_who_asked_for_it(scores: Scores) -> None:
    """Changing it changes no image that is read later, and keeping it keeps no others in memory."""
    modes = {scores.index.mode(position) for position in range(len(scores))}
    assert modes == {"L", "RGB"}
    for position in range(len(scores)):
        right = scores[position].copy()
        for image in (scores[position], scores[scores.names[position]], scores.read(position)):
            np.testing.assert_array_equal(image, right)
            assert image.flags.c_contiguous
            assert image.base is None or image.base.nbytes == image.nbytes
            image[:] = 0


def test_names_labels_and_eigenvalues_stay_those_of_the_file(scores: Scores) -> None:
    assert all(isinstance(found, tuple) for found in (scores.names, scores.names_bytes, scores.labels))
    with pytest.raises(ValueError, match="read-only"):
        scores.eigenvalues[0] = 0


def test_positions_count_from_either_end_and_names_are_found(scores: Scores) -> None:
    count = len(scores)
    for position, (text, raw) in enumerate(zip(scores.names, scores.names_bytes, strict=True)):
        assert text in scores and raw in scores
        np.testing.assert_array_equal(scores.coefficients(position - count), scores.coefficients(position))
        for way in (scores[text], scores[raw], scores[position - count], scores.read(position - count)):
            np.testing.assert_array_equal(way, scores[position])
    for one, other in zip(scores[1:3], (scores[1], scores[2]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "nowhere.png" not in scores and b"nowhere.png" not in scores and 0 not in scores


def test_what_is_no_image_is_refused(scores: Scores) -> None:
    for way in (scores.__getitem__, scores.read, scores.coefficients):
        for wrong in (len(scores), -len(scores) - 1):
            with pytest.raises(IndexError, match="of 9"):
                way(wrong)
        with pytest.raises(TypeError):
            way(1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="components is -1"):
        scores.read(0, components=-1)


def test_nothing_is_read_after_closing(scores: Scores) -> None:
    """Whether it was read before or not."""
    scores[0], scores.coefficients(0)
    scores.close()
    ways = (scores.__getitem__, scores.read, scores.coefficients, lambda row: scores.rows(row, row + 1))
    for way in ways:
        for position in (0, 8):
            with pytest.raises(UsageError, match=r"s\.h5 is closed"):
                way(position)


def test_a_relative_path_is_of_the_folder_where_it_was_given(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    with Scores("s.h5", basis="b.h5") as scores:
        assert scores.path == Path("s.h5")
        monkeypatch.chdir(tmp_path)
        with pickle.loads(pickle.dumps(scores)) as other:
            np.testing.assert_array_equal(other[3], scores[3])
            with pickle.loads(pickle.dumps(other)) as third:
                np.testing.assert_array_equal(third[3], scores[3])
