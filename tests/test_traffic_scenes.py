"""The traffic sets: frozen drawings, tight boxes, depth in metres, conditions as stated, no object in two splits."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.core.types import Batch
from roadworthy.data import BuiltinDataset, Opening, open_dataset
from roadworthy.data.signs import BUILTIN, VIEWS
from roadworthy.data.signs.camera import WEATHER as FIRST_WEATHER
from roadworthy.data.signs.camera import light_of
from roadworthy.data.signs.crops import FAR, REFERENCE, Stance, aimed, picture_rows
from roadworthy.data.signs.lights import SHINING, TRAFFIC_LIGHTS
from roadworthy.data.signs.rows import Turns
from roadworthy.data.signs.sheet import WIDE, traffic_sheet
from roadworthy.data.signs.sprites import DRAWINGS, CoverPen, Pen, picture, rectangle
from roadworthy.data.signs.surroundings import LAYOUTS
from roadworthy.data.signs.traffic_pictures import LARGER_SIDE
from roadworthy.data.signs.traffic_sets import LARGE_FROM, RANGES, TRAFFIC_SETS
from roadworthy.data.signs.unusual import SUPPORTS, UNUSUAL
from roadworthy.data.signs.weather import EXTINCTION, traffic_light_of, veil

FROZEN = {
    "traffic": "f43dae1e97b0774cc429aa7caac214cc60d3832fe64179b45bdbe9c09244fdc7",
    "traffic_other_camera": "da663cc206513f9c423246913bdcc2fa330df46105d18be4971136312345acef",
    "traffic_weather": "8a6627625c0af2a449671662f39c4a49fad9f6b843f68e596334bdf464c6d1c4",
    "traffic_corner_cases": "2b327cba902e1c49544c5d225fbd9961716c4aa5fabe5942f44aa5695c876e58",
    "traffic_ood": "42eba7064b7a0e03a86c5f8253d54699c1eccaf555bc063cb4b48a55a79cad8b",
}


def opened(source: str = "traffic", size: object = None, **options: object) -> BuiltinDataset:
    return BuiltinDataset(source, Opening(size=size), **options)  # type: ignore[arg-type]


@cache
def sample(source: str, size: int) -> Batch:
    """One picture of each of 30 objects."""
    return opened(source, size, n=150).batch(range(0, 150, 5)).read_only()


def planes(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert batch.masks is not None
    assert batch.depth is not None
    assert batch.boxes is not None
    return batch.masks, batch.depth, batch.boxes


@pytest.mark.parametrize("source", TRAFFIC_SETS)
def test_the_drawing_is_frozen(source: str) -> None:
    """Any change of a pixel, a mask, a distance or a condition is a new version: raise TRAFFIC_VERSION, and these.

    Depth is compared in centimetres, so that the last bit of a division does not matter.
    """
    sha = hashlib.sha256()
    for size, split in ((64, "test"), ((24, 40), "train")):
        batch = opened(source, size, n=700, split=split).batch(range(0, 700, 37))
        masks, depth, _ = planes(batch)
        sha.update(batch.images.tobytes())
        sha.update(masks.tobytes())
        sha.update(np.rint(np.where(np.isinf(depth), -1, 100 * depth)).astype("<i4").tobytes())
        sha.update(repr((batch.ids, [column.tolist() for column in batch.conditions.values()])).encode())
    assert sha.hexdigest() == FROZEN[source]


def test_classes_are_those_of_the_paper() -> None:
    seven = ("traffic sign", "traffic light", "car", "truck", "pedestrian", "bus", "bike")
    assert open_dataset("builtin:traffic").class_names == seven
    assert open_dataset("builtin:traffic").size == (64, 64)
    assert open_dataset("builtin:traffic_other_camera").class_names == ("car", "pedestrian")
    assert open_dataset("builtin:traffic_weather").class_names == ("car", "pedestrian")
    assert open_dataset("builtin:traffic_corner_cases").class_names == ("vehicle", "pedestrian")
    assert open_dataset("builtin:traffic_ood").class_names == ("cone", "bin", "animal", "train")
    assert set(TRAFFIC_SETS) < set(BUILTIN)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(TRAFFIC_SETS)),
    st.integers(16, 72),
    st.integers(16, 72),
    st.integers(0, 3),
    st.integers(0, 209),
)
def test_box_mask_and_depth_agree_at_any_size(source: str, height: int, width: int, seed: int, row: int) -> None:
    batch = opened(source, (height, width), n=210, seed=seed).batch([row])
    masks, depth, boxes = planes(batch)
    assert batch.images.shape == (1, height, width, 3)
    assert depth.dtype == np.float32
    x0, y0, x1, y1 = boxes[0].astype(int)
    mask = masks[0]
    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height
    assert mask[y0:y1, x0:x1].sum() == mask.sum()
    assert mask[y0].any()
    assert mask[y1 - 1].any()
    assert mask[:, x0].any()
    assert mask[:, x1 - 1].any()
    assert (depth[0][mask] == batch.conditions["distance"][0]).all()
    assert (depth > 0).all()
    larger = max(x1 - x0, y1 - y0) / min(height, width)
    assert LARGER_SIDE[0] - 2.5 / min(height, width) < larger < LARGER_SIDE[1] + 2.5 / min(height, width)


@pytest.mark.parametrize("source", TRAFFIC_SETS)
def test_depth_is_ground_that_recedes_with_objects_before_a_far_end(source: str) -> None:
    """Along the ground depth falls from row to row downwards; what stands on it hides ground that is farther away."""
    masks, depth, _ = planes(sample(source, 64))
    infinite = np.isinf(depth)
    assert depth[~infinite].max() <= FAR
    assert (infinite[:, 1:] <= infinite[:, :-1]).mean() > 0.97
    for picture_depth, mask in zip(depth, masks, strict=True):
        ground = picture_depth.max(axis=1)
        below = np.flatnonzero(np.isfinite(ground) & (ground < 0.9 * FAR))
        if below.size > 3:
            falls = np.diff(ground[below])
            assert (falls <= 1e-4).mean() > 0.8
        outside = ~mask & (picture_depth < picture_depth[mask][0])
        assert not outside[: np.flatnonzero(mask.any(axis=1))[0]].any()


def test_ground_distance_is_that_of_a_camera_over_a_flat_road() -> None:
    """A camera 1.5 m over the road sees the ground 15 m away 0.1 below the horizon: half of a picture of 0.2."""
    camera = aimed(Stance(15.0, 0.0), (0.0, 0.25), unit=0.2, height=1.5, curvature=0.0)
    assert camera.horizon == pytest.approx(-0.25)
    assert camera.ground_distance(np.array([-0.3, -0.25, 0.25, 0.5])) == pytest.approx([np.inf, np.inf, 15, 10])
    assert [camera.ground_row(metres) for metres in (15, 10)] == pytest.approx([0.25, 0.5])
    assert camera.metre(REFERENCE / 15) == pytest.approx(1 / (15 * 0.2))
    rows = picture_rows((64, 48))
    assert rows[[0, -1]] == pytest.approx([-31.5 / 48, 31.5 / 48])


@settings(max_examples=40)
@given(
    distance=st.floats(6, 40),
    aside=st.floats(-6, 6),
    unit=st.floats(0.02, 1.5),
    curvature=st.floats(-0.008, 0.008),
    near=st.floats(0.01, 1.0),
    other=st.floats(-6, 6),
)
def test_points_of_the_ground_agree_in_both_forms(
    distance: float, aside: float, unit: float, curvature: float, near: float, other: float
) -> None:
    camera = aimed(Stance(distance, aside), (0.1, 0.2), unit, 1.4, curvature)
    assert camera.ground(REFERENCE / distance, aside) == pytest.approx((0.1, 0.2), abs=1e-6)
    one, many = camera.ground(near, other), camera.along(np.array([near]), np.array([other]))[0]
    assert one == pytest.approx(tuple(many), rel=1e-9, abs=1e-9)
    assert camera.ground_distance(np.array([one[1]]))[0] == pytest.approx(REFERENCE / near, rel=1e-6)
    right = camera.ground(near, other + 1)[0] - one[0]
    assert right == pytest.approx(camera.metre(near), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("source", TRAFFIC_SETS)
def test_pixels_depend_on_nothing_but_the_recipe(source: str) -> None:
    whole = opened(source, 24, n=40).batch(slice(None))
    again = opened(source, 24, n=23)
    order = [22, 3, 3, 17, 0]
    for rows in (order, [5], order):
        part = again.batch(rows)
        assert part.ids == tuple(whole.ids[row] for row in rows)
        assert np.array_equal(part.images, whole.images[rows])
        for one, other in zip(planes(part), planes(whole), strict=True):
            assert np.array_equal(one, other[rows])
        assert all(np.array_equal(part.conditions[name], column[rows]) for name, column in whole.conditions.items())
    for other in ({"seed": 1}, {"split": "train"}):
        assert not np.array_equal(opened(source, 24, n=5, **other).batch([0]).images, whole.images[:1])


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(TRAFFIC_SETS)), st.integers(1, 900), st.integers(1, 900), st.integers(0, 3))
def test_a_larger_set_begins_with_a_smaller_one(source: str, n: int, m: int, seed: int) -> None:
    small, large = (opened(source, n=count, seed=seed).table for count in sorted((n, m)))
    rows = len(small.ids)
    assert large.ids[:rows] == small.ids
    assert all(np.array_equal(large.conditions[name][:rows], column) for name, column in small.conditions.items())


@pytest.mark.parametrize("source", TRAFFIC_SETS)
def test_splits_share_no_object_and_a_group_is_one_object(source: str) -> None:
    test, train = opened(source, n=700), opened(source, n=700, split="train")
    assert not set(test.groups) & set(train.groups)
    assert not set(test.ids) & set(train.ids)
    assert set(Counter(test.groups).values()) == {VIEWS}
    for name in ("object", "road_surface", "road_layout"):
        assert len(set(zip(test.groups, test.table.conditions[name].tolist(), strict=True))) == len(set(test.groups))
    assert open_dataset({"builtin": source, "n": 700}).fingerprint() == test.fingerprint() != train.fingerprint()


@pytest.mark.parametrize("source", TRAFFIC_SETS)
def test_conditions_are_as_frequent_as_stated(source: str) -> None:
    data, traffic = opened(source, n=3500), TRAFFIC_SETS[source]
    conditions, labels = data.table.conditions, data.labels
    levels = {"weather": traffic.weather, "time_of_day": traffic.time_of_day, **traffic.extra_conditions}
    levels |= {"road_layout": LAYOUTS, "distance_range": tuple(RANGES)}
    for name, stated in levels.items():
        for label in range(len(data.class_names)):
            counts = Counter(conditions[name][labels == label].tolist())
            for level, times in Counter(stated).items():
                expected = times / len(stated) * (labels == label).sum()
                assert abs(counts[level] - expected) <= len(stated) * VIEWS, (name, level)
    for name, kinds in traffic.kinds.items():
        objects = Counter(conditions["object"][labels == data.class_names.index(name)].tolist())
        assert set(objects) == set(kinds)
        assert max(objects.values()) - min(objects.values()) <= VIEWS
    metres, ranges = conditions["distance"], conditions["distance_range"]
    assert metres.dtype == np.float32
    for level, (low, high) in RANGES.items():
        inside = metres[ranges == level]
        assert low <= inside.min() < inside.max() < high
    large = np.isin(conditions["object"], ("truck", "bus", "train", "crane truck", "trailer", "concrete mixer"))
    assert metres[large].min(initial=LARGE_FROM) >= LARGE_FROM


def test_objects_lie_anywhere_in_the_picture_and_horizons_differ() -> None:
    batch = opened("traffic", 16, n=700).batch(range(0, 700, 6))
    _, depth, boxes = planes(batch)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 32
    assert (centres.min(axis=0) < 0.3).all()
    assert (centres.max(axis=0) > 0.7).all()
    assert abs(centres.mean(axis=0) - 0.5).max() < 0.06
    widths = (boxes[:, 2] - boxes[:, 0]) / 16
    assert np.quantile(widths, 0.1) < 0.26
    assert np.quantile(widths, 0.9) > 0.6
    horizons = np.isinf(depth).all(axis=2).sum(axis=1)
    assert np.std(horizons) > 2


def test_weather_and_light_are_seen() -> None:
    data = opened("traffic", 16, n=2100)
    time, weather = (data.table.conditions[name] for name in ("time_of_day", "weather"))

    def images(rows: np.ndarray) -> np.ndarray:
        return data.batch(np.flatnonzero(rows)[:40].tolist()).images.mean(axis=3)

    clear, fog = (images((time == "day") & (weather == kind)) for kind in ("clear", "fog"))
    assert clear.mean() > 2 * images((time == "night") & (weather == "clear")).mean()
    assert fog.std(axis=(1, 2)).mean() < 0.7 * clear.std(axis=(1, 2)).mean()
    winter, usual = sample("traffic_weather", 64), sample("traffic", 64)
    snowy = np.isin(winter.conditions["weather"], ("snowfall", "drifting snow"))
    pale, colourful = (np.ptp(shown, axis=3).mean() for shown in (winter.images[snowy], usual.images))
    assert pale < 0.6 * colourful


def test_haze_goes_by_metres() -> None:
    """At the distance d a colour keeps exp(-extinction d), on the ground, on landmarks and on the object alike."""
    assert veil("fog", 40.0) == pytest.approx(1 - np.exp(-0.03 * 40))
    for weather, extinction in EXTINCTION.items():
        light = traffic_light_of("day", weather)
        black = np.array(light.shade((0, 0, 0), REFERENCE / 40))
        assert black == pytest.approx((1 - np.exp(-extinction * 40)) * np.array(light.sky[1]), rel=1e-9)
    assert traffic_light_of("day", "clear").sky == light_of("day", FIRST_WEATHER[0]).sky


def test_a_cover_pen_draws_as_a_pen_and_knows_what_it_covered() -> None:
    plain, noted = np.zeros((20, 20, 3), np.uint8), np.zeros((20, 20, 3), np.uint8)
    plane, pen = np.full((20, 20), 9, np.float32), CoverPen(noted, 20)
    for drawing_pen in (Pen(plain, 20), pen):
        drawing_pen.polygon(rectangle(-0.275, -0.275, 0.275, 0.275), (200, 10, 20))
    assert np.array_equal(plain, noted)
    pen.put(plane, 2.5)
    assert np.array_equal(plane == 2.5, plain[..., 0] >= 100)
    pen.put(plane, 1.0)
    assert plane.min() == 2.5


def test_every_kind_of_object_is_drawn_and_every_lamp_belongs_to_a_drawing() -> None:
    kinds = {kind for traffic in TRAFFIC_SETS.values() for names in traffic.kinds.values() for kind in names}
    assert set(UNUSUAL) < kinds
    assert len(TRAFFIC_LIGHTS) == 18
    assert set(SHINING) | set(SHINING.values()) | set(SUPPORTS) | set(SUPPORTS.values()) <= set(DRAWINGS)
    for drawing, lamps in SHINING.items():
        body, lit = (picture(name, 64)[..., 3] for name in (drawing, lamps))
        assert (body[lit >= 128] >= 128).all(), drawing


def test_a_seated_person_is_seen_without_the_bench() -> None:
    data = opened("traffic_corner_cases", 64, n=300)
    seated = np.flatnonzero(data.table.conditions["object"] == "seated person")[:20]
    masks, depth, _ = planes(data.batch(seated.tolist()))
    metres = data.table.conditions["distance"][seated][:, None, None]
    assert ((depth == metres) & ~masks).sum(axis=(1, 2)).min() > 10


def test_turns_of_one_picture() -> None:
    turns = Turns(1, ("a", "b"))
    assert turns.of_views() == (VIEWS, np.array([0]))
    assert turns.of_objects() == (1, np.array([0]))


def test_parts_of_a_set_keep_their_depth() -> None:
    data = open_dataset({"builtin": "traffic", "n": 70, "only": ["car", "bike"], "size": 24})
    batch = data.batch([0, 11])
    assert batch.depth is not None
    assert batch.depth.shape == (2, 24, 24)
    assert open_dataset({"builtin": "signs", "n": 5}).batch([0]).depth is None


def test_the_sheet_shows_every_set() -> None:
    sheet = traffic_sheet(size=16)
    assert sheet.shape[1] == WIDE
    assert sheet.shape[0] > 5 * 16
