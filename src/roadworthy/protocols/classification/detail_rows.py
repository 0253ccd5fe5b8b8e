"""Rows of classification about single classes and bins of confidence, cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.statistics import proportion_interval
from roadworthy.statistics.anytime import anytime_interval
from roadworthy.statistics.estimates import CONFIDENCE, no_estimate

if TYPE_CHECKING:
    from roadworthy.protocols.classification.tables import CellKey, Evidence


def recall_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Per cell and class: the share of its images that are answered right."""
    members = [np.flatnonzero(evidence.labels == index) for index in range(len(evidence.class_names))]
    return [
        {
            **key.where(),
            "class": name,
            "metric": "recall",
            **_recall(evidence, key, rows),
        }
        for key, cell in evidence.cells.items()
        for name, rows in zip(evidence.class_names, members, strict=True)
    ]


def _recall(evidence: Evidence, key: CellKey, rows: NDArray[np.int64]) -> dict[str, Any]:
    growing = evidence.growing([key])
    shown = rows[rows < growing.counted] if growing else rows
    hits, objects = evidence.cells[key].per_image["accuracy"][shown].astype(np.float64), evidence.objects[shown]
    recall = no_estimate("no image of this class")
    if len(hits) and growing:
        recall = anytime_interval(hits, objects, growing.looks.largest_group)
    elif len(hits):
        recall = proportion_interval(hits, objects, CONFIDENCE)
    return {name: getattr(recall, name) for name in ("value", "lo", "hi", "n", "groups", "reason")}


def confusion_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Per cell: how often each class was answered as which."""
    names = evidence.class_names
    return [
        {**key.where(), "label": names[label], "prediction": names[prediction], "count": count}
        for key, cell in evidence.cells.items()
        for (label, prediction), count in cell.confusion.items()
    ]


def reliability_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Per cell and bin of confidence: how many answers, how certain, and how many of them right."""
    return [
        {
            **key.where(),
            "bin": index,
            "from": float(bins.edges[index]),
            "to": float(bins.edges[index + 1]),
            "count": int(bins.count[index]),
            "confidence": float(bins.confidence[index]),
            "accuracy": float(bins.accuracy[index]),
        }
        for key, bins in ((key, cell.reliability) for key, cell in evidence.cells.items())
        for index in range(len(bins.count))
    ]
