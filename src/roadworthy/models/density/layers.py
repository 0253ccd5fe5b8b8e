"""The layers of PixelCNN++: causal convolutions with weight normalisation, gated residual blocks, changes of size.

Two streams of features run through the network. At a pixel, the stream `above` has seen the rows above it, and the
stream `left` these and the pixels left of it in its own row. A layer keeps this order: of its own stream's features it
reads the row above and the same row (stream `left`: no column to the right).
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def concat_elu(features: Tensor) -> Tensor:
    """elu of the features and of their negatives, side by side: (N, C, H, W) to (N, 2 C, H, W).

    >>> concat_elu(torch.tensor([[[[1.0]], [[-2.0]]]])).flatten().numpy().round(3)
    array([ 1.   , -0.865, -0.632,  2.   ], dtype=float32)
    """
    return F.elu_(torch.cat((features, -features), 1))


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
        lengths = self.direction.flatten(1).norm(dim=1)
        filters: Tensor = self.direction * (self.gain / lengths)[:, None, None, None]
        return filters


class CausalConvolution(NormalisedLayer):
    """A convolution whose output at row i and column j reads rows up to i, and columns by the shape of its kernel.

    A kernel of odd width is centred on its column; one of even width ends there. Behind the border are zeros. Input
    (N, `inputs`, H, W), output (N, `outputs`, H, W).
    """

    def forward(self, features: Tensor) -> Tensor:
        """The convolution at every pixel."""
        height, width = self.kernel
        answer = F.conv2d(features, self.weight(), self.bias, padding=(height - 1, width // 2))
        return answer[:, :, : features.shape[2], : features.shape[3]]


class Reduction(NormalisedLayer):
    """The causal convolution at every second row and column: (N, C, H, W) to (N, F, H / 2, W / 2), rounded up.

    It is a product of matrices: with few channels torch 2.13 corrupts its memory in the backward pass of a strided
    convolution.
    """

    def forward(self, features: Tensor) -> Tensor:
        """The convolution at the rows and columns 0, 2, 4 ..."""
        count, _, rows, columns = features.shape
        height, width = self.kernel
        padded = F.pad(features, (width // 2, width % 2, height - 1, 0))
        answer = self.weight().flatten(1) @ F.unfold(padded, self.kernel, stride=2) + self.bias[:, None]
        return answer.view(count, -1, (rows + 1) // 2, (columns + 1) // 2)


class Enlargement(NormalisedLayer):
    """The transposed convolution of stride 2, cut at the bottom and the right to the size that is asked for.

    Input pixel (i, j) is spread over the rows 2 i and 2 i + 1 and, by the kernel's width, the columns 2 j and 2 j + 1
    or 2 j - 1 to 2 j + 1: none of them comes before (2 i, 2 j) in the order of its stream.
    """

    def forward(self, features: Tensor, size: tuple[int, int]) -> Tensor:
        """Features (N, C, h, w) as (N, F, *size), where size is at most (2 h, 2 w)."""
        rows, columns = features.shape[2:]
        left = self.kernel[1] % 2
        spread = torch.einsum("fckl,ncp->nfklp", self.weight(), features.flatten(2))
        answer = F.fold(spread.flatten(1, 3), (2 * rows, 2 * columns + left), self.kernel, stride=2)
        return answer[:, :, : size[0], left : left + size[1]] + self.bias[:, None, None]


class GatedBlock(nn.Module):
    """A gated residual block: features + value * sigmoid(gate), both from two convolutions behind concat_elu.

    value, gate = conv(dropout(concat_elu(conv(concat_elu(features)) + conv1x1(concat_elu(context)))))

    `context` is what the block reads besides its own stream: features (N, `context`, H, W) of the other stream or of
    the same size on the way down; 0 where there is none.
    """

    def __init__(self, filters: int, kernel: tuple[int, int], context: int, dropout: float) -> None:
        super().__init__()
        self.first = CausalConvolution(2 * filters, filters, kernel)
        self.context = CausalConvolution(2 * context, filters) if context else None
        self.second = CausalConvolution(2 * filters, 2 * filters, kernel, scale=0.1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, features: Tensor, context: Tensor | None = None) -> Tensor:
        """Features of the same shape."""
        hidden = self.first(concat_elu(features))
        if self.context is not None:
            hidden = hidden + self.context(concat_elu(cast(Tensor, context)))
        value, gate = self.second(self.dropout(concat_elu(hidden))).chunk(2, 1)
        answer: Tensor = features + value * torch.sigmoid(gate)
        return answer
