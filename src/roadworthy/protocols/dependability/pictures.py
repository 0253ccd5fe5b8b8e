"""Pictures of dependability: heat maps, also in the object's own box, expensive confusions, images that lose most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.types import Batch, Images
from roadworthy.engine.plan import PlannedCase
from roadworthy.metrics import Answers
from roadworthy.metrics.occlusion import PatchGrid
from roadworthy.protocols.dependability.measures import Results
from roadworthy.protocols.dependability.measures.object_parts import PARTS
from roadworthy.protocols.dependability.measures.over_heat_maps import scopes_of
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import (
    CONFUSION_GALLERY,
    CONFUSIONS,
    HEAT_GALLERY,
    LOSS,
    LOSS_GALLERY,
    OCCLUSION,
    OCCLUSION_PARTS,
    PARTS_GALLERY,
    frame_of,
)
from roadworthy.protocols.pictures import save_strip, thumbnail, write_picture

SIDE = 160
CONFUSIONS_SHOWN, IMAGES_OF_CONFUSION = 10, 3
"""Confusions shown, and images of each."""
LOSSES_SHOWN = 8
OUTLINE, HOT_EDGE = (255, 255, 255), (30, 30, 30)
COLOURS = np.array([(122, 4, 3), (213, 62, 20), (250, 150, 60), (253, 215, 150), (240, 240, 236)], np.float64)
"""From a probability of 0 (dark red: hiding this cell loses the object) to 1 (pale)."""


def save(data: StoredData, results: Results, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
    """Write all pictures; the tables say which file is what."""
    clean = [case for case in cases if case.labels["role"] == "undisturbed"]
    clean.sort(key=lambda case: case.case.system)
    rows = {
        HEAT_GALLERY: [row for case in clean for row in _heat_maps(data, results, case, media)],
        PARTS_GALLERY: [row for case in clean for row in _object_parts(data, results, case, media)],
        CONFUSION_GALLERY: [row for case in clean for row in _confusions(data, results, case, media)],
        LOSS_GALLERY: [row for case in clean for row in _losses(data, results, case.case.system, cases, media)],
    }
    return {spec.name: frame_of(spec, own) for spec, own in rows.items()}


def _heat_maps(data: StoredData, results: Results, case: PlannedCase, media: Path) -> Iterator[dict[str, Any]]:
    """The image with its object outlined, and the same under its heat map: worst first, one per object."""
    rows = {row["row"]: row for row in results.rows_of(OCCLUSION, case.case.system) if row["counts"]}
    grid = PatchGrid(*data.resolved.grid)
    for number, row in enumerate(_one_per_object(data, rows, data.settings.heat_maps.pictures), start=1):
        path = media / f"heat-{case.case.hash[:12]}-{row}.png"
        write_picture(path, heat_picture(case.showing.data.batch([row]), rows[row]["map"], rows[row]["rho"], grid))
        answer = _answer(data, data.readouts[case.case.system].answers, row)
        yield rows[row] | {"place": number, "media": path.name} | answer


def _answer(data: StoredData, answers: Answers, row: int) -> dict[str, Any]:
    """The class that a model answered to a row, and its confidence."""
    prediction = data.class_names[int(answers.prediction[row])]
    return {"prediction": prediction, "confidence": float(answers.confidence[row])}


def heat_picture(batch: Batch, heat: NDArray[np.float32], rho: float, grid: PatchGrid) -> Images:
    """Two squares side by side: one image with its object outlined, and its heat map with hot cells framed.

    batch (1 image);  heat (rows, columns): the probability left. A cell lies where its patch lay on the image; where
    patches overlap, it ends midway between the middles of its own and the next.
    """
    image = thumbnail(batch.images[0], SIDE)
    outline = _outline(batch)
    left = image.copy()
    left[outline] = OUTLINE
    colours = _colours(heat.astype(np.float64))
    down, across = _edges(grid.tops, grid.patch, grid.height), _edges(grid.lefts, grid.patch, grid.width)
    scale = SIDE / max(grid.height, grid.width)
    rows, columns = (np.rint(edges * scale).astype(int) for edges in (down, across))
    top, start = (SIDE - rows[-1]) // 2, (SIDE - columns[-1]) // 2
    right, inside = image.copy(), np.s_[top : top + rows[-1], start : start + columns[-1]]
    grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    enlarged = np.repeat(np.repeat(colours, np.diff(rows), axis=0), np.diff(columns), axis=1)
    right[inside] = cv2.addWeighted(enlarged, 0.75, grey[inside], 0.25, 0)
    for row, column in np.argwhere(heat < rho).tolist():
        corner = int(start + columns[column]), int(top + rows[row])
        opposite = int(start + columns[column + 1]) - 1, int(top + rows[row + 1]) - 1
        cv2.rectangle(right, corner, opposite, HOT_EDGE, 1)
    right[outline] = OUTLINE
    return np.hstack([left, right])


def _colours(left: NDArray[np.float64]) -> Images:
    """The colours (rows, columns, 3) of probabilities that are left, (rows, columns)."""
    step = np.clip(left, 0, 1) * (len(COLOURS) - 1)
    lower = np.minimum(step.astype(int), len(COLOURS) - 2)
    share = (step - lower)[..., None]
    return np.asarray(((1 - share) * COLOURS[lower] + share * COLOURS[lower + 1]).round(), np.uint8)


def _object_parts(data: StoredData, results: Results, case: PlannedCase, media: Path) -> Iterator[dict[str, Any]]:
    """The mean object of every class and of all, and beside it the mean heat map in the coordinates of its box."""
    model = case.case.system
    rows, heat_maps = results.rows_of(OCCLUSION_PARTS, model), data.heat_maps.get(model)
    if heat_maps is None or heat_maps.boxes is None:
        return
    batch = case.showing.data.batch(heat_maps.rows.tolist())
    for number, (scope, chosen) in enumerate(scopes_of(heat_maps, data.class_names)):
        parts = [row for row in rows if row["scope"] == scope]
        marked = np.flatnonzero(chosen & heat_maps.counts & ~np.isnan(heat_maps.boxes).any(axis=1))
        if not parts:
            continue
        left = np.array([row["left"] for row in parts]).reshape(PARTS, PARTS)
        path = media / f"parts-{case.case.hash[:12]}-{number}.png"
        write_picture(path, parts_picture(batch.images[marked], heat_maps.boxes[marked], left))
        worst = max(parts, key=lambda row: (row["hot"], row["lost"]))
        yield worst | {"media": path.name}


def parts_picture(images: Images, boxes: NDArray[np.float32], left: NDArray[np.float64]) -> Images:
    """Two squares side by side: the mean of what lies in the boxes (n, 4), and the mean heat map of its parts over it.

    left (parts, parts): the mean probability that is left while a patch hides the part.
    """
    mean = np.zeros((SIDE, SIDE, 3))
    for image, box in zip(images, boxes, strict=True):
        x0, y0, x1, y1 = np.clip([np.floor(box[0]), np.floor(box[1]), *np.ceil(box[2:])], 0, None).astype(int)
        crop = image[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)]
        stretched = cv2.resize(crop, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        mean += cv2.cvtColor(stretched, cv2.COLOR_GRAY2RGB) if image.shape[-1] == 1 else stretched
    seen = np.rint(mean / max(len(images), 1)).astype(np.uint8)
    grey = cv2.cvtColor(cv2.cvtColor(seen, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    enlarged = cv2.resize(_colours(left), (SIDE, SIDE), interpolation=cv2.INTER_NEAREST)
    return np.hstack([seen, cv2.addWeighted(enlarged, 0.75, grey, 0.25, 0)])


def _edges(starts: NDArray[np.intp], patch: int, side: int) -> NDArray[np.float64]:
    """Where the cells of patches that start here begin and end on an image side."""
    middles = (starts + np.minimum(starts + patch, side)) / 2
    return np.concatenate([[0.0], (middles[1:] + middles[:-1]) / 2, [float(side)]])


def _outline(batch: Batch) -> NDArray[np.bool_]:
    """The edge of the object, by its mask or box, on a square of `SIDE`."""
    height, width = batch.images.shape[1:3]
    mask = np.zeros((height, width), np.uint8)
    if batch.masks is not None:
        mask[batch.masks[0]] = 255
    elif batch.boxes is not None and not np.isnan(batch.boxes[0]).any():
        x0, y0, x1, y1 = np.rint(batch.boxes[0]).astype(int)
        mask[max(y0, 0) : y1, max(x0, 0) : x1] = 255
    square = thumbnail(255 - mask[..., None], SIDE)[..., 0] < 128
    inner = cv2.erode(square.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0)
    return np.asarray(square & (inner == 0))


def _confusions(data: StoredData, results: Results, case: PlannedCase, media: Path) -> Iterator[dict[str, Any]]:
    """Images of the most expensive confusions, the surest answers first, one per object."""
    model, showing = case.case.system, case.showing
    for confusion in results.rows_of(CONFUSIONS, model)[:CONFUSIONS_SHOWN]:
        answers = data.readouts[model].answers
        label, prediction = (data.class_names.index(confusion[name]) for name in ("label", "prediction"))
        rows = np.flatnonzero((answers.label == label) & (answers.prediction == prediction))
        surest = rows[np.argsort(-answers.score[rows], kind="stable")].tolist()
        for row in _one_per_object(data, surest, IMAGES_OF_CONFUSION):
            picture = save_strip(showing, media / f"seen-{showing.stimulus.key}-{row}.png", [row])
            shown = {"id": data.ids[row], "confidence": float(answers.confidence[row]), "media": picture}
            yield confusion | shown


def _losses(
    data: StoredData, results: Results, model: str, cases: Sequence[PlannedCase], media: Path
) -> Iterator[dict[str, Any]]:
    """The images that lose most, one per object: undisturbed and under the transformer that hurts them most."""
    disturbed = {case.labels.get("transformer"): case for case in cases if case.case.system == model}
    rows = {data.row_of[row["id"]]: row for row in results.rows_of(LOSS, model) if row["change"] < 0}
    for row in (rows[first] for first in _one_per_object(data, rows, LOSSES_SHOWN)):
        case = disturbed[row["transformer"]]
        shown_row = case.showing.data.ids.index(row["id"])
        batch = case.showing.data.batch([shown_row])
        path = media / f"loss-{case.case.hash[:12]}-{shown_row}.png"
        write_picture(path, np.hstack([thumbnail(shown.images[0]) for shown in (batch, case.showing.show(batch))]))
        (stored,) = (own for own in data.cases_of("transformer", model) if own.hash == case.case.hash)
        yield row | {"media": path.name} | _answer(data, stored.load().answers, shown_row)


def _one_per_object(data: StoredData, rows: Iterable[int], most: int) -> list[int]:
    """The first rows of the data that show different objects, so many of them at most."""
    first: dict[str, int] = {}
    for row in rows:
        first.setdefault(str(data.groups[row]), row)
    return list(first.values())[:most]
