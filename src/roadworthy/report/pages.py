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
    """Classification under shifts."""
    facts = load_classification(run, stored)
    tested = differences.load_differences(run, facts, ("transformed", "classification"))
    context = {"clean": CLEAN, "not_as_published": OTHER_THAN_PUBLISHED, "text_classes": figures.TEXT_CLASSES}
    chance = [f"No better than chance: {words}" for words in summary.chance_words(facts)]
    return Page(
        name,
        "Classification",
        facts,
        HERE / "classification.html.j2",
        lambda: figures.charts(facts) | _difference_charts(tested, facts),
        {"summary": summary, "differences": tested, "difference_words": differences, **context},
        models={model: summary.summarise(facts, model) for model in facts.models},
        headline=(*chance, *summary.headline(facts)),
    )


def outlier_page(name: str, run: Path, facts: Facts) -> Page:
    """Outliers."""
    found = outliers.load_outliers(run, facts)
    tested = differences.load_differences(run, facts, ("ood_sets", "ood_transformed", "gan_average", "gan_hardest"))
    sides = (outlier_figures.INSIDE, outlier_figures.OUTSIDE)
    context: dict[str, Any] = {"outliers": found, "words": outliers, "side_colours": sides, "curves": gans.CURVES}
    return Page(
        name,
        "Outliers",
        facts,
        HERE / "outliers.html.j2",
        lambda: outlier_figures.charts(found, facts) | _difference_charts(tested, facts),
        {**context, "differences": tested, "difference_words": differences},
        models={model: outliers.model_words(found, model) for model in facts.models},
        headline=tuple(outliers.headline(found, facts)),
    )


def dependability_page(name: str, run: Path, facts: Facts) -> Page:
    """The metrics of dependability."""
    found = dependability.load_dependability(run, facts)
    return Page(
        name,
        "Dependability",
        facts,
        HERE / "dependability.html.j2",
        lambda: dependability_figures.charts(found, facts),
        {"dependability": found, "words": dependability},
        models={model: dependability.model_words(found, model) for model in facts.models},
        headline=tuple(dependability.headline(found, facts)),
    )


def _difference_charts(found: differences.Differences | None, facts: Facts) -> drawing.Charts:
    return difference_figures.charts(found, facts) if found else {}
