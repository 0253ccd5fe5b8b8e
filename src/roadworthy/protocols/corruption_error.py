"""Mean corruption error of a run: every model against every other as the reference, with bounds by objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.types import UNDISTURBED
from roadworthy.metrics import mean_corruption_error, relative_corruption_error
from roadworthy.protocols.estimates import RESAMPLES, Estimate, bootstrap_bounds
from roadworthy.shifts.corruptions import COMMON
from roadworthy.statistics import GroupBootstrap

if TYPE_CHECKING:
    from roadworthy.protocols.classification import CellKey, Evidence

NAME = "corruption_error"
MEAN = "mean"
METRICS = ("mce", "relative_mce")


def corruption_error_rows(evidence: Evidence) -> Iterator[dict[str, Any]]:
    """A row per model, reference, metric and corruption (and `mean` over them), for the 15 common corruptions.

    `mce` and `relative_mce` as in `roadworthy.metrics`: 1 is as good as the reference, lower is better. `corruptions`
    says over how many of the 15, `levels` over which severities; cells that not both models have are left out of both.
    Nothing where the run has fewer than two models or no corruption.
    """
    models = list(dict.fromkeys(key.model for key in evidence.cells))
    cells: dict[tuple[str, str], dict[int, CellKey]] = {}
    for key in evidence.cells:
        cells.setdefault((key.model, key.shift), {})[key.level] = key
    if len(models) < 2 or not any(shift in COMMON for _, shift in cells):
        return
    rates = _rates(evidence)
    for model in models:
        for reference in models:
            if model == reference:
                continue
            shared = {
                shift: sorted(cells.get((model, shift), {}).keys() & cells.get((reference, shift), {}).keys())
                for shift in COMMON
            }
            shared = {shift: levels for shift, levels in shared.items() if levels}
            if shared:
                yield from _rows(evidence, rates, cells, shared, model, reference)


def _rates(evidence: Evidence) -> dict[CellKey, NDArray[np.float64]]:
    """The error rate of every cell: of all images first, then of every resample of objects, (1 + B,)."""
    keys = [key for key in evidence.cells if key.shift in (UNDISTURBED, *COMMON)]
    errors = 1 - np.stack([evidence.cells[key].per_image["accuracy"] for key in keys], axis=1)
    bootstrap = GroupBootstrap(evidence.objects, resamples=RESAMPLES, seed=evidence.seed)
    found = [errors.mean(axis=0, dtype=np.float64)[None]]
    found += [weights @ errors / weights.sum(axis=1, keepdims=True) for weights in bootstrap.chunks()]
    return dict(zip(keys, np.concatenate(found).clip(0, 1).T, strict=True))


def _rows(
    evidence: Evidence,
    rates: Mapping[CellKey, NDArray[np.float64]],
    cells: Mapping[tuple[str, str], Mapping[int, CellKey]],
    shared: Mapping[str, Sequence[int]],
    model: str,
    reference: str,
) -> Iterator[dict[str, Any]]:
    def table(name: str, place: int) -> dict[str, list[float]]:
        return {s: [float(rates[cells[name, s][level]][place]) for level in levels] for s, levels in shared.items()}

    def clean(name: str, place: int) -> float:
        return float(rates[cells[name, UNDISTURBED][0]][place])

    for metric in METRICS:
        if metric == "mce":
            found = [mean_corruption_error(table(model, b), table(reference, b)) for b in range(RESAMPLES + 1)]
        elif (model, UNDISTURBED) in cells and (reference, UNDISTURBED) in cells:
            found = [
                relative_corruption_error(table(model, b), clean(model, b), table(reference, b), clean(reference, b))
                for b in range(RESAMPLES + 1)
            ]
        else:
            continue
        for shift in (MEAN, *shared):
            values = np.array([each.value if shift == MEAN else each.by_corruption[shift] for each in found])
            reason = found[0].reason if shift == MEAN else found[0].reasons.get(shift, "")
            lo = hi = math.nan
            if not reason:
                bounds = (-math.inf if metric == "relative_mce" else 0.0, math.inf)
                lo, hi, reason = bootstrap_bounds(values[0], values[1:], evidence.group_count, 0.95, bounds)
            levels = shared[shift] if shift != MEAN else sorted({level for each in shared.values() for level in each})
            where = {
                "model": model,
                "reference": reference,
                "shift": shift,
                "corruptions": len(shared) if shift == MEAN else 1,
                "levels": " ".join(map(str, levels)),
            }
            yield evidence.row(where, metric, Estimate(float(values[0]), lo, hi, reason, "paired group bootstrap"))
