"""What `roadworthy list` shows: every component of a kind with one line on what it is."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from roadworthy.core.protocols import OUTLIERS, SHIFTS
from roadworthy.core.registry import Registry
from roadworthy.data import DATA
from roadworthy.metrics import METRICS
from roadworthy.models import MODELS
from roadworthy.monitors import MONITORS
from roadworthy.protocols import PROTOCOLS, Protocol, find_protocol
from roadworthy.protocols.declared import declared_tables
from roadworthy.shifts import ATTACKS

REGISTRIES: dict[str, tuple[Registry[Any], ...]] = {
    "shifts": (SHIFTS, ATTACKS),
    "outliers": (OUTLIERS,),
    "monitors": (MONITORS,),
    "models": (MODELS,),
    "data": (DATA,),
}


def listing(kind: str) -> list[tuple[str, str]]:
    """Names and summaries of a kind: shifts, outliers, monitors, metrics, protocols, models, data, suites or tables."""
    protocols = [find_protocol(name) for name in PROTOCOLS]
    if kind == "metrics":
        return _metrics(protocols)
    if kind == "protocols":
        return [(protocol.name, protocol.summary) for protocol in protocols]
    if kind == "tables":
        return [(name, spec.about) for name, spec in declared_tables(PROTOCOLS).items()]
    if kind == "suites":
        return [(name, p.describe(settings)) for p in protocols for name, settings in p.suites.items()]
    return [(name, _summary(registry.get(name))) for registry in REGISTRIES[kind] for name in registry]


def _metrics(protocols: Sequence[Protocol]) -> list[tuple[str, str]]:
    """Every metric of answers, then those of protocols; a name that means something else there has a line for that."""
    of_answers = [METRICS.get(name) for name in METRICS]
    lines = [(metric.name, f"{metric.label}: {metric.sentence}") for metric in of_answers]
    for protocol in protocols:
        own = [metric for metric in protocol.metrics if metric not in of_answers]
        lines += [(metric.name, f"{metric.label} ({protocol.name}): {metric.sentence}") for metric in own]
    return lines


def _summary(component: Any) -> str:
    """The first line of its docstring; of a monitor also what is other than in its paper."""
    first_line = (inspect.getdoc(component) or "").partition("\n")[0]
    differs = getattr(component, "differs_from_paper", "")
    return f"{first_line} Differs from the paper: {differs}." if differs else first_line
