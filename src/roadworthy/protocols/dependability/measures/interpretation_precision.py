"""6. Interpretation precision: whether the answer rests on the object or on its surroundings (equation 5).

    M_interpret = |hot and occluding| / |hot|

A patch hides one part of the image after the other. A cell of the heat map is hot where the probability of the true
class that is left lies strictly below rho, and occluding where the patch hides some of the object.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import occlusion
from roadworthy.protocols.dependability.heat_maps import StoredHeatMaps
from roadworthy.protocols.dependability.measures.over_heat_maps import OverHeatMaps


class InterpretationPrecision(OverHeatMaps):
    """The share of the hot cells that hide the object."""

    metric = "interpretation_precision"
    metrics = ((metric, "Share of the heat map's hot cells whose patch hides the object."),)
    undefined = occlusion.NO_HOT

    def per_image(self, heat_maps: StoredHeatMaps) -> NDArray[np.float64]:
        """The precision of each image, (n,)."""
        return heat_maps.scores.precision
