"""Small valid files of every kind, to be spoiled by tests: three classes of coloured squares and a model for them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from onnx import ModelProto, TensorProto, helper, numpy_helper
from PIL import Image

SIDE = 8
CLASSES = ("red", "green", "blue")
PER_CLASS = 4


def squares() -> tuple[np.ndarray, np.ndarray]:
    """Images (12, 8, 8, 3) uint8, each brightest in the channel of its class, and their labels."""
    labels = np.repeat(np.arange(len(CLASSES)), PER_CLASS)
    images = np.random.default_rng(0).integers(0, 100, (len(labels), SIDE, SIDE, 3), dtype=np.uint8)
    images[np.arange(len(labels)), ..., labels] += 120
    return images, labels


def network(softmax: bool = True, bias: float = 0.0) -> ModelProto:
    """An ONNX graph whose logits are the mean brightness of the three channels."""
    weights = np.kron(np.eye(3), np.ones((SIDE * SIDE, 1))).astype(np.float32) * np.float32(10 / SIDE**2)
    nodes = [
        helper.make_node("Flatten", ["image"], ["pixels"]),
        helper.make_node("Gemm", ["pixels", "weights", "bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"]),
    ][: 3 if softmax else 2]
    graph = helper.make_graph(
        nodes,
        "brightest_channel",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.full(3, bias, np.float32), "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def picture(kind: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    """One square as the bytes of an image file."""
    buffer = io.BytesIO()
    Image.fromarray(squares()[0][0]).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def arrays(**changes: Any) -> dict[str, Any]:
    """What a valid npz file holds; a change to None takes an array out."""
    images, labels = squares()
    whole = {"images": images, "labels": labels, "class_names": np.array(CLASSES), **changes}
    return {name: array for name, array in whole.items() if array is not None}


def study(**changes: Any) -> dict[str, Any]:
    """A valid study as a plain dictionary."""
    return {
        "name": "small",
        "data": {"test": "data.npz"},
        "models": {"m": {"onnx": "model.onnx"}},
        "protocols": {"classification": {"shifts": ["grey"], "levels": [1, 5]}},
        "criteria": "criteria.yaml",
        **changes,
    }


CRITERIA = [{"id": "A", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.1}]
MANIFEST = "path,label\n" + "".join(f"signs/{name}/{k}.png,{name}\n" for name in CLASSES for k in range(PER_CLASS))
PREDICTIONS = "id,red,green,blue\n" + "".join(f"{row},0.5,0.25,0.25\n" for row in range(len(CLASSES) * PER_CLASS))


def fill(folder: Path) -> Path:
    """A folder with a model, data of every kind, a study and criteria, all valid and small."""
    images, labels = squares()
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / "signs" / CLASSES[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{row % PER_CLASS}.png")
    np.savez(folder / "data.npz", **arrays())
    (folder / "model.onnx").write_bytes(network().SerializeToString())
    (folder / "logits.onnx").write_bytes(network(softmax=False, bias=-1.0).SerializeToString())
    (folder / "manifest.csv").write_text(MANIFEST)
    (folder / "predictions.csv").write_text(PREDICTIONS)
    (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    (folder / "criteria.yaml").write_text(yaml.safe_dump(CRITERIA))
    (folder / "study.yaml").write_text(yaml.safe_dump(study(), sort_keys=False))
    return folder
