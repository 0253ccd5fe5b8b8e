"""Sensor faults, objects of another size and dark images: their levels, formulas, boxes, and what loses the label."""

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
from scipy import ndimage, stats

from batches import filled, labelled, make_batch, pictures, same
from roadworthy import shifts
from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import SHIFTS, Dataset, Shift
from roadworthy.core.types import Batch
from roadworthy.data import Subset, open_dataset
from roadworthy.engine.plan import PlannedStimulus
from roadworthy.preview import write_preview
from roadworthy.shifts import THESIS_SHIFTS, make_shift, preview
from roadworthy.shifts.appearance import Dark, Size
from roadworthy.shifts.sensor import (
    BlackFrame,
    FrozenFrame,
    HalfFrame,
    MissingChannel,
    PixelFaults,
    ShiftedRows,
    SmearedRows,
    StuckColumns,
    TornFrame,
    WhiteFrame,
)

LEVELS: dict[str, dict[str, list[float]]] = {
    "size": {"factor": [1.1, 1.2, 1.3, 1.45, 1.6]},
    "dark": {"gain": [0.7, 0.55, 0.4, 0.3, 0.2]},
    "sensor_pixel_faults": {"share": [0.01, 0.03, 0.06, 0.1, 0.2]},
    "sensor_black_frame": {"loss": [0.8, 0.9, 0.95, 0.98, 1]},
    "sensor_white_frame": {"loss": [0.8, 0.9, 0.95, 0.98, 1]},
    "sensor_shifted_rows": {"rows": [16, 12, 8, 4, 2], "reach": [0.1, 0.2, 0.3, 0.4, 0.5]},
    "sensor_smeared_rows": {"share": [0.2, 0.4, 0.6, 0.8, 1], "start": [0.6, 0.45, 0.3, 0.15, 0]},
    "sensor_stuck_columns": {"share": [0.05, 0.15, 0.3, 0.5, 0.8]},
    "sensor_missing_channel": {"loss": [0.2, 0.4, 0.6, 0.8, 1]},
    "sensor_half_frame": {"missing": [0.2, 0.35, 0.5, 0.65, 0.8]},
    "sensor_frozen_frame": {"lag": [1, 2, 5, 10, 30]},
    "sensor_torn_frame": {"lag": [1, 2, 5, 10, 30], "share": [0.2, 0.35, 0.5, 0.65, 0.8]},
}
MOVING = ("size", "sensor_shifted_rows")
LABEL_LOST = {
    ("sensor_black_frame", 5),
    ("sensor_white_frame", 5),
    ("sensor_shifted_rows", 5),
    ("sensor_smeared_rows", 5),
    *(("sensor_frozen_frame", level) for level in range(1, 6)),
}


def frames_of(batch: Batch) -> Dataset:
    """A data set whose images and ids are those of the batch."""
    data = open_dataset((batch.images, np.zeros(len(batch), int), ["sign"]))
    data.table = replace(data.table, ids=batch.ids)
    return data


def shown(name: str, level: int, batch: Batch, streams: Streams, frames: Batch | None = None) -> Batch:
    """The batch under a shift of the data that its images, or the frames given, make up."""
    return over(make_shift(name, level), frames or batch)(batch, streams)


def over(shift: Shift, frames: Batch) -> Shift:
    return shift.over(frames_of(frames)) if len(frames) > 1 else shift


# ---------------------------------------------------------------- what every one keeps


def test_all_are_registered_with_their_levels_behind_the_others() -> None:
    assert [name for name in SHIFTS if name in LEVELS] == list(LEVELS)
    assert list(SHIFTS)[:10] == [
        "noise",
        "grey",
        "snow",
        "rain",
        "fog",
        "perspective",
        "blur",
        "rotation",
        "crop",
        "reflection",
    ]
    assert not set(THESIS_SHIFTS) & set(LEVELS)
    for name, parameters in LEVELS.items():
        for level in range(1, 6):
            assert make_shift(name, level).parameters() == {
                key: values[level - 1] for key, values in parameters.items()
            }


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("shape", [(64, 64, 3), (8, 8, 1), (1, 1, 1), (1, 9, 3), (50, 17, 3), (3, 2, 1)])
def test_every_shape_works_and_the_input_is_left_alone(name: str, shape: tuple[int, int, int]) -> None:
    frames = labelled(3, *shape)
    for n in (0, 1, 3):
        batch = frames.take(range(n))
        before = batch.copy()
        for array in (batch.images, batch.boxes, batch.masks):
            array.flags.writeable = False
        for level in (1, 5):
            shifted = shown(name, level, batch, Streams("law"), frames)
            assert shifted.images.dtype == np.uint8
            assert shifted.images.shape == batch.images.shape
            assert shifted.images.flags.c_contiguous
            assert (shifted.boxes.dtype, shifted.boxes.shape) == (np.float32, (n, 4))
            assert (shifted.masks.dtype, shifted.masks.shape) == (np.bool_, (n, *shape[:2]))
            assert not np.shares_memory(shifted.images, batch.images)
        same(batch, before)


@pytest.mark.parametrize("name", LEVELS)
@settings(max_examples=4, deadline=None)
@given(
    order=st.permutations(range(5)),
    level=st.integers(1, 5),
    size=st.sampled_from([(32, 32, 3), (13, 31, 3), (8, 8, 1)]),
    seed=st.integers(0, 2**32),
)
def test_an_image_never_depends_on_its_batch(name: str, order: list[int], level: int, size: tuple, seed: int) -> None:
    batch = labelled(5, *size, seed=seed % 5)
    shift = over(make_shift(name, level), batch)
    whole = shift(batch, Streams(seed, name))
    same(whole.take(order), shift(batch.take(order), Streams(seed, name)))
    same(whole.take([order[0]]), shift(batch.take([order[0]]), Streams(seed, name)))


@pytest.mark.parametrize("name", LEVELS)
def test_every_pixel_is_painted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = labelled(2, 9, 7, 3)
    shift = over(make_shift(name, 3), batch)
    results = []
    for value in (0, 201):
        monkeypatch.setattr(np, "empty", lambda size, dtype=float, value=value: np.full(size, value).astype(dtype))
        monkeypatch.setattr(np, "empty_like", lambda like, value=value: np.full(like.shape, value, like.dtype))
        results.append(shift(batch, Streams(0)))
    same(*results)


@pytest.mark.parametrize("name", LEVELS)
def test_memory_layout_does_not_matter(name: str) -> None:
    batch = labelled(4, 40, 24, 3)
    shift = over(make_shift(name, 4), batch)
    images = np.empty((8, 41, 25, 4), np.uint8)[::2, 1:, 1:, :3]
    masks = np.empty((24, 40, 4), np.bool_).transpose(2, 1, 0)
    images[:], masks[:] = batch.images, batch.masks
    same(shift(batch, Streams(1)), shift(batch.with_images(images, masks=masks), Streams(1)))


@pytest.mark.parametrize("name", [name for name in LEVELS if name not in MOVING])
def test_boxes_and_masks_stay_where_no_pixel_moves(name: str) -> None:
    batch = labelled(3, 16, 16, 3)
    shifted = shown(name, 5, batch, Streams(0))
    assert shifted.boxes is batch.boxes
    assert shifted.masks is batch.masks


@pytest.mark.parametrize("name", [name for name in LEVELS if name != "sensor_frozen_frame"])
def test_the_effect_grows_with_the_level(name: str) -> None:
    batch = make_batch(pictures(48, 32, 32))
    shifted = [shown(name, level, batch, Streams(5, name)).images for level in range(1, 6)]
    change = [np.abs(images.astype(int) - batch.images).mean() for images in shifted]
    assert change[0] > 0
    assert change == sorted(change)
    similarity = [preview.structural_similarity(batch.images[:12], images[:12]).mean() for images in shifted]
    assert similarity[0] > similarity[4]


@pytest.mark.parametrize("name", LEVELS)
def test_the_label_is_lost_where_nothing_is_left_to_tell_it_by(name: str) -> None:
    lost = {(name, level) for level in range(1, 6) if not make_shift(name, level).keeps_label}
    assert lost == {(fault, level) for fault, level in LABEL_LOST if fault == name}


@pytest.mark.parametrize(
    ("shift", "kept"),
    [
        (BlackFrame(loss=0.998), True),  # 255 x 0.002 = 0.51: white is 1
        (BlackFrame(loss=0.999), False),  # 0.255: white is 0
        (WhiteFrame(loss=0.998), True),
        (WhiteFrame(loss=0.999), False),
        (ShiftedRows(rows=4, reach=0.5), False),
        (ShiftedRows(rows=5, reach=0.5), True),
        (ShiftedRows(rows=1, reach=0.49), True),
        (SmearedRows(share=1, start=0.01), True),
        (SmearedRows(share=0.99, start=0), True),
        (StuckColumns(share=1), False),
        (PixelFaults(share=1), False),
        (HalfFrame(missing=1), False),
        (TornFrame(share=1, lag=1), False),
        (TornFrame(share=0, lag=1), True),
        (Dark(gain=0), False),
        (Dark(gain=0.01), True),
        (Size(factor=64), True),
    ],
)
def test_the_border_between_kept_and_lost(shift: Shift, kept: bool) -> None:
    assert shift.keeps_label is kept
    contrast = make_batch(np.stack([np.zeros((16, 16, 3), np.uint8), np.full((16, 16, 3), 255, np.uint8)]))
    black, white = over(shift, contrast)(contrast.with_images(contrast.images), Streams(0)).images
    if isinstance(shift, BlackFrame | WhiteFrame | Dark):
        assert (black == white).all() != kept


# ---------------------------------------------------------------- the formula of each fault


def test_pixel_faults_are_black_or_white_in_all_channels() -> None:
    grey = make_batch(np.full((40, 32, 32, 3), 100, np.uint8))
    images = PixelFaults(share=0.1)(grey, Streams(0)).images
    assert (images == images[..., :1]).all()
    dead, hot, sound = ((images[..., 0] == value).sum() for value in (0, 255, 100))
    assert dead + hot + sound == 40 * 32 * 32
    for count in (dead, hot):
        assert stats.binomtest(int(count), 40 * 32 * 32, 0.05).pvalue > 1e-4
    places = (images[..., 0] != 100).reshape(40, -1)
    assert len(np.unique(places, axis=0)) == 40, "every image has its own places"
    everywhere = PixelFaults(share=1)(grey, Streams(0)).images
    assert set(np.unique(everywhere)) == {0, 255}
    np.testing.assert_array_equal(PixelFaults(share=0)(grey, Streams(0)).images, grey.images)


@pytest.mark.parametrize("loss", [0.0, 0.3, 0.9, 1.0])
def test_black_and_white_frames_fade(loss: float) -> None:
    batch = make_batch(pictures(2, 16, 16))
    black, white = (kind(loss=loss)(batch, Streams(0)).images for kind in (BlackFrame, WhiteFrame))
    np.testing.assert_array_equal(black, np.rint((1 - loss) * batch.images))
    np.testing.assert_array_equal(white, 255 - np.rint((1 - loss) * (255 - batch.images.astype(int))))
    if loss == 1:
        assert not black.any()
        assert (white == 255).all()


def test_rows_move_in_blocks_and_wrap() -> None:
    batch = labelled(30, 64, 64, 3)
    moved = ShiftedRows(rows=8, reach=0.25)(batch, Streams(0))
    used = set()
    for image, mask, before, mask_before in zip(moved.images, moved.masks, batch.images, batch.masks, strict=True):
        for top in range(0, 64, 8):
            block = slice(top, top + 8)
            steps = [s for s in range(-32, 32) if (np.roll(before[block], s, axis=1) == image[block]).all()]
            assert len(steps) == 1
            np.testing.assert_array_equal(mask[block], np.roll(mask_before[block], steps[0], axis=1))
            used.add(steps[0])
    assert used == set(range(-16, 17)), "every step within a quarter of the width"
    still = ShiftedRows(rows=8, reach=0)(batch, Streams(0))
    same(still, batch)
    single = ShiftedRows(rows=0.1, reach=0.5)(make_batch(pictures(1, 8, 8)), Streams(0)).images[0]
    assert sorted(map(tuple, np.sort(single[..., 0]).tolist())) == sorted(
        map(tuple, np.sort(pictures(1, 8, 8)[0, ..., 0]).tolist())
    ), "rows keep their pixels"


@settings(max_examples=40, deadline=None)
@given(size=st.tuples(st.integers(1, 40), st.integers(1, 40)), level=st.integers(1, 5), seed=st.integers(0, 2**20))
def test_the_box_of_moved_rows_is_that_of_their_mask(size: tuple[int, int], level: int, seed: int) -> None:
    """Exactly, but for a part of full width that lands where it began: both its edges are the border then."""
    batch = labelled(3, *size, 1, seed)
    moved = make_shift("sensor_shifted_rows", level)(batch, Streams(seed))
    for mask, box in zip(moved.masks, moved.boxes, strict=True):
        rows, columns = np.nonzero(mask)
        np.testing.assert_array_equal(box, [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


def test_no_box_stays_no_box_and_fractions_move_along() -> None:
    boxes = np.float32([[np.nan] * 4, [70, 2, 80, 9], [1.25, 2.5, 3.75, 6.5]])
    batch = make_batch(np.zeros((3, 64, 64, 1), np.uint8), boxes=boxes)
    moved = ShiftedRows(rows=64, reach=0.1)(batch, Streams(4)).boxes
    assert np.isnan(moved[:2]).all()
    boxes = {tuple(ShiftedRows(rows=64, reach=0.1)(batch, Streams(seed)).boxes[2].tolist()) for seed in range(100)}
    inside = {(1.25 + step, 2.5, 3.75 + step, 6.5) for step in range(-1, 7)}
    beyond = {(1.25 + step + 64, 2.5, 3.75 + step + 64, 6.5) for step in (-6, -5, -4)}
    assert boxes == inside | beyond | {(0, 2.5, 64, 6.5)}, "one that straddles the border takes the whole width"


def test_smeared_rows_repeat_one_pixel() -> None:
    batch = make_batch(pictures(6, 20, 30))
    smeared = SmearedRows(share=0.4, start=0.5)(batch, Streams(0)).images
    chosen = []
    for image, before in zip(smeared, batch.images, strict=True):
        changed = [row for row in range(20) if (image[row] != before[row]).any()]
        assert len(changed) == 8
        chosen.append(tuple(changed))
        for row in changed:
            np.testing.assert_array_equal(image[row, :15], before[row, :15])
            assert (image[row, 15:] == before[row, 15]).all()
    assert len(set(chosen)) > 1
    bars = SmearedRows(share=1, start=0)(batch, Streams(0)).images
    assert (bars == batch.images[:, :, :1]).all()


def test_stuck_columns_show_one_grey_value() -> None:
    batch = make_batch(pictures(40, 16, 20))
    stuck = StuckColumns(share=0.25)(batch, Streams(0)).images
    values: list[int] = []
    for image, before in zip(stuck, batch.images, strict=True):
        columns = [column for column in range(20) if (image[:, column] != before[:, column]).any()]
        assert len(columns) == 5
        assert all(len(np.unique(image[:, column])) == 1 for column in columns)
        values += [int(image[0, column, 0]) for column in columns]
    assert stats.kstest(values, stats.randint(0, 256).cdf).pvalue > 1e-4


def test_a_channel_fades_and_the_others_stay() -> None:
    batch = make_batch(pictures(60, 8, 8) // 2 + 64)
    faded = MissingChannel(loss=0.5)(batch, Streams(0)).images
    channels = []
    for image, before in zip(faded, batch.images, strict=True):
        (channel,) = [c for c in range(3) if (image[..., c] != before[..., c]).any()]
        np.testing.assert_array_equal(image[..., channel], np.rint(before[..., channel] / 2))
        channels.append(channel)
    assert stats.chisquare(np.bincount(channels, minlength=3)).pvalue > 1e-4
    assert (MissingChannel(loss=1)(batch, Streams(0)).images == 0).any(axis=(1, 2)).sum() == 60


def test_a_grey_image_loses_the_pixels_of_one_colour() -> None:
    batch = make_batch(np.full((60, 4, 6, 1), 200, np.uint8))
    dark = MissingChannel(loss=1)(batch, Streams(0)).images[..., 0] == 0
    red = np.zeros((4, 6), bool)
    red[::2, ::2] = True
    blue = np.roll(red, (1, 1), axis=(0, 1))
    patterns = {pattern.tobytes() for pattern in dark}
    assert patterns == {pattern.tobytes() for pattern in (red, ~(red | blue), blue)}


def test_half_frames_end_early() -> None:
    batch = make_batch(pictures(2, 20, 8) // 2 + 100)
    for missing, rows in ((0.5, 10), (0.24, 5), (0.001, 1), (0.999, 19), (1, 20), (0, 0)):
        images = HalfFrame(missing=missing)(batch, Streams(0)).images
        np.testing.assert_array_equal(images[:, : 20 - rows], batch.images[:, : 20 - rows])
        assert not images[:, 20 - rows :].any()


def test_dark_images() -> None:
    batch = make_batch(pictures(2, 9, 9))
    np.testing.assert_array_equal(Dark(gain=0.4)(batch, Streams(0)).images, np.rint(0.4 * batch.images))


# ---------------------------------------------------------------- another size


def test_size_scales_about_the_centre() -> None:
    n = 200
    batch = make_batch(np.repeat(pictures(1, 48), n, axis=0), boxes=np.tile(np.float32([20, 16, 48, 32]), (n, 1)))
    moved = Size(factor=1.25)(batch, Streams(0))
    larger, smaller = ([32 + s * -12, 24 + s * -8, 32 + s * 16, 24 + s * 8] for s in (1.25, 0.8))
    is_larger = np.isclose(moved.boxes, larger).all(axis=1)
    assert (is_larger | np.isclose(moved.boxes, smaller).all(axis=1)).all()
    assert stats.binomtest(int(is_larger.sum()), n).pvalue > 1e-4
    for row in (int(np.flatnonzero(is_larger)[0]), int(np.flatnonzero(~is_larger)[0])):
        scale = 1.25 if is_larger[row] else 0.8
        down, across = ((np.arange(2 * centre) + 0.5 - centre) / scale + centre - 0.5 for centre in (24, 32))
        grid = np.meshgrid(down, across, indexing="ij")
        reference = [
            ndimage.map_coordinates(batch.images[row, ..., c].astype(float), grid, order=1, mode="nearest")
            for c in range(3)
        ]
        difference = np.abs(moved.images[row] - np.stack(reference, axis=-1))
        assert np.quantile(difference, 0.99) <= 8, "OpenCV rounds places to a 32nd of a pixel"
        assert difference.mean() < 1


def test_size_repeats_the_border_and_leaves_the_mask_empty_there() -> None:
    white = make_batch(np.full((8, 20, 30, 3), 255, np.uint8), masks=np.ones((8, 20, 30), np.bool_))
    moved = Size(factor=2)(white, Streams(1))
    assert (moved.images == 255).all()
    shares = set(moved.masks.mean(axis=(1, 2)).round(2))
    assert shares == {1.0, 0.25}
    np.testing.assert_array_equal(Size(factor=1)(white, Streams(1)).images, white.images)


@settings(max_examples=20, deadline=None)
@given(size=st.tuples(st.integers(8, 50), st.integers(8, 50)), level=st.integers(1, 5), seed=st.integers(0, 2**20))
def test_a_scaled_mask_lies_in_its_box(size: tuple[int, int], level: int, seed: int) -> None:
    batch = labelled(3, *size, 1, seed)
    moved = make_shift("size", level)(batch, Streams(seed))
    inside = filled(np.stack([np.floor(moved.boxes[:, :2]), np.ceil(moved.boxes[:, 2:])], 1).reshape(-1, 4), *size)
    assert not (moved.masks & ~inside).any()


# ---------------------------------------------------------------- frames of the data


@pytest.fixture(scope="module")
def film() -> Dataset:
    """Seven images, each of one grey value: its row times ten."""
    images = np.broadcast_to(np.arange(7, dtype=np.uint8)[:, None, None, None] * 10, (7, 8, 8, 3))
    return open_dataset((images, np.arange(7) % 2, ["a", "b"]))


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        (1, [6, 0, 1, 2, 3, 4, 5]),
        (2, [5, 6, 0, 1, 2, 3, 4]),
        (6, [1, 2, 3, 4, 5, 6, 0]),
        (7, [6, 0, 1, 2, 3, 4, 5]),
        (30, [1, 2, 3, 4, 5, 6, 0]),
    ],
)
def test_a_frozen_frame_is_the_one_before(film: Dataset, lag: int, expected: list[int]) -> None:
    batch = film.batch(slice(None))
    frozen = FrozenFrame(lag=lag).over(film)(batch, Streams(0))
    assert (frozen.images[:, 0, 0, 0] // 10).tolist() == expected
    assert frozen.labels.tolist() == batch.labels.tolist()
    assert frozen.ids == batch.ids
    torn = TornFrame(lag=lag, share=0.25).over(film)(batch, Streams(0))
    np.testing.assert_array_equal(torn.images[:, :6], batch.images[:, :6])
    assert (torn.images[:, 6:, 3, 1] // 10).tolist() == [[row] * 2 for row in expected]


def test_the_order_is_that_of_the_data(film: Dataset) -> None:
    backwards = Subset(film, [6, 5, 4])
    batch = backwards.batch([1])
    assert FrozenFrame(lag=1).over(backwards)(batch, Streams(0)).images[0, 0, 0, 0] == 60
    assert FrozenFrame(lag=1).over(film)(batch, Streams(0)).images[0, 0, 0, 0] == 40


def test_a_stimulus_names_data_and_parameters_alone(film: Dataset) -> None:
    shift = make_shift("sensor_frozen_frame", 3)
    bound = shift.over(film)
    assert bound.over(film) is bound
    assert bound == shift
    assert bound.parameters() == shift.parameters() == {"lag": 5}
    assert repr(bound) == "FrozenFrame(level=3, lag=5)"
    stimulus = shift.stimulus(film.fingerprint(), seed=0)
    planned = PlannedStimulus(stimulus, film, shift)
    assert (planned.show(film.batch([6])).images == 10).all()
    other = replace(planned, data=Subset(film, [6, 3]))
    assert (other.show(film.batch([6])).images == 30).all(), "bound anew"


def test_frames_that_there_are_not(film: Dataset) -> None:
    batch = film.batch([0])
    with pytest.raises(InputError, match=r"call `over\(data\)` first"):
        FrozenFrame(lag=1)(batch, Streams(0))
    with pytest.raises(InputError, match="one image only: give it more"):
        TornFrame(lag=1, share=0.5).over(Subset(film, [3]))
    with pytest.raises(InputError, match="image '6' is not in data set"):
        FrozenFrame(lag=1).over(Subset(film, [1, 2]))(film.batch([6]), Streams(0))
    with pytest.raises(InputError, match="give images of the same data"):
        FrozenFrame(lag=1).over(film)(batch.with_images(batch.images[:, :4]), Streams(0))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("sensor_pixel_faults", {"share": 1.1}),
        ("sensor_black_frame", {"loss": -0.1}),
        ("sensor_white_frame", {"loss": math.nan}),
        ("sensor_shifted_rows", {"rows": 0, "reach": 0.1}),
        ("sensor_shifted_rows", {"rows": 4, "reach": 0.6}),
        ("sensor_smeared_rows", {"share": 0.5}),
        ("sensor_stuck_columns", {"share": True}),
        ("sensor_missing_channel", {"loss": "all"}),
        ("sensor_half_frame", {"missing": 2}),
        ("sensor_frozen_frame", {"lag": 0}),
        ("sensor_frozen_frame", {"lag": 1.5}),
        ("sensor_torn_frame", {"share": 0.5, "lag": -1}),
        ("size", {"factor": 0.9}),
        ("dark", {"gain": 1.2}),
        ("dark", {"loss": 0.5}),
    ],
)
def test_bad_parameters_are_named(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"shift {name}"):
        make_shift(name, 1, {1: parameters})


def test_the_docs_say_the_same() -> None:
    page = (Path(__file__).parent.parent / "docs" / "shifts.md").read_text()
    for name, parameters in LEVELS.items():
        (row,) = [line.split("|") for line in page.splitlines() if line.startswith(f"| {name} |")]
        assert [cell.strip() for cell in row[3:8]] == [
            ", ".join(f"{values[level]:g}" for values in parameters.values()) for level in range(5)
        ]
        assert all(f"`{parameter}`" in row[2] for parameter in parameters)
        if name.startswith("sensor"):
            lost = [level for level in range(1, 6) if (name, level) in LABEL_LOST]
            assert row[8].strip().startswith({5: "always", 1: "level 5", 0: ("at ", "never")}[len(lost)])


def test_the_frozen_frame_of_the_docs() -> None:
    page = (Path(__file__).parent.parent / "docs" / "shifts.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("frozen = ")]
    images = np.repeat(np.arange(9, dtype=np.uint8), 64).reshape(9, 8, 8)
    names: dict[str, Any] = {"shifts": shifts, "Streams": Streams, "data": open_dataset((images, np.zeros(9, int)))}
    exec(line, names)
    assert names["frozen"].images[:, 0, 0, 0].tolist() == [3, 6]


def test_faults_that_need_other_frames_are_previewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.preview.SHIFTS", ["grey", "sensor_frozen_frame", "sensor_torn_frame"])
    images = pictures(3, 16, 16)
    np.savez(tmp_path / "data.npz", images=images, labels=np.arange(3))
    np.savez(tmp_path / "one.npz", images=images[:1], labels=np.zeros(1, int))
    lines = [*write_preview("sensor_torn_frame", str(tmp_path / "data.npz"), tmp_path / "sheet.png", calibrate=True)]
    assert lines[2].split()[:2] == ["sensor_torn_frame", "1"]
    assert cv2.imread(str(tmp_path / "sheet.png")) is not None
    with pytest.raises(InputError, match="one image only"):
        [*write_preview("sensor_torn_frame", str(tmp_path / "one.npz"), tmp_path / "none.png")]
    lines = [*write_preview(None, str(tmp_path / "one.npz"), tmp_path / "all.png")]
    assert [line.partition(":")[0] for line in lines] == [
        "sensor_frozen_frame is left out",
        "sensor_torn_frame is left out",
        "contact sheet",
    ]
