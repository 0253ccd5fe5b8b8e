"""A Python function as a model: images in, class probabilities (or logits) out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, first_line, foreign_code
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.roles import Model, leaves
from roadworthy.core.types import Prediction
from roadworthy.core.validation import MOST_BATCH, MOST_CLASSES, check_whole, parse_size
from roadworthy.models.base import Adapter, passes_settings_to, probe
from roadworthy.models.boxes import declared_boxes, output_rows
from roadworthy.models.classes import check_class_names, read_class_names
from roadworthy.models.code import LoadedObject, load_object
from roadworthy.models.identity import Unseen, identity_of, watched_files
from roadworthy.models.outputs import OUTPUTS, PROBE_SIZES, as_rows, decide, probe_images, refuse_detector
from roadworthy.models.preprocess import Preprocess, parse_choice

Function = Callable[[NDArray[Any]], Any]


class CallableModel(Adapter):
    """A function from uint8 images (N, H, W, C) to class probabilities (N, K), or logits with `outputs="logits"`.

    With `outputs="auto"` its answers to probe images tell which of the two they are.

    With `boxes` it answers boxes (N, 4 or 8), alone or beside class scores: then a tuple of both, or a dictionary.

    num_classes  found by a probe where neither it nor `classes` (names in the function's order) is given
    range        the function gets a float32 tensor in this range (and `layout`) instead of uint8 images
    size         (H, W) that images are brought to;  colour `rgb` or `bgr`
    boxes        the form of the boxes that it answers, such as `centre relative` (`BoxForm`)
    box_output   what holds the boxes, by its key or its number in a tuple, where name and shape do not tell;
                 class_output what holds the class scores, `none` where nothing does
    concurrent   True where the function may be called from several threads at once
    version      any text that changes when the answers do. Without one, what decides them is looked at: the function's
                 code, the values it reads and the files it opens (see `identity`)

    >>> model = CallableModel(lambda images: np.full((len(images), 4), 0.25), num_classes=4)
    >>> model.num_classes, model.name
    (4, 'lambda')
    """

    float_channels = 3
    """Channels of the tensors where a `range` is given; 0: as many as the images have."""

    def __init__(
        self,
        function: Function,
        *,
        num_classes: int | None = None,
        classes: str | Path | Sequence[str] | None = None,
        outputs: str = "probabilities",
        range: str | None = None,
        layout: str = "nhwc",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        boxes: str | None = None,
        box_output: str | Sequence[str] | None = None,
        class_output: str | None = None,
        fixed_batch: int | None = None,
        concurrent: bool = False,
        version: str | None = None,
        name: str | None = None,
        base: Path = Path(),
        loaded: LoadedObject | None = None,
    ) -> None:
        if num_classes is not None:
            check_whole("num_classes of a function", num_classes, 1, MOST_CLASSES)
        if fixed_batch is not None:
            check_whole("fixed_batch of a function", fixed_batch, 1, MOST_BATCH)
        self.function, self.details = function, {"kind": "callable"}
        self.name = name or getattr(function, "__name__", type(function).__name__).strip("<>")
        self.outputs = parse_choice("outputs", outputs, OUTPUTS)
        kind = ("0-255", "uint8") if range is None else (range, "float32")
        self.preprocess = Preprocess(
            kind[0], layout, colour, parse_size(size), 0 if range is None else self.float_channels, kind[1]
        )
        self.input_size, self.fixed_batch, self.concurrent = self.preprocess.size, fixed_batch, concurrent
        self.capabilities = _capabilities(outputs)
        self.version = version
        self._code = loaded.code if loaded else ()
        self._spec = loaded.spec if loaded else ""
        self._files = set(loaded.files if loaded else ())
        self.class_names = read_class_names(classes, base)
        self._boxes = declared_boxes(boxes, box_output, class_output)
        known = 0 if self._boxes is not None or outputs == "auto" else num_classes or len(self.class_names or ())
        self.num_classes = known or self._count_classes()
        if num_classes not in (None, self.num_classes):
            raise InputError(f"model {self.name} answers {self.num_classes} classes, not `num_classes={num_classes}`")
        if version is None:
            self._identity()
            if known:
                self._watch()
        check_class_names(self.class_names, self.num_classes, f"model {self.name}")

    def _count_classes(self) -> int:
        what = f"model {self.name}"

        def run(images: NDArray[np.uint8], channels: int) -> NDArray[Any] | None:
            answer = self.function(self.preprocess(images))
            refuse_detector(answer, len(images), what)
            return self._rows(answer, len(images))

        channels = (self.preprocess.channels,) if self.preprocess.channels else (3, 1)
        size, batch = self.preprocess.size, self.fixed_batch
        with watched_files() as files:
            rows, self.fixed_batch = probe(run, size=size, channels=channels, batch=batch, what=what)
        self._files |= files
        if self.reading is not None:
            self.settle_reading(rows, self.outputs, what)
            return self.num_classes
        self.outputs = decide(self.outputs, rows, what)
        self.capabilities = _capabilities(self.outputs)
        return int(rows.shape[1])

    def _rows(self, answer: Any, count: int) -> NDArray[Any] | None:
        """Class scores (N, K), of a localizer (N, 4 or 8 + K); None where the answer is of another shape."""
        if self._boxes is None:
            return as_rows(np.asarray(answer), count)
        rows = output_rows(_named(answer), count)
        if self.reading is None and rows:
            self.reading = self._boxes.reading(rows, f"model {self.name}")
        if self.reading is None or any(name not in rows for name in self.reading.names):
            return None
        return self.reading.joined(rows)

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The function's answer."""
        answer = self.function(tensor)
        rows = self._rows(answer, len(tensor))
        if rows is None:
            refuse_detector(answer, len(tensor), f"model {self.name}")
            raise ModelError(f"model {self.name} answered {_shapes(answer)} to {len(tensor)} images")
        return self.prediction_of(rows, self.tensor_size(tensor))

    def _watch(self) -> None:
        """Let the function answer a probe image, to see the files that it opens and to let it load what it needs.

        Sizes are tried until it takes one; where it takes none, the images themselves will tell.
        """
        channels, batch = self.preprocess.channels or 3, self.fixed_batch or 1
        with watched_files() as files:
            for size in (self.preprocess.size,) if self.preprocess.size else PROBE_SIZES:
                with suppress(ModelError), foreign_code(lambda error: ModelError(first_line(error))):
                    self.function(self.preprocess(probe_images(size, channels, batch)))
                    break
        self._files |= files

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
        """Hash of the version (or of all that decides the answers) and the settings.

        Made anew at each call, since what a function reads can change.
        """
        settings = {**self.preprocess.settings(), "outputs": self.outputs, **self.reading_settings()}
        version = self._identity() if self.version is None else self.version
        return digest({"kind": "callable", "version": version, "settings": settings})

    def code_key(self) -> str:
        """Equal for functions that look the same in all that decides their answers, and for one function.

        Where that cannot be seen, two are the same only where they were loaded by one name from the same code.
        """
        try:
            return digest([identity_of(self.function), *self._code])
        except Unseen:
            return digest([self._spec, *self._code]) if self._spec else f"{id(self.function)}"

    def _identity(self) -> Any:
        """What decides the answers; where it cannot be seen, an error that asks for a version."""
        try:
            function_identity = identity_of(self.function)
        except Unseen as error:
            raise InputError(
                f"model {self.name} reads {error}, in which a change of its answers could not be seen: give "
                "`version='TEXT'`, and another text with every change"
            ) from None
        files = sorted({digest_file(file) for file in self._files if file.is_file()})
        return [function_identity, *self._code, *files]


def _capabilities(outputs: str) -> frozenset[str]:
    """What a function answers whose class scores are these."""
    return frozenset({"probabilities"} | ({"logits"} if outputs == "logits" else set()))


def _named(answer: Any) -> dict[str, Any]:
    """What a function answers, by name: the keys of a dictionary, the numbers of a tuple, else one answer `0`."""
    if isinstance(answer, Mapping):
        return {str(name): value for name, value in answer.items()}
    return {str(number): value for number, value in enumerate(answer if isinstance(answer, tuple) else (answer,))}


def _shapes(answer: Any) -> Any:
    """The shape of an answer, or those of its parts, for a message."""
    if isinstance(answer, Mapping | tuple):
        return {name: np.shape(value) for name, value in _named(answer).items()}
    return np.asarray(answer).shape


@runtime_checkable
class Versioned(Protocol):
    """A model with a version by which its user tells its answers apart, such as a function."""

    version: str | None

    def code_key(self) -> str:
        """Equal for models that are the same code."""

    def fingerprint(self) -> str:
        """A hash of the version and the settings."""


def check_versions(models: Mapping[str, Model]) -> None:
    """Refuse different functions with one `version` among models: the stored answers of one would count for both."""
    seen: dict[str, tuple[str, Versioned]] = {}
    for name, model in models.items():
        for leaf in leaves(model):
            if isinstance(leaf, Versioned) and leaf.version is not None and leaf.code_key():
                other_name, other = seen.setdefault(leaf.fingerprint(), (name, leaf))
                if leaf.code_key() != other.code_key():
                    raise InputError(
                        f"the models {other_name} and {name} are different functions with the same version "
                        f"{leaf.version!r}, so that answers of one would be taken for answers of the other: give each "
                        "a `version=` of its own"
                    )


@passes_settings_to(CallableModel, "loaded")
def load_callable(spec: str, *, trust: bool = False, base: Path = Path(), **settings: Any) -> CallableModel:
    """The function `file.py:name` or `package.module:name` as a model; it is code, and so needs `trust`.

    It gets uint8 images (N, H, W, C) as they are, or a float32 tensor where `range` is given. Without a `version`, its
    file, the files of the user's that this imports and the data files that these open count, too. Other settings are
    those of `CallableModel`.
    """
    loaded = load_object(spec, base, trust)
    function = loaded.value
    if type(function).__module__.startswith("torch.") or hasattr(function, "named_parameters"):
        raise InputError(f"{spec} is a torch module: give its weights as the model, with `arch='{spec}'`")
    if not callable(function):
        raise InputError(f"{spec} is {type(function).__name__}, not a function of images")
    return CallableModel(function, base=base, loaded=loaded, **settings)
