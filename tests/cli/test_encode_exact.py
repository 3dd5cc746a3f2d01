"""`tpca encode --exact`: JPEG files come back bit for bit, other images pixel for pixel, others as files."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from command import tpca
from pictures import natural, noise, save
from PIL import Image

from tpca_cli.archive.reader import Archive


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One of everything, archived exactly."""
    root = tmp_path_factory.mktemp("exact")
    source = root / "in"
    for seed in range(6):
        save(source / "photos" / f"p{seed}.jpg", natural(40 + seed, 56, seed=seed), quality=80)
        save(source / f"n{seed}.png", natural(30, 40, seed=seed))
    save(source / "progressive.JPG", natural(90, 70), progressive=True)
    save(source / "gray.jpg", natural(33, 44, 1))
    save(source / "alpha.png", natural(20, 30, 4))
    save(source / "deep.png", natural(20, 30, 1, dtype=np.uint16))
    save(source / "page.tif", natural(25, 35))
    save(source / "plain.bmp", natural(25, 35))
    save(source / "plain.ppm", natural(25, 35))
    save(source / "lossless.webp", natural(25, 35), lossless=True)
    save(source / "lossy.webp", natural(25, 35), quality=40)
    save(source / "noise.png", noise(20, 20))
    Image.fromarray(natural(20, 30)).convert("P").save(source / "palette.png")
    Image.fromarray(natural(20, 30)).convert("P").save(source / "moving.gif")
    (source / "cut.jpg").write_bytes((source / "gray.jpg").read_bytes()[:-300])
    shutil.copy(source / "n0.png", source / "misnamed.jpg")
    (source / "photos" / "trailing.jpg").write_bytes((source / "gray.jpg").read_bytes() + b"more")
    os.utime(source / "gray.jpg", ns=(10**18, 1234567890123456000))
    (source / "gray.jpg").chmod(0o640)
    outcome = tpca("encode", source, "-o", root / "a.h5", "--exact", "--json", code=None)
    assert outcome.code in (0, 3), outcome.err
    return root, outcome.json


def files_below(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def test_everything_comes_back_under_its_name(made, tmp_path):
    root, facts = made
    outcome = tpca("decode", root / "a.h5", "-o", tmp_path / "out", "--json")
    source, back = files_below(root / "in"), files_below(tmp_path / "out")
    left = {os.path.relpath(item["path"], root / "in") for item in facts["skipped"]}
    assert set(source) - left == set(back)
    identical = 0
    for name in back:
        if source[name].read_bytes() == back[name].read_bytes():
            identical += 1
            continue
        assert not name.lower().endswith((".jpg", ".gif")), name
        with Image.open(source[name]) as one, Image.open(back[name]) as other:
            assert (one.mode, one.format) == (other.mode, other.format), name
            assert np.array_equal(np.asarray(one), np.asarray(other)), name
    assert identical >= outcome.json["identical"] >= 10


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
            if name == "cut.jpg":
                continue
            with Image.open(root / "in" / name) as image:
                mode = archive.index.mode(int(archive.alive[position]))
                wanted = np.asarray(image if mode == "I;16" else image.convert(mode))
            assert np.array_equal(archive[position].reshape(wanted.shape), wanted), name


def test_other_formats_can_be_asked_for(made, tmp_path):
    root, _ = made
    tpca("decode", root / "a.h5", "-o", tmp_path / "out", "--format", "png", "--select", "photos/p*")
    with Archive(root / "a.h5") as archive, Image.open(tmp_path / "out" / "photos" / "p1.png") as image:
        assert np.array_equal(np.asarray(image), archive["photos/p1.jpg"])


def test_verify_says_what_is_identical(made, tmp_path):
    root, facts = made
    sources = ("--against", root / "in", "--decode", "--json")
    found = tpca("verify", root / "a.h5", *sources, code=None).json["against"]
    assert found["identical_files"] + found["identical_pixels"] == found["safe"] == facts["images"]
    strict = tpca("verify", root / "a.h5", *sources, "--identical", code=3).json["against"]
    assert strict["safe"] == found["identical_files"] < found["safe"]


def test_appended_images_share_the_groups(made, tmp_path):
    root, facts = made
    shutil.copytree(root / "in", tmp_path / "in")
    shutil.copy(root / "a.h5", tmp_path / "a.h5")
    save(tmp_path / "in" / "new.jpg", natural(50, 50, seed=90))
    save(tmp_path / "in" / "n1.png", natural(30, 40, seed=91))
    more = tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--append", "--json", code=None)
    assert more.json["appended"]["added"] == 1 and more.json["appended"]["replaced"] == 1
    assert len(more.json["groups"]) == len(facts["groups"])
    tpca("repack", tmp_path / "a.h5", "-o", tmp_path / "b.h5")
    tpca("decode", tmp_path / "b.h5", "-o", tmp_path / "out")
    for name in ("new.jpg", "photos/p0.jpg", "cut.jpg"):
        if name not in {os.path.relpath(item["path"], root / "in") for item in facts["skipped"]}:
            assert (tmp_path / "in" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    with Image.open(tmp_path / "out" / "n1.png") as image:
        assert np.array_equal(np.asarray(image), natural(30, 40, seed=91))


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


def test_options_that_change_images_are_refused(tmp_path):
    save(tmp_path / "in" / "a.png", natural())
    for option in (("--size", "8x8"), ("--tile", 8), ("--method", "rank1"), ("--strip-metadata",)):
        tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact", *option, code=2)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--exact", "--psnr", 36, code=2)


def test_a_cluster_is_refused_instead_of_left_idle(tmp_path):
    from dataclasses import replace

    from tpca_cli.encode.exact import check_request
    from tpca_cli.encode.run import EncodeRequest
    from tpca_cli.encode.workers import LOCAL
    from tpca_cli.errors import UsageError
    from tpca_cli.rate import Target
    from tpca_cli.sources.read_plan import Reading

    request = EncodeRequest(["in"], tmp_path / "a.h5", Target("max_error", 0), Reading())
    check_request(request)
    with pytest.raises(UsageError, match="--cluster"):
        check_request(replace(request, workers=replace(LOCAL)))
