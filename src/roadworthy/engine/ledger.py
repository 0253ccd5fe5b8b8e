"""What of some cases is stored, failed or still to do, chunk by chunk: the same for all executors."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roadworthy.core.manifests import counted_parts
from roadworthy.engine import readouts
from roadworthy.engine.chunks import Answered, Task
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import PlannedCase
from roadworthy.engine.stopping import Stops


@dataclass
class Outcome:
    """What came of a graph: failures by the hash of a node, and (seconds, images) by it for what was done now.

    not_shown   the cases that failed because their stimulus could not be made
    built       the competence of every artifact that is there, by its hash
    peaks       the most memory that the process held which built an artifact now, in bytes, while it did
    """

    failures: dict[str, str] = field(default_factory=dict)
    not_shown: set[str] = field(default_factory=set)
    spent: dict[str, tuple[float, int]] = field(default_factory=dict)
    built: dict[str, Any] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)


class Ledger:
    """The cases that are being shown, and what is known of each of their chunks.

    Of a case that fails at several chunks the first one counts, so chunks before it are still done. `tasks` are those
    that the store lacks; `progress` is told how many answers are there, whoever gave them.
    """

    def __init__(
        self, cases: Sequence[PlannedCase], store: RunFolder, outcome: Outcome, progress: Callable[[int], None]
    ) -> None:
        self._cases = {planned.case.hash: planned for planned in cases}
        self._store, self._outcome, self._progress = store, outcome, progress
        self._stops = Stops(cases, store)
        self._failed_at: dict[str, dict[int, str]] = defaultdict(dict)
        self._clock = threading.Lock()
        self.tasks = pending_tasks(cases, store, self._stops, progress)

    def still_asked(self, task: Task) -> Task:
        """The same task for those of its cases that still want it: not those that failed before it, or have enough."""
        known = self._failed_at
        waiting = [p for p in task.cases if min(known.get(p.case.hash, {task.chunk: ""})) >= task.chunk]
        wanted = tuple(planned for planned in waiting if task.chunk < self._stops.parts(planned))
        if len(wanted) < len(waiting):
            self._progress(task.images_of(len(waiting) - len(wanted)))
        return replace(task, cases=wanted)

    def note(self, task: Task, answered: Answered) -> None:
        """Take down what came of a chunk for a case, and see whether that case has enough now."""
        case = answered.case
        if answered.failure:
            self._failed_at[case][task.chunk] = answered.failure
            if not answered.shown:
                self._outcome.not_shown.add(case)
            return
        part = readouts.part_path(self._store.case(self._cases[case].case.key), task.chunk)
        self._store.written[part] = answered.sha
        with self._clock:
            seconds, images = self._outcome.spent.get(case, (0.0, 0))
            self._outcome.spent[case] = seconds + answered.seconds, images + answered.images
        self._progress(answered.images)
        self._stops.look(self._cases[case])

    def finish(self) -> None:
        """Declare those cases finished that have all their parts, and take down why the others failed."""
        for case, planned in self._cases.items():
            failed = {chunk: why for chunk, why in self._failed_at[case].items() if chunk < self._stops.parts(planned)}
            if failed:
                self._outcome.failures[case] = failed[min(failed)]
            else:
                self._outcome.not_shown.discard(case)
                self._stops.finish(planned)


def is_done(store: RunFolder, planned: PlannedCase) -> bool:
    """True where the case's readouts are complete on disk, or as many as its rule asks for."""
    return Stops([planned], store).is_done(planned)


def pending_tasks(
    cases: Sequence[PlannedCase], store: RunFolder, stops: Stops, progress: Callable[[int], None]
) -> list[Task]:
    """The tasks still to do, chunk by chunk so that each chunk is decoded once; tells progress what is done already."""
    together: dict[tuple[str, int], list[PlannedCase]] = defaultdict(list)
    for planned in cases:
        if stops.is_done(planned):
            progress(len(planned.showing.data))
        else:
            together[planned.showing.stimulus.hash, planned.chunk].append(planned)
    tasks: list[Task] = []
    for (_, size), planned_cases in together.items():
        showing = planned_cases[0].showing
        stored = {planned.case.hash: counted_parts(store.case(planned.case.key)) for planned in planned_cases}
        for chunk in range(planned_cases[0].parts):
            missing = []
            for planned in planned_cases:
                counts = chunk < stops.parts(planned)
                if not counts or readouts.part_name(chunk) in stored[planned.case.hash]:
                    progress(min(size, len(showing.data) - chunk * size))
                else:
                    missing.append(planned)
            if missing:
                tasks.append(Task(showing, size, chunk, tuple(missing)))
    return sorted(tasks, key=lambda task: (task.showing.stimulus.data, task.size, task.chunk))
