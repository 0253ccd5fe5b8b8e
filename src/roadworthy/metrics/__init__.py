"""Metrics: pure functions of what a model answered. Arrays in, numbers out."""

from roadworthy.metrics.answers import Answers
from roadworthy.metrics.chance import ChanceTest, compare_with_chance
from roadworthy.metrics.classification import (
    HIGHER_IS_BETTER,
    MEANS,
    METRICS,
    Metric,
    Reliability,
    accuracy,
    auroc,
    brier,
    brier_mean,
    confusion_matrix,
    ece,
    fpr95_right,
    mean_confidence,
    nll,
    of_rows,
    overconfidence,
    per_image,
    reason,
    recall_per_class,
    reliability,
    underconfidence,
)
from roadworthy.metrics.mce import mean_corruption_error, relative_corruption_error
from roadworthy.metrics.names import current_name, higher_is_better, stored_name
from roadworthy.metrics.ranges import bound_stays_inside, value_range
from roadworthy.metrics.ranking import binary_auroc

__all__ = [
    "HIGHER_IS_BETTER",
    "MEANS",
    "METRICS",
    "Answers",
    "ChanceTest",
    "Metric",
    "Reliability",
    "accuracy",
    "auroc",
    "binary_auroc",
    "bound_stays_inside",
    "brier",
    "brier_mean",
    "compare_with_chance",
    "confusion_matrix",
    "current_name",
    "ece",
    "fpr95_right",
    "higher_is_better",
    "mean_confidence",
    "mean_corruption_error",
    "nll",
    "of_rows",
    "overconfidence",
    "per_image",
    "reason",
    "recall_per_class",
    "relative_corruption_error",
    "reliability",
    "stored_name",
    "underconfidence",
    "value_range",
]
