"""COCO, VOC and YOLO as data sets: images with one annotated object and its box, or a crop for every object."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.validation import check_number
from roadworthy.data.base import Opening
from roadworthy.data.files import FileDataset, Listing
from roadworthy.data.folder import check_folder
from roadworthy.data.table import Table, by_name, checked_boxes, condition, natural_key

if TYPE_CHECKING:
    from roadworthy.data.curation.frames import AnnotatedObject, Box, Frame

MOST_MARGIN = 10.0


def open_coco(
    source: str | Path,
    opening: Opening | None = None,
    *,
    images: str | Path | None = None,
    split: str | None = None,
    crops: bool = False,
    margin: float = 0.0,
) -> FileDataset:
    """COCO: an annotation file with the folder of its `images`, or a root folder; images with one object, or crops.

    images  the folder of the images of a file (default: as in curation)
    split   which part of a root folder, such as val; for `crops` and `margin` see docs/data_kinds.md
    """
    opening = opening or Opening()
    path, folder = opening.path(source), None if images is None else opening.path(images)
    if path.is_dir():
        if folder is not None:
            raise InputError("`images` is for a file of annotations: name that file in place of the root folder")
        return _open("coco", path, {}, opening, split, crops, margin)
    if split is not None:
        raise InputError("a COCO file is one split: leave `split` out, or name the root folder")
    part = path.stem.removeprefix("instances_")
    options: dict[str, Any] = {"annotations": {part: path.name}}
    if folder is not None:
        check_folder(folder)
        options["images"] = {part: str(folder.absolute())}
    return _open("coco", path.parent, options, opening, None, crops, margin)


def open_voc(
    source: str | Path,
    opening: Opening | None = None,
    *,
    split: str | None = None,
    crops: bool = False,
    margin: float = 0.0,
    first_pixel: int = 1,
    difficult: bool = False,
) -> FileDataset:
    """Pascal VOC: a folder with `Annotations` and `JPEGImages`; images with one object, or crops of all objects.

    split  which part of `ImageSets/Main`;  first_pixel, difficult: as in curation
    crops, margin  see docs/data_kinds.md
    """
    opening = opening or Opening()
    options = {"first_pixel": first_pixel, "difficult": difficult}
    return _open("voc", opening.path(source), options, opening, split, crops, margin)


def open_yolo(
    source: str | Path,
    opening: Opening | None = None,
    *,
    split: str | None = None,
    crops: bool = False,
    margin: float = 0.0,
    names: str = "",
) -> FileDataset:
    """YOLO: a folder with `images` and `labels`; images with one object, or crops of all objects.

    split  which part (`images/SPLIT`);  names: the file with the classes;  crops, margin: see docs/data_kinds.md
    """
    opening = opening or Opening()
    from roadworthy.data.curation.yolo import count_without_labels

    root = opening.path(source)
    unlabelled = Counter({"without a file of labels": count_without_labels(root, split)})
    return _open("yolo", root, {"names": names}, opening, split, crops, margin, +unlabelled)


@dataclass(frozen=True)
class _Row:
    """An object that becomes a row: its frame, the part of the picture that is shown, and its box in that part."""

    frame: Frame
    object: AnnotatedObject
    window: tuple[int, int, int, int]
    box: Box
    is_crop: bool

    @property
    def id(self) -> str:
        return self.object.id if self.is_crop else self.frame.id

    @property
    def conditions(self) -> Mapping[str, str]:
        hidden = {"occluded": self.object.occluded, "truncated": self.object.truncated}
        return {**self.frame.conditions, **{name: "yes" if value else "no" for name, value in hidden.items()}}


def _open(
    name: str,
    root: Path,
    options: Mapping[str, Any],
    opening: Opening,
    split: str | None,
    crops: bool,
    margin: float,
    left_out: Counter[str] | None = None,
) -> FileDataset:
    """The data set of a format; `left_out` counts what its reader does not give."""
    from roadworthy.data.curation import READERS
    from roadworthy.data.curation.frames import read_frames

    check_number("margin", margin, 0, MOST_MARGIN)
    if margin and not crops:
        raise InputError("margin is how much of the surroundings a crop shows: add `crops: true`")
    check_folder(root)
    frames = list(_of_split(list(read_frames(name, root, options)), split, root))
    left_out = Counter[str](left_out or {})
    rows = [row for frame in frames for row in (_crops(frame, margin, left_out) if crops else _single(frame, left_out))]
    if not rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "it holds no images"
        hint = "" if crops else "; `crops: true` makes an image of every object"
        raise InputError(f"no image of {str(root)!r} can be used: {reasons}{hint}")
    kinds = READERS.get(name).kinds
    known = opening.class_names or (kinds(root, **options) if kinds else None)
    rows.sort(key=lambda row: natural_key(row.id))
    return FileDataset(_listing(rows, known, crops, left_out), opening)


def _listing(rows: Sequence[_Row], classes: Sequence[str] | None, crops: bool, left_out: Counter[str]) -> Listing:
    labels = [row.object.kind for row in rows]
    index, names = by_name(labels, classes or sorted(set(labels), key=natural_key))
    ids = tuple(row.id for row in rows)
    boxes, notes = checked_boxes([row.box for row in rows], ids)
    columns = dict.fromkeys(name for row in rows for name in row.conditions)
    table = Table(
        ids=ids,
        labels=index,
        class_names=names,
        groups=tuple(row.object.track or row.frame.id for row in rows),
        boxes=boxes,
        conditions={name: condition([row.conditions.get(name, "") for row in rows]) for name in columns},
    )
    if left_out:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        notes.append(f"{'objects' if crops else 'images'} left out: {counts}")
    return Listing(
        table=table,
        paths=tuple(_path(row.frame) for row in rows),
        notes=[*table.notes(), *notes],
        annotated=np.array([(row.frame.height, row.frame.width) for row in rows], dtype=np.int64),
        windows=np.array([row.window for row in rows], dtype=np.int64) if crops else None,
    )


def _path(frame: Frame) -> Path:
    if not isinstance(frame.image, Path):
        raise InputError(f"the picture of frame {frame.id!r} is not a file")
    return frame.image


def _of_split(frames: Sequence[Frame], split: str | None, root: Path) -> Iterator[Frame]:
    """The frames of a split; where there are several, one must be named."""
    known = {frame.split for frame in frames}
    if split is not None and split not in known:
        raise UnknownName(f"split of {root}", split, known)
    if split is None and len(known) > 1:
        raise InputError(f"{str(root)!r} has the splits {', '.join(sorted(known))}: name one as `split`")
    return (frame for frame in frames if split is None or frame.split == split)


def _single(frame: Frame, left_out: Counter[str]) -> Iterator[_Row]:
    """The frame where exactly one object is annotated in it."""
    if len(frame.objects) != 1:
        left_out["with several objects" if frame.objects else "without an object"] += 1
        return
    annotated = frame.objects[0]
    box = _inside(frame, annotated)
    if annotated.unusable or box is None:
        left_out[annotated.unusable or _why_outside(annotated)] += 1
        return
    yield _Row(frame, annotated, (0, 0, frame.width, frame.height), box, is_crop=False)


def _crops(frame: Frame, margin: float, left_out: Counter[str]) -> Iterator[_Row]:
    """A crop of every object: its box, and around it `margin` times the box's longer side, as far as the image goes."""
    for annotated in frame.objects:
        box = _inside(frame, annotated)
        if annotated.unusable or box is None:
            left_out[annotated.unusable or _why_outside(annotated)] += 1
            continue
        around = margin * max(box[2] - box[0], box[3] - box[1])
        x0, y0 = (max(0, math.floor(value - around)) for value in box[:2])
        x1 = min(frame.width, math.ceil(box[2] + around))
        y1 = min(frame.height, math.ceil(box[3] + around))
        yield _Row(
            frame, annotated, (x0, y0, x1, y1), (box[0] - x0, box[1] - y0, box[2] - x0, box[3] - y0), is_crop=True
        )


def _inside(frame: Frame, annotated: AnnotatedObject) -> Box | None:
    """The part of an object's box inside its frame; None where there is none."""
    x0, y0, x1, y1 = annotated.box
    box = max(x0, 0.0), max(y0, 0.0), min(x1, float(frame.width)), min(y1, float(frame.height))
    return box if box[0] < box[2] and box[1] < box[3] else None


def _why_outside(annotated: AnnotatedObject) -> str:
    """Why nothing of an object's box is inside its frame."""
    x0, y0, x1, y1 = annotated.box
    return "with a box outside the image" if x0 < x1 and y0 < y1 else "with a box without area"
