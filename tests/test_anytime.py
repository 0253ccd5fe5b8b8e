"""Bounds that hold however often one looks: capital, its martingale, the bounds that follow, and edge values."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.statistics.anytime import SHARES, GroupBets, anytime_interval, can_decide, group_bets

KINDS = np.array([(0.0, 1.0), (1.0, 1.0), (0.25, 3.0), (2.5, 3.0)])
"""Groups of a small distribution: the sum of their values, and their size."""


@given(st.lists(st.integers(1, 20), min_size=4, max_size=4), st.integers(3, 5))
@settings(max_examples=25, deadline=None)
def test_capital_is_a_martingale_at_the_threshold(weights: list[int], largest: int) -> None:
    """Over all sequences of three groups its mean is exactly 1 after each of them, on both sides."""
    chance = np.array(weights) / sum(weights)
    mean = float(chance @ KINDS[:, 0] / (chance @ KINDS[:, 1]))
    expected = np.zeros((2, 3))
    for sequence in product(range(4), repeat=3):
        bets = GroupBets(KINDS[list(sequence), 0], KINDS[list(sequence), 1], largest)
        paths = np.exp([bets.log_capital(mean), bets.mirrored().log_capital(1 - mean)])
        expected += np.prod(chance[list(sequence)]) * paths
    np.testing.assert_allclose(expected, 1, rtol=1e-12)


def test_capital_and_bound_have_a_closed_form_where_all_are_right() -> None:
    right = np.ones(50)
    bets = group_bets(right, np.arange(50), 1, 0.0, 1.0)
    expected = np.mean((1 + SHARES * (1 / 0.9 - 1)) ** 50)
    assert math.exp(bets.log_capital(0.9)[-1]) == pytest.approx(expected)
    estimate = anytime_interval(right, np.arange(50), 1)
    bound = np.mean((1 + SHARES * (1 / estimate.lo - 1)) ** 50)
    assert bound == pytest.approx(40, rel=1e-3), "the capital at the bound is 1 / 2.5 %"
    assert (estimate.value, estimate.hi, estimate.n, estimate.groups) == (1.0, 1.0, 50, 50)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0.0, 0.25, 1.0])), min_size=1, max_size=80),
    st.floats(0.05, 0.95),
    st.sampled_from([0.5, 0.8, 0.95]),
)
@settings(max_examples=60, deadline=None)
def test_bounds_exclude_a_threshold_only_where_its_capital_was_reached(
    rows: list[tuple[int, float]], threshold: float, confidence: float
) -> None:
    groups, values = np.array([g for g, _ in rows]), np.array([v for _, v in rows])
    largest = int(np.bincount(groups).max())
    estimate = anytime_interval(values, groups, largest, confidence=confidence)
    bets = group_bets(values, groups, largest, 0.0, 1.0)
    if not estimate.reason and abs(estimate.lo - threshold) > 1e-5 < abs(estimate.hi - threshold):
        assert can_decide(bets, threshold, confidence) == (not estimate.lo <= threshold <= estimate.hi)
    capital = [bets.evidence(mean) for mean in (0.2, 0.4, 0.6, 0.8)]
    assert capital == sorted(capital, reverse=True), "the higher the mean, the less there is against being below it"


def test_what_was_excluded_stays_excluded() -> None:
    values = np.array([1.0] * 60 + [0.0] * 10)
    before, after = (anytime_interval(values[:n], np.arange(n), 1) for n in (60, 70))
    assert after.lo >= before.lo > 0.89 > after.value
    turned = np.array([1.0] * 60 + [0.0] * 300)
    contradicted = anytime_interval(turned, np.arange(360), 1)
    assert contradicted.unbounded
    assert "contradict" in contradicted.reason


def test_frames_of_one_object_are_one_bet() -> None:
    """Thirty right answers to one object say far less than to thirty."""
    right = np.ones(30)
    one, many = anytime_interval(right, np.zeros(30), 30), anytime_interval(right, np.arange(30), 1)
    assert one.lo < 0.2 < 0.8 < many.lo
    assert one.groups == 1


def test_a_larger_largest_group_costs_and_a_smaller_one_is_refused() -> None:
    values, groups = np.ones(20), np.repeat(np.arange(10), 2)
    assert anytime_interval(values, groups, 50).lo < anytime_interval(values, groups, 2).lo
    with pytest.raises(ValueError, match="more than the 1 fixed in advance"):
        anytime_interval(values, groups, 1)


def test_edge_values() -> None:
    assert anytime_interval(np.zeros(0), [], 1).reason == "no images"
    at_threshold = group_bets(np.full(500, 0.5), np.arange(500), 1, 0.0, 1.0)
    assert not can_decide(at_threshold, 0.5, 0.5), "values that all lie at the threshold never decide"
    right = group_bets(np.ones(500), np.arange(500), 1, 0.0, 1.0)
    assert not can_decide(right, 1.0, 0.95), "no number of right answers shows that none is ever wrong"
    wrong_once = group_bets(np.array([1.0, 1.0, 0.0]), np.arange(3), 1, 0.0, 1.0)
    assert can_decide(wrong_once, 1.0, 0.95), "a single wrong answer shows that not all are right"
    assert can_decide(wrong_once, 0.0, 0.95), "a single right answer shows that not all are wrong"
    with pytest.raises(ValueError, match=r"values must lie in \[0.0, 1.0\]"):
        anytime_interval(np.array([1.5]), [0], 1)
