"""Items in sources: which files, or folders of slices, are tensors of one kind, and why others are not."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpca_cli.errors import ImageRefused, StorageError, TpcaError, UsageError, printable
from tpca_cli.images import arrays
from tpca_cli.images.source import DIGEST_BYTES, file_digest
from tpca_cli.names import name_problem
from tpca_cli.sources.scan import Skipped
from tpca_cli.tensors import Item

NPY, NPZ, TIFF, SLICES = "npy", "npz", "tiff", "slices"
ENDINGS = {b".npy": NPY, b".npz": NPZ}
TIFF_ENDINGS = (b".tif", b".tiff")


@dataclass(frozen=True, slots=True)
class ItemRef:
    """One tensor: where it is, what the archive calls it, and in which form it is kept there."""

    path: bytes
    name: bytes
    form: str
    key: str = ""  # of a .npz file
    slices: tuple[bytes, ...] = ()

    def read(self, max_values: int) -> NDArray[np.generic]:
        """Its samples; refused where one is not a number."""
        if self.form == NPY:
            tensor = arrays.read_npy(self.path, max_values)
        elif self.form == NPZ:
            tensor = arrays.read_npz(self.path, self.key, max_values)
        elif self.form == TIFF:
            tensor = arrays.read_tiff(self.path, max_values)
        else:
            tensor = arrays.read_slices(self.path, self.slices, max_values)
        arrays.largest_of(tensor)
        return tensor

    def digest(self, size: int = DIGEST_BYTES) -> bytes:
        """Of its file, or of all of its slices."""
        if self.form != SLICES:
            own = file_digest(self.path, size)
            return (
                own if not self.key else hashlib.blake2b(own + self.key.encode(), digest_size=size).digest()
            )
        parts = b"".join(file_digest(os.path.join(self.path, name), size) for name in self.slices)
        return hashlib.blake2b(parts, digest_size=size).digest()

    def stat(self) -> tuple[int, int]:
        """Bytes of its files, and when the newest was changed."""
        paths = [os.path.join(self.path, name) for name in self.slices] or [self.path]
        found = [os.stat(path) for path in paths]
        return sum(each.st_size for each in found), max(each.st_mtime_ns for each in found)


@dataclass(frozen=True)
class Items:
    """Tensors of one kind, by name, and what was left out."""

    refs: tuple[ItemRef, ...]
    item: Item
    skipped: tuple[Skipped, ...]


def find_items(
    sources: Sequence[str], max_values: int, wanted: Item | None = None, on_error: str = "skip"
) -> Items:
    """The tensors of the sources that are of one kind: the wanted one, or the most frequent."""
    found: dict[bytes, tuple[ItemRef, Item | str]] = {}
    for source in sources:
        path = os.fsencode(source)
        if not os.path.lexists(path):
            raise UsageError(f"no such file or folder: {printable(path)}")
        prefix = os.path.basename(os.path.abspath(path)) if len(sources) > 1 else b""
        below = _below(path, prefix) if os.path.isdir(path) else _file(path, os.path.basename(path))
        for ref in below:
            if ref.name in found:
                raise UsageError(f"two tensors would be called {printable(ref.name)}")
            found[ref.name] = ref, ""
    probed = [pair for name in sorted(found) for pair in _probed(found[name][0], max_values)]
    kinds = Counter(item for _, item in probed if isinstance(item, Item))
    if not kinds and wanted is None:
        raise _nothing(sources, [Skipped(ref.path, str(why)) for ref, why in probed])
    kind = wanted or min(kinds, key=lambda item: (-kinds[item], item.shape, item.dtype))
    refs, skipped = [], []
    for ref, item in probed:
        if isinstance(item, str):
            skipped.append(Skipped(ref.path, item))
        elif item != kind:
            skipped.append(Skipped(ref.path, f"{item}, where the others are {kind}"))
        elif name_problem(ref.name) is not None:
            skipped.append(Skipped(ref.path, f"cannot be restored: {name_problem(ref.name)}"))
        else:
            refs.append(ref)
    if skipped and on_error == "fail":
        raise TpcaError(f"{printable(skipped[0].path)}: {skipped[0].reason}; --on-error skip leaves it out")
    if not refs:
        raise _nothing(sources, skipped)
    return Items(tuple(refs), kind, tuple(skipped))


def _nothing(sources: Sequence[str], skipped: Sequence[Skipped]) -> TpcaError:
    where = ", ".join(printable(os.fsencode(source)) for source in sources)
    first = f"; the first is {printable(skipped[0].path)}: {skipped[0].reason}" if skipped else ""
    error = TpcaError(f"no tensor in {where} can be used ({len(skipped)} skipped{first})")
    error.skipped = tuple((item.path, item.reason) for item in skipped)
    return error


def _file(path: bytes, name: bytes) -> list[ItemRef]:
    ending = os.path.splitext(path)[1].lower()
    if ending in ENDINGS:
        return [ItemRef(path, name, ENDINGS[ending])]
    return [ItemRef(path, name, TIFF)] if ending in TIFF_ENDINGS else []


def _below(root: bytes, prefix: bytes) -> list[ItemRef]:
    """Arrays and TIFF files at any depth; other folders with files in them are stacks of slices."""
    found: list[ItemRef] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if not each.startswith(b"."))
        shown = sorted(name for name in names if not name.startswith(b"."))
        own = os.path.relpath(folder, root)
        own = b"" if own == b"." else own
        here = [part for part in (prefix, own) if part]
        files = [ref for name in shown for ref in _file(os.path.join(folder, name), b"/".join([*here, name]))]
        arrays_here = [ref for ref in files if ref.form != TIFF]
        paged = [ref for ref in files if ref.form == TIFF and _several(ref.path)]
        found += arrays_here + paged
        if shown and not arrays_here and not paged:
            name = b"/".join(here) or os.path.basename(os.path.abspath(root))
            found.append(ItemRef(folder, name, SLICES, slices=tuple(arrays.slices_in(folder))))
    return found


def _several(path: bytes) -> bool:
    try:
        return arrays.probe_tiff(path).shape[0] > 1
    except (ImageRefused, StorageError):
        return True  # said when it is probed


def _probed(ref: ItemRef, max_values: int) -> list[tuple[ItemRef, Item | str]]:
    """The tensors of a file with their kinds, or why there is none."""
    try:
        if ref.form == NPZ:
            stem = os.path.splitext(ref.name)[0]
            return [
                (ItemRef(ref.path, b"%s/%s.npy" % (stem, key.encode()), NPZ, key), kind)
                for key, kind in arrays.probe_npz(ref.path, max_values)
            ] or [(ref, "no tensors in it")]
        if ref.form == NPY:
            return [(ref, arrays.probe_npy(ref.path, max_values))]
        if ref.form == TIFF:
            return [(ref, arrays.probe_tiff(ref.path, max_values))]
        tensor = ref.read(max_values)
        return [(ref, Item(tensor.shape, tensor.dtype.str[1:]))]
    except (ImageRefused, StorageError) as error:
        return [(ref, str(error))]
