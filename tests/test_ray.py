"""A study on a real Ray cluster of two nodes: the same bits, through a lost node and through chunks that kill."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import yaml

import roadworthy as rw
from commands import COMMAND, call
from roadworthy import engines
from roadworthy.api import no_progress, prepare
from roadworthy.cli import app
from roadworthy.cluster import executor as ray_executor
from roadworthy.cluster.shared import graph_digest, marked
from roadworthy.cluster.worker import Worker
from roadworthy.core.errors import ClusterLost, InputError, MissingExtra
from roadworthy.core.hashing import digest_file
from roadworthy.core.manifests import named_parts, receipt_path
from roadworthy.engine import readouts
from roadworthy.engine.folder import RunFolder
from roadworthy.study import parse_study
from s3_server import s3_bucket
from stand_ins import nearest_mean
from tiny import forget_plugins, save_onnx

pytest.importorskip("ray")

NODE: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.2", "object_store_memory": 80 * 2**20}
SHIFTS = """
import os, time
from dataclasses import dataclass
import roadworthy as rw

@dataclass(frozen=True, kw_only=True)
class _Own(rw.Shift):
    seconds: float
    LEVELS = tuple({"seconds": 0.1} for _ in range(5))

@rw.SHIFTS.register("linger")
@dataclass(frozen=True, kw_only=True)
class Linger(_Own):
    '''Take some time.'''
    name = "linger"
    def __call__(self, batch, streams):
        time.sleep(self.seconds)
        return batch.with_images(255 - batch.images)

@rw.SHIFTS.register("deadly")
@dataclass(frozen=True, kw_only=True)
class Deadly(_Own):
    '''End the process of a worker, and of no other.'''
    name = "deadly"
    def __call__(self, batch, streams):
        if "RAY_JOB_ID" in os.environ:
            os._exit(0)
        return batch.with_images(255 - batch.images)
"""


DRAWS = """
import numpy as np
calls = [0]

def draws(images):
    '''Answer another class every time.'''
    calls[0] += 1
    return np.eye(14, dtype=np.float32)[[calls[0] % 14] * len(images)]
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    pytest.importorskip("s3fs")
    with s3_bucket() as address:
        yield address


@pytest.fixture(scope="module")
def cluster(bucket: str) -> Iterator[Any]:
    """Two nodes, which know the server of the bucket as this process does; every worker on them takes long to start."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as changed:
        for name, value in ray_executor.SETTINGS.items():
            changed.setenv(name, value)
        own = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        try:
            own.add_node(**NODE)
            yield own
        finally:
            own.shutdown()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_plugins()


def study(folder: Path, *shifts: str) -> dict[str, Any]:
    """Two models, a monitor that is fitted to training data, and cases of two protocols."""
    (folder / "own.py").write_text(SHIFTS)
    signs = {"builtin": "signs", "n": 140}
    return {
        "name": "clustered",
        "size": 32,
        "plugins": [str(folder / "own.py")],
        "data": {"test": signs, "train": {**signs, "split": "train"}},
        "models": {
            "sharp": {"onnx": str(save_onnx(folder / "sharp.onnx", softmax=False))},
            "dull": {"onnx": str(save_onnx(folder / "dull.onnx", softmax=False, blur=0.3))},
        },
        "monitors": ["msp", "kl_matching"],
        "protocols": {"classification": {"shifts": [*shifts], "levels": [1, 3, 5]}, "od_test": {"limit": 28}},
    }


def tables(run: rw.Run) -> dict[str, bytes]:
    files = [*run.path.glob("tables/*"), *run.path.glob("readouts/*/*.parquet"), *run.path.glob("artifacts/*/*")]
    named = {str(file.relative_to(run.path)): file.read_bytes() for file in files}
    return {name: content for name, content in named.items() if "timing_" not in name}


OPTIONS: dict[str, Any] = {"trust": True, "accept_chance": True}


def test_a_chunk_that_ends_its_workers_is_given_up_and_all_others_are_done(tmp_path: Path, cluster: Any) -> None:
    asked = study(tmp_path, "noise", "deadly")
    asked["protocols"]["classification"]["levels"] = [1]
    del asked["models"]["dull"]
    here = rw.run_study(asked, out=tmp_path / "here", workers=2, progress=no_progress, **OPTIONS)
    run = rw.run_study(
        asked, out=tmp_path / "there", engine="ray", address=cluster.address, progress=no_progress, **OPTIONS
    )
    failed = {case.stimulus.name: case.reason for case in run.record.cases.values() if case.status == "failed"}
    assert [*failed] == ["deadly"]
    assert "sharp ended the process of 3 workers at chunk 0: Worker unexpectedly exits" in failed["deadly"]
    dead = [case.folder for case in run.record.cases.values() if case.status == "failed"]
    stored = {name: content for name, content in tables(here).items() if name.startswith(("readouts", "artifacts"))}
    kept = {name: content for name, content in stored.items() if not name.startswith(tuple(dead))}
    assert len(kept) > 3
    assert kept == {name: content for name, content in tables(run).items() if name in stored}


def test_a_node_is_lost_and_the_bits_are_the_same(tmp_path: Path, cluster: Any) -> None:
    asked = study(tmp_path, "noise", "linger")
    shown: list[str] = []
    here = rw.run_study(asked, out=tmp_path / "here", workers=2, progress=_noting(shown), **OPTIONS)
    bars: list[str] = []
    out, lost = tmp_path / "there", threading.Event()
    node = next(iter(cluster.worker_nodes))

    def lose_a_node() -> None:
        while not [*out.glob("readouts/*/part-*.parquet")]:
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)
        part = next(out.glob("readouts/*/part-*.parquet"))
        part.with_name(f"{part.name}.4711.tmp").write_bytes(b"what a worker on the lost node was writing")
        lost.set()

    threading.Thread(target=lose_a_node, daemon=True).start()
    there = rw.run_study(asked, out=out, engine="ray", address=cluster.address, progress=_noting(bars), **OPTIONS)
    assert lost.is_set(), "it ran while the node was lost"
    assert tables(here) == tables(there)
    assert len(tables(there)) > 20
    assert there.record.artifacts
    assert there.verify() == []
    assert {case.status for case in there.record.cases.values()} == {"done"}
    assert not [*out.glob("*.tmp")]
    own = [bar for bar in bars if "fitting" not in bar and bar != "starting workers"]
    assert own == [bar for bar in shown if "fitting" not in bar]
    assert "fitting 4 artifacts" in bars


def test_a_run_at_an_address_has_the_same_bits_and_no_part_twice(tmp_path: Path, cluster: Any, bucket: str) -> None:
    asked = study(tmp_path, "noise")
    (tmp_path / "draws.py").write_text(DRAWS)
    asked["models"]["draws"] = {"callable": f"{tmp_path / 'draws.py'}:draws", "num_classes": 14, "version": "1"}
    here = rw.run_study(asked, out=tmp_path / "here", workers=2, progress=no_progress, **OPTIONS)
    failed = {(case.system, case.reason) for case in here.record.cases.values() if case.status == "failed"}
    assert "draws" in {system for system, _ in failed}
    assert all("differently when asked" in reason for _, reason in failed), "by the check before the run"
    given: dict[str, Any] = {"engine": "ray", "address": cluster.address, "progress": no_progress, **OPTIONS}
    there = rw.run_study(asked, out=f"{bucket}/run", **given)
    assert tables(here) == tables(there)
    assert failed == {(case.system, case.reason) for case in there.record.cases.values() if case.status == "failed"}
    assert there.verify() == []
    listed = fsspec.filesystem("s3").find("bucket/run")
    assert not [name for name in listed if name.endswith((".sha256", ".tmp"))]
    with pytest.raises(InputError, match="lives in this process alone"):
        rw.run_study(asked, out="memory://run", **given)


def test_what_lives_in_memory_or_is_asked_for_twice_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs = {"builtin": "signs", "n": 140}
    given: dict[str, Any] = {"suite": "quick", "size": 16, "progress": no_progress, "out": tmp_path / "run"}
    with pytest.raises(
        InputError, match=r"lives in the memory of this process .* local executor only: `engine='local'`"
    ):
        rw.evaluate(nearest_mean(), signs, engine="ray", **given)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study(tmp_path, "noise")))
    words = ("run", tmp_path / "study.yaml", "--out", tmp_path / "run", "--trust")
    assert "which is not asked for: add --engine ray" in call(*words, "--address", "auto", code=2)
    assert "give host:port" in call(*words, "--engine", "ray", "--address", "ray://here:10001", code=2)
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra):
        rw.run_study(tmp_path / "study.yaml", engine="ray", trust=True, progress=no_progress)
    assert not (tmp_path / "run").exists()


def test_a_worker_that_cannot_be_made_is_told_with_the_last_line_of_its_traceback() -> None:
    from ray.exceptions import RayActorError

    from roadworthy.cluster.pool import cause_of_death

    text = (
        "The actor died because of an error raised in its creation task, \x1b[36mray::Worker.__init__()\x1b[39m "
        f'(pid=1, ip=127.0.0.1)\n  File "worker.py", line 1, in {"deep " * 60}\n'
        "ModuleNotFoundError: No module named 'roadworthy.cluster'\n\n"
    )
    assert cause_of_death(RayActorError(None, text)) == "ModuleNotFoundError: No module named 'roadworthy.cluster'"
    died = "The actor is dead because its worker process has died. Some common causes include: (1) no memory"
    assert cause_of_death(RayActorError(None, died)) == "its worker process has died"


def test_a_driver_that_ends_without_a_word_is_a_lost_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray ends it when the head is gone; before it was connected there is no cluster to lose."""
    started = subprocess.Popen

    def ending(command: Any, **options: Any) -> Any:
        code = f"import os, signal; print({spoken!r}); os.kill(os.getpid(), {int(signal.SIGKILL)})"
        return started([sys.executable, "-uc", code], **options)

    monkeypatch.setattr(ray_executor.subprocess, "Popen", ending)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study(tmp_path, "noise")))
    words = ("run", tmp_path / "study.yaml", "--out", tmp_path / "run", "--trust", "--quiet", "--engine", "ray")
    spoken = '{"connected": true}'
    assert "run the same command again, on this or another cluster" in call(*words, code=ClusterLost.exit_code)
    spoken = '{"bar": "preparing", "total": 1}'
    assert "no Ray cluster answers at nowhere:1" in call(*words, "--address", "nowhere:1", code=2)


def test_a_worker_works_only_in_the_folder_of_its_driver_and_blames_no_case_for_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # a worker collects them
    content = study(tmp_path, "noise")
    parsed = parse_study(content, "study", trust=True)
    prepared = prepare(parsed, trust=True, accept_chance=True, progress=no_progress)
    store, graph = RunFolder(tmp_path), prepared.plan.graph()
    task = {"recipe": prepared.recipe(), "folder": str(tmp_path)}
    assert "does not see the run" in Worker({**task, "token": "of another machine"}).prepare()["error"]
    case = next(hash_ for hash_, node in graph.cases.items() if not node.requires)
    with marked(store) as token:
        worker = Worker({**task, "token": token})
        assert worker.prepare()["graph"] == graph_digest(graph)
        with monkeypatch.context() as full:
            full.setattr(readouts, "write_parquet", lambda *given: _fail(OSError(errno.ENOSPC, "No space left")))
            assert "No space left; fix that and run again" in worker.answer(0, [case])["error"]
        assert worker.answer(0, [case])["answers"][0][0] == case
    assert "does not see the run" in worker.answer(0, [case])["error"], "another command has opened the folder"


class PoolHere:
    """A worker in this process in place of those of a cluster."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def do(self, jobs: Iterable[Any]) -> None:
        for job in jobs:
            kind, *given = job.question() or ("nothing",)
            if given:
                job.done(getattr(self._worker, kind)(*given))


def test_what_is_changed_between_a_worker_and_its_driver_is_not_blessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a part with its receipt, nor a manifest: whoever wrote them has told their hash."""
    from roadworthy.cluster.driver import ClusterExecutor

    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    asked = study(tmp_path, "noise")
    del asked["models"]["dull"]
    asked["protocols"]["classification"]["levels"] = [1]
    prepared = prepare(parse_study(asked, "study", trust=True), trust=True, accept_chance=True, progress=no_progress)
    store, graph, original, spoiled = RunFolder(tmp_path / "run"), prepared.plan.graph(), readouts.write_part, []
    store.path.mkdir()

    def spoil(folder: Path, chunk: int, *given: Any) -> str:
        sha, part = original(folder, chunk, *given), readouts.part_path(folder, chunk)
        if folder.name.startswith("noise"):
            spoiled.append(part)
            part.write_bytes(part.read_bytes() + b" ")
            receipt_path(part).write_text(digest_file(part))
        return sha

    monkeypatch.setattr(readouts, "write_part", spoil)
    with marked(store) as token:
        worker = Worker({"recipe": prepared.recipe(), "folder": str(store.path), "token": token})
        worker.prepare()
        pool: Any = PoolHere(worker)
        assert not ClusterExecutor(pool, no_progress, "t").run(graph, store).failures
    assert spoiled
    for part in spoiled:
        assert named_parts(part.parent)[part.name] != digest_file(part)
    manifests = {path: digest_file(path) for path in store.path.glob("*/*/manifest.json")}
    assert manifests == {path: sha for path, sha in store.written.items() if path.name == "manifest.json"}
    assert {path.parent.parent.name for path in manifests} == {"readouts", "artifacts"}
    told = {"failures": {}, "not_shown": [], "spent": {}, "peaks": {}, "manifests": {"artifacts/a/manifest.json": "0"}}
    ray_executor._concluded({"outcome": told}, store)
    assert store.written[store.path / "artifacts/a/manifest.json"] == "0"


def _fail(error: Exception) -> None:
    raise error


def test_the_manifest_for_kuberay_has_the_fields_of_its_api_and_a_command_that_there_is() -> None:
    """It is not run here: the operator would refuse a field that it does not know."""
    manifest = yaml.safe_load((Path(__file__).parent.parent / "examples/kuberay/roadworthy-job.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayJob")
    job = manifest["spec"]
    known = {"entrypoint", "submissionMode", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"}
    assert {*job} == known | {"rayClusterSpec"}
    groups = [job["rayClusterSpec"]["headGroupSpec"], *job["rayClusterSpec"]["workerGroupSpecs"]]
    of_group = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    for group in groups:
        assert {*group} <= of_group
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    name, command, study, *words = job["entrypoint"].split()
    assert (name, command, study) == ("roadworthy", "run", "/data/study.yaml")
    options = {option for parameter in COMMAND(app).commands["run"].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def _noting(bars: list[str]) -> Any:
    def bar(title: str, total: int) -> Any:
        bars.append(title)
        return no_progress(title, total)

    return bar
