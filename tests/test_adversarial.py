"""Attacks: closed forms on linear models, the bound, what is needed, and that every attack hurts a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.random import Streams
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch, Stimulus
from roadworthy.models import CallableModel, StoredPredictions, TorchModel, align
from roadworthy.shifts.adversarial import ATTACKS, Attack, DeepFool, Fgsm, Pgd, Square, linear_step

torch = pytest.importorskip("torch")

SIZE, CLASSES = 6, 3
VALUES = SIZE * SIZE * 3


def linear(seed: int = 0, gain: float = 3.0, **settings: Any) -> TorchModel:
    """softmax(W x / 255), W (K, C, H, W) random: every gradient is known in closed form."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(VALUES, CLASSES, bias=False))
    with torch.no_grad():
        network[1].weight.mul_(gain)
    return TorchModel(network, size=SIZE, outputs="logits", name="linear", **settings)


def weights(model: TorchModel) -> np.ndarray:
    """W / 255 as (K, H, W, C), by pixel values."""
    flat = model.module[1].weight.detach().numpy().astype(np.float64) / 255
    return flat.reshape(CLASSES, 3, SIZE, SIZE).transpose(0, 2, 3, 1)


def batch(count: int = 5, low: int = 60, high: int = 196, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    images = rng.integers(low, high, (count, SIZE, SIZE, 3), dtype=np.uint8)
    return Batch(tuple(f"i{i}" for i in range(count)), images, rng.integers(0, CLASSES, count))


def read_right(model: TorchModel, shown: Batch) -> Batch:
    """The same images, each labelled as the model reads it."""
    answer = model.predict(shown).probabilities.argmax(axis=1)
    return Batch(shown.ids, shown.images, answer.astype(np.int64))


def attack(name: str, **parameters: Any) -> Attack:
    return ATTACKS.get(name)(**parameters)


def change(attacked: Batch, clean: Batch) -> np.ndarray:
    return attacked.images.astype(int) - clean.images.astype(int)


def test_fgsm_on_a_linear_model_is_the_closed_form() -> None:
    model, clean = linear(), batch()
    w, p = weights(model), model.predict(clean).probabilities.astype(np.float64)
    residual = p - np.eye(CLASSES)[clean.labels]
    expected = 7 * np.sign(np.einsum("nk,khwc->nhwc", residual, w))
    np.testing.assert_array_equal(change(Fgsm(epsilon=7).bound(model)(clean, Streams(0)), clean), expected)


def test_fgsm_is_the_worst_of_all_corners_for_two_classes() -> None:
    model = linear()
    with torch.no_grad():
        model.module[1].weight[2] = -1000
    clean = read_right(model, batch())
    worst = Fgsm(epsilon=3).bound(model)(clean, Streams(0))
    w, sides = weights(model), clean.labels
    margin = np.einsum("nhwc,nhwc->n", clean.images, w[sides] - w[1 - sides])
    least = margin - 3 * np.abs(w[0] - w[1]).sum()
    after = np.einsum("nhwc,nhwc->n", worst.images, w[sides] - w[1 - sides])
    np.testing.assert_allclose(after, least, rtol=1e-6)
    # On a linear model the many steps of PGD end in the same corner.
    np.testing.assert_array_equal(Pgd(epsilon=3).bound(model)(clean, Streams(0)).images, worst.images)


def test_linear_step_is_the_shortest_way_to_the_nearest_boundary() -> None:
    model, clean = linear(), read_right(linear(), batch())
    w = weights(model)
    scores = np.einsum("nhwc,khwc->nk", clean.images.astype(np.float64), w)
    rivals = np.array([[k for k in range(CLASSES) if k != label] for label in clean.labels])
    directions = np.stack([[w[k] - w[label] for k in row] for row, label in zip(rivals, clean.labels, strict=True)])
    step = linear_step(scores, clean.labels, rivals, directions)
    for image, label, way, row in zip(clean.images, clean.labels, step, scores, strict=True):
        distances = [(row[label] - row[k]) / np.linalg.norm(w[k] - w[label]) for k in range(CLASSES) if k != label]
        assert np.linalg.norm(way) == pytest.approx(min(distances))
        moved = np.einsum("hwc,khwc->k", image + way, w)
        assert np.sort(moved)[-1] == pytest.approx(np.sort(moved)[-2])
    assert not linear_step(scores, clean.labels, rivals, np.zeros_like(directions)).any()


def test_deepfool_crosses_the_boundary_at_hardly_more_than_the_least_distance() -> None:
    model = linear(gain=1.0)
    clean = read_right(model, batch(8))
    w = weights(model)
    fooled = DeepFool(epsilon=200.0).bound(model)(clean, Streams(0))
    assert (model.predict(fooled).probabilities.argmax(axis=1) != clean.labels).all()
    scores = np.einsum("nhwc,khwc->nk", clean.images.astype(np.float64), w)
    for label, row, way in zip(clean.labels, scores, change(fooled, clean), strict=True):
        least = min((row[label] - row[k]) / np.linalg.norm(w[k] - w[label]) for k in range(CLASSES) if k != label)
        # Whole pixel values: rounding adds up to half a value each.
        assert least - 0.5 * np.sqrt(VALUES) <= np.linalg.norm(way) <= 1.03 * least + 0.5 * np.sqrt(VALUES)
    misread = Batch(clean.ids, clean.images, (clean.labels + 1) % CLASSES)
    assert not change(DeepFool(epsilon=200.0).bound(model)(misread, Streams(0)), misread).any()


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("level", [1, 3, 5])
def test_epsilon_and_the_range_of_pixels_are_never_left(name: str, level: int) -> None:
    model = linear(gain=0.3)
    for shown in (batch(9, 0, 256), batch(3, 0, 4), batch(3, 252, 256)):
        clean = read_right(model, shown)
        untouched = clean.images.copy()
        fewer = {"queries": 20} if name == "square" else {}
        bound = replace(ATTACKS.get(name).at(level), **fewer).bound(model)
        moved = change(bound(clean, Streams(0, name)), clean)
        if name == "deepfool":
            assert np.sqrt((moved**2.0).mean(axis=(1, 2, 3))).max() <= bound.epsilon
        else:
            assert np.abs(moved).max() <= bound.epsilon
        np.testing.assert_array_equal(clean.images, untouched)
        assert moved.any()


@pytest.mark.parametrize("name", ["fgsm", "pgd", "deepfool", "square"])
def test_every_attack_lowers_the_true_class_and_the_batch_does_not_matter(name: str) -> None:
    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 16, CLASSES)
    )
    with torch.no_grad():
        network[3].weight.mul_(5)
    model = TorchModel(network, size=SIZE, outputs="logits")
    clean = read_right(model, batch(6))
    fewer = {"queries": 40} if name == "square" else {}
    bound = attack(name, epsilon=24, **fewer).bound(model)
    hurt = bound(clean, Streams(0, name))
    rows = np.arange(len(clean))
    before, after = (model.predict(b).probabilities[rows, clean.labels] for b in (clean, hurt))
    assert after.mean() < before.mean() - 0.05
    parts = [bound(clean.take([row]), Streams(0, name)).images for row in reversed(range(6))]
    np.testing.assert_array_equal(np.concatenate(parts[::-1]), hurt.images)
    assert hurt.ids == clean.ids
    assert hurt.stimulus == clean.stimulus


def test_the_square_attack_needs_answers_alone_and_never_makes_it_worse_for_itself() -> None:
    def brightness(images: np.ndarray) -> np.ndarray:
        light = images.mean(axis=(1, 2, 3)) / 255
        return np.stack([light, 1 - light], axis=1)

    model = CallableModel(brightness, num_classes=2, version="1")
    clean = Batch(("a", "b"), batch(2).images, np.array([0, 1]))
    hurt = Square(epsilon=8, queries=150).bound(model)(clean, Streams(0))
    lost = brightness(clean.images)[[0, 1], [0, 1]] - brightness(hurt.images)[[0, 1], [0, 1]]
    assert (lost > 0.35 * 8 / 255).all()
    assert (lost <= 8 / 255 + 1e-9).all()
    with pytest.raises(InputError, match="gradient of model brightness"):
        Fgsm(epsilon=1).bound(model)


def test_the_stimulus_knows_the_attacked_model() -> None:
    free = Pgd.at(3)
    first, second = free.bound(linear(0)), free.bound(linear(1))
    assert free.parameters() == {"epsilon": 4, "steps": 10}
    assert first.parameters()["attacked"] == linear(0).fingerprint()
    hashes = {Stimulus(data="d", name="pgd", level=3, parameters=a.parameters()).hash for a in (free, first, second)}
    assert len(hashes) == 3
    with pytest.raises(InputError, match=r"bound\(model\)"):
        free(batch(), Streams(0))


def test_the_order_of_classes_is_the_datas() -> None:
    names = ["x", "y", "z"]
    model = linear(classes=names)
    aligned = align(model, ["z", "x", "y"])
    clean = batch()
    to_own = np.array([names.index(name) for name in ("z", "x", "y")])
    same = Batch(clean.ids, clean.images, to_own[clean.labels])
    np.testing.assert_array_equal(
        Fgsm(epsilon=4).bound(aligned)(clean, Streams(0)).images, Fgsm(epsilon=4).bound(model)(same, Streams(0)).images
    )


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("fgsm", {"epsilon": 0.5}, "whole number"),
        ("fgsm", {"epsilon": 256}, "0 to 255"),
        ("fgsm", {"epsilon": True}, "whole number"),
        ("pgd", {"epsilon": 4, "steps": 0}, "steps"),
        ("deepfool", {"epsilon": -1.0}, "epsilon"),
        ("deepfool", {"epsilon": 1.0, "classes": 1}, "classes"),
        ("square", {"epsilon": 4, "queries": 0}, "queries"),
        ("square", {"epsilon": 4, "target": "v3"}, "not a parameter"),
    ],
)
def test_bad_parameters_are_told(name: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        attack(name, **parameters)


def test_what_cannot_be_attacked_is_told(tmp_path: Path) -> None:
    clean = batch()
    lines = [f"{image_id},0.8,0.1,0.1" for image_id in clean.ids]
    (tmp_path / "answers.csv").write_text("\n".join(["id,p0,p1,p2", *lines]))
    with pytest.raises(InputError):
        Square(epsilon=4).bound(StoredPredictions(tmp_path / "answers.csv"))(clean, Streams(0))
    unlabelled = Batch(clean.ids, clean.images, np.full(len(clean), -1))
    with pytest.raises(InputError, match="label"):
        Fgsm(epsilon=4).bound(linear())(unlabelled, Streams(0))
    nothing = clean.take([])
    assert len(Square(epsilon=4).bound(linear())(nothing, Streams(0))) == 0


def test_epsilon_zero_changes_nothing_and_attacks_are_no_plain_shifts() -> None:
    clean = read_right(linear(), batch())
    for name in ATTACKS:
        assert not change(attack(name, epsilon=0).bound(linear())(clean, Streams(0)), clean).any()
        assert name not in SHIFTS


class Endless(torch.nn.Module):
    """Right answers, and a gradient of NaN: 0 times the infinite slope of the root at 0."""

    def forward(self, images: Any) -> Any:
        nothing = torch.sqrt((images - images).abs().sum((1, 2, 3)))
        return torch.stack([nothing + images.mean((1, 2, 3)) + 1, nothing + 1], 1)


@pytest.mark.parametrize("name", ["fgsm", "pgd", "deepfool"])
def test_a_gradient_that_is_not_finite_is_the_models_error(name: str) -> None:
    model = TorchModel(Endless(), size=SIZE, outputs="logits", name="endless")
    shown = Batch(("i0",), np.full((1, SIZE, SIZE, 3), 120, np.uint8), np.zeros(1, np.int64))
    with pytest.raises(ModelError, match="model endless gives a gradient that is not finite for image i0"):
        attack(name, epsilon=4).bound(model)(shown, Streams(0))


def test_where_the_gradient_is_zero_fgsm_stays_and_pgd_keeps_its_random_start() -> None:
    model, clean = linear(gain=0.0), batch()
    assert not change(Fgsm(epsilon=4).bound(model)(clean, Streams(0)), clean).any()
    moved = change(Pgd(epsilon=4).bound(model)(clean, Streams(0)), clean)
    assert set(np.unique(moved)) == set(range(-4, 5))
