"""Stability of a ranking: all resamples enumerated, orders that do not matter, monitors that are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from roadworthy.protocols.od_test.stability import TOO_FEW_SETS, ranked_monitors, stability, stability_tables

SETS = "abc"
Values = Mapping[str, Mapping[tuple[str, str, str], float]]


def rows_of(values: Values, domains: Mapping[str, str], blind: str = "") -> list[dict[str, Any]]:
    """The rows of monitors by (model, D_v, D_t); `blind` names monitors that ask no model."""
    return [
        {
            **{"source": source, "domain": domains[source], "monitor": monitor, "valid_set": one, "test_set": other},
            **{"metric": "accuracy", "value": value, "weak_fit": False, "asks_model": monitor not in blind},
        }
        for monitor, own in values.items()
        for (source, one, other), value in own.items()
    ]


def drawn_values(monitors: str, sources: Sequence[str], seed: int = 0) -> dict[str, dict[tuple[str, str, str], float]]:
    rng = np.random.default_rng(seed)
    triples = [(source, *pair) for source in sources for pair in permutations(SETS, 2)]
    return {monitor: {triple: float(rng.random().__round__(3)) for triple in triples} for monitor in monitors}


def expected_of(values: Values) -> set[tuple[str, str, str]]:
    return {triple for own in values.values() for triple in own}


def found_of(rows: Sequence[Any], values: Values, **options: Any) -> Any:
    return stability(ranked_monitors(rows, expected_of(values), "accuracy"), "accuracy", **options)


def resampled(domains: Mapping[str, str]) -> Iterator[tuple[float, Counter[str], Counter[str], Counter[str]]]:
    """Every resample with its chance: how often each source, model and set is drawn."""
    by_domain: dict[str, list[str]] = {}
    for model, domain in domains.items():
        by_domain.setdefault(domain, []).append(model)
    for chosen in product(by_domain, repeat=len(by_domain)):
        picks = [[*product(by_domain[domain], repeat=len(by_domain[domain]))] for domain in chosen]
        for models in product(*picks):
            for sets in product(SETS, repeat=len(SETS)):
                chance = 1 / (len(by_domain) ** len(by_domain) * np.prod([len(p) for p in picks]) * 27)
                yield chance, Counter(chosen), Counter(m for own in models for m in own), Counter(sets)


def enumerated(values: Values, domains: Mapping[str, str], blind: str = "") -> float:
    """P(x before y), by trying every resample that holds a triple."""
    before = total = 0.0
    first: dict[str, str] = {}
    for model, domain in domains.items():
        first.setdefault(domain, model)
    for chance, drawn, models, sets in resampled(domains):
        means = {}
        for monitor, own in values.items():
            if monitor in blind:
                kept = {triple: value for triple, value in own.items() if triple[0] in first.values()}
                weights = {t: drawn[domains[t[0]]] * sets[t[1]] * sets[t[2]] for t in kept}
            else:
                kept, weights = dict(own), {t: models[t[0]] * sets[t[1]] * sets[t[2]] for t in own}
            whole = sum(weights.values())
            means[monitor] = sum(weights[t] * kept[t] for t in kept) / whole if whole else None
        if None not in means.values():
            total += chance
            gap = means["x"] - means["y"]  # type: ignore[operator]
            before += chance * (0.5 if abs(gap) < 1e-12 else float(gap > 0))
    return before / total


@pytest.mark.parametrize(
    ("domains", "blind"),
    [
        ({"s": "s"}, ""),
        ({"s": "s", "t": "t"}, ""),
        ({"seed 0": "", "seed 1": ""}, ""),
        ({"s/vgg": "s", "s/res": "s", "t/vgg": "t"}, ""),
        ({"s/vgg": "s", "s/res": "s", "t/vgg": "t"}, "y"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_draws_come_to_what_all_resamples_give(domains: dict[str, str], blind: str, seed: int) -> None:
    values = drawn_values("xy", [*domains], seed)
    if blind:
        first = {model: next(m for m in domains if domains[m] == domains[model]) for model in domains}
        values["y"] = {(model, *pair): values["y"][first[model], *pair] for model, *pair in values["y"]}
    found = found_of(rows_of(values, domains, blind), values, resamples=20_000)
    share = found.before[found.monitors.index("x"), found.monitors.index("y")]
    assert share == pytest.approx(enumerated(values, domains, blind), abs=0.015)


def test_the_order_of_monitors_sources_and_sets_does_not_matter() -> None:
    domains = {"s": "s", "t": "t"}
    values = drawn_values("wxyz", [*domains])
    rows = rows_of(values, domains)
    pairs, ranks = [], []
    for order in (rows, rows[::-1], sorted(rows, key=lambda row: row["test_set"])):
        tables = stability_tables(order, expected_of(values), "accuracy")
        pairs.append(tables["od_test_stability"].set_index(["monitor", "other"])["before"].sort_index())
        ranks.append(tables["od_test_ranks"].set_index("monitor").sort_index())
    for found in (pairs, ranks):
        assert found[0].equals(found[1])
        assert found[0].equals(found[2])


def test_monitors_that_are_the_same_are_before_each_other_half_of_the_time() -> None:
    values = drawn_values("xz", ["s", "t"])
    values["y"] = dict(values["x"])
    tables = stability_tables(rows_of(values, {"s": "s", "t": "t"}), expected_of(values), "accuracy")
    before = tables["od_test_stability"].set_index(["monitor", "other"])["before"]
    assert before["x", "y"] == before["y", "x"] == 0.5
    assert before["x", "z"] == before["y", "z"] == pytest.approx(1 - before["z", "x"])


def test_a_monitor_that_is_better_everywhere_is_settled() -> None:
    values = drawn_values("xy", ["s", "t"])
    values["best"] = dict.fromkeys(values["x"], 2.0)
    tables = stability_tables(rows_of(values, {"s": "s", "t": "t"}), expected_of(values), "accuracy")
    best = tables["od_test_ranks"].set_index("monitor").loc["best"]
    assert best[["rank", "lo", "hi", "settled_before", "settled_after", "unsettled"]].tolist() == [1, 1, 1, 0, 2, 0]
    cost = [row | {"metric": "expected_cost"} for row in rows_of(values, {"s": "s", "t": "t"})]
    worst = stability_tables(cost, expected_of(values), "expected_cost")["od_test_ranks"].set_index("monitor")
    assert worst.loc["best", ["rank", "lo", "settled_before"]].tolist() == [3, 3, 2], "a cost is better where it is low"


def test_only_monitors_that_have_every_triple_and_are_trained_are_resampled() -> None:
    values = drawn_values("wxyz", ["s"])
    expected = expected_of(values)
    rows = rows_of(values, {"s": "s"})
    rows = [row | {"weak_fit": row["monitor"] == "z"} for row in rows]
    lost = next(row for row in rows if row["monitor"] == "y")
    lost["value"] = float("nan")
    assert set(stability_tables(rows, expected, "accuracy")["od_test_ranks"]["monitor"]) == {"w", "x"}


def test_two_sets_leave_nothing_to_resample() -> None:
    values = {m: {("s", "a", "b"): v, ("s", "b", "a"): v} for m, v in (("x", 0.5), ("y", 0.7))}
    tables = stability_tables(rows_of(values, {"s": "s"}), expected_of(values), "accuracy")
    assert tables["od_test_stability"].empty
    ranks = tables["od_test_ranks"].set_index("monitor")
    assert ranks["rank"].to_dict() == {"y": 1, "x": 2}
    assert ranks["lo"].isna().all()
    assert set(ranks["reason"]) == {TOO_FEW_SETS}
    assert stability_tables([], set(), "accuracy")["od_test_ranks"].empty


def test_the_interval_of_a_rank_holds_95_percent_of_the_resamples() -> None:
    values = drawn_values("vwxyz", ["s", "t", "u"])
    domains = {name: name for name in "stu"}
    found = found_of(rows_of(values, domains), values)
    table = stability_tables(rows_of(values, domains), expected_of(values), "accuracy")["od_test_ranks"]
    for index, row in table.iterrows():
        inside = (found.ranks[:, index] >= row["lo"]) & (found.ranks[:, index] <= row["hi"])
        assert 0.95 <= inside.mean() <= 1
    assert (found.ranks.sum(axis=1) == 15).all()
    assert table["resamples"].iloc[0] == len(found.means) < 2000
