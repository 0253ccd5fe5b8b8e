"""Streams: how soon a monitor notices that the images left its domain, and how often it raises false alarms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.decisions import checked_flags
from roadworthy.metrics.weighting import Floats

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class StreamEvents:
    """What happens in a stream of frames: where it turns OOD, and where a monitor raises alarms.

    onsets       (K,) the frames where a stretch of OOD frames begins
    delays       (K,) the frames from each onset to the first rejected one of its stretch: 0 at once, inf if none is
    run_starts   (R,) the frames where a run of rejected ID frames begins;  run_lengths (R,): how long each is
    id_frames, ood_frames   how many frames there are of either kind
    """

    onsets: NDArray[np.int64]
    delays: Floats
    run_starts: NDArray[np.int64]
    run_lengths: NDArray[np.int64]
    id_frames: int
    ood_frames: int

    @property
    def missed_onsets(self) -> int:
        """How many stretches of OOD frames pass without a rejected frame."""
        return int(np.isinf(self.delays).sum())

    @property
    def median_delay(self) -> float:
        """The median of the delays, a missed onset counted as infinitely late; NaN without an onset."""
        return float(np.median(self.delays)) if len(self.delays) else float("nan")

    @property
    def worst_delay(self) -> float:
        """The longest delay, infinite where an onset is missed; NaN without an onset."""
        return float(self.delays.max()) if len(self.delays) else float("nan")

    @property
    def longest_run(self) -> int:
        """The length of the longest run of false alarms; 0 without any."""
        return int(self.run_lengths.max()) if len(self.run_lengths) else 0


def stream_events(ood: ArrayLike, rejected: ArrayLike, starts: ArrayLike | None = None) -> StreamEvents:
    """Onsets, delays and runs of false alarms in a stream: ood (N,) and rejected (N,) are True or False per frame.

    A stretch is a run of frames that are all OOD or all ID. `starts` (N,), where given, is True for the first frame of
    an object (a film, a drive): a stretch or run ends before it, since what follows belongs to something else.

    >>> events = stream_events([0, 0, 0, 1, 1, 1, 0, 1], [0, 1, 1, 0, 0, 1, 1, 0])
    >>> events.onsets, events.delays, events.run_starts, events.run_lengths
    (array([3, 7]), array([ 2., inf]), array([1, 6]), array([2, 1]))
    """
    outside, alarm, begins = checked_flags(
        ood=ood, rejected=rejected, starts=np.zeros(np.shape(ood), dtype=bool) if starts is None else starts
    )
    onsets, ends = _runs(outside, begins)
    alarms = np.flatnonzero(alarm)
    first = np.searchsorted(alarms, onsets)
    first_alarm = np.append(alarms, np.iinfo(np.int64).max)[first]
    delays = np.where(first_alarm < ends, (first_alarm - onsets).astype(np.float64), np.inf)
    run_starts, run_ends = _runs(alarm & ~outside, begins)
    ood_frames = int(outside.sum())
    return StreamEvents(onsets, delays, run_starts, run_ends - run_starts, len(outside) - ood_frames, ood_frames)


def _runs(flags: NDArray[np.bool_], starts: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each run of True begins and where it is over; a run also ends before a frame that starts something."""
    if not len(flags):
        return np.arange(0), np.arange(0)
    follows = np.append(False, flags[:-1]) & ~starts
    goes_on = np.append(flags[1:] & ~starts[1:], False)
    return np.flatnonzero(flags & ~follows), np.flatnonzero(flags & ~goes_on) + 1


def false_alarms_per_hour(runs: int, id_frames: int, frame_rate: float) -> float:
    """Runs of false alarms per hour of ID frames, filmed at `frame_rate` frames per second; NaN without any frame.

    >>> false_alarms_per_hour(runs=3, id_frames=54_000, frame_rate=30)
    6.0
    """
    if not 0 < frame_rate < np.inf:
        raise ValueError(f"the frame rate must be a number of frames per second above 0, not {frame_rate}")
    return runs / (id_frames / frame_rate) * SECONDS_PER_HOUR if id_frames else float("nan")
