"""7. Occlusion sensitivity covering: how much of the object a small patch may hide to lose it.

    M_OccSen = |hot and occluding| / |occluding|

with the hot and occluding cells of interpretation precision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import Metric, occlusion
from roadworthy.protocols.dependability.heat_maps import HeatMaps
from roadworthy.protocols.dependability.measures.over_heat_maps import OverHeatMaps

OCCLUSION_COVERING = Metric(
    "occlusion_covering",
    label="Occlusion covering",
    sentence="Share of the cells that hide the object whose hiding loses it.",
    higher_is_better=False,
    percent=True,
    mean_over_objects=True,
)


class OcclusionSensitivityCovering(OverHeatMaps):
    """The share of the cells that hide the object that are hot."""

    metrics = (OCCLUSION_COVERING,)
    undefined = occlusion.NO_OBJECT

    def per_image(self, heat_maps: HeatMaps) -> NDArray[np.float64]:
        """The covering of each image, (n,)."""
        return heat_maps.scores.covering
