"""Shifts: disturbances that keep the label. Importing this package registers every shift of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cv2

from roadworthy.core.errors import UnknownName
from roadworthy.core.protocols import SHIFTS, Shift
from roadworthy.shifts.thesis import Blur, Crop, Fog, Grey, Noise, Perspective, Rain, Reflection, Rotation, Snow

# isort: split
# Behind the thesis's: shifts are listed in the order in which they are registered.
from roadworthy.shifts import corruptions
from roadworthy.shifts.adversarial import ATTACKS, Attack

cv2.setNumThreads(1)  # The workers are the parallelism; threads inside OpenCV would only compete with them.

__all__ = [
    "ATTACKS",
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
    "corruptions",
    "find_shift",
    "make_shift",
]


def make_shift(name: str, level: int, table: Mapping[int, Mapping[str, Any]] | None = None) -> Shift:
    """The shift or attack of that name at a level of its own table, or of the one given (level -> parameters).

    >>> make_shift("fog", 2)
    Fog(level=2, factor=0.4)
    >>> make_shift("fog", 1, {1: {"factor": 0.15}})
    Fog(level=1, factor=0.15)
    >>> make_shift("fgsm", 3)
    Fgsm(level=3, epsilon=4)
    """
    return find_shift(name).at(level, table)


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
