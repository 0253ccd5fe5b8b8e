"""A dry run of a model on a sample of the data: does it work as given, and if not, which setting would make it?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from roadworthy.core import showing
from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import BATCH, Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.data.folder import level_hint
from roadworthy.data.table import natural_key
from roadworthy.metrics import compare_with_chance
from roadworthy.models.alternatives import MIN_GAIN, MIN_SAMPLE, MIN_SKILL, SIGNIFICANCE, Factory, Finding, alternatives
from roadworthy.models.check_boxes import BoxReport, check_boxes, known_boxes, of_objects
from roadworthy.models.check_variance import check_variance
from roadworthy.models.classes import AlignedModel, align
from roadworthy.models.preprocess import LAYOUTS, AmbiguousLayout
from roadworthy.models.steadiness import ask_again
from roadworthy.statistics import proportion_interval

SAMPLE = 512
MIN_FITTED_SKILL = 0.5
"""The same for a class order that was fitted to the answers: it can make something even of an untrained model."""
MIN_IMAGES_PER_CLASS = 4
SECONDS_FOR_ALTERNATIVES = 10.0
MAX_TRIALS = 10
UNSETTLED = 0.25
"""The p of the exact McNemar test from which on a better alternative is not named at all."""

USES = {
    "probabilities": "shifts, calibration, out-of-distribution tests by confidence, black-box monitors",
    "boxes": "localization: overlap with the true box under shift",
    "box_variance": "calibration of the uncertainty of boxes",
    "logits": "temperature scaling, energy and max-logit scores",
    "features": "monitors of inner layers (distances, boxes around activations)",
    "input_gradient": "gradient attacks, ODIN",
}
OF_CLASSES = frozenset({"probabilities", "logits", "features", "input_gradient"})
"""What a classifier is said to lack; a localizer is said to lack the others."""

Answers = NDArray[np.int64]


@dataclass(frozen=True)
class Trial:
    """One way to run the model: the settings that were changed, and the class it answered per image (N,).

    `order` are the class names in the model's order, where it is taken to be another than the data's; `how` tells why.
    """

    changes: Mapping[str, str]
    answers: Answers
    order: tuple[str, ...] | None = None
    how: str = ""

    @property
    def cost(self) -> int:
        """How many settings are changed; another class order is one more."""
        return len(self.changes) + (self.order is not None)

    @property
    def spelled(self) -> str:
        """The changes as a message spells them (see `RoadworthyError`)."""
        keywords = [f"`{key}={value!r}`" for key, value in self.changes.items()]
        return " ".join(keywords if self.order is None else [*keywords, "`classes=`"])


@dataclass(frozen=True, repr=False)
class CheckReport:
    """What `check_model` saw; printed, it is the report for people.

    `interval` holds the accuracy at 95 % and counts `objects`, as the figures of a run do.
    `findings` is empty where no setting is wrong, `class_order` is set where it was. `at_chance` is True where the
    model is no better than chance (see `compare_with_chance`), and nothing was found that helps. `boxes` is there for a
    localizer on data with boxes; without classes, all that is said of them is NaN. `unsettled` names the setting that
    was the best in the sample where it is not better beyond doubt.
    """

    model: str
    describe: Mapping[str, Any]
    classes: int
    data: str
    data_size: tuple[int, int]
    sample: int
    of: int
    seconds_per_image: float
    capabilities: frozenset[str]
    accuracy: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    objects: int = 0
    majority: float = math.nan
    mean_confidence: float = math.nan
    boxes: BoxReport | None = None
    findings: tuple[Finding, ...] = ()
    class_order: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    at_chance: bool = False
    data_notes: tuple[str, ...] = ()
    unsettled: str = ""

    @property
    def ok(self) -> bool:
        """True where nothing wrong was found."""
        return not self.findings and not self.at_chance and not (self.boxes and self.boxes.at_chance)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """For a notebook: the findings first, then the rest of the report."""
        wrong, right = (showing.status(word) for word in ("fail", "pass"))
        findings = [line.removeprefix("finding: ") for line in self.lines() if line.startswith("finding: ")]
        rest = [line.strip() for line in self.lines() if not line.startswith("finding: ")]
        rows = [(wrong, text) for text in findings] or [(right, self._conclusion)]
        named = [(name, value) for name, colon, value in (line.partition(": ") for line in rest) if colon]
        facts = showing.pairs([*named, *(("", line) for line in rest if ": " not in line)])
        return showing.card(f"Check of {self.model}", showing.table(("result", "finding"), rows), facts)

    def lines(self) -> list[str]:
        """The report for people, line by line; findings last."""
        kind = f" ({self.describe['kind']})" if "kind" in self.describe else ""
        lines = [f"model {self.model}{kind}: {f'{self.classes} classes' if self.classes else 'boxes, no classes'}"]
        shown = ("address", "format", "input", "outputs", "boxes", "batch", "device", "latency")
        lines += [f"  {key}: {self.describe[key]}" for key in shown if key in self.describe]
        lines += [f"  note: {note}" for note in (*self.describe.get("notes", ()), *self.notes)]
        lines.append(f"data {self.data}: {self.sample} of {self.of} images, {self.data_size[0]}x{self.data_size[1]}")
        lines += [f"  note: {note}" for note in self.data_notes]
        lines += self._class_lines() if self.classes else []
        lines += self.boxes.lines() if self.boxes else []
        lines.append(f"  speed: {self.seconds_per_image * 1000:.2f} ms per image")
        for capability, use in USES.items():
            can = capability in self.capabilities
            if can or (capability in OF_CLASSES) == bool(self.classes):
                lacks = "" if can else f" (no {capability})"
                lines.append(f"  {'can' if can else 'cannot'} be tested with {use}{lacks}")
        lines += [f"finding: {finding.text}" for finding in self.findings]
        if self.at_chance:
            lines.append(
                "finding: it is no better than chance, and no other range, colour, layout or class order helps"
            )
        if self.boxes and self.boxes.at_chance:
            tried = f", and no other {self.boxes.varied} helps" if self.boxes.varied else ""
            lines.append(f"finding: its boxes are no better than always the mean box{tried}")
        if self.unsettled:
            lines.append(f"not settled: {self.unsettled}")
        if self.ok:
            lines.append(self._conclusion)
        if self.class_order is not None:
            lines += ["class order for `classes=`, one name per line:", *self.class_order]
        return lines

    @property
    def _conclusion(self) -> str:
        """What is said where there is no finding."""
        return f"nothing wrong was found{' beyond doubt' if self.unsettled else ''}"

    def _class_lines(self) -> list[str]:
        """What is said of the classes."""
        low, high = self.interval
        gap = self.mean_confidence - self.accuracy
        side = "above" if gap >= 0 else "below"
        objects = of_objects(self.objects, self.sample)
        return [
            f"  accuracy: {self.accuracy:.3f} (95 % interval {low:.3f} to {high:.3f}{objects}); "
            f"chance is {1 / self.classes:.3f}, always the commonest class {self.majority:.3f}",
            f"  mean confidence: {self.mean_confidence:.3f} ({abs(gap):.3f} {side} accuracy)",
        ]


def check_model(build: Factory, dataset: Dataset, *, sample: int = SAMPLE, seed: int = 0) -> CheckReport:
    """Run a model on a sample of the data, and always try the other plausible ways to feed it and to read its boxes.

    `build(**settings)` makes the model, with `range`, `colour`, `layout` or `boxes` changed as asked; without settings
    it is the model as the user gave it. A change is a finding only where it is better beyond doubt: for classes an
    exact McNemar test on the same images below 0.001, at least two points more accuracy, and at least a tenth of the
    way from the commonest class's share to 1; for boxes see `check_boxes` and `check_variance`.
    """
    if not len(dataset):
        raise InputError(f"data {dataset.name} holds no images")
    opened, forced = open_given(build)
    has_classes, has_boxes = "probabilities" in opened.capabilities, "boxes" in opened.capabilities
    model = _aligned(opened, dataset) if has_classes else opened
    batch = draw_sample(dataset, slice(0, sample), seed)
    started = time.perf_counter()
    prediction = model.answer(batch, BATCH)
    seconds = (time.perf_counter() - started) / len(batch)
    seen = _Seen(build, opened, model, forced, batch, prediction, _affordable(len(batch), seconds))
    unsteady = _stability(model, batch, prediction)
    report = CheckReport(
        model=model.name,
        describe=getattr(model, "describe", dict)(),
        classes=model.num_classes,
        data=dataset.name,
        data_size=dataset.size,
        sample=len(batch),
        of=len(dataset),
        seconds_per_image=seconds,
        capabilities=model.capabilities,
        data_notes=tuple(getattr(dataset, "notes", ())),
    )
    if has_classes:
        report = _with_classes(report, seen, dataset.class_names, unsteady)
    if has_boxes and len(known_boxes(batch.boxes)):
        given, boxes = seen.forced, prediction.columns["boxes"]
        of_boxes, findings = check_boxes(build, opened, given, batch, boxes, seen.affordable, bool(unsteady))
        if not findings and not of_boxes.at_chance and "box_variance" in opened.capabilities:
            findings = check_variance(build, opened, given, batch, prediction)
        report = replace(report, boxes=of_boxes, findings=(*report.findings, *findings))
    elif has_boxes and not has_classes:
        raise InputError(f"model {model.name} answers boxes, and data {dataset.name} has none to compare them with")
    elif has_boxes:
        report = replace(report, notes=(*report.notes, f"its boxes are not checked: data {dataset.name} has none"))
    return replace(report, findings=(*report.findings, *unsteady))


def _aligned(model: Model, dataset: Dataset) -> Model:
    """The model in the order of the data's classes; another number of them is an error, with what the data notes."""
    try:
        return align(model, dataset.class_names)
    except InputError as error:
        raise InputError(f"{error}{level_hint(getattr(dataset, 'notes', ()))}") from None


@dataclass(frozen=True)
class _Seen:
    """A model as given (`opened`, with the changes `forced` on it) and as aligned, and what it answered to a sample.

    Alternatives are tried on `affordable` images.
    """

    build: Factory
    opened: Model
    model: Model
    forced: Mapping[str, str]
    batch: Batch
    prediction: Prediction
    affordable: int


def _with_classes(
    report: CheckReport, seen: _Seen, class_names: tuple[str, ...], unsteady: Sequence[Finding]
) -> CheckReport:
    """The report with what the sample says of the classes."""
    batch, model, probabilities = seen.batch, seen.model, seen.prediction.probabilities
    answers = probabilities.argmax(axis=1)
    hits = int((answers == batch.labels).sum())
    bounds = proportion_interval(answers == batch.labels, batch.group)
    tried = batch if hits >= len(batch) / 2 else batch.take(slice(0, seen.affordable))
    given = Trial(seen.forced, answers[: len(tried)])
    found = search_alternatives(seen.build, seen.opened, given, tried, class_names, whole=len(tried) == len(batch))
    findings, order = list(found.findings), found.order
    if order is not None and isinstance(model, AlignedModel):
        order = tuple(order[column] for column in np.argsort(model.order))
    if order is not None:
        findings = [replace(finding, settings={**finding.settings, "classes": order}) for finding in findings]
    notes = [] if len(tried) == len(batch) else [f"it is slow: alternatives were tried on {len(tried)} images"]
    if len(tried) < MIN_IMAGES_PER_CLASS * model.num_classes:
        notes.append("there are too few images per class to look for another class order: raise `sample=`")
    is_chance = compare_with_chance(batch.labels, answers, model.num_classes).is_chance
    return replace(
        report,
        accuracy=hits / len(batch),
        interval=(bounds.lo, bounds.hi),
        objects=bounds.groups,
        majority=float(np.bincount(batch.labels).max() / len(batch)),
        mean_confidence=float(probabilities.max(axis=1).mean()),
        findings=tuple(findings),
        class_order=order,
        notes=tuple(notes),
        at_chance=not findings and not unsteady and is_chance,
        unsettled=found.unsettled,
    )


def _affordable(count: int, seconds: float) -> int:
    """How many images each alternative is tried on: halved until it fits the time there is."""
    while count > MIN_SAMPLE and count * seconds * MAX_TRIALS > SECONDS_FOR_ALTERNATIVES:
        count //= 2
    return count


class Search(NamedTuple):
    """What a search of alternatives found beyond doubt, the class order where it is another, and what is not settled.

    `unsettled` names the setting that was the best on the images, where nothing is better beyond doubt, and `p` bounds
    the probability of such a gain by luck; the text is empty where luck explains it well.
    """

    findings: tuple[Finding, ...] = ()
    order: tuple[str, ...] | None = None
    unsettled: str = ""
    p: float = 1.0


def search_alternatives(
    build: Factory,
    model: Model,
    given: Trial,
    batch: Batch,
    class_names: tuple[str, ...],
    *,
    whole: bool = False,
    screened: int = MIN_SAMPLE,
    size: int = BATCH,
) -> Search:
    """What works better than the model as given: other settings, another class order, or both.

    `whole` says that the batch is all that was asked; else a finding says how many images it speaks of. `screened` are
    the first images, on which an alternative must be better for the others to be asked; `size` those asked at once.
    """
    judge = Judge(batch.labels, class_names)
    trials = [given, *_alternatives(build, model, given, batch, judge, screened, size)]
    best = judge.best([*trials, *(ordered for trial in trials for ordered in judge.orders(trial))])
    accuracy, before = judge.accuracy(best.answers), judge.accuracy(given.answers)
    shown = "" if whole else f" on {len(batch)} of the images"
    if best is not given:
        reason = f" (the model has its classes in another order: {best.how})" if best.order else ""
        text = f"with {best.spelled} accuracy is {accuracy:.3f} instead of {before:.3f}{shown}{reason}"
    elif given.changes:
        text = f"the input shape fits both layouts: with {given.spelled} accuracy is {accuracy:.3f}{shown}"
    else:
        return judge.unsettled(trials)
    return Search((Finding(text, dict(best.changes), accuracy),), best.order)


@dataclass(frozen=True)
class Judge:
    """Compares ways to run a model on the same images, of which `labels` are true."""

    labels: Answers
    class_names: tuple[str, ...]

    def accuracy(self, answers: Answers) -> float:
        """The share of right answers."""
        return float((answers == self.labels).mean())

    def skill(self, answers: Answers) -> float:
        """0 where always answering the commonest class is as good, 1 where all is right."""
        majority = np.bincount(self.labels).max() / len(self.labels)
        return float((self.accuracy(answers) - majority) / max(1 - majority, 1e-9))

    def better(self, new: Answers, old: Answers) -> bool:
        """True where `new` is better than `old` beyond doubt (exact McNemar), by enough, and works at all."""
        if self.accuracy(new) < self.accuracy(old) + MIN_GAIN or self.skill(new) < MIN_SKILL:
            return False
        return self.p(new, old) < SIGNIFICANCE

    def p(self, new: Answers, old: Answers) -> float:
        """The probability of so many more right answers by luck (exact McNemar test, one-sided)."""
        right, was_right = new == self.labels, old == self.labels
        gained, lost = int((right & ~was_right).sum()), int((was_right & ~right).sum())
        return float(_binomial_test(gained, gained + lost, 0.5, "greater").pvalue) if gained + lost else 1.0

    def unsettled(self, trials: Sequence[Trial]) -> Search:
        """The best of the trials where it is better than the first on these images, but not beyond doubt.

        Nothing where none is better by `MIN_GAIN`, works at all, and has a p below `UNSETTLED`, corrected for how many
        were asked about all images (Bonferroni): the best of several is easily better by luck.
        """
        given, *others = trials
        best = max(others, key=lambda trial: (self.accuracy(trial.answers), -trial.cost), default=given)
        accuracy, before = self.accuracy(best.answers), self.accuracy(given.answers)
        p = min(len(others) * self.p(best.answers, given.answers), 1.0)
        if accuracy < before + MIN_GAIN or self.skill(best.answers) < MIN_SKILL or p >= UNSETTLED:
            return Search()
        text = (
            f"with {best.spelled} accuracy is {accuracy:.3f} instead of {before:.3f} on {len(self.labels)} images, "
            f"which is the best of the settings that were tried and may be luck (p = {p:.2g}): try more images"
        )
        return Search(unsettled=text, p=p)

    def best(self, trials: Sequence[Trial]) -> Trial:
        """The trial to prefer to the first: as few changes as do; one more only where it is better beyond doubt."""
        best = trials[0]
        for trial in sorted(trials[1:], key=lambda t: (t.cost, -self.accuracy(t.answers))):
            if self.better(trial.answers, best.answers):
                best = trial
        return best

    def orders(self, trial: Trial) -> Iterator[Trial]:
        """The trial under other class orders: names sorted as text or by number, and what the confusions suggest.

        The last one is found from the confusion matrix of one half of the images and applied to the other, and the
        other way round, so that its answers are honest.
        """
        keys: dict[str, Callable[[str], Any]] = {"as text": str, "by number": natural_key}
        for how, key in keys.items():
            names = sorted(self.class_names, key=key)
            label_of = np.array([self.class_names.index(name) for name in names])
            yield Trial(trial.changes, label_of[trial.answers], tuple(names), f"names sorted {how}")
        classes = len(self.class_names)
        if len(self.labels) < MIN_IMAGES_PER_CLASS * classes:
            return
        answers = np.empty_like(trial.answers)
        for fit, use in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
            answers[use] = _assign(self.labels[fit], trial.answers[fit], classes)[trial.answers[use]]
        if self.skill(answers) >= MIN_FITTED_SKILL:
            names = [self.class_names[label] for label in _assign(self.labels, trial.answers, classes)]
            how = f"found from the confusions of {len(self.labels)} images"
            yield Trial(trial.changes, answers, tuple(names), how)


def _assign(labels: Answers, answers: Answers, classes: int) -> Answers:
    """(K,): the label that each answered class stands for, one to one, so that most answers are right."""
    confusion = np.zeros((classes, classes))
    np.add.at(confusion, (answers, labels), 1.0)
    confusion += np.eye(classes) * 1e-3
    return np.asarray(linear_sum_assignment(confusion, maximize=True)[1], np.int64)


def open_given(build: Factory) -> tuple[Model, dict[str, str]]:
    """The model as given; where its layout is not known, with one of the two, and that noted as a change."""
    try:
        return build(), {}
    except AmbiguousLayout:
        return build(layout=LAYOUTS[0]), {"layout": LAYOUTS[0]}


def draw_sample(dataset: Dataset, which: slice, seed: int) -> Batch:
    """Images drawn evenly: some of an order that makes any part of it an even draw as well."""
    (rng,) = Streams("check", seed).each([dataset.name])
    return dataset.batch([int(row) for row in rng.permutation(len(dataset))[which]])


def _alternatives(
    build: Factory, model: Model, given: Trial, batch: Batch, judge: Judge, screened: int, size: int
) -> Iterator[Trial]:
    """The model under every other combination of range, colour order and layout that it takes.

    Where most answers are right as given, an alternative that is no better on the first images is dropped there.
    """
    few = slice(0, screened)
    screen = Judge(judge.labels[few], judge.class_names)
    target = screen.accuracy(given.answers[few]) if judge.accuracy(given.answers) >= 0.5 else -1.0

    def ask(built: Model) -> Answers | None:
        other = align(built, judge.class_names)
        answers = answered_classes(other, batch.take(few), size)
        if screen.accuracy(answers) <= target:
            return None
        return np.concatenate([answers, answered_classes(other, batch.take(slice(screened, None)), size)])

    for changes, answers in alternatives(build, model, given.changes, batch.images.shape[-1], ask):
        yield Trial(changes, answers)


def answered_classes(model: Model, batch: Batch, size: int) -> Answers:
    """The class (N,) that a model answers to each image, asked in batches of `size` images."""
    return np.asarray(model.answer(batch, size).probabilities.argmax(axis=1))


def _stability(model: Model, batch: Batch, prediction: Prediction) -> list[Finding]:
    """Whether the same images get the same answer again, and also beside other images."""
    size = model.fixed_batch if model.fixed_batch and model.fixed_batch > 1 else BATCH
    size = min(size, len(batch))
    steadiness = ask_again(model, batch.take(slice(0, size)), prediction.rows(size), BATCH)
    question = "" if steadiness.is_late else ": is dropout active?"
    texts = [f"it {steadiness.reason}{question}"] if steadiness.reason else []
    return [Finding(text) for text in (*texts, steadiness.note) if text]


def _binomial_test(*counts: Any) -> Any:
    from scipy.stats import binomtest  # slow to import, so only where it is needed

    return binomtest(*counts)
