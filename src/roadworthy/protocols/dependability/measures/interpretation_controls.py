"""Beside interpretation precision: what says nothing of the model would give as well.

    chance = |occluding| / |cells|        place = |lowest and occluding| / |hot|

chance is the precision of as many cells drawn blindly: on a crop that the object fills, nearly every patch hides it,
and any precision is high.

The controls are of the same images without their objects (`without_objects`). masked is equation 5 once more, with the
same class and rho: where the class is lost with its object, every cell is hot and masked is chance; where it is still
answered, masked lies below chance (by the surroundings) or above (by the filled box). place follows the new answer: as
many cells as were hot, those that take most from this answer. They cannot show the object, so where place lies above
chance, the model is sensitive to where objects stand, whatever stands there.

All are means over the images that precision is a mean over.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import Metric, occlusion
from roadworthy.protocols.dependability.heat_maps import StoredHeatMaps
from roadworthy.protocols.dependability.measures.base import BeforeRun
from roadworthy.protocols.dependability.measures.over_heat_maps import OverHeatMaps
from roadworthy.protocols.dependability.stored import StoredData

INTERPRETATION_CHANCE = Metric(
    "interpretation_chance",
    label="Interpretation precision by chance",
    sentence="Share of all cells of the heat map whose patch hides the object: the precision of blindly drawn cells.",
    higher_is_better=None,
    percent=True,
    mean_over_objects=True,
)
INTERPRETATION_MASKED = Metric(
    "interpretation_masked",
    label="Interpretation precision without the object",
    sentence="The same of images whose object is taken out: a control, at chance where the class is lost with it.",
    higher_is_better=None,
    percent=True,
    mean_over_objects=True,
)
INTERPRETATION_PLACE = Metric(
    "interpretation_place",
    label="Interpretation precision of the place alone",
    sentence="Share of as many cells on the object's place that take most from the answer to the image without it.",
    higher_is_better=None,
    percent=True,
    mean_over_objects=True,
)


class InterpretationChance(OverHeatMaps):
    """The share of all cells that hide the object, of the images that have a precision."""

    metrics = (INTERPRETATION_CHANCE,)
    undefined = occlusion.NO_HOT

    def per_image(self, heat_maps: StoredHeatMaps) -> NDArray[np.float64]:
        """The chance level of each image, (n,)."""
        return heat_maps.chance


class InterpretationMasked(OverHeatMaps):
    """The precision in images without their object, with the same class and threshold."""

    metrics: ClassVar[tuple[Metric, ...]] = (INTERPRETATION_MASKED,)
    undefined = occlusion.NO_HOT

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """All images and every class, unless the study leaves the control out."""
        return super().scopes(before) if before.resolved.settings.heat_maps.control else {}

    def failure(self, data: StoredData, model: str) -> str:
        """Why there is no control."""
        return data.control_failure(model)

    def per_image(self, heat_maps: StoredHeatMaps) -> NDArray[np.float64]:
        """The precision of each image without its object, (n,)."""
        return heat_maps.masked_precision


class InterpretationPlace(InterpretationMasked):
    """The share of as many cells that hide the place of the object, by what is answered to images without it."""

    metrics = (INTERPRETATION_PLACE,)

    def per_image(self, heat_maps: StoredHeatMaps) -> NDArray[np.float64]:
        """The precision of the place of each image, (n,)."""
        return heat_maps.place_precision
