"""One monitor in two runs of OD-test: decisions paired image by image, against statsmodels; what is not paired."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import mcnemar

from roadworthy.monitors import Aim, make_monitor
from roadworthy.monitors.conformance import ToyModel
from roadworthy.protocols.od_test.comparison import compare_monitors
from roadworthy.protocols.od_test.evaluation import Represented, Sample, evaluate
from roadworthy.statistics import mean_interval
from roadworthy.statistics.paired import PairedChange

N = 60


def sample(values: Any, name: str, frames: int = 1) -> Sample:
    """Scores as representations of images, so many frames of each object."""
    rows = np.asarray(values, np.float32).reshape(len(values), 1)
    ids, groups = ([f"{name}{row // step}" for row in range(len(rows))] for step in (1, frames))
    return Sample(rows, np.array(ids), np.array(groups), np.zeros(len(rows), np.int64))


def represented(seed: int, gap: float, frames: int = 1) -> Represented:
    """A source whose images score `gap` above the outliers of a, and less above those of b and c."""
    rng = np.random.default_rng(seed)

    def drawn(mean: float, name: str) -> Sample:
        return sample(np.repeat(rng.normal(mean, 1, N // frames), frames), name, frames)

    outliers = {name: drawn(mean, name) for name, mean in (("a", 0), ("b", 0.5), ("c", 0.8))}
    monitor = make_monitor("msp").build(ToyModel())
    return Represented("signs", "msp", monitor, drawn(gap, "valid"), drawn(gap, "test"), outliers)


def right(one: Represented, valid_set: str, test_set: str) -> np.ndarray:
    """Which images of both sides are decided right, by the threshold alone."""
    cut = one.monitor.calibrate(one.valid.rows, one.outliers[valid_set].rows, prior=0.5).threshold
    return np.concatenate([one.test.rows[:, 0] >= cut, one.outliers[test_set].rows[:, 0] < cut])


def reasons(before: Represented, after: Represented, **aim: Any) -> dict[str, str]:
    return {row.condition.removeprefix("msp: "): row.reason for row in compare_monitors(before, after, Aim(**aim))}


def test_every_ordered_pair_has_mcnemar_s_test_of_its_decisions() -> None:
    before, after = represented(0, 1.0), represented(1, 2.5)
    rows = list(compare_monitors(before, after, Aim()))
    values = [
        {
            (row["valid_set"], row["test_set"]): row["value"]
            for row in evaluate(one, Aim())
            if row["metric"] == "accuracy"
        }
        for one in (before, after)
    ]
    assert [row.condition for row in rows] == [f"msp: {v} -> {t}" for v in "abc" for t in "abc" if v != t]
    assert {(row.level, row.metric, row.reason, row.n, row.groups) for row in rows} == {(0, "accuracy", "", 120, 120)}
    for row in rows:
        sets = tuple(row.condition.removeprefix("msp: ").split(" -> "))
        assert (row.before, row.after) == pytest.approx((values[0][sets], values[1][sets]))
        one, other = right(before, *sets), right(after, *sets)
        table = [[(one & other).sum(), (one & ~other).sum()], [(~one & other).sum(), (~one & ~other).sum()]]
        assert row.p == pytest.approx(mcnemar(table, exact=True).pvalue)
        assert row.change == pytest.approx(row.after - row.before)
        assert row.lo < row.change < row.hi
    assert min(row.p for row in rows) < 0.001
    assert sum(row.change > 0 for row in rows) == 6
    backwards = list(compare_monitors(after, before, Aim()))
    assert [row.p for row in backwards] == [row.p for row in rows]
    assert [row.change for row in backwards] == [-row.change for row in rows]


def test_frames_of_an_object_are_decided_together() -> None:
    """With four equal frames each, the p value is that of the objects alone, or what the interval asks for if more."""
    before, after = represented(0, 1.0, frames=4), represented(1, 2.5, frames=4)
    rows = list(compare_monitors(before, after, Aim()))
    for row in rows:
        sets = row.condition.removeprefix("msp: ").split(" -> ")
        one, other = (right(each, *sets)[::4] for each in (before, after))
        table = [[(one & other).sum(), (one & ~other).sum()], [(~one & other).sum(), (~one & ~other).sum()]]
        assert (row.n, row.groups) == (120, 30)
        exact = float(mcnemar(table, exact=True).pvalue)
        bounds = mean_interval(other.astype(float) - one, range(30), -1, 1, 1 - row.p) if row.p < 1 else None
        assert row.p >= exact * (1 - 1e-9)
        assert row.p == pytest.approx(exact) or (bounds and min(abs(bounds.lo), abs(bounds.hi)) < 1e-3)


def test_only_the_same_images_are_paired() -> None:
    before, after = represented(0, 1.0), represented(1, 2.5)
    other = "other images: they cannot be paired"
    renamed = {**after.outliers, "c": sample(after.outliers["c"].rows, "other")}
    assert reasons(before, replace(after, outliers=renamed)) == {
        "a -> b": "", "a -> c": other, "b -> a": "", "b -> c": other,
        "c -> a": f"calibrated with {other}", "c -> b": f"calibrated with {other}",
    }  # fmt: skip
    grouped = replace(after, test=sample(after.test.rows, "test", frames=2))
    assert set(reasons(before, grouped).values()) == {other}
    resized = replace(after, test=replace(after.test, data="the same signs, larger"))
    assert set(reasons(before, resized).values()) == {other}, "ids say nothing of pixels"
    shorter = replace(after, valid=after.valid.take(slice(50)))
    assert set(reasons(before, shorter).values()) == {f"calibrated with {other}"}
    row = next(compare_monitors(before, grouped, Aim()))
    assert np.isnan([row.change, row.p]).all()
    assert row.after > row.before


def test_what_only_one_run_has_and_what_cannot_be_calibrated_is_said() -> None:
    before, after = represented(0, 1.0), represented(1, 2.5)
    fewer = replace(after, outliers={name: after.outliers[name] for name in "ab"})
    missing = "the model was not shown it"
    assert reasons(before, fewer) == {
        "a -> b": "", "a -> c": missing, "b -> a": "", "b -> c": missing, "c -> a": missing, "c -> b": missing,
    }  # fmt: skip
    named = compare_monitors(fewer, before, Aim(), names=("old/net", "new/net"))
    assert {row.reason for row in named} == {"", "old/net was not shown it"}
    silent = replace(after, valid=after.valid.take(slice(0)))
    assert all(reason.startswith("not calibrated: ") for reason in reasons(before, silent).values())
    unscored = replace(after, test=after.test.take(slice(0)))
    assert set(reasons(before, unscored).values()) == {"no image is left on one side"}


def test_another_prior_weighs_the_sides_and_is_not_tested() -> None:
    before, after = represented(0, 1.0), represented(1, 2.5)
    weighed = [row for row in evaluate(after, Aim(prior=0.2)) if row["metric"] == "accuracy"]
    for row, expected in zip(compare_monitors(before, after, Aim(prior=0.2)), weighed, strict=True):
        assert row.reason == "decisions are paired with a prior of 0.5 only, not 0.2"
        assert row.after == pytest.approx(expected["value"])
        assert row.change == pytest.approx(row.after - row.before)
        assert np.isnan([row.p, row.lo, row.hi]).all()


def test_only_one_monitor_on_one_source_is_compared() -> None:
    before: Represented = represented(0, 1.0)
    for other in (replace(before, label="odin"), replace(before, source="digits")):
        with pytest.raises(ValueError, match="only one monitor on one source can be compared between runs, not msp on"):
            next(compare_monitors(before, other, Aim()))
    same: list[PairedChange] = list(compare_monitors(before, before, Aim()))
    assert {(row.change, row.p) for row in same} == {(0.0, 1.0)}
