"""Shifts: disturbances that keep the label. Importing this package registers every shift of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2

from roadworthy.core.errors import UnknownName
from roadworthy.core.roles import SHIFTS, Shift
from roadworthy.shifts.thesis import Blur, Crop, Fog, Grey, Noise, Perspective, Rain, Reflection, Rotation, Snow

# isort: split
# Behind the thesis's: shifts are listed in the order in which they are registered.
from roadworthy.shifts import corruptions
from roadworthy.shifts.adversarial import ATTACKS, Attack

# isort: split
from roadworthy.shifts import appearance, sensor

# isort: split
from roadworthy.shifts import weather

cv2.setNumThreads(1)  # The workers are the parallelism; threads inside OpenCV would only compete with them.

THESIS_SHIFTS = ("noise", "grey", "snow", "rain", "fog", "perspective", "blur", "rotation", "crop", "reflection")
"""The ten shifts of the thesis, by the names that they are registered under."""

__all__ = [
    "ATTACKS",
    "THESIS_SHIFTS",
    "Attack",
    "Blur",
    "Crop",
    "Fog",
    "Grey",
    "Noise",
    "Perspective",
    "Rain",
    "Reflection",
    "Rotation",
    "Snow",
    "appearance",
    "chosen_shift",
    "corruptions",
    "find_shift",
    "make_shift",
    "sensor",
    "shift_levels",
    "weather",
]


def make_shift(name: str, level: float, table: Mapping[int, Mapping[str, Any]] | None = None) -> Shift:
    """The shift or attack of that name at a level of its own table, or of the one given (level -> parameters).

    A level that is not whole is a severity between two: see `core.severity`.

    >>> make_shift("fog", 2)
    Fog(level=2, factor=0.4)
    >>> make_shift("fog", 1, {1: {"factor": 0.15}})
    Fog(level=1, factor=0.15)
    >>> make_shift("fgsm", 3)
    Fgsm(level=3, epsilon=4)
    >>> make_shift("fog", 2.5)
    Fog(level=2.5, factor=0.45)
    """
    return find_shift(name).at(level, table)


def chosen_shift(name: str, level: int, parameters: dict[str, Any] | None) -> Shift:
    """The shift or attack of that name with parameters of its own, else at a level; what it lacks is an `InputError`.

    >>> chosen_shift("fog", 2, None), chosen_shift("fog", 2, {"factor": 0.15})
    (Fog(level=2, factor=0.4), Fog(level=1, factor=0.15))
    """
    return make_shift(name, level) if parameters is None else make_shift(name, 1, {1: parameters})


def shift_levels(name: str, levels: Sequence[int], table: Mapping[int, Mapping[str, Any]] | None = None) -> list[Shift]:
    """A shift at each of the levels, or at those of the table given; an unknown name, level or parameter is an error.

    >>> shift_levels("fog", [1, 2])
    [Fog(level=1, factor=0.3), Fog(level=2, factor=0.4)]
    """
    return [make_shift(name, level, table) for level in sorted(table or levels)]


def find_shift(name: str) -> type[Shift]:
    """The shift of that name, else the attack; an unknown one is an error that names the nearest of both.

    >>> find_shift("pgd").__name__
    'Pgd'
    """
    if name in SHIFTS:
        return SHIFTS.get(name)
    if name in ATTACKS:
        return ATTACKS.get(name)
    raise UnknownName("shift", name, [*SHIFTS, *ATTACKS])
