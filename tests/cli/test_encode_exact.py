"""`tpca encode --exact`: JPEG files come back bit for bit, other images pixel for pixel, others as files."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
from command import tpca
from pictures import natural, noise, oddities, png16, save
from PIL import Image

from tpca_cli import images
from tpca_cli.archive.reader import Archive
from tpca_cli.encode import exact_blocks
from tpca_cli.errors import FileRefused


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One of everything, archived exactly."""
    root = tmp_path_factory.mktemp("exact")
    source = root / "in"
    oddities(source)
    save(source / "plain.ppm", natural(25, 35))
    save(source / "lossless.webp", natural(25, 35), lossless=True)
    save(source / "noise.png", noise(20, 20))
    os.utime(source / "gray.jpg", ns=(10**18, 1234567890123456000))
    (source / "gray.jpg").chmod(0o640)
    return root, tpca("encode", source, "-o", root / "a.h5", "--exact", "--json").json


def files_below(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def test_everything_comes_back_under_its_name(made, tmp_path):
    root, facts = made
    outcome = tpca("decode", root / "a.h5", "-o", tmp_path / "out", "--json")
    source, back = files_below(root / "in"), files_below(tmp_path / "out")
    assert not facts["skipped"] and set(source) == set(back)
    identical = 0
    for name in back:
        if source[name].read_bytes() == back[name].read_bytes():
            identical += 1
            continue
        assert not name.lower().endswith((".jpg", ".gif")), name
        one, other = (images.read(bytes(path), deep=True) for path in (source[name], back[name]))
        assert one.mode == other.mode and np.array_equal(one.pixels, other.pixels), name
    assert outcome.json["identical"] == identical >= 10
    assert outcome.json["same_pixels"] == len(back) - identical > 5


def test_files_that_cannot_be_read_are_kept_and_listed(made):
    root, facts = made
    listed = {os.path.relpath(item["path"], root / "in"): item["reason"] for item in facts["raw"]}
    assert set(listed) == {"cut.jpg", "page.png", "bomb.png", "drawing.svg", "float.tif"}
    assert "floating-point" in listed["float.tif"] and "pixels" in listed["bomb.png"]
    with Archive(root / "a.h5") as archive:
        for name in listed:
            position = archive.names.index(name)
            assert archive.file(position) == (root / "in" / name).read_bytes()
            with pytest.raises(FileRefused, match="is kept as a file"):
                archive.read(position)
    shown = {line.split()[-1]: line.split()[1] for line in tpca("ls", root / "a.h5").out.splitlines()}
    assert {name for name, mode in shown.items() if mode == "file"} == set(listed)


def test_a_report_shows_what_is_a_picture(made, tmp_path):
    root, _ = made
    options = ("--report", tmp_path / "r.html", "--images", 40)
    tpca("inspect", root / "a.h5", *options)
    assert b"deep color.png" in (tmp_path / "r.html").read_bytes()
    listed = [json.loads(line) for line in tpca("ls", root / "a.h5", "--json").out.splitlines()]
    assert all(item["bytes"] > 0 for item in listed)


def test_no_picture_becomes_none_in_another_format(made, tmp_path):
    root, _ = made
    tpca("decode", root / "a.h5", "-o", tmp_path / "out", "--format", "png")
    assert (tmp_path / "out" / "cut.jpg").read_bytes() == (root / "in" / "cut.jpg").read_bytes()
    assert Image.open(tmp_path / "out" / "photos" / "p1.png").format == "PNG"


def test_times_and_permissions_come_back(made, tmp_path):
    root, _ = made
    tpca("decode", root / "a.h5", "-o", tmp_path / "out", "--select", "gray.jpg")
    found = (tmp_path / "out" / "gray.jpg").stat()
    assert found.st_mtime_ns == 1234567890123456000
    assert found.st_mode & 0o777 == 0o640


def test_arrays_are_what_pillow_reads(made):
    root, _ = made
    with Archive(root / "a.h5") as archive:
        for position, name in enumerate(archive.names):
            mode = archive.index.mode(int(archive.alive[position]))
            if mode == "file":
                continue
            with Image.open(root / "in" / name) as image:
                deep = mode in ("LA;16", "RGB;16", "RGBA;16")  # Pillow reads 8 of the 16 bits
                wanted = np.asarray(image if mode == "I;16" else image.convert(mode.partition(";")[0]))
            found = archive[position] >> 8 if deep else archive[position]
            assert np.array_equal(found.reshape(wanted.shape), wanted), name
        assert np.array_equal(archive["deep color.png"], natural(21, 30, 3, dtype=np.uint16))


@pytest.mark.parametrize(
    ("endings", "words"),
    [
        ((".jpg",), "every file bit for bit"),
        ((".png",), "identical pixels"),
        ((".jpg", ".png"), "identical pixels, JPEG files bit for bit"),
    ],
)
def test_the_summary_says_what_comes_back(endings, words, tmp_path):
    for ending in endings:
        save(tmp_path / "in" / f"a{ending}", natural(40, 50))
    said = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact").out
    assert said.rstrip().endswith(f", {words}")


def test_other_formats_can_be_asked_for(made, tmp_path):
    root, _ = made
    tpca("decode", root / "a.h5", "-o", tmp_path / "out", "--format", "png", "--select", "photos/p*")
    with Archive(root / "a.h5") as archive, Image.open(tmp_path / "out" / "photos" / "p1.png") as image:
        assert np.array_equal(np.asarray(image), archive["photos/p1.jpg"])


def test_verify_says_of_each_file_what_comes_back(made):
    root, facts = made
    sources = ("--against", root / "in", "--decode", "--json")
    found = tpca("verify", root / "a.h5", *sources).json["against"]
    verdicts = {os.path.relpath(item["path"], root / "in"): item["verdict"] for item in found["verdicts"]}
    assert set(verdicts) == set(files_below(root / "in"))
    assert set(verdicts.values()) == {"identical bytes", "identical pixels"}
    assert verdicts["photos/p1.jpg"] == verdicts["cut.jpg"] == "identical bytes"
    assert found["identical_files"] + found["identical_pixels"] == found["safe"] == facts["images"]
    strict = tpca("verify", root / "a.h5", *sources, "--identical", code=3).json["against"]
    assert strict["safe"] == found["identical_files"] < found["safe"]


def test_appended_images_share_the_groups(made, tmp_path):
    root, facts = made
    shutil.copytree(root / "in", tmp_path / "in")
    shutil.copy(root / "a.h5", tmp_path / "a.h5")
    save(tmp_path / "in" / "new.jpg", natural(50, 50, seed=90))
    save(tmp_path / "in" / "n1.png", natural(30, 40, seed=91))
    (tmp_path / "in" / "new.bmp").write_bytes(b"not one")
    more = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--append", "--json")
    assert more.json["appended"]["added"] == 2 and more.json["appended"]["replaced"] == 1
    assert [os.path.basename(item["path"]) for item in more.json["raw"]] == ["new.bmp"]
    assert len(more.json["groups"]) == len(facts["groups"])
    tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "b.h5")
    tpca("decode", tmp_path / "b.h5", "-o", tmp_path / "out")
    for name in ("new.jpg", "photos/p0.jpg", "cut.jpg", "new.bmp", "bomb.png"):
        assert (tmp_path / "in" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    with Image.open(tmp_path / "out" / "n1.png") as image:
        assert np.array_equal(np.asarray(image), natural(30, 40, seed=91))
    assert tpca("diff", tmp_path / "a.h5", tmp_path / "b.h5", "--decode").code == 0


def test_lossy_and_exact_images_share_a_file(tmp_path):
    for seed in range(4):
        save(tmp_path / "in" / f"{seed}.png", natural(seed=seed))
    archive = tmp_path / "a.h5"
    tpca("encode", tmp_path / "in", "-o", archive, "--psnr", 30)
    (tmp_path / "in" / "deep.png").write_bytes(png16(natural(9, 9, 3, dtype=np.uint16)))
    save(tmp_path / "in" / "photo.jpg", natural(seed=8))
    tpca("encode", tmp_path / "in", "-o", archive, "--append", "--exact")
    save(tmp_path / "in" / "near.png", natural(seed=9))
    tpca("encode", tmp_path / "in", "-o", archive, "--append", "--max-error", 3)
    save(tmp_path / "in" / "late.png", natural(seed=10))
    tpca("encode", tmp_path / "in", "-o", archive, "--append")
    found = tpca("verify", archive, "--against", tmp_path / "in", "--decode", "--json").json["against"]
    verdicts = {os.path.basename(item["path"]): item["verdict"] for item in found["verdicts"]}
    assert verdicts["photo.jpg"] == "identical bytes" and verdicts["deep.png"] == "identical pixels"
    assert verdicts["near.png"].startswith("every sample within 3") and verdicts["0.png"].endswith(" dB")
    tpca("repack", archive, "-o", tmp_path / "b.h5")
    tpca("decode", tmp_path / "b.h5", "-o", tmp_path / "out")
    assert (tmp_path / "out" / "photo.jpg").read_bytes() == (tmp_path / "in" / "photo.jpg").read_bytes()
    with Image.open(tmp_path / "out" / "near.png") as image:
        assert 0 < np.abs(np.asarray(image).astype(int) - natural(seed=9)).max() <= 3


@pytest.mark.parametrize("error", [254, 300, 65535])
def test_an_error_may_be_larger_than_samples_of_8_bits(error, tmp_path):
    deep, flat = noise(30, 40, 1, dtype=np.uint16), noise(30, 40, 1)
    save(tmp_path / "in" / "deep.png", deep)
    save(tmp_path / "in" / "flat.png", flat)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--max-error", error, code=None)
    tpca("verify", tmp_path / "a.h5", "--against", tmp_path / "in", "--decode")
    with Archive(tmp_path / "a.h5") as archive:
        for name, pixels in (("deep.png", deep), ("flat.png", flat)):
            assert np.abs(archive[name].astype(int) - pixels).max() <= error


def test_a_replaced_image_leaves_those_of_its_block_within_their_error(tmp_path):
    for seed in range(3):
        save(tmp_path / "in" / f"{seed}.png", natural(30, 40, seed=seed))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--max-error", 2)
    save(tmp_path / "in" / "0.png", natural(30, 40, seed=7))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--append")
    said = tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "b.h5", "--json").json
    assert said["images"] == 3
    assert tpca("diff", tmp_path / "a.h5", tmp_path / "b.h5", "--decode").code == 0
    tpca("verify", tmp_path / "b.h5", "--against", tmp_path / "in", "--decode")


@pytest.mark.parametrize("format", ["png", "tiff", "webp", "jpeg"])
def test_a_file_in_another_format_keeps_what_travels_with_it(format, tmp_path):
    exif = Image.Exif()
    exif[271], exif[274] = "Maker", 6
    save(tmp_path / "in" / "a.jpg", natural(30, 40), exif=exif, icc_profile=b"profile" * 30, dpi=(72, 72))
    frames = [Image.fromarray(natural(20, 20, seed=seed)) for seed in range(2)]
    frames[0].save(tmp_path / "in" / "b.gif", save_all=True, append_images=frames[1:])
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact")
    said = tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", "--format", format, "--json").json
    ending = {"jpeg": "jpg", "tiff": "tif"}.get(format, format)
    with Image.open(tmp_path / "out" / f"a.{ending}") as image:
        assert image.getexif()[271] == "Maker" and image.getexif()[274] == 6
        assert image.info["icc_profile"] == b"profile" * 30
    left = {item["path"]: item["reason"] for item in said["left_out"]}
    assert "frames after the first" in left["b.gif"]
    assert said["same_pixels"] == (0 if format == "jpeg" else 2)


def test_files_without_pixels_are_not_compared_with_pixels(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "drawing.svg").write_bytes(b'<svg xmlns="http://www.w3.org/2000/svg"/>')
    said = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact", "--force").out
    assert "times the files" in said and "the pixels" not in said
    shown = tpca("inspect", tmp_path / "a.h5").out
    assert "the source files" in " ".join(shown.split()) and "the raw pixels" not in shown


def test_lossy_images_join_an_exact_archive(tmp_path):
    save(tmp_path / "in" / "a.png", natural(seed=1))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact")
    save(tmp_path / "in" / "b.png", natural(seed=2))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--append", "--max-bytes", "1M", code=2)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--append", "--step", 20)
    with Archive(tmp_path / "a.h5") as archive:
        assert np.array_equal(archive["a.png"], natural(seed=1))
        assert not np.array_equal(archive["b.png"], natural(seed=2))


def test_a_run_that_was_stopped_goes_on(made, tmp_path, monkeypatch):
    root, _ = made
    done, most = [], 2
    code = exact_blocks.code_exact_job

    def counted(plan, job, reading):
        if len(done) == most:
            raise KeyboardInterrupt
        done.append((plan.kind, job.first))
        return code(plan, job, reading)

    monkeypatch.setattr(exact_blocks, "code_exact_job", counted)
    options = (root / "in", "-o", tmp_path / "a.h5", "--exact", "--workers", 1)
    tpca("encode", *options, code=130)
    most = 1000
    tpca("encode", *options)
    assert len(done) == len(set(done)) > 2  # nothing is coded twice
    assert (tmp_path / "a.h5").read_bytes() == (root / "a.h5").read_bytes()
    assert not list(tmp_path.glob("*.partial"))


def test_what_a_damaged_block_does_not_hold_is_salvaged(made, tmp_path):
    root, _ = made
    content = bytearray((root / "a.h5").read_bytes())
    with Archive(root / "a.h5") as archive:
        block = archive.index.blocks_of(int(archive.alive[archive.names.index("gray.jpg")]))[0]
        content[bytes(content).index(archive.block_bytes(block)) + 9] ^= 1
        total = len(archive)
    (tmp_path / "a.h5").write_bytes(content)
    damaged = tpca("verify", tmp_path / "a.h5", "--json", code=4).json["damaged"]
    lost = {name for item in damaged for name in item["images"]}
    assert "gray.jpg" in lost
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", code=4)
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "saved", "--salvage", code=3)
    tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "b.h5", "--salvage", code=3)
    for name, path in files_below(tmp_path / "saved").items():
        assert name not in lost
        if name.endswith(".jpg"):
            assert path.read_bytes() == (root / "in" / name).read_bytes()
    with Archive(tmp_path / "b.h5") as archive:
        assert len(archive) == total - len(lost) == len(files_below(tmp_path / "saved"))


def test_a_changed_block_is_refused(made, tmp_path):
    root, _ = made
    shutil.copy(root / "a.h5", tmp_path / "a.h5")
    with Archive(tmp_path / "a.h5") as archive:
        data = archive.block_bytes(0)
    content = (tmp_path / "a.h5").read_bytes()
    at = content.index(data)
    (tmp_path / "a.h5").write_bytes(content[: at + 9] + bytes([content[at + 9] ^ 1]) + content[at + 10 :])
    tpca("decode", tmp_path / "a.h5", "-o", tmp_path / "out", code=4)


def test_max_error_holds_for_every_sample(tmp_path):
    for seed in range(3):
        save(tmp_path / "in" / f"{seed}.png", natural(60, 80, seed=seed))
        save(tmp_path / "in" / f"deep{seed}.png", natural(60, 80, 1, seed=seed, dtype=np.uint16))
    sizes = [
        tpca("encode", tmp_path / "in", "-o", tmp_path / "0.h5", "--exact", "--json").json["archive_bytes"]
    ]
    for most in (1, 3):
        made = tpca(
            "encode", tmp_path / "in", "-o", tmp_path / f"{most}.h5", "--max-error", most, "--json"
        ).json
        sizes.append(made["archive_bytes"])
        tpca("decode", tmp_path / f"{most}.h5", "-o", tmp_path / f"out{most}")
        worst = 0
        for path in (tmp_path / "in").iterdir():
            with Image.open(path) as one, Image.open(tmp_path / f"out{most}" / path.name) as other:
                worst = max(worst, int(np.abs(np.asarray(one).astype(int) - np.asarray(other)).max()))
        assert 0 < worst <= most
        tpca("verify", tmp_path / f"{most}.h5", "--against", tmp_path / "in", "--decode")
    assert sizes == sorted(sizes, reverse=True)


def test_large_pictures_go_in_bands(tmp_path):
    save(tmp_path / "in" / "large.png", natural(900, 800))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact")
    with Archive(tmp_path / "a.h5") as archive:
        assert len(archive.index.blocks["size"]) == 2
        assert np.array_equal(archive[0], natural(900, 800))


def test_workers_do_not_change_a_byte(tmp_path, made):
    root, _ = made
    for workers in (1, 2):
        options = ("--exact", "--workers", workers)
        tpca("encode", root / "in", "-o", tmp_path / f"{workers}.h5", *options, code=None)
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "2.h5").read_bytes()


def test_jobs_of_several_blocks_do_not_change_a_byte(tmp_path, made, monkeypatch):
    root, _ = made
    monkeypatch.setattr(exact_blocks, "BLOCK_PIXELS", 1 << 11)
    for jobs in (1, 1000):
        monkeypatch.setattr(exact_blocks, "JOBS", jobs)
        tpca("encode", root / "in", "-o", tmp_path / f"{jobs}.h5", "--exact", "--workers", 2)
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "1000.h5").read_bytes()


def test_options_that_change_images_are_refused(tmp_path):
    save(tmp_path / "in" / "a.png", natural())
    for option in (("--size", "8x8"), ("--tile", 8), ("--method", "rank1"), ("--strip-metadata",)):
        tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact", *option, code=2)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact", "--psnr", 36, code=2)
