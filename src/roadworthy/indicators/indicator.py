"""One indicator: what is counted in service, the approved bound, and the alarm limit that follows from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from roadworthy.core.hashing import digest
from roadworthy.protocols.in_service import Watchable
from roadworthy.statistics.alarm_limits import AlarmLimit, alarm_limit

MOST_ID = 80
"""Characters of an id at most."""


@dataclass(frozen=True)
class Rule:
    """When alarms sound.

    level   the chance of a false alarm per window while the approved bound holds
    excess  a share of failures so many times as large is to be seen with a chance of `power` in the stated window
    """

    level: float = 0.001
    excess: float = 2.0
    power: float = 0.95


@dataclass(frozen=True)
class Indicator:
    """A watchable figure with its id, under which it is counted, and its alarm; `reason` says why it has none."""

    id: str
    watchable: Watchable
    alarm: AlarmLimit | None = None
    reason: str = ""

    @property
    def needs_labels(self) -> bool:
        """Whether it can be counted only where somebody says what is right."""
        return self.watchable.needs_labels

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for indicators.json; what is not known is left out."""
        own, measured = self.watchable, self.watchable.measured
        numbers = {"value": measured.value, "lo": measured.lo, "hi": measured.hi}
        content: dict[str, Any] = {
            "id": self.id,
            "name": own.name,
            "needs_labels": own.needs_labels,
            "where": {key: _plain(value) for key, value in own.where.items()},
            "images": own.images,
            "adds": own.adds,
            "side": own.side,
            "bound": own.bound,
            "basis": own.basis,
            "measured": {name: value for name, value in numbers.items() if value == value}
            | {"images": measured.n, "objects": measured.groups},
            "note": own.note,
            "reason": self.reason,
        }
        if self.alarm is not None:
            content["alarm"] = {**asdict(self.alarm), "counts": self.counted}
        return {key: value for key, value in content.items() if value not in (None, "")}

    @property
    def counted(self) -> str:
        """What the share of the alarm is a share of: what was counted, or what is left of it."""
        return (
            "images minus the sum of what they add" if self.watchable.side == "at_least" else "the sum of what they add"
        )

    def sentence(self) -> str:
        """The bound and the alarm in words."""
        own = self.watchable
        if own.side is None or own.bound is None:
            return f"no bound: {self.reason}"
        words = f"{own.side.replace('_', ' ')} {own.bound:.4g} ({own.basis})"
        if self.alarm is None:
            return f"{words}; no alarm limit: {self.reason}"
        alarm = self.alarm
        end = "missing" if own.side == "at_least" else "counted"
        return (
            f"{words}; alarm from {alarm.count:,} {end} among {alarm.images:,} images (false alarms: "
            f"{alarm.false_alarm:.1e} per window; a share of {alarm.worse:.3g} is seen with {alarm.power:.0%})"
        )


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def make_indicators(watchables: Iterable[Watchable], rule: Rule) -> list[Indicator]:
    """Indicators with ids of their own; the same figures have the same ids in every run."""
    indicators: list[Indicator] = []
    known: set[str] = set()
    for own in watchables:
        name = slug(own.name, own.where)
        if name in known:
            name = f"{name[: MOST_ID - 9]}_{digest([own.name, own.basis, dict(own.where)])[:8]}"
        if name in known:
            continue
        known.add(name)
        indicators.append(_with_alarm(name, own, rule))
    return indicators


def _with_alarm(name: str, own: Watchable, rule: Rule) -> Indicator:
    if own.side is None or own.bound is None or own.reason:
        return Indicator(name, own, reason=own.reason or "nothing was approved")
    share = own.bound if own.side == "at_most" else 1 - own.bound
    if not 0 <= share < 1:
        return Indicator(name, own, reason="the bound cannot be exceeded")
    alarm = alarm_limit(share, excess=rule.excess, level=rule.level, power=rule.power)
    if alarm is None:
        return Indicator(name, own, reason="more images would be needed than can be counted")
    return Indicator(name, own, alarm)


def slug(name: str, where: Mapping[str, Any]) -> str:
    """An id of small letters, digits and underscores; what is lost of a name is made up for by a part of its hash.

    >>> slug("rejected", {"model": "v3", "monitor": "energy"})
    'rejected_v3_energy'
    >>> slug("rejected", {"model": "<b>"}).startswith("rejected_b_")
    True
    """
    parts = [name, *(str(value) for value in where.values())]
    plain = "_".join(re.sub(r"[^a-z0-9_]+", "_", part.lower()).strip("_") for part in parts)
    exact = all(re.fullmatch(r"[A-Za-z0-9_. -]+", part) for part in parts) and len(plain) <= MOST_ID
    plain = re.sub(r"_+", "_", plain).strip("_")
    return plain if exact else f"{plain[: MOST_ID - 9]}_{digest([name, {k: str(v) for k, v in where.items()}])[:8]}"
