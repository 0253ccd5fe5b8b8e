"""Factorial designs: rows of a frame sorted into cells, and linear models of main effects and interactions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import helmert

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Term = tuple[str, ...]
"""The factors of a main effect (one) or of an interaction (several)."""

SINGULAR = 1e-10
"""Directions whose squared length is below this share of the longest cannot be estimated."""
MOST_NAMED = 3
"""A note names at most so many cells and counts the rest."""


def name_of(term: Term) -> str:
    """The name of a term in a table: factors joined by a star."""
    return "*".join(term)


def terms_up_to(factors: Sequence[str], order: int) -> list[Term]:
    """All main effects and the interactions of at most `order` factors, in the order tables show them.

    >>> terms_up_to(["a", "b", "c"], 2)
    [('a',), ('b',), ('c',), ('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    if not order >= 1:
        raise ValueError(f"interactions must be 1 (main effects alone) or more, not {order}")
    return [term for size in range(1, min(order, len(factors)) + 1) for term in combinations(factors, size)]


def named(cells: Sequence[tuple[Any, ...]]) -> str:
    """Some cells by name, the rest by number.

    >>> named([("fog", 1), ("fog", 2), ("rain", 1), ("rain", 2)])
    '(fog, 1), (fog, 2), (rain, 1) and 1 more'
    """
    shown = ", ".join(f"({', '.join(map(str, cell))})" for cell in cells[:MOST_NAMED])
    return shown + (f" and {len(cells) - MOST_NAMED} more" if len(cells) > MOST_NAMED else "")


def summed(values: NDArray[Any], bins: Indices, size: int) -> Floats:
    """The sum of the values in each of `size` bins; `bins` holds the bin of each value."""
    return np.asarray(np.bincount(bins, values, size), dtype=np.float64)


@dataclass(frozen=True)
class Factorial:
    """One response under some factors: n rows in C cells, the combinations of levels that have a value.

    levels   the levels of each factor, in order of appearance
    codes    (C, F) which level of each factor a cell has
    rounding squared deviations of this size and less are rounding errors of the n values
    """

    response: str
    factors: tuple[str, ...]
    levels: tuple[tuple[Any, ...], ...]
    codes: Indices
    values: Floats
    cell_of: Indices
    centre: float
    rounding: float
    notes: tuple[str, ...]

    @cached_property
    def counts(self) -> Floats:
        """Values per cell, (C,)."""
        return summed(np.ones(len(self.values)), self.cell_of, len(self.codes))

    @cached_property
    def means(self) -> Floats:
        """Mean of each cell less `centre`, (C,)."""
        return summed(self.values, self.cell_of, len(self.codes)) / self.counts

    @cached_property
    def squares(self) -> Floats:
        """Squared deviations from the mean of the cell, summed per cell, (C,)."""
        return summed((self.values - self.means[self.cell_of]) ** 2, self.cell_of, len(self.codes))

    @property
    def total(self) -> float:
        """Squared deviations from the mean of all values."""
        return float(((self.values - self.values.mean()) ** 2).sum())

    def shape(self, term: Term) -> tuple[int, ...]:
        """Number of levels of each factor of a term."""
        return tuple(len(self.levels[self.factors.index(factor)]) for factor in term)

    def combination(self, term: Term) -> Indices:
        """For each cell, the number of its combination of the term's levels; the last factor runs fastest."""
        columns = [self.codes[:, self.factors.index(factor)] for factor in term]
        return np.asarray(np.ravel_multi_index(columns, self.shape(term)), dtype=np.int64)

    def combinations(self, term: Term) -> list[tuple[Any, ...]]:
        """All combinations of the term's levels, numbered as in `combination`."""
        of_factor = [self.levels[self.factors.index(factor)] for factor in term]
        return list(product(*of_factor))

    def empty(self, term: Term) -> list[tuple[Any, ...]]:
        """The combinations of the term's levels that have no value."""
        counts = np.bincount(self.combination(term), minlength=int(np.prod(self.shape(term))))
        return [cell for cell, count in zip(self.combinations(term), counts, strict=True) if not count]

    def coding(self, term: Term) -> Floats:
        """Columns of a term in a linear model, a row per combination of its levels; they sum to 0 over each factor."""
        parts = [helmert(size).T * size**0.5 for size in self.shape(term)]
        return np.asarray(reduce(np.kron, parts), dtype=np.float64)


def contrasts(sizes: Mapping[str, int], term: Term) -> Floats:
    """Orthonormal contrasts of a term over the cells of factors with so many levels: (df, cells), last factor fastest.

    >>> contrasts({"model": 2, "level": 2}, ("model",)).round(3)
    array([[ 0.5,  0.5, -0.5, -0.5]])
    """
    parts = [helmert(size) if factor in term else np.full((1, size), size**-0.5) for factor, size in sizes.items()]
    return np.asarray(reduce(np.kron, parts), dtype=np.float64)


def factorial(frame: pd.DataFrame, response: str, factors: Sequence[str]) -> Factorial:
    """Sort the rows of a frame into the cells of its factors.

    Rows whose response is missing (an AUROC that does not exist) are left out with a note that counts them. A column
    that is not there, an infinite value, a missing level, a factor with one level only: an error.
    """
    for column in (response, *factors):
        if column not in frame.columns:
            raise ValueError(f"the table has no column {column!r}: it has {', '.join(map(str, frame.columns))}")
    if not factors or len({response, *factors}) != len(factors) + 1:
        raise ValueError(f"name the response and one or more factors, each once: not {response!r} and {list(factors)}")
    try:
        values = frame[response].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {response!r} must hold numbers, not {frame[response].dtype}") from error
    if np.isinf(values).any():
        raise ValueError(f"column {response!r} holds {int(np.isinf(values).sum())} infinite values: correct them first")
    kept = ~np.isnan(values)
    missing = int((~kept).sum())
    notes = (f"{missing} of {len(values)} rows left out: no value of {response}",) if missing else ()
    codes, levels = [], []
    for factor in factors:
        code, unique = pd.factorize(frame[factor][kept])
        if (code < 0).any():
            raise ValueError(f"factor {factor!r} is missing in {int((code < 0).sum())} rows: fill it in or drop them")
        if len(unique) < 2:
            raise ValueError(f"factor {factor!r} has {len(unique)} level(s) with values of {response}: leave it out")
        codes.append(code)
        levels.append(tuple(unique))
    cells, cell_of = np.unique(np.stack(codes, axis=1).astype(np.int64), axis=0, return_inverse=True)
    values = values[kept]
    centre = float(values.mean())
    rounding = len(values) * (8 * np.finfo(np.float64).eps * float(np.abs(values).max())) ** 2
    return Factorial(
        response, tuple(factors), tuple(levels), cells, values - centre, cell_of.ravel(), centre, rounding, notes
    )


class LinearModel:
    """Least squares of the cell means, weighted by the values in each, on an intercept and some terms.

    The columns of a term are orthogonal in a balanced design, so the normal equations are well conditioned. Empty cells
    are allowed: what cannot be estimated lowers `rank`.
    """

    def __init__(self, design: Factorial, terms: Sequence[Term]) -> None:
        self.design = design
        self.terms = list(terms)
        blocks = [np.ones((len(design.codes), 1))]
        blocks += [design.coding(term)[design.combination(term)] for term in self.terms]
        self._widths = [block.shape[1] for block in blocks]
        root = np.sqrt(design.counts)
        columns = root[:, None] * np.hstack(blocks)
        size, direction = np.linalg.eigh(columns.T @ columns)
        estimable = size > size[-1] * SINGULAR
        self.rank = int(estimable.sum())
        self._basis = direction[:, estimable]
        self._root = self._basis / np.sqrt(size[estimable])
        self.coefficients: Floats = self._root @ (self._root.T @ (columns.T @ (root * design.means)))
        self.fitted: Floats = columns @ self.coefficients
        residual = root * design.means - self.fitted
        self.error = float(design.squares.sum() + residual @ residual)
        self.error_df = len(design.values) - self.rank

    def marginal(self, by: Term) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Marginal means of the combinations of some factors, all other factors averaged with equal weights.

        Gives the means (K,), their covariance (K, K) for an error variance of 1, and which of them can be estimated.
        """
        size = int(np.prod(self.design.shape(by)))
        index = np.stack(np.unravel_index(np.arange(size), self.design.shape(by)), axis=1)
        rows = np.zeros((size, sum(self._widths)))
        rows[:, 0] = 1
        start = 1
        for term, width in zip(self.terms, self._widths[1:], strict=True):
            if set(term) <= set(by):
                columns = [index[:, by.index(factor)] for factor in term]
                combination = np.ravel_multi_index(columns, self.design.shape(term))
                rows[:, start : start + width] = self.design.coding(term)[combination]
            start += width
        estimable = np.abs(rows - rows @ self._basis @ self._basis.T).max(axis=1) < 1e-6
        scaled = rows @ self._root
        return rows @ self.coefficients + self.design.centre, scaled @ scaled.T, estimable
