"""An argument as JSON that the package `vnvspec` reads, as a specification (`Spec`) and as a report (`Report`).

A criterion is a requirement, each of its conditions a piece of evidence. Hazards have no rating here (severity,
exposure, controllability), and none is made up: they stand in the rationale and metadata of their requirements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roadworthy.core.errors import one_line
from roadworthy.core.record import RunRecord
from roadworthy.verdict.argument.artefacts import artefacts_of
from roadworthy.verdict.argument.tree import Node, criterion_of

COMPLETE = "roadworthy-complete"
"""The requirement that every case was answered; present where one was not."""


def to_vnvspec(
    root: Node, verdict: Mapping[str, Any], record: RunRecord | None, protocols: Mapping[str, str]
) -> dict[str, Any]:
    """The content of the file: requirements with their evidence, and the tree with all its artefacts as metadata."""
    evidence = [*_evidence(verdict, record, protocols)]
    at = (record.finished or record.created) if record else None
    for number, entry in enumerate(evidence, start=1):
        entry["id"] = f"EV-{number}"
        entry |= {"observed_at": at} if at else {}
    name = record.study if record else "roadworthy"
    links = [
        {"source_id": node.id, "target_id": child.id, "relation": "in_context_of" if context else "supported_by"}
        for node in root.nodes()
        for context, some in ((True, node.contexts), (False, node.children))
        for child in some
    ]
    tree = {
        "notation": "GSN",
        "nodes": [*{node.id: _node(node) for node in root.nodes()}.values()],
        "links": [*{tuple(link.values()): link for link in links}.values()],
    }
    statuses = [entry["status"] for entry in verdict["criteria"]]
    summary = {"status": verdict["status"]} | {s: statuses.count(s) for s in ("pass", "fail", "inconclusive")}
    return {
        "name": name,
        "version": "1",
        "description": root.lines[0],
        "requirements": [*_requirements(verdict)],
        "spec_name": name,
        "spec_version": "1",
        **({"created_at": at} if at else {}),
        "evidence": evidence,
        "summary": summary,
        "verdict_policy": "strict",
        "metadata": {
            "made_by": "roadworthy",
            "models": {key: model.fingerprint for key, model in record.models.items()} if record else {},
            **{key: verdict[key] for key in ("decision", "baseline") if key in verdict},
            "argument": tree,
        },
    }


def _node(node: Node) -> dict[str, Any]:
    content = {"id": node.id, "kind": node.kind, "lines": [*node.lines]}
    content |= {"status": node.status} if node.status else {}
    content |= {"criterion": node.criterion} if node.criterion else {}
    return content | ({"artefacts": [one.to_json() for one in node.artefacts]} if node.artefacts else {})


def _requirements(verdict: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in verdict["criteria"]:
        criterion = criterion_of(entry)
        conditions = f" where {criterion.selection}" if criterion.selection else ""
        reasons = {"hazard": criterion.hazard, "triggering condition": criterion.triggering_condition}
        rationale = "; ".join(f"{name}: {text}" for name, text in reasons.items() if text)
        yield {
            "id": criterion.id,
            "statement": f"The model shall have {criterion.metric} of {criterion.limit}{conditions}.",
            "rationale": rationale,
            "verification_method": "test",
            "acceptance_criteria": [criterion.sentence()],
            "metadata": {
                "acceptance_criterion": criterion.sentence(),
                "validation_target": criterion.validation_target,
                **criterion.model_dump(exclude_none=True),
            },
        }
    for answer in verdict.get("questions", ()):
        text = f"The study shall answer the question {answer['question']} with a pass."
        yield {"id": f"question {answer['question']}", "statement": text, "verification_method": "test"}
    if verdict["failed"]:
        text = "The model shall answer every case of the study."
        yield {"id": COMPLETE, "statement": text, "verification_method": "test"}


def _evidence(
    verdict: Mapping[str, Any], record: RunRecord | None, protocols: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    for entry in verdict["criteria"]:
        for row in entry["rows"]:
            protocol, listed = protocols.get(entry["id"], ""), []
            if record is not None and protocol:
                of_run = {"baseline": verdict.get("baseline"), "where": row["where"]}
                listed = artefacts_of(entry, record, protocol, **of_run)
            file = next((one.file for one in listed if one.kind == "table"), "")
            details = {key: row[key] for key in row if key != "status"} | {"artefacts": [a.to_json() for a in listed]}
            yield _piece(entry["id"], row["status"], details, file)
    for answer in verdict.get("questions", ()):
        yield _piece(f"question {answer['question']}", answer["status"], {"because": answer["because"]})
    for part in verdict["failed"]:
        yield _piece(COMPLETE, "inconclusive", {"because": one_line(f"{part['name']}: {part['reason']}")})


def _piece(requirement: str, status: str, details: Mapping[str, Any], file: str = "") -> dict[str, Any]:
    return {
        "id": "",
        "requirement_id": requirement,
        "kind": "test",
        "verdict": status,
        "artifact_uri": file,
        "details": dict(details),
    }
