"""Pictures for the report: what each shift looks like on this data, and the most confident mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from roadworthy.core.types import Images
from roadworthy.engine.folder import write_bytes
from roadworthy.engine.plan import PlannedCase, Showing

if TYPE_CHECKING:
    from roadworthy.protocols.classification.tables import CellKey, Evidence, Mistake

THUMBNAIL = 96
GALLERY_IMAGES = 4
MISTAKES_PER_SHIFT = 3


def save_gallery(showings: Sequence[Showing], media: Path) -> list[dict[str, Any]]:
    """A strip per shift and level with the same few images of different classes, as the models saw them.

    An attack looks different for every model; that of the first by name is shown.
    """
    _, firsts = np.unique(showings[0].data.labels, return_index=True)
    rows = [int(firsts[place]) for place in evenly_spaced(len(firsts), GALLERY_IMAGES)]
    table, drawn = [], set[tuple[str, int]]()
    for showing in sorted(
        showings, key=lambda s: (s.stimulus.name, s.stimulus.level, s.attacked.name if s.attacked else "")
    ):
        stimulus = showing.stimulus
        if stimulus.repeat == 0 and (stimulus.name, stimulus.level) not in drawn:
            drawn.add((stimulus.name, stimulus.level))
            name = save_strip(showing, media / f"gallery-{stimulus.key}.png", rows)
            table.append({"shift": stimulus.name, "level": stimulus.level, "media": name, "images": len(rows)})
    return table


def save_strip(showing: Showing, path: Path, rows: int | Sequence[int]) -> str:
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


def save_mistakes(evidence: Evidence, cases: Sequence[PlannedCase], media: Path) -> list[dict[str, Any]]:
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


def _most_confident(evidence: Evidence, cells: Sequence[CellKey]) -> list[tuple[CellKey, Mistake]]:
    """The most confident mistakes over several cells, one per object."""
    found = [(key, mistake) for key in cells for mistake in evidence.cells[key].mistakes]
    chosen: dict[str, tuple[CellKey, Mistake]] = {}
    for key, mistake in sorted(found, key=lambda pair: -pair[1].confidence):
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
