"""What the chain costs beyond the model: a whole evaluation against bare inference of as many images, in the same run.

    python benchmarks/chain.py [--images 2048] [--out result.json]

Bare inference is ONNX Runtime alone on ready float32 batches, in the faster of two set-ups: one thread in each of as
many workers as there are cores, or all cores in one session. The evaluation is everything: opening and
fingerprinting the data, ten shifts in five levels, inference, readouts, tables with bounds, pictures and the report.
Targets: one model at most 1.2 times its bare inference; three models at most 1.1 times the sum of theirs. Exits with 1
where one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch

from roadworthy.api import execute, no_progress, prepare
from roadworthy.engine.plan import BATCH
from roadworthy.models.networks import export_onnx, thesis_cnn
from roadworthy.study import parse_study

SIZE = 64
CASES = 51
CORES = os.cpu_count() or 1


def session(path: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def bare_seconds(path: Path, images: int, passes: int) -> float:
    """Seconds of inference alone for `passes` times all images, by the set-up that is faster in a first pass."""
    ready = np.random.default_rng(0).random((images, 3, SIZE, SIZE), dtype=np.float32)
    batches = [ready[i : i + BATCH] for i in range(0, images, BATCH)]

    def spread(passes: int) -> float:
        shared = session(path, 1)
        with ThreadPoolExecutor(CORES) as pool:
            started = time.perf_counter()
            list(pool.map(lambda batch: shared.run(None, {"image": batch}), batches * passes))
            return time.perf_counter() - started

    def together(passes: int) -> float:
        alone = session(path, CORES)
        started = time.perf_counter()
        for batch in batches * passes:
            alone.run(None, {"image": batch})
        return time.perf_counter() - started

    return min((spread, together), key=lambda set_up: set_up(1))(passes)


def evaluation_seconds(paths: list[Path], data: Path, out: Path) -> float:
    """Seconds of a whole study with these models."""
    started = time.perf_counter()
    models = {path.stem: {"onnx": str(path)} for path in paths}
    study = parse_study({"data": {"test": str(data)}, "models": models}, "benchmark")
    execute(prepare(study, accept_chance=True), out, progress=no_progress)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = []
        for seed in range(3):
            torch.manual_seed(seed)
            paths.append(folder / f"cnn{seed}.onnx")
            export_onnx(thesis_cnn(14, SIZE), paths[-1], SIZE)
        generator = np.random.default_rng(0)
        images = generator.integers(0, 256, (arguments.images, SIZE, SIZE, 3), dtype=np.uint8)
        np.savez(folder / "data.npz", images=images, labels=generator.integers(0, 14, arguments.images))
        # Bare inference before and after, so that a machine that warms up or slows down does not favour one side.
        half = CASES // 2
        first = [bare_seconds(path, arguments.images, half) for path in paths]
        one = evaluation_seconds(paths[:1], folder / "data.npz", folder / "one")
        three = evaluation_seconds(paths, folder / "data.npz", folder / "three")
        second = [bare_seconds(path, arguments.images, CASES - half) for path in paths]
    bare = [a + b for a, b in zip(first, second, strict=True)]
    result = {
        "images": arguments.images,
        "cases": CASES,
        "cores": CORES,
        "bare_images_per_second": arguments.images * CASES * 3 / sum(bare),
        "one_model": {"bare": bare[0], "evaluation": one, "ratio": one / bare[0], "target": 1.2},
        "three_models": {"bare": sum(bare), "evaluation": three, "ratio": three / sum(bare), "target": 1.1},
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    missed = [key for key in ("one_model", "three_models") if result[key]["ratio"] > result[key]["target"]]
    sys.exit(f"slower than the target: {missed}" if missed else 0)


if __name__ == "__main__":
    main()
