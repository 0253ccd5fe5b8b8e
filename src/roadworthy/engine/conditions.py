"""The operating conditions of the data, as a system that is asked about a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.hashing import digest
from roadworthy.core.roles import System
from roadworthy.metrics.coverage import condition_texts
from roadworthy.models.signals import Signals

ALGORITHM = 1
"""Part of the fingerprint; a change that gives other values raises it."""
CONDITION = "condition:"
DATA = "data"


class Conditions(System):
    """The condition columns of the data, `condition:NAME` each: numbers as they are, all else as text."""

    kind = "conditions"
    name = DATA

    def fingerprint(self) -> str:
        """The same for all data: the stimulus says which."""
        return digest({"kind": self.kind, "algorithm": ALGORITHM})

    def read(self, signals: Signals) -> dict[str, NDArray[Any]]:
        """A column per condition, without asking a model."""
        return {CONDITION + name: _plain(column) for name, column in signals.batch.conditions.items()}


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    """Numbers as they are, all else as text."""
    if column.dtype.kind in "iufU":
        return column
    return np.array(condition_texts(column), np.str_)
