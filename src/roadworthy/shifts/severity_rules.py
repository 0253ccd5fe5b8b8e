"""The rules between levels as people read them: a row per shift, made from what its parameters declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.roles import SHIFTS, Shift
from roadworthy.core.severity import has_neutral, level_rows, parameters_at, quantity_of
from roadworthy.shifts import ATTACKS, find_shift

HEAD = ("shift", "between levels", "at severity 0", "unit")


def rules_table() -> str:
    """The table of docs/shifts.md in Markdown: how the parameters of every shift and attack lie between its levels.

    >>> [line for line in rules_table().splitlines() if "fog_veil" in line]
    ['| `fog_veil` | `visual_range` by its inverse | `visual_range` infinite | visual range (m) |']
    """
    rows = [_row(find_shift(name)) for name in (*SHIFTS, *ATTACKS)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD), *rows)).replace("| --- ", "|---")


def _row(shift: type[Shift]) -> tuple[str, ...]:
    levels = level_rows(shift)
    if not levels:
        return f"`{shift.name}`", "has no levels", "", ""
    rules = {entry.name: entry.metadata for entry in fields(shift)}
    names = list(levels[1])
    neutrals = [f"`{name}` {_shown(rules[name]['neutral'])}" for name in names if rules[name]["neutral"] is not None]
    between = ", ".join(f"`{name}` {_rule(levels[1][name], rules[name])}" for name in names)
    quantity = quantity_of(shift, levels)
    return (
        f"`{shift.name}`",
        between + "".join(f"; not from {lower} to {lower + 1}" for lower in _gaps(shift, levels)),
        ", ".join(neutrals) if has_neutral(shift, levels) else "starts at 1",
        f"{quantity.name} ({quantity.unit})" if quantity else "",
    )


def _rule(value: Any, rule: Mapping[str, Any]) -> str:
    if isinstance(value, str):
        return "equal"
    if rule["whole"]:
        return "linear, rounded"
    return "by its inverse" if rule["inverse"] else "linear"


def _shown(neutral: Any) -> str:
    if neutral == ():
        return "none"
    return f"{neutral:g}".replace("inf", "infinite")


def _gaps(shift: type[Shift], levels: Mapping[int, Mapping[str, Any]]) -> list[int]:
    """The levels above which there is no severity up to the next one."""
    gaps = []
    for lower in sorted(levels)[:-1]:
        try:
            parameters_at(shift, lower + 0.5, levels)
        except InputError:
            gaps.append(lower)
    return gaps
