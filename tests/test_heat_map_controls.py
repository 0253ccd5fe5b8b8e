"""What stands beside heat maps: the chance level, the control without the object, maps in the object's own box."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from roadworthy.core.types import Batch
from roadworthy.metrics.occlusion import (
    PatchGrid,
    chance_precision,
    in_boxes,
    matched_precision,
    occlusion_scores,
)
from roadworthy.models import CallableModel
from roadworthy.models.occlusion import GREY, without_objects
from roadworthy.models.signals import Signals
from roadworthy.protocols.dependability.probes import HeatMaps, MaskedHeatMaps

CELLS = arrays.arrays(np.bool_, (1, 3, 3))
LEVELS = arrays.arrays(np.float64, (1, 3, 3), elements=st.sampled_from([0.25, 0.5, 0.75]))


@given(CELLS)
@settings(max_examples=30, deadline=None)
def test_chance_is_the_mean_precision_of_all_hot_sets_of_any_size(occluding: Any) -> None:
    hides = occluding.ravel()
    for size in (1, 2, 4):
        blind = [hides[list(hot)].mean() for hot in combinations(range(9), size)]
        assert chance_precision(occluding)[0] == pytest.approx(np.mean(blind))


@given(LEVELS, CELLS, st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_the_lowest_cells_are_the_mean_over_all_ways_to_break_ties(maps: Any, occluding: Any, hot: int) -> None:
    left, hides = maps.ravel(), occluding.ravel()
    lowest = np.sort(left)[:hot].sum()
    ways = [hides[list(chosen)].mean() for chosen in combinations(range(9), hot) if left[list(chosen)].sum() <= lowest]
    assert matched_precision(maps, occluding, [hot])[0] == pytest.approx(np.mean(ways))


@given(LEVELS, CELLS, st.sampled_from([0.4, 0.6]))
@settings(max_examples=40, deadline=None)
def test_of_one_map_the_lowest_cells_are_the_hot_ones(maps: Any, occluding: Any, rho: float) -> None:
    scores = occlusion_scores(maps, occluding, rho)
    own = matched_precision(maps, occluding, scores.hot)
    assert own == pytest.approx(scores.precision, nan_ok=True)


def test_a_map_without_differences_is_at_chance() -> None:
    occluding = np.zeros((1, 4, 4), bool)
    occluding[0, 1, 1:3] = True
    for hot in (1, 3, 16):
        assert matched_precision(np.full((1, 4, 4), 0.7), occluding, [hot]) == chance_precision(occluding) == 2 / 16
    assert np.isnan(matched_precision(np.full((1, 4, 4), 0.7), occluding, [0])).all()
    with pytest.raises(ValueError, match="fewer cells than are hot"):
        matched_precision(np.zeros((1, 4, 4)), occluding, [17])


@given(st.floats(0, 8), st.floats(0, 8), st.floats(0.5, 8), st.floats(0.5, 8))
@settings(max_examples=40, deadline=None)
def test_a_linear_map_stays_linear_in_any_box(x: float, y: float, width: float, height: float) -> None:
    """What a map says at a place does not depend on the box; one that rises by a tenth a column rises so in the box."""
    grid = PatchGrid(16, 16, patch=4, stride=2)
    middles = grid.lefts + 2
    maps = np.broadcast_to(middles / 20, (1, *grid.shape))
    own = in_boxes(maps, [[x, y, x + width, y + height]], grid, parts=4)[0]
    places = np.clip(x + width * (np.arange(4) + 0.5) / 4, middles[0], middles[-1])
    assert own == pytest.approx(np.tile(places / 20, (4, 1)))


def test_a_box_that_is_not_known_has_no_map() -> None:
    grid = PatchGrid(8, 8, patch=4, stride=4)
    assert np.isnan(in_boxes(np.ones((1, 2, 2)), [[np.nan] * 4], grid, parts=2)).all()
    with pytest.raises(ValueError, match="a box each"):
        in_boxes(np.ones((2, 2, 2)), [[0, 0, 1, 1]], grid, parts=2)


def one(images: Any, **where: Any) -> Batch:
    return Batch(("a",), images, np.zeros(1, np.int64), **where)


def test_the_whole_box_of_an_object_takes_the_colour_around_it() -> None:
    images = np.zeros((1, 6, 6, 3), np.uint8)
    images[0, :, :3], images[0, :, 3:] = (10, 20, 30), (30, 40, 90)
    mask = np.zeros((1, 6, 6), bool)
    mask[0, 2, 2] = mask[0, 3, 3] = True
    images[0, 2:4, 2:4] = 255
    gone = without_objects(one(images, masks=mask))
    assert (gone.images[0, 2:4, 2:4] == (20, 30, 60)).all(), "the box, not the outline of the mask"
    kept = np.ones((6, 6), bool)
    kept[2:4, 2:4] = False
    assert (gone.images[0][kept] == images[0][kept]).all()
    assert (images[0, 2:4, 2:4] == 255).all(), "the batch itself stays"
    boxes = np.float32([[1.5, 2.0, 3.5, 9.0]])
    assert (without_objects(one(images, boxes=boxes)).images[0, 2:, 1:4] != 255).all()
    nowhere = np.full((1, 4), np.nan, np.float32)
    assert (without_objects(one(images, boxes=nowhere)).images == images).all()
    assert (without_objects(one(images, masks=np.ones((1, 6, 6), bool))).images == GREY).all()


def test_the_control_asks_for_what_the_model_answers_without_the_object() -> None:
    """The object is bright, the road dark: without it the image is read as `dark`, and that is what is followed."""

    def light(images: Any) -> Any:
        bright = images.reshape(len(images), -1).max(axis=1) > 200
        return np.where(bright[:, None], [0.9, 0.1], [0.2, 0.8])

    images, mask = np.full((1, 8, 8, 3), 60, np.uint8), np.zeros((1, 8, 8), bool)
    images[0, :4, :4], mask[0, :4, :4] = 250, True
    model = CallableModel(light, num_classes=2, version="1", name="m")
    arguments = (model, "", "data", {"a": 0}, "grey", PatchGrid(8, 8, 4, 4), 0)
    signals = Signals(model, one(images, masks=mask), 1)
    seen, control = (kind(*arguments).read(signals) for kind in (HeatMaps, MaskedHeatMaps))
    assert seen["map"][0].tolist() == pytest.approx(np.array([[0.2, 0.9], [0.9, 0.9]]))
    assert control["prediction"].tolist() == [1]
    assert control["undisturbed"] == pytest.approx([0.8])
    assert control["own_map"][0] == pytest.approx(np.full((2, 2), 0.8))
    assert control["map"][0] == pytest.approx(np.full((2, 2), 0.2))
    assert HeatMaps(*arguments).fingerprint() != MaskedHeatMaps(*arguments).fingerprint()
