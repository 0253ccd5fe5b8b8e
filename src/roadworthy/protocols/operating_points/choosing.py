"""Choosing a threshold from the held-out images of a run, and what would follow on its test data. It only reads."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from roadworthy.core.errors import InputError
from roadworthy.core.types import LOG_ODDS, UNDISTURBED
from roadworthy.core.validation import validated
from roadworthy.monitors.threshold import allowed_images
from roadworthy.protocols.base import BySource
from roadworthy.protocols.base import Evidence as AnyEvidence
from roadworthy.protocols.operating_points.facts import of_log_odds
from roadworthy.protocols.operating_points.keys import ConditionKey
from roadworthy.protocols.operating_points.metrics import ACCEPTED_WRONG, REJECTED_RIGHT
from roadworthy.protocols.operating_points.rates import inside_estimate
from roadworthy.protocols.operating_points.settings import NAME, Cost
from roadworthy.protocols.operating_points.tables import Evidence
from roadworthy.protocols.operating_points.thresholds import Fixed, Shown, cheapest_threshold
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import CONFIDENCE

COSTS = ("accepted_wrong", "rejected_right")
"""What a cost may name here: no outliers are held out in a run that is there."""


@dataclass(frozen=True)
class ThresholdChoice:
    """A threshold for one model, chosen on held-out images, and what it does there and on test images.

    reject          the share of held-out images that lie below the threshold: what to write into a study
    images, answers how many held-out images there are, and answers to them in all repeats
    held_out, price silent failures, and right answers rejected, of held-out images
    test, test_price  the same of undisturbed test images
    worst, worst_at silent failures under the worst condition, and which it is
    outliers, worst_set  the share of accepted outliers of the worst set, and which it is
    reason          why there is no such threshold; the other fields are those of rejecting everything then
    """

    source: str
    model: str
    score: str
    threshold: float
    reject: float
    images: int
    answers: int
    held_out: Estimate
    price: Estimate
    test: Estimate
    test_price: Estimate
    worst: Estimate | None = None
    worst_at: str = ""
    outliers: Estimate | None = None
    worst_set: str = ""
    reason: str = ""

    def lines(self) -> Iterator[str]:
        """The choice in words: what to write, then what it does on held-out and on test images."""
        of_source = f" on {self.source}" if self.source else ""
        if self.reason:
            yield f"{self.model}{of_source}: no threshold: {self.reason}"
            return
        written = "threshold above all scores, which rejects everything"
        if self.reject == 0:
            lowest = f"{self.threshold:.6g}" if self.score != LOG_ODDS else rounded_down(float(expit(self.threshold)))
            written = f"write {NAME}: {{threshold: {lowest}}}: no held-out image has to be rejected"
        elif self.reject < 1:
            share = written_share(self.reject, self.answers)
            probability = of_log_odds(self.threshold) if self.score == LOG_ODDS else ""
            written = f"write {NAME}: {{reject: {share}}} (threshold {self.threshold:.6g} on {self.score}{probability})"
        yield f"{self.model}{of_source}: {written}"
        images = f"{self.images:,} held-out images"
        yield f"  {images}: silent failures {_words(self.held_out)}, right but rejected {_words(self.price)}"
        yield f"  test images: silent failures {_words(self.test)}, right but rejected {_words(self.test_price)}"
        if self.worst is not None:
            yield f"  worst condition, {self.worst_at}: silent failures {_words(self.worst)}"
        if self.outliers is not None:
            yield f"  worst set, {self.worst_set}: outliers accepted {_words(self.outliers)}"


def rounded_down(probability: float) -> str:
    """A probability in six digits that are not above it: as a threshold it rejects nothing that lies higher.

    >>> rounded_down(0.12345678), rounded_down(0.99999999)
    ('0.123456', '0.999999')
    """
    return f"{math.floor(1e6 * probability) / 1e6:.6g}"


def written_share(share: float, answers: int) -> str:
    """A share of so many held-out answers in as few digits as give the same threshold again.

    >>> written_share(1 / 3, 3), written_share(0.25, 8)
    ('0.333333333', '0.25')
    """
    count = round(share * answers)
    digits = next(d for d in range(2, 18) if allowed_images(float(f"{share:.{d}g}"), answers) == count)
    return f"{share:.{digits}g}"


def parse_cost(text: str) -> Cost:
    """The costs that a text such as `accepted_wrong=10,rejected_right=1` names.

    >>> parse_cost("accepted_wrong=10,rejected_right=1").accepted_wrong
    10.0
    """
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    content = {name.strip(): value.strip() for name, _, value in parts}
    if set(content) != set(COSTS) or len(parts) != len(COSTS):
        raise InputError(f"a cost is written as {','.join(f'{name}=NUMBER' for name in COSTS)}, not {text!r}")
    return validated(Cost, content, "cost")


def choose_thresholds(
    evidence: AnyEvidence, *, cost: Cost | None = None, accepted_wrong_at_most: float | None = None
) -> list[ThresholdChoice]:
    """A threshold per model: of the least cost, or the lowest whose silent failures have an upper bound that is met.

    The bound is that of 95 % bounds by group on held-out images.
    """
    if (cost is None) == (accepted_wrong_at_most is None):
        raise InputError(
            "say what the threshold is chosen by: `cost='accepted_wrong=10,rejected_right=1'`, or "
            "`accepted_wrong_at_most=0.01`; not both"
        )
    if accepted_wrong_at_most is not None and not 0 < accepted_wrong_at_most < 1:
        raise InputError(f"a rate of silent failures lies between 0 and 1, not {accepted_wrong_at_most}")
    by_source = evidence.by_source if isinstance(evidence, BySource) else {"": evidence}
    choices = []
    for source, own in by_source.items():
        assert isinstance(own, Evidence)
        for model in own.models:
            choices.append(_choose(own, source, model, cost, accepted_wrong_at_most))
    return choices


def _choose(evidence: Evidence, source: str, model: str, cost: Cost | None, at_most: float | None) -> ThresholdChoice:
    scores = evidence.models[model]
    held_out = scores.held_out
    if held_out is None or not len(held_out.scores):
        why = scores.fixed.reason or "the threshold was given by the study"
        raise InputError(f"the run holds no held-out images of {model} to choose a threshold on: {why}")
    objects = np.unique(held_out.groups, return_inverse=True)[1]
    reason = ""
    if cost is not None:
        threshold = cheapest_threshold(held_out.scores, held_out.wrong, cost)[0]
    else:
        assert at_most is not None
        threshold, reason = _lowest_within(held_out, objects, at_most)
    at = copy.copy(evidence)
    at.models = {**evidence.models, model: replace(scores, fixed=Fixed(threshold))}
    decided = [[held_out.decided(threshold)]]
    clean = [key for key in at.conditions if key.model == model and key.shift == UNDISTURBED]
    choice = ThresholdChoice(
        source,
        model,
        scores.score,
        threshold,
        float((held_out.scores < threshold).mean()),
        scores.fixed.images,
        len(held_out.scores),
        inside_estimate(decided, objects, ACCEPTED_WRONG),
        inside_estimate(decided, objects, REJECTED_RIGHT),
        at.estimate(clean, ACCEPTED_WRONG),
        at.estimate(clean, REJECTED_RIGHT),
        reason=reason,
    )
    return _with_worst(choice, at)


def _with_worst(choice: ThresholdChoice, at: Evidence) -> ThresholdChoice:
    """The choice with the worst condition and the worst set of outliers at its threshold."""
    shifted = [key for key in at.conditions if key.model == choice.model and key.shift != UNDISTURBED]
    conditions: list[tuple[Estimate, ConditionKey]] = [(at.estimate([key], ACCEPTED_WRONG), key) for key in shifted]
    conditions = [pair for pair in conditions if not pair[0].missing]
    sets = [(at.set_estimate(key), key) for key in at.sets if key.model == choice.model]
    sets = [pair for pair in sets if not pair[0].missing]
    if conditions:
        worst, key = max(conditions, key=lambda pair: pair[0].value)
        choice = replace(choice, worst=worst, worst_at=str(key))
    if sets:
        accepted, own = max(sets, key=lambda pair: pair[0].value)
        choice = replace(choice, outliers=accepted, worst_set=own.ood_set)
    return choice


def _lowest_within(held_out: Shown, objects: NDArray[np.int64], at_most: float) -> tuple[float, str]:
    """The lowest threshold at which the upper bound of silent failures is at most this, found by halving.

    The bound never rises with the threshold: every image that is rejected leaves the silent failures, or was none.
    """
    values = [*np.unique(held_out.scores).tolist(), math.inf]

    def upper(threshold: float) -> float:
        return inside_estimate([[held_out.decided(threshold)]], objects, ACCEPTED_WRONG, CONFIDENCE).hi

    if upper(math.inf) > at_most:
        groups = len(np.unique(objects))
        return math.inf, (
            f"{groups} held-out groups cannot show that silent failures are at most {at_most:g}, even where everything "
            f"is rejected (upper bound {upper(math.inf):.4f}): hold out more"
        )
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if upper(values[middle]) <= at_most else (middle + 1, high)
    return float(values[low]), ""


def _words(estimate: Estimate) -> str:
    if estimate.missing:
        return f"n/a ({estimate.reason})"
    return f"{100 * estimate.value:.2f} % ({100 * estimate.lo:.2f} to {100 * estimate.hi:.2f} %)"
