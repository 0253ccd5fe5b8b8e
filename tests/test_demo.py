"""The demo where torch is missing: the classifier that comes with the package, tested and reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import roadworthy as rw
from roadworthy.demo import CLASSIFIER

WITHOUT_TORCH = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Absent())
from roadworthy import cli, demo
demo.STUDY["data"]["test"]["n"] = 70
few = {"shifts": ["fog", "rain"], "levels": [1, 3]}
outliers = {"sets": ["uniform_noise"], "transformed": []}
shown = {"classification": few, "ood": outliers, "operating_points": {**few, "outliers": outliers}}
demo.STUDY["protocols"].update(shown)
first, *_ = demo.STUDY["criteria"]["criteria"]
demo.STUDY["criteria"]["criteria"] = [first]
cli.main()
"""


def stated_accuracy() -> float:
    return float({entry.key: entry.value for entry in onnx.load(CLASSIFIER).metadata_props}["clean_accuracy"])


def test_the_classifier_that_comes_along_is_as_good_as_it_states() -> None:
    batch = rw.open_dataset({"builtin": "signs", "n": 1400}, size=32).batch(slice(None))
    answers = rw.load_model(CLASSIFIER).answer(batch, 64).probabilities.argmax(axis=1)
    assert (answers == batch.labels).mean() == pytest.approx(stated_accuracy(), abs=0.002)
    assert stated_accuracy() > 0.97
    assert CLASSIFIER.stat().st_size < 200_000


def test_it_is_part_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    assert CLASSIFIER.name in project["tool"]["setuptools"]["package-data"]["roadworthy"]


def test_the_demo_without_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, "demo", "--out", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, *stages = done.stderr.splitlines()
    assert first.startswith("note: torch is not installed, so the demo tests a small classifier that comes with")
    assert "[torch]'" in first
    assert {line.partition(":")[0] for line in stages} >= {"reading images", "testing demo", "computing tables"}
    assert done.stdout.startswith("Verdict: ")
    assert "Thresholds are examples, not a judgement." in done.stdout.splitlines()[0]
    assert (tmp_path / "demo" / "report.html").is_file()
    record = json.loads((tmp_path / "demo" / "run.json").read_text())
    assert list(record["sources"][""]["models"]) == ["small_vgg"]
