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
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roadworthy import maite, metrics, shifts
    from roadworthy.api import (
        Run,
        bundle_run,
        check,
        choose_monitor,
        choose_operating_point,
        clean,
        collect_indicators,
        compare_runs,
        evaluate,
        evaluate_decisions,
        export_monitor,
        export_study,
        monitor_decisions,
        no_progress,
        open_run,
        replay_bundle,
        run_study,
        write_indicators,
    )
    from roadworthy.api import bundle_run as bundle
    from roadworthy.api import compare_runs as compare
    from roadworthy.api import replay_bundle as replay
    from roadworthy.api import run_study as run
    from roadworthy.core.errors import InputError, ModelError, RoadworthyError
    from roadworthy.core.roles import OUTLIERS, SHIFTS, Dataset, Model, Outliers, Shift
    from roadworthy.core.types import Batch, Prediction
    from roadworthy.data import open_dataset
    from roadworthy.diagnosing import Diagnosis, doctor
    from roadworthy.metrics import METRICS, Metric, mean_metric, metric
    from roadworthy.models import load_model
    from roadworthy.models.signals import Signals
    from roadworthy.monitors import MONITORS, CalibratedMonitor, FittedMonitor, Monitor, make_monitor
    from roadworthy.monitors.conformance import check_monitor, check_usefulness
    from roadworthy.monitors.guard import Guard, load_guard
    from roadworthy.monitors.id_threshold import IdRule
    from roadworthy.mutation import Mutation, mutate
    from roadworthy.protocols.monitoring.short import monitoring as monitoring
    from roadworthy.protocols.od_test.short import od_test as od_test
    from roadworthy.selftest import SelfTest, self_test
    from roadworthy.viewer import serve

__version__ = version("roadworthy")

_MODULES = {
    "api": (
        *("Run", "check", "choose_monitor", "choose_operating_point", "compare_runs", "evaluate", "evaluate_decisions"),
        *("bundle_run", "clean", "collect_indicators", "export_monitor", "replay_bundle", "write_indicators"),
        *("export_study", "monitor_decisions", "no_progress", "open_run", "run_study"),
    ),
    "core.errors": ("InputError", "ModelError", "RoadworthyError"),
    "core.roles": ("OUTLIERS", "SHIFTS", "Dataset", "Model", "Outliers", "Shift"),
    "core.types": ("Batch", "Prediction"),
    "data": ("open_dataset",),
    "diagnosing": ("Diagnosis", "doctor"),
    "models": ("load_model",),
    "models.signals": ("Signals",),
    "metrics": ("METRICS", "Metric", "mean_metric", "metric"),
    "monitors": ("MONITORS", "CalibratedMonitor", "FittedMonitor", "Monitor", "make_monitor"),
    "monitors.conformance": ("check_monitor", "check_usefulness"),
    "monitors.guard": ("Guard", "load_guard"),
    "monitors.id_threshold": ("IdRule",),
    "mutation": ("Mutation", "mutate"),
    "selftest": ("SelfTest", "self_test"),
    "viewer": ("serve",),
}
"""Where public names are defined."""
_SHORTCUTS = sorted(path.parent.name for path in Path(__file__).parent.glob("protocols/*/short.py"))
"""Protocols that can be run by a function of their name."""
_MODULES |= {f"protocols.{name}.short": (name,) for name in _SHORTCUTS}
_FOLDERS = ("maite", "metrics", "shifts")
"""Parts that are useful by themselves: `rw.shifts.fog(image)`."""
_SHORT_NAMES = {"bundle": "bundle_run", "compare": "compare_runs", "replay": "replay_bundle", "run": "run_study"}

__all__ = [
    "METRICS",
    "MONITORS",
    "OUTLIERS",
    "SHIFTS",
    "Batch",
    "CalibratedMonitor",
    "Dataset",
    "Diagnosis",
    "FittedMonitor",
    "Guard",
    "IdRule",
    "InputError",
    "Metric",
    "Model",
    "ModelError",
    "Monitor",
    "Mutation",
    "Outliers",
    "Prediction",
    "RoadworthyError",
    "Run",
    "SelfTest",
    "Shift",
    "Signals",
    "bundle",
    "bundle_run",
    "check",
    "check_monitor",
    "check_usefulness",
    "choose_monitor",
    "choose_operating_point",
    "clean",
    "collect_indicators",
    "compare",
    "compare_runs",
    "doctor",
    "evaluate",
    "evaluate_decisions",
    "export_monitor",
    "export_study",
    "load_guard",
    "load_model",
    "maite",
    "make_monitor",
    "mean_metric",
    "metric",
    "metrics",
    "monitor_decisions",
    "mutate",
    "no_progress",
    "open_dataset",
    "open_run",
    "replay",
    "replay_bundle",
    "run",
    "run_study",
    "self_test",
    "serve",
    "shifts",
    "write_indicators",
]
__all__ += _SHORTCUTS


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import roadworthy` itself stays cheap."""
    if name in _FOLDERS:
        return import_module(f"roadworthy.{name}")
    original = _SHORT_NAMES.get(name, name)
    for module, names in _MODULES.items():
        if original in names:
            if module in ("data", "models"):
                import_module("roadworthy.maite")  # data sets and models of MAITE are recognised, too
            return getattr(import_module(f"roadworthy.{module}"), original)
    raise AttributeError(f"module 'roadworthy' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, those not imported yet among them."""
    return [*__all__, "__version__"]
