"""Networks for one task: what they learn, when they stop, and that a kill changes no bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bright_boxes import SIDE, bright_boxes
from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.data import open_dataset
from roadworthy.data.arrays import ArrayDataset
from roadworthy.engine.artifacts import ensure_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.models import task_training
from roadworthy.models import training as common
from roadworthy.models.networks import save_weights
from roadworthy.models.perception import perception_network, task_network
from roadworthy.models.perception.task_network import (
    TaskNetwork,
    TaskSettings,
    default_dropout,
    default_learning_rate,
)

torch = pytest.importorskip("torch")


def small_network(backbone: str, outputs: int, **settings: Any) -> Any:
    """A stand-in of a perception network that trains in milliseconds: one layer as its backbone."""
    nn, (height, width) = torch.nn, settings["size"]
    network = nn.Sequential()
    network.add_module("backbone", nn.Sequential(nn.Flatten(), nn.Linear(settings["channels"] * height * width, 32)))
    drops = [nn.Dropout(settings["p"])] if settings["placement"] != "none" else []
    head = nn.Sequential(nn.ReLU(), nn.Linear(32, settings["hidden"]), nn.ReLU(), *drops)
    head.append(nn.Linear(settings["hidden"], outputs))
    network.add_module("head", head)
    return network


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "THREADS", 1)
    monkeypatch.setattr(task_network, "perception_network", small_network)


@pytest.fixture(scope="module")
def data() -> ArrayDataset:
    return bright_boxes()


def network_of(task: str, **changes: Any) -> TaskNetwork:
    settings = {"epochs": 4, "batch": 16, "patience": 50, "learning_rate": 3e-3, "hidden": 16, "augment": False}
    seed = changes.pop("seed", 0)
    return TaskNetwork(TaskSettings("small_convnext", task=task, **{**settings, **changes}), seed=seed)


class StopAfter:
    """A progress that kills the training once so many images were reported."""

    def __init__(self, images: int) -> None:
        self.left = images

    def __call__(self, images: int) -> None:
        self.left -= images
        if self.left < 0:
            raise KeyboardInterrupt


class Counted:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, images: int) -> None:
        self.images += images


@pytest.mark.parametrize("task", ["classes", "boxes"])
def test_a_kill_changes_no_bit(task: str, data: ArrayDataset, tmp_path: Path) -> None:
    settings = {"augment": True, "placement": "head", "dropout": 0.2}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    competence = network_of(task, **settings).on(data).build(whole)
    with pytest.raises(KeyboardInterrupt):
        network_of(task, **settings).on(data).build(killed, StopAfter(2 * len(data) + 20))
    assert (killed / "checkpoint.safetensors").exists()
    counted = Counted()
    bound = network_of(task, **settings).on(data)
    assert bound.build(killed, counted) == competence
    assert counted.images == bound.work
    for name in ("network.safetensors", "training.json", "network.onnx"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    assert not (killed / "checkpoint.safetensors").exists()


def test_a_classifier_learns_and_answers_by_onnx_runtime(data: ArrayDataset, tmp_path: Path) -> None:
    network = network_of("classes", epochs=12).on(data)
    competence = network.build(tmp_path)
    network.load(tmp_path)
    batch = data.batch(slice(0, 40))
    answer = network.answer(batch, 8)
    assert competence["clean_accuracy"] >= 0.95
    assert (answer.probabilities.argmax(axis=1) == batch.labels).mean() >= 0.95
    assert set(competence) == {
        *("clean_accuracy", "floor", "epochs", "best_epoch", "learning_rate", "dropout", "hidden", "weights")
    }
    assert network.facts()["classes"] | {"loss": "cross-entropy"} == network.facts()["classes"]


@pytest.mark.parametrize(
    ("boxes", "loss"), [("corners", "mae"), ("centre", "mse"), ("anchor", "diou"), ("corners", "iou")]
)
def test_every_loss_and_parametrisation_learns_where_the_box_is(
    boxes: str, loss: str, data: ArrayDataset, tmp_path: Path
) -> None:
    network = network_of("boxes", epochs=12, boxes=boxes, loss=loss).on(data)
    competence = network.build(tmp_path)
    history = json.loads((tmp_path / "training.json").read_text())["history"]
    mean_box = data.batch(slice(0, len(data))).boxes.mean(axis=0)
    constant = np.mean([_iou(mean_box, box) for box in data.batch(slice(0, len(data))).boxes])
    assert competence["iou"] > constant + 0.1
    assert history[-1]["training_loss"] < 0.8 * history[0]["training_loss"]
    network.load(tmp_path)
    batch = data.batch(slice(0, 16))
    answered = network.answer(batch, 16).boxes
    with torch.no_grad():
        images = torch.from_numpy(batch.images).permute(0, 3, 1, 2).float() / 255
        np.testing.assert_allclose(answered, network.trained(tmp_path)(images).numpy() * SIDE, atol=1e-3)
    assert np.mean([_iou(*pair) for pair in zip(answered, batch.boxes, strict=True)]) > constant


def _iou(one: Any, other: Any) -> float:
    x0, y0 = np.maximum(one[:2], other[:2])
    x1, y1 = np.minimum(one[2:], other[2:])
    shared = max(x1 - x0, 0) * max(y1 - y0, 0)
    areas = [max(box[2] - box[0], 0) * max(box[3] - box[1], 0) for box in (one, other)]
    return float(shared / (sum(areas) - shared))


def test_training_stops_patience_epochs_after_the_best_one(data: ArrayDataset, tmp_path: Path) -> None:
    counted = Counted()
    network = network_of("classes", epochs=40, patience=3, learning_rate=0.02).on(data)
    competence = network.build(tmp_path, counted)
    history = json.loads((tmp_path / "training.json").read_text())["history"]
    assert len(history) == competence["epochs"] == competence["best_epoch"] + 3 < 40
    ranked = sorted(history, key=lambda epoch: (-epoch["clean_accuracy"], epoch["loss"], epoch["epoch"]))
    assert ranked[0]["epoch"] == competence["best_epoch"]
    assert counted.images == network.work


def test_validation_data_of_the_study_choose_the_epoch(data: ArrayDataset, tmp_path: Path) -> None:
    validation = bright_boxes(20, seed=5)
    alone, judged = network_of("classes").on(data), network_of("classes").on(data, validation)
    assert alone.recipe.hash != judged.recipe.hash
    by_study = network_of("classes").with_data({"train": data, "validation": validation})
    assert by_study.recipe.hash == judged.recipe.hash
    train_part, validation_part = judged._parts()
    assert (len(train_part), len(validation_part)) == (96, 20)
    held_out = alone._parts()
    assert sum(map(len, held_out)) == 96
    groups = [{data.groups[data.ids.index(image)] for image in part.ids} for part in held_out]
    assert not groups[0] & groups[1]
    assert alone.member(3)._parts()[1].ids == held_out[1].ids


def test_images_without_a_box_are_left_out_and_counted(tmp_path: Path) -> None:
    network = network_of("boxes", epochs=1).on(bright_boxes(40, blank=7))
    assert network.build(tmp_path)["images_without_box"] == 7
    assert sum(map(len, network._parts())) == 33


def test_data_that_cannot_be_learned_from_is_refused(data: ArrayDataset, tmp_path: Path) -> None:
    images, labels = data.batch(slice(0, 8)).images, data.labels[:8]
    with pytest.raises(InputError, match="no boxes"):
        network_of("boxes").on(open_dataset((images, labels, ["a", "b"])))
    with pytest.raises(InputError, match="no boxes"):
        network_of("boxes").on(bright_boxes(40, blank=40)).build(tmp_path)
    with pytest.raises(InputError, match="needs training data"):
        _ = network_of("boxes").recipe
    with pytest.raises(ModelError, match="not trained yet"):
        network_of("boxes").on(data).predict(data.batch([0]))


def test_a_diverging_training_says_what_to_do(data: ArrayDataset, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="lower the learning rate"):
        network_of("boxes", loss="mse", learning_rate=1e30, epochs=6).on(data).build(tmp_path)


def test_defaults_are_the_values_of_the_paper() -> None:
    networks = ("efficientnet_b0", "resnet50", "convnext_tiny")
    rates = {
        placement: [default_dropout(network, "classes", placement) for network in networks]
        for placement in ("last_layer", "after_backbone", "head", "full")
    }
    assert rates == {
        "last_layer": [0.1, 0.2, 0.05],
        "after_backbone": [0.3, 0.35, 0.15],
        "head": [0.05, 0.1, 0.05],
        "full": [0.05, 0.05, 0.05],
    }
    learning = {
        (network, task, placement): default_learning_rate(network, task, placement)
        for network in networks
        for task in ("classes", "boxes")
        for placement in ("none", "full")
    }
    fast = {key for key, rate in learning.items() if rate == 1e-3}
    assert fast == {("efficientnet_b0", "boxes", "full"), *(("convnext_tiny", "boxes", p) for p in ("none", "full"))}
    assert set(learning.values()) == {1e-3, 1e-4}
    settings = TaskSettings("resnet50", task="boxes", placement="head").complete()
    assert (settings.hidden, settings.dropout, settings.boxes, settings.loss) == (128, 0.05, "corners", "mae")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout": 0.1}, "takes no dropout"),
        ({"placement": "head", "dropout": 1.0}, "between 0 and 1"),
        ({"learning_rate": 0.0}, "above 0"),
        ({"floor": 1.5}, "share from 0 to 1"),
        ({"epochs": 0}, "epochs"),
        ({"loss": "giou"}, "loss"),
        ({"schedule": "steps"}, "schedule"),
        ({"boxes": "polar"}, "boxes"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TaskSettings("small_resnet", **{"task": "boxes", **changes})
    with pytest.raises(UnknownName, match="small_resnet"):
        TaskSettings("small_resnets")


def test_the_recipe_names_all_that_decides_the_weights_and_nothing_else(data: ArrayDataset) -> None:
    plain = network_of("classes").on(data)
    changes = [{"epochs": 5}, {"batch": 8}, {"hidden": 8}, {"augment": True}, {"learning_rate": 1e-4}, {"patience": 3}]
    changes.append({"schedule": "constant"})
    hashes = {network_of("classes", **change).on(data).recipe.hash for change in changes}
    hashes |= {network_of("boxes").on(data).recipe.hash, network_of("classes", seed=1).on(data).recipe.hash}
    assert len(hashes | {plain.recipe.hash}) == len(changes) + 3
    assert network_of("classes", boxes="anchor", loss="iou").on(data).recipe.hash == plain.recipe.hash
    assert network_of("boxes", loss="iou").on(data).recipe.hash != network_of("boxes").on(data).recipe.hash


def test_weights_to_start_from_are_part_of_the_recipe(data: ArrayDataset, tmp_path: Path) -> None:
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for number, file in enumerate(files):
        save_weights(file, {"weight": torch.full((2,), float(number))})
    hashes = {network_of("classes", weights=file).on(data).recipe.hash for file in files}
    assert len(hashes) == 2
    with pytest.raises(InputError, match="there are no weights"):
        _ = network_of("classes", weights=tmp_path / "c.safetensors").on(data).recipe


def test_a_real_small_backbone_trains_as_an_artifact_of_a_run(
    monkeypatch: pytest.MonkeyPatch, data: ArrayDataset, tmp_path: Path
) -> None:
    monkeypatch.setattr(task_network, "perception_network", perception_network)
    network = network_of("boxes", epochs=1, width=16, boxes="anchor").on(data)
    home = ensure_artifact(RunFolder(tmp_path), network.recipe, lambda workshop: network.build(workshop))
    network.load(home)
    answer = network.answer(data.batch(slice(0, 4)), 4)
    assert answer.boxes is not None
    assert answer.boxes.shape == (4, 4)
    competence = json.loads((home / "manifest.json").read_text())["competence"]
    assert competence["weights"] == network.facts()["boxes"]["weights"] > 10_000


def test_an_epoch_meets_augmented_images_without_moved_boxes(
    monkeypatch: pytest.MonkeyPatch, data: ArrayDataset, tmp_path: Path
) -> None:
    met: list[bool] = []
    augment = task_network.augment

    def noted(images: Any, ids: Any, streams: Any, *, geometric: bool) -> Any:
        met.append(geometric)
        return augment(images, ids, streams, geometric=geometric)

    monkeypatch.setattr(task_network, "augment", noted)
    network_of("boxes", epochs=1, augment=True).on(data).build(tmp_path / "boxes")
    assert met
    assert not any(met)
    met.clear()
    network_of("classes", epochs=1, augment=True).on(data).build(tmp_path / "classes")
    assert met
    assert all(met)


def test_networks_that_learn_from_the_same_data_decode_it_once(
    monkeypatch: pytest.MonkeyPatch, data: ArrayDataset
) -> None:
    task_training._LAST_READ.clear()
    met: list[int] = []
    read = task_training.decoded
    monkeypatch.setattr(task_training, "decoded", lambda part: met.append(len(part)) or read(part))
    parts = [network_of(task, seed=seed).on(data)._parts() for task in ("classes", "boxes") for seed in (0, 1)]
    assert sum(met) == len(data)
    rows = np.arange(5)
    assert all((part[0].read(rows) == parts[0][0].read(rows)).all() for part in parts)
    monkeypatch.setattr(task_training, "SHARED_BYTES", 0)
    network_of("classes").on(data)._parts()
    assert not task_training._LAST_READ


def test_the_learning_rate_falls_along_a_cosine_where_asked(
    monkeypatch: pytest.MonkeyPatch, data: ArrayDataset, tmp_path: Path
) -> None:
    rates: dict[str, list[float]] = {"constant": [], "cosine": []}
    step = task_training.TaskCourse.step

    def noted(course: Any, part: str, loss: Any) -> float:
        rates[course.recipe["schedule"]].append(course.optimizers[part].param_groups[0]["lr"])
        return step(course, part, loss)

    monkeypatch.setattr(task_training.TaskCourse, "step", noted)
    for schedule in rates:
        network_of("classes", epochs=2, batch=40, schedule=schedule).on(data).build(tmp_path / schedule)
    assert set(rates["constant"]) == {3e-3}
    assert rates["cosine"] == pytest.approx([3e-3 * (1 + np.cos(np.pi * share)) / 2 for share in (0, 0.25, 0.5, 0.75)])
