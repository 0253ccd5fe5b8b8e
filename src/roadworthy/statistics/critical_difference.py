"""Critical difference: which methods differ when they are compared over several sets (Demsar 2006, JMLR 7:1-30)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, fdtrc

from roadworthy.statistics.paired import holm, sign_flip_p
from roadworthy.statistics.posthoc import grouping_letters

Floats = NDArray[np.float64]

DECIMALS = 12
LEAST_METHODS = 3
LEAST_SETS = 2
POWERFUL_SETS = 10
"""With fewer data sets than this the tests find only very large differences."""


@dataclass(frozen=True)
class PairedRank:
    """Two methods compared over all sets.

    rank_difference   mean rank of a - mean rank of b: below 0 where a is better
    nemenyi_p         p of Nemenyi's test, for all pairs jointly
    wilcoxon_p_holm   p of Wilcoxon's signed-rank test of the values, corrected by Holm's method for all pairs
    """

    a: str
    b: str
    rank_difference: float
    nemenyi_p: float
    wilcoxon_p_holm: float


@dataclass(frozen=True)
class CriticalDifference:
    """Methods ranked over data sets: rank 1 is the best, ties share the mean of their ranks.

    names, ranks       the methods, and their mean ranks (k,) over the sets, NaN where there is no set
    friedman           Friedman's chi-squared of k - 1 degrees of freedom, with `friedman_p`
    iman_davenport     the F of k - 1 and (k - 1)(N - 1) degrees of freedom by Iman and Davenport, with its p
    distance           Nemenyi's critical difference of mean ranks
    cliques            the largest groups of neighbours in rank that lie within the distance, best first
    pairs              every pair of methods
    sets, left_out     how many sets count; the rows that do not, since a value is missing
    warning            what keeps the tests from saying much, or from saying anything; empty otherwise
    """

    names: tuple[str, ...]
    ranks: Floats
    friedman: float
    friedman_p: float
    iman_davenport: float
    iman_davenport_p: float
    distance: float
    cliques: list[tuple[str, ...]]
    pairs: list[PairedRank]
    sets: int
    left_out: tuple[int, ...]
    warning: str

    def letters(self) -> dict[str, str]:
        """A letter per clique: two methods share one exactly where their ranks lie within the distance.

        Without a distance no letter is given.
        """
        if math.isnan(self.distance):
            return dict.fromkeys(self.names, "")
        apart = np.abs(self.ranks[:, None] - self.ranks) > self.distance
        order = [int(index) for index in np.argsort(self.ranks, kind="stable")]
        return dict(zip(self.names, grouping_letters(apart, order), strict=True))


def critical_difference(
    values: ArrayLike,
    names: Sequence[str],
    *,
    alpha: float = 0.05,
    higher_is_better: bool = True,
    tie_correction: bool = True,
) -> CriticalDifference:
    """Friedman's test over sets, Nemenyi's critical difference and Wilcoxon's tests with Holm's correction.

        chi2 = 12 N / (k (k + 1)) (sum_j R_j^2 - k (k + 1)^2 / 4) / C,   F = (N - 1) chi2 / (N (k - 1) - chi2)
        CD = q_alpha sqrt(k (k + 1) / (6 N))

    values (N, k): a row per set, a column per method; R_j the mean rank of method j; q_alpha the quantile of the
    studentized range of k means and infinitely many degrees of freedom, divided by sqrt(2). C = 1 - sum (t^3 - t) /
    (N (k^3 - k)) over ties of t values in a set; without `tie_correction` it is 1, as Demsar has it.

    Wilcoxon's test is exact: it goes through all signs of the ranked differences. Differences of 0 are ranked with the
    others, and their ranks count half for either side (Pratt). A set with a missing value (NaN) is left out, and
    `warning` says so. With fewer than three methods or two sets there is no test, and `warning` says why.

    >>> mcc = [[0.9, 0.5, 0.1], [0.8, 0.4, 0.2], [0.7, 0.6, 0.3], [0.6, 0.5, 0.1]]
    >>> result = critical_difference(mcc, ["boxes", "energy", "odin"])
    >>> result.ranks, result.friedman, round(result.friedman_p, 4), round(result.distance, 3)
    (array([1., 2., 3.]), 8.0, 0.0183, 1.657)
    >>> result.cliques, result.letters()
    ([('boxes', 'energy'), ('energy', 'odin')], {'boxes': 'a', 'energy': 'ab', 'odin': 'b'})
    """
    table, methods = _checked(values, names, alpha)
    missing = np.isnan(table).any(axis=1)
    kept, left_out = table[~missing], tuple(int(row) for row in np.flatnonzero(missing))
    sets, k = kept.shape
    in_sets = _ranks(-kept if higher_is_better else kept)
    ranks = in_sets.mean(axis=0) if sets else np.full(k, math.nan)
    reason = _why_no_test(sets, k)
    if reason:
        friedman = friedman_p = f_value = f_p = distance = step = math.nan
    else:
        friedman, friedman_p, f_value, f_p = _friedman(in_sets, tie_correction)
        step = math.sqrt(k * (k + 1) / (6 * sets))
        distance = _range_quantile(alpha, k) / math.sqrt(2) * step
    warnings = [_said_left_out(left_out, len(table)), reason]
    if not reason:
        warnings += [_weak(sets), "" if f_p < alpha else _not_established(alpha)]
    return CriticalDifference(
        methods,
        ranks,
        friedman,
        friedman_p,
        f_value,
        f_p,
        distance,
        _cliques(ranks, methods, distance),
        _pairs(kept, ranks, methods, step),
        sets,
        left_out,
        " ".join(filter(None, warnings)),
    )


def wilcoxon_p(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test of paired values a, b (N,), exact also with ties and zeros.

    Zeros are ranked with the other differences and count half for either side (Pratt); p is the share of all signs of
    the others with rank sums as far apart. Differences are compared to 12 decimals, so that rounding makes no order
    among ties. 1 where all differences are 0, NaN without any pair.

    >>> round(wilcoxon_p([0.9, 0.8, 0.7, 0.9, 0.6], [0.5, 0.6, 0.6, 0.4, 0.3]), 6)
    0.0625
    """
    differences = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    if differences.ndim != 1 or np.isnan(differences).any():
        raise ValueError("Wilcoxon's test needs pairs of numbers, none of them NaN")
    if not len(differences):
        return math.nan
    differences = np.round(differences, DECIMALS)
    doubled = np.rint(2 * _ranks(np.abs(differences)[None])[0]).astype(np.int64)
    signs = np.sign(differences).astype(np.int64)
    return sign_flip_p(int((signs * doubled).sum()), doubled[signs != 0])


def _checked(values: ArrayLike, names: Sequence[str], alpha: float) -> tuple[Floats, tuple[str, ...]]:
    table, methods = np.asarray(values, dtype=np.float64), tuple(names)
    if table.ndim != 2 or table.shape[1] != len(methods):
        raise ValueError(f"there must be a column per method, not values {table.shape} of {len(methods)} methods")
    if len(set(methods)) < len(methods) or not methods:
        raise ValueError(f"methods need different names, at least one, not {', '.join(methods) or 'none'}")
    if np.isinf(table).any():
        raise ValueError("the values of methods must be finite, or NaN where there is none")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha}")
    return table, methods


def _ranks(rows: Floats) -> Floats:
    """The rank of each value in its row (N, k), the smallest first; equal values share the mean of their ranks."""
    below = (rows[:, None, :] < rows[:, :, None]).sum(axis=2)
    equal = (rows[:, None, :] == rows[:, :, None]).sum(axis=2)
    return np.asarray(below + (equal + 1) / 2)


def _friedman(in_sets: Floats, tie_correction: bool) -> tuple[float, float, float, float]:
    """Friedman's chi-squared and its p, Iman and Davenport's F and its p, from ranks (N, k)."""
    sets, k = in_sets.shape
    ranks = in_sets.mean(axis=0)
    chi2 = 12 * sets / (k * (k + 1)) * float(((ranks - (k + 1) / 2) ** 2).sum())
    if tie_correction:
        ties = [np.unique(row, return_counts=True)[1].astype(np.float64) for row in in_sets]
        untied = 1 - sum(float((t**3 - t).sum()) for t in ties) / (sets * (k**3 - k))
        chi2 = chi2 / untied if untied > 0 else 0.0
    most = sets * (k - 1)
    chi2 = float(most) if math.isclose(chi2, most, rel_tol=1e-12) else chi2
    f_value = (sets - 1) * chi2 / (most - chi2) if chi2 < most else math.inf
    f_p = float(fdtrc(k - 1, (k - 1) * (sets - 1), f_value)) if math.isfinite(f_value) else 0.0
    return chi2, float(chdtrc(k - 1, chi2)), f_value, f_p


def _range_quantile(alpha: float, k: int) -> float:
    from scipy.stats import studentized_range  # slow to import, so only where it is needed

    return float(studentized_range.ppf(1 - alpha, k, np.inf))


def _range_tail(q: Floats, k: int) -> Floats:
    from scipy.stats import studentized_range  # slow to import, so only where it is needed

    return np.clip(np.asarray(studentized_range.sf(q, k, np.inf), dtype=np.float64), 0.0, 1.0)


def _pairs(kept: Floats, ranks: Floats, methods: tuple[str, ...], step: float) -> list[PairedRank]:
    """Every pair of methods; `step` is the standard error of a difference of two mean ranks, NaN without a test."""
    pairs = list(combinations(range(len(methods)), 2))
    if not pairs:
        return []
    differences = np.array([ranks[a] - ranks[b] for a, b in pairs])
    nemenyi = np.full(len(pairs), math.nan)
    if not math.isnan(step):
        nemenyi = _range_tail(np.abs(differences) / step * math.sqrt(2), len(methods))
    wilcoxon = holm([wilcoxon_p(kept[:, a], kept[:, b]) for a, b in pairs])
    return [
        PairedRank(methods[a], methods[b], float(difference), float(p), float(p_holm))
        for (a, b), difference, p, p_holm in zip(pairs, differences, nemenyi, wilcoxon, strict=True)
    ]


def _cliques(ranks: Floats, methods: tuple[str, ...], distance: float) -> list[tuple[str, ...]]:
    """The largest groups of two or more neighbours in rank of which the first and the last are within the distance."""
    if math.isnan(distance):
        return []
    order = np.argsort(ranks, kind="stable")
    cliques: list[tuple[str, ...]] = []
    reached = 0
    for first, method in enumerate(order):
        last = int((ranks[order] - ranks[method] <= distance).sum())
        if last > reached and last - first > 1:
            cliques.append(tuple(methods[index] for index in order[first:last]))
        reached = max(reached, last)
    return cliques


def _why_no_test(sets: int, k: int) -> str:
    if k < LEAST_METHODS:
        return f"A comparison of ranks needs {LEAST_METHODS} methods or more, not {k}."
    if sets < LEAST_SETS:
        return f"A comparison of ranks needs {LEAST_SETS} sets or more in which every method has a value, not {sets}."
    return ""


def _said_left_out(left_out: tuple[int, ...], sets: int) -> str:
    if not left_out:
        return ""
    verb = "is" if len(left_out) == 1 else "are"
    return f"{len(left_out)} of {sets} sets {verb} left out: a method has no value there."


def _weak(sets: int) -> str:
    if sets >= POWERFUL_SETS:
        return ""
    return f"With {sets} sets (fewer than {POWERFUL_SETS}) only very large differences of ranks can be found."


def _not_established(alpha: float) -> str:
    return f"The methods do not differ significantly as a whole (Iman and Davenport, alpha {alpha:g})."
