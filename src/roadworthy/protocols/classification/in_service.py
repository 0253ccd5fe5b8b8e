"""What of classification can be watched in service without labels: how certain a model is, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from roadworthy.core.types import UNDISTURBED
from roadworthy.metrics import mean_confidence
from roadworthy.protocols.in_service import Watchable, measured_bound
from roadworthy.statistics import proportion_interval

if TYPE_CHECKING:
    from roadworthy.protocols.classification.tables import Evidence

LOW = 0.05
"""The share of undisturbed test images that count as answered with low certainty."""
EVERY_IMAGE = "every image that the model is shown, one of each object"


def watchables(evidence: Evidence) -> Iterator[Watchable]:
    """Of each model on undisturbed images: its mean certainty, the share of uncertain answers, and of each class."""
    for key in evidence.keys:
        if key.shift != UNDISTURBED or key in evidence.failures:
            continue
        where = {"model": key.model}
        repeats = evidence.answers(key)
        confidence = np.concatenate([answers.confidence for answers in repeats])
        groups = np.tile(np.asarray(evidence.groups[: len(repeats[0])], np.str_), len(repeats))
        measured = evidence.estimate([key], evidence.metric(mean_confidence.name))
        mean = Watchable(mean_confidence.name, where, "the largest probability", EVERY_IMAGE, measured)
        yield measured_bound(mean, "at_least")
        cut = math.floor(1000 * float(np.quantile(confidence, LOW))) / 1000
        uncertain = Watchable(
            "low_confidence",
            where,
            f"1 where the largest probability lies below {cut:g}, else 0",
            EVERY_IMAGE,
            proportion_interval(confidence < cut, groups),
        )
        yield measured_bound(uncertain, "at_most")
        predicted = np.concatenate([answers.prediction for answers in repeats])
        for label, name in enumerate(evidence.class_names):
            yield Watchable(
                "predicted_class",
                {**where, "class": name},
                f"1 where the answer is {name}, else 0",
                EVERY_IMAGE,
                proportion_interval(predicted == label, groups),
                reason="how often a class occurs on the road does not follow from test data: take the first weeks in "
                "service as what it is compared with",
            )
