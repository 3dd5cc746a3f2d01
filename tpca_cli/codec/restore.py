"""A filter after decoding that takes back part of the quantisation error.

Pixels are sorted by how much the brightness around them varies and in which direction; each class has a small
symmetric filter, fitted to the pictures of the archive; beside what differs it knows what differs within a
bound, which no edge drowns. One correction, computed from brightness, is added to all channels; where there
are several, each is then corrected by what all of them do around the pixel, and by where its color would be
if it followed the brightness as it does nearby. All in integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import learned
from tpca_cli.codec.bands import Band, bands

Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Values = TypeVar("Values", Singles, Ints)

PAIRS = ((0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (2, 0))
LEVELS = 8
CLASSES = 3 * LEVELS
BITS = 8
SUBPIXEL = 8
"""Pixels are filtered in units of 1/8."""
WINDOW = 25
FLATNESS = 20 * SUBPIXEL**2 * WINDOW**2
"""Against brightness that hardly varies, in which colors cannot follow it."""
BOUNDED = ((0, 4), (4, 6))
"""Which pairs are summed, each neighbor's difference within a bound, to a feature of brightness."""
BOUND_STEPS = 0.2
"""The bound that the encoder takes, in steps."""
LARGEST_BOUND = 4095
LARGEST = 1023
"""Of a weight between channels, in 2^-BITS."""
WORTHWHILE = 0.99
"""A network takes time: what is left of the squared error must be less than this part of what there was."""
FITS = 2
"""How often a filter is fitted: pictures are coded with regard to it, so each time to other ones."""
QUICK_SHARE = 0.015
"""What a part of the filter must take off the squared error, where reading shall be quick."""
TOGETHER = 1 << 16
"""Pixels that are multiplied at once while a filter is fitted."""
MARGIN = 4
"""Rows above and below a pixel that decide how it is filtered."""
SLOPE_LIMIT = 4 << BITS
"""How steeply a color may follow the brightness, in 2^-BITS."""
FOLLOW_SHIFT, FOLLOW_LIMIT = 12, 4095
"""Units, and the largest, of how far a color is from where it would be if it followed."""


@dataclass(frozen=True, eq=False)
class Restorer:
    """Class borders (LEVELS - 1,) for the activity in 1/SUBPIXEL, and weights (CLASSES, ..) in 2^-BITS.

    `mixing` (c, features) are the weights between channels, in 2^-BITS; empty for gray and for archives
    that were written without. Without a bound, which is in 1/SUBPIXEL, weights are those of pairs only.
    A network may go before; 0 is none.
    """

    borders: Ints
    weights: Ints
    mixing: Ints
    bound: int = 0
    network: int = 0

    def pixels(self, images: NDArray[np.float64], unit: int, scales: Ints) -> NDArray[np.uint8]:
        """Images (n, c, h, w) in 1/unit as corrected pixels, with what a network knows of steps."""
        pixels, samples = np.empty(images.shape, np.uint8), subpixels(images, unit)
        if self.network:
            learned.correct(samples, self.network, scales)
        for band in bands(images.shape, MARGIN):
            fine = band.with_margin(samples).copy()
            self.apply(fine)
            fine += SUBPIXEL // 2
            fine *= np.float32(1 / SUBPIXEL)
            band.of(pixels)[...] = band.cut(np.clip(np.floor(fine, out=fine), 0, 255, out=fine))
        return pixels

    def apply(self, images: Singles) -> None:
        """Correct images (n, c, h, w) in units of 1/SUBPIXEL, after the network, in place."""
        change = self._by_brightness(images)  # (n, h, w)
        if not self.mixing.size:
            images += np.floor(change * np.float32(2.0**-BITS) + np.float32(0.5))[:, None]
            return
        features = _features(images)
        for channel, row in enumerate(self.mixing):
            total = sum(int(weight) * feature for weight, feature in zip(row, features, strict=True))
            if not _is_alpha(channel, images.shape[1]):
                total = total + change.astype(np.int64)
            images[:, channel] += (total + (1 << BITS - 1)) >> BITS

    def _by_brightness(self, images: Singles) -> Singles:
        differences = _bright_features(learned.light_of(images), self.bound)
        classes = _classes(*_activity(differences), self.borders)
        change = np.zeros(differences[0].shape, np.float32)
        for difference, column in zip(differences, self.weights.T.astype(np.float32), strict=True):
            change += column.take(classes) * difference
        return change

    def to_array(self) -> NDArray[np.int16]:
        """Borders, then weights, then those between channels."""
        return np.concatenate([self.borders, self.weights.ravel(), self.mixing.ravel()]).astype(np.int16)

    @classmethod
    def read(cls, meta: Mapping[str, Any], array: NDArray[Any] | None, channels: int) -> Restorer | None:
        """The filter of a coder with such settings and this array, if it has one."""
        if array is None:
            return None
        network = int(meta.get("network", 0))
        if not 0 <= network <= learned.count():
            raise ValueError(f"a network {network}")
        return replace(cls.from_array(array, channels, int(meta.get("bound", 0))), network=network)

    @classmethod
    def from_array(cls, array: NDArray[Any], channels: int, bound: int = 0) -> Restorer:
        """The mirror of `to_array` for pictures of so many channels; ValueError when it cannot be one."""
        flat, size = np.asarray(array).astype(np.int64), bright_count(bound)
        borders, weights, mixing = np.split(flat, [LEVELS - 1, LEVELS - 1 + CLASSES * size])
        fits = weights.size == CLASSES * size and mixing.size in (0, channels * feature_count(channels))
        fits = fits and 0 <= bound <= LARGEST_BOUND
        if not fits or np.abs(weights).max() > 127 or np.abs(mixing).max(initial=0) > LARGEST:
            raise ValueError(f"a filter of {flat.size} numbers, bound {bound}")
        return cls(
            borders, weights.reshape(CLASSES, size), mixing.reshape(-1, feature_count(channels)), bound
        )


def bound_for(step: float) -> int:
    """The bound that suits pictures coded with this step."""
    return min(max(round(BOUND_STEPS * SUBPIXEL * step), 1), LARGEST_BOUND)


def subpixels(images: NDArray[np.float64], unit: int) -> Singles:
    """Images in 1/unit as rounded and clipped units of 1/SUBPIXEL."""
    found = np.empty(images.shape, np.float32)
    for band in bands(images.shape, MARGIN):
        fine = band.of(images) * (SUBPIXEL / unit)
        fine += 0.5
        np.floor(fine, out=fine)
        band.of(found)[...] = np.clip(fine, learned.DARKEST, learned.BRIGHTEST, out=fine)
    return found


def bright_count(bound: int) -> int:
    """What a pixel is corrected by that comes from brightness."""
    return len(PAIRS) + (len(BOUNDED) if bound else 0)


def feature_count(channels: int) -> int:
    """What a channel is corrected by: differences of all channels, and two colors that follow brightness."""
    return len(PAIRS) * channels + (2 if channels >= 3 else 0)


def _is_alpha(channel: int, channels: int) -> bool:
    return channels in (2, 4) and channel == channels - 1


def _features(images: Singles) -> list[Ints]:
    """Every feature as integers (n, h, w)."""
    found = [d.astype(np.int64) for c in range(images.shape[1]) for d in _differences(images[:, c])]
    return found + _follows(images)


def _follows(images: Singles) -> list[Ints]:
    """How far the first and the third channel are from following the brightness; none without colors."""
    if images.shape[1] < 3:
        return []
    light = learned.light_of(images).astype(np.int64)
    return [_follow(images[:, c].astype(np.int64) - light, light) for c in (0, 2)]


def _follow(color: Ints, light: Ints) -> Ints:
    """How far a color is from the line through colors against brightness nearby, in steps of 16/25."""
    colors, lights = _box(color), _box(light)
    together = WINDOW * _box(color * light) - colors * lights
    variance = WINDOW * _box(light * light) - lights * lights
    slope: Ints = np.clip((together << BITS) // (variance + FLATNESS), -SLOPE_LIMIT, SLOPE_LIMIT)
    line = (colors << BITS) + slope * (WINDOW * light - lights)
    away = (line - (WINDOW << BITS) * color) >> FOLLOW_SHIFT
    return np.asarray(np.clip(away, -FOLLOW_LIMIT, FOLLOW_LIMIT), np.int64)


def _differences(light: Singles) -> list[Singles]:
    """For each pair of opposite neighbours of a plane (n, h, w), their sum minus twice the pixel's own."""
    twice = 2 * light
    return [after + before - twice for after, before in _neighbors(light)]


def _neighbors(light: Singles) -> Iterator[tuple[Singles, Singles]]:
    """The opposite neighbors of each pair."""
    _, h, w = light.shape
    padded = np.pad(light, ((0, 0), (2, 2), (2, 2)), "edge")
    for down, right in PAIRS:
        after = padded[:, 2 + down : 2 + down + h, 2 + right : 2 + right + w]
        yield after, padded[:, 2 - down : 2 - down + h, 2 - right : 2 - right + w]


def _bright_features(light: Singles, bound: int) -> list[Singles]:
    """Differences of brightness (n, h, w), and, with a bound, sums of those within it."""
    if not bound:
        return _differences(light)
    bounded = [sum(np.clip(side - light, -bound, bound) for side in pair) for pair in _neighbors(light)]
    return _differences(light) + [np.add.reduce(bounded[first:last]) for first, last in BOUNDED]


def _box(values: Values) -> Values:
    """Sums over 5 x 5 pixels."""
    _, h, w = values.shape
    padded = np.pad(values, ((0, 0), (2, 2), (2, 2)), "edge")
    tall = padded[:, :h].copy()
    for k in range(1, 5):
        tall += padded[:, k : k + h]
    wide: Values = tall[..., :w].copy()
    for k in range(1, 5):
        wide += tall[..., k : k + w]
    return wide


def _activity(differences: list[Singles]) -> tuple[Singles, Singles]:
    return _box(np.abs(differences[0])), _box(np.abs(differences[1]))


def _classes(across: Singles, down: Singles, borders: Ints) -> NDArray[np.intp]:
    activity = across + down
    level = np.zeros(activity.shape, np.uint8)
    for border in borders:
        level += activity > border
    level *= 3
    level += 2 * across > 3 * down
    level += (2 * down > 3 * across).view(np.uint8) * np.uint8(2)
    return level.astype(np.intp)


class Pair(NamedTuple):
    """What a filter is fitted to."""

    decoded: Singles  # (n, c, h, w) in 1/SUBPIXEL
    original: NDArray[Any]  # pixels (n, h, w, c)
    scales: Ints  # (n, down, right) steps of tiles as a network knows them


def fit_to_itself(
    coded_with: Callable[[Restorer | None], Sequence[Pair]],
    bound: int,
    quick_share: float | None,
    network: int,
) -> Restorer:
    """The filter that suits what is coded with regard to it: fitted to what was coded for the one before."""
    restorer = fit_any(coded_with(None), bound, quick_share, network)
    for _ in range(FITS - 1):
        restorer = fit_after(restorer.network, coded_with(restorer), bound, quick_share)[0]
    return restorer


def fit_any(pairs: Sequence[Pair], bound: int, quick_share: float | None, network: int) -> Restorer:
    """The filter that suits pictures, after this network (0: none) if less error is left so."""
    restorer, left = fit_after(0, pairs, bound, quick_share)
    if not network:
        return restorer
    after, left_after = fit_after(network, pairs, bound, quick_share)
    return after if left_after < WORTHWHILE * left else restorer


def fit_after(
    network: int, pairs: Sequence[Pair], bound: int, quick_share: float | None
) -> tuple[Restorer, float]:
    """The filter that suits pictures after a network, which corrects them in place, and what it leaves."""
    originals = [pair.original.transpose(0, 3, 1, 2).astype(np.int16) * SUBPIXEL for pair in pairs]
    for pair in pairs if network else ():
        learned.correct(pair.decoded, network, pair.scales)
    restorer, left = fit([pair.decoded for pair in pairs], originals, bound, quick_share)
    return replace(restorer, network=network), left


def fit(
    decoded: list[Singles],
    originals: Sequence[NDArray[Any]],
    bound: int = 0,
    quick_share: float | None = None,
) -> tuple[Restorer, float]:
    """The least-squares filter from decoded to original images, both (n, c, h, w) in 1/SUBPIXEL.

    With it comes the squared error that it leaves, but for rounding and clipping.

    Where it shall be quick, colors are not compared with where they would be if they followed brightness, and
    what goes between channels stays only if it takes off this share of the squared error left without it.
    They are integers, and so are all sums, which float64 holds: their order does not matter.
    """
    pairs = [
        (band, before, band.of(after))
        for before, after in zip(decoded, originals, strict=True)
        for band in bands(before.shape, MARGIN)
    ]
    every = [_seen(band, before, bound) for band, before, _ in pairs]
    borders = _borders([across + down for _, across, down in every], decoded)
    size, channels = bright_count(bound), decoded[0].shape[1]
    sums = np.zeros((CLASSES, size + 1, size + 1))
    for (band, before, after), (differences, across, down) in zip(pairs, every, strict=True):
        every_class = _classes(across, down, borders).ravel().astype(np.uint8)
        errors = _errors(band.of(before), after)
        features = [*differences, np.add.reduce([errors[channel] for channel in _colors(channels)])]
        for part in _parts(every_class.size):
            classes = every_class[part]
            order = np.argsort(classes, kind="stable")
            ends = np.cumsum(np.bincount(classes, minlength=CLASSES))
            columns = _columns(features, part).take(order, axis=1)  # (features, pixels), class by class
            for sums_of_class, wide in zip(sums, np.split(columns, ends[:-1], axis=1), strict=True):
                sums_of_class += wide @ wide.T
    gram, right = sums[:, :size, :size], sums[:, :size, size:] / len(_colors(channels))
    ridge = 1e-3 * np.trace(gram, axis1=1, axis2=2)[:, None, None] / size + 1e4
    systems = zip(gram + ridge * np.eye(size), right, strict=True)
    whole = np.concatenate([_whole_weights(*one) for one in systems])
    restorer = Restorer(borders, np.clip(whole, -127, 127), np.zeros((0, 0), np.int64), bound)
    del every  # of one large picture they are as large as what comes
    if channels == 1:
        weights = restorer.weights[:, None] * 2.0**-BITS  # (classes, 1, features)
        taken = 2 * weights @ right - weights @ gram @ weights.swapaxes(1, 2)
        return restorer, float(sums[:, size, size].sum() - taken.sum())
    mixing, energy, taken = _fit_mixing(restorer, pairs, following=quick_share is None)
    if quick_share is not None and taken < quick_share * energy:
        return restorer, energy
    return replace(restorer, mixing=mixing), energy - taken


def _seen(band: Band, images: Singles, bound: int) -> tuple[list[Singles], Singles, Singles]:
    """The features of brightness in a band (n, h, w), and the activity across and down."""
    differences = _bright_features(learned.light_of(band.with_margin(images)), bound)
    across, down = _activity(differences)
    return [band.cut(d) for d in differences], band.cut(across), band.cut(down)


def _borders(activities: list[Singles], decoded: list[Singles]) -> Ints:
    """Borders between classes with as many pixels each, by every seventh pixel of each array of images."""
    flat = np.concatenate([activity.ravel() for activity in activities])
    ends = np.cumsum([images[:, 0].size for images in decoded])
    some = np.concatenate([part[::7] for part in np.split(flat, ends[:-1])])
    ranks = np.linspace(0, 1, LEVELS + 1)[1:-1]
    return np.asarray(np.minimum(np.rint(np.quantile(some, ranks)), 32767), np.int64)


def _colors(channels: int) -> list[int]:
    """The channels that are no alpha."""
    return [channel for channel in range(channels) if not _is_alpha(channel, channels)]


def _errors(before: Singles, after: NDArray[Any]) -> list[Singles]:
    """What each channel of decoded images is off the originals by, (n, h, w)."""
    return [after[:, c] - before[:, c] for c in range(before.shape[1])]


def _fit_mixing(
    restorer: Restorer, pairs: Sequence[tuple[Band, Singles, NDArray[Any]]], following: bool
) -> tuple[Ints, float, float]:
    """Weights between channels for what the filter by brightness leaves; how much that is; what they take."""
    channels = pairs[0][1].shape[1]
    size = feature_count(channels)
    gram, right, energy = np.zeros((size, size)), np.zeros((size, channels)), 0.0
    for band, images, after in pairs:
        around = band.with_margin(images)
        change = band.cut(restorer._by_brightness(around)) * np.float32(2.0**-BITS)
        left = [
            error - (0 if _is_alpha(channel, channels) else change)
            for channel, error in enumerate(_errors(band.of(images), after))
        ]
        differences = [d for channel in range(channels) for d in _differences(around[:, channel])]
        features: list[NDArray[Any]] = [*differences, *_follows(around)]
        features = [band.cut(feature) for feature in features]
        for part in _parts(change.size):
            columns, goals = _columns(features, part), _columns(left, part)
            right += columns @ goals.T
            gram += columns @ columns.T
            energy += float((goals * goals).sum())
    ridge = 1e-4 * np.trace(gram) / size + 1e4
    mixing, used = np.zeros((channels, size), np.int64), size if following else len(PAIRS) * channels
    solved = _whole_weights(gram[:used, :used] + ridge * np.eye(used), right[:used])
    mixing[:, :used] = np.clip(solved, -LARGEST, LARGEST)
    weights = mixing * 2.0**-BITS  # (c, features)
    taken = 2 * (weights * right.T).sum() - ((weights @ gram) * weights).sum()
    return mixing, energy, float(taken)


def _parts(pixels: int) -> Iterator[slice]:
    """All pixels, some at a time: as floats of 64 bits they take much memory."""
    return (slice(start, start + TOGETHER) for start in range(0, pixels, TOGETHER))


def _columns(features: Sequence[NDArray[Any]], part: slice) -> NDArray[np.float64]:
    """Some pixels of planes (n, h, w) as (features, pixels)."""
    return np.stack([feature.reshape(-1)[part] for feature in features], dtype=np.float64)


def _whole_weights(gram: NDArray[np.float64], right: NDArray[np.float64]) -> Ints:
    """Weights (c, features) in 2^-BITS that nearly solve gram @ weights.T = right (features, c).

    Features go together, so what rounding one weight spoils the others make good: from the last to the
    first each is rounded to the best one beside those that are rounded already.
    """
    lower = np.linalg.cholesky(gram)
    goal = np.linalg.solve(lower, right) * 2.0**BITS  # (features, c)
    whole = np.zeros_like(goal)
    for k in range(len(gram) - 1, -1, -1):
        whole[k] = np.rint((goal[k] - lower[k + 1 :, k] @ whole[k + 1 :]) / lower[k, k])
    return np.asarray(whole.T, np.int64)
