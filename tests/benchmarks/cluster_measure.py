"""Constants of the cost model in docs/SCALE.md, measured on one core of this machine.

Seconds of CPU wherever one process does the work, and of the clock where several do; each the best of several
tries: other work on the machine can only make a try slower.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tpca_cli.checkpoint import Checkpoint
from tpca_cli.cluster.cluster import Cluster
from tpca_cli.cluster.connect import connect
from tpca_cli.codec.coder import Coder
from tpca_cli.encode.assemble import assemble
from tpca_cli.encode.code_blocks import GroupPlan, code_all
from tpca_cli.encode.run import EncodeRequest, draft_groups
from tpca_cli.fit.remote import Shard, count_shard
from tpca_cli.framing import Framing
from tpca_cli.images import probe, read
from tpca_cli.rate import Target
from tpca_cli.sources.probe import survey
from tpca_cli.sources.read_plan import Reading, ReadPlan
from tpca_cli.sources.scan import ImageRef, scan
from tpca_cli.tensor_pca.algorithm1 import TensorOperator
from tpca_cli.tensor_pca.algorithm2 import ModeOperators

STATE = 1 << 23  # values of the arrays that measure a sum on the workers: 64 MB


@dataclass(frozen=True)
class Constants:
    """Seconds, on one core; `_pixel` is per pixel of all its channels together."""

    scan_image: float  # find a file and note it, on the client
    send_image: float  # name a file to a worker and hear of it, on the client
    probe_image: float  # read a header
    read_image: float  # open and read a file
    decode_pixel: float
    modes_pixel: float  # add a pixel to the mode operators of tiles of 8 x 8
    tensor_flop: float  # of the L^2 operations that a frame costs an L x L operator
    reduce_byte: float  # move a byte of an operator between workers and add it
    task: float  # schedule a task
    code_pixel: float  # project, quantize, code, and measure what comes back
    code_image: float
    keep_image: float  # take a coded image into the spool and the index, on the client
    train: float  # tables from a sample, on the client
    connect: float  # to reach a cluster that runs


def best(
    function: Callable[[], Any], tries: int = 5, clock: Callable[[], float] = time.process_time
) -> float:
    seconds = []
    for _ in range(tries):
        start = clock()
        function()
        seconds.append(clock() - start)
    return min(seconds)


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The line through the first and the last point: its value at 0, no less than 0, and its slope."""
    (x, y), (u, v) = points[0], points[-1]
    slope = (v - y) / (u - x)
    return max(0.0, y - slope * x), slope


def measure(small: str, large: str) -> Constants:
    """From a folder of small images and one of larger ones."""
    few, more = scan([small]).refs[:2000], scan([large]).refs[:300]
    with threadpool_limits(1, user_api="blas"):
        read_image, decode_pixel = line([_decoding(few), _decoding(more)])
        modes, tensor = _accumulating(few)
        code_image, code_pixel = line([_coding(few[:512]), _coding(more[:100])])
        keep = _keeping(few[:1024])
        train = _training(few[:512])
    with connect("local:2") as cluster:
        send, task, reduce_byte = _cluster(cluster, few)
        reached = best(lambda: _connected(cluster), 3, time.perf_counter)
    return Constants(
        scan_image=best(lambda: scan([small])) / len(scan([small]).refs),
        send_image=send,
        probe_image=best(lambda: survey([small], Reading()), 2) / len(scan([small]).refs),
        read_image=read_image,
        decode_pixel=decode_pixel,
        modes_pixel=modes,
        tensor_flop=tensor,
        reduce_byte=reduce_byte,
        task=task,
        code_pixel=code_pixel,
        code_image=code_image,
        keep_image=keep,
        train=train,
        connect=reached,
    )


def _decoding(refs: Sequence[ImageRef]) -> tuple[float, float]:
    """(pixels, seconds) of an average image that a worker reads and cuts into tiles."""
    headers = [probe(ref.path) for ref in refs]
    pixels = sum(header.height * header.width for header in headers)
    recipe = ReadPlan(Framing("tile", 8, 8, 3), "u1", None, 1 << 26)
    shard = Shard(tuple(refs), tuple(enumerate(headers)), recipe)
    seconds = best(lambda: count_shard(shard, None))
    return pixels / len(refs), seconds / len(refs)


def _accumulating(refs: Sequence[ImageRef]) -> tuple[float, float]:
    tiles, whole = Framing("tile", 8, 8, 3), Framing("whole", 32, 32, 3)
    pictures = [pixels for ref in refs if (pixels := read(ref.path).pixels).shape[2] == 3]
    small = np.concatenate([tiles.split(pixels) for pixels in pictures])
    large = np.concatenate([whole.split(pixels[:32, :32]) for pixels in pictures])[:1024]
    size = int(np.prod(whole.frame_shape))

    def modes() -> None:
        ModeOperators(tiles.frame_shape).add(small)

    def tensor() -> None:
        operator = TensorOperator(whole.frame_shape)
        operator.add(large)
        assert operator.trace

    return best(modes) / (small.size / 3), best(tensor, 3) / (len(large) * size**2)


def _plans(refs: Sequence[ImageRef], folder: str) -> tuple[list[GroupPlan], Reading]:
    listed = Path(folder, "list.txt")
    listed.write_bytes(b"".join(os.path.abspath(ref.path) + b"\n" for ref in refs))
    reading = Reading()
    request = EncodeRequest(
        [f"@{listed}"], Path(folder, "out.h5"), Target.choose(step=20.0), reading, method="rank1", tile=8
    )
    found = survey(request.sources, reading)
    drafts, _ = draft_groups(request, found)
    return [GroupPlan(draft.kind, draft.members, draft.coder(20.0, None)) for draft in drafts], reading


def _coding(refs: Sequence[ImageRef]) -> tuple[float, float]:
    """(pixels, seconds) of an average image, reading included."""
    with tempfile.TemporaryDirectory() as folder:
        plans, reading = _plans(refs, folder)
        members = [member for plan in plans for member in plan.members]
        seconds = best(lambda: list(code_all(plans, reading, None)), 3)
    return sum(m.height * m.width for m in members) / len(members), seconds / len(members)


def _training(refs: Sequence[ImageRef]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        coder = _plans(refs, folder)[0][0].coder
        sample = [pixels for ref in refs[:256] if (pixels := read(ref.path).pixels).shape[2] == 3]
        return best(lambda: Coder.train(sample, coder.framing, coder.basis, coder.step), 2)


def _keeping(refs: Sequence[ImageRef]) -> float:
    """What the client does with results that workers have coded: spool and index."""
    from tpca_cli.encode.code_blocks import described

    with tempfile.TemporaryDirectory() as folder:
        plans, reading = _plans(refs, folder)
        coded = list(code_all(plans, reading, None))
        spool = Checkpoint(Path(folder, "out.h5"), {})

        def keep() -> None:
            for number, item in enumerate(coded):
                spool.put(number, described(item), item.data)
            assemble(coded, [], spool, [255] * len(plans), [], 1.0)

        return best(keep) / len(refs)


def _cluster(cluster: Cluster, refs: Sequence[ImageRef]) -> tuple[float, float, float]:
    from tpca_cli.fit.remote import RemoteReader
    from tpca_cli.images import Header

    recipe = ReadPlan(Framing("tile", 8, 8, 3), "u1", None, 10**8)
    header = Header(64, 64, 3, "u1", "RGB")
    reader = RemoteReader(cluster, lambda frames, recipe: None)
    chosen = [(number, header) for number in range(len(refs))]
    shared = cluster.share(0)
    list(cluster.map(_nothing, range(64), shared))
    # the scheduler of local:2 lives in this process, so that its work is in these
    send = best(lambda: reader.read(refs, chosen, recipe, False, None), 3) / len(refs)
    task = best(lambda: list(cluster.map(_nothing, range(256), shared)), 3) / 256
    small = best(lambda: cluster.reduce(_zeros, _sum, [1, 1]), 8, time.perf_counter)
    large = best(lambda: cluster.reduce(_zeros, _sum, [STATE, STATE]), 8, time.perf_counter)
    return send, task, (large - small) / (8 * STATE)


def _connected(cluster: Cluster) -> None:
    with connect(str(cluster._client.scheduler.address)):
        pass


def _nothing(item: int, shared: int) -> int:
    return shared


def _zeros(size: int) -> Any:
    return np.zeros(size, np.int64)


def _sum(one: Any, other: Any) -> Any:
    return (one + other)[:1]
