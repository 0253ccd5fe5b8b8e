"""Evaluation: what the decisions of one monitor in one stream are worth, in every view and part."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics.ranking import Ranking
from roadworthy.metrics.selective import risk_coverage, weighted_aurc
from roadworthy.monitors.threshold import share_threshold
from roadworthy.protocols.monitoring.metrics import (
    AURC,
    DECISION_METRICS,
    EFFECT_METRICS,
    FNR,
    FPR,
    RECALL,
    SCORE_METRICS,
    STREAM_METRICS,
)
from roadworthy.protocols.monitoring.names import (
    ALONE,
    DETECTION,
    ID,
    MODEL_SCOPE,
    OOD,
    PARTS,
    STREAM,
    VIEWS,
)
from roadworthy.protocols.monitoring.scenes import Scene
from roadworthy.protocols.monitoring.watching import Decided, Watched
from roadworthy.statistics import (
    Estimate,
    GroupBootstrap,
    decision_estimates,
    effect_estimates,
    stream_change_estimates,
)
from roadworthy.statistics.estimates import (
    CONFIDENCE,
    LEAST_BOOTSTRAP_GROUPS,
    RESAMPLES,
    bootstrap_estimate,
    no_estimate,
)
from roadworthy.statistics.ranked import ranked_estimate, ranked_figure

Rows = list[dict[str, Any]]
Floats = NDArray[np.float64]

NO_SCORE = "there is no score"
NO_LABELS = "there are OOD images without labels"
CHUNK_BYTES = 2**21
"""Weights of resamples that are computed with at once: what a cache holds."""
COVERAGES = np.linspace(0, 1, 51)
SWEPT = (
    *(0.0, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15),
    *(0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
)
"""Shares of ID validation images that the thresholds of a sweep reject."""


@dataclass(frozen=True)
class Bounds:
    """How estimates are bounded: the confidence, and the number and the seed of resamples."""

    confidence: float = CONFIDENCE
    resamples: int = RESAMPLES
    seed: int = 0


def metrics_of(view: str, part: str, monitor: str) -> list[str]:
    """The metrics of a view and a part of the stream, for a monitor or for the model alone.

    Parts that hold one kind of image only, in the view `detection`, have the rates that exist there.

    >>> metrics_of("detection", "id", "energy"), metrics_of("detection", "stream", "none")
    (['fpr'], [])
    """
    if view == DETECTION and monitor == ALONE:
        return []
    if view == DETECTION and part != STREAM:
        return [FPR.name] if part == ID else [FNR.name, RECALL.name]
    names = [metric.name for metric in DECISION_METRICS]
    if view == DETECTION:
        names += [metric.name for metric in SCORE_METRICS]
    if view == MODEL_SCOPE:
        names += [metric.name for metric in EFFECT_METRICS]
        names += [*(metric.name for metric in STREAM_METRICS), AURC.name] if part == STREAM and monitor != ALONE else []
    return names


def evaluate(
    where: Mapping[str, Any],
    scene: Scene | str,
    decided: Decided | str,
    bounds: Bounds,
    metrics: Collection[str] | None = None,
    resampled: GroupBootstrap | None = None,
) -> Rows:
    """The rows of one monitor in one stream: a row per view, part and metric; `where` names model, benchmark, monitor.

    Where there is no decision every row has the reason. `metrics` names those that are wanted, all by default;
    `resampled` are resamples of the objects of the stream, which may be shared by all monitors.
    """
    monitor = str(where["monitor"])
    rows = Rows()
    known: dict[tuple[bytes, str], dict[str, Estimate]] = {}
    for view in VIEWS:
        for part in PARTS:
            wanted = [name for name in metrics_of(view, part, monitor) if metrics is None or name in metrics]
            if not wanted:
                continue
            labels = {**where, "view": view, "part": part}
            if isinstance(scene, str) or isinstance(decided, str):
                reason = scene if isinstance(scene, str) else str(decided)
                rows += [no_estimate(reason).row(labels, name) for name in wanted]
                continue
            positive = scene.truth.positive(view)
            key = (positive.tobytes() + bytes([view == DETECTION]), part)
            if key not in known:
                known[key] = _estimates(scene, decided, view, part, bounds, metrics)
            estimates = dict(known[key])
            if view == DETECTION and part == STREAM:
                estimates |= _separation(scene, decided, bounds, wanted)
            if view == MODEL_SCOPE:
                estimates |= _effects(scene, decided, part, bounds, wanted, resampled)
            rows += [estimates[name].row(labels, name) for name in wanted]
    return rows


def _of_part(scene: Scene, part: str) -> NDArray[np.bool_]:
    """Which images of a stream (N,) a part counts."""
    ood = scene.stream.ood
    return np.ones(len(scene), bool) if part == STREAM else ood if part == OOD else ~ood


def _estimates(
    scene: Scene, decided: Decided, view: str, part: str, bounds: Bounds, metrics: Collection[str] | None
) -> dict[str, Estimate]:
    """What the decisions on a part of a stream are worth in a view."""
    counted = _of_part(scene, part)
    names = [metric.name for metric in DECISION_METRICS if metrics is None or metric.name in metrics]
    kinds = ("OOD image", "ID image") if view == DETECTION else ("wrong answer", "right answer")
    return decision_estimates(
        scene.truth.positive(view)[counted],
        decided.rejected[counted],
        scene.group_codes[counted],
        confidence=bounds.confidence,
        resamples=bounds.resamples,
        seed=bounds.seed,
        metrics=names,
        positive_name=kinds[0],
        negative_name=kinds[1],
    )


def resamples_of(scene: Scene, bounds: Bounds) -> GroupBootstrap | None:
    """Resamples of the objects of a stream; None where these are too few for a bound."""
    if len(np.unique(scene.group_codes)) < LEAST_BOOTSTRAP_GROUPS:
        return None
    return GroupBootstrap(scene.group_codes, bounds.resamples, bounds.seed)


def _bootstrapped(
    value: float, distribution: Sequence[Floats], scene: Scene, bounds: Bounds, limits: tuple[float, float] = (0.0, 1.0)
) -> Estimate:
    groups = len(np.unique(scene.group_codes))
    drawn = np.concatenate(distribution) if distribution else np.zeros(0)
    return bootstrap_estimate(value, drawn, groups, bounds.confidence, limits).over(len(scene), groups)


def _separation(scene: Scene, decided: Decided, bounds: Bounds, wanted: Sequence[str]) -> dict[str, Estimate]:
    """How well the score tells ID images from OOD images, whatever the threshold."""
    inside = ~scene.stream.ood
    chosen = [metric for metric in SCORE_METRICS if metric.ranked and metric.name in wanted]
    if not chosen:
        return {}
    reason = NO_SCORE if np.isnan(decided.scores).any() else ""
    if inside.all() or not inside.any():
        reason = reason or f"there is no {'OOD' if inside.all() else 'ID'} image"
    if reason:
        return {metric.name: no_estimate(reason) for metric in chosen}
    ranking, (names, objects) = Ranking(decided.scores, inside), np.unique(scene.group_codes, return_inverse=True)
    figures = {metric.name: ranked_figure(metric.ranked(ranking), objects) for metric in chosen if metric.ranked}
    return {
        name: ranked_estimate([[figure]], (), bounds.confidence).over(len(scene), len(names))
        for name, figure in figures.items()
    }


def _effects(
    scene: Scene,
    decided: Decided,
    part: str,
    bounds: Bounds,
    wanted: Sequence[str],
    resampled: GroupBootstrap | None,
) -> dict[str, Estimate]:
    """What the monitor changes for the system; over the whole stream also its MCC, risk and coverage."""
    counted = _of_part(scene, part)
    wrong = scene.truth.wrong
    effects = effect_estimates(wrong[counted], decided.rejected[counted], scene.group_codes[counted], bounds.confidence)
    changes = [metric.name for metric in STREAM_METRICS if metric.name in wanted]
    if changes and not scene.note.has_label:
        effects |= dict.fromkeys(changes, no_estimate(NO_LABELS))
    elif changes:
        effects |= stream_change_estimates(
            scene.prediction,
            wrong,
            decided.rejected,
            scene.group_codes,
            confidence=bounds.confidence,
            resamples=bounds.resamples,
            seed=bounds.seed,
        )
    if AURC.name in wanted and np.isnan(decided.scores).any():
        effects[AURC.name] = no_estimate(NO_SCORE)
    elif AURC.name in wanted:
        resampled = resampled or resamples_of(scene, bounds)
        drawn = [weighted_aurc(decided.scores, wrong, weights) for weights in _chunks(resampled)]
        area = risk_coverage(decided.scores, wrong).area
        effects[AURC.name] = _bootstrapped(area, drawn, scene, bounds)
    return effects


def _chunks(resampled: GroupBootstrap | None) -> Iterator[NDArray[np.float32]]:
    return iter(()) if resampled is None else resampled.chunks(CHUNK_BYTES)


def risk_rows(where: Mapping[str, Any], scene: Scene, decided: Decided) -> Rows:
    """The risk at 51 coverages: each the smallest that a threshold can reach and that is at least what is asked for."""
    curve = risk_coverage(decided.scores, scene.truth.wrong)
    positions = np.minimum(np.searchsorted(curve.coverage, COVERAGES - 1e-12), len(curve.coverage) - 1)
    return [
        {
            **where,
            "coverage": round(float(asked), 2),
            "accepted": float(curve.coverage[position]),
            "risk": float(curve.risk[position]),
            "threshold": float(curve.threshold[position]),
        }
        for asked, position in zip(COVERAGES, positions, strict=True)
    ]


def sweep_rows(where: Mapping[str, Any], scene: Scene, decided: Decided, watched: Watched) -> Rows:
    """What other thresholds would do: each rejects at most a share of ID validation images."""
    wrong, ood, rows = scene.truth.wrong, scene.stream.ood, Rows()
    for share in SWEPT:
        threshold = share_threshold(watched.valid, share) if share < 1 else math.inf
        rejected = decided.scores < threshold
        rows.append(
            {
                **where,
                "rejected_id": share,
                "threshold": threshold,
                "safety_gain": float((wrong & rejected).mean()),
                "residual_hazard": float((wrong & ~rejected).mean()),
                "availability_cost": float((~wrong & rejected).mean()),
                "recall": float(rejected[ood].mean()),
                "fpr": float(rejected[~ood].mean()),
            }
        )
    return rows
