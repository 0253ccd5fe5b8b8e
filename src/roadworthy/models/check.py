"""A dry run of a model on a sample of the data: does it work as given, and if not, which setting would make it?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from roadworthy.core.errors import InputError, RoadworthyError
from roadworthy.core.random import Streams
from roadworthy.core.roles import BATCH, Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.data.table import natural_key
from roadworthy.metrics import ChanceTest, compare_with_chance
from roadworthy.models.base import Adapter
from roadworthy.models.classes import AlignedModel, align
from roadworthy.models.preprocess import COLOURS, LAYOUTS, RANGES, AmbiguousLayout, Preprocess, parse_range

SAMPLE = 512
SIGNIFICANCE = 1e-3
MIN_GAIN = 0.02
MIN_SKILL = 0.1
"""How far from the share of the commonest class (0) to all right (1) an alternative must come. An untrained model is
easily a little better one way than another."""
MIN_FITTED_SKILL = 0.5
"""The same for a class order that was fitted to the answers: it can make something even of an untrained model."""
MIN_IMAGES_PER_CLASS = 4
SECONDS_FOR_ALTERNATIVES = 10.0
MAX_TRIALS = 10
MIN_SAMPLE = 128
ANSWER_TOLERANCE = 1e-3

CAFFE = "0.485,0.456,0.406/0.00392157"
"""Pixels 0 to 255 minus the mean of ImageNet, as older BGR networks have it."""

USES = {
    "probabilities": "shifts, calibration, out-of-distribution tests by confidence, black-box monitors",
    "logits": "temperature scaling, energy and max-logit scores",
    "features": "monitors of inner layers (distances, boxes around activations)",
    "input_gradient": "gradient attacks, ODIN",
}

Answers = NDArray[np.int64]
Factory = Callable[..., Model]


@dataclass(frozen=True)
class Finding:
    """Something the user should know: a sentence, the settings that put it right, and the accuracy they give.

    `settings` are keywords of `rw.evaluate`: `rw.evaluate(model, data, **finding.settings)`.
    """

    text: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    accuracy: float | None = None


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

    `findings` is empty where no setting is wrong, `class_order` is set where it was. `at_chance` is True where the
    model is no better than chance (see `compare_with_chance`), and nothing was found that helps.
    """

    model: str
    describe: Mapping[str, Any]
    classes: int
    data: str
    data_size: tuple[int, int]
    sample: int
    of: int
    accuracy: float
    interval: tuple[float, float]
    majority: float
    mean_confidence: float
    seconds_per_image: float
    capabilities: frozenset[str]
    findings: tuple[Finding, ...] = ()
    class_order: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    at_chance: bool = False

    @property
    def ok(self) -> bool:
        """True where nothing wrong was found."""
        return not self.findings and not self.at_chance

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The report for people, line by line; findings last."""
        kind = f" ({self.describe['kind']})" if "kind" in self.describe else ""
        lines = [f"model {self.model}{kind}: {self.classes} classes"]
        lines += [
            f"  {key}: {self.describe[key]}" for key in ("input", "outputs", "batch", "device") if key in self.describe
        ]
        lines += [f"  note: {note}" for note in (*self.describe.get("notes", ()), *self.notes)]
        low, high = self.interval
        gap = self.mean_confidence - self.accuracy
        side = "above" if gap >= 0 else "below"
        lines += [
            f"data {self.data}: {self.sample} of {self.of} images, {self.data_size[0]}x{self.data_size[1]}",
            f"  accuracy: {self.accuracy:.3f} (95 % interval {low:.3f} to {high:.3f}); "
            f"chance is {1 / self.classes:.3f}, always the commonest class {self.majority:.3f}",
            f"  mean confidence: {self.mean_confidence:.3f} ({abs(gap):.3f} {side} accuracy)",
            f"  speed: {self.seconds_per_image * 1000:.2f} ms per image",
        ]
        for capability, use in USES.items():
            can = capability in self.capabilities
            lines.append(f"  {'can' if can else 'cannot'} be tested with {use}{'' if can else f' (no {capability})'}")
        lines += [f"finding: {finding.text}" for finding in self.findings]
        if self.at_chance:
            lines.append(
                "finding: it is no better than chance, and no other range, colour, layout or class order helps"
            )
        if self.ok:
            lines.append("nothing wrong was found")
        if self.class_order is not None:
            lines += ["class order for `classes=`, one name per line:", *self.class_order]
        return lines


def check_model(build: Factory, dataset: Dataset, *, sample: int = SAMPLE, seed: int = 0) -> CheckReport:
    """Run a model on a sample of the data, and always try the other plausible ways to feed it.

    `build(**settings)` makes the model, with `range`, `colour` or `layout` changed as asked; without settings it is the
    model as the user gave it. A change is a finding only where it is better beyond doubt: exact McNemar test on the
    same images below 0.001, at least two points more accuracy, and at least a tenth of the way from the commonest
    class's share to 1.
    """
    if not len(dataset):
        raise InputError(f"data {dataset.name} holds no images")
    opened, forced = open_given(build)
    model = align(opened, dataset.class_names)
    batch = _draw(dataset, slice(0, sample), seed)
    started = time.perf_counter()
    prediction = model.answer(batch, BATCH)
    seconds = (time.perf_counter() - started) / len(batch)
    answers = prediction.probabilities.argmax(axis=1)
    hits = int((answers == batch.labels).sum())
    majority = float(np.bincount(batch.labels).max() / len(batch))
    interval = _binomial_test(hits, len(batch)).proportion_ci(0.95, "wilson")

    tried = batch if hits >= len(batch) / 2 else batch.take(slice(0, _affordable(len(batch), seconds)))
    findings, order = _search(build, opened, Trial(forced, answers[: len(tried)]), tried, dataset.class_names)
    if order is not None and isinstance(model, AlignedModel):
        order = tuple(order[column] for column in np.argsort(model.order))
    if order is not None:
        findings = [replace(finding, settings={**finding.settings, "classes": order}) for finding in findings]
    findings += _stability(model, batch, prediction)
    notes = [] if len(tried) == len(batch) else [f"it is slow: alternatives were tried on {len(tried)} images"]
    if len(tried) < MIN_IMAGES_PER_CLASS * model.num_classes:
        notes.append("there are too few images per class to look for another class order: raise `sample=`")
    return CheckReport(
        model=model.name,
        describe=getattr(model, "describe", dict)(),
        classes=model.num_classes,
        data=dataset.name,
        data_size=dataset.size,
        sample=len(batch),
        of=len(dataset),
        accuracy=hits / len(batch),
        interval=(float(interval.low), float(interval.high)),
        majority=majority,
        mean_confidence=float(prediction.probabilities.max(axis=1).mean()),
        seconds_per_image=seconds,
        capabilities=model.capabilities,
        findings=tuple(findings),
        class_order=order,
        notes=tuple(notes),
        at_chance=not findings and compare_with_chance(batch.labels, answers, model.num_classes).is_chance,
    )


@dataclass(frozen=True)
class Rehearsal:
    """What a model answered to a sample of undisturbed images before a run: how well, and how steadily.

    `changes_by` is the largest change of a probability where the same images were shown a second time.
    """

    result: ChanceTest
    changes_by: float


def rehearse(model: Model, dataset: Dataset, *, stimulus: str = "", batch: int = BATCH) -> Rehearsal:
    """Ask a model about a sample of the data, twice: what would spoil every figure is known before a run starts.

    A few images are enough for most models; where they do not settle whether it is above chance, or are all of one
    class, up to `SAMPLE` images are shown. A model that changes what its answers are made of while it answers is an
    error.
    """
    size = min(max(BATCH, batch), SAMPLE)
    first = replace(_draw(dataset, slice(0, size), 0), stimulus=stimulus)
    probabilities = model.answer(first, batch).probabilities
    before = model.fingerprint()
    changes_by = float(np.abs(model.answer(first, batch).probabilities - probabilities).max(initial=0.0))
    if model.fingerprint() != before:
        raise InputError(
            f"model {model.name} changes what it reads (a global variable, a file) while it answers, so that a change "
            "of its answers could not be seen: give `version='TEXT'`, and another text with every change"
        )
    answers = probabilities.argmax(axis=1)
    result = compare_with_chance(first.labels, answers, model.num_classes)
    if size < min(SAMPLE, len(dataset)) and not (result.is_above and np.ptp(first.labels)):
        rest = replace(_draw(dataset, slice(size, SAMPLE), 0), stimulus=stimulus)
        answers = np.concatenate([answers, _answers(model, rest, batch)])
        result = compare_with_chance(np.concatenate([first.labels, rest.labels]), answers, model.num_classes)
    return Rehearsal(result, changes_by)


def chance_error(model: Model, dataset: Dataset, result: ChanceTest, build: Factory | None) -> str:
    """The sentence for a model that is no better than chance, with what would make it better where something does."""
    text = (
        f"model {model.name} is right on {result.right} of {result.images} undisturbed images of {dataset.name}, no "
        f"better than chance ({result.chance:.1%} over {model.num_classes} classes)"
    )
    findings = () if build is None else check_model(build, dataset).findings
    helps = [finding.text for finding in findings if finding.accuracy is not None]
    if helps:
        return f"{text}: {'; '.join(helps)}"
    return (
        f"{text}, and no other range, colour order, layout or class order was found that helps: check model and data, "
        "or continue with `accept_chance=True`"
    )


def _affordable(count: int, seconds: float) -> int:
    """How many images each alternative is tried on: halved until it fits the time there is."""
    while count > MIN_SAMPLE and count * seconds * MAX_TRIALS > SECONDS_FOR_ALTERNATIVES:
        count //= 2
    return count


def _search(
    build: Factory, model: Model, given: Trial, batch: Batch, class_names: tuple[str, ...]
) -> tuple[list[Finding], tuple[str, ...] | None]:
    """What works better than the model as given: other settings, another class order, or both."""
    judge = Judge(batch.labels, class_names)
    trials = [given, *_alternatives(build, model, given, batch, judge)]
    best = judge.best([*trials, *(ordered for trial in trials for ordered in judge.orders(trial))])
    accuracy = judge.accuracy(best.answers)
    if best is not given:
        reason = f" (the model has its classes in another order: {best.how})" if best.order else ""
        before = judge.accuracy(given.answers)
        text = f"with {best.spelled} accuracy is {accuracy:.3f} instead of {before:.3f}{reason}"
    elif given.changes:
        text = f"the input shape fits both layouts: with {given.spelled} accuracy is {accuracy:.3f}"
    else:
        return [], None
    return [Finding(text, dict(best.changes), accuracy)], best.order


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
        right, was_right = new == self.labels, old == self.labels
        gained, lost = int((right & ~was_right).sum()), int((was_right & ~right).sum())
        return bool(_binomial_test(gained, gained + lost, 0.5, "greater").pvalue < SIGNIFICANCE)

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


def _draw(dataset: Dataset, which: slice, seed: int) -> Batch:
    """Images drawn evenly: some of an order that makes any part of it an even draw as well."""
    (rng,) = Streams("check", seed).each([dataset.name])
    return dataset.batch([int(row) for row in rng.permutation(len(dataset))[which]])


def _alternatives(build: Factory, model: Model, given: Trial, batch: Batch, judge: Judge) -> Iterator[Trial]:
    """The model under every other combination of range, colour order and layout that it takes.

    Where most answers are right as given, an alternative that is no better on the first images is dropped there.
    """
    if not isinstance(model, Adapter):
        return
    few = slice(0, MIN_SAMPLE)
    screen = Judge(judge.labels[few], judge.class_names)
    target = screen.accuracy(given.answers[few]) if judge.accuracy(given.answers) >= 0.5 else -1.0
    refused: set[str] = set()
    for tried in _combinations(model.preprocess, batch.images.shape[-1]):
        changes = {key: value for key, value in tried.items() if value != getattr(model.preprocess, key)}
        if tried["layout"] in refused:
            continue
        try:
            other = align(build(**{**given.changes, **changes}), judge.class_names)
            answers = _answers(other, batch.take(few))
            if screen.accuracy(answers) > target:
                rest = _answers(other, batch.take(slice(MIN_SAMPLE, None)))
                yield Trial({**given.changes, **changes}, np.concatenate([answers, rest]))
        except RoadworthyError:
            if "layout" in changes:
                refused.add(tried["layout"])


def _combinations(now: Preprocess, data_channels: int) -> Iterator[dict[str, str]]:
    """Range, colour order and layout in every plausible combination but the present one."""
    ranges = [now.range, *(text for text in (*RANGES, CAFFE) if parse_range(text) != parse_range(now.range))]
    colours = [now.colour, *(colour for colour in COLOURS if colour != now.colour)]
    layouts = [now.layout, *(layout for layout in LAYOUTS if layout != now.layout)]
    if now.dtype == "uint8":
        del ranges[1:]
    if now.channels == 1 or data_channels == 1:
        del colours[1:]
    for layout, text, colour in itertools.islice(itertools.product(layouts, ranges, colours), 1, None):
        yield {"range": text, "colour": colour, "layout": layout}


def _answers(model: Model, batch: Batch, size: int = BATCH) -> Answers:
    return np.asarray(model.answer(batch, size).probabilities.argmax(axis=1))


def _stability(model: Model, batch: Batch, prediction: Prediction) -> list[Finding]:
    """Whether the same images get the same answer again, and also beside other images."""
    size = min(BATCH, model.fixed_batch or BATCH, len(batch))
    first = prediction.probabilities[:size]
    again = model.answer(batch.take(slice(0, size)), BATCH).probabilities
    if (change := float(np.abs(again - first).max())) > ANSWER_TOLERANCE:
        return [Finding(f"the same images get other answers when asked again (by {change:.2g}): is dropout active?")]
    few = max(1, size // 8)
    beside = model.answer(batch.take([*range(few)] + [0] * (size - few)), BATCH).probabilities[:few]
    if (change := float(np.abs(beside - first[:few]).max())) > ANSWER_TOLERANCE:
        question = "is batch normalisation in training mode?"
        return [Finding(f"an answer depends on the other images of its batch (by {change:.2g}): {question}")]
    return []


def _binomial_test(*counts: Any) -> Any:
    from scipy.stats import binomtest  # slow to import, so only where it is needed

    return binomtest(*counts)
