"""The three networks of a GAN for outliers: a generator, a discriminator and the surrogate they are trained against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import InputError
from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch

Size = tuple[int, int]
HALVINGS = 4
"""How often a side is halved by the discriminator, doubled by the generator."""
LEAST_SIDE = 2**HALVINGS
SLOPE = 0.2
"""Of the leaky ReLU below 0."""


def make_generator(
    num_classes: int, size: Size, channels: int = 3, *, width: int = 64, latent: int = 100
) -> torch.nn.Module:
    """Noise (N, latent) and classes (N,) to images (N, C, H, W) in 0-1.

    Five transposed convolutions of 8, 4, 2 and 1 x `width` filters and C (512-256-128-64-3 at width 64). The class
    goes through an embedding as long as the noise and stands beside it. Batch normalisation and ReLU after each but the
    last, which is followed by a sigmoid. What sticks out beyond (H, W) is cut off.

    >>> torch = import_torch()
    >>> draw = make_generator(14, (32, 32), width=2, latent=5)
    >>> draw(torch.zeros(3, 5), torch.tensor([0, 1, 13])).shape
    torch.Size([3, 3, 32, 32])
    """
    torch = import_torch()
    nn = torch.nn
    height, width_pixels = _checked(size)
    start = (-(-height // LEAST_SIDE), -(-width_pixels // LEAST_SIDE))
    filters = [8 * width, 4 * width, 2 * width, width]
    layers: list[Any] = [nn.ConvTranspose2d(2 * latent, filters[0], start, bias=False)]
    for depth, next_depth in zip(filters, [*filters[1:], channels], strict=True):
        layers += [nn.BatchNorm2d(depth), nn.ReLU(), nn.ConvTranspose2d(depth, next_depth, 4, 2, 1, bias=False)]

    class Generator(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(num_classes, latent)
            self.layers = nn.Sequential(*layers)

        def forward(self, noise: Any, labels: Any) -> Any:
            both = torch.cat([noise, self.embedding(labels)], 1)[:, :, None, None]
            return torch.sigmoid(self.layers(both)[:, :, :height, :width_pixels])

    return _started(Generator())


def make_discriminator(num_classes: int, size: Size, channels: int = 3, *, width: int = 64) -> torch.nn.Module:
    """Images (N, C, H, W) in 0-1 and classes (N,) to one value (N,) each: how real the image looks; no sigmoid.

    Five convolutions of 1, 2, 4 and 8 x `width` filters and 1 (64-128-256-512-1 at width 64). The class goes through an
    embedding that is laid over the image as one more channel. Leaky ReLU after each but the last, batch normalisation
    after the second to the fourth.

    >>> judge = make_discriminator(14, (32, 32), width=2)
    >>> judge(import_torch().zeros(3, 3, 32, 32), import_torch().tensor([0, 1, 13])).shape
    torch.Size([3])
    """
    torch = import_torch()
    nn = torch.nn
    height, width_pixels = _checked(size)
    left = (height // LEAST_SIDE, width_pixels // LEAST_SIDE)
    layers: list[Any] = [nn.Conv2d(channels + 1, width, 4, 2, 1), nn.LeakyReLU(SLOPE)]
    for depth in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(depth, 2 * depth, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * depth), nn.LeakyReLU(SLOPE)]

    class Discriminator(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(num_classes, height * width_pixels)
            self.layers = nn.Sequential(*layers, nn.Conv2d(8 * width, 1, left))

        def forward(self, images: Any, labels: Any) -> Any:
            plane = self.embedding(labels).view(-1, 1, height, width_pixels)
            return self.layers(torch.cat([2 * images - 1, plane], 1)).flatten()

    return _started(Discriminator())


def make_surrogate(num_classes: int, channels: int = 3, *, width: int = 64) -> torch.nn.Module:
    """Images (N, C, H, W) in 0-1 to logits (N, K): a classifier without linear layers.

    Four convolutions of 1, 2 and 4 x `width` filters and K (64-128-256-K at width 64), batch normalisation and leaky
    ReLU after each but the last, whose answers are averaged over the image.

    >>> make_surrogate(14, width=2)(import_torch().zeros(5, 3, 32, 32)).shape
    torch.Size([5, 14])
    """
    nn = import_torch().nn
    layers: list[Any] = []
    depth = channels
    for filters in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(depth, filters, 4, 2, 1, bias=False), nn.BatchNorm2d(filters), nn.LeakyReLU(SLOPE)]
        depth = filters
    last = nn.Conv2d(depth, num_classes, 3, padding=1)
    return _started(nn.Sequential(*layers, last, nn.AdaptiveAvgPool2d(1), nn.Flatten()))


def _started(network: torch.nn.Module) -> torch.nn.Module:
    """With the first weights of DCGAN: normal, deviation 0.02, around 0; those of batch normalisation around 1."""
    nn = import_torch().nn
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(module.weight, 0.0, 0.02)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.02)
    return network


def _checked(size: Size) -> Size:
    if min(size) < LEAST_SIDE:
        raise InputError(f"a GAN draws images of at least {LEAST_SIDE}x{LEAST_SIDE}, not {size[0]}x{size[1]}")
    return size
