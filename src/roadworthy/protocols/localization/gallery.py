"""The gallery of localization: a few images of every set, as the models saw them, with their true boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.types import Images
from roadworthy.engine.plan import PlannedCase, PlannedStimulus
from roadworthy.protocols.localization.names import ANSWERS
from roadworthy.protocols.pictures import evenly_spaced, thumbnail, write_picture

IMAGES = 6
ENLARGED = 2
"""Small images are shown so many times as large, so that a box is a thin line."""
COLOUR = (0, 200, 83)


def save_sets(cases: Sequence[PlannedCase], media: Path) -> list[dict[str, Any]]:
    """A strip per set, and the rows of the table that names them."""
    shown: dict[str, PlannedStimulus] = {}
    for case in sorted(cases, key=lambda case: case.case.system):
        if case.labels["role"] == ANSWERS and not case.refused:
            shown.setdefault(case.labels["set"], case.showing)
    table = []
    for name, showing in shown.items():
        rows = evenly_spaced(len(showing.data), IMAGES)
        path = media / f"localization-{showing.stimulus.key}.png"
        if not path.exists():
            batch = showing.show(showing.data.batch(rows))
            boxes = np.full((len(rows), 4), np.nan) if batch.boxes is None else batch.boxes
            framed = [_framed(image, box) for image, box in zip(batch.images, boxes, strict=True)]
            write_picture(path, np.hstack([thumbnail(image, side=160) for image in framed]))
        table.append({"set": name, "media": path.name, "images": len(rows)})
    return table


def _framed(image: Images, box: NDArray[np.floating[Any]]) -> Images:
    """The image, enlarged and in colour, with its box drawn."""
    height, width = image.shape[:2]
    large = cv2.resize(image, (ENLARGED * width, ENLARGED * height), interpolation=cv2.INTER_NEAREST)
    picture = np.ascontiguousarray(cv2.cvtColor(large, cv2.COLOR_GRAY2RGB) if large.ndim == 2 else large)
    if not np.isnan(box).any():
        x0, y0, x1, y1 = np.rint(ENLARGED * box).astype(int).tolist()
        cv2.rectangle(picture, (x0, y0), (x1 - 1, y1 - 1), COLOUR, 1)
    return np.asarray(picture, np.uint8)
