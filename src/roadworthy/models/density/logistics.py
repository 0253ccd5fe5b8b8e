"""The discretised mixture of logistics: how likely the 256 values of a pixel are, by the parameters of PixelCNN++.

A component m with mean mu and scale s gives the value k of 0..255, at x = 2 k / 255 - 1, the mass of its bin:

    p_m(k) = sigmoid((x + 1/255 - mu) / s) - sigmoid((x - 1/255 - mu) / s)

where the first term is 1 for k = 255 and the second 0 for k = 0. A pixel of one channel has p(k) = sum pi_m p_m(k). One
of three channels has p(r, g, b) = sum pi_m p_m(r) p_m(g | r) p_m(b | r, g), where the means of a component move with
the channels before: mu_g + a r and mu_b + b r + c g, with r and g as x above and a, b, c = tanh of the parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from roadworthy.core.errors import InputError

VALUES = 256
HALF_BIN = 1 / 255
LOG_SCALES = (-7.0, 40.0)
"""The range that log scales are held in: the paper's least; the most keeps float32 from 1 / scale = 0."""
FIGURES = {1: 3, 3: 10}
"""Parameters per component, by the number of channels: logit, means, log scales, coefficients."""


def count_parameters(channels: int, mixtures: int) -> int:
    """How many parameters a pixel has: P = 3 M for one channel, 10 M for three."""
    return FIGURES[channels] * mixtures


@dataclass(frozen=True)
class Mixture:
    """Parameters by what they mean: logits (N, M, ...), the others (N, C, M, ...), coefficients (N, 3, M, ...)."""

    logits: Tensor
    means: Tensor
    log_scales: Tensor
    coefficients: Tensor | None

    @classmethod
    def read(cls, parameters: Tensor, channels: int) -> Mixture:
        """Parameters (N, P, ...) for images of so many channels, in the order logits, means, log scales, coefficients.

        >>> Mixture.read(torch.zeros(2, 20, 4, 4), 3).means.shape
        torch.Size([2, 3, 2, 4, 4])
        """
        count = int(parameters.shape[1])
        mixtures, rest = divmod(count, FIGURES.get(channels, count + 1))
        if rest or not mixtures:
            raise InputError(f"{count} parameters per pixel do not fit images of {channels} channels")
        counts = [1, channels, channels] + ([3] if channels == 3 else [])
        pieces = torch.split(parameters, [count * mixtures for count in counts], 1)
        shapes = [(-1, count, mixtures, *parameters.shape[2:]) for count in counts]
        parts = [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        log_scales = parts[2].clamp(*LOG_SCALES)
        return cls(parts[0][:, 0], parts[1], log_scales, torch.tanh(parts[3]) if channels == 3 else None)

    def moved_means(self, pixels: Tensor) -> Tensor:
        """The means of all components given the channels before, (N, C, M, ...), for pixels (N, C, ...) in -1..1."""
        if self.coefficients is None:
            return self.means
        red, green = pixels[:, 0, None], pixels[:, 1, None]
        first, second, third = self.coefficients.unbind(1)
        return self.means + torch.stack((torch.zeros_like(first), first * red, second * red + third * green), 1)


def log_masses(pixels: Tensor, means: Tensor, log_scales: Tensor) -> Tensor:
    """log of the mass that logistics give values, given as x in -1..1; the three shapes fit each other.

    With h = 1/255/s, u = (x - mu)/s + h and v = (x - mu)/s - h:

        sigmoid(u) - sigmoid(v) = sigmoid(u) sigmoid(-v) (1 - exp(-2 h)),   1 - exp(-2 h) = 2 tanh(h) / (1 + tanh(h))

    whose log never cancels, so the paper's fallback for tiny masses is not needed. At the edges, the factors that stand
    for a bound fall away.

    >>> log_masses(torch.tensor([-1.0, 1.0]), torch.zeros(2), torch.zeros(2)).exp().numpy().round(4)
    array([0.2697, 0.2697], dtype=float32)
    """
    per_scale = torch.exp(-log_scales)
    middle, half = (pixels - means) * per_scale, HALF_BIN * per_scale
    tangent = torch.tanh(half)
    lowest, highest = pixels < HALF_BIN - 1, pixels > 1 - HALF_BIN
    below_upper = F.logsigmoid(middle + half).masked_fill(highest, 0)
    above_lower = F.logsigmoid(half - middle).masked_fill(lowest, 0)
    width = torch.log(2 * tangent / (1 + tangent)).masked_fill(lowest | highest, 0)
    return below_upper + above_lower + width


def log_likelihood(parameters: Tensor, images: Tensor) -> Tensor:
    """Natural log of the probability of whole images (N,), summed over pixels and channels.

    Parameters (N, P, H, W) as `pixelcnn` answers them; images (N, C, H, W) in 0-1 that hold the 256 values k / 255.

    >>> log_likelihood(torch.zeros(1, 3, 1, 1), torch.ones(1, 1, 1, 1)).exp().numpy().round(4)
    array([0.2697], dtype=float32)
    """
    mixture, pixels = Mixture.read(parameters, int(images.shape[1])), images * 2 - 1
    masses = log_masses(pixels[:, :, None], mixture.moved_means(pixels), mixture.log_scales)
    joint = masses.sum(1) + F.log_softmax(mixture.logits, 1)
    return torch.logsumexp(joint, 1).flatten(1).sum(1)


def bits_per_dimension(parameters: Tensor, images: Tensor) -> Tensor:
    """-log2 of the probability of whole images per pixel and channel, (N,); see `log_likelihood`.

    >>> bits_per_dimension(torch.zeros(1, 3, 1, 1), torch.ones(1, 1, 1, 1)).numpy().round(4)
    array([1.8905], dtype=float32)
    """
    return -log_likelihood(parameters, images) / (math.log(2) * images[0].numel())


def conditional(parameters: Tensor, images: Tensor, channel: int = 0) -> Tensor:
    """Probabilities of the 256 values of one channel given the channels before it: (N, 256, H, W).

    p(k) = sum w_m p_m(k | channels before), with w_m proportional to pi_m times the mass of the channels before.

    Parameters and images as in `log_likelihood`; of an image, only the channels before `channel` are read.

    >>> conditional(torch.zeros(1, 3, 1, 1), torch.zeros(1, 1, 1, 1)).sum().round(decimals=4).item()
    1.0
    """
    channels = images.shape[1]
    if not 0 <= channel < channels:
        raise InputError(f"images of {channels} channels have no channel {channel}")
    mixture, pixels = Mixture.read(parameters, channels), images * 2 - 1
    means, scales = mixture.moved_means(pixels), mixture.log_scales
    before = log_masses(pixels[:, :channel, None], means[:, :channel], scales[:, :channel]).sum(1)
    weights = F.log_softmax(mixture.logits + before, 1)
    values = torch.arange(VALUES, device=images.device, dtype=images.dtype) * (2 / 255) - 1
    spread = values.view(VALUES, *[1] * (parameters.ndim - 1))
    return torch.logsumexp(
        weights[:, None] + log_masses(spread, means[:, channel, None], scales[:, channel, None]), 2
    ).exp()
