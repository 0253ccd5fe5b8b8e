"""Bootstrap: resampling whole groups, the same ones for every case, and intervals from what the resamples give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from roadworthy.metrics import Metric, MetricValues, of_rows
from roadworthy.metrics.base import AnswerRows, MeasuresRows

Floats = NDArray[np.float64]

CACHE_BYTES = 256 * 2**20
CHUNK_BYTES = 8 * 2**20
MOST_UNDEFINED = 0.1
"""The interval is missing where a metric does not exist in a larger share of the resamples than this."""
ALL_EQUAL = "all resamples are equal"
"""The reason of a missing interval where resampling changes nothing, but for rounding."""
NEARLY_EQUAL = "nearly all resamples are equal"
"""The reason of a missing interval where the quantiles of the resamples are the value itself."""
WITHOUT_WIDTH = 1e-9
"""Resamples, or bounds, that lie no farther apart differ by rounding; as a share of the value where it is above 1."""
TAIL_RESAMPLES = 10
"""A quantile with fewer resamples beyond it is extrapolated from the one that has as many, as if they were normal."""


class GroupBootstrap:
    """Resamples of the groups of n images, with replacement: weight w of an image = times its group was drawn.

    Every image of a group has the same weight. The draws belong to the sorted names of the groups and the seed, so they
    do not depend on the order of the images, nor on any model or shift: one object serves all cases of a data set, and
    differences between them are paired. Draws beyond 256 MB are made anew, chunk by chunk, whenever they are needed.
    `index` (n,) is the number of each image's group.

    >>> bootstrap = GroupBootstrap(["a", "a", "b"], resamples=4)
    >>> weights = np.concatenate(list(bootstrap.chunks()))
    >>> weights.shape, weights.dtype.name, bool((weights[:, 0] == weights[:, 1]).all())
    ((4, 3), 'float32', True)
    """

    def __init__(self, groups: ArrayLike, resamples: int = 1000, seed: int = 0) -> None:
        names = np.asarray(groups)
        if names.ndim != 1 or not names.size:
            raise ValueError(f"a bootstrap needs the group of each image, not an array of shape {names.shape}")
        if resamples < 1 or not 0 <= seed < 2**64:
            raise ValueError(
                f"a bootstrap needs resamples >= 1 and a seed of 0 to 2^64 - 1, not {resamples} and {seed}"
            )
        unique, self.index = np.unique(names, return_inverse=True)
        self.groups = len(unique)
        self.resamples = resamples
        self.seed = seed
        self._one_image_each = self.groups == names.size and bool((np.diff(self.index) > 0).all())

    def chunks(self, max_bytes: int = CHUNK_BYTES) -> Iterator[NDArray[np.float32]]:
        """The weights (resamples, n) float32, some rows at a time; at least one row, and then at most `max_bytes`."""
        step = max(1, max_bytes // (4 * len(self.index)))
        for start in range(0, self.resamples, step):
            rows = range(start, min(start + step, self.resamples))
            yield self._weights(rows)

    def distribution(self, metric: MeasuresRows, answers: AnswerRows) -> Floats:
        """The metric in every resample: (resamples,), NaN where it does not exist.

        >>> from roadworthy.metrics import Answers, accuracy
        >>> answers = Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        >>> GroupBootstrap(["a", "b"], resamples=3, seed=1).distribution(accuracy, answers)
        array([1. , 1. , 0.5])
        """
        return np.concatenate([metric.of_rows(answers, weights) for weights in self._chunks_for(answers)])

    def distributions(self, metrics: Sequence[Metric], answers: AnswerRows) -> dict[str, MetricValues]:
        """The metrics by name in every resample, (resamples,) each; cheaper than one after the other.

        A metric that cannot be computed is NaN in the resamples concerned, and has a reason.
        """
        chunks = [of_rows(metrics, answers, weights) for weights in self._chunks_for(answers)]
        return {
            metric.name: MetricValues(
                np.concatenate([chunk[metric.name].values for chunk in chunks]),
                next((chunk[metric.name].reason for chunk in chunks if chunk[metric.name].reason), ""),
            )
            for metric in metrics
        }

    def _chunks_for(self, answers: AnswerRows) -> Iterator[NDArray[np.float32]]:
        if len(answers) != len(self.index):
            raise ValueError(f"the bootstrap is for {len(self.index)} images, not {len(answers)}")
        return self.chunks()

    @cached_property
    def _kept(self) -> NDArray[np.uint8]:
        """The first draws, made when a metric asks for them: one of a ranking does not."""
        return self._counts(range(min(self.resamples, CACHE_BYTES // self.groups)))

    def _weights(self, rows: range) -> NDArray[np.float32]:
        kept = self._kept[rows.start : rows.stop]
        drawn = self._counts(range(rows.start + len(kept), rows.stop))
        counts = np.concatenate([kept, drawn]) if len(drawn) else kept
        weights = (counts if self._one_image_each else np.take(counts, self.index, axis=1)).astype(np.float32)
        weights.setflags(write=False)
        return weights

    def _counts(self, rows: range) -> NDArray[np.uint8]:
        """How often each group is drawn in some resamples; more than 255 times has a chance below 1e-500."""
        counts = np.empty((len(rows), self.groups), dtype=np.uint8)
        for index, row in enumerate(rows):
            generator = np.random.Generator(np.random.Philox(key=np.array([self.seed, row], dtype=np.uint64)))
            drawn = generator.integers(self.groups, size=self.groups)
            counts[index] = np.bincount(drawn, minlength=self.groups)
        return counts


def bootstrap_interval(
    value: float,
    distribution: ArrayLike,
    groups_count: int,
    confidence: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[float, float, str]:
    """Interval from a group bootstrap: value -+ h, cut to `bounds`, the range the metric can have.

        h = max(value - q_lo, q_hi - value) sqrt(G / (G - 1)) t / z

    with q the (1 -+ confidence)/2 quantiles of the resamples and t, z those of Student's t (G - 1 degrees of freedom)
    and the normal distribution. The longer side counts for both, since the resamples of a biased metric (ECE) lie to
    one side of it. Undefined resamples are left out. Gives (lo, hi, reason); lo and hi are NaN where the reason is not
    empty: no value, one group only, more than 10 % of the resamples undefined, or all of them (nearly) equal, rounding
    apart. What never varied among the objects at hand may vary among others, so that such an interval has a width
    which resampling cannot know.

    >>> lo, hi, reason = bootstrap_interval(0.5, np.linspace(0.4, 0.6, 1000), groups_count=100)
    >>> round(lo, 3), round(hi, 3), reason
    (0.403, 0.597, '')
    >>> bootstrap_interval(0.5, np.full(1000, 0.5), groups_count=1)
    (nan, nan, 'one group only')
    >>> bootstrap_interval(0.0, np.where(np.arange(1000) < 9, 0.1, 0.0), groups_count=100)
    (nan, nan, 'nearly all resamples are equal')
    """
    resampled = np.asarray(distribution, dtype=np.float64)
    if resampled.ndim != 1 or len(resampled) < 4 * TAIL_RESAMPLES:
        raise ValueError(f"an interval needs at least {4 * TAIL_RESAMPLES} resamples, not {resampled.shape}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    defined = resampled[~np.isnan(resampled)]
    undefined = float(np.isnan(resampled).mean())
    if math.isnan(value):
        return math.nan, math.nan, "no value"
    if groups_count < 2:
        return math.nan, math.nan, "one group only"
    if undefined > MOST_UNDEFINED:
        return math.nan, math.nan, f"undefined in {undefined:.0%} of the resamples"
    rounding = WITHOUT_WIDTH * max(1.0, abs(value))
    if (defined == defined[0]).all() or np.ptp(defined) <= rounding:
        return math.nan, math.nan, ALL_EQUAL
    tail = max((1 - confidence) / 2, TAIL_RESAMPLES / len(defined))
    q_lo, q_hi = np.quantile(defined, [tail, 1 - tail])
    student = float(stdtrit(groups_count - 1, (1 + confidence) / 2))
    widening = math.sqrt(groups_count / (groups_count - 1)) * student / float(ndtri(1 - tail))
    half_width = max(value - q_lo, q_hi - value) * widening
    if half_width <= rounding:
        return math.nan, math.nan, NEARLY_EQUAL
    return max(float(value - half_width), bounds[0]), min(float(value + half_width), bounds[1]), ""


def paired_interval(
    value_a: float,
    value_b: float,
    distribution_a: ArrayLike,
    distribution_b: ArrayLike,
    groups_count: int,
    confidence: float = 0.95,
    *,
    room: float = math.inf,
    sizes: ArrayLike | None = None,
) -> tuple[float, float, str]:
    """Interval of the difference a - b of two cases from the same resamples of the same groups.

    Paired: what both cases share (an object that is hard for both) cancels. A resample counts where both are defined.
    Few objects, or none, may tell the cases apart, and the next one may: where the difference lies in [-room, room] for
    any objects, one more is added to every resample, as `mean_interval` adds it, so far apart as can be. With G the
    effective number of groups of these `sizes` (as many images each, by default) and E exponential, it weighs

        w = E / (G + E),    G = (sum s)^2 / sum s^2

    and lo, hi are those of `bootstrap_interval` from (1 - w) (a - b) -+ w room, or without the added one where that is
    wider. One object weighs so much in a share; where a rare class decides a metric it can weigh more.

    >>> a = np.linspace(0.4, 0.6, 1000)
    >>> lo, hi, reason = paired_interval(0.5, 0.4, a, a**2, groups_count=100)
    >>> lo < 0.1 < hi
    True
    >>> [round(bound, 2) for bound in paired_interval(0.5, 0.5, a, a, groups_count=100, room=1)[:2]]
    [-0.04, 0.04]
    """
    a, b = np.asarray(distribution_a, dtype=np.float64), np.asarray(distribution_b, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"paired resamples must be of one shape, not {a.shape} and {b.shape}")
    return difference_interval(value_a - value_b, a - b, groups_count, confidence, room=room, sizes=sizes)


def difference_interval(
    value: float,
    differences: ArrayLike,
    groups_count: int,
    confidence: float = 0.95,
    *,
    room: float = math.inf,
    sizes: ArrayLike | None = None,
) -> tuple[float, float, str]:
    """`paired_interval` from a difference and its values (B,) in resamples."""
    known = np.asarray(differences, dtype=np.float64)
    plain = bootstrap_interval(value, known, groups_count, confidence, (-room, room))
    if math.isinf(room):
        return plain
    images = np.ones(groups_count) if sizes is None else np.asarray(sizes, dtype=np.float64)
    added = _exponential(len(known))
    weight = added / (float(images.sum() ** 2 / (images**2).sum()) + added)
    ends = [
        bootstrap_interval(value, (1 - weight) * known + side * weight * room, groups_count, confidence, (-room, room))
        for side in (-1, 1)
    ]
    return float(np.fmin(plain[0], ends[0][0])), float(np.fmax(plain[1], ends[1][1])), ends[0][2]


@lru_cache(maxsize=16)
def _exponential(number: int) -> Floats:
    """So many draws of the standard exponential distribution, always the same ones."""
    return np.random.Generator(np.random.Philox(key=np.array([0, 2**64 - 1], dtype=np.uint64))).exponential(size=number)
