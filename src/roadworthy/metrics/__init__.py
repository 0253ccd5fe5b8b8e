"""Metrics: pure functions of what a model answered. Arrays in, numbers out. Every file of this folder is imported."""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from roadworthy.metrics.answers import Answers
from roadworthy.metrics.base import METRICS, Metric, MetricValues, mean_metric, metric, of_rows
from roadworthy.metrics.calibration import (
    Reliability,
    ece,
    mean_confidence,
    overconfidence,
    reliability,
    underconfidence,
)
from roadworthy.metrics.chance import ChanceTest, compare_with_chance
from roadworthy.metrics.correctness import accuracy, confusion_matrix, recall_per_class
from roadworthy.metrics.error_detection import auroc, fpr95_right, fpr95_wrong
from roadworthy.metrics.mce import mean_corruption_error, relative_corruption_error
from roadworthy.metrics.names import (
    declare_metrics,
    find_metric,
    higher_is_better,
    metrics_of,
    unknown_metric,
    was_added,
)
from roadworthy.metrics.proper_scores import brier, brier_mean, nll
from roadworthy.metrics.ranking import binary_auroc

if TYPE_CHECKING:
    from roadworthy.statistics.accumulator import Accumulator

__all__ = [
    "METRICS",
    "Accumulator",
    "Answers",
    "ChanceTest",
    "Metric",
    "MetricValues",
    "Reliability",
    "accuracy",
    "auroc",
    "binary_auroc",
    "brier",
    "brier_mean",
    "compare_with_chance",
    "confusion_matrix",
    "declare_metrics",
    "ece",
    "find_metric",
    "fpr95_right",
    "fpr95_wrong",
    "higher_is_better",
    "mean_confidence",
    "mean_corruption_error",
    "mean_metric",
    "metric",
    "metrics_of",
    "nll",
    "of_rows",
    "overconfidence",
    "recall_per_class",
    "relative_corruption_error",
    "reliability",
    "underconfidence",
    "unknown_metric",
    "was_added",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The accumulator, which stands with the statistics that bound its metrics, and metrics of other packages."""
        if name == "Accumulator":
            from roadworthy.statistics.accumulator import Accumulator

            return Accumulator
        if name.startswith("_") or name not in METRICS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return METRICS.get(name)
