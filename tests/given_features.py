"""A model whose features and answers are given, and images that ask for them by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from roadworthy.core.types import Prediction
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.table import Table
from roadworthy.monitors.conformance import ToyModel


class Given(ToyModel):
    """Gives features and classes that are looked up by the first pixel of an image."""

    name = "given"
    capabilities = frozenset({"probabilities", "logits", "features"})

    def __init__(self, features: Any, classes: Any) -> None:
        super().__init__()
        self.table, self.answers = np.asarray(features, np.float32), np.asarray(classes)

    def fingerprint(self) -> str:
        return f"given {self.table.tolist()} {self.answers.tolist()}"

    def predict(self, batch: Any) -> Prediction:
        certain = np.full((len(batch), 4), 0.1, np.float32)
        certain[np.arange(len(batch)), self.answers[self._rows(batch)]] = 0.7
        return Prediction(probabilities=certain, logits=np.log(certain))

    def features(self, batch: Any, layer: str) -> Any:
        return self.table[self._rows(batch)]

    def _rows(self, batch: Any) -> Any:
        return batch.images[:, 0, 0, 0].astype(int)


def numbered(labels: Any) -> Any:
    """Images whose first pixel is their number, with these labels."""
    labels = np.asarray(labels, np.int64)
    images = np.zeros((len(labels), 8, 8, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(len(labels))
    ids = tuple(f"image {row}" for row in range(len(labels)))
    return ArrayDataset(Table(ids=ids, labels=labels, class_names=tuple("abcd"), groups=ids), images)
