"""The page of operating points in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.protocols.operating_points import facts as words
from roadworthy.protocols.operating_points import figures
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page


def page(name: str, run: Path, facts: Facts) -> Page:
    """The page of a run's operating points."""
    points = words.load_operating(run, facts)
    context: dict[str, Any] = {"points": points, "words": words, "fates": figures.FATES, "lines": figures.LINES}
    return Page(
        name,
        "Operating points",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: figures.charts(points, facts),
        context,
        models={model: words.model_words(points, model) for model in facts.models},
        headline=tuple(words.headline(points, facts)),
    )
