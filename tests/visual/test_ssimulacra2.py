"""The compiled SSIMULACRA 2 beside the package of this name, and the laws that it keeps."""

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import correlate1d
from ssimulacra2 import compute_ssimulacra2

from tpca_cli.visual import evidence, score, ssimulacra2, structure_lost

Pixels = NDArray[np.uint8]


def picture(height: int, width: int, seed: int, channels: int = 3) -> Pixels:
    """Soft shapes with some texture."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (5, 7, channels), dtype=np.uint8)
    planes = [
        np.asarray(Image.fromarray(coarse[..., c]).resize((width, height), Image.Resampling.BICUBIC))
        for c in range(channels)
    ]
    noise = rng.normal(0, 6, (height, width, channels))
    return np.clip(np.stack(planes, axis=2) + noise, 0, 255).astype(np.uint8)


def as_jpeg(pixels: Pixels, quality: int) -> Pixels:
    """What JPEG makes of a picture."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def oracle(original: Pixels, decoded: Pixels) -> float:
    """The score by the package."""
    files = io.BytesIO(), io.BytesIO()
    for file, pixels in zip(files, (original, decoded), strict=True):
        Image.fromarray(pixels).save(file, "PNG")
        file.seek(0)
    return float(compute_ssimulacra2(*files))


@pytest.mark.parametrize("shape", [(64, 64), (131, 97), (200, 300), (257, 301), (8, 40), (33, 9)])
@pytest.mark.parametrize("quality", [10, 50, 92])
def test_the_score_is_that_of_the_package(shape: tuple[int, int], quality: int) -> None:
    """At all sizes, also those with fewer scales and sides that no vector divides."""
    original = picture(*shape, seed=quality)
    decoded = as_jpeg(original, quality)
    assert score(original, decoded) == pytest.approx(oracle(original, decoded), abs=0.05)


def test_gray_is_a_color() -> None:
    gray = picture(120, 90, 1, channels=1)
    worse = np.clip(gray.astype(int) + np.random.default_rng(2).integers(-9, 10, gray.shape), 0, 255)
    twice = [np.repeat(pixels, 3, axis=2).astype(np.uint8) for pixels in (gray, worse)]
    assert score(gray, worse.astype(np.uint8)) == pytest.approx(score(*twice), abs=1e-9)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (70, 40)])
def test_the_same_picture_has_100(shape: tuple[int, int], channels: int) -> None:
    pixels = picture(*shape, seed=3, channels=channels)
    assert score(pixels, pixels) == 100


def test_what_nobody_sees_does_not_count_and_alpha_does() -> None:
    original = picture(64, 80, 4, channels=4)
    original[..., 3] = 255
    original[:20, :, 3] = 0
    hidden = original.copy()
    hidden[:20, :, :3] ^= 255
    assert score(original, hidden) == 100
    seen = original.copy()
    seen[:20, :, 3] = 90
    assert score(original, seen) < 70


def test_sixteen_bits_are_scaled_by_their_peak() -> None:
    original = picture(90, 100, 5, channels=1)
    decoded = as_jpeg(original[..., 0], 40)[..., None]
    deep = [pixels.astype(np.uint16) * 257 for pixels in (original, decoded)]
    assert score(*deep, peak=65535) == pytest.approx(score(original, decoded), abs=1e-3)
    twelve = [np.rint(pixels * (4095 / 255)).astype(np.uint16) for pixels in (original, decoded)]
    assert score(*twelve, peak=4095) == pytest.approx(score(original, decoded), abs=0.3)


def test_bands_add_up_to_about_the_picture() -> None:
    original = picture(512, 260, 6)
    decoded = as_jpeg(original, 40)
    whole = evidence(original, decoded)[0]
    upper, lower = (evidence(original[rows], decoded[rows])[0] for rows in (slice(256), slice(256, 512)))
    assert (upper + lower).score == pytest.approx(whole.score, abs=1.0)
    assert (upper + lower).pixels.tolist() == whole.pixels.tolist()


def test_a_large_picture_is_compared_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is bounded then, and the score nearly the same: only the blur at the edges differs."""
    original = picture(1100, 300, 5)
    decoded = as_jpeg(original, 60)
    whole = score(original, decoded)
    monkeypatch.setattr(ssimulacra2, "BAND", 1 << 16)
    seen: list[int] = []
    compare = ssimulacra2._compare
    monkeypatch.setattr(ssimulacra2, "_compare", lambda *given: seen.append(len(given[0])) or compare(*given))
    assert score(original, decoded) == pytest.approx(whole, abs=0.3)
    assert sum(seen) == 1100 and len(seen) == 2


def structure_by_numpy(original: Pixels, decoded: Pixels, side: int) -> NDArray[np.float64]:
    """What `structure_lost` says, pixel by pixel in doubles."""
    colors = np.array([1, 2, 1]) / 4 if original.shape[2] >= 3 else np.array([1.0])
    a, b = (pixels[..., : len(colors)] @ colors / 255 for pixels in (original, decoded))
    down, across = -(-a.shape[0] // side), -(-a.shape[1] // side)
    taps = np.exp(-(np.arange(-5.0, 6.0) ** 2) / 4.5)
    taps /= taps.sum()

    def blurred(plane: NDArray[np.float64]) -> NDArray[np.float64]:
        tall = correlate1d(plane, taps, axis=0, mode="reflect")
        return correlate1d(tall, taps, axis=1, mode="constant")

    found = np.zeros((down, across))
    for scale in range(4):
        if min(a.shape) < 8:
            break
        one, two = blurred(a), blurred(b)
        together = 2 * (blurred(a * b) - one * two) + 9e-4
        alone = blurred(a * a + b * b) - one * one - two * two + 9e-4
        lost = np.maximum(1 - (1 - (one - two) ** 2) * together / alone, 0) * 4**scale
        rows, columns = np.arange(a.shape[0]) * 2**scale // side, np.arange(a.shape[1]) * 2**scale // side
        np.add.at(found, (rows[:, None], columns[None]), lost)
        a, b = (np.pad(p, [(0, n % 2) for n in p.shape], mode="edge") for p in (a, b))
        a, b = ((p[::2, ::2] + p[1::2, ::2] + p[::2, 1::2] + p[1::2, 1::2]) / 4 for p in (a, b))
    return found


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(64, 64), (131, 97), (9, 40), (33, 8)])
@pytest.mark.parametrize("side", [8, 16])
def test_structure_is_lost_region_by_region(channels: int, shape: tuple[int, int], side: int) -> None:
    original, worse = picture(*shape, 1, channels), picture(*shape, 1, channels)
    noise = np.random.default_rng(3).normal(0, 20, (*shape, channels))
    worse = np.clip(worse + noise * (np.arange(shape[1]) > shape[1] // 2)[:, None], 0, 255).astype(np.uint8)
    expected = structure_by_numpy(original, worse, side)
    np.testing.assert_allclose(structure_lost(original, worse, side), expected, rtol=1e-3, atol=1e-2)
    assert not structure_lost(original, original, side).any()


def test_what_is_smaller_than_a_scale_loses_nothing() -> None:
    assert structure_lost(picture(7, 20, 1), picture(7, 20, 2), 16).tolist() == [[0.0, 0.0]]
