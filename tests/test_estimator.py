"""`TensorPCA` against scikit-learn, the definitions of the algorithms, and scikit-learn's own checks."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from tpca_cli import FileRefused, TensorPCA
from tpca_cli.errors import OutputExists

ROOT = Path(__file__).resolve().parent.parent
SHAPES = [(30, 7), (30, 4, 5), (40, 3, 4, 3), (25, 2, 3, 2, 3)]
DTYPES = [np.uint8, np.uint16, np.float32, np.float64]
METHODS = ["operator", "rank1", "subspace"]


def frames(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> NDArray[Any]:
    """Frames with falling energies along every mode, over the range of an integer type."""
    values = np.random.default_rng(seed).normal(size=shape)
    for axis, size in enumerate(shape[1:], 1):
        values *= (np.arange(1, size + 1) ** -0.7).reshape(
            [-1 if k == axis else 1 for k in range(len(shape))]
        )
    if np.issubdtype(dtype, np.floating):
        return (100 * values + 20).astype(dtype)
    low, high = values.min(), values.max()
    return ((values - low) / (high - low) * np.iinfo(dtype).max).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_the_pca_of_scikit_learn(shape: tuple[int, ...], dtype: Any) -> None:
    x = frames(shape, dtype)
    rows = x.reshape(len(x), -1).astype(np.float64)
    theirs = PCA(n_components=6, svd_solver="full").fit(rows)
    for method in ("operator", "subspace"):
        ours = TensorPCA(method, n_components=6, center=True).fit(x)
        top = theirs.explained_variance_[0]
        np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, atol=1e-8 * top)
        np.testing.assert_allclose(
            ours.explained_variance_ratio_, theirs.explained_variance_ratio_, atol=1e-8
        )
        np.testing.assert_allclose(ours.mean_.reshape(-1), theirs.mean_, rtol=1e-12)
        signs = np.sign((ours.components_.reshape(6, -1) * theirs.components_).sum(axis=1))
        flat = ours.components_.reshape(6, -1) * signs[:, None]
        np.testing.assert_allclose(flat, theirs.components_, atol=1e-8)
        scale = np.abs(rows - theirs.mean_).max()
        np.testing.assert_allclose(ours.transform(x) * signs, theirs.transform(rows), atol=1e-8 * scale)
        back = theirs.inverse_transform(theirs.transform(rows))
        np.testing.assert_allclose(
            ours.inverse_transform(ours.transform(x)).reshape(len(x), -1), back, atol=1e-8 * scale
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("center", [False, True])
def test_algorithm_2_is_its_definition(shape: tuple[int, ...], dtype: Any, center: bool) -> None:
    """U^k are the eigenvectors of A^k (eq 4B5), components their products (eq 4B2), by measured energy."""
    x = frames(shape, dtype)
    model = TensorPCA("rank1", n_components=5, center=center).fit(x)
    values = x.astype(np.float64) - (x.astype(np.float64).mean(axis=0) if center else 0)
    modes = []
    for k, size in enumerate(shape[1:], 1):
        unfolded = np.moveaxis(values, k, -1).reshape(-1, size)
        modes.append(np.linalg.eigh(unfolded.T @ unfolded)[1])
    core = values
    for mode in modes:
        core = np.tensordot(core, mode, axes=(1, 0))  # contracts the first mode, appends it at the end
    energies = np.sort((core**2).sum(axis=0).reshape(-1))[::-1]
    np.testing.assert_allclose(model.basis_.energies, energies[:5], rtol=1e-8)
    d = model.transform(x)
    np.testing.assert_allclose((d**2).sum(axis=0), energies[:5], rtol=1e-8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_algorithm_3_is_its_definition(dtype: Any) -> None:
    """Q spans the frames (eq 4C11) and D = U Sigma (eq 4C14), a_mn = X_im X_in (eq 4C5)."""
    x = frames((6, 5, 4, 3), dtype)
    model = TensorPCA("subspace", center=False).fit(x)
    rows = x.reshape(6, -1).astype(np.float64)
    sigma = np.linalg.svd(rows, compute_uv=False)
    np.testing.assert_allclose(np.sqrt(model.basis_.energies), sigma, rtol=1e-8)
    d = model.transform(x)
    np.testing.assert_allclose(d.T @ d, np.diag(sigma**2), atol=1e-8 * sigma[0] ** 2)
    np.testing.assert_allclose(
        model.inverse_transform(d).reshape(6, -1), rows, atol=1e-8 * np.abs(rows).max()
    )


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_parts_give_what_the_whole_gives_to_the_bit(method: str, dtype: Any, center: bool) -> None:
    x = frames((23, 4, 5, 3), dtype)
    whole = TensorPCA(method, 7, center).fit(x)
    parts = TensorPCA(method, 7, center)
    for start, stop in ((0, 1), (1, 9), (9, 23)):
        parts.partial_fit(x[start:stop])
    np.testing.assert_array_equal(whole.components_, parts.components_)
    np.testing.assert_array_equal(whole.explained_variance_, parts.explained_variance_)
    if method == "operator" and np.issubdtype(dtype, np.integer):
        assert not parts._held
    again = parts.fit(x[:9])
    np.testing.assert_array_equal(again.components_, TensorPCA(method, 7, center).fit(x[:9]).components_)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("center", [False, True])
def test_a_saved_model_does_the_same(tmp_path: Path, method: str, dtype: Any, center: bool) -> None:
    x = frames((12, 4, 5, 2), dtype)
    model = TensorPCA(method, 4, center).fit(x)
    model.save(tmp_path / "model.h5")
    for other in (TensorPCA.load(tmp_path / "model.h5"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.transform(x), model.transform(x))
        np.testing.assert_array_equal(other.explained_variance_ratio_, model.explained_variance_ratio_)
        assert other.get_params() == model.get_params() and other.frame_shape_ == (4, 5, 2)
    with pytest.raises(ValueError, match="fit all frames anew"):
        TensorPCA.load(tmp_path / "model.h5").partial_fit(x)
    with pytest.raises(OutputExists):
        model.save(tmp_path / "model.h5")
    model.save(tmp_path / "model.h5", force=True)
    whole = bytearray((tmp_path / "model.h5").read_bytes())
    whole[len(whole) // 2] ^= 1
    (tmp_path / "model.h5").write_bytes(whole)
    with pytest.raises(FileRefused):
        TensorPCA.load(tmp_path / "model.h5")


def test_parameters_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    x = frames((12, 4, 5), np.uint8)
    model = TensorPCA("operator", np.int64(3), np.bool_(True)).fit(x)  # type: ignore[arg-type]
    model.save(tmp_path / "model.h5")
    assert TensorPCA.load(tmp_path / "model.h5").get_params() == TensorPCA("operator", 3, True).get_params()


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
@pytest.mark.parametrize("fitted", METHODS)
def test_what_was_fitted_stays_when_parameters_change(tmp_path: Path, fitted: str, dtype: Any) -> None:
    """Another method needs other sums: it waits for the next fit. All else may change between parts."""
    x = frames((12, 4, 5), dtype)
    for method in set(METHODS) - {fitted}:
        model = TensorPCA(fitted, 3).fit(x[:8]).set_params(method=method, center=False)
        model.save(tmp_path / "model.h5", force=True)
        loaded = TensorPCA.load(tmp_path / "model.h5")
        np.testing.assert_array_equal(loaded.transform(x), model.transform(x))
        assert loaded.get_params() == TensorPCA(fitted, 3).get_params()
        with pytest.raises(ValueError, match=rf"method {method!r} after .*{fitted!r}"):
            model.partial_fit(x[8:])
        assert model.n_samples_ == 8 and model.fit(x).basis_.method == method
    parts = TensorPCA(fitted, 3).fit(x[:8]).set_params(center=False, n_components=2).partial_fit(x[8:])
    np.testing.assert_array_equal(parts.components_, TensorPCA(fitted, 2, False).fit(x).components_)


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_what_a_model_gives_may_be_changed(method: str, components: int) -> None:
    x = frames((12, 4, 5), np.uint8)
    model = TensorPCA(method, components).fit(x)
    right = model.transform(x)
    for given in (model.components_, model.mean_, model.explained_variance_):
        given[:] = 0
    np.testing.assert_array_equal(model.transform(x), right)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("center", [False, True])
def test_it_passes_the_checks_of_scikit_learn(method: str, center: bool) -> None:
    check_estimator(TensorPCA(method, center=center))


def test_it_works_in_a_pipeline_and_can_be_cloned() -> None:
    x = np.concatenate([frames((30, 4, 5), np.uint8), frames((30, 4, 5), np.uint8, 1) // 3])
    y = np.repeat([0, 1], 30)
    pipeline = make_pipeline(clone(TensorPCA("rank1", 4)), LogisticRegression(max_iter=1000))
    search = GridSearchCV(pipeline, {"tensorpca__n_components": [2, 4], "tensorpca__method": METHODS}, cv=3)
    assert search.fit(x, y).best_score_ > 0.9
    assert clone(TensorPCA("rank1", 4, False)).get_params() == TensorPCA("rank1", 4, False).get_params()


def test_scikit_learn_is_not_needed() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import numpy as np; from tpca_cli import TensorPCA\n"
        "x = np.arange(24, dtype='u1').reshape(4, 3, 2)\n"
        "print(repr(TensorPCA('rank1', 2).fit(x)), TensorPCA().fit_transform(x).shape)\n"
        "try: TensorPCA().transform(x)\n"
        "except ValueError as error: print(error)\n"
        "assert not hasattr(TensorPCA(), 'components_') and hasattr(TensorPCA().fit(x), 'components_')\n"
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert "not fitted" in done.stdout and "sklearn" not in done.stderr


WRONG: dict[str, tuple[Any, Exception | type[Exception], str]] = {
    "one axis": (np.zeros(4), ValueError, "Reshape your data"),
    "no frames": (np.zeros((0, 3)), ValueError, "0 sample"),
    "no values": (np.zeros((3, 0)), ValueError, "0 feature"),
    "not a number": (np.array([[1.0, np.nan]]), ValueError, "NaN"),
    "complex": (np.ones((2, 3), complex), ValueError, "Complex"),
}


@pytest.mark.parametrize("case", WRONG)
def test_frames_that_make_no_sense_are_refused(case: str) -> None:
    x, kind, words = WRONG[case]
    with pytest.raises(kind, match=words):  # type: ignore[arg-type]
        TensorPCA().fit(x)


def test_parameters_and_later_frames_are_checked() -> None:
    x = frames((9, 4, 5), np.uint8)
    with pytest.raises(ValueError, match="is not one of"):
        TensorPCA("pca").fit(x)
    for wrong in (0, -2, 2.0, "mle"):
        unfit = TensorPCA(n_components=wrong)  # type: ignore[arg-type]
        for learn in (unfit.fit, unfit.partial_fit):
            with pytest.raises(ValueError, match="at least 1"):
                learn(x)
        assert not hasattr(unfit, "n_samples_")
    model = TensorPCA().fit(x)
    for odd in (np.zeros(20), np.zeros((2, 21)), np.zeros((1, 2, 3)), 7):
        with pytest.raises(ValueError, match=r"coefficients of shape .* expected"):
            model.inverse_transform(odd)
    with pytest.raises(ValueError, match="expecting 20 features"):
        model.transform(x[:, :3])
    with pytest.raises(ValueError, match="as one type"):
        model.partial_fit(x.astype(float))
    np.testing.assert_array_equal(model.transform(x.reshape(9, -1)), model.transform(x))
