"""The driver of a study on a Ray cluster, in a process of its own: Ray ends it where the cluster is lost.

It reads a line of JSON (see `main`), and writes a line of JSON for each thing that the command has to know: that it is
`connected`, each `bar` that opens, each `advance` of it, `closed`, a `warning`, and last of all the `outcome`, the
`error` or the `defect`. It ends when its input does. All that it knows it has from the study and the store, so that
another one can go on in its place.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TextIO

import ray

from roadworthy.cluster.pool import DefectElsewhere, Job, Pool
from roadworthy.cluster.shared import fetch_nodes, graph_digest, marked
from roadworthy.cluster.worker import Reply
from roadworthy.core.errors import ClusterLost, InputError, RoadworthyError, first_line
from roadworthy.core.grouping import grouped
from roadworthy.core.manifests import MANIFEST
from roadworthy.engine.artifacts import is_built
from roadworthy.engine.chunks import Answered, Task
from roadworthy.engine.executor import GraphExecutor
from roadworthy.engine.folder import NODES, RunFolder, open_store
from roadworthy.engine.ledger import Ledger, Outcome
from roadworthy.engine.local import Building, note_building
from roadworthy.engine.plan import ArtifactNode, Graph, PlannedCase
from roadworthy.preparing import prepare_recipe

LOOPBACK = "127.0.0.2"
"""Where a Ray of our own listens: Ray writes 127.0.0.1 as the address of the machine."""
OBJECTS = 80 * 2**20
"""Bytes of the object store of a Ray of our own: it holds recipes alone."""


class ChunkJob(Job):
    """A chunk of a stimulus for one model and all that reads from it."""

    def __init__(self, task: Task, ledger: Ledger) -> None:
        self.task, self._ledger = task, ledger
        self.affinity = id(task.cases[0].system.underlying)

    def question(self) -> tuple[Any, ...] | None:
        """The chunk, for those cases that still want it."""
        self.task = self._ledger.still_asked(self.task)
        if not self.task.cases:
            return None
        return "answer", self.task.chunk, [planned.case.hash for planned in self.task.cases]

    def done(self, reply: Reply) -> None:
        """Take down how it went for each case."""
        for own in reply["answers"]:
            self._ledger.note(self.task, Answered(*own))

    def given_up(self, cause: str) -> Iterable[Job]:
        """Try each of several cases by itself, or take down that the one there is fails."""
        if len(self.task.cases) > 1:
            jobs = [ChunkJob(replace(self.task, cases=(planned,)), self._ledger) for planned in self.task.cases]
            for job in jobs:
                job.deaths = self.deaths - 1
            return jobs
        planned = self.task.cases[0]
        why = f"{planned.system.name} ended the process of {self.deaths} workers at chunk {self.task.chunk}: {cause}"
        self._ledger.note(self.task, Answered(planned.case.hash, 0, 0.0, why))
        return []


class BuildJob(Job):
    """An artifact to be built."""

    reports = True

    def __init__(self, node: ArtifactNode, store: RunFolder, outcome: Outcome, advance: Callable[[int], None]) -> None:
        self._node, self._store, self._outcome, self._advance = node, store, outcome, advance
        self.affinity = node.hash

    def question(self) -> tuple[Any, ...] | None:
        """The artifact by its hash."""
        return "build", self._node.hash

    def done(self, reply: Reply) -> None:
        """Take down how it went."""
        self._advance(reply["advance"])
        work = self._node.parts[0].work
        note_building(Building(*reply["building"]), self._node.hash, work, self._store, self._outcome)

    def advanced(self, amount: int) -> None:
        """Show how far it is."""
        self._advance(amount)

    def given_up(self, cause: str) -> Iterable[Job]:
        """Take down that it cannot be built."""
        part = self._node.parts[0]
        self._outcome.failures[self._node.hash] = (
            f"{part.activity} {self._node.name} ended the process of {self.deaths} workers: {cause}"
        )
        return []


class ClusterExecutor(GraphExecutor):
    """Workers of a cluster: artifacts of a level in parallel, chunks by model."""

    def __init__(self, pool: Pool, progress: Any, title: str) -> None:
        super().__init__(progress, title)
        self._pool = pool

    def _build_level(self, nodes: Sequence[ArtifactNode], graph: Graph, store: RunFolder, outcome: Outcome) -> None:
        lost = graph.reasons(outcome.failures)
        waiting = [n for n in nodes if n.hash not in lost and not is_built(store, n.parts[0].recipe)]
        if not waiting:
            return
        activities = " and ".join(dict.fromkeys(node.parts[0].activity for node in waiting))
        what = waiting[0].name if len(waiting) == 1 else f"{len(waiting)} artifacts"
        with self.progress(f"{activities} {what}", sum(node.parts[0].work for node in waiting)) as advance:
            self._pool.do(BuildJob(node, store, outcome, advance) for node in waiting)
        fetch_nodes(store, graph, [node.hash for node in waiting])

    def _show(
        self,
        cases: Sequence[PlannedCase],
        graph: Graph,
        store: RunFolder,
        outcome: Outcome,
        progress: Callable[[int], None],
    ) -> None:
        own = [planned.case.hash for planned in cases]
        ledger = Ledger(cases, store, outcome, progress)
        self._pool.do(ChunkJob(task, ledger) for whole in ledger.tasks for task in _by_model(whole))
        fetch_nodes(store, graph, own)
        ledger.finish()


def _by_model(task: Task) -> list[Task]:
    """The same task for the cases of one model at a time."""
    of_models = grouped((id(planned.system.underlying), planned) for planned in task.cases)
    return [replace(task, cases=tuple(own)) for own in of_models.values()]


def main() -> None:
    """Run the study of the first line of the input: recipe, folder, title, address, workers, resources, scratch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that started this one
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what somebody's code prints is no answer
    task = json.loads(sys.stdin.readline())
    pools: list[Pool] = []
    over = threading.Event()
    threading.Thread(target=_end_with_input, args=(pools, over), daemon=True).start()
    say = _Lines(answers).say
    try:
        last: dict[str, Any] = {"outcome": _outcome(task, pools, say)}
    except RoadworthyError as error:
        last = {"error": str(error), "lost": isinstance(error, ClusterLost)}
    except DefectElsewhere as error:
        last = {"defect": str(error)}
    except Exception:
        last = {"defect": traceback.format_exc()}
    over.set()
    say(last)
    ray.shutdown()
    os._exit(0)  # without waiting for threads of somebody's code


def _outcome(task: Mapping[str, Any], pools: list[Pool], say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Connect, run the graph and tell what came of it."""
    resources = {"num_cpus": task["resources"]["cpus"], "num_gpus": task["resources"]["gpus"]}
    number = _connect(task, resources)
    say({"connected": True})
    store, graph = open_store(task["folder"], "driver"), prepare_recipe(task["recipe"]).plan.graph()
    store.fetch_all()
    with marked(store) as token:
        given = {"recipe": task["recipe"], "folder": task["folder"], "token": token}
        pool = Pool(number, given, graph_digest(graph), resources, lambda text: say({"warning": text}))
        pools.append(pool)
        try:
            progress = _bars(say)
            with progress("starting workers", 0):
                pool.gather()
            outcome = ClusterExecutor(pool, progress, task["title"]).run(graph, store)
        finally:
            pool.stop()
    store.remove_half_written(*NODES)  # by workers that were lost, whose chunks others have done
    return {
        "failures": outcome.failures,
        "not_shown": sorted(outcome.not_shown),
        "spent": outcome.spent,
        "peaks": outcome.peaks,
        "manifests": {
            path.relative_to(store.path).as_posix(): sha for path, sha in store.written.items() if path.name == MANIFEST
        },
    }


def _connect(task: Mapping[str, Any], resources: Mapping[str, float]) -> int:
    """Connect to the cluster, or start a Ray of our own; how many workers there can be."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address, cpus = task["address"], max(resources["num_cpus"], 1e-3)
    workers: int | None = task["workers"]
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            here: dict[str, Any] = {"_temp_dir": task["scratch"], "object_store_memory": OBJECTS}
            if sys.platform == "linux":
                here["_node_ip_address"] = LOOPBACK
            workers = workers or os.cpu_count() or 1
            ray.init(address="local", num_cpus=math.ceil(workers * cpus), include_dashboard=False, **here, **quiet)
    except Exception as error:
        where = f"at {address}" if address else "that was started here"
        raise InputError(f"no Ray cluster answers {where}: {first_line(error)}") from None
    if workers:
        return workers
    known: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    fitting = [known.get("CPU", 0.0) // cpus] + [known.get("GPU", 0.0) // g for g in (resources["num_gpus"],) if g]
    if min(fitting) < 1:
        raise InputError(
            f"the Ray cluster has no room for a worker with {cpus:g} CPUs and {resources['num_gpus']:g} GPUs: it has "
            f"{known.get('CPU', 0.0):g} and {known.get('GPU', 0.0):g}; write other resources into the study"
        )
    return int(min(fitting))


def _end_with_input(pools: list[Pool], over: threading.Event) -> None:
    """Where the input ends before the work is over, so does the process, whatever it is doing, after its workers."""
    sys.stdin.read()
    if over.is_set():
        return
    with suppress(Exception):
        for pool in pools:
            pool.stop()
    os._exit(0)


class _Lines:
    """Lines of JSON for the command."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, message: dict[str, Any]) -> None:
        """Write one."""
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()


def _bars(say: Callable[[dict[str, Any]], None]) -> Any:
    """Progress bars that the command shows."""

    @contextmanager
    def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
        say({"bar": title, "total": total})
        try:
            yield lambda amount: say({"advance": amount})
        finally:
            say({"closed": True})

    return bar


if __name__ == "__main__":
    main()
