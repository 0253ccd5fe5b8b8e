"""The kind `perception`: networks per task, dropout by placement, ensembles, and what they say of themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roadworthy.uncertainty
from bright_boxes import bright_boxes
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Model
from roadworthy.data.arrays import ArrayDataset
from roadworthy.models import load_model
from roadworthy.models.networks import load_weights
from roadworthy.uncertainty.perception import METHODS, DropoutNetwork

pytest.importorskip("torch")
assert roadworthy.uncertainty

TINY = {"epochs": 1, "batch": 48, "width": 16, "hidden": 8, "augment": False, "threads": 1}


@pytest.fixture(scope="module")
def data() -> ArrayDataset:
    return bright_boxes()


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


def entry(**settings: Any) -> Model:
    return load_model({"perception": "small_convnext", **TINY, **settings}, name="net")


def built(model: Model, data: ArrayDataset, homes: Path) -> Model:
    """The model on its data with everything built, in folders named by hash as in a run."""
    bound = model.with_data({"train": data})
    for part in bound.requires():
        home = homes / part.recipe.hash
        if not home.exists():
            part.build(home, lambda images: None)
        part.load(home)
    return bound


@pytest.mark.parametrize("uncertainty", ["none", "last_layer", "ensemble"])
def test_both_tasks_are_answered_with_the_uncertainty_asked_for(
    uncertainty: str, data: ArrayDataset, homes: Path
) -> None:
    extra = {"none": {}, "ensemble": {"members": 2}}.get(uncertainty, {"passes": 3, "dropout": 0.3})
    model = built(entry(uncertainty=uncertainty, **extra), data, homes)
    answer = model.answer(data.batch(slice(0, 6)), 6)
    assert (model.family, model.uncertainty, model.num_classes) == ("small_convnext", uncertainty, 2)
    assert answer.boxes is not None
    assert answer.probabilities.shape == (6, 2)
    if uncertainty == "none":
        assert answer.box_variance is None
        assert answer.samples is None
    else:
        assert answer.box_variance is not None
        assert (answer.box_variance > 0).all()
        assert answer.samples is not None
        assert answer.samples.shape == (2 if uncertainty == "ensemble" else 3, 6, 2)
        np.testing.assert_allclose(answer.samples.mean(axis=0), answer.probabilities, atol=1e-6)


def test_each_placement_activates_the_layers_of_the_design(data: ArrayDataset, homes: Path) -> None:
    for placement, layers in (("after_backbone", 1), ("full", 5 + 3)):
        model = built(entry(task="boxes", uncertainty=placement, passes=2, dropout=0.3), data, homes)
        assert isinstance(model, DropoutNetwork)
        mc_dropout: Any = model.opened()
        assert len(mc_dropout.layers) == layers
        assert {layer.p for layer in mc_dropout.layers} == {0.3}


def test_the_first_member_of_an_ensemble_is_the_plain_network(data: ArrayDataset) -> None:
    plain = entry().with_data({"train": data}).requires()
    ensemble = entry(uncertainty="ensemble", members=3).with_data({"train": data}).requires()
    assert [part.recipe.hash for part in plain] == [ensemble[0].recipe.hash, ensemble[3].recipe.hash]
    assert len({part.recipe.hash for part in ensemble}) == 6
    assert len({part.recipe.seed for part in ensemble}) == 6


def test_networks_are_trained_anew_for_each_repeat_where_asked(data: ArrayDataset) -> None:
    fixed, anew = (entry(retrain=retrain, uncertainty="head").with_data({"train": data}) for retrain in (False, True))
    assert fixed.for_repeat(2) is fixed
    assert len({part.recipe.seed for repeat in range(3) for part in anew.for_repeat(repeat).requires()}) == 3 * 2
    assert anew.for_repeat(0).fingerprint() == anew.fingerprint()
    ensemble = entry(retrain=True, uncertainty="ensemble", members=2, task="boxes").with_data({"train": data})
    assert len({part.recipe.seed for repeat in range(3) for part in ensemble.for_repeat(repeat).requires()}) == 3 * 2
    known, later = ensemble.facts()["boxes"], ensemble.for_repeat(2).facts()["boxes"]
    assert {**known, "seed": 0} == {**later, "seed": 0}
    assert known["seed"] != later["seed"]


def test_passes_change_the_fingerprint_and_not_the_recipe(data: ArrayDataset) -> None:
    few, many = (entry(task="boxes", uncertainty="head", passes=p).with_data({"train": data}) for p in (2, 20))
    assert few.fingerprint() != many.fingerprint()
    assert [part.recipe.hash for part in few.requires()] == [part.recipe.hash for part in many.requires()]


def test_facts_by_task(data: ArrayDataset) -> None:
    plain = entry(boxes="anchor", loss="diou").with_data({"train": data}).facts()
    ensemble = entry(uncertainty="ensemble").with_data({"train": data}).facts()
    dropped = entry(uncertainty="full").with_data({"train": data}).facts()
    assert plain["boxes"] == {
        **{"passes": 1, "members": 1, "weights": plain["boxes"]["weights"], "boxes": "anchor", "loss": "diou"},
        **{"learning_rate": 2e-3, "dropout": 0.0, "hidden": 8, "seed": plain["boxes"]["seed"]},
    }
    assert (plain["classes"]["loss"], plain["classes"]["boxes"]) == ("cross-entropy", "")
    assert ensemble["classes"]["weights"] == 5 * plain["classes"]["weights"]
    assert ensemble["classes"]["members"] == 5
    assert (dropped["classes"]["passes"], dropped["classes"]["dropout"]) == (20, 0.05)
    assert dropped["boxes"]["weights"] == plain["boxes"]["weights"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"members": 3}, "`members` are for"),
        ({"passes": 3}, "`passes` are for"),
        ({"uncertainty": "ensemble", "dropout": 0.1}, "`dropout` is for"),
        ({"task": "classes", "loss": "iou"}, "`loss` is for networks that answer boxes"),
        ({"task": "boxes", "floor_accuracy": 0.5}, "`floor_accuracy` is for"),
        ({"uncertainty": "ensemble", "members": 1}, "at least 2 members"),
        ({"task": "masks"}, "task"),
        ({"uncertainty": "laplace"}, "uncertainty"),
        ({"search": {"trial": 3}}, "trials"),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        entry(**settings)


@pytest.mark.parametrize("form", ["corners", "anchor"])
def test_a_backbone_starts_from_that_of_a_stored_localizer(form: str, data: ArrayDataset, homes: Path) -> None:
    localizer = built(entry(task="boxes", boxes=form), data, homes)
    stored = homes / localizer.requires()[0].recipe.hash / "network.safetensors"
    tensors, _ = load_weights(stored)
    started: Any = entry(task="classes", weights=str(stored)).with_data({"train": data})
    for name, weight in started.network().backbone.state_dict().items():
        np.testing.assert_array_equal(weight.numpy(), tensors[f"network.backbone.{name}"].numpy())


def test_data_that_it_cannot_learn_from_is_refused_before_the_training(data: ArrayDataset) -> None:
    images = data.batch(slice(0, len(data))).images
    without = ArrayDataset(replace(data.table, boxes=None), images)
    with pytest.raises(InputError, match="has no boxes"):
        entry(task="boxes").with_data({"train": data, "validation": without})
    one = ArrayDataset(replace(data.table, class_names=("a",), labels=np.zeros(len(data), np.int64)), images)
    with pytest.raises(InputError, match="one class"):
        entry(task="classes").with_data({"train": one})


def test_an_unknown_backbone_or_setting_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="small_convnext"):
        load_model({"perception": "small_convnet"})
    with pytest.raises(UnknownName, match="patience"):
        entry(patiense=3)


def test_methods_are_the_placements_and_the_ensemble() -> None:
    assert METHODS == ("none", "last_layer", "after_backbone", "head", "full", "ensemble")
