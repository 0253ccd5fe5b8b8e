"""What is kept of the metrics of stored answers, and the bounds that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import Answers, Metric
from roadworthy.metrics.base import MetricValues
from roadworthy.metrics.ranking import ties_in_words
from roadworthy.statistics.bootstrap import GroupBootstrap
from roadworthy.statistics.estimates import (
    CONFIDENCE,
    Estimate,
    bootstrap_estimate,
    mean_defined,
    mean_rows,
    paired_estimate,
    standard_deviation,
)
from roadworthy.statistics.intervals import mean_interval, proportion_interval
from roadworthy.statistics.ranked import RankedFigure, ranked_estimate, ranked_figure

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MetricSummary:
    """What is kept of the answers of one system to one stimulus: sums, and for a mean a number per image.

    per_image  for each metric that is bounded as a mean over objects: its (n,) values, averaged over repeats
    values     per metric, its value in each repeat
    ranked     per metric of a ranking, what bounds it, of each repeat in which it is defined
    resampled  per other metric, its mean over repeats in each bootstrap resample, (B,)
    missing    per metric that is undefined, why;  no_bounds: per metric that could not be resampled, why
    ties       per metric of a ranking, the share of pairs in no order, its mean over the repeats where that is known
    """

    per_image: Mapping[str, NDArray[np.float32]]
    values: Mapping[str, Sequence[float]]
    resampled: Mapping[str, Floats]
    missing: Mapping[str, str]
    no_bounds: Mapping[str, str]
    ties: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    ranked: Mapping[str, Sequence[RankedFigure]] = field(default_factory=dict, kw_only=True)

    def mean(self, metric: str) -> float:
        """The mean over the repeats in which the metric is defined."""
        return mean_defined(self.values[metric])


def summarise_metrics(repeats: Sequence[Any], metrics: Sequence[Metric], bootstrap: GroupBootstrap) -> MetricSummary:
    """Measure the metrics of answers in every repeat; one that is a multiple of another is bounded by that one."""
    bounded = [metric for metric in metrics if metric.multiple_of not in metrics]
    drawn = [metric for metric in bounded if not metric.mean_over_objects and not metric.ranked]
    of_rankings = {metric.name: metric.ranked for metric in bounded if metric.ranked}
    ranked: dict[str, list[RankedFigure]] = {name: [] for name in of_rankings}
    measured: dict[str, list[MetricValues]] = {metric.name: [] for metric in metrics}
    resampled = []
    for answers in repeats:
        for metric in metrics:
            measured[metric.name].append(metric.measure(answers))
        for name, by_image in of_rankings.items():
            if not measured[name][-1].reason:
                ranked[name].append(ranked_figure(by_image(answers.ranking), bootstrap.index, bootstrap.groups))
        resampled.append(bootstrap.distributions(drawn, answers))
        if isinstance(answers, Answers):
            answers.forget()
    missing = {name: [one.reason for one in of_repeats if one.reason] for name, of_repeats in measured.items()}
    means = [metric for metric in bounded if metric.mean_over_objects and not missing[metric.name]]
    return MetricSummary(
        per_image={
            metric.name: np.asarray(np.mean([metric.per_image(answers) for answers in repeats], axis=0), np.float32)
            for metric in means
        },
        values={name: [float(one.values[0]) for one in of_repeats] for name, of_repeats in measured.items()},
        resampled={metric.name: mean_rows([of_all[metric.name].values for of_all in resampled]) for metric in drawn},
        missing={name: reasons[0] for name, reasons in missing.items() if reasons},
        no_bounds={
            name: result.reason
            for of_all in resampled
            for name, result in of_all.items()
            if result.reason and not missing[name]
        },
        ties={metric.name: mean_defined([metric.ties(own) for own in repeats]) for metric in bounded if metric.ties},
        ranked=ranked,
    )


@dataclass(frozen=True)
class Objects:
    """The independent objects that summaries rest on: `index` (n,) of each image, how many there are, and classes."""

    index: NDArray[np.int64]
    count: int
    num_classes: int

    def estimate(self, cells: Sequence[MetricSummary], metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """The mean of a metric over cells, bounded by objects: neither repeats nor cells raise n."""
        name = metric.name
        sd = standard_deviation(cells[0].values[name]) if len(cells) == 1 else math.nan
        missing = [cell.missing[name] for cell in cells if name in cell.missing]
        missing_reason = "" if not missing else missing[0]
        if missing and len(cells) > 1:
            missing_reason = f"{len(missing)} of {len(cells)} cases left out: {missing_reason}"
        value = mean_defined([cell.mean(name) for cell in cells])
        if math.isnan(value) or (missing and metric.mean_over_objects):
            return Estimate(value, reason=missing_reason, sd=sd)
        low, high = metric.limits(self.num_classes)
        if metric.mean_over_objects:
            values = mean_per_image(cells, name)
            if metric.proportion:
                interval = proportion_interval(values, self.index, confidence)
            else:
                interval = mean_interval(values.clip(low, high), self.index, low, high, confidence)
            return replace(interval, value=value, sd=sd)
        if metric.ranked:
            bounded = replace(ranked_estimate(figures_of(cells, name), (), confidence), value=value)
        else:
            bounded = bootstrap_estimate(value, mean_resampled(cells, name), self.count, confidence, (low, high))
        no_bounds = next((cell.no_bounds[name] for cell in cells if name in cell.no_bounds), bounded.reason)
        ties = ties_in_words(mean_defined([cell.ties.get(name, math.nan) for cell in cells]))
        reasons = dict.fromkeys(filter(None, [missing_reason, ties, bounded.reason and no_bounds]))
        return replace(bounded, reason="; ".join(reasons), sd=sd)

    def drop(
        self,
        cells: Sequence[MetricSummary],
        baseline: Sequence[MetricSummary],
        metric: Metric,
        confidence: float = CONFIDENCE,
    ) -> Estimate:
        """How much worse a metric is than at the baseline, on the same objects: positive is worse."""
        worse, name = -1.0 if metric.higher_is_better else 1.0, metric.name
        means = [mean_defined([cell.mean(name) for cell in some]) for some in (cells, baseline)]
        value = worse * (means[0] - means[1]) + 0.0
        missing = any(name in cell.missing for cell in (*cells, *baseline))
        if math.isnan(value) or (missing and metric.mean_over_objects):
            return Estimate(value, reason="undefined here or at the baseline")
        low, high = metric.limits(self.num_classes)
        room = high - low
        if metric.mean_over_objects:
            differences = worse * (mean_per_image(cells, name) - mean_per_image(baseline, name))
            interval = mean_interval(differences.clip(-room, room), self.index, -room, room, confidence)
            return replace(interval, value=value, method=f"paired {interval.method}")
        if metric.ranked:
            sides = (figures_of(cells, name), figures_of(baseline, name))
            return replace(ranked_estimate(*(sides if worse > 0 else sides[::-1]), confidence), value=value)
        difference = worse * (mean_resampled(cells, name) - mean_resampled(baseline, name))
        sizes = np.bincount(self.index, minlength=self.count)
        bounded = paired_estimate(value, difference, sizes, confidence, metric.room(self.num_classes))
        bounded = replace(bounded, lo=max(bounded.lo, -room), hi=min(bounded.hi, room))
        no_bounds = [cell.no_bounds[name] for cell in (*cells, *baseline) if name in cell.no_bounds]
        reason = no_bounds[0] if bounded.reason and no_bounds else bounded.reason
        return replace(bounded, reason=reason)


def mean_resampled(cells: Sequence[MetricSummary], metric: str) -> Floats:
    """The mean over cells of a metric in each resample, (B,)."""
    return mean_rows([cell.resampled[metric] for cell in cells])


def figures_of(cells: Sequence[MetricSummary], metric: str) -> list[Sequence[RankedFigure]]:
    """What bounds a metric of a ranking, cell by cell, those apart in which it is not defined in any repeat."""
    return [cell.ranked[metric] for cell in cells if cell.ranked.get(metric)]


def mean_per_image(cells: Sequence[MetricSummary], metric: str) -> Floats:
    """The mean over cells of a metric's values for single images, (n,)."""
    return np.asarray(np.mean([cell.per_image[metric] for cell in cells], axis=0, dtype=np.float64))
