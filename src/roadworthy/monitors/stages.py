"""The stages of a torch network: where a monitor reads or changes feature maps unless its settings name layers."""

from __future__ import annotations

from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.models import TorchModel
from roadworthy.models.head import network_here
from roadworthy.monitors.base import Monitor


def torch_network(monitor: Monitor, model: Model) -> TorchModel:
    """The torch network behind a model; an `InputError` where there is none, or one whose layers cannot be reached."""
    network = network_here(model)
    if not isinstance(network, TorchModel) or not network.layers():
        raise InputError(
            f"monitor {monitor.name} reaches into the layers of a torch module: supply a torch model of Python code "
            f"(a module, or weights with their architecture) in place of {model.name}"
        )
    return network


def stage_layers(network: TorchModel, batch: Batch) -> tuple[str, ...]:
    """The layer that ends each stage, the first stage first: of the maps of one height and width, the last finished.

    Maps of a single position do not count, nor do submodules that run more than once. For a ResNet these are the
    outputs of its groups of blocks.
    """
    last = dict[tuple[int, int], str]()
    for name, (_, height, width) in network.feature_maps(batch).items():
        last.pop((height, width), None)
        last[height, width] = name
    return tuple(last.values())


def require_layers(monitor: Monitor, layers: Any) -> None:
    """Refuse what is not a tuple of different names of layers; None stands for those that `stage_layers` finds."""
    if layers is None:
        return
    is_valid = isinstance(layers, tuple) and all(isinstance(layer, str) and layer for layer in layers)
    if not (is_valid and layers and len(set(layers)) == len(layers)):
        raise InputError(
            f"monitor {monitor.name}: layers are the names of different layers of the model, or None, not {layers!r}"
        )
