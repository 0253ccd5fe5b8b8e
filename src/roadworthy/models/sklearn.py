"""A fitted classifier or pipeline of scikit-learn, or one that looks like it: pixels in, class probabilities out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.hashing import digest
from roadworthy.core.threads import one_thread
from roadworthy.core.types import Prediction
from roadworthy.core.validation import parse_size
from roadworthy.models.base import Adapter, probe
from roadworthy.models.classes import check_class_names, columns_of_labels, read_class_names
from roadworthy.models.identity import Unseen, identity_of
from roadworthy.models.outputs import prediction, softmax
from roadworthy.models.preprocess import LAYOUTS, Preprocess, parse_choice
from roadworthy.models.training_range import range_seen_in

METHODS = {"predict_proba": "probabilities", "decision_function": "logits"}
"""What answers, in the order of preference, and what its answers are."""
PIXELS = "0-255"
LEAST_SIDE, MOST_SIDE = 4, 1024
"""Sides of images that are tried."""
SHOWN = 3


@dataclass(frozen=True)
class _Input:
    """What the user says of the input; `auto` and None: nothing."""

    range: str
    layout: str
    colour: str
    size: tuple[int, int] | None
    channels: int | None


class SklearnModel(Adapter):
    """A fitted estimator with `predict_proba`, else `decision_function` (then logits), and `classes_`.

    range     `0-255`: the pixels as they are, uint8; `0-1` and others: float64. `auto`: as seen in what the estimator
              keeps of its training data (means, neighbours, thresholds); where it keeps nothing, it must be given. An
              estimator that takes whole images gets the pixels as they are
    flat      whether an image is one row of numbers (H * W * C, in the order of `layout`) or stays an image; found out
              where not given: as one row where the estimator answers that
    size      (H, W), where the number of features is not that of a square image;  channels 1 or 3
    classes   names of the estimator's classes in the order of `classes_`. Without them, texts among `classes_` are
              names and numbers are numbers of classes
    version   any text that changes when the answers do, for an estimator in which that cannot be seen

    Classes of the data that it was not trained on are answered with probability 0. It runs on one thread.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        range: str = "auto",
        layout: str = "nhwc",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        channels: int | None = None,
        flat: bool | None = None,
        classes: str | Path | Sequence[str] | None = None,
        concurrent: bool = False,
        version: str | None = None,
        name: str | None = None,
        base: Path = Path(),
    ) -> None:
        self.estimator, self.version, self.concurrent = estimator, version, concurrent
        self.name = name or type(estimator).__name__
        self._method = _answering_method(estimator, self.name)
        self._labels: list[Any] = _labels(estimator, self.name)
        self.details = {"kind": "sklearn"}
        self.outputs = METHODS[self._method]
        self._columns: tuple[int, ...] | None = None
        self._unbound: SklearnModel | None = None
        self._absent: tuple[str, ...] = ()
        parse_choice("layout", layout, LAYOUTS)
        given = _Input(range, layout, colour, parse_size(size), channels)
        self._flat, self.preprocess = self._input(given, flat)
        self.input_size = self.preprocess.size
        self.num_classes = len(self._labels)
        self.capabilities = frozenset({"probabilities"} | ({"logits"} if self.outputs == "logits" else set()))
        own = read_class_names(classes, base)
        self._named = check_class_names(own, self.num_classes, f"model {self.name}")
        self.class_names = self._named or (
            tuple(self._labels) if all(isinstance(label, str) for label in self._labels) else None
        )
        self.own_labels = self._named or tuple(self._labels)
        if version is None:
            self._identity()

    def for_classes(self, class_names: Sequence[str]) -> SklearnModel:
        """The model as it answers about these classes: columns in their order, 0 for those that it was not trained on.

        A class of its own that is not among them, or numbers that could be meant in two ways, are an `InputError`.
        """
        if self._unbound is not None:
            return self if tuple(class_names) == self.class_names else self._unbound.for_classes(class_names)
        columns = columns_of_labels(self._named or self._labels, class_names, f"model {self.name}")
        bound = copy.copy(self)
        bound._columns, bound.num_classes, bound.class_names = columns, len(class_names), tuple(class_names)
        bound.own_labels, bound._unbound = None, self
        bound._absent = tuple(name for index, name in enumerate(class_names) if index not in columns)
        if bound._absent:
            bound.capabilities = self.capabilities - {"logits"}
            bound.notes = (
                *self.notes,
                f"was not trained on {_listed(bound._absent)}: probability 0",
            )
        return bound

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The estimator's answer to a tensor of images."""
        rows = self._rows(tensor)
        if self._columns is None:
            return prediction(rows, self.outputs)
        values = softmax(rows) if self._absent and self.outputs == "logits" else rows
        spread = np.zeros((len(rows), self.num_classes), np.float32)
        spread[:, list(self._columns)] = values
        return prediction(spread, "probabilities" if self._absent else self.outputs)

    def fingerprint(self) -> str:
        """Hash of all that the estimator holds and of the settings; a `version` stands for what it holds."""
        content = self._identity() if self.version is None else {"version": self.version}
        settings = {**self.preprocess.settings(), "flat": self._flat, "method": self._method}
        answered = {"columns": self._columns, "classes": self.num_classes}
        return digest({"kind": "sklearn", "content": content, "settings": settings, **answered})

    def describe(self) -> dict[str, Any]:
        """What is in use, for people: also which method answers, and which classes it was not trained on."""
        shape = "one row per image" if self._flat else "whole images"
        missing = f"; 0 for {_listed(self._absent)}, absent from training" if self._absent else ""
        known = super().describe()
        return {
            **known,
            "input": f"{known['input']}, {shape}",
            "outputs": f"{self.outputs} ({self._method}){missing}",
        }

    def turn_key(self) -> Hashable:
        """The estimator."""
        return id(self.estimator)

    def _input(self, given: _Input, flat: bool | None) -> tuple[bool, Preprocess]:
        """Whether images become rows, and how they become numbers, tried on probe images."""
        failures: list[str] = []
        as_rows = [(True, given.size)] if flat is not False else []
        as_images = [(False, size) for size in self._sizes(given)] if flat is not True else []
        for is_flat, size in [*as_rows, *as_images]:
            try:
                return is_flat, self._tried(given, is_flat, size)
            except InputError as error:
                failures.append(str(error))
        raise InputError(failures[0])

    def _sizes(self, given: _Input) -> list[tuple[int, int] | None]:
        """Sizes that whole images may have had in training: those of square images with as many rows, or numbers."""
        if given.size is not None:
            return [given.size]
        parts = [self.estimator, *(part for _, part in getattr(self.estimator, "steps", ()))]
        counts = [int(part.n_features_in_) for part in parts if hasattr(part, "n_features_in_")]
        sides = [*counts[:1], *(math.isqrt(count // colours) for count in counts[1:] for colours in (3, 1))]
        return [*dict.fromkeys((side, side) for side in sides if LEAST_SIDE <= side <= MOST_SIDE), None]

    def _tried(self, given: _Input, flat: bool, size: tuple[int, int] | None) -> Preprocess:
        """How images become numbers, where the estimator answers probe images; else an `InputError`."""
        features = getattr(self.estimator, "n_features_in_", None)
        channels = given.channels
        if flat and features is not None:
            size, channels = _image_shape(int(features), size, channels, self.name)
        text, seen = given.range, ""
        if text == "auto":
            text, seen = range_seen_in(self.estimator, self.name) if flat else (PIXELS, "")
        self.notes = (f"range {text}, as {seen} shows",) if seen else ()
        kind = "uint8" if text == PIXELS else "float64"
        steps = Preprocess(text, given.layout, given.colour, size, channels or 0, kind)
        self.preprocess, self._flat = steps, flat

        def run(images: NDArray[np.uint8], channels: int) -> NDArray[Any] | None:
            rows = self._rows(steps(images))
            self._check_order(rows, steps(images))
            return rows

        probe(run, size=size, channels=(channels,) if channels else (3, 1), batch=None, what=f"model {self.name}")
        return steps

    def _rows(self, tensor: NDArray[Any]) -> NDArray[Any]:
        """What the estimator answers to a tensor (N, H, W, C) or (N, C, H, W): a column for each of its classes."""
        values = tensor.reshape(len(tensor), -1) if self._flat else tensor
        answer = np.asarray(_on_one_thread(getattr(self.estimator, self._method), values))
        if self._method == "decision_function" and answer.ndim == 1 and len(self._labels) == 2:
            answer = np.stack([np.zeros_like(answer), answer], axis=1)
        if answer.shape != (len(tensor), len(self._labels)):
            raise ModelError(
                f"{self._method} of model {self.name} answers {answer.shape} to {len(tensor)} images and "
                f"{len(self._labels)} classes: it must be one column per class"
            )
        return answer

    def _check_order(self, rows: NDArray[Any], tensor: NDArray[Any]) -> None:
        """Refuse a decision_function whose largest column is not the class that the estimator itself answers.

        The columns of predict_proba are those of `classes_` by definition; predict may go by other scores.
        """
        if self._method != "decision_function" or len(self._labels) == 2 or not hasattr(self.estimator, "predict"):
            return
        shape = getattr(_last_step(self.estimator), "decision_function_shape", None)
        if shape == "ovr":  # by definition; where votes are equal, predict takes the first class
            return
        values = tensor.reshape(len(tensor), -1) if self._flat else tensor
        own = np.asarray(_on_one_thread(self.estimator.predict, values))
        second, largest = np.sort(rows, axis=1)[:, -2:].T
        differs = np.asarray(self.estimator.classes_)[rows.argmax(axis=1)] != own
        if shape is not None or (differs & (largest > second)).any():
            raise InputError(
                f"model {self.name}: its decision_function is not one score per class: use "
                "decision_function_shape='ovr' or CalibratedClassifierCV"
            )

    def _identity(self) -> Any:
        try:
            return identity_of(self.estimator)
        except Unseen as error:
            raise InputError(
                f"model {self.name} holds {error}, in which a change of its answers could not be seen: give "
                "`version='TEXT'`, and another text with every change"
            ) from None


def looks_like_sklearn(value: Any) -> bool:
    """Whether an object answers like a classifier of scikit-learn, or is an estimator that could be one.

    >>> from sklearn.svm import LinearSVC
    >>> looks_like_sklearn(LinearSVC()), looks_like_sklearn(len)
    (True, False)
    """
    if isinstance(value, type):
        return False
    is_estimator = hasattr(value, "fit") and hasattr(value, "get_params")
    return is_estimator or (any(hasattr(value, method) for method in METHODS) and hasattr(value, "classes_"))


def _answering_method(estimator: Any, name: str) -> str:
    if not hasattr(estimator, "classes_"):
        kind = "is not fitted, or is not a classifier" if hasattr(estimator, "fit") else "is not a classifier"
        raise InputError(f"model {name} {kind}: it has no classes_")
    for method in METHODS:
        if hasattr(estimator, method):
            return method
    raise InputError(
        f"model {name} answers classes and no scores (neither predict_proba nor decision_function): fit it inside "
        "CalibratedClassifierCV, or use an estimator with predict_proba"
    )


def _last_step(estimator: Any) -> Any:
    """What answers at the end of a pipeline or a search over settings."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif getattr(estimator, "steps", None):
            estimator = estimator.steps[-1][1]
        else:
            return estimator


def _labels(estimator: Any, name: str) -> list[Any]:
    """The classes that an estimator knows, in the order of its columns: whole numbers, or texts.

    True and false are texts: which class of the data is the true one cannot be told from their numbers.
    """
    classes = estimator.classes_
    if isinstance(classes, list) and any(np.ndim(part) for part in classes):
        raise InputError(f"model {name} answers several questions at once: only classifiers of one label can be tested")
    values = np.asarray(classes)
    if values.dtype.kind in "iu" or (values.dtype.kind == "f" and np.array_equal(values, np.floor(values))):
        return [int(value) for value in values]
    return [str(value) for value in values]


def _image_shape(
    features: int, size: tuple[int, int] | None, channels: int | None, name: str
) -> tuple[tuple[int, int], int]:
    """Size and channels of the images that have so many numbers: square ones, unless the size is given.

    >>> _image_shape(3072, None, None, "m"), _image_shape(48, (2, 8), None, "m")
    (((32, 32), 3), ((2, 8), 3))
    """
    for tried in (channels,) if channels else (3, 1):
        side = math.isqrt(features // tried)
        height, width = size or (side, side)
        if height * width * tried == features:
            return (height, width), tried
    what = f"not images of {size[0]}x{size[1]}" if size else "not a square image: give `size='HxW'`"
    raise InputError(f"model {name} takes {features} numbers per image, which is {what}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} of the classes ({', '.join(names[:SHOWN])}{more})"


def _on_one_thread(answer: Callable[[Any], Any], values: Any) -> Any:
    """Call a method on one thread: sums that several make together have other bits each time."""
    import joblib

    with joblib.parallel_config(backend="sequential"), one_thread():
        return answer(values)
