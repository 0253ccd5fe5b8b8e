"""Readers of CADC, nuImages and CURE-TSD, and the projection of cuboids into a camera's pictures."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial.transform import Rotation

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.data.base import Opening
from roadworthy.data.curation import CurationSettings, cadc, curate, cure_tsd, nuimages
from roadworthy.data.curation.frames import READERS, AnnotatedObject, Frame, read_frames
from roadworthy.data.curation.projection import Camera, cuboid_corners, project_cuboid, rotation_of
from roadworthy.data.images import decode
from roadworthy.data.manifest import ManifestDataset

AHEAD = np.array([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1.0]])
"""The pose of a camera at the origin that looks along x, where z is up."""
MATRIX = np.array([[100, 0, 99.5], [0, 100, 49.5], [0, 0, 1.0]])
"""Focal length 100 pixels; the axis meets the middle of a picture of 200 x 100 pixels."""
LENS = (-0.25, 0.08, 0.001, -0.002, -0.01)


def hand_made_camera(lens: tuple[float, ...] = ()) -> Camera:
    return Camera(MATRIX, AHEAD, 200, 100, lens)


# The projection


@pytest.mark.parametrize(
    ("size", "yaw", "expected"),
    [
        ((2, 4, 2), 0.0, (100 - 200 / 9, 50 - 100 / 9, 100 + 200 / 9, 50 + 100 / 9)),  # the near face stands at 9 m
        ((2, 4, 2), math.pi / 2, (100 - 100 / 8, 50 - 100 / 8, 100 + 100 / 8, 50 + 100 / 8)),  # now at 8 m
    ],
)
def test_the_hull_of_a_cuboid_follows_from_its_near_face(
    size: Sequence[float], yaw: float, expected: Sequence[float]
) -> None:
    projection = project_cuboid(hand_made_camera(), cuboid_corners((10, 0, 0), size, yaw))
    assert projection.box == pytest.approx(expected)
    assert (projection.distance, projection.share, projection.ahead) == (pytest.approx(10), pytest.approx(1), True)


def test_left_in_the_world_is_left_in_the_picture_and_up_is_up() -> None:
    box = project_cuboid(hand_made_camera(), cuboid_corners((10, 5, 3), (1e-6, 2, 2), 0)).box
    assert box == pytest.approx((100 - 60, 50 - 40, 100 - 40, 50 - 20), abs=1e-4)


def test_a_cuboid_beyond_the_edge_is_cut_and_its_visible_share_is_known() -> None:
    projection = project_cuboid(hand_made_camera(), cuboid_corners((10, -10, 0), (1e-6, 4, 2), 0))
    assert projection.box == pytest.approx((180, 40, 200, 60), abs=1e-4)
    assert projection.share == pytest.approx(0.5, abs=1e-4)


def test_a_cuboid_behind_the_camera_has_no_box_and_one_around_it_fills_the_picture() -> None:
    behind = project_cuboid(hand_made_camera(), cuboid_corners((-10, 0, 0), (4, 2, 2), 0))
    assert (behind.box, behind.ahead, behind.distance) == (None, False, pytest.approx(-10))
    around = project_cuboid(hand_made_camera(), cuboid_corners((0, 0, 0), (4, 2, 2), 0))
    assert around.box == (0, 0, 200, 100)
    assert around.share < 0.02
    beside = project_cuboid(hand_made_camera(), cuboid_corners((1, 50, 0), (1, 1, 1), 0))
    assert (beside.box, beside.ahead) == (None, True)


def test_the_lens_moves_points_as_opencv_says() -> None:
    points = np.random.default_rng(0).uniform((-1, -0.8, 1), (1, 0.8, 2), (50, 3))
    camera = hand_made_camera(LENS)
    expected, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), MATRIX, np.array(LENS))
    assert camera.pixels(points) == pytest.approx(expected[:, 0] + 0.5, abs=1e-9)


def test_a_skewed_camera_matrix_is_used_in_full() -> None:
    camera = Camera(np.array([[100, 5, 0], [0, 90, 0], [0, 0, 1.0]]), np.eye(4), 10, 10)
    assert camera.pixels([[1, 2, 1]]).tolist() == [[110.5, 180.5]]


def test_the_lens_never_brings_a_far_point_back_into_the_picture() -> None:
    camera = hand_made_camera((-0.25, 0, 0, 0, 0))
    outermost = 100 * math.sqrt(4 / 3) * (1 - 0.25 * 4 / 3)  # r (1 - 0.25 r^2) is largest at r^2 = 4 / 3
    assert camera.pixels([[1000.0, 0, 1]])[0, 0] == pytest.approx(100 + outermost)


def test_an_edge_that_the_lens_bends_outwards_widens_the_box() -> None:
    camera = hand_made_camera((-0.2, 0, 0, 0, 0))
    box = project_cuboid(camera, cuboid_corners((10, 0, 0), (1e-6, 16, 8), 0)).box
    assert box is not None
    middle, corner = 40 * (1 - 0.2 * 0.4**2), 40 * (1 - 0.2 * (0.8**2 + 0.4**2))
    assert middle > corner
    assert box[1::2] == pytest.approx((50 - middle, 50 + middle), abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(
    yaw=st.floats(-math.pi, math.pi),
    turn=st.floats(-math.pi, math.pi),
    centre=st.tuples(st.floats(6, 30), st.floats(-8, 8), st.floats(-2, 2)),
    raw=st.booleans(),
)
def test_moving_camera_and_cuboid_together_changes_nothing_and_the_box_holds_the_cuboid(
    yaw: float, turn: float, centre: tuple[float, float, float], raw: bool
) -> None:
    camera = hand_made_camera(LENS if raw else ())
    motion = np.eye(4)
    motion[:3, :3] = Rotation.from_euler("z", turn).as_matrix()
    motion[:3, 3] = (3, -7, 2)
    corners = cuboid_corners(centre, (4, 2, 1.5), yaw)
    moved_centre = motion[:3, :3] @ centre + motion[:3, 3]
    moved_camera = Camera(MATRIX, motion @ AHEAD, 200, 100, camera.lens)
    projection = project_cuboid(camera, corners)
    moved = project_cuboid(moved_camera, cuboid_corners(moved_centre, (4, 2, 1.5), yaw + turn))
    assert moved.share == pytest.approx(projection.share, abs=1e-6)
    assert (moved.box is None) == (projection.box is None)
    if projection.box is not None:
        assert moved.box == pytest.approx(projection.box, abs=1e-6)
        pixels = np.clip(camera.pixels(camera.seen(corners)), 0, (200, 100))
        assert np.all(pixels >= np.array(projection.box[:2]) - 1e-9)
        assert np.all(pixels <= np.array(projection.box[2:]) + 1e-9)


@pytest.mark.parametrize("degrees", [-10.0, 0.0, 5.0])
def test_the_horizon_of_a_camera_that_looks_down_lies_higher(degrees: float) -> None:
    pose = np.eye(4)
    pose[:3, :3] = AHEAD[:3, :3] @ Rotation.from_euler("x", -degrees, degrees=True).as_matrix()
    expected = 50 - 100 * math.tan(math.radians(degrees))
    assert Camera(MATRIX, pose, 200, 100).horizon() == pytest.approx(expected)


def test_a_camera_that_looks_straight_down_has_no_horizon() -> None:
    pose = np.diag([1.0, -1.0, -1.0, 1.0])
    assert Camera(MATRIX, pose, 200, 100).horizon() is None


def test_quaternions_are_those_of_scipy() -> None:
    quaternion = np.array([0.3, -0.5, 0.7, 0.2])
    expected = Rotation.from_quat(quaternion, scalar_first=True).as_matrix()
    assert rotation_of(quaternion) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("matrix", "pose", "lens", "message"),
    [
        (np.eye(2), np.eye(4), (), "the camera matrix must be 3 rows of 3 finite numbers"),
        (MATRIX, np.eye(4) * 2, (), "must be a rotation"),
        (-MATRIX, np.eye(4), (), "positive focal lengths"),
        (MATRIX, np.eye(4), (1.0, 2.0), "the five numbers k1, k2, p1, p2, k3"),
    ],
)
def test_a_camera_refuses_what_is_no_calibration(
    matrix: NDArray[Any], pose: NDArray[Any], lens: tuple[float, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Camera(matrix, pose, 200, 100, lens)


# CADC


def cuboid(label: str = "Car", uuid: str = "a", **changes: Any) -> dict[str, Any]:
    position, dimensions = {"x": 10.0, "y": 0.0, "z": 0.0}, {"x": 4.0, "y": 2.0, "z": 2.0}
    return {"label": label, "uuid": uuid, "position": position, "dimensions": dimensions, "yaw": 0.0, **changes}


def write_cadc(root: Path, frames: Any, date: str = "2018_03_06", drive: str = "0001", images: int = 2) -> Path:
    """A date with one drive, whose camera is the one made by hand; gives the file of annotations."""
    calibration, folder = root / date / "calib", root / date / drive
    picture_folder = folder / "labeled" / "image_00" / "data"
    for made in (calibration, picture_folder):
        made.mkdir(parents=True, exist_ok=True)
    intrinsics = {
        "image_width": 200,
        "image_height": 100,
        "camera_matrix": {"rows": 3, "cols": 3, "data": MATRIX.ravel().tolist()},
        "distortion_model": "plumb_bob",
        "distortion_coefficients": {"rows": 1, "cols": 5, "data": list(LENS)},
    }
    (calibration / "00.yaml").write_text(yaml.safe_dump(intrinsics))
    (calibration / "extrinsics.yaml").write_text(yaml.safe_dump({"T_LIDAR_CAM00": AHEAD.tolist()}))
    for number in range(images):
        Image.new("RGB", (200, 100)).save(picture_folder / f"{number:010d}.png")
    path = folder / "3d_ann.json"
    path.write_text(frames if isinstance(frames, str) else json.dumps(frames, indent=1))
    return path


def read(name: str, root: Path, **options: Any) -> list[Frame]:
    return list(read_frames(name, root, options))


def only_object(frames: Sequence[Frame]) -> AnnotatedObject:
    ((annotated,),) = (frame.objects for frame in frames)
    return annotated


def test_cadc_projects_cuboids_and_keeps_their_tracks(tmp_path: Path) -> None:
    write_cadc(tmp_path, [{"cuboids": [cuboid()]}, {"cuboids": []}])
    write_cadc(tmp_path, [{"cuboids": [cuboid("Pedestrian")]}], drive="0002", images=1)
    first, second, third = read("cadc", tmp_path)
    assert [frame.id[-15:] for frame in (first, second, third)] == [
        "0001_0000000000",
        "0001_0000000001",
        "0002_0000000000",
    ]
    assert (first.width, first.height, first.horizon) == (200, 100, pytest.approx(50))
    assert first.sequence == "2018_03_06_0001"
    car = first.objects[0]
    assert car.box == pytest.approx((100 - 200 / 9, 50 - 100 / 9, 100 + 200 / 9, 50 + 100 / 9))
    assert (car.id, car.kind, car.track) == ("2018_03_06_0001_0000000000_00", "Car", "2018_03_06_0001_a")
    assert (car.distance, car.truncated, car.occluded, car.unusable) == (pytest.approx(10), False, False, "")
    assert third.objects[0].track == "2018_03_06_0002_a"
    assert read("cadc", tmp_path / "2018_03_06") == [first, second, third]


def test_the_length_of_a_cadc_cuboid_is_its_dimension_y(tmp_path: Path) -> None:
    long = cuboid(dimensions={"x": 2.0, "y": 8.0, "z": 2.0})
    write_cadc(tmp_path, [{"cuboids": [long]}])
    assert only_object(read("cadc", tmp_path)).box == pytest.approx(
        (100 - 100 / 6, 50 - 100 / 6, 100 + 100 / 6, 50 + 100 / 6)
    )


@pytest.mark.parametrize(
    ("changes", "reason", "truncated"),
    [
        ({"position": {"x": -10, "y": 0, "z": 0}}, cadc.BEHIND, False),
        ({"position": {"x": 10, "y": 60, "z": 0}}, cadc.OUTSIDE, False),
        ({"position": {"x": 10, "y": 11, "z": 0}}, cadc.MOSTLY_OUTSIDE, True),
        ({"position": {"x": 10, "y": 8, "z": 0}}, "", True),
        ({"dimensions": {"x": 0, "y": 1, "z": 1}}, cadc.NO_VOLUME, False),
    ],
)
def test_cadc_objects_that_cannot_be_used_keep_the_reason(
    tmp_path: Path, changes: dict[str, Any], reason: str, truncated: bool
) -> None:
    write_cadc(tmp_path, [{"cuboids": [cuboid(**changes)]}])
    annotated = only_object(read("cadc", tmp_path))
    assert (annotated.unusable, annotated.truncated) == (reason, truncated)
    assert (annotated.area > 0) == (reason in ("", cadc.MOSTLY_OUTSIDE))
    assert (annotated.distance is None) == (reason == cadc.BEHIND)


@pytest.mark.parametrize(
    "changes",
    [
        {"position": {"x": -10, "y": 0, "z": 0}},
        {"position": {"x": 10, "y": 60, "z": 0}},
        {"position": {"x": 10, "y": 11, "z": 0}},
        {"position": {"x": 10, "y": 8, "z": 0}},
        {"dimensions": {"x": 0, "y": 1, "z": 1}},
    ],
)
def test_boxes_of_cadc_that_a_person_drew_are_used_wherever_the_cuboid_was(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    write_cadc(tmp_path / "cadc", [{"cuboids": [cuboid(**changes)]}], images=1)
    (tmp_path / "corrected.csv").write_text("id,x0,y0,x1,y1\n2018_03_06_0001_0000000000_00,20,30,80,70\n")
    plain = CurationSettings(format="cadc", root=str(tmp_path / "cadc"))
    assert len(curate(plain, None, dry_run=True).selection.dropped) == 1
    corrected = plain.model_copy(update={"corrected": str(tmp_path / "corrected.csv")})
    (crop,) = curate(corrected, None, dry_run=True).selection.crops
    assert (crop.box, crop.object.truncated) == ((20, 30, 80, 70), False)


def test_the_distance_of_an_object_whose_centre_is_behind_the_camera_is_unknown(tmp_path: Path) -> None:
    write_cadc(tmp_path, [{"cuboids": [cuboid(position={"x": -0.5, "y": 0, "z": 0})]}])
    annotated = only_object(read("cadc", tmp_path))
    assert annotated.area > 0
    assert annotated.distance is None


def test_raw_images_of_cadc_are_projected_through_the_lens(tmp_path: Path) -> None:
    write_cadc(tmp_path, [{"cuboids": [cuboid(position={"x": 5, "y": 2, "z": 0})]}])
    rectified, raw = (only_object(read("cadc", tmp_path, lens=lens)).box for lens in ("rectified", "raw"))
    corners = cuboid_corners((5, 2, 0), (2, 4, 2), 0)
    assert raw == project_cuboid(hand_made_camera(LENS), corners).box
    assert rectified == project_cuboid(hand_made_camera(), corners).box != raw


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ('[\n {"cuboids": []},\n {"cuboids": [}\n]', r"3d_ann.json, line 3: this is not valid JSON"),
        ('[\n {"cuboids": []},\n {"cuboid": []}\n]', r"line 3: frame 1: there is no 'cuboids'"),
        ([{"cuboids": [cuboid(), cuboid(yaw="left")]}], r"line 2: frame 0, cuboid 1: yaw must be a number, not 'left'"),
        ([{"cuboids": [{"label": "Car"}]}], r"line 2: frame 0, cuboid 0: there is no 'uuid'"),
        ([{"cuboids": [cuboid(position=[1, 2, 3])]}], r"cuboid 0: the annotation is not in the form"),
        ([{"cuboids": [cuboid(label=3)]}], r"label and uuid must be texts"),
        ([{"cuboids": []}] * 3, r"there is no image .*image_00/data/0000000002 "),
        ("{}", r"line 1: a list in . . is expected here"),
    ],
)
def test_malformed_annotations_of_cadc_are_named_with_their_line(tmp_path: Path, frames: Any, message: str) -> None:
    write_cadc(tmp_path, frames)
    with pytest.raises(InputError, match=message):
        read("cadc", tmp_path)


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "options", "message"),
    [
        ("00.yaml", "image_width: 200", "image_width: wide", {}, "00.yaml: image_width must be a number, not 'wide'"),
        ("00.yaml", "camera_matrix:", "matrix:", {}, "00.yaml: there is no 'camera_matrix'"),
        ("00.yaml", "  - 99.5\n", "", {}, "00.yaml: 9 numbers are expected where there are 8"),
        ("00.yaml", "plumb_bob", "fisheye", {"lens": "raw"}, "distortion_model must be plumb_bob, not 'fisheye'"),
        ("extrinsics.yaml", "CAM00", "CAM01", {}, "extrinsics.yaml: there is no 'T_LIDAR_CAM00'"),
        (
            "extrinsics.yaml",
            "T_LIDAR_CAM00:",
            "T_LIDAR_CAM00: [",
            {},
            "extrinsics.yaml, line 2: this is not valid YAML",
        ),
    ],
)
def test_malformed_calibration_of_cadc_is_named(
    tmp_path: Path, file: str, old: str, new: str, options: dict[str, Any], message: str
) -> None:
    path = write_cadc(tmp_path, [{"cuboids": []}])
    change(path.parent.parent / "calib" / file, old, new)
    with pytest.raises(InputError, match=message):
        read("cadc", tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"camera": 8}, "whole number from 0 to 7"),
        ({"visible": 1.5}, "visible must be a number from 0 to 1"),
        ({"lens": "wide"}, "cadc option lens cannot be 'wide'"),
        ({"lense": "raw"}, "did you mean 'lens'"),
    ],
)
def test_wrong_options_of_cadc_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    write_cadc(tmp_path, [])
    with pytest.raises(InputError, match=message):
        read("cadc", tmp_path, **options)


def test_a_folder_without_annotations_of_cadc_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no 3d_ann\.json below"):
        read("cadc", tmp_path)


# nuImages

ROTATION = Rotation.from_matrix(AHEAD[:3, :3]).as_quat(scalar_first=True).tolist()


def nuimages_tables() -> dict[str, list[dict[str, Any]]]:
    """Two annotated pictures, of the cameras ahead and behind, one picture between key frames, one lidar scan."""
    picture = {"sample_token": "s1", "width": 200, "height": 100, "is_key_frame": True}
    between = {**picture, "is_key_frame": False}
    return {
        "sensor": [
            {"token": "front", "channel": "CAM_FRONT", "modality": "camera"},
            {"token": "back", "channel": "CAM_BACK", "modality": "camera"},
            {"token": "lidar", "channel": "LIDAR_TOP", "modality": "lidar"},
        ],
        "calibrated_sensor": [
            {"token": f"c_{name}", "sensor_token": name, "rotation": ROTATION, "camera_intrinsic": intrinsic}
            for name, intrinsic in (("front", MATRIX.tolist()), ("back", MATRIX.tolist()), ("lidar", []))
        ],
        "log": [{"token": "l1", "logfile": "drive1", "location": "singapore-onenorth"}],
        "sample": [{"token": "s1", "log_token": "l1"}],
        "sample_data": [
            {"token": "p1", "calibrated_sensor_token": "c_front", "filename": "samples/CAM_FRONT/a.jpg", **picture},
            {"token": "p2", "calibrated_sensor_token": "c_back", "filename": "samples/CAM_BACK/b.jpg", **picture},
            {**between, "token": "p3", "calibrated_sensor_token": "c_front", "filename": "x.jpg"},
            {**picture, "token": "p4", "calibrated_sensor_token": "c_lidar", "filename": "x.bin", "width": None},
        ],
        "category": [
            {"token": "k1", "name": "human.pedestrian.adult"},
            {"token": "k2", "name": "movable_object.trafficcone"},
        ],
        "attribute": [
            {"token": "a1", "name": "pedestrian.sitting_lying_down"},
            {"token": "a2", "name": "pedestrian.standing"},
        ],
        "object_ann": [
            annotated("o1", "p1", "k1", ["a2"], [10, 20, 60, 90]),
            annotated("o2", "p2", "k2", [], [0, 20, 40, 60]),
            annotated("o3", "p1", "k1", ["a1"], [100, 20, 140, 100]),
        ],
    }


def annotated(token: str, picture: str, category: str, attributes: list[str], box: Any) -> dict[str, Any]:
    mask = {"size": [100, 200], "counts": "x"}
    tokens = {"sample_data_token": picture, "category_token": category, "attribute_tokens": attributes}
    return {"token": token, **tokens, "bbox": box, "mask": mask}


def write_nuimages(root: Path, tables: dict[str, list[dict[str, Any]]], version: str = "v1.0-train") -> None:
    folder = root / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]")
    for name in ("samples/CAM_FRONT/a.jpg", "samples/CAM_BACK/b.jpg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (200, 100)).save(root / name)


def test_nuimages_gives_key_frames_of_cameras_with_kinds_by_attribute(tmp_path: Path) -> None:
    write_nuimages(tmp_path, nuimages_tables())
    front, back = read("nuimages", tmp_path)
    assert (front.id, front.split, front.sequence, front.horizon) == ("a", "train", "drive1", pytest.approx(50))
    assert dict(front.conditions) == {"camera": "CAM_FRONT", "location": "singapore-onenorth"}
    assert front.image == tmp_path / "samples/CAM_FRONT/a.jpg"
    standing, sitting = front.objects
    assert (standing.id, standing.kind, standing.box) == ("o1", "human.pedestrian.adult", (10, 20, 60, 90))
    assert sitting.kind == "human.pedestrian.adult/pedestrian.sitting_lying_down"
    assert (standing.truncated, sitting.truncated, back.objects[0].truncated) == (False, True, True)
    assert not any(thing.occluded for frame in (front, back) for thing in frame.objects)


@pytest.mark.parametrize(
    ("box", "truncated"),
    [
        ([1, 1, 199, 99], False),
        *(([0, 1, 199, 99], True), ([1, 0, 199, 99], True), ([1, 1, 200, 99], True), ([1, 1, 199, 100], True)),
    ],
)
def test_objects_of_nuimages_at_an_edge_count_as_truncated(tmp_path: Path, box: list[int], truncated: bool) -> None:
    tables = nuimages_tables()
    tables["object_ann"][0]["bbox"] = box
    write_nuimages(tmp_path, tables)
    assert read("nuimages", tmp_path)[0].objects[0].truncated == truncated


def test_nuimages_reads_the_chosen_cameras_attributes_and_versions(tmp_path: Path) -> None:
    write_nuimages(tmp_path, nuimages_tables())
    write_nuimages(tmp_path, nuimages_tables(), "v1.0-val")
    write_nuimages(tmp_path, nuimages_tables(), "v1.0-mini")
    assert [frame.split for frame in read("nuimages", tmp_path)] == ["train", "train", "val", "val"]
    (frame,) = read("nuimages", tmp_path, version="v1.0-mini", channels=["CAM_FRONT"], attributes=[])
    assert [thing.kind for thing in frame.objects] == ["human.pedestrian.adult"] * 2
    assert frame.split == "mini"


def test_every_category_of_nuimages_is_mapped_or_dropped_on_purpose() -> None:
    form = READERS.get("nuimages")
    mapped = [kind for kinds in (form.classes or {}).values() for kind in kinds]
    people = "adult child construction_worker personal_mobility police_officer stroller wheelchair"
    vehicles = "bicycle bus.bendy bus.rigid car construction ego emergency.ambulance emergency.police motorcycle"
    categories = (
        *(f"human.pedestrian.{name}" for name in people.split()),
        *(f"vehicle.{name}" for name in (*vehicles.split(), "trailer", "truck")),
        *(f"movable_object.{name}" for name in ("barrier", "debris", "pushable_pullable", "trafficcone")),
        *("animal", "flat.driveable_surface", "static_object.bicycle_rack"),
    )
    assert len(categories) == 25
    assert not set(categories) - {*mapped, *form.drop}
    assert not set(mapped) & set(form.drop)
    assert len({*mapped, *form.drop}) == len(mapped) + len(form.drop)


@pytest.mark.parametrize(
    ("table", "row", "changes", "message"),
    [
        ("object_ann", 1, {"bbox": [1, 2, 3]}, r"object_ann.json, line 3: not enough values to unpack"),
        ("object_ann", 1, {"bbox": [1, 2, 3, "x"]}, r"object_ann.json, line 3: bbox must be a number, not 'x'"),
        ("object_ann", 1, {"category_token": "k9"}, r"line 3: the table category has no row with the token 'k9'"),
        ("object_ann", 1, {"token": 3}, r"line 3: token must be a text, not 3"),
        ("object_ann", 1, {"sample_data_token": "p9"}, r"object_ann.json: 1 pictures .* such as 'p9'"),
        ("object_ann", 0, {"bbox": [60, 20, 10, 90]}, r"box 60 20 10 90 of object 'o1' ends before it begins"),
        ("sample_data", 1, {"sample_token": "s9"}, r"sample_data.json, line 3: the table sample has no row"),
        ("sample_data", 1, {"filename": "samples/gone.jpg"}, r"line 3: there is no image .*samples/gone.jpg"),
        ("calibrated_sensor", 0, {"rotation": [0, 0, 0, 0]}, r"a quaternion must be four finite numbers"),
        (
            "sensor",
            0,
            {"channel": None, "modality": "camera", "token": None},
            r"sensor.json, line 2: token must be a text",
        ),
    ],
)
def test_malformed_tables_of_nuimages_are_named_with_their_line(
    tmp_path: Path, table: str, row: int, changes: dict[str, Any], message: str
) -> None:
    tables = nuimages_tables()
    tables[table][row].update(changes)
    write_nuimages(tmp_path, tables)
    with pytest.raises(InputError, match=message):
        read("nuimages", tmp_path)


def test_missing_columns_tables_and_versions_of_nuimages_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds none of the folders v1\.0-train"):
        read("nuimages", tmp_path)
    tables = nuimages_tables()
    del tables["object_ann"][2]["attribute_tokens"]
    write_nuimages(tmp_path, tables)
    with pytest.raises(InputError, match="line 4: the row has no 'attribute_tokens'"):
        read("nuimages", tmp_path)
    (tmp_path / "v1.0-train" / "log.json").unlink()
    with pytest.raises(InputError, match=r"log\.json"):
        read("nuimages", tmp_path)
    for options in ({"version": "v1.0-test"}, {"channels": ["CAM_FORNT"]}, {"attributes": ["sitting"]}):
        with pytest.raises(UnknownName):
            read("nuimages", tmp_path, **options)


# CURE-TSD


def write_video(path: Path, frames: int = 6) -> None:
    """A video of 64 x 48 pixels whose picture number n is red 40 n, counted from 0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 10, (64, 48))
    assert writer.isOpened()
    for number in range(frames):
        writer.write(np.full((48, 64, 3), (0, 0, 40 * number), dtype=np.uint8))
    writer.release()


def sign_line(frame: int, x: int, sign: int = 6, y: int = 10, size: int = 8) -> str:
    corners = (x, y, x + size, y, x, y + size, x + size, y + size)
    return "_".join((f"{frame:03d}", f"{sign:02d}", *map(str, corners)))


def write_cure_tsd(root: Path, lines: Sequence[str], videos: Sequence[str] = ("01_04_00_00_00",)) -> Path:
    for video in videos:
        write_video(root / "data" / f"{video}.mp4")
    path = root / "labels" / "01_04.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join((cure_tsd.HEADER, *lines)) + "\n")
    return path


def picture_of(frame: Frame) -> NDArray[np.uint8]:
    return decode(frame.image) if isinstance(frame.image, Path) else frame.image()


def test_cure_tsd_gives_the_annotated_frames_of_a_video(tmp_path: Path) -> None:
    write_cure_tsd(tmp_path, [sign_line(2, 10), sign_line(5, 12), sign_line(5, 56, sign=14)])
    first, second = read("cure_tsd", tmp_path)
    assert (first.id, first.width, first.height, first.sequence) == ("01_04_00_00_00_002", 64, 48, "01_04")
    assert dict(first.conditions) == {"sequence": "real", "challenge": "none", "level": "0"}
    assert first.split == "test"
    stop, parking = second.objects
    assert (stop.kind, parking.kind, stop.box) == ("stop", "parking", (12, 10, 20, 18))
    assert (stop.id, parking.id) == ("01_04_00_00_00_005_00", "01_04_00_00_00_005_01")
    assert (stop.truncated, parking.truncated) == (False, True)
    assert stop.track == first.objects[0].track != parking.track


def test_pictures_of_a_video_are_decoded_in_any_order_and_by_another_process(tmp_path: Path) -> None:
    write_cure_tsd(tmp_path, [sign_line(frame, 10) for frame in range(1, 7)])
    frames = read("cure_tsd", tmp_path)
    for position in (0, 1, 4, 4, 2, 5, 0):
        picture = picture_of(pickle.loads(pickle.dumps(frames[position])))
        assert (picture.shape, picture.dtype) == ((48, 64, 3), np.uint8)
        assert np.abs(picture.mean(axis=(0, 1)) - (40 * position, 0, 0)).max() < 6
        picture[:] = 7  # the next one is not changed by it


def test_all_challenges_of_a_sequence_share_tracks_and_are_one_sequence(tmp_path: Path) -> None:
    videos = ("01_04_01_09_03", "01_04_00_00_00", "02_01_00_00_00")
    write_cure_tsd(tmp_path, [sign_line(1, 10)], videos)
    plain, rain = read("cure_tsd", tmp_path, challenge="all")
    assert (plain.conditions["challenge"], rain.conditions["challenge"], rain.conditions["level"]) == (
        "none",
        "rain",
        "3",
    )
    assert plain.objects[0].track == rain.objects[0].track
    assert plain.objects[0].id != rain.objects[0].id
    assert plain.sequence == rain.sequence
    assert read("cure_tsd", tmp_path, challenge=9, level=3) == [rain]
    with pytest.raises(InputError, match="none of the videos asked for among 3"):
        read("cure_tsd", tmp_path, challenge="snow")
    with pytest.raises(InputError, match=r"there is no 02_01\.txt"):
        read("cure_tsd", tmp_path, sequence="unreal")


@pytest.mark.parametrize(
    ("lines", "tracks"),
    [
        ([sign_line(1, 10), sign_line(2, 14), sign_line(3, 18)], 1),
        ([sign_line(1, 10), sign_line(2, 10, sign=7)], 2),  # another type
        ([sign_line(1, 10), sign_line(2, 40)], 2),  # too far away
        ([sign_line(1, 10), sign_line(2, 26)], 1),  # the doubled boxes just touch
        ([sign_line(1, 10), sign_line(2, 27)], 2),
        ([sign_line(1, 10), sign_line(11, 10)], 1),  # the longest gap
        ([sign_line(1, 10), sign_line(12, 10)], 2),
        ([sign_line(1, 10), sign_line(2, 12), sign_line(2, 20)], 2),  # two signs in one frame
        ([sign_line(2, 10), sign_line(1, 10)], 1),  # lines in any order
    ],
)
def test_signs_on_consecutive_frames_are_one_track(tmp_path: Path, lines: list[str], tracks: int) -> None:
    signs = cure_tsd.read_signs(write_cure_tsd(tmp_path, lines, ()))
    assert len({sign.track for in_frame in signs.values() for sign in in_frame}) == tracks


def test_the_nearest_of_two_signs_continues_a_track(tmp_path: Path) -> None:
    signs = cure_tsd.read_signs(write_cure_tsd(tmp_path, [sign_line(1, 20), sign_line(2, 10), sign_line(2, 21)], ()))
    assert signs[2][1].track == signs[1][0].track != signs[2][0].track


def test_corners_may_be_named_from_above_or_below(tmp_path: Path) -> None:
    signs = cure_tsd.read_signs(write_cure_tsd(tmp_path, ["001_06_10_18_18_18_10_10_18_10"], ()))
    assert signs[1][0].box == (10, 10, 18, 18)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("001_06_1_2_3", "01_04.txt, line 3: there are 5 values where 10 are expected"),
        ("001_15_1_2_3_4_5_6_7_8", "line 3: signType must be a number from 01 to 14, not 15"),
        ("one_06_1_2_3_4_5_6_7_8", "line 3: frameNumber and signType must be whole numbers, not 'one'"),
        ("000_06_1_2_3_4_5_6_7_8", "line 3: frames are counted from 1"),
        ("001_06_1_2_3_4_5_6_7_nan", "line 3: ury must be a number, not 'nan'"),
        (sign_line(7, 10), r"line 3: frame 7 is not in .*01_04_00_00_00\.mp4, which has 6 frames"),
    ],
)
def test_malformed_lines_of_cure_tsd_are_named(tmp_path: Path, line: str, message: str) -> None:
    write_cure_tsd(tmp_path, [sign_line(1, 10), line])
    with pytest.raises(InputError, match=message):
        read("cure_tsd", tmp_path)


def rename(root: Path) -> None:
    (root / "data" / "01_04_00_00_00.mp4").rename(root / "data" / "drive.mp4")


def damage(root: Path) -> None:
    (root / "data" / "01_04_00_00_00.mp4").write_bytes(b"not a video")


def copy(root: Path) -> None:
    (root / "more").mkdir()
    (root / "more" / "01_04_00_00_00.mp4").write_bytes((root / "data" / "01_04_00_00_00.mp4").read_bytes())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (rename, r"drive\.mp4 is not named as in CURE-TSD"),
        (damage, r"01_04_00_00_00\.mp4 cannot be decoded"),
        (copy, "two videos .* are named 01_04_00_00_00"),
    ],
)
def test_videos_that_cannot_be_used_are_named(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    write_cure_tsd(tmp_path, [sign_line(1, 10)])
    spoil(tmp_path)
    with pytest.raises(InputError, match=message):
        read("cure_tsd", tmp_path)


def test_a_video_that_is_shorter_than_it_says_is_named(tmp_path: Path) -> None:
    write_cure_tsd(tmp_path, [])
    with pytest.raises(InputError, match=r"01_04_00_00_00\.mp4 ends after 6 frames"):
        cure_tsd.VideoPicture(tmp_path / "data" / "01_04_00_00_00.mp4", 6)()


def test_the_test_sequences_of_cure_tsd_are_thirty() -> None:
    assert [len(numbers) for numbers in cure_tsd.TEST_SEQUENCES.values()] == [15, 15]
    assert cure_tsd.Video.of(Path("02_03_00_00_00.mp4")).split == "train"
    assert READERS.get("cure_tsd").splits == {"train": {"train": 0.8, "validation": 0.2}, "test": "test"}


def test_the_maps_of_nuimages_for_sets_outside_do_not_overlap() -> None:
    kinds = [
        kind for table in (nuimages.CORNER_CASES, nuimages.OUTSIDE_KINDS) for kinds in table.values() for kind in kinds
    ]
    assert len(kinds) == len(set(kinds))


# The whole procedure


def crops_of(root: Path, name: str, out: Path, **settings: Any) -> ManifestDataset:
    """The test data that a curation of that format writes, opened as a manifest is."""
    curate(CurationSettings(format=name, root=str(root), size=64, min_width=5, **settings), out, workers=2)
    return ManifestDataset(out / "test.csv", Opening(classes=str(out / "classes.txt")))


def painted_box(picture: NDArray[Any]) -> tuple[int, ...]:
    """The box of what is painted bright on a black picture."""
    rows, columns = (np.flatnonzero((picture.max(axis=2) > 100).any(axis=axis)) for axis in (1, 0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def test_a_crop_of_a_video_shows_its_sign_where_the_manifest_says(tmp_path: Path) -> None:
    write_cure_tsd(tmp_path / "cure", [sign_line(2, 16, y=8, size=16), sign_line(3, 24, y=16, size=16)], ())
    path = tmp_path / "cure" / "01_04_00_00_00.mp4"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 10, (64, 48))
    for x, y in ((0, 0), (16, 8), (24, 16)):
        picture = np.zeros((48, 64, 3), dtype=np.uint8)
        picture[y : y + 16, x : x + 16] = 255
        writer.write(picture)
    writer.release()
    data = crops_of(tmp_path / "cure", "cure_tsd", tmp_path / "out")
    batch = data.batch([0, 1])
    assert batch.boxes is not None
    for picture, box in zip(batch.images, batch.boxes, strict=True):
        assert painted_box(picture) == pytest.approx(box, abs=2.5)  # codecs blur edges
    assert len(set(data.groups)) == 1


def test_a_crop_of_cadc_shows_the_projected_face(tmp_path: Path) -> None:
    face = cuboid(position={"x": 10, "y": 2, "z": -1}, dimensions={"x": 4.0, "y": 1e-6, "z": 3.0})
    write_cadc(tmp_path / "cadc", [{"cuboids": [face, cuboid(position={"x": -10, "y": 0, "z": 0})]}], images=0)
    picture = np.zeros((100, 200, 3), dtype=np.uint8)
    picture[45:75, 60:100] = 255  # 100 - 10 * (2 +- 2), 50 - 10 * (-1 +- 1.5)
    folder = tmp_path / "cadc" / "2018_03_06" / "0001" / "labeled" / "image_00" / "data"
    Image.fromarray(picture).save(folder / "0000000000.png")
    data = crops_of(tmp_path / "cadc", "cadc", tmp_path / "out")
    batch = data.batch([0])
    assert batch.boxes is not None
    assert painted_box(batch.images[0]) == pytest.approx(batch.boxes[0], abs=1)
    assert (len(data), float(batch.conditions["distance"][0])) == (1, pytest.approx(10))
    assert "behind the camera" in (tmp_path / "out" / "dropped.csv").read_text()


def test_corner_cases_of_nuimages_are_curated_by_a_map_of_their_own(tmp_path: Path) -> None:
    tables = nuimages_tables()
    tables["object_ann"][2]["bbox"] = [100, 20, 140, 90]
    write_nuimages(tmp_path / "nuimages", tables, "v1.0-mini")
    data = crops_of(tmp_path / "nuimages", "nuimages", tmp_path / "out", classes=nuimages.CORNER_CASES)
    assert data.class_names == ("vehicle", "pedestrian")
    assert data.batch([0]).labels.tolist() == [1]
