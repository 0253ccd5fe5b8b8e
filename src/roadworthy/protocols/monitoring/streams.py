"""Streams: which images of both sides follow each other in a benchmark, as a pure function of ids, objects and a seed.

Models and monitors were asked about every image before; mixing and order only choose among stored answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Mixing:
    """How a stream is made.

    ratio   the share of OOD images
    order   random: as they come;  blocks: stretches of `block` images of one side;  gradual: the share of OOD images
            grows evenly;  runs: the images of one object stay together, in the order of the data
    name    of the benchmark: where both sides show the same objects, each benchmark deals them out anew, so that
            benchmarks do not all rest on the same half
    """

    ratio: float = 0.5
    order: str = "random"
    block: int = 50
    seed: int = 0
    name: str = ""


@dataclass(frozen=True)
class Stream:
    """Images in their order: `ood` (N,) says from which side each comes, `rows` (N,) which image of that side it is.

    `starts` (N,) is True for the first image of an object, or where another object was shown in between.
    """

    ood: NDArray[np.bool_]
    rows: Rows
    starts: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ood)

    def gather(self, inside: NDArray[np.generic], outside: NDArray[np.generic]) -> NDArray[np.generic]:
        """Values of the images of the stream, in its order, from those of all images of both sides."""
        chosen = np.empty((len(self), *inside.shape[1:]), np.result_type(inside, outside))
        chosen[~self.ood] = inside[self.rows[~self.ood]]
        chosen[self.ood] = outside[self.rows[self.ood]]
        return chosen


@dataclass(frozen=True)
class Side:
    """The images of one side: their ids and objects (n,)."""

    ids: Sequence[str]
    groups: Sequence[str]


def mixed(inside: Side, outside: Side, mixing: Mixing, *, shared: bool = False) -> Stream:
    """A stream of ID and OOD images with the share `ratio` of OOD ones, as long as the images of both sides allow.

    No image is shown twice. Where both sides are `shared`, the OOD side shows the same objects, disturbed: then an
    object is on one side only, and its image is shown either as it is or disturbed.

    With n = min(n_id / (1 - ratio), n_ood / ratio), rounded down: round(ratio n) OOD images, the others ID.
    """
    ratio = mixing.ratio
    if not 0 < ratio < 1:
        raise InputError(f"the ratio of a stream must lie between 0 and 1, not {ratio}")
    inside_rows, outside_rows = _keyed(inside, "id", mixing), _keyed(outside, "ood", mixing)
    if shared:
        inside_rows, outside_rows = _apart(inside, outside, inside_rows, outside_rows, mixing)
    number = int(min(len(inside_rows) / (1 - ratio), len(outside_rows) / ratio) + 1e-9)
    ood_number = min(round(ratio * number), len(outside_rows))
    id_number = min(number - ood_number, len(inside_rows))
    if not ood_number or not id_number:
        raise InputError(
            f"{len(inside_rows)} ID and {len(outside_rows)} OOD images are too few to be mixed with a share of "
            f"{ratio:g} OOD images: raise the limit or name another ratio"
        )
    chosen = inside_rows[:id_number], outside_rows[:ood_number]
    return _ordered(inside, outside, *chosen, mixing)


def unmixed(inside: Side, mixing: Mixing) -> Stream:
    """The stream of all ID images, without any from outside, in the same kind of order."""
    rows = _keyed(inside, "id", mixing)
    return _ordered(inside, Side((), ()), rows, rows[:0], mixing)


def _keyed(side: Side, name: str, mixing: Mixing) -> Rows:
    """The rows of a side in a drawn order, of which a stream takes the first: drawn by ids, so that further images
    never change the order of the others; by objects where the images of one stay together.
    """
    in_runs = mixing.order == "runs"
    keys = dict.fromkeys(side.groups if in_runs else side.ids)
    streams = Streams("monitoring stream", name, mixing.seed)
    drawn = {key: rng.random() for key, rng in zip(keys, streams.each(keys), strict=True)}
    return np.argsort([drawn[key] for key in (side.groups if in_runs else side.ids)], kind="stable")


def _apart(inside: Side, outside: Side, inside_rows: Rows, outside_rows: Rows, mixing: Mixing) -> tuple[Rows, Rows]:
    """The rows of each side that may be shown where both show the same objects: each object is dealt to one of them.

    Objects are put in a random order; the first ones, which have the share `ratio` of all images, are the OOD side's.
    """
    names, sizes = np.unique(np.array([*inside.groups], np.str_), return_counts=True)
    drawn = [rng.random() for rng in Streams("monitoring sides", mixing.seed, mixing.name).each(names.tolist())]
    order = np.argsort(np.array(drawn), kind="stable")
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    dealt = set(names[order][middle <= mixing.ratio * sizes.sum()].tolist())
    of_inside = np.array([inside.groups[row] not in dealt for row in inside_rows], bool)
    of_outside = np.array([outside.groups[row] in dealt for row in outside_rows], bool)
    return inside_rows[of_inside], outside_rows[of_outside]


def _ordered(inside: Side, outside: Side, id_rows: Rows, ood_rows: Rows, mixing: Mixing) -> Stream:
    """The chosen rows of both sides in the order of the stream."""
    if mixing.order == "runs":
        ood, rows = _in_runs(inside, outside, id_rows, ood_rows, mixing.seed)
    else:
        ood = _pattern(len(id_rows), len(ood_rows), mixing)
        rows = np.empty(len(ood), np.intp)
        rows[~ood], rows[ood] = id_rows, ood_rows
    return Stream(ood, rows, _starts(inside, outside, ood, rows))


def _pattern(inside: int, outside: int, mixing: Mixing) -> NDArray[np.bool_]:
    """Which places of a stream (N,) are for OOD images."""
    number = inside + outside
    if mixing.order == "random":
        keys = [str(position) for position in range(number)]
        drawn = [rng.random() for rng in Streams("monitoring positions", mixing.seed).each(keys)]
        ood = np.zeros(number, bool)
        ood[np.argsort(np.array(drawn), kind="stable")[:outside]] = True
        return ood
    if mixing.order == "blocks":
        return _blocks(inside, outside, mixing.block)
    if mixing.order == "gradual":
        return _gradual(inside, outside)
    raise InputError(f"the order of a stream is random, blocks, gradual or runs, not {mixing.order!r}")


def _blocks(inside: int, outside: int, block: int) -> NDArray[np.bool_]:
    """Blocks of `block` images of one side, ID first; those of the rarer side are spread evenly over the others.

    >>> _blocks(4, 4, 2).astype(int).tolist()
    [0, 0, 1, 1, 0, 0, 1, 1]
    """
    id_blocks, ood_blocks = -(-inside // block), -(-outside // block)
    due = np.arange(1, id_blocks + ood_blocks + 1) * ood_blocks // max(1, id_blocks + ood_blocks)
    of_ood = np.diff(due, prepend=0) > 0
    left = {False: inside, True: outside}
    positions: list[bool] = []
    for is_ood in of_ood.tolist():
        images = min(block, left[is_ood])
        left[is_ood] -= images
        positions += [is_ood] * images
    return np.array(positions, bool)


def _gradual(inside: int, outside: int) -> NDArray[np.bool_]:
    """The share of OOD images grows evenly: from 0 where at most half of all are, up to 1 where at least half are.

    The number of OOD images among the first i of N is that of a straight line of shares, rounded down.

    >>> _gradual(4, 4).astype(int).tolist()
    [0, 0, 0, 1, 0, 1, 1, 1]
    """
    number = inside + outside
    if not number:
        return np.zeros(0, bool)
    share = outside / number
    first, last = (0.0, 2 * share) if share <= 0.5 else (2 * share - 1, 1.0)
    position = np.arange(1, number + 1) / number
    due = np.floor(number * (first * position + (last - first) * position**2 / 2) + 1e-9)
    return np.diff(due, prepend=0) > 0


def _in_runs(inside: Side, outside: Side, id_rows: Rows, ood_rows: Rows, seed: int) -> tuple[NDArray[np.bool_], Rows]:
    """Objects in a random order, the images of each in the order of the data."""
    runs: dict[tuple[bool, str], list[int]] = {}
    for is_ood, side, rows in ((False, inside, id_rows), (True, outside, ood_rows)):
        for row in np.sort(rows).tolist():
            runs.setdefault((is_ood, side.groups[row]), []).append(row)
    names = [f"{'ood' if is_ood else 'id'}/{group}" for is_ood, group in runs]
    drawn = np.array([rng.random() for rng in Streams("monitoring runs", seed).each(names)])
    keys = [*runs]
    order = [keys[position] for position in np.argsort(drawn, kind="stable")]
    ood = [key[0] for key in order for _ in runs[key]]
    return np.array(ood, bool), np.array([row for key in order for row in runs[key]], np.intp)


def _starts(inside: Side, outside: Side, ood: NDArray[np.bool_], rows: Rows) -> NDArray[np.bool_]:
    groups = [(is_ood, (outside if is_ood else inside).groups[row]) for is_ood, row in zip(ood, rows, strict=True)]
    return np.array(
        [position == 0 or groups[position] != groups[position - 1] for position in range(len(groups))], bool
    )
