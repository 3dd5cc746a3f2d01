"""The plan of a fit follows from counts alone and keeps within the memory; frames are chosen by image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder

from tpca_cli.errors import UsageError
from tpca_cli.fit.plan import KEPT, FitOptions, FitRequest, ProblemSize, plan
from tpca_cli.fit.run import fit, sorted_digests
from tpca_cli.frames.arrays import ArrayFrames
from tpca_cli.frames.stage import stage
from tpca_cli.sources.scan import scan
from tpca_cli.tensor_pca.algorithm2 import ModeOperators, measured_rank1, solve_modes
from tpca_cli.tensor_pca.algorithm3 import content_order
from tpca_cli.tensor_pca.basis import SubspaceBasis
from tpca_cli.tensor_pca.solve import solve_frames

G = 1 << 30


@given(
    method=st.sampled_from(["auto", "operator", "rank1", "subspace"]),
    solver=st.sampled_from(["auto", "exact", "fast"]),
    choice=st.sampled_from([{}, {"components": 50}, {"energy": 0.9}, {"all_pairs": True}]),
    frames=st.integers(1, 10**6),
    side=st.integers(1, 300),
    memory=st.integers(1, 64).map(lambda gigas: gigas * G),
)
def test_every_plan_keeps_its_promise_or_says_what_would(
    method: str, solver: str, choice: dict, frames: int, side: int, memory: int
) -> None:
    wish = FitOptions(method=method, solver=solver, **choice)
    counts = ProblemSize(frames, (side, side, 3), 1, memory)
    try:
        decided = plan(wish, counts)
    except UsageError as error:
        assert "use" in str(error) or "leave out" in str(error)
        return
    assert method in ("auto", decided.method)
    assert solver in ("auto", decided.solver) or decided.method in ("rank1", "subspace")
    assert decided.seconds >= 0 and decided.reason
    if not decided.streamed:
        assert decided.memory <= memory
    if decided.method == "subspace":
        assert frames < counts.size
    assert plan(wish, counts) == decided


def test_the_operator_is_formed_only_where_it_fits() -> None:
    wish, exact = (
        FitOptions(method="operator", components=500, solver=solver) for solver in ("auto", "exact")
    )
    small, large = (64, 64, 3), (128, 128, 3)
    streamed = plan(wish, ProblemSize(60_000, large, 1, 2 * G))
    assert streamed.streamed and streamed.memory <= 2 * G
    assert not plan(exact, ProblemSize(10**4, small, 1, 2 * G)).streamed
    with pytest.raises(UsageError, match="needs"):
        plan(
            FitOptions(method="operator", components=500, keep_operator=True),
            ProblemSize(60_000, large, 1, 2 * G),
        )


MEASURED = """
import re
import numpy as np
from tpca_cli.frames.arrays import ArrayFrames
from tpca_cli.fit import plan, run
frames = np.random.default_rng(0).integers(0, 256, ({count}, *{shape}), np.uint8)
wish = plan.FitOptions(method="{method}", all_pairs=True)
decided = plan.plan(wish, plan.ProblemSize({count}, {shape}, 1, 1 << 30))
with run.fixed_threads():
    found = run._principal(wish, decided, ArrayFrames(frames), None)
assert found.components == min({count}, np.prod({shape}))
# ru_maxrss would count what the parent had, too
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
print(1024 * int(peak[1]) - frames.nbytes, decided.memory)
"""


@pytest.mark.parametrize(
    ("method", "count", "shape"),
    [("subspace", 400, (64, 64, 3)), ("operator", 200, (8, 8, 3)), ("operator", 50_000, (8, 8, 3))],
)
def test_a_fit_takes_no_more_memory_than_planned(method: str, count: int, shape: tuple[int, ...]) -> None:
    words = MEASURED.format(method=method, count=count, shape=shape)
    ran = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    peak, planned = map(int, ran.stdout.split())
    assert peak <= planned


def test_the_largest_set_of_the_paper_fits_two_gigabytes_and_not_much_more_does() -> None:
    wish, shape = FitOptions(method="subspace", all_pairs=True), (128, 128, 3)
    assert plan(wish, ProblemSize(3_660, shape, 1, 2 * G)).memory <= 2 * G
    with pytest.raises(UsageError, match=r"--memory is 2\.0G"):
        plan(wish, ProblemSize(3_750, shape, 1, 2 * G))


def test_a_given_operator_is_never_streamed() -> None:
    with pytest.raises(UsageError, match="neither kept nor merged"):
        plan(FitOptions(method="subspace"), ProblemSize(10, (8, 8, 3), 1, G, given=True))
    with pytest.raises(UsageError, match="fast"):
        plan(FitOptions(method="operator", solver="fast"), ProblemSize(10, (8, 8, 3), 1, G, given=True))
    assert plan(FitOptions(components=4), ProblemSize(10, (8, 8, 3), 1, G, given=True)).method == "operator"


@pytest.mark.parametrize(
    ("wish", "given", "advice"),
    [
        ({}, False, "all 192 components need it, use --components or --energy for fewer"),
        ({"all_pairs": True, "keep_operator": True}, False, "leave out --all, --keep-operator"),
        ({"components": 4, "operator_only": True}, False, "leave out --operator-only"),
        ({"components": 4, "keep_operator": True}, True, "leave out --update"),
    ],
)
def test_advice_names_what_was_asked_for(wish: dict, given: bool, advice: str) -> None:
    fast = FitOptions(method="operator", solver="fast", **wish)
    with pytest.raises(UsageError, match=f": {advice}$"):
        plan(fast, ProblemSize(500, (8, 8, 3), 1, G, given=given))


def test_few_small_frames_need_little_memory() -> None:
    counts = ProblemSize(30, (8, 8, 3), 1, 300 << 20)
    assert plan(FitOptions(all_pairs=True), counts).method == "operator"
    assert plan(FitOptions(method="operator", all_pairs=True), counts).memory <= 200 << 20


def test_small_frames_keep_their_operator() -> None:
    assert plan(FitOptions(method="operator"), ProblemSize(99, (16, 16, 3), 1, G)).keep_operator
    assert not plan(FitOptions(method="operator"), ProblemSize(99, (32, 32, 3), 1, 2 * G)).keep_operator
    assert KEPT**2 * 4 <= 1 << 22


def test_frames_of_chosen_images(tmp_path: Path) -> None:
    folder(tmp_path, 5, sizes=((8, 8), (10, 20)))
    refs = scan([str(tmp_path)]).refs
    with stage(refs, memory=G, tile=4) as staged:
        everything = np.concatenate(list(staged.frames.blocks(1000)))
        keep = np.array([True, False, False, True, True])
        chosen = staged.only(keep)
        counts = [staged.framing.count(h.height, h.width) for h in staged.headers]
        expected = everything[np.repeat(keep, counts)]
        for rows in (1, 7, 1000):
            assert np.array_equal(np.concatenate(list(chosen.blocks(rows))), expected)
        assert chosen.count == len(expected)


@given(st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=9), st.integers(0, 9))
def test_digests_have_one_order(digests: list[bytes], cut: int) -> None:
    def packed(part: list[bytes]) -> np.ndarray:
        return np.frombuffer(b"".join(part), np.uint8).reshape(-1, 8)

    got = sorted_digests(packed(digests[cut:]), packed(digests[:cut]))
    assert [row.tobytes() for row in got] == sorted(digests)


def test_measured_energy_is_enough_and_no_more() -> None:
    frames = np.random.default_rng(0).integers(0, 200, (60, 5, 4, 3), dtype=np.uint8)
    frames[:, :, 2:] //= 8
    operators = ModeOperators(frames.shape[1:])
    operators.add(frames)
    for center in (False, True):
        basis = solve_modes(operators, center=center)
        chosen = measured_rank1(basis, ArrayFrames(frames), energy=0.9)
        x = frames.astype(float) - (0 if basis.mean is None else basis.mean)
        error = float(((frames - chosen.reconstruct(chosen.project(frames))) ** 2).sum())
        assert 1 - error / float((x**2).sum()) >= 0.9
        assert chosen.measured and chosen.energy(chosen.components - 1) < 0.9
        shuffled = ArrayFrames(frames[::-1].copy())
        again = measured_rank1(basis, shuffled, energy=0.9)
        assert np.array_equal(again.energies, chosen.energies)
        assert np.array_equal(again.indices, chosen.indices)


def test_near_duplicates_span_few_dimensions(tmp_path: Path) -> None:
    """A burst of almost equal frames: the rank is found, the basis orthonormal, nothing is NaN."""
    rng = np.random.default_rng(3)
    base = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    frames = np.repeat(base[None], 20, axis=0)
    frames[10:, 0, 0, 0] ^= 1
    plan_ = plan(FitOptions(method="subspace"), ProblemSize(20, (8, 8, 3), 1, G))
    basis = solve_frames(ArrayFrames(frames), "subspace", plan_.components, energy=plan_.energy)
    assert isinstance(basis, SubspaceBasis) and basis.components == 2
    u = basis.matrix
    assert np.abs(u.T @ u - np.eye(2)).max() <= 1e-10
    assert np.array_equal(np.rint(basis.reconstruct(basis.project(frames))), frames)


def test_content_order_forgets_where_frames_came_from() -> None:
    frames = np.random.default_rng(1).integers(0, 256, (30, 3, 3, 1), dtype=np.uint8)
    order = np.random.default_rng(2).permutation(30)
    one, two = content_order(ArrayFrames(frames)), content_order(ArrayFrames(frames[order]))
    assert np.array_equal(frames[one], frames[order][two])


def test_progress_names_the_stages(tmp_path: Path) -> None:
    folder(tmp_path / "in", 6, sizes=((8, 8),))
    seen: dict[str, tuple[int, int]] = {}
    said: list[str] = []
    request = FitRequest(
        [str(tmp_path / "in")], tmp_path / "b.h5", FitOptions(method="operator", components=3)
    )
    fitted = fit(request, said.append, lambda stage, done, total: seen.__setitem__(stage, (done, total)))
    assert seen["operator"] == (6, 6) and seen["read images"] == (6, 6)
    assert len(said) == 1 and fitted.images == 6
    assert set(fitted.seconds) == {"list", "read", "operator", "solve", "write"}
