"""How much of a command is done: one share for the whole job, from the stages that the library reports.

Each stage of a command has a part of the bar, in the order of the work. A stage that comes again (another
group of images, another step to try) says so and takes half of what is left: the bar never goes back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# where the bar stands at the end of each stage, by command: rough, since folders differ
STAGES: dict[str, dict[str, float]] = {
    "encode": {
        "reading headers": 0.02,
        "fitting the basis": 0.15,
        "searching the step": 0.35,
        "encoding": 0.65,
        "projecting": 0.9,
    },
    "fit-basis": {
        "reading headers": 0.05,
        "read images": 0.6,
        "operator": 0.8,
        "coordinates": 0.85,
        "product": 0.9,
    },
    "decode": {"decoding": 0.98},
    "inspect": {"measuring": 0.98},
    "merge": {"adding operators": 0.5},
    "verify": {"verifying": 0.5, "comparing": 0.98},
    "repack": {"repacking": 0.95},
}
WORDS = {"read images": "reading images", "operator": "summing the operator", "product": "multiplying"}
ANOTHER = 0.5  # of what is left goes to a stage that is not expected


class Bar:
    """The share of the job that is done, and the words for what is being done."""

    def __init__(self, stages: Mapping[str, float]) -> None:
        self.stages = stages
        self.share = 0.0
        self.label = "starting"
        self._stage, self._done = "", 0
        self._start, self._end = 0.0, 0.0
        self._passes: dict[str, int] = {}

    def advance(self, stage: str, done: int, total: int) -> float:
        """Note what the library reports; the share of the whole job, which never falls and stays below 1."""
        stage = re.sub(r" [0-9]+$", "", stage)
        if stage != self._stage or done < self._done:
            self._enter(stage)
        self._done = done
        part = min(done / total, 1.0) if total > 0 else 1.0
        self.share = max(self.share, self._start + (self._end - self._start) * part)
        return self.share

    def _enter(self, stage: str) -> None:
        self._passes[stage] = number = self._passes.get(stage, 0) + 1
        self._stage, self._start = stage, self.share
        self._end = self.stages.get(stage, 0.0)
        if number > 1 or self._end <= self._start:
            self._end = self._start + ANOTHER * (1.0 - self._start) * 0.99
        words = WORDS.get(stage, stage)
        self.label = words if number == 1 else f"{words} (pass {number})"
