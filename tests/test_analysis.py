"""Analyses over repeats: the thesis's degrees of freedom, no clean run counted twice, effects found where they are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from roadworthy.protocols import PROTOCOLS
from roadworthy.protocols.repeat_analysis.analysis import analyse

SHIFTS = ("noise", "grey", "snow", "rain", "fog", "perspective", "blur", "rotation", "crop", "reflection")


def repeats(models: tuple[str, ...] = ("baseline", "mc_dropout"), count: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for model, shift, level, repeat in product(models, SHIFTS, range(1, 6), range(count)):
        drop = 0.02 * level * (1 + SHIFTS.index(shift) % 3) * (0.7 if model == "mc_dropout" else 1)
        rows.append((model, shift, level, repeat, 0.99 - drop + rng.normal(0, 0.01)))
    rows += [(model, "none", 0, repeat, 0.99 + rng.normal(0, 0.01)) for model, repeat in product(models, range(count))]
    table = pd.DataFrame(rows, columns=["model", "shift", "level", "repeat", "value"])
    return pd.concat([table.assign(metric=metric) for metric in ("accuracy", "auroc", "brier_mean")])


def ood_repeats() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = []
    for model, repeat in product(("baseline", "mc_dropout"), range(20)):
        plain = [("uniform_noise", "literature", "none", ""), ("scenery", "literature", "none", "scenery")]
        plain += [("swirl", "derived", "none", "")]
        transformed = [(f"{shift}-5", "transformed", shift, "scenery") for shift in SHIFTS]
        for name, kind, shift, foreign in plain + transformed:
            value = 0.95 - 0.1 * (kind == "transformed") + rng.normal(0, 0.01)
            rows.append((model, name, kind, shift, foreign, repeat, "auroc", value))
    return pd.DataFrame(rows, columns=["model", "ood_set", "kind", "shift", "foreign", "repeat", "metric", "value"])


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return analyse({"classification_repeats": repeats(), "ood_repeats": ood_repeats()}, PROTOCOLS)


def test_the_degrees_of_freedom_of_the_thesis(tables: dict[str, pd.DataFrame]) -> None:
    found = tables["anova_classification"].query("metric == 'accuracy' and form == 'thesis'").set_index("factor")["df"]
    expected = {
        "model": 1,
        "shift": 9,
        "level": 4,
        "model*shift": 9,
        "model*level": 4,
        "shift*level": 36,
        "Error": 1936,
    }
    assert {name: found[name] for name in expected} == expected
    transformed = tables["anova_ood_transformed"].query("form == 'thesis'").set_index("factor")["df"]
    assert transformed["shift"] == 10, "none is the eleventh level"
    assert transformed["Error"] == 2 * 11 * 20 - 2 * 11


def test_clean_runs_are_counted_once(tables: dict[str, pd.DataFrame]) -> None:
    table = tables["anova_transformed"]
    total = table.query("metric == 'accuracy' and form == 'thesis' and factor == 'Total'")["df"].item()
    assert total == 2 * 50 * 20 + 2 * 20 - 1


def test_groups_of_levels_are_told_apart_and_equal_ones_are_not(tables: dict[str, pd.DataFrame]) -> None:
    means = tables["posthoc_classification_means"].query("metric == 'accuracy' and method == 'Tukey-Kramer'")
    levels = means[means["by"] == "level"].set_index("cell")["letters"]
    assert levels.tolist() == list("abcde")
    shifts = means[means["by"] == "shift"].set_index("cell")["letters"]
    assert shifts["noise"] == shifts["rain"] != shifts["grey"]
    pairs = tables["posthoc_transformed"].query("metric == 'accuracy' and method == 'Games-Howell'")
    clean = pairs[(pairs["a"].str.endswith("no")) & (pairs["b"].str.endswith("no"))]
    assert not clean["significant"].any()


def test_each_analysis_stands_in_three_forms(tables: dict[str, pd.DataFrame]) -> None:
    table = tables["anova_classification"]
    assert set(table["form"]) == {"thesis", "blocked", "robust", "equal variances"}
    blocked = table.query("form == 'blocked' and metric == 'accuracy' and factor == 'model'")
    assert blocked["df_error"].item() == 19, "twenty repeats, two classifiers: paired"


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_repeated_nothing_analysed(count: int) -> None:
    assert analyse({"classification_repeats": repeats(count=count)}, PROTOCOLS) == {}
    assert analyse({}, PROTOCOLS) == {}
    assert analyse({"classification_repeats": repeats()}, ["ood"]) == {}


def test_one_model_and_missing_values() -> None:
    rows = repeats(models=("only",), count=3)
    rows.loc[(rows["shift"] == "fog") & (rows["metric"] == "auroc"), "value"] = np.nan
    tables = analyse({"classification_repeats": rows}, PROTOCOLS)
    assert set(tables["anova_classification"].query("form == 'thesis'")["factor"]) == {
        "shift",
        "level",
        "shift*level",
        "Error",
        "Total",
    }
    notes = tables["anova_classification"].query("metric == 'auroc'")["notes"].dropna().unique()
    assert any("fog" in note or "NaN" in note or "value" in note for note in notes)
