"""The ten shifts: their formulas, the laws every shift keeps, and the geometry of boxes and masks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, stats

from batches import filled, labelled, make_batch, pictures, same
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.random import Streams
from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch
from roadworthy.data import open_dataset
from roadworthy.shifts import (
    Blur,
    Crop,
    Fog,
    Grey,
    Noise,
    Perspective,
    Rain,
    Reflection,
    Rotation,
    Snow,
    geometry,
    make_shift,
    preview,
    textures,
)

TABLE_12 = {
    "noise": [0.2, 0.35, 0.4, 0.45, 0.5],
    "grey": [0.2, 0.4, 0.6, 0.8, 1],
    "snow": [(1,), (1, 1), (1.5, 1.5), (1.5, 1.5, 1), (1.5, 1.5, 1.5)],
    "rain": [(0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (0.4, 0.4), (0.5, 0.4, 0.2)],
    "fog": [0.3, 0.4, 0.5, 0.6, 0.7],
    "perspective": [(0.2, 0.9), (0.3, 0.85), (0.4, 0.8), (0.5, 0.75), (0.6, 0.7)],
    "blur": [1.5, 2, 2.5, 3, 3.5],
    "rotation": [10, 15, 20, 25, 30],
    "crop": [62, 60, 58, 56, 54],
    "reflection": [8, 12, 16, 20, 24],
}
GEOMETRIC = ("perspective", "rotation", "crop")
PHOTOMETRIC = tuple(name for name in TABLE_12 if name not in GEOMETRIC)


# ---------------------------------------------------------------- what every shift keeps


def test_all_ten_are_registered_with_the_levels_of_table_12() -> None:
    assert set(TABLE_12) <= set(SHIFTS)
    for name, values in TABLE_12.items():
        for level, expected in enumerate(values, start=1):
            shift = make_shift(name, level)
            parameters = tuple(shift.parameters().values())
            assert shift.name == name
            assert shift.level == level
            assert (parameters if name == "perspective" else parameters[0]) == expected


@pytest.mark.parametrize("name", TABLE_12)
@pytest.mark.parametrize(
    ("height", "width"), [(64, 64), (32, 32), (8, 8), (1, 1), (1, 9), (50, 17), (9, 200), (64, 900)]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_shape_works_and_the_input_is_left_alone(name: str, height: int, width: int, channels: int) -> None:
    for n in (0, 1, 2):
        batch = labelled(n, height, width, channels)
        before = (batch.images.copy(), batch.boxes.copy(), batch.masks.copy())
        for array in (batch.images, batch.boxes, batch.masks):
            array.flags.writeable = False
        shifted = make_shift(name, 5)(batch, Streams("law"))
        assert shifted.images.dtype == np.uint8
        assert shifted.images.shape == batch.images.shape
        assert shifted.images.flags.c_contiguous
        assert shifted.boxes.dtype == np.float32
        assert shifted.boxes.shape == (n, 4)
        assert shifted.masks.dtype == np.bool_
        assert shifted.masks.shape == (n, height, width)
        assert shifted.ids == batch.ids
        assert not np.shares_memory(shifted.images, batch.images)
        for array, copy in zip((batch.images, batch.boxes, batch.masks), before, strict=True):
            np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("name", TABLE_12)
@pytest.mark.parametrize("shape", [(8, 8, 3), (1, 1, 1), (1, 9, 3), (40, 1, 1), (17, 50, 3)])
def test_every_pixel_is_painted(name: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    batch, shift = labelled(2, *shape), make_shift(name, 3)
    results = []
    for value in (0, 201):
        monkeypatch.setattr(np, "empty", lambda size, dtype=float, value=value: np.full(size, value).astype(dtype))
        monkeypatch.setattr(np, "empty_like", lambda like, value=value: np.full(like.shape, value, like.dtype))
        results.append(shift(batch, Streams(0)))
    same(*results)


@pytest.mark.parametrize("name", TABLE_12)
@settings(max_examples=6, deadline=None)
@given(
    order=st.permutations(range(6)),
    level=st.integers(1, 5),
    size=st.sampled_from([(64, 64, 3), (13, 31, 3), (8, 8, 1), (33, 32, 1)]),
    seed=st.integers(0, 2**32),
)
def test_an_image_never_depends_on_its_batch(name: str, order: list[int], level: int, size: tuple, seed: int) -> None:
    batch = labelled(6, *size, seed=seed % 5)
    shift = make_shift(name, level)
    whole = shift(batch, Streams(seed, name))
    reordered = shift(batch.take(order), Streams(seed, name))
    same(whole.take(order), reordered)
    streams = Streams(seed, name)
    for row in order[:3]:
        same(whole.take([row]), shift(batch.take([row]), streams))


@pytest.mark.parametrize("name", TABLE_12)
def test_memory_layout_does_not_matter(name: str) -> None:
    batch, shift = labelled(4, 40, 24, 3), make_shift(name, 4)
    expected = shift(batch, Streams(1))
    images = np.empty((8, 41, 25, 4), np.uint8)[::2, 1:, 1:, :3]
    masks = np.empty((24, 40, 4), np.bool_).transpose(2, 1, 0)
    images[:], masks[:] = batch.images, batch.masks
    same(expected, shift(batch.with_images(images, masks=masks), Streams(1)))


@pytest.mark.parametrize("name", PHOTOMETRIC)
def test_photometric_shifts_leave_boxes_and_masks(name: str) -> None:
    batch = labelled(3, 32, 32, 3)
    shifted = make_shift(name, 5)(batch, Streams(0))
    assert shifted.boxes is batch.boxes
    assert shifted.masks is batch.masks


@pytest.mark.parametrize("name", [n for n in TABLE_12 if n not in ("grey", "blur")])
def test_images_differ_by_id_and_seed(name: str) -> None:
    one = pictures(1)
    batch = make_batch(np.concatenate([one, one]))
    first, second = make_shift(name, 5)(batch, Streams(0)).images
    assert (first != second).any()
    assert (first != make_shift(name, 5)(batch, Streams(1)).images[0]).any()


@pytest.mark.parametrize("name", TABLE_12)
def test_the_effect_grows_with_the_level(name: str) -> None:
    batch = make_batch(pictures(96))
    shifted = [make_shift(name, level)(batch, Streams(5, name)).images for level in range(1, 6)]
    similarity = [preview.structural_similarity(batch.images[:24], images[:24]).mean() for images in shifted]
    assert similarity[0] > similarity[4]
    change = [np.abs(images.astype(int) - batch.images).mean() for images in shifted]
    assert change[0] > 0
    assert change == sorted(change)


@pytest.mark.parametrize("name", TABLE_12)
def test_the_effect_grows_on_real_signs(name: str, shared_data: Path) -> None:
    with np.load(shared_data / "gtsrb_test.npz", allow_pickle=False) as archive:
        batch = make_batch(archive["images"][::100])
    weakest, strongest = (preview.level_similarity(batch, make_shift(name, level)) for level in (1, 5))
    assert 1 > weakest > strongest > 0


CUT_OUT = {"frame_width": 640, "frame_height": 400, "crop_x0": 100, "crop_x1": 200, "crop_y0": 150, "crop_y1": 250}
DISTANCES = {
    "depth": {"depth": np.linspace(5, 300, 3 * 32 * 32, dtype=np.float32).reshape(3, 32, 32)},
    "place": {"conditions": {key: np.full(3, value) for key, value in CUT_OUT.items()}},
    "distance": {"conditions": {"distance": np.array([10.0, 40.0, 90.0])}},
}


@pytest.mark.parametrize("known", DISTANCES)
@pytest.mark.parametrize("name", [name for name in SHIFTS if is_built_in(SHIFTS.get(name))])
def test_pixels_depend_on_no_box_mask_or_label(name: str, known: str) -> None:
    """Whatever of the truth a batch holds, the picture is the same: else a model could read the truth off it."""
    images = pictures(3, 32, 32)
    boxes = np.array([[4, 6, 20, 28], [9, 2, 30, 17], [0, 0, 32, 32]], np.float32)
    masks, columns = filled(boxes, 32, 32), DISTANCES[known]
    truths: tuple[dict[str, np.ndarray], ...] = (
        {"boxes": boxes},
        {"masks": masks},
        {"boxes": boxes, "masks": masks, "box_inflation": np.ones(3, np.float32)},
        {"boxes": boxes[::-1].copy(), "masks": ~masks},
    )
    rows = [Batch(("a", "b", "c"), images, np.zeros(3, np.int64), **columns)]
    rows += [Batch(("a", "b", "c"), images, np.array([2, 0, 1]), **columns, **truth) for truth in truths]
    frames = open_dataset((images, np.zeros(3, int), ["sign"]))
    frames.table = replace(frames.table, ids=rows[0].ids)
    levels = len(SHIFTS.get(name).LEVELS)
    for level in sorted({1, (levels + 1) // 2, levels}):
        shift = make_shift(name, level).over(frames)
        first, *others = (shift(batch, Streams(0, name)).images for batch in rows)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_workers_are_the_parallelism() -> None:
    assert cv2.getNumThreads() == 1


# ---------------------------------------------------------------- the formula of each shift


def blended(image: np.ndarray, other: np.ndarray, factor: float) -> np.ndarray:
    return (1 - factor) * image.astype(float) + factor * other


@pytest.mark.parametrize("kind", [Noise, Fog])
@pytest.mark.parametrize("factor", [0.0, 0.2, 0.5, 0.7])
def test_noise_and_fog_blend(kind: type, factor: float) -> None:
    batch = make_batch(pictures(3, 31, 45))
    layer = kind(factor=1.0)(batch, Streams(3)).images
    result = kind(factor=factor)(batch, Streams(3)).images
    assert np.abs(result - blended(batch.images, layer, factor)).max() <= 0.5 + 1e-4


def test_noise_is_uniform_and_independent() -> None:
    batch = make_batch(np.zeros((20, 64, 64, 3), np.uint8))
    noise = Noise(factor=1.0)(batch, Streams(0)).images
    counts = np.bincount(noise.ravel(), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4
    red, green = noise[..., 0].ravel(), noise[..., 1].ravel()
    assert abs(np.corrcoef(red, green)[0, 1]) < 0.02
    assert abs(np.corrcoef(red[:-1], red[1:])[0, 1]) < 0.02


def test_fog_is_a_soft_light_cloud() -> None:
    batch = make_batch(np.zeros((20, 64, 64, 3), np.uint8))
    fog = Fog(factor=1.0)(batch, Streams(0)).images
    np.testing.assert_array_equal(fog[..., 0], fog[..., 2])
    grey = fog[..., 0].astype(int)
    assert grey.min() >= 144
    assert np.ptp(grey, axis=(1, 2)).min() >= 90
    assert np.abs(np.diff(grey, axis=2)).max() <= 20


def test_grey_is_luma() -> None:
    batch = make_batch(pictures(2))
    luma = batch.images @ np.array([0.299, 0.587, 0.114])
    grey = Grey(factor=1.0)(batch, Streams(0)).images
    assert np.abs(grey - luma[..., None]).max() <= 0.6
    assert (grey == grey[..., :1]).all()
    half = Grey(factor=0.5)(batch, Streams(0)).images
    assert np.abs(half - blended(batch.images, luma[..., None], 0.5)).max() <= 0.8
    single = make_batch(pictures(2, channels=1))
    np.testing.assert_array_equal(Grey(factor=1.0)(single, Streams(0)).images, single.images)


@pytest.mark.parametrize("kind", [Snow, Rain])
def test_precipitation_adds_its_texture_once_per_intensity(kind: type) -> None:
    batch = make_batch(pictures(4, 48, 64))
    dark = batch.with_images(np.zeros_like(batch.images))

    def fall(on: Batch, *intensities: float) -> np.ndarray:
        return kind(intensities=intensities)(on, Streams(2)).images.astype(int)

    first = fall(dark, 0.4)
    second = fall(dark, 0.4, 0.3) - first
    assert first.min() == 0
    assert first.max() > 40
    assert (second >= 0).all()
    assert second.max() > 30
    assert (second != first).mean() > 0.2, "every addition draws its own crop"
    np.testing.assert_array_equal(fall(batch, 0.4, 0.3), np.minimum(255, batch.images + fall(dark, 0.4, 0.3)))
    assert np.abs(fall(dark, 0.8) - 2 * first).max() <= 1
    np.testing.assert_array_equal(fall(batch), batch.images)
    assert fall(batch, 10.0).max() == 255


def test_rain_falls_and_snow_has_no_direction() -> None:
    dark = make_batch(np.zeros((40, 64, 64, 1), np.uint8))

    def ratio(kind: type) -> float:
        layer = kind(intensities=(1.0,))(dark, Streams(0)).images.astype(float)
        return float(np.abs(np.diff(layer, axis=2)).mean() / np.abs(np.diff(layer, axis=1)).mean())

    assert ratio(Rain) > 2
    assert 0.9 < ratio(Snow) < 1.1


@pytest.mark.parametrize(("height", "width"), [(64, 64), (32, 48), (224, 200), (10, 8)])
@pytest.mark.parametrize("sigma", [0.0, 1.5, 3.5])
def test_blur_is_gaussian_and_scales_with_the_image(height: int, width: int, sigma: float) -> None:
    batch = make_batch(np.random.default_rng(0).integers(0, 256, (1, height, width, 3), dtype=np.uint8))
    scaled = sigma * min(height, width) / 64
    reference = ndimage.gaussian_filter(
        batch.images[0].astype(float), (scaled, scaled, 0), radius=(math.ceil(3 * scaled),) * 2 + (0,), mode="mirror"
    )
    assert np.abs(Blur(sigma=sigma)(batch, Streams(0)).images[0] - reference).max() <= 0.51


def test_rotation_angles_are_uniform_and_bounded() -> None:
    n = 600
    boxes = np.tile(np.array([[95.0, 49.5, 96.0, 50.5]], np.float32), (n, 1))
    batch = make_batch(np.zeros((n, 100, 100, 1), np.uint8), boxes=boxes)
    moved = Rotation(degrees=30.0)(batch, Streams(0)).boxes
    x, y = (moved[:, 0] + moved[:, 2]) / 2 - 50, (moved[:, 1] + moved[:, 3]) / 2 - 50
    angles = np.degrees(np.arctan2(-y, x))
    assert np.abs(angles).max() <= 30 + 1e-3
    assert stats.kstest(angles, stats.uniform(-30, 60).cdf).pvalue > 1e-3


def test_perspective_corners_move_inwards_and_are_rescaled() -> None:
    white = make_batch(np.full((200, 64, 64, 1), 255, np.uint8))
    shrunk = Perspective(strength=0.6, scale=1.0)(white, Streams(0)).images[..., 0] / 255
    # The mean of 1 - 0.6 u is 0.7: in the mean the image keeps 0.7 x 0.7 of its area, and nothing leaves the frame.
    assert shrunk.mean(axis=(1, 2)).mean() == pytest.approx(0.49, abs=0.02)
    assert (shrunk[:, 32, 32] == 1).all()
    fitted = Perspective(strength=0.6, scale=0.7)(white, Streams(0)).images[..., 0] / 255
    assert 0.75 < fitted.mean() < 0.95
    batch = make_batch(pictures(2, 40, 64))
    np.testing.assert_array_equal(Perspective(strength=0, scale=1)(batch, Streams(0)).images, batch.images)


def test_perspective_scale_is_a_zoom_about_the_centre() -> None:
    batch = labelled(3, 64, 64, 3)
    zoomed = Perspective(strength=0, scale=0.5)(batch, Streams(0))
    centre = geometry.crop_and_resize(batch, np.full(3, 16), np.full(3, 16), 32, 32)
    np.testing.assert_array_equal(zoomed.boxes, centre.boxes)
    np.testing.assert_allclose(zoomed.images[:, 1:-1, 1:-1], centre.images[:, 1:-1, 1:-1].astype(int), atol=1)


def test_crop_cuts_whole_pixels_and_maps_box_edges_exactly() -> None:
    n = 300
    batch = make_batch(np.repeat(pictures(1), n, axis=0), boxes=np.tile(np.float32([20, 15, 40, 50]), (n, 1)))
    moved = Crop(size=54)(batch, Streams(0))
    left, top = 20 - moved.boxes[:, 0] * 54 / 64, 15 - moved.boxes[:, 1] * 54 / 64
    assert set(left.round(4)) == set(top.round(4)) == set(range(11)), "every whole offset, both borders included"
    np.testing.assert_allclose(moved.boxes[:, 2:] - moved.boxes[:, :2], [[20 * 64 / 54, 35 * 64 / 54]] * n, rtol=1e-6)
    for row in range(5):
        y, x = round(top[row]), round(left[row])
        window = batch.images[row, y : y + 54, x : x + 54].astype(float)
        places = (np.arange(64) + 0.5) * 54 / 64 - 0.5
        grid = np.meshgrid(places, places, indexing="ij")
        reference = [ndimage.map_coordinates(window[..., c], grid, order=1, mode="nearest") for c in range(3)]
        assert np.abs(moved.images[row] - np.stack(reference, axis=-1)).max() <= 1.0


def test_crop_of_small_and_oblong_images() -> None:
    batch = make_batch(pictures(1, 8, 32), boxes=np.float32([[0, 0, 32, 8]]))
    for level, rows, columns in ((1, 7, 31), (5, 6, 27)):
        moved = geometry.crop_and_resize(batch, np.array([0]), np.array([0]), rows, columns)
        streams_at_zero = [make_shift("crop", level)(batch, Streams(seed)).images for seed in range(200)]
        assert any((images == moved.images).all() for images in streams_at_zero)


def test_reflection_is_a_gaussian_blurred_square() -> None:
    dark = make_batch(np.zeros((50, 64, 64, 3), np.uint8))
    glare = Reflection(size=16)(dark, Streams(0)).images[..., 0].astype(int)
    fine = 9  # The reference: a square of 16 pixels on a grid nine times as fine, read at the pixel centres.
    square = np.zeros((127 * fine, 127 * fine))
    middle, half = 127 * fine // 2, 8 * fine
    square[middle - half : middle + half + 1, middle - half : middle + half + 1] = 255
    blob = ndimage.gaussian_filter(square, 4 * fine, truncate=5)[fine // 2 :: fine, fine // 2 :: fine]
    centres = [tuple(np.argwhere(image == image.max()).mean(axis=0).astype(int)) for image in glare]
    assert len(set(centres)) > 40
    for image, (y, x) in zip(glare, centres, strict=True):
        assert 8 <= y < 56
        assert 8 <= x < 56
        assert np.abs(image - blob[63 - y : 127 - y, 63 - x : 127 - x]).max() <= 3
    bright = make_batch(pictures(3))
    result, blobs = (Reflection(size=24)(batch, Streams(9)).images for batch in (bright, dark.take(range(3))))
    np.testing.assert_array_equal(result, np.minimum(255, bright.images.astype(int) + blobs))


# ---------------------------------------------------------------- boxes, masks and pixel centres


def test_quarter_turns_are_exact_to_the_edge() -> None:
    batch = labelled(4, 33, 33, 3)
    turned = geometry.warp_affine(batch, geometry.rotations(np.full(4, np.pi / 2), 33, 33))
    np.testing.assert_array_equal(turned.images, np.rot90(batch.images, axes=(1, 2)))
    np.testing.assert_array_equal(turned.masks, np.rot90(batch.masks, axes=(1, 2)))
    np.testing.assert_allclose(filled(turned.boxes.round(3), 33, 33), turned.masks)
    half = geometry.warp_affine(batch, geometry.rotations(np.full(4, np.pi), 33, 33))
    np.testing.assert_array_equal(half.images, batch.images[:, ::-1, ::-1])


def test_perspectives_agree_with_opencv() -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[0, 0], [80, 0], [80, 50], [0, 50]], np.float32)
    moved = (corners + rng.uniform(-9, 9, (20, 4, 2))).astype(np.float32)
    ours = geometry.perspectives(moved.astype(float), 50, 80)
    for matrix, target in zip(ours, moved, strict=True):
        np.testing.assert_allclose(matrix, cv2.getPerspectiveTransform(corners, target), atol=1e-6, rtol=1e-5)


def corner_points(matrix: np.ndarray, size: int) -> np.ndarray:
    points = matrix @ np.array([[0, size, size, 0], [0, 0, size, size], [1, 1, 1, 1]], float)
    return (points[:2] / points[2]).T.astype(np.float32)


@pytest.mark.parametrize("name", ["rotation", "perspective"])
def test_edge_pixels_are_painted_and_nothing_beyond(name: str) -> None:
    white = make_batch(np.full((20, 40, 40, 3), 255, np.uint8))
    rng = np.random.default_rng(1)
    if name == "rotation":
        matrices = geometry.rotations(rng.uniform(-0.5, 0.5, 20), 40, 40)
        moved = geometry.warp_affine(white, matrices)
    else:
        square = np.array([[0, 0], [40, 0], [40, 40], [0, 40]], float)
        matrices = geometry.perspectives(square * 0.9 + 2 + rng.uniform(-6, 6, (20, 4, 2)), 40, 40)
        moved = geometry.warp_perspective(white, matrices)
    for matrix, image in zip(matrices, moved.images[..., 0], strict=True):
        outline = corner_points(matrix, 40)
        for y in range(40):
            for x in range(40):
                inside = cv2.pointPolygonTest(outline, (x + 0.5, y + 0.5), True)
                assert image[y, x] == 255 or inside < 0.9, (x, y, inside)
                assert image[y, x] == 0 or inside > -0.9, (x, y, inside)
                assert abs(inside) > 0.02 or 60 < image[y, x] < 195, "half of a pixel on the outline is painted"


def test_white_stays_white_under_crop() -> None:
    white = make_batch(np.full((9, 64, 64, 3), 255, np.uint8), masks=np.ones((9, 64, 64), np.bool_))
    moved = Crop(size=54)(white, Streams(0))
    assert (moved.images == 255).all()
    assert moved.masks.all()


@pytest.mark.parametrize("name", GEOMETRIC)
@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(8, 70), st.integers(8, 70)),
    level=st.integers(1, 5),
    seed=st.integers(0, 2**20),
)
def test_a_moved_mask_lies_in_the_moved_box(name: str, size: tuple[int, int], level: int, seed: int) -> None:
    batch = labelled(4, *size, 1, seed)
    moved = make_shift(name, level)(batch, Streams(seed))
    for mask, (x0, y0, x1, y1) in zip(moved.masks, moved.boxes, strict=True):
        rows, columns = np.nonzero(mask)
        if len(rows) == 0:
            continue
        assert not np.isnan(x0), "a visible mask has a box"
        # A pixel belongs to the mask when its centre does: centres lie in the box, outer pixel edges half a pixel off.
        assert columns.min() + 0.5 >= x0 - 0.01
        assert columns.max() + 0.5 <= x1 + 0.01
        assert rows.min() + 0.5 >= y0 - 0.01
        assert rows.max() + 0.5 <= y1 + 0.01
        assert 0 <= x0 < x1 <= size[1]
        assert 0 <= y0 < y1 <= size[0]


def test_crop_keeps_box_and_mask_tight() -> None:
    batch = labelled(60, 64, 64, 1)
    moved = Crop(size=54)(batch, Streams(0))
    np.testing.assert_array_equal(filled(np.ceil(moved.boxes - 0.5), 64, 64), moved.masks)


def test_boxes_outside_and_absent_are_nan() -> None:
    boxes = np.float32([[0, 0, 5, 5], [np.nan] * 4, [-9, 2, -1, 8], [2, 2, 2, 9], [-5, 4, 80, 30]])
    right_by_ten = np.tile(np.array([[1.0, 0, -10], [0, 1, 0], [0, 0, 1]]), (5, 1, 1))
    moved = geometry.move_boxes(boxes, right_by_ten, 40, 64)
    assert np.isnan(moved[:4]).all()
    np.testing.assert_array_equal(moved[4], [0, 4, 54, 30])


def test_box_of_a_turned_object_is_around_its_corners() -> None:
    box = np.float32([[40, 40, 60, 60]])
    turned = geometry.move_boxes(box, geometry.rotations(np.array([np.pi / 4]), 100, 100), 100, 100)
    reach = 10 * math.sqrt(2)
    np.testing.assert_allclose(turned, [[50 - reach, 50 - reach, 50 + reach, 50 + reach]], rtol=1e-6)


# ---------------------------------------------------------------- textures, parameters, preview


@pytest.mark.parametrize("texture", [textures.snow, textures.rain])
@pytest.mark.parametrize("resolution", [4, 2, 1, 0.5, 0.125])
def test_textures_tile_and_are_frozen(texture: object, resolution: float) -> None:
    tile = texture(resolution)
    assert tile.shape == (256 * resolution, 256 * resolution)
    assert texture(resolution) is tile
    with pytest.raises(ValueError, match="read-only"):
        tile[0, 0] = 1
    for axis in (0, 1):
        steps = np.abs(np.diff(np.concatenate([tile, tile], axis=axis).astype(int), axis=axis))
        seam = np.take(steps, tile.shape[0] - 1, axis=axis)
        assert seam.mean() < 2 * steps.mean() + 1


def test_textures_keep_their_brightness_at_every_resolution() -> None:
    for texture in (textures.snow, textures.rain):
        means = [texture(resolution).mean() for resolution in (4, 2, 1, 0.5)]
        assert max(means) - min(means) < 1
        assert 5 < means[0] < 60


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("noise", {"factor": 1.1}),
        ("noise", {"factor": math.nan}),
        ("grey", {"factor": -0.1}),
        ("fog", {"factor": "much"}),
        ("fog", {"factor": True}),
        ("snow", {"intensities": 1.0}),
        ("snow", {"intensities": (1.0, -1.0)}),
        ("rain", {"intensities": "11"}),
        ("perspective", {"strength": 0.7, "scale": 1.0}),
        ("perspective", {"strength": 0.2, "scale": 0.0}),
        ("perspective", {"strength": 0.2}),
        ("blur", {"sigma": -1}),
        ("rotation", {"degrees": 181}),
        ("crop", {"size": 65}),
        ("crop", {"size": 0}),
        ("reflection", {"size": 0}),
        ("fog", {"strength": 0.5}),
    ],
)
def test_bad_parameters_are_named(name: str, parameters: dict) -> None:
    with pytest.raises(InputError, match=f"shift {name}"):
        make_shift(name, 1, {1: parameters})


def test_unknown_names_and_levels() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fog'"):
        make_shift("fogg", 1)
    with pytest.raises(InputError, match=r"levels \[1, 2, 3, 4, 5\], not 6"):
        make_shift("fog", 6)


def test_own_tables_and_configuration() -> None:
    snow = make_shift("snow", 7, {7: {"intensities": [0.5, 2]}})
    assert snow == Snow(level=7, intensities=(0.5, 2))
    assert snow.parameters() == {"intensities": (0.5, 2)}
    assert hash(snow) == hash(Snow(level=7, intensities=(0.5, 2)))


def test_similarity_agrees_with_an_independent_formula() -> None:
    first, second = pictures(3, 40, 52), make_shift("noise", 2)(make_batch(pictures(3, 40, 52)), Streams(0)).images
    ours = preview.structural_similarity(first, second)

    def mean(values: np.ndarray) -> np.ndarray:
        return ndimage.gaussian_filter(values, 1.5, radius=5, mode="reflect")

    for value, a, b in zip(ours, first @ preview.LUMA, second @ preview.LUMA, strict=True):
        luminance = (2 * mean(a) * mean(b) + 6.5025) / (mean(a) ** 2 + mean(b) ** 2 + 6.5025)
        spread_a, spread_b = mean(a**2) - mean(a) ** 2, mean(b**2) - mean(b) ** 2
        structure = (2 * (mean(a * b) - mean(a) * mean(b)) + 58.5225) / (spread_a + spread_b + 58.5225)
        assert value == pytest.approx((luminance * structure).mean(), abs=1e-6)


def test_similarity_at_its_edges() -> None:
    images = pictures(2)
    np.testing.assert_allclose(preview.structural_similarity(images, images), 1.0)
    dark, light = np.full((1, 5, 9, 1), 50, np.uint8), np.full((1, 5, 9, 1), 100, np.uint8)
    expected = (2 * 50 * 100 + 6.5025) / (50**2 + 100**2 + 6.5025)
    assert preview.structural_similarity(dark, light)[0] == pytest.approx(expected)
    with pytest.raises(InputError, match="no images"):
        preview.level_similarity(make_batch(pictures(0)), make_shift("fog", 1))
    with pytest.raises(InputError, match="shapes"):
        preview.structural_similarity(images, images[:1])


@pytest.mark.parametrize("shape", [(2, 32, 32, 3), (3, 300, 500, 3), (1, 28, 28, 1), (1, 8, 90, 3), (0, 32, 32, 3)])
def test_contact_sheet_shows_the_original_and_every_level(shape: tuple[int, ...]) -> None:
    batch = make_batch(pictures(*shape))
    shifts = [make_shift("fog", level) for level in range(1, 6)]
    sheet = preview.contact_sheet(batch, shifts)
    assert sheet.dtype == np.uint8
    height, width = preview._thumbnail_size(*shape[1:3])
    assert sheet.shape[1] == 6 * (width + preview.GAP) + preview.GAP
    assert max(height, width) <= 256
    assert (sheet[: preview.LINE_HEIGHT] < 128).any(), "there are labels"
    if len(batch):
        shown = sheet[-height - preview.GAP : -preview.GAP, preview.GAP : preview.GAP + width]
        reference = cv2.resize(batch.images[-1], (width, height), interpolation=cv2.INTER_AREA)
        assert np.abs(shown.astype(float).mean() - reference.mean()) < 3


def test_contact_sheet_captions() -> None:
    batch, shifts = make_batch(pictures(1)), [make_shift("rain", 1), make_shift("rain", 2)]
    plain = preview.contact_sheet(batch, shifts)
    assert preview.contact_sheet(batch, shifts, captions=["a\nb", "c"]).shape[0] == plain.shape[0] + preview.LINE_HEIGHT
    with pytest.raises(InputError, match="captions"):
        preview.contact_sheet(batch, shifts, captions=["a"])
