"""Metrics of decisions, risk and coverage, streams: against scikit-learn, closed forms and plain loops."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from roadworthy.metrics import METRICS
from roadworthy.metrics.decisions import (
    CLASS_METRICS,
    DECISION_FUNCTIONS,
    DECISION_METRICS,
    EFFECT_METRICS,
    DecisionCounts,
    balanced_accuracy,
    class_mcc,
    decision_counts,
    f1_micro,
    f1_weighted,
    fnr,
    fpr,
    mcc,
    precision,
    recall,
    why_undefined,
)
from roadworthy.metrics.selective import AURC, risk_coverage, weighted_aurc
from roadworthy.metrics.streams import false_alarms_per_hour, stream_events
from roadworthy.statistics import (
    GroupBootstrap,
    aurc_estimate,
    class_mcc_estimates,
    decision_estimates,
    effect_estimates,
    stream_change_estimates,
    wilson,
)
from roadworthy.statistics.bootstrap import bootstrap_interval
from roadworthy.statistics.decisions import resampled_sums

FLAGS = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 5)), min_size=1, max_size=30)


def random_decisions(images: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    positive = generator.random(images) < 0.3
    return positive, np.where(positive, generator.random(images) < 0.8, generator.random(images) < 0.1)


REFERENCES: dict[str, Callable[..., float]] = {
    "mcc": sklearn_metrics.matthews_corrcoef,
    "precision": lambda true, flagged, **kw: sklearn_metrics.precision_score(true, flagged, zero_division=0, **kw),
    "recall": lambda true, flagged, **kw: sklearn_metrics.recall_score(true, flagged, zero_division=0, **kw),
    "f1_weighted": lambda true, flagged, **kw: sklearn_metrics.f1_score(
        true, flagged, average="weighted", labels=[False, True], zero_division=0, **kw
    ),
    "f1_micro": lambda true, flagged, **kw: sklearn_metrics.f1_score(
        true, flagged, average="micro", labels=[False, True], **kw
    ),
    "balanced_accuracy": sklearn_metrics.balanced_accuracy_score,
    "fpr": lambda true, flagged, **kw: 1 - sklearn_metrics.recall_score(~true, ~flagged, zero_division=0, **kw),
    "fnr": lambda true, flagged, **kw: 1 - sklearn_metrics.recall_score(true, flagged, zero_division=0, **kw),
}


@settings(max_examples=12, deadline=None)
@given(FLAGS)
def test_metrics_of_decisions_are_those_of_scikit_learn_where_they_exist(rows: list[tuple[bool, bool, int]]) -> None:
    positive, flagged, weight = (np.array(column) for column in zip(*rows, strict=True))
    for weights in (None, np.array([weight + 1.0, weight])):
        counts = decision_counts(positive, flagged, weights)
        for name, function in DECISION_FUNCTIONS.items():
            for row, value in enumerate(np.atleast_1d(function(counts))):
                sample = {} if weights is None else {"sample_weight": weights[row]}
                if not math.isnan(value):
                    assert value == pytest.approx(REFERENCES[name](positive, flagged, **sample), abs=1e-9)


def test_published_table_two_of_the_report_fits_one_set_of_counts() -> None:
    # Outside-the-Box on GTSRB and BTSC, table 2 of the report: FPR .84, FNR .04, precision .80, recall .96, MCC .21.
    # The rates are rounded to two decimals, which leaves .015 of MCC open.
    counts = DecisionCounts(tp=0.96 * 7770, fp=0.84 * 2200, tn=0.16 * 2200, fn=0.04 * 7770)
    assert [round(float(value), 2) for value in (fpr(counts), fnr(counts), recall(counts), precision(counts))] == [
        0.84,
        0.04,
        0.96,
        0.80,
    ]
    assert float(mcc(counts)) == pytest.approx(0.21, abs=0.015)


@pytest.mark.parametrize(
    ("cells", "undefined"),
    [
        ((0, 5, 95, 0), dict.fromkeys(("mcc", "fnr", "recall", "balanced_accuracy"), "there is no OOD image")),
        ((5, 0, 0, 5), dict.fromkeys(("mcc", "fpr", "balanced_accuracy"), "there is no ID image")),
        ((0, 0, 9, 1), {"precision": "no image is rejected"}),
        ((9, 1, 0, 0), {}),
        ((0, 0, 0, 0), dict.fromkeys(DECISION_FUNCTIONS, "there are no images")),
        ((1, 0, 0, 0), dict.fromkeys(("mcc", "fpr", "balanced_accuracy"), "there is no ID image")),
        ((9, 1, 9, 1), {}),
    ],
)
def test_a_metric_is_nan_exactly_where_there_is_a_reason(
    cells: tuple[int, int, int, int], undefined: dict[str, str]
) -> None:
    counts = DecisionCounts(*cells)
    for name, function in DECISION_FUNCTIONS.items():
        expected = undefined.get(name, "")
        reason = why_undefined(name, counts)
        assert reason == (expected or reason if math.isnan(function(counts)) else "")
        assert math.isnan(function(counts)) == bool(reason)
        if expected:
            assert reason == expected


def test_no_flag_at_all_without_negatives_names_what_is_missing_first() -> None:
    assert why_undefined("precision", DecisionCounts(0, 0, 5, 0)) == "no image is rejected"
    clause = why_undefined("recall", DecisionCounts(0, 1, 5, 0), positive="wrong answer", negative="right answer")
    assert clause == "there is no wrong answer"


def test_reasons_belong_to_known_metrics_and_single_counts() -> None:
    with pytest.raises(ValueError, match="known are mcc"):
        why_undefined("accuracy", DecisionCounts(1, 1, 1, 1))
    with pytest.raises(ValueError, match="resamples"):
        why_undefined("mcc", decision_counts([True], [True], np.ones((2, 1))))


@pytest.mark.parametrize(
    ("positive", "flagged", "sentence"),
    [
        ([True], [True, False], "positive 1, flagged 2"),
        ([0.5], [True], "positive must hold True or False"),
        ([math.nan], [True], "positive must hold True or False"),
        ([[True]], [[True]], "positive must hold True or False"),
    ],
)
def test_bad_flags_are_refused(positive: list[object], flagged: list[object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        decision_counts(positive, flagged)


def test_counts_must_fit_together() -> None:
    with pytest.raises(ValueError, match="one shape"):
        DecisionCounts(np.ones(2), 1, 1, 1)
    with pytest.raises(ValueError, match="negative"):
        DecisionCounts(-1, 1, 1, 1)


def test_metrics_of_decisions_are_declared_once_and_are_not_metrics_of_answers() -> None:
    assert [metric.name for metric in DECISION_METRICS] == list(DECISION_FUNCTIONS)
    everything = (*DECISION_METRICS, *CLASS_METRICS, *EFFECT_METRICS, AURC)
    assert not {metric.name for metric in everything} & set(METRICS)
    assert not any(metric.is_of_answers for metric in everything)
    assert len({metric.name for metric in everything}) == len(everything)


def test_decision_estimates_bound_rates_by_wilson_and_the_rest_by_resampled_objects() -> None:
    positive, flagged = random_decisions(500)
    estimates = decision_estimates(positive, flagged, np.arange(500))
    assert list(estimates) == list(DECISION_FUNCTIONS)
    counts = decision_counts(positive, flagged)
    for name, (successes, n) in {
        "fpr": (counts.fp, counts.negative),
        "fnr": (counts.fn, counts.positive),
        "precision": (counts.tp, counts.flagged),
        "recall": (counts.tp, counts.positive),
        "f1_micro": (counts.tp + counts.tn, counts.total),
    }.items():
        assert (estimates[name].lo, estimates[name].hi) == wilson(float(successes), float(n))
        assert estimates[name].n == n == estimates[name].groups
    for name in ("mcc", "f1_weighted", "balanced_accuracy"):
        estimate = estimates[name]
        assert estimate.value == pytest.approx(float(DECISION_FUNCTIONS[name](counts)))
        assert estimate.lo < estimate.value < estimate.hi
        assert (estimate.n, estimate.groups, estimate.method, estimate.reason) == (500, 500, "group bootstrap", "")


def test_frames_of_one_object_do_not_narrow_bounds() -> None:
    positive, flagged = random_decisions(200)
    once = decision_estimates(positive, flagged, np.arange(200))
    often = decision_estimates(*(np.repeat(flags, 7) for flags in (positive, flagged)), np.repeat(np.arange(200), 7))
    for name, estimate in once.items():
        assert often[name].value == pytest.approx(estimate.value)
        assert often[name].groups == estimate.groups
        assert often[name].n == 7 * estimate.n
        tolerance = 1e-9 if often[name].method == "group bootstrap" else 0.02
        assert (often[name].lo, often[name].hi) == pytest.approx((estimate.lo, estimate.hi), abs=tolerance)


def test_order_of_images_and_names_of_groups_do_not_matter() -> None:
    positive, flagged = random_decisions(300)
    groups = np.arange(300) // 3
    order = np.random.default_rng(1).permutation(300)
    straight = decision_estimates(positive, flagged, groups)
    shuffled = decision_estimates(positive[order], flagged[order], np.array([f"sign {g}" for g in groups])[order])
    for name, estimate in straight.items():
        assert (shuffled[name].value, shuffled[name].lo) == pytest.approx((estimate.value, estimate.lo), abs=1e-12)


def test_resampling_kinds_of_groups_has_the_law_of_resampling_groups() -> None:
    positive, flagged = random_decisions(120)
    groups = np.arange(120) // 2
    by_kind = resampled_sums(np.column_stack([positive & flagged, ~positive & flagged]), groups, 4000, seed=3)
    weights = np.concatenate(list(GroupBootstrap(groups, resamples=4000, seed=3).chunks())).astype(np.float64)
    by_group = weights @ np.column_stack([positive & flagged, ~positive & flagged])
    np.testing.assert_allclose(by_kind.mean(axis=0), by_group.mean(axis=0), rtol=0.02)
    np.testing.assert_allclose(np.cov(by_kind.T), np.cov(by_group.T), rtol=0.1, atol=0.5)


def test_bounds_agree_with_the_group_bootstrap_of_images() -> None:
    positive, flagged = random_decisions(400)
    groups = np.arange(400) // 4
    weights = np.concatenate(list(GroupBootstrap(groups, resamples=2000, seed=5).chunks()))
    value = float(mcc(decision_counts(positive, flagged)))
    reference = bootstrap_interval(value, mcc(decision_counts(positive, flagged, weights)), 100, 0.95, (-1, 1))
    estimate = decision_estimates(positive, flagged, groups, resamples=2000, metrics=["mcc"])["mcc"]
    assert (estimate.lo, estimate.hi) == pytest.approx(reference[:2], abs=0.02)


def test_estimates_of_degenerate_decisions_have_reasons() -> None:
    nothing = decision_estimates([True, False], [False, False], ["a", "b"])
    assert nothing["precision"].reason == "no image is rejected"
    assert nothing["mcc"].value == 0  # as good as chance
    assert nothing["recall"].value == 0
    assert math.isnan(nothing["balanced_accuracy"].lo)
    assert "needs 50 objects" in nothing["balanced_accuracy"].reason
    empty = decision_estimates([], [], [])
    assert {estimate.reason for estimate in empty.values()} == {"there are no images"}
    single = decision_estimates([True], [True], ["a"], positive_name="wrong answer", negative_name="right answer")
    assert single["mcc"].reason == "there is no right answer"
    with pytest.raises(ValueError, match="a group per image"):
        decision_estimates([True], [True], ["a", "b"])
    with pytest.raises(ValueError, match="not a metric of decisions"):
        decision_estimates([True], [True], ["a"], metrics=["accuracy"])


def test_all_metrics_of_ten_thousand_images_take_no_time() -> None:
    positive, flagged = random_decisions(10_000)
    label = np.random.default_rng(2).integers(0, 43, 10_000)
    prediction = np.where(flagged, (label + 1) % 43, label)
    decision_estimates(positive, flagged, np.arange(10_000))
    start = time.perf_counter()
    decision_estimates(positive, flagged, np.arange(10_000))
    class_mcc_estimates(label, prediction, positive, np.arange(10_000), 43)
    assert time.perf_counter() - start < 1.5


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_class_mcc_is_that_of_scikit_learn(rows: list[tuple[int, int, int]]) -> None:
    label, answer, weight = (np.array(column) for column in zip(*rows, strict=True))
    value = class_mcc(label, answer, classes=4)
    reference = sklearn_metrics.matthews_corrcoef(label, answer)
    undefined = len(set(label.tolist())) == 1 or len(set(answer.tolist())) == 1
    assert math.isnan(value) == undefined
    assert reference == 0 if undefined else value == pytest.approx(reference, abs=1e-12)
    weighted = class_mcc(label, answer, 4, np.array([weight, weight + 1]))
    assert weighted.shape == (2,)
    assert math.isnan(weighted[1]) == undefined
    if not undefined:
        assert weighted[1] == pytest.approx(
            sklearn_metrics.matthews_corrcoef(label, answer, sample_weight=weight + 1), abs=1e-9
        )


def test_class_mcc_of_two_classes_is_mcc() -> None:
    positive, flagged = random_decisions(200)
    value = class_mcc(positive.astype(int), flagged.astype(int), classes=2)
    assert value == pytest.approx(float(mcc(decision_counts(positive, flagged))))


@pytest.mark.parametrize(
    ("label", "answer", "sentence"),
    [
        ([0, 2], [0, 0], "between 0 and 1"),
        ([0, 1], [0, 3], "between 0 and 2"),
        ([0, -1], [0, 0], "between 0 and 1"),
        ([0.0, 1.0], [0, 0], "whole numbers"),
        ([0], [0, 1], "a label and an answer"),
    ],
)
def test_bad_classes_are_refused(label: list[float], answer: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        class_mcc(label, answer, classes=2)


def test_class_mcc_estimates_are_paired_and_agree_with_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    label = generator.integers(0, 5, 300)
    prediction = np.where(generator.random(300) < 0.8, label, generator.integers(0, 5, 300))
    rejected = generator.random(300) < 0.15
    estimates = class_mcc_estimates(label, prediction, rejected, np.arange(300) // 2, 5)
    alone = sklearn_metrics.matthews_corrcoef(label, prediction)
    together = sklearn_metrics.matthews_corrcoef(label, np.where(rejected, 5, prediction))
    assert estimates["class_mcc_alone"].value == pytest.approx(alone)
    assert estimates["class_mcc"].value == pytest.approx(together)
    change = estimates["relative_change"]
    assert change.value == pytest.approx((together - alone) / alone)
    assert change.lo < change.value < change.hi < 0
    assert (change.n, change.groups) == (300, 150)
    unpaired = (estimates["class_mcc"].hi - estimates["class_mcc"].lo) / alone
    assert change.hi - change.lo < unpaired


def test_relative_change_of_the_published_table_five() -> None:
    # GTSRB: baseline .96, Outside-the-Box .59 is -38.54 % (table 5 of the report).
    assert round(100 * (0.59 - 0.96) / 0.96, 2) == -38.54
    nothing_rejected = class_mcc_estimates([0, 1, 1], [0, 1, 0], [False] * 3, range(3), 2)
    assert nothing_rejected["relative_change"].value == 0


@pytest.mark.parametrize(
    ("label", "prediction", "rejected", "reasons"),
    [
        ([], [], [], ["there are no images"] * 4),
        ([1, 1], [0, 1], [False, True], ["all images are of one class"] * 4),
        ([0, 1], [1, 1], [False, True], ["all answers are of one class", "", *["all answers are of one class"] * 2]),
        ([0, 1], [0, 1], [True, True], ["", "all are cancelled", "all are cancelled", ""]),
        ([0, 1], [1, 0], [False, True], ["", "", "not above 0", "with a perfect monitor all answers are"]),
    ],
)
def test_class_mcc_says_why_it_is_missing(
    label: list[int], prediction: list[int], rejected: list[bool], reasons: list[str]
) -> None:
    estimates = class_mcc_estimates(label, prediction, rejected, range(len(label)), 2)
    for estimate, reason in zip(estimates.values(), reasons, strict=True):
        assert reason in estimate.reason
        assert estimate.missing == bool(reason)


def test_a_perfect_monitor_gains_next_to_nothing_by_the_documents_relative_change() -> None:
    label = np.arange(4300) % 43
    prediction = np.where(np.arange(4300) % 25 == 0, (label + 1 + np.arange(4300) % 41) % 43, label)
    wrong = prediction != label
    estimates = class_mcc_estimates(label, prediction, np.arange(4300) % 20 == 0, np.arange(4300) // 10, 43)
    alone = sklearn_metrics.matthews_corrcoef(label, prediction)
    perfect = sklearn_metrics.matthews_corrcoef(label, np.where(wrong, 43, prediction))
    assert estimates["relative_change_perfect"].value == pytest.approx((perfect - alone) / alone)
    assert 0 < estimates["relative_change_perfect"].lo < estimates["relative_change_perfect"].hi < 0.002
    assert wrong.mean() == 0.04
    ours = stream_change_estimates(prediction, wrong, wrong, np.arange(4300) // 10)
    assert ours["stream_change"].value == ours["stream_change_perfect"].value == pytest.approx(1 / 0.96 - 1, abs=0.003)
    assert ours["stream_change"].lo > 0.03, "where a perfect monitor gains clearly"


STREAM = [0, 0, 1, 0, 1, 1], [False, False, False, True, True, False]
"""Answers and which of them are wrong: 3 and 4 should be cancelled."""


@pytest.mark.parametrize(
    ("rejected", "right", "done"),
    [
        ([], 4, (3, 3, 0)),
        ([3, 4], 6, (2, 2, 2)),
        ([0, 3], 4, (1, 3, 2)),
        ([3, 4, 5], 5, (2, 1, 3)),
        ([0, 1, 2, 5], 0, (1, 1, 4)),
    ],
)
def test_the_change_of_a_stream_by_hand(rejected: list[int], right: int, done: tuple[int, int, int]) -> None:
    """6 images, 2 each wanted as class 0, class 1, cancelled; MCC = (6 c - sum d w) / root((36 - sum d^2) 24)."""
    flags = np.isin(np.arange(6), rejected)
    alone = (6 * 4 - 12) / math.sqrt((36 - 18) * 24)
    after = (6 * right - 12) / math.sqrt((36 - sum(count**2 for count in done)) * 24)
    estimates = stream_change_estimates(*STREAM, flags, range(6))
    assert estimates["stream_change"].value == pytest.approx(after / alone - 1)
    assert estimates["stream_change_perfect"].value == pytest.approx(math.sqrt(3) - 1)
    wanted, given = np.where(STREAM[1], 2, STREAM[0]), np.where(flags, 2, STREAM[0])
    assert after == pytest.approx(sklearn_metrics.matthews_corrcoef(wanted, given))


@pytest.mark.parametrize(
    ("prediction", "wrong", "rejected", "reasons"),
    [
        ([], [], [], ["there are no images"] * 2),
        ([0, 1, 2], [True] * 3, [True, False, True], ["every answer is wrong"] * 2),
        ([0, 0, 0], [False] * 3, [False] * 3, ["all answers are of one class"] * 2),
        ([0, 1, 1], [False, False, True], [True] * 3, ["with the monitor all answers are of one class, or", ""]),
    ],
)
def test_the_change_of_a_stream_says_why_it_is_missing(
    prediction: list[int], wrong: list[bool], rejected: list[bool], reasons: list[str]
) -> None:
    estimates = stream_change_estimates(prediction, wrong, rejected, range(len(wrong)))
    for estimate, reason in zip(estimates.values(), reasons, strict=True):
        assert estimate.missing == bool(reason)
        assert reason in estimate.reason


def test_where_all_is_right_nothing_can_be_gained() -> None:
    estimates = stream_change_estimates([0, 1, 1], [False] * 3, [False] * 3, range(3))
    assert [estimate.value for estimate in estimates.values()] == [0, 0]
    assert stream_change_estimates([0, 1, 1], [False] * 3, [True, False, False], range(3))["stream_change"].value < 0


@pytest.mark.parametrize("accuracy", [0.1, 0.5, 0.9])
def test_a_monitor_that_rejects_at_random_loses(accuracy: float) -> None:
    generator = np.random.default_rng(0)
    prediction, wrong = generator.integers(0, 10, 5000), generator.random(5000) > accuracy
    for share in (0.1, 0.5, 0.9):
        rejected = generator.random(5000) < share
        estimates = stream_change_estimates(prediction, wrong, rejected, range(5000), resamples=100)
        assert estimates["stream_change"].hi < 0 < estimates["stream_change_perfect"].lo


def test_effects_are_shares_of_all_images() -> None:
    wrong, rejected = random_decisions(400)
    estimates = effect_estimates(wrong, rejected, np.arange(400))
    assert (estimates["safety_gain"].lo, estimates["safety_gain"].hi) == wilson(float((wrong & rejected).sum()), 400)
    total = estimates["safety_gain"].value + estimates["residual_hazard"].value
    assert total == pytest.approx(wrong.mean())
    assert estimates["availability_cost"].value == pytest.approx((~wrong & rejected).mean())
    assert {estimate.n for estimate in estimates.values()} == {400}
    assert {estimate.reason for estimate in effect_estimates([], [], []).values()} == {"there are no images"}


SCORED = st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.booleans(), st.integers(0, 3)), min_size=1)


@settings(max_examples=40, deadline=None)
@given(SCORED)
def test_risk_and_coverage_follow_their_definition(rows: list[tuple[float, bool, int]]) -> None:
    scores, wrong, weight = (np.array(column) for column in zip(*rows, strict=True))
    curve = risk_coverage(scores, wrong)
    for coverage, risk, threshold in zip(curve.coverage, curve.risk, curve.threshold, strict=True):
        accepted = scores >= threshold
        assert coverage == pytest.approx(accepted.mean())
        assert risk == pytest.approx(wrong[accepted].mean())
    assert curve.area == pytest.approx(np.mean([wrong[scores >= score].mean() for score in scores]))
    assert curve.coverage[-1] == 1
    assert curve.risk[-1] == pytest.approx(wrong.mean())
    repeated = np.repeat(np.arange(len(scores)), weight)
    by_weight = weighted_aurc(scores, wrong, weight[None].astype(float))[0]
    assert by_weight == pytest.approx(risk_coverage(scores[repeated], wrong[repeated]).area, nan_ok=True)


def test_aurc_of_perfect_worst_and_constant_scores() -> None:
    wrong = np.array([False, False, True, True])
    assert risk_coverage([4, 3, 2, 1], wrong).area == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    assert risk_coverage([1, 2, 3, 4], wrong).area == pytest.approx((1 + 1 + 2 / 3 + 1 / 2) / 4)
    assert risk_coverage([1, 1, 1, 1], wrong).area == 0.5
    assert risk_coverage([math.inf, 0, 0, -math.inf], wrong).coverage.tolist() == [0.25, 0.75, 1]
    assert math.isnan(risk_coverage([], []).area)
    with pytest.raises(ValueError, match="NaN"):
        risk_coverage([math.nan], [True])
    with pytest.raises(ValueError, match="a score per image"):
        risk_coverage([0.1], [True, False])


def test_aurc_has_bounds_by_resampled_objects() -> None:
    generator = np.random.default_rng(0)
    scores, groups = generator.random(400).round(2), np.arange(400) // 2
    wrong = generator.random(400) > scores
    estimate = aurc_estimate(scores, wrong, groups)
    assert estimate.value == risk_coverage(scores, wrong).area
    assert estimate.lo < estimate.value < estimate.hi
    assert (estimate.n, estimate.groups) == (400, 200)
    assert "needs 50 objects" in aurc_estimate(scores[:9], wrong[:9], range(9)).reason
    assert aurc_estimate([], [], []).reason == "there are no images"


def events_by_loop(ood: list[bool], rejected: list[bool], starts: list[bool]) -> tuple[list[tuple[int, float]], list]:
    """Onsets with delays, and runs of false alarms with lengths, frame by frame."""
    onsets: list[list[float]] = []
    runs: list[list[int]] = []
    for frame in range(len(ood)):
        follows = frame > 0 and not starts[frame]
        if ood[frame]:
            if not (follows and ood[frame - 1]):
                onsets.append([frame, math.inf])
            if rejected[frame] and math.isinf(onsets[-1][1]):
                onsets[-1][1] = frame - onsets[-1][0]
        elif rejected[frame]:
            if follows and rejected[frame - 1] and not ood[frame - 1]:
                runs[-1][1] += 1
            else:
                runs.append([frame, 1])
    return [(int(frame), delay) for frame, delay in onsets], runs


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=25))
def test_events_of_a_stream_agree_with_a_loop(frames: list[tuple[bool, bool, bool]]) -> None:
    ood, rejected, starts = ([frame[column] for frame in frames] for column in range(3))
    for given_starts in (None, starts):
        events = stream_events(ood, rejected, given_starts)
        onsets, runs = events_by_loop(ood, rejected, given_starts or [False] * len(ood))
        assert list(zip(events.onsets.tolist(), events.delays.tolist(), strict=True)) == onsets
        assert [list(run) for run in zip(events.run_starts.tolist(), events.run_lengths.tolist(), strict=True)] == runs
        assert (events.ood_frames, events.id_frames) == (sum(ood), len(ood) - sum(ood))
        assert events.missed_onsets == sum(math.isinf(delay) for _, delay in onsets)


def test_delays_and_rates_of_a_stream() -> None:
    events = stream_events([0, 1, 1, 0, 1, 0, 1, 1, 1], [1, 0, 1, 1, 1, 0, 0, 0, 0])
    assert events.delays.tolist() == [1, 0, math.inf]
    assert (events.median_delay, events.worst_delay, events.missed_onsets, events.longest_run) == (1, math.inf, 1, 1)
    calm = stream_events([0, 0], [0, 0])
    assert math.isnan(calm.median_delay)
    assert math.isnan(calm.worst_delay)
    assert (calm.longest_run, calm.missed_onsets) == (0, 0)
    assert false_alarms_per_hour(1, 3600, 1) == 1
    assert math.isnan(false_alarms_per_hour(0, 0, 30))
    with pytest.raises(ValueError, match="frame rate"):
        false_alarms_per_hour(1, 10, 0)


def test_functions_of_counts_are_vectorised_over_resamples() -> None:
    positive, flagged = random_decisions(50)
    weights = np.random.default_rng(0).integers(0, 3, (6, 50)).astype(np.float32)
    many = decision_counts(positive, flagged, weights)
    for function in (mcc, fpr, fnr, precision, recall, f1_weighted, f1_micro, balanced_accuracy):
        single = [float(function(decision_counts(positive, flagged, row))) for row in weights]
        np.testing.assert_allclose(function(many), single)
