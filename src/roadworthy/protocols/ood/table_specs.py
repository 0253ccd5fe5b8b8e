"""The tables of ood and of its GANs: what a row of each says, and in which columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roadworthy.core.tables import ANSWER, ESTIMATE, TableSpec

NAME, GAN = "ood", "gan"
SET = ("model", "ood_set", "kind", "shift", "level", "foreign")
"""A model against a set; `foreign` is the foreign set that it is, or is made from."""
KIND_WORDS = {
    "literature": "noise and foreign images",
    "derived": "images made from test images",
    "transformed": "foreign images under a shift",
    GAN: "images drawn by GANs",
}
"""What the sets of a kind are, in the middle of a sentence."""
ONE_GAN = ("model", "ood_set", "gan")
"""A model against what one of the GANs of a configuration draws."""

SETS = TableSpec(
    NAME,
    "How well the score of one model tells one set of outliers from in-distribution images, by one metric.",
    key=("model", "ood_set", "metric"),
    columns=(*SET, *ESTIMATE, "score", "unit"),
    optional=("unit",),
)
BY_KIND = TableSpec(
    f"{NAME}_by_kind",
    "A metric of one model: the mean over all sets of one kind, or of `all`.",
    key=("model", "kind", "metric"),
    columns=("model", "kind", "sets", "metric", "value"),
)
REPEATS = TableSpec(
    f"{NAME}_repeats",
    "A metric of one model against one set in one repeat; of GANs the mean over those of a configuration.",
    key=("model", "ood_set", "repeat", "metric"),
    columns=(*SET, "repeat", "metric", "value"),
)
BY_CONDITION = TableSpec(
    f"{NAME}_by_condition",
    "How well the score of one model tells one set of outliers from the in-distribution images that show one value of "
    "a condition of the data, by one metric.",
    key=("model", "ood_set", "condition", "condition_value", "metric"),
    columns=(*SET, "condition", "condition_value", *ESTIMATE, "unit"),
    optional=("unit",),
)
CONDITION_COLUMNS = TableSpec(
    f"{NAME}_condition_columns",
    "A column of conditions of the data: how many values it has, and how many images lack one; or why figures are not "
    "broken down by it.",
    key=("condition",),
    columns=("condition", "values", "images", "images_without", "reason"),
)
SCORES = TableSpec(
    f"{NAME}_scores",
    "How many images of either side have a score within one bin.",
    key=("model", "ood_set", "from"),
    columns=("model", "ood_set", "from", "to", "in", "out"),
)
GALLERY = TableSpec(
    f"{NAME}_gallery",
    "The pictures of one set, in `media`, and of the images that it is mixed with, in `media_in`.",
    key=("ood_set",),
    columns=("ood_set", "kind", "media", "media_in"),
)
GALLERY_ANSWERS = TableSpec(
    f"{NAME}_gallery_answers",
    "What one model answered, in the first repeat, to one image of the gallery: side `out` are outliers, which have no "
    "true class, side `in` the images that they are mixed with; `image` counts from 0 in its picture.",
    key=("model", "ood_set", "side", "image"),
    columns=("model", "ood_set", "side", *ANSWER),
)
GANS = TableSpec(
    GAN,
    "How well one model tells what one GAN draws from in-distribution images, and how the GAN's training ended.",
    key=(*ONE_GAN, "metric"),
    columns=(
        *(*ONE_GAN, "hardest", *ESTIMATE, "surrogate_accuracy", "floor", "accuracy_on_generated", "classifier_loss"),
        *(
            "stopped_by",
            "epochs",
            "kept_epoch",
            "undertrained",
            "surrogate",
            "competent_step",
            "steps",
            "kept_step",
            "unit",
        ),
    ),
    added_later=("surrogate", "competent_step", "steps", "kept_step", "unit"),
)
GAN_REPEATS = TableSpec(
    f"{GAN}_repeats",
    "A metric of one model against what one GAN draws, in one repeat.",
    key=(*ONE_GAN, "repeat", "metric"),
    columns=(*ONE_GAN, "hardest", "repeat", "metric", "value"),
)
GAN_EPOCHS = TableSpec(
    f"{GAN}_epochs",
    "One epoch of the training of one GAN: losses, accuracies, and what it drew, in `media`.",
    key=("ood_set", "gan", "epoch"),
    columns=(
        *("ood_set", "gan", "epoch", "surrogate_loss", "discriminator_loss", "generator_loss", "classifier_loss"),
        *("surrogate_accuracy", "accuracy", "kept", "media"),
    ),
)
GAN_LOOKS = TableSpec(
    f"{GAN}_looks",
    "One look at the training of one GAN: mean losses since the look before, accuracies, whether it stopped there.",
    key=("ood_set", "gan", "step"),
    columns=(
        *("ood_set", "gan", "step", "epochs", "surrogate_loss", "discriminator_loss", "generator_loss"),
        *("classifier_loss", "surrogate_accuracy", "accuracy", "competent", "kept", "stopped_by"),
    ),
)
GAN_GALLERY = TableSpec(
    f"{GAN}_gallery",
    "The pictures of one GAN: its course from epoch to epoch, in `media`, and what the generator that is kept drew.",
    key=("ood_set", "gan"),
    columns=("ood_set", "gan", "media", "drawn"),
)
GAN_ANSWERS = TableSpec(
    f"{GAN}_answers",
    "What one model answered to one of the images that the gallery shows of the hardest GAN of a configuration.",
    key=(*ONE_GAN, "place"),
    columns=(*ONE_GAN, "place", "id", "prediction", "confidence", "score"),
)

TABLE_SPECS = (
    *(SETS, BY_KIND, REPEATS, BY_CONDITION, CONDITION_COLUMNS, SCORES, GALLERY, GALLERY_ANSWERS),
    *(GANS, GAN_REPEATS, GAN_EPOCHS, GAN_LOOKS, GAN_GALLERY, GAN_ANSWERS),
)


def set_words(row: Mapping[str, Any]) -> str:
    """A set in words, from its row: its name, or the foreign set that it shows disturbed."""
    if row["kind"] == "transformed":
        return f"{row['foreign']} under {row['shift']}, level {row['level']}"
    return str(row["ood_set"])
