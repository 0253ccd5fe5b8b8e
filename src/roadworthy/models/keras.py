"""A Keras model, live or from a `.keras` file: images in, class probabilities or logits out."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
import zipfile
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import PLAIN, is_written_here
from roadworthy.core.errors import InputError, MissingExtra, ModelError, first_line, foreign_code
from roadworthy.core.hashing import digest, digest_array
from roadworthy.core.types import Prediction
from roadworthy.core.validation import parse_size, require_file
from roadworthy.models.base import Adapter, passes_settings_to, probe
from roadworthy.models.classes import check_class_names, read_class_names
from roadworthy.models.identity import Unseen, identity_of
from roadworthy.models.outputs import as_rows, decide, refuse_detector
from roadworthy.models.preprocess import Preprocess, read_shape

SUFFIX = ".keras"
OLD_SUFFIXES = (".h5", ".hdf5")
PACKAGES = ("keras", "tf_keras", "tensorflow")
SCALING = ("Rescaling", "Normalization")
"""Layers that bring pixels from 0-255 to what the network takes."""
LARGEST_SCALE = 0.1
"""The largest factor of a Rescaling layer that is meant for pixels in 0-255: 1/255 and 1/127.5 are, 2 is not."""
KEEPS_VALUES = frozenset(
    {
        *("InputLayer", "Identity", "Dropout", "SpatialDropout2D", "GaussianNoise", "GaussianDropout", "Resizing"),
        *("CenterCrop", "Flatten", "Reshape", "Permute", "Transpose", "ZeroPadding2D", "Cropping2D", "UpSampling2D"),
        *("MaxPooling2D", "AveragePooling2D", "GlobalAveragePooling2D", "GlobalMaxPooling2D"),
    }
)
"""Layers after which values are still in the range they had before."""
AUGMENTATION = ("BaseImagePreprocessingLayer", "BaseImageAugmentationLayer")
ASSUMED = "range 0-1 is assumed: nothing in the network says so"
BACKENDS = ("tensorflow", "torch", "jax")
OLDEST = (3, 12)
"""The first version whose safe mode has no known holes."""
NO_ANSWER = ("build_config", "compile_config")
"""Parts of a configuration on which no answer depends: how it was built and how it is trained."""


class KerasModel(Adapter):
    """A Keras model that takes a batch of images and answers one row of class scores each, by `predict_on_batch`.

    Layout, size and channels are those of its `input_shape`; where it has none, `layout` is `nhwc`. It gets float32.

    range     `auto` is `0-255` where a Rescaling or Normalization layer comes first, else `0-1`, as a note says; where
              other arithmetic comes before the first weights, it must be given. See `Preprocess`
    outputs   `auto`: probabilities where the answers to probe images sum to 1, else logits
    version   any text that changes when the answers do, in place of the hash of weights, configuration and code
    """

    def __init__(
        self,
        network: Any,
        *,
        range: str = "auto",
        layout: str = "auto",
        outputs: str = "auto",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        classes: str | Path | Sequence[str] | None = None,
        version: str | None = None,
        name: str | None = None,
        base: Path = Path(),
    ) -> None:
        self.network, self.version = network, version
        self.name = name or str(getattr(network, "name", None) or type(network).__name__)
        what = f"model {self.name}"
        self.details = {"kind": "keras", "backend": _backend_of(network)}
        _use_one_thread(self.details["backend"])
        dims = _input_shape(network, what)
        order = "nhwc" if layout == "auto" and dims[1:] == (None, None, None) else layout
        order, channels, image_size, batch = read_shape(dims, order, parse_size(size), what)
        if getattr(network, "built", True) is False:
            raise InputError(f"{what} has no weights yet: train it, or load its weights, before it is tested")
        chosen, note = _range_seen_in(network, what) if range == "auto" else (range, "")
        self.preprocess = Preprocess(chosen, order, colour, image_size, channels)
        self.input_size = image_size
        self.notes = (note,) if note else ()

        def run(images: NDArray[np.uint8], channels: int) -> NDArray[Any] | None:
            return self._rows(self.preprocess(images))

        rows, self.fixed_batch = probe(run, size=image_size, channels=(channels,), batch=batch, what=what)
        if rows.shape[1] == 1:
            raise InputError(
                f"{what} answers one number per image: answer two columns [1-p, p], or end in Dense(2, softmax)"
            )
        self.outputs, self.num_classes = decide(outputs, rows, what), int(rows.shape[1])
        self.capabilities = frozenset({"probabilities"} | ({"logits"} if self.outputs == "logits" else set()))
        self.class_names = check_class_names(read_class_names(classes, base), self.num_classes, what)
        if version is None:
            self._content()

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The answer to a tensor in the model's layout."""
        rows = self._rows(tensor)
        if rows is None:
            raise ModelError(f"model {self.name} does not answer one row of class scores per image")
        return self.prediction_of(rows, self.tensor_size(tensor))

    def fingerprint(self) -> str:
        """Hash of weights, configuration, code of layers of the user's, and settings; made anew at each call."""
        settings = {**self.preprocess.settings(), "outputs": self.outputs, "backend": self.details["backend"]}
        content = self._content() if self.version is None else {"version": self.version}
        return digest({"kind": "keras", "content": content, "settings": settings})

    def turn_key(self) -> Hashable:
        """The network."""
        return id(self.network)

    def _rows(self, tensor: NDArray[Any]) -> NDArray[Any] | None:
        answer = self.network.predict_on_batch(tensor)
        refuse_detector(answer, len(tensor), f"model {self.name}")
        if isinstance(answer, list | tuple | dict) and len(answer) == 1:
            (answer,) = answer.values() if isinstance(answer, dict) else answer
        if isinstance(answer, list | tuple | dict):
            raise InputError(f"model {self.name} has {len(answer)} outputs: give a model with the class scores alone")
        return as_rows(np.asarray(answer), len(tensor))

    def _content(self) -> Any:
        """What decides the answers: weights, configuration, and code and plain attributes of the user's layers."""
        weights = [digest_array(np.asarray(weight)) for weight in self.network.get_weights()]
        code = []
        for layer in _layers(self.network):
            function = getattr(layer, "function", None)
            written_here = [type(layer)] if is_written_here(type(layer).__module__) else []
            written_here += [function] if callable(function) else []
            try:
                code += [identity_of(part) for part in written_here]
            except Unseen as error:
                raise InputError(
                    f"model {self.name} holds {error}, in which a change of its answers could not be seen: give "
                    "`version='TEXT'`, and another text with every change"
                ) from None
            if written_here:
                public = {key: value for key, value in sorted(vars(layer).items()) if key[0] != "_"}
                code.append({key: value for key, value in public.items() if isinstance(value, PLAIN)})
        return {"weights": weights, "config": _config(self.network), "code": code}


@passes_settings_to(KerasModel)
def load_keras(path: str | Path, *, name: str | None = None, base: Path = Path(), **settings: Any) -> KerasModel:
    """A `.keras` file, read in Keras's safe mode: one that holds Python code (a lambda) is refused.

    Other settings are those of `KerasModel`. Where KERAS_BACKEND is not set and tensorflow is not installed, Keras runs
    on torch or jax.
    """
    file = base / path
    require_file(file, "Keras model")
    if not zipfile.is_zipfile(file):
        raise InputError(f"{file} is not a {SUFFIX} file, or it is corrupt: save it with model.save('model{SUFFIX}')")
    keras = import_keras()

    def explain(error: BaseException) -> InputError:
        if "safe_mode" in str(error) or "unsafe" in str(error):
            return InputError(
                f"{file} holds Python code (a lambda), which is not run: load it yourself and give the live model"
            )
        custom = re.search(r"Could not locate (?:class|function) '(\w+)'", str(error))
        if custom is not None:
            return InputError(
                f"{file} uses {custom[1]}, which is not Keras's own: load it yourself and give the live model"
            )
        return InputError(f"keras cannot load {file}: {first_line(error)}")

    with foreign_code(explain):
        network = keras.saving.load_model(file, compile=False, safe_mode=True)
    return KerasModel(network, name=name or file.stem, base=base, **settings)


def is_keras_model(value: Any) -> bool:
    """Whether an object is a model of Keras, whatever it runs on; nothing is imported for it.

    >>> is_keras_model(len)
    False
    """
    bases = {(base.__module__.partition(".")[0], base.__name__) for base in type(value).__mro__}
    return any((package, "Model") in bases for package in PACKAGES) and hasattr(value, "predict_on_batch")


def import_keras() -> Any:
    """The package keras, on a backend that is installed; a clear error where there is none, or its safe mode is not."""
    if "keras" not in sys.modules and "KERAS_BACKEND" not in os.environ and not _configured_backend():
        installed = [name for name in BACKENDS if importlib.util.find_spec(name) is not None]
        if installed:
            os.environ["KERAS_BACKEND"] = installed[0]
    try:
        keras = importlib.import_module("keras")
    except ImportError as error:
        if "keras" in str(error):
            raise MissingExtra("Keras models", "keras") from None
        raise InputError(
            f"keras cannot be imported ({first_line(error)}): set KERAS_BACKEND to tensorflow, torch or jax, whichever "
            "is installed"
        ) from None
    _check_version(str(keras.__version__))
    return keras


def _check_version(version: str) -> None:
    """Refuse a version of Keras whose safe mode lets code in a file run.

    >>> _check_version("3.12.0")
    >>> _check_version("3.9.2")
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: keras 3.9.2 may run code that a file holds: install keras>=3.12
    """
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        raise InputError(f"keras {version} may run code that a file holds: install keras>={'.'.join(map(str, OLDEST))}")


def _configured_backend() -> str:
    """The backend that the user's keras.json names, where it is installed; else empty.

    Keras writes that file at its first import, and names tensorflow there whether it is installed or not.
    """
    try:
        text = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"), "keras.json").read_text(encoding="utf-8")
        backend = json.loads(text)["backend"]
        return str(backend) if importlib.util.find_spec(backend) is not None else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError):
        return ""


def _backend_of(network: Any) -> str:
    """What the model runs on."""
    package = type(network).__mro__[-2].__module__.partition(".")[0]
    keras = sys.modules.get("keras")
    return str(keras.backend.backend()) if keras is not None else package


def _use_one_thread(backend: str) -> None:
    """One thread, which fixes the bits of an answer, where that can be set after the import."""
    if backend == "torch":
        from roadworthy.models.torch_tensors import import_torch

        import_torch().set_num_threads(1)


def _input_shape(network: Any, what: str) -> tuple[int | None, ...]:
    """The shape of the input, None for its open sides."""
    shape = getattr(network, "input_shape", None)
    if shape is None:
        return (None, None, None, None)
    if isinstance(shape, list | dict) and not all(isinstance(side, int | None) for side in shape):
        raise InputError(f"{what} has {len(shape)} inputs: give a model with one input, the image")
    return tuple(shape)


def _range_seen_in(network: Any, what: str) -> tuple[str, str]:
    """The range of pixels that a network takes, by what comes before its first weights, and a note that says why.

    Arithmetic there that is not a Rescaling or Normalization of pixels can mean any range: an `InputError` asks for it.
    """
    for layer in _layers(network):
        kind, name = type(layer).__name__, str(getattr(layer, "name", ""))
        if kind in SCALING and _takes_pixels(layer):
            return "0-255", f"range 0-255: its layer {name} scales the pixels"
        is_container = layer is network or bool(_parts(layer))
        is_augmentation = any(base.__name__ in AUGMENTATION for base in type(layer).__mro__)
        if kind not in SCALING and (is_container or is_augmentation or kind in KEEPS_VALUES):
            continue
        if kind not in SCALING and getattr(layer, "weights", None):
            break
        raise InputError(
            f"{what} begins with {name or kind} ({kind}), which may be made for any range of pixels: say "
            "`range='0-255'` for pixels as they are, `range='0-1'` for pixels divided by 255, or MEAN/STD"
        )
    return "0-1", ASSUMED


def _takes_pixels(layer: Any) -> bool:
    """Whether a scaling layer is made for 0-255: a Rescaling that divides, a Normalization whose means are above 1."""
    own: Any = getattr(layer, "mean", None)
    means: Any = getattr(layer, "input_mean", None) if own is None else own
    try:
        if hasattr(layer, "scale"):
            return bool(np.max(np.abs(np.asarray(layer.scale, np.float64))) <= LARGEST_SCALE)
        host = means.detach().cpu() if hasattr(means, "detach") else means
        return bool(np.max(np.asarray(host, np.float64)) > 1)
    except (TypeError, ValueError):
        return False


def _parts(network: Any) -> list[Any]:
    """The layers of a network and, where it is a graph, the operations between them, in their order."""
    operations: Any = getattr(network, "operations", None)
    return list(operations or getattr(network, "layers", ()))


def _layers(network: Any) -> Iterator[Any]:
    """The network and the layers and operations in it, those of networks in it too, in their order."""
    yield network
    for layer in _parts(network):
        yield from _layers(layer)


def _config(network: Any) -> Any:
    """The configuration as plain values; the class alone of a model that states none."""
    try:
        text = network.to_json()
    except Exception:  # a model whose code says nothing of its configuration: its code and its weights count
        return type(network).__qualname__
    return _without_training(json.loads(text))


def _without_training(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_training(inner) for key, inner in value.items() if key not in NO_ANSWER}
    return [_without_training(inner) for inner in value] if isinstance(value, list) else value
