"""The built-in sets: the same pixels always, boxes that fit their masks, balance as stated, frozen drawings."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.core.boxes import tight_boxes
from roadworthy.core.errors import InputError
from roadworthy.data import BuiltinDataset, Opening, open_dataset
from roadworthy.data.signs import PLACE_CONDITIONS, SETS, VIEW_CONDITIONS, VIEWS, balanced
from roadworthy.data.signs.camera import WEATHER, light_of
from roadworthy.data.signs.shapes import FACES
from roadworthy.data.signs.sheet import WIDE, signs_sheet
from roadworthy.data.signs.sprites import DRAWINGS, picture
from roadworthy.data.signs.traffic import SPANS

CURE_TSD = (
    "speed limit, goods vehicles, no overtaking, no stopping, no parking, stop, bicycle, hump, no left, no right, "
    "priority to, no entry, yield, parking"
)
FROZEN = {
    "signs": "49b5c92091e95ba64896a30a3be9d4629515e9ce303e7cbc5ab622798011e298",
    "scenes": "a98bbf651fd121cc4df91f22f9c5ed52908daa00411b0082cc755324601e59f9",
    "scenery": "b6deba7b15ee18e21ad7a313f93c9ad88e2756b1a72aa82194527a384b4349dd",
}


def opened(source: str = "signs", size: object = None, **options: object) -> BuiltinDataset:
    return BuiltinDataset(source, Opening(size=size), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", SETS)
def test_the_drawing_is_frozen(source: str) -> None:
    """Any change of a pixel is a new version of the set: raise VERSION, and these."""
    sha = hashlib.sha256()
    for size, split in ((64, "test"), ((24, 40), "train")):
        batch = opened(source, size, n=700, split=split).batch(range(0, 700, 29))
        sha.update(batch.images.tobytes())
        sha.update(b"" if batch.masks is None else batch.masks.tobytes())
        sha.update(repr((batch.ids, [column.tolist() for column in batch.conditions.values()])).encode())
    assert sha.hexdigest() == FROZEN[source]


def test_classes_are_those_of_cure_tsd() -> None:
    data = opened(n=70)
    assert data.class_names == tuple(CURE_TSD.split(", "))
    assert len(open_dataset("builtin:signs")) == 2100
    assert open_dataset("builtin:scenes").class_names[0] == "traffic sign"
    assert open_dataset("builtin:scenery").class_names == ("scenery",)
    assert data.size == (64, 64)
    assert data.notes == ()


@pytest.mark.parametrize("source", SETS)
def test_pixels_depend_on_nothing_but_the_recipe(source: str) -> None:
    whole = opened(source, 32, n=40).batch(slice(None))
    again = opened(source, 32, n=23)
    order = [22, 3, 3, 17, 0]
    for rows in (order, [5], order):
        part = again.batch(rows)
        assert part.ids == tuple(whole.ids[row] for row in rows)
        assert np.array_equal(part.images, whole.images[rows])
        if whole.masks is not None:
            assert part.masks is not None
            assert np.array_equal(part.masks, whole.masks[rows])
            assert np.array_equal(part.boxes, whole.boxes[rows])
    limited = opened(source, 32, n=40).batch(slice(0, 0))
    assert len(limited) == 0
    for other in ({"seed": 1}, {"split": "train"}):
        assert not np.array_equal(opened(source, 32, n=5, **other).batch([0]).images, whole.images[:1])


def test_a_large_set_is_drawn_when_asked_for_and_not_kept() -> None:
    large, small = opened(n=100_000), opened(n=20)
    assert large._store is None
    assert small._store is not None
    assert np.array_equal(large.batch([7, 2]).images, small.batch([7, 2]).images)
    assert len(large.fingerprint()) == 64


def test_the_fingerprint_is_that_of_the_recipe() -> None:
    data = opened(n=30)
    assert data.fingerprint() == opened(n=30).fingerprint()
    others = [
        opened(n=31),
        opened(n=30, seed=1),
        opened(n=30, split="train"),
        opened("scenes", n=30),
        opened(size=32, n=30),
    ]
    prints = {data.fingerprint(), *(other.fingerprint() for other in others)}
    assert len(prints) == 6
    assert data.resized((32, 32)).fingerprint() == opened(size=32, n=30).fingerprint()
    assert opened(n=40).fingerprint_of(range(30)) == data.fingerprint()
    assert open_dataset({"builtin": "signs", "n": 30}, seed=5).fingerprint() == data.fingerprint()


def test_resizing_draws_anew() -> None:
    data = opened(n=10)
    first = data.batch([4])
    other = data.resized((48, 48))
    assert np.array_equal(other.batch([4]).images, opened(size=48, n=10).batch([4]).images)
    assert np.array_equal(data.batch([4]).images, first.images)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["signs", "scenes"]),
    st.integers(16, 72),
    st.integers(16, 72),
    st.integers(0, 3),
    st.integers(0, 139),
)
def test_boxes_enclose_masks_exactly(source: str, height: int, width: int, seed: int, row: int) -> None:
    batch = opened(source, (height, width), n=140, seed=seed).batch([row])
    assert batch.images.shape == (1, height, width, 3)
    assert batch.boxes is not None
    assert batch.masks is not None
    x0, y0, x1, y1 = batch.boxes[0].astype(int)
    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height
    mask = batch.masks[0]
    outside = mask.copy()
    outside[y0:y1, x0:x1] = False
    assert not outside.any()
    assert mask[y0].any()
    assert mask[y1 - 1].any()
    assert mask[:, x0].any()
    assert mask[:, x1 - 1].any()


@pytest.mark.parametrize("size", [(16, 16), (16, 40), (40, 16)])
def test_the_smallest_pictures_still_show_their_object(size: tuple[int, int]) -> None:
    data = opened("scenes", size, n=700)
    far = np.flatnonzero(data.table.conditions["distance"] == "far")
    masks = data.batch(far.tolist()).masks
    assert masks is not None
    covered = masks.mean(axis=(1, 2))
    assert covered.min() > 0
    assert covered.max() < 0.5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=4))
def test_boxes_of_any_mask(rows: list[list[bool]]) -> None:
    masks = np.array(rows).reshape(-1, 3, 4)
    for box, mask in zip(tight_boxes(masks), masks, strict=True):
        points = np.argwhere(mask)
        if not len(points):
            assert np.isnan(box).all()
        else:
            (y0, x0), (y1, x1) = points.min(axis=0), points.max(axis=0) + 1
            assert box.tolist() == [x0, y0, x1, y1]


def test_scenery_has_no_object() -> None:
    batch = opened("scenery", n=5).batch(slice(None))
    assert batch.boxes is None
    assert batch.masks is None


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(SETS)), st.integers(1, 1500), st.integers(0, 5), st.sampled_from(["test", "train"]))
def test_conditions_are_balanced_within_every_class(source: str, n: int, seed: int, split: str) -> None:
    table = opened(source, n=n, seed=seed, split=split).table
    labels = np.bincount(table.labels, minlength=len(table.class_names))
    assert labels.max() - labels.min() <= VIEWS
    groups = np.array(table.groups)
    _, firsts = np.unique(groups, return_index=True)
    for label in set(table.labels.tolist()):
        for name, levels in VIEW_CONDITIONS.items():
            counts = Counter(table.conditions[name][table.labels == label].tolist())
            assert max(counts[level] for level in levels) - min(counts[level] for level in levels) <= 1
        objects = firsts[table.labels[firsts] == label]
        for name, levels in PLACE_CONDITIONS.items():
            counts = Counter(table.conditions[name][objects].tolist())
            assert max(counts[level] for level in levels) - min(counts[level] for level in levels) <= 1


def test_conditions_do_not_hang_together() -> None:
    conditions = opened(n=7000).table.conditions
    names = list(conditions)
    for one, other in ((a, b) for i, a in enumerate(names) for b in names[i + 1 :]):
        pairs = Counter(zip(conditions[one].tolist(), conditions[other].tolist(), strict=True))
        even = 7000 / len(pairs)
        assert all(abs(count / even - 1) < 0.2 for count in pairs.values()), (one, other)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 3), st.integers(0, 9))
def test_balance_holds_in_every_first_part(levels: int, count: int, classes: int, seed: int) -> None:
    drawn = balanced(levels, count, classes, np.random.default_rng(seed))
    assert drawn.shape == (count, classes)
    for stop in range(1, count + 1):
        for column in drawn[:stop].T:
            counts = np.bincount(column, minlength=levels)
            assert counts.max() - counts.min() <= 1
    longer = balanced(levels, count + 7, classes, np.random.default_rng(seed))
    assert np.array_equal(longer[:count], drawn)


@pytest.mark.parametrize("source", SETS)
def test_a_group_is_one_object_in_several_views(source: str) -> None:
    test, train = opened(source, n=700), opened(source, n=700, split="train")
    assert set(Counter(test.groups).values()) == {VIEWS}
    assert not set(test.groups) & set(train.groups)
    assert not set(test.ids) & set(train.ids)
    for name in PLACE_CONDITIONS:
        places = set(zip(test.groups, test.table.conditions[name].tolist(), strict=True))
        assert len(places) == len(set(test.groups))
    distances = {}
    for group, level in zip(test.groups, test.table.conditions["distance"].tolist(), strict=True):
        distances.setdefault(group, set()).add(level)
    assert min(len(seen) for seen in distances.values()) >= 2


@pytest.mark.parametrize("source", SETS)
def test_pictures_show_their_time_of_day(source: str) -> None:
    batch = opened(source, 32, n=140).batch(slice(None))
    means = batch.images.mean(axis=(1, 2, 3))
    light = [means[batch.conditions["time_of_day"] == time].mean() for time in ("night", "dusk", "day")]
    assert all(bright > 1.3 * dark for dark, bright in pairwise(light))


def test_pictures_show_their_distance_and_weather() -> None:
    for source in ("signs", "scenes"):
        batch = opened(source, 32, n=350).batch(slice(None))
        assert batch.masks is not None
        for label in range(2):
            area = batch.masks.sum(axis=(1, 2)) * (batch.labels == label)
            seen = [
                area[batch.conditions["distance"] == d].sum() / (area[batch.conditions["distance"] == d] > 0).sum()
                for d in ("far", "middle", "near")
            ]
            assert seen[0] < seen[1] < seen[2]
    day = batch.images[batch.conditions["time_of_day"] == "day"].astype(float)
    weather = batch.conditions["weather"][batch.conditions["time_of_day"] == "day"]
    colour = (day.max(axis=3) - day.min(axis=3)).mean(axis=(1, 2))
    contrast = day.mean(axis=3).std(axis=(1, 2))
    assert colour[weather == "clear"].mean() > 1.4 * colour[weather == "cloudy"].mean()
    assert contrast[weather == "fog"].mean() < contrast[weather == "cloudy"].mean()


def test_a_sign_fills_most_of_its_crop_and_never_leaves_it() -> None:
    batch = opened(n=350).batch(slice(None))
    assert batch.boxes is not None
    wide, high = (batch.boxes[:, 2:] - batch.boxes[:, :2]).T
    assert np.maximum(wide, high).min() > 0.45 * 64
    assert batch.boxes.min() >= 0
    assert (batch.boxes[:, :2] > 0).mean() > 0.99


def test_every_drawing_is_within_its_square_and_none_is_empty() -> None:
    for name in DRAWINGS:
        drawn = picture(name, 64)
        assert drawn[..., 3].max() == 255
        assert not drawn[0].any(), name
        assert not drawn[:, -1].any(), name
        assert (drawn[..., :3].max(axis=2) <= drawn[..., 3].astype(int) + 2).all(), name
    assert set(SPANS) | {face for faces in FACES.values() for face in faces} == set(DRAWINGS)


def test_haze_hides_what_is_far() -> None:
    for weather in WEATHER:
        light = light_of("day", weather)
        near, far = (np.array(light.shade((20, 20, 20), nearness)) for nearness in (1.0, 0.05))
        sky = np.array(light.sky[1])
        assert np.abs(far - sky).sum() < np.abs(near - sky).sum()
    assert (
        light_of("day", "fog").veil("far") > light_of("day", "fog").veil("near") > light_of("day", "clear").veil("far")
    )


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"builtin": "sign"}, "unknown builtin data set 'sign': did you mean 'signs'?"),
        ({"builtin": "signs", "n": 0}, "n of at least 1"),
        ({"builtin": "signs", "n": 10**9}, "at most 200,000"),
        ({"builtin": "signs", "n": True}, "n"),
        ({"builtin": "signs", "seed": -1}, "seed"),
        ({"builtin": "signs", "split": "tset"}, "did you mean 'test'?"),
        ({"builtin": "signs", "size": 15}, "at least 16x16, not 15x15"),
        ({"builtin": "signs", "size": [64, 8]}, "at least 16x16, not 64x8"),
        ({"builtin": "scenery", "classes": ["a"]}, "has its own classes"),
        ({"builtin": "signs", "colour": 1}, "unknown option"),
    ],
)
def test_bad_options_get_one_sentence(spec: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        open_dataset(spec)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_size_that_is_too_small_later_is_refused_too() -> None:
    with pytest.raises(InputError, match="at least 16x16"):
        opened(n=5).resized((8, 8))


def test_the_sheet_shows_every_class_and_condition() -> None:
    signs, scenery = signs_sheet("signs", n=210), signs_sheet("scenery", n=90)
    assert signs.shape[1] == scenery.shape[1] == WIDE
    assert signs.shape[0] > scenery.shape[0]
