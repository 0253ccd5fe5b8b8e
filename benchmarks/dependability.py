"""Speed of the dependability metrics, against their targets and against peers, in one process on one thread.

    python benchmarks/dependability.py [--out result.json] [--turns 3]

Neuron k-activation: pairs of 256 neurons and triples of 128, 10,000 images. Occlusion maps: the same network, patches
and fill as captum's `Occlusion`, ours on ONNX Runtime (the default; eager torch is shown beside it), captum once as
people call it (an image at a time, one perturbation per evaluation) and once at the best of its batch settings; the
maps must be equal. Scenarios to collect: as many rows as allpairspy and covertable need, or fewer. Turns are
interleaved and the best one counts, in processor time, so that other work on the machine matters less. Exits with 1
where a target is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Without this folder on the path, its files cannot hide a package of the same name that a peer imports.
if (here := str(Path(__file__).resolve().parent)) in sys.path:
    sys.path.remove(here)
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch

from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.metrics.coverage import Schema
from roadworthy.metrics.neurons import NeuronCoverage
from roadworthy.models import OnnxModel, TorchModel
from roadworthy.models.networks import export_onnx, thesis_cnn
from roadworthy.models.occlusion import GREY, occlusion_map
from roadworthy.protocols.dependability.covering_array import propose_scenarios

THREADS = 1
IMAGES = 10_000
NEURONS = {"k2_256_neurons": (256, 2, 0.05), "k3_128_neurons": (128, 3, 1.5)}
SIZE, PATCH, MAPS, CLASSES = 64, 8, 8, 14
EVALUATIONS = (4, 8, 16, 32, 64)
SCHEMAS = (
    *((3, 3, 2), (4, 3, 5, 2, 4, 3), (6, 5, 4, 3, 2, 2), (5, 5, 5, 5, 5), (4, 4, 4, 3, 3, 3, 2, 2, 2), (2,) * 10),
    *((3,) * 4, (3,) * 13, (2,) * 20, (4,) * 8, (10, 2, 2, 3, 3), (5, 4, 4, 3, 3, 3, 2, 2, 2, 2, 2, 2)),
)
SAME = 1e-5
TIMES_AS_FAST = 3.0

Turn = Callable[[], Any]


def best_seconds(turns: dict[str, Turn], count: int) -> dict[str, float]:
    """The best time of each contestant; they take turns, so that a slower spell of the machine hits all."""
    best = dict.fromkeys(turns, float("inf"))
    for _ in range(count):
        for name, turn in turns.items():
            started = time.process_time()
            turn()
            best[name] = min(best[name], time.process_time() - started)
    return best


def neurons(count: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)

    def turn(size: int, k: int) -> Turn:
        activations = generator.standard_normal((IMAGES, size)).astype(np.float32)

        def run() -> None:
            layer = NeuronCoverage(size, k)
            layer.add(activations)
            layer.result()

        return run

    seconds = best_seconds({name: turn(size, k) for name, (size, k, _) in NEURONS.items()}, max(count, 5))
    return {name: {"seconds": seconds[name], "target": target} for name, (_, _, target) in NEURONS.items()}


def occlusion(count: int) -> dict[str, Any]:
    torch.manual_seed(0)
    network = thesis_cnn(CLASSES, SIZE).eval()
    model = TorchModel(network, size=SIZE, threads=THREADS, outputs="logits")
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (MAPS, SIZE, SIZE, 3), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, MAPS)
    batch = Batch(tuple(str(i) for i in range(MAPS)), images, labels)
    maps: dict[str, Any] = {}

    def ours(name: str, model: Model) -> Turn:
        def run() -> None:
            maps[name] = occlusion_map(model, batch, patch=PATCH, stride=PATCH, fill="grey")

        return run

    with tempfile.TemporaryDirectory() as folder:
        export_onnx(network, Path(folder) / "cnn.onnx", SIZE)
        exported = OnnxModel(Path(folder) / "cnn.onnx", outputs="logits", threads=THREADS)
    turns: dict[str, Turn] = {"ours": ours("ours", exported), "ours, eager torch": ours("ours, eager torch", model)}
    try:
        occluder = importlib.import_module("captum.attr").Occlusion(lambda x: network(x).softmax(1))
    except ImportError:
        return {"seconds": best_seconds(turns, count), "captum": "not installed"}
    tensor = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2) / np.float32(255)))
    window = (3, PATCH, PATCH)
    baselines = torch.full((1, 3, SIZE, SIZE), GREY / 255)

    def captum(images_at_once: int, evaluations: int) -> Turn:
        def run() -> None:
            parts = []
            with torch.inference_mode():
                for start in range(0, MAPS, images_at_once):
                    part = tensor[start : start + images_at_once]
                    target = torch.from_numpy(labels[start : start + images_at_once])
                    drop = occluder.attribute(
                        part,
                        window,
                        strides=window,
                        baselines=baselines.expand_as(part),
                        target=target,
                        perturbations_per_eval=evaluations,
                    )
                    clean = network(part).softmax(1).gather(1, target[:, None])
                    parts.append(clean[:, :, None] - drop[:, 0, ::PATCH, ::PATCH])
            maps["captum"] = torch.cat(parts).numpy()

        return run

    turns["captum, an image at a time, 1 evaluation"] = captum(1, 1)
    settings = [(1, many) for many in EVALUATIONS] + [(MAPS, 1), (MAPS, 4), (MAPS, 8)]
    turns |= {f"captum, {at_once} images, {many} evaluations": captum(at_once, many) for at_once, many in settings}
    seconds = best_seconds(turns, count)
    best = min(value for name, value in seconds.items() if name.startswith("captum"))
    return {
        "seconds": seconds,
        "largest_difference": float(np.abs(maps["ours"] - maps["captum"]).max()),
        "times_as_fast_as_called": seconds["captum, an image at a time, 1 evaluation"] / seconds["ours"],
        "times_as_fast_as_its_best": best / seconds["ours"],
    }


def scenarios() -> dict[str, Any]:
    result = {}
    for sizes in SCHEMAS:
        values = [[f"v{value}" for value in range(size)] for size in sizes]
        started = time.perf_counter()
        rows = len(propose_scenarios(Schema({f"c{place}": row for place, row in enumerate(values)})))
        entry: dict[str, Any] = {"rows": rows, "seconds": time.perf_counter() - started}
        for name, generate in (
            ("allpairspy", lambda package, values=values: package.AllPairs(values)),
            ("covertable", lambda package, values=values: package.make(values)),
        ):
            try:
                entry[name] = len(list(generate(importlib.import_module(name))))
            except ImportError:
                entry[name] = None
        result["x".join(map(str, sizes))] = entry
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    result = {"neurons": neurons(arguments.turns), "occlusion": occlusion(arguments.turns), "scenarios": scenarios()}
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    missed = [name for name, entry in result["neurons"].items() if entry["seconds"] > entry["target"]]
    maps = result["occlusion"]
    if "largest_difference" in maps:
        slow = maps["times_as_fast_as_called"] < TIMES_AS_FAST or maps["times_as_fast_as_its_best"] < 1
        missed += ["occlusion maps are slower than captum"] if slow else []
        missed += ["occlusion maps differ from captum's"] if maps["largest_difference"] > SAME else []
    for name, entry in result["scenarios"].items():
        missed += (
            [name] if any(entry[peer] and entry[peer] < entry["rows"] for peer in ("allpairspy", "covertable")) else []
        )
    sys.exit(f"targets missed: {missed}" if missed else 0)


if __name__ == "__main__":
    main()
