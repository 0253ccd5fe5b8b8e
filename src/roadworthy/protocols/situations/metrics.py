"""The metrics of expected situations: a mean over images in each, its expectation over all, and shares of them."""

from __future__ import annotations

from collections.abc import Sequence

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.metrics import METRICS as REGISTERED
from roadworthy.metrics import Metric, accuracy, brier
from roadworthy.protocols.situations.table_specs import NAME

USUAL = (accuracy, brier)
"""What every study measures in each situation."""
SHARE_MET = Metric(
    "share_met",
    label="Share of expected situations",
    sentence="Share of the expected situations in which a requirement is met; its lower bound is shown to be met, and "
    "what lies above its upper bound is shown to be missed.",
    higher_is_better=True,
    percent=True,
)


def measured_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    """The usual metrics and those that are named; what is not a mean over images, bounded by objects, is an error."""
    suited = [name for name in REGISTERED if REGISTERED.get(name).mean_over_objects]
    for name in names:
        if name in REGISTERED and name not in suited:
            raise InputError(
                f"{NAME}: {name} is no mean over images with bounds by object, so it has no expectation over "
                f"situations: name one of {', '.join(suited)}"
            )
        if name not in REGISTERED:
            raise UnknownName("metric", name, suited)
    usual = [metric.name for metric in USUAL]
    return (*USUAL, *(REGISTERED.get(name) for name in dict.fromkeys(names) if name not in usual))


def all_metrics(measured: Sequence[Metric]) -> tuple[Metric, ...]:
    """The metrics of the tables: those measured, their expectations, and the share of situations."""
    return (*measured, *(metric.expected() for metric in measured), SHARE_MET)
