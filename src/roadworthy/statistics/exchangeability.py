"""Tests that watch a stream for as long as it runs: whether it still comes from where the calibration data came from.

Each is a bet against a null hypothesis. The wealth starts at 1 and cannot be expected to grow while the hypothesis
holds, so that the chance that it ever reaches 1/level is at most `level`, however long one watches (Ville's
inequality): then the alarm sounds.

test                       null hypothesis                                             reads, once per object
ExchangeabilityMartingale  the scores so far could have come in any order             the score of one random image
RejectionRateTest          the chance to reject, given the past, is at most alpha      whether that image was rejected

Frames of one object resemble each other and break both hypotheses: feed one image of each object.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError

Floats = NDArray[np.float64]

POWERS = (0.1, 0.3, 0.6)
"""Bets c p^(c - 1) on small p-values: scores lower than before."""
SLOPES = (-1.8, -0.9, 0.9, 1.8)
"""Bets 1 + s (p - 1/2): below 0 on small p-values, above 0 on large ones."""
STAKES = (0.01, 0.03, 0.1, 0.3, 0.6, 0.9)
"""Bets on rejection, as shares of the wealth that an accepted image costs."""
TIES_KEY = 0x7469_6573
"""Tells the random numbers that break ties from others of the same seed."""


class BettingTest(ABC):
    """A test by betting: the wealth over a mixture of bets and of starting times.

    Wealth after t values, with factors f_j of bet j (expectation at most 1 under the null hypothesis):

        W_t = r_t + sum_{s <= t} (r_{s-1} - r_s) mean_j prod_{i = s..t} f_j(x_i),    r_t = 1 / (1 + log(1 + t))

    The share r_t is kept back for bets that start later. So the wealth never falls below r_t, and a change after a long
    quiet time is found soon: starting at t costs about log t in log wealth.

    level  the chance of a false alarm, over the whole stream
    """

    def __init__(self, level: float, bets: int) -> None:
        if not 0 < level < 1:
            raise InputError(f"the level of a test lies between 0 and 1, not {level!r}")
        self.level = level
        self.seen = 0
        self.log_wealth = 0.0
        self.alarm_at: int | None = None
        self._log_stakes = np.full(bets, -math.inf)

    @abstractmethod
    def _log_factors(self, values: Floats) -> Floats:
        """The logarithms of the factors of each bet, (N, bets), for further values (N,) of the stream."""

    @property
    def alarm(self) -> bool:
        """Whether the wealth has reached 1/level at any time."""
        return self.alarm_at is not None

    def update(self, value: float) -> float:
        """The logarithm of the wealth after one more value."""
        return float(self.run([value])[0])

    def run(self, values: ArrayLike) -> Floats:
        """The logarithm of the wealth after each of the further values (N,): (N,), the same as by `update`.

        `alarm_at` is the number of the value, counted from 1, at which the wealth first reached 1/level.
        """
        further = np.asarray(values, np.float64)
        if further.ndim != 1 or np.isnan(further).any():
            raise InputError(f"a test of a stream needs values (N,) without NaN, not {further.shape}")
        wealth = np.empty(len(further))
        for index, log_factors in enumerate(self._log_factors(further) if len(further) else ()):
            wealth[index] = self._bet(log_factors)
        return wealth

    def _bet(self, log_factors: Floats) -> float:
        """The logarithm of the wealth after one more value, of which the bets make these factors (bets,)."""
        kept, left = (1 / (1 + math.log1p(time)) for time in (self.seen, self.seen + 1))
        stake = math.log((kept - left) / len(log_factors))
        self._log_stakes = np.logaddexp(self._log_stakes, stake) + log_factors
        self.seen += 1
        self.log_wealth = float(np.logaddexp.reduce(self._log_stakes, initial=math.log(left)))
        if self.alarm_at is None and self.log_wealth >= -math.log(self.level):
            self.alarm_at = self.seen
        return self.log_wealth


class ExchangeabilityMartingale(BettingTest):
    """A conformal martingale: bets that the scores are exchangeable, all of them and those of the calibration.

    The p-value of score s_n among the N scores so far, itself and the calibration scores among them, is

        p_n = (#{s_i < s_n} + u_n #{s_i = s_n}) / N,    u_n uniform on (0, 1]

    Under the null hypothesis p_1, p_2, ... are independent and uniform. Bets are on small p-values, c p^(c - 1), and on
    a slope, 1 + s (p - 1/2), in both directions: an alarm says that scores have changed, be it that they fell or rose.
    It does not say that more images are rejected than was promised: see `RejectionRateTest`.

    level        the chance of a false alarm
    calibration  in-distribution scores (n,), one per object, that the stream is compared with from its first value
    seed         of the random numbers that break ties

    >>> martingale = ExchangeabilityMartingale(0.01, calibration=np.arange(100.0))
    >>> _ = martingale.run([50.0, 20.0, 80.0, -1.0, -2.0, -3.0, -4.0])
    >>> martingale.alarm_at
    7
    """

    def __init__(self, level: float = 0.01, *, calibration: ArrayLike = (), seed: int = 0) -> None:
        super().__init__(level, len(POWERS) + len(SLOPES))
        known = np.asarray(calibration, np.float64)
        if known.ndim != 1 or np.isnan(known).any():
            raise InputError(f"calibration scores must be numbers (n,) without NaN, not {known.shape}")
        self._sorted: list[float] = np.sort(known).tolist()
        key = np.array([seed, TIES_KEY], dtype=np.uint64)
        self._generator = np.random.Generator(np.random.Philox(key=key))

    def p_values(self, scores: ArrayLike) -> Floats:
        """The p-values of further scores (N,), in order: (N,). Each then belongs to those that later ones meet."""
        further: Any = np.asarray(scores, np.float64)
        uniforms = 1 - self._generator.random(len(further))
        p_values = np.empty(len(further))
        for index, score in enumerate(further.tolist()):
            insort(self._sorted, score)
            below = bisect_left(self._sorted, score)
            equal = bisect_right(self._sorted, score) - below
            p_values[index] = (below + uniforms[index] * equal) / len(self._sorted)
        return p_values

    def _log_factors(self, values: Floats) -> Floats:
        p_values, powers, slopes = self.p_values(values)[:, None], np.array(POWERS), np.array(SLOPES)
        by_power = np.log(powers) + (powers - 1) * np.log(p_values)
        return np.concatenate([by_power, np.log1p(slopes * (p_values - 0.5))], axis=1)


class RejectionRateTest(BettingTest):
    """Bets that the chance to reject, given all that came before, is at most `rejected` (alpha) for every image.

    A bet of the share c of the wealth has the factor 1 - c where an image is accepted, and 1 + c (1 - alpha)/alpha
    where it is rejected: its expectation is 1 at a chance of alpha, and less below. It speaks of the promise itself: an
    alarm says that more images are rejected than alpha, whatever the cause. Fewer rejections never raise it.

    rejected  alpha, the share of images that may be rejected;  level: the chance of a false alarm

    >>> test = RejectionRateTest(0.05, level=0.01)
    >>> _ = test.run([0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1])
    >>> test.alarm_at
    12
    """

    def __init__(self, rejected: float = 0.05, *, level: float = 0.01) -> None:
        super().__init__(level, len(STAKES))
        if not 0 < rejected < 1:
            raise InputError(f"the share of images that may be rejected lies between 0 and 1, not {rejected!r}")
        self.rejected = rejected

    def _log_factors(self, values: Floats) -> Floats:
        if not np.isin(values, (0.0, 1.0)).all():
            raise InputError(
                "the test of a rejection rate reads decisions: True (or 1) for rejected, else False (or 0)"
            )
        stakes, gain = np.array(STAKES), (1 - self.rejected) / self.rejected
        return np.where(values[:, None] > 0, np.log1p(stakes * gain), np.log1p(-stakes))
