"""Outliers: makers of images outside the domain of the data. Importing this package registers every one of ours."""

from __future__ import annotations

from typing import Any

from roadworthy.core.protocols import OUTLIERS, Outliers
from roadworthy.outliers.base import OutlierSet, Painted
from roadworthy.outliers.colour import ColourSwap
from roadworthy.outliers.foreign import Foreign
from roadworthy.outliers.mixed import Mixed
from roadworthy.outliers.noise import NormalNoise, UniformNoise
from roadworthy.outliers.preview import outlier_sheet
from roadworthy.outliers.shuffled import Shuffled
from roadworthy.outliers.swirl import Swirl

__all__ = [
    "ColourSwap",
    "Foreign",
    "Mixed",
    "NormalNoise",
    "OutlierSet",
    "Painted",
    "Shuffled",
    "Swirl",
    "UniformNoise",
    "make_outliers",
    "outlier_sheet",
]


def make_outliers(name: str, **parameters: Any) -> Outliers:
    """The maker of that name, with the parameters given and the others at their default.

    >>> make_outliers("swirl", strength=6)
    Swirl(strength=6, radius=100.0)
    """
    return OUTLIERS.get(name).of(parameters)
