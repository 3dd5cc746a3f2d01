"""Files behind an address: few and small reads, the same guard and the same digests as on a disk."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder
from servers import FileServer, file_server, s3_server

from tpca_cli import Archive
from tpca_cli.archive.index import Index
from tpca_cli.archive.writer import write_archive
from tpca_cli.errors import FileRefused, StorageError, TpcaError
from tpca_cli.store import Address, format_of, is_remote, location
from tpca_cli.store.remote import RemoteBytes

MANY = 10_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos, an archive and a basis."""
    root = tmp_path_factory.mktemp("served")
    folder(root / "photos", 6, sizes=((40, 56), (64, 64)))
    tpca("encode", root / "photos", "-o", root / "photos.h5", "--step", 8, "--force")
    tpca("fit-basis", root / "photos", "-o", root / "basis.h5", "--tile", 8)
    tpca("encode", root / "photos", "-o", root / "scores.h5", "--basis", root / "basis.h5", "--plain")
    return root


@pytest.fixture
def server(files: Path) -> Iterator[FileServer]:
    with file_server(files) as served:
        yield served


def many_images(archive: Path, target: Path) -> Path:
    """An archive of 10,000 images of 64x64: the blocks of another one again and again, under new names."""
    rng = np.random.default_rng(0)
    with Archive(archive) as held:
        arrays, blocks = held.index, len(held.index.blocks["size"])
        times = -(-MANY // len(held))
        images = {name: np.concatenate([column] * times) for name, column in arrays.images.items()}
        count = len(images["height"])
        images["digest"] = rng.integers(0, 256, images["digest"].shape, np.uint8)
        images["mtime"] = 10**15 + rng.integers(0, 10**9, count)
        images["error"] = rng.uniform(1e4, 1e6, count)
        repeated = {name: np.concatenate([column] * times) for name, column in arrays.blocks.items()}
        repeated["first"] = repeated["first"] + np.repeat(np.arange(times) * len(held), blocks)
        names = tuple(f"n{n // 500:08d}/n{n // 500:08d}_{n}.JPEG".encode() for n in range(count))
        index = Index(names, images, repeated)
        payload = [held.block_bytes(block) for block in range(blocks)] * times
        write_archive(target, index, held.groups, payload, target_asked=held.target, force=True)
    return target


def test_one_image_of_ten_thousand_takes_four_requests_and_300_kb(tmp_path: Path) -> None:
    folder(tmp_path / "photos", 32, sizes=((64, 64),))
    tpca("encode", tmp_path / "photos", "-o", tmp_path / "small.h5", "--step", 24, "--force")
    path = many_images(tmp_path / "small.h5", tmp_path / "many.h5")
    with file_server(tmp_path) as server, Archive(server.url("many.h5")) as far, Archive(path) as near:
        assert len(far) >= MANY
        assert len(server.requests) <= 3  # its length, its beginning, the rest of its index
        found = far[MANY // 2 - 1]
        assert len(server.requests) <= 4 and server.sent <= 300_000
        np.testing.assert_array_equal(found, near[MANY // 2 - 1])


def test_an_archive_behind_an_address_is_the_archive(files: Path, server: FileServer) -> None:
    with Archive(server.url("photos.h5")) as far, Archive(files / "photos.h5") as near:
        assert (far.names, far.digest, far.info()) == (near.names, near.digest, near.info())
        for position in range(len(near)):
            np.testing.assert_array_equal(far[position], near[position])
        again = pickle.loads(pickle.dumps(far))
        np.testing.assert_array_equal(again[3], near[3])
        again.close()


def test_blocks_are_read_once_and_in_threads(files: Path, server: FileServer) -> None:
    with Archive(server.url("photos.h5"), cache_blocks=0) as far, Archive(files / "photos.h5") as near:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(far.read, [0, 5, 3, 0, 1, 2]))
        for position, pixels in zip([0, 5, 3, 0, 1, 2], found, strict=True):
            np.testing.assert_array_equal(pixels, near[position])


def test_a_process_that_was_forked_reads_on(tmp_path: Path) -> None:
    """Connections do not survive a fork: the child makes its own."""
    data = np.random.default_rng(0).bytes(1 << 18)
    (tmp_path / "data").write_bytes(data)
    with file_server(tmp_path) as server:
        source = RemoteBytes(server.url("data"))
        source.settle()
        view = bytearray(1000)
        assert source.fill_once(memoryview(view), 200_000) == 1000
        child = os.fork()
        if not child:
            try:
                got = bytearray(1000)
                source.fill_once(memoryview(got), 100_000)
                os._exit(0 if got == data[100_000:101_000] else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_every_command_that_reads_takes_an_address(files: Path, server: FileServer, tmp_path: Path) -> None:
    near, far = files / "photos.h5", server.url("photos.h5")
    for command in (("ls",), ("ls", "--json"), ("cat", "image_0003.png"), ("inspect", "--json")):
        name, *rest = command
        assert tpca(name, far, *rest).out == tpca(name, near, *rest).out
    for number, path in enumerate((near, far)):
        tpca("decode", path, "-o", tmp_path / f"{number}", "--workers", 2)
        tpca("repack", path, "-o", tmp_path / f"{number}.h5")
        tpca("inspect", path, "--report", tmp_path / f"{number}.html")
    written = sorted(p.name for p in (tmp_path / "0").iterdir())
    assert written and written == sorted(p.name for p in (tmp_path / "1").iterdir())
    for name in written:
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()
    assert (tmp_path / "0.h5").read_bytes() == (tmp_path / "1.h5").read_bytes()
    verified = tpca("verify", far, "--against", files / "photos", "--min-psnr", 20, "--json").json
    assert verified["bytes"] == near.stat().st_size and verified["against"]["safe"] == 6
    assert tpca("diff", far, near, "--decode").out.startswith("6 the same, 0 changed")
    assert tpca("diff", far, files / "photos").out.startswith("6 the same, 0 changed")


def test_a_basis_may_be_behind_an_address(files: Path, server: FileServer, tmp_path: Path) -> None:
    for number, basis in enumerate((files / "basis.h5", server.url("basis.h5"))):
        out = tmp_path / f"{number}.h5"
        tpca("encode", files / "photos", "-o", out, "--basis", basis, "--link-basis", "--step", 8, "--force")
        tpca("decode", out, "-o", tmp_path / f"{number}", "--basis", basis)
        assert tpca("inspect", basis).out
    assert (tmp_path / "0.h5").read_bytes() == (tmp_path / "1.h5").read_bytes()


def test_an_output_is_no_address(files: Path, server: FileServer) -> None:
    assert "is an address" in tpca("encode", files / "photos", "-o", server.url("new.h5"), code=2).err
    assert not list(files.rglob("new.h5"))


def test_s3_is_read_by_ranges(files: Path) -> None:
    with s3_server({"a/photos.h5": (files / "photos.h5").read_bytes()}) as bucket:
        with Archive(f"{bucket}/a/photos.h5") as far, Archive(files / "photos.h5") as near:
            assert far.digest == near.digest
            np.testing.assert_array_equal(far[5], near[5])
        assert tpca("ls", f"{bucket}/a/photos.h5").out == tpca("ls", files / "photos.h5").out
        assert "No such file" in tpca("ls", f"{bucket}/missing.h5", code=5).err


@pytest.mark.parametrize("name", ["photos.h5", "scores.h5"])
def test_a_file_is_opened_once_by_each_command(name: str, files: Path, tmp_path: Path) -> None:
    """However the command finds out what it is."""
    picture, restored = tmp_path / "s.png", tmp_path / "out"
    commands = [("inspect",), ("verify",), ("inspect", "--list"), ("inspect", "--spectrum", picture)]
    with file_server(files) as server:
        for command, *options in [*commands, ("decode", "-o", restored)]:
            server.requests.clear()
            far = tpca(command, server.url(name), *options, "--json").json
            assert [method for method, _, _ in server.requests].count("HEAD") == 1, (command, *options)
            starts = [asked.startswith("bytes=0-") for _, asked, _ in server.requests]
            assert starts.count(True) == 1, (command, *options)
            if command != "decode":
                assert far["digest"] == tpca("inspect", files / name, "--json").json["digest"]
    near = tpca("decode", files / name, "-o", tmp_path / "near", "--json").json
    assert near["images"] == far["images"] == 6
    for path in (tmp_path / "near").rglob("*.*"):
        assert path.read_bytes() == (restored / path.relative_to(tmp_path / "near")).read_bytes()


def test_the_guard_and_the_digests_hold(files: Path, tmp_path: Path) -> None:
    whole = (files / "photos.h5").read_bytes()
    with Archive(files / "photos.h5") as near:
        start = near._file._places["payload"][0][0] if near.payload(0, 1) else 0
    flipped = bytearray(whole)
    flipped[start + 3] ^= 1
    spoiled = {
        "block": (bytes(flipped), "damaged"),
        "index": (whole.replace(b"tpca-archive", b"tpca-archivf"), "damaged"),
        "short": (whole[: len(whole) // 2], "truncated"),
        "longer": (whole + b"more", "foreign bytes"),
        "empty": (b"", "empty"),
        "text": (b"hello" * 100, "not a tpca file"),
    }
    with file_server(tmp_path) as server:
        for name, (data, reason) in spoiled.items():
            (tmp_path / name).write_bytes(data)
            for path in (tmp_path / name, server.url(name)):
                assert reason in tpca("cat", path, "image_0000.png", code=4).err, name
        with pytest.raises(FileRefused), Archive(server.url("block")) as damaged:
            damaged[0]
        # what is left of a file that was cut off can be had over a network as well
        near = tpca("decode", tmp_path / "short", "-o", tmp_path / "n", "--salvage", "--json", code=None)
        far = tpca("decode", server.url("short"), "-o", tmp_path / "f", "--salvage", "--json", code=None)
        assert near.code == far.code


def test_what_a_server_says_is_told(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big").write_bytes((files / "photos.h5").read_bytes()[:48] + bytes(1 << 18))
    with file_server(tmp_path, ranges=False) as server:
        source = RemoteBytes(server.url("big"))
        with pytest.raises(OSError, match="does not serve ranges"):
            source.fill(memoryview(bytearray(10)), 200_000)
        source.settle()
        real, asked = source._asked, []
        monkeypatch.setattr(source, "_asked", lambda *given: asked.append(given) or real(*given))
        with pytest.raises(OSError, match="does not serve ranges"):
            source.fill_once(memoryview(bytearray(10)), 200_000)
        assert len(asked) == 1  # a whole file is not asked for again
        assert "No such file" in tpca("ls", server.url("missing.h5"), code=5).err
    gone = server.url("photos.h5")
    assert "onnect" in tpca("ls", gone, code=5).err
    with pytest.raises(StorageError):
        format_of(gone)
    assert "tpca-cli[remote]" in tpca("ls", "nosuch://host/photos.h5", code=1).err
    with pytest.raises(TpcaError):
        Archive("nosuch://host/photos.h5")


def test_a_server_that_ignores_ranges_is_hung_up_on(files: Path, tmp_path: Path) -> None:
    """It would send everything for every block."""
    with open(tmp_path / "big", "wb") as file:
        file.write((files / "photos.h5").read_bytes()[:48])
        file.truncate(1 << 26)
    with file_server(tmp_path, ranges=False) as server:
        source = RemoteBytes(server.url("big"))
        assert server.hung_up.wait(60)  # after the first bytes
        source.settle()
        server.hung_up.clear()
        with pytest.raises(OSError, match="does not serve ranges"):
            source.fill_once(memoryview(bytearray(10)), 200_000)
        assert server.hung_up.wait(60)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (302, {"Location": "/photos.h5"}, "redirects without end"),
        (302, {"Location": "ftp://host/photos.h5"}, "redirects to ftp://host/photos.h5"),
        (500, {}, "answers 500"),
        (403, {}, "Permission denied"),
        (410, {}, "No such file"),
        (0, {"Accept-Ranges": "none"}, "does not serve ranges"),
        (0, {"Content-Encoding": "gzip"}, "does not tell its length"),
    ],
)
def test_a_server_that_cannot_be_read_from_is_named(
    server: FileServer, status: int, headers: dict[str, str], words: str
) -> None:
    server.status, server.headers = status, headers
    done = subprocess.run(
        [sys.executable, "-m", "tpca_cli", "ls", server.url("photos.h5")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (5, "", 1)
    assert words in done.stderr


def test_a_dropped_connection_is_tried_again(
    files: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpca_cli.store.remote.PAUSES", (0.0, 0.0))
    with Archive(server.url("photos.h5"), cache_blocks=0) as far, Archive(files / "photos.h5") as near:
        server.failures = 2
        data = far._file._source
        assert isinstance(data, RemoteBytes)
        data._pieces = []  # a small file is held whole
        np.testing.assert_array_equal(far[0], near[0])
        server.failures = 1000
        data._pieces = []
        with pytest.raises(StorageError):
            far[0]
        server.failures = 0
        np.testing.assert_array_equal(far[0], near[0])


def test_without_the_extra_a_command_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    assert "pip install 'tpca-cli[remote]'" in tpca("ls", "https://localhost/photos.h5", code=1).err


def test_what_is_an_address() -> None:
    assert is_remote("s3://bucket/key") and is_remote("https://host/a.h5")
    for path in ("photos.h5", "/a/b", "c:/x", "simplecache::s3://b/k", "a b://c"):
        assert not is_remote(path)
    assert location("s3://b/k.h5") == "s3://b/k.h5" and location("s3://b/k.h5").name == "k.h5"
    assert isinstance(location("s3://b/k"), Address) and location("x") == Path("x")
