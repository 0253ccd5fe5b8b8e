"""The tables of classification: what stored answers say, cell by cell, each figure with bounds that count objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from roadworthy.metrics import (
    HIGHER_IS_BETTER,
    METRICS,
    Answers,
    Reliability,
    per_image,
    reason,
    reliability,
    value_range,
)
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared, matching
from roadworthy.protocols.changes import by_bootstrap, by_mcnemar, not_paired
from roadworthy.protocols.classification import corruption_error
from roadworthy.protocols.classification.settings import NAME
from roadworthy.protocols.estimates import (
    CONFIDENCE,
    RESAMPLES,
    Estimate,
    bootstrap_estimate,
    failed_estimate,
    mean_defined,
    mean_rows,
    standard_deviation,
)
from roadworthy.protocols.pictures import gallery_rows, save_gallery, save_mistakes
from roadworthy.statistics import GroupBootstrap, mean_interval, proportion_interval, sign_flip_p
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Criterion, Measurement

BOUNDED_MEANS = ("accuracy", "brier", "mean_confidence")
"""Means over images of values with a range: their bounds hold whatever the distribution, with few objects too."""
MISTAKES_KEPT = 50
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


@dataclass(frozen=True)
class StoredAnswer:
    """One answer: to which row of the data, in which repeat."""

    confidence: float
    p_label: float
    repeat: int
    row: int
    label: int
    prediction: int


@dataclass(frozen=True)
class Cell:
    """What is kept of the readouts of one model, shift and level: twelve bytes per image, and sums.

    per_image  for each metric that is a bounded mean over images: its (n,) values, averaged over repeats
    values     per metric, its value in each repeat
    resampled  per metric, its mean over repeats in each bootstrap resample, (B,)
    missing    per metric that is undefined, why
    confusion  counts by (label, prediction)
    mistakes   the most confident wrong answers
    gallery    the answers to the images of the gallery, in the first repeat
    """

    per_image: Mapping[str, NDArray[np.float32]]
    values: Mapping[str, Sequence[float]]
    resampled: Mapping[str, NDArray[np.float64]]
    missing: Mapping[str, str]
    confusion: Mapping[tuple[int, int], int]
    reliability: Reliability
    mistakes: Sequence[StoredAnswer]
    gallery: Sequence[StoredAnswer]


def _cell(repeats: Sequence[Answers], bootstrap: GroupBootstrap) -> Cell:
    values = {name: [float(metric(answers)) for answers in repeats] for name, metric in METRICS.items()}
    names = [name for name in METRICS if name not in BOUNDED_MEANS and name != "brier_mean"]
    resampled = [bootstrap.distributions(names, answers) for answers in repeats]
    return Cell(
        per_image={
            name: np.asarray(np.mean([per_image(name, answers) for answers in repeats], axis=0), dtype=np.float32)
            for name in BOUNDED_MEANS
        },
        values=values,
        resampled={name: mean_rows([repeat[name] for repeat in resampled]) for name in names},
        missing={
            name: next(reason(name, a) or "undefined" for a, v in zip(repeats, by_repeat, strict=True) if math.isnan(v))
            for name, by_repeat in values.items()
            if any(math.isnan(value) for value in by_repeat)
        },
        confusion=_confusion(repeats),
        reliability=reliability(_stacked(repeats)),
        mistakes=_mistakes(repeats),
        gallery=[_answer(repeats[0], row) for row in gallery_rows(repeats[0].label)],
    )


def _confusion(repeats: Sequence[Answers]) -> dict[tuple[int, int], int]:
    classes = repeats[0].num_classes
    pairs = np.concatenate([answers.label * classes + answers.prediction for answers in repeats])
    unique_pairs, counts = np.unique(pairs, return_counts=True)
    return {divmod(int(pair), classes): int(count) for pair, count in zip(unique_pairs, counts, strict=True)}


def _answer(answers: Answers, row: int, repeat: int = 0) -> StoredAnswer:
    columns = ("confidence", "p_label", "label", "prediction")
    return StoredAnswer(**{name: getattr(answers, name)[row].item() for name in columns}, repeat=repeat, row=row)


def _mistakes(repeats: Sequence[Answers]) -> list[StoredAnswer]:
    mistakes = []
    for repeat, answers in enumerate(repeats):
        wrong = np.flatnonzero(~answers.correct)
        most_confident = wrong[np.argsort(-answers.confidence[wrong], kind="stable")][:MISTAKES_KEPT]
        mistakes += [_answer(answers, row, repeat) for row in most_confident.tolist()]
    return sorted(mistakes, key=lambda mistake: (-mistake.confidence, mistake.repeat, mistake.row))[:MISTAKES_KEPT]


class Evidence(base.Evidence):
    """What the readouts of one run say, and every measure that can be taken from them.

    The bootstrap draws the same objects for every case, so differences between cases are paired. Rows come in an order
    that depends on names alone.
    """

    def __init__(
        self,
        cases: Sequence[base.StoredCase],
        class_names: Sequence[str],
        *,
        seed: int = 0,
        workers: int = 1,
        resamples: int | None = None,
    ) -> None:
        self.class_names, self.seed = tuple(class_names), seed
        by_key = grouped((CellKey.of(case), case) for case in cases)
        self.keys = sorted(by_key, key=CellKey.order)
        failed = {key: [case.failure for case in repeats if case.failure] for key, repeats in by_key.items()}
        self.failures = {key: reasons[0] for key, reasons in failed.items() if reasons}
        self.cells: dict[CellKey, Cell] = {}
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

        def summarise(key: CellKey) -> Cell:
            repeats = [case.load() for case in by_key[key]]
            if any(repeat.ids != self.ids for repeat in repeats):
                raise InputError(f"the readouts of {key} are of other images than those of {done[0]}")
            return _cell([repeat.answers for repeat in repeats], bootstrap)

        with ThreadPoolExecutor(workers) as pool:
            self.cells = dict(zip(done, pool.map(summarise, done), strict=True))

    def estimate(self, keys: Sequence[CellKey], metric: str, confidence: float = CONFIDENCE) -> Estimate:
        """The mean of a metric over cells, bounded by objects: neither repeats nor cells raise n."""
        if metric == "brier_mean":
            return self.estimate(keys, "brier", confidence).scaled(1 / len(self.class_names))
        if failed := [self.failures[key] for key in keys if key in self.failures]:
            return failed_estimate(failed[0])
        cells = [self.cells[key] for key in keys]
        sd = standard_deviation(cells[0].values[metric]) if len(keys) == 1 else math.nan
        missing = [cell.missing[metric] for cell in cells if metric in cell.missing]
        missing_reason = "" if not missing else missing[0]
        if missing and len(keys) > 1:
            missing_reason = f"{len(missing)} of {len(keys)} cases left out: {missing_reason}"
        value = _mean(cells, metric)
        if math.isnan(value):
            return Estimate(value, reason=missing_reason, sd=sd)
        low, high = value_range(metric, len(self.class_names))
        if metric in BOUNDED_MEANS:
            values = _mean_per_image(cells, metric)
            if metric == "accuracy":
                interval = proportion_interval(values, self.objects, confidence)
            else:
                interval = mean_interval(values.clip(low, high), self.objects, low, high, confidence)
            return Estimate(value, interval.lo, interval.hi, missing_reason or interval.reason, interval.method, sd)
        bounded = bootstrap_estimate(value, _resampled(cells, metric), self.group_count, confidence, (low, high))
        return replace(bounded, reason="; ".join(filter(None, [missing_reason, bounded.reason])), sd=sd)

    def drop(
        self, keys: Sequence[CellKey], baseline: Sequence[CellKey], metric: str, confidence: float = CONFIDENCE
    ) -> Estimate:
        """How much worse a metric is than at the baseline, on the same objects: positive is worse."""
        if metric == "brier_mean":
            return self.drop(keys, baseline, "brier", confidence).scaled(1 / len(self.class_names))
        worse = -1.0 if HIGHER_IS_BETTER[metric] else 1.0
        if failed := [self.failures[key] for key in [*keys, *baseline] if key in self.failures]:
            return failed_estimate(failed[0])
        cells, baseline_cells = [self.cells[key] for key in keys], [self.cells[key] for key in baseline]
        value = worse * (_mean(cells, metric) - _mean(baseline_cells, metric)) + 0.0
        if math.isnan(value):
            return Estimate(value, reason="undefined here or at the baseline")
        low, high = value_range(metric, len(self.class_names))
        room = high - low
        if metric in BOUNDED_MEANS:
            differences = worse * (_mean_per_image(cells, metric) - _mean_per_image(baseline_cells, metric))
            interval = mean_interval(differences.clip(-room, room), self.objects, -room, room, confidence)
            return Estimate(value, interval.lo, interval.hi, interval.reason, f"paired {interval.method}")
        difference = worse * (_resampled(cells, metric) - _resampled(baseline_cells, metric))
        bounded = bootstrap_estimate(value, difference, self.group_count, confidence, (-room, room))
        return replace(bounded, method="paired group bootstrap")

    def row(self, where: Mapping[str, Any], metric: str, estimate: Estimate) -> dict[str, Any]:
        """An estimate as a row of a table."""
        return estimate.row(where, metric, len(self.ids), self.group_count)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol, from stored readouts alone."""
        rows = {
            "": _cell_rows(self),
            "_by_shift": _average_rows(self, "model", "shift"),
            "_by_level": _average_rows(self, "model", "level"),
            "_overall": _average_rows(self, "model"),
            "_severity": _severity_rows(self),
            "_repeats": _repeat_rows(self),
            "_recall": _recall_rows(self),
            "_confusion": _confusion_rows(self),
            "_reliability": _reliability_rows(self),
        }
        corrupted = pd.DataFrame(corruption_error.corruption_error_rows(self))
        tables = {f"{NAME}{suffix}": pd.DataFrame(part) for suffix, part in rows.items()}
        return tables if corrupted.empty else {**tables, corruption_error.NAME: corrupted}

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """A gallery of the shifts with the answers to it, and the most confident mistakes."""
        tables = {**save_gallery(self, cases, media), "mistakes": save_mistakes(self, cases, media)}
        return {f"{NAME}_{name}": table for name, table in tables.items()}

    def compare(self, other: Self, before: Compared, after: Compared, metrics: Sequence[str]) -> Iterator[PairedChange]:
        """Every shift at every level by each of the metrics; both must have been tested on the same images."""
        if self.ids != other.ids or self.groups != other.groups or not np.array_equal(self.labels, other.labels):
            raise InputError(f"{before} and {after} were tested on other images: they cannot be paired")
        shown = [_conditions(system) for system in (before, after)]
        for condition, level in dict.fromkeys([*shown[0], *shown[1]]):
            key_before, key_after = (CellKey(system.model, condition, level) for system in (before, after))
            obstacle = not_paired((before, after), shown, (condition, level))
            obstacle = obstacle or self.failures.get(key_before, "") or other.failures.get(key_after, "")
            for metric in metrics:
                change = PairedChange(condition, level, metric, reason=obstacle)
                yield change if obstacle else self._changed(change, self.cells[key_before], other.cells[key_after])

    def _changed(self, change: PairedChange, before: Cell, after: Cell) -> PairedChange:
        metric = change.metric
        values = [cell.values[metric] for cell in (before, after)]
        change = replace(change, before=mean_defined(values[0]), after=mean_defined(values[1]))
        change = replace(change, n=len(self.ids), groups=self.group_count)
        if metric in before.resampled:
            return by_bootstrap(change, before.resampled[metric], after.resampled[metric])
        if metric == "accuracy" and len(values[0]) == len(values[1]) == 1:
            return by_mcnemar(change, before.per_image[metric], after.per_image[metric], self.objects)
        return self._flipped(change, before, after)

    def _flipped(self, change: PairedChange, before: Cell, after: Cell) -> PairedChange:
        """Add the test of a mean over images: the signs of its paired differences are flipped object by object."""
        metric = change.metric
        name, factor = ("brier", 1 / len(self.class_names)) if metric == "brier_mean" else (metric, 1.0)
        differences = (after.per_image[name].astype(np.float64) - before.per_image[name]) * factor
        room = 2.0 * factor if name == "brier" else 1.0
        interval = mean_interval(differences.clip(-room, room), self.objects, -room, room)
        if metric == "accuracy":
            differences = np.rint(differences * math.lcm(*(len(cell.values[metric]) for cell in (before, after))))
        sums = np.bincount(self.objects, differences, self.group_count)
        if metric != "accuracy":
            sums = np.rint(sums / max(float(np.abs(sums).max()), 1e-300) * SIGN_FLIP_STEPS)
        p = sign_flip_p(int(sums.sum()), np.abs(sums))
        change = replace(change, change=change.after - change.before, lo=interval.lo, hi=interval.hi)
        return replace(change, p=p, method="sign flips by group")

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion: a measurement per cell, or one for all where `over` is pooled."""
        matching = select(self.keys, criterion)
        selections = [matching] if criterion.over == "pooled" else [[key] for key in matching]
        return [self._measurement(keys, criterion, confidence) for keys in selections]

    def _measurement(self, keys: list[CellKey], criterion: Criterion, confidence: float) -> Measurement:
        metric = criterion.metric
        if metric.endswith("_drop"):
            baseline = [CellKey(model, UNDISTURBED, 0) for model in dict.fromkeys(key.model for key in keys)]
            estimate = self.drop(keys, baseline, metric.removesuffix("_drop"), confidence)
        else:
            estimate = self.estimate(keys, metric, confidence)
        where = keys[0].where() if len(keys) == 1 else {"conditions": f"{len(keys)} pooled"}
        return estimate.measurement(where, metric, len(self.ids), self.group_count)


def _conditions(system: Compared) -> dict[tuple[str, int], str]:
    """What a system was shown, by shift and level: the data, the parameters of the shift and its code.

    The model that an attack was made against does not count: each is attacked itself, in the same way.
    """
    shown = [case.stimulus for case in system.shown(NAME)]
    parameters = [{name: value for name, value in s.parameters.items() if name != "attacked"} for s in shown]
    return {(s.name, s.level): f"{s.data} {sorted(p.items())} {s.code}" for s, p in zip(shown, parameters, strict=True)}


def metric_names() -> list[str]:
    """The metrics a criterion may name."""
    return [*METRICS, *(f"{name}_drop" for name in METRICS if HIGHER_IS_BETTER[name] is not None)]


def select(keys: Iterable[CellKey], criterion: Criterion) -> list[CellKey]:
    """The cells that match a criterion; a name or value that matches nothing is an error."""
    label = f"criterion {criterion.id}"
    if criterion.metric not in metric_names():
        raise InputError(f"{label}: {UnknownName('metric', criterion.metric, metric_names())}")
    of_drop = criterion.metric.endswith("_drop")
    chosen = [key for key in keys if not of_drop or key.shift != UNDISTURBED]
    return matching(label, chosen, ("model", "shift", "level"), criterion)


_Rows = Iterator[dict[str, Any]]


def _estimates(evidence: Evidence, where: dict[str, Any], keys: Sequence[CellKey], baseline: CellKey) -> _Rows:
    for metric in METRICS:
        yield evidence.row(where, metric, evidence.estimate(keys, metric))
    if baseline not in keys:
        yield from _drops(evidence, where, keys, baseline)


def _drops(evidence: Evidence, where: dict[str, Any], keys: Sequence[CellKey], baseline: CellKey) -> _Rows:
    for metric, direction in HIGHER_IS_BETTER.items():
        if direction is not None:
            yield evidence.row(where, f"{metric}_drop", evidence.drop(keys, [baseline], metric))


def _cell_rows(evidence: Evidence) -> _Rows:
    for key in evidence.keys:
        yield from _estimates(evidence, key.where(), [key], CellKey(key.model, UNDISTURBED, 0))


def _disturbed(evidence: Evidence, *columns: str) -> dict[tuple[Any, ...], tuple[CellKey, ...]]:
    """All disturbed cells by the values that they share in the columns."""
    disturbed = [key for key in evidence.keys if key.shift != UNDISTURBED]
    return grouped((tuple(getattr(key, column) for column in columns), key) for key in disturbed)


def _average_rows(evidence: Evidence, *columns: str) -> _Rows:
    """Averages over all disturbed cells that share the columns."""
    for values, keys in _disturbed(evidence, *columns).items():
        where = {**dict(zip(columns, values, strict=True)), "cases": len(keys)}
        yield from _estimates(evidence, where, keys, CellKey(keys[0].model, UNDISTURBED, 0))


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
    if not len(hits):
        nothing = dict.fromkeys(("value", "lo", "hi"), math.nan)
        return {**nothing, "n": 0, "groups": 0, "reason": "no image of this class"}
    interval = proportion_interval(hits.astype(np.float64), objects, CONFIDENCE)
    bounds = {"value": interval.value, "lo": interval.lo, "hi": interval.hi}
    return {**bounds, "n": len(hits), "groups": interval.groups, "reason": ""}


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


def _stacked(repeats: Sequence[Answers]) -> Answers:
    """The answers of all repeats one after the other (for pictures; never for bounds)."""
    columns = [column.name for column in fields(Answers) if column.name != "num_classes"]
    stacked = {name: np.concatenate([getattr(answers, name) for answers in repeats]) for name in columns}
    return Answers(**stacked, num_classes=repeats[0].num_classes)


def _mean(cells: Sequence[Cell], metric: str) -> float:
    return mean_defined([mean_defined(cell.values[metric]) for cell in cells])


def _resampled(cells: Sequence[Cell], metric: str) -> NDArray[np.float64]:
    return mean_rows([cell.resampled[metric] for cell in cells])


def _mean_per_image(cells: Sequence[Cell], metric: str) -> NDArray[np.float64]:
    return np.asarray(np.mean([cell.per_image[metric] for cell in cells], axis=0, dtype=np.float64))
