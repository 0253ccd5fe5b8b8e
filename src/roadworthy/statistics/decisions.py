"""Bounds of what a monitor's decisions are worth: rates, correlations and effects, objects as the independent unit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.decisions import (
    CLASS_METRICS,
    DECISION_FUNCTIONS,
    DECISION_METRICS,
    DecisionCounts,
    checked_classes,
    checked_flags,
    class_mcc_of_sums,
    class_sums,
    decision_counts,
    why_undefined,
)
from roadworthy.metrics.selective import risk_coverage, weighted_aurc
from roadworthy.metrics.weighting import ratio
from roadworthy.statistics.bootstrap import GroupBootstrap
from roadworthy.statistics.estimates import CONFIDENCE, LEAST_BOOTSTRAP_GROUPS, RESAMPLES, Estimate, bootstrap_estimate
from roadworthy.statistics.intervals import proportion_interval

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def decision_estimates(
    positive: ArrayLike,
    flagged: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    metrics: Iterable[str] | None = None,
    positive_name: str = "OOD image",
    negative_name: str = "ID image",
) -> dict[str, Estimate]:
    """The metrics of decisions by name, with bounds: positive (N,), flagged (N,) and the group (N,) of each image.

    Rates (fpr, fnr, precision, recall, f1_micro) are proportions of the images that count for them, bounded as
    `proportion_interval` does; mcc, f1_weighted and balanced_accuracy are bounded by resampling objects. `metrics`
    names those wanted, all by default. A metric that does not exist has a reason, in which `positive_name` and
    `negative_name` name an image of either kind.

    >>> should, does = [True] * 50 + [False] * 50, [True] * 45 + [False] * 55
    >>> estimates = decision_estimates(should, does, range(100))
    >>> [f"{name} {estimates[name].value:.3f} {estimates[name].lo:.3f}" for name in ("mcc", "recall")]
    ['mcc 0.905 0.815', 'recall 0.900 0.786']
    """
    should, does = checked_flags(positive=positive, flagged=flagged)
    names = _group_names(groups, len(should))
    wanted = list(DECISION_FUNCTIONS) if metrics is None else list(metrics)
    counts = decision_counts(should, does)
    rates = _rates(should, does)
    limits = {metric.name: metric.limits(2) for metric in DECISION_METRICS}
    resampled: DecisionCounts | None = None
    estimates: dict[str, Estimate] = {}
    for name in wanted:
        reason = why_undefined(name, counts, positive=positive_name, negative=negative_name)
        if reason:
            estimates[name] = Estimate(math.nan, reason=reason)
        elif name in rates:
            values, rows = rates[name]
            estimates[name] = proportion_interval(values[rows], names[rows], confidence)
        else:
            resampled = resampled or _resampled_counts(should, does, names, resamples, seed)
            value, distribution = DECISION_FUNCTIONS[name](counts), DECISION_FUNCTIONS[name](resampled)
            estimates[name] = _bootstrapped(float(value), distribution, names, confidence, limits[name])
    return estimates


def class_mcc_estimates(
    label: ArrayLike,
    prediction: ArrayLike,
    rejected: ArrayLike,
    groups: ArrayLike,
    classes: int,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """The class MCC of a model alone and with a monitor that cancels rejected answers, and its relative change.

        relative_change = (class_mcc - class_mcc_alone) / class_mcc_alone

    `relative_change_perfect` is that of a perfect monitor, which rejects the wrong answers and no other: hardly more
    can be reached on these images. It is small, since a cancelled answer is of one more class that is never right.

    label, prediction, rejected and groups are (N,). All are bounded by resamples of objects, a change is paired. It has
    no value where the class MCC of the model alone is not above 0.

    >>> label = [index % 3 for index in range(60)]
    >>> rejected = [index < 6 for index in range(60)]
    >>> estimates = class_mcc_estimates(label, label, rejected, range(60), classes=3)
    >>> [f"{name} {estimate.value:.3f}" for name, estimate in estimates.items()]
    ['class_mcc_alone 1.000', 'class_mcc 0.866', 'relative_change -0.134', 'relative_change_perfect 0.000']
    """
    labels, answers = checked_classes(label, classes), checked_classes(prediction, classes)
    (cancelled,) = checked_flags(rejected=rejected)
    if not len(labels) == len(answers) == len(cancelled):
        lengths = f"{len(labels)}, {len(answers)} and {len(cancelled)}"
        raise ValueError(f"there must be a label, a prediction and a decision per image, not {lengths}")
    names = _group_names(groups, len(labels))

    def compared(cancels: Bools) -> dict[str, Estimate]:
        together = np.where(cancels, classes, answers)
        values = _compared_mcc(labels, answers, together, names, classes, confidence, resamples, seed)
        reasons = {name: _why_no_class_mcc(name, labels, values) for name, one in values.items() if one.missing}
        return {name: replace(one, reason=reasons.get(name, one.reason)) for name, one in values.items()}

    perfect = compared(labels != answers)["relative_change"]
    perfect = replace(perfect, reason=perfect.reason.replace("with the monitor", "with a perfect monitor"))
    return {**compared(cancelled), "relative_change_perfect": perfect}


def stream_change_estimates(
    prediction: ArrayLike,
    wrong: ArrayLike,
    rejected: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Our figure for a whole stream: the relative change of the MCC between what is wanted and what the system does.

        wanted_i = prediction_i where it is right, cancelled where it is wrong
        done_i   = prediction_i where it is accepted, cancelled where it is rejected
        stream_change = (MCC(wanted, done) - MCC(wanted, prediction)) / MCC(wanted, prediction)

    To cancel is one more class on both sides, so that to cancel a wrong answer is right, to cancel a right one wrong.
    `stream_change_perfect` is that of a perfect monitor, whose MCC is 1; nothing can reach more. A monitor that rejects
    nothing changes nothing. One that rejects a share r at random loses: on average the covariance is 1 - r times that
    of the model alone, while the spread of what is done shrinks by less.

    prediction, wrong, rejected and groups are (N,), images from inside and labelled ones from outside together. There
    is no value where every answer is wrong, or where all that is wanted, answered or done is of one class.

    >>> prediction, wrong = [0, 0, 1, 0, 1, 1], [False, False, False, True, True, False]
    >>> rejected = [False, False, False, True, True, True]
    >>> estimates = stream_change_estimates(prediction, wrong, rejected, range(6))
    >>> {name: round(estimate.value, 3) for name, estimate in estimates.items()}
    {'stream_change': 0.357, 'stream_change_perfect': 0.732}
    """
    mistakes, cancelled = checked_flags(wrong=wrong, rejected=rejected)
    classes = int(np.max(prediction, initial=0)) + 1
    answers = checked_classes(prediction, classes)
    if len(answers) != len(mistakes):
        raise ValueError(f"there must be an answer per image, not {len(answers)} of {len(mistakes)}")
    names = _group_names(groups, len(answers))
    wanted = np.where(mistakes, classes, answers)

    def change(done: NDArray[np.int64], monitor: str) -> Estimate:
        values = _compared_mcc(wanted, answers, done, names, classes, confidence, resamples, seed)
        reasons = {
            "there are no images": not len(wanted),
            "every answer is wrong": mistakes.all(),
            "all answers are of one class": len(np.unique(answers)) == 1,
            f"with {monitor} all answers are of one class, or all are cancelled": values["class_mcc"].missing,
        }
        reason = next((reason for reason, holds in reasons.items() if holds), "")
        return replace(values["relative_change"], reason=reason or values["relative_change"].reason)

    return {
        "stream_change": change(np.where(cancelled, classes, answers), "the monitor"),
        "stream_change_perfect": change(wanted, "a perfect monitor"),
    }


def _compared_mcc(
    labels: NDArray[np.int64],
    answers: NDArray[np.int64],
    changed: NDArray[np.int64],
    names: NDArray[np.generic],
    classes: int,
    confidence: float,
    resamples: int,
    seed: int,
) -> dict[str, Estimate]:
    """Class MCC of answers and of changed answers (0 to `classes`), and its relative change; NaN has no reason."""
    alone, together = class_sums(labels, answers, classes), class_sums(labels, changed, classes)
    columns = np.column_stack([alone[0], together[0], alone[1], together[1], alone[2]])

    def measured(sums: Floats) -> dict[str, Floats]:
        right, by_class = sums[:, :2], np.split(sums[:, 2:], 3, axis=1)
        before = class_mcc_of_sums(right[:, 0], by_class[0], by_class[2])
        after = class_mcc_of_sums(right[:, 1], by_class[1], by_class[2])
        usable = np.where(before > 0, before, 0.0)
        return {"class_mcc_alone": before, "class_mcc": after, "relative_change": ratio(after - before, usable)}

    values = measured(columns.sum(axis=0, keepdims=True, dtype=np.float64))
    distributions = measured(resampled_sums(columns, names, resamples, seed)) if len(names) else values
    limits = {metric.name: metric.limits(classes) for metric in CLASS_METRICS}
    estimates: dict[str, Estimate] = {}
    for name, value in values.items():
        if np.isnan(value[0]):
            estimates[name] = Estimate(math.nan)
        else:
            estimates[name] = _bootstrapped(float(value[0]), distributions[name], names, confidence, limits[name])
    return estimates


def effect_estimates(
    wrong: ArrayLike, rejected: ArrayLike, groups: ArrayLike, confidence: float = CONFIDENCE
) -> dict[str, Estimate]:
    """What a monitor changes for the system, as shares of all images: wrong (N,), rejected (N,), groups (N,).

        safety_gain = P(wrong, rejected)   residual_hazard = P(wrong, accepted)   availability_cost = P(right, rejected)

    >>> estimates = effect_estimates([True, True, False, False], [True, False, True, False], range(4))
    >>> {name: estimate.value for name, estimate in estimates.items()}
    {'safety_gain': 0.25, 'residual_hazard': 0.25, 'availability_cost': 0.25}
    """
    mistakes, cancelled = checked_flags(wrong=wrong, rejected=rejected)
    names = _group_names(groups, len(mistakes))
    effects = {
        "safety_gain": mistakes & cancelled,
        "residual_hazard": mistakes & ~cancelled,
        "availability_cost": ~mistakes & cancelled,
    }
    if not len(names):
        return {name: Estimate(math.nan, reason="there are no images") for name in effects}
    return {name: proportion_interval(values, names, confidence) for name, values in effects.items()}


def aurc_estimate(
    scores: ArrayLike,
    wrong: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The area under risk and coverage of scores (N,) and mistakes (N,), bounded by resampling the groups (N,).

    >>> round(aurc_estimate([0.9, 0.8, 0.8, 0.1], [False, False, True, True], range(4)).value, 4)
    0.2917
    """
    area = risk_coverage(scores, wrong).area
    names = _group_names(groups, len(np.asarray(scores)))
    if math.isnan(area):
        return Estimate(math.nan, reason="there are no images")
    distribution = np.full(resamples, math.nan)
    if len(np.unique(names)) >= LEAST_BOOTSTRAP_GROUPS:
        chunks = GroupBootstrap(names, resamples, seed).chunks()
        distribution = np.concatenate([weighted_aurc(scores, wrong, weights) for weights in chunks])
    return _bootstrapped(area, distribution, names, confidence, (0.0, 1.0))


def _group_names(groups: ArrayLike, images: int) -> NDArray[np.generic]:
    names = np.asarray(groups)
    if names.shape != (images,):
        raise ValueError(f"there must be a group per image, not groups {names.shape} of {images} images")
    return names


def _rates(should: Bools, does: Bools) -> dict[str, tuple[Bools, Bools]]:
    """The metrics that are proportions: whether an image counts as 1, and whether it counts at all."""
    return {
        "fpr": (does, ~should),
        "fnr": (~does, should),
        "precision": (should, does),
        "recall": (does, should),
        "f1_micro": (should == does, np.ones(len(should), dtype=bool)),
    }


def _resampled_counts(
    should: Bools, does: Bools, names: NDArray[np.generic], resamples: int, seed: int
) -> DecisionCounts:
    cells = np.column_stack([should & does, ~should & does, ~should & ~does, should & ~does])
    return DecisionCounts(*resampled_sums(cells, names, resamples, seed).T)


def resampled_sums(
    columns: NDArray[np.integer] | Bools, names: NDArray[np.generic], resamples: int, seed: int
) -> Floats:
    """Sums of whole numbers (N, C) over the images of resampled groups: (resamples, C), all exact.

    Groups are drawn with replacement. Those with equal sums are of one kind, and how often each kind is drawn is
    multinomial: the same law as drawing group by group, at the cost of the kinds alone. The draws do not depend on the
    order of the images or on the names of the groups.
    """
    unique, index = np.unique(names, return_inverse=True)
    starts = np.append(0, np.cumsum(np.bincount(index))[:-1])
    by_group = np.add.reduceat(columns[np.argsort(index, kind="stable")].astype(np.int64), starts, axis=0)
    as_bytes = np.ascontiguousarray(by_group, dtype=">i8").view(f"V{8 * by_group.shape[1]}").ravel()
    _, first, times = np.unique(as_bytes, return_index=True, return_counts=True)
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
    drawn = generator.multinomial(len(unique), times / len(unique), size=resamples)
    return np.asarray(drawn.astype(np.float64) @ by_group[first].astype(np.float64))


def _bootstrapped(
    value: float, distribution: Floats, names: NDArray[np.generic], confidence: float, limits: tuple[float, float]
) -> Estimate:
    estimate = bootstrap_estimate(value, distribution, len(np.unique(names)), confidence, limits)
    return replace(estimate, n=len(names))


def _why_no_class_mcc(metric: str, labels: NDArray[np.int64], values: Mapping[str, Estimate]) -> str:
    if not len(labels):
        return "there are no images"
    if (labels == labels[0]).all():
        return "all images are of one class"
    if metric != "class_mcc" and values["class_mcc_alone"].missing:
        return "all answers are of one class"
    if values["class_mcc"].missing:
        return "with the monitor all answers are of one class, or all are cancelled"
    return "the class MCC of the model alone is not above 0"
