"""Coverage-guided fuzzing of one target for some seconds, from the committed corpus: `make fuzz SECONDS=60`.

New inputs that reach new code are kept in `.fuzz/TARGET` beside the checkout's other leavings; a finding is
written to `.fuzz/` and ends the run with an error. Needs `atheris` (the extra `fuzz`).
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import atheris
import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LONGEST = {"index": 8192, "bundle": 8192, "block": 32768, "exact": 8192, "image": 8192}


def main() -> None:
    """`fuzz.py TARGET SECONDS`"""
    target, seconds = sys.argv[1], int(sys.argv[2])
    sys.path[:0] = [str(HERE), str(ROOT)]
    with atheris.instrument_imports(include=["tpca_cli", "PIL"]):
        from targets import TARGETS
    found = ROOT / ".fuzz" / target
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST[target]}",
        "-timeout=10",
        "-malloc_limit_mb=512",
        "-rss_limit_mb=4096",  # the fuzzer itself loses a kilobyte with every changed list
        "-print_final_stats=1",
        f"-artifact_prefix={ROOT / '.fuzz' / target}-",
    ]
    words = [sys.argv[0], *options, str(found), str(HERE / "corpus" / target)]
    lists: dict[str, Any] = {} if target == "image" else {"custom_mutator": mutated}
    atheris.Setup(words, TARGETS[target], **lists)
    atheris.Fuzz()


def mutated(data: bytes, most: int, seed: int) -> bytes:
    """A list of byte strings with one of them changed: most blind changes would only break the list."""
    from tpca_cli.store.columns import join_blobs, split_blobs

    rng = random.Random(seed)
    try:
        blobs = split_blobs(np.frombuffer(data, np.uint8))
    except Exception:
        blobs = []
    if not blobs or rng.random() < 0.1:
        return bytes(atheris.Mutate(data, most))
    chosen = rng.randrange(len(blobs))
    room = max(most - len(data) + len(blobs[chosen]), 1)
    blobs[chosen] = bytes(atheris.Mutate(blobs[chosen], room))
    return join_blobs(blobs).tobytes()[:most]


if __name__ == "__main__":
    main()
