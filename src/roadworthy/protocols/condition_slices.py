"""Slices of the test data by the user's conditions: which images they hold, and which of them a criterion asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.engine.conditions import CONDITION
from roadworthy.engine.plan import PlannedCase
from roadworthy.metrics.coverage import condition_text
from roadworthy.protocols.base import KnownCase, StoredCase
from roadworthy.protocols.condition_columns import ROLE, Breakdown
from roadworthy.statistics.estimates import failed_estimate
from roadworthy.verdict import Criterion

EVERYWHERE = ("protocol", "source")
"""What a criterion of any protocol may say in `where`, beside the conditions of its own."""

NO_IMAGE = "no image shows it"

Rows = NDArray[np.intp]
Slice = Mapping[str, tuple[str, ...]]
"""Conditions, each with the values of which an image shows one; all conditions hold."""


def is_of_data(case: KnownCase | PlannedCase) -> bool:
    """Whether a case holds the conditions of the data, and no answers."""
    return dict(case.labels) == ROLE


@dataclass(frozen=True)
class Asked:
    """What a criterion asks for: the criterion without its conditions of the data, and the slices that these name.

    slices  one per combination of values, or one of all where `over` is pooled; none where it names no such condition
    """

    criterion: Criterion
    slices: tuple[Slice, ...] = ()


def asked_slices(breakdown: Breakdown, criterion: Criterion, columns: Sequence[str]) -> Asked:
    """Part a criterion into what the protocol knows by its own `columns` and what the data says; see `Asked`.

    A column of the data that has the name of one of the protocol's is written `condition:NAME`; others may be. An
    unknown column, or a value that no image shows, is an `InputError`.
    """
    label, own = f"criterion {criterion.id}", dict[str, Any]()
    chosen = dict[str, tuple[str, ...]]()
    spoken = {spoken_name(name, columns): name for name in breakdown.conditions}
    for key, wanted in criterion.where.items():
        bare = key.removeprefix(CONDITION)
        if key in columns or key in EVERYWHERE:
            own[key] = wanted
        elif bare in breakdown.conditions:
            if bare in chosen:
                raise InputError(f"{label} names the condition {bare!r} twice")
            known = breakdown.conditions[bare]
            values = wanted if isinstance(wanted, list) else [wanted]
            if not values:
                raise InputError(f"{label} names no value of {bare}")
            chosen[bare] = tuple(dict.fromkeys(_known_value(label, bare, value, known) for value in values))
        elif bare in breakdown.left_out:
            raise InputError(f"{label}: the column {bare} of the data is no condition here: {breakdown.left_out[bare]}")
        else:
            raise InputError(f"{label}: {UnknownName('condition', key, [*columns, 'protocol', *spoken])}")
    if not chosen:
        return Asked(criterion)
    narrowed = criterion.model_copy(update={"where": own})
    if criterion.over == "pooled":
        return Asked(narrowed, (chosen,))
    single = product(*([(value,) for value in values] for values in chosen.values()))
    return Asked(narrowed, tuple(dict(zip(chosen, values, strict=True)) for values in single))


def spoken_name(name: str, columns: Sequence[str]) -> str:
    """How a criterion names a column of the data: with the prefix `condition:` where the protocol has one of that name.

    >>> spoken_name("light", ["model", "level"]), spoken_name("level", ["model", "level"])
    ('light', 'condition:level')
    """
    return CONDITION + name if name in (*columns, *EVERYWHERE) else name


def _known_value(label: str, condition: str, wanted: Any, known: Sequence[str]) -> str:
    text = condition_text(wanted)
    if isinstance(wanted, bool):
        text = next((value for value in known if value.casefold() == text.casefold()), text)
    if text in known:
        return text
    advice = " Quote it: unquoted on, off, yes and no are truth values in YAML." if isinstance(wanted, bool) else ""
    raise InputError(f"{label}: {UnknownName(f'value of {condition}', text, known)}{advice}")


def slice_where(chosen: Slice, columns: Sequence[str]) -> dict[str, str]:
    """A slice as the conditions of a measurement."""
    return {spoken_name(name, columns): " or ".join(values) for name, values in chosen.items()}


class Slicing:
    """The slices of the images of a run, from the stored conditions of the data.

    failure  why the conditions could not be read; empty where they could, or where there are none
    """

    def __init__(self, breakdown: Breakdown, cases: Sequence[StoredCase]) -> None:
        stored = [case for case in cases if is_of_data(case)]
        self.breakdown = breakdown if stored else Breakdown()
        self.failure = failed_estimate(stored[0].failure).reason if stored and stored[0].failure else ""
        self._stored = stored

    def __bool__(self) -> bool:
        return bool(self.breakdown)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The images whose conditions are stored, in the order of the data."""
        return tuple(self._stored[0].columns("id")["id"].tolist())

    @cached_property
    def texts(self) -> dict[str, NDArray[np.str_]]:
        """The value of every condition that each image shows, (n,), empty where it has none."""
        names = [*self.breakdown.conditions]
        columns = self._stored[0].columns(*(CONDITION + name for name in names))
        return {name: np.array(self.breakdown.texts(name, columns[CONDITION + name]), np.str_) for name in names}

    def rows(self, chosen: Slice, ids: Sequence[str] | None = None) -> Rows:
        """The rows of the images inside a slice, in order: among all images, or among those with these ids."""
        inside = np.logical_and.reduce([np.isin(self.texts[name], values) for name, values in chosen.items()])
        if ids is None or tuple(ids) == self.ids:
            return np.flatnonzero(inside)
        try:
            return np.flatnonzero(inside[[self._row_of[image_id] for image_id in ids]])
        except KeyError as error:
            raise InputError(f"the stored conditions are of other images than the answers: none of {error}") from None

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {image_id: row for row, image_id in enumerate(self.ids)}

    def column_rows(self) -> Iterator[dict[str, Any]]:
        """A row per column of the data: how many values, how many images have one, or why it is no condition."""
        for name, values in self.breakdown.conditions.items():
            row = {"condition": name, "values": len(values), "reason": self.failure}
            if not self.failure:
                lacks = self.texts[name] == ""
                row |= {"images": int((~lacks).sum()), "images_without": int(lacks.sum())}
            yield row
        for name, why in self.breakdown.left_out.items():
            yield {"condition": name, "reason": why}
