"""The check of the uncertainty that a localizer states: is it of the size of its errors, or written in another way?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from roadworthy.core.errors import RoadworthyError
from roadworthy.core.roles import BATCH, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models.alternatives import Factory, Finding
from roadworthy.models.boxes import VARIANCES, BoxForm
from roadworthy.models.check_boxes import known_boxes

FAR_OFF = 10.0
"""How many times larger or smaller than the error a stated sigma must be to be doubted; another way to read it is named
where it comes nearer by as many times."""
LEAST_ERROR = 0.1
"""Pixels: a smaller error counts as this, as in the metrics of boxes."""
LEAST_STATED = 1e-9
"""Pixels: a sigma of 0 is not divided by."""
NORMAL_MEDIAN = 0.6745
"""The median of the absolute value of a standard normal number."""


@dataclass(frozen=True)
class Spread:
    """What a localizer states of its errors, and what they are, in pixels: the middle one of its sigmas and errors.

    >>> Spread(stated=0.5, error=2.0).distance
    4.0
    """

    stated: float
    error: float

    @property
    def distance(self) -> float:
        """How many times larger or smaller than the error the stated sigma is: at least 1."""
        return max(self.stated, self.error) / max(min(self.stated, self.error), LEAST_STATED)


def spread_of(batch: Batch, answer: Prediction) -> Spread:
    """The spread of an answer with boxes and their variance; the error is the median, scaled to a standard deviation.

    error = median |y - b| / 0.6745, at least 0.1 pixels;  stated = median of the root of the variance
    """
    rows = known_boxes(batch.boxes)
    true = np.asarray(batch.boxes, np.float64)[rows]
    error = float(np.median(np.abs(true - answer.columns["boxes"][rows]))) / NORMAL_MEDIAN
    stated = float(np.median(np.sqrt(np.asarray(answer.columns["box_variance"], np.float64)[rows])))
    return Spread(stated, max(error, LEAST_ERROR))


def check_variance(
    build: Factory, model: Model, given: Mapping[str, str], batch: Batch, answer: Prediction
) -> list[Finding]:
    """A finding where the sigma that a model states is far from its errors, and much nearer if read in another way.

    `given` are changes without which the model cannot be run. A sigma that is more than ten times larger or smaller
    than the error is doubted; of `variance`, `sigma` and `log_variance`, the one that comes nearest is named where it
    comes at least ten times nearer.
    """
    form: BoxForm | None = getattr(model, "box_form", None)
    now = spread_of(batch, answer)
    if form is None or form.variance == "none" or now.distance <= FAR_OFF:
        return []
    spreads = {}
    for variance in VARIANCES:
        other = str(replace(form, variance=variance))
        if variance not in ("none", form.variance):
            try:
                spreads[other] = spread_of(batch, build(**{**given, "boxes": other}).answer(batch, BATCH))
            except RoadworthyError:
                continue
    text = min(spreads, key=lambda other: spreads[other].distance, default="")
    if not text or spreads[text].distance * FAR_OFF > now.distance:
        return []
    sentence = (
        f"its boxes are off by {now.error:.2g} pixels and it states {now.stated:.2g}: declare `boxes={text!r}`, with "
        f"which it states {spreads[text].stated:.2g}"
    )
    return [Finding(sentence, {**given, "boxes": text})]
