"""The metrics of dependability beside those of answers, in the order of the table."""

from __future__ import annotations

import math

from roadworthy.metrics import Metric, accuracy

_TUPLES = {1: "single neurons", 2: "pairs of neurons", 3: "triples of neurons"}


def neuron_activation(k: int) -> Metric:
    """Neuron k-activation.

    >>> neuron_activation(2).name, neuron_activation(2).label
    ('neuron_activation_2', 'Neuron 2-activation')
    """
    return Metric(
        f"neuron_activation_{k}",
        label=f"Neuron {k}-activation",
        sentence=f"Share of the on-off combinations of {_TUPLES.get(k, f'groups of {k} neurons')} of a layer that the data shows.",
        higher_is_better=None,
        percent=True,
    )


METRICS = (
    Metric(
        "scenario_coverage",
        label="Scenario coverage",
        sentence="Share of the possible combinations of k operating conditions that the data shows.",
        higher_is_better=True,
        percent=True,
    ),
    *(neuron_activation(k) for k in _TUPLES),
    Metric(
        "neuron_pattern",
        label="Activation pattern",
        sentence="Share of the images of a scenario that excite a layer unlike most others of it.",
        higher_is_better=False,
        percent=True,
        mean_over_objects=True,
    ),
    Metric(
        "confidence_loss",
        label="Confidence loss",
        sentence="Mean change of the true class's probability under the worst of several shifts and attacks.",
        higher_is_better=None,
        range=(-1.0, 1.0),
        mean_over_objects=True,
    ),
    accuracy.discounted(),
    Metric(
        "time_between_failures",
        label="Time between failures",
        sentence="Mean time or distance between failures along a drive.",
        higher_is_better=None,
        range=(0.0, math.inf),
        digits=1,
        infinite="no failure",
    ),
    Metric(
        "domain_share",
        label="Share of the field that meets the threshold",
        sentence="Share of the situations of the field, by their frequencies, in which a metric meets its threshold.",
        higher_is_better=True,
        percent=True,
    ),
    Metric(
        "domain_expected",
        label="Expected in the field",
        sentence="Expected metric over the situations of the field, by their frequencies.",
        higher_is_better=True,
        percent=True,
        mean_over_objects=True,
    ),
    Metric(
        "interpretation_precision",
        label="Interpretation precision",
        sentence="Share of the heat map's hot cells whose patch hides the object.",
        higher_is_better=True,
        percent=True,
        mean_over_objects=True,
    ),
    Metric(
        "occlusion_covering",
        label="Occlusion covering",
        sentence="Share of the cells that hide the object whose hiding loses it.",
        higher_is_better=False,
        percent=True,
        mean_over_objects=True,
    ),
    Metric(
        "weighted_confusion",
        label="Weighted confusion",
        sentence="Cost of all mistakes, by their severity, as a share of the worst possible. 0 is perfect.",
        higher_is_better=False,
        percent=True,
    ),
)
