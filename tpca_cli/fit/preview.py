"""What a fit would do and cost, from the headers of the images alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import Any

import numpy as np

from tpca_cli import basisfile
from tpca_cli.cluster.connect import ASKED_BYTES, PROCESS, TOLD_BYTES, cluster_threads
from tpca_cli.cluster.paths import SHARD_BYTES, shards_of
from tpca_cli.errors import ImageRefused, StorageError
from tpca_cli.fit.plan import FitRequest, ProblemSize, inherited, plan, staged_most
from tpca_cli.images import Header
from tpca_cli.interfaces import Progress
from tpca_cli.sources.probe import probe_headers
from tpca_cli.sources.read_plan import FramingOptions as Reading
from tpca_cli.sources.read_plan import after_resize, misfit, plan_reading, scan_or_fail
from tpca_cli.tensor_pca.fold import run_length
from tpca_cli.tensor_pca.solve import NARROW

DECODED = 60e6  # samples per second and core that a decoder manages


def preview(request: FitRequest, progress: Progress | None = None) -> dict[str, Any]:
    """The plan with its memory, disk and time; nothing is written."""
    base = None if request.update is None else basisfile.read(request.update)
    wish = request.wish if base is None else inherited(request.wish, base)
    found = scan_or_fail(request.sources, request.on_error, distinct=True)
    reading = Reading(
        None if base is None else base.framing,
        base.origin.size if base else request.size,
        None if base else request.tile,
        None if base is None else base.dtype,
        request.max_pixels,
    )
    headers, refused = [], len(found.skipped)
    for done, item in enumerate(probe_headers(found.refs, request.max_pixels, request.workers), 1):
        if isinstance(item, Header):
            headers.append(item)
        else:
            refused += 1
        if progress is not None:
            progress("reading headers", done, len(found.refs))
    if not headers:
        raise StorageError("no image could be read")
    recipe = plan_reading(headers, reading)
    fitting = [after_resize(header, reading.size) for header in headers]
    fitting = [header for header in fitting if misfit(header, recipe.framing, recipe.dtype) is None]
    if not fitting:
        raise ImageRefused("no image fits the frames that the options ask for")
    frames = sum(recipe.framing.count(header.height, header.width) for header in fitting)
    itemsize = np.dtype(recipe.dtype).itemsize
    tensor = frames * int(np.prod(recipe.framing.frame_shape)) * itemsize
    in_memory = request.cache is None and tensor <= staged_most(request.memory)
    counts = ProblemSize(
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


def fit_cluster_costs(facts: Mapping[str, Any], address: str) -> dict[str, Any]:
    """A fit with the facts of `preview`."""
    threads = cluster_threads(address)
    images, frames, shape = int(facts["images"]), int(facts["frames"]), tuple(facts["frame_shape"])
    size, m = prod(shape), int(facts["components"] or 256)
    dtype = str(facts["dtype"])
    pixels = frames * size * int(dtype[1:])
    summed = facts["method"] in ("rank1", "operator") and not facts["streamed"]
    counts = [ceil(frames / images)] * images
    cuts = shards_of(counts, shape, dtype, threads, facts["method"] if summed else None)
    shards = summands = len(cuts)
    memory = PROCESS + 4 * SHARD_BYTES
    if summed and facts["method"] == "rank1":
        state = 8 * (size + sum(side * side for side in shape))
    elif summed:
        entry = 4 if dtype == "u1" and frames < NARROW else 8
        state = 8 * size + entry * (size * (size + 1) // 2)
        memory += 20 * size**2  # A in int64, a block of it in float32, and both halves of a sum
    else:
        summands = ceil(frames / run_length(shape))  # of every pass
        state, shards = 8 * size * m, shards + summands
        memory += 3 * state + ceil(pixels / threads)
    return {
        "cluster_threads": threads,
        "cluster_shards": shards,
        "cluster_bytes_to_workers": ASKED_BYTES * images * (1 if summed else 2),
        "cluster_bytes_between_workers": (summands - 1) * state,
        "cluster_bytes_to_client": TOLD_BYTES * images + state,
        "cluster_memory_per_worker": memory,
    }
