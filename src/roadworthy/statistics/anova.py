"""Analysis of variance: which factors move a measure, by the classical F test and by companions that ask for less."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from roadworthy.statistics.factorial import (
    Factorial,
    Floats,
    LinearModel,
    Term,
    contrasts,
    factorial,
    name_of,
    named,
    terms_up_to,
)

NO_SPREAD = "no variation within cells"
CONFOUNDED = "cannot be told from the other terms"
THESIS_LIMITS = (0.001, 0.01, 0.05)


@dataclass(frozen=True)
class AnovaTable:
    """Tests of factors and interactions, a row each.

    Columns of every table: `factor`, `df`, `f`, `p` and, where a test does not exist, `reason`. The classical one adds
    `sum_of_squares`, `mean_square`, `eta_squared`, `partial_eta_squared`, `omega_squared` and the rows Error and Total;
    the companions have a `df_error` per row. `notes` say what was left out and what to be careful about.
    """

    frame: pd.DataFrame
    method: str
    notes: tuple[str, ...] = ()

    def thesis_layout(self, names: Mapping[str, str] | None = None) -> pd.DataFrame:
        """The rows as text: Factor, d.f., F, p, with p as `<.001`, `<.01`, `<.05` or two decimals, and the Error row.

        `names` replaces the names of factors; without it their first letter becomes a capital.

        >>> data = pd.DataFrame({"model": list("aabbaabb"), "level": [1, 2] * 4, "y": [1, 3, 2, 6, 2, 4, 3, 6]})
        >>> anova(data, "y", ["model", "level"]).thesis_layout().to_dict("list")
        {'Factor': ['Model', 'Level', 'Model*Level', 'Error'], 'd.f.': ['1', '1', '1', '4'], 'F': ['16.33', '40.33', '3.00', ''], 'p': ['<.05', '<.01', '.16', '']}
        """  # noqa: E501

        def shown(factor: str) -> str:
            parts = factor.split("*")
            return "*".join((names or {}).get(part, part[:1].upper() + part[1:]) for part in parts)

        rows = []
        for row in self.frame.to_dict("records"):
            if row["factor"] == "Total":
                continue
            df = _number(row["df"]) + (f", {_number(row['df_error'])}" if "df_error" in row else "")
            no_test = math.isnan(row["f"])
            f, p = ("", "") if no_test else (f"{row['f']:.2f}", thesis_p(row["p"]))
            rows.append({"Factor": shown(str(row["factor"])), "d.f.": df, "F": f or row["reason"], "p": p})
        return pd.DataFrame(rows)


@dataclass(frozen=True)
class FTest:
    """One F test: `f` on `df` and `df_error` degrees of freedom; NaN with a `reason` where it does not exist."""

    method: str
    f: float
    df: float
    df_error: float
    p: float
    reason: str = ""
    notes: tuple[str, ...] = ()


def thesis_p(p: float) -> str:
    """A p value as in the tables of the thesis.

    >>> [thesis_p(p) for p in (0.0002, 0.0055, 0.04, 0.746, 1.0)]
    ['<.001', '<.01', '<.05', '.75', '1.00']
    """
    for limit in THESIS_LIMITS:
        if p < limit:
            return f"<{limit:g}".replace("0.", ".")
    return f"{p:.2f}".removeprefix("0")


def anova(
    frame: pd.DataFrame, response: str, factors: Sequence[str], *, interactions: int = 2, block: str | None = None
) -> AnovaTable:
    """Analysis of variance of any number of factors with Type II sums of squares.

        SS(t) = error(terms that do not contain t) - error(the same and t),    F = (SS(t) / df(t)) / (SS_error / df_error)

    with the error of F from the model with all terms. For equal numbers of values per cell Type I, II and III agree and
    the sums of squares add up to Total; otherwise they need not. Interactions of more than `interactions` factors are
    pooled into the error. `block` names a column (the repeat) whose levels are taken out first, as one more main effect
    that interacts with nothing. statsmodels gives the same numbers (tests compare them) where no cell is empty, five times
    as slowly at 1,000 cells: it fits rows, this fits cells.

        eta^2 = SS / SS_total,  partial eta^2 = SS / (SS + SS_error),  omega^2 = (SS - df MS_error) / (SS_total + MS_error)

    >>> data = pd.DataFrame({"model": list("aabbaabb"), "level": [1, 2] * 4, "y": [1, 3, 2, 6, 2, 4, 3, 6]})
    >>> anova(data, "y", ["model", "level"]).frame[["factor", "sum_of_squares", "df"]].round(3).to_dict("list")
    {'factor': ['model', 'level', 'model*level', 'Error', 'Total'], 'sum_of_squares': [6.125, 15.125, 1.125, 1.5, 23.875], 'df': [1, 1, 1, 4, 7]}
    """  # noqa: E501
    full = fitted_model(frame, response, factors, interactions, block)
    design, tested = full.design, full.terms
    total, mean_error = design.total, full.error / full.error_df
    exact = full.error <= design.rounding
    rows: list[dict[str, Any]] = []
    for term in tested:
        others = [other for other in tested if not set(term) <= set(other)]
        without, with_term = LinearModel(design, others), LinearModel(design, [*others, term])
        df = with_term.rank - without.rank
        squares = float(((with_term.fitted - without.fitted) ** 2).sum()) if df else math.nan
        f = math.nan if exact or not df else squares / df / mean_error
        rows.append(
            {
                "factor": name_of(term),
                "sum_of_squares": squares,
                "df": df,
                "mean_square": squares / df if df else math.nan,
                "f": f,
                "p": float(fdtrc(df, full.error_df, f)) if df else math.nan,
                "eta_squared": squares / total if total > design.rounding else math.nan,
                "partial_eta_squared": math.nan if exact else squares / (squares + full.error),
                "omega_squared": math.nan if exact else (squares - df * mean_error) / (total + mean_error),
                "reason": CONFOUNDED if not df else NO_SPREAD if exact else "",
            }
        )
    for name, squares, df in (("Error", full.error, full.error_df), ("Total", total, len(design.values) - 1)):
        rows.append({"factor": name, "sum_of_squares": squares, "df": df, "mean_square": squares / df, "reason": ""})
    rows[-1]["mean_square"] = math.nan
    notes = (*design.notes, *_empty_notes(design, tested))
    return AnovaTable(pd.DataFrame(rows), "ANOVA, type II" + (f", blocked by {block}" if block else ""), notes)


def brown_forsythe(frame: pd.DataFrame, response: str, factors: Sequence[str]) -> FTest:
    """Do variances differ between cells? Levene's test about medians: one-way ANOVA of |y - median of its cell|.

    A small p says that the classical F test and Tukey's comparison rest on an assumption that does not hold.
    `scipy.stats.levene` gives the same numbers in 2.4 to 3.5 times the time (5 to 1,000 groups), but does not say where
    values that do not vary leave nothing to test.

    >>> data = pd.DataFrame({"model": list("aaaabbbb"), "y": [1, 2, 3, 4, 1, 12, 23, 34]})
    >>> round(brown_forsythe(data, "y", ["model"]).p, 4)
    0.0202
    """
    design = factorial(frame, response, factors)
    median = np.array([np.median(design.values[design.cell_of == cell]) for cell in range(len(design.counts))])
    deviations = replace(design, values=np.abs(design.values - median[design.cell_of]))
    df, df_error = len(median) - 1, len(deviations.values) - len(median)
    between = float((deviations.counts * (deviations.means - deviations.values.mean()) ** 2).sum())
    within = float(deviations.squares.sum())
    if df_error < 1 or within <= design.rounding:
        reason = "one value per cell" if df_error < 1 else "deviations from the median do not vary within cells"
        return FTest("Brown-Forsythe", math.nan, df, df_error, math.nan, reason, design.notes)
    f = between / df / (within / df_error)
    return FTest("Brown-Forsythe", f, df, df_error, float(fdtrc(df, df_error, f)), "", design.notes)


def welch_anova(frame: pd.DataFrame, response: str, factors: Sequence[str]) -> FTest:
    """Do the cells differ, whatever their variances? Welch's (1951) test of equal means.

        w_i = n_i / s_i^2,  W = sum w_i,  m = sum w_i mean_i / W,  L = sum (1 - w_i / W)^2 / (n_i - 1),  k cells
        F = sum w_i (mean_i - m)^2 / (k - 1) / (1 + 2 (k - 2) L / (k^2 - 1)),    df = k - 1, (k^2 - 1) / (3 L)

    Cells with a single value or without variation have no weight: the test is then missing, with that reason.
    `scipy.stats.f_oneway(equal_var=False)` gives the same F and p, but not the degrees of freedom.

    >>> data = pd.DataFrame({"model": list("aaaabbbb"), "y": [1, 2, 3, 4, 5, 12, 23, 34]})
    >>> test = welch_anova(data, "y", ["model"])
    >>> round(test.f, 4), round(test.df_error, 4), round(test.p, 4)
    (6.2694, 3.0618, 0.0857)
    """
    design = factorial(frame, response, factors)
    cells = len(design.counts)
    reason = _without_variance(design)
    if reason:
        return FTest("Welch", math.nan, cells - 1, math.nan, math.nan, reason, design.notes)
    weight = design.counts * (design.counts - 1) / design.squares
    share = weight / weight.sum()
    mean = float((share * design.means).sum())
    loss = float(((1 - share) ** 2 / (design.counts - 1)).sum())
    f = float((weight * (design.means - mean) ** 2).sum()) / (cells - 1)
    f /= 1 + 2 * (cells - 2) * loss / (cells**2 - 1)
    df_error = (cells**2 - 1) / (3 * loss)
    return FTest("Welch", f, cells - 1, df_error, float(fdtrc(cells - 1, df_error, f)), "", design.notes)


def robust_anova(frame: pd.DataFrame, response: str, factors: Sequence[str], *, interactions: int = 2) -> AnovaTable:
    """Factorial tests for unequal variances and unequal n: the ANOVA-type statistic of Brunner, Dette and Munk (1997).

        F = x' T x / tr(T V),  df = tr(TV)^2 / tr(TVTV),  df_error = tr(TV)^2 / sum_c (T_cc v_c)^2 / (n_c - 1)

    x the cell means, V the diagonal of v_c = s_c^2 / n_c, T the projection on the contrasts of the term. It tests
    unweighted marginal means (equal weight to every cell). With two cells it is Welch's t test. It needs two values or
    more in every cell; where a cell has fewer, every row is missing, with that reason.

    >>> data = pd.DataFrame({"model": list("aaaabbbb"), "y": [1, 2, 3, 4, 5, 12, 23, 34]})
    >>> robust_anova(data, "y", ["model"]).frame.round(4).to_dict("list")
    {'factor': ['model'], 'df': [1.0], 'df_error': [3.0618], 'f': [6.2694], 'p': [0.0857], 'reason': ['']}
    """
    design = factorial(frame, response, factors)
    rows: list[dict[str, Any]] = []
    reason = _too_few(design)
    for term in terms_up_to(factors, interactions):
        row: dict[str, Any] = {"factor": name_of(term)} | dict.fromkeys(("df", "df_error", "f", "p"), math.nan)
        row |= {} if reason else _anova_type(design, term)
        rows.append({**row, "reason": reason or (NO_SPREAD if row["f"] != row["f"] else "")})
    return AnovaTable(pd.DataFrame(rows), "ANOVA-type statistic (Brunner, Dette, Munk)", design.notes)


def repeated_anova(
    frame: pd.DataFrame, response: str, factors: Sequence[str], unit: str, *, interactions: int = 2
) -> AnovaTable:
    """Each effect against its own variation between units (repeats): what is independent is the unit, not its cells.

        Z = Y C',  F = U |mean Z|^2 / (sum |Z - mean Z|^2 / (U - 1)),  df = r e, (U - 1) r e

    Y (U, C) the mean of each unit in each cell, C (r, C) orthonormal contrasts of the term, S the covariance of Z, and
    e = tr(S)^2 / (r tr(S^2)) the correction of Greenhouse and Geisser, so that variances and correlations may be any.
    Units that lack a cell are left out with a note. With as many contrasts as units or more hardly any power is
    left, and a note names those terms. The table adds `epsilon` (e).

    >>> data = pd.DataFrame({"run": [1, 2, 3] * 2, "model": list("aaabbb"), "y": [1, 2, 3, 2, 4, 4]})
    >>> repeated_anova(data, "y", ["model"], "run").frame.round(4).to_dict("list")
    {'factor': ['model'], 'df': [1.0], 'df_error': [2.0], 'f': [16.0], 'p': [0.0572], 'epsilon': [1.0], 'reason': ['']}
    """
    design = factorial(frame, response, [*factors, unit])
    of_unit = design.combination((unit,))
    cells = math.prod(design.shape(tuple(factors)))
    table = np.full((len(design.levels[-1]), cells), np.nan)
    table[of_unit, design.combination(tuple(factors))] = design.means
    complete = ~np.isnan(table).any(axis=1)
    units = int(complete.sum())
    if units < 2:
        raise ValueError(
            f"only {units} of {len(table)} levels of {unit!r} have a value of {response} in every cell: 2 needed"
        )
    notes = list(design.notes)
    if units < len(table):
        incomplete = [(level,) for level, whole in zip(design.levels[-1], complete, strict=True) if not whole]
        notes.append(f"{unit} {named(incomplete)} left out: not every cell has a value of {response}")
    sizes = dict(zip(factors, design.shape(tuple(factors)), strict=True))
    rows: list[dict[str, Any]] = []
    for term in terms_up_to(factors, interactions):
        effects = table[complete] @ contrasts(sizes, term).T
        rows.append({"factor": name_of(term), **_unit_test(effects, design.rounding)})
    hardly = [name_of(t) for t in terms_up_to(factors, interactions) if len(contrasts(sizes, t)) >= units]
    if hardly:
        notes.append(f"{units} {unit}s find only very large effects of {', '.join(hardly)}")
    return AnovaTable(pd.DataFrame(rows), f"repeated measures by {unit}, Greenhouse-Geisser", tuple(notes))


def fitted_model(
    frame: pd.DataFrame, response: str, factors: Sequence[str], interactions: int, block: str | None
) -> LinearModel:
    """The linear model of the block and all terms, or an error where it leaves nothing to estimate the error from."""
    blocks = [] if block is None else [block]
    design = factorial(frame, response, [*blocks, *factors])
    model = LinearModel(design, [*((name,) for name in blocks), *terms_up_to(factors, interactions)])
    if model.error_df < 1:
        raise ValueError(
            f"{len(design.values)} values of {design.response} leave no degrees of freedom for the error: "
            f"add repeats or keep fewer interactions of {', '.join(design.factors)}"
        )
    return model


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}".removesuffix(".00")


def _empty_notes(design: Factorial, terms: Sequence[Term]) -> list[str]:
    """A note per interaction some of whose cells have no value."""
    empty = {term: design.empty(term) for term in terms if len(term) > 1}
    return [
        f"{len(cells)} cells of {name_of(term)} have no value, so it has fewer degrees of freedom: {named(cells)}"
        for term, cells in empty.items()
        if cells
    ]


def _too_few(design: Factorial) -> str:
    """Why the cells do not allow a variance each: empty ones, or ones with a single value."""
    empty = design.empty(design.factors)
    if empty:
        return f"no value in {named(empty)}"
    every = design.combinations(design.factors)
    single = [every[index] for index in design.combination(design.factors)[design.counts < 2]]
    return f"a single value in {named(single)}" if single else ""


def _without_variance(design: Factorial) -> str:
    """Why a cell that has values has no variance above zero."""
    every, combination = design.combinations(design.factors), design.combination(design.factors)
    flat = [every[index] for index in combination[(design.counts < 2) | (design.squares <= design.rounding)]]
    return f"a single value or no variation in {named(flat)}" if flat else ""


def _anova_type(design: Factorial, term: Term) -> dict[str, float]:
    """The ANOVA-type statistic of one term; nothing where no cell varies. Cells are in the order of `combination`."""
    matrix = contrasts(dict(zip(design.factors, design.shape(design.factors), strict=True)), term)
    variance = design.squares / (design.counts - 1) / design.counts
    if design.squares.sum() <= design.rounding:
        return {}
    diagonal = (matrix**2).sum(axis=0) * variance
    covariance = (matrix * variance) @ matrix.T
    trace = float(diagonal.sum())
    df = trace**2 / float((covariance**2).sum())
    df_error = trace**2 / float((diagonal**2 / (design.counts - 1)).sum())
    f = float(((matrix @ design.means) ** 2).sum()) / trace
    return {"df": df, "df_error": df_error, "f": f, "p": float(fdtrc(df, df_error, f))}


def _unit_test(effects: Floats, rounding: float) -> dict[str, Any]:
    """Is the mean of the rows of `effects` (U, r) zero? Hotelling's question, answered by the trace."""
    units, size = effects.shape
    mean = effects.mean(axis=0)
    centred = effects - mean
    error = float((centred**2).sum())
    if error <= rounding:
        missing = dict.fromkeys(("df", "df_error", "f", "p", "epsilon"), math.nan)
        return {**missing, "reason": "the effect does not vary between units"}
    covariance = centred @ centred.T
    epsilon = error**2 / (size * float((covariance**2).sum()))
    df, df_error = size * epsilon, (units - 1) * size * epsilon
    f = units * float((mean**2).sum()) / (error / (units - 1))
    p = float(fdtrc(df, df_error, f))
    return {"df": df, "df_error": df_error, "f": f, "p": p, "epsilon": epsilon, "reason": ""}
