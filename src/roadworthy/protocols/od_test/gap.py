"""The gap between two data sets and three: what a monitor's accuracy looks like where it is tested with outliers of the
kind it was calibrated with, and what is left of it with other outliers.

two(D_v)    calibrated on the first 80 % of D_v against validation images, tested on the last 20 % of D_v against test
            images, both sides cut to the shorter
three(D_v)  the mean over all D_t != D_v of the accuracy after a calibration on D_v
gap(D_v)    two(D_v) - three(D_v): what an evaluation with two data sets promises and OD-test does not find
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from roadworthy.core.grouping import grouped
from roadworthy.data.subset import leading_rows
from roadworthy.monitors import Aim
from roadworthy.protocols.od_test import table_specs
from roadworthy.protocols.od_test.evaluation import Represented, accuracy, calibrate_on, decide
from roadworthy.protocols.od_test.means import NO_OWN_BOUNDS, Pool, Row, mean_of, shown
from roadworthy.protocols.od_test.names import ACCURACY, GAP, GAP_FIGURES, THREE_DATASETS, TWO_DATASETS
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import no_estimate

HELD_OUT = 0.2
"""The share of D_v that a monitor is tested with where D_v stands for all outliers: the last of its rows.

Rows of a set are in an order drawn by image id, so these are a fair part of it. A monitor that learns from D_v trains
on the rows before them (`leading_rows`) and uses these at most to choose an epoch.
"""
ONE_OBJECT = "too few objects in D_v to hold some out"


def gap_rows(represented: Represented, triples: Sequence[Row], aim: Aim) -> Iterator[dict[str, Any]]:
    """A row per D_v of one monitor on one model, whose triples are given."""
    by_valid_set = grouped((row["valid_set"], row) for row in triples if row["metric"] == ACCURACY)
    for valid_set in represented.valid_sets:
        two = _two_datasets(represented, valid_set, aim)
        known = [row["value"] for row in by_valid_set.get(valid_set, ()) if not math.isnan(row["value"])]
        three = math.fsum(known) / len(known) if known else math.nan
        yield {
            **represented.named,
            "valid_set": valid_set,
            TWO_DATASETS: two.value,
            "lo": two.lo,
            "hi": two.hi,
            "n": two.n,
            "groups": two.groups,
            THREE_DATASETS: three,
            "test_sets": len(known),
            GAP: two.value - three,
            "reason": two.reason or ("" if known else "no test set has a value"),
        }


def _two_datasets(represented: Represented, valid_set: str, aim: Aim) -> Estimate:
    """The accuracy on held-out images of D_v itself, or why there is none."""
    outside = represented.outliers[valid_set]
    if isinstance(outside, str):
        return no_estimate(outside)
    leading = leading_rows(outside.groups.tolist(), 1 - HELD_OUT)
    if leading.all():
        return no_estimate(ONE_OBJECT)
    sides = represented.sides(represented.valid, valid_set, outside.take(leading))
    decisions = decide(represented, calibrate_on(represented, aim, sides), valid_set, outside.take(~leading))
    return no_estimate(decisions) if isinstance(decisions, str) else accuracy(decisions, aim)


def gap_tables(gaps: Sequence[Row], triples: Sequence[Row]) -> dict[str, pd.DataFrame]:
    """The table of gaps and that of their means per monitor."""
    return {
        table_specs.GAP.name: table_specs.GAP.frame(shown(gaps), first=["source"]),
        table_specs.GAP_METHODS.name: table_specs.GAP_METHODS.frame(_means(gaps, triples)),
    }


def _means(gaps: Sequence[Row], triples: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The mean of both accuracies and of the gap per monitor, over the triples whose D_v has both.

    Every triple counts once, so that the mean with three data sets is that of the ranking. The independent unit is the
    pair of source and test set, which for two data sets and for the gap is the pair of source and D_v.
    """
    known = {(row["source"], row["monitor"], row["valid_set"]): row for row in gaps if not math.isnan(row[GAP])}
    rows = [row for row in triples if row["metric"] == ACCURACY and not math.isnan(row["value"])]
    pool = Pool(rows)
    for monitor, own in grouped((row["monitor"], row) for row in rows).items():
        pairs = [(row, known.get((row["source"], monitor, row["valid_set"]))) for row in own]
        figures = [_figures(row, gap) for row, gap in pairs if gap is not None]
        for figure in GAP_FIGURES:
            values = [row | {"metric": figure, "value": row[figure]} for row in figures]
            values = values if figure == THREE_DATASETS else [row | NO_OWN_BOUNDS for row in values]
            mean = mean_of(pool, values, unit="test_set" if figure == THREE_DATASETS else "valid_set")
            yield {"monitor": monitor, "figure": figure, **{name: mean[name] for name in table_specs.SHORT_MEAN}}


def _figures(triple: Row, gap: Row) -> dict[str, Any]:
    """A triple with what it adds to each mean."""
    two, three = gap[TWO_DATASETS], triple["value"]
    return {**triple, TWO_DATASETS: two, THREE_DATASETS: three, GAP: two - three}
