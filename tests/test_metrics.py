"""Metrics against independent references, at edge values, and the laws they obey."""

from __future__ import annotations

import math
import time

import hypothesis.strategies as st
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings

from roadworthy.core.errors import InputError
from roadworthy.metrics import (
    METRICS,
    Answers,
    accuracy,
    auroc,
    binary_auroc,
    brier,
    brier_mean,
    confusion_matrix,
    ece,
    find_metric,
    fpr95_right,
    fpr95_wrong,
    mean_confidence,
    nll,
    overconfidence,
    recall_per_class,
    reliability,
    underconfidence,
)
from roadworthy.metrics.ranking import false_positive_rate
from roadworthy.protocols.ood.metrics import AUPR_IN

OURS = {name: METRICS.get(name) for name in METRICS if METRICS.get(name).__module__.startswith("roadworthy.")}


def random_answers(n: int = 500, classes: int = 7, seed: int = 0, dtype: type = np.float32):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.3), n).astype(dtype)
    labels = np.where(rng.random(n) < 0.6, probabilities.argmax(axis=1), rng.integers(classes, size=n))
    return probabilities, labels, Answers.from_probabilities(probabilities, labels)


def with_confidences(confidences, correct):
    """Two-class answers of the given confidences (0.5 to 1)."""
    top = np.asarray(confidences, dtype=np.float64)
    return Answers.from_probabilities(np.stack([top, 1 - top], axis=1), np.where(correct, 0, 1))


def naive_ece(confidences, correct, bins=10):
    """The textbook definition in exact comparisons: (over, under)."""
    over = under = 0.0
    for k in range(bins):
        inside = [
            (c, r)
            for c, r in zip(confidences, correct, strict=True)
            if (k / bins < c or k == 0) and (c <= (k + 1) / bins or k == bins - 1)
        ]
        if inside:
            gap = sum(c for c, _ in inside) / len(inside) - sum(r for _, r in inside) / len(inside)
            over += len(inside) / len(confidences) * max(gap, 0)
            under += len(inside) / len(confidences) * max(-gap, 0)
    return over, under


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", [0, 1])
def test_against_independent_references(seed, dtype):
    probabilities, labels, answers = random_answers(seed=seed, dtype=dtype)
    exact = probabilities.astype(np.float64)
    onehot = np.eye(exact.shape[1])[labels]
    correct = exact.argmax(axis=1) == labels
    over, under = naive_ece(exact.max(axis=1), correct)
    false, true, _ = sklearn.metrics.roc_curve(correct, exact.max(axis=1), drop_intermediate=False)
    rejected, caught, _ = sklearn.metrics.roc_curve(~correct, -exact.max(axis=1), drop_intermediate=False)
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(labels, exact.argmax(axis=1)),
        "auroc": sklearn.metrics.roc_auc_score(correct, exact.max(axis=1)),
        "brier": ((exact - onehot) ** 2).sum(axis=1).mean(),
        "brier_mean": ((exact - onehot) ** 2).mean(),
        "ece": over + under,
        "nll": -np.log(np.maximum(exact[np.arange(len(labels)), labels], 1e-12)).mean(),
        "mean_confidence": exact.max(axis=1).mean(),
        "overconfidence": over,
        "underconfidence": under,
        "fpr95_right": false[np.argmax(true >= 0.95)],
        "fpr95_wrong": rejected[np.argmax(caught >= 0.95)],
    }
    assert set(expected) == set(OURS)
    for name, metric in OURS.items():
        assert metric(answers) == pytest.approx(expected[name], rel=1e-6, abs=1e-9), name


def test_ece_against_netcal():
    netcal = pytest.importorskip("netcal.metrics", reason="the independent reference for ECE is not installed")
    for seed in range(3):
        probabilities, labels, answers = random_answers(seed=seed, dtype=np.float64)
        assert ece(answers) == pytest.approx(netcal.ECE(10).measure(probabilities, labels), abs=1e-12)
    certain = with_confidences([0.95, 1.0], [True, False])
    assert ece(certain) == pytest.approx(netcal.ECE(10).measure(np.array([[0.05, 0.95], [0.0, 1.0]]), np.array([1, 0])))


def test_nll_against_sklearn():
    probabilities, labels, answers = random_answers(dtype=np.float64)
    probabilities = np.clip(probabilities, 1e-6, None)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    answers = Answers.from_probabilities(probabilities, labels)
    assert nll(answers) == pytest.approx(sklearn.metrics.log_loss(labels, probabilities, labels=range(7)), rel=1e-12)


def test_confusion_matrix_and_recall_against_sklearn():
    _, labels, answers = random_answers(classes=5)
    labels = np.where(labels == 3, 2, labels)
    answers = Answers(
        labels, answers.prediction, answers.confidence, answers.p_label, answers.sum_squares, answers.num_classes
    )
    expected = sklearn.metrics.confusion_matrix(labels, answers.prediction, labels=range(5))
    assert (confusion_matrix(answers) == expected).all()
    recall = recall_per_class(answers)
    assert math.isnan(recall[3])
    present = [0, 1, 2, 4]
    theirs = sklearn.metrics.recall_score(labels, answers.prediction, labels=present, average=None)
    np.testing.assert_allclose(recall[present], theirs)


@pytest.mark.parametrize(
    ("confidences", "correct", "expected"),
    [
        ([0.95, 1.0], [True, False], 0.475),
        ([1.0], [True], 0.0),
        ([1.0], [False], 1.0),
        ([0.6, 0.6000001], [True, False], (0.4 + 0.6000001) / 2),
        ([0.7, 0.65], [True, False], 0.175),
        ([0.5], [True], 0.5),
    ],
)
def test_ece_known_answers(confidences, correct, expected):
    answers = with_confidences(confidences, correct)
    assert ece(answers) == pytest.approx(expected, abs=1e-12)
    assert overconfidence(answers) + underconfidence(answers) == ece(answers)


def test_bin_edges_are_tenths_in_float64_and_right_closed():
    edges = np.arange(11) / 10
    above = np.nextafter(edges[1:-1], 1)
    values = np.concatenate([edges, above, [np.float64(np.float32(0.3)), np.float64(np.float32(0.7))]])
    n = len(values)
    answers = Answers(np.zeros(n, int), np.zeros(n, int), values, values, values**2, 2)
    count = np.zeros(10, int)
    for value in values:
        count[next(k for k in range(10) if value <= (k + 1) / 10)] += 1
    assert (reliability(answers).count == count).all()
    single = with_confidences(np.array([0.6, 0.7], dtype=np.float32), [True, True])
    assert np.flatnonzero(reliability(single).count).tolist() == [6], (
        "float32(0.6) is above 0.6, float32(0.7) below 0.7"
    )


def test_reliability_of_empty_and_filled_bins():
    answers = with_confidences([0.95, 1.0, 0.55], [True, False, True])
    bins = reliability(answers)
    assert bins.count.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert bins.accuracy[9] == 0.5
    assert bins.confidence[9] == pytest.approx(0.975)
    assert np.isnan(bins.accuracy[:5]).all()
    assert np.isnan(bins.confidence[8])
    assert bins.edges[3] == 0.3
    assert len(bins.edges) == 11
    shares = bins.count / bins.count.sum()
    assert np.nansum(shares * np.abs(bins.confidence - bins.accuracy)) == pytest.approx(ece(answers))


def test_brier_reaches_two_and_its_mean_divides_by_the_classes():
    answers = Answers.from_probabilities([[1.0, 0.0, 0.0, 0.0]], [1])
    assert (brier(answers), brier_mean(answers)) == (2.0, 0.5)


def test_nll_floor():
    answers = Answers.from_probabilities([[1.0, 0.0]], [1])
    assert nll(answers) == pytest.approx(-math.log(1e-12)) == nll.limits(2)[1]


def test_ties_go_to_the_lowest_index():
    answers = Answers.from_probabilities([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]], [0, 2])
    assert answers.prediction.tolist() == [0, 1]
    assert accuracy(answers) == 0.5


def test_auroc_ties_count_half_and_one_class_has_none():
    assert auroc(with_confidences([0.8, 0.8], [True, False])) == 0.5
    right, wrong = with_confidences([0.8, 0.9], [True, True]), with_confidences([0.8, 0.9], [False, False])
    assert math.isnan(auroc(right))
    assert math.isnan(auroc(wrong))
    assert auroc.reason(right) == "no incorrect prediction"
    assert auroc.reason(wrong) == "no correct prediction"
    assert accuracy.reason(right) is None
    assert auroc.reason(with_confidences([0.8, 0.9], [True, False])) is None


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ([0.9] * 20, [0.8, 0.7], 0.0),
        ([0.9] * 19 + [0.6], [0.9, 0.8, 0.6], 1 / 3),  # 19 of 20 right answers are enough
        ([0.9] * 18 + [0.7, 0.6], [0.8, 0.7, 0.6], 2 / 3),  # 18 are not; the wrong answer at 0.7 is accepted with it
        ([0.9, 0.6], [0.8, 0.7, 0.6], 1.0),  # the right answer at 0.6 must be accepted, and the wrong one with it
        ([0.8] * 5, [0.8] * 3, 1.0),  # all equal: no threshold between them, and no 0.5 by interpolation
        ([0.7], [0.9], 1.0),
        ([0.9], [0.7], 0.0),
        ([], [0.9], math.nan),
        ([0.9], [], math.nan),
    ],
)
def test_fpr95_right_is_the_share_of_wrong_answers_accepted_with_95_percent_of_the_right_ones(right, wrong, expected):
    answers = with_confidences(right + wrong, [True] * len(right) + [False] * len(wrong))
    assert fpr95_right(answers) == pytest.approx(expected, nan_ok=True)
    assert fpr95_right(answers, np.ones((2, len(answers)))) == pytest.approx([expected] * 2, nan_ok=True)
    missing = fpr95_right.reason(answers)
    assert missing == (
        ("no correct prediction" if wrong else "no incorrect prediction") if not right or not wrong else None
    )


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ([0.9, 0.8], [0.6] * 20, 0.0),
        ([0.9, 0.8, 0.6], [0.6] * 19 + [0.9], 1 / 3),  # 19 of 20 wrong answers are enough
        ([0.9, 0.8, 0.7, 0.6], [0.6] * 18 + [0.8] * 2, 3 / 4),  # 18 are not; a right answer at 0.8 falls with them
        ([0.8] * 5, [0.8] * 3, 1.0),  # all equal
        ([0.7], [0.9], 1.0),
        ([], [0.9], math.nan),
        ([0.9], [], math.nan),
    ],
)
def test_fpr95_wrong_is_the_share_of_right_answers_rejected_with_95_percent_of_the_wrong_ones(right, wrong, expected):
    answers = with_confidences(right + wrong, [True] * len(right) + [False] * len(wrong))
    assert fpr95_wrong(answers) == pytest.approx(expected, nan_ok=True)
    assert fpr95_wrong(answers, np.ones((2, len(answers)))) == pytest.approx([expected] * 2, nan_ok=True)
    assert fpr95_wrong.reason(answers) == fpr95_right.reason(answers)


def test_fpr95_right_of_two_overlapping_ranges_is_their_closed_form():
    """Right answers evenly from 0.6 to 1 and wrong ones from 0.5 to 0.9: the threshold is 0.62, above it 28 of 40."""
    right, wrong = 0.6 + 0.4 * (np.arange(2000) + 0.5) / 2000, 0.5 + 0.4 * (np.arange(3000) + 0.5) / 3000
    answers = with_confidences(np.concatenate([right, wrong]), np.arange(5000) < 2000)
    assert fpr95_right(answers) == pytest.approx((0.9 - 0.62) / 0.4, abs=1e-3)


def test_false_positive_rates_refuse_nan_and_take_infinity():
    positive = np.array([True, False])
    with pytest.raises(ValueError, match="NaN"):
        false_positive_rate(np.array([np.nan, 1.0]), positive, np.ones((1, 2)))
    assert false_positive_rate(np.array([np.inf, -np.inf]), positive, np.ones((1, 2))) == 0.0
    assert false_positive_rate(np.array([-np.inf, np.inf]), positive, np.ones((1, 2))) == 1.0


def test_no_images_is_missing_with_a_reason():
    none = Answers.from_probabilities(np.empty((0, 3)), np.empty(0, int))
    for metric in OURS.values():
        assert math.isnan(metric(none))
        assert metric.reason(none) == "no images"
        assert np.isnan(metric(none, np.ones((4, 0)))).tolist() == [True] * 4
    assert np.isnan(recall_per_class(none)).all()
    assert confusion_matrix(none).sum() == 0
    assert reliability(none).count.sum() == 0


def test_a_resample_without_weight_or_without_errors_is_missing():
    answers = with_confidences([0.9, 0.8], [True, False])
    weights = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(auroc(answers, weights), [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(accuracy(answers, weights), [0.5, 1.0, np.nan])


@pytest.mark.parametrize(
    ("probabilities", "labels", "complaint"),
    [
        ([[0.5, np.nan]], [0], "NaN"),
        ([[0.5, np.inf]], [0], "NaN or infinite"),
        ([[0.5, 0.5]], [2], r"within 0\.\.1"),
        ([[0.5, 0.5]], [-1], r"within 0\.\.1"),
        ([[0.5, 0.5]], [0.0], "class indices"),
        ([[0.5, 0.5]], [0, 1], "need 1 labels"),
        ([[3.0, -2.0]], [0], "non-negative"),
        ([[3.0, 2.0]], [0], "sum to 1"),
        ([0.5, 0.5], [0, 1], r"\(n, K\)"),
    ],
)
def test_bad_probabilities_are_an_error(probabilities, labels, complaint):
    with pytest.raises(ValueError, match=complaint):
        Answers.from_probabilities(probabilities, labels)


@pytest.mark.parametrize(
    "change", [{"confidence": [np.nan]}, {"p_label": [1.5]}, {"label": [7]}, {"prediction": [0, 1]}]
)
def test_bad_answers_are_an_error(change):
    columns = {"label": [0], "prediction": [0], "confidence": [0.9], "p_label": [0.9], "sum_squares": [0.82]}
    with pytest.raises(ValueError, match=r"must|need"):
        Answers(**{name: np.array(column) for name, column in (columns | change).items()}, num_classes=2)


@pytest.mark.parametrize("weights", [np.ones(3), np.ones((2, 3)), np.array([1.0, -1.0]), np.array([np.nan, 1.0])])
def test_bad_weights_are_an_error(weights):
    answers = with_confidences([0.9, 0.8], [True, False])
    for metric in OURS.values():
        with pytest.raises(ValueError, match="weights"):
            metric(answers, weights)


def test_unknown_names_are_an_error():
    answers = with_confidences([0.9], [True])
    with pytest.raises(InputError, match="unknown metric 'acuracy': did you mean 'accuracy'"):
        find_metric("acuracy")
    with pytest.raises(ValueError, match="'ece' is not a mean over images"):
        ece.per_image(answers)
    with pytest.raises(ValueError, match="'aupr_in' is not computed from answers"):
        AUPR_IN(answers)


def test_values_per_image_average_to_the_metric_within_its_range():
    _, _, answers = random_answers()
    for name, metric in OURS.items():
        low, high = metric.limits(answers.num_classes)
        assert low <= metric(answers) <= high
        assert metric.measure(answers).values.tolist() == [metric(answers)], name
        if metric.of_images:
            values = metric.per_image(answers)
            assert values.mean() == pytest.approx(metric(answers), rel=1e-12)
            assert low <= values.min()
            assert values.max() <= high


@st.composite
def answers_and_counts(draw):
    """A few answers with many ties, and how often each counts."""
    n = draw(st.integers(1, 12))
    classes = draw(st.integers(2, 4))
    cells = draw(st.lists(st.integers(0, 4), min_size=n * classes, max_size=n * classes))
    table = np.array(cells, dtype=np.float64).reshape(n, classes)
    table[table.sum(axis=1) == 0, 0] = 1
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    counts = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    return table / table.sum(axis=1, keepdims=True), np.array(labels), np.array(counts)


@given(answers_and_counts())
@settings(max_examples=80, deadline=None)
def test_a_weight_counts_an_image_that_often(case):
    table, labels, counts = case
    weighted = Answers.from_probabilities(table, labels)
    rows = np.repeat(np.arange(len(labels)), counts)
    repeated = Answers.from_probabilities(table[rows], labels[rows])
    batch = np.stack([counts, np.ones_like(counts)]).astype(np.float32)
    for name, metric in OURS.items():
        expected = metric(repeated)
        assert metric(weighted, counts) == pytest.approx(expected, abs=1e-12, nan_ok=True), name
        of_rows = metric(weighted, batch)
        assert of_rows.shape == (2,)
        np.testing.assert_allclose(of_rows, [expected, metric(weighted)], atol=1e-12, err_msg=name)
    np.testing.assert_allclose(recall_per_class(weighted, batch)[0], recall_per_class(repeated), atol=1e-12)


@given(answers_and_counts(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_images_does_not_matter(case, random):
    table, labels, _ = case
    order = list(range(len(labels)))
    random.shuffle(order)
    a, b = Answers.from_probabilities(table, labels), Answers.from_probabilities(table[order], labels[order])
    for name, metric in OURS.items():
        assert metric(a) == pytest.approx(metric(b), abs=1e-12, nan_ok=True), name
    assert (confusion_matrix(a) == confusion_matrix(b)).all()


@given(answers_and_counts())
@settings(max_examples=60, deadline=None)
def test_auroc_and_calibration_against_naive_loops(case):
    table, labels, _ = case
    answers = Answers.from_probabilities(table, labels)
    right, wrong = answers.confidence[answers.correct], answers.confidence[~answers.correct]
    pairs = [(1.0 if a > b else 0.5 if a == b else 0.0) for a in right for b in wrong]
    assert auroc(answers) == pytest.approx(np.mean(pairs) if pairs else math.nan, nan_ok=True)
    over, under = naive_ece(answers.confidence, answers.correct)
    assert overconfidence(answers) == pytest.approx(over, abs=1e-12)
    assert underconfidence(answers) == pytest.approx(under, abs=1e-12)
    assert mean_confidence(answers) - accuracy(answers) == pytest.approx(over - under, abs=1e-12)


def test_weighted_auroc_against_sklearn_with_fractional_weights():
    rng = np.random.default_rng(0)
    scores, positive = rng.integers(20, size=300) / 20, rng.random(300) < 0.7
    weights = rng.random((5, 300))
    expected = [sklearn.metrics.roc_auc_score(positive, scores, sample_weight=row) for row in weights]
    np.testing.assert_allclose(binary_auroc(scores, positive, weights), expected, rtol=1e-12)
    assert binary_auroc(scores, positive, weights[0]) == pytest.approx(expected[0])


def test_auroc_of_infinite_scores_and_of_nan():
    assert binary_auroc([np.inf, -np.inf, 0.0], [True, False, False]) == 1.0
    with pytest.raises(ValueError, match="NaN"):
        binary_auroc([np.nan, 1.0], [True, False])
    with pytest.raises(ValueError, match="booleans"):
        binary_auroc([0.0, 1.0], [0, 1])


def test_resampled_values_do_not_depend_on_how_rows_are_chunked():
    _, _, answers = random_answers(n=2000)
    weights = np.random.default_rng(1).poisson(1, (50, 2000)).astype(np.float32)
    for name, metric in OURS.items():
        whole = metric(answers, weights)
        by_row = np.array([metric(answers, row) for row in weights])
        pieces = np.concatenate([metric(answers, weights[:7]), metric(answers, weights[7:])])
        assert (whole == pieces).all(), name
        assert (whole == by_row).all(), name


def test_a_thousand_resamples_of_ten_thousand_scores_in_a_second():
    rng = np.random.default_rng(0)
    scores, positive = rng.random(10_000), rng.random(10_000) < 0.9
    weights = rng.integers(4, size=(1000, 10_000), dtype=np.uint8).astype(np.float32)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        binary_auroc(scores, positive, weights)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 1
