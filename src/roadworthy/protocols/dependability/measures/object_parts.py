"""Beside occlusion covering: which part of the object is sensitive, in the coordinates of its own box (section G).

    left(part) = mean over images of the probability left while a patch hides that part of the box
    hot(part)  = share of the images in which it is hot there

A part that is hot in many images of a class (the head of a dog) asks for tests in which just this part is hidden.
"""

from __future__ import annotations

import numpy as np

from roadworthy.metrics.occlusion import PatchGrid, in_boxes
from roadworthy.protocols.dependability.measures.base import Measure, Results
from roadworthy.protocols.dependability.measures.over_heat_maps import scopes_of
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import OCCLUSION_PARTS

DOWN = ("top", "upper", "middle", "lower", "bottom")
ACROSS = ("far left", "left", "centre", "right", "far right")
PARTS = len(DOWN)


def part_name(row: int, column: int) -> str:
    """A part of a box in words.

    >>> part_name(0, 2)
    'top centre'
    """
    return f"{DOWN[row]} {ACROSS[column]}"


class ObjectParts(Measure):
    """Rows alone: a box of 5 x 5 parts for all images and for every class."""

    tables = (OCCLUSION_PARTS,)

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Means over the images that count; none where the run has no heat maps or no boxes."""
        heat_maps = data.heat_maps.get(model)
        if heat_maps is None or heat_maps.boxes is None:
            return
        left = in_boxes(heat_maps.maps, heat_maps.boxes, PatchGrid(*data.resolved.grid), PARTS)
        lost, hot = heat_maps.undisturbed[:, None, None] - left, left < heat_maps.rho[:, None, None]
        marked = heat_maps.counts & ~np.isnan(heat_maps.boxes).any(axis=1)
        for scope, chosen in scopes_of(heat_maps, data.class_names):
            of_scope = chosen & marked
            for row, column in np.ndindex(PARTS, PARTS) if of_scope.any() else ():
                where = of_scope, row, column
                results.rows[OCCLUSION_PARTS].append(
                    {
                        "model": model,
                        "scope": scope,
                        "row": row + 1,
                        "column": column + 1,
                        "part": part_name(row, column),
                        "left": float(left[where].mean()),
                        "lost": float(lost[where].mean()),
                        "hot": float(hot[where].mean()),
                        "images": int(of_scope.sum()),
                    }
                )
