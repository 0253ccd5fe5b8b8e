"""Small backbones of the three families, for images of about 64x64 and training on a CPU.

Imports torch: for use by `backbones`, which imports it when a backbone is built.

Each family keeps its own block: the bottleneck of ResNet, the MBConv of EfficientNet, the block of ConvNeXt. The big
networks end in the mean over all positions. On an eighth of 64 pixels that mean says little about where an object is,
so here the features are the mean and, beside it, a reduced map that keeps its positions (`PositionReadout`), for
both tasks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

GRID = 8
"""The readout keeps at most about this many positions per side."""
GRID_CHANNELS = 16
SQUEEZE = 4
"""How many times fewer channels squeeze-and-excitation has inside than the block's input."""
MBCONV_EXPANSION = 4
CONVNEXT_EXPANSION = 4
BOTTLENECK_EXPANSION = 4
LAYER_SCALE = 1.0
"""The scale of a ConvNeXt block at the start; the 1e-6 of ConvNeXt-Tiny would need a far longer training."""


class Normalise(nn.Module):
    """(images - mean) / std for each channel; both are stored with the weights, so that reloading restores them.

    >>> normalise = Normalise([0.5], [0.25])
    >>> normalise(torch.full((1, 1, 1, 1), 1.0)).item(), sorted(normalise.state_dict())
    (2.0, ['mean', 'std'])
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(1, -1, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (N, C, H, W) to images of the same shape."""
        return (images - self.mean) / self.std


class PositionReadout(nn.Module):
    """A map (N, C, H, W) to features (N, C + R h w): the mean of each channel, then R reduced channels by position.

    A 1x1 convolution reduces the C channels to R = `GRID_CHANNELS`. Where a side is twice `GRID` or more, the means of
    whole cells are taken, so that a side keeps at most 2 `GRID` - 1 positions.

    >>> PositionReadout(32, (8, 8))(torch.zeros(2, 32, 8, 8)).shape
    torch.Size([2, 1056])
    """

    def __init__(self, channels: int, sides: tuple[int, int]) -> None:
        super().__init__()
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, GRID_CHANNELS, 1)
        height, width = (max(1, side // GRID) for side in sides)
        self.cells = nn.AvgPool2d((height, width)) if (height, width) != (1, 1) else nn.Identity()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values of a map to features."""
        means = torch.flatten(self.mean(values), 1)
        positions = torch.flatten(self.cells(self.reduce(values)), 1)
        return torch.cat([means, positions], 1)


def _convolution(depth: int, filters: int, side: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without bias that keeps the size (or divides it by the stride), and batch normalisation."""
    kernel = nn.Conv2d(depth, filters, side, stride, padding=side // 2, groups=groups, bias=False)
    return [kernel, nn.BatchNorm2d(filters)]


class Bottleneck(nn.Module):
    """relu(expand(relu(conv 3x3(relu(reduce(x))))) + shortcut(x)), each convolution with batch normalisation.

    The inner convolutions have a quarter of the `filters`; the shortcut is a 1x1 convolution where the shape changes.

    >>> Bottleneck(64, 128, stride=2)(torch.zeros(2, 64, 8, 8)).shape
    torch.Size([2, 128, 4, 4])
    """

    def __init__(self, depth: int, filters: int, stride: int = 1) -> None:
        super().__init__()
        inner = filters // BOTTLENECK_EXPANSION
        self.reduce, self.activation1 = nn.Sequential(*_convolution(depth, inner, 1)), nn.ReLU()
        self.spatial, self.activation2 = nn.Sequential(*_convolution(inner, inner, 3, stride)), nn.ReLU()
        self.expand, self.activation3 = nn.Sequential(*_convolution(inner, filters, 1)), nn.ReLU()
        same = depth == filters and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(depth, filters, 1, stride))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values (N, depth, H, W) to (N, filters, H / stride, W / stride)."""
        inner = self.activation2(self.spatial(self.activation1(self.reduce(values))))
        output: torch.Tensor = self.activation3(self.expand(inner) + self.shortcut(values))
        return output


class MBConv(nn.Module):
    """An inverted bottleneck: 1x1 to four times the channels, depthwise 3x3, squeeze-and-excitation, 1x1 back.

    x_e = swish(expand(x));  x_d = swish(depthwise(x_e));  y = project(x_d sigmoid(W_2 swish(W_1 mean(x_d)))) [+ x]

    Every convolution but W_1 and W_2 has batch normalisation; x is added where the shape stays the same.

    >>> MBConv(16, 24, stride=2)(torch.zeros(2, 16, 8, 8)).shape
    torch.Size([2, 24, 4, 4])
    """

    def __init__(self, depth: int, filters: int, stride: int = 1) -> None:
        super().__init__()
        inner = MBCONV_EXPANSION * depth
        self.expand, self.activation1 = nn.Sequential(*_convolution(depth, inner, 1)), nn.SiLU()
        self.depthwise = nn.Sequential(*_convolution(inner, inner, 3, stride, groups=inner))
        self.activation2 = nn.SiLU()
        squeezed = max(1, depth // SQUEEZE)
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(inner, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, inner, 1),
            nn.Sigmoid(),
        )
        self.project = nn.Sequential(*_convolution(inner, filters, 1))
        self.adds = depth == filters and stride == 1

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Values (N, depth, H, W) to (N, filters, H / stride, W / stride)."""
        inner = self.activation2(self.depthwise(self.activation1(self.expand(values))))
        output: torch.Tensor = self.project(inner * self.excite(inner))
        return output + values if self.adds else output


class ChannelNorm(nn.Module):
    """Layer normalisation of a map (N, C, H, W) over its channels, at each position.

    >>> ChannelNorm(2)(torch.tensor([1.0, 3.0]).reshape(1, 2, 1, 1)).flatten().round().tolist()
    [-1.0, 1.0]
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """A map to a map of the same shape."""
        normalised: torch.Tensor = self.norm(values.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return normalised


class ConvNextBlock(nn.Module):
    """x + scale * linear_2(gelu(linear_1(layer norm(depthwise 7x7(x))))), the linear layers at each position.

    >>> ConvNextBlock(16)(torch.zeros(2, 16, 8, 8)).shape
    torch.Size([2, 16, 8, 8])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.expand, self.activation = nn.Linear(channels, CONVNEXT_EXPANSION * channels), nn.GELU()
        self.project = nn.Linear(CONVNEXT_EXPANSION * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), LAYER_SCALE))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """A map (N, C, H, W) to a map of the same shape."""
        rows = self.norm(self.depthwise(values).permute(0, 2, 3, 1))
        rows = self.scale * self.project(self.activation(self.expand(rows)))
        output: torch.Tensor = values + rows.permute(0, 3, 1, 2)
        return output


def _backbone(size: tuple[int, int], channels: int, depth: int, layers: list[tuple[str, nn.Module]]) -> nn.Module:
    """Normalisation of the input, the layers, and the readout of their map of `depth` channels."""
    network = nn.Sequential()
    network.add_module("normalise", Normalise([0.5] * channels, [0.25] * channels))
    for name, layer in layers:
        network.add_module(name, layer)
    with torch.no_grad():
        sides = network.eval()(torch.zeros(1, channels, *size)).shape[2:]
    network.add_module("readout", PositionReadout(depth, (sides[0], sides[1])))
    return network.train()


def small_resnet(size: tuple[int, int], channels: int, width: int) -> nn.Module:
    """Stem to a quarter of the size, then bottleneck blocks: 2 of 4 `width` channels, 3 of 8 at an eighth.

    conv 3x3 stride 2 - batch norm - ReLU - max pool 2x2 - Bottleneck x 2 - Bottleneck x 3 (first stride 2) - readout
    """
    stem = [*_convolution(channels, width, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2)]
    first, second = 4 * width, 8 * width
    layers: list[tuple[str, nn.Module]] = [("stem", nn.Sequential(*stem))]
    layers.append(("stage1", nn.Sequential(Bottleneck(width, first), Bottleneck(first, first))))
    blocks = [Bottleneck(first, second, stride=2), Bottleneck(second, second), Bottleneck(second, second)]
    layers.append(("stage2", nn.Sequential(*blocks)))
    return _backbone(size, channels, second, layers)


def small_efficientnet(size: tuple[int, int], channels: int, width: int) -> nn.Module:
    """Stem to a quarter of the size, then MBConv blocks: 2 of `width` channels, 3 of 2 `width` at an eighth.

    conv 3x3 stride 2 - batch norm - swish - max pool 2x2 - MBConv x 2 - MBConv x 3 (first stride 2) - conv 1x1 to
    4 `width` - batch norm - swish - readout
    """
    stem = [*_convolution(channels, width, 3, stride=2), nn.SiLU(), nn.MaxPool2d(2)]
    last = 2 * width
    layers: list[tuple[str, nn.Module]] = [("stem", nn.Sequential(*stem))]
    layers.append(("stage1", nn.Sequential(MBConv(width, width), MBConv(width, width))))
    layers.append(("stage2", nn.Sequential(MBConv(width, last, stride=2), MBConv(last, last), MBConv(last, last))))
    layers.append(("top", nn.Sequential(*_convolution(last, 2 * last, 1), nn.SiLU())))
    return _backbone(size, channels, 2 * last, layers)


def small_convnext(size: tuple[int, int], channels: int, width: int) -> nn.Module:
    """Stem to a quarter of the size, then ConvNeXt blocks: 2 of `width` channels, 3 of 2 `width` at an eighth.

    conv 3x3 stride 2 - layer norm - GELU - max pool 2x2 - ConvNextBlock x 2 - layer norm - conv 2x2 stride 2 -
    ConvNextBlock x 3 - layer norm - readout

    ConvNeXt-Tiny begins with patches of 4x4 pixels that do not overlap. From a few thousand images of 64x64 that stem
    learns far less than overlapping windows do, so it is not used here.
    """
    stem = [nn.Conv2d(channels, width, 3, stride=2, padding=1), ChannelNorm(width), nn.GELU(), nn.MaxPool2d(2)]
    last = 2 * width
    layers: list[tuple[str, nn.Module]] = [("stem", nn.Sequential(*stem))]
    layers.append(("stage1", nn.Sequential(ConvNextBlock(width), ConvNextBlock(width))))
    down = [ChannelNorm(width), nn.Conv2d(width, last, 2, stride=2)]
    layers.append(("stage2", nn.Sequential(*down, *(ConvNextBlock(last) for _ in range(3)), ChannelNorm(last))))
    return _backbone(size, channels, last, layers)


def inner_activations(backbone: nn.Module) -> list[tuple[Any, str]]:
    """Where full dropout goes, in the order of the network: a block and the name of an activation in it.

    After each ReLU of a bottleneck, after the swish before the depthwise convolution of an MBConv, after the GELU of a
    ConvNeXt block.
    """
    names = {
        Bottleneck: ("activation1", "activation2", "activation3"),
        MBConv: ("activation1",),
        ConvNextBlock: ("activation",),
    }
    return [(block, name) for block in backbone.modules() for name in names.get(type(block), ())]
