"""The tables of classification: what stored answers say, cell by cell, each figure with bounds that count objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from roadworthy.core.errors import InputError
from roadworthy.core.grouping import grouped
from roadworthy.core.types import UNDISTURBED
from roadworthy.engine.plan import PlannedCase
from roadworthy.metrics import METRICS as REGISTERED
from roadworthy.metrics import Answers, Metric, find_metric, unknown_metric
from roadworthy.metrics.base import DROP
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared, matching
from roadworthy.protocols.changes import (
    by_bootstrap,
    by_flips,
    by_mcnemar,
    by_ranked,
    flip_p,
    not_paired,
    of_same_cases,
    same_cases,
)
from roadworthy.protocols.classification import by_condition, corruption_error, in_service, table_specs
from roadworthy.protocols.classification.against import where_of, worsening
from roadworthy.protocols.classification.deciding import decide
from roadworthy.protocols.classification.detail_rows import confusion_rows, recall_rows, reliability_rows
from roadworthy.protocols.classification.human import HumanAnswers, QuizImages, model_rows, people_rows
from roadworthy.protocols.classification.settings import METRICS, NAME
from roadworthy.protocols.classification.stopped import (
    BoundedMetric,
    Context,
    GrowingObjects,
    Watched,
    look_rows,
    stopping_rows,
)
from roadworthy.protocols.classification.summaries import AnswerSummary, summarise_answers
from roadworthy.protocols.classification.table_specs import CELL
from roadworthy.protocols.condition_slices import Slice, Slicing, asked_slices, is_of_data, slice_where
from roadworthy.protocols.in_service import Watchable
from roadworthy.protocols.pictures import save_classes, save_gallery, save_mistakes
from roadworthy.statistics import Estimate, GroupBootstrap, mean_interval, sign_flip_p
from roadworthy.statistics.estimates import (
    CONFIDENCE,
    RESAMPLES,
    bounding_bootstrap,
    deviation_over_conditions,
    deviation_over_repeats,
    failed_estimate,
    mean_defined,
    no_estimate,
)
from roadworthy.statistics.paired import PairedChange
from roadworthy.statistics.summaries import Objects, figures_of
from roadworthy.verdict import Criterion, Measurement, Why
from roadworthy.verdict.why import no_single_images


@dataclass(frozen=True)
class CellKey:
    """One row of the classification table."""

    model: str
    shift: str
    level: float

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
        context: Context | base.NoContext | None = None,
        *,
        seed: int = 0,
        workers: int = 1,
        resamples: int | None = None,
    ) -> None:
        self.class_names, self.metrics, self.seed = tuple(class_names), tuple(metrics), seed
        known = context if isinstance(context, Context) else Context()
        self.slicing, self.resamples = Slicing(known, cases), resamples or RESAMPLES
        self.cases, self.human = [case for case in cases if not is_of_data(case)], human or {}
        self.looks = known.looks
        self.by_key = by_key = grouped((CellKey.of(case), case) for case in self.cases)
        self.keys = sorted(by_key, key=CellKey.order)
        failed = {key: [case.failure for case in repeats if case.failure] for key, repeats in by_key.items()}
        self.failures = {key: reasons[0] for key, reasons in failed.items() if reasons}
        self.cells: dict[CellKey, AnswerSummary] = {}
        done = [key for key in self.keys if key not in self.failures]
        self.watched: dict[CellKey, list[Watched]] = {}
        if self.looks is not None:
            by_hash, criteria = self.looks.watched, self.looks.criteria
            watched = [case for case in self.cases if case.hash in by_hash]
            self.watched = {CellKey.of(case): [criteria[name] for name in by_hash[case.hash]] for case in watched}
        self.lengths: dict[CellKey, int] = {}
        loaded = (by_key[key][0].load() for key in (done if self.watched else done[:1]))
        first = max(loaded, key=lambda readouts: len(readouts.ids), default=None)
        self.ids: tuple[str, ...] = first.ids if first else ()
        self.groups: tuple[str, ...] = first.groups if first else ()
        self.labels = first.answers.label if first else np.zeros(0, np.int64)
        names, self.objects = np.unique(np.array(self.groups, dtype=object), return_inverse=True)
        self.group_count = len(names)
        if not first:
            return
        bootstrap = bounding_bootstrap(self.objects, self.resamples, seed)

        def summarise(key: CellKey) -> AnswerSummary:
            repeats = [case.load() for case in by_key[key]]
            shown = len(repeats[0].ids) if key in self.watched else len(self.ids)
            if any(repeat.ids != self.ids[:shown] for repeat in repeats):
                raise InputError(f"the readouts of {key} are of other images than those of {done[0]}")
            self.lengths[key] = shown
            drawn = bootstrap if shown == len(self.ids) else GroupBootstrap(self.objects[:shown], resamples=1)
            return summarise_answers([repeat.answers for repeat in repeats], self.metrics, drawn)

        with ThreadPoolExecutor(workers) as pool:
            self.cells = dict(zip(done, pool.map(summarise, done), strict=True))
        self.lengths = {key: self.lengths[key] for key in done}

    def answers(self, key: CellKey) -> list[Answers]:
        """The stored answers of a cell that did not fail, repeat by repeat."""
        return [case.load().answers for case in self.by_key[key]]

    def estimate(self, keys: Sequence[CellKey], metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """The mean of a metric over cells, bounded by objects: neither repeats nor cells raise n."""
        whole, factor = self.bounded_by(metric)
        return self._estimate(keys, whole, confidence).scaled(factor).over(*self.counts(keys))

    def drop(
        self, keys: Sequence[CellKey], baseline: Sequence[CellKey], metric: Metric, confidence: float = CONFIDENCE
    ) -> Estimate:
        """How much worse a metric is than at the baseline, on the same objects: positive is worse."""
        whole, factor = self.bounded_by(metric)
        return self._drop(keys, baseline, whole, confidence).scaled(factor).over(*self.counts([*keys, *baseline]))

    def bounded_by(self, metric: Metric) -> tuple[Metric, float]:
        """The metric by which one is bounded, and what the one is times that: itself, unless it is a multiple."""
        bounded = BoundedMetric.of(metric, self.metrics, len(self.class_names))
        return bounded.whole, bounded.factor

    def metric(self, name: str) -> Metric:
        """One of its metrics."""
        return find_metric(name, self.metrics)

    def _estimate(self, keys: Sequence[CellKey], metric: Metric, confidence: float) -> Estimate:
        if failed := [self.failures[key] for key in keys if key in self.failures]:
            return failed_estimate(failed[0])
        return self._objects(keys).estimate([self.cells[key] for key in keys], metric, confidence)

    def _drop(
        self, keys: Sequence[CellKey], baseline: Sequence[CellKey], metric: Metric, confidence: float
    ) -> Estimate:
        if failed := [self.failures[key] for key in [*keys, *baseline] if key in self.failures]:
            return failed_estimate(failed[0])
        cells, baseline_cells = [self.cells[key] for key in keys], [self.cells[key] for key in baseline]
        return self._objects([*keys, *baseline]).drop(cells, baseline_cells, metric, confidence)

    def _objects(self, keys: Sequence[CellKey]) -> Objects:
        return self.growing(keys) or Objects(self.objects, self.group_count, len(self.class_names))

    def growing(self, keys: Sequence[CellKey]) -> GrowingObjects | None:
        """The objects that the cells have in common where criteria were watching one of them; None where not."""
        if self.looks is None or not any(key in self.watched and key in self.cells for key in keys):
            return None
        shown = min(self.lengths[key] for key in keys if key in self.cells)
        return GrowingObjects(self.objects, self.group_count, len(self.class_names), self.looks, shown)

    def counts(self, keys: Sequence[CellKey]) -> tuple[int, int]:
        """How many images, of how many objects, are read from cells together."""
        growing = self.growing(keys)
        return (growing.counted, growing.groups) if growing else (len(self.ids), self.group_count)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol, from stored readouts alone."""
        rows = {
            table_specs.CELLS: _cell_rows(self),
            table_specs.BY_SHIFT: _average_rows(self, "model", "shift"),
            table_specs.BY_LEVEL: _average_rows(self, "model", "level"),
            table_specs.OVERALL: _average_rows(self, "model"),
            table_specs.SEVERITY: _severity_rows(self),
            table_specs.REPEATS: _repeat_rows(self),
            table_specs.RECALL: recall_rows(self),
            table_specs.CONFUSION: confusion_rows(self),
            table_specs.RELIABILITY: reliability_rows(self),
        }
        if self.looks is not None:
            rows[table_specs.STOPPING] = stopping_rows(self, self.looks)
            rows[table_specs.LOOKS] = look_rows(self, self.looks)
        if self.human and self.ids:
            rows[table_specs.HUMAN] = self._human_rows()
        if corrupted := [*corruption_error.corruption_error_rows(self)]:
            rows[table_specs.CORRUPTION_ERROR] = corrupted
        rows |= by_condition.condition_tables(self)
        return {spec.name: spec.frame(part) for spec, part in rows.items()}

    def _human_rows(self) -> list[dict[str, Any]]:
        """People, then every model on the same images."""
        images = QuizImages(self.ids, self.labels.tolist(), self.groups, self.class_names)
        conditions = {case.stimulus.key: (case.stimulus.name, case.stimulus.level) for case in self.cases}
        return [*people_rows(self.human, conditions, images), *model_rows(self.human, self.cases, images)]

    def in_service(self) -> list[Watchable]:
        """How certain each model is of undisturbed images, and which classes it answers."""
        return [*in_service.watchables(self)]

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """A gallery of the shifts with the answers to it, the most confident mistakes, and a picture of each class."""
        gallery, answers = save_gallery(self, cases, media)
        rows = {
            table_specs.GALLERY: gallery,
            table_specs.GALLERY_ANSWERS: answers,
            table_specs.MISTAKES: save_mistakes(self, cases, media),
            table_specs.CLASSES: save_classes(cases[0].showing, media) if cases else [],
        }
        return {spec.name: spec.frame(part) for spec, part in rows.items()}

    def compare(self, other: Self, before: Compared, after: Compared, metrics: Sequence[str]) -> Iterator[PairedChange]:
        """Every shift at every level by each of the metrics; both must have been tested on the same images."""
        if not self.shown_alike(other):
            raise InputError(f"{before} and {after} were tested on other images: they cannot be paired")
        shown = [_conditions(system) for system in (before, after)]
        for condition, level in dict.fromkeys([*shown[0], *shown[1]]):
            key_before, key_after = (CellKey(system.model, condition, level) for system in (before, after))
            obstacle = not_paired((before, after), shown, (condition, level))
            obstacle = obstacle or self.failures.get(key_before, "") or other.failures.get(key_after, "")
            same = not obstacle and same_cases(self.by_key[key_before], other.by_key[key_after])
            for metric in (find_metric(name, self.metrics) for name in metrics):
                change = after.change(condition, level, metric.name, key_after.where(), obstacle)
                cells = None if obstacle else (self.cells[key_before], other.cells[key_after])
                growing = cells and self._common(other, key_before, key_after)
                if cells and growing and (growing.stopped or metric.mean_over_objects):
                    change = growing.changed(change, *self.bounded_by(metric), *cells)
                elif cells:
                    change = self._changed(change, metric, *cells)
                yield of_same_cases(change) if same else change

    def shown_alike(self, other: Self) -> bool:
        """Whether both were shown the same images, or one of them the first of those that the other was."""
        alike = min(len(self.ids), len(other.ids)) if self.watched or other.watched else None
        same = self.ids[:alike] == other.ids[:alike] and self.groups[:alike] == other.groups[:alike]
        return same and np.array_equal(self.labels[:alike], other.labels[:alike])

    def _common(self, other: Self, before: CellKey, after: CellKey) -> GrowingObjects | None:
        """The images that two cells have in common where criteria were watching one of them; None where not."""
        if before not in self.watched and after not in other.watched:
            return None
        looks, shown = self.looks or other.looks, min(self.lengths[before], other.lengths[after])
        assert looks is not None
        return GrowingObjects(self.objects, self.group_count, len(self.class_names), looks, shown)

    def _changed(
        self, change: PairedChange, metric: Metric, before: AnswerSummary, after: AnswerSummary
    ) -> PairedChange:
        values = [cell.values[metric.name] for cell in (before, after)]
        change = replace(change, before=mean_defined(values[0]), after=mean_defined(values[1]))
        change = replace(change, n=len(self.ids), groups=self.group_count)
        whole, factor = self.bounded_by(metric)
        if whole.ranked:
            return by_ranked(change, *(figures_of([cell], whole.name) for cell in (before, after)))
        if not metric.mean_over_objects:
            drawn = [factor * cell.resampled[whole.name] for cell in (before, after)]
            room = factor * whole.room(len(self.class_names))
            return by_bootstrap(change, *drawn, room=room, sizes=np.bincount(self.objects))
        if missing := before.missing.get(metric.name) or after.missing.get(metric.name):
            return replace(change, reason=missing)
        if metric.proportion and len(values[0]) == len(values[1]) == 1:
            return by_mcnemar(change, before.per_image[metric.name], after.per_image[metric.name], self.objects)
        return self._flipped(change, metric, before, after)

    def _flipped(
        self, change: PairedChange, metric: Metric, before: AnswerSummary, after: AnswerSummary
    ) -> PairedChange:
        """Add the test of a mean over images by its paired differences, object by object: see `by_flips`."""
        whole, factor = self.bounded_by(metric)
        low, high = whole.limits(len(self.class_names))
        room = (high - low) * factor
        differences = (after.per_image[whole.name].astype(np.float64) - before.per_image[whole.name]) * factor
        interval = partial(mean_interval, differences.clip(-room, room), self.objects, -room, room)
        bounds = interval(change.confidence)
        if metric.proportion:
            differences = np.rint(differences * math.lcm(*(len(cell.values[metric.name]) for cell in (before, after))))
        sums = np.bincount(self.objects, differences, self.group_count)
        p = sign_flip_p(int(sums.sum()), np.abs(sums)) if metric.proportion else flip_p(sums)
        change = replace(change, change=change.after - change.before, lo=bounds.lo, hi=bounds.hi)
        return by_flips(change, p, interval)

    def worsening(
        self, baseline: Self, before: Compared, after: Compared, criterion: Criterion, metric: Metric
    ) -> list[Measurement]:
        """How much worse than the baseline: per cell, or over all cells where `over` is pooled, or of each slice."""
        shown = [_conditions(system) for system in (before, after)]
        return worsening(self, baseline, (before, after), shown, criterion, metric)

    def selections(self, criterion: Criterion) -> tuple[Sequence[Slice], list[list[CellKey]]]:
        """The slices that a criterion asks for, and the cells that are judged together; an `InputError` where none."""
        check_metric(criterion, self.metrics)
        asked = asked_slices(self.slicing.breakdown, criterion, CELL)
        matching = select(self.keys, asked.criterion)
        return asked.slices, [matching] if criterion.over == "pooled" else [[key] for key in matching]

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion: a measurement per cell, or one for all where `over` is pooled.

        Where it names conditions of the data, the same of each slice that it asks for.
        """
        slices, selections = self.selections(criterion)
        if not slices:
            return [self._measurement(keys, criterion, confidence) for keys in selections]
        return [
            measured
            for chosen in slices
            for measured in self._measured_within(chosen, selections, criterion, confidence)
        ]

    def _measured_within(
        self, chosen: Slice, selections: Sequence[list[CellKey]], criterion: Criterion, confidence: float
    ) -> Iterator[Measurement]:
        """The same measurements over the images of a slice."""
        part, metric = self, find_metric(criterion.metric, self.metrics)
        if not self.slicing.failure:
            needed = [key for keys in selections for key in keys]
            needed += [CellKey(key.model, UNDISTURBED, 0) for key in needed]
            rows = self.slicing.rows(chosen, self.ids)
            part = by_condition.within(self, rows, [metric.drop_of or metric], needed)
        for keys in selections:
            measured = part._measurement(keys, criterion, confidence)
            measured = replace(measured, where={**measured.where, **slice_where(chosen, CELL)})
            unread = no_estimate(self.slicing.failure)
            yield replace(measured, estimate=unread) if self.slicing.failure else measured

    def deciding(self, criterion: Criterion, measured: Measurement) -> Why:
        """The objects whose images weigh most, where the metric is a mean over images."""
        known = {"conditions", *(field.name for field in fields(CellKey))}
        if other := [name for name in measured.where if name not in known]:
            return no_single_images(f"the condition {other[0]} speaks of a part of the images")
        keys = select(self.keys, criterion)
        if criterion.over != "pooled":
            keys = [key for key in keys if key.where() == dict(measured.where)]
        compared = find_metric(criterion.metric, self.metrics).drop_of is not None
        baseline = [CellKey(key.model, UNDISTURBED, 0) for key in keys] if compared else []
        if self.growing([*keys, *baseline]):
            return no_single_images("it was judged while answers came in, as soon as enough of them were there")
        return decide(self, keys, criterion)

    def _measurement(self, keys: list[CellKey], criterion: Criterion, confidence: float) -> Measurement:
        metric = find_metric(criterion.metric, self.metrics)
        if metric.drop_of:
            baseline = [CellKey(model, UNDISTURBED, 0) for model in dict.fromkeys(key.model for key in keys)]
            estimate = self.drop(keys, baseline, metric.drop_of, confidence)
        else:
            estimate = self.estimate(keys, metric, confidence)
        return Measurement(where_of(keys), estimate, proportion=metric.proportion and not self.growing(keys))


def _conditions(system: Compared) -> dict[tuple[str, float], str]:
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
        raise InputError(f"criterion {criterion.id}: {unknown_metric(criterion.metric, known, metrics)}{advice}")


def select(keys: Iterable[CellKey], criterion: Criterion) -> list[CellKey]:
    """The cells that match a criterion; a value that matches nothing is an error."""
    of_drop = criterion.metric.endswith(DROP)
    chosen = [key for key in keys if not of_drop or key.shift != UNDISTURBED]
    return matching(f"criterion {criterion.id}", chosen, CELL, criterion)


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
    """The standard deviations of an average over conditions and over repeats.

    A drop has none, nor has an average over a cell that failed or stopped early.
    """
    cells = [evidence.cells.get(key) for key in keys]
    values = [cell.values[metric] for cell in cells if cell is not None and metric in cell.values]
    growing = evidence.growing(keys)
    if len(values) < len(keys) or (growing and growing.stopped):
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
