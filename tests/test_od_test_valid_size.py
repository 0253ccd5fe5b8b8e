"""Accuracy by the number of images of D_v: by hand, scores computed once, the same triples for each number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from represented import by_hand, sample
from roadworthy.monitors import Aim, Monitor
from roadworthy.monitors.fitted import FittedMonitor
from roadworthy.monitors.learned import Learned
from roadworthy.protocols.od_test.evaluation import Represented, evaluate
from roadworthy.protocols.od_test.means import methods
from roadworthy.protocols.od_test.valid_size import size_rows, size_table, sizes_below


def example(n: int = 60, columns: int = 1, seed: int = 0, **changes: Any) -> Represented:
    rng = np.random.default_rng(seed)

    def drawn(mean: float, images: int, name: str) -> Any:
        return sample(rng.normal(mean, 1, (images, columns)).round(3), name=name)

    given = {
        "valid": drawn(2, n, "v"),
        "test": drawn(2, n, "t"),
        "outliers": {"a": drawn(0, n, "a"), "b": drawn(1, n, "b"), "small": drawn(0.5, 15, "s")},
    }
    return by_hand(**(given | changes))


def rows_of(*many: Represented, aim: Aim | None = None) -> list[dict[str, Any]]:
    aim = aim or Aim()
    return [row for one in many for row in size_rows(one, evaluate(one, aim), aim)]


def accuracies(represented: Represented, images: int, valid_set: str) -> dict[str, float]:
    """The accuracy on every other set, of a source and a D_v that have no more images."""
    d_v = represented.outliers[valid_set]
    assert not isinstance(d_v, str)
    outliers = represented.outliers | {valid_set: d_v.take(slice(images))}  # type: ignore[operator]
    small = replace(represented, valid=represented.valid.take(slice(images)), outliers=outliers)
    rows = [row for row in evaluate(small, Aim()) if (row["metric"], row["valid_set"]) == ("accuracy", valid_set)]
    return {row["test_set"]: row["value"] for row in rows}


def test_a_calibration_sees_the_first_images_of_both_sides_alone() -> None:
    represented = example()
    rows = {(row["images"], row["valid_set"], row["test_set"]): row["value"] for row in rows_of(represented)}
    assert {images for images, valid_set, _ in rows if valid_set == "a"} == {10, 25, 50, 60}
    assert {images for images, valid_set, _ in rows if valid_set == "small"} == {10, 15}
    for (images, valid_set, test_set), value in rows.items():
        assert value == pytest.approx(accuracies(represented, images, valid_set)[test_set])


def test_the_mean_is_over_the_same_triples_and_ends_with_that_of_the_ranking() -> None:
    many = example(), example(80, seed=1, source="larger"), example(seed=2, source="weak", undertrained=True)
    table = size_table(rows_of(*many)).query("source == 'all'").set_index("images")
    assert [*table.index] == [10, 25, 50, 80]
    assert set(table["triples"]) == {12}
    triples = [row for one in many for row in evaluate(one, Aim())]
    ranked = methods(triples).query("source == 'all' and ood == 'all' and metric == 'accuracy'").iloc[0]
    assert table.loc[80, ["value", "lo", "hi"]].tolist() == pytest.approx(ranked[["value", "lo", "hi"]].tolist())
    assert set(table["reason"]) == {"without undertrained: weak"}
    at_50 = [row for row in rows_of(*many) if row["images"] == (15 if row["valid_set"] == "small" else 50)]
    counted = [row["value"] for row in at_50 if row["source"] != "weak"]
    assert table.loc[50, "value"] == pytest.approx(np.mean(counted))
    own = size_table(rows_of(*many)).query("source == 'source'")["images"].tolist()
    assert own == [10, 25, 50, 60]


@dataclass(frozen=True, kw_only=True)
class Counting(Monitor):
    """A column chosen by the calibration; counts how often rows are rated."""

    name: ClassVar[str] = "counting"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})
    rated: ClassVar[list[int]] = []

    def read(self, signals: Any, state: Any) -> Any:
        raise NotImplementedError

    def tune(self, inside: Any, outside: Any, aim: Any, state: Any) -> Any:
        apart = np.zeros(inside.shape[1]) if outside is None else inside.mean(axis=0) - outside.mean(axis=0)
        return {"column": np.asarray(int(np.argmax(apart)))}

    def rate(self, rows: Any, rule: Any, state: Any) -> Any:
        self.rated.append(len(rows))
        return rows[:, int(rule["column"])]


@pytest.mark.parametrize("columns", [1, 3])
def test_scores_are_computed_once_for_each_rule(columns: int) -> None:
    represented = example(columns=columns, monitor=FittedMonitor(Counting(), Learned(), ("x",)))
    triples = evaluate(represented, Aim())
    Counting.rated.clear()
    rows = [*size_rows(represented, triples, Aim())]
    calibrations = 3 + 3 + 1
    assert len(Counting.rated) <= 2 * calibrations + 2 * 3 * columns
    for row in rows:
        assert row["value"] == pytest.approx(accuracies(represented, row["images"], row["valid_set"])[row["test_set"]])


def test_what_cannot_be_calibrated_with_so_few_says_why() -> None:
    rows = rows_of(
        example(n=30, outliers={"a": sample([0.0] * 30), "b": "failed: no luck"}), aim=Aim(threshold="hinge")
    )
    reasons = {(row["images"], row["valid_set"]): row["reason"] for row in rows}
    assert reasons[0, "b"] == "failed: no luck"
    assert reasons[10, "a"] == "failed: no luck"
    table = size_table(rows).query("source == 'all'")
    assert table["value"].isna().all()
    assert (table["reason"] != "").all()


def test_monitors_that_learn_from_d_v_are_left_out() -> None:
    assert rows_of(example(fitted_on="a")) == []
    assert size_table([]).empty


def test_a_set_of_few_images_has_one_size() -> None:
    rows = rows_of(by_hand())
    assert {row["images"] for row in rows} == {4}


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(0, []), (10, []), (11, [10]), (250, [10, 25, 50, 100]), (2600, [10, 25, 50, 100, 250, 500, 1000, 2500])],
)
def test_sizes_are_those_below_what_there_is(most: int, sizes: list[int]) -> None:
    assert sizes_below(most) == sizes
