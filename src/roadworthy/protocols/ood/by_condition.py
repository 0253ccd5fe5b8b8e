"""Outliers by the user's conditions: every set against the in-distribution images that show one value."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from roadworthy.engine.readouts import Readouts
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.condition_slices import NO_IMAGE, Slice, Slicing, slice_where
from roadworthy.protocols.ood import table_specs
from roadworthy.protocols.ood.gan_bounds import GanKey
from roadworthy.protocols.ood.metrics import METRICS
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.statistics.estimates import RESAMPLES, no_estimate
from roadworthy.verdict import Criterion, Measurement

if TYPE_CHECKING:
    from roadworthy.core.tables import TableSpec
    from roadworthy.protocols.ood.tables import Evidence

WHERE = tuple(GanKey.__dataclass_fields__)
"""What a criterion may say in `where` of a set, or of a GAN, besides conditions of the data."""


TABLE_RESAMPLES = 200
"""Resamples of a bound in tables by condition, which would else take as long as all sets for each column of the data.

A criterion draws as many as everywhere.
"""


def within(
    evidence: Evidence, chosen: Slice, sets: Collection[SetKey], resamples: int | None = None
) -> Evidence | None:
    """The evidence of some sets against the in-distribution images of a slice alone; None where it has no image."""
    if not len(evidence.slicing.rows(chosen)):
        return None
    shown = [_narrowed(case, evidence.slicing, chosen) for case in evidence.cases if _is_shown(case, sets)]
    drawing = evidence.drawing | ({"resamples": resamples} if resamples else {})
    return type(evidence)(shown, evidence.class_names, **drawing)


def _is_shown(case: StoredCase, sets: Collection[SetKey]) -> bool:
    """Whether it is an in-distribution side, which has no labels, or of one of the sets."""
    return not case.labels or ("ood_set" in case.labels and SetKey.of(case) in sets)


def _narrowed(case: StoredCase, slicing: Slicing, chosen: Slice) -> StoredCase:
    return case if case.labels else replace(case, load=partial(_taken, case, slicing, chosen))


def _taken(case: StoredCase, slicing: Slicing, chosen: Slice) -> Readouts:
    readouts = case.load()
    return readouts.take(slicing.rows(chosen, readouts.ids))


def measurements(
    evidence: Evidence, slices: Sequence[Slice], keys: Sequence[SetKey], criterion: Criterion, confidence: float
) -> Iterator[Measurement]:
    """What a criterion is told of sets, or of single GANs, in each of the slices that it asks for."""
    sets = {key.of_set() if isinstance(key, GanKey) else key for key in keys}
    for chosen in slices:
        failure = evidence.slicing.failure
        part = None if failure else within(evidence, chosen, sets)
        for key in keys:
            measured = Measurement({"model": key.model, "ood_set": key.ood_set}, no_estimate(failure or NO_IMAGE))
            if part is not None:
                measured = part.measurement(key, criterion, confidence)
            yield replace(measured, where={**measured.where, **slice_where(chosen, WHERE)})


def condition_tables(evidence: Evidence) -> dict[TableSpec, list[dict[str, Any]]]:
    """Every set against the images of each value of each condition, and all columns of the data; none without these."""
    slicing = evidence.slicing
    if not slicing:
        return {}
    rows, resamples = [], min(TABLE_RESAMPLES, evidence.drawing["resamples"] or RESAMPLES)
    for condition, value in slicing.breakdown.values() if not slicing.failure else ():
        part = within(evidence, {condition: (value,)}, evidence.keys, resamples)
        for key in evidence.keys:
            where = {**key.where(), "condition": condition, "condition_value": value}
            for metric in METRICS:
                estimate = no_estimate(NO_IMAGE) if part is None else part.estimate(key, metric.name)
                if estimate.method:
                    estimate = replace(estimate, method=f"{estimate.method}, {resamples} resamples")
                rows.append(estimate.row(where, metric.name) | evidence.unit(key))
    return {table_specs.BY_CONDITION: rows, table_specs.CONDITION_COLUMNS: [*slicing.column_rows()]}
