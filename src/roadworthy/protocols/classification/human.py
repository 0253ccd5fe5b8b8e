"""What people answered in a quiz (`roadworthy preview --quiz`): read, checked, and counted beside the models.

A person is shown single images of the study, disturbed as in its first repeat, and names the class. Images are named by
a digest of their id, which may hold the class. Who cannot tell says so, which counts as wrong.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roadworthy.core.cells import unescape_cell
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.grouping import grouped
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Dataset
from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.base import StoredCase
from roadworthy.statistics import Estimate, proportion_interval
from roadworthy.statistics.estimates import failed_estimate

HumanAnswers = dict[str, dict[str, dict[str, str]]]
"""By person, stimulus and image: the class that was answered, empty where the person could not tell."""
COLUMNS = ("person", "stimulus", "image", "answer")
"""Of the file that a quiz saves."""
PEOPLE, MODEL = "people", "model"
"""Who answered."""


def image_key(image_id: str) -> str:
    """How a quiz names an image: the first 16 digits of the SHA-256 of its id."""
    return digest(image_id)[:16]


@dataclass(frozen=True)
class QuizImages:
    """The test images by row: their ids, classes (as indices) and objects, and the names of the classes."""

    ids: Sequence[str]
    labels: Sequence[int]
    groups: Sequence[str]
    class_names: Sequence[str]

    @classmethod
    def of(cls, data: Dataset) -> QuizImages:
        """Those of a data set."""
        return cls(data.ids, data.labels.tolist(), data.groups, data.class_names)

    def row_of(self) -> dict[str, int]:
        """The row of each image by its key in a quiz."""
        return {image_key(image_id): row for row, image_id in enumerate(self.ids)}


def read_answers(path: Path) -> HumanAnswers:
    """The file that a quiz saved; files of several people can be put one below the other, under one header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, strict=True))
    except OSError as error:
        raise InputError(f"human answers {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"human answers {path} are no CSV file in UTF-8: {error}") from None
    if not rows or tuple(rows[0]) != COLUMNS:
        raise InputError(f"human answers {path} must have the columns {', '.join(COLUMNS)}, as a quiz saves them")
    answers: HumanAnswers = {}
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(COLUMNS):
            raise InputError(f"human answers {path}: row {line} has {len(row)} cells, not {len(COLUMNS)}")
        person, stimulus, image, answer = map(unescape_cell, row)
        given = answers.setdefault(person, {}).setdefault(stimulus, {})
        if image in given:
            raise InputError(f"human answers {path}: row {line} answers an image of {stimulus} a second time")
        given[image] = answer
    if not answers:
        raise InputError(f"human answers {path} hold no answer")
    return answers


def check_answers(answers: HumanAnswers, stimuli: Sequence[str], images: QuizImages) -> None:
    """Refuse answers to what the study does not show, and answers that are no class of it."""
    rows = images.row_of()
    for by_stimulus in answers.values():
        for stimulus, given in by_stimulus.items():
            if stimulus not in stimuli:
                raise InputError(
                    f"human answers are to {stimulus}, which the study does not show: they were given to a quiz of "
                    "other data, another seed or other levels"
                )
            for image, answer in given.items():
                if image not in rows:
                    raise InputError(
                        f"human answers to {stimulus} name the image {image}, which the data does not have"
                    )
                if answer and answer not in images.class_names:
                    raise InputError(f"human answers: {UnknownName('class', answer, images.class_names)}")


def people_rows(
    answers: HumanAnswers, conditions: Mapping[str, tuple[str, float]], images: QuizImages
) -> Iterator[dict[str, Any]]:
    """How often people were right, by shift and level: `conditions` by the key of a stimulus. Bounds count objects."""
    rows = images.row_of()
    given = grouped(
        (conditions[stimulus], (person, rows[image], answer))
        for person, by_stimulus in answers.items()
        for stimulus, own in by_stimulus.items()
        for image, answer in own.items()
    )
    for condition in sorted(given, key=_order):
        own = given[condition]
        right = [float(answer == images.class_names[images.labels[row]]) for _, row, answer in own]
        estimate = proportion_interval(right, [images.groups[row] for _, row, _ in own])
        counts = {"people": len({person for person, _, _ in own}), "cannot_tell": sum(not a for _, _, a in own)}
        yield estimate.row(_where(PEOPLE, "", condition) | counts, "accuracy")


def model_rows(answers: HumanAnswers, cases: Sequence[StoredCase], images: QuizImages) -> Iterator[dict[str, Any]]:
    """How often each model was right on the very images that people were shown."""
    rows = images.row_of()
    asked: dict[str, set[int]] = {}
    for by_stimulus in answers.values():
        for stimulus, given in by_stimulus.items():
            asked.setdefault(stimulus, set()).update(rows[image] for image in given)
    shown = [case for case in cases if case.stimulus.key in asked]
    for case in sorted(shown, key=lambda case: (case.system, _order((case.stimulus.name, case.stimulus.level)))):
        where = _where(MODEL, case.system, (case.stimulus.name, case.stimulus.level))
        estimate = _estimate(case, sorted(asked[case.stimulus.key]), images)
        yield estimate.row(where | {"people": 0, "cannot_tell": 0}, "accuracy")


def _estimate(case: StoredCase, rows: Sequence[int], images: QuizImages) -> Estimate:
    if case.failure:
        return failed_estimate(case.failure)
    right = case.load().answers.correct
    return proportion_interval([float(right[row]) for row in rows], [images.groups[row] for row in rows])


def _order(condition: tuple[str, float]) -> tuple[bool, str, float]:
    """Undisturbed images first, then by name and level."""
    return condition[0] != UNDISTURBED, *condition


def _where(answered_by: str, model: str, condition: tuple[str, float]) -> dict[str, Any]:
    return {"answered_by": answered_by, "model": model, "shift": condition[0], "level": condition[1]}
