"""What travels to another process comes back as it was."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpca_cli.errors import ImageRefused
from tpca_cli.fit.remote import Counted, Shard, Unread
from tpca_cli.framing import TILE, Framing
from tpca_cli.images import CHANNELS, Header
from tpca_cli.sources.read_plan import ReadPlan
from tpca_cli.sources.scan import ImageRef
from tpca_cli.sources.transfer import Batch, ReadImage, Refusal, pack_images

NUMBERS = st.integers(0, 2**40)
NAMES = st.binary(min_size=1, max_size=20).map(lambda name: name.replace(b"\0", b"x"))
REFS = st.builds(ImageRef, NAMES, NAMES, NUMBERS, st.integers(-(2**62), 2**62), st.booleans())
MODES = st.sampled_from(["L", "RGB", "RGBA"])
HEADERS = st.builds(
    lambda height, width, mode: Header(height, width, CHANNELS[mode], "u1", mode),
    st.integers(1, 3),
    st.integers(1, 3),
    MODES,
)
WARNINGS = st.lists(st.text(max_size=5), max_size=2).map(tuple)
TAKEN = st.lists(
    st.builds(ReadImage, NUMBERS, HEADERS, st.binary(min_size=8, max_size=8), WARNINGS), max_size=8
)
RECIPE = ReadPlan(Framing(TILE, 8, 8, 3), "u1", None, 1 << 20)


@given(st.lists(st.tuples(REFS, NUMBERS, HEADERS), max_size=8), st.booleans())
def test_shards(files: list[tuple[ImageRef, int, Header]], fail: bool) -> None:
    refs = tuple(ref for ref, _, _ in files)
    shard = Shard(refs, tuple((number, header) for _, number, header in files), RECIPE, fail)
    assert pickle.loads(pickle.dumps(shard)) == shard
    assert pickle.loads(pickle.dumps(Unread(refs))) == Unread(refs)


@given(TAKEN)
def test_what_was_read(taken: list[ReadImage]) -> None:
    refused = (Refusal(3, ImageRefused("damaged")),)
    batch = Batch(np.zeros((2, 2)), (1, 2), tuple(taken), refused)
    back = pickle.loads(pickle.dumps(batch))
    assert back.taken == batch.taken
    assert back.sums == batch.sums
    assert str(back.refused[0].error) == "damaged"
    counted = Counted((), (pack_images(taken), pack_images(taken[:1])), ())
    assert counted.taken == taken + taken[:1]


@given(TAKEN)
def test_headers_of_one_kind_come_back_as_one_object(taken: list[ReadImage]) -> None:
    back = Counted((), (pack_images(taken),), ()).taken
    assert len({id(each.header) for each in back}) == len({each.header for each in taken})
