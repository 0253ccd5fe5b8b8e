"""Severity: a level, or a number between levels, where every parameter follows a declared rule.

A level is a whole number of a table of parameters. Between two levels a number lies on the straight line between its
values there, or 1 / x does where the parameter is declared `inverse`; a list does so entry by entry, the shorter padded
with 0; a `whole` parameter is rounded to the nearest whole number, halves up; anything else must be equal at both.
Below the first level the values there and the `neutral` ones are the ends of the line, the neutral ones at severity 0;
a parameter without a neutral value stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import zip_longest
from typing import Any, NamedTuple

from roadworthy.core.errors import InputError

Rows = Mapping[int, Mapping[str, Any]]
"""The parameters at each level."""
DIGITS = 12
"""Digits of an interpolated number: enough for any, and without the noise of binary fractions behind them."""


class Quantity(NamedTuple):
    """What a parameter measures, in a unit that is known outside this program."""

    parameter: str
    name: str
    unit: str


class _Unequal(Exception):
    """Two values have nothing in between, for the reason given."""


def plain_severity(severity: float) -> float:
    """A severity as it is stored: a whole one is a level, an int.

    >>> plain_severity(2.0), plain_severity(2.5)
    (2, 2.5)
    """
    if isinstance(severity, bool) or not math.isfinite(severity):
        raise InputError(f"a severity is a number, not {severity!r}")
    return int(severity) if float(severity).is_integer() else float(severity)


def level_rows(shift: Any, table: Rows | None = None) -> Rows:
    """The parameters of a shift class at each level: those of the table given, else its own."""
    return table if table is not None else dict(enumerate(shift.LEVELS, start=1))


def parameters_at(shift: Any, severity: float, levels: Rows) -> dict[str, Any]:
    """The parameters of a shift class at a severity from 0 to the last level of a table, by the rules of this module.

    An `InputError` says where there is no such severity, and why.

    >>> from roadworthy.shifts import Fog, Snow
    >>> parameters_at(Fog, 1.5, {1: {"factor": 0.3}, 2: {"factor": 0.4}})
    {'factor': 0.35}
    >>> parameters_at(Snow, 1.5, {1: {"intensities": [1.0]}, 2: {"intensities": [1.0, 1.0]}})
    {'intensities': (1.0, 0.5)}
    """
    if severity in levels:
        return dict(levels[int(severity)])
    known = sorted(levels)
    if not 0 <= severity <= known[-1]:
        raise InputError(f"shift {shift.name} has severities above 0 and up to {known[-1]}, not {severity:g}")
    upper = next(level for level in known if level > severity)
    lower = max((level for level in known if level < severity), default=0)
    rules = _rules(shift)
    if lower == 0 and not has_neutral(shift, levels):
        raise InputError(
            f"shift {shift.name} has severities from {upper} on, not {severity:g}: it declares no parameters at which "
            "it changes nothing"
        )
    share = (severity - lower) / (upper - lower)
    values = {}
    for name in dict.fromkeys([*levels.get(lower, {}), *levels[upper]]):
        rule = rules.get(name, {})
        try:
            end = _given(shift, name, levels[upper])
            start = _given(shift, name, levels[lower]) if lower else _start(rule, end)
            values[name] = _between(start, end, share, rule, passes=bool(lower))
        except _Unequal as error:
            raise InputError(
                f"shift {shift.name} has no severity between {lower} and {upper}: its {name} {error}"
            ) from None
    return values


def has_neutral(shift: Any, levels: Rows) -> bool:
    """Whether there are severities below the first level: a parameter of that level declares a neutral value."""
    rules = _rules(shift)
    return any(rules.get(name, {}).get("neutral") is not None for name in levels[min(levels)])


def quantity_of(shift: Any, levels: Rows) -> Quantity | None:
    """What the first parameter of the levels that has a unit measures; None where none has.

    >>> from roadworthy.shifts import Rotation
    >>> quantity_of(Rotation, {1: {"degrees": 10.0}})
    Quantity(parameter='degrees', name='rotation', unit='degrees')
    """
    rules = _rules(shift)
    for name in levels[max(levels)]:
        if rules.get(name, {}).get("unit"):
            return Quantity(name, rules[name]["quantity"], rules[name]["unit"])
    return None


def _rules(shift: Any) -> dict[str, Mapping[str, Any]]:
    """What every parameter declares."""
    return {entry.name: entry.metadata for entry in fields(shift)}


def _given(shift: Any, name: str, row: Mapping[str, Any]) -> Any:
    """The value of a parameter at a level, its default where the table does not say it."""
    default = next((entry.default for entry in fields(shift) if entry.name == name), MISSING)
    value = row.get(name, default)
    if value is None or value is MISSING:
        raise _Unequal("is given at one of them alone")
    return value


def _start(rule: Mapping[str, Any], first: Any) -> Any:
    """What a parameter is at severity 0: its neutral value, or what it is at the first level where it has none."""
    neutral = rule.get("neutral")
    return first if neutral is None else neutral


def _between(start: Any, end: Any, share: float, rule: Mapping[str, Any], passes: bool) -> Any:
    """A value between two; `passes` says whether it may pass the neutral one on the way, which is refused."""
    if isinstance(start, list | tuple) or isinstance(end, list | tuple):
        entries = zip_longest(*_as_lists(start, end), fillvalue=0.0)
        return tuple(_number(a, b, share, rule, passes) for a, b in entries)
    if start == end:
        return end
    return _number(start, end, share, rule, passes)


def _as_lists(start: Any, end: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Both as lists; one number stands for as many equal ones as the other has."""
    first = start if isinstance(start, list | tuple) else [start] * len(end)
    second = end if isinstance(end, list | tuple) else [end] * len(start)
    return first, second


def _number(start: Any, end: Any, share: float, rule: Mapping[str, Any], passes: bool) -> float:
    for value in (start, end):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Unequal(f"is {start} at one and {end} at the other")
    if start == end:
        return float(end)
    neutral = rule.get("neutral")
    if passes and isinstance(neutral, int | float) and (start - neutral) * (end - neutral) < 0:
        raise _Unequal(f"passes {neutral:g}, where it changes nothing")
    if rule.get("inverse"):
        line = (1 - share) / start + share / end if start and end else math.inf
        value = 1 / line if line else math.inf
    else:
        value = start + share * (end - start)
    return math.floor(value + 0.5) if rule.get("whole") else float(f"{value:.{DIGITS}g}")
