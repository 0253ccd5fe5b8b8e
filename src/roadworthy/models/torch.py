"""A torch module as a model that shows what is inside: layers, gradients, its last layer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch, Prediction
from roadworthy.models.head import Head
from roadworthy.models.preprocess import parse_range
from roadworthy.models.torch_answers import TorchAnswers
from roadworthy.models.torch_tensors import answered_tensors, dtype_of, import_torch

if TYPE_CHECKING:
    from roadworthy.models.quick import QuickForward

INPUT_OF = ":input"
"""Behind the name of a layer: what goes into it instead of what comes out."""
_HOOKS = threading.Lock()
"""Held while a hook is set or removed: torch numbers them in a way that two threads must not do at once."""


class TorchModel(TorchAnswers):
    """A `torch.nn.Module` that takes an image tensor and answers class scores, or boxes, or both.

    The module runs in eval mode and keeps its own: flags of training are put back after each call. It may answer a
    tensor, an object with `logits`, or a tuple or dictionary whose first (N, K) tensor is used. With `boxes` it answers
    boxes (N, 4 or 8), alone or beside class scores in a tuple or dictionary.

    range     `auto` is `0-1`; see `Preprocess` for the other forms;  layout `auto` is `nchw`
    size      (H, W) the module needs;  channels 1 or 3, found out where not given. A module that carries both as
              modules of timm do (`pretrained_cfg`) is taken at its word
    outputs   `auto`: probabilities where the answers to probe images sum to 1, else logits
    boxes     the form of the boxes that it answers, such as `centre relative` (`BoxForm`)
    box_output    what holds the boxes, by its key or its number in a tuple, where name and shape do not tell;
                  class_output what holds the class scores, `none` where nothing does
    threads   torch threads of this process, set once;  device `auto` is cuda where available (the module moves there)
    dims      the shape of the input where it is known, None for its open sides
    preprocess    all of how images become the tensor, in place of range, layout, colour, size and channels
    version   any text that changes when the answers do, for a module whose attributes change while it answers

    Capabilities: `logits` where it answers logits; `input_gradient`; `features` of a named submodule, for modules
    of Python code (TorchScript and exported programs run no hooks).

    >>> net = import_torch().nn.Sequential(import_torch().nn.Flatten(), import_torch().nn.Linear(12, 4))
    >>> model = TorchModel(net, size=2, name="tiny")
    >>> model.num_classes, model.layers()
    (4, ('0', '1'))
    """

    def inner_capabilities(self) -> frozenset[str]:
        """Gradients where it answers class scores, features where it runs hooks."""
        has_gradient = self.num_classes > 0 and self.preprocess.has_adjoint
        extras = {"input_gradient": has_gradient, "features": self._has_hooks}
        return frozenset(key for key, has in extras.items() if has)

    @property
    def _has_hooks(self) -> bool:
        """Whether the module is Python code: TorchScript and exported programs run no hooks."""
        torch = import_torch()
        return not isinstance(self.module, torch.jit.ScriptModule | torch.fx.GraphModule)

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

    @property
    def watched_bits_are_its_own(self) -> bool:
        """True: a hook changes nothing of a pass."""
        return True

    @contextmanager
    def watch(self, layer: str) -> Iterator[list[NDArray[np.float32]]]:
        """A list that holds afterwards what `features` gives of a layer, of every pass of this thread while inside."""
        seen: list[NDArray[np.float32]] = []
        activations: list[Any] = []
        with self._read(layer, activations.append):
            yield seen
        # Read after the pass, as `features` is: what follows the layer may have changed its tensor in place.
        seen += [np.array(activation.detach().float().cpu().numpy()) for activation in activations]

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
            lambda inputs, output: keep(answered_tensors(inputs if reads_input else output)[0]),
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
                answer = self.module(tensor.to(dtype_of(self.module)))
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
            tensor = torch.from_numpy(self.preprocess(batch.images)).to(self._device, dtype_of(self.module))
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


class _LayerHasRun(BaseException):
    """Raised inside a module to end a pass whose rest is of no interest."""
