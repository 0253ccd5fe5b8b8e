"""The break point: bounds that cover the true one at their nominal rate, on curves whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from roadworthy.statistics import Estimate, proportion_interval
from roadworthy.statistics.crossings import first_crossing, pointwise_confidence

GRID = np.arange(0.0, 6.0)
GROUPS, FRAMES, SIMULATIONS = 40, 3, 120


def failures(seed: int, truth: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Right answers (images, severities): an image fails where its resistance, mostly its group's, is exceeded.

    Resistances are normal scores, the group's share of their variance is 0.8; P(wrong at s) is truth(s) exactly.
    """
    rng = np.random.default_rng(seed)
    scores = np.sqrt(0.8) * np.repeat(rng.normal(size=GROUPS), FRAMES) + np.sqrt(0.2) * rng.normal(size=GROUPS * FRAMES)
    return norm.cdf(scores)[:, None] >= truth(GRID)[None]


def measured(right: np.ndarray, confidence: float = 0.95) -> list[Estimate]:
    groups = np.repeat(np.arange(GROUPS), FRAMES)
    return [proportion_interval(column.astype(float), groups, confidence) for column in right.T]


def not_below(hits: int, tries: int, rate: float) -> bool:
    """Whether a rate of at least that much is not rejected at 1 %."""
    return bool(binom.cdf(hits, tries, rate) > 0.01)


CURVES = {
    "rising": (lambda s: 0.02 + 0.06 * s, 0.8, 3.0),
    "steep": (lambda s: norm.cdf((s - 2.2) / 0.3), 0.9, 2.2 - 0.3 * norm.ppf(0.9)),
    "on the grid": (lambda s: 0.01 + 0.045 * s, 0.91, 2.0 - 1e-9),
    "nearly flat": (lambda s: 0.2 + 0.0002 * (s - 2.5), 0.8, 2.5),
    "comes back": (lambda s: 0.1 + 0.25 * np.sin(s) ** 2, 0.8, math.asin(math.sqrt(0.4))),
}


@pytest.mark.parametrize("name", CURVES)
def test_intervals_cover_the_true_first_crossing(name: str) -> None:
    truth, threshold, true = CURVES[name]
    covered = 0
    for seed in range(SIMULATIONS):
        point = first_crossing(GRID, measured(failures(seed, truth), 0.8), threshold)
        assert point.severity.lo <= point.severity.value <= point.severity.hi
        covered += point.severity.lo <= true <= point.severity.hi
    assert not_below(covered, SIMULATIONS, 0.8), covered


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("name", CURVES)
def test_intervals_cover_the_true_break_point_in_many_simulations(name: str, confidence: float) -> None:
    truth, threshold, true = CURVES[name]
    points = [first_crossing(GRID, measured(failures(s, truth), confidence), threshold).severity for s in range(1000)]
    assert not_below(sum(point.lo <= true <= point.hi for point in points), len(points), confidence)


def test_bounds_that_ignore_groups_would_miss_too_often() -> None:
    """What the test above can see: frames taken for independent images cover far less than they say."""
    truth, threshold, true = (lambda s: 0.1 + 0.0001 * s), 0.89955, 4.5
    covered = 0
    for seed in range(SIMULATIONS):
        right = failures(seed, truth)
        curve = [proportion_interval(column.astype(float), np.arange(len(column)), 0.8) for column in right.T]
        point = first_crossing(GRID, curve, threshold).severity
        covered += point.lo <= true <= point.hi
    assert not not_below(covered, SIMULATIONS, 0.8), covered


def test_a_metric_that_never_crosses_is_beyond_the_last_level_with_a_bound() -> None:
    beyond, held = 0, 0
    for seed in range(60):
        point = first_crossing(GRID, measured(failures(seed, lambda s: 0.01 + 0.004 * s), 0.8), 0.9).severity
        beyond += point.value == math.inf and point.reason == "beyond level 5" and point.hi == math.inf
        assert point.lo <= 5
    assert beyond == 60
    # A curve that breaks at 4.9: the answer is often `beyond`, and its one-sided bound must hold still.
    for seed in range(SIMULATIONS):
        point = first_crossing(GRID, measured(failures(seed, lambda s: 0.05 + 0.05 / 4.9 * s), 0.8), 0.9).severity
        held += point.lo <= 4.9
    assert not_below(held, SIMULATIONS, 0.9), held


def cells(values: list[float], half: float = 0.02) -> list[Estimate]:
    return [Estimate(v, v - half, v + half, n=50, groups=10) for v in values]


def test_examples_by_hand() -> None:
    point = first_crossing([0, 1, 2, 3], cells([0.99, 0.95, 0.85, 0.7]), 0.9)
    assert (point.severity.value, point.severity.lo, point.severity.hi) == (pytest.approx(1.5), 1, 2)
    assert (point.before, point.after, point.severity.groups, point.severity.reason) == (1, 2, 10, "")
    mirrored = first_crossing([0, 1, 2, 3], cells([0.01, 0.05, 0.15, 0.3]), 0.1, sign=-1).severity
    assert (mirrored.value, mirrored.lo, mirrored.hi) == (pytest.approx(1.5), 1, 2)
    back = first_crossing([0, 1, 2, 3, 4], cells([0.99, 0.8, 0.7, 0.99, 0.99]), 0.9)
    assert back.severity.reason == "not monotone: it meets the threshold again at 3"
    assert (back.severity.lo, back.severity.hi, back.back_at) == (0, math.inf, 3)
    noisy = first_crossing([0, 1, 2, 3], cells([0.99, 0.895, 0.905, 0.7]), 0.9)
    assert noisy.severity.reason == "", "within its bounds a curve that comes back says nothing"
    undisturbed = first_crossing([0, 1], cells([0.8, 0.7]), 0.9).severity
    assert (undisturbed.value, undisturbed.lo, undisturbed.hi) == (0, 0, 0)
    assert "undisturbed" in undisturbed.reason
    few = first_crossing([0, 1], cells([0.95, 0.92], half=0.2), 0.9).severity
    assert (few.value, few.lo, few.hi) == (math.inf, 0, math.inf)
    exact = first_crossing([0, 1, 2], cells([0.9, 0.9, 0.8], half=0.0), 0.9).severity
    assert (exact.value, exact.lo, exact.hi) == (1, 1, 2), "at the threshold it is met"
    lacking = first_crossing([0, 1], [*cells([0.9]), Estimate(math.nan, reason="case failed: no power")], 0.9).severity
    assert lacking.missing
    assert lacking.reason == "case failed: no power"


@pytest.mark.parametrize("grid", [[0.5, 1], [0, 1, 1], [0, 2, 1], [0]])
def test_a_grid_rises_from_zero(grid: list[float]) -> None:
    with pytest.raises(ValueError, match="severities"):
        first_crossing(grid, cells([0.9] * len(grid)), 0.5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=9), st.floats(0, 1), st.floats(0, 0.3))
def test_the_estimate_lies_within_its_bounds(values: list[float], threshold: float, half: float) -> None:
    grid = list(range(len(values)))
    curve = cells(values, half)
    point = first_crossing(grid, curve, threshold).severity
    assert 0 <= point.lo <= point.value <= point.hi
    flipped = first_crossing(grid, [Estimate(-c.value, -c.hi, -c.lo, n=1, groups=1) for c in curve], -threshold, -1)
    assert (flipped.severity.value, flipped.severity.lo, flipped.severity.hi) == (point.value, point.lo, point.hi)
    wider = first_crossing(grid, cells(values, half + 0.1), threshold).severity
    assert wider.lo <= point.lo
    assert wider.hi >= point.hi


def test_a_second_look_splits_the_error() -> None:
    assert pointwise_confidence(0.9, looks=2) == pytest.approx(0.95)
