"""Small real models and studies for tests."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from onnx import TensorProto, helper, numpy_helper, save

SIZE = 32
CLASSES = 14


@cache
def templates() -> np.ndarray:
    """Mean image of each drawn class, (K, 3 * SIZE * SIZE), in 0-1: enough to classify better than chance."""
    from roadworthy.data import BuiltinDataset, Opening

    batch = BuiltinDataset("signs", Opening(size=SIZE), n=700, split="train").batch(slice(None))
    flat = batch.images.transpose(0, 3, 1, 2).reshape(len(batch), -1) / 255.0
    return np.stack([flat[batch.labels == k].mean(0) for k in range(CLASSES)])


def save_onnx(path: Path, *, softmax: bool = True, gain: float = 1.0, blur: float = 0.0, white: float = 1.0) -> Path:
    """Nearest class mean as an ONNX graph: Flatten, Gemm and, unless logits are wanted, Softmax.

    `blur` mixes noise into the means, which makes a worse model; `white` is the value of white pixels that it expects.
    """
    means = templates() + blur * np.random.default_rng(0).normal(size=templates().shape)
    weights = (gain * 2 * means.T / 20 / white).astype(np.float32)
    bias = (-gain * (means**2).sum(1) / 20).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["image"], ["pixels"]),
        helper.make_node("Gemm", ["pixels", "weights", "bias"], ["logits"]),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"]))
    graph = helper.make_graph(
        nodes,
        "nearest_mean",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(bias, "bias")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def study(folder: Path, n: int = 150, **changes: Any) -> dict[str, Any]:
    """A small study on drawn signs with one ONNX model, as a plain dictionary; `changes` replace top-level keys."""
    if not (folder / "tiny.onnx").exists():
        save_onnx(folder / "tiny.onnx")
    return {
        "name": "tiny",
        "size": f"{SIZE}x{SIZE}",
        "data": {"test": {"builtin": "signs", "n": n}},
        "models": {"tiny": {"onnx": str(folder / "tiny.onnx")}},
        "protocols": {"classification": {"shifts": ["noise", "fog", "rotation"], "levels": [1, 5]}},
        **changes,
    }


def write_npz(path: Path, n: int, seed: int = 1) -> Path:
    """Many images at little cost: a few drawn signs over and over, each a little noisier than the last."""
    from roadworthy.data import BuiltinDataset, Opening

    drawn = BuiltinDataset("signs", Opening(size=SIZE), n=140, seed=seed)
    batch = drawn.batch(slice(None))
    rows = np.arange(n) % len(batch)
    noise = np.random.default_rng(0).integers(0, 24, (n, SIZE, SIZE, 3), dtype=np.uint8)
    images = np.minimum(batch.images[rows].astype(np.uint16) + noise, 255).astype(np.uint8)
    np.savez(path, images=images, labels=batch.labels[rows], class_names=drawn.class_names)
    return path


def write_study(folder: Path, n: int = 150, **changes: Any) -> Path:
    """The same as a file."""
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study(folder, n, **changes)))
    return path


def contents(run: Path) -> dict[str, bytes]:
    """The bytes of everything in a run that must be the same every time."""
    wanted = [*run.glob("readouts/**/*"), *run.glob("tables/*"), *run.glob("media/*"), run / "verdict.json"]
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(wanted)
        if path.is_file() and not path.name.startswith("timing_")
    }


def import_text(text: str, path: Path) -> Any:
    """Write a Python file and import it under its own name, in place of what was imported from there before."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def forget_plugins() -> None:
    """Forget every plugin, as a new process would."""
    from roadworthy import plugins

    for loaded in plugins._LOADED.values():
        for registry, name, _ in loaded.registered:
            registry._members.pop(name, None)
        for module in loaded.modules:
            sys.modules.pop(module, None)
    plugins._LOADED.clear()
