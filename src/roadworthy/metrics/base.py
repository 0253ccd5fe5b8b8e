"""Metric: one object per metric, with all that tables, criteria and the report need to know of it.

A metric of answers is one decorated function, in a file of its own or beside others of its family:

    @metric(label="Worst recall", sentence="The lowest recall of any class.", higher_is_better=True)
    def worst_recall(answers, weights):        # weights (B, n) to values (B,)
        ...

    @mean_metric(label="Error", sentence="Share of wrong answers.", higher_is_better=False)
    def error(answers):                        # a value per image (n,), of which the metric is the mean
        return 1.0 - answers.correct

It is then called as `error(answers, weights=None)`. Without weights, or with weights (n,), it gives a float; with
weights (B, n), one row per bootstrap resample, it gives (B,). Weight w counts an image w times. A value that does not
exist is NaN, and `error.reason(answers)` says why.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, fields, replace
from types import EllipsisType
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import UnknownName, is_the_machine_s
from roadworthy.core.registry import NameTaken, RegistrationError, Registry
from roadworthy.metrics.answers import TOLERANCE, answers_of
from roadworthy.metrics.ranking import RankedImages, Ranking
from roadworthy.metrics.weighting import Floats, Weights, weight_rows, weighted_mean

Range = tuple[float, float]
OfRows = Callable[..., Floats]
"""From answers and weights (B, n), or from what the metric `shares`, to values (B,)."""
OfImages = Callable[[Any], Floats]
"""From answers to a value per image (n,)."""
DROP, DISCOUNTED, EXPECTED = "_drop", "_discounted", "expected_"
SHARE: Range = (0.0, 1.0)
ROUNDING = 5 * TOLERANCE
"""How far outside its range a value may lie by rounding, as a share of the range."""


class AnswerRows(Protocol):
    """What every metric can rely on of the answers it is given: how many images and classes they are about.

    `Answers` of a classifier and `BoxAnswers` of a localizer have it; the rest is between a metric and its answers.
    """

    @property
    def num_classes(self) -> int:
        """The number of classes K; 1 where there are none to choose from."""

    def __len__(self) -> int: ...


class MeasuresRows(Protocol):
    """What has a value for each row of weights (B, n): every metric of answers, and the weighted confusion."""

    def of_rows(self, answers: Any, weights: Weights) -> Floats:
        """The values (B,) for weights (B, n) that need no check."""


class MetricValues(NamedTuple):
    """The values (B,) of a metric, NaN where it has none, and why that is; empty where nothing is to be said."""

    values: Floats
    reason: str = ""


class Ceiling(NamedTuple):
    """A value that a metric cannot exceed for some models, however bad they are in what it should show.

    A criterion `at_most` this value, or more, cannot fail them: `of` says which models, `instead` which metric can.
    """

    value: float
    of: str
    instead: str


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric: its name in tables and criteria, what it says, and how it is measured, bounded and written.

    label              what the report calls it;  sentence: what it says, in one or two sentences
    higher_is_better   None where neither is better in itself
    range              its lowest and highest value, or a function of the number of classes that gives them
    ceiling            where it is blind to some models, if anywhere
    percent            whether people read it in percent, otherwise with so many `digits`
    infinite           what an infinite value says
    of_answers         from answers and weights (B, n) to (B,); None for a metric of something else
    of_images          from answers to a value per image (n,), where the metric is the mean of these
    shares             a function of answers and weights whose result `of_answers` is given in their place: metrics that
                       share one are computed from a single result
    why_missing        from answers to the reason why there is no value, or None
    ranked             from a ranking to the figure with what single images add to it, where the metric is a figure of
                       a ranking (`answers.ranking`, of answers): its bounds are then those of `statistics.ranked`
    ties               from answers to the share of pairs that their scores cannot put in order; of metrics of a ranking
    mean_over_objects  whether its bounds are those of a mean over objects, which hold whatever the distribution;
                       otherwise, unless it is `ranked`, objects are resampled
    proportion         whether each image counts 0 or 1
    multiple_of        the metric of which it is `factor(number of classes)` times
    drop_of            the metric of which it is the drop
    """

    name: str
    _: KW_ONLY
    label: str
    sentence: str
    higher_is_better: bool | None
    range: Range | Callable[[int], Range] = SHARE
    ceiling: Ceiling | None = None
    percent: bool = False
    digits: int = 3
    infinite: str = "infinite"
    of_answers: OfRows | None = None
    of_images: OfImages | None = None
    shares: Callable[[Any, Weights], Any] | None = None
    why_missing: Callable[[Any], str | None] | None = None
    ranked: Callable[[Ranking], RankedImages] | None = None
    ties: Callable[[Any], float] | None = None
    mean_over_objects: bool = False
    proportion: bool = False
    multiple_of: Metric | None = None
    factor: Callable[[int], float] | None = None
    drop_of: Metric | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"a metric's name is lower-case letters, digits and underscores, not {self.name!r}")
        low, high = self.limits(num_classes=2)
        if not low < high:
            raise ValueError(f"metric {self.name}: the range {low} to {high} must go from low to high")
        if self.mean_over_objects and self.is_of_answers and not (self.of_images and math.isfinite(high - low)):
            raise ValueError(f"metric {self.name}: only a mean over images with a finite range has `mean_over_objects`")

    @property
    def is_of_answers(self) -> bool:
        """Whether it can be computed from answers."""
        return self.of_answers is not None or self.of_images is not None

    def limits(self, num_classes: int) -> Range:
        """The lowest and the highest value it can have.

        >>> Metric("cost", label="Cost", sentence="", higher_is_better=False, range=lambda k: (0, 2 / k)).limits(10)
        (0, 0.2)
        """
        return self.range if isinstance(self.range, tuple) else self.range(num_classes)

    def room(self, num_classes: int) -> float:
        """How far two values can lie apart, where that bounds what one more object can do to their difference.

        Infinite for a mean over images whose range is so wide that it is not bounded by it, such as NLL.
        """
        low, high = self.limits(num_classes)
        return math.inf if self.of_images is not None and not self.mean_over_objects else high - low

    @overload
    def __call__(self, answers: AnswerRows, weights: None = None) -> float: ...
    @overload
    def __call__(self, answers: AnswerRows, weights: NDArray[np.floating]) -> float | Floats: ...
    @overload
    def __call__(self, probabilities: ArrayLike, labels: ArrayLike, /) -> float: ...
    def __call__(self, answers: Any, weights: Any = None) -> float | Floats:
        """The value without weights or with weights (n,); the values (B,) with weights (B, n).

        In place of answers it takes probabilities (n, K) and labels (n,): `accuracy(probabilities, labels)`.
        """
        if hasattr(answers, "num_classes"):
            return call_on_rows(self.of_rows, answers, weights)
        return call_on_rows(self.of_rows, answers_of(answers, weights), None)

    def of_rows(self, answers: AnswerRows, weights: Weights, shared: dict[Any, Any] | None = None) -> Floats:
        """The values (B,) for weights (B, n) that need no check, with at least one image.

        `shared` holds what metrics share for these answers and weights, and is filled as they are computed.
        """
        if self.of_images is not None:
            return weighted_mean(weights, self.per_image(answers))
        if self.of_answers is None:
            raise ValueError(f"metric {self.name!r} is not computed from answers")
        if self.shares is None:
            return self.of_answers(answers, weights)
        shared = {} if shared is None else shared
        if self.shares not in shared:
            shared[self.shares] = self.shares(answers, weights)
        return self.of_answers(shared[self.shares])

    def per_image(self, answers: AnswerRows) -> Floats:
        """The values (n,) whose mean is the metric; one that is not a mean over images is a `ValueError`.

        Cut to the metric's range, which a value can leave only where probabilities are rounded.
        """
        if self.of_images is None:
            raise ValueError(f"metric {self.name!r} is not a mean over images")
        return self._cut(self.of_images(answers), answers)

    def _cut(self, by_image: Floats, answers: AnswerRows) -> Floats:
        return np.clip(by_image, *self.limits(answers.num_classes))

    def reason(self, answers: AnswerRows) -> str | None:
        """Why it has no value for these answers; None where it has one."""
        if len(answers) == 0:
            return "no images"
        return self.why_missing(answers) if self.why_missing else None

    def measure(
        self, answers: AnswerRows, weights: Weights | None = None, shared: dict[Any, Any] | None = None
    ) -> MetricValues:
        """The values (B,), as `of_rows` gives them, of a metric that may be anybody's.

        Where its code raises, or gives something else than (B,) finite numbers within its range, the values are NaN,
        and the reason says so in a sentence.
        """
        rows = np.ones((1, len(answers))) if weights is None else weights
        nothing = np.full(len(rows), np.nan)
        try:
            missing = self.reason(answers)
            if missing:
                return MetricValues(nothing, missing)
            values, problem = self._checked_rows(answers, rows, shared)
            if weights is None and np.isnan(values).any():
                problem = problem or f"the metric {self.name} gives no number here"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if is_the_machine_s(error):
                raise
            problem = f"the metric {self.name} raised {type(error).__name__}: {error}"
        return MetricValues(nothing, " ".join(problem.split())) if problem else MetricValues(values)

    def _checked_rows(self, answers: AnswerRows, rows: Weights, shared: dict[Any, Any] | None) -> tuple[Floats, str]:
        """The values (B,) for weights (B, n), and what is wrong with them or with those of single images, if anything.

        What somebody's function gave is looked at before it is computed with.
        """
        of_images = self.of_images is not None
        given = self.of_images(answers) if self.of_images is not None else self.of_rows(answers, rows, shared)
        count, which = (len(answers), "one per image") if of_images else (len(rows), "one per row of weights")
        numbers, form = _numbers(count), _form(given)
        if form != numbers:
            return np.full(len(rows), np.nan), f"the metric {self.name} must give {numbers}, {which}, but gave {form}"
        as_numbers = np.asarray(given, dtype=np.float64)
        if not of_images:
            return as_numbers, self._problem(as_numbers, answers)
        if self.proportion and not np.isin(as_numbers, (0.0, 1.0)).all():
            return as_numbers, f"the metric {self.name} counts images 0 or 1, but gave something between"
        values = weighted_mean(rows, self._cut(given, answers))
        return values, self._problem(np.concatenate([values, as_numbers]), answers)

    def _problem(self, values: Floats, answers: AnswerRows) -> str:
        """Which of the values lies outside the metric's range; an empty text where none does."""
        known = values[~np.isnan(values)]
        low, high = self.limits(answers.num_classes)
        room = ROUNDING * (high - low) if math.isfinite(high - low) else ROUNDING
        outside = known[~((known >= low - room) & (known <= high + room)) | np.isinf(known)]
        if not outside.size:
            return ""
        return f"the metric {self.name} gave {outside[0]:g}, outside its range {low:g} to {high:g}"

    def drop(self) -> Metric:
        """The metric that says how much worse this one is than on undisturbed data: positive is worse.

        Of a metric in [a, b] it lies in [a - b, b - a].
        """

        def room(num_classes: int) -> Range:
            low, high = self.limits(num_classes)
            return low - high, high - low

        label = self.label if self.label[:2].isupper() else self.label[:1].lower() + self.label[1:]
        return Metric(
            f"{self.name}{DROP}",
            label=f"{'Drop' if self.higher_is_better else 'Rise'} of {label}",
            sentence="How much worse than on undisturbed data: positive is worse.",
            higher_is_better=False,
            range=room,
            percent=self.percent,
            mean_over_objects=self.mean_over_objects,
            drop_of=self,
        )

    def discounted(self) -> Metric:
        """The metric times scenario coverage: it cannot be larger than this one."""
        return replace(
            self,
            name=f"{self.name}{DISCOUNTED}",
            label=f"{self.label} times coverage",
            sentence=f"{self.label} times scenario coverage: what was not shown counts as failed.",
            of_answers=None,
            of_images=None,
            shares=None,
            why_missing=None,
            ranked=None,
            ties=None,
            proportion=False,
            multiple_of=None,
            factor=None,
        )

    def expected(self) -> Metric:
        """The expectation of this metric over situations, by how often they occur: it lies where this one does.

        >>> METRICS.get("accuracy").expected().name
        'expected_accuracy'
        """
        return replace(
            self.discounted(),
            name=f"{EXPECTED}{self.name}",
            label=f"{self.label}, expected",
            sentence=f"{self.label} over the expected situations, each counted by how often it occurs.",
        )


def _form(given: Any) -> str:
    """What somebody's function gave, in words: `140 numbers`, `a single number`, `text`, `None`.

    >>> [_form(given) for given in (np.ones(3), [True], 0.5, None, ["0.5"], np.ones((2, 3)))]
    ['3 numbers', '1 number', 'a single number', 'None', 'text', 'an array (2, 3)']
    """
    if given is None:
        return "None"
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "biufUS":
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        return f"something else: {type(given).__name__}"
    if array.dtype.kind in "US":
        return "text"
    if array.ndim == 0:
        return "a single number"
    if array.ndim > 1:
        return f"an array {array.shape}"
    return _numbers(len(array))


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"


def call_on_rows(
    of_rows: Callable[[Any, Weights], Floats], answers: AnswerRows, weights: NDArray[np.floating] | None
) -> float | Floats:
    """A function of weights (B, n), called without weights or with (n,): a float; with (B, n): (B,)."""
    rows = weight_rows(weights, len(answers))
    values = of_rows(answers, rows) if len(answers) else np.full(len(rows), np.nan)
    return values if np.ndim(weights) == 2 else float(values[0])  # type: ignore[arg-type]


TAKEN: dict[str, str] = {"recall": "classification gives the recall of a class this name"}
"""Names that no further metric of answers can have, each with the reason: it would mean two things in one run."""


def _check_metric(name: str, metric: Any) -> None:
    """Raise a `RegistrationError` where a metric cannot be registered under a name."""
    if not isinstance(metric, Metric):
        raise RegistrationError(f"the metric {name!r} must be a Metric: decorate its function with @metric")
    if metric.name != name:
        raise RegistrationError(f"the metric {metric.name!r} cannot be registered under another name, {name!r}")
    if name.endswith((DROP, DISCOUNTED)):
        raise RegistrationError(f"metric {name!r}: names that end in {DROP} or {DISCOUNTED} belong to derived metrics")
    if name in TAKEN and name not in METRICS:
        raise NameTaken(f"a metric cannot be called {name!r}, since {TAKEN[name]}: choose another name")


METRICS: Registry[Metric] = Registry("metric", _check_metric)
"""Every metric of answers by name; third parties add theirs under the entry point group `roadworthy.metrics`.

Which of them are in a table is for its protocol and the study to say: one that is only registered changes none.
"""


def metric(
    function: Any = None,
    /,
    *,
    label: str = "",
    higher_is_better: bool | EllipsisType | None = ...,
    name: str = "",
    sentence: str = "",
    **details: Any,
) -> Callable[[OfRows], Metric]:
    """Decorator that makes a function of answers and weights (B, n) the registered metric of its name.

    `label` and `higher_is_better` must be given. The sentence is the first paragraph of its docstring unless given;
    `details` are further fields of `Metric`. What cannot be one is a `RegistrationError`.
    """
    words = {"label": label, "higher_is_better": higher_is_better, **details}
    _check_details("metric", function, words, name=name, sentence=sentence)

    def register(function: OfRows) -> Metric:
        return _registered(function, name, sentence, **words)

    return register


def mean_metric(
    function: Any = None,
    /,
    *,
    label: str = "",
    higher_is_better: bool | EllipsisType | None = ...,
    name: str = "",
    sentence: str = "",
    **details: Any,
) -> Callable[[OfImages], Metric]:
    """Decorator that makes a function of answers to a value per image (n,) the registered metric that is their mean.

    It takes what `metric` takes. Its bounds are those of a mean over objects, unless its range is infinite or
    `mean_over_objects=False` says so.
    """
    words = {"label": label, "higher_is_better": higher_is_better, **details}
    _check_details("mean_metric", function, words, name=name, sentence=sentence)
    words = {"mean_over_objects": _is_finite(details.get("range", SHARE)), **words}

    def register(function: OfImages) -> Metric:
        return _registered(function, name, sentence, of_images=function, **words)

    return register


def _check_details(decorator: str, function: Any, details: dict[str, Any], **texts: Any) -> None:
    """Refuse what a decorator cannot be given: a function at once, an unknown setting, a value of another type."""
    example = f"@{decorator}(label='Error', higher_is_better=False)"
    if function is not None or not details["label"] or details["higher_is_better"] is ...:
        raise RegistrationError(f"@{decorator} needs a label and higher_is_better: write {example}")
    known = {field.name for field in fields(Metric)}
    for setting, value in {**details, **texts}.items():
        if setting not in known:
            raise RegistrationError(f"@{decorator}: {UnknownName('setting', setting, known)}")
        if expected := _expected(setting, value):
            raise RegistrationError(f"@{decorator}: {setting} must be {expected}, not {value!r}")


def _expected(setting: str, value: Any) -> str:
    """What a setting of a metric must be; empty where the value is that."""
    if setting in ("label", "sentence", "name", "infinite"):
        return "" if isinstance(value, str) else "text"
    if setting == "higher_is_better":
        return "" if value is None or isinstance(value, bool) else "True, False or None"
    if setting in ("percent", "proportion", "mean_over_objects"):
        return "" if isinstance(value, bool) else "True or False"
    if setting == "digits":
        return "" if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else "a whole number"
    if setting in ("shares", "why_missing", "ranked", "ties", "factor"):
        return "" if value is None or callable(value) else "a function"
    if setting == "ceiling":
        return "" if value is None or isinstance(value, Ceiling) else "a Ceiling"
    if setting == "range" and not callable(value):
        is_pair = isinstance(value, tuple) and len(value) == 2
        numbers = is_pair and all(isinstance(end, int | float) and not isinstance(end, bool) for end in value)
        return "" if numbers else "a pair (low, high) of numbers, or a function of the number of classes"
    return ""


def _is_finite(limits: Range | Callable[[int], Range]) -> bool:
    low, high = limits if isinstance(limits, tuple) else limits(2)
    return math.isfinite(high - low)


def _registered(function: Callable[..., Any], name: str, sentence: str, **details: Any) -> Metric:
    name = name or function.__name__
    paragraph = (inspect.getdoc(function) or "").partition("\n\n")[0]
    details = {"of_answers": None if "of_images" in details else function, **details}
    made = Metric(name, sentence=sentence or " ".join(paragraph.split()), **details)
    for attribute in ("__module__", "__qualname__", "__doc__"):
        object.__setattr__(made, attribute, getattr(function, attribute))
    object.__setattr__(made, "__wrapped__", function)
    return METRICS.register(name)(made)


def of_rows(metrics: Iterable[Metric], answers: AnswerRows, weights: Weights) -> dict[str, MetricValues]:
    """Several metrics by name for weights (B, n), each measured; what they share is computed once.

    >>> from roadworthy.metrics import Answers, accuracy, ece
    >>> answers = Answers.from_probabilities([[0.95, 0.05], [1.0, 0.0]], [0, 1])
    >>> {name: result.values.tolist() for name, result in of_rows([ece, accuracy], answers, np.ones((1, 2))).items()}
    {'ece': [0.475], 'accuracy': [0.5]}
    """
    shared: dict[Any, Any] = {}
    return {metric.name: metric.measure(answers, weights, shared) for metric in metrics}
