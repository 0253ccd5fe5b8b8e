"""Metrics by name: those of answers, those that protocols declare, what is derived from them, and former names."""

from __future__ import annotations

from collections.abc import Iterable

from roadworthy.core.errors import UnknownName
from roadworthy.metrics.base import DISCOUNTED, DROP, EXPECTED, METRICS, TAKEN, Metric

FORMER_NAMES = {"fpr95": "fpr95_in"}
"""Names of earlier versions, in stored tables and in criteria, and what the same metric is called now."""
ADDED = (
    *("fpr95_out", "fpr95_right"),
    *("interpretation_chance", "interpretation_masked", "interpretation_place"),
)
"""Metrics that tables of earlier versions do not have."""
TAKEN.update({old: f"this is what {new} was called in earlier versions" for old, new in FORMER_NAMES.items()})
_BY_PROTOCOL: dict[str, tuple[Metric, ...]] = {}


def current_name(metric: str) -> str:
    """The present name of a metric.

    >>> current_name("fpr95"), current_name("accuracy")
    ('fpr95_in', 'accuracy')
    """
    return FORMER_NAMES.get(metric, metric)


def stored_name(metric: str, stored: set[str]) -> str | None:
    """What a metric is called in a table that holds the metrics `stored`; None where it was added later.

    >>> stored_name("fpr95_in", {"auroc", "fpr95"}), stored_name("fpr95_out", {"auroc", "fpr95"})
    ('fpr95', None)
    """
    if metric in stored:
        return metric
    former = next((old for old, new in FORMER_NAMES.items() if new == metric and old in stored), None)
    return former or (None if metric.removesuffix(DROP) in ADDED else metric)


def declare_metrics(protocol: str, metrics: Iterable[Metric]) -> None:
    """Note the metrics of a protocol's tables, each as the protocol means it, so that a report can name them.

    The names of those that are not metrics of answers are taken from then on.
    """
    _BY_PROTOCOL[protocol] = tuple(metrics)
    for metric in _BY_PROTOCOL[protocol]:
        if not metric.is_of_answers:
            TAKEN[metric.name] = f"the protocol {protocol} has a metric of this name"


def metrics_of(protocol: str) -> tuple[Metric, ...]:
    """The metrics that a protocol declared; none where it is not known.

    >>> metrics_of("no such protocol")
    ()
    """
    return _BY_PROTOCOL.get(protocol, ())


def find_metric(name: str, own: Iterable[Metric] = ()) -> Metric:
    """The metric of a name in tables and criteria: among `own` first, then those of answers, then any protocol's.

    Derived ones are known by what follows the name: `_drop` against undisturbed data, `_discounted` for coverage; or by
    what comes before it: `expected_` over situations.
    Raises an `UnknownName` for all else.

    >>> find_metric("accuracy_drop").limits(num_classes=10), find_metric("accuracy_drop").label
    ((-1.0, 1.0), 'Drop of accuracy')
    """
    name, own = current_name(name), tuple(own)
    if name in METRICS and name not in {metric.name for metric in own}:
        return METRICS.get(name)
    declared = [metric for metrics in _BY_PROTOCOL.values() for metric in metrics]
    for metric in (*own, *declared):
        if metric.name == name:
            return metric
    for suffix, derive in ((DROP, Metric.drop), (DISCOUNTED, Metric.discounted)):
        if name.endswith(suffix):
            return derive(find_metric(name.removesuffix(suffix), own))
    if name.startswith(EXPECTED):
        return find_metric(name.removeprefix(EXPECTED), own).expected()
    raise UnknownName("metric", name, {*METRICS, *(metric.name for metric in (*own, *declared))})


def higher_is_better(metric: str) -> bool | None:
    """True or False by the metric's name in tables; None where neither is better in itself, or it is not known here.

    >>> higher_is_better("accuracy"), higher_is_better("mean_confidence"), higher_is_better("my_metric")
    (True, None, None)
    """
    try:
        return find_metric(metric).higher_is_better
    except UnknownName:
        return None
