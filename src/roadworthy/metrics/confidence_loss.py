"""Adversarial confidence loss: how far the worst of several disturbances lowers the probability of the true class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.answers import TOLERANCE

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class ConfidenceLoss:
    """Adversarial confidence loss of n images under T transformers.

    transformers  their names, with the epsilon of each in its own unit
    change        (T, n) change of the true class's probability
    """

    transformers: tuple[str, ...]
    change: NDArray[np.float64]

    @property
    def per_image(self) -> NDArray[np.float64]:
        """The worst change (n,) of each image, -1 to 1."""
        return np.asarray(self.change.min(axis=0))

    @property
    def winner(self) -> NDArray[np.intp]:
        """Index (n,) of the transformer behind it, the first of equals."""
        return np.asarray(self.change.argmin(axis=0))

    @property
    def value(self) -> float:
        """The mean of the worst changes; NaN without images."""
        return float(self.per_image.mean()) if self.change.shape[1] else math.nan

    @property
    def reason(self) -> str:
        """Why there is no value; empty where there is one."""
        return "" if self.change.shape[1] else "no images"

    def wins(self) -> Mapping[str, int]:
        """How many images each transformer hurts most."""
        counts = np.bincount(self.winner, minlength=len(self.transformers))
        return dict(zip(self.transformers, counts.tolist(), strict=True))

    def means(self) -> Mapping[str, float]:
        """The mean change under each transformer alone: what the value would be without the others."""
        means = self.change.mean(axis=1) if self.change.shape[1] else np.full(len(self.transformers), np.nan)
        return dict(zip(self.transformers, means.tolist(), strict=True))

    def distribution(self, quantiles: Sequence[float] = QUANTILES) -> Mapping[float, float]:
        """Quantiles of the worst change over images."""
        if not self.change.shape[1]:
            return dict.fromkeys(quantiles, math.nan)
        return dict(zip(quantiles, np.quantile(self.per_image, quantiles).tolist(), strict=True))


def confidence_loss(disturbed: ArrayLike, undisturbed: ArrayLike, transformers: Sequence[str]) -> ConfidenceLoss:
    """Adversarial confidence loss (equation 4) from probabilities of the true class.

        M_adv = 1/n sum_i ( min_t p_t,i - p_i )

    disturbed (T, n): p_t,i after transformer t;  undisturbed (n,): p_i;  transformers: T different names.
    A larger value is better: 0 means that nothing is lost, -1 that a sure and right classifier can always be made sure
    of something else.

    >>> car = confidence_loss([[0.85], [0.80], [0.69]], [0.91], ["rotation", "blur", "fgsm"])
    >>> round(car.value, 2), car.wins()
    (-0.22, {'rotation': 0, 'blur': 0, 'fgsm': 1})
    """
    after, before = np.asarray(disturbed, dtype=np.float64), np.asarray(undisturbed, dtype=np.float64)
    names = tuple(transformers)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"transformers need different names, at least one, not {names}")
    if before.ndim != 1 or after.shape != (len(names), len(before)):
        raise ValueError(
            f"{len(names)} transformers of {before.shape} images need a table of that shape, not {after.shape}"
        )
    for table in (after, before):
        if table.size and not (table.min() >= -TOLERANCE and table.max() <= 1 + TOLERANCE):
            raise ValueError(f"probabilities must lie between 0 and 1, not {table.min()}..{table.max()}")
    return ConfidenceLoss(names, after - before)
