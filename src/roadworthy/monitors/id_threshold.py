"""Thresholds from in-distribution scores alone, and what they promise. Higher scores are more in-distribution; a
monitor rejects an image whose score lies strictly below the threshold. No rule here ever sees an outlier.

rule       threshold
share      the one that rejects at most the share `rejected` of the held-out images: no promise for other images
smallest   the smallest held-out score, rounded up to four decimals, and the image that has it is rejected too
conformal  the one that rejects at most `rejected` of all in-distribution images, with probability `confidence`
own        the monitor's own, where its settings say one
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, Decimal
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.random import Streams
from roadworthy.core.validation import check_settings
from roadworthy.monitors.threshold import check_rejected, percent, share_threshold
from roadworthy.statistics import Estimate, proportion_interval

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SHARE, SMALLEST, CONFORMAL, OWN = "share", "smallest", "conformal", "own"
RULES = (SHARE, SMALLEST, CONFORMAL, OWN)
KEPT, BROKEN, NO_PROMISE = "kept", "broken", "none"
LARGEST_ROUNDED = 1e11
"""Scores beyond this have no fourth decimal that could be rounded."""


@dataclass(frozen=True)
class IdRule:
    """How a threshold follows from in-distribution scores.

    rule        share, smallest, conformal or own
    rejected    the share of in-distribution images to reject at most: of rules share and conformal; of rule own, the
                one that the parts of a combination have their thresholds from
    confidence  how sure the promise of rule conformal is: 1 - delta
    per_class   a threshold for each predicted class; not of rule own

    >>> IdRule("conformal", rejected=0.1)
    IdRule(rule='conformal', rejected=0.1, confidence=0.95, per_class=False)
    """

    rule: str = SHARE
    rejected: float = 0.05
    confidence: float = 0.95
    per_class: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UnknownName("rule for a threshold", str(self.rule), RULES)
        check_rejected(self.rejected)
        if not 0 < self.confidence < 1:
            raise InputError(f"the confidence of a threshold lies between 0 and 1, not {self.confidence!r}")
        if self.rule == CONFORMAL and self.rejected == 0:
            raise InputError("rule conformal cannot promise that no image is rejected: give `rejected` above 0")
        if self.rule == SMALLEST and self.rejected != IdRule.rejected:
            raise InputError(f"rule {self.rule} does not use `rejected`: leave it out, or use rule share")
        if self.rule != CONFORMAL and self.confidence != IdRule.confidence:
            raise InputError(f"rule {self.rule} does not use `confidence`: leave it out, or use rule conformal")
        if self.rule == OWN and self.per_class:
            raise InputError("rule own has one threshold for all classes: leave out `per_class`, or use rule share")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The rule that a mapping in a study file describes; an unknown or wrong setting is an `InputError`."""
        for name in settings:
            if name not in cls.__dataclass_fields__:
                raise UnknownName("setting of a threshold", str(name), cls.__dataclass_fields__)
        check_settings(cls, settings, "threshold setting")
        return cls(**settings)

    @property
    def promises(self) -> bool:
        """Whether the rule says anything of images that it has not seen."""
        return self.rule == CONFORMAL


@dataclass(frozen=True)
class IdThreshold:
    """A threshold from in-distribution scores: `reject` says which images lie below it.

    threshold  the score strictly below which an image is rejected, -inf where none ever is; in a threshold per class,
               that of a class which the held-out images do not show
    images     how many images it was found on;  objects: how many independent objects these show; in a conformal
               threshold per class, those whose drawn image has that predicted class
    achieved   the share of these images that it rejects
    rank       of rule conformal: the threshold is the rank-th smallest score of one image per object; None where
               nothing is promised
    reason     why a promise cannot be made, the share asked for cannot be reached, the threshold is found on a part of
               the images, or their mix of classes is that of a limit; empty otherwise
    classes    the thresholds by predicted class, where the rule asks for one each

    >>> threshold = id_threshold(np.arange(100.0), np.arange(100), IdRule("share", rejected=0.05))
    >>> threshold.threshold, threshold.achieved, threshold.reject([4.9, 5.0])
    (5.0, 0.05, array([ True, False]))
    """

    rule: IdRule
    threshold: float
    images: int
    objects: int
    achieved: float
    rank: int | None = None
    reason: str = ""
    classes: Mapping[int, IdThreshold] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def by_class(self) -> Mapping[int, float]:
        """The threshold of each predicted class that has one; empty unless the rule is per class."""
        return {label: part.threshold for label, part in self.classes.items()}

    @property
    def promised(self) -> bool:
        """Whether it makes a promise for images that it has not seen; a threshold per class makes one by class."""
        return self.rank is not None

    def thresholds(self, images: int, predictions: ArrayLike | None = None) -> Floats:
        """The threshold of each of so many images, (N,), by their predicted classes (N,) where the rule asks for it."""
        thresholds = np.full(images, self.threshold)
        if self.rule.per_class:
            labels = _checked_predictions(predictions, images)
            for label, threshold in self.by_class.items():
                thresholds[labels == label] = threshold
        return thresholds

    def reject(self, scores: ArrayLike, predictions: ArrayLike | None = None) -> NDArray[np.bool_]:
        """(N,): True where a score (N,) lies strictly below the threshold; predicted classes (N,) for one per class."""
        values = _checked_scores(scores)
        return values < self.thresholds(len(values), predictions)

    def sentence(self) -> str:
        """What the threshold does, with a monitor as the subject."""
        asked, at = percent(self.rule.rejected), f"below the score {self.threshold:.6g}"
        if self.rule.per_class:
            at = f"below a score for each of {len(self.classes)} predicted classes"
        if self.rule.rule == OWN:
            claim = f"rejects {at}, its own threshold"
        elif self.rule.rule == SMALLEST:
            claim = f"rejects {at}, the smallest one of in-distribution images rounded up to four decimals"
        elif self.rule.rule == SHARE:
            claim = f"rejects {at}, asked for {asked} of in-distribution images"
        elif self.promised or self.rule.per_class:
            by_class = " of each class by itself" if self.rule.per_class else ""
            sure = f"with {percent(self.rule.confidence)} confidence"
            claim = f"rejects {at}, at most {asked} of in-distribution images{by_class} {sure}"
        else:
            claim = "rejects nothing and promises nothing"
        counts = f"it rejects {percent(self.achieved)} of {self.images:,} held-out images of {self.objects:,} objects"
        return f"{claim}; {counts}" + (f"; {self.reason}" if self.reason else "")

    def record(self) -> dict[str, Any]:
        """The threshold as plain values for a JSON file; `of_record` reads it back."""
        plain = {name: getattr(self, name) for name in ("images", "objects", "achieved", "rank", "reason")}
        threshold = self.threshold if math.isfinite(self.threshold) else str(self.threshold)
        classes = {str(label): part.record() for label, part in self.classes.items()}
        return {"rule": asdict(self.rule), "threshold": threshold, **plain, "classes": classes}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """What `record` wrote; a `KeyError`, `TypeError`, `ValueError` or `InputError` where it is not that."""
        values = {name: record[name] for name in ("images", "objects", "achieved", "rank", "reason")}
        classes = {int(label): IdThreshold.of_record(part) for label, part in record["classes"].items()}
        threshold = float(record["threshold"])
        if math.isnan(threshold):
            raise ValueError("its threshold is NaN")
        return cls(IdRule.of(record["rule"]), threshold, classes=classes, **values)


def id_threshold(
    scores: ArrayLike,
    groups: ArrayLike,
    rule: IdRule,
    *,
    predictions: ArrayLike | None = None,
    own: float | None = None,
    seed: int = 0,
) -> IdThreshold:
    """The threshold by a rule from scores (n,) of held-out in-distribution images, whose objects are the groups (n,).

    predictions  predicted classes (n,), for a threshold per class;  own: the monitor's own threshold, for rule own
    seed         of the draw of one image per object, which rule conformal reads

    Rule conformal: with one random image from each of n objects and the k-th smallest of their scores as threshold, the
    chance to reject a random image of a new object follows Beta(k, n + 1 - k), or lies below that where scores are
    tied. k is the largest with P(Beta(k, n + 1 - k) > rejected) = P(Binomial(n, rejected) < k) <= 1 - confidence. Where
    n objects are too few for k = 1, the threshold is -inf and `reason` says how many are needed.

    Per class, this is done for the images of each predicted class by themselves. Rule conformal draws one image per
    object first, whatever its class, so that its promise is about a random image of a random new object where the model
    predicts that class: an object with many images counts no more than another. A class with too few of them has the
    threshold of all classes together, which promises nothing for it: `reason` names such classes.

    >>> threshold = id_threshold(np.arange(100.0), np.arange(100), IdRule("conformal"))
    >>> threshold.threshold, threshold.rank
    (1.0, 2)
    >>> id_threshold(np.arange(50.0), np.arange(50), IdRule("conformal")).reason
    'a promise of at most 5 % with 95 % confidence needs 59 objects, not 50: none of them is rejected'
    """
    values, objects = _checked_rows(scores, groups)
    if not len(values):
        raise InputError("a threshold needs in-distribution images: give at least one")
    frames = random_frames(objects, seed)
    whole = _one_threshold(values, values[frames], len(frames), replace(rule, per_class=False), own)
    if not rule.per_class:
        return whole
    labels, classes = _checked_predictions(predictions, len(values)), {}
    for label in np.unique(labels).tolist():
        rows = labels == label
        drawn = values[frames[rows[frames]]]
        number = len(drawn) if rule.promises else len(np.unique(objects[rows]))
        part = _one_threshold(values[rows], drawn, number, whole.rule, own)
        classes[int(label)] = _fallen_back(part, whole, values[rows]) if _shortage(part) else part
    above = replace(whole, rule=rule, rank=None, reason=_class_reason(whole, classes), classes=classes)
    return replace(above, achieved=float(above.reject(values, labels).mean()))


def _one_threshold(scores: Floats, drawn: Floats, objects: int, rule: IdRule, own: float | None) -> IdThreshold:
    """The threshold on these scores (n,) of so many objects, whatever their predicted classes.

    drawn  the scores (m,) of one random image per object, which rule conformal reads
    """
    rank = None
    if rule.rule == OWN:
        if own is None or math.isnan(own):
            raise InputError("the monitor has no threshold of its own: use rule share, smallest or conformal")
        threshold = float(own)
    elif rule.rule == SMALLEST:
        threshold = math.nextafter(_rounded_up(float(scores.min())), math.inf)
    elif rule.rule == CONFORMAL:
        rank = conformal_rank(objects, rule.rejected, rule.confidence) or None
        threshold = -math.inf if rank is None else float(np.sort(drawn)[rank - 1])
    else:
        threshold = float(np.sort(scores)[_allowed(rule.rejected, len(scores))])
    rejected = int((scores < threshold).sum())
    result = IdThreshold(rule, threshold, len(scores), objects, rejected / len(scores), rank)
    if shortage := _shortage(result):
        return replace(result, reason=f"{shortage}: none of them is rejected")
    return replace(result, reason=_tie_reason(rule, rejected, len(scores)))


def conformal_rank(objects: int, rejected: float, confidence: float) -> int:
    """The largest k with P(Binomial(objects, rejected) < k) <= 1 - confidence; 0 where there is none.

    >>> [conformal_rank(n, 0.05, 0.95) for n in (58, 59, 92, 93, 1000)]
    [0, 1, 1, 2, 39]
    """
    chances = bdtr(np.arange(objects, dtype=np.float64), objects, rejected)
    return int(np.searchsorted(chances, 1 - confidence, side="right"))


def needed_objects(rejected: float, confidence: float) -> int:
    """The smallest number of objects for which a conformal promise can be made: (1 - rejected)^n <= 1 - confidence.

    >>> needed_objects(0.05, 0.95), needed_objects(0.01, 0.99)
    (59, 459)
    """
    ratio = math.log1p(-confidence) / math.log1p(-rejected)
    return max(1, math.ceil(ratio - 1e-9))


def random_frames(groups: ArrayLike, seed: int = 0) -> Integers:
    """The index of one random image of each object (its group), in the order of the images: (objects,).

    The draw belongs to the seed, the name of the object and the order in which its images are given; it is the same for
    every monitor.

    >>> random_frames(["sign 1", "sign 2", "sign 1", "sign 3"])[1:]
    array([2, 3])
    """
    names, inverse, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    by_group = np.argsort(inverse, kind="stable")
    first = np.cumsum(counts) - counts
    several = np.flatnonzero(counts > 1)
    generators = Streams("one image per object", seed).each(map(str, names[several].tolist()))
    steps = np.zeros(len(names), np.int64)
    steps[several] = [rng.integers(count) for rng, count in zip(generators, counts[several].tolist(), strict=True)]
    return np.sort(by_group[first + steps])


@dataclass(frozen=True)
class Promise:
    """What a threshold promised, beside what it does on other in-distribution images.

    alpha, delta  at most the share alpha is rejected, but for a chance of delta; NaN where nothing is promised
    measured      the share of images rejected: of rule conformal the mean over objects of the share of their images,
                  since it speaks of a random image of a random object; of other rules the share of all images
    held          None where nothing is promised; False where even the lower bound lies above alpha; otherwise True: the
                  images do not contradict it
    proven        whether even the upper bound is at most alpha
    """

    alpha: float
    delta: float
    measured: Estimate
    held: bool | None
    proven: bool

    @property
    def word(self) -> str:
        """kept, broken or none, as a table says it."""
        return NO_PROMISE if self.held is None else KEPT if self.held else BROKEN

    def sentence(self) -> str:
        """The promise and what was measured."""
        share = self.measured
        bounds = f"{percent(share.value)} rejected ({percent(share.lo)} to {percent(share.hi)})"
        if share.missing:
            return f"nothing was measured: {share.reason}"
        if self.held is None:
            return f"{bounds}; nothing was promised"
        end = "which fits it" if self.held else "which contradicts it"
        end = "which proves it" if self.proven else end
        return f"promised: at most {percent(self.alpha)}; measured: {bounds}, {end}"


def promise_kept(
    threshold: IdThreshold,
    scores: ArrayLike,
    groups: ArrayLike,
    *,
    predictions: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Promise:
    """What a threshold does on scores (n,) of in-distribution images that it was not found on, of objects (n,).

    A measured share above alpha does not contradict the promise by itself: a finite set shows such a share by chance.
    It is contradicted where the lower bound of the share lies above alpha. Of a threshold per class the share is that
    of all classes together, of which nothing is promised: see `class_promises`.

    >>> threshold = id_threshold(np.arange(100.0), np.arange(100), IdRule("conformal"))
    >>> promise_kept(threshold, np.arange(100.0), np.arange(100)).word
    'kept'
    >>> promise_kept(threshold, np.full(100, -1.0), np.arange(100)).word
    'broken'
    """
    values, objects = _checked_rows(scores, groups)
    rejected = threshold.reject(values, predictions).astype(np.float64)
    if threshold.rule.promises and len(values):
        names, inverse, counts = np.unique(objects, return_inverse=True, return_counts=True)
        shares = np.minimum(np.bincount(inverse, rejected, len(names)) / counts, 1.0)
        measured = proportion_interval(shares, np.arange(len(names)), confidence).over(len(values), len(names))
    else:
        measured = proportion_interval(rejected, objects, confidence)
    if not threshold.promised or measured.missing:
        return Promise(math.nan, math.nan, measured, None, False)
    alpha = threshold.rule.rejected
    held, proven = not measured.lo > alpha, measured.hi <= alpha
    return Promise(alpha, 1 - threshold.rule.confidence, measured, held, proven)


def class_promises(
    threshold: IdThreshold,
    scores: ArrayLike,
    groups: ArrayLike,
    predictions: ArrayLike,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[int, Promise]:
    """The same by predicted class, of a threshold per class; a class that the images do not show has no measured value.

    A promise is measured on one random image per object, drawn with `seed`, where the model predicts that class: what
    rule conformal speaks of.

    >>> threshold = id_threshold([1.0, 2.0], ["a", "b"], IdRule("smallest", per_class=True), predictions=[0, 1])
    >>> {label: promise.word for label, promise in class_promises(threshold, [3.0], ["c"], [1]).items()}
    {0: 'none', 1: 'none'}
    """
    values, objects = _checked_rows(scores, groups)
    labels = _checked_predictions(predictions, len(values))
    if threshold.rule.promises and len(values):
        frames = random_frames(objects, seed)
        values, objects, labels = values[frames], objects[frames], labels[frames]
    return {
        label: promise_kept(part, values[labels == label], objects[labels == label], confidence=confidence)
        for label, part in threshold.classes.items()
    }


def _allowed(rejected: float, images: int) -> int:
    """How many of so many images may be rejected, counted as `share_threshold` does."""
    return int(share_threshold(np.arange(images), rejected))


def _shortage(threshold: IdThreshold) -> str:
    """The clause that says that the images or objects are too few for the rule; empty where they are enough."""
    rule = threshold.rule
    if rule.promises and not threshold.promised:
        promise = f"a promise of at most {percent(rule.rejected)} with {percent(rule.confidence)} confidence"
        return f"{promise} needs {needed_objects(rule.rejected, rule.confidence):,} objects, not {threshold.objects}"
    if rule.rule == SHARE and rule.rejected > 0 and _allowed(rule.rejected, threshold.images) == 0:
        least = math.ceil(1 / rule.rejected - 1e-9)
        return f"a share of {percent(rule.rejected)} needs {least:,} images, not {threshold.images}"
    return ""


def _tie_reason(rule: IdRule, rejected: int, images: int) -> str:
    """Why rule share rejects fewer images than the share allows; empty where it does not."""
    if rule.rule != SHARE or rejected == _allowed(rule.rejected, images):
        return ""
    shares = f"{percent(rejected / images)} are rejected and not {percent(rule.rejected)}"
    return f"images of equal score are rejected together, so that {shares}"


def _fallen_back(part: IdThreshold, whole: IdThreshold, scores: Floats) -> IdThreshold:
    """A class with the threshold of all classes together, and why; it promises nothing."""
    reason = f"{_shortage(part)}: the class has the threshold of all classes together"
    achieved = float((scores < whole.threshold).mean())
    return replace(part, threshold=whole.threshold, achieved=achieved, rank=None, reason=reason)


def _class_reason(whole: IdThreshold, classes: Mapping[int, IdThreshold]) -> str:
    """What a reader must know of a threshold per class: which classes have none of their own."""
    lacking = [str(label) for label, part in classes.items() if _shortage(part)]
    if not lacking:
        return ""
    word = f"class {lacking[0]} has" if len(lacking) == 1 else f"classes {', '.join(lacking)} have"
    unit = "objects" if whole.rule.promises else "images"
    ending = f", where {whole.reason}" if whole.reason else ""
    return f"{word} too few {unit} and the threshold of all classes together{ending}"


def _rounded_up(score: float) -> float:
    """A score rounded up to four decimals, as it is written: 0.0237 stays, 0.02371 becomes 0.0238."""
    if not abs(score) < LARGEST_ROUNDED:
        return score
    return float(Decimal(repr(score)).quantize(Decimal("0.0001"), ROUND_CEILING))


def _checked_scores(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, np.float64)
    if values.ndim != 1:
        raise InputError(f"scores must be one number per image, (N,), not {values.shape}")
    undefined = int(np.isnan(values).sum())
    if undefined:
        raise InputError(f"{undefined} of {len(values)} scores are NaN: a monitor must score every image")
    return values


def _checked_rows(scores: ArrayLike, groups: ArrayLike | Iterable[Any]) -> tuple[Floats, NDArray[Any]]:
    """Scores (n,) and the objects (n,) of their images."""
    values, objects = _checked_scores(scores), np.asarray(groups)
    if objects.shape != values.shape:
        raise InputError(f"there must be an object for each of {len(values)} scores, not {objects.shape}")
    return values, objects


def _checked_predictions(predictions: ArrayLike | None, images: int) -> NDArray[Any]:
    if predictions is None:
        raise InputError("a threshold per class needs the predicted class of each image: give `predictions`")
    labels = np.asarray(predictions)
    if labels.shape != (images,) or labels.dtype.kind not in "iu":
        raise InputError(
            f"`predictions` must be a class index for each of {images} images, not {labels.dtype} {labels.shape}"
        )
    return labels
