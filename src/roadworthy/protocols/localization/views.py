"""Views: which classes count, and classes merged into parents, as functions of stored probabilities and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.metrics import Answers
from roadworthy.metrics.class_probabilities import ProbabilityAnswers

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class View:
    """A choice of classes: `only` some of them (all where none is named), merged into parents (parent to children).

    >>> view = View(("car", "truck", "sign"), merge={"vehicle": ("car", "truck")})
    >>> view.names, view.merged(np.array([[0.25, 0.25, 0.5]])).tolist(), view.labels(np.array([1, 2])).tolist()
    (('vehicle', 'sign'), [[0.5, 0.5]], [0, 1])
    """

    class_names: tuple[str, ...]
    only: tuple[str, ...] = ()
    merge: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*self.only, *(child for children in self.merge.values() for child in children)):
            if name not in self.class_names:
                raise UnknownName("class of the source", name, self.class_names)
        for parent, children in self.merge.items():
            if parent in self.class_names and parent not in children:
                raise InputError(
                    f"merge: {parent} is a class of the source itself: name it among the classes that are merged into "
                    "it, or give the parent class another name"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The classes that are told apart, in the order of the source's classes, a parent where its first child is."""
        parents = {child: parent for parent, children in self.merge.items() for child in children}
        return tuple(dict.fromkeys(parents.get(name, name) for name in self.class_names))

    @property
    def columns(self) -> Indices:
        """For each class of the source (K,) the class that it counts as."""
        parents = {child: parent for parent, children in self.merge.items() for child in children}
        return np.array([self.names.index(parents.get(name, name)) for name in self.class_names], np.int64)

    def rows(self, labels: Indices) -> NDArray[np.intp]:
        """The images (labels (N,) of the source) that count."""
        if not self.only:
            return np.arange(len(labels))
        return np.flatnonzero(np.isin(labels, [self.class_names.index(name) for name in self.only]))

    def labels(self, labels: Indices) -> Indices:
        """Labels (N,) of the source as labels of this view."""
        return np.asarray(self.columns[labels], np.int64)

    def merged(self, probabilities: Floats) -> Floats:
        """Probabilities (N, K) of the source's classes as those of this view: those of children are added."""
        merged = np.zeros((len(probabilities), len(self.names)))
        np.add.at(merged.T, self.columns, probabilities.T)
        return merged

    def answers(self, stored: Answers, probabilities: Floats | None) -> Answers:
        """The answers that count, with the classes of this view; merged classes need the probabilities (N, K)."""
        rows = self.rows(stored.label)
        if self.merge and probabilities is None:
            raise ValueError("merged classes need all probabilities, and these are not stored for so many classes")
        if self.merge and probabilities is not None:
            merged, labels = self.merged(probabilities[rows]), self.labels(stored.label[rows])
            return ProbabilityAnswers.from_probabilities(merged, labels)
        known = stored.take(rows)
        if probabilities is None:
            return known
        columns = {column.name: getattr(known, column.name) for column in fields(known)}
        return ProbabilityAnswers(**columns, probabilities=probabilities[rows])
