"""A real scheduler with two worker processes: the files must be those of one process, byte for byte.

    python tests/benchmarks/cluster_identity.py FOLDER [--limit N] [--kill]

Fits and encodes FOLDER by one process and by the cluster, and compares. With --kill, one of the two
workers is killed with SIGKILL in the middle of every fit; a nanny would start another, so that there is none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

TPCA = [sys.executable, "-m", "tpca_cli"]
FITS = {
    "rank1": ["--method", "rank1"],
    "rank1, tiles, by energy": ["--method", "rank1", "--tile", "8", "--energy", "0.99"],
    "operator, tiles": ["--method", "operator", "--tile", "8", "--all"],
    "operator, exact": ["--method", "operator", "--solver", "exact", "--components", "50"],
    "operator, fast": ["--method", "operator", "--solver", "fast", "--components", "50"],
    "subspace": ["--method", "subspace", "--components", "50"],
}
ENCODES = {"encode": ["--psnr", "34"], "encode, dense": ["--step", "24", "--method", "operator"]}


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers of one thread, as separate programs; gives the scheduler file and them."""
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-m", "dask"]
    common = ["--scheduler-file", str(file)]
    programs = [
        subprocess.Popen(
            [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", *common], **quiet
        )
    ]
    try:
        while not file.exists():
            time.sleep(0.1)
        for number in range(2):
            local = ["--nthreads", "1", "--no-nanny", "--local-directory", str(folder / f"worker{number}")]
            programs.append(subprocess.Popen([*dask, "worker", *common, *local, "--no-dashboard"], **quiet))
        yield str(file), programs[1:]
    finally:
        for program in reversed(programs):
            program.kill()
            program.wait()


def run(arguments: list[str]) -> float:
    """Seconds of a command that must succeed."""
    began = time.monotonic()
    done = subprocess.run([*TPCA, *arguments, "--json", "--force"], capture_output=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stdout!r}\n{done.stderr!r}")
    return time.monotonic() - began


def kill_at_work(file: str, victim: subprocess.Popen[bytes]) -> None:
    """Kill a worker once it has begun to work on the shards of a fit."""
    from distributed import Client

    with Client(scheduler_file=file, set_as_default=False) as client:
        while not any("task" in str(key) for keys in client.processing().values() for key in keys):
            time.sleep(0.01)
        os.kill(victim.pid, signal.SIGKILL)


def compare(name: str, command: str, source: str, options: list[str], folder: Path, kill: bool) -> dict:
    """The same command on one machine and on a cluster of its own."""
    alone, many = folder / "alone.h5", folder / "many.h5"
    here = run([command, source, "-o", str(alone), *options])
    home = Path(tempfile.mkdtemp(dir=folder))
    with cluster(home) as (file, workers):
        everything = [command, source, "-o", str(many), *options, "--cluster", file]
        killer = threading.Thread(target=kill_at_work, args=(file, workers[0]), daemon=True)
        if kill:
            killer.start()
        there = run(everything)
        lost = sum(worker.poll() is not None for worker in workers)
    same = alone.read_bytes() == many.read_bytes()
    return {
        "what": name,
        "same_bytes": same,
        "file_bytes": alone.stat().st_size,
        "workers_lost": lost,
        "one_process_s": round(here, 1),
        "cluster_s": round(there, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--limit", type=int, help="use only so many images")
    parser.add_argument("--kill", action="store_true", help="kill one of two workers during each fit")
    parser.add_argument("--memory", default="8G")
    parser.add_argument("--only", help="names that begin so")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source = given.folder
        if given.limit:
            files = sorted(path for path in Path(given.folder).resolve().rglob("*") if path.is_file())
            chosen = files[:: max(1, len(files) // given.limit)][: given.limit]
            (folder / "list.txt").write_text("".join(f"{path}\n" for path in chosen))
            source = f"@{folder / 'list.txt'}"
        works = [(name, "fit-basis", [*options, "--memory", given.memory]) for name, options in FITS.items()]
        if not given.kill:
            works += [(name, "encode", options) for name, options in ENCODES.items()]
        differ = 0
        for name, command, options in works:
            if given.only and not name.startswith(given.only):
                continue
            result = compare(name, command, source, options, folder, given.kill)
            differ += not result["same_bytes"]
            print(json.dumps(result), flush=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
