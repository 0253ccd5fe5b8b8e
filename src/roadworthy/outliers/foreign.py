"""Images of another data set: things that the tested data does not know."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import cv2
import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.protocols import OUTLIERS, Dataset, Outliers
from roadworthy.core.random import Streams
from roadworthy.core.types import Images
from roadworthy.data.base import OpenedDataset
from roadworthy.data.subset import Subset
from roadworthy.outliers.base import OutlierSet, Rows, opened, pixels, prefixed


@OUTLIERS.register("foreign")
@dataclass(frozen=True, kw_only=True)
class Foreign(Outliers):
    """A random part of another data set, each image at most once, at the size and channels of the tested data.

    There are as many as the tested data has images, or all there are, which the notes then say. The set bears the name
    of the foreign one.
    """

    name: ClassVar[str] = "foreign"

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """Images of `foreign`, which must be given; whether it holds no class of the tested data is for you to know."""
        if foreign is None:
            raise InputError("foreign outliers need a foreign data set: give one, such as builtin:scenery")
        drawn = np.array([rng.random() for rng in Streams("foreign", seed).each(foreign.ids)])
        rows = np.sort(np.argsort(drawn, kind="stable")[: len(data)])
        source = Subset(opened(foreign), rows.tolist()).resized(data.size)
        few = f"{foreign.name} holds {len(foreign)} images, the tested data {len(data)}: all of them are taken"
        return OutlierSet(
            source,
            self,
            partial(_painted, data.channels),
            seed,
            name=foreign.name,
            channels=data.channels,
            groups=prefixed(foreign.name, source.groups),
            notes=(*source.notes, *([few] if len(foreign) < len(data) else [])),
        )


def _painted(channels: int, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
    """The images with that many channels: grey by ITU-R BT.601 luma, colour by three equal channels."""
    images = pixels(source, rows)
    if images.shape[3] == channels:
        return images
    converted = np.empty((*images.shape[:3], channels), np.uint8)
    conversion = cv2.COLOR_RGB2GRAY if channels == 1 else cv2.COLOR_GRAY2RGB
    for image, target in zip(images, converted, strict=True):
        cv2.cvtColor(image, conversion, dst=target)
    return converted
