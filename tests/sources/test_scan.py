"""Laws of `scan`: what is found, how it is called, and what is left alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from media import FOREIGN, READ
from pictures import natural, save

from tpca_cli.errors import StorageError, TpcaError, UsageError
from tpca_cli.names import name_problem
from tpca_cli.sources.scan import Ignored, Scan, Skipped, require_some, scan


def names(found: Scan) -> list[bytes]:
    return [ref.name for ref in found.refs]


def reasons(entries: tuple[Skipped, ...]) -> dict[bytes, str]:
    return {os.path.basename(entry.path): entry.reason for entry in entries}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for name in ("b/2.png", "a/1.png", "top.png", "a.b/3.png"):
        save(root / name, natural(4, 5))
    return root


def test_folder_is_recursive_and_sorted_by_the_bytes_of_the_name(photos: Path) -> None:
    found = scan([photos])
    assert names(found) == [b"a.b/3.png", b"a/1.png", b"b/2.png", b"top.png"]
    assert found.skipped == found.ignored == ()
    status = os.stat(found.refs[0].path)
    assert (found.refs[0].size, found.refs[0].mtime_ns) == (status.st_size, status.st_mtime_ns)


def test_order_does_not_depend_on_the_order_of_listing(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = scan([photos])
    real = os.scandir

    class Reversed:
        def __init__(self, path: bytes) -> None:
            self.entries = list(real(path))[::-1]

        def __enter__(self) -> list[os.DirEntry[bytes]]:
            return self.entries

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(os, "scandir", Reversed)
    assert scan([photos]) == expected


def test_several_folders_are_prefixed_by_their_own_names(photos: Path, tmp_path: Path) -> None:
    save(tmp_path / "more" / "x.png", natural(4, 5))
    found = scan([photos, str(tmp_path / "more") + "/"])
    assert b"more/x.png" in names(found)
    assert all(name.split(b"/")[0] in (b"more", b"photos") for name in names(found))


def test_two_files_of_one_name_are_an_error_that_names_both(photos: Path) -> None:
    save(photos / "b" / "1.png", natural(4, 5))
    with pytest.raises(UsageError, match=r"a/1\.png.*b/1\.png|b/1\.png.*a/1\.png"):
        scan([photos / "a" / "1.png", photos / "b" / "1.png"])


def test_the_same_file_twice_is_no_collision(photos: Path) -> None:
    path = photos / "top.png"
    assert names(scan([path, path])) == [b"top.png"]


@pytest.mark.parametrize("again", ["", "**/*.png", "*", "a"])
def test_a_folder_twice_is_the_folder_once(photos: Path, again: str) -> None:
    """Whatever it is named by: its images are there, and what is wrong with others is said once."""
    (photos / "broken.png").write_text("no")
    (photos / "notes.txt").write_text("no")
    (photos / "a" / "x.jpg").write_text("no")
    once = scan([photos, photos / "top.png"])
    twice = scan([photos, photos / again, photos / "top.png"])
    assert set(once.refs) <= set(twice.refs) and once.skipped == twice.skipped
    assert once.ignored == twice.ignored


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.png", [b"top.png"]),
        ("*/*.png", [b"a.b/3.png", b"a/1.png", b"b/2.png"]),
        ("**/*.png", [b"a.b/3.png", b"a/1.png", b"b/2.png", b"top.png"]),
        ("**", [b"a.b/3.png", b"a/1.png", b"b/2.png", b"top.png"]),
        ("a*", [b"a.b/3.png", b"a/1.png"]),
        ("[ab]/?.png", [b"a/1.png", b"b/2.png"]),
    ],
)
def test_globs_name_relative_to_their_fixed_part(photos: Path, pattern: str, expected: list[bytes]) -> None:
    assert names(scan([f"{photos}/{pattern}"])) == expected


def test_a_file_whose_name_looks_like_a_glob_or_a_list_is_a_file(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(photos / "[1].png", natural(4, 5))
    save(photos / "@x.png", natural(4, 5))
    monkeypatch.chdir(photos)
    assert names(scan(["[1].png"])) == [b"[1].png"]
    assert names(scan(["@x.png"])) == [b"@x.png"]


@pytest.mark.parametrize("separator", [b"\n", b"\0", b"\r\n"])
def test_lists_keep_the_names_as_written(photos: Path, tmp_path: Path, separator: bytes) -> None:
    listed = [os.fsencode(photos / "top.png"), os.fsencode(photos / "a")]
    (tmp_path / "list.txt").write_bytes(separator.join(listed) + separator)
    root = os.fsencode(photos).lstrip(b"/")
    assert names(scan([f"@{tmp_path}/list.txt"])) == [root + b"/a/1.png", root + b"/top.png"]


def test_what_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        scan([tmp_path / "nothing"])
    with pytest.raises(UsageError, match="no image matches"):
        scan([f"{tmp_path}/*.png"])
    with pytest.raises(UsageError, match="no such list"):
        scan([f"@{tmp_path}/nothing"])
    with pytest.raises(StorageError, match="list"):
        scan([f"@{tmp_path}"])


def test_names_are_kept_byte_for_byte(tmp_path: Path) -> None:
    strange = [b"\xff.png", b"new\nline.png", b"-dash.png", b" space.png", "é.png".encode(), b"e\xcc\x81.png"]
    strange.append(b"x" * 251 + b".png")
    picture = save(tmp_path / "source" / "z.png", natural(2, 2)).read_bytes()
    folder = os.fsencode(tmp_path / "source")
    for name in strange:
        with open(folder + b"/" + name, "wb") as file:
            file.write(picture)
    assert names(scan([folder])) == sorted([*strange, b"z.png"])


def test_what_is_no_image_is_skipped_or_ignored_with_the_reason(photos: Path) -> None:
    (photos / "page.png").write_text("<html>")
    (photos / "empty.jpg").touch()
    (photos / "notes.txt").write_text("P is the first letter\n")
    (photos / "prose").write_text("BMW makes cars, and this is not a bitmap at all")
    (photos / ".hidden.png").write_bytes((photos / "top.png").read_bytes())
    (photos / ".cache").mkdir()
    (photos / "picture-without-extension").write_bytes((photos / "top.png").read_bytes())
    found = scan([photos])
    assert reasons(found.skipped) == {b"page.png": "not an image by content", b"empty.jpg": "empty file"}
    assert set(reasons(found.ignored)) == {b"notes.txt", b"prose", b".hidden.png", b".cache"}
    assert reasons(found.ignored)[b".hidden.png"] == "hidden"
    assert b"picture-without-extension" in names(found)
    assert found.left_out == Ignored(2, 2, (found.ignored[2].path, found.ignored[3].path))
    assert found.left_out.text == "2 other files and 2 hidden files or folders ignored"


def test_media_that_are_not_read_are_skipped_by_content_and_by_name(photos: Path) -> None:
    (photos / "video").write_bytes(FOREIGN["mp4"])
    (photos / "raw.cr3").write_bytes(FOREIGN["cr3"])
    (photos / "drawing.svg").write_text("<!DOCTYPE svg>")
    (photos / "clip.avi").touch()
    (photos / "phone.heic").write_bytes(READ["heic"][0])
    (photos / "code.ts").write_text("export const x = 1;")
    found = scan([photos])
    assert reasons(found.skipped) == {
        b"video": "video (MP4 or QuickTime) is not read",
        b"raw.cr3": "camera raw (CR3) is not read",
        b"drawing.svg": "a drawing (SVG) is not read",
        b"clip.avi": "empty file",
    }
    assert b"phone.heic" in names(found), "whether it can be decoded is not known here"
    assert set(reasons(found.ignored)) == {b"code.ts"}


def test_a_file_that_cannot_be_opened_is_skipped_whatever_its_name(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "unknown").write_bytes(b"x")
    real = os.open

    def denied(path: bytes, *rest: int, **options: int) -> int:
        if os.fsencode(path).endswith(b"unknown"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "open", denied)
    assert reasons(scan([photos]).skipped) == {b"unknown": "cannot be read: Permission denied"}


def test_of_several_folders_one_without_images_is_skipped(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "unmounted").mkdir()
    assert scan([tmp_path / "unmounted"]).skipped == ()
    assert reasons(scan([photos, tmp_path / "unmounted"]).skipped) == {
        b"unmounted": "no image in this folder: is it mounted?"
    }


def test_sources_without_any_image_are_an_error_with_exit_code_1(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".x").touch()
    require_some(scan([photos]), [str(photos)])
    with pytest.raises(
        TpcaError, match=r"no image in .*empty \(0 skipped, 1 hidden file or folder ignored\)"
    ) as caught:
        require_some(scan([tmp_path / "empty"]), [str(tmp_path / "empty")])
    assert caught.value.exit_code == 1
    (tmp_path / "empty" / "x.png").write_text("no")
    with pytest.raises(TpcaError, match="1 skipped") as caught:
        require_some(scan([tmp_path / "empty"]), [str(tmp_path / "empty")])
    assert caught.value.skipped[0][1] == "not an image by content"


def test_a_file_with_several_names_is_counted_once(photos: Path) -> None:
    os.link(photos / "top.png", photos / "a" / "0.png")
    (photos / "link.png").symlink_to("b/2.png")
    assert len(scan([photos]).refs) == 6
    once = scan([photos], distinct=True)
    assert [ref.name for ref in once.refs] == [b"a.b/3.png", b"a/0.png", b"a/1.png", b"b/2.png"]
    assert once.repeated == 2
    assert scan([photos]).repeated == 0


def test_only_regular_files_inside_the_folder_are_opened(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names(scan([photos]))
    outside = save(tmp_path / "outside.png", natural(2, 2))
    os.mkfifo(photos / "fifo.png")
    (photos / "folder.png").mkdir()
    (photos / "out.png").symlink_to(outside)
    (photos / "broken.png").symlink_to(photos / "nothing")
    (photos / "self.png").symlink_to("self.png")
    (photos / "loop").symlink_to(photos)
    (photos / "inside.png").symlink_to(photos / "a" / "1.png")
    monkeypatch.chdir(photos)  # the address of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.png")
        found = scan([photos])
    assert names(found) == sorted([*before, b"inside.png"])
    assert reasons(found.skipped)[b"fifo.png"] == "not a regular file"
    assert reasons(found.skipped)[b"socket.png"] == "not a regular file"
    assert reasons(found.skipped)[b"out.png"] == "link out of the folder"
    assert reasons(found.ignored)[b"loop"] == "link to a folder"
    assert {b"broken.png", b"self.png"} <= set(reasons(found.skipped))


def test_patterns_do_not_follow_loops(photos: Path) -> None:
    for name in ("loop1", "loop2"):
        (photos / name).symlink_to(photos)
    assert len(scan([f"{photos}/**/*.png"]).refs) == 4


def test_a_source_that_is_a_link_is_followed(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(photos)
    (tmp_path / "link.png").symlink_to(photos / "top.png")
    assert names(scan([tmp_path / "link"])) == names(scan([photos]))
    single = scan([tmp_path / "link.png"])
    assert names(single) == [b"link.png"]
    assert not os.path.islink(single.refs[0].path)


@pytest.mark.parametrize(
    "name", [b"", b"/a", b"a//b", b"a/../b", b".", b"..", b"a\0b", b"x" * 256, b"y/" * 2001]
)
def test_names_that_cannot_be_restored_are_known(name: bytes) -> None:
    assert name_problem(name)
    assert name_problem(b"fine/" + b"x" * 255) is None


def test_deep_folders_need_no_recursion(tmp_path: Path) -> None:
    depth = sys.getrecursionlimit() // 4
    program = (
        f"import os\nfor _ in range({depth}):\n os.mkdir('d'); os.chdir('d')\nopen('x.png', 'wb').write(b'x')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert len(scan([tmp_path]).skipped) == 1


def test_a_folder_that_cannot_be_looked_at_costs_only_itself(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below a path that is longer than the system allows."""
    monkeypatch.chdir(photos)
    for _ in range(23):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    monkeypatch.undo()
    found = scan([photos])
    assert names(found) == [b"a.b/3.png", b"a/1.png", b"b/2.png", b"top.png"]
    (skipped,) = found.skipped
    assert "folder cannot be" in skipped.reason
