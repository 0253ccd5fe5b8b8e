"""Tests that the report or the pages recommend: how often they find a difference of equal models, or a real one.

`benchmarks/false_alarms.py` draws the models; here it is checked that it computes what is shipped.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from roadworthy.protocols.changes import by_mcnemar
from roadworthy.statistics import (
    anova,
    games_howell,
    holm,
    mean_interval,
    posthoc,
    repeated_anova,
    repeated_posthoc,
    robust_anova,
    sign_flip_p,
)
from roadworthy.statistics.paired import PairedChange
from roadworthy.statistics.posthoc import WELCH

RECOMMENDED = ("classifiers", "classifiers, Welch", "shift by shift", "interaction")
REPLICATED = ("anova, Tukey", "anova, block", "robust, Games-Howell")
MOST = 7.0
"""Per cent of runs in which a test may find a difference between equals."""


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "false_alarms.py"
    spec = importlib.util.spec_from_file_location("false_alarms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def allowed(runs: int) -> float:
    """Per cent that so many runs may show where the chance is 5 %: at least what a long simulation may."""
    return max(MOST, 5 + 2.6 * math.sqrt(5 * 95 / runs))


@pytest.mark.parametrize("repeats", [3, 5])
def test_the_simulation_computes_what_is_shipped(simulation: Any, repeats: int) -> None:
    rng = np.random.default_rng(repeats)
    values = simulation.values_of_equal(rng, 2, repeats, 4)
    first, second = np.triu_indices(4, 1)
    for run in range(2):
        frame = pd.DataFrame(
            itertools.product(range(repeats), "ab", range(4)), columns=["repeat", "classifier", "shift"]
        )
        frame["y"] = values[run].ravel()
        asked = frame, "y", ["classifier", "shift"]
        one = values[[run]]
        thesis, blocked, robust = simulation.replicated_p_values(one)
        of_classifier = one.mean(axis=3)[..., 0], one.mean(axis=3)[..., 1]

        def p_of(table: Any, factor: str) -> float:
            return float(table.frame.set_index("factor")["p"][factor])

        def pairs(*by: str, **options: Any) -> pd.DataFrame:
            return repeated_posthoc(*asked, by, "repeat", **options).pairs  # noqa: B023

        within = pairs("classifier", "shift", own_family="classifier").query("shift_a == shift_b")
        shift_by_shift = simulation.paired_p_values(one[:, :, 0], one[:, :, 1])[0]
        of_shift = one.mean(axis=2)
        pairs_of_shifts = simulation.paired_p_values(of_shift[..., first], of_shift[..., second])[0]
        shipped = [
            (thesis, p_of(anova(*asked), "classifier")),
            (thesis, posthoc(*asked, ["classifier"]).pairs["p"].item()),
            (blocked, p_of(anova(*asked, block="repeat"), "classifier")),
            (robust, p_of(robust_anova(*asked), "classifier")),
            (robust, games_howell(*asked, ["classifier"]).pairs["p"].item()),
            (simulation.paired_p_values(*of_classifier), pairs("classifier")["p"].item()),
            (simulation.welch_p_values(*of_classifier), pairs("classifier", relation=lambda *_: WELCH)["p"].item()),
            (holm(shift_by_shift), within["p"].to_numpy()),
            (holm(pairs_of_shifts), pairs("shift")["p"].to_numpy()),
            *(
                (simulation.repeated_p_values(one, term), p_of(repeated_anova(*asked, "repeat"), "*".join(term)))
                for term in (("classifier",), ("shift",), ("classifier", "shift"))
            ),
        ]
        for simulated, expected in shipped:
            assert simulated == pytest.approx(expected, rel=1e-7)


def checked_trainings(simulation: Any, runs: int) -> None:
    """By repeat the 5 % hold for all designs, and a clear difference is found; with conditions as replicates not."""
    for cells, repeats in itertools.product((2, 10), (3, 5, 10)):
        rng = np.random.default_rng([cells, repeats])
        for failing in (False, True):
            equal = simulation.values_of_equal(rng, runs, repeats, cells, failing=failing)
            alarms = simulation.called_different(equal)
            recommended = (*RECOMMENDED, "pairs of shifts", "shifts")
            assert max(alarms[name] for name in recommended) <= allowed(runs), (cells, repeats, alarms)
            assert cells == 2 or min(alarms[name] for name in REPLICATED) > 25, (repeats, alarms)
            found = {
                name: simulation.called_different(simulation.with_difference(equal, name, 10.0))[name]
                for name in recommended
            }
            assert repeats == 3 or min(found.values()) > 75, (cells, repeats, found)
            assert found["classifiers"] > 80
            assert min(found.values()) > 15, (cells, repeats, found)


def test_equal_classifiers_trained_anew_are_rarely_told_apart(simulation: Any) -> None:
    checked_trainings(simulation, 300)


@pytest.mark.slow
def test_equal_classifiers_trained_anew_are_rarely_told_apart_in_two_thousand_runs(simulation: Any) -> None:
    checked_trainings(simulation, 2000)


def test_several_equal_classifiers_are_rarely_told_apart(simulation: Any) -> None:
    rng = np.random.default_rng(4)
    first, second = np.triu_indices(5, 1)
    for repeats in (3, 5, 10):
        means = simulation.values_of_equal(rng, 1000, repeats, 10, 5).mean(axis=3)
        for test in (simulation.paired_p_values, simulation.welch_p_values):
            assert 100 * simulation.any_by_holm(test(means[..., first], means[..., second])).mean() <= allowed(1000)


@pytest.mark.parametrize("repeats", [2, 3, 5, 10])
def test_networks_that_share_nothing_are_rarely_told_apart(simulation: Any, repeats: int) -> None:
    """Also where one kind of network varies five times as much as the other."""
    rng = np.random.default_rng(repeats)
    one, other = rng.normal(size=(2, 5000, repeats))
    for first, second in ((one, other), (one, 5 * other), (np.exp(one), np.exp(other))):
        assert 100 * (simulation.welch_p_values(first, second) < 0.05).mean() <= MOST
    assert 100 * (simulation.welch_p_values(one, other + 5) < 0.05).mean() > (80 if repeats > 2 else 15)


def checked_networks(simulation: Any, pairs: int, most_repeats: int, seed: int) -> None:
    accuracies = simulation.trained_accuracies(pairs, most_repeats, seed=seed)
    for cells, repeats in itertools.product((2, 10), (3, 5, 10)):
        if repeats <= most_repeats:
            values = accuracies[:, :repeats, :, :: 9 if cells == 2 else 1]
            alarms = simulation.called_different(values)
            assert max(alarms[name] for name in RECOMMENDED) <= allowed(pairs), (cells, repeats, alarms)
            assert cells == 2 or pairs < 100 or min(alarms[name] for name in REPLICATED) > 12, alarms
            worse = simulation.with_difference(values, "classifiers", 0.15)
            assert simulation.called_different(worse)["classifiers"] > 80


def test_networks_that_are_trained_anew_are_rarely_told_apart(simulation: Any) -> None:
    checked_networks(simulation, 30, 3, seed=1)


@pytest.mark.slow
def test_five_hundred_pairs_of_trained_networks_are_rarely_told_apart(simulation: Any) -> None:
    checked_networks(simulation, 500, 10, seed=1)


def changed(sums: list[int], frames: int = 4) -> PairedChange:
    """The change of two models on objects of so many frames: each object gains so many right answers."""
    after = np.concatenate([np.arange(frames) < max(own, 0) for own in sums])
    before = np.concatenate([np.arange(frames) < max(-own, 0) for own in sums])
    groups = np.repeat(np.arange(len(sums)), frames)
    return by_mcnemar(PairedChange("fog", 1, "accuracy"), before, after, groups)


def test_p_of_a_change_is_the_larger_one_of_flips_and_interval() -> None:
    sums = [4, 4, 4] + [1] * 12 + [0] * 20
    unlike = changed(sums)
    flips = sign_flip_p(sum(sums), sums)
    assert unlike.method == "sign flips and interval by group"
    assert unlike.p >= flips
    assert (unlike.p < 0.05) == (unlike.lo > 0)
    values = np.concatenate([np.arange(4) < own for own in sums]).astype(float)
    assert mean_interval(values, np.repeat(range(35), 4), -1, 1, 1 - unlike.p).lo == pytest.approx(0, abs=1e-3)
    for odd in ([1, 1, -1], [1] * 11 + [-1] * 10, [3, -2] * 7 + [-7 + 1]):
        assert changed([int(np.clip(own, -4, 4)) for own in odd]).p <= 1, "whatever rounding makes of a p of 1"
    single = changed([1] * 6 + [0] * 3, frames=1)
    assert (single.p, single.method) == (pytest.approx(2 / 2**6), "McNemar, exact binomial")


def test_compare_does_not_take_another_way_to_fail_for_a_loss(simulation: Any) -> None:
    """Fifty conditions: sign flips alone nearly always find one, and the intervals, 95 % each, did in most runs."""
    rng = np.random.default_rng(0)
    flips, with_interval, shipped = simulation.called_clear(rng, 5, 50, simulation.UNLIKE, 200, 0.9, False)
    assert flips >= 60
    assert with_interval >= 40
    assert shipped == 0


@pytest.mark.slow
def test_compare_rarely_finds_a_change_between_models_of_equal_accuracy(simulation: Any) -> None:
    for conditions, objects, right, equal in itertools.product((2, 10), (50, 200), (0.9, 0.98), (True, False)):
        rng = np.random.default_rng([conditions, objects, equal])
        found = simulation.called_clear(rng, 2000, conditions, simulation.UNLIKE, objects, right, equal)
        assert found[2] <= allowed(2000)
    assert simulation.called_clear(np.random.default_rng(0), 40, 10, simulation.SHARED, 300, 0.9, True, 0.06)[2] > 80


def test_ranks_and_slices_are_rarely_told_apart_by_chance(simulation: Any) -> None:
    rng = np.random.default_rng(6)
    assert simulation.ranked(rng, 100, 10, 5).max() <= allowed(100)
    assert simulation.ranked(rng, 20, 20, 3, 2.0).min() > 80
    assert simulation.sliced(rng, 10, 100, 2) <= allowed(10)
    assert simulation.sliced(rng, 3, 400, 2, 0.4) > 60


@pytest.mark.slow
def test_ranks_and_slices_are_rarely_told_apart_by_chance_in_many_runs(simulation: Any) -> None:
    for sets, monitors in itertools.product((5, 10, 20), (3, 10)):
        assert simulation.ranked(np.random.default_rng([sets, monitors]), 500, sets, monitors).max() <= allowed(500)
    for objects, frames in itertools.product((100, 400), (1, 5)):
        assert simulation.sliced(np.random.default_rng(objects), 100, objects, frames) <= allowed(100)
