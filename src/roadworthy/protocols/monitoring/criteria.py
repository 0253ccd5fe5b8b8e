"""Criteria on a benchmark of monitors: which rows they speak of, and what was measured there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.metrics import find_metric, unknown_metric
from roadworthy.protocols.monitoring.evaluation import metrics_of
from roadworthy.protocols.monitoring.metrics import (
    ACCURACY,
    COST_METRICS,
    EVENT_METRICS,
    EXTRA_SECONDS,
    ID_METRICS,
    METRICS,
)
from roadworthy.protocols.monitoring.names import (
    ALONE,
    CONDITIONS,
    FORMS,
    GUARD,
    MODEL_SCOPE,
    PARTS,
    STREAM,
    SYSTEM,
    TEST,
    TESTS,
    TRAIN,
    VALID,
    VIEWS,
)
from roadworthy.protocols.monitoring.settings import Context
from roadworthy.protocols.monitoring.summaries import mean_over_sets
from roadworthy.protocols.monitoring.table_specs import ALARMS, TIMING
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import no_estimate
from roadworthy.verdict import Criterion, Measurement

NOT_JUDGED = {
    **dict.fromkeys(
        ("state_bytes", "resident_bytes", "extra_resident_bytes", "overhead_median"),
        f"is measured once, so that it has no bound to be judged by: read it in the table {TIMING.name}",
    ),
    **dict.fromkeys(
        ("alarm_at", "alarm_delay", *(f"alarm_delay_{test}" for test in TESTS)),
        f"happens once in a stream, so that it has no bound to be judged by: read it in the table {ALARMS.name}",
    ),
}
"""What is measured and yet no metric of a criterion, each with the reason."""
Condition = Mapping[str, Any]
"""What is measured somewhere: model, and as far as it has them benchmark, ood_kind, monitor, view and part."""


def family_of(metric: str) -> str:
    """Which table a metric is of: `stream` (its course), `id` (ID test images), `competence`, `cost` or `decisions`."""
    if metric in {own.name for own in COST_METRICS}:
        return "cost"
    if metric in {own.name for own in EVENT_METRICS}:
        return "stream"
    if metric in {own.name for own in ID_METRICS}:
        return "id"
    return "competence" if metric == ACCURACY.name else "decisions"


def usual_view(metric: str) -> str:
    """The view that a criterion means where it names none: `system`, unless only another one has the metric.

    >>> usual_view("mcc"), usual_view("auroc"), usual_view("safety_gain")
    ('system', 'detection', 'model_scope')
    """
    views = [view for view in (SYSTEM, *VIEWS) if metric in metrics_of(view, STREAM, "")]
    return views[0] if views else MODEL_SCOPE


def conditions_of(metric: str, context: Context) -> Iterator[dict[str, Any]]:
    """Where a metric is measured in a source."""
    family = family_of(metric)
    for model in context.architectures:
        if family == "competence":
            yield from ({"model": model, "part": part} for part in (TEST, VALID, TRAIN))
            continue
        monitors = [*context.monitors] if family in ("id", "stream") else [ALONE, *context.monitors]
        monitors = [*context.monitors] if metric == EXTRA_SECONDS.name else monitors
        for monitor in monitors:
            if family == "id":
                yield {"model": model, "monitor": monitor}
                continue
            if family == "cost":
                yield from ({"model": model, "monitor": monitor, "form": form} for form in FORMS)
                continue
            for benchmark, note in context.benchmarks.items():
                where = {"model": model, "benchmark": benchmark, "ood_kind": note.kind, "monitor": monitor}
                if family == "stream":
                    yield where
                    continue
                for view in VIEWS:
                    for part in PARTS:
                        if metric in metrics_of(view, part, monitor):
                            yield {**where, "view": view, "part": part}


def asked_conditions(criterion: Criterion, context: Context) -> list[dict[str, Any]]:
    """The conditions that a criterion speaks of; an `InputError` where it names what is not there, or there is none.

    Where it names no view or part, it means the view `system` (or the only one that has the metric) and the whole
    stream; where it names no form, the guard in Python; the model alone (`none`) is meant only where it is named.
    """
    names = [metric.name for metric in METRICS]
    if criterion.metric in NOT_JUDGED:
        raise InputError(f"criterion {criterion.id}: {criterion.metric} {NOT_JUDGED[criterion.metric]}")
    if criterion.metric not in names:
        raise InputError(f"criterion {criterion.id}: {unknown_metric(criterion.metric, names, METRICS)}")
    chosen = [*conditions_of(criterion.metric, context)]
    known = [column for column in CONDITIONS if any(column in condition for condition in chosen)]
    usual = {"view": usual_view(criterion.metric), "part": TEST if "part" in known and len(known) == 2 else STREAM}
    usual["form"] = GUARD
    where = {key: wanted for key, wanted in criterion.where.items() if key != "protocol"}
    for key in where:
        if key not in known:
            raise InputError(f"criterion {criterion.id}: {UnknownName('condition', str(key), known)}")
    where = {key: value for key, value in usual.items() if key in known} | where
    for key, wanted in where.items():
        values = wanted if isinstance(wanted, list) else [wanted]
        there = [*dict.fromkeys(condition[key] for condition in conditions_of(criterion.metric, context))]
        for value in values:
            if value not in there:
                raise InputError(f"criterion {criterion.id}: {UnknownName(key, str(value), there)}")
        chosen = [condition for condition in chosen if condition[key] in values]
    if "monitor" not in where:
        chosen = [condition for condition in chosen if condition.get("monitor") != ALONE]
    if not chosen:
        raise InputError(f"criterion {criterion.id} matches nothing: no benchmark has all that it names under where")
    return chosen


def check_criterion(criterion: Criterion, context: Context) -> None:
    """Refuse a criterion that speaks of what is not measured, or whose average would mix different things."""
    chosen = asked_conditions(criterion, context)
    if criterion.over != "pooled":
        return
    if family_of(criterion.metric) != "decisions":
        raise InputError(
            f"criterion {criterion.id}: {criterion.metric} is not averaged over benchmarks: use over: each or worst"
        )
    for column in ("model", "monitor", "view", "part"):
        named = [*dict.fromkeys(condition[column] for condition in chosen)]
        if len(named) > 1:
            raise InputError(
                f"criterion {criterion.id}: pooled is the mean over the benchmarks of one {column}: name one under "
                f"where ({', '.join(named)})"
            )


def measurements(
    criterion: Criterion, rows: Sequence[tuple[Condition, Estimate]], confidence: float
) -> list[Measurement]:
    """What was measured under the conditions of a criterion.

    `over: pooled` is the mean over benchmarks, each counting once, with the bounds of `mean_over_sets`; a benchmark
    without a value leaves no mean.
    """
    proportion = find_metric(criterion.metric, METRICS).proportion
    if criterion.over != "pooled":
        unit = "timed images" if family_of(criterion.metric) == "cost" else "independent objects"
        return [Measurement(dict(where), estimate, proportion=proportion, unit=unit) for where, estimate in rows]
    first = {key: value for key, value in rows[0][0].items() if key not in ("benchmark", "ood_kind")}
    lost = [estimate.reason for _, estimate in rows if estimate.missing]
    where = {**first, "benchmarks": len(rows)}
    if lost:
        reason = f"{len(lost)} of {len(rows)} benchmarks have no value, the first: {lost[0]}"
        return [Measurement(where, no_estimate(reason), unit="benchmarks")]
    mean = mean_over_sets([estimate for _, estimate in rows], criterion.metric, confidence)
    images = sum(estimate.n for _, estimate in rows)
    return [Measurement(where, mean.over(images, len(rows)), unit="benchmarks")]
