"""Tests that watch a stream for as long as it runs: whether it still comes from where the calibration data came from.

Each is a bet against a null hypothesis. The wealth starts at 1 and cannot be expected to grow while the hypothesis
holds, so that the chance that it ever reaches 1/level is at most `level`, however long one watches (Ville's
inequality): then the alarm sounds.

test                       null hypothesis                                             reads, once per object
ExchangeabilityMartingale  the scores so far could have come in any order             the score of one random image
RejectionRateTest          the chance to reject, given the past, is at most alpha      whether that image was rejected

Frames of one object resemble each other and break both hypotheses: feed one image of each object.

A test goes on where it stopped: `record` gives all that it knows as plain values for a JSON file, `of_record` reads it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from typing import Any, Self

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
TIES_KEY, DROPS_KEY = 0x7469_6573, 0x6472_6F70
"""Tell the random numbers that break ties, and those that say which score is dropped, from others of the same seed."""
STREAM_WORDS = {"key": 2, "counter": 4, "buffer": 4}
"""The words of 64 bits that a random stream is known by."""
MOST_SCORES = 10_000
"""How many scores a test of exchangeability keeps, unless it is told otherwise."""


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

    def record(self) -> dict[str, Any]:
        """The state of the test as plain values for a JSON file; `of_record` goes on from it to the same bits."""
        stakes = [None if math.isinf(value) else value for value in self._log_stakes.tolist()]
        plain = {name: getattr(self, name) for name in ("level", "seen", "log_wealth", "alarm_at")}
        return {"test": type(self).__name__, **plain, "log_stakes": stakes}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """The test that `record` wrote, as it was then; an `InputError` where it is no state of such a test."""
        try:
            if record["test"] != cls.__name__:
                raise ValueError(f"it is one of {record['test']}")
            test = cls._restored(record)
            stakes = [-math.inf if value is None else float(value) for value in record["log_stakes"]]
            if len(stakes) != len(test._log_stakes) or not all(value < math.inf for value in stakes):
                raise ValueError(f"log_stakes must be {len(test._log_stakes)} numbers")
            test._log_stakes, test.seen, test.log_wealth = np.array(stakes), record["seen"], record["log_wealth"]
            test.alarm_at = record["alarm_at"]
            counts = (test.seen, 0 if test.alarm_at is None else test.alarm_at)
            if not all(type(count) is int and 0 <= count <= test.seen for count in counts):
                raise ValueError("seen and alarm_at must count images")
            if type(test.log_wealth) is not float or not math.isfinite(test.log_wealth):
                raise ValueError("log_wealth must be a number")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise InputError(f"this is no state of {cls.__name__} ({why}): give what its `record` wrote") from None
        return test

    @classmethod
    @abstractmethod
    def _restored(cls, record: Mapping[str, Any]) -> Self:
        """A test with the settings of a record, and all of its state that the base class does not know."""

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

    The p-value of score s_n among the N scores known, itself and the calibration scores among them, is

        p_n = (#{s_i < s_n} + u_n #{s_i = s_n}) / N,    u_n uniform on (0, 1]

    Under the null hypothesis p_1, p_2, ... are independent and uniform. Bets are on small p-values, c p^(c - 1), and on
    a slope, 1 + s (p - 1/2), in both directions: an alarm says that scores have changed, be it that they fell or rose.
    It does not say that more images are rejected than was promised: see `RejectionRateTest`.

    **It forgets.** At most `most` scores are known. Where there is one more, one of all of them, the new one included,
    is dropped, each with the same chance, by a random stream of its own: so what is left is as good as any other choice
    of scores, and p-values stay independent and uniform. After a change that lasts, old scores fade within some
    multiples of `most` images, and the new ones are what others are compared with: the alarm stays, the wealth no
    longer grows. A change that takes many times `most` images is not noticed. With fewer scores nothing is dropped.

    level        the chance of a false alarm
    calibration  in-distribution scores (n,), one per object, that the stream is compared with from its first value; of
                 more than `most` a random choice
    seed         of the random numbers that break ties, and of those that drop scores
    most         how many scores are kept

    >>> martingale = ExchangeabilityMartingale(0.01, calibration=np.arange(100.0))
    >>> _ = martingale.run([50.0, 20.0, 80.0, -1.0, -2.0, -3.0, -4.0])
    >>> martingale.alarm_at
    7
    """

    def __init__(
        self, level: float = 0.01, *, calibration: ArrayLike = (), seed: int = 0, most: int = MOST_SCORES
    ) -> None:
        super().__init__(level, len(POWERS) + len(SLOPES))
        known = np.asarray(calibration, np.float64)
        if known.ndim != 1 or np.isnan(known).any():
            raise InputError(f"calibration scores must be numbers (n,) without NaN, not {known.shape}")
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise InputError(f"most is how many scores are kept, a whole number of at least 1, not {most!r}")
        self.most = most
        self._ties, self._drops = (_stream(seed, key) for key in (TIES_KEY, DROPS_KEY))
        if len(known) > most:
            known = self._drops.choice(known, most, replace=False)
        self._sorted: list[float] = np.sort(known).tolist()

    def p_values(self, scores: ArrayLike) -> Floats:
        """The p-values of further scores (N,), in order: (N,). Each then is one that later ones meet, until dropped."""
        further: Any = np.asarray(scores, np.float64)
        uniforms = 1 - self._ties.random(len(further))
        p_values = np.empty(len(further))
        for index, score in enumerate(further.tolist()):
            insort(self._sorted, score)
            below = bisect_left(self._sorted, score)
            equal = bisect_right(self._sorted, score) - below
            p_values[index] = (below + uniforms[index] * equal) / len(self._sorted)
            if len(self._sorted) > self.most:
                del self._sorted[int(self._drops.integers(len(self._sorted)))]
        return p_values

    def record(self) -> dict[str, Any]:
        """The state as plain values: the scores that are kept and both random streams are part of it."""
        streams = {"ties": _stream_record(self._ties), "drops": _stream_record(self._drops)}
        scores = [score if math.isfinite(score) else str(score) for score in self._sorted]  # JSON has no infinity
        return {**super().record(), "most": self.most, "scores": scores, "streams": streams}

    @classmethod
    def _restored(cls, record: Mapping[str, Any]) -> Self:
        test = cls(record["level"], calibration=record["scores"], most=record["most"])
        if len(record["scores"]) > test.most:
            raise ValueError(f"it holds {len(record['scores'])} scores, more than {test.most}")
        test._ties, test._drops = (_restored_stream(record["streams"][name]) for name in ("ties", "drops"))
        return test

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

    def record(self) -> dict[str, Any]:
        """The state as plain values."""
        return {**super().record(), "rejected": self.rejected}

    @classmethod
    def _restored(cls, record: Mapping[str, Any]) -> Self:
        return cls(record["rejected"], level=record["level"])

    def _log_factors(self, values: Floats) -> Floats:
        if not np.isin(values, (0.0, 1.0)).all():
            raise InputError(
                "the test of a rejection rate reads decisions: True (or 1) for rejected, else False (or 0)"
            )
        stakes, gain = np.array(STAKES), (1 - self.rejected) / self.rejected
        return np.where(values[:, None] > 0, np.log1p(stakes * gain), np.log1p(-stakes))


def _stream(seed: int, key: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise InputError(f"the seed of a test is a whole number of 0 to 2^64 - 1, not {seed!r}")
    return np.random.Generator(np.random.Philox(key=np.array([seed, key], dtype=np.uint64)))


def _stream_record(stream: np.random.Generator) -> dict[str, Any]:
    """Where a stream stands, as plain values; numbers of 64 bits as text, which every reader of JSON keeps whole."""
    state = stream.bit_generator.state
    words = {**state["state"], "buffer": state["buffer"]}
    return {
        **{name: [f"{word:016x}" for word in words[name].tolist()] for name in STREAM_WORDS},
        **{name: int(state[name]) for name in ("buffer_pos", "has_uint32", "uinteger")},
    }


def _restored_stream(record: Mapping[str, Any]) -> np.random.Generator:
    """The stream that `_stream_record` wrote; what is none is a `KeyError`, `TypeError` or `ValueError`."""
    words = {name: np.array([int(word, 16) for word in record[name]], dtype=np.uint64) for name in STREAM_WORDS}
    for name, count in STREAM_WORDS.items():
        if words[name].shape != (count,):
            raise ValueError(f"{name} must be {count} words of 64 bits")
    if record["buffer_pos"] not in range(STREAM_WORDS["buffer"] + 1):
        raise ValueError("buffer_pos must be 0 to 4")
    stream = _stream(0, 0)
    stream.bit_generator.state = {
        "bit_generator": "Philox",
        "state": {"key": words["key"], "counter": words["counter"]},
        "buffer": words["buffer"],
        **{name: record[name] for name in ("buffer_pos", "has_uint32", "uinteger")},
    }
    return stream
