"""The gallery of a benchmark of monitors: a few images of every OOD side and of the ID side, as the models saw them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.engine.plan import PlannedCase, PlannedStimulus
from roadworthy.protocols.monitoring.names import OOD_SETS, TEST, ood_set
from roadworthy.protocols.pictures import evenly_spaced, save_strip, shown_answers

if TYPE_CHECKING:
    from roadworthy.protocols.monitoring.tables import Evidence

IMAGES = 6
ID_SIDE = ""
"""In place of the name of a benchmark, which is never empty."""


def save_sets(
    evidence: Evidence, cases: Sequence[PlannedCase], media: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A strip per set: the rows of the table that names them, and what the models that saw it answered.

    Benchmarks of the same stimulus share a picture, and each has its rows. An attack looks different for every model;
    that on the first by name is shown.
    """
    shown: dict[str, PlannedStimulus] = {}
    for case in sorted(cases, key=lambda case: case.labels["model"]):
        name = case.labels["set"]
        if name == TEST or name.startswith(OOD_SETS):
            shown.setdefault(ID_SIDE if name == TEST else name.removeprefix(OOD_SETS), case.showing)
    table, answers = [], []
    for name, showing in shown.items():
        rows = evenly_spaced(len(showing.data), IMAGES)
        picture = media / f"monitoring-{showing.stimulus.key}.png"
        table.append({"benchmark": name, "media": save_strip(showing, picture, rows), "images": len(rows)})
        note = None if name == ID_SIDE else evidence.context.benchmarks[name]
        labelled = note is None or (note.has_label and note.keeps_label)
        where, shown_as = {"benchmark": name}, TEST if name == ID_SIDE else ood_set(name)
        asked = [c for c in evidence.cases if c.labels["role"] == "answers" and c.labels["set"] == shown_as]
        answers += shown_answers(showing, rows, asked, evidence.class_names, where=where, labelled=labelled)
    return table, answers
