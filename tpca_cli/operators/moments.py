"""Count, sum and energy of frames: what centering needs when no operator is formed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpca_cli.operators.exact import Integers

_ROWS = 1024  # shifted bytes: column energies stay within 2^24, exact in float32


class Moments:
    """n, S_i = X_in and the energy X_in X_in, exact for integer frames."""

    def __init__(self, frame_shape: tuple[int, ...]) -> None:
        self.n = 0
        self.sums: Integers = np.zeros(frame_shape, np.int64)
        self.energy = 0

    @classmethod
    def of(cls, n: int, sums: Integers, energy: int) -> Moments:
        """Moments that were counted elsewhere."""
        moments = cls(sums.shape)
        moments.n, moments.sums, moments.energy = n, sums, energy
        return moments

    def add(self, frames: npt.NDArray[np.unsignedinteger]) -> None:
        """Count a block of frames, (b, I_1, .., I_d)."""
        shift = 1 << (8 * frames.dtype.itemsize - 1)
        exact = np.float32 if frames.dtype.itemsize == 1 else np.float64
        for start in range(0, len(frames), _ROWS):
            part = frames[start : start + _ROWS]
            rows = part.reshape(len(part), self.sums.size)
            y = np.subtract(rows, shift, dtype=exact)  # (b, L)
            sums = (np.ones(len(y), exact) @ y).astype(np.int64)
            energy = int(np.einsum("bi,bi->i", y, y).astype(np.int64).sum())
            # x = y + s, so x^2 = y^2 + 2 s y + s^2
            self.energy += energy + 2 * shift * int(sums.sum()) + shift**2 * y.size
            self.sums += (sums + shift * len(y)).reshape(self.sums.shape)
            self.n += len(y)

    def mean(self) -> npt.NDArray[np.float64]:
        """The mean frame."""
        return self.sums / max(1, self.n)

    def total(self, *, center: bool) -> float:
        """The energy of the frames, or of the frames minus their mean."""
        if not center or self.n == 0:
            return float(self.energy)
        flat = self.sums.reshape(-1).astype(object)  # Python integers: n X^2 - S^2 must not round
        return max(0.0, float(self.n * self.energy - int(flat @ flat)) / self.n)
