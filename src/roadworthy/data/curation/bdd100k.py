"""BDD100K: JSON files with the objects, weather, scene and time of day of every frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.validation import parse_size
from roadworthy.data.curation.frames import AnnotatedObject, Frame, annotation_format, object_id
from roadworthy.data.curation.json_lists import json_list
from roadworthy.data.curation.reading import (
    BAD_ANNOTATION,
    finite,
    flag,
    malformed,
    names_and_values,
    read_json,
    reason,
    sorted_files,
    text,
)

SPLITS = ("train", "val")
LABELS = ("labels/det_20/det_{split}.json", "labels/bdd100k_labels_images_{split}.json", "labels/100k/{split}")
"""Where the labels of a split may lie below the root: two releases in one file, and a folder with a file per frame."""
OUTLINES = ("poly2d", "rle")
"""What a label has that is not an object with a box."""
CONDITIONS = {"weather": "weather", "scene": "scene", "timeofday": "time_of_day"}
"""Attributes of a frame, and the conditions that they become."""


@annotation_format(
    "bdd100k",
    classes={
        "traffic sign": ("traffic sign",),
        "traffic light": ("traffic light",),
        "car": ("car",),
        "truck": ("truck",),
        "pedestrian": ("pedestrian", "person"),
        "bus": ("bus",),
        "bike": ("bicycle", "bike", "motorcycle", "motor"),
    },
    drop=("rider", "train", "trailer", "other person", "other vehicle"),
    keep_hidden=("pedestrian", "person", "bicycle", "bike"),
    splits={"train": {"train": 0.8, "validation": 0.2}, "val": "test"},
)
def read_bdd100k(
    root: Path, *, labels: Mapping[str, str] | None = None, images: str = "images/100k", frame_size: str = "720x1280"
) -> Iterator[Frame]:
    """The frames of the splits train and val, with the boxes of their objects; lanes and areas are not objects.

    Labels are looked for below `root` in `labels/det_20/det_SPLIT.json`, `labels/bdd100k_labels_images_SPLIT.json` and
    `labels/100k/SPLIT/*.json`, in this order; `labels` names other files or folders by split. Images lie in
    `images/SPLIT`. Both names of a class are known (`person` and `pedestrian`, `bike` and `bicycle`, `motor` and
    `motorcycle`). `x1 y1 x2 y2` are taken as the edges of the box. An object's number is its position in the list of
    the frame, lanes and areas included. All frames have `frame_size`, height x width.
    """
    size = parse_size(frame_size)
    assert size is not None
    sources = dict(labels) if labels is not None else _find_labels(root)
    for split, source in sources.items():
        for path, line, content in _contents(root / source):
            try:
                yield _frame(content, root / images / split, split, size)
            except BAD_ANNOTATION as error:
                raise malformed(path, line, reason(error)) from None


def _find_labels(root: Path) -> dict[str, str]:
    sources = {}
    for split in SPLITS:
        names = [name.format(split=split) for name in LABELS]
        present = [name for name in names if (root / name).exists()]
        if present:
            sources[split] = present[0]
    if not sources:
        raise InputError(
            f"there are no labels of BDD100K below {root}: expected is {LABELS[0].format(split='train')} or another "
            "release; name the files with `labels: {train: FILE, val: FILE}` under `options:`"
        )
    return sources


def _contents(source: Path) -> Iterator[tuple[Path, int, Any]]:
    """File, line and content of the annotation of each frame."""
    if source.is_dir():
        paths = sorted_files(source, ".json")
        if not paths:
            raise InputError(f"the folder {source} holds no .json file: put the labels of BDD100K there")
        for path in paths:
            yield path, 1, read_json(path)
    else:
        for line, content in json_list(source):
            yield source, line, content


def _frame(content: Any, images: Path, split: str, size: tuple[int, int]) -> Frame:
    name = names_and_values(content, "a frame")["name"]
    if not isinstance(name, str) or Path(name).name != name or not name:
        raise ValueError(f"the name of a frame must be a file name, not {name!r}")
    labels = content["frames"][0]["objects"] if "frames" in content else content.get("labels")
    frame_id = name.removesuffix(".jpg")
    objects = []
    if not isinstance(labels, list | None):
        raise ValueError(f"the labels of frame {name} must be a list, not {labels!r}")
    for number, label in enumerate(labels or ()):
        try:
            if not _is_outline(names_and_values(label, "an object")):
                objects.append(_object(object_id(frame_id, number), label))
        except BAD_ANNOTATION as error:
            raise ValueError(f"object {number} of frame {name}: {reason(error)}") from None
    attributes = names_and_values(content.get("attributes") or {}, "attributes")
    return Frame(
        id=frame_id,
        image=images / f"{frame_id}.jpg",
        width=size[1],
        height=size[0],
        objects=tuple(objects),
        conditions={own: str(attributes.get(theirs) or "undefined") for theirs, own in CONDITIONS.items()},
        split=split,
    )


def _is_outline(label: Any) -> bool:
    """Whether a label is a lane or an area, which has an outline or a mask in place of a box."""
    return label.get("box2d") is None and any(label.get(form) is not None for form in OUTLINES)


def _object(name: str, label: Any) -> AnnotatedObject:
    box = names_and_values(label["box2d"], "box2d")
    attributes = names_and_values(label.get("attributes") or {}, "attributes")
    return AnnotatedObject(
        id=name,
        kind=text(label["category"], "category"),
        box=(finite(box["x1"], "x1"), finite(box["y1"], "y1"), finite(box["x2"], "x2"), finite(box["y2"], "y2")),
        occluded=flag(attributes.get("occluded", False), "occluded"),
        truncated=flag(attributes.get("truncated", False), "truncated"),
        unusable="a crowd" if flag(attributes.get("crowd", False), "crowd") else "",
    )
