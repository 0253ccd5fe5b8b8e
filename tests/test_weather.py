"""Fog and rain by their measured strength: formulas, rules of distance, drop physics, and what a picture shows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, ndimage

from batches import make_batch, pictures
from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.types import Batch
from roadworthy.preview import write_preview
from roadworthy.shifts import make_shift, raindrops
from roadworthy.shifts.distances import ground_distances
from roadworthy.shifts.light import blend, linear_light, srgb_values
from roadworthy.shifts.weather import FogVeil, Rainfall


def cut_out(count: int = 1, size: int = 10, **changes: Any) -> dict[str, np.ndarray]:
    """The conditions of cut-outs: columns and rows 100 to 200 of a frame of 1000x400 pixels with its horizon at 150."""
    place = {"frame_width": 1000, "frame_height": 400, "crop_x0": 100, "crop_x1": 200, "crop_y0": 100, "crop_y1": 200}
    place |= {"horizon": 150.0} | changes
    return {name: np.full(count, value) for name, value in place.items()}


def with_depth(seed: int = 0, n: int = 2, side: int = 32, channels: int = 3) -> Batch:
    rng = np.random.default_rng(seed)
    depth = rng.uniform(0, 400, (n, side, side)).astype(np.float32)
    depth[:, 0] = np.inf
    images = rng.integers(0, 256, (n, side, side, channels), dtype=np.uint8)
    return make_batch(images, depth=depth)


# ---------------------------------------------------------------- linear light


def test_the_curve_is_that_of_the_standard() -> None:
    """By hand from IEC 61966-2-1: 10 / 255 lies on the straight line, 11 / 255 on the power."""
    assert linear_light(10) == pytest.approx(10 / 255 / 12.92)
    assert linear_light(11) == pytest.approx(((11 / 255 + 0.055) / 1.055) ** 2.4)
    values = np.linspace(0, 255, 1001)
    np.testing.assert_allclose(srgb_values(linear_light(values)), values, atol=1e-5)


def test_blending_rounds_every_light_to_the_nearest_value() -> None:
    image = np.zeros((1, 70_000, 1), np.uint8)
    light = np.concatenate([np.linspace(0, 1, 69_000), linear_light(np.arange(255) + 0.5), np.zeros(745)])
    light = light.astype(np.float32)[None]
    blended = np.empty_like(image)
    blend(image, np.zeros((1, 1), np.float32), light, blended)
    assert np.abs(blended[..., 0] - srgb_values(light)).max() <= 0.5 + 1e-4
    for value in range(256):
        shade, kept = np.full((1, 1, 1), value, np.uint8), np.empty((1, 1, 1), np.uint8)
        blend(shade, np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32), kept)
        assert kept == value


# ---------------------------------------------------------------- fog


@pytest.mark.parametrize(
    ("shift", "constant", "metres"),
    [
        (FogVeil(visual_range=300), 3.912, 300),
        (FogVeil(visual_range=50), 3.912, 50),
        (FogVeil(mor=120), 2.996, 120),
        (make_shift("fog_veil", 1), 3.912, 300),
        (make_shift("fog_veil", 2), 3.912, 100),
    ],
)
def test_fog_follows_its_formula(shift: FogVeil, constant: float, metres: float) -> None:
    batch = with_depth()
    depth = np.where(np.isinf(batch.depth), 1000.0, batch.depth.astype(np.float64))
    kept = np.exp(-constant * depth / metres)
    np.testing.assert_allclose(np.stack(shift.transmission(batch)), kept, rtol=1e-6)
    airlight = ((200 / 255 + 0.055) / 1.055) ** 2.4
    light = linear_light(batch.images) * kept[..., None] + airlight * (1 - kept[..., None])
    np.testing.assert_allclose(shift.exact(batch), srgb_values(light), atol=1e-6)
    shown = shift(batch, Streams(0)).images
    assert np.abs(shown - shift.exact(batch)).max() <= 0.5 + 1e-3


def test_two_percent_and_five_percent_are_left_at_the_range() -> None:
    plain = make_batch(np.zeros((1, 2, 2, 1), np.uint8))
    assert FogVeil(visual_range=80, distance=80).transmission(plain)[0] == pytest.approx(0.02, rel=0.01)
    assert FogVeil(mor=80, distance=80).transmission(plain)[0] == pytest.approx(0.05, rel=0.01)
    assert (FogVeil(mor=80, distance=0)(plain, Streams(0)).images == 0).all()
    assert (FogVeil(mor=1, distance=1e6, airlight=77)(plain, Streams(0)).images == 77).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "either `visual_range` or `mor`"),
        ({"visual_range": 100, "mor": 100}, "either `visual_range` or `mor`"),
        ({"visual_range": 0}, "visual_range must be a number from 1"),
        ({"mor": "far"}, "mor must be a number"),
        ({"mor": 100, "distance": -1}, "distance must be a number"),
        ({"mor": 100, "airlight": 256}, "airlight must be a number"),
        ({"mor": 100, "sky_distance": math.nan}, "sky_distance must be a number"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FogVeil(**parameters)


def test_fog_without_any_distance_says_what_to_give() -> None:
    with pytest.raises(InputError, match=r"image 'img0' is: give the data a depth map.* or the shift a `distance`"):
        make_shift("fog_veil", 1)(make_batch(pictures(2, 8, 8)), Streams(0))


# ---------------------------------------------------------------- rules of distance


def test_the_ground_by_hand() -> None:
    """Focal length 800 pixels, 1.5 m high: 1200 / (row - 150) metres. Rows of the image are 10 rows of the frame."""
    shift, images = FogVeil(mor=100), np.zeros((1, 10, 10, 3), np.uint8)
    (metres,) = shift.distances(make_batch(images, conditions=cut_out()))
    assert metres.shape == (10, 1)
    np.testing.assert_allclose(metres[:, 0], [100] * 5 + [100, 80, 48, 1200 / 35, 1200 / 45], rtol=1e-6)
    (stated,) = shift.distances(make_batch(images, conditions=cut_out(distance=12.5)))
    assert stated.tolist() == [[12.5]]
    blank = cut_out(horizon=np.nan)  # half of 400 is 200: the whole cut-out lies above it
    assert (shift.distances(make_batch(images, conditions=blank))[0] == 100).all()


@pytest.mark.parametrize("place", [cut_out(), cut_out(distance=25.0), {"distance": np.array([25.0])}])
@pytest.mark.parametrize("name", ["fog_veil", "rainfall"])
def test_the_box_cannot_be_read_off_a_blank_picture(name: str, place: dict[str, np.ndarray]) -> None:
    """What differs within a row of a grey picture in the weather is streaks alone, and without these nothing."""
    grey = np.full((1, 64, 64, 3), 90, np.uint8)
    boxes = np.array([[16, 20, 44, 50]], np.float32)
    masks = np.zeros((1, 64, 64), bool)
    masks[0, 25:45, 20:40] = True
    shift = make_shift(name, 2)
    if isinstance(shift, Rainfall):
        shift = replace(shift, opacity=0.0)
    for truth in ({}, {"boxes": boxes}, {"boxes": boxes, "masks": masks}):
        shown = shift(make_batch(grey, conditions=place, **truth), Streams(0, name)).images[0]
        assert (shown == shown[:, :1]).all(), "a row has one colour"


def test_depth_comes_first_then_the_stated_distance_the_ground_and_the_declared_distance() -> None:
    shift, images = FogVeil(mor=100, distance=7), np.zeros((3, 10, 10, 3), np.uint8)
    depth = np.full((3, 10, 10), 3, np.float32)
    conditions = cut_out(3) | {
        "distance": np.array([60.0, np.nan, np.nan]),
        "crop_y0": np.array([100.0, 100.0, np.nan]),
    }
    by_depth = shift.distances(make_batch(images, depth=depth, conditions=conditions))
    assert [metres.max() for metres in by_depth] == [3, 3, 3]
    stated, ground, declared = shift.distances(make_batch(images, conditions=conditions))
    assert (stated.tolist(), ground.shape, declared.tolist()) == ([[60]], (10, 1), [[7]])
    texts = {"distance": np.array(["near", "far", ""]), "frame_width": np.array(["", "", ""])}
    assert [metres.tolist() for metres in shift.distances(make_batch(images, conditions=texts))] == [[[7]]] * 3
    turned = make_batch(images[:1], conditions=cut_out(crop_y1=90))
    with pytest.raises(InputError, match="crop_y0 and crop_y1"):
        shift(turned, Streams(0))


def test_pictures_of_an_earlier_run_are_not_taken_over() -> None:
    """Its stimulus names the first version of the code, which drew the object's box into the picture."""
    for name in ("fog_veil", "rainfall"):
        shown = make_shift(name, 1).stimulus("data", seed=0)
        assert shown.code == "version 2"
        assert replace(shown, code="").hash != shown.hash


@settings(max_examples=20, deadline=None)
@given(horizon=st.floats(-100, 500), reach=st.floats(1, 1e4), farthest=st.floats(1, 1e4))
def test_ground_gets_nearer_down_the_frame(horizon: float, reach: float, farthest: float) -> None:
    metres = ground_distances(np.arange(400) + 0.5, horizon, reach, farthest)
    assert (np.diff(metres) <= 0).all()
    assert (metres > 0).all()
    assert metres.max() <= np.float32(farthest)


# ---------------------------------------------------------------- rain


@pytest.mark.parametrize("rate", [1.0, 2.5, 50.0, 150.0])
def test_extinction_is_the_integral_over_the_drops(rate: float) -> None:
    """Against numerical integration, and near the measured 0.312 R^0.67 per kilometre."""

    def disc_area(diameter: float) -> float:
        return 2 * math.pi / 4 * diameter**2 * 8000 * math.exp(-4.1 * rate**-0.21 * diameter)

    per_metre = integrate.quad(disc_area, 0, math.inf)[0] * 1e-6
    assert raindrops.extinction(rate) == pytest.approx(per_metre, rel=1e-9)
    assert 1000 * per_metre == pytest.approx(0.312 * rate**0.67, rel=0.2)


@pytest.mark.parametrize(("rate", "tolerance"), [(2.5, 0.12), (50.0, 0.08)])
def test_streaks_hide_as_much_as_the_discs_of_their_drops(rate: float, tolerance: float) -> None:
    """The mean thickness of a tile is int pi D^2 / 4 N(D) dD over its range of sizes, times its range of distances."""

    def disc_area(diameter: float) -> float:
        return math.pi / 4 * diameter**2 * 8000 * math.exp(-4.1 * rate**-0.21 * diameter) * 1e-6

    expected = integrate.quad(disc_area, raindrops.SMALLEST, raindrops.LARGEST)[0]
    expected *= raindrops.FARTHEST - raindrops.NEAREST
    finest, coarse = (raindrops.streaks(rate, 0.005, texels) for texels in (raindrops.FINEST, 128))
    assert finest.mean() == pytest.approx(expected, rel=tolerance)
    assert coarse.mean() == pytest.approx(finest.mean(), rel=1e-3)
    assert (finest >= 0).all()
    assert not finest.flags.writeable


def test_one_drop_is_as_long_as_it_falls_and_as_wide_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 mm at 1 m, 7.95 m/s for 5 ms: 39.8 mm, which is 81 of 2048 texels per metre; it wraps around the lower edge."""
    monkeypatch.setattr(raindrops, "_drops", lambda rate, rng: np.array([[3.0, 1.0, 0.5, 0.97]]))
    tile = raindrops._drawn(10.0, 0.005)
    assert tile.sum() == pytest.approx(math.pi / 4 * (0.003 * 2048) ** 2, rel=1e-5)
    rows, columns = (np.flatnonzero(tile.max(axis=axis) > tile.max() / 2) for axis in (1, 0))
    assert len(rows) == pytest.approx(0.005 * 7.95 * 2048, abs=2)
    assert {0, 1023} <= set(rows.tolist())
    assert columns.mean() == pytest.approx(511.5, abs=1)
    assert len(columns) == pytest.approx(2.355 * 0.25 * 0.003 * 2048, abs=1.1)


def test_rain_follows_its_formula() -> None:
    batch, shift = with_depth(3), make_shift("rainfall", 2)
    rain = np.stack(list(shift.streak_shares(batch, Streams(1))))[..., None].astype(np.float64)
    depth = np.where(np.isinf(batch.depth), 1000.0, batch.depth)[..., None]
    kept, sky = np.exp(-raindrops.extinction(50) * depth), linear_light(190)
    light = (1 - rain) * (linear_light(batch.images) * kept + sky * (1 - kept)) + rain * 0.94 * sky
    assert np.abs(shift(batch, Streams(1)).images - srgb_values(light)).max() <= 0.5 + 1e-3


def test_no_rain_changes_nothing_and_more_rain_covers_more() -> None:
    batch = make_batch(pictures(8))
    np.testing.assert_array_equal(Rainfall(mm_per_h=0)(batch, Streams(0)).images, batch.images)
    np.testing.assert_array_equal(Rainfall(mm_per_h=50, opacity=0)(batch, Streams(0)).images, batch.images)
    covered = [
        np.mean([*shift.streak_shares(batch, Streams(0))]) for shift in map(make_shift, ["rainfall"] * 2, [1, 2])
    ]
    assert covered[1] > 4 * covered[0] > 0
    black = make_batch(np.zeros((8, 64, 64, 3), np.uint8))
    light, heavy = (make_shift("rainfall", level)(black, Streams(0)).images.mean() for level in (1, 2))
    assert heavy > light + 10


@pytest.mark.parametrize("size", [64, 128, 256])
def test_streaks_are_the_same_share_of_an_image_of_any_size(size: int) -> None:
    shares = np.stack([*make_shift("rainfall", 2).streak_shares(make_batch(pictures(16, size, size)), Streams(0))])
    small = np.stack([*make_shift("rainfall", 2).streak_shares(make_batch(pictures(16)), Streams(0))])
    assert shares.mean() == pytest.approx(small.mean(), rel=0.1)
    scale = size // 64
    means = shares.reshape(16, 64, scale, 64, scale).mean(axis=(2, 4))
    assert np.corrcoef(means.ravel(), small.ravel())[0, 1] > 0.85


@pytest.mark.parametrize("angle", [-30.0, 0.0, 30.0])
def test_streaks_lean_by_the_angle(angle: float) -> None:
    """The structure tensor gives the direction in which a picture varies least: along the streaks."""
    shift = Rainfall(mm_per_h=50, angle=angle, jitter=0)
    shares = np.stack([*shift.streak_shares(make_batch(pictures(4, 256, 256)), Streams(0))])
    down, right = np.gradient(ndimage.gaussian_filter(shares, (0, 2, 2)), axis=(1, 2))
    lean = math.degrees(0.5 * math.atan2(2 * (down * right).sum(), (right**2).sum() - (down**2).sum()))
    assert -lean == pytest.approx(angle, abs=3)


def test_a_closer_cut_out_shows_larger_drops() -> None:
    """As the frame does: a cut-out of a tenth of the frame's width is the same as a declared view of 0.1."""
    images = pictures(1, 64, 64)
    known = make_batch(images, conditions=cut_out(crop_y0=np.nan))
    declared = Rainfall(mm_per_h=50, view=0.1)(make_batch(images), Streams(0))
    np.testing.assert_array_equal(Rainfall(mm_per_h=50)(known, Streams(0)).images, declared.images)
    with pytest.raises(InputError, match="has no width"):
        Rainfall(mm_per_h=50)(make_batch(images, conditions=cut_out(crop_x1=100)), Streams(0))


@pytest.mark.parametrize("name", ["fog_veil", "rainfall"])
@settings(max_examples=8, deadline=None)
@given(order=st.permutations(range(3)), shape=st.sampled_from([(64, 64, 3), (1, 1, 1), (9, 31, 1)]))
def test_an_image_never_depends_on_its_batch(name: str, order: list[int], shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    depth = rng.uniform(1, 100, (3, *shape[:2])).astype(np.float32)
    boxes = np.array([[0, 0, 1, 1]] * 3, np.float32)
    batch = make_batch(pictures(3, *shape), depth=depth, boxes=boxes).read_only()
    shift = make_shift(name, 2)
    whole, streams = shift(batch, Streams(0, name)), Streams(0, name)
    for row in order:
        np.testing.assert_array_equal(whole.images[row], shift(batch.take([row]), streams).images[0])
    assert len(shift(batch.take([]), streams)) == 0
    assert whole.boxes is batch.boxes
    assert whole.depth is batch.depth
    assert whole.images.flags.c_contiguous


@pytest.mark.parametrize("name", ["fog_veil", "rainfall"])
def test_a_contact_sheet_shows_all_levels_on_pictures_with_depth(name: str, tmp_path: Path) -> None:
    lines = [*write_preview(name, None, tmp_path / "sheet.png", images=2)]
    assert lines == [f"contact sheet: {tmp_path / 'sheet.png'}"]
    _, width = cv2.imread(str(tmp_path / "sheet.png")).shape[:2]
    assert width == 3 * 132 + 4, "the original and two levels"


def test_of_all_shifts_one_that_cannot_be_shown_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.preview.SHIFTS", ["grey", "fog_veil"])
    lines = [*write_preview(None, "builtin:signs", tmp_path / "sheet.png", images=1)]
    assert [line.partition(":")[0] for line in lines] == ["fog_veil is left out", "contact sheet"]


@pytest.mark.parametrize("name", ["fog_veil", "rainfall"])
@pytest.mark.parametrize(
    ("conditions", "depth", "complaint"),
    [
        ({"frame_width": 0}, None, "'img0' has no width: correct .*frame_width"),
        ({"frame_width": -1000}, None, "'img0' has no width: correct .*frame_width"),
        ({"distance": -5.0}, None, "image 'img0' shows what is at a negative distance"),
        ({}, math.nan, "the depth of image 'img0' must be metres from 0 on"),
        ({}, -1.0, "the depth of image 'img0' must be metres from 0 on"),
    ],
)
def test_impossible_places_are_named(
    name: str, conditions: dict[str, Any], depth: float | None, complaint: str
) -> None:
    maps = None if depth is None else np.full((1, 10, 10), depth, np.float32)
    boxes = np.array([[2, 2, 6, 6]], np.float32)
    batch = make_batch(pictures(1, 10, 10), boxes=boxes, depth=maps, conditions=cut_out(**conditions))
    with pytest.raises(InputError, match=complaint):
        make_shift(name, 1)(batch, Streams(0, "weather"))
