"""Known answers of statistics: every function of `roadworthy.statistics`, and the group bootstrap."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from roadworthy.selftest import inputs
from roadworthy.selftest.items import Item, Values
from roadworthy.statistics.posthoc import WELCH

KIND = "statistics"
OBJECTS = 60
"""Objects of the estimates that are bounded by resampling, which needs 50."""


def items() -> Iterator[Item]:
    """All items of this kind, by the name of the function."""
    measures = {**_INTERVALS, **_RESAMPLED, **_DECISIONS, **_PAIRED, **_VARIANCE, **_COMPARED}
    for name, measure in measures.items():
        yield Item(KIND, name, f"roadworthy.statistics:{name}", measure)


def names() -> list[tuple[str, bool]]:
    """Every statistic that is exported; types of results are not statistics."""
    from roadworthy import statistics

    exported = {name: getattr(statistics, name) for name in statistics.__all__}
    return [(name, True) for name, one in exported.items() if inspect.isfunction(one) or name == "GroupBootstrap"]


def frame() -> Any:
    """The fixed design of two factors."""
    import pandas as pd

    return pd.DataFrame(
        {
            "model": inputs.FACTOR_MODEL,
            "shift": inputs.FACTOR_SHIFT,
            "repeat": inputs.FACTOR_REPEAT,
            "y": inputs.RESPONSE,
        }
    )


def _ends(estimate: Any) -> list[float]:
    return [estimate.value, estimate.lo, estimate.hi]


def _wilson(wilson: Any) -> Values:
    return {"8 of 10": wilson(8, 10), "97 of 100 at 99 %": wilson(97, 100, 0.99), "10 of 10": wilson(10, 10)}


def _proportion(interval: Any) -> Values:
    single = interval(inputs.RIGHT_A, range(len(inputs.RIGHT_A)))
    grouped = interval([1] * 12, ["a", "b"] * 6)
    return {"single images": _ends(single), "two objects, all right": [grouped.groups, grouped.lo]}


def _mean(interval: Any) -> Values:
    """Groups of equal size that are wholly right or wrong: Clopper and Pearson's interval of the groups."""
    values, groups = np.repeat([1] * 14 + [0] * 6, 3), np.repeat(np.arange(20), 3)
    return {"14 of 20 objects": _ends(interval(values, groups, 0, 1))}


def _further(further_groups: Any) -> Values:
    from roadworthy.statistics import wilson

    return {
        "97 of 100 against 95 %": further_groups(0.97, 0.95, 100, *wilson(97, 100), proportion=True),
        "by the square root": further_groups(0.25, 0.5, 100, -0.25, 0.75, proportion=False),
    }


def _bootstrap_class(bootstrap: Any) -> Values:
    """Every resample draws as many groups as there are; images of a group have one weight; the mean weight is 1."""
    drawn = bootstrap(inputs.GROUPS, resamples=4000, seed=1)
    weights = np.concatenate(list(drawn.chunks()))
    first = [inputs.GROUPS.index(group) for group in sorted(set(inputs.GROUPS))]
    by_group = weights[:, first]
    agree = all(
        np.array_equal(weights[:, row], by_group[:, sorted(set(inputs.GROUPS)).index(group)])
        for row, group in enumerate(inputs.GROUPS)
    )
    error = np.abs(by_group.mean(axis=0) - 1).max() / np.sqrt((1 - 1 / len(first)) / 4000)
    return {
        "groups drawn": [by_group.sum(axis=1).min(), by_group.sum(axis=1).max()],
        "images of a group agree": bool(agree),
        "the mean weight is 1 within 4 standard errors": bool(error < 4),
    }


def _bootstrap_interval(interval: Any) -> Values:
    return {"even spread": interval(0.5, np.linspace(0.4, 0.6, 1001), groups_count=100)[:2]}


def _paired_interval(interval: Any) -> Values:
    a = np.linspace(0.4, 0.6, 1001)
    return {"difference": interval(0.5, 0.4, a, np.full(1001, 0.4), groups_count=100)[:2]}


def _paired_p(paired_p: Any) -> Values:
    a = np.linspace(0.4, 0.6, 1001)
    return {"p": paired_p(0.5, 0.41, a, np.full(1001, 0.41), groups_count=100)[0]}


def _decisions(decision_estimates: Any) -> Values:
    estimates = decision_estimates(inputs.SHOULD_REJECT, inputs.REJECTED, range(14), resamples=10)
    rates = {name: _ends(estimates[name]) for name in ("fpr", "fnr", "precision", "recall", "f1_micro")}
    return rates | {name: estimates[name].value for name in ("mcc", "f1_weighted", "balanced_accuracy")}


def _class_mcc(class_mcc_estimates: Any) -> Values:
    given = inputs.MONITORED_LABELS, inputs.MONITORED_ANSWERS, np.array(inputs.REJECTED, bool)
    return {
        name: estimate.value
        for name, estimate in class_mcc_estimates(*given, range(14), classes=3, resamples=10).items()
    }


def _stream_change(stream_change_estimates: Any) -> Values:
    wrong = np.array(inputs.MONITORED_LABELS) != np.array(inputs.MONITORED_ANSWERS)
    given = inputs.MONITORED_ANSWERS, wrong, np.array(inputs.REJECTED, bool)
    return {name: one.value for name, one in stream_change_estimates(*given, range(14), resamples=10).items()}


def _effects(effect_estimates: Any) -> Values:
    wrong = np.array(inputs.MONITORED_LABELS) != np.array(inputs.MONITORED_ANSWERS)
    return {name: _ends(one) for name, one in effect_estimates(wrong, inputs.REJECTED, range(14)).items()}


def _aurc(aurc_estimate: Any) -> Values:
    """Without a mistake among the best 30, then all wrong: bounds contain the value."""
    wrong = [False] * 30 + [True] * 30
    area = aurc_estimate(np.arange(OBJECTS, 0, -1), wrong, range(OBJECTS), resamples=200)
    return {"value": area.value, "bounds contain it": bool(area.lo < area.value < area.hi), "objects": area.groups}


def _mcnemar(mcnemar: Any) -> Values:
    single, grouped = mcnemar(inputs.RIGHT_A, inputs.RIGHT_B), mcnemar(inputs.RIGHT_A, inputs.RIGHT_B, inputs.GROUPS)
    return {
        "single images": [single.only_a, single.only_b, single.difference, single.p],
        "by object": [grouped.groups, grouped.p],
    }


def _sign_flip(sign_flip_p: Any) -> Values:
    return {"sizes 1, 1, 2, 3, 5": sign_flip_p(8, [1, 1, 2, 3, 5]), "nothing": sign_flip_p(0, [])}


def _wilcoxon(wilcoxon_p: Any) -> Values:
    columns = np.array(inputs.RANKED)
    return {"boxes, odin": wilcoxon_p(columns[:, 0], columns[:, 2])}


def _table(table: Any, *columns: str) -> Values:
    shown = table.frame.set_index("factor")
    return {str(factor): [float(row[column]) for column in columns] for factor, row in shown.iterrows()}


def _anova(anova: Any) -> Values:
    rows = _table(anova(frame(), "y", ["model", "shift"]), "sum_of_squares", "df", "f", "p")
    return {factor: values for factor, values in rows.items() if factor not in ("Error", "Total")}


def _robust(robust_anova: Any) -> Values:
    return _table(robust_anova(frame(), "y", ["model"]), "df", "df_error", "f", "p")


def _repeated(repeated_anova: Any) -> Values:
    return _table(repeated_anova(frame(), "y", ["model", "shift"], "repeat"), "df", "df_error", "f", "p")


def _f_test(test: Any) -> Values:
    effect = test(frame(), "y", ["model"])
    return {"model": [effect.f, effect.df, effect.df_error, effect.p]}


def _pairs(compare: Any) -> Values:
    """Three cells: model a under x, model b under x, model b under y."""
    import pandas as pd

    table = frame()
    cells = pd.DataFrame({"cell": table["model"] + table["shift"], "y": table["y"]})
    pairs = compare(cells[cells["cell"] != "ay"], "y", ["cell"], ["cell"]).pairs
    return {f"{row.a}, {row.b}": [row.difference, row.p] for row in pairs.itertuples()}


def _by_repeat(repeated_posthoc: Any) -> Values:
    """Models a and b, paired by repeat; then as if they shared nothing of a repeat."""
    arguments = frame(), "y", ["model", "shift"], ["model"], "repeat"
    rows = {"paired": repeated_posthoc(*arguments), "apart": repeated_posthoc(*arguments, relation=lambda *_: WELCH)}
    return {
        name: [float(result.pairs[column][0]) for column in ("difference", "df", "p")] for name, result in rows.items()
    }


def _critical(critical_difference: Any) -> Values:
    comparison = critical_difference(inputs.RANKED, inputs.METHODS)
    return {
        "ranks": comparison.ranks,
        "Friedman": [comparison.friedman, comparison.friedman_p],
        "distance": comparison.distance,
        "Wilcoxon, Holm": [pair.wilcoxon_p_holm for pair in comparison.pairs],
    }


def _half_widths(half_widths: Any) -> Values:
    return {"three means": half_widths([[0, 3, 4], [3, 0, 5], [4, 5, 0]])}


def _letters(letters: Any) -> Values:
    """The first differs from the last alone."""
    apart = np.array([[False, False, True], [False, False, False], [True, False, False]])
    return {"three levels": letters(apart, [0, 1, 2])}


_INTERVALS: dict[str, Callable[[Any], Values]] = {
    "wilson": _wilson,
    "proportion_interval": _proportion,
    "mean_interval": _mean,
    "further_groups": _further,
}
_RESAMPLED: dict[str, Callable[[Any], Values]] = {
    "GroupBootstrap": _bootstrap_class,
    "bootstrap_interval": _bootstrap_interval,
    "paired_interval": _paired_interval,
    "paired_p": _paired_p,
}
_DECISIONS: dict[str, Callable[[Any], Values]] = {
    "decision_estimates": _decisions,
    "class_mcc_estimates": _class_mcc,
    "stream_change_estimates": _stream_change,
    "effect_estimates": _effects,
    "aurc_estimate": _aurc,
}
_PAIRED: dict[str, Callable[[Any], Values]] = {
    "mcnemar": _mcnemar,
    "sign_flip_p": _sign_flip,
    "holm": lambda holm: {"adjusted": holm(inputs.P_VALUES)},
    "p_text": lambda p_text: {"texts": [p_text(p) for p in (0.04321, 0.25, 1.0, 3.5e-11)]},
    "wilcoxon_p": _wilcoxon,
}
_VARIANCE: dict[str, Callable[[Any], Values]] = {
    "anova": _anova,
    "robust_anova": _robust,
    "repeated_anova": _repeated,
    "brown_forsythe": _f_test,
    "welch_anova": _f_test,
    "thesis_p": lambda thesis_p: {"texts": [thesis_p(p) for p in (0.0002, 0.0055, 0.04, 0.746, 1.0)]},
}
_COMPARED: dict[str, Callable[[Any], Values]] = {
    "posthoc": _pairs,
    "games_howell": _pairs,
    "repeated_posthoc": _by_repeat,
    "critical_difference": _critical,
    "comparison_half_widths": _half_widths,
    "grouping_letters": _letters,
    "range_tail": lambda tail: {"3 means, 10 degrees": tail([3.0, 4.0], 3, 10)},
    "range_quantile": lambda quantile: {"3 means": quantile(0.95, 3, [10.0, 20.0])},
}
