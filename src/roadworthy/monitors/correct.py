"""The training images that a model classifies correctly: what monitors of activations learn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.models.signals import Training

if TYPE_CHECKING:
    from roadworthy.monitors.base import Monitor

Part = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]


def correct_parts(monitor: Monitor, training: Training, layer: str | None) -> Iterator[Part]:
    """Features (n, D), labels (n,) and row numbers (n,) of correctly classified images, part by part.

    Training data without any such image, and features that are NaN or infinite, are an `InputError`.

    >>> from roadworthy.models.signals import LiveTraining
    >>> from roadworthy.monitors.boxes import Boxes
    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> training = LiveTraining(ToyModel(), toy_data()[0], ["features:penultimate", "probabilities"])
    >>> [(features.shape, labels.shape) for features, labels, _ in correct_parts(Boxes(), training, None)]
    [((240, 24), (240,))]
    """
    start = images = 0
    for features, answers, labels in training.parts(f"features:{layer or ''}", "probabilities", "labels"):
        correct = np.flatnonzero(answers.argmax(axis=1) == labels)
        values = features[correct]
        undefined = int((~np.isfinite(values)).any(axis=1).sum())
        if undefined:
            raise InputError(
                f"monitor {monitor.name} cannot be built on {training.name}: the features of {undefined} images are "
                "NaN or infinite; name another layer or repair the model"
            )
        yield values, labels[correct], start + correct
        start, images = start + len(labels), images + len(correct)
    if not images:
        raise InputError(
            f"monitor {monitor.name} cannot be built: model {training.model.name} classifies no image of "
            f"{training.name} correctly"
        )
