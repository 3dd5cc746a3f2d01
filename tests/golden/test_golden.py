"""Archives that were written once are decoded to the same pixels for ever, by the package and by the format.

The reference decoder shares no code with the package: where both agree with the recorded digests,
docs/FORMAT.md says what the package does.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import reference_decoder
import reference_entropy
from golden.make import HOME, PARTIAL, PRIORS, digests
from threadpoolctl import threadpool_limits

from tpca_cli import Archive
from tpca_cli.codec.priors import shipped

PIXELS = json.loads((HOME / "pixels.json").read_text())
ARCHIVES = sorted(HOME.glob("*.h5"))


def by_reference(path: Path, components: int | None = None) -> list[list[object]]:
    return [
        [
            image.name.decode(),
            [len(image.pixels), len(image.pixels[0]), len(image.pixels[0][0])],
            image.sha256(),
        ]
        for image in reference_decoder.decode(path, components)
    ]


def test_the_list_of_archives_is_complete() -> None:
    assert {path.name for path in ARCHIVES} == set(PIXELS)
    assert sum(path.stat().st_size for path in HOME.iterdir()) < 150_000


def test_the_numbers_that_belong_to_the_format_are_unchanged() -> None:
    frozen = json.loads((HOME / "priors.json").read_text())
    assert set(frozen) == set(PRIORS)
    for name, values in frozen.items():
        assert np.array_equal(getattr(shipped(), name.lower()), np.array(values)), name


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.stem)
def test_the_package_decodes_the_golden_pixels(path: Path) -> None:
    assert digests(path) == PIXELS[path.name]["all"]
    if path.name in PARTIAL:
        assert digests(path, PARTIAL[path.name]) == PIXELS[path.name]["partial"]


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.stem)
def test_the_reference_decodes_the_golden_pixels(path: Path) -> None:
    assert by_reference(path) == PIXELS[path.name]["all"]


def test_the_reference_decodes_fewer_components() -> None:
    name = "tile8.h5"
    assert by_reference(HOME / name, PARTIAL[name]) == PIXELS[name]["partial"]


def test_the_golden_archives_reach_the_rare_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escapes and raw low bits occur, so the digests above speak for them."""
    lengths, classes = [], []
    escape, magnitude = reference_entropy.Stream.escape, reference_entropy.Values.magnitude

    def escaped(self: reference_entropy.Stream) -> int:
        lengths.append(escape(self))
        return lengths[-1]

    def coded(self: reference_entropy.Values, family: int, k: int, *pairs: reference_entropy.Pair) -> int:
        classes.append(k)
        return magnitude(self, family, k, *pairs)

    monkeypatch.setattr(reference_entropy.Stream, "escape", escaped)
    monkeypatch.setattr(reference_entropy.Values, "magnitude", coded)
    reference_decoder.decode(HOME / "appended.h5")
    assert max(lengths) >= 4 and max(classes) >= 60


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.stem)
def test_threads_change_no_pixel(path: Path, threads: int) -> None:
    with threadpool_limits(threads):
        assert digests(path) == PIXELS[path.name]["all"]


@pytest.mark.parametrize("name", ["tile8.h5", "appended.h5"])
def test_blocks_decode_alone_and_in_any_order(name: str) -> None:
    with Archive(HOME / name) as archive:
        count = len(archive.index.blocks["size"])
        assert count > 1
        forward = [archive.decode_block(block) for block in range(count)]
    for order in (range(count - 1, -1, -1), [*range(1, count, 2), *range(0, count, 2)]):
        with Archive(HOME / name) as archive:
            for block in order:
                again = archive.decode_block(block)
                assert all(np.array_equal(a, b) for a, b in zip(again, forward[block], strict=True))
