"""Means of OD-test over triples: which rows of which monitor count, and an interval whose unit is what is independent.

A row is a dictionary: the columns of its table, and what `POOLED_BY` names, which no table shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from roadworthy.core.errors import InputError
from roadworthy.core.grouping import grouped
from roadworthy.protocols.od_test import table_specs
from roadworthy.protocols.od_test.names import ACCURACY, ALL, ANY, COST, DISTANCE, FAR, GAP, NEAR, POOLED_BY
from roadworthy.statistics.bootstrap import WITHOUT_WIDTH
from roadworthy.statistics.estimates import CONFIDENCE

Row = Mapping[str, Any]
ENDS = {COST: (0.0, math.inf), GAP: (-1.0, 1.0)}
"""The lowest and highest value of the figures that are not shares."""
ALL_ALIKE = "all test sets have the same value"
"""The reason of a missing interval, or of one from the bounds of each triple, where test sets do not differ."""
NO_OWN_BOUNDS = {"lo": math.nan, "hi": math.nan}
"""What a row has whose own bounds are of another figure."""


def shown(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows with the columns that a table shows."""
    return [{name: value for name, value in row.items() if name not in POOLED_BY} for row in rows]


@dataclass(frozen=True)
class Selection:
    """The rows of one monitor that a mean is made of.

    without       what was left out of them because a network is below its floor
    undertrained  the rows that count are such ones themselves, since there are no others
    """

    rows: list[Row]
    without: tuple[str, ...]
    undertrained: bool


class Pool:
    """The models of sources that count in a mean over some rows, given those rows (of all monitors).

    Models below their floor are left out, unless there are no others.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        rows = [*rows]
        self.several = len({row["source"] for row in rows}) > 1
        self.undertrained = all(row["weak_network"] for row in rows)
        counted = [row for row in rows if self.undertrained or not row["weak_network"]]
        self.subjects = {row["source"] for row in counted}
        self.domains = {row["domain"] for row in counted}
        self.dropped = sorted({row["source"] for row in rows} - self.subjects)

    def select(self, rows: Sequence[Row]) -> Selection:
        """The rows that count of one monitor.

        Where several models count, rows of a fit below its floor are left out, unless the monitor has no others; and a
        monitor that asks no model, whose answer is the same on each model of a source, counts once per source.
        """
        chosen = [row for row in rows if row["source"] in self.subjects]
        trained = [row for row in chosen if not row["weak_fit"]]
        weak = bool(chosen) and not trained
        lost: list[str] = []
        if self.several and trained:
            lost = _untrained_fits([row for row in chosen if row["weak_fit"]], {row["source"] for row in trained})
            chosen = trained
        any_weak = weak or (not self.several and any(row["weak_fit"] for row in chosen))
        return Selection(once_per_domain(chosen), (*self.dropped, *lost), self.undertrained or any_weak)

    def expected(self, rows: Sequence[Row]) -> int:
        """How many models a monitor must have been tested on; sources, where it asks no model."""
        return len(self.subjects) if all(row["asks_model"] for row in rows) else len(self.domains)


def _untrained_fits(rows: Sequence[Row], partly: set[str]) -> list[str]:
    """Names for rows of fits below their floor: the source, with D_v where the fits for others are not."""
    fits = dict.fromkeys((row["source"], row.get("valid_set", "")) for row in rows)
    names = [f"{source} with D_v {valid_set}" if source in partly else source for source, valid_set in fits]
    return sorted({*names})


def once_per_domain(rows: Sequence[Row]) -> list[Row]:
    """The rows without those that repeat the answer of a monitor that asks no model on a further model of a source.

    Of the models of a source the first one with the most values stands for all.
    """
    values: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        if not row["asks_model"]:
            known = values.setdefault((row["monitor"], row["domain"]), {})
            known[row["source"]] = known.get(row["source"], 0) + (not math.isnan(row["value"]))
    first = {key: max(known, key=lambda source: known[source]) for key, known in values.items()}
    return [row for row in rows if row["asks_model"] or first[row["monitor"], row["domain"]] == row["source"]]


def matrix_tables(triples: Sequence[Row], pairs: Sequence[Row]) -> dict[str, pd.DataFrame]:
    """The tables of triples and their means, from the rows of algorithm 1 and of algorithm 2."""
    if not triples:
        raise InputError("there is no triple of source, D_v and D_t: name at least two sets of outliers")
    alone = [{name: value for name, value in pair.items() if name != "valid_set"} for pair in shown(pairs)]
    tables = {
        table_specs.TRIPLES: table_specs.TRIPLES.frame(shown(triples), first=["source"]),
        table_specs.METHODS: methods(triples),
        table_specs.ARCHITECTURES: methods(triples, "architecture"),
        table_specs.HEAT_MAP: heat_map(triples),
        table_specs.UNSUPERVISED: table_specs.UNSUPERVISED.frame(alone, first=["source"]),
        table_specs.UNSUPERVISED_METHODS: methods(pairs),
    }
    return {spec.name: table for spec, table in tables.items()}


def methods(triples: Sequence[Row], by: str = "source") -> pd.DataFrame:
    """The mean of each metric per monitor, over all sources and of each (or of each architecture), over all, near and
    far test sets.

    lo, hi          95 % interval of Student's t whose independent unit is the pair of source and test set: triples that
                    share a test set are no further evidence of one another, and neither are two models of one source
    lo_triples ...  as published, with every triple as one independent experiment: too narrow, for comparison alone
    undertrained    the source's network or the monitor's own is below its floor. Means over several sources leave such
                    ones out, unless there are no others

    Where there are several architectures, a monitor that asks no model stands under the architecture `any`. Test sets
    are chosen, not drawn, and share their source: both intervals describe the sets at hand. They are cut to 0..1, which
    all metrics but the expected cost keep to.
    """
    rows = []
    for group, members in by_group(triples, by).items():
        pool = Pool(members)
        for distance in (ALL, NEAR, FAR):
            own = (row for row in members if distance in (ALL, row[DISTANCE]))
            for (monitor, metric), given in grouped(((row["monitor"], row["metric"]), row) for row in own).items():
                where = {by: group, DISTANCE: distance, "monitor": monitor, "metric": metric}
                rows.append(where | mean_of(pool, given, is_whole=distance == ALL))
    return pd.DataFrame(rows)


def by_group(rows: Sequence[Row], by: str) -> dict[str, tuple[Row, ...]]:
    """All rows under `all`, then those of each source or architecture."""
    several = len({row[by] for row in rows}) > 1 and by == "architecture"

    def group_of(row: Row) -> str:
        return ANY if several and not row["asks_model"] else str(row[by])

    return {ALL: (*rows,), **grouped((group_of(row), row) for row in rows)}


def mean_of(pool: Pool, given: Sequence[Row], is_whole: bool = True, unit: str = "test_set") -> dict[str, Any]:
    """The mean of rows of one monitor as columns of a table; `is_whole` says whether all sources should be there."""
    chosen = pool.select(given)
    served, needed = len({row["source"] for row in chosen.rows}), pool.expected(given)
    noted = [
        f"without undertrained: {', '.join(chosen.without)}" if chosen.without else "",
        f"{served} of {needed} sources only: not comparable with the others" if is_whole and served < needed else "",
    ]
    return mean_columns(chosen.rows, noted, unit=unit) | {"undertrained": chosen.undertrained}


def mean_columns(
    chosen: Sequence[Row], noted: Sequence[str] = (), confidence: float = CONFIDENCE, unit: str = "test_set"
) -> dict[str, Any]:
    """The mean of one metric of some triples with both intervals, and what is to be said of it.

    Rows of one source that share the set in the column `unit` are one cluster.
    """
    known = [row for row in chosen if not math.isnan(row["value"])]
    failed = f"{len(chosen) - len(known)} of {len(chosen)} triples have no value" if len(known) < len(chosen) else ""
    numbers = dict.fromkeys(("value", "lo", "hi", "lo_triples", "hi_triples"), math.nan)
    count, reason = 0, ""
    if known:
        values = np.array([row["value"] for row in known])
        clusters, pairs = pd.factorize(pd.Series([(row["domain"], row[unit]) for row in known]))
        ends = ENDS.get(known[0]["metric"], (0.0, 1.0))
        lo, hi, reason = clustered_interval(values, clusters, ends, confidence)
        if hi - lo <= WITHOUT_WIDTH:  # sets that do not differ say nothing of how others do
            lo, hi = (float(np.mean([row.get(side, math.nan) for row in known])) for side in ("lo", "hi"))
            reason = ALL_ALIKE if math.isnan(lo + hi) else f"{ALL_ALIKE}: bounds are the means of their own"
        alone = clustered_interval(values, np.arange(len(values)), ends, confidence)
        numbers = dict(zip(numbers, (float(values.mean()), lo, hi, *alone[:2]), strict=True))
        count = len(pairs)
    return {
        **numbers,
        "triples": len(known),
        "clusters": count,
        "sources": len({row["source"] for row in chosen}),
        "reason": "; ".join(filter(None, [*noted, failed, reason])),
    }


def clustered_interval(
    values: NDArray[np.float64],
    clusters: NDArray[np.int64],
    ends: tuple[float, float] = (0.0, 1.0),
    confidence: float = CONFIDENCE,
) -> tuple[float, float, str]:
    """Interval of the mean of values (n,) whose clusters (n,), numbered from 0, are independent.

    mean -+ t_{C-1} sqrt(C / (C - 1) sum_c (sum_{i in c} (x_i - mean))^2) / n, cut to `ends`. Gives (lo, hi, reason).

    >>> lo, hi, _ = clustered_interval(np.array([0.5, 0.52, 0.54]), np.array([0, 1, 2]))
    >>> round(lo, 3), round(hi, 3)
    (0.47, 0.57)
    >>> clustered_interval(np.array([0.5, 0.7]), np.array([0, 0]))
    (nan, nan, 'one test set only')
    """
    count = int(clusters.max()) + 1
    if count < 2:
        return math.nan, math.nan, "one test set only"
    mean = values.mean()
    sums = np.bincount(clusters, values - mean)
    error = math.sqrt(count / (count - 1) * float((sums**2).sum())) / len(values)
    half = float(stdtrit(count - 1, (1 + confidence) / 2)) * error
    return max(ends[0], float(mean - half)), min(ends[1], float(mean + half)), ""


def heat_map(triples: Sequence[Row]) -> pd.DataFrame:
    """The accuracy of each monitor for each D_v and D_t: the mean over the sources that meet both, and their number.

    What counts is as in `methods`.
    """
    known = [row for row in triples if row["metric"] == ACCURACY and not math.isnan(row["value"])]
    pool = Pool(known)
    counted = {
        id(row) for own in grouped((row["monitor"], row) for row in known).values() for row in pool.select(own).rows
    }
    columns = ["monitor", "valid_set", "test_set"]
    chosen = pd.DataFrame([row for row in known if id(row) in counted], columns=[*columns, "value"])
    cells = chosen.astype({"value": float}).groupby(columns, sort=False)["value"]
    return cells.agg(accuracy="mean", sources="count").reset_index()
