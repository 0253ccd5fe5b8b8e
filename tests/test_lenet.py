"""The reference network `lenet`: its layers, its weights, its settings, and how well it learns real signs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from roadworthy.core.errors import InputError
from roadworthy.data import open_dataset
from roadworthy.models.networks import lenet
from roadworthy.models.reference import ReferenceModel
from roadworthy.monitors import make_monitor


@pytest.mark.parametrize(
    ("classes", "size", "channels", "hidden", "weights"),
    [
        (43, 32, 3, 128, 456 + 2416 + (16 * 6 * 6 + 1) * 120 + 121 * 128 + 129 * 43),
        (10, 28, 1, 84, 156 + 2416 + (16 * 5 * 5 + 1) * 120 + 121 * 84 + 85 * 10),  # 61,706: LeNet-5 of the digits
        (2, 12, 1, 1, 156 + 2416 + (16 + 1) * 120 + 121 + 2 * 2),
        (5, (13, 40), 3, 128, 456 + 2416 + (16 * 1 * 8 + 1) * 120 + 121 * 128 + 129 * 5),
    ],
)
def test_weights_follow_from_the_layers(classes: int, size: Any, channels: int, hidden: int, weights: int) -> None:
    torch = pytest.importorskip("torch")
    network = lenet(classes, size, channels=channels, hidden=hidden)
    assert sum(weight.numel() for weight in network.parameters()) == weights
    height, width = (size, size) if isinstance(size, int) else size
    images = torch.zeros(2, channels, height, width)
    assert network(images).shape == (2, classes)
    assert network[:-1](images).shape == (2, hidden)
    kinds = [type(layer).__name__ for layer in network]
    assert kinds == ["Conv2d", "ReLU", "MaxPool2d"] * 2 + ["Flatten"] + ["Linear", "ReLU"] * 2 + ["Linear"]
    assert (network.conv1.padding, network.conv2.padding) == ((2, 2), (0, 0))


def test_networks_that_cannot_be() -> None:
    with pytest.raises(InputError, match="at least 12x12, not 11x40"):
        lenet(10, (11, 40))
    with pytest.raises(InputError, match="one of each is the least"):
        lenet(0, 32)
    with pytest.raises(InputError, match=r"a lenet has its own width$"):
        ReferenceModel("lenet", width=8)
    with pytest.raises(InputError, match="a vgg16 has its own width: use vgg for another"):
        ReferenceModel("vgg16", width=8)
    with pytest.raises(InputError, match="a lenet has no dropout"):
        ReferenceModel("lenet", dropout=0.5)


def test_defaults_are_its_own_and_those_of_others_stay() -> None:
    shown = {name: ReferenceModel(name).settings() for name in ("lenet", "baseline", "vgg")}
    assert [shown[name]["batch"] for name in shown] == [32, 128, 128]
    assert [shown[name]["epochs"] for name in shown] == [30, 4, 8]
    own = ReferenceModel("lenet", batch=16, epochs=3).settings()
    assert (own["batch"], own["epochs"]) == (16, 3)


def test_it_gives_what_monitors_need(tmp_path: Path) -> None:
    bright = np.arange(40) % 2
    data = open_dataset((np.repeat(bright * 255, 12 * 12).reshape(40, 12, 12).astype(np.uint8), bright))
    model = ReferenceModel("lenet", epochs=1, hidden=9).on(data)
    model.build(tmp_path)
    model.load(tmp_path)
    batch = data.batch(slice(0, 4))
    hidden = np.asarray(model.features(batch, "relu4"))
    assert hidden.shape == (4, 9)
    assert (hidden >= 0).all()
    assert model.input_gradient(batch) is not None
    assert model.capabilities == model.untrained().capabilities == model.opened().capabilities
    for name in ("odin", "vim", "deep_knn"):
        make_monitor(name).check(model.untrained())


@pytest.mark.slow
def test_it_learns_german_signs(shared_data: Path, tmp_path: Path) -> None:
    """With its defaults, from 12,330 images (80 % of the objects): about one minute on two cores."""
    train, test = (open_dataset(shared_data / f"gtsrb_{part}.npz") for part in ("train", "test"))
    model = ReferenceModel("lenet").on(train)
    model.build(tmp_path)
    model.load(tmp_path)
    answers = model.answer(test.batch(slice(None)), 64).probabilities.argmax(axis=1)
    assert matthews_corrcoef(test.labels, answers) >= 0.85
