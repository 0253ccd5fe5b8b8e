"""Explaining a verdict: what decides each criterion that is not met, with pictures of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from roadworthy.engine.plan import PlannedCase
from roadworthy.protocols import protocol_of
from roadworthy.protocols.base import Evidence
from roadworthy.protocols.pictures import save_strip
from roadworthy.verdict import Verdict
from roadworthy.verdict.why import CRITERIA_EXPLAINED, deciding_row, no_single_images


def explain(verdict: Verdict, evidence: Mapping[str, Evidence]) -> Verdict:
    """The verdict with what decides each criterion that is not met; of so many at most, those that fail first."""
    open_ones = [finding for finding in verdict.findings if finding.status != "pass"]
    ranked = sorted(open_ones, key=lambda finding: finding.status != "fail")
    chosen = {finding.criterion.id for finding in ranked[:CRITERIA_EXPLAINED]}
    findings = []
    for finding in verdict.findings:
        criterion = finding.criterion
        if finding.status == "pass":
            findings.append(finding)
            continue
        explained = deciding_row(finding)
        measured = explained.measurement
        where = {name: value for name, value in measured.where.items() if name != "of"}
        if criterion.id not in chosen:
            why = no_single_images(f"objects are listed for {CRITERIA_EXPLAINED} criteria of a run at most")
        elif criterion.against:
            why = no_single_images("it is judged by how much the model differs from the baseline")
        elif measured.estimate.unbounded:
            why = no_single_images("it has no value with bounds")
        else:
            own = evidence[protocol_of(criterion, evidence).name]
            confidence = explained.confidence or criterion.confidence
            asked = criterion.model_copy(update={"confidence": confidence})
            why = own.deciding(asked, replace(measured, where=where))
        conditions = sum(row.status == finding.status for row in finding.rows)
        if conditions > 1:
            worst = f"Of {conditions} conditions that decide it, this one is the furthest from the threshold."
            why = replace(why, sentences=(worst, *why.sentences), conditions=conditions)
        findings.append(replace(finding, why=replace(why, where=where)))
    return replace(verdict, findings=tuple(findings))


def save_deciding(verdict: Verdict, cases: Sequence[PlannedCase], media: Path) -> None:
    """Draw the images that stand for the objects that decide criteria, each as it was shown in its case."""
    shown = {planned.case.hash: planned.showing for planned in cases}
    for finding in verdict.findings:
        for weighed in finding.why.objects if finding.why else ():
            if weighed.case in shown:
                save_strip(shown[weighed.case], media / weighed.picture, [weighed.row])
