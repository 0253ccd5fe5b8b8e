"""Alarm limits for a share that is counted in service: when is an observed share beyond an approved one by no chance?

With n images in a window of which a sum of k counts (each image from 0 to 1, such as rejected or not), and an approved
share p, the alarm sounds where k/n > p and

    n KL(k/n, p) > log(1 / level),    KL(a, p) = a log(a / p) + (1 - a) log((1 - a) / (1 - p))

By Chernoff's bound this has a chance of at most `level` in a window while the share is p or less, for any n and also
where images count something between 0 and 1 (a certainty). Images must be independent: one of each object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import bdtr

MOST_IMAGES = 10**8
"""Where more images than this are needed, none are stated."""


@dataclass(frozen=True)
class AlarmLimit:
    """When an alarm sounds for a share that may be at most `share`.

    images       how many independent images show a share of `worse` with a chance of `power`
    count        among so many, the alarm sounds from this sum on
    false_alarm  the chance of an alarm in such a window where the share is exactly `share`: at most `level`
    """

    share: float
    level: float
    worse: float
    power: float
    images: int
    count: int
    false_alarm: float


def divergence(observed: float, share: float) -> float:
    """The Kullback-Leibler divergence of two shares, KL(observed, share); infinite where it cannot be.

    >>> divergence(0.5, 0.5), round(divergence(0.1, 0.05), 5), divergence(0.1, 0.0)
    (0.0, 0.02065, inf)
    """
    total = 0.0
    for a, p in ((observed, share), (1 - observed, 1 - share)):
        if a > 0:
            total += math.inf if p <= 0 else a * math.log(a / p)
    return max(total, 0.0)


def is_beyond(total: float, images: float, share: float, level: float) -> bool:
    """Whether a sum over so many images sounds the alarm.

    >>> is_beyond(70, 1000, 0.05, 0.001), is_beyond(80, 1000, 0.05, 0.001), is_beyond(0, 1000, 0.05, 0.001)
    (False, True, False)
    >>> is_beyond(1, 1000, 0.0, 0.001)
    True
    """
    if images <= 0 or total <= share * images:
        return False
    return images * divergence(min(total / images, 1.0), share) > math.log(1 / level)


def alarm_count(images: int, share: float, level: float) -> int:
    """The smallest count among so many images that sounds the alarm; images + 1 where none does.

    >>> alarm_count(1000, 0.05, 0.001), alarm_count(2, 0.5, 0.001)
    (78, 3)
    """
    low, high = math.floor(share * images), images + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_beyond(middle, images, share, level) else (middle, high)
    return high


def _at_least(count: int, images: int, share: float) -> float:
    """P(Binomial(images, share) >= count)."""
    return float(1 - bdtr(count - 1, images, share)) if 0 < count <= images else float(count <= 0)


def alarm_limit(share: float, *, excess: float = 2.0, level: float = 0.001, power: float = 0.95) -> AlarmLimit | None:
    """The smallest window in which a share `excess` times as large is seen with a chance of `power`; None if too large.

    Where `excess` times the share is no share any more, the middle between it and 1 is taken. A share of 0 tolerates
    nothing: any single count is an alarm.

    >>> limit = alarm_limit(0.05)
    >>> limit.images, limit.count, limit.false_alarm <= 0.001
    (748, 62, True)
    """
    if not (0 <= share < 1 and excess > 1 and 0 < level < 1 and 0 < power < 1):
        raise ValueError(f"no alarm limit for the share {share}, excess {excess}, level {level}, power {power}")
    if share == 0:
        return AlarmLimit(0.0, level, 0.0, power, 1, 1, 0.0)
    worse = excess * share if excess * share < 1 else (1 + share) / 2

    def seen(images: int) -> bool:
        return _at_least(alarm_count(images, share, level), images, worse) >= power

    high = 1
    while not seen(high):
        high *= 2
        if high > MOST_IMAGES:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    count = alarm_count(high, share, level)
    return AlarmLimit(share, level, worse, power, high, count, _at_least(count, high, share))
