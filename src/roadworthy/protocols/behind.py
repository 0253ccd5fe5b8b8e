"""What stands behind a row of a table: the cases whose answers it was computed from, and which images of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.base import Part, Protocol, StoredCase
from roadworthy.protocols.condition_columns import Breakdown
from roadworthy.protocols.condition_slices import Slicing

SLICE = ("condition", "condition_value")
"""The columns that name the images which show one value of a condition."""
BIN = ("bin", "from", "to")
"""The columns of a row on the answers whose confidence lies in one bin; it has a column for their mean too."""
CONDITIONS = "cases"
"""The column that says over how many conditions a row is the mean: those of disturbed data."""
OF_IMAGES = frozenset({"class", "label", "prediction", "id", *SLICE})
"""Columns that choose among the images of a case, where a value in them is known."""

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Behind:
    """The cases behind a row, in their order, and which of their images it speaks of: all, where nothing is said.

    label, prediction   names of classes: the true one, and the one that was answered
    image               the id of one image
    confidence          above the first number, and not above the second
    condition           a condition of the data and its value
    unclear             columns that tell the row from others, and not which images they stand for
    """

    cases: tuple[StoredCase, ...]
    label: str | None = None
    prediction: str | None = None
    image: str | None = None
    confidence: tuple[float, float] | None = None
    condition: tuple[str, str] | None = None
    unclear: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cases)

    @property
    def words(self) -> tuple[str, ...]:
        """What chooses among the images, in words."""
        words = []
        if self.label is not None:
            words.append(f"of class {self.label}")
        if self.prediction is not None:
            words.append(f"answered as {self.prediction}")
        if self.image is not None:
            words.append(f"the image {self.image}")
        if self.confidence is not None:
            words.append(f"with a confidence from {self.confidence[0]:g} to {self.confidence[1]:g}")
        if self.condition is not None:
            words.append(f"whose {self.condition[0]} is {self.condition[1]}")
        return tuple(words)

    def in_condition(self, part: Part, ids: Sequence[str]) -> Rows | None:
        """The rows of the images with these ids that show the value of the condition; None where none is named."""
        if self.condition is None:
            return None
        name, value = self.condition
        return Slicing(part.context, part.cases).rows({name: (value,)}, ids)


def behind(protocol: Protocol, part: Part, row: Mapping[str, Any], key: Sequence[str] = ()) -> Behind:
    """What stands behind a row of a table of a protocol, among the stored cases of the source that the row is of.

    row   its cells by column;  key: the columns that identify it

    A case stands behind it where it has the values of all columns that cases are told apart by (`row_facts`); a row
    that has none of these columns, such as one of a test over repeats, rests on no single images. A row without a
    column is a mean over it, and all its cases stand behind.
    """
    known = [(case, protocol.row_facts(case)) for case in part.cases]
    named = {name: _text(row[name]) for name in {name for _, facts in known for name in facts} if name in row}
    if not named:
        return Behind(())
    chosen = [case for case, facts in known if {k: _text(v) for k, v in facts.items() if k in named} == named]
    if CONDITIONS in row and "shift" not in row:
        chosen = [case for case in chosen if case.stimulus.name != UNDISTURBED]
    of_images = _of_images(part, row)
    understood = {
        *named,
        "metric",
        "source",
        *(OF_IMAGES if of_images else ()),
        *(BIN if "confidence" in of_images else ()),
    }
    return Behind(tuple(chosen), **of_images, unclear=tuple(name for name in key if name not in understood))


def _of_images(part: Part, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says of single images."""
    values: dict[str, Any] = {}
    if (label := row.get("class", row.get("label"))) in part.class_names:
        values["label"] = label
    if row.get("prediction") in part.class_names:
        values["prediction"] = row["prediction"]
    if isinstance(row.get("id"), str):
        values["image"] = row["id"]
    if "confidence" in row and all(isinstance(row.get(name), int | float) for name in BIN):
        values["confidence"] = float(row["from"]), float(row["to"])
    if isinstance(part.context, Breakdown) and row.get(SLICE[0]) in part.context.conditions:
        values["condition"] = row[SLICE[0]], str(row[SLICE[1]])
    return values


def _text(value: Any) -> str:
    """A value as it is compared: level 3 is 3.0."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
