"""What the models of exact coding begin with: counters and weights as they were after other folders.

`tools/fit_exact_priors.py` makes the files. A counter is two bytes, its logit and how often it moved, a
weight is one. Most counters never moved, so the files are small.
"""

from __future__ import annotations

import functools
import lzma
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from tpca_cli.wasm import Field, Job, Kernel, Room, Values

MODEL = 2
"""The number of the models. A decoder needs those that a block was coded with: newer ones get another, and
older ones stay, with programs of their own."""
UNDECIDED, EQUAL_SHARE = 128, 16
"""The logit of a counter that knows nothing, and a weight that trusts all inputs alike."""
PATIENCE = 30
"""How often a shipped counter has moved at most: it stays ready to learn a folder's own statistics."""

FIELDS = (
    Field("i32", "damaged"),
    Field("const u8 *", "priors", "counters and weights to begin with"),
    Field("i32", "given", "bytes of them, 0 for those that the kernel has of this model"),
    Field("i32", "model", "the number of these, 0 for none"),
    Field("i32", "missing", "whether it has none"),
    Field("i32", "tell", "whether to say what was learned"),
    Field("u8 *", "learned"),
)
"""Of every job that codes with a model; `Model.run` gives their values."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Model:
    """What a kernel has: so many counters, and so many mixers of so many inputs."""

    name: str
    counters: int
    mixers: int
    inputs: int
    number: int = MODEL

    @property
    def size(self) -> int:
        """Bytes of its state."""
        return 2 * self.counters + self.mixers * self.inputs

    def untrained(self) -> Bytes:
        """One that knows nothing."""
        state = np.zeros(self.size, np.uint8)
        state[: 2 * self.counters : 2] = UNDECIDED
        state[2 * self.counters :] = EQUAL_SHARE
        return state

    def run(self, kernel: Kernel, values: Values, state: Bytes | None) -> Job:
        """Run a job from this state, or from the shipped one: a kernel that has it not yet asks for it.

        From a state of its own, it tells what it learned.
        """
        begin: Values
        number = self.number if state is None else 0
        learned = Room(1 if state is None else self.size, scratch=True)
        values = {**values, "damaged": 0, "tell": int(state is not None), "learned": learned}
        if "given" not in kernel.offsets:  # the first programs get it with every job
            begin = {"priors": trained(self) if state is None else state, "model": number}
            return Job.of(kernel, {**values, **begin}).run()
        given = np.zeros(0, np.uint8) if state is None else state
        while True:
            begin = {"priors": given, "given": given.size, "model": number, "missing": 0}
            job = Job.of(kernel, {**values, **begin}).run()
            if not job.numbers["missing"]:
                return job
            given = trained(self)

    def packed(self, state: Bytes) -> bytes:
        """A state as it is shipped."""
        kept = state.copy()
        logits, moved = kept[: 2 * self.counters : 2], kept[1 : 2 * self.counters : 2]
        np.minimum(moved, PATIENCE, out=moved)
        logits[moved == 0] = UNDECIDED
        return lzma.compress(kept.tobytes(), preset=9)


@functools.lru_cache(maxsize=4)
def trained(model: Model) -> Bytes:
    """The shipped state of a model."""
    packed = resources.files(__package__).joinpath(f"trained/{model.name}-{model.number}.xz").read_bytes()
    state = np.frombuffer(lzma.decompress(packed), np.uint8)
    if state.size != model.size:
        raise RuntimeError(f"the model {model.name} has {state.size} bytes: run tools/fit_exact_priors.py")
    return state
