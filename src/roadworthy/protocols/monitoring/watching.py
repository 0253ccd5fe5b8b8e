"""Watching: scores, threshold and decisions of one monitor on one model, from what it kept of each image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, foreign_code, is_the_machine_s
from roadworthy.core.hashing import digest_array
from roadworthy.engine.monitor_systems import REPRESENTATION
from roadworthy.monitors import Aim, CalibratedMonitor, FittedMonitor, Monitor
from roadworthy.monitors.id_calibration import calibrate_inside
from roadworthy.monitors.id_threshold import OWN, IdThreshold, random_frames
from roadworthy.monitors.kinds import find_kind
from roadworthy.monitors.threshold import percent
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.monitoring.names import TEST, VALID, ood_set
from roadworthy.protocols.monitoring.rules import chosen_rule
from roadworthy.protocols.monitoring.scenes import Answered, ModelScenes, Scene
from roadworthy.protocols.monitoring.settings import Context, Settings
from roadworthy.protocols.monitoring.streams import unmixed

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Decided:
    """The score and the decision (True = rejected) of each image of a stream, (N,)."""

    scores: Floats
    rejected: Flags


@dataclass(frozen=True)
class CalibrationScores:
    """Scores, labels and objects of ID validation images, each (n,)."""

    scores: Floats
    label: NDArray[np.int64]
    groups: NDArray[np.str_]
    seed: int = 0

    def drawn(self, left_out: Sequence[int] = ()) -> Floats:
        """The score of one random image per object, without images of the classes (labels) that are left out."""
        kept = np.flatnonzero(~np.isin(self.label, np.array(left_out, np.int64)))
        return self.scores[kept[random_frames(self.groups[kept], self.seed)]]


@dataclass(frozen=True)
class Watched:
    """One monitor on one model: its threshold from ID validation images, and what it decides.

    valid, test   scores of ID images, (n,);  rejected: decisions on all ID test images, in the order of these
    calibration   the ID validation images that the threshold was found on, to compare a stream with
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
    calibration: CalibrationScores
    notes: tuple[str, ...] = ()
    in_order: bool = False
    has_sweep: bool = True


class Watcher:
    """A fitted and calibrated monitor that turns representations into scores and decisions.

    `found_on` (m,) are the rows of ID validation images that its threshold was found on.
    """

    def __init__(self, calibrated: CalibratedMonitor, threshold: IdThreshold, found_on: NDArray[np.intp]) -> None:
        self.calibrated, self.monitor = calibrated, calibrated.fitted.monitor
        self.threshold, self.found_on = threshold, found_on

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
    context: Context,
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
        watcher = open_watcher(label, context, cases, valid, settings, seed)
        monitor, threshold = watcher.monitor, watcher.threshold
        valid_scores = watcher.scores(_rows(shown[VALID], valid))
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
            case = shown.get(ood_set(benchmark))
            decided[benchmark] = _decided(watcher, threshold, scene, case, test_rows, test_scores)
        except (InputError, ModelError) as error:
            decided[benchmark] = f"not scored: {error}"
    in_order, held = monitor.is_sequential, watcher.found_on
    has_sweep = not (in_order or monitor.decides_itself)
    notes = (*watcher.calibrated.notes, *usage_notes(monitor, threshold, settings))
    calibration = CalibrationScores(valid_scores[held], valid.label[held], valid.groups[held], seed)
    return Watched(
        label, threshold, valid_scores, test_scores, rejected, decided, calibration, notes, in_order, has_sweep
    )


def open_watcher(
    label: str, context: Context, cases: Sequence[StoredCase], valid: Answered, settings: Settings, seed: int
) -> Watcher:
    """The fitted monitor with what it learns from ID validation images, and its threshold.

    valid   what the model answered to these images
    """
    case = next(case for case in cases if case.labels["set"] == VALID)
    fitted = FittedMonitor.load(case.artifact(case.labels["artifact"]), kind=find_kind(context.monitors[label].monitor))
    rule, rows = chosen_rule(settings, label, fitted.monitor), _rows(case, valid)
    with foreign_code("", is_the_machine_s):
        inside = calibrate_inside(
            fitted, rows, valid.groups, rule, predictions=valid.prediction, seed=seed, note=context.valid_note
        )
    aim, cut = Aim(rule.rejected), inside.threshold.threshold
    calibrated = CalibratedMonitor(fitted, aim, rows.shape[1], inside.rule, cut, None, (digest_array(rows),))
    return Watcher(calibrated, inside.threshold, inside.found_on)


def usage_notes(monitor: Monitor, threshold: IdThreshold, settings: Settings) -> Iterator[str]:
    """What a reader should know of a monitor under these settings."""
    if threshold.rule.rule == OWN and monitor.tunes_to_share:
        share = percent(threshold.rule.rejected)
        yield f"a part without a threshold of its own rejects at most {share} of ID validation images by itself"
    if monitor.is_per_object and settings.order != "runs":
        yield (
            f"it looks back on images of one object, and in order {settings.order} nearly every image shows another "
            "object, so that there is little to look back on: name order runs"
        )


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
