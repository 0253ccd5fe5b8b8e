"""The range of every figure that tables hold and criteria name: between which values it always lies."""

from __future__ import annotations

import math

SMALLEST_PROBABILITY = 1e-12
"""NLL takes a smaller probability of the true class as this: one image costs at most 27.6 nats, never infinity."""

SHARES = (
    *("accuracy", "auroc", "ece", "mean_confidence", "overconfidence", "underconfidence"),
    *("aupr_in", "aupr_out", "fpr95_in", "fpr95_out", "fpr95_right"),
    *("scenario_coverage", "neuron_pattern", "domain_share", "domain_expected"),
    *("interpretation_precision", "occlusion_covering", "weighted_confusion"),
)
"""Every figure that lies between 0 and 1; `neuron_activation_k` does so too."""

MEANS_OVER_OBJECTS = (
    *("accuracy", "brier", "brier_mean", "mean_confidence", "confidence_loss", "expected_cost"),
    *("neuron_pattern", "domain_expected", "interpretation_precision", "occlusion_covering"),
)
"""Figures whose bounds are those of a mean over objects: with finitely many, the bound on the safe side of a threshold
never lies on the end of the range. Counts and bootstrap bounds can lie there."""

DROP, DISCOUNTED, ACTIVATION = "_drop", "_discounted", "neuron_activation_"


def value_range(name: str, num_classes: int, highest_cost: float = math.inf) -> tuple[float, float]:
    """The smallest and largest value that a figure can have, by its name in tables and criteria.

    num_classes   bounds `brier_mean`, the Brier score per class
    highest_cost  bounds `expected_cost`: what it is where every decision is wrong

    A drop of a metric in [a, b] lies in [a - b, b - a]; a figure discounted for coverage cannot be larger than the
    figure itself. A name that is not known is a `ValueError`.

    >>> value_range("brier", num_classes=10), value_range("accuracy_drop", num_classes=10)
    ((0.0, 2.0), (-1.0, 1.0))
    """
    if name.endswith(DROP):
        low, high = value_range(name.removesuffix(DROP), num_classes, highest_cost)
        return low - high, high - low
    if name.endswith(DISCOUNTED):
        return value_range(name.removesuffix(DISCOUNTED), num_classes, highest_cost)
    others = {
        "brier": (0.0, 2.0),
        "brier_mean": (0.0, 2.0 / num_classes),
        "nll": (0.0, -math.log(SMALLEST_PROBABILITY)),
        "confidence_loss": (-1.0, 1.0),
        "expected_cost": (0.0, highest_cost),
        "time_between_failures": (0.0, math.inf),
    }
    if name in SHARES or (name.startswith(ACTIVATION) and name.removeprefix(ACTIVATION).isdigit()):
        return 0.0, 1.0
    if name not in others:
        raise ValueError(f"unknown metric {name!r}: known are {', '.join([*SHARES, *others])}")
    return others[name]


def bound_stays_inside(name: str) -> bool:
    """Whether a bound from finitely many objects never lies on the far end of the range.

    >>> bound_stays_inside("accuracy_drop"), bound_stays_inside("scenario_coverage")
    (True, False)
    """
    return name.removesuffix(DROP).removesuffix(DISCOUNTED) in MEANS_OVER_OBJECTS
