"""MAITE: its models and data sets are tested as they are, our shifts and metrics are components of it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from maite.protocols import generic
from maite.protocols import image_classification as ic
from maite.protocols import object_detection as od
from maite.spotcheck import SpotcheckError, spotcheck
from maite.tasks import evaluate, evaluate_from_predictions

import roadworthy as rw
from roadworthy.core.boxes import tight_boxes
from roadworthy.core.random import Streams
from roadworthy.data import BuiltinDataset, Opening
from roadworthy.shifts import make_shift
from test_docs import blocks
from tiny import import_text, templates
from written_code import BY_METRIC, BY_SHIFT, augmented, class_name, entry_points, formatted

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SIGNS = BuiltinDataset("signs", Opening(size=32), n=84)
NAMES = dict(enumerate(SIGNS.class_names))
MOVING = ("rotation", "perspective", "crop", "size", "c_elastic_transform", "sensor_shifted_rows")


@dataclass
class Target:
    """A target of object detection as users write it."""

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


@dataclass
class MaskedTarget(Target):
    masks: np.ndarray


class Items:
    """A data set of MAITE from lists."""

    def __init__(self, images, targets, metadata, name="my-signs", index2label=None):
        self.metadata = {"id": name} | ({} if index2label is None else {"index2label": index2label})
        self._columns = images, targets, metadata

    def __len__(self):
        return len(self._columns[0])

    def __getitem__(self, index):
        images, targets, metadata = self._columns
        return images[index], targets[index], metadata[index]


class Nearest:
    """The class of the nearest mean picture, for images whose white is `white`."""

    def __init__(self, means, white, names=None):
        self.metadata = {"id": "nearest"} | ({} if names is None else {"index2label": names})
        self._means, self._white = means, white

    def __call__(self, batch):
        pixels = np.stack([np.asarray(image, float).reshape(-1) / self._white for image in batch])
        distances = ((pixels[:, None] - self._means) ** 2).sum(axis=2)
        scores = np.exp((distances.min(axis=1, keepdims=True) - distances) / 10)
        return list(scores / scores.sum(axis=1, keepdims=True))


class Brightest:
    """A detector that answers the box of the pixels above a threshold, and a worse one before it."""

    def __init__(self, threshold):
        self.metadata = {"id": "brightest"}
        self.threshold = threshold

    def __call__(self, batch):
        targets = []
        for image in batch:
            rows, columns = np.nonzero(np.asarray(image).max(axis=0) > self.threshold)
            boxes = np.zeros((0, 4))
            if len(rows):
                boxes = np.array([[0, 0, 2, 2], [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]], float)
            targets.append(Target(boxes, np.zeros(len(boxes), int), np.array([0.1, 0.9])[: len(boxes)]))
        return targets


def signs(kind="uint8", **options):
    """The drawn signs as a data set of MAITE with uint8 pixels, or float ones that go to 1 or 255."""
    batch = SIGNS.batch(slice(None))
    images = batch.images.transpose(0, 3, 1, 2)
    images = {"uint8": images, "0-1": (images / 255).astype(np.float32), "0-255": images.astype(np.float32)}[kind]
    metadata = [
        {"id": row, "sign": group, "hour": row % 24, "night": row % 3 == 0, "shapes": [1]}
        for row, group in enumerate(batch.group)
    ]
    return Items(images, np.eye(14)[batch.labels], metadata, **{"index2label": NAMES, **options})


@pytest.fixture(scope="module")
def squares():
    """White rectangles on black, one an image, as a data set of object detection with boxes and masks."""
    rng = np.random.default_rng(5)
    images, targets, metadata = [], [], []
    for row in range(24):
        top, left = rng.integers(2, 14, 2)
        height, width = rng.integers(6, 16, 2)
        mask = np.zeros((1, 32, 32), bool)
        mask[0, top : top + height, left : left + width] = True
        images.append(np.repeat(np.where(mask, 240, 3).astype(np.uint8), 3, axis=0))
        targets.append(MaskedTarget(tight_boxes(mask), np.array([row % 2]), np.ones(1), mask))
        metadata.append({"id": f"square {row}", "row": row})
    return Items(images, targets, metadata, "squares", {0: "even", 1: "odd"})


def test_evaluate_takes_a_model_and_a_data_set_of_maite_as_its_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {"__name__": "page"}
    code = "\n".join(blocks(ROOT / "docs" / "maite.md", "python"))
    (tmp_path / "page.py").write_text(code)
    exec(compile(code, str(tmp_path / "page.py"), "exec"), page)
    run = rw.open_run("runs/maite")
    rows = run.tables["classification"].query("metric == 'accuracy' and shift == 'none'")
    assert (rows["model"].item(), rows["value"].item(), rows["n"].item()) == ("brightest", 1.0, 60)
    assert run.record.first.data.name == "my-signs"
    assert page["results"]["accuracy_lo"] < page["results"]["accuracy"]


@pytest.mark.parametrize(
    ("kind", "white", "shown"),
    [("uint8", 255, "range 0-255, uint8"), ("0-1", 1, "range 0-1, float32"), ("0-255", 255, "range 0-255, float32")],
)
def test_a_model_is_shown_images_in_the_form_of_the_data_set(kind, white, shown):
    model, data = Nearest(templates(), white, NAMES), signs(kind)
    report = rw.check(model, data)
    assert report.ok
    assert shown in str(report)
    answers = np.concatenate([model([image]) for image in data._columns[0]])
    assert report.accuracy == (answers.argmax(axis=1) == SIGNS.labels).mean()


def test_a_model_on_other_data_needs_its_range():
    model = Nearest(templates(), 1, NAMES)
    with pytest.raises(rw.InputError, match="MAITE does not say which pixels model nearest expects"):
        rw.load_model(model)
    loaded = rw.load_model(model, range="0-1")
    assert (loaded.name, loaded.class_names) == ("nearest", SIGNS.class_names)
    batch = SIGNS.batch(slice(0, 5))
    expected = np.stack(model(batch.images.transpose(0, 3, 1, 2).astype(np.float32) / 255))
    np.testing.assert_allclose(loaded.answer(batch, 8).probabilities, expected, atol=1e-5)
    assert rw.load_model(Nearest(templates() + 0.01, 1, NAMES), range="0-1").fingerprint() != loaded.fingerprint()


def test_a_model_that_answers_logits_is_known_by_its_answers():
    class Logits(Nearest):
        def __call__(self, batch):
            return [50 * row - 7 for row in super().__call__(batch)]

    loaded = rw.load_model(Logits(templates(), 255), range="uint8")
    assert loaded.outputs == "logits"
    assert loaded.num_classes == 14


def test_a_data_set_of_maite_becomes_ids_labels_groups_conditions_and_pixels():
    data = rw.maite.Dataset(signs("0-1"), group="sign")
    batch, expected = data.batch([3, 40]), SIGNS.batch([3, 40])
    np.testing.assert_array_equal(batch.images, expected.images)
    assert batch.ids == ("3", "40")
    assert batch.group == expected.group
    np.testing.assert_array_equal(data.labels, SIGNS.labels)
    assert data.class_names == SIGNS.class_names
    assert {name: column.tolist() for name, column in batch.conditions.items()} == {
        "hour": [3, 16],
        "night": ["true", "false"],
    }
    assert any("'shapes'" in note for note in data.notes)
    assert any("rounded to 256 values" in note for note in data.notes)
    assert rw.open_dataset(signs(), size=(16, 16), limit=14).batch(slice(None)).images.shape == (14, 16, 16, 3)
    assert rw.open_dataset(signs()).fingerprint() == rw.maite.Dataset(signs()).fingerprint() != data.fingerprint()
    without = rw.open_dataset(signs(index2label=None), classes=[f"sign {index}" for index in range(14)])
    assert without.class_names[3] == "sign 3"
    soft = Items([np.zeros((1, 8, 8), np.uint8)] * 2, [[0.2, 0.5, 0.3], [0, 0, 1]], [{"id": "a"}, {"id": 1}])
    assert rw.open_dataset(soft).labels.tolist() == [1, 2]
    assert rw.open_dataset(soft).ids == ("a", "1")


ONE = np.full((3, 4, 4), 100, np.uint8)
HOT = np.array([1.0, 0.0])


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        ((ONE, HOT), "must be (image, target, metadata)"),
        ((ONE, HOT, {"name": "a"}), "must have an id"),
        ((ONE, HOT, {"id": 1.5}), "must have an id"),
        ((ONE.transpose(1, 2, 0), HOT, {"id": 1}), "(C, H, W) with C = 1 or 3, not (4, 4, 3): its channels come last"),
        ((ONE, 1, {"id": 1}), "make a class index one-hot"),
        ((ONE, [0.2, 0.2], {"id": 1}), "sum to 1"),
        ((ONE, [0.5, 0.5], {"id": 1}), "no single largest class"),
        ((ONE, [0.2, 0.3, 0.5], {"id": 1}), "unlike the items before"),
        ((ONE.astype(np.float32), HOT, {"id": 1}), "images of several types, float32, uint8"),
        ((ONE[:1], HOT, {"id": 1}), "has 1 channels, the images before 3"),
        ((ONE, HOT, {"id": 0}), "image ids must be unique"),
        ((ONE, Target(np.ones((1, 4)), np.zeros(1, int), np.ones(1)), {"id": 1}), "items before have none"),
    ],
)
def test_an_item_that_is_not_maites_is_one_sentence(item, sentence):
    class Data(Items):
        def __getitem__(self, index):
            return item if index == 1 else (ONE, HOT, {"id": 0})

    with pytest.raises(rw.InputError) as error:
        rw.open_dataset(Data([ONE] * 2, [HOT] * 2, [{"id": 0}] * 2))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("image", "form"),
    [
        (np.array([0.0, 1.0]), "0-1"),
        (np.array([0.0, 200.0]), "0-255"),
        (np.array([0, 200]), "0-255"),
        (np.array([0, 1]), "cannot be told whether white is 1 or 255"),
        (np.array([0.0, 1.7]), "cannot be told whether white is 1 or 255"),
        (np.array([-2.1, 2.6]), "they were normalised"),
        (np.array([0.0, 300.0]), "they were normalised"),
        (np.array([0.0, np.nan]), "NaN"),
        (np.array([False, True]), "pixels are numbers"),
    ],
)
def test_the_range_of_pixels_is_decided_over_all_images_or_refused(image, form):
    images = [np.full((1, 2, 2), value) for value in image]
    data = Items(images, [HOT] * 2, [{"id": 0}, {"id": 1}])
    if form in ("0-1", "0-255"):
        assert rw.maite.Dataset(data).form.range == form
        return
    with pytest.raises(rw.InputError, match=form):
        rw.open_dataset(data)
    if "told" in form:
        assert rw.maite.Dataset(data, range="0-255").batch([1]).images.max() <= 2


def test_a_data_set_that_changes_its_images_is_refused():
    class Random(Items):
        def __getitem__(self, index):
            image, target, metadata = super().__getitem__(index)
            return image + np.random.default_rng().random(image.shape) / 1e3, target, metadata

    data = rw.open_dataset(Random([np.full((3, 4, 4), 0.5)] * 2, [HOT] * 2, [{"id": 0}, {"id": 1}]))
    with pytest.raises(rw.InputError, match="another image than before"):
        data.batch([0])


def test_a_detector_is_tested_as_a_localizer(squares):
    report = rw.check(Brightest(120), squares)
    assert report.ok
    assert report.boxes.iou == 1.0, "the box of the highest score counts"
    assert "boxes: corners pixels" in str(report)
    opened = rw.open_dataset(squares)
    assert opened.class_names == ("even", "odd")
    np.testing.assert_array_equal(opened.batch([4]).boxes, squares[4][1].boxes)
    several = Target(np.ones((3, 4)), np.zeros(3, int), np.ones(3))
    for target, number in ((several, "3 objects"), (Target(np.empty((0, 4)), np.empty(0), np.empty(0)), "no object")):
        with pytest.raises(rw.InputError, match=number):
            rw.open_dataset(Items([ONE], [target], [{"id": 0}]))


def test_a_detector_is_evaluated_by_the_suite_of_localizers(squares, tmp_path):
    """Without a suite it is the one that can ask the model; one that cannot says which can."""
    options = {"criteria": [{"id": "R1", "metric": "iou", "where": {"set": "fog_1"}, "at_least": 0.7}]}
    run = rw.evaluate(Brightest(120), squares, out=tmp_path / "run", progress=rw.no_progress, **options)
    table = run.tables["localization"].query("metric == 'iou' and view == 'all'").set_index("set")
    assert table["value"]["test"] == 1.0
    assert table["value"]["noise_5"] < 0.5, "noise is brighter than the threshold"
    assert len(table) == 1 + 8 * 3
    assert (run.verdict().status, {*table["model"]}) == ("pass", {"brightest"})
    assert not any("foreign" in note for note in run.record.first.data.notes), "no set outside is shown"
    with pytest.raises(rw.InputError, match=r"suite quick@1 has no model to ask: model brightest .*suite='localizati"):
        rw.evaluate(Brightest(120), squares, suite="quick", out=tmp_path / "quick")
    with pytest.raises(rw.InputError, match="suite localization@1 makes no use of `outliers=`"):
        rw.evaluate(Brightest(120), squares, outliers=squares, out=tmp_path / "outliers")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_default_of_a_dataclass_that_a_model_makes_counts_for_its_identity(tmp_path):
    """Targets of detectors are dataclasses more often than not, and the constructor of one has no source."""

    def model_with(default):
        text = (
            "from dataclasses import dataclass\n@dataclass\nclass Answer:\n"
            f"    boxes: object\n    labels: object\n    scores: object = {default}\n"
            "class Detector:\n    metadata = {'id': 'detector'}\n    def __call__(self, batch):\n"
            "        return [Answer([[0, 0, 1, 1]], [0]) for _ in batch]\n"
        )
        return import_text(text, tmp_path / "detector.py").Detector()

    prints = [rw.load_model(model_with(default), range="uint8").fingerprint() for default in ("(0.5,)", "(0.7,)")]
    assert prints[0] != prints[1]


@pytest.mark.parametrize("name", [*MOVING, "fog"])
@pytest.mark.parametrize("with_masks", [True, False])
def test_boxes_move_as_in_the_localization_protocol(name, with_masks, squares):
    """The batch that the protocol shows holds the same images and boxes under the same random numbers."""
    strong = {"push": 9.6, "sigma": 0.32, "skew": 3.0} if name == "c_elastic_transform" else {}
    augmentation = rw.maite.Augmentation(name, level=3, seed=4, **strong)
    images, targets, metadata = zip(*(squares[row] for row in range(len(squares))), strict=True)
    plain = [Target(target.boxes, target.labels, target.scores) for target in targets]
    moved_images, moved, _ = augmentation((images, targets if with_masks else plain, metadata))
    batch = rw.Batch(
        tuple(datum["id"] for datum in metadata),
        np.stack(images).transpose(0, 2, 3, 1),
        np.zeros(len(images), np.int64),
        boxes=np.concatenate([target.boxes for target in targets]),
        masks=np.concatenate([target.masks for target in targets]) if with_masks else None,
    )
    shift = make_shift(name, 1, {1: strong}) if strong else make_shift(name, 3)
    expected = shift(batch, Streams(4, name))
    np.testing.assert_array_equal(np.stack(moved_images), expected.images.transpose(0, 3, 1, 2))
    for row, target in enumerate(moved):
        left = ~np.isnan(expected.boxes[row : row + 1]).any(axis=1)
        np.testing.assert_array_equal(target.boxes, expected.boxes[row : row + 1][left])
        assert len(target.labels) == len(target.scores) == left.sum()
        if with_masks and name != "fog":
            np.testing.assert_array_equal(target.boxes, tight_boxes(target.masks))
    if name != "fog":
        assert any((target.boxes != old.boxes).any() for target, old in zip(moved, targets, strict=True))


def test_boxes_of_which_nothing_is_left_go_with_their_labels_and_scores():
    image = np.zeros((3, 64, 64), np.uint8)
    boxes = np.array([[0, 0, 1, 1], [20, 20, 40, 40], [10, 30, 50, 60]], float)
    target = Target(boxes, np.array([5, 6, 7]), np.eye(3))
    crop = rw.maite.Augmentation("crop", size=32)
    _, (moved,), _ = crop(([image], [target], [{"id": 0}]))
    assert moved.labels.tolist() == [6, 7]
    np.testing.assert_array_equal(moved.scores, np.eye(3)[1:])
    _, (empty,), _ = crop(([image], [Target(np.empty((0, 4)), np.empty(0), np.empty(0))], [{"id": 0}]))
    assert empty.boxes.shape == (0, 4)


@pytest.mark.parametrize("kind", ["uint8", "0-1", "0-255"])
def test_an_augmentation_keeps_the_form_of_images_and_does_not_depend_on_batches(kind):
    images, targets, metadata = signs(kind)._columns
    before = [image.copy() for image in images]
    augmentation = rw.maite.Augmentation("noise", level=3, seed=1, range="0-1" if kind == "uint8" else kind)
    whole, same_targets, same_metadata = augmentation((images, targets, metadata))
    parts = [augmentation((images[k : k + 5], targets[k : k + 5], metadata[k : k + 5]))[0] for k in range(80, -1, -5)]
    np.testing.assert_array_equal(np.stack(whole), np.concatenate(parts[::-1]))
    np.testing.assert_array_equal(np.stack(images), np.stack(before))
    assert whole[0].dtype == images.dtype
    assert whole[0].shape == images[0].shape
    np.testing.assert_array_equal(np.stack(same_targets), targets)
    assert same_metadata == metadata
    bytes_of = {"uint8": 1, "0-1": 255, "0-255": 1}[kind]
    expected = rw.shifts.noise(SIGNS.batch([7]).images[0], level=3, seed=1, id="7")
    np.testing.assert_allclose(whole[7] * bytes_of, expected.transpose(2, 0, 1), atol=1e-4)
    assert (
        rw.maite.Augmentation("noise", 3, 2, range=augmentation.range)((images, targets, metadata))[0][0] != whole[0]
    ).any()


def test_tensors_come_back_as_tensors():
    import torch

    fog = rw.maite.Augmentation("fog", level=1)
    (image,), _, _ = fog(([torch.zeros(3, 8, 8)], [HOT], [{"id": 0}]))
    assert isinstance(image, torch.Tensor)
    assert image.dtype == torch.float32


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        (([np.full((3, 4, 4), 7.0)], [HOT], [{"id": 0}]), "float pixels above 1: give `range='0-255'`"),
        (([np.full((3, 4, 4), -1.0)], [HOT], [{"id": 0}]), "pixels lie outside 0-1"),
        (([np.full((3, 4, 4), 7)], [HOT], [{"id": 0}]), "pixels are uint8 or float, not int64"),
        (([ONE], [HOT], [{}]), "must have an id"),
        (([ONE], [HOT], []), "as many targets and metadata as images"),
        (([ONE], [Target(np.ones((2, 4)), np.ones(1), np.ones(2))], [{"id": 0}]), "give as many of each"),
    ],
)
def test_a_batch_that_cannot_be_disturbed_is_one_sentence(batch, sentence):
    with pytest.raises(rw.InputError) as error:
        rw.maite.Augmentation("fog", level=1)(batch)
    assert sentence in str(error.value)


@pytest.mark.parametrize("batch_size", [1, 13])
def test_maites_own_evaluate_runs_with_our_augmentation_and_metric(batch_size):
    model, data = Nearest(templates(), 1), signs("0-1")
    metric = rw.maite.Metric(["accuracy", "ece", "brier"], group="sign")
    checked = spotcheck(evaluate, ai_problem="image_classification")
    fog = rw.maite.Augmentation("fog", level=4, seed=3)
    results, answers, batches = checked(
        model=model,
        metric=metric,
        dataset=data,
        augmentation=fog,
        batch_size=batch_size,
        return_preds=True,
        return_augmented_data=True,
    )
    probabilities = np.concatenate(answers)
    assert results["accuracy"] == rw.metrics.accuracy(probabilities, SIGNS.labels)
    assert results["ece"] == pytest.approx(rw.metrics.ece(probabilities, SIGNS.labels))
    assert 0 < results["accuracy_lo"] < results["accuracy"] < results["accuracy_hi"] < 1
    whole = fog(data._columns)[0]
    np.testing.assert_array_equal(np.concatenate([images for images, _, _ in batches]), np.stack(whole))
    clean, _, _ = evaluate(model=model, metric=rw.maite.Metric("accuracy"), dataset=data)
    assert list(clean) == ["accuracy"]
    assert clean["accuracy"] > results["accuracy"]


def test_maites_own_evaluate_runs_with_boxes(squares):
    checked = spotcheck(evaluate, ai_problem="object_detection")
    rotation = rw.maite.Augmentation("rotation", level=2, seed=3)
    metric = rw.maite.BoxMetric(["iou", "iou_at_50", "diou"], group="id")
    kinds = {"model": Brightest(120), "metric": metric, "dataset": squares}
    clean, _, _ = checked(**kinds, batch_size=5)
    assert clean["iou"] == 1.0
    turned, answers, batches = checked(
        **kinds, augmentation=rotation, batch_size=5, return_preds=True, return_augmented_data=True
    )
    assert 0.8 < turned["iou"] < 1, "the box of the turned mask"
    assert turned["iou_lo"] < turned["iou"] < turned["iou_hi"]
    again = evaluate_from_predictions(
        metric=metric,
        pred_batches=answers,
        target_batches=[targets for _, targets, _ in batches],
        metadata_batches=[metadata for _, _, metadata in batches],
    )
    assert again == turned


def test_spotcheck_would_notice_a_component_that_is_not_maites():
    class Bad(Nearest):
        def __call__(self, batch):
            return [row[None] for row in super().__call__(batch)]

    with pytest.raises(SpotcheckError):
        spotcheck(evaluate, ai_problem="image_classification")(model=Bad(templates(), 255), dataset=signs())


def test_metrics_take_logits_and_refuse_what_does_not_fit():
    metric, logits = rw.maite.Metric("accuracy", outputs="logits"), [np.array([3.0, 9.0])]
    metric.update(logits, [HOT], [{"id": 0}])
    metric.update([], [], [])
    assert metric.compute() == {"accuracy": 0.0}
    metric.reset()
    assert np.isnan(metric.compute()["accuracy"])
    for bad, sentence in (
        (lambda: rw.maite.Metric("accuracy").update(logits, [HOT], [{"id": 0}]), "sum to 1"),
        (lambda: rw.maite.Metric("accuracy", group="sign").update([HOT], [HOT], [{"id": 0}]), "under 'sign'"),
        (lambda: rw.maite.Metric("accuracy").update([HOT], [HOT], []), "as many answers"),
        (lambda: rw.maite.BoxMetric("box_nll"), "unknown metric of boxes"),
        (lambda: rw.maite.Metric("acuracy"), "did you mean 'accuracy'"),
    ):
        with pytest.raises(rw.InputError, match=sentence):
            bad()


def test_entry_points_are_those_of_maites_groups_and_stand_for_every_shift_and_metric():
    groups = {group: names for group, names in PROJECT["entry-points"].items() if group.startswith("maite.")}
    assert groups == entry_points(), "python tests/written_code.py prints them"
    tasks = {"image_classification": ic, "object_detection": od}
    for group, names in groups.items():
        _, _, task, component = group.split(".")
        assert getattr(generic, component) in getattr(tasks[task], component).__mro__
        for value in names.values():
            module, _, name = value.partition(":")
            assert isinstance(getattr(import_module(module), name), type)
    for file in (BY_SHIFT, BY_METRIC):
        assert file.read_text() == formatted(file), "run python tests/written_code.py"


@pytest.mark.parametrize("name", augmented())
def test_the_class_of_every_shift_is_an_augmentation(name):
    cls = getattr(import_module("roadworthy.maite.by_shift"), class_name(name))
    augmentation = cls(seed=2)
    assert isinstance(augmentation, generic.Augmentation)
    assert augmentation.applied.name == name
    assert augmentation.metadata["id"].startswith(f"roadworthy {name} level ")


def test_the_components_satisfy_the_protocols_of_maite():
    metrics = import_module("roadworthy.maite.by_metric")
    for metric in (rw.maite.Metric("ece"), rw.maite.BoxMetric(), metrics.Accuracy(group="id"), metrics.IouAt50()):
        assert isinstance(metric, generic.Metric)
    assert isinstance(signs(), generic.Dataset)
    assert isinstance(Nearest(templates(), 1), generic.Model)
