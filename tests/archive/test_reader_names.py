"""An `Archive` for training code: names as text, images by name, one mode for all, errors to catch."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from command import tpca
from pictures import folder, natural, noise, save

import tpca_cli
from tpca_cli import Archive
from tpca_cli.errors import UsageError


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Gray, color, and both with alpha; one name that is not UTF-8."""
    root = tmp_path_factory.mktemp("mixed")
    for channels, name in ((1, "gray"), (2, "gray-alpha"), (3, "color"), (4, "color-alpha")):
        save(root / "in" / f"{name}.png", natural(16, 24, channels, seed=channels))
    os.rename(save(root / "in" / "x.png", natural(16, 24, seed=9)), os.fsencode(root) + b"/in/\xff\xe4.png")
    tpca("encode", root / "in", "-o", root / "a.h5", "--step", 2, "--force")
    return root / "a.h5"


@pytest.fixture(scope="module")
def thumbnails(tmp_path_factory):
    """Small images that share a block."""
    root = tmp_path_factory.mktemp("thumbnails")
    folder(root / "in", 12, sizes=[(32, 32)])
    tpca("encode", root / "in", "-o", root / "a.h5", "--step", 20, "--method", "rank1", "--tile", 8)
    return root / "a.h5"


def test_names_are_text_and_bytes_on_request(mixed) -> None:
    with Archive(mixed) as archive:
        assert sorted(archive.names_bytes)[0] == b"color-alpha.png" and b"\xff\xe4.png" in archive.names_bytes
        assert tuple(name.encode("utf-8", "surrogateescape") for name in archive.names) == archive.names_bytes


def test_names_stay_those_of_the_archive(mixed) -> None:
    """Whoever wants another order takes a copy: the names of later readings are not his to change."""
    with Archive(mixed) as archive:
        for names in (archive.names, archive.names_bytes):
            assert isinstance(names, tuple) and sorted(names, reverse=True) != list(names)


def test_an_image_is_found_by_its_name(mixed) -> None:
    with Archive(mixed) as archive:
        for position, (text, raw) in enumerate(zip(archive.names, archive.names_bytes, strict=True)):
            assert np.array_equal(archive[text], archive[position])
            assert np.array_equal(archive[raw], archive[position])
            assert text in archive and raw in archive
        with pytest.raises(KeyError, match="nowhere"):
            archive["nowhere.png"]
        assert "nowhere.png" not in archive and b"nowhere.png" not in archive and 0 not in archive


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4)])
def test_one_mode_gives_every_image_the_same_channels(mixed, mode, channels) -> None:
    with Archive(mixed, mode=mode) as archive, Archive(mixed) as plain:
        again = pickle.loads(pickle.dumps(archive))
        for position, name in enumerate(archive.names):
            own, given = plain[position], archive[position]
            assert given.shape == (16, 24, channels) and given.dtype == np.uint8
            assert np.array_equal(again[name], given)
            if own.shape[2] <= channels and own.shape[2] != 2:
                assert np.array_equal(given[..., : own.shape[2]][..., :3], own[..., :3])


@pytest.mark.parametrize("mode", [None, "L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("source", ["mixed", "thumbnails"])
def test_many_images_hold_no_more_memory_than_they_have(source, mode, request) -> None:
    """Each is an array in order, that keeps neither the rest of its block nor a channel that was left out."""
    with Archive(request.getfixturevalue(source), mode=mode) as archive:
        found = archive.read_many(range(len(archive)))
        for one, many in zip(archive[:], found, strict=True):
            for image in (one, many):
                assert np.array_equal(image, one) and image.flags.c_contiguous
                assert image.base is None or image.base.nbytes == image.nbytes


def test_gray_is_repeated_and_alpha_left_out(mixed) -> None:
    with Archive(mixed, mode="RGB") as archive, Archive(mixed) as plain:
        gray, both = plain["gray.png"], plain["color-alpha.png"]
        assert np.array_equal(archive["gray.png"], np.repeat(gray, 3, axis=2))
        assert np.array_equal(archive["color-alpha.png"], both[..., :3])


def test_16_bits_are_not_made_8_in_silence(tmp_path) -> None:
    save(tmp_path / "in" / "deep.png", noise(16, 16, 1, dtype=np.uint16))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--step", 1000, "--force")
    with (
        Archive(tmp_path / "a.h5", mode="RGB") as archive,
        pytest.raises(tpca_cli.UsageError, match="deep"),
    ):
        archive[0]


def test_what_is_no_image_is_refused(mixed) -> None:
    with Archive(mixed) as archive:
        for wrong in (5, -6):
            with pytest.raises(IndexError, match="of 5"):
                archive[wrong]
        for way in (archive.__getitem__, archive.place_of, lambda number: archive.read_many([number])):
            with pytest.raises(TypeError):
                way(1.5)
        with pytest.raises(UsageError, match="components is -1"):
            archive.read(0, components=-1)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_tensors_have_no_mode(dtype, tmp_path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        values = np.random.default_rng(number).integers(0, 200, (6, 5, 4))
        np.save(tmp_path / "in" / f"{number}.npy", values.astype(dtype))
    tpca("encode", tmp_path / "in", "-o", tmp_path / "a.h5", "--components", 2)
    with Archive(tmp_path / "a.h5", mode="L") as archive, Archive(tmp_path / "a.h5") as plain:
        assert plain[0].shape == (6, 5, 4)
        for way in (lambda: archive[0], lambda: archive.read_many([0])):
            with pytest.raises(UsageError, match="is a tensor: open without a mode"):
                way()


def test_a_mode_that_does_not_exist_is_refused(mixed) -> None:
    with pytest.raises(UsageError, match="cache_blocks is -1"):
        Archive(mixed, cache_blocks=-1)
    with pytest.raises(tpca_cli.UsageError, match="RGB"):
        Archive(mixed, mode="CMYK")


def test_errors_are_exported(tmp_path) -> None:
    with pytest.raises(tpca_cli.TpcaError):
        Archive(tmp_path / "missing.h5")
    (tmp_path / "foreign.h5").write_bytes(b"no archive")
    with pytest.raises(tpca_cli.FileRefused):
        Archive(tmp_path / "foreign.h5")
    for name in tpca_cli.__all__:
        assert getattr(tpca_cli, name) is not None
