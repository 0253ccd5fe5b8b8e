"""The demo: drawn signs, the two reference classifiers trained on the spot, a report. Needs nothing from outside.

Where torch is missing and nothing can be trained, a small classifier that comes with the package is tested instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.api import ProgressBar, Run, run_study, terminal_progress
from roadworthy.core.errors import install_command
from roadworthy.engine.folder import RunFolder
from roadworthy.protocols import default_protocol

CLASSIFIER = Path(__file__).with_name("demo_classifier.onnx")
"""Made by examples/train_demo_classifier.py; its metadata state its accuracy on undisturbed signs."""

STUDY: dict[str, Any] = {
    "name": "demo",
    "size": 32,
    "data": {
        "train": {"builtin": "signs", "split": "train", "n": 5600},
        "test": {"builtin": "signs", "n": 490},
    },
    "models": {
        "baseline": {"reference": "baseline"},
        "mc_dropout": {"reference": "mc_dropout", "passes": 10},
    },
    "protocols": {default_protocol().name: {"levels": [1, 3, 5]}},
    "criteria": [
        {
            "id": "DEMO-1",
            "hazard": "a sign is misread in plain sight",
            "metric": "accuracy",
            "where": {"shift": "none"},
            "at_least": 0.9,
        },
        {
            "id": "DEMO-2",
            "hazard": "a sign is misread in fog",
            "metric": "accuracy",
            "where": {"shift": "fog", "level": [1, 3]},
            "at_least": 0.9,
        },
        {
            "id": "DEMO-3",
            "hazard": "a sign is misread in rain",
            "metric": "accuracy_drop",
            "where": {"shift": "rain", "level": [1, 3]},
            "at_most": 0.1,
        },
    ],
}
"""A study like any other: `roadworthy run` takes the same as a file."""


def can_train() -> bool:
    """True where the extra `torch` is installed."""
    try:
        import safetensors.torch  # noqa: F401 (needs torch itself)
    except ImportError:
        return False
    return True


def demo_study() -> dict[str, Any]:
    """The study of the demo: `STUDY`, or the same for the classifier that comes with the package."""
    if can_train():
        return STUDY
    data = {"test": STUDY["data"]["test"]}
    return {**STUDY, "data": data, "models": {"small_vgg": {"onnx": str(CLASSIFIER)}}}


def what_is_missing() -> str:
    """What the demo would show with torch, as one line; empty where torch is there."""
    if can_train():
        return ""
    return (
        "torch is not installed, so the demo tests a small classifier that comes with Roadworthy; with it "
        f"({install_command('torch')}) it trains two classifiers, one with MC-Dropout, and tests both"
    )


def run_demo(out: str | Path = "runs/demo", *, progress: ProgressBar = terminal_progress) -> Run:
    """Draw signs, train both reference classifiers, test them under the shifts of the quick suite."""
    RunFolder(out).check_usable()
    return run_study(demo_study(), out=out, progress=progress)
