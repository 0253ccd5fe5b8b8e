"""Whether a model answers an image by that image alone: the same again, beside other images, and at its own turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction

ROUNDING, ROUNDING_PIXELS = 1e-4, 0.01
"""Changes of a probability, and of a coordinate in pixels, that come from the order in which numbers are added."""
COLUMNS = ("probabilities", "boxes")


@dataclass(frozen=True)
class Change:
    """The largest change of a probability, and of a coordinate of a box in pixels, between two answers.

    >>> str(Change(0.25, 3.0)), Change(1e-7).is_rounding, bool(Change())
    ('its probabilities change by up to 0.25 and its boxes change by up to 3 pixels', True, False)
    """

    probabilities: float = 0.0
    boxes: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.probabilities or self.boxes)

    def __str__(self) -> str:
        texts = {
            f"its probabilities change by up to {self.probabilities:.2g}": self.probabilities,
            f"its boxes change by up to {self.boxes:.2g} pixels": self.boxes,
        }
        return " and ".join(text for text, change in texts.items() if change)

    @property
    def is_rounding(self) -> bool:
        """Whether it is no more than rounding; then no class changes that is not tied."""
        return self.probabilities <= ROUNDING and self.boxes <= ROUNDING_PIXELS


NO_CHANGE = Change()


@dataclass(frozen=True)
class Steadiness:
    """How the answers of a model to some images change when it is asked about them once more.

    again    asked about the same images in the same batches
    beside   asked about them beside other images, and at other places of a batch; nothing where `again` is more than
             rounding, which cannot be told apart
    is_late  whether it answers the batch before the one that it is given
    """

    again: Change = NO_CHANGE
    beside: Change = NO_CHANGE
    is_late: bool = False

    @property
    def reason(self) -> str:
        """Why no figure of such a model says anything; empty where its answers repeat."""
        if self.is_late:
            return (
                "answers the images of the batch before: asked about other images, it gives the answers of those that "
                "it was shown last; let it answer the batch that it is given"
            )
        return "" if self.again.is_rounding else f"answers the same images differently when asked twice: {self.again}"

    @property
    def note(self) -> str:
        """What must be said of a model whose answers repeat but are not those of one image alone; else empty."""
        if self.reason or self.beside.is_rounding:
            return ""
        return (
            f"an answer depends on the other images of its batch ({self.beside}), so that its figures are those of "
            "these batches and not of single images: is batch normalisation in training mode?"
        )


STEADY = Steadiness()


def ask_again(model: Model, batch: Batch, answer: Prediction, size: int) -> Steadiness:
    """How steady a model is that gave this answer to a batch, asked in batches of `size` images.

    Every second image is shown twice, which changes its place and its neighbours. Where all answers are the same, that
    was all; else the first question is asked once more, or twice, as a model may answer by turns, to tell why not.
    """
    size = model.fixed_batch or size
    rows = np.resize(np.arange(len(batch))[1::2] if len(batch) > 1 else np.zeros(1, int), len(batch))
    beside = model.answer(batch.take(rows.tolist()), size)
    moved = _change(beside, answer, rows)
    if not moved:
        return STEADY
    again = model.answer(batch, size)
    change = _change(again, answer, slice(None))
    if change.is_rounding and not moved.is_rounding:
        again = model.answer(batch, size)
        change = _change(again, answer, slice(None))
    late = not change.is_rounding and _change(again, beside, rows).is_rounding
    if late and not _change(beside, again, rows).is_rounding:
        return Steadiness(again=change, is_late=True)
    return Steadiness(again=change, beside=moved if change.is_rounding else NO_CHANGE)


def _change(new: Prediction, old: Prediction, rows: NDArray[np.intp] | slice) -> Change:
    """How answers differ from rows of others."""
    changes = {
        name: float(np.abs(new.columns[name] - old.columns[name][rows]).max(initial=0.0))
        for name in COLUMNS
        if name in old.columns
    }
    return Change(**changes)
