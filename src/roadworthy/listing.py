"""What `roadworthy list` shows: every component of a kind with one line on what it is."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from roadworthy.core.registry import Registry
from roadworthy.core.roles import OUTLIERS, SHIFTS
from roadworthy.core.tables import TableSpec
from roadworthy.data import DATA
from roadworthy.data.signs import BUILTIN
from roadworthy.metrics import METRICS
from roadworthy.models import MODELS
from roadworthy.monitors import MONITORS
from roadworthy.protocols import PROTOCOLS, Protocol, find_protocol, known_suites
from roadworthy.protocols.declared import declared_by, declared_tables
from roadworthy.shifts import ATTACKS

REGISTRIES: dict[str, tuple[Registry[Any], ...]] = {
    "shifts": (SHIFTS, ATTACKS),
    "outliers": (OUTLIERS,),
    "monitors": (MONITORS,),
    "models": (MODELS,),
    "data": (DATA,),
}


LEAST_WIDTH = 18
"""How wide the column of names is at least."""


def listing_lines(kind: str) -> list[str]:
    """What `roadworthy list` prints: names in one column, as wide as needed; tables below the protocol they are of."""
    rows = listing(kind)
    width = max([LEAST_WIDTH, *(len(name) for name, _ in rows)])
    if kind != "tables":
        return [f"{name:<{width}} {summary}".rstrip() for name, summary in rows]
    lines = []
    for owner, specs in declared_by(PROTOCOLS).items():
        lines.append(f"{owner}:")
        lines += [f"  {spec.name:<{width}} {spec.about} Key: {_key(spec)}." for spec in specs]
    return lines


def _key(spec: TableSpec) -> str:
    """The columns that identify a row of a table."""
    of_study = [spec.study_columns.description] if spec.study_columns and spec.study_columns.in_key else []
    return ", ".join([*of_study, *spec.key])


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
        return [(name, suite.describe()) for name, suite in known_suites().items()]
    rows = [(name, _summary(registry.get(name))) for registry in REGISTRIES[kind] for name in registry]
    return rows + ([(f"builtin:{name}", _builtin_summary(name)) for name in BUILTIN] if kind == "data" else [])


def _builtin_summary(name: str) -> str:
    """The classes of a built-in data set."""
    class_names = BUILTIN[name].class_names
    return (
        f"{len(class_names)} classes: {', '.join(class_names)}." if len(class_names) > 1 else f"All {class_names[0]}."
    )


def _metrics(protocols: Sequence[Protocol]) -> list[tuple[str, str]]:
    """Every metric of answers, then those of protocols; a name that means something else there has a line for that.

    In brackets stand the protocols that measure it in every study, or that a study must name it.
    """
    of_answers = [METRICS.get(name) for name in METRICS]
    lines = []
    for metric in of_answers:
        owners = ", ".join(protocol.name for protocol in protocols if metric in protocol.metrics)
        lines.append((metric.name, f"{metric.label} ({owners or 'where a study names it'}): {metric.sentence}"))
    for protocol in protocols:
        own = [metric for metric in protocol.metrics if metric not in of_answers]
        lines += [(metric.name, f"{metric.label} ({protocol.name}): {metric.sentence}") for metric in own]
    return lines


def _summary(component: Any) -> str:
    """The first line of its docstring; of a monitor also what is other than in its paper."""
    first_line = (inspect.getdoc(component) or "").partition("\n")[0]
    differs = getattr(component, "differs_from_paper", "")
    return f"{first_line} Differs from the paper: {differs}." if differs else first_line
