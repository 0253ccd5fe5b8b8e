"""How memory and time grow with the number of images: whole evaluations of 10,000 to 200,000 images, one process each.

    python benchmarks/scale.py [--images 10000 50000 100000 200000] [--plots docs/images] [--out result.json]

A size is one child process: it opens an .npz of drawn images of 32x32 pixels, shows them to a small ONNX model
undisturbed and under two shifts, makes tables, verifies the run and writes its report anew. The highest resident size
of the child (VmHWM) is taken over all of that. Limits: under 1.5 GB at every size; at most `BYTES_PER_IMAGE` more per
image from the smallest size to the largest; seconds of tables, verification and report grow at most like the number of
images to the power of `SLOPE`. Exits with 1 where one is missed. Takes about five minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

SIZE, CLASSES, COARSE = 32, 8, 8
CASES = 3
"""Undisturbed, and under two shifts."""
IMAGES = (10_000, 50_000, 100_000, 200_000)
SHIFTS, LEVELS = ["dark", "noise"], [3]
LIMIT = 1.5e9
"""Bytes that a process may hold, at every size."""
BYTES_PER_IMAGE = 2000
"""Bytes by which the peak may grow per image: names, labels and what tables are made from; pixels alone are 3,072."""
SLOPE = 1.05
"""The largest exponent of growth in time that counts as linear: repeated on one machine it varies by about 0.03."""
STEPS = ("evaluation", "tables", "verify", "report")
MEASURED = STEPS[1:]
BLOCK = 10_000


def templates() -> np.ndarray:
    """A coarse pattern per class (K, COARSE, COARSE, 3), from -1 to 1."""
    return np.random.default_rng(0).choice([-1.0, 1.0], (CLASSES, COARSE, COARSE, 3))


def draw(path: Path, count: int) -> None:
    """An .npz of `count` images: the pattern of their class in strong noise, drawn block by block."""
    generator, patterns = np.random.default_rng(1), templates()
    labels = generator.integers(0, CLASSES, count)
    images = np.lib.format.open_memmap(path.with_suffix(".npy"), "w+", np.uint8, (count, SIZE, SIZE, 3))
    for start in range(0, count, BLOCK):
        own = labels[start : start + BLOCK]
        small = 128 + 16 * patterns[own] + generator.normal(0, 60, (len(own), COARSE, COARSE, 3))
        wide = np.clip(small, 0, 255).astype(np.uint8).repeat(SIZE // COARSE, 1).repeat(SIZE // COARSE, 2)
        images[start : start + BLOCK] = wide
    images.flush()
    np.savez(path, images=images, labels=labels)
    path.with_suffix(".npy").unlink()


def save_model(path: Path) -> None:
    """The nearest pattern as an ONNX graph: means of coarse squares, a product with the patterns, a softmax."""
    from onnx import TensorProto, helper, numpy_helper, save_model

    weights = templates().transpose(0, 3, 1, 2).reshape(CLASSES, -1).T.astype(np.float32) / 2
    side = SIZE // COARSE
    nodes = [
        helper.make_node("AveragePool", ["image"], ["coarse"], kernel_shape=[side, side], strides=[side, side]),
        helper.make_node("Flatten", ["coarse"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, SIZE, SIZE])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])
    graph = helper.make_graph(nodes, "nearest", [image], [logits], [numpy_helper.from_array(weights, "weights")])
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Add the seconds of a block to those of a step."""
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - started


def median_seconds(act: Callable[[], None]) -> float:
    """The median of three times: a single one of half a second varies by a tenth."""
    durations: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        act()
        durations.append(time.perf_counter() - started)
    return sorted(durations)[1]


def check_tables(store: Any, record: Any) -> None:
    """Make all tables of a run from its readouts."""
    from roadworthy.stored_evidence import load_evidence

    assert all(own.tables() for own in load_evidence(store, record).values())


def check_run(run: Any) -> None:
    """Verify a run, which must be as it was written."""
    problems = run.verify()
    assert not problems, problems


def measure(folder: Path) -> dict[str, Any]:
    """One evaluation of the data in a folder, in this process: its seconds by step and its peak of memory."""
    from roadworthy.api import execute, no_progress, prepare
    from roadworthy.core.record import RunRecord
    from roadworthy.engine.folder import RunFolder
    from roadworthy.engine.memory import peak_memory
    from roadworthy.stored import open_run
    from roadworthy.study import parse_study

    content = {
        "data": {"test": str(folder / "data.npz")},
        "models": {"nearest": {"onnx": str(folder / "nearest.onnx"), "outputs": "logits"}},
        "protocols": {"classification": {"shifts": SHIFTS, "levels": LEVELS}},
    }
    seconds: dict[str, float] = {}
    peaks: dict[str, float] = {}
    with peak_memory() as peak, timed(seconds, "evaluation"):
        prepared = prepare(parse_study(content, "scale"))
    peaks["prepare"] = peak.bytes
    with peak_memory() as peak, timed(seconds, "evaluation"):
        run = execute(prepared, folder / "run", progress=no_progress)
    peaks["run"] = peak.bytes
    del prepared
    record: RunRecord = run.record
    with peak_memory() as peak:
        seconds["tables"] = median_seconds(lambda: check_tables(RunFolder(run.path), record))
    peaks["tables"] = peak.bytes
    run = open_run(folder / "run")
    with peak_memory() as peak:
        seconds["verify"] = median_seconds(lambda: check_run(run))
    peaks["verify"] = peak.bytes
    with peak_memory() as peak, timed(seconds, "report"):
        run.report()
    peaks["report"] = peak.bytes
    cells = run.tables["classification"]
    accuracy = cells[(cells["metric"] == "accuracy") & (cells["shift"] == "none")]["value"].item()
    return {"seconds": seconds, "peaks": peaks, "peak": max(peaks.values()), "accuracy": accuracy}


def measured_apart(images: int) -> dict[str, Any]:
    """The same in a process of its own, data included."""
    with tempfile.TemporaryDirectory() as name:
        draw(Path(name) / "data.npz", images)
        save_model(Path(name) / "nearest.onnx")
        command = [sys.executable, __file__, "--child", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {"images": images, **json.loads(done.stdout.splitlines()[-1])}


def slope(sizes: Sequence[Mapping[str, Any]], step: str) -> float:
    """The exponent of growth of a step's seconds from the smallest size to the largest."""
    first, last = sizes[0], sizes[-1]
    return math.log(last["seconds"][step] / first["seconds"][step]) / math.log(last["images"] / first["images"])


def judged(sizes: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """What follows from the sizes, and which limits are missed."""
    per_image = 0.0
    if len(sizes) > 1:
        per_image = (sizes[-1]["peak"] - sizes[0]["peak"]) / (sizes[-1]["images"] - sizes[0]["images"])
    slopes = {step: slope(sizes, step) for step in MEASURED} if len(sizes) > 1 else {}
    missed = [f"{size['images']:,} images took {size['peak'] / 1e6:,.0f} MB" for size in sizes if size["peak"] > LIMIT]
    if per_image > BYTES_PER_IMAGE:
        missed.append(f"memory grows by {per_image:.0f} bytes per image")
    missed += [f"{step} grows with exponent {value:.2f}" for step, value in slopes.items() if value > SLOPE]
    return {"bytes_per_image": per_image, "exponents": slopes}, missed


def plot(sizes: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write scale-memory.png and scale-time.png."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    images = [size["images"] for size in sizes]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(images, [size["peak"] / 1e6 for size in sizes], "o-", color="#1f5fa8", label="highest resident size")
    axes.axhline(LIMIT / 1e6, color="#b00020", linestyle="--", label="limit")
    axes.set(xlabel="images", ylabel="MB", ylim=(0, 1.1 * LIMIT / 1e6), title="Memory of one process")
    axes.legend()
    figure.savefig(folder / "scale-memory.png", dpi=110)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for step in STEPS:
        axes.loglog(images, [size["seconds"][step] for size in sizes], "o-", label=step)
    first = sizes[0]["seconds"]["tables"]
    axes.loglog(images, [first * n / images[0] for n in images], "k:", label="linear growth")
    axes.set(xlabel="images", ylabel="seconds", title="Time of each step")
    axes.legend()
    figure.savefig(folder / "scale-time.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, nargs="+", default=IMAGES)
    parser.add_argument("--plots", type=Path, help="folder for scale-memory.png and scale-time.png")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child)))
        return
    sizes = [measured_apart(images) for images in sorted(arguments.images)]
    follows, missed = judged(sizes)
    result = {"cores": os.cpu_count(), "limit": LIMIT, **follows, "sizes": sizes}
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.plots:
        plot(sizes, arguments.plots)
    sys.exit("; ".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
