"""Beside interpretation precision: what says nothing of the model would give as well.

    chance = |occluding| / |cells|        masked = |lowest and occluding| / |hot|

chance is the precision of as many cells drawn blindly: on a crop that the object fills, nearly every patch hides it,
and any precision is high. masked is the control: the object is taken out of the image (`without_objects`), and of the
heat map of what the model then answers as many cells are looked at as were hot, those that take most from this answer.
They cannot show where the object is, so a precision that does not fall to chance there is not that of the object. Both
are means over the images that precision is a mean over.
"""

from __future__ import annotations

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
    sentence="The same of images whose object is taken out, with as many cells: a control that falls to chance.",
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
    """The share of as many cells that hide the place of the object, in images without it."""

    metrics = (INTERPRETATION_MASKED,)
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
