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
    from roadworthy.api import Run, evaluate, export_study, open_run, run_study
    from roadworthy.core.protocols import SHIFTS, Dataset, Model, Shift
    from roadworthy.core.types import Batch, Prediction
    from roadworthy.data import open_dataset
    from roadworthy.models import load_model

__version__ = version("roadworthy")

_HOME = {
    "Run": "api",
    "evaluate": "api",
    "export_study": "api",
    "open_run": "api",
    "run_study": "api",
    "SHIFTS": "core.protocols",
    "Dataset": "core.protocols",
    "Model": "core.protocols",
    "Shift": "core.protocols",
    "Batch": "core.types",
    "Prediction": "core.types",
    "open_dataset": "data",
    "load_model": "models",
}

__all__ = [
    "SHIFTS",
    "Batch",
    "Dataset",
    "Model",
    "Prediction",
    "Run",
    "Shift",
    "evaluate",
    "export_study",
    "load_model",
    "open_dataset",
    "open_run",
    "run_study",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import roadworthy` itself stays cheap."""
    if name not in _HOME:
        raise AttributeError(f"module 'roadworthy' has no attribute {name!r}")
    return getattr(import_module(f"roadworthy.{_HOME[name]}"), name)
