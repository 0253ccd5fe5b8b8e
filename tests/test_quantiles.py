"""Quantiles bounded by order statistics: exact chances by the binomial, ties, too few values, spells in time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from roadworthy.statistics.quantiles import bounding_ranks, fewest_for_bounds, quantile_estimate


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95, 0.99])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_ranks_hold_their_chance_and_none_nearer_does(share: float, confidence: float) -> None:
    """P(l <= B <= u - 1) is the chance that the quantile of a continuous distribution lies between the two."""
    least, tail = fewest_for_bounds(share, confidence), (1 - confidence) / 2
    for count in (least, least + 1, 500, 1000, 4000):
        if count < least:
            continue
        low, high = bounding_ranks(count, share, confidence)
        assert 1 <= low < high <= count
        assert binom.cdf(low - 1, count, share) <= tail < binom.cdf(low, count, share)
        assert binom.sf(high - 1, count, share) <= tail < binom.sf(high - 2, count, share)
        assert low - 1 <= (count - 1) * share <= high - 1, "the value itself lies within"
    for count in {1, least - 1} - {0}:
        low, high = bounding_ranks(count, share, confidence)
        assert low == 0 or high == count + 1


def test_a_worked_example() -> None:
    """Of 6 values, all lie on one side of the median with a chance of 2 / 64: smallest and largest bound it."""
    estimate = quantile_estimate([5.0, 1.0, 4.0, 2.0, 9.0, 3.0], 0.5)
    assert (estimate.value, estimate.lo, estimate.hi, estimate.n) == (3.5, 1.0, 9.0, 6)
    assert quantile_estimate([1.0, 2.0, 3.0, 4.0, 5.0], 0.5).reason.endswith("take at least 6 values, not 5")
    assert quantile_estimate([], 0.5).reason == "no value was measured"
    same = quantile_estimate([2.0] * 400, 0.99)
    assert (same.value, same.lo, same.hi) == (2.0, 2.0, 2.0), "so the quantile is known, whatever the distribution"


def test_too_few_values_have_no_bounds_of_the_99_percent_quantile() -> None:
    random = np.random.default_rng(0)
    few, enough = (quantile_estimate(random.exponential(size=count), 0.99) for count in (367, 368))
    assert "take at least 368 values, not 367" in few.reason
    assert math.isnan(few.hi)
    assert not enough.unbounded
    assert "take at least 250 values, not 249" in quantile_estimate(range(249), 0.5, block=50).reason


def spells(runs: int, count: int, length: int, random: np.random.Generator, apart: int = 100) -> np.ndarray:
    """Times (runs, count) of which a third is slow, in spells; between blocks of 50, `apart` images of others pass."""
    slow = np.zeros((runs, count), bool)
    state = random.random(runs) < 1 / 3
    for turn in range(count):
        for _ in range(1 if turn % 50 else 1 + apart):
            state = np.where(state, random.random(runs) >= 1 / length, random.random(runs) < 0.5 / length)
        slow[:, turn] = state
    return np.where(slow, 10, 0) + random.exponential(size=slow.shape)


@pytest.mark.parametrize("runs", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_bounds_cover_where_slow_spells_come_and_go(runs: int) -> None:
    """Ranks for independent values cover 0.5 to 0.9 here, which is why the blocks are looked at."""
    random = np.random.default_rng(4)
    reference, times = spells(40, 2000, 20, random), spells(runs, 1000, 20, random)
    slack = 3 * math.sqrt(0.05 * 0.95 / runs)
    for share in (0.5, 0.95, 0.99):
        truth = np.quantile(reference, share)
        estimates = [quantile_estimate(own, share, block=50) for own in times]
        bounded = [estimate for estimate in estimates if not estimate.unbounded]
        assert len(bounded) >= 0.9 * runs
        assert np.mean([estimate.lo <= truth <= estimate.hi for estimate in bounded]) >= 0.93 - slack
    naive = [quantile_estimate(own, 0.5) for own in times]
    assert np.mean([own.lo <= np.quantile(reference, 0.5) <= own.hi for own in naive]) < 0.8


@pytest.mark.parametrize("runs", [300, pytest.param(4000, marks=pytest.mark.slow)])
def test_bounds_cover_whatever_the_distribution(runs: int) -> None:
    random = np.random.default_rng(5)
    slack = 3 * math.sqrt(0.05 * 0.95 / runs)
    ticks = random.geometric(0.2, (runs, 1000)).astype(float)
    for times, quantile in (
        (random.pareto(1.5, (runs, 1000)), lambda share: (1 - share) ** (-1 / 1.5) - 1),
        (ticks, lambda share: math.ceil(math.log(1 - share) / math.log(0.8))),
    ):
        for share in (0.5, 0.95, 0.99):
            estimates = [quantile_estimate(own, share, block=block) for own in times for block in (1, 50)]
            assert np.mean([not estimate.unbounded for estimate in estimates]) > 0.98
            held = [own.lo <= quantile(share) <= own.hi for own in estimates if not own.unbounded]
            assert np.mean(held) >= 0.95 - slack


def test_slow_values_in_one_spell_are_worth_few() -> None:
    times = np.append(np.ones(960), np.full(40, 9.0)) + np.linspace(0, 0.1, 1000)
    alone, in_blocks = quantile_estimate(times, 0.95), quantile_estimate(times, 0.95, block=50)
    assert not alone.unbounded
    assert "the slow ones of 1,000 come together, so that these are worth" in in_blocks.reason
