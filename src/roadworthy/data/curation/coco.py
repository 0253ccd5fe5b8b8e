"""COCO detection: one JSON file per split with images, categories and annotations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.data.curation.frames import AnnotatedObject, Frame, annotation_format, object_id
from roadworthy.data.curation.reading import BAD_ANNOTATION, finite, malformed, read_json, reason

REQUIRED = {
    "categories": ("id", "name"),
    "images": ("id", "file_name", "width", "height"),
    "annotations": ("image_id", "category_id", "bbox"),
}
"""The keys that an entry of each section must have."""
_INSTANCES = re.compile(r"(?:instances_)?([A-Za-z]+)\d*\.json")


@annotation_format("coco", keep_hidden=("person", "pedestrian", "bicycle"))
def read_coco(
    root: Path, *, annotations: Mapping[str, str] | None = None, images: Mapping[str, str] | None = None
) -> Iterator[Frame]:
    """The images of every split, with their boxes (`x y width height` in the file).

    The files are `annotations/instances_SPLIT.json` below `root`, where a year after the split's name plays no part
    (`instances_val2017.json` is the split `val`); `annotations` names other files by split. The images of a split lie
    in the folder that `images` names for it; by default in the first of `val2017`, `images/val2017`, `images` and the
    root that exists, and `file_name` continues from there. An object of a crowd (`iscrowd: 1`) is never a main object.
    COCO itself says nothing on occlusion; `attributes` with `occluded`, `truncated` and `track_id`, as some annotation
    tools write, are read. The error of a malformed entry names its number in its list, counted from 0.
    """
    for split, path in _files(root, annotations).items():
        content = read_json(path)
        stem = path.stem.removeprefix("instances_")
        candidates = [root / stem, root / "images" / stem, root / "images", root]
        folder = next((candidate for candidate in candidates if candidate.is_dir()), root)
        if images is not None:
            if split not in images:
                raise InputError(f"`images` names no folder for the split {split!r} of {path.name}: add it")
            folder = root / images[split]
        yield from _frames(path, content, folder, split)


def _files(root: Path, annotations: Mapping[str, str] | None) -> dict[str, Path]:
    if annotations is not None:
        return {split: root / name for split, name in annotations.items()}
    files: dict[str, Path] = {}
    for path in sorted((root / "annotations").glob("*.json")):
        match = _INSTANCES.fullmatch(path.name)
        if match is None:
            continue
        if match[1] in files:
            raise InputError(f"{files[match[1]]} and {path.name} are the same split: name one under `annotations:`")
        files[match[1]] = path
    if not files:
        raise InputError(f"there is no annotations/instances_SPLIT.json below {root}: name files by `annotations:`")
    return files


def _frames(path: Path, content: Any, folder: Path, split: str) -> Iterator[Frame]:
    kinds: dict[Any, str] = {}
    for _, category in _entries(path, content, "categories"):
        kinds[category["id"]] = str(category["name"])
    objects_of: dict[Any, list[AnnotatedObject]] = {}
    for _, picture in _entries(path, content, "images"):
        if picture["id"] in objects_of:
            raise malformed(path, None, f"the id {picture['id']!r} of an image is used twice")
        objects_of[picture["id"]] = []
    for number, entry in _entries(path, content, "annotations"):
        try:
            if entry["image_id"] not in objects_of:
                raise ValueError(f"there is no image {entry['image_id']!r}")
            if entry["category_id"] not in kinds:
                raise ValueError(f"there is no category {entry['category_id']!r}")
            objects = objects_of[entry["image_id"]]
            objects.append(_object(f"{split}-{entry['image_id']}", len(objects), entry, kinds[entry["category_id"]]))
        except BAD_ANNOTATION as error:
            raise malformed(path, None, f"entry {number} of 'annotations': {reason(error)}") from None
    for number, picture in _entries(path, content, "images"):
        try:
            yield Frame(
                id=f"{split}-{picture['id']}",
                image=folder / str(picture["file_name"]),
                width=int(picture["width"]),
                height=int(picture["height"]),
                objects=tuple(objects_of[picture["id"]]),
                split=split,
            )
        except BAD_ANNOTATION as error:
            raise malformed(path, None, f"entry {number} of 'images': {reason(error)}") from None


def _entries(path: Path, content: Any, section: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and content of every entry of a section; each must be an object with the keys that the format asks for."""
    required = REQUIRED[section]
    entries = content.get(section) if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise malformed(path, None, f"there is no list {section!r}")
    for number, entry in enumerate(entries):
        absent = [key for key in required if key not in entry] if isinstance(entry, dict) else required
        if absent:
            raise malformed(path, None, f"entry {number} of {section!r}: there is no {absent[0]!r}")
        identifiers = [entry[key] for key in required if key.endswith("id")]
        if not all(isinstance(value, int | str) for value in identifiers):
            raise malformed(path, None, f"entry {number} of {section!r}: an id must be a number or a text")
        yield number, entry


def _object(frame: str, number: int, entry: Mapping[str, Any], kind: str) -> AnnotatedObject:
    if not isinstance(entry["bbox"], list) or len(entry["bbox"]) != 4:
        raise ValueError(f"bbox must be four numbers, not {entry['bbox']!r}")
    x, y, width, height = (finite(value, "a value of bbox") for value in entry["bbox"])
    attributes = entry.get("attributes") or {}
    return AnnotatedObject(
        id=object_id(frame, number),
        kind=kind,
        box=(x, y, x + width, y + height),
        occluded=bool(attributes.get("occluded", False)),
        truncated=bool(attributes.get("truncated", False)),
        track=f"{frame.partition('-')[0]}-track{attributes['track_id']}" if "track_id" in attributes else "",
        unusable="a crowd" if entry.get("iscrowd") else "",
    )
