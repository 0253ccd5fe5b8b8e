"""What MC-Dropout costs: 20 passes against one, in the same run.

    python benchmarks/mc_dropout.py [--images 32] [--out result.json]

The thesis's network, in which only the first convolution precedes the first dropout, at 64x64 and 32x32, and the same
with dropout in its last layers alone, where all convolutions are shared. One thread, as a worker of a study has, and
its processor time, which other programs disturb less than the clock on the wall. Target: 20 passes cost at most 19
times one pass. Exits with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

from roadworthy.core.types import Batch
from roadworthy.models.networks import thesis_cnn
from roadworthy.uncertainty import McDropout

PASSES = 20
TARGET = 19.0
ROUNDS = 7
PLACEMENTS = {"after each hidden layer": "all", "after the first linear layer": ["dropout3"]}


def seconds(model: McDropout, batch: Batch, times: int) -> float:
    """Processor seconds of so many predictions."""
    started = time.thread_time()
    for _ in range(times):
        model.predict(batch)
    return time.thread_time() - started


def measure(size: int, images: int, placement: str | list[str]) -> dict[str, float]:
    """The cost of all passes in passes: the median of rounds that time one prediction of all, and as many of one."""
    torch.manual_seed(0)
    network = thesis_cnn(14, size, dropout=0.6)
    one, all_passes = (McDropout(network, passes=passes, size=size, placement=placement) for passes in (1, PASSES))
    pixels = np.random.default_rng(0).integers(0, 256, (images, size, size, 3), dtype=np.uint8)
    batch = Batch(ids=tuple(map(str, range(images))), images=pixels, labels=np.zeros(images, np.int64))
    rounds = [(seconds(one, batch, PASSES) / PASSES, seconds(all_passes, batch, 1)) for _ in range(ROUNDS + 1)][1:]
    return {
        "ratio": statistics.median(twenty / single for single, twenty in rounds),
        "images_per_second": images / min(twenty for _, twenty in rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = []
    for size in (64, 32):
        for where, placement in PLACEMENTS.items():
            result = {"size": size, "dropout": where, **measure(size, arguments.images, placement)}
            results.append(result)
            print(
                f"{size}x{size}, dropout {where}: {PASSES} passes cost {result['ratio']:.2f} times one, "
                f"{result['images_per_second']:.0f} images/s",
                flush=True,
            )
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(any(result["ratio"] > TARGET for result in results))


if __name__ == "__main__":
    main()
