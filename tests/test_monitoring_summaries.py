"""Means and ranks over benchmarks that share ID images: bounds that are never narrower than one benchmark's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from roadworthy.protocols.monitoring.criteria import measurements
from roadworthy.protocols.monitoring.summaries import MEAN_METHOD, mean_over_sets, overall_rows, rank_rows
from roadworthy.statistics import Estimate
from roadworthy.statistics.bootstrap import ALL_EQUAL
from roadworthy.verdict import Criterion

NAN = math.nan


def decision_row(benchmark: str, monitor: str, value: float, model: str = "lenet", **changes: Any) -> dict[str, Any]:
    where = {"model": model, "benchmark": benchmark, "ood_kind": "noise", "monitor": monitor, "view": "system"}
    numbers = {"value": value, "lo": value - 0.1, "hi": value + 0.2, "reason": "failed" if math.isnan(value) else ""}
    return {**where, "part": "stream", "metric": "mcc", **numbers, **changes}


def test_benchmarks_with_the_same_id_side_bound_their_mean_no_tighter_than_one_of_them() -> None:
    one = Estimate(0.1, 0.04, 0.22, n=50, groups=50)
    mean = mean_over_sets([one] * 6, "fpr")
    assert (mean.value, mean.lo, mean.hi) == (pytest.approx(0.1), pytest.approx(0.04), pytest.approx(0.22))
    criterion = Criterion(id="A", metric="fpr", over="pooled", at_most=0.15)
    rows = [({"monitor": "msp", "benchmark": str(number)}, one) for number in range(6)]
    (pooled,) = measurements(criterion, rows, 0.95)
    assert (pooled.estimate.lo, pooled.estimate.hi) == (mean.lo, mean.hi)
    assert (pooled.estimate.n, pooled.estimate.groups, pooled.estimate.method) == (300, 6, MEAN_METHOD)
    (in_table,) = [
        row
        for row in overall_rows([decision_row(name, "msp", 0.1, metric="fpr", lo=0.04, hi=0.22) for name in "abcdef"])
        if row["ood_kind"] == "all"
    ]
    assert (in_table["lo"], in_table["hi"], in_table["sets"]) == (mean.lo, mean.hi, 6)


def test_benchmarks_that_differ_have_the_interval_of_student() -> None:
    values = [0.1, 0.5, 0.3, 0.45]
    mean = mean_over_sets([Estimate(value, value - 0.01, value + 0.01) for value in values], "mcc", 0.9)
    lo, hi = stats.t.interval(0.9, 3, np.mean(values), stats.sem(values))
    assert (mean.lo, mean.hi) == (pytest.approx(lo), pytest.approx(hi))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=1, max_size=6))
def test_the_mean_lies_in_its_bounds_and_these_hold_both_intervals(triples: list[tuple[float, float, float]]) -> None:
    estimates = [Estimate(value, lo, hi) for lo, value, hi in map(sorted, triples)]
    mean = mean_over_sets(estimates, "fpr")
    nearly = 1e-12
    assert 0 <= mean.lo <= np.mean([estimate.lo for estimate in estimates]) + nearly
    assert 1 >= mean.hi >= np.mean([estimate.hi for estimate in estimates]) - nearly
    assert mean.lo - nearly <= mean.value <= mean.hi + nearly


def test_without_a_bound_or_a_value_the_mean_says_why() -> None:
    bounded, unbounded = Estimate(0.5, 0.4, 0.6), Estimate(0.7, reason="too few objects")
    mean = mean_over_sets([bounded, unbounded], "mcc")
    assert (mean.value, mean.unbounded) == (pytest.approx(0.6), True)
    assert mean.reason == "1 of 2 benchmarks have no bound, the first: too few objects"
    mean = mean_over_sets([bounded, Estimate(NAN, reason="failed")], "mcc")
    assert (mean.value, mean.lo, mean.hi, mean.n) == (0.5, 0.4, 0.6, 1)
    assert mean.reason == "1 of 2 benchmarks have no value, the first: failed; one benchmark only: its own bounds"
    assert mean_over_sets([Estimate(NAN, reason="failed")], "mcc").missing


def test_a_benchmark_without_scatter_takes_the_widest_bounds_of_the_others() -> None:
    alike = Estimate(0.0, reason=ALL_EQUAL)
    mean = mean_over_sets([alike, Estimate(0.0, -0.1, 0.1), Estimate(0.0, -0.3, 0.2)], "mcc")
    assert (mean.lo, mean.hi) == pytest.approx(((-0.3 - 0.1 - 0.3) / 3, (0.3 + 0.1 + 0.2) / 3))
    assert mean_over_sets([alike], "mcc").unbounded


def test_a_set_of_the_ranks_over_all_models_is_a_benchmark() -> None:
    mcc = {"lenet": {"a": 0.9, "b": 0.5, "c": 0.2}, "vgg": {"a": 0.1, "b": 0.6, "c": 0.4}}
    rows = [
        decision_row(benchmark, monitor, value, model)
        for model, values in mcc.items()
        for benchmark in ("fog", "rain", "snow")
        for monitor, value in values.items()
    ]
    ranks, pairs = rank_rows(rows)
    of_all = {row["monitor"]: row for row in ranks if row["model"] == "all"}
    assert {name: row["rank"] for name, row in of_all.items()} == {"a": 2, "b": 1, "c": 3}, "means 0.5, 0.55 and 0.3"
    assert {row["sets"] for row in ranks} == {3}
    assert len(pairs) == 9
    weak = {row["monitor"]: row["rank"] for row in rank_rows(rows, ["vgg"])[0] if row["model"] == "all"}
    assert weak == {"a": 1, "b": 2, "c": 3}


def test_a_benchmark_of_one_model_counts_with_that_model_and_a_monitor_of_one_model_does_not() -> None:
    names = ("a", "b", "c")
    rows = [decision_row("fog", name, 0.1 * place, model) for model in ("x", "y") for place, name in enumerate(names)]
    rows += [decision_row("rain", name, 0.2 * place, "x") for place, name in enumerate(names)]
    of_all = [row for row in rank_rows(rows)[0] if row["model"] == "all"]
    assert {row["monitor"]: row["rank"] for row in of_all} == {"a": 3, "b": 2, "c": 1}
    assert {row["sets"] for row in of_all} == {2}
    rows = [row for row in rows if row["benchmark"] == "fog" or row["monitor"] != "c"]
    failed = [*rows[:5], {**rows[5], "value": NAN}, *rows[6:]]
    of_all = [row for row in rank_rows(failed)[0] if row["model"] == "all"]
    assert {row["monitor"] for row in of_all} == {"a", "b"}
    assert all("Without monitors that have no value on every model: c." in row["warning"] for row in of_all)
