"""A model as an ONNX graph whose logits, probabilities and features a monitor's own nodes can read."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, first_line, foreign_code
from roadworthy.core.roles import Model
from roadworthy.core.types import Images
from roadworthy.models.classes import AlignedModel
from roadworthy.models.head import Elsewhere, Trainable, penultimate
from roadworthy.models.networks import onnx_bytes
from roadworthy.models.onnx import OnnxModel, OnnxParts, cpu_session
from roadworthy.models.outputs import probe_images
from roadworthy.models.signals import PENULTIMATE
from roadworthy.models.torch import INPUT_OF, TorchModel
from roadworthy.models.torch_tensors import class_scores, import_torch
from roadworthy.monitors.onnx_export.builder import (
    GraphBuilder,
    NotExportable,
    Tensor,
    input_sides,
    needed_constants,
    needed_nodes,
    opset_of,
    value_info,
)
from roadworthy.monitors.onnx_export.preprocessing import add_preprocessing
from roadworthy.uncertainty.temperature import FLOOR, Temperature

LEAST_OPSET = 13
LEAST_IR = 4
"""The first version of the format in which constants need not be inputs."""
NETWORK = "model/"
"""Before the name of everything that is the network's own."""
PIXELS = "images"
"""The input of a graph that holds the preprocessing."""


@dataclass(frozen=True)
class Network:
    """A network as an ONNX graph: `layers` are the tensors of those layers that can be read, by their name."""

    adapter: OnnxModel | TorchModel
    parts: OnnxParts
    layers: Mapping[str, Tensor]

    def tensor(self, layer: str) -> Tensor:
        """The tensor of a layer."""
        if isinstance(self.adapter, OnnxModel):
            return self.adapter.tensor_of(layer)
        if layer not in self.layers:
            raise InputError(f"layer {layer!r} of model {self.adapter.name} was not written: the fit does not read it")
        return self.layers[layer]


class ModelGraph(GraphBuilder):
    """The graph of a model, to which a monitor adds nodes that read its signals.

    `probabilities` (N, K), `logits` (N, K) and `features` (N, D) are float32, and what `Signals` gives in Python:
    columns in the order of the classes that the model answers, maps averaged over their positions.
    """

    def __init__(self, model: Model, layers: Sequence[str], images: Images, *, include_preprocessing: bool) -> None:
        network = _network_of(model, layers, images)
        self.model, self.network, self.images = model, network, images
        self.includes_preprocessing = include_preprocessing
        parts = _renamed(network.parts, rename_input=include_preprocessing)
        super().__init__(opset_of(parts.graph))
        self._proto, self._answers, self._probed = parts.graph, (parts.answer, parts.logits), parts.input
        self.input = _input_of(parts)
        if include_preprocessing:
            self.input = add_preprocessing(self, network.adapter.preprocess, images.shape[1:3], self.input, PIXELS)
        self.nodes.extend(parts.graph.graph.node)
        self.constants.extend(parts.graph.graph.initializer)
        self._features: dict[str, Tensor] = {}
        self.probabilities, self._logits = self._answer(model)

    @property
    def logits(self) -> Tensor:
        """The logits (N, K); an `InputError` where the model gives none."""
        if self._logits is None:
            raise InputError(f"model {self.model.name} gives no logits, which the monitor needs")
        return self._logits

    def features(self, layer: str | None = None) -> Tensor:
        """Features (N, D) of a layer, by default what goes into the last linear one."""
        layer = penultimate(self.model) if layer in (None, PENULTIMATE) else layer
        if layer not in self._features:
            tensor, values = self._declared(NETWORK + self.network.tensor(layer))
            columns = int(np.prod(values.shape[1:]))
            if values.ndim == 4:
                tensor, columns = self.reduce("ReduceMean", tensor, (2, 3)), values.shape[1]
            self._features[layer] = tensor if values.ndim in (2, 4) else self.as_rows(tensor, columns)
        return self._features[layer]

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted class of each image, (N,) int64: the first one of the largest probability."""
        return self.add("ArgMax", self.probabilities, axis=1, keepdims=0)

    def softmax(self, logits: Tensor) -> Tensor:
        """Probabilities of logits (N, K), summed in float64 as everywhere in the project."""
        return self.cast(self.add("Softmax", self.cast(logits, np.float64), axis=1), np.float32)

    def write(self, outputs: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
        """The whole graph with these outputs, by name, and their shape for one image.

        All that they do not depend on is left out.
        """
        for name, tensor in outputs.items():
            self.name_output(tensor, name)
        nodes = needed_nodes(self.nodes, [*outputs])
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        del proto.graph.node[:], proto.graph.initializer[:], proto.graph.input[:], proto.graph.output[:]
        del proto.graph.value_info[:], proto.graph.quantization_annotation[:], proto.metadata_props[:]
        proto.graph.node.extend(nodes)
        proto.graph.initializer.extend(needed_constants(self.constants, nodes))
        proto.graph.input.append(self.input)
        batch = input_sides(self.input)[0]
        proto.graph.output.extend(value_info(name, self.dtype(name), (batch, *shapes[name])) for name in outputs)
        proto.ir_version = max(proto.ir_version, LEAST_IR)
        proto.producer_name, proto.graph.name, proto.doc_string = "roadworthy", "guarded_model", ""
        return proto

    def _answer(self, model: Model) -> tuple[Tensor, Tensor | None]:
        """The tensors of a model's probabilities and logits, through all that wraps its network."""
        if isinstance(model, AlignedModel):
            probabilities, logits = self._answer(model.model)
            return self._ordered(probabilities, model.order), logits and self._ordered(logits, model.order)
        if isinstance(model, Temperature):
            probabilities, logits = self._answer(model.model)
            log_scores = self.cast(logits or probabilities, np.float64)
            if logits is None:
                log_scores = self.add("Log", self.add("Max", log_scores, FLOOR))
            scaled = self.cast(self.add("Div", log_scores, model.temperature), np.float32)
            return self.softmax(scaled), logits and scaled
        if isinstance(model, Trainable):
            return self._answer(model.opened())
        answer, logits = self._answers
        rows = self._class_rows(answer)
        if self.network.adapter.outputs == "logits":
            return self.softmax(rows), rows
        return rows, logits and self._class_rows(logits)

    def _ordered(self, tensor: Tensor, order: NDArray[Any]) -> Tensor:
        return self.add("Gather", tensor, np.asarray(order, np.int64), axis=1)

    def _class_rows(self, tensor: Tensor) -> Tensor:
        name, values = self._declared(tensor)
        return name if values.ndim == 2 else self.as_rows(name, self.network.adapter.num_classes)

    def _declared(self, tensor: Tensor) -> tuple[Tensor, NDArray[Any]]:
        """A tensor of the network as float32, and its values for the images, which show its shape."""
        probe = onnx.ModelProto()
        probe.CopyFrom(self._proto)
        del probe.graph.output[:]
        probe.graph.output.append(onnx.ValueInfoProto(name=tensor))
        adapter = self.network.adapter
        feed = {self._probed: adapter.preprocess(self.images[: adapter.fixed_batch])}
        values = np.asarray(cpu_session(probe.SerializeToString()).run(None, feed)[0])
        return self.cast(self.declare(tensor, values.dtype), np.float32), values


def adapter_of(model: Model) -> OnnxModel | TorchModel:
    """The network behind a model; an `InputError` where there is none that ONNX can hold."""
    if isinstance(model, AlignedModel | Temperature):
        return adapter_of(model.model)
    if isinstance(model, Trainable):
        return adapter_of(model.opened())
    if isinstance(model, Elsewhere):
        return adapter_of(model.in_process())
    if isinstance(model, OnnxModel | TorchModel):
        if not model.preprocess.keeps_whole_image:
            raise NotExportable(
                f"model {model.name} takes a part of each image (input: {model.preprocess}), which its ONNX graph "
                "would not: give its `size=`, so that images are brought to it as a whole"
            )
        return model
    raise NotExportable(
        f"model {model.name} cannot be written as one ONNX graph: that takes an ONNX file, a torch module or a "
        "reference network of one pass"
    )


def _network_of(model: Model, layers: Sequence[str], images: Images) -> Network:
    """The network behind a model as a graph."""
    adapter = adapter_of(model)
    if isinstance(adapter, TorchModel):
        return _traced(adapter, layers, images)
    return Network(adapter, _raised(adapter.parts(), adapter.name), {})


def _raised(parts: OnnxParts, name: str) -> OnnxParts:
    """The graph in an opset that the nodes of monitors can be written in."""
    if opset_of(parts.graph) >= LEAST_OPSET:
        return parts
    try:
        graph = onnx.version_converter.convert_version(parts.graph, LEAST_OPSET)
    except Exception as error:
        raise InputError(
            f"model {name} is written in opset {opset_of(parts.graph)} and cannot be brought to {LEAST_OPSET} "
            f"({first_line(error)}): export it anew with opset {LEAST_OPSET} or later"
        ) from None
    return OnnxParts(graph, parts.input, parts.answer, parts.logits)


def _traced(model: TorchModel, layers: Sequence[str], images: Images) -> Network:
    """A torch module as a graph whose outputs are the answer and the layers."""
    torch = import_torch()
    tensors = {layer: f"layer {number}" for number, layer in enumerate(layers)}
    batch = model.fixed_batch
    example = torch.from_numpy(model.preprocess(np.repeat(images[:1], batch or 2, axis=0)))
    names = ["answer", *tensors.values()]
    with foreign_code(
        lambda error: NotExportable(f"torch cannot write model {model.name} as ONNX: {first_line(error)}")
    ):
        network = _tapped(copy.deepcopy(model.module).cpu(), layers)
        content = onnx_bytes(network, {"image": example}, names, ["image", *names] if batch else ())
    return Network(model, OnnxParts(onnx.load_from_string(content), "image", "answer", None), tensors)


def _tapped(module: Any, layers: Sequence[str]) -> Any:
    """The module as one that answers its class scores and what its layers give (or take, `NAME:input`)."""
    torch = import_torch()
    modules = dict(module.named_modules())

    class Tapped(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, image: Any) -> Any:
            activations: dict[str, Any] = {}

            def keep(layer: str, inputs: Any, output: Any) -> None:
                value = inputs if layer.endswith(INPUT_OF) else output
                activations[layer] = value[0] if isinstance(value, list | tuple) else value

            handles = [
                modules[layer.removesuffix(INPUT_OF)].register_forward_hook(
                    lambda _, inputs, output, layer=layer: keep(layer, inputs, output)
                )
                for layer in layers
            ]
            weights = (weight.dtype for weight in module.parameters() if weight.is_floating_point())
            scores = class_scores(module(image.to(next(weights, torch.float32))))
            for handle in handles:
                handle.remove()
            return scores, *(activations[layer] for layer in layers)

    return Tapped()


def _renamed(parts: OnnxParts, *, rename_input: bool) -> OnnxParts:
    """The same graph with the prefix before all names of its own, so that they cannot be those of other tensors."""
    graph = onnx.ModelProto()
    graph.CopyFrom(parts.graph)
    constants = {tensor.name for tensor in graph.graph.initializer}
    inputs = [value for value in graph.graph.input if value.name not in constants]
    del graph.graph.input[:]
    graph.graph.input.extend(inputs)
    graph = onnx.compose.add_prefix(graph, NETWORK, rename_inputs=rename_input, rename_functions=False)
    name = NETWORK + parts.input if rename_input else parts.input
    return OnnxParts(graph, name, NETWORK + parts.answer, None if parts.logits is None else NETWORK + parts.logits)


def _input_of(parts: OnnxParts) -> onnx.ValueInfoProto:
    inputs: dict[str, onnx.ValueInfoProto] = {value.name: value for value in parts.graph.graph.input}
    return inputs[parts.input]


def example_image(size: tuple[int, int], channels: int) -> Images:
    """One image (1, H, W, C) that can be made again anywhere: its values are (7 row + 13 column + 31 channel) mod 256.

    >>> example_image((2, 2), 1)[0, :, :, 0].tolist()
    [[0, 13], [7, 20]]
    """
    row, column, channel = np.ogrid[: size[0], : size[1], :channels]
    return np.asarray((7 * row + 13 * column + 31 * channel) % 256, np.uint8)[None]


def check_images(size: tuple[int, int], channels: int, count: int) -> Images:
    """The example and probe images behind it, `count` in all: (count, H, W, C)."""
    return np.concatenate([example_image(size, channels), probe_images(size, channels, count)])[:count]
