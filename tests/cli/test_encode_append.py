"""`tpca encode --append`: nothing is lost, nothing is coded twice, and doing nothing takes no time."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, noise, save

from tpca_cli import store
from tpca_cli.archive.reader import Archive


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
    assert len(facts["groups"]) == 2 and facts["images"] == 13
    assert pixels(place / "a.h5")[b"deeper.png"].dtype == np.uint16
    assert pixels(place / "a.h5")[b"gray.png"].shape == (20, 30, 1)


def test_bad_fit_is_said_and_refit_mends_it(place) -> None:
    for k in range(3):
        save(place / "in" / f"noise{k}.png", noise(48, 64, seed=k))
    shutil.copy2(place / "a.h5", place / "b.h5")
    told = append(place).json
    assert "--refit" in told["warning"] and told["psnr"] < 34
    coded = payload(place / "b.h5")
    facts = tpca("encode", place / "in", "-o", place / "b.h5", "--append", "--refit", "--json").json
    assert facts["warning"] == "" and facts["psnr"] >= 34 and len(facts["groups"]) == 2
    assert payload(place / "b.h5").startswith(coded)
    assert tpca("verify", place / "b.h5", "--against", place / "in", "--decode").code == 0


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
    assert "psnr" in append(place, "--psnr", 40, code=2).json["error"]
    assert append(place, "--psnr", 34).json["appended"]["added"] == 1


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
