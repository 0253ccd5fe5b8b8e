"""Monitors that are tuned over a grid: every value is read at once, and calibration picks the one to use."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.monitors.base import Monitor
from roadworthy.monitors.learned import Arrays, Learned, Rep
from roadworthy.monitors.threshold import Aim


@dataclass(frozen=True, kw_only=True)
class GridMonitor(Monitor):
    """A monitor whose rows (N, G) hold the score of an image at each of the G values of a setting that is tuned.

    Against outliers, calibration takes the column of lowest expected cost, of equal ones the first. Without, a subclass
    says which column to use (`column_inside`), from in-distribution data alone. So no outlier is ever looked at but
    those that a calibration is given.
    """

    @abstractmethod
    def column_inside(self, inside: Rep, state: Learned) -> int:
        """The column to use where there are no outliers, from rows (n, G) of images inside and what `fit` learned."""

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim, state: Learned) -> Arrays:
        """The column of the grid to use."""
        if outside is None:
            return {"column": np.asarray(self.column_inside(inside, state))}
        grids = inside.astype(np.float64), outside.astype(np.float64)
        costs = aim.losses(*grids, aim.cuts(*grids))
        return {"column": np.asarray(int(np.argmin(costs.round(12))))}

    def rate(self, rows: Rep, rule: Learned, state: Learned) -> NDArray[Any]:
        """The chosen column, (N,)."""
        return rows[:, int(rule["column"])]
