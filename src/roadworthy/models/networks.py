"""The reference networks of the studies, the way any network becomes an ONNX graph, and weights on disk."""

from __future__ import annotations

import io
import json
import math
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import DamagedFile, InputError, MissingExtra
from roadworthy.core.files import write_bytes
from roadworthy.models.torch_state import digest_tensors
from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch

OPSET = 17
LEAST_WIDTH = 16
Size = int | tuple[int, int]
"""(height, width) of images, or one number for both."""


def thesis_cnn(
    num_classes: int, size: Size, *, channels: int = 3, width: int = 32, hidden: int = 128, dropout: float = 0.0
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


def lenet(num_classes: int, size: Size, *, channels: int = 3, hidden: int = 128) -> torch.nn.Module:
    """LeNet: two convolutions of 5x5 with a max pooling each and three linear layers; answers logits (N, K).

    conv 5x5 to 6 (padding 2) - ReLU - max pool 2x2 - conv 5x5 to 16 - ReLU - max pool 2x2 - linear to 120 - ReLU -
    linear to `hidden` - ReLU - linear to K

    `relu4` is the last hidden layer, of `hidden` neurons: a monitor of activations reads it. Input (N, C, H, W) in 0-1,
    at least 12x12.

    >>> network = lenet(43, 32)
    >>> sum(weight.numel() for weight in network.parameters()), [name for name, _ in network.named_children()][-2:]
    (93147, ['relu4', 'linear3'])
    """
    height, width = _checked_size(size, 12)
    if min(num_classes, channels, hidden) < 1:
        raise InputError(
            f"a LeNet for {num_classes} classes and images of {channels} channels, with {hidden} hidden units, cannot "
            "be built: one of each is the least"
        )
    rows, columns = ((side // 2 - 4) // 2 for side in (height, width))
    nn = import_torch().nn
    network: torch.nn.Module = nn.Sequential()
    for name, layer in (
        ("conv1", nn.Conv2d(channels, 6, 5, padding=2)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(2)),
        ("conv2", nn.Conv2d(6, 16, 5)),
        ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(2)),
        ("flatten", nn.Flatten()),
        ("linear1", nn.Linear(16 * rows * columns, 120)),
        ("relu3", nn.ReLU()),
        ("linear2", nn.Linear(120, hidden)),
        ("relu4", nn.ReLU()),
        ("linear3", nn.Linear(hidden, num_classes)),
    ):
        network.add_module(name, layer)
    return network


def small_vgg(
    num_classes: int, size: Size, *, channels: int = 3, width: int = 16, hidden: int = 128, dropout: float = 0.5
) -> torch.nn.Module:
    """Three stages of two convolutions, `width`, 2 and 4 `width` filters, for images of about 32x32; logits (N, K).

    A stage is twice (conv 3x3 - batch norm - ReLU), then max pool 2x2. Behind them: dropout - linear to `hidden` - ReLU
    - dropout - linear to K. Input (N, C, H, W) in 0-1, at least 8x8.

    >>> network = small_vgg(10, 28, channels=1)
    >>> tuple(network(import_torch().zeros(2, 1, 28, 28)).shape)
    (2, 10)
    """
    stages = [[factor * width] * 2 for factor in (1, 2, 4)]
    return _vgg(num_classes, size, channels, stages, [hidden], dropout)


def vgg16(num_classes: int, size: Size, *, channels: int = 3, dropout: float = 0.5) -> torch.nn.Module:
    """VGG-16 with batch normalisation: 13 convolutions in five stages and three linear layers; logits (N, K).

    As `small_vgg`, with 64 to 512 filters and hidden layers of 512 units, which fit small images. At least 32x32.
    OD-test (Shafaei et al. 2018) fits it otherwise: 4096 units, no dropout before the first linear layer, no pooling
    behind the last stage at 32 pixels; at 28 pixels 7 convolutions and 256 units.
    """
    stages = [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3]
    return _vgg(num_classes, size, channels, stages, [512, 512], dropout)


def _vgg(
    num_classes: int, size: Size, channels: int, stages: list[list[int]], hidden: list[int], dropout: float
) -> torch.nn.Module:
    height, width = _checked_size(size, 2 ** len(stages))
    nn = import_torch().nn
    layers: list[Any] = []
    depth = channels
    for stage in stages:
        for filters in stage:
            layers += [nn.Conv2d(depth, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]
            depth = filters
        layers.append(nn.MaxPool2d(2))
    layers.append(nn.Flatten())
    units = depth * (height >> len(stages)) * (width >> len(stages))
    for hidden_units in hidden:
        layers += [nn.Dropout(dropout), nn.Linear(units, hidden_units), nn.ReLU()]
        units = hidden_units
    network: torch.nn.Module = nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(units, num_classes))
    return network


def small_resnet(
    num_classes: int, size: Size, *, channels: int = 3, width: int = 16, blocks: int = 1
) -> torch.nn.Module:
    """A residual network of 6 `blocks` + 2 layers for images of about 32x32; answers logits (N, K).

    conv 3x3 - three stages of `blocks` residual blocks of two convolutions (`width`, 2 and 4 `width` filters, the size
    halved from stage to stage) - mean over positions - linear to K. It has no dropout. `width` is at least 16: with few
    channels torch 2.13 corrupts its memory in the backward pass of a strided convolution.

    >>> tuple(small_resnet(10, 32)(import_torch().zeros(2, 3, 32, 32)).shape)
    (2, 10)
    """
    _checked_size(size, 4)
    if width < LEAST_WIDTH:
        raise InputError(f"a residual network takes a width of at least {LEAST_WIDTH}, not {width}")
    return _resnet(num_classes, channels, width, [blocks] * 3, expansion=1)


def resnet50(num_classes: int, size: Size, *, channels: int = 3) -> torch.nn.Module:
    """ResNet-50 with a 3x3 stem for small images: 16 bottleneck blocks of up to 2048 channels; logits (N, K).

    As OD-test (Shafaei et al. 2018) has it for images in colour; for grey ones its stages have 2, 3, 5 and 2 blocks.
    """
    _checked_size(size, 8)
    return _resnet(num_classes, channels, 64, [3, 4, 6, 3], expansion=4)


def _resnet(num_classes: int, channels: int, width: int, blocks: Sequence[int], expansion: int) -> torch.nn.Module:
    nn = import_torch().nn

    def convolution(depth: int, filters: int, side: int, stride: int = 1) -> list[Any]:
        kernel = nn.Conv2d(depth, filters, side, stride, padding=side // 2, bias=False)
        return [kernel, nn.BatchNorm2d(filters)]

    def branch(depth: int, filters: int, stride: int) -> Any:
        if expansion == 1:
            return nn.Sequential(*convolution(depth, filters, 3, stride), nn.ReLU(), *convolution(filters, filters, 3))
        inner = filters // expansion
        first = [*convolution(depth, inner, 1), nn.ReLU(), *convolution(inner, inner, 3, stride), nn.ReLU()]
        return nn.Sequential(*first, *convolution(inner, filters, 1))

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        """relu(branch(x) + shortcut(x))."""

        def __init__(self, depth: int, filters: int, stride: int) -> None:
            super().__init__()
            same = depth == filters and stride == 1
            self.branch, self.relu = branch(depth, filters, stride), nn.ReLU()
            self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(depth, filters, 1, stride))

        def forward(self, images: Any) -> Any:
            return self.relu(self.branch(images) + self.shortcut(images))

    layers = [*convolution(channels, width, 3), nn.ReLU()]
    depth = width
    for stage, count in enumerate(blocks):
        filters = width * 2**stage * expansion
        for block in range(count):
            layers.append(Residual(depth, filters, stride=2 if stage and not block else 1))
            depth = filters
    network: torch.nn.Module = nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(depth, num_classes)
    )
    return network


def _checked_size(size: Size, least: int) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < least:
        raise InputError(f"the network takes images of at least {least}x{least}, not {height}x{width}")
    return height, width


def export_onnx(network: torch.nn.Module, path: Path, size: Size, channels: int = 3, *, output: str = "logits") -> None:
    """Write a network that takes images (N, C, H, W) as one ONNX file with a free batch size.

    `output` is the name of what it answers: `logits` of a classifier, `boxes` of a localizer.
    """
    height, width = (size, size) if isinstance(size, int) else size
    example = import_torch().zeros(2, channels, height, width)
    write_bytes(path, onnx_bytes(network, {"image": example}, [output]))


_EXPORTING = threading.Lock()
"""Torch writes one graph at a time: a second one that is begun meanwhile fails."""


def onnx_bytes(
    network: torch.nn.Module, inputs: Mapping[str, torch.Tensor], outputs: Sequence[str], fixed: Sequence[str] = ()
) -> bytes:
    """A network in eval mode as an ONNX graph; the first side of every input is free, but for the `fixed` ones."""
    torch = import_torch()
    buffer = io.BytesIO()
    free = {name: {0: "batch"} for name in [*inputs, *outputs] if name not in fixed}
    options = {"input_names": [*inputs], "output_names": [*outputs], "dynamic_axes": free, "opset_version": OPSET}
    with _EXPORTING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.eval(), tuple(inputs.values()), buffer, dynamo=False, **options)
    return buffer.getvalue()


SEAL = "digest"
"""The note that holds the hash of a file of weights."""


def save_weights(path: Path, tensors: Mapping[str, torch.Tensor], notes: Mapping[str, str] | None = None) -> None:
    """Write tensors, and notes as text, to one safetensors file with a hash of both, whole or not at all."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    note_texts = dict(notes or {})
    write_bytes(path, _safetensors().save(plain, note_texts | {SEAL: _content(plain, note_texts)}))


def load_weights(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and notes of a safetensors file; no code is run. What is not as it was written is a `DamagedFile`."""
    _safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            tensors, notes = {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise DamagedFile(f"{path} cannot be read as safetensors ({error}): delete it to train again") from None
    seal = notes.pop(SEAL, None)
    if seal is not None and seal != _content(tensors, notes):
        raise DamagedFile(f"{path} was changed since it was written: delete it to train again")
    return tensors, notes


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""What layers of batch normalisation keep beside their weights: the ends of its names."""


def count_weights(path: Path) -> int:
    """How many numbers of a safetensors file were learned: all but the statistics of batch normalisation.

    The file begins with the length of a JSON text (8 bytes, little-endian) that has the shape of every tensor by name.
    """
    with path.open("rb") as file:
        tensors = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = {name: tensor["shape"] for name, tensor in tensors.items() if name != "__metadata__"}
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.endswith(STATISTICS))


def _content(tensors: Mapping[str, torch.Tensor], notes: Mapping[str, str]) -> str:
    """The hash of tensors and notes."""
    return digest_tensors(sorted(tensors.items()), json.dumps(dict(notes), sort_keys=True))


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingExtra("trained networks", "torch") from None
    return safetensors.torch
