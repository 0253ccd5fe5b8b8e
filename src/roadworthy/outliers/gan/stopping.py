"""When the training of a GAN stops, and which generator of it is kept: decided by looks at it on the way.

A *look* is a row of figures: how far the training is (`step`, and `epochs` as a number with a fraction), the mean of
each loss over the steps since the look before, how often the surrogate is right about held-out real images
(`surrogate_accuracy`) and about generated ones (`accuracy`), and whether it is `competent`: at its floor on the real
ones. The first look is before any training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roadworthy.outliers.gan.settings import Configuration

Look = dict[str, Any]
MOST_EPOCHS = "most_epochs"
"""What stopped a training that met its own rule at no look."""


def stopped_by(configuration: Configuration, most_epochs: int, looks: Sequence[Look]) -> str | None:
    """What ends the training at the last of these looks; None where nothing does yet.

    A rule about what the surrogate says of generated images (`accuracy`, `classifier_loss`) counts only while the
    surrogate is competent: what one that knows no class is certain of says nothing. A number of epochs always counts.

    >>> from roadworthy.outliers.gan.settings import CONFIGURATIONS
    >>> wgan = CONFIGURATIONS["sricharan_wgan_005"]
    >>> look = {"step": 20, "epochs": 0.25, "classifier_loss": 0.004}
    >>> [stopped_by(wgan, 9, [look | {"competent": competent}]) for competent in (False, True)]
    [None, 'classifier_loss']
    """
    last, stop, at = looks[-1], configuration.stop, configuration.at
    if not last["step"]:
        return None
    if stop == "epochs":
        met = last["epochs"] >= at
    else:
        met = last["competent"] and (last[stop] <= at if stop == "classifier_loss" else last[stop] >= at)
    if met:
        return stop
    return MOST_EPOCHS if last["epochs"] >= most_epochs else None


def most_epochs(configuration: Configuration, most: int) -> int:
    """How many epochs its training can have, of which `most` are allowed.

    >>> from roadworthy.outliers.gan.settings import CONFIGURATIONS
    >>> [most_epochs(CONFIGURATIONS[name], 30) for name in ("sricharan_wgan_2e", "lee_gan")]
    [2, 30]
    """
    return min(int(configuration.at), most) if configuration.stop == "epochs" else most


def kept_look(configuration: Configuration, looks: Sequence[Look]) -> int:
    """Which look's generator is used, by its index among these.

    It is that of the last one. Where accuracy stops the training, it is that of the look with the highest accuracy
    below the threshold, and of those where the surrogate was competent rather than of any other.

    >>> from roadworthy.outliers.gan.settings import CONFIGURATIONS
    >>> looks = [{"accuracy": a, "competent": c} for a, c in ((0.07, False), (0.2, False), (0.1, True), (0.35, True))]
    >>> kept_look(CONFIGURATIONS["lee_gan"], looks), kept_look(CONFIGURATIONS["sricharan_wgan_2e"], looks)
    (2, 3)
    """
    if configuration.stop != "accuracy":
        return len(looks) - 1
    below = [index for index, look in enumerate(looks) if look["accuracy"] < configuration.at] or [0]
    return max(below, key=lambda index: (looks[index]["competent"], looks[index]["accuracy"], index))


def competent_since(looks: Sequence[Look]) -> int | None:
    """The step of the first look at which the surrogate was competent; None where it never was.

    >>> competent_since([{"step": 0, "competent": False}, {"step": 10, "competent": True}])
    10
    """
    return next((int(look["step"]) for look in looks if look["competent"]), None)


def epoch_of(look: Look) -> int:
    """The epoch that a look lies in, or ends: 0 before any training, 2 after one and a half.

    >>> [epoch_of({"epochs": epochs}) for epochs in (0.0, 0.1, 1.0, 1.5)]
    [0, 1, 1, 2]
    """
    return math.ceil(float(look["epochs"]))
