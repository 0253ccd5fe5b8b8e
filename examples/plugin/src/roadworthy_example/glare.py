"""A shift: the glare of a lamp somewhere in the image."""

from dataclasses import dataclass

import numpy as np

import roadworthy as rw


@rw.SHIFTS.register("glare")
@dataclass(frozen=True, kw_only=True)
class Glare(rw.Shift):
    """A bright spot: img + strength * 255 * exp(-d^2 / (2 (radius side)^2)), d the distance to a random point."""

    strength: float
    radius: float = 0.25
    name = "glare"
    LEVELS = tuple({"strength": strength} for strength in (0.2, 0.4, 0.6, 0.8, 1.0))

    def __call__(self, batch, streams):
        """The batch with a spot in every image; where it is follows from the stream of the image alone."""
        height, width = batch.images.shape[1:3]
        rows, columns = np.mgrid[:height, :width]
        images = batch.images.astype(np.float32)
        for image, rng in zip(images, streams.each(batch.ids), strict=True):
            row, column = rng.random(2) * (height, width)
            squared = (rows - row) ** 2 + (columns - column) ** 2
            image += self.strength * 255 * np.exp(-squared / (2 * (self.radius * width) ** 2))[..., None]
        return batch.with_images(np.clip(np.rint(images), 0, 255).astype(np.uint8))
