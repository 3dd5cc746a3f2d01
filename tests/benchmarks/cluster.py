"""Two workers beside one, the constants of the cost model, and the model beside real runs.

    python tests/benchmarks/cluster.py SMALL LARGE [--tries N] [--write docs/SCALE.md]

SMALL is a folder of small images (64 x 64), LARGE one of larger ones. Prints the speed of decoding and
accumulating both with one and with two workers of one thread, measured in turns; then everything that
docs/SCALE.md says in numbers, and with --write puts it there.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cluster_measure import Constants, measure
from cluster_model import Folder, Operator, encode, even_workers, fit, span, table

from tpca_cli.cluster.cluster import Cluster
from tpca_cli.cluster.connect import connect
from tpca_cli.encode.remote import cluster_workers
from tpca_cli.encode.run import EncodeRequest
from tpca_cli.encode.run import encode as run_encode
from tpca_cli.fit.plan import FitOptions, FitRequest
from tpca_cli.fit.run import fit as run_fit
from tpca_cli.rate import Target
from tpca_cli.sources.read_plan import Reading
from tpca_cli.sources.scan import scan

MODES, DENSE = Operator("mode operators of 8 x 8 tiles"), Operator("192 x 192 operator of 8 x 8 tiles", 192)
WHOLE = Operator("12288 x 12288 operator of whole images", 12288)
LARGE = Folder("1.3 million images of 224 x 224", 1_300_000, 224 * 224)
MANY = Folder("100 million images of 64 x 64", 100_000_000, 64 * 64)
WORKERS = (1, 10, 100)


@dataclass(frozen=True)
class Took:
    """Seconds of the clock, and those of CPU that the client and its busiest worker used."""

    clock: float
    client: float
    worker: float


def timed(cluster: Cluster, run: Callable[[], float]) -> Took:
    """What a run took; it says itself how much of it is to count."""
    before, start = cluster._client.run(time.process_time), time.process_time()
    clock = run()
    client, after = time.process_time() - start, cluster._client.run(time.process_time)
    return Took(clock, client, max(after[name] - before[name] for name in after))


def fitted(cluster: Cluster, source: str, method: str, output: Path) -> float:
    """Seconds until every image is decoded and added up, by the fit's own clock."""
    request = FitRequest(
        [source], output, FitOptions(method, "exact"), tile=8, memory=8 << 30, force=True, cluster=cluster
    )
    seconds = run_fit(request, str).seconds
    return seconds["read"] + seconds["operator"]


def encoded(cluster: Cluster, source: str, basis: Path, output: Path) -> float:
    """Seconds of an encoding at a given step with a given basis."""
    request = EncodeRequest(
        [source],
        output,
        Target.choose(step=20.0),
        Reading(),
        basis=basis,
        force=True,
        workers=cluster_workers(cluster),
    )
    start = time.perf_counter()
    run_encode(request, str)
    return time.perf_counter() - start


def in_turns(tries: int, runs: dict[str, Callable[[], Took]]) -> dict[str, Took]:
    """The best of several tries of each, one after the other, so that all see the same machine."""
    found: dict[str, list[Took]] = {name: [] for name in runs}
    for _ in range(tries + 1):
        for name, run in runs.items():
            found[name].append(run())
    best = {}
    for name, all_tries in found.items():
        tried = all_tries[1:]  # the first one imports libraries
        best[name] = Took(*(min(getattr(took, f.name) for took in tried) for f in fields(Took)))
    return best


def real_runs(source: str, large: str, tries: int) -> dict[str, Took]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        basis = folder / "basis.h5"
        some = folder / "some.txt"
        refs = scan([source]).refs
        some.write_bytes(b"".join(os.path.abspath(ref.path) + b"\n" for ref in refs[:2000]))
        runs: dict[str, Callable[[], Took]] = {}
        for count in (1, 2):
            cluster = stack.enter_context(connect(f"local:{count}"))
            for method in ("operator", "rank1"):
                for folder_name, images in (("", source), ("large ", large)):
                    work = partial(fitted, cluster, images, method, basis)
                    runs[f"{folder_name}{method} {count}"] = partial(timed, cluster, work)
            work = partial(encoded, cluster, f"@{some}", basis, folder / "out.h5")
            runs[f"encode {count}"] = partial(timed, cluster, work)
        return in_turns(tries, runs)


def speedups(seconds: dict[str, Took]) -> str:
    lines = ["| stages | 1 worker | 2 workers | ratio |", "|---|---|---|---|"]
    for name, shown in (
        ("large rank1", "decode and accumulate larger images, mode operators"),
        ("large operator", "decode and accumulate larger images, 192 x 192 operator"),
        ("rank1", "decode and accumulate small images, mode operators"),
        ("operator", "decode and accumulate small images, 192 x 192 operator"),
        ("encode", "project and code, 2,000 small images"),
    ):
        one, two = seconds[f"{name} 1"].clock, seconds[f"{name} 2"].clock
        lines.append(f"| {shown} | {one:.2f} s | {two:.2f} s | {one / two:.2f} |")
    return "\n".join(lines)


def checked(c: Constants, seconds: dict[str, Took], source: str) -> str:
    """The model beside what was measured: CPU of the client plus that of the busiest worker."""
    small = Folder("", len(scan([source]).refs), 64 * 64)
    lines = [
        "| run | workers | model | client + worker | model / measured | clock |",
        "|---|---|---|---|---|---|",
    ]
    for name, predict in (
        ("rank1", lambda w: fit(c, small, MODES, w)),
        ("operator", lambda w: fit(c, small, DENSE, w)),
        ("encode", lambda w: encode(c, replace(small, images=2000), w)),
    ):
        for w in (1, 2):
            model, took = sum(predict(w).values()), seconds[f"{name} {w}"]
            real = took.client + took.worker
            lines.append(
                f"| {name} | {w} | {model:.2f} s | {took.client:.2f} + {took.worker:.2f} s "
                f"| {model / real:.2f} | {took.clock:.2f} s |"
            )
    return "\n".join(lines)


def constants_table(c: Constants) -> str:
    lines = ["| constant | value |", "|---|---|"]
    for name, value in asdict(c).items():
        scale, unit = next(
            (s, u) for s, u in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")) if value < 1e3 * s
        )
        lines.append(
            f"| `{name}` | {value / scale:.3g} {unit} |"
            if value >= 1e-10
            else f"| `{name}` | {value * 1e12:.3g} ps |"
        )
    return "\n".join(lines)


def sections(c: Constants, seconds: dict[str, Took], source: str) -> dict[str, str]:
    """Every marked part of the page."""
    predictions = []
    for folder, operators in ((LARGE, (MODES, DENSE)), (MANY, (MODES, WHOLE))):
        for operator in operators:
            rows = {w: fit(c, folder, operator, w) for w in WORKERS}
            predictions.append(f"**{folder.name}, {operator.name}**\n\n{table(rows)}")
        rows = {w: encode(c, folder, w) for w in WORKERS}
        predictions.append(f"**{folder.name}, encode, one pass**\n\n{table(rows)}")
    even = [f"- {frames:,.0f} frames: {even_workers(c, frames):,.0f} workers" for frames in (1e5, 1.3e6, 1e8)]
    moved = ", ".join(
        f"{operator.state / 1e6:.3g} MB for the {operator.name} "
        f"({span(operator.state * c.reduce_byte)} a level)"
        for operator in (MODES, DENSE, WHOLE)
    )
    return {
        "constants": constants_table(c),
        "speedup": speedups(seconds),
        "check": checked(c, seconds, source),
        "predictions": "\n\n".join(predictions),
        "limit": "\n".join(even) + f"\n\nA partial operator takes {moved}.",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("small")
    parser.add_argument("large")
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    given = parser.parse_args()
    seconds = real_runs(given.small, given.large, given.tries)
    parts = sections(measure(given.small, given.large), seconds, given.small)
    for name, text in parts.items():
        print(f"{name}\n\n{text}\n", flush=True)
    if given.write:
        page = given.write.read_text()
        for name, text in parts.items():
            page = re.sub(
                rf"(<!-- {name} -->\n).*?(<!-- end -->)",
                lambda found, text=text: f"{found[1]}{text}\n{found[2]}",
                page,
                flags=re.S,
            )
        given.write.write_text(page)


if __name__ == "__main__":
    main()
