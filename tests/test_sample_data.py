"""The committed sample images: what is there, and that the script beside them draws the same pixels."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parent.parent / "sample_data"
FILES = sorted(path for path in FOLDER.glob("*/*") if path.suffix in {".jpg", ".png"})


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_folder_holds_what_the_readme_promises() -> None:
    kinds = Counter()
    for path in FILES:
        with Image.open(path) as image:
            image.load()
            kinds[image.format, image.mode, image.size] += 1
    assert kinds == {
        ("PNG", "RGBA", (96, 96)): 6,
        ("PNG", "RGB", (96, 96)): 16,
        ("PNG", "L", (96, 96)): 8,
        ("JPEG", "RGB", (192, 128)): 24,
        ("JPEG", "L", (192, 128)): 8,
    }
    assert len({path.parent for path in FILES}) == 8
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize("name", sorted({path.parent.name for path in FILES}))
def test_script_draws_the_committed_pixels(generate: ModuleType, name: str) -> None:
    files = [path for path in FILES if path.parent.name == name]
    assert len(files) == generate.CLASSES[name][1]
    for number in (0, len(files) - 1):
        with Image.open(files[number]) as image:
            committed = np.asarray(image)
        drawn = generate.draw(name, number)
        if files[number].suffix == ".png":
            np.testing.assert_array_equal(drawn, committed)
        else:  # lossy, and encoders differ: the same picture, not the same bytes
            assert np.mean((drawn.astype(float) - committed) ** 2) < 30.0


def test_samples_have_natural_statistics(generate: ModuleType) -> None:
    """Neighboring pixels agree far better than distant ones, and there is something to see."""
    for name in generate.CLASSES:
        pixels = generate.draw(name, 1)
        gray = pixels * 1.0 if pixels.ndim == 2 else pixels[..., :3].mean(axis=-1)
        spread = gray.var()
        step = np.mean((gray[:, 1:] - gray[:, :-1]) ** 2) / 2.0
        assert spread > 100.0
        assert step < 0.3 * spread
