"""The cut-out around an object: a random square of the frame that holds the whole object, and what else is in it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from roadworthy.data.curation.frames import Box


@dataclass(frozen=True, slots=True)
class Cutout:
    """A square of a frame in whole pixels: left and top corner, and the length of a side."""

    x0: int
    y0: int
    side: int

    @property
    def box(self) -> Box:
        """The square as x0, y0, x1, y1 in pixels of the frame."""
        return self.x0, self.y0, self.x0 + self.side, self.y0 + self.side

    def scaled(self, box: Box, size: int) -> Box:
        """A box of the frame in pixels of the cut-out after that was scaled to size x size.

        Every coordinate becomes (coordinate - corner) * size / side.

        >>> Cutout(100, 50, 128).scaled((110, 60, 142, 92), 256)
        (20.0, 20.0, 84.0, 84.0)
        """
        factor = size / self.side
        x0, y0, x1, y1 = box
        return (
            (x0 - self.x0) * factor,
            (y0 - self.y0) * factor,
            (x1 - self.x0) * factor,
            (y1 - self.y0) * factor,
        )


def random_cutout(
    box: Box, width: int, height: int, rng: np.random.Generator, *, shift: float, zoom: tuple[float, float]
) -> Cutout | None:
    """A random cut-out for an object whose box lies in a frame of that width and height; None where none can hold it.

    Three numbers are drawn. The centre of the box is moved by a distance, uniform from 0 to `shift` times the longer
    side of the box, in a direction, uniform over all angles. The smallest square around the moved centre that holds
    the box is enlarged by a factor, uniform over `zoom` (both at least 1). A square that is larger than the frame
    becomes as large as the frame's shorter side; one that reaches over the frame's edge is moved back, as little as
    possible, so that it lies in the frame and still holds the box.

    >>> rng = np.random.default_rng(0)
    >>> random_cutout((100, 100, 140, 120), 640, 480, rng, shift=0.0, zoom=(1.0, 1.0))
    Cutout(x0=100, y0=90, side=40)
    >>> random_cutout((0, 0, 500, 20), 640, 480, rng, shift=0.5, zoom=(1.0, 2.0)) is None
    True
    """
    angle, distance, factor = rng.uniform(0, 2 * math.pi), rng.uniform(0, shift), rng.uniform(*zoom)
    left, top, right, bottom = math.floor(box[0]), math.floor(box[1]), math.ceil(box[2]), math.ceil(box[3])
    smallest, largest = max(right - left, bottom - top), min(width, height)
    if smallest > largest:
        return None
    step = distance * max(box[2] - box[0], box[3] - box[1])
    centre_x = (box[0] + box[2]) / 2 + step * math.cos(angle)
    centre_y = (box[1] + box[3]) / 2 + step * math.sin(angle)
    reach = max(centre_x - left, right - centre_x, centre_y - top, bottom - centre_y)
    side = min(max(round(2 * reach * factor), smallest), largest)
    return Cutout(
        _corner(centre_x - side / 2, left, right, side, width),
        _corner(centre_y - side / 2, top, bottom, side, height),
        side,
    )


def _corner(wanted: float, begin: int, end: int, side: int, length: int) -> int:
    """The whole number nearest to `wanted` at which an interval holds begin to end and lies in 0 to length."""
    return min(max(round(wanted), end - side, 0), begin, length - side)


def clipped(box: Box, frame: Box) -> Box | None:
    """The part of a box inside another one; None where there is none.

    >>> clipped((0, 0, 4, 4), (2, 1, 9, 9)), clipped((0, 0, 1, 1), (1, 0, 2, 2))
    ((2, 1, 4, 4), None)
    """
    x0, y0, x1, y1 = max(box[0], frame[0]), max(box[1], frame[1]), min(box[2], frame[2]), min(box[3], frame[3])
    return (x0, y0, x1, y1) if x1 > x0 and y1 > y0 else None


def touches_edge(box: Box, width: int, height: int) -> bool:
    """Whether a box reaches an edge of a frame of that width and height, or lies beyond it.

    >>> touches_edge((0, 10, 50, 60), 640, 480), touches_edge((0.5, 10, 50, 60), 640, 480)
    (True, False)
    """
    return box[0] <= 0 or box[1] <= 0 or box[2] >= width or box[3] >= height


def area(box: Box) -> float:
    """The area of a box in square pixels."""
    return (box[2] - box[0]) * (box[3] - box[1])


def union_area(boxes: Iterable[Box]) -> float:
    """The area that boxes cover together, what several of them cover counted once.

    >>> union_area([(0, 0, 2, 2), (1, 0, 3, 2)])
    6.0
    """
    listed = list(boxes)
    columns = sorted({edge for box in listed for edge in (box[0], box[2])})
    total = 0.0
    for begin, end in pairwise(columns):
        covered = 0.0
        reached = -math.inf
        for top, bottom in sorted((box[1], box[3]) for box in listed if box[0] <= begin and box[2] >= end):
            covered += max(bottom - max(top, reached), 0.0)
            reached = max(reached, bottom)
        total += covered * (end - begin)
    return total
