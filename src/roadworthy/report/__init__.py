"""The report: one HTML file that opens offline, made from the stored tables, pictures and verdict of a run alone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from roadworthy.core.errors import one_line
from roadworthy.report import comparison, drawing, frame
from roadworthy.report.baseline import load_baseline
from roadworthy.report.facts import Facts, load_facts
from roadworthy.report.markdown import comparison_markdown, verdict_markdown
from roadworthy.report.packing import chart_blocks, pack_tables
from roadworthy.report.page import FEW_MODELS, HERE, KIT, Page, environment, words_for
from roadworthy.report.reading import read_json
from roadworthy.statistics import paired
from roadworthy.verdict.argument import Argument

__all__ = [
    "baseline_lines",
    "comparison_markdown",
    "headline",
    "page_lines",
    "render",
    "render_comparison",
    "render_tables",
    "verdict_markdown",
]

PILLS = 8
"""How many criteria are named beside the verdict."""


def render(facts: Facts, pages: Sequence[Page], protocols: Mapping[str, str] | None = None) -> str:
    """The report of a run, with the pages of its protocols, as HTML: the same text every time.

    `protocols` is the protocol of each criterion by its id: with it the argument goes down to files and hashes.
    """
    argument, judged_against = _argued(facts, protocols or {})
    lines = frame.summary_lines(pages, facts.parts)
    return _page(
        "frame.html.j2",
        {f"{page.prefix}{name}": chart for page in pages for name, chart in page.charts.items()},
        facts=facts,
        argument=argument,
        judged_against=judged_against,
        baseline=load_baseline(facts.path, facts.record),
        parts=facts.parts,
        pages=pages,
        models=_unique(model for part in facts.parts for model in part.models),
        details=[
            (f"{page.label}, {name.lower()}" if len(pages) > 1 else name, text)
            for page in pages
            for name, text in page.details
        ],
        worst=frame.worst_conditions(pages),
        unsteady=[words for part in facts.parts for words in frame.unsteady_words(part)],
        found=[words for part in facts.parts for words in frame.found_words(part)],
        lines=lines,
        rules=_unique(line.rule for line in lines),
        many=len(lines) > FEW_MODELS,
        words=frame,
        reading=_lines(pages, "reading"),
        metrics=_lines(pages, "metrics"),
        provenance=frame.provenance(facts, facts.parts, pages),
        to_the_minute=frame.to_the_minute,
        pills=PILLS,
    )


def headline(facts: Facts, pages: Sequence[Page]) -> list[str]:
    """What a run says, in a few lines of plain text: the verdict, then the lines of each page.

    The answers to the questions of the study follow the verdict. A model whose answers do not repeat has a line of
    its own before the figures.
    """
    judged = [one_line(line) for line in (frame.verdict_line(facts), *frame.answer_lines(facts.answers))]
    return [*judged, *page_lines(facts, pages)]


def page_lines(facts: Facts, pages: Sequence[Page]) -> list[str]:
    """The main figures of each page in lines of plain text, after a warning on models whose answers do not repeat."""
    found = [words for part in facts.parts for words in (*frame.unsteady_words(part), *frame.found_words(part))]
    warnings = [f"Warning: {words}" for words in found]
    lines = [f"{page.source}: {line}" if page.source else line for page in pages for line in page.headline]
    return [one_line(line) for line in (*warnings, *lines)]


def baseline_lines(path: str | Path) -> list[str]:
    """How the models of a run differ from those of its baseline, in a few lines of plain text; none without one."""
    baseline = load_baseline(Path(path), load_facts(path).record)
    return [one_line(line) for line in baseline.lines()] if baseline else []


def _argued(facts: Facts, protocols: Mapping[str, str]) -> tuple[Markup, Any]:
    """The picture of the argument, empty without criteria, and the run that the criteria were judged against."""
    verdict = read_json(facts.path, "verdict.json")
    argument = Markup(Argument(verdict, facts.record, protocols).inline_svg()) if facts.criteria else Markup()
    return argument, verdict.get("baseline")


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _lines(pages: Sequence[Page], part: str) -> Markup:
    """One part of all pages, line by line; a line that several pages share stands there once."""
    return Markup("\n".join(_unique(line for page in pages for line in page.parts[part].splitlines())))


def render_comparison(table: pd.DataFrame, title: str, alpha: float, margin: float) -> str:
    """A comparison of models as one HTML page: counts, regressions first, changes by condition, every row.

    `table` is what `roadworthy.api.compare_runs` gives, `alpha` and `margin` are those it was made with.
    """
    compared = comparison.load_comparison(table)
    return _page(
        "comparison.html.j2",
        comparison.charts(compared),
        title=title,
        alpha=alpha,
        margin=margin,
        compared=compared,
        page_words=comparison.sentences(compared, alpha, margin),
        results=paired.RESULTS,
        below_margin=paired.BELOW_MARGIN,
        pair_names=list(dict.fromkeys((pair.baseline, pair.model) for pair in compared.pairs)),
        pair_metrics=[words_for(pair.protocol)["labels_of"](pair.metrics) for pair in compared.pairs],
    )


def render_tables(template: Path, **context: Any) -> str:
    """A page of tables with the look of the report, from a template that extends the skeleton: it runs no script."""
    return _rendered(template, {}, context)


def _page(template: str, charts: drawing.Charts, **context: Any) -> str:
    """A page that loads nothing from outside and runs no script but its own; what is long is packed."""
    plain_charts, packed_charts = chart_blocks(charts)
    scripts = {"plotly": _plotly(), "report": (HERE / "report.js").read_text(encoding="utf-8")}
    blocks = {"charts": plain_charts, "packed_charts": packed_charts}
    return pack_tables(_rendered(HERE / template, scripts, {**context, **blocks}))


def _rendered(template: Path, scripts: Mapping[str, str], context: Mapping[str, Any]) -> str:
    """The text of a page, which allows the scripts that are given and no other."""
    page = (
        environment(template.parent)
        .get_template(template.name)
        .render(
            **{**KIT, **words_for(""), **context},
            links={},
            style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
            scripts={name: Markup(script) for name, script in scripts.items()},
            script_hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts.values()) or "'none'",
        )
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _plotly() -> str:
    """The script of plotly.js, a copy of the one in the Python package plotly, which has 60 MB of other things."""
    return (HERE / "plotly.min.js").read_text(encoding="utf-8")


def _sha256(script: str) -> str:
    """The hash by which the page's content security policy knows its own scripts, so that no other one can run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
