"""The page of classification in the report."""

from __future__ import annotations

from pathlib import Path

from roadworthy.metrics.mce import OTHER_THAN_PUBLISHED
from roadworthy.protocols.classification import decided, figures, numbers, words
from roadworthy.protocols.classification.condition_facts import condition_charts, load_by_condition
from roadworthy.protocols.classification.facts import ROLE, WHOLE_MATRIX, load_classification
from roadworthy.protocols.classification.questions import QUESTIONS
from roadworthy.protocols.classification.scatter import load_scatter, scatter_charts
from roadworthy.protocols.repeat_analysis import facts as differences
from roadworthy.protocols.repeat_analysis.figures import difference_charts
from roadworthy.report.facts import CLEAN, Facts
from roadworthy.report.page import Page, worst_conditions


def page(name: str, run: Path, stored: Facts) -> Page:
    """The page of a run's classification."""
    facts = load_classification(run, stored)
    tested = differences.load_differences(run, facts, QUESTIONS)
    scatter = load_scatter(run, facts.source, tested)
    by_condition = load_by_condition(run, facts)
    stopping = decided.load_stopping(run, facts)
    context = {"clean": CLEAN, "not_as_published": OTHER_THAN_PUBLISHED, "by_condition": by_condition}
    context |= {"text_classes": figures.TEXT_CLASSES, "whole_matrix": WHOLE_MATRIX}
    context |= {"stopping": stopping, "decided_labels": decided.labels}
    chance = [f"No better than chance: {sentence}" for sentence in words.chance_words(facts)]
    return Page(
        name,
        "Classification",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: (
            figures.charts(facts)
            | condition_charts(by_condition, facts)
            | difference_charts(tested, facts)
            | scatter_charts(scatter, facts)
            | decided.stopping_charts(stopping)
        ),
        {
            "summary": words,
            "numbers": numbers,
            "differences": tested,
            "scatter": scatter,
            "difference_words": differences,
            **context,
        },
        models={model: words.summarise(facts, model) for model in facts.models},
        worst=worst_conditions(
            ROLE, ((c, [(m, facts.cell(m, c, ROLE)) for m in facts.models]) for c in facts.hardest(facts.ranked))
        ),
        headline=(*chance, *words.headline(facts), *([stopping.saving()] if stopping else [])),
    )
