"""Names that the tables of an OD-test and its page in the report share: tables, columns and metrics."""

from __future__ import annotations

from dataclasses import fields

from roadworthy.metrics.ranking import Separation

NAME = "od_test"
METHODS, ARCHITECTURES, HEAT_MAP = f"{NAME}_methods", f"{NAME}_architectures", f"{NAME}_heatmap"
UNSUPERVISED, UNSUPERVISED_METHODS = f"{NAME}_unsupervised", f"{NAME}_unsupervised_methods"
COMPETENCE, LOST, THRESHOLDS = f"{NAME}_competence", f"{NAME}_missing", f"{NAME}_thresholds"
TIMING = f"timing_{NAME}"
ACCURACY, COST = "accuracy", "expected_cost"
SEPARATION = tuple(field.name for field in fields(Separation))
METRICS = (ACCURACY, COST, *SEPARATION)
ALL, NEAR, FAR = "all", "near", "far"
TRIPLE = ("source", "valid_set", "test_set", "monitor")
"""The columns that name a triple, and what a criterion may ask for; `DISTANCE` too."""
DISTANCE = "ood"
"""The column that says whether a test set is near to its source or far; stored runs and criteria name it so."""
