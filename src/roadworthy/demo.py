"""The demo: drawn signs, the two reference classifiers trained on the spot, a report. Needs nothing from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.api import ProgressBar, Run, run_study, terminal_progress
from roadworthy.engine.folder import RunFolder

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
    "protocols": {"classification": {"levels": [1, 3, 5]}},
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


def run_demo(out: str | Path = "runs/demo", *, progress: ProgressBar = terminal_progress) -> Run:
    """Draw signs, train both reference classifiers, test them under the shifts of the quick suite."""
    RunFolder(out).check_usable()
    return run_study(STUDY, out=out, progress=progress)
