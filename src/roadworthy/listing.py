"""What `roadworthy list` shows: every component of a kind with one line on what it is."""

from __future__ import annotations

import inspect
from typing import Any

from roadworthy.core.protocols import OUTLIERS, SHIFTS
from roadworthy.core.registry import Registry
from roadworthy.data import DATA
from roadworthy.metrics import METRICS
from roadworthy.models import MODELS
from roadworthy.monitors import MONITORS
from roadworthy.protocols import PROTOCOLS, classification, ood
from roadworthy.protocols.dependability import FIGURES
from roadworthy.report.words import words_of
from roadworthy.shifts import ATTACKS

REGISTRIES: dict[str, tuple[Registry[Any], ...]] = {
    "shifts": (SHIFTS, ATTACKS),
    "outliers": (OUTLIERS,),
    "monitors": (MONITORS,),
    "models": (MODELS,),
    "data": (DATA,),
}


def listing(kind: str) -> list[tuple[str, str]]:
    """Names and summaries of a kind: shifts, outliers, monitors, metrics, protocols, models, data or suites."""
    if kind == "metrics":
        of_answers = [(name, _summary(function)) for name, function in METRICS.items()]
        of_outliers = [(name, words_of(name).definition) for name in ood.METRICS if name not in METRICS]
        return [*of_answers, *of_outliers, *FIGURES.items()]
    if kind == "protocols":
        return [(name, PROTOCOLS.get(name).summary) for name in PROTOCOLS]
    if kind == "suites":
        return [(name, _suite(name)) for name in classification.SUITES]
    return [(name, _summary(registry.get(name))) for registry in REGISTRIES[kind] for name in registry]


def _summary(component: Any) -> str:
    """The first line of its docstring; of a monitor also what is other than in its paper."""
    first_line = (inspect.getdoc(component) or "").partition("\n")[0]
    differs = getattr(component, "differs_from_paper", "")
    return f"{first_line} Differs from the paper: {differs}." if differs else first_line


def _suite(name: str) -> str:
    settings = classification.suite_settings(name)
    levels = ", ".join(map(str, settings.levels))
    return f"{len(settings.shifts)} shifts, levels {levels}, repeats {settings.repeats}"
