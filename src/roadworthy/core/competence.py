"""How good a trained network is on undisturbed images, against the floor that was stated for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MEASURES = {
    "clean_accuracy": "accuracy",
    "training_accuracy": "training accuracy",
    "iou": "iou",
    "explained": "explained variance",
    "bits_saved": "bits saved",
}
"""The figures of an artifact's competence that a floor can be stated for, each with the metric that it is.

`training_accuracy` is that of a network that was trained on all images, so that there are none but these to measure
it on; `explained` that of an autoencoder: 1 less its squared error over that of the mean image; `bits_saved` that of a
density: 1 less its bits per dimension over those of independent pixels.
"""


@dataclass(frozen=True)
class Competence:
    """The value of a metric on some `images` and its floor; NaN where the artifact states none."""

    metric: str
    value: float
    floor: float
    figure: str = "clean_accuracy"

    @property
    def images(self) -> str:
        """The images that the value was measured on, in words.

        >>> competence_of({"training_accuracy": 0.99, "floor": 0.9}).images
        'its own training images'
        """
        return "its own training images" if self.figure == "training_accuracy" else "undisturbed images"

    @property
    def undertrained(self) -> bool:
        """Whether the value is below the floor: then a network's answers say little about its method."""
        return self.value < self.floor


def competence_of(stored: Mapping[str, Any]) -> Competence | None:
    """What an artifact's stored competence says of a network; None where it is not of a network that was trained.

    >>> competence_of({"iou": 0.55, "floor": 0.6}).undertrained, competence_of({"temperature": 1.2})
    (True, None)
    """
    for figure, metric in MEASURES.items():
        if figure in stored:
            value, floor = (math.nan if stored.get(key) is None else float(stored[key]) for key in (figure, "floor"))
            return Competence(metric, value, floor, figure)
    return None


def is_undertrained(stored: Mapping[str, Any]) -> bool:
    """Whether an artifact's stored competence is below its floor; False where either is not known.

    >>> is_undertrained({"clean_accuracy": 0.95, "floor": 0.9}), is_undertrained({})
    (False, False)
    """
    competence = competence_of(stored)
    return competence is not None and competence.undertrained
