"""Outliers: makers of images outside the domain of the data. Importing this package registers every one of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import OUTLIERS, Dataset, Outliers
from roadworthy.outliers import makers
from roadworthy.outliers.base import OutlierSet, Painted
from roadworthy.shifts.preview import picture_grid

__all__ = ["OutlierSet", "Painted", "make_outliers", "makers", "outlier_sheet"]


def make_outliers(name: str, **parameters: Any) -> Outliers:
    """The maker of that name, with the parameters given and the others at their default.

    >>> make_outliers("swirl", strength=6)
    Swirl(strength=6, radius=100.0)
    """
    return OUTLIERS.get(name).of(parameters)


def outlier_sheet(
    data: Dataset, makers: Sequence[Outliers], rows: Sequence[int], *, seed: int = 0, foreign: Dataset | None = None
) -> NDArray[np.uint8]:
    """A picture (H, W, 3) RGB: a row per image of `rows`; the original, then what each maker makes of it.

    >>> from roadworthy.data import open_dataset
    >>> data = open_dataset((np.zeros((2, 64, 64, 3), np.uint8), np.array([0, 1])))
    >>> outlier_sheet(data, [make_outliers("swirl"), make_outliers("mixed")], rows=[0, 1]).shape
    (288, 400, 3)
    """
    columns = {"original": data.batch(rows).images}
    for maker in makers:
        made = maker.make(data, seed=seed, foreign=foreign)
        if max(rows) >= len(made):
            raise InputError(f"{made.name} holds {len(made)} images, so there is none in row {max(rows)}")
        columns[made.name] = made.batch(rows).images
    return picture_grid(list(columns), list(columns.values()))
