"""Draws by object: which images a limit takes where objects have many images or few, and the promises made on these."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest

import roadworthy as rw
import tiny
from roadworthy.api import prepare
from roadworthy.core.random import Streams
from roadworthy.data import Subset, open_dataset
from roadworthy.data.subset import rows_in_rounds
from roadworthy.data.table import Table
from roadworthy.engine.progress import no_progress
from roadworthy.monitors.id_threshold import IdRule, class_promises, id_threshold, promise_kept
from roadworthy.outliers.makers import Foreign
from roadworthy.protocols.monitoring import benchmarks
from roadworthy.protocols.od_test import plan as od_test_plan
from roadworthy.protocols.operating_points.choosing import _lowest_within
from roadworthy.protocols.operating_points.thresholds import Shown
from roadworthy.study import parse_study

LONGER, SPREAD, NOISE = 1.5, 0.8, 0.6
"""How much better objects with many images score, and the standard deviations of objects and of their images."""
PROMISED = 0.05
DRAWS = 50
"""How many draws the runs of a simulation share; every run has scores of its own."""


def films(short: int, long: int, frames: int, classes: int = 1, first: int = 0) -> Any:
    """Grey pictures of objects with one image, and of objects with many; classes take turns, pictures are numbered."""
    groups = [f"short {number}" for number in range(short)]
    groups += [f"long {number}" for number in range(long) for _ in range(frames)]
    number = [int(group.split()[1]) for group in groups]
    arrays = (first + np.arange(len(groups), dtype=np.uint16)).view(np.uint8).reshape(-1, 1, 2, 1)
    data = open_dataset((np.repeat(arrays, 2, axis=1), np.array(number) % classes, tuple("abcdef"[:classes])))
    data.table = Table(data.ids, data.labels, data.class_names, tuple(groups))
    return data


# ------------------------------------------------------------------------------------------------------------- which


def test_every_object_gives_one_image_before_any_gives_a_second() -> None:
    data = films(20, 20, 10)
    order = rows_in_rounds(data, "a purpose", 0)
    assert sorted(order.tolist()) == [*range(220)]
    groups = [data.groups[row] for row in order]
    assert len({*groups[:40]}) == 40
    assert groups[40:60] == groups[60:80] == [group for group in groups[:40] if group.startswith("long")]
    assert order.tolist() != rows_in_rounds(data, "a purpose", 1).tolist()
    turned = Subset(data, range(220)[::-1])
    assert [turned.ids[row] for row in rows_in_rounds(turned, "a purpose", 0)] == [data.ids[row] for row in order]


@pytest.mark.parametrize("draw", ["monitoring", "od_test", "foreign", "limit"])
def test_a_limit_takes_an_object_of_many_images_no_sooner_than_one_of_few(draw: str) -> None:
    """Of 40 objects of one image and 40 of 20, a limit of 30 shows 30 objects, half of them of one image."""
    data, shares = films(40, 40, 20, classes=2), []
    for seed in range(20):
        drawn = {
            "monitoring": lambda seed=seed: benchmarks._limited(data, 30, seed, whole_objects=False),
            "od_test": lambda seed=seed: od_test_plan._shuffled(data, seed, 30),
            "foreign": lambda seed=seed: Foreign().make(films(30, 0, 1), seed=seed, foreign=data),
            "limit": lambda seed=seed: open_dataset(data, limit=30, seed=seed),
        }[draw]()
        assert len({*drawn.groups}) == len(drawn) == 30
        shares.append(np.mean(["short" in group for group in drawn.groups]))
    assert abs(np.mean(shares) - 0.5) < 0.08


def test_of_data_with_an_image_per_object_the_same_images_are_drawn_as_ever() -> None:
    """So runs on such data, the OD-test against its published outputs among them, keep their images."""
    data = open_dataset((np.arange(240, dtype=np.uint8).reshape(60, 2, 2, 1), np.arange(60) % 3, tuple("abc")))

    def by_image(purpose: str, limit: int) -> list[int]:
        drawn = [rng.random() for rng in Streams(purpose, 5).each(data.ids)]
        return np.argsort(drawn, kind="stable")[:limit].tolist()

    limited = benchmarks._limited(data, 20, 5, whole_objects=False)
    assert limited.ids == tuple(data.ids[row] for row in sorted(by_image("monitoring limit", 20)))
    shuffled = od_test_plan._shuffled(data, 5, 20)
    assert shuffled.ids == tuple(data.ids[row] for row in by_image("od_test order", 20))
    assert od_test_plan._shuffled(data, 5).ids == tuple(data.ids[row] for row in by_image("od_test order", 60))
    foreign = Foreign().make(Subset(data, range(20)), seed=5, foreign=data)
    assert foreign.source.ids == tuple(data.ids[row] for row in sorted(by_image("foreign", 20)))
    drawn = np.array([rng.random() for rng in Streams("limit", 5).each(data.ids)])
    first = [np.flatnonzero(data.labels == label)[np.argsort(drawn[data.labels == label])[:7]] for label in range(3)]
    assert open_dataset(data, limit=21, seed=5).ids == tuple(data.ids[row] for row in sorted(np.concatenate(first)))


# ---------------------------------------------------------------------------------------------------------- promises


def world(rng: np.random.Generator, objects: int, frames: int) -> Any:
    """Scores and predicted classes of objects, of which half have one image; those with many score better."""
    lengths = np.repeat([1, frames], objects // 2)
    number = np.repeat(np.arange(objects), lengths)
    long = lengths[number] > 1
    scores = LONGER * long + rng.normal(0, SPREAD, objects)[number] + rng.normal(0, NOISE, len(number))
    predictions = (rng.random(len(number)) < np.where(long, 0.8, 0.2)).astype(np.int64)
    ids = tuple(map(str, range(len(number))))
    return SimpleNamespace(ids=ids, groups=number.astype(str).tolist(), scores=scores, predictions=predictions)


def rejected(threshold: float, short: float = 0.5) -> float:
    """The chance to reject a random image of a random object, where a share of objects has one image."""
    deviation = np.hypot(SPREAD, NOISE)
    return float(short * ndtr(threshold / deviation) + (1 - short) * ndtr((threshold - LONGER) / deviation))


def broken_promises(runs: int, objects: int, frames: int, limit: int | None) -> dict[str, int]:
    """In how many of so many runs more is rejected than promised: of all images, and of those of a predicted class."""
    rng, broken = np.random.default_rng(3), dict.fromkeys(("all", "class 0", "class 1"), 0)
    names = world(rng, objects, frames)
    draws = [rows_in_rounds(names, "draw", seed)[:limit] for seed in range(min(runs, DRAWS))]
    for run in range(runs):
        data, rows = world(rng, objects, frames), draws[run % DRAWS]
        values = data.scores[rows], np.array(data.groups)[rows]
        broken["all"] += rejected(id_threshold(*values, IdRule("conformal"), seed=run).threshold) > PROMISED
        by_class = id_threshold(
            *values, IdRule("conformal", per_class=True), predictions=data.predictions[rows], seed=run
        ).classes
        for label, short in ((0, 0.8), (1, 0.2)):
            own = by_class[label]
            broken[f"class {label}"] += own.promised and rejected(own.threshold, short) > PROMISED
    return broken


def assert_nominal(broken: dict[str, int], runs: int) -> None:
    """No promise is broken in significantly more than 5 % of the runs."""
    for name, count in broken.items():
        assert binomtest(count, runs, 0.05, alternative="greater").pvalue > 0.005, (name, count, runs)


@pytest.mark.parametrize("limit", [150, 600, None])
def test_the_promise_holds_where_long_tracks_score_better(limit: int | None) -> None:
    assert_nominal(broken_promises(60, 300, 10, limit), 60)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [300, 1000, 3000, None])
def test_the_promise_holds_in_two_thousand_runs(limit: int | None) -> None:
    """500 objects of one image and 500 of fifty, whose score is related to that number."""
    broken = broken_promises(2000, 1000, 50, limit)
    print(limit, broken)
    assert_nominal(broken, 2000)


def broken_risks(runs: int, objects: int, frames: int, at_most: float) -> tuple[int, int]:
    """How many thresholds were found whose bound of silent failures is met, and how many of these let more pass."""

    def shown(rng: np.random.Generator, number: int) -> Shown:
        data = world(rng, number, frames)
        wrong = rng.random(len(data.scores)) < 1 / (1 + np.exp(2 + 1.2 * data.scores))
        return Shown(data.scores, wrong, np.array(data.groups))

    rng = np.random.default_rng(4)
    everything = shown(rng, 400_000 // frames)
    order = np.argsort(everything.scores)
    passing = np.append(np.cumsum(everything.wrong[order][::-1])[::-1], 0) / len(order)
    found = broken = 0
    for _ in range(runs):
        held_out = shown(rng, objects)
        threshold, reason = _lowest_within(held_out, np.unique(held_out.groups, return_inverse=True)[1], at_most)
        found += not reason
        broken += not reason and passing[np.searchsorted(everything.scores[order], threshold)] > at_most
    return found, broken


@pytest.mark.parametrize("frames", [1, 20])
def test_a_bound_on_silent_failures_holds_where_objects_are_unequal(frames: int) -> None:
    found, broken = broken_risks(30, 300, frames, 0.05)
    assert found == 30
    assert_nominal({"silent failures": broken}, found)


@pytest.mark.slow
@pytest.mark.parametrize("objects", [200, 500])
@pytest.mark.parametrize("frames", [1, 5, 50])
def test_a_bound_on_silent_failures_holds_in_two_thousand_runs(frames: int, objects: int) -> None:
    found, broken = broken_risks(2000, objects, frames, 0.05)
    print(frames, objects, found, broken)
    assert_nominal({"silent failures": broken}, max(found, 1))


def test_a_promise_per_class_counts_an_object_once_whatever_its_images() -> None:
    """Objects of 200 images show both classes; only the class of the one that is drawn counts."""
    scores, groups = np.arange(200.0 * 80), np.repeat(np.arange(80), 200)
    predictions = np.tile([0, 1], 80 * 100)
    threshold = id_threshold(scores, groups, IdRule("conformal", rejected=0.2), predictions=predictions)
    assert threshold.objects == 80
    by_class = id_threshold(
        scores, groups, IdRule("conformal", rejected=0.2, per_class=True), predictions=predictions
    ).classes
    assert sum(part.objects for part in by_class.values()) == 80
    assert [part.images for part in by_class.values()] == [8000, 8000]
    whole = id_threshold(scores, groups, IdRule("conformal", rejected=0.2, per_class=True), predictions=predictions)
    promises = class_promises(whole, scores, groups, predictions)
    assert sum(promise.measured.groups for promise in promises.values()) == 80


# -------------------------------------------------------------------------------------------------------------- words


def test_a_threshold_on_images_of_a_limit_says_that_it_is_about_their_mix_of_classes() -> None:
    from roadworthy.monitors.conformance import ToyModel, toy_data

    train, held_out, _, _ = toy_data()
    whole = rw.Guard.make(ToyModel(), "energy", train, held_out, rw.IdRule("conformal"))
    assert "mix of classes" not in whole.threshold.sentence()
    part = open_dataset(held_out, limit=len(held_out) - 2)
    limited = rw.Guard.make(ToyModel(), "energy", train, part, rw.IdRule("conformal"))
    assert "the share rejected is that of this mix of classes" in limited.threshold.sentence()
    kept = promise_kept(limited.threshold, np.zeros(3), np.arange(3))
    assert kept.alpha == PROMISED


@pytest.mark.parametrize("held_out", ["validation", "test"])
def test_a_run_says_of_its_thresholds_that_they_are_about_the_mix_of_classes_of_a_limit(
    held_out: str, tmp_path: Path
) -> None:
    """Thresholds come from validation data, or without any from half of the objects of the test data."""
    tiny.save_onnx(tmp_path / "tiny.onnx", gain=8.0)
    noise = {"kind": "noise", "shift": "noise", "level": 3}
    protocols = {
        "monitoring": {"benchmarks": {"noise": noise}, "timed_images": 0},
        "operating_points": {"shifts": [], "outliers": None},
    }
    data = {"test": {"builtin": "signs", "n": 84}}
    data[held_out] = {"builtin": "signs", "n": 84, "seed": int(held_out == "validation"), "limit": 56}
    content = tiny.study(tmp_path, data=data, monitors=["msp"], protocols=protocols)
    prepared = prepare(parse_study(content, "study"), accept_chance=True, rehearse=False, progress=no_progress)
    for protocol, where in (("monitoring", "valid_note"), ("operating_points", "note")):
        assert "that of this mix of classes" in getattr(prepared.contexts[protocol][""], where)
