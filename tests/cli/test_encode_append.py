"""`tpca encode --append`: nothing is lost, nothing is coded twice, and doing nothing takes no time."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import reference_decoder
from command import tpca
from pictures import folder, natural, noise, save
from PIL import Image

from tpca_cli import store
from tpca_cli.archive.reader import Archive
from tpca_cli.quality import psnr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Ten images and their archive."""
    root = tmp_path_factory.mktemp("append")
    folder(root / "in", 10, sizes=[(48, 64), (40, 40)])
    tpca("encode", root / "in", "-o", root / "a.h5", "--psnr", 34, "--tile", 8)
    return root


@pytest.fixture
def place(made, tmp_path):
    """A copy to work on."""
    shutil.copytree(made / "in", tmp_path / "in")
    shutil.copy2(made / "a.h5", tmp_path / "a.h5")
    return tmp_path


def append(place, *options, code=0):
    return tpca("encode", place / "in", "-o", place / "a.h5", "--append", "--json", *options, code=code)


def pixels(path) -> dict[bytes, np.ndarray]:
    with Archive(path) as archive:
        return {name: archive[k] for k, name in enumerate(archive.names_bytes)}


def payload(path) -> bytes:
    with Archive(path) as archive:
        return archive.payload(0, int(archive.index.offsets[-1]))


def state(path) -> tuple[int, int, bytes]:
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, path.read_bytes()


def test_new_images_join_and_old_ones_stay_as_they_are(place) -> None:
    before, coded = pixels(place / "a.h5"), payload(place / "a.h5")
    save(place / "in" / "zz" / "new.png", natural(48, 64, seed=50))
    save(place / "in" / "aa.png", natural(40, 40, seed=51))
    (place / "in" / "image_0004.png").unlink()
    facts = append(place).json
    assert facts["appended"] == {"added": 2, "replaced": 0, "changed": 0, "unchanged": 9}
    assert facts["images"] == 12
    after = pixels(place / "a.h5")
    assert set(after) == set(before) | {b"zz/new.png", b"aa.png"}
    assert all(np.array_equal(after[name], before[name]) for name in before)
    assert payload(place / "a.h5").startswith(coded)
    assert tpca("verify", place / "a.h5", "--against", place / "in", "--decode").code == 0
    assert not (place / "a.h5.partial").exists()


def test_nothing_new_leaves_the_file_alone(place) -> None:
    os.utime(place / "in" / "image_0001.png")  # another time, the same bytes
    (place / "a.h5.partial").mkdir()
    before = state(place / "a.h5")
    facts = append(place).json
    assert facts["appended"] == {"added": 0, "replaced": 0, "changed": 0, "unchanged": 10}
    assert state(place / "a.h5") == before and not (place / "a.h5.partial").exists()


def test_unchanged_files_are_not_even_read(place, monkeypatch) -> None:
    from tpca_cli.encode.changes import images

    monkeypatch.setattr(images, "file_digest", lambda path: pytest.fail(f"read {path}"))
    append(place)


def test_a_changed_file_replaces_its_entry(place) -> None:
    save(place / "in" / "image_0002.png", natural(64, 48, seed=60))
    facts = append(place).json
    assert facts["appended"]["replaced"] == 1 and facts["images"] == 10 and facts["replaced"] == 1
    assert pixels(place / "a.h5")[b"image_0002.png"].shape == (64, 48, 3)
    assert tpca("verify", place / "a.h5", "--against", place / "in", "--decode").code == 0
    assert append(place).json["appended"]["unchanged"] == 10


def test_a_changed_file_may_be_kept_or_fail(place) -> None:
    save(place / "in" / "image_0002.png", natural(64, 48, seed=60))
    before = state(place / "a.h5")
    assert append(place, "--on-change", "keep").json["appended"]["changed"] == 1
    assert "image_0002.png" in append(place, "--on-change", "fail", code=1).json["error"]
    assert state(place / "a.h5") == before


def test_a_file_that_became_unreadable_keeps_its_archived_version(place) -> None:
    before = pixels(place / "a.h5")
    whole = (place / "in" / "image_0002.png").read_bytes()
    (place / "in" / "image_0002.png").write_bytes(whole[: len(whole) // 2])
    (place / "in" / "image_0003.png").write_bytes(b"<html>")
    save(place / "in" / "new.png", natural(48, 64, seed=50))
    facts = append(place, code=3).json
    assert len(facts["skipped"]) == 2 and facts["images"] == 11
    after = pixels(place / "a.h5")
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_only_what_was_replaced_is_said_to_be(place) -> None:
    (place / "in" / "image_0002.png").write_bytes(b"\x89PNG\r\n\x1a\ngarbage")
    save(place / "in" / "image_0003.png", natural(64, 48, seed=60))
    told = tpca("encode", place / "in", "-o", place / "a.h5", "--append", code=3)
    said = [line for line in told.err.splitlines() if "archived version replaced by" in line]
    assert len(said) == 1 and "image_0003.png" in said[0] and "1 replaced" in told.out


def test_only_broken_news_leave_the_file_alone(place) -> None:
    (place / "in" / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    before = state(place / "a.h5")
    assert len(append(place, code=3).json["skipped"]) == 1
    assert state(place / "a.h5") == before
    append(place, "--on-error", "fail", code=1)
    assert state(place / "a.h5") == before


def test_a_new_kind_of_image_gets_a_group_and_the_next_one_joins_it(place) -> None:
    save(place / "in" / "deep.png", natural(20, 30, 1, seed=9, dtype=np.uint16))
    assert len(append(place, "--force").json["groups"]) == 2
    save(place / "in" / "deeper.png", natural(20, 30, 1, seed=10, dtype=np.uint16))
    save(place / "in" / "gray.png", natural(20, 30, 1, seed=11))
    facts = append(place, "--force").json
    kinds = [
        group["kind"] for group in facts["groups"]
    ]  # gray joins color, with a step of its own if need be
    assert set(kinds) == {"u1 x 3", "u2 x 1"} and kinds.count("u2 x 1") == 1 and facts["images"] == 13
    assert pixels(place / "a.h5")[b"deeper.png"].dtype == np.uint16
    assert pixels(place / "a.h5")[b"gray.png"].shape == (20, 30, 1)


def new_psnr(place, names) -> float:
    """PSNR of some images, from decoded pixels."""
    decoded = pixels(place / "a.h5")
    errors = [
        np.asarray(Image.open(place / "in" / name)).astype(int) - decoded[name.encode()] for name in names
    ]
    return psnr(sum(int((e**2).sum()) for e in errors), sum(e.size for e in errors), 255)


def test_new_images_reach_the_target_with_the_old_basis(place) -> None:
    """Noise beside smooth pictures: at the step of the archive it would miss the target."""
    names = [f"noise{k}.png" for k in range(3)]
    for k, name in enumerate(names):
        save(place / "in" / name, noise(48, 64, seed=k))
    coded, before = payload(place / "a.h5"), tpca("inspect", place / "a.h5", "--json").json
    facts = append(place, "--psnr", 34).json
    assert facts["warning"] == "" and facts["psnr"] >= 34 and new_psnr(place, names) >= 34
    assert len(facts["groups"]) == 2
    assert len({group["basis_digest"] for group in facts["groups"]}) == 1
    assert facts["groups"][1]["step"] < facts["groups"][0]["step"]
    assert facts["basis_bytes"] == before["basis_bytes"]  # it is held once
    assert {group["basis"] for group in facts["groups"]} == {"embedded"}
    assert payload(place / "a.h5").startswith(coded)
    assert tpca("verify", place / "a.h5", "--against", place / "in", "--decode").code == 0
    # the next ones like these find their step, and those like the first ones theirs
    save(place / "in" / "noise7.png", noise(48, 64, seed=7))
    save(place / "in" / "smooth.png", natural(48, 64, seed=70))
    facts = append(place).json
    assert len(facts["groups"]) <= 3 and facts["basis_bytes"] == before["basis_bytes"]
    assert facts["psnr"] >= 34 and facts["warning"] == ""


def test_a_shared_basis_is_read_by_another_decoder(tmp_path) -> None:
    folder(tmp_path / "in", 3, sizes=[(16, 24)])
    append(tmp_path, "--psnr", 34, "--tile", 8, "--force")
    save(tmp_path / "in" / "noise.png", noise(16, 24))
    assert len(append(tmp_path, "--force").json["groups"]) == 2
    found = pixels(tmp_path / "a.h5")
    told = {image.name: image.sha256() for image in reference_decoder.decode(tmp_path / "a.h5")}
    assert told == {name: hashlib.sha256(image.tobytes()).hexdigest() for name, image in found.items()}


def test_images_like_the_old_ones_need_no_group(place) -> None:
    save(place / "in" / "new.png", natural(48, 64, seed=50))
    save(place / "in" / "newer.png", natural(48, 64, seed=51))
    facts = append(place).json
    assert new_psnr(place, ["new.png", "newer.png"]) >= 34 and len(facts["groups"]) <= 2


def test_what_cannot_reach_the_target_is_said(tmp_path) -> None:
    folder(tmp_path / "in", 10, sizes=[(48, 64)])
    command = ("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--psnr", 26, "--components", 12)
    tpca(*command, "--tile", 8, code=None)
    for k in range(3):
        save(tmp_path / "in" / f"noise{k}.png", noise(48, 64, seed=k))
    told = tpca(*command, "--append", "--json", code=3).json
    assert "--refit" in told["warning"] and told["appended"]["added"] == 3
    assert {item["name"] for item in told["low_quality"]} == {f"noise{k}.png" for k in range(3)}


def test_refit_learns_a_basis_of_their_own(place) -> None:
    for k in range(3):
        save(place / "in" / f"noise{k}.png", noise(48, 64, seed=k))
    coded = payload(place / "a.h5")
    facts = append(place, "--refit").json
    assert facts["warning"] == "" and facts["psnr"] >= 34 and len(facts["groups"]) == 2
    assert len({group["basis_digest"] for group in facts["groups"]}) == 2
    assert payload(place / "a.h5").startswith(coded)
    assert tpca("verify", place / "a.h5", "--against", place / "in", "--decode").code == 0


def test_larger_values_than_before_get_their_own_range(tmp_path) -> None:
    for k in range(4):
        save(tmp_path / "in" / f"image_{k}.png", natural(40, 48, 1, k, np.uint16) >> 6)
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--psnr", 50, "--force")
    save(tmp_path / "in" / "large.png", natural(40, 48, 1, 9, np.uint16) >> 2)
    facts = append(tmp_path, "--force").json
    assert [group["peak"] for group in facts["groups"]] == [1023, 16383] and facts["psnr"] >= 50


@pytest.mark.parametrize("drift", ["noisier", "calmer"])
def test_the_target_holds_every_night_while_the_content_drifts(tmp_path, drift) -> None:
    nights = 8
    for night in range(nights):
        amount = night if drift == "noisier" else nights - night
        for k in range(3):
            grain = np.random.default_rng(night * 10 + k).normal(0, 3 * amount, (48, 64, 3))
            mixed = np.clip(natural(48, 64, seed=night * 10 + k) + grain, 0, 255).astype(np.uint8)
            save(tmp_path / "in" / f"night{night}_{k}.png", mixed)
        names = [f"night{night}_{k}.png" for k in range(3)]
        facts = append(tmp_path, "--psnr", 34, "--tile", 8, "--method", "rank1", code=None)
        assert facts.code == 0, facts.out
        assert new_psnr(tmp_path, names) >= 34 and facts.json["psnr"] >= 34
    assert len(facts.json["groups"]) <= nights


@pytest.mark.parametrize("target", ["--max-bytes", "--ratio"])
def test_a_budget_holds_for_the_whole_archive(place, target) -> None:
    free = (place / "a.h5").stat().st_size
    value = free if target == "--max-bytes" else 6
    tpca("encode", place / "in", "-o", place / "a.h5", target, value, "--force")
    save(place / "in" / "noise.png", noise(64, 64))
    before = state(place / "a.h5")
    assert "budget" in append(place, code=1).json["error"]
    assert state(place / "a.h5") == before and not (place / "a.h5.partial").exists()


def test_the_target_is_the_archives_own(place) -> None:
    save(place / "in" / "new.png", natural(48, 64, seed=50))
    for planned in ([], ["--dry-run"]):
        assert "psnr" in append(place, "--psnr", 40, *planned, code=2).json["error"]
    assert append(place, "--psnr", 34).json["appended"]["added"] == 1


def test_a_step_that_is_asked_for_is_taken_beside_groups_of_other_steps(tmp_path) -> None:
    """Lossy images may join exact ones with a target of their own, and each night with another one."""
    nights = [["--exact"], ["--psnr", 33], ["--step", 4], ["--psnr", 33], ["--step", 4], ["--components", 40]]
    used = []
    for night, asked in enumerate(nights):
        save(tmp_path / "in" / f"{night}.png", natural(48, 64, seed=night))
        groups = append(tmp_path, "--force", *asked, code=None).json["groups"]
        with Archive(tmp_path / "a.h5") as archive:
            used.append(int(archive.index.group_of[-1]))
    assert groups[used[2]]["step"] == 4 and used[2] == used[4]
    assert groups[used[5]]["components"] == 40


def test_the_first_run_makes_the_archive(place) -> None:
    (place / "a.h5").unlink()
    append(place, "--psnr", 30)
    assert append(place, "--psnr", 30).json["appended"]["unchanged"] == 10


def test_a_damaged_archive_is_not_built_upon(place) -> None:
    data = bytearray((place / "a.h5").read_bytes())
    at = bytes(data).find(payload(place / "a.h5")[:50])
    data[at + 7] ^= 1
    (place / "a.h5").write_bytes(data)
    save(place / "in" / "new.png", natural(48, 64, seed=50))
    assert "damaged" in append(place, code=4).json["error"]
    assert (place / "a.h5").read_bytes() == data


def test_somebody_elses_work_is_not_overwritten(place, monkeypatch) -> None:
    from tpca_cli.encode import append as module

    def late(*arguments, **options):
        (place / "other.h5").rename(place / "a.h5")
        return real(*arguments, **options)

    tpca("encode", place / "in", "-o", place / "other.h5", "--step", 9)
    real = module.extend
    monkeypatch.setattr(module, "extend", late)
    save(place / "in" / "new.png", natural(48, 64, seed=50))
    assert "another run" in append(place, code=6).json["error"]
    assert tpca("inspect", place / "a.h5", "--json").json["target"] == {"step": 9.0}


def test_a_held_lock_is_waited_for_or_told(place) -> None:
    with store.lock(place / "a.h5"):
        assert "in use" in append(place, "--lock-wait", 0.1, code=6).json["error"]


def test_names_that_could_not_be_restored_together_are_skipped(place) -> None:
    (place / "in" / "image_0001.png").unlink()
    save(place / "in" / "image_0001.png" / "inner.png", natural(48, 64, seed=50))
    facts = append(place, code=3).json
    assert "cannot be restored" in facts["skipped"][0]["reason"] and facts["images"] == 10


def test_a_link_to_an_archive_stays_a_link(place) -> None:
    (place / "link.h5").symlink_to("a.h5")
    save(place / "in" / "new.png", natural(48, 64, seed=50))
    tpca("encode", place / "in", "-o", place / "link.h5", "--append")
    assert (place / "link.h5").is_symlink() and len(pixels(place / "a.h5")) == 11


def test_the_plan_of_an_append_writes_nothing(place) -> None:
    save(place / "in" / "image_0002.png", natural(64, 48, seed=60))
    save(place / "in" / "new.png", natural(48, 64, seed=50))
    before = state(place / "a.h5")
    counts = append(place, "--dry-run").json
    assert (counts["new"], counts["changed"], counts["unchanged"]) == (1, 1, 9)
    assert state(place / "a.h5") == before


def test_append_options_need_append(place) -> None:
    for option in (["--refit"], ["--on-change", "keep"]):
        assert "--append" in tpca("encode", place / "in", "-o", place / "b.h5", *option, code=2).err


def test_workers_do_not_change_the_bytes(place) -> None:
    folder(place / "in" / "more", 12, sizes=[(200, 300)])
    shutil.copy2(place / "a.h5", place / "b.h5")
    append(place, "--workers", 1)
    tpca("encode", place / "in", "-o", place / "b.h5", "--append", "--workers", 3)
    assert (place / "a.h5").read_bytes() == (place / "b.h5").read_bytes()


def test_sources_without_an_image_fail(place) -> None:
    """A disk that is not mounted is an empty folder: that must not look like a quiet night."""
    before = state(place / "a.h5")
    (place / "empty").mkdir()
    for options in ([], ["--dry-run"]):
        told = tpca("encode", place / "empty", "-o", place / "a.h5", "--append", "--json", *options, code=1)
        assert "no image in" in told.json["error"]
    tpca("encode", place / "gone", "-o", place / "a.h5", "--append", code=2)
    assert state(place / "a.h5") == before


def test_one_empty_folder_among_several_is_named(tmp_path) -> None:
    folder(tmp_path / "full", 3)
    (tmp_path / "empty").mkdir()
    both = (tmp_path / "full", tmp_path / "empty")
    tpca("encode", *both, "-o", tmp_path / "a.h5", "--psnr", 34, "--force", code=None)
    told = tpca("encode", *both, "-o", tmp_path / "a.h5", "--append", "--json", code=3).json
    assert [item["path"] for item in told["skipped"]] == [str(tmp_path / "empty")]
    assert "mounted" in told["skipped"][0]["reason"]
    tpca("encode", *both, "-o", tmp_path / "a.h5", "--append", "--on-error", "fail", code=1)


@pytest.mark.parametrize("how", ["vanished", "unreadable"])
def test_one_file_that_cannot_be_read_does_not_stop_the_others(place, monkeypatch, how) -> None:
    from tpca_cli.encode import changes
    from tpca_cli.errors import StorageError

    bad = place / "in" / "image_0002.png"
    os.utime(bad, (1, 1))  # so that it must be read to tell whether it changed
    save(place / "in" / "new.png", natural(48, 64, seed=50))
    digest = changes.images.file_digest

    def reading(path, *size):
        if path.endswith(b"image_0002.png"):
            if how == "unreadable":
                raise StorageError.of(OSError(5, "Input/output error"), path, "read")
            bad.unlink()
        return digest(path, *size)

    monkeypatch.setattr(changes.images, "file_digest", reading)
    told = append(place, code=3).json
    assert told["appended"]["added"] == 1 and told["images"] == 11
    assert [item["path"] for item in told["skipped"]] == [str(bad)]


def test_an_archive_of_version_1_keeps_its_range(tmp_path) -> None:
    """It has no word for another: quality counts from 65535, and what that costs is said."""
    home = Path(__file__).resolve().parent.parent / "golden" / "v1"
    shutil.copy2(home / "depth16.h5", tmp_path / "a.h5")
    before = tpca("inspect", tmp_path / "a.h5", "--json").json
    save(tmp_path / "in" / "new.png", natural(40, 48, 1, 5, np.uint16) >> 4)
    facts = append(tmp_path, "--force", code=None).json
    assert facts["format_version"] == before["format_version"] == 1
    assert {group["peak"] for group in facts["groups"]} == {65535} and facts["images"] == before["images"] + 1
    refit = append(tmp_path, "--refit", "--force", code=None).json
    assert refit["format_version"] == 1 and refit["appended"]["unchanged"] == 1


def test_an_archive_of_version_1_gets_no_colors_of_jpeg(tmp_path) -> None:
    """It has no word for them either."""
    home = Path(__file__).resolve().parent.parent / "golden" / "v1"
    shutil.copy2(home / "depth16.h5", tmp_path / "a.h5")
    rough = np.random.default_rng(2).integers(60, 180, (96, 128, 3)).astype(np.uint8)
    save(tmp_path / "in" / "new.jpg", rough, quality=80)
    facts = append(tmp_path, "--force", code=None).json
    assert facts["format_version"] == 1 and facts["appended"]["added"] == 1
    assert pixels(tmp_path / "a.h5")[b"new.jpg"].shape == rough.shape
    with Archive(tmp_path / "a.h5") as archive:
        assert not any(archive.coder(group).basis.oblique for group in range(len(archive.groups)))


def test_new_images_that_cannot_reach_the_target_are_named_with_what_can_be_done(tmp_path: Path) -> None:
    """The target is that of the archive: to ask for less, or more components, is not possible here."""
    root, archive = tmp_path / "in", tmp_path / "a.h5"
    ramp = np.tile(np.arange(64, dtype=np.uint8)[:, None, None] * 3, (1, 64, 1))
    for seed in range(3):
        save(root / f"smooth{seed}.png", ramp + np.uint8(seed))
    tpca("encode", root, "-o", archive, "--psnr", 34, "--components", 6, code=None)
    before = archive.read_bytes()
    for seed in range(2):
        save(root / f"noise{seed}.png", noise(64, 64, 3, seed=seed))
    refused = tpca("encode", root, "-o", archive, "--append", code=1).err
    assert "noise0.png and 1 other new image" in refused and "34 cannot be reached" in refused
    assert "ask for less" not in refused
    assert archive.read_bytes() == before
    left_out = tpca("encode", root, "-o", archive, "--append", "--exclude", "noise*", "--json").json
    assert left_out["appended"]["unchanged"] == 3
    tpca("encode", root, "-o", archive, "--append", "--exact")
    assert tpca("inspect", archive, "--json").json["images"] == 5
