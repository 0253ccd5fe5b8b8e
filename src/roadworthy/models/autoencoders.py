"""Autoencoders whose architecture follows from the size of the images, plain and variational, and their losses.

The rule is that of the published code of OD-test (Shafaei et al. 2018): 3x3 convolutions with batch normalisation and
ELU, twice as many as the side can be halved, with pooling behind every second one from the first on; channels double
with each pooling up to a limit (there 256 at 28 pixels and 512 from 32 on; here what is asked for, 256 by default); a
bottleneck of 96 values for images below 32 pixels, 256 below 64, 512 above. The decoder mirrors the encoder.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import InputError
from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch

BOTTLENECKS = ((32, 96), (64, 256))
"""The bottleneck of images whose smaller side is below so many pixels."""
WIDEST_BOTTLENECK = 512
LOSSES = ("mse", "bce")


def bottleneck_of(size: tuple[int, int]) -> int:
    """The values of the bottleneck for images of (height, width), by the published rule.

    >>> bottleneck_of((28, 28)), bottleneck_of((32, 32)), bottleneck_of((96, 96))
    (96, 256, 512)
    """
    return next((values for side, values in BOTTLENECKS if min(size) < side), WIDEST_BOTTLENECK)


def layer_plan(size: tuple[int, int], width: int, most_width: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The channels of each convolution of the encoder, and the (height, width) before each of its poolings.

    >>> layer_plan((28, 28), 64, 256)
    ([64, 128, 128, 256, 256, 256, 256, 256], [(28, 28), (14, 14), (7, 7), (3, 3)])
    """
    depth = 2 * int(math.log2(min(size)))
    channels, sizes, current, (rows, columns) = [], [], width, size
    for layer in range(depth):
        channels.append(current)
        if layer % 2 == 0:
            sizes.append((rows, columns))
            rows, columns, current = rows // 2, columns // 2, min(2 * current, most_width)
    return channels, sizes


def autoencoder(
    channels: int,
    size: tuple[int, int],
    *,
    width: int = 64,
    most_width: int = 256,
    bottleneck: int | None = None,
    variational: bool = False,
) -> torch.nn.Module:
    """A network from images (N, C, H, W) in 0-1 to logits of their reconstruction (N, C, H, W).

    `encode` gives the code (N, L), of a variational one the mean of its normal distribution; `posterior` gives mean and
    log variance (N, L) each; a variational one is decoded from a draw while it trains, and from the mean after that.

    >>> torch = import_torch()
    >>> network = autoencoder(1, (28, 28), width=4, most_width=8).eval()
    >>> tuple(network(torch.zeros(2, 1, 28, 28)).shape), tuple(network.encode(torch.zeros(2, 1, 28, 28)).shape)
    ((2, 1, 28, 28), (2, 96))
    """
    if min(size) < 4 or min(channels, width, most_width) < 1 or (bottleneck is not None and bottleneck < 1):
        raise InputError(
            f"an autoencoder of images {size[0]}x{size[1]} with {width} to {most_width} filters and a bottleneck of "
            f"{bottleneck} cannot be built: images of 4x4 and one of each are the least"
        )
    nn = import_torch().nn
    filters, sizes = layer_plan(size, width, most_width)
    code = bottleneck or bottleneck_of(size)
    rows, columns = (side >> len(sizes) for side in size)

    def convolution(depth: int, out: int) -> list[Any]:
        return [nn.Conv2d(depth, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ELU()]

    class Autoencoder(nn.Module):  # type: ignore[misc, name-defined]
        """The encoder, the decoder, and for a variational one the two linear layers of its code."""

        def __init__(self) -> None:
            super().__init__()
            encoder: list[Any] = []
            depth = channels
            for layer, out in enumerate(filters):
                encoder += convolution(depth, out)
                encoder += [nn.MaxPool2d(2)] if layer % 2 == 0 else []
                depth = out
            encoded = code * (2 if variational else 1)
            self.encoder = nn.Sequential(*encoder, *convolution(depth, encoded))
            decoder: list[Any] = []
            depth, left = code, [*sizes]
            for layer, out in enumerate(reversed(filters)):
                decoder += convolution(depth, out)
                decoder += [nn.Upsample(size=left.pop(), mode="nearest")] if layer % 2 == 0 else []
                depth = out
            self.decoder = nn.Sequential(*decoder, nn.Conv2d(depth, channels, 3, padding=1))
            if variational:
                values = rows * columns
                self.mean, self.log_variance = (nn.Linear(encoded * values, code * values) for _ in range(2))

        def posterior(self, images: Any) -> tuple[Any, Any]:
            hidden = self.encoder(images).flatten(1)
            return self.mean(hidden), self.log_variance(hidden)

        def encode(self, images: Any) -> Any:
            return self.posterior(images)[0] if variational else self.encoder(images).flatten(1)

        def decode(self, codes: Any) -> Any:
            return self.decoder(codes.unflatten(1, (code, rows, columns)))

        def forward(self, images: Any) -> Any:
            return self.decode(self.encode(images))

    network: torch.nn.Module = Autoencoder()
    return network


def reconstruction_errors(logits: torch.Tensor, images: torch.Tensor, loss: str) -> torch.Tensor:
    """The error of each image (N,), a mean over its values: `mse`, or `bce` with the pixels as targets.

    mse: (sigmoid(z) - x)^2;  bce: -x log sigmoid(z) - (1 - x) log(1 - sigmoid(z)), x from 0 to 1

    >>> torch = import_torch()
    >>> reconstruction_errors(torch.zeros(1, 1, 1, 2), torch.tensor([[[[0.0, 1.0]]]]), "mse").tolist()
    [0.25]
    """
    if loss == "mse":
        return (logits.sigmoid() - images).square().flatten(1).mean(1)
    per_value = import_torch().nn.functional.binary_cross_entropy_with_logits(logits, images, reduction="none")
    errors: torch.Tensor = per_value.flatten(1).mean(1)
    return errors


def divergence(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """KL(N(m, v) || N(0, 1)) of each image (N,), summed over its code: (m^2 + v - log v - 1) / 2.

    >>> torch = import_torch()
    >>> divergence(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)).tolist()
    [0.5]
    """
    terms = mean.square() + log_variance.exp() - log_variance - 1
    result: torch.Tensor = terms.sum(1) / 2
    return result


def variational_losses(network: Any, images: torch.Tensor) -> torch.Tensor:
    """(bce summed over the image + KL) / values of the image, of each image (N,), decoded from one draw of its code."""
    mean, log_variance = network.posterior(images)
    codes = mean + import_torch().randn_like(mean) * (log_variance / 2).exp() if network.training else mean
    error = reconstruction_errors(network.decode(codes), images, "bce")
    losses: torch.Tensor = error + divergence(mean, log_variance) / images[0].numel()
    return losses
