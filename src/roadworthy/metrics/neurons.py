"""Neurons: which on-off combinations of a layer the data has shown, and how similar its activation patterns are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

Words = NDArray[np.uint64]

MOST_CELLS = 40_000_000
"""On-off combinations of all tuples that are looked at; where there are more, a sample of tuples is drawn."""
SAMPLE = 20_000
LARGEST_K = 10
ROWS = 2**15
"""Images that are counted at once; their number stays exact in float32, which the matrix products need."""


@dataclass(frozen=True)
class KActivation:
    """Neuron k-activation of a layer of `neurons` over `images`.

    value     share of all C(neurons, k) 2^k cells that the images occupy; from a sample of tuples, its estimate
    tuples    tuples looked at: all of them where `exact`
    shares    (tuples,) share of its 2^k cells that each tuple occupies; where not exact, the value is bounded by
              `roadworthy.statistics.mean_interval(shares, range(tuples), 0, 1)`
    never_on  neurons that no image activates;  always_on  neurons that every image activates
    """

    value: float
    k: int
    neurons: int
    images: int
    tuples: int
    exact: bool
    shares: NDArray[np.float64]
    never_on: int
    always_on: int

    @property
    def occupied(self) -> int | None:
        """Number of occupied cells; None where only a sample was looked at."""
        return round(float(np.sum(self.shares)) * (1 << self.k)) if self.exact else None

    @property
    def cells(self) -> int:
        """C(neurons, k) 2^k."""
        return math.comb(self.neurons, self.k) << self.k

    @property
    def reason(self) -> str:
        """What makes the value less than it seems; empty where nothing does."""
        if not self.images:
            return "no images"
        return "no neuron is ever on" if self.never_on == self.neurons else ""


class NeuronCoverage:
    """Neuron k-activation (equation 2) of one layer, fed batch by batch; memory does not grow with the images.

        M_neu-k-act = occupied cells / (C(c, k) 2^k)

    A cell is k of the layer's c neurons with one on-off combination; it is occupied where some image shows it. A neuron
    is on where its activation is above `threshold` (ReLU: above 0). Exact for at most 40,000,000 cells; where there are
    more, a sample of 20,000 tuples is drawn, evenly and with replacement, and the value is an estimate.

    >>> layer = NeuronCoverage(neurons=2, k=2)
    >>> layer.add([[0.5, 0.0], [0.0, 0.0]])
    >>> layer.add([[1.0, 2.0]])
    >>> result = layer.result()
    >>> result.value, result.occupied, result.cells
    (0.75, 3, 4)
    """

    def __init__(
        self, neurons: int, k: int = 2, *, threshold: float = 0.0, sample: int = SAMPLE, seed: int = 0
    ) -> None:
        if not 1 <= k <= min(neurons, LARGEST_K):
            raise ValueError(f"k must lie between 1 and {min(neurons, LARGEST_K)} for {neurons} neurons, not {k}")
        if sample < 1:
            raise ValueError(f"a sample needs at least one tuple, not {sample}")
        self.neurons, self.k, self.threshold = neurons, k, threshold
        self.images = 0
        self.exact = math.comb(neurons, k) << k <= MOST_CELLS
        self._on = np.zeros(neurons, np.int64)
        self._sampled = None if self.exact else _draw_tuples(neurons, k, sample, seed)
        count = math.comb(neurons, k) if self.exact else sample
        self._seen = np.zeros((2**k, count), bool)

    def add(self, activations: ArrayLike) -> None:
        """Count some more images: activations (n, neurons), or (n, ...) with as many values per image."""
        table = np.asarray(activations)
        if table.ndim < 2 or math.prod(table.shape[1:]) != self.neurons:
            raise ValueError(f"activations must be (images, {self.neurons}), one per neuron, not {table.shape}")
        on = table.reshape(len(table), self.neurons) > self.threshold
        if table.dtype.kind == "f" and np.isnan(table).any():
            raise ValueError("activations must not be NaN")
        self.images += len(on)
        self._on += on.sum(axis=0)
        for start in range(0, len(on), ROWS):
            self._seen |= self._shown(on[start : start + ROWS])

    def result(self) -> KActivation:
        """The coverage so far."""
        shares = self._seen.mean(axis=0)
        return KActivation(
            value=float(shares.mean()) if self.images else math.nan,
            k=self.k,
            neurons=self.neurons,
            images=self.images,
            tuples=len(shares),
            exact=self.exact,
            shares=shares,
            never_on=int((self._on == 0).sum()),
            always_on=int((self._on == self.images).sum()) if self.images else 0,
        )

    def _shown(self, on: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which combinations (2^k, tuples) these images show."""
        if self._sampled is None:
            return _cell_counts(on.astype(np.float32), self.k) > 0
        states, columns = (_pack(~on), _pack(on)), self._sampled.T
        combination = [
            np.bitwise_and.reduce([states[state][members] for state, members in zip(which, columns, strict=True)])
            for which in product((0, 1), repeat=self.k)
        ]
        return np.array([words.any(axis=1) for words in combination])


@dataclass(frozen=True)
class Pattern:
    """Neuron activation pattern of the images of one scenario.

    value   share of images whose number of active neurons lies far from that of most; NaN without images
    apart   (n,) which images these are
    sizes   (groups,) images per group;  largest  index of the largest group, the lowest of equals
    """

    value: float
    apart: NDArray[np.bool_]
    sizes: NDArray[np.int64]
    largest: int
    reason: str = ""


def activation_pattern(activations: ArrayLike, groups: int = 10, *, threshold: float = 0.0) -> Pattern:
    """Neuron activation pattern (equation 3) of images of one scenario: activations (n, c).

        M_neu-pattern = sum of |G_i| over i not in {j - 1, j, j + 1} / n,   G_j the largest group

    An image with a active neurons is in group i of 1..g where c (i - 1) / g <= a < c i / g, the last group closed on
    both sides. A low value means that the layer answers the images of the scenario in a similar way; a layer that never
    fires does so too, and `reason` says so.

    >>> activation_pattern([[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], groups=4).value
    0.25
    """
    table = np.asarray(activations)
    if table.ndim < 2 or 0 in table.shape[1:]:
        raise ValueError(f"activations must be (images, neurons), not {table.shape}")
    if groups < 1:
        raise ValueError(f"at least one group is needed, not {groups}")
    if table.dtype.kind == "f" and np.isnan(table).any():
        raise ValueError("activations must not be NaN")
    if not len(table):
        return Pattern(math.nan, np.zeros(0, bool), np.zeros(groups, np.int64), 0, "no images")
    on = table.reshape(len(table), -1) > threshold
    active = on.sum(axis=1)
    index = np.minimum(active * groups // on.shape[1], groups - 1)
    sizes = np.bincount(index, minlength=groups)
    largest = int(np.argmax(sizes))
    apart = np.abs(index - largest) > 1
    return Pattern(float(apart.mean()), apart, sizes, largest, "" if active.any() else "no neuron is ever on")


@dataclass(frozen=True)
class GroupAdvice:
    """How wide groups of active neurons are against how much their number scatters between images of one scenario.

    spread     standard deviation of the number of active neurons within scenarios, pooled over `scenarios` of two
               images or more; NaN where there is none
    width      neurons to a group, c / g
    advised    the largest g whose three groups around the middle hold the scatter of +-2 spreads: 3 c / g >= 4 spread,
               between 4 (with 3 groups or fewer hardly an image can lie apart) and c; None without a spread
    """

    neurons: int
    groups: int
    spread: float
    scenarios: int

    @property
    def width(self) -> float:
        """Neurons to a group."""
        return self.neurons / self.groups

    @property
    def advised(self) -> int | None:
        """The number of groups at which an image apart is one that the usual scatter does not explain."""
        if math.isnan(self.spread) or self.neurons < FEWEST_GROUPS:
            return None
        if not self.spread:
            return self.neurons
        return int(np.clip(math.floor(3 * self.neurons / (4 * self.spread)), FEWEST_GROUPS, self.neurons))


FEWEST_GROUPS = 4
"""With fewer, the largest group and its neighbours are all groups, unless it is the first or the last of three."""


def group_advice(active: ArrayLike, scenarios: Sequence[str] | NDArray[np.str_], neurons: int, g: int) -> GroupAdvice:
    """What to know of a number of groups g: active (n,) neurons of each image, of a layer of so many `neurons`.

    >>> advice = group_advice([10, 14, 30, 34], ["day", "day", "night", "night"], neurons=64, g=10)
    >>> round(advice.spread, 3), advice.width, advice.advised
    (2.828, 6.4, 16)
    """
    counts, names = np.asarray(active, dtype=np.float64), np.asarray(scenarios)
    if names.shape != counts.shape or counts.ndim != 1:
        raise ValueError(f"a scenario is needed for each image, not {names.shape} for {counts.shape}")
    scenario_of = np.unique(names, return_inverse=True)[1]
    sizes = np.bincount(scenario_of)
    means = np.bincount(scenario_of, counts) / sizes
    freedom = int((sizes - 1).sum())
    spread = math.sqrt(float(((counts - means[scenario_of]) ** 2).sum()) / freedom) if freedom else math.nan
    return GroupAdvice(neurons, g, spread, int((sizes > 1).sum()))


def patterns_by_scenario(
    activations: ArrayLike, scenarios: Sequence[str] | NDArray[np.str_], groups: int = 10, *, threshold: float = 0.0
) -> dict[str, Pattern]:
    """`activation_pattern` of the images of each scenario, by its name, in alphabetical order.

    >>> patterns = patterns_by_scenario([[1, 1], [1, 0], [0, 0]], ["day", "day", "night"], groups=2)
    >>> {name: pattern.value for name, pattern in patterns.items()}
    {'day': 0.0, 'night': 0.0}
    """
    table, names = np.asarray(activations), np.asarray(scenarios)
    if names.shape != (len(table),):
        raise ValueError(f"{len(table)} images need a scenario each, not {names.shape}")
    return {
        str(name): activation_pattern(table[names == name], groups, threshold=threshold) for name in np.unique(names)
    }


def _cell_counts(on: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """How many rows of a table of 0 and 1 (n, c) show each combination of each tuple: (2^k, C(c, k)), in order.

    Pairs come from one matrix product. Longer tuples are a first neuron and a shorter tuple of later ones, counted
    among the rows that have the first on; what is left of the count among all rows has it off.
    """
    if k == 1:
        alone = on.sum(axis=0)
        return np.stack([len(on) - alone, alone])
    if k == 2:
        both = on.T @ on
        first, second = np.triu_indices(on.shape[1], 1)
        alone, pair = np.diag(both), both[first, second]
        only_first, only_second = alone[first] - pair, alone[second] - pair
        return np.stack([len(on) - only_first - only_second - pair, only_second, only_first, pair])
    shorter = _cell_counts(on, k - 1)
    parts = []
    for neuron in range(on.shape[1] - k + 1):
        with_first = _cell_counts(on[on[:, neuron] > 0, neuron + 1 :], k - 1)
        parts.append(np.concatenate([shorter[:, -with_first.shape[1] :] - with_first, with_first]))
    return np.concatenate(parts, axis=1)


def _pack(on: NDArray[np.bool_]) -> Words:
    """(n, neurons) bool as (neurons, words): the images of each neuron bit by bit, 64 to a word."""
    padded = np.zeros((on.shape[1], -(-len(on) // 64) * 64), bool)
    padded[:, : len(on)] = on.T
    return np.packbits(padded, axis=1).view(np.uint64)


def _draw_tuples(neurons: int, k: int, sample: int, seed: int) -> NDArray[np.intp]:
    """Tuples (sample, k) of different neurons, each as likely."""
    rng = np.random.default_rng(seed)
    tuples = np.empty((sample, 0), np.intp)
    for chosen in range(k):
        draw = rng.integers(neurons - chosen, size=sample)
        for column in tuples.T:
            draw += draw >= column
        tuples = np.sort(np.column_stack([tuples, draw]), axis=1)
    return tuples
