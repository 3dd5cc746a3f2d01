"""A basis file as a whole: written from a basis and an operator, read back and held to its shapes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tpca_cli import store
from tpca_cli.bases import Basis, Rank1Basis, from_arrays
from tpca_cli.basisfile.operators import Operator, put_operator
from tpca_cli.basisfile.records import BASIS_SCHEMA, AnyPath, FittedBasis, Origin, StoredBasis
from tpca_cli.errors import FileRefused, printable
from tpca_cli.framing import Framing

Arrays = dict[str, npt.NDArray[Any]]


def write(
    path: AnyPath,
    origin: Origin,
    basis: Basis | None,
    operator: Operator | None,
    *,
    force: bool = False,
    expect: store.Identity | None = None,
) -> None:
    """Write a basis, an operator or both."""
    with store.create(path, BASIS_SCHEMA, force=force, expect=expect) as writer:
        writer.meta(
            {
                "method": origin.method,
                "framing": origin.framing.to_dict(),
                "dtype": origin.dtype,
                "frames": origin.frames,
                "size": origin.size,
                "center": origin.center,
                "solver": origin.solver,
                "choice": None if origin.choice is None else dict(origin.choice),
                "total": None if basis is None else basis.total,
                "measured": not isinstance(basis, Rank1Basis) or basis.measured,
            }
        )
        writer.put("images/digests", origin.digests, compress=False)
        if basis is not None:
            _put_basis(writer, basis)
        if operator is not None:
            put_operator(writer, operator)


def _put_basis(writer: store.Writer, basis: Basis) -> None:
    arrays = basis.to_arrays()
    for name in ("frame_shape", "total", "measured"):
        arrays.pop(name, None)  # in the metadata
    for name, array in arrays.items():
        if name == "indices":
            writer.put("basis/indices", array.astype("<i4"))
        else:
            writer.put(f"basis/{name}", array, compress=False)  # the bits of a float are noise


def read(path: AnyPath) -> StoredBasis:
    """What a file holds besides its operator; there may be no basis in it."""
    with store.open_checked(path, BASIS_SCHEMA) as reader:
        try:
            return _read(reader)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FileRefused(f"{printable(path)} was refused: {error}") from error


def read_basis(path: AnyPath) -> FittedBasis:
    """The basis of a file; a file with an operator alone is refused."""
    stored = read(path)
    if stored.basis is None:
        name = printable(path)
        raise FileRefused(f"{name} holds an operator without a basis: make one with `tpca merge {name}`")
    return FittedBasis(**{name: getattr(stored, name) for name in StoredBasis.__dataclass_fields__})


def _read(reader: store.Reader) -> StoredBasis:
    meta = reader.meta
    size = meta["size"]
    origin = Origin(
        method=str(meta["method"]),
        framing=Framing.from_dict(meta["framing"]),
        dtype=str(meta["dtype"]),
        frames=int(meta["frames"]),
        digests=reader.array("images/digests"),
        size=None if size is None else (int(size[0]), int(size[1])),
        center=bool(meta["center"]),
        solver=str(meta["solver"]),
        choice=meta["choice"],
    )
    if origin.dtype not in ("u1", "u2") or origin.frames < 1:
        raise ValueError(f"{origin.frames} frames of type {origin.dtype!r} are no frames")
    kind = "modes" if reader.has("operator/modes/0") else "tensor" if reader.has("operator/lower") else None
    basis = _read_basis(reader, origin) if reader.has("basis/energies") else None
    return StoredBasis(origin, basis, kind, reader.digest, reader.identity)


def _read_basis(reader: store.Reader, origin: Origin) -> Basis:
    arrays: Arrays = {
        name.removeprefix("basis/"): reader.array(name, limit=max(1 << 30, reader.stored_bytes(name)))
        for name in reader.names()
        if name.startswith("basis/")
    }
    arrays["frame_shape"] = np.array(origin.framing.frame_shape)
    arrays["total"] = np.array([float(reader.meta["total"])])
    arrays["measured"] = np.array([bool(reader.meta["measured"])])
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")
    basis = from_arrays(origin.method, arrays)
    _check_shapes(basis)
    return basis


def _check_shapes(basis: Basis) -> None:
    """A basis from a file must be able to do what a basis does."""
    shape, m = basis.frame_shape, basis.components
    if basis.mean is not None and basis.mean.shape != shape:
        raise ValueError("the mean has another shape than the frames")
    if not isinstance(basis, Rank1Basis):
        if basis.matrix.shape != (prod(shape), m) or basis.residuals.shape != (m,) or not m:
            raise ValueError(f"a matrix {basis.matrix.shape} is no basis of {m} tensors {shape}")
        return
    if [u.shape for u in basis.modes] != [(size, size) for size in shape]:
        raise ValueError("the modes do not belong to the frames")
    r = m if basis.rotation is None else len(basis.rotation)
    if basis.indices.shape != (r, len(shape)) or not m:
        raise ValueError(f"{basis.indices.shape} indices for {r} rank-1 tensors")
    if (basis.indices < 0).any() or (basis.indices >= np.array(shape)).any():
        raise ValueError("a multi-index lies outside the frame")
    if basis.rotation is not None and basis.rotation.shape != (r, m):
        raise ValueError("the rotation does not belong to the components")
