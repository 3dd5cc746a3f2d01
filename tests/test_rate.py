"""Targets exclude one another; the search lands in its interval on any falling curve."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.errors import UsageError
from tpca_cli.quality import decibel, loses_detail, psnr
from tpca_cli.rate import DEFAULT_PSNR, DEFAULT_QUALITY, Interval, Range, StepSearch, Target, range_for


def test_two_targets_are_refused_and_components_combine() -> None:
    with pytest.raises(UsageError, match="--psnr and --max-bytes"):
        Target.choose(psnr=30, max_bytes=1000)
    assert Target.choose(psnr=30, components=5) == Target("psnr", 30.0, 5)
    assert Target.choose(components=5) == Target("components", 5.0, 5)
    assert Target.choose() == Target("quality", DEFAULT_QUALITY) and Target.choose().visual
    assert Target.choose(tune="psnr") == Target.choose().without_quality() == Target("psnr", DEFAULT_PSNR)
    asked = Target.choose(quality=50)
    assert asked.without_quality() is asked


@pytest.mark.parametrize(
    "target", [Target("psnr", 30.0), Target("ratio", 9.5, 4), Target("components", 7.0, 7)]
)
def test_targets_round_trip(target: Target) -> None:
    assert Target.from_dict(target.to_dict()) == target


@given(
    slope=st.floats(-9, -0.3),
    level=st.floats(-20, 80),
    bend=st.floats(0, 0.2),
    start=st.floats(0.05, 400),
    ceiling=st.booleans(),
)
def test_the_search_lands_on_any_falling_curve(slope, level, bend, start, ceiling) -> None:
    def curve(step: float) -> float:
        x = math.log(step)
        return level + slope * x - bend * math.exp(min(x, 8) / 4)

    wanted = curve(7.3)
    interval = Interval(wanted - 0.05, wanted + 0.05, ceiling)
    search = StepSearch(interval, start, 1e-3, 1e5)
    for _ in range(40):
        if search.record(curve(search.step)):
            break
    assert interval.holds(curve(search.step))


def test_a_value_out_of_reach_ends_at_the_bound() -> None:
    search = StepSearch(Interval(50, 50.1), 10.0, finest=0.5, coarsest=1000)
    for _ in range(40):
        if search.record(40 - math.log(search.step)):
            break
    assert search.step == 0.5


def test_promises() -> None:
    quality, budget = Target("psnr", 30.0).interval(0), Target("ratio", 10.0).interval(10_000)
    assert quality.keeps_promise(30.4) and not quality.keeps_promise(29.99)
    assert budget.keeps_promise(decibel(900)) and not budget.keeps_promise(decibel(1001))
    assert budget.holds(decibel(980)) and not budget.holds(decibel(960))
    assert Target("energy", 0.99).interval(0).low == pytest.approx(20)


def test_psnr_of_a_known_error() -> None:
    assert psnr(100, 100, 255) == pytest.approx(48.1308, abs=1e-4)
    assert psnr(0, 100, 255) == math.inf


def test_near_exactness_any_quality_above_will_do() -> None:
    near = Target("psnr", 90.0).interval(0)
    assert near.holds(math.inf) and near.holds(90) and not near.holds(89.9) and near.miss(math.inf) == 0
    assert not Target("psnr", 60.0).interval(0).holds(math.inf)
    assert (
        not Target("psnr", 90.0).interval(0, reference=65535).holds(math.inf)
    )  # an error of 2 is no exactness
    assert 90 < near.aim < 90.1


@given(st.lists(st.floats(0.01, 1e8), min_size=1, max_size=40), st.sampled_from([255, 1023, 4095, 65535]))
def test_without_a_target_little_contrast_is_coded_finer(variances, peak) -> None:
    default = Target.choose().without_quality()
    found = range_for(default, peak, variances)
    assert found.reference <= peak and found.unit == found.reference / 255
    # at the quality that the search aims at, nine images of ten keep their detail
    allowed = found.reference**2 * 10 ** (-DEFAULT_PSNR / 10)
    lost = sum(loses_detail(allowed, 1, variance) for variance in variances)
    assert lost <= len(variances) // 10
    # among photographs a few of little contrast decide nothing
    beside = range_for(Target.choose(), peak, [*variances, *(float(peak) ** 2 for _ in variances)])
    assert beside == Range(peak) and range_for(Target.choose(), peak, variances) in (found, beside)
    assert range_for(Target("psnr", 36.0), peak, variances) == Range(peak)
    assert range_for(Target("step", 5.0), peak, variances).unit == 1


def test_constant_images_have_nothing_to_lose() -> None:
    assert range_for(Target.choose(), 255, [0.0, 0.0]) == Range(255)


def test_what_was_not_asked_for_is_remembered_but_no_other_target() -> None:
    default = Target.choose()
    assert default == Target("quality", DEFAULT_QUALITY) and default.detail
    assert Target.from_dict(default.to_dict()).detail and not Target.from_dict({"psnr": 36.0}).detail


def test_few_steps_are_tried_near_plateaus() -> None:
    def terraces(step: float) -> float:  # as images have them that were JPEG files
        return 50 - 6 * math.log(step) + 0.9 * math.sin(6 * math.log(step))

    most = 0
    for aim in np.arange(28, 44, 0.08):
        search, tried = StepSearch(Interval(aim - 0.05, aim + 0.05), 5.0, 1e-3, 1e5), 1
        while not search.record(terraces(search.step)):
            tried += 1
        most = max(most, tried)
    assert most <= 7


def test_a_jump_is_not_taken_for_the_slope() -> None:
    search = StepSearch(Interval(40.0, 40.1), 9.0, 1e-3, 1e5)
    for step, value in [(9.0, 45.6), (18.8, 42.4), (20.2, 39.6), (19.9, 42.2)]:
        search.step = step
        assert not search.record(value)
    assert search.local_slope == pytest.approx((42.2 - 45.6) / math.log(19.9 / 9.0))


def test_a_curve_that_seems_to_rise_does_not_lead_far_away() -> None:
    search = StepSearch(Interval(80.0, 80.5), 15.65, 1e-3, 1e5)
    for value in (80.77, 80.82):  # at a jump, or on both sides of another choice
        assert not search.record(value)
    assert 15.65 < search.step < 25


@pytest.mark.parametrize(("height", "jumps"), [(0.25, True), (0.0, False)])
def test_a_jump_is_found_before_all_steps_around_it_are_tried(height: float, jumps: bool) -> None:
    search = StepSearch(Interval(40.0, 40.1), 10.0, 1e-3, 1e5)
    values: list[float] = []
    while len(values) < 4:  # falls by 8 dB for each unit of ln(step), and by `height` at a step of 10
        values.append(40.05 - 8 * math.log(search.step / 10) + height * (0.5 if search.step <= 10 else -0.5))
        if search.record(values[-1]) or search.at_a_jump:
            break
    assert search.at_a_jump == jumps and len(values) <= 3
