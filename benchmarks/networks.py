"""The thesis's classifier (section 3.2) as a torch network, and its export to ONNX, for benchmarks."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import torch
from torch import nn


def thesis_cnn(classes: int = 14, size: int = 64) -> nn.Module:
    """Two convolutions of 32 filters, a pooling layer, two fully connected layers."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (size // 2) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def export_onnx(network: nn.Module, path: Path, size: int) -> None:
    """Write a network that takes (N, 3, size, size) as one ONNX file with a free batch size."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, 3, size, size),),
            path,
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            external_data=False,
            verbose=False,
        )
