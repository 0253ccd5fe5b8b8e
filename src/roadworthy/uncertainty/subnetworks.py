"""A torch network as what precedes its first active dropout and what follows it, the masks of dropout as inputs.

Imports torch: for use by `McDropout`, which imports it when it is needed.
"""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import fx, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from roadworthy.core.errors import InputError, UnknownName, first_line
from roadworthy.models.networks import onnx_bytes
from roadworthy.models.onnx import cpu_session
from roadworthy.models.outputs import same_scores
from roadworthy.models.torch_tensors import class_scores, import_torch

Array = NDArray[Any]

SINGLE = (nn.Dropout,)
CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
SINGLE_FUNCTIONS = (F.dropout, torch.dropout)
CHANNEL_FUNCTIONS = (F.dropout1d, F.dropout2d, F.dropout3d)
ALPHA_FUNCTIONS = (F.alpha_dropout, F.feature_alpha_dropout, torch.alpha_dropout)
FUNCTIONS = (*SINGLE_FUNCTIONS, *CHANNEL_FUNCTIONS, *ALPHA_FUNCTIONS)
EXAMPLES = (2, 3)
SAME = 1e-3
"""ONNX Runtime is used where its answers differ from torch's by no more than this, of the largest."""


@dataclass(frozen=True)
class Layer:
    """A dropout that is active: its name, its probability, and the shape of its mask (without the images)."""

    name: str
    p: float
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Subnetworks:
    """`before(tensor)` is computed once; `after(values, masks)` once per pass, a mask per layer, gives class scores."""

    layers: tuple[Layer, ...]
    before: Callable[[Array], list[Array]]
    after: Callable[[Sequence[Array], Sequence[Array]], Array]
    runtime: str
    concurrent: bool
    notes: tuple[str, ...] = ()


Read = Callable[[Any], torch.Tensor]
"""Takes the one tensor that counts out of what a network answers."""


def subnetworks(
    network: nn.Module,
    example: Array,
    placement: str | Sequence[str],
    p: float | None,
    runtime: str,
    what: str,
    read: Read = class_scores,
) -> Subnetworks:
    """Split a network in eval mode at its dropout; `example` is a tensor of several images that it takes.

    `read` takes what counts out of an answer of the network: by default its class scores.
    """
    for name, module in network.named_modules():
        if isinstance(module, _DropoutNd) and not isinstance(module, SINGLE + CHANNEL):
            raise InputError(f"{what}: {type(module).__name__} {name!r} shifts values as it drops them; use nn.Dropout")
    chosen = _chosen(network, placement, p, what)
    try:
        graph = _Tracer(chosen.inserted).trace(network)
    except InputError:
        raise
    except Exception as error:
        note = f"torch.fx cannot trace it ({first_line(error)}): every pass runs the whole network in torch"
        return _hooked(network, example, chosen, what, note, read)
    return _split(network, graph, example, chosen, runtime, what, read)


@dataclass(frozen=True)
class _Chosen:
    """Which dropout is active: patterns of names (None: all), and those to insert after modules."""

    patterns: tuple[str, ...] | None
    inserted: Mapping[str, float]

    def active(self, name: str, p: float) -> bool:
        return p > 0 and (self.patterns is None or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns))

    def check(self, active: Collection[str], network: nn.Module, what: str) -> None:
        """Refuse a network without active dropout, and a pattern that makes none active."""
        for pattern in self.patterns or ():
            if not fnmatch.filter(active, pattern):
                known = {name for name, _ in network.named_modules() if name} | set(active)
                raise UnknownName(f"module or dropout of {what}", pattern, known)
        if not active:
            raise InputError(
                f"{what} has no active dropout, so every pass would answer the same: add nn.Dropout to it, or name "
                "modules in `placement` and give p to put dropout after them"
            )


def _chosen(network: nn.Module, placement: str | Sequence[str], p: float | None, what: str) -> _Chosen:
    if p is not None and not 0 < p < 1:
        raise InputError(f"{what}: the probability of dropout must lie between 0 and 1, not be {p}")
    if placement == "all":
        return _Chosen(None, {})
    patterns = (placement,) if isinstance(placement, str) else tuple(placement)
    modules = {name: module for name, module in network.named_modules() if name}
    own = {name for name, module in modules.items() if isinstance(module, _DropoutNd)}
    inserted: list[str] = []
    for pattern in patterns:
        if not fnmatch.filter(own, pattern):
            leaves = [name for name, module in modules.items() if not any(module.children())]
            inserted += [pattern] if pattern in modules else fnmatch.filter(leaves, pattern)
    if inserted and p is None:
        raise InputError(f"{what}: {inserted[0]!r} is no dropout; give p to put dropout after it")
    return _Chosen(patterns, dict.fromkeys(inserted, p or 0.0))


class _Tracer(fx.Tracer):
    """Traces a network and puts dropout after some of its modules."""

    def __init__(self, inserted: Mapping[str, float]) -> None:
        super().__init__()
        self._inserted = inserted

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        output = super().call_module(m, forward, args, kwargs)
        name = self.path_of_module(m)
        if name not in self._inserted:
            return output
        if not isinstance(output, fx.Proxy):
            raise InputError(f"dropout cannot follow module {name!r}: it does not answer one tensor")
        after: Any = self.create_proxy("call_function", F.dropout, (output, self._inserted[name], True), {})
        after.node.meta["layer"] = name
        return after


@dataclass(frozen=True)
class _Point:
    """A dropout in a traced graph."""

    node: fx.Node
    name: str
    p: float
    by_channel: bool


def _points(network: nn.Module, graph: fx.Graph, what: str) -> list[_Point]:
    """Every dropout in the order of the graph; one that is run twice is two."""
    modules = dict(network.named_modules())
    seen: dict[str, int] = {}
    points = []
    for node in graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, _DropoutNd):
            name, p, by_channel = str(node.target), float(module.p), isinstance(module, CHANNEL)
        elif node.op == "call_function" and node.target in FUNCTIONS:
            if node.target in ALPHA_FUNCTIONS:
                raise InputError(f"{what}: alpha dropout {node.name!r} shifts values as it drops them; use F.dropout")
            given = node.kwargs.get("p", node.args[1] if len(node.args) > 1 else 0.5)
            if not isinstance(given, int | float):
                raise InputError(f"{what}: the probability of dropout {node.name!r} is computed; it must be a number")
            name, p = node.meta.get("layer", node.name), float(given)
            by_channel = node.target in CHANNEL_FUNCTIONS
        else:
            continue
        seen[name] = seen.get(name, 0) + 1
        points.append(_Point(node, name if seen[name] == 1 else f"{name}#{seen[name]}", p, by_channel))
    return points


def _split(
    network: nn.Module, graph: fx.Graph, example: Array, chosen: _Chosen, runtime: str, what: str, read: Read
) -> Subnetworks:
    points = []
    for point in _points(network, graph, what):
        if chosen.active(point.name.partition("#")[0], point.p):
            points.append(point)
        else:
            point.node.replace_all_uses_with(_dropped(point.node))
            graph.erase_node(point.node)
    chosen.check([point.name for point in points], network, what)
    active = [point.node for point in points]
    stochastic = set(active)
    for node in graph.nodes:
        if any(source in stochastic for source in node.all_input_nodes):
            stochastic.add(node)
    first, crossing = _before(network, graph, stochastic)
    second: nn.Module = _after(network, graph, stochastic, crossing, active)
    second = second if read is class_scores else _Reading(second, read)
    tensor = torch.from_numpy(example)
    with torch.inference_mode():
        shapes = _shapes(network, graph, tensor, points, what)
        layers = tuple(Layer(point.name, point.p, shape) for point, shape in zip(points, shapes, strict=True))
        values = first(tensor)
    run = _torch_runtime(first, second)
    notes: tuple[str, ...] = ()
    if runtime != "torch":
        try:
            fast = _onnx_runtime(first, second, tensor, values, layers)
            _compare(run, fast, example, layers)
            return Subnetworks(layers, *fast, "onnx", True)
        except Exception as error:
            notes = (f"ONNX Runtime cannot run it ({first_line(error)}): passes run in torch",)
    return Subnetworks(layers, *run, "torch", True, notes)


def _before(network: nn.Module, graph: fx.Graph, stochastic: set[fx.Node]) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The part that no active dropout reaches, and the values that the rest takes from it."""
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node not in stochastic:
            copies[node] = part.node_copy(node, copies.__getitem__)
    crossing = [node for node in copies if node.op != "get_attr" and any(user in stochastic for user in node.users)]
    part.output(tuple(copies[node] for node in crossing))
    return _module(network, part), crossing


def _after(
    network: nn.Module, graph: fx.Graph, stochastic: set[fx.Node], crossing: list[fx.Node], active: list[fx.Node]
) -> fx.GraphModule:
    """The part behind the first active dropout: takes the crossing values, then one mask per active dropout."""
    part = fx.Graph()
    copies = {node: part.placeholder(f"value_{number}") for number, node in enumerate(crossing)}
    masks = {node: part.placeholder(f"mask_{number}") for number, node in enumerate(active)}
    for node in graph.nodes:
        if node in masks:
            copies[node] = part.call_function(operator.mul, (copies[_dropped(node)], masks[node]))
        elif node.op == "get_attr" or node in stochastic:
            copies[node] = part.node_copy(node, copies.__getitem__)
    return _module(network, part)


def _module(network: nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """A graph over the network's modules, without what nothing uses."""
    module = fx.GraphModule(network, graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _dropped(node: fx.Node) -> fx.Node:
    """What a dropout is applied to."""
    source = node.args[0] if node.args else node.kwargs["input"]
    assert isinstance(source, fx.Node)
    return source


def _shapes(
    network: nn.Module, graph: fx.Graph, tensor: torch.Tensor, points: Sequence[_Point], what: str
) -> list[tuple[int, ...]]:
    """The shape of each mask, seen with two numbers of images: the images must be the first side and no other."""
    seen: list[dict[fx.Node, tuple[int, ...]]] = []

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if isinstance(result, torch.Tensor):
                seen[-1][n] = tuple(result.shape)
            return result

    for count in EXAMPLES:
        seen.append({})
        Recorder(fx.GraphModule(network, graph)).run(tensor[:count])
    return [
        _mask_shape(point.name, [shapes[point.node] for shapes in seen], point.by_channel, what) for point in points
    ]


def _mask_shape(name: str, shapes: Sequence[tuple[int, ...]], by_channel: bool, what: str) -> tuple[int, ...]:
    first, second = shapes
    if (first[0], second[0]) != EXAMPLES or first[1:] != second[1:] or len(first) < 2:
        raise InputError(f"{what}: dropout {name!r} acts on a tensor whose first side is not the images")
    return (first[1], *(1 for _ in first[2:])) if by_channel else first[1:]


class _Reading(nn.Module):
    """A network that answers the one tensor that is read from another's answer."""

    def __init__(self, network: nn.Module, read: Read) -> None:
        super().__init__()
        self.network, self.read = network, read

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.read(self.network(*inputs))


Runtime = tuple[Callable[[Array], list[Array]], Callable[[Sequence[Array], Sequence[Array]], Array]]


def _torch_runtime(first: nn.Module, second: nn.Module) -> Runtime:
    def before(tensor: Array) -> list[Any]:
        with import_torch().inference_mode():
            return list(first(torch.from_numpy(tensor)))

    def after(values: Sequence[Any], masks: Sequence[Array]) -> Array:
        with import_torch().inference_mode():
            return _numbers(second(*values, *map(torch.from_numpy, masks)))

    return before, after


def _onnx_runtime(
    first: nn.Module, second: nn.Module, tensor: torch.Tensor, values: Sequence[torch.Tensor], layers: Sequence[Layer]
) -> Runtime:
    crossing = [f"value_{number}" for number in range(len(values))]
    names = [f"mask_{number}" for number in range(len(layers))]
    head = cpu_session(onnx_bytes(first, {"image": tensor}, crossing))
    ones = {name: torch.ones(layer.shape) for name, layer in zip(names, layers, strict=True)}
    tail = cpu_session(onnx_bytes(second, dict(zip(crossing, values, strict=True)) | ones, ["scores"], fixed=names))

    def before(tensor: Array) -> list[Array]:
        return list(head.run(None, {"image": tensor}))

    def after(values: Sequence[Array], masks: Sequence[Array]) -> Array:
        fed = dict(zip([*crossing, *names], [*values, *masks], strict=True))
        return np.asarray(tail.run(None, fed)[0])

    return before, after


def _compare(slow: Runtime, fast: Runtime, example: Array, layers: Sequence[Layer]) -> None:
    """Refuse a runtime that answers something else than torch, for several images or for one."""
    masks = [np.ones(layer.shape, np.float32) for layer in layers]
    for images in (example, example[:1]):
        expected, scores = (after(before(images), masks) for before, after in (slow, fast))
        if not same_scores(scores, expected, SAME):
            raise ValueError("its answers are not those of torch")


def _hooked(network: nn.Module, example: Array, chosen: _Chosen, what: str, note: str, read: Read) -> Subnetworks:
    """Whole passes, the masks applied by hooks behind modules: for networks that cannot be traced."""
    hooked = {
        name: (float(module.p), isinstance(module, CHANNEL))
        for name, module in network.named_modules()
        if isinstance(module, _DropoutNd) and chosen.active(name, float(module.p))
    } | {name: (p, False) for name, p in chosen.inserted.items()}
    _refuse_functions(network, example, what)
    chosen.check(list(hooked), network, what)
    calls: list[tuple[str, Any]] = []
    masks: list[torch.Tensor] = []
    modules = dict(network.named_modules())

    def behind(name: str) -> Callable[[object, object, Any], Any]:
        def hook(module: object, inputs: object, output: Any) -> Any:
            calls.append((name, tuple(output.shape)))
            return output * masks[len(calls) - 1] if masks else output

        return hook

    for name in hooked:
        modules[name].register_forward_hook(behind(name))

    def run(tensor: Array, drawn: Sequence[Array]) -> Array:
        calls.clear()
        masks[:] = map(torch.from_numpy, drawn)
        with import_torch().inference_mode():
            return _numbers(read(network(torch.from_numpy(tensor))))

    seen = []
    for count in EXAMPLES:
        run(example[:count], [])
        seen.append(list(calls))
    layers, times = [], dict.fromkeys(hooked, 0)
    for (name, first), (_, second) in zip(*seen, strict=True):
        times[name] += 1
        p, by_channel = hooked[name]
        label = name if times[name] == 1 else f"{name}#{times[name]}"
        layers.append(Layer(label, p, _mask_shape(label, (first, second), by_channel, what)))
    return Subnetworks(
        tuple(layers), lambda tensor: [tensor], lambda values, drawn: run(values[0], drawn), "torch", False, (note,)
    )


class _CountFunctions(TorchFunctionMode):
    """Counts calls of dropout as a function, those that dropout modules make included."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func in FUNCTIONS
        return func(*args, **(kwargs or {}))


def _refuse_functions(network: nn.Module, example: Array, what: str) -> None:
    """An error for dropout that is called as a function, where hooks cannot reach it."""
    in_modules: list[object] = []
    dropouts = [module for module in network.modules() if isinstance(module, _DropoutNd)]
    handles = [module.register_forward_hook(lambda *call: in_modules.append(call[0])) for module in dropouts]
    with _CountFunctions() as functions, torch.inference_mode():
        network(torch.from_numpy(example))
    for handle in handles:
        handle.remove()
    if functions.calls > len(in_modules):
        raise InputError(f"{what} calls F.dropout in code that torch.fx cannot trace: use nn.Dropout modules")


def _numbers(output: Any) -> Array:
    scores: Array = class_scores(output).float().numpy()
    return scores
