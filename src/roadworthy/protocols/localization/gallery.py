"""The gallery of localization: a few images of every set, as the models saw them, with their true boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.types import Images
from roadworthy.engine.plan import PlannedCase, PlannedStimulus
from roadworthy.metrics.box_overlap import intersection_over_union
from roadworthy.protocols.localization.names import ANSWERS
from roadworthy.protocols.pictures import evenly_spaced, thumbnail, write_picture

if TYPE_CHECKING:
    from roadworthy.protocols.localization.tables import Evidence

Rows = list[dict[str, Any]]
IMAGES = 6
ENLARGED = 2
"""Small images are shown so many times as large, so that a box is a thin line."""
COLOUR = (0, 200, 83)


def save_sets(evidence: Evidence, cases: Sequence[PlannedCase], media: Path) -> tuple[Rows, Rows]:
    """A strip per set: the rows of the table that names them, and what the models answered to its images."""
    shown: dict[str, PlannedStimulus] = {}
    for case in sorted(cases, key=lambda case: case.case.system):
        if case.labels["role"] == ANSWERS and not case.refused:
            shown.setdefault(case.labels["set"], case.showing)
    table, answers = Rows(), Rows()
    for name, showing in shown.items():
        rows = evenly_spaced(len(showing.data), IMAGES)
        path = media / f"localization-{showing.stimulus.key}.png"
        if not path.exists():
            batch = showing.show(showing.data.batch(rows))
            boxes = np.full((len(rows), 4), np.nan) if batch.boxes is None else batch.boxes
            framed = [_framed(image, box) for image, box in zip(batch.images, boxes, strict=True)]
            write_picture(path, np.hstack([thumbnail(image, side=160) for image in framed]))
        table.append({"set": name, "media": path.name, "images": len(rows)})
        answers += _answers(evidence, name, showing, rows)
    return table, answers


def _answers(evidence: Evidence, name: str, showing: PlannedStimulus, rows: Sequence[int]) -> Rows:
    """What every model that was shown these images answered in the first repeat: classes, boxes or both.

    The true class is left out where the set has none of the source, or parent classes.
    """
    note, answers = evidence.context.sets[name], Rows()
    height, width = evidence.context.size
    for (model, shown), stored in evidence.stored.items():
        if shown != name or stored.cases[0].stimulus.hash != showing.stimulus.hash:
            continue
        readouts = stored.readouts[0]
        labels = stored.cases[0].columns("label")["label"] if note.labelled and not note.merge else None
        for image, row in enumerate(rows):
            answer: dict[str, Any] = {"model": model, "set": name, "image": image, "id": readouts.ids[row]}
            answer["label"] = "" if labels is None else evidence.class_names[int(labels[row])]
            if readouts.classified is not None:
                answer["prediction"] = evidence.class_names[int(readouts.classified.prediction[row])]
                answer["confidence"] = float(readouts.classified.confidence[row])
            if readouts.boxes is not None:
                box = readouts.boxes[[row]].astype(np.float64)
                shares = (box[0] / [width, height, width, height]).tolist()
                answer |= dict(zip(("x0", "y0", "x1", "y1"), shares, strict=True))
                if readouts.true_box is not None and not np.isnan(readouts.true_box[row]).any():
                    true = readouts.true_box[[row]].astype(np.float64)
                    answer["iou"] = float(intersection_over_union(true, box)[0])
            answers.append(answer)
    return answers


def _framed(image: Images, box: NDArray[np.floating[Any]]) -> Images:
    """The image, enlarged and in colour, with its box drawn."""
    height, width = image.shape[:2]
    large = cv2.resize(image, (ENLARGED * width, ENLARGED * height), interpolation=cv2.INTER_NEAREST)
    picture = np.ascontiguousarray(cv2.cvtColor(large, cv2.COLOR_GRAY2RGB) if large.ndim == 2 else large)
    if not np.isnan(box).any():
        x0, y0, x1, y1 = np.rint(ENLARGED * box).astype(int).tolist()
        cv2.rectangle(picture, (x0, y0), (x1 - 1, y1 - 1), COLOUR, 1)
    return np.asarray(picture, np.uint8)
