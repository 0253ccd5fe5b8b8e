"""Intervals and the group bootstrap: against references, at edges, and whether bounds hold when frames correlate."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from scipy.special import ndtri
from scipy.stats import beta, binomtest
from statsmodels.stats.proportion import proportion_confint

from roadworthy.metrics import Answers, accuracy, auroc, brier
from roadworthy.protocols.classification.settings import METRICS
from roadworthy.statistics import (
    GroupBootstrap,
    bootstrap_interval,
    further_groups,
    mean_interval,
    paired_interval,
    proportion_interval,
    wilson,
)
from roadworthy.statistics.summaries import summarise_metrics


def random_answers(n: int, seed: int = 0) -> Answers:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(4, 0.3), n)
    labels = np.where(rng.random(n) < 0.7, probabilities.argmax(axis=1), rng.integers(4, size=n))
    return Answers.from_probabilities(probabilities, labels)


# ---- Wilson


@given(st.integers(1, 100_000), st.floats(0, 1), st.sampled_from([0.5, 0.8, 0.95, 0.999]))
@settings(max_examples=150, deadline=None)
def test_wilson_against_statsmodels(n, share, confidence):
    successes = round(share * n)
    expected = proportion_confint(successes, n, alpha=1 - confidence, method="wilson")
    assert wilson(successes, n, confidence) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n", [0.5, 1, 3, 7.3, 1000, 1e9])
def test_wilson_is_exact_at_the_ends(n):
    lo, hi = wilson(0, n)
    assert lo == 0.0
    assert 0 < hi < 1
    assert wilson(n, n) == (pytest.approx(1 - hi), 1.0)


@pytest.mark.parametrize(("successes", "n"), [(1, 0), (-1, 5), (6, 5), (math.nan, 5), (1, math.nan)])
def test_wilson_refuses_what_is_no_proportion(successes, n):
    with pytest.raises(ValueError, match="successes"):
        wilson(successes, n)


@pytest.mark.parametrize("confidence", [0, 1, 95, math.nan])
def test_confidence_is_a_share(confidence):
    for call in (
        lambda: wilson(1, 2, confidence),
        lambda: mean_interval([0.0, 0.5], ["a", "b"], 0, 1, confidence),
        lambda: bootstrap_interval(0.5, np.linspace(0, 1, 100), 5, confidence),
    ):
        with pytest.raises(ValueError, match="confidence"):
            call()


# ---- Proportions and means over groups


def test_single_images_that_are_right_or_wrong_get_wilson():
    interval = proportion_interval([1, 0, 1, 1, 1], list("abcde"), 0.9)
    assert (interval.lo, interval.hi) == wilson(4, 5, 0.9)
    assert (interval.value, interval.n, interval.groups, interval.method) == (0.8, 5, 5, "wilson")


@pytest.mark.parametrize("groups", [1, 2, 20, 300])
@pytest.mark.parametrize("frames", [2, 30])
def test_all_right_is_bounded_by_the_number_of_groups(groups, frames):
    names = np.repeat(np.arange(groups), frames)
    right, wrong = proportion_interval(np.ones(len(names)), names), proportion_interval(np.zeros(len(names)), names)
    assert (right.lo, right.hi) == (pytest.approx(wilson(groups, groups)[0], rel=1e-12), 1.0)
    assert (wrong.lo, wrong.hi) == (0.0, pytest.approx(wilson(0, groups)[1], rel=1e-12))
    assert (right.n, right.groups) == (groups * frames, groups)


def test_all_right_with_unequal_groups_is_bounded_by_their_effective_number():
    sizes = np.array([1, 2, 3, 50])
    effective = sizes.sum() ** 2 / (sizes**2).sum()
    interval = proportion_interval(np.ones(sizes.sum()), np.repeat(np.arange(4), sizes))
    assert interval.lo == pytest.approx(wilson(effective, effective)[0], rel=1e-12)
    assert interval.groups == 4


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("groups", [1, 2, 5, 20, 200])
def test_groups_of_one_mind_get_clopper_pearson_on_the_safe_side(groups, confidence):
    tail = (1 - confidence) / 2
    for right in {1, groups // 2, groups - 1} - {0, groups}:
        values = np.repeat([1.0] * right + [0.0] * (groups - right), 3)
        interval = proportion_interval(values, np.repeat(np.arange(groups), 3), confidence)
        lo = min(beta.ppf(tail, right, groups - right + 1), wilson(groups, groups, confidence)[0])
        hi = max(beta.ppf(1 - tail, right + 1, groups - right), wilson(0, groups, confidence)[1])
        assert lo - 0.001 <= interval.lo <= lo + 1e-8
        assert hi - 1e-8 <= interval.hi <= hi + 0.001


def test_the_saddlepoint_agrees_with_drawing_the_phantom_group():
    rng = np.random.default_rng(0)
    sizes, right = rng.integers(1, 40, 15), rng.beta(8, 1, 15)
    hits = rng.binomial(sizes, right)
    values = np.concatenate([np.r_[np.ones(k), np.zeros(s - k)] for s, k in zip(sizes, hits, strict=True)])
    interval = proportion_interval(values, np.repeat(np.arange(15), sizes))
    phantom = (sizes**2).sum() / sizes.sum()
    draws = rng.exponential(size=(200_000, 16)) * np.append(sizes, phantom)
    total = draws.sum(axis=1)
    lo = np.quantile(draws @ np.append(hits / sizes, 0) / total, 0.025)
    hi = np.quantile(draws @ np.append(hits / sizes, 1) / total, 0.975)
    assert (interval.lo, interval.hi) == (pytest.approx(lo, abs=0.004), pytest.approx(hi, abs=0.004))


@st.composite
def grouped_values(draw):
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    values = draw(st.lists(st.sampled_from([0.0, 0.1, 1 / 3, 0.7, 1.0]), min_size=sum(sizes), max_size=sum(sizes)))
    return np.array(values), np.repeat([f"sign {i}" for i in range(len(sizes))], sizes)


@given(grouped_values(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_intervals_contain_the_value_and_ignore_order_and_repetition(case, random):
    values, groups = case
    interval = proportion_interval(values, groups)
    assert 0 <= interval.lo <= interval.value <= interval.hi <= 1
    assert interval.value == pytest.approx(values.mean())
    order = list(range(len(values)))
    random.shuffle(order)
    assert proportion_interval(values[order], groups[order]) == interval
    twice = mean_interval(np.tile(values, 2), np.tile(groups, 2), 0, 1)
    once = mean_interval(values, groups, 0, 1)
    assert (twice.lo, twice.hi) == (pytest.approx(once.lo, abs=1e-8), pytest.approx(once.hi, abs=1e-8))
    mirrored = mean_interval(1 - values, groups, 0, 1)
    assert (1 - mirrored.hi, 1 - mirrored.lo) == (pytest.approx(once.lo, abs=1e-8), pytest.approx(once.hi, abs=1e-8))
    scaled = mean_interval(4 * values - 1, groups, -1, 3)
    assert (scaled.lo, scaled.hi) == (
        pytest.approx(4 * once.lo - 1, abs=1e-7),
        pytest.approx(4 * once.hi - 1, abs=1e-7),
    )


@given(grouped_values(), st.integers(0, 47), st.floats(0.01, 1))
@settings(max_examples=30, deadline=None)
def test_a_worse_frame_never_raises_a_bound(case, place, loss):
    values, groups = case
    worse = values.copy()
    worse[place % len(values)] = max(0.0, worse[place % len(values)] - loss)
    before, after = mean_interval(values, groups, 0, 1), mean_interval(worse, groups, 0, 1)
    assert after.lo <= before.lo + 1e-8
    assert after.hi <= before.hi + 1e-8


def test_no_images_and_bad_values():
    empty = proportion_interval([], [])
    assert math.isnan(empty.value)
    assert empty.reason == "no images"
    for values, groups in (([0.5, 1.5], "ab"), ([0.5, math.nan], "ab"), ([-0.1], "a"), ([0.5, 0.5], "a")):
        with pytest.raises(ValueError, match=r"values must lie|per image"):
            proportion_interval(values, list(groups))
    with pytest.raises(ValueError, match="room"):
        mean_interval([0.0], ["a"], 0, 0)


def draw_frames(rng: np.random.Generator, groups: int, p: float, kind: str, sizes: np.ndarray) -> np.ndarray:
    """Group means of right answers with expectation p: beta-binomial by correlation, or rare objects misread always."""
    if kind == "rare":
        always_wrong = rng.random(groups) < 0.8 * (1 - p)
        of_group = np.where(always_wrong, 0.0, p / (1 - 0.8 * (1 - p)))
    elif float(kind) == 0:
        of_group = np.full(groups, p)
    elif float(kind) == 1:
        of_group = (rng.random(groups) < p).astype(float)
    else:
        spread = 1 / float(kind) - 1
        of_group = rng.beta(p * spread, (1 - p) * spread, groups)
    return rng.binomial(sizes, of_group)


@pytest.mark.parametrize(
    ("groups", "p", "kind"),
    [
        (20, 0.8, "1"),
        (20, 0.95, "rare"),
        (20, 0.995, "0.5"),
        (60, 0.9, "0.3"),
        (60, 0.99, "rare"),
        (200, 0.8, "0.5"),
        (200, 0.995, "1"),
        (200, 0.95, "0"),
    ],
)
@pytest.mark.parametrize("equal", [True, False])
def test_bounds_hold_when_frames_of_an_object_agree(groups, p, kind, equal):
    rng = np.random.default_rng([groups, int(1000 * p), equal])
    runs = 80
    too_high = too_low = 0
    for _ in range(runs):
        sizes = np.full(groups, 30) if equal else np.clip(np.exp(rng.normal(2.7, 1, groups)), 1, 200).astype(int)
        hits = draw_frames(rng, groups, p, kind, sizes)
        values = np.concatenate([np.r_[np.ones(k), np.zeros(s - k)] for s, k in zip(sizes, hits, strict=True)])
        interval = proportion_interval(values, np.repeat(np.arange(groups), sizes))
        too_high += interval.lo > p
        too_low += interval.hi < p
    allowed = 0.025 * runs + 2.6 * math.sqrt(0.025 * 0.975 * runs)
    assert too_high <= allowed
    assert too_low <= allowed


def test_a_paired_difference_of_identical_answers_still_has_a_width():
    interval = mean_interval(np.zeros(60), np.repeat(np.arange(20), 3), -1, 1)
    assert interval.lo < interval.value == 0 < interval.hi
    assert interval.hi == pytest.approx(-interval.lo)


# ---- Group bootstrap


def test_weights_are_whole_groups_drawn_with_replacement():
    groups = ["b", "a", "b", "c", "a", "b"]
    bootstrap = GroupBootstrap(groups, resamples=200)
    weights = np.concatenate(list(bootstrap.chunks()))
    assert weights.shape == (200, 6)
    assert weights.dtype == np.float32
    assert (weights[:, 0] == weights[:, 2]).all()
    assert (weights[:, 1] == weights[:, 4]).all()
    assert (weights[:, [0, 1, 3]].sum(axis=1) == 3).all()
    assert weights[:, 3].mean() == pytest.approx(1, abs=0.2)
    assert weights[:, 3].var() == pytest.approx(2 / 3, abs=0.2)


def test_weights_belong_to_the_group_not_to_the_place():
    names = np.array([f"sign {i % 7}" for i in range(40)])
    order = np.random.default_rng(0).permutation(40)
    straight = np.concatenate(list(GroupBootstrap(names, 50, seed=3).chunks()))
    shuffled = np.concatenate(list(GroupBootstrap(names[order], 50, seed=3).chunks()))
    assert (straight[:, order] == shuffled).all()
    other = np.concatenate(list(GroupBootstrap(names, 50, seed=4).chunks()))
    assert (straight != other).any()


def test_chunks_do_not_change_the_weights_and_stay_small(monkeypatch):
    names = [f"sign {i % 11}" for i in range(100)]
    cached = GroupBootstrap(names, 60)
    monkeypatch.setattr("roadworthy.statistics.bootstrap.CACHE_BYTES", 0)
    fresh = GroupBootstrap(names, 60)
    pieces = list(fresh.chunks(max_bytes=4 * 100 * 7))
    assert [len(piece) for piece in pieces] == [7] * 8 + [4]
    assert (np.concatenate(pieces) == np.concatenate(list(cached.chunks()))).all()
    assert [len(piece) for piece in fresh.chunks(max_bytes=1)] == [1] * 60
    answers = random_answers(100)
    for metric in METRICS:
        np.testing.assert_array_equal(cached.distribution(metric, answers), fresh.distribution(metric, answers))


def test_the_distribution_is_the_metric_on_repeated_groups():
    groups = np.array([f"sign {i % 5}" for i in range(30)])
    answers = random_answers(30)
    bootstrap = GroupBootstrap(groups, 20)
    weights = np.concatenate(list(bootstrap.chunks())).astype(int)
    for row, value in zip(weights, bootstrap.distribution(brier, answers), strict=True):
        pick = np.repeat(np.arange(30), row)
        repeated = Answers(*(getattr(answers, name)[pick] for name in list(vars(answers))[:5]), num_classes=4)
        assert brier(repeated) == pytest.approx(value)


def test_single_image_bootstrap_has_the_standard_error_of_theory():
    answers = random_answers(400)
    spread = GroupBootstrap(range(400), 1000).distribution(accuracy, answers).std()
    p = accuracy(answers)
    assert spread == pytest.approx(math.sqrt(p * (1 - p) / 400), rel=0.1)


@pytest.mark.parametrize(("groups", "resamples", "seed"), [([], 10, 0), (["a"], 0, 0), (["a"], 10, -1), ("a", 10, 0)])
def test_bootstrap_refuses_nonsense(groups, resamples, seed):
    with pytest.raises(ValueError, match="bootstrap needs"):
        GroupBootstrap(groups, resamples, seed)


def test_bootstrap_refuses_other_images():
    with pytest.raises(ValueError, match="3 images"):
        GroupBootstrap(["a", "b", "c"], 10).distribution(accuracy, random_answers(4))


# ---- Bootstrap intervals


def test_interval_of_a_normal_distribution_is_students():
    quantiles = (np.arange(4000) + 0.5) / 4000
    resampled = 5 + 2 * ndtri(quantiles)
    for confidence, t in ((0.95, 2.2621572), (0.999, 4.7809126)):
        lo, hi, reason = bootstrap_interval(5.0, resampled, groups_count=10, confidence=confidence)
        assert hi - 5 == pytest.approx(2 * t * math.sqrt(10 / 9), rel=0.01)
        assert (5 - lo, reason) == (pytest.approx(hi - 5, rel=1e-3), "")


def test_the_longer_side_counts_for_both_and_the_range_cuts():
    resampled = np.linspace(0.1, 0.3, 1001)
    lo, hi, _ = bootstrap_interval(0.1, resampled, groups_count=1000)
    assert (0.1 - lo, hi - 0.1) == (pytest.approx(0.195, rel=0.01), pytest.approx(0.195, rel=0.01))
    assert bootstrap_interval(0.1, resampled, 1000, bounds=(0, 0.2))[:2] == (0, 0.2)


@pytest.mark.parametrize(
    ("value", "undefined", "groups", "reason"),
    [
        (math.nan, 0, 9, "no value"),
        (0.5, 0, 1, "one group only"),
        (0.5, 101, 9, "undefined in 10% of the resamples"),
        (0.5, 1000, 9, "undefined in 100% of the resamples"),
        (0.5, 100, 9, ""),
    ],
)
def test_missing_intervals_say_why(value, undefined, groups, reason):
    resampled = np.linspace(0.4, 0.6, 1000)
    resampled[:undefined] = math.nan
    lo, hi, why = bootstrap_interval(value, resampled, groups)
    assert why == reason
    assert math.isnan(lo) == math.isnan(hi) == bool(reason)


def test_resamples_that_never_vary_bound_nothing():
    assert bootstrap_interval(0.0, np.zeros(1000), 50)[2] == "all resamples are equal"
    with pytest.raises(ValueError, match="resamples"):
        bootstrap_interval(0.0, np.zeros(10), 50)


def test_pairing_cancels_what_two_cases_share():
    hard, groups = random_answers(300), [f"sign {i // 3}" for i in range(300)]
    labels = hard.label.copy()
    labels[:6] = hard.prediction[:6]
    slightly_better = Answers(labels, hard.prediction, hard.confidence, hard.p_label, hard.sum_squares, 4)
    bootstrap = GroupBootstrap(groups)
    values = [accuracy(slightly_better), accuracy(hard)]
    resampled = [bootstrap.distribution(accuracy, answers) for answers in (slightly_better, hard)]
    lo, hi, reason = paired_interval(*values, *resampled, groups_count=100)
    alone = bootstrap_interval(values[0], resampled[0], 100)
    assert reason == ""
    assert lo <= values[0] - values[1] <= hi
    assert hi - lo < (alone[1] - alone[0]) / 2
    with pytest.raises(ValueError, match="one shape"):
        paired_interval(0.5, 0.5, resampled[0], resampled[0][:-1], 100)


def test_undefined_resamples_of_either_case_are_left_out():
    a, b = np.linspace(0.4, 0.6, 1000), np.linspace(0.6, 0.4, 1000)
    b[:90] = math.nan
    assert paired_interval(0.5, 0.5, a, b, 20)[2] == ""
    a[-90:] = math.nan
    assert paired_interval(0.5, 0.5, a, b, 20)[2] == "undefined in 18% of the resamples"


def test_auroc_without_errors_in_many_resamples_has_no_interval():
    confidence = np.linspace(0.6, 0.9, 40)
    prediction = np.zeros(40, int)
    label = np.r_[1, np.zeros(39, int)]
    answers = Answers(label, prediction, confidence, confidence, confidence**2, 2)
    resampled = GroupBootstrap(range(40)).distribution(auroc, answers)
    lo, _, reason = bootstrap_interval(auroc(answers), resampled, 40)
    assert math.isnan(lo)
    assert reason.startswith("undefined in 3")


# ---- Further groups


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 99), st.sampled_from([0.8, 0.95, 0.99]))
@example(20, 20, 95, 0.95)
@example(20, 0, 5, 0.95)
@settings(max_examples=150, deadline=None)
def test_further_groups_of_a_proportion_against_brute_force(n, successes, percent, confidence):
    assume(successes <= n)
    value, threshold = successes / n, percent / 100
    assume(abs(value - threshold) > 0.03)
    lo, hi = wilson(successes, n, confidence)

    def beyond(count):
        bounds = wilson(min(value * count, count), count, confidence)
        return bounds[0] > threshold if value > threshold else bounds[1] < threshold

    smallest = next(count for count in range(n, 10_000) if beyond(count))
    assert further_groups(value, threshold, n, lo, hi, confidence=confidence, proportion=True) == smallest - n


def test_further_groups_counts_a_group_for_what_it_was_worth():
    groups = np.repeat(np.arange(100), 10)
    values = np.tile(np.r_[np.ones(9), 0.0], 100)
    interval = proportion_interval(values, groups)
    assert interval.lo < 0.89 < interval.value
    assert further_groups(0.9, 0.89, 100, interval.lo, interval.hi, proportion=True) > 0
    independent = further_groups(0.9, 0.89, 100, *wilson(90, 100), proportion=True)
    assert further_groups(0.9, 0.89, 100, interval.lo, interval.hi, proportion=True) < independent


def test_further_groups_of_other_metrics_scale_with_the_square_root():
    further = further_groups(0.2, 0.3, 100, 0.0, 0.5, proportion=False)
    assert further == pytest.approx(800, abs=1)
    assert 0.2 + 0.3 * math.sqrt(100 / (100 + further)) < 0.3 + 1e-12


@pytest.mark.parametrize("proportion", [True, False])
def test_further_groups_at_the_edges(proportion):
    def further(value, threshold, lo, hi):
        return further_groups(value, threshold, 50, lo, hi, proportion=proportion)

    assert further(0.9, 0.9, 0.8, 0.95) is None
    assert further(math.nan, 0.9, 0.8, 0.95) is None
    assert further(0.9, 0.8, math.nan, 0.95) is None
    assert further(0.9, 0.8, 0.85, 0.95) == 0
    assert further(0.7, 0.8, 0.6, 0.75) == 0
    assert further(0.9, 0.8, 0.8, 0.95) >= 1
    assert further(0.9, 0.8999999, 0.8, 0.95) > 10**6


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("n", [1, 2, 10, 500])
def test_wilson_and_clopper_pearson_against_scipy_at_the_edges(n, confidence):
    for successes in {0, 1, n // 2, n - 1, n}:
        test = binomtest(successes, n)
        expected = test.proportion_ci(confidence, "wilson")
        assert wilson(successes, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)
        exact = test.proportion_ci(confidence, "exact")
        other = proportion_confint(successes, n, alpha=1 - confidence, method="beta")
        assert (exact.low, exact.high) == pytest.approx(other, abs=1e-9)
        answers = np.repeat(np.r_[np.ones(successes), np.zeros(n - successes)], 4)
        frames = proportion_interval(answers, np.repeat(np.arange(n), 4), confidence)
        lowest, highest = wilson(n, n, confidence)[0], wilson(0, n, confidence)[1]
        assert frames.lo == pytest.approx(min(exact.low, lowest) if successes < n else lowest, abs=0.001)
        assert frames.hi == pytest.approx(max(exact.high, highest) if successes else highest, abs=0.001)


def decided_share(successes, n, threshold, further, draws, seed=0):
    """How often so many further objects, drawn at the value that was seen, decide what was seen, by Wilson's bounds."""
    value = successes / n
    total = successes + np.random.default_rng(seed).binomial(further, value, draws)
    counts, times = np.unique(total, return_counts=True)
    side = 0 if value > threshold else 1
    bounds = np.array([wilson(count, n + further)[side] for count in counts])
    decided = bounds >= threshold if value > threshold else bounds < threshold
    return float((decided * times).sum() / draws)


@pytest.mark.parametrize(
    ("successes", "n", "threshold"), [(97, 100, 0.95), (270, 300, 0.92), (30, 40, 0.65), (14, 20, 0.8)]
)
def test_the_stated_further_n_decides_about_half_of_new_tests(successes, n, threshold):
    """The value stays on average only: half of all tests come out above it. So more is to be planned than is stated."""
    bounds = wilson(successes, n)
    further = further_groups(successes / n, threshold, n, *bounds, proportion=True)
    shares = [decided_share(successes, n, threshold, factor * further, 4000) for factor in (0, 1, 3)]
    assert shares[0] == 0
    assert 0.4 < shares[1] < 0.65
    assert shares[2] > 0.75


@pytest.mark.slow
def test_the_stated_further_n_over_many_tests():
    """Over all undecided results of 30 to 300 objects: between 40 and 70 % of new tests are decided as said."""
    rng = np.random.default_rng(1)
    shares = []
    while len(shares) < 400:
        n, threshold = int(rng.integers(30, 300)), float(rng.uniform(0.5, 0.97))
        successes = int(rng.binomial(n, min(threshold + 0.04, 0.99)))
        value, bounds = successes / n, wilson(successes, n)
        if abs(value - threshold) < 0.02 or successes in (0, n) or not bounds[0] < threshold < bounds[1]:
            continue
        further = further_groups(value, threshold, n, *bounds, proportion=True)
        shares.append(decided_share(successes, n, threshold, further, 2000, seed=len(shares)))
    assert min(shares) > 0.4
    assert max(shares) < 0.75
    assert 0.47 < float(np.mean(shares)) < 0.6


def test_what_was_computed_from_answers_is_dropped_after_each_repeat() -> None:
    repeats = [random_answers(60, seed) for seed in range(3)]
    bootstrap, columns = GroupBootstrap(np.arange(60) % 20, resamples=50), set(vars(repeats[0]))
    summary = summarise_metrics(repeats, METRICS, bootstrap)
    assert [set(vars(answers)) <= columns | {"correct"} for answers in repeats] == [True] * 3
    assert summary.values["auroc"] == [auroc(answers) for answers in repeats]
    assert {"ranking", "correct"} <= set(vars(repeats[0]))
    repeats[0].forget()
    assert set(vars(repeats[0])) == columns
