"""Two models side by side: are the same monitors worth more on the one than on the other, in the same streams?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import find_metric
from roadworthy.metrics.decisions import (
    DECISION_FUNCTIONS,
    DECISION_METRICS,
    DecisionCounts,
    decision_counts,
    why_undefined,
)
from roadworthy.protocols.base import Compared
from roadworthy.protocols.changes import OTHER_IMAGES, by_bootstrap
from roadworthy.protocols.monitoring.costs import compared_costs
from roadworthy.protocols.monitoring.criteria import family_of
from roadworthy.protocols.monitoring.metrics import EXTRA_SECONDS
from roadworthy.protocols.monitoring.names import ALONE, FORMS, GUARD, STREAM, SYSTEM
from roadworthy.protocols.monitoring.scenes import Scene
from roadworthy.protocols.monitoring.watching import Decided
from roadworthy.statistics import GroupBootstrap
from roadworthy.statistics.paired import PairedChange

if TYPE_CHECKING:
    from roadworthy.protocols.monitoring.tables import Evidence

MOST_RESAMPLES = 20_000


def compare_monitors(
    ours: Evidence, theirs: Evidence, before: Compared, after: Compared, metrics: Sequence[str]
) -> Iterator[PairedChange]:
    """Every monitor in every stream that both models have, in the view `system`, by a paired bootstrap of objects.

    A condition that one of the two does not have, or in which they were shown other images, has a reason. There are as
    many resamples as asked for, times the number of monitors: each is a test of its own, and all are corrected for.
    """
    pair = (ours, before), (theirs, after)
    benchmarks = [*dict.fromkeys(name for evidence, _ in pair for name in evidence.context.benchmarks)]
    monitors = [*dict.fromkeys(label for evidence, _ in pair for label in evidence.context.monitors)]
    resamples = min(MOST_RESAMPLES, ours.settings.resamples * len(monitors))
    costs = [metric for metric in metrics if family_of(metric) == "cost"]
    yield from _changed_costs(pair, monitors, costs)
    metrics = [metric for metric in metrics if metric not in costs]
    benchmarks = benchmarks if metrics else []
    for benchmark in benchmarks:
        scenes = _scenes(pair, benchmark)
        bootstrap = None if isinstance(scenes, str) else GroupBootstrap(scenes[0].group_codes, resamples, ours.seed)
        notes = [evidence.context.benchmarks.get(benchmark) for evidence, _ in pair]
        kind = next(note.kind for note in notes if note is not None)
        for label in monitors:
            decided = scenes if isinstance(scenes, str) else _decided(pair, benchmark, label)
            for metric in metrics:
                where = {"benchmark": benchmark, "ood_kind": kind, "monitor": label, "view": SYSTEM, "part": STREAM}
                change = after.change(f"{label}: {benchmark}", 0, metric, where)
                if isinstance(scenes, str) or isinstance(decided, str) or bootstrap is None:
                    yield replace(change, reason=str(decided))
                else:
                    yield _changed(change, scenes, decided, bootstrap)


def _changed_costs(pair: Pair, monitors: Sequence[str], metrics: Sequence[str]) -> Iterator[PairedChange]:
    """What every monitor, or the model alone, costs in each form, where one of the two runs timed it."""
    (ours, before), (theirs, after) = pair
    for label, form, metric in product((ALONE, *monitors), FORMS, metrics):
        systems = (before.model, label, form), (after.model, label, form)
        known = [where in own.costs.times for own, where in zip((ours, theirs), systems, strict=True)]
        if (metric == EXTRA_SECONDS.name and label == ALONE) or (form != GUARD and not any(known)):
            continue
        change = after.change(f"{label}: {form}", 0, metric, {"monitor": label, "form": form})
        yield compared_costs(change, (ours.costs, systems[0]), (theirs.costs, systems[1]))


Pair = tuple[tuple["Evidence", Compared], tuple["Evidence", Compared]]


def _scenes(pair: Pair, benchmark: str) -> list[Scene] | str:
    """The streams of a benchmark as both models met it; or why they cannot be paired."""
    scenes: list[Scene] = []
    for evidence, system in pair:
        if benchmark not in evidence.context.benchmarks:
            return f"{system} was not shown it"
        scene = evidence.scenes(system.model).scene(benchmark)
        if isinstance(scene, str):
            return scene
        scenes.append(scene)
    one, other = scenes
    same = np.array_equal(one.ids, other.ids) and np.array_equal(one.groups, other.groups)
    same = same and np.array_equal(one.stream.ood, other.stream.ood) and one.shown == other.shown
    return scenes if same and one.note.made_from == other.note.made_from else OTHER_IMAGES


def _decided(pair: Pair, benchmark: str, label: str) -> list[Decided] | str:
    """What one monitor decides on both models; or why one of them has no decision."""
    decided: list[Decided] = []
    for evidence, system in pair:
        if label not in evidence.context.monitors:
            return f"{system} has no monitor {label}"
        own = evidence.decided(system.model, benchmark, label)
        if isinstance(own, str):
            return own
        decided.append(own)
    return decided


def _changed(
    change: PairedChange, scenes: Sequence[Scene], decided: Sequence[Decided], bootstrap: GroupBootstrap
) -> PairedChange:
    """One metric of one monitor in one stream, before and after."""
    function = DECISION_FUNCTIONS[change.metric]
    values, drawn = [], []
    for scene, own in zip(scenes, decided, strict=True):
        positive, flagged = scene.truth.positive(SYSTEM), own.rejected
        counts = decision_counts(positive, flagged)
        reason = why_undefined(change.metric, counts, positive="wrong answer", negative="right answer")
        if reason:
            return replace(change, reason=reason)
        cells = np.column_stack([positive & flagged, ~positive & flagged, ~positive & ~flagged, positive & ~flagged])
        values.append(float(function(counts)))
        drawn.append(function(_counts(bootstrap, cells.astype(np.float32))))
    change = replace(change, before=values[0], after=values[1], n=len(scenes[0]), groups=bootstrap.groups)
    low, high = find_metric(change.metric, DECISION_METRICS).limits(2)
    sizes = np.unique(scenes[0].group_codes, return_counts=True)[1]
    return by_bootstrap(change, *drawn, room=high - low, sizes=sizes)


def _counts(bootstrap: GroupBootstrap, cells: NDArray[np.float32]) -> DecisionCounts:
    """The four counts in every resample, from which of them each image counts in (N, 4)."""
    sums = np.concatenate([np.asarray(weights @ cells, np.float64) for weights in bootstrap.chunks()])
    return DecisionCounts(*sums.T)
