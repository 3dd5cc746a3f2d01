"""The compiled coder, `kernel/walk.wasm`, and the fields of its job, written once.

The coder learns from every bit, which arrays cannot do. Jobs may run in any thread or forked process.
`BLOCK_FIELDS`, `PICTURE_FIELDS`, `RECORDS` and `CONSTANTS` are what C and Python must agree on: `make kernel`
writes `kernel/job.h` from them. `block_job` fills in the fields of a block, `kernel_run` makes jobs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import learned, restore, tiling
from tpca_cli.codec.contexts import (
    CLASSES,
    CODES,
    FLAG_FEATURES,
    LEVELS,
    LOWEST_FEATURES,
    TABLED,
    UNIT,
)
from tpca_cli.codec.priors import FAMILIES, ROWS, TOKENS
from tpca_cli.codec.token_tables import SETS
from tpca_cli.tensor_pca.fixed_basis import SCALE_BITS
from tpca_cli.wasm import Field, Kernel, Values

Array = NDArray[Any]

DECODE, DECIDE, REPLAY = 0, 1, 2
"""What a job does: read, decide and write, or write what was decided before."""
CHUNK = 512  # values that are looked at together
LAMBDA = 0.08
"""Bits are worth this many squared steps."""
GRADES = 16
"""Most steps that the regions of a group may have."""
CYCLE = 4
"""Classes 44 to 47 stand for all larger ones too: for each octave above, one more low bit goes out raw."""
LOG_PRICES = 64
PRICE_SHIFT = 4
"""Prices of bits are tabulated for probabilities of 2^16, without so many low bits."""
SIDES = (4, 8, 16, 32)
MOST_COLORS = 4
"""The tiles that the kernel has room for."""

CONSTANTS = {
    "DECODE": DECODE,
    "DECIDE": DECIDE,
    "REPLAY": REPLAY,
    "TABLED": TABLED,
    "GRADES": GRADES,
    "FAMILIES": FAMILIES,
    "ROWS": ROWS,
    "TOKENS": TOKENS,
    "SETS": SETS,
    "CYCLE": CYCLE,
    "CLASSES": CLASSES,
    "CODES": CODES,
    "UNIT": int(UNIT),
    "CHUNK": CHUNK,
    "FINENESSES": LEVELS,
    "FLAG_FEATURES": FLAG_FEATURES,
    "LOWEST_FEATURES": LOWEST_FEATURES,
    "LOG_PRICES": LOG_PRICES,
    "PRICE_SHIFT": PRICE_SHIFT,
    "LARGEST_TILE": max(SIDES),
    "COLORS": MOST_COLORS,
    "SCALE_BITS": SCALE_BITS,
    "REACH": tiling.REACH,
    "LAP_BITS": tiling.LAP_BITS,
    "SUBPIXEL": restore.SUBPIXEL,
    "PAIRS": len(restore.PAIRS),
    "LEVELS": restore.LEVELS,
    "RESTORE_BITS": restore.BITS,
    "LINES": 24,  # of each plane that the filter has at a time
    "WINDOW": restore.WINDOW,
    "FLATNESS": restore.FLATNESS,
    "DARKEST": learned.DARKEST,
    "BRIGHTEST": learned.BRIGHTEST,
    "SLOPE_LIMIT": restore.SLOPE_LIMIT,
    "FOLLOW_SHIFT": restore.FOLLOW_SHIFT,
    "FOLLOW_LIMIT": restore.FOLLOW_LIMIT,
    "INPUTS": learned.INPUTS,
    "MAPS": learned.MAPS,
    "PHASES": learned.PHASES,
    "LEARNED_MIDDLE": learned.MIDDLE,
    "MOST_CHANGE": learned.MOST_CHANGE,
    "HELD": 4,  # rows of each layer of the network that there are at a time,
    "HELD_LINES": 2 * learned.DEEP + 6,  # and lines of samples
    "MOST_INNER": learned.DEEP,
    "MARGIN_PLACES": 8,  # beside the places of a row
}
"""What C and Python share."""


def _record(*names: str, **shapes: int) -> np.dtype[Any]:
    """A struct of 32-bit integers, then of short arrays of them."""
    return np.dtype([(n, np.int32) for n in names] + [(n, np.int32, (k,)) for n, k in shapes.items()])


RECORDS = {
    # rows start:stop, zones numbered over all colors, rows of the zone before, the zone of the first channel
    "Step": _record(
        "start", "stop", "color", "zone", "opens", "before", "before_stop", "first", sights=2, sights_stop=2
    ),
    "Level": _record("count", "fineness"),
    # the first tile, tiles down and across, the first tiles of the regions to the left and above (0 for none)
    "Region": _record("place", "down", "right", "left", "above"),
    # near rows (-1 for none), the axis along which the lowest component slopes (0 for none), counters
    "Near": _record("axis", "channel", "sign_spot", rows=7),
    # where the borders of a tile are (above, below, left, right), and how much a component counts there
    "Edge": _record(at=4, weight=4),
    "Hit": np.dtype([("place", np.int32), ("class", np.int32), ("symbol", np.int64)]),
    # pixels, tiles, the place of the first tile, samples from line to line where the filter works
    "Shape": _record("height", "width", "down", "right", "place", "stride"),
}
"""Structs that arrays of a job consist of."""

BLOCK_FIELDS = (
    Field("i32", "mode", "DECODE, DECIDE or REPLAY"),
    Field("i32", "symbols", "whether symbols go out in place of the values that they stand for"),
    Field("i32", "rows", "components, in the scan order"),
    Field("i32", "size", "places on the canvas of tiles"),
    Field("i32", "room", "the size in whole vectors"),
    Field("i32", "stride", "places from a tile to the one below"),
    Field("i32", "colored", "the first row of color"),
    Field("i32", "channels"),
    Field("i32", "zones"),
    Field("u32", "capacity", "of `bytes`"),
    Field("u32", "length", "of the block, out"),
    Field("i32", "damaged", "out"),
    Field("i32", "wide", "out: a value is too large for `tiles`, so no pictures were made"),
    Field("i32", "model", "what values are predicted from"),
    Field("i32", "rich", "whether from more than the first model has"),
    Field("i32", "led", "whether color is predicted from brightness"),
    Field("i32", "edge_room", "numbers of the borders of a tile, 0 where no sign is predicted from them"),
    Field("i32", "direct", "whether values go to `tiles` only"),
    Field("i32", "step_count"),
    Field("i32", "level_count"),
    Field("i32", "even_count", "tiles of the first phase"),
    Field("i32", "odd_count", "tiles of the second phase"),
    Field("i32", "grades", "1 where all regions have the same step"),
    Field("i32", "region_count"),
    Field("const Region *", "regions"),
    Field("const i32 *", "phases", "places of the even tiles, then of the odd ones"),
    Field("const Level *", "levels"),
    Field("const i32 *", "level_places", "one after another"),
    Field("const i32 *", "level_around", "four for each place"),
    Field("const Step *", "steps"),
    Field("const i32 *", "sights", "(kind, row) of each sight"),
    Field("const i32 *", "looks", "(2 rows + 1,) where the looks of a row and phase begin"),
    Field("const i32 *", "look_pairs", "the pair of sights of each look, from the first of step and phase"),
    Field("const Near *", "near", "(rows,)"),
    Field("const Edge *", "row_edges", "(rows,)"),
    Field("const i32 *", "shares", "(rows,) how far a component of color follows brightness, in 1/64"),
    Field("const u8 *", "inside", "(size,) whether there is a tile"),
    Field("const i32 *", "lowest_rows", "(channels,)"),
    Field("const i16 *", "look_weights", "two for each look"),
    Field("const u32 *", "bases", "(rows, 2)"),
    Field("const u8 *", "maps", "(rows, CODES)"),
    Field("const double *", "quanta", "(grades, rows) quantiser steps"),
    Field("const u8 *", "whole", "(grades, rows) whether values are whole multiples of their step"),
    Field("const double *", "heed", "(grades, rows) what an error of a squared step counts"),
    Field("const double *", "expected", "(rows,)"),
    Field("const i64 *", "lowest_priors", "(channels, FINENESSES)"),
    Field("const i64 *", "centers", "(channels,)"),
    Field("const i64 *", "flag_weights", "(steps, 2, FLAG_FEATURES)"),
    Field("const i64 *", "lowest_weights", "(2, LOWEST_FEATURES)"),
    Field("i32", "sets", "of tables"),
    Field("const u8 *", "own_set", "(rows,) the set of each component, its family where there is learning"),
    Field("const i32 *", "tables", "(sets, ROWS, TOKENS)"),
    Field("const i32 *", "flag_tables", "(CLASSES, 2)"),
    Field("const i32 *", "offsets", "(CLASSES, 4)"),
    Field("const double *", "prices", "(FAMILIES, CLASSES, TOKENS) squared steps that a token costs"),
    Field("const double *", "log_prices", "(LOG_PRICES,), the first is the price of one bit"),
    Field("const double *", "bit_prices", "of a bit, by its probability >> PRICE_SHIFT"),
    Field("double *", "data", "(rows, size) coefficients or symbols in, values or symbols out"),
    Field("u8 *", "grade", "(size,) in and out"),
    Field("u8 *", "wanted", "(zones, size) flags in"),
    Field("u8 *", "opened", "(zones, size) flags out"),
    Field("u16 *", "own", "(rows + 1, size) magnitudes; the last are zeros"),
    Field("u8 *", "small", "(rows + 1, size) magnitudes up to 15"),
    Field("u8 *", "around", "(rows + 1, size) their sums over the four tiles beside"),
    Field("i8 *", "signs", "(rows, size)"),
    Field("u8 *", "busy", "(2, size) how much a tile holds so far"),
    Field("double *", "low", "(channels, size)"),
    Field("i32 *", "totals", "(size,) what a tile holds in the rows that its flag looks at"),
    Field("double *", "worth", "(3, size)"),
    Field("u8 *", "classes", "(most rows of a step, room) of the values of its rows"),
    Field("u8 *", "closest", "(size,) what surrounds the values of a row"),
    Field("u8 *", "crowded", "(size,) what surrounds the values of a row"),
    Field("i8 *", "turns", "(size,) the signs beside them"),
    Field("i32 *", "spots", "(CHUNK, 8) values of a row with what predicts them"),
    Field("u32 *", "placed", "counters of the first stages by component and class: (rows, 16, 2)"),
    Field("u32 *", "tall", "counters of the later stages by component: (rows, TOKENS - 1)"),
    Field("i32 *", "light", "(colored, size) values of the first channel, if colors are led by it"),
    Field("i32 *", "lit", "(colored, size) where they are not 0, by phase"),
    Field("i32 *", "lit_counts", "(colored, 2)"),
    Field("i32 *", "when_found", "(size,) in which step and phase slopes were found"),
    Field("double *", "together", "(channels, size, 2) sums of squares, and of products with a color"),
    Field("i32 *", "slopes", "(channels, size) how much of a color goes with brightness"),
    Field("double *", "fit", "(rows, 2) out: coefficients times what brightness says, squares of this"),
    Field("i32 *", "guesses", "(size,) of the values of a row"),
    Field("i32 *", "edges", "(edge_room, size) samples along the borders of tiles"),
    Field("u32 *", "records", "(values and flags,) what is written when all is known, without learning"),
    Field("i32", "counting", "whether tokens are counted"),
    Field("u32 *", "counts", "(rows, ROWS, TOKENS) out: tokens of each component by row of the tables"),
    Field("Hit *", "hits", "(room,) what was coded in a row and is not zero"),
    Field("i16 *", "seen", "(most pairs of a step, CHUNK, 2)"),
    Field("i32 *", "live", "(4, size)"),
    Field("u8 *", "bytes", "the block"),
)
PICTURE_FIELDS = (
    Field("i32", "picture_count", "0 for a job on coefficients: what follows is then not read"),
    Field("i32", "side", "of a tile"),
    Field("i32", "apart", "numbers of `tiles` from a component to the next"),
    Field("i32", "colors"),
    Field("i32", "lapped"),
    Field("i32", "restored", "0 without the filter, 1 by brightness, 2 also between channels"),
    Field("i32", "bound", "of what the filter knows of differences within it, 0 for nothing"),
    Field("i32", "networked", "layers of the network before the filter from maps to maps, 0 for no network"),
    Field(
        "i32", "passes", "how often an encoder codes pictures, each time by what came back the time before"
    ),
    Field("i32", "push", "how much of what the filter added is taken off what is wanted, in 1/8"),
    Field("i32", "basis_bits"),
    Field("const Shape *", "shapes"),
    Field("const i32 *", "indices", "(rows, 3)"),
    Field("const double *", "factors", "matrices of analysis: down, across, colors"),
    Field("const double *", "factors_back", "matrices of synthesis"),
    Field("const double *", "lap_before", "(2, 4, 4) even and odd halves"),
    Field("const double *", "lap_after", "(2, 4, 4)"),
    Field("const i32 *", "borders", "of the filter's classes"),
    Field("const i32 *", "weights", "of the filter, for each class"),
    Field("const i32 *", "mixing", "of the filter, between channels"),
    Field("const i16 *", "network", "its numbers"),
    Field("const i32 *", "scales", "(grades,) steps as the network knows them"),
    Field("const i32 *", "inverses", "(grades,) of these"),
    Field("const u8 *", "pixels", "of all pictures, in"),
    Field("u8 *", "decoded", "pixels out"),
    Field("double *", "aims", "(rows, size) coefficients of the pictures, where there are several passes"),
    Field("i64 *", "errors", "(pictures,) squared, out"),
    Field("i32 *", "tiles", "(colors, side, side, apart) values by channel, column, row and tile"),
    Field("u8 *", "touched", "(colors, side, side) whether any of them is written"),
    Field("double *", "planes", "samples of one picture"),
    Field("i16 *", "shorts", "planes of the filter, and two lines"),
    Field("i32 *", "ints", "lines of the filter"),
    Field("i16 *", "layers", "lines of samples and rows of the network"),
)
KERNEL = Kernel("codec/kernel/walk.wasm", BLOCK_FIELDS + PICTURE_FIELDS, RECORDS, CONSTANTS)
NO_PICTURES: Values = {field.name: 0 for field in PICTURE_FIELDS}


def prepare(anew: bool = False) -> None:
    """Compile now: processes that are forked later inherit the instance instead of making their own.

    An instance made anew does not have the memory that jobs took so far, which all of them would share.
    """
    (KERNEL.renew if anew else KERNEL.instance)()
