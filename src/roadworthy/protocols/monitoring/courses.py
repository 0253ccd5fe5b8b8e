"""Courses: what happens while a stream goes on: onsets and false alarms, and tests of the threshold's assumption."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, gammaincinv

from roadworthy.metrics.streams import StreamEvents, false_alarms_per_hour, stream_events
from roadworthy.protocols.monitoring.metrics import (
    DETECTION_DELAY_MEDIAN,
    DETECTION_DELAY_WORST,
    EVENT_METRICS,
    FALSE_ALARM_RUNS,
    FALSE_ALARMS_PER_HOUR,
    LONGEST_FALSE_ALARM_RUN,
    MISSED_ONSETS,
)
from roadworthy.protocols.monitoring.names import EXCHANGEABILITY, REJECTION_RATE, TESTS
from roadworthy.protocols.monitoring.scenes import Scene
from roadworthy.protocols.monitoring.settings import Settings
from roadworthy.protocols.monitoring.watching import Decided, Watched
from roadworthy.statistics import Estimate, wilson
from roadworthy.statistics.estimates import CONFIDENCE, no_estimate
from roadworthy.statistics.exchangeability import BettingTest, ExchangeabilityMartingale, RejectionRateTest

Rows = list[dict[str, Any]]
MOST_BINS = 240
NO_BOUND = "the largest of a stream has no bound"


def event_estimates(
    scene: Scene | str, decided: Decided | str, settings: Settings, confidence: float = CONFIDENCE
) -> dict[str, Estimate]:
    """Delays and false alarms in a stream, by metric.

    In the order `runs` every object is an event of its own: a stretch ends where another object begins. Bounds: of the
    median delay by order statistics, of false alarms by the exact interval of a Poisson count, of missed stretches by
    Wilson's interval, each as if stretches and runs were independent; the largest of something has none.
    """
    if isinstance(scene, str) or isinstance(decided, str):
        reason = scene if isinstance(scene, str) else str(decided)
        return {metric.name: no_estimate(reason) for metric in EVENT_METRICS}
    starts = scene.stream.starts if settings.order == "runs" else None
    events = stream_events(scene.stream.ood, decided.rejected, starts)
    note = "images follow each other at random, so that a stretch is a few images long"
    note = note if settings.order == "random" else ""
    runs, frames = len(events.run_starts), events.id_frames
    lo, hi = poisson_interval(runs, confidence)
    per_hour = false_alarms_per_hour(1, frames, settings.frame_rate)
    objects = len(np.unique(scene.group_codes[~scene.stream.ood]))
    count: dict[str, Any] = {"n": frames, "groups": objects, "method": "Poisson", "reason": note}
    estimates = {
        **_onset_estimates(events, confidence, note),
        FALSE_ALARM_RUNS.name: Estimate(float(runs), lo, hi, **count),
        LONGEST_FALSE_ALARM_RUN.name: Estimate(
            float(events.longest_run), n=frames, groups=objects, reason=note or NO_BOUND
        ),
        FALSE_ALARMS_PER_HOUR.name: Estimate(per_hour * runs, per_hour * lo, per_hour * hi, **count),
    }
    return {metric.name: estimates[metric.name] for metric in EVENT_METRICS}


def _onset_estimates(events: StreamEvents, confidence: float, note: str) -> dict[str, Estimate]:
    number, missed = len(events.onsets), events.missed_onsets
    if not number:
        reason = "there is no OOD image"
        return dict.fromkeys([m.name for m in EVENT_METRICS[:3]], no_estimate(reason))
    lo, hi = median_interval(events.delays, confidence)
    few = "" if not math.isnan(lo) else f"{number} stretches are too few for a bound"
    share = wilson(missed, number, confidence)
    return {
        DETECTION_DELAY_MEDIAN.name: Estimate(
            events.median_delay, lo, hi, n=number, groups=number, method="order statistics", reason=note or few
        ),
        DETECTION_DELAY_WORST.name: Estimate(events.worst_delay, n=number, groups=number, reason=note or NO_BOUND),
        MISSED_ONSETS.name: Estimate(
            float(missed), number * share[0], number * share[1], n=number, groups=number, method="wilson", reason=note
        ),
    }


def poisson_interval(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of the mean of a Poisson count (Garwood): tails of (1 - confidence)/2 on either side.

    >>> tuple(round(bound, 3) for bound in poisson_interval(3))
    (0.619, 8.767)
    >>> poisson_interval(0)[0]
    0.0
    """
    tail = (1 - confidence) / 2
    lo = float(gammaincinv(count, tail)) if count else 0.0
    return lo, float(gammaincinv(count + 1, 1 - tail))


def median_interval(values: NDArray[np.float64], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of a median by order statistics: from the k-th smallest to the k-th largest value.

    k is the largest with P(Binomial(n, 1/2) < k) <= (1 - confidence)/2; both are NaN where there is none. Values may be
    infinite.

    >>> median_interval(np.arange(1.0, 10.0))
    (2.0, 8.0)
    >>> median_interval(np.arange(5.0))
    (nan, nan)
    """
    number = len(values)
    chances = bdtr(np.arange(number, dtype=np.float64), number, 0.5)
    rank = int(np.searchsorted(chances, (1 - confidence) / 2, side="right"))
    if not rank:
        return math.nan, math.nan
    ordered = np.sort(values)
    return float(ordered[rank - 1]), float(ordered[number - rank])


@dataclass(frozen=True)
class Course:
    """A test of the assumption along a stream: one image per object is read.

    positions      the positions (n,) in the stream of the images that are read;  log_wealth (n,): after each of them
    alarm_at    the number of the object, from 1, at which the alarm sounds;  onset: of the first object from outside
    """

    test: str
    level: float
    positions: NDArray[np.int64]
    log_wealth: NDArray[np.float64]
    alarm_at: int | None
    onset: int | None
    reason: str = ""

    def row(self, where: Mapping[str, Any]) -> dict[str, Any]:
        """When it raises the alarm, as a row of a table."""
        happened = self.alarm_at is not None and self.onset is not None
        delay = self.alarm_at - self.onset if happened else math.nan  # type: ignore[operator]
        reason = self.reason
        if not reason and self.alarm_at is None:
            reason = "no alarm up to the end of the stream"
        elif not reason and happened and delay < 0:
            reason = "false alarm: before the first OOD object"
        return {
            **where,
            "test": self.test,
            "level": self.level,
            "alarm_at": math.nan if self.alarm_at is None else float(self.alarm_at),
            "onset": math.nan if self.onset is None else float(self.onset),
            "delay": float(delay),
            "objects": len(self.positions),
            "log_wealth": float(self.log_wealth[-1]) if len(self.log_wealth) else math.nan,
            "reason": reason,
        }


def courses(scene: Scene, decided: Decided, watched: Watched, settings: Settings) -> dict[str, Course]:
    """Both tests along a stream, by name.

    Exchangeability reads scores and compares them with one ID validation score per object, of the classes that the ID
    side of the benchmark shows. The rejection rate is tested against the share that the threshold promises: without a
    promise there is nothing to test.
    """
    positions = scene.frames
    outside = np.flatnonzero(scene.stream.ood[positions])
    onset = int(outside[0]) + 1 if len(outside) else None
    level, no_promise = settings.alarm_level, _no_promise(scene, watched)
    calibration = watched.calibration.drawn(scene.note.left_out)
    tests: dict[str, tuple[BettingTest, NDArray[Any]]] = {
        EXCHANGEABILITY: (
            ExchangeabilityMartingale(level, calibration=calibration, seed=scene.seed),
            decided.scores[positions],
        )
    }
    if not no_promise:
        rate_test = RejectionRateTest(watched.threshold.rule.rejected, level=level)
        tests[REJECTION_RATE] = rate_test, decided.rejected[positions]
    by_name = {}
    for name in TESTS:
        if name in tests:
            test, values = tests[name]
            wealth = test.run(values)
            by_name[name] = Course(name, level, positions, wealth, test.alarm_at, onset)
        else:
            by_name[name] = Course(name, level, positions, np.zeros(0), None, onset, no_promise)
    return by_name


def _no_promise(scene: Scene, watched: Watched) -> str:
    """Why the threshold promises no share of the ID images of the stream; empty where it does."""
    threshold = watched.threshold
    if not threshold.rule.promises:
        return f"rule {threshold.rule.rule} promises nothing: name rule conformal"
    if watched.in_order:
        return "it decides in order, so that its threshold promises nothing of what it rejects"
    if threshold.rule.per_class:
        return "a threshold per class promises a share of each class by itself, not of all: leave out per_class"
    if not threshold.promised:
        return threshold.reason
    if scene.note.left_out:
        return "the promise is about all classes, and the benchmark leaves out some of the ID side"
    return ""


def timeline_rows(where: Mapping[str, Any], scene: Scene, decided: Decided, by_test: Mapping[str, Course]) -> Rows:
    """The stream in at most 240 stretches of about equal length."""
    number = len(scene)
    edges = np.linspace(0, number, min(MOST_BINS, number) + 1).round().astype(np.int64)
    sizes = np.diff(edges)

    def shares(flags: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.add.reduceat(flags.astype(np.float64), edges[:-1]) / sizes

    ood, rejected, wrong = shares(scene.stream.ood), shares(decided.rejected), shares(scene.truth.wrong)
    wealth = {name: _at_ends(course, edges) for name, course in by_test.items()}
    alarms = {
        name: int(np.searchsorted(edges, course.positions[course.alarm_at - 1], side="right")) - 1
        for name, course in by_test.items()
        if course.alarm_at is not None
    }
    return [
        {
            **where,
            "bin": index,
            "from": int(edges[index]),
            "to": int(edges[index + 1]),
            "ood": float(ood[index]),
            "rejected": float(rejected[index]),
            "wrong": float(wrong[index]),
            "log_wealth_exchangeability": float(wealth[EXCHANGEABILITY][index]),
            "log_wealth_rejection_rate": float(wealth[REJECTION_RATE][index]),
            "alarm": ", ".join(name for name, position in alarms.items() if position == index),
        }
        for index in range(len(sizes))
    ]


def _at_ends(course: Course, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """The logarithm of the wealth at the end of each stretch (n,): 0 before the first object, NaN without a test."""
    if not len(course.log_wealth):
        return np.full(len(edges) - 1, math.nan)
    seen = np.searchsorted(course.positions, edges[1:], side="left")
    return np.append(0.0, course.log_wealth)[seen]
