"""Safe to delete has a floor that follows the archive and the image, and needs the basis at hand."""

from __future__ import annotations

import numpy as np
import pytest
from command import tpca
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
                assert error <= max(0.1 * variance, 1) if variance > 1 else error <= 65.025
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


def cut_out(seed: int, contrast: float, hidden: int = 0) -> np.ndarray:
    """A disc of soft colors; what is around it is not seen, and may be `hidden`."""
    y, x = np.mgrid[0:160, 0:200]
    waves = np.random.default_rng(seed).uniform(0.3, 1.2, (3, 3))
    colors = np.stack([120 + contrast * np.sin(a * x + b * y + 9 * c) for a, b, c in waves], axis=-1)
    inside = (y - 80) ** 2 + (x - 100) ** 2 < 60**2
    if hidden:
        colors = np.where(
            inside[:, :, None], colors, np.random.default_rng(seed).integers(0, hidden, (160, 200, 1))
        )
    return np.dstack([colors, 255 * inside]).round().astype(np.uint8)


def colors_lost(source: np.ndarray, back: np.ndarray) -> float:
    """The share of the variance of what is seen."""
    seen = source[:, :, -1] > 0
    wanted, given = (pixels[seen][:, :-1].astype(float) for pixels in (source, back))
    return float(((wanted - given) ** 2).mean() / wanted.var(axis=0).mean())


@pytest.mark.parametrize("channels", [[0, 1, 2, 3], [0, 3]])
@pytest.mark.parametrize("hidden", [0, 256])
def test_the_edge_of_a_cut_out_hides_no_loss_of_its_colors(tmp_path, channels, hidden) -> None:
    """Alpha of 0 and 255 varies so much that beside it any error of colors is a small share."""
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    originals = {f"{seed}.png": cut_out(seed, 9, hidden)[:, :, channels] for seed in range(6)}
    for name, pixels in originals.items():
        save(root / name, pixels)
    for asked, code in ((34, 3), (55, 0)):
        told = tpca("encode", root, "-o", archive, "--psnr", asked, "--force", "--json", code=code).json
        for more in ((), ("--decode",), ("--min-quality", -100)):
            found = verdict(archive, root, *more, code=code)
            with Archive(archive) as opened:
                lost = {name: colors_lost(pixels, opened[name]) for name, pixels in originals.items()}
            if code:
                assert min(lost.values()) > 0.25
                assert {item["name"] for item in told["low_quality"]} == lost.keys()
                assert all(
                    item["share"] == pytest.approx(lost[item["name"]], rel=0.01)
                    for item in told["low_quality"]
                )
                assert found["safe"] == 0
                assert all("of its variance in colors" in item["reason"] for item in found["failed"])
            else:
                assert max(lost.values()) < 0.1 and found["safe"] == 6 and told["low_quality"] == []
    assert "in colors and in alpha" in found["floor"]


def test_cut_outs_that_keep_their_colors_are_safe_by_what_is_decoded(tmp_path, monkeypatch) -> None:
    """Their error is one number, most of it alpha's: it would be too much for colors that hardly vary."""
    root, archive, decoded = tmp_path / "in", tmp_path / "a.h5", []
    for seed in range(6):
        pixels = cut_out(seed, 40)
        save(root / f"varied_{seed}.png", pixels)
        save(
            root / f"shape_{seed}.png",
            np.dstack([np.full((160, 200, 3), 30 * seed, np.uint8), pixels[:, :, 3]]),
        )
    told = tpca("encode", root, "-o", archive, "--psnr", 36, "--force", "--json").json
    assert told["low_quality"] == []
    read = Archive.read
    monkeypatch.setattr(Archive, "read", lambda self, at: decoded.append(at) or read(self, at))
    assert verdict(archive, root, code=0)["safe"] == 12
    assert len(decoded) < 12  # only those for which the one number leaves a doubt


PLAIN = [(0, 0, 0), (255, 255, 255), (200, 10, 50), (1, 1, 1)]


@pytest.mark.parametrize("alpha", [False, True])
def test_plain_images_that_come_back_in_another_color_are_not_safe(tmp_path, alpha) -> None:
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    for number, color in enumerate(PLAIN):
        save(root / f"{number}.png", np.full((40, 50, 3 + alpha), (*color, 255)[: 3 + alpha], np.uint8))
    told = tpca("encode", root, "-o", archive, "--quality", 70, "--force", "--json", code=None)
    bad = {item["name"] for item in told.json["low_quality"]}
    with Archive(archive) as opened:
        errors = {
            f"{n}.png": ((opened[f"{n}.png"][:, :, :3] - np.float64(color)) ** 2).mean()
            for n, color in enumerate(PLAIN)
        }
    assert bad == {name for name, error in errors.items() if error > 65.025}
    assert told.code == (3 if bad else 0) and (alpha or bad)
    for more in ((), ("--min-quality", -100), ("--decode",)):
        found = verdict(archive, root, *more, code=3 if bad else 0)
        assert found["safe"] == 4 - len(bad) and "30 dB where they are nearly constant" in found["floor"]
        assert all("less than 30" in item["reason"] for item in found["failed"])


def test_plain_images_among_photographs_are_safe(tmp_path) -> None:
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(root, 6, sizes=[(96, 128)])
    for number, color in enumerate(PLAIN):
        save(root / f"plain_{number}.png", np.full((40, 50, 3), color, np.uint8))
    for target in (("--psnr", 43), ("--quality", 70)):
        tpca("encode", root, "-o", archive, *target, "--force")
        assert verdict(archive, root, code=0)["safe"] == 10


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
