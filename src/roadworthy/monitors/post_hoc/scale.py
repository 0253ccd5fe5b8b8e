"""SCALE: the energy of features that are scaled by how much of their sum the largest ones hold."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.parameters import registered
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Learned
from roadworthy.monitors.post_hoc.shaping import ShapedMonitor, kept_counts, pruned, sharpening


@registered(MONITORS, "scale")
class Scale(ShapedMonitor):
    """SCALE: log sum_k exp (r W f + b)_k, r = exp(sum f / sum of the f_j above a percentile) (Xu et al. 2024).

    f are the pooled features that go into the last linear layer z = W f + b; the percentile is taken over the features
    of one image, all of which are kept.

    percentiles  from 0 to below 100, one or several. Several are tuned: against outliers, the one of lowest cost;
                 without, the highest at which at least 99 % of the training images keep their class. Scaling changes
                 hardly any class, so what counts is the class that the features above the percentile give alone

    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> fitted = Scale(percentiles=(50.0, 75.0)).build(ToyModel(), toy_data()[0])
    >>> fitted.state["counts"], fitted.represent(ToyModel(), toy_data()[2].batch(slice(0, 3))).shape
    (array([12,  6]), (3, 2))
    """

    differs_from_paper: ClassVar[str] = (
        "the percentile is that of the lowest expected cost on the outliers it is calibrated with, or without any the "
        "highest at which 99 % of the training images keep their class by the features above it alone; the paper sets "
        "it for each benchmark"
    )

    def learn(self, weights: NDArray[np.float32], rows: NDArray[np.float32]) -> Arrays:
        """How many features are above each percentile, (G,)."""
        return {"counts": kept_counts(self, weights.shape[1])}

    def shaped_logits(self, features: NDArray[np.float32], state: Learned) -> NDArray[np.float32]:
        """Logits (N, G, K) of the scaled features: one product for all percentiles."""
        factors = sharpening(-np.sort(-features, axis=1), state["counts"])[:, :, None].astype(np.float32)
        return np.asarray(factors * (features @ state["weights"].T)[:, None, :] + state["bias"])

    def class_logits(self, features: NDArray[np.float32], state: Learned) -> NDArray[np.float32]:
        """Logits (N, G, K) of the features above each percentile alone."""
        return np.asarray(pruned(features, state["counts"]) @ state["weights"].T + state["bias"])
