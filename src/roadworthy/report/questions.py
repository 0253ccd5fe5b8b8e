"""The answers to the questions of a study, as facts for the first screen: verdict, figure and worst case per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roadworthy.metrics import Metric, metrics_of
from roadworthy.report.reading import Row, has_table, number_of, read_rows
from roadworthy.report.words import bounds, number, words_of
from roadworthy.statistics import Estimate
from roadworthy.verdict.questions import APPROVAL, QUESTIONS, Question

NOT_JUDGED = "none"
"""The status, and its colour, of what no criterion speaks of."""


@dataclass(frozen=True)
class AnswerFigure:
    """A figure of one model with the worst condition behind it; `worst` is empty where it stands for one alone."""

    label: str
    metric: Metric
    protocol: str
    estimate: Estimate
    conditions: int
    worst: str
    worst_estimate: Estimate

    def text(self) -> str:
        """The value with its bounds."""
        return _text(self.metric, self.estimate)

    def worst_text(self) -> str:
        """The worst value with its bounds."""
        return _text(self.metric, self.worst_estimate)


@dataclass(frozen=True)
class Candidate:
    """What is answered for one model: the status, why, the figure that stands for it, and further ones."""

    model: str
    status: str
    because: str
    main: tuple[AnswerFigure, ...]
    further: tuple[AnswerFigure, ...]


@dataclass(frozen=True)
class AnswerFacts:
    """One question, its status, and what is answered for each model. `criteria` are positions among the criteria."""

    question: Question
    status: str
    because: str
    criteria: tuple[int, ...]
    candidates: tuple[Candidate, ...]

    @property
    def judged(self) -> bool:
        """Whether a criterion speaks of it."""
        return bool(self.criteria)

    @property
    def shown_status(self) -> str:
        """The status as a pill shows it: `none` where nothing was judged."""
        return self.status if self.judged else NOT_JUDGED

    @property
    def word(self) -> str:
        """The status in a word; `not run` and `not judged` say why there is no other."""
        return self.status if self.judged else self.because.partition(":")[0]


def load_answers(run: Path, verdict: Mapping[str, Any]) -> tuple[AnswerFacts, ...]:
    """The answers of a run from verdict.json and its table `approval`; none where its study asks no question."""
    asked = verdict.get("questions", ())
    rows = read_rows(run, APPROVAL.name, None) if asked and has_table(run, APPROVAL.name) else []
    ids = [criterion["id"] for criterion in verdict["criteria"]]
    return tuple(_answer(entry, rows, ids) for entry in asked)


def _answer(entry: Mapping[str, Any], rows: Sequence[Row], ids: Sequence[str]) -> AnswerFacts:
    own = [row for row in rows if row["question"] == entry["question"]]
    return AnswerFacts(
        question=QUESTIONS[entry["question"]],
        status=entry["status"],
        because=entry["because"],
        criteria=tuple(index for index, name in enumerate(ids) if name in entry["criteria"]),
        candidates=tuple(_candidate(model, answer, own) for model, answer in entry["models"].items()),
    )


def _candidate(model: str, answer: Mapping[str, Any], rows: Sequence[Row]) -> Candidate:
    figures = [(row["main"], _figure(row)) for row in rows if _name(row) == model]
    return Candidate(
        model=model,
        status=answer["status"] or NOT_JUDGED,
        because=answer["because"],
        main=tuple(figure for is_main, figure in figures if is_main),
        further=tuple(figure for is_main, figure in figures if not is_main),
    )


def _name(row: Row) -> str:
    return f"{row['source']}/{row['model']}" if row.get("source") else str(row["model"])


def _figure(row: Row) -> AnswerFigure:
    return AnswerFigure(
        label=row["figure"],
        metric=words_of(row["metric"], metrics_of(row["protocol"])),
        protocol=row["protocol"],
        estimate=_estimate(row, ""),
        conditions=row["conditions"],
        worst=row["worst"],
        worst_estimate=_estimate(row, "worst_"),
    )


def _estimate(row: Row, start: str) -> Estimate:
    """The estimate in the columns whose names start so."""
    value, lo, hi = (number_of(row[f"{start}{name}"]) for name in ("value", "lo", "hi"))
    return Estimate(value, lo, hi, n=row[f"{start}n"], groups=row[f"{start}groups"], reason=row["reason"])


def _text(metric: Metric, estimate: Estimate) -> str:
    return f"{number(metric, estimate.value)} ({bounds(metric, estimate.lo, estimate.hi)})"


def answer_lines(answers: Sequence[AnswerFacts]) -> list[str]:
    """The answers in plain text, a line per question: its status, and per model the figure and the worst case."""
    lines = []
    for answer in answers:
        models = [_candidate_words(candidate, len(answer.candidates) > 1) for candidate in answer.candidates]
        lines.append(f"{answer.question.sentence} {answer.word}: {'; '.join(filter(None, models)) or answer.because}")
    return lines


def _candidate_words(candidate: Candidate, several: bool) -> str:
    words = [
        f"{figure.metric.label} {figure.text()}, {figure.label}"
        + (f", worst {figure.worst_text()} at {figure.worst}" if figure.worst else "")
        for figure in candidate.main
    ]
    judged = f" {candidate.status}," if candidate.status != NOT_JUDGED else ""
    return f"{candidate.model}{judged if several else ''} {'; '.join(words)}" if words else ""
