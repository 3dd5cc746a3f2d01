"""A description of the groups that is not as the format has it is refused, never an internal error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import archived, check_failed, forked
from forge import unchecked

from tpca_cli.archive.reader import Archive
from tpca_cli.archive.writer import write_archive
from tpca_cli.store.write import Writer

JUNK = (None, "x", "\x1b[31m", -1, 1e300, 10**30, [], {}, [[1]], True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archived(tmp_path_factory.mktemp("meta"), 3)[1]


def changed(value: Any, path: tuple[str | int, ...], junk: Any) -> Any:
    """A copy with one value replaced, or (Ellipsis) left out."""
    if not path:
        return junk
    if isinstance(value, list):
        return [changed(item, path[1:], junk) if k == path[0] else item for k, item in enumerate(value)]
    kept = {name: item for name, item in value.items() if name != path[0] or junk is not ... or path[1:]}
    return {name: changed(item, path[1:], junk) if name == path[0] else item for name, item in kept.items()}


def paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a structure, the inner ones too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*at, name)
        yield from paths(item, (*at, name))


def forge(source: Path, target: Path, meta: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of an archive with another description and a digest that agrees with it."""
    real = Writer.meta
    with Archive(source) as archive, unchecked(), monkeypatch.context() as patched:
        patched.setattr(Writer, "meta", lambda self, _: real(self, meta))
        data = [archive.block_bytes(block) for block in range(len(archive.index.blocks["size"]))]
        write_archive(target, archive.index, archive.groups, data, target_asked={}, force=True)


OPTIONAL = ("peak", "features")  # fields that have a default


def test_29_every_field_of_the_description(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Archive(made) as archive:
        meta = archive.meta
    target = tmp_path / "x.h5"
    places = [place for place in paths(meta) if place[:1] == ("groups",) or place == ("target",)]
    for number, place in enumerate(places):
        for junk in (..., JUNK[number % len(JUNK)], JUNK[(number + 4) % len(JUNK)]):
            if junk is ... and (isinstance(place[-1], int) or place[-1] in OPTIONAL):
                continue
            forge(made, target, changed(meta, place, junk), monkeypatch)
            words = (("inspect", target), ("verify", target, "--decode"))
            for ended in [forked(*each) for each in words]:
                if ended.code or junk is ...:
                    check_failed(ended, 4)
                    assert "\x1b" not in ended.err
