"""Paired tests: textbook examples, brute force, duality of test and interval, and how often they cry wolf."""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests

from roadworthy.metrics import Answers, auroc, brier
from roadworthy.statistics import GroupBootstrap, holm, mcnemar, paired_interval, paired_p, sign_flip_p


def answers_of(both: int, only_a: int, only_b: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    a = np.repeat([1, 1, 0, 0], [both, only_a, only_b, neither])
    return a, np.repeat([1, 0, 1, 0], [both, only_a, only_b, neither])


# ---- McNemar


def test_agresti_approval_of_the_prime_minister():
    # Agresti, Categorical Data Analysis, section 10.1: 1600 Britons asked twice; 794, 150, 86, 570.
    # Difference -.04 with standard error .0095 and z = -4.17, hence the interval -.04 -+ .019.
    result = mcnemar(*answers_of(794, 150, 86, 570))
    assert (result.n, result.groups, result.only_a, result.only_b) == (1600, 1600, 150, 86)
    assert result.difference == pytest.approx(0.04)
    assert (result.lo, result.hi) == (pytest.approx(0.04 - 0.0187, abs=0.001), pytest.approx(0.04 + 0.0187, abs=0.001))
    assert result.p == pytest.approx(2 * stats.norm.sf(4.17), rel=0.25)
    assert result.p == pytest.approx(statsmodels_mcnemar([[794, 150], [86, 570]], exact=True).pvalue, rel=1e-9)
    assert result.method == "McNemar, exact binomial"


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [(0, 0, 1), (1, 0, 1), (5, 0, 2 / 32), (6, 0, 2 / 64), (1, 9, 22 / 1024), (4, 4, 1), (2, 8, 112 / 1024)],
)
def test_few_discordant_images_are_coins(only_a, only_b, p):
    result = mcnemar(*answers_of(3, only_a, only_b, 2))
    assert result.p == pytest.approx(p)
    assert result.lo <= result.difference <= result.hi
    swapped = mcnemar(*reversed(answers_of(3, only_a, only_b, 2)))
    assert (swapped.p, swapped.difference) == (result.p, -result.difference)
    assert (swapped.lo, swapped.hi) == (pytest.approx(-result.hi), pytest.approx(-result.lo))


@given(st.lists(st.integers(0, 6), max_size=10), st.integers(-60, 60))
@example([], 0)
@example([0, 0], 0)
@settings(max_examples=100, deadline=None)
def test_sign_flips_against_brute_force(sizes, total):
    if abs(total) > sum(sizes):
        with pytest.raises(ValueError, match="able to sum"):
            sign_flip_p(total, sizes)
        return
    sums = [
        abs(sum(s * d for s, d in zip(signs, sizes, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(sizes))
    ]
    reached = np.mean([value >= abs(total) for value in sums])
    possible = abs(total) in sums
    expected = reached if possible else max(reached, 2.0 ** (1 - np.count_nonzero(sizes)))
    assert sign_flip_p(total, sizes) == pytest.approx(min(expected, 1))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(("only_a", "only_b"), [(3, 9), (40, 70), (0, 30), (2000, 2200)])
def test_objects_of_one_mind_are_tested_as_objects(size, only_a, only_b):
    a, b = (np.repeat(side, size) for side in answers_of(5, only_a, only_b, 5))
    groups = np.repeat(np.arange(len(a) // size), size)
    grouped = mcnemar(np.r_[a, 1, 1], np.r_[b, 1, 1], np.r_[groups, -1, -1])
    assert grouped.method == "McNemar, sign flips by group"
    exact = stats.binomtest(only_a, only_a + only_b).pvalue
    assert grouped.p == pytest.approx(exact, rel=1e-6)
    assert (grouped.only_a, grouped.groups) == (only_a * size, only_a + only_b + 11)


def test_order_of_images_and_names_of_groups_do_not_matter():
    rng = np.random.default_rng(0)
    a, b, groups = rng.random(200) < 0.9, rng.random(200) < 0.8, rng.integers(0, 30, 200)
    order = rng.permutation(200)
    names = np.array([f"sign {i}" for i in groups])
    one, other = mcnemar(a, b, groups), mcnemar(a[order], b[order], names[order])
    assert (one.p, one.lo, one.hi) == pytest.approx((other.p, other.lo, other.hi))


@pytest.mark.parametrize(
    ("a", "b", "groups"),
    [([], [], None), ([1], [1, 0], None), ([1, 0], [1, 0], ["x"]), ([[1]], [[1]], None)],
)
def test_answers_that_do_not_pair_are_an_error(a, b, groups):
    with pytest.raises(ValueError, match="one row per image"):
        mcnemar(a, b, groups)


def test_answers_that_are_neither_right_nor_wrong_are_an_error():
    for bad in ([0.5, 1], [math.nan, 1], [2, 1]):
        with pytest.raises(ValueError, match="right"):
            mcnemar(bad, [1, 1])
    with pytest.raises(ValueError, match="able to sum"):
        sign_flip_p(1, [-1])


def draw_pair(rng: np.random.Generator, kind: str, equal: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers of two models that are right in 90 % of frames, 60 objects: objects hard for both, or for one of them."""
    sizes = np.full(60, 10) if equal else np.clip(np.exp(rng.normal(2, 1, 60)), 1, 100).astype(int)
    groups = np.repeat(np.arange(60), sizes)
    chances = rng.beta(0.9, 0.1, (2, 60))
    if kind == "shared":
        chances[1] = chances[0]
    elif kind == "whole objects against frames":
        chances = np.stack([(rng.random(60) < 0.9).astype(float), np.full(60, 0.9)])
    a, b = rng.random((2, len(groups))) < chances[:, groups]
    return a, b, groups


def most_false_alarms(runs: int) -> float:
    return 0.05 * runs + 2.6 * math.sqrt(0.05 * 0.95 * runs)


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("kind", ["shared", "own"])
def test_two_models_of_one_kind_are_rarely_told_apart(kind, equal):
    rng = np.random.default_rng([len(kind), equal])
    runs, false_alarms, counting_frames = 120, 0, 0
    for _ in range(runs):
        a, b, groups = draw_pair(rng, kind, equal)
        false_alarms += mcnemar(a, b, groups).p < 0.05
        counting_frames += statsmodels_mcnemar(np.array([[0, (a & ~b).sum()], [(b & ~a).sum(), 0]])).pvalue < 0.05
    assert false_alarms <= most_false_alarms(runs)
    assert (counting_frames > 0.25 * runs) == (kind == "own")


def test_the_interval_holds_where_models_fail_in_different_ways():
    rng = np.random.default_rng(0)
    misses = 0
    for _ in range(120):
        result = mcnemar(*draw_pair(rng, "whole objects against frames", equal=False))
        misses += not result.lo <= 0 <= result.hi
    assert misses <= most_false_alarms(120)


def test_a_real_difference_is_found():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(100), 10)
    chance = rng.beta(9, 1, 100)[groups]
    a, b = rng.random(1000) < chance, rng.random(1000) < 0.85 * chance
    assert mcnemar(a, b, groups).p < 1e-6
    assert mcnemar(a, b, groups).lo > 0


# ---- Holm


def test_holm_by_hand():
    # Four tests at .01, .04, .03, .005: times 4, 3, 2, 1 in order of size, never falling.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]).tolist() == []
    assert np.isnan(holm([math.nan])).all()
    assert holm([math.nan, 0.02, math.nan, 0.04]) == pytest.approx([math.nan, 0.04, math.nan, 0.04], nan_ok=True)
    for bad in ([-0.1], [1.1], [[0.5]]):
        with pytest.raises(ValueError, match="Holm"):
            holm(bad)


@pytest.mark.parametrize("size", [1, 2, 30])
def test_holm_against_statsmodels(size):
    p = np.random.default_rng(size).beta(0.3, 1, size)
    p[-1] = p[0]
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_holm_keeps_the_order_and_lies_between_none_and_bonferroni(p):
    adjusted, p = holm(p), np.array(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(p * len(p), 1) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()


# ---- Any metric: p from the resamples of the bootstrap


def two_models(rng: np.random.Generator, objects: int, frames: int) -> tuple[list[Answers], np.ndarray]:
    """Two models of one kind: an object is as hard for both, each answers with a noise of its own."""
    groups = np.repeat(np.arange(objects), frames)
    labels = rng.integers(4, size=objects)[groups]
    hard = rng.normal(size=objects)[groups]
    answers = []
    for _ in range(2):
        logits = rng.normal(size=(len(groups), 4))
        logits[np.arange(len(groups)), labels] += 2 - hard + rng.normal(size=objects)[groups]
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        answers.append(Answers.from_probabilities(probabilities, labels))
    return answers, groups


def test_p_and_interval_say_the_same():
    rng = np.random.default_rng(2)
    answers, groups = two_models(rng, 50, 4)
    bootstrap = GroupBootstrap(groups)
    values = [brier(a) for a in answers]
    resampled = [bootstrap.distribution(brier, a) for a in answers]
    p, reason = paired_p(*values, *resampled, 50)
    assert (0 < p <= 1, reason) == (True, "")
    for nudge, inside in ((0.999, False), (1.001, True)):
        if 0 < 1 - p / nudge < 1:
            lo, hi, _ = paired_interval(*values, *resampled, 50, 1 - p / nudge)
            assert (lo <= 0 <= hi) == inside
    assert paired_p(*values[::-1], *resampled[::-1], 50)[0] == pytest.approx(p)


def test_p_is_students_for_normal_resamples():
    z = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    p, _ = paired_p(0.03, 0.0, 0.03 + 0.01 * z, np.zeros(20_000), groups_count=50)
    assert p == pytest.approx(2 * stats.t.sf(3 * math.sqrt(49 / 50), 49), rel=0.03)
    assert paired_p(1.0, 0.0, 1 + 0.01 * z, np.zeros(20_000), 500) == (1 / 20_001, "")
    assert paired_p(0.0, 0.0, 0.01 * z, np.zeros(20_000), 50)[0] == pytest.approx(1)


@pytest.mark.parametrize("resamples", [40, 1000, 4000])
def test_p_is_never_finer_than_the_resamples_can_tell(resamples):
    z = stats.norm.ppf((np.arange(resamples) + 0.5) / resamples)
    p, _ = paired_p(1.0, 0.0, 1 + 0.01 * z, np.zeros(resamples), 500)
    assert p == 1 / (resamples + 1)
    assert (holm([p] * 7) >= p).all()
    undefined = np.where(np.arange(resamples) < resamples // 20, math.nan, 1 + 0.01 * z)
    assert paired_p(1.0, 0.0, undefined, np.zeros(resamples), 500)[0] == 1 / (resamples - resamples // 20 + 1)


def test_p_of_sign_flips_is_never_finer_than_its_sum():
    for sizes, total in (([1] * 300, 150), ([1] * 20_000, 1400), ([7] * 300, 2030), ([50] * 5000, 125_000)):
        assert sign_flip_p(total, sizes) == 1e-12
    assert sign_flip_p(30, [1] * 30) == pytest.approx(2.0**-29, rel=1e-4)


def test_without_an_interval_there_is_no_p():
    flat = np.zeros(100)
    for arguments, why in (
        ((0.5, 0.5, flat, flat, 20), "all resamples are equal"),
        ((math.nan, 0.5, flat, flat, 20), "no value"),
        ((0.5, 0.4, np.linspace(0, 1, 100), flat, 1), "one group only"),
    ):
        p, reason = paired_p(*arguments)
        assert (math.isnan(p), reason) == (True, why)


@pytest.mark.parametrize("metric", [brier, auroc], ids=["brier", "auroc"])
def test_two_models_of_one_kind_are_rarely_told_apart_by_any_metric(metric):
    rng = np.random.default_rng(3)
    runs, false_alarms = 60, 0
    for _ in range(runs):
        answers, groups = two_models(rng, 100, 2)
        bootstrap = GroupBootstrap(groups, resamples=200)
        resampled = [bootstrap.distribution(metric, a) for a in answers]
        p, reason = paired_p(*(metric(a) for a in answers), *resampled, 100)
        assert reason == ""
        false_alarms += p < 0.05
    assert false_alarms <= most_false_alarms(runs)
