"""The backbones of the paper, from transformers: ResNet-50, EfficientNet-B0 and ConvNeXt-Tiny.

Imports torch: for use by `backbones`, which imports it when a backbone is built.

Each runs the modules of the transformers model itself, in an order without branches on the values, so that torch.fx can
trace it and the exporter of ONNX takes it; the answers are those of `pooler_output`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from roadworthy.models.huggingface import import_transformers
from roadworthy.models.perception.small_backbones import Normalise

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "resnet50": {
            "embedding_size": 64,
            "hidden_sizes": [256, 512, 1024, 2048],
            "depths": [3, 4, 6, 3],
            "layer_type": "bottleneck",
            "hidden_act": "relu",
            "downsample_in_first_stage": False,
            "downsample_in_bottleneck": False,
        },
        "efficientnet_b0": {
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "hidden_dim": 1280,
            "hidden_act": "swish",
            "drop_connect_rate": 0.0,
            "batch_norm_momentum": 0.01,
        },
        "convnext_tiny": {
            "hidden_sizes": [96, 192, 384, 768],
            "depths": [3, 3, 9, 3],
            "hidden_act": "gelu",
            "patch_size": 4,
            "drop_path_rate": 0.0,
        },
    }
)
"""The configuration of each in the words of transformers; what is not named is its default."""


class BigBackbone(nn.Module):
    """Images (N, C, H, W) in 0-1 to pooled features (N, D); `model` is the transformers model, with its own names.

    With random weights the images stay in 0-1. Where weights trained on ImageNet are loaded, `normalise` takes its mean
    and standard deviation.
    """

    def __init__(self, model: nn.Module, channels: int) -> None:
        super().__init__()
        self.normalise = Normalise([0.0] * channels, [1.0] * channels)
        self.model = model


class ResNet50(BigBackbone):
    """ResNet-50: 16 bottleneck blocks, features of 2048 numbers."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to features (N, 2048)."""
        model: Any = self.model
        values = model.embedder.pooler(model.embedder.embedder(self.normalise(images)))
        for stage in model.encoder.stages:
            values = stage(values)
        return torch.flatten(model.pooler(values), 1)


class EfficientNetB0(BigBackbone):
    """EfficientNet-B0: 16 MBConv blocks, the first without expansion, features of 1280 numbers."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to features (N, 1280)."""
        model: Any = self.model
        values = model.embeddings(self.normalise(images))
        for block in model.encoder.blocks:
            values = block(values)
        values = model.encoder.top_activation(model.encoder.top_bn(model.encoder.top_conv(values)))
        features: torch.Tensor = values.mean([-2, -1])
        return features


class ConvNextTiny(BigBackbone):
    """ConvNeXt-Tiny: 18 blocks, features of 768 numbers."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images to features (N, 768)."""
        model: Any = self.model
        values = model.embeddings.layernorm(model.embeddings.patch_embeddings(self.normalise(images)))
        for stage in model.encoder.stages:
            values = stage(values)
        features: torch.Tensor = model.layernorm(values.mean([-2, -1]))
        return features


def build_big(name: str, channels: int) -> nn.Module:
    """A big backbone with random weights."""
    transformers = import_transformers("the backbones of the paper")
    settings = dict(SETTINGS[name]) | {"num_channels": channels}
    match name:
        case "resnet50":
            return ResNet50(transformers.ResNetModel(transformers.ResNetConfig(**settings)), channels)
        case "efficientnet_b0":
            model = transformers.EfficientNetModel(transformers.EfficientNetConfig(**settings))
            _prepare_efficientnet(model, settings["batch_norm_momentum"])
            return EfficientNetB0(model, channels)
        case _:
            return ConvNextTiny(transformers.ConvNextModel(transformers.ConvNextConfig(**settings)), channels)


def _prepare_efficientnet(model: nn.Module, momentum: float) -> None:
    """Make random weights trainable, give every batch normalisation the same momentum, and remove unused dropout.

    transformers draws the factors of batch normalisation from N(0, 0.02^2), which leaves nothing of the signal after 16
    blocks; they start at 1. Convolutions start at N(0, 2 / fan_out). It also leaves the momentum of the expansion at
    the default of torch, and holds dropout of probability 0 in every block.
    """
    for module in list(model.modules()):
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            module.momentum = momentum
        elif isinstance(module, nn.Conv2d):
            fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels // module.groups
            nn.init.normal_(module.weight, 0.0, math.sqrt(2 / fan_out))
        elif isinstance(getattr(module, "dropout", None), nn.Dropout):
            module.dropout = nn.Identity()


def inner_activations(backbone: nn.Module) -> list[tuple[Any, str]]:
    """Where full dropout goes, in the order of the network: a module and the name of an activation in it."""
    model: Any = backbone.model
    if isinstance(backbone, ResNet50):
        blocks = [block for stage in model.encoder.stages for block in stage.layers]
        return [(module, "activation") for block in blocks for module in (block.layer[0], block.layer[1], block)]
    if isinstance(backbone, EfficientNetB0):
        return [(block.expansion, "expand_act") for block in model.encoder.blocks if block.expand]
    return [(layer, "act") for stage in model.encoder.stages for layer in stage.layers]
