"""A dense basis in few bytes: its eigentensors coded as pictures, by the same coder as images.

An error dU_l of an eigentensor costs lambda_l |dU_l|^2 in the data, so what is coded is sqrt(lambda_l) U_l,
all with one step (reverse water-filling): an eigentensor that carries little is kept coarsely, or not at all.
With lambda_l summed over the frames that are coded, the best step is the one of the coefficients themselves.
Where it saves more than it takes, they are turned among themselves first (`rotation`).

The integers that come out are the basis, for the encoder too: it projects onto what a decoder has.
Whatever a coder is stored as is therefore written and read here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec import rotation
from tpca_cli.codec.coder import GAIN, STEP_LIMIT, Coder
from tpca_cli.codec.contexts import LED, LEVELS, PREDICTORS, SHARED, TABLED
from tpca_cli.codec.grains import read_grains
from tpca_cli.codec.kernel_job import GRADES
from tpca_cli.codec.restore import Restorer
from tpca_cli.codec.tiling import REACH
from tpca_cli.codec.token_tables import TokenTables
from tpca_cli.errors import FileRefused
from tpca_cli.framing import TILE, Canvas, Framing
from tpca_cli.tensor_pca.fixed_basis import SCALE, CodedForm, FixedBasis, Floats

Arrays = Mapping[str, NDArray[Any]]

FINENESS = 32
"""Pictures of eigentensors are rounded to this part of a step, before anything is quantised."""
MOST = 1 << 15
"""The largest sample of such a picture: eigentensors beyond it get a coarser step."""
COARSER = 1.1
"""What that may make of the noise of all of them; finer steps than this allows are left to plain integers."""
TILES = (16, 8, 4)
BLOCK_PIXELS = 1 << 19
CANVAS_NUMBERS = 1 << 24
"""Places times components of a block, as in every archive."""
NUMBERS, NUMBERS_PER_BYTE = 1 << 22, 256
"""A basis has at most so many numbers, and so many more for each byte that codes them."""
SHIFT = 39
"""Fractional bits, with those of the basis, of the factors that give an eigentensor its length back."""
LARGEST_FACTOR, LARGEST_SAMPLE = (1 << 30) - 1, 1 << 23
"""Their products are below 2^53."""
WEAKEST = 0.25
"""Of an eigentensor that keeps less than this share of its square, nothing is kept."""
ROTATION_SHARE = 0.05
"""A rotation is tried where its own numbers take less than this share of the basis."""


def code_basis(
    basis: FixedBasis,
    weights: Floats,
    step: float,
    source: str = "",
    coefficients: Callable[[], Floats] | None = None,
) -> FixedBasis:
    """The basis as its coded form gives it back; `basis` itself where that form is no smaller.

    `weights` (M,) are sqrt(lambda_l) over the frames that are going to be coded with this step. `source` is
    the digest by which the plain integers are known. `coefficients` gives those of some frames, (n, M).
    """
    if basis.indices is not None or basis.coded is not None:
        return basis
    columns = basis.factors[0] * 2.0**-basis.bits  # (L, M)
    shape = picture_shape(basis.frame_shape)
    wanted = weights * (FINENESS / step)
    cut = np.maximum(np.abs(columns).max(axis=0) * wanted / MOST, 1.0)  # (M,)
    lengths = wanted / cut
    if min(shape[:2]) < TILES[-1] or not _possible(shape, columns.shape[1]):
        return basis
    if not lengths.any() or (cut**2).mean() > COARSER:
        return basis
    best, size = basis, basis.stored_bytes
    found = _coded(basis, columns * lengths, lengths, source, None)
    if found is not None and found.stored_bytes < size:
        best, size = found, found.stored_bytes
    if coefficients is not None and columns.shape[1] ** 2 * rotation.BITS / 8 < ROTATION_SHARE * size:
        found = _coded(basis, columns * lengths, lengths, source, rotation.stored_rotation(coefficients()))
        best = best if found is None or found.stored_bytes >= size else found
    return best


def _coded(
    basis: FixedBasis, columns: Floats, lengths: Floats, source: str, turn: NDArray[np.int16] | None
) -> FixedBasis | None:
    """The coded form of columns (L, M) that have these lengths, turned or not; None if it is no basis."""
    if turn is not None:  # what is multiplied with its transpose again when it is read
        columns = np.linalg.solve(turn * 2.0**-rotation.BITS, columns.T).T
    shape = picture_shape(basis.frame_shape)
    pictures = np.rint(columns).T.reshape(-1, *shape)  # (M, h, w, c)
    if np.abs(pictures).max(initial=0) > MOST:
        return None
    coder = _trained(pictures, shape)
    factors = np.zeros(len(lengths))
    np.divide(2.0**SHIFT / SCALE, lengths, out=factors, where=lengths > 0)
    factors = np.where(factors <= LARGEST_FACTOR, np.rint(factors), 0)
    arrays: dict[str, NDArray[Any]] = dict(arrays_of(coder))
    arrays["lengths"] = factors.astype(np.uint32)
    if turn is not None:
        arrays["rotation"] = turn
    blocks, values = _blocks(coder, pictures)
    scaled = _scaled(values, arrays["lengths"], basis.bits, turn)  # (L, M)
    weak = ((scaled * 2.0**-basis.bits) ** 2).sum(axis=0) < WEAKEST
    if weak.any():
        arrays["lengths"][weak] = 0
        scaled[:, weak] = 0
        if turn is None:
            pictures[weak] = 0
            blocks, _ = _blocks(coder, pictures)
    arrays["sizes"] = np.array([len(block) for block in blocks], np.uint32)
    arrays["payload"] = np.frombuffer(b"".join(blocks), np.uint8)
    form = CodedForm({**meta_of(coder), "source": source}, arrays)
    coded = replace(basis, factors=(scaled.astype(np.int64),), coded=form)
    return coded if coded.bounded and coded.invertible else None


def meta_of(coder: Coder) -> dict[str, Any]:
    """Plain JSON that, with `arrays_of`, rebuilds the coder."""
    return {
        "framing": coder.framing.to_dict(),
        "basis": coder.basis.meta,
        "step": coder.step_units,
        "components": coder.components,
        "lapped": coder.lapped,
        "restore": coder.restore_step,
        **({"bound": coder.restorer.bound} if coder.restorer and coder.restorer.bound else {}),
        **({"network": coder.restorer.network} if coder.restorer and coder.restorer.network else {}),
        **({} if coder.factors is None else {"region": coder.region}),
        **({"whole": coder.whole} if coder.whole else {}),
        **({} if coder.predictor == PREDICTORS[0] else {"model": coder.predictor}),
    }


def arrays_of(coder: Coder) -> dict[str, NDArray[Any]]:
    """The tables and the basis as small integer arrays."""
    arrays = {f"basis_{name}": array for name, array in coder.basis.to_arrays().items()}
    gains = coder.gains if coder.lapped or coder.factors is not None else None
    known = {
        "scales": (coder.scales, np.uint8),
        "lowest": (coder.lowest, np.uint8),
        "centers": (coder.centers, np.int32),
        "gains": (gains, np.uint16),
        "factors": (coder.factors, np.uint16),
        "grains": (coder.grains, np.uint16),
        "shares": (coder.shares, np.uint8),
    }
    arrays |= {name: array.astype(kind) for name, (array, kind) in known.items() if array is not None}
    arrays |= {} if coder.tokens is None else coder.tokens.to_arrays()
    return arrays if coder.restorer is None else arrays | {"restore": coder.restorer.to_array()}


def stored_bytes(coder: Coder) -> int:
    """How large the arrays of a coder are."""
    return sum(array.nbytes for array in arrays_of(coder).values())


def coder_from_arrays(meta: Mapping[str, Any], arrays: Arrays) -> Coder:
    """The coder that `meta_of` and `arrays_of` described, its basis decoded if that is coded."""
    try:
        settings = meta["basis"].get("coded")
        if settings is None:
            return _coder(meta, arrays)
        shape = tuple(int(side) for side in meta["basis"]["frame"])
        inner = {k.removeprefix("basis_coded_"): v for k, v in arrays.items() if k.startswith("basis_coded_")}
        factor = decode_basis(shape, int(meta["basis"]["bits"]), settings, inner)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileRefused(f"coded basis is incomplete or malformed ({error})") from error
    return _coder(meta, {**arrays, "basis_factor0": factor})


def _coder(meta: Mapping[str, Any], arrays: Arrays) -> Coder:
    """The same with the integers of its basis at hand; refused unless every number is possible."""
    try:
        framing = Framing.from_dict(meta["framing"])
        inner = {k.removeprefix("basis_"): v for k, v in arrays.items() if k.startswith("basis_")}
        basis = FixedBasis.from_arrays(meta["basis"], inner)
        step, kept, lapped = int(meta["step"]), int(meta["components"]), bool(meta["lapped"])
        regions = "factors" in arrays
        gains = np.asarray(arrays["gains"]) if lapped or regions else np.full(kept, GAIN)
        factors = np.asarray(arrays["factors"]).astype(np.int64) if regions else None
        region = int(meta["region"]) if regions else 1
        grains, whole = read_grains(meta, arrays, kept)
        scales, lowest, centers, gains = (
            np.asarray(array).astype(np.int64)
            for array in (arrays["scales"], arrays["lowest"], arrays["centers"], gains)
        )
        restorer = Restorer.read(meta, arrays.get("restore"), framing.channels)
        shares = np.asarray(arrays["shares"]).astype(np.int64) if "shares" in arrays else None
        own_tables = any(name.startswith("token_") for name in arrays)
        tokens = TokenTables.from_arrays(arrays) if own_tables else None
        restore_step, predictor = int(meta["restore"]), int(meta.get("model", PREDICTORS[0]))
    except (KeyError, TypeError, ValueError) as error:
        raise FileRefused(f"coder is incomplete or malformed ({error})") from error
    shapes = (scales.shape, gains.shape, lowest.shape, centers.shape)
    if not (1 <= step < STEP_LIMIT and 0 < kept <= basis.components):
        raise FileRefused(f"coder has step {step} and {kept} components of {basis.components}")
    if basis.frame_shape != framing.frame_shape or (lapped and framing.kind != TILE):
        raise FileRefused(f"coder frames {framing.frame_shape} but its basis {basis.frame_shape}")
    coder = Coder(
        framing, basis, step, kept, lapped, scales, lowest, centers, gains, restorer, restore_step,
        factors, region, predictor, grains, None, whole, shares, tokens,
    )  # fmt: skip
    if restorer is not None and restorer.network and not coder.knows_networks:
        raise FileRefused(f"coder of frames {framing.frame_shape} has a network")
    if predictor not in PREDICTORS:
        raise FileRefused(f"coder has a model {predictor}")
    if shares is not None and (predictor != LED or shares.shape != (coder.channels - 1, SHARED)):
        raise FileRefused(f"coder of model {predictor} has impossible shares {shares.shape}")
    if tokens is not None and (predictor != TABLED or not tokens.fits(coder.token_families)):
        raise FileRefused(f"coder of model {predictor} has impossible tables of tokens")
    if factors is not None and not (
        factors.ndim == 1 and 1 < factors.size <= GRADES and factors.min() > 0 and region in (1, 2, 4)
    ):
        raise FileRefused(f"coder has impossible regions: {region} tiles, {factors.shape} factors")
    if shapes != ((kept,), (kept,), (coder.channels, LEVELS), (coder.channels,)) or gains.min() < 1:
        raise FileRefused(f"coder has tables of impossible shapes {shapes}")
    return coder


def decode_basis(
    frame_shape: tuple[int, ...], bits: int, settings: Mapping[str, Any], arrays: Arrays
) -> Floats:
    """The integers (L, M) of a coded basis; refused before anything large is made of them."""
    lengths, sizes, payload = (np.asarray(arrays[name]) for name in ("lengths", "sizes", "payload"))
    shape, count = picture_shape(frame_shape), lengths.size
    if (
        not 1 <= bits < SHIFT
        or lengths.shape != (count,)
        or not count
        or sizes.ndim != 1
        or payload.ndim != 1
        or payload.dtype != np.uint8
    ):
        raise FileRefused("a coded basis has tables of impossible shapes")
    if math.prod(shape) * count > NUMBERS + NUMBERS_PER_BYTE * payload.size:
        raise FileRefused(f"a basis of {count} tensors {frame_shape} in {payload.size} bytes")
    coder = _coder(settings, arrays)
    tile = coder.framing.height
    if coder.framing != Framing(TILE, tile, tile, shape[2]) or tile not in TILES:
        raise FileRefused(f"a coded basis of {frame_shape} with frames {coder.framing.frame_shape}")
    each = _per_block(shape, tile)
    if not each or sizes.size != -(-count // each) or int(sizes.sum(dtype=np.uint64)) != payload.size:
        raise FileRefused("the blocks of a coded basis are not those of its tensors")
    data, at, parts = payload.tobytes(), 0, []
    for block, size in enumerate(sizes.tolist()):
        here = min(each, count - block * each)
        parts.append(coder.decode_signed(data[at : at + size], shape[:2], here))
        at += size
    return _scaled(np.concatenate(parts), lengths, bits, _rotation(arrays, count))


def _rotation(arrays: Arrays, count: int) -> NDArray[Any] | None:
    """The rotation of a coded basis, if it has one."""
    turn = arrays.get("rotation")
    if turn is not None and (
        turn.shape != (count, count)
        or turn.dtype != np.int16
        or np.abs(turn.astype(np.int64)).max() > rotation.MOST
    ):
        raise FileRefused("a coded basis has an impossible rotation")
    return turn


def picture_shape(frame_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Rows, columns and channels of the picture that an eigentensor is coded as."""
    if len(frame_shape) >= 3 and frame_shape[-1] <= 4:
        return math.prod(frame_shape[:-2]), frame_shape[-2], frame_shape[-1]
    return math.prod(frame_shape[:-1]), frame_shape[-1], 1


def _possible(shape: tuple[int, int, int], count: int) -> bool:
    return bool(_per_block(shape, _tile(shape))) and math.prod(shape) * count <= NUMBERS * NUMBERS_PER_BYTE


def _tile(shape: tuple[int, int, int]) -> int:
    return next((tile for tile in TILES if tile <= min(shape[:2])), TILES[-1])


def _per_block(shape: tuple[int, int, int], tile: int) -> int:
    """Pictures of a block; 0 if not even one may be in it."""
    grid = -(-shape[0] // tile), -(-shape[1] // tile)
    if Canvas().beside(*grid).places * tile * tile * shape[2] > CANVAS_NUMBERS:
        return 0
    return max(1, BLOCK_PIXELS // (grid[0] * grid[1] * tile * tile))


def _trained(pictures: Floats, shape: tuple[int, int, int]) -> Coder:
    """A coder of cosine modes, with the colors of these pictures, whose step is FINENESS."""
    tile, channels = _tile(shape), shape[2]
    samples = pictures.reshape(-1, channels)
    _, colors = np.linalg.eigh(samples.T @ samples)  # falling from here on
    colors = colors[:, ::-1] * np.where(colors.sum(axis=0) < 0, -1, 1)[::-1]
    indices = np.stack(np.unravel_index(np.arange(tile * tile * channels), (tile, tile, channels)), axis=1)
    modes = FixedBasis.from_modes([_cosines(tile), _cosines(tile), colors], indices, dtype=np.uint16)
    lapped = tile >= 2 * REACH and max(shape[:2]) > tile
    sample = list(pictures[:: max(1, len(pictures) // 64)])
    framing = Framing(TILE, tile, tile, channels)
    return Coder.train(sample, framing, modes, FINENESS, effort=0, lapped=lapped)


def _cosines(n: int) -> Floats:
    k = np.arange(n)
    modes = np.cos(np.pi * (2 * k[:, None] + 1) * k[None, :] / (2 * n)) * math.sqrt(2 / n)
    modes[:, 0] /= math.sqrt(2)
    return modes


def _blocks(coder: Coder, pictures: Floats) -> tuple[list[bytes], Floats]:
    """The coded blocks, and the pictures (M, c, h, w) that they stand for, in 1/SCALE."""
    shape = (pictures.shape[1], pictures.shape[2], pictures.shape[3])
    each, blocks, parts = _per_block(shape, coder.framing.height), [], []
    for start in range(0, len(pictures), each):
        data, values = coder.encode_signed(list(pictures[start : start + each]))
        blocks.append(data)
        parts.append(values)
    return blocks, np.concatenate(parts)


def _scaled(values: Floats, lengths: NDArray[Any], bits: int, turn: NDArray[Any] | None = None) -> Floats:
    """Decoded pictures (M, c, h, w) as eigentensors (L, M) of the length they had; all are integers."""
    rows = np.moveaxis(values, 1, -1).reshape(len(values), -1)  # (M, L)
    _check_samples(rows)
    if turn is not None:  # sums are below 2^11 2^23 M
        rows = np.floor(turn.astype(np.float64) @ rows * 2.0**-rotation.BITS + 0.5)
        _check_samples(rows)
    if lengths.max(initial=0) > LARGEST_FACTOR:
        raise FileRefused("a coded basis has lengths beyond their range")
    product = rows * lengths[:, None].astype(np.float64) * 2.0 ** (bits - SHIFT)
    return np.ascontiguousarray(np.floor(product + 0.5).T)


def _check_samples(rows: Floats) -> None:
    if np.abs(rows).max(initial=0) >= LARGEST_SAMPLE:
        raise FileRefused("a coded basis has samples beyond their range")
