"""What a fit would do and cost, from the headers of the images alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca_cli import basisfile
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.images import Header
from tpca_cli.pipeline.fit import FitRequest, Progress, check_scan, inherited, staged_most
from tpca_cli.pipeline.plan import Counts, plan
from tpca_cli.scan import scan
from tpca_cli.tensors.choice import Wish as Reading
from tpca_cli.tensors.choice import choose, framed, misfit
from tpca_cli.tensors.intake import probe_all

DECODED = 60e6  # samples per second and core that a decoder manages


def preview(request: FitRequest, progress: Progress | None = None) -> dict[str, Any]:
    """The plan with its memory, disk and time; nothing is written."""
    base = None if request.update is None else basisfile.read(request.update)
    wish = request.wish if base is None else inherited(request.wish, base)
    found = scan(request.sources)
    check_scan(found, request)
    reading = Reading(
        None if base is None else base.framing,
        base.origin.size if base else request.size,
        None if base else request.tile,
        None if base is None else base.dtype,
        request.max_pixels,
    )
    headers, refused = [], len(found.skipped)
    for done, item in enumerate(probe_all(found.refs, request.max_pixels, request.workers), 1):
        if isinstance(item, Header):
            headers.append(item)
        else:
            refused += 1
        if progress is not None:
            progress("reading headers", done, len(found.refs))
    if not headers:
        raise StorageError("no image could be read")
    recipe = choose(headers, reading)
    fitting = [framed(header, reading.size) for header in headers]
    fitting = [header for header in fitting if misfit(header, recipe.framing, recipe.dtype) is None]
    if not fitting:
        raise ImageRefused("no image fits the frames that the options ask for")
    frames = sum(recipe.framing.count(header.height, header.width) for header in fitting)
    itemsize = np.dtype(recipe.dtype).itemsize
    tensor = frames * int(np.prod(recipe.framing.frame_shape)) * itemsize
    in_memory = request.cache is None and tensor <= staged_most(request.memory)
    counts = Counts(
        frames + (base.origin.frames if base else 0),
        recipe.framing.frame_shape,
        itemsize,
        request.memory - (tensor if in_memory else 0),
        given=base is not None,
    )
    decided = plan(wish, counts)
    decode = sum(h.height * h.width * h.channels for h in headers) / (DECODED * request.workers)
    return {
        "images": len(fitting),
        "not_usable": refused + len(headers) - len(fitting),
        "frames": counts.frames,
        "frame_shape": list(counts.frame_shape),
        "framing": recipe.framing.kind,
        "dtype": recipe.dtype,
        "method": decided.method,
        "solver": decided.solver,
        "streamed": decided.streamed,
        "components": decided.components,
        "energy": decided.energy,
        "keeps_operator": decided.keep_operator,
        "reason": decided.reason,
        "memory_bytes": decided.memory + (tensor if in_memory else 0),
        "disk_bytes": 0 if in_memory else tensor,
        "frames_in": "memory" if in_memory else "cache" if request.cache else "private file",
        "seconds": round(decode + decided.seconds, 1),
    }
