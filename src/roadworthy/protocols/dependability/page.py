"""The page of dependability in the report."""

from __future__ import annotations

from pathlib import Path

from roadworthy.protocols.dependability import coverage_facts, figures
from roadworthy.protocols.dependability import facts as words
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page


def page(name: str, run: Path, facts: Facts) -> Page:
    """The page of a run's dependability metrics."""
    dependability = words.load_dependability(run, facts)
    return Page(
        name,
        "Dependability",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: figures.charts(dependability, facts),
        {"dependability": dependability, "words": words, "coverage": coverage_facts},
        models={model: words.model_words(dependability, model) for model in facts.models},
        headline=tuple(coverage_facts.headline(dependability, facts)),
    )
