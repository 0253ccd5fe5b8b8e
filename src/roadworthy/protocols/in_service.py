"""What of a run can be watched after approval: each protocol says it of its own figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from roadworthy.statistics import Estimate

Side = Literal["at_most", "at_least"]


@dataclass(frozen=True)
class Watchable:
    """A mean over images that can be counted in service: a share, or a certainty.

    name          of the indicator, in the form of a metric's;  where: model, monitor and what else identifies it
    adds          what each image adds, from 0 to 1, in words;  images: which images count
    measured      on the test data of the run
    side          on which side of the `bound` the approved values lie; None where nothing was approved
    basis         where the bound comes from
    needs_labels  whether somebody must say what is right before it can be counted
    reason        why there is no bound or no alarm, where there is none
    note          what must be known of it
    """

    name: str
    where: Mapping[str, Any]
    adds: str
    images: str
    measured: Estimate
    side: Side | None = None
    bound: float | None = None
    basis: str = ""
    needs_labels: bool = False
    reason: str = ""
    note: str = ""


def measured_bound(watchable: Watchable, side: Side) -> Watchable:
    """The same with the bound of its own estimate: the upper one of what may be at most so much, else the lower."""
    estimate = watchable.measured
    if estimate.unbounded:
        return replace(watchable, reason=estimate.reason or "it was not measured")
    end, bound = ("upper", estimate.hi) if side == "at_most" else ("lower", estimate.lo)
    basis = f"{end} 95 % bound on {estimate.groups:,} objects of the test data"
    return replace(watchable, side=side, bound=bound, basis=basis)
