"""Cells: what the stored answers of one model to one set come to, in one view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.engine.readouts import FULL_CLASSES, Readouts
from roadworthy.metrics import Answers, Metric
from roadworthy.metrics.boxes import BOX_METRICS, BoxAnswers
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.localization.metrics import CLASS_METRICS
from roadworthy.protocols.localization.names import ALL, BOXES, CLASSES
from roadworthy.protocols.localization.settings import SetNote
from roadworthy.protocols.localization.views import View
from roadworthy.statistics import GroupBootstrap
from roadworthy.statistics.estimates import bounding_bootstrap
from roadworthy.statistics.summaries import MetricSummary, Objects, summarise_metrics

METRICS_OF: Mapping[str, tuple[Metric, ...]] = {CLASSES: CLASS_METRICS, BOXES: BOX_METRICS}
NO_IMAGE_IN_VIEW = "no image of this set shows a class of this view"
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class CellKey:
    """One model on one set in one view."""

    model: str
    family: str
    uncertainty: str
    set: str
    shift: str
    level: float
    view: str

    def where(self) -> dict[str, Any]:
        """The columns that identify it."""
        return {**vars(self)}

    @property
    def of_model(self) -> dict[str, str]:
        """The columns that name its model."""
        return {"model": self.model, "family": self.family, "uncertainty": self.uncertainty}


@dataclass(frozen=True)
class TaskCell:
    """What is kept of one task: summary of its metrics, the rows of the set that count, and their objects."""

    summary: MetricSummary
    rows: Rows
    objects: Objects


@dataclass(frozen=True)
class Cell:
    """The tasks that a model answers in a view of a set; of those without figures, why."""

    tasks: Mapping[str, TaskCell]
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass
class SetRows:
    """The images of a set, as the first of its cases stores them; resamples are drawn once for all models.

    ids, groups (N,), labels (N,) of the source;  without_box: images that have no true box
    """

    note: SetNote
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    resamples: int
    seed: int
    without_box: int = 0
    inflation: float = float("nan")
    _drawn: dict[bytes, tuple[GroupBootstrap, Objects]] = field(default_factory=dict)

    def drawn(self, rows: Rows, num_classes: int) -> tuple[GroupBootstrap, Objects]:
        """Resamples of the objects that some rows show, and these objects."""
        key = rows.tobytes() + num_classes.to_bytes(4, "little")
        if key not in self._drawn:
            names, index = np.unique(np.array(self.groups, dtype=object)[rows], return_inverse=True)
            bootstrap = bounding_bootstrap(index, self.resamples, self.seed)
            self._drawn[key] = bootstrap, Objects(index, len(names), num_classes)
        return self._drawn[key]


@dataclass(frozen=True)
class StoredSet:
    """The stored answers of one model to one set, in every repeat."""

    cases: Sequence[StoredCase]

    @cached_property
    def readouts(self) -> list[Readouts]:
        """Of every repeat."""
        return [case.load() for case in self.cases]

    def probabilities(self) -> list[NDArray[Any] | None]:
        """(N, K) of every repeat; None where there are too many classes to store them."""
        return [
            case.columns("probabilities")["probabilities"].astype(np.float64) if has_all(own.answers) else None
            for case, own in zip(self.cases, self.readouts, strict=True)
        ]


def has_all(answers: Answers) -> bool:
    """Whether all probabilities of answers are stored."""
    return answers.num_classes <= FULL_CLASSES


def box_rows(readouts: Sequence[Readouts]) -> Rows:
    """The images that have a true box in every repeat."""
    known = [~np.isnan(own.true_box).any(axis=1) for own in readouts if own.true_box is not None]
    return np.flatnonzero(np.logical_and.reduce(known)) if known else np.zeros(0, np.intp)


def box_answers(own: Readouts, rows: Rows) -> BoxAnswers:
    """The boxes of some rows beside the true ones."""
    assert own.true_box is not None
    assert own.boxes is not None
    variance = None if own.box_variance is None else own.box_variance[rows]
    return BoxAnswers(own.true_box[rows], own.boxes[rows], variance)


def make_cell(stored: StoredSet, images: SetRows, view: View, view_name: str) -> Cell:
    """Measure both tasks of a model on a set, as far as the model answers and the set has truth."""
    readouts, tasks, missing = stored.readouts, {}, {}
    if any(own.ids != images.ids for own in readouts):
        raise InputError("the readouts of a set are of other images in different cases: run the study again")
    if readouts[0].classified is not None:
        if not images.note.labelled:
            missing[CLASSES] = "the objects of this set belong to no class of the source"
        elif not len(view.rows(readouts[0].answers.label)):
            missing[CLASSES] = NO_IMAGE_IN_VIEW
        elif view.merge and not has_all(readouts[0].answers):
            missing[CLASSES] = "merged classes need all probabilities, which are not stored for so many classes"
        else:
            tasks[CLASSES] = _classes(stored, images, view)
    if readouts[0].boxes is not None:
        with_box = rows = box_rows(readouts)
        if view_name != ALL:
            rows = np.intersect1d(with_box, view.rows(_labels(stored)))
        if not len(rows):
            missing[BOXES] = NO_IMAGE_IN_VIEW if len(with_box) else "no image of this set has a true box"
        else:
            bootstrap, objects = images.drawn(rows, 1)
            answers = [box_answers(own, rows) for own in readouts]
            tasks[BOXES] = TaskCell(summarise_metrics(answers, BOX_METRICS, bootstrap), rows, objects)
    return Cell(tasks, missing)


def _labels(stored: StoredSet) -> NDArray[np.int64]:
    return np.asarray(stored.cases[0].columns("label")["label"], np.int64)


def _classes(stored: StoredSet, images: SetRows, view: View) -> TaskCell:
    readouts, probabilities = stored.readouts, stored.probabilities()
    answers = [view.answers(own.answers, probability) for own, probability in zip(readouts, probabilities, strict=True)]
    rows = view.rows(readouts[0].answers.label)
    bootstrap, objects = images.drawn(rows, answers[0].num_classes)
    return TaskCell(summarise_metrics(answers, CLASS_METRICS, bootstrap), rows, objects)
