"""The check of a localizer: how well its boxes overlap the true ones, and in which other form they would do better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.roles import BATCH, Model
from roadworthy.core.types import Batch
from roadworthy.metrics.box_overlap import intersection_over_union
from roadworthy.models.alternatives import MIN_GAIN, MIN_SAMPLE, MIN_SKILL, SIGNIFICANCE, Factory, Finding, alternatives
from roadworthy.models.base import Adapter
from roadworthy.models.boxes import BoxForm
from roadworthy.models.classes import Wrapper
from roadworthy.models.joint import JointModel
from roadworthy.statistics import mean_interval

CHANCE_SIGNIFICANCE = 0.01
"""The level of the one-sided test by which a localizer is better than always answering the mean box."""
FEWEST = 7
"""Images that are needed to tell at that level: fewer could all be better by luck alone, 1/2^6 is above 0.01."""
CHANCE_ADVICE = "check model and data, or continue with `accept_chance=True`"
WORKS = 0.5
"""A mean IoU from which on the model works as given, so that an alternative is screened by a few images first."""

Boxes = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class BoxChance:
    """How well boxes overlap the true ones, beside always answering the mean box of the data, and the test of the two.

    `p` is the probability of a gain at least as large by luck (paired t test, one-sided); NaN where the images are too
    few to tell.
    """

    images: int
    iou: float
    constant: float
    p: float

    @property
    def is_chance(self) -> bool:
        """True where the images are enough for the test and the boxes are no better than the mean box."""
        return self.p > CHANCE_SIGNIFICANCE

    @property
    def is_above(self) -> bool:
        """True where the boxes are better than the mean box."""
        return self.p <= CHANCE_SIGNIFICANCE


def mean_box_overlaps(true: Boxes) -> NDArray[np.float64]:
    """IoU (n,) of the true boxes (n, 4) with their mean box, which knows the data but does not look at an image.

    >>> mean_box_overlaps(np.array([[0.0, 0, 4, 4], [4, 0, 8, 4]])).round(3).tolist()
    [0.333, 0.333]
    """
    return _overlaps(true, np.broadcast_to(true.mean(axis=0), true.shape))


def compare_with_mean_box(true: Boxes, boxes: Boxes) -> BoxChance:
    """Whether boxes (n, 4) overlap the true ones (n, 4) better than the mean of the true boxes does.

    >>> true = np.array([[i, 0.0, i + 3, 3] for i in range(8)])
    >>> compare_with_mean_box(true, true).is_above, compare_with_mean_box(true, true * 0 + true.mean(axis=0)).is_chance
    (True, True)
    """
    if not len(true):
        return BoxChance(0, math.nan, math.nan, math.nan)
    overlaps, constant = _overlaps(true, boxes), mean_box_overlaps(true)
    p = paired_p(overlaps - constant) if len(true) >= FEWEST else math.nan
    return BoxChance(len(true), float(overlaps.mean()), float(constant.mean()), p)


def paired_p(gains: NDArray[np.floating[Any]]) -> float:
    """The probability of a mean gain (n,) at least as large where there is none: a one-sided t test.

    >>> round(paired_p(np.array([1.0, 2.0, 3.0])), 4), paired_p(np.zeros(9)), paired_p(np.ones(9))
    (0.0371, 1.0, 0.0)
    """
    from scipy.stats import t  # slow to import, so only where it is needed

    count, mean = len(gains), float(np.mean(gains)) if len(gains) else 0.0
    spread = float(np.std(gains, ddof=1)) if count > 1 else 0.0
    if spread == 0.0:
        return 0.0 if mean > 0 and count > 1 else 1.0
    return float(t.sf(mean / (spread / math.sqrt(count)), count - 1))


@dataclass(frozen=True)
class BoxReport:
    """How well the boxes of a model overlap the true ones of a sample.

    `interval` is the 95 % interval of the mean IoU, which counts `objects`; `constant` is the mean IoU of always
    answering the mean box; `at_chance` is True where the model is no better and nothing was found that helps; `varied`
    names the settings that were tried.
    """

    images: int
    objects: int
    iou: float
    interval: tuple[float, float]
    constant: float
    at_chance: bool = False
    varied: str = ""

    def lines(self) -> list[str]:
        """The report for people."""
        low, high = self.interval
        return [
            f"  mean IoU: {self.iou:.3f} (95 % interval {low:.3f} to {high:.3f}) on {self.images} images with a box"
            f"{of_objects(self.objects, self.images)}; "
            f"always the mean box {self.constant:.3f}"
        ]


def of_objects(objects: int, images: int) -> str:
    """How many objects so many images show, in words; nothing where each shows one of its own.

    >>> of_objects(28, 140), of_objects(140, 140)
    (', 28 objects', '')
    """
    return f", {objects} object{'s' * (objects != 1)}" if objects < images else ""


def known_boxes(boxes: Boxes | None) -> NDArray[np.intp]:
    """The rows of boxes (N, 4) that are there: none where there are no boxes at all.

    >>> known_boxes(np.array([[0.0, 0, 1, 1], [np.nan] * 4])).tolist(), known_boxes(None).tolist()
    ([0], [])
    """
    return np.flatnonzero([] if boxes is None else ~np.isnan(boxes).any(axis=1))


@dataclass(frozen=True)
class _BoxTrial:
    """One way to run a localizer: the settings that were changed, and its boxes (N, 4)."""

    changes: Mapping[str, str]
    boxes: Boxes


def check_boxes(
    build: Factory,
    model: Model,
    given: Mapping[str, str],
    batch: Batch,
    boxes: Boxes,
    tried: int,
    unsteady: bool,
    *,
    screened: int = MIN_SAMPLE,
    size: int = BATCH,
) -> tuple[BoxReport, list[Finding]]:
    """What a sample says of the boxes (N, 4) that a model answers to a batch, and what would make them better.

    `given` are changes without which the model cannot be run; alternatives are tried on the first `tried` images. An
    `unsteady` model, which answers differently when asked again, is not said to be at chance. An alternative is a
    finding only where it is better beyond doubt: paired t test on the IoU of the same images below 0.001, at least 0.02
    more, and at least a tenth of the way from always answering the mean box to 1. `screened` are the first images, on
    which an alternative must be better for the others to be asked, `size` those asked at once.
    """
    rows = known_boxes(batch.boxes)
    true = np.asarray(batch.boxes, np.float64)[rows]
    overlaps = _overlaps(true, boxes[rows])
    some = rows[rows < tried]
    findings = _search(build, model, _BoxTrial(given, boxes[some]), batch.take(some.tolist()), screened, size)
    chance = compare_with_mean_box(true, boxes[rows])
    at_chance = not findings and not unsteady and chance.is_chance
    bounds = mean_interval(overlaps, [batch.group[row] for row in rows], 0.0, 1.0)
    varied = varied_settings(model)
    box_report = BoxReport(
        len(rows), bounds.groups, chance.iou, (bounds.lo, bounds.hi), chance.constant, at_chance, varied
    )
    return box_report, findings


def _search(build: Factory, model: Model, given: _BoxTrial, batch: Batch, screened: int, size: int) -> list[Finding]:
    """The finding of the best alternative, where one is better beyond doubt."""
    form = box_form(model)
    if form is None or not len(batch):
        return []
    true = np.asarray(batch.boxes)
    best = given
    trials = _trials(build, model, form, given, batch, screened, size)
    for trial in sorted(trials, key=lambda trial: (len(trial.changes), -_iou(true, trial))):
        if _is_better(true, trial.boxes, best.boxes):
            best = trial
    if best is given:
        return []
    spelled = " ".join(f"`{key}={value!r}`" for key, value in best.changes.items())
    text = f"declare {spelled}: IoU {_iou(true, best):.2f} instead of {_iou(true, given):.2f}"
    return [Finding(text, dict(best.changes), iou=_iou(true, best))]


def _trials(
    build: Factory, model: Model, form: BoxForm, given: _BoxTrial, batch: Batch, screened: int, size: int
) -> Iterator[_BoxTrial]:
    """The boxes in every other form, as the model is fed now and under every other way to feed it."""
    yield from _in_other_forms(model, form, given, batch)
    few = batch.take(slice(0, screened))
    true_of_few = np.asarray(few.boxes, np.float64)
    works = _iou(np.asarray(batch.boxes, np.float64), given) >= WORKS
    target = _iou(true_of_few, _BoxTrial({}, given.boxes[:screened])) if works else -1.0

    def ask(other: Model) -> Boxes | None:
        first = other.answer(few, size).columns["boxes"]
        forms = [_BoxTrial({}, first), *_in_other_forms(other, form, _BoxTrial({}, first), few)]
        if max(_iou(true_of_few, trial) for trial in forms) <= target:
            return None
        rest = batch.take(slice(screened, None))
        return np.concatenate([first, other.answer(rest, size).columns["boxes"]]) if len(rest) else first

    for changes, boxes in alternatives(build, model, given.changes, batch.images.shape[-1], ask):
        trial = _BoxTrial(changes, boxes)
        yield trial
        yield from _in_other_forms(model, form, trial, batch)


def _in_other_forms(model: Model, form: BoxForm, trial: _BoxTrial, batch: Batch) -> Iterator[_BoxTrial]:
    """The same answers, taken to be written in each of the other forms, units and orders."""
    image_size, localizer = batch.images.shape[1:3], writer_of_boxes(model)
    input_size = (localizer.preprocess.size if isinstance(localizer, Adapter) else None) or image_size
    sizes = (input_size, image_size)
    rows = form.write(trial.boxes, *sizes)
    for other in form.places[1:]:
        boxes, _ = replace(other, variance="none").read(rows, *sizes)
        yield _BoxTrial({**trial.changes, "boxes": str(other)}, boxes)


def writer_of_boxes(model: Model) -> Model:
    """The model whose boxes another one passes on as they are: the localizer of a joint model or inside a wrapper."""
    while isinstance(model, JointModel | Wrapper):
        model = model.boxes if isinstance(model, JointModel) else model.model
    return model


def box_form(model: Model) -> BoxForm | None:
    """The form in which a model is taken to write its boxes; None where it cannot be declared otherwise."""
    form: BoxForm | None = getattr(writer_of_boxes(model), "box_form", None)
    return form


def varied_settings(model: Model) -> str:
    """What `check_boxes` tries of a model, for messages; only an adapter can be fed in another way."""
    if box_form(model) is None:
        return ""
    return "form of boxes, range, colour order or layout" if isinstance(model, Adapter) else "form of boxes"


def _iou(true: Boxes, trial: _BoxTrial) -> float:
    return float(_overlaps(true, trial.boxes).mean())


def _overlaps(true: Boxes, boxes: Boxes) -> NDArray[np.float64]:
    return intersection_over_union(np.asarray(true, np.float64), np.asarray(boxes, np.float64))


def _is_better(true: Boxes, new: Boxes, old: Boxes) -> bool:
    """True where the new boxes are better than the old ones beyond doubt, by enough, and work at all."""
    overlap, before = _overlaps(true, new), _overlaps(true, old)
    constant = float(mean_box_overlaps(true).mean())
    skill = (float(overlap.mean()) - constant) / max(1 - constant, 1e-9)
    if overlap.mean() < before.mean() + MIN_GAIN or skill < MIN_SKILL:
        return False
    return paired_p(overlap - before) < SIGNIFICANCE


def box_chance_text(model: Model, dataset: str, chance: BoxChance, findings: Sequence[Finding] | None) -> str:
    """The sentence for a localizer that is no better than the mean box, with what would make it better if anything.

    `findings` is None where nothing else was tried.
    """
    text = (
        f"model {model.name} has a mean IoU of {chance.iou:.2f} on {chance.images} undisturbed images of {dataset}, no "
        f"better than always answering their mean box ({chance.constant:.2f})"
    )
    helps = [finding.text for finding in findings or () if finding.iou is not None]
    if helps:
        return f"{text}: {'; '.join(helps)}"
    varied = "" if findings is None else varied_settings(model)
    tried = f", and no other {varied} was found that helps" if varied else ""
    return f"{text}{tried}: {CHANCE_ADVICE}"
