"""The local engine: worker threads that make each stimulus once, show it to every model and store the answers.

The unit of work is one chunk of one stimulus. Decoding, shifting (OpenCV, numpy) and inference release the interpreter
lock, so workers overlap all three; the next chunk is decoded ahead. Memory holds a chunk per worker, however many
images there are.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from roadworthy.core.errors import InputError, RoadworthyError
from roadworthy.core.manifests import is_committed
from roadworthy.core.protocols import Dataset
from roadworthy.core.types import Batch, Prediction
from roadworthy.engine import readouts
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import Plan, PlannedCase, Showing
from roadworthy.engine.workers import Turns, in_workers


@dataclass
class Outcome:
    """What came of a plan: failures by case hash, and (seconds, images) by case hash for what was run now.

    `not_shown` are the cases that failed because their stimulus could not be made.
    """

    failures: dict[str, str] = field(default_factory=dict)
    not_shown: set[str] = field(default_factory=set)
    spent: dict[str, tuple[float, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Task:
    showing: Showing
    chunk: int
    cases: tuple[PlannedCase, ...]


def execute(
    plan: Plan,
    folder: RunFolder,
    *,
    workers: int,
    progress: Callable[[int], None] = lambda images: None,
) -> Outcome:
    """Run every case of the plan that is not stored yet; `progress` is told how many image-cases have been done.

    A case whose model fails is recorded and the others go on. Stopped at any instant, a second call goes on where the
    first one was: stored parts are kept. `RunFolder.sweep` has dropped those that are not as they were written.
    """
    outcome = Outcome()
    tasks = _pending(plan, folder, progress)
    chunks = _Chunks(plan.chunk, tasks)
    turns = Turns(p.model for p in plan.cases)
    failed_at: dict[str, dict[int, str]] = defaultdict(dict)
    clock, stopped = threading.Lock(), threading.Event()

    def work(task: _Task) -> None:
        try:
            todo = [p for p in task.cases if min(failed_at.get(p.case.hash, {task.chunk: ""})) >= task.chunk]
            if not todo:
                return
            decoded = chunks.get(task.showing.data, task.chunk)
            try:
                with turns.of(task.showing.attacked):
                    shown = task.showing.show(decoded)
            except RoadworthyError as error:
                for planned in todo:
                    failed_at[planned.case.hash][task.chunk] = str(error)
                    outcome.not_shown.add(planned.case.hash)
                return
            answered: dict[int, Prediction] = {}
            for planned in todo:
                started = time.perf_counter()
                try:
                    if id(planned.model) not in answered:
                        with turns.of(planned.model):
                            started = time.perf_counter()
                            answered[id(planned.model)] = planned.model.answer(shown, plan.batch)
                except RoadworthyError as error:
                    failed_at[planned.case.hash][task.chunk] = str(error)
                    continue
                if stopped.is_set():
                    return
                prediction, elapsed = answered[id(planned.model)], time.perf_counter() - started
                readouts.write_part(_folder(folder, planned), task.chunk, shown, prediction)
                with clock:
                    seconds, images = outcome.spent.get(planned.case.hash, (0.0, 0))
                    outcome.spent[planned.case.hash] = seconds + elapsed, images + len(shown)
                progress(len(shown))
        finally:
            chunks.release(task.showing.data, task.chunk)

    with chunks:
        in_workers(work, tasks, workers, stopped)
    for planned in plan.distinct():
        case = planned.case
        if case.hash in failed_at:
            outcome.failures[case.hash] = failed_at[case.hash][min(failed_at[case.hash])]
        elif not is_done(folder, planned):
            parts = _parts(planned.showing.data, plan.chunk)
            readouts.commit(_folder(folder, planned), case, parts, planned.model.num_classes)
    return outcome


def is_done(folder: RunFolder, planned: PlannedCase) -> bool:
    """True where the case's readouts are complete on disk."""
    return is_committed(_folder(folder, planned))


def _folder(folder: RunFolder, planned: PlannedCase) -> Path:
    return folder.case(planned.case.key)


def _parts(data: Dataset, chunk: int) -> int:
    return -(-len(data) // chunk)


def _pending(plan: Plan, folder: RunFolder, progress: Callable[[int], None]) -> list[_Task]:
    """The tasks still to do, chunk by chunk so that each chunk is decoded once; tells progress what is done already."""
    by_stimulus: dict[str, list[PlannedCase]] = defaultdict(list)
    for planned in plan.distinct():
        if planned.refused:
            continue
        if is_done(folder, planned):
            progress(len(planned.showing.data))
        else:
            by_stimulus[planned.showing.stimulus.hash].append(planned)
    tasks: list[tuple[str, int, _Task]] = []
    for stimulus, planned_cases in by_stimulus.items():
        showing = plan.stimuli[stimulus]
        for chunk in range(_parts(showing.data, plan.chunk)):
            missing = []
            for planned in planned_cases:
                if readouts.has_part(_folder(folder, planned), chunk):
                    progress(min(plan.chunk, len(showing.data) - chunk * plan.chunk))
                else:
                    missing.append(planned)
            if missing:
                tasks.append((showing.stimulus.data, chunk, _Task(showing, chunk, tuple(missing))))
    tasks.sort(key=lambda item: item[:2])
    return [task for _, _, task in tasks]


class _Chunks:
    """Decoded chunks, each decoded once, the next one ahead of need, dropped when its last task is done."""

    def __init__(self, size: int, tasks: list[_Task]) -> None:
        self._size = size
        self._users: dict[tuple[int, int], int] = defaultdict(int)
        self._data: dict[int, Dataset] = {}
        for task in tasks:
            self._users[id(task.showing.data), task.chunk] += 1
            self._data[id(task.showing.data)] = task.showing.data
        self._order = list(self._users)
        self._place = {key: place for place, key in enumerate(self._order)}
        self._decoded: dict[tuple[int, int], Future[Batch]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="decode")

    def __enter__(self) -> _Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get(self, data: Dataset, chunk: int) -> Batch:
        key = (id(data), chunk)
        with self._lock:
            here = self._place[key]
            for wanted in self._order[here : here + 2]:
                if wanted not in self._decoded and self._users[wanted]:
                    self._decoded[wanted] = self._pool.submit(self._decode, *wanted)
            future = self._decoded[key]
        return future.result()

    def release(self, data: Dataset, chunk: int) -> None:
        key = (id(data), chunk)
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                self._decoded.pop(key, None)

    def _decode(self, data: int, chunk: int) -> Batch:
        return self._data[data].batch(slice(chunk * self._size, (chunk + 1) * self._size))


def estimate_seconds(plan: Plan, folder: RunFolder, workers: int) -> float:
    """A rough time for what is still to do: one batch per model and one per stimulus, timed.

    What is not built yet cannot be timed and does not count.
    """
    tasks = _pending(plan, folder, lambda images: None)
    if not tasks:
        return 0.0
    models: dict[int, float] = {}
    shifts: dict[str, float] = {}
    total = 0.0
    for task in tasks:
        images = min(plan.chunk, len(task.showing.data) - task.chunk * plan.chunk)
        stimulus, attacked = task.showing.stimulus.hash, task.showing.attacked
        if attacked is not None and not all(part.loaded for part in attacked.parts()):
            continue
        if not task.showing.ready:
            continue
        if stimulus not in shifts:
            sample = task.showing.data.batch(slice(0, plan.batch))
            started = time.perf_counter()
            shown = task.showing.show(sample)
            shifts[stimulus] = (time.perf_counter() - started) / max(1, len(sample))
        for planned in task.cases:
            if not all(part.loaded for part in planned.model.parts()):
                continue
            if id(planned.model) not in models:
                planned.model.answer(shown, plan.batch)
                started = time.perf_counter()
                planned.model.answer(shown, plan.batch)
                models[id(planned.model)] = (time.perf_counter() - started) / max(1, len(shown))
            total += images * models[id(planned.model)]
        total += images * shifts[stimulus]
    return total / workers


def timing_table(folder: RunFolder, plan: Plan, outcome: Outcome) -> pd.DataFrame:
    """Seconds of inference per case, of the images that were shown in this session; earlier cases keep their row."""
    rows: list[dict[Any, Any]] = []
    earlier: dict[Any, dict[Any, Any]] = {}
    with suppress(InputError, KeyError):  # there is none yet, or it is damaged
        earlier = {(row["case"], row["model"]): row for row in folder.table("timing_cases").to_dict("records")}
    for case in {(planned.case.key, planned.case.system): planned.case for planned in plan.cases}.values():
        seconds, images = outcome.spent.get(case.hash, (0.0, 0))
        if images:
            where = {"model": case.system, "shift": case.stimulus.name, "level": case.stimulus.level}
            rows.append(
                {"case": case.key, **where, "repeat": case.stimulus.repeat, "images": images, "seconds": seconds}
            )
        elif (case.key, case.system) in earlier:
            rows.append(earlier[case.key, case.system])
    columns = ["case", "model", "shift", "level", "repeat", "images", "seconds"]
    return pd.DataFrame(rows, columns=columns)
