"""A perception network: a backbone that answers features, and a head of two hidden layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import UnknownName
from roadworthy.core.validation import check_whole, parse_size
from roadworthy.models.networks import Size
from roadworthy.models.perception.backbones import BACKBONES, load_backbone
from roadworthy.models.perception.placements import HEAD_LAYERS, check_placement, drop_after
from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch

MOST_UNITS = 2**16


def perception_network(
    backbone: str,
    outputs: int,
    *,
    size: Size,
    channels: int = 3,
    hidden: int = 128,
    width: int | None = None,
    placement: str = "none",
    p: float = 0.0,
    weights: str | Path | None = None,
) -> torch.nn.Module:
    """A network from images (N, C, H, W) in 0-1 to `outputs` numbers (N, K): class logits, or the numbers of a box.

    features = backbone(images);  answer = linear(relu(linear(relu(linear(features)))))

    The modules are `backbone` and `head`. Both hidden layers of the head have `hidden` units. `placement` says where
    dropout of single activations with probability `p` stands: before the output layer (`last_layer`), on the features
    (`after_backbone`), on the features and both hidden layers (`head`), or there and inside the backbone (`full`);
    `none` has no dropout module. `width` is the number of channels behind the stem of a small backbone; None is its
    default. `weights` is a safetensors file, or a folder with one, of weights of the backbone that the user holds (see
    `load_backbone`); None starts from random weights of torch's generator, which the caller seeds.

    >>> network = perception_network("small_convnext", 4, size=64, placement="head", p=0.05)
    >>> [name for name, _ in network.named_children()], tuple(network(import_torch().zeros(2, 3, 64, 64)).shape)
    (['backbone', 'head'], (2, 4))
    """
    if backbone not in BACKBONES:
        raise UnknownName("backbone", backbone, BACKBONES)
    check_placement(placement, p)
    check_whole("the outputs of a perception network", outputs, 1, MOST_UNITS)
    check_whole("the hidden units of a perception network", hidden, 1, MOST_UNITS)
    sides = parse_size(size)
    assert sides is not None
    declared = BACKBONES.get(backbone)
    features = declared.build(sides, channels, width)
    if weights is not None:
        load_backbone(features, backbone, weights)
    if placement == "full":
        drop_after(declared.activations(features), p)
    nn = import_torch().nn
    network: torch.nn.Module = nn.Sequential()
    network.add_module("backbone", features)
    count = _count_features(features, (channels, *sides))
    network.add_module("head", _head(count, hidden, outputs, placement, p))
    return network


def _head(features: int, hidden: int, outputs: int, placement: str, p: float) -> torch.nn.Module:
    """linear - ReLU - linear - ReLU - linear, with dropout where the placement says."""
    nn = import_torch().nn
    layers: dict[str, Any] = {
        "dropout_features": "features",
        "linear1": nn.Linear(features, hidden),
        "relu1": nn.ReLU(),
        "dropout_hidden1": "hidden1",
        "linear2": nn.Linear(hidden, hidden),
        "relu2": nn.ReLU(),
        "dropout_hidden2": "hidden2",
        "output": nn.Linear(hidden, outputs),
    }
    head: torch.nn.Module = nn.Sequential()
    for name, layer in layers.items():
        if not isinstance(layer, str):
            head.add_module(name, layer)
        elif layer in HEAD_LAYERS[placement]:
            head.add_module(name, nn.Dropout(p))
    return head


def _count_features(backbone: torch.nn.Module, shape: tuple[int, int, int]) -> int:
    """The number of features that a backbone answers for images of a shape (C, H, W)."""
    torch = import_torch()
    was_training = backbone.training
    with torch.no_grad():
        features = backbone.eval()(torch.zeros(1, *shape))
    backbone.train(was_training)
    return int(features.shape[1])
