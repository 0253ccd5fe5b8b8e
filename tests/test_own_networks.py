"""Networks that monitors train for themselves: losses by hand, architectures, intervals, figures, kills, sharing."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

import roadworthy as rw
import tiny
from commands import call
from roadworthy.core.competence import is_undertrained
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.data import Subset, split_by_group
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.subset import leading_rows
from roadworthy.data.table import Table
from roadworthy.models import ReferenceModel, softmax, task_training
from roadworthy.models.autoencoders import (
    autoencoder,
    divergence,
    layer_plan,
    reconstruction_errors,
    variational_losses,
)
from roadworthy.models.density.logistics import bits_per_dimension
from roadworthy.models.networks import load_weights, small_vgg
from roadworthy.models.training import WEIGHTS
from roadworthy.monitors import (
    AeThreshold,
    BinClass,
    BnnSvm,
    Combined,
    DeepEnsemble,
    FittedMonitor,
    LogisticSvm,
    MnnSvm,
    Monitor,
    PixelCnnPlusPlus,
    VnnSvm,
    load_monitor,
    represent_data,
)
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.monitors.guard import Guard, load_guard
from roadworthy.monitors.id_threshold import IdRule
from roadworthy.monitors.networks.autoencoder import make_autoencoder
from roadworthy.monitors.networks.base import OwnNetwork, weakest, with_weights
from roadworthy.monitors.networks.classes import (
    AdversarialTask,
    adversarial_copies,
    logistic_loss,
    make_classifier,
    make_two_sided,
)
from roadworthy.monitors.networks.density import make_density
from roadworthy.monitors.onnx_export import NotExportable, export_onnx_monitor
from roadworthy.monitors.own_networks import form_of, values_of
from roadworthy.monitors.reconstruction import best_interval

torch = pytest.importorskip("torch")

TRAIN, HELD_OUT, TEST, OUTLIERS = toy_data()
MODEL = ToyModel()
SMALL: dict[str, Any] = {"width": 4, "epochs": 3, "batch": 40, "learning_rate": 0.02}
SMALL_AUTOENCODER = SMALL | {"most_width": 8, "bottleneck": 8}
SMALL_DENSITY = SMALL | {"blocks": 1, "images": 40, "drawn": 0, "epochs": 2, "batch": 16}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads of torch on cores that others use are a hundred times as slow as one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("roadworthy.models.training.THREADS", 1)
        yield


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(values, np.float64)))


def pixels(data: Dataset) -> Any:
    return values_of(data.batch(slice(None)).images)


# The losses.


def test_the_error_of_a_reconstruction_by_hand() -> None:
    logits, images = (
        np.array([[-3.0, 0.5, 2.0, 0.0], [9.0, -9.0, 1.0, 4.0]]),
        np.array([[0, 0.2, 1, 0.5], [1, 0, 0.7, 0]]),
    )
    answer = sigmoid(logits)
    by_hand = {
        "mse": ((answer - images) ** 2).mean(axis=1),
        "bce": -(images * np.log(answer) + (1 - images) * np.log(1 - answer)).mean(axis=1),
    }
    shaped = [torch.tensor(array).reshape(2, 1, 2, 2) for array in (logits, images)]
    for loss, expected in by_hand.items():
        np.testing.assert_allclose(reconstruction_errors(*shaped, loss).numpy(), expected, rtol=1e-12)
    flat = torch.full((1, 1, 2, 2), 0.3, dtype=torch.float64)
    least = reconstruction_errors(torch.logit(flat), flat, "bce").item()
    assert least == pytest.approx(-0.3 * math.log(0.3) - 0.7 * math.log(0.7)), "a perfect answer still has the entropy"


class Decoder(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A variational autoencoder with a given code, whose logits are the code itself."""

    def __init__(self, mean: Any, log_variance: Any) -> None:
        super().__init__()
        self.known = torch.tensor(mean), torch.tensor(log_variance)

    def posterior(self, images: Any) -> Any:
        return self.known

    def decode(self, codes: Any) -> Any:
        return codes.reshape(-1, 1, 2, 2)


def test_the_variational_loss_is_summed_bce_and_divergence_over_the_values_by_hand() -> None:
    rng = np.random.default_rng(0)
    mean, log_variance, images = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.random((3, 4))
    kl = 0.5 * (mean**2 + np.exp(log_variance) - log_variance - 1).sum(axis=1)
    normal = torch.distributions.Normal
    known = normal(torch.tensor(mean), torch.tensor(np.exp(log_variance / 2)))
    np.testing.assert_allclose(torch.distributions.kl_divergence(known, normal(0.0, 1.0)).sum(1).numpy(), kl)
    np.testing.assert_allclose(divergence(torch.tensor(mean), torch.tensor(log_variance)).numpy(), kl, rtol=1e-12)

    def loss(code: Any) -> Any:
        answer = sigmoid(code)
        summed = -(images * np.log(answer) + (1 - images) * np.log(1 - answer)).sum(axis=1)
        return (summed + kl) / 4

    network, shown = Decoder(mean, log_variance), torch.tensor(images).reshape(3, 1, 2, 2)
    np.testing.assert_allclose(variational_losses(network.eval(), shown).numpy(), loss(mean), rtol=1e-12)
    torch.manual_seed(5)
    drawn = variational_losses(network.train(), shown).numpy()
    torch.manual_seed(5)
    noise = torch.randn(3, 4, dtype=torch.float64).numpy()
    np.testing.assert_allclose(drawn, loss(mean + noise * np.exp(log_variance / 2)), rtol=1e-12)


def test_the_k_way_logistic_loss_by_hand() -> None:
    logits, labels = np.array([[2.0, -1.0, 0.3], [-4.0, 0.0, 5.0]]), np.array([0, 1])
    terms = [-math.log(sigmoid(z if k == labels[n] else -z)) for n, row in enumerate(logits) for k, z in enumerate(row)]
    expected = sum(terms) / 6
    assert logistic_loss(torch.tensor(logits).float(), torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-6)
    denied = logistic_loss(torch.full((1, 3), -9.0), torch.tensor([0])).item()
    assert denied == pytest.approx(3, rel=1e-3), "all classes can be denied: only the true one is charged"


def smooth_network(inputs: int = 12, classes: int = 3) -> Any:
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, classes)).double()


def test_an_adversarial_copy_is_a_step_of_epsilon_up_the_loss() -> None:
    network, rng = smooth_network(), np.random.default_rng(1)
    images, labels = rng.random((4, 3, 2, 2)), torch.tensor([0, 2, 1, 1])

    def loss(shown: Any) -> float:
        with torch.no_grad():
            return torch.nn.functional.cross_entropy(network(torch.tensor(shown)), labels).item()

    slopes = np.zeros_like(images)
    for place in np.ndindex(images.shape):
        step = np.zeros_like(images)
        step[place] = 1e-5
        slopes[place] = (loss(images + step) - loss(images - step)) / 2e-5
    assert np.abs(slopes).min() > 1e-7
    plain, copies = adversarial_copies(network, torch.tensor(images), labels, 0.01)
    assert plain.item() == pytest.approx(loss(images), rel=1e-12)
    np.testing.assert_allclose(copies.numpy() - images, 0.01 * np.sign(slopes), atol=1e-15)
    assert loss(copies.numpy()) > loss(images)
    assert not copies.requires_grad
    both = AdversarialTask(0.01).loss(network, torch.tensor(images), labels)
    assert both.item() == pytest.approx(loss(images) + loss(copies.numpy()), rel=1e-12)
    both.backward()
    bias = network[1].bias
    for row in range(len(bias)):
        known = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                bias[row] += step
            known.append(loss(images) + loss(copies.numpy()))
            with torch.no_grad():
                bias[row] -= step
        assert bias.grad[row].item() == pytest.approx((known[0] - known[1]) / 2e-6, abs=1e-7), "copies are constants"


# The architecture of autoencoders.

BY_RULE = {
    (28, 28): ([64, 128, 128, 256, 256, 256, 256, 256], 96, 1),
    (32, 32): ([64, 128, 128, *[256] * 7], 256, 1),
    (64, 64): ([64, 128, 128, *[256] * 9], 512, 1),
    (96, 96): ([64, 128, 128, *[256] * 9], 512, 1),
    (17, 30): ([64, 128, 128, 256, 256, 256, 256, 256], 96, 1),
    (9, 40): ([64, 128, 128, 256, 256, 256], 96, 5),
}
"""Per size of images: the channels of the encoder, at most 256, the values of the bottleneck and of how many places."""


@pytest.mark.parametrize("size", BY_RULE, ids=str)
def test_an_autoencoder_follows_the_published_rule(size: tuple[int, int]) -> None:
    channels, bottleneck, places = BY_RULE[size]
    assert layer_plan(size, 64, 256)[0] == channels
    assert max(layer_plan(size, 64, 512)[0]) == min(512, 64 << (len(channels) // 2))
    slim = [width // 16 for width in channels]
    network, variational = (autoencoder(3, size, width=4, most_width=16, variational=v).eval() for v in (False, True))
    shown = torch.zeros(1, 3, *size)
    assert network(shown).shape == variational(shown).shape == shown.shape
    assert network.encode(shown).shape == variational.encode(shown).shape == (1, bottleneck * places)
    layers = [*network.encoder]
    convolutions = [layer for layer in layers if isinstance(layer, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [*slim, bottleneck]
    assert {(layer.kernel_size, layer.padding) for layer in convolutions} == {((3, 3), (1, 1))}
    kinds = ["Conv2d", "BatchNorm2d", "ELU"]
    expected = [kind for n in range(len(slim)) for kind in (*kinds, *(["MaxPool2d"] if n % 2 == 0 else []))] + kinds
    assert [type(layer).__name__ for layer in layers] == expected
    decoded = [layer.out_channels for layer in network.decoder if isinstance(layer, torch.nn.Conv2d)]
    assert decoded == [*slim[::-1], 3], "the decoder mirrors the encoder"
    own = [layer.out_channels for layer in variational.encoder if isinstance(layer, torch.nn.Conv2d)]
    assert own == [*slim, 2 * bottleneck]
    assert variational.mean.weight.shape == (bottleneck * places, 2 * bottleneck * places)


def test_images_that_cannot_be_halved_twice_are_refused() -> None:
    with pytest.raises(InputError, match="images of 4x4 and one of each are the least"):
        autoencoder(3, (3, 8))
    assert autoencoder(1, (4, 5), width=1, bottleneck=1).eval()(torch.zeros(1, 1, 4, 5)).shape == (1, 1, 4, 5)


# The interval of errors.

errors = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def cost_of(inside: Any, outside: Any, ends: tuple[float, float], prior: float, cost: float) -> float:
    lost, missed = (((values < ends[0]) | (values > ends[1])).mean() for values in (inside, outside))
    return float((1 - prior) * lost + prior * cost * (1 - missed))


def least_cost(inside: Any, outside: Any, prior: float, cost: float, *, empty: bool) -> float:
    """Over all intervals whose ends are values; `empty`: also where all are rejected."""
    ends = np.unique([*inside, *outside])
    known = [cost_of(inside, outside, (low, high), prior, cost) for low in ends for high in ends if low <= high]
    return min([*known, 1 - prior] if empty else known)


@settings(max_examples=80, deadline=None)
@given(errors, errors, st.sampled_from([0.01, 0.3, 0.5, 0.9]), st.sampled_from([1e-9, 0.5, 1.0, 7.0, 1e9]))
def test_the_best_interval_is_that_of_brute_force(inside: Any, outside: Any, prior: float, cost: float) -> None:
    accepted, refused = (np.array(values, np.float64) / 8 for values in (inside, outside))
    ends = best_interval(accepted, refused, prior=prior, cost=cost)
    own = cost_of(accepted, refused, ends, prior, cost)
    assert own == pytest.approx(least_cost(accepted, refused, prior, cost, empty=False), rel=1e-9, abs=1e-15)
    values = np.unique([*accepted, *refused])
    assert not np.isin(ends, values).any(), "an end lies between values, or beyond them"
    assert ((values > ends[0]) & (values < ends[1])).any()


@pytest.fixture(scope="module")
def by_error() -> FittedMonitor:
    return AeThreshold(**SMALL_AUTOENCODER | {"epochs": 1}).build(MODEL, TRAIN)


@settings(max_examples=50, deadline=None)
@given(errors, errors, st.sampled_from([0.3, 0.5, 0.9]), st.sampled_from([0.5, 1.0, 7.0]))
def test_a_calibrated_ae_threshold_costs_as_little_as_any_interval(
    by_error: FittedMonitor, inside: Any, outside: Any, prior: float, cost: float
) -> None:
    accepted, refused = (np.array(values, np.float32)[:, None] / 8 for values in (inside, outside))
    calibrated = by_error.calibrate(accepted, refused, prior=prior, cost=cost)
    lost, caught = (calibrated.reject(rows).mean() for rows in (accepted, refused))
    own = (1 - prior) * lost + prior * cost * (1 - caught)
    assert own == pytest.approx(least_cost(accepted[:, 0], refused[:, 0], prior, cost, empty=True), rel=1e-9)
    centre, tau = float(calibrated.rule["centre"]), -calibrated.threshold
    rows = np.linspace(-1, 3, 41, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(calibrated.reject(rows), (rows[:, 0].astype(np.float64) - centre) ** 2 > tau)


def test_an_interval_needs_both_sides_and_may_hold_one_value() -> None:
    with pytest.raises(InputError, match="needs values of both sides"):
        best_interval([], [1.0])
    low, high = best_interval([3.0], [3.0])
    assert low < 3 < high
    assert best_interval([2.0, 2.0, 5.0], [0.0, 3.0, 9.0]) == (1.0, 2.5)


def test_ae_threshold_rejects_what_is_reconstructed_too_badly_and_too_well(by_error: FittedMonitor) -> None:
    rows = represent_data(by_error, MODEL, TEST)
    images = torch.from_numpy(pixels(TEST))
    network = with_weights(make_autoencoder(form_of(by_error.state)), by_error.state, "autoencoder/")
    with torch.no_grad():
        answer = sigmoid(network(images).numpy())
    shown = images.numpy().astype(np.float64)
    bce = -(shown * np.log(answer) + (1 - shown) * np.log(1 - answer)).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(rows[:, 0], bce, rtol=1e-5)
    alone = by_error.calibrate(rows, rejected=0.2)
    middle = np.median(rows[:, 0].astype(np.float64))
    assert float(alone.rule["centre"]) == middle
    np.testing.assert_array_equal(alone.score(rows), -((rows[:, 0].astype(np.float64) - middle) ** 2))
    rejected = alone.reject(rows)
    assert rejected.mean() == 0.2
    assert {*np.sign(rows[rejected, 0] - middle)} == {-1.0, 1.0}
    (title,) = by_error.monitor.pictures(TEST.batch(slice(0, 3)).images, by_error.state).items()
    assert title[0] == "reconstruction"
    np.testing.assert_array_equal(title[1], np.rint(answer[:3] * 255).astype(np.uint8).transpose(0, 2, 3, 1))


# Trainings: kills, budgets, figures.


class Killed(Exception):
    """Stands for the end of a process in the middle of an epoch."""


def network_of(monitor: Monitor, role: str | None = None, *, train: Dataset = TRAIN) -> OwnNetwork:
    outliers = OUTLIERS if monitor.learns_from_outliers else None
    networks = monitor.networks(MODEL, train, outliers)
    return networks[role] if role else next(iter(networks.values()))


def silent(images: int) -> None:
    """Progress that nobody looks at."""


def until(images: int) -> Callable[[int], None]:
    """A progress that dies once it has been told of more images than these."""
    count = 0

    def tell(more: int) -> None:
        nonlocal count
        count += more
        if count > images:
            raise Killed

    return tell


RESUMED = {
    "autoencoder": AeThreshold(**SMALL_AUTOENCODER),
    "variational autoencoder": VnnSvm(**SMALL_AUTOENCODER),
    "member of an ensemble": DeepEnsemble(**SMALL),
    "two sides": BinClass(**SMALL),
    "density": PixelCnnPlusPlus(**SMALL_DENSITY),
}


@pytest.mark.parametrize("kind", RESUMED)
def test_a_killed_training_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    whole = network_of(RESUMED[kind])
    told: list[int] = []
    competence = whole.build(tmp_path / "whole", told.append)
    assert abs(sum(told) - whole.work) <= whole.budget.epochs, "the images that were announced, but for rounding"
    with pytest.raises(Killed):
        network_of(RESUMED[kind]).build(tmp_path / "killed", until(whole.images + 1))
    checkpoint = json.loads(load_weights(tmp_path / "killed" / "checkpoint.safetensors")[1]["training"])
    assert [epoch["epoch"] for epoch in checkpoint["history"]] == [1]
    torch.manual_seed(99)
    assert network_of(RESUMED[kind]).build(tmp_path / "killed", silent) == competence
    files = {path.name for path in (tmp_path / "whole").iterdir()}
    assert files == {path.name for path in (tmp_path / "killed").iterdir()}
    assert WEIGHTS in files
    for name in files:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()
    assert network_of(RESUMED[kind]).build(tmp_path / "whole", silent) == competence, "a finished one is only read"


def test_a_training_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    network_of(AeThreshold(**SMALL_AUTOENCODER | {"epochs": 1})).build(tmp_path, silent)
    for other in ({"seed": 1}, {"loss": "mse"}, {"epochs": 2}):
        with pytest.raises(InputError, match="is of another training"):
            network_of(AeThreshold(**SMALL_AUTOENCODER | {"epochs": 1} | other)).build(tmp_path, silent)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch takes one second."""
    ticks = map(float, range(1000))
    known = dict.fromkeys(("perf_counter", "process_time"), lambda: next(ticks))
    monkeypatch.setattr(task_training, "time", SimpleNamespace(**known))


@pytest.mark.usefixtures("clock")
def test_seconds_end_a_training_with_the_epoch_that_uses_them_up_also_after_a_kill(tmp_path: Path) -> None:
    asked = AeThreshold(**SMALL_AUTOENCODER | {"epochs": 5, "seconds": 1.5})
    competence = network_of(asked).build(tmp_path / "whole", silent)
    assert competence["epochs"] == 2
    assert competence["stopped"] == "after 2 of 5 epochs by its budget"
    with pytest.raises(Killed):
        network_of(asked).build(tmp_path / "killed", until(len(TRAIN)))
    assert network_of(asked).build(tmp_path / "killed", silent) == competence, "the epoch before the kill counts"
    unhurried = network_of(replace(asked, epochs=2, seconds=100.0)).build(tmp_path / "unhurried", silent)
    assert "stopped" not in unhurried
    assert "seconds" not in (tmp_path / "unhurried" / WEIGHTS).read_bytes().decode("latin1")
    untimed = network_of(replace(asked, epochs=2, seconds=None))
    untimed.build(tmp_path / "untimed", silent)
    assert '"seconds"' not in (tmp_path / "untimed" / "training.json").read_text()


@pytest.mark.parametrize(("floor", "ended"), [(0.9, False), (0.6, True), (None, True)])
def test_patience_ends_a_training_only_once_its_floor_is_reached(floor: float | None, ended: bool) -> None:
    recipe = {"seed": 0, "threads": 1, "learning_rate": 1e-3, "epochs": 30, "patience": 2}
    recipe |= {} if floor is None else {"floor": floor}
    task: Any = SimpleNamespace(figure="clean_accuracy")
    course = task_training.TaskCourse(torch.nn.Linear(1, 1), task, recipe)
    figures = enumerate((0.5, 0.6, 0.5, 0.5), start=1)
    course.history = [{"epoch": epoch, "clean_accuracy": figure, "loss": 1.0} for epoch, figure in figures]
    assert course.ended is ended
    course.history.append({"epoch": 5, "clean_accuracy": 0.95, "loss": 1.0})
    assert not course.ended, "the best epoch is the last"


def test_only_networks_that_patience_can_stop_have_it_in_their_recipe() -> None:
    patient, unhurried = (network_of(BinClass(**SMALL | {"epochs": epochs})) for epochs in (30, 3))
    assert patient.recipe.parameters["patience_from"] == "floor"
    assert "patience_from" not in unhurried.recipe.parameters


def test_the_competence_of_an_autoencoder_is_what_it_explains_of_held_out_images(tmp_path: Path) -> None:
    network = network_of(MnnSvm(**SMALL_AUTOENCODER))
    competence = network.build(tmp_path, silent)
    network.load(tmp_path)
    train, held_out = split_by_group(TRAIN, (0.8, 0.2), 0)
    assert not {*train.ids} & {*held_out.ids}
    shown = torch.from_numpy(pixels(held_out))
    with torch.no_grad():
        answer = with_weights(make_autoencoder(network.settings), network.arrays, "")(shown).sigmoid()
    squared = float(((answer - shown) ** 2).double().mean())
    mean_image = pixels(train).astype(np.float64).mean(axis=0)
    baseline = float(((shown.numpy() - mean_image) ** 2).mean())
    assert competence["mean_image_error"] == pytest.approx(baseline, rel=1e-5)
    assert competence["explained"] == pytest.approx(1 - squared / baseline, rel=1e-5)
    assert competence["loss"] == pytest.approx(squared, rel=1e-5)
    record = json.loads((tmp_path / "training.json").read_text())
    history = record.get("history") or record["content"]["history"]
    assert competence["explained"] == max(epoch["explained"] for epoch in history)
    labels, ids = np.zeros(10, np.int64), tuple(map(str, range(10)))
    same = ArrayDataset(Table(ids, labels, ("grey",), ids), np.zeros((10, 8, 8, 3), np.uint8))
    with pytest.raises(InputError, match="images that are all the same"):
        network_of(MnnSvm(**SMALL_AUTOENCODER), train=same).build(tmp_path / "same", silent)


def test_the_competence_of_a_density_is_the_share_of_bits_that_it_saves(tmp_path: Path) -> None:
    network = network_of(PixelCnnPlusPlus(**SMALL_DENSITY))
    competence = network.build(tmp_path, silent)
    network.load(tmp_path)
    train, held_out = (part.read(np.arange(len(part))) for part in network.parts())
    assert (len(train), len(held_out)) == (32, 8)
    bits = []
    for image in held_out:
        for place in np.ndindex(image.shape):
            values = Counter(int(other[place]) for other in train)
            bits.append(-math.log2((values[int(image[place])] + 0.5) / (len(train) + 128)))
    shown = torch.from_numpy(values_of(held_out))
    with torch.no_grad():
        own = bits_per_dimension(with_weights(make_density(network.settings), network.arrays, "")(shown), shown)
    assert competence["independent_bits"] == pytest.approx(np.mean(bits), rel=1e-9)
    assert competence["bits_saved"] == pytest.approx(1 - float(own.double().mean()) / np.mean(bits), rel=1e-4)
    assert competence["floor"] == 0.1


def test_the_weakest_network_is_the_one_furthest_below_its_floor() -> None:
    good, poor = {"explained": 0.9, "floor": 0.5}, {"clean_accuracy": 0.7, "floor": 0.8}
    assert weakest({"a": good, "b": poor, "c": {"notes": []}}) == poor
    assert is_undertrained(weakest({"a": good, "b": poor}))
    assert not is_undertrained(weakest({"a": good}))
    assert weakest({"c": {"notes": []}}) == {}


# What each monitor makes of its networks.


def test_members_differ_and_each_is_the_network_trained_alone_with_its_seed(tmp_path: Path) -> None:
    ensemble = DeepEnsemble(members=2, seed=3, **SMALL)
    fitted = ensemble.build(MODEL, TRAIN)
    alone = network_of(ensemble, "member 1")
    assert alone.recipe.hash != network_of(DeepEnsemble(members=2, seed=4, **SMALL), "member 0").recipe.hash
    alone.build(tmp_path, silent)
    alone.load(tmp_path)
    first, second = ({n: fitted.state[f"member {m}/{n}"] for n in alone.arrays} for m in (0, 1))
    for name, array in alone.arrays.items():
        np.testing.assert_array_equal(second[name], array)
    assert any((first[name] != second[name]).any() for name in first)
    shown = torch.from_numpy(pixels(TEST))
    with torch.no_grad():
        logits = [
            with_weights(make_classifier(form_of(fitted.state)), fitted.state, f"member {m}/")(shown).numpy()
            for m in (0, 1)
        ]
    mean = np.mean([softmax(answer.astype(np.float64)) for answer in logits], axis=0)
    rows = represent_data(fitted, MODEL, TEST)
    np.testing.assert_allclose(rows[:, 0], (mean * np.log(mean)).sum(axis=1), atol=1e-5)


def test_a_network_is_like_the_reference_network_that_is_watched() -> None:
    model = ReferenceModel("vgg", width=8, hidden=6, dropout=0.25, epochs=7, batch=16, learning_rate=0.005, floor=0.6)
    bound = model.on(TRAIN)
    for monitor in (LogisticSvm(), DeepEnsemble(members=1)):
        network = next(iter(monitor.networks(bound, TRAIN).values()))
        assert str(network.make()) == str(small_vgg(4, (8, 8), channels=3, width=8, hidden=6, dropout=0.25))
        budget = network.budget
        assert (budget.epochs, budget.batch, budget.learning_rate, budget.floor) == (7, 16, 0.005, 0.6)
    own = LogisticSvm(architecture="baseline", width=4, epochs=2).networks(bound, TRAIN)["classifier"]
    assert own.settings["architecture"] == "baseline"
    assert (own.budget.epochs, own.budget.batch) == (2, 128), "what another architecture leaves open is not the model's"
    two_sided = BinClass().networks(bound, TRAIN, OUTLIERS)["two_sided"]
    assert two_sided.settings["width"] == 8
    assert (two_sided.budget.epochs, two_sided.budget.floor) == (30, 0.9)


def test_logistic_svm_reads_the_logits_of_its_network() -> None:
    fitted = LogisticSvm(**SMALL).build(MODEL, TRAIN)
    rows = represent_data(fitted, MODEL, TEST)
    with torch.no_grad():
        network = with_weights(make_classifier(form_of(fitted.state)), fitted.state, "classifier/")
        logits = network(torch.from_numpy(pixels(TEST))).numpy()
    np.testing.assert_allclose(rows, logits, atol=1e-5)
    np.testing.assert_array_equal(fitted.calibrate(rows).score(rows), rows.max(axis=1))


def test_both_sides_are_as_many_and_the_last_fifth_of_outliers_is_never_learned_from() -> None:
    network = network_of(BinClass(**SMALL))
    learned, judged = network.parts()
    outliers = [
        [name.removeprefix("out/") for name in part.ids if name.startswith("out/")] for part in (learned, judged)
    ]
    assert outliers == [[*OUTLIERS.ids[:80]], [*OUTLIERS.ids[80:]]], "in their order: 80 and the last 20 of 100"
    train, held_out = split_by_group(TRAIN, (0.8, 0.2), 0)
    for part, source, count in ((learned, train, 80), (judged, held_out, 20)):
        inside = [name.removeprefix("in/") for name in part.ids if name.startswith("in/")]
        assert len({*inside}) == count
        assert {*inside} <= {*source.ids}
        np.testing.assert_array_equal(part.labels, [1] * count + [0] * count)
        rows = np.random.default_rng(0).permutation(len(part))
        shown = part.read(rows)
        known = {f"in/{name}": (TRAIN, row) for row, name in enumerate(TRAIN.ids)}
        known |= {f"out/{name}": (OUTLIERS, row) for row, name in enumerate(OUTLIERS.ids)}
        for image, row in zip(shown, rows, strict=True):
            data, number = known[part.ids[row]]
            np.testing.assert_array_equal(image, data.batch([number]).images[0])
    few = BinClass(**SMALL).networks(MODEL, TRAIN, Subset(OUTLIERS, [0]))["two_sided"]
    with pytest.raises(InputError, match="too few outliers to choose an epoch by"):
        few.parts()


def test_leading_rows_cut_no_group_in_two() -> None:
    assert leading_rows([*"aabbccddee"], 0.8).tolist() == [True] * 8 + [False] * 2
    for share in (0.1, 0.5, 0.9):
        first, second = leading_rows([*"abcdeabcde"], share).reshape(2, 5).tolist()
        assert first == second == sorted(first, reverse=True), "groups in the order of their first rows, each whole"
        assert first[0]
    assert leading_rows(["a"], 0.1).tolist() == [True]


def test_bin_class_is_another_network_for_other_outliers_and_keeps_its_own_boundary() -> None:
    monitor = BinClass(**SMALL)
    one, other = (monitor.networks(MODEL, TRAIN, data)["two_sided"] for data in (OUTLIERS, Subset(OUTLIERS, range(60))))
    assert one.recipe.hash != other.recipe.hash
    assert OUTLIERS.fingerprint() in one.recipe.inputs
    assert TRAIN.fingerprint() in one.recipe.inputs
    with pytest.raises(InputError, match=r"learns from validation outliers \(outliers=\): give them to build"):
        monitor.build(MODEL, TRAIN)
    small = toy_data(12)[3]
    with pytest.raises(InputError, match=r"holds images \(12, 12, 3\), and the training images are \(8, 8, 3\)"):
        monitor.build(MODEL, TRAIN, outliers=small)
    fitted = monitor.build(MODEL, TRAIN, outliers=OUTLIERS)
    inside, outside = (represent_data(fitted, MODEL, data) for data in (HELD_OUT, OUTLIERS))
    with torch.no_grad():
        network = with_weights(make_two_sided(form_of(fitted.state)), fitted.state, "two_sided/")
        np.testing.assert_allclose(outside, network(torch.from_numpy(pixels(OUTLIERS))).numpy(), atol=1e-5)
    for threshold in ("exact", "hinge"):
        assert fitted.calibrate(inside, outside, threshold=threshold).threshold == 0
    dear = fitted.calibrate(inside, outside, prior=0.2, cost=12.0).threshold
    assert dear == pytest.approx(math.log(0.2 * 12 / 0.8)), "odds of 3 to 1 are asked for"
    assert fitted.calibrate(inside).reject(inside).mean() == 0.05, "without outliers, the share asked for"


@pytest.mark.parametrize("kind", [MnnSvm, VnnSvm])
def test_neighbours_in_the_code_are_those_of_scikit_learn(kind: Any) -> None:
    fitted = kind(k=3, **SMALL_AUTOENCODER | {"epochs": 1}).build(MODEL, TRAIN)
    network = with_weights(make_autoencoder(form_of(fitted.state)), fitted.state, "autoencoder/")
    with torch.no_grad():
        train, test = (network.encode(torch.from_numpy(pixels(data))).numpy() for data in (TRAIN, TEST))
    np.testing.assert_allclose(fitted.state["codes"], train, atol=1e-5)
    distances, _ = NearestNeighbors(n_neighbors=3, algorithm="brute").fit(train).kneighbors(test)
    rows = represent_data(fitted, MODEL, TEST)
    np.testing.assert_allclose(rows, distances, atol=1e-4)
    np.testing.assert_allclose(fitted.calibrate(rows).score(rows), -rows.mean(axis=1, dtype=np.float64))
    assert form_of(fitted.state)["loss"] == {"mnn_svm": "mse", "vnn_svm": "vae"}[kind.name]


# In a run.


def od_test(out: Path, *monitors: Any, **changes: Any) -> rw.Run:
    given = {"source": HELD_OUT, "train": TRAIN, "limit": 40, "workers": 1, "progress": rw.no_progress}
    given["outliers"] = {"flat": OUTLIERS, "uniform": "uniform_noise"}
    run: rw.Run = rw.od_test(MODEL, monitors=monitors, out=out, **given | changes)
    return run


def artifacts(run: rw.Run, builder: str) -> dict[str, Any]:
    return {hash_: artifact for hash_, artifact in run.record.artifacts.items() if artifact.builder == builder}


def state_of(run: rw.Run, hash_: str) -> FittedMonitor:
    return FittedMonitor.load(run.path / "artifacts" / hash_)


def write_data(folder: Path) -> dict[str, Any]:
    """The data of a study in files: images to train on, and to be tested on."""
    for name, data in (("train", TRAIN), ("test", HELD_OUT), ("flat", OUTLIERS)):
        batch = data.batch(slice(None))
        np.savez(folder / f"{name}.npz", images=batch.images, labels=batch.labels, class_names=data.class_names)
    return {"train": str(folder / "train.npz"), "test": str(folder / "test.npz")}


def study_of_two_models(folder: Path, **changes: Any) -> dict[str, Any]:
    network = {"reference": "baseline", "epochs": 1, "width": 4, "hidden": 8, "batch": 40, "floor": 0.0}
    classifier = {"epochs": 1, "learning_rate": 0.02, "floor": -1.0}
    return {
        "name": "shared",
        "data": write_data(folder),
        "models": {"one": network, "two": {**network, "seed": 1}},
        "outliers": {"flat": {"npz": str(folder / "flat.npz")}, "uniform": "uniform_noise"},
        "monitors": {
            "ae_threshold": {**SMALL_AUTOENCODER, "epochs": 1},
            "bnn_svm": {**SMALL_AUTOENCODER, "epochs": 1},
            "bnn_svm 2": {"monitor": "bnn_svm", "k": 2, **SMALL_AUTOENCODER, "epochs": 1},
            "logistic_svm": classifier,
            "bin_class": classifier,
        },
        "protocols": {"od_test": {"limit": 40}},
        **changes,
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = tmp_path_factory.mktemp("shared")
    run: rw.Run = rw.run_study(study_of_two_models(folder), out=folder / "run", workers=1, progress=rw.no_progress)
    return run


def test_what_is_the_same_is_trained_once(shared: rw.Run) -> None:
    builders = Counter(artifact.builder for artifact in shared.record.artifacts.values())
    assert builders == {
        "reference_classifier": 2,
        "network:autoencoder": 1,
        "network:classifier": 1,
        "network:two_sided": 2,
        "monitor:ae_threshold": 1,
        "monitor:bnn_svm": 2,
        "monitor:logistic_svm": 2,
        "monitor:bin_class": 4,
    }, "one autoencoder for all; networks like the models once for both; one of two sides for each D_v"
    (hash_,) = artifacts(shared, "network:autoencoder")
    for kind in ("ae_threshold", "bnn_svm"):
        for fit in artifacts(shared, f"monitor:{kind}").values():
            assert fit.competence["networks"] == {"autoencoder": hash_}
    accuracy = shared.tables["od_test"].query("metric == 'accuracy'")
    monitors = ["ae_threshold", "bnn_svm", "bnn_svm 2", "logistic_svm", "bin_class"]
    assert accuracy.groupby("monitor").size().to_dict() == dict.fromkeys(monitors, 2 * 2)
    per_model = accuracy.pivot(index=["monitor", "valid_set", "test_set"], columns="model", values="value")
    same = (per_model.iloc[:, 0] == per_model.iloc[:, 1]).groupby("monitor").all()
    assert same[["ae_threshold", "bnn_svm", "bnn_svm 2"]].all()
    assert shared.verify() == []


def test_the_cases_of_a_monitor_that_asks_no_model_are_shared_by_the_models(shared: rw.Run) -> None:
    counts = Counter(case.system for case in shared.record.cases.values() if case.kind == "monitor")
    both = {"logistic_svm": 2 * 4, "bin_class": 2 * 2 * 4}
    assert counts == {"ae_threshold": 4, "bnn_svm": 4, "bnn_svm 2": 4, **both}


def test_below_the_floor_the_fit_says_so(shared: rw.Run) -> None:
    (network,) = artifacts(shared, "network:autoencoder").values()
    (fit,) = artifacts(shared, "monitor:ae_threshold").values()
    assert network.competence["explained"] < network.competence["floor"] == 0.5, "one epoch is not enough"
    assert fit.competence["explained"] == network.competence["explained"]
    assert is_undertrained(fit.competence)
    for fit in artifacts(shared, "monitor:bin_class").values():
        (own,) = fit.competence["networks"].values()
        assert fit.competence["clean_accuracy"] == shared.record.artifacts[own].competence["clean_accuracy"]
        assert not is_undertrained(fit.competence)
    page = shared.report().read_text()
    assert (
        f'network:autoencoder</td><td class="long">explained {network.competence["explained"]:.4g}, floor 0.5' in page
    )
    (hash_,) = artifacts(shared, "network:autoencoder")
    assert f"networks autoencoder {hash_[:12]}, explained" in page


def test_a_run_that_is_killed_while_a_network_trains_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    asked = AeThreshold(**SMALL_AUTOENCODER)
    dies, trained = True, 0

    @contextmanager
    def bar(title: str, total: int) -> Iterator[Any]:
        def advance(images: int) -> None:
            nonlocal trained
            trained += images if title.startswith("training") else 0
            if dies and trained > 2 * len(TRAIN):
                raise KeyboardInterrupt

        yield advance

    with pytest.raises(KeyboardInterrupt):
        od_test(tmp_path / "killed", asked, progress=bar)
    assert len([*(tmp_path / "killed" / "artifacts").glob("*/checkpoint.safetensors")]) == 1
    dies = False
    killed, whole = od_test(tmp_path / "killed", asked), od_test(tmp_path / "whole", asked)
    assert tiny.contents(killed.path) == tiny.contents(whole.path)
    assert killed.verify() == []
    by_hand = asked.build(MODEL, TRAIN).state
    (hash_,) = artifacts(whole, "monitor:ae_threshold")
    stored = state_of(whole, hash_).state
    assert {*stored} == {*by_hand}
    for name, array in by_hand.items():
        np.testing.assert_array_equal(stored[name], array)
    for hash_ in whole.record.artifacts:
        homes = [run.path / "artifacts" / hash_ for run in (killed, whole)]
        names = sorted(path.name for path in homes[0].iterdir())
        assert names == sorted(path.name for path in homes[1].iterdir())
        assert all((homes[0] / name).read_bytes() == (homes[1] / name).read_bytes() for name in names)


def test_a_combination_trains_the_networks_of_its_parts(tmp_path: Path) -> None:
    part = {"monitor": "ae_threshold", **SMALL_AUTOENCODER, "epochs": 1}
    both = Combined(of=(part, {**part, "monitor": "mnn_svm"}), rule="all")
    assert not both.asks_model
    assert Combined(of=(part, "msp")).asks_model
    assert Combined(of=("random", "logistic_svm")).asks_model, "its network is like that of the model"
    fitted = both.build(MODEL, TRAIN)
    alone = AeThreshold.of({key: value for key, value in part.items() if key != "monitor"}).build(MODEL, TRAIN)
    for name, array in alone.state.items():
        np.testing.assert_array_equal(fitted.state[f"0.{name}"], array)
    assert [*both.pictures(TEST.batch([0]).images, fitted.state)] == [
        "ae_threshold: reconstruction",
        "mnn_svm: reconstruction",
    ]
    run = od_test(tmp_path / "run", both, alone.monitor)
    networks = artifacts(run, "network:autoencoder")
    assert len(networks) == 2
    (fit,) = artifacts(run, "monitor:combined").values()
    assert {*fit.competence["networks"]} == {"0.autoencoder", "1.autoencoder"}
    assert {*fit.competence["networks"].values()} == {*networks}


@dataclass(frozen=True, kw_only=True)
class Undeclared(Monitor):
    """Reads of the model what its needs do not name."""

    in_fit: bool = False
    name: ClassVar[str] = "undeclared"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})

    def signals(self, model: Any) -> tuple[str, ...]:
        return ("probabilities",) if self.in_fit else ()

    def read(self, signals: Any, state: Any) -> Any:
        return signals.probabilities.max(axis=1)


def test_a_monitor_that_is_shared_by_models_cannot_read_one_of_them() -> None:
    with pytest.raises(InputError, match="only images are shown: a monitor names what it reads of one in its needs"):
        represent_data(Undeclared().build(MODEL), MODEL, TEST)
    with pytest.raises(InputError, match="learns from probabilities of the model: name that in its needs"):
        Undeclared(in_fit=True).build(MODEL)


# Saved, loaded, exported.


def test_a_saved_monitor_needs_no_run_and_refuses_images_of_another_size(shared: rw.Run, tmp_path: Path) -> None:
    (hash_,) = artifacts(shared, "monitor:ae_threshold")
    stored = state_of(shared, hash_)
    rows = represent_data(stored, MODEL, HELD_OUT)
    stored.calibrate(rows).save(tmp_path / "monitor")
    assert {path.name for path in (tmp_path / "monitor").iterdir()} == {"monitor.json", "monitor.npz", "manifest.json"}
    loaded = load_monitor(tmp_path / "monitor", ToyModel(width=30))
    np.testing.assert_array_equal(loaded.fitted.represent(MODEL, HELD_OUT.batch(slice(None))), rows)
    larger = toy_data(12)[2].batch(slice(0, 2))
    for model in (MODEL, ToyModel(12)):
        with pytest.raises(InputError, match=r"built on images \(8, 8, 3\), not \(12, 12, 3\): resize them"):
            loaded.decide(model, larger)
    grey = Batch(("a",), np.zeros((1, 8, 8, 1), np.uint8), np.zeros(1, np.int64))
    with pytest.raises(InputError, match=r"built on images \(8, 8, 3\), not \(8, 8, 1\)"):
        loaded.decide(MODEL, grey)


@pytest.mark.parametrize(
    "monitor",
    [AeThreshold(**SMALL_AUTOENCODER | {"epochs": 1}), LogisticSvm(**SMALL), PixelCnnPlusPlus(**SMALL_DENSITY)],
    ids=lambda monitor: monitor.name,
)
def test_a_guard_keeps_the_networks_and_decides_about_one_image(monitor: Monitor, tmp_path: Path) -> None:
    guard = Guard.make(MODEL, monitor, TRAIN, HELD_OUT, IdRule("share"))
    guard.save(tmp_path / "guard")
    loaded = load_guard(tmp_path / "guard", ToyModel())
    rows = represent_data(guard.fitted, MODEL, TEST)
    scores = guard.fitted.scores(rows, guard.rule)
    for row in (0, 7):
        decisions = [each.check(TEST.batch([row]).images[0]) for each in (guard, loaded)]
        assert decisions[0] == decisions[1]
        assert decisions[0].score == pytest.approx(scores[row], rel=1e-3, abs=1e-6)
        assert decisions[0].accept == (decisions[0].score >= guard.threshold.threshold)
    assert all(path.suffix in (".json", ".npz") for path in (tmp_path / "guard").rglob("*.*"))
    with pytest.raises(
        NotExportable, match=f"monitor {monitor.name} cannot be written as ONNX: it runs networks of its"
    ):
        export_onnx_monitor(MODEL, guard.fitted, guard.rule, guard.threshold, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_a_guard_cannot_learn_from_outliers() -> None:
    with pytest.raises(InputError, match="validation outliers"):
        Guard.make(MODEL, BinClass(**SMALL), TRAIN, HELD_OUT, IdRule("share"))


# What is said of them.


def test_the_plan_counts_what_is_trained_and_what_is_fitted(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(json.dumps(study_of_two_models(tmp_path)))
    said = call("run", tmp_path / "study.yaml", "--out", tmp_path / "run", "--dry-run")
    assert "of it to build 2 artifacts, without 13 artifacts that are built first" in said
    assert "training  6 of them; images are looked at 1,120 times" in said, "4 at 240 images, 2 at 40 of either side"
    assert "fitting   9 of them; images are looked at" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "parameters", "sentence"),
    [
        (AeThreshold, {"loss": "l1"}, "loss 'l1': use mse, bce"),
        (AeThreshold, {"batch": 2}, "batch is a whole number of at least 3, not 2"),
        (AeThreshold, {"floor": 2}, "the floor is a number from -1 to 1, not 2"),
        (AeThreshold, {"seconds": 0.0}, "seconds is a number above 0, not 0"),
        (BnnSvm, {"seconds": math.nan}, "seconds is a number above 0, not nan"),
        (MnnSvm, {"k": 0}, "k is a whole number of at least 1, not 0"),
        (VnnSvm, {"bottleneck": 0}, "bottleneck is a whole number of at least 1, not 0"),
        (LogisticSvm, {"epochs": 0}, "epochs must be a whole number from 1 to 10,000, not 0"),
        (DeepEnsemble, {"members": 0}, "members is a whole number of at least 1, not 0"),
        (DeepEnsemble, {"epsilon": -0.1}, "epsilon is a number of at least 0, not -0.1"),
        (PixelCnnPlusPlus, {"dropout": 1.0}, "dropout is at least 0 and below 1, not 1.0"),
        (BinClass, {"seed": -1}, "seed is a whole number of at least 0, not -1"),
    ],
)
def test_settings_that_no_training_can_keep_to_are_refused(kind: Any, parameters: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        kind(**parameters)


@pytest.mark.parametrize(
    ("monitor", "sentence"),
    [
        (LogisticSvm(architecture="vgg17"), "unknown architecture of monitor logistic_svm 'vgg17'"),
        (LogisticSvm(architecture="lenet", width=3), "a lenet has its own width: leave it out"),
        (DeepEnsemble(architecture="resnet", width=3), "a residual network takes a width of at least 16, not 3"),
        (MnnSvm(k=241), "with k=241 needs at least 241 training images, not 240"),
    ],
)
def test_networks_that_cannot_be_made_are_refused(monitor: Monitor, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        monitor.build(MODEL, TRAIN)
