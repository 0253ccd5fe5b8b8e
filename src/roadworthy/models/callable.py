"""A Python function as a model: images in, class probabilities (or logits) out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.hashing import digest
from roadworthy.core.types import Prediction
from roadworthy.core.validation import parse_size
from roadworthy.models.base import Adapter, probe
from roadworthy.models.classes import check_class_names, read_class_names
from roadworthy.models.code import load_object
from roadworthy.models.outputs import as_rows, decide, prediction
from roadworthy.models.preprocess import Preprocess, parse_choice

KINDS = ("probabilities", "logits")
Function = Callable[[NDArray[Any]], Any]


class CallableModel(Adapter):
    """A function from uint8 images (N, H, W, C) to class probabilities (N, K), or logits with `outputs="logits"`.

    num_classes  found by a probe where neither it nor `classes` (names in the function's order) is given
    preprocess   what to make of the images first: a tensor instead of uint8, or another `size`
    concurrent   True where the function may be called from several threads at once
    version      any text that changes when the answers do. Without one, the function's source code stands for it: then
                 what the function reads (weights, global variables) must not change

    >>> model = CallableModel(lambda images: np.full((len(images), 4), 0.25), num_classes=4, version="1")
    >>> model.num_classes, model.name
    (4, 'lambda')
    """

    def __init__(
        self,
        function: Function,
        *,
        num_classes: int | None = None,
        classes: str | Path | Sequence[str] | None = None,
        outputs: str = "probabilities",
        preprocess: Preprocess | None = None,
        size: str | int | Sequence[int] | None = None,
        fixed_batch: int | None = None,
        concurrent: bool = False,
        version: str | None = None,
        name: str | None = None,
        base: Path = Path(),
    ) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__).strip("<>")
        self.outputs = parse_choice("outputs", outputs, KINDS)
        self.preprocess = preprocess or Preprocess("0-255", "nhwc", "rgb", parse_size(size), 0, "uint8")
        self.input_size, self.fixed_batch, self.concurrent = self.preprocess.size, fixed_batch, concurrent
        self.capabilities = frozenset({"probabilities"} | ({"logits"} if outputs == "logits" else set()))
        self._version = _identity(function, self.name) if version is None else version
        self.class_names = read_class_names(classes, base)
        self.num_classes = num_classes or len(self.class_names or ()) or self._count_classes()
        check_class_names(self.class_names, self.num_classes, f"model {self.name}")

    def _count_classes(self) -> int:
        what = f"model {self.name}"

        def run(images: NDArray[np.uint8], channels: int) -> NDArray[Any] | None:
            return as_rows(np.asarray(self.function(self.preprocess(images))), len(images))

        channels = (self.preprocess.channels,) if self.preprocess.channels else (3, 1)
        size, batch = self.preprocess.size, self.fixed_batch
        rows, _, self.fixed_batch = probe(run, size=size, channels=channels, batch=batch, what=what)
        decide(self.outputs, rows, what)
        return int(rows.shape[1])

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The function's answer."""
        answer = np.asarray(self.function(tensor))
        rows = as_rows(answer, len(tensor))
        if rows is None:
            raise ModelError(f"model {self.name} answered {answer.shape} to {len(tensor)} images")
        return prediction(rows, self.outputs)

    def turn_key(self) -> Hashable:
        """The function: by where its code is, as a file that two entries name is run twice, or by its object."""
        function = self.function
        while isinstance(function, partial):
            function = function.func
        code = getattr(function, "__code__", None)
        if inspect.ismethod(function):
            return id(function.__self__)
        if code is None or function.__closure__:
            return id(function)
        return (code.co_filename, code.co_firstlineno, code.co_qualname)

    def fingerprint(self) -> str:
        """Hash of the version (or source code) and the settings."""
        settings = {**self.preprocess.settings(), "outputs": self.outputs}
        return digest({"kind": "callable", "version": self._version, "settings": settings})

    def describe(self) -> dict[str, Any]:
        """What is in use, for people."""
        return {**super().describe(), "kind": "callable"}


def load_callable(
    spec: str,
    *,
    trust: bool = False,
    num_classes: int | None = None,
    classes: str | Path | Sequence[str] | None = None,
    outputs: str = "probabilities",
    range: str | None = None,
    layout: str = "nhwc",
    colour: str = "rgb",
    size: str | int | Sequence[int] | None = None,
    fixed_batch: int | None = None,
    concurrent: bool = False,
    version: str | None = None,
    name: str | None = None,
    base: Path = Path(),
) -> CallableModel:
    """The function `file.py:name` or `package.module:name` as a model; it is code, and so needs `trust`.

    It gets uint8 images (N, H, W, C) as they are, or a float32 tensor where `range` is given. Its file (not what that
    imports or reads) stands for its version, unless one is given.
    """
    function, file_hash = load_object(spec, base, trust)
    if type(function).__module__.startswith("torch.") or hasattr(function, "named_parameters"):
        raise InputError(f"{spec} is a torch module: give its weights with --model FILE --arch {spec} instead")
    if not callable(function):
        raise InputError(f"{spec} is {type(function).__name__}, not a function of images")
    if range is None:
        preprocess = Preprocess("0-255", layout, colour, parse_size(size), 0, "uint8")
    else:
        preprocess = Preprocess(range, layout, colour, parse_size(size))
    return CallableModel(
        function,
        num_classes=num_classes,
        classes=classes,
        outputs=outputs,
        preprocess=preprocess,
        fixed_batch=fixed_batch,
        concurrent=concurrent,
        version=f"{file_hash} {spec.rsplit(':', 1)[1]}" if version is None else version,
        name=name,
        base=base,
    )


def _identity(function: Function, name: str) -> Any:
    """The source code of a function with the plain values it captures; where these do not tell all, an error."""
    ask = (
        f"of model {name} cannot be told by its source: give CallableModel(..., version='1'), and raise it with changes"
    )
    if not inspect.isfunction(function):
        raise InputError(f"the behaviour {ask}")
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        raise InputError(f"the behaviour {ask}") from None
    captured = inspect.getclosurevars(function).nonlocals
    defaults = {key: p.default for key, p in inspect.signature(function).parameters.items() if p.default is not p.empty}
    for key, value in {**captured, **defaults}.items():
        if not isinstance(value, bool | int | float | str | None):
            raise InputError(f"the behaviour (it captures {key!r}) {ask}")
    return [source, captured, defaults]
