"""Images with their colours exchanged: a blue stop sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.protocols import OUTLIERS, Dataset
from roadworthy.core.random import Streams
from roadworthy.core.types import Images
from roadworthy.data.base import OpenedDataset
from roadworthy.outliers.base import OutlierSet, Painted, Rows, opened, pixels

LOOKED_AT = 64
"""Images that are looked at to see whether the data has any colour."""


@OUTLIERS.register("colour_swap")
@dataclass(frozen=True, kw_only=True)
class ColourSwap(Painted):
    """The colour channels in another order; `channels` names those that become red, green and blue.

    >>> from roadworthy.data import open_dataset
    >>> red = np.tile(np.array([200, 30, 20], np.uint8), (1, 2, 2, 1))
    >>> ColourSwap(channels="bgr").make(open_dataset((red, np.array([0]))), seed=0).batch([0]).images[0, 0, 0].tolist()
    [20, 30, 200]
    """

    name: ClassVar[str] = "colour_swap"

    channels: str = "bgr"

    def __post_init__(self) -> None:
        if not isinstance(self.channels, str) or sorted(self.channels) != sorted("rgb") or self.channels == "rgb":
            raise InputError(
                f"outliers {self.name}: channels must be the letters r, g and b in another order, such as bgr, "
                f"not {self.channels!r}"
            )

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """As many images as the data has, which must not be grey: they would stay what they are."""
        source = opened(data)
        looked_at = np.unique(np.linspace(0, len(source) - 1, LOOKED_AT).astype(np.int64))
        if source.channels == 1 or (np.ptp(pixels(source, looked_at), axis=-1) == 0).all():
            raise InputError(f"the images of {data.name} are grey: {self.name} would not change them, leave it out")
        return super().make(data, seed=seed)

    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """The images (N, H, W, 3) with their channels in the new order."""
        images = pixels(source, rows)
        swapped = np.empty_like(images)
        moves = [place for new, letter in enumerate(self.channels) for place in ("rgb".index(letter), new)]
        for image, target in zip(images, swapped, strict=True):
            cv2.mixChannels([image], [target], moves)
        return swapped
