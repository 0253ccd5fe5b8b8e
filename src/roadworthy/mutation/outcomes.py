"""What came of each damage: which criteria caught it, and of a missed one which came nearest. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from roadworthy.verdict.judge import Finding

Outcome = Literal["missed", "only inconclusive", "caught", "not possible"]
MISSED: Outcome = "missed"
UNSURE: Outcome = "only inconclusive"
CAUGHT: Outcome = "caught"
IMPOSSIBLE: Outcome = "not possible"
OUTCOMES: tuple[Outcome, ...] = (MISSED, UNSURE, CAUGHT, IMPOSSIBLE)
"""What can come of a damage, in the order of the table: what a reader must see first comes first."""
LARGE_DROP = 0.05
"""Damages that cost so much clean accuracy must be caught."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class Turned:
    """A criterion that the undamaged copy passes and the damaged model does not, and why."""

    criterion: str
    status: str
    because: str


@dataclass(frozen=True)
class Nearest:
    """The criterion that came nearest to catching a damage.

    `distance` is how much further its bound would have to go, in the unit of its metric.
    """

    criterion: str
    metric: str
    distance: float
    because: str

    def sentence(self) -> str:
        """In a few words."""
        return f"nearest: {self.criterion}, whose bound is {self.distance:.4g} on the safe side of its threshold"


@dataclass(frozen=True)
class DamageResult:
    """One damage and what came of it.

    accuracy, drop   on undisturbed images, and how much less than that of the undamaged model; NaN where not measured
    verdict          of the damaged model's run;  run: the folder of that run
    turned           the criteria that caught it, or only became inconclusive
    nearest          of a damage that was not caught, the criterion that came nearest
    note             why it was not possible, or what else is to be said
    """

    damage: str
    label: str
    slug: str
    parameters: Mapping[str, Any]
    outcome: Outcome
    accuracy: float = math.nan
    drop: float = math.nan
    verdict: str = ""
    turned: tuple[Turned, ...] = ()
    nearest: Nearest | None = None
    run: str = ""
    note: str = ""

    @property
    def is_large(self) -> bool:
        """Whether it costs so much clean accuracy that it must be caught."""
        return self.drop >= LARGE_DROP - ROUNDING

    @property
    def caught_by(self) -> str:
        """The criteria that turned to fail, or, where none did, those that became inconclusive."""
        failed = [one.criterion for one in self.turned if one.status == "fail"]
        return ", ".join(failed or [one.criterion for one in self.turned])

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        plain = asdict(self)
        for name in ("accuracy", "drop"):
            plain[name] = None if math.isnan(plain[name]) else plain[name]
        return plain | {"large_drop": self.is_large}


def turned(before: Sequence[Finding], after: Sequence[Finding]) -> tuple[Turned, ...]:
    """The criteria that pass for the undamaged copy and do not for the damaged model; those that fail come first."""
    passed = {finding.criterion.id for finding in before if finding.status == "pass"}
    lost = [finding for finding in after if finding.criterion.id in passed and finding.status != "pass"]
    lost.sort(key=lambda finding: finding.status != "fail")
    return tuple(Turned(finding.criterion.id, finding.status, finding.sentence()) for finding in lost)


def outcome_of(lost: Sequence[Turned]) -> Outcome:
    """Caught where a criterion turned from pass to fail, only inconclusive where one turned to that, else missed.

    >>> outcome_of([Turned("A", "inconclusive", ""), Turned("B", "fail", "")]), outcome_of([])
    ('caught', 'missed')
    """
    statuses = {one.status for one in lost}
    return CAUGHT if "fail" in statuses else UNSURE if statuses else MISSED


def nearest(before: Sequence[Finding], after: Sequence[Finding]) -> Nearest | None:
    """Of the criteria that both pass, the one whose bound is the least beyond its threshold; None where there is none.

    Distances are in the unit of each metric.
    """
    passed = {finding.criterion.id for finding in before if finding.status == "pass"}
    candidates = []
    for finding in after:
        criterion = finding.criterion
        if criterion.id not in passed or finding.status != "pass":
            continue
        for row in finding.rows:
            estimate = row.measurement.estimate
            safe = estimate.lo if criterion.sign > 0 else estimate.hi
            distance = criterion.sign * (safe - criterion.threshold)
            if math.isfinite(distance):
                candidates.append(Nearest(criterion.id, criterion.metric, distance, row.because))
    return min(candidates, key=lambda one: one.distance, default=None)


def in_order(results: Sequence[DamageResult]) -> tuple[DamageResult, ...]:
    """Missed damages first, then those that made a criterion inconclusive, then caught ones; large drops on top."""

    def key(result: DamageResult) -> tuple[int, float]:
        return OUTCOMES.index(result.outcome), -(result.drop if not math.isnan(result.drop) else -math.inf)

    return tuple(sorted(results, key=key))
