"""Post hoc comparison: which levels or cells differ from which, with intervals for figures and grouping letters."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from roadworthy.statistics.anova import NO_SPREAD, fitted_model
from roadworthy.statistics.factorial import Factorial, Floats, Term, factorial, name_of, named, summed
from roadworthy.statistics.studentized_range import range_quantile, range_tail

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
    the pairs for which a figure would mislead. They are not confidence intervals of the means.
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
    every = design.combinations(term)
    labels = [", ".join(map(str, every[index])) for index in keep]
    mean, pick = means[keep], np.ix_(keep, keep)
    first, second = np.triu_indices(size, 1)
    error, df = errors[pick][first, second], degrees[pick][first, second]
    difference = mean[first] - mean[second]
    half = range_quantile(confidence, size, df) * error / np.sqrt(2)
    significant = np.abs(difference) > half
    pairs: dict[str, Any] = {
        "a": [labels[i] for i in first],
        "b": [labels[j] for j in second],
        "difference": difference,
        "lo": difference - half,
        "hi": difference + half,
        "p": range_tail(np.sqrt(2) * np.abs(difference) / error, size, df),
        "significant": significant,
    }
    if len(term) > 1:
        for i, factor in enumerate(term):
            pairs[f"{factor}_a"] = [every[keep[index]][i] for index in first]
            pairs[f"{factor}_b"] = [every[keep[index]][i] for index in second]
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
    rows: dict[str, Any] = {factor: [every[index][i] for index in keep] for i, factor in enumerate(term)}
    rows |= {"n": counts[keep].astype(np.int64), "mean": mean, "lo": mean - widths, "hi": mean + widths}
    rows["letters"] = grouping_letters(differ, np.argsort(-mean, kind="stable").tolist())
    return Comparison(pd.DataFrame(rows), pd.DataFrame(pairs), method, confidence, tuple(notes))
