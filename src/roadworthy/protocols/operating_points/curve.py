"""The curve to choose a threshold by: the rates at thresholds that reject 0 to 50 % of held-out images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roadworthy.core.types import UNDISTURBED
from roadworthy.monitors.threshold import share_threshold
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.protocols.operating_points.metrics import ACCEPTED_OUTLIER, ACCEPTED_WRONG, REJECTED_RIGHT
from roadworthy.protocols.operating_points.rates import curves
from roadworthy.protocols.operating_points.reading import ModelScores
from roadworthy.protocols.operating_points.thresholds import Floats, Shown

SHARES = tuple(percent / 100 for percent in range(51))
"""Shares of held-out images that the thresholds of the curve reject at most."""
HELD_OUT, CLEAN, SHIFTED, OUTLIERS = "held-out", "undisturbed", "mean of shifts", "worst outliers"


def curve_rows(model: str, scores: ModelScores) -> list[dict[str, Any]]:
    """The rows of one model; none where there are no held-out images."""
    held_out = scores.held_out
    if held_out is None or not len(held_out.scores):
        return []
    thresholds = np.array([share_threshold(held_out.scores, share) for share in SHARES])
    reached = [float((held_out.scores < threshold).mean()) for threshold in thresholds]
    clean = [shown for key, own in scores.inside.items() if key.shift == UNDISTURBED for shown in own]
    shifted = [own for key, own in scores.inside.items() if key.shift != UNDISTURBED]
    conditions: dict[str, list[Sequence[Shown]]] = {
        HELD_OUT: [[held_out]],
        CLEAN: [clean] if clean else [],
        SHIFTED: shifted,
    }
    rates: dict[tuple[str, str], Floats] = {}
    for condition, cells in conditions.items():
        cells = [own for own in cells if all(len(shown.scores) for shown in own)]
        for index, metric in enumerate((ACCEPTED_WRONG, REJECTED_RIGHT)) if cells else ():
            by_cell = [np.mean([curves(shown, thresholds)[index] for shown in own], axis=0) for own in cells]
            rates[condition, metric.name] = np.mean(by_cell, axis=0)
    worst: list[str] = [""] * len(thresholds)
    accepted = _accepted(scores.outside, thresholds)
    if accepted:
        stacked = np.stack([*accepted.values()])
        worst = [[*accepted][row].ood_set for row in stacked.argmax(axis=0)]
        rates[OUTLIERS, ACCEPTED_OUTLIER.name] = stacked.max(axis=0)
    return [
        {
            "model": model,
            "asked": share,
            "threshold": float(thresholds[index]),
            "reached": reached[index],
            "condition": condition,
            "ood_set": worst[index] if condition == OUTLIERS else "",
            "metric": metric,
            "value": float(values[index]),
        }
        for index, share in enumerate(SHARES)
        for (condition, metric), values in rates.items()
    ]


def _accepted(outside: Mapping[SetKey, Sequence[Any]], thresholds: Floats) -> dict[SetKey, Floats]:
    """The share of every set that is accepted at thresholds (T,), the mean over repeats and GANs."""
    by_set: dict[SetKey, list[Shown]] = {
        key: [one.shown for one in own if len(one.shown.scores)] for key, own in sorted(outside.items(), key=_order)
    }
    return {
        key: np.mean([1 - curves(shown, thresholds)[2] for shown in own], axis=0) for key, own in by_set.items() if own
    }


def _order(item: tuple[SetKey, Any]) -> tuple[Any, ...]:
    return item[0].order()
