"""Pictures for the report: what each shift looks like on this data, and the most confident mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.types import Images
from roadworthy.engine.folder import write_bytes
from roadworthy.engine.plan import PlannedCase, PlannedStimulus

if TYPE_CHECKING:
    from roadworthy.protocols.base import StoredCase
    from roadworthy.protocols.classification.summaries import StoredAnswer
    from roadworthy.protocols.classification.tables import CellKey, Evidence

THUMBNAIL = 96
GALLERY_IMAGES = 4
MISTAKES_PER_SHIFT = 3
CLASS_SIDE = 64
CLASS_CANDIDATES, MANY_CLASSES = 10, 100
"""Images of a class among which the clearest is chosen; of many classes the first image is taken."""
Row = dict[str, Any]


def gallery_rows(labels: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """The rows of the images that a gallery shows, given the labels of all: a few, each the first of its class.

    >>> gallery_rows([2, 2, 0, 1, 0])
    [2, 3, 0]
    """
    _, firsts = np.unique(labels, return_index=True)
    return [int(firsts[index]) for index in evenly_spaced(len(firsts), GALLERY_IMAGES)]


def save_gallery(evidence: Evidence, cases: Sequence[PlannedCase], media: Path) -> tuple[list[Row], list[Row]]:
    """A strip per shift and level with the same few images of different classes, as the models saw them.

    An attack looks different for every model; that of the first by name is shown. The second table says what each model
    that saw a strip, in the first repeat, answered to its images.
    """
    first = sorted(
        (case for case in cases if case.showing.stimulus.repeat == 0),
        key=lambda case: case.showing.attacked.name if case.showing.attacked else "",
    )
    drawn: dict[tuple[str, float], PlannedStimulus] = {}
    for case in first:
        drawn.setdefault(_condition(case), case.showing)
    table, positions = [], {}
    for (shift, level), showing in sorted(drawn.items(), key=lambda item: item[0]):
        rows = positions[shift, level] = gallery_rows(showing.data.labels)
        name = save_strip(showing, media / f"gallery-{showing.stimulus.key}.png", rows)
        table.append({"shift": shift, "level": level, "media": name, "images": len(rows)})
    hashes = {showing.stimulus.hash for showing in drawn.values()}
    saw = {(c.case.system, *_condition(c)) for c in first if c.showing.stimulus.hash in hashes}
    answers = [
        {
            **key.where(),
            "image": position,
            "id": evidence.ids[answer.row],
            "label": evidence.class_names[answer.label],
            "prediction": evidence.class_names[answer.prediction],
            "confidence": answer.confidence,
        }
        for key, cell in evidence.cells.items()
        if (key.model, key.shift, key.level) in saw
        for answer in cell.gallery
        if answer.row in positions[key.shift, key.level]
        for position in [positions[key.shift, key.level].index(answer.row)]
    ]
    return table, answers


def answer_rows(
    where: Mapping[str, Any],
    columns: Mapping[str, Any],
    rows: Sequence[int],
    class_names: Sequence[str],
    labelled: bool,
) -> list[Row]:
    """A row for each of some stored answers, in the order of their images in a picture; `where` says whose they are.

    columns   `id`, `label`, `prediction` and `confidence` of all images of a case, (N,) each
    rows      of the images in the picture; one that a case which was stopped early does not hold is left out
    labelled  whether labels are those of the classes that are answered

    >>> columns = {"id": ["a", "b"], "label": [1, 0], "prediction": [0, 0], "confidence": [0.9, 0.7]}
    >>> answer_rows({"model": "m"}, columns, [1], ["stop", "yield"], labelled=True)
    [{'model': 'm', 'image': 0, 'id': 'b', 'label': 'stop', 'prediction': 'stop', 'confidence': 0.7}]
    """
    return [
        {
            **where,
            "image": image,
            "id": str(columns["id"][row]),
            "label": class_names[int(columns["label"][row])] if labelled else "",
            "prediction": class_names[int(columns["prediction"][row])],
            "confidence": float(columns["confidence"][row]),
        }
        for image, row in enumerate(rows)
        if row < len(columns["id"])
    ]


def shown_answers(
    showing: PlannedStimulus,
    rows: Sequence[int],
    cases: Iterable[StoredCase],
    class_names: Sequence[str],
    *,
    where: Mapping[str, Any],
    labelled: bool,
) -> list[Row]:
    """What the models of these cases answered to some rows of what is shown: see `answer_rows`."""
    answers = []
    for case in cases:
        if case.stimulus.hash == showing.stimulus.hash and not case.failure:
            columns = case.columns("id", "label", "prediction", "confidence")
            answers += answer_rows({"model": case.system, **where}, columns, rows, class_names, labelled=labelled)
    return answers


def save_classes(showing: PlannedStimulus, media: Path) -> list[Row]:
    """A small undisturbed picture of every class that the data shows, side by side in one file, and a row for each.

    Of the first images of a class, the one with the strongest contrast stands for it.
    """
    data, classes = showing.data, dict[int, list[int]]()
    for row, label in enumerate(np.asarray(data.labels).tolist()):
        classes.setdefault(int(label), []).append(row)
    candidates = CLASS_CANDIDATES if len(classes) <= MANY_CLASSES else 1
    tiles, table = list[Images](), list[Row]()
    path = media / f"classes-{showing.stimulus.data[:8]}.png"
    for label in sorted(classes):
        rows = classes[label][:candidates]
        batch = data.batch(rows)
        clearest = int(np.argmax([image.std() for image in batch.images]))
        tiles.append(thumbnail(batch.images[clearest], CLASS_SIDE))
        position = {"media": path.name, "image": len(table), "images": len(classes)}
        table.append({"class": data.class_names[label], "id": str(batch.ids[clearest]), **position})
    if tiles and not path.exists():
        write_picture(path, np.hstack(tiles))
    return table


def _condition(case: PlannedCase) -> tuple[str, float]:
    return case.showing.stimulus.name, case.showing.stimulus.level


def save_strip(showing: PlannedStimulus, path: Path, rows: int | Sequence[int]) -> str:
    """A strip of some rows of what is shown, or of so many spread over it, once; returns the name of the file."""
    if not path.exists():
        chosen = evenly_spaced(len(showing.data), rows) if isinstance(rows, int) else rows
        write_picture(path, np.hstack([thumbnail(image) for image in showing.show(showing.data.batch(chosen)).images]))
    return path.name


def evenly_spaced(images: int, count: int) -> list[int]:
    """At most `count` rows, from the first to the last.

    >>> evenly_spaced(10, 3), evenly_spaced(2, 3)
    ([0, 4, 9], [0, 1])
    """
    rows: list[int] = np.linspace(0, images - 1, min(count, images)).astype(int).tolist()
    return rows


def save_mistakes(evidence: Evidence, cases: Sequence[PlannedCase], media: Path) -> list[Row]:
    """Per model and shift the most confident wrong answers, one per object, with the picture as it was shown."""
    shown = {
        (case.case.system, case.case.stimulus.name, case.case.stimulus.level, case.case.stimulus.repeat): case.showing
        for case in cases
    }
    table = []
    for model, shift in dict.fromkeys((key.model, key.shift) for key in evidence.cells):
        cells = [key for key in evidence.cells if (key.model, key.shift) == (model, shift)]
        for key, mistake in _most_confident(evidence, cells):
            showing = shown[model, shift, key.level, mistake.repeat]
            seen = media / f"seen-{showing.stimulus.key}-{mistake.row}.png"
            table.append(
                {
                    **key.where(),
                    "id": evidence.ids[mistake.row],
                    "label": evidence.class_names[mistake.label],
                    "prediction": evidence.class_names[mistake.prediction],
                    "confidence": mistake.confidence,
                    "p_label": mistake.p_label,
                    "media": save_strip(showing, seen, [mistake.row]),
                }
            )
    return table


def _most_confident(evidence: Evidence, cells: Sequence[CellKey]) -> list[tuple[CellKey, StoredAnswer]]:
    """The most confident mistakes over several cells, one per object."""
    mistakes = [(key, mistake) for key in cells for mistake in evidence.cells[key].mistakes]
    chosen: dict[str, tuple[CellKey, StoredAnswer]] = {}
    for key, mistake in sorted(mistakes, key=lambda pair: -pair[1].confidence):
        chosen.setdefault(evidence.groups[mistake.row], (key, mistake))
        if len(chosen) == MISTAKES_PER_SHIFT:
            break
    return list(chosen.values())


def thumbnail(image: Images, side: int = THUMBNAIL) -> Images:
    """An RGB image of at most side x side that keeps its shape, on white; small ones are enlarged without smoothing."""
    height, width = image.shape[:2]
    scale = side / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    resized = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST)
    if resized.ndim == 2 or resized.shape[-1] == 1:
        resized = cv2.cvtColor(resized, cv2.COLOR_GRAY2RGB)
    canvas = np.full((side, side, 3), 255, np.uint8)
    top, left = (side - size[1]) // 2, (side - size[0]) // 2
    canvas[top : top + size[1], left : left + size[0]] = resized
    return canvas


def write_picture(path: Path, image: Images) -> None:
    """Write an RGB image as PNG, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done, encoded = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_PNG_COMPRESSION, 6])
    assert done
    write_bytes(path, encoded.tobytes())
