"""How much an archive may ask for: bounds that are held before memory is taken by any number in the file.

Digests say that a file is as it was written, not that whoever wrote it meant well: a few kilobytes can
describe an image of terabytes. All bounds but those of the format follow from one number, the pixels that an
image may have: whoever raises it with `--max-pixels` opens larger archives of every kind.

Decoding a block takes about 13 bytes for each place of its canvas (`framing.Canvas`) and each component.
What a group takes: about 3 kB for each component, and about 16 times its basis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tpca_cli.archive.format import EXACT_METHODS, FEATURES, PEAK
from tpca_cli.archive.lists import one_line
from tpca_cli.errors import FileRefused

if TYPE_CHECKING:
    from tpca_cli.archive.index import Index

Ints = npt.NDArray[np.int64]

MAX_PIXELS = 250_000_000
"""Of one image, unless the user asks for more: enough for every camera that is sold."""
MAX_SIDE = 2**16 - 1
MAX_GROUPS = 4096
KINDS = ("tile", "whole")
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
    owner = np.searchsorted(first, np.arange(len(index)), side="right") - 1
    down = -(-index.images["height"] // sides[group[owner], 0])
    across = -(-index.images["width"] // sides[group[owner], 1])
    above = np.concatenate([[0], np.cumsum(down + 1)])
    tall = np.where(whole_images, above[first + count] - above[first], -(-rows // sides[group, 0]) + 1)
    wide = np.maximum.reduceat(across, first)
    places: npt.NDArray[np.float64] = (tall + 2.0) * (wide + 1.0) + 1.0
    return places


def check_description(meta: Mapping[str, Any]) -> None:
    """Refuse groups and a target that are not described as the format has it; more fields may be there."""
    groups, target = meta.get("groups"), meta.get("target")
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS or not isinstance(target, dict):
        raise FileRefused("the groups or the target are not described as the format has it")
    if not all(_is_number(value) for value in target.values()):
        raise FileRefused("the target is not made of numbers")
    for number, group in enumerate(groups):
        exact = isinstance(group, dict) and group.get("method") in EXACT_METHODS
        wrong = _first_wrong(group, EXACT_GROUP if exact else GROUP, "")
        if wrong is None and not exact and "coded" in group["coder"]["basis"]:
            wrong = _first_wrong(group["coder"]["basis"]["coded"], CODED, "coder.basis.coded.")
        if wrong is not None:
            raise FileRefused(f"group {number} has no possible {wrong}")


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 2**53  # type: ignore[arg-type]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 64 and value.isprintable()


def _is_side(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_SIDE


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _one_of(*values: object) -> Any:
    return lambda value: any(type(value) is type(each) and value == each for each in values)


def _is_frame(value: object) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 8 and all(_is_side(side) for side in value)


GROUP: Mapping[str, Any] = {
    "method": _is_text,
    "dtype": _one_of("u1", "u2"),
    "channels": _one_of(1, 2, 3, 4),
    "step": _is_number,
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
        "components": _is_count,
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
        "model": _one_of(2),
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


def checked_groups(meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups as they are described; whatever is used without decoding has the right type from here."""
    groups = [dict(group) for group in meta["groups"]]
    if len(groups) > MAX_GROUPS:
        raise ValueError(f"{len(groups)} groups")
    for group in groups:
        features = group.get("features", [])
        unknown = [name for name in features if name not in FEATURES]
        if unknown:
            raise FileRefused(
                f"it needs the feature {one_line(str(unknown[0])[:40])!r}, which this program does not know: "
                "upgrade tpca"
            )
        coder, framing = group["coder"], group["coder"]["framing"]
        if group["dtype"] not in PEAK or framing["kind"] not in KINDS:
            raise ValueError("an unknown kind of group")
        limits = {"channels": 4, "peak": PEAK[group["dtype"]]}
        numbers = [(group, "channels"), *((group, "peak") for _ in group.keys() & {"peak"})]
        numbers += [(coder, "components"), *((framing, side) for side in ("height", "width", "channels"))]
        for where, name in numbers:
            if type(where[name]) is not int or not 1 <= where[name] <= limits.get(name, 2**31):
                raise ValueError(f"an impossible number for {name}")
        if type(group["step"]) not in (int, float) or not 0 <= group["step"] < 2**31:
            raise ValueError("an impossible step")
        for name in ("method", "basis_digest"):
            if not isinstance(group[name], str) or one_line(group[name][:40]) != group[name]:
                raise ValueError(f"an impossible {name}")
    return groups


def checked_target(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for: words and numbers."""
    target = dict(meta["target"])
    for name, value in target.items():
        if one_line(name[:40]) != name or type(value) not in (int, float):
            raise ValueError("an impossible target")
    return target
