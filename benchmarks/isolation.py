"""A model in a process of its own against the same model in the process of the run: time, and the same bits.

`python benchmarks/isolation.py [--images N] [--rounds N] [--out FILE]` writes a Python file with a small convolutional
network in ONNX Runtime (one thread), which is asked about 64 x 64 images in batches of 64, here and there in turn.
Then whole runs are timed, the start of the process included, and two threads that ask a function which holds the
interpreter's lock. It exits with 1 where isolation costs more than a tenth of the time, or where an answer or a table
is another one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import roadworthy as rw
from roadworthy.core.roles import BATCH, Model
from roadworthy.core.types import Batch
from roadworthy.engine.workers import Turns, in_workers
from roadworthy.models import load_model

SIZE, CLASSES, MOST = 64, 10, 1.10
CODE = """
from pathlib import Path

import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(Path(__file__).with_name("net.onnx").read_bytes(), options)


def answer(images):
    tensor = images.transpose(0, 3, 1, 2).astype("float32") / 255
    return session.run(None, {"image": tensor})[0]


def counts(images):
    for image in images:
        sum(number * number for number in range(4000))
    return answer(images)
"""


def write_network(path: Path) -> None:
    """Four convolutions, a mean over positions and a linear layer, with random weights: about half of a ResNet-20."""
    rng, nodes, weights, before = np.random.default_rng(0), [], [], 3
    previous = "image"
    for number, (channels, stride) in enumerate(((32, 1), (64, 2), (64, 1), (128, 2))):
        kernel = (rng.normal(size=(channels, before, 3, 3)) / np.sqrt(9 * before)).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{number}"))
        settings = {"strides": [stride, stride], "pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node("Conv", [previous, f"w{number}"], [f"c{number}"], **settings))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        previous, before = f"r{number}", channels
    weights.append(numpy_helper.from_array(rng.normal(size=(before, CLASSES)).astype(np.float32) * 9, "last"))
    nodes += [
        helper.make_node("GlobalAveragePool", [previous], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "last"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])
    answer = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", CLASSES])
    graph = helper.make_graph(nodes, "net", [image], [answer], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def asked(folder: Path, pixels: np.ndarray, rounds: int) -> dict[str, float]:
    """The fastest seconds of asking about all images, not isolated and isolated in turn; the bits are compared."""
    batch = Batch(tuple(map(str, range(len(pixels)))), pixels, np.zeros(len(pixels), np.int64))
    models = {
        name: load_model(str(folder / "model.py:answer"), trust=True, isolate=name == "isolated", name="net")
        for name in ("in the run", "isolated")
    }
    answers, seconds = {}, {name: list[float]() for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            started = time.perf_counter()
            answers[name] = model.answer(batch, BATCH).probabilities
            seconds[name].append(time.perf_counter() - started)
    if not np.array_equal(*answers.values()):
        sys.exit("isolation changes an answer")
    return {name: min(own) for name, own in seconds.items()}


def whole_runs(folder: Path, rounds: int) -> dict[str, float]:
    """The fastest seconds of whole runs, the start of processes included; the tables are compared."""
    seconds, tables = dict[str, list[float]](), dict[str, Any]()
    for turn in range(rounds):
        for name in ("in the run", "isolated"):
            entry = {"callable": str(folder / "model.py:answer"), "isolate": name == "isolated"}
            study = {
                "name": "isolation",
                "data": {"test": str(folder / "data.npz")},
                "models": {"net": entry},
                "protocols": {"classification": {"shifts": ["noise", "fog", "blur"], "levels": [1, 3, 5]}},
            }
            started = time.perf_counter()
            out = folder / f"{name} {turn}"
            run = rw.run_study(study, out=out, trust=True, accept_chance=True, progress=rw.no_progress)
            seconds.setdefault(name, []).append(time.perf_counter() - started)
            tables[name] = run.tables["classification"].to_csv()
    if len(set(tables.values())) != 1:
        sys.exit("isolation changes a table")
    return {name: min(own) for name, own in seconds.items()}


def two_threads(folder: Path, pixels: np.ndarray) -> dict[str, float]:
    """Seconds of two threads with 60 batches each for a function that holds the interpreter's lock most of the time."""
    batch, seconds = Batch(tuple(map(str, range(BATCH))), pixels[:BATCH], np.zeros(BATCH, np.int64)), {}
    for name in ("in the run", "isolated"):
        settings = {"num_classes": CLASSES, "version": "1", "name": "net"}
        model = load_model(str(folder / "model.py:counts"), trust=True, isolate=name == "isolated", **settings)
        turns = Turns([model])

        def work(_: int, model: Model = model, turns: Turns = turns) -> None:
            with turns.of(model):
                model.answer(batch, BATCH)

        started = time.perf_counter()
        in_workers(work, range(120), 2, threading.Event())
        seconds[name] = time.perf_counter() - started
    return seconds


def main() -> None:
    """Measure, print, and say whether isolation costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    results: dict[str, Any] = {"images": options.images}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_network(folder / "net.onnx")
        (folder / "model.py").write_text(CODE)
        pixels = rng.integers(0, 256, (options.images, SIZE, SIZE, 3), dtype=np.uint8)
        labels = np.arange(options.images) % CLASSES
        np.savez(folder / "data.npz", images=pixels, labels=labels, class_names=[str(n) for n in range(CLASSES)])
        measured = {"asking": asked(folder, pixels, options.rounds), "whole run": whole_runs(folder, 2)}
        measured["two threads, Python"] = two_threads(folder, pixels)
    for what, seconds in measured.items():
        ratio = seconds["isolated"] / seconds["in the run"]
        results[what] = {**seconds, "ratio": ratio}
        print(f"{what}: {seconds['in the run']:.2f} s in the run, {seconds['isolated']:.2f} s isolated: {ratio:.3f}")
    results["met"] = all(results[what]["ratio"] <= MOST for what in measured)
    print(f"{'met' if results['met'] else 'MISSED'}: at most {MOST:.2f} times the time, the same bits")
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    sys.exit(0 if results["met"] else 1)


if __name__ == "__main__":
    main()
