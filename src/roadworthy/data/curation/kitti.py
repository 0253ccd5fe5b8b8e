"""KITTI object detection: a text file of 15 values per object for every image, and the camera's calibration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roadworthy.core.errors import InputError
from roadworthy.data.curation.frames import AnnotatedObject, Box, Frame, annotation_format, object_id
from roadworthy.data.curation.reading import (
    BAD_ANNOTATION,
    find_image,
    finite,
    malformed,
    read_lines,
    reason,
    require_folder,
    sorted_files,
)
from roadworthy.data.images import image_size

NOT_ANNOTATED = "DontCare"
"""The kind of a region in which KITTI annotates nothing, though there may be objects."""
VALUES = 15


@annotation_format(
    "kitti",
    classes={"car": ("Car",), "pedestrian": ("Pedestrian",)},
    drop=("Van", "Truck", "Person_sitting", "Cyclist", "Tram", "Misc"),
    keep_hidden=("Pedestrian", "Cyclist"),
    splits={"training": "test"},
)
def read_kitti(root: Path, *, most_occluded: int = 0, most_truncated: float = 0.0) -> Iterator[Frame]:
    """The frames of `training/`: `image_2/NAME.png`, `label_2/NAME.txt` and, where it is there, `calib/NAME.txt`.

    `root` is the folder that holds `training`, one that holds `object/training`, or `training` itself. An object is
    occluded where its state is above `most_occluded` (0 visible, 1 partly, 2 largely occluded, 3 unknown), and
    truncated where the share of it that lies outside the frame is above `most_truncated`. The distance is the object's
    z in the camera's coordinates, unknown where that is not positive (KITTI writes -1000 where it is not known). The
    horizon is the row of the principal point (that of matrix P2 of the calibration), which is where it lies for a
    camera that looks straight ahead. Regions `DontCare` are never a main object, but count as other objects.
    """
    folders = [root, root / "training", root / "object" / "training"]
    folder = next((path for path in folders if (path / "label_2").is_dir()), root / "training")
    labels = require_folder(
        folder / "label_2", "KITTI keeps its label files there; name the folder that holds training"
    )
    for path in sorted_files(labels, ".txt"):
        image = find_image(folder / "image_2", path.stem)
        height, width = image_size(image)
        objects: list[AnnotatedObject] = []
        for line, words in read_lines(path):
            try:
                objects.append(_object(path.stem, len(objects), words, most_occluded, most_truncated))
            except BAD_ANNOTATION as error:
                raise malformed(path, line, reason(error)) from None
        horizon = _horizon(folder / "calib" / f"{path.stem}.txt")
        yield Frame(path.stem, image, width, height, tuple(objects), split="training", horizon=horizon)


def _object(frame: str, number: int, words: list[str], most_occluded: int, most_truncated: float) -> AnnotatedObject:
    if len(words) not in (VALUES, VALUES + 1):
        raise ValueError(f"there are {len(words)} values where KITTI writes {VALUES}")
    values = [finite(word, f"value {position}") for position, word in enumerate(words[1:], start=2)]
    truncated, occluded = values[0], values[1]
    box: Box = (values[3], values[4], values[5], values[6])
    ignored = words[0] == NOT_ANNOTATED
    if not ignored and (occluded not in (0, 1, 2, 3) or not 0 <= truncated <= 1):
        raise ValueError(f"truncated {words[1]} and occluded {words[2]} must be 0 to 1, and one of 0, 1, 2, 3")
    return AnnotatedObject(
        id=object_id(frame, number),
        kind=words[0],
        box=box,
        occluded=occluded > most_occluded,
        truncated=truncated > most_truncated,
        distance=values[12] if values[12] > 0 else None,
        unusable="a region that is not annotated" if ignored else "",
    )


def _horizon(path: Path) -> float | None:
    """The row of the principal point in a calibration file; None where there is no such file."""
    if not path.is_file():
        return None
    for line, words in read_lines(path):
        if words[0] == "P2:":
            if len(words) != 13:
                raise malformed(path, line, f"P2 has {len(words) - 1} values, not 12")
            try:
                return finite(words[7], "value 7 of P2")
            except ValueError as error:
                raise malformed(path, line, error) from None
    raise InputError(f"the calibration {path} has no line P2: take it from KITTI again, or remove the file")
