"""The backbones of the perception networks by name, each from images to features, and their stored weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import DamagedFile, InputError
from roadworthy.core.registry import Registry
from roadworthy.models.networks import load_weights

if TYPE_CHECKING:
    import torch

SMALL_SIDE = 16
BIG_SIDE = 32
LEAST_WIDTH = 16
"""With fewer channels torch 2.13 corrupts its memory in the backward pass of a strided convolution."""
HEADS = ("classifier.", "head.")
"""How the names of weights begin that belong to a head, not to a backbone."""
OF_BACKBONE = "backbone."
OF_LOCALIZER = "network."
OF_DECODER = "decoder."
CONTENT = "model.safetensors"
CONFIGURATION = "config.json"
TRAINING_ONLY = ("drop_connect_rate", "drop_path_rate", "batch_norm_momentum")
"""Settings of transformers that do not change the answers of a trained network."""
NOTED = "num_batches_tracked"
NAMED = 3
"""How many names of weights an error lists."""


@dataclass(frozen=True)
class Backbone:
    """A backbone: how it is built and what is known of it before.

    `dropout_layers` is how many dropout layers placement `full` puts into it. `width` is the number of channels behind
    the stem, which decides all others; None for a big backbone, whose channels are fixed. Images must have at least
    `least_side` pixels per side.

    A backbone of one's own is an object of a subclass with a `width`, which overrides `build` and `activations`; its
    code is part of the recipe of a network.

    >>> BACKBONES.get("convnext_tiny").family, BACKBONES.get("convnext_tiny").dropout_layers
    ('convnext', 18)
    """

    name: str
    family: str
    dropout_layers: int
    width: int | None

    @property
    def big(self) -> bool:
        """True for the networks of the paper, which come from transformers."""
        return self.width is None

    @property
    def least_side(self) -> int:
        """The least height and width of an image."""
        return BIG_SIDE if self.big else SMALL_SIDE

    def build(self, size: tuple[int, int], channels: int, width: int | None = None) -> torch.nn.Module:
        """A module from images (N, C, H, W) in 0-1 to features (N, D), with random weights of torch's generator."""
        if min(size) < self.least_side:
            least = f"{self.least_side}x{self.least_side}"
            raise InputError(f"backbone {self.name} takes images of at least {least}, not {size[0]}x{size[1]}")
        if channels < 1:
            raise InputError(f"backbone {self.name} takes images of at least one channel, not {channels}")
        if self.big:
            if width is not None:
                raise InputError(f"backbone {self.name} has a fixed width: leave out `width`, or use a small backbone")
            from roadworthy.models.perception.big_backbones import build_big

            return build_big(self.name, channels)
        chosen = self.width if width is None else width
        if chosen is None or chosen < LEAST_WIDTH:
            raise InputError(f"backbone {self.name} takes a `width` of at least {LEAST_WIDTH}, not {chosen}")
        from roadworthy.models.perception import small_backbones

        make: Callable[[tuple[int, int], int, int], torch.nn.Module] = getattr(small_backbones, self.name)
        return make(size, channels, chosen)

    def activations(self, backbone: torch.nn.Module) -> list[tuple[Any, str]]:
        """Where placement `full` puts dropout in a backbone that `build` made: a module and the name of its activation.

        ResNet: behind each ReLU inside the residual blocks, the one behind the sum included. EfficientNet: behind the
        swish before the depthwise convolution, so not in a block without expansion. ConvNeXt: behind the GELU.
        """
        if self.big:
            from roadworthy.models.perception.big_backbones import inner_activations
        else:
            from roadworthy.models.perception.small_backbones import inner_activations
        return inner_activations(backbone)


BACKBONES: Registry[Backbone] = Registry("backbone")
"""The backbones by name."""
for _backbone in (
    Backbone("resnet50", "resnet", 48, None),
    Backbone("efficientnet_b0", "efficientnet", 15, None),
    Backbone("convnext_tiny", "convnext", 18, None),
    Backbone("small_resnet", "resnet", 15, 16),
    Backbone("small_efficientnet", "efficientnet", 5, 16),
    Backbone("small_convnext", "convnext", 5, 32),
):
    BACKBONES.register(_backbone.name)(_backbone)


def load_backbone(backbone: torch.nn.Module, name: str, weights: str | Path) -> None:
    """Fill a backbone that `Backbone.build` made with weights from a safetensors file; no code is run.

    weights  a safetensors file; or a folder of transformers, which holds `model.safetensors` and `config.json`

    The file holds the weights of the backbone `name`, as transformers names them or as this project stores them (then
    with the normalisation of the input), of a classifier or of a localizer. Weights of a head (`classifier.*`,
    `head.*`) and the anchor of a localizer are not part of a backbone and stay unread. Weights from transformers get
    the mean and standard deviation of ImageNet for the input. A weight that is missing or left over, or has another
    shape, is an error.
    """
    file = Path(weights)
    if file.is_dir():
        _check_configuration(file / CONFIGURATION, name)
        file = file / CONTENT
    if not file.is_file():
        raise InputError(f"there are no weights {file}: give a safetensors file, or a folder with {CONTENT}")
    try:
        tensors, _ = load_weights(file)
    except DamagedFile:
        raise InputError(f"{file} cannot be read as safetensors: save the weights of {name} in that form") from None
    prefixes = (f"{BACKBONES.get(name).family}.", OF_BACKBONE)
    tensors = _without_head(_without_decoder(tensors), prefixes)
    if BACKBONES.get(name).big and "normalise.mean" not in tensors:
        from roadworthy.models.perception.big_backbones import IMAGENET_MEAN, IMAGENET_STD

        target: Any = backbone
        if target.normalise.mean.numel() != len(IMAGENET_MEAN):
            raise InputError(f"{file} holds weights for colour images: `channels` must be 3 beside `weights`")
        _fill(target.model, tensors, file, name)
        for buffer, values in ((target.normalise.mean, IMAGENET_MEAN), (target.normalise.std, IMAGENET_STD)):
            buffer.copy_(buffer.new_tensor(values).reshape(buffer.shape))
    else:
        _fill(backbone, tensors, file, name)


def _without_decoder(tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights of a localizer that this project stored without those of its decoder, named as of a classifier."""
    if not tensors or not all(name.startswith((OF_LOCALIZER, OF_DECODER)) for name in tensors):
        return tensors
    return {
        name.removeprefix(OF_LOCALIZER): tensor for name, tensor in tensors.items() if not name.startswith(OF_DECODER)
    }


def _without_head(tensors: Mapping[str, Any], prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The weights of a backbone alone, named without the name of the whole that it was part of."""
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(HEADS)}
    for prefix in prefixes:
        if own and all(name.startswith(prefix) for name in own):
            return {name.removeprefix(prefix): tensor for name, tensor in own.items()}
    return own


def _check_configuration(file: Path, name: str) -> None:
    """Refuse a folder of transformers whose network is not the backbone `name`."""
    from roadworthy.models.perception.big_backbones import SETTINGS

    if name not in SETTINGS:
        raise InputError(f"backbone {name} is not from transformers: give `weights` as a safetensors file")
    if not file.is_file():
        raise InputError(f"there is no {file}: give a folder that transformers wrote, or a safetensors file")
    try:
        configuration = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        raise InputError(f"{file} cannot be read as JSON: give a folder that transformers wrote") from None
    if not isinstance(configuration, dict):
        raise InputError(f"{file} is not a configuration: give a folder that transformers wrote")
    expected = {"model_type": BACKBONES.get(name).family} | dict(SETTINGS[name])
    for setting, value in expected.items():
        if setting not in TRAINING_ONLY and configuration.get(setting, value) != value:
            raise InputError(f"{file} is not of {name}: its {setting} is {configuration[setting]}, not {value}")


def _fill(module: torch.nn.Module, tensors: Mapping[str, Any], file: Path, name: str) -> None:
    """Put weights into a module; a name that is missing or left over, or another shape, is an error."""
    state = module.state_dict()
    missing = [key for key in state if key not in tensors and not key.endswith(NOTED)]
    unexpected = [key for key in tensors if key not in state]
    shapes = [key for key in state if key in tensors and state[key].shape != tensors[key].shape]
    for problem, keys in (("lacks", missing), ("has unknown", unexpected), ("has other shapes for", shapes)):
        if keys:
            more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
            raise InputError(f"{file} does not fit backbone {name}: it {problem} {', '.join(keys[:NAMED])}{more}")
    module.load_state_dict(dict(tensors), strict=False)
