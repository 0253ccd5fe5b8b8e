"""Means of OD-test: what counts once, what is left out, and what is independent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from represented import by_hand, sample
from roadworthy.monitors import Aim, make_monitor
from roadworthy.protocols.od_test.criteria import measure
from roadworthy.protocols.od_test.evaluation import Represented, evaluate, evaluate_unsupervised
from roadworthy.protocols.od_test.means import clustered_interval, matrix_tables
from roadworthy.verdict import Criterion

OTHER = {"a": sample([2, 3, 4, 6]), "b": sample([4.9, 5.5, 0, 0]), "c": sample([9, 3, 9, 9])}
ELSEWHERE = {"valid": sample([5, 5, 7, 9]), "test": sample([4, 6, 8, 2]), "outliers": OTHER}


def rows_of(*all_represented: Represented) -> list[dict[str, Any]]:
    return [row for represented in all_represented for row in evaluate(represented, Aim())]


def tables_of(*all_represented: Represented) -> dict[str, pd.DataFrame]:
    alone = [row for represented in all_represented for row in evaluate_unsupervised(represented, Aim())]
    return matrix_tables(rows_of(*all_represented), alone)


def accuracies(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], float]:
    return {
        (row["source"], row["valid_set"], row["test_set"]): row["value"] for row in rows if row["metric"] == "accuracy"
    }


def means_of(*all_represented: Represented, table: str = "od_test_methods", by: str = "source") -> pd.DataFrame:
    means = tables_of(*all_represented)[table].query("ood == 'all' and metric == 'accuracy'")
    return means.set_index([by, "monitor"])


def models(source: str, *names: str, **changes: Any) -> list[Represented]:
    """A monitor on several models of one source, whose architecture is their name."""
    return [by_hand(source=f"{source}/{name}", domain=source, architecture=name, **changes) for name in names]


def test_two_models_of_a_source_are_one_piece_of_evidence() -> None:
    first, second = models("s", "vgg", "resnet")
    other = by_hand(source="t/vgg", domain="t", architecture="vgg", **ELSEWHERE)
    overall = means_of(first, second, other).loc[("all", "msp")]
    values = accuracies(rows_of(first, second, other))
    clusters, _ = pd.factorize(pd.Series([(key[0].partition("/")[0], key[2]) for key in values]))
    lo, hi, _ = clustered_interval(np.array([*values.values()]), clusters)
    assert (overall["clusters"], overall["triples"]) == (6, 18)
    assert (overall["lo"], overall["hi"]) == pytest.approx((lo, hi))
    alone = means_of(first, other).loc[("all", "msp")]
    twice = means_of(first, second, replace(other, source="t/a"), other).loc[("all", "msp")]
    assert (twice["lo"], twice["hi"]) == pytest.approx((alone["lo"], alone["hi"])), "copies are no evidence"


def test_in_a_study_of_one_unnamed_source_the_unit_is_the_test_set() -> None:
    seeds = [by_hand(source=name, domain="") for name in ("seed 0", "seed 1")]
    assert means_of(*seeds).loc[("all", "msp"), "clusters"] == 3
    (pooled,) = measure(
        rows_of(*seeds), Criterion(id="R", metric="accuracy", at_least=0.5, over="pooled"), confidence=0.95
    )
    assert pooled.estimate.groups == 3


def test_a_monitor_that_asks_no_model_counts_once_per_source() -> None:
    asking = models("s", "vgg", "resnet")
    blind = models("s", "vgg", "resnet", label="pixels", asks_model=False)
    other = by_hand(source="t/vgg", domain="t", architecture="vgg", label="pixels", asks_model=False, **ELSEWHERE)
    asked = by_hand(source="t/vgg", domain="t", architecture="vgg", **ELSEWHERE)
    given = (*asking, *blind, asked, other)
    means, tables = means_of(*given), tables_of(*given)
    once = accuracies(rows_of(blind[0], other))
    assert means.loc[("all", "pixels"), "value"] == pytest.approx(np.mean([*once.values()]))
    assert means.loc[("all", "pixels"), ["triples", "sources", "reason"]].tolist() == [12, 2, ""]
    assert means.loc[("all", "msp"), ["triples", "sources"]].tolist() == [18, 3]
    assert {name for name, label in means.index if label == "pixels"} == {"all", "s/vgg", "s/resnet", "t/vgg"}
    kinds = means_of(*given, table="od_test_architectures", by="architecture")
    assert {name for name, label in kinds.index if label == "pixels"} == {"all", "any"}
    assert kinds.loc[("any", "pixels"), "value"] == pytest.approx(means.loc[("all", "pixels"), "value"])
    assert {name for name, label in kinds.index if label == "msp"} == {"all", "vgg", "resnet"}
    cells = tables["od_test_heatmap"].set_index(["monitor", "valid_set", "test_set"])
    assert cells.loc[("pixels", "a", "b"), "sources"] == 2
    assert cells.loc[("msp", "a", "b"), "sources"] == 3
    criterion = Criterion(id="R", metric="accuracy", at_least=0.5, over="pooled", where={"monitor": "pixels"})
    (pooled,) = measure(rows_of(*given), criterion, 0.95)
    assert pooled.where == {"triples": 12}
    assert pooled.estimate.value == pytest.approx(means.loc[("all", "pixels"), "value"])


def test_a_study_of_one_architecture_has_no_other() -> None:
    blind = by_hand(label="pixels", asks_model=False, architecture="vgg")
    kinds = tables_of(by_hand(architecture="vgg"), blind)["od_test_architectures"]
    assert set(kinds["architecture"]) == {"all", "vgg"}


def test_of_the_models_of_a_source_one_that_has_values_stands_for_a_monitor_that_asks_none() -> None:
    lost = by_hand(source="s/vgg", domain="s", monitor="failed: no luck", label="pixels", asks_model=False)
    there = by_hand(source="s/resnet", domain="s", label="pixels", asks_model=False)
    overall = means_of(lost, there).loc[("all", "pixels")]
    assert (overall["triples"], overall["reason"]) == (6, "")


def test_fits_below_their_floor_are_left_out_per_monitor() -> None:
    good, poor = by_hand(label="ae"), by_hand(label="ae", source="t", undertrained_fit=True, **ELSEWHERE)
    others = by_hand(), by_hand(source="t", **ELSEWHERE)
    means = means_of(good, poor, *others)
    assert means.loc[("all", "ae"), "value"] == pytest.approx(means.loc[("source", "ae"), "value"])
    assert means.loc[("all", "ae"), "reason"] == (
        "without undertrained: t; 1 of 2 sources only: not comparable with the others"
    )
    assert means.loc[("all", "msp"), ["sources", "reason"]].tolist() == [2, ""]
    assert means["undertrained"].to_dict() == {key: key == ("t", "ae") for key in means.index}
    cells = tables_of(good, poor, *others)["od_test_heatmap"].set_index(["monitor", "valid_set", "test_set"])
    assert cells.loc[("ae", "a", "b"), "sources"] == 1
    rows = rows_of(good, poor, *others)
    assert {(row["source"], row["monitor"]) for row in rows if row["undertrained"]} == {("t", "ae")}
    criterion = Criterion(id="R", metric="accuracy", at_least=0.5, over="pooled", where={"monitor": "ae"})
    (pooled,) = measure(rows, criterion, 0.95)
    assert pooled.where == {"triples": 6, "without undertrained": "ae at t"}


def test_a_monitor_without_a_trained_fit_has_a_mean_that_is_marked() -> None:
    poor = [by_hand(label="ae", source=name, undertrained_fit=True) for name in ("s", "t")]
    overall = means_of(*poor, by_hand(source="s"), by_hand(source="t")).loc[("all", "ae")]
    assert overall["undertrained"]
    assert overall["triples"] == 12
    assert overall["reason"] == ""


def test_a_fit_per_d_v_is_left_out_by_d_v() -> None:
    fits = [
        by_hand(label="bin", source=source, fitted_on=name, undertrained_fit=(source, name) == ("t", "b"))
        for source in ("s", "t")
        for name in "abc"
    ]
    overall = means_of(*fits).loc[("all", "bin")]
    assert (overall["triples"], overall["reason"]) == (10, "without undertrained: t with D_v b")
    one = means_of(*fits[3:]).loc[("all", "bin")]
    assert (one["triples"], one["undertrained"]) == (6, True), "one source by itself has all of its fits, marked"


def test_who_needs_the_image_alone_asks_no_model() -> None:
    assert not make_monitor("random").asks_model
    assert not make_monitor("knn_svm").asks_model
    assert make_monitor("msp").asks_model
