"""Names of metrics in tables: which way each is better, and how runs of earlier versions, still read, call it."""

from __future__ import annotations

from roadworthy.metrics.classification import HIGHER_IS_BETTER

HIGHER = ("aupr_in", "aupr_out", "scenario_coverage", "interpretation_precision", "domain_share", "domain_expected")
LOWER = ("fpr95_in", "fpr95_out", "expected_cost", "neuron_pattern", "occlusion_covering", "weighted_confusion")
_DIRECTIONS = {**HIGHER_IS_BETTER, **dict.fromkeys(HIGHER, True), **dict.fromkeys(LOWER, False)}
FORMER_NAMES = {"fpr95": "fpr95_in"}
"""Names of earlier versions, in stored tables and in criteria, and what the same metric is called now."""
ADDED = ("fpr95_out", "fpr95_right")
"""Metrics that tables of earlier versions do not have."""


def current_name(metric: str) -> str:
    """The present name of a metric.

    >>> current_name("fpr95"), current_name("accuracy")
    ('fpr95_in', 'accuracy')
    """
    return FORMER_NAMES.get(metric, metric)


def stored_name(metric: str, stored: set[str]) -> str | None:
    """What a metric is called in a table that holds the metrics `stored`; None where it was added later.

    >>> stored_name("fpr95_in", {"auroc", "fpr95"}), stored_name("fpr95_out", {"auroc", "fpr95"})
    ('fpr95', None)
    """
    if metric in stored:
        return metric
    former = next((old for old, new in FORMER_NAMES.items() if new == metric and old in stored), None)
    return former or (None if metric.removesuffix("_drop") in ADDED else metric)


def higher_is_better(metric: str) -> bool | None:
    """True or False by the metric's name in tables; None where neither is better in itself, or it is not known here.

    >>> higher_is_better("accuracy"), higher_is_better("fpr95_in"), higher_is_better("mean_confidence")
    (True, False, None)
    """
    return _DIRECTIONS.get(current_name(metric))
