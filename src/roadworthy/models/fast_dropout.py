"""Dropout for training that draws 16 random bits per unit: several times as fast on a CPU as torch's own.

Imports torch: for use by `train_classifier`, which imports it when it is needed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

STEPS = 2**16


def fast_dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """`F.dropout`: each unit is 0 with probability p (to 1 in 65,536), else divided by 1 - p.

    >>> ones = fast_dropout(torch.ones(1000), p=0.5)
    >>> sorted(set(ones.tolist()))
    [0.0, 2.0]
    """
    if not training or p == 0:
        return input
    count = input.numel()
    bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = bits.view(torch.int16)[:count] >= round(p * STEPS) - STEPS // 2
    mask = kept.to(input.dtype).mul_(1 / (1 - p) if p < 1 else 0.0)
    if input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last):
        images, channels, height, width = input.shape
        return input * mask.view(images, height, width, channels).permute(0, 3, 1, 2)
    return input * mask.view(input.shape)


class FastDropout(TorchFunctionMode):
    """While it is entered, every `F.dropout` (so every `nn.Dropout`) is `fast_dropout`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a torch function, or the faster one in its place."""
        return (fast_dropout if func is F.dropout else func)(*args, **(kwargs or {}))
