"""What models and monitors cost at runtime: one image at a time, as at deployment, in a step of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from roadworthy.core.errors import InputError, RoadworthyError, foreign_code, is_the_machine_s
from roadworthy.core.roles import Model
from roadworthy.core.threads import one_thread
from roadworthy.engine.monitor_systems import MonitorOn
from roadworthy.engine.plan import PlannedCase
from roadworthy.models.signals import Signals
from roadworthy.monitors.guard import Guard
from roadworthy.protocols.monitoring.names import ALONE, TEST, VALID
from roadworthy.protocols.monitoring.table_specs import TIMING
from roadworthy.protocols.monitoring.watching import open_watcher
from roadworthy.protocols.stopwatch import Decide, peak_memory, seconds_per_image, timings_by_system

if TYPE_CHECKING:
    from roadworthy.protocols.monitoring.tables import Evidence


def timed(
    evidence: Evidence, cases: Sequence[PlannedCase], earlier: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """The table of timings: every model alone, then with each monitor.

    A system that was timed before (`earlier` tables of the run) is not asked again: its hash is in the table.
    """
    number = evidence.settings.timed_images
    if not number:
        return {}
    known = timings_by_system(earlier.get(TIMING.name))
    rows: list[dict[str, Any]] = []
    for model in evidence.context.architectures:
        own = [case for case in cases if case.labels["model"] == model and case.labels["set"] == TEST]
        answers = next((case for case in own if case.labels["role"] == "answers"), None)
        if answers is None:
            continue
        alone = _row(evidence, answers, ALONE, number, known)
        watched = [case for case in own if isinstance(case.system, MonitorOn)]
        together = [_row(evidence, case, case.system.name, number, known) for case in watched]
        rows += [{**row, "overhead_median": _ratio(row["median"], alone["median"])} for row in (alone, *together)]
    return {TIMING.name: TIMING.frame(rows)} if rows else {}


def _ratio(value: float, base: float) -> float:
    return value / base if base > 0 else math.nan


def _row(
    evidence: Evidence,
    planned: PlannedCase,
    label: str,
    number: int,
    known: Mapping[tuple[str, int], Mapping[str, Any]],
) -> dict[str, Any]:
    """The timing of one system, measured or known."""
    number = min(number, len(planned.showing.data))
    system = planned.case.hash
    where = {"model": planned.labels["model"], "monitor": label, "system": system, "images": number}
    numbers = ("median", "p95", "p99", "state_bytes", "peak_bytes")
    if (system, number) in known:
        return {**where, **{name: known[system, number][name] for name in numbers}, "reason": ""}
    try:
        decide, state_bytes = _decider(evidence, planned)
        batch = planned.showing.show(planned.showing.data.batch(slice(0, number)))
        images = [batch.take([row]) for row in range(number)]
        with one_thread(), foreign_code("", is_the_machine_s):
            seconds, peak = seconds_per_image(decide, images), peak_memory(decide, images)
    except RoadworthyError as error:
        return {**where, **dict.fromkeys(numbers, math.nan), "reason": str(error)}
    shares = dict(zip(numbers[:3], np.quantile(seconds, [0.5, 0.95, 0.99]).tolist(), strict=True))
    return {**where, **shares, "state_bytes": float(state_bytes), "peak_bytes": float(peak), "reason": ""}


def _decider(evidence: Evidence, planned: PlannedCase) -> tuple[Decide, int]:
    """What is done with one image, by the model alone or with a monitor, and the bytes that the monitor keeps."""
    system = planned.system
    if not isinstance(system, MonitorOn):
        model = system.underlying
        assert isinstance(model, Model)
        return lambda batch: Signals(model, batch, 1).prediction, 0
    cases = evidence.monitor_cases(planned.labels["model"], system.name)
    valid = evidence.scenes(planned.labels["model"]).answered(VALID)
    if isinstance(valid, str):
        raise InputError(f"the model has no answers to ID validation images: {valid}")
    watcher = open_watcher(system.name, evidence.context, cases, valid, evidence.settings, evidence.seed)
    fitted, rule = system.fit.fitted, watcher.calibrated.rule
    guard = Guard(system.underlying, fitted, rule, watcher.threshold)
    state_bytes = sum(array.nbytes for arrays in (fitted.state, rule) for array in arrays.values())
    return guard.check_batch, state_bytes
