"""Expected situations in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator

from roadworthy.metrics.base import EXPECTED
from roadworthy.protocols.situations.facts import SituationFacts
from roadworthy.report.facts import Facts, bounded
from roadworthy.report.page import ModelWords
from roadworthy.report.words import listing, number, plural, whole
from roadworthy.statistics import Estimate

MAIN, SHARE = "accuracy", "share_met"
COSTLIEST = 3


def sentences(test: SituationFacts, model: str) -> Iterator[str]:
    """What the summary says of one model: the expectation, every requirement, and what costs most."""
    expectation = test.expectation(model, f"{EXPECTED}{MAIN}")
    if expectation.missing:
        yield f"Its expected accuracy is not known ({expectation.reason})."
    else:
        yield f"In the expected situations it is right in {bounded(MAIN, expectation)}."
    yield from (requirement_words(test, model, requirement) for requirement in test.requirements)
    yield from costs(test, model)


def requirement_words(test: SituationFacts, model: str, requirement: str) -> str:
    """In what share of situations a requirement is met; where they were counted, by bounds that allow for that."""
    own, called = test.shares[model, requirement], test.called(requirement)
    lo, hi, missed, undecided = (number(SHARE, x) for x in (own.share.lo, own.share.hi, own.missed, own.undecided))
    if test.observations:
        return f"The requirement {called} is shown to be met in at least {lo} of them, and in at most {hi}."
    met = f"The requirement {called} is shown to be met in {lo} of them"
    return f"{met}, missed in {missed}, undecided in {undecided}."


def costs(test: SituationFacts, model: str) -> Iterator[str]:
    """Which situations cost most of the expected accuracy."""
    costly = test.costly(model, MAIN)
    total = sum(test.costs[model, own.name, MAIN] for own in costly)
    if costly and not test.expectation(model, f"{EXPECTED}{MAIN}").missing:
        parts = [f"{own} ({number(MAIN, test.costs[model, own.name, MAIN] / total)})" for own in costly[:COSTLIEST]]
        yield f"Of its expected errors most are in {listing(parts)}."


def warning(test: SituationFacts) -> str:
    """What must be known of the frequencies before anything else; empty where nothing."""
    if test.example:
        return (
            "The frequencies are an example, and nobody's driving: these figures mean nothing for yours until you name "
            "how often you expect each situation (situations: frequencies)."
        )
    return ""


def frequency_words(test: SituationFacts) -> str:
    """Where the frequencies come from."""
    if test.example:
        return "Frequencies are the example that stands in where a study names none."
    if test.observations:
        return (
            f"Frequencies were counted in {whole(test.observations)} observations, taken as independent; bounds allow "
            "for the chance in them."
        )
    return "Frequencies are those that the study names: bounds take them as exact."


def model_words(test: SituationFacts, model: str) -> ModelWords:
    """What the summary says of one model."""
    expectation = test.expectation(model, f"{EXPECTED}{MAIN}")
    figures: list[tuple[str, str, Estimate]] = [("Expected accuracy", f"{EXPECTED}{MAIN}", expectation)]
    for requirement in [*test.requirements][:1]:
        figures.append((f"Situations with {test.called(requirement)}", SHARE, test.shares[model, requirement].share))
    words = tuple(sentences(test, model))
    rule = f"Expected situations: {plural(len(test.situations), 'situation')}. {frequency_words(test)}"
    return ModelWords(
        figures=tuple(figures), sentences=words, brief=(" ".join(words[: 2 if test.requirements else 1]),), rule=rule
    )


def headline(test: SituationFacts, facts: Facts) -> Iterator[str]:
    """Lines for a terminal."""
    if test.example:
        yield "Expected situations: the frequencies are an example, not your driving"
    for model in test.models:
        yield f"Expected situations, {facts.named(model)}: {' '.join(sentences(test, model))}"
