"""How much an archive may ask for, and the form of what it says: held before anything is done by the file.

Digests say that a file is as it was written, not that whoever wrote it meant well: a few kilobytes can
describe an image of terabytes. All bounds but those of the format follow from one number, the pixels that an
image may have: whoever raises it with `--max-pixels` opens larger archives of every kind.

Decoding a block takes about 13 bytes for each place of its canvas (`framing.Canvas`) and each component.
What a group takes: about 3 kB for each component, and about 16 times its basis.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tpca_cli.archive.format import EXACT_METHODS, FEATURES, MODELS, PEAK
from tpca_cli.errors import FileRefused, one_line

if TYPE_CHECKING:
    from tpca_cli.archive.index import Index

Ints = npt.NDArray[np.int64]

MAX_PIXELS = 250_000_000
"""Of one image, unless the user asks for more: enough for every camera that is sold."""
MAX_SIDE = 2**16 - 1
MAX_GROUPS = 4096
MAX_REASONS, MAX_TEXT = 64, 1000  # texts that one image may have, and characters of one
CANVAS_NUMBERS = 2**24
"""Places times components of a block."""
COMPONENTS = 2**16
"""Of one group, and of all together besides one for each `COMPONENT_BYTES` of the file."""
COMPONENT_BYTES = 4
TABLE_BYTES = 2**22
"""Of all bases and tables together, besides `TABLE_EXPANSION` times what they take in the file."""
TABLE_EXPANSION = 8
RECORDS = 2**18
"""Images and blocks, besides one for each byte of the file."""


def usual_or_more(max_pixels: int) -> int:
    """The bound for an archive that images of up to `max_pixels` are added to: it may hold larger ones."""
    return max(max_pixels, MAX_PIXELS)


@dataclass(frozen=True)
class Limits:
    """What this reader is ready to take."""

    max_pixels: int = MAX_PIXELS

    @property
    def scale(self) -> float:
        """How many times the usual bounds hold."""
        return max(self.max_pixels / MAX_PIXELS, 1.0)

    def check_sums(self, records: int, file_bytes: int, table_bytes: int, stored_bytes: int) -> None:
        """Refuse more records, or larger tables, than a file of this size has."""
        if records > self.scale * RECORDS + file_bytes:
            raise FileRefused(f"{records} images and blocks in {file_bytes} bytes; raise --max-pixels")
        if table_bytes > self.scale * TABLE_BYTES + TABLE_EXPANSION * stored_bytes:
            raise FileRefused(
                f"basis and tables of {table_bytes} bytes in {stored_bytes} stored; raise --max-pixels"
            )

    def check(self, index: Index, groups: Sequence[Mapping[str, Any]], file_bytes: int) -> None:
        """Refuse a checked index whose images, canvases or components are beyond the bounds."""
        pixels = index.images["height"] * index.images["width"]
        worst = int(pixels.argmax()) if len(pixels) else 0
        if len(pixels) and pixels[worst] > self.max_pixels:
            height, width = index.shape(worst)
            raise FileRefused(
                f"an image of {height}x{width} pixels, more than {self.max_pixels}; raise --max-pixels"
            )
        components = np.array([int(group["coder"]["components"]) for group in groups], np.float64)
        most = self.scale * COMPONENTS
        if components.max(initial=0) > most or components.sum() > most + file_bytes / COMPONENT_BYTES:
            raise FileRefused(
                f"{components.sum():.0f} components, {components.max():.0f} in one group, more than "
                f"{most:.0f}; raise --max-pixels"
            )
        if not len(index.blocks["size"]):
            return
        numbers = canvas_places(index, groups) * components[index.blocks["group"]]
        if numbers.max() > self.scale * CANVAS_NUMBERS:
            raise FileRefused(
                f"a block has a canvas of {numbers.max():.0f} numbers, more than "
                f"{self.scale * CANVAS_NUMBERS:.0f}; raise --max-pixels"
            )


def canvas_places(index: Index, groups: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.float64]:
    """The size of the canvas of each block, as `framing.Canvas` counts it."""
    first, count, rows, group = (index.blocks[name] for name in ("first", "count", "rows", "group"))
    framings = [each["coder"]["framing"] for each in groups]
    sides = np.array([[framing["height"], framing["width"]] for framing in framings], np.int64)
    whole_images = rows == 0
    # of an image in bands the first record counts, which has the group of them all
    owner = np.searchsorted(first, np.arange(len(index.names)), side="right") - 1
    down = -(-index.images["height"] // sides[group[owner], 0])
    across = -(-index.images["width"] // sides[group[owner], 1])
    above = np.concatenate([[0], np.cumsum(down + 1)])
    tall = np.where(whole_images, above[first + count] - above[first], -(-rows // sides[group, 0]) + 1)
    wide = np.maximum.reduceat(across, first)
    places: npt.NDArray[np.float64] = (tall + 2.0) * (wide + 1.0) + 1.0
    return places


def check_description(meta: Mapping[str, Any]) -> None:
    """Refuse groups and a target that are not described as the format has it; more fields may be there.

    Whatever is used of them without decoding has the right type from here on.
    """
    groups, target = meta.get("groups"), meta.get("target")
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS or not isinstance(target, dict):
        raise FileRefused("the groups or the target are not described as the format has it")
    if not all(_is_text(name) and _is_number(value) for name, value in target.items()):
        raise FileRefused("the target is not made of words and numbers")
    for number, group in enumerate(groups):
        if not isinstance(group, dict):
            raise FileRefused(f"group {number} has no possible description")
        _check_features(group.get("features", []))
        exact = group.get("method") in EXACT_METHODS
        wrong = _first_wrong(group, EXACT_GROUP if exact else GROUP, "")
        if wrong is None and not exact and "coded" in group["coder"]["basis"]:
            wrong = _first_wrong(group["coder"]["basis"]["coded"], CODED, "coder.basis.coded.")
        if wrong is None and not exact and not _has_its_model(group):
            wrong = "coder.model"
        if wrong is None and "peak" in group:
            wrong = None if _is_peak(group["peak"], group["dtype"]) else "peak"
        if wrong is not None:
            raise FileRefused(f"group {number} has no possible {wrong}")


def _has_its_model(group: Mapping[str, Any]) -> bool:
    """Whether the group, or its coded basis, has the setting of a model just if it is a feature."""
    settings = group["coder"], group["coder"]["basis"].get("coded") or {}
    models = [each.get("model", 1) for each in settings]
    known = all(type(model) is int and model in (1, *MODELS) for model in models)
    asked = group.get("features", [])
    return known and all((model in models) == (name in asked) for model, name in MODELS.items())


def _check_features(features: object) -> None:
    """Refuse a group that asks for what this program does not know."""
    if not isinstance(features, list):
        raise FileRefused("the features of a group are not a list")
    for name in features:
        if not isinstance(name, str) or name not in FEATURES:
            raise FileRefused(
                f"it needs the feature {one_line(str(name)[:40])!r}, which this program does not know: "
                "upgrade tpca"
            )


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 2**53  # type: ignore[arg-type]


def _is_step(value: object) -> bool:
    return _is_number(value) and 0 <= value < 2**31  # type: ignore[operator]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 64 and value.isprintable()


def _is_side(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_SIDE


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_positive(value: object) -> bool:
    return _is_count(value) and value != 0


def _is_peak(value: object, dtype: str) -> bool:
    return type(value) is int and 1 <= value <= PEAK[dtype]


def _one_of(*values: object) -> Any:
    return lambda value: any(type(value) is type(each) and value == each for each in values)


def _is_frame(value: object) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 8 and all(_is_side(side) for side in value)


GROUP: Mapping[str, Any] = {
    "method": _is_text,
    "dtype": _one_of("u1", "u2"),
    "channels": _one_of(1, 2, 3, 4),
    "step": _is_step,
    "basis_digest": _is_text,
    "coder": {
        "framing": {
            "kind": _one_of("whole", "tile"),
            "height": _is_side,
            "width": _is_side,
            "channels": _one_of(1, 2, 3, 4),
        },
        "basis": {
            "kind": _one_of("dense", "modes"),
            "frame": _is_frame,
            "depth": _one_of(8, 16),
            "bits": _is_count,
        },
        "step": _is_count,
        "components": _is_positive,
        "lapped": _one_of(False, True),
        "restore": _is_count,
    },
}
"""What a group must say of itself, and what each of these can be."""
EXACT_GROUP: Mapping[str, Any] = {
    **{name: rule for name, rule in GROUP.items() if name != "coder"},
    "coder": {
        "framing": GROUP["coder"]["framing"],
        "components": _one_of(1),
        "tolerance": _is_count,
        "model": _one_of(1, 2),
    },
}
"""The same for a group whose images come back exactly."""


CODED: Mapping[str, Any] = {**GROUP["coder"], "source": _is_text}
"""The same of a coded basis, where there is one."""


def _first_wrong(value: object, expected: Mapping[str, Any], path: str) -> str | None:
    """The name of the first field that is absent or impossible."""
    if not isinstance(value, dict):
        return path.rstrip(".") or "description"
    for name, rule in expected.items():
        if isinstance(rule, Mapping):
            wrong = _first_wrong(value.get(name), rule, f"{path}{name}.")
            if wrong is not None:
                return wrong
        elif not rule(value.get(name)):
            return f"{path}{name}"
    return None


def json_list(arrays: Mapping[str, Any], name: str) -> list[Any]:
    """One of the datasets that hold a list as JSON; empty where it is absent."""
    if name not in arrays:
        return []
    try:
        found = json.loads(arrays[name].tobytes())
    except (ValueError, RecursionError):
        raise FileRefused(f"the list '{name}' is not JSON") from None
    if not isinstance(found, list):
        raise FileRefused(f"'{name}' is not a list")
    return found


def skipped_pair(item: Any) -> tuple[str, str]:
    """An input that was left out: its path and why."""
    if not (isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item)):
        raise FileRefused("the list of skipped files is malformed")
    return one_line(item[0]), one_line(item[1])


def metadata_kinds(item: Any) -> dict[str, int]:
    """The kinds of metadata of an image, and where they are."""
    if not isinstance(item, dict) or any(type(at) is not int for at in item.values()):
        raise FileRefused("the list of metadata is malformed")
    return {one_line(kind): at for kind, at in item.items()}


def reason_texts(item: Any) -> tuple[str, ...]:
    """Why an image is kept in part."""
    if not isinstance(item, list) or len(item) > MAX_REASONS or any(not isinstance(t, str) for t in item):
        raise FileRefused("the list of reasons is malformed")
    return tuple(one_line(text[:MAX_TEXT]) for text in item)
