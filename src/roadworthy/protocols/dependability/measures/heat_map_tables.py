"""Beside interpretation precision and occlusion covering: both and their controls by image, by class and over rho."""

from __future__ import annotations

from roadworthy.protocols.dependability.measures.base import Measure, Results
from roadworthy.protocols.dependability.measures.interpretation_controls import (
    InterpretationChance,
    InterpretationMasked,
    InterpretationPlace,
)
from roadworthy.protocols.dependability.measures.interpretation_precision import InterpretationPrecision
from roadworthy.protocols.dependability.measures.occlusion_sensitivity_covering import OcclusionSensitivityCovering
from roadworthy.protocols.dependability.measures.over_heat_maps import OverHeatMaps, scopes_of
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import OCCLUSION, OCCLUSION_CLASSES, RHO

MEASURES: tuple[OverHeatMaps, ...] = (
    InterpretationPrecision(),
    InterpretationChance(),
    InterpretationMasked(),
    InterpretationPlace(),
    OcclusionSensitivityCovering(),
)
"""What the table by class has, in the order of its rows."""


class HeatMapTables(Measure):
    """What both measures rest on."""

    tables = (OCCLUSION, OCCLUSION_CLASSES, RHO)

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Rows alone; none where the model has no heat maps."""
        if model not in data.heat_maps:
            return
        heat_maps, measures = data.heat_maps[model], [*MEASURES]
        if heat_maps.masked is None:
            measures = [measure for measure in measures if not isinstance(measure, InterpretationMasked)]
        images, scopes = heat_maps.image_rows(), scopes_of(heat_maps, data.class_names)
        results.rows[OCCLUSION] += [{"model": model, **data.identity(image["row"]), **image} for image in images]
        results.rows[OCCLUSION_CLASSES] += [
            {"model": model, **measure.summary_row(heat_maps, scope, chosen)}
            for scope, chosen in scopes
            for measure in measures
        ]
        results.rows[RHO] += [{"model": model, **point} for point in heat_maps.curve()]
