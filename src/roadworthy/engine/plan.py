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
    """A stimulus together with what makes it: the data and, unless undisturbed, the shift.

    `fresh` says that the data itself is drawn anew in each repeat.
    """

    stimulus: Stimulus
    data: Dataset
    shift: Shift | None = None
    fresh: bool = False

    @property
    def varies(self) -> bool:
        """True where another repeat shows other pixels."""
        return self.fresh or self.shift is not None

    def show(self, batch: Batch) -> Batch:
        """The disturbed batch. Depends on the stimulus and the image ids alone."""
        if self.shift is not None:
            batch = self.shift(batch, Streams(self.stimulus.seed, self.stimulus.hash))
        return replace(batch, stimulus=self.stimulus.key)


@dataclass(frozen=True)
class PlannedCase:
    """A case together with what runs it, and what its protocol notes in run.json to find it again."""

    case: Case
    showing: Showing
    model: Model
    tags: Mapping[str, str] = field(default_factory=dict)


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

    def of(self, protocol: str) -> list[PlannedCase]:
        """The cases of one protocol."""
        return [planned for planned in self.cases if planned.case.protocol == protocol]

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


@dataclass(frozen=True)
class Bench:
    """What a study puts on the table: data, foreign sets and models, all open, and what fixes the bits of an answer."""

    data: Dataset
    models: Mapping[str, Model]
    seed: int
    batch: int
    chunk: int
    foreign: Mapping[str, Dataset] = field(default_factory=dict)


def plan_cases(
    protocol: str, showings: Sequence[Showing], bench: Bench, tags: Mapping[str, str] | None = None
) -> list[PlannedCase]:
    """Every stimulus shown to every model, with all that decides the bits of an answer in the recipe of its case.

    A model that is trained anew for each repeat answers with the member of that repeat. Where a repeat would show the
    same pixels to the same network once more, it is left out: it could only give the same answer.
    """
    planned = []
    for showing in showings:
        repeat = showing.stimulus.repeat
        for name, model in bench.models.items():
            member = model.for_repeat(repeat)
            if repeat and not showing.varies and member is model.for_repeat(0):
                continue
            recipe = {
                "model": member.fingerprint(),
                "batch": member.fixed_batch or bench.batch,
                "chunk": bench.chunk,
                "threads": THREADS,
            }
            planned.append(PlannedCase(Case(protocol, showing.stimulus, name, recipe), showing, member, tags or {}))
    return planned
