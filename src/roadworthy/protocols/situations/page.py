"""The page of expected situations in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.metrics.base import EXPECTED
from roadworthy.protocols.situations import figures, words
from roadworthy.protocols.situations.facts import load_situations
from roadworthy.protocols.situations.table_specs import NAME
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.report.words import plural, words_of


def page(run: Path, facts: Facts) -> Page:
    """The page of a run, or of one source of it."""
    test = load_situations(run, facts)
    context: dict[str, Any] = {
        "test": test,
        "words": words,
        "called": [test.called(name) for name in test.requirements],
        "status_colours": figures.STATUS_COLOURS,
        "costed": [name for name in test.metrics if words_of(name).higher_is_better is not None],
        "expectations": [f"{EXPECTED}{name}" for name in test.metrics],
    }
    return Page(
        NAME,
        "Expected situations",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: figures.charts(test, facts),
        context,
        models={model: words.model_words(test, model) for model in facts.models},
        headline=tuple(words.headline(test, facts)),
        details=tuple(
            (f"Recorded set {name}", f"{plural(own.images, 'image')} of {plural(own.groups, 'object')}")
            for name, own in facts.data.recorded.items()
        ),
    )
