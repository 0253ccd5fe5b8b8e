"""Slices of the domain in which a metric is worse than elsewhere: conjunctions of conditions, tested one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.coverage import MISSING, Columns, Members, Scenario, condition_texts, count_cells
from roadworthy.statistics.estimates import Estimate
from roadworthy.statistics.intervals import mean_interval

Floats = NDArray[np.float64]
Part = tuple[Floats, NDArray[np.intp]]

SMALLEST_P = 1e-12
MOST_SLICES = 100_000
"""Conjunctions of conditions that are looked at, at most."""


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

    worst: tuple[Slice, ...]
    looked_at: int
    too_small: int


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
    >>> result.worst[0].scenario, result.looked_at, result.worst[0].p_holm < 0.001
    ({'weather': 'rain'}, 4, True)
    """
    table = Conjunctions(values, groups, conditions)
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


def check_slices(sizes: Sequence[int], depth: int) -> None:
    """Refuse conditions of so many values that `worst_slices` would look at more than 100,000 conjunctions.

    >>> check_slices([4, 3, 20], depth=2)
    """
    total = sum(count_cells([max(size, 1) for size in sizes], count) for count in range(1, min(depth, len(sizes)) + 1))
    if total > MOST_SLICES:
        raise ValueError(f"more than {MOST_SLICES:,} slices ({total:,}): use fewer conditions, or a smaller depth")


class Conjunctions:
    """All conjunctions of conditions over the same images, with counts and sums per cell.

    names of the conditions, codes (n, conditions) of their values, -1 where missing, and the `kinds` that occur of each
    """

    def __init__(self, values: ArrayLike, groups: ArrayLike, conditions: Columns) -> None:
        self.values, self.objects = checked_values(values, groups)
        if not conditions:
            raise ValueError("at least one condition is needed")
        self.names, self.looked_at = list(conditions), 0
        columns = [condition_column(conditions, name, len(self.values)) for name in self.names]
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


def checked_values(values: ArrayLike, groups: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    """A metric per image (n,) and the number of each image's object (n,); a ValueError where one of them is missing."""
    per_image = np.asarray(values, dtype=np.float64)
    objects = np.unique(np.asarray(groups), return_inverse=True)[1]
    if per_image.ndim != 1 or objects.shape != per_image.shape or not per_image.size:
        raise ValueError(f"a value and a group per image are needed, not {per_image.shape} and {objects.shape}")
    if np.isnan(per_image).any():
        raise ValueError("a metric per image must not be NaN: leave out images that have none")
    return per_image, objects


def condition_column(conditions: Columns, name: str, n: int) -> NDArray[np.object_]:
    """The values of one condition as text (n,), None where missing; a ValueError where the data does not have it."""
    if name not in conditions:
        raise ValueError(f"the data has no condition {name!r}; it has {', '.join(conditions) or 'none'}")
    column = np.asarray(conditions[name], dtype=object)
    if column.shape != (n,):
        raise ValueError(f"condition {name!r} needs a value for each of {n} images, not {column.shape}")
    return np.array([value or None for value in condition_texts(column)], dtype=object)
