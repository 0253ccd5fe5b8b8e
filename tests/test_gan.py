"""GAN-made outliers: losses by hand, gradients only where they belong, the same generator after a kill, studies."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import roadworthy as rw
from records import record_anew
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.roles import Trial
from roadworthy.data import open_dataset
from roadworthy.engine.estimating import estimate_time
from roadworthy.engine.folder import RunFolder
from roadworthy.protocols.repeat_analysis.analysis import analyse
from roadworthy.study import parse_study
from tiny import CLASSES, contents, save_onnx, study

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from roadworthy.outliers.gan import (  # noqa: E402
    CONFIGURATIONS,
    PRESETS,
    Configuration,
    Gan,
    GanOutliers,
    GanSettings,
    losses,
    networks,
    stopping,
    training,
)
from roadworthy.outliers.gan.outliers import BLOCK  # noqa: E402

TINY = GanSettings(width=2, latent=4, batch=42, epochs=3)
WEIGHTS = {"width": 2, "latent": 4, "batch": 42, "epochs": 2, "threads": 1}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "THREADS", 1)


@cache
def signs() -> Any:
    return open_dataset({"builtin": "signs", "split": "train", "n": 210}, size=(16, 16))


def course(name: str = "lee_gan", **settings: Any) -> training.Course:
    return training.Course(CONFIGURATIONS[name], replace(TINY, **settings), signs(), 0, {}, 1)


# Losses


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def test_losses_by_hand() -> None:
    real, fake = torch.tensor([2.0, -1.0]), torch.tensor([0.5, 3.0])
    told_apart = (softplus(-2) + softplus(1)) / 2 + (softplus(0.5) + softplus(3)) / 2
    assert float(losses.discriminator_loss("original", real, fake)) == pytest.approx(told_apart)
    assert float(losses.discriminator_loss("wasserstein", real, fake)) == pytest.approx(1.75 - 0.5)
    assert float(losses.likeness_loss("original", fake)) == pytest.approx((softplus(-0.5) + softplus(-3)) / 2)
    assert float(losses.unlikeness_loss("original", fake)) == pytest.approx((softplus(0.5) + softplus(3)) / 2)
    assert float(losses.likeness_loss("wasserstein", fake)) == -1.75
    assert float(losses.unlikeness_loss("wasserstein", fake)) == 1.75


def test_divergences_by_hand() -> None:
    logits = torch.tensor([[0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3]]).log()
    to_uniform = sum(math.log((1 / 3) / p) / 3 for p in (0.7, 0.2, 0.1)) / 2
    from_uniform = sum(p * math.log(p * 3) for p in (0.7, 0.2, 0.1)) / 2
    assert float(losses.uniform_divergence(logits)) == pytest.approx(to_uniform, abs=1e-6)
    assert float(losses.entropy(logits)) == pytest.approx(math.log(3) - from_uniform, abs=1e-6)
    assert float(losses.entropy(torch.tensor([[200.0, 0.0]]))) == 0.0
    fake = torch.tensor([1.0])
    lee = losses.generator_loss("lee", "wasserstein", fake, logits, beta=2.0)
    assert float(lee) == pytest.approx(-1 + 2 * to_uniform, abs=1e-6)
    sure = losses.generator_loss("sricharan", "original", fake, logits, beta=0.5)
    assert float(sure) == pytest.approx(softplus(1) + 0.5 * (math.log(3) - from_uniform), abs=1e-6)


@pytest.mark.parametrize("loss", ["original", "wasserstein"])
def test_lee_wants_doubt_and_likeness_and_sricharan_the_opposite(loss: str) -> None:
    fake, logits = torch.zeros(1, requires_grad=True), torch.tensor([[1.0, 0.0]], requires_grad=True)
    losses.generator_loss("lee", loss, fake, logits).backward()
    assert fake.grad[0] < 0 < logits.grad[0, 0]
    fake.grad, logits.grad = None, None
    losses.generator_loss("sricharan", loss, fake, logits).backward()
    assert logits.grad[0, 0] < 0 < fake.grad[0]


# Networks


def filters(network: Any) -> list[int]:
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    return [module.out_channels for module in network.modules() if isinstance(module, kinds)]


def test_networks_are_those_of_the_thesis() -> None:
    assert filters(networks.make_generator(14, (64, 64))) == [512, 256, 128, 64, 3]
    assert filters(networks.make_discriminator(14, (64, 64))) == [64, 128, 256, 512, 1]
    surrogate = networks.make_surrogate(14)
    assert filters(surrogate) == [64, 128, 256, 14]
    assert not any(isinstance(module, torch.nn.Linear) for module in surrogate.modules())
    thesis = PRESETS["thesis"]
    assert (thesis.batch, thesis.learning_rate, thesis.width) == (96, 2e-4, 64)


@pytest.mark.parametrize("size", [(16, 16), (40, 33), (64, 48)])
@pytest.mark.parametrize("channels", [1, 3])
def test_networks_fit_any_size(size: tuple[int, int], channels: int) -> None:
    labels = torch.tensor([0, 4, 2])
    images = networks.make_generator(5, size, channels, width=1, latent=3)(torch.randn(3, 3), labels)
    assert images.shape == (3, channels, *size)
    assert 0 <= float(images.detach().min()) <= float(images.detach().max()) <= 1
    assert networks.make_discriminator(5, size, channels, width=1)(images, labels).shape == (3,)
    assert networks.make_surrogate(5, channels, width=1)(images).shape == (3, 5)


def test_small_images_are_refused() -> None:
    with pytest.raises(InputError, match="at least 16x16"):
        networks.make_generator(5, (8, 64))


def test_the_class_changes_what_is_drawn_and_how_it_is_judged() -> None:
    torch.manual_seed(0)
    draw, judge = networks.make_generator(3, (16, 16), width=2), networks.make_discriminator(3, (16, 16), width=2)
    noise = torch.randn(1, 100)
    one, other = (draw.eval()(noise, torch.tensor([label])) for label in (0, 1))
    assert not torch.equal(one, other)
    assert judge.eval()(one, torch.tensor([0])) != judge(one, torch.tensor([1]))


# Steps


def weights(found: training.Course) -> dict[str, list[Any]]:
    return {name: [w.detach().clone() for w in network.parameters()] for name, network in found.networks.items()}


def moved(before: dict[str, list[Any]], found: training.Course) -> set[str]:
    now = weights(found)
    return {name for name in now if any(not torch.equal(a, b) for a, b in zip(before[name], now[name], strict=True))}


@pytest.mark.parametrize("name", ["lee_gan", "sricharan_wgan_2e"])
def test_each_step_moves_its_own_network_alone(name: str) -> None:
    found = course(name)
    labels, real = torch.arange(8), torch.rand(8, 3, 16, 16)
    fake = found.networks["generator"](torch.randn(8, TINY.latent), labels)
    steps = {
        "surrogate": lambda: training.surrogate_step(found, real, labels, fake.detach()),
        "discriminator": lambda: training.discriminator_step(found, real, fake.detach(), labels),
        "generator": lambda: training.generator_step(found, fake, labels),
    }
    for part, step in steps.items():
        before = weights(found)
        grads = {n: [w.grad is not None for w in net.parameters()] for n, net in found.networks.items() if n != part}
        step()
        assert moved(before, found) == {part}
        after = {n: [w.grad is not None for w in net.parameters()] for n, net in found.networks.items() if n != part}
        assert after == grads
    assert all(w.requires_grad for network in found.networks.values() for w in network.parameters())


def test_surrogate_statistics_know_real_images_alone() -> None:
    found = course()
    labels = torch.arange(8)
    fake = found.networks["generator"](torch.randn(8, TINY.latent), labels)
    before = {name: value.clone() for name, value in found.networks["surrogate"].state_dict().items()}
    training.generator_step(found, fake, labels)
    now = found.networks["surrogate"].state_dict()
    assert all(torch.equal(value, now[name]) for name, value in before.items())


def test_only_a_critic_is_clipped() -> None:
    largest = {}
    for name in ("sricharan_gan_005", "sricharan_wgan_005"):
        found = course(name)
        labels = torch.arange(8)
        training.discriminator_step(found, torch.rand(8, 3, 16, 16), torch.rand(8, 3, 16, 16), labels)
        judge = found.networks["discriminator"]
        largest[name] = max(float(w.detach().abs().max()) for w in judge.layers.parameters())
        assert float(judge.embedding.weight.detach().abs().max()) > 1
    assert largest["sricharan_wgan_005"] == pytest.approx(0.01)
    assert largest["sricharan_gan_005"] > 0.5


# Stopping


def looks(*rows: tuple[float, float, bool]) -> list[dict[str, Any]]:
    """Three looks to an epoch: accuracy on generated images, classifier loss, whether the surrogate is competent."""
    return [
        {"step": 10 * place, "epochs": place / 3, "accuracy": a, "classifier_loss": loss, "competent": competent}
        for place, (a, loss, competent) in enumerate(rows)
    ]


START = (0.07, 3.0, False)


@pytest.mark.parametrize(
    ("name", "rows", "by", "kept"),
    [
        ("lee_gan", [START], None, 0),
        ("lee_gan", [START, (0.29, 3, True), (0.1, 3, True)], None, 1),
        ("lee_gan", [START, (0.2, 3, True), (0.3, 3, True)], "accuracy", 1),
        ("lee_gan", [START, (0.2, 3, False), (0.35, 3, False)], None, 1),
        ("lee_gan", [START, (0.2, 3, False), (0.1, 3, True), (0.35, 3, True)], "accuracy", 2),
        ("lee_wgan", [START, (0.1, 3, True), (0.1, 3, True), (0.1, 3, True), (0.05, 3, True)], None, 3),
        ("lee_wgan", [START, *[(0.1, 3, True)] * 5, (0.05, 3, True)], "most_epochs", 5),
        ("sricharan_gan_005", [START, (0.07, 0.005, True)], "classifier_loss", 1),
        ("sricharan_gan_005", [START, (0.07, 0.005, False)], None, 1),
        ("sricharan_gan_005", [START, (0.07, 0.001, False), (0.07, 0.006, True)], None, 2),
        ("sricharan_wgan_002", [START, (0.07, 0.005, True)], None, 1),
        ("sricharan_wgan_002", [START, (0.07, 0.001, True)], "classifier_loss", 1),
        ("sricharan_wgan_2e", [START, *[(0.07, 0.0, True)] * 5], None, 5),
        ("sricharan_wgan_2e", [START, *[(0.07, 3, False)] * 6], "epochs", 6),
    ],
)
def test_when_training_stops_and_what_is_kept(name: str, rows: Any, by: str | None, kept: int) -> None:
    assert stopping.stopped_by(CONFIGURATIONS[name], 2, looks(*rows)) == by
    assert stopping.kept_look(CONFIGURATIONS[name], looks(*rows)) == kept


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trainings whose classifier loss falls by a given factor in every step; the surrogate is right from a step on."""

    def script(start: float, factor: float, competent_from: int) -> None:
        step, evaluate, steps = training.generator_step, training.evaluate, []

        def stepped(found: training.Course, *arguments: Any) -> tuple[float, float]:
            steps.append(1)
            return step(found, *arguments)[0], start * factor ** len(steps)

        def judged(found: training.Course, *known: Any) -> dict[str, Any]:
            return evaluate(found, *known) | {"surrogate_accuracy": float(len(steps) >= competent_from)}

        monkeypatch.setattr(training, "generator_step", stepped)
        monkeypatch.setattr(training, "evaluate", judged)

    return script


@pytest.mark.parametrize(
    ("name", "competent_from", "step", "by"),
    [
        ("sricharan_wgan_005", 0, 4, "classifier_loss"),
        ("sricharan_wgan_002", 0, 6, "classifier_loss"),
        ("sricharan_wgan_002", 7, 8, "classifier_loss"),
        ("sricharan_wgan_005", 99, 16, "most_epochs"),
        ("sricharan_wgan_2e", 99, 8, "epochs"),
    ],
)
def test_rules_are_looked_at_every_few_steps_and_wait_for_the_surrogate(
    name: str, competent_from: int, step: int, by: str, scripted: Any, tmp_path: Path
) -> None:
    """The loss is 0.04 / 2^step, four steps make an epoch: means over two steps are 0.015, 0.00375, 0.00094, ..."""
    scripted(0.04, 0.5, competent_from)
    competence = train(tmp_path, name, epochs=4, look_every=2)
    assert (competence["steps"], competence["stopped_by"]) == (step, by)
    assert (competence["epochs"], competence["kept_step"]) == (-(-step // 4), step)
    first = competent_from + competent_from % 2
    assert competence["competent_step"] == (None if competent_from == 99 else first)
    record = json.loads((tmp_path / "training.json").read_text())
    assert [look["step"] for look in record["looks"]] == [*range(0, step + 1, 2)]
    assert record["looks"][1]["classifier_loss"] == pytest.approx(0.015)
    assert record["looks"][-1]["epochs"] == step / 4
    assert len(record["history"]) == 1 + -(-step // 4)
    assert (tmp_path / f"epoch-00{-(-step // 4)}.png").exists()


def test_looks_change_nothing_in_the_training(tmp_path: Path) -> None:
    histories = []
    for every in (1, 3, 100):
        train(tmp_path / str(every), "sricharan_wgan_2e", look_every=every)
        record = json.loads((tmp_path / str(every) / "training.json").read_text())
        assert len(record["looks"]) == {1: 9, 3: 5, 100: 3}[every]
        histories.append((record["history"], (tmp_path / str(every) / training.WEIGHTS).read_bytes()))
    assert histories[0] == histories[1] == histories[2]


def test_what_the_kept_generator_draws_is_shown(scripted: Any, tmp_path: Path) -> None:
    scripted(0.04, 0.5, 0)
    train(tmp_path, "sricharan_wgan_002", epochs=4, look_every=2)
    assert (tmp_path / training.KEPT_GRID).read_bytes() == (tmp_path / "epoch-002.png").read_bytes()


# The surrogate


def test_the_loss_of_a_joint_surrogate_by_hand() -> None:
    real, generated = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]).log(), torch.tensor([[0.5, 0.3, 0.2]]).log()
    labels = torch.tensor([0, 2])
    right = -(math.log(0.7) + math.log(0.3)) / 2
    unsure = sum(math.log((1 / 3) / p) / 3 for p in (0.5, 0.3, 0.2))
    assert float(losses.surrogate_loss(real, labels)) == pytest.approx(right, abs=1e-6)
    joint = losses.surrogate_loss(real, labels, generated, beta=0.5)
    assert float(joint) == pytest.approx(right + 0.5 * unsure, abs=1e-6)
    uniform = torch.zeros(4, 3)
    assert float(losses.surrogate_loss(real, labels, uniform)) == pytest.approx(right, abs=1e-6)


def test_a_joint_surrogate_unlearns_to_be_certain_of_generated_images() -> None:
    torch.manual_seed(0)
    labels, real, fake = torch.arange(8), torch.rand(8, 3, 16, 16), torch.rand(8, 3, 16, 16) * 0.2
    divergence = {}
    for beta in (1e-9, 1.0):
        how = replace(CONFIGURATIONS["lee_gan"], surrogate="joint", surrogate_beta=beta)
        found = training.Course(how, replace(TINY, learning_rate=0.02), signs(), 0, {}, 1)
        for _ in range(30):
            training.surrogate_step(found, real, labels, fake)
        with torch.inference_mode():
            answers = found.networks["surrogate"](torch.cat([real, fake])).split([8, 8])
        divergence[beta] = float(losses.uniform_divergence(answers[1]))
        assert float(torch.nn.functional.cross_entropy(answers[0], labels)) < math.log(CLASSES)
    assert divergence[1.0] < divergence[1e-9] / 2


def test_the_record_says_which_surrogate_was_used(tmp_path: Path) -> None:
    how = replace(CONFIGURATIONS["lee_gan"], surrogate="joint", surrogate_beta=0.5)
    settings = replace(TINY, epochs=1)
    competence = training.train_gan(how, settings, signs(), tmp_path)
    assert competence["surrogate"] == "joint"
    recipe = json.loads((tmp_path / "training.json").read_text())["recipe"]["configuration"]
    assert (recipe["surrogate"], recipe["surrogate_beta"]) == ("joint", 0.5)
    assert train(tmp_path / "real", epochs=1)["surrogate"] == "real"
    plain = Gan(CONFIGURATIONS["lee_gan"], settings, signs()).recipe.hash
    assert Gan(how, settings, signs()).recipe.hash != plain


def test_the_six_configurations() -> None:
    found = [(c.aim, c.loss, c.stop, c.at) for c in CONFIGURATIONS.values()]
    assert found == [
        ("lee", "original", "accuracy", 0.3),
        ("lee", "wasserstein", "accuracy", 0.3),
        ("sricharan", "original", "classifier_loss", 0.005),
        ("sricharan", "wasserstein", "classifier_loss", 0.002),
        ("sricharan", "wasserstein", "epochs", 2),
        ("sricharan", "wasserstein", "classifier_loss", 0.005),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aim": "lea"}, "did you mean 'lee'"),
        ({"stop": "epochs", "at": 2.5}, "cannot stop at epochs 2.5"),
        ({"at": 30}, "give a share"),
        ({"beta": math.nan}, "beta"),
        ({"surrogate": "jonit"}, "did you mean 'joint'"),
        ({"surrogate": "joint", "surrogate_beta": 0}, "surrogate_beta is a number above 0"),
        ({"surrogate_beta": 2}, "surrogate_beta is for surrogate: joint"),
    ],
)
def test_a_configuration_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(CONFIGURATIONS["lee_gan"], **changes)


# Training


class Killed(Exception):
    pass


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def train(folder: Path, name: str = "lee_gan", **settings: Any) -> dict[str, Any]:
    return training.train_gan(CONFIGURATIONS[name], replace(TINY, **settings), signs(), folder)


def test_a_killed_training_ends_with_the_same_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    settings = replace(TINY, look_every=2)
    whole = train(tmp_path / "whole", look_every=2)
    assert whole["steps"] == 12
    real, calls = training.surrogate_step, []

    def killed(*arguments: Any) -> float:
        calls.append(1)
        if len(calls) == 7:
            raise Killed
        return real(*arguments)

    monkeypatch.setattr(training, "surrogate_step", killed)
    with pytest.raises(Killed):
        train(tmp_path / "cut", look_every=2)
    assert (tmp_path / "cut" / "checkpoint.safetensors").exists()
    told: list[int] = []
    again = training.train_gan(CONFIGURATIONS["lee_gan"], settings, signs(), tmp_path / "cut", progress=told.append)
    assert again == whole
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    assert sum(told) == TINY.epochs * len(signs())
    assert train(tmp_path / "cut", look_every=2) == whole


def test_threads_that_a_study_gives_are_part_of_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    plain, other = (Gan(CONFIGURATIONS["lee_gan"], replace(TINY, threads=n), signs()) for n in (None, 3))
    assert "threads" not in plain.recipe.parameters["settings"], "recipes of before stay as they are"
    assert other.recipe.parameters["settings"]["threads"] == 3
    for number, gan in ((2, plain), (3, other)):
        gan.build(tmp_path / str(number))
        assert used[0] == number
        used.clear()
    with pytest.raises(InputError, match="threads"):
        replace(TINY, threads=0)


def test_what_training_leaves(tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    competence = train(tmp_path, "sricharan_wgan_2e")
    assert torch.equal(state, torch.random.get_rng_state())
    assert competence["stopped_by"] == "epochs"
    assert (competence["epochs"], competence["kept_epoch"]) == (2, 2)
    assert sorted(files(tmp_path)) == [
        *(f"epoch-00{e}.png" for e in range(3)),
        "generator.safetensors",
        "kept.png",
        "training.json",
    ]
    record = json.loads((tmp_path / "training.json").read_text())
    assert [epoch["epoch"] for epoch in record["history"]] == [0, 1, 2]
    assert [look["step"] for look in record["looks"]] == [0, 4, 8]
    assert set(training.LOSSES) < set(record["history"][1])
    assert all(math.isfinite(record["history"][1][name]) for name in training.LOSSES)
    with pytest.raises(InputError, match="another training"):
        train(tmp_path, "sricharan_wgan_2e", batch=16)


def test_a_diverging_training_keeps_its_last_good_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = training.generator_step, []

    def poisoned(found: training.Course, *arguments: Any) -> tuple[float, float]:
        calls.append(1)
        if len(calls) == 7:
            with torch.no_grad():
                next(found.networks["discriminator"].parameters()).fill_(math.nan)
        return real(found, *arguments)

    monkeypatch.setattr(training, "generator_step", poisoned)
    with pytest.raises(
        ModelError, match=r"GAN sricharan_wgan_005: the generator loss became nan in epoch 2: .*step 4 is"
    ):
        train(tmp_path, "sricharan_wgan_005")
    kept, _ = training.load_weights(tmp_path / training.WEIGHTS)
    assert all(bool(torch.isfinite(value).all()) for value in kept.values())


def test_seeds_and_configurations_give_other_gans(tmp_path: Path) -> None:
    one = Gan(CONFIGURATIONS["sricharan_wgan_002"], TINY, signs())
    others = [
        Gan(CONFIGURATIONS["sricharan_wgan_005"], TINY, signs()),
        Gan(CONFIGURATIONS["sricharan_wgan_002"], TINY, signs(), index=1),
        Gan(CONFIGURATIONS["sricharan_wgan_002"], replace(TINY, width=3), signs()),
    ]
    assert len({gan.recipe.hash for gan in [one, *others]}) == 4
    same, other = (
        training.Course(gan.configuration, TINY, signs(), gan.recipe.seed, {}, 1)
        for gan in (Gan(CONFIGURATIONS[name], TINY, signs()) for name in ("sricharan_wgan_002", "sricharan_wgan_005"))
    )
    assert moved(weights(same), other) == {"generator", "discriminator", "surrogate"}


# Sets


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Gan, Path]:
    home = tmp_path_factory.mktemp("gan")
    gan = Gan(CONFIGURATIONS["sricharan_wgan_2e"], replace(TINY, learning_rate=0.05, threads=1), signs())
    training.train_gan(gan.configuration, gan.settings, gan.data, home, seed=gan.recipe.seed)
    gan.load(home)
    return gan, home


def test_a_set_is_drawn_the_same_whatever_is_asked_for(built: tuple[Gan, Path]) -> None:
    gan, home = built
    data = open_dataset({"builtin": "signs", "n": 98}, size=(16, 16))
    drawn = GanOutliers(gan=gan).make(data, seed=3)
    whole = drawn.batch(slice(None)).images
    rows = [97, 3, 64, 63, 3]
    assert np.array_equal(drawn.batch(rows).images, whole[rows])
    assert len({image.tobytes() for image in whole}) > CLASSES
    again = Gan(gan.configuration, gan.settings, signs())
    again.load(home)
    same = GanOutliers(gan=again).make(data, seed=3)
    assert same.fingerprint() == drawn.fingerprint()
    assert np.array_equal(same.batch(slice(None)).images, whole)
    fresh = GanOutliers(gan=gan).make(data, seed=4)
    assert fresh.fingerprint() != drawn.fingerprint()
    assert not np.array_equal(fresh.batch([0]).images, whole[:1])
    assert drawn.ids[0] == f"sricharan_wgan_2e/{data.ids[0]}"
    assert set(drawn.labels) == {0}
    assert len(set(drawn.groups)) == len(data)


def test_drawn_images_are_those_of_the_stored_generator(built: tuple[Gan, Path]) -> None:
    gan, home = built
    network = gan.network()
    network.load_state_dict(training.load_weights(home / training.WEIGHTS)[0])
    rng = np.random.default_rng(0)
    noise, labels = rng.standard_normal((BLOCK, TINY.latent)).astype(np.float32), np.arange(BLOCK) % CLASSES
    with torch.inference_mode():
        images = network.eval()(torch.from_numpy(noise), torch.from_numpy(labels))
    wanted = images.mul(255).permute(0, 2, 3, 1).numpy()
    assert np.abs(gan.draw(noise, labels) - wanted).max() <= 0.501


def test_an_untrained_gan_says_so() -> None:
    gan = Gan(CONFIGURATIONS["lee_gan"], TINY, signs())
    with pytest.raises(ModelError, match="not trained yet"):
        GanOutliers(gan=gan).make(signs(), seed=0).batch([0])
    with pytest.raises(InputError, match="other images"):
        GanOutliers(gan=gan).make(open_dataset({"builtin": "signs", "n": 14}, size=(32, 32)), seed=0)


# Studies


def gan_study(folder: Path, gans: Any, train: Any = None, **ood: Any) -> dict[str, Any]:
    data = {
        "test": {"builtin": "signs", "n": 70},
        "train": train or {"builtin": "signs", "split": "train", "n": 210},
    }
    settings = {"sets": ["uniform_noise", "park"], "transformed": [], "gans": gans, **ood}
    outliers = {"park": {"builtin": "scenery", "n": 70}}
    return study(folder, data=data, outliers=outliers, protocols={"ood": settings})


def run(folder: Path, out: str, content: dict[str, Any]) -> rw.Run:
    return execute(prepare(parse_study(content, "study")), folder / out, workers=1, progress=no_progress)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = tmp_path_factory.mktemp("study")
    gans = {**WEIGHTS, "configurations": ["lee_gan", "sricharan_wgan_2e"], "count": 2}
    content = gan_study(folder, gans, repeats=2)
    content["models"]["second"] = {"onnx": str(save_onnx(folder / "second.onnx", gain=3))}
    return run(folder, "run", content)


def test_a_study_trains_gans_and_shows_what_they_draw(done: rw.Run) -> None:
    ood, gan = done.tables["ood"], done.tables["gan"]
    drawn = ood[(ood["kind"] == "gan") & (ood["metric"] == "auroc") & (ood["model"] == "tiny")]
    assert list(drawn["ood_set"]) == ["lee_gan", "sricharan_wgan_2e"]
    assert set(drawn["n"]) == {140}
    each = gan[(gan["metric"] == "auroc") & (gan["model"] == "tiny")]
    assert list(zip(each["ood_set"], each["gan"], strict=True)) == [
        ("lee_gan", 0),
        ("lee_gan", 1),
        ("sricharan_wgan_2e", 0),
        ("sricharan_wgan_2e", 1),
    ]
    assert drawn["value"].to_list() == pytest.approx(each.groupby("ood_set")["value"].mean().to_list())
    assert set(each.loc[each["ood_set"] == "sricharan_wgan_2e", "stopped_by"]) == {"epochs"}
    assert each["undertrained"].dtype == bool
    assert set(each["surrogate"]) == {"real"}
    assert set(each.loc[each["ood_set"] == "sricharan_wgan_2e", "steps"]) == {8}
    seen = done.tables["gan_looks"].query("ood_set == 'sricharan_wgan_2e' and gan == 0")
    assert list(seen["step"]) == [0, 4, 8]
    assert list(seen["stopped_by"]) == ["", "", "epochs"]
    assert list(seen["kept"]) == [False, False, True]
    assert seen["competent"].dtype == bool
    repeats = done.tables["gan_repeats"]
    lowest = repeats[repeats["metric"] == "auroc"].groupby(["ood_set", "gan"])["value"].mean()
    for name, rows in each.groupby("ood_set"):
        assert rows.loc[rows["hardest"], "gan"].item() == lowest[name].idxmin()
    kinds = done.tables["ood_by_kind"]
    assert set(kinds.loc[kinds["kind"] == "gan", "sets"]) == {2}
    assert done.verify() == []


def test_repeats_draw_anew_from_the_same_gans(done: rw.Run) -> None:
    cases = [(asked, case) for _, _, asked, case in done.record.asked() if asked.labels.get("kind") == "gan"]
    assert len({asked.labels["artifact"] for asked, _ in cases}) == 4
    assert len({case.stimulus.data for _, case in cases}) == 8
    built = [artifact for artifact in done.record.artifacts.values() if artifact.builder == "gan"]
    assert len(built) == 4
    repeats = done.tables["ood_repeats"]
    of_gans = repeats[(repeats["kind"] == "gan") & (repeats["metric"] == "auroc") & (repeats["model"] == "tiny")]
    assert sorted(of_gans["repeat"]) == [0, 0, 1, 1]


def test_gans_of_several_sources_have_pictures_of_their_own(tmp_path: Path) -> None:
    gans = {**WEIGHTS, "epochs": 1, "configurations": ["sricharan_wgan_2e"], "count": 1}
    content = gan_study(tmp_path, gans, sets=["uniform_noise"])
    first = {"data": content.pop("data"), "models": content.pop("models")}
    train = {"builtin": "signs", "split": "train", "n": 280}
    content["sources"] = {"a": first, "b": {**first, "data": {**first["data"], "train": train}}}
    gallery = run(tmp_path, "run", content).tables["gan_gallery"]
    assert list(gallery["source"]) == ["a", "b"]
    for column in ("media", "drawn"):
        pictures = [(tmp_path / "run" / "media" / name).read_bytes() for name in gallery[column]]
        assert pictures[0] != pictures[1], column


def test_analyses_of_gans(done: rw.Run) -> None:
    anova = done.tables["anova_gan_hardest"].query("form == 'thesis'").set_index("factor")["df"]
    assert anova["model"] == 1
    assert anova["ood_set"] == 1
    sets = done.tables["anova_ood_sets"].query("form == 'thesis'").set_index("factor")["df"]
    assert sets["ood_set"] == 1
    assert "anova_gan_average" in done.tables


def test_pictures_of_gans(done: rw.Run) -> None:
    media = {path.name for path in (done.path / "media").iterdir()}
    epochs_of, gallery, answers = (done.tables[f"gan_{name}"] for name in ("epochs", "gallery", "answers"))
    assert set(epochs_of["media"]) | set(gallery["media"]) | set(gallery["drawn"]) <= media
    assert (epochs_of.groupby(["ood_set", "gan"])["kept"].sum() == 1).all()
    assert set(epochs_of["epoch"]) == {0, 1, 2}
    for gan in (artifact for artifact in done.record.artifacts.values() if artifact.builder == "gan"):
        assert gan.competence["kept_step"] in {0, 4, 8}
    last = epochs_of[epochs_of["epoch"] == 2].set_index(["ood_set", "gan"])["media"]
    drawn = gallery.set_index(["ood_set", "gan"])["drawn"]
    for gan in (0, 1):
        pictures = [(done.path / "media" / names["sricharan_wgan_2e", gan]).read_bytes() for names in (drawn, last)]
        assert pictures[0] == pictures[1], "the generator of the last step is kept"
    assert set(answers["place"]) == set(range(6))
    assert answers["confidence"].between(0, 1).all()
    hardest = done.tables["gan"].query("hardest").set_index("ood_set")["gan"].to_dict()
    assert dict(zip(answers["ood_set"], answers["gan"], strict=True)) == hardest


def test_a_run_of_before_looks_were_made_is_shown_by_epoch(done: rw.Run, tmp_path: Path) -> None:
    import shutil

    from roadworthy.protocols.ood.gan_facts import load_gans

    order = ["lee_gan", "sricharan_wgan_2e"]
    now = load_gans(done.path, order, None)
    assert now is not None
    assert now.gans[2].ending == (
        "Stopped after 8 steps, in epoch 2, by its number of epochs; the generator of step 8 is kept."
    )
    assert [row["epochs"] for row in now.gans[2].history] == [0, 1, 2]
    earlier = tmp_path / "run"
    shutil.copytree(done.path, earlier)
    for path in earlier.glob("tables/gan_looks.*"):
        path.unlink()
    later = ["surrogate", "competent_step", "steps", "kept_step"]
    RunFolder(earlier).write_table("gan", done.tables["gan"].drop(columns=later))
    record_anew(earlier)
    gans = load_gans(earlier, order, None)
    assert gans is not None
    assert gans.gans[2].ending == "Stopped after 2 epochs by its number of epochs; epoch 2 is kept."
    assert (gans.gans[2].surrogate, [row["epochs"] for row in gans.gans[2].history]) == ("real", [0, 1, 2])
    assert "Stopped after 2 epochs" in rw.open_run(earlier).report().read_text()


def test_the_report_says_when_and_why_each_training_stopped(done: rw.Run) -> None:
    text = (done.path / "report.html").read_text()
    assert "Stopped after 8 steps, in epoch 2, by its number of epochs; the generator of step 8 is kept." in text
    assert "The surrogate, taught real images alone, names" in text


def test_another_study_with_the_same_gan_shows_the_same_bits(done: rw.Run, tmp_path: Path) -> None:
    gans = {**WEIGHTS, "configurations": ["sricharan_wgan_2e"], "count": 1}
    again = run(tmp_path, "again", gan_study(tmp_path, gans, sets=["uniform_noise"]))
    same = {name: content for name, content in contents(again.path).items() if "readouts/sricharan" in name}
    assert same
    assert same.items() <= contents(done.path).items()


def test_hardest_is_the_lowest_mean_over_all_models() -> None:
    from roadworthy.core.types import Stimulus
    from roadworthy.engine.readouts import Readouts
    from roadworthy.metrics import Answers
    from roadworthy.protocols.base import StoredCase
    from roadworthy.protocols.ood.tables import Evidence

    def case(model: str, confidences: list[float], tags: dict[str, str]) -> StoredCase:
        ids = tuple(f"{tags}{row}" for row in range(len(confidences)))
        answers = Answers.from_probabilities(np.array([[c, 1 - c] for c in confidences]), [0] * len(ids))
        stimulus = Stimulus("d", tags.get("ood_set", "none"))
        return StoredCase(model, stimulus, tags, load=lambda: Readouts(ids, ids, answers, None))

    def tags(gan: int) -> dict[str, str]:
        return {"ood_set": "lee_gan", "kind": "gan", "gan": str(gan), "artifact": f"a{gan}"}

    sure = {("a", 0): 0.6, ("b", 0): 0.99, ("a", 1): 0.99, ("b", 1): 0.99}
    cases = [case(model, [0.9, 0.9], {}) for model in "ab"]
    cases += [case(model, [value, value], tags(gan)) for (model, gan), value in sure.items()]
    found = Evidence(cases, ["x", "y"])
    assert found.hardest == {"lee_gan": 1}
    assert {(key.model, gan): result.values["auroc"] for (key, gan), result in found.by_gan.items()} == {
        ("a", 0): [1.0],
        ("a", 1): [0.0],
        ("b", 0): [0.0],
        ("b", 1): [0.0],
    }
    assert found.results[found.keys[0]].values["auroc"] == [1.0, 0.0]


def test_anova_of_table_11_has_its_degrees_of_freedom() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"model": m, "ood_set": c, "gan": g, "hardest": g == 0, "repeat": r, "metric": "auroc", "value": rng.random()}
        for m in ("baseline", "mc_dropout")
        for c in CONFIGURATIONS
        for g in range(2)
        for r in range(20)
    ]
    table = analyse({"gan_repeats": pd.DataFrame(rows)}, ["ood"])["anova_gan_hardest"]
    df = table.query("form == 'thesis'").set_index("factor")["df"]
    assert df["model"] == 1
    assert df["ood_set"] == 5
    assert df["model*ood_set"] == 5
    assert df["Error"] == 228


@pytest.mark.parametrize(
    ("gans", "words"),
    [
        ({"configurations": ["lee_gann"]}, "did you mean 'lee_gan'"),
        ({"configurations": ["lee_gan", "lee_gan"]}, "named twice"),
        ({"preset": "smal"}, "did you mean 'small'"),
        ({"configurations": [{"name": "mine", "aim": "lee", "loss": "original"}]}, "needs its stop"),
        ({"configurations": [{"name": "lee_gan", "at": 0.05}]}, "guessing among 14 classes"),
        (
            {"configurations": [{"name": "park", "aim": "lee", "loss": "original", "stop": "epochs", "at": 1}]},
            "another set",
        ),
        ({"width": 0}, "width of GANs must be a whole number from 1 to 4,096"),
        ({"widht": 8}, "widht"),
    ],
)
def test_what_a_study_cannot_ask_for(gans: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        prepare(parse_study(gan_study(tmp_path, gans), "study"))


def test_gans_need_training_data(tmp_path: Path) -> None:
    content = gan_study(tmp_path, WEIGHTS)
    del content["data"]["train"]
    with pytest.raises(InputError, match="data: train"):
        prepare(parse_study(content, "study"))
    with pytest.raises(InputError, match="data: train"):
        rw.export_study(content, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_a_plan_with_gans_draws_nothing_yet(tmp_path: Path) -> None:
    prepared = prepare(parse_study(gan_study(tmp_path, {**WEIGHTS, "configurations": ["lee_gan"]}, repeats=2), "study"))
    graph = prepared.plan.graph()
    waiting = [(node.name, part.recipe.seed) for node in graph.artifacts.values() for part in node.parts]
    assert [name for name, _ in waiting] == ["lee_gan", "lee_gan"]
    assert len({seed for _, seed in waiting}) == 2
    estimate = estimate_time(graph, RunFolder(tmp_path / "none"), 1)
    assert (estimate.timed, estimate.untimed) == (2, 0)
    assert estimate.building > 0
    assert not any(part.loaded for node in graph.artifacts.values() for part in node.parts)
    assert not (tmp_path / "none").exists()


def test_the_estimate_counts_the_training_of_every_gan_and_all_that_they_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gans = {**WEIGHTS, "count": 3, "epochs": 5, "configurations": ["lee_gan", "lee_wgan", "sricharan_wgan_2e"]}
    content = gan_study(tmp_path, gans, repeats=2, sets=["uniform_noise"])
    graph = prepare(parse_study(content, "study")).plan.graph()
    tried: list[str] = []

    def trial(own: Gan) -> Trial:
        tried.append(own.configuration.name)
        return Trial(per_work=0.5, per_image=1.0)

    monkeypatch.setattr(Gan, "trial", trial)
    estimate = estimate_time(graph, RunFolder(tmp_path / "none"), 2)
    assert estimate.building == (6 * 5 + 3 * 2) * 210 * 0.5, "one after the other, at most five epochs or two"
    assert 9 * 2 * 70 / 2 < estimate.cases < 9 * 2 * 70 / 2 + 5, "nine GANs draw 70 images in each of two repeats"
    assert tried == ["lee_gan"], "an image takes as long for all"


def test_a_trial_times_steps_and_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        """Every look at it is a second later."""

        now = 0.0

        def process_time(self) -> float:
            self.now += 1
            return self.now

    clock = Clock()
    monkeypatch.setattr("roadworthy.models.trials.time", clock)
    monkeypatch.setattr("roadworthy.outliers.gan.outliers.time", clock)
    trial = Gan(CONFIGURATIONS["sricharan_wgan_002"], replace(TINY, batch=21, look_every=4, threads=1), signs()).trial()
    # a second for about 16 images (objects stay whole); 168 of 210 are learned, in 8 steps with 2 looks
    assert trial.per_work == pytest.approx((168 / 16 + 2) / 210, rel=0.2)
    assert trial.per_image == 1 / BLOCK


def test_own_configurations_and_changed_ones(tmp_path: Path) -> None:
    from roadworthy.protocols.ood.gans import Gans

    chosen = Gans.model_validate(
        {
            "preset": "thesis",
            "width": 32,
            "configurations": [
                {"name": "lee_gan", "at": 0.4},
                {"name": "mine", "aim": "sricharan", "loss": "original", "stop": "epochs", "at": 4, "beta": 2},
            ],
        }
    )
    assert chosen.settings() == replace(PRESETS["thesis"], width=32)
    changed, mine = (choice.chosen() for choice in chosen.configurations)
    assert changed == replace(CONFIGURATIONS["lee_gan"], at=0.4)
    assert mine == Configuration(name="mine", aim="sricharan", loss="original", stop="epochs", at=4, beta=2)


def test_a_gan_that_diverges_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Gan.build

    def diverging(self: Gan, workshop: Path, progress: Any, store: Any = None) -> dict[str, Any]:
        if self.index == 1:
            raise ModelError("GAN lee_gan: the generator loss became nan in epoch 1")
        return build(self, workshop, progress)

    monkeypatch.setattr(Gan, "build", diverging)
    gans = {**WEIGHTS, "epochs": 1, "configurations": ["lee_gan"], "count": 2}
    found = run(tmp_path, "run", gan_study(tmp_path, gans))
    row = found.tables["ood"].query("ood_set == 'lee_gan' and metric == 'auroc'").iloc[0]
    assert np.isfinite(row["value"])
    assert row["reason"].startswith("1 of 2 GANs left out: ")
    assert set(found.tables["gan"]["gan"]) == {0}
    assert {case.reason for case in found.record.cases.values() if case.status == "failed"} == {
        "GAN lee_gan: the generator loss became nan in epoch 1"
    }
    assert "became nan" in (found.path / "report.html").read_text()


def test_an_edited_study_shows_what_the_new_gan_draws(tmp_path: Path) -> None:
    shown = []
    for rate in (2e-4, 0.05):
        gans = {**WEIGHTS, "epochs": 1, "learning_rate": rate, "configurations": ["sricharan_wgan_2e"], "count": 1}
        found = run(tmp_path, "run", gan_study(tmp_path, gans))
        (name,) = found.tables["ood_gallery"].query("ood_set == 'sricharan_wgan_2e'")["media"]
        shown.append((found.path / "media" / name).read_bytes())
    assert shown[0] != shown[1]
