"""Scenario coverage: which combinations of operating conditions the data shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scenario = dict[str, str]
Choice = Mapping[str, str | Sequence[str]]
"""Conditions with a value each, or with several of which any will do."""
Codes = NDArray[np.intp]
Columns = Mapping[str, ArrayLike]
Members = tuple[int, ...]
Rule = dict[int, list[int]]
"""Codes of values by the index of their condition."""

MISSING = -1
MOST_CELLS = 1_000_000
"""Cells of scenario coverage, at most."""
MOST_LINKED = 20_000
"""Combinations of conditions that constraints link with one another, directly or by way of others."""


@dataclass(frozen=True)
class Schema:
    """Operating conditions with their possible values, and the combinations that cannot occur.

    `impossible` lists combinations such as {"surface": "mud", "weather": ["sunny", "cloudy"]}: no scenario has mud and
    one of these two. "Snow only when cold" is written as {"weather": "snow", "temperature": ["mild", "hot"]}.

    >>> Schema({"weather": ["sunny", "rainy"], "road": ["straight", "curvy"]}).sizes
    (2, 2)
    """

    conditions: Mapping[str, Sequence[str]]
    impossible: Sequence[Choice] = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            raise ValueError("a schema needs at least one condition with its values")
        for name, values in self.conditions.items():
            if isinstance(values, str) or not len(values) or len(set(values)) < len(values):
                raise ValueError(f"condition {name!r} needs a list of different values, not {values!r}")
        for choice in self.impossible:
            if not choice:
                raise ValueError("an impossible combination must name at least one condition")
            self._codes(choice, "an impossible combination")
        for table, members in self.linked_combinations:
            if not len(table):
                named = " and ".join(self.names[member] for member in members)
                raise ValueError(f"the impossible combinations leave no scenario at all: look at those of {named}")

    @property
    def names(self) -> tuple[str, ...]:
        """The conditions, in order."""
        return tuple(self.conditions)

    @property
    def sizes(self) -> Members:
        """How many values each condition has."""
        return tuple(len(values) for values in self.conditions.values())

    def encode(self, columns: Mapping[str, ArrayLike]) -> Codes:
        """Columns of values as codes (n, conditions), -1 where a value is missing (None, NaN or empty).

        A value that the schema does not know, and a row that shows an impossible combination, are errors.
        """
        unknown = [name for name in self.names if name not in columns]
        if unknown:
            raise ValueError(f"the data has no condition {unknown[0]!r}; it has {', '.join(columns) or 'none'}")
        codes = np.array([self._encode_column(name, columns[name]) for name in self.names], dtype=np.intp).T
        for choice, rule in zip(self.impossible, self._rules, strict=True):
            shown = np.logical_and.reduce([np.isin(codes[:, position], allowed) for position, allowed in rule.items()])
            if shown.any():
                raise ValueError(
                    f"row {int(np.flatnonzero(shown)[0])} shows {dict(choice)}, which is declared impossible: fix the "
                    "label or the schema"
                )
        return codes

    def decode(self, codes: Sequence[int] | Codes) -> Scenario:
        """A complete scenario from its codes.

        >>> Schema({"weather": ["sunny", "rainy"], "road": ["straight", "curvy"]}).decode([1, 0])
        {'weather': 'rainy', 'road': 'straight'}
        """
        return {name: self.conditions[name][code] for name, code in zip(self.names, codes, strict=True)}

    def feasible(self, members: Sequence[int]) -> NDArray[np.bool_]:
        """Which combinations of the values of these conditions some scenario has: one axis per condition."""
        possible = np.ones([self.sizes[member] for member in members], bool)
        for table, linked in self.linked_combinations:
            axes = [axis for axis, member in enumerate(members) if member in linked]
            if axes:
                part = np.zeros([possible.shape[axis] for axis in axes], bool)
                part[tuple(table[:, linked.index(members[axis])] for axis in axes)] = True
                shape = [size if axis in axes else 1 for axis, size in enumerate(possible.shape)]
                possible &= part.reshape(shape)
        return possible

    @cached_property
    def linked_combinations(self) -> tuple[tuple[Codes, Members], ...]:
        """For conditions that constraints link: all possible combinations (rows, members), and the members."""
        linked: list[set[int]] = []
        for rule in self._rules:
            joined = set(rule).union(*(part for part in linked if part & set(rule)))
            linked = [part for part in linked if not part & joined] + [joined]
        return tuple(self._possible(tuple(sorted(part))) for part in sorted(linked, key=min))

    @cached_property
    def _rules(self) -> list[Rule]:
        return [self._codes(choice, "an impossible combination") for choice in self.impossible]

    def _possible(self, members: Members) -> tuple[Codes, Members]:
        shape = [self.sizes[member] for member in members]
        if math.prod(shape) > MOST_LINKED:
            named = ", ".join(self.names[member] for member in members)
            raise ValueError(f"constraints link {named}: more than {MOST_LINKED:,} combinations; use fewer constraints")
        table = np.indices(shape).reshape(len(shape), -1).T
        keep = np.ones(len(table), bool)
        for rule in self._rules:
            if set(rule) <= set(members):
                columns = [np.isin(table[:, members.index(position)], allowed) for position, allowed in rule.items()]
                keep &= ~np.logical_and.reduce(columns)
        return table[keep], members

    def _codes(self, choice: Choice, what: str) -> Rule:
        """A choice as codes by the index of its condition; an unknown name is an error."""
        codes = {}
        for name, values in choice.items():
            if name not in self.conditions:
                raise ValueError(f"{what} names the condition {name!r}; known are {', '.join(self.names)}")
            known = list(self.conditions[name])
            chosen = [values] if isinstance(values, str) else list(values)
            unknown_values = [value for value in chosen if value not in known]
            if unknown_values or not chosen:
                raise ValueError(f"{what} names {name} = {unknown_values or 'nothing'}; known are {', '.join(known)}")
            codes[self.names.index(name)] = [known.index(value) for value in chosen]
        return codes

    def _encode_column(self, name: str, column: ArrayLike) -> list[int]:
        known = {value: code for code, value in enumerate(self.conditions[name])}
        texts = condition_texts(column)
        for row, text in enumerate(texts):
            if text and text not in known:
                raise ValueError(f"row {row}: {name} = {text!r} is not in the schema; known are {', '.join(known)}")
        return [known[text] if text else MISSING for text in texts]


def is_missing(value: object) -> bool:
    """True for what stands for no value of a condition: None, NaN or empty text.

    >>> is_missing(""), is_missing(float("nan")), is_missing("rain")
    (True, True, False)
    """
    return value is None or value == "" or value != value


def condition_text(value: object) -> str:
    """The value of a condition as text: empty where it is missing, and a whole number without a fraction.

    A column of whole numbers that lacks some becomes one of floats; its 2.0 is the 2 of a schema.

    >>> condition_text("rain"), condition_text(2), condition_text(2.0), condition_text(0.5), condition_text(None)
    ('rain', '2', '2', '0.5', '')
    """
    if is_missing(value):
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def condition_texts(column: ArrayLike) -> list[str]:
    """The values (n,) of a condition as texts: see `condition_text`."""
    return [condition_text(value) for value in np.asarray(column, dtype=object)]


@dataclass(frozen=True)
class Need:
    """What the cells that contain `where` need: at least `minimum` images (or objects), and how much they weigh."""

    where: Choice = field(default_factory=dict)
    minimum: int = 1
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.minimum < 0 or not 0 <= self.weight < math.inf:
            raise ValueError(f"a need has a minimum and a weight of at least 0, not {self.minimum} and {self.weight}")


@dataclass(frozen=True)
class Projection:
    """The table of one combination of conditions: arrays with one axis per condition."""

    members: Members
    counts: NDArray[np.int64]
    feasible: NDArray[np.bool_]
    minimum: NDArray[np.int64]
    weight: NDArray[np.float64]


@dataclass(frozen=True)
class Coverage:
    """Scenario coverage with the tables it comes from.

    value    share of what is needed that the data has; NaN where nothing is needed
    missing  for each condition the number of rows without a value: they count only where the others meet
    """

    schema: Schema
    projections: tuple[Projection, ...]
    missing: Mapping[str, int]

    @property
    def value(self) -> float:
        """sum_c w_c min(n_c, m_c) / sum_c w_c m_c over possible cells c."""
        had = sum(float((p.weight * np.minimum(p.counts, p.minimum))[p.feasible].sum()) for p in self.projections)
        needed = sum(float((p.weight * p.minimum)[p.feasible].sum()) for p in self.projections)
        return had / needed if needed else math.nan

    @property
    def occupied(self) -> int:
        """Possible cells that have as much as they need, and at least one."""
        return sum(int((p.feasible & (p.counts >= np.maximum(p.minimum, 1))).sum()) for p in self.projections)

    @property
    def cells(self) -> int:
        """Possible cells."""
        return sum(int(p.feasible.sum()) for p in self.projections)

    @property
    def impossible(self) -> int:
        """Cells that no scenario can have."""
        return sum(int((~p.feasible).sum()) for p in self.projections)

    def table(self) -> Iterator[dict[str, Any]]:
        """Every cell: `scenario` (its conditions), `count`, `minimum`, `weight`, and `status`, which is `covered`,
        `uncovered` or `impossible`.
        """
        conditions = list(self.schema.conditions.items())
        for projection in self.projections:
            axes = [conditions[member] for member in projection.members]
            for cell in np.ndindex(projection.counts.shape):
                count, minimum = int(projection.counts[cell]), int(projection.minimum[cell])
                status = "covered" if count >= minimum else "uncovered"
                yield {
                    "scenario": {name: values[code] for (name, values), code in zip(axes, cell, strict=True)},
                    "count": count,
                    "minimum": minimum,
                    "weight": float(projection.weight[cell]),
                    "status": status if projection.feasible[cell] else "impossible",
                }

    def uncovered(self) -> Iterator[dict[str, Any]]:
        """The possible cells that lack data: `scenario` (the conditions of the cell), `count`, `minimum`, `weight`."""
        return (cell for cell in self.table() if cell.pop("status") == "uncovered")


def scenario_coverage(
    schema: Schema, columns: Columns, *, k: int = 2, needs: Sequence[Need] = (Need(),), groups: ArrayLike | None = None
) -> Coverage:
    """Coverage of all combinations of k conditions (equation 1 for k = 2, and its quantitative form).

        M_scene = sum_c w_c min(n_c, m_c) / sum_c w_c m_c

    over the possible cells c of the tables of every k conditions: n_c rows of the data (or, with `groups`, different
    objects) show the cell, m_c are needed and w_c is its weight. Where all m and w are 1 this is occupied by possible
    cells. Of several `needs` that fit a cell the last counts; where none fits, m = w = 1. A need that names more than
    k conditions fits no cell, and is an error.

    columns  by condition, (n,) values; a missing one (None, NaN, empty) leaves the row out of that condition's tables

    >>> schema = Schema({"weather": ["sunny", "cloudy", "rainy"], "surface": ["stone", "mud", "tarmac"],
    ...                  "road": ["straight", "curvy"]})
    >>> seen = {"weather": ["sunny", "rainy"], "surface": ["stone", "tarmac"], "road": ["straight", "curvy"]}
    >>> coverage = scenario_coverage(schema, seen)
    >>> coverage.occupied, coverage.cells, round(coverage.value, 4)
    (6, 21, 0.2857)
    """
    if not 1 <= k <= len(schema.names):
        raise ValueError(f"k must lie between 1 and the number of conditions, {len(schema.names)}, not {k}")
    cells = count_cells(schema.sizes, k)
    if cells > MOST_CELLS:
        raise ValueError(f"{cells:,} cells of {k} conditions; at most {MOST_CELLS:,}: use fewer values, or a smaller k")
    codes = schema.encode(columns)
    objects = np.arange(len(codes)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if objects.shape != (len(codes),):
        raise ValueError(f"{len(codes)} rows need a group each, not {objects.shape}")
    rules = [(schema._codes(need.where, "a need"), need) for need in needs]
    for need in needs:
        if len(need.where) > k:
            named = ", ".join(need.where)
            raise ValueError(f"a need names {len(need.where)} conditions ({named}), but a cell has {k}: raise k")
    member_sets = combinations(range(len(schema.names)), k)
    projections = tuple(_project(schema, codes, objects, cell_members, rules) for cell_members in member_sets)
    missing = {name: int((column == MISSING).sum()) for name, column in zip(schema.names, codes.T, strict=True)}
    return Coverage(schema, projections, missing)


def count_cells(sizes: Sequence[int], k: int) -> int:
    """How many cells all tables of k conditions have, which take so many values each: e_k(sizes).

    The elementary symmetric polynomial, by e_k(s_1..s_n) = e_k(s_1..s_n-1) + s_n e_k-1(s_1..s_n-1): no table is made.

    >>> count_cells([3, 3, 2], k=2)
    21
    """
    counts = [1] + [0] * k
    for size in sizes:
        for members in range(k, 0, -1):
            counts[members] += size * counts[members - 1]
    return counts[k]


def _project(
    schema: Schema, codes: Codes, objects: Codes, members: Members, rules: Sequence[tuple[Rule, Need]]
) -> Projection:
    shape = tuple(schema.sizes[member] for member in members)
    member_codes = codes[:, list(members)]
    known = (member_codes != MISSING).all(axis=1)
    cell = np.ravel_multi_index(tuple(member_codes[known].T), shape) if known.any() else np.empty(0, np.intp)
    shown = np.unique(np.stack([cell, objects[known]]), axis=1)[0]
    minimum, weight = np.ones(shape, np.int64), np.ones(shape)
    for choice, need in rules:
        if set(choice) <= set(members):
            cells = np.ix_(*(choice.get(member, range(size)) for member, size in zip(members, shape, strict=True)))
            minimum[cells], weight[cells] = need.minimum, need.weight
    counts = np.bincount(shown, minlength=math.prod(shape)).reshape(shape)
    return Projection(members, counts, schema.feasible(members), minimum, weight)
