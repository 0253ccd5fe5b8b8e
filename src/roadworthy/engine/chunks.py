"""One chunk of one stimulus: decode its images, disturb them, ask the systems that lack it, store their answers.

All executors do this with the same function, `answer_task`: threads of this process, and workers of a cluster.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from roadworthy.core.errors import ModelError, RoadworthyError, foreign_code, is_the_machine_s, is_the_store_s
from roadworthy.core.grouping import grouped
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, first_rows, join_columns
from roadworthy.engine import readouts
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import PlannedCase, PlannedStimulus
from roadworthy.models.signals import Signals


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


class Answered(NamedTuple):
    """What came of a chunk for one case: images and seconds of inference, or why it failed.

    `shown` is False where the stimulus could not be made; `sha` is the SHA-256 of the part, known by who wrote it.
    """

    case: str
    images: int
    seconds: float
    failure: str = ""
    shown: bool = True
    sha: str = ""


class EnteredInTurn(Protocol):
    """Says when a model may be asked: see `engine.workers.Turns`."""

    def of(self, model: Model | None) -> AbstractContextManager[None]:
        """While the model is asked; None needs no turn."""


def answer_task(
    task: Task,
    store: RunFolder,
    *,
    batch: int,
    decoded: Callable[[Task], Batch],
    turns: EnteredInTurn,
    stopped: Callable[[], bool],
) -> Iterator[Answered]:
    """Do a chunk for the cases of a task; says of each how it went as soon as that is known.

    The pixels are made once for all models. `decoded` gives the images as they are, and nothing is stored any more once
    `stopped` says so. What the store refuses is raised: it is no fault of a case.
    """
    try:
        images = decoded(task)
        with turns.of(task.showing.attacked):
            shown = task.showing.show(images)
    except RoadworthyError as error:
        yield from (Answered(planned.case.hash, 0, 0.0, str(error), shown=False) for planned in task.cases)
        return
    for of_model in grouped((id(planned.system.underlying), planned) for planned in task.cases).values():
        with turns.of(of_model[0].system.underlying):
            answers = ask_systems(of_model, shown, batch)
        if stopped():
            return
        for planned, (answer, seconds) in zip(of_model, answers, strict=True):
            home = store.case(planned.case.key)
            try:
                if isinstance(answer, RoadworthyError):
                    raise answer
                with foreign_code(planned.system.name, is_the_store_s):
                    sha = readouts.write_part(home, task.chunk, shown, join_columns(answer))
                    store.publish_part(readouts.part_path(home, task.chunk))
            except RoadworthyError as error:
                yield Answered(planned.case.hash, 0, 0.0, str(error))
                continue
            yield Answered(planned.case.hash, len(shown), seconds, sha=sha)


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


class Chunks:
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

    def __enter__(self) -> Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get(self, task: Task) -> Batch:
        """The images of a task as they are; those of the next one are decoded from now on."""
        with self._lock:
            here = self._index[task.images]
            for wanted in self._order[here : here + 2]:
                if wanted not in self._decoded and self._users[wanted]:
                    self._decoded[wanted] = self._pool.submit(self._decode, *wanted)
            future = self._decoded[task.images]
        return future.result()

    def release(self, task: Task) -> None:
        """Say that a task is over; after the last one that needs them its images are dropped."""
        with self._lock:
            self._users[task.images] -= 1
            if not self._users[task.images]:
                self._decoded.pop(task.images, None)

    def _decode(self, data: int, size: int, chunk: int) -> Batch:
        return decode(self._data[data], size, chunk)


def decode(data: Dataset, size: int, chunk: int) -> Batch:
    """A chunk of so many images as they are; what the data set raises names it."""
    what = f"data set {data.name}"
    with foreign_code(what, is_the_machine_s):
        try:
            return data.batch(slice(chunk * size, (chunk + 1) * size))
        except RoadworthyError as error:
            raise ModelError(f"{what}: {error}") from error
