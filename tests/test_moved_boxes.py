"""Images, masks, depth and boxes move together: under every shift that moves pixels the box holds the moved object."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from batches import make_batch, pictures
from roadworthy.core.boxes import tight_boxes
from roadworthy.core.random import Streams
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch
from roadworthy.data import BuiltinDataset, open_dataset
from roadworthy.shifts import geometry, make_shift
from roadworthy.shifts.base import Photometric
from roadworthy.shifts.sensor import EarlierFrame

MOVING = ("perspective", "rotation", "crop", "size", "sensor_shifted_rows", "c_elastic_transform")
STRONG_WAVES = {2: {"push": 9.6, "sigma": 2, "skew": 1}, 5: {"push": 19.2, "sigma": 2, "skew": 3}}
"""The published waves push a pixel of so small an image by less than half a pixel."""
OBJECT, GROUND = 17.0, 50.0


@pytest.fixture(scope="module")
def scenes() -> Batch:
    """1,000 drawn scenes of 32x32 pixels with masks, boxes and depth: the object at 17 m, all else at 50 m."""
    data = BuiltinDataset("scenes", n=1000).resized((32, 32))
    batch = data.batch(slice(None))
    assert batch.masks is not None
    return replace(batch, depth=np.where(batch.masks, OBJECT, GROUND).astype(np.float32))


def furthest_outside(masks: np.ndarray, boxes: np.ndarray) -> float:
    """How many pixels the pixel of a mask that is furthest outside its box lies outside it; masks without pixels: 0."""
    shown = masks.any(axis=(1, 2))
    assert not np.isnan(boxes[shown]).any(), "an object that is seen has a box"
    tight = tight_boxes(masks[shown])
    outside = np.concatenate([boxes[shown, :2] - tight[:, :2], tight[:, 2:] - boxes[shown, 2:]], axis=1)
    return float(outside.max(initial=0))


def test_every_shift_either_moves_pixels_and_is_tested_here_or_leaves_them_in_their_place() -> None:
    """A new shift that is neither photometric nor an earlier frame must move masks, boxes and depth as these do."""
    own = {name for name in SHIFTS if SHIFTS.get(name).__module__.startswith("roadworthy.")}
    in_place = {name for name in own if issubclass(SHIFTS.get(name), Photometric | EarlierFrame)}
    assert own - in_place - {"fog_veil", "rainfall"} == set(MOVING)


@pytest.mark.parametrize("level", [2, 5])
@pytest.mark.parametrize("name", MOVING)
def test_no_pixel_of_the_moved_mask_lies_outside_the_moved_box(name: str, level: int, scenes: Batch) -> None:
    shift = make_shift(name, level, STRONG_WAVES if name == "c_elastic_transform" else None)
    moved = shift(scenes, Streams(0, name))
    assert (moved.masks != scenes.masks).any(axis=(1, 2)).mean() > 0.6
    np.testing.assert_array_equal(moved.boxes, tight_boxes(moved.masks))
    assert moved.box_inflation is None

    hulls = shift(replace(scenes, masks=None), Streams(0, name))
    np.testing.assert_array_equal(hulls.images, moved.images)
    assert furthest_outside(moved.masks, hulls.boxes) <= 1
    known = ~np.isnan(hulls.boxes).any(axis=1)
    assert known.mean() > 0.9
    assert (hulls.box_inflation[known] >= 1 - 1e-4).all()

    assert moved.depth.dtype == np.float32
    np.testing.assert_array_equal(moved.depth == OBJECT, moved.masks)
    np.testing.assert_array_equal(hulls.depth, moved.depth)
    assert set(np.unique(moved.depth)) <= {OBJECT, GROUND, np.inf}


def test_outside_the_moved_image_depth_is_infinite() -> None:
    depth = np.full((1, 8, 8), 5, np.float32)
    batch = make_batch(np.full((1, 8, 8, 3), 9, np.uint8), depth=depth)
    right_by_three = np.array([[[1.0, 0, 3], [0, 1, 0], [0, 0, 1]]])
    for moved in (geometry.warp_affine(batch, right_by_three), geometry.warp_perspective(batch, right_by_three)):
        np.testing.assert_array_equal(np.isinf(moved.depth[0]), (moved.images == 0).all(axis=-1)[0])
        assert (moved.depth[0, :, 3:] == 5).all()
    depth[0, :4] = np.inf
    assert np.isinf(geometry.crop_and_resize(batch, np.array([2]), np.array([2]), 4, 4).depth[0, :4]).all()


@pytest.mark.parametrize("name", ["sensor_shifted_rows", "c_elastic_transform"])
def test_inflation_compares_the_hull_with_what_moved(name: str) -> None:
    """Of a box that fills the image nothing is inflated; of one that breaks into parts the hull is larger."""
    whole, part = (np.tile(np.float32(box), (20, 1)) for box in ([0, 0, 64, 64], [20, 10, 40, 60]))
    images = pictures(20, 64, 64)
    np.testing.assert_array_equal(make_shift(name, 4)(make_batch(images, boxes=whole), Streams(0)).box_inflation, 1)
    moved = make_shift(name, 4)(make_batch(images, boxes=part), Streams(0))
    areas = (moved.boxes[:, 2] - moved.boxes[:, 0]) * (moved.boxes[:, 3] - moved.boxes[:, 1])
    assert (moved.box_inflation > 1).all()
    if name == "sensor_shifted_rows":
        np.testing.assert_allclose(moved.box_inflation, areas / 1000, rtol=1e-6)
    nothing = make_shift(name, 4)(make_batch(images[:1], boxes=np.full((1, 4), np.nan, np.float32)), Streams(0))
    assert np.isnan(nothing.box_inflation).all()
    assert make_shift(name, 4)(make_batch(images), Streams(0)).box_inflation is None


@pytest.mark.parametrize("name", ["sensor_half_frame", "sensor_torn_frame", "sensor_frozen_frame", "c_zoom_blur"])
def test_where_the_object_stays_so_do_box_mask_and_depth(name: str, scenes: Batch) -> None:
    batch = scenes.take(range(4))
    frames = open_dataset((batch.images, np.zeros(4, int), ["sign"]))
    frames.table = replace(frames.table, ids=batch.ids)
    shown = make_shift(name, 3).over(frames)(batch, Streams(0))
    assert (shown.images != batch.images).any()
    assert shown.boxes is batch.boxes
    assert shown.masks is batch.masks
    assert shown.depth is batch.depth
