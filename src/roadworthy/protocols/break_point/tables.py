"""The tables of break points: curves over severity, and where they cross the threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.grouping import grouped
from roadworthy.core.types import UNDISTURBED
from roadworthy.engine.plan import PlannedCase, PlannedStimulus
from roadworthy.metrics import accuracy
from roadworthy.protocols import base
from roadworthy.protocols.base import KnownCase, StoredCase, matching
from roadworthy.protocols.break_point import table_specs
from roadworthy.protocols.break_point.metrics import BREAK_SEVERITY, FAILURE_PROBABILITY
from roadworthy.protocols.break_point.settings import Settings, chosen_metric
from roadworthy.protocols.pictures import gallery_rows, save_strip
from roadworthy.statistics import Estimate, mean_interval, proportion_interval
from roadworthy.statistics.crossings import Crossing, first_crossing, pointwise_confidence
from roadworthy.statistics.estimates import failed_estimate, no_estimate, standard_deviation
from roadworthy.verdict import Criterion, Measurement

Row = dict[str, Any]
Condition = tuple[str, str, float]
"""A model, a shift (or undisturbed data) and a severity."""


@dataclass(frozen=True, order=True)
class PointKey:
    """One row of the table of break points."""

    model: str
    shift: str

    @classmethod
    def of(cls, case: KnownCase) -> PointKey:
        """The row that a case belongs to."""
        return cls(case.system, case.stimulus.name)


@dataclass(frozen=True)
class _Values:
    """The metric of every image, the mean over repeats, and of every repeat; or why there is none."""

    per_image: NDArray[np.float64]
    of_repeats: Sequence[float] = ()
    reason: str = ""


class Evidence(base.Evidence):
    """What the readouts of one run say of break points. Bounds are closed forms that count objects."""

    def __init__(
        self, cases: Sequence[StoredCase], settings: Settings, class_names: Sequence[str] = (), *, workers: int = 1
    ) -> None:
        self.settings, self.metric, self.num_classes = settings, chosen_metric(settings), len(class_names)
        self.choices = {choice.name: choice for choice in settings.shifts}
        by_condition = grouped((_condition(case), case) for case in cases)
        self.keys = sorted({PointKey.of(case) for case in cases if case.stimulus.name != UNDISTURBED})
        done = [condition for condition, own in by_condition.items() if not any(case.failure for case in own)]
        self.failures = {
            condition: next(case.failure for case in own if case.failure)
            for condition, own in by_condition.items()
            if condition not in set(done)
        }
        first = by_condition[done[0]][0].load() if done else None
        self.ids: tuple[str, ...] = first.ids if first else ()
        self.objects = np.unique(np.array(first.groups if first else (), dtype=object), return_inverse=True)[1]

        def measure(condition: Condition) -> _Values:
            readouts = [case.load() for case in by_condition[condition]]
            if any(one.ids != self.ids for one in readouts):
                raise InputError(f"the readouts of {condition} are of other images than those of {done[0]}")
            answers = [one.answers for one in readouts]
            measured = [self.metric.measure(one) for one in answers]
            if missing := [one.reason or "no value" for one in measured if np.isnan(one.values).any()]:
                return _Values(np.zeros(0), reason=missing[0])
            values = [np.asarray(self.metric.per_image(one), np.float64) for one in answers]
            return _Values(np.mean(values, axis=0), [float(one.mean()) for one in values])

        self._curves: dict[tuple[PointKey, float], list[Estimate]] = {}
        with ThreadPoolExecutor(workers) as pool:
            self.values: Mapping[Condition, _Values] = dict(zip(done, pool.map(measure, done), strict=True))

    def severities(self, key: PointKey) -> list[float]:
        """The grid of a shift, from 0 on."""
        return [0, *self.choices[key.shift].grid(self.settings.step)]

    def curve(self, key: PointKey, confidence: float) -> list[Estimate]:
        """The metric at every severity of the grid, bounded so that the break point has that confidence."""
        pointwise = pointwise_confidence(confidence, self.looks(key))
        if (key, pointwise) not in self._curves:
            curve = [self._estimate(_at(key, severity), pointwise) for severity in self.severities(key)]
            self._curves[key, pointwise] = curve
        return self._curves[key, pointwise]

    def looks(self, key: PointKey) -> int:
        """How often the grid of a shift was looked at before it was as it is: twice where it is finer somewhere."""
        return 1 if self.choices[key.shift].finer is None else 2

    def point(self, key: PointKey, confidence: float) -> Crossing:
        """Where the curve crosses the threshold first."""
        curve = self.curve(key, confidence)
        return first_crossing(self.severities(key), curve, self.settings.threshold, self.settings.sign)

    def _estimate(self, condition: Condition, confidence: float) -> Estimate:
        if condition in self.failures:
            return failed_estimate(self.failures[condition])
        if condition not in self.values:
            return no_estimate("not part of this run")
        values = self.values[condition]
        if values.reason:
            return no_estimate(values.reason)
        if self.metric.proportion:
            interval = proportion_interval(values.per_image, self.objects, confidence)
        else:
            low, high = self.metric.limits(self.num_classes)
            interval = mean_interval(values.per_image.clip(low, high), self.objects, low, high, confidence)
        return replace(interval, sd=standard_deviation(values.of_repeats))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Break points, and the curves that they are read from."""
        rows = {
            table_specs.POINTS: [self._point_row(key) for key in self.keys],
            table_specs.CURVE: [row for key in self.keys for row in self._curve_rows(key)],
        }
        return {spec.name: spec.frame(part) for spec, part in rows.items()}

    def _point_row(self, key: PointKey) -> Row:
        settings, choice = self.settings, self.choices[key.shift]
        point, grid, quantity = self.point(key, settings.confidence), self.severities(key), choice.quantity
        estimate = point.severity
        where = {"model": key.model, "shift": key.shift}
        limits = {"of_metric": self.metric.name, "limit": settings.limit, "threshold": settings.threshold}
        return {
            **estimate.row(where, BREAK_SEVERITY.name),
            **limits,
            "confidence": settings.confidence,
            "severities": len(grid),
            "last": float(grid[-1]),
            table_specs.BEFORE: float(point.before),
            table_specs.AFTER: float(point.after),
            "back_at": float(point.back_at),
            "quantity": quantity.name if quantity else "",
            "unit": quantity.unit if quantity else "",
            **{f"{name}_in_unit": choice.in_unit(getattr(estimate, name)) for name in ("value", "lo", "hi")},
        }

    def _curve_rows(self, key: PointKey) -> list[Row]:
        rows = []
        for severity, cell in zip(self.severities(key), self.curve(key, self.settings.confidence), strict=True):
            where = {"model": key.model, "shift": key.shift, "severity": float(severity)}
            unit = {"in_unit": self.choices[key.shift].in_unit(severity)}
            rows.append(cell.row(where, self.metric.name) | unit)
            if self.metric is accuracy:
                failing = replace(cell, value=1 - cell.value, lo=1 - cell.hi, hi=1 - cell.lo)
                rows.append(failing.row(where, FAILURE_PROBABILITY.name) | unit)
        return rows

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """A measurement per model and shift."""
        return [
            Measurement({"model": key.model, "shift": key.shift}, self.point(key, confidence).severity)
            for key in asked_points(self.keys, criterion)
        ]

    def lost(self) -> str:
        """Why there is no break point at all."""
        reasons = [self.point(key, self.settings.confidence).severity for key in self.keys]
        return reasons[0].reason if reasons and all(one.missing for one in reasons) else ""

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """A strip of every shift just before and just after the break point of every model."""
        shown: dict[Condition, PlannedStimulus] = {}
        for planned in cases:
            if not planned.showing.stimulus.repeat:
                stimulus = planned.showing.stimulus
                shown[planned.case.system, stimulus.name, float(stimulus.level)] = planned.showing
        rows = []
        for key in self.keys:
            point = self.point(key, self.settings.confidence)
            for side, severity in ((table_specs.BEFORE, point.before), (table_specs.AFTER, point.after)):
                condition = _at(key, severity)
                if math.isfinite(severity) and condition in shown:
                    showing = shown[condition]
                    images = gallery_rows(showing.data.labels)
                    strip = save_strip(showing, media / f"break-{showing.stimulus.key}.png", images)
                    where = {"model": key.model, "shift": key.shift, "side": side, "severity": float(severity)}
                    rows.append({**where, "media": strip, "images": len(images)})
        return {table_specs.GALLERY.name: table_specs.GALLERY.frame(rows)}


def _condition(case: KnownCase) -> Condition:
    return case.system, case.stimulus.name, float(case.stimulus.level)


def _at(key: PointKey, severity: float) -> Condition:
    """A severity of a shift; 0 is undisturbed data, whatever the shift."""
    return key.model, key.shift if severity else UNDISTURBED, float(severity)


def asked_points(keys: Sequence[PointKey], criterion: Criterion) -> list[PointKey]:
    """The break points that a criterion asks for; an `InputError` where it asks for what is not measured."""
    label = f"criterion {criterion.id}"
    if criterion.metric != BREAK_SEVERITY.name:
        raise InputError(f"{label}: {UnknownName('metric', criterion.metric, [BREAK_SEVERITY.name])}")
    if criterion.over == "pooled":
        raise InputError(f"{label}: severities of different shifts cannot be pooled: ask for each or worst")
    return matching(label, sorted(set(keys)), ("model", "shift"), criterion)
