"""What names a row of the tables of operating points, and which rows a criterion asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.types import UNDISTURBED
from roadworthy.metrics import unknown_metric
from roadworthy.protocols.base import KnownCase, matching
from roadworthy.protocols.monitor_scores import HELD_OUT, MONITOR, SHOWN
from roadworthy.protocols.ood.gan_bounds import GanKey
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.protocols.ood.tables import asked_sets
from roadworthy.protocols.operating_points.metrics import ACCEPTED_OUTLIER, METRICS
from roadworthy.verdict import Criterion

HELD_OUT_OUTLIERS = "held_out_outliers"
"""The label of outliers that a threshold is fixed on: they have no figures of their own."""


@dataclass(frozen=True)
class ConditionKey:
    """A model shown the test data under one shift at one level, or undisturbed."""

    model: str
    shift: str
    level: float

    @classmethod
    def of(cls, case: KnownCase) -> ConditionKey:
        """That of a case."""
        return cls(case.system, case.stimulus.name, case.stimulus.level)

    def order(self) -> tuple[Any, ...]:
        """Models by name, undisturbed data first."""
        return self.model, self.shift != UNDISTURBED, self.shift, self.level

    def where(self) -> dict[str, Any]:
        """The columns that identify it."""
        return {**vars(self), "ood_set": "", "kind": "", "foreign": ""}

    def __str__(self) -> str:
        return f"{self.shift} {self.level}" if self.level else "undisturbed"


def is_inside(case: KnownCase) -> bool:
    """Whether a case shows the test data to a model."""
    return not case.labels


def is_outside(case: KnownCase) -> bool:
    """Whether a case shows outliers that have figures to a model."""
    return "ood_set" in case.labels


def is_held_out(case: KnownCase, shown: str = HELD_OUT) -> bool:
    """Whether a case shows a model what a threshold is fixed on: in-distribution images, or else outliers."""
    return case.labels.get(SHOWN) == shown and MONITOR not in case.labels


def asked_conditions(keys: Sequence[ConditionKey], criterion: Criterion) -> list[ConditionKey]:
    """The conditions of in-distribution images that a criterion asks for; none is an `InputError`."""
    return matching(f"criterion {criterion.id}", [*keys], ("model", "shift", "level"), criterion)


def asked(
    conditions: Sequence[ConditionKey], sets: Sequence[SetKey], gans: Sequence[GanKey], criterion: Criterion
) -> Sequence[ConditionKey | SetKey]:
    """What a criterion asks for: sets of outliers (or single GANs) by one metric, conditions by the others."""
    names = [metric.name for metric in METRICS]
    if criterion.metric not in names:
        raise InputError(f"criterion {criterion.id}: {unknown_metric(criterion.metric, names, METRICS)}")
    if criterion.metric == ACCEPTED_OUTLIER.name:
        return asked_sets(sets, gans, criterion, [ACCEPTED_OUTLIER.name])
    return asked_conditions(conditions, criterion)
