"""Beside interpretation precision and occlusion covering: both by image, by class and over the threshold rho."""

from __future__ import annotations

from roadworthy.protocols.dependability.measures.base import Measure, Results
from roadworthy.protocols.dependability.measures.interpretation_precision import InterpretationPrecision
from roadworthy.protocols.dependability.measures.occlusion_sensitivity_covering import OcclusionSensitivityCovering
from roadworthy.protocols.dependability.measures.over_heat_maps import scopes_of
from roadworthy.protocols.dependability.stored import StoredData


class HeatMapTables(Measure):
    """What both measures rest on."""

    tables = (
        (
            "occlusion",
            (
                *("model", "id", "label", "undisturbed", "rho", "hot", "occluding", "both", "precision", "covering"),
                *("reason", "covering_reason"),
            ),
        ),
        (
            "occlusion_classes",
            ("model", "scope", "metric", "value", "lowest", "highest", "n", "images", "reason"),
        ),
        (
            "rho",
            (
                *("model", "rho", "relative", "precision", "precision_lowest", "precision_highest"),
                *("precision_images", "covering", "covering_lowest", "covering_highest", "covering_images"),
            ),
        ),
    )

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Rows alone; none where the model has no heat maps."""
        if model not in data.heat_maps:
            return
        heat_maps, measures = data.heat_maps[model], (InterpretationPrecision(), OcclusionSensitivityCovering())
        images, scopes = heat_maps.image_rows(), scopes_of(heat_maps, data.class_names)
        results.rows["occlusion"] += [{"model": model, **data.identity(image["row"]), **image} for image in images]
        results.rows["occlusion_classes"] += [
            {"model": model, **measure.summary_row(heat_maps, scope, chosen)}
            for scope, chosen in scopes
            for measure in measures
        ]
        results.rows["rho"] += [{"model": model, **point} for point in heat_maps.curve()]
