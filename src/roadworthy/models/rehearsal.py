"""The rehearsal of a model before a run: is it better than an answer that does not look at the images, and steady?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import BATCH, Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.metrics import ChanceTest, compare_with_chance
from roadworthy.models.alternatives import Factory
from roadworthy.models.check import SAMPLE, check_model, draw_sample
from roadworthy.models.check_boxes import (
    CHANCE_ADVICE,
    BoxChance,
    box_chance_text,
    compare_with_mean_box,
    known_boxes,
)

ROUNDING, ROUNDING_PIXELS = 1e-4, 0.01
"""Changes of a probability, and of a coordinate in pixels, that come from the order in which numbers are added."""


@dataclass(frozen=True)
class Rehearsal:
    """What a model answered to a sample of undisturbed images before a run: how well, and how steadily.

    result       the test of its classes by chance; None where it answers none
    changes_by   the largest change of a probability where the same images were shown a second time
    boxes        the test of its boxes by the mean box; None where it answers none, or the data has none
    boxes_change_by   the largest change of a coordinate, in pixels
    """

    result: ChanceTest | None
    changes_by: float
    boxes: BoxChance | None = None
    boxes_change_by: float = 0.0

    @property
    def changes(self) -> str:
        """How its answers to the same images differ when it is asked again, in words; empty where they do not."""
        texts = {
            f"its probabilities change by up to {self.changes_by:.2g}": self.changes_by,
            f"its boxes change by up to {self.boxes_change_by:.2g} pixels": self.boxes_change_by,
        }
        return " and ".join(text for text, change in texts.items() if change)

    @property
    def is_steady(self) -> bool:
        """Whether its answers differ by no more than rounding does; then no class changes that is not tied."""
        return self.changes_by <= ROUNDING and self.boxes_change_by <= ROUNDING_PIXELS


def rehearse(model: Model, dataset: Dataset, *, stimulus: str = "", batch: int = BATCH) -> Rehearsal:
    """Ask a model about a sample of the data, twice: what would spoil every figure is known before a run starts.

    A few images are enough for most models; where they do not settle whether it is above chance, or are all of one
    class, up to `SAMPLE` images are shown. A model that changes what its answers are made of while it answers is an
    error.
    """
    size = min(max(BATCH, batch), SAMPLE)
    shown = replace(draw_sample(dataset, slice(0, size), 0), stimulus=stimulus)
    answer = model.answer(shown, batch)
    before = model.fingerprint()
    again = model.answer(shown, batch)
    if model.fingerprint() != before:
        raise InputError(
            f"model {model.name} changes what it reads (a global variable, a file) while it answers, so that a change "
            "of its answers could not be seen: give `version='TEXT'`, and another text with every change"
        )
    result, boxes = _against_chance(model, shown, answer)
    settled = (result is None or (result.is_above and np.ptp(shown.labels))) and (boxes is None or boxes.is_above)
    if size < min(SAMPLE, len(dataset)) and not settled:
        rest = replace(draw_sample(dataset, slice(size, SAMPLE), 0), stimulus=stimulus)
        parts = [answer, model.answer(rest, batch)]
        result, boxes = _against_chance(model, _joined(shown, rest), Prediction.concatenate(parts, model.num_classes))
    changes = {
        name: float(np.abs(again.columns[name] - answer.columns[name]).max(initial=0.0))
        for name in ("probabilities", "boxes")
        if name in answer.columns
    }
    return Rehearsal(result, changes.get("probabilities", 0.0), boxes, changes.get("boxes", 0.0))


def _joined(first: Batch, rest: Batch) -> _Truth:
    """What is true of the images of two batches."""
    boxes = None if first.boxes is None or rest.boxes is None else np.concatenate([first.boxes, rest.boxes])
    return _Truth(np.concatenate([first.labels, rest.labels]), boxes)


@dataclass(frozen=True)
class _Truth:
    """The labels (N,) of some images, and their boxes (N, 4) where the data has them."""

    labels: NDArray[np.int64]
    boxes: NDArray[np.float32] | None


def _against_chance(
    model: Model, truth: Batch | _Truth, answer: Prediction
) -> tuple[ChanceTest | None, BoxChance | None]:
    """The tests of the classes and of the boxes of an answer; None for what there is not."""
    result, boxes = None, None
    if "probabilities" in answer.columns:
        result = compare_with_chance(truth.labels, answer.probabilities.argmax(axis=1), model.num_classes)
    if "boxes" in answer.columns and truth.boxes is not None:
        rows = known_boxes(truth.boxes)
        boxes = compare_with_mean_box(np.asarray(truth.boxes, np.float64)[rows], answer.columns["boxes"][rows])
    return result, boxes


def chance_error(model: Model, dataset: Dataset, rehearsal: Rehearsal, build: Factory | None) -> str | None:
    """The sentence for a model that is no better than chance, with what would make it better where something does.

    Of a localizer, chance is to answer the mean box always. None where the model is better. Other settings are tried
    where `build` is given.
    """
    result, boxes = rehearsal.result, rehearsal.boxes
    of_classes, of_boxes = result is not None and result.is_chance, boxes is not None and boxes.is_chance
    if not (of_classes or of_boxes):
        return None
    findings = None if build is None else check_model(build, dataset).findings
    if not of_classes or result is None:
        assert boxes is not None
        return box_chance_text(model, dataset.name, boxes, findings)
    text = (
        f"model {model.name} is right on {result.right} of {result.images} undisturbed images of {dataset.name}, no "
        f"better than chance ({result.chance:.1%} over {model.num_classes} classes)"
    )
    helps = [finding.text for finding in findings or () if finding.accuracy is not None]
    if helps:
        return f"{text}: {'; '.join(helps)}"
    tried = ", and no other range, colour order, layout or class order was found that helps"
    return f"{text}{'' if findings is None else tried}: {CHANCE_ADVICE}"
