"""The network before the filter: which one is taken, when it is, and that bands change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from codec.test_pictures import basis_of
from pictures import natural, noise

from tpca_cli.codec import bands, learned
from tpca_cli.codec.basis_coding import arrays_of, coder_from_arrays, meta_of
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.contexts import TABLED
from tpca_cli.errors import FileRefused
from tpca_cli.framing import Framing


def trained(sample: list[np.ndarray], step: float = 20.0, **options: object) -> Coder:
    channels = sample[0].shape[2]
    framing = Framing("tile", 8, 8, channels)
    return Coder.train(sample, framing, basis_of(8, channels, 1), step, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("network", [3, 26])
def test_bands_change_nothing(network: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(-1024, 3072, (2, 3, 75, 50)).astype(np.float32)
    scales = rng.integers(learned.FINEST, 5000, (2, 10, 7))
    whole = images.copy()
    learned.correct(whole, network, scales)
    assert not np.array_equal(whole, images)
    monkeypatch.setattr(bands, "BAND_PIXELS", 700)
    learned.correct(images, network, scales)
    np.testing.assert_array_equal(images, whole)


def test_the_nearest_network_of_its_kind_is_taken() -> None:
    found = [
        learned.network_for(center, lapped=lapped, seen=seen)
        for lapped in (False, True)
        for seen in (False, True)
        for center in learned.CENTERS[seen]
    ]
    assert found == [*range(1, 15), 26, *range(21, 26)]  # others are those of older archives
    assert learned.count() == 26
    assert [learned.inner_layers(network) for network in (25, 26)] == [1, 3]
    assert learned.network_for(0.02, lapped=True, seen=True) == learned.network_for(6, lapped=True, seen=True)


def test_photographs_have_a_network_and_noise_has_none() -> None:
    photograph = trained([natural(200, 176, 3, 3)], tune="visual")
    assert photograph.restorer is not None and photograph.restorer.network
    grain = trained([noise(200, 176, 3, 3)], step=4.0)
    assert grain.restorer is not None and not grain.restorer.network


def test_where_reading_shall_be_quick_there_is_none() -> None:
    coder = trained([natural(200, 176, 3, 3)], predictor=TABLED)
    assert coder.restorer is not None and not coder.restorer.network


@pytest.mark.parametrize("network", [-1, 10**6])
def test_an_unknown_network_is_refused(network: int) -> None:
    coder = trained([natural(200, 176, 3, 3)])
    assert meta_of(coder_from_arrays(meta_of(coder), arrays_of(coder))) == meta_of(coder)
    with pytest.raises(FileRefused, match="network"):
        coder_from_arrays({**meta_of(coder), "network": network}, arrays_of(coder))


def test_a_network_for_other_tiles_is_refused() -> None:
    sample = [natural(200, 176, 3, 3)]
    coder = Coder.train(sample, Framing("tile", 16, 16, 3), basis_of(16, 3, 1), 20.0)
    with pytest.raises(FileRefused, match="network"):
        coder_from_arrays({**meta_of(coder), "network": 1}, arrays_of(coder))
