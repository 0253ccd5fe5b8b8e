"""The last linear layer and the features that go into it: what monitors of the layer learn from both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.models.head import find_head
from roadworthy.models.signals import Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.learned import Floats

HEAD_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class LastLayerMonitor(Monitor):
    """A monitor that learns from the features of the training images and the layer that makes logits of them."""

    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})

    def head_and_features(self, training: Training) -> tuple[Floats, Floats, NDArray[np.float32]]:
        """Weights (K, D) and bias (K,) of the last linear layer, and all features (n, D)."""
        head = find_head(training.model)
        rows = np.concatenate([*self.checked_features(training)])
        return head.weights.astype(np.float64), head.bias.astype(np.float64), rows

    def checked_features(self, training: Training) -> Iterator[NDArray[np.float32]]:
        """The features of the training images, part by part; the first part shows that the layer makes the logits."""
        head, is_checked = find_head(training.model), False
        for features, logits in training.parts("features", "logits"):
            if not is_checked:
                error = np.abs(features @ head.weights.T + head.bias - logits).max()
                if error > HEAD_TOLERANCE * max(1.0, np.abs(logits).max()):
                    raise InputError(
                        f"monitor {self.name} cannot use model {training.model.name}: its last linear layer does not "
                        "make its logits"
                    )
                is_checked = True
            yield features
