"""6. Interpretation precision: whether the answer rests on the object or on its surroundings (equation 5).

    M_interpret = |hot and occluding| / |hot|

A patch hides one part of the image after the other. A cell of the heat map is hot where the probability of the true
class that is left lies strictly below rho, and occluding where the patch hides some of the object.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import Metric, occlusion
from roadworthy.protocols.dependability.heat_maps import HeatMaps
from roadworthy.protocols.dependability.measures.over_heat_maps import OverHeatMaps

INTERPRETATION_PRECISION = Metric(
    "interpretation_precision",
    label="Interpretation precision",
    sentence="Share of the heat map's hot cells whose patch hides the object.",
    higher_is_better=True,
    percent=True,
    mean_over_objects=True,
)


class InterpretationPrecision(OverHeatMaps):
    """The share of the hot cells that hide the object."""

    metrics = (INTERPRETATION_PRECISION,)
    undefined = occlusion.NO_HOT

    def per_image(self, heat_maps: HeatMaps) -> NDArray[np.float64]:
        """The precision of each image, (n,)."""
        return heat_maps.scores.precision
