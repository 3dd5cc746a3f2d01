"""Two small formats, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tpca_cli import store
from tpca_cli.store import Field, Schema

SMALL = Schema(
    "tpca-small",
    1,
    {
        "a": Field("u2", (None,)),
        "deep/b": Field("f8", (None, 3)),
        "many/*/x": Field("i4", ()),
        "many/*/y": Field("u1", (None,), optional=True),
        "bulk": Field("u1", (None, 4), bulk=True),
    },
)
LONG = Schema("tpca-long", 1, {"small": Field("i4", (None,)), "bulk": Field("u1", (None, 8), bulk=True)})
ROWS = np.random.default_rng(5).integers(0, 256, (1000, 8), dtype="u1")


def write_small(path: Path, *, force: bool = False, groups: tuple[int, ...] = (0, 3), **options: Any) -> None:
    with store.create(path, SMALL, force=force, **options) as file:
        file.attrs({"title": "small", "n": 3})
        file.put("a", np.arange(5, dtype="u2"))
        file.put("deep/b", np.ones((2, 3)))
        for number in groups:
            file.put(f"many/{number}/x", np.int32(number))
        file.stream("bulk", "u1", (4,), 3).append(np.arange(40, dtype="u1").reshape(10, 4))


def write_long(path: Path) -> None:
    with store.create(path, LONG) as file:
        file.put("small", np.arange(10, dtype="i4"))
        file.stream("bulk", "u1", (8,), 100).append(ROWS)
