"""The tables of localization beside the main one: models, sets, sizes, reliability, sparsification, search."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.manifests import read_part
from roadworthy.engine.artifacts import read_artifact
from roadworthy.engine.conditions import CONDITION
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers, reliability
from roadworthy.metrics.box_uncertainty import COORDINATES
from roadworthy.metrics.boxes import box_reliability, iou, mae
from roadworthy.metrics.sparsification import sparsification
from roadworthy.models.perception import search
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.localization.cells import Cell, CellKey, SetRows, StoredSet, box_answers, box_rows
from roadworthy.protocols.localization.names import ALL, BOXES, CLASSES, DISTANCE, SIZE, TEST
from roadworthy.protocols.localization.settings import Context, SetNote
from roadworthy.protocols.localization.views import View
from roadworthy.statistics.estimates import no_estimate
from roadworthy.statistics.summaries import summarise_metrics

Rows = Iterator[dict[str, Any]]
Cells = Mapping[CellKey, Cell]
Stored = Mapping[tuple[str, str], StoredSet]
ViewOf = Callable[[CellKey], View]

SIZE_EDGES = (0.0, 0.25, 0.5, 0.75, math.inf)
"""Side of the object (the root of its box's area) as a share of the shorter side of the image."""
DISTANCE_EDGES = (0.0, 10.0, 20.0, 40.0, 80.0, math.inf)
"""Metres."""
BINNED = (iou, mae)
"""The metrics by size and distance."""


def set_rows(stored: StoredSet, note: SetNote, resamples: int, seed: int) -> SetRows:
    """The images of a set, as one model's readouts store them."""
    first = stored.readouts[0]
    images = SetRows(note, first.ids, first.groups, resamples, seed)
    if first.true_box is not None:
        images.without_box = len(first.ids) - len(box_rows(stored.readouts))
    if first.box_inflation is not None and not np.isnan(first.box_inflation).all():
        images.inflation = float(np.nanmean(first.box_inflation))
    return images


def with_found_settings(context: Context, artifact: Callable[[str], Path]) -> Context:
    """The context with what was not known before the run: settings that a search found, and the weights they led to.

    `artifact` gives the folder of an artifact by the hash of its recipe; where a search or a network failed, what it
    would have told stays unknown.
    """
    notes = {}
    for model, note in context.models.items():
        networks = [*_built(context.networks.get(model, ()), artifact)] if note.searches else []
        tasks = dict(note.tasks)
        for task, recipe in note.searches.items():
            result = _search_result(recipe, artifact)
            weights = [own["competence"]["weights"] for own in networks if own["parameters"].get("task") == task]
            counted = {"weights": weights[0] * tasks[task]["members"]} if weights else {}
            tasks[task] = {**tasks[task], **result["best"], **counted}
        notes[model] = note.model_copy(update={"tasks": tasks})
    return context.model_copy(update={"models": notes})


def _built(recipes: Sequence[str], artifact: Callable[[str], Path]) -> Iterator[dict[str, Any]]:
    """What is stored of those networks that could be built."""
    for recipe in recipes:
        with suppress(ModelError):
            stored = read_artifact(artifact(recipe))
            if "weights" in stored["competence"]:
                yield stored


def _search_result(recipe: str, artifact: Callable[[str], Path]) -> dict[str, Any]:
    """The best values and the trials of a search; none of either where it failed."""
    try:
        home = artifact(recipe)
    except ModelError:
        return {"best": {}, "trials": []}
    result: dict[str, Any] = json.loads(read_part(home, recipe, search.RESULT))
    return result


def model_rows(context: Context) -> Rows:
    """A row per model and task."""
    for model, note in context.models.items():
        where = {"model": model, "family": note.family, "uncertainty": note.uncertainty}
        for task, facts in note.tasks.items():
            yield {**where, "task": task, **facts}


def set_table(context: Context, images: Mapping[str, SetRows]) -> Rows:
    """A row per set."""
    for name, note in context.sets.items():
        content = note.model_dump(exclude={"own_images", "merge", "parameters", "classes"})
        parameters = json.dumps(note.parameters, sort_keys=True) if note.parameters else ""
        known = images.get(name)
        yield {
            "set": name,
            **content,
            "classes": ", ".join([*note.merge, *(c for c in note.classes if not _is_merged(c, note))]),
            "parameters": parameters,
            "inflation": known.inflation if known else math.nan,
            "without_box": known.without_box if known else 0,
        }


def _is_merged(name: str, note: SetNote) -> bool:
    return any(name in children for children in note.merge.values())


def distances(conditions: Mapping[str, StoredCase], context: Context) -> dict[str, NDArray[np.float64]]:
    """The distance of every object in metres, by set, where the images tell it; a shift changes none."""
    known = {}
    for name, note in context.sets.items():
        case = conditions.get(TEST if note.own_images else name)
        if case is None:
            continue
        with suppress(InputError):
            column = case.columns(CONDITION + DISTANCE)[CONDITION + DISTANCE]
            if column.dtype.kind in "iuf":
                known[name] = column.astype(np.float64)
    return known


def size_rows(
    cells: Cells,
    stored: Stored,
    images: Mapping[str, SetRows],
    shorter: int,
    distance: Mapping[str, NDArray[np.float64]],
) -> Rows:
    """IoU and MAE by the size of the object and, where it is known, by its distance; `shorter` side of the images."""
    for key, cell in cells.items():
        if key.view != ALL or BOXES not in cell.tasks:
            continue
        readouts, rows = stored[key.model, key.set].readouts, cell.tasks[BOXES].rows
        assert readouts[0].true_box is not None
        x0, y0, x1, y1 = readouts[0].true_box.T
        sorted_by: dict[str, tuple[NDArray[np.float64], tuple[float, ...]]] = {
            SIZE: (np.sqrt((x1 - x0) * (y1 - y0)) / shorter, SIZE_EDGES)
        }
        if key.set in distance:
            sorted_by[DISTANCE] = distance[key.set], DISTANCE_EDGES
        for by, (values, edges) in sorted_by.items():
            for low, high in pairwise(edges):
                inside = rows[(values[rows] >= low) & (values[rows] < high)]
                where = {**key.of_model, "set": key.set, "by": by, "from": low, "to": high}
                yield from _binned(where, readouts, inside, images[key.set])


def _binned(where: dict[str, Any], readouts: Sequence[Readouts], rows: NDArray[np.intp], images: SetRows) -> Rows:
    if not len(rows):
        yield from (no_estimate("no object of this kind").row(where, metric.name) for metric in BINNED)
        return
    bootstrap, objects = images.drawn(rows, 1)
    summary = summarise_metrics([box_answers(own, rows) for own in readouts], BINNED, bootstrap)
    for metric in BINNED:
        yield objects.estimate([summary], metric).over(len(rows), objects.count).row(where, metric.name)


def _first_answers(of_set: StoredSet, view: View) -> Answers:
    """The answers of the first repeat that count in a view; probabilities are read where classes are merged alone."""
    return view.answers(of_set.readouts[0].answers, of_set.probabilities()[0] if view.merge else None)


def reliability_rows(cells: Cells, stored: Stored, view_of: ViewOf, by_coordinate: bool) -> Rows:
    """What models promise and keep, in the first repeat: bins of confidence, and levels of quantiles of boxes.

    Of boxes coordinate by coordinate; in a run of an earlier version the mean of the four, which hides bias.
    """
    for key, cell in cells.items():
        if key.view != ALL:
            continue
        of_set, where = stored[key.model, key.set], {**key.of_model, "set": key.set}
        if CLASSES in cell.tasks:
            answers = _first_answers(of_set, view_of(key))
            bins = reliability(answers)
            for index in range(len(bins.count)):
                promised = {"expected": float(bins.confidence[index]), "observed": float(bins.accuracy[index])}
                count = int(bins.count[index])
                yield {**where, "task": CLASSES, "coordinate": "", "bin": index, **promised, "count": count}
        if BOXES in cell.tasks and of_set.readouts[0].box_variance is not None:
            rows = cell.tasks[BOXES].rows
            levels, observed = box_reliability(box_answers(of_set.readouts[0], rows))
            lines = dict(zip(COORDINATES, observed, strict=True)) if by_coordinate else {"": observed.mean(axis=0)}
            for coordinate, shares in lines.items():
                for index, (level, share) in enumerate(zip(levels, shares, strict=True)):
                    kept = {"bin": index, "expected": float(level), "observed": float(share), "count": len(rows)}
                    yield {**where, "task": BOXES, "coordinate": coordinate, **kept}


def sparsification_rows(cells: Cells, stored: Stored, view_of: ViewOf) -> Rows:
    """The mean error of the surest answers, in the first repeat: wrong classes by confidence, 1 - IoU by mean sigma."""
    for key, cell in cells.items():
        if key.view != ALL:
            continue
        of_set, where = stored[key.model, key.set], {**key.of_model, "set": key.set}
        curves = {}
        if CLASSES in cell.tasks:
            answers = _first_answers(of_set, view_of(key))
            curves[CLASSES] = (~answers.correct).astype(np.float64), -answers.score
        if BOXES in cell.tasks and of_set.readouts[0].box_variance is not None:
            own = box_answers(of_set.readouts[0], cell.tasks[BOXES].rows)
            curves[BOXES] = 1.0 - own.overlap, own.sigma
        for task, (error, uncertainty) in curves.items():
            for share, own_error, best in zip(*sparsification(error, uncertainty), strict=True):
                yield {**where, "task": task, "kept": float(share), "error": float(own_error), "oracle": float(best)}


def search_rows(context: Context, artifact: Callable[[str], Path]) -> Rows:
    """The trials of every search for settings."""
    for model, note in context.models.items():
        for task, recipe in note.searches.items():
            for trial in _search_result(recipe, artifact)["trials"]:
                yield {"model": model, "task": task, **trial}
