"""Whether a criterion's threshold can decide anything: it must lie in the range of its metric."""

from __future__ import annotations

from roadworthy.core.errors import InputError
from roadworthy.metrics import Metric
from roadworthy.metrics.base import Range
from roadworthy.verdict.criteria import Criterion

LARGEST_SHARE = 1.0
"""A larger threshold, for a metric that is never larger, was meant in percent."""


def check_threshold(criterion: Criterion, values: Range) -> None:
    """Refuse a threshold outside the range of the metric: no measurement could fail it, or none could pass.

    >>> check_threshold(Criterion(id="A", metric="accuracy_drop", at_most=5), (-1, 1))
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: criterion A: at_most 5 lies outside the range of accuracy_drop, which is -1 to 1: did you mean 0.05?
    """  # noqa: E501
    low, high = values
    threshold = criterion.threshold
    if low <= threshold <= high:
        return
    percent = high <= LARGEST_SHARE < abs(threshold) and low <= threshold / 100 <= high
    hint = f"did you mean {threshold / 100:g}?" if percent else "give a value inside it"
    raise InputError(
        f"criterion {criterion.id}: {_limit(criterion)} lies outside the range of {criterion.figure}, which is "
        f"{low:g} to {high:g}: {hint}"
    )


def threshold_remark(criterion: Criterion, measured: Metric, values: Range, *, over_objects: bool = True) -> str:
    """What to know of a threshold inside the range that cannot decide, or decides the wrong way; else nothing.

    measured       the metric that the criterion names;  values: its range
    over_objects   False where the bounds are not those of the metric over objects (a mean over conditions)

    >>> from roadworthy.metrics import accuracy
    >>> threshold_remark(Criterion(id="A", metric="accuracy", at_least=0), accuracy, (0, 1))
    'at_least 0 cannot fail: no accuracy is below 0'
    >>> threshold_remark(Criterion(id="A", metric="accuracy", at_least=1), accuracy, (0, 1))
    'at_least 1 cannot pass: with finitely many objects the lower bound of accuracy stays below 1'
    >>> from roadworthy.metrics.boxes import box_ece
    >>> threshold_remark(Criterion(id="A", metric="box_ece", at_most=0.2), box_ece, (0, 0.45))
    'at_most 0.2 cannot fail a model whose errors go to both sides equally often, however wrong the uncertainty is that it states: box_ece is at most 0.2 there; box_ece_interval can'
    """  # noqa: E501
    worst, best = values if criterion.sign > 0 else values[::-1]
    limit, metric = _limit(criterion), criterion.figure
    beyond, side = ("below", "lower") if criterion.sign > 0 else ("above", "upper")
    if criterion.sign * (criterion.threshold - worst) <= 0:
        return f"{limit} cannot fail: no {metric} is {beyond} {worst:g}"
    if criterion.sign * (criterion.threshold - best) >= 0 and over_objects and measured.mean_over_objects:
        return f"{limit} cannot pass: with finitely many objects the {side} bound of {metric} stays {beyond} {best:g}"
    higher = measured.higher_is_better
    if higher is not None and higher != (criterion.sign > 0):
        better, other = ("higher", "at_least") if higher else ("lower", "at_most")
        return f"{limit} accepts the worse models, since a {better} {metric} is better: did you mean {other}?"
    ceiling = (measured.drop_of or measured).ceiling
    if ceiling and criterion.sign < 0 and criterion.threshold >= ceiling.value:
        return f"{limit} cannot fail {ceiling.of}: {metric} is at most {ceiling.value:g} there; {ceiling.instead} can"
    return ""


def _limit(criterion: Criterion) -> str:
    return f"{'at_least' if criterion.sign > 0 else 'at_most'} {criterion.threshold:g}"
