"""Activation patterns: which neurons are on, and by how many an image differs from all training images of a class."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.head import find_head
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count, require_layer
from roadworthy.monitors.correct import correct_parts
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned

WORD = 64
"""Neurons that one number holds."""
BLOCK = 2**16
"""Distances that are computed at once: their numbers stay in the processor's cache."""
FEW = 8
"""Patterns are looked at one by one where at most one in this many can still be nearer than the nearest so far."""
LEAST_MERGE = 2**14
"""New patterns wait until there are so many, or half as many as there are known, before they are sorted in."""
Words = NDArray[np.uint64]


class PatternSet:
    """Distinct on/off patterns of some neurons, 64 neurons in a number: exact nearest Hamming distances.

    neurons  how many bits a pattern has;  words: patterns to begin with, (n, W), as the property `words` gives them

    The distance of two patterns is the number of bits that differ: the population count of their exclusive or. Numbers
    are taken block by block, so the memory beside the patterns themselves is small and fixed.

    >>> patterns = PatternSet(3)
    >>> patterns.add(np.array([[True, False, False], [True, True, True], [True, False, False]]))
    >>> len(patterns), patterns.nearest(np.array([[True, True, True], [False, False, False], [False, True, True]]))
    (2, array([0, 1, 1]))
    """

    def __init__(self, neurons: int, words: Words | None = None) -> None:
        if neurons < 1:
            raise InputError(f"a pattern needs at least one neuron, not {neurons}")
        self.neurons, self._width = neurons, -(-neurons // WORD)
        self._columns: Words = np.zeros((self._width, 0), np.uint64)
        self._waiting: list[Words] = []
        self._waiting_rows = 0
        if words is not None:
            if words.ndim != 2 or words.shape[1] != self._width:
                raise InputError(f"patterns of {neurons} neurons are (n, {self._width}) numbers, not {words.shape}")
            self._columns = _distinct([words.T])

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @property
    def columns(self) -> Words:
        """The patterns, sorted, a column of numbers each, (W, n)."""
        if self._waiting:
            self._columns = _distinct([self._columns, *self._waiting])
            self._waiting, self._waiting_rows = [], 0
        return self._columns

    @property
    def words(self) -> Words:
        """The patterns as rows of numbers (n, W), sorted: what to store."""
        return np.ascontiguousarray(self.columns.T)

    @property
    def nbytes(self) -> int:
        """The memory that the patterns take."""
        return self.columns.nbytes

    def add(self, patterns: NDArray[np.bool_]) -> None:
        """Take in patterns (n, neurons), True = on; those that are there already change nothing."""
        packed = self._packed(patterns)
        self._waiting.append(packed)
        self._waiting_rows += packed.shape[1]
        if self._waiting_rows >= max(LEAST_MERGE, self._columns.shape[1] // 2):
            self._columns = self.columns

    def nearest(self, patterns: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The distance (N,) of each pattern (N, neurons) to the nearest of the set; `neurons` + 1 where it is empty."""
        queries, columns = self._packed(patterns), self.columns
        least = np.full(queries.shape[1], self.neurons + 1, np.int64)
        search = _Search(self._width, self.neurons, min(BLOCK, columns.shape[1] * len(least)))
        for start in range(0, columns.shape[1], BLOCK):
            block = columns[:, start : start + BLOCK]
            together = max(1, BLOCK // block.shape[1])
            for first in range(0, len(least), together):
                shown = slice(first, first + together)
                search.lower(least[shown], block, queries[:, shown])
        return least

    def _packed(self, patterns: NDArray[np.bool_]) -> Words:
        """Patterns (n, neurons) as columns of numbers (W, n)."""
        rows = np.asarray(patterns)
        if rows.dtype != np.bool_ or rows.ndim != 2 or rows.shape[1] != self.neurons:
            raise InputError(
                f"patterns must be (n, {self.neurons}) of True and False, not {rows.shape} of {rows.dtype}"
            )
        packed = np.zeros((len(rows), 8 * self._width), np.uint8)
        packed[:, : -(-self.neurons // 8)] = np.packbits(rows, axis=1)
        return np.ascontiguousarray(packed.view("<u8").astype(np.uint64, copy=False).T)


class _Search:
    """Distances of one block at a time, in memory that is used again for each."""

    def __init__(self, width: int, neurons: int, cells: int) -> None:
        self._width = width
        self._differing = np.empty(cells, np.uint64)
        self._count = np.empty(cells, np.uint8)
        self._sum = np.empty(cells, np.uint8 if neurons + 1 < 2**8 else np.uint32)

    def lower(self, least: NDArray[np.int64], block: Words, queries: Words) -> None:
        """Lower the least distances (N,) of queries (W, N) where a pattern of the block (W, n) is nearer.

        N n is at most `BLOCK`. For a single query, patterns whose first number alone differs in too many
        bits are left out.
        """
        shape = (queries.shape[1], block.shape[1])
        cells = shape[0] * shape[1]
        distances: NDArray[Any] = self._sum[:cells].reshape(shape)
        self._differences(block, queries, 0, distances)
        if shape[0] == 1 and self._width > 1:
            nearer = np.flatnonzero(distances[0] < distances.dtype.type(least[0]))  # other types would be converted
            if FEW * len(nearer) <= shape[1]:
                if len(nearer):
                    rest = np.bitwise_count(block[1:, nearer] ^ queries[1:]).sum(axis=0, dtype=np.int64)
                    least[0] = min(least[0], int((distances[0, nearer] + rest).min()))
                return
        count = self._count[:cells].reshape(shape)
        for word in range(1, self._width):
            self._differences(block, queries, word, count)
            np.add(distances, count, out=distances)
        np.minimum(least, distances.min(axis=1), out=least)

    def _differences(self, block: Words, queries: Words, word: int, out: NDArray[Any]) -> None:
        """Write to `out`, (N, n), how many bits of one number differ."""
        differing = self._differing[: out.size].reshape(out.shape)
        np.bitwise_xor(block[word], queries[word][:, None], out=differing)
        np.bitwise_count(differing, out=out)


def _distinct(parts: list[Words]) -> Words:
    """The distinct columns of some numbers (W, n), sorted."""
    columns = np.concatenate(parts, axis=1)
    if not columns.shape[1]:
        return np.ascontiguousarray(columns)
    columns = columns[:, np.lexsort(columns)]
    is_new = np.ones(columns.shape[1], np.bool_)
    is_new[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    return np.ascontiguousarray(columns[:, is_new])


@registered(MONITORS, "activation_patterns")
class ActivationPatterns(Monitor):
    """-min Hamming distance of an image's pattern to those that training images have for which the class was right.

    The pattern of an image says of each neuron of a layer whether it is on: its feature is above 0, whatever the layer;
    the method is made for a layer behind a ReLU, as what goes into the last linear one mostly is. The patterns of a
    class are those of its correctly classified training images; an image is held against the class that the model
    answers. The method itself accepts up to `gamma` differing neurons: it rejects where the score is below -gamma. A
    binary decision diagram of the patterns, enlarged `gamma` times, accepts the same images. A predicted class without
    a correctly classified training image has no pattern: its images score -(neurons + 1), and a note names it.

    gamma    how many neurons may differ
    layer    whose features are used; None: what goes into the last linear layer
    neurons  how many neurons of that layer are looked at: those whose weight to the predicted class, which is the
             gradient of its logit, is largest in absolute value (of equal ones the first); None: all
    """

    gamma: int = 0
    layer: str | None = None
    neurons: int | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"features", "probabilities"})
    differs_from_paper: ClassVar[str] = (
        "packed bits in place of binary decision diagrams, which accept the same images; the score is the distance "
        "itself, which answers for every gamma at once; neurons are chosen by their weight in the last linear layer "
        "alone"
    )

    def __post_init__(self) -> None:
        require_count(self, "gamma", least=0)
        require_layer(self, self.layer)
        if self.neurons is not None:
            require_count(self, "neurons")
            if self.layer is not None:
                raise InputError(
                    f"monitor {self.name}: neurons are chosen by the weights of the last linear layer: leave out layer"
                )

    @property
    def own_threshold(self) -> float:
        """-gamma: the score below which more neurons differ than may."""
        return -float(self.gamma)

    def fit(self, training: Training) -> Arrays:
        """Patterns (n, W) of all classes, packed, where each class starts (K + 1,), and its neurons (K, M)."""
        classes = training.model.num_classes
        sets: list[PatternSet] = []
        for features, labels, _ in correct_parts(self, training, self.layer):
            if not sets:
                chosen = self._chosen(training, features.shape[1])
                sets = [PatternSet(chosen.shape[1]) for _ in range(classes)]
            for label in np.unique(labels).tolist():
                sets[label].add(_is_on(features[labels == label], chosen[label]))
        starts = np.cumsum([0, *(len(patterns) for patterns in sets)])
        return {"patterns": np.concatenate([known.words for known in sets]), "starts": starts, "neurons": chosen}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the distance to the nearest pattern, (N,); NaN where a feature is not finite."""
        features, predicted = signals.features(self.layer), signals.probabilities.argmax(axis=1)
        sets: list[PatternSet] = state.cached("sets", lambda: _pattern_sets(state))
        scores = np.full(len(features), np.nan)
        finite = np.isfinite(features).all(axis=1)
        for label in np.unique(predicted[finite]).tolist():
            shown = finite & (predicted == label)
            scores[shown] = 0.0 - sets[label].nearest(_is_on(features[shown], state["neurons"][label]))
        return scores

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """Notes on classes without a pattern, and on a layer whose neurons are always on or always off."""
        counts = np.diff(state["starts"])
        without = np.flatnonzero(counts == 0).tolist()
        missing = f"classes without a correctly classified training image are always outside: {without}"
        single = "no class has more than one pattern: the layer should be one behind a ReLU, before any averaging"
        return (*([missing] if without else []), *([single] if counts.max() == 1 else []))

    def _chosen(self, training: Training, size: int) -> NDArray[np.int64]:
        """The neurons (K, M) that are looked at for each class."""
        count = self.neurons or size
        if count > size or self.gamma >= count:
            setting, most = ("neurons", size) if count > size else ("gamma", count - 1)
            raise InputError(f"monitor {self.name}: {setting} is at most {most} for this model and layer")
        if self.neurons is None:
            return np.tile(np.arange(size), (training.model.num_classes, 1))
        weights = np.abs(find_head(training.model).weights)
        return np.asarray(np.sort(np.argsort(-weights, axis=1, kind="stable")[:, :count], axis=1), np.int64)


def _is_on(features: NDArray[Any], neurons: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of some neurons (M,) are on, (n, M), of features (n, D)."""
    return np.asarray(features[:, neurons] > 0)


def _pattern_sets(state: Learned) -> list[PatternSet]:
    """The patterns of each class."""
    starts, count = state["starts"].tolist(), state["neurons"].shape[1]
    return [PatternSet(count, state["patterns"][start:end]) for start, end in pairwise(starts)]
