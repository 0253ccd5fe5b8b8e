"""ASH: the energy of features of which the smaller ones were set to 0."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import UnknownName
from roadworthy.core.parameters import registered
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Learned
from roadworthy.monitors.post_hoc.shaping import ShapedMonitor, kept_counts, pruned, sharpening

VARIANTS = ("s", "b", "p")


@registered(MONITORS, "ash")
class Ash(ShapedMonitor):
    """ASH: log sum_k exp (W g + b)_k, g the features f of which those up to a percentile are 0 (Djurisic et al. 2023).

    f are the pooled features that go into the last linear layer z = W f + b; the percentile is taken over the features
    of one image.

    variant      `s`: the features that are kept are multiplied by exp(sum f / sum of those kept); `b`: each becomes
                 sum f / their number; `p`: they stay as they are
    percentiles  from 0 to below 100, one or several. Several are tuned: against outliers, the one of lowest cost;
                 without, the highest at which at least 99 % of the training images keep their class

    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> fitted = Ash(percentiles=(50.0, 75.0)).build(ToyModel(), toy_data()[0])
    >>> fitted.state["counts"], fitted.represent(ToyModel(), toy_data()[2].batch(slice(0, 3))).shape
    (array([12,  6]), (3, 2))
    """

    variant: str = "s"

    differs_from_paper: ClassVar[str] = (
        "the percentile is that of the lowest expected cost on the outliers it is calibrated with, or without any the "
        "highest at which 99 % of the training images keep their class; the paper sets it for each benchmark and "
        "variant"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in VARIANTS:
            raise UnknownName(f"variant of monitor {self.name}", self.variant, VARIANTS)

    def learn(self, weights: NDArray[np.float32], rows: NDArray[np.float32]) -> Arrays:
        """How many features are kept at each percentile, (G,)."""
        return {"counts": kept_counts(self, weights.shape[1])}

    def shaped_logits(self, features: NDArray[np.float32], state: Learned) -> NDArray[np.float32]:
        """Logits (N, G, K) of the shaped features."""
        shaped = pruned(features, state["counts"], binary=self.variant == "b")
        logits = shaped @ state["weights"].T
        if self.variant == "s":
            descending = -np.sort(-features, axis=1)
            logits *= sharpening(descending, state["counts"])[:, :, None].astype(np.float32)
        return np.asarray(logits + state["bias"])
