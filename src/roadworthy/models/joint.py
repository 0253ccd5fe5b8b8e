"""Two models that answer as one: the first says what the object is, the second where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Buildable, Dataset, Model
from roadworthy.core.types import Batch, Prediction

OF_BOXES = frozenset({"boxes", "box_variance"})


class JointModel(Model):
    """A classifier and a localizer, each with its own network, that answer the same images as one model.

    Classes, logits, samples, certainty, features and gradients are those of `classes`; boxes and their variance are
    those of `boxes`. What else the two answer (boxes of the first, classes of the second) is not asked for.

    >>> from roadworthy.models import CallableModel
    >>> what = CallableModel(lambda images: np.full((len(images), 2), 0.5), num_classes=2, version="1")
    >>> where = CallableModel(lambda images: np.full((len(images), 4), 0.5), boxes="corners relative", version="1")
    >>> model = JointModel(what, where)
    >>> model.columns, model.num_classes
    (('probabilities', 'boxes'), 2)
    """

    def __init__(self, classes: Model, boxes: Model, *, name: str = "joint") -> None:
        for model, column, part in ((classes, "probabilities", "classes"), (boxes, "boxes", "boxes")):
            if column not in model.capabilities:
                raise InputError(
                    f"model {name}: the model given as `{part}` answers no {column}: give one that does, or exchange "
                    "the two"
                )
        self.classes, self.boxes, self.name = classes, boxes, name
        self.num_classes, self.class_names = classes.num_classes, classes.class_names
        self.own_labels = classes.own_labels
        sizes = [model.input_size for model in (classes, boxes)]
        self.input_size = sizes[0] if sizes[0] == sizes[1] else None
        self.concurrent = classes.concurrent and boxes.concurrent
        self.capabilities = (classes.capabilities - OF_BOXES) | (boxes.capabilities & OF_BOXES)
        self.learns_from = classes.learns_from | boxes.learns_from
        self.family = classes.family if classes.family == boxes.family else ""
        methods = dict.fromkeys([classes.uncertainty, boxes.uncertainty])
        self.uncertainty = " and ".join(methods)

    def wrapped(self) -> tuple[Model, ...]:
        """Both models."""
        return self.classes, self.boxes

    def requires(self) -> tuple[Buildable, ...]:
        """What both are made of."""
        return (*self.classes.requires(), *self.boxes.requires())

    def with_data(self, data: Mapping[str, Dataset]) -> JointModel:
        """Both with the data they learn from."""
        if not self.learns_from:
            return self
        return JointModel(self.classes.with_data(data), self.boxes.with_data(data), name=self.name)

    def for_repeat(self, repeat: int) -> JointModel:
        """Those who answer in this repeat, as one: the model itself unless one of them is trained anew."""
        classes, boxes = self.classes.for_repeat(repeat), self.boxes.for_repeat(repeat)
        same = classes is self.classes and boxes is self.boxes
        return self if same else JointModel(classes, boxes, name=self.name)

    def for_classes(self, class_names: Sequence[str]) -> JointModel:
        """The classifier as it answers about these classes, with the same localizer."""
        classes = self.classes.for_classes(class_names)
        return self if classes is self.classes else JointModel(classes, self.boxes, name=self.name)

    def fingerprint(self) -> str:
        """Hash of both."""
        parts = {"classes": self.classes.fingerprint(), "boxes": self.boxes.fingerprint()}
        return digest({"kind": "joint", **parts})

    def predict(self, batch: Batch) -> Prediction:
        """The classes of the one and the boxes of the other; each is asked in batches of the size it insists on."""
        what, where = (model.answer(batch, max(len(batch), 1)) for model in (self.classes, self.boxes))
        return what.changed(boxes=where.boxes, box_variance=where.box_variance)

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """Those of the classifier."""
        return self.classes.features(batch, layer)

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """That of the classifier."""
        return self.classes.input_gradient(batch)

    def describe(self) -> dict[str, Any]:
        """What is in use, for people: of both models."""
        parts: list[dict[str, Any]] = [getattr(model, "describe", dict)() for model in (self.classes, self.boxes)]
        shown = {
            key: f"classes: {parts[0].get(key, 'unknown')}; boxes: {parts[1].get(key, 'unknown')}"
            for key in ("input", "outputs", "batch", "device")
            if any(key in part for part in parts)
        }
        notes = tuple(note for part in parts for note in part.get("notes", ()))
        form = {"boxes": parts[1]["boxes"]} if "boxes" in parts[1] else {}
        return {"kind": "joint", **shown, **form, "notes": notes}

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What both say of how they were made, by task."""
        tasks = {"classes": self.classes, "boxes": self.boxes}
        return {task: model.facts().get(task, {}) for task, model in tasks.items()}
