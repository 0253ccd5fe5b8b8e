"""Models and monitors made for tests: one that counts, one that gives gradients, one that cannot be built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models import TorchModel
from roadworthy.monitors import Monitor
from tiny import CLASSES, SIZE, templates


class Counting(Model):
    """A model that counts what it is shown, and may fail on purpose."""

    num_classes = CLASSES
    concurrent = True

    def __init__(self, name: str = "counting", fails_on: str = "") -> None:
        self.name = name
        self.fails_on = fails_on
        self.shown: list[tuple[str, int]] = []

    def fingerprint(self) -> str:
        return f"counting {self.name}"

    def predict(self, batch: Batch) -> Prediction:
        self.shown.append((batch.stimulus, len(batch)))
        if self.fails_on and batch.stimulus.startswith(self.fails_on) and len(self.shown) > 3:
            raise RuntimeError("out of luck\nsecond line")
        means = batch.images.reshape(len(batch), -1).mean(1, dtype=np.float64)
        scores = -(((means[:, None] - np.linspace(60, 180, CLASSES)) / 20) ** 2)
        odds = np.exp(scores - scores.max(1, keepdims=True))
        return Prediction((odds / odds.sum(1, keepdims=True)).astype(np.float32))


def nearest_mean(gain: float = 1.0, name: str = "net") -> TorchModel:
    """The classifier of `tiny.onnx` as a torch module, so that it gives gradients."""
    import torch

    means = torch.tensor(templates(), dtype=torch.float32)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIZE * SIZE, CLASSES))
    with torch.no_grad():
        network[1].weight.copy_(gain * 2 * means / 20)
        network[1].bias.copy_(-gain * (means**2).sum(1) / 20)
    return TorchModel(network, size=SIZE, outputs="logits", name=name)


@dataclass(frozen=True, kw_only=True)
class Broken(Monitor):
    """Cannot be built."""

    name: ClassVar[str] = "broken"

    def fit(self, training: Any) -> Any:
        raise InputError("no <b>luck</b> today")

    def read(self, signals: Any, state: Any) -> Any:
        raise AssertionError
