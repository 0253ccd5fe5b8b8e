"""What the suite approval costs beyond the model: the whole run against bare inference of as many images.

    python benchmarks/approval.py [--images 2048] [--out result.json]

Bare inference is that of benchmarks/chain.py, as often as the suite asks for answers: their number divided by that of
the images. The run is everything, GANs left out: opening the data and a foreign set, ten shifts in five levels,
made and foreign outliers, both sides under each shift, inference, readouts, tables with bounds, the answers to the
three questions, pictures and the report. Target: one model at most 1.25 times its bare inference. Exits with 1 where it
is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from chain import CORES, SIZE, bare_seconds
from roadworthy.api import execute, no_progress, prepare
from roadworthy.evaluation import GivenData, evaluation_study
from roadworthy.models.networks import export_onnx, thesis_cnn

TARGET = 1.25


def approval_seconds(model: Path, data: Path, outliers: Path, out: Path) -> tuple[float, int]:
    """Seconds of a whole approval, and how many answers the model gave."""
    started = time.perf_counter()
    given = GivenData({"foreign_set": str(outliers)})
    study = evaluation_study({"cnn": str(model)}, str(data), "approval", given)
    prepared = prepare(study, accept_chance=True)
    execute(prepared, out, progress=no_progress)
    return time.perf_counter() - started, prepared.plan.graph().image_cases()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        export_onnx(thesis_cnn(14, SIZE), folder / "cnn.onnx", SIZE)
        generator = np.random.default_rng(0)
        for part in ("data", "outliers"):
            images = generator.integers(0, 256, (arguments.images, SIZE, SIZE, 3), dtype=np.uint8)
            np.savez(folder / f"{part}.npz", images=images, labels=generator.integers(0, 14, arguments.images))
        paths = (folder / "cnn.onnx", folder / "data.npz", folder / "outliers.npz")
        # Bare inference before and after, so that a machine that warms up or slows down does not favour one side.
        part_of_passes = 34
        first = bare_seconds(paths[0], arguments.images, part_of_passes)
        seconds, answers = approval_seconds(*paths, folder / "run")
        passes = round(answers / arguments.images)
        second = bare_seconds(paths[0], arguments.images, passes - part_of_passes)
    bare = first + second
    result = {
        "images": arguments.images,
        "answers": answers,
        "passes": passes,
        "cores": CORES,
        "one_model": {"bare": bare, "approval": seconds, "ratio": seconds / bare, "target": TARGET},
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(f"slower than the target: {seconds / bare:.2f}" if seconds / bare > TARGET else 0)


if __name__ == "__main__":
    main()
