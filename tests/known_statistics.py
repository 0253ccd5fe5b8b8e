"""Truths of statistics for the self-test, by scipy, statsmodels and scikit-learn, or by trying everything."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np

from known_truth import HAND, by, truth
from roadworthy.selftest import inputs
from roadworthy.selftest.statistics import frame


def statistics() -> dict[str, Any]:
    return _intervals() | _resampled() | _estimates() | _paired() | _variance() | _compared()


def wilson(successes: float, n: float, alpha: float = 0.05) -> list[float]:
    from statsmodels.stats.proportion import proportion_confint

    lo, hi = proportion_confint(successes, n, alpha, method="wilson")
    return [float(lo), float(hi)]


def wilson_ends(flags: Any) -> list[float]:
    flags = np.asarray(flags)
    return [float(flags.mean()), *wilson(float(flags.sum()), len(flags))]


def _intervals() -> dict[str, Any]:
    from scipy.stats import beta

    of_wilson = by("statsmodels", "proportion_confint(method='wilson')")
    needed = next(n for n in range(101, 2000) if wilson(0.97 * n, n)[0] > 0.95)
    return {
        "wilson": truth(
            {"8 of 10": wilson(8, 10), "97 of 100 at 99 %": wilson(97, 100, 0.01), "10 of 10": wilson(10, 10)},
            of_wilson,
        ),
        "proportion_interval": truth(
            {"single images": wilson_ends(inputs.RIGHT_A), "two objects, all right": [2, wilson(2, 2)[0]]}, of_wilson
        ),
        "mean_interval": truth(
            {"14 of 20 objects": [0.7, beta.ppf(0.025, 14, 7), beta.ppf(0.975, 15, 6)]},
            "Clopper and Pearson's interval, " + by("scipy", "stats.beta"),
            1e-3,
        ),
        "further_groups": truth(
            {"97 of 100 against 95 %": needed - 100, "by the square root": 301},
            "by trying every number with " + of_wilson,
            0,
        ),
    }


def _half_width(groups: int, confidence: float, reach: float) -> float:
    from scipy.stats import norm, t

    tail = (1 + confidence) / 2
    return float(reach * math.sqrt(groups / (groups - 1)) * t.ppf(tail, groups - 1) / norm.ppf(tail))


def _resampled() -> dict[str, Any]:
    from scipy.optimize import brentq

    wide = _half_width(100, 0.95, 0.1 * 0.95)
    p = brentq(lambda p: _half_width(100, 1 - p, 0.1 * (1 - p)) - 0.09, 1e-6, 0.99, xtol=1e-12)
    formula = "its formula with the quantiles of " + by("scipy", "stats.t")
    law = {
        "groups drawn": [8.0, 8.0],
        "images of a group agree": True,
        "the mean weight is 1 within 4 standard errors": True,
    }
    return {
        "GroupBootstrap": truth(law, "the law of drawing groups with replacement"),
        "bootstrap_interval": truth({"even spread": [0.5 - wide, 0.5 + wide]}, formula),
        "paired_interval": truth({"difference": [0.1 - wide, 0.1 + wide]}, formula),
        "paired_p": truth({"p": p}, formula, 1e-6),
    }


def _estimates() -> dict[str, Any]:
    from sklearn import metrics as sk

    should, does = np.array(inputs.SHOULD_REJECT), np.array(inputs.REJECTED)
    label, answer = np.array(inputs.MONITORED_LABELS), np.array(inputs.MONITORED_ANSWERS)
    wrong = label != answer
    alone = sk.matthews_corrcoef(label, answer)
    cancelled = sk.matthews_corrcoef(label, np.where(does == 1, 3, answer))
    perfect = sk.matthews_corrcoef(label, np.where(wrong, 3, answer))
    wanted = np.where(wrong, 3, answer)
    accepted, done = (sk.matthews_corrcoef(wanted, one) for one in (answer, np.where(does == 1, 3, answer)))
    decisions = {
        "fpr": wilson_ends(does[should == 0]),
        "fnr": wilson_ends(1 - does[should == 1]),
        "precision": wilson_ends(should[does == 1]),
        "recall": wilson_ends(does[should == 1]),
        "f1_micro": wilson_ends(should == does),
        "mcc": sk.matthews_corrcoef(should, does),
        "f1_weighted": sk.f1_score(should, does, average="weighted"),
        "balanced_accuracy": sk.balanced_accuracy_score(should, does),
    }
    effects = {
        "safety_gain": wilson_ends(wrong & (does == 1)),
        "residual_hazard": wilson_ends(wrong & (does == 0)),
        "availability_cost": wilson_ends(~wrong & (does == 1)),
    }
    area = float(sum(Fraction(max(n - 30, 0), n) for n in range(1, 61)) / 60)
    both = by("scikit-learn", "metrics") + "; " + by("statsmodels", "proportion_confint")
    return {
        "decision_estimates": truth(decisions, both),
        "class_mcc_estimates": truth(
            {
                "class_mcc_alone": alone,
                "class_mcc": cancelled,
                "relative_change": (cancelled - alone) / alone,
                "relative_change_perfect": (perfect - alone) / alone,
            },
            by("scikit-learn", "matthews_corrcoef"),
        ),
        "stream_change_estimates": truth(
            {"stream_change": done / accepted - 1, "stream_change_perfect": 1 / accepted - 1},
            by("scikit-learn", "matthews_corrcoef"),
        ),
        "effect_estimates": truth(effects, by("statsmodels", "proportion_confint")),
        "aurc_estimate": truth({"value": area, "bounds contain it": True, "objects": 60}, HAND),
    }


def flips(total: int, sizes: list[int]) -> float:
    """The share of all sign patterns that reach the total, by going through them."""
    sums = [
        abs(sum(sign * size for sign, size in zip(signs, sizes, strict=True)))
        for signs in product((-1, 1), repeat=len(sizes))
    ]
    return float(np.mean([one >= abs(total) for one in sums]))


def _paired() -> dict[str, Any]:
    from scipy.stats import wilcoxon
    from statsmodels.stats.contingency_tables import mcnemar
    from statsmodels.stats.multitest import multipletests

    a, b = np.array(inputs.RIGHT_A), np.array(inputs.RIGHT_B)
    only_a, only_b = int((a > b).sum()), int((b > a).sum())
    p = float(mcnemar([[int((a & b).sum()), only_a], [only_b, int(((1 - a) & (1 - b)).sum())]], exact=True).pvalue)
    of_group = [int((a - b)[[group == name for group in inputs.GROUPS]].sum()) for name in sorted(set(inputs.GROUPS))]
    ranked = np.array(inputs.RANKED)
    return {
        "mcnemar": truth(
            {
                "single images": [only_a, only_b, (only_a - only_b) / 12, p],
                "by object": [8, flips(only_a - only_b, [size for size in of_group if size])],
            },
            by("statsmodels", "mcnemar") + "; all sign patterns one by one",
        ),
        "sign_flip_p": truth(
            {"sizes 1, 1, 2, 3, 5": flips(8, [1, 1, 2, 3, 5]), "nothing": 1.0}, "all sign patterns one by one"
        ),
        "holm": truth(
            {"adjusted": multipletests(inputs.P_VALUES, method="holm")[1]}, by("statsmodels", "multipletests")
        ),
        "p_text": truth({"texts": [".043", ".25", "1", "< .001"]}, "by hand"),
        "wilcoxon_p": truth(
            {"boxes, odin": float(wilcoxon(ranked[:, 0], ranked[:, 2], method="exact").pvalue)},
            by("scipy", "stats.wilcoxon"),
        ),
    }


def _variance() -> dict[str, Any]:
    from scipy import stats
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import AnovaRM, anova_lm
    from statsmodels.stats.oneway import anova_oneway

    data = frame().rename(columns={"shift": "disturbance"})
    table = anova_lm(ols("y ~ C(model) * C(disturbance)", data).fit(), typ=2)
    rows = {"model": "C(model)", "shift": "C(disturbance)", "model*shift": "C(model):C(disturbance)"}
    classical = {
        name: [float(table.loc[row, column]) for column in ("sum_sq", "df", "F", "PR(>F)")]
        for name, row in rows.items()
    }
    repeated = AnovaRM(data, "y", "repeat", within=["model", "disturbance"]).fit().anova_table
    rows = {"model": "model", "shift": "disturbance", "model*shift": "model:disturbance"}
    columns = ("Num DF", "Den DF", "F Value", "Pr > F")
    within = {name: [float(repeated.loc[row, column]) for column in columns] for name, row in rows.items()}
    a, b = (data[data["model"] == name]["y"].to_numpy() for name in "ab")
    welch = stats.ttest_ind(a, b, equal_var=False)
    levene = stats.levene(a, b, center="median")
    oneway = anova_oneway([a, b], use_var="unequal")
    return {
        "anova": truth(classical, by("statsmodels", "anova_lm(typ=2)")),
        "repeated_anova": truth(within, by("statsmodels", "AnovaRM")),
        "robust_anova": truth(
            {"model": [1.0, float(welch.df), float(welch.statistic) ** 2, float(welch.pvalue)]},
            "Welch's t test, " + by("scipy", "stats.ttest_ind"),
        ),
        "welch_anova": truth(
            {"model": [float(oneway.statistic), 1, float(oneway.df_denom), float(oneway.pvalue)]},
            by("statsmodels", "anova_oneway"),
        ),
        "brown_forsythe": truth(
            {"model": [float(levene.statistic), 1, 14, float(levene.pvalue)]},
            by("scipy", "stats.levene(center='median')"),
        ),
        "thesis_p": truth({"texts": ["<.001", "<.01", "<.05", ".75", "1.00"]}, "by hand"),
    }


def _compared() -> dict[str, Any]:
    from scipy import stats
    from statsmodels.stats.multitest import multipletests

    data = frame()
    cell = data["model"] + data["shift"]
    samples = [data["y"][cell == name].to_numpy() for name in ("ax", "bx", "by")]
    pairs = {"ax, bx": (0, 1), "ax, by": (0, 2), "bx, by": (1, 2)}

    def compared(result: Any) -> dict[str, Any]:
        return {
            name: [samples[i].mean() - samples[j].mean(), float(result.pvalue[i, j])] for name, (i, j) in pairs.items()
        }

    by_repeat = data.groupby(["repeat", "model"])["y"].mean().unstack()
    difference = float((by_repeat["a"] - by_repeat["b"]).mean())
    paired, apart = (
        stats.ttest_rel(by_repeat["a"], by_repeat["b"]),
        stats.ttest_ind(*by_repeat.T.to_numpy(), equal_var=False),
    )
    units = {
        name: [difference, float(test.df), float(test.pvalue)] for name, test in (("paired", paired), ("apart", apart))
    }
    ranked = np.array(inputs.RANKED)
    friedman = stats.friedmanchisquare(*ranked.T)
    ranks = np.array([stats.rankdata(-row) for row in ranked]).mean(axis=0)
    q = stats.studentized_range.ppf(0.95, 3, np.inf)
    signed = [stats.wilcoxon(ranked[:, i], ranked[:, j], method="exact").pvalue for i, j in combinations(range(3), 2)]
    critical = {
        "ranks": ranks,
        "Friedman": [float(friedman.statistic), float(friedman.pvalue)],
        "distance": float(q / math.sqrt(2) * math.sqrt(3 * 4 / (6 * 6))),
        "Wilcoxon, Holm": multipletests(signed, method="holm")[1],
    }
    of_range = by("scipy", "stats.studentized_range")
    return {
        "posthoc": truth(compared(stats.tukey_hsd(*samples)), by("scipy", "stats.tukey_hsd"), 1e-6),
        "games_howell": truth(
            compared(stats.tukey_hsd(*samples, equal_var=False)), by("scipy", "stats.tukey_hsd(equal_var=False)"), 1e-6
        ),
        "repeated_posthoc": truth(units, by("scipy", "stats: ttest_rel, ttest_ind(equal_var=False)")),
        "critical_difference": truth(
            critical, by("scipy", "stats: friedmanchisquare, studentized_range, wilcoxon"), 1e-6
        ),
        "comparison_half_widths": truth(
            {"three means": [(3 + 4 - 5) / 2, (3 + 5 - 4) / 2, (4 + 5 - 3) / 2]}, "by hand"
        ),
        "grouping_letters": truth({"three levels": ["a", "ab", "b"]}, "by hand"),
        "range_tail": truth(
            {"3 means, 10 degrees": [float(stats.studentized_range.sf(value, 3, 10)) for value in (3.0, 4.0)]},
            of_range,
            1e-6,
        ),
        "range_quantile": truth(
            {"3 means": [float(stats.studentized_range.ppf(0.95, 3, df)) for df in (10, 20)]}, of_range, 1e-6
        ),
    }
