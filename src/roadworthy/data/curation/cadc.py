"""CADC: drives in snow with cuboids around objects, projected into the pictures of one camera.

Layout below the root: `DATE/calib/00.yaml` (camera matrix and lens), `DATE/calib/extrinsics.yaml` (`T_LIDAR_CAM00`, the
pose of the camera in the lidar's frame), `DATE/DRIVE/3d_ann.json` (a list of frames with `cuboids`) and
`DATE/DRIVE/labeled/image_00/data/0000000000.png`. The annotations count the labeled images from 0.

A cuboid has `label`, `uuid` (the object over the frames of a drive), `position` (its centre in the lidar's frame, in
metres), `yaw` about the lidar's z axis and `dimensions`: x is its width, y its length and z its height, and the length
lies along the object's own x axis. Occlusion is not annotated: every object counts as not occluded. An object counts
as truncated where its box reaches beyond the image. The box is the hull of the projected cuboid and so larger than the
object, at times much too large: give a file of corrected boxes where boxes must be tight. A corrected box also
overrules that an object is unusable, and whether it is truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from roadworthy.core.errors import InputError
from roadworthy.core.validation import check_number, check_whole, parse_yaml
from roadworthy.data.curation.frames import AnnotatedObject, Frame, annotation_format, object_id
from roadworthy.data.curation.json_lists import json_list
from roadworthy.data.curation.projection import Camera, Projection, cuboid_corners, project_cuboid
from roadworthy.data.curation.reading import (
    BAD_ANNOTATION,
    find_image,
    finite,
    malformed,
    read_text,
    reason,
    require_folder,
    sorted_files,
)

ANNOTATIONS = "3d_ann.json"
CLASSES = {"car": ("Car",), "pedestrian": ("Pedestrian",)}
"""The two classes of the paper."""
OTHER_KINDS = (
    *("Truck", "Bus", "Bicycle", "Horse_and_Buggy", "Pedestrian_With_Object", "Animals", "Animal"),
    *("Garbage_Containers_on_Wheels", "Garbage_Container_on_Wheels", "Traffic_Guidance_Objects"),
)
"""What else is annotated, in both spellings that are in use; the paper leaves it out."""

BEHIND = "behind the camera"
OUTSIDE = "outside the image"
MOSTLY_OUTSIDE = "mostly outside the image"
NO_VOLUME = "its cuboid has no volume"
_NOWHERE = (0.0, 0.0, 0.0, 0.0)
_LAST_CAMERA = 7


@annotation_format("cadc", classes=CLASSES, drop=OTHER_KINDS, keep_hidden=("Pedestrian", "Bicycle"))
def read_cadc(
    root: Path,
    *,
    camera: int = 0,
    lens: Literal["rectified", "raw"] = "rectified",
    images: str = "labeled",
    visible: float = 0.5,
) -> Iterator[Frame]:
    """The annotated frames of all drives below `root`, by date, drive and number; one drive is in memory at a time.

    camera   which of the cameras 0 to 7; 0 looks ahead
    lens     `rectified` (default; the labeled images are) or `raw`: the images still have the distortion of the lens
    images   the folder of a drive that holds `image_00/data`, with files named by the number in the annotations
    visible  the share of the projected box that must lie in the image; an object with less, one outside the image and
             one behind the camera are unusable, with that reason

    The horizon follows from the pose of the camera if the lidar stands level on a flat road.
    """
    check_whole("the camera of CADC", camera, 0, _LAST_CAMERA)
    check_number("visible", visible, 0, 1)
    if lens not in ("rectified", "raw"):
        raise InputError(f"lens must be rectified or raw, not {lens!r}")
    root = require_folder(root, "give the folder of CADC with its folders of dates").resolve()
    annotation_files = [path for path in sorted_files(root, ANNOTATIONS) if path.name == ANNOTATIONS]
    if not annotation_files:
        raise InputError(f"there is no {ANNOTATIONS} below {root}: give the folder of CADC with its folders of dates")
    for path in annotation_files:
        calibrated = read_calibration(path.parent.parent / "calib", camera, lens)
        yield from _read_drive(path, calibrated, path.parent / images / f"image_{camera:02d}" / "data", visible)


def read_calibration(folder: Path, camera: int, lens: str) -> Camera:
    """The camera that the YAML files of a date's folder `calib` describe, with the lens where images are raw."""
    intrinsics_file, extrinsics_file = folder / f"{camera:02d}.yaml", folder / "extrinsics.yaml"
    intrinsics, extrinsics = _read_yaml(intrinsics_file), _read_yaml(extrinsics_file)
    try:
        matrix = _numbers(intrinsics["camera_matrix"]["data"], (3, 3))
        width, height = (int(finite(intrinsics[key], key)) for key in ("image_width", "image_height"))
        coefficients: tuple[float, ...] = ()
        if lens == "raw":
            if intrinsics["distortion_model"] != "plumb_bob":
                raise ValueError(f"distortion_model must be plumb_bob, not {intrinsics['distortion_model']!r}")
            coefficients = tuple(_numbers(intrinsics["distortion_coefficients"]["data"], (5,)).tolist())
        Camera(matrix, np.eye(4), width, height, coefficients)
    except BAD_ANNOTATION as error:
        raise malformed(intrinsics_file, None, reason(error)) from None
    try:
        pose = _numbers(extrinsics[f"T_LIDAR_CAM{camera:02d}"], (4, 4))
        return Camera(matrix, pose, width, height, coefficients)
    except BAD_ANNOTATION as error:
        raise malformed(extrinsics_file, None, reason(error)) from None


def _read_drive(path: Path, camera: Camera, image_folder: Path, visible: float) -> Iterator[Frame]:
    drive = f"{path.parent.parent.name}_{path.parent.name}"
    horizon = camera.horizon()
    for number, (line, annotation) in enumerate(json_list(path)):
        frame_id = f"{drive}_{number:010d}"
        try:
            cuboids = list(annotation["cuboids"])
        except BAD_ANNOTATION as error:
            raise malformed(path, line, f"frame {number}: {reason(error)}") from None
        objects = []
        for position, cuboid in enumerate(cuboids):
            try:
                objects.append(_read_cuboid(cuboid, object_id(frame_id, position), drive, camera, visible))
            except BAD_ANNOTATION as error:
                raise malformed(path, line, f"frame {number}, cuboid {position}: {reason(error)}") from None
        yield Frame(
            id=frame_id,
            image=find_image(image_folder, f"{number:010d}"),
            width=camera.width,
            height=camera.height,
            objects=tuple(objects),
            conditions={"drive": drive},
            horizon=horizon,
            sequence=drive,
        )


def _read_cuboid(cuboid: Any, name: str, drive: str, camera: Camera, visible: float) -> AnnotatedObject:
    """The object of a cuboid; where it has no usable box, with the reason and what is visible of its box."""
    kind, uuid = cuboid["label"], cuboid["uuid"]
    if not isinstance(kind, str) or not isinstance(uuid, str):
        raise ValueError("label and uuid must be texts")
    centre = [finite(cuboid["position"][axis], f"position {axis}") for axis in "xyz"]
    width, length, height = (finite(cuboid["dimensions"][axis], f"dimensions {axis}") for axis in "xyz")
    yaw = finite(cuboid["yaw"], "yaw")
    projection = project_cuboid(camera, cuboid_corners(centre, (length, width, height), yaw))
    unusable = NO_VOLUME if min(length, width, height) <= 0 else _why_unusable(projection, visible)
    box = None if unusable == NO_VOLUME else projection.box
    return AnnotatedObject(
        id=name,
        kind=kind,
        box=box or _NOWHERE,
        truncated=box is not None and projection.share < 1,
        track=f"{drive}_{uuid}",
        distance=projection.distance if projection.distance > 0 else None,
        unusable=unusable,
    )


def _why_unusable(projection: Projection, visible: float) -> str:
    """Why an object cannot be shown by a crop; empty where it can."""
    if not projection.ahead:
        return BEHIND
    if projection.box is None:
        return OUTSIDE
    return MOSTLY_OUTSIDE if projection.share < visible else ""


def _read_yaml(path: Path) -> Any:
    try:
        content = parse_yaml(read_text(path))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise malformed(path, line, f"this is not valid YAML ({error.problem})") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise malformed(path, None, "this is not valid YAML") from None
    if not isinstance(content, dict):
        raise malformed(path, None, "a mapping of names to values is expected")
    return content


def _numbers(values: Any, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers from a calibration file, as rows or in one list, in that shape."""
    try:
        numbers = np.array(values, dtype=np.float64)
    except OverflowError:
        raise ValueError("a number is too large") from None
    if numbers.size != np.prod(shape):
        raise ValueError(f"{np.prod(shape)} numbers are expected where there are {numbers.size}")
    return numbers.reshape(shape)
