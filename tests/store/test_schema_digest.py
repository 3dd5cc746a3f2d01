"""No two different files have the same sequence of bytes under their root digest."""

from __future__ import annotations

import pytest

from tpca_cli.store import Field
from tpca_cli.store.schema import dataset_digest, digest_of, root_digest

ATTRIBUTES = {"format": "x", "n": 1}
DATASETS = {"a": (Field("u1", (None,)), (2,), b"12")}


@pytest.mark.parametrize(
    ("attributes", "datasets"),
    [
        ({"format": "x", "n": 2}, DATASETS),
        ({"format": "x", "n": 1.0}, DATASETS),
        ({"format": b"x", "n": 1}, DATASETS),
        ({"format": "xn", "": 1}, DATASETS),
        (ATTRIBUTES, {"b": DATASETS["a"]}),
        (ATTRIBUTES, {"a": (Field("i1", (None,)), (2,), b"12")}),
        (ATTRIBUTES, {"a": (Field("u1", (None,)), (1, 2), b"12")}),
        (ATTRIBUTES, {"a": (Field("u1", (None,)), (2,), b"13")}),
        (ATTRIBUTES, {}),
    ],
)
def test_every_part_of_a_file_is_in_its_digest(attributes, datasets) -> None:
    assert root_digest(attributes, datasets) != root_digest(ATTRIBUTES, DATASETS)


def test_order_of_writing_and_content_of_bulk_data_are_not() -> None:
    bulk = Field("u1", (None,), bulk=True)
    one = root_digest(ATTRIBUTES, {**DATASETS, "bulk": (bulk, (9,), b"1")})
    other = root_digest(dict(reversed(ATTRIBUTES.items())), {"bulk": (bulk, (9,), b"2"), **DATASETS})
    assert one == other


def test_a_digest_does_not_depend_on_how_data_are_cut() -> None:
    whole, cut = dataset_digest(), dataset_digest()
    whole.update(b"abcdef")
    for piece in (b"", b"ab", b"cdef"):
        cut.update(piece)
    assert whole.digest() == cut.digest()
    assert digest_of(b"abcdef") != digest_of(b"abcdeg")
