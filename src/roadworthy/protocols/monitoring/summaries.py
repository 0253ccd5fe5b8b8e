"""Summaries over benchmarks: means, ranks with their critical difference, pairs of monitors, and mean sweeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from roadworthy.metrics import find_metric
from roadworthy.protocols.monitoring.metrics import MCC, METRICS
from roadworthy.protocols.monitoring.names import ALL, ALONE, DETECTION, STREAM, SYSTEM
from roadworthy.statistics import Estimate, critical_difference
from roadworthy.statistics.bootstrap import ALL_EQUAL, NEARLY_EQUAL
from roadworthy.statistics.estimates import CONFIDENCE, no_estimate

Rows = list[dict[str, Any]]
RANKED_VIEWS = (DETECTION, SYSTEM)
MEAN_METHOD = "the wider of Student's t over benchmarks and the mean of their own bounds"
SWEPT_COLUMNS = ("threshold", "safety_gain", "residual_hazard", "availability_cost", "recall", "fpr")


def mean_over_sets(estimates: Sequence[Estimate], metric: str, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of a metric over benchmarks, each counting once, with bounds that allow for what benchmarks share.

        lo = min(mean - h, mean of the lower bounds),   hi = max(mean + h, mean of the upper bounds),
        h = t_{n-1} s / sqrt(n)

    Student's t describes how benchmarks differ. They share ID images, though, so that chance in these moves all
    benchmarks together and does not average out: the mean of their own bounds is where the mean may lie if all err
    together. On each side the wider of both counts, cut to the range of the metric. One benchmark has its own bounds.
    Benchmarks without a value are not counted, and `reason` says so. A benchmark whose decisions are all alike, or all
    right, has no bound since its resamples are equal: it counts as if its bounds were as far away as the farthest of
    the others. Where a benchmark has no bound for another reason, the mean has none. `n` and `groups` count benchmarks.

    >>> same = Estimate(0.1, 0.05, 0.2)
    >>> mean = mean_over_sets([same, same], "fpr")
    >>> round(mean.value, 3), round(mean.lo, 3), round(mean.hi, 3), mean.n
    (0.1, 0.05, 0.2, 2)
    >>> mean = mean_over_sets([Estimate(0.5, 0.4, 0.6), Estimate(0.7, 0.6, 0.8)], "mcc")
    >>> round(mean.value, 3), round(mean.lo, 3), round(mean.hi, 3)
    (0.6, -0.671, 1.0)
    """
    known = _with_assumed_bounds([estimate for estimate in estimates if not estimate.missing])
    number = len(known)
    lost = [estimate.reason for estimate in estimates if estimate.missing]
    notes = [f"{len(lost)} of {len(estimates)} benchmarks have no value, the first: {lost[0]}"] if lost else []
    if not known:
        return no_estimate("; ".join(notes) or "there is no benchmark")
    mean = math.fsum(estimate.value for estimate in known) / number
    unbounded = [estimate.reason for estimate in known if estimate.unbounded]
    if unbounded:
        notes.append(f"{len(unbounded)} of {number} benchmarks have no bound, the first: {unbounded[0]}")
        return Estimate(mean, n=number, groups=number, reason="; ".join(notes))
    lo, hi = (math.fsum(getattr(estimate, side) for estimate in known) / number for side in ("lo", "hi"))
    if number > 1:
        spread = float(np.std([estimate.value for estimate in known], ddof=1))
        half = float(stdtrit(number - 1, (1 + confidence) / 2)) * spread / math.sqrt(number)
        lo, hi = min(lo, mean - half), max(hi, mean + half)
    else:
        notes.append("one benchmark only: its own bounds")
    low, high = find_metric(metric, METRICS).limits(2)
    lo, hi, reason = max(low, lo), min(high, hi), "; ".join(notes)
    return Estimate(mean, lo, hi, n=number, groups=number, method=MEAN_METHOD, reason=reason)


def _with_assumed_bounds(known: Sequence[Estimate]) -> list[Estimate]:
    """The same estimates; those whose resamples are all equal have bounds as far away as the farthest of the others."""
    distances = [max(one.value - one.lo, one.hi - one.value) for one in known if not one.unbounded]
    if not distances:
        return [*known]
    far, equal = max(distances), (ALL_EQUAL, NEARLY_EQUAL)
    return [replace(one, lo=one.value - far, hi=one.value + far) if one.reason in equal else one for one in known]


def overall_rows(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """The mean of every metric over the benchmarks of each kind, and of all: see `mean_over_sets`."""
    gathered: dict[tuple[Any, ...], list[Estimate]] = {}
    for row in rows:
        estimate = Estimate(float(row["value"]), float(row["lo"]), float(row["hi"]), reason=row["reason"])
        for kind in (ALL, row["ood_kind"]):
            key = (row["model"], kind, row["monitor"], row["view"], row["part"], row["metric"])
            gathered.setdefault(key, []).append(estimate)
    summarised = Rows()
    for (model, kind, monitor, view, part, metric), estimates in gathered.items():
        mean = mean_over_sets(estimates, metric)
        where = {"model": model, "ood_kind": kind, "monitor": monitor, "view": view, "part": part, "metric": metric}
        numbers = {"value": mean.value, "lo": mean.lo, "hi": mean.hi, "sets": mean.n}
        summarised.append({**where, **numbers, "reason": mean.reason})
    return summarised


def rank_rows(rows: Iterable[Mapping[str, Any]], weak: Sequence[str] = ()) -> tuple[Rows, Rows]:
    """The ranks of monitors by MCC over benchmarks and the comparison of each pair, per model and of all models.

    A set is a benchmark. Over all models its value is the mean MCC over the models that have the benchmark, so that
    more models do not make more sets; models that are `weak` (undertrained) are left out of it, unless all are. A
    monitor without any value, or without a value on one of these models, is left out, and the warning names it.
    """
    chosen = [
        row
        for row in rows
        if row["metric"] == MCC.name
        and row["part"] == STREAM
        and row["view"] in RANKED_VIEWS
        and row["monitor"] != ALONE
    ]
    ranks, pairs = Rows(), Rows()
    models = [*dict.fromkeys(row["model"] for row in chosen)]
    strong = [model for model in models if model not in weak] or models
    for model in (*models, *([ALL] if len(models) > 1 else [])):
        counted = strong if model == ALL else [model]
        left_out = sorted({*models} - {*counted}) if model == ALL else []
        for view in RANKED_VIEWS:
            own = [row for row in chosen if row["model"] in counted and row["view"] == view]
            of_view = _ranked(own)
            if of_view is None:
                continue
            note = f"Without undertrained models: {', '.join(left_out)}." if left_out else ""
            ranks += [
                {"model": model, "view": view, **row, "warning": f"{row['warning']} {note}".strip()}
                for row in of_view[0]
            ]
            pairs += [{"model": model, "view": view, **row} for row in of_view[1]]
    return ranks, pairs


def _ranked(rows: Sequence[Mapping[str, Any]]) -> tuple[Rows, Rows] | None:
    """Ranks and pairs of the monitors over benchmarks; None where there is no benchmark or no monitor."""
    models_of: dict[str, set[str]] = {}
    values_of: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        models_of.setdefault(row["benchmark"], set()).add(row["model"])
        values_of.setdefault((row["benchmark"], row["monitor"]), []).append(row["value"])
    named = [*dict.fromkeys(row["monitor"] for row in rows)]
    means = np.full((len(models_of), len(named)), math.nan)
    for number, (benchmark, models) in enumerate(models_of.items()):
        for column, monitor in enumerate(named):
            own = values_of.get((benchmark, monitor), [])
            if len(own) == len(models):
                means[number, column] = math.fsum(own) / len(own)
    has_value = ~np.isnan(means).all(axis=0)
    monitors = [monitor for monitor, known in zip(named, has_value, strict=True) if known]
    lost = sorted({*named} - {*monitors})
    if not monitors:
        return None
    values = means[:, has_value]
    result = critical_difference(values, monitors)
    where = " on every model" if len({row["model"] for row in rows}) > 1 else ""
    without = f"Without monitors that have no value{where}: {', '.join(lost)}." if lost else ""
    warning = f"{result.warning} {without}".strip()
    letters = result.letters()
    numbers = ("sets", "friedman", "friedman_p", "iman_davenport", "iman_davenport_p", "distance")
    shared = {name: getattr(result, name) for name in numbers}
    ranks = [
        {"monitor": name, "rank": float(rank), **shared, "cliques": letters[name], "warning": warning}
        for name, rank in zip(result.names, result.ranks, strict=True)
    ]
    pairs = [
        {
            "monitor_a": pair.a,
            "monitor_b": pair.b,
            "rank_difference": pair.rank_difference,
            "nemenyi_p": pair.nemenyi_p,
            "wilcoxon_p_holm": pair.wilcoxon_p_holm,
        }
        for pair in result.pairs
    ]
    return ranks, pairs


def with_mean_sweep(rows: Rows) -> Rows:
    """The rows of all sweeps, and those of their mean over the benchmarks of each model."""
    if not rows:
        return rows
    table = pd.DataFrame(rows)
    keys = ["model", "monitor", "rejected_id"]
    means = table.groupby(keys, sort=False)[[*SWEPT_COLUMNS]].mean().reset_index()
    mean_rows = [{**row, "benchmark": ALL} for row in means.to_dict("records")]
    return [*rows, *({str(key): value for key, value in row.items()} for row in mean_rows)]
