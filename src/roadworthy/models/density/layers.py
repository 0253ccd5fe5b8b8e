"""The layers of PixelCNN++: causal convolutions with weight normalisation, gated residual blocks, changes of size.

Two streams of features run through the network. At a pixel, the stream `above` has seen the rows above it, and the
stream `left` these and the pixels left of it in its own row. A layer keeps this order: of its own stream's features it
reads the row above and the same row (stream `left`: no column to the right).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _ConcatElu(torch.autograd.Function):
    """One exp for both halves: with e = exp(-|x|) - 1, elu(x) = max(x, e) and elu(-x) = max(-x, e)."""

    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        answer = _concat_elu(features)
        ctx.save_for_backward(answer)
        return answer

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (answer,) = ctx.saved_tensors
        plus, minus = torch.ops.aten.elu_backward(gradient, 1.0, 1.0, 1.0, True, answer).chunk(2, 1)
        return cast(Tensor, plus - minus)


def _concat_elu(features: Tensor) -> Tensor:
    below = features.abs().neg_().exp_().sub_(1)
    return torch.cat((torch.maximum(features, below), torch.maximum(-features, below)), 1)


def concat_elu(features: Tensor) -> Tensor:
    """elu of the features and of their negatives, side by side: (N, C, H, W) to (N, 2 C, H, W).

    >>> concat_elu(torch.tensor([[[[1.0]], [[-2.0]]]])).flatten().numpy().round(3)
    array([ 1.   , -0.865, -0.632,  2.   ], dtype=float32)
    """
    if torch.is_grad_enabled() and features.requires_grad:
        return cast(Tensor, _ConcatElu.apply(features))  # type: ignore[no-untyped-call]
    return _concat_elu(features)


def pixel_by_pixel(features: Tensor) -> Tensor:
    """The same features, the channels of a pixel side by side in memory: convolutions are faster so."""
    return features.contiguous(memory_format=torch.channels_last)


class NormalisedLayer(nn.Module):
    """The weights of a convolution, normalised: filter f = gain_f * direction_f / |direction_f|, and a bias.

    `scale` is the gain it starts with; the bias starts at 0.
    """

    def __init__(self, inputs: int, outputs: int, kernel: tuple[int, int] = (1, 1), scale: float = 1.0) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs, *kernel).normal_(0, 0.05))
        self.gain = nn.Parameter(torch.full((outputs,), scale))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.kernel, self.scale = kernel, scale

    def weight(self) -> Tensor:
        """The filters as they are applied: (outputs, inputs, height, width)."""
        return torch._weight_norm(self.direction, self.gain[:, None, None, None], 0)


class CausalConvolution(NormalisedLayer):
    """A convolution whose output at row i and column j reads rows up to i, and columns by the shape of its kernel.

    A kernel of odd width is centred on its column; one of even width ends there. Behind the border are zeros. Input
    (N, `inputs`, H, W), output (N, `outputs`, H, W).
    """

    def forward(self, features: Tensor) -> Tensor:
        """The convolution at every pixel."""
        height, width = self.kernel
        answer = F.conv2d(features, self.weight(), self.bias, padding=(height - 1, width // 2))
        return F.pad(answer, (0, width % 2 - 1, 0, 1 - height)) if height > 1 else answer


class Reduction(NormalisedLayer):
    """The causal convolution at every second row and column: (N, C, H, W) to (N, F, H / 2, W / 2), rounded up.

    The inputs of each position are laid side by side first: with few channels torch 2.13 corrupts its memory in the
    backward pass of a strided convolution.
    """

    def forward(self, features: Tensor) -> Tensor:
        """The convolution at the rows and columns 0, 2, 4 ..."""
        rows, columns = (features.shape[2] + 1) // 2, (features.shape[3] + 1) // 2
        height, width = self.kernel
        padded = F.pad(features, (width // 2, width % 2 + 1, height - 1, 1))
        inputs = [
            padded[:, :, row : row + 2 * rows : 2, column : column + 2 * columns : 2]
            for row in range(height)
            for column in range(width)
        ]
        filters = self.weight().permute(0, 2, 3, 1).flatten(1)
        return F.conv2d(torch.cat(inputs, 1), filters[:, :, None, None], self.bias)


class Enlargement(NormalisedLayer):
    """The transposed convolution of stride 2, cut at the bottom and the right to the size that is asked for.

    Input pixel (i, j) is spread over the rows 2 i and 2 i + 1 and, by the kernel's width, the columns 2 j and 2 j + 1
    or 2 j - 1 to 2 j + 1: none of them comes before (2 i, 2 j) in the order of its stream.
    """

    def forward(self, features: Tensor, size: tuple[int, int]) -> Tensor:
        """Features (N, C, h, w) as (N, F, *size), where size is at most (2 h, 2 w)."""
        height, width = self.kernel
        filters = self.weight().permute(2, 3, 0, 1).flatten(0, 2)
        spread = F.conv2d(features, filters[:, :, None, None]).chunk(height * width, 1)
        upper, lower = (_side_by_side(spread[:width]), _side_by_side(spread[width:]))
        answer = torch.stack((upper, lower), 3).flatten(2, 3)
        return pixel_by_pixel(answer[:, :, : size[0], : size[1]] + self.bias[:, None, None])


def _side_by_side(parts: tuple[Tensor, ...]) -> Tensor:
    """One row of a kernel's outputs, (N, F, h, w) each, as (N, F, h, 2 w): even columns, then odd ones.

    Two parts go to the columns 2 j and 2 j + 1; three to 2 j - 1, 2 j and 2 j + 1.
    """
    even_columns, odd_columns = parts[-2], parts[-1]
    if len(parts) == 3:
        odd_columns = odd_columns + F.pad(parts[0], (0, 1))[..., 1:]
    return torch.stack((even_columns, odd_columns), 4).flatten(3, 4)


class Signal(NamedTuple):
    """What a stream holds at one point: features (N, F, H, W) and concat_elu of them, which several layers read."""

    features: Tensor
    active: Tensor

    @classmethod
    def of(cls, features: Tensor) -> Signal:
        """Features and what becomes of them."""
        return cls(features, concat_elu(features))


class GatedBlock(nn.Module):
    """A gated residual block: features + value * sigmoid(gate), both from two convolutions behind concat_elu.

    value, gate = conv(dropout(concat_elu(conv(concat_elu(features)) + conv1x1(concat_elu(context)))))

    `context` is what the block reads besides its own stream: features of the other stream or of the same size on the
    way down, of so many channels; 0 where there are none.
    """

    def __init__(self, filters: int, kernel: tuple[int, int], context: int, dropout: float) -> None:
        super().__init__()
        self.first = CausalConvolution(2 * filters, filters, kernel)
        self.context = CausalConvolution(2 * context, filters) if context else None
        self.value = CausalConvolution(2 * filters, filters, kernel, scale=0.1)
        self.gate = CausalConvolution(2 * filters, filters, kernel, scale=0.1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, signal: Signal, context: Tensor | None = None) -> Signal:
        """The stream behind the block; `context` is (N, 2 `context`, H, W), behind concat_elu."""
        hidden = self.first(signal.active)
        if self.context is not None:
            hidden = hidden + self.context(context)
        active = self.dropout(concat_elu(hidden))
        return Signal.of(torch.addcmul(signal.features, self.value(active), torch.sigmoid(self.gate(active))))
