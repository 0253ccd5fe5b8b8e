"""Mean corruption error of a run: every model against every other as the reference, with bounds by objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.types import UNDISTURBED
from roadworthy.metrics import mean_corruption_error, relative_corruption_error
from roadworthy.protocols.classification.stopped import NO_BOUND
from roadworthy.shifts.corruptions import COMMON
from roadworthy.statistics import Estimate, GroupBootstrap
from roadworthy.statistics.estimates import CONFIDENCE, RESAMPLES, bootstrap_estimate

if TYPE_CHECKING:
    from roadworthy.protocols.classification.tables import CellKey, Evidence

MEAN = "mean"
METRICS = ("mce", "relative_mce")
Rates = dict[tuple[str, str], dict[float, NDArray[np.float64]]]


def corruption_error_rows(evidence: Evidence) -> Iterator[dict[str, Any]]:
    """A row per model, reference, metric and corruption (and `mean` over them), for the 15 common corruptions.

    `mce` and `relative_mce` as in `roadworthy.metrics`: 1 is as good as the reference, lower is better. `corruptions`
    says over how many of the 15, `levels` over which severities; a cell that one of the two models lacks is left out.
    There are no rows where the run has fewer than two models or no corruption.
    """
    models = list(dict.fromkeys(key.model for key in evidence.cells))
    if len(models) < 2 or not any(key.shift in COMMON for key in evidence.cells):
        return
    rates = _rates(evidence)
    for model, reference in permutations(models, 2):
        own, other = ({shift: rates.get((name, shift), {}) for shift in COMMON} for name in (model, reference))
        shared = {shift: levels for shift in COMMON if (levels := sorted(own[shift].keys() & other[shift].keys()))}
        if shared:
            yield from _rows(evidence, rates, shared, model, reference)


def _keys(evidence: Evidence) -> list[CellKey]:
    return [key for key in evidence.cells if key.shift in (UNDISTURBED, *COMMON)]


def _rates(evidence: Evidence) -> Rates:
    """The error rates by model and shift, then by level: of all images first, then of every resample, (1 + B,)."""
    keys = _keys(evidence)
    shown = evidence.counts(keys)[0]
    errors = 1 - np.stack([evidence.cells[key].per_image["accuracy"][:shown] for key in keys], axis=1)
    bootstrap = GroupBootstrap(evidence.objects[:shown], resamples=RESAMPLES, seed=evidence.seed)
    rows = [errors.mean(axis=0, dtype=np.float64)[None]]
    rows += [weights @ errors / weights.sum(axis=1, keepdims=True) for weights in bootstrap.chunks()]
    rates: Rates = {}
    for key, column in zip(keys, np.concatenate(rows).clip(0, 1).T, strict=True):
        rates.setdefault((key.model, key.shift), {})[key.level] = column
    return rates


def _rows(
    evidence: Evidence, rates: Rates, shared: Mapping[str, Sequence[float]], model: str, reference: str
) -> Iterator[dict[str, Any]]:
    def table(name: str, row: int) -> dict[str, list[float]]:
        return {s: [float(rates[name, s][level][row]) for level in levels] for s, levels in shared.items()}

    def clean(name: str, row: int) -> float:
        return float(rates[name, UNDISTURBED][0][row])

    growing, counts = evidence.growing(_keys(evidence)), evidence.counts(_keys(evidence))
    stopped = NO_BOUND if growing and growing.stopped else ""
    for metric in METRICS:
        if metric == "mce":
            errors = [mean_corruption_error(table(model, b), table(reference, b)) for b in range(RESAMPLES + 1)]
        elif (model, UNDISTURBED) in rates and (reference, UNDISTURBED) in rates:
            errors = [
                relative_corruption_error(table(model, b), clean(model, b), table(reference, b), clean(reference, b))
                for b in range(RESAMPLES + 1)
            ]
        else:
            continue
        for shift in (MEAN, *shared):
            values = np.array([error.value if shift == MEAN else error.by_corruption[shift] for error in errors])
            reason = (errors[0].reason if shift == MEAN else errors[0].reasons.get(shift, "")) or stopped
            estimate = Estimate(float(values[0]), reason=reason)
            if not reason:
                bounds = (-math.inf if metric == "relative_mce" else 0.0, math.inf)
                estimate = bootstrap_estimate(estimate.value, values[1:], evidence.group_count, CONFIDENCE, bounds)
            levels = shared.get(shift) or sorted({level for own in shared.values() for level in own})
            where = {
                "model": model,
                "reference": reference,
                "shift": shift,
                "corruptions": len(shared) if shift == MEAN else 1,
                "levels": " ".join(map(str, levels)),
            }
            estimate = replace(estimate, method="paired group bootstrap")
            yield estimate.over(*counts).row(where, metric)
