"""7. Occlusion sensitivity covering: how much of the object a small patch may hide to lose it.

    M_OccSen = |hot and occluding| / |occluding|

with the hot and occluding cells of interpretation precision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import occlusion
from roadworthy.protocols.dependability.heat_maps import StoredHeatMaps
from roadworthy.protocols.dependability.measures.over_heat_maps import OverHeatMaps


class OcclusionSensitivityCovering(OverHeatMaps):
    """The share of the cells that hide the object that are hot."""

    metric = "occlusion_covering"
    metrics = ((metric, "Share of the cells that hide the object whose hiding loses it."),)
    undefined = occlusion.NO_OBJECT

    def per_image(self, heat_maps: StoredHeatMaps) -> NDArray[np.float64]:
        """The covering of each image, (n,)."""
        return heat_maps.scores.covering
