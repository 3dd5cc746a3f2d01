"""The package and the reference decoder agree on any coder, not only on those of the golden archives."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_decoder
import reference_exact
from pictures import natural, noise

from tpca_cli.archive.reader import Archive
from tpca_cli.codec import learned
from tpca_cli.codec.basis_coding import arrays_of, meta_of
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.contexts import LED, TABLED
from tpca_cli.codec.priors import shipped
from tpca_cli.codec.token_tables import fit_tables
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.fixed_basis import FixedBasis

EXACT = Path(__file__).parents[1] / "golden" / "exact"
PRIORS = json.loads(reference_decoder.PRIORS.read_text())

CASES = {
    # frame, kind, components, step, images
    "some components in any order": ((8, 8, 3), "tile", 50, 20.0, [(17, 20), (8, 8)]),
    "tiles of 5": ((5, 5, 3), "tile", 75, 2.0, [(11, 31), (3, 2), (9, 9)]),
    "gray, fine": ((8, 8, 1), "tile", 64, 0.02, [(33, 26)]),
    "gray and alpha": ((4, 4, 2), "tile", 32, 9.0, [(9, 14)] * 2),
    "RGBA, coarse": ((8, 8, 4), "tile", 256, 90.0, [(16, 41)]),
    "whole and wide": ((3, 37, 3), "whole", 333, 6.0, [(3, 37)] * 3),
    "one pixel": ((1, 1, 3), "whole", 3, 1.0, [(1, 1)] * 4),
}


def coder_of(
    seed: int,
    frame: Any,
    kind: str,
    components: int,
    step: float,
    pictures: list[Any],
    lapped: bool = True,
    tune: str = "psnr",
    predictor: int = LED,
) -> Coder:
    rng = np.random.default_rng(seed)
    modes = [np.linalg.qr(rng.normal(size=(side, side)))[0] for side in frame]
    indices = np.stack(np.unravel_index(rng.permutation(np.prod(frame))[:components], frame), axis=1)
    mean = rng.integers(0, 255, frame) if seed % 2 else None
    basis = FixedBasis.from_modes(modes, indices, dtype=pictures[0].dtype, mean=mean)
    framing = Framing(kind, frame[0], frame[1], frame[2])
    lapped = bool(lapped and kind == "tile" and frame[0] >= 8)
    return Coder.train(pictures, framing, basis, step, lapped=lapped, tune=tune, predictor=predictor)


def check_agreement(coder: Coder, pictures: list[Any], components: int | None = None) -> None:
    data = coder.encode(pictures).data
    shapes = [(int(p.shape[0]), int(p.shape[1])) for p in pictures]
    arrays = {name: (list(a.shape), a.ravel().tolist()) for name, a in arrays_of(coder).items()}
    got = reference_decoder.decode_block(PRIORS, (meta_of(coder), arrays), data, shapes, components)
    for mine, theirs in zip(coder.decode(data, shapes, components), got, strict=True):
        assert mine.tolist() == theirs


@pytest.mark.parametrize("name", CASES)
def test_any_coder_is_read_the_same_way(name: str) -> None:
    frame, kind, components, step, shapes = CASES[name]
    seed = list(CASES).index(name)
    sample = [natural(h, w, frame[2], seed + k) for k, (h, w) in enumerate(shapes)]
    coder = coder_of(seed, frame, kind, components, step, sample)
    check_agreement(coder, sample, components // 3)
    check_agreement(coder, [noise(h, w, frame[2], k) for k, (h, w) in enumerate(shapes)])


FAST = {
    # frame, kind, components, step, images, lapped, tune
    "gray, lapped": ((8, 8, 1), "tile", 64, 9.0, [(33, 26), (8, 8)], True, "psnr"),
    "gray, so fine that values escape": ((8, 8, 1), "tile", 64, 0.02, [(17, 26)], False, "psnr"),
    "color with regions, lapped": ((8, 8, 3), "tile", 192, 12.0, [(25, 41), (5, 3)], True, "visual"),
    "color with regions, not lapped": ((8, 8, 3), "tile", 192, 30.0, [(40, 24)], False, "visual"),
    "some components in any order": ((8, 8, 3), "tile", 50, 4.0, [(17, 20)], False, "psnr"),
    "RGBA in tiles of 16": ((16, 16, 4), "tile", 1024, 20.0, [(30, 33)], True, "psnr"),
    "whole": ((3, 37, 3), "whole", 333, 6.0, [(3, 37)] * 3, False, "psnr"),
    "one pixel": ((1, 1, 3), "whole", 3, 0.1, [(1, 1)] * 4, False, "psnr"),
}


@pytest.mark.parametrize("name", FAST)
def test_any_coder_without_learning_is_read_the_same_way(name: str) -> None:
    """By the tables of the format, and by those that suit a thousand times the sample."""
    frame, kind, components, step, shapes, lapped, tune = FAST[name]
    seed = 2 * list(FAST).index(name)
    sample = [natural(h, w, frame[2], seed + k) for k, (h, w) in enumerate(shapes)]
    coder = coder_of(seed, frame, kind, components, step, sample, lapped, tune, TABLED)
    assert coder.lapped == lapped and coder.tune == tune
    check_agreement(coder, sample, components // 3)
    tables = fit_tables(coder.count_tokens(sample), coder.token_families, shipped(), 1000.0)
    assert tables is not None and tables.moves.any()
    coder = dataclasses.replace(coder, tokens=tables)
    check_agreement(coder, sample)
    check_agreement(coder, [noise(h, w, frame[2], k) for k, (h, w) in enumerate(shapes)])


def test_a_dense_basis_without_learning_is_read_the_same_way() -> None:
    """Components that have no places in a tile, samples of 16 bits, and a value of each size."""
    rng = np.random.default_rng(0)
    columns = np.linalg.qr(rng.normal(size=(48, 20)))[0]
    basis = FixedBasis.from_dense(columns, (6, 8, 1), dtype=np.uint16)
    sample = [rng.integers(0, 1 << int(bits), (6, 8, 1)).astype(np.uint16) for bits in (1, 6, 11, 16)]
    coder = Coder.train(sample, Framing("whole", 6, 8, 1), basis, 0.5, predictor=TABLED)
    check_agreement(coder, sample)
    check_agreement(coder, sample, 7)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("largest", [0, 40, 1023])
@pytest.mark.parametrize("bound", [0, 31, 4095])
def test_a_harsh_filter_on_noise_is_read_the_same_way(channels: int, largest: int, bound: int) -> None:
    """Large weights on the largest differences: no sum of the restoring filter is rounded."""
    from tpca_cli.codec.restore import Restorer, bright_count, feature_count

    pictures = [noise(24, 24, channels, 1) // 128 * 255, noise(13, 9, channels, 2)]
    coder = coder_of(2, (8, 8, channels), "tile", 64 * channels, 300.0, pictures)
    size = bright_count(bound)
    signs = np.where(np.arange(24 * size).reshape(24, size) % 5 < 3, 127, -127)
    features = feature_count(channels)
    mixing = np.where(np.arange(channels * features) % 7 < 3, largest, -largest).reshape(channels, features)
    if not largest or channels == 1:
        mixing = np.zeros((0, 0), np.int64)
    restorer = Restorer(np.arange(1, 8) * 4000, signs, mixing, bound)
    check_agreement(dataclasses.replace(coder, restorer=restorer, restore_step=coder.step_units), pictures)


@pytest.mark.parametrize("network", range(1, learned.count() + 1))
def test_every_network_is_read_the_same_way(network: int) -> None:
    """On pictures and on noise, with and without regions, and with steps beyond those that it knows."""
    channels, tune, step = (
        network % 4 + 1,
        ("psnr", "visual")[network // 4 % 2],
        (1.0, 20.0, 2000.0)[network % 3],
    )
    sample = [natural(192, 184, channels, network)]
    coder = coder_of(2, (8, 8, channels), "tile", 64 * channels, step, sample, network > 10, tune)
    assert coder.restorer is not None and coder.tune == tune
    coder = dataclasses.replace(coder, restorer=dataclasses.replace(coder.restorer, network=network))
    check_agreement(coder, [natural(17, 26, channels, 1), noise(9, 5, channels, 2) // 128 * 255])


def test_no_sum_of_a_network_leaves_its_32_bits() -> None:
    for network in range(1, learned.count() + 1):
        parts = learned.layers_of(learned.numbers_of(network).astype(np.int64), network)[::2]
        weights = [
            part.reshape(9, -1, outputs, 2)
            for part, outputs in zip(parts, [*[16] * (len(parts) - 1), 4], strict=True)
        ]
        sums = [np.abs(each).sum(axis=(0, 1, 3)).max() for each in weights]
        largest = learned.inverses_of(np.array(learned.FINEST))
        assert ((sums[0] * 2048 >> 9) + 1) * largest + (1 << 14) < 2**31
        assert max(sums[1:]) * learned.MOST + (1 << 10) < 2**31
        assert not weights[0].sum(axis=(0, 1, 3)).any()  # only differences count


def test_the_constants_keep_every_prediction_in_bounds() -> None:
    """Every symbol stays possible, and no sum of weights reaches 2^32, the end of the log codes."""
    for name in ("TABLES", "FLAG_TABLES"):
        table = np.array(PRIORS[name])
        assert table.min() >= 1 and np.all(table.sum(axis=-1) == 2**16)
    weights, factor = np.array(PRIORS["WEIGHTS"]), np.array(PRIORS["POSITION"]).max() / 64
    seen = np.maximum(weights[..., :-1], 0).sum(axis=-1).max() * 8 * 2 * 4095
    prior = np.array(PRIORS["EXPECTED"]).max() * weights[..., -1].max() / 1024
    assert min(PRIORS["EXPECTED"]) >= 1
    assert (seen + prior) * factor < 2**32


@pytest.mark.parametrize("path", sorted(EXACT.glob("*.h5")), ids=lambda path: path.name)
def test_files_and_skeletons_of_exact_groups_are_read_the_same_way(path: Path) -> None:
    found = reference_exact.held(path)
    with Archive(path) as archive:
        assert tuple(item.name for item in found) == archive.names_bytes
        for position, item in enumerate(found):
            file = archive.file(position)
            assert (file is not None) == (item.way in ("files", "jpeg"))
            if item.way == "files":
                assert item.data == file
            elif file is not None:
                assert item.data == reference_exact.without_scans(file)
    assert {item.way for item in found} == {"files", "jpeg", "pixels"}
