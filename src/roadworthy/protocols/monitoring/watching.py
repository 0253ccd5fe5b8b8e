"""Watching: scores, threshold and decisions of one monitor on one model, from what it kept of each image."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, foreign_code, is_the_machine_s
from roadworthy.engine.monitor_systems import REPRESENTATION
from roadworthy.monitors import CalibratedMonitor, FittedMonitor, TiesWarning
from roadworthy.monitors.id_threshold import IdThreshold, id_threshold, random_frames
from roadworthy.monitors.kinds import find_kind
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.monitoring.names import TEST, VALID
from roadworthy.protocols.monitoring.rules import chosen_rule
from roadworthy.protocols.monitoring.scenes import Answered, ModelScenes, Scene
from roadworthy.protocols.monitoring.settings import MonitorNote, Settings
from roadworthy.protocols.monitoring.streams import unmixed

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Decided:
    """The score and the decision (True = rejected) of each image of a stream, (N,)."""

    scores: Floats
    rejected: Flags


@dataclass(frozen=True)
class Watched:
    """One monitor on one model: its threshold from ID validation images, and what it decides.

    valid, test   scores of ID images, (n,);  rejected: decisions on all ID test images, in the order of these
    calibration   scores of ID validation images, one random image per object
    decided       by benchmark: decisions in the stream, or why there are none
    in_order      whether it decides by images before, too: then its threshold alone says nothing of an image
    has_sweep     whether other thresholds could be put on its scores
    """

    label: str
    threshold: IdThreshold
    valid: Floats
    test: Floats
    rejected: Flags
    decided: Mapping[str, Decided | str]
    calibration: Floats
    notes: tuple[str, ...] = ()
    in_order: bool = False
    has_sweep: bool = True


class Watcher:
    """A fitted and calibrated monitor that turns representations into scores and decisions."""

    def __init__(self, calibrated: CalibratedMonitor) -> None:
        self.calibrated, self.monitor = calibrated, calibrated.fitted.monitor

    def scores(self, rows: NDArray[np.float32]) -> Floats:
        """Scores (N,) of representations (N, D)."""
        with foreign_code("", is_the_machine_s):
            return self.calibrated.score(rows)

    def in_order(self, rows: NDArray[np.float32], rejected: Flags, starts: Flags) -> Flags:
        """Decisions (N,) of images that follow each other."""
        with foreign_code("", is_the_machine_s):
            decided = self.monitor.in_order(rows, rejected, starts, self.calibrated.rule, self.calibrated.fitted.state)
        decisions = np.asarray(decided)
        if decisions.shape != rejected.shape or decisions.dtype != np.bool_:
            raise InputError(
                f"monitor {self.monitor.name} must decide True or False for each of {len(rejected)} images in order, "
                f"but gave {decisions.dtype} {decisions.shape}"
            )
        return decisions


def watch(
    label: str,
    note: MonitorNote,
    cases: Sequence[StoredCase],
    scenes: ModelScenes,
    benchmarks: Sequence[str],
    settings: Settings,
    seed: int,
) -> Watched | str:
    """What a monitor decides in every benchmark, or why it decides nothing; its representations are read set by set.

    cases   those of the monitor on the model, by what they show
    """
    shown = {case.labels["set"]: case for case in cases}
    for name in (VALID, TEST):
        if name not in shown or shown[name].failure:
            return f"failed: {shown[name].failure}" if name in shown else "the monitor was not shown the ID images"
    valid, test = scenes.answered(VALID), scenes.answered(TEST)
    if isinstance(valid, str) or isinstance(test, str):
        return valid if isinstance(valid, str) else str(test)
    try:
        watcher = open_watcher(label, note, cases, settings)
        monitor = watcher.monitor
        rule, own = chosen_rule(settings, label, monitor), monitor.own_threshold
        valid_scores = watcher.scores(_rows(shown[VALID], valid))
        threshold = id_threshold(valid_scores, valid.groups, rule, predictions=valid.prediction, own=own, seed=seed)
        test_rows = _rows(shown[TEST], test)
        test_scores = watcher.scores(test_rows)
        rejected = threshold.reject(test_scores, test.prediction)
        if monitor.is_sequential:
            rejected = _rejected_in_order(watcher, test, test_rows, rejected, scenes)
    except (InputError, ModelError) as error:
        return f"not calibrated: {error}"
    decided: dict[str, Decided | str] = {}
    for benchmark in benchmarks:
        try:
            scene = scenes.scene(benchmark)
            case = shown.get(f"ood/{benchmark}")
            decided[benchmark] = _decided(watcher, threshold, scene, case, test_rows, test_scores)
        except (InputError, ModelError) as error:
            decided[benchmark] = f"not scored: {error}"
    in_order = monitor.is_sequential
    has_sweep = not (in_order or monitor.decides_itself)
    notes, calibration = watcher.calibrated.notes, valid_scores[random_frames(valid.groups, seed)]
    return Watched(
        label, threshold, valid_scores, test_scores, rejected, decided, calibration, notes, in_order, has_sweep
    )


def open_watcher(label: str, note: MonitorNote, cases: Sequence[StoredCase], settings: Settings) -> Watcher:
    """The fitted monitor with what it learns from ID validation images; its threshold is found by a rule of its own."""
    case = next(case for case in cases if case.labels["set"] == VALID)
    fitted = FittedMonitor.load(case.artifact(case.labels["artifact"]), kind=find_kind(note.monitor))
    rule = chosen_rule(settings, label, fitted.monitor)
    with foreign_code("", is_the_machine_s), warnings.catch_warnings():
        warnings.simplefilter("ignore", TiesWarning)
        rows = case.columns(REPRESENTATION)[REPRESENTATION]
        return Watcher(fitted.calibrate(rows, rejected=rule.rejected))


def _rows(case: StoredCase, answered: Answered) -> NDArray[np.float32]:
    """What a monitor keeps of the images of a set, in the order of the model's answers."""
    columns = case.columns(REPRESENTATION, "id")
    if not np.array_equal(columns["id"], answered.ids):
        raise InputError("the monitor was shown other images than the model: run the study again")
    rows: NDArray[np.float32] = columns[REPRESENTATION]
    return rows


def _decided(
    watcher: Watcher,
    threshold: IdThreshold,
    scene: Scene | str,
    case: StoredCase | None,
    test_rows: NDArray[np.float32],
    test_scores: Floats,
) -> Decided | str:
    """The decisions of a monitor in one stream, or why there are none."""
    if isinstance(scene, str):
        return scene
    if case is None or case.failure:
        return f"failed: {case.failure}" if case is not None else "the monitor was not shown it"
    rows = case.columns(REPRESENTATION)[REPRESENTATION]
    scores = scene.gather(test_scores, watcher.scores(rows))
    rejected = threshold.reject(scores, scene.prediction)
    if watcher.monitor.is_sequential:
        rejected = watcher.in_order(scene.gather(test_rows, rows), rejected, scene.stream.starts)
    return Decided(scores, rejected)


def _rejected_in_order(
    watcher: Watcher, test: Answered, rows: NDArray[np.float32], rejected: Flags, scenes: ModelScenes
) -> Flags:
    """Decisions on all ID test images (n,) of a monitor that reads them in order, without any from outside."""
    stream = unmixed(test.side(), scenes.mixing)
    in_order = watcher.in_order(rows[stream.rows], rejected[stream.rows], stream.starts)
    decisions = np.empty_like(rejected)
    decisions[stream.rows] = in_order
    return decisions


def nothing_rejected(scene: Scene) -> Decided:
    """The decisions of the model alone: every answer is accepted; there is no score."""
    return Decided(np.full(len(scene), np.nan), np.zeros(len(scene), bool))
