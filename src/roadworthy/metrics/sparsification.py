"""Sparsification: how far the error falls where the most uncertain answers are left out, and how far it could fall."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.metrics.selective import weighted_risk_area
from roadworthy.metrics.weighting import Floats, Weights

POINTS = 20
"""How many shares of kept images a curve has: 0.05, 0.10, ..., 1.0."""


class Sparsification(NamedTuple):
    """The curve of sparsification, all arrays (points,).

    kept    the share of images that are kept, the least uncertain ones
    error   their mean error
    oracle  the mean error of the images with the smallest errors: what a perfect uncertainty would give
    """

    kept: Floats
    error: Floats
    oracle: Floats


def sparsification(error: ArrayLike, uncertainty: ArrayLike, points: int = POINTS) -> Sparsification:
    """The mean error of the least uncertain images by the share that is kept, from error (n,) and uncertainty (n,).

    A share that is not a whole number of images counts the last one in part. Images of equal uncertainty count with the
    mean error of all of these, so that their order does not matter. NaN without images.

    >>> curve = sparsification([0.0, 1.0, 2.0, 3.0], [0.1, 0.3, 0.2, 0.4], points=4)
    >>> curve.kept, curve.error, curve.oracle
    (array([0.25, 0.5 , 0.75, 1.  ]), array([0. , 1. , 1. , 1.5]), array([0. , 0.5, 1. , 1.5]))
    """
    errors, uncertain = np.asarray(error, dtype=np.float64), np.asarray(uncertainty, dtype=np.float64)
    if errors.ndim != 1 or errors.shape != uncertain.shape:
        raise ValueError(f"there must be an uncertainty per error, not {uncertain.shape} for errors {errors.shape}")
    if np.isnan(errors).any() or np.isnan(uncertain).any():
        raise ValueError("errors and uncertainties must not be NaN")
    kept = np.arange(1, points + 1) / points
    if not len(errors):
        return Sparsification(kept, *np.full((2, points), np.nan))
    return Sparsification(kept, _kept_errors(errors, uncertain, kept), _kept_errors(errors, errors, kept))


def _kept_errors(errors: Floats, uncertainty: Floats, kept: Floats) -> Floats:
    _, block, sizes = np.unique(uncertainty, return_inverse=True, return_counts=True)
    shared = np.bincount(block, errors) / sizes
    summed = np.concatenate([[0.0], np.cumsum(np.repeat(shared, sizes))])
    images = kept * len(errors)
    mean: Floats = np.interp(images, np.arange(len(summed)), summed) / images
    return mean


def sparsification_area(error: Floats, uncertainty: Floats, weights: Weights) -> Floats:
    """AUSE (B,) for weights (B, n): the area between the curve of the uncertainty and that of the oracle, at least 0.

        AUSE = mean over images i of (mean error of the images at most as uncertain as i)
             - mean over images i of (mean error of the images at most as wrong as i)

    Images of equal uncertainty are kept together. The oracle sorts by error and, where errors are equal, by the
    uncertainty: what is sorted rightly by its uncertainty has an AUSE of exactly 0. It is in the unit of the error.

    >>> errors = np.array([0.0, 0.5, 1.0])
    >>> sparsification_area(errors, np.array([0.1, 0.2, 0.3]), np.ones((1, 3)))
    array([0.])
    >>> sparsification_area(errors, np.array([0.3, 0.2, 0.1]), np.ones((1, 3))).round(4)
    array([0.5])
    """
    _, by_error = np.unique(np.stack([error, uncertainty]), axis=1, return_inverse=True)
    reached = weighted_risk_area(-uncertainty, error, weights)
    return reached - weighted_risk_area(-by_error.reshape(-1).astype(np.float64), error, weights)
