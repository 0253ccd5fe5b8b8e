"""What monitors learn from in-distribution images keeps the promise of their threshold, and what they remember."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

import roadworthy as rw
from roadworthy.core.errors import InputError
from roadworthy.monitors import Aim, Assertion, Combined, FittedMonitor, Learned, Monitor, make_monitor
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.monitors.guard import Guard
from roadworthy.monitors.id_calibration import calibrate_inside, object_halves
from roadworthy.monitors.id_threshold import IdRule, id_threshold
from roadworthy.monitors.memory import Memory
from roadworthy.protocols.monitoring.courses import courses, timeline_rows
from roadworthy.protocols.monitoring.oracle import Truth
from roadworthy.protocols.monitoring.rules import check_rule, chosen_rule
from roadworthy.protocols.monitoring.scenes import Answered, Scene, make_scene
from roadworthy.protocols.monitoring.settings import BenchmarkNote, Settings
from roadworthy.protocols.monitoring.streams import Mixing
from roadworthy.protocols.monitoring.watching import CalibrationScores, Decided, Watched, usage_notes

PARTS = ("msp", "energy", "max_logit")
TRAIN, HELD_OUT, TEST, OUTLIERS = toy_data()
CONFORMAL = IdRule("conformal")
DRAWS = 300
OBJECTS = 59
"""For so many, the chance that a promise of 5 % is broken is closest to 5 %."""
MOST_BROKEN = int(binom.ppf(0.99, DRAWS, 0.05))


def combination(**changes: Any) -> FittedMonitor:
    """A combination whose parts each read a score of their own."""
    return FittedMonitor(Combined(of=PARTS, **changes), Learned(), ())


def part_scores(rng: np.random.Generator, images: int) -> np.ndarray:
    """Representations of images with an independent normal score for each part."""
    return np.column_stack([np.ones((images, len(PARTS))), rng.normal(size=(images, len(PARTS)))]).astype(np.float32)


def rejected_share(fitted: FittedMonitor, tuned: Learned, threshold: float) -> float:
    """The chance that the smallest margin of independent normal scores lies below a threshold."""
    scores = np.repeat(norm.ppf((np.arange(2000) + 0.5) / 2000)[:, None], len(PARTS), axis=1)
    assert isinstance(fitted.monitor, Combined)
    margins = fitted.monitor.margins(np.concatenate([np.ones_like(scores), scores], axis=1), tuned, fitted.state)
    return float(1 - np.prod(1 - (margins < threshold).mean(axis=0)))


def broken_promises(objects: int, *, is_halved: bool) -> int:
    """In how many draws of so many objects more than 5 % of new images are rejected."""
    fitted, broken = combination(), 0
    for draw in range(DRAWS):
        rows, names = part_scores(np.random.default_rng(draw), objects), np.arange(objects)
        if is_halved:
            calibrated = calibrate_inside(fitted, rows, names, CONFORMAL, seed=draw)
            tuned, threshold = calibrated.rule, calibrated.threshold
        else:
            tuned = Learned(fitted.monitor.tune(rows, None, Aim(0.05), fitted.state))
            threshold = id_threshold(fitted.scores(rows, tuned), names, CONFORMAL, seed=draw)
        assert threshold.promised
        broken += rejected_share(fitted, tuned, threshold.threshold) > 0.05
    return broken


def test_the_promise_holds_where_the_monitor_learns_from_other_objects() -> None:
    assert broken_promises(2 * OBJECTS, is_halved=True) <= MOST_BROKEN
    assert broken_promises(OBJECTS, is_halved=False) > MOST_BROKEN, "the halves are needed"


def test_halves_share_no_object_and_only_a_promise_needs_them() -> None:
    rows, groups = part_scores(np.random.default_rng(3), 300), np.repeat(np.arange(101), 3)[:300]
    taught_by, found_on = object_halves(groups, seed=4)
    assert np.array_equal(np.sort([*taught_by, *found_on]), np.arange(300))
    assert not {*groups[taught_by]} & {*groups[found_on]}
    assert not np.array_equal(taught_by, object_halves(groups, seed=5)[0])
    reversed_first = object_halves(groups[::-1], seed=4)[0]
    assert {*groups[::-1][reversed_first]} == {*groups[taught_by]}
    calibrated = calibrate_inside(combination(), rows, groups, IdRule("conformal", rejected=0.1), seed=4)
    assert np.array_equal(calibrated.found_on, found_on)
    assert (calibrated.threshold.images, calibrated.threshold.objects) == (len(found_on), 50)
    assert "learns from 50 of 100 validation objects" in calibrated.threshold.sentence()
    alone = FittedMonitor(make_monitor("msp"), Learned(), ())
    for fitted, rule in ((combination(), IdRule("own")), (alone, CONFORMAL)):
        whole = calibrate_inside(fitted, rows, groups, rule)
        assert (whole.threshold.images, whole.threshold.reason) == (300, "")


def test_one_object_cannot_both_teach_and_give_the_threshold() -> None:
    rows = part_scores(np.random.default_rng(3), 4)
    with pytest.raises(InputError, match="needs two objects or more"):
        calibrate_inside(combination(), rows, np.zeros(4), CONFORMAL)
    with pytest.raises(InputError, match="cannot be calibrated without"):
        calibrate_inside(combination(), rows[:0], np.zeros(0), CONFORMAL)
    with pytest.raises(InputError, match="an object for each of 4 images"):
        calibrate_inside(combination(), rows, np.zeros(3), CONFORMAL)


def test_the_share_of_a_study_is_that_of_the_parts_of_a_combination() -> None:
    monitor, rows = Combined(of=("msp",)), np.column_stack([np.ones(100), np.arange(100)]).astype(np.float32)
    for study in ({"threshold": {"rejected": 0.2}}, {"thresholds": {"c": {"rule": "own", "rejected": 0.2}}}):
        rule = chosen_rule(Settings.model_validate(study), "c", monitor)
        check_rule("c", monitor, rule)
        assert rule == IdRule("own", rejected=0.2)
        calibrated = calibrate_inside(FittedMonitor(monitor, Learned(), ()), rows, np.arange(100), rule)
        assert calibrated.threshold.achieved == 0.2
        note = next(usage_notes(monitor, calibrated.threshold, Settings()))
        assert note == "a part without a threshold of its own rejects at most 20 % of ID validation images by itself"
    boxes = make_monitor("boxes")
    assert chosen_rule(Settings.model_validate({"threshold": {"rejected": 0.2}}), "b", boxes) == IdRule("own")
    assert make_monitor("combined", of=("boxes",)).tunes_to_share
    assert make_monitor("combined", of=(monitor,), part_threshold="own").tunes_to_share


@pytest.mark.parametrize(
    "monitor",
    [
        make_monitor("boxes"),
        Combined(of=("boxes",), part_threshold="own"),
        Combined(of=(Assertion(), Combined(of=(Assertion(),)))),
    ],
)
def test_a_share_that_nothing_uses_is_refused(monitor: Monitor) -> None:
    for study in (
        {"threshold": {"rule": "own", "rejected": 0.2}},
        {"thresholds": {"m": {"rule": "own", "rejected": 0.2}}},
    ):
        with pytest.raises(InputError, match="does not use `rejected` with rule own"):
            check_rule("m", monitor, chosen_rule(Settings.model_validate(study), "m", monitor))
    fitted = FittedMonitor(monitor, Learned(), ())
    with pytest.raises(InputError, match="does not use `rejected` with rule own"):
        calibrate_inside(fitted, np.zeros((1, 1), np.float32), ["a"], IdRule("own", rejected=0.2))


def stream_scene(left_out: list[int]) -> Scene:
    """A stream of 80 images of two classes, half of them from outside."""
    ids = np.array([str(row) for row in range(40)])
    answered = Answered(ids, ids, np.arange(40) % 2, np.zeros(40, np.int64))
    note = BenchmarkNote(kind="novel_class", made_from="x", has_label=False, left_out=left_out)
    scene = make_scene("x", note, answered, answered, Mixing())
    assert isinstance(scene.truth, Truth)
    return scene


def watched(rule: IdRule, *, objects: int = 100, in_order: bool = False) -> Watched:
    scores, labels = np.arange(100.0), np.arange(100) % 2
    groups = np.arange(objects).repeat(100 // objects)
    threshold = id_threshold(scores, groups, rule, predictions=labels, own=3.0)
    calibration = CalibrationScores(scores, labels, groups.astype(np.str_))
    return Watched("m", threshold, scores, scores, scores < 3, {}, calibration, in_order=in_order)


@pytest.mark.parametrize(
    ("monitor", "left_out", "reason"),
    [
        (watched(IdRule()), [], "rule share promises nothing: name rule conformal"),
        (watched(IdRule("own")), [], "rule own promises nothing: name rule conformal"),
        (watched(CONFORMAL, in_order=True), [], "it decides in order, so that its threshold promises nothing"),
        (watched(IdRule("conformal", per_class=True)), [], "promises a share of each class by itself"),
        (watched(CONFORMAL, objects=50), [], "needs 59 objects, not 50"),
        (watched(CONFORMAL), [1], "the promise is about all classes, and the benchmark leaves out some"),
        (watched(CONFORMAL), [], ""),
    ],
)
def test_a_rejection_rate_is_tested_against_a_promise_alone(monitor: Watched, left_out: list[int], reason: str) -> None:
    scene = stream_scene(left_out)
    decided = Decided(np.zeros(len(scene)), np.ones(len(scene), bool))
    by_test = courses(scene, decided, monitor, Settings())
    row, course = by_test["rejection_rate"].row({}), by_test["rejection_rate"]
    wealth = [bin_row["log_wealth_rejection_rate"] for bin_row in timeline_rows({}, scene, decided, by_test)]
    assert by_test["exchangeability"].alarm_at is not None
    assert np.isnan(wealth).all() == bool(reason)
    assert (course.alarm_at is None) == bool(reason)
    assert reason in row["reason"]
    assert np.isnan(row["log_wealth"]) == bool(reason)


def test_calibration_leaves_out_the_classes_that_the_stream_leaves_out() -> None:
    labels, groups = np.array([0, 1, 2, 2, 0]), np.array(["a", "b", "c", "c", "d"])
    calibration = CalibrationScores(np.array([0.0, 10.0, 20.0, 21.0, 1.0]), labels, groups, seed=1)
    assert calibration.drawn([2]).tolist() == [0.0, 10.0, 1.0]
    assert set(calibration.drawn()) in ({0.0, 10.0, 20.0, 1.0}, {0.0, 10.0, 21.0, 1.0})
    assert calibration.drawn([0, 1, 2]).tolist() == []
    scene, monitor = stream_scene([1]), watched(CONFORMAL)
    inside = np.where(scene.stream.ood, -1.0, 50.0)
    course = courses(scene, Decided(inside, inside < 0), monitor, Settings())["exchangeability"]
    by_hand = rw.statistics.exchangeability.ExchangeabilityMartingale(calibration=np.arange(0.0, 100.0, 2))
    assert course.log_wealth.tolist() == by_hand.run(inside[scene.frames]).tolist()


def test_a_monitor_that_looks_back_on_an_object_needs_runs() -> None:
    steady, per_stream = Combined(of=("msp",), last=3), Combined(of=("msp",), last=3, per_object=False)
    threshold = id_threshold([1.0], ["a"], IdRule("smallest"))
    for monitor in (steady, Assertion(), Combined(of=("msp", Assertion()), last=2, per_object=False)):
        for order in ("random", "blocks", "gradual"):
            assert "name order runs" in next(usage_notes(monitor, threshold, Settings(order=order)))
        assert not list(usage_notes(monitor, threshold, Settings(order="runs")))
    for monitor in (per_stream, make_monitor("msp")):
        assert not list(usage_notes(monitor, threshold, Settings()))


LOOKING_BACK = [
    (Assertion(window=4), 4),
    (Combined(of=("msp",), last=3, at_least=2), 3),
    (Combined(of=("msp", Assertion(window=3)), rule="all", last=4, at_least=2), 6),
    (Combined(of=(Combined(of=(Assertion(window=3),), last=2), "msp"), last=2, per_object=False), 5),
]


@pytest.mark.parametrize(("monitor", "looks_back"), LOOKING_BACK)
@settings(max_examples=15, deadline=None)
@given(stream=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=25))
def test_a_bounded_memory_decides_as_the_whole_stream(
    monitor: Monitor, looks_back: int, stream: list[tuple[int, int]]
) -> None:
    probabilities = np.eye(3)[[prediction for prediction, _ in stream]] * 0.5 + 0.1
    probabilities[:, 0] += np.array([confidence for _, confidence in stream]) / 100

    class Signals:
        def __init__(self) -> None:
            self.probabilities = probabilities
            self.batch = SimpleNamespace(conditions={}, ids=[str(row) for row in range(len(stream))])

        def __len__(self) -> int:
            return len(stream)

    rows = np.asarray(monitor.read(Signals(), Learned()), np.float32)  # type: ignore[arg-type]
    rule = Learned(monitor.tune(rows, None, Aim(0.3), Learned()))
    alone = np.asarray(monitor.rate(rows, rule, Learned()) < monitor.own_threshold)
    whole = monitor.in_order(rows, alone, np.arange(len(rows)) == 0, rule, Learned())
    memory = Memory(monitor, rule, Learned())
    decided = [memory.decide(rows[[index]], bool(alone[index])) for index in range(len(rows))]
    assert decided == whole.tolist()
    assert monitor.looks_back == looks_back
    assert len(memory) == min(len(rows), looks_back)
    memory.reset()
    assert len(memory) == 0


def test_a_monitor_that_does_not_look_back_keeps_nothing() -> None:
    memory = Memory(make_monitor("msp"), Learned(), Learned())
    assert memory.decide(np.ones((1, 1), np.float32), True)
    assert (len(memory), memory.monitor.looks_back) == (0, 1)


def image_set(first: int, number: int) -> Any:
    """Flat images of a brightness each, so that equal ones are equal in content."""
    values = np.arange(first, first + number)
    images = np.broadcast_to(values[:, None, None, None], (number, 8, 8, 3)).astype(np.uint8).copy()
    images[:, 0, 0, 0] = values // 256
    return rw.open_dataset((images, np.arange(number) % 4, list("abcd")))


def test_validation_images_that_are_trained_on_are_refused_or_warned_of() -> None:
    with pytest.raises(
        InputError, match="2 of 100 images of validation data data are images of training data data too"
    ):
        Guard.make(ToyModel(), "msp", image_set(0, 152), image_set(150, 100))
    with pytest.warns(
        UserWarning, match="1 of 100 images of validation data data are images of training data data too"
    ):
        Guard.make(ToyModel(), "msp", image_set(0, 151), image_set(150, 100))
    with pytest.raises(InputError, match=r"100 of 100 images of validation data data .*: name other images"):
        Guard.make(ToyModel(), "msp", image_set(0, 120), image_set(10, 100))


def test_copies_among_validation_images_are_one_object_of_a_guard() -> None:
    batch = image_set(150, 30).batch([*range(30)] * 3)
    copied = rw.open_dataset((batch.images, batch.labels, list("abcd")))
    with pytest.warns(UserWarning, match="60 of 90 images"):
        guard = Guard.make(ToyModel(), "msp", None, copied, IdRule("conformal", rejected=0.2))
    assert guard.threshold.objects == 30


def test_a_guard_halves_the_objects_for_a_monitor_that_learns_from_them() -> None:
    guard = Guard.make(ToyModel(), Combined(of=("msp", "energy")), TRAIN, HELD_OUT, IdRule("conformal", rejected=0.2))
    objects = len(np.unique(HELD_OUT.groups))
    assert guard.threshold.objects == objects - objects // 2
    assert "learns from" in guard.threshold.reason
    own = Guard.make(ToyModel(), Combined(of=("msp",)), TRAIN, HELD_OUT, IdRule("own", rejected=0.2))
    assert own.threshold.achieved == pytest.approx(0.2, abs=1 / len(HELD_OUT))
