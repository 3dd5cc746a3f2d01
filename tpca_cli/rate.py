"""From what the user asks for to a quantiser step: the targets, and the search that keeps their promises.

Every target becomes a measured value that falls as the step grows, and an interval it must land in:

| target         | value                                   | interval                                    |
|----------------|-----------------------------------------|---------------------------------------------|
| `psnr P`       | PSNR of the returned samples, dB        | [P, P + 0.1], or P and more near exactness  |
| `quality Q`    | mean SSIMULACRA 2 of the images         | [Q, Q + 0.5]                                |
| `energy E`     | 10 log10(energy / error), dB            | [-10 log10(1 - E), .. + 0.1]                |
| `max_bytes B`  | 10 log10(size of the file)              | [10 log10(0.97 B), 10 log10(B)]             |
| `ratio R`      | as `max_bytes`, B = raw bytes / R       |                                             |

A PSNR counts from the range of the samples (`Range`). Without a target, photographs of 8 bits get a quality.
Other images, for which SSIMULACRA 2 was not made, get 36 dB, and more where they have so little contrast that
36 dB would cost what can be seen in them.

The search knows nothing of images: it proposes steps and is told what was measured there. It interpolates
inside the bracket on a logarithmic axis, where all of these are nearly straight lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpca_cli.errors import UsageError
from tpca_cli.quality import NEGLIGIBLE, decibel, psnr

DEFAULT_QUALITY = 80.0
DEFAULT_PSNR = 36.0
PSNR_SLACK = 0.1
QUALITY_SLACK = 0.5
BUDGET_USE = 0.97
TRUNCATION_LOSS_DB = 0.05
STEEPEST, FLATTEST = -12.0, -0.1  # dB per unit of ln(step) that an extrapolation believes
NEAR_DB = 0.15  # from here to the aim the slope of the last two values is right to a hundredth of a decibel
JUMP = 0.02  # of ln(step): a curve that falls much between such steps does not fall smoothly
APART = 0.1  # of ln(step): between such steps the curve is smooth, even where images were JPEG files
EXACT_RMS = 0.1  # a smaller error than this, in pixel values, leaves hardly a sample wrong: exact will do
EXACT_STEP = 0.4  # about the coarsest step, in pixel values, that gives identical pixels
DETAIL_AIM = 0.05  # without a target, the error may take this share of the variance of an image
FOR_PEOPLE = ("quality", "max_bytes", "ratio")
"""Targets that leave open what the bytes are best for."""
KINDS = ("psnr", "quality", "energy", "max_bytes", "ratio", "step", "components", "max_error")


@dataclass(frozen=True)
class Target:
    """What was asked for. `components` caps the components per frame and combines with every kind.

    `detail`: nothing was asked for, so a quality is for photographs, and images of little contrast are coded
    finer than a PSNR says.
    `relative`: the value of a step is for samples up to 255, as a search counts it.
    `visual`: steps are made for what people see, not for the least squared error.
    `truncates`: components were asked for and no quality or size: the truncation and nothing else.
    """

    kind: str
    value: float
    components: int | None = None
    detail: bool = field(default=False, compare=False)
    relative: bool = field(default=False, compare=False)
    visual: bool = field(default=False, compare=False)
    truncates: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        truncates = self.components is not None and self.kind in ("components", "step")
        object.__setattr__(self, "truncates", truncates)

    @classmethod
    def choose(cls, components: int | None = None, tune: str | None = None, **given: float | None) -> Target:
        """The one target among the options, or the default; two targets contradict one another.

        Without a tune, steps are for people, unless squared errors, steps or components were asked for.
        """
        target = cls._chosen(components, given)
        if target.detail and tune == "psnr":
            target = target.without_quality()
        visual = target.kind in FOR_PEOPLE if tune is None else tune == "visual"
        return replace(target, visual=visual)

    @classmethod
    def _chosen(cls, components: int | None, given: Mapping[str, float | None]) -> Target:
        asked = {kind: value for kind, value in given.items() if value is not None}
        if len(asked) > 1:
            names = " and ".join(f"--{kind.replace('_', '-')}" for kind in asked)
            raise UsageError(f"{names} exclude one another: give one of them")
        for kind, value in asked.items():
            return cls(kind, float(value), components)
        if components is not None:
            return cls("components", float(components), components)
        return cls("quality", DEFAULT_QUALITY, detail=True)

    def without_quality(self) -> Target:
        """What takes the place of a quality that nobody asked for, where the images are not made for one."""
        if self.kind != "quality" or not self.detail:
            return self
        return Target("psnr", DEFAULT_PSNR, detail=True)

    def near_exact(self, peak: float, dropped: float) -> bool:
        """Whether an error of less than about a pixel value is wanted.

        `dropped` is the mean squared error of leaving out the components that are not kept.
        """
        limits = {
            "psnr": self.value >= psnr(1.0, 1, peak),
            "energy": (1 - self.value) * peak**2 <= 4,
            "step": self.value <= 2 and dropped <= 1,
            "components": dropped <= 1,
        }
        return limits.get(self.kind, False)

    def __str__(self) -> str:
        """`psnr 36`, `max-bytes 20000 and components 10`."""
        words = (f"{kind.replace('_', '-')} {value:g}" for kind, value in self.to_dict().items())
        return " and ".join(words)

    def to_dict(self) -> dict[str, float | int]:
        """What was asked for as plain values, for a file."""
        asked: dict[str, float | int] = {self.kind: self.value}
        if self.components is not None:
            asked["components"] = self.components
        if self.detail:
            asked["detail"] = 1
        if self.visual:
            asked["visual"] = 1
        return asked

    @classmethod
    def from_dict(cls, asked: dict[str, float]) -> Target:
        """The target from the plain values of a file."""
        components = int(asked["components"]) if "components" in asked else None
        kinds = [kind for kind in asked if kind in KINDS and kind != "components"]
        kind = kinds[0] if kinds else "components"
        detail, visual = bool(asked.get("detail")), bool(asked.get("visual"))
        return cls(kind, float(asked[kind]), components, detail, visual=visual)

    def interval(self, raw_bytes: int, most_bytes: float = math.inf, reference: float = 255.0) -> Interval:
        """Where the measured value must land; `step` and `components` have none and are not searched.

        A budget above `most_bytes` is cut to that: more would only make the data grow. Between a quality
        that leaves hardly a sample wrong and identical pixels there is nothing to search for.
        """
        if self.kind == "psnr":
            near_exact = self.value >= psnr(EXACT_RMS**2, 1, reference)
            return Interval(self.value, math.inf if near_exact else self.value + PSNR_SLACK)
        if self.kind == "quality":
            return Interval(self.value, self.value + QUALITY_SLACK)
        if self.kind == "energy":
            low = -10 * math.log10(1 - self.value)
            return Interval(low, low + PSNR_SLACK)
        budget = self.value if self.kind == "max_bytes" else raw_bytes / self.value
        budget = min(budget, most_bytes)
        return Interval(decibel(BUDGET_USE * budget), decibel(budget), ceiling=True)


@dataclass(frozen=True)
class Interval:
    """Low and high bound of a measured value; beyond which of them the promise breaks."""

    low: float
    high: float
    ceiling: bool = False  # a budget: never above `high`; otherwise a quality: never below `low`

    def holds(self, value: float) -> bool:
        """Whether the value lies inside."""
        return self.low <= value <= self.high

    def keeps_promise(self, value: float) -> bool:
        """Whether the value lies on the promised side: a quality reached, a size not exceeded."""
        return value <= self.high if self.ceiling else value >= self.low

    def miss(self, value: float) -> float:
        """How far outside the value lies, in dB."""
        return 0.0 if self.holds(value) else max(self.low - value, value - self.high)

    @property
    def aim(self) -> float:
        """Inside, nearer to the bound that must not be crossed than to the other."""
        share = 0.65 if self.ceiling else 0.35
        width = self.high - self.low
        return self.low + share * (width if math.isfinite(width) else PSNR_SLACK)


def first_step(quality: float, peak: float) -> float:
    """A step whose uniform quantisation noise, step^2 / 12, has about the wanted PSNR."""
    return math.sqrt(12.0) * peak * 10 ** (-quality / 20) * 1.3


@dataclass(frozen=True)
class Range:
    """The range of a group's samples, and from where its quality is counted.

    `reference` takes the place of the peak in a search; it is smaller where images of little contrast would
    be lost otherwise. `unit` is the step of this group where the step for samples up to 255 is 1.
    """

    peak: int
    most: float = math.inf  # the reference is no larger than this
    absolute: bool = False  # a step is in pixel values, whatever their range
    reference: float = field(init=False)
    unit: float = field(init=False)

    def __post_init__(self) -> None:
        reference = float(min(self.peak, self.most))
        object.__setattr__(self, "reference", reference)
        object.__setattr__(self, "unit", 1.0 if self.absolute else reference / 255)


def range_for(target: Target, peak: int, variances: Sequence[float]) -> Range:
    """The range for images with these variances; only nine of ten count, and none that is constant.

    Among photographs, which get a quality, images of little contrast are left to steps that are finer where
    little goes on: coding all for the sake of a few would take several times the bytes.
    """
    if target.kind == "step" and not target.relative:
        return Range(peak, absolute=True)
    varied = sorted(value for value in variances if value > 0)
    if not target.detail or not varied:
        return Range(peak)
    decibels = target.without_quality().value

    def most_for(variance: float) -> float:
        return math.sqrt(max(DETAIL_AIM * variance, NEGLIGIBLE / 2)) * 10 ** (decibels / 20)

    if target.kind == "quality" and most_for(varied[len(varied) // 2]) >= peak:
        return Range(peak)
    return Range(peak, most_for(varied[len(varied) // 10]))


@dataclass
class StepSearch:
    """Proposes steps until a measured value, falling in the step, lands in the interval."""

    interval: Interval
    step: float
    finest: float
    coarsest: float
    slope: float = -5.0  # dB per unit of ln(step), until two points are known
    _fine: tuple[float, float] | None = field(default=None, init=False)  # ln(step), value above the aim
    _coarse: tuple[float, float] | None = field(default=None, init=False)
    _points: list[tuple[float, float]] = field(default_factory=list, init=False)
    _same: int = field(default=0, init=False)  # how many values before the last were on its side of the aim

    def record(self, value: float) -> bool:
        """Take the value measured at `step`; True when the search is over, else `step` is the next to try."""
        if self.interval.holds(value):
            return True
        point, above = (math.log(self.step), value), value > self.interval.aim
        again = bool(self._points) and (self._points[-1][1] > self.interval.aim) == above
        self._same = self._same + 1 if again else 0
        self._points.append(point)
        if above:
            self._fine = point
        else:
            self._coarse = point
        proposed = min(max(math.exp(self._next(point)), self.finest), self.coarsest)
        if abs(math.log(proposed / self.step)) < 1e-6:
            return True
        self.step = proposed
        return False

    def near(self, value: float) -> bool:
        """Whether the step for the aim follows from this value: the curve is smooth."""
        return abs(value - self.interval.aim) < NEAR_DB

    def settle(self, value: float) -> None:
        """After the end of a search: to the aim, from a value inside the interval that was measured last."""
        if self.interval.holds(value) and math.isfinite(self.interval.high):
            moved = self.step * math.exp((self.interval.aim - value) / self.local_slope)
            self.step = min(max(moved, self.finest), self.coarsest)

    @property
    def at_a_jump(self) -> bool:
        """Whether close steps missed far on both sides: perhaps no step between them will do."""
        if self._fine is None or self._coarse is None:
            return False
        (x0, y0), (x1, y1) = self._fine, self._coarse
        return x1 - x0 < JUMP and y0 - y1 > 2 * (self.interval.high - self.interval.low)

    @property
    def local_slope(self) -> float:
        """dB per unit of ln(step) around the last step, for a search that goes on elsewhere.

        Closer steps than `APART` may lie on both sides of a jump, or on one plateau.
        """
        known = [point for point in self._points if math.isfinite(point[1])]
        x, y = known[-1] if known else (0.0, 0.0)
        others = [point for point in known if abs(point[0] - x) >= APART]
        if others:
            x0, y0 = min(others, key=lambda point: abs(point[0] - x))
            if (y - y0) / (x - x0) < FLATTEST:
                return (y - y0) / (x - x0)
        return self.slope

    def _next(self, point: tuple[float, float]) -> float:
        if self._fine and self._coarse:
            (x0, y0), (x1, y1) = self._fine, self._coarse
            over, under = y0 - self.interval.aim, self.interval.aim - y1
            # a side that stays counts half as much each time: it says little of the curve near the other
            over, under = (
                (over, under / 2**self._same) if point == self._fine else (over / 2**self._same, under)
            )
            share = over / max(over + under, 1e-12) if math.isfinite(y0) else 0.5
            # stay off the ends, so that a bent curve still shrinks the bracket
            return x0 + min(max(share, 0.05), 0.95) * (x1 - x0)
        if not math.isfinite(point[1]):
            return point[0] + 1.0
        before = self._points[-2] if len(self._points) > 1 else point
        if abs(point[0] - before[0]) > 1e-9 and math.isfinite(before[1]):
            seen = (point[1] - before[1]) / (point[0] - before[0])
            # a plateau says nothing of where it ends: farther each time, but not as far as it seems
            self.slope = max(seen, STEEPEST) if seen < FLATTEST else min(self.slope / 2, FLATTEST)
        move = (self.interval.aim - point[1]) / self.slope
        return point[0] + min(max(move, -2.5), 2.5)
