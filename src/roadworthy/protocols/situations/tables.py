"""The tables of expected situations: what stored answers say in each, over all, and of every requirement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.grouping import grouped
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import PlannedCase
from roadworthy.metrics import Metric, find_metric
from roadworthy.metrics.base import EXPECTED
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared
from roadworthy.protocols.changes import OTHER_IMAGES, by_flips, flip_p, not_paired
from roadworthy.protocols.situations import table_specs
from roadworthy.protocols.situations.criteria import RowKey, select
from roadworthy.protocols.situations.expected import Context, Situation
from roadworthy.protocols.situations.metrics import SHARE_MET
from roadworthy.protocols.situations.requirements import Requirement
from roadworthy.protocols.situations.table_specs import NAME
from roadworthy.statistics import Estimate, further_groups, mean_interval, proportion_interval
from roadworthy.statistics.estimates import CONFIDENCE, failed_estimate, no_estimate
from roadworthy.statistics.expectation import (
    UNDECIDED,
    ShareMet,
    SituationSample,
    expected_value,
    share_met,
    situation_confidence,
)
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Criterion, Measurement

ALL_SITUATIONS = "expected situations"
"""What a comparison calls the condition of an expectation."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ShownSituation:
    """What one model answered in one situation: its images, their objects, and every metric image by image.

    failure   why there is nothing;  missing: why a metric has no value, by its name
    """

    ids: tuple[str, ...] = ()
    objects: NDArray[np.object_] = field(default_factory=lambda: np.zeros(0, object))
    values: Mapping[str, Floats] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""

    def no_value(self, metric: str) -> Estimate | None:
        """Why there is no value; None where there is one."""
        if self.failure:
            return failed_estimate(self.failure)
        return no_estimate(self.missing[metric]) if metric in self.missing else None


def load_shown(case: base.StoredCase, situation: Situation, metrics: Sequence[Metric]) -> ShownSituation:
    """Read the answers of a case.

    An image that is no group's but its own is an object of its own, whatever an image of another set is called.
    """
    if case.failure:
        return ShownSituation(failure=case.failure)
    readouts = case.load()
    answers = readouts.answers
    measured = {metric.name: metric.measure(answers) for metric in metrics}
    pairs = zip(readouts.ids, readouts.groups, strict=True)
    sizes = Counter(readouts.groups)
    single = [group == name and sizes[group] == 1 for name, group in pairs]
    objects = [
        f"{situation.set}\0{group}" if alone else group for group, alone in zip(readouts.groups, single, strict=True)
    ]
    return ShownSituation(
        ids=readouts.ids,
        objects=np.array(objects, dtype=object),
        values={metric.name: metric.per_image(answers) for metric in metrics if not measured[metric.name].reason},
        missing={name: result.reason for name, result in measured.items() if result.reason},
    )


class Evidence(base.Evidence):
    """What the readouts of one run say of expected situations."""

    def __init__(
        self,
        cases: Sequence[base.StoredCase],
        class_names: Sequence[str],
        context: Context,
        metrics: Sequence[Metric],
        *,
        workers: int = 1,
    ) -> None:
        self.context, self.metrics, self.num_classes = context, tuple(metrics), len(class_names)
        self.situations = {situation.name: situation for situation in context.situations}
        by_key = {(case.system, case.labels["situation"]): case for case in cases}
        self.models = sorted({model for model, _ in by_key})

        def load(key: tuple[str, str]) -> ShownSituation:
            return load_shown(by_key[key], self.situations[key[1]], self.metrics)

        with ThreadPoolExecutor(workers) as pool:
            self.shown = dict(zip(by_key, pool.map(load, by_key), strict=True))

    def estimate(self, model: str, situation: str, metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """A metric in one situation, bounded by objects."""
        shown = self.shown[model, situation]
        if nothing := shown.no_value(metric.name):
            return nothing
        if metric.proportion:
            return proportion_interval(shown.values[metric.name], shown.objects, confidence)
        return mean_interval(
            shown.values[metric.name], shown.objects, *metric.limits(self.num_classes), confidence=confidence
        )

    def expected(self, model: str, metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """A metric over all situations, by how often they occur; it has no value where one of them has none."""
        for name in self.situations:
            if nothing := self.shown[model, name].no_value(metric.name):
                return replace(nothing, reason=f"{name}: {nothing.reason}")
        low, high = metric.limits(self.num_classes)
        samples, counts = self.samples(model, metric), self.context.counts
        return expected_value(samples, low, high, proportion=metric.proportion, counts=counts, confidence=confidence)

    def samples(self, model: str, metric: Metric) -> list[SituationSample]:
        """The situations by the images that they were shown on, in the order of the situations."""
        samples = []
        for name, own in grouped((situation.set, situation) for situation in self.situations.values()).items():
            shown = [self.shown[model, situation.name] for situation in own]
            if any(one.ids != shown[0].ids for one in shown):
                raise InputError(f"the readouts of situations on {name} are of different images")
            shares = np.array([situation.share for situation in own])
            samples.append(SituationSample(shares, np.stack([s.values[metric.name] for s in shown]), shown[0].objects))
        return samples

    def met(
        self, model: str, requirement: Requirement, confidence: float = CONFIDENCE
    ) -> tuple[ShareMet, list[Estimate]]:
        """The share of situations that meet a requirement, and each one's estimate with bounds that hold together."""
        counts = self.context.counts
        within = situation_confidence(confidence, len(self.situations), counted=counts is not None)
        metric = find_metric(requirement.metric, self.metrics)
        estimates = [self.estimate(model, name, metric, within) for name in self.situations]
        shares = [situation.share for situation in self.situations.values()]
        result = share_met(
            shares, estimates, requirement.threshold, requirement.sign, counts=counts, confidence=confidence
        )
        lost = [f"{name}: {e.reason}" for name, e in zip(self.situations, estimates, strict=True) if e.missing]
        reason = f"{lost[0]}; it counts as undecided" if lost else ""
        share = replace(result.share, n=sum(self._images(model).values()), groups=self._objects(model), reason=reason)
        return replace(result, share=share), estimates

    def _images(self, model: str) -> dict[str, int]:
        """How many images each set has."""
        return {own.set: len(self.shown[model, name].ids) for name, own in self.situations.items()}

    def _objects(self, model: str) -> int:
        """How many objects all sets show."""
        return len({group for name in self.situations for group in self.shown[model, name].objects.tolist()})

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol, from stored readouts alone."""
        rows = {table_specs.BY_SITUATION: self._situation_rows(), table_specs.EXPECTED: self._expected_rows()}
        if self.context.requirements:
            rows |= {table_specs.MET: self._met_rows(), table_specs.REQUIREMENTS: self._requirement_rows()}
        return {spec.name: spec.frame(part) for spec, part in rows.items()}

    def _situation_rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for name, own in self.situations.items():
                where = {"model": model, "situation": name, "shift": own.shift, "level": own.level, "set": own.set}
                for metric in self.metrics:
                    estimate = self.estimate(model, name, metric)
                    cost = own.share * self._distance(metric, estimate.value)
                    yield estimate.row(where | {"frequency": own.share}, metric.name) | {"cost": cost}

    def _distance(self, metric: Metric, value: float) -> float:
        """How far a value is from the best one; NaN where neither more nor less is better."""
        low, high = metric.limits(self.num_classes)
        if metric.higher_is_better is None:
            return math.nan
        return high - value if metric.higher_is_better else value - low

    def _expected_rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for metric in self.metrics:
                where = {"model": model, "situations": len(self.situations)}
                yield self.expected(model, metric).row(where, metric.expected().name)

    def _met_rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for requirement in self.context.requirements:
                result, _ = self.met(model, requirement)
                row = result.share.row({"model": model, "requirement": requirement.name}, SHARE_MET.name)
                yield row | {"missed": result.missed, "undecided": result.undecided}

    def _requirement_rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for requirement in self.context.requirements:
                result, estimates = self.met(model, requirement)
                for own, estimate, status in zip(self.situations.values(), estimates, result.statuses, strict=True):
                    where = {"model": model, "requirement": requirement.name, "situation": own.name}
                    numbers = {name: getattr(estimate, name) for name in ("value", "lo", "hi", "n", "groups", "reason")}
                    known = {"frequency": own.share, "measured": requirement.metric, "status": status}
                    yield where | known | numbers

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion: a measurement per model, situation or requirement."""
        return [self._measurement(key, criterion, confidence) for key in select(self.models, self.context, criterion)]

    def _measurement(self, key: RowKey, criterion: Criterion, confidence: float) -> Measurement:
        if key.requirement:
            requirement = next(own for own in self.context.requirements if own.name == key.requirement)
            result, estimates = self.met(key.model, requirement, confidence)
            further = self._further(result, estimates, requirement, criterion)
            return Measurement(key.where(), result.share, further=further)
        metric = find_metric(criterion.metric.removeprefix(EXPECTED), self.metrics)
        if not key.situation:
            return Measurement(key.where(), self.expected(key.model, metric, confidence))
        estimate = self.estimate(key.model, key.situation, metric, confidence)
        return Measurement(key.where(), estimate, proportion=metric.proportion)

    def _further(
        self, result: ShareMet, estimates: Sequence[Estimate], requirement: Requirement, criterion: Criterion
    ) -> float:
        """How many more objects would settle a share: so many that enough undecided situations are decided.

        Infinite where frequencies are counted: more of these are needed, too.
        """
        confidence = situation_confidence(criterion.confidence, len(estimates))
        metric = find_metric(requirement.metric, self.metrics)
        towards_pass = criterion.sign * (result.share.value - criterion.threshold) > 0
        rises = towards_pass == (criterion.sign > 0)
        bound = result.share.lo if rises else result.share.hi
        needs: list[tuple[float, float]] = []
        for situation, own, status in zip(self.situations.values(), estimates, result.statuses, strict=True):
            meets = requirement.sign * (own.value - requirement.threshold) >= 0
            if status == UNDECIDED and not own.unbounded and meets == rises:
                numbers = own.value, requirement.threshold, own.groups, own.lo, own.hi
                more = further_groups(*numbers, confidence=confidence, proportion=metric.proportion)
                needs.append((math.inf if more is None else more, situation.share))
        for needed, share in sorted(needs) if self.context.counts is None else ():
            bound += share if rises else -share
            reached = criterion.sign * (bound - criterion.threshold)
            if reached >= 0 if towards_pass else reached < 0:
                return needed
        return math.inf

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """None: classification shows the shifts, and recorded sets are the user's own."""
        return {}

    def lost(self) -> str:
        """Why no situation has a value; empty where one has."""
        reasons = [shown.failure for shown in self.shown.values()]
        return reasons[0] if reasons and all(reasons) else ""

    def compare(self, other: Self, before: Compared, after: Compared, metrics: Sequence[str]) -> Iterator[PairedChange]:
        """The expectation by each of the metrics; both must have been shown the same situations on the same images."""
        obstacle = self._obstacle(other, before, after)
        for name in metrics:
            change = after.change(ALL_SITUATIONS, 0, name, {}, obstacle)
            metric = find_metric(name.removeprefix(EXPECTED), self.metrics)
            yield change if obstacle else self._changed(other, before.model, after.model, metric, change)

    def _obstacle(self, other: Self, before: Compared, after: Compared) -> str:
        if self.context.situations != other.context.situations:
            return "other situations or frequencies"
        shown = [
            {case.labels["situation"]: _as_shown(case.stimulus) for case in system.shown(NAME)}
            for system in (before, after)
        ]
        for name in self.situations:
            one, two = self.shown[before.model, name], other.shown[after.model, name]
            if why := one.failure or two.failure or not_paired((before, after), shown, name):
                return why
            if one.ids != two.ids or one.objects.tolist() != two.objects.tolist():
                return OTHER_IMAGES
        return ""

    def _changed(self, other: Self, before: str, after: str, metric: Metric, change: PairedChange) -> PairedChange:
        """The change with its interval, and p by the weighted differences of whole objects: see `by_flips`."""
        expectations = self.expected(before, metric), other.expected(after, metric)
        if missing := [one.reason for one in expectations if one.missing]:
            return replace(change, reason=missing[0])
        pairs = zip(self.samples(before, metric), other.samples(after, metric), strict=True)
        differences = [replace(two, values=two.values - one.values) for one, two in pairs]
        low, high = metric.limits(self.num_classes)

        def bounded(confidence: float) -> Estimate:
            return expected_value(differences, low - high, high - low, confidence=confidence)

        interval = bounded(change.confidence)
        objects = np.concatenate([sample.groups for sample in differences])
        weighted = [sample.per_image() * sample.share / len(sample.groups) for sample in differences]
        index = np.unique(objects, return_inverse=True)[1]
        p = flip_p(np.bincount(index, np.concatenate(weighted)))
        change = replace(change, before=expectations[0].value, after=expectations[1].value, change=interval.value)
        change = replace(change, lo=interval.lo, hi=interval.hi, n=interval.n, groups=interval.groups)
        return by_flips(change, p, bounded)


def _as_shown(stimulus: Stimulus) -> str:
    """What was shown: the data, the parameters of the shift and its code."""
    return f"{stimulus.data} {sorted(stimulus.parameters.items())} {stimulus.code}"
