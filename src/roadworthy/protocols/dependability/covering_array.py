"""A covering array: few complete scenarios that show every combination of conditions that still lacks data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.coverage import Codes, Coverage, Need, Projection, Scenario, Schema, scenario_coverage

CANDIDATES = 24
"""Candidates for each scenario of a set, each grown from its own cell and in its own order."""
MOST_SETS, EFFORT = 8, 250_000
"""Sets of scenarios that are built side by side: as many as the effort, in cells times conditions, allows."""
ROUNDS, KEPT = 1, 0.6
"""How often the smallest set is partly rebuilt, and the share of its scenarios that then stay."""
REPAIRS, REPAIR_EFFORT = 4_000, 10_000_000
"""Changes that are tried to save one scenario: as many as the effort, in scenarios times cells of each, allows."""


def propose_scenarios(
    schema: Schema,
    seen: Mapping[str, ArrayLike] | None = None,
    *,
    k: int = 2,
    needs: Sequence[Need] = (Need(),),
    limit: int | None = None,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> list[Scenario]:
    """Few complete, possible scenarios that bring the coverage of `seen` to 100 %, those that add most first.

    A greedy covering array (AETG): each scenario starts from a cell that lacks data and takes, condition by condition,
    the possible value that serves most further cells, and the best of several scenarios is kept. Of several such sets,
    superfluous scenarios dropped, the smallest is taken, parts of it are rebuilt in search of a smaller one, and then
    one scenario after the other is left out while changes to the rest can make up for it. The same for the same seed.

    >>> schema = Schema({"weather": ["sunny", "rainy"], "road": ["straight", "curvy"], "light": ["day", "night"]})
    >>> rows = propose_scenarios(schema)
    >>> len(rows), scenario_coverage(schema, {name: [row[name] for row in rows] for name in schema.names}).value
    (4, 1.0)
    """
    if limit is not None and limit < 0:
        raise ValueError(f"the limit of scenarios must not be negative: {limit}")
    nothing: Mapping[str, ArrayLike] = {name: [] for name in schema.names}
    cover = scenario_coverage(schema, nothing if seen is None else seen, k=k, needs=needs, groups=groups)
    return propose_for(cover, limit=limit, seed=seed)


def propose_for(coverage: Coverage, *, limit: int | None = None, seed: int = 0) -> list[Scenario]:
    """The scenarios of `propose_scenarios` for data that was counted already."""
    builder = _Builder(coverage.schema, coverage.projections)
    rows = builder.smallest(np.random.default_rng(seed))
    return [coverage.schema.decode(row) for row in builder.ordered(rows)[:limit]]


class _Builder:
    """Builds sets of scenarios that meet what the cells of all projections lack.

    Cells lie end to end in one array. Every condition has one value more, `unset`, whose cells lack nothing: so an
    incomplete scenario has its cells too.
    """

    def __init__(self, schema: Schema, projections: Sequence[Projection]) -> None:
        self.schema = schema
        self.unset = np.array(schema.sizes, dtype=np.intp)
        self.members = np.array([p.members for p in projections], dtype=np.intp)
        sizes = self.unset[self.members] + 1
        self.strides = np.ones_like(sizes)
        self.strides[:, :-1] = np.cumprod(sizes[:, :0:-1], axis=1)[:, ::-1]
        ends = np.cumsum(sizes.prod(axis=1))
        self.offsets = np.concatenate([[0], ends[:-1]])
        self.lack, self.worth = np.zeros(ends[-1], np.int64), np.zeros(ends[-1])
        for start, end, size, p in zip(self.offsets, ends, sizes, projections, strict=True):
            inner = tuple(slice(0, side - 1) for side in size)
            self.lack[start:end].reshape(size)[inner] = np.where(p.feasible, np.maximum(p.minimum - p.counts, 0), 0)
            self.worth[start:end].reshape(size)[inner] = p.weight
        of_condition = [np.flatnonzero((self.members == condition).any(axis=1)) for condition in range(len(self.unset))]
        self.projections_of = np.array(of_condition)
        self.sets = int(np.clip(EFFORT // (len(self.lack) * len(self.unset)), 1, MOST_SETS))

    def cells(self, rows: Codes) -> Codes:
        """The cells (..., projections) of scenarios (..., conditions)."""
        return np.asarray(self.offsets + (rows[..., self.members] * self.strides).sum(axis=-1))

    def smallest(self, rng: np.random.Generator) -> Codes:
        """The smallest set (rows, conditions) found: built from nothing, then again from parts of the best so far."""
        nothing = np.empty((0, len(self.unset)), np.intp)
        best = min(self.build([nothing] * self.sets, rng), key=len)
        fewest = max(np.add.reduceat(self.lack, self.offsets))
        for _ in range(ROUNDS):
            if len(best) == fewest:
                break
            parts = [best[rng.random(len(best)) < KEPT] for _ in range(self.sets)]
            best = min([*self.build(parts, rng), best], key=len)
        while len(best) > fewest and (smaller := self.with_one_less(best, rng)) is not None:
            best = smaller
        return best

    def with_one_less(self, rows: Codes, rng: np.random.Generator) -> Codes | None:
        """The set without one scenario, the others changed until all cells are served again; None where that fails.

        Tabu search: some cell that lacks data is written into the scenario that loses least by it, and that scenario
        is then left alone for a while.
        """
        alone = (self._counts(rows) <= self.lack)[self.cells(rows)].sum(axis=1)
        rows = np.delete(rows, alone.argmin(), axis=0)
        counts, free_at = self._counts(rows), np.zeros(len(rows), np.intp)
        for turn in range(min(REPAIRS, REPAIR_EFFORT // max(len(rows) * len(self.offsets), 1))):
            lacking = np.flatnonzero(counts < self.lack)
            if not len(lacking):
                return rows
            cell = rng.choice(lacking)
            projection = np.searchsorted(self.offsets, cell, side="right") - 1
            members = self.members[projection]
            changed = rows.copy()
            codes = (cell - self.offsets[projection]) // self.strides[projection]
            changed[:, members] = codes % (self.unset[members] + 1)
            old, new = self.cells(rows), self.cells(changed)
            moved = old != new
            lost = ((counts <= self.lack) & (self.lack > 0))[old] & moved
            gained = (counts < self.lack)[new] & moved
            worth = gained.sum(axis=1) - lost.sum(axis=1) + rng.random(len(rows))
            barred = (free_at > turn) | ~self._possible(changed)
            if barred.all():
                continue
            chosen = int(np.where(barred, -np.inf, worth).argmax())
            np.subtract.at(counts, old[chosen], 1)
            np.add.at(counts, new[chosen], 1)
            rows[chosen], free_at[chosen] = changed[chosen], turn + 1 + rng.integers(1, 4)
        return None

    def _possible(self, rows: Codes) -> NDArray[np.bool_]:
        """Which scenarios (rows, conditions) the constraints allow."""
        allowed = np.ones(len(rows), bool)
        for table, members in self.schema.linked_combinations:
            allowed &= (table == rows[:, None, list(members)]).all(axis=2).any(axis=1)
        return allowed

    def build(self, parts: list[Codes], rng: np.random.Generator) -> list[Codes]:
        """Each part completed to a set of scenarios, side by side; no set has a superfluous scenario."""
        lack = np.stack([np.maximum(self.lack - self._counts(part), 0) for part in parts])
        sets, set_index = [list(part) for part in parts], np.arange(self.sets)
        while (lacking := lack.any(axis=1)).any():
            candidates = self._candidates(lack > 0, rng)
            gains = np.take_along_axis(lack[:, None] > 0, self.cells(candidates), axis=2).sum(axis=2)
            best = candidates[set_index, gains.argmax(axis=1)]
            cells = self.cells(best)
            lack[set_index[:, None], cells] = np.maximum(lack[set_index[:, None], cells] - 1, 0)
            for unfinished in np.flatnonzero(lacking):
                sets[unfinished].append(best[unfinished])
        return [self._without_superfluous(np.array(rows, np.intp).reshape(-1, len(self.unset))) for rows in sets]

    def _counts(self, rows: Codes) -> NDArray[np.int64]:
        """How often scenarios (rows, conditions) show each cell."""
        return np.bincount(self.cells(rows).ravel(), minlength=len(self.lack))

    def ordered(self, rows: Codes) -> Codes:
        """The same scenarios, each the one that then adds most weight."""
        lack, left, order = self.lack.copy(), list(range(len(rows))), list[int]()
        while left:
            gains = (self.worth * (lack > 0))[self.cells(rows[left])].sum(axis=1)
            order.append(left.pop(int(np.argmax(gains))))
            cell = self.cells(rows[order[-1]])
            lack[cell] = np.maximum(lack[cell] - 1, 0)
        return rows[order]

    def _candidates(self, needed: NDArray[np.bool_], rng: np.random.Generator) -> Codes:
        """Scenarios (sets, CANDIDATES, conditions), each grown from a needed cell, its conditions in random order."""
        scores = np.where(needed.any(axis=1, keepdims=True), needed, self.lack > 0).astype(np.float32)
        shares = np.cumsum(scores, axis=1)
        draws = rng.random((len(scores), CANDIDATES)) * shares[:, -1:]
        pairs = zip(shares, draws, strict=True)
        start = np.concatenate([np.searchsorted(share, draw, side="right") for share, draw in pairs])
        projection = np.searchsorted(self.offsets, start, side="right") - 1
        first, count = self.members[projection], len(self.unset)
        rows = np.tile(self.unset, (len(start), 1))
        codes = (start - self.offsets[projection])[:, None] // self.strides[projection]
        np.put_along_axis(rows, first, codes % (self.unset[first] + 1), axis=1)
        growth = _Growth(self.schema, rows)
        # Chance decides between equals only in part of the sets: a regular choice can give a very regular, small set.
        luck = np.repeat(np.linspace(0, 1, len(needed)), CANDIDATES)[:, None]
        turn = rng.random(rows.shape)
        np.put_along_axis(turn, first, -1.0, axis=1)
        order = np.argsort(turn, axis=1)[:, first.shape[1] :]
        flat = needed.ravel()
        base = np.repeat(np.arange(len(needed)) * needed.shape[1], CANDIDATES)
        for condition in order.T:
            gain = self._gains(flat, base, rows, condition)
            gain[~growth.allowed(condition, gain.shape[1])] = -1
            value = np.argmax(gain + luck * rng.random(gain.shape), axis=1)
            growth.fix(condition, value)
            np.put_along_axis(rows, condition[:, None], value[:, None], axis=1)
        return rows.reshape(len(needed), CANDIDATES, count)

    def _gains(self, needed: NDArray[np.bool_], base: Codes, rows: Codes, condition: Codes) -> NDArray[np.float64]:
        """Needed cells that each value of a row's condition completes: (rows, most values), -1 beyond its values."""
        projections = self.projections_of[condition]
        members, strides = self.members[projections], self.strides[projections]
        is_condition = members == condition[:, None, None]
        others = np.take_along_axis(rows, members.reshape(len(rows), -1), axis=1).reshape(members.shape)
        cell = base[:, None] + self.offsets[projections] + np.where(is_condition, 0, others * strides).sum(axis=2)
        values = np.arange(self.unset.max())
        inside = values < self.unset[condition][:, None]
        step = np.where(is_condition, strides, 0).sum(axis=2)[:, :, None] * np.where(inside, values, 0)[:, None]
        return np.where(inside, needed[cell[:, :, None] + step].sum(axis=1), -1.0)

    def _without_superfluous(self, rows: Codes) -> Codes:
        """The set without scenarios whose every cell the others serve as well."""
        surplus = self._counts(rows) - self.lack
        kept = list[int]()
        for row, cells in enumerate(self.cells(rows)):
            if (surplus[cells] >= 1).all():
                surplus[cells] -= 1
            else:
                kept.append(row)
        return rows[kept]


class _Growth:
    """Which values the constraints still allow while many scenarios grow, each in its own order.

    parts   each linked condition, its values in the possible combinations, and which of these a row can still become
    """

    def __init__(self, schema: Schema, rows: Codes) -> None:
        self.parts = list[tuple[int, Codes, NDArray[np.bool_]]]()
        for table, members in schema.linked_combinations:
            member_codes = rows[:, members]
            fits = (table == member_codes[:, None]) | (member_codes == np.array(schema.sizes)[list(members)])[:, None]
            alive = fits.all(axis=2)
            self.parts += [(member, column, alive) for member, column in zip(members, table.T, strict=True)]

    def allowed(self, condition: Codes, values: int) -> NDArray[np.bool_]:
        """(rows, values): some possible scenario has this value of the row's condition, and all that is fixed."""
        allowed = np.ones((len(condition), values), bool)
        for member, column, alive in self.parts:
            of_member = np.flatnonzero(condition == member)
            has = (column[:, None] == np.arange(values)).astype(np.float32)
            allowed[of_member] = alive[of_member].astype(np.float32) @ has > 0
        return allowed

    def fix(self, condition: Codes, value: Codes) -> None:
        """Give every row's condition a value."""
        for member, column, alive in self.parts:
            of_member = np.flatnonzero(condition == member)
            alive[of_member] &= column == value[of_member, None]
