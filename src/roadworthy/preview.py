"""Contact sheets of shifts, and the aid that helps to choose level tables for another data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import SHIFTS, Dataset, Model, Shift
from roadworthy.core.types import Batch
from roadworthy.core.validation import parse_size, read_yaml
from roadworthy.data import open_dataset
from roadworthy.engine.plan import BATCH
from roadworthy.models import load_model
from roadworthy.protocols.pictures import write_picture
from roadworthy.shifts import Attack, find_shift, make_shift, shift_levels
from roadworthy.shifts.distances import ThroughDistance
from roadworthy.shifts.preview import contact_sheet, level_similarity

CALIBRATION_IMAGES = 256


@dataclass(frozen=True)
class LevelMeasure:
    """How much a shift changes the images at a level and, where a model is given, how many it still gets right."""

    shift: Shift
    similarity: float
    accuracy: float | None

    def caption(self) -> str:
        """Two short lines over a column of the contact sheet."""
        second = f"ssim {self.similarity:.2f}" + ("" if self.accuracy is None else f" acc {self.accuracy:.2f}")
        return f"{self.shift.name} {self.shift.level}\n{second}"

    def line(self) -> str:
        """A line of the printed table."""
        accuracy = "" if self.accuracy is None else f" {self.accuracy:>9.3f}"
        settings = ", ".join(f"{name} {value}" for name, value in self.shift.parameters().items())
        return f"{self.shift.name:<22} {self.shift.level:>5} {self.similarity:>10.3f}{accuracy}  {settings}"


def write_preview(
    shift: str | None,
    data: str | None,
    out: Path,
    *,
    calibrate: bool = False,
    model: str | None = None,
    model_settings: dict[str, Any] | None = None,
    levels: Path | None = None,
    severities: Sequence[float] = (),
    size: str | None = None,
    trust: bool = False,
    unpickle: bool = False,
    images: int = 4,
    seed: int = 0,
) -> Iterator[str]:
    """Write a contact sheet of all levels of a shift, or of every shift; yields the lines to print.

    `severities` are shown in place of the levels: whole ones are levels, others lie between two. Without `data` the
    built-in signs are shown, or traffic scenes where the shift goes by distance. `calibrate` adds similarity and
    accuracy over each level. A shift that cannot be shown is an error; where all are asked for, a line.
    """
    if levels is not None and shift is None:
        raise InputError("--levels needs the name of one shift")
    if model is not None and not calibrate:
        raise InputError("--model is only used with --calibrate")
    if shift is not None and issubclass(find_shift(shift), Attack):
        raise InputError(
            f"{shift} is an attack on a model and has no look of its own: the report of a run shows what it did"
        )
    opened = (
        load_model(model, name="model", trust=trust, unpickle=unpickle, **(model_settings or {})) if model else None
    )
    dataset = open_dataset(
        data or _shown_by(shift), size=parse_size(size), fallback_size=opened.input_size if opened else (64, 64)
    )
    table = None if levels is None else _level_table(levels)
    sample = dataset.batch(first_of_classes(dataset, images))
    series = []
    for name in [shift] if shift else SHIFTS:
        try:
            members = [member.over(dataset) for member in _members(name, severities, table)]
            members[0](sample, Streams(seed, name))
            series.append(members)
        except InputError as error:
            if shift:
                raise
            yield f"{name} is left out: {error}"
    captions: list[list[str] | None] = [None] * len(series)
    if calibrate:
        larger = dataset.batch(first_of_classes(dataset, CALIBRATION_IMAGES))
        yield f"{len(larger)} images; similarity is mean SSIM to the undisturbed image (1 = the same)"
        yield (
            f"{'shift':<22} {'level':>5} {'similarity':>10}" + (f" {'accuracy':>9}" if opened else "") + "  parameters"
        )
        if opened:
            yield f"{'none':<22} {0:>5} {1.0:>10.3f} {_accuracy(opened, larger):>9.3f}"
        for index, members in enumerate(series):
            measures = [measure_level(larger, member, opened, seed) for member in members]
            captions[index] = [measure.caption() for measure in measures]
            yield from (measure.line() for measure in measures)
    sheets = [contact_sheet(sample, s, seed=seed, captions=c) for s, c in zip(series, captions, strict=True)]
    width = max(sheet.shape[1] for sheet in sheets)
    padded = [np.pad(s, ((0, 0), (0, width - s.shape[1]), (0, 0)), constant_values=255) for s in sheets]
    try:
        write_picture(out, np.vstack(padded))
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from None
    yield f"contact sheet: {out}"


def _members(name: str, severities: Sequence[float], table: dict[int, dict[str, Any]] | None) -> list[Shift]:
    """The shift at each of the severities, or at all of its levels where none is given."""
    if severities:
        return [make_shift(name, severity, table) for severity in severities]
    return shift_levels(name, range(1, len(find_shift(name).LEVELS) + 1) or [1], table)


def _shown_by(shift: str | None) -> str:
    """The built-in data that a shift is shown with where none is given; with depth where it goes by distance."""
    by_distance = shift is not None and issubclass(find_shift(shift), ThroughDistance)
    return "builtin:traffic" if by_distance else "builtin:signs"


def _level_table(path: Path) -> dict[int, dict[str, Any]]:
    """The user's own level table: a number, then its parameters."""
    try:
        return TypeAdapter(dict[Annotated[int, Field(ge=1)], dict[str, Any]]).validate_python(read_yaml(path, "levels"))
    except ValidationError:
        raise InputError(f"levels {path} must look like {{1: {{factor: 0.1}}, 2: {{factor: 0.3}}}}") from None


def first_of_classes(dataset: Dataset, count: int) -> list[int]:
    """Row numbers of `count` images spread over the classes: the first of each, then the second, and so on."""
    rank_of: dict[int, int] = {}
    order = []
    for row, label in enumerate(dataset.labels.tolist()):
        rank_of[label] = rank_of.get(label, -1) + 1
        order.append((rank_of[label], label, row))
    return [row for _, _, row in sorted(order)[:count]]


def measure_level(batch: Batch, shift: Shift, model: Model | None, seed: int) -> LevelMeasure:
    """Mean structural similarity to the undisturbed images and, with a model, its accuracy."""
    accuracy = None
    if model is not None:
        accuracy = _accuracy(model, shift(batch, Streams(seed, shift.name)))
    return LevelMeasure(shift, level_similarity(batch, shift, seed), accuracy)


def _accuracy(model: Model, batch: Batch) -> float:
    answered = model.answer(batch, BATCH).probabilities.argmax(axis=1)
    return float((answered == batch.labels).mean())
