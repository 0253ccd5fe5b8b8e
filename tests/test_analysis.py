"""Analyses over repeats: the thesis's degrees of freedom, no clean run counted twice, effects found where they are."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy import stats

from roadworthy.protocols import PROTOCOLS
from roadworthy.protocols.repeat_analysis.analysis import Networks, analyse, networks_of
from roadworthy.stored import open_run

GOLDEN = Path(__file__).parent / "golden"
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


def ood_repeats(levels: tuple[int, ...] = (5,), count: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = []
    for model, repeat in product(("baseline", "mc_dropout"), range(count)):
        plain = [("uniform_noise", "literature", "none", 0, ""), ("scenery", "literature", "none", 0, "scenery")]
        plain += [("swirl", "derived", "none", 0, "")]
        both = product(SHIFTS, levels)
        transformed = [(f"{shift}-{level}", "transformed", shift, level, "scenery") for shift, level in both]
        for name, kind, shift, level, foreign in plain + transformed:
            value = 0.95 - 0.02 * level * (kind == "transformed") + rng.normal(0, 0.01)
            rows.append((model, name, kind, shift, level, foreign, repeat, "auroc", value))
    columns = ["model", "ood_set", "kind", "shift", "level", "foreign", "repeat", "metric", "value"]
    return pd.DataFrame(rows, columns=columns)


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


def test_levels_of_transformed_sets_are_a_factor_and_no_replicates() -> None:
    """Three levels: 420 values, of which one level alone stands beside the undisturbed set, as in the thesis."""
    rows = ood_repeats(levels=(1, 3, 5), count=7)
    tables = analyse({"ood_repeats": rows}, PROTOCOLS)
    by_shift = tables["anova_ood_transformed"].query("form == 'thesis'").set_index("factor")["df"]
    assert by_shift["shift"] == 10
    assert by_shift["Error"] == 2 * 11 * 7 - 2 * 11, "not raised by the levels"
    single = analyse({"ood_repeats": rows[rows["level"].isin([0, 5])]}, PROTOCOLS)
    pd.testing.assert_frame_equal(tables["anova_ood_transformed"], single["anova_ood_transformed"])
    assert "anova_ood_levels" not in single

    own = tables["anova_ood_levels"].query("form == 'thesis'").set_index("factor")
    formula = "value ~ (C(model, Sum) + C(shift, Sum) + C(level, Sum)) ** 2"
    expected = sm.stats.anova_lm(smf.ols(formula, rows[rows["kind"] == "transformed"]).fit(), typ=2)
    for factor in ("model", "shift", "level", "model*shift", "model*level", "shift*level"):
        theirs = expected.loc[":".join(f"C({name}, Sum)" for name in factor.split("*"))]
        assert own.loc[factor, "df"] == theirs["df"]
        assert own.loc[factor, "f"] == pytest.approx(theirs["F"], rel=1e-9)
        assert own.loc[factor, "p"] == pytest.approx(theirs["PR(>F)"], rel=1e-6, abs=1e-12)
    assert own.loc["Error", "df"] == expected.loc["Residual", "df"]
    blocked = tables["anova_ood_levels"].query("form == 'by repeat'").set_index("factor")
    assert blocked.loc["model", "df_error"] == pytest.approx(6), "seven repeats, whatever the levels"
    assert {"level", "model*level"} <= set(tables["posthoc_ood_levels"]["by"])


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
    assert set(table["form"]) == {"by repeat", "thesis", "robust", "equal variances"}
    blocked = table.query("form == 'by repeat' and metric == 'accuracy' and factor == 'model'")
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


def by_repeat(tables: dict[str, pd.DataFrame], name: str, by: str, metric: str = "accuracy") -> pd.DataFrame:
    pairs = tables[f"posthoc_{name}"]
    return pairs[(pairs["metric"] == metric) & (pairs["by"] == by) & (pairs["method"] == "by repeat")]


def test_models_are_compared_by_one_value_per_repeat(tables: dict[str, pd.DataFrame]) -> None:
    rows = repeats().query("metric == 'accuracy' and shift != 'none'")
    means = rows.groupby(["repeat", "model"])["value"].mean().unstack()
    (pair,) = by_repeat(tables, "classification", "model").to_dict("records")
    assert (pair["a"], pair["b"], pair["test"], pair["df"]) == ("baseline", "mc_dropout", "paired t", 19)
    assert pair["p"] == pytest.approx(stats.ttest_rel(means["baseline"], means["mc_dropout"]).pvalue)
    omnibus = tables["anova_classification"].query("metric == 'accuracy' and form == 'by repeat' and factor == 'model'")
    assert omnibus["p"].item() == pytest.approx(pair["p"]), "of two models the analysis of variance is the same test"
    assert (
        by_repeat(tables, "classification", "model*shift")["notes"]
        .str.contains("pairs that differ in model alone: 10, ")
        .all()
    )


def few(count: int) -> pd.DataFrame:
    """Repeats of two classifiers under three shifts at two levels, and undisturbed."""
    rows = repeats(count=count).query("metric == 'accuracy' and level < 3")
    return rows[rows["shift"].isin(["none", "noise", "grey", "snow"])]


def trained(**per_repeat: tuple[bool, str]) -> dict[str, dict[str, Networks]]:
    return {"": {name: Networks(anew, frozenset({artifact})) for name, (anew, artifact) in per_repeat.items()}}


def test_models_whose_repeats_share_nothing_are_compared_by_welch() -> None:
    """Undisturbed images, networks of their own: nothing joins the values of one repeat but its number."""
    rows = {"classification_repeats": few(5)}
    networks = trained(baseline=(True, "b"), mc_dropout=(True, "m"))
    pairs = by_repeat(analyse(rows, PROTOCOLS, networks), "transformed", "model*transformed").set_index(["a", "b"])
    clean = few(5).query("shift == 'none'").groupby("model")["value"].apply(list)
    assert pairs.loc[("baseline, no", "mc_dropout, no"), "test"] == "Welch"
    expected = stats.ttest_ind(*clean, equal_var=False)
    assert pairs.loc[("baseline, no", "mc_dropout, no"), "df"] == pytest.approx(expected.df)
    assert pairs.loc[("baseline, yes", "mc_dropout, yes"), "test"] == "paired t", "they share the draw of the repeat"
    assert pairs.loc[("baseline, yes", "baseline, no"), "test"] == "paired t", "one network"
    shared = trained(baseline=(True, "b"), mc_dropout=(True, "b"))
    assert set(by_repeat(analyse(rows, PROTOCOLS, shared), "transformed", "model*transformed")["test"]) == {"paired t"}
    assert set(by_repeat(analyse(rows, PROTOCOLS), "transformed", "model*transformed")["test"]) == {"paired t"}


def test_one_network_is_not_compared_with_a_classifier_that_is_trained_anew() -> None:
    rows = few(4)
    rows = rows[~((rows["model"] == "baseline") & (rows["shift"] == "none") & (rows["repeat"] > 0))]
    found = analyse({"classification_repeats": rows}, PROTOCOLS, trained(baseline=(False, "b"), mc_dropout=(True, "m")))
    (pair,) = by_repeat(found, "classification", "model").to_dict("records")
    assert np.isnan(pair["p"])
    assert pair["reason"].startswith("baseline is one network in all repeats: how much another training")
    table = found["anova_classification"].query("metric == 'accuracy' and form == 'by repeat'").set_index("factor")
    assert table["p"].isna().to_dict() == {
        name: "model" in name for name in ("model", "shift", "level", "model*shift", "model*level", "shift*level")
    }
    assert table.loc["model*shift", "reason"] == pair["reason"]
    pairs = by_repeat(found, "transformed", "model*transformed").set_index(["a", "b"])
    assert pairs.loc[("baseline, yes", "baseline, no"), "df"] == 3, (
        "the clean answers of one network stand for each repeat"
    )
    assert pairs.loc[("baseline, no", "mc_dropout, yes"), "reason"] == pair["reason"]


def test_two_networks_are_compared_over_draws_of_the_disturbance() -> None:
    rows = few(4)
    rows = rows[(rows["shift"] != "none") | (rows["repeat"] == 0)]
    networks = trained(baseline=(False, "b"), mc_dropout=(False, "m"))
    found = analyse({"classification_repeats": rows}, PROTOCOLS, networks)
    assert by_repeat(found, "classification", "model")["df"].item() == 3
    pairs = by_repeat(found, "transformed", "model*transformed").set_index(["a", "b"])
    assert pairs.loc[("baseline, no", "mc_dropout, no"), "reason"] == "the difference does not vary between repeats"
    table = found["anova_transformed"].query("metric == 'accuracy' and form == 'by repeat'").set_index("factor")
    assert table["df_error"].to_dict() == pytest.approx({"model": 3, "transformed": 3, "model*transformed": 3})
    total = found["anova_transformed"].query("metric == 'accuracy' and form == 'thesis' and factor == 'Total'")["df"]
    assert total.item() == 2 * 6 * 4 + 2 - 1, "the thesis's form counts clean runs as they are stored"


def test_networks_are_known_from_the_record_of_a_run() -> None:
    """A model that answers undisturbed images again, in another repeat, is another network there."""
    record = open_run(GOLDEN / "schema1" / "ood").record
    assert networks_of(record) == {"": {"net": Networks(False, frozenset())}}
    (source,) = record.protocols["ood"].sources.values()
    clean = next(a.case for a in source.cases if record.cases[a.case].stimulus.name == "none" and not a.labels)
    again = record.cases[clean].model_copy(deep=True)
    again.stimulus.repeat = 1
    record.cases["again"] = again
    source.cases.append(source.cases[0].model_copy(update={"case": "again"}))
    record.sources[""].models["net"].artifacts.append("f00")
    assert networks_of(record) == {"": {"net": Networks(True, frozenset({"f00"}))}}
