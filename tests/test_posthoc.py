"""Post hoc comparison: published values, the findings of the thesis, letters as a law, and how often it cries wolf."""

from __future__ import annotations

import math
import time

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from hypothesis import example, given, settings
from scipy import stats

from designs import THESIS, grid, thesis_accuracy, warpbreaks
from roadworthy.statistics import (
    comparison_half_widths,
    games_howell,
    grouping_letters,
    holm,
    posthoc,
    range_quantile,
    range_tail,
    repeated_posthoc,
)
from roadworthy.statistics.posthoc import WELCH


def groups_of(*samples: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {"group": np.repeat(range(len(samples)), [len(s) for s in samples]), "y": np.concatenate(samples)}
    )


def rows(result) -> list[list[float]]:
    return result.pairs[["difference", "lo", "hi", "p"]].to_numpy().tolist()


# ---- The studentized range


@pytest.mark.parametrize("df", [1, 2.5, 12, 1936])
def test_the_range_of_two_means_is_students_t(df):
    q = np.array([0.0, 0.3, 2, 5, 9, 14])
    assert range_tail(q, 2, df) == pytest.approx(2 * stats.t.sf(q / math.sqrt(2), df), rel=1e-7, abs=1e-15)
    assert range_quantile(0.99, 2, df) == pytest.approx(math.sqrt(2) * stats.t.ppf(0.995, df), rel=1e-8)


@pytest.mark.parametrize(("means", "df"), [(3, 2), (10, 18), (10, 1936), (100, 1.5), (100, 1900)])
def test_the_range_against_scipy(means, df):
    for q in (1.0, 3.5, 6.0):
        assert range_tail(q, means, df) == pytest.approx(stats.studentized_range.sf(q, means, df), rel=1e-6, abs=1e-10)


@pytest.mark.parametrize(
    ("means", "df", "five_percent", "one_percent"),
    [(3, 10, 3.88, 5.27), (5, 20, 4.23, 5.29), (10, 60, 4.65, 5.45), (20, 120, 5.13, 5.83)],
)
def test_quantiles_of_the_printed_tables(means, df, five_percent, one_percent):
    # The table of the studentized range printed in statistics textbooks, two decimals.
    quantiles = [float(range_quantile(confidence, means, df)) for confidence in (0.95, 0.99)]
    assert quantiles == pytest.approx([five_percent, one_percent], abs=0.005)


def test_many_degrees_of_freedom_are_interpolated_closely():
    df = np.linspace(2, 38, 200)
    some = [0, 1, 17, 100, 199]
    assert range_quantile(0.95, 30, df)[some] == pytest.approx(range_quantile(0.95, 30, df[some]), rel=1e-6)
    assert range_tail(range_quantile(0.9, 7, df[:50]), 7, df[:50]) == pytest.approx(np.full(50, 0.1), rel=1e-8)


@pytest.mark.parametrize("arguments", [([1.0], 1, 5), ([-1.0], 3, 5), ([1.0], 3, 0), ([math.nan], 3, 5)])
def test_the_range_refuses_nonsense(arguments):
    with pytest.raises(ValueError, match="studentized range needs"):
        range_tail(*arguments)
    with pytest.raises(ValueError, match="confidence"):
        range_quantile(1.0, 3, 5)


# ---- Published comparisons


def test_warpbreaks_as_r_prints_it():
    # R: TukeyHSD(aov(breaks ~ tension, warpbreaks)) and, the example of its help page, with breaks ~ wool + tension.
    one = posthoc(warpbreaks(), "y", ["tension"], ["tension"])
    expected = [
        [10.000000, 0.4401756, 19.55982, 0.0384598],
        [14.722222, 5.1623978, 24.28205, 0.0014315],
        [4.722222, -4.8376022, 14.28205, 0.4630831],
    ]
    for row, published in zip(rows(one), expected, strict=True):
        assert row == pytest.approx(published, rel=1e-6, abs=5e-8)
    both = posthoc(warpbreaks(), "y", ["wool", "tension"], ["tension"], interactions=1)
    assert both.pairs["p"].tolist() == pytest.approx([0.0336262, 0.0011218, 0.4474210], abs=5e-8)
    assert both.pairs["lo"].tolist() == pytest.approx([0.6465793, 5.3688015, -4.6311985], abs=5e-7)
    assert both.means["letters"].tolist() == ["a", "b", "b"]


def test_plant_growth_as_r_prints_it():
    # R: TukeyHSD(aov(weight ~ group, PlantGrowth)), which takes differences the other way round.
    control = [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14]
    first = [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69]
    second = [6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26]
    result = posthoc(groups_of(second, first, control), "y", ["group"], ["group"])
    expected = [
        [0.865, 0.1737839, 1.5562161, 0.0120064],
        [0.494, -0.1972161, 1.1852161, 0.1979960],
        [-0.371, -1.0622161, 0.3202161, 0.3908711],
    ]
    for row, published in zip(rows(result), expected, strict=True):
        assert row == pytest.approx(published, abs=5e-8)
    assert result.means["letters"].tolist() == ["a", "b", "ab"]


def test_tukey_kramer_with_unequal_n_as_sas_prints_it():
    # Values of SAS PROC GLM for these data, as kept in the tests of scipy.stats.tukey_hsd.
    samples = (
        [24.5, 23.5, 26.28, 26.4, 27.1, 29.9, 30.1, 30.1],
        [28.4, 34.2, 29.5, 32.2, 30.1],
        [26.1, 28.3, 24.3, 26.2, 27.8],
    )
    result = posthoc(groups_of(*samples), "y", ["group"], ["group"])
    expected = [
        [-3.645, -7.022070736, -0.2679292645],
        [0.695, -2.682070736, 4.072070736],
        [4.34, 0.5934764007, 8.086523599],
    ]
    for row, published in zip(rows(result), expected, strict=True):
        assert row[:3] == pytest.approx(published, abs=5e-7)
    assert result.means["n"].tolist() == [8, 5, 5]


def test_games_howell_as_spss_prints_it():
    # Values of SPSS for these data, as kept in the tests of scipy.stats.tukey_hsd.
    samples = [30.0, 23, 51], [-81.0, 71, -27, 63], [42.0, 11, 29, 19, 50], [23.0, 22, 20, 18, 9]
    result = games_howell(groups_of(*samples), "y", ["group"], ["group"])
    expected = [
        [28.16666667, -141.985416377670, 198.318749711003, 0.8727542747886180],
        [4.466666667, -37.2830676783904, 46.2164010117237, 0.9752628408671710],
        [16.26666667, -35.0933112382470, 67.6266445715803, 0.4262506151302880],
        [-23.70000000, -195.315617201249, 147.915617201249, 0.9148950609000590],
        [-11.90000000, -188.105478728519, 164.305478728519, 0.9861432250093960],
        [11.80000000, -16.2894857524254, 39.8894857524254, 0.4755344436335670],
    ]
    for row, published in zip(rows(result), expected, strict=True):
        assert row == pytest.approx(published, rel=1e-6)


def test_games_howell_of_marginal_means_uses_the_spread_within_cells():
    frame = warpbreaks()
    result = games_howell(frame, "y", ["wool", "tension"], ["wool"])
    cells = frame.groupby(["wool", "tension"])["y"].agg(["mean", "var", "count"])
    error = cells["var"] / cells["count"] / 9
    df = error.sum() ** 2 / (error**2 / (cells["count"] - 1)).sum()
    difference = cells["mean"]["A"].mean() - cells["mean"]["B"].mean()
    row = result.pairs.iloc[0]
    assert row["difference"] == pytest.approx(difference)
    assert row["p"] == pytest.approx(2 * stats.t.sf(difference / math.sqrt(error.sum()), df), rel=1e-6)


# ---- The thesis


def test_the_findings_of_the_thesis_for_accuracy():
    frame = thesis_accuracy()
    figure_10 = posthoc(frame, "y", THESIS, ["transformation"]).means.sort_values("mean")
    assert figure_10["letters"].nunique() == 6
    assert figure_10["transformation"][:4].tolist() == ["Perspective", "Reflection", "Fog", "Crop"]
    assert figure_10["mean"].iloc[4] > 0.95
    levels = posthoc(frame, "y", THESIS, ["level"]).pairs
    assert (levels["p"] < 0.001).all()
    by_level = posthoc(frame, "y", THESIS, ["classifier", "level"]).pairs
    by_level = by_level[by_level["level_a"] == by_level["level_b"]].set_index("level_a")
    assert by_level["significant"].to_dict() == {1: False, 2: False, 3: True, 4: True, 5: True}
    assert (by_level["p"][3:] < 0.001).all()
    cells = posthoc(frame, "y", THESIS, ["transformation", "classifier"]).pairs
    cells = cells[cells["transformation_a"] == cells["transformation_b"]].set_index("transformation_a")
    assert set(cells.index[cells["significant"]]) == {"Noise", "Grey", "Rain", "Fog", "Reflection"}
    assert 0.001 < cells["p"]["Grey"] < 0.05
    assert (cells["p"][["Noise", "Rain", "Fog", "Reflection"]] < 0.001).all()


# ---- Marginal means and comparison intervals


def test_marginal_means_of_an_unbalanced_design_average_the_other_factors_equally():
    frame = warpbreaks().drop(index=[0, 1, 2, 3, 30, 31])
    result = posthoc(frame, "y", ["wool", "tension"], ["tension"])
    cells = frame.groupby(["tension", "wool"], sort=False)["y"].mean()
    assert result.means["mean"].tolist() == pytest.approx([cells[t].mean() for t in "LMH"])
    additive = smf.ols("y ~ C(wool) + C(tension)", frame).fit()
    pairs = posthoc(frame, "y", ["wool", "tension"], ["tension"], interactions=1).pairs
    assert pairs["difference"][0] == pytest.approx(
        additive.params["C(tension)[T.L]"] - additive.params["C(tension)[T.M]"]
    )
    t = additive.t_test("C(tension)[T.L] - C(tension)[T.M] = 0")
    q = math.sqrt(2) * abs(float(t.tvalue.item()))
    assert pairs["p"][0] == pytest.approx(stats.studentized_range.sf(q, 3, additive.df_resid), rel=1e-6)
    assert "block" not in result.means.columns


def test_blocks_are_taken_out_of_the_error():
    rng = np.random.default_rng(0)
    frame = grid(8, 2, 3)
    frame["y"] = rng.normal(size=len(frame)) + 5 * frame["repeat"]
    plain, blocked = (posthoc(frame, "y", ["a", "b"], ["b"], block=block) for block in (None, "repeat"))
    assert blocked.means["mean"].tolist() == pytest.approx(plain.means["mean"].tolist())
    width = [result.pairs["hi"][0] - result.pairs["lo"][0] for result in (plain, blocked)]
    assert width[0] > 5 * width[1]


@given(st.integers(0, 500), st.integers(2, 9))
@settings(max_examples=15, deadline=None)
def test_equal_n_intervals_overlap_exactly_where_nothing_is_significant(seed, size):
    rng = np.random.default_rng(seed)
    result = posthoc(groups_of(*rng.normal(rng.normal(size=(size, 1)), 1, (size, 5))), "y", ["group"], ["group"])
    lo, hi, letters = (result.means[name].to_numpy() for name in ("lo", "hi", "letters"))
    first, second = np.triu_indices(size, 1)
    apart = (lo[first] > hi[second]) | (lo[second] > hi[first])
    assert (apart == result.pairs["significant"]).all()
    assert [not set(letters[i]) & set(letters[j]) for i, j in zip(first, second, strict=True)] == apart.tolist()
    assert ((result.pairs["p"] < 0.05) == result.pairs["significant"]).all()
    assert result.notes == ()


def test_unequal_n_intervals_are_the_least_squares_fit_and_say_where_they_mislead():
    rng = np.random.default_rng(1)
    critical = rng.uniform(1, 2, (5, 5))
    critical = critical + critical.T
    first, second = np.triu_indices(5, 1)
    design = np.zeros((len(first), 5))
    design[np.arange(len(first)), first] = design[np.arange(len(first)), second] = 1
    expected = np.linalg.lstsq(design, critical[first, second], rcond=None)[0]
    assert comparison_half_widths(critical) == pytest.approx(expected)
    assert comparison_half_widths([[0, 3], [3, 0]]) == pytest.approx([1.5, 1.5])
    with pytest.raises(ValueError, match="square of two or more"):
        comparison_half_widths([[0.0]])
    misled = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        samples = [rng.normal(0.6 * i, 1, n) for i, n in enumerate((3, 4, 40, 3, 40))]
        result = posthoc(groups_of(*samples), "y", ["group"], ["group"])
        lo, hi = (result.means[name].to_numpy() for name in ("lo", "hi"))
        apart = (lo[first] > hi[second]) | (lo[second] > hi[first])
        wrong = int((apart != result.pairs["significant"]).sum())
        misled += wrong
        assert any(f"for {wrong} of 10 pairs" in note for note in result.notes) == bool(wrong)
    assert misled


# ---- By repeat


def by_repeat(frame, response, factors, by):
    return repeated_posthoc(frame, response, factors, by, "repeat")


def by_repeat_of(frame: pd.DataFrame, *by: str, **options):
    return repeated_posthoc(frame, "y", [name for name in frame.columns if name in "abc"], by, "repeat", **options)


@pytest.mark.parametrize("repeats", [2, 3, 10])
def test_each_pair_has_the_t_test_of_its_own_differences(repeats):
    rng = np.random.default_rng(0)
    frame = grid(repeats, 3, 4)
    frame["y"] = rng.normal(size=len(frame)) * (1 + 5 * frame["a"]) + rng.normal(size=repeats)[frame["repeat"]]
    result = by_repeat_of(frame, "a")
    values = frame.groupby(["repeat", "a"])["y"].mean().unstack().to_numpy()
    tests = [stats.ttest_rel(values[:, i], values[:, j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert result.pairs["p"].tolist() == pytest.approx(holm([test.pvalue for test in tests]).tolist())
    joint = [test.confidence_interval(1 - 0.05 / 3) for test in tests]
    assert result.pairs[["lo", "hi"]].to_numpy() == pytest.approx(np.array([[own.low, own.high] for own in joint]))
    assert result.pairs["df"].tolist() == [repeats - 1] * 3
    assert set(result.pairs["test"]) == {"paired t"}
    alone = [stats.ttest_1samp(column, 0).confidence_interval(0.95) for column in values.T]
    assert result.means[["lo", "hi"]].to_numpy() == pytest.approx(np.array([[own.low, own.high] for own in alone]))
    assert result.means["n"].tolist() == [repeats] * 3


def test_networks_that_share_nothing_are_compared_by_welch():
    rng = np.random.default_rng(1)
    frame = grid(4, 3, 2)
    frame["y"] = rng.normal(size=len(frame)) * (1 + frame["a"])
    frame.loc[(frame["a"] == 2) & (frame["repeat"] == 3), "y"] = np.nan
    values = frame.groupby(["repeat", "a"])["y"].mean().unstack().to_numpy()

    def relation(one, other):
        return WELCH if 2 in (*one, *other) else "paired t"

    result = by_repeat_of(frame, "a", relation=relation)
    welch = [stats.ttest_ind(values[:, i], values[:3, 2], equal_var=False) for i in (0, 1)]
    paired = stats.ttest_rel(values[:, 0], values[:, 1])
    assert result.pairs["p"].tolist() == pytest.approx(holm([paired.pvalue, *(t.pvalue for t in welch)]).tolist())
    assert result.pairs["df"].tolist() == pytest.approx([3, *(test.df for test in welch)])
    assert result.pairs["test"].tolist() == ["paired t", "Welch", "Welch"]
    with_both = stats.ttest_rel(values[:3, 0], values[:3, 2]).statistic
    of_pair = by_repeat_of(frame[frame["a"] != 1], "a").pairs
    assert of_pair["p"][0] == pytest.approx(2 * stats.t.sf(abs(with_both), 2)), "repeats in which both have a value"


def test_pairs_of_models_are_corrected_by_themselves():
    rng = np.random.default_rng(2)
    frame = grid(5, 2, 6)
    frame["y"] = rng.normal(size=len(frame)) + 3 * frame["a"]
    pairs = by_repeat_of(frame, "a", "b", own_family="a").pairs
    own = (pairs["a_a"] != pairs["a_b"]) & (pairs["b_a"] == pairs["b_b"])
    values = frame.pivot_table(index="repeat", columns=["a", "b"], values="y")
    expected = [stats.ttest_rel(values[0, shift], values[1, shift]).pvalue for shift in range(6)]
    assert own.sum() == 6
    assert pairs["p"][own].tolist() == pytest.approx(holm(expected).tolist())
    together = by_repeat_of(frame, "a", "b").pairs["p"][own]
    assert (pairs["p"][own] <= together).all()
    assert (pairs["p"][own] < together).any()


def test_letters_follow_the_corrected_p_and_not_the_wider_joint_intervals():
    """Holm asks less of the second difference than the first; the joint intervals ask of each what the first must."""
    noise = np.array([-1.0, 0.0, 1.0, -0.5, 0.5])
    values = {0: 0 * noise, 1: 4 + 0.1 * noise, 2: 1.05 + noise[::-1]}
    frame = pd.DataFrame(
        [(a, r, y) for a, own in values.items() for r, y in enumerate(own)], columns=["a", "repeat", "y"]
    )
    result = by_repeat_of(frame, "a")
    pairs = result.pairs.set_index(["a", "b"])
    assert pairs["significant"].all()
    assert (pairs["p"] < 0.05).all()
    assert pairs.loc[("0", "2"), "lo"] < 0 < pairs.loc[("0", "2"), "hi"]
    assert result.means["letters"].tolist() == ["c", "a", "b"]
    assert "1 of 3 pairs differ by Holm's method though their joint interval holds 0" in result.notes


def test_few_repeats_say_what_they_can_find():
    rng = np.random.default_rng(3)
    frame = grid(3, 10).assign(y=rng.normal(size=30))
    (note,) = by_repeat_of(frame, "a").notes
    first, last = (stats.t.isf(0.025 / pairs, 2) for pairs in (45, 1))
    assert note == (
        f"pairs: 45, with 2 degrees of freedom each: the largest difference is found from {first:.1f} times its "
        f"standard error on, the smallest from {last:.1f} times; a test that does not take differences for normal "
        "has no p below .25"
    )
    (note,) = by_repeat_of(frame[frame["a"] < 2], "a", relation=lambda _one, _other: WELCH).notes
    assert note.startswith("pairs: 1, with ")
    assert note.endswith("; a test that does not take values for normal has no p below .1"), (
        "2 of the 20 ways to divide"
    )
    (note,) = by_repeat_of(frame, "a", relation=lambda *pair: WELCH if (0,) in pair else "paired t").notes
    assert note.endswith("; a test that does not take values for normal has no p below .1"), "the least of all pairs"
    fewer = frame[(frame["a"] > 0) | (frame["repeat"] > 0)]
    (note, least) = by_repeat_of(fewer, "a", relation=lambda *pair: WELCH if (0,) in pair else "paired t").notes
    assert least.endswith(" has no p below .1"), "two networks against three: 1 of 10 ways to divide"


def test_what_has_no_test_by_repeat_says_why():
    rng = np.random.default_rng(4)
    frame = grid(3, 4).assign(y=rng.normal(size=12))
    frame.loc[frame["a"] == 1, "y"] = frame.loc[frame["a"] == 0, "y"].to_numpy() + 0.1
    pairs = by_repeat_of(frame, "a", relation=lambda _one, other: "no training of it" if other == (3,) else "paired t")
    reasons = dict(zip(pairs.pairs["a"] + pairs.pairs["b"], pairs.pairs["reason"], strict=True))
    assert reasons["01"] == "the difference does not vary between repeats"
    assert [reasons[name] for name in ("03", "13", "23")] == ["no training of it"] * 3
    assert reasons["02"] == ""
    assert (pairs.pairs["p"].isna() == (pairs.pairs["reason"] != "")).all()
    assert not pairs.pairs["significant"][pairs.pairs["reason"] != ""].any()
    frame.loc[(frame["a"] == 2) & (frame["repeat"] > 0), "y"] = np.nan
    assert by_repeat_of(frame, "a").notes[1] == "a (2) left out: fewer than two repeats have all their cells"
    halves = grid(4, 2).assign(y=rng.normal(size=8))
    halves.loc[(halves["a"] == 0) == (halves["repeat"] < 2), "y"] = np.nan
    assert by_repeat_of(halves, "a").pairs["reason"].tolist() == ["fewer than two repeats have both"]
    with pytest.raises(ValueError, match="fewer than two levels of a"):
        by_repeat_of(frame[frame["a"].isin([2, 3])], "a")
    with pytest.raises(ValueError, match="confidence"):
        by_repeat_of(frame, "a", confidence=95)


# ---- Letters


@st.composite
def significance(draw):
    size = draw(st.integers(2, 9))
    upper = np.triu(np.array(draw(st.lists(st.booleans(), min_size=size**2, max_size=size**2))).reshape(size, size), 1)
    return upper | upper.T, draw(st.permutations(range(size)))


@given(significance())
@example((np.zeros((4, 4), dtype=bool), [0, 1, 2, 3]))
@example((~np.eye(60, dtype=bool), list(range(60))))
@settings(max_examples=80, deadline=None)
def test_levels_share_a_letter_exactly_where_they_do_not_differ(case):
    differ, order = case
    letters = grouping_letters(differ, order)
    for i in range(len(differ)):
        for j in range(i):
            assert bool(set(letters[i]) & set(letters[j])) == (not differ[i, j])
    assert all(letters)
    assert letters[order[0]].startswith("a")


def test_no_letter_is_inside_another():
    differ = np.zeros((4, 4), dtype=bool)
    for i, j in ((0, 2), (0, 3), (1, 3)):
        differ[i, j] = differ[j, i] = True
    assert grouping_letters(differ) == ["a", "ab", "bc", "c"]
    with pytest.raises(ValueError, match="symmetric"):
        grouping_letters(np.triu(np.ones((3, 3)), 1))


# ---- Limits


@pytest.mark.parametrize("compare", [posthoc, games_howell, by_repeat])
def test_a_hundred_cells_in_under_three_seconds(compare):
    frame = grid(20, 2, 10, 5)
    rng = np.random.default_rng(0)
    frame["y"] = rng.normal(size=len(frame)) * (1 + frame["c"]) + frame["b"]
    arguments = {"interactions": 3} if compare is posthoc else {}
    start = time.process_time()
    result = compare(frame, "y", ["a", "b", "c"], ["a", "b", "c"], **arguments)
    assert time.process_time() - start < 3
    assert len(result.pairs) == 4950


def test_what_cannot_be_compared_is_left_out_with_a_note():
    frame = grid(3, 2, 4).assign(y=np.random.default_rng(2).normal(size=24))
    holed = frame[(frame["a"] != 1) | (frame["b"] != 2)]
    result = posthoc(holed, "y", ["a", "b"], ["b"])
    assert result.means["b"].tolist() == [0, 1, 3]
    assert result.notes == ("b (2) left out: no value in some of their cells",)
    assert posthoc(holed, "y", ["a", "b"], ["b"], interactions=1).means["b"].tolist() == [0, 1, 2, 3]
    flat = frame.assign(y=frame["y"].where(frame["b"] != 1, 0.5))
    robust = games_howell(flat.drop(index=[0, 8]), "y", ["a", "b"], ["b"])
    assert robust.means["b"].tolist() == [1, 2, 3][1:]
    assert robust.notes == (
        "b (0) left out: fewer than two values in some of their cells",
        "b (1) left out: their values do not vary",
    )


def test_what_is_no_comparison_is_an_error():
    frame = grid(3, 2, 3).assign(y=np.arange(18.0))
    for by in ([], ["x"], ["a", "a"]):
        for compare in (posthoc, games_howell):
            with pytest.raises(ValueError, match="compare by one or more of the factors"):
                compare(frame, "y", ["a", "b"], by)
    with pytest.raises(ValueError, match="no variation within cells"):
        posthoc(frame.assign(y=frame["a"]), "y", ["a", "b"], ["a"])
    with pytest.raises(ValueError, match="fewer than two levels of a"):
        games_howell(frame.assign(y=frame["a"]), "y", ["a", "b"], ["a"])
    with pytest.raises(ValueError, match="confidence"):
        posthoc(frame, "y", ["a", "b"], ["a"], confidence=95)


def test_the_family_wise_error_holds():
    rng = np.random.default_rng(3)
    runs, tukey, robust = 120, 0, 0
    for _ in range(runs):
        tukey += posthoc(groups_of(*rng.normal(size=(6, 8))), "y", ["group"], ["group"]).pairs["significant"].any()
        spread = [rng.normal(0, s, n) for s, n in ((0.1, 20), (1, 6), (3, 8))]
        robust += games_howell(groups_of(*spread), "y", ["group"], ["group"]).pairs["significant"].any()
    allowed = 0.05 * runs + 2.6 * math.sqrt(0.05 * 0.95 * runs)
    assert tukey <= allowed
    assert robust <= allowed


def test_a_difference_against_its_means_and_pairs_without_a_test_are_said():
    """A level whose value is missing in the repeats where the other one is high: the pair is of the repeats of both."""
    values = {"a": [0.50, 0.52, 0.51, np.nan, np.nan], "b": [0.49, 0.50, 0.495, 0.9, 0.92]}
    frame = pd.DataFrame([(m, r, y) for m, own in values.items() for r, y in enumerate(own)], columns=["m", "run", "y"])
    compared = repeated_posthoc(frame, "y", ["m"], ["m"], "run")
    assert compared.pairs["difference"].item() > 0
    assert compared.pairs["significant"].item()
    assert compared.means["mean"].is_monotonic_increasing
    assert compared.means["letters"].tolist() == ["a", "a"]
    assert "the other way round than their means" in " ".join(compared.notes)
    steady = pd.DataFrame([(m, r, y) for m, y in (("a", 0.9), ("c", 0.7)) for r in range(3)], columns=["m", "run", "y"])
    untested = repeated_posthoc(steady, "y", ["m"], ["m"], "run")
    assert untested.means["letters"].tolist() == ["a", "a"]
    assert untested.notes == ("1 of 1 pairs have no test, and share a letter for want of one",)
