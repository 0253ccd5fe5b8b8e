"""PixelCNN++ (Salimans, Karpathy, Chen and Kingma, 2017): the network that predicts each pixel from those before it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roadworthy.core.errors import InputError
from roadworthy.models.density.layers import (
    CausalConvolution,
    Enlargement,
    GatedBlock,
    NormalisedLayer,
    Reduction,
    Signal,
    pixel_by_pixel,
)
from roadworthy.models.density.logistics import count_parameters

WIDE = (2, 3)
"""(height, width) of the kernels of the stream `above`: this row and the one above, one column to each side."""
NARROW = (2, 2)
"""(height, width) of the kernels of the stream `left`: this row and the one above, this column and the one left."""
STAGES = 3
"""Resolutions: whole, half and quarter."""
DEFAULT_MIXTURES = {1: 5, 3: 10}
"""Logistics per pixel, by the number of channels."""


def pixelcnn(
    channels: int, *, filters: int = 160, blocks: int = 5, mixtures: int | None = None, dropout: float = 0.5
) -> nn.Module:
    """PixelCNN++ for images of 1 or 3 channels and any size; the defaults are the published network.

    p(image) = product over pixels of p(pixel | pixels before it in raster order)

    Input (N, C, H, W) in 0-1; output the parameters of each pixel's mixture of discretised logistics (N, P, H, W), as
    `log_likelihood` reads them: P = 3 M for one channel, 10 M for three. `blocks` is the number of gated blocks per
    resolution and direction, `mixtures` is M (None: 5 for one channel, 10 for three). Weights are random by torch's
    generator, which the caller seeds: directions N(0, 0.05), gains 1 (0.1 before a gate, as published), biases 0. The
    paper chooses gains and biases from the first batch: `initialise` does so.

    >>> network = pixelcnn(1, filters=8, blocks=1)
    >>> tuple(network(torch.zeros(2, 1, 7, 5)).shape)
    (2, 15, 7, 5)
    """
    if channels not in DEFAULT_MIXTURES:
        raise InputError(f"PixelCNN++ takes images of 1 or 3 channels, not {channels}")
    chosen = DEFAULT_MIXTURES[channels] if mixtures is None else mixtures
    if min(filters, blocks, chosen) < 1:
        raise InputError(
            f"a PixelCNN++ of {filters} filters, {blocks} blocks and {chosen} mixtures cannot be built: one of each is "
            "the least"
        )
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be at least 0 and below 1, not {dropout}")
    return PixelCnn(channels, filters, blocks, chosen, dropout)


class PixelCnn(nn.Module):
    """The two streams on their way down to a quarter of the size and up again; see `pixelcnn`.

    Way down: the stem, then the gated blocks of each resolution, where `left` reads `above`. Way up: gated blocks that
    also read what the same resolution gave on the way down, last first. Sizes are rounded up on the way down and cut on
    the way up.
    """

    def __init__(self, channels: int, filters: int, blocks: int, mixtures: int, dropout: float) -> None:
        super().__init__()
        self.channels, self.filters, self.blocks, self.mixtures = channels, filters, blocks, mixtures
        self.stem_above = CausalConvolution(channels + 1, filters, (2, 3))
        self.stem_row = CausalConvolution(channels + 1, filters, (1, 3))
        self.stem_left = CausalConvolution(channels + 1, filters, (2, 1))
        self.above = Stream(filters, blocks, WIDE, dropout, down_context=0, up_context=filters)
        self.left = Stream(filters, blocks, NARROW, dropout, down_context=filters, up_context=2 * filters)
        self.head = CausalConvolution(filters, count_parameters(channels, mixtures))

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) in 0-1 to parameters (N, P, H, W)."""
        if images.ndim != 4 or images.shape[1] != self.channels:
            raise InputError(f"this PixelCNN++ takes images (N, {self.channels}, H, W), not {tuple(images.shape)}")
        above, left = self._stem(images)
        for stage in range(STAGES):
            if stage:
                above.append(Signal.of(self.above.reductions[stage - 1](above[-1].features)))
                left.append(Signal.of(self.left.reductions[stage - 1](left[-1].features)))
            for block_above, block_left in zip(self.above.down(stage), self.left.down(stage), strict=True):
                above.append(block_above(above[-1]))
                left.append(block_left(left[-1], above[-1].active))
        last = self._up(above, left).active[:, : self.filters]
        parameters: Tensor = self.head(last)
        return parameters

    @staticmethod
    def pixels(images: Tensor) -> Tensor:
        """Images in 0-1 as -1..1, and a channel of ones, which tells pixels from the zeros behind the border."""
        return pixel_by_pixel(torch.cat((images * 2 - 1, torch.ones_like(images[:, :1])), 1))

    def _stem(self, images: Tensor) -> tuple[list[Signal], list[Signal]]:
        """The first signals of both streams, as lists that the way down adds to.

        The shifts by one row and one column are what keeps a pixel from its own prediction.
        """
        pixels = self.pixels(images)
        row = _shift_down(self.stem_row(pixels)) + _shift_right(self.stem_left(pixels))
        return [Signal.of(_shift_down(self.stem_above(pixels)))], [Signal.of(row)]

    def _up(self, above: list[Signal], left: list[Signal]) -> Signal:
        """The stream `left` at the end of the way up, from what both streams gave on the way down."""
        now_above, now_left = above.pop(), left.pop()
        for stage in reversed(range(STAGES)):
            for block_above, block_left in zip(self.above.up(stage), self.left.up(stage), strict=True):
                now_above = block_above(now_above, above.pop().active)
                now_left = block_left(now_left, torch.cat((now_above.active, left.pop().active), 1))
            if stage:
                size = tuple(above[-1].features.shape[2:])
                now_above = Signal.of(self.above.enlargements[stage - 1](now_above.features, size))
                now_left = Signal.of(self.left.enlargements[stage - 1](now_left.features, size))
        return now_left


class Stream(nn.Module):
    """The layers of one stream: `blocks` gated blocks per resolution and way, one more for the upper two on the way up.

    `down_context` and `up_context` are the channels that a block reads besides its own stream on each way.
    """

    def __init__(
        self,
        filters: int,
        blocks: int,
        kernel: tuple[int, int],
        dropout: float,
        *,
        down_context: int,
        up_context: int,
    ) -> None:
        super().__init__()
        self.blocks = blocks
        up_count = STAGES * (blocks + 1) - 1
        self.down_blocks = nn.ModuleList(
            GatedBlock(filters, kernel, down_context, dropout) for _ in range(STAGES * blocks)
        )
        self.up_blocks = nn.ModuleList(GatedBlock(filters, kernel, up_context, dropout) for _ in range(up_count))
        self.reductions = nn.ModuleList(Reduction(filters, filters, kernel) for _ in range(STAGES - 1))
        self.enlargements = nn.ModuleList(Enlargement(filters, filters, kernel) for _ in range(STAGES - 1))

    def down(self, stage: int) -> nn.ModuleList:
        """The blocks of one resolution (0 is the whole one) on the way down."""
        return self.down_blocks[stage * self.blocks : (stage + 1) * self.blocks]

    def up(self, stage: int) -> nn.ModuleList:
        """The blocks of one resolution on the way up."""
        return self.up_blocks[stage * (self.blocks + 1) : (stage + 1) * (self.blocks + 1)]


def initialise(network: nn.Module, images: Tensor) -> None:
    """Choose gains and biases from a batch of images (N, C, H, W) in 0-1, layer after layer, as the paper does.

    Every filter's output then has mean 0 and the standard deviation `scale` over the batch's pixels (1, or 0.1 before a
    gate). Dropout is as it is in the network's mode.

    >>> network = pixelcnn(1, filters=4, blocks=1)
    >>> initialise(network, torch.rand(8, 1, 6, 6))
    >>> round(network.stem_above.gain.std().item(), 3) > 0
    True
    """

    def choose(layer: nn.Module, inputs: tuple[Tensor, ...], answer: Tensor) -> Tensor:
        assert isinstance(layer, NormalisedLayer)
        centred = answer - layer.bias[:, None, None]
        factor = layer.scale / (centred.std((0, 2, 3), correction=0) + 1e-5)
        layer.gain.mul_(factor)
        layer.bias.copy_(-centred.mean((0, 2, 3)) * factor)
        return centred * factor[:, None, None] + layer.bias[:, None, None]

    layers = [layer for layer in network.modules() if isinstance(layer, NormalisedLayer)]
    hooks = [layer.register_forward_hook(choose) for layer in layers]
    try:
        with torch.no_grad():
            network(images)
    finally:
        for hook in hooks:
            hook.remove()


def _shift_down(features: Tensor) -> Tensor:
    """Every row one lower, zeros in the first."""
    return F.pad(features, (0, 0, 1, 0))[:, :, :-1]


def _shift_right(features: Tensor) -> Tensor:
    """Every column one further right, zeros in the first."""
    return F.pad(features, (1, 0))[..., :-1]
