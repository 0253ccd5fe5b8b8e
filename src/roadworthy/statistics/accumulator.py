"""Metrics that are fed batch by batch: probabilities and labels in, estimates with bounds out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.metrics import Answers, Metric, find_metric
from roadworthy.metrics.answers import answers_of
from roadworthy.metrics.base import AnswerRows
from roadworthy.statistics.bootstrap import TAIL_RESAMPLES
from roadworthy.statistics.estimates import CONFIDENCE, RESAMPLES, Estimate, bounding_bootstrap, no_estimate
from roadworthy.statistics.summaries import Objects, summarise_metrics

COLUMNS = tuple(column.name for column in fields(Answers) if column.name != "num_classes")
MOST_SEED, MOST_RESAMPLES = 2**64 - 1, 10**6
NO_GROUPS = "no bounds: which images show the same object was not said (`groups=`)"


class Accumulator:
    """Metrics of answers that come batch by batch. Neither the order nor the size of the batches changes a result.

    metrics     names of registered metrics, or `Metric` objects
    confidence  of the two-sided bounds;  seed, resamples: of the bootstrap behind the bounds that need one

    It keeps five numbers and the group of every image, never the probabilities.

    >>> meter = Accumulator(["accuracy", "ece"])
    >>> meter.update([[0.9, 0.1], [0.4, 0.6]], [0, 0], groups=["sign 1", "sign 2"])
    >>> meter.update([[0.2, 0.8]], [1], groups=["sign 3"])
    >>> accuracy = meter.compute()["accuracy"]
    >>> round(accuracy.value, 3), round(accuracy.lo, 3), round(accuracy.hi, 3), accuracy.groups
    (0.667, 0.208, 0.939, 3)
    """

    def __init__(
        self,
        metrics: str | Metric | Iterable[str | Metric],
        *,
        confidence: float = CONFIDENCE,
        seed: int = 0,
        resamples: int = RESAMPLES,
    ) -> None:
        check_bounds(confidence, seed, resamples)
        self.metrics = chosen_metrics(metrics)
        self.confidence, self.seed, self.resamples = confidence, seed, resamples
        self._answers: list[Answers] = []
        self._groups: list[NDArray[np.str_]] | None = []

    def __len__(self) -> int:
        """How many images it has been given."""
        return sum(map(len, self._answers))

    def update(
        self,
        probabilities: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        log_odds: ArrayLike | None = None,
    ) -> None:
        """Add a batch: probabilities (n, K), labels (n,) and, where they are known, groups (n,) and log-odds (n,).

        A group is the physical object that an image shows: frames of one sign share it. Log-odds are those of the
        predicted class, from logits: they put in order what was rounded to a probability of 1. Both are given with
        every batch or with none. What cannot be used is an `InputError`, and leaves everything as it was.
        """
        try:
            rows, classes = np.asarray(probabilities, np.float64), np.asarray(labels)
        except (TypeError, ValueError):
            raise InputError("probabilities (n, K) and labels (n,) must be numbers in rows of one length") from None
        answers = answers_of(rows, classes)
        if log_odds is not None:
            try:
                answers = replace(answers, log_odds=np.asarray(log_odds, np.float64))
            except (TypeError, ValueError):
                raise InputError(f"`log_odds=` must be a finite number for each of {len(answers)} images") from None
        if self._answers and answers.num_classes != self._answers[0].num_classes:
            raise InputError(
                f"probabilities have {answers.num_classes} classes, those before {self._answers[0].num_classes}"
            )
        names = None if groups is None else _group_names(groups)
        if names is not None and names.shape != (len(answers),):
            raise InputError(f"`groups=` must name an object for each of {len(answers)} images, not {names.shape}")
        if self._answers and (names is None) != (self._groups is None):
            raise InputError("`groups=` must be given with every batch or with none")
        if self._answers and (answers.log_odds is None) != (self._answers[0].log_odds is None):
            raise InputError("`log_odds=` must be given with every batch or with none")
        self._answers.append(answers)
        self._groups = None if names is None else [*(self._groups or ()), names]

    def compute(self) -> dict[str, Estimate]:
        """Every metric by name, over all that was given; bounds count groups, and are missing where there are none."""
        if not len(self):
            return {metric.name: no_estimate("no images") for metric in self.metrics}
        known = [name for name in COLUMNS if getattr(self._answers[0], name) is not None]
        columns = {name: np.concatenate([getattr(part, name) for part in self._answers]) for name in known}
        groups = None if self._groups is None else np.concatenate(self._groups)
        order = np.lexsort([*columns.values(), *([] if groups is None else [groups])])
        answers = Answers(
            **{name: column[order] for name, column in columns.items()}, num_classes=self._answers[0].num_classes
        )
        return estimates(
            self.metrics,
            answers,
            None if groups is None else groups[order],
            confidence=self.confidence,
            seed=self.seed,
            resamples=self.resamples,
        )

    def reset(self) -> None:
        """Forget all that was given."""
        self._answers, self._groups = [], []

    def merge(self, other: Accumulator) -> None:
        """Add all that another one was given, such as that of another process."""
        if other._answers and self._answers:
            if other._answers[0].num_classes != self._answers[0].num_classes:
                raise InputError("the two accumulators were given answers with different numbers of classes")
            if (other._groups is None) != (self._groups is None):
                raise InputError("one of the two accumulators was given groups and the other was not")
            if (other._answers[0].log_odds is None) != (self._answers[0].log_odds is None):
                raise InputError("one of the two accumulators was given log-odds and the other was not")
        if other._answers:
            self._groups = None if other._groups is None else [*(self._groups or ()), *other._groups]
            self._answers = [*self._answers, *other._answers]


def check_bounds(confidence: float, seed: int = 0, resamples: int = RESAMPLES) -> None:
    """Refuse settings of bounds that cannot be: a confidence outside (0, 1), a seed below 0, too few resamples."""
    if isinstance(confidence, bool) or not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise InputError(f"confidence must be a number between 0 and 1, not {confidence!r}")
    limits = (("seed", seed, 0, MOST_SEED), ("resamples", resamples, 4 * TAIL_RESAMPLES, MOST_RESAMPLES))
    for name, value, low, high in limits:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
            raise InputError(f"{name} must be a whole number from {low:,} to {high:,}, not {value!r}")


def _group_names(groups: ArrayLike) -> NDArray[np.str_]:
    """The groups of a batch as texts; what is neither a text nor a whole number is an `InputError`."""
    try:
        column = np.asarray(groups, object) if isinstance(groups, list | tuple) else np.asarray(groups)
    except (TypeError, ValueError):
        column = np.array([None])
    is_plain = column.dtype.kind in "Uiu" or not column.size
    if not is_plain and column.dtype.kind in "OT":
        is_plain = all(isinstance(one, str | int | np.integer) and not isinstance(one, bool) for one in column.flat)
    if not is_plain:
        raise InputError("`groups=` are texts or whole numbers, one per image, which name the object that it shows")
    return column.astype(np.str_)


def estimates(
    metrics: Iterable[Metric],
    answers: AnswerRows,
    groups: ArrayLike | None = None,
    *,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Estimate]:
    """Metrics of answers by name, as the tables of a run give them: bounds count the groups (n,), without them none.

    >>> answers = Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    >>> estimates([find_metric("accuracy")], answers)["accuracy"].value
    0.5
    """
    chosen = list(metrics)
    if groups is None:
        results = {metric.name: metric.measure(answers) for metric in chosen}
        return {
            name: Estimate(float(result.values[0]), n=len(answers), reason=result.reason or NO_GROUPS)
            for name, result in results.items()
        }
    bounded = {metric.name: metric.multiple_of or metric for metric in chosen}
    factors = {metric.name: metric.factor(answers.num_classes) if metric.factor else 1.0 for metric in chosen}
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    bootstrap = bounding_bootstrap(groups, resamples, seed)
    summary = summarise_metrics([answers], list(dict.fromkeys(bounded.values())), bootstrap)
    objects = Objects(np.asarray(index, np.int64), len(names), answers.num_classes)
    return {
        name: replace(
            objects.estimate([summary], whole, confidence).scaled(factors[name]), n=len(answers), groups=len(names)
        )
        for name, whole in bounded.items()
    }


def chosen_metrics(metrics: str | Metric | Iterable[str | Metric]) -> tuple[Metric, ...]:
    """Metrics of answers by their names, or as they are; none, and one of something else, is an `InputError`.

    >>> [metric.name for metric in chosen_metrics("ece")]
    ['ece']
    """
    listed: list[Any] = [metrics] if isinstance(metrics, str | Metric) else list(metrics)
    chosen = tuple(dict.fromkeys(one if isinstance(one, Metric) else find_metric(one) for one in listed))
    if not chosen:
        raise InputError("name at least one metric")
    for metric in chosen:
        if not metric.is_of_answers:
            raise InputError(f"the metric {metric.name} is not computed from answers alone: leave it out")
    return chosen
