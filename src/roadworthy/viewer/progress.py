"""How far a study is that is being run: cases stored and to come, the rate, the time left, and first figures."""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roadworthy.core.errors import RoadworthyError
from roadworthy.core.files import inside
from roadworthy.core.manifests import RECEIPT, counted_parts, is_committed, named_parts, read_receipt
from roadworthy.core.parquet import UnreadableParquet, parquet_table
from roadworthy.engine.announcing import AnnouncedCase, AnnouncedPlan, read_plan
from roadworthy.report.words import plural


class CaseProgress(NamedTuple):
    """A case, how many of its images are answered, and once it is finished the accuracy over these, if it has one."""

    case: AnnouncedCase
    done: int
    accuracy: float | None

    @property
    def is_finished(self) -> bool:
        """Whether all its parts are stored."""
        return self.done >= self.case.images


@dataclass(frozen=True)
class Progress:
    """How far a running study is.

    cases               in the order of the plan;  built, to_build: artifacts that are there, and how many there will be
    images, done        answers asked for in all, and those that are stored
    rate, seconds_left  answers per second since the first of this session; NaN where it cannot be told yet
    """

    study: str
    started: float
    cases: tuple[CaseProgress, ...]
    built: int
    to_build: int
    building: str
    images: int
    done: int
    rate: float
    seconds_left: float

    @property
    def finished(self) -> tuple[CaseProgress, ...]:
        """The cases that are finished."""
        return tuple(case for case in self.cases if case.is_finished)

    @property
    def waiting(self) -> tuple[CaseProgress, ...]:
        """The cases that are not, those with answers first."""
        return tuple(sorted((case for case in self.cases if not case.is_finished), key=lambda case: -case.done))

    @property
    def words(self) -> str:
        """Where it stands, in a sentence."""
        if self.done >= self.images and self.built >= self.to_build:
            return "All cases are stored: tables, verdict and report are being made."
        if not self.done and self.built < self.to_build:
            return f"{self.building} ({self.built + 1} of {self.to_build})"
        words = f"{len(self.finished):,} of {plural(len(self.cases), 'case')} finished"
        if math.isfinite(self.rate):
            words += f", {self.rate:,.0f} answers per second"
        if math.isfinite(self.seconds_left):
            words += f", about {duration(self.seconds_left)} left"
        return words


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(5.4), duration(200), duration(9000)
    ('5 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass
class _Watched:
    """What is known of a run that is being written; what is finished is not looked at again."""

    plan: AnnouncedPlan
    finished: dict[str, float | None] = field(default_factory=dict)
    first: float = math.inf
    """When the first part of this session was stored."""
    before: int | None = None
    """Answers that were there when this session began."""


class Watch:
    """Watches runs that are being written."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Path, str], _Watched] = {}
        self._turn = threading.Lock()

    def look(self, run: Path, plan_file: str) -> Progress | None:
        """How far the run in a folder is by the plan in a file there; None where there is none that can be read."""
        with self._turn:
            watched = self._runs.get((run, plan_file))
            if watched is None:
                plan = read_plan(run, plan_file)
                if plan is None:
                    return None
                if len(self._runs) > 16:
                    self._runs.clear()
                watched = self._runs[run, plan_file] = _Watched(plan)
            return _look(run, watched)


def _look(run: Path, watched: _Watched) -> Progress:
    plan = watched.plan
    cases = [_look_at_case(run, case, watched) for case in plan.cases]
    built = [is_committed(inside(run, artifact.folder)) for artifact in plan.artifacts]
    building = next((a for a, there in zip(plan.artifacts, built, strict=True) if not there), None)
    images, done = sum(case.images for case in plan.cases), sum(case.done for case in cases)
    if watched.before is None:
        watched.before = sum(_stored_before(run, own, plan.started) for own in cases)
    elapsed, given = time.time() - watched.first, done - watched.before
    rate = given / elapsed if given > 0 and elapsed > 0.5 else math.nan
    return Progress(
        study=plan.study,
        started=plan.started,
        cases=tuple(cases),
        built=sum(built),
        to_build=len(built),
        building=f"{building.activity} {building.name}" if building else "",
        images=images,
        done=done,
        rate=rate,
        seconds_left=(images - done) / rate if rate > 0 else math.nan,
    )


def _look_at_case(run: Path, case: AnnouncedCase, watched: _Watched) -> CaseProgress:
    if case.folder in watched.finished:
        return CaseProgress(case, case.images, watched.finished[case.folder])
    home = inside(run, case.folder)
    counted = sorted(counted_parts(home))
    if not counted:
        return CaseProgress(case, 0, None)
    watched.first = min([watched.first, *_times(home, counted, watched.plan.started)])
    if len(counted) >= case.parts or is_committed(home):
        watched.finished[case.folder] = _accuracy(home, counted)
        return CaseProgress(case, case.images, watched.finished[case.folder])
    return CaseProgress(case, min(case.images, len(counted) * case.part), None)


def _times(home: Path, parts: list[str], since: float) -> list[float]:
    """When parts were stored since then."""
    times = []
    for name in parts:
        try:
            times.append((home / name).stat().st_mtime)
        except OSError:
            continue
    return [stored for stored in times if stored >= since]


def _stored_before(run: Path, progress: CaseProgress, since: float) -> int:
    """How many answers of a case were stored before then."""
    home = inside(run, progress.case.folder)
    names = [name for name in _names(home) if not name.endswith(RECEIPT) and name.startswith("part-")]
    times = {name: (home / name).stat().st_mtime for name in names if (home / name).is_file()}
    return min(progress.done, progress.case.part * sum(stored < since for stored in times.values()))


def _names(home: Path) -> list[str]:
    try:
        return os.listdir(home)  # noqa: PTH208
    except OSError:
        return []


def _accuracy(home: Path, parts: list[str]) -> float | None:
    """The share of right answers in stored parts; None where the system answers no classes, or they cannot be read."""
    right, count = 0, 0
    try:
        named = named_parts(home)
        for name in parts:
            sha = read_receipt(home / name) or named.get(name)
            table = parquet_table(home / name, ["label", "prediction"], sha=sha)
            if "prediction" not in table.column_names:
                return None
            right += int(np.sum(table["label"].to_numpy() == table["prediction"].to_numpy()))
            count += table.num_rows
    except (OSError, ValueError, UnreadableParquet, RoadworthyError):
        return None
    return right / count if count else None
