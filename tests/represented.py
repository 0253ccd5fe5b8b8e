"""What a monitor keeps of small sets, by hand: representations whose thresholds and accuracies can be worked out."""

from __future__ import annotations

from typing import Any

import numpy as np

from roadworthy.monitors import make_monitor
from roadworthy.monitors.conformance import ToyModel
from roadworthy.protocols.od_test.evaluation import Represented, Sample


def sample(values: Any, labels: Any = None, name: str = "x", groups: Any = None) -> Sample:
    """Rows of one column (or more), each image an object of its own unless groups are given."""
    rows = np.asarray(values, np.float32).reshape(len(values), -1)
    ids = np.array([f"{name}{row}" for row in range(len(rows))])
    objects = ids if groups is None else np.asarray(groups, str)
    return Sample(rows, ids, objects, np.zeros(len(rows), np.int64) if labels is None else np.asarray(labels))


def by_hand(**changes: Any) -> Represented:
    """A monitor whose score is its one column, on a source that meets a, b and c."""
    given: dict[str, Any] = {
        "source": "source",
        "label": "msp",
        "monitor": make_monitor("msp").build(ToyModel()),
        "valid": sample([5, 6, 7, 8]),
        "test": sample([5, 6, 7, 1]),
        "outliers": {"a": sample([1, 2, 3, 4]), "b": sample([4.6, 4.7, 0, 0]), "c": sample([9, 9, 9, 9])},
    }
    return Represented(**(given | changes))
