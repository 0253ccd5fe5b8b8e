"""Roadworthy: is an image classifier fit for the road?

import roadworthy as rw
run = rw.evaluate("model.onnx", "data/test", suite="standard", out="runs/a")
run.tables["classification"]; run.verdict("criteria.yaml"); run.report()

`dir(rw)` lists all public names; the functions are those of the command line: `rw.check`, `rw.evaluate`, `rw.run`,
`rw.compare`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roadworthy.api import Run, check, compare_runs, evaluate, export_study, no_progress, open_run, run_study
    from roadworthy.api import compare_runs as compare
    from roadworthy.api import run_study as run
    from roadworthy.core.errors import InputError, ModelError, RoadworthyError
    from roadworthy.core.protocols import OUTLIERS, SHIFTS, Dataset, Model, Outliers, Shift
    from roadworthy.core.types import Batch, Prediction
    from roadworthy.data import open_dataset
    from roadworthy.models import load_model
    from roadworthy.models.signals import Signals
    from roadworthy.monitors import MONITORS, CalibratedMonitor, FittedMonitor, Monitor, make_monitor
    from roadworthy.monitors.conformance import check_monitor
    from roadworthy.protocols.od_test.short import od_test

__version__ = version("roadworthy")

_HOME = {
    "Run": "api",
    "check": "api",
    "compare": "api:compare_runs",
    "run": "api:run_study",
    "no_progress": "api",
    "InputError": "core.errors",
    "ModelError": "core.errors",
    "RoadworthyError": "core.errors",
    "evaluate": "api",
    "export_study": "api",
    "open_run": "api",
    "run_study": "api",
    "compare_runs": "api",
    "MONITORS": "monitors",
    "od_test": "protocols.od_test.short",
    "Monitor": "monitors",
    "FittedMonitor": "monitors",
    "CalibratedMonitor": "monitors",
    "Signals": "models.signals",
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
    "CalibratedMonitor",
    "Dataset",
    "FittedMonitor",
    "InputError",
    "Model",
    "ModelError",
    "Monitor",
    "Outliers",
    "Prediction",
    "RoadworthyError",
    "Run",
    "Shift",
    "Signals",
    "check",
    "check_monitor",
    "compare",
    "compare_runs",
    "evaluate",
    "export_study",
    "load_model",
    "make_monitor",
    "no_progress",
    "od_test",
    "open_dataset",
    "open_run",
    "run",
    "run_study",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import roadworthy` itself stays cheap."""
    if name not in _HOME:
        raise AttributeError(f"module 'roadworthy' has no attribute {name!r}")
    module, _, original = _HOME[name].partition(":")
    return getattr(import_module(f"roadworthy.{module}"), original or name)


def __dir__() -> list[str]:
    """The public names, those not imported yet among them."""
    return [*__all__, "__version__"]
