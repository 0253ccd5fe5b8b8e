"""Cases that are judged while answers come in: what is bounded by how many of their images, and what decided when.

Images come group after group in a random order, the same for all models. A case that criteria were watching shows
bounds that hold however often one looks (`statistics.anytime`) wherever it has bounds, whether it stopped or not. What
is read from several cases is read from the images that all of them were shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from roadworthy.metrics import Answers, Metric
from roadworthy.protocols.condition_columns import Breakdown
from roadworthy.statistics import Estimate
from roadworthy.statistics.anytime import (
    METHOD,
    GroupBets,
    anytime_interval,
    bounded_mean,
    can_decide,
    group_bets,
)
from roadworthy.statistics.estimates import CONFIDENCE, no_estimate
from roadworthy.statistics.paired import PairedChange
from roadworthy.statistics.summaries import MetricSummary, Objects
from roadworthy.verdict import Criterion, Measurement
from roadworthy.verdict.answers import Status
from roadworthy.verdict.judge import judge_measurement

if TYPE_CHECKING:
    from roadworthy.protocols.classification.tables import CellKey, Evidence

Floats = NDArray[np.float64]
MOST_LOOKS = 16
"""How many looks at a case are kept for the picture of them."""
PICTURE_TOLERANCE = 1e-5
NO_BOUND = "stopped early: no bound"
NOT_SLICED = "judged while answers came in: not broken down by conditions"


class Watched(BaseModel):
    """A criterion that is judged while answers come in; `conditions` are how many it takes the worst of, or 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    criterion: Criterion
    conditions: int = 1

    @property
    def strict(self) -> float:
        """The confidence at which one condition by itself fails the criterion: corrected for how many there are."""
        return 1 - (1 - self.criterion.confidence) / self.conditions


class Looks(BaseModel):
    """What was fixed before the first answer of a study that runs until it is decided.

    images         how many there are;  largest_group: the most images of one object;  part_images: between two looks
    criteria       those that are judged while answers come in, by their id
    watched        by the hash of a case, the ids of the criteria that speak of it
    in_full        by `criterion_key`, why a criterion needs its cases in full
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    images: int
    largest_group: int
    part_images: int
    criteria: dict[str, Watched] = {}
    watched: dict[str, list[str]] = {}
    in_full: dict[str, str] = {}

    def counted(self, groups: Sequence[Any] | NDArray[Any]) -> int:
        """How many of the first images count, given the group of each: those of groups that are known to be complete.

        >>> looks = Looks(images=9, largest_group=3, part_images=4)
        >>> looks.counted(["a", "b", "b"]), looks.counted(["a", "b", "b", "b"]), looks.counted(list("abbbccdde"))
        (1, 4, 9)
        """
        shown = len(groups)
        if shown >= self.images or self.largest_group == 1 or not shown:
            return shown
        last = int(np.argmin(np.append(np.asarray(groups)[::-1] == groups[-1], False)))
        return shown if last == self.largest_group else shown - last


def criterion_key(criterion: Criterion) -> str:
    """What tells a criterion from another one of the same id."""
    return f"{criterion.id}: {criterion.sentence()}"


class Context(Breakdown):
    """What the tables of classification need besides readouts: the conditions of the data that they are broken down by.

    looks   where cases are judged as answers come in
    """

    looks: Looks | None = None


@dataclass(frozen=True)
class BoundedMetric:
    """A metric as it is bounded: it is `factor` times `whole`, a mean over images whose values lie in `limits`."""

    whole: Metric
    factor: float
    limits: tuple[float, float]

    @classmethod
    def of(cls, metric: Metric, metrics: Sequence[Metric], num_classes: int) -> BoundedMetric:
        """How a metric is bounded where these metrics are measured: by itself, unless it is a multiple of another."""
        whole, factor = metric, 1.0
        if metric.multiple_of in metrics and metric.multiple_of and metric.factor:
            whole, factor = metric.multiple_of, metric.factor(num_classes)
        return cls(whole, factor, whole.limits(num_classes))

    def per_image(self, answers: Answers) -> NDArray[np.float32]:
        """The values (n,) whose mean is `whole`, as precise as they are kept."""
        return np.asarray(self.whole.per_image(answers), np.float32)

    def bets(self, values: NDArray[Any], groups: NDArray[Any] | Sequence[str], looks: Looks) -> GroupBets:
        """The bets on the values (n,) of the first images, of which those of complete groups count."""
        counted = looks.counted(groups)
        cut = np.asarray(values[:counted], np.float64).clip(*self.limits)
        return group_bets(cut, np.asarray(groups)[:counted], looks.largest_group, *self.limits)

    def decide(self, watched: Watched, bets: GroupBets) -> Status:
        """What the bounds that hold at any time say of a criterion after these groups."""
        low, high = self.limits
        criterion, room = watched.criterion, high - low
        threshold = (criterion.threshold / self.factor - low) / room
        if not len(bets.sizes) or not can_decide(bets, threshold, criterion.confidence):
            return "inconclusive"
        decisions: tuple[tuple[float, Status], ...] = ((criterion.confidence, "pass"), (watched.strict, "fail"))
        for confidence, status in decisions:
            estimate = bounded_mean(bets, low, high, confidence).scaled(self.factor)
            if judge_measurement(criterion, Measurement({}, estimate)).status == status:
                return status
        return "inconclusive"


@dataclass(frozen=True)
class GrowingObjects(Objects):
    """The objects of cases of which the first `shown` images are common to all, some or all of them watched."""

    looks: Looks
    shown: int

    @property
    def counted(self) -> int:
        """How many images count: those of complete groups."""
        return self.looks.counted(self.index[: self.shown])

    @property
    def groups(self) -> int:
        """How many objects the images show that count."""
        return len(np.unique(self.index[: self.counted]))

    @property
    def stopped(self) -> bool:
        """Whether some images were not shown."""
        return self.shown < self.looks.images

    def estimate(self, cells: Sequence[MetricSummary], metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """The mean of a metric over cells, with bounds that hold at any time; one that is no mean has none.

        Where no case stopped, the latter is bounded as ever: that many images were planned from the start.
        """
        name = metric.name
        if not metric.mean_over_objects:
            if not self.stopped:
                return super().estimate(cells, metric, confidence)
            return Estimate(cells[0].mean(name), reason=NO_BOUND) if len(cells) == 1 else self._no_average()
        if missing := [cell.missing[name] for cell in cells if name in cell.missing]:
            return no_estimate(missing[0])
        return self._bounded(self._mean(cells, name), metric.limits(self.num_classes), confidence, len(cells))

    def drop(
        self,
        cells: Sequence[MetricSummary],
        baseline: Sequence[MetricSummary],
        metric: Metric,
        confidence: float = CONFIDENCE,
    ) -> Estimate:
        """How much worse a metric is than at the baseline on the same images: positive is worse."""
        name, worse = metric.name, -1.0 if metric.higher_is_better else 1.0
        if not metric.mean_over_objects:
            return self._no_average() if self.stopped else super().drop(cells, baseline, metric, confidence)
        if any(name in cell.missing for cell in (*cells, *baseline)):
            return no_estimate("undefined here or at the baseline")
        low, high = metric.limits(self.num_classes)
        differences = worse * (self._mean(cells, name) - self._mean(baseline, name))
        bounded = self._bounded(differences, (low - high, high - low), confidence, 2)
        return replace(bounded, value=bounded.value + 0.0, method=f"paired {METHOD}")

    def changed(
        self, change: PairedChange, metric: Metric, factor: float, before: MetricSummary, after: MetricSummary
    ) -> PairedChange:
        """Add what two systems say of the images that both were shown; p holds at any time, as its bounds do."""
        name, (low, high) = metric.name, metric.limits(self.num_classes)
        change = replace(change, n=self.counted, groups=self.groups)
        if not metric.mean_over_objects:
            return replace(change, reason=self._no_average().reason)
        if missing := before.missing.get(name) or after.missing.get(name):
            return replace(change, reason=missing)
        means = [self._mean([cell], name) for cell in (before, after)]
        room, counted = high - low, self.counted
        bets = group_bets(means[1] - means[0], self.index[:counted], self.looks.largest_group, -room, room)
        estimate = bounded_mean(bets, -room, room, change.confidence).scaled(factor)
        most = max(bets.evidence(0.5), bets.mirrored().evidence(0.5))
        return replace(
            change,
            before=factor * float(means[0].mean()),
            after=factor * float(means[1].mean()),
            change=estimate.value,
            lo=estimate.lo,
            hi=estimate.hi,
            p=min(1.0, 2 * math.exp(-most)),
            method=f"paired {METHOD}",
            reason=estimate.reason,
        )

    def _mean(self, cells: Sequence[MetricSummary], name: str) -> Floats:
        rows = [cell.per_image[name][: self.counted] for cell in cells]
        return np.asarray(np.mean(rows, axis=0, dtype=np.float64))

    def _bounded(self, values: Floats, limits: tuple[float, float], confidence: float, cases: int) -> Estimate:
        index = self.index[: self.counted]
        estimate = anytime_interval(values.clip(*limits), index, self.looks.largest_group, *limits, confidence)
        remark = ""
        if self.stopped:
            images = f"{self.shown:,} of {self.looks.images:,} images"
            remark = f"stopped after {images}: decided" if cases == 1 else f"on the {images} that all cases were shown"
        return replace(estimate, reason=estimate.reason or remark)

    def _no_average(self) -> Estimate:
        return no_estimate("stopped early: what is no mean over images is not read from a part of them")


def stopping_rows(evidence: Evidence, looks: Looks) -> Iterator[dict[str, Any]]:
    """Per case and criterion: how many images it was shown, when the criterion was decided, and how."""
    for key, shown in evidence.lengths.items():
        where = {**key.where(), "images": shown, "of": looks.images}
        watched = evidence.watched.get(key, ())
        if not watched:
            yield {
                **where,
                **{"criterion": "", "metric": "", "status": ""},
                "reason": "no criterion is judged on it while answers come in: run in full",
            }
        for one in watched:
            metric = one.criterion.metric
            bounded = BoundedMetric.of(evidence.metric(metric), evidence.metrics, len(evidence.class_names))
            values = evidence.cells[key].per_image.get(bounded.whole.name)
            row = {**where, "criterion": one.criterion.id, "metric": metric}
            if values is None:
                yield {**row, "status": "inconclusive", "reason": f"{metric} is undefined here"}
                continue
            after, status = _decided(one, bounded, values, evidence.objects, looks)
            estimate = evidence.estimate([key], evidence.metric(metric), one.criterion.confidence)
            reason = "" if after else "not decided after all images"
            row |= {"status": status, "decided_after": after or math.nan, "threshold": one.criterion.threshold}
            yield {**row, "value": estimate.value, "lo": estimate.lo, "hi": estimate.hi, "reason": reason}


def _decided(
    watched: Watched, bounded: BoundedMetric, values: NDArray[Any], groups: NDArray[np.int64], looks: Looks
) -> tuple[int, Status]:
    """After how many images a criterion was decided first, and how; 0 where it never was."""
    for shown in _looks_at(len(values), looks):
        status = bounded.decide(watched, bounded.bets(values[:shown], groups[:shown], looks))
        if status != "inconclusive":
            return shown, status
    return 0, "inconclusive"


def _looks_at(shown: int, looks: Looks) -> list[int]:
    """After how many images a case of which so many were shown was looked at."""
    return sorted({min(shown, end) for end in range(looks.part_images, shown + looks.part_images, looks.part_images)})


def look_rows(evidence: Evidence, looks: Looks) -> Iterator[dict[str, Any]]:
    """Per case and criterion: the value and its bounds at some of the looks, for the picture of how it was decided."""
    for key, cell in evidence.cells.items():
        for one in evidence.watched.get(key, ()):
            yield from _path(evidence, looks, key, one, cell)


def _path(
    evidence: Evidence, looks: Looks, key: CellKey, watched: Watched, cell: MetricSummary
) -> Iterator[dict[str, Any]]:
    criterion, metric = watched.criterion, evidence.metric(watched.criterion.metric)
    bounded = BoundedMetric.of(metric, evidence.metrics, len(evidence.class_names))
    if bounded.whole.name not in cell.per_image:
        return
    values, times = cell.per_image[bounded.whole.name], _looks_at(evidence.lengths[key], looks)
    chosen = [times[row] for row in sorted({*np.linspace(0, len(times) - 1, MOST_LOOKS).astype(int).tolist()})]
    bets = bounded.bets(values, evidence.objects[: len(values)], looks)
    for shown in chosen:
        counted = looks.counted(evidence.objects[:shown])
        groups = len(np.unique(evidence.objects[:counted]))
        if not groups:
            continue
        confidence, limits = criterion.confidence, bounded.limits
        estimate = bounded_mean(bets.first(groups), *limits, confidence, PICTURE_TOLERANCE).scaled(bounded.factor)
        row = {**key.where(), "criterion": criterion.id, "metric": criterion.metric, "images": shown}
        row |= {"groups": groups, "threshold": criterion.threshold, "value": estimate.value}
        yield {**row, "lo": estimate.lo, "hi": estimate.hi}
