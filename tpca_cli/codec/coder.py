"""A block of pictures to bytes and back: framing, integer basis, step and tables of one group.

A block is a pure function of the coder and its pictures; it depends on no other block. The error that
`encode` reports is measured on the pixels that `decode` will return, to the bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import contexts, kernel_run, learned, restore, tiling, trials, tuning
from tpca_cli.codec.contexts import GRAIN_HALVES, LED, LEVELS, PREDICTORS, SHARE, SHARED, TABLED, ContextModel
from tpca_cli.codec.grains import BIT_VALUES, WHOLE, Grains, find_grains
from tpca_cli.codec.grid import Grid, grid_of
from tpca_cli.codec.kernel_job import LAMBDA, MOST_COLORS, SIDES
from tpca_cli.codec.kernel_run import Encoded, KernelTiles
from tpca_cli.codec.leading import fit_shares
from tpca_cli.codec.priors import ROWS, TOKENS
from tpca_cli.codec.scan_order import Ints, ScanOrder, scan_order_of
from tpca_cli.codec.tiling import BATCH_PIXELS, REACH, Pixels, Shape, shapes_of
from tpca_cli.codec.token_tables import TokenTables
from tpca_cli.codec.tuning import PSNR
from tpca_cli.framing import TILE, Framing
from tpca_cli.tensor_pca.fixed_basis import SCALE, SCALE_BITS, SHORT, FixedBasis, Floats

GAIN = 256
"""Synthesis norms are stored in 1/256."""
STEP_LIMIT = 1 << 30
PASSES = 3
"""How often a block is coded where there is a filter: each time by what it made of the time before."""
PUSHES = 9, 8  # eighths of what a filter added that the next pass counts on: least error, for people


@dataclass(frozen=True, eq=False)
class Coder:
    """Everything that turns pictures of one group into blocks and back."""

    framing: Framing
    basis: FixedBasis
    step_units: int
    components: int
    lapped: bool
    scales: Ints  # (M,) codes of the mean size of each component
    lowest: Ints  # (channels, LEVELS) the same for the residual of the lowest components
    centers: Ints  # (channels,) their mean
    gains: Ints  # (M,)
    restorer: restore.Restorer | None = None
    restore_step: int = 0
    factors: Ints | None = None  # (grades,) of the steps of regions, in 1/64
    region: int = 1  # tiles on the side of a region
    predictor: int = PREDICTORS[0]  # what values are predicted from
    grains: Ints | None = None  # (M,) steps that the source had, for finer ones
    source_grains: Grains | None = None  # all of them: only the encoder looks
    whole: int = 0  # halves of a grain below which steps become it, and values its multiples; 0: not these
    shares: Ints | None = None  # (channels - 1, SHARED) how far colors follow brightness, by diagonal
    tokens: TokenTables | None = None  # where nothing is learned, and those of the format suit less

    @classmethod
    def train(
        cls,
        sample: Sequence[Pixels],
        framing: Framing,
        basis: FixedBasis,
        step: float,
        *,
        components: int | None = None,
        effort: int = 1,
        lapped: bool | None = None,
        tune: str = PSNR,
        predictor: int = LED,
    ) -> Coder:
        """A coder that suits a sample of the pictures at this step.

        With all components tiles may be lapped (by default where it saves bits) and a filter is fitted; with
        fewer components the block is the paper's truncation and nothing else. Steps are those of the least
        squared error, or, tuned to what people see, differ by component and region where pixels have 8 bits.
        """
        kept = min(components or basis.components, basis.components)
        whole = kept == basis.components
        tiled = whole and framing.kind == TILE and basis.indices is not None
        can_lap, can_tune = tiled and framing.height >= 2 * REACH, tiled and basis.depth == 8
        tune = tune if can_tune else PSNR
        if lapped is None and tune != PSNR and not tuning.MANNERS[tune].may_lap:
            lapped = False
        kernel_run.release(sample)
        choices = (True, False) if lapped is None and can_lap else (bool(lapped) and can_lap,)
        given = sample, framing, basis, step, kept
        fitted = [cls._fit(*given, choice, predictor)._tuned(tune) for choice in choices]
        best = fitted[0] if len(fitted) == 1 else min(fitted, key=lambda coder: coder._price(sample))
        return best.with_filter(sample) if effort else best

    @classmethod
    def _fit(
        cls,
        sample: Sequence[Pixels],
        framing: Framing,
        basis: FixedBasis,
        step: float,
        kept: int,
        lapped: bool,
        predictor: int,
    ) -> Coder:
        gains = np.full(kept, GAIN)
        if lapped and basis.indices is not None:
            vertical, horizontal = (tiling.lapped_norms(f / 2.0**basis.bits) for f in basis.factors[:2])
            i, j = basis.indices[:kept, 0], basis.indices[:kept, 1]
            gains = np.rint(GAIN * vertical[i] * horizontal[j]).astype(np.int64)
        coder = cls(framing, basis, _units(step), kept, lapped, np.zeros(kept, np.int64),
            np.zeros((0, LEVELS), np.int64), np.zeros(0, np.int64), gains, predictor=predictor)  # fmt: skip
        blocks = [(coder._grid(shapes_of(p)), coder._analyze(p)) for p in tiling.batches(framing, sample)]
        lowest = [int(coder._scan.order[row]) if row >= 0 else -1 for row in coder._scan.lowest]
        measured = contexts.measure_scales(blocks, lowest)
        coder = replace(coder, scales=measured.scales, lowest=measured.lowest, centers=measured.centers)
        if not lapped and basis.oblique:
            coder = coder._grained([values for _, values in blocks])
        if predictor == LED and basis.indices is not None and coder.channels > 1:
            trial = replace(coder, shares=np.full((coder.channels - 1, SHARED), SHARE // 2))
            shares, less = fit_shares(trial.model, basis.indices[:kept], blocks)
            coder = replace(coder, shares=shares, scales=np.maximum(coder.scales - less, 0))
        return coder

    def _grained(self, blocks: Sequence[Floats]) -> Coder:
        """With the grains of coefficients (M, tiles) of a sample, in tiles and colors of JPEG."""
        assert self.basis.indices is not None
        rows = self.basis.analysis_factors[2].T * 2.0**-self.basis.bits  # for brightness and two colors
        units = SCALE * np.array([rows[0].sum(), *2 * np.abs(rows[1:]).max(axis=1)])
        found = find_grains(np.concatenate(blocks, axis=1), units[self.basis.indices[: self.components, 2]])
        return replace(self, source_grains=found)._with_grains()

    def _with_grains(self) -> Coder:
        """With those grains that serve the steps."""
        if self.source_grains is None:
            return self
        grains = np.rint(self.source_grains.for_steps(self._steps)).astype(np.int64)
        if not grains.any():
            return replace(self, grains=None, whole=0)
        return replace(self, grains=grains, whole=GRAIN_HALVES if self.factors is not None else WHOLE)

    def _tuned(self, tune: str) -> Coder:
        """The same with steps by component, if blocks may have them, and by region if made for people."""
        if self.basis.indices is None or (tune == PSNR and not self.lapped):
            return self
        sides = self.framing.height, self.framing.width
        factors = tuning.component_factors(self.basis.indices[: self.components], sides, tune, self.lapped)
        tuned = replace(self, gains=np.maximum(np.rint(self.gains / factors), 1).astype(np.int64))
        if tune == PSNR:
            return tuned
        region = tuning.region_tiles(self.framing.height, tune)
        return replace(tuned, factors=tuning.MANNERS[tune].factors, region=region)._with_grains()

    @property
    def tune(self) -> str:
        """What the steps are made for."""
        return PSNR if self.factors is None else tuning.tune_of(self.factors)

    def _price(self, sample: Sequence[Pixels]) -> float:
        """What part of a sample costs in bits and error, at the exchange rate of the quantiser.

        Where steps differ, of no one step: then a bit is worth what it is worth from step to step.
        """
        some = tiling.batches(self.framing, sample)
        found = [self.encode(pictures) for pictures in some[:: max(-(-len(some) // 2), 1)]]
        bits, error = sum(m.bits for m in found), sum(int(m.sse.sum()) for m in found)
        if self.factors is None:
            return bits + error / (LAMBDA * self.step**2)
        return math.log(max(bits, 1)) + tuning.BITS_PER_ERROR * math.log(max(error, 1))

    def with_filter(self, sample: Sequence[Pixels]) -> Coder:
        """With a filter fitted to the sample at this step, if blocks may have one and it is large enough."""
        whole = self.components == self.basis.components and self.basis.depth == 8
        if not whole or sum(p.shape[0] * p.shape[1] for p in sample) < 1 << 15:
            return self
        bound = restore.bound_for(self.step) if self.predictor > 2 else 0
        share = restore.QUICK_SHARE if self.predictor == TABLED else None

        def coded_with(restorer: restore.Restorer | None) -> list[restore.Pair]:
            coder = replace(self, restorer=restorer, restore_step=self.step_units)
            kernel_run.release(sample)
            batches = tiling.batches(self.framing, sample)
            pairs = [pair for some in batches for pair in coder._filter_pairs(some)]
            kernel_run.release(sample)
            return pairs

        restorer = restore.fit_to_itself(coded_with, bound, share, self._network)
        return replace(self, restorer=restorer, restore_step=self.step_units)

    def _filter_pairs(self, pictures: Sequence[Pixels]) -> list[restore.Pair]:
        """What a filter is fitted to: decoded and original images of one size each."""
        shapes, grades = shapes_of(pictures), self._grades(pictures)
        if self._filter is None or not self._fast_path:
            values = self._code_again(pictures, grades)[1]
        else:
            block = self._fast_path.encode(self.model, self._grid(shapes), pictures, grades, *self._passes)
            values = self._decode(block.data, shapes)[0]
        scales = self._scales(grades, shapes)
        runs = zip(self._images(values, shapes), tiling.runs(shapes), scales, strict=True)
        return [
            restore.Pair(restore.subpixels(images, SCALE), np.stack(pictures[first:last]), steps)
            for images, (_, first, last), steps in runs
        ]

    @property
    def knows_networks(self) -> bool:
        """Whether a network may go before the filter: whether there are any for such tiles."""
        known = Framing(TILE, learned.TILE, learned.TILE, self.framing.channels)
        return self.framing == known and self.basis.depth == 8

    @property
    def _network(self) -> int:
        """The network that may go before the filter; 0 for none, as where reading shall be quick."""
        if not self.knows_networks or self.predictor != LED or self._fast_path is None:
            return 0
        return learned.network_for(self.step, lapped=self.lapped, seen=self.factors is not None)

    def count_tokens(self, sample: Sequence[Pixels]) -> Ints:
        """How often components have each token in a sample, (M, ROWS, TOKENS), where nothing is learned."""
        counts = np.zeros((self.components, ROWS, TOKENS), np.int64)
        for pictures in tiling.batches(self.framing, sample):
            self._code(pictures, counts)
        return self._by_component(counts)

    @property
    def token_families(self) -> Ints:
        """Of each component, (M,): what kind of tables its tokens have."""
        return self._by_component(contexts.families_of(self._scan))

    @functools.cached_property
    def _scan(self) -> ScanOrder:
        indices = self.basis.indices
        if indices is None:
            return scan_order_of(tuple((m, 0, 0) for m in range(self.components)))
        return scan_order_of(tuple((int(i), int(j), int(c)) for i, j, c in indices[: self.components]))

    @property
    def channels(self) -> int:
        """How many channels have a lowest component."""
        return len(self._scan.lowest)

    @property
    def _steps(self) -> Ints:
        """Of each component, (M,), but for grains."""
        steps: Ints = np.maximum((self.step_units * GAIN + self.gains // 2) // self.gains, 1)
        return steps

    @property
    def _bit_price(self) -> float:
        """What a bit is worth, in squared steps."""
        price = LAMBDA if self.factors is None else tuning.MANNERS[self.tune].bit_price
        return price if self.grains is None else BIT_VALUES[self.factors is not None] * price

    @functools.cached_property
    def model(self) -> ContextModel:
        """Weights and tables at this step."""
        return contexts.build_contexts(
            self._scan,
            self.scales,
            self.lowest,
            self.centers,
            self._steps,
            grades=self.factors,
            region=self.region,
            bit_price=self._bit_price,
            predictor=self.predictor,
            grains=self.grains,
            whole=self.whole,
            borders=contexts.borders_of(self.basis, self.lapped or self.predictor != LED),
            shares=contexts.shares_of(self.shares, self.basis.indices),
            tokens=self.tokens,
        )

    @property
    def _filter(self) -> restore.Restorer | None:
        """The filter, if it was fitted near this step."""
        near = self.restore_step * 5 <= self.step_units * 8 <= self.restore_step * 13
        return self.restorer if near else None

    @functools.cached_property
    def _fast_path(self) -> KernelTiles | None:
        """The fast path: tiles coded inside the kernel, where the framing and the basis suit it."""
        framing, basis = self.framing, self.basis
        tiled = framing.kind == TILE and framing.height == framing.width and framing.height in SIDES
        plain = basis.indices is not None and basis.mean is None and basis.depth == 8 and basis.bits <= SHORT
        if not (tiled and plain and basis.frame_shape[-1] <= MOST_COLORS):
            return None
        scales = learned.scales_of(self.step_units, self.factors)
        return KernelTiles(
            framing, basis.factors, basis.analysis_factors, basis.bits, self.lapped, self._filter, scales
        )

    @property
    def step(self) -> float:
        """The quantiser step in pixel units."""
        return self.step_units / SCALE

    def with_step(self, step: float) -> Coder:
        """The same coder at another step; a filter fitted at a step far from it is not used."""
        return replace(self, step_units=_units(step))._with_grains()

    def encode(self, pictures: Sequence[Pixels]) -> Encoded:
        """One block, with the exact error of each picture."""
        if self._fast_path:
            grid, grades = self._grid(shapes_of(pictures)), self._grades(pictures)
            code = functools.partial(self._fast_path.encode, self.model, grid, pictures)
            if self._trials and not isinstance(grades, int):
                grades = self._trials.better(code, pictures, grid.shapes, grades)
            return code(grades, *self._passes)
        data, _, decoded = self._code_again(pictures, self._grades(pictures))
        pairs = zip(pictures, decoded, strict=True)
        errors = [int(np.square(np.subtract(a, b, dtype=np.int64)).sum()) for a, b in pairs]
        return Encoded(data, np.array(errors, np.int64), decoded)

    @property
    def _trials(self) -> trials.Trials | None:
        """How grades are found: by trial for photographs, but where grains tell what steps are good."""
        known = self.predictor == LED and self.grains is None and self._filter is not None
        if self.factors is None or self.tune != tuning.VISUAL or not known:
            return None
        return trials.Trials(len(self.factors) - 1, self.framing.height, self.region, self.step)

    @property
    def _passes(self) -> tuple[int, int]:
        """How often a block is coded, and how much of what the filter added a pass counts on, in 1/8."""
        return (1 if self._filter is None else PASSES), PUSHES[self.tune == tuning.VISUAL]

    def _code_again(
        self, pictures: Sequence[Pixels], grades: kernel_run.Grades
    ) -> tuple[bytes, Floats, list[Pixels]]:
        """A block, its values of components (M, tiles) and the pixels that a reader gets.

        What the filter adds need not be said: values are wanted so that, with what it last added, pictures
        are as they were.
        """
        aims = wanted = self._analyze(pictures)
        for left in reversed(range(self._passes[0])):
            data, values = self._code(pictures, wanted=wanted)
            decoded = self._pictures(values, shapes_of(pictures), grades)
            if left:
                wanted = aims - self._passes[1] / 8 * (self._analyze(decoded) - values)
        return data, values, decoded

    def encode_all(self, pictures: Sequence[Pixels], most: int = BATCH_PIXELS) -> list[Encoded]:
        """Any number of pictures in blocks of at most `most` pixels, or one picture."""
        return [self.encode(some) for some in tiling.batches(self.framing, pictures, most)]

    def decode(
        self,
        data: bytes,
        shapes: Sequence[Shape],
        components: int | None = None,
        wanted: Sequence[int] | None = None,
    ) -> list[Pixels]:
        """The pictures of a block, or some of them; with fewer components they come out blurrier."""
        if self._fast_path and components is None:
            quick = self._fast_path.decode(self.model, self._grid(shapes), shapes, data, wanted)
            if quick is not None:
                return quick
        values, grades = self._decode(data, shapes)
        kept = None if components is None else max(components, 0)
        found = self._pictures(values[:kept], shapes, grades)
        return found if wanted is None else [found[k] for k in wanted]

    def coefficients(self, data: bytes, shapes: Sequence[Shape]) -> list[Floats]:
        """What a block stores of each picture: its coefficients after quantization, (frames, M).

        Of lapped tiles they belong to the lapped frames, in which neighbors share their edges.
        """
        values, _ = self._decode(data, shapes)
        counts = [self.framing.count(height, width) for height, width in shapes]
        return [part / SCALE for part in np.split(values.T, np.cumsum(counts)[:-1])]

    def encode_signed(self, pictures: Sequence[Floats]) -> tuple[bytes, Floats]:
        """One block of pictures of one size whose samples may be negative, and what `decode_signed` gives."""
        data, values = self._code(pictures)
        return data, self._images(values, shapes_of(pictures))[0]

    def decode_signed(self, data: bytes, shape: Shape, count: int) -> Floats:
        """The `count` pictures of a block as images (n, c, h, w) in 1/SCALE, neither rounded nor clipped."""
        values, _ = self._decode(data, [shape] * count)
        return self._images(values, [shape] * count)[0]

    def _code(
        self, pictures: Sequence[Pixels], counts: Ints | None = None, wanted: Floats | None = None
    ) -> tuple[bytes, Floats]:
        """A block, and the values of components (M, tiles) that it stands for."""
        wanted = self._analyze(pictures) if wanted is None else wanted
        grid, rows = self._grid(shapes_of(pictures)), wanted[self._scan.order]
        data, values = kernel_run.encode(self.model, grid, rows, self._grades(pictures), counts)
        del rows
        return data, self._by_component(values)

    def _decode(self, data: bytes, shapes: Sequence[Shape]) -> tuple[Floats, kernel_run.Grades]:
        """The values of components (M, tiles) of a block, and the grades of tiles."""
        values, grades = kernel_run.decode_graded(self.model, self._grid(shapes), data)
        return self._by_component(values), grades

    def _grades(self, pictures: Sequence[Pixels]) -> kernel_run.Grades:
        """The grade of each tile, (tiles,)."""
        if self.factors is None:
            return 0
        return tuning.grades_of(pictures, self.framing.height, 2**self.basis.depth - 1, self.tune)

    def _by_component(self, values: NDArray[Any]) -> NDArray[Any]:
        out = np.empty_like(values)
        out[self._scan.order] = values
        return out

    def _grid(self, shapes: Sequence[Shape]) -> Grid:
        return grid_of(tuple(self.framing.grid(h, w) for h, w in shapes))

    def _analyze(self, pictures: Sequence[Pixels]) -> Floats:
        """Coefficients (M, tiles)."""
        grids = self._grid(shapes_of(pictures)).shapes
        planes = tiling.planes_of(self.framing, pictures, grids, self.lapped)  # (T, T, c, tiles)
        values = np.empty((self.components, planes.shape[-1]))
        for part in tiling.parts(self.framing, planes.shape[-1]):
            found = self.basis.analyze(planes[..., part], SCALE_BITS if self.lapped else 0)
            values[:, part] = found[: self.components]
        return values

    def _images(self, values: Floats, shapes: Sequence[Shape]) -> list[Floats]:
        """For each run of shapes, images (n, c, h, w) in units of 1/SCALE."""
        planes = np.empty((*self.basis.frame_shape, values.shape[1]))
        for part in tiling.parts(self.framing, values.shape[1]):
            planes[..., part] = self.basis.synthesize(values[:, part])
        return tiling.images_of(planes, shapes, self._grid(shapes).shapes, self.lapped)

    def _scales(self, grades: kernel_run.Grades, shapes: Sequence[Shape]) -> list[Ints]:
        """For each run of shapes, the steps (n, down, right) of tiles as a network knows them."""
        scales = learned.scales_of(self.step_units, self.factors)
        return tiling.by_run(scales[grades], shapes, self._grid(shapes).shapes)

    def _pictures(self, values: Floats, shapes: Sequence[Shape], grades: kernel_run.Grades) -> list[Pixels]:
        """The pixels that a reader gets."""
        restorer = self._filter if values.shape[0] == self.components else None
        out = list[Pixels]()
        for images, scales in zip(self._images(values, shapes), self._scales(grades, shapes), strict=True):
            pixels = restorer.pixels(images, SCALE, scales) if restorer else self.basis.to_pixels(images)
            out += list(np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)))  # (h, w, c) each
        return out


def _units(step: float) -> int:
    return min(max(1, round(step * SCALE)), STEP_LIMIT - 1)
