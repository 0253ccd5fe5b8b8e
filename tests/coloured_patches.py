"""Data of random coloured patches, and ONNX models that know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.models import Preprocess

SIDE = 6


@dataclass
class Patches(Dataset):
    """Every class is one random patch of colours, brighter from class to class, shown with noise."""

    templates: NDArray[np.float64]
    images: NDArray[np.uint8]
    truth: NDArray[np.int64]
    class_names: tuple[str, ...]
    name: str = "patches"
    size: tuple[int, int] = (SIDE, SIDE)
    channels: int = 3

    def __len__(self) -> int:
        return len(self.truth)

    def fingerprint(self) -> str:
        return "patches"

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        index = np.arange(len(self))[rows]
        return Batch(tuple(f"i{row}" for row in index), self.images[index], self.truth[index])

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(f"i{row}" for row in range(len(self)))

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.truth

    @property
    def groups(self) -> tuple[str, ...]:
        return self.ids


def patches(classes: int = 12, count: int = 900, noise: float = 40.0, share: float = 0.0, seed: int = 0) -> Patches:
    """`share` of the images are of class 0, the rest of all classes alike."""
    rng = np.random.default_rng(seed)
    levels = np.linspace(70, 185, classes)[:, None, None, None]
    templates = levels + rng.uniform(-60, 60, (classes, SIDE, SIDE, 3))
    truth = np.where(rng.random(count) < share, 0, rng.integers(0, classes, count))
    pixels = templates[truth] + rng.normal(0, noise, (count, SIDE, SIDE, 3))
    names = tuple(str(number) for number in range(classes))
    return Patches(templates, np.clip(pixels, 0, 255).astype(np.uint8), truth, names)


def nearest_template(
    path: Path, data: Patches, process: Preprocess, *, dims: Sequence[Any] | None = None, order: Sequence[int] = ()
) -> Path:
    """An ONNX classifier by the nearest template: logits 2 t.x - |t|^2 on tensors made by `process`."""
    order = order or range(len(data.class_names))
    tensors = process(data.templates.astype(np.uint8)).reshape(len(data.templates), -1).astype(np.float64)[list(order)]
    scale = 1 / np.square(tensors).sum(axis=1).mean()
    weights, bias = (
        (2 * tensors.T * scale).astype(np.float32),
        (-scale * np.square(tensors).sum(axis=1)).astype(np.float32),
    )
    return network(
        path, weights, bias, dims or (("n", 3, SIDE, SIDE) if process.layout == "nchw" else ("n", SIDE, SIDE, 3))
    )


def network(
    path: Path, weights: np.ndarray, bias: np.ndarray, dims: Sequence[Any], extra: Sequence[onnx.NodeProto] = ()
) -> Path:
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["z" if extra else "y"]),
        *extra,
    ]
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
