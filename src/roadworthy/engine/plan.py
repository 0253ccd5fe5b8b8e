"""The plan: what will be shown to whom. Artifacts first, then cases, then tables; nothing here runs anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roadworthy.core.errors import InputError, ModelError, foreign_code
from roadworthy.core.protocols import BATCH as BATCH
from roadworthy.core.protocols import Buildable, Dataset, Model, Shift, leaves
from roadworthy.core.random import Streams
from roadworthy.core.types import Batch, Case, Stimulus
from roadworthy.models import StoredPredictions

CHUNK_BYTES = 64 * 2**20
CHUNK_IMAGES = 1024
MOST_CASES = 100_000
"""Cases of a study (triples of an OD-test), at most: a plan is made whole before anything runs."""
THREADS = 1
"""Threads per inference. Workers are the parallelism; more threads would change the bits of an answer."""


@dataclass(frozen=True)
class Showing:
    """A stimulus together with what makes it: the data and, unless undisturbed, the shift.

    `fresh` says that the data itself is drawn anew in each repeat; `maker` must be built before that can be done.
    `attacked` is the model that an attack is made against, the only one it is shown to.
    """

    stimulus: Stimulus
    data: Dataset
    shift: Shift | None = None
    fresh: bool = False
    attacked: Model | None = None
    maker: Buildable | None = None

    @property
    def ready(self) -> bool:
        """True once its data can be drawn."""
        return self.maker is None or self.maker.loaded

    @property
    def varies(self) -> bool:
        """True where another repeat shows other pixels."""
        return self.fresh or self.shift is not None

    def against(self, model: Model) -> Showing:
        """What this model is shown: the same for all, unless the shift attacks the model it is shown to."""
        shift = None if self.shift is None else self.shift.bound(model)
        if shift is None or shift is self.shift:
            return self
        if is_stored(model):
            raise InputError(
                f"shift {shift.name} attacks model {model.name}, whose stored predictions answer nothing new: test the "
                f"model itself, or leave out {shift.name}"
            )
        stimulus = replace(self.stimulus, parameters=shift.parameters())
        return replace(self, stimulus=stimulus, shift=shift, attacked=model)

    def show(self, batch: Batch) -> Batch:
        """The disturbed batch, read-only. Depends on the stimulus and the image ids alone.

        What the code of the shift raises becomes a `ModelError`; it cannot write into the batch that others share.
        """
        with foreign_code(lambda error: ModelError(f"shift {self.stimulus.name} raised {error!r}")):
            if self.shift is not None:
                batch = self.shift(batch.read_only(), Streams(self.stimulus.seed, self.stimulus.hash))
            return replace(batch, stimulus=self.stimulus.key).read_only()


@dataclass(frozen=True)
class PlannedCase:
    """A case together with what runs it, and what the protocol that asks for it notes in run.json to find it again.

    `needs` are artifacts that its protocol reads besides the readouts, each built once the model is ready. `refused`
    says why the model cannot be shown this: then the case fails without being run.
    """

    protocol: str
    case: Case
    showing: Showing
    model: Model
    tags: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Buildable, ...] = ()
    refused: str = ""

    def parts(self) -> list[tuple[str, Buildable]]:
        """What must be built before it can be shown, with the name of the model or stimulus it is a part of."""
        maker = [] if self.showing.maker is None else [(self.showing.stimulus.name, self.showing.maker)]
        return [*((self.case.system, part) for part in self.model.parts()), *maker]


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
        return [planned for planned in self.cases if planned.protocol == protocol]

    def distinct(self) -> list[PlannedCase]:
        """Every case once, however many protocols or models of the same content ask for it."""
        return list({planned.case.hash: planned for planned in reversed(self.cases)}.values())[::-1]

    def parts(self) -> list[tuple[str, Buildable]]:
        """What must be built before cases are shown, once each, as of a case."""
        return list({id(part): (name, part) for planned in self.cases for name, part in planned.parts()}.values())

    def image_cases(self) -> int:
        """How many answers the plan asks for in all."""
        return sum(len(planned.showing.data) for planned in self.distinct())


def check_plan_size(number: int, unit: str = "cases") -> None:
    """Refuse a plan that would never end, by its size alone: before any list is built.

    >>> check_plan_size(51)
    """
    if number > MOST_CASES:
        raise InputError(
            f"this study asks for {number:,} {unit}; at most {MOST_CASES:,} can be planned: ask for fewer repeats, "
            "levels, sets or models"
        )


def is_stored(model: Model) -> bool:
    """True for stored predictions: they answer what was exported and can be asked nothing else."""
    return any(isinstance(leaf, StoredPredictions) for leaf in leaves(model))


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
    """What a study puts on the table: data, foreign sets and models, all open, and what fixes the bits of an answer.

    `train` is the training data, where a model or a protocol wants it.
    """

    data: Dataset
    models: Mapping[str, Model]
    seed: int
    batch: int
    chunk: int
    foreign: Mapping[str, Dataset] = field(default_factory=dict)
    train: Dataset | None = None

    def without(self, models: Iterable[str]) -> Bench:
        """The same without these models."""
        return replace(self, models={name: model for name, model in self.models.items() if name not in set(models)})


def plan_cases(
    protocol: str, showings: Sequence[Showing], bench: Bench, tags: Mapping[str, str] | None = None
) -> list[PlannedCase]:
    """Every stimulus shown to every model, with all that decides the bits of an answer in the recipe of its case.

    A model that is trained anew for each repeat answers with the member of that repeat. Where a repeat would show the
    same pixels to the same network once more, it is left out: it could only give the same answer. An attack is a
    stimulus of its own for every model; one that no model can be attacked by is an error.
    """
    planned = []
    fingerprints: dict[int, str] = {}
    for showing in showings:
        repeat = showing.stimulus.repeat
        refusals: list[InputError] = []
        for name, model in bench.models.items():
            member = model.for_repeat(repeat)
            if repeat and not showing.varies and member is model.for_repeat(0):
                continue
            if id(member) not in fingerprints:
                fingerprints[id(member)] = member.fingerprint()
            recipe = {
                "model": fingerprints[id(member)],
                "batch": member.fixed_batch or bench.batch,
                "chunk": bench.chunk,
                "threads": THREADS,
            }
            shown, refused = showing, ""
            try:
                shown = showing.against(member)
            except InputError as error:
                refused = str(error)
                refusals.append(error)
            case = Case(shown.stimulus, name, recipe)
            planned.append(PlannedCase(protocol, case, shown, member, tags or {}, refused=refused))
        if refusals and len(refusals) == len(bench.models):
            raise refusals[0]
    return planned
