"""Judging: a criterion passes only where the confidence bound on the safe side reaches its threshold.

For `at_least t` with the interval [lo, hi]: pass where lo >= t, fail where hi < t, otherwise inconclusive, with the
number of further independent objects it would take if what was observed stayed. `at_most` mirrors this.

A run in which a case failed never passes, whether or not a criterion names that case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import escape, quoteattr

from roadworthy.core import showing
from roadworthy.core.record import RunRecord
from roadworthy.statistics.estimates import Estimate
from roadworthy.statistics.intervals import further_groups
from roadworthy.verdict.answers import Answer, Status, answer_questions, combined
from roadworthy.verdict.argument import Argument
from roadworthy.verdict.correcting import UNCORRECTED, Claim, Divisors, corrected, find_divisors, stricter
from roadworthy.verdict.criteria import Correction, Criterion, Decision
from roadworthy.verdict.failures import Failed
from roadworthy.verdict.spreadsheet import to_xlsx
from roadworthy.verdict.why import Why, deciding_row

VerdictStatus = Literal["pass", "fail", "inconclusive", "none"]
EXIT_CODES: Mapping[str, int] = {"pass": 0, "none": 0, "fail": 1, "inconclusive": 3}


@dataclass(frozen=True)
class Measurement:
    """What was measured for one combination of conditions: the estimate, whose `groups` count what `unit` names.

    `proportion` says that each image counts 0 or 1, so that Wilson's interval tells how many more would settle it.
    `further` says how many more of the unit would settle the criterion, where the protocol knows better than the rules
    of `further_groups`; infinite where no number would.
    """

    where: Mapping[str, Any]
    estimate: Estimate
    proportion: bool = False
    unit: str = "independent objects"
    further: float | None = None


Measure = Callable[[Criterion, float], Sequence[Measurement]]
"""What matches a criterion (its metric, `where`, and average if `over` is pooled), bounded with a given confidence."""


Narrow = Callable[[Criterion], Criterion | None]
"""A criterion for one model alone; None where it does not speak of that model."""


@dataclass(frozen=True)
class Judged:
    """One measurement and what follows from it; `confidence` is that of its bounds where it is not the criterion's."""

    measurement: Measurement
    status: Status
    because: str
    further_groups: int | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class Finding:
    """One criterion and what follows for it. `remark` is what a reader must know of its threshold, if anything.

    `conditions` is how many it covers; `why` names the objects that decide it where it is not met.
    """

    criterion: Criterion
    status: Status
    rows: tuple[Judged, ...]
    remark: str = ""
    conditions: int = field(default=1, compare=False)
    why: Why | None = field(default=None, compare=False)

    def sentence(self) -> str:
        """The finding in words: the row that decides it (`verdict.why.deciding_row`)."""
        return deciding_row(self).because


@dataclass(frozen=True)
class BaselineRun:
    """The run that criteria with `against: baseline` were judged by: where it is, and the SHA-256 of its run.json."""

    run: str
    sha256: str


@dataclass(frozen=True)
class Verdict:
    """All findings, and the cases (or monitors) that failed. `none` where there was no criterion and no failure.

    `answers` are those to the questions of the study, `decision` says who decided on the thresholds, where their file
    does, `baseline` is the run that criteria were judged against, where there are such. `criteria_file` is the file
    that the criteria were read from, `other_code` the plugins whose code was other than the run's: the history of
    verdicts holds them, not verdict.json. `record` is that of the run (run.json), which names the evidence,
    `protocols` the protocol of each criterion by its id.
    """

    status: VerdictStatus
    findings: tuple[Finding, ...] = field(default=())
    failed: tuple[Failed, ...] = ()
    answers: tuple[Answer, ...] = ()
    decision: Decision | None = None
    baseline: BaselineRun | None = None
    criteria_file: str = field(default="", compare=False)
    record: RunRecord | None = field(default=None, compare=False, repr=False)
    protocols: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    other_code: tuple[str, ...] = field(default=(), compare=False)

    @property
    def exit_code(self) -> int:
        """0 pass (or no criteria and nothing failed), 1 fail, 3 inconclusive."""
        return EXIT_CODES[self.status]

    @property
    def criteria(self) -> list[dict[str, Any]]:
        """The criteria that it rests on, as plain dictionaries."""
        return [finding.criterion.model_dump() for finding in self.findings]

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for verdict.json; `questions`, `decision` and `baseline` only where there are any."""
        return {
            "status": self.status,
            **({"questions": [answer.to_json() for answer in self.answers]} if self.answers else {}),
            **({"decision": self.decision.model_dump()} if self.decision else {}),
            **({"baseline": asdict(self.baseline)} if self.baseline else {}),
            "failed": [asdict(failed) for failed in self.failed],
            "criteria": [
                {
                    **finding.criterion.model_dump(),
                    "status": finding.status,
                    "because": finding.sentence(),
                    "remark": finding.remark,
                    "rows": [_row(row) for row in finding.rows],
                    **({"why": finding.why.to_json()} if finding.why else {}),
                }
                for finding in self.findings
            ],
        }

    def argument(self) -> Argument:
        """Claim, argument and evidence as a tree; as Mermaid, JSON for vnvspec, or a picture."""
        return Argument(self.to_json(), self.record, self.protocols)

    def to_xlsx(self, path: str | Path | None = None) -> bytes:
        """A matrix of criteria and conditions as a spreadsheet (extra `xlsx`); written to a file where one is named."""
        content = to_xlsx(self.to_json(), self.record, self.protocols)
        if path is not None:
            Path(path).write_bytes(content)
        return content

    def _repr_html_(self) -> str:
        """For a notebook: the status, every criterion with what decided it, and what failed."""
        rows = [(showing.status(own.status), own.criterion.id, own.sentence()) for own in self.findings]
        parts: list[object] = [showing.pairs([("verdict", showing.status(self.status))])]
        if self.answers:
            answers = [(showing.status(own.status), own.question, own.because) for own in self.answers]
            parts.append(showing.table(("result", "question", "because"), answers))
        if rows:
            parts.append(showing.table(("result", "criterion", "because"), rows))
        parts += [f"failed: {failed.name}: {failed.reason}" for failed in self.failed]
        return showing.card("Verdict", *parts)

    def to_junit(self) -> str:
        """JUnit XML: a test case per question, per criterion and condition, and one per failed case of the run.

        Fail is a failure; inconclusive, and a case that failed, are errors.
        """
        nothing: dict[str, str] = {}
        rows = [(f"question: {answer.question}", answer.status, answer.because, nothing) for answer in self.answers]
        rows += [
            (
                f"{finding.criterion.id} {_condition_text(row.measurement)}".strip(),
                row.status,
                row.because,
                _properties(finding, row),
            )
            for finding in self.findings
            for row in finding.rows
        ]
        rows += [(f"failed: {failed.name}", "inconclusive", failed.reason, nothing) for failed in self.failed]
        statuses = [row[1] for row in rows]
        head = f'tests="{len(rows)}" failures="{statuses.count("fail")}" errors="{statuses.count("inconclusive")}"'
        lines = ['<?xml version="1.0" encoding="utf-8"?>', f'<testsuite name="roadworthy" {head}>']
        return "\n".join([*lines, *(_test_case(*row) for row in rows), "</testsuite>", ""])


def _condition_text(measurement: Measurement) -> str:
    return " ".join(f"{key}={value}" for key, value in measurement.where.items())


def _properties(finding: Finding, row: Judged) -> dict[str, str]:
    """What traces a test case to its requirement: the acceptance criterion and the validation target stay apart."""
    criterion = finding.criterion
    known = {
        "requirement": criterion.id,
        "hazard": criterion.hazard,
        "triggering_condition": criterion.triggering_condition,
        "acceptance_criterion": criterion.sentence(),
        "validation_target": criterion.validation_target,
        "evidence": f"{row.measurement.estimate.groups} {row.measurement.unit}",
        "decides": "yes" if row is deciding_row(finding) else "",
    }
    return {name: text for name, text in known.items() if text}


def _test_case(name: str, status: Status, because: str, properties: Mapping[str, str]) -> str:
    kind = {"pass": "", "fail": "failure", "inconclusive": "error"}[status]
    because = _xml_text(because)
    listed = "".join(f"<property name={quoteattr(n)} value={quoteattr(_xml_text(v))}/>" for n, v in properties.items())
    body = f"<properties>{listed}</properties>" if listed else ""
    body += f"<{kind} message={quoteattr(because)}>{escape(because)}</{kind}>" if kind else ""
    return f'  <testcase classname="roadworthy" name={quoteattr(_xml_text(name))}>{body}</testcase>'


def _xml_text(text: str) -> str:
    """Without the control characters that XML forbids."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def _row(row: Judged) -> dict[str, Any]:
    m, estimate = row.measurement, row.measurement.estimate
    named = (("value", estimate.value), ("lo", estimate.lo), ("hi", estimate.hi))
    numbers = {name: number if math.isfinite(number) else None for name, number in named}
    counts = {"n": estimate.n, "groups": estimate.groups, "unit": m.unit, "method": estimate.method}
    return {
        "where": dict(m.where),
        **numbers,
        **counts,
        "status": row.status,
        "because": row.because,
        "further_groups": row.further_groups,
        **({"confidence": row.confidence} if row.confidence else {}),
    }


def judge(
    criteria: Sequence[Criterion],
    measure: Measure,
    *,
    remarks: Mapping[str, str] | None = None,
    failed: Sequence[Failed] = (),
    questions: Sequence[str] = (),
    not_run: Mapping[str, str] | None = None,
    candidates: Mapping[str, Narrow] | None = None,
    correction: Correction = "none",
) -> Verdict:
    """Judge every criterion; the verdict fails where one fails, and passes only where all pass and nothing failed.

    remarks      what a reader must know of the thresholds of criteria, by their id;  failed   what of the run failed
    questions    those that the study asks: the verdict fails where one fails, and passes only where all pass
    not_run      questions that the run cannot answer, with the reason
    candidates   the models, each with what narrows a criterion to it
    correction   which claims are corrected for their number: see `verdict.correcting`
    """
    remarks = remarks or {}
    divisors = _divisors(criteria, measure, correction)
    findings = tuple(replace(_judge_one(c, measure, divisors), remark=remarks.get(c.id, "")) for c in criteria)
    of_candidates = {
        name: _of_candidate(findings, narrow, measure, divisors)
        for name, narrow in (candidates or {}).items()
        if questions
    }
    answers = answer_questions(questions, findings, of_candidates, not_run or {})
    statuses = [*(finding.status for finding in findings), *(answer.status for answer in answers)]
    status = combined(statuses) if statuses else "none"
    return Verdict(never_pass(status, failed), findings, tuple(failed), answers)


def _divisors(criteria: Sequence[Criterion], measure: Measure, correction: Correction) -> Divisors:
    """How strictly claims are judged so that Holm's correction holds: a claim for each criterion and condition."""
    if correction == "none":
        return UNCORRECTED

    def count(claim: Claim, divisor: int) -> int:
        rows = (row for criterion in criteria for row in _rows(stricter(criterion, divisor), measure)[0])
        return sum(row.status == claim for row in rows)

    claims = sum(len(_rows(criterion, measure)[0]) for criterion in criteria)
    return find_divisors(correction, claims, count)


def _of_candidate(
    findings: Sequence[Finding], narrow: Narrow, measure: Measure, divisors: Divisors = UNCORRECTED
) -> list[Finding]:
    """The findings of the criteria with a question for one model; one that is narrowed to itself is judged already.

    The worst of several conditions is corrected for those of all models: a model fails only where the criterion does.
    """
    narrowed = [(finding, narrow(finding.criterion)) for finding in findings if finding.criterion.question]
    known = [(finding, own) for finding, own in narrowed if own is not None]
    return [
        finding if own is finding.criterion else _judge_one(own, measure, divisors, finding.conditions)
        for finding, own in known
    ]


def never_pass(status: VerdictStatus, failed: Sequence[Failed]) -> VerdictStatus:
    """The status of a run of which something failed: fail stays, all else is inconclusive.

    >>> never_pass("pass", [Failed("tiny at fog 3", "out of memory")]), never_pass("pass", [])
    ('inconclusive', 'pass')
    """
    return "inconclusive" if failed and status != "fail" else status


def _judge_one(
    criterion: Criterion, measure: Measure, divisors: Divisors = UNCORRECTED, corrected_for: int = 0
) -> Finding:
    """The finding of a criterion; the worst of several conditions is corrected for so many, or for its own number."""
    rows, conditions = _rows(criterion, measure, corrected_for)
    if divisors.any:
        failing, passing = (
            _rows(stricter(criterion, divisor), measure, corrected_for)[0]
            for divisor in (divisors.fails, divisors.passes)
        )
        rows = tuple(corrected(criterion, *own, divisors) for own in zip(rows, failing, passing, strict=True))
    return Finding(criterion, combined([row.status for row in rows]), rows, conditions=conditions)


def _rows(criterion: Criterion, measure: Measure, corrected_for: int = 0) -> tuple[tuple[Judged, ...], int]:
    """Every condition judged, or the worst of them alone; and how many conditions there are."""
    measured = measure(criterion, criterion.confidence)
    conditions = max(len(measured), corrected_for)
    if criterion.over == "worst":
        measured = [_worst(criterion, measured, measure, conditions)]
    return tuple(judge_measurement(criterion, measurement) for measurement in measured), conditions


def _worst(criterion: Criterion, measured: Sequence[Measurement], measure: Measure, corrected_for: int) -> Measurement:
    """The worst condition. Its safe-side bound is the worst of all bounds; its other bound is corrected (Bonferroni).

    That every condition meets the threshold is shown where each one's bound does, so the safe side needs no correction;
    that at least one misses it is a claim about the worst of many, so the other side does. Where no condition has a
    bound that is so strict, nothing is known on that side: such a criterion cannot fail.
    """
    missing = [m for m in measured if m.estimate.unbounded]
    strict = measure(criterion, 1 - (1 - criterion.confidence) / corrected_for)
    corrected = [m.estimate for m in strict if not m.estimate.unbounded]
    conditions = len(measured)
    measured = [m for m in measured if not m.estimate.unbounded]
    if not measured:
        return missing[0]
    sign, estimates = criterion.sign, [m.estimate for m in measured]
    worst = min(measured, key=lambda m: sign * m.estimate.value)
    if sign > 0:
        lo, hi = min(e.lo for e in estimates), min((e.hi for e in corrected), default=math.inf)
    else:
        lo, hi = max((e.lo for e in corrected), default=-math.inf), max(e.hi for e in estimates)
    value, groups = worst.estimate.value, min(m.estimate.groups for m in measured if m.unit == worst.unit)
    estimate = replace(worst.estimate, lo=min(lo, value), hi=max(hi, value), groups=groups, reason="")
    of_all = replace(worst, where={**worst.where, "of": f"{conditions} conditions"}, estimate=estimate)
    return missing[0] if missing and judge_measurement(criterion, of_all).status != "fail" else of_all


def judge_measurement(criterion: Criterion, m: Measurement) -> Judged:
    """Judge one measurement against a criterion's threshold.

    >>> c = Criterion(id="R", metric="accuracy", at_least=0.9)
    >>> judge_measurement(c, Measurement({}, Estimate(0.95, 0.90, 0.98, n=200, groups=200))).status
    'pass'
    >>> judge_measurement(c, Measurement({}, Estimate(0.85, 0.80, 0.8999, n=200, groups=200))).status
    'fail'
    >>> never = Measurement({}, Estimate(math.inf, 6.5, math.inf, n=24, groups=2, reason="no failure"))
    >>> judge_measurement(Criterion(id="T", metric="time_between_failures", at_least=5), never).because
    'time_between_failures has no limit (no failure), at least 6.5000: the lower bound reaches 5'
    """
    threshold, name, estimate = criterion.threshold, criterion.figure, m.estimate
    conditions = ", ".join(f"{key} {value}" for key, value in m.where.items())
    condition = f" ({conditions})" if conditions else ""
    if estimate.unbounded:
        return Judged(m, "inconclusive", f"{name}{condition} has no bound: {estimate.reason or 'not measured'}")
    safe, other = (estimate.lo, estimate.hi) if criterion.sign > 0 else (estimate.hi, estimate.lo)
    side = "lower" if criterion.sign > 0 else "upper"
    shown = f"{name} {estimate.value:.4f} [{estimate.lo:.4f}, {estimate.hi:.4f}]{condition}"
    if estimate.value == math.inf:
        shown = f"{name}{condition} has no limit ({estimate.reason or 'infinite'}), at least {estimate.lo:.4f}"
    if criterion.sign * (other - threshold) < 0:
        return Judged(m, "fail", f"{shown}: even the better bound misses {threshold:g}")
    short = criterion.min_groups - estimate.groups
    if criterion.sign * (safe - threshold) < 0:
        bounds = estimate.groups, estimate.lo, estimate.hi
        further = m.further
        if further is None:
            further = further_groups(
                estimate.value, threshold, *bounds, confidence=criterion.confidence, proportion=m.proportion
            )
        short_of = f"{shown}: the {side} bound is {'below' if criterion.sign > 0 else 'above'} {threshold:g}"
        if further is None and math.isinf(estimate.value):
            return Judged(m, "inconclusive", f"{short_of}; more data would raise it, how much cannot be said")
        if further is None and estimate.value == threshold:
            return Judged(m, "inconclusive", f"{short_of}, and the value lies on the threshold: no n would settle it")
        if further is None:
            return Judged(m, "inconclusive", f"{short_of}; how much more data would settle it cannot be said")
        if math.isinf(further):
            return Judged(m, "inconclusive", f"{short_of}, and no number of further {m.unit} would settle it alone")
        further = max(int(further), short, 1)
        towards = "pass" if criterion.sign * (estimate.value - threshold) > 0 else "fail"
        needed = f"with about {further} more {m.unit} it would be a {towards}, if the value stayed"
        return Judged(m, "inconclusive", f"{short_of}; {needed}", further)
    if short > 0:
        because = f"{shown} rests on {estimate.groups} {m.unit}, {short} short of the {criterion.min_groups} required"
        return Judged(m, "inconclusive", because, short)
    return Judged(m, "pass", f"{shown}: the {side} bound reaches {threshold:g}")
