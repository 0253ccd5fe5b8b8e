"""Names that the tables of an OD-test and its page in the report share: columns and metrics."""

from __future__ import annotations

from roadworthy.protocols.od_test import metrics

NAME = "od_test"
METRICS = tuple(metric.name for metric in metrics.METRICS)
ACCURACY, COST, *SEPARATION = METRICS
ALL, NEAR, FAR = "all", "near", "far"
TRIPLE = ("source", "valid_set", "test_set", "monitor")
"""The columns that name a triple, and what a criterion may ask for; `DISTANCE` too."""
DISTANCE = "ood"
"""The column that says whether a test set is near to its source or far; stored runs and criteria name it so."""
ANSWERS = "answers"
"""The role of a case in which a model itself is asked, in place of a monitor on it."""
OUTLIERS = "outliers/"
"""What begins the name of a set in the labels of a case where it lies outside the source; its images have no class."""
