"""How stable the ranking of monitors is: a bootstrap over sources, their models and the outlier sets.

In a resample, sources are drawn with replacement; for each one drawn, as many of its models as it has, with
replacement; and, for all sources alike, the outlier sets with replacement. A triple (model, D_v, D_t) then weighs

    w = times the model was drawn x times D_v was drawn x times D_t was drawn

(the pigeonhole bootstrap of Owen 2007), and monitors are ranked by their weighted means. What this can say: whether the
order hangs on single sources, networks or sets. What it cannot: how monitors do on sets of another kind, as those at
hand were chosen, not drawn; and with few of them the resamples are few and coarse.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.grouping import grouped
from roadworthy.core.random import Streams
from roadworthy.metrics import find_metric
from roadworthy.protocols.od_test import metrics, table_specs
from roadworthy.protocols.od_test.means import Row, once_per_domain
from roadworthy.protocols.od_test.names import SETTLED

RESAMPLES = 2000
LEAST_SETS = 3
"""With two sets the only resample that has a triple is the sets themselves."""
TIE = 1e-12
"""Means that differ by less are equal: the order in which numbers are added may not decide."""
TOO_FEW_SETS = f"fewer than {LEAST_SETS} outlier sets: there is nothing to resample"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Draws:
    """How often each thing was drawn in each of B resamples.

    domains  by source (B,);  subjects: by model of a source (B,);  sets: by outlier set (B,)
    """

    domains: Mapping[str, Floats]
    subjects: Mapping[str, Floats]
    sets: Mapping[str, Floats]

    def weights(self, rows: Sequence[Row]) -> Floats:
        """The weight of each row in each resample, (B, N); one of a monitor that asks no model goes by its source."""
        drawn = [self.subjects[row["source"]] if row["asks_model"] else self.domains[row["domain"]] for row in rows]
        sets = [self.sets[row["valid_set"]] * self.sets[row["test_set"]] for row in rows]
        return np.stack(drawn, axis=1) * np.stack(sets, axis=1)


def draw(models: Mapping[str, Sequence[str]], sets: Collection[str], resamples: int = RESAMPLES) -> Draws:
    """Resamples of sources with their models and of outlier sets; the order in which they are named does not matter."""
    rng = next(Streams("od_test stability").each(["resamples"]))
    domains, outliers = sorted(models), sorted(sets)
    drawn = _picks(rng, (resamples, len(domains)), len(domains))
    counts = _counts(drawn, len(domains))
    subjects: dict[str, Floats] = {}
    for index, domain in enumerate(domains):
        own = sorted(models[domain])
        picked = _picks(rng, (resamples, len(domains), len(own)), len(own))
        for number, subject in enumerate(own):
            subjects[subject] = ((picked == number).sum(axis=2) * (drawn == index)).sum(axis=1).astype(np.float64)
    of_sets = _counts(_picks(rng, (resamples, len(outliers)), len(outliers)), len(outliers))
    return Draws(dict(zip(domains, counts, strict=True)), subjects, dict(zip(outliers, of_sets, strict=True)))


def _picks(rng: np.random.Generator, shape: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to below `count`, each as likely as another."""
    return np.minimum((rng.random(shape) * count).astype(np.int64), count - 1)


def _counts(picks: NDArray[np.int64], count: int) -> list[Floats]:
    """How often each number below `count` is in each row of picks (B, K): an array (B,) each."""
    return [(picks == number).sum(axis=1).astype(np.float64) for number in range(count)]


@dataclass(frozen=True, eq=False)
class Stability:
    """The means (B, M) of M monitors in those resamples that hold a triple; `higher`: the higher mean is better."""

    monitors: tuple[str, ...]
    means: Floats
    higher: bool = True

    @cached_property
    def before(self) -> Floats:
        """How often the monitor of a row is before that of a column, (M, M); ties count half."""
        own, other = self.means[:, :, None], self.means[:, None, :]
        better = (own - other > TIE) if self.higher else (other - own > TIE)
        tied = np.abs(own - other) <= TIE
        return np.asarray((better + 0.5 * tied).mean(axis=0))

    @cached_property
    def ranks(self) -> Floats:
        """The rank of each monitor in each resample, (B, M), from 1; tied ones share the mean of their ranks."""
        own, other = self.means[:, :, None], self.means[:, None, :]
        ahead = (other - own > TIE) if self.higher else (own - other > TIE)
        tied = (np.abs(own - other) <= TIE).sum(axis=2) - 1
        return np.asarray(1 + ahead.sum(axis=2) + 0.5 * tied)


def ranked_monitors(
    triples: Sequence[Row], expected: Collection[tuple[str, str, str]], judged: str
) -> dict[str, list[Row]]:
    """The rows that count of every monitor that has a rank, the best mean first.

    Those have a value for every expected triple (source, D_v, D_t), and no fit below its floor among them.
    """
    rows = [
        row
        for row in triples
        if row["metric"] == judged
        and not math.isnan(row["value"])
        and not row["weak_fit"]
        and (row["source"], row["valid_set"], row["test_set"]) in expected
    ]
    by_monitor = grouped((row["monitor"], row) for row in rows)
    complete = {label: once_per_domain(own) for label, own in by_monitor.items() if len(own) == len(expected)}
    sign = -1.0 if _is_higher_better(judged) else 1.0
    means = {label: math.fsum(row["value"] for row in own) / len(own) for label, own in complete.items()}
    return {label: complete[label] for label in sorted(complete, key=lambda label: sign * means[label])}


def stability(ranked: Mapping[str, Sequence[Row]], judged: str, resamples: int = RESAMPLES) -> Stability:
    """The means of ranked monitors in every resample that holds a triple."""
    every = [row for own in ranked.values() for row in own]
    models = grouped((row["domain"], row["source"]) for row in every)
    drawn = draw(
        {domain: [*dict.fromkeys(subjects)] for domain, subjects in models.items()},
        {row[column] for row in every for column in ("valid_set", "test_set")},
        resamples,
    )
    means = np.stack([_weighted_mean(drawn, own) for own in ranked.values()], axis=1)
    return Stability((*ranked,), means[~np.isnan(means).any(axis=1)], _is_higher_better(judged))


def _weighted_mean(drawn: Draws, rows: Sequence[Row]) -> Floats:
    """The mean of a monitor's rows in each resample, (B,); NaN where none of them was drawn."""
    weights, values = drawn.weights(rows), np.array([row["value"] for row in rows])
    total = weights.sum(axis=1)
    return np.asarray((weights * values).sum(axis=1) / np.where(total > 0, total, np.nan))


def _is_higher_better(judged: str) -> bool:
    return find_metric(judged, metrics.METRICS).higher_is_better is not False


def stability_tables(
    triples: Sequence[Row], expected: Collection[tuple[str, str, str]], judged: str
) -> dict[str, pd.DataFrame]:
    """The table of every ordered pair of ranked monitors, and that of their ranks."""
    ranked = ranked_monitors(triples, expected, judged)
    sets = {name for _, *pair in expected for name in pair}
    stable_order = stability(ranked, judged) if ranked and len(sets) >= LEAST_SETS else None
    return {
        table_specs.STABILITY.name: table_specs.STABILITY.frame(_pair_rows(stable_order) if stable_order else ()),
        table_specs.RANKS.name: table_specs.RANKS.frame(
            _rank_rows(stable_order) if stable_order else _without_resamples(ranked)
        ),
    }


def _pair_rows(stable_order: Stability) -> Iterator[dict[str, Any]]:
    for row, monitor in enumerate(stable_order.monitors):
        for column, other in enumerate(stable_order.monitors):
            if row != column:
                yield {"monitor": monitor, "other": other, "before": float(stable_order.before[row, column])}


def _rank_rows(stable_order: Stability) -> Iterator[dict[str, Any]]:
    ends = np.quantile(stable_order.ranks, [0.025, 0.975], axis=0, method="inverted_cdf")
    for index, monitor in enumerate(stable_order.monitors):
        others = np.delete(stable_order.before[index], index)
        after, before = int((others >= SETTLED).sum()), int((others <= 1 - SETTLED).sum())
        yield {
            "monitor": monitor,
            "rank": index + 1,
            "lo": float(ends[0, index]),
            "hi": float(ends[1, index]),
            "settled_before": before,
            "settled_after": after,
            "unsettled": len(others) - before - after,
            "resamples": len(stable_order.means),
            "reason": "",
        }


def _without_resamples(ranked: Mapping[str, Sequence[Row]]) -> Iterator[dict[str, Any]]:
    counts = {"settled_before": 0, "settled_after": 0, "unsettled": len(ranked) - 1, "resamples": 0}
    for rank, monitor in enumerate(ranked, start=1):
        yield {"monitor": monitor, "rank": rank, "lo": math.nan, "hi": math.nan, **counts, "reason": TOO_FEW_SETS}
