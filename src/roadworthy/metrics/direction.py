"""Which way is better, for every figure of every protocol."""

from __future__ import annotations

from roadworthy.metrics.classification import HIGHER_IS_BETTER
from roadworthy.metrics.history import current_name

HIGHER = ("aupr_in", "aupr_out", "scenario_coverage", "interpretation_precision", "domain_share", "domain_expected")
LOWER = ("fpr95_in", "fpr95_out", "expected_cost", "neuron_pattern", "occlusion_covering", "weighted_confusion")
_DIRECTIONS = {**HIGHER_IS_BETTER, **dict.fromkeys(HIGHER, True), **dict.fromkeys(LOWER, False)}


def higher_is_better(metric: str) -> bool | None:
    """True or False by the metric's name in tables; None where neither is better in itself, or it is not known here.

    >>> higher_is_better("accuracy"), higher_is_better("fpr95_in"), higher_is_better("mean_confidence")
    (True, False, None)
    """
    return _DIRECTIONS.get(current_name(metric))
