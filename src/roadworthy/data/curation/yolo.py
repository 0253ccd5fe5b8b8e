"""YOLO: a text file per image with lines `class cx cy width height`, all but the class as shares of the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from roadworthy.core.errors import InputError
from roadworthy.core.validation import read_classes, read_yaml
from roadworthy.data.curation.frames import AnnotatedObject, Frame, annotation_format, object_id
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
from roadworthy.data.images import SUFFIXES, image_size

_ROUNDING = 1e-4
"""How far a share may lie outside 0 to 1, since it was rounded when it was written."""


def yolo_kinds(root: Path, *, names: str = "") -> Sequence[str]:
    """The names of the classes in the order of their numbers."""
    candidates = [root / names] if names else [root / name for name in ("data.yaml", "dataset.yaml", "classes.txt")]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise InputError(f"there is no file with the names of the classes ({candidates[0]}): name it by `names:`")
    if path.suffix not in (".yaml", ".yml"):
        return read_classes(path)
    content = read_yaml(path, "names of classes")
    kinds = content.get("names") if isinstance(content, dict) else None
    if isinstance(kinds, dict) and sorted(kinds) == list(range(len(kinds))):
        kinds = [kinds[number] for number in range(len(kinds))]
    if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) and kind for kind in kinds):
        raise InputError(f"{path} has no `names:` with a list of class names, or a name for each number from 0: add it")
    if content.get("nc", len(kinds)) != len(kinds):
        raise InputError(f"{path} names {len(kinds)} classes, and its `nc:` says {content['nc']}: correct one of them")
    return kinds


def count_without_labels(root: Path, split: str | None) -> int:
    """How many images, of a split where one is named, have no file of labels, so that they are no frames."""
    images = root / "images" / (split or "")
    files = sorted_files(images, "") if images.is_dir() else []
    inner = [file.relative_to(root / "images") for file in files if file.suffix.lower() in SUFFIXES]
    return sum(not (root / "labels" / name.with_suffix(".txt")).is_file() for name in inner)


@annotation_format("yolo", keep_hidden=("person", "pedestrian", "bicycle"), kinds=yolo_kinds)
def read_yolo(root: Path, *, names: str = "") -> Iterator[Frame]:
    """The images of `images/SPLIT/` that have a file of labels in `labels/SPLIT/`; or `images/` and `labels/` alone.

    The names of the classes are in `names`, a file below the root: a YAML file with `names:`, or text with a name per
    line; by default `data.yaml`, `dataset.yaml` or `classes.txt`. An empty file of labels is an image without objects.
    YOLO says nothing on occlusion.
    """
    labels = require_folder(root / "labels", "YOLO keeps its label files there; the images are in images")
    kinds = yolo_kinds(root, names=names)
    for path in sorted_files(labels, ".txt"):
        inner = path.relative_to(labels)
        if inner.name == "classes.txt":
            continue
        image = find_image(root / "images" / inner.parent, path.stem)
        height, width = image_size(image)
        frame_id = inner.with_suffix("").as_posix()
        objects: list[AnnotatedObject] = []
        for line, words in read_lines(path):
            try:
                objects.append(_object(object_id(frame_id, len(objects)), words, kinds, width, height))
            except BAD_ANNOTATION as error:
                raise malformed(path, line, reason(error)) from None
        split = inner.parts[0] if len(inner.parts) > 1 else ""
        yield Frame(frame_id, image, width, height, tuple(objects), split=split)


def _object(name: str, words: list[str], kinds: Sequence[str], width: int, height: int) -> AnnotatedObject:
    if len(words) != 5:
        raise ValueError(f"there are {len(words)} values where a box has 5: class cx cy width height")
    if not words[0].isdecimal() or int(words[0]) >= len(kinds):
        raise ValueError(f"the class {words[0]!r} is not a number from 0 to {len(kinds) - 1}")
    shares = [finite(word, name) for word, name in zip(words[1:], ("cx", "cy", "width", "height"), strict=True)]
    if not all(-_ROUNDING <= share <= 1 + _ROUNDING for share in shares):
        raise ValueError("cx cy width height must be shares of the image, from 0 to 1, not pixels")
    centre_x, centre_y, wide, high = shares
    edges = centre_x - wide / 2, centre_y - high / 2, centre_x + wide / 2, centre_y + high / 2
    return AnnotatedObject(
        id=name,
        kind=kinds[int(words[0])],
        box=(edges[0] * width, edges[1] * height, edges[2] * width, edges[3] * height),
    )
