"""Occlusion: does a classifier look at the object? Interpretation precision and occlusion sensitivity covering.

A heat map has one cell per place where a patch hides the image; its value is the probability of the object's class that
is left. All counts are of cells, never of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.weighting import Floats, ratio

Bools = NDArray[np.bool_]

NO_HOT, NO_OBJECT = "no hot cell", "no cell hides the object"


@dataclass(frozen=True)
class PatchGrid:
    """Where a square patch of `patch` pixels lies on an image (height, width), moved by `stride`.

    The first patch lies in the corner; the last one reaches the far edge and is cut off there.

    >>> grid = PatchGrid(10, 8, patch=4, stride=3)
    >>> grid.shape, grid.tops.tolist(), grid.lefts.tolist()
    ((3, 3), [0, 3, 6], [0, 3, 6])
    """

    height: int
    width: int
    patch: int
    stride: int

    def __post_init__(self) -> None:
        if not 1 <= self.patch <= min(self.height, self.width):
            raise ValueError(f"a patch of {self.patch} pixels does not fit an image of {self.height}x{self.width}")
        if not 1 <= self.stride <= self.patch:
            raise ValueError(f"the stride must lie between 1 and the patch, {self.patch}, not {self.stride}: no gaps")

    @property
    def tops(self) -> NDArray[np.intp]:
        """Upper edge of each row of cells."""
        return self._starts(self.height)

    @property
    def lefts(self) -> NDArray[np.intp]:
        """Left edge of each column of cells."""
        return self._starts(self.width)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the heat map."""
        return len(self.tops), len(self.lefts)

    def _starts(self, side: int) -> NDArray[np.intp]:
        return np.arange(-(-(side - self.patch) // self.stride) + 1) * self.stride


@dataclass(frozen=True)
class OcclusionScores:
    """Counts of cells per image, (n,) each, and the two metrics made of them.

    hot  cells below rho;  occluding  cells whose patch hides some of the object;  both  cells that are both
    """

    hot: NDArray[np.int64]
    occluding: NDArray[np.int64]
    both: NDArray[np.int64]

    @property
    def precision(self) -> Floats:
        """Interpretation precision |hot and occluding| / |hot|; NaN where no cell is hot."""
        return ratio(self.both, self.hot)

    @property
    def covering(self) -> Floats:
        """Occlusion sensitivity covering |hot and occluding| / |occluding|; NaN where no cell hides the object."""
        return ratio(self.both, self.occluding)

    @property
    def precision_reasons(self) -> tuple[str, ...]:
        """Why an image has no precision; empty where it has one."""
        return tuple("" if count else NO_HOT for count in self.hot)

    @property
    def covering_reasons(self) -> tuple[str, ...]:
        """Why an image has no covering; empty where it has one."""
        return tuple("" if count else NO_OBJECT for count in self.occluding)


@dataclass(frozen=True)
class Summary:
    """Mean, lowest and highest value over the images that have one: `n` of `images`."""

    mean: float
    lowest: float
    highest: float
    n: int
    images: int
    reason: str = ""


def occlusion_scores(maps: ArrayLike, occluding: ArrayLike, rho: ArrayLike) -> OcclusionScores:
    """Interpretation precision (equation 5) and occlusion sensitivity covering, per image.

        M_interpret = |hot and occluding| / |hot|        M_OccSen = |hot and occluding| / |occluding|

    maps (n, rows, columns): the probability left;  occluding: the same shape, bool, from `cells_of_masks` or
    `cells_of_boxes`;  rho: one threshold, or (n,). A cell is hot strictly below rho. For a relative threshold give
    `relative_rho(share, undisturbed)`.

    >>> scores = occlusion_scores([[[0.2, 0.9], [0.4, 0.5]]], [[[True, True], [False, False]]], rho=0.5)
    >>> scores.precision, scores.covering
    (array([0.5]), array([0.5]))
    """
    heat, hides = np.asarray(maps, dtype=np.float64), np.asarray(occluding)
    if heat.ndim != 3 or hides.shape != heat.shape or hides.dtype != np.bool_:
        raise ValueError(
            f"maps (n, rows, columns) and bool cells of one shape are needed, not {heat.shape} and "
            f"{hides.dtype} {hides.shape}"
        )
    if np.isnan(heat).any():
        raise ValueError("a heat map must not hold NaN")
    threshold = np.asarray(rho, dtype=np.float64)
    if threshold.shape not in ((), (len(heat),)) or np.isnan(threshold).any():
        raise ValueError(f"rho must be one number or one per image, not of shape {threshold.shape}")
    hot = heat < np.broadcast_to(threshold, len(heat))[:, None, None]
    return OcclusionScores(*(which.sum(axis=(1, 2), dtype=np.int64) for which in (hot, hides, hot & hides)))


def chance_precision(occluding: ArrayLike) -> Floats:
    """The interpretation precision of a hot set drawn blindly, per image, (n,).

        E |hot and occluding| / |hot| = |occluding| / |cells|

    whatever the number of hot cells: each is as likely to hide the object as any cell. occluding (n, rows, columns).

    >>> chance_precision([[[True, True], [True, False]]])
    array([0.75])
    """
    return np.asarray(np.asarray(occluding, dtype=np.float64).mean(axis=(1, 2)))


def matched_precision(maps: ArrayLike, occluding: ArrayLike, hot: ArrayLike) -> Floats:
    """Interpretation precision of the `hot` (n,) lowest cells of each map, whatever their probability, (n,).

    So maps of other images are compared with as many cells as were hot in the images that they stand beside. Of cells
    of one probability, of which only some are among the lowest, all count in part: the mean over all ways to choose.
    NaN where no cell is hot. maps and occluding (n, rows, columns).

    >>> matched_precision([[[0.1, 0.9], [0.9, 0.9]]], [[[False, True], [True, False]]], hot=[2])
    array([0.33333333])
    """
    heat = np.asarray(maps, dtype=np.float64)
    hides, wanted = np.asarray(occluding), np.asarray(hot, dtype=np.intp)
    if heat.ndim != 3 or hides.shape != heat.shape or hides.dtype != np.bool_ or wanted.shape != (len(heat),):
        raise ValueError(f"maps, bool cells and a count of hot cells are needed, not {heat.shape}, {hides.shape}")
    if np.isnan(heat).any() or (wanted > np.prod(heat.shape[1:])).any():
        raise ValueError("a heat map must not hold NaN, nor have fewer cells than are hot")
    precision = np.full(len(heat), math.nan)
    for image in np.flatnonzero(wanted > 0):
        left, hiding, count = heat[image].ravel(), hides[image].ravel(), int(wanted[image])
        last = np.partition(left, count - 1)[count - 1]
        below, equal = left < last, left == last
        share = (count - below.sum()) / equal.sum()
        precision[image] = (hiding[below].sum() + share * hiding[equal].sum()) / count
    return precision


def in_boxes(maps: ArrayLike, boxes: ArrayLike, grid: PatchGrid, parts: int) -> Floats:
    """Heat maps in the coordinates of the objects' own boxes: (n, parts, parts), the first row at the top of the box.

    A box (n, 4) x0, y0, x1, y1 is cut into equal parts; each takes what the heat map (n, rows, columns) says at its
    middle, linear between the middles of patches and level beyond the outermost. A map of a box of NaN is NaN.

    >>> left_to_right = [[[0.0, 1.0], [0.0, 1.0]]]  # patches whose middles are at 1 and 3 of 4 pixels
    >>> in_boxes(left_to_right, [[1, 1, 3, 3]], PatchGrid(4, 4, patch=2, stride=2), parts=2)[0]
    array([[0.25, 0.75],
           [0.25, 0.75]])
    """
    heat, corners = np.asarray(maps, dtype=np.float64), np.asarray(boxes, dtype=np.float64)
    if heat.shape[1:] != grid.shape or corners.shape != (len(heat), 4):
        raise ValueError(f"maps of the grid {grid.shape} and a box each are needed, not {heat.shape}, {corners.shape}")
    middles = (np.arange(parts) + 0.5) / parts
    x0, y0, x1, y1 = corners.T[:, :, None]
    down = _weights(y0 + middles * (y1 - y0), grid.tops, grid.patch, grid.height)
    across = _weights(x0 + middles * (x1 - x0), grid.lefts, grid.patch, grid.width)
    return np.asarray(np.einsum("npr,nrc,nqc->npq", down, heat, across))


def _weights(points: Floats, starts: NDArray[np.intp], patch: int, side: int) -> Floats:
    """How much each cell of an axis counts at the points (n, parts): (n, parts, cells), linear between its middles."""
    middles = (starts + np.minimum(starts + patch, side)) / 2
    unit = np.eye(len(middles))
    return np.stack([np.interp(points, middles, unit[cell]) for cell in range(len(middles))], axis=-1)


def relative_rho(share: float, undisturbed: ArrayLike) -> Floats:
    """A threshold per image: a share of the probability that the undisturbed image has, (n,).

    >>> relative_rho(0.5, [0.9, 0.4])
    array([0.45, 0.2 ])
    """
    return share * np.asarray(undisturbed, dtype=np.float64)


def occlusion_curve(
    maps: ArrayLike, occluding: ArrayLike, rhos: Sequence[float], undisturbed: ArrayLike | None = None
) -> list[tuple[float, Summary, Summary]]:
    """Precision and covering over images for each threshold: (rho, precision, covering).

    Absolute thresholds, or, with the `undisturbed` probabilities (n,), shares of these.

    >>> (_, precision, covering), = occlusion_curve([[[0.2, 0.9]]], [[[True, True]]], [0.5])
    >>> precision.mean, covering.mean
    (1.0, 0.5)
    """
    points = []
    for rho in rhos:
        scores = occlusion_scores(maps, occluding, rho if undisturbed is None else relative_rho(rho, undisturbed))
        points.append((rho, summarise(scores.precision, NO_HOT), summarise(scores.covering, NO_OBJECT)))
    return points


def summarise(values: ArrayLike, why: str = "") -> Summary:
    """Mean, lowest and highest of the values that exist; `why` is the reason where none does.

    >>> summarise([0.5, float("nan"), 1.0])
    Summary(mean=0.75, lowest=0.5, highest=1.0, n=2, images=3, reason='')
    """
    table = np.asarray(values, dtype=np.float64)
    known = table[~np.isnan(table)]
    if not known.size:
        return Summary(math.nan, math.nan, math.nan, 0, len(table), why if len(table) else "no images")
    return Summary(float(known.mean()), float(known.min()), float(known.max()), len(known), len(table))


def cells_of_masks(masks: ArrayLike, grid: PatchGrid) -> Bools:
    """The cells whose patch overlaps the mask: masks (n, height, width) bool to (n, rows, columns).

    >>> mask = np.zeros((1, 4, 4), bool)
    >>> mask[0, 0, 1] = True
    >>> cells_of_masks(mask, PatchGrid(4, 4, patch=2, stride=1))[0].astype(int)
    array([[1, 1, 0],
           [0, 0, 0],
           [0, 0, 0]])
    """
    covered = np.asarray(masks)
    if covered.ndim != 3 or covered.shape[1:] != (grid.height, grid.width) or covered.dtype != np.bool_:
        raise ValueError(
            f"masks must be bool (n, {grid.height}, {grid.width}), the size of the images, "
            f"not {covered.dtype} {covered.shape}"
        )
    sums = np.zeros((len(covered), grid.height + 1, grid.width + 1), np.int64)
    sums[:, 1:, 1:] = covered.cumsum(axis=1).cumsum(axis=2)
    top, left = grid.tops[:, None], grid.lefts[None, :]
    bottom, right = np.minimum(top + grid.patch, grid.height), np.minimum(left + grid.patch, grid.width)
    inside = sums[:, bottom, right] - sums[:, top, right] - sums[:, bottom, left] + sums[:, top, left]
    return np.asarray(inside > 0)


def cells_of_boxes(boxes: ArrayLike, grid: PatchGrid) -> Bools:
    """The cells whose patch overlaps the box: boxes (n, 4) x0, y0, x1, y1 (far edges exclusive) to (n, rows, columns).

    A box of NaN, or without area, overlaps nothing.

    >>> cells_of_boxes([[0, 0, 2, 4]], PatchGrid(4, 4, patch=2, stride=2))[0].astype(int)
    array([[1, 0],
           [1, 0]])
    """
    table = np.asarray(boxes, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"boxes must be (n, 4), not {table.shape}")
    x0, y0, x1, y1 = table.T[:, :, None]
    rows = (np.maximum(y0, grid.tops) < np.minimum(y1, np.minimum(grid.tops + grid.patch, grid.height)))[:, :, None]
    columns = (np.maximum(x0, grid.lefts) < np.minimum(x1, np.minimum(grid.lefts + grid.patch, grid.width)))[:, None, :]
    return np.asarray(rows & columns)
