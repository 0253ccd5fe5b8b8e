"""Metrics as metrics of MAITE: of class answers, and of the box of an image with one object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.types import log_odds
from roadworthy.maite.reading import Detections, best_box, class_of, datum_id, numbers_of, single_box
from roadworthy.metrics.base import Metric as OwnMetric
from roadworthy.metrics.boxes import BOX_METRICS, UNCERTAIN, BoxAnswers
from roadworthy.models.outputs import softmax
from roadworthy.models.preprocess import parse_choice
from roadworthy.statistics.accumulator import Accumulator, check_bounds, estimates
from roadworthy.statistics.estimates import CONFIDENCE, Estimate

if TYPE_CHECKING:
    from maite.protocols import MetricMetadata

OUTPUTS = ("probabilities", "logits")
LOCATING = {metric.name: metric for metric in BOX_METRICS if metric not in UNCERTAIN}
"""The metrics of boxes that need no stated uncertainty, by name."""
Metadata = Mapping[str, object]


class Metric:
    """Metrics of class answers as one metric of MAITE's image classification.

    metrics     names of registered metrics, such as `["accuracy", "ece"]`
    outputs     what models answer: `probabilities` or `logits`
    group       the key of a datum's metadata that names the physical object, `id` where every image shows another one;
                without it there are no bounds
    confidence  of the two-sided bounds

    `compute` gives every metric by name and, with a group, its bounds as `accuracy_lo` and `accuracy_hi`; what does not
    exist is NaN. Neither the order nor the size of batches changes a result.

    >>> metric = Metric("accuracy")
    >>> metric.update([np.array([0.9, 0.1])], [np.array([1, 0])], [{"id": 0}])
    >>> metric.compute()
    {'accuracy': 1.0}
    """

    metric: ClassVar[str] = ""
    """The metric of a class that stands for one."""

    def __init__(
        self,
        metrics: str | Iterable[str],
        *,
        outputs: str = "probabilities",
        group: str | None = None,
        confidence: float = CONFIDENCE,
    ) -> None:
        self._accumulator = Accumulator(metrics, confidence=confidence)
        self.outputs, self.group = parse_choice("outputs", outputs, OUTPUTS), group
        names = ", ".join(metric.name for metric in self._accumulator.metrics)
        self.metadata: MetricMetadata = {"id": f"roadworthy {names}"}

    def reset(self) -> None:
        """Forget all that was given."""
        self._accumulator.reset()

    def update(
        self, pred_batch: Sequence[ArrayLike], target_batch: Sequence[ArrayLike], metadata_batch: Sequence[Metadata], /
    ) -> None:
        """Add a batch of answers (Cl,), true targets (Cl,) and metadata."""
        if not _length(pred_batch, target_batch, metadata_batch):
            return
        batch = zip(pred_batch, target_batch, metadata_batch, strict=True)
        answered = [_scores(answer, target, _what(metadata)) for answer, target, metadata in batch]
        classes = [label for _, label in answered]
        if len({len(scores) for scores, _ in answered}) > 1:
            raise InputError("a batch has answers and targets of one number of classes, and these differ")
        rows = np.stack([scores for scores, _ in answered])
        groups, truth = groups_of(metadata_batch, self.group), np.array(classes)
        if self.outputs != "logits":
            self._accumulator.update(rows, truth, groups)
            return
        probabilities = softmax(rows)
        odds = log_odds(np.asarray(rows, np.float32), probabilities.argmax(axis=1))
        self._accumulator.update(probabilities, truth, groups, log_odds=odds)

    def compute(self) -> dict[str, Any]:
        """Every metric by name, with bounds where there are groups."""
        return numbers(self._accumulator.compute())


class BoxMetric:
    """Metrics of boxes as one metric of MAITE's object detection, for images with one object each.

    metrics     of `iou`, `mae`, `diou`, `iou_at_50`
    group       and confidence: as those of `Metric`

    Of a model's answer the box of the highest score counts; no answer is a box without area. A true target with several
    objects, or none, is an `InputError`.

    >>> from types import SimpleNamespace
    >>> metric, box = BoxMetric("iou"), SimpleNamespace(boxes=[[0, 0, 4, 4]], labels=[0], scores=[1.0])
    >>> metric.update([box], [box], [{"id": 0}])
    >>> metric.compute()
    {'iou': 1.0}
    """

    metric: ClassVar[str] = ""
    """The metric of a class that stands for one."""

    def __init__(
        self, metrics: str | Iterable[str] = "iou", *, group: str | None = None, confidence: float = CONFIDENCE
    ) -> None:
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        for name in names:
            if name not in LOCATING:
                raise UnknownName("metric of boxes", name, LOCATING)
        self._metrics: list[OwnMetric] = [LOCATING[name] for name in names]
        self.group, self.confidence = group, confidence
        self.metadata: MetricMetadata = {"id": f"roadworthy {', '.join(names)}"}
        check_bounds(confidence)
        self.reset()

    def reset(self) -> None:
        """Forget all that was given."""
        self._rows: list[NDArray[np.float64]] = []
        self._groups: list[str] = []

    def update(
        self,
        pred_batch: Sequence[Detections],
        target_batch: Sequence[Detections],
        metadata_batch: Sequence[Metadata],
        /,
    ) -> None:
        """Add a batch of detections, true targets with one object each, and metadata."""
        _length(pred_batch, target_batch, metadata_batch)
        batch = zip(target_batch, pred_batch, metadata_batch, strict=True)
        rows = [
            np.concatenate([single_box(true, _what(own))[1], best_box(answer, _what(own))])
            for true, answer, own in batch
        ]
        self._groups += groups_of(metadata_batch, self.group) or []
        self._rows += rows

    def compute(self) -> dict[str, Any]:
        """Every metric by name, with bounds where there are groups."""
        if not self._rows:
            return {metric.name: float("nan") for metric in self._metrics}
        rows = np.stack(self._rows)
        groups = np.array(self._groups, np.str_) if self.group else None
        order = np.lexsort([*rows.T, *([] if groups is None else [groups])])
        answers = BoxAnswers(rows[order, :4], rows[order, 4:])
        own = None if groups is None else groups[order]
        return numbers(estimates(self._metrics, answers, own, confidence=self.confidence))


class SingleMetric(Metric):
    """A metric that stands for one of class answers, under the name of the class: see `roadworthy.maite.by_metric`."""

    def __init__(
        self, *, outputs: str = "probabilities", group: str | None = None, confidence: float = CONFIDENCE
    ) -> None:
        super().__init__(self.metric, outputs=outputs, group=group, confidence=confidence)


class SingleBoxMetric(BoxMetric):
    """A metric that stands for one of boxes, under the name of the class: see `roadworthy.maite.by_metric`."""

    def __init__(self, *, group: str | None = None, confidence: float = CONFIDENCE) -> None:
        super().__init__(self.metric, group=group, confidence=confidence)


def groups_of(metadata_batch: Sequence[Metadata], key: str | None) -> list[str] | None:
    """The physical object of every datum, by a key of its metadata; None without a key."""
    if key is None:
        return None
    for metadata in metadata_batch:
        if not isinstance(metadata.get(key), str | int | np.integer):
            raise InputError(f"{_what(metadata)}: its metadata names no object under {key!r}")
    return [str(metadata[key]) for metadata in metadata_batch]


def numbers(results: Mapping[str, Estimate]) -> dict[str, Any]:
    """Estimates as the numbers that MAITE's tasks return: values by name, bounds where there are groups."""
    by_name: dict[str, Any] = {}
    for name, estimate in results.items():
        by_name[name] = estimate.value
        if estimate.groups:
            by_name |= {f"{name}_lo": estimate.lo, f"{name}_hi": estimate.hi}
    return by_name


def _what(metadata: Metadata) -> str:
    return f"datum {datum_id(metadata, 'a datum of the batch')!r}"


def _scores(answer: ArrayLike, target: ArrayLike, what: str) -> tuple[NDArray[np.float64], int]:
    """The answer (Cl,) of a model as numbers, and the true class; an `InputError` where their classes differ."""
    label, count = class_of(target, what)
    scores = numbers_of(answer, f"{what}: the answer")
    if scores.shape != (count,):
        raise InputError(f"{what}: its target has {count} classes, and its answer the shape {scores.shape}")
    return scores, label


def _length(*parts: Sequence[Any]) -> int:
    lengths = {len(part) for part in parts}
    if len(lengths) > 1:
        raise InputError(f"a batch has as many answers, targets and metadata, not {[len(part) for part in parts]}")
    return lengths.pop()
