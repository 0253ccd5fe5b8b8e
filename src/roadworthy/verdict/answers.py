"""The answers to the questions of a study, from the findings of the criteria that carry them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from roadworthy.verdict.judge import Finding

Status = Literal["pass", "fail", "inconclusive"]

NO_CRITERIA = "not judged: no threshold was given"
NO_CRITERION = "not judged: no criterion speaks of it"


@dataclass(frozen=True)
class CandidateAnswer:
    """What the criteria of a question come to for one model, judged as if it were the only one of the run."""

    status: Status
    because: str
    judged: bool = True


@dataclass(frozen=True)
class Answer:
    """A question and what follows for it. `criteria` are the ids of those that carry it, `candidates` are by model."""

    question: str
    status: Status
    because: str
    criteria: tuple[str, ...] = ()
    candidates: Mapping[str, CandidateAnswer] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As verdict.json holds it; a candidate that no criterion speaks of has the status None."""
        return {
            "question": self.question,
            "status": self.status,
            "because": self.because,
            "criteria": [*self.criteria],
            "models": {
                name: {"status": answer.status if answer.judged else None, "because": answer.because}
                for name, answer in self.candidates.items()
            },
        }


def combined(statuses: Sequence[Status]) -> Status:
    """Fail where one fails, else inconclusive where one is, else pass.

    >>> combined(["pass", "inconclusive"]), combined(["inconclusive", "fail"]), combined(["pass"])
    ('inconclusive', 'fail', 'pass')
    """
    for status in ("fail", "inconclusive"):
        if status in statuses:
            return status
    return "pass"


def answer_questions(
    questions: Sequence[str],
    findings: Sequence[Finding],
    of_candidates: Mapping[str, Sequence[Finding]],
    not_run: Mapping[str, str],
) -> tuple[Answer, ...]:
    """The answer to each question: what the findings of its criteria come to, over all models and for each.

    of_candidates   the findings of the same criteria for each model by itself
    not_run         questions that the run cannot answer, with the reason: they are never passed

    A question passes only where it passes over all models and for each that a criterion of any question speaks of.
    """
    spoken_of = {model for model, own in of_candidates.items() if own}
    return tuple(
        _answer(
            name,
            findings,
            {model: _candidate(name, own) for model, own in of_candidates.items()},
            not_run,
            spoken_of,
        )
        for name in questions
    )


def _answer(
    question: str,
    findings: Sequence[Finding],
    candidates: Mapping[str, CandidateAnswer],
    not_run: Mapping[str, str],
    spoken_of: Collection[str],
) -> Answer:
    own = [finding for finding in findings if finding.criterion.question == question]
    criteria = tuple(finding.criterion.id for finding in own)
    if not own:
        because = not_run.get(question) or (NO_CRITERION if findings else NO_CRITERIA)
        return Answer(question, "inconclusive", because, candidates=candidates)
    judged = {model: answer for model, answer in candidates.items() if answer.judged}
    status = combined([*(finding.status for finding in own), *(answer.status for answer in judged.values())])
    if question in not_run and status != "fail":
        return Answer(question, "inconclusive", not_run[question], criteria, candidates)
    left_out = [model for model in candidates if model in spoken_of and model not in judged]
    if left_out and status == "pass":
        return Answer(question, "inconclusive", f"not judged for {', '.join(left_out)}", criteria, candidates)
    reasons = [_sentence(finding) for finding in own if finding.status == status]
    reasons += [f"{model}: {answer.because}" for model, answer in judged.items() if answer.status == status]
    return Answer(question, status, reasons[0], criteria, candidates)


def _candidate(question: str, findings: Sequence[Finding]) -> CandidateAnswer:
    own = [finding for finding in findings if finding.criterion.question == question]
    if not own:
        return CandidateAnswer("inconclusive", NO_CRITERION, judged=False)
    status = combined([finding.status for finding in own])
    return CandidateAnswer(status, next(_sentence(finding) for finding in own if finding.status == status))


def _sentence(finding: Finding) -> str:
    return f"{finding.criterion.id}: {finding.sentence()}"
