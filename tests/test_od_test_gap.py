"""Two data sets against three: the gap by hand, objects that stay whole, means over the triples of the ranking."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from represented import by_hand, sample
from roadworthy.data.subset import leading_rows
from roadworthy.monitors import Aim
from roadworthy.protocols.od_test.evaluation import Represented, evaluate
from roadworthy.protocols.od_test.gap import ONE_OBJECT, gap_rows, gap_tables
from roadworthy.protocols.od_test.means import methods
from roadworthy.statistics import proportion_interval


def example(**changes: Any) -> Represented:
    """D_v a: thresholds by its first four images, tested on the fifth; b has twenty."""
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        "valid": sample([5, 6, 7, 8, 9]),
        "test": sample([4.2, 6, 7, 8, 9]),
        "outliers": {
            "a": sample([1, 2, 3, 4, 4.6]),
            "b": sample(rng.normal(3, 1, 20).round(2), name="b"),
            "c": sample([9, 9, 9, 9, 9], name="c"),
        },
    }
    return by_hand(**(given | changes))


def rows_of(represented: Represented, aim: Aim | None = None) -> dict[str, dict[str, Any]]:
    aim = aim or Aim()
    return {row["valid_set"]: row for row in gap_rows(represented, evaluate(represented, aim), aim)}


def test_the_gap_is_worked_out_by_hand() -> None:
    """The first four of a give the threshold 4.5: the fifth, 4.6, is accepted, and so is not the first test image."""
    row = rows_of(example())["a"]
    assert (row["two_datasets"], row["n"], row["groups"]) == (0.0, 2, 2), "one image of either side"
    others = [r["value"] for r in evaluate(example(), Aim()) if (r["metric"], r["valid_set"]) == ("accuracy", "a")]
    assert row["three_datasets"] == pytest.approx(np.mean(others))
    assert row["gap"] == pytest.approx(0.0 - np.mean(others))
    assert (row["test_sets"], row["reason"]) == (2, "")


def test_the_calibration_does_not_see_what_is_held_out() -> None:
    """By a slow transcription of both steps, for any number of images."""
    represented = example()
    valid, test, d_v = (s.rows[:, 0] for s in (represented.valid, represented.test, represented.outliers["b"]))  # type: ignore[union-attr]
    first, last = d_v[:16], d_v[16:]
    n = min(len(valid), len(first))
    inside, outside = valid[:n], first[:n]
    values = np.unique([*inside, *outside])
    cuts = [-np.inf, *((values[1:] + values[:-1]) / 2), np.inf]
    losses = [np.mean(inside < cut) + np.mean(outside >= cut) for cut in cuts]
    cut = cuts[int(np.argmin(np.round(losses, 12)))]
    n = min(len(test), len(last))
    right = [(test[:n] >= cut), (last[:n] < cut)]
    shares = [proportion_interval(side, np.arange(n).astype(str)) for side in right]
    row = rows_of(represented)["b"]
    assert row["two_datasets"] == pytest.approx(np.mean([share.value for share in shares]))
    assert row["lo"] == pytest.approx(row["two_datasets"] - np.hypot(*((s.value - s.lo) / 2 for s in shares)))
    changed = np.array(represented.outliers["b"].rows)  # type: ignore[union-attr]
    changed[16:] = 100
    moved = example(outliers=represented.outliers | {"b": sample(changed[:, 0], name="b")})
    assert rows_of(moved)["b"]["two_datasets"] == pytest.approx(np.mean(right[0]) / 2), "the same cut, and all accepted"


def test_the_prior_weighs_both_sides() -> None:
    aim = Aim(prior=0.1)
    row = rows_of(example(outliers={"a": sample([1, 2, 3, 4, 1]), "b": sample([0.0])}), aim)["a"]
    assert row["two_datasets"] == pytest.approx(0.9 * 0 + 0.1 * 1), "4.2 is rejected by 4.5, and 1 too"


@pytest.mark.parametrize(
    ("groups", "leading"),
    [
        ([*"abcdefghij"], [1] * 8 + [0] * 2),
        ([*"aaaaaaaaaa"], [1] * 10),
        (["a"], [1]),
        ([*"ab"], [1, 1]),
        ([*"ababababxy"], [1] * 8 + [0] * 2),
        ([*"abcdeabcde"], [1, 1, 1, 1, 0, 1, 1, 1, 1, 0]),
        ([*"abcdefghia"], [1] * 7 + [0, 0, 1]),
    ],
)
def test_objects_are_held_out_whole(groups: list[str], leading: list[int]) -> None:
    found = leading_rows(groups, 0.8)
    assert found.tolist() == [bool(row) for row in leading]
    assert not {*np.array(groups)[found]} & {*np.array(groups)[~found]}


def test_a_set_of_one_object_has_no_value_and_says_why() -> None:
    alone = example(outliers={"a": sample([1, 2, 3], groups=["o", "o", "o"]), "b": sample([0, 1, 2])})
    rows = rows_of(alone)
    assert np.isnan(rows["a"]["two_datasets"])
    assert np.isnan(rows["a"]["gap"])
    assert rows["a"]["reason"] == ONE_OBJECT
    assert not np.isnan(rows["a"]["three_datasets"])


def test_a_monitor_that_failed_or_lacks_a_set_says_why() -> None:
    rows = rows_of(example(monitor="failed: no luck"))
    assert {row["reason"] for row in rows.values()} == {"failed: no luck"}
    lost = example(outliers={"a": sample([1, 2, 3, 4, 4.6]), "b": "failed: it broke"})
    rows = rows_of(lost)
    assert rows["b"]["reason"] == "failed: it broke"
    assert (rows["a"]["reason"], rows["a"]["test_sets"]) == ("no test set has a value", 0)
    tables = gap_tables([*rows.values()], evaluate(lost, Aim()))
    assert tables["od_test_gap_methods"].empty


def test_a_fit_for_one_d_v_has_one_row() -> None:
    assert [*rows_of(example(fitted_on="b"))] == ["b"]


def test_means_are_over_the_triples_of_the_ranking() -> None:
    many = [
        example(),
        example(source="t", outliers={"a": sample([1, 2, 3, 4, 4.6]), "b": sample([0, 1, 2, 3, 4])}),
        example(source="weak", undertrained=True),
    ]
    triples = [row for one in many for row in evaluate(one, Aim())]
    gaps = [row for one in many for row in gap_rows(one, evaluate(one, Aim()), Aim())]
    means = gap_tables(gaps, triples)["od_test_gap_methods"].set_index("figure")
    ranked = methods(triples).query("source == 'all' and ood == 'all' and metric == 'accuracy'").iloc[0]
    assert means.loc["three_datasets", ["value", "lo", "hi", "triples"]].tolist() == pytest.approx(
        ranked[["value", "lo", "hi", "triples"]].tolist()
    )
    weights = {(row["source"], row["valid_set"]): row["test_sets"] for row in gaps if row["source"] != "weak"}
    for figure in ("two_datasets", "gap"):
        values = [row[figure] for row in gaps if row["source"] != "weak"]
        assert means.loc[figure, "value"] == pytest.approx(np.average(values, weights=[*weights.values()]))
        assert means.loc[figure, "clusters"] == len(weights) == 5
    assert set(means["reason"]) == {"without undertrained: weak"}
