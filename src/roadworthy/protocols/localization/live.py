"""What the models of localization cost per image: one image at a time on one thread, as at deployment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from roadworthy.core.errors import RoadworthyError, foreign_code, is_the_machine_s
from roadworthy.core.roles import Model
from roadworthy.core.threads import one_thread
from roadworthy.engine.plan import PlannedCase
from roadworthy.models.signals import Signals
from roadworthy.protocols.localization.names import ANSWERS, TEST
from roadworthy.protocols.localization.settings import Context, ModelNote
from roadworthy.protocols.localization.table_specs import TIMING
from roadworthy.protocols.stopwatch import peak_memory, seconds_per_image, timings_by_system

BYTES_PER_WEIGHT = 4
MEGABYTE = 1e6
NUMBERS = ("milliseconds", "memory_mb")


def timed(
    context: Context, images: int, cases: Sequence[PlannedCase], earlier: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """The table of timings; a model that was timed before (`earlier` tables of the run) is not asked again.

    What is relative is so to the first plain model of the same family and tasks.
    """
    shown = {
        case.case.system: case
        for case in cases
        if case.labels["role"] == ANSWERS and case.labels["set"] == TEST and not case.case.stimulus.repeat
    }
    if not images or not shown:
        return {}
    known = timings_by_system(earlier.get(TIMING.name))
    rows = [_row(name, context.models[name], case, images, known) for name, case in shown.items()]
    asked = {row["model"]: (row["family"], *context.models[row["model"]].tasks) for row in rows}
    plain = {asked[row["model"]]: row["milliseconds"] for row in reversed(rows) if row["uncertainty"] == "none"}
    for row in rows:
        alone = plain.get(asked[row["model"]], math.nan)
        row["relative"] = row["milliseconds"] / alone if alone > 0 else math.nan
    return {TIMING.name: TIMING.frame(rows)}


def _row(
    name: str,
    note: ModelNote,
    planned: PlannedCase,
    images: int,
    known: Mapping[tuple[str, int], Mapping[str, Any]],
) -> dict[str, Any]:
    number, system = min(images, len(planned.showing.data)), planned.case.hash
    passes = max(max(int(facts.get("passes") or 1), int(facts.get("members") or 1)) for facts in note.tasks.values())
    where: dict[str, Any] = {"model": name, "family": note.family, "uncertainty": note.uncertainty, "system": system}
    where |= {"images": number, "passes": passes}
    if (system, number) in known:
        return {**where, **{key: known[system, number][key] for key in NUMBERS}, "reason": ""}
    model = planned.system.underlying
    assert isinstance(model, Model)
    try:
        batch = planned.showing.show(planned.showing.data.batch(slice(0, number)))
        single = [batch.take([row]) for row in range(number)]
        with one_thread(), foreign_code("", is_the_machine_s):
            seconds = seconds_per_image(lambda image: Signals(model, image, 1).prediction, single)
            peak = peak_memory(lambda image: Signals(model, image, 1).prediction, single)
    except RoadworthyError as error:
        return {**where, **dict.fromkeys(NUMBERS, math.nan), "reason": str(error)}
    weights = sum(int(facts.get("weights") or 0) for facts in note.tasks.values())
    memory = (BYTES_PER_WEIGHT * weights + peak) / MEGABYTE
    return {**where, "milliseconds": 1000 * float(np.median(seconds)), "memory_mb": memory, "reason": ""}
