"""How much worse a model is than that of a baseline run, on the same objects: for criteria against a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roadworthy.metrics import Metric
from roadworthy.protocols.base import Compared
from roadworthy.protocols.changes import OTHER_IMAGES, not_paired, same_cases, worse_of_same_cases
from roadworthy.protocols.classification import by_condition
from roadworthy.protocols.classification.stopped import GrowingObjects
from roadworthy.protocols.classification.table_specs import CELL
from roadworthy.protocols.condition_slices import Slice, slice_where
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import no_estimate
from roadworthy.statistics.summaries import Objects
from roadworthy.verdict import Criterion, Measurement

if TYPE_CHECKING:
    from roadworthy.protocols.classification.tables import CellKey, Evidence


def where_of(keys: Sequence[CellKey]) -> dict[str, Any]:
    """The condition of cells that are judged together."""
    return keys[0].where() if len(keys) == 1 else {"conditions": f"{len(keys)} pooled"}


def worsening(
    own: Evidence,
    baseline: Evidence,
    systems: tuple[Compared, Compared],
    shown: Sequence[Mapping[tuple[str, float], str]],
    criterion: Criterion,
    metric: Metric,
) -> list[Measurement]:
    """The worsening of a metric in each cell that matches, or in all of them together; positive is worse.

    systems    that of the baseline, and this one;  shown   what each was shown, by shift and level

    Both evidences must have been drawn with the same seed, so that the same objects are resampled.
    """
    before, after = systems
    slices, selections = own.selections(criterion)
    alike = baseline.shown_alike(own)

    def measured(keys: Sequence[CellKey], chosen: Slice | None) -> Measurement:
        pairs = [(key, replace(key, model=before.model)) for key in keys]
        reasons = [] if alike else [OTHER_IMAGES]
        for key, key_before in pairs:
            reasons.append(not_paired(systems, shown, (key.shift, key.level)))
            reasons += [baseline.failures.get(key_before, ""), own.failures.get(key, "")]
        where, obstacle = where_of(keys), next(filter(None, reasons), "")
        if chosen is not None:
            where, obstacle = {**where, **slice_where(chosen, CELL)}, obstacle or own.slicing.failure
        if obstacle:
            return Measurement(where, no_estimate(f"not compared with the baseline: {obstacle}"))
        part, part_before = own, baseline
        if chosen is not None:
            rows = own.slicing.rows(chosen, own.ids)
            part, part_before = (
                by_condition.within(evidence, rows, [metric], [pair[side] for pair in pairs])
                for side, evidence in enumerate((own, baseline))
            )
        worse = Measurement(where, _worse(part, part_before, pairs, metric, after.confidence))
        same = all(same_cases(baseline.by_key[key_before], own.by_key[key]) for key, key_before in pairs)
        return worse_of_same_cases(worse) if same else worse

    wanted: list[Slice | None] = [*slices] or [None]
    return [measured(keys, chosen) for chosen in wanted for keys in selections]


def _worse(
    own: Evidence,
    baseline: Evidence,
    pairs: Sequence[tuple[CellKey, CellKey]],
    metric: Metric,
    confidence: float,
) -> Estimate:
    """The paired loss over cells of both, by `Objects.drop`."""
    whole, factor = own.bounded_by(metric)
    cells, cells_before = [own.cells[key] for key, _ in pairs], [baseline.cells[key] for _, key in pairs]
    objects, images = _objects(own, baseline, pairs), len(own.ids)
    if isinstance(objects, GrowingObjects):
        images = objects.counted
    estimate = objects.drop(cells, cells_before, whole, confidence)
    groups = objects.groups if isinstance(objects, GrowingObjects) else objects.count
    return estimate.scaled(factor).over(images, groups)


def _objects(own: Evidence, baseline: Evidence, pairs: Sequence[tuple[CellKey, CellKey]]) -> Objects:
    """The objects that all cells of both have in common, also where criteria were watching one of them."""
    looks = own.looks or baseline.looks
    watched = any(key in own.watched or key_before in baseline.watched for key, key_before in pairs)
    if looks is None or not watched:
        return Objects(own.objects, own.group_count, len(own.class_names))
    shown = min(min(own.lengths[key], baseline.lengths[key_before]) for key, key_before in pairs)
    longer = own if len(own.ids) >= len(baseline.ids) else baseline
    return GrowingObjects(longer.objects, longer.group_count, len(own.class_names), looks, shown)
