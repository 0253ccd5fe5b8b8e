"""Uncertainty of boxes: does the variance that a localizer states for each coordinate describe its errors?

All functions take the true coordinates, the predicted ones and their variances, (n, 4) each, in pixels and square
pixels. They read a prediction as a normal distribution with mean mu and standard deviation s for each coordinate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import erf, ndtr

from roadworthy.metrics.weighting import Floats, Weights, ratio, weighted_sum

VARIANCE_FLOOR = 0.01
"""Square pixels: likelihood and reliability take a smaller variance as this, a standard deviation of 0.1 pixel.

True boxes are whole pixels, so nobody can know a coordinate better. Without a floor a single image whose passes agree
exactly would make the NLL infinite. Sharpness and the order of images by uncertainty use the variance as stated.
"""
LEVELS = np.arange(1, 11) / 10
"""The levels of both forms of the regression ECE: 0.1, 0.2, ..., 1.0."""
COORDINATES = ("x0", "y0", "x1", "y1")
"""What the four coordinates of a box are called, in their order."""
QUANTILE_CEILING = 0.2
"""What `quantile_ece` cannot exceed where errors go to both sides equally often."""


class BoxReliability(NamedTuple):
    """What a reliability diagram of boxes shows: levels (10,) and the shares (4, 10) observed for x0, y0, x1, y1."""

    levels: Floats
    observed: Floats


def gaussian_nll(true: Floats, boxes: Floats, variance: Floats) -> Floats:
    """Negative log-likelihood (n,) in nats of the true coordinates, the mean over the four of a box.

        NLL = 0.5 log(2 pi s^2) + (y - mu)^2 / (2 s^2),   s^2 at least 0.01 square pixels

    >>> gaussian_nll(np.zeros((1, 4)), np.full((1, 4), 2.0), np.full((1, 4), 4.0)).round(4)
    array([2.1121])
    """
    floored = np.maximum(variance, VARIANCE_FLOOR)
    of_coordinates = 0.5 * np.log(2 * math.pi * floored) + (true - boxes) ** 2 / (2 * floored)
    mean: Floats = of_coordinates.mean(axis=1)
    return mean


def box_cdf(true: Floats, boxes: Floats, variance: Floats) -> Floats:
    """The predicted probability (n, 4) that a coordinate is at most the true one: Phi((y - mu) / s), s^2 at least 0.01.

    Uniform between 0 and 1 where the stated uncertainty is right.

    >>> box_cdf(np.array([[0.0, 2.0, 4.0, -2.0]]), np.zeros((1, 4)), np.full((1, 4), 4.0)).round(3)
    array([[0.5  , 0.841, 0.977, 0.159]])
    """
    probability: Floats = ndtr(_normalised_error(true, boxes, variance))
    return probability


def central_probability(true: Floats, boxes: Floats, variance: Floats) -> Floats:
    """The probability (n, 4) of the smallest central interval that holds the true coordinate, s^2 at least 0.01.

        | 2 Phi(z) - 1 |,   z = (y - mu) / s

    Uniform between 0 and 1 where the stated uncertainty is right; to which side an error goes makes no difference.

    >>> central_probability(np.array([[0.0, 2.0, 4.0, -2.0]]), np.zeros((1, 4)), np.full((1, 4), 4.0)).round(3)
    array([[0.   , 0.683, 0.954, 0.683]])
    """
    probability: Floats = erf(np.abs(_normalised_error(true, boxes, variance)) / math.sqrt(2))
    return probability


def _normalised_error(true: Floats, boxes: Floats, variance: Floats) -> Floats:
    z: Floats = (true - boxes) / np.sqrt(np.maximum(variance, VARIANCE_FLOOR))
    return z


def observed_shares(probability: Floats, weights: Weights) -> Floats:
    """The share (B, 4, 10) of images whose probability (n, 4) is at most each level, for weights (B, n).

    >>> observed_shares(np.array([[0.05] * 4, [0.3] * 4]), np.ones((1, 2)))[0, 0]
    array([0.5, 0.5, 1. , 1. , 1. , 1. , 1. , 1. , 1. , 1. ])
    """
    lowest_level = np.searchsorted(LEVELS, probability, side="left")
    total = weights.sum(axis=1, dtype=np.float64)
    counts = np.zeros((len(weights), probability.shape[1], len(LEVELS)))
    for coordinate, of_coordinate in enumerate(lowest_level.T):
        for level in np.unique(of_coordinate):
            inside = np.flatnonzero(of_coordinate == level)
            counts[:, coordinate, level] = np.take(weights, inside, axis=1).sum(axis=1, dtype=np.float64)
    reached = np.cumsum(counts, axis=2)
    return ratio(reached, np.broadcast_to(total[:, None, None], reached.shape))


def quantile_ece(true: Floats, boxes: Floats, variance: Floats, weights: Weights) -> Floats:
    """Regression ECE (B,) by one-sided quantiles, for weights (B, n): it shows bias, and saturates without it.

        ECE = mean over coordinates j, over levels l of | share of images i with Phi((y_ij - mu_ij) / s_ij) <= l  -  l |

    The level 1.0 is one of the ten, though every image reaches it, so that it lies between 0 and 0.45. Where a share b
    of the errors y - mu of a coordinate is below 0 and none is 0, whatever s is stated,

        ECE of the coordinate <= 0.2 + | b - 0.5 | / 2

    and this is reached: 0.2 by errors that go to both sides equally often with s far too small or far too large, 0.45
    by those that go to one side alone. Errors of exactly 0 lie in the middle quantile: 0.25 where all are.

    >>> sides = np.array([[9.0] * 4, [-9.0] * 4])
    >>> quantile_ece(sides, np.zeros((2, 4)), np.ones((2, 4)), np.array([[1.0, 1.0], [1.0, 0.0]])).round(6)
    array([0.2 , 0.45])
    """
    return _gap(box_cdf(true, boxes, variance), weights)


def interval_ece(true: Floats, boxes: Floats, variance: Floats, weights: Weights) -> Floats:
    """Regression ECE (B,) by central intervals, for weights (B, n): 0 to 0.45, with and without bias.

        ECE = mean over coordinates j, over levels p of | share of images i with | 2 Phi(z_ij) - 1 | <= p  -  p |
        z_ij = (y_ij - mu_ij) / s_ij

    Both ends of the stated uncertainty reach 0.45: far too small, no true coordinate is in its intervals; far too
    large, every one is in all of them. Errors to one side that are as large as stated are 0 here and 0.25 in
    `quantile_ece`.

    >>> sides = np.array([[9.0] * 4, [-9.0] * 4])
    >>> interval_ece(sides, np.zeros((2, 4)), np.ones((2, 4)), np.array([[1.0, 1.0], [1.0, 0.0]])).round(6)
    array([0.45, 0.45])
    """
    return _gap(central_probability(true, boxes, variance), weights)


def _gap(probability: Floats, weights: Weights) -> Floats:
    gap: Floats = np.abs(observed_shares(probability, weights) - LEVELS).mean(axis=(1, 2))
    return gap


def spread_of_sigma(variance: Floats, weights: Weights) -> Floats:
    """The variance (B,) of the standard deviation over images and coordinates, divided by their number, not one less.

    >>> spread_of_sigma(np.array([[1.0, 1.0, 9.0, 9.0]]), np.ones((1, 1)))
    array([1.])
    """
    sigma = np.sqrt(variance)
    from_centre = sigma - sigma.mean()
    total = weights.sum(axis=1, dtype=np.float64)
    mean_square = ratio(weighted_sum(weights, (from_centre**2).mean(axis=1)), total)
    mean = ratio(weighted_sum(weights, from_centre.mean(axis=1)), total)
    spread: Floats = np.maximum(mean_square - mean**2, 0.0)
    return spread
