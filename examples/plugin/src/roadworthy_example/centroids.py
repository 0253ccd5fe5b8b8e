"""A kind of model: the class whose mean image is the nearest, from a file of mean images."""

from pathlib import Path

import cv2
import numpy as np

import roadworthy as rw
from roadworthy.core.hashing import digest_file
from roadworthy.models import MODELS


class Centroids(rw.Model):
    """Probabilities by the distance to the mean image of each class: softmax(-d^2 / spread)."""

    concurrent = only_reads = True

    def __init__(self, path, name, spread):
        with np.load(path, allow_pickle=False) as file:
            self.means, self.class_names = file["means"].astype(np.float32), tuple(map(str, file["class_names"]))
        self.path, self.name, self.spread = path, name, spread
        self.num_classes, self.input_size = len(self.means), self.means.shape[1:3]

    def fingerprint(self):
        """What decides the answers: the file, and the spread."""
        return f"centroids {digest_file(self.path)} {self.spread}"

    def predict(self, batch):
        """Answers to uint8 RGB images of any size."""
        height, width = self.input_size
        images = np.stack([cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA) for image in batch.images])
        pixels, means = (part.reshape(len(part), -1) / 255 for part in (images, self.means))
        distances = ((pixels[:, None] - means[None]) ** 2).sum(axis=2)
        scores = np.exp((distances.min(axis=1, keepdims=True) - distances) / self.spread)
        return rw.Prediction((scores / scores.sum(axis=1, keepdims=True)).astype(np.float32))


@MODELS.register("centroids")
def load_centroids(value, *, name=None, base=Path(), spread: float = 10.0):
    """Mean images of each class: `{centroids: means.npz, spread: 5}`."""
    path = base / value
    if not path.is_file():
        raise rw.InputError(f"there is no file {path}: write means (K, H, W, 3) and class_names (K,) with numpy.savez")
    return Centroids(path, name or path.stem, spread)


load_centroids.runs_foreign_code = False  # it reads arrays only, so that it needs no process of its own
