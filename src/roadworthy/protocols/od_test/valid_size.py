"""How many outliers a calibration needs: accuracy against the number of images of D_v.

A monitor is calibrated with the first n images of D_v and as many of the source's validation part (all, where there are
fewer), and tested on every other set as always. Monitors that learn from D_v are not among them: their fit has seen all
of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pandas as pd

from roadworthy.core.errors import InputError, ModelError, foreign_code, is_the_machine_s
from roadworthy.core.grouping import grouped
from roadworthy.monitors import Aim, CalibratedMonitor
from roadworthy.monitors.learned import Floats
from roadworthy.protocols.od_test import table_specs
from roadworthy.protocols.od_test.evaluation import NO_IMAGE_LEFT, Represented, Sample, calibrate_on
from roadworthy.protocols.od_test.means import NO_OWN_BOUNDS, Pool, Row, by_group, mean_of
from roadworthy.protocols.od_test.names import ACCURACY

STEPS = (10, 25, 50)
"""The sizes of one decade; the next ones are ten times as large, and so on."""


def sizes_below(most: int) -> list[int]:
    """The sizes to try below a number of images: 10, 25, 50, 100, 250, 500, ...

    >>> sizes_below(260), sizes_below(10)
    ([10, 25, 50, 100, 250], [])
    """
    sizes: list[int] = []
    for decade in count():
        for step in STEPS:
            if step * 10**decade >= most:
                return sizes
            sizes.append(step * 10**decade)
    raise AssertionError


class Scores:
    """The scores of a monitor on the test part and on every set, computed once for each rule of a calibration.

    A rule is what a calibration learned besides the threshold: often nothing, so that all calibrations share one.
    """

    def __init__(self, represented: Represented) -> None:
        self._sides = {name: represented.sides(represented.test, name) for name in represented.outliers}
        self._known: dict[tuple[Any, ...], tuple[Floats, Floats] | str] = {}

    def of(self, monitor: CalibratedMonitor, test_set: str) -> tuple[Floats, Floats] | str:
        """The scores (n,) of both sides of a test set; or why there are none."""
        sides = self._sides[test_set]
        if isinstance(sides, str):
            return sides
        if not len(sides[0]):
            return NO_IMAGE_LEFT
        rule = tuple((name, array.tobytes()) for name, array in monitor.rule.items())
        if (test_set, rule) not in self._known:
            self._known[test_set, rule] = _scored(monitor, sides)
        return self._known[test_set, rule]


def _scored(monitor: CalibratedMonitor, sides: tuple[Sample, Sample]) -> tuple[Floats, Floats] | str:
    try:
        with foreign_code("", is_the_machine_s):
            return monitor.score(sides[0].rows), monitor.score(sides[1].rows)
    except (InputError, ModelError) as error:
        return f"not scored: {error}"


def size_rows(represented: Represented, triples: Sequence[Row], aim: Aim) -> Iterator[dict[str, Any]]:
    """The accuracy of every triple of one monitor on one model, by the number of images of D_v.

    Sizes are those below the number of images that D_v has; `triples`, the rows of a calibration with all of these,
    come last, with that number.
    """
    if represented.fitted_on:
        return
    scores = Scores(represented)
    by_valid_set = grouped((row["valid_set"], row) for row in triples if row["metric"] == ACCURACY)
    for valid_set, own in by_valid_set.items():
        sides = represented.sides(represented.valid, valid_set)
        pair = () if isinstance(sides, str) else sides
        most = len(pair[0]) if pair else 0
        for images in sizes_below(most):
            monitor = calibrate_on(represented, aim, [side.take(slice(images)) for side in pair])
            for row in own:
                outcome = monitor if isinstance(monitor, str) else scores.of(monitor, row["test_set"])
                yield {**row, **NO_OWN_BOUNDS, "images": images, **_accuracy(monitor, outcome, aim)}
        yield from ({**row, "images": most} for row in own)


def _accuracy(monitor: CalibratedMonitor | str, scores: tuple[Floats, Floats] | str, aim: Aim) -> dict[str, Any]:
    """The accuracy of a monitor on scores of both sides, or why it has none."""
    if isinstance(monitor, str) or isinstance(scores, str):
        return {"value": math.nan, "reason": str(scores)}
    accepted, rejected = (scores[0] >= monitor.threshold).mean(), (scores[1] < monitor.threshold).mean()
    return {"value": float((1 - aim.prior) * accepted + aim.prior * rejected), "reason": ""}


def size_table(rows: Sequence[Row]) -> pd.DataFrame:
    """The mean over triples per monitor and number of images, over all sources and of each.

    Every mean is over the same triples: a set with fewer images counts with all it has. So the last mean is that of the
    ranking.
    """
    means = []
    for source, members in by_group(rows, "source").items():
        pool = Pool(members)
        for monitor, own in grouped((row["monitor"], row) for row in members).items():
            most = max(row["images"] for row in own)
            by_triple = grouped(((row["source"], row["valid_set"], row["test_set"]), row) for row in own)
            for images in [*sizes_below(most), most]:
                used = [_used(sizes, images) for sizes in by_triple.values()]
                mean = mean_of(pool, used)
                where = {"source": source, "monitor": monitor, "images": images}
                means.append(where | {name: mean[name] for name in table_specs.SHORT_MEAN})
    return table_specs.VALID_SIZE.frame(means, first=["source"])


def _used(sizes: Sequence[Row], images: int) -> Row:
    """The row of a triple, of those by size from the smallest, that a calibration with so many images gives."""
    return next((row for row in sizes if row["images"] == images), sizes[-1])
