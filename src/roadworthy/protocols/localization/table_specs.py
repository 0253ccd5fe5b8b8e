"""The tables of localization: what a row of each says, and in which columns."""

from __future__ import annotations

from roadworthy.core.tables import ANSWER, ESTIMATE, TableSpec
from roadworthy.protocols.localization.names import NAME

MODEL = ("model", "family", "uncertainty")
"""What names a model: its name in the study, the network it is a variant of, and how it knows how sure it is."""

CELLS = TableSpec(
    NAME,
    "A metric of one model on one set, over the classes of one view, or its drop against the undisturbed test data.",
    key=("model", "set", "view", "metric"),
    columns=(*MODEL, "set", "shift", "level", "view", *ESTIMATE),
)
MODELS = TableSpec(
    f"{NAME}_models",
    "What one model is for one task: its passes or members, how many weights it holds, how it was trained.",
    key=("model", "task"),
    columns=(
        *(*MODEL, "task", "passes", "members", "weights", "boxes", "loss"),
        *("learning_rate", "dropout", "hidden", "seed"),
    ),
)
SETS = TableSpec(
    f"{NAME}_sets",
    "One set of images: what it shows, how many images of how many objects, where its true boxes come from, and "
    "where they are hulls of turned boxes, how many times larger these are on average (`inflation`).",
    key=("set",),
    columns=(
        *("set", "shift", "level", "parameters", "outliers", "images", "objects", "classes", "labelled", "truth"),
        *("inflation", "without_box", "leaked"),
    ),
)
REPEATS = TableSpec(
    f"{NAME}_repeats",
    "A metric of one model on one set in one repeat: a network with `retrain` is trained from another seed, a random "
    "shift is drawn anew.",
    key=("model", "set", "repeat", "metric"),
    columns=(*MODEL, "set", "repeat", "metric", "value"),
)
BY_SIZE = TableSpec(
    f"{NAME}_by_size",
    "A metric of the boxes of one model on the images of one set whose object is of one size (the side of its true box "
    "as a share of the shorter side of the image) or at one distance (in metres; images that do not tell it are in no "
    "row).",
    key=("model", "set", "by", "from", "metric"),
    columns=(*MODEL, "set", "by", "from", "to", *ESTIMATE),
)
RELIABILITY = TableSpec(
    f"{NAME}_reliability",
    "What one model promised and kept on one set: of classes, mean confidence and accuracy in one bin of confidence; "
    "of boxes, the level of a one-sided interval and the share of the true values of one `coordinate` (x0, y0, x1, y1) "
    "in it.",
    key=("model", "set", "task", "coordinate", "bin"),
    columns=(*MODEL, "set", "task", "coordinate", "bin", "expected", "observed", "count"),
    added_later=("coordinate",),
)
SPARSIFICATION = TableSpec(
    f"{NAME}_sparsification",
    "The mean error of the answers that one model is surest of on one set, by the share that is kept; `oracle` is that "
    "of the answers with the smallest error.",
    key=("model", "set", "task", "kept"),
    columns=(*MODEL, "set", "task", "kept", "error", "oracle"),
)
SEARCH = TableSpec(
    f"{NAME}_search",
    "One trial of the search for the settings of a network, and its value on validation data.",
    key=("model", "task", "trial"),
    columns=("model", "task", "trial", "learning_rate", "dropout", "hidden", "value", "state"),
)
GALLERY = TableSpec(
    f"{NAME}_gallery",
    "The picture in `media` of a few images of one set with their true boxes.",
    key=("set",),
    columns=("set", "media", "images"),
)
GALLERY_ANSWERS = TableSpec(
    f"{NAME}_gallery_answers",
    "What one model answered to one image of the gallery, which counts from 0 in its picture: its class, and its box "
    "as shares of the width and height of the image, with the IoU; what it does not answer is missing.",
    key=("model", "set", "image"),
    columns=("model", "set", *ANSWER, "x0", "y0", "x1", "y1", "iou"),
)
TIMING = TableSpec(
    f"timing_{NAME}",
    "What one model costs per image: median milliseconds of single images on one thread, against the plain network of "
    "its family, and the memory of its weights and of what Python (without torch) allocates in a pass.",
    key=("model",),
    columns=(*MODEL, "system", "images", "passes", "milliseconds", "relative", "memory_mb", "reason"),
)

TABLE_SPECS = (
    CELLS,
    MODELS,
    SETS,
    REPEATS,
    BY_SIZE,
    RELIABILITY,
    SPARSIFICATION,
    SEARCH,
    GALLERY,
    GALLERY_ANSWERS,
    TIMING,
)
