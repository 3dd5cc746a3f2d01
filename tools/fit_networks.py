"""Fit the networks before the filter to folders of photographs: `tools/fit_networks.py FOLDER.. -o FILE`.

Writes numbers in the form of `tpca_cli/codec/networks.bin`. The shipped file is not touched: it belongs to
the format (docs/FORMAT.md, section 11), and networks may only be added at its end.

What it needs: `pip install torch` (nothing else in the project does), a few hundred photographs that were not
compressed hard, and six minutes of a core for each of the first 25 networks (`--seconds`), twenty for each of
those with more layers. Thumbnails are made of the photographs by halving them down to 64 pixels.

How a network is made: crops are coded with two steps around its center and decoded without the filter; it
learns the squared error of brightness in units of the step, with Adam, from the one before it. Then weights
are rounded, those of the first layer so that they still add up to zero. Networks 21 to 25 begin as those for
lapped tiles that are made for people; they learn what is lost of structure, too, at three scales. Networks
with more layers (`--deeper`) begin from nothing, each in place of one of the others, for what that learned.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.nn import functional

from tpca_cli.codec import learned, restore
from tpca_cli.codec.coder import Coder
from tpca_cli.codec.tuning import PSNR, THUMBNAIL, VISUAL
from tpca_cli.framing import Framing
from tpca_cli.tensor_pca.fixed_basis import SCALE, FixedBasis

CROP, THUMB = 192, 64
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif")
AROUND = 0.87, 1.15
"""Steps that a network learns from, of its center."""
BATCH, SIDE, RATE = 14, 96, 2e-3
STRUCTURE, STRUCTURE_RATE = 0.6, 1e-3
"""How much of what the last networks learn is structure, and how fast."""
SCALES = (1.0, 0.5, 0.5)
"""What structure counts at each scale."""


Array = NDArray[Any]


class Seen(NamedTuple):
    """Brightness of a picture before and after coding, and the step of each pixel; (h, w) each."""

    original: Any
    decoded: Any
    steps: Any


class Network(nn.Module):
    """What `tpca_cli.codec.learned` computes, in floats."""

    def __init__(self, inner: int = learned.SHALLOW) -> None:
        super().__init__()
        self.first = nn.Conv2d(learned.INPUTS, learned.MAPS, 3)
        self.inner = nn.ModuleList(nn.Conv2d(learned.MAPS, learned.MAPS, 3, padding=1) for _ in range(inner))
        self.last = nn.Conv2d(learned.MAPS, learned.INPUTS, 3, padding=1)
        self.phases = nn.Parameter(torch.zeros(learned.MAPS, learned.PHASES, learned.PHASES))
        nn.init.zeros_(self.last.weight)
        for layer in self.inner if inner > 1 else ():
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    @classmethod
    def of(cls, numbers: Array) -> Network:
        """The mirror of `numbers`."""
        inner = (numbers.size - sum(learned.FIRST + learned.LAST)) // sum(learned.INNER)
        sizes = learned.FIRST + inner * learned.INNER + learned.LAST
        parts = np.split(numbers.astype(np.float64), np.cumsum(sizes)[:-1])
        network, layers = cls(inner), [torch.from_numpy(part) for part in parts]
        convolutions = network.first, *network.inner, network.last
        with torch.no_grad():
            for layer, weights in zip(convolutions, parts[::2], strict=True):
                layer.weight.copy_(torch.from_numpy(_disordered(weights, layer.in_channels) / 2048))
            network.first.bias.zero_()
            phases = layers[1].reshape(learned.PHASES, learned.PHASES, learned.MAPS)
            network.phases.copy_(phases.permute(2, 0, 1) / 64)
            for layer, bias in zip(network.inner, layers[3::2], strict=False):
                layer.bias.copy_(bias / 64)
            network.last.bias.copy_(layers[-1] / 512)
        return network

    def differences(self) -> torch.Tensor:
        """Weights of the first layer, which add up to zero."""
        weights = self.first.weight
        return weights - weights.mean((1, 2, 3), keepdim=True)

    def forward(self, light: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """The change of brightness (n, 1, h, w)."""
        places = functional.pad(functional.pixel_unshuffle(light, 2), (1, 1, 1, 1), mode="replicate")
        maps = functional.conv2d(places, self.differences()) / steps[:, :, ::2, ::2]
        down, across = (-(-side // learned.PHASES) for side in maps.shape[2:])
        phases = self.phases.repeat(1, down, across)[:, : maps.shape[2], : maps.shape[3]]
        maps = functional.relu(maps + self.first.bias[:, None, None] + phases)
        for layer in self.inner:
            maps = functional.relu(layer(maps))
        return functional.pixel_shuffle(self.last(maps), 2) * steps

    def numbers(self) -> Array:
        """All of it as the integers of the format."""
        layers = [self.differences(), *(layer.weight for layer in self.inner), self.last.weight]
        weights = [2048 * layer.detach().double().numpy() for layer in layers]
        whole = [_to_zero_sum(weights[0]), *(np.rint(each) for each in weights[1:])]
        phases = self.first.bias[:, None, None] + self.phases
        inner = [64 * layer.bias for layer in self.inner]
        layers = [64 * phases.permute(1, 2, 0), *inner, 512 * self.last.bias]
        biases = [layer.detach().double().numpy() for layer in layers]
        parts = [part for pair in zip(map(_ordered, whole), biases, strict=True) for part in pair]
        numbers: Array = np.rint(np.concatenate([part.ravel() for part in parts])).astype("<i2")
        return numbers


def _to_zero_sum(weights: Array) -> Array:
    """Rounded; what that adds to the sum of an output comes off those that it changed most."""
    whole: Array = np.rint(weights)
    for rounded, exact in zip(whole, weights, strict=True):
        while excess := round(rounded.sum()):
            worst = np.argmax((rounded - exact) * np.sign(excess))
            rounded.flat[worst] -= np.sign(excess)
    return whole


def _ordered(weights: Array) -> Array:
    """Weights (outputs, inputs, 3, 3) by place, pair of inputs, output, and which of the pair."""
    outputs, inputs = weights.shape[:2]
    found: Array = weights.transpose(2, 3, 1, 0).reshape(9, inputs // 2, 2, outputs).swapaxes(2, 3)
    return found


def _disordered(numbers: Array, inputs: int) -> Array:
    """The mirror of `_ordered`."""
    pairs = numbers.reshape(9, inputs // 2, -1, 2).swapaxes(2, 3)
    found: Array = pairs.reshape(3, 3, inputs, -1).transpose(3, 2, 0, 1)
    return found


def structure_lost(original: torch.Tensor, corrected: torch.Tensor) -> torch.Tensor:
    """1 - SSIM of brightness (n, 1, h, w), Gaussian window of 1.5 pixels, but for what means differ by."""
    taps = torch.exp(-(torch.arange(-5.0, 6.0) ** 2) / 4.5)
    window = torch.outer(taps, taps)[None, None] / taps.sum() ** 2
    lost, flat = torch.zeros(()), (0.03 * 255) ** 2
    for part in SCALES:
        a, b = original - 128, corrected - 128
        planes = torch.cat([a, b, a * a + b * b, a * b], dim=1)
        one, two, squares, product = functional.conv2d(planes, window.repeat(4, 1, 1, 1), groups=4).split(
            1, dim=1
        )
        together, alone = 2 * (product - one * two) + flat, squares - one * one - two * two + flat
        lost = lost + part * (1 - together / alone).mean()
        original, corrected = (functional.avg_pool2d(each, 2) for each in (original, corrected))
    return lost


def pictures_of(folders: Sequence[Path], thumbnails: bool, rng: np.random.Generator) -> Iterator[Array]:
    """Crops of the photographs, or thumbnails."""
    files = (path for folder in folders for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    for path in sorted(files):
        with Image.open(path) as image:
            pixels = image.convert("RGB")
        while thumbnails and min(pixels.size) >= 2 * THUMB:
            pixels = pixels.resize((pixels.width // 2, pixels.height // 2), Image.Resampling.BOX)
        side = THUMB if thumbnails else CROP
        if min(pixels.size) < side:
            continue
        y, x = (8 * int(rng.integers(0, (size - side) // 8 + 1)) for size in (pixels.height, pixels.width))
        yield np.asarray(pixels)[y : y + side, x : x + side].copy()


def cosine_basis() -> FixedBasis:
    """Cosines, and brightness beside two colors: near what photographs have."""
    k = np.arange(8)
    modes = np.cos(np.pi * (2 * k[:, None] + 1) * k / 16) / np.where(k, 2.0, math.sqrt(8))
    colors = np.linalg.qr(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]]).T)[0]
    places = np.stack([axis.ravel() for axis in np.indices((8, 8, 3))], axis=1)
    order = np.argsort(places.sum(axis=1), kind="stable")
    return FixedBasis.from_modes([modes, modes, colors], places[order], dtype=np.uint8)


def coded(pictures: Sequence[Array], step: float, lapped: bool, tune: str) -> list[Seen]:
    """What a network learns from."""
    framing = Framing("tile", 8, 8, 3)
    coder = Coder.train(pictures, framing, cosine_basis(), step, effort=0, lapped=lapped, tune=tune)
    coder, found = replace(coder, restorer=None), []
    for picture in pictures:
        ((decoded, _, scales),) = coder._filter_pairs([picture])
        original = picture.transpose(2, 0, 1)[None].astype(np.float32) * restore.SUBPIXEL
        before, after = (learned.light_of(each)[0] / restore.SUBPIXEL for each in (original, decoded))
        found.append(Seen(before, after, (scales[0] / SCALE).repeat(8, 0).repeat(8, 1)))
    return found


def fit(
    network: Network, seen: Sequence[Seen], seconds: float, rng: np.random.Generator, structure: float = 0.0
) -> float:
    """Learn for so many seconds; what was left of the squared error at the end.

    `structure` is how much of the loss is that of structure; both count as parts of what there was at first.
    """
    rate = STRUCTURE_RATE if structure else RATE
    optimizer, start, left = torch.optim.Adam(network.parameters(), lr=rate), time.process_time(), []
    original, decoded, steps = torch.from_numpy(np.concatenate([_batch(seen, rng) for _ in range(8)])).split(
        1, dim=1
    )
    first = float(((decoded - original) / steps).square().mean()), float(structure_lost(original, decoded))
    while (part := (time.process_time() - start) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * max(0.02, 0.5 * (1 + math.cos(math.pi * part)))
        original, decoded, steps = torch.from_numpy(_batch(seen, rng)).split(1, dim=1)
        corrected = decoded + network(decoded, steps)
        loss = ((corrected - original) / steps).square().mean()
        if structure:
            lost = structure_lost(original, corrected) / first[1]
            loss = (1 - structure) * loss / first[0] + structure * lost
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error = (corrected.detach() - original) / steps
        left.append(float(error.square().mean()) / float(((decoded - original) / steps).square().mean()))
    return float(np.mean(left[-200:]))


def _batch(seen: Sequence[Seen], rng: np.random.Generator) -> Array:
    """Cuts of some pictures, turned over, (n, 3, side, side)."""
    cuts = []
    for k in rng.integers(0, len(seen), BATCH):
        planes = np.stack(seen[k])
        side = min(SIDE, *planes.shape[1:])
        y, x = (8 * int(rng.integers(0, (size - side) // 8 + 1)) for size in planes.shape[1:])
        cut = planes[:, y : y + side, x : x + side]
        cut = cut[:, :: rng.choice((-1, 1)), :: rng.choice((-1, 1))]
        cuts.append(cut.swapaxes(1, 2) if rng.integers(2) else cut)
    return np.ascontiguousarray(np.stack(cuts), np.float32)


def center_of(network: int) -> tuple[int, bool, bool, bool]:
    """The step of a network; whether tiles lap, steps are made for people, and it learns structure."""
    kind, nearest = divmod(network - 1, len(learned.CENTERS[0]))
    lapped, seen = kind >= 2, kind % 2 == 1 or kind == learned.STRUCTURED
    return learned.CENTERS[seen][nearest], lapped, seen, kind == learned.STRUCTURED


def main() -> None:
    """Networks in the order of `learned.network_for`, or some with more layers in place of these."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=360.0, help="for each network")
    parser.add_argument("--only", type=int, default=learned.FIRST_DEEP - 1, help="the first so many networks")
    parser.add_argument("--deeper", help="networks with more layers, instead of these numbers: 14,15")
    options = parser.parse_args()
    rng, numbers = np.random.default_rng(0), list[Array]()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    deeper = [int(number) for number in (options.deeper or "").split(",") if number]
    network = Network()
    for number in deeper or range(1, options.only + 1):
        center, lapped, seen, structured = center_of(number)
        pictures = list(pictures_of(options.folders, not lapped, rng))
        if not pictures:
            parser.error(f"no image has {CROP if lapped else THUMB} pixels on each side")
        tune = PSNR if not seen else VISUAL if lapped else THUMBNAIL
        if deeper:
            network = Network(learned.DEEP)
        elif structured:
            network = Network.of(numbers[number - 1 - len(learned.CENTERS[0])])
        elif center == learned.CENTERS[seen][0]:
            network = Network()
        material = [one for part in AROUND for one in coded(pictures, part * center, lapped, tune)]
        lessons = [STRUCTURE] if structured and not deeper else [0.0, STRUCTURE] if structured else [0.0]
        for lesson in lessons:
            left = fit(network, material, options.seconds / len(lessons), rng, lesson)
        numbers.append(network.numbers())
        print(f"{number}, step {center}: {left:.3f} of the error is left", flush=True)
    options.output.write_bytes(np.concatenate(numbers).tobytes())


if __name__ == "__main__":
    main()
