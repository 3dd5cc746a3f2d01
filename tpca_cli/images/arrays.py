"""Tensors in files: `.npy`, `.npz`, TIFF of several pages, folders of slices. Nothing is unpickled.

What a header claims is held to the size of the file before memory is taken, and `.npy` is mapped, not read.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
import zipfile
from collections.abc import Sequence
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.images.decode import MAX_PIXELS, read
from tpca_cli.images.encode import encode_file
from tpca_cli.images.source import open_source
from tpca_cli.tensors import DTYPES, Item

Array = NDArray[Any]

MAX_HEADER = 10_000
MAX_PAGES = 65_535
_TIFF_MODES = {"L": "u1", "RGB": "u1", "RGBA": "u1", "I;16": "u2", "I;16B": "u2", "F": "f4"}


def probe_npy(path: bytes, max_values: int = MAX_PIXELS) -> Item:
    """The kind of the tensor in a `.npy` file."""
    with _opened(path) as file:
        return _header(file, os.fstat(file.fileno()).st_size, max_values)[0]


def read_npy(path: bytes, max_values: int = MAX_PIXELS) -> Array:
    """The tensor of a `.npy` file, mapped; whoever uses it copies what is needed."""
    with _opened(path) as file:
        item, fortran, dtype = _header(file, os.fstat(file.fileno()).st_size, max_values)
        at = file.tell()
        return np.memmap(file, dtype, "r", at, item.shape, "F" if fortran else "C")


def probe_npz(path: bytes, max_values: int = MAX_PIXELS) -> list[tuple[str, Item | str]]:
    """The tensors of a `.npz` file by name; for one that cannot be read, why not."""
    found: list[tuple[str, Item | str]] = []
    with _opened(path) as file, _unzipped(file) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.is_dir() or name == info.filename:
                continue
            try:
                with archive.open(info) as member:
                    found.append((name, _header(member, info.file_size, max_values)[0]))
            except ImageRefused as error:
                found.append((name, str(error)))
            except (zipfile.BadZipFile, OSError, RuntimeError, EOFError, NotImplementedError) as error:
                found.append((name, f"damaged: {error}"))
    return found


def read_npz(path: bytes, name: str, max_values: int = MAX_PIXELS) -> Array:
    """One tensor of a `.npz` file."""
    try:
        with _opened(path) as file, _unzipped(file) as archive:
            info = archive.getinfo(f"{name}.npy")
            with archive.open(info) as member:
                item, fortran, dtype = _header(member, info.file_size, max_values)
                data = member.read(item.nbytes + 1)
    except (KeyError, zipfile.BadZipFile, OSError, RuntimeError, EOFError, NotImplementedError) as error:
        raise ImageRefused(f"damaged: {error}") from None
    if len(data) != item.nbytes:
        raise ImageRefused(f"{len(data)} bytes of samples, its header says {item.nbytes}")
    return np.frombuffer(data, dtype).reshape(item.shape, order="F" if fortran else "C")


def _unzipped(file: BinaryIO) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise ImageRefused(f"not a .npz file: {error}") from None


def _header(file: Any, size: int, max_values: int) -> tuple[Item, bool, np.dtype[Any]]:
    """Kind, order and type of the samples that follow; refused unless the file has room for them."""
    try:
        version = npy.read_magic(file)
        reader = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, fortran, dtype = reader(file, max_header_size=MAX_HEADER)
    except KeyError:
        raise ImageRefused("a version of .npy that is not known") from None
    except (ValueError, TypeError, EOFError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise ImageRefused(f"not a .npy file: {' '.join(str(error).split())[:200]}") from None
    code = dtype.newbyteorder("=").str[1:]
    if dtype.hasobject or dtype.names is not None or code not in DTYPES:
        raise ImageRefused(f"samples of type {dtype}; use uint8, uint16, float32 or float64")
    item = Item(tuple(int(side) for side in shape), code)
    if min(item.shape, default=0) < 1 or item.problem() is not None:
        raise ImageRefused(item.problem() or f"a tensor of shape {shape}")
    if item.size > max_values:
        raise ImageRefused(f"a tensor of {item.size} samples, the limit is {max_values}; raise --max-pixels")
    if size - file.tell() != item.nbytes:
        raise ImageRefused(f"{size - file.tell()} bytes of samples, its header says {item.nbytes}")
    return item, bool(fortran), dtype


def _opened(path: bytes) -> BinaryIO:
    descriptor, _ = open_source(path, 2**62)
    return os.fdopen(descriptor, "rb")


def probe_tiff(path: bytes, max_values: int = MAX_PIXELS) -> Item:
    """The kind of the tensor (pages, h, w) or (pages, h, w, c) that the pages of a TIFF file make."""
    with _opened(path) as file, _tiff(file) as image:
        return _pages(image, max_values)


def read_tiff(path: bytes, max_values: int = MAX_PIXELS) -> Array:
    """All pages of a TIFF file."""
    with _opened(path) as file, _tiff(file) as image:
        item = _pages(image, max_values)
        pages = np.empty(item.shape, np.dtype(item.dtype))
        for number, page in enumerate(pages):
            try:
                image.seek(number)
                if (image.height, image.width, _TIFF_MODES.get(image.mode)) != (*item.shape[1:3], item.dtype):
                    raise ImageRefused(f"page {number + 1} is {image.height}x{image.width} {image.mode}")
                page[...] = np.asarray(image).reshape(page.shape)
            except (OSError, EOFError, SyntaxError, ValueError, TypeError, KeyError) as error:
                raise ImageRefused(f"page {number + 1} cannot be decoded: {error}") from None
    return pages


def _tiff(file: BinaryIO) -> Image.Image:
    try:
        return Image.open(file, formats=["TIFF"])
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ImageRefused(f"not a TIFF file: {error}") from None


def _pages(image: Image.Image, max_values: int) -> Item:
    dtype = _TIFF_MODES.get(image.mode)
    if dtype is None:
        raise ImageRefused(f"pages of mode {image.mode}; use 8 or 16 bits or float32")
    try:
        count = int(getattr(image, "n_frames", 1))
    except (OSError, EOFError, SyntaxError, ValueError, KeyError, TypeError) as error:
        raise ImageRefused(f"its pages cannot be counted: {error}") from None
    channels = () if len(image.getbands()) == 1 else (len(image.getbands()),)
    item = Item((count, image.height, image.width, *channels), dtype)
    if count > MAX_PAGES or item.size > max_values:
        raise ImageRefused(
            f"{count} pages, {item.size} samples; the limit is {max_values}; raise --max-pixels"
        )
    if item.problem() is not None:
        raise ImageRefused(item.problem() or "")
    return item


def slices_in(folder: bytes) -> list[bytes]:
    """The names of the slices in a folder, by the numbers in them: 2.png comes before 10.png."""
    try:
        with os.scandir(folder) as listing:
            names = [
                entry.name
                for entry in listing
                if not entry.name.startswith(b".") and stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
            ]
    except OSError as error:
        raise StorageError.of(error, folder, "list") from error
    return sorted(names, key=_numbers)


def _numbers(name: bytes) -> list[tuple[int, int, bytes]]:
    parts = re.split(rb"([0-9]+)", name)
    return [(1, int(part), b"") if part.isdigit() else (0, 0, part) for part in parts]


def read_slices(folder: bytes, names: Sequence[bytes], max_values: int = MAX_PIXELS) -> Array:
    """The slices of a folder as one tensor (n, h, w) or (n, h, w, c)."""
    first: Array | None = None
    whole: Array | None = None
    for number, name in enumerate(names):
        try:
            pixels = read(os.path.join(folder, name), max_pixels=max_values).pixels
        except ImageRefused as error:
            raise ImageRefused(f"slice {name.decode(errors='replace')}: {error}") from None
        if first is None or whole is None:
            if pixels.size * len(names) > max_values:
                raise ImageRefused(f"{len(names)} slices of {pixels.size} samples; raise --max-pixels")
            first, whole = pixels, np.empty((len(names), *pixels.shape), pixels.dtype)
        if pixels.shape != first.shape or pixels.dtype != first.dtype:
            raise ImageRefused(
                f"slice {name.decode(errors='replace')} is {pixels.shape} {pixels.dtype}, "
                f"the first {first.shape} {first.dtype}"
            )
        whole[number] = pixels
    if whole is None:
        raise ImageRefused("no slices")
    return whole[..., 0] if whole.shape[-1] == 1 else whole


def npy_bytes(tensor: Array) -> bytes:
    """A tensor as a `.npy` file."""
    file = io.BytesIO()
    npy.write_array(file, np.ascontiguousarray(tensor), (1, 0), allow_pickle=False)
    return file.getvalue()


def tiff_bytes(tensor: Array) -> bytes:
    """A tensor (pages, h, w) or (pages, h, w, c) as a TIFF file."""
    pages = [Image.fromarray(np.ascontiguousarray(page)) for page in tensor]
    file = io.BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:], compression="raw")
    return file.getvalue()


def slice_bytes(tensor: Array) -> list[bytes]:
    """The slices of a tensor as PNG files."""
    stack = tensor[..., None] if tensor.ndim == 3 else tensor  # (n, h, w, c)
    mode = "I;16" if stack.dtype == np.uint16 else ("L", "LA", "RGB", "RGBA")[stack.shape[-1] - 1]
    return [encode_file(np.ascontiguousarray(page), mode) for page in stack]


def largest_of(tensor: Array) -> tuple[float, float]:
    """The smallest and the largest sample; refused where one is not a number."""
    smallest, largest = float(np.min(tensor)), float(np.max(tensor))
    if not (math.isfinite(smallest) and math.isfinite(largest)):
        raise ImageRefused("samples that are infinite or not a number")
    return smallest, largest
