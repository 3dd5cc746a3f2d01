"""How fast fitting is, against what a user would pick instead: `python fit.py FOLDER`.

Everything starts from the image files and runs in a process of its own, one after the other; time and peak
memory are those of the whole process. The files are read once before, so that they come from the system's
cache for everybody. Ratios within one run are what counts: the machine may be busy. Then
those of CPU time tell more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SEED_STEP = 7919  # a prime: files are taken from all over the folder


@dataclass(frozen=True)
class Run:
    """One process: wall time, CPU time with its workers, peak memory and what it printed."""

    seconds: float
    cpu: float
    peak: float  # MB
    data: dict[str, Any]


def run(*command: object) -> Run:
    """Run to the end; a failure ends the benchmark with its message."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([str(part) for part in command], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        out.seek(0)
        text = out.read()
    if process.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}\n{text}")
    cpu = usage.ru_utime + usage.ru_stime
    return Run(seconds, cpu, usage.ru_maxrss / 1000, json.loads(text) if text.strip() else {})


class Bench:
    """A list of files in a scratch folder, and the contestants."""

    def __init__(self, files: list[str], scratch: Path, components: int) -> None:
        self.count = len(files)
        self._components = components
        self._scratch = scratch
        self._list = scratch / f"{len(files)}.txt"
        self._list.write_text("\n".join(files))

    def contestant(self, name: str, target: str = "none") -> Run:
        script = HERE / "fit_contestants.py"
        out = self._scratch / f"{target}.npy"
        return run(sys.executable, script, name, self._list, out, self._components)

    def tpca(self, target: str, *options: object) -> Run:
        out = self._scratch / f"{target}.h5"
        out.unlink(missing_ok=True)
        fit = ("fit-basis", f"@{self._list}", "-o", out, "--method", "operator", "--center", "--json")
        return run(sys.executable, "-m", "tpca_cli", *fit, *options)

    def variance(self, target: str) -> float:
        return float(self.contestant("variance", target).data["variance"])


def table(title: str, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |", flush=True)


def end_to_end(bench: Bench, m: int, all_pairs: bool, short: bool) -> None:
    """From files to components, everybody."""
    components = ("--components", m)
    runs = {
        "decode only": bench.contestant("decode"),
        "tpca fast": bench.tpca("fast", "--solver", "fast", *components),
        "Pillow + PCA randomized": bench.contestant("randomized", "randomized"),
    }
    if not short:
        exact = bench.tpca("exact", "--solver", "exact", *components, "--memory", "4G")
        runs["tpca exact"] = exact
        runs["Pillow + IncrementalPCA"] = bench.contestant("incremental", "incremental")
    targets = {
        "tpca fast": "fast",
        "tpca exact": "exact",
        "Pillow + PCA randomized": "randomized",
        "Pillow + IncrementalPCA": "incremental",
    }
    for name in ("fast",) if short else ("fast", "exact"):
        bench.contestant("export", name)
    if all_pairs:
        runs["tpca all pairs"] = bench.tpca("all", "--all", "--memory", "12G")
    limit, fast = runs["decode only"].seconds, runs["tpca fast"]
    rows = []
    for name, each in runs.items():
        share = f"{bench.variance(targets[name]):.5f}" if name in targets else ""
        residual = each.data.get("residual")
        rows.append(
            (
                name,
                f"{each.seconds:.1f}",
                f"{each.seconds / limit:.1f}",
                f"{each.seconds / fast.seconds:.2f}",
                f"{each.cpu:.1f}",
                f"{each.cpu / fast.cpu:.2f}",
                f"{each.peak:.0f}",
                f"{each.peak / fast.peak:.2f}",
                share,
                "" if residual is None else f"{residual:.1e} / {each.data['residual_relative']:.1e}",
            )
        )
    table(
        f"{bench.count} images, M = {m}, centered, from files",
        (
            "",
            "s",
            "x decode",
            "x fast",
            "CPU s",
            "x fast",
            "peak MB",
            "x fast",
            "variance",
            "residual / lambda_1, / lambda_l",
        ),
        rows,
    )


def growth(benches: list[Bench], m: int) -> None:
    """Time and memory against the number of images."""
    rows: list[tuple[object, ...]] = []
    for bench in benches:
        each = bench.tpca("growth", "--solver", "fast", "--components", m)
        rows.append(
            (
                bench.count,
                f"{each.seconds:.1f}",
                f"{1e3 * each.seconds / bench.count:.2f}",
                f"{each.cpu:.1f}",
                f"{each.peak:.0f}",
            )
        )
    table("tpca fast, growing", ("images", "s", "ms per image", "CPU s", "peak MB"), rows)


def parts(bench: Bench, few: Bench) -> None:
    """The pieces by themselves, each against the routine it replaces."""
    add = bench.contestant("accumulation").data
    top = bench.contestant("solvers").data
    modes = few.contestant("rank1").data
    equal = "every entry equal" if add["equal"] else "ENTRIES DIFFER"
    residuals = f"residuals {top['ours_residual']:.1e}, {top['eigsh_residual']:.1e}"
    subspaces = f"{few.count} images, subspaces differ by {modes['subspace_difference']:.1e}"
    rows = [
        (what, f"{ours:.2f}", f"{other:.2f}", f"{other / ours:.2f}", note)
        for what, ours, other, note in (
            ("accumulate A / float64 syrk", add["exact_seconds"], add["syrk_seconds"], equal),
            ("top pairs of A / eigsh", top["ours_seconds"], top["eigsh_seconds"], residuals),
            ("rank-1 / TensorLy partial_tucker", modes["ours_seconds"], modes["tensorly_seconds"], subspaces),
        )
    ]
    table("The parts, in memory", ("", "ours, s", "other, s", "ratio", ""), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--components", type=int, default=500)
    parser.add_argument("--counts", type=int, nargs="+", default=[2500, 5000, 10000])
    parser.add_argument(
        "--only", choices=["end", "growth", "parts"], nargs="+", default=["end", "growth", "parts"]
    )
    parser.add_argument("--all-pairs", action="store_true", help="also all L pairs: many minutes")
    parser.add_argument("--short", action="store_true", help="only the fast fit and randomized PCA")
    given = parser.parse_args()
    names = sorted(
        str(path) for path in given.folder.rglob("*") if path.suffix.lower() in (".jpeg", ".jpg", ".png")
    )
    for name in names:
        Path(name).read_bytes()
    order = sorted(range(len(names)), key=lambda i: i * SEED_STEP % len(names))
    with tempfile.TemporaryDirectory() as scratch:
        counts = [min(count, len(names)) for count in given.counts]
        benches = [
            Bench([names[i] for i in order[:count]], Path(scratch), given.components) for count in counts
        ]
        if "end" in given.only:
            end_to_end(benches[-1], given.components, given.all_pairs, given.short)
        if "growth" in given.only:
            growth(benches, given.components)
        if "parts" in given.only:
            few = Bench([names[i] for i in order[:2000]], Path(scratch), given.components)
            parts(benches[-1], few)


if __name__ == "__main__":
    main()
