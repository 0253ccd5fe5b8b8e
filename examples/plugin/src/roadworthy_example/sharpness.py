"""A monitor: is the image as sharp as the training images were?"""

from dataclasses import dataclass

import numpy as np

from roadworthy.monitors import MONITORS, Monitor


@MONITORS.register("sharpness")
@dataclass(frozen=True, kw_only=True)
class Sharpness(Monitor):
    """How usual the contrast between neighbouring pixels is: -|log c - mean log c| / deviation in training images."""

    floor: float = 1.0
    name = "sharpness"
    needs = frozenset({"input"})

    def contrast(self, images):
        """The logarithm of the mean step between neighbouring pixels (N,) of images (N, H, W, C)."""
        steps = np.abs(np.diff(images.astype(float), axis=2)).mean(axis=(1, 2, 3))
        return np.log(np.maximum(steps, self.floor))

    def fit(self, training):
        """What is learned: mean and standard deviation of the contrast of training images."""
        contrasts = np.concatenate([self.contrast(images) for (images,) in training.parts("images")])
        return {"mean": contrasts.mean(keepdims=True), "deviation": contrasts.std(keepdims=True)}

    def read(self, signals, state):
        """The score (N,): 0 is as usual, the lower the less usual."""
        return -np.abs(self.contrast(signals.images) - state["mean"]) / state["deviation"]
