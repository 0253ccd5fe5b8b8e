"""The rehearsal of a model before a run: is it better than an answer that does not look at the images, and steady?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import BATCH, Dataset, Model, leaves
from roadworthy.core.types import Batch, Prediction
from roadworthy.metrics import ChanceTest, compare_with_chance
from roadworthy.models.alternatives import Factory
from roadworthy.models.base import Adapter
from roadworthy.models.check import (
    MAX_TRIALS,
    SAMPLE,
    Trial,
    answered_classes,
    check_model,
    draw_sample,
    search_alternatives,
)
from roadworthy.models.check_boxes import (
    CHANCE_ADVICE,
    BoxChance,
    box_chance_text,
    check_boxes,
    compare_with_mean_box,
    known_boxes,
)
from roadworthy.models.classes import align
from roadworthy.models.steadiness import STEADY, Steadiness, ask_again

PROBED = 128
"""Images by which other ranges, colour orders and layouts are tried before a run."""
SCREENED = 32
"""The first of them, on which an alternative must be better for the others to be asked."""
LEAST_WRONG = 10
"""Wrong answers without which no alternative can be better beyond doubt: 0.5^10 is the first below `SIGNIFICANCE`."""
WELL_PLACED = 0.9
"""A mean IoU from which on nothing is tried."""
UNSETTLED = 0.05
"""The p below which a better alternative is named before a run though it is not beyond doubt."""
SECONDS_FOR_PROBE = 10.0
"""Of a model whose user limits how fast it is asked."""
ADVICE = "that is beyond doubt: give this setting (`check` says more), unless it is meant to be asked as it is"


@dataclass(frozen=True)
class Rehearsal:
    """What a model answered to a sample of undisturbed images before a run: how well, and how steadily.

    result   the test of its classes by chance; None where it answers none
    boxes    the test of its boxes by the mean box; None where it answers none, or the data has none
    steadiness   whether an answer is that of an image alone
    """

    result: ChanceTest | None
    boxes: BoxChance | None = None
    steadiness: Steadiness = STEADY

    @property
    def is_chance(self) -> bool:
        """Whether its classes or its boxes are no better than an answer that does not look at the images."""
        return any(test is not None and test.is_chance for test in (self.result, self.boxes))


def rehearse(model: Model, dataset: Dataset, *, stimulus: str = "", batch: int = BATCH) -> Rehearsal:
    """Ask a model about a sample of the data, twice: what would spoil every figure is known before a run starts.

    The second time every second image stands beside others, see `ask_again`.

    A few images are enough for most models; where they do not settle whether it is above chance, or are all of one
    class, up to `SAMPLE` images are shown. A model that changes what its answers are made of while it answers is an
    error.
    """
    size = min(max(BATCH, batch), SAMPLE)
    shown = replace(draw_sample(dataset, slice(0, size), 0), stimulus=stimulus)
    answer = model.answer(shown, batch)
    before = model.fingerprint()
    steadiness = ask_again(model, shown, answer, batch)
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
    return Rehearsal(result, boxes, steadiness)


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


def better_ways(
    model: Model, dataset: Dataset, rehearsal: Rehearsal, *, stimulus: str = "", batch: int = BATCH
) -> list[str]:
    """What other ranges, colour orders, layouts, class orders or forms of boxes do better, a sentence each.

    Each network inside the model is tried with `PROBED` images, one pass per alternative, most of which end after
    `SCREENED` of them. Nothing is asked where the rehearsal lets no alternative be better beyond doubt, nor of a model
    at chance: it is refused, or was accepted as such. One whose user lets it be asked too slowly is not tried, and that
    is said.
    """
    images, result, boxes = min(PROBED, len(dataset)), rehearsal.result, rehearsal.boxes
    of_classes = result is not None and (1 - result.right / result.images) * images >= LEAST_WRONG
    of_boxes = boxes is not None and boxes.iou < WELL_PLACED
    if rehearsal.is_chance or not (of_classes or of_boxes):
        return []
    shown = replace(draw_sample(dataset, slice(0, images), 0), stimulus=stimulus)
    networks = [leaf for leaf in {id(leaf): leaf for leaf in leaves(model)}.values() if isinstance(leaf, Adapter)]
    texts = []
    for network in networks:
        can = network.capabilities
        seconds = MAX_TRIALS * images / (network.images_per_second or np.inf)
        if seconds > SECONDS_FOR_PROBE:
            texts.append(
                "other ranges, colour orders and layouts were not tried, which at its rate would take "
                f"{seconds:.0f} seconds: `check` tries them"
            )
            continue
        texts += _better_classes(network, dataset, shown, batch) if of_classes and "probabilities" in can else []
        texts += _better_boxes(network, shown, batch) if of_boxes and "boxes" in can else []
    return texts


def _better_classes(network: Adapter, dataset: Dataset, shown: Batch, batch: int) -> list[str]:
    """The settings with which the classes of a network are right more often."""
    size, names = min(batch, SCREENED), dataset.class_names
    given = Trial({}, answered_classes(align(network, names), shown, size))
    found = search_alternatives(network.fed, network, given, shown, names, screened=SCREENED, size=size)
    unsettled = [f"not settled: {found.unsettled}"] if found.p < UNSETTLED else []
    return [*(f"{finding.text}; {ADVICE}" for finding in found.findings), *unsettled]


def _better_boxes(network: Adapter, shown: Batch, batch: int) -> list[str]:
    """The settings with which the boxes of a network overlap the true ones better."""
    size = min(batch, SCREENED)
    boxes = network.answer(shown, size).columns["boxes"]
    options = {"screened": SCREENED, "size": size}
    _, findings = check_boxes(network.fed, network, {}, shown, boxes, len(shown), False, **options)
    return [f"{finding.text}; {ADVICE}" for finding in findings]
