"""The questions that a type approval asks of a classifier, and the table that holds what a run measured for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roadworthy.core.errors import UnknownName
from roadworthy.core.tables import TableSpec


@dataclass(frozen=True)
class Question:
    """One question: its name in studies and criteria, a word for headings, and the sentence that is asked."""

    name: str
    title: str
    sentence: str


QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in (
        Question("outliers", "Outliers", "Can it tell what it does not know?"),
        Question("conditions", "Conditions", "Does it work under difficult conditions?"),
        Question("certainty", "Certainty", "Is its certainty reliable?"),
    )
}
"""In the order in which reports answer them."""

APPROVAL = TableSpec(
    "approval",
    "A figure that answers one of the questions of an approval for one model, and the worst condition behind it.",
    key=("question", "model", "protocol", "figure", "metric"),
    columns=(
        *("question", "model", "protocol", "figure", "main", "metric", "value", "lo", "hi", "n", "groups", "method"),
        *("conditions", "worst", "worst_value", "worst_lo", "worst_hi", "worst_n", "worst_groups", "reason"),
    ),
)
"""Made from the tables of protocols, which declare what of theirs answers a question."""


def known_question(name: str) -> str:
    """The name of a question; another one is an error that names the nearest.

    >>> known_question("certainity")
    Traceback (most recent call last):
    roadworthy.core.errors.UnknownName: unknown question 'certainity': did you mean 'certainty'? Known: ...
    """
    if name not in QUESTIONS:
        raise UnknownName("question", name, QUESTIONS)
    return name


def question_in_settings(name: str) -> str:
    """The same where pydantic asks: an error in what a file says."""
    try:
        return known_question(name)
    except UnknownName as error:
        raise ValueError(str(error)) from None
