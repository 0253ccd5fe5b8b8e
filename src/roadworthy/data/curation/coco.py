"""COCO detection: one JSON file per split with images, categories and annotations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from roadworthy.core.errors import InputError
from roadworthy.data.curation.frames import AnnotatedObject, Frame, annotation_format, object_id
from roadworthy.data.curation.json_lists import json_sections
from roadworthy.data.curation.reading import (
    BAD_ANNOTATION,
    finite,
    flag,
    malformed,
    names_and_values,
    reason,
    text,
    whole,
)
from roadworthy.data.table import natural_key

REQUIRED = {
    "categories": ("id", "name"),
    "images": ("id", "file_name", "width", "height"),
    "annotations": ("image_id", "category_id", "bbox"),
}
"""The keys that an entry of each section must have."""
_INSTANCES = re.compile(r"(?:instances_)?([A-Za-z]+)\d*\.json")


def coco_kinds(
    root: Path, *, annotations: Mapping[str, str] | None = None, images: Mapping[str, str] | None = None
) -> Sequence[str]:
    """The names of the categories of all files, in the order of their ids."""
    kinds: dict[int | str, str] = {}
    for path in _files(root, annotations).values():
        for section, _, entry in json_sections(path, REQUIRED):
            if section == "categories":
                kinds[entry["id"]] = entry["name"]
                for key in (key for key, name in kinds.items() if name == entry["name"] and key != entry["id"]):
                    raise InputError(
                        f"the categories {key} and {entry['id']} of {path} are both called {entry['name']!r}, so that "
                        "they would be one class: rename one of them"
                    )
    return [kinds[key] for key in sorted(kinds, key=lambda key: natural_key(str(key)))]


@annotation_format("coco", keep_hidden=("person", "pedestrian", "bicycle"), kinds=coco_kinds)
def read_coco(
    root: Path, *, annotations: Mapping[str, str] | None = None, images: Mapping[str, str] | None = None
) -> Iterator[Frame]:
    """The images of every split, with their boxes (`x y width height` in the file).

    The files are `annotations/instances_SPLIT.json` below `root`, where a year after the split's name plays no part
    (`instances_val2017.json` is the split `val`); `annotations` names other files by split. The images of a split lie
    in the folder that `images` names for it; by default in the first of `val2017`, `images/val2017`, `images` and the
    root that exists, and `file_name` continues from there. An object of a crowd (`iscrowd: 1`) is never a main object.
    COCO itself says nothing on occlusion; `attributes` with `occluded`, `truncated` and `track_id`, as some annotation
    tools write, are read. The error of a malformed entry names its line and its number in its list, counted from 0.
    """
    for split, path in _files(root, annotations).items():
        stem = path.stem.removeprefix("instances_")
        candidates = [root / stem, root / "images" / stem, root / "images", root]
        folder = next((candidate for candidate in candidates if candidate.is_dir()), root)
        if images is not None:
            if split not in images:
                raise InputError(f"`images` names no folder for the split {split!r} of {path.name}: add it")
            folder = root / images[split]
        yield from _frames(path, folder, split)


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


@dataclass(frozen=True, slots=True)
class _Annotation:
    """An annotation whose category may stand further down in the file: where it stands, and the object without kind."""

    line: int
    number: int
    category: int | str
    object: AnnotatedObject


def _frames(path: Path, folder: Path, split: str) -> Iterator[Frame]:
    """The frames of a file, whose sections may be in any order; of an annotation only what is needed is kept."""
    kinds: dict[int | str, str] = {}
    pictures: dict[int | str, Frame] = {}
    annotations: dict[int | str, list[_Annotation]] = {}
    counts = Counter[str]()
    for section, line, entry in json_sections(path, REQUIRED):
        number = counts[section]
        counts[section] += 1
        try:
            _check_entry(section, entry)
            if section == "categories":
                _add(kinds, entry["id"], text(entry["name"], "name"))
            elif section == "images":
                _add(pictures, entry["id"], _picture(entry, folder, split))
            else:
                of_image = annotations.setdefault(entry["image_id"], [])
                annotated = _object(split, f"{split}-{entry['image_id']}", len(of_image), entry)
                of_image.append(_Annotation(line, number, entry["category_id"], annotated))
        except BAD_ANNOTATION as error:
            raise malformed(path, line, f"entry {number} of {section!r}: {reason(error)}") from None
    for image, of_image in annotations.items():
        for annotation in of_image:
            kind, where = annotation.category, f"entry {annotation.number} of 'annotations'"
            if image not in pictures:
                raise malformed(path, annotation.line, f"{where}: there is no image {image!r}")
            if kind not in kinds:
                raise malformed(path, annotation.line, f"{where}: there is no category {kind!r}")
    for image, picture in pictures.items():
        of_image = annotations.pop(image, [])
        objects = tuple(replace(annotation.object, kind=kinds[annotation.category]) for annotation in of_image)
        yield replace(picture, objects=objects)


def _check_entry(section: str, entry: Any) -> None:
    """Refuse an entry that is not an object with the keys that the format asks for."""
    names_and_values(entry, "an entry")
    for key in REQUIRED[section]:
        if key not in entry:
            raise KeyError(key)
        if key.endswith("id") and (isinstance(entry[key], bool) or not isinstance(entry[key], int | str)):
            raise ValueError(f"{key} must be a number or a text, not {entry[key]!r}")


Entry = TypeVar("Entry")


def _add(entries: dict[int | str, Entry], key: int | str, entry: Entry) -> None:
    if key in entries:
        raise ValueError(f"the id {key!r} is used twice")
    entries[key] = entry


def _picture(entry: Mapping[str, Any], folder: Path, split: str) -> Frame:
    """The frame of an entry of `images`, without its objects."""
    return Frame(
        id=f"{split}-{entry['id']}",
        image=folder / text(entry["file_name"], "file_name"),
        width=whole(entry["width"], "width"),
        height=whole(entry["height"], "height"),
        objects=(),
        split=split,
    )


def _object(split: str, frame: str, number: int, entry: Mapping[str, Any]) -> AnnotatedObject:
    """The object of an entry of `annotations`, without its kind."""
    if not isinstance(entry["bbox"], list) or len(entry["bbox"]) != 4:
        raise ValueError(f"bbox must be four numbers, not {entry['bbox']!r}")
    x, y, width, height = (finite(value, "a value of bbox") for value in entry["bbox"])
    if width < 0 or height < 0:
        raise ValueError(f"bbox {entry['bbox']!r} has a negative width or height: COCO writes x, y, width, height")
    attributes = names_and_values(entry.get("attributes") or {}, "attributes")
    track = attributes.get("track_id")
    if not isinstance(track, int | str | None):
        raise ValueError(f"track_id must be a number or a text, not {track!r}")
    return AnnotatedObject(
        id=object_id(frame, number),
        kind="",
        box=(x, y, x + width, y + height),
        occluded=flag(attributes.get("occluded", False), "occluded"),
        truncated=flag(attributes.get("truncated", False), "truncated"),
        track="" if track in (None, "") else f"{split}-track{track}",
        unusable="a crowd" if flag(entry.get("iscrowd", 0), "iscrowd") else "",
    )
