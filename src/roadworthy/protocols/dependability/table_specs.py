"""The tables of dependability: what a row of each says, and in which columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from roadworthy.core.tables import ESTIMATE, StudyColumns, TableSpec

NAME = "dependability"
BOUNDED = ("value", "lo", "hi", "n", "groups", "reason")
CELL = StudyColumns(r"(condition|value)_[1-9]\d*", "`condition_1`, `value_1`, `condition_2`, ...", in_key=True)
"""The conditions of a cell and their values: as many pairs as conditions are combined."""

FIGURES = TableSpec(
    NAME,
    "A metric of one model, or of the data, over the images of one scope.",
    key=("model", "scope", "metric"),
    columns=("model", "scope", *ESTIMATE),
)
CELLS = TableSpec(
    f"{NAME}_cells",
    "One combination of values of some conditions: how often the data shows it, and how often it should.",
    key=(),
    columns=("count", "minimum", "weight", "status"),
    study_columns=CELL,
)
UNCOVERED = TableSpec(
    f"{NAME}_uncovered",
    "One combination of values of some conditions that the data shows too rarely.",
    key=(),
    columns=("count", "minimum", "weight"),
    study_columns=CELL,
)
PROPOSALS = TableSpec(
    f"{NAME}_proposals",
    "One scenario to collect next, the cells that it newly fills, and the coverage that it leads to.",
    key=("proposal",),
    columns=("proposal", "new_cells", "coverage_after"),
    study_columns=StudyColumns("(?s).+", "the conditions of the study, each with the value of the scenario"),
)
NEURONS = TableSpec(
    f"{NAME}_neurons",
    "The k-activation of one layer of one model: how many patterns of k neurons occur.",
    key=("model", "layer", "k"),
    columns=(
        *("model", "layer", "k", "value", "occupied", "cells", "neurons", "tuples", "exact", "never_on", "always_on"),
        *("images", "reason"),
    ),
)
PATTERNS = TableSpec(
    f"{NAME}_patterns",
    "How the activations of one layer of one model spread over groups, for the images of one scenario or `all`.",
    key=("model", "layer", "scenario"),
    columns=("model", "layer", "scenario", "value", "n", "largest", "sizes", "reason"),
    names_joined=True,
)
LOSS = TableSpec(
    f"{NAME}_loss",
    "The probability of the true class of one image without a transformer and under the one that lowers it most.",
    key=("model", "id"),
    columns=("model", "id", "label", "undisturbed", "worst", "change", "transformer"),
)
TRANSFORMERS = TableSpec(
    f"{NAME}_transformers",
    "What one transformer does to the answers of one model, and for how many images it is the worst.",
    key=("model", "transformer"),
    columns=("model", "transformer", "mean_change", "wins", "accuracy", "n", "reason"),
)
SCENARIOS = TableSpec(
    f"{NAME}_scenarios",
    "A metric of one model over the images of one scenario: values of no, one or two conditions.",
    key=("model", "metric", "conditions", "scenario"),
    columns=("model", "metric", "conditions", "scenario", *BOUNDED),
    names_joined=True,
)
SLICES = TableSpec(
    f"{NAME}_slices",
    "One of the scenarios in which one model is worst by one metric, against all other images.",
    key=("model", "metric", "scenario"),
    columns=(
        *("model", "metric", "scenario", "value", "lo", "hi", "elsewhere", "difference", "difference_lo"),
        *("difference_hi", "p", "p_holm", "n", "groups", "looked_at", "too_small"),
    ),
    names_joined=True,
)
DOMAIN = TableSpec(
    f"{NAME}_domain",
    "A metric of one model in one situation of the field, and how frequent the situation is.",
    key=("model", "metric", "situation"),
    columns=("model", "metric", "threshold", "situation", "frequency", *BOUNDED),
    names_joined=True,
)
OCCLUSION = TableSpec(
    f"{NAME}_occlusion",
    "The heat map of one image: how many of its cells are hot, cover the object, or both.",
    key=("model", "id"),
    columns=(
        *("model", "id", "label", "undisturbed", "rho", "hot", "occluding", "both", "precision", "covering"),
        *("reason", "covering_reason"),
    ),
)
OCCLUSION_CLASSES = TableSpec(
    f"{NAME}_occlusion_classes",
    "A metric of the heat maps of one model over the images of one class or `all`.",
    key=("model", "scope", "metric"),
    columns=("model", "scope", "metric", "value", "lowest", "highest", "n", "images", "reason"),
)
RHO = TableSpec(
    f"{NAME}_rho",
    "What the heat maps of one model say where another threshold rho makes cells hot.",
    key=("model", "rho"),
    columns=(
        *("model", "rho", "relative", "precision", "precision_lowest", "precision_highest", "precision_images"),
        *("covering", "covering_lowest", "covering_highest", "covering_images"),
    ),
)
CONFUSIONS = TableSpec(
    f"{NAME}_confusions",
    "How often one model answered one class as another, and what that costs.",
    key=("model", "label", "prediction"),
    columns=("model", "label", "prediction", "count", "severity", "cost", "share"),
)
HEAT_GALLERY = TableSpec(
    f"{NAME}_heat_gallery",
    "The picture in `media` of one of the worst heat maps of one model, beside its image.",
    key=("model", "place"),
    columns=("model", "place", "id", "label", "precision", "covering", "undisturbed", "media"),
)
CONFUSION_GALLERY = TableSpec(
    f"{NAME}_confusion_gallery",
    "The picture in `media` of an image that one model answered wrong at a high cost.",
    key=("model", "label", "prediction", "id"),
    columns=("model", "label", "prediction", "id", "confidence", "media"),
)
LOSS_GALLERY = TableSpec(
    f"{NAME}_loss_gallery",
    "The picture in `media` of one of the images that lose most, without a transformer and under it.",
    key=("model", "id"),
    columns=("model", "id", "label", "transformer", "undisturbed", "worst", "media"),
)

TABLE_SPECS = (
    *(FIGURES, CELLS, UNCOVERED, PROPOSALS, NEURONS, PATTERNS, LOSS, TRANSFORMERS, SCENARIOS, SLICES, DOMAIN),
    *(OCCLUSION, OCCLUSION_CLASSES, RHO, CONFUSIONS, HEAT_GALLERY, CONFUSION_GALLERY, LOSS_GALLERY),
)


def short_name(spec: TableSpec) -> str:
    """The name of a companion table without that of the protocol.

    >>> short_name(CELLS)
    'cells'
    """
    return spec.name.removeprefix(f"{NAME}_")


def frame_of(spec: TableSpec, rows: Iterable[Mapping[str, Any]], first: Sequence[str] = ()) -> pd.DataFrame:
    """The table of rows that may hold more than its columns, what pictures need; `first` as in `TableSpec.frame`."""
    columns = (*first, *spec.columns)
    return spec.frame(({name: row[name] for name in columns if name in row} for row in rows), first)
