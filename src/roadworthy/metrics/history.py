"""What changed among the metrics since runs were first stored: earlier runs must still be read, judged and verified."""

from __future__ import annotations

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
