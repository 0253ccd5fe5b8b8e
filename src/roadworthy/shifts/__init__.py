"""Shifts: disturbances that keep the label. Importing this package registers every shift of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from roadworthy.shifts.arrays import Moved, ShiftFunction
from roadworthy.shifts.transforms import Transform

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
    "Moved",
    "Noise",
    "Perspective",
    "Rain",
    "Reflection",
    "Rotation",
    "ShiftFunction",
    "Snow",
    "Transform",
    "appearance",
    "blur",
    "c_brightness",
    "c_contrast",
    "c_defocus_blur",
    "c_elastic_transform",
    "c_fog",
    "c_frost",
    "c_gaussian_blur",
    "c_gaussian_noise",
    "c_glass_blur",
    "c_impulse_noise",
    "c_jpeg_compression",
    "c_motion_blur",
    "c_pixelate",
    "c_saturate",
    "c_shot_noise",
    "c_snow",
    "c_spatter",
    "c_speckle_noise",
    "c_zoom_blur",
    "chosen_shift",
    "corruptions",
    "crop",
    "dark",
    "find_shift",
    "fog",
    "fog_veil",
    "grey",
    "make_shift",
    "noise",
    "perspective",
    "rain",
    "rainfall",
    "reflection",
    "rotation",
    "sensor",
    "sensor_black_frame",
    "sensor_frozen_frame",
    "sensor_half_frame",
    "sensor_missing_channel",
    "sensor_pixel_faults",
    "sensor_shifted_rows",
    "sensor_smeared_rows",
    "sensor_stuck_columns",
    "sensor_torn_frame",
    "sensor_white_frame",
    "shift_levels",
    "size",
    "snow",
    "weather",
]


if TYPE_CHECKING:
    from roadworthy.shifts.functions import *
else:

    def __getattr__(name: str) -> ShiftFunction:
        """The shift of that name as a function of arrays: `rw.shifts.fog(image, level=3)`."""
        if name.startswith("_") or name not in SHIFTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return ShiftFunction(name)

    def __dir__() -> list[str]:
        """What the module holds, and the functions of all shifts."""
        return sorted({*globals(), *SHIFTS})


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
