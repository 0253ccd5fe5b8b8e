"""Known answers of shifts: the bits of disturbed images at every level; of attacks, on a model with known gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.random import Streams
from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import SHIFTS, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.selftest import images
from roadworthy.selftest.items import Item, Values

KIND = "shifts"
SHOWN = 2
"""How many images every level is shown."""


def items() -> Iterator[Item]:
    """All items of this kind."""
    from roadworthy.shifts import ATTACKS

    kinds: tuple[tuple[Any, Any, Any], ...] = (
        (SHIFTS, _levels, images.block_means),
        (ATTACKS, _changes, images.mean_sizes),
    )
    for registry, measure, summarise in kinds:
        for name in registry:
            shift = registry.get(name)
            if is_built_in(shift):
                subject = f"{shift.__module__}:{shift.__qualname__}"
                yield Item(KIND, name, subject, partial(measure, name), summarise)


def names() -> list[tuple[str, bool]]:
    """Every shift and attack, and whether it is ours."""
    from roadworthy.shifts import ATTACKS

    return [(name, is_built_in(registry.get(name))) for registry in (SHIFTS, ATTACKS) for name in registry]


def _levels(name: str, shift: Any) -> Values:
    data = images.dataset()
    batch = replace(data.batch(slice(0, SHOWN)), depth=_depth())
    shown = {}
    for level in range(1, len(shift.LEVELS) + 1):
        disturbed = shift.at(level).over(data)(batch, Streams("selftest", name, level))
        shown[f"level {level}"] = disturbed.images
    return shown


def _depth() -> NDArray[np.float32]:
    """From 10 metres at the bottom of an image to 41 at its top."""
    rows = np.arange(41, 41 - images.SIDE, -1, dtype=np.float32)
    return np.broadcast_to(rows[:, None], (SHOWN, images.SIDE, images.SIDE)).copy()


def _changes(name: str, attack: Any) -> Values:
    """By how much the attack changes each pixel, at its third level, on the linear model."""
    batch = images.dataset().batch(slice(0, SHOWN))
    attacked = attack.at(3).bound(linear_model())(batch, Streams("selftest", name))
    return {"level 3": attacked.images.astype(np.int16) - batch.images}


def linear_model() -> Model:
    """softmax(W x), of two classes; W is made of whole numbers, and every gradient is known in closed form."""
    from roadworthy.models import softmax

    row, column, channel = np.indices((images.SIDE, images.SIDE, 3))
    pattern = ((row * 7 + column * 3 + channel * 5) % 11 - 5) / 2**16
    weights = np.stack([pattern, -pattern]).reshape(2, -1)

    class LinearModel(Model):
        name = "linear"
        num_classes = 2
        capabilities = frozenset({"probabilities", "logits", "input_gradient"})

        def fingerprint(self) -> str:
            return "linear"

        def predict(self, batch: Batch) -> Prediction:
            logits = (batch.images.reshape(len(batch), -1).astype(np.float64) @ weights.T).astype(np.float32)
            return Prediction(probabilities=softmax(logits), logits=logits)

        def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
            residual = self.predict(batch).probabilities - np.eye(2)[batch.labels]
            return np.asarray((residual @ weights).reshape(batch.images.shape), np.float32)

    return LinearModel()
