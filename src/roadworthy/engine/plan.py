"""The plan: what will be shown to whom. Artifacts first, then cases, then tables; nothing here runs anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roadworthy.core.errors import InputError, ModelError, foreign_code
from roadworthy.core.random import Streams
from roadworthy.core.roles import BATCH as BATCH
from roadworthy.core.roles import Buildable, Dataset, Model, Outliers, Shift, System, leaves
from roadworthy.core.types import LOG_ODDS, Artifact, Batch, Case, Stimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.models import StoredPredictions

CHUNK_BYTES = 64 * 2**20
CHUNK_IMAGES = 1024
LOOK_IMAGES = 128
"""Images between two looks at a case that may stop early."""
MOST_CASES = 100_000
"""Cases of a study (triples of an OD-test), at most: a plan is made whole before anything runs."""
THREADS = 1
"""Threads per inference. Workers are the parallelism; more threads would change the bits of an answer."""
COLUMN_VERSION = 1
"""The version of the column `log_odds`, in the recipe of cases that have it: one that was stored without is another."""

StopRule = Callable[[Readouts], bool]
"""Whether the readouts of the first parts of a case are enough: a pure function of them."""


@dataclass(frozen=True)
class PlannedStimulus:
    """A stimulus together with what makes it: the data and, unless undisturbed, the shift.

    `fresh` says that the data itself is drawn anew in each repeat; `requires` must be built before that can be done.
    `attacked` is the model that an attack is made against, the only one it is shown to.
    """

    stimulus: Stimulus
    data: Dataset
    shift: Shift | None = None
    fresh: bool = False
    attacked: Model | None = None
    requires: tuple[Buildable, ...] = ()

    def __post_init__(self) -> None:
        if self.shift is not None:
            object.__setattr__(self, "shift", self.shift.over(self.data))

    @property
    def varies(self) -> bool:
        """True where another repeat shows other pixels."""
        return self.fresh or self.shift is not None

    def against(self, model: Model) -> PlannedStimulus:
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
    """A case together with what runs it, and what the protocol that asks for it notes to find it again: `labels`.

    `refused` says why the system cannot be shown this: then the case fails without being run. One that no protocol asks
    for is there because an artifact requires it. Where there is a rule to `stop`, the case ends with the first of its
    parts that are enough by it.
    """

    case: Case
    showing: PlannedStimulus
    system: System
    protocol: str = ""
    source: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    stop: StopRule | None = None

    @property
    def chunk(self) -> int:
        """Images whose answers are stored together."""
        chunk: int = self.case.recipe["chunk"]
        return chunk

    @property
    def parts(self) -> int:
        """How many parts its answers have at most."""
        return -(-len(self.showing.data) // self.chunk)


@dataclass(frozen=True)
class Plan:
    """All cases that protocols ask for; `batch` images are asked at once. See `Graph` for all that must be done."""

    cases: tuple[PlannedCase, ...]
    batch: int = BATCH
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why a model is not asked at all, by its `id`: all that it would be asked fails with that cause."""

    @property
    def stimuli(self) -> dict[str, PlannedStimulus]:
        """All that is shown, by the hash of the stimulus."""
        return {planned.showing.stimulus.hash: planned.showing for planned in self.cases}

    def of(self, protocol: str, source: str) -> list[PlannedCase]:
        """The cases of one protocol and source."""
        return [planned for planned in self.cases if (planned.protocol, planned.source) == (protocol, source)]

    def graph(self) -> Graph:
        """All that must be done, in order."""
        return Graph(self.cases, self.batch, refused=self.refused)


@dataclass
class ArtifactNode:
    """An artifact of the graph: what builds it, and all that use it under the same recipe."""

    hash: str
    name: str
    parts: list[Buildable]
    requires: frozenset[str]
    level: int


@dataclass(frozen=True)
class CaseNode:
    """A case of the graph, as one of those who asked for it planned it; `level`: that of the artifacts it requires."""

    planned: PlannedCase
    requires: frozenset[str]
    level: int
    early: bool = False


class Graph:
    """Artifacts and cases, each after what it requires.

    A case is `early` where an artifact requires it, or one that asks the same model about the same stimulus.

    `stimuli` are shown to nobody: what must be built to make them is in the graph all the same, for an export.
    `refused` says why a model is not asked, by its `id`.

    artifacts, cases   nodes by their hash, in the order of the plan
    """

    def __init__(
        self,
        cases: Sequence[PlannedCase],
        batch: int = BATCH,
        stimuli: Sequence[PlannedStimulus] = (),
        refused: Mapping[int, str] | None = None,
    ) -> None:
        self.batch, self._refused = batch, refused or {}
        self.artifacts: dict[str, ArtifactNode] = {}
        self.cases: dict[str, CaseNode] = {}
        for showing in stimuli:
            for part in showing.requires:
                self._add_artifact(part, showing.stimulus.name)
        for planned in cases:
            self._add_case(planned, early=False)
        early = {_asking(node) for node in self.cases.values() if node.early}
        self.cases = {hash_: replace(node, early=_asking(node) in early) for hash_, node in self.cases.items()}

    def __len__(self) -> int:
        return len(self.artifacts) + len(self.cases)

    @property
    def levels(self) -> range:
        """The levels of artifacts: those of one require none of the same or a higher one."""
        return range(1, 1 + max((node.level for node in self.artifacts.values()), default=0))

    def image_cases(self) -> int:
        """How many answers it asks for in all."""
        return sum(len(node.planned.showing.data) for node in self.cases.values())

    def requirements(self, node: str) -> set[str]:
        """The hashes of all that a node requires, and of what that requires."""
        known = self.artifacts.get(node) or self.cases[node]
        return set(known.requires).union(*(self.requirements(need) for need in known.requires))

    def unshowable(self, failures: Mapping[str, str]) -> set[str]:
        """The hashes of cases that were refused, or that require an artifact which failed."""
        return {
            h for h, node in self.cases.items() if node.planned.refused or any(n in failures for n in node.requires)
        }

    def reasons(self, failures: Mapping[str, str]) -> dict[str, str]:
        """Why nodes cannot be done, by their hash: `failures`, and those of what they require."""
        reasons = dict(failures)
        nodes: list[tuple[str, ArtifactNode | CaseNode]] = [*self.artifacts.items(), *self.cases.items()]
        for hash_, node in sorted(nodes, key=lambda item: item[1].level) if failures else ():
            lost = [reasons[need] for need in sorted(node.requires) if need in reasons]
            if lost:
                reasons.setdefault(hash_, lost[0])
        return reasons

    def _add_case(self, planned: PlannedCase, early: bool) -> int:
        asked = (planned.system.underlying, planned.showing.attacked)
        cause = next((self._refused[id(model)] for model in asked if id(model) in self._refused), "")
        planned = replace(planned, refused=cause) if cause and not planned.refused else planned
        known = self.cases.get(planned.case.hash)
        nodes = [self._add_artifact(part, planned.system.name) for part in planned.system.requires()]
        nodes += [self._add_artifact(part, planned.showing.stimulus.name) for part in planned.showing.requires]
        level = max((node.level for node in nodes), default=0)
        early = early or (known is not None and known.early)
        requires = frozenset(node.hash for node in nodes)
        shared = _shared(known.planned, planned) if known else planned
        self.cases[planned.case.hash] = CaseNode(shared, requires, level, early)
        return level

    def _add_artifact(self, part: Buildable, name: str) -> ArtifactNode:
        """The node of what is built for the system or stimulus of this name."""
        recipe = part.recipe
        if recipe.hash in self.artifacts:
            node = self.artifacts[recipe.hash]
            if not any(part is other for other in node.parts):
                node.parts.append(part)
                self._required(recipe, name)
            return node
        level, requires = self._required(recipe, name)
        self.artifacts[recipe.hash] = ArtifactNode(recipe.hash, name, [part], requires, 1 + level)
        return self.artifacts[recipe.hash]

    def _required(self, recipe: Artifact, name: str) -> tuple[int, frozenset[str]]:
        """The highest level of what a recipe requires, and the hashes of that."""
        level, hashes = 0, set()
        for need in recipe.requires:
            if isinstance(need, PlannedCase):
                level = max(level, self._add_case(need, early=True))
                hashes.add(need.case.hash)
            else:
                node = self._add_artifact(need, name)
                level = max(level, node.level)
                hashes.add(node.hash)
        return level, frozenset(hashes)


def _shared(first: PlannedCase, second: PlannedCase) -> PlannedCase:
    """A case that two ask for: it stops early only where it is enough for both."""
    own, other = first.stop, second.stop
    if own is None or other is None:
        return replace(first, stop=None)
    return first if own == other else replace(first, stop=lambda readouts: own(readouts) and other(readouts))


def _asking(node: CaseNode) -> tuple[str, int, int]:
    """What a case asks, of which model, and when that can be asked."""
    return node.planned.showing.stimulus.hash, id(node.planned.system.underlying), node.level


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


def chunk_size(data: Dataset, batch: int = BATCH, most: int | None = None) -> int:
    """Images decoded together: at most 64 MiB and `most` images (1,024 unless given).

    It is a whole number of batches where one fits.

    >>> class Small: size, channels = (64, 64), 3
    >>> chunk_size(Small())
    1024
    """
    height, width = data.size
    fitting = min(most or CHUNK_IMAGES, max(1, CHUNK_BYTES // (height * width * data.channels)))
    return max(batch, fitting // batch * batch)


@dataclass(frozen=True)
class Bench:
    """What a source puts on the table: data, sets from outside, models and monitors, all open, and what fixes the bits.

    source      its name; empty where a study has one only
    foreign     data sets from outside at the size of the data;  makers: of outliers, by the name of the set
    train, validation   where the source names them;  monitors: by their label
    fitting     one half of the objects of the validation data, where models are fitted on it and thresholds are found
                on it: they are fitted on this half, and `validation` is the other
    section     what the study says of the source: near, exclude, leave_out, overlap
    outliers    the names of the sets from outside and of makers, in the order of the study
    recorded    further sets of the source's classes, by name, at the size of the data
    """

    data: Dataset
    models: Mapping[str, Model]
    seed: int
    batch: int
    chunk: int
    foreign: Mapping[str, Dataset] = field(default_factory=dict)
    makers: Mapping[str, Outliers] = field(default_factory=dict)
    train: Dataset | None = None
    validation: Dataset | None = None
    monitors: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    section: Any = None
    outliers: Sequence[str] = ()
    recorded: Mapping[str, Dataset] = field(default_factory=dict)
    fitting: Dataset | None = None
    hashes: dict[int, tuple[System, str]] = field(default_factory=dict, repr=False)

    def fingerprint(self, system: System) -> str:
        """That of a system, made once: some take long."""
        if id(system) not in self.hashes:
            self.hashes[id(system)] = system, system.fingerprint()
        return self.hashes[id(system)][1]

    def division(self) -> str:
        """What is fitted on, and what thresholds are found on, where validation data is divided; else empty."""
        if self.fitting is None or self.validation is None:
            return ""
        fitting, thresholds = (
            f"{len(part):,} images of {len({*part.groups}):,} objects" for part in (self.fitting, self.validation)
        )
        return (
            f"Validation data {self.validation.name} is divided by object: {fitting} are fitted on, and thresholds are "
            f"found on {thresholds}."
        )

    def threshold_note(self) -> str:
        """What must be known of a threshold that is found on `validation`, where that is one half; else empty."""
        return "" if self.fitting is None else "half of the validation objects, none of which is fitted on"

    def without(self, models: Iterable[str]) -> Bench:
        """The same without these models."""
        return replace(self, models={name: model for name, model in self.models.items() if name not in set(models)})

    def case(
        self,
        showing: PlannedStimulus,
        system: System,
        *,
        name: str | None = None,
        protocol: str = "",
        labels: Mapping[str, str] | None = None,
        refused: str = "",
    ) -> PlannedCase:
        """A stimulus shown to a system, with all that decides the bits of an answer in its recipe."""
        fixed = None if system.underlying is None else system.underlying.fixed_batch
        recipe = {
            system.kind: self.fingerprint(system),
            "batch": fixed or self.batch,
            "chunk": system.part_images or self.chunk,
            "threads": THREADS,
        }
        if isinstance(system, Model) and LOG_ODDS in system.columns:
            recipe[LOG_ODDS] = COLUMN_VERSION
        case = Case(showing.stimulus, name or system.name, recipe)
        return PlannedCase(case, showing, system, protocol, self.source, labels or {}, refused)


def plan_cases(
    protocol: str, planned_stimuli: Sequence[PlannedStimulus], bench: Bench, labels: Mapping[str, str] | None = None
) -> list[PlannedCase]:
    """Every stimulus shown to every model.

    A model that is trained anew for each repeat answers with the member of that repeat. Where a repeat would show the
    same pixels to the same network once more, it is left out: it could only give the same answer. An attack is a
    stimulus of its own for every model; one that no model can be attacked by is an error.
    """
    planned = []
    for showing in planned_stimuli:
        repeat = showing.stimulus.repeat
        refusals: list[InputError] = []
        for name, model in bench.models.items():
            member = model.for_repeat(repeat)
            if repeat and not showing.varies and member is model.for_repeat(0):
                continue
            shown, refused = showing, ""
            try:
                shown = showing.against(member)
            except InputError as error:
                refused = str(error)
                refusals.append(error)
            case = bench.case(shown, member, name=name, protocol=protocol, labels=labels, refused=refused)
            planned.append(case)
        if refusals and len(refusals) == len(bench.models):
            raise refusals[0]
    return planned
