"""PixelCNN++ one row at a time, for sampling: what the rows above gave is remembered instead of computed again.

A kernel of two rows reads this row and the one above; so each layer keeps its last input. A resolution of half or
quarter the size changes in every second or fourth row only, and gives the rows between from what it gave last.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roadworthy.models.density.layers import CausalConvolution, Enlargement, NormalisedLayer, Reduction, Signal
from roadworthy.models.density.pixelcnn import STAGES, PixelCnn, Stream

Chains = list[list[Signal]]
"""The signals of one row behind each block, per resolution."""


class RowLayer(nn.Module):
    """A causal convolution of one row: (N, C, 1, W) to (N, F, 1, W), the input above it remembered."""

    def __init__(self, layer: NormalisedLayer) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight().detach(), layer.bias.detach()
        self.kernel, self.step = layer.kernel, 2 if isinstance(layer, Reduction) else 1
        self.above: Tensor | None = None
        self.row: Tensor | None = None

    def forward(self, row: Tensor) -> Tensor:
        """The convolution of a row; it may be asked again, until `finish`, as the row is filled."""
        height, width = self.kernel
        self.row = row
        if height > 1:
            row = torch.cat((torch.zeros_like(row) if self.above is None else self.above, row), 2)
        answer = F.conv2d(row, self.weight, self.bias, padding=(0, width // 2))
        return answer[..., : row.shape[3] : self.step]

    def finish(self) -> None:
        """The row is complete: the next one lies below it."""
        self.above = self.row


class RowNetwork:
    """A copy of a network that predicts rows from the top; see `parameters`."""

    def __init__(self, network: nn.Module) -> None:
        if not isinstance(network, PixelCnn):
            raise TypeError(f"rows are predicted by a PixelCnn, not by {type(network).__name__}")
        self.network = copy.deepcopy(network).eval()
        self.layers = list(_replace(self.network))
        self.number = 0
        self.last: dict[Stream, list[Signal | None]] = {
            stream: [None] * STAGES for stream in (self.network.above, self.network.left)
        }

    def start(self, above: Tensor) -> None:
        """Begin a row; `above` (N, C, 1, W) is the finished row above it (of the first row, any one of its shape)."""
        if self.number:
            pixels = self.network.pixels(above)
            self.stem = self.network.stem_above(pixels), self.network.stem_row(pixels)
        else:
            nothing = above.new_zeros(len(above), self.network.filters, 1, above.shape[3])
            self.stem = nothing, nothing
        self.above = self._run(self.network.above, self.stem[0])

    def parameters(self, row: Tensor) -> Tensor:
        """Parameters (N, P, 1, W) of the row that was begun, from its pixels (N, C, 1, W) so far."""
        left = F.pad(self.network.stem_left(self.network.pixels(row)), (1, 0))[..., :-1]
        _, up = self._run(self.network.left, self.stem[1] + left, self.above)
        answer: Tensor = self.network.head(up[0][-1].active[:, : self.network.filters])
        return answer

    def finish(self) -> None:
        """End the row, whose pixels were all there when `parameters` was last asked."""
        for layer in self.layers:
            layer.finish()
        self.number += 1

    def _run(self, stream: Stream, stem: Tensor, above: tuple[Chains, Chains] | None = None) -> tuple[Chains, Chains]:
        """What a stream gives on the way down and up in this row, at the resolutions that change with it."""
        stages = [stage for stage in range(STAGES) if self.number % 2**stage == 0]
        down: Chains = []
        for stage in stages:
            chain = [Signal.of(stem if not stage else stream.reductions[stage - 1](down[-1][-1].features))]
            for number, block in enumerate(stream.down(stage)):
                chain.append(block(chain[-1], above[0][stage][number + 1].active if above else None))
            down.append(chain)
        if len(stages) < STAGES:
            stream.reductions[stages[-1]].row = down[-1][-1].features
        return down, self._up(stream, down, above)

    def _up(self, stream: Stream, down: Chains, above: tuple[Chains, Chains] | None) -> Chains:
        up: Chains = [[] for _ in down]
        last = self.last[stream]
        for stage in reversed(range(len(down))):
            skipped = down[stage][::-1]
            if stage == STAGES - 1:
                signal, skipped = skipped[0], skipped[1:]
            else:
                half, width = last[stage + 1], down[stage][0].features.shape[3]
                assert half is not None
                both = stream.enlargements[stage](half.features, (2, width))
                signal = Signal.of(both[:, :, [self.number >> stage & 1]])
            for number, block in enumerate(stream.up(stage)):
                context = skipped[number].active
                if above:
                    context = torch.cat((above[1][stage][number].active, context), 1)
                signal = block(signal, context)
                up[stage].append(signal)
            last[stage] = signal
        return up


def _replace(module: nn.Module) -> Iterator[RowLayer]:
    """Put row layers in the place of convolutions, all through a network, and give them."""
    for name, child in list(module.named_children()):
        if isinstance(child, CausalConvolution | Reduction):
            layer = RowLayer(child)
            setattr(module, name, layer)
            yield layer
        elif not isinstance(child, Enlargement):
            yield from _replace(child)
