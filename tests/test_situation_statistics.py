"""Expected situations as arithmetic: closed forms by hand, laws, and how often the bounds hold."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from roadworthy.statistics import Estimate, mean_interval, proportion_interval, wilson
from roadworthy.statistics.expectation import (
    JOINT,
    SHARED_OBJECTS,
    SituationSample,
    expected_value,
    joint_confidence,
    share_met,
    situation_confidence,
    status_of,
)

Rows = list[list[float]]


def sample(shares: list[float], values: Rows, groups: list[str]) -> SituationSample:
    return SituationSample(np.array(shares), np.array(values, dtype=np.float64), np.array(groups, dtype=object))


DAY = sample([0.6, 0.2, 0.1], [[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0]], [*"aabbcc"])
NIGHT = sample([0.1], [[1, 0, 1, 0]], [*"ddef"])


def test_the_expectation_and_its_bounds_are_those_computed_by_hand() -> None:
    """Three situations on six frames of three objects, and a recorded set of four frames of three others."""
    estimate = expected_value([DAY, NIGHT], 0, 1)
    assert estimate.value == pytest.approx(0.6 * 5 / 6 + 0.2 * 3 / 6 + 0.1 * 1 / 6 + 0.1 * 2 / 4)
    by_image = [0.8 / 0.9, 0.8 / 0.9, 0.9 / 0.9, 0.6 / 0.9, 0.6 / 0.9, 0.0]
    day = mean_interval(np.round(by_image, 12), [*"aabbcc"], 0, 1)
    night = mean_interval([1, 0, 1, 0], [*"ddef"], 0, 1)
    below = math.sqrt((0.9 * (day.value - day.lo)) ** 2 + (0.1 * (night.value - night.lo)) ** 2)
    above = math.sqrt((0.9 * (day.hi - day.value)) ** 2 + (0.1 * (night.hi - night.value)) ** 2)
    assert (estimate.lo, estimate.hi) == pytest.approx((estimate.value - below, estimate.value + above))
    assert (estimate.n, estimate.groups, estimate.reason) == (10, 6, "")
    assert "squared and added" in estimate.method


def test_an_object_in_two_samples_has_bounds_that_hold_whatever_their_dependence() -> None:
    night = sample([0.1], [[1, 0, 1, 0]], [*"aaef"])
    estimate = expected_value([DAY, night], 0, 1)
    parts = [
        mean_interval(DAY.per_image(), DAY.groups, 0, 1, 0.975),
        mean_interval([1, 0, 1, 0], [*"aaef"], 0, 1, 0.975),
    ]
    assert estimate.lo == pytest.approx(0.9 * parts[0].lo + 0.1 * parts[1].lo)
    assert estimate.hi == pytest.approx(0.9 * parts[0].hi + 0.1 * parts[1].hi)
    assert (estimate.groups, estimate.reason) == (5, SHARED_OBJECTS)
    assert JOINT in estimate.method
    independent = expected_value([DAY, NIGHT], 0, 1)
    assert estimate.lo < independent.lo


def test_a_metric_with_another_range_is_scaled() -> None:
    """A Brier score is bounded as the same values in a range from 0 to 1 are."""
    doubled = [replace(part, values=2 * part.values) for part in (DAY, NIGHT)]
    one, two = expected_value([DAY, NIGHT], 0, 1), expected_value(doubled, 0, 2)
    assert (two.value, two.lo, two.hi) == pytest.approx((2 * one.value, 2 * one.lo, 2 * one.hi))


@st.composite
def situations(draw: st.DrawFn) -> SituationSample:
    images, count = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(st.integers(0, 1), min_size=images, max_size=images), min_size=count, max_size=count))
    weights = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    groups = draw(st.lists(st.sampled_from("abcd"), min_size=images, max_size=images))
    return sample([weight / sum(weights) for weight in weights], [[*map(float, row)] for row in rows], groups)


@settings(max_examples=60, deadline=None)
@given(situations())
def test_a_single_situation_has_its_own_estimate_and_neither_order_nor_a_split_weight_counts(
    shown: SituationSample,
) -> None:
    expected = partial(expected_value, low=0, high=1, proportion=True)
    alone = expected([SituationSample(np.ones(1), shown.values[:1], shown.groups)])
    assert alone == proportion_interval(shown.values[0], shown.groups)
    whole = expected([shown])
    turned = expected([SituationSample(shown.shares[::-1], shown.values[::-1], shown.groups)])
    shares = np.array([0.3 * shown.shares[0], *shown.shares[1:], 0.7 * shown.shares[0]])
    split = expected([SituationSample(shares, np.concatenate([shown.values, shown.values[:1]]), shown.groups)])
    for other in (turned, split):
        assert (other.value, other.lo, other.hi) == pytest.approx((whole.value, whole.lo, whole.hi), abs=1e-9)
    means = shown.values.mean(axis=1)
    assert whole.value == pytest.approx(float(shown.shares @ means))
    assert 0 <= whole.lo <= whole.value <= whole.hi <= 1


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_edges_one_image_all_right_all_wrong(right: float) -> None:
    one = expected_value([sample([1.0], [[right]], ["a"])], 0, 1, proportion=True)
    assert (one.value, one.lo, one.hi) == (right, *wilson(right, 1))
    many = [sample([0.5], [[right] * 20], [str(n) for n in range(20)]), sample([0.5], [[right] * 9], [*"abcdefghi"])]
    both = expected_value(many, 0, 1)
    assert both.value == right
    assert 0 <= both.lo <= right <= both.hi <= 1
    assert both.lo < both.hi
    with pytest.raises(ValueError, match="add up to 1"):
        expected_value([sample([0.5], [[right]], ["a"])], 0, 1)
    with pytest.raises(ValueError, match="add up to 1"):
        expected_value([], 0, 1)
    with pytest.raises(ValueError, match="shares above 0"):
        expected_value([sample([1.0], [[right]], ["a"]), sample([0.0], [[right]], ["b"])], 0, 1)


def drawn(rng: np.random.Generator, objects: int, levels: list[float], prefix: str) -> tuple[np.ndarray, list[str]]:
    """Right answers (K, 4 frames of each object): 7 of 10 objects are easy, the others succeed in 6 of 10 frames."""
    ease = np.where(rng.random(objects) < 0.7, 1.0, 0.6).repeat(4)
    right = [(rng.random(len(ease)) < level * ease).astype(float) for level in levels]
    return np.stack(right), [f"{prefix}{index // 4}" for index in range(len(ease))]


MEAN = 0.7 + 0.3 * 0.6
LEVELS, SHARES = [1.0, 0.8, 0.5], [0.6, 0.2, 0.1]
TRUE = MEAN * (0.6 * 1.0 + 0.2 * 0.8 + 0.1 * 0.5 + 0.1 * 0.4)
"""The closed form: each situation's accuracy is its level times the mean ease of objects."""


def misses(simulations: int, counted: bool = False) -> tuple[int, int]:
    """How often the interval lies above, and below, the true expectation."""
    above = below = 0
    for seed in range(simulations):
        rng = np.random.default_rng([seed, counted])
        day, night = drawn(rng, 40, LEVELS, "day"), drawn(rng, 15, [0.4], "night")
        counts = rng.multinomial(30, [*SHARES, 0.1]) if counted else None
        shares = np.array([*SHARES, 0.1]) if counts is None else counts / 30
        samples = [
            SituationSample(shares[:3], day[0], np.array(day[1], dtype=object)),
            SituationSample(shares[3:], night[0], np.array(night[1], dtype=object)),
        ]
        seen = [own for own in samples if own.share > 0]  # who counts lists what was observed
        known = counts if counts is None else counts[: sum(len(own.shares) for own in seen)]
        estimate = expected_value(seen, 0, 1, proportion=True, counts=known)
        above, below = above + (estimate.lo > TRUE), below + (estimate.hi < TRUE)
    return above, below


@pytest.mark.parametrize("counted", [False, True])
def test_bounds_hold_as_often_as_they_say(counted: bool) -> None:
    """Against the closed form, with frames of one object alike: misses of either side are no more than 2.5 %."""
    simulations = 150
    most = binom.ppf(0.99, simulations, 0.025)
    assert max(misses(simulations, counted)) <= most


def test_shares_by_hand_met_missed_and_undecided() -> None:
    joint = [Estimate(0.99, 0.97, 1.0), Estimate(0.92, 0.85, 0.96), Estimate(0.88, 0.80, 0.93), Estimate(0.5, 0.4, 0.6)]
    result = share_met([0.7, 0.15, 0.1, 0.05], joint, 0.9)
    assert (result.share.value, result.share.lo, result.share.hi) == (0.85, 0.7, 0.95)
    assert (result.missed, result.undecided) == (0.05, 0.25)
    assert result.statuses == ("met", "undecided", "undecided", "missed")
    assert result.share.lo + result.undecided + result.missed == pytest.approx(1)
    mirrored = [Estimate(1 - e.value, 1 - e.hi, 1 - e.lo) for e in joint]
    assert share_met([0.7, 0.15, 0.1, 0.05], mirrored, 0.1, -1).statuses == result.statuses


def test_the_threshold_itself_is_met_and_a_situation_without_bounds_is_undecided() -> None:
    assert status_of(Estimate(0.9, 0.9, 1.0), 0.9) == "met"
    assert status_of(Estimate(0.8, 0.7, 0.9), 0.9) == "undecided"
    assert status_of(Estimate(0.1, 0.0, 0.1), 0.1, sign=-1) == "met"
    lost = share_met([0.4, 0.6], [Estimate(math.nan, reason="case failed"), Estimate(1.0, 0.95, 1.0)], 0.9)
    assert (lost.share.value, lost.share.lo, lost.share.hi, lost.undecided) == (0.6, 0.6, 1.0, 0.4)


def test_counted_frequencies_widen_the_share_by_wilson() -> None:
    joint = [Estimate(0.99, 0.97, 1.0), Estimate(0.5, 0.4, 0.6)]
    result = share_met([0.9, 0.1], joint, 0.9, counts=[90, 10])
    assert result.share.value == 0.9
    assert (result.share.lo, result.share.hi) == (wilson(90, 100, 0.975)[0], wilson(90, 100, 0.975)[1])
    assert situation_confidence(0.95, 2, counted=True) == joint_confidence(0.95, 4) == 0.9875


def test_the_share_met_holds_for_all_situations_together() -> None:
    """Thresholds at a true value are the hardest: what is shown must be true in 95 of 100 studies, for all at once."""
    simulations, wrong = 150, 0
    for seed in range(simulations):
        values, groups = drawn(np.random.default_rng([seed, 7]), 40, LEVELS, "day")
        within = situation_confidence(0.95, 3)
        joint = [proportion_interval(row, groups, within) for row in values]
        statuses = share_met([0.6, 0.3, 0.1], joint, 0.8 * MEAN).statuses
        true = ["met", "met", "missed"]
        wrong += any(status not in (truth, "undecided") for status, truth in zip(statuses, true, strict=True))
    assert wrong <= binom.ppf(0.99, simulations, 0.05)
