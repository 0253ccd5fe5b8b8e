"""How long a study will take: a little of everything that is still to do, timed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass

from roadworthy.core.errors import RoadworthyError
from roadworthy.core.roles import Buildable, Trial
from roadworthy.engine.artifacts import is_built
from roadworthy.engine.chunks import ask_systems
from roadworthy.engine.executor import load_built
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.ledger import pending_tasks
from roadworthy.engine.plan import Graph, PlannedCase, PlannedStimulus
from roadworthy.engine.stopping import Stops


@dataclass(frozen=True)
class TimeEstimate:
    """Rough seconds of what is still to do.

    building  of all artifacts that can be tried before they are built, `timed` of them; at most, since a training may
              stop sooner
    cases     of all cases but those that use an artifact which cannot be tried; there are `untimed` of these artifacts
    """

    building: float
    cases: float
    timed: int
    untimed: int

    @property
    def total(self) -> float:
        """All seconds that are known."""
        return self.building + self.cases


def estimate_time(graph: Graph, store: RunFolder, workers: int) -> TimeEstimate:
    """A rough time for what is still to do: one batch per system and one per kind of stimulus is timed.

    Repeats of a stimulus take as long. What is not built yet is tried where it can be: see `Buildable.trial`.
    """
    with suppress(RoadworthyError):  # a damaged artifact counts as not built
        load_built(graph, store, graph.artifacts)
    trials = _Trials()
    building, timed, untimed = 0.0, 0, 0
    for node in graph.artifacts.values():
        part = node.parts[0]
        if is_built(store, part.recipe):
            continue
        trial = trials.of(part)
        timed, untimed = timed + (trial is not None), untimed + (trial is None)
        if trial is not None:
            building += part.work * trial.per_work / (workers if part.threads == 1 else 1)
    return TimeEstimate(building, _case_seconds(graph, store, trials) / workers, timed, untimed)


class _Trials:
    """Trials of what is not built yet; of all that take as long, one is tried."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Trial | None] = {}

    def of(self, part: Buildable) -> Trial | None:
        """What was seen of it, or of its like; None where it cannot be tried."""
        key = type(part), part.trial_key
        if key not in self._known:
            self._known[key] = None
            with suppress(RoadworthyError):  # too few images to try it on, or a training that diverges at once
                self._known[key] = part.trial()
        return self._known[key]

    def per_image(self, parts: tuple[Buildable, ...]) -> float | None:
        """Seconds for each image that what is not loaded of some parts is used for; None where that is not known."""
        trials = [self.of(part) for part in parts if not part.loaded]
        return None if None in trials else sum(trial.per_image for trial in trials if trial is not None)


def _case_seconds(graph: Graph, store: RunFolder, trials: _Trials) -> float:
    """Seconds of one worker for all cases that can be timed."""
    cases = [node.planned for node in graph.cases.values() if not node.planned.refused]
    shown_seconds: dict[Hashable, float | None] = {}
    decoding: dict[str, float] = {}
    decoded: set[Hashable] = set()
    answers: dict[int, int] = defaultdict(int)
    asked: dict[int, tuple[PlannedCase, PlannedStimulus | None]] = {}
    total = 0.0
    for task in pending_tasks(cases, store, Stops(cases, store), lambda images: None):
        showing = task.showing
        images = min(task.size, len(showing.data) - task.chunk * task.size)
        kind = showing.stimulus.name, showing.stimulus.level, showing.data.name, id(showing.attacked)
        if kind not in shown_seconds:
            shown_seconds[kind] = _seconds_to_show(showing, graph.batch, trials)
        seconds = shown_seconds[kind]
        if seconds is None:
            continue
        total += images * seconds
        if showing.data.name not in decoding:
            decoding[showing.data.name] = _seconds_to_decode(showing, graph.batch)
        if task.images not in decoded:
            decoded.add(task.images)
            total += images * decoding[showing.data.name]
        sample = showing if all(part.loaded for part in showing.requires) and showing.attacked is None else None
        for planned in task.cases:
            answers[id(planned.system)] += images
            if asked.get(id(planned.system), (planned, None))[1] is None:
                asked[id(planned.system)] = planned, sample
    for key, (planned, sample) in asked.items():
        total += answers[key] * _seconds_to_answer(planned, sample, graph.batch, trials)
    return total


def _seconds_to_show(showing: PlannedStimulus, batch: int, trials: _Trials) -> float | None:
    """Seconds per image to disturb it, or to draw it where that is not yet possible; None where it is not known."""
    if showing.attacked is not None and not all(part.loaded for part in showing.attacked.requires()):
        return None
    if not all(part.loaded for part in showing.requires):
        return trials.per_image(showing.requires)
    sample = showing.data.batch(slice(0, batch))
    started = time.perf_counter()
    showing.show(sample)
    return (time.perf_counter() - started) / max(1, len(sample))


def _seconds_to_decode(showing: PlannedStimulus, batch: int) -> float:
    """Seconds per image to read or make it; 0 where that was counted as drawing."""
    if not all(part.loaded for part in showing.requires):
        return 0.0
    started = time.perf_counter()
    sample = showing.data.batch(slice(0, batch))
    return (time.perf_counter() - started) / max(1, len(sample))


def _seconds_to_answer(planned: PlannedCase, sample: PlannedStimulus | None, batch: int, trials: _Trials) -> float:
    """Seconds per image to ask a system; 0 where it uses an artifact that cannot be tried."""
    parts = tuple(planned.system.requires())
    if not all(part.loaded for part in parts):
        return trials.per_image(parts) or 0.0
    if sample is None:
        return 0.0
    few = sample.show(sample.data.batch(slice(0, batch)))
    ask_systems([planned], few, batch)
    return ask_systems([planned], few, batch)[0][1] / max(1, len(few))
