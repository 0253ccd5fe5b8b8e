"""The demo: drawn signs, the two reference classifiers trained on the spot, a report. Needs nothing from outside.

Where torch is missing and nothing can be trained, a small classifier that comes with the package is tested instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.api import ProgressBar, Run, run_study, terminal_progress
from roadworthy.core.errors import install_command
from roadworthy.diagnosing import CLASSIFIER
from roadworthy.engine.folder import RunFolder
from roadworthy.protocols import find_suite
from roadworthy.protocols.joint_test.templates import filled_template

SUITE = find_suite("approval")
"""What is tested, and which questions are asked."""
THRESHOLDS = {
    **{"TS-1": 0.95, "TS-2": 0.8, "TS-3": 0.1, "TS-4": 0.8, "TS-5": 0.7, "TS-6": 0.1, "TS-7": 0.7},
    **{"TS-8": 0.3, "TS-9": 0.1},
}
"""Examples, by the criterion of the template that they fill in: nobody decided on them."""

STUDY: dict[str, Any] = {
    "name": "demo",
    "size": 32,
    "data": {
        "train": {"builtin": "signs", "split": "train", "n": 5600},
        "test": {"builtin": "signs", "n": 350},
    },
    "models": {
        "baseline": {"reference": "baseline"},
        "mc_dropout": {"reference": "mc_dropout", "passes": 10},
    },
    "protocols": {name: settings.model_dump() for name, settings in SUITE.settings.items()},
    "questions": [*SUITE.questions],
    "criteria": filled_template("traffic-signs", THRESHOLDS, example=True),
}
"""A study like any other: `roadworthy run` takes the same as a file. GANs, which take minutes, are left out."""


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
    """Draw signs, train both reference classifiers, test them by the suite approval; thresholds are examples."""
    RunFolder(out).check_usable()
    return run_study(demo_study(), out=out, progress=progress)
