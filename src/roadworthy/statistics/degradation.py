"""Scenario-based degradation: how a metric falls in parts of the domain, with intervals that count objects."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from roadworthy.metrics.coverage import MISSING, Columns, Members, Scenario, condition_texts, count_cells
from roadworthy.statistics.estimates import Estimate
from roadworthy.statistics.intervals import mean_interval

Floats = NDArray[np.float64]
Part = tuple[Floats, NDArray[np.intp]]

SMALLEST_P = 1e-12
MOST_SITUATIONS = 100_000
"""Situations of the field that frequencies of conditions can make, at most."""
MOST_SLICES = 100_000
"""Conjunctions of conditions that are looked at, at most."""


@dataclass(frozen=True)
class ScenarioValue:
    """A metric's mean over the images of one scenario, a conjunction of conditions; `{}` is all of them."""

    scenario: Scenario
    interval: Estimate


@dataclass(frozen=True)
class Slice:
    """A scenario in which a metric is worse than elsewhere.

    interval    the metric inside;  elsewhere  its mean over all other images that have a value of these conditions
    difference  inside minus elsewhere, with its interval lo to hi
    p           one-sided, of the hypothesis that it is no worse inside;  p_holm  corrected for all slices looked at
    """

    scenario: Scenario
    interval: Estimate
    elsewhere: float
    difference: float
    lo: float
    hi: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class Slices:
    """The worst slices, the smallest p first, and how many were looked at in all."""

    found: tuple[Slice, ...]
    looked_at: int
    too_small: int


@dataclass(frozen=True)
class FailureTime:
    """Mean time (or distance) between failures with its interval; `hi` is infinite where nothing failed.

    dispersion  how much more the failures of sequences differ than chance explains, at least 1
    """

    value: float
    lo: float
    hi: float
    failures: int
    exposure: float
    sequences: int
    dispersion: float
    reason: str = ""


@dataclass(frozen=True)
class DomainPerformance:
    """What to expect over an operational domain whose situations have known frequencies.

    share      frequency of the situations whose metric meets the threshold; untested ones do not count as meeting it
    expected   mean of the metric over tested situations, by frequency
    untested   frequency of situations that no image shows: 0 in the lower bounds, all met in the upper ones
    by_situation  every situation with its frequency and the metric's interval, all of which hold together
    """

    share: float
    share_lo: float
    share_hi: float
    expected: float
    expected_lo: float
    expected_hi: float
    untested: float
    by_situation: tuple[tuple[float, ScenarioValue], ...]


def scenario_values(
    values: ArrayLike,
    groups: ArrayLike,
    conditions: Columns,
    low: float,
    high: float,
    *,
    k: int = 1,
    confidence: float = 0.95,
) -> list[ScenarioValue]:
    """A metric per combination of values of every k conditions (1: each value, 2: each pair), where images show it.

    values (n,): the metric per image, in [low, high], such as right or wrong;  groups (n,): the objects. Images without
    a value of a condition (None, NaN, empty) are left out where that condition counts.

    >>> parts = scenario_values([1, 1, 0, 0], [0, 1, 2, 3], {"weather": ["dry", "dry", "rain", "rain"]}, 0, 1)
    >>> [(part.scenario, part.interval.value) for part in parts]
    [({'weather': 'dry'}, 1.0), ({'weather': 'rain'}, 0.0)]
    """
    table = _Conjunctions(values, groups, conditions)
    if not 0 <= k <= len(table.names):
        raise ValueError(f"k must lie between 0 and the number of conditions, {len(table.names)}, not {k}")
    scenarios = []
    for members in combinations(range(len(table.names)), k):
        for cell in product(*(range(table.sizes[member]) for member in members)):
            inside = table.inside(members, cell)
            if inside.any():
                interval = mean_interval(*table.part(inside), low, high, confidence)
                scenarios.append(ScenarioValue(table.named(members, cell), interval))
    return scenarios


def discounted(value: float, coverage: float) -> float:
    """A metric of which more is better, from 0 up, discounted for scenarios without data: value times coverage.

    `coverage` is M_scene, so that what has not been shown counts as failed.

    >>> discounted(0.9, 0.5)
    0.45
    """
    if not 0 <= coverage <= 1 or value < 0:
        raise ValueError(f"a value from 0 up and a coverage from 0 to 1 are needed, not {value} and {coverage}")
    return value * coverage


def time_between_failures(
    positions: ArrayLike, failed: ArrayLike, sequences: ArrayLike, confidence: float = 0.95
) -> FailureTime:
    """Mean time between failures: exposure by failures, for readings along a time (or distance) axis.

        MTBF = T / r,   lo = T/d / G(r/d + 1, 1 - a),   hi = T/d / G(r/d, a)

    with exposure T, failures r, a = (1 - confidence) / 2, dispersion d and G the quantile of the gamma distribution:
    for d = 1 the exact bounds of a Poisson process.

    positions (n,): time or distance of each reading in its sequence;  failed (n,) bool;  sequences (n,): the drives.
    Consecutive failed readings of a sequence are one failure. A sequence is exposed from its first to its last reading
    and one median step. The dispersion is Pearson's chi-square of the failures of the sequences by its degrees of
    freedom; drives that differ make the interval wider.

    >>> drive = time_between_failures([0, 1, 2, 3, 4, 5], [0, 1, 1, 0, 1, 0], ["a"] * 6)
    >>> drive.value, drive.failures, drive.exposure
    (3.0, 2, 6.0)
    """
    time, fails = np.asarray(positions, dtype=np.float64), np.asarray(failed).astype(bool)
    drive = np.unique(np.asarray(sequences), return_inverse=True)[1]
    if time.ndim != 1 or fails.shape != time.shape or drive.shape != time.shape:
        raise ValueError(f"positions, failed and sequences must be of one length, not {time.shape}, {fails.shape}")
    if not np.isfinite(time).all():
        raise ValueError("positions must be finite numbers")
    order = np.lexsort((time, drive))
    time, fails, drive = time[order], fails[order], drive[order]
    same = drive[1:] == drive[:-1]
    gaps = np.diff(time)[same]
    if not len(gaps) or gaps.min() <= 0:
        reason = "two readings of a sequence have one position" if len(gaps) else "no sequence has two readings"
        raise ValueError(f"{reason}: time between failures needs a time or distance that grows along a sequence")
    count = int(drive[-1]) + 1
    exposure = np.bincount(drive[1:][same], gaps, count) + np.median(gaps)
    starts = fails & ~np.concatenate([[False], fails[:-1] & same])
    failures = np.bincount(drive[starts], minlength=count).astype(np.float64)
    total, events = float(exposure.sum()), float(failures.sum())
    dispersion = _dispersion(failures, exposure)
    tail = (1 - confidence) / 2
    effective = events / dispersion
    most = float(gammaincinv(effective + 1, 1 - tail))
    fewest = float(gammaincinv(effective, tail)) if events else 0.0
    scale = total / dispersion
    return FailureTime(
        value=total / events if events else math.inf,
        lo=scale / most,
        hi=scale / fewest if fewest else math.inf,
        failures=int(events),
        exposure=total,
        sequences=count,
        dispersion=dispersion,
        reason="" if events else "no failure",
    )


def worst_slices(
    values: ArrayLike,
    groups: ArrayLike,
    conditions: Columns,
    low: float,
    high: float,
    *,
    depth: int = 2,
    support: int = 10,
    limit: int = 20,
    confidence: float = 0.95,
) -> Slices:
    """The scenarios of up to `depth` conditions in which a metric is worse (lower) than elsewhere.

    values (n,): the metric per image, in [low, high], more being better. Every conjunction that at least `support`
    objects show inside and `support` elsewhere is looked at: nothing is missed by a greedy search. An object seen on
    both sides counts on both; an image without a value of one of the conditions is on neither. p is half the
    1 - confidence at which the upper bound of the difference d = inside - elsewhere just reaches 0,

        hi(d) = d + sqrt(a^2 - 2 r a b + b^2),   a = hi(inside) - inside,   b = elsewhere - lo(elsewhere)

    with the bounds of `mean_interval` (Newcombe's hybrid) and r the correlation of the two means by objects that both
    sides show, 0 without such (`_correlation`). It is corrected by Holm's method for all slices looked at, also those
    not listed. A slice is not listed where one with fewer of its conditions is listed and as bad: that one is enough.

    >>> rain = ["rain"] * 30 + ["dry"] * 90
    >>> conditions = {"weather": rain, "car": ["a", "b"] * 60}
    >>> result = worst_slices([0] * 20 + [1] * 100, range(120), conditions, 0, 1, depth=1)
    >>> result.found[0].scenario, result.looked_at, result.found[0].p_holm < 0.001
    ({'weather': 'rain'}, 4, True)
    """
    table = _Conjunctions(values, groups, conditions)
    if depth < 1 or support < 2 or limit < 1:
        raise ValueError(f"depth {depth}, limit {limit} and support {support}: at least 1, 1 and 2 are needed")
    candidates, too_small = table.worse(min(depth, len(table.names)), support, high - low)
    listed = list[tuple[Members, Members]]()
    for members, cell in candidates:
        if len(listed) == limit:
            break
        if not any(table.says_it_all(more, (members, cell)) for more in listed):
            listed.append((members, cell))
    slices = list[Slice]()
    for members, cell in listed:
        inside = table.inside(members, cell)
        part, rest = table.part(inside), table.part(table.known(members) & ~inside)
        bounds = _difference_bounds(part, rest, low, high)
        scenario, interval = table.named(members, cell), mean_interval(*part, low, high, confidence)
        elsewhere, difference = float(rest[0].mean()), float(part[0].mean() - rest[0].mean())
        p = _one_sided_p(bounds)
        slices.append(Slice(scenario, interval, elsewhere, difference, *bounds(confidence), p, p_holm=math.nan))
    slices.sort(key=lambda candidate: candidate.p)
    steps = [candidate.p * (table.looked_at - rank) for rank, candidate in enumerate(slices)]
    corrected = np.minimum(np.maximum.accumulate(np.array(steps)), 1.0)
    worst = tuple(replace(candidate, p_holm=float(p)) for candidate, p in zip(slices, corrected, strict=True))
    return Slices(worst, looked_at=table.looked_at, too_small=too_small)


def domain_performance(
    values: ArrayLike,
    groups: ArrayLike,
    conditions: Columns,
    frequencies: Sequence[tuple[Mapping[str, str], float]],
    threshold: float,
    low: float,
    high: float,
    *,
    confidence: float = 0.95,
) -> DomainPerformance:
    """The share of the expected situations in which a metric (more being better) meets a threshold.

        share = sum_s f_s [m_s >= threshold],   expected = sum_s f_s m_s / sum_s f_s  over tested situations

    frequencies: each situation (the same conditions in all, each with a value) and how often it occurs in the field, in
    any unit; `independent_frequencies` makes them from the frequencies of single conditions. The bounds hold together
    with `confidence`: each situation's interval has 1 - (1 - confidence) / S for S tested situations (Bonferroni). An
    untested situation fails in the lower bounds and succeeds in the upper ones.

    >>> domain = domain_performance([1] * 50 + [0] * 50, range(100), {"weather": ["dry"] * 50 + ["rain"] * 50},
    ...     [({"weather": "dry"}, 0.7), ({"weather": "rain"}, 0.2), ({"weather": "snow"}, 0.1)], 0.8, 0, 1)
    >>> round(domain.share, 6), round(domain.share_lo, 6), round(domain.share_hi, 6), round(domain.untested, 6)
    (0.7, 0.7, 0.8, 0.1)
    """
    per_image, objects = _checked(values, groups)
    weights = np.array([weight for _, weight in frequencies], dtype=np.float64)
    if not len(weights) or not np.isfinite(weights).all() or weights.min() < 0 or not weights.sum():
        raise ValueError("field frequencies must be numbers of at least 0, one of them above")
    names = list(frequencies[0][0])
    if any(set(situation) != set(names) for situation, _ in frequencies):
        raise ValueError(f"all situations must name the same conditions, {', '.join(names)}")
    if len({tuple(situation[name] for name in names) for situation, _ in frequencies}) < len(frequencies):
        raise ValueError("a situation is listed twice in the field frequencies")
    columns = {name: _column(conditions, name, len(per_image)) for name in names}
    inside = [
        np.logical_and.reduce([columns[name] == situation[name] for name in names]) for situation, _ in frequencies
    ]
    tested = np.array([part.any() for part in inside])
    per_situation = 1 - (1 - confidence) / max(int(tested.sum()), 1)
    intervals = [mean_interval(per_image[part], objects[part], low, high, per_situation) for part in inside]
    value, lo, hi = (np.array([getattr(interval, name) for interval in intervals]) for name in ("value", "lo", "hi"))
    shares = weights / weights.sum()
    met = [float(shares[tested & (bound >= threshold)].sum()) for bound in (value, lo, hi)]
    untested = float(shares[~tested].sum())
    known = float(shares[tested].sum())
    return DomainPerformance(
        share=met[0],
        share_lo=met[1],
        share_hi=min(met[2] + untested, 1.0),
        expected=float((shares * value)[tested].sum()) / known if known else math.nan,
        expected_lo=float((shares * lo)[tested].sum()) + untested * low,
        expected_hi=float((shares * hi)[tested].sum()) + untested * high,
        untested=untested,
        by_situation=tuple(
            (float(share), ScenarioValue(dict(situation), interval))
            for share, (situation, _), interval in zip(shares, frequencies, intervals, strict=True)
        ),
    )


def independent_frequencies(marginals: Mapping[str, Mapping[str, float]]) -> list[tuple[Scenario, float]]:
    """Frequencies of all situations from those of each condition, taken as independent: the product.

    >>> independent_frequencies({"weather": {"dry": 0.8, "rain": 0.2}, "light": {"day": 1.0}})
    [({'weather': 'dry', 'light': 'day'}, 0.8), ({'weather': 'rain', 'light': 'day'}, 0.2)]
    """
    if not marginals or not all(marginals.values()):
        raise ValueError("every condition needs the frequency of at least one value")
    number = math.prod(len(values) for values in marginals.values())
    if number > MOST_SITUATIONS:
        raise ValueError(f"{number:,} situations; at most {MOST_SITUATIONS:,}: name fewer conditions or values")
    cells = product(*(values.items() for values in marginals.values()))
    return [
        (dict(zip(marginals, (value for value, _ in cell), strict=True)), math.prod(share for _, share in cell))
        for cell in cells
    ]


def check_slices(sizes: Sequence[int], depth: int) -> None:
    """Refuse conditions of so many values that `worst_slices` would look at more than 100,000 conjunctions.

    >>> check_slices([4, 3, 20], depth=2)
    """
    total = sum(count_cells([max(size, 1) for size in sizes], count) for count in range(1, min(depth, len(sizes)) + 1))
    if total > MOST_SLICES:
        raise ValueError(f"more than {MOST_SLICES:,} slices ({total:,}): use fewer conditions, or a smaller depth")


class _Conjunctions:
    """All conjunctions of conditions over the same images, with counts and sums per cell.

    names of the conditions, codes (n, conditions) of their values, -1 where missing, and the `kinds` that occur of each
    """

    def __init__(self, values: ArrayLike, groups: ArrayLike, conditions: Columns) -> None:
        self.values, self.objects = _checked(values, groups)
        if not conditions:
            raise ValueError("at least one condition is needed")
        self.names, self.looked_at = list(conditions), 0
        columns = [_column(conditions, name, len(self.values)) for name in self.names]
        self.kinds = [sorted({value for value in column if value is not None}) for column in columns]
        self.sizes = [len(kind) for kind in self.kinds]
        code_maps = [{None: MISSING} | {value: code for code, value in enumerate(kind)} for kind in self.kinds]
        codes = [[code_of[value] for value in column] for code_of, column in zip(code_maps, columns, strict=True)]
        self.codes = np.array(codes, dtype=np.intp).T

    def inside(self, members: Members, cell: Members) -> NDArray[np.bool_]:
        """The images (n,) that show these values of these conditions."""
        return np.asarray((self.codes[:, list(members)] == np.array(cell, dtype=np.intp)).all(axis=1))

    def known(self, members: Members) -> NDArray[np.bool_]:
        """The images (n,) that have a value of each of these conditions."""
        return np.asarray((self.codes[:, list(members)] != MISSING).all(axis=1))

    def part(self, which: NDArray[np.bool_]) -> Part:
        """Values and objects of some images."""
        return self.values[which], self.objects[which]

    def named(self, members: Members, cell: Members) -> Scenario:
        """The scenario of a cell."""
        return {self.names[member]: self.kinds[member][code] for member, code in zip(members, cell, strict=True)}

    def worse(self, depth: int, support: int, span: float) -> tuple[list[tuple[Members, Members]], int]:
        """Those below the mean elsewhere, about the surest first, and how many had too few objects."""
        check_slices(self.sizes, depth)
        scored, too_small = list[tuple[float, Members, Members]](), 0
        for count in range(1, depth + 1):
            for members in combinations(range(len(self.sizes)), count):
                shape = tuple(self.sizes[member] for member in members)
                score, enough, shown = self._scores(members, shape, support, span)
                self.looked_at += int(enough.sum())
                too_small += int((shown & ~enough).sum())
                for cell in np.flatnonzero(enough & (score < 0)):
                    scored.append((float(score[cell]), members, tuple(map(int, np.unravel_index(cell, shape)))))
        return [(members, cell) for _, members, cell in sorted(scored)], too_small

    def says_it_all(self, general: tuple[Members, Members], special: tuple[Members, Members]) -> bool:
        """The conditions of the one are among those of the other, and the metric is as bad."""
        within = set(zip(*general, strict=True)) <= set(zip(*special, strict=True))
        return within and self._mean(general) <= self._mean(special)

    def _mean(self, conjunction: tuple[Members, Members]) -> float:
        return float(self.values[self.inside(*conjunction)].mean())

    def _scores(
        self, members: Members, shape: tuple[int, ...], support: int, span: float
    ) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
        """For each cell: the difference to elsewhere in rough standard errors, enough objects, any image."""
        known = self.known(members)
        cell = np.ravel_multi_index(tuple(self.codes[known][:, members].T), shape)
        total = math.prod(shape)
        n, sums = np.bincount(cell, minlength=total), np.bincount(cell, self.values[known], total)
        squares = np.bincount(cell, self.values[known] ** 2, total)
        pairs, images = np.unique(np.stack([cell, self.objects[known]]), axis=1, return_counts=True)
        objects = np.bincount(pairs[0], minlength=total)
        of_object = np.bincount(self.objects[known])
        wholly_inside = np.bincount(pairs[0], images == of_object[pairs[1]], total)
        others = np.count_nonzero(of_object) - wholly_inside
        enough = (objects >= support) & (others >= support)
        rest = np.maximum(len(cell) - n, 1)
        mean, elsewhere = sums / np.maximum(n, 1), (self.values[known].sum() - sums) / rest
        variance = np.maximum(squares / np.maximum(n, 1) - mean**2, 0) + span**2 / np.maximum(objects, 1)
        return (mean - elsewhere) / np.sqrt(variance / np.maximum(objects, 1)), enough, n > 0


def _difference_bounds(part: Part, rest: Part, low: float, high: float) -> Callable[[float], tuple[float, float]]:
    """The interval of mean(part) - mean(rest) as a function of the confidence."""
    difference = float(part[0].mean() - rest[0].mean())
    downwards, upwards = _correlation(part, rest, low, high), _correlation(part, rest, high, low)

    def bounds(confidence: float) -> tuple[float, float]:
        inside, outside = (mean_interval(*side, low, high, confidence) for side in (part, rest))
        below = _combined(inside.value - inside.lo, outside.hi - outside.value, downwards)
        above = _combined(inside.hi - inside.value, outside.value - outside.lo, upwards)
        return max(difference - below, low - high), min(difference + above, high - low)

    return bounds


def _combined(a: float, b: float, correlation: float) -> float:
    return math.sqrt(max(a * a - 2 * correlation * a * b + b * b, 0.0))


def _correlation(part: Part, rest: Part, inside: float, outside: float) -> float:
    """The correlation of mean(part) and mean(rest) that comes from objects on both sides; 0 without such.

        r = sum_g u_g v_g / sqrt(sum_g u_g^2 sum_g v_g^2),   u_g = sum over images i of g inside of (x_i - mean(part))

    and v_g the same elsewhere. As in `mean_interval` one more object is added, here with the values `inside` and
    `outside` on the two sides: few objects that agree by chance do not make a narrow interval.
    """
    count = int(max(part[1].max(), rest[1].max())) + 1
    sizes = [np.bincount(objects, minlength=count) for _, objects in (part, rest)]
    if not (sizes[0] * sizes[1]).any():
        return 0.0
    sums = []
    for (values, objects), size, phantom in zip((part, rest), sizes, (inside, outside), strict=True):
        mean = float(values.mean())
        deviations = np.bincount(objects, values - mean, count)
        sums.append(np.append(deviations, (phantom - mean) * float((size**2).sum()) / float(size.sum())))
    u, v = sums
    scale = math.sqrt(float((u**2).sum()) * float((v**2).sum()))
    return float((u * v).sum()) / scale if scale else 0.0


def _one_sided_p(bounds: Callable[[float], tuple[float, float]]) -> float:
    """Half the 1 - confidence at which the upper bound just reaches 0; from 1e-12 to 1."""

    def below_zero(p: float) -> bool:
        return bounds(1 - 2 * p)[1] < 0

    if below_zero(SMALLEST_P):
        return SMALLEST_P
    if not below_zero(0.4999):
        return 1.0
    low, high = math.log(SMALLEST_P), math.log(0.4999)
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if below_zero(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _dispersion(failures: Floats, exposure: Floats) -> float:
    """Pearson's chi-square of failures in proportion to exposure, by its degrees of freedom; at least 1."""
    if len(failures) < 2 or not failures.sum():
        return 1.0
    expected = failures.sum() * exposure / exposure.sum()
    return max(1.0, float(((failures - expected) ** 2 / expected).sum()) / (len(failures) - 1))


def _checked(values: ArrayLike, groups: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    per_image = np.asarray(values, dtype=np.float64)
    objects = np.unique(np.asarray(groups), return_inverse=True)[1]
    if per_image.ndim != 1 or objects.shape != per_image.shape or not per_image.size:
        raise ValueError(f"a value and a group per image are needed, not {per_image.shape} and {objects.shape}")
    if np.isnan(per_image).any():
        raise ValueError("a metric per image must not be NaN: leave out images that have none")
    return per_image, objects


def _column(conditions: Columns, name: str, n: int) -> NDArray[np.object_]:
    """The values of one condition as text, None where missing."""
    if name not in conditions:
        raise ValueError(f"the data has no condition {name!r}; it has {', '.join(conditions) or 'none'}")
    column = np.asarray(conditions[name], dtype=object)
    if column.shape != (n,):
        raise ValueError(f"condition {name!r} needs a value for each of {n} images, not {column.shape}")
    return np.array([value or None for value in condition_texts(column)], dtype=object)
