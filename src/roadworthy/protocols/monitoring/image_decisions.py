"""What was decided about every image of a stream: the readouts of algorithm 1 of the SAS report, a row per image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.protocols.monitoring.names import DETECTION, SYSTEM, TEST, ood_set
from roadworthy.protocols.monitoring.oracle import outcomes
from roadworthy.protocols.monitoring.scenes import Answered, Scene
from roadworthy.protocols.monitoring.tables import Evidence
from roadworthy.protocols.monitoring.watching import Decided

OUTCOMES = ("detection_outcome", "system_outcome")
"""What a decision comes to in the views detection and system."""


def decision_frame(evidence: Evidence, chosen: Mapping[str, Sequence[str] | None]) -> pd.DataFrame:
    """Every decision of every monitor on every model in every benchmark, in the order of the streams.

    `chosen` restricts `model`, `benchmark` and `monitor` to some names; None means all. Columns: model, benchmark,
    ood_kind, monitor, id, group, ood, label and prediction (names of classes; a novel class has no label), confidence,
    score (higher = more in-distribution), reject (1: the monitor detects an OOD image, and the answer is cancelled),
    label_kept, and what the decision comes to in the views detection and system. A stream without decisions is an
    error that says why.
    """
    context = evidence.context
    known: dict[str, Mapping[str, Any]] = {
        "model": context.architectures,
        "benchmark": context.benchmarks,
        "monitor": context.monitors,
    }
    names: dict[str, list[str]] = {}
    for kind, all_names in known.items():
        names[kind] = [*(chosen.get(kind) or all_names)]
        for name in names[kind]:
            if name not in all_names:
                raise UnknownName(f"{kind} of the run", name, all_names)
    frames = [
        _frame(evidence, model, benchmark, monitor)
        for model in names["model"]
        for benchmark in names["benchmark"]
        for monitor in names["monitor"]
    ]
    return pd.concat(frames, ignore_index=True)


def _frame(evidence: Evidence, model: str, benchmark: str, monitor: str) -> pd.DataFrame:
    scene, decided = evidence.scenes(model).scene(benchmark), evidence.decided(model, benchmark, monitor)
    if isinstance(scene, str) or isinstance(decided, str):
        reason = scene if isinstance(scene, str) else str(decided)
        raise InputError(f"monitor {monitor} on model {model} decided nothing in benchmark {benchmark}: {reason}")
    where = {"model": model, "benchmark": benchmark, "ood_kind": scene.note.kind, "monitor": monitor}
    return pd.DataFrame({**where, **dict(_columns(evidence, model, scene, decided))})


def _columns(evidence: Evidence, model: str, scene: Scene, decided: Decided) -> Iterator[tuple[str, NDArray[Any]]]:
    class_names = np.array([*evidence.class_names, ""], object)
    has_label = ~scene.stream.ood | scene.note.has_label
    yield "id", scene.ids
    yield "group", scene.groups
    yield "ood", scene.stream.ood.astype(np.int64)
    yield "label", class_names[np.where(has_label, scene.label, len(class_names) - 1)]
    yield "prediction", class_names[scene.prediction]
    sides = [evidence.scenes(model).answered(name) for name in (TEST, ood_set(scene.benchmark))]
    confidences = [side.confidence for side in sides if isinstance(side, Answered) and side.confidence is not None]
    if len(confidences) == len(sides):
        yield "confidence", scene.gather(*confidences)
    yield "score", decided.scores
    yield "reject", decided.rejected.astype(np.int64)
    yield "label_kept", (~scene.truth.label_lost).astype(np.int64)
    for name, view in zip(OUTCOMES, (DETECTION, SYSTEM), strict=True):
        yield name, outcomes(scene.truth, decided.rejected, view)
