"""The tables of classification: what stored answers say, cell by cell, each figure with bounds that count objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.grouping import grouped
from roadworthy.core.types import UNDISTURBED
from roadworthy.engine.plan import PlannedCase
from roadworthy.metrics import METRICS as REGISTERED
from roadworthy.metrics import Metric, find_metric
from roadworthy.metrics.base import DROP
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared, matching
from roadworthy.protocols.changes import by_bootstrap, by_mcnemar, not_paired
from roadworthy.protocols.classification import corruption_error, table_specs
from roadworthy.protocols.classification.deciding import decide
from roadworthy.protocols.classification.human import HumanAnswers, QuizImages, model_rows, people_rows
from roadworthy.protocols.classification.settings import METRICS, NAME
from roadworthy.protocols.classification.summaries import AnswerSummary, summarise_answers
from roadworthy.protocols.pictures import save_gallery, save_mistakes
from roadworthy.protocols.summaries import Objects
from roadworthy.statistics import Estimate, GroupBootstrap, mean_interval, proportion_interval, sign_flip_p
from roadworthy.statistics.estimates import (
    CONFIDENCE,
    RESAMPLES,
    deviation_over_conditions,
    deviation_over_repeats,
    failed_estimate,
    mean_defined,
    no_estimate,
)
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Criterion, Measurement, Why
from roadworthy.verdict.why import no_single_images

SIGN_FLIP_STEPS = 50
"""Differences are rounded to this many steps of the largest, so that all flips can be counted exactly."""


@dataclass(frozen=True)
class CellKey:
    """One row of the classification table."""

    model: str
    shift: str
    level: int

    def order(self) -> tuple[Any, ...]:
        """A key that sorts by name, undisturbed data first."""
        return self.model, self.shift != UNDISTURBED, self.shift, self.level

    @classmethod
    def of(cls, case: base.KnownCase) -> CellKey:
        """The row that a case belongs to."""
        return cls(case.system, case.stimulus.name, case.stimulus.level)

    def where(self) -> dict[str, Any]:
        """The columns that identify it."""
        return {**vars(self)}


class Evidence(base.Evidence):
    """What the readouts of one run say, and every measure that can be taken from them.

    The bootstrap draws the same objects for every case, so differences between cases are paired. Rows come in an order
    that depends on names alone.
    """

    def __init__(
        self,
        cases: Sequence[base.StoredCase],
        class_names: Sequence[str],
        metrics: Sequence[Metric] = METRICS,
        human: HumanAnswers | None = None,
        *,
        seed: int = 0,
        workers: int = 1,
        resamples: int | None = None,
    ) -> None:
        self.class_names, self.metrics, self.seed = tuple(class_names), tuple(metrics), seed
        self.cases, self.human = cases, human or {}
        by_key = grouped((CellKey.of(case), case) for case in cases)
        self.keys = sorted(by_key, key=CellKey.order)
        failed = {key: [case.failure for case in repeats if case.failure] for key, repeats in by_key.items()}
        self.failures = {key: reasons[0] for key, reasons in failed.items() if reasons}
        self.cells: dict[CellKey, AnswerSummary] = {}
        done = [key for key in self.keys if key not in self.failures]
        first = by_key[done[0]][0].load() if done else None
        self.ids: tuple[str, ...] = first.ids if first else ()
        self.groups: tuple[str, ...] = first.groups if first else ()
        self.labels = first.answers.label if first else np.zeros(0, np.int64)
        names, self.objects = np.unique(np.array(self.groups, dtype=object), return_inverse=True)
        self.group_count = len(names)
        if not first:
            return
        bootstrap = GroupBootstrap(self.objects, resamples=resamples or RESAMPLES, seed=seed)

        def summarise(key: CellKey) -> AnswerSummary:
            repeats = [case.load() for case in by_key[key]]
            if any(repeat.ids != self.ids for repeat in repeats):
                raise InputError(f"the readouts of {key} are of other images than those of {done[0]}")
            return summarise_answers([repeat.answers for repeat in repeats], self.metrics, bootstrap)

        with ThreadPoolExecutor(workers) as pool:
            self.cells = dict(zip(done, pool.map(summarise, done), strict=True))

    def estimate(self, keys: Sequence[CellKey], metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """The mean of a metric over cells, bounded by objects: neither repeats nor cells raise n."""
        whole, factor = self.bounded_by(metric)
        return self._estimate(keys, whole, confidence).scaled(factor).over(len(self.ids), self.group_count)

    def drop(
        self, keys: Sequence[CellKey], baseline: Sequence[CellKey], metric: Metric, confidence: float = CONFIDENCE
    ) -> Estimate:
        """How much worse a metric is than at the baseline, on the same objects: positive is worse."""
        whole, factor = self.bounded_by(metric)
        return self._drop(keys, baseline, whole, confidence).scaled(factor).over(len(self.ids), self.group_count)

    def bounded_by(self, metric: Metric) -> tuple[Metric, float]:
        """The metric by which one is bounded, and what the one is times that: itself, unless it is a multiple."""
        if metric.multiple_of in self.metrics and metric.multiple_of and metric.factor:
            return metric.multiple_of, metric.factor(len(self.class_names))
        return metric, 1.0

    def _estimate(self, keys: Sequence[CellKey], metric: Metric, confidence: float) -> Estimate:
        if failed := [self.failures[key] for key in keys if key in self.failures]:
            return failed_estimate(failed[0])
        return self._objects.estimate([self.cells[key] for key in keys], metric, confidence)

    def _drop(
        self, keys: Sequence[CellKey], baseline: Sequence[CellKey], metric: Metric, confidence: float
    ) -> Estimate:
        if failed := [self.failures[key] for key in [*keys, *baseline] if key in self.failures]:
            return failed_estimate(failed[0])
        cells, baseline_cells = [self.cells[key] for key in keys], [self.cells[key] for key in baseline]
        return self._objects.drop(cells, baseline_cells, metric, confidence)

    @property
    def _objects(self) -> Objects:
        return Objects(self.objects, self.group_count, len(self.class_names))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol, from stored readouts alone."""
        rows = {
            table_specs.CELLS: _cell_rows(self),
            table_specs.BY_SHIFT: _average_rows(self, "model", "shift"),
            table_specs.BY_LEVEL: _average_rows(self, "model", "level"),
            table_specs.OVERALL: _average_rows(self, "model"),
            table_specs.SEVERITY: _severity_rows(self),
            table_specs.REPEATS: _repeat_rows(self),
            table_specs.RECALL: _recall_rows(self),
            table_specs.CONFUSION: _confusion_rows(self),
            table_specs.RELIABILITY: _reliability_rows(self),
        }
        if self.human and self.ids:
            rows[table_specs.HUMAN] = self._human_rows()
        if corrupted := [*corruption_error.corruption_error_rows(self)]:
            rows[table_specs.CORRUPTION_ERROR] = corrupted
        return {spec.name: spec.frame(part) for spec, part in rows.items()}

    def _human_rows(self) -> list[dict[str, Any]]:
        """People, then every model on the same images."""
        images = QuizImages(self.ids, self.labels.tolist(), self.groups, self.class_names)
        conditions = {case.stimulus.key: (case.stimulus.name, case.stimulus.level) for case in self.cases}
        return [*people_rows(self.human, conditions, images), *model_rows(self.human, self.cases, images)]

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """A gallery of the shifts with the answers to it, and the most confident mistakes."""
        gallery, answers = save_gallery(self, cases, media)
        rows = {
            table_specs.GALLERY: gallery,
            table_specs.GALLERY_ANSWERS: answers,
            table_specs.MISTAKES: save_mistakes(self, cases, media),
        }
        return {spec.name: spec.frame(part) for spec, part in rows.items()}

    def compare(self, other: Self, before: Compared, after: Compared, metrics: Sequence[str]) -> Iterator[PairedChange]:
        """Every shift at every level by each of the metrics; both must have been tested on the same images."""
        if self.ids != other.ids or self.groups != other.groups or not np.array_equal(self.labels, other.labels):
            raise InputError(f"{before} and {after} were tested on other images: they cannot be paired")
        shown = [_conditions(system) for system in (before, after)]
        for condition, level in dict.fromkeys([*shown[0], *shown[1]]):
            key_before, key_after = (CellKey(system.model, condition, level) for system in (before, after))
            obstacle = not_paired((before, after), shown, (condition, level))
            obstacle = obstacle or self.failures.get(key_before, "") or other.failures.get(key_after, "")
            for metric in (find_metric(name, self.metrics) for name in metrics):
                change = PairedChange(condition, level, metric.name, reason=obstacle)
                cells = None if obstacle else (self.cells[key_before], other.cells[key_after])
                yield self._changed(change, metric, *cells) if cells else change

    def _changed(
        self, change: PairedChange, metric: Metric, before: AnswerSummary, after: AnswerSummary
    ) -> PairedChange:
        values = [cell.values[metric.name] for cell in (before, after)]
        change = replace(change, before=mean_defined(values[0]), after=mean_defined(values[1]))
        change = replace(change, n=len(self.ids), groups=self.group_count)
        whole, factor = self.bounded_by(metric)
        if not metric.mean_over_objects:
            return by_bootstrap(change, *(factor * cell.resampled[whole.name] for cell in (before, after)))
        if missing := before.missing.get(metric.name) or after.missing.get(metric.name):
            return replace(change, reason=missing)
        if metric.proportion and len(values[0]) == len(values[1]) == 1:
            return by_mcnemar(change, before.per_image[metric.name], after.per_image[metric.name], self.objects)
        return self._flipped(change, metric, before, after)

    def _flipped(
        self, change: PairedChange, metric: Metric, before: AnswerSummary, after: AnswerSummary
    ) -> PairedChange:
        """Add the test of a mean over images: the signs of its paired differences are flipped object by object."""
        whole, factor = self.bounded_by(metric)
        low, high = whole.limits(len(self.class_names))
        room = (high - low) * factor
        differences = (after.per_image[whole.name].astype(np.float64) - before.per_image[whole.name]) * factor
        interval = mean_interval(differences.clip(-room, room), self.objects, -room, room)
        if metric.proportion:
            differences = np.rint(differences * math.lcm(*(len(cell.values[metric.name]) for cell in (before, after))))
        sums = np.bincount(self.objects, differences, self.group_count)
        if not metric.proportion:
            sums = np.rint(sums / max(float(np.abs(sums).max()), 1e-300) * SIGN_FLIP_STEPS)
        p = sign_flip_p(int(sums.sum()), np.abs(sums))
        change = replace(change, change=change.after - change.before, lo=interval.lo, hi=interval.hi)
        return replace(change, p=p, method="sign flips by group")

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion: a measurement per cell, or one for all where `over` is pooled."""
        check_metric(criterion, self.metrics)
        matching = select(self.keys, criterion)
        selections = [matching] if criterion.over == "pooled" else [[key] for key in matching]
        return [self._measurement(keys, criterion, confidence) for keys in selections]

    def deciding(self, criterion: Criterion, measured: Measurement) -> Why:
        """The objects whose images weigh most, where the metric is a mean over images."""
        known = {"conditions", *(field.name for field in fields(CellKey))}
        if other := [name for name in measured.where if name not in known]:
            return no_single_images(f"the condition {other[0]} speaks of a part of the images")
        keys = select(self.keys, criterion)
        if criterion.over != "pooled":
            keys = [key for key in keys if key.where() == dict(measured.where)]
        return decide(self, keys, criterion)

    def _measurement(self, keys: list[CellKey], criterion: Criterion, confidence: float) -> Measurement:
        metric = find_metric(criterion.metric, self.metrics)
        if metric.drop_of:
            baseline = [CellKey(model, UNDISTURBED, 0) for model in dict.fromkeys(key.model for key in keys)]
            estimate = self.drop(keys, baseline, metric.drop_of, confidence)
        else:
            estimate = self.estimate(keys, metric, confidence)
        where = keys[0].where() if len(keys) == 1 else {"conditions": f"{len(keys)} pooled"}
        return Measurement(where, estimate, proportion=metric.proportion)


def _conditions(system: Compared) -> dict[tuple[str, int], str]:
    """What a system was shown, by shift and level: the data, the parameters of the shift and its code.

    The model that an attack was made against does not count: each is attacked itself, in the same way.
    """
    shown = [case.stimulus for case in system.shown(NAME)]
    parameters = [{name: value for name, value in s.parameters.items() if name != "attacked"} for s in shown]
    return {(s.name, s.level): f"{s.data} {sorted(p.items())} {s.code}" for s, p in zip(shown, parameters, strict=True)}


def metric_names(metrics: Sequence[Metric]) -> list[str]:
    """The names by which a criterion may speak of metrics: their own, and their drops."""
    drops = [metric.drop().name for metric in metrics if metric.higher_is_better is not None]
    return [*(metric.name for metric in metrics), *drops]


def check_metric(criterion: Criterion, metrics: Sequence[Metric]) -> None:
    """Raise an `InputError` where a criterion names none of the metrics that the study measures."""
    known = metric_names(metrics)
    if criterion.metric not in known:
        name = criterion.metric.removesuffix(DROP)
        if criterion.metric in {metric.drop().name for metric in metrics}:
            raise InputError(
                f"criterion {criterion.id}: {criterion.metric} does not exist, since neither more nor less of {name} "
                "is better"
            )
        advice = f" Ask for it with `metrics='{name}'` (under {NAME} in a study)." if name in REGISTERED else ""
        raise InputError(f"criterion {criterion.id}: {UnknownName('metric', criterion.metric, known)}{advice}")


def select(keys: Iterable[CellKey], criterion: Criterion) -> list[CellKey]:
    """The cells that match a criterion; a value that matches nothing is an error."""
    of_drop = criterion.metric.endswith(DROP)
    chosen = [key for key in keys if not of_drop or key.shift != UNDISTURBED]
    return matching(f"criterion {criterion.id}", chosen, ("model", "shift", "level"), criterion)


_Rows = Iterator[dict[str, Any]]


def _estimates(evidence: Evidence, where: dict[str, Any], keys: Sequence[CellKey], baseline: CellKey) -> _Rows:
    for metric in evidence.metrics:
        yield evidence.estimate(keys, metric).row(where, metric.name)
    if baseline not in keys:
        yield from _drops(evidence, where, keys, baseline)


def _drops(evidence: Evidence, where: dict[str, Any], keys: Sequence[CellKey], baseline: CellKey) -> _Rows:
    for metric in evidence.metrics:
        if metric.higher_is_better is not None:
            yield evidence.drop(keys, [baseline], metric).row(where, metric.drop().name)


def _cell_rows(evidence: Evidence) -> _Rows:
    for key in evidence.keys:
        yield from _estimates(evidence, key.where(), [key], CellKey(key.model, UNDISTURBED, 0))


def _disturbed(evidence: Evidence, *columns: str) -> dict[tuple[Any, ...], tuple[CellKey, ...]]:
    """All disturbed cells by the values that they share in the columns."""
    disturbed = [key for key in evidence.keys if key.shift != UNDISTURBED]
    return grouped((tuple(getattr(key, column) for column in columns), key) for key in disturbed)


def _average_rows(evidence: Evidence, *columns: str) -> _Rows:
    """Averages over all disturbed cells that share the columns, with their standard deviations both ways."""
    for values, keys in _disturbed(evidence, *columns).items():
        where = {**dict(zip(columns, values, strict=True)), "cases": len(keys)}
        for row in _estimates(evidence, where, keys, CellKey(keys[0].model, UNDISTURBED, 0)):
            yield row | _deviations(evidence, keys, row["metric"])


def _deviations(evidence: Evidence, keys: Sequence[CellKey], metric: str) -> dict[str, float]:
    """The standard deviations of an average over conditions and over repeats; a drop, or a failed cell, has none."""
    cells = [evidence.cells.get(key) for key in keys]
    values = [cell.values[metric] for cell in cells if cell is not None and metric in cell.values]
    if len(values) < len(keys):
        return {}
    return {"sd_conditions": deviation_over_conditions(values), "sd_repeats": deviation_over_repeats(values)}


def _severity_rows(evidence: Evidence) -> _Rows:
    """Per shift: how much worse the highest level is than the lowest."""
    for (model, shift), keys in _disturbed(evidence, "model", "shift").items():
        low, high = min(keys, key=lambda k: k.level), max(keys, key=lambda k: k.level)
        if low.level < high.level:
            where = {"model": model, "shift": shift, "from_level": low.level, "to_level": high.level}
            yield from _drops(evidence, where, [high], low)


def _repeat_rows(evidence: Evidence) -> list[dict[str, Any]]:
    return [
        {**key.where(), "repeat": repeat, "metric": metric, "value": value}
        for key, cell in evidence.cells.items()
        for metric, values in cell.values.items()
        for repeat, value in enumerate(values)
    ]


def _recall_rows(evidence: Evidence) -> list[dict[str, Any]]:
    members = [np.flatnonzero(evidence.labels == index) for index in range(len(evidence.class_names))]
    return [
        {
            **key.where(),
            "class": name,
            "metric": "recall",
            **_recall(cell.per_image["accuracy"][rows], evidence.objects[rows]),
        }
        for key, cell in evidence.cells.items()
        for name, rows in zip(evidence.class_names, members, strict=True)
    ]


def _recall(hits: NDArray[np.float32], objects: NDArray[np.int64]) -> dict[str, Any]:
    recall = no_estimate("no image of this class")
    if len(hits):
        recall = proportion_interval(hits.astype(np.float64), objects, CONFIDENCE)
    return {name: getattr(recall, name) for name in ("value", "lo", "hi", "n", "groups", "reason")}


def _confusion_rows(evidence: Evidence) -> list[dict[str, Any]]:
    names = evidence.class_names
    return [
        {**key.where(), "label": names[label], "prediction": names[prediction], "count": count}
        for key, cell in evidence.cells.items()
        for (label, prediction), count in cell.confusion.items()
    ]


def _reliability_rows(evidence: Evidence) -> list[dict[str, Any]]:
    return [
        {
            **key.where(),
            "bin": index,
            "from": float(bins.edges[index]),
            "to": float(bins.edges[index + 1]),
            "count": int(bins.count[index]),
            "confidence": float(bins.confidence[index]),
            "accuracy": float(bins.accuracy[index]),
        }
        for key, bins in ((key, cell.reliability) for key, cell in evidence.cells.items())
        for index in range(len(bins.count))
    ]
