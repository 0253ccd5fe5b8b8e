"""Names that the tables of an OD-test and its page in the report share: columns and metrics."""

from __future__ import annotations

from roadworthy.protocols.od_test import metrics

NAME = "od_test"
METRICS = tuple(metric.name for metric in metrics.METRICS)
ACCURACY, COST, *_ = METRICS
ALL, NEAR, FAR = "all", "near", "far"
ANY = "any"
"""The architecture of monitors that ask no model, where there are several architectures."""
TRIPLE = ("source", "valid_set", "test_set", "monitor")
"""The columns that name a triple, and what a criterion may ask for; `DISTANCE` too."""
DISTANCE = "ood"
"""The column that says whether a test set is near to its source or far; stored runs and criteria name it so."""
ANSWERS = "answers"
"""The role of a case in which a model itself is asked, in place of a monitor on it."""
OUTLIERS = "outliers/"
"""What begins the name of a set in the labels of a case where it lies outside the source; its images have no class."""
POOLED_BY = ("domain", "asks_model", "weak_network", "weak_fit")
"""What means need of a row and no table shows: the source itself, whatever its models; whether the monitor asks the
model; whether the model's network, and whether the monitor's own fit, is below its floor."""
TWO_DATASETS, THREE_DATASETS, GAP = GAP_FIGURES = ("two_datasets", "three_datasets", "gap")
"""Accuracy on held-out images of D_v itself, accuracy on other sets, and the first less the second."""

SETTLED = 0.95
"""The order of two monitors is settled where it is the same in this share of the resamples."""


def judged_metric(cost: float) -> str:
    """The metric that monitors are ranked by: what their thresholds were chosen for.

    >>> judged_metric(1.0), judged_metric(20.0)
    ('accuracy', 'expected_cost')
    """
    return ACCURACY if cost == 1 else COST
