"""Frequencies of tokens, for blocks that are read without learning: the format's, moved toward a folder's.

Whatever learns while it reads finds out by itself what is frequent; tables have to be told. Components whose
tokens are alike share a set of tables, and a set is stored as how far each frequency is from the format's.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca_cli.codec.priors import FAMILIES, ROWS, TOKENS, Priors
from tpca_cli.codec.scan_order import Ints

Floats = NDArray[np.float64]

ONE = 1 << 16
"""The sum of all frequencies of a row."""
MOST_OF_FAMILY = 4
SETS = FAMILIES * MOST_OF_FAMILY
"""Most sets that a group may have; set s has values of the family s % FAMILIES."""
EIGHTHS = (1024, 1117, 1218, 1328, 1448, 1579, 1722, 1878)
"""2^(k/8), in 1/1024."""
FARTHEST = 63
"""Of a move, in eighths of an octave."""
DOUBT = 20.0
"""Tokens that the tables of the format count as, beside those that were seen."""
FINENESSES = (1, 2, 4)
"""Steps that moves may have: what moves in large ones takes fewer bytes."""
WORTH_BITS = 80.0
"""Rows of tables that save less stay as they are."""
ROUNDS = 8
"""Of sorting components by the set that suits them."""


@dataclass(frozen=True, eq=False)
class TokenTables:
    """Moves (sets, ROWS, TOKENS) of frequencies, in eighths of an octave, and the set of each component."""

    moves: NDArray[np.int8]
    sets: NDArray[np.uint8]  # (M,)

    def frequencies(self, priors: Priors) -> Ints:
        """Frequencies (sets, ROWS, TOKENS) of 2^16, none of them 0."""
        families = np.arange(len(self.moves)) % FAMILIES
        octaves, eighths = np.divmod(self.moves.astype(np.int64), 8)
        weights = priors.tables.astype(np.int64)[families] * np.array(EIGHTHS)[eighths] << (8 + octaves)
        found: Ints = 1 + (ONE - TOKENS) * weights // weights.sum(axis=2, keepdims=True)
        found[..., 0] += ONE - found.sum(axis=2)
        return found

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As an archive has it."""
        return {"token_moves": self.moves, "token_sets": self.sets}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> TokenTables:
        """The mirror of `to_arrays`."""
        moves, sets = np.asarray(arrays["token_moves"]), np.asarray(arrays["token_sets"])
        if moves.dtype != np.int8 or sets.dtype != np.uint8:
            raise ValueError(f"tables of tokens are {moves.dtype} and {sets.dtype}, not int8 and uint8")
        return cls(moves, sets)

    def fits(self, families: Ints) -> bool:
        """Whether this can be of components with these families (M,)."""
        if self.moves.ndim != 3 or self.moves.shape[1:] != (ROWS, TOKENS):
            return False
        sets, rest = divmod(len(self.moves), FAMILIES)
        if rest or not 0 < sets <= MOST_OF_FAMILY:
            return False
        near = np.abs(self.moves.astype(np.int64)).max() <= FARTHEST
        alike = self.sets.shape == families.shape and (self.sets % FAMILIES == families).all()
        return bool(near and alike and self.sets.max(initial=0) < len(self.moves))


def fit_tables(counts: Ints, families: Ints, priors: Priors, scale: float = 1.0) -> TokenTables | None:
    """The tables that save the most, their own bytes included; None if those of the format are better.

    `counts` (M, ROWS, TOKENS) are how often components of these families (M,) had each token in a sample, of
    which there is `scale` times as much in all.
    """
    best, least = None, scale * _price(counts, priors.tables[families])
    for of_family, fineness in itertools.product((1, 2, MOST_OF_FAMILY), FINENESSES):
        tables = _fitted(counts, families, priors, of_family, fineness, scale)
        stored = b"".join(array.tobytes() for array in tables.to_arrays().values())
        price = scale * _price(counts, tables.frequencies(priors)[tables.sets]) + 8 * len(
            zlib.compress(stored)
        )
        if price < least:
            best, least = tables, price
    return best


def _price(counts: Ints, frequencies: NDArray[np.generic]) -> float:
    """Bits that these tokens take."""
    return float((counts * (16 - np.log2(frequencies.astype(np.float64)))).sum())


def _fitted(
    counts: Ints, families: Ints, priors: Priors, of_family: int, fineness: int, scale: float
) -> TokenTables:
    """Tables of so many sets of each family, their moves in steps of `fineness` eighths of an octave."""
    sets = families.copy()
    moves = np.zeros((FAMILIES * of_family, ROWS, TOKENS), np.int64)
    for family in np.unique(families):
        members = np.flatnonzero(families == family)
        prior = priors.tables[family] / ONE
        chosen = _sorted_by_size(counts[members], of_family)
        for turn in itertools.count():
            total = np.stack([counts[members[chosen == k]].sum(axis=0) for k in range(of_family)])
            shares = _shares(total, prior)  # (sets, ROWS, TOKENS)
            prices = np.tensordot(counts[members], -np.log2(shares), axes=((1, 2), (1, 2)))  # (members, sets)
            if turn == ROUNDS or of_family == 1:
                break
            chosen = prices.argmin(axis=1)
        sets[members] = family + FAMILIES * chosen
        worth = scale * (total * np.log2(shares / prior)).sum(axis=2) > WORTH_BITS  # (sets, ROWS)
        nearest = fineness * np.rint(8 * np.log2(shares / prior) / fineness)
        moves[family::FAMILIES] = np.clip(nearest * worth[..., None], -FARTHEST, FARTHEST)
    return TokenTables(moves.astype(np.int8), sets.astype(np.uint8))


def _shares(counts: Ints, prior: Floats) -> Floats:
    """The share (.., ROWS, TOKENS) of each token in its row, with what the format expects."""
    seen = counts + DOUBT * prior
    found: Floats = seen / seen.sum(axis=-1, keepdims=True)
    return found


def _sorted_by_size(counts: Ints, parts: int) -> Ints:
    """As many parts of components (M,), by the mean size of their tokens."""
    sizes = (counts * np.arange(TOKENS)).sum(axis=(1, 2)) / np.maximum(counts.sum(axis=(1, 2)), 1)
    ranks = np.argsort(np.argsort(sizes, kind="stable"), kind="stable")
    found: Ints = (ranks * parts // max(len(ranks), 1)).astype(np.int64)
    return found
