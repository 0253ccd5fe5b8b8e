"""The local engine: worker threads that make each stimulus once, show it to every model and store the answers.

The unit of work is one chunk of one stimulus. Decoding, shifting (OpenCV, numpy) and inference release the interpreter
lock, so workers overlap all three; the next chunk is decoded ahead. Memory holds a chunk per worker, however many
images there are.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import (
    InputError,
    ModelError,
    RoadworthyError,
    foreign_code,
    is_the_machine_s,
    is_the_store_s,
)
from roadworthy.core.grouping import grouped
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, first_rows, join_columns
from roadworthy.engine import readouts
from roadworthy.engine.artifacts import ensure_artifact, is_built, read_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.memory import peak_memory
from roadworthy.engine.plan import ArtifactNode, CaseNode, Graph, PlannedCase, PlannedStimulus
from roadworthy.engine.progress import ProgressBar, no_progress
from roadworthy.engine.stopping import Stops
from roadworthy.engine.table_specs import TIMING_ARTIFACTS, TIMING_CASES
from roadworthy.engine.workers import Turns, in_workers
from roadworthy.models.signals import Signals


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


@dataclass(frozen=True)
class Task:
    """A chunk of a stimulus, and the cases that lack it."""

    showing: PlannedStimulus
    size: int
    chunk: int
    cases: tuple[PlannedCase, ...]

    def images_of(self, cases: int) -> int:
        """How many answers that many cases would give to it."""
        return cases * min(self.size, len(self.showing.data) - self.chunk * self.size)

    @property
    def images(self) -> tuple[int, int, int]:
        """Which images it decodes."""
        return id(self.showing.data), self.size, self.chunk


class Building(NamedTuple):
    """How the building of a node went: its seconds, why it failed (empty where it did not), its peak of memory."""

    seconds: float
    failure: str
    peak_bytes: float


BuiltApart = Callable[[Sequence[str], int, Callable[[int], None]], dict[str, Building]]
"""Builds nodes by their hash in so many processes; it says of those that ended how they did."""


class Executor(ABC):
    """Does all that a graph asks for and that the store does not hold yet: on this machine, or on others."""

    @abstractmethod
    def run(self, graph: Graph, store: RunFolder) -> Outcome:
        """Do it all; every artifact that is there is ready for use then."""


class LocalExecutor(Executor):
    """Threads of this process.

    A node that fails is recorded, what requires it fails for the same reason, and all others go on. Stopped at any
    instant, a second run goes on where the first one was: stored parts are kept, but for those that are not as they
    were written. Artifacts come first, level by level, each level after the cases it requires; all other cases follow
    together, so that a stimulus is made once for all that are shown it.
    """

    def __init__(
        self,
        workers: int = 1,
        progress: ProgressBar = no_progress,
        title: str = "testing",
        apart: BuiltApart | None = None,
    ) -> None:
        self.workers, self.progress, self.title, self.apart = workers, progress, title, apart

    def run(self, graph: Graph, store: RunFolder) -> Outcome:
        """Do it all."""
        outcome = Outcome(
            failures={hash_: node.planned.refused for hash_, node in graph.cases.items() if node.planned.refused}
        )
        self._show([node for node in graph.cases.values() if node.early and not node.level], graph, store, outcome)
        for level in graph.levels:
            nodes = [node for node in graph.artifacts.values() if node.level == level]
            self._build_apart(nodes, graph, store, outcome)
            for node in nodes:
                self._build(node, graph, store, outcome)
            early = [node for node in graph.cases.values() if node.early and node.level == level]
            self._show(early, graph, store, outcome)
        self._show([node for node in graph.cases.values() if not node.early], graph, store, outcome)
        outcome.failures = graph.reasons(outcome.failures)
        return outcome

    def run_node(self, node: str, graph: Graph, store: RunFolder) -> Outcome:
        """Do one node by its hash, whose requirements are in the store."""
        outcome = Outcome()
        load_built(graph, store, graph.requirements(node))
        if node in graph.artifacts:
            self._build(graph.artifacts[node], graph, store, outcome)
        elif graph.cases[node].planned.refused:
            outcome.failures[node] = graph.cases[node].planned.refused
        else:
            self._show([graph.cases[node]], graph, store, outcome)
        return outcome

    def _build_apart(self, nodes: Sequence[ArtifactNode], graph: Graph, store: RunFolder, outcome: Outcome) -> None:
        """Build those artifacts several at a time, in processes of their own, that each take one thread."""
        lost = graph.reasons(outcome.failures)
        single = [node for node in nodes if node.parts[0].threads == 1 and node.hash not in lost]
        waiting = {node.hash: node.parts[0] for node in single if not is_built(store, node.parts[0].recipe)}
        if self.apart is None or self.workers < 2 or len(waiting) < 2:
            return
        activity = next(iter(waiting.values())).activity
        with self.progress(f"{activity} {len(waiting)} networks", sum(p.work for p in waiting.values())) as advance:
            built = self.apart([*waiting], self.workers, advance)
        for hash_, building in built.items():
            if building.failure:
                outcome.failures[hash_] = building.failure
            outcome.spent[hash_] = building.seconds, waiting[hash_].work
            outcome.peaks[hash_] = building.peak_bytes

    def _build(self, node: ArtifactNode, graph: Graph, store: RunFolder, outcome: Outcome) -> None:
        if node.hash in graph.reasons(outcome.failures):
            return
        started, part = time.perf_counter(), node.parts[0]
        what, was_there = f"{part.activity} {node.name}", is_built(store, part.recipe)
        bar = no_progress if was_there else self.progress
        try:
            with bar(what, part.work) as advance, foreign_code(what, is_the_machine_s), peak_memory() as peak:
                ensure_artifact(store, part.recipe, partial(part.build, progress=advance, store=store))
                outcome.built[node.hash] = load_artifact(node, store)
        except RoadworthyError as error:
            outcome.failures[node.hash] = str(error)
        if not was_there:
            outcome.spent[node.hash] = time.perf_counter() - started, part.work
            outcome.peaks[node.hash] = peak.bytes

    def _show(self, nodes: Sequence[CaseNode], graph: Graph, store: RunFolder, outcome: Outcome) -> None:
        lost = graph.reasons(outcome.failures)
        cases = [node.planned for node in nodes if node.planned.case.hash not in lost]
        if cases:
            title = self.title if not nodes[0].early else "reading training data"
            with self.progress(title, sum(len(planned.showing.data) for planned in cases)) as advance:
                show(cases, store, outcome, batch=graph.batch, workers=self.workers, progress=advance)


def load_artifact(node: ArtifactNode, store: RunFolder) -> dict[str, Any]:
    """Make an artifact of the store ready for all that use it; what its manifest says."""
    home = store.artifact(node.hash)
    for part in node.parts:
        part.load(home)
    return read_artifact(home)


def load_built(graph: Graph, store: RunFolder, hashes: Collection[str]) -> None:
    """Make those of some artifacts ready that are in the store."""
    for hash_, artifact in graph.artifacts.items():
        if hash_ in hashes and is_built(store, artifact.parts[0].recipe):
            load_artifact(artifact, store)


def show(
    cases: Sequence[PlannedCase],
    store: RunFolder,
    outcome: Outcome,
    *,
    batch: int,
    workers: int,
    progress: Callable[[int], None],
) -> None:
    """Run cases whose requirements are there; `progress` is told how many answers have been given."""
    stops = Stops(cases, store)
    tasks = pending_tasks(cases, store, stops, progress)
    chunks = _Chunks(tasks)
    models = [planned.system.underlying for planned in cases]
    turns = Turns(model for model in models if model is not None)
    failed_at: dict[str, dict[int, str]] = defaultdict(dict)
    clock, stopped = threading.Lock(), threading.Event()

    def work(task: Task) -> None:
        try:
            waiting = [p for p in task.cases if min(failed_at.get(p.case.hash, {task.chunk: ""})) >= task.chunk]
            todo = [planned for planned in waiting if task.chunk < stops.parts(planned)]
            progress(task.images_of(len(waiting) - len(todo)))
            if not todo:
                return
            try:
                decoded = chunks.get(task)
                with turns.of(task.showing.attacked):
                    shown = task.showing.show(decoded)
            except RoadworthyError as error:
                for planned in todo:
                    failed_at[planned.case.hash][task.chunk] = str(error)
                    outcome.not_shown.add(planned.case.hash)
                return
            for of_model in grouped((id(planned.system.underlying), planned) for planned in todo).values():
                with turns.of(of_model[0].system.underlying):
                    answers = ask_systems(of_model, shown, batch)
                if stopped.is_set():
                    return
                for planned, (answer, seconds) in zip(of_model, answers, strict=True):
                    home = store.case(planned.case.key)
                    try:
                        if isinstance(answer, RoadworthyError):
                            raise answer
                        with foreign_code(planned.system.name, is_the_store_s):
                            readouts.write_part(home, task.chunk, shown, join_columns(answer))
                    except RoadworthyError as error:
                        failed_at[planned.case.hash][task.chunk] = str(error)
                        continue
                    with clock:
                        before, images = outcome.spent.get(planned.case.hash, (0.0, 0))
                        outcome.spent[planned.case.hash] = before + seconds, images + len(shown)
                    progress(len(shown))
                    stops.look(planned)
        finally:
            chunks.release(task)

    with chunks:
        in_workers(work, tasks, workers, stopped)
    for planned in cases:
        case = planned.case.hash
        failed = {chunk: why for chunk, why in failed_at[case].items() if chunk < stops.parts(planned)}
        if failed:
            outcome.failures[case] = failed[min(failed)]
        else:
            outcome.not_shown.discard(case)
            stops.finish(planned)


SIGNAL_BYTES = 64 * 2**20
"""Memory for the signals of several batches; one batch may take more."""
Columns = Mapping[str, NDArray[Any]]
Asked = tuple[Sequence[Columns] | RoadworthyError, float]


def ask_systems(cases: Sequence[PlannedCase], shown: Batch, batch: int) -> list[Asked]:
    """What the systems that read from one model answer to a chunk, by batch, with its seconds; or why it does not.

    The model is asked batch by batch for each signal once. Signals live for as many batches as fit into `SIGNAL_BYTES`:
    what a system holds in memory is then used for several batches, one after the other.
    """
    model = cases[0].system.underlying
    size = (None if model is None else model.fixed_batch) or batch
    parts: list[list[Columns]] = [[] for _ in cases]
    errors: dict[int, RoadworthyError] = {}
    seconds = [0.0] * len(cases)
    starts, at_once = [*range(0, len(shown), size)], 1
    while starts:
        block, starts = [_signals(model, shown, start, size) for start in starts[:at_once]], starts[at_once:]
        for row, planned in enumerate(cases):
            try:
                with foreign_code(planned.system.name, is_the_machine_s):
                    for signals, count in block if row not in errors else ():
                        answer, elapsed = signals.timed(planned.system.read)
                        parts[row].append({name: first_rows(name, values, count) for name, values in answer.items()})
                        seconds[row] += elapsed
            except RoadworthyError as error:
                errors[row] = error
        at_once = max(1, SIGNAL_BYTES // max(signals.nbytes for signals, _ in block))
    return [(errors.get(row) or parts[row], seconds[row]) for row in range(len(cases))]


def _signals(model: Model | None, shown: Batch, start: int, size: int) -> tuple[Signals, int]:
    """The signals of a batch, filled up to `size` with its last image, and how many images it holds."""
    count = min(size, len(shown) - start)
    rows = slice(start, start + size) if count == size else [*range(start, len(shown))] + [-1] * (size - count)
    return Signals(model, shown.take(rows), size), count


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
        for chunk in range(planned_cases[0].parts):
            missing = []
            for planned in planned_cases:
                counts = chunk < stops.parts(planned)
                if not counts or readouts.has_part(store.case(planned.case.key), chunk):
                    progress(min(size, len(showing.data) - chunk * size))
                else:
                    missing.append(planned)
            if missing:
                tasks.append(Task(showing, size, chunk, tuple(missing)))
    return sorted(tasks, key=lambda task: (task.showing.stimulus.data, task.size, task.chunk))


class _Chunks:
    """Decoded chunks, each decoded once, the next one ahead of need, dropped when its last task is done."""

    def __init__(self, tasks: list[Task]) -> None:
        self._users: dict[tuple[int, int, int], int] = defaultdict(int)
        self._data: dict[int, Dataset] = {}
        for task in tasks:
            self._users[task.images] += 1
            self._data[id(task.showing.data)] = task.showing.data
        self._order = list(self._users)
        self._index = {images: number for number, images in enumerate(self._order)}
        self._decoded: dict[tuple[int, int, int], Future[Batch]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="decode")

    def __enter__(self) -> _Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get(self, task: Task) -> Batch:
        with self._lock:
            here = self._index[task.images]
            for wanted in self._order[here : here + 2]:
                if wanted not in self._decoded and self._users[wanted]:
                    self._decoded[wanted] = self._pool.submit(self._decode, *wanted)
            future = self._decoded[task.images]
        return future.result()

    def release(self, task: Task) -> None:
        with self._lock:
            self._users[task.images] -= 1
            if not self._users[task.images]:
                self._decoded.pop(task.images, None)

    def _decode(self, data: int, size: int, chunk: int) -> Batch:
        what = f"data set {self._data[data].name}"
        with foreign_code(what, is_the_machine_s):
            try:
                return self._data[data].batch(slice(chunk * size, (chunk + 1) * size))
            except RoadworthyError as error:
                raise ModelError(f"{what}: {error}") from error


def timing_tables(
    store: RunFolder, graph: Graph, outcome: Outcome, baseline: RunFolder | None = None
) -> dict[str, pd.DataFrame]:
    """Seconds of inference per case and of building per artifact, as done in this session; others keep their row.

    What was taken over from the run `baseline` has its row there.
    """
    earlier: dict[Any, dict[Any, Any]] = {}
    for folder, spec in product((baseline, store) if baseline else (store,), (TIMING_CASES, TIMING_ARTIFACTS)):
        with suppress(InputError, KeyError):  # there is none yet, or it is damaged
            known = folder.table(spec.name).reindex(columns=[*spec.columns])
            earlier |= {row[spec.key[0]]: row for row in known.to_dict("records")}
    rows: list[dict[Any, Any]] = []
    built: list[dict[Any, Any]] = []
    for hash_, node in graph.cases.items():
        seconds, images = outcome.spent.get(hash_, (0.0, 0))
        case = node.planned.case
        if images:
            where = {"model": case.system, "shift": case.stimulus.name, "level": case.stimulus.level}
            rows.append(
                {"case": case.key, **where, "repeat": case.stimulus.repeat, "images": images, "seconds": seconds}
            )
        elif case.key in earlier:
            rows.append(earlier[case.key])
    for hash_, artifact in graph.artifacts.items():
        if hash_ in outcome.spent:
            what = {"builder": artifact.parts[0].recipe.builder, "system": artifact.name}
            peak = outcome.peaks.get(hash_, math.nan)
            built.append({"artifact": hash_, **what, "seconds": outcome.spent[hash_][0], "peak_bytes": peak})
        elif hash_ in earlier:
            built.append(earlier[hash_])
    tables = {TIMING_CASES: rows, TIMING_ARTIFACTS: built}
    return {spec.name: spec.frame(own) for spec, own in tables.items()}
