"""Metrics by name: those of answers, those that protocols declare, and what is derived from them."""

from __future__ import annotations

from collections.abc import Iterable

from roadworthy.core.errors import UnknownName
from roadworthy.metrics.base import DISCOUNTED, DROP, EXPECTED, METRICS, TAKEN, Metric

ADDED = (
    *("fpr95_out", "fpr95_right", "fpr95_wrong"),
    *("relative_change_perfect", "stream_change", "stream_change_perfect"),
    *("interpretation_chance", "interpretation_masked", "interpretation_place"),
    "box_ece_interval",
)
"""Metrics that tables of earlier versions do not have."""
_BY_PROTOCOL: dict[str, tuple[Metric, ...]] = {}


def was_added(metric: str) -> bool:
    """Whether tables of earlier versions may lack a metric, or the drop of it.

    >>> was_added("fpr95_wrong_drop"), was_added("accuracy")
    (True, False)
    """
    return metric.removesuffix(DROP) in ADDED


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
    own = tuple(own)
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
    raise unknown_metric(name, {*METRICS, *(metric.name for metric in (*own, *declared))}, own)


def unknown_metric(name: str, known: Iterable[str], own: Iterable[Metric] = (), kind: str = "metric") -> UnknownName:
    """The error for a name that is none of the known metrics: which one comes nearest.

    Where known names go on from this one (`fpr95`), all of them do: they are named with what each means. Where other
    protocols have a metric of this name, none that only looks like it is named: it can mean the opposite.

    >>> str(unknown_metric("acuracy", ["accuracy", "ece"]))
    "unknown metric 'acuracy': did you mean 'accuracy'? Known: accuracy, ece."
    """
    known = sorted(known)
    elsewhere = sorted(protocol for protocol, has in _BY_PROTOCOL.items() if name in {metric.name for metric in has})
    if kind == "metric" and elsewhere and name not in {*METRICS, *(metric.name for metric in own)}:
        owners = f"protocol {elsewhere[0]} has" if len(elsewhere) == 1 else f"protocols {' and '.join(elsewhere)} have"
        return UnknownName(kind, name, known, f": the {owners} it, ask for it with `where: {{protocol: ...}}`.")
    meant = [
        find_metric(metric, own) for metric in known if metric.startswith(f"{name}_") and not metric.endswith(DROP)
    ]
    meanings = [f"{metric.name!r} ({metric.sentence.partition(';')[0].partition('. ')[0]})" for metric in meant]
    return UnknownName(kind, name, known, f": did you mean {' or '.join(meanings)}?" if meanings else "")


def higher_is_better(metric: str) -> bool | None:
    """True or False by the metric's name in tables; None where neither is better in itself, or it is not known here.

    >>> higher_is_better("accuracy"), higher_is_better("mean_confidence"), higher_is_better("my_metric")
    (True, None, None)
    """
    try:
        return find_metric(metric).higher_is_better
    except UnknownName:
        return None
