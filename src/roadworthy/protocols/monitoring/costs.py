"""What monitors cost at runtime, from stored times: tables, estimates for criteria, and two runs side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.protocols.monitoring.metrics import EXTRA_SECONDS, MEDIAN_SECONDS, P95_SECONDS, P99_SECONDS
from roadworthy.protocols.monitoring.names import ALONE
from roadworthy.protocols.monitoring.table_specs import TIMES, TIMING
from roadworthy.protocols.stopwatch import BLOCK
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import CONFIDENCE, no_estimate
from roadworthy.statistics.paired import PairedChange, p_by_interval
from roadworthy.statistics.quantiles import METHOD, quantile_estimate

Floats = NDArray[np.float64]
System = tuple[str, str, str]
"""Model, monitor and form."""
SHARES = {MEDIAN_SECONDS.name: 0.5, P95_SECONDS.name: 0.95, P99_SECONDS.name: 0.99}
COLUMNS = {"median": MEDIAN_SECONDS.name, "p95": P95_SECONDS.name, "p99": P99_SECONDS.name, "extra": EXTRA_SECONDS.name}
"""The columns of the table of timings that are estimates, each with its metric."""
MEASURED = ("state_bytes", "resident_bytes", "machine", "measured", "asked", "system", "no_memory")
"""Its columns that were measured once and follow from nothing that is stored."""
SMALLEST_P = 1e-6


@dataclass(frozen=True)
class Costs:
    """What was measured of the systems of one source.

    facts   by (model, monitor, form): the columns `MEASURED` and `reason`, why it was not timed
    times   seconds by turn of the same; nothing of one that was not timed;  images: how many different ones
    """

    facts: Mapping[System, Mapping[str, Any]]
    times: Mapping[System, Floats]
    images: Mapping[System, int]

    @classmethod
    def of_tables(cls, timing: pd.DataFrame, times: pd.DataFrame) -> Costs:
        """From the two tables of a run; nothing where it has no times, as runs of earlier versions."""
        if not len(times):
            return cls({}, {}, {})
        key = list(TIMING.key)
        by_system: dict[Any, pd.DataFrame] = {where: own.sort_values("turn") for where, own in times.groupby(key)}
        return cls(
            {
                (row["model"], row["monitor"], row["form"]): {str(name): value for name, value in row.items()}
                for row in timing.to_dict("records")
            },
            {where: own["seconds"].to_numpy(np.float64) for where, own in by_system.items()},
            {where: own["image"].nunique() for where, own in by_system.items()},
        )

    def frame(self) -> pd.DataFrame:
        """The table of timings, as it follows from the times."""
        return TIMING.frame(self._row(where) for where in self.facts)

    def _row(self, where: System) -> dict[str, Any]:
        facts, timed = self.facts[where], where in self.times
        row: dict[str, Any] = {**dict(zip(TIMING.key, where, strict=True)), **{name: facts[name] for name in MEASURED}}
        row |= {"images": len(self.times[where]) if timed else 0, "different": self.images.get(where, 0)}
        reasons = dict[str, None]()
        for column, metric in COLUMNS.items():
            estimate = self.estimate(where, metric)
            row |= {column: estimate.value, f"{column}_lo": estimate.lo, f"{column}_hi": estimate.hi}
            if estimate.reason and not (column == "extra" and where[1] == ALONE):
                reasons[estimate.reason] = None
        alone = self.estimate(_alone(where), MEDIAN_SECONDS.name).value
        row["overhead_median"] = row["median"] / alone if alone > 0 else math.nan
        base = self.facts.get(_alone(where), {}).get("resident_bytes", math.nan)
        row["extra_resident_bytes"] = facts["resident_bytes"] - base if where[1] != ALONE else math.nan
        return row | {"reason": "; ".join(reasons) if timed else facts["reason"]}

    def estimate(self, where: System, metric: str, confidence: float = CONFIDENCE) -> Estimate:
        """One metric of one system; times resemble each other within the blocks that systems take turns in."""
        if where not in self.times:
            known = self.facts.get(where)
            return no_estimate(f"not timed: {known['reason']}" if known else "not timed in this run")
        if metric != EXTRA_SECONDS.name:
            return quantile_estimate(self.times[where], SHARES[metric], confidence, BLOCK)
        if where[1] == ALONE or _alone(where) not in self.times:
            return no_estimate("there is no model alone that it was timed beside")
        base, own = self.times[_alone(where)], self.times[where]
        both = min(len(base), len(own))
        return quantile_estimate(own[:both] - base[:both], 0.5, confidence, BLOCK)

    def machine(self, where: System) -> str:
        """The machine that it was timed on; empty where it was not."""
        return str(self.facts[where]["machine"]) if where in self.times else ""


def _alone(where: System) -> System:
    return where[0], ALONE, where[2]


def time_rows(where: System, seconds: list[float], different: int) -> Iterator[dict[str, Any]]:
    """The times of one system as rows of their table; images are shown in turn, again from the first."""
    for turn, taken in enumerate(seconds):
        yield {**dict(zip(TIMES.key, where, strict=False)), "turn": turn, "image": turn % different, "seconds": taken}


def compared_costs(change: PairedChange, before: tuple[Costs, System], after: tuple[Costs, System]) -> PairedChange:
    """How a cost changed from one run to the other; a reason where they were not timed on the same type of machine.

    The bounds are those of the two costs, each at half the chance of an error, put together: after - before lies
    between lo - hi and hi - lo. The p value is the largest chance of an error at which they leave 0 out.
    """
    sides = before, after
    estimates = [costs.estimate(where, change.metric, change.confidence) for costs, where in sides]
    if lost := [estimate.reason for estimate in estimates if estimate.missing]:
        return replace(change, reason=lost[0])
    there, here = (costs.machine(where) for costs, where in sides)
    if there != here:
        return replace(change, reason=f"timed on another machine ({there}; {here}): time both runs on one machine")
    ends = partial(_difference, sides, change.metric)
    lo, hi = ends(change.confidence)
    value = estimates[1].value - estimates[0].value
    change = replace(change, before=estimates[0].value, after=estimates[1].value, change=value, lo=lo, hi=hi)
    timed = min(estimate.n for estimate in estimates)
    change = replace(change, n=timed, groups=timed, method=METHOD)
    if math.isnan(lo) or math.isnan(hi):
        reason = next((e.reason for e in estimates if e.reason), "too few images were timed for bounds")
        return replace(change, reason=reason)
    return replace(change, p=p_by_interval(ends, SMALLEST_P))


def _difference(sides: Any, metric: str, confidence: float) -> tuple[float, float]:
    """The bounds of after - before."""
    old, new = (costs.estimate(where, metric, 1 - (1 - confidence) / 2) for costs, where in sides)
    return new.lo - old.hi, new.hi - old.lo
