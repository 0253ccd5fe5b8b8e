"""Analysis of variance: certified and published values, the tables of the thesis, edges, and false alarms."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from hypothesis import given, settings
from scipy import stats
from statsmodels.stats.anova import AnovaRM
from statsmodels.stats.oneway import anova_oneway

from designs import (
    THESIS,
    grid,
    samples_with,
    thesis_accuracy,
    warpbreaks,
)
from roadworthy.statistics import anova, brown_forsythe, repeated_anova, robust_anova, thesis_p, welch_anova


def column(table, name: str) -> list[float]:
    return table.frame[name].tolist()


# ---- Published data. NIST StRD, analysis of variance: data and certified values of www.itl.nist.gov/div898/strd

SIRSTV = """196.3052 196.1240 196.1890 196.2569 196.3403 196.3042 196.3825 196.1669 196.3257 196.0422 196.1303 196.2005
196.2889 196.0343 196.1811 196.2795 196.1748 196.1494 196.1485 195.9885 196.2119 196.1051 196.1850 196.0052 196.2090"""
ATMWTAG = """107.8681568 107.8681465 107.8681572 107.8681785 107.8681446 107.8681903 107.8681526 107.8681494 107.8681616
107.8681587 107.8681519 107.8681486 107.8681419 107.8681569 107.8681508 107.8681672 107.8681385 107.8681518
107.8681662 107.8681424 107.8681360 107.8681333 107.8681610 107.8681477 107.8681079 107.8681344 107.8681513
107.8681197 107.8681604 107.8681385 107.8681642 107.8681365 107.8681151 107.8681082 107.8681517 107.8681448
107.8681198 107.8681482 107.8681334 107.8681609 107.8681101 107.8681512 107.8681469 107.8681360 107.8681254
107.8681261 107.8681450 107.8681368"""


@pytest.mark.parametrize(
    ("text", "groups", "between", "within", "f"),
    [
        (SIRSTV, 5, 5.11462616000000e-02, 2.16636560000000e-01, 1.18046237440255e00),
        (ATMWTAG, 2, 3.63834187500000e-09, 1.04951729166667e-08, 1.59467335677930e01),
    ],
    ids=["SiRstv", "AtmWtAg"],
)
def test_nist_observed_data(text, groups, between, within, f):
    values = np.array(text.split(), dtype=float)
    frame = pd.DataFrame({"instrument": np.repeat(range(groups), len(values) // groups), "y": values})
    table = anova(frame, "y", ["instrument"])
    # AtmWtAg has 7 constant leading digits: 1e-7 of its sums of squares is what float64 holds of the data.
    assert column(table, "sum_of_squares")[:2] == pytest.approx([between, within], rel=1e-6)
    assert column(table, "f")[0] == pytest.approx(f, rel=1e-6)
    assert column(table, "df") == [groups - 1, len(values) - groups, len(values) - 1]


@pytest.mark.parametrize("offset", [1, 1_000_000], ids=["SmLs01-03", "SmLs04-06"])
@pytest.mark.parametrize(("replicates", "f"), [(21, 21.0), (201, 201.0), (2001, 2001.0)])
def test_nist_simon_lesage_data(offset, replicates, f):
    # The sets of Simon and Lesage as NIST generates them: nine means of .4 -+ .1, values of the mean -+ .1.
    means = offset + np.array([0.4, 0.3, 0.5, 0.3, 0.5, 0.3, 0.5, 0.3, 0.5])
    steps = np.r_[0, np.tile([-0.1, 0.1], replicates // 2)]
    frame = pd.DataFrame({"treatment": np.repeat(range(9), replicates), "y": (means[:, None] + steps).ravel()})
    table = anova(frame, "y", ["treatment"])
    assert column(table, "f")[0] == pytest.approx(f, rel=1e-7)
    assert column(table, "sum_of_squares")[:2] == pytest.approx([0.08 * replicates, 0.09 * (replicates - 1)], rel=1e-7)


def npk() -> pd.DataFrame:
    """R's data set `npk` (Venables and Ripley 2002): a 2x2x2 factorial in six blocks."""
    text = """0 1 1 49.5 1 1 0 62.8 0 0 0 46.8 1 0 1 57.0 1 0 0 59.8 1 1 1 58.5 0 0 1 55.5 0 1 0 56.0
              0 1 0 62.8 1 1 1 55.8 1 0 0 69.5 0 0 1 55.0 1 0 0 62.0 1 1 1 48.8 0 0 1 45.5 0 1 0 44.2
              1 1 0 52.0 0 0 0 51.5 1 0 1 49.8 0 1 1 48.8 1 0 1 57.2 1 1 0 59.0 0 1 1 53.2 0 0 0 56.0"""
    frame = pd.DataFrame(np.array(text.split(), dtype=float).reshape(-1, 4), columns=["N", "P", "K", "y"])
    return frame.assign(block=np.repeat(range(6), 4))


def test_warpbreaks_as_r_prints_it():
    # R: anova(lm(breaks ~ wool * tension, warpbreaks))
    table = anova(warpbreaks(), "y", ["wool", "tension"])
    assert column(table, "df") == [1, 2, 2, 48, 53]
    assert column(table, "sum_of_squares")[:4] == pytest.approx([450.67, 2034.26, 1002.78, 5745.11], abs=0.005)
    assert column(table, "f")[:3] == pytest.approx([3.7653, 8.4980, 4.1891], abs=5e-5)
    assert column(table, "p")[:3] == pytest.approx([0.0582130, 0.0006926, 0.0210442], abs=5e-8)


def test_npk_in_blocks_as_r_prints_it():
    # R: summary(aov(yield ~ block + N * P * K, npk)); the interaction of all three is confounded with the blocks.
    table = anova(npk(), "y", ["N", "P", "K"], block="block")
    assert column(table, "factor") == ["block", "N", "P", "K", "N*P", "N*K", "P*K", "Error", "Total"]
    assert column(table, "df") == [5, 1, 1, 1, 1, 1, 1, 12, 23]
    assert column(table, "f")[:7] == pytest.approx([4.447, 12.259, 0.544, 6.166, 1.378, 2.146, 0.031], abs=5e-4)
    assert column(table, "p")[1:7] == pytest.approx([0.00437, 0.47490, 0.02880, 0.26317, 0.16865, 0.86275], abs=5e-6)
    confounded = anova(npk(), "y", ["N", "P", "K"], interactions=3, block="block").frame.set_index("factor")
    assert confounded.loc["N*P*K", ["df", "reason"]].tolist() == [0, "cannot be told from the other terms"]
    assert math.isnan(confounded.loc["N*P*K", "f"])
    assert confounded.loc["N", "f"] == pytest.approx(12.259, abs=5e-4)


def test_a_balanced_textbook_design_by_hand():
    # 2 x 2, two values a cell: means 2 4 / 6 12, all values +-1 about them. Sums of squares are whole numbers.
    frame = pd.DataFrame({"a": [0, 0, 0, 0, 1, 1, 1, 1], "b": [0, 0, 1, 1] * 2, "y": [1, 3, 3, 5, 5, 7, 11, 13]})
    table = anova(frame, "y", ["a", "b"]).frame.set_index("factor")
    assert table["sum_of_squares"].to_dict() == pytest.approx({"a": 72, "b": 32, "a*b": 8, "Error": 8, "Total": 120})
    assert table["f"][:3].tolist() == pytest.approx([36, 16, 4])
    assert table["eta_squared"][:3].tolist() == pytest.approx([72 / 120, 32 / 120, 8 / 120])
    assert table["partial_eta_squared"][:3].tolist() == pytest.approx([0.9, 0.8, 0.5])
    assert table["omega_squared"][:3].tolist() == pytest.approx([70 / 122, 30 / 122, 6 / 122])
    assert table["p"]["a"] == pytest.approx(stats.f.sf(36, 1, 4))


# ---- The thesis: its tables of F from its tables of means and standard deviations, 20 repeats a cell


def test_table_2_of_the_thesis():
    layout = anova(thesis_accuracy(), "y", THESIS).thesis_layout()
    assert layout.columns.tolist() == ["Factor", "d.f.", "F", "p"]
    assert layout["Factor"].tolist() == [
        "Classifier", "Transformation", "Level",
        "Classifier*Transformation", "Classifier*Level", "Transformation*Level", "Error",
    ]  # fmt: skip
    assert layout["d.f."].tolist() == ["1", "9", "4", "9", "4", "36", "1936"]
    published = [144.83, 726.64, 1968.66, 27.46, 25.92, 145.45]
    assert layout["F"][:6].astype(float).tolist() == pytest.approx(published, rel=0.002)
    assert layout["p"].tolist() == ["<.001"] * 6 + [""]
    named = anova(thesis_accuracy(), "y", THESIS).thesis_layout({"level": "Strength"})
    assert named["Factor"][4] == "Classifier*Strength"


@pytest.mark.parametrize(
    ("means", "deviations", "f", "error", "p"),
    [
        (
            ".9862 .9846 .9490 .9697 .8985 .8283 .8487 .9880 .9906 .9821 .9893 .9252 .9359 .8946",
            ".0208 .0115 .0128 .0213 .0187 .0337 .0745 .0053 .0045 .0036 .0040 .0067 .0128 .0391",
            [115.55, 144.37, 17.78], 266, ["<.001"] * 3,
        ),
        (
            """.9478 .8018 .7466 .8243 .7519 .4825 .6054 .8483 .8178 .7200 .6560
               .9827 .9312 .8362 .9443 .8916 .5406 .7170 .9575 .9079 .8141 .7870""",
            """.0135 .0721 .0451 .0614 .0974 .1465 .0357 .0273 .0216 .0351 .0407
               .0031 .0346 .0196 .0296 .0653 .1779 .0292 .0116 .0188 .0308 .0272""",
            [275.86, 161.74, 2.54], 418, ["<.001", "<.001", "<.01"],
        ),
        (
            ".7601 .7462 .9703 .6469 .2278 .2340 .8177 .8250 .9839 .9486 .8631 .7467",
            ".0592 .0942 .0459 .2632 .2116 .2141 .0198 .0335 .0060 .0326 .0960 .1367",
            [249.78, 76.68, 39.91], 228, ["<.001"] * 3,
        ),
    ],
    ids=["table 6", "table 8", "table 11"],
)  # fmt: skip
def test_the_ood_tables_of_the_thesis(means, deviations, f, error, p):
    mean, deviation = (np.array(text.split(), dtype=float).reshape(2, -1) for text in (means, deviations))
    table = anova(samples_with(mean, deviation, ["classifier", "set"]), "y", ["classifier", "set"])
    assert column(table, "f")[:3] == pytest.approx(f, rel=0.004)
    assert column(table, "df")[3] == error
    assert table.thesis_layout()["p"].tolist() == [*p, ""]


def test_degrees_of_freedom_of_the_thesis_design_and_its_blocked_companion():
    frame = grid(20, 2, 10, 5)
    frame["y"] = np.random.default_rng(0).normal(size=len(frame)) + frame["repeat"]
    plain, blocked = anova(frame, "y", ["a", "b", "c"]), anova(frame, "y", ["a", "b", "c"], block="repeat")
    assert column(plain, "df") == [1, 9, 4, 9, 4, 36, 1936, 1999]
    assert column(blocked, "df") == [19, 1, 9, 4, 9, 4, 36, 1917, 1999]
    assert column(anova(frame, "y", ["a", "b", "c"], interactions=3), "df")[-2] == 1900
    assert column(blocked, "sum_of_squares")[1:7] == pytest.approx(column(plain, "sum_of_squares")[:6])
    assert blocked.frame["mean_square"].iloc[-2] == pytest.approx(1, abs=0.1)
    assert plain.frame["mean_square"].iloc[-2] > 30
    assert blocked.method == "ANOVA, type II, blocked by repeat"


def test_sums_of_squares_of_a_balanced_design_add_up():
    frame = grid(3, 2, 4, 3).assign(y=np.random.default_rng(1).normal(size=72))
    table = anova(frame, "y", ["a", "b", "c"], interactions=3, block="repeat")
    assert sum(column(table, "sum_of_squares")[:-1]) == pytest.approx(column(table, "sum_of_squares")[-1])


# ---- Unbalanced: against statsmodels


@pytest.mark.parametrize("seed", range(3))
def test_unbalanced_designs_against_statsmodels(seed):
    rng = np.random.default_rng(seed)
    frame = grid(4, 2, 4, 3)
    frame["y"] = rng.normal(size=len(frame)) + frame["a"] * frame["b"] + 1e4
    frame = frame.drop(frame.index[rng.random(len(frame)) < 0.3]).sample(frac=1, random_state=seed)
    expected = sm.stats.anova_lm(
        smf.ols("y ~ C(a) + C(b) + C(c) + C(a):C(b) + C(a):C(c) + C(b):C(c)", frame).fit(), typ=2
    )
    table = anova(frame, "y", ["a", "b", "c"])
    assert column(table, "sum_of_squares")[:7] == pytest.approx(expected["sum_sq"].tolist(), rel=1e-6)
    assert column(table, "p")[:6] == pytest.approx(expected["PR(>F)"].tolist()[:6], rel=1e-6)
    blocked = sm.stats.anova_lm(smf.ols("y ~ C(repeat) + C(a) * C(b)", frame).fit(), typ=2)
    assert column(anova(frame, "y", ["a", "b"], block="repeat"), "f")[:4] == pytest.approx(
        blocked["F"].tolist()[:4], rel=1e-6
    )


def test_clean_runs_are_not_duplicated():
    # Section 4.1: classifier x transformed. 20 clean runs against 1000 transformed ones; copies would raise F.
    frame = thesis_accuracy().assign(transformed=True)
    clean = frame[(frame["level"] == 1) & (frame["transformation"] == "Blur")].assign(transformed=False)
    frame = pd.concat([clean, frame])
    table = anova(frame, "y", ["classifier", "transformed"])
    expected = sm.stats.anova_lm(smf.ols("y ~ C(classifier) * C(transformed)", frame).fit(), typ=2)
    assert column(table, "f")[:3] == pytest.approx(expected["F"].tolist()[:3], rel=1e-6)
    assert column(table, "df")[3] == 2040 - 4
    copied = anova(pd.concat([frame, *[clean] * 49]), "y", ["classifier", "transformed"])
    assert column(copied, "f")[1] > 10 * column(table, "f")[1]


# ---- What is missing is said


def test_missing_values_are_left_out_and_counted():
    frame = grid(3, 2, 3).assign(y=np.random.default_rng(2).normal(size=18))
    frame.loc[[0, 5], "y"] = np.nan
    table = anova(frame, "y", ["a", "b"])
    assert table.notes == ("2 of 18 rows left out: no value of y",)
    assert table.frame.equals(anova(frame.dropna(), "y", ["a", "b"]).frame)
    for test in (welch_anova, brown_forsythe):
        assert test(frame, "y", ["a", "b"]).notes == table.notes


def test_empty_cells_lower_the_degrees_of_freedom_with_a_note():
    frame = grid(4, 2, 3).assign(y=np.random.default_rng(3).normal(size=24))
    frame = frame[(frame["a"] != 1) | (frame["b"] != 2)]
    table = anova(frame, "y", ["a", "b"])
    assert column(table, "df") == [1, 2, 1, 15, 19]
    assert table.notes == ("1 cells of a*b have no value, so it has fewer degrees of freedom: (1, 2)",)
    additive, full = smf.ols("y ~ C(a) + C(b)", frame).fit(), frame.groupby(["a", "b"])["y"]
    assert column(table, "sum_of_squares")[2] == pytest.approx(additive.ssr - (full.var() * (full.count() - 1)).sum())
    robust = robust_anova(frame, "y", ["a", "b"])
    assert robust.frame["f"].isna().all()
    assert set(robust.frame["reason"]) == {"no value in (1, 2)"}


def test_no_variation_gives_no_test_and_a_reason():
    frame = grid(3, 2, 3)
    exact, constant = frame.assign(y=0.1 * frame["a"] + 0.7), frame.assign(y=0.3)
    for data in (exact, constant):
        table = anova(data, "y", ["a", "b"])
        assert table.frame["f"].isna().all()
        assert column(table, "reason")[:3] == ["no variation within cells"] * 3
        assert table.thesis_layout()["F"][0] == "no variation within cells"
        assert robust_anova(data, "y", ["a", "b"]).frame["reason"].unique() == ["no variation within cells"]
        assert "no variation" in welch_anova(data, "y", ["a"]).reason
        assert "median" in brown_forsythe(data, "y", ["a"]).reason
        assert repeated_anova(data, "y", ["a", "b"], "repeat").frame["f"].isna().all()
    assert math.isnan(column(anova(constant, "y", ["a"]), "eta_squared")[0])
    single = welch_anova(frame[frame["repeat"] == 0].assign(y=range(6)), "y", ["a", "b"])
    assert single.reason == "a single value or no variation in (0, 0), (0, 1), (0, 2) and 3 more"


@pytest.mark.parametrize(
    ("change", "factors", "message"),
    [
        ({}, ["a", "x"], "no column 'x': it has repeat, a, b, y"),
        ({}, ["a", "a"], "each once"),
        ({}, [], "one or more factors"),
        ({"y": math.inf}, ["a"], "12 infinite values"),
        ({"y": "high"}, ["a"], "must hold numbers"),
        ({"y": math.nan}, ["a"], r"'a' has 0 level\(s\)"),
        ({"a": 1}, ["a", "b"], r"'a' has 1 level\(s\)"),
        ({"a": [None, 1] * 6}, ["a", "b"], "'a' is missing in 6 rows"),
    ],
)
def test_what_is_no_design_is_an_error(change, factors, message):
    frame = grid(2, 2, 3).assign(y=np.arange(12.0)).assign(**change)
    for test in (anova, robust_anova, welch_anova, brown_forsythe):
        with pytest.raises(ValueError, match=message):
            test(frame, "y", factors)


def test_no_degrees_of_freedom_is_an_error():
    frame = grid(1, 2, 3).assign(y=np.arange(6.0))
    with pytest.raises(ValueError, match="add repeats or keep fewer interactions"):
        anova(frame, "y", ["a", "b"])
    assert column(anova(frame, "y", ["a", "b"], interactions=1), "df")[-2] == 2
    with pytest.raises(ValueError, match="interactions must be 1"):
        anova(frame, "y", ["a", "b"], interactions=0)
    with pytest.raises(ValueError, match="only 1 of 2 levels of 'repeat'"):
        repeated_anova(grid(2, 2, 2).assign(y=range(8)).iloc[:-1], "y", ["a", "b"], "repeat")


@given(st.floats(-1e3, 1e3), st.floats(0.01, 100), st.integers(0, 100))
@settings(max_examples=10, deadline=None)
def test_scale_origin_and_order_of_rows_change_nothing(origin, scale, seed):
    rng = np.random.default_rng(seed)
    frame = grid(3, 2, 3).assign(y=rng.normal(size=18)).iloc[: 18 - seed % 4]
    moved = frame.assign(y=origin + scale * frame["y"]).sample(frac=1, random_state=seed)
    for test in (anova, robust_anova):
        before, after = (test(data, "y", ["a", "b"]).frame for data in (frame, moved))
        assert after["f"].dropna().tolist() == pytest.approx(before["f"].dropna().tolist(), rel=1e-5)


# ---- Where variances differ


def test_brown_forsythe_against_scipy():
    frame = warpbreaks()
    groups = [group["y"] for _, group in frame.groupby(["wool", "tension"])]
    expected = stats.levene(*groups, center="median")
    test = brown_forsythe(frame, "y", ["wool", "tension"])
    assert (test.f, test.p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))
    assert (test.df, test.df_error) == (5, 48)
    assert brown_forsythe(thesis_accuracy(), "y", THESIS).p < 1e-10


def test_welch_against_statsmodels_and_the_t_test():
    frame = warpbreaks().iloc[:-4]
    expected = anova_oneway([g["y"] for _, g in frame.groupby(["wool", "tension"])], use_var="unequal")
    test = welch_anova(frame, "y", ["wool", "tension"])
    assert (test.f, test.df, test.df_error, test.p) == pytest.approx(
        (expected.statistic, *expected.df, expected.pvalue)
    )
    t = stats.ttest_ind(*[g["y"] for _, g in frame.groupby("wool")], equal_var=False)
    for result in (welch_anova(frame, "y", ["wool"]), robust_anova(frame, "y", ["wool"]).frame.iloc[0]):
        assert (result.f, result.df, result.df_error, result.p) == pytest.approx((t.statistic**2, 1, t.df, t.pvalue))


def test_the_robust_table_against_references():
    # One way with equal n it is Brown and Forsythe's F* with Mehrotra's (1997) degrees of freedom, as in statsmodels.
    frame = warpbreaks()
    expected = anova_oneway([g["y"] for _, g in frame.groupby("tension")], use_var="bf")
    row = robust_anova(frame, "y", ["tension"]).frame.iloc[0]
    assert row[["f", "df", "df_error", "p"]].tolist() == pytest.approx(
        [expected.statistic, expected.df_num, expected.df_denom, expected.pvalue], rel=1e-6
    )
    # A 2 x 2 table, written out: each effect is a Welch-Satterthwaite t test of a contrast of four means.
    frame = frame[frame["tension"] != "M"].iloc[:-3]
    cells = frame.groupby(["wool", "tension"], sort=False)["y"].agg(["mean", "var", "count"])
    error = cells["var"] / cells["count"]
    table = robust_anova(frame, "y", ["wool", "tension"]).frame
    for place, weights in enumerate([(1, 1, -1, -1), (1, -1, 1, -1), (1, -1, -1, 1)]):
        df = error.sum() ** 2 / (error**2 / (cells["count"] - 1)).sum()
        f = float((np.array(weights) * cells["mean"]).sum()) ** 2 / error.sum()
        assert table.loc[place, ["f", "df", "df_error"]].tolist() == pytest.approx([f, 1, df])


def test_the_robust_table_holds_where_the_classical_cries_wolf():
    rng = np.random.default_rng(0)
    frame = pd.concat([grid(4, 2, 3), grid(16, 2, 3).query("b == 2")])
    spread = np.where(frame["b"] == 2, 0.2, 2.0)
    classical = robust = 0
    for _ in range(100):
        data = frame.assign(y=rng.normal(size=len(frame)) * spread)
        classical += anova(data, "y", ["a", "b"]).frame["p"][1] < 0.05
        robust += robust_anova(data, "y", ["a", "b"]).frame["p"][1] < 0.05
    assert classical > 10
    assert robust <= 5 + 2.6 * math.sqrt(4.75)


# ---- The repeat as the unit


def test_repeated_measures_against_statsmodels_and_the_paired_t_test():
    rng = np.random.default_rng(4)
    frame = grid(6, 2, 3, 2)
    frame["y"] = rng.normal(size=len(frame)) + rng.normal(size=6)[frame["repeat"]] + 0.4 * frame["b"]
    expected = AnovaRM(frame, "y", "repeat", within=["a", "b", "c"]).fit().anova_table
    table = repeated_anova(frame, "y", ["a", "b", "c"], "repeat", interactions=3).frame
    order = ["a", "b", "c", "a:b", "a:c", "b:c", "a:b:c"]
    assert table["f"].tolist() == pytest.approx(expected.loc[order, "F Value"].tolist())
    uncorrected = table[["df", "df_error"]].div(table["epsilon"], axis=0)
    assert uncorrected.to_numpy().tolist() == pytest.approx(expected.loc[order, ["Num DF", "Den DF"]].to_numpy())
    means = frame.groupby(["repeat", "a"])["y"].mean().unstack()
    t = stats.ttest_rel(means[0], means[1])
    assert table.loc[0, ["f", "p", "epsilon"]].tolist() == pytest.approx([t.statistic**2, t.pvalue, 1])
    # Greenhouse and Geisser (1959) from the covariance of the three level means, double-centred.
    covariance = np.cov(frame.groupby(["repeat", "b"])["y"].mean().unstack().T)
    centred = covariance - covariance.mean(0) - covariance.mean(1)[:, None] + covariance.mean()
    assert table.loc[1, "epsilon"] == pytest.approx(np.trace(centred) ** 2 / (2 * (centred**2).sum()))


def test_units_that_lack_a_cell_are_left_out_with_a_note():
    frame = grid(4, 2, 3).assign(y=np.random.default_rng(5).normal(size=24))
    frame.loc[(frame["repeat"] == 2) & (frame["a"] == 1) & (frame["b"] == 0), "y"] = np.nan
    table = repeated_anova(frame, "y", ["a", "b"], "repeat")
    assert table.notes == (
        "1 of 24 rows left out: no value of y",
        "repeat (2) left out: not every cell has a value of y",
    )
    whole = repeated_anova(frame[frame["repeat"] != 2], "y", ["a", "b"], "repeat")
    assert table.frame["f"].tolist() == pytest.approx(whole.frame["f"].tolist())
    assert table.thesis_layout()["d.f."][0] == "1, 2"


def test_one_model_for_all_cells_fools_the_plain_table_alone():
    # Ten repeats; each classifier is trained anew per repeat and serves all ten cells. The classifiers do not differ.
    rng = np.random.default_rng(6)
    frame = grid(10, 2, 10)
    plain = by_repeat = 0
    for _ in range(100):
        quality = rng.normal(size=(10, 2))
        data = frame.assign(y=rng.normal(size=200) + quality[frame["repeat"], frame["a"]])
        plain += anova(data, "y", ["a", "b"]).frame["p"][0] < 0.05
        by_repeat += repeated_anova(data, "y", ["a", "b"], "repeat").frame["p"][0] < 0.05
    assert plain > 20
    assert by_repeat <= 5 + 2.6 * math.sqrt(4.75)


@pytest.mark.parametrize(
    ("p", "text"), [(0, "<.001"), (0.001, "<.01"), (0.01, "<.05"), (0.05, ".05"), (0.1, ".10"), (0.999, "1.00")]
)
def test_p_as_text(p, text):
    assert thesis_p(p) == text
