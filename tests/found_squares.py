"""Pictures of bright squares and discs on dark ground, and a localizer that finds them, for tests of boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

SIDE = 32
CLASSES = ("square", "disc")


def squares(n: int = 120, seed: int = 0, classes: tuple[str, ...] = CLASSES, masks: bool = True) -> dict[str, Any]:
    """Arrays of an npz: n pictures with one bright object each, two pictures of every object, boxes and masks."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 40, (n, SIDE, SIDE, 3), dtype=np.uint8)
    objects = np.zeros((n, SIDE, SIDE), bool)
    rows, columns = np.mgrid[:SIDE, :SIDE] + 0.5
    labels = np.arange(n) // 2 % 2
    boxes = np.empty((n, 4), np.float32)
    for index in range(n):
        half = rng.integers(4, 9)
        x, y = rng.integers(half + 1, SIDE - half - 1, 2)
        square = (abs(columns - x) < half) & (abs(rows - y) < half)
        disc = (columns - x) ** 2 + (rows - y) ** 2 < half**2
        objects[index] = disc if labels[index] else square
        images[index][objects[index]] = rng.integers(190, 255)
        inside = np.nonzero(objects[index])
        boxes[index] = inside[1].min(), inside[0].min(), inside[1].max() + 1, inside[0].max() + 1
    content: dict[str, Any] = {"images": images, "labels": labels, "class_names": np.array(classes), "boxes": boxes}
    content |= {"group": np.array([f"{seed}-{index // 2}" for index in range(n)])}
    content |= {"id": np.array([f"{seed}-{index}" for index in range(n)])}
    content |= {"distance": 5.0 + 90.0 * np.arange(n) / n}
    return content | ({"masks": objects} if masks else {})


def save_squares(path: Path, **options: Any) -> str:
    """The pictures as a file; gives its name."""
    np.savez(path, **squares(**options))
    return str(path)


def save_finder(path: Path, *, unit: float = 1.0, with_variance: bool = True) -> str:
    """A localizer in ONNX: the centre of what is bright, and the side of a square of the same area; gives its name.

    Boxes are (cx, cy, w, h) as shares of the image times `unit`; then their variance. Images in 0-1.
    """
    middle = (np.arange(SIDE, dtype=np.float32) + 0.5) / SIDE
    known = {
        "dark": np.float32(0.5),
        "columns": middle.reshape(1, 1, SIDE),
        "rows": middle.reshape(1, SIDE, 1),
        "pixels": np.float32(SIDE * SIDE),
        "unit": np.float32(unit),
        "one": np.float32(1.0),
        "spread": np.full((1, 4), 0.0016 * unit**2, np.float32),
        "nothing": np.zeros((1, 1), np.float32),
        "sides": np.array([1, 2], np.int64),
        "last": np.array([1], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["image"], ["grey"], axes=[1], keepdims=0),
        node("Greater", ["grey", "dark"], ["is_bright"]),
        node("Cast", ["is_bright"], ["bright"], to=TensorProto.FLOAT),
        node("ReduceSum", ["bright", "sides"], ["counted"], keepdims=0),
        node("Max", ["counted", "one"], ["area"]),
        node("Mul", ["bright", "columns"], ["weighted_x"]),
        node("Mul", ["bright", "rows"], ["weighted_y"]),
        node("ReduceSum", ["weighted_x", "sides"], ["sum_x"], keepdims=0),
        node("ReduceSum", ["weighted_y", "sides"], ["sum_y"], keepdims=0),
        node("Div", ["sum_x", "area"], ["x"]),
        node("Div", ["sum_y", "area"], ["y"]),
        node("Div", ["area", "pixels"], ["share"]),
        node("Sqrt", ["share"], ["side"]),
        *(node("Unsqueeze", [name, "last"], [f"{name}_column"]) for name in ("x", "y", "side")),
        node("Concat", ["x_column", "y_column", "side_column", "side_column"], ["relative"], axis=1),
        node("Mul", ["relative", "unit"], ["box"]),
        node("Mul", ["box", "nothing"], ["zeros"]),
        node("Add", ["zeros", "spread"], ["variance"]),
        node("Concat", ["box", "variance"], ["both"], axis=1),
    ]
    output, width = ("both", 8) if with_variance else ("box", 4)
    graph = helper.make_graph(
        nodes if with_variance else nodes[:-3],
        "finder",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", width])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in known.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return str(path)
