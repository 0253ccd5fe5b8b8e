"""The page of outliers in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.protocols.ood import facts as words
from roadworthy.protocols.ood import figures
from roadworthy.protocols.ood.condition_facts import condition_charts, load_by_condition
from roadworthy.protocols.ood.gan_facts import CURVES
from roadworthy.protocols.ood.questions import QUESTIONS
from roadworthy.protocols.repeat_analysis import facts as differences
from roadworthy.protocols.repeat_analysis.figures import difference_charts
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page, worst_conditions


def page(name: str, run: Path, facts: Facts) -> Page:
    """The page of a run's outliers."""
    outliers = words.load_outliers(run, facts)
    tested = differences.load_differences(run, facts, QUESTIONS)
    by_condition = load_by_condition(run, facts)
    sides = (figures.INSIDE, figures.OUTSIDE)
    context: dict[str, Any] = {"outliers": outliers, "words": words, "side_colours": sides, "curves": CURVES}
    return Page(
        name,
        "Outliers",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: (
            figures.charts(outliers, facts)
            | condition_charts(by_condition, outliers, facts)
            | difference_charts(tested, facts)
        ),
        {**context, "by_condition": by_condition, "differences": tested, "difference_words": differences},
        models={model: words.model_words(outliers, model) for model in facts.models},
        worst=worst_conditions(
            words.ROLE,
            (
                (own.name, [(model, outliers.cell(model, own.name)) for model in facts.models])
                for own in outliers.hardest(outliers.ranked)
            ),
        ),
        headline=tuple(words.headline(outliers, facts)),
    )
