"""Archives that were written once are decoded to the same pixels for ever, by the package and by the format.

The reference decoder shares no code with the package: where both agree with the recorded digests,
docs/FORMAT.md says what the package does.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import reference_decoder
import reference_entropy
import reference_learned
import reference_plan
import reference_tabled
from golden.make import HOME, HOME_V1, PARTIAL, PRIORS, described, digests
from threadpoolctl import threadpool_limits

from tpca_cli import Archive
from tpca_cli.codec.priors import shipped

PIXELS = {home: json.loads((home / "pixels.json").read_text()) for home in (HOME_V1, HOME)}
FORMAT = Path(__file__).parents[2] / "docs" / "FORMAT.md"
ARCHIVES = sorted(path for home in PIXELS for path in home.glob("*.h5"))


def pixels_of(path: Path) -> dict[str, list[list[object]]]:
    """What was recorded when the archive was made."""
    found: dict[str, list[list[object]]] = PIXELS[path.parent][path.name]
    return found


def label(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


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
    for home, pixels in PIXELS.items():
        assert {path.name for path in home.glob("*.h5")} == set(pixels)
        assert sum(path.stat().st_size for path in home.iterdir()) < 175_000


def test_what_the_records_say_is_read_by_the_package_and_by_the_format() -> None:
    recorded = PIXELS[HOME]["records.h5"]["records"]
    assert described(HOME / "records.h5") == recorded
    found = reference_decoder.records(HOME / "records.h5")
    assert [
        [{kind: blob.hex() for kind, blob in each.metadata.items()}, each.reasons, each.mode_bits, each.peak]
        for each in found
    ] == recorded


def test_the_numbers_that_belong_to_the_format_are_unchanged() -> None:
    frozen = json.loads((HOME_V1 / "priors.json").read_text())
    assert set(frozen) == set(PRIORS)
    for name, values in frozen.items():
        assert np.array_equal(getattr(shipped(), name.lower()), np.array(values)), name
    digest = hashlib.sha256(reference_learned.NETWORKS.read_bytes()).hexdigest()
    assert f"(SHA-256 `{digest}`)" in FORMAT.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ARCHIVES, ids=label)
def test_the_package_decodes_the_golden_pixels(path: Path) -> None:
    assert digests(path) == pixels_of(path)["all"]
    if path.name in PARTIAL:
        assert digests(path, PARTIAL[path.name]) == pixels_of(path)["partial"]


@pytest.mark.parametrize("path", ARCHIVES, ids=label)
def test_the_reference_decodes_the_golden_pixels(path: Path) -> None:
    assert by_reference(path) == pixels_of(path)["all"]


@pytest.mark.parametrize("path", [HOME_V1 / "tile8.h5", HOME / "fast.h5"], ids=label)
def test_the_reference_decodes_fewer_components(path: Path) -> None:
    assert by_reference(path, PARTIAL[path.name]) == pixels_of(path)["partial"]


def test_the_golden_archives_reach_the_rare_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escapes and raw low bits occur, so the digests above speak for them."""
    lengths, classes = [], []
    escape, magnitude = reference_entropy.Values.escape, reference_entropy.Values.magnitude

    def escaped(self: reference_entropy.Values) -> int:
        lengths.append(escape(self))
        return lengths[-1]

    def coded(self: reference_entropy.Values, family: int, k: int, *pairs: reference_entropy.Pair) -> int:
        classes.append(k)
        return magnitude(self, family, k, *pairs)

    monkeypatch.setattr(reference_entropy.Values, "escape", escaped)
    monkeypatch.setattr(reference_entropy.Values, "magnitude", coded)
    reference_decoder.decode(HOME_V1 / "appended.h5")
    assert max(lengths) >= 4 and max(classes) >= 60


def test_those_without_learning_reach_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also tables of tokens, and grades."""
    lengths, blocks = [], []
    escape, values = reference_tabled.TabledBlock._escape, reference_tabled.TabledBlock._values

    def escaped(self: reference_tabled.TabledBlock) -> int:
        lengths.append(escape(self))
        return lengths[-1]

    def valued(
        self: reference_tabled.TabledBlock,
        place: reference_plan.Place,
        foreseen: list[reference_tabled.Item],
    ) -> None:
        blocks.append((max([0, *(k for _, _, k in foreseen)]), self.sets[place], *self.grades.values()))
        values(self, place, foreseen)

    monkeypatch.setattr(reference_tabled.TabledBlock, "_escape", escaped)
    monkeypatch.setattr(reference_tabled.TabledBlock, "_values", valued)
    reference_decoder.decode(HOME / "fast-plain.h5")
    assert max(lengths) >= 4 and max(k for k, *_ in blocks) >= 60
    reference_decoder.decode(HOME / "fast.h5")
    assert len({chosen for _, chosen, *_ in blocks}) > 3
    assert len({grade for _, _, *grades in blocks for grade in grades}) > 2


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("path", ARCHIVES, ids=label)
def test_threads_change_no_pixel(path: Path, threads: int) -> None:
    with threadpool_limits(threads):
        assert digests(path) == pixels_of(path)["all"]


@pytest.mark.parametrize("name", ["tile8.h5", "appended.h5"])
def test_blocks_decode_alone_and_in_any_order(name: str) -> None:
    with Archive(HOME_V1 / name) as archive:
        count = len(archive.index.blocks["size"])
        assert count > 1
        forward = [archive.decode_block(block) for block in range(count)]
    for order in (range(count - 1, -1, -1), [*range(1, count, 2), *range(0, count, 2)]):
        with Archive(HOME_V1 / name) as archive:
            for block in order:
                again = archive.decode_block(block)
                assert all(np.array_equal(a, b) for a, b in zip(again, forward[block], strict=True))
