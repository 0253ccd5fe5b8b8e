"""The tables of classification: what a row of each says, and in which columns."""

from __future__ import annotations

from roadworthy.core.tables import ANSWER, ESTIMATE, TableSpec

NAME = "classification"
CELL = ("model", "shift", "level")
"""What names a cell: undisturbed data is shift `none`, level 0."""
SLICE = ("condition", "condition_value")
"""What names a slice: the images that show one value of a condition of the data."""
DEVIATIONS = ("sd_conditions", "sd_repeats")
"""Standard deviations of an average: of its conditions and their repeats taken together (as the thesis prints it), and
over repeats of the average."""

CELLS = TableSpec(
    NAME,
    "A metric of one model under one shift at one level, or its drop against undisturbed data.",
    key=(*CELL, "metric"),
    columns=(*CELL, *ESTIMATE),
)
BY_SHIFT = TableSpec(
    f"{NAME}_by_shift",
    "A metric of one model under one shift: the mean over its levels.",
    key=("model", "shift", "metric"),
    columns=("model", "shift", "cases", *ESTIMATE, *DEVIATIONS),
    added_later=DEVIATIONS,
)
BY_LEVEL = TableSpec(
    f"{NAME}_by_level",
    "A metric of one model at one level: the mean over all shifts that have it.",
    key=("model", "level", "metric"),
    columns=("model", "level", "cases", *ESTIMATE, *DEVIATIONS),
    added_later=DEVIATIONS,
)
OVERALL = TableSpec(
    f"{NAME}_overall",
    "A metric of one model: the mean over all shifts and levels.",
    key=("model", "metric"),
    columns=("model", "cases", *ESTIMATE, *DEVIATIONS),
    added_later=DEVIATIONS,
)
SEVERITY = TableSpec(
    f"{NAME}_severity",
    "How much worse a metric of one model is at the highest level of a shift than at the lowest.",
    key=("model", "shift", "metric"),
    columns=("model", "shift", "from_level", "to_level", *ESTIMATE),
)
REPEATS = TableSpec(
    f"{NAME}_repeats",
    "A metric of one cell in one repeat.",
    key=(*CELL, "repeat", "metric"),
    columns=(*CELL, "repeat", "metric", "value"),
)
RECALL = TableSpec(
    f"{NAME}_recall",
    "The share of the images of one class that are answered right in one cell.",
    key=(*CELL, "class", "metric"),
    columns=(*CELL, "class", "metric", "value", "lo", "hi", "n", "groups", "reason"),
)
CONFUSION = TableSpec(
    f"{NAME}_confusion",
    "How often one class was answered as another (or as itself) in one cell; pairs that never occur have no row.",
    key=(*CELL, "label", "prediction"),
    columns=(*CELL, "label", "prediction", "count"),
)
RELIABILITY = TableSpec(
    f"{NAME}_reliability",
    "The answers of one cell whose confidence lies in one bin: how many, how sure, and how many of them right.",
    key=(*CELL, "bin"),
    columns=(*CELL, "bin", "from", "to", "count", "confidence", "accuracy"),
)
CORRUPTION_ERROR = TableSpec(
    "corruption_error",
    "The corruption error of one model against another as the reference, of one common corruption or their `mean`.",
    key=("model", "reference", "shift", "metric"),
    columns=("model", "reference", "shift", "corruptions", "levels", *ESTIMATE),
)
HUMAN = TableSpec(
    f"{NAME}_human",
    "How often people, or a model shown the same images, were right in a quiz; who cannot tell is not.",
    key=("answered_by", *CELL, "metric"),
    columns=("answered_by", *CELL, "people", "cannot_tell", *ESTIMATE),
)
BY_CONDITION = TableSpec(
    f"{NAME}_by_condition",
    "A metric of one cell over the images that show one value of a condition of the data; what is no mean over images "
    "is there for undisturbed data alone.",
    key=(*CELL, *SLICE, "metric"),
    columns=(*CELL, *SLICE, *ESTIMATE),
)
BY_CONDITION_OVERALL = TableSpec(
    f"{NAME}_by_condition_overall",
    "A metric of one model over the images that show one value of a condition of the data: the mean over all shifts "
    "and levels, or its drop against the same images undisturbed.",
    key=("model", *SLICE, "metric"),
    columns=("model", *SLICE, "cases", *ESTIMATE),
)
CONDITION_COLUMNS = TableSpec(
    f"{NAME}_condition_columns",
    "A column of conditions of the data: how many values it has, and how many images lack one; or why figures are not "
    "broken down by it.",
    key=("condition",),
    columns=("condition", "values", "images", "images_without", "reason"),
)
STOPPING = TableSpec(
    f"{NAME}_stopping",
    "Of a study that runs until it is decided: one criterion on one cell, how it was decided and after how many "
    "images, and how many of all images the cell was shown.",
    key=(*CELL, "criterion"),
    columns=(
        *(*CELL, "criterion", "metric", "threshold", "status", "decided_after", "images", "of"),
        *("value", "lo", "hi", "reason"),
    ),
)
LOOKS = TableSpec(
    f"{NAME}_looks",
    "One criterion on one cell after so many images: the value and the bounds that hold at all looks at once.",
    key=(*CELL, "criterion", "images"),
    columns=(*CELL, "criterion", "metric", "threshold", "images", "groups", "value", "lo", "hi"),
)
GALLERY = TableSpec(
    f"{NAME}_gallery",
    "The picture in `media` of a few images under one shift at one level.",
    key=("shift", "level"),
    columns=("shift", "level", "media", "images"),
)
GALLERY_ANSWERS = TableSpec(
    f"{NAME}_gallery_answers",
    "What one model answered, in the first repeat, to one image of the gallery: `image` counts from 0 in its picture.",
    key=(*CELL, "image"),
    columns=(*CELL, *ANSWER),
)
MISTAKES = TableSpec(
    f"{NAME}_mistakes",
    "One of the most confident wrong answers of a model under a shift, with its picture in `media`.",
    key=(*CELL, "id"),
    columns=(*CELL, "id", "label", "prediction", "confidence", "p_label", "media"),
)
CLASSES = TableSpec(
    f"{NAME}_classes",
    "An undisturbed image that stands for one class: it is number `image` (from 0) of the `images` in `media`.",
    key=("class",),
    columns=("class", "id", "media", "image", "images"),
)

TABLE_SPECS = (
    *(CELLS, BY_SHIFT, BY_LEVEL, OVERALL, SEVERITY, REPEATS, RECALL, CONFUSION, RELIABILITY, CORRUPTION_ERROR),
    *(HUMAN, BY_CONDITION, BY_CONDITION_OVERALL, CONDITION_COLUMNS, STOPPING, LOOKS),
    *(GALLERY, GALLERY_ANSWERS, MISTAKES, CLASSES),
)
