"""Truths of metrics for the self-test, by other libraries, in exact fractions or by counting."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from statistics import median, quantiles
from typing import Any

import numpy as np

from known_truth import FORMULA, HAND, by, truth
from roadworthy.selftest import inputs

P = np.array(inputs.PROBABILITIES)
Y = np.array(inputs.LABELS)
W = np.array(inputs.WEIGHTS)
CONFIDENCE, ANSWER = P.max(axis=1), P.argmax(axis=1)
RIGHT = ANSWER == Y


def in_rows(measure: Callable[[Any], float], weights: Any = W) -> dict[str, Any]:
    """A metric of rows, of all images and of each image as often as its weight says."""
    once, repeated = np.arange(len(weights)), np.repeat(np.arange(len(weights)), weights)
    value, weighted = float(measure(once)), float(measure(repeated))
    return {"value": value, "weighted": weighted, "rows of weights": [value, weighted]}


def exact(number: float) -> Fraction:
    return Fraction(str(number))


def binned_gaps(probability: list[Fraction], hits: list[bool]) -> list[Fraction]:
    """Per bin (k/10, (k+1)/10], the sum of probability - hit, as a share of all images."""
    gaps = [Fraction(0)] * 10
    for value, hit in zip(probability, hits, strict=True):
        index = max(math.ceil(value * 10) - 1, 0)
        gaps[index] += value - hit
    return [gap / len(hits) for gap in gaps]


def ece_by_hand(rows: Any, part: Callable[[Fraction], Fraction] = abs) -> float:
    gaps = binned_gaps([exact(CONFIDENCE[row]) for row in rows], [bool(RIGHT[row]) for row in rows])
    return float(sum(part(gap) for gap in gaps))


def classwise_by_hand(rows: Any) -> float:
    total = Fraction(0)
    for k in range(3):
        gaps = binned_gaps([exact(P[row, k]) for row in rows], [bool(Y[row] == k) for row in rows])
        total += sum(abs(gap) for gap in gaps)
    return float(total / 3)


def adaptive_by_hand(rows: Any) -> float:
    """Ten bins of equally many answers; those of equal confidence are together in the bin of their middle rank."""
    ordered = sorted(exact(CONFIDENCE[row]) for row in rows)
    gaps: dict[int, Fraction] = {}
    for row in rows:
        value = exact(CONFIDENCE[row])
        below, equal = sum(one < value for one in ordered), sum(one == value for one in ordered)
        bin_ = min(int(Fraction(2 * below + equal, 2) * 10 / len(ordered)), 9)
        gaps[bin_] = gaps.get(bin_, Fraction(0)) + value - bool(RIGHT[row])
    return float(sum(abs(gap) for gap in gaps.values()) / len(ordered))


def area_by_pairs(high: Any, low: Any) -> float:
    return float(np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a in high for b in low]))


def accepted_at_95(high: Any, low: Any) -> float:
    """The share of `low` that reaches the largest threshold which at least 95 % of `high` reach."""
    thresholds = [t for t in high if np.mean(np.asarray(high) >= t) >= 0.95]
    return float(np.mean(np.asarray(low) >= max(thresholds)))


def risk_area(scores: Any, losses: Any) -> float:
    scores, losses = np.asarray(scores, float), np.asarray(losses, float)
    return float(np.mean([losses[scores >= score].mean() for score in scores]))


def of_answers() -> dict[str, Any]:
    from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score, zero_one_loss

    def brier(rows: Any) -> float:
        return float(brier_score_loss(Y[rows], P[rows], labels=[0, 1, 2], scale_by_half=False))

    def fpr95(rows: Any) -> float:
        return accepted_at_95(CONFIDENCE[rows][RIGHT[rows]], CONFIDENCE[rows][~RIGHT[rows]])

    def fpr95_of_errors(rows: Any) -> float:
        return accepted_at_95(-CONFIDENCE[rows][~RIGHT[rows]], -CONFIDENCE[rows][RIGHT[rows]])

    accuracy = in_rows(lambda rows: accuracy_score(Y[rows], ANSWER[rows]))
    found = {
        "accuracy": truth(accuracy, by("scikit-learn", "accuracy_score")),
        "auroc": truth(
            in_rows(lambda rows: roc_auc_score(RIGHT[rows], CONFIDENCE[rows])), by("scikit-learn", "roc_auc_score")
        ),
        "brier": truth(in_rows(brier), by("scikit-learn", "brier_score_loss")),
        "brier_mean": truth(
            in_rows(lambda rows: brier(rows) / 3), by("scikit-learn", "brier_score_loss, by 3 classes")
        ),
        "nll": truth(
            in_rows(lambda rows: log_loss(Y[rows], P[rows], labels=[0, 1, 2])), by("scikit-learn", "log_loss")
        ),
        "ece": truth(in_rows(ece_by_hand), HAND),
        "mean_confidence": truth(
            in_rows(lambda rows: float(sum(exact(CONFIDENCE[r]) for r in rows) / len(rows))), HAND
        ),
        "overconfidence": truth(in_rows(lambda rows: ece_by_hand(rows, lambda gap: max(gap, Fraction(0)))), HAND),
        "underconfidence": truth(in_rows(lambda rows: ece_by_hand(rows, lambda gap: max(-gap, Fraction(0)))), HAND),
        "fpr95_right": truth(in_rows(fpr95), FORMULA),
        "fpr95_wrong": truth(in_rows(fpr95_of_errors), FORMULA),
        "localization.ece_adaptive": truth(in_rows(adaptive_by_hand), HAND),
        "localization.ece_classwise": truth(in_rows(classwise_by_hand), HAND),
        "localization.class_aurc": truth(in_rows(lambda rows: risk_area(CONFIDENCE[rows], ~RIGHT[rows])), FORMULA),
    }
    value = accuracy["value"]
    found["monitoring.accuracy"] = truth({"value": value}, by("scikit-learn", "accuracy_score"))
    found["break_point.failure_probability"] = truth(
        {"value": float(zero_one_loss(Y, ANSWER))}, by("scikit-learn", "zero_one_loss")
    )
    return found


def boxes_overlap(true: Any, box: Any) -> tuple[Fraction, Fraction]:
    """IoU and distance-IoU of two boxes, in fractions."""
    wide = max(min(true[2], box[2]) - max(true[0], box[0]), 0)
    high = max(min(true[3], box[3]) - max(true[1], box[1]), 0)
    areas = [(one[2] - one[0]) * (one[3] - one[1]) for one in (true, box)]
    iou = Fraction(wide * high, sum(areas) - wide * high)
    centres = [(Fraction(one[0] + one[2], 2), Fraction(one[1] + one[3], 2)) for one in (true, box)]
    apart = sum((a - b) ** 2 for a, b in zip(*centres, strict=True))
    across = (max(true[2], box[2]) - min(true[0], box[0])) ** 2 + (max(true[3], box[3]) - min(true[1], box[1])) ** 2
    return iou, iou - apart / across


def of_boxes() -> dict[str, Any]:
    from scipy.stats import norm

    true, boxes, variance = (np.array(x, float) for x in (inputs.TRUE_BOXES, inputs.BOXES, inputs.BOX_VARIANCE))
    overlaps = [boxes_overlap(a, b) for a, b in zip(inputs.TRUE_BOXES, inputs.BOXES, strict=True)]
    iou, diou = (np.array([float(pair[index]) for pair in overlaps]) for index in (0, 1))
    sigma = np.sqrt(variance)
    floored = np.sqrt(np.maximum(variance, 0.01))
    nll = -norm.logpdf(true, boxes, floored).mean(axis=1)
    reached = norm.cdf(true, boxes, floored)

    def ece(rows: Any) -> float:
        gaps = [abs(np.mean(reached[rows, j] <= level / 10) - level / 10) for j in range(4) for level in range(1, 11)]
        return float(np.mean(gaps))

    def ece_of_intervals(rows: Any) -> float:
        gaps = []
        for level in range(1, 11):
            low, high = norm.interval(level / 10, boxes, floored)
            inside = (low <= true) & (true <= high)
            gaps += [abs(np.mean(inside[rows, j]) - level / 10) for j in range(4)]
        return float(np.mean(gaps))

    def ause(rows: Any) -> float:
        loss, spread = 1 - iou[rows], sigma[rows].mean(axis=1)
        return risk_area(-spread, loss) - risk_area_sorted(loss)

    def risk_area_sorted(loss: Any) -> float:
        return risk_area(-np.asarray(loss), loss)

    def mean_of(values: Any) -> dict[str, Any]:
        return in_rows(lambda rows: float(np.mean(values[rows])), np.array(inputs.BOX_WEIGHTS))

    def other(measure: Callable[[Any], float]) -> dict[str, Any]:
        return in_rows(measure, np.array(inputs.BOX_WEIGHTS))

    normal = by("scipy", "stats.norm")
    found = {
        "iou": truth(mean_of(iou), HAND),
        "diou": truth(mean_of(diou), HAND),
        "mae": truth(mean_of(np.abs(true - boxes).mean(axis=1)), FORMULA),
        "iou_at_50": truth(mean_of((iou >= 0.5).astype(float)), HAND),
        "box_nll": truth(mean_of(nll), normal),
        "box_ece_interval": truth(other(ece_of_intervals), normal),
        "box_ece": truth(other(ece), normal),
        "sharpness": truth(mean_of(sigma.mean(axis=1)), FORMULA),
        "uncertainty_variance": truth(other(lambda rows: float(np.var(sigma[rows]))), FORMULA),
        "box_aurc": truth(other(lambda rows: risk_area(-sigma[rows].mean(axis=1), 1 - iou[rows])), FORMULA),
        "box_ause": truth(other(ause), FORMULA),
    }
    return {f"localization.{name}": one for name, one in found.items()}


def of_scores() -> dict[str, Any]:
    from sklearn.metrics import average_precision_score, roc_auc_score

    def separated(scores: Any, inside: Any, weight: Any = None, weighing: str = "") -> dict[str, tuple[float, str]]:
        precision = by("scikit-learn", f"average_precision_score{weighing}")
        return {
            "auroc": (roc_auc_score(inside, scores), by("scikit-learn", "roc_auc_score")),
            "aupr_in": (average_precision_score(inside, scores, sample_weight=weight), precision),
            "aupr_out": (average_precision_score(~inside, -scores, sample_weight=weight), precision),
            "fpr95_in": (accepted_at_95(scores[inside], scores[~inside]), FORMULA),
            "fpr95_out": (accepted_at_95(-scores[~inside], -scores[inside]), FORMULA),
        }

    scores, inside = np.array(inputs.SCORES), np.array(inputs.INSIDE, bool)
    some, few = inside[:10], scores[:10]
    shares = np.where(some, 1 / some.sum(), 1 / (~some).sum())
    own_metrics = {
        "ood": separated(few, some, shares, ", each side with a weight of 1"),
        "od_test": separated(scores, inside),
    }
    own_metrics["monitoring"] = {name: own_metrics["od_test"][name] for name in ("auroc", "fpr95_in")}
    found = {
        f"{protocol}.{name}": truth({"value": value}, origin)
        for protocol, own in own_metrics.items()
        for name, (value, origin) in own.items()
    }
    return found | {"monitoring.aurc": truth({"value": risk_area(scores, ~inside)}, FORMULA)}


def of_decisions() -> dict[str, Any]:
    from sklearn import metrics as sk

    should, does = np.array(inputs.SHOULD_REJECT), np.array(inputs.REJECTED)
    label, answer = np.array(inputs.MONITORED_LABELS), np.array(inputs.MONITORED_ANSWERS)
    wrong = label != answer
    cancelled = np.where(does == 1, 3, answer)
    alone, with_monitor = sk.matthews_corrcoef(label, answer), sk.matthews_corrcoef(label, cancelled)
    learn = {
        "mcc": (sk.matthews_corrcoef(should, does), "matthews_corrcoef"),
        "fpr": (1 - sk.recall_score(should, does, pos_label=0), "recall_score"),
        "fnr": (1 - sk.recall_score(should, does), "recall_score"),
        "precision": (sk.precision_score(should, does), "precision_score"),
        "recall": (sk.recall_score(should, does), "recall_score"),
        "f1_weighted": (sk.f1_score(should, does, average="weighted"), "f1_score"),
        "f1_micro": (sk.f1_score(should, does, average="micro"), "f1_score"),
        "balanced_accuracy": (sk.balanced_accuracy_score(should, does), "balanced_accuracy_score"),
        "class_mcc_alone": (alone, "matthews_corrcoef"),
        "class_mcc": (with_monitor, "matthews_corrcoef"),
        "relative_change": ((with_monitor - alone) / alone, "matthews_corrcoef"),
    }
    wanted, perfect = np.where(wrong, 3, answer), sk.matthews_corrcoef(label, np.where(wrong, 3, answer))
    accepted, done = sk.matthews_corrcoef(wanted, answer), sk.matthews_corrcoef(wanted, cancelled)
    learn |= {
        "relative_change_perfect": ((perfect - alone) / alone, "matthews_corrcoef"),
        "stream_change": (done / accepted - 1, "matthews_corrcoef"),
        "stream_change_perfect": (1 / accepted - 1, "matthews_corrcoef"),
    }
    found = {
        f"monitoring.{name}": truth({"value": value}, by("scikit-learn", function))
        for name, (value, function) in learn.items()
    }
    counted = {
        "monitoring.safety_gain": np.mean(wrong & (does == 1)),
        "monitoring.residual_hazard": np.mean(wrong & (does == 0)),
        "monitoring.availability_cost": np.mean(~wrong & (does == 1)),
        "monitoring.rejected": np.mean(does[should == 0]),
    }
    shown, wrong_shown = np.array(inputs.SCORES) >= 0.5, wrong[:12]
    counted |= {
        "operating_points.accepted_wrong": np.mean(shown & wrong_shown),
        "operating_points.rejected_right": np.mean(~shown & ~wrong_shown),
        "operating_points.rejected": np.mean(~shown),
        "operating_points.accepted_error": np.mean(wrong_shown[shown]),
        "operating_points.accepted_outlier": np.mean(shown),
    }
    weighed = {"od_test.accuracy": 0.75 * 0.9 + 0.25 * 0.6, "od_test.expected_cost": 0.75 * 0.1 + 0.25 * 4 * 0.4}
    found |= {name: truth({"value": value}, "by hand") for name, value in weighed.items()}
    return found | {name: truth({"value": value}, "by counting") for name, value in counted.items()}


def of_costs() -> dict[str, Any]:
    """Quantiles by Python's own `statistics`; too few times for bounds of the 99 % quantile."""
    percent = quantiles(inputs.SECONDS, n=100, method="inclusive")
    extra = median(own - alone for own, alone in zip(inputs.SECONDS, inputs.SECONDS_ALONE, strict=True))
    values = {
        "seconds_median": percent[49],
        "seconds_p95": percent[94],
        "seconds_p99": percent[98],
        "extra_seconds": extra,
    }
    return {f"monitoring.{name}": {"value": value} for name, value in values.items()}


def of_streams_and_dependability() -> dict[str, Any]:
    """Small enough to be counted on paper; what can be enumerated is."""
    seen = list(zip(*inputs.SEEN.values(), strict=True))
    sizes = [len(values) for values in inputs.CONDITIONS.values()]
    coverage = {}
    for k in (1, 2, 3):
        members = [*combinations(range(3), k)]
        cells = sum(math.prod(sizes[member] for member in own) for own in members)
        occupied = len({(own, *(row[member] for member in own)) for own in members for row in seen})
        coverage[f"{k} conditions"] = [occupied / cells, occupied, cells]
    found = {
        "monitoring.detection_delay_median": {"value": 2.0},  # of the delays 2, missed and 0
        "monitoring.detection_delay_worst": {"value": "inf"},
        "monitoring.missed_onsets": {"value": 1},
        "monitoring.longest_false_alarm_run": {"value": 2},
        "monitoring.false_alarm_runs": {"value": 4},
        "monitoring.false_alarms_per_hour": {"value": 3 / (8 / 10 / 3600)},
        **of_costs(),
        "dependability.scenario_coverage": coverage,
    }
    on = [[value > 0 for value in row] for row in inputs.ACTIVATIONS]
    for k in (1, 2, 3):
        occupied = len({(own, *(row[member] for member in own)) for own in combinations(range(4), k) for row in on})
        cells = math.comb(4, k) * 2**k
        found[f"dependability.neuron_activation_{k}"] = {"value": occupied / cells, "occupied": occupied}
    worst = [
        min(column) - before
        for column, before in zip(zip(*inputs.DISTURBED, strict=True), inputs.UNDISTURBED, strict=True)
    ]
    costs = [inputs.SEVERITIES[label][answer] for label, answer in zip(Y, ANSWER, strict=True)]
    found |= {
        "dependability.neuron_pattern": {"value": 1 / 5},  # active 2, 2, 0, 3, 3: groups 2, 2, 0, 3, 3; one lies apart
        "dependability.confidence_loss": {"value": sum(worst) / 3},
        "dependability.accuracy_discounted": {"value": 0.45},
        "dependability.time_between_failures": {"value": 10 / 3, "failures": 3, "exposure": 10.0},
        "dependability.domain_share": {"value": 0.7},
        "dependability.domain_expected": {"value": 0.7 / 0.9},
        "dependability.interpretation_precision": {"value": [1 / 2, 2 / 3]},
        "dependability.occlusion_covering": {"value": [1 / 2, 1.0]},
        "dependability.interpretation_chance": {"value": [1 / 2, 1 / 2]},
        "dependability.interpretation_masked": {"value": [1 / 2, (1 + 1 / 2) / 2]},
        "dependability.interpretation_place": {"value": [1 / 2, (1 + 1 / 2) / 2]},
        "dependability.weighted_confusion": {"value": sum(costs) / sum(max(inputs.SEVERITIES[label]) for label in Y)},
        "break_point.break_severity": {"value": 2 + 1 / 6, "from": 1, "to": 3},
        "situations.expected_accuracy": {"value": 0.75 + 0.15 / 2 + 0.1 / 2},
        "situations.expected_brier": {"value": 0.75 + 0.15 / 2 + 0.1 / 2},
        "situations.share_met": {"value": 0.9, "shown": 0.6, "at most": 0.9},
    }
    return {name: truth(expected, "by hand") for name, expected in found.items()}


def metrics() -> dict[str, Any]:
    return of_answers() | of_boxes() | of_scores() | of_decisions() | of_streams_and_dependability()
