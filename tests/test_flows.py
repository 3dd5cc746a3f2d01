"""The three flows stay short: how many hops, modules and changes of package a reader has to follow."""

from __future__ import annotations

import pytest
from trace_flows import FLOWS, IMAGES, Trace, listing, traces

# hops, modules, changes of package: what they are now, to shrink and never to grow unnoticed
BOUNDS = {"encode": (234, 68, 106), "decode": (89, 40, 41), "fit-basis": (83, 36, 30)}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    return traces(tmp_path_factory.mktemp("flows"))


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_can_be_followed(flow: str, found: dict[str, Trace]) -> None:
    trace = found[flow]
    measured = (len(trace.hops), len(trace.modules), trace.package_changes)
    assert all(got <= bound for got, bound in zip(measured, BOUNDS[flow], strict=True)), (
        f"{flow}: hops, modules, package changes {measured}, at most {BOUNDS[flow]}\n{listing(trace)}"
    )


@pytest.mark.parametrize("flow", ["encode", "fit-basis"])
def test_a_file_is_probed_once_and_decoded_at_most_twice(flow: str, found: dict[str, Trace]) -> None:
    trace = found[flow]
    assert len(trace.probed) == len(trace.decoded) == IMAGES
    assert set(trace.probed.values()) == {1}
    assert max(trace.decoded.values()) <= 2
