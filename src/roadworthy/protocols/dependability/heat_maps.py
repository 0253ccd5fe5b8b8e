"""The stored heat maps of a model: which images count, how each scores, and the curve over rho."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import occlusion
from roadworthy.protocols.dependability.settings import Occlusion

RHOS = tuple(step / 20 for step in range(21))
MISREAD, BELOW = "misread without a patch", "below rho without a patch"
"""Why an image does not count: it has nothing to lose under a patch, or nothing to compare with."""


@dataclass(frozen=True)
class StoredHeatMaps:
    """The heat maps of n images under one model.

    rows         the row of each image in the data, (n,);  labels  their classes, (n,)
    maps, cells  the probability left and whether the object is hidden, (n, rows, columns) of the patch each
    undisturbed  the probability without a patch, (n,);  predictions  the classes answered without a patch, (n,)
    masked       the maps of the same images without their objects; None where there are none
    own_masked   the same of the class that is answered to the image without its object
    boxes        the boxes (n, 4) of the objects; None in runs of earlier versions
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    maps: NDArray[np.float32]
    cells: NDArray[np.bool_]
    undisturbed: NDArray[np.float64]
    predictions: NDArray[np.int64]
    choice: Occlusion
    masked: NDArray[np.float32] | None = None
    own_masked: NDArray[np.float32] | None = None
    boxes: NDArray[np.float32] | None = None

    @property
    def misread(self) -> NDArray[np.bool_]:
        """Which images are misread without a patch, (n,)."""
        return np.asarray(self.predictions != self.labels)

    def thresholds(self, rho: float) -> NDArray[np.float64]:
        """Below what probability a cell of each image is hot, (n,)."""
        if self.choice.relative:
            return occlusion.relative_rho(rho, self.undisturbed)
        return np.full(len(self.undisturbed), rho)

    @cached_property
    def rho(self) -> NDArray[np.float64]:
        """The threshold that the study asks for, by image, (n,)."""
        return self.thresholds(self.choice.rho)

    @cached_property
    def scores(self) -> occlusion.OcclusionScores:
        """Precision and covering of each image, also of those that do not count."""
        return occlusion.occlusion_scores(self.maps, self.cells, self.rho)

    @cached_property
    def chance(self) -> NDArray[np.float64]:
        """The precision of cells drawn blindly, (n,); NaN where no cell is hot, so that the precision has no value."""
        return np.where(self.scores.hot > 0, occlusion.chance_precision(self.cells), np.nan)

    @cached_property
    def masked_precision(self) -> NDArray[np.float64]:
        """The precision of the image without its object, with the same class and rho, (n,); NaN as that with it."""
        if self.masked is None:
            return np.full(len(self.maps), np.nan)
        scores = occlusion.occlusion_scores(self.masked, self.cells, self.rho)
        return np.where(self.scores.hot > 0, scores.precision, np.nan)

    @cached_property
    def place_precision(self) -> NDArray[np.float64]:
        """The precision of as many cells as are hot, those that take most from the image without its object, (n,)."""
        if self.own_masked is None:
            return np.full(len(self.maps), np.nan)
        return occlusion.matched_precision(self.own_masked, self.cells, self.scores.hot)

    @cached_property
    def left_out(self) -> NDArray[np.str_]:
        """Why an image does not count, (n,); empty where it does."""
        return np.where(self.misread, MISREAD, np.where(self.undisturbed < self.rho, BELOW, ""))

    @property
    def counts(self) -> NDArray[np.bool_]:
        """Which images count, (n,)."""
        return np.asarray(self.left_out == "")

    def image_rows(self) -> Iterator[dict[str, Any]]:
        """What is known of each image: lowest precision first, then most covering; those without a value last."""
        precision, covering = (np.where(self.counts, s, np.nan) for s in (self.scores.precision, self.scores.covering))
        for index in np.lexsort((-np.nan_to_num(covering, nan=-1), np.nan_to_num(precision, nan=2))).tolist():
            why = str(self.left_out[index])
            yield {
                "row": int(self.rows[index]),
                "map": self.maps[index],
                "counts": not why,
                "undisturbed": float(self.undisturbed[index]),
                "rho": float(self.rho[index]),
                "hot": int(self.scores.hot[index]),
                "occluding": int(self.scores.occluding[index]),
                "both": int(self.scores.both[index]),
                "precision": float(precision[index]),
                "chance": float(self.chance[index]) if not why else np.nan,
                "masked": float(self.masked_precision[index]) if not why else np.nan,
                "place": float(self.place_precision[index]) if not why else np.nan,
                "covering": float(covering[index]),
                "reason": why or self.scores.precision_reasons[index],
                "covering_reason": why or self.scores.covering_reasons[index],
            }

    def curve(self) -> Iterator[dict[str, Any]]:
        """Both measures over rho, of the images that are read right and not below it without a patch."""
        for rho in RHOS:
            thresholds = self.thresholds(rho)
            kept = ~self.misread & (self.undisturbed >= thresholds)
            scores = occlusion.occlusion_scores(self.maps[kept], self.cells[kept], thresholds[kept])
            point: dict[str, Any] = {"rho": rho, "relative": self.choice.relative}
            chance = occlusion.chance_precision(self.cells[kept])[scores.hot > 0]
            point["chance"] = occlusion.summarise(chance).mean
            for name, values in (("precision", scores.precision), ("covering", scores.covering)):
                summary = occlusion.summarise(values)
                point |= {name: summary.mean, f"{name}_lowest": summary.lowest, f"{name}_highest": summary.highest}
                point[f"{name}_images"] = summary.n
            yield point
