"""Train a small classifier of German traffic signs and export it to ONNX: a real model to try Roadworthy on.

    python examples/train_gtsrb.py path/to/gtsrb_train.npz gtsrb.onnx

The data set is an .npz with images (N, 32, 32, 3) uint8, labels and track. A fifth of the tracks (physical signs, never
single frames) is held out to choose the best epoch. Takes two minutes on two cores.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn


def network(classes: int) -> nn.Module:
    """Three convolutional blocks and a linear layer; input in 0-1."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    return nn.Sequential(
        *block(3, 32), *block(32, 64), *block(64, 128), nn.Flatten(), nn.Dropout(0.4), nn.Linear(128 * 16, classes)
    )


def accuracy(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right answers."""
    net.eval()
    with torch.inference_mode():
        answers = torch.cat([net(part).argmax(1) for part in images.split(512)])
    return float((answers == labels).float().mean())


def train(data: Path, epochs: int = 12, seed: int = 0) -> tuple[nn.Module, float]:
    """The network of the best epoch and its accuracy on the held-out tracks."""
    torch.manual_seed(seed)
    with np.load(data, allow_pickle=False) as stored:
        images, labels, track = stored["images"], stored["labels"], stored["track"]
    objects = np.unique(np.stack([labels, track.astype(labels.dtype)], axis=1), axis=0, return_inverse=True)[1].ravel()
    held_out = np.isin(objects, np.random.default_rng(seed).permutation(objects.max() + 1)[: (objects.max() + 1) // 5])
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2).float().div(255).contiguous(memory_format=torch.channels_last)
    target = torch.from_numpy(labels)
    net = network(int(labels.max()) + 1).to(memory_format=torch.channels_last)
    rows = torch.from_numpy(np.flatnonzero(~held_out))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    steps = epochs * (len(rows) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    best, best_state = -1.0, net.state_dict()
    for epoch in range(epochs):
        net.train()
        for part in rows[torch.randperm(len(rows))].split(128)[: steps // epochs]:
            loss = nn.functional.cross_entropy(net(tensor[part]), target[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        score = accuracy(net, tensor[torch.from_numpy(held_out)], target[torch.from_numpy(held_out)])
        print(f"epoch {epoch + 1}: held-out accuracy {score:.4f}", flush=True)
        if score > best:
            best, best_state = score, {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(best_state)
    return net.eval(), best


def main() -> None:
    """Train and export."""
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    net, score = train(data)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            (torch.zeros(2, 3, 32, 32),),
            out,
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            external_data=False,
            verbose=False,
        )
    print(f"{out}: held-out accuracy {score:.4f}")


if __name__ == "__main__":
    main()
