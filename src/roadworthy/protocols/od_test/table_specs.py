"""The tables of OD-test: what a row of each says, and in which columns.

Monitors are tested on a model of a source. Where a study has one source, `model` names it; where it has several,
`source` does, and `model` is left out unless a source has several models.
"""

from __future__ import annotations

from roadworthy.core.tables import ESTIMATE, TableSpec
from roadworthy.protocols.od_test import names
from roadworthy.protocols.od_test.names import DISTANCE, NAME

MODEL = ("model",)
NETWORK = ("architecture", "undertrained")
"""The architecture of the model, and whether it is below the clean accuracy that was asked of it."""
MEAN = (
    *("metric", "value", "lo", "hi", "lo_triples", "hi_triples", "triples", "clusters", "sources", "reason"),
    "undertrained",
)
"""A mean over triples, with an interval over pairs of source and test set and one over triples."""
SHORT_MEAN = ("value", "lo", "hi", "triples", "clusters", "sources", "reason", "undertrained")
"""The same of accuracy alone, without the interval over triples."""
BY_MONITOR = (DISTANCE, "monitor", "metric")

TRIPLES = TableSpec(
    NAME,
    "A metric of one monitor on one model, calibrated with one set of outliers and tested with another.",
    key=(*MODEL, "valid_set", "test_set", "monitor", "metric"),
    columns=(*MODEL, *NETWORK, "valid_set", "test_set", DISTANCE, "monitor", *ESTIMATE),
    optional=MODEL,
)
METHODS = TableSpec(
    f"{NAME}_methods",
    "A metric of one monitor: the mean over triples of one model or of `all`, of near, far or `all` test sets.",
    key=(*MODEL, *BY_MONITOR),
    columns=(*MODEL, DISTANCE, "monitor", *MEAN),
    optional=MODEL,
)
ARCHITECTURES = TableSpec(
    f"{NAME}_architectures",
    "A metric of one monitor: the mean over triples of one architecture or of `all`, of near, far or `all` test sets.",
    key=("architecture", *BY_MONITOR),
    columns=("architecture", DISTANCE, "monitor", *MEAN),
    by_source=False,
)
HEAT_MAP = TableSpec(
    f"{NAME}_heatmap",
    "The accuracy of one monitor calibrated with one set and tested with another: the mean over models that meet both.",
    key=("monitor", "valid_set", "test_set"),
    columns=("monitor", "valid_set", "test_set", "accuracy", "sources"),
    by_source=False,
)
UNSUPERVISED = TableSpec(
    f"{NAME}_unsupervised",
    "A metric of one monitor on one model, whose threshold rejects a share of images inside, tested with one set.",
    key=(*MODEL, "test_set", "monitor", "metric"),
    columns=(*MODEL, *NETWORK, "test_set", DISTANCE, "monitor", *ESTIMATE),
    optional=MODEL,
)
UNSUPERVISED_METHODS = TableSpec(
    f"{NAME}_unsupervised_methods",
    "The mean of such a metric over the test sets of one model or of `all`, near, far or `all`.",
    key=(*MODEL, *BY_MONITOR),
    columns=(*MODEL, DISTANCE, "monitor", *MEAN),
    optional=MODEL,
)
COMPETENCE = TableSpec(
    f"{NAME}_competence",
    "The clean accuracy of one model on one part of its data.",
    key=(*MODEL, "part", "metric"),
    columns=(*MODEL, *NETWORK, "part", "metric", "value", "lo", "hi", "n", "groups"),
    optional=MODEL,
)
MISSING = TableSpec(
    f"{NAME}_missing",
    "Why triples have no value; `all` stands for every set or monitor, `triples` says how many a row stands for.",
    key=(*MODEL, "valid_set", "test_set", "monitor"),
    columns=(*MODEL, "valid_set", "test_set", "monitor", "triples", "reason"),
    optional=MODEL,
)
THRESHOLDS = TableSpec(
    f"{NAME}_thresholds",
    "The share of validation images that the threshold of one monitor was asked to reject, and the share it rejects.",
    key=(*MODEL, "monitor"),
    columns=(*MODEL, "monitor", "asked", "achieved", "images", "tied", "reason"),
    optional=MODEL,
)
SUREST = TableSpec(
    f"{NAME}_surest",
    "What one model answers (`answered_by`) to one of the images of a set outside that a model is surest of.",
    key=(*MODEL, "set", "rank", "answered_by"),
    columns=(*MODEL, "set", "rank", "answered_by", "id", "answer", "probability"),
    optional=MODEL,
)
SUREST_GALLERY = TableSpec(
    f"{NAME}_surest_gallery",
    "The picture in `media` of one of those images.",
    key=("set", "id"),
    columns=("set", "id", "media"),
)
LEARNED_GALLERY = TableSpec(
    f"{NAME}_learned_gallery",
    "A picture in `media` of what a network of monitors learned: of images of one `set` below them, or drawn from "
    "nothing.",
    key=("artifact", "picture", "set"),
    columns=("artifact", "monitors", "picture", "set", "media", "images", "reason"),
)
NETWORKS = TableSpec(
    f"{NAME}_networks",
    "A network of a source: of one model, or of `monitors` on one model or on `all`; what trained it, how good it is "
    "by one `figure` on held-out training images, against its floor, and how large.",
    key=("model", "artifact"),
    columns=(
        *("model", "artifact", "monitors", "role", "fitted_on", "architecture", "loss", "figure", "value", "floor"),
        *("undertrained", "epochs", "best_epoch", "weights", "megabytes", "reason"),
    ),
)
GAP = TableSpec(
    f"{NAME}_gap",
    "The accuracy of one monitor on held-out images of the set it was calibrated with, beside its mean on other sets.",
    key=(*MODEL, "valid_set", "monitor"),
    columns=(
        *(*MODEL, "valid_set", "monitor", names.TWO_DATASETS, "lo", "hi", "n", "groups"),
        *(names.THREE_DATASETS, "test_sets", names.GAP, "reason"),
    ),
    optional=MODEL,
)
GAP_METHODS = TableSpec(
    f"{NAME}_gap_methods",
    "The mean accuracy of one monitor with two data sets, with three, or the gap between them.",
    key=("monitor", "figure"),
    columns=("monitor", "figure", *SHORT_MEAN),
    by_source=False,
)
STABILITY = TableSpec(
    f"{NAME}_stability",
    "How often one monitor is before another where sources, models and outlier sets are drawn anew; ties count half.",
    key=("monitor", "other"),
    columns=("monitor", "other", "before"),
    by_source=False,
)
RANKS = TableSpec(
    f"{NAME}_ranks",
    "The rank of one monitor, its 95 % interval, and how many others are before or after it in 95 % of the draws.",
    key=("monitor",),
    columns=("monitor", "rank", "lo", "hi", "settled_before", "settled_after", "unsettled", "resamples", "reason"),
    by_source=False,
)
VALID_SIZE = TableSpec(
    f"{NAME}_valid_size",
    "The mean accuracy of one monitor, on one model or on `all`, calibrated with so many images of either side.",
    key=(*MODEL, "monitor", "images"),
    columns=(*MODEL, "monitor", "images", *SHORT_MEAN),
    optional=MODEL,
)
TIMING = TableSpec(
    f"timing_{NAME}",
    "What one monitor on one model cost: to build, with its own networks, per image, in memory, and its share of all "
    "calibrations and tests.",
    key=(*MODEL, "monitor"),
    columns=(
        *(*MODEL, "monitor", "build_seconds", "state_bytes", "images", "seconds_per_image", "bytes_per_image"),
        *("pairs", "matrix_seconds", "peak_bytes"),
    ),
    optional=MODEL,
    added_later=("peak_bytes",),
)
TIMING_NETWORKS = TableSpec(
    f"timing_{NAME}_networks",
    "The seconds that it took to train one network, and the most memory that the process held which did so.",
    key=("model", "artifact"),
    columns=("model", "artifact", "seconds", "peak_bytes"),
)

TABLE_SPECS = (
    *(TRIPLES, METHODS, ARCHITECTURES, HEAT_MAP, UNSUPERVISED, UNSUPERVISED_METHODS),
    *(COMPETENCE, MISSING, THRESHOLDS, GAP, GAP_METHODS, STABILITY, RANKS, VALID_SIZE),
    *(SUREST, SUREST_GALLERY, LEARNED_GALLERY, NETWORKS, TIMING, TIMING_NETWORKS),
)
