"""Shifts of what objects look like in the data: larger or smaller than those trained on, or darker."""

from __future__ import annotations

from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.parameters import parameter, registered
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch
from roadworthy.shifts import geometry
from roadworthy.shifts.base import Geometric, Paint, Photometric


@registered(SHIFTS, "size")
class Size(Geometric):
    """Another distance: the image is scaled about its centre by `factor` or by 1 / `factor`, as likely.

    p' = c + s (p - c), c the centre, s = `factor` or its inverse. Outside a smaller image its border is repeated.
    """

    DRAWS: ClassVar[int] = 1

    factor: float = parameter(
        *(1.1, 1.2, 1.3, 1.45, 1.6), within=(1, 64), neutral=1, quantity="scale", unit="times the size"
    )

    def _move(self, batch: Batch, draws: NDArray[np.float64]) -> Batch:
        height, width = batch.images.shape[1:3]
        scales = np.where(draws[:, 0] < 0.5, self.factor, 1 / self.factor)
        matrices = np.zeros((len(batch), 3, 3))
        matrices[:, 0, 0] = matrices[:, 1, 1] = scales
        matrices[:, 0, 2], matrices[:, 1, 2] = (1 - scales) * width / 2, (1 - scales) * height / 2
        matrices[:, 2, 2] = 1.0
        return geometry.warp_affine(batch, matrices, border=cv2.BORDER_REPLICATE)


@registered(SHIFTS, "dark")
class Dark(Photometric):
    """Too little light: g img, rounded, g = `gain`."""

    gain: float = parameter(
        *(0.7, 0.55, 0.4, 0.3, 0.2), within=(0, 1), neutral=1, quantity="light", unit="of the pixel values"
    )

    @property
    def keeps_label(self) -> bool:
        """As long as black and white are not the same value."""
        return bool(np.rint(255 * self.gain) > 0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        values = np.rint(self.gain * np.arange(256)).astype(np.uint8)
        return lambda image, target, rng: cv2.LUT(image, values, dst=target)
