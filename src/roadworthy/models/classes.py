"""Class names of a model: reading them, and putting a model's columns in the order of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Buildable, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.core.validation import check_no_nul, read_classes


def read_class_names(classes: str | Path | Sequence[str] | None, base: Path = Path()) -> tuple[str, ...] | None:
    """Names in the model's order, from a sequence or a text file with one name per line.

    >>> read_class_names(["stop", "yield"])
    ('stop', 'yield')
    """
    if classes is None:
        return None
    if isinstance(classes, str | Path):
        names, source = read_classes(base / classes), str(base / classes)
    else:
        names, source = tuple(str(name) for name in classes), "the list of classes"
    check_no_nul("class name", names)
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"{source} names a class twice: {', '.join(twice[:3])}")
    if len(names) < 2:
        raise InputError(f"{source} names {len(names)} classes: a classifier has at least two")
    return names


def check_class_names(names: tuple[str, ...] | None, num_classes: int, what: str) -> tuple[str, ...] | None:
    """The names where there are as many as the model answers; else an error.

    >>> check_class_names(("stop", "yield"), 2, "m.onnx")
    ('stop', 'yield')
    """
    if names is not None and len(names) != num_classes:
        raise InputError(f"{what} answers {num_classes} classes but {len(names)} class names were given")
    return names


def box_hint(columns: int) -> str:
    """The end of a message on a wrong number of classes, for answers that may be boxes: four numbers, or eight.

    >>> box_hint(7), box_hint(4)
    ('', "; if they are the corners or centre of a box, declare `boxes='corners pixels'` or another form")
    """
    if columns not in (4, 8):
        return ""
    return "; if they are the corners or centre of a box, declare `boxes='corners pixels'` or another form"


def columns_of_labels(labels: Sequence[int | str], class_names: Sequence[str], what: str) -> tuple[int, ...]:
    """The column of the data that each label of a model stands for: texts by name, whole numbers by name or number.

    Numbers are those of the classes, from 0, unless the classes themselves are called by numbers. A label without a
    class, or numbers that could be meant both ways, are an `InputError`.

    >>> columns_of_labels(["yield", "stop"], ["go", "stop", "yield"], "m"), columns_of_labels([0, 2], "abc", "m")
    ((2, 1), (0, 2))
    """
    by_name = {name: index for index, name in enumerate(class_names)}
    ways: list[dict[Any, int]] = [by_name]
    if not any(isinstance(label, str) for label in labels):
        called = {int(name): index for name, index in by_name.items() if name.isdecimal()}
        ways = [dict(enumerate(range(len(class_names)))), *([called] if len(called) == len(class_names) else [])]
    columns = list(dict.fromkeys(tuple(way[label] for label in labels) for way in ways if set(labels) <= set(way)))
    if len(columns) == 1:
        return columns[0]
    if columns:
        raise InputError(
            f"{what} knows the classes {_few(labels)}, which may be numbers of classes or their names "
            f"({_few(class_names)}): say with `classes=` which they are, in the model's order"
        )
    unknown = [label for label in labels if not any(label in way for way in ways)] or list(labels)
    raise InputError(
        f"{what} knows the classes {_few(unknown)}, which the data has not: it has {_few(class_names)}; name them in "
        "the data's words and the model's order with `classes=`"
    )


def _few(values: Sequence[Any]) -> str:
    return ", ".join(map(repr, values[:4])) + (", ..." if len(values) > 4 else "")


def align(model: Model, class_names: Sequence[str]) -> Model:
    """The model with its columns in the order of the data's classes.

    A model that names no classes, or the same ones in the same order, comes back as it is: its columns are taken to be
    in the data's order.
    """
    model = model.for_classes(class_names)
    if len(class_names) != model.num_classes:
        raise InputError(
            f"model {model.name} answers {model.num_classes} classes but the data has {len(class_names)}: fix the "
            f"order and number of classes with `classes=`{box_hint(model.num_classes)}"
        )
    if model.class_names is None or tuple(class_names) == tuple(model.class_names):
        return model
    missing = [name for name in class_names if name not in model.class_names]
    if missing:
        raise InputError(
            f"model {model.name} has no class named {', '.join(map(repr, missing[:3]))} "
            f"({len(missing)} of the data's classes); it has {', '.join(map(repr, model.class_names[:5]))}, ..."
        )
    return AlignedModel(model, tuple(class_names))


class Wrapper(Model):
    """A model that answers by another one: all that a subclass does not change is the other's own."""

    only_rescales: ClassVar[bool] = False
    """Whether it asks the model once about the images as they are and changes nothing but the numbers of its answer."""

    def __init__(self, model: Model, name: str | None = None) -> None:
        self.model, self.name, self.num_classes = model, name or model.name, model.num_classes
        self.class_names, self.input_size = model.class_names, model.input_size
        self.own_labels = model.own_labels
        self.fixed_batch, self.concurrent = model.fixed_batch, model.concurrent
        self.capabilities, self.learns_from = model.capabilities, model.learns_from
        self.family, self.uncertainty = model.family, model.uncertainty

    def wrapped(self) -> tuple[Model, ...]:
        """The model."""
        return (self.model,)

    def requires(self) -> tuple[Buildable, ...]:
        """What the model is made of."""
        return self.model.requires()

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What the model says of how it was made; nothing where it says nothing."""
        return self.model.facts()

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """The model's own."""
        return self.model.features(batch, layer)


class AlignedModel(Wrapper):
    """A model whose columns are put in another order of classes; everything else is the model's own."""

    def __init__(self, model: Model, class_names: tuple[str, ...]) -> None:
        if model.class_names is None or sorted(model.class_names) != sorted(class_names):
            raise InputError(f"model {model.name} does not answer the classes {', '.join(class_names[:5])}, ...")
        super().__init__(model)
        self.order = np.array([model.class_names.index(name) for name in class_names])
        self.class_names: tuple[str, ...] = class_names

    def fingerprint(self) -> str:
        """The model's own with the order of the columns."""
        return digest({"model": self.model.fingerprint(), "order": self.order})

    def for_repeat(self, repeat: int) -> Model:
        """What answers in this repeat, with its columns in the same order."""
        member = self.model.for_repeat(repeat)
        return self if member is self.model else AlignedModel(member, self.class_names)

    def predict(self, batch: Batch) -> Prediction:
        """The model's answer with reordered columns."""
        answer = self.model.predict(batch)
        logits = None if answer.logits is None else answer.logits[:, self.order]
        samples = None if answer.samples is None else answer.samples[..., self.order]
        return answer.changed(probabilities=answer.probabilities[:, self.order], logits=logits, samples=samples)

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """The model's own, with the labels put in its order."""
        labels = np.where(batch.labels < 0, batch.labels, self.order[batch.labels])
        return self.model.input_gradient(replace(batch, labels=labels))

    def describe(self) -> dict[str, Any]:
        """The model's own description, with the order noted."""
        describe = getattr(self.model, "describe", dict)
        return {**describe(), "class order": "columns put in the order of the data's class names"}
