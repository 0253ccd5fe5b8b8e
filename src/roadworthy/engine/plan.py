"""The plan: what will be shown to whom. Artifacts first, then cases, then tables; nothing here runs anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from roadworthy.core.protocols import Dataset, Model, Shift
from roadworthy.core.random import Streams
from roadworthy.core.types import Batch, Case, Stimulus

CHUNK_BYTES = 64 * 2**20
CHUNK_IMAGES = 1024
BATCH = 64
THREADS = 1
"""Threads per inference. Workers are the parallelism; more threads would change the bits of an answer."""


@dataclass(frozen=True)
class Showing:
    """A stimulus together with what makes it: the data and, unless undisturbed, the shift."""

    stimulus: Stimulus
    data: Dataset
    shift: Shift | None = None

    def show(self, batch: Batch) -> Batch:
        """The disturbed batch. Depends on the stimulus and the image ids alone."""
        if self.shift is not None:
            batch = self.shift(batch, Streams(self.stimulus.seed, self.stimulus.hash))
        return replace(batch, stimulus=self.stimulus.key)


@dataclass(frozen=True)
class PlannedCase:
    """A case together with what runs it."""

    case: Case
    showing: Showing
    model: Model


@dataclass(frozen=True)
class Plan:
    """All cases of a study. `chunk` and `batch` are part of every case's hash: they fix the bits of the answers."""

    cases: tuple[PlannedCase, ...]
    chunk: int
    batch: int = BATCH
    stimuli: Mapping[str, Showing] = field(init=False)

    def __post_init__(self) -> None:
        stimuli = {planned.showing.stimulus.hash: planned.showing for planned in self.cases}
        object.__setattr__(self, "stimuli", stimuli)

    def image_cases(self) -> int:
        """How many answers the plan asks for in all."""
        return sum(len(planned.showing.data) for planned in self.cases)


def chunk_size(data: Dataset, batch: int = BATCH) -> int:
    """Images decoded together: at most 64 MiB and 1,024 images, a whole number of batches where one fits.

    >>> class Small: size, channels = (64, 64), 3
    >>> chunk_size(Small())
    1024
    """
    height, width = data.size
    fitting = min(CHUNK_IMAGES, max(1, CHUNK_BYTES // (height * width * data.channels)))
    return max(batch, fitting // batch * batch)


def plan_cases(
    protocol: str, showings: Sequence[Showing], models: Mapping[str, Model], *, batch: int, chunk: int
) -> list[PlannedCase]:
    """Every stimulus shown to every model, with all that decides the bits of an answer in the recipe of its case."""
    recipes = {
        name: {"model": model.fingerprint(), "batch": model.fixed_batch or batch, "chunk": chunk, "threads": THREADS}
        for name, model in models.items()
    }
    return [
        PlannedCase(Case(protocol, showing.stimulus, name, recipes[name]), showing, model)
        for showing in showings
        for name, model in models.items()
    ]
