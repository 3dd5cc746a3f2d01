"""Other codecs, to measure ourselves against: the bytes of a picture at a quality, and what comes back."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from tpca_cli.images.modes import Pixels

CODECS: dict[str, dict[str, object]] = {
    "JPEG": {"optimize": True},
    "WebP": {"method": 4},
}


def lossy(pixels: Pixels, codec: str, quality: int) -> tuple[int, Pixels]:
    """One 8-bit gray or color picture (h, w, 1 or 3) through a codec: size of the file, and its pixels."""
    gray = pixels.shape[2] == 1
    file = io.BytesIO()
    image = Image.fromarray(pixels[:, :, 0] if gray else pixels)
    image.save(file, codec.upper(), quality=quality, **CODECS[codec])
    size = len(file.getvalue())
    file.seek(0)
    with Image.open(file, formats=[codec.upper()]) as back:
        decoded = np.asarray(back.convert("L" if gray else "RGB"))
    return size, decoded[:, :, None] if gray else decoded
