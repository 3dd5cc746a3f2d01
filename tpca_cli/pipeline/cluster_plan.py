"""What a run on a cluster would come to: its shards, the bytes that move, the memory that a worker needs.

From the facts of a plan for one machine. Bytes between workers are what the tree of sums moves at most; those
per image were measured on tasks and results as they are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import Any

from tpca_cli.cluster import connect, local_workers
from tpca_cli.operators import run_length
from tpca_cli.pipeline.abroad import SHARD_BYTES, shards_of
from tpca_cli.pipeline.remote_coding import SHARD_PIXELS
from tpca_cli.pipeline.shards import NARROW

ASKED_BYTES = 120  # of a task, per image: its path, size and time
TOLD_BYTES = 25  # of a result, per image: its digest
PROCESS = 200 << 20  # interpreter, libraries, the files being read
CODING = 160 << 20  # a block of pixels with all its coefficients


def cluster_threads(address: str) -> int:
    """How many tasks run at a time: N of local:N, which need not be started, or what a scheduler says."""
    count = local_workers(address)
    if count:
        return count
    with connect(address) as cluster:
        return cluster.threads


def fit_on(facts: Mapping[str, Any], address: str) -> dict[str, Any]:
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


def encode_on(facts: Mapping[str, Any], address: str) -> dict[str, Any]:
    """An encoding with the facts of its plan: one pass over all images; a target may need several."""
    threads = cluster_threads(address)
    images = int(facts["images"])
    return {
        "cluster_threads": threads,
        "cluster_shards": min(images, ceil(int(facts["raw_bytes"]) / 3 / SHARD_PIXELS)),
        "cluster_bytes_to_workers": ASKED_BYTES * images,
        "cluster_bytes_to_client": int(facts["source_bytes"]),  # an archive is smaller than its sources
        "cluster_memory_per_worker": PROCESS + CODING,
    }
