"""A worker of a cluster: one process that holds the models of a study and does what the driver asks for.

It prepares the study from its recipe, so it has the same graph as the driver and is told nodes by their hash. It stores
the parts that it makes itself; what it answers is small.
"""

from __future__ import annotations

import platform
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from roadworthy.cluster.shared import check_mark, fetch_nodes, graph_digest
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.engine.chunks import Task, answer_task, decode
from roadworthy.engine.executor import load_built
from roadworthy.engine.folder import RunFolder, open_store, writing
from roadworthy.engine.local import LocalExecutor
from roadworthy.engine.plan import Graph
from roadworthy.preparing import prepare_recipe

LOOKS_AGAIN = 5.0
"""Seconds after which a worker that builds something looks whether the folder is still its driver's."""

Reply = dict[str, Any]
"""What a worker answers: what was asked for, with the `warnings` that came up; or the `error`, or the `defect`."""


class Worker:
    """Does chunks and builds artifacts, one at a time; while one chunk is asked about, the next one is decoded."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        """`task`: the recipe of the study, the folder of the run and the token of the driver."""
        self._task = task
        self._one_at_a_time = threading.Lock()
        self._loaded: set[str] = set()
        self._advanced, self._looked = 0, 0.0
        self._warnings: list[str] = []
        self._graph: Graph
        self._store: RunFolder

    def prepare(self) -> Reply:
        """Prepare the study: on which machine that was, and which graph came of it."""

        def prepared() -> Reply:
            warnings.showwarning = self._note_warning  # type: ignore[assignment]
            self._store = open_store(self._task["folder"])
            self._check()
            self._graph = prepare_recipe(self._task["recipe"]).plan.graph()
            return {"machine": platform.node(), "graph": graph_digest(self._graph)}

        return self._replied(prepared)

    def answer(self, chunk: int, cases: Sequence[str]) -> Reply:
        """Do a chunk for cases of one stimulus and model, by their hashes: how each went."""

        def answered() -> Reply:
            self._check()
            self._load(cases)
            planned = tuple(self._graph.cases[case].planned for case in cases)
            task = Task(planned[0].showing, planned[0].chunk, chunk, planned)
            own: dict[str, Any] = {"decoded": _decoded, "turns": self, "stopped": lambda: False}
            with writing(self._store.path):
                return {"answers": [[*one] for one in answer_task(task, self._store, batch=self._graph.batch, **own)]}

        return self._replied(answered)

    def build(self, node: str) -> Reply:
        """Build an artifact by its hash: how that went."""

        def built() -> Reply:
            self._check()
            with self._one_at_a_time, writing(self._store.path):
                fetch_nodes(self._store, self._graph, [*self._graph.requirements(node), node])
                building = LocalExecutor(1, self._counting).build_node(node, self._graph, self._store)
            return {"building": [*building], "advance": self.advanced()}

        return self._replied(built)

    def advanced(self) -> int:
        """By how much what is being built has advanced since this was last asked."""
        amount, self._advanced = self._advanced, 0
        return amount

    def stay(self) -> None:
        """Never answer: whoever asked learns when this worker dies."""
        threading.Event().wait()

    @contextmanager
    def of(self, model: Model | None) -> Iterator[None]:
        """While a stimulus is made or a model is asked: one at a time, whatever it is."""
        with self._one_at_a_time:
            yield

    def _load(self, cases: Sequence[str]) -> None:
        """Make the artifacts ready that cases require, where that was not done before."""
        needed = set[str]().union(*map(self._graph.requirements, cases)) - self._loaded
        if needed:
            with self._one_at_a_time:
                fetch_nodes(self._store, self._graph, needed)
                load_built(self._graph, self._store, needed)
                self._loaded |= needed

    def _check(self) -> None:
        check_mark(self._store, self._task["token"], platform.node())
        self._looked = time.monotonic()

    @contextmanager
    def _counting(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar that counts; building ends where another driver has taken over."""

        def advance(amount: int) -> None:
            self._advanced += amount
            if time.monotonic() - self._looked > LOOKS_AGAIN:
                self._check()

        yield advance

    def _replied(self, work: Callable[[], Reply]) -> Reply:
        """What the work answers, or why it cannot go on: an error that concerns more than one case."""
        try:
            reply = work()
        except RoadworthyError as error:
            return {"error": str(error)}
        except MemoryError:
            return {"error": f"the worker on {platform.node()} has not enough memory: ask for fewer `workers=`"}
        except Exception:
            return {"defect": traceback.format_exc()}
        reply["warnings"], self._warnings = self._warnings, []
        return reply

    def _note_warning(self, message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, UserWarning):
            self._warnings.append(str(message))


def _decoded(task: Task) -> Batch:
    return decode(task.showing.data, task.size, task.chunk)
