"""Summaries over benchmarks: means, ranks with their critical difference, pairs of monitors, and mean sweeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from roadworthy.metrics import find_metric
from roadworthy.protocols.monitoring.metrics import MCC, METRICS
from roadworthy.protocols.monitoring.names import ALL, ALONE, DETECTION, STREAM, SYSTEM
from roadworthy.statistics import critical_difference
from roadworthy.statistics.estimates import CONFIDENCE

Rows = list[dict[str, Any]]
RANKED_VIEWS = (DETECTION, SYSTEM)
SWEPT_COLUMNS = ("threshold", "safety_gain", "residual_hazard", "availability_cost", "recall", "fpr")


def mean_over_sets(values: Sequence[float], metric: str, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The mean of one value per benchmark and its interval by Student's t, cut to the range of the metric.

    mean -+ t_{n-1} s / sqrt(n). Benchmarks are chosen, not drawn: the interval describes the sets at hand. Bounds are
    NaN for fewer than two values.

    >>> [round(number, 3) for number in mean_over_sets([0.5, 0.7], "mcc")]
    [0.6, -0.671, 1.0]
    """
    known = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return math.nan, math.nan, math.nan
    mean = float(known.mean())
    if len(known) < 2 or not np.isfinite(known).all():
        return mean, math.nan, math.nan
    half = float(stdtrit(len(known) - 1, (1 + confidence) / 2)) * float(known.std(ddof=1)) / math.sqrt(len(known))
    low, high = find_metric(metric, METRICS).limits(2)
    return mean, max(low, mean - half), min(high, mean + half)


def overall_rows(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """The mean of every metric over the benchmarks of each kind, and of all; each benchmark counts once."""
    gathered: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        for kind in (ALL, row["ood_kind"]):
            key = (row["model"], kind, row["monitor"], row["view"], row["part"], row["metric"])
            gathered.setdefault(key, []).append(float(row["value"]))
    summarised = Rows()
    for (model, kind, monitor, view, part, metric), values in gathered.items():
        mean, lo, hi = mean_over_sets(values, metric)
        sets = sum(not math.isnan(value) for value in values)
        notes = [f"{len(values) - sets} of {len(values)} benchmarks have no value"] if sets < len(values) else []
        notes += ["one benchmark only: no bound"] if sets == 1 else []
        where = {"model": model, "ood_kind": kind, "monitor": monitor, "view": view, "part": part, "metric": metric}
        summarised.append({**where, "value": mean, "lo": lo, "hi": hi, "sets": sets, "reason": "; ".join(notes)})
    return summarised


def rank_rows(rows: Iterable[Mapping[str, Any]], weak: Sequence[str] = ()) -> tuple[Rows, Rows]:
    """The ranks of monitors by MCC over benchmarks and the comparison of each pair, per model and of all models.

    Over all models every benchmark of every model is a set; models that are `weak` (undertrained) are left out of
    these, unless all are. A monitor without any value is left out, and the warning names it.
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
    """Ranks and pairs of the monitors of some sets; None where there is no set or no monitor."""
    monitors = [*dict.fromkeys(row["monitor"] for row in rows if not math.isnan(row["value"]))]
    lost = sorted({row["monitor"] for row in rows} - {*monitors})
    sets = [*dict.fromkeys((row["model"], row["benchmark"]) for row in rows)]
    if not sets or not monitors:
        return None
    values = np.full((len(sets), len(monitors)), math.nan)
    for row in (row for row in rows if row["monitor"] in monitors):
        values[sets.index((row["model"], row["benchmark"])), monitors.index(row["monitor"])] = row["value"]
    result = critical_difference(values, monitors)
    without = f"Without monitors that have no value: {', '.join(lost)}." if lost else ""
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
