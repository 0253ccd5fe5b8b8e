"""Outliers that a monitor with its threshold was tried on, and how many it rejects of each set.

Nothing is learned from them. Drawn noise is the least that any monitor should reject: one that accepts it accepts
nearly everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, RoadworthyError, first_line, foreign_code, one_line
from roadworthy.core.roles import BATCH, Dataset, Model
from roadworthy.data.base import OpenedDataset
from roadworthy.data.leaks import check_apart
from roadworthy.data.subset import Subset
from roadworthy.models.signals import PART, Signals
from roadworthy.monitors.fitted import FittedMonitor
from roadworthy.monitors.id_threshold import IdThreshold
from roadworthy.monitors.learned import Learned, Rep
from roadworthy.monitors.memory import Memory
from roadworthy.monitors.threshold import percent
from roadworthy.outliers.base import OutlierSet
from roadworthy.outliers.makers import Foreign, NormalNoise, UniformNoise
from roadworthy.statistics import proportion_interval

NOISE_IMAGES = 100
"""How many images of each kind of noise a monitor is tried on."""


@dataclass(frozen=True)
class Trial:
    """What a monitor did with one set of outliers.

    outliers   the name of the set;  images, objects: how many it holds
    rejected   the share of these images that is rejected;  lo, hi: its 95 % bounds, which count objects
    reason     why it could not be tried; then there is no share
    """

    outliers: str
    images: int = 0
    objects: int = 0
    rejected: float | None = None
    lo: float | None = None
    hi: float | None = None
    reason: str = ""

    @classmethod
    def of(cls, outliers: str, rejected: NDArray[np.bool_], groups: Sequence[str] | NDArray[np.str_]) -> Self:
        """From decisions (N,), True = rejected, on images of objects (N,).

        >>> Trial.of("uniform_noise", np.array([True, False]), ["a", "b"]).sentence()
        '50 % of 2 images of uniform_noise rejected (9.45 % to 90.5 %)'
        """
        share = proportion_interval(rejected.astype(np.float64), np.asarray(groups))
        bounds = (None, None) if share.missing or np.isnan(share.lo) else (float(share.lo), float(share.hi))
        return cls(outliers, len(rejected), len({*groups}), float(np.mean(rejected)), *bounds)

    def sentence(self) -> str:
        """What came of it, in a few words."""
        if self.rejected is None:
            return f"{self.outliers} could not be tried ({self.reason})"
        bounds = "" if self.lo is None or self.hi is None else f" ({percent(self.lo)} to {percent(self.hi)})"
        return f"{percent(self.rejected)} of {self.images:,} images of {self.outliers} rejected{bounds}"

    def record(self) -> dict[str, Any]:
        """The trial as plain values for a JSON file; `of_record` reads it back."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """What `record` wrote; a `KeyError`, `TypeError` or `ValueError` where it is not that."""
        rejected, lo, hi = (None if record[name] is None else float(record[name]) for name in ("rejected", "lo", "hi"))
        if not all(share is None or 0 <= share <= 1 for share in (rejected, lo, hi)):
            raise ValueError("a share is not between 0 and 1")
        images, objects = int(record["images"]), int(record["objects"])
        return cls(str(record["outliers"]), images, objects, rejected, lo, hi, str(record["reason"]))


def tried_sentence(trials: Sequence[Trial]) -> str:
    """On which outliers a monitor was tried, or that it was on none.

    >>> tried_sentence(())
    'tried on none: no outliers were shown to it'
    """
    tried = "; ".join(trial.sentence() for trial in trials)
    return f"tried on outliers: {tried}" if tried else "tried on none: no outliers were shown to it"


def try_on(
    model: Model,
    fitted: FittedMonitor,
    rule: Learned,
    threshold: IdThreshold,
    data: Dataset,
    *,
    outliers: Mapping[str, Dataset] | None = None,
    seed: int = 0,
) -> tuple[Trial, ...]:
    """Try a monitor on uniform and normal noise like the images of `data`, and on further `outliers` by name.

    These are brought to the size and the channels of `data`, and there are at most as many of them. A monitor that
    looks back sees each set as one stream. What cannot be tried says why, but images of `data` are no outliers: more
    than a few of them among the `outliers` are an `InputError`.
    """
    few = Subset(data, np.unique(np.linspace(0, len(data) - 1, NOISE_IMAGES).astype(np.int64)).tolist())
    sets: dict[str, OutlierSet] = {m.name: m.make(few, seed=seed) for m in (UniformNoise(), NormalNoise())}
    check_apart({data.name: data}, {f"outliers {name}": own for name, own in (outliers or {}).items()})
    for name, own in (outliers or {}).items():
        sets[name] = Foreign().make(data, seed=seed, foreign=own)
    return tuple(_tried(name, own, model, fitted, rule, threshold) for name, own in sets.items())


def _tried(
    name: str, data: OpenedDataset, model: Model, fitted: FittedMonitor, rule: Learned, threshold: IdThreshold
) -> Trial:
    """What a monitor decides of one set, or why it cannot: it may need more than pixels, the model may be stored."""
    try:
        with foreign_code(lambda error: InputError(first_line(error))):
            rows, predictions = readings(fitted, model, data)
            by_itself = threshold.reject(fitted.scores(rows, rule), predictions)
            memory = Memory(fitted.monitor, rule, fitted.state)
            rejected = [memory.decide(rows[row : row + 1], bool(by_itself[row])) for row in range(len(rows))]
    except RoadworthyError as error:
        return Trial(name, reason=one_line(str(error)))
    return Trial.of(name, np.array(rejected), data.groups)


def readings(fitted: FittedMonitor, model: Model, data: Dataset) -> tuple[Rep, NDArray[np.int64]]:
    """What the monitor keeps of each image, (N, D), and the predicted classes (N,): the model is asked once."""
    rows, predictions = [], []
    for start in range(0, len(data), PART):
        signals = Signals(model, data.batch(slice(start, min(start + PART, len(data)))), BATCH)
        rows.append(fitted.represent_signals(signals))
        predictions.append(signals.probabilities.argmax(axis=1).astype(np.int64))
    return np.concatenate(rows), np.concatenate(predictions)
