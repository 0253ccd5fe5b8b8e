"""What an integrator must know of a written graph, as plain values for a JSON file; a test vector among them."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from roadworthy.core.types import Images
from roadworthy.models.onnx import cpu_session
from roadworthy.models.preprocess import Preprocess
from roadworthy.monitors.fitted import FittedMonitor
from roadworthy.monitors.id_threshold import IdThreshold
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.onnx_export.agreement import SAME
from roadworthy.monitors.onnx_export.builder import input_sides, opset_of
from roadworthy.monitors.onnx_export.network import ModelGraph, example_image

FORMAT = 1
PROBABILITIES, SCORE, ACCEPT = "probabilities", "score", "accept"
MEANINGS = {
    PROBABILITIES: "the probability of each class, in the order of `classes`",
    SCORE: "higher is more in-distribution",
    ACCEPT: "true where the score is at least the threshold; false: reject the image",
}
POSITIVE = (
    "Rejected is the positive class of a detection of images outside the domain: accept = false says that the monitor "
    "takes the image for out-of-distribution."
)
NOTES = (
    "An image whose score is NaN is rejected.",
    "Scores computed in another batch size, by another runtime or on other hardware differ in their last digits; a "
    "decision can differ where a score lies that near to its threshold.",
)
EXAMPLE = "The value at (row, column, channel) is (7 row + 13 column + 31 channel) mod 256; channels are R, G, B."


@dataclass(frozen=True)
class WrittenGraph:
    """A graph as the bytes of a file, with what it was made from; `run` answers as ONNX Runtime does."""

    content: bytes
    graph: ModelGraph

    @cached_property
    def _session(self) -> Any:
        return cpu_session(self.content)

    @property
    def includes_preprocessing(self) -> bool:
        """Whether the input is pixels and not what the network takes."""
        return self.graph.includes_preprocessing

    @property
    def preprocess(self) -> Preprocess:
        """From images to the network's own input."""
        return self.graph.network.adapter.preprocess

    def at_size(self, images: Images) -> Images:
        """Images (N, H, W, C) of the size and with the channels that the network takes."""
        wanted = self.graph.images.shape
        return Preprocess("0-255", "nhwc", "rgb", wanted[1:3], wanted[3], "uint8")(images)

    def feed(self, images: Images) -> NDArray[Any]:
        """What the graph is given for images (N, H, W, C) at the model's size."""
        return images if self.includes_preprocessing else self.preprocess(images)

    def run(self, images: Images) -> dict[str, NDArray[Any]]:
        """The outputs by name, each (N, ...), in batches of the size that the graph insists on."""
        names = [PROBABILITIES, SCORE, ACCEPT]
        step = self.graph.network.adapter.fixed_batch or len(images)
        parts = []
        for start in range(0, len(images), step):
            rows = np.minimum(np.arange(start, start + step), len(images) - 1)
            parts.append(self._session.run(names, {self.graph.input.name: self.feed(images[rows])}))
        return {name: np.concatenate([part[at] for part in parts])[: len(images)] for at, name in enumerate(names)}


def described_graph(written: WrittenGraph, proto: onnx.ModelProto, class_names: Sequence[str] | None) -> dict[str, Any]:
    """The input, the outputs, the classes, the model, the test vector and the versions of a written graph."""
    model = written.graph.model
    return {
        "format": FORMAT,
        "sha256": hashlib.sha256(written.content).hexdigest(),
        "input": _described_input(written),
        "outputs": {
            value.name: _described_value(value) | {"meaning": MEANINGS[value.name]} for value in proto.graph.output
        },
        "classes": None if class_names is None else [*class_names],
        "positive": POSITIVE,
        "notes": [*NOTES],
        "model": {"name": model.name, "fingerprint": model.fingerprint()},
        "test_vector": _test_vector(written),
        "versions": {
            "roadworthy": version("roadworthy"),
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
            "python": platform.python_version(),
            "opset": opset_of(proto),
            "ir": proto.ir_version,
        },
    }


def described_threshold(threshold: IdThreshold, compared: NDArray[Any]) -> dict[str, Any]:
    """The threshold, its rule and what it promises; `compared` is what the file holds, in the type of the score."""
    kept: Any = [_plain(cut) for cut in np.ravel(compared)] if compared.ndim else _plain(compared)
    return {
        **threshold.record(),
        "compared": kept,
        "compared_type": compared.dtype.name,
        "by_predicted_class": bool(compared.ndim),
        "sentence": f"The monitor {threshold.sentence()}.",
    }


def described_monitor(fitted: FittedMonitor, rule: Learned) -> dict[str, Any]:
    """The monitor, its settings, the hash of all that decides its scores, and its notes."""
    monitor = fitted.monitor
    return {
        "name": monitor.name,
        "settings": monitor.parameters(),
        "fingerprint": fitted.fingerprint(),
        "notes": [*monitor.notes(fitted.state, rule)],
        "differs_from_paper": monitor.differs_from_paper,
    }


def _described_input(written: WrittenGraph) -> dict[str, Any]:
    preprocess, value = written.preprocess, written.graph.input
    height, width = written.graph.images.shape[1:3]
    channels = preprocess.channels or 3
    colour = "grey" if channels == 1 else "rgb" if written.includes_preprocessing else preprocess.colour
    mean, std = preprocess.settings()["mean"], preprocess.settings()["std"]
    if written.includes_preprocessing or preprocess.dtype == "uint8":
        scale = {"range": "0 to 255", "formula": "pixels as they are"}
    else:
        scale = {"range": preprocess.range, "formula": "(pixel / 255 - mean) / std", "mean_rgb": mean, "std_rgb": std}
    return {
        "name": value.name,
        **_described_value(value),
        "layout": "nhwc" if written.includes_preprocessing else preprocess.layout,
        "height": height,
        "width": width,
        "channels": channels,
        "colour": colour,
        **scale,
        "includes_preprocessing": written.includes_preprocessing,
    }


def _described_value(value: onnx.ValueInfoProto) -> dict[str, Any]:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return {"type": str(dtype), "shape": input_sides(value)}


def _test_vector(written: WrittenGraph) -> dict[str, Any]:
    """One image that can be made anywhere, the hash of the tensor it becomes, and what the file answers."""
    images = example_image(written.graph.images.shape[1:3], written.graph.images.shape[3])
    tensor, answers = written.feed(images), written.run(images)
    best = int(answers[PROBABILITIES][0].argmax())
    return {
        "image": EXAMPLE,
        "shape": [*tensor.shape],
        "type": tensor.dtype.name,
        "sha256": hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest(),
        "hashed": "the bytes of the input tensor for this one image, little-endian, last side fastest",
        "class": best,
        "probability": _plain(answers[PROBABILITIES][0, best]),
        "score": _plain(answers[SCORE][0]),
        "accept": bool(answers[ACCEPT][0]),
        "tolerance": f"{SAME:g} of the size of the score",
    }


def _plain(value: Any) -> float | str:
    """A number that JSON can hold; infinite ones as text."""
    number = float(value)
    return number if np.isfinite(number) else str(number)
