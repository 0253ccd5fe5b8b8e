"""Heat maps of localizers: a class is found where the box is that of the true object, else its probability is 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.metrics.occlusion import PatchGrid, chance_precision, matched_precision, occlusion_scores
from roadworthy.models.occlusion import found_probability, most_probable_box, occlusion_map
from roadworthy.models.signals import Signals
from roadworthy.protocols.dependability.heat_maps import BELOW, StoredHeatMaps
from roadworthy.protocols.dependability.probes import HeatMaps, MaskedHeatMaps
from roadworthy.protocols.dependability.settings import Occlusion

SIZE, PATCH = 16, 4


class WhiteBox(Model):
    """Answers the box of the white pixels, and how white the object's first patch is as the probability of class 1."""

    name, num_classes = "white", 2

    def __init__(self, *answers: str) -> None:
        self.capabilities = frozenset(answers)

    def fingerprint(self) -> str:
        """The same for all that answer the same."""
        return " ".join(sorted(self.capabilities))

    def predict(self, batch: Batch) -> Prediction:
        """Boxes of white pixels; the whole image where there are none."""
        boxes = np.zeros((len(batch), 4), np.float32)
        for box, image in zip(boxes, batch.images, strict=True):
            rows, columns = np.nonzero(image[..., 0] == 255)
            box[:] = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) if len(rows) else (0, 0, SIZE, SIZE)
        white = (batch.images[:, 4:8, 4:8, 0].mean(axis=(1, 2)) / 255).astype(np.float32)
        given: dict[str, Any] = {"boxes": boxes, "probabilities": np.stack([1 - white, white], axis=1)}
        return Prediction(**{name: given[name] for name in self.columns})


def squares(**changes: Any) -> Batch:
    """Two images with a white object of 4x8 pixels, two patches wide; the box of the second is marked elsewhere."""
    images = np.zeros((2, SIZE, SIZE, 3), np.uint8)
    images[:, 4:8, 4:12] = 255
    columns = {"boxes": np.float32([[4, 4, 12, 8], [0, 10, 3, 13]])} | changes
    return Batch(("a", "b"), images, np.ones(2, np.int64), **columns)


def test_hiding_half_of_the_object_halves_the_overlap_by_hand() -> None:
    """A patch of 4 pixels hides at most half of the object: its box keeps an IoU of 0.5. One of 6 pixels hides more."""
    both = occlusion_map(WhiteBox("boxes", "probabilities"), squares(), patch=PATCH, stride=PATCH)
    expected = np.ones((4, 4), np.float32)
    expected[1, 1] = 128 / 255  # the box is still the object's, the probability is that of the grey patch
    np.testing.assert_allclose(both[0], expected, atol=1e-6)
    assert not both[1].any(), "a box that misses the true one finds nothing"

    alone = occlusion_map(WhiteBox("boxes"), squares(), patch=6, stride=2)
    assert set(np.unique(alone[0])) == {0, 1}
    assert np.argwhere(alone[0] == 0).tolist() == [[1, 2], [1, 3], [2, 2], [2, 3]], "a quarter of the object is left"


def test_boxes_of_masks_stand_for_boxes_and_neither_is_an_error() -> None:
    masks = np.zeros((2, SIZE, SIZE), bool)
    masks[:, 4:8, 4:12] = True
    maps = occlusion_map(WhiteBox("boxes"), squares(boxes=None, masks=masks), patch=PATCH, stride=PATCH)
    assert maps.all()
    with pytest.raises(InputError, match="needs boxes or masks"):
        occlusion_map(WhiteBox("boxes"), squares(boxes=None), patch=PATCH, stride=PATCH)


def test_a_classifier_needs_no_boxes() -> None:
    maps = occlusion_map(WhiteBox("probabilities"), squares(boxes=None), patch=PATCH, stride=PATCH)
    assert maps[0, 1, 1] == pytest.approx(128 / 255)
    np.testing.assert_array_equal(maps[0], maps[1])


@pytest.mark.parametrize("answers", [("boxes",), ("boxes", "probabilities")])
def test_the_system_of_heat_maps_reads_a_localizer(answers: tuple[str, ...]) -> None:
    model, batch, grid = WhiteBox(*answers), squares(), PatchGrid(SIZE, SIZE, PATCH, PATCH)
    system = HeatMaps(model, model.fingerprint(), "squares", {"a": 5, "b": 7}, "grey", grid, 0)
    columns = system.read(Signals(model, batch.take([0, 1, 1, 1]), 4))
    assert columns["undisturbed"].tolist() == [1, 0]
    assert columns["prediction"].tolist() == [1, 1]
    assert columns["row"].tolist() == [5, 7]
    stored = StoredHeatMaps(
        rows=columns["row"],
        labels=batch.labels,
        maps=columns["map"],
        cells=columns["cells"],
        undisturbed=columns["undisturbed"].astype(np.float64),
        predictions=columns["prediction"],
        choice=Occlusion(),
    )
    assert stored.left_out.tolist() == ["", BELOW]
    scores = occlusion_scores(columns["map"], columns["cells"], rho=0.9)
    if "probabilities" in answers:
        assert (scores.precision[0], scores.covering[0]) == (1, 0.5)


@pytest.mark.parametrize("answers", [("boxes",), ("boxes", "probabilities")])
def test_without_its_object_a_localizer_finds_nothing_and_is_at_chance(answers: tuple[str, ...]) -> None:
    model, grid = WhiteBox(*answers), PatchGrid(SIZE, SIZE, PATCH, PATCH)
    signals = Signals(model, squares().take([0]), 1)
    arguments = (model, model.fingerprint(), "squares", {"a": 5}, "grey", grid, 0)
    seen, control = (kind(*arguments).read(signals) for kind in (HeatMaps, MaskedHeatMaps))
    assert control["undisturbed"].tolist() == [0]
    assert not control["map"].any()
    assert matched_precision(control["own_map"], seen["cells"], [3]) == chance_precision(seen["cells"]) == 2 / 16


def test_the_hash_of_a_classifier_s_heat_maps_stays_and_that_of_a_localizer_is_its_own() -> None:
    grid = PatchGrid(SIZE, SIZE, PATCH, PATCH)
    prints = {
        answers: HeatMaps(WhiteBox(*answers), "same", "squares", {"a": 0}, "grey", grid, 0).fingerprint()
        for answers in (("probabilities",), ("boxes",), ("boxes", "probabilities"))
    }
    assert prints["probabilities",] != prints["boxes",] == prints["boxes", "probabilities"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_the_maximum_over_boxes_is_that_of_each_alone(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    true = np.sort(rng.integers(0, 8, (5, 2, 2)), axis=1).reshape(5, 4).astype(np.float32)
    boxes = np.sort(rng.integers(0, 8, (5, count, 2, 2)), axis=2).reshape(5, count, 4).astype(np.float32)
    probabilities = rng.random((5, count)).astype(np.float32)
    together = most_probable_box(probabilities, boxes, true)
    alone = [most_probable_box(probabilities[:, [k]], boxes[:, [k]], true) for k in range(count)]
    np.testing.assert_array_equal(together, np.max(alone, axis=0))
    assert not most_probable_box(probabilities, boxes, np.full((5, 4), np.nan, np.float32)).any()


def test_an_overlap_of_just_one_half_counts() -> None:
    true, half, less = np.float32([[0, 0, 4, 4]]), np.float32([[0, 0, 4, 2]]), np.float32([[0, 0, 4, 1.99]])
    probabilities = np.float32([[0.3, 0.7]])
    for boxes, expected in ((half, 0.7), (less, 0)):
        answer = Prediction(probabilities, boxes=boxes)
        assert found_probability(answer, np.array([1]), true) == pytest.approx(expected)
