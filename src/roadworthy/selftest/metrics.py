"""Known answers of metrics: every metric of answers, and every metric that a protocol of ours declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from roadworthy.selftest import inputs
from roadworthy.selftest.items import Item, Values

KIND = "metrics"
BOX_METRICS = (
    *("iou", "mae", "diou", "iou_at_50", "box_ece_interval", "box_ece", "box_nll"),
    *("sharpness", "uncertainty_variance", "box_aurc", "box_ause"),
)
SEPARATION = {
    "ood": ("auroc", "aupr_in", "aupr_out", "fpr95_in", "fpr95_out"),
    "monitoring": ("auroc", "fpr95_in"),
    "od_test": ("auroc", "aupr_in", "aupr_out", "fpr95_in", "fpr95_out"),
}
DECISIONS = ("mcc", "fpr", "fnr", "precision", "recall", "f1_weighted", "f1_micro", "balanced_accuracy")
EFFECTS = ("safety_gain", "residual_hazard", "availability_cost")
CLASS_MCC = ("class_mcc_alone", "class_mcc", "relative_change", "relative_change_perfect")
STREAM_CHANGES = ("stream_change", "stream_change_perfect")
STREAMS = {
    "detection_delay_median": "median_delay",
    "detection_delay_worst": "worst_delay",
    "missed_onsets": "missed_onsets",
    "longest_false_alarm_run": "longest_run",
}
"""The metrics of streams, and what `StreamEvents` calls them."""
PRIOR, COST = 0.25, 4.0


def items() -> Iterator[Item]:
    """All items of this kind; those of a protocol are named `protocol.metric`."""
    yield from _of_answers()
    yield from _of_boxes()
    yield from _of_scores()
    yield from _of_decisions()
    yield from _of_streams()
    yield from _of_dependability()
    yield from _of_situations()


def names() -> list[tuple[str, bool]]:
    """Every metric that is known here, as its item would be called, and whether it is ours."""
    from roadworthy.core.registry import is_built_in
    from roadworthy.metrics import METRICS
    from roadworthy.protocols import PROTOCOLS, find_protocol

    known = [(name, _is_ours(METRICS.get(name))) for name in METRICS]
    of_answers = {METRICS.get(name) for name in METRICS}
    for protocol in map(find_protocol, PROTOCOLS):
        own = [metric.name for metric in protocol.metrics if metric not in of_answers]
        known += [(f"{protocol.name}.{name}", is_built_in(type(protocol))) for name in own]
    return known


def _is_ours(metric: Any) -> bool:
    from roadworthy.core.registry import is_built_in

    return is_built_in(metric.of_answers or metric.of_images)


def _item(name: str, subject: str, measure: Callable[[Any], Values]) -> Item:
    return Item(KIND, name, f"roadworthy.{subject}", measure)


def answers() -> Any:
    """The fixed answers of a classifier, with the probabilities of all classes."""
    from roadworthy.metrics.class_probabilities import ProbabilityAnswers

    return ProbabilityAnswers.from_probabilities(np.array(inputs.PROBABILITIES), list(inputs.LABELS))


def _of_rows(metric: Any, given: Any, weights: Any) -> Values:
    """A metric as it is, with weights, and by rows of weights, as a bootstrap asks for it."""
    rows = np.array([np.ones(len(weights)), weights], dtype=np.float64)
    return {"value": metric(given), "weighted": metric(given, rows[1]), "rows of weights": metric(given, rows)}


def _of_answers() -> Iterator[Item]:
    def measure(metric: Any) -> Values:
        return _of_rows(metric, answers(), inputs.WEIGHTS)

    for name in ("accuracy", "auroc", "brier", "brier_mean", "nll"):
        yield _item(name, f"metrics:{name}", measure)
    for name in ("ece", "mean_confidence", "overconfidence", "underconfidence", "fpr95_right", "fpr95_wrong"):
        yield _item(name, f"metrics:{name}", measure)
    yield _item("localization.ece_adaptive", "metrics.calibration:ece_adaptive", measure)
    yield _item("localization.ece_classwise", "metrics.class_probabilities:ece_classwise", measure)
    yield _item("localization.class_aurc", "metrics.selective:class_aurc", measure)
    yield _item("monitoring.accuracy", "metrics:accuracy", lambda metric: {"value": metric(answers())})
    yield _item("break_point.failure_probability", "metrics:accuracy", lambda metric: {"value": 1 - metric(answers())})


def _of_boxes() -> Iterator[Item]:
    def measure(metric: Any) -> Values:
        from roadworthy.metrics.boxes import BoxAnswers

        true, boxes = np.array(inputs.TRUE_BOXES, np.float64), np.array(inputs.BOXES, np.float64)
        given = BoxAnswers(true, boxes, np.array(inputs.BOX_VARIANCE, np.float64))
        return _of_rows(metric, given, inputs.BOX_WEIGHTS)

    for name in BOX_METRICS:
        yield _item(f"localization.{name}", f"metrics.boxes:{name}", measure)


def _of_scores() -> Iterator[Item]:
    def field(name: str, protocol: str, separation: Any) -> Values:
        inside = np.array(inputs.INSIDE, bool)
        if protocol == "ood":  # ten images: six inside, four outside
            result = separation(inputs.SCORES[:10], inside[:10], equal_shares=True)
        else:
            result = separation(inputs.SCORES, inside)
        return {"value": getattr(result, name)[0]}

    for protocol, fields in SEPARATION.items():
        for name in fields:
            yield _item(f"{protocol}.{name}", "metrics.ranking:separation", partial(field, name, protocol))

    def area(risk_coverage: Any) -> Values:
        return {"value": risk_coverage(inputs.SCORES, np.array(inputs.INSIDE) == 0).area}

    yield _item("monitoring.aurc", "metrics.selective:risk_coverage", area)


def _of_decisions() -> Iterator[Item]:
    def decided(function: Any) -> Values:
        from roadworthy.metrics.decisions import decision_counts

        return {"value": function(decision_counts(inputs.SHOULD_REJECT, inputs.REJECTED))}

    for name in DECISIONS:
        yield _item(f"monitoring.{name}", f"metrics.decisions:{name}", decided)

    wrong = [label != answer for label, answer in zip(inputs.MONITORED_LABELS, inputs.MONITORED_ANSWERS, strict=True)]

    def effect(name: str, effect_estimates: Any) -> Values:
        return {"value": effect_estimates(wrong, inputs.REJECTED, range(len(wrong)))[name].value}

    for name in EFFECTS:
        yield _item(f"monitoring.{name}", "statistics:effect_estimates", partial(effect, name))

    def correlation(name: str, class_mcc_estimates: Any) -> Values:
        given = inputs.MONITORED_LABELS, inputs.MONITORED_ANSWERS, np.array(inputs.REJECTED, bool)
        return {"value": class_mcc_estimates(*given, range(len(wrong)), 3, resamples=10)[name].value}

    for name in CLASS_MCC:
        yield _item(f"monitoring.{name}", "statistics:class_mcc_estimates", partial(correlation, name))

    def changed(name: str, stream_change_estimates: Any) -> Values:
        given = inputs.MONITORED_ANSWERS, wrong, np.array(inputs.REJECTED, bool)
        return {"value": stream_change_estimates(*given, range(len(wrong)), resamples=10)[name].value}

    for name in STREAM_CHANGES:
        yield _item(f"monitoring.{name}", "statistics:stream_change_estimates", partial(changed, name))

    def share(flags: Any, estimate: Any) -> Values:
        return {"value": estimate(np.asarray(flags, float), range(len(flags))).value}

    decided_on = zip(inputs.REJECTED, inputs.SHOULD_REJECT, strict=True)
    rejected_inside = [bool(rejected) for rejected, is_outside in decided_on if not is_outside]
    yield _item(
        "monitoring.rejected",
        "statistics:proportion_interval",
        partial(share, rejected_inside),
    )
    yield from _of_operating_points(wrong)
    yield from _of_od_test()


def _of_operating_points(wrong: list[bool]) -> Iterator[Item]:
    def shown() -> Any:
        from roadworthy.protocols.operating_points.thresholds import Shown

        names = np.array([str(row) for row in range(12)])
        return Shown(np.array(inputs.SCORES), np.array(wrong[:12]), names).decided(0.5)

    def rate(metric: str, inside_estimate: Any) -> Values:
        from roadworthy.protocols.operating_points import metrics

        return {"value": inside_estimate([[shown()]], np.arange(12), getattr(metrics, metric.upper())).value}

    for name in ("accepted_wrong", "rejected_right", "rejected", "accepted_error"):
        yield _item(f"operating_points.{name}", "protocols.operating_points.rates:inside_estimate", partial(rate, name))
    yield _item(
        "operating_points.accepted_outlier",
        "protocols.operating_points.rates:outside_estimate",
        lambda outside_estimate: {"value": outside_estimate([shown()]).value},
    )


def _of_od_test() -> Iterator[Item]:
    """Shares of right decisions on both sides, weighed by the prior, and what wrong ones cost."""
    from roadworthy.statistics import Estimate

    def weighed(values: tuple[float, float], weights: tuple[float, float], function: Any) -> Values:
        return {"value": function([Estimate(value, value, value) for value in values], weights).value}

    subject = "protocols.od_test.evaluation:_weighted"
    yield _item("od_test.accuracy", subject, partial(weighed, (0.9, 0.6), (1 - PRIOR, PRIOR)))
    yield _item("od_test.expected_cost", subject, partial(weighed, (0.1, 0.4), (1 - PRIOR, PRIOR * COST)))


def _of_streams() -> Iterator[Item]:
    def events(attribute: str, stream_events: Any) -> Values:
        return {"value": getattr(stream_events(inputs.STREAM_OOD, inputs.STREAM_REJECTED), attribute)}

    for name, attribute in STREAMS.items():
        yield _item(f"monitoring.{name}", "metrics.streams:stream_events", partial(events, attribute))
    yield _item(
        "monitoring.false_alarm_runs",
        "metrics.streams:stream_events",
        lambda stream_events: {
            "value": len(stream_events(inputs.STREAM_OOD, inputs.STREAM_REJECTED).run_lengths),
        },
    )
    yield _item(
        "monitoring.false_alarms_per_hour",
        "metrics.streams:false_alarms_per_hour",
        lambda per_hour: {"value": per_hour(runs=3, id_frames=8, frame_rate=inputs.FRAME_RATE)},
    )

    def cost(metric: str, costs: Any) -> Values:
        from roadworthy.protocols.monitoring.names import ALONE, GUARD

        monitored, alone = ("model", "monitor", GUARD), ("model", ALONE, GUARD)
        times = {monitored: np.array(inputs.SECONDS), alone: np.array(inputs.SECONDS_ALONE)}
        return {"value": costs({}, times, {}).estimate(monitored, metric).value}

    for name in ("seconds_median", "seconds_p95", "seconds_p99", "extra_seconds"):
        yield _item(f"monitoring.{name}", "protocols.monitoring.costs:Costs", partial(cost, name))


def _of_dependability() -> Iterator[Item]:
    def coverage(scenario_coverage: Any) -> Values:
        from roadworthy.metrics.coverage import Schema

        schema = Schema(inputs.CONDITIONS)
        coverages = {k: scenario_coverage(schema, inputs.SEEN, k=k) for k in (1, 2, 3)}
        return {f"{k} conditions": [one.value, one.occupied, one.cells] for k, one in coverages.items()}

    yield _item("dependability.scenario_coverage", "metrics.coverage:scenario_coverage", coverage)

    def activation(k: int, coverage_of: Any) -> Values:
        layer = coverage_of(neurons=4, k=k)
        layer.add(np.array(inputs.ACTIVATIONS))
        return {"value": layer.result().value, "occupied": layer.result().occupied}

    for k in (1, 2, 3):
        yield _item(f"dependability.neuron_activation_{k}", "metrics.neurons:NeuronCoverage", partial(activation, k))
    yield _item(
        "dependability.neuron_pattern",
        "metrics.neurons:activation_pattern",
        lambda pattern: {"value": pattern(np.array(inputs.ACTIVATIONS), groups=4).value},
    )
    yield _item(
        "dependability.confidence_loss",
        "metrics.confidence_loss:confidence_loss",
        lambda loss: {"value": loss(inputs.DISTURBED, inputs.UNDISTURBED, ("rotation", "blur", "fgsm")).value},
    )
    yield _item(
        "dependability.accuracy_discounted",
        "statistics.degradation:discounted",
        lambda discounted: {"value": discounted(0.9, 0.5)},
    )

    def drive(time_between_failures: Any) -> Values:
        between_failures = time_between_failures(inputs.POSITIONS, inputs.FAILED, inputs.DRIVES)
        return {
            "value": between_failures.value,
            "failures": between_failures.failures,
            "exposure": between_failures.exposure,
        }

    yield _item("dependability.time_between_failures", "statistics.degradation:time_between_failures", drive)
    yield from _of_the_field()
    yield from _of_heat_maps()

    def confusion(weighted_confusion: Any) -> Values:
        return {"value": weighted_confusion(np.array(inputs.SEVERITIES))(answers())}

    yield _item("dependability.weighted_confusion", "metrics.weighted_confusion:WeightedConfusion", confusion)


def _of_the_field() -> Iterator[Item]:
    """The field of the docstring: dry always right, rain always wrong, snow never shown."""

    def field(name: str, domain_performance: Any) -> Values:
        weather = {"weather": ["dry"] * 50 + ["rain"] * 50}
        frequencies = [({"weather": "dry"}, 0.7), ({"weather": "rain"}, 0.2), ({"weather": "snow"}, 0.1)]
        performance = domain_performance([1] * 50 + [0] * 50, range(100), weather, frequencies, 0.8, 0, 1)
        return {"value": getattr(performance, name)}

    for metric, name in {"domain_share": "share", "domain_expected": "expected"}.items():
        yield _item(f"dependability.{metric}", "statistics.degradation:domain_performance", partial(field, name))


def _of_heat_maps() -> Iterator[Item]:
    def maps(name: str, occlusion_scores: Any) -> Values:
        scores = occlusion_scores(inputs.HEAT_MAPS, np.array(inputs.OCCLUDING), inputs.RHO)
        return {"value": getattr(scores, name)}

    for metric, name in {"interpretation_precision": "precision", "occlusion_covering": "covering"}.items():
        yield _item(f"dependability.{metric}", "metrics.occlusion:occlusion_scores", partial(maps, name))
    yield _item(
        "dependability.interpretation_chance",
        "metrics.occlusion:chance_precision",
        lambda chance: {"value": chance(inputs.OCCLUDING)},
    )

    def matched(matched_precision: Any) -> Values:
        return {"value": matched_precision(inputs.HEAT_MAPS, np.array(inputs.OCCLUDING), [2, 2])}

    for metric in ("interpretation_masked", "interpretation_place"):
        yield _item(f"dependability.{metric}", "metrics.occlusion:matched_precision", matched)


def _of_situations() -> Iterator[Item]:
    def crossing(first_crossing: Any) -> Values:
        from roadworthy.statistics import Estimate

        values = (0.99, 0.95, 0.91, 0.85, 0.7)
        point = first_crossing(range(5), [Estimate(v, v - 0.04, v + 0.04, n=9, groups=9) for v in values], 0.9)
        return {"value": point.severity.value, "from": point.severity.lo, "to": point.severity.hi}

    yield _item("break_point.break_severity", "statistics.crossings:first_crossing", crossing)

    def expected(high: float, expected_value: Any) -> Values:
        from roadworthy.statistics.expectation import SituationSample

        day = SituationSample(np.array([0.75, 0.15]), np.array([[1.0, 1, 1, 1], [1, 1, 0, 0]]), np.array([*"abcd"]))
        night = SituationSample(np.array([0.1]), np.array([[1.0, 0.0]]), np.array([*"ef"]))
        return {"value": expected_value([day, night], 0, high).value}

    for metric, high in {"expected_accuracy": 1.0, "expected_brier": 2.0}.items():
        yield _item(f"situations.{metric}", "statistics.expectation:expected_value", partial(expected, high))

    def met(share_met: Any) -> Values:
        from roadworthy.statistics import Estimate

        estimates = [Estimate(0.97, 0.95, 0.99), Estimate(0.92, 0.85, 0.96), Estimate(0.7, 0.6, 0.8)]
        met = share_met([0.6, 0.3, 0.1], estimates, 0.9)
        return {"value": met.share.value, "shown": met.share.lo, "at most": met.share.hi}

    yield _item("situations.share_met", "statistics.expectation:share_met", met)
