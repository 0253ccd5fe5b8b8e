"""The page of break points in the report."""

from __future__ import annotations

from pathlib import Path

from roadworthy.protocols.break_point import facts as words
from roadworthy.protocols.break_point import figures
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page


def page(name: str, run: Path, facts: Facts) -> Page:
    """The page of a run's break points."""
    breaks = words.load_breaks(run, facts)
    return Page(
        name,
        "Break points",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: figures.charts(breaks, facts),
        {"breaks": breaks, "words": words},
        models={model: words.model_words(breaks, model) for model in facts.models},
        headline=tuple(words.headline(breaks, facts)),
    )
