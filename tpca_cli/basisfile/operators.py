"""The operator in a basis file: written and read piece by piece, since it may fill the memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tpca_cli import store
from tpca_cli.basisfile.records import BASIS_SCHEMA, AnyPath
from tpca_cli.errors import FileRefused, printable
from tpca_cli.operators import ModeOperators, TensorOperator

Operator = ModeOperators | TensorOperator

PIECE = 1 << 17


def put_operator(writer: store.Writer, operator: Operator) -> None:
    writer.put("operator/sums", operator.sums)
    if isinstance(operator, ModeOperators):
        for k, matrix in enumerate(operator.matrices):
            writer.put(f"operator/modes/{k}", matrix)
        return
    stream = writer.stream("operator/lower", "<i8", (), PIECE, compress=True)
    digests = []
    for piece in _pieces(operator):
        stream.append(piece)
        digests.append(store.digest_of(piece))
    writer.put("operator/lower_digests", np.frombuffer(b"".join(digests), "u1").reshape(-1, 8))


def _pieces(operator: TensorOperator) -> Iterator[npt.NDArray[np.int64]]:
    """The packed triangle, PIECE values at a time."""
    held = np.zeros(0, np.int64)
    for row in range(0, operator.size, 64):
        held = np.concatenate([held, operator.packed(row, min(row + 64, operator.size))])
        while len(held) >= PIECE:
            yield held[:PIECE]
            held = held[PIECE:]
    if len(held):
        yield held


def add_operator(path: AnyPath, operator: Operator) -> None:
    """Add the operator of a file to one of the same kind and shape; refused where the file has none."""
    with store.open_checked(path, BASIS_SCHEMA) as reader:
        try:
            _add_operator(reader, operator)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FileRefused(f"{printable(path)} was refused: {error}") from error


def _add_operator(reader: store.Reader, operator: Operator) -> None:
    shape, n = operator.frame_shape, int(reader.meta["frames"])
    if not reader.has("operator/sums"):
        raise ValueError("it holds no operator; fit with --keep-operator or --operator-only")
    sums = reader.array("operator/sums")
    if sums.shape != shape:
        raise ValueError(f"its operator is of frames {sums.shape}, not {shape}")
    if isinstance(operator, ModeOperators):
        modes = {f"modes/{k}": reader.array(f"operator/modes/{k}") for k in range(len(shape))}
        if [matrix.shape for matrix in modes.values()] != [(size, size) for size in shape]:
            raise ValueError("the mode operators do not belong to the frames")
        operator.merge(ModeOperators.from_arrays({"n": np.array([n]), "sums": sums, **modes}))
        return
    if reader.shape("operator/lower") != (operator.size * (operator.size + 1) // 2,):
        raise ValueError("the operator has another size than the frames")
    _fill(operator, reader)
    operator.count(n, sums)


def _fill(operator: TensorOperator, reader: store.Reader) -> None:
    """Read the packed triangle piece by piece, each held to its digest."""
    digests, values = reader.array("operator/lower_digests"), reader.shape("operator/lower")[0]
    held, row = np.zeros(0, np.int64), 0
    for number, start in enumerate(range(0, values, PIECE)):
        piece = reader.rows("operator/lower", start, min(values, start + PIECE))
        if store.digest_of(piece) != digests[number].tobytes():
            raise ValueError(f"the operator is damaged at value {start}")
        held = np.concatenate([held, piece])
        whole, stop = 0, row
        while whole + stop + 1 <= len(held):
            whole, stop = whole + stop + 1, stop + 1
        operator.add_packed(held[:whole], row)
        held, row = held[whole:], stop
