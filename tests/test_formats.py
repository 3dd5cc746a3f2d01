"""Laws of `formats`: what is read, what is media all the same, and what is neither."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from media import FOREIGN, READ
from pictures import natural
from PIL import Image

from tpca_cli import formats


@pytest.mark.parametrize("name", FOREIGN)
def test_media_that_are_not_read_are_known_by_their_content(name: str) -> None:
    head = FOREIGN[name][: formats.HEAD_BYTES]
    assert formats.sniff(head) is None
    assert formats.foreign(head, b"without-extension")


@pytest.mark.parametrize("name", READ)
def test_modern_formats_are_known_by_their_content(name: str) -> None:
    head, kind = READ[name]
    assert formats.sniff(head) == kind and kind in formats.FORMATS
    assert formats.foreign(head, b"x") is None


@pytest.mark.parametrize(
    "name", [b"a.heic", b"b.AVIF", b"c.jxl", b"d.CR3", b"e.orf", b"f.mp4", b"g.svg", b"h.nef", b"i.Jpg"]
)
def test_names_promise_media(name: bytes) -> None:
    assert formats.promises_media(name)


@pytest.mark.parametrize(
    "name", [b"notes.txt", b"code.ts", b"Makefile", b".jpg", b"jpg", b"song.mp3", b"a.h5", b"a.pdf", b"a."]
)
def test_other_names_promise_none(name: bytes) -> None:
    assert not formats.promises_media(name)


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=80))
def test_prose_is_no_media(text: str) -> None:
    head = b"It was said that " + text.encode()
    assert formats.sniff(head) is None and formats.foreign(head, b"notes.txt") is None


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "BMP", "GIF", "PPM", "AVIF"])
def test_what_pillow_writes_is_known(kind: str) -> None:
    file = io.BytesIO()
    Image.fromarray(natural(8, 8)).save(file, kind)
    assert formats.sniff(file.getvalue()[: formats.HEAD_BYTES]) == kind
