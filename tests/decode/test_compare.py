"""Safe to delete has a floor that follows the archive and the image, and needs the basis at hand."""

from __future__ import annotations

import tracemalloc
from unittest import mock

import numpy as np
import pytest
from command import tpca
from hypothesis import given
from hypothesis import strategies as st
from pictures import folder, natural, noise, save

from tpca_cli.archive.reader import Archive
from tpca_cli.decode import compare
from tpca_cli.visual import score


def verdict(archive, root, *options, code=None):
    return tpca("verify", archive, "--against", root, "--json", *options, code=code).json["against"]


def test_a_linked_archive_is_safe_only_with_its_basis(tmp_path) -> None:
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(root, 6)
    folder(tmp_path / "else", 6, seed=50)
    tpca("fit-basis", root, "-o", tmp_path / "b.h5", "--method", "rank1", "--tile", 8, "--all")
    tpca("fit-basis", tmp_path / "else", "-o", tmp_path / "c.h5", "--method", "rank1", "--tile", 8, "--all")
    options = ("--basis", tmp_path / "b.h5", "--link-basis", "--step", 2, "--force")
    tpca("encode", root, "-o", archive, *options)
    assert verdict(archive, root, "--basis", tmp_path / "b.h5", code=0)["safe"] == 6
    for basis in ((), ("--basis", tmp_path / "c.h5")):
        found = verdict(archive, root, *basis, code=3)
        assert found["safe"] == 0 and "--basis" in found["failed"][0]["reason"]


def test_without_a_word_the_floor_is_that_of_the_target(tmp_path) -> None:
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(root, 12, sizes=[(64, 64)])
    tpca("encode", root, "-o", archive, "--psnr", 38, "--force")
    found = verdict(archive, root, code=0)
    assert (
        found["safe"] == 12 and found["min_psnr"] is None and found["floor"].startswith("32 dB (6 less than")
    )
    tpca("encode", root, "-o", archive, "--components", 1, "--tile", 8, "--force", code=3)
    found = verdict(archive, root, code=3)
    assert found["safe"] == 0 and found["floor"].startswith("30 dB (the archive was asked for no quality")
    assert "less than 30" in found["failed"][0]["reason"]
    assert (
        verdict(archive, root, "--min-psnr", 5, code=0)["floor"]
        == "at least 5 dB (--min-psnr) for each image"
    )
    shown = tpca("verify", archive, "--against", root, code=3).out
    assert "safe means: unchanged, kept whole, 30 dB" in shown


@pytest.mark.parametrize("measured", [True, False])
def test_the_least_quality_is_that_of_the_metric(tmp_path, measured: bool) -> None:
    """As it was stored, or, where the archive does not know it, measured on what comes back."""
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    for number in range(3):
        save(root / f"{number}.png", natural(72, 96, seed=number))
    tpca("encode", root, "-o", archive, "--force", *(("--quality", 70) if measured else ("--psnr", 33)))
    with Archive(archive) as opened:
        scores = [score(natural(72, 96, seed=number), opened[f"{number}.png"]) for number in range(3)]
    least = sorted(scores)[1] - 0.01
    for more in ((), ("--decode",)):
        found = verdict(archive, root, "--min-quality", least, *more, code=3)
        assert found["safe"] == 2 and found["min_quality"] == least
        assert [item["path"] for item in found["failed"]] == [str(root / f"{np.argmin(scores)}.png")]
        assert f"a quality of {min(scores):.2f}, less than" in found["failed"][0]["reason"]
    both = verdict(archive, root, "--min-quality", 10, "--min-psnr", 99, code=3)
    assert both["safe"] == 0 and both["floor"] == (
        "at least 99 dB (--min-psnr) and quality 10 (--min-quality) for each image"
    )
    tpca("verify", archive, "--min-quality", 50, code=2)


def test_without_a_word_a_quality_has_a_floor_too(tmp_path) -> None:
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    for number in range(3):
        save(root / f"{number}.png", natural(72, 96, seed=number))
    tpca("encode", root, "-o", archive, "--quality", 70, "--force")
    found = verdict(archive, root, code=0)
    assert found["safe"] == 3 and found["floor"].startswith("a quality of 40 (30 less than the 70")
    assert all(item["quality"] >= 40 for item in found["worst"])


def test_a_coarse_step_does_not_make_a_lost_picture_safe(tmp_path) -> None:
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(root, 12, sizes=[(64, 64)])
    tpca("encode", root, "-o", archive, "--step", 2000, "--force", code=3)
    found = verdict(archive, root, "--decode", code=3)
    assert found["safe"] == 0 and "of its variance" in found["failed"][0]["reason"]


def faint(seed: int) -> np.ndarray:
    """A dark picture whose content is a few gray levels."""
    return (20 + natural(64, 64, 3, seed) // 40).astype(np.uint8)


@pytest.mark.parametrize("target", [("--psnr", 36), ("--step", 30), ("--ratio", 60)])
def test_the_error_is_held_against_the_variance_of_the_image(tmp_path, target) -> None:
    """What is called safe has lost at most a tenth of its variance or a gray level, or it has no content."""
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(root, 8, sizes=[(64, 64)])
    for seed in range(8):
        save(root / f"faint_{seed}.png", faint(seed))
        save(root / f"grain_{seed}.png", (100 + noise(64, 64, 3, seed) // 32).astype(np.uint8))
        save(root / f"flat_{seed}.png", np.full((64, 64, 3), 90 + seed, np.uint8))
    tpca("encode", root, "-o", archive, *target, "--tile", 8, "--force", code=3)
    found = verdict(archive, root, "--decode")
    failed = {item["path"].split("/")[-1].encode() for item in found["failed"]}
    with Archive(archive) as opened:
        for position, name in enumerate(opened.names_bytes):
            source = np.asarray(_pixels(root / name.decode()), np.float64)
            error = ((source - opened[position]) ** 2).mean()
            variance = source.var(axis=(0, 1)).mean()
            if name not in failed:
                assert error <= max(0.1 * variance, 1) or variance <= 1
            elif name.startswith(b"flat"):
                assert opened.info()["psnr_min"] < 30
    assert any(name.startswith(b"grain") for name in failed)


def _pixels(path):
    from tpca_cli import images

    return images.read(bytes(path)).pixels


def test_a_file_that_cannot_be_read_is_not_safe_and_stops_nothing(tmp_path, monkeypatch) -> None:
    from tpca_cli import images
    from tpca_cli.errors import StorageError

    root, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(root, 4)
    tpca("encode", root, "-o", archive, "--step", 2, "--force")
    real = images.read

    def failing(path, **options):
        if path.endswith(b"image_0002.png"):
            raise StorageError("cannot open it: Permission denied")
        return real(path, **options)

    monkeypatch.setattr(images, "read", failing)
    found = verdict(archive, root, code=3)
    assert found["safe"] == 3 and "Permission denied" in found["failed"][0]["reason"]


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4)),
    st.sampled_from([np.uint8, np.uint16]),
    st.integers(0, 99),
)
def test_the_variance_of_bands_is_that_of_the_picture(shape, dtype, seed) -> None:
    pixels = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype)
    expected = pixels.reshape(-1, shape[2]).astype(np.float64).var(axis=0).mean()
    for samples in (1, 50, 10**6):
        with mock.patch.object(compare, "BAND_SAMPLES", samples):
            assert compare._variance(pixels) == pytest.approx(expected, rel=1e-12, abs=1e-6)


def test_comparing_a_large_picture_takes_little_more_memory_than_it() -> None:
    pixels = np.zeros((2000, 2000, 3), np.uint8)
    pixels[::7] = 200
    tracemalloc.start()
    try:
        compare._variance(pixels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * pixels.nbytes


def test_a_large_picture_is_compared_to_its_last_row(tmp_path, monkeypatch) -> None:
    """Also when it is compared in bands: one wrong sample anywhere is an error that was not archived."""
    monkeypatch.setattr(compare, "BAND_SAMPLES", 1000)
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    save(root / "a.png", natural(90, 70, 3, 1))
    tpca("encode", root, "-o", archive, "--psnr", 36, "--force")
    assert verdict(archive, root, "--decode", code=0)["safe"] == 1
    read = Archive.read

    def spoiled(self, position):
        pixels = read(self, position).copy()
        pixels[-1, -1, -1] ^= 128
        return pixels

    monkeypatch.setattr(Archive, "read", spoiled)
    assert verdict(archive, root, "--decode", code=None)["safe"] == 0
