"""Metrics of boxes and of class probabilities: exact overlap, likelihood, calibration, sparsification, their laws."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from roadworthy.core.errors import InputError
from roadworthy.metrics import METRICS, Answers, find_metric, of_rows
from roadworthy.metrics.box_overlap import distance_iou, intersection_over_union
from roadworthy.metrics.boxes import (
    BOX_METRICS,
    NO_UNCERTAINTY,
    UNCERTAIN,
    BoxAnswers,
    box_aurc,
    box_ause,
    box_ece,
    box_ece_interval,
    box_nll,
    box_reliability,
    iou,
    iou_at_50,
    mae,
    sharpness,
    uncertainty_variance,
)
from roadworthy.metrics.calibration import ece, ece_adaptive
from roadworthy.metrics.class_probabilities import CLASS_METRICS, ProbabilityAnswers, ece_classwise
from roadworthy.metrics.selective import class_aurc, risk_coverage
from roadworthy.metrics.sparsification import sparsification, sparsification_area
from roadworthy.statistics.bootstrap import GroupBootstrap
from roadworthy.statistics.estimates import bootstrap_estimate
from roadworthy.statistics.intervals import mean_interval, proportion_interval
from roadworthy.verdict import Criterion, threshold_remark

COORDINATES = st.one_of(st.integers(-4, 4).map(float), st.floats(-300, 300, width=32).map(lambda x: round(x * 64) / 64))
BOXES = st.tuples(COORDINATES, COORDINATES, COORDINATES, COORDINATES)


def rng(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([17, *key, 0][:2], dtype=np.uint64)))


def random_answers(n: int = 80, seed: int = 0, ties: bool = False) -> BoxAnswers:
    generator = rng(seed)
    corner = generator.uniform(0, 20, size=(n, 2))
    true = np.concatenate([corner, corner + generator.uniform(4, 20, size=(n, 2))], axis=1)
    variance = generator.uniform(0.5, 9, size=(n, 4))
    if ties:
        true, variance = true.round(), np.ceil(variance / 4)
    return BoxAnswers(true, true + generator.normal(size=(n, 4)) * np.sqrt(variance), variance)


def exact_area(box: list[Fraction]) -> Fraction:
    return max(box[2] - box[0], Fraction(0)) * max(box[3] - box[1], Fraction(0))


def exact_iou(first: list[Fraction], second: list[Fraction]) -> Fraction:
    corners = [max(first[0], second[0]), max(first[1], second[1]), min(first[2], second[2]), min(first[3], second[3])]
    intersection = exact_area(corners)
    union = exact_area(first) + exact_area(second) - intersection
    return intersection / union if union else Fraction(0)


def exact_diou(first: list[Fraction], second: list[Fraction]) -> Fraction:
    distance = diagonal = Fraction(0)
    for axis in (0, 1):
        ends = [first[axis], first[axis + 2], second[axis], second[axis + 2]]
        distance += ((ends[0] + ends[1]) / 2 - (ends[2] + ends[3]) / 2) ** 2
        diagonal += (max(ends) - min(ends)) ** 2
    return exact_iou(first, second) - (distance / diagonal if diagonal else 0)


@settings(max_examples=100, deadline=None)
@given(BOXES, BOXES)
def test_overlaps_are_those_of_exact_fractions(first, second):
    for true, box in ((first, second), (first, first)):
        exact = [[Fraction(value) for value in values] for values in (true, box)]
        arrays = np.array([true]), np.array([box])
        assert intersection_over_union(*arrays)[0] == pytest.approx(float(exact_iou(*exact)), abs=1e-12)
        assert distance_iou(*arrays)[0] == pytest.approx(float(exact_diou(*exact)), abs=1e-12)


@pytest.mark.parametrize(
    ("box", "overlap", "distance"),
    [
        ([2, 2, 6, 6], 1.0, 1.0),
        ([4, 2, 8, 6], 1 / 3, 1 / 3 - 4 / 52),
        ([6, 2, 10, 6], 0.0, -16 / 80),
        ([4, 4, 4, 4], 0.0, 0.0),
        ([6, 2, 2, 6], 0.0, 0.0),
        ([6, 6, 2, 2], 0.0, 0.0),
        ([3, 3, 5, 3], 0.0, -1 / 32),
    ],
)
def test_overlaps_by_hand_with_boxes_that_touch_have_no_area_or_are_crossed(box, overlap, distance):
    true, boxes = np.array([[2.0, 2.0, 6.0, 6.0]]), np.array([box], dtype=float)
    assert intersection_over_union(true, boxes)[0] == pytest.approx(overlap)
    assert distance_iou(true, boxes)[0] == pytest.approx(distance)


def test_identical_boxes_without_area_overlap_by_definition_0():
    point = np.array([[3.0, 3.0, 3.0, 3.0]])
    assert intersection_over_union(point, point).tolist() == [0.0]
    assert distance_iou(point, point).tolist() == [0.0]


def test_errors_in_pixels_and_the_share_of_right_boxes_by_hand():
    answers = BoxAnswers([[0, 0, 4, 4], [0, 0, 4, 4]], [[0, 0, 4, 2], [1, 2, 3, 4.5]])
    assert mae(answers) == pytest.approx((2 / 4 + 4.5 / 4) / 2)
    assert iou(answers) == pytest.approx((0.5 + 4 / 17) / 2)
    assert iou_at_50.per_image(answers).tolist() == [1.0, 0.0]


def test_likelihood_is_that_of_scipy_and_its_floor_is_as_stated():
    answers = random_answers()
    expected = -norm.logpdf(answers.true, answers.boxes, np.sqrt(answers.variance)).mean()
    assert box_nll(answers) == pytest.approx(expected, rel=1e-12)
    sure = BoxAnswers(answers.true, answers.boxes, np.zeros_like(answers.true))
    assert box_nll(sure) == pytest.approx(-norm.logpdf(answers.true, answers.boxes, 0.1).mean())
    perfect = BoxAnswers(answers.true, answers.true, np.zeros_like(answers.true))
    assert box_nll(perfect) == pytest.approx(box_nll.limits(1)[0])


def test_a_calibrated_gaussian_has_no_regression_ece():
    quantiles = (np.arange(2000) + 0.5) / 2000
    sigma = np.linspace(0.5, 3.0, 2000)[:, None] * np.ones(4)
    truth = norm.ppf(quantiles)[:, None] * sigma
    answers = BoxAnswers(truth, np.zeros((2000, 4)), sigma**2)
    assert box_ece(answers) < 1e-9
    assert box_ece_interval(answers) < 1e-9
    assert box_reliability(answers).observed == pytest.approx(np.tile(np.arange(1, 11) / 10, (4, 1)), abs=1e-9)
    drawn = BoxAnswers(rng(3).normal(size=(20_000, 4)) * sigma.max(), np.zeros((20_000, 4)), np.full((20_000, 4), 9.0))
    assert box_ece(drawn) < 0.006
    assert box_ece_interval(drawn) < 0.006


LEVELS = np.arange(1, 10) / 10
"""All but the last, which every image reaches."""


def normal_errors(mean=0.0, sigma=1.0, stated=1.0, n=20_000):
    """Errors that are distributed as exactly as n of them can be."""
    truth = (mean + sigma * norm.ppf((np.arange(n) + 0.5) / n))[:, None] * np.ones(4)
    return BoxAnswers(truth, np.zeros_like(truth), np.full_like(truth, stated**2))


@pytest.mark.parametrize("stated", [0.11, 0.25, 0.5, 2.0, 5.0, 1e3])
def test_a_scaled_gaussian_has_the_regression_ece_of_the_formula(stated):
    answers = normal_errors(stated=stated)
    of_quantiles = np.abs(norm.cdf(stated * norm.ppf(LEVELS)) - LEVELS).sum() / 10
    of_intervals = np.abs(2 * norm.cdf(stated * norm.ppf((1 + LEVELS) / 2)) - 1 - LEVELS).sum() / 10
    assert box_ece(answers) == pytest.approx(of_quantiles, abs=2e-4)
    assert box_ece_interval(answers) == pytest.approx(of_intervals, abs=2e-4)
    assert of_quantiles <= 0.2 + 1e-12
    assert of_quantiles < of_intervals


@pytest.mark.parametrize("bias", [-3.0, -0.5, 0.5, 1.0, 3.0, 30.0])
def test_constant_bias_has_the_regression_ece_of_the_formula(bias):
    answers, half = normal_errors(mean=bias), norm.ppf((1 + LEVELS) / 2)
    of_quantiles = np.abs(norm.cdf(norm.ppf(LEVELS) - bias) - LEVELS).sum() / 10
    of_intervals = np.abs(norm.cdf(half - bias) - norm.cdf(-half - bias) - LEVELS).sum() / 10
    assert box_ece(answers) == pytest.approx(of_quantiles, abs=2e-4)
    assert box_ece_interval(answers) == pytest.approx(of_intervals, abs=2e-4)
    assert of_quantiles > of_intervals or abs(bias) > 10, "the quantile form sees bias better"


def test_errors_to_one_side_as_large_as_stated_are_seen_by_quantiles_alone():
    half_normal = np.abs(normal_errors().true)
    answers = BoxAnswers(half_normal, np.zeros_like(half_normal), np.ones_like(half_normal))
    assert box_ece_interval(answers) == pytest.approx(0, abs=1e-4)
    assert box_ece(answers) == pytest.approx(0.25, abs=1e-4)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3)), min_size=1, max_size=12))
def test_the_ece_by_quantiles_stays_below_its_ceiling_whatever_is_stated(pairs):
    error, power = np.array(pairs, dtype=float).T
    answers = BoxAnswers(*(np.tile(of[:, None], 4) for of in (error, np.zeros(len(error)), 10.0 ** (4 * power - 6))))
    below, zero = (error < 0).mean(), (error == 0).mean()
    if zero == 0:
        assert box_ece(answers) <= 0.2 + abs(below - 0.5) / 2 + 1e-12
    if below == (error > 0).mean():
        assert box_ece(answers) <= 0.2 + zero / 20 + 1e-12, "0.25 where all are exactly 0"
    assert 0 <= box_ece_interval(answers) <= 0.45 + 1e-12


@pytest.mark.parametrize("below", range(11))
def test_the_ceiling_of_the_ece_by_quantiles_is_reached(below):
    """The more frequent side with far too small a sigma, the other with far too large a one."""
    error = np.where(np.arange(10) < below, -1.0, 1.0)
    often = error == (-1.0 if below > 5 else 1.0)
    answers = BoxAnswers(*(np.tile(of[:, None], 4) for of in (error, np.zeros(10), np.where(often, 1e-2, 1e6))))
    assert box_ece(answers) == pytest.approx(0.2 + abs(below / 10 - 0.5) / 2)


@pytest.mark.parametrize("stated", [1e-6, 1e6])
def test_the_ece_by_quantiles_saturates_where_that_by_intervals_does_not(stated):
    answers = normal_errors(sigma=50.0, stated=stated, n=1000)
    assert box_ece(answers) == pytest.approx(0.2, abs=0.01)
    assert box_ece_interval(answers) == pytest.approx(0.45, abs=0.01)


def test_the_ece_by_intervals_of_one_image_of_ties_and_without_variance():
    for error, expected in ((0.0, 0.45), (1.0, 0.27), (-1.0, 0.27), (99.0, 0.45)):  # |2 Phi(1) - 1| = 0.68
        one = BoxAnswers(np.full((1, 4), error), np.zeros((1, 4)), np.ones((1, 4)))
        many = one.rows(np.zeros(7, dtype=np.intp))
        assert box_ece_interval(one) == box_ece_interval(many) == pytest.approx(expected)
    exact = BoxAnswers(np.zeros((3, 4)), np.zeros((3, 4)), np.zeros((3, 4)))
    assert box_ece_interval(exact) == pytest.approx(0.45), "sigma is at least 0.1 pixel: always inside"
    assert box_ece(exact) == pytest.approx(0.25)
    beside = BoxAnswers(np.ones((3, 4)), np.zeros((3, 4)), np.zeros((3, 4)))
    assert box_ece_interval(beside) == pytest.approx(0.45), "10 times the least sigma: never inside"
    for far in (1e200, -1e300):
        assert box_ece_interval(BoxAnswers([[far] * 4], [[0.0] * 4], [[1.0] * 4])) == pytest.approx(0.45)
    with pytest.raises(ValueError, match="variance must be finite"):
        BoxAnswers([[0, 0, 1, 1]], [[0, 0, 1, 1]], [[1, 1, 1, np.nan]])


@pytest.mark.parametrize(
    ("metric", "limit", "said"),
    [
        ("box_ece", {"at_most": 0.2}, True),
        ("box_ece", {"at_most": 0.3}, True),
        ("box_ece", {"at_most": 0.19}, False),
        ("box_ece_drop", {"at_most": 0.2}, True),
        ("box_ece_drop", {"at_most": 0.1}, False),
        ("box_ece_interval", {"at_most": 0.2}, False),
        ("box_ece_interval_drop", {"at_most": 0.2}, False),
    ],
)
def test_a_criterion_that_unbiased_errors_cannot_miss_gets_a_remark(metric, limit, said):
    measured = find_metric(metric, BOX_METRICS)
    remark = threshold_remark(Criterion(id="R", metric=metric, **limit), measured, measured.limits(1))
    expected = f"cannot fail a model whose errors go to both sides equally often, however wrong the uncertainty is that it states: {metric} is at most 0.2 there; box_ece_interval can"  # noqa: E501
    assert remark == (f"at_most {limit['at_most']:g} {expected}" if said else "")


def test_a_criterion_on_the_ece_of_boxes_the_wrong_way_or_without_effect_has_the_remark_of_that():
    for metric in (box_ece, box_ece_interval):
        for limit, words in (({"at_least": 0.2}, "accepts the worse models"), ({"at_most": 0.45}, "cannot fail: no")):
            assert words in threshold_remark(Criterion(id="R", metric=metric.name, **limit), metric, metric.limits(1))


def test_regression_ece_by_hand_on_three_images():
    answers = BoxAnswers([[1.0] * 4, [-1.0] * 4, [0.0] * 4], np.zeros((3, 4)), np.ones((3, 4)))
    observed = np.array([0, 1, 1, 1, 2, 2, 2, 2, 3, 3]) / 3
    assert box_reliability(answers).observed[2] == pytest.approx(observed)
    assert box_ece(answers) == pytest.approx(np.abs(observed - np.arange(1, 11) / 10).mean())
    far = BoxAnswers(np.full((5, 4), 99.0), np.zeros((5, 4)), np.ones((5, 4)))
    assert box_ece(far) == pytest.approx(box_ece.limits(1)[1])


def test_a_true_coordinate_above_the_prediction_lies_in_its_high_quantiles():
    above = BoxAnswers(np.full((4, 4), 1.0), np.zeros((4, 4)), np.ones((4, 4)))
    assert box_reliability(above).observed[0].tolist() == [0.0] * 8 + [1.0, 1.0], "Phi(1) = 0.84"


def test_sharpness_both_ways():
    answers = random_answers()
    sigma = np.sqrt(answers.variance)
    assert sharpness(answers) == pytest.approx(sigma.mean())
    assert uncertainty_variance(answers) == pytest.approx(sigma.var())


def slow_area(score, loss):
    return np.mean([loss[score <= own].mean() for own in score])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_sparsification_error_is_not_negative_and_0_for_the_oracle(pairs):
    error, uncertainty = np.array(pairs, dtype=float).T / 4
    ones = np.ones((1, len(error)))
    area = sparsification_area(error, uncertainty, ones)[0]
    assert area >= -1e-12
    assert sparsification_area(error, error, ones)[0] == pytest.approx(0, abs=1e-12)
    assert sparsification_area(error, np.zeros(len(error)), ones)[0] == pytest.approx(
        error.mean() - slow_area(error, error)
    )


def test_area_of_boxes_is_the_mean_risk_over_ranks():
    for ties in (False, True):
        answers = random_answers(ties=ties)
        assert box_aurc(answers) == pytest.approx(slow_area(answers.sigma, 1 - answers.overlap))
    answers = random_answers()
    risk = 1 - answers.overlap
    assert box_ause(answers) == pytest.approx(slow_area(answers.sigma, risk) - slow_area(risk, risk))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12), st.integers(1, 9))
def test_curve_of_sparsification_lies_on_or_above_its_oracle_and_ends_at_the_mean(pairs, points):
    error, uncertainty = np.array(pairs, dtype=float).T
    curve = sparsification(error, uncertainty, points)
    assert (curve.error >= curve.oracle - 1e-9).all()
    assert (np.diff(curve.oracle) >= -1e-9).all()
    assert curve.kept[-1] == 1
    assert [curve.error[-1], curve.oracle[-1]] == pytest.approx([error.mean(), error.mean()])
    order = np.arange(len(error))[::-1]
    assert sparsification(error[order], uncertainty[order], points).error == pytest.approx(curve.error)


def test_curve_of_sparsification_of_a_bad_order_by_hand():
    curve = sparsification([4.0, 1.0, 2.0, 5.0], [1.0, 2.0, 2.0, 3.0], points=4)
    assert curve.error == pytest.approx([4.0, 5.5 / 2, 7 / 3, 3.0])
    assert curve.oracle == pytest.approx([1.0, 1.5, 7 / 3, 3.0])


def test_curve_of_sparsification_without_images_and_with_wrong_input():
    assert np.isnan(sparsification([], []).error).all()
    with pytest.raises(ValueError, match="an uncertainty per error"):
        sparsification([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="must not be NaN"):
        sparsification([1.0], [np.nan])


@pytest.mark.parametrize("metric", BOX_METRICS, ids=lambda metric: metric.name)
def test_a_weight_counts_an_image_that_often(metric):
    for ties in (False, True):
        answers = random_answers(30, ties=ties)
        counts = rng(1).integers(0, 4, size=30)
        repeated = answers.rows(np.repeat(np.arange(30), counts))
        weights = np.stack([counts, np.ones(30), np.zeros(30)]).astype(np.float32)
        values = metric.measure(answers, weights).values
        assert values[:2] == pytest.approx([metric(repeated), metric(answers)], rel=1e-9)
        assert np.isnan(values[2])
        assert metric.measure(answers).reason == ""


@pytest.mark.parametrize("metric", CLASS_METRICS, ids=lambda metric: metric.name)
def test_a_weight_counts_an_answer_that_often(metric):
    probabilities = rng(2).dirichlet(np.ones(3), size=40).round(1)
    probabilities[:, 2] = 1 - probabilities[:, :2].sum(axis=1)
    probabilities = np.abs(probabilities)
    labels = rng(3).integers(3, size=40)
    counts = rng(4).integers(0, 4, size=40)
    answers = ProbabilityAnswers.from_probabilities(probabilities, labels)
    rows = np.repeat(np.arange(40), counts)
    repeated = ProbabilityAnswers.from_probabilities(probabilities[rows], labels[rows])
    values = metric(answers, np.stack([counts, np.zeros(40)]).astype(np.float32))
    assert values[0] == pytest.approx(metric(repeated))
    assert np.isnan(values[1])


def test_a_model_without_uncertainty_has_a_reason_in_place_of_values():
    answers = BoxAnswers(random_answers().true, random_answers().boxes)
    measured = of_rows(BOX_METRICS, answers, np.ones((2, len(answers))))
    for metric in BOX_METRICS:
        assert measured[metric.name].reason == (NO_UNCERTAINTY if metric in UNCERTAIN else "")
        assert np.isnan(measured[metric.name].values).all() == (metric in UNCERTAIN)
    with pytest.raises(ValueError, match="states no uncertainty"):
        box_reliability(answers)


def test_no_images_are_a_reason():
    nothing = BoxAnswers(np.empty((0, 4)), np.empty((0, 4)), np.empty((0, 4)))
    assert {metric.measure(nothing).reason for metric in BOX_METRICS} == {"no images"}


def test_boxes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="true must be finite"):
        BoxAnswers([[0, 0, 1, np.nan]], [[0, 0, 1, 1]])
    with pytest.raises(ValueError, match="boxes must be finite numbers"):
        BoxAnswers([[0, 0, 1, 1]], [[0, 0, 1]])
    with pytest.raises(ValueError, match="must not be negative"):
        BoxAnswers([[0, 0, 1, 1]], [[0, 0, 1, 1]], [[1, 1, 1, -1]])


def test_bounds_of_box_metrics_come_from_objects():
    answers = random_answers(120)
    groups = [f"object {index // 2}" for index in range(120)]
    resampled = GroupBootstrap(groups, resamples=200).distributions(BOX_METRICS, answers)
    for metric in BOX_METRICS:
        estimate = bootstrap_estimate(metric(answers), resampled[metric.name].values, 60, 0.95, metric.limits(1))
        assert resampled[metric.name].reason == "" == estimate.reason
        assert estimate.lo < estimate.value < estimate.hi
    of_mean = mean_interval(iou.per_image(answers), groups, *iou.limits(1))
    assert of_mean.lo < iou(answers) < of_mean.hi
    assert of_mean.groups == 60
    of_share = proportion_interval(iou_at_50.per_image(answers), groups)
    assert of_share.value == pytest.approx(iou_at_50(answers))


def test_a_study_of_classes_cannot_name_a_metric_of_boxes():
    for metric in BOX_METRICS:
        assert metric.name not in METRICS
    with pytest.raises(InputError, match="iou"):
        METRICS.get("iou")
    assert find_metric("iou", BOX_METRICS) is iou
    assert find_metric("iou_drop", BOX_METRICS).limits(1) == (-1.0, 1.0)


def slow_adaptive(confidence, correct, bins=10):
    """The bins of equal mass, block by block of equal confidence."""
    n, sums = len(confidence), np.zeros(bins)
    for value in np.unique(confidence):
        inside = confidence == value
        before = (confidence < value).sum()
        position = bins * (2 * before + inside.sum()) // (2 * n)
        sums[position] += (confidence - correct)[inside].sum()
    return np.abs(sums).sum() / n


@pytest.mark.slow
def test_adaptive_ece_is_that_of_netcal_where_no_two_confidences_are_equal():
    netcal = pytest.importorskip("netcal.metrics", reason="the independent reference for ECE is not installed")
    for seed in range(3):
        probabilities = rng(seed).dirichlet(np.ones(4), size=200)
        labels = rng(seed + 10).integers(4, size=200)
        answers = Answers.from_probabilities(probabilities, labels)
        reference = netcal.ECE(10, equal_intervals=False).measure(probabilities, labels)
        assert ece_adaptive(answers) == pytest.approx(reference, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(11, 20), st.booleans()), min_size=1, max_size=40))
def test_adaptive_ece_never_splits_answers_of_equal_confidence(pairs):
    confidence = np.array([tenths / 20 for tenths, _ in pairs])
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    answers = Answers.from_probabilities(probabilities, [0 if right else 1 for _, right in pairs])
    assert ece_adaptive(answers) == pytest.approx(slow_adaptive(answers.confidence, answers.correct))


def test_adaptive_ece_of_one_confidence_is_ece():
    answers = Answers.from_probabilities([[0.8, 0.2]] * 10, [0] * 6 + [1] * 4)
    assert ece_adaptive(answers) == pytest.approx(0.2) == ece(answers)


def test_classwise_ece_is_the_mean_of_two_class_problems_and_needs_all_probabilities():
    probabilities, labels = rng(5).dirichlet(np.ones(3), size=150), rng(6).integers(3, size=150)
    answers = ProbabilityAnswers.from_probabilities(probabilities, labels)
    by_hand = []
    for index in range(3):
        bins = np.clip(np.ceil(probabilities[:, index] * 10) - 1, 0, 9)
        gap = probabilities[:, index] - (labels == index)
        by_hand.append(sum(abs(gap[bins == b].sum()) for b in range(10)) / 150)
    assert ece_classwise(answers) == pytest.approx(np.mean(by_hand))
    plain = Answers.from_probabilities(probabilities, labels)
    assert "needs the probabilities of all classes" in ece_classwise.measure(plain).reason
    assert ece(plain) == ece(answers)


@pytest.mark.slow
def test_classwise_ece_is_that_of_netcal_for_each_class():
    netcal = pytest.importorskip("netcal.metrics", reason="the independent reference for ECE is not installed")
    probabilities, labels = rng(7).dirichlet(np.ones(4), size=150), rng(8).integers(4, size=150)
    one_against_rest = [
        netcal.ECE(10).measure(probabilities[:, index], (labels == index).astype(int)) for index in range(4)
    ]
    answers = ProbabilityAnswers.from_probabilities(probabilities, labels)
    assert ece_classwise(answers) == pytest.approx(np.mean(one_against_rest), abs=1e-12)


def test_area_of_classes_is_that_of_risk_and_coverage():
    confidence = rng(9).uniform(0.5, 1, size=60).round(2)
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    answers = Answers.from_probabilities(probabilities, rng(10).integers(2, size=60))
    assert class_aurc(answers) == pytest.approx(risk_coverage(answers.confidence, ~answers.correct).area)
