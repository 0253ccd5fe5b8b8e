"""What a study may say of break points: shifts, a metric and its threshold, how fine the severities are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, model_validator

from roadworthy.core.errors import InputError
from roadworthy.core.severity import Quantity, Rows, has_neutral, level_rows, parameters_at, plain_severity, quantity_of
from roadworthy.metrics import METRICS as REGISTERED
from roadworthy.metrics import Metric
from roadworthy.protocols.break_point.table_specs import NAME as NAME
from roadworthy.protocols.choices import NAMED, distinct
from roadworthy.protocols.shift_choices import ShiftChoice
from roadworthy.shifts import THESIS_SHIFTS, find_shift

DEFAULT_METRIC, DEFAULT_AT_LEAST = "accuracy", 0.9
DECIMALS = 6
"""Of a severity of the grid, so that sums of steps have no binary noise."""

MOST_SEVERITIES = 1_000
"""Of one shift: a curve of more points is a mistake."""

Step = Annotated[float, Field(ge=0.01, le=5)]


class Finer(BaseModel):
    """Where the grid of a shift is finer: from one severity to another, in steps of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: Annotated[float, Field(ge=0)]
    end: Annotated[float, Field(gt=0)]
    step: Step = 0.05

    @model_validator(mode="after")
    def _rises(self) -> Finer:
        if not self.start < self.end:
            raise ValueError(f"finer: start {self.start:g} must lie below end {self.end:g}")
        return self


class SearchedShift(ShiftChoice):
    """A shift by name, with a level table of its own where the built-in one does not fit.

    `finer` adds severities between two others, once a first run has shown between which the break point lies.
    """

    finer: Finer | None = None

    @property
    def rows(self) -> Rows:
        """The parameters at each level."""
        rows = level_rows(find_shift(self.name), self._table())
        if not rows:
            raise InputError(f"{NAME}: shift {self.name} has no levels: give it a table under `levels`")
        return rows

    @property
    def quantity(self) -> Quantity | None:
        """What its severity comes to in a unit that is known outside."""
        return quantity_of(find_shift(self.name), self.rows)

    def in_unit(self, severity: float) -> float:
        """The quantity at a severity; NaN where there is none, or where no severity there is defined."""
        quantity = self.quantity
        if quantity is None or not math.isfinite(severity):
            return math.nan
        try:
            return float(parameters_at(find_shift(self.name), severity, self.rows)[quantity.parameter])
        except InputError:
            return math.nan

    def grid(self, step: float) -> list[float]:
        """The severities it is shown at: every step up to its last level, every level, and the finer ones.

        >>> SearchedShift(name="fog_veil").grid(0.5)
        [0.5, 1, 1.5, 2]
        >>> SearchedShift(name="fog_veil", finer=Finer(start=1, end=1.5, step=0.25)).grid(1)
        [1, 1.25, 1.5, 2]
        """
        rows = self.rows
        last, lowest = max(rows), 0.0 if has_neutral(find_shift(self.name), rows) else float(min(rows))
        if last / step > MOST_SEVERITIES:
            raise InputError(
                f"{NAME}: shift {self.name} has levels up to {last}, in steps of {step:g} more than "
                f"{MOST_SEVERITIES:,} severities: use a larger `step`"
            )
        severities = {*_steps(0, last, step), *map(float, rows)}
        if self.finer is not None:
            if self.finer.end > last:
                raise InputError(
                    f"{NAME}: shift {self.name} is to be finer up to {self.finer.end:g}, but its last level is {last}"
                )
            if self.finer.start < lowest:
                raise InputError(
                    f"{NAME}: shift {self.name} is to be finer from {self.finer.start:g}, but it starts at severity "
                    f"{lowest:g}"
                )
            added = {*_steps(self.finer.start, self.finer.end, self.finer.step), self.finer.end} - severities
            if not added:
                raise InputError(
                    f"{NAME}: the finer grid of shift {self.name} adds no severity: use a smaller `step` under finer"
                )
            severities |= added
        return [plain_severity(severity) for severity in sorted(severities) if severity >= lowest and severity > 0]


def _steps(start: float, end: float, step: float) -> list[float]:
    """Every step from one severity to another."""
    count = math.floor((end - start) / step + 1e-9)
    return [round(start + index * step, DECIMALS) for index in range(count + 1)]


def _stored(choices: Sequence[SearchedShift]) -> list[Any]:
    """A shift that says nothing else is stored as its bare name."""
    dumped = [choice.model_dump(mode="json", exclude_none=True) for choice in choices]
    return [one["name"] if len(one) == 1 else one for one in dumped]


class Settings(BaseModel):
    """What the study file may say under `protocols: break_point:`.

    shifts      which, each from undisturbed to its last level (`SearchedShift`)
    metric      a mean of a bounded value per image: accuracy, brier, ...
    at_least    the threshold that it must meet, or `at_most`; where neither is given, accuracy at least 0.9
    step        between two severities of the grid;  confidence: of the break point's bounds
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shifts: Annotated[
        list[SearchedShift], Field(min_length=1), NAMED, distinct("a shift"), PlainSerializer(_stored)
    ] = [SearchedShift(name=name) for name in THESIS_SHIFTS]
    metric: str = DEFAULT_METRIC
    at_least: float | None = None
    at_most: float | None = None
    step: Step = 0.25
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    repeats: Annotated[int, Field(ge=1)] = 1

    @property
    def threshold(self) -> float:
        """What the metric must meet."""
        given = [limit for limit in (self.at_least, self.at_most) if limit is not None]
        if len(given) == 2:
            raise InputError(f"{NAME}: give `at_least` or `at_most`, not both")
        if not given and self.metric != DEFAULT_METRIC:
            raise InputError(f"{NAME}: {self.metric} needs the threshold it must meet: give `at_least` or `at_most`")
        return given[0] if given else DEFAULT_AT_LEAST

    @property
    def sign(self) -> int:
        """1 where the metric must be at least the threshold, -1 where at most."""
        return -1 if self.at_most is not None else 1

    @property
    def limit(self) -> str:
        """The same in words."""
        return "at least" if self.sign > 0 else "at most"


def chosen_metric(settings: Settings) -> Metric:
    """The metric whose curve is measured; an `InputError` where it cannot be, or its threshold is on the wrong side."""
    metric = REGISTERED.get(settings.metric)
    if not (metric.is_of_answers and metric.mean_over_objects):
        raise InputError(
            f"{NAME}: {metric.name} is no mean of a bounded value per image, as a break point needs: use accuracy or "
            "brier, for example"
        )
    threshold, better = settings.threshold, metric.higher_is_better
    if better is not None and better != (settings.sign > 0):
        raise InputError(
            f"{NAME}: {'more' if better else 'less'} {metric.name} is better: give `at_{'least' if better else 'most'}`"
        )
    low, high = metric.limits(num_classes=2)
    if not isinstance(metric.range, tuple):
        high = math.inf
    if not low <= threshold <= high:
        raise InputError(f"{NAME}: {metric.name} lies between {low:g} and {high:g}: it has no threshold {threshold:g}")
    return metric
