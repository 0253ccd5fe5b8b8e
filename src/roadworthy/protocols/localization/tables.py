"""Evidence of localization: every table and every measurement, from stored answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.grouping import grouped
from roadworthy.engine.plan import PlannedCase
from roadworthy.metrics import Metric, find_metric
from roadworthy.metrics.base import DROP
from roadworthy.protocols import base
from roadworthy.protocols.base import Part, RefusedCriterion, StoredCase, matching
from roadworthy.protocols.localization import details, table_specs
from roadworthy.protocols.localization.cells import METRICS_OF, Cell, CellKey, SetRows, StoredSet, make_cell
from roadworthy.protocols.localization.gallery import save_sets
from roadworthy.protocols.localization.live import timed
from roadworthy.protocols.localization.metrics import METRICS, TASK_OF
from roadworthy.protocols.localization.names import ALL, ANSWERS, BOXES, CLASSES, CONDITIONS, HULL, NAME, TEST
from roadworthy.protocols.localization.settings import Context, SetNote, Settings
from roadworthy.protocols.localization.views import View
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import CONFIDENCE, failed_estimate, no_estimate
from roadworthy.verdict import Criterion, Measurement

Rows = Iterator[dict[str, Any]]
CONDITION_COLUMNS = ("model", "family", "uncertainty", "set", "shift", "level", "view")
"""What a criterion may choose by."""


def cell_keys(context: Context) -> list[CellKey]:
    """Every cell of a source: all sets of every model, then the further views of labelled sets."""
    keys = []
    for model, note in context.models.items():
        for name, of_set in context.sets.items():
            where = (model, note.family, note.uncertainty, name, of_set.shift, of_set.level)
            keys += [CellKey(*where, view) for view in (ALL, *(context.views if _has_views(of_set) else ()))]
    return keys


def _has_views(note: SetNote) -> bool:
    """Whether the classes of a set can be looked at in another way than its own."""
    return note.labelled and not note.merge


def view_of(name: str, note: SetNote, settings: Settings, class_names: Sequence[str]) -> View:
    """The classes that count in a view of a set."""
    if name == ALL:
        return View(tuple(class_names), merge=note.merge)
    chosen = settings.views[name]
    return View(tuple(class_names), tuple(chosen.only), chosen.merge)


class Evidence(base.Evidence):
    """What the stored cases of one source say. One resampling serves all models of a set, so they are paired."""

    def __init__(
        self, part: Part, settings: Settings, *, seed: int = 0, workers: int = 1, resamples: int | None = None
    ) -> None:
        self.context: Context = part.context
        self.class_names, self.settings, self.seed = tuple(part.class_names), settings, seed
        self.workers, self.resamples = workers, resamples or settings.resamples
        answers = [case for case in part.cases if case.labels["role"] == ANSWERS]
        self.cases: dict[tuple[str, str], tuple[StoredCase, ...]] = grouped(
            ((case.system, case.labels["set"]), case) for case in answers
        )
        conditions = [case for case in part.cases if case.labels["role"] == CONDITIONS]
        self.conditions = {case.labels["set"]: case for case in conditions if not case.failure}
        self.keys = cell_keys(self.context)

    @cached_property
    def completed(self) -> Context:
        """The context with what searches found, which was not known when it was stored."""
        return details.with_found_settings(self.context, self._artifact)

    @cached_property
    def failures(self) -> dict[tuple[str, str], str]:
        """Why a model has no answers to a set, by both."""
        failed = {key: [case.failure for case in cases if case.failure] for key, cases in self.cases.items()}
        return {key: reasons[0] for key, reasons in failed.items() if reasons}

    @cached_property
    def stored(self) -> dict[tuple[str, str], StoredSet]:
        """The stored answers of every model to every set."""
        return {
            key: StoredSet(sorted(cases, key=lambda case: case.stimulus.repeat))
            for key, cases in self.cases.items()
            if key not in self.failures
        }

    @cached_property
    def images(self) -> dict[str, SetRows]:
        """The images of every set that any model answered."""
        images: dict[str, SetRows] = {}
        for (_, name), stored in self.stored.items():
            if name not in images:
                images[name] = details.set_rows(stored, self.context.sets[name], self.resamples, self.seed)
        return images

    @cached_property
    def cells(self) -> dict[CellKey, Cell]:
        """What the answers come to, by model, set and view."""
        known = [key for key in self.keys if (key.model, key.set) in self.stored]
        images = self.images

        def make(key: CellKey) -> Cell:
            return make_cell(self.stored[key.model, key.set], images[key.set], self._view(key), key.view)

        with ThreadPoolExecutor(self.workers) as pool:
            return dict(zip(known, pool.map(make, known), strict=True))

    def lost(self) -> str:
        """Why no model has answers to any set."""
        return "" if self.stored else next(iter(self.failures.values()), "no model was asked")

    def estimate(self, keys: Sequence[CellKey], metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """A metric in a cell, or its mean over cells that show the same images; bounds count objects."""
        task = TASK_OF[metric.name]
        if lacking := self._lacking(keys, task):
            return lacking
        own = [self.cells[key].tasks[task] for key in keys]
        shown = {
            (self.context.sets[key.set].outliers, cell.rows.tobytes()) for key, cell in zip(keys, own, strict=True)
        }
        if len(shown) > 1:
            return no_estimate("the images differ, so that no mean over them is bounded")
        estimate = own[0].objects.estimate([cell.summary for cell in own], metric, confidence)
        return estimate.over(len(own[0].rows), own[0].objects.count)

    def drop(self, key: CellKey, metric: Metric, confidence: float = CONFIDENCE) -> Estimate:
        """How much worse a metric is than on the undisturbed test data, on the same images: positive is worse."""
        task, clean = TASK_OF[metric.name], CellKey(key.model, key.family, key.uncertainty, TEST, "none", 0, key.view)
        if lacking := self._lacking([key, clean], task):
            return lacking
        shifted, undisturbed = (self.cells[one].tasks[task] for one in (key, clean))
        if not np.array_equal(shifted.rows, undisturbed.rows):
            gone = len(undisturbed.rows) - len(shifted.rows)
            return no_estimate(f"in {gone} images the object left the picture, so that the images cannot be paired")
        estimate = shifted.objects.drop([shifted.summary], [undisturbed.summary], metric, confidence)
        return estimate.over(len(shifted.rows), shifted.objects.count)

    def _lacking(self, keys: Sequence[CellKey], task: str) -> Estimate | None:
        """The estimate of a task that one of the cells has no figures of, with the reason; None where all have them."""
        for key in keys:
            if (key.model, key.set) in self.failures:
                return failed_estimate(self.failures[key.model, key.set])
            if task not in self.cells[key].tasks:
                return no_estimate(self.cells[key].missing.get(task, f"this model answers no {task}"))
        return None

    def metrics_of(self, key: CellKey) -> list[Metric]:
        """The metrics of what a model answers."""
        return [metric for task in self.context.models[key.model].tasks for metric in METRICS_OF[task]]

    def _cell_rows(self) -> Rows:
        for key in self.keys:
            for metric in self.metrics_of(key):
                yield self.estimate([key], metric).row(key.where(), metric.name)
            if key.set != TEST and self.context.sets[key.set].own_images:
                for metric in self.metrics_of(key):
                    if metric.higher_is_better is not None:
                        yield self.drop(key, metric).row(key.where(), metric.drop().name)

    def _repeat_rows(self) -> Rows:
        for key, cell in self.cells.items():
            if key.view != ALL:
                continue
            for of_task in cell.tasks.values():
                for name, values in of_task.summary.values.items():
                    where = {**key.of_model, "set": key.set, "metric": name}
                    yield from ({**where, "repeat": repeat, "value": value} for repeat, value in enumerate(values))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol, from stored answers alone."""
        distances = details.distances(self.conditions, self.context)
        rows: dict[Any, Any] = {
            table_specs.CELLS: self._cell_rows(),
            table_specs.MODELS: details.model_rows(self.completed),
            table_specs.SETS: details.set_table(self.context, self.images),
            table_specs.REPEATS: self._repeat_rows(),
            table_specs.BY_SIZE: details.size_rows(
                self.cells, self.stored, self.images, min(self.context.size), distances
            ),
            table_specs.RELIABILITY: details.reliability_rows(
                self.cells, self.stored, self._view, self.context.by_coordinate
            ),
            table_specs.SPARSIFICATION: details.sparsification_rows(self.cells, self.stored, self._view),
        }
        if trials := [*details.search_rows(self.context, self._artifact)]:
            rows[table_specs.SEARCH] = trials
        return {spec.name: spec.frame(part) for spec, part in rows.items()}

    def _view(self, key: CellKey) -> View:
        return view_of(key.view, self.context.sets[key.set], self.settings, self.class_names)

    def _artifact(self, recipe: str) -> Path:
        return next(iter(self.cases.values()))[0].artifact(recipe)

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion: a measurement per cell, or one for all where `over` is pooled."""
        chosen = select(self.keys, criterion, self.context)
        metric = find_metric(criterion.metric, METRICS)
        selections = [chosen] if criterion.over == "pooled" else [[key] for key in chosen]
        measured = []
        for keys in selections:
            if metric.drop_of:
                estimate = self.drop(keys[0], metric.drop_of, confidence)
            else:
                estimate = self.estimate(keys, metric, confidence)
            where = keys[0].where() if len(keys) == 1 else {"conditions": f"{len(keys)} pooled"}
            measured.append(Measurement(where, estimate, proportion=metric.proportion))
        return measured

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """A few images of every set with their true boxes, and what the models answered to them."""
        sets, answers = save_sets(self, cases, media)
        rows = {table_specs.GALLERY: sets, table_specs.GALLERY_ANSWERS: answers}
        return {spec.name: spec.frame(own) for spec, own in rows.items()}

    def live(self, cases: Sequence[PlannedCase], earlier: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """What every model costs per image."""
        return timed(self.completed, self.settings.timed_images, cases, earlier)


def select(keys: Sequence[CellKey], criterion: Criterion, context: Context) -> list[CellKey]:
    """The cells that match a criterion; one that matches nothing, or asks for what has no truth, is an error."""
    known = [*(metric.name for metric in METRICS)]
    known += [metric.drop().name for metric in METRICS if metric.higher_is_better is not None]
    if criterion.metric not in known:
        raise InputError(f"criterion {criterion.id}: {UnknownName('metric', criterion.metric, known)}")
    of_drop = criterion.metric.endswith(DROP)
    task = TASK_OF[criterion.metric.removesuffix(DROP)]
    able = [key for key in keys if task in context.models[key.model].tasks]
    if not able:
        raise InputError(f"criterion {criterion.id}: no model answers {task}, so that {criterion.metric} has no value")
    if of_drop:
        able = [key for key in able if key.set != TEST and context.sets[key.set].own_images]
    if task == CLASSES:
        able = [key for key in able if context.sets[key.set].labelled]
    else:
        able = [key for key in able if context.sets[key.set].truth]
    if "view" not in criterion.where:
        able = [key for key in able if key.view == ALL]
    chosen: list[CellKey] = matching(f"criterion {criterion.id}", able, CONDITION_COLUMNS, criterion)
    if criterion.over == "pooled":
        _check_pooled(chosen, criterion, context)
    turned = [key.set for key in chosen if context.sets[key.set].truth == HULL]
    if task == BOXES and turned and not context.hull_truth:
        raise RefusedCriterion(
            f"criterion {criterion.id}: the true boxes of set {turned[0]} are the hulls of turned boxes, which are too "
            f"large for a criterion on {criterion.metric}: give masks, leave the set out, or say hull_truth: true "
            f"under {NAME}"
        )
    return chosen


def _check_pooled(chosen: Sequence[CellKey], criterion: Criterion, context: Context) -> None:
    """Refuse a mean over sets that do not show the same images, or of drops: neither can be bounded by objects."""
    if criterion.metric.endswith(DROP):
        raise RefusedCriterion(f"criterion {criterion.id}: a drop is judged set by set: say over: each or worst")
    by_images = {context.sets[key.set].outliers: key.set for key in chosen}
    if len(by_images) > 1:
        one, other = [*by_images.values()][:2]
        raise RefusedCriterion(
            f"criterion {criterion.id}: sets {one} and {other} show different images, so that no mean over them is "
            "bounded: say over: each or worst, or name sets of the same images"
        )
