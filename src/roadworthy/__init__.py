"""Roadworthy: is an image classifier fit for the road?

import roadworthy as rw
run = rw.evaluate("model.onnx", "data/test", suite="standard", out="runs/a")
run.tables["classification"]; run.verdict("criteria.yaml"); run.report()
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roadworthy.api import Run, compare_runs, evaluate, export_study
    from roadworthy.core.protocols import OUTLIERS, SHIFTS, Dataset, Model, Outliers, Shift
    from roadworthy.core.types import Batch, Prediction
    from roadworthy.data import open_dataset
    from roadworthy.models import load_model
    from roadworthy.monitors import MONITORS, Monitor, make_monitor
    from roadworthy.monitors.conformance import check_monitor
    from roadworthy.od_testing import od_test
    from roadworthy.runs import open_run, run_study

__version__ = version("roadworthy")

_HOME = {
    "Run": "api",
    "evaluate": "api",
    "export_study": "api",
    "open_run": "runs",
    "run_study": "runs",
    "compare_runs": "api",
    "MONITORS": "monitors",
    "od_test": "od_testing",
    "Monitor": "monitors",
    "check_monitor": "monitors.conformance",
    "make_monitor": "monitors",
    "OUTLIERS": "core.protocols",
    "SHIFTS": "core.protocols",
    "Dataset": "core.protocols",
    "Model": "core.protocols",
    "Outliers": "core.protocols",
    "Shift": "core.protocols",
    "Batch": "core.types",
    "Prediction": "core.types",
    "open_dataset": "data",
    "load_model": "models",
}

__all__ = [
    "MONITORS",
    "OUTLIERS",
    "SHIFTS",
    "Batch",
    "Dataset",
    "Model",
    "Monitor",
    "Outliers",
    "Prediction",
    "Run",
    "Shift",
    "check_monitor",
    "compare_runs",
    "evaluate",
    "export_study",
    "load_model",
    "make_monitor",
    "od_test",
    "open_dataset",
    "open_run",
    "run_study",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import roadworthy` itself stays cheap."""
    if name not in _HOME:
        raise AttributeError(f"module 'roadworthy' has no attribute {name!r}")
    return getattr(import_module(f"roadworthy.{_HOME[name]}"), name)
