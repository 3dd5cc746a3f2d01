"""`tpca verify` finds every wrong bit, says what it costs, and calls safe only what is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, noise, save, save_frames

from tpca_cli.archive.reader import Archive


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    root = tmp_path_factory.mktemp("verify") / "in"
    folder(root, 40, sizes=[(96, 128), (64, 64)])
    save(root / "sub" / "large.png", natural(500, 600, seed=77))
    return root


@pytest.fixture(scope="module")
def archive(source):
    path = source.parent / "a.h5"
    tpca("encode", source, "-o", path, "--step", 24, "--tile", 8)
    return path


def damaged(archive, copy, blocks) -> list[set[bytes]]:
    """Flip one bit in the middle of some blocks; the images that each of them holds."""
    data = bytearray(archive.read_bytes())
    costs = []
    with Archive(archive) as opened:
        for block in blocks:
            coded = opened.block_bytes(block)
            at = bytes(data).find(coded)
            assert at > 0
            data[at + len(coded) // 2] ^= 1
            first, count = (int(opened.index.blocks[name][block]) for name in ("first", "count"))
            costs.append(set(opened.index.names[first : first + count]))
    copy.write_bytes(data)
    return costs


def listed(*arguments) -> tuple[int, list[bytes]]:
    """Exit code and paths of a run with --print0-verified, which writes bytes."""
    command = [sys.executable, "-m", "tpca_cli", "verify", *map(str, arguments), "--print0-verified"]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode, [path for path in done.stdout.split(b"\0") if path]


def test_an_intact_archive_passes(archive) -> None:
    facts = tpca("verify", archive, "--json").json
    assert facts["intact"] and facts["images"] == 41 and facts["bytes"] == archive.stat().st_size
    assert tpca("verify", archive, "--decode").code == 0


@pytest.mark.parametrize("decode", [False, True])
def test_a_damaged_block_names_what_it_costs_and_salvage_brings_all_others(archive, tmp_path, decode) -> None:
    copy = tmp_path / "damaged.h5"
    blocks = len(Archive(archive).index.blocks["size"])
    costs = damaged(archive, copy, [1, blocks - 1])
    options = ["--decode"] if decode else []
    facts = tpca("verify", copy, "--json", *options, code=4).json
    assert [set(map(str.encode, item["images"])) for item in facts["damaged"]] == costs
    assert "costs: " in tpca("verify", copy, code=4).err

    assert tpca("decode", copy, "-o", tmp_path / "none", code=4).err
    tpca("decode", archive, "-o", tmp_path / "all")
    lost = tpca("decode", copy, "-o", tmp_path / "some", "--salvage", "--json", code=3).json["lost"]
    assert {item["path"].encode() for item in lost} == set.union(*costs)
    restored = [path.relative_to(tmp_path / "some") for path in (tmp_path / "some").rglob("*.png")]
    assert len(restored) == 41 - len(lost)
    for path in restored:
        assert (tmp_path / "some" / path).read_bytes() == (tmp_path / "all" / path).read_bytes()


def test_damage_outside_the_blocks_is_refused_at_once(archive, tmp_path) -> None:
    data = bytearray(archive.read_bytes())
    at = bytes(data).find(b"tpca-archive")
    data[at] ^= 1
    (tmp_path / "x.h5").write_bytes(data)
    tpca("verify", tmp_path / "x.h5", code=4)


def test_all_sources_are_safe_in_a_fresh_archive(source, archive) -> None:
    facts = tpca("verify", archive, "--against", source, "--decode", "--json").json["against"]
    assert facts["safe"] == facts["sources"] == 41 and facts["failed"] == []
    with Archive(archive) as opened:
        assert facts["worst"][0]["psnr"] == pytest.approx(opened.info()["psnr_min"])


def test_the_wanted_quality_decides(source, archive) -> None:
    worst = tpca("inspect", archive, "--json").json["psnr_min"]
    tpca("verify", archive, "--against", source, "--min-psnr", worst - 0.01)
    facts = tpca("verify", archive, "--against", source, "--min-psnr", worst + 0.01, "--json", code=3).json
    assert facts["against"]["safe"] == 41 - len(facts["against"]["failed"]) < 41


def test_a_quality_does_not_excuse_an_image_that_is_gone(tmp_path) -> None:
    """What people would see says little of images that are small or have little contrast."""
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    folder(root, 3, sizes=[(136, 160)])
    faint = 128 + 8 * (np.random.default_rng(1).random((160, 160, 3)) < 0.5)
    save(root / "faint.png", faint.astype(np.uint8))
    save(root / "tiny.png", noise(8, 8))
    told = tpca("encode", root, "-o", archive, "--step", 160, "--force", "--json", code=3).json
    assert {item["name"] for item in told["low_quality"]} == {"faint.png", "tiny.png"}
    asked = ("verify", archive, "--against", root, "--json", "--min-quality", -100)
    against = tpca(*asked, code=3).json["against"]
    failed = {os.path.basename(item["path"]): item["reason"] for item in against["failed"]}
    assert failed.keys() == {"faint.png", "tiny.png"}
    assert all("of its variance" in reason for reason in failed.values())
    assert "quality -100" in against["floor"] and "variance" in against["floor"]
    # who names decibels means these and nothing else
    assert tpca(*asked, "--min-psnr", 5).json["against"]["safe"] == 5


@pytest.mark.parametrize("exact", [["--exact"], ["--max-error", 2]])
def test_the_floor_of_lossy_images_beside_exact_ones_is_told(exact, tmp_path) -> None:
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    asked = ("verify", archive, "--against", root, "--decode", "--json")
    folder(root, 2)
    tpca("encode", root, "-o", archive, *exact)
    alone = tpca(*asked).json["against"]["floor"]
    assert "dB" not in alone
    save(root / "near.png", natural(seed=7))
    save(root / "far.png", natural(seed=8))
    tpca("encode", root / "far.png", "-o", archive, "--append", "--psnr", 20, "--force", code=None)
    tpca("encode", root / "near.png", "-o", archive, "--append", "--psnr", 33, "--force")
    against = tpca(*asked, code=3).json["against"]
    assert [os.path.basename(item["path"]) for item in against["failed"]] == ["far.png"]
    assert against["floor"].startswith(alone) and "30 dB" in against["floor"]
    assert "variance" in against["floor"] and against["floor"] != alone


def test_only_what_is_safe_is_listed(source, archive, tmp_path) -> None:
    """Changed, new, broken, linked and hidden files stay off the list; a damaged archive lists nothing."""
    root = tmp_path / "in"
    shutil.copytree(source, root)
    save(root / "image_0003.png", natural(96, 128, seed=900))
    save(root / "new.png", natural(9, 9))
    (root / "broken.png").write_bytes(b"<html>")
    (root / "notes.txt").write_text("keep me")
    (root / ".hidden.png").write_bytes((root / "image_0000.png").read_bytes())
    (root / "image_0005.png").rename(root / ".image_0005.png")
    (root / "image_0005.png").symlink_to(".image_0005.png")
    (root / "second.png").symlink_to("image_0007.png")
    code, paths = listed(archive, "--against", root)
    names = {os.path.relpath(path, os.fsencode(root)) for path in paths}
    kept = {b"image_%04d.png" % k for k in range(40)} - {
        b"image_0003.png",
        b"image_0005.png",
        b"image_0007.png",
    }
    assert code == 3 and names == kept | {b"sub/large.png"}

    damaged(archive, tmp_path / "damaged.h5", [0])
    assert listed(tmp_path / "damaged.h5", "--against", source) == (4, [])


def test_paths_are_listed_byte_for_byte(tmp_path) -> None:
    root = os.fsencode(tmp_path / "in")
    os.mkdir(root)
    wanted = [root + b"/" + name for name in (b"\xff.png", b"new\nline.png", b"-dash.png")]
    for seed, path in enumerate(wanted):
        save(tmp_path / "x.png", natural(16, 16, seed=seed)).rename(os.fsdecode(path))
    tpca("encode", os.fsdecode(root), "-o", tmp_path / "a.h5", "--step", 1, "--force")
    code, paths = listed(tmp_path / "a.h5", "--against", os.fsdecode(root))
    assert code == 0 and sorted(paths) == sorted(wanted)


def test_what_is_kept_in_part_is_not_safe(tmp_path) -> None:
    root = tmp_path / "in"
    folder(root, 3)
    frames = [natural(24, 32, seed=seed) for seed in range(3)]
    save_frames(root / "film.gif", frames, duration=50)
    tpca("encode", root, "-o", tmp_path / "a.h5", "--step", 1, "--force")
    failed = tpca("verify", tmp_path / "a.h5", "--against", root, "--json", code=3).json["against"]["failed"]
    assert [item["path"].split("/")[-1] for item in failed] == ["film.gif"] and "frames" in failed[0][
        "reason"
    ]
    tpca("verify", tmp_path / "a.h5", "--against", root, "--allow-partial")

    (root / "film.gif").unlink()
    tpca("encode", root, "-o", tmp_path / "b.h5", "--step", 1, "--size", "16x16", "--force")
    failed = tpca("verify", tmp_path / "b.h5", "--against", root, "--json", code=3).json["against"]["failed"]
    assert len(failed) == 3 and "resized" in failed[0]["reason"]
    tpca("verify", tmp_path / "b.h5", "--against", root, "--allow-partial", "--decode")


def test_a_claimed_error_is_measured_again(source, archive, monkeypatch) -> None:
    monkeypatch.setattr(
        Archive, "read", lambda self, position, **_: np.zeros((*self.index.shape(position), 3))
    )
    failed = tpca("verify", archive, "--against", source, "--decode", "--json", code=3).json["against"][
        "failed"
    ]
    assert len(failed) == 41 and "squared error" in failed[0]["reason"]


def test_options_that_need_a_source_say_so(archive) -> None:
    assert "--against" in tpca("verify", archive, "--min-psnr", 30, code=2).err
    assert tpca("verify", archive, "--against", ".", "--print0-verified", "--json", code=2).out


def test_a_tensor_file_is_checked_block_by_block(source, tmp_path) -> None:
    from tpca_cli.frames.stage import stage
    from tpca_cli.framing import Framing
    from tpca_cli.sources.scan import scan

    cache = tmp_path / "tensors.h5"
    with stage(scan([source]).refs, Framing("tile", 8, 8, 3), memory=2**28, cache=cache, workers=1):
        pass
    assert tpca("verify", cache, "--json").json["images"] == 41
    data = bytearray(cache.read_bytes())
    data[len(data) // 2] ^= 1
    cache.write_bytes(data)
    tpca("verify", cache, code=4)
