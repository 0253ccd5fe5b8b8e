"""The reference network of the studies, the way any network becomes an ONNX graph, and weights on disk."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import InputError, MissingExtra
from roadworthy.core.files import write_bytes
from roadworthy.models.torch import import_torch

if TYPE_CHECKING:
    import torch

OPSET = 17


def thesis_cnn(
    num_classes: int,
    size: int | tuple[int, int],
    *,
    channels: int = 3,
    width: int = 32,
    hidden: int = 128,
    dropout: float = 0.0,
) -> torch.nn.Module:
    """Two convolutions of `width` filters, a pooling layer, two fully connected layers; answers logits (N, K).

    conv 3x3 - ReLU - conv 3x3 - ReLU - max pool 2x2 - linear to `hidden` - ReLU - linear to K

    Convolutions keep the size (padding 1). Where `dropout` > 0, each of the three hidden layers (both convolutions and
    the first linear one) is followed by dropout of single activations, after its ReLU. Input (N, C, H, W) in 0-1.

    >>> network = thesis_cnn(14, 64, dropout=0.6)
    >>> sum(weight.numel() for weight in network.parameters()), [name for name, _ in network.named_children()][:3]
    (4206382, ['conv1', 'relu1', 'dropout1'])
    """
    height, width_of_image = (size, size) if isinstance(size, int) else size
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be at least 0 and below 1, not {dropout}")
    if min(height, width_of_image) < 2 or min(num_classes, channels, width, hidden) < 1:
        raise InputError(
            f"a network for {num_classes} classes and {height}x{width_of_image} images of {channels} channels, with "
            f"{width} filters and {hidden} hidden units, cannot be built: images of 2x2 and one of each are the least"
        )
    nn = import_torch().nn
    layers: dict[str, Any] = {
        "conv1": nn.Conv2d(channels, width, 3, padding=1),
        "relu1": nn.ReLU(),
        "dropout1": nn.Dropout(dropout),
        "conv2": nn.Conv2d(width, width, 3, padding=1),
        "relu2": nn.ReLU(),
        "dropout2": nn.Dropout(dropout),
        "pool": nn.MaxPool2d(2),
        "flatten": nn.Flatten(),
        "linear1": nn.Linear(width * (height // 2) * (width_of_image // 2), hidden),
        "relu3": nn.ReLU(),
        "dropout3": nn.Dropout(dropout),
        "linear2": nn.Linear(hidden, num_classes),
    }
    network: torch.nn.Module = nn.Sequential()
    for name, layer in layers.items():
        if dropout or not name.startswith("dropout"):
            network.add_module(name, layer)
    return network


def export_onnx(network: torch.nn.Module, path: Path, size: int | tuple[int, int], channels: int = 3) -> None:
    """Write a network that takes images (N, C, H, W) and answers logits as one ONNX file with a free batch size."""
    height, width = (size, size) if isinstance(size, int) else size
    example = import_torch().zeros(2, channels, height, width)
    write_bytes(path, onnx_bytes(network, {"image": example}, ["logits"]))


def onnx_bytes(
    network: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
    fixed: Sequence[str] = (),
) -> bytes:
    """A network in eval mode as an ONNX graph; the first side of every input is free, but for the `fixed` ones."""
    torch = import_torch()
    buffer = io.BytesIO()
    free = {name: {0: "batch"} for name in [*inputs, *outputs] if name not in fixed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            tuple(inputs.values()),
            buffer,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=free,
            opset_version=OPSET,
            dynamo=False,
        )
    return buffer.getvalue()


def save_weights(path: Path, tensors: Mapping[str, torch.Tensor], notes: Mapping[str, str] | None = None) -> None:
    """Write tensors, and notes as text, to one safetensors file, whole or not at all."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, _safetensors().save(plain, dict(notes or {})))


def load_weights(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and notes of a safetensors file; no code is run."""
    _safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read as safetensors ({error}): delete it to train again") from None


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingExtra("trained networks", "torch") from None
    return safetensors.torch
