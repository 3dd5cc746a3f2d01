"""What every staged set of images must satisfy; shared by the tests of `tensors`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpca_cli import images
from tpca_cli.frames.stage import Staged
from tpca_cli.interfaces import Frames
from tpca_cli.sources.scan import ImageRef, scan


def refs_of(root: Path) -> tuple[ImageRef, ...]:
    return scan([root]).refs


def all_frames(frames: Frames, rows: int = 7) -> np.ndarray[Any, Any]:
    return np.concatenate(list(frames.blocks(rows)))


def check_staged(result: Staged, refs: Sequence[ImageRef], size: tuple[int, int] | None = None) -> None:
    """Frames are those of the images, in the order of the list, described by the headers."""
    expected = []
    for ref, header, digest in zip(result.refs, result.headers, result.digests, strict=True):
        picture = images.read(ref.path, size=size, channels=result.framing.channels, digest_bytes=8)
        assert (header.height, header.width, header.mode) == (*picture.pixels.shape[:2], picture.mode)
        assert digest.tobytes() == picture.digest
        expected.append(result.framing.split(picture.pixels))
    np.testing.assert_array_equal(all_frames(result.frames), np.concatenate(expected))
    assert result.frames.count == sum(map(len, expected))
    assert result.frames.frame_shape == result.framing.frame_shape
    assert [ref for ref in refs if ref in set(result.refs)] == list(result.refs)
