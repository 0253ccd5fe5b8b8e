"""ONNX models: run by ONNX Runtime, with layout, size, batch, logits and features read from the graph."""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, first_line
from roadworthy.core.fetching import fetch_beside
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.types import Batch, Prediction
from roadworthy.core.validation import MOST_THREADS, check_whole, find_mode, parse_size
from roadworthy.models.base import Adapter, pick_device, probe
from roadworthy.models.boxes import DeclaredBoxes, declared_boxes, output_rows
from roadworthy.models.classes import check_class_names, read_class_names
from roadworthy.models.head import Head
from roadworthy.models.outputs import OUTPUTS, as_rows, decide, refuse_detector, same_scores, softmax
from roadworthy.models.preprocess import Preprocess, parse_choice, read_shape

PASSES_ON = frozenset(
    {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout", "QuantizeLinear", "DequantizeLinear"}
)
SOFTMAX = ("Softmax", "QLinearSoftmax")
ONE_BY_ONE = "it is quantised by the values of a whole batch: images are shown one at a time, each for itself"
BY_OTHERS = (
    "it is quantised by the values of a whole batch of fixed size: an answer depends on the other images of the batch"
)
ROUNDED = "its probabilities are rounded to whole numbers of few bits inside the graph: rows are divided by their sum"
CUDA = "CUDAExecutionProvider"
NO_CUDA = "ONNX Runtime here: install onnxruntime-gpu"
LINEAR = frozenset({"Gemm", "MatMul", "Conv"})
SAME_PROBABILITIES = 1e-3
MOST_NODES = 200_000
"""Nodes of a graph at most, those of inner graphs not counted."""
PROBE_SECONDS = 120.0
"""How long a model may take for the answer to a few probe images."""

_TYPES = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.UINT8: "uint8",
}


@dataclass(frozen=True)
class OnnxParts:
    """A whole ONNX graph: its one input, the tensor that answers, and the logits where they are another tensor."""

    graph: onnx.ModelProto
    input: str
    answer: str
    logits: str | None


class OnnxModel(Adapter):
    """A classifier or localizer in an ONNX file.

    range    `auto` is `0-255` for a uint8 input, else `0-1`; see `Preprocess` for the other forms
    layout   `auto` reads it from the input shape;  size only where the graph leaves it open
    outputs  `auto`: by the last node (softmax: probabilities; a linear layer: logits), else by whether the answers to
             probe images sum to 1
    classes  names in the model's order: a sequence or a text file;  device `auto` is cuda where available
    boxes    for a model that says where the object is: the form of its boxes, such as `centre relative` (`BoxForm`)
    box_output    the output (or several) that holds the boxes, where name and shape do not tell;  class_output that
                  of the class scores, `none` where there is none

    Capabilities: `logits` where the model answers logits or its last node is a softmax; `features` at any node.
    """

    concurrent = True

    def __init__(
        self,
        path: str | Path,
        *,
        range: str = "auto",
        layout: str = "auto",
        outputs: str = "auto",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        classes: str | Path | Sequence[str] | None = None,
        boxes: str | None = None,
        box_output: str | Sequence[str] | None = None,
        class_output: str | None = None,
        device: str = "auto",
        threads: int = 1,
        name: str | None = None,
        base: Path = Path(),
    ) -> None:
        self.path = base / path
        self.name = name or self.path.stem
        self._graph = read_graph(self.path)
        self._hashes = [digest_file(file) for file in (self.path, *external_files(self._graph, self.path))]
        parse_choice("outputs", outputs, OUTPUTS)
        check_whole("the threads of an ONNX model", threads, 1, MOST_THREADS)
        self.threads = threads
        self.device = pick_device(device, CUDA in onnxruntime.get_available_providers(), NO_CUDA)
        self._input, dims, dtype = image_input(self._graph, self.path)
        layout, channels, image_size, self.fixed_batch = read_shape(dims, layout, parse_size(size), str(self.path))
        self._one_by_one = self.fixed_batch is None and _scales_by_batch(self._graph)
        self.fixed_batch = 1 if self._one_by_one else self.fixed_batch
        if range == "auto":
            range = "0-255" if dtype == "uint8" else "0-1"
        self.preprocess = Preprocess(range, layout, colour, image_size, channels, dtype)
        self.input_size = image_size
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, ...], Any] = {}
        self._watched = threading.local()
        self._settle(outputs, declared_boxes(boxes, box_output, class_output))
        self.class_names = check_class_names(read_class_names(classes, base), self.num_classes, str(self.path))

    def _settle(self, declared: str, boxes: DeclaredBoxes | None) -> None:
        """Find the output that answers, whether it is logits, and where the logits are if it is not; and the boxes."""
        outputs = [output.name for output in self._graph.graph.output]
        tails = {output: _tail(self._graph, output) for output in outputs}
        last = {output: node for output, node in tails.items() if node and node.op_type == "Softmax" and node.input}
        inner = {output: node.input[0] for output, node in last.items()}
        fetched = list(dict.fromkeys([*outputs, *inner.values()]))
        session = self._session(fetched)
        inner_rows: list[NDArray[Any] | None] = []

        def run(images: NDArray[np.uint8], channels: int) -> NDArray[Any] | None:
            values = dict(
                zip(fetched, run_in_time(session, fetched, {self._input: self.preprocess(images)}), strict=True)
            )
            answers = {name: values[name] for name in outputs}
            refuse_detector(answers, len(images), str(self.path))
            if boxes is None:
                rows = self._class_rows(values, outputs, len(images))
            else:
                rows = self._box_rows(answers, boxes, len(images))
            if rows is not None and self._output in inner:
                inner_rows.append(as_rows(np.asarray(values[inner[self._output]]), len(images)))
            return rows

        softmaxes = {output for output, node in tails.items() if node and node.op_type in SOFTMAX}
        self._rounds = {output for output in softmaxes if "DequantizeLinear" in _passed(self._graph, output)[1]}
        size, channels, batch = self.preprocess.size, (self.preprocess.channels,), self.fixed_batch
        rows, self.fixed_batch = probe(run, size=size, channels=channels, batch=batch, what=str(self.path))
        if self.reading is None:
            self.num_classes = rows.shape[1]
            stated = "ends in a softmax, so that its answers should be" if self._output in softmaxes else ""
            kind = self._declared(declared, tails[self._output])
            self.outputs = decide(kind, rows, str(self.path), stated)
            self.capabilities = frozenset({"probabilities", *(["logits"] if self.outputs == "logits" else [])})
        else:
            by_graph = declared if self.reading.classes is None else self._declared(declared, tails[self._output])
            self.settle_reading(rows, by_graph, str(self.path))
            rows = rows[:, self.reading.form.columns :]
        logits = [part for part in inner_rows if part is not None]
        is_complete = self.num_classes > 0 and sum(map(len, logits)) == len(rows)
        is_softmax = is_complete and same_scores(softmax(np.concatenate(logits)), rows, SAME_PROBABILITIES)
        self._logits = inner[self._output] if is_softmax else None
        answering = [self._output] if self.reading is None else [*self.reading.names]
        used_outputs = answering if self._logits is None else [*answering, self._logits]
        self._used_outputs = used_outputs
        self._main = session if used_outputs == fetched else self._session(used_outputs)
        self.capabilities |= {"features", *(["logits"] if self._logits is not None else [])}
        description = self.outputs if self._logits is None else f"{self.outputs} (logits at {self._logits!r})"
        self.details = {"kind": "onnx", "device": self.device, "outputs": description}
        ignored = ", ".join(repr(output) for output in outputs if output not in answering)
        used = ", ".join(map(repr, answering))
        self.notes = (f"uses the output {used} and ignores {ignored}",) if ignored else ()
        self.notes += (ROUNDED,) if self._output in self._rounds and self.reading is None else ()
        self.notes += (ONE_BY_ONE,) if self._one_by_one else ()
        together = not self._one_by_one and (self.fixed_batch or 1) > 1 and _scales_by_batch(self._graph)
        self.notes += (BY_OTHERS,) if together else ()

    def _class_rows(self, values: Mapping[str, Any], outputs: Sequence[str], count: int) -> NDArray[Any] | None:
        """The class scores (N, K) of a classifier: the first output that can be; None where none can."""
        for output in outputs:
            rows = as_rows(np.asarray(values[output]), count)
            if rows is not None and rows.shape[1] > 1 and np.issubdtype(rows.dtype, np.floating):
                self._output = output
                return _divided_by_sum(rows) if output in self._rounds else rows
        for output in outputs:
            rows = as_rows(np.asarray(values[output]), count)
            if rows is not None and rows.shape[1] > 1 and rows.dtype.kind in "iu":
                raise InputError(
                    f"{self.path} answers {rows.dtype}: export it with float outputs (DequantizeLinear at the end)"
                )
        return None

    def _box_rows(self, values: Mapping[str, Any], boxes: DeclaredBoxes, count: int) -> NDArray[Any] | None:
        """The boxes and class scores (N, 4 or 8 + K) of a localizer; None where no output has a row per image."""
        rows = output_rows(values, count)
        if not rows:
            return None
        self.reading = boxes.reading(rows, str(self.path))
        self._output = self.reading.classes or self.reading.boxes[0]
        return self.reading.joined(rows)

    def _declared(self, declared: str, tail: onnx.NodeProto | None) -> str:
        """What the graph itself says of the outputs, against what the user declared."""
        last = "" if tail is None else tail.op_type
        graph_kind = {**dict.fromkeys(SOFTMAX, "probabilities"), "LogSoftmax": "logits"}.get(last)
        if declared == "auto":
            return graph_kind or ("logits" if last in LINEAR else "auto")
        if graph_kind not in (None, declared):
            raise InputError(f"{self.path} ends in {last}: declare `outputs={graph_kind!r}` instead of {declared}")
        return declared

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The answer to a tensor in the model's layout."""
        values = self._values(tensor)
        logits = None if self._logits is None else as_rows(np.asarray(values[-1]), len(tensor))
        if self.reading is None:
            rows = as_rows(np.asarray(values[0]), len(tensor))
            rows = _divided_by_sum(rows) if rows is not None and self._output in self._rounds else rows
        else:
            named = output_rows(dict(zip(self.reading.names, values, strict=False)), len(tensor))
            rows = self.reading.joined(named) if len(named) == len(self.reading.names) else None
        if rows is None:
            raise InputError(f"model {self.name} answered {np.shape(values[0])} to {len(tensor)} images")
        return self.prediction_of(rows, self.tensor_size(tensor), logits)

    def _values(self, tensor: NDArray[Any]) -> list[Any]:
        """The outputs that make an answer; those that are watched are noted, from the same pass."""
        watched: list[tuple[str, list[NDArray[np.float32]]]] = getattr(self._watched, "outputs", [])
        if not watched:
            return list(self._main.run(None, {self._input: tensor}))
        outputs = list(dict.fromkeys([*self._used_outputs, *(output for output, _ in watched)]))
        values = self._session_of(outputs).run(outputs, {self._input: tensor})
        by_output = dict(zip(outputs, values, strict=True))
        for output, seen in watched:
            seen.append(np.asarray(by_output[output], np.float32))
        return [by_output[output] for output in self._used_outputs]

    @property
    def is_watchable(self) -> bool:
        """True: an output can be added to the graph for every layer."""
        return True

    @property
    def watched_bits_are_its_own(self) -> bool:
        """False: with further outputs ONNX Runtime joins other nodes, which can change the last bits."""
        return False

    @contextmanager
    def watch(self, layer: str) -> Iterator[list[NDArray[np.float32]]]:
        """A list that holds what `features` gives of a layer but for rounding, of every pass of this thread inside."""
        seen: list[NDArray[np.float32]] = []
        outer = getattr(self._watched, "outputs", [])
        self._watched.outputs = [*outer, (self.tensor_of(layer), seen)]
        try:
            yield seen
        finally:
            self._watched.outputs = outer

    def layers(self) -> tuple[str, ...]:
        """What `features` can be asked for, in the order of the graph: the first output of every node."""
        return tuple(node.output[0] for node in self._graph.graph.node if node.op_type != "Constant")

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """Activations (N, ...) of a node, named by its output or by its own name."""
        output = self.tensor_of(layer)
        session = self._session_of([output])
        feed = {self._input: self.preprocess(batch.images)}
        with self.guarded(batch):
            (value,) = session.run([output], feed)
        return np.asarray(value, np.float32)

    def head(self) -> Head:
        """The Gemm, or MatMul with or without Add, that makes the logits."""
        constants = _constants(self._graph)

        def value(name: str) -> NDArray[Any]:
            return onnx.numpy_helper.to_array(constants[name], base_dir=str(self.path.resolve().parent))

        tail = _tail(self._graph, self._logits or self._output) if "logits" in self.capabilities else None
        bias: NDArray[Any] = np.zeros(1)
        if tail is not None and tail.op_type == "Add" and sum(name in constants for name in tail.input) == 1:
            inner, added = sorted(tail.input, key=constants.__contains__)
            bias, tail = value(added), _tail(self._graph, inner)
        is_linear = tail is not None and tail.op_type in ("Gemm", "MatMul")
        if tail is not None and is_linear and all(name in constants for name in tail.input[1:]):
            options = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in tail.attribute}
            weights = value(tail.input[1]) * options.get("alpha", 1.0)
            weights = weights if options.get("transB") else weights.T
            bias = value(tail.input[2]) * options.get("beta", 1.0) if len(tail.input) > 2 else bias
            if len(weights) == self.num_classes and not options.get("transA") and tail.input[0] in self.layers():
                bias = np.broadcast_to(np.ravel(bias), self.num_classes)
                return Head(tail.input[0], np.array(weights, np.float32, order="C"), np.array(bias, np.float32))
        raise InputError(f"model {self.name} does not end in a linear layer that makes logits: name a layer instead")

    def parts(self) -> OnnxParts:
        """The graph, with weights that lie beside the file inside it, and the names of what goes in and comes out."""
        graph = onnx.ModelProto()
        graph.CopyFrom(self._graph)
        onnx.load_external_data_for_model(graph, str(self.path.resolve().parent))
        return OnnxParts(graph, self._input, self._output, self._logits)

    def fingerprint(self) -> str:
        """Hash of the file, its external data and every setting in use; names, threads and versions do not count."""
        settings = {**self.preprocess.settings(), "outputs": self.outputs, "device": self.device}
        return digest({"kind": "onnx", "files": self._hashes, "settings": {**settings, **self.reading_settings()}})

    def tensor_of(self, layer: str) -> str:
        """The tensor of the graph that `features` gives for a layer, named by its node or by itself."""
        for node in self._graph.graph.node:
            if layer in node.output or (layer and layer == node.name):
                return layer if layer in node.output else str(node.output[0])
        known = self.layers()
        raise InputError(
            f"model {self.name} has no layer {layer!r}: it has {len(known)}, from {known[0]!r} to {known[-1]!r}; "
            "layers() lists them"
        )

    def _session_of(self, outputs: list[str]) -> Any:
        """A session that gives these outputs, made once; one of fewer outputs goes, since each holds all weights."""
        asked = tuple(outputs)
        with self._lock:
            if asked not in self._sessions:
                self._sessions = {known: own for known, own in self._sessions.items() if not {*known} < {*asked}}
                self._sessions[asked] = self._session(outputs)
            return self._sessions[asked]

    def _session(self, outputs: list[str]) -> Any:
        """A session that gives these outputs, whichever the graph declares."""
        model = onnx.ModelProto()
        model.CopyFrom(self._graph)
        declared = {output.name: output for output in self._graph.graph.output}
        del model.graph.output[:]
        model.graph.output.extend(declared.get(name) or onnx.ValueInfoProto(name=name) for name in outputs)
        options = session_options(self.threads)
        folder = str(self.path.resolve().parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        providers = {"cuda": [CUDA, "CPUExecutionProvider"], "cpu": ["CPUExecutionProvider"]}
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers[self.device])
        except Exception as error:
            raise InputError(f"ONNX Runtime cannot load {self.path}: {_cause(error)}") from None
        if self.device == "cuda" and CUDA not in session.get_providers():
            raise InputError("CUDA is there but ONNX Runtime cannot use it: check the driver, or use `device='cpu'`")
        return session


def run_in_time(session: Any, outputs: list[str], inputs: dict[str, Any], seconds: float | None = None) -> list[Any]:
    """What a session answers; an `InputError` where it takes too long, since a loop in a graph need not end."""
    options = onnxruntime.RunOptions()
    limit = PROBE_SECONDS if seconds is None else seconds
    late = threading.Event()

    def stop() -> None:
        late.set()
        options.terminate = True

    timer = threading.Timer(limit, stop)
    timer.daemon = True
    timer.start()
    try:
        answers: list[Any] = session.run(outputs, inputs, options)
        return answers
    except Exception:
        if late.is_set():
            raise InputError(
                f"the ONNX graph gave no answer to probe images in {limit:g} s: it may have no end"
            ) from None
        raise
    finally:
        timer.cancel()


def session_options(threads: int = 1) -> Any:
    """How ONNX Runtime is run everywhere: fixed threads, one node after another, the same bits each time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = 4
    return options


def cpu_session(graph: bytes | str) -> Any:
    """A session on one thread of the CPU, of a graph in memory or of a file by its path."""
    return onnxruntime.InferenceSession(graph, session_options(), ["CPUExecutionProvider"])


def read_graph(path: Path) -> onnx.ModelProto:
    """The graph without external data, which must be there beside the file."""
    if not stat.S_ISREG(find_mode(path, "ONNX file")):
        raise InputError(f"there is no ONNX file {path}")
    try:
        graph = onnx.load(str(path), load_external_data=False)
    except Exception:
        raise InputError(f"{path} is not an ONNX model: the file is corrupt or of another format") from None
    if not graph.graph.node or not graph.graph.output:
        raise InputError(f"{path} is not an ONNX model: it holds no graph")
    if len(graph.graph.node) > MOST_NODES:
        raise InputError(f"{path} has {len(graph.graph.node):,} nodes; at most {MOST_NODES:,} are read")
    folder = path.resolve().parent
    fetch_beside(path, [file.resolve().relative_to(folder).as_posix() for file in external_files(graph, path)])
    missing = [file for file in external_files(graph, path) if not file.is_file()]
    if missing:
        raise InputError(f"{path} keeps its weights in {missing[0].name}, which is not there: put it beside the model")
    return graph


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: of its graph, of its functions, and of the graphs inside their nodes."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        for graph in graphs:
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        nodes += [node for graph in graphs for node in graph.node]
        attributes = [attribute for node in nodes for attribute in node.attribute]
        graphs, nodes = [], []
        for attribute in attributes:
            yield from (attribute.t, *attribute.tensors)
            graphs += [attribute.g] if attribute.HasField("g") else []
            graphs += attribute.graphs
            sparse_values = [attribute.sparse_tensor, *attribute.sparse_tensors]
            yield from (tensor for sparse in sparse_values for tensor in (sparse.values, sparse.indices))


def _constants(graph: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """The fixed tensors of a graph by name."""
    nodes = [
        node
        for node in graph.graph.node
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t")
    ]
    nodes = [node for node in nodes if node.output]
    node_constants = {node.output[0]: node.attribute[0].t for node in nodes}
    return {tensor.name: tensor for tensor in graph.graph.initializer} | node_constants


def external_files(graph: onnx.ModelProto, path: Path) -> list[Path]:
    """The files of weights that lie beside the model; one outside its folder is refused."""
    locations = {
        entry.value
        for tensor in _tensors(graph)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    folder = path.resolve().parent
    for location in locations:
        find_mode(path.parent / location, f"weights of {path},")
        if not (folder / location).resolve().is_relative_to(folder):
            raise InputError(f"{path} asks for weights outside its folder ({location}): move them beside the model")
    return [path.parent / location for location in sorted(locations)]


def image_input(
    graph: onnx.ModelProto, path: Path, name: str = "", others: Sequence[str] = ()
) -> tuple[str, tuple[int | None, ...], str]:
    """Name, dimensions (None where open) and type of the one input an image goes into.

    `name` is its name, where the user gives it; `others` are the names of inputs that get something else.
    """
    weights = {tensor.name for tensor in graph.graph.initializer}
    known = [value for value in graph.graph.input if value.name not in weights]
    names = ", ".join(repr(value.name) for value in known) or "none"
    for given in filter(None, (name, *others)):
        if given not in [value.name for value in known]:
            raise InputError(f"{path} has no input {given!r}; its inputs are: {names}")
    inputs = [value for value in known if value.name not in others and name in ("", value.name)]
    if len(inputs) != 1 or len(known) != 1 + len(others):
        raise InputError(f"{path} must have one input for the image; its inputs are: {names}")
    tensor = inputs[0].type.tensor_type
    if tensor.elem_type not in _TYPES:
        known_types = onnx.TensorProto.DataType
        kind = known_types.Name(tensor.elem_type) if tensor.elem_type in known_types.values() else tensor.elem_type
        raise InputError(f"{path} takes an input of type {kind}: export it with a float or uint8 input")
    dims = tuple(
        dim.dim_value if dim.WhichOneof("value") == "dim_value" and dim.dim_value > 0 else None
        for dim in tensor.shape.dim
    )
    return inputs[0].name, dims, _TYPES[tensor.elem_type]


def _tail(graph: onnx.ModelProto, output: str) -> onnx.NodeProto | None:
    """The last node that computes the output, looking through nodes that only pass a value on."""
    return _passed(graph, output)[0]


def _passed(graph: onnx.ModelProto, output: str) -> tuple[onnx.NodeProto | None, set[str]]:
    """The last node that computes the output, and the types of the nodes after it, which only pass a value on."""
    kinds: set[str] = set()
    makers = {name: node for node in graph.graph.node for name in node.output}
    passed: set[str] = set()
    while (node := makers.get(output)) is not None and node.op_type in PASSES_ON and node.input:
        if output in passed:
            return None, kinds  # a circle, which ONNX Runtime refuses
        passed.add(output)
        kinds.add(node.op_type)
        output = node.input[0]
    return node, kinds


def _scales_by_batch(graph: onnx.ModelProto) -> bool:
    """Whether a graph rounds its activations by the largest of a batch, as dynamic quantisation does."""
    return any(node.op_type == "DynamicQuantizeLinear" for node in graph.graph.node)


def _divided_by_sum(rows: NDArray[Any]) -> NDArray[Any]:
    """Probabilities (N, K) that were rounded to a few bits, with rows that sum to 1; a row of zeros is even."""
    total = rows.sum(axis=1, keepdims=True, dtype=np.float64)
    return np.where(total > 0, rows / np.where(total > 0, total, 1.0), 1.0 / rows.shape[1]).astype(np.float32)


def _cause(error: Exception) -> str:
    """Why ONNX Runtime refuses a model; an opset that it does not know is explained in plain words."""
    opset = re.search(r"Opset (\d+) is under development", str(error))
    if opset is None:
        return first_line(error)
    return (
        f"it is of opset {opset[1]}, which version {onnxruntime.__version__} does not know: export it with an older one"
    )
