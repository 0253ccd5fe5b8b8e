"""Artifacts built in processes of their own: the same bits, told failures, and dead processes that cost nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import roadworthy as rw
from roadworthy import building
from roadworthy.api import no_progress, prepare
from roadworthy.building import apart_builder, build_apart
from roadworthy.core.hashing import digest_file
from roadworthy.core.types import Artifact
from roadworthy.engine.artifacts import ensure_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.study import parse_study
from stand_ins import nearest_mean

DATA = {"builtin": "signs", "n": 140}


def study(**models: Any) -> dict[str, Any]:
    return {
        "name": "apart",
        "size": 16,
        "data": {"test": DATA, "train": {**DATA, "n": 350, "split": "train"}},
        "models": models,
        "protocols": {"classification": {"shifts": ["fog"], "levels": [1]}},
    }


def network(**settings: Any) -> dict[str, Any]:
    return {"reference": "baseline", "epochs": 1, "width": 4, "hidden": 8, "threads": 1, **settings}


def content(run: rw.Run) -> dict[str, str]:
    files = [*run.path.glob("artifacts/*/network.safetensors"), *run.path.glob("readouts/*/*.parquet")]
    return {str(file.relative_to(run.path)): digest_file(file) for file in files}


def test_processes_give_the_same_bits_and_tell_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One diverges; that is told as if it had been trained here, and the others go on."""
    asked = study(a=network(), b=network(seed=1), wild=network(learning_rate=1e30))
    options: dict[str, Any] = {"progress": no_progress, "accept_chance": True}
    here = rw.run_study(asked, out=tmp_path / "here", workers=1, **options)
    built = []
    monkeypatch.setattr(building, "build_apart", lambda *given: built.append(build_apart(*given)) or built[-1])
    known, write_record = set[Path](), RunFolder.write_record
    monkeypatch.setattr(RunFolder, "write_record", lambda f, *own: known.update(f.written) or write_record(f, *own))
    there = rw.run_study(asked, out=tmp_path / "there", workers=2, **options)
    assert [len(some) for some in built] == [3], "all three were built elsewhere"
    assert {*there.path.glob("artifacts/*/manifest.json")} < known, "by the hash that their builder told"
    assert content(here) == content(there)
    assert len(content(here)) > 4
    reasons = [{a.system: a.reason for a in run.record.artifacts.values() if a.reason} for run in (here, there)]
    assert reasons[0] == reasons[1]
    assert "lower the learning rate" in reasons[1]["wild"]
    assert there.verify() == []


def test_a_process_that_dies_leaves_its_nodes_to_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(task: str) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(9)"], text=True, **pipes)

    monkeypatch.setattr(building, "_started", dead)
    assert build_apart("{}", ["one", "two"], 2, lambda amount: None) == {}
    asked = study(a=network(), b=network(seed=1))
    run = rw.run_study(asked, out=tmp_path / "run", workers=2, progress=no_progress, accept_chance=True)
    assert len(content(run)) > 3


def test_what_a_dead_process_was_writing_is_not_left_in_the_artifact(tmp_path: Path) -> None:
    artifact, folder = Artifact("coin", {}), RunFolder(tmp_path)
    home = folder.artifact(artifact.hash)
    home.mkdir(parents=True)
    (home / "coin.json.4711.tmp").write_text("{")

    def build(workshop: Path) -> dict[str, Any]:
        (workshop / "coin.json").write_text("{}")
        return {}

    ensure_artifact(folder, artifact, build)
    assert sorted(path.name for path in home.iterdir()) == ["coin.json", "manifest.json"]


def test_a_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    prepared = prepare(parse_study(study(a=network()), "study"))
    task = json.dumps({"recipe": prepared.recipe(), "folder": str(tmp_path)})
    command = [sys.executable, "-m", "roadworthy.building"]
    done = subprocess.run(command, input=task + "\n", text=True, timeout=60, capture_output=True, check=True)
    assert done.stdout == ""


def test_what_lives_in_memory_is_built_here(tmp_path: Path) -> None:
    asked = parse_study({**study(a="<in memory>"), "size": 32}, "study")
    assert apart_builder(prepare(asked, models={"a": nearest_mean(name="a")}), tmp_path) is None
