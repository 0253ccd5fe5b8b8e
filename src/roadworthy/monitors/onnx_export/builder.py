"""Adding nodes to an ONNX graph: constants from arrays, types that are kept track of, outputs that are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, DTypeLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest_array

Tensor = str
"""The name of a tensor in a graph."""
COMPARISONS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Not", "And", "Or"})
AXES_AS_INPUT = 18
"""From this opset on every reduction takes its axes as an input; ReduceSum does from opset 13 on."""
OWN = "monitor/"
"""Before the name of everything that is added to a graph."""


class NotExportable(InputError):
    """A monitor or a model has no form as an ONNX graph; the message says why."""


class GraphBuilder:
    """Nodes and constants of an ONNX graph, in the order in which they are computed.

    `add` takes tensors by their name, and arrays or numbers, which become constants: real ones of the type of the first
    real tensor among the inputs. The type of every tensor is known, so that `cast` adds a node only where it changes
    something.

    >>> graph = GraphBuilder(opset=17)
    >>> rows = graph.declare("rows", np.float32)
    >>> total = graph.reduce("ReduceSum", graph.add("Mul", rows, 2.0))
    >>> [node.op_type for node in graph.nodes], graph.dtype(total).name
    (['Mul', 'ReduceSum'], 'float32')
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._dtypes: dict[Tensor, np.dtype[Any]] = {}
        self._known_constants: dict[str, Tensor] = {}
        self._count = 0

    def declare(self, tensor: Tensor, dtype: DTypeLike) -> Tensor:
        """State the type of a tensor that other nodes make; returns its name."""
        self._dtypes[tensor] = np.dtype(dtype)
        return tensor

    def dtype(self, tensor: Tensor) -> np.dtype[Any]:
        """The type of a tensor that was declared or added."""
        return self._dtypes[tensor]

    def constant(self, values: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
        """A constant of any shape; the same values are stored once."""
        array = np.asarray(values, dtype, order="C")
        key = digest_array(array)
        if key not in self._known_constants:
            name = self._declared_name("constant", array.dtype)
            self.constants.append(onnx.numpy_helper.from_array(array, name))
            self._known_constants[key] = name
        return self._known_constants[key]

    def add(self, operator: str, *inputs: Tensor | ArrayLike, **attributes: Any) -> Tensor:
        """Add a node of one output and return the name of that.

        The output has the type of the first input: of the second for `Where`, bool for comparisons, int64 for `ArgMax`.
        """
        tensors = self._tensors(inputs)
        dtype = self.dtype(tensors[1 if operator == "Where" else 0])
        if operator in COMPARISONS:
            dtype = np.dtype(np.bool_)
        elif operator == "ArgMax":
            dtype = np.dtype(np.int64)
        output = self._declared_name(operator, dtype)
        self._append(operator, tensors, [output], attributes)
        return output

    def cast(self, tensor: Tensor, dtype: DTypeLike) -> Tensor:
        """The tensor in another type; itself where it is of that type."""
        wanted = np.dtype(dtype)
        if self.dtype(tensor) == wanted:
            return tensor
        output = self._declared_name("Cast", wanted)
        self._append("Cast", [tensor], [output], {"to": onnx.helper.np_dtype_to_tensor_dtype(wanted)})
        return output

    def reduce(self, operator: str, tensor: Tensor, axes: Sequence[int] = (1,), *, keep: bool = False) -> Tensor:
        """A reduction over axes, such as `ReduceMax`; `keep` leaves them there with length 1."""
        if operator == "ReduceSum" or self.opset >= AXES_AS_INPUT:
            return self.add(operator, tensor, np.array(axes, np.int64), keepdims=int(keep))
        return self.add(operator, tensor, axes=list(axes), keepdims=int(keep))

    def nearest(self, tensor: Tensor, count: int) -> Tensor:
        """The `count` smallest values (N, count) of each row of a tensor (N, n), ascending."""
        values, indices = self._declared_name("TopK", self.dtype(tensor)), self._declared_name("TopK", np.int64)
        wanted = self.constant(np.array([count], np.int64))
        self._append("TopK", [tensor, wanted], [values, indices], {"axis": 1, "largest": 0, "sorted": 1})
        return values

    def as_rows(self, tensor: Tensor, columns: int) -> Tensor:
        """The tensor as (N, columns)."""
        return self.add("Reshape", tensor, np.array([-1, columns], np.int64))

    def name_output(self, tensor: Tensor, name: str) -> None:
        """Give a tensor that was added here the name of an output of the graph."""
        self._append("Identity", [tensor], [name], {})
        self.declare(name, self.dtype(tensor))

    def _tensors(self, inputs: Sequence[Tensor | ArrayLike]) -> list[Tensor]:
        """The inputs by name; real numbers become constants of the type of the first real tensor, if there is one."""
        named = [self.dtype(value) for value in inputs if isinstance(value, str)]
        tensors: list[Tensor] = []
        for value in inputs:
            if isinstance(value, str):
                tensors.append(value)
            else:
                array: NDArray[Any] = np.asarray(value)
                kinds = [dtype for dtype in named if dtype.kind == "f"]
                tensors.append(self.constant(array, kinds[0] if kinds and array.dtype.kind == "f" else None))
        return tensors

    def _append(self, operator: str, inputs: list[Tensor], outputs: list[Tensor], attributes: dict[str, Any]) -> None:
        self.nodes.append(onnx.helper.make_node(operator, inputs, outputs, f"{OWN}node{len(self.nodes)}", **attributes))

    def _declared_name(self, operator: str, dtype: DTypeLike) -> Tensor:
        self._count += 1
        return self.declare(f"{OWN}{operator}_{self._count}", dtype)


def needed_nodes(nodes: Sequence[onnx.NodeProto], outputs: Sequence[Tensor]) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on, in the same order: a runtime would compute the others in vain."""
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(_read_names(node))
            kept.append(node)
    return kept[::-1]


def needed_constants(constants: Sequence[onnx.TensorProto], nodes: Sequence[onnx.NodeProto]) -> list[onnx.TensorProto]:
    """The constants that some node reads."""
    needed = {name for node in nodes for name in _read_names(node)}
    return [tensor for tensor in constants if tensor.name in needed]


def _read_names(node: onnx.NodeProto) -> Iterator[Tensor]:
    """The tensors that a node reads, those in the graphs inside it too."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from _read_names(inner)


def value_info(name: Tensor, dtype: DTypeLike, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    """What a graph says of one of its inputs or outputs; a side that is a name is free."""
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def input_sides(value: onnx.ValueInfoProto) -> list[int | str]:
    """The sides of an input, a name for those that are free."""
    sides = value.type.tensor_type.shape.dim
    names = ["batch", *(f"side {number}" for number in range(1, len(sides)))]
    return [
        side.dim_value if side.WhichOneof("value") == "dim_value" and side.dim_value > 0 else side.dim_param or name
        for side, name in zip(sides, names, strict=True)
    ]


def opset_of(graph: onnx.ModelProto) -> int:
    """The version of the standard operators that a graph is written in."""
    versions: Mapping[str, int] = {entry.domain: entry.version for entry in graph.opset_import}
    return versions.get("", versions.get("ai.onnx", 1))
