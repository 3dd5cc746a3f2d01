"""Run the kernel: a block of coefficients, or of pictures, to bytes and back, and the symbols between.

The walk over the components is one compiled function for both directions (`kernel/walk.c`). `read_symbols`
and `write_symbols` move symbols between blocks: every symbol belongs to a tile, and the values it stands for
depend on its own image only, so an image keeps its symbols wherever it goes.

`KernelTiles` is the fast path that most archives take (8-bit pictures in tiles of rank-1 components): tiling,
lapping, basis and filter run inside the kernel too. It gives the bits that `tiling`, `fixed` and `restore`
define; they serve every other case.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import learned, tiling
from tpca_cli.codec.block_job import block_values
from tpca_cli.codec.contexts import ContextModel
from tpca_cli.codec.grid import Grid
from tpca_cli.codec.kernel_job import DECIDE, DECODE, KERNEL, NO_PICTURES, RECORDS, REPLAY, prepare
from tpca_cli.codec.restore import Restorer
from tpca_cli.codec.scan_order import Ints
from tpca_cli.errors import FileRefused
from tpca_cli.framing import Framing
from tpca_cli.wasm import Job, KernelStopped, Room, Value, Values

Floats = NDArray[np.float64]
Array = NDArray[Any]
Pixels = NDArray[Any]
Shape = tuple[int, int]
Grades = NDArray[np.uint8] | int
Tiles = Mapping[str, Array | int]
"""Arrays (.., tiles), or one number for all tiles, by their fields."""
FILTER = ("borders", "weights", "mixing")
"""What the kernel knows of a filter."""
NETWORK = ("network", "scales", "inverses")
"""What it knows of the network before it."""


@dataclass(frozen=True)
class Encoded:
    """A coded block, the squared error of each picture after decoding, and what a reader gets.

    `busy` (tiles,) is how many values are not zero, larger ones twice, where the kernel counts them.
    """

    data: bytes
    sse: Ints
    decoded: list[Pixels]
    busy: Ints | None = None

    @property
    def bits(self) -> int:
        """The size of the block."""
        return 8 * len(self.data)


@dataclass(frozen=True)
class Symbols:
    """What was coded for some tiles: values (M, tiles) and flags (zones, tiles)."""

    values: Ints
    flags: NDArray[np.uint8]
    grades: NDArray[np.uint8] | int = 0  # (tiles,)

    def of(self, first: int, last: int) -> Symbols:
        """Those of the tiles first:last."""
        grades = self.grades if isinstance(self.grades, int) else self.grades[first:last]
        return Symbols(self.values[:, first:last], self.flags[:, first:last], grades)


def joined(parts: Sequence[Symbols]) -> Symbols:
    """The symbols of several images, one after another."""
    values, flags = [part.values for part in parts], [part.flags for part in parts]
    grades = [np.broadcast_to(np.uint8(part.grades), part.values.shape[1:]) for part in parts]
    return Symbols(np.concatenate(values, axis=1), np.concatenate(flags, axis=1), np.concatenate(grades))


def encode(
    model: ContextModel, grid: Grid, coefficients: Floats, grades: Grades = 0, counts: Ints | None = None
) -> tuple[bytes, Floats]:
    """The block of coefficients (M, tiles), rows in the scan order, and the values that a decoder gets.

    Without learning, tokens may be added to `counts` (M, rows of the tables, tokens).
    """
    tiles: Tiles = {"data": coefficients, "grade": grades}
    block, job = run_encoder(model, grid, DECIDE, tiles, counting=counts is not None)
    if counts is not None:
        counts += job.arrays["counts"].reshape(counts.shape)
    return block, _tiles(job.arrays["data"], grid)


def decode(model: ContextModel, grid: Grid, block: bytes) -> Floats:
    """The values (M, tiles) of a block; bytes that cannot be a block are refused."""
    return decode_graded(model, grid, block)[0]


def decode_graded(model: ContextModel, grid: Grid, block: bytes) -> tuple[Floats, Grades]:
    """The same with the grades of tiles."""
    job = run_decoder(model, grid, block)
    grades = job.arrays["grade"][grid.places] if len(model.quanta) > 1 else 0
    return _tiles(job.arrays["data"], grid), grades


def read_symbols(model: ContextModel, grid: Grid, block: bytes) -> Symbols:
    """The symbols of a block."""
    job = run_decoder(model, grid, block, symbols=True)
    grades = job.arrays["grade"][grid.places]
    return Symbols(
        _tiles(job.arrays["data"], grid).astype(np.int64), _tiles(job.arrays["opened"], grid), grades
    )


def write_symbols(model: ContextModel, grid: Grid, symbols: Symbols) -> bytes:
    """The block that stands for these symbols."""
    tiles: Tiles = {"data": symbols.values, "wanted": symbols.flags, "grade": symbols.grades}
    return run_encoder(model, grid, REPLAY, tiles)[0]


def _tiles(canvas: Array, grid: Grid) -> Array:
    return canvas.reshape(-1, grid.size).take(grid.places, axis=1)  # (rows, tiles)


def run_block(
    model: ContextModel,
    grid: Grid,
    mode: int,
    coded: Array | Room,
    pictures: Values = NO_PICTURES,
    tiles: Tiles | None = None,
    symbols: bool = False,
    counting: bool = False,
) -> Job:
    """Run the kernel over bytes or room for them, and pictures or tiles; whatever stops it is in the data."""
    values = block_values(model, grid, mode, coded, symbols, pictures, counting)
    for name in tiles or {}:
        room = values[name]
        assert isinstance(room, Room)
        values[name] = Room(room.size)
    job = Job.of(KERNEL, values)
    for name, given in (tiles or {}).items():
        canvas = job.arrays[name]
        canvas[: canvas.size // grid.size * grid.size].reshape(-1, grid.size)[:, grid.places] = given
    try:
        return job.run()
    except KernelStopped as error:
        raise FileRefused(f"block is damaged ({error})") from error


def run_decoder(
    model: ContextModel, grid: Grid, block: bytes, pictures: Values = NO_PICTURES, *, symbols: bool = False
) -> Job:
    """Run a decoder over a block."""
    job = run_block(model, grid, DECODE, np.frombuffer(block, np.uint8), pictures, symbols=symbols)
    if job.numbers["damaged"] or job.numbers["length"] != len(block):
        raise FileRefused("block is damaged: its symbols do not end where it does")
    return job


def run_encoder(
    model: ContextModel,
    grid: Grid,
    mode: int,
    tiles: Tiles,
    pictures: Values = NO_PICTURES,
    counting: bool = False,
) -> tuple[bytes, Job]:
    """Run an encoder over arrays (.., tiles) or pictures, with enough room; what it wrote, and the job."""
    capacity = 4096 + grid.places.size * model.expected.size
    while True:
        room, replayed = Room(capacity, scratch=True), mode == REPLAY
        job = run_block(model, grid, mode, room, pictures, tiles, replayed, counting)
        if job.numbers["damaged"] or job.numbers["wide"]:
            raise ValueError("values are too large to be coded")
        length = job.numbers["length"]
        if length <= capacity:
            return job.arrays["bytes"][:length].tobytes(), job
        capacity = length


@dataclass(frozen=True, eq=False)
class KernelTiles:
    """The fast path: pictures coded tile by tile inside the kernel, with what it must know of a coder."""

    framing: Framing
    factors: Sequence[Ints]  # of height, width and channels
    analysis: Sequence[Ints]  # the same for coefficients of pixels
    bits: int
    lapped: bool
    restorer: Restorer | None
    scales: Ints  # (grades,) steps as a network of the restorer knows them

    def encode(
        self,
        model: ContextModel,
        grid: Grid,
        pictures: Sequence[Pixels],
        grades: Grades = 0,
        passes: int = 1,
        push: int = 0,
    ) -> Encoded:
        """A block of pictures; each pass after the first knows what the filter made of the one before."""
        pixels = np.concatenate([picture.ravel() for picture in pictures])  # (samples of all,)
        shapes = tiling.shapes_of(pictures)
        fields = self._fields(grid, shapes, pixels, range(len(shapes)))
        aims = model.expected.size * grid.size if passes > 1 else 0
        fields |= {"passes": passes, "push": push, "aims": Room(aims, scratch=True)}
        block, job = run_encoder(model, grid, DECIDE, {"grade": grades}, fields)
        busy = _tiles(job.arrays["busy"], grid).sum(axis=0, dtype=np.int64)  # of brightness and of colors
        return Encoded(block, job.arrays["errors"].copy(), self._cut(job, shapes), busy)

    def decode(
        self,
        model: ContextModel,
        grid: Grid,
        shapes: Sequence[Shape],
        block: bytes,
        wanted: Sequence[int] | None = None,
    ) -> list[Pixels] | None:
        """The pictures of a block, or some of them: a third of the time goes into making them.

        None where a value is too large for the kernel: no picture gives such a block.
        """
        wanted = range(len(shapes)) if wanted is None else wanted
        fields = self._fields(grid, shapes, np.zeros(0, np.uint8), wanted)
        job = run_decoder(model, grid, block, fields)
        return None if job.numbers["wide"] else self._cut(job, [shapes[picture] for picture in wanted])

    def _cut(self, job: Job, shapes: Sequence[Shape]) -> list[Pixels]:
        pixels, out, at = job.arrays["decoded"].copy(), [], 0
        for height, width in shapes:
            size = height * width * len(self.factors[2])
            out.append(pixels[at : at + size].reshape(height, width, -1))  # (h, w, c)
            at += size
        return out

    @property
    def _network(self) -> int:
        return 0 if self.restorer is None else self.restorer.network

    @property
    def _inner_layers(self) -> int:
        return learned.inner_layers(self._network) if self._network else 0

    @functools.cached_property
    def _constants(self) -> Values:
        """Those of `PICTURE_FIELDS` that are the same for all blocks."""
        restorer, matrices = self.restorer, [np.asarray(factor) for factor in self.factors]
        arrays: dict[str, Array] = {
            "factors": np.concatenate([np.asarray(factor).ravel() for factor in self.analysis]),
            "factors_back": np.concatenate([matrix.T.ravel() for matrix in matrices]),
            "lap_before": tiling.filter_halves(tiling.BEFORE),
            "lap_after": tiling.filter_halves(tiling.AFTER),
        }
        if restorer is not None:
            arrays |= {name: getattr(restorer, name).copy() for name in FILTER}
        if self._network:
            arrays |= {"network": learned.numbers_of(self._network).copy()}
            arrays |= {"scales": self.scales, "inverses": learned.inverses_of(self.scales)}
        for array in arrays.values():
            array.flags.writeable = False  # so that the next job knows them
        return {
            "side": self.framing.height,
            "colors": len(matrices[2]),
            "lapped": int(self.lapped),
            "restored": 0 if restorer is None else 2 if restorer.mixing.size else 1,
            "bound": 0 if restorer is None else restorer.bound,
            "networked": self._inner_layers,
            "basis_bits": self.bits,
            **dict.fromkeys((*FILTER, *NETWORK), 0),
            **arrays,
        }

    def _fields(
        self, grid: Grid, every: Sequence[Shape], pixels: Pixels, wanted: Sequence[int]
    ) -> dict[str, Value]:
        """The values of `PICTURE_FIELDS` for those pictures of a block that are wanted."""
        side, colors = self.framing.height, len(self.factors[2])
        table = _table_of(grid, tuple(every))[list(wanted)]
        heights, widths, strides = (table[name].astype(np.int64) for name in ("height", "width", "stride"))
        most_tiles = int((table["down"] * table["right"]).max())
        # an odd number of lines of a cache, so that components lie in all parts of it
        apart = (-(-grid.size // 16) | 1) * 16
        # the filter has a plane for each color and five more, two lines, and nine lines of wider numbers
        lines = np.minimum(heights + 4, KERNEL.constants["LINES"])
        most_shorts = int(((colors + 5) * lines * strides + 2 * strides).max()) + 8
        return {
            "picture_count": len(table),
            **self._constants,
            "shapes": table,
            "pixels": pixels,
            "decoded": Room(colors * int((heights * widths).sum()), scratch=True),
            **dict.fromkeys(("passes", "push", "aims"), 0),  # of an encoder
            "errors": Room(len(table)),
            "apart": apart,
            "tiles": Room(colors * side**2 * apart + 4, scratch=True),
            "touched": Room(colors * side**2),
            "planes": Room(colors * side**2 * most_tiles, scratch=True),
            "shorts": Room(most_shorts, scratch=True),
            "ints": Room(9 * int(strides.max()) + 8, scratch=True),
            "layers": Room(self._layer_numbers(int(strides.max()), int(widths.max())), scratch=True),
        }

    def _layer_numbers(self, stride: int, width: int) -> int:
        """What the network needs: lines of samples, rows of its inputs and layers, and one of zeros."""
        if not self._network:
            return 0
        held, lines, margin = (KERNEL.constants[name] for name in ("HELD", "HELD_LINES", "MARGIN_PLACES"))
        row = (width + 1) // 2 + margin  # places
        maps = (1 + held * (1 + self._inner_layers)) * learned.MAPS
        return len(self.factors[2]) * lines * stride + row * (held * learned.INPUTS + maps)


def release(sample: Sequence[Pixels]) -> None:
    """Give back what the kernel and large arrays took, before work that has other ones."""
    if max((p.shape[0] * p.shape[1] for p in sample), default=0) >= 2 * tiling.BATCH_PIXELS:
        prepare(anew=True)


@functools.lru_cache(maxsize=16)
def _table_of(grid: Grid, shapes: tuple[Shape, ...]) -> Array:
    """The pictures of a block: their sizes, and where their tiles are."""
    table = np.zeros(len(shapes), RECORDS["Shape"])
    table["height"], table["width"] = np.array(shapes).T
    table["down"], table["right"] = np.array(grid.shapes).T
    table["place"] = grid.places[np.cumsum([0] + [math.prod(tiles) for tiles in grid.shapes])[:-1]]
    table["stride"] = [stride_of(width) for _, width in shapes]
    return table


def stride_of(width: int) -> int:
    """Samples from line to line where the filter works: margins, and whole vectors."""
    return (width + 19) // 8 * 8
