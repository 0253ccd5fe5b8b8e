"""Monitors that shape features or weights by a percentile and take the energy of what comes out: ASH, SCALE, DICE."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.models.signals import PART, Signals, Training
from roadworthy.monitors.confidence import energy
from roadworthy.monitors.grid import GridMonitor
from roadworthy.monitors.last_layer import LastLayerMonitor
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep

PERCENTILES = (65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0)
CLASS_KEPT = 0.99
"""Share of training images whose predicted class a percentile must leave as it is to be used without outliers."""
LARGEST_EXPONENT = 60.0
"""Features are scaled by exp(r) with r at most this, so that scores stay finite; r is rarely above 10."""


@dataclass(frozen=True, kw_only=True)
class ShapedMonitor(GridMonitor, LastLayerMonitor):
    """log sum_k exp z_k of shaped logits z, at each of several percentiles: (N, G).

    Against outliers, calibration takes the percentile of lowest expected cost. Without, it is the highest at which at
    least 99 % of the training images keep their predicted class, and the lowest where there is none.

    percentiles  from 0 to below 100, one or several
    """

    percentiles: tuple[float, ...] | float = PERCENTILES

    def __post_init__(self) -> None:
        given = self.percentiles if isinstance(self.percentiles, tuple) else (self.percentiles,)
        if not given or not all(_is_percentile(value) for value in given):
            raise InputError(
                f"monitor {self.name}: percentiles are numbers from 0 to below 100, at least one, not "
                f"{self.percentiles!r}"
            )
        object.__setattr__(self, "percentiles", tuple(float(value) for value in given))

    @property
    def grid(self) -> tuple[float, ...]:
        """The percentiles, in the order of the columns."""
        assert isinstance(self.percentiles, tuple)
        return self.percentiles

    @abstractmethod
    def learn(self, weights: NDArray[np.float32], rows: NDArray[np.float32]) -> Arrays:
        """What is learned from weights (K, D) and features (n, D)."""

    @abstractmethod
    def shaped_logits(self, features: NDArray[np.float32], state: Learned) -> NDArray[np.float32]:
        """Logits (N, G, K) of features (N, D) at each percentile."""

    def class_logits(self, features: NDArray[np.float32], state: Learned) -> NDArray[np.float32]:
        """Logits (N, G, K) that show whether an image keeps its class at each percentile: the shaped ones."""
        return self.shaped_logits(features, state)

    def fit(self, training: Training) -> Arrays:
        """The last layer, what else is learned, and of how many `images` how many keep their class, (G,)."""
        weights, bias, rows = (array.astype(np.float32, copy=False) for array in self.head_and_features(training))
        state = {"weights": weights, "bias": bias, **self.learn(weights, rows)}
        learned, kept = Learned(state), np.zeros(len(self.grid), np.int64)
        for start in range(0, len(rows), PART):
            values = rows[start : start + PART]
            plain = (values @ weights.T + bias).argmax(axis=1)
            kept += (self.class_logits(values, learned).argmax(axis=2) == plain[:, None]).sum(axis=0)
        return {**state, "class_kept": kept, "images": np.asarray(len(rows))}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The energy at each percentile, (N, G)."""
        logits = self.shaped_logits(signals.features(), state)
        return energy(logits.reshape(-1, logits.shape[2])).reshape(logits.shape[:2])

    def column_inside(self, inside: Rep, state: Learned) -> int:
        """The highest percentile at which training images keep their class; the lowest where there is none."""
        strength, kept = np.array(self.grid), state["class_kept"] >= CLASS_KEPT * state["images"]
        return int(np.argmax(np.where(kept, strength, -1.0)) if kept.any() else np.argmin(strength))

    def choice(self, rule: Learned) -> float:
        """The percentile of a calibration."""
        return self.grid[int(rule["column"])]

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """Which percentile of several was chosen, and which one training images alone call for."""
        if len(self.grid) == 1:
            return ()
        column = self.column_inside(np.zeros((0, 0), np.float32), state)
        kept, images = int(state["class_kept"][column]), int(state["images"])
        which = f"the {'highest' if kept >= CLASS_KEPT * images else 'lowest'} of {len(self.grid)}"
        alone = f"{self.grid[column]:g}, {which}: {kept} of {images} training images keep their class"
        if "column" not in rule:
            return (f"without outliers the percentile is {alone}",)
        if int(rule["column"]) == column:
            return (f"the percentile is {alone}",)
        return (f"the percentile is {self.choice(rule):g}, of lowest cost on outliers; without them it is {alone}",)


def _is_percentile(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 100


def kept_counts(monitor: ShapedMonitor, size: int) -> NDArray[np.intp]:
    """How many of `size` features lie above each percentile, (G,); none at all is an `InputError`."""
    counts = np.array([size - round(size * value / 100) for value in monitor.grid])
    for value in np.array(monitor.grid)[counts < 1]:
        raise InputError(f"monitor {monitor.name}: the percentile {value:g} leaves none of {size} features: lower it")
    return counts


def sharpening(descending: NDArray[np.float32], counts: NDArray[np.intp]) -> Floats:
    """exp(s / s_k) of sorted features (N, D), s the sum of all and s_k that of the k largest, for each k: (N, G).

    Where s_k is 0, as all features are, the factor is 1.

    >>> sharpening(np.array([[2.0, 1.0, 1.0]], np.float32), np.array([1, 3])).round(4)
    array([[7.3891, 2.7183]])
    """
    sums = np.cumsum(descending, axis=1, dtype=np.float64)
    largest = sums[:, counts - 1]
    ratio = np.divide(sums[:, -1:], largest, out=np.zeros_like(largest), where=largest != 0)
    return np.exp(np.minimum(ratio, LARGEST_EXPONENT))


def pruned(features: NDArray[np.float32], counts: NDArray[np.intp], *, binary: bool = False) -> NDArray[np.float32]:
    """Features (N, D) of which only the k largest are kept, for each k of `counts`: (N, G, D).

    Of equal features the first ones are kept. Where `binary`, each kept one becomes s / k, s the sum of all features.

    >>> pruned(np.array([[1.0, 3.0, 2.0]], np.float32), np.array([1, 2]))
    array([[[0., 3., 0.],
            [0., 3., 2.]]], dtype=float32)
    >>> pruned(np.array([[1.0, 3.0, 2.0]], np.float32), np.array([2]), binary=True)
    array([[[0., 3., 3.]]], dtype=float32)
    """
    order = np.argsort(-features, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(features.shape[1])[None], axis=1)
    kept = ranks[:, None, :] < counts[:, None]
    if not binary:
        return np.where(kept, features[:, None, :], np.float32(0))
    fill = features.sum(axis=1, dtype=np.float64)[:, None] / counts
    return np.where(kept, fill[:, :, None].astype(np.float32), np.float32(0))
