"""The pages of classification, ood and dependability: each its tables, charts and words, put into its template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.metrics.mce import OTHER_THAN_PUBLISHED
from roadworthy.report import (
    dependability,
    dependability_figures,
    difference_figures,
    differences,
    drawing,
    figures,
    gans,
    outlier_figures,
    outliers,
    summary,
)
from roadworthy.report.classification import CLEAN, load_classification
from roadworthy.report.facts import Facts
from roadworthy.report.page import HERE, Page


def classification_page(name: str, run: Path, stored: Facts) -> Page:
    """The page of classification under shifts."""
    facts = load_classification(run, stored)
    difference_facts = differences.load_differences(run, facts, ("transformed", "classification"))
    context = {"clean": CLEAN, "not_as_published": OTHER_THAN_PUBLISHED, "text_classes": figures.TEXT_CLASSES}
    chance = [f"No better than chance: {words}" for words in summary.chance_words(facts)]
    return Page(
        name,
        "Classification",
        facts,
        HERE / "classification.html.j2",
        lambda: figures.charts(facts) | _difference_charts(difference_facts, facts),
        {"summary": summary, "differences": difference_facts, "difference_words": differences, **context},
        models={model: summary.summarise(facts, model) for model in facts.models},
        headline=(*chance, *summary.headline(facts)),
    )


def outlier_page(name: str, run: Path, facts: Facts) -> Page:
    """The page of outliers."""
    outlier_facts = outliers.load_outliers(run, facts)
    questions = ("ood_sets", "ood_transformed", "gan_average", "gan_hardest")
    difference_facts = differences.load_differences(run, facts, questions)
    context: dict[str, Any] = {"outliers": outlier_facts, "words": outliers, "curves": gans.CURVES}
    context["side_colours"] = (outlier_figures.INSIDE, outlier_figures.OUTSIDE)
    return Page(
        name,
        "Outliers",
        facts,
        HERE / "outliers.html.j2",
        lambda: outlier_figures.charts(outlier_facts, facts) | _difference_charts(difference_facts, facts),
        {**context, "differences": difference_facts, "difference_words": differences},
        models={model: outliers.model_words(outlier_facts, model) for model in facts.models},
        headline=tuple(outliers.headline(outlier_facts, facts)),
    )


def dependability_page(name: str, run: Path, facts: Facts) -> Page:
    """The page of the metrics of dependability."""
    dependability_facts = dependability.load_dependability(run, facts)
    return Page(
        name,
        "Dependability",
        facts,
        HERE / "dependability.html.j2",
        lambda: dependability_figures.charts(dependability_facts, facts),
        {"dependability": dependability_facts, "words": dependability},
        models={model: dependability.model_words(dependability_facts, model) for model in facts.models},
        headline=tuple(dependability.headline(dependability_facts, facts)),
    )


def _difference_charts(difference_facts: differences.Differences | None, facts: Facts) -> drawing.Charts:
    return difference_figures.charts(difference_facts, facts) if difference_facts else {}
