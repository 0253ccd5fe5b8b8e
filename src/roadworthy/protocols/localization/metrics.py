"""The metrics of localization: those of classes, then those of boxes."""

from __future__ import annotations

from roadworthy.metrics import Metric, accuracy, auroc, brier, ece, mean_confidence, nll
from roadworthy.metrics.boxes import BOX_METRICS
from roadworthy.metrics.class_probabilities import CLASS_METRICS as FURTHER
from roadworthy.protocols.localization.names import BOXES, CLASSES

CLASS_METRICS = (accuracy, ece, nll, brier, auroc, mean_confidence, *FURTHER)
METRICS: tuple[Metric, ...] = (*CLASS_METRICS, *BOX_METRICS)
TASK_OF = {
    **{metric.name: CLASSES for metric in CLASS_METRICS},
    **{metric.name: BOXES for metric in BOX_METRICS},
}
"""What each metric is of: what a network sees, or where."""
