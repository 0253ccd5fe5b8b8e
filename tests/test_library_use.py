"""Parts for people who want only these: shifts as functions and transforms of arrays, metrics with updates."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roadworthy as rw
from roadworthy.core.boxes import tight_boxes
from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import SHIFTS
from roadworthy.data import BuiltinDataset
from roadworthy.shifts.arrays import ShiftFunction
from roadworthy.statistics import GroupBootstrap
from roadworthy.statistics.estimates import Estimate
from test_docs import blocks
from written_code import STUB, formatted

ROOT = Path(__file__).parent.parent
OWN = [name for name in SHIFTS if is_built_in(SHIFTS.get(name))]
NEEDS_DATA = ("sensor_frozen_frame", "sensor_torn_frame")
FURTHER = {"rainfall": {"distance": 40.0}, "fog_veil": {"distance": 40.0}}


@pytest.fixture(scope="module")
def scenes():
    return BuiltinDataset("scenes", n=12).resized((48, 40)).batch(slice(None))


@pytest.mark.parametrize("name", [name for name in OWN if name not in NEEDS_DATA])
def test_every_shift_is_a_function_of_one_image_and_of_a_batch(name, scenes):
    function, further = getattr(rw.shifts, name), FURTHER.get(name, {})
    batch = function(scenes.images, level=2, seed=7, id=scenes.ids, **further)
    assert batch.shape == scenes.images.shape
    assert batch.dtype == np.uint8
    for row in (0, 5):
        one = function(scenes.images[row], level=2, seed=7, id=scenes.ids[row], **further)
        np.testing.assert_array_equal(one, batch[row])
    np.testing.assert_array_equal(batch, function(scenes.images, 2, seed=7, id=scenes.ids, **further))
    grey = scenes.images[0, :, :, 0]
    assert function(grey, 2, **further).shape == grey.shape
    numbered = function(scenes.images[:2], 2, **further)
    np.testing.assert_array_equal(function(scenes.images[1], 2, id=1, **further), numbered[1])


def test_the_seed_and_the_id_decide_what_is_drawn(scenes):
    image = scenes.images[0]
    first = rw.shifts.noise(image)
    assert (first != rw.shifts.noise(image, seed=1)).any()
    assert (first != rw.shifts.noise(image, id="another")).any()
    assert (scenes.images[0] == image).all()


@pytest.mark.parametrize("name", ["rotation", "perspective", "crop", "size", "c_elastic_transform", "fog"])
def test_boxes_and_masks_move_along(name, scenes):
    function = getattr(rw.shifts, name)
    moved = function(scenes.images, 3, seed=1, boxes=scenes.boxes, masks=scenes.masks)
    np.testing.assert_array_equal(moved.masks, function(scenes.images, 3, seed=1, masks=scenes.masks).masks)
    if name != "fog":
        np.testing.assert_array_equal(moved.boxes, tight_boxes(moved.masks))
    one = function(scenes.images[3], 3, seed=1, id=3, boxes=scenes.boxes[3], masks=scenes.masks[3])
    np.testing.assert_array_equal(one.boxes, moved.boxes[3])
    several = function(scenes.images[3], 3, seed=1, id=3, boxes=np.tile(scenes.boxes[3], (20, 1)))
    assert several.masks is None
    np.testing.assert_array_equal(several.image, moved.image[3])
    np.testing.assert_array_equal(
        several.boxes, np.tile(function(scenes.images[3], 3, seed=1, id=3, boxes=scenes.boxes[3]).boxes, (20, 1))
    )
    none = function(scenes.images[3], 3, seed=1, id=3, boxes=[])
    np.testing.assert_array_equal(none.image, moved.image[3])
    assert len(none.boxes) == 0


def test_parameters_stand_in_place_of_a_level_or_beside_one(scenes):
    image = scenes.images[0]
    np.testing.assert_array_equal(rw.shifts.fog(image, factor=0.4), rw.shifts.fog(image, level=2))
    np.testing.assert_array_equal(rw.shifts.fog(image), rw.shifts.fog(image, level=3))
    mud = rw.shifts.c_spatter(image, level=2, liquid="mud")
    assert (mud != rw.shifts.c_spatter(image, level=2)).any()
    with pytest.raises(rw.InputError, match="lacks its parameter \\['scale'\\]"):
        rw.shifts.perspective(image, strength=0.2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda image: rw.shifts.fog(image / 255), "uint8"),
        (lambda image: rw.shifts.fog(image.transpose(2, 0, 1)), "channels first"),
        (lambda image: rw.shifts.fog(image[..., :2]), "an image is"),
        (lambda image: rw.shifts.fog(image, level=9), "levels"),
        (lambda image: rw.shifts.fog(image, faktor=1), "has no parameter"),
        (lambda image: rw.shifts.fog(image, seed=-1), "seed"),
        (lambda image: rw.shifts.fog(image, boxes=[1, 2, 3]), "boxes"),
        (lambda image: rw.shifts.fog(image[None], id="a"), "id="),
        (lambda image: rw.shifts.fog(image, masks=np.ones((3, 3), bool)), "masks"),
        (lambda image: rw.shifts.fog(image, boxes=np.ones((2, 4)), masks=np.ones(image.shape[:2], bool)), "as many"),
        (lambda image: rw.shifts.sensor_frozen_frame(image), "shows other frames of the data"),
        (lambda image: ShiftFunction("fgsm"), "attack on a model"),
        (lambda image: ShiftFunction("fogg"), "did you mean 'fog'"),
        (lambda image: rw.shifts.Transform("fog", seed="x"), "seed"),
        (lambda image: rw.shifts.Transform("fog")(image=image, labels=[1]), "no keyword 'labels'"),
        (lambda image: rw.shifts.Transform("fog")(image=image, bboxes=[(1, 2)]), "x0, y0, x1, y1"),
        (lambda image: rw.shifts.Transform("fog")(image=image, mask=np.ones((2, 2), int)), "a mask has"),
        (lambda image: rw.shifts.Transform(rw.shifts.make_shift("fog", 1), level=2), "complete"),
        (lambda image: rw.metrics.accuracy([[0.5, 0.9]], [0]), "sum to 1"),
        (lambda image: rw.metrics.accuracy([[0.5, 0.5]]), "labels"),
        (lambda image: rw.metrics.Accumulator([]), "at least one metric"),
        (lambda image: rw.metrics.Accumulator("acuracy"), "did you mean 'accuracy'"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(call, sentence, scenes):
    with pytest.raises(rw.InputError, match=re.escape(sentence)):
        call(scenes.images[0])


def test_an_unknown_function_is_an_attribute_error_and_known_ones_are_listed():
    with pytest.raises(AttributeError, match="fogg"):
        _ = rw.shifts.fogg
    with pytest.raises(AttributeError, match="acuracy"):
        _ = rw.metrics.acuracy
    assert {*OWN} <= {*dir(rw.shifts)}
    assert {*OWN} <= {*rw.shifts.__all__}
    assert {"shifts", "metrics", "maite"} <= {*dir(rw)}
    assert "factor" in str(rw.shifts.fog.__signature__)
    assert rw.shifts.fog.__doc__.startswith("Fog: (1 - f) img + f fog")


def test_a_shift_of_a_plugin_is_a_function_too(scenes, monkeypatch):
    from dataclasses import dataclass

    monkeypatch.setattr(SHIFTS, "_members", dict(SHIFTS._members))

    @rw.SHIFTS.register("inverted")
    @dataclass(frozen=True, kw_only=True)
    class Inverted(rw.Shift):
        """Inverted."""

        name = "inverted"
        LEVELS = ({},)

        def __call__(self, batch, streams):
            return batch.with_images(255 - batch.images)

    np.testing.assert_array_equal(rw.shifts.inverted(scenes.images), 255 - scenes.images)
    np.testing.assert_array_equal(rw.shifts.Transform("inverted")(scenes.images[0]), 255 - scenes.images[0])


def test_the_stub_of_the_functions_is_the_one_that_the_registry_gives():
    assert STUB.read_text() == formatted(STUB), "run python tests/written_code.py"


def test_a_transform_takes_pictures_and_arrays_in_any_order_and_process(scenes):
    from PIL import Image

    transform = rw.shifts.Transform("noise", level=3, seed=1)
    arrays = [transform(image) for image in scenes.images]
    again = [pickle.loads(pickle.dumps(transform))(image) for image in scenes.images[::-1]][::-1]
    np.testing.assert_array_equal(arrays, again)
    picture = transform(Image.fromarray(scenes.images[0]))
    assert picture.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(picture), arrays[0])
    assert transform(Image.fromarray(scenes.images[0]).convert("L")).mode == "L"
    with pytest.raises(rw.InputError, match="mode L or RGB, not RGBA"):
        transform(Image.fromarray(scenes.images[0]).convert("RGBA"))
    noise = [image.astype(int) - old for image, old in zip(arrays, scenes.images, strict=True)]
    assert (noise[0] != noise[1]).any()


def test_a_transform_moves_a_mask_of_classes_and_boxes_with_their_labels(scenes):
    image, mask = scenes.images[0], scenes.masks[0]
    labels = np.where(mask, 4, 0).astype(np.uint8)
    labels[:5] = 9
    transform = rw.shifts.Transform("crop", level=5, seed=2)
    corner = (0, 0, 1, 1, "corner")
    moved = transform(image=image, mask=labels, masks=[mask], bboxes=[(*scenes.boxes[0], "sign"), corner])
    np.testing.assert_array_equal(moved["image"], transform(image))
    np.testing.assert_array_equal(
        moved["mask"] == 4, np.where(labels == 4, moved["masks"][0], False) | (moved["mask"] == 4)
    )
    expected = rw.shifts.crop(image, 5, seed=2, id=_content(image), boxes=scenes.boxes[0]).boxes
    assert [box[4] for box in moved["bboxes"]] == ["sign"], "nothing of the corner is left"
    np.testing.assert_array_equal(moved["bboxes"][0][:4], expected)
    both = rw.shifts.crop(image, 5, seed=2, id=_content(image), masks=np.stack([labels == 4, labels == 9])).masks
    np.testing.assert_array_equal(moved["mask"], np.select([both[0], both[1]], [4, 9]))
    assert transform(image=image, bboxes=np.array([[*scenes.boxes[0], 3]]))["bboxes"].shape == (1, 5)
    assert transform(image=image, bboxes=[])["bboxes"] == []


def _content(image):
    from roadworthy.shifts.transforms import content_id

    return content_id(image)


def test_a_transform_works_in_a_torch_data_set(scenes):
    import torch

    transform = rw.shifts.Transform("fog", level=2)

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return len(scenes.images)

        def __getitem__(self, row):
            return torch.from_numpy(transform(scenes.images[row])), int(scenes.labels[row])

    batches = [images for images, _ in torch.utils.data.DataLoader(Images(), batch_size=5)]
    np.testing.assert_array_equal(torch.cat(batches), [transform(image) for image in scenes.images])


def own_metrics():
    """The metrics of the package: other tests may have registered some of their own."""
    functions = {name: rw.METRICS.get(name).of_answers or rw.METRICS.get(name).of_images for name in rw.METRICS}
    return [name for name, function in functions.items() if function.__module__.startswith("roadworthy.")]


@pytest.mark.parametrize("name", own_metrics())
def test_every_metric_is_a_function_of_probabilities_and_labels(name):
    rng = np.random.default_rng(3)
    probabilities, labels = rng.dirichlet(np.ones(4), 60), rng.integers(0, 4, 60)
    metric = getattr(rw.metrics, name)
    value = metric(probabilities, labels)
    assert value == metric(rw.metrics.Answers.from_probabilities(probabilities, labels))
    assert value == pytest.approx(metric(probabilities.tolist(), labels.tolist()))


@st.composite
def answers_in_batches(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(2, 90))
    probabilities = rng.dirichlet(np.full(3, 0.5), n).astype(draw(st.sampled_from([np.float32, np.float64])))
    groups = rng.integers(0, draw(st.integers(1, 80)), n)
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=4)))
    return probabilities, rng.integers(0, 3, n), groups, rng.permutation(n), cuts


@settings(max_examples=30, deadline=None)
@given(answers_in_batches(), st.booleans())
def test_neither_order_nor_batches_change_what_is_computed(given_answers, with_groups):
    probabilities, labels, groups, order, cuts = given_answers
    names = own_metrics()
    whole, parts, other = (rw.metrics.Accumulator(names, resamples=60) for _ in range(3))
    whole.update(probabilities, labels, groups if with_groups else None)
    for number, rows in enumerate(np.split(order, cuts)):
        part = other if number == 1 else parts
        part.update(probabilities[rows], labels[rows], groups[rows] if with_groups else None)
    parts.merge(other)
    assert len(parts) == len(whole)
    assert repr(parts.compute()) == repr(whole.compute())


def test_an_accumulator_bounds_as_the_tables_of_a_run_do():
    rng = np.random.default_rng(0)
    probabilities, labels, groups = rng.dirichlet(np.ones(3), 300), rng.integers(0, 3, 300), rng.integers(0, 100, 300)
    meter = rw.metrics.Accumulator(own_metrics())
    assert meter.compute()["accuracy"].reason == "no images"
    meter.update(probabilities, labels, groups)
    results = meter.compute()
    answers = rw.metrics.Answers.from_probabilities(probabilities, labels)
    for name, estimate in results.items():
        assert estimate.value == pytest.approx(rw.METRICS.get(name)(answers), rel=1e-12), name
        assert estimate.lo < estimate.value < estimate.hi, name
        assert (estimate.n, estimate.groups) == (300, len(np.unique(groups)))
    from roadworthy.statistics import proportion_interval

    expected = proportion_interval(answers.correct, groups.astype(str))
    assert (results["accuracy"].lo, results["accuracy"].hi) == pytest.approx((expected.lo, expected.hi))
    assert results["brier_mean"].hi == pytest.approx(results["brier"].hi / 3)
    drawn = GroupBootstrap(groups.astype(str)).distribution(rw.METRICS.get("ece"), answers)
    assert np.quantile(drawn, 0.2) > results["ece"].lo
    meter.reset()
    meter.update(probabilities, labels)
    without = meter.compute()["accuracy"]
    assert isinstance(without, Estimate)
    assert without.unbounded
    assert "groups" in without.reason


def test_an_accumulator_refuses_what_does_not_fit_and_stays_as_it_was():
    meter = rw.metrics.Accumulator("accuracy")
    meter.update([[0.9, 0.1]], [0], groups=["a"])
    for wrong, sentence in (
        (([[0.9, 0.1]], [0], None), "with every batch or with none"),
        (([[0.9, 0.1]], [2], ["b"]), "within 0..1"),
        (([[0.5, 0.3, 0.2]], [0], ["b"]), "3 classes"),
        (([[0.9, 0.1]], [0], ["a", "b"]), "groups"),
    ):
        with pytest.raises(rw.InputError, match=sentence):
            meter.update(*wrong)
    other = rw.metrics.Accumulator("accuracy")
    other.update([[0.9, 0.1]], [0])
    with pytest.raises(rw.InputError, match="given groups"):
        meter.merge(other)
    assert len(meter) == 1


def test_the_page_about_parts_is_true():
    exec("\n".join(blocks(ROOT / "docs" / "library.md", "python")), {"__name__": "page"})


def test_importing_the_package_imports_none_of_its_parts():
    code = "import sys, roadworthy; print(sorted({'numpy', 'cv2', 'maite', 'roadworthy.shifts'} & {*sys.modules}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
