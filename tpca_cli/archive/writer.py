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
from tpca_cli.archive.format import SCHEMA
from tpca_cli.archive.index import Index
from tpca_cli.store.columns import join_arrays

if TYPE_CHECKING:
    from tpca_cli.codec.coder import Coder
    from tpca_cli.tensor_pca.fixed_basis import FixedBasis

PAYLOAD_CHUNK = 2**20


@dataclass(frozen=True)
class Group:
    """What a set of blocks is decoded with. `basis` is None when only its digest is kept."""

    meta: Mapping[str, Any]  # method, dtype, channels, framing, basis_digest, coder
    basis: npt.NDArray[np.uint8] | None
    tables: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, coder: Coder, method: str, *, link: bool = False) -> Group:
        """The group of a coder; with `link`, without the basis itself."""
        arrays = coder.to_arrays()
        basis = embedded_basis(coder.basis)
        tables = join_arrays({name: arrays[name] for name in arrays if not name.startswith("basis_")})
        meta = {
            "method": method,
            "step": coder.step,
            "dtype": coder.basis.dtype.str[1:],
            "channels": coder.framing.channels,
            "basis_digest": store.digest_of(basis.tobytes()).hex(),
            "coder": coder.meta,
        }
        return cls(meta, None if link else basis, tables)


def embedded_basis(basis: FixedBasis) -> npt.NDArray[np.uint8]:
    """A basis as an archive holds it; its digest names it when it is linked instead."""
    return join_arrays({f"basis_{name}": array for name, array in basis.to_arrays().items()})


def write_archive(
    target: Path,
    index: Index,
    groups: Sequence[Group],
    payload: Iterable[bytes],
    *,
    target_asked: Mapping[str, Any],
    force: bool = False,
    expect: Any = None,
) -> int:
    """Write and commit an archive; returns its size in bytes. `payload` yields the blocks' bytes in order."""
    meta = {"target": dict(target_asked), "groups": [dict(group.meta) for group in groups]}
    total = int(index.offsets[-1])
    index.check(total, meta["groups"])  # type: ignore[arg-type]
    with store.create(target, SCHEMA, force=force, expect=expect) as file:
        file.meta(meta)
        for number, group in enumerate(groups):
            if group.basis is not None:
                file.put(f"groups/{number}/basis", group.basis, compress=True)
            file.put(f"groups/{number}/tables", group.tables, compress=True)
        for name, array in index.to_arrays().items():
            file.put(name, array, compress=True)
        # equal chunks, so that the last one is not mostly padding
        chunk = -(-max(total, 1) // -(-max(total, 1) // PAYLOAD_CHUNK))
        stream = file.stream("payload", "u1", (), chunk)
        for data in _gathered(payload):
            stream.append(np.frombuffer(data, np.uint8))
    return os.stat(target).st_size


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
