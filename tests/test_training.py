"""Training: what is kept, that a kill changes no bit, and reference classifiers as artifacts of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roadworthy.core.competence import competence_of
from roadworthy.core.errors import InputError, MissingExtra, ModelError, UnknownName
from roadworthy.core.manifests import check_whole
from roadworthy.core.roles import Buildable, Dataset
from roadworthy.data import split_by_group
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.table import Table
from roadworthy.engine.artifacts import ensure_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.models import ReferenceModel, load_model, softmax, train_classifier, training
from roadworthy.models.networks import load_weights, save_weights, thesis_cnn

torch = pytest.importorskip("torch")

SIZE = 10


def coloured(n: int = 120, seed: int = 0, channels: int = 3) -> ArrayDataset:
    """Three classes told apart by where a bright bar lies, under noise; four images to an object."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) // 4 % 3
    images = rng.integers(0, 120, (n, SIZE, SIZE, channels), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[3 * label : 3 * label + 3] += 100
    ids = tuple(f"i{row}" for row in range(n))
    table = Table(ids=ids, labels=labels, class_names=("a", "b", "c"), groups=tuple(f"g{row // 4}" for row in range(n)))
    return ArrayDataset(table, images)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "THREADS", 1)


@pytest.fixture(scope="module")
def data() -> ArrayDataset:
    return coloured()


def fresh(dropout: float = 0.3, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return thesis_cnn(3, SIZE, width=4, hidden=16, dropout=dropout)


def train(folder: Path, data: Dataset, network: Any = None, **changes: Any) -> dict[str, Any]:
    settings = {"epochs": 4, "batch": 16, "learning_rate": 5e-3, "seed": 3} | changes
    return train_classifier(network or fresh(), data, folder, **settings)


class StopAfter:
    """A progress that kills the training once so many images were reported."""

    def __init__(self, images: int) -> None:
        self.left = images

    def __call__(self, images: int) -> None:
        self.left -= images
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("dropout", [0.0, 0.6])
def test_thesis_network_has_the_layers_of_the_thesis(dropout: float) -> None:
    network = thesis_cnn(14, 64, dropout=dropout)
    kinds = [type(layer).__name__ for layer in network]
    hidden = ["ReLU", "Dropout"] if dropout else ["ReLU"]
    assert kinds == [
        *("Conv2d", *hidden, "Conv2d", *hidden, "MaxPool2d", "Flatten"),
        *("Linear", *hidden, "Linear"),
    ]
    weights = (27 + 1) * 32 + (288 + 1) * 32 + (32 * 32 * 32 + 1) * 128 + (128 + 1) * 14
    assert sum(weight.numel() for weight in network.parameters()) == weights
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 14)
    assert thesis_cnn(5, (9, 12), channels=1)(torch.zeros(1, 1, 9, 12)).shape == (1, 5)


@pytest.mark.parametrize("bad", [{"dropout": 1.0}, {"dropout": -0.1}, {"width": 0}, {"size": 1}, {"num_classes": 0}])
def test_a_network_that_cannot_be_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        thesis_cnn(**{"num_classes": 3, "size": 8} | bad)


def test_training_learns_and_keeps_the_best_epoch(tmp_path: Path, data: ArrayDataset) -> None:
    network = fresh(dropout=0.0)
    competence = train(tmp_path, data, network)
    record = json.loads((tmp_path / "training.json").read_text())
    accuracies = [epoch["accuracy"] for epoch in record["history"]]
    assert competence["clean_accuracy"] == max(accuracies) > 0.9
    assert accuracies[competence["best_epoch"] - 1] == max(accuracies)
    assert competence["floor"] == 0.9
    assert competence["epochs"] == len(accuracies) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["network.safetensors", "training.json"]
    stored, _ = load_weights(tmp_path / "network.safetensors")
    assert all(torch.equal(stored[name], value) for name, value in network.state_dict().items())
    held_out = split_by_group(data, (0.8, 0.2), 3)[1].batch(slice(None))
    with torch.inference_mode():
        answers = network(torch.from_numpy(held_out.images).permute(0, 3, 1, 2).float() / 255).argmax(1).numpy()
    assert (answers == held_out.labels).mean() == competence["clean_accuracy"]


def test_held_out_0_trains_on_every_image_and_is_measured_on_these(
    tmp_path: Path, data: ArrayDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []
    epoch = training._train_epoch

    def spied(torch: Any, course: Any, read: Any, labels: Any, *others: Any) -> float:
        return epoch(torch, course, lambda rows: shown.extend(rows.tolist()) or read(rows), labels, *others)

    monkeypatch.setattr(training, "_train_epoch", spied)
    network, told = fresh(dropout=0.0), []
    competence = train(tmp_path, data, network, epochs=2, held_out=0, keep="last", progress=told.append)
    assert sorted(shown) == sorted([*range(len(data))] * 2)
    assert sum(told) == 2 * len(data)
    images = data.batch(slice(None)).images
    with torch.inference_mode():
        answers = network(torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255).argmax(1).numpy()
    accuracy = (answers == data.labels).mean()
    assert competence == {"training_accuracy": accuracy, "floor": 0.9, "epochs": 2, "kept_epoch": 2}
    record = json.loads((tmp_path / "training.json").read_text())
    assert (record["recipe"]["held_out"], record["recipe"]["keep"], record["kept_epoch"]) == (0, "last", 2)
    assert {*record["history"][1]} == {"epoch", "training_loss", "training_accuracy"}
    judged = competence_of(competence)
    assert judged is not None
    assert (judged.metric, judged.images, judged.undertrained) == (
        "training accuracy",
        "its own training images",
        accuracy < 0.9,
    )


def test_the_last_epoch_is_kept_where_asked(tmp_path: Path, data: ArrayDataset) -> None:
    kept = {}
    for keep in ({}, {"keep": "last"}):
        course = training._Course(fresh(), {"learning_rate": 1e-3, "seed": 0, **keep}, 1)
        for epoch, accuracy in enumerate((0.9, 0.5), 1):
            name, weight = next(iter(course.network.named_parameters()))
            torch.nn.init.constant_(weight, epoch)
            course.close_epoch(training_loss=1.0, accuracy=accuracy, loss=0.1)
        kept[course.kept_epoch] = (float(course.best[name].mean()), course.outcome())
    assert kept == {1: (1.0, {"best_epoch": 1}), 2: (2.0, {"kept_epoch": 2})}
    competence = train(tmp_path, data, keep="last", epochs=2, learning_rate=3e-3)
    history = json.loads((tmp_path / "training.json").read_text())["history"]
    assert competence == {"clean_accuracy": history[1]["accuracy"], "floor": 0.9, "epochs": 2, "kept_epoch": 2}


def test_held_out_0_cannot_choose_an_epoch(tmp_path: Path, data: ArrayDataset) -> None:
    for bad, words in (
        ({"held_out": 0}, "say keep: last"),
        ({"held_out": 1.0}, "below 1"),
        ({"keep": "frist"}, "keep"),
    ):
        with pytest.raises(InputError, match=words):
            train(tmp_path / "new", data, **bad)
        with pytest.raises(InputError, match=words):
            ReferenceModel(**bad)
    assert not (tmp_path / "new").exists()


def test_recipes_name_held_out_and_keep_only_where_they_are_not_the_default(data: ArrayDataset) -> None:
    plain = ReferenceModel("baseline").on(data)
    assert not {"held_out", "keep"} & {*plain.recipe.parameters}, "recipes of before stay as they are"
    assert ReferenceModel("baseline", held_out=0.2, keep="best").on(data).recipe.hash == plain.recipe.hash
    faithful = ReferenceModel("baseline", held_out=0, keep="last").on(data).recipe
    assert (faithful.parameters["held_out"], faithful.parameters["keep"]) == (0, "last")


def test_no_object_is_both_trained_and_validated_on(
    tmp_path: Path, data: ArrayDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Dataset] = []
    reader = training.image_reader
    monkeypatch.setattr(training, "image_reader", lambda part: read.append(part) or reader(part))
    train(tmp_path, data, epochs=1)
    ours, theirs = (set(part.groups) for part in read)
    assert not ours & theirs
    assert len(read[1]) == pytest.approx(0.2 * len(data), abs=4)
    assert len(ours | theirs) == len(set(data.groups))


def test_every_epoch_shows_every_training_image_once_in_an_order_of_its_own(
    tmp_path: Path, data: ArrayDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []
    reader = training.image_reader

    def spied(part: Dataset) -> Any:
        read = reader(part)
        return lambda rows: shown.extend(rows.tolist()) or read(rows) if len(part) > len(data) / 2 else read(rows)

    monkeypatch.setattr(training, "image_reader", spied)
    train(tmp_path, data, epochs=2)
    first, second = shown[: len(shown) // 2], shown[len(shown) // 2 :]
    assert sorted(first) == sorted(second) == list(range(len(first)))
    assert first != second != sorted(second)


def test_of_equal_accuracies_the_lower_loss_is_best() -> None:
    course = training._Course(fresh(), {"learning_rate": 1e-3, "seed": 0}, 1)
    for accuracy, loss in [(0.5, 0.1), (0.9, 0.6), (0.9, 0.4), (0.9, 0.4), (0.8, 0.01)]:
        course.close_epoch(training_loss=1.0, accuracy=accuracy, loss=loss)
    assert course.kept_epoch == 3


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, data: ArrayDataset) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(folder, data, threads=1)
    return folder


def test_a_kill_and_a_resume_change_no_bit_of_a_training_on_all_images(tmp_path: Path, data: ArrayDataset) -> None:
    faithful = {"held_out": 0, "keep": "last", "epochs": 3}
    train(tmp_path / "whole", data, **faithful)
    for killed_at in (121, 359):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / f"{killed_at}", data, progress=StopAfter(killed_at), **faithful)
        train(tmp_path / f"{killed_at}", data, **faithful)
        for name in ("network.safetensors", "training.json"):
            assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / f"{killed_at}" / name).read_bytes()


@pytest.mark.parametrize("killed_at", [30, 121, 250, 475])
def test_a_kill_and_a_resume_change_no_bit(
    tmp_path: Path, data: ArrayDataset, uninterrupted: Path, killed_at: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", data, progress=StopAfter(killed_at))
    assert not (tmp_path / "killed" / "training.json").exists()
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists() == (killed_at > len(data))
    train(tmp_path / "killed", data)
    for name in ("network.safetensors", "training.json"):
        assert (uninterrupted / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()


def test_the_learning_rate_falls_along_a_cosine_and_a_kill_changes_none_of_it(
    tmp_path: Path, data: ArrayDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    step = training.TrainingCourse.step

    def spied(course: training.TrainingCourse, part: str, loss: Any) -> float:
        rates.append(course.optimizers[part].param_groups[0]["lr"])
        return step(course, part, loss)

    monkeypatch.setattr(training.TrainingCourse, "step", spied)
    train(tmp_path / "cosine", data, schedule="cosine")
    steps = 4 * 6  # 96 of 120 images are trained on, 16 at a time
    assert rates == pytest.approx([5e-3 * np.cos(np.pi * number / (2 * steps)) ** 2 for number in range(steps)])
    rates.clear()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", data, schedule="cosine", progress=StopAfter(300))
    train(tmp_path / "killed", data, schedule="cosine")
    weights = [(tmp_path / name / "network.safetensors").read_bytes() for name in ("cosine", "killed")]
    assert weights[0] == weights[1]
    rates.clear()
    train(tmp_path / "constant", data)
    assert set(rates) == {5e-3}


def test_progress_is_told_of_every_image_once_per_epoch_whatever_happened(tmp_path: Path, data: ArrayDataset) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data, progress=StopAfter(300))
    for _ in ("resumed", "finished"):
        told: list[int] = []
        train(tmp_path, data, progress=told.append)
        assert sum(told) == 4 * len(data)


def test_the_seed_decides_the_weights(tmp_path: Path, data: ArrayDataset) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / folder, data, seed=seed, epochs=1)
    one, two, other = ((tmp_path / name / "network.safetensors").read_bytes() for name in "abc")
    assert one == two != other


def test_random_state_and_threads_are_left_as_they_were(tmp_path: Path, data: ArrayDataset) -> None:
    torch.manual_seed(9)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train(tmp_path, data, fresh_after(before), epochs=1, threads=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def fresh_after(state: Any) -> Any:
    network = fresh()
    torch.set_rng_state(state)
    return network


def test_images_that_do_not_fit_in_memory_give_the_same_weights(
    tmp_path: Path, data: ArrayDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "memory", data, epochs=2)
    monkeypatch.setattr(training, "IN_MEMORY_BYTES", 0)
    train(tmp_path / "decoded", data, epochs=2)
    names = ("memory", "decoded")
    assert len({(tmp_path / name / "network.safetensors").read_bytes() for name in names}) == 1


class Spoiled(torch.nn.Module):
    """Answers NaN from some call on."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.inner, self.left = fresh(), calls

    def forward(self, images: Any) -> Any:
        self.left -= 1
        return self.inner(images) * (1.0 if self.left >= 0 else float("nan"))


def test_a_loss_that_is_no_number_stops_and_keeps_the_best_epoch(tmp_path: Path, data: ArrayDataset) -> None:
    with pytest.raises(ModelError, match=r"became nan in epoch 3 of 4: lower the learning rate; epoch [12], the best"):
        train(tmp_path, data, Spoiled(2 * (6 + 1) + 2))
    kept, _ = load_weights(tmp_path / "network.safetensors")
    assert all(torch.isfinite(value).all() for value in kept.values())
    checkpoint, notes = load_weights(tmp_path / "checkpoint.safetensors")
    assert len(json.loads(notes["training"])["history"]) == 2
    assert all(torch.isfinite(value).all() for value in checkpoint.values())


def test_a_loss_that_is_no_number_at_once_says_so(tmp_path: Path, data: ArrayDataset) -> None:
    with pytest.raises(ModelError, match="no epoch was completed"):
        train(tmp_path, data, Spoiled(0))
    with pytest.raises(ModelError, match="loss on held-out images became nan"):
        train(tmp_path / "b", data, Spoiled(6))


@pytest.mark.parametrize("change", [{"seed": 4}, {"batch": 8}, {"epochs": 5}, {"network": fresh(seed=1)}])
def test_a_folder_of_another_training_is_refused(tmp_path: Path, data: ArrayDataset, change: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data, progress=StopAfter(130))
    for _ in ("checkpoint", "finished"):
        with pytest.raises(InputError, match="another training"):
            train(tmp_path, data, **change)
        train(tmp_path, data)


def test_a_damaged_checkpoint_is_named(tmp_path: Path, data: ArrayDataset) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InputError, match=r"checkpoint\.safetensors cannot be read"):
        train(tmp_path, data)


@pytest.mark.parametrize(
    "bad", [{"epochs": 0}, {"batch": 0}, {"learning_rate": 0.0}, {"precision": "int8"}, {"schedule": "linear"}]
)
def test_bad_settings_are_refused_before_anything_is_written(
    tmp_path: Path, data: ArrayDataset, bad: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        train(tmp_path / "new", data, **bad)
    assert not (tmp_path / "new").exists()


def test_a_network_of_other_classes_is_refused(tmp_path: Path, data: ArrayDataset) -> None:
    with pytest.raises(ModelError, match="must answer"):
        train(tmp_path, data, thesis_cnn(7, SIZE, width=2, hidden=4))


def test_half_precision_trains_about_as_well(tmp_path: Path, data: ArrayDataset) -> None:
    scores = {
        precision: train(tmp_path / precision, data, fresh(dropout=0.0), precision=precision)["clean_accuracy"]
        for precision in ("float32", "bfloat16")
    }
    assert scores["bfloat16"] == pytest.approx(scores["float32"], abs=0.1)


def test_weights_are_stored_without_code(tmp_path: Path) -> None:
    save_weights(tmp_path / "w.safetensors", {"a": torch.arange(6.0).reshape(2, 3).T}, {"note": "x"})
    tensors, notes = load_weights(tmp_path / "w.safetensors")
    assert torch.equal(tensors["a"], torch.arange(6.0).reshape(2, 3).T)
    assert notes == {"note": "x"}
    assert b"pickle" not in (tmp_path / "w.safetensors").read_bytes()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.6, 0.9])
def test_fast_dropout_is_dropout(p: float) -> None:
    from roadworthy.models.fast_dropout import FastDropout, fast_dropout

    torch.manual_seed(0)
    ones = torch.ones(8, 16, 25, 25).contiguous(memory_format=torch.channels_last).requires_grad_()
    with FastDropout():
        dropped = torch.nn.Dropout(p).train()(ones)
    kept = (dropped != 0).float()
    spread = (p * (1 - p) / ones.numel()) ** 0.5
    assert abs(kept.mean() - (1 - p)) < 5 * spread
    assert (kept.flatten()[::4].mean() - kept.flatten()[3::4].mean()).abs() < 10 * spread
    assert abs((kept[:, 1:] * kept[:, :-1]).mean() - (1 - p) ** 2) < 10 * spread
    torch.testing.assert_close(dropped[dropped != 0], torch.full_like(dropped[dropped != 0], 1 / (1 - p)))
    dropped.sum().backward()
    torch.testing.assert_close(ones.grad, dropped.detach())
    assert torch.equal(fast_dropout(ones, p, training=False), ones)
    assert not fast_dropout(torch.ones(7), 1.0).any()


SMALL = {"epochs": 1, "batch": 16, "width": 4, "hidden": 8, "learning_rate": 5e-3}


@pytest.mark.parametrize("spec", ["baseline", "mc_dropout"])
def test_a_reference_classifier_is_an_artifact(tmp_path: Path, data: ArrayDataset, spec: str) -> None:
    import roadworthy.uncertainty  # registers what answers for mc_dropout

    assert roadworthy.uncertainty
    passes = {"passes": 3} if spec == "mc_dropout" else {}
    model = load_model({"reference": spec, **SMALL, **passes}, name="net").on(data)
    assert isinstance(model, ReferenceModel)
    assert isinstance(model, Buildable)
    fingerprint, recipe = model.fingerprint(), model.recipe
    batch = data.batch(slice(0, 9))
    with pytest.raises(ModelError, match="not trained yet"):
        model.predict(batch)
    told: list[int] = []
    home = ensure_artifact(RunFolder(tmp_path), recipe, lambda folder: model.build(folder, told.append))
    assert sum(told) == model.work
    assert {"network.safetensors", "network.onnx", "training.json"} == set(check_whole(home, recipe.hash)[1])
    assert not model.loaded
    model.load(home)
    assert model.loaded
    assert model.fingerprint() == fingerprint
    answer = model.answer(batch, 4)
    assert answer.probabilities.shape == (9, 3)
    if spec == "baseline":
        with torch.inference_mode():
            logits = model.trained(home)(torch.from_numpy(model._model.preprocess(batch.images))).numpy()
        np.testing.assert_allclose(answer.probabilities, softmax(logits), atol=1e-5)
        assert model.features(batch, model._model.layers()[0]).shape[0] == 9
    else:
        assert answer.samples is not None
        assert answer.samples.shape == (3, 9, 3)
    assert ensure_artifact(RunFolder(tmp_path), recipe, lambda folder: pytest.fail("built twice")) == home


def test_the_number_of_threads_is_the_same_on_every_machine_or_part_of_the_recipe(
    tmp_path: Path, data: ArrayDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    for cores in ({0}, {0, 1, 2, 3}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores)
        train(tmp_path / f"{len(cores)}", data, epochs=1)
    assert used[::2] == [2, 2]
    records = [(tmp_path / name / "training.json").read_text() for name in ("1", "4")]
    assert records[0] == records[1]
    with pytest.raises(InputError, match="another training"):
        train(tmp_path / "1", data, epochs=1, threads=1)
    model = ReferenceModel(epochs=1).on(data)
    other = ReferenceModel(epochs=1, threads=3).on(data)
    assert "threads" not in model.recipe.parameters, "recipes of before stay as they are"
    assert other.recipe.parameters["threads"] == 3
    used.clear()
    other.build(tmp_path / "other", lambda images: None)
    assert used[0] == 3
    with pytest.raises(InputError, match="threads"):
        ReferenceModel(threads=0)


def test_a_recipe_is_what_decides_the_weights(data: ArrayDataset) -> None:
    def recipe(spec: str = "mc_dropout", on: Dataset = data, **settings: Any) -> str:
        return ReferenceModel(spec, **settings).on(on).recipe.hash

    changes = [
        *({"epochs": 3}, {"batch": 64}, {"learning_rate": 2e-3}, {"seed": 1}, {"width": 8}, {"hidden": 64}),
        *({"schedule": "cosine"}, {"held_out": 0.3}, {"keep": "last"}),
        *({"dropout": 0.5}, {"spec": "baseline"}, {"on": coloured(seed=1)}),
    ]
    hashes = [recipe(**change) for change in changes]
    assert len({recipe(), *hashes}) == 1 + len(changes)
    assert recipe(passes=5, name="other", retrain=True) == recipe()
    assert "schedule" not in ReferenceModel("mc_dropout").settings(), "recipes of before stay as they are"
    few, many = (ReferenceModel("mc_dropout", passes=passes).on(data).fingerprint() for passes in (5, 20))
    assert few != many


def test_defaults_are_those_of_the_thesis() -> None:
    baseline, dropout = ReferenceModel("baseline"), ReferenceModel("mc_dropout")
    assert (baseline.epochs, baseline.dropout, baseline.passes) == (4, 0.0, 1)
    assert (dropout.epochs, dropout.dropout, dropout.passes) == (8, 0.6, 20)
    assert (baseline.batch, baseline.width) == (128, 32)


def test_repeats_share_a_network_unless_they_retrain(data: ArrayDataset) -> None:
    kept = ReferenceModel("baseline", seed=5).on(data)
    assert kept.for_repeat(3) is kept
    anew = ReferenceModel("baseline", seed=5, retrain=True).on(data)
    assert anew.for_repeat(0) is anew
    assert anew.for_repeat(2) is anew.for_repeat(2)
    assert anew.for_repeat(2).for_repeat(1) is anew.for_repeat(2)
    assert anew.for_repeat(0).recipe == kept.recipe, "the first repeat is the network of a study without repeats"
    assert len({anew.for_repeat(repeat).fingerprint() for repeat in range(3)}) == 3


@pytest.mark.parametrize(
    ("spec", "settings", "error"),
    [
        ("baselin", {}, UnknownName),
        ("baseline", {"epochs": 0}, InputError),
        ("baseline", {"passes": 20}, InputError),
        ("baseline", {"schedule": "linear"}, InputError),
        ("mc_dropout", {"dropout": 0.0}, InputError),
        ("mc_dropout", {"dropout": 1.0}, InputError),
    ],
)
def test_a_wrong_reference_is_refused(spec: str, settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ReferenceModel(spec, **settings)


def test_without_training_data_or_torch_one_sentence_says_so(
    data: ArrayDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"data\.train"):
        ReferenceModel("baseline").fingerprint()
    model = ReferenceModel("baseline").on(data)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[torch\]"):
        model.build(tmp_path)


def test_torch_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, roadworthy.models, roadworthy.uncertainty; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
