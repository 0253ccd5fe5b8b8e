"""Post hoc comparison: which levels or cells differ from which, with intervals for figures and grouping letters."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import comb, stdtr, stdtrit

from roadworthy.statistics.anova import NO_SPREAD, fitted_model
from roadworthy.statistics.factorial import Factorial, Floats, Indices, Term, factorial, name_of, named, summed
from roadworthy.statistics.paired import holm
from roadworthy.statistics.studentized_range import range_quantile, range_tail

PAIRED, WELCH = "paired t", "Welch"
NO_VARIATION = "the difference does not vary between repeats"
TOO_FEW = "fewer than two repeats have both"
Cell = tuple[Any, ...]
Relation = Callable[[Cell, Cell], str]
Bools = NDArray[np.bool_]
Estimates = tuple[Floats, Floats, Floats, Floats]
"""Means and numbers of values (K,), standard errors and degrees of freedom per pair (K, K)."""


@dataclass(frozen=True)
class Comparison:
    """All pairs of the levels (or cells) of some factors.

    means  a row per level: the factors, `n`, `mean`, the comparison interval `lo` to `hi`, and `letters`
    pairs  a row per pair: `a`, `b`, `difference` (a - b), its joint interval `lo` to `hi`, adjusted `p`, `significant`;
           for cells also the level of each factor on either side, `level_a`, `level_b`, ...

    Two levels share a letter exactly where they do not differ significantly; `a` holds the highest mean. Comparison
    intervals that do not overlap mean a significant difference: exact for equal n, else nearly so, and `notes` count
    the pairs for which a figure would mislead. They are not confidence intervals of the means. `repeated_posthoc` has
    other intervals and further columns: see there.
    """

    means: pd.DataFrame
    pairs: pd.DataFrame
    method: str
    confidence: float
    notes: tuple[str, ...] = ()


def posthoc(
    frame: pd.DataFrame,
    response: str,
    factors: Sequence[str],
    by: Sequence[str],
    *,
    interactions: int = 2,
    block: str | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Tukey-Kramer comparison of marginal means (`by` one factor) or of cells (`by` several).

        |m_i - m_j| > q se_ij / sqrt(2),   se_ij^2 = MS_error (C_ii + C_jj - 2 C_ij)

    m the means that the linear model of `anova` with the same arguments estimates, all other factors averaged with equal
    weights (plain means where the design is balanced), MS_error C their covariance, q the quantile of the studentized
    range for as many means and the degrees of freedom of the error. With one factor se_ij^2 = MS_error (1/n_i + 1/n_j),
    the comparison of statsmodels and scipy, which know one factor only.

    >>> data = pd.DataFrame({"shift": list("aaabbbccc"), "y": [1, 2, 3, 2, 3, 4, 9, 8, 10]})
    >>> result = posthoc(data, "y", ["shift"], ["shift"])
    >>> result.pairs[["a", "b", "difference", "p", "significant"]].round(4).to_dict("list")
    {'a': ['a', 'a', 'b'], 'b': ['b', 'c', 'c'], 'difference': [-1.0, -7.0, -6.0], 'p': [0.4827, 0.0003, 0.0008], 'significant': [False, True, True]}
    >>> result.means["letters"].tolist()
    ['b', 'b', 'a']
    """  # noqa: E501
    term = _checked(by, factors)
    model = fitted_model(frame, response, factors, interactions, block)
    design = model.design
    if model.error <= design.rounding:
        raise ValueError(f"cannot compare {name_of(term)} by {response}: {NO_SPREAD}")
    means, covariance, estimable = model.marginal(term)
    counts = summed(design.counts, design.combination(term), len(means))
    shown = estimable & (counts > 0)
    notes = [*design.notes, *_left_out(design, term, ~shown, "no value in some of their cells")]
    variance = np.diag(covariance)
    squared = variance[:, None] + variance - 2 * covariance
    errors = np.sqrt(np.maximum(squared, 0) * model.error / model.error_df)
    degrees = np.full_like(errors, model.error_df)
    return _compare(design, term, shown, (means, counts, errors, degrees), "Tukey-Kramer", confidence, notes)


def games_howell(
    frame: pd.DataFrame, response: str, factors: Sequence[str], by: Sequence[str], *, confidence: float = 0.95
) -> Comparison:
    """Comparison without equal variances: Games and Howell (1976), for marginal means too.

        |m_i - m_j| > q_ij sqrt((V_i + V_j) / 2),   df_ij = (V_i + V_j)^2 / (D_i + D_j)

    m_i the plain average of the means of the K_i cells (combinations of all `factors`) of level i, V_i the sum of
    v_c = s_c^2 / n_c / K_i^2 over them, D_i that of v_c^2 / (n_c - 1). Where `by` names all factors this is their test.
    Levels with a cell of fewer than two values, or without any variation, are left out with a note.

    >>> data = pd.DataFrame({"shift": list("aaabbbccc"), "y": [1, 2, 3, 2, 3, 4, 9, 8, 13]})
    >>> games_howell(data, "y", ["shift"], ["shift"]).pairs["p"].round(4).tolist()
    [0.5015, 0.0451, 0.0613]
    """
    term = _checked(by, factors)
    design = factorial(frame, response, factors)
    combination, size = design.combination(term), len(design.combinations(term))
    cells = summed(np.ones(len(combination)), combination, size)
    expected = len(design.combinations(design.factors)) / size
    usable = (summed(design.counts < 2, combination, size) == 0) & (cells == expected)
    variance_df = np.maximum(design.counts - 1, 1)
    variance = design.squares / variance_df / design.counts / expected**2
    total, fourth = summed(variance, combination, size), summed(variance**2 / variance_df, combination, size)
    varies = summed(design.squares, combination, size) > design.rounding
    notes = list(design.notes)
    notes += _left_out(design, term, ~usable, "fewer than two values in some of their cells")
    notes += _left_out(design, term, usable & ~varies, "their values do not vary")
    shown = usable & varies
    means = summed(design.means, combination, size) / np.maximum(cells, 1) + design.centre
    counts = summed(design.counts, combination, size)
    both = total[:, None] + total
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = both**2 / (fourth[:, None] + fourth)
    return _compare(design, term, shown, (means, counts, np.sqrt(both), degrees), "Games-Howell", confidence, notes)


def paired_always(_one: Cell, _other: Cell) -> str:
    """How two cells are tested in the usual design: what they share in a repeat is taken out of their difference."""
    return PAIRED


def repeated_posthoc(
    frame: pd.DataFrame,
    response: str,
    factors: Sequence[str],
    by: Sequence[str],
    unit: str,
    *,
    relation: Relation = paired_always,
    own_family: str = "",
    confidence: float = 0.95,
) -> Comparison:
    """Comparison over units (repeats): each gives one value per level, its mean over the cells of that level.

        paired t:  t = mean(d) / sqrt(var(d) / U),   d_u = x_ui - x_uj,   U - 1 degrees of freedom
        Welch:     t = (mean(x_i) - mean(x_j)) / sqrt(V_i + V_j),   V_i = var(x_i) / U_i,
                   (V_i + V_j)^2 / (V_i^2 / (U_i - 1) + V_j^2 / (U_j - 1)) degrees of freedom

    x_ui is the mean of unit u over the cells of level i (combinations of all `factors`, equal weights). Where models
    are trained anew in each repeat, the trained network is the unit. Each pair has an error of its own: nothing is
    pooled, so variances and correlations may be any. `p` is corrected by Holm's method over all pairs; those that
    differ in the factor `own_family` alone are corrected by themselves, and the others by themselves. The joint
    intervals are Bonferroni's, wider than Holm's test asks for: `notes` count the pairs found although theirs holds 0.
    The interval of a mean is Student's, of that mean alone: letters say which differ, not bars that overlap.

    `relation(cell, other)` says how a pair is tested: `PAIRED` where both have something of a repeat in common (the
    network, the draw of the disturbance), `WELCH` where they share nothing; any other text is the reason why there is
    no test: the pair shares a letter, and `notes` count it. A level counts in the units that have all its cells;
    one with fewer than two such units is left out with a note. `pairs` adds `df`, `test` and `reason`.

    >>> data = pd.DataFrame({"run": [1, 2, 3] * 2, "model": list("aaabbb"), "y": [1, 2, 3, 2, 4, 4]})
    >>> pairs = repeated_posthoc(data, "y", ["model"], ["model"], "run").pairs
    >>> pairs[["difference", "p", "df", "test"]].round(4).to_dict("list")
    {'difference': [-1.3333], 'p': [0.0572], 'df': [2.0], 'test': ['paired t']}
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    term = _checked(by, factors)
    design = factorial(frame, response, [*factors, unit])
    values = _unit_means(design, term, tuple(factor for factor in factors if factor not in term), unit)
    counts = (~np.isnan(values)).sum(axis=0)
    notes = [*design.notes, *_left_out(design, term, counts < 2, f"fewer than two {unit}s have all their cells")]
    every, keep = design.combinations(term), np.flatnonzero(counts >= 2)
    if len(keep) < 2:
        raise ValueError(f"fewer than two levels of {name_of(term)} can be compared by {response}: {'; '.join(notes)}")
    cells, values, counts = [every[index] for index in keep], values[:, keep], counts[keep]
    partly = int((counts < len(values)).sum())
    if partly:
        notes.append(f"{partly} of {len(keep)} levels of {name_of(term)} have all their cells in some {unit}s only")
    first, second = np.triu_indices(len(keep), 1)
    tests = np.array([relation(cells[i], cells[j]) for i, j in zip(first, second, strict=True)])
    difference, variance, df = _unit_differences(values, first, second, tests == WELCH)
    reasons = np.where(np.isin(tests, (PAIRED, WELCH)), "", tests)
    reasons = np.where((reasons == "") & np.isnan(variance), TOO_FEW, reasons)
    reasons = np.where((reasons == "") & (variance <= design.rounding), NO_VARIATION, reasons)
    tested = reasons == ""
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(tested, np.sqrt(variance), np.nan)
        p = 2 * stdtr(df, -np.abs(difference) / error)
    rest = [tuple(level for level, factor in zip(cell, term, strict=True) if factor != own_family) for cell in cells]
    in_own = np.array([len(term) > 1 and rest[i] == rest[j] for i, j in zip(first, second, strict=True)])
    adjusted, half = np.full(len(p), np.nan), np.full(len(p), np.nan)
    for family, words in ((in_own, f"pairs that differ in {own_family} alone"), (~in_own, "pairs")):
        members = family & tested
        adjusted[family] = holm(p[family])
        if members.any():
            half[members] = -stdtrit(df[members], (1 - confidence) / 2 / members.sum()) * error[members]
            is_welch = tests[members] == WELCH
            least = np.where(is_welch, _least_p(counts[first], counts[second])[members], 2.0 ** -df[members]).min()
            notes.append(
                _needed(df[members], float(least), "values" if is_welch.any() else "differences", 1 - confidence, words)
            )
    significant = adjusted < 1 - confidence
    beyond = int((significant & (np.abs(difference) <= half)).sum())
    if beyond:
        notes.append(f"{beyond} of {len(p)} pairs differ by Holm's method though their joint interval holds 0")
    pairs = _pair_columns(cells, first, second, term, (difference, half), adjusted, significant)
    pairs |= {"df": np.where(tested, df, np.nan), "test": np.where(tested, tests, ""), "reason": reasons}
    mean = np.nanmean(values, axis=0)
    widths = -stdtrit(counts - 1, (1 - confidence) / 2) * np.nanstd(values, axis=0, ddof=1) / np.sqrt(counts)
    if not tested.all():
        notes.append(f"{int((~tested).sum())} of {len(p)} pairs have no test, and share a letter for want of one")
    against = significant & (difference * (mean[first] - mean[second]) < 0)
    if against.any():
        notes.append(
            f"{int(against.sum())} of {len(p)} pairs differ, in the {unit}s that both have, the other way round than "
            f"their means, which count further {unit}s: they share a letter, `pairs` says how they differ"
        )
    apart = np.zeros((len(keep), len(keep)), dtype=bool)
    apart[first, second] = apart[second, first] = significant & ~against
    rows = _mean_columns(cells, term, counts, mean + design.centre, widths, apart)
    return Comparison(pd.DataFrame(rows), pd.DataFrame(pairs), f"by {unit}", confidence, tuple(notes))


def comparison_half_widths(critical: ArrayLike) -> Floats:
    """Half widths w (K,) of comparison intervals with w_i + w_j near the critical difference d_ij of each pair.

        w_i = ((K - 1) sum_j d_ij - sum_{j<l} d_jl) / ((K - 1) (K - 2))

    the least-squares solution (Hochberg and Tamhane 1987), exact where d is the same for all pairs: w = d / 2.

    >>> comparison_half_widths([[0, 2, 2], [2, 0, 2], [2, 2, 0]])
    array([1., 1., 1.])
    """
    differences = np.array(critical, dtype=np.float64)
    np.fill_diagonal(differences, 0)
    size = len(differences)
    if size < 2 or differences.shape != (size, size):
        raise ValueError(
            f"comparison intervals need a square of two or more critical differences, not {differences.shape}"
        )
    if size == 2:
        return np.asarray(differences.max(axis=1) / 2)
    widths = ((size - 1) * differences.sum(axis=1) - differences.sum() / 2) / ((size - 1) * (size - 2))
    return np.asarray(widths)


def grouping_letters(significant: ArrayLike, order: Sequence[int] | None = None) -> list[str]:
    """Compact letter display: two levels share a letter exactly where they do not differ significantly.

    Insert and absorb (Piepho 2004): begin with one column of all levels; each significant pair splits every column that
    holds both; columns inside others go. Right also where 'does not differ' is not transitive. `significant` (K, K),
    symmetric; `order` lists the levels from first to last, and letters follow it. A letter is one character.

    >>> grouping_letters([[0, 0, 1], [0, 0, 0], [1, 0, 0]])
    ['a', 'ab', 'b']
    """
    differ = np.asarray(significant, dtype=bool)
    size = len(differ)
    if differ.shape != (size, size) or (differ != differ.T).any() or np.diag(differ).any():
        raise ValueError("letters need a symmetric square of significant differences, none of a level from itself")
    ranked = list(range(size)) if order is None else list(order)
    columns = {(1 << size) - 1}
    for i, j in zip(*np.nonzero(np.triu(differ[np.ix_(ranked, ranked)])), strict=True):
        pair = (1 << int(i)) | (1 << int(j))
        split = {column for column in columns if column & pair == pair}
        columns -= split
        parts = {column & ~(1 << int(level)) for column in split for level in (i, j)}
        for part in sorted(parts, key=int.bit_count, reverse=True):
            if not any(part & column == part for column in columns):
                columns.add(part)
    members = sorted([rank for rank in range(size) if column >> rank & 1] for column in columns)
    letters, further = [""] * size, filter(str.isalpha, map(chr, range(0x3B1, 0x110000)))
    for letter, column in zip(chain(string.ascii_letters, further), members, strict=False):
        for rank in column:
            letters[ranked[rank]] += letter
    return letters


def _checked(by: Sequence[str], factors: Sequence[str]) -> Term:
    """The compared factors, in the order of `factors`."""
    if not by or len(set(by)) != len(by) or not set(by) <= set(factors):
        raise ValueError(f"compare by one or more of the factors {list(factors)}, each once, not by {list(by)}")
    return tuple(factor for factor in factors if factor in by)


def _left_out(design: Factorial, term: Term, which: Bools, reason: str) -> list[str]:
    cells = [cell for cell, out in zip(design.combinations(term), which, strict=True) if out]
    return [f"{name_of(term)} {named(cells)} left out: {reason}"] if cells else []


def _compare(
    design: Factorial, term: Term, shown: Bools, estimates: Estimates, method: str, confidence: float, notes: list[str]
) -> Comparison:
    """All pairs of the levels shown, from their estimates."""
    keep, (means, counts, errors, degrees) = np.flatnonzero(shown), estimates
    size = len(keep)
    if size < 2:
        raise ValueError(
            f"fewer than two levels of {name_of(term)} can be compared by {design.response}: {'; '.join(notes)}"
        )
    cells = [design.combinations(term)[index] for index in keep]
    mean, pick = means[keep], np.ix_(keep, keep)
    first, second = np.triu_indices(size, 1)
    error, df = errors[pick][first, second], degrees[pick][first, second]
    difference = mean[first] - mean[second]
    half = range_quantile(confidence, size, df) * error / np.sqrt(2)
    significant = np.abs(difference) > half
    p = range_tail(np.sqrt(2) * np.abs(difference) / error, size, df)
    pairs = _pair_columns(cells, first, second, term, (difference, half), p, significant)
    critical, differ = np.zeros((size, size)), np.zeros((size, size), dtype=bool)
    critical[first, second] = critical[second, first] = half
    differ[first, second] = differ[second, first] = significant
    widths = comparison_half_widths(critical)
    apart = np.abs(difference) > widths[first] + widths[second]
    misleading = int((apart != significant).sum())
    if misleading:
        notes.append(
            f"for {misleading} of {len(first)} pairs overlapping intervals and significance disagree: trust `pairs`"
        )
    rows = _mean_columns(cells, term, counts[keep], mean, widths, differ)
    return Comparison(pd.DataFrame(rows), pd.DataFrame(pairs), method, confidence, tuple(notes))


def _pair_columns(
    cells: Sequence[Cell],
    first: Indices,
    second: Indices,
    term: Term,
    interval: tuple[Floats, Floats],
    p: Floats,
    significant: Bools,
) -> dict[str, Any]:
    """The columns of pairs of cells; `interval` is the difference and half the width of its interval."""
    labels, (difference, half) = [", ".join(map(str, cell)) for cell in cells], interval
    columns: dict[str, Any] = {"a": [labels[i] for i in first], "b": [labels[j] for j in second]}
    columns |= {"difference": difference, "lo": difference - half, "hi": difference + half}
    columns |= {"p": p, "significant": significant}
    for index, factor in enumerate(term) if len(term) > 1 else ():
        columns[f"{factor}_a"] = [cells[i][index] for i in first]
        columns[f"{factor}_b"] = [cells[j][index] for j in second]
    return columns


def _mean_columns(
    cells: Sequence[Cell], term: Term, counts: Floats, mean: Floats, widths: Floats, differ: Bools
) -> dict[str, Any]:
    """The columns of means of cells, with the letters that follow from which of them differ (K, K)."""
    columns: dict[str, Any] = {factor: [cell[index] for cell in cells] for index, factor in enumerate(term)}
    columns |= {"n": counts.astype(np.int64), "mean": mean, "lo": mean - widths, "hi": mean + widths}
    return columns | {"letters": grouping_letters(differ, np.argsort(-mean, kind="stable").tolist())}


def _unit_means(design: Factorial, term: Term, others: Term, unit: str) -> Floats:
    """The mean of each unit over the cells of each level, less `centre`, (U, K); NaN where one of the cells is missing.

    The cells of a level are all combinations of the other factors that occur anywhere.
    """
    units, levels = design.shape((unit,))[0], len(design.combinations(term))
    index, size = design.combination((unit, *term)), units * levels
    expected = len(np.unique(design.combination(others))) if others else 1
    cells = summed(np.ones(len(index)), index, size)
    means = np.where(cells == expected, summed(design.means, index, size) / np.maximum(cells, 1), np.nan)
    return np.asarray(means.reshape(units, levels))


def _unit_differences(values: Floats, first: Indices, second: Indices, welch: Bools) -> tuple[Floats, Floats, Floats]:
    """Difference, its squared standard error and degrees of freedom per pair, from values (U, K), some NaN.

    A pair that is not Welch's counts the units that have both; variance and degrees are NaN for fewer than two.
    """
    paired = values[:, first] - values[:, second]
    units = (~np.isnan(paired)).sum(axis=0)
    enough = np.maximum(units, 2)
    difference = np.nansum(paired, axis=0) / np.maximum(units, 1)
    variance = np.nansum((paired - difference) ** 2, axis=0) / (enough - 1) / enough
    variance, df = np.where(units < 2, np.nan, variance), (enough - 1).astype(np.float64)
    counts = (~np.isnan(values)).sum(axis=0)
    mean, own = np.nanmean(values, axis=0), np.nanvar(values, axis=0, ddof=1) / counts
    both = own[first] + own[second]
    fourth = own[first] ** 2 / (counts[first] - 1) + own[second] ** 2 / (counts[second] - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        welch_df = both**2 / fourth
    return (
        np.where(welch, mean[first] - mean[second], difference),
        np.where(welch, both, variance),
        np.where(welch, welch_df, df),
    )


def _least_p(one: Indices, other: Indices) -> Floats:
    """The least p (P,) of a test by exchange of values that are not paired, `one` (P,) and `other` (P,) of them.

    Of all ways to divide them the one that was seen is the most extreme, and so is its mirror where both are as many.
    """
    return np.asarray(np.where(one == other, 2, 1) / comb(one + other, one))


def _needed(df: Floats, least: float, of: str, alpha: float, family: str) -> str:
    """A note on how large a difference must be for so few degrees of freedom (one per pair of a family) to find it.

    A t test has no `least` p. One that does not take what it is made `of` for normal has: that of the signs of U paired
    differences 2 / 2^U, and `_least_p`.
    """
    typical, pairs = float(np.median(df)), len(df)
    first, last = (f"{-stdtrit(typical, alpha / 2 / count):.1f}" for count in (pairs, 1))
    freedom = "1 degree of freedom" if typical == 1 else f"{typical:.3g} degrees of freedom"
    counts = f"1, with {freedom}: the difference is found from {last} times its standard error on"
    if pairs > 1:
        counts = f"{pairs}, with {freedom} each: the largest difference is found from {first} times its standard error "
        counts += f"on, the smallest from {last} times"
    lowest = f"{least:.2g}".removeprefix("0")
    return f"{family}: {counts}; a test that does not take {of} for normal has no p below {lowest}"
