"""A torch module as a model."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, MissingExtra, ModelError
from roadworthy.core.hashing import digest, digest_array
from roadworthy.core.types import Batch, Prediction
from roadworthy.core.validation import MOST_THREADS, check_whole, parse_size
from roadworthy.models.base import Adapter, pick_device, probe
from roadworthy.models.boxes import BoxReading, DeclaredBoxes, declared_boxes, output_rows
from roadworthy.models.classes import check_class_names, read_class_names
from roadworthy.models.head import Head
from roadworthy.models.identity import Unseen, identity_of
from roadworthy.models.outputs import as_rows, decide, same_scores
from roadworthy.models.preprocess import Preprocess, parse_range, read_shape

if TYPE_CHECKING:
    import torch

    from roadworthy.models.quick import QuickForward

NO_CUDA = "torch here: install a CUDA build of torch"
ANY_SHAPE = (None, None, None, None)
MOST_CHANNELS = 4
FEW = 4
"""From how many images on a batch lies in memory pixel by pixel."""
INPUT_OF = ":input"
"""Behind the name of a layer: what goes into it instead of what comes out."""
_CODES: dict[type, str] = {}
_HOOKS = threading.Lock()
"""Held while a hook is set or removed: torch numbers them in a way that two threads must not do at once."""


def import_torch() -> Any:
    """The torch module, imported when first needed; a clear error where it is not installed.

    A thread takes over torch's number of threads when it first asks for it. Before, some kernels use all cores there,
    and another number of threads gives other bits; so it is asked for here.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch models", "torch") from None
    torch.get_num_threads()
    return torch


class TorchModel(Adapter):
    """A `torch.nn.Module` that takes an image tensor and answers class scores, or boxes, or both.

    The module runs in eval mode and keeps its own: flags of training are put back after each call. It may answer a
    tensor, an object with `logits`, or a tuple or dictionary whose first (N, K) tensor is used. With `boxes` it answers
    boxes (N, 4 or 8), alone or beside class scores in a tuple or dictionary.

    range     `auto` is `0-1`; see `Preprocess` for the other forms;  layout `auto` is `nchw`
    size      (H, W) the module needs;  channels 1 or 3, found out where not given
    outputs   `auto`: probabilities where the answers to probe images sum to 1, else logits
    boxes     the form of the boxes that it answers, such as `centre relative` (`BoxForm`)
    box_output    what holds the boxes, by its key or its number in a tuple, where name and shape do not tell;
                  class_output what holds the class scores, `none` where nothing does
    threads   torch threads of this process, set once;  device `auto` is cuda where available (the module moves there)
    dims      the shape of the input where it is known, None for its open sides
    version   any text that changes when the answers do, for a module whose attributes change while it answers

    Capabilities: `logits` where it answers logits; `input_gradient`; `features` of a named submodule, for modules
    of Python code (TorchScript and exported programs run no hooks).

    >>> net = import_torch().nn.Sequential(import_torch().nn.Flatten(), import_torch().nn.Linear(12, 4))
    >>> model = TorchModel(net, size=2, name="tiny")
    >>> model.num_classes, model.layers()
    (4, ('0', '1'))
    """

    concurrent = True

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        range: str = "auto",
        layout: str = "auto",
        outputs: str = "auto",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        channels: int | None = None,
        classes: str | Path | Sequence[str] | None = None,
        boxes: str | None = None,
        box_output: str | Sequence[str] | None = None,
        class_output: str | None = None,
        device: str = "auto",
        threads: int = 1,
        version: str | None = None,
        name: str | None = None,
        base: Path = Path(),
        dims: Sequence[int | None] = ANY_SHAPE,
    ) -> None:
        torch = import_torch()
        self.version = version
        check_whole("the threads of a torch model", threads, 1, MOST_THREADS)
        if channels is not None:
            check_whole("the channels of a torch model", channels, 1, MOST_CHANNELS)
        torch.set_num_threads(threads)
        self.name = name or type(module).__name__
        self._device = pick_device(device, bool(torch.cuda.is_available()), NO_CUDA)
        self.details = {"kind": "torch", "device": self._device}
        self.module = module.to(self._device)
        self._lock = threading.Lock()
        self._users = 0
        self._were_training: list[Any] = []
        self._convolves = self._device == "cpu" and any(isinstance(p, torch.nn.Conv2d) for p in module.modules())
        self._known_shapes: dict[tuple[int, ...], bool] = {}
        layout, read_channels, image_size, batch = read_shape(
            dims, "nchw" if layout == "auto" else layout, parse_size(size), f"model {self.name}"
        )
        known = channels or (read_channels if dims is not ANY_SHAPE else None)
        self.input_size = image_size

        declared = declared_boxes(boxes, box_output, class_output)

        def run(images: NDArray[np.uint8], channels: int) -> NDArray[Any] | None:
            self.preprocess = Preprocess("0-1" if range == "auto" else range, layout, colour, image_size, channels)
            tensor = self.preprocess(images)
            if declared is not None and self.reading is None:
                self.reading = self._found_reading(tensor, declared)
            return as_rows(self._forward(tensor), len(images))

        tried = (known,) if known else (3, 1)
        rows, self.fixed_batch = probe(run, size=image_size, channels=tried, batch=batch, what=f"model {self.name}")
        self._has_hooks = not isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule)
        if self.reading is None:
            self.num_classes = rows.shape[1]
            self.outputs = decide(outputs, rows, f"model {self.name}")
            self.capabilities = frozenset({"probabilities", *(["logits"] if self.outputs == "logits" else [])})
        else:
            self.settle_reading(rows, outputs, f"model {self.name}")
        self.class_names = check_class_names(read_class_names(classes, base), self.num_classes, f"model {self.name}")
        extras = {"input_gradient": self.num_classes > 0, "features": self._has_hooks}
        self.capabilities |= {key for key, has in extras.items() if has}

    def _found_reading(self, tensor: NDArray[Any], declared: DeclaredBoxes) -> BoxReading | None:
        """How the boxes of a localizer are read, from what it answers to a tensor; None where no answer has rows."""
        torch = import_torch()
        with self._evaluating(), torch.inference_mode():
            values = torch.from_numpy(tensor).to(self._device, _dtype(torch, self.module))
            answers = {name: value.float().cpu().numpy() for name, value in named_tensors(self.module(values)).items()}
        rows = output_rows(answers, len(tensor))
        return declared.reading(rows, f"model {self.name}") if rows else None

    def scores_of(self, output: Any) -> Any:
        """The class scores in what the module answers, as a tensor."""
        if self.reading is None:
            return class_scores(output)
        if self.reading.classes is None:
            raise InputError(f"model {self.name} answers boxes and no class scores")
        return named_tensors(output)[self.reading.classes]

    def rows_of(self, output: Any) -> Any:
        """All that counts in what the module answers, as one tensor: class scores, of a localizer (N, 4 or 8 + K)."""
        if self.reading is None:
            return class_scores(output)
        tensors = named_tensors(output)
        parts = [tensors[name] for name in self.reading.names]
        if len(parts) == 1 and parts[0].ndim == 2:
            return parts[0]
        return import_torch().cat([part.reshape(part.shape[0], -1).float() for part in parts], 1)

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The answer to a tensor in the module's layout."""
        rows = as_rows(self._forward(tensor), len(tensor))
        if rows is None:
            raise ModelError(f"model {self.name} does not answer one row of class scores per image")
        return self.prediction_of(rows, self.tensor_size(tensor))

    def layers(self) -> tuple[str, ...]:
        """What `features` can be asked for: the named submodules."""
        return tuple(name for name, _ in self.module.named_modules() if name) if self._has_hooks else ()

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """Activations (N, ...) of a submodule, by its name in `named_modules()`; of what goes in with `NAME:input`."""
        if not self._has_hooks:
            return super().features(batch, layer)
        torch = import_torch()
        with self.guarded(batch):
            tensor = self.preprocess(batch.images)
        pixels_first = self._takes_pixels_first(torch, tensor.shape)  # asked before the hook is set
        with self.guarded(batch), self._evaluating(), torch.inference_mode():
            activation = self._activations(layer, self._values(torch, tensor, pixels_first))[-1]
        return np.ascontiguousarray(activation.float().cpu().numpy(), np.float32)

    def feature_maps(self, batch: Batch) -> dict[str, tuple[int, int, int]]:
        """Shapes (C, H, W) of the feature maps that submodules give, by name, in the order in which they are finished.

        Those of more than one position, of submodules that run once when the model answers.
        """
        torch = import_torch()
        with self.guarded(batch):
            tensor = self.preprocess(batch.images)
        shapes: dict[str, list[tuple[int, ...]]] = {}

        def keep(name: str, inputs: Any, output: Any) -> None:
            shape = tuple(output.shape[1:]) if isinstance(output, torch.Tensor) else ()
            shapes[name] = [*shapes.pop(name, []), shape]

        with self.guarded(batch), ExitStack() as stack:
            for name in self.layers():
                stack.enter_context(self._hooked(name, partial(keep, name)))
            stack.enter_context(self._evaluating())
            with torch.inference_mode():
                self._scores(torch, tensor, pixels_first=False)
        single = {name: runs[0] for name, runs in shapes.items() if len(runs) == 1 and len(runs[0]) == 3}
        return {name: (shape[0], shape[1], shape[2]) for name, shape in single.items() if shape[1] * shape[2] > 1}

    def predict_replacing(self, batch: Batch, layer: str, replace: Callable[[Any], Any]) -> Prediction:
        """The answer to a batch where a submodule gives `replace(output)` in place of its output, a tensor (N, ...).

        Only modules of Python code run hooks; others are an `InputError`.
        """
        torch = import_torch()
        if not self._has_hooks:
            raise InputError(
                f"the activations of model {self.name} cannot be replaced: supply a torch module of Python code"
            )
        with self.guarded(batch):
            self._takes_pixels_first(torch, self.preprocess(batch.images).shape)  # asked before the hook is set
        runs = 0

        def hook(inputs: Any, output: Any) -> Any:
            nonlocal runs
            runs += 1
            if not isinstance(output, torch.Tensor):
                raise InputError(f"layer {layer!r} of model {self.name} gives no tensor that could be replaced")
            return replace(output)

        with self._hooked(layer, hook):
            prediction = self.predict(batch)
        self._check_run(layer, runs)
        return prediction

    def stepped_features(
        self, batch: Batch, layer: str, score: Callable[[Any], Any], steps: Sequence[float]
    ) -> NDArray[np.float32]:
        """Features (E, N, D) of a layer after one step of each size along the sign of the gradient of their score.

        x' = x + e sign(d score(f(x)) / dx), for pixels x from 0 to 1 at the network's own size, neither clipped nor
        rounded. `score` makes a tensor (N,) of features f (N, D); maps are averaged over their positions. One forward
        and one backward pass serve all steps; the passes behind the steps end where the layer has answered, and a step
        of 0 costs none.
        """
        torch = import_torch()
        with self.guarded(batch):
            tensor = self.preprocess(batch.images)
            values = self._values(torch, tensor, self._takes_pixels_first(torch, tensor.shape))

        def averaged(activation: Any) -> Any:
            rows = activation.float()
            return (rows.mean((2, 3)) if rows.ndim == 4 else rows).reshape(len(batch), -1)

        with self.guarded(batch), self._evaluating():
            with torch.enable_grad():
                leaf = values.clone().requires_grad_()
                activations = self._activations(layer, leaf)
                first = averaged(activations[-1])
                (gradient,) = torch.autograd.grad(score(first).sum(), leaf)
            direction, runs = gradient.sign() * self._pixel_step(values), len(activations)
            with torch.inference_mode():
                rows = [
                    averaged(self._activations(layer, values + step * direction, runs)[-1]) if step else first.detach()
                    for step in steps
                ]
                return np.stack([row.cpu().numpy() for row in rows])

    @property
    def is_watchable(self) -> bool:
        """Whether `watch` gives what `features` does: for modules that run hooks, unless a subclass has features of
        its own."""
        return self._has_hooks and type(self).features is TorchModel.features

    @contextmanager
    def watch(self, layer: str) -> Iterator[list[NDArray[np.float32]]]:
        """A list that holds what `features` gives of a layer, of every pass that this thread makes while inside."""
        seen: list[NDArray[np.float32]] = []

        def keep(activation: Any) -> None:
            seen.append(np.array(activation.detach().float().cpu().numpy()))

        with self._read(layer, keep):
            yield seen

    def _activations(self, layer: str, values: Any, runs: int | None = None) -> list[Any]:
        """The tensors that a submodule gives, or gets with `NAME:input`, at each of its runs on a tensor.

        The module stops after so many `runs` of the submodule where that number is given.
        """
        activations: list[Any] = []

        def keep(activation: Any) -> None:
            activations.append(activation)
            if len(activations) == runs:
                raise _LayerHasRun

        with self._read(layer, keep), suppress(_LayerHasRun):
            self.module(values)
        self._check_run(layer.removesuffix(INPUT_OF), len(activations))
        return activations

    def _read(self, layer: str, keep: Callable[[Any], None]) -> AbstractContextManager[None]:
        """While inside, `keep` gets the tensor that a submodule gives, or gets with `NAME:input`, at each run."""
        reads_input = layer.endswith(INPUT_OF)
        return self._hooked(
            layer.removesuffix(INPUT_OF),
            lambda inputs, output: keep(_tensors(inputs if reads_input else output)[0]),
        )

    @contextmanager
    def _hooked(self, layer: str, hook: Callable[[Any, Any], Any]) -> Iterator[None]:
        """While inside, a submodule calls `hook(inputs, output)` after each run by this thread.

        What the hook returns takes the place of the output, unless it is None.
        """
        caller = threading.get_ident()
        try:
            submodule = self.module.get_submodule(layer)
        except AttributeError:
            names = ", ".join(self.layers()[-5:])
            raise InputError(f"model {self.name} has no layer {layer!r}: it has {names}, ...") from None

        def own_runs(module: object, inputs: Any, output: Any) -> Any:
            return hook(inputs, output) if threading.get_ident() == caller else None

        with _HOOKS:
            handle = submodule.register_forward_hook(own_runs)
        try:
            yield
        finally:
            with _HOOKS:
                handle.remove()

    def _check_run(self, layer: str, runs: int) -> None:
        if not runs:
            raise InputError(f"layer {layer!r} of model {self.name} is not run when the model answers")

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """Gradient (N, H, W, C) of each image's cross-entropy -log p(label), by its pixel values in 0 to 255."""
        torch = import_torch()
        with self.guarded(batch):
            labels = torch.from_numpy(np.array(batch.labels)).to(self._device)
            with self._evaluating(), torch.enable_grad():
                tensor = torch.from_numpy(self.preprocess(batch.images)).to(self._device).requires_grad_()
                answer = self.module(tensor.to(_dtype(torch, self.module)))
                rows = self.scores_of(answer).float().reshape(len(batch), -1)
                if self.outputs == "logits":
                    loss = torch.nn.functional.cross_entropy(rows, labels, reduction="sum")
                else:
                    tiny = torch.finfo(torch.float32).tiny
                    loss = -rows.clamp_min(tiny).log().gather(1, labels[:, None]).sum()
                (gradient,) = torch.autograd.grad(loss, tensor)
            return self.preprocess.adjoint(gradient.cpu().numpy(), batch.images.shape)

    def head(self) -> Head:
        """The last `Linear` with one output per class; only for modules of Python code that answer logits."""
        torch = import_torch()
        layers = [
            (name, part)
            for name, part in self.module.named_modules()
            if name and isinstance(part, torch.nn.Linear) and part.out_features == self.num_classes
        ]
        if not (layers and self._has_hooks and self.outputs == "logits"):
            raise InputError(f"model {self.name} does not end in a Linear that makes logits: name a layer instead")
        name, last = layers[-1]
        weights = last.weight.detach().float().cpu().numpy()
        bias = np.zeros(len(weights), np.float32) if last.bias is None else last.bias.detach().float().cpu().numpy()
        return Head(name + INPUT_OF, weights.copy(), bias.copy())

    def stepped_logits(
        self, batch: Batch, temperatures: Sequence[float], steps: Sequence[float], quick: QuickForward | None = None
    ) -> NDArray[np.float32]:
        """Logits (T, E, N, K) after one step of each size along the sign of the confidence's gradient.

        x' = x + e sign(d log max_k softmax(f(x) / T)_k / dx), for pixels x from 0 to 1 at the network's own size,
        neither clipped nor rounded. One forward pass and one backward pass per temperature serve all steps; a step of 0
        costs none. With `quick` the passes behind more than two steps run in ONNX Runtime, where that gives torch's
        logits: it takes a pass to see that.
        """
        if self.outputs != "logits":
            raise InputError(f"model {self.name} answers probabilities: give a module that answers logits")
        torch = import_torch()
        with self.guarded(batch):
            tensor = torch.from_numpy(self.preprocess(batch.images)).to(self._device, _dtype(torch, self.module))
        size = self._pixel_step(tensor)
        answers = np.empty((len(temperatures), len(steps), len(batch), self.num_classes), np.float32)

        pixels_first = self._takes_pixels_first(torch, tuple(tensor.shape))

        def logits(values: Any) -> Any:
            if pixels_first:
                values = values.contiguous(memory_format=torch.channels_last)
            return self.scores_of(self.module(values)).float().reshape(len(batch), -1)

        with self.guarded(batch), self._evaluating():
            with torch.enable_grad():
                leaf = tensor.clone().requires_grad_()
                first = logits(leaf)
                directions = []
                for temperature in temperatures:
                    confidence = torch.log_softmax(first / temperature, 1).amax(1).sum()
                    (gradient,) = torch.autograd.grad(confidence, leaf, retain_graph=True)
                    directions.append(gradient.sign() * size)
            with torch.inference_mode():
                start = first.detach().cpu().numpy()
                pays = len(directions) * sum(step != 0 for step in steps) > 2
                faster = quick.of(self.module, tensor.cpu().numpy(), start) if quick and pays else None

                def forward(values: Any) -> NDArray[np.float32]:
                    return faster(values.numpy()) if faster else logits(values).cpu().numpy()

                for row, direction in enumerate(directions):
                    for column, step in enumerate(steps):
                        answers[row, column] = forward(tensor + step * direction) if step else start
        return answers

    def _pixel_step(self, tensor: Any) -> Any:
        """How far a step of the whole pixel range goes in a preprocessed tensor, by channel, as one of its kind."""
        unit = 1.0 / np.broadcast_to(parse_range(self.preprocess.range)[1], self.preprocess.channels or tensor.shape[1])
        unit = unit[::-1] if self.preprocess.colour == "bgr" else unit
        shape = (1, -1, 1, 1) if self.preprocess.layout == "nchw" else (1, 1, 1, -1)
        return import_torch().from_numpy(np.ascontiguousarray(unit)).to(tensor).reshape(shape)

    def fingerprint(self) -> str:
        """Hash of the weights, the structure with its attributes, the code of its classes, and the settings.

        A `version` stands for all but the settings.

        Made anew at each call, since a live module can be trained on. Files that a module reads are not seen.
        """
        settings = {**self.preprocess.settings(), "outputs": self.outputs, "device": self._device}
        state = module_state(self.module) if self.version is None else {"version": self.version}
        return digest({"kind": "torch", **state, "settings": {**settings, **self.reading_settings()}})

    def _forward(self, tensor: NDArray[Any]) -> NDArray[Any]:
        torch = import_torch()
        pixels_first = self._takes_pixels_first(torch, tensor.shape)
        with self._evaluating(), torch.inference_mode():
            return self._scores(torch, tensor, pixels_first)

    def _scores(self, torch: Any, tensor: NDArray[Any], pixels_first: bool) -> NDArray[Any]:
        values = self._values(torch, tensor, pixels_first)
        scores: NDArray[Any] = self.rows_of(self.module(values)).float().cpu().numpy()
        return scores

    def _values(self, torch: Any, tensor: NDArray[Any], pixels_first: bool) -> Any:
        values = torch.from_numpy(tensor).to(self._device, _dtype(torch, self.module))
        return values.contiguous(memory_format=torch.channels_last) if pixels_first else values

    def _takes_pixels_first(self, torch: Any, shape: tuple[int, ...]) -> bool:
        """Whether a batch lies in memory pixel by pixel, with which convolutions on a CPU are up to twice as fast.

        It does for a few images or more, where the module answers as many random images the same: code that looks at
        the memory itself (`Tensor.view`) can refuse them. Asked once per shape of an image.
        """
        if shape[0] < FEW or len(shape) != 4 or self.preprocess.layout != "nchw" or not self._convolves:
            return False
        if shape[1:] not in self._known_shapes:
            count, channels, *size = shape
            images = np.random.default_rng(0).integers(0, 256, (count, *size, channels), dtype=np.uint8)
            with self._evaluating(), torch.inference_mode(), torch.random.fork_rng(devices=[]):
                try:
                    scores, expected = (self._scores(torch, self.preprocess(images), way) for way in (True, False))
                    self._known_shapes[shape[1:]] = same_scores(scores, expected)
                except KeyboardInterrupt:
                    raise
                except BaseException:  # any failure: the images themselves will show it
                    self._known_shapes[shape[1:]] = False
        return self._known_shapes[shape[1:]]

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Eval mode while any thread runs the module; the last one out puts the training flags back."""
        with self._lock:
            if not self._users:
                self._were_training = _stop_training(self.module)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    for module in self._were_training:
                        module.training = True


class _LayerHasRun(BaseException):
    """Raised inside a module to end a pass whose rest is of no interest."""


def _stop_training(module: Any) -> list[Any]:
    """Put a module in eval mode and return the submodules that were in training mode."""
    training = [part for part in module.modules() if part.training]
    if not training:
        return []
    try:
        module.eval()
    except NotImplementedError:
        return []
    return training


def class_scores(output: Any) -> Any:
    """The class scores in what a module answers."""
    return next((value for value in _tensors(output) if value.ndim >= 2), _tensors(output)[0])


def _tensors(output: Any) -> list[Any]:
    """The tensors of an answer; those named `logits` alone where there are any."""
    torch = import_torch()
    if isinstance(output, torch.Tensor):
        return [output]
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, torch.Tensor):
        return [named]
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors:
        raise ModelError(f"the module answered {type(output).__name__}, which holds no tensor of class scores")
    return tensors


def named_tensors(output: Any) -> dict[str, Any]:
    """The tensors in what a module answers, by name: keys, attributes, numbers in a tuple; one tensor is `0`."""
    torch = import_torch()
    if isinstance(output, torch.Tensor):
        return {"0": output}
    if hasattr(output, "_asdict"):
        output = output._asdict()
    if isinstance(output, list | tuple):
        output = dict(enumerate(output))
    named = output if isinstance(output, Mapping) else getattr(output, "__dict__", {})
    tensors = {str(name): value for name, value in named.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise ModelError(f"the module answered {type(output).__name__}, which holds no tensor")
    return tensors


def _dtype(torch: Any, module: Any) -> Any:
    return next((weight.dtype for weight in module.parameters() if weight.is_floating_point()), torch.float32)


def module_state(module: Any) -> dict[str, Any]:
    """What decides the answers of a module: a hash of its weights and buffers, and its structure."""
    weights = digest_tensors([*module.named_parameters(), *module.named_buffers()])
    return {"weights": weights, "structure": _structure(module)}


def digest_tensors(named: Iterable[tuple[str, Any]], text: str = "") -> str:
    """SHA-256 (hex) of a text and of the names, types, shapes and values of tensors."""
    sha = hashlib.sha256(text.encode())
    for name, tensor in named:
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        sha.update(flat.view(import_torch().uint8).numpy().data if flat.numel() else b"")
    return sha.hexdigest()


def _structure(module: Any) -> list[Any]:
    """Names, classes, attributes and, once per class of the user's, the code of a module's parts."""
    parts: list[Any] = []
    user_classes: set[type] = set()
    for name, part in module.named_modules():
        public = {key: value for key, value in vars(part).items() if key != "training" and key[0] != "_"}
        attributes = [[key, _content(value)] for key, value in sorted(public.items())]
        parts.append([name, type(part).__qualname__, attributes, getattr(part, "original_name", "")])
        if not type(part).__module__.startswith("torch."):
            user_classes.add(type(part))
    code = getattr(module, "code", "")
    return [parts, sorted(map(_code, user_classes)), code if isinstance(code, str) else ""]


def _content(value: Any) -> Any:
    """A plain value, a tensor or an array, also inside a container, by its content; all else by its class."""
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    if isinstance(value, Mapping):
        return [[_content(key), _content(inner)] for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return [_content(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, map(_content, value)))
    if isinstance(value, import_torch().Tensor):
        return digest_tensors([("", value)])
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return digest_array(value)
    return type(value).__qualname__


def _code(cls: type) -> str:
    """A hash of what decides what a class of the user's does, looked up once; its name where that cannot be seen."""
    if cls not in _CODES:
        try:
            _CODES[cls] = digest(identity_of(cls))
        except Unseen:
            _CODES[cls] = cls.__qualname__
    return _CODES[cls]
