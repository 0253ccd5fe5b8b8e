"""A limit of memory lets fewer workers run at once, and never changes a result."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import call
from roadworthy import engines
from roadworthy.api import evaluate, execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Prediction
from roadworthy.core.validation import parse_bytes
from roadworthy.engine import memory
from roadworthy.engine.memory import MemoryLimit, resident
from roadworthy.engine.workers import in_workers
from roadworthy.study import parse_study
from tiny import contents, study, write_npz, write_study

MB = 10**6


class Holding(Model):
    """Holds much memory while it answers, and notes how many threads were in it at once."""

    name, num_classes, concurrent = "holding", 14, True

    def __init__(self, held: int) -> None:
        self.held, self.inside, self.most, self._lock = held, 0, 0, threading.Lock()

    def fingerprint(self) -> str:
        return "holding"

    def predict(self, batch: Any) -> Prediction:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        held = np.ones(self.held, np.uint8)
        time.sleep(0.02)
        answer = np.full((len(batch), 14), 0.05, np.float32)
        answer[np.arange(len(batch)), batch.labels] = 0.35 * held[0]
        with self._lock:
            self.inside -= 1
        return Prediction(answer)


def run(folder: Path, out: str, limit: int | str | None, held: int) -> tuple[Path, int]:
    model = Holding(held)
    named: dict[str, Any] = {
        "data": {"test": str(folder / "signs.npz")},
        "models": {"holding": "<in memory>"},
        "batch": 512,
    }
    named["protocols"] = {"classification": {"shifts": ["noise"], "levels": [1]}}
    prepared = prepare(parse_study(study(folder, **named), "study"), models={"holding": model}, accept_chance=True)
    model.most = 0
    return execute(prepared, folder / out, workers=4, progress=no_progress, memory=limit).path, model.most


def test_where_one_worker_fits_one_works_and_the_tables_are_the_same(tmp_path: Path) -> None:
    write_npz(tmp_path / "signs.npz", 2100)
    held = 100 * MB
    free, several = run(tmp_path, "free", None, held)
    tight, one = run(tmp_path, "tight", int(resident() + 180 * MB), held)
    assert several > 1
    assert one == 1
    assert contents(free) == contents(tight)


def test_where_none_fits_it_says_so_and_keeps_what_is_stored(tmp_path: Path) -> None:
    write_npz(tmp_path / "signs.npz", 2100)
    with pytest.raises(InputError, match=r"`memory=` is 1 MB, but this process holds"):
        run(tmp_path, "run", "1MB", 10)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match=r"one worker with a chunk of images holds .* what is stored stays"):
        run(tmp_path, "run", int(resident() + 50 * MB), 200 * MB)
    stored = {path.name for path in (tmp_path / "run").glob("readouts/*/part-*.parquet")}
    assert stored == {"part-00000.parquet"}
    resumed, _ = run(tmp_path, "run", None, 10)
    whole, _ = run(tmp_path, "whole", None, 10)
    assert contents(resumed) == contents(whole)


def test_as_the_limit_comes_near_fewer_workers_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [0.0]
    monkeypatch.setattr(memory, "resident", lambda: 100.0 * MB + held[0])
    monkeypatch.setattr(memory, "peak_memory", lambda: _Peak(110.0 * MB))
    limit = MemoryLimit("200MB")
    at_work, most = [0], []
    lock, stopped = threading.Lock(), threading.Event()

    def work(task: int) -> None:
        with lock:
            at_work[0] += 1
            most.append(at_work[0])
            held[0] = 90.0 * MB if task >= 40 else 0.0
        time.sleep(0.002)
        with lock:
            at_work[0] -= 1

    in_workers(work, range(80), 4, stopped, limit)
    assert most[0] == 1
    assert max(most[:40]) > 1
    assert most[-20:] == [1] * 20
    assert limit.fitting(4) == 4
    assert limit.fitting(99) == 10


class _Peak:
    def __init__(self, peak: float) -> None:
        self.bytes = peak

    def __enter__(self) -> _Peak:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "two", "0", "1XB", "1e9GB", "nan", True])
def test_what_is_no_number_of_bytes_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match="number of bytes such as 2GB"):
        parse_bytes(text, "memory")


def test_the_command_line_takes_a_limit(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    assert "--memory is a number of bytes" in call("run", path, "--out", tmp_path / "run", "--memory", "much", code=2)
    assert "--memory is 1 MB, but this process holds" in call(
        "run", path, "--out", tmp_path / "run", "--memory", "1MB", code=2
    )
    assert not (tmp_path / "run").exists()
    assert "--memory would be ignored" in call("run", path, "--dry-run", "--memory", "2GB", code=2)


def test_options_that_cannot_be_used_are_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data of the study is not there, which would be said as soon as it is looked for."""
    path = write_study(tmp_path, data={"test": str(tmp_path / "none.npz")})
    words = ("run", path, "--out", tmp_path / "run")
    assert "none.npz" in call(*words, code=2)
    assert "--memory is a number of bytes" in call(*words, "--memory", "much", code=2)
    assert "--memory is 1 MB, but" in call(*words, "--memory", "1MB", code=2)
    assert "add --engine ray" in call(*words, "--address", "auto", code=2)
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert "runs on a cluster" in call(*words, "--engine", "ray", code=2)
    evaluated: dict[str, Any] = {"data": tmp_path / "none.npz", "out": tmp_path / "run"}
    with pytest.raises(InputError, match="`memory=` is a number of bytes"):
        evaluate(tmp_path / "none.onnx", **evaluated, memory="much")
    with pytest.raises(InputError, match="add `engine='ray'`"):
        evaluate(tmp_path / "none.onnx", **evaluated, address="auto")


def test_a_system_that_does_not_tell_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none")
    with pytest.raises(InputError, match="`memory=` needs a system that tells"):
        MemoryLimit("2GB")
