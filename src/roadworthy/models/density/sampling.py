"""Ancestral sampling from PixelCNN++: one pixel after the other, each from what the network says given those before."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.models.density.logistics import Mixture
from roadworthy.models.density.rows import RowNetwork


def sample(network: nn.Module, count: int, size: int | tuple[int, int], channels: int, seed: int) -> NDArray[np.uint8]:
    """Images (count, H, W, C) uint8 drawn from a network as `pixelcnn` makes it; the seed decides all draws.

    For each pixel in raster order: a component m ~ pi, then for each channel x = mu + s logit(u) with u uniform, which
    is rounded to the nearest of the 256 values; what lies outside -1..1 becomes the nearest edge. These are draws of
    the discretised mixture itself. An image's draws are those of its number: more images change none of the first ones.

    >>> from roadworthy.models.density.pixelcnn import pixelcnn
    >>> sample(pixelcnn(1, filters=4, blocks=1), 2, 3, 1, seed=0).shape
    (2, 3, 3, 1)
    """
    height, width = (size, size) if isinstance(size, int) else size
    if min(count, height, width) < 1:
        raise InputError(f"{count} samples of {height}x{width} cannot be drawn: one image of 1x1 is the least")
    with torch.inference_mode():
        images = _draw(network, count, (height, width), channels, seed)
    return np.ascontiguousarray(images.mul(255).round().byte().permute(0, 2, 3, 1).numpy())


def _draw(network: nn.Module, count: int, size: tuple[int, int], channels: int, seed: int) -> Tensor:
    """Images (count, C, H, W) that hold k / 255."""
    height, width = size
    images = torch.zeros(count, channels, height, width)
    uniform = torch.from_numpy(uniform_draws(count, (height, width, channels + 1), seed))
    rows = RowNetwork(network)
    for number in range(height):
        row = images[:, :, number : number + 1]
        rows.start(images[:, :, max(number - 1, 0) : max(number, 1)])
        for column in range(width):
            parameters = rows.parameters(row)[:, :, 0, column]
            row[:, :, 0, column] = draw_pixels(parameters, uniform[:, number, column])
        rows.parameters(row)
        rows.finish()
    return images


def uniform_draws(count: int, shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """Draws (count, *shape) inside 0-1, a stream of its own for each image."""
    streams = Streams(seed, "pixelcnn").each(map(str, range(count)))
    return np.stack([rng.random(shape) for rng in streams]).clip(1e-9, 1 - 1e-9)


def draw_pixels(parameters: Tensor, uniform: Tensor) -> Tensor:
    """One pixel per image, (N, C) of values k / 255, from parameters (N, P) and draws (N, C + 1) inside 0-1.

    The first draw chooses the component, by inversion; the others one channel each.
    """
    channels = uniform.shape[1] - 1
    mixture = Mixture.read(parameters, channels)
    cumulated = torch.softmax(mixture.logits.double(), 1).cumsum(1)
    chosen = (uniform[:, :1] > cumulated[:, :-1]).sum(1)
    rows = torch.arange(len(parameters))
    noise = mixture.log_scales[rows, :, chosen].exp() * torch.logit(uniform[:, 1:]).to(parameters.dtype)
    pixels = torch.zeros_like(noise)
    for channel in range(channels):
        mean = mixture.moved_means(pixels)[rows, channel, chosen]
        value = (mean + noise[:, channel]).clamp(-1, 1)
        pixels[:, channel] = ((value + 1) * 127.5).round() / 127.5 - 1
    return ((pixels + 1) * 127.5).round() / 255
