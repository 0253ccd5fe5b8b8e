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
    "A metric of one model, or of the data, over the images of one scope, of the training or of the test data.",
    key=("model", "scope", "data", "metric"),
    columns=("model", "scope", "data", *ESTIMATE),
    added_later=("data",),
)
CELLS = TableSpec(
    f"{NAME}_cells",
    "One combination of values of some conditions: how often training or test data shows it, and how often it should.",
    key=("data",),
    columns=("data", "count", "minimum", "weight", "status"),
    added_later=("data",),
    study_columns=CELL,
)
UNCOVERED = TableSpec(
    f"{NAME}_uncovered",
    "One combination of values of some conditions that training or test data shows too rarely.",
    key=("data",),
    columns=("data", "count", "minimum", "weight"),
    added_later=("data",),
    study_columns=CELL,
)
CELL_RESULTS = TableSpec(
    f"{NAME}_cell_results",
    "One combination of values of some conditions: how many images (and objects) of it one model was trained and "
    "tested on, how many it got wrong, and what follows in words.",
    key=("model",),
    columns=(
        *("model", "trained", "trained_objects", "tested", "tested_objects", "wrong", "accuracy", "lo", "hi", "state"),
    ),
    study_columns=CELL,
)
PROPOSALS = TableSpec(
    f"{NAME}_proposals",
    "One scenario to collect next for training or test data, the cells that it newly fills, those of them (and "
    "others) in which a model fails, and the coverage that it leads to.",
    key=("data", "proposal"),
    columns=("data", "proposal", "new_cells", "failing_cells", "coverage_after"),
    added_later=("data", "failing_cells"),
    study_columns=StudyColumns("(?s).+", "the conditions of the study, each with the value of the scenario"),
)
NEURONS = TableSpec(
    f"{NAME}_neurons",
    "The k-activation of one layer of one model on training or test data: how many patterns of k neurons occur.",
    key=("model", "layer", "data", "k"),
    added_later=("data",),
    columns=(
        *(
            "model",
            "layer",
            "data",
            "k",
            "value",
            "occupied",
            "cells",
            "neurons",
            "tuples",
            "exact",
            "never_on",
            "always_on",
        ),
        *("images", "reason"),
    ),
)
PATTERNS = TableSpec(
    f"{NAME}_patterns",
    "How the activations of one layer of one model spread over groups, for the images of one scenario or `all`; "
    "`conditions` says of how many conditions the scenario has a value.",
    key=("model", "layer", "scenario"),
    columns=("model", "layer", "conditions", "scenario", "value", "n", "largest", "sizes", "reason"),
    added_later=("conditions",),
    names_joined=True,
)
PATTERN_GROUPS = TableSpec(
    f"{NAME}_pattern_groups",
    "The activation pattern of each full scenario of one layer, by the number of groups: how wide a group is against "
    "how much the number of active neurons scatters within a scenario; `note` says which is used and which advised.",
    key=("model", "layer", "groups"),
    columns=("model", "layer", "groups", "width", "spread", "value", "n", "scenarios", "note", "reason"),
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
        *("model", "id", "label", "undisturbed", "rho", "hot", "occluding", "both", "precision", "chance", "masked"),
        *("place", "covering", "reason", "covering_reason"),
    ),
    added_later=("chance", "masked", "place"),
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
        *("chance", "covering", "covering_lowest", "covering_highest", "covering_images"),
    ),
    added_later=("chance",),
)
OCCLUSION_PARTS = TableSpec(
    f"{NAME}_occlusion_parts",
    "One part of the box of the objects of one class or `all`: the mean probability that is left, and lost, while a "
    "patch hides it, and the share of images in which it is hot.",
    key=("model", "scope", "row", "column"),
    columns=("model", "scope", "row", "column", "part", "left", "lost", "hot", "images"),
)
CONFUSIONS = TableSpec(
    f"{NAME}_confusions",
    "How often one model answered one class as another, and what that costs.",
    key=("model", "label", "prediction"),
    columns=("model", "label", "prediction", "count", "severity", "cost", "share"),
)
HEAT_GALLERY = TableSpec(
    f"{NAME}_heat_gallery",
    "The picture in `media` of one of the worst heat maps of one model, beside its image, and what it answered to it.",
    key=("model", "place"),
    columns=(
        *("model", "place", "id", "label", "precision", "covering", "undisturbed", "media"),
        *("prediction", "confidence"),
    ),
    added_later=("prediction", "confidence"),
)
PARTS_GALLERY = TableSpec(
    f"{NAME}_parts_gallery",
    "The picture in `media` of the mean object of one class or `all`, beside the mean heat map in its box.",
    key=("model", "scope"),
    columns=("model", "scope", "images", "part", "hot", "media"),
)
CONFUSION_GALLERY = TableSpec(
    f"{NAME}_confusion_gallery",
    "The picture in `media` of an image that one model answered wrong at a high cost.",
    key=("model", "label", "prediction", "id"),
    columns=("model", "label", "prediction", "id", "confidence", "media"),
)
LOSS_GALLERY = TableSpec(
    f"{NAME}_loss_gallery",
    "The picture in `media` of one of the images that lose most, without a transformer and under it, and what the "
    "model answered under it.",
    key=("model", "id"),
    columns=(
        *("model", "id", "label", "transformer", "undisturbed", "worst", "media"),
        *("prediction", "confidence"),
    ),
    added_later=("prediction", "confidence"),
)

TABLE_SPECS = (
    *(FIGURES, CELLS, UNCOVERED, CELL_RESULTS, PROPOSALS, NEURONS, PATTERNS, PATTERN_GROUPS, LOSS, TRANSFORMERS),
    *(SCENARIOS, SLICES, DOMAIN, OCCLUSION, OCCLUSION_CLASSES, RHO, OCCLUSION_PARTS, CONFUSIONS),
    *(HEAT_GALLERY, PARTS_GALLERY, CONFUSION_GALLERY, LOSS_GALLERY),
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
