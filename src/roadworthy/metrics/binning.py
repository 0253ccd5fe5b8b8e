"""Bins: images sorted by a probability into bins of equal width."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics.weighting import Floats, Weights, weighted_sum

ECE_BINS = 10
"""Bins of the expected calibration error and of over- and underconfidence."""


class ProbabilityBins:
    """Images sorted once into bins of equal width of a probability (n,), however many weights they are counted with.

    Bins are right-closed, (k/bins, (k+1)/bins], the first closed on both sides; a probability of exactly 1 is in the
    last. Edges are k/bins in float64.

    >>> ProbabilityBins(np.array([0.0, 0.5, 0.6, 1.0]), bins=2).index
    array([0, 0, 1, 1])
    """

    def __init__(self, probability: Floats, bins: int = ECE_BINS) -> None:
        if bins < 1:
            raise ValueError(f"at least one bin is needed, not {bins}")
        self.bins = bins
        self.index: NDArray[np.intp] = np.searchsorted(np.arange(1, bins) / bins, probability, side="left")

    def sums(self, values: Floats, weights: Weights) -> Floats:
        """The sums (B, bins) over the images of each bin of weights (B, n) times values (n,); 0 where one is empty.

        >>> ProbabilityBins(np.array([0.2, 0.3, 0.9]), bins=2).sums(np.array([1.0, 2.0, 3.0]), np.ones((1, 3)))
        array([[3., 3.]])
        """
        sums = np.zeros((len(weights), self.bins))
        for filled, inside in self._rows:
            sums[:, filled] = weighted_sum(np.take(weights, inside, axis=1), values[inside])
        return sums

    @cached_property
    def _rows(self) -> list[tuple[int, NDArray[np.intp]]]:
        """The images of each bin that is not empty."""
        return [(int(filled), np.flatnonzero(self.index == filled)) for filled in np.unique(self.index)]
