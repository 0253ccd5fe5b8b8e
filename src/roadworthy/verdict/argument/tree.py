"""The argument of a verdict as a tree: a claim, the strategies that argue for it, sub-claims, and their evidence.

The words are those of the Goal Structuring Notation: a goal is a claim, a strategy says how it is broken down, a
solution is evidence, a context is what a claim is to be read with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from roadworthy.core.errors import one_line
from roadworthy.core.grouping import grouped
from roadworthy.core.record import RunRecord
from roadworthy.verdict.argument.artefacts import KINDS, Artefact, artefacts_of
from roadworthy.verdict.criteria import Criterion, Decision
from roadworthy.verdict.questions import QUESTIONS
from roadworthy.verdict.why import stored_deciding_row

Kind = Literal["goal", "strategy", "solution", "context"]
PREFIXES: Mapping[Kind, str] = {"goal": "G", "strategy": "S", "solution": "Sn", "context": "C"}
UNIT = "independent objects"
"""What groups count where a verdict of an earlier version does not say it."""
LISTED = 3
"""So many readouts are named in a node; all are in its artefacts."""
DIGITS = 12
"""Digits of a hash in a node; whole hashes are in its artefacts."""
CLAIMED = {
    "pass": "shown",
    "fail": "refuted",
    "inconclusive": "not shown, not refuted",
    "none": "not judged",
}
"""What the status of a goal says of its claim."""


@dataclass(frozen=True)
class Node:
    """One element of the argument: what it says in lines, and what supports it.

    `criterion` is the id of the criterion that a goal stands for; `artefacts` are those of a solution.
    """

    kind: Kind
    lines: tuple[str, ...]
    status: str = ""
    children: tuple[Node, ...] = ()
    contexts: tuple[Node, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    criterion: str = ""
    id: str = ""

    def nodes(self) -> Iterator[Node]:
        """This node and all below it, parents first, the contexts of a node before its children."""
        yield self
        for node in (*self.contexts, *self.children):
            yield from node.nodes()


@dataclass(frozen=True)
class _Numbers:
    """The ids of nodes: G1, G2, S1, Sn1, C1, by kind in the order of the tree; the same evidence has the same id."""

    counts: Counter[str] = field(default_factory=Counter)
    known: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def numbered(self, node: Node) -> Node:
        """The node with ids for it and all below it."""
        key = (node.kind, node.lines, node.artefacts) if node.kind == "solution" else (id(node),)
        if key not in self.known:
            self.counts[node.kind] += 1
            self.known[key] = f"{PREFIXES[node.kind]}{self.counts[node.kind]}"
        own = self.known[key]
        return Node(
            node.kind,
            node.lines,
            node.status,
            contexts=tuple(self.numbered(context) for context in node.contexts),
            children=tuple(self.numbered(child) for child in node.children),
            artefacts=node.artefacts,
            criterion=node.criterion,
            id=own,
        )


def build_tree(
    verdict: Mapping[str, Any], record: RunRecord | None = None, protocols: Mapping[str, str] | None = None
) -> Node:
    """The argument of a verdict (the content of verdict.json).

    record      of the run: it names the evidence;  protocols   the protocol of each criterion, by its id

    Criteria are argued over by the question that they answer, else by the hazard that they guard against.
    """
    children = [*_strategies(verdict, record, protocols or {})]
    if failed := verdict.get("failed"):
        lines = ("Every case of the run was answered", f"{len(failed)} failed, which is never a pass")
        reasons = tuple(one_line(f"{part['name']}: {part['reason']}") for part in failed[:LISTED])
        children.append(Node("goal", lines, "inconclusive", (Node("solution", ("What failed", *reasons)),)))
    models = ", ".join(record.models) if record else ""
    claim = (
        f"{models or 'The model'} {'meet' if record and len(record.models) > 1 else 'meets'} the acceptance criteria"
    )
    status = verdict["status"]
    contexts = tuple(_contexts(verdict, record))
    root = Node("goal", (claim, CLAIMED[status]), status, tuple(children), contexts)
    return _Numbers().numbered(root)


def _contexts(verdict: Mapping[str, Any], record: RunRecord | None) -> Iterator[Node]:
    if record is not None:
        for source in record.sources.values():
            data = source.data
            counts = f"{data.images:,} images of {data.groups:,} objects, {len(data.class_names)} classes"
            yield Node("context", (f"Data {data.name}", counts, f"fingerprint {data.fingerprint[:DIGITS]}"))
        version = record.environment.get("packages", {}).get("roadworthy", "")
        yield Node("context", (f"Study {record.study}, seed {record.seed}", f"roadworthy {version}, {record.created}"))
    decision = Decision.model_validate(verdict["decision"]) if "decision" in verdict else Decision()
    words = decision.words() or "Nobody is named who decided on the thresholds."
    words = "The thresholds are examples: nobody decided on them." if decision.example else words
    corrected = () if decision.correction == "none" else (f"Corrected for their number: {decision.correction}",)
    yield Node("context", (words, *corrected))


def _strategies(verdict: Mapping[str, Any], record: RunRecord | None, protocols: Mapping[str, str]) -> Iterator[Node]:
    by_argument = grouped((_argued_by(entry), entry) for entry in verdict["criteria"])
    answers = {answer["question"]: answer for answer in verdict.get("questions", ())}
    for (kind, what), entries in by_argument.items():
        goals = tuple(_goal(entry, verdict, record, protocols) for entry in entries)
        answer = answers.pop(what, None) if kind == "question" else None
        status = answer["status"] if answer else ""
        lines = {
            "question": (
                "Argument over the criteria of a question",
                QUESTIONS[what].sentence if what in QUESTIONS else "",
            ),
            "hazard": ("Argument over the criteria that guard against a hazard", what),
            "": ("Argument over criteria that name no hazard",),
        }[kind]
        yield Node("strategy", lines, status, goals)
    for name, answer in answers.items():
        sentence = QUESTIONS[name].sentence if name in QUESTIONS else name
        yield Node("goal", (sentence, answer["because"], "Undeveloped: no criterion argues for it"), answer["status"])


def _argued_by(entry: Mapping[str, Any]) -> tuple[str, str]:
    if entry.get("question"):
        return "question", entry["question"]
    return ("hazard", entry["hazard"]) if entry["hazard"] else ("", "")


def criterion_of(entry: Mapping[str, Any]) -> Criterion:
    """The criterion of an entry of verdict.json."""
    return Criterion.model_validate({name: entry[name] for name in Criterion.model_fields if name in entry})


def _goal(
    entry: Mapping[str, Any], verdict: Mapping[str, Any], record: RunRecord | None, protocols: Mapping[str, str]
) -> Node:
    criterion = criterion_of(entry)
    lines = [f"{criterion.id}: {criterion.sentence()}"]
    if criterion.hazard and criterion.question:
        lines.append(f"Hazard: {criterion.hazard}")
    if criterion.triggering_condition:
        lines.append(f"Triggering condition: {criterion.triggering_condition}")
    if criterion.validation_target:
        lines.append(f"Validation target: {criterion.validation_target}")
    solutions = [Node("solution", tuple(_figures(entry)))]
    if record is not None and criterion.id in protocols:
        found = artefacts_of(entry, record, protocols[criterion.id], baseline=verdict.get("baseline"))
        of_kind = grouped((artefact.kind, artefact) for artefact in found)
        solutions += [_solution(of_kind[kind]) for kind in KINDS if kind in of_kind]
    return Node("goal", tuple(lines), entry["status"], tuple(solutions), criterion=criterion.id)


def _figures(entry: Mapping[str, Any]) -> Iterator[str]:
    """What was measured: how many conditions came to what, and the one that decides."""
    rows, row = entry["rows"], stored_deciding_row(entry)
    counts = Counter(own["status"] for own in rows)
    if len(rows) > 1:
        yield f"{len(rows)} conditions: " + ", ".join(f"{count} {status}" for status, count in counts.items())
    yield one_line(row["because"])
    yield f"{row['n']:,} images, {row['groups']:,} {row.get('unit', UNIT)}"


def _solution(artefacts: Sequence[Artefact]) -> Node:
    """One kind of evidence in a node."""
    kind = artefacts[0].kind
    if len(artefacts) == 1:
        line = f"{'readouts of ' if kind == 'readouts' else ''}{artefacts[0].line(DIGITS)}"
        return Node("solution", (line,), artefacts=tuple(artefacts))
    names = {"readouts": "cases", "table": "tables", "model": "files of models", "data": "data sets"}
    head = f"{'Readouts of ' if kind == 'readouts' else ''}{len(artefacts)} {names.get(kind, f'{kind}s')}"
    lines = [artefact.line(DIGITS) for artefact in artefacts[:LISTED]]
    if len(artefacts) > LISTED:
        lines.append(f"and {len(artefacts) - LISTED} more")
    return Node("solution", (head, *lines), artefacts=tuple(artefacts))
