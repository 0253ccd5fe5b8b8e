"""nuImages: pictures of six cameras with boxes, categories and attributes in a relational set of JSON tables.

Layout below the root: `v1.0-train/`, `v1.0-val/` (or `v1.0-mini/`) with the tables, and the pictures where the column
`filename` says, such as `samples/CAM_FRONT/....jpg`. What is read of the tables:

    sensor             token, channel, modality
    calibrated_sensor  token, sensor_token, rotation, camera_intrinsic
    log                token, logfile, location
    sample             token, log_token
    sample_data        token, sample_token, calibrated_sensor_token, filename, width, height, is_key_frame
    category           token, name
    attribute          token, name
    object_ann         token, sample_data_token, category_token, attribute_tokens, bbox

Only key frames are annotated, and only those of cameras are read. A kind is the name of the category, such as
`human.pedestrian.adult`; an attribute that is asked for makes a kind of its own, such as
`human.pedestrian.adult/pedestrian.sitting_lying_down`. Neither occlusion nor truncation is annotated: every object
counts as not occluded, and as truncated where its box reaches the edge of the image. There are no tracks, no distances
and no weather. The masks are passed over, so that memory grows with the number of objects and not with their outlines.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.validation import find_mode
from roadworthy.data.curation.cutouts import touches_edge
from roadworthy.data.curation.frames import PLAIN_SPLITS, AnnotatedObject, Box, Frame, annotation_format
from roadworthy.data.curation.json_lists import json_list
from roadworthy.data.curation.projection import Camera, rotation_of
from roadworthy.data.curation.reading import (
    BAD_ANNOTATION,
    finite,
    malformed,
    reason,
    require_folder,
)

SITTING = "pedestrian.sitting_lying_down"
_STANDING = ("adult", "child", "construction_worker", "police_officer")
CLASSES = {
    "car": ("vehicle.car", "vehicle.emergency.police"),
    "truck": ("vehicle.truck",),
    "pedestrian": tuple(f"human.pedestrian.{person}" for person in _STANDING),
    "bus": ("vehicle.bus.rigid", "vehicle.bus.bendy"),
    "bike": ("vehicle.bicycle", "vehicle.motorcycle"),
}
"""Those of the paper's seven classes that nuImages annotates: it has neither traffic signs nor traffic lights."""
CORNER_CASES = {
    "vehicle": ("vehicle.construction", "vehicle.trailer", "vehicle.emergency.ambulance"),
    "pedestrian": tuple(f"human.pedestrian.{person}/{SITTING}" for person in _STANDING),
}
"""Kinds of the paper's parent classes that its training data does not show; its authors chose pictures by hand."""
OUTSIDE_KINDS = {
    "animal": ("animal",),
    "barrier": ("movable_object.barrier",),
    "debris": ("movable_object.debris",),
    "bin": ("movable_object.pushable_pullable",),
    "cone": ("movable_object.trafficcone",),
}
"""Kinds outside the paper's classes; nuImages files garbage cans under objects to push or pull."""
OTHER_KINDS = (
    *("flat.driveable_surface", "human.pedestrian.personal_mobility", "human.pedestrian.stroller"),
    *("human.pedestrian.wheelchair", "static_object.bicycle_rack", "vehicle.ego"),
    *(f"human.pedestrian.{person}/{SITTING}" for person in ("personal_mobility", "stroller", "wheelchair")),
)
_DROPPED = (
    *(kind for kinds in (*CORNER_CASES.values(), *OUTSIDE_KINDS.values()) for kind in kinds),
    *OTHER_KINDS,
)
VERSIONS = {"v1.0-train": "train", "v1.0-val": "val", "v1.0-mini": "mini"}
"""The folders of tables with annotations, and the split that their frames are of."""
Row = Mapping[str, Any]


@annotation_format(
    "nuimages",
    classes=CLASSES,
    drop=_DROPPED,
    keep_hidden=(*CLASSES["pedestrian"], *CORNER_CASES["pedestrian"], "vehicle.bicycle"),
    splits={**PLAIN_SPLITS, "mini": "test"},
)
def read_nuimages(
    root: Path, *, version: str = "", channels: tuple[str, ...] = (), attributes: tuple[str, ...] = (SITTING,)
) -> Iterator[Frame]:
    """The annotated key frames below `root`, in the order of the table `sample_data`, of v1.0-train before v1.0-val.

    version     the folder of tables; by default v1.0-train and v1.0-val, as far as they are there, else v1.0-mini
    channels    the cameras to read, such as CAM_FRONT; by default all six
    attributes  the attributes that make a kind of their own

    The horizon follows from the pose of the camera on the vehicle if the vehicle stands level on a flat road.
    """
    require_folder(root, "give the folder of nuImages that holds v1.0-train")
    for folder in _folders(root, version):
        tables = _Tables.read(folder, channels, attributes)
        objects = _read_objects(folder, tables)
        for line, row in json_list(folder / "sample_data.json"):
            frame = _frame(root, folder, line, row, tables, objects)
            if frame is not None:
                yield frame
        if objects:
            raise malformed(
                folder / "object_ann.json",
                None,
                f"{len(objects)} pictures of annotated objects are not in sample_data.json, such as {min(objects)!r}",
            )


def _folders(root: Path, version: str) -> list[Path]:
    if version and version not in VERSIONS:
        raise UnknownName("version of nuImages with annotations", version, VERSIONS)
    if version:
        return [require_folder(root / version, f"it must hold the tables of nuImages {version}")]
    present = [root / name for name in VERSIONS if (root / name).is_dir()]
    if not present:
        raise InputError(f"{root} holds none of the folders {', '.join(VERSIONS)}: give the folder of nuImages")
    return [folder for folder in present if VERSIONS[folder.name] != "mini"] or present


@dataclass(frozen=True)
class _Tables:
    """The small tables of a version, by token: all but the key frames and the objects in them."""

    kinds: Mapping[str, str]
    kind_attributes: Mapping[str, str]
    channels: Mapping[str, str]
    rotations: Mapping[str, Any]
    intrinsics: Mapping[str, Any]
    logs: Mapping[str, tuple[str, str]]
    sample_logs: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path, channels: tuple[str, ...], attributes: tuple[str, ...]) -> _Tables:
        sensors = {row["token"]: row for row in _rows(folder / "sensor.json", ("token", "channel", "modality"))}
        cameras = {token: str(row["channel"]) for token, row in sensors.items() if row["modality"] == "camera"}
        for channel in channels:
            if channel not in cameras.values():
                raise UnknownName("camera of nuImages", channel, set(cameras.values()))
        columns = ("token", "sensor_token", "rotation", "camera_intrinsic")
        calibrated = {
            row["token"]: row
            for row in _rows(folder / "calibrated_sensor.json", columns)
            if row["sensor_token"] in cameras and (not channels or cameras[row["sensor_token"]] in channels)
        }
        names = {row["token"]: str(row["name"]) for row in _rows(folder / "attribute.json", ("token", "name"))}
        for attribute in attributes:
            if attribute not in names.values():
                raise UnknownName("attribute of nuImages", attribute, names.values())
        return cls(
            kinds={row["token"]: str(row["name"]) for row in _rows(folder / "category.json", ("token", "name"))},
            kind_attributes={token: name for token, name in names.items() if name in attributes},
            channels={token: cameras[row["sensor_token"]] for token, row in calibrated.items()},
            rotations={token: row["rotation"] for token, row in calibrated.items()},
            intrinsics={token: row["camera_intrinsic"] for token, row in calibrated.items()},
            logs={
                row["token"]: (str(row["logfile"]), str(row["location"]))
                for row in _rows(folder / "log.json", ("token", "logfile", "location"))
            },
            sample_logs={
                row["token"]: sys.intern(row["log_token"])
                for row in _rows(folder / "sample.json", ("token", "log_token"))
            },
        )

    def kind_of(self, row: Row) -> str:
        """The category of an object, with the attributes that make a kind of their own, by name."""
        category = _linked(self.kinds, "category", row["category_token"])
        held = sorted(self.kind_attributes[token] for token in row["attribute_tokens"] if token in self.kind_attributes)
        return sys.intern("/".join((category, *held)))


Linked = TypeVar("Linked")


def _linked(table: Mapping[str, Linked], name: str, token: str) -> Linked:
    """What a table holds under a token; where it has no such row, a `ValueError` that says so."""
    if token not in table:
        raise ValueError(f"the table {name} has no row with the token {token!r}")
    return table[token]


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """The rows of a table, each of which must have these columns, with a text for its token."""
    for line, row in json_list(path):
        _check_row(path, line, row, columns)
        yield row


def _check_row(path: Path, line: int, row: Any, columns: tuple[str, ...]) -> None:
    if not isinstance(row, dict):
        raise malformed(path, line, "a row of a table must be an object with columns")
    for column in columns:
        if column not in row:
            raise malformed(path, line, f"the row has no {column!r}")
        if column.endswith("token") and not isinstance(row[column], str):
            raise malformed(path, line, f"{column} must be a text, not {row[column]!r}")


_Annotated = tuple[str, str, Box]
_OBJECT_COLUMNS = ("token", "sample_data_token", "category_token", "attribute_tokens", "bbox")


def _read_objects(folder: Path, tables: _Tables) -> dict[str, list[_Annotated]]:
    """Token, kind and box of all objects, by the token of their picture."""
    path = folder / "object_ann.json"
    objects: dict[str, list[_Annotated]] = {}
    for line, row in json_list(path):
        _check_row(path, line, row, _OBJECT_COLUMNS)
        try:
            x0, y0, x1, y1 = (finite(value, "bbox") for value in row["bbox"])
            annotated = (row["token"], tables.kind_of(row), (x0, y0, x1, y1))
        except BAD_ANNOTATION as error:
            raise malformed(path, line, reason(error)) from None
        objects.setdefault(row["sample_data_token"], []).append(annotated)
    return objects


_PICTURE_COLUMNS = (
    *("token", "sample_token", "calibrated_sensor_token"),
    *("filename", "width", "height", "is_key_frame"),
)


def _frame(
    root: Path, folder: Path, line: int, row: Any, tables: _Tables, objects: dict[str, list[_Annotated]]
) -> Frame | None:
    """The frame of a row of `sample_data`, whose objects it takes away; None where it is no key frame of a camera."""
    path = folder / "sample_data.json"
    _check_row(path, line, row, _PICTURE_COLUMNS)
    annotated = objects.pop(row["token"], [])
    sensor = row["calibrated_sensor_token"]
    if not row["is_key_frame"] or sensor not in tables.channels:
        return None
    try:
        image = root / row["filename"]
        width, height = (int(finite(row[key], key)) for key in ("width", "height"))
        log = _linked(tables.sample_logs, "sample", row["sample_token"])
        logfile, location = _linked(tables.logs, "log", log)
        horizon = _horizon(tables, sensor, width, height)
        annotated_objects = tuple(_annotated_object(values, width, height) for values in annotated)
    except BAD_ANNOTATION as error:
        raise malformed(path, line, reason(error)) from None
    if not stat.S_ISREG(find_mode(image, "image")):
        raise malformed(path, line, f"there is no image {image}: put it there")
    return Frame(
        id=image.stem,
        image=image,
        width=width,
        height=height,
        objects=annotated_objects,
        conditions={"camera": tables.channels[sensor], "location": location},
        split=VERSIONS[folder.name],
        horizon=horizon,
        sequence=logfile,
    )


def _annotated_object(values: _Annotated, width: int, height: int) -> AnnotatedObject:
    token, kind, box = values
    return AnnotatedObject(id=token, kind=kind, box=box, truncated=touches_edge(box, width, height))


def _horizon(tables: _Tables, sensor: str, width: int, height: int) -> float | None:
    """The row of the horizon of a calibrated camera, whose images are rectified."""
    pose = np.eye(4)
    pose[:3, :3] = rotation_of([finite(value, "rotation") for value in tables.rotations[sensor]])
    matrix = np.array(tables.intrinsics[sensor], dtype=np.float64)
    return Camera(matrix, pose, width, height).horizon()
