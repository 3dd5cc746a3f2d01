"""The modes that tiles are coded in."""

from __future__ import annotations

import numpy as np
import pytest

from tpca_cli.encode.fit_design import Design, sample_basis
from tpca_cli.encode.fit_design import _cosines as cosines
from tpca_cli.framing import Framing
from tpca_cli.sources.probe import Kind
from tpca_cli.tensor_pca.basis import Rank1Basis


def basis_of(pictures: list[np.ndarray], step: float | None, channels: int = 3) -> Rank1Basis:
    framing, kind = Framing("tile", 8, 8, channels), Kind("u1", channels)
    found = sample_basis(Design("rank1", framing), pictures, kind, step)
    assert isinstance(found, Rank1Basis)
    return found


def tinted(channels: int) -> list[np.ndarray]:
    """Pictures whose mean color is far from gray, and whose brightness alone varies."""
    rng = np.random.default_rng(5)
    waves = np.cumsum(rng.normal(0, 6, (64, 64)), axis=1)[..., None] + rng.normal(0, 1, (64, 64, channels))
    return [np.clip(waves + [170, 90, 60, 200][:channels], 0, 255).astype(np.uint8)]


@pytest.mark.parametrize("channels", [3, 4])
def test_modes_suit_what_varies_inside_of_tiles(channels: int) -> None:
    pictures = tinted(channels)
    plain, found = (basis_of(pictures, step, channels) for step in (None, 6.0))
    for mode in found.modes:
        assert np.allclose(mode.T @ mode, np.eye(len(mode)), atol=1e-12)
    assert found.components == plain.components == 64 * channels
    frames = Framing("tile", 8, 8, channels).split(pictures[0])
    bits = [np.log2(1 + (one.project(frames) / 6) ** 2).sum() for one in (plain, found)]
    assert bits[1] < 0.97 * bits[0]


TILES, WHOLE = Framing("tile", 8, 8, 3), Framing("whole", 16, 24, 3)


@pytest.mark.parametrize(("framing", "step"), [(TILES, None), (TILES, 6.0), (WHOLE, None)])
def test_components_come_by_their_energy(framing: Framing, step: float | None) -> None:
    """Who keeps the first few gets the most; products of modes would put waves along one axis first."""
    pictures = [tinted(3)[0][y : y + 16, x : x + 24] for y in (0, 20, 40) for x in (0, 30)]
    found = sample_basis(Design("rank1", framing), pictures, Kind("u1", 3), step)
    frames = np.concatenate([framing.split(picture) for picture in pictures]).astype(float)  # (n, h, w, c)
    energies = np.sum((frames.reshape(len(frames), -1) @ found.columns()) ** 2, axis=0)  # (M,)
    assert (np.diff(energies) <= 1e-9 * energies[0]).all() and np.allclose(found.energies, energies)
    if step is None:
        assert found.total == pytest.approx((frames**2).sum())
        assert found.energy() == pytest.approx(1)


def test_modes_keep_the_energy_of_their_operators() -> None:
    """Other modes hold u' A^k u of each operator: as much in all, and at most as much in the first."""
    plain, found = (basis_of(tinted(3), step) for step in (None, 6.0))
    for old, new in zip(plain.mode_values, found.mode_values, strict=True):
        assert new.sum() == pytest.approx(old.sum())
        assert new.max() <= old.max() * (1 + 1e-12)
    again = plain.in_modes(plain.modes)
    for old, new in zip(plain.mode_values, again.mode_values, strict=True):
        assert np.allclose(old, new)
    assert again.residuals.max() < 1e-6 * plain.total


def separable(modes: np.ndarray) -> list[np.ndarray]:
    """A gray picture whose tiles are sums of a few products of columns."""
    rng = np.random.default_rng(3)
    weights = rng.normal(0, 1, (900, 8, 8)) * 300 * 0.3 ** np.add.outer(np.arange(8), np.arange(8))
    tiles = 128 + (modes @ weights @ modes.T).reshape(30, 30, 8, 8).swapaxes(1, 2).reshape(240, 240)
    return [np.clip(np.rint(tiles), 0, 255).astype(np.uint8)[..., None]]


@pytest.mark.parametrize("plain", [True, False])
def test_cosines_are_taken_unless_other_modes_promise_clearly_less(plain: bool) -> None:
    """Their first wave is flat: a tile that has nothing else is plain."""
    waves = cosines(8)
    turned = np.linalg.qr(np.random.default_rng(4).normal(0, 1, (8, 8)))[0]
    found = basis_of(separable(waves if plain else turned), 6.0, 1)
    for mode in found.modes[:2]:
        assert (np.abs(np.abs(mode.T @ waves) - np.eye(8)).max() < 1e-6) == plain
