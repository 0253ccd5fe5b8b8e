"""Classification by the user's conditions: the same figures over the images that show a value, bounded by its objects.

What is a mean over images is in the tables for every model, shift and level. What is not (AUROC, ECE, ...) must be
resampled inside each slice, for each column of the data as long as the whole table takes: tables have it for
undisturbed data alone, and a criterion gets it for whatever it asks for.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from roadworthy.core.types import UNDISTURBED
from roadworthy.metrics import Metric
from roadworthy.protocols.classification import table_specs
from roadworthy.protocols.classification.stopped import NOT_SLICED
from roadworthy.protocols.condition_slices import NO_IMAGE, Rows
from roadworthy.statistics.estimates import bounding_bootstrap
from roadworthy.statistics.summaries import MetricSummary, summarise_metrics

if TYPE_CHECKING:
    from roadworthy.core.tables import TableSpec
    from roadworthy.protocols.classification.summaries import AnswerSummary
    from roadworthy.protocols.classification.tables import CellKey, Evidence


def within(evidence: Evidence, rows: Rows, metrics: Sequence[Metric], keys: Sequence[CellKey]) -> Evidence:
    """The evidence of some images alone, by their rows: of these metrics and cells, those that failed apart.

    An object counts once inside a slice, however many of its images are there; one that is seen in several slices
    counts in each. Of a cell that was judged while answers came in there is nothing: no bounds hold for a part of it.
    """
    part = copy.copy(evidence)
    part.looks, part.watched = None, {}
    part.ids, part.groups = (tuple(texts[row] for row in rows) for texts in (evidence.ids, evidence.groups))
    part.labels = evidence.labels[rows]
    objects, part.objects = np.unique(evidence.objects[rows], return_inverse=True)
    part.group_count = len(objects)
    whole = [evidence.bounded_by(metric)[0] for metric in metrics]
    drawn = [metric for metric in whole if not metric.mean_over_objects]
    done = [key for key in dict.fromkeys(keys) if key in evidence.cells]
    read = [key for key in done if key not in evidence.watched]
    cells = {key: _means(evidence.cells[key], rows, whole) for key in read}
    cells |= {key: _not_read(whole) for key in done if key in evidence.watched}
    if drawn and read and len(rows):
        bootstrap = bounding_bootstrap(part.objects, evidence.resamples, evidence.seed)
        for key in read:
            answers = [of_repeat.take(rows) for of_repeat in evidence.answers(key)]
            cells[key] = _joined(cells[key], summarise_metrics(answers, drawn, bootstrap))
    part.cells = cast("dict[CellKey, AnswerSummary]", cells)  # of a slice nothing but its metrics is read
    return part


def _means(cell: MetricSummary, rows: Rows, metrics: Sequence[Metric]) -> MetricSummary:
    """What is kept of a cell of some rows, of the metrics that are means over images; of none where there is no row."""
    names = [metric.name for metric in metrics if metric.mean_over_objects]
    kept = [name for name in names if name in cell.per_image and len(rows)]
    per_image = {name: cell.per_image[name][rows] for name in kept}
    missing = {} if len(rows) else {metric.name: NO_IMAGE for metric in metrics}
    return MetricSummary(
        per_image=per_image,
        values={metric.name: [math.nan] for metric in metrics}
        | {name: [float(values.mean(dtype=np.float64))] for name, values in per_image.items()},
        resampled={},
        missing={name: cell.missing[name] for name in names if name in cell.missing} | missing,
        no_bounds={},
    )


def _not_read(metrics: Sequence[Metric]) -> MetricSummary:
    """A cell that is not broken down."""
    names = [metric.name for metric in metrics]
    return MetricSummary(
        per_image={},
        values={name: [math.nan] for name in names},
        resampled={},
        missing=dict.fromkeys(names, NOT_SLICED),
        no_bounds={},
    )


def _joined(means: MetricSummary, drawn: MetricSummary) -> MetricSummary:
    """Two summaries of the same cell, of different metrics."""
    return MetricSummary(**{name: {**own, **getattr(drawn, name)} for name, own in vars(means).items()})


def condition_tables(evidence: Evidence) -> dict[TableSpec, list[dict[str, Any]]]:
    """The tables by condition, and that of all columns of the data; none where nothing is broken down."""
    slicing = evidence.slicing
    if not slicing:
        return {}
    tables = {
        table_specs.BY_CONDITION: list[dict[str, Any]](),
        table_specs.BY_CONDITION_OVERALL: list[dict[str, Any]](),
        table_specs.CONDITION_COLUMNS: [*slicing.column_rows()],
    }
    for condition, value in slicing.breakdown.values() if not slicing.failure else ():
        rows, where = slicing.rows({condition: (value,)}, evidence.ids), {"condition": condition}
        where["condition_value"] = value
        tables[table_specs.BY_CONDITION] += _cell_rows(evidence, rows, where)
        tables[table_specs.BY_CONDITION_OVERALL] += _overall_rows(evidence, rows, where)
    for spec in (table_specs.BY_CONDITION, table_specs.BY_CONDITION_OVERALL):
        order = {model: index for index, model in enumerate(dict.fromkeys(key.model for key in evidence.keys))}
        tables[spec].sort(key=lambda row: order[row["model"]])
    return tables


def mean_metrics(metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics that tables have by condition for every cell: means over images of which one way is better.

    One that is a multiple of another is left out: it says the same.
    """
    means = [metric for metric in metrics if metric.mean_over_objects and metric.multiple_of not in metrics]
    return [metric for metric in means if metric.higher_is_better is not None]


def _cell_rows(evidence: Evidence, rows: Rows, where: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Every cell inside a slice by every mean over images; undisturbed data by every metric."""
    means = mean_metrics(evidence.metrics)
    clean = [key for key in evidence.keys if key.shift == UNDISTURBED]
    slices = {
        False: within(evidence, rows, means, evidence.keys),
        True: within(evidence, rows, evidence.metrics, clean),
    }
    for key in evidence.keys:
        undisturbed = key.shift == UNDISTURBED
        for metric in evidence.metrics if undisturbed else means:
            yield slices[undisturbed].estimate([key], metric).row({**key.where(), **where}, metric.name)


def _overall_rows(evidence: Evidence, rows: Rows, where: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Per model the mean over all shifts and levels inside a slice, and its drop against undisturbed images of it."""
    means = mean_metrics(evidence.metrics)
    part = within(evidence, rows, means, evidence.keys)
    for model in dict.fromkeys(key.model for key in evidence.keys):
        own = [key for key in evidence.keys if key.model == model]
        clean, disturbed = ([key for key in own if (key.shift == UNDISTURBED) is which] for which in (True, False))
        named = {"model": model, **where, "cases": len(disturbed)}
        for metric in means if disturbed else ():
            yield part.estimate(disturbed, metric).row(named, metric.name)
        for metric in means if disturbed and clean else ():
            yield part.drop(disturbed, clean, metric).row(named, metric.drop().name)
