"""Folders that hold bombs, stumps, pipes and impostors: told, left out, and everything else goes in.

Cases 44 to 50 of the table.
"""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path

import numpy as np
import pytest
from commands import HANG, QUICK, TPCA, Ended, check_failed, folder, forked, natural, pixels, save, scaled
from harness import strace
from pictures import png_bytes, save_frames, save_mode
from PIL import Image

GOOD = 4


def encoded(place: Path, *options: object, code: int = 3, **limits: int) -> str:
    """Encode the folder; what it says. The good images are in, whatever else is there."""
    ended = forked(
        "encode", place / "in", "-o", place / "a.h5", *QUICK, "--force", *options, timeout=60, **limits
    )
    assert ended.code == code and "internal" not in ended.err, ended
    assert ended.seconds < 2 * HANG and ended.peak < 500_000
    assert len([name for name in pixels(place / "a.h5") if name.startswith(b"image")]) == GOOD
    return ended.err


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder(tmp_path / "in", GOOD)
    return tmp_path


BOMBS = {
    "60000x60000": png_bytes(60000, 60000, 8, 2),
    "12000x12000": png_bytes(12000, 12000, 8, 2),
    "a million by one": png_bytes(1, 10**6, 8, 0, bytes(10**6 + 1)),
    "one by a million": png_bytes(10**6, 1, 8, 0, bytes(2 * 10**6)),
    "50 MB of text": png_bytes(4, 4, 8, 0, bytes(20), extra=[(b"tEXt", b"k\0" + b"x" * 50_000_000)]),
    "text that swells": png_bytes(4, 4, 8, 0, bytes(20), extra=[(b"zTXt", b"k\0\0" + bytes(100))]),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_44_decompression_bombs(place: Path, kind: str) -> None:
    (place / "in" / "bomb.png").write_bytes(BOMBS[kind])
    ended = forked("encode", place / "in", "-o", place / "a.h5", *QUICK, "--force", timeout=60)
    assert ended.code in (0, 3) and ended.peak < 500_000, ended
    assert ended.code == 0 or "bomb.png" in ended.err


def test_44_a_huge_file(place: Path) -> None:
    with open(place / "in" / "huge.png", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        file.truncate(2**36)
    assert "huge.png" in encoded(place)


def stumps(place: Path) -> dict[str, bytes]:
    """Files that are no images, or only the beginning of one."""
    found = {"empty.png": b"", "random.jpg": random.Random(45).randbytes(4000), "page.png": b"<html><body>"}
    for suffix in ("jpg", "png", "webp", "gif", "tif", "bmp"):
        whole = save(place / f"whole.{suffix}", natural(40, 60)).read_bytes()
        found[f"half.{suffix}"] = whole[: len(whole) // 2]
    return found


def test_45_stumps_and_impostors(place: Path) -> None:
    bad = stumps(place)
    for name, data in bad.items():
        (place / "in" / name).write_bytes(data)
    told = encoded(place)
    assert all(name in told for name in bad)
    check_failed(forked("encode", place / "in", "-o", place / "b.h5", *QUICK, "--on-error", "fail"), 1)
    assert not (place / "b.h5").exists()


def test_45_mutated_images(place: Path) -> None:
    """Whatever is in them: kept or skipped, no crash, no hang. 500 for a release."""
    rng = random.Random(450)
    sources = [
        save(place / f"whole.{suffix}", natural(40, 60)).read_bytes()
        for suffix in ("jpg", "png", "webp", "gif", "tif", "bmp")
    ]
    batch = 25
    for start in range(0, scaled(75, 500), batch):
        for path in (place / "in").glob("mutant*"):
            path.unlink()
        for number in range(batch):
            data = bytearray(rng.choice(sources))
            for _ in range(rng.choice([1, 2, 8, 30])):
                data[rng.randrange(len(data))] = rng.randrange(256)
            if rng.random() < 0.2:
                del data[rng.randrange(len(data)) :]
            (place / "in" / f"mutant{start + number:04d}.png").write_bytes(data)
        ended = forked("encode", place / "in", "-o", place / "a.h5", *QUICK, "--force", timeout=60)
        assert ended.code in (0, 3) and "internal" not in ended.err, ended
        # what was taken in decodes to exactly what the archive claims
        ended = forked(
            "verify", place / "a.h5", "--against", place / "in", "--decode", "--allow-partial", timeout=60
        )
        assert ended.code in (0, 3) and "squared error" not in ended.err, ended


def test_46_formats_that_are_not_on_the_list_are_never_parsed(place: Path) -> None:
    files = {
        "eps.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
        "pdf.png": b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n",
        "psd.png": b"8BPS\0\1" + bytes(60),
        "fits.png": b"SIMPLE  =                    T" + b" " * 2850,
    }
    for name, data in files.items():
        (place / "in" / name).write_bytes(data)
    log = place / "trace"
    command = [*TPCA, "encode", place / "in", "-o", place / "a.h5", *QUICK, "--force"]
    ended = strace("trace=execve,execveat", command=command, log=log)
    assert ended.code == 3 and all(name in ended.err for name in files), ended
    # Python's own libraries ask for the machine's name; nothing else is started
    started = re.findall(r'execve\("([^"]*)".* = 0$', log.read_text(), re.M)
    assert {os.path.basename(path) for path in started} <= {os.path.basename(TPCA[0]), "uname"}
    assert len(pixels(place / "a.h5")) == GOOD


def test_47_modes_have_one_documented_result(place: Path) -> None:
    modes = {"1": "L", "L": "L", "LA": "LA", "P": "RGB", "RGBA": "RGBA", "CMYK": "RGB", "I;16": "I;16"}
    for mode in modes:
        suffix = ".tif" if mode == "CMYK" else ".png"
        save_mode(place / "in" / f"mode-{mode.replace(';', '')}{suffix}", mode)
    save_mode(place / "in" / "mode-F.tif", "F")
    save_frames(place / "in" / "mode-film.gif", [natural(9, 13, seed=k) for k in range(3)], duration=40)
    save_frames(place / "in" / "mode-pages.tif", [natural(9, 13, seed=k) for k in range(3)])
    exif = Image.Exif()
    exif[0x0112] = 6
    save(place / "in" / "mode-turned.png", natural(9, 13), exif=exif.tobytes())
    told = encoded(place)
    assert "mode-F.tif" in told
    held = pixels(place / "a.h5")
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I;16": 1}
    for mode, kept in modes.items():
        suffix = b".tif" if mode == "CMYK" else b".png"
        assert held[b"mode-" + mode.replace(";", "").encode() + suffix].shape == (9, 13, channels[kept])
    assert held[b"mode-I16.png"].dtype == np.uint16 and held[b"mode-turned.png"].shape == (9, 13, 3)
    once = (place / "a.h5").read_bytes()
    encoded(place)
    assert (place / "a.h5").read_bytes() == once


def test_48_things_that_are_no_files_are_named_and_left_alone(place: Path) -> None:
    source = place / "in"
    os.mkfifo(source / "fifo.png")
    os.mknod(source / "device.png", 0o666 | 0o020000, os.makedev(1, 5))
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(source / "socket.png"))
    (source / "folder.png").mkdir()
    (source / "loop.png").symlink_to("loop.png")
    (source / "around").symlink_to(".")
    save(place / "outside.png", natural())
    (source / "out.png").symlink_to(place / "outside.png")
    told = encoded(place)
    for name in ("fifo", "device", "socket", "loop", "out"):
        assert f"/in/{name}.png: " in told
    assert len(pixels(place / "a.h5")) == GOOD
    server.close()


def test_49_names_come_back_byte_for_byte(place: Path) -> None:
    names = [
        b"\xff\xfe.png",
        b"new\nline.png",
        b"-dash.png",
        b" lead.png",
        "n\u0303.png".encode(),
        "\xf1.png".encode(),
    ]
    names.append(b"n" * 251 + b".png")
    root = os.fsencode(place / "in")
    for seed, name in enumerate(names):
        save(place / "x.png", natural(seed=seed)).rename(os.fsdecode(root + b"/" + name))
    encoded(place, code=0)
    assert forked("decode", place / "a.h5", "-o", place / "out").code == 0
    assert set(names) < set(os.listdir(os.fsencode(place / "out")))


def test_50_nothing_to_learn_from(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.png").write_bytes(b"<html>")
    for name in ("empty", "bad"):
        check_failed(forked("encode", tmp_path / name, "-o", tmp_path / "a.h5"), 1)
        check_failed(forked("fit-basis", tmp_path / name, "-o", tmp_path / "b.h5"), 1)
    flat = np.full((24, 24, 3), 90, np.uint8)
    folders = {
        "one": [natural(24, 24)],
        "same": [natural(24, 24)] * 5,
        "flat": [flat] * 5,
        "black": [flat * 0] * 5,
        "tiny": [natural(1, 1), natural(1, 2), natural(2, 1)],
    }
    for name, pictures in folders.items():
        for number, picture in enumerate(pictures):
            save(tmp_path / name / f"{number}.png", picture)
        targets = [("--psnr", "40"), ("--components", "50", "--tile", "8"), ("--step", "1", "--tile", "8")]
        for target in targets if name in ("one", "black") else targets[:1]:
            words = ("encode", tmp_path / name, "-o", tmp_path / "a.h5", *target, "--force")
            ended = forked(*words)
            check_degenerate(ended)
            if ended.code in (0, 3):
                assert forked("verify", tmp_path / "a.h5", "--against", tmp_path / name, "--decode").code == 0
        for method in ("operator", "rank1", "subspace"):
            words = (
                "fit-basis",
                tmp_path / name,
                "-o",
                tmp_path / "b.h5",
                "--method",
                method,
                "--components",
                "9",
            )
            ended = forked(*words, "--force", timeout=60)
            check_degenerate(ended)
            if ended.code == 0:
                assert forked("verify", tmp_path / "b.h5").code == 0


def check_degenerate(ended: Ended) -> None:
    """A result (3: images of almost no contrast are named) or a reason, and no number that is none."""
    assert ended.code in (0, 1) or (ended.code == 3 and "low quality" in ended.err), ended
    assert "internal" not in ended.err and "nan" not in ended.out + ended.err, ended
