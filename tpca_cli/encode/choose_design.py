"""Which design for a group: method and framing by the smallest cost on a sample.

For each candidate a basis is fitted to the sample and the sample is coded at the step in question; what
counts is bits, extrapolated to the whole group, plus the basis, plus the error at the exchange rate of the
quantiser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpca_cli.codec.basis_coding import stored_bytes
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.kernel_job import LAMBDA
from tpca_cli.codec.tiling import TOGETHER
from tpca_cli.encode.fit_design import Design, design_operator, sample_basis
from tpca_cli.encode.sample import fewer, pixel_count
from tpca_cli.errors import UsageError
from tpca_cli.framing import Framing
from tpca_cli.interfaces import Pixels
from tpca_cli.sources.probe import Kind, Member
from tpca_cli.tensor_pca.algorithm1 import TensorOperator
from tpca_cli.tensor_pca.fixed_basis import SCALE, integer_basis

TILES = (8, 16)
SMALL_TILE, PROMISING, SMALL_WORTH = 4, 0.985, 0.99
"""Tiles that serve drawings, and some thumbnails at fine steps. They have to take the first part of the
cost of others without a filter, and the second with one, which takes back more of what larger tiles lose."""
MANY_PIXELS = 2**18  # of a sample, half of which tell as much: filters take time
NOISE = 1 / 4.5
"""The error, in steps, that a first guess of a step is made for (`rate.first_step`): it grows where less
comes out."""
WORTH = 0.93  # of the bits of rank-1 tiles: a dense basis that does not promise so few is not tried
MAX_WHOLE = 2**14  # samples of a whole frame that `auto` considers
EXCHANGE = 0.15  # squared error per bit, in squared steps: the slope of a uniform quantiser at these rates
MAX_SPANNED, SPANNED_BYTES = 4096, 2**30  # images, and their pixels, whose space `encode` finds


def candidates(
    members: Sequence[Member], kind: Kind, method: str, tile: int | None, sampled_whole: bool, small: bool
) -> list[Design]:
    """What is worth trying, cheapest basis first; `small` tiles where asked for, and of 8 bits."""
    if method == "subspace":
        return [Design("subspace", _one_frame(members, kind, tile))]
    tiles = [Framing("tile", size, size, kind.channels) for size in ((tile,) if tile else TILES)]
    shapes = {(member.height, member.width) for member in members}
    if method == "operator":
        return [Design("operator", framing) for framing in tiles[:1]]
    if small and not tile and kind.dtype == "u1":
        tiles.append(Framing("tile", SMALL_TILE, SMALL_TILE, kind.channels))
    designs = [Design("rank1", framing) for framing in tiles]
    if method == "auto" and not tile and len(shapes) == 1 and sampled_whole:
        h, w = next(iter(shapes))
        if h * w * kind.channels <= MAX_WHOLE:
            designs.append(Design("rank1", Framing("whole", h, w, kind.channels)))
    if method == "auto" and sum(m.height * m.width for m in members) > 2**22:
        designs.append(Design("operator", tiles[0]))
    return designs


def _one_frame(members: Sequence[Member], kind: Kind, tile: int | None) -> Framing:
    """Whole images: tiles are many, and the space that they span is all there is."""
    shapes = {(member.height, member.width) for member in members}
    if tile or len(shapes) > 1:
        raise UsageError("--method subspace takes whole images of one size: use --size, and no --tile")
    (h, w) = next(iter(shapes))
    size = len(members) * h * w * kind.channels * int(kind.dtype[1])
    if len(members) > MAX_SPANNED or size > SPANNED_BYTES:
        raise UsageError(
            f"--method subspace of {len(members)} images with {size >> 20} MB of pixels is more than "
            f"{MAX_SPANNED} or {SPANNED_BYTES >> 20} MB: use `tpca fit-basis --method subspace`, "
            "then `tpca encode --basis`"
        )
    return Framing("whole", h, w, kind.channels)


def choose_design(
    designs: Sequence[Design],
    sample: Sequence[Pixels],
    kind: Kind,
    step: float,
    scale: float,
    *,
    guessed: bool = True,
) -> Design:
    """The design with the smallest cost; `scale` is pixels of the group per pixel of the sample.

    A step that is `guessed` grows where less error comes out than it was guessed for.
    """
    if len(designs) == 1 or not sample:
        return designs[0]
    if all(design.framing.kind == "tile" for design in designs):  # few tiles tell them apart
        scale, sample = scale * pixel_count(sample) / pixel_count(fewer(sample)), fewer(sample)

    costs = [math.inf] * len(designs)
    coded: dict[int, _Coded] = {}
    for k, design in enumerate(designs):
        if design.method != "operator" or _gains(design, sample, kind, step):
            coded[k] = _coded(design, sample, kind, step)
            costs[k] = coded[k].cost(step, scale)
    small = [k for k, design in enumerate(designs) if design.framing.height == SMALL_TILE]
    best = min((k for k in coded if k not in small), key=lambda k: costs[k])
    lapped = coded[best].lapped
    for k in small:
        if costs[k] < PROMISING * costs[best]:
            grows = min(max(step * NOISE / math.sqrt(coded[best].error), 1.0), 3.0) if guessed else 1.0
            near = step * grows
            some = sample[:: 2 if pixel_count(sample) >= MANY_PIXELS else 1]
            one, other = (_coded(designs[n], some, kind, near, 1, coded[n].lapped) for n in (k, best))
            if one.price(near, LAMBDA) < SMALL_WORTH * other.price(near, LAMBDA):
                return replace(designs[k], lapped=False)
    return replace(designs[best], lapped=lapped)


@dataclass(frozen=True)
class _Coded:
    """What a sample takes in a design: bits, squared error of all and of one number, stored bytes."""

    bits: int
    sse: float
    error: float
    stored: int
    lapped: bool

    def price(self, step: float, exchange: float) -> float:
        """Bits of the sample, its error among them at this rate."""
        return self.bits + self.sse / (exchange * step * step)

    def cost(self, step: float, scale: float) -> float:
        """Bits of the group, with its error and all that is stored."""
        return self.price(step, EXCHANGE) * scale + 8 * self.stored


def _coded(
    design: Design,
    sample: Sequence[Pixels],
    kind: Kind,
    step: float,
    effort: int = 0,
    lapped: bool | None = None,
) -> _Coded:
    """A sample coded in a design at a step, with a filter if it is worth the effort."""
    basis = integer_basis(sample_basis(design, sample, kind, step), kind.dtype)
    coder = Coder.train(list(sample), design.framing, basis, step, effort=effort, lapped=lapped)
    measured = coder.encode_all(sample, TOGETHER)
    sse = sum(float(part.sse.sum()) for part in measured)
    error = max(sse, 1.0) / sum(pixels.size for pixels in sample)
    return _Coded(sum(part.bits for part in measured), sse, error, stored_bytes(coder), coder.lapped)


def _gains(design: Design, sample: Sequence[Pixels], kind: Kind, step: float) -> bool:
    """Whether eigentensors of tiles could be worth their bytes beside rank-1 ones, by the bits of a step.

    On photographs they save 1 to 5 % of the bits in theory, and nothing beside lapping and contexts.
    """
    frames = np.concatenate([design.framing.split(picture) for picture in sample])  # (n, T, T, c)
    operator = design_operator(design, kind)
    operator.add(frames)
    assert isinstance(operator, TensorOperator)
    dense = np.linalg.eigvalsh(operator.matrix().astype(np.float64)) / len(frames)
    plain = integer_basis(sample_basis(replace(design, method="rank1"), sample, kind, step), kind.dtype)
    values = plain.analyze(np.ascontiguousarray(frames.transpose(1, 2, 3, 0), np.float64), 0) / SCALE
    bits = [np.log2(1 + np.maximum(v, 0) / step**2).sum() for v in (dense, (values**2).mean(axis=1))]
    return bool(bits[0] < WORTH * bits[1])
