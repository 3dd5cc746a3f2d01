"""`tpca export`: what other libraries read of it is what the archive holds."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural
from PIL import Image

from tpca_cli.archive.reader import Archive


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of two folders, one with an odd name; their archive."""
    root = tmp_path_factory.mktemp("export")
    folder(root / "in" / "cats", 5, sizes=[(24, 32), (16, 16)], channels=[3, 1])
    folder(root / "in" / "dogs.v2", 4, sizes=[(20, 20)], seed=9, suffix=".jpg")
    odd = os.fsencode(root / "in") + b"/dogs.v2/caf\xe9.a.png"
    Image.fromarray(natural(16, 24, 3, 77)).save(os.fsdecode(odd))
    tpca("encode", root / "in", "-o", root / "a.h5", "--step", 8, "--force")
    return root


def pixels_of(data: bytes) -> np.ndarray:
    found = np.asarray(Image.open(io.BytesIO(data)))
    return found if found.ndim == 3 else found[:, :, None]


def test_webdataset_reads_every_image_with_its_class(place: Path, tmp_path: Path) -> None:
    import webdataset

    told = tpca("export", place / "a.h5", "-o", tmp_path / "s", "--shard-bytes", 4000, "--json").json
    assert told["images"] == 10 and told["classes"] == ["cats", "dogs.v2"] and len(told["shards"]) > 1
    assert told["written_bytes"] == sum(path.stat().st_size for path in (tmp_path / "s").iterdir())
    urls = [str(tmp_path / "s" / name) for name in told["shards"]]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False))
    with Archive(place / "a.h5") as archive:
        assert len(samples) == len(archive)
        for position, sample in enumerate(samples):
            np.testing.assert_array_equal(pixels_of(sample["png"]), archive[position])
            about = json.loads(sample["json"])
            assert told["classes"][int(sample["cls"])] == about["label"]
            assert about["name"].startswith(about["label"] + "/")
            assert (about["height"], about["width"]) == archive[position].shape[:2]


def test_the_same_archive_gives_the_same_shards(place: Path, tmp_path: Path) -> None:
    for name, workers in (("a", 1), ("b", 3)):
        tpca("export", place / "a.h5", "-o", tmp_path / name, "--workers", workers, "--shard-bytes", 6000)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "b").iterdir()) and len(names) > 1
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_parquet_has_an_image_column(place: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    tpca("export", place / "a.h5", "-o", tmp_path / "t", "--to", "parquet", "--format", "webp")
    table = pyarrow.parquet.read_table(tmp_path / "t" / "shard-000000.parquet")
    assert table.column_names == ["image", "label", "name", "mode", "height", "width"]
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["label"]["names"] == ["cats", "dogs.v2"] and features["image"] == {"_type": "Image"}
    with Archive(place / "a.h5", mode="RGB") as archive:
        for position, row in enumerate(table.to_pylist()):
            found = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB"))
            np.testing.assert_array_equal(found, archive[position])
            assert row["name"].startswith(["cats", "dogs.v2"][row["label"]])


def test_an_exact_archive_gives_its_source_files(place: Path, tmp_path: Path) -> None:
    tpca("encode", place / "in", "-o", tmp_path / "e.h5", "--exact", "--include", "*.jpg")
    tpca("export", tmp_path / "e.h5", "-o", tmp_path / "s")
    with tarfile.open(tmp_path / "s" / "shard-000000.tar") as tar:
        files = {tar.extractfile(m).read() for m in tar.getmembers() if m.name.endswith(".jpg")}  # type: ignore[union-attr]
    assert files == {path.read_bytes() for path in (place / "in").rglob("*.jpg")}


@pytest.mark.parametrize("target", ["--exact", "--quality"])
def test_no_name_and_no_time_costs_an_image(target: str, tmp_path: Path) -> None:
    """A member is named by what it holds: an image may have the name of its own description."""
    names = ["photo.json", "photo.cls", "sub.d/noext", f"x.{'y' * 150}", "plain.PNG"]
    for seed, name in enumerate(names):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = "png" if name.endswith("PNG") else "jpeg"
        Image.fromarray(natural(136, 160, seed=seed)).save(path, kind)
        os.utime(path, (2**34 - seed, 2**34 - seed))
    asked = [target] if target == "--exact" else [target, 60]
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", *asked)
    tpca("export", tmp_path / "a.h5", "-o", tmp_path / "s")
    with tarfile.open(tmp_path / "s" / "shard-000000.tar") as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    assert len(members) == 3 * len(names)
    found = [json.loads(members[f"{number:09d}.json"])["name"] for number in range(len(names))]
    assert sorted(found) == sorted(names)
    for number, name in enumerate(found):
        held = "jpg" if target == "--exact" and name != "plain.PNG" else "png"
        assert Image.open(io.BytesIO(members[f"{number:09d}.{held}"])).size == (160, 136)
        if held == "jpg":
            assert members[f"{number:09d}.jpg"] == (tmp_path / "in" / name).read_bytes()


def test_a_run_that_failed_leaves_no_shards_in_the_way(place: Path, tmp_path: Path, monkeypatch) -> None:
    from tpca_cli.decode import export
    from tpca_cli.errors import StorageError

    real, written = export.store.write_file, []

    def full(name: bytes, *arguments, **options) -> None:
        written.append(name)
        if len(written) == 3:
            raise StorageError("no room")
        real(name, *arguments, **options)

    options = ("-o", tmp_path / "s", "--shard-bytes", 1)
    with monkeypatch.context() as patched:
        patched.setattr(export.store, "write_file", full)
        tpca("export", place / "a.h5", *options, code=5)
    assert len(written) == 3 and not list((tmp_path / "s").iterdir())
    assert len(tpca("export", place / "a.h5", *options, "--json").json["shards"]) == 10


def test_files_that_are_no_pictures_are_left_out_and_named(place: Path, tmp_path: Path) -> None:
    from tpca_cli.training import LabeledImages

    folder(tmp_path / "in" / "a", 3)
    (tmp_path / "in" / "a" / "broken.png").write_bytes(b"no picture")
    tpca("encode", tmp_path / "in", "-o", tmp_path / "e.h5", "--exact", "--force", code=None)
    with Archive(tmp_path / "e.h5") as archive:
        assert len(archive) == 4
    told = tpca("export", tmp_path / "e.h5", "-o", tmp_path / "s", "--json", code=3).json
    assert told["images"] == 3 and told["skipped"] == ["a/broken.png"]
    images = LabeledImages(tmp_path / "e.h5")
    assert len(images) == 3 and sorted(images.order([1])) == [0, 1, 2]
    assert [pixels.shape for pixels, _ in images.in_order([2, 0, 1])] == [(3, 24, 32)] * 3


def test_select_chooses_and_the_text_says_what_was_written(place: Path, tmp_path: Path) -> None:
    out = tpca("export", place / "a.h5", "-o", tmp_path / "s", "--select", "cats/*").out
    assert out.startswith("5 images, 1 label,") and "in 1 shard in" in out
    assert tpca("export", place / "a.h5", "-o", tmp_path / "t", "--select", "none*", code=1).err


def test_bad_input_is_refused_in_words(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    assert "not empty" in tpca("export", place / "a.h5", "-o", tmp_path / "full", code=6).err
    assert (tmp_path / "full" / "mine").read_text() == "mine" and len(os.listdir(tmp_path / "full")) == 1
    (tmp_path / "file").write_text("")
    tpca("export", place / "a.h5", "-o", tmp_path / "file", code=6)
    tpca("export", tmp_path / "none.h5", "-o", tmp_path / "x", code=2)
    tpca("export", place / "a.h5", "-o", tmp_path / "x", "--to", "zip", code=2)
    tpca("export", tmp_path / "file", "-o", tmp_path / "x", code=4)
    data = bytearray((place / "a.h5").read_bytes())
    data[-20] ^= 255  # in the last block
    (tmp_path / "damaged.h5").write_bytes(data)
    failed = tpca("export", tmp_path / "damaged.h5", "-o", tmp_path / "d", "--json", code=4)
    assert "damaged" in failed.json["error"]["message"] if isinstance(failed.json["error"], dict) else True
    assert not list((tmp_path / "d").glob("*.tar"))  # a shard appears whole or not at all
    np.save(tmp_path / "volume.npy", np.random.default_rng(0).integers(0, 9, (4, 8, 8), np.uint8))
    tpca("encode", tmp_path / "volume.npy", "-o", tmp_path / "v.h5", "--components", 2, "--force", code=None)
    if (tmp_path / "v.h5").exists():
        assert "tensors" in tpca("export", tmp_path / "v.h5", "-o", tmp_path / "x", code=2).err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    failed = tpca("export", place / "a.h5", "-o", tmp_path / "x", "--to", "parquet", code=1)
    assert "tpca-cli[parquet]" in failed.err and not (tmp_path / "x").exists()
