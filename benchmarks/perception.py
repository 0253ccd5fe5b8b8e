"""What MC-Dropout in the head costs beside a big backbone: 20 passes against the plain network, in the same run.

    python benchmarks/perception.py [--out result.json]

ResNet-50 with random weights at 224x224, a batch of 16 images, dropout in the head and before the last layer alone. The
plain network and the passes both run in ONNX Runtime on one thread, as a worker of a study has; rounds of them
take turns, and processor time is counted, which other programs disturb less than the clock on the wall. Target: 20
passes cost at most 1.2 times the plain network, as the median of the rounds. Exits with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.models.networks import export_onnx
from roadworthy.models.onnx import OnnxModel
from roadworthy.models.perception import perception_network
from roadworthy.uncertainty import McDropout

BACKBONE = "resnet50"
PASSES = 20
TARGET = 1.2
ROUNDS = 7
OUTPUTS = 7
DROPOUT = 0.05
PLACEMENTS = ("head", "last_layer")


def plain_model(size: int, folder: Path) -> OnnxModel:
    """The network without dropout as an ONNX file."""
    torch.manual_seed(0)
    path = folder / "plain.onnx"
    export_onnx(perception_network(BACKBONE, OUTPUTS, size=size), path, size)
    return OnnxModel(path)


def mc_dropout_model(size: int, placement: str) -> McDropout:
    """The same weights with dropout; an error where the passes do not run in the runtime of the plain network."""
    torch.manual_seed(0)
    network = perception_network(BACKBONE, OUTPUTS, size=size, placement=placement, p=DROPOUT)
    model = McDropout(network, passes=PASSES, size=size)
    if model.runtime != "onnx":
        raise RuntimeError(f"the passes run in {model.runtime}, so they cannot be compared: {model.notes}")
    return model


def seconds(model: Model, batch: Batch) -> float:
    """Processor seconds of one prediction."""
    started = time.process_time()
    model.predict(batch)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size, images = arguments.size, arguments.images
    pixels = np.random.default_rng(0).integers(0, 256, (images, size, size, 3), dtype=np.uint8)
    batch = Batch(ids=tuple(map(str, range(images))), images=pixels, labels=np.zeros(images, np.int64))
    with tempfile.TemporaryDirectory() as folder:
        models: dict[str, Model] = {"plain": plain_model(size, Path(folder))}
        models |= {placement: mc_dropout_model(size, placement) for placement in PLACEMENTS}
        rounds = [{name: seconds(model, batch) for name, model in models.items()} for _ in range(ROUNDS + 1)][1:]
    results = []
    for placement in PLACEMENTS:
        ratio = statistics.median(spent[placement] / spent["plain"] for spent in rounds)
        best = images / min(spent[placement] for spent in rounds)
        results.append({"backbone": BACKBONE, "placement": placement, "ratio": ratio, "images_per_second": best})
        print(
            f"{BACKBONE} at {size}x{size}, dropout {placement}: {PASSES} passes cost {ratio:.3f} times the plain "
            f"network, {best:.1f} images/s",
            flush=True,
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(any(result["ratio"] > TARGET for result in results))


if __name__ == "__main__":
    main()
