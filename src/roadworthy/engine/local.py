"""The local engine: worker threads that make each stimulus once, show it to every model and store the answers.

The unit of work is one chunk of one stimulus. Decoding, shifting (OpenCV, numpy) and inference release the interpreter
lock, so workers overlap all three; the next chunk is decoded ahead. Memory holds a chunk per worker, however many
images there are.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import pandas as pd

from roadworthy.core.errors import InputError, RoadworthyError, foreign_code, is_the_machine_s
from roadworthy.core.manifests import MANIFEST
from roadworthy.engine.artifacts import ensure_artifact, is_built
from roadworthy.engine.chunks import Chunks, Task, answer_task
from roadworthy.engine.executor import GraphExecutor, load_artifact, load_built
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.ledger import Ledger, Outcome
from roadworthy.engine.memory import MemoryLimit, peak_memory
from roadworthy.engine.plan import ArtifactNode, Graph, PlannedCase
from roadworthy.engine.progress import ProgressBar, no_progress
from roadworthy.engine.table_specs import TIMING_ARTIFACTS, TIMING_CASES
from roadworthy.engine.workers import Turns, in_workers


class Building(NamedTuple):
    """How the building of a node went: its seconds, why it failed (empty where it did not), its peak of memory.

    `sha` is the SHA-256 of its manifest, where that was written by who built it.
    """

    seconds: float
    failure: str
    peak_bytes: float
    sha: str


BuiltApart = Callable[[Sequence[str], int, Callable[[int], None]], dict[str, Building]]
"""Builds nodes by their hash in so many processes; it says of those that ended how they did."""


class LocalExecutor(GraphExecutor):
    """Threads of this process; a stimulus is made once for all that are shown it."""

    def __init__(
        self,
        workers: int = 1,
        progress: ProgressBar = no_progress,
        title: str = "testing",
        apart: BuiltApart | None = None,
        limit: MemoryLimit | None = None,
    ) -> None:
        super().__init__(progress, title)
        self.workers, self.apart, self.limit = workers, apart, limit

    def run_node(self, node: str, graph: Graph, store: RunFolder) -> Outcome:
        """Do one node by its hash, whose requirements are in the store."""
        outcome = Outcome()
        load_built(graph, store, graph.requirements(node))
        if node in graph.artifacts:
            self._build(graph.artifacts[node], graph, store, outcome)
        elif graph.cases[node].planned.refused:
            outcome.failures[node] = graph.cases[node].planned.refused
        else:
            self._show_nodes([graph.cases[node]], graph, store, outcome)
        return outcome

    def build_node(self, node: str, graph: Graph, store: RunFolder) -> Building:
        """Build one artifact by its hash, whose requirements are in the store, for another process: how that went."""
        outcome = self.run_node(node, graph, store)
        seconds, peak = outcome.spent.get(node, (0.0, 0))[0], outcome.peaks.get(node, math.nan)
        sha = store.written.get(store.artifact(node) / MANIFEST, "")
        return Building(seconds, outcome.failures.get(node, ""), peak, sha)

    def _build_level(self, nodes: Sequence[ArtifactNode], graph: Graph, store: RunFolder, outcome: Outcome) -> None:
        self._build_apart(nodes, graph, store, outcome)
        for node in nodes:
            self._build(node, graph, store, outcome)

    def _show(
        self,
        cases: Sequence[PlannedCase],
        graph: Graph,
        store: RunFolder,
        outcome: Outcome,
        progress: Callable[[int], None],
    ) -> None:
        how: dict[str, Any] = {"batch": graph.batch, "workers": self.workers, "limit": self.limit}
        show(cases, store, outcome, **how, progress=progress)

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
            note_building(building, hash_, waiting[hash_].work, store, outcome)

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
        store.publish(store.artifact(node.hash))
        if not was_there:
            outcome.spent[node.hash] = time.perf_counter() - started, part.work
            outcome.peaks[node.hash] = peak.bytes


def note_building(building: Building, node: str, work: int, store: RunFolder, outcome: Outcome) -> None:
    """Take down how another process has built a node."""
    if building.failure:
        outcome.failures[node] = building.failure
    if building.sha:
        store.written[store.artifact(node) / MANIFEST] = building.sha
    outcome.spent[node] = building.seconds, work
    outcome.peaks[node] = building.peak_bytes


def show(
    cases: Sequence[PlannedCase],
    store: RunFolder,
    outcome: Outcome,
    *,
    batch: int,
    workers: int,
    progress: Callable[[int], None],
    limit: MemoryLimit | None = None,
) -> None:
    """Run cases whose requirements are there; `progress` is told how many answers have been given."""
    ledger = Ledger(cases, store, outcome, progress)
    chunks = Chunks(ledger.tasks)
    models = [planned.system.underlying for planned in cases]
    turns = Turns(model for model in models if model is not None)
    stopped = threading.Event()

    def work(task: Task) -> None:
        try:
            wanted = ledger.still_asked(task)
            if wanted.cases:
                answers = answer_task(
                    wanted, store, batch=batch, decoded=chunks.get, turns=turns, stopped=stopped.is_set
                )
                for answered in answers:
                    ledger.note(task, answered)
        finally:
            chunks.release(task)

    with chunks:
        in_workers(work, ledger.tasks, workers, stopped, limit)
    ledger.finish()


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
