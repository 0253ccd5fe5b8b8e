"""What `roadworthy list` shows: every component of a kind with one line on what it is."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from roadworthy.core.registry import Registry

if TYPE_CHECKING:
    from roadworthy.monitors import Monitor


def listing(kind: str) -> list[tuple[str, str]]:
    """Names and summaries of a kind: shifts, outliers, monitors, metrics, protocols, models, data or suites."""
    from roadworthy.core.protocols import OUTLIERS, SHIFTS
    from roadworthy.data import DATA
    from roadworthy.metrics import METRICS
    from roadworthy.models import MODELS
    from roadworthy.protocols import PROTOCOLS, classification
    from roadworthy.protocols.dependability import FIGURES

    if kind == "shifts":
        from roadworthy.shifts import ATTACKS

        return [(name, _summary(SHIFTS.get(name))) for name in SHIFTS] + [
            (name, _summary(ATTACKS.get(name))) for name in ATTACKS
        ]
    if kind == "outliers":
        import roadworthy.outliers  # noqa: F401 (registers)

        return [(name, _summary(OUTLIERS.get(name))) for name in OUTLIERS]
    if kind == "monitors":
        from roadworthy.monitors import MONITORS

        return [(name, _monitor(MONITORS.get(name))) for name in MONITORS]
    if kind == "metrics":
        from roadworthy.protocols import ood
        from roadworthy.report.words import words_of

        of_answers = [(name, _summary(function)) for name, function in METRICS.items()]
        of_outliers = [(name, words_of(name).definition) for name in ood.METRICS if name not in METRICS]
        return [*of_answers, *of_outliers, *FIGURES.items()]
    if kind == "protocols":
        return [(name, PROTOCOLS.get(name).summary) for name in PROTOCOLS]
    if kind == "suites":
        return [(name, _suite(name)) for name in classification.SUITES]
    registry: Registry[Any] = MODELS if kind == "models" else DATA
    return [(name, _summary(registry.get(name))) for name in registry]


def _summary(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _monitor(kind: type[Monitor]) -> str:
    """What the monitor is, and what is other than in its paper."""
    differs = kind.differs_from_paper
    return f"{_summary(kind)} Differs from the paper: {differs}." if differs else _summary(kind)


def _suite(name: str) -> str:
    from roadworthy.protocols.classification import suite_settings

    settings = suite_settings(name)
    return f"{len(settings.shifts)} shifts, levels {_join(settings.levels)}, repeats {settings.repeats}"


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in numbers)
