"""Writing an archive: groups, index and payload into one file, committed whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tpca_cli import store
from tpca_cli.archive.format import (
    BOUNDED,
    CODED_BASIS,
    GRAINS,
    LEARNED,
    MODELS,
    OBLIQUE,
    PEAK,
    REGIONS,
    SCHEMAS,
    WHOLE_GRAINS,
)
from tpca_cli.archive.index import Index
from tpca_cli.errors import TpcaError
from tpca_cli.store.columns import join_arrays

if TYPE_CHECKING:
    from tpca_cli.codec.coder import Coder
    from tpca_cli.exact.coders import ExactCoder
    from tpca_cli.tensor_pca.fixed_basis import FixedBasis

PAYLOAD_CHUNK = 2**20


@dataclass(frozen=True)
class Group:
    """What a set of blocks is decoded with. `basis` is None when only its digest is kept."""

    meta: Mapping[str, Any]  # method, dtype, channels, step, peak, features, basis_digest, coder
    basis: npt.NDArray[np.uint8] | None
    tables: npt.NDArray[np.uint8]

    def made_with(self, digest: str) -> bool:
        """Whether its basis, or what that was coded from, has this digest."""
        basis = self.meta["coder"]["basis"]
        coded = basis.get("coded") or {}
        return digest in (self.meta["basis_digest"], basis.get("source"), coded.get("source"))

    @classmethod
    def of(cls, coder: Coder, method: str, *, link: bool = False, peak: int | None = None) -> Group:
        """The group of a coder; with `link`, without the basis itself. `peak` is the range of the samples."""
        from tpca_cli.codec.basis_coding import arrays_of, meta_of  # late: repack and append may need none

        arrays = arrays_of(coder)
        of_basis = {name: array for name, array in arrays.items() if name.startswith("basis_")}
        basis = join_arrays(of_basis)
        tables = join_arrays({name: array for name, array in arrays.items() if name not in of_basis})
        meta = {
            "method": method,
            "step": coder.step,
            "dtype": coder.basis.dtype.str[1:],
            "channels": coder.framing.channels,
            "peak": peak if peak is not None else PEAK[coder.basis.dtype.str[1:]],
            "features": _features(coder),
            "basis_digest": store.digest_of(basis.tobytes()).hex(),
            "coder": meta_of(coder),
        }
        return cls(meta, None if link else basis, tables)


def exact_group(coder: ExactCoder, dtype: str, channels: int, peak: int) -> Group:
    """The group of images that come back exactly, or within the tolerance of the coder."""
    from tpca_cli.exact.coders import described  # late: few archives have such groups

    description = described(coder, channels)
    meta = {
        "method": coder.method,
        "step": 2 * description["tolerance"] + 1,
        "dtype": dtype,
        "channels": channels,
        "peak": peak,
        "features": [f"exact-{coder.method}"],
        "basis_digest": "",
        "coder": description,
    }
    return Group(meta, None, join_arrays(coder.to_arrays()))


@dataclass(frozen=True)
class Contents:
    """The parts of an archive that was just written, or is open."""

    index: Index
    groups: Sequence[Mapping[str, Any]]  # as the file describes them
    target: Mapping[str, Any]
    digest: str
    size: int  # bytes of the file
    stored: Mapping[str, int]  # bytes that each dataset takes in it

    @classmethod
    def of(cls, file: store.Reader, index: Index, groups: Sequence[Mapping[str, Any]]) -> Contents:
        """The parts of a file that was read."""
        return cls(index, groups, file.meta.get("target", {}), file.digest, file.size, file.stored)


def _features(coder: Coder) -> list[str]:
    """What a reader must know to decode the group."""
    coded = coder.basis.coded
    models = {coder.predictor, coded.settings.get("model") if coded is not None else 1}
    asked = {CODED_BASIS: coded is not None, REGIONS: coder.factors is not None}
    asked |= {name: model in models for model, name in MODELS.items()}
    asked |= {GRAINS: coder.grains is not None, WHOLE_GRAINS: coder.whole > 0, OBLIQUE: coder.basis.oblique}
    if coder.restorer is not None:
        asked |= {BOUNDED: coder.restorer.bound > 0, LEARNED: coder.restorer.network > 0}
    return [name for name, needed in asked.items() if needed]


def embedded_basis(basis: FixedBasis) -> npt.NDArray[np.uint8]:
    """A basis as an archive holds it; its digest names it when it is linked instead."""
    return join_arrays({f"basis_{name}": array for name, array in basis.to_arrays().items()})


def basis_digest(basis: FixedBasis) -> str:
    """The digest of a basis as an archive holds it."""
    return store.digest_of(embedded_basis(basis).tobytes()).hex()


def write_archive(
    target: Path,
    index: Index,
    groups: Sequence[Group],
    payload: Iterable[bytes],
    *,
    target_asked: Mapping[str, Any],
    force: bool = False,
    expect: Any = None,
) -> Contents:
    """Write and commit an archive in the version of its index; what the file then holds.

    `payload` yields the blocks' bytes in order.
    """
    described = [_described(group, index.version) for group in groups]
    meta = {"target": dict(target_asked), "groups": described}
    total = int(index.offsets[-1])
    index.check(total, described)
    with store.create(
        target, SCHEMAS[index.version], force=force, expect=expect, most_open=most_open(index)
    ) as file:
        file.meta(meta)
        written: set[str] = set()
        for number, group in enumerate(groups):
            known = index.version > 1 and str(group.meta["basis_digest"]) in written
            if group.basis is not None and not known:
                file.put(f"groups/{number}/basis", group.basis, compress=True)
                written.add(str(group.meta["basis_digest"]))
            file.put(f"groups/{number}/tables", group.tables, compress=True)
        for name, array in index.to_arrays().items():
            file.put(name, array, compress=True)
        # equal chunks, so that the last one is not mostly padding
        chunk = -(-max(total, 1) // -(-max(total, 1) // PAYLOAD_CHUNK))
        stream = file.stream("payload", "u1", (), chunk, rows=total)
        file.describe()  # all but the payload is in: what a cut leaves of it can be found
        for data in _gathered(payload):
            stream.append(np.frombuffer(data, np.uint8))
    return Contents.of(file.checked, index, described)


def most_open(index: Index) -> int:
    """Permissions that every image's source gave: an archive is no more open than its most private source."""
    bits = np.asarray(index.images["mode_bits"])[index.alive]
    if index.version == 1:
        bits = bits[bits > 0]  # it has none: those of the images that were just added
    return 0o600 | int(np.bitwise_and.reduce(bits, initial=0o777))


def _described(group: Group, version: int) -> dict[str, Any]:
    """What the file says of a group; version 1 has no words for some of it."""
    meta = dict(group.meta)
    if version > 1:
        return meta
    peak, features = meta.pop("peak", None), meta.pop("features", [])
    if features or peak not in (None, PEAK[meta["dtype"]]):
        raise TpcaError(
            "the archive is of version 1, which cannot hold what the new images need "
            f"({', '.join(features) or f'samples up to {peak}'}): encode them into another file"
        )
    return meta


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Small pieces joined, so that HDF5 is not called once per block."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= PAYLOAD_CHUNK:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def linked_basis(path: str | os.PathLike[str]) -> npt.NDArray[np.uint8]:
    """The basis of a file in the form that an archive made with it would embed."""
    from tpca_cli.basisfile import read_basis
    from tpca_cli.tensor_pca.fixed_basis import integer_basis

    stored = read_basis(path)
    fixed = integer_basis(stored.basis, stored.dtype, short=True)
    return embedded_basis(fixed)
