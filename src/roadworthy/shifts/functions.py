"""Every registered shift as a function of its name: `from roadworthy.shifts.functions import fog`.

What type checkers and editors know of them stands in `functions.pyi`.
"""

from __future__ import annotations

from roadworthy.core.roles import SHIFTS
from roadworthy.shifts.arrays import ShiftFunction


def __getattr__(name: str) -> ShiftFunction:
    """The function of a shift, those of plugins among them."""
    if name.startswith("_") or name not in SHIFTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: there is no shift of that name")
    return ShiftFunction(name)


def __dir__() -> list[str]:
    """The names of all shifts."""
    return sorted(SHIFTS)
