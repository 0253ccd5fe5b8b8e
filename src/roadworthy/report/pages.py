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
from roadworthy.report.page import HERE, Page, chart_names, labels_of
from roadworthy.report.words import words_of

CLASSIFICATION_LINKS = {
    "heat": "Heat map",
    "curves": "Curves",
    "drop": "Drop",
    "reliability": "Reliability",
    "confusion": "Classes",
    "gallery": "Examples",
    "mistakes": "Mistakes",
}
DIFFERENCE_LINK = {"differences": "Differences"}


def classification_page(name: str, run: Path, stored: Facts) -> Page:
    """Classification under shifts."""
    facts = load_classification(run, stored)
    tested = differences.load_differences(run, facts, ("transformed", "classification"))
    chance = summary.chance_words(facts)

    def draw() -> tuple[drawing.Charts, dict[str, Any]]:
        charts = figures.charts(facts) | _difference_charts(tested, facts)
        return charts, {
            "hardest": summary.hardest(facts),
            "chance_words": chance,
            "missing": summary.missing_values(facts),
            "severity_rows": summary.severity_rows(facts),
            "not_as_published": OTHER_THAN_PUBLISHED,
            "strips": summary.gallery(facts),
            "calibration_words": summary.calibration_words,
            "top_confusions": summary.top_confusions,
            "weakest_classes": summary.weakest_classes,
            "clean": CLEAN,
            "metric_labels": labels_of(facts.metrics),
            "drop_labels": labels_of(facts.drops),
            "heat_charts": chart_names(charts, "heat-"),
            "curve_charts": chart_names(charts, "curve-"),
            "text_classes": figures.TEXT_CLASSES,
            **_difference_context(tested, charts),
        }

    return Page(
        name,
        "Classification",
        facts,
        HERE / "classification.html.j2",
        draw,
        CLASSIFICATION_LINKS | (DIFFERENCE_LINK if tested else {}),
        models={model: summary.summarise(facts, model) for model in facts.models},
        headline=(*(f"No better than chance: {words}" for words in chance), *summary.headline(facts)),
    )


def outlier_page(name: str, run: Path, facts: Facts) -> Page:
    """Outliers."""
    found = outliers.load_outliers(run, facts)
    tested = differences.load_differences(run, facts, ("ood_sets", "ood_transformed", "gan_average", "gan_hardest"))

    def draw() -> tuple[drawing.Charts, dict[str, Any]]:
        charts = outlier_figures.charts(found, facts) | _difference_charts(tested, facts)
        return charts, {
            "outliers": found,
            "hard_sets": outliers.hard_sets(found),
            "misled": outliers.misled,
            "score_words": outliers.score_words(found),
            "outlier_sizes": outliers.sizes(found),
            "kind_words": outliers.KINDS,
            "outlier_labels": labels_of(found.metrics),
            "outlier_charts": chart_names(charts, "outliers-"),
            "score_sets": [each.name for each in found.hardest(found.ranked, len(found.sets))],
            "score_charts": chart_names(charts, "scores-"),
            "side_colours": (outlier_figures.INSIDE, outlier_figures.OUTSIDE),
            "gan_curve_labels": list(gans.CURVES.values()),
            "gan_curve_charts": chart_names(charts, "gan-curve-"),
            **_difference_context(tested, charts),
        }

    return Page(
        name,
        "Outliers",
        facts,
        HERE / "outliers.html.j2",
        draw,
        {"outliers": "Outliers"} | (DIFFERENCE_LINK if tested else {}),
        models={model: outliers.model_words(found, model) for model in facts.models},
        headline=tuple(outliers.headline(found, facts)),
    )


def dependability_page(name: str, run: Path, facts: Facts) -> Page:
    """The metrics of dependability."""
    found = dependability.load_dependability(run, facts)

    def draw() -> tuple[drawing.Charts, dict[str, Any]]:
        charts = dependability_figures.charts(found, facts)
        return charts, {
            "dependability": found,
            "dependability_overview": dependability.overview(found),
            "dependability_charts": charts,
            "coverage_words": dependability.coverage_words(found),
            "scenario_labels": labels_of(found.metrics),
            "pair_charts": chart_names(charts, "pairs-"),
            "expensive": dependability.confusion_pictures,
        }

    return Page(
        name,
        "Dependability",
        facts,
        HERE / "dependability.html.j2",
        draw,
        {"dependability": "Dependability"},
        models={model: dependability.model_words(found, model) for model in facts.models},
        headline=tuple(dependability.headline(found, facts)),
    )


def _difference_charts(found: differences.Differences | None, facts: Facts) -> drawing.Charts:
    return difference_figures.charts(found, facts) if found else {}


def _difference_context(found: differences.Differences | None, charts: drawing.Charts) -> dict[str, Any]:
    if found is None:
        return {"differences": None}
    return {
        "differences": found,
        "agreement": differences.agreement,
        "by_words": differences.by_words,
        "form_words": differences.FORMS,
        "spread_labels": labels_of(found.metrics),
        "spread_charts": chart_names(charts, "spread-"),
        "posthoc_labels": [
            [f"{words_of(metric).label}, {method}" for metric, method in question.choices]
            for question in found.questions
        ],
        "posthoc_charts": [chart_names(charts, f"posthoc-{place}-") for place in range(len(found.questions))],
    }
