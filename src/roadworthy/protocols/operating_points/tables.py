"""The tables of operating points: what stored scores and answers say at a threshold fixed on held-out images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pandas as pd

from roadworthy.core.errors import InputError
from roadworthy.core.grouping import grouped
from roadworthy.core.types import UNDISTURBED
from roadworthy.engine.plan import PlannedCase
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Metric, find_metric
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared, StoredCase
from roadworthy.protocols.changes import OTHER_IMAGES, not_paired
from roadworthy.protocols.in_service import Watchable, measured_bound
from roadworthy.protocols.monitor_scores import with_scores
from roadworthy.protocols.ood import gan_bounds
from roadworthy.protocols.ood.gan_bounds import GanKey
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.protocols.ood.table_specs import GAN
from roadworthy.protocols.ood.tables import gan_keys
from roadworthy.protocols.operating_points import changes, table_specs
from roadworthy.protocols.operating_points.curve import curve_rows
from roadworthy.protocols.operating_points.keys import ConditionKey, asked, is_inside, is_outside
from roadworthy.protocols.operating_points.metrics import (
    ACCEPTED,
    ACCEPTED_OUTLIER,
    INSIDE_METRICS,
    METRICS,
    REJECTED,
)
from roadworthy.protocols.operating_points.rates import inside_estimate, outside_estimate
from roadworthy.protocols.operating_points.reading import ModelScores, read_model
from roadworthy.protocols.operating_points.settings import Context, Settings
from roadworthy.protocols.operating_points.thresholds import Decided, as_probability
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import CONFIDENCE, failed_estimate, no_estimate
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Criterion, Measurement

OBJECTS = "objects"


class Evidence(base.Evidence):
    """What the readouts of one source say at the threshold of each model. Nothing is resampled.

    models      what each has, by name;  conditions, sets: all that have figures or lack them, in the order of the table
    """

    def __init__(self, cases: Sequence[StoredCase], settings: Settings, context: Context, *, workers: int = 1) -> None:
        self.settings, self.context, self.cases = settings, context, with_scores(cases)
        with ThreadPoolExecutor(workers) as pool:
            readouts = [*pool.map(_load, self.cases)]
        answered = grouped((case.system, (case, own)) for case, own in zip(self.cases, readouts, strict=True))
        self.models: dict[str, ModelScores] = {
            model: read_model(own, settings, context) for model, own in sorted(answered.items())
        }
        self.conditions = sorted({ConditionKey.of(c) for c in self.cases if is_inside(c)}, key=ConditionKey.order)
        self.sets = sorted({SetKey.of(case) for case in self.cases if is_outside(case)}, key=SetKey.order)
        self.gan_keys = gan_keys([case for case in self.cases if is_outside(case)])

    def estimate(self, keys: Sequence[ConditionKey], metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """A rate of in-distribution images over conditions, each model at its own threshold, bounded by objects."""
        for key in keys:
            if lost := self._lost(key):
                return lost
        first = self.models[keys[0].model]
        if any(self.models[key.model].ids != first.ids for key in keys):
            raise InputError("models were shown other test images: their figures cannot be pooled")
        return inside_estimate([self.inside(key) for key in keys], first.objects, metric, confidence)

    def inside(self, key: ConditionKey) -> list[Decided]:
        """The test images of a condition at the threshold of its model, repeat by repeat."""
        model = self.models[key.model]
        return [shown.decided(model.fixed.threshold) for shown in model.inside[key]]

    def outside(self, key: SetKey) -> list[tuple[int | None, Decided]]:
        """The outliers of a set at the threshold of its model, repeat by repeat, with the GAN that drew them."""
        model = self.models[key.model]
        return [(one.gan, one.shown.decided(model.fixed.threshold)) for one in model.outside[key]]

    def _lost(self, key: ConditionKey | SetKey) -> Estimate | None:
        """The estimate without a value of what failed, or of a model without a threshold."""
        model = self.models[key.model]
        if key in model.failures:
            return failed_estimate(model.failures[key])
        return no_estimate(model.fixed.reason) if math.isnan(model.fixed.threshold) else None

    def set_estimate(self, key: SetKey, confidence: float = CONFIDENCE) -> Estimate:
        """The share of accepted outliers of a set, bounded by their objects; of what GANs draw, by GANs."""
        if lost := self._lost(key):
            return lost
        images = outside_estimate([decided for _, decided in self.outside(key)], confidence)
        if key.kind == GAN:
            images = gan_bounds.over_gans(images, [*self._by_gan(key).values()], confidence)
        left_out = self.models[key.model].left_out.get(key, "")
        return replace(images, reason="; ".join(filter(None, [left_out, images.reason])))

    def gan_estimate(self, key: GanKey, confidence: float = CONFIDENCE) -> Estimate:
        """The share of accepted images of a single GAN, bounded by its images."""
        if lost := self._lost(key.of_set()):
            return lost
        drawn = [decided for gan, decided in self.outside(key.of_set()) if gan == key.gan]
        return outside_estimate(drawn, confidence) if drawn else failed_estimate("the GAN was left out")

    def _by_gan(self, key: SetKey) -> dict[int, tuple[float, ...]]:
        """The share of accepted images of every GAN of a configuration, repeat by repeat."""
        drawn = [(gan, float(decided.accepted.mean())) for gan, decided in self.outside(key) if gan is not None]
        return grouped(drawn)

    def tables(self) -> dict[str, pd.DataFrame]:
        """A row per model, condition or set, and rate; the thresholds; the curves to choose them by."""
        rates: list[tuple[ConditionKey | SetKey, dict[str, Any]]] = [
            (key, self.estimate([key], metric).row(key.where(), metric.name) | {"unit": OBJECTS})
            for key in self.conditions
            for metric in INSIDE_METRICS
        ]
        rates += [
            (key, self.set_estimate(key).row(key.where(), ACCEPTED_OUTLIER.name) | {"unit": _unit(key)})
            for key in self.sets
        ]
        rows = {
            table_specs.RATES: [row for _, row in sorted(rates, key=lambda pair: _row_order(pair[0]))],
            table_specs.THRESHOLDS: [self._threshold_row(model) for model in self.models],
            table_specs.CURVE: [row for model, own in self.models.items() for row in curve_rows(model, own)],
        }
        return {spec.name: spec.frame(own) for spec, own in rows.items()}

    def _threshold_row(self, model: str) -> dict[str, Any]:
        own = self.models[model]
        return {
            "model": model,
            "score": own.score,
            "rule": self.settings.rule,
            "held_out": self.context.held_out,
            "probability": as_probability(own.score, own.fixed.threshold),
        } | vars(own.fixed)

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """A measurement per condition or set, or one for all conditions where `over` is pooled."""
        keys = asked(self.conditions, self.sets, self.gan_keys, criterion)
        if rejecting := [key.model for key in keys if criterion.metric in ACCEPTED and self._rejects_all(key.model)]:
            reason = f"{rejecting[0]} rejects every undisturbed image at its threshold: nothing is accepted"
            return [Measurement({"model": rejecting[0]}, no_estimate(reason))]
        conditions = [key for key in keys if isinstance(key, ConditionKey)]
        if conditions:
            selections = [conditions] if criterion.over == "pooled" else [[key] for key in conditions]
            return [self._inside_measurement(own, criterion, confidence) for own in selections]
        return [self._set_measurement(key, criterion, confidence) for key in keys if isinstance(key, SetKey)]

    def _rejects_all(self, model: str) -> bool:
        """Whether a model accepts nothing, so that it cannot fail: every undisturbed test image is rejected."""
        clean = ConditionKey(model, UNDISTURBED, 0)
        known = clean in self.models[model].inside and not self._lost(clean)
        return known and not any(decided.accepted.any() for decided in self.inside(clean))

    def _inside_measurement(self, keys: list[ConditionKey], criterion: Criterion, confidence: float) -> Measurement:
        estimate = self.estimate(keys, find_metric(criterion.metric, METRICS), confidence)
        where = {**vars(keys[0])} if len(keys) == 1 else {"conditions": f"{len(keys)} pooled"}
        return Measurement(where, estimate, proportion=True)

    def _set_measurement(self, key: SetKey, criterion: Criterion, confidence: float) -> Measurement:
        if isinstance(key, GanKey):
            return gan_bounds.gan_measurement(key, self.gan_estimate(key, confidence))
        estimate = self.set_estimate(key, confidence)
        measured = Measurement({"model": key.model, "ood_set": key.ood_set}, estimate, proportion=True)
        if key.kind != GAN:
            return measured
        measured = replace(measured, proportion=False, unit=gan_bounds.GANS)
        if estimate.unbounded:
            return measured
        images = outside_estimate([decided for _, decided in self.outside(key)], confidence)
        further = gan_bounds.further_gans(images, [*self._by_gan(key).values()], criterion.threshold, confidence)
        return replace(measured, further=further)

    def lost(self) -> str:
        """Why no model has a threshold; empty where one has."""
        reasons = [own.fixed.reason for own in self.models.values() if math.isnan(own.fixed.threshold)]
        return reasons[0] if reasons and len(reasons) == len(self.models) else ""

    def in_service(self) -> list[Watchable]:
        """The share of undisturbed images that each model rejects at its threshold."""
        return [self._rejection(model) for model in self.models]

    def _rejection(self, model: str) -> Watchable:
        own, clean = self.models[model], ConditionKey(model, UNDISTURBED, 0)
        share = Watchable(
            REJECTED.name,
            {"model": model},
            adds=f"1 where the {own.score} lies below {own.fixed.threshold!r}, else 0",
            images="every image that the model is shown, one of each object",
            measured=self.estimate([clean], REJECTED) if clean in self.conditions else no_estimate("not shown"),
        )
        return measured_bound(share, "at_most")

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """None: what is shown is shown by the pages of other protocols."""
        return {}

    def compare(self, other: Self, before: Compared, after: Compared, metrics: Sequence[str]) -> Iterator[PairedChange]:
        """Every condition and set by each of the metrics that it has, each model at its own threshold."""
        for metric in (find_metric(name, METRICS) for name in metrics):
            sides = [_named_keys(own, system) for own, system in ((self, before), (other, after))]
            wanted = SetKey if metric is ACCEPTED_OUTLIER else ConditionKey
            names = [name for side in sides for name, key in side.items() if isinstance(key, wanted)]
            shown = [own.shown_as(system.model) for own, system in ((self, before), (other, after))]
            for name in dict.fromkeys(names):
                inside = wanted is ConditionKey
                where = {"shift": name[0], "level": name[1]} if inside else {"ood_set": name[0]}
                change = after.change(*name, metric.name, where, not_paired((before, after), shown, name))
                if change.reason:
                    yield change
                    continue
                yield self._changed(change, metric, sides[0][name], other, sides[1][name])

    def shown_as(self, model: str) -> dict[tuple[str, float], str]:
        """What two models must have been shown alike, by condition or set and level: data, parameters and code."""
        shown: dict[tuple[str, float], list[str]] = {}
        for case in self.cases:
            if case.system == model and (is_inside(case) or is_outside(case)):
                stimulus = case.stimulus
                name = case.labels.get("ood_set", stimulus.name), stimulus.level
                parts = [stimulus.data, sorted(stimulus.parameters.items()), stimulus.code]
                shown.setdefault(name, []).append(" ".join(map(str, [*parts, case.labels.get("artifact", "")])))
        return {name: "; ".join(sorted(set(own))) for name, own in shown.items()}

    def _changed(
        self, change: PairedChange, metric: Metric, key: ConditionKey | SetKey, other: Self, other_key: Any
    ) -> PairedChange:
        lost = self._lost(key) or other._lost(other_key)
        if lost:
            return replace(change, reason=lost.reason)
        if isinstance(key, ConditionKey):
            if self.models[key.model].ids != other.models[other_key.model].ids:
                return replace(change, reason=OTHER_IMAGES)
            return changes.inside_change(change, metric, self.inside(key), other.inside(other_key))
        sides = self.outside(key), other.outside(other_key)
        if key.kind != GAN:
            return changes.outside_change(change, *([decided for _, decided in own] for own in sides))
        by_gan = [grouped(own) for own in sides]
        if set(by_gan[0]) != set(by_gan[1]):
            return replace(change, reason="a GAN failed for one of the two alone")
        return changes.gan_change(change, *([own[gan] for gan in by_gan[0]] for own in by_gan))


def _load(case: StoredCase) -> Readouts | None:
    return None if case.failure else case.load()


def _unit(key: SetKey) -> str:
    return gan_bounds.GANS if key.kind == GAN else OBJECTS


def _row_order(key: ConditionKey | SetKey) -> tuple[Any, ...]:
    """Undisturbed data, then plain sets, then each shift at each level: the test data, and outliers under the same."""
    kind = key.order()[1:] if isinstance(key, SetKey) else ()
    return key.model, key.shift != UNDISTURBED, key.shift, key.level, isinstance(key, SetKey), kind


def _named_keys(evidence: Evidence, system: Compared) -> dict[tuple[str, float], ConditionKey | SetKey]:
    """The conditions and sets of one model, by name and level."""
    conditions = {(key.shift, key.level): key for key in evidence.conditions if key.model == system.model}
    sets = {(key.ood_set, key.level): key for key in evidence.sets if key.model == system.model}
    return {**conditions, **sets}
