"""Every node of a study runs in a process of its own, from its JSON description alone: what a cluster will do."""

from __future__ import annotations

import json
import multiprocessing
import random
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import roadworthy as rw
import tiny
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.engine.executor import Executor, load_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.ledger import Outcome
from roadworthy.engine.local import LocalExecutor
from roadworthy.engine.plan import Graph
from roadworthy.preparing import prepare_recipe
from roadworthy.study import parse_study


def run_node(recipe: dict[str, Any], node: str, run: str) -> dict[str, Any]:
    """Do one node in this process, which knows nothing but what it is told here."""
    graph = prepare_recipe(recipe).plan.graph()
    outcome = LocalExecutor().run_node(node, graph, RunFolder(Path(run)))
    return {"failures": outcome.failures, "spent": outcome.spent}


class FreshProcesses(Executor):
    """A process per node, in random order; all that they share are imported modules, from a server that forks them."""

    def __init__(self, recipe: dict[str, Any], seed: int) -> None:
        self.recipe, self.random = json.loads(json.dumps(recipe)), random.Random(seed)
        self.order: list[str] = []

    def run(self, graph: Graph, store: RunFolder) -> Outcome:
        outcome, waiting, running = Outcome(), {*graph.artifacts, *graph.cases}, dict[str, Future[dict[str, Any]]]()
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(["roadworthy.api"])
        with ProcessPoolExecutor(2, mp_context=server, max_tasks_per_child=1) as processes:
            while waiting or running:
                ready = sorted(node for node in waiting if not graph.requirements(node) & (waiting | {*running}))
                if ready and len(running) < 2:
                    node = self.random.choice(ready)
                    waiting.remove(node)
                    self.order.append(node)
                    running[node] = processes.submit(run_node, self.recipe, node, str(store.path))
                    continue
                done = running.pop(next(iter(running))).result()
                outcome.failures |= done["failures"]
                outcome.spent |= done["spent"]
        assert not outcome.failures
        for node, artifact in graph.artifacts.items():
            outcome.built[node] = load_artifact(artifact, store)
        return outcome


def content(folder: Path) -> dict[str, Any]:
    return {
        "name": "nodes",
        "size": 32,
        "data": {"test": {"builtin": "signs", "n": 140}, "train": {"builtin": "signs", "split": "train", "n": 56}},
        "models": {"tiny": {"onnx": str(tiny.save_onnx(folder / "tiny.onnx"))}},
        "outliers": {"scenery": {"builtin": "scenery", "n": 20}},
        "monitors": {"mahalanobis": {}},
        "protocols": {
            "classification": {"shifts": ["fog"], "levels": [3]},
            "od_test": {"sets": ["scenery", "uniform_noise"], "limit": 20},
        },
    }


def bytes_of(run: Path, *folders: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for folder in folders
        for path in sorted((run / folder).rglob("*"))
        if path.is_file() and not path.name.startswith("timing_")
    }


def test_every_node_in_a_fresh_process_and_in_random_order_gives_the_same_bytes(tmp_path: Path) -> None:
    study = parse_study(content(tmp_path), "study")
    options: dict[str, Any] = {"accept_chance": True, "progress": no_progress}
    usual = execute(prepare(study, **options), tmp_path / "usual", workers=2, progress=no_progress)
    prepared = prepare(study, **options)
    executor = FreshProcesses(prepared.recipe(), seed=3)
    run = execute(prepared, tmp_path / "fresh", executor=executor, progress=no_progress)
    assert len(executor.order) == len(prepared.plan.graph())
    assert executor.order != [*prepared.plan.graph().artifacts, *prepared.plan.graph().cases]
    folders = ("readouts", "artifacts", "tables", "media")
    assert bytes_of(run.path, *folders) == bytes_of(usual.path, *folders)
    assert run.verify() == []


def test_what_lives_in_memory_says_that_it_cannot_be_made_elsewhere(tmp_path: Path) -> None:
    study = parse_study({**content(tmp_path), "models": {"mine": "<function>"}}, "study")
    model = rw.load_model(tmp_path / "tiny.onnx", name="mine")
    prepared = prepare(study, models={"mine": model}, accept_chance=True, progress=no_progress)
    with pytest.raises(InputError, match="mine <function> lives in the memory of this process alone"):
        prepared.recipe()
