"""The report: one HTML file that opens offline, made from the stored tables, pictures and verdict of a run alone."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from roadworthy.metrics.mce import OTHER_THAN_PUBLISHED
from roadworthy.report import (
    comparison,
    dependability,
    dependability_figures,
    difference_figures,
    differences,
    drawing,
    figures,
    gans,
    od_test,
    od_test_figures,
    outlier_figures,
    outliers,
    summary,
    words,
)
from roadworthy.report.facts import CLEAN, NOT_RUN, Facts, load_facts
from roadworthy.statistics import paired

__all__ = ["headline", "render", "render_comparison"]

HERE = Path(__file__).parent
PILLS = 6
"""How many criteria are named beside the verdict."""


def render(path: str | Path) -> str:
    """The report of the run in a folder, as HTML: the same text every time for the same run."""
    facts = load_facts(path)
    if od_test.is_od_test(facts.record):
        return _render_od_test(path, facts)
    strange = outliers.load_outliers(path, facts)
    tested = differences.load_differences(path, facts)
    depended = dependability.load_dependability(path, facts)
    charts = figures.charts(facts)
    summaries = [summary.summarise(facts, model) for model in facts.models]
    if strange:
        charts |= outlier_figures.charts(strange, facts)
        summaries = [outliers.with_outliers(found, strange, facts) for found in summaries]
    if tested:
        charts |= difference_figures.charts(tested, facts)
    if depended:
        alone = not facts.classified and not strange
        charts |= dependability_figures.charts(depended, facts)
        summaries = [dependability.with_dependability(each, depended, facts, alone=alone) for each in summaries]
    return _page(
        "template.html.j2",
        charts,
        facts=facts,
        created=summary.created(facts),
        summaries=summaries,
        rules=list(dict.fromkeys(found.threshold for found in summaries)),
        hardest=summary.hardest(facts),
        verdict_words=summary.verdict_words(facts),
        failure_words=summary.failure_words(facts),
        to_the_minute=summary.to_the_minute,
        undertrained_words=summary.undertrained_words(facts),
        chance_words=summary.chance_words(facts),
        unsteady_words=summary.unsteady_words(facts),
        notes=summary.notes(facts),
        missing=summary.missing_values(facts),
        severity_rows=summary.severity_rows(facts),
        not_as_published=OTHER_THAN_PUBLISHED,
        gallery=summary.gallery(facts),
        provenance=summary.provenance(facts),
        calibration_words=summary.calibration_words,
        top_confusions=summary.top_confusions,
        weakest_classes=summary.weakest_classes,
        clean=CLEAN,
        few_models=summary.FEW_MODELS,
        pills=PILLS,
        metric_labels=_labels(facts.metrics),
        drop_labels=_labels(facts.drops),
        heat_charts=_named(charts, "heat-"),
        curve_charts=_named(charts, "curve-"),
        text_classes=figures.TEXT_CLASSES,
        **_outlier_context(strange, charts),
        **_difference_context(tested, charts),
        **_dependability_context(depended, charts),
    )


def _render_od_test(path: str | Path, facts: Facts) -> str:
    found = od_test.load_od_test(path, facts)
    charts = od_test_figures.charts(found)
    return _page(
        "od_test.html.j2",
        charts,
        facts=facts,
        test=found,
        created=summary.created(facts),
        said=list(od_test.sentences(found)),
        verdict_words=summary.verdict_words(facts),
        failure_words=summary.failure_words(facts),
        to_the_minute=summary.to_the_minute,
        undertrained_words=summary.undertrained_words(facts),
        provenance=od_test.provenance(found, facts),
        pills=PILLS,
        source_names=[facts.named(source.name) for source in found.sources],
        trained={network.system: network for network in sorted(facts.networks, key=lambda n: -n.clean_accuracy)},
        metric_words=od_test.metric_words,
        metric_labels=[od_test.metric_words(metric).label for metric in found.metrics],
        better=od_test.better,
        monitor_labels=[method.label for method in found.methods],
        breakdown_charts=[*_named(charts, "source-"), *_named(charts, "architecture-")],
        heat_sources=od_test_figures.heat_sources(found),
        heat_charts=_named(charts, "heat-"),
        not_run=NOT_RUN,
        table_names=od_test.tables_of(path),
    )


def render_comparison(table: pd.DataFrame, title: str, alpha: float, margin: float) -> str:
    """A comparison of models as one HTML page: counts, regressions first, changes by condition, every row.

    `table` is what `roadworthy.api.compare_runs` gives, `alpha` and `margin` are those it was made with.
    """
    found = comparison.load_comparison(table)
    return _page(
        "comparison.html.j2",
        comparison.charts(found),
        title=title,
        alpha=alpha,
        margin=margin,
        found=found,
        page_words=comparison.sentences(found, alpha, margin),
        results=paired.RESULTS,
        below_margin=paired.BELOW_MARGIN,
        pair_names=list(dict.fromkeys((pair.baseline, pair.model) for pair in found.pairs)),
        pair_metrics=[_labels(pair.metrics) for pair in found.pairs],
    )


def headline(path: str | Path) -> list[str]:
    """What the run in a folder says, in three lines of plain text: the verdict, the main figures, the worst condition.

    A model that is no better than chance, or whose answers do not repeat, has a line of its own before the figures.
    Accuracy and shifts, or outliers where nothing else was tested; where both were, the third line has both.
    """
    facts = load_facts(path)
    if od_test.is_od_test(facts.record):
        lines = [summary.verdict_line(facts), *od_test.headline(od_test.load_od_test(path, facts), facts)]
        return [summary.one_line(line) for line in lines]
    strange = outliers.load_outliers(path, facts)
    depended = dependability.load_dependability(path, facts)
    lines = summary.headline(facts) if facts.classified or not strange else outliers.headline(strange, facts)
    if depended and not facts.classified and not strange:
        lines = dependability.headline(depended, facts)
    if strange and facts.classified:
        hardest = outliers.headline(strange, facts)[1]
        lines = [lines[0], f"{lines[1]}; {hardest[0].lower()}{hardest[1:]}"]
    alarms = [f"No better than chance: {words}" for words in summary.chance_words(facts)]
    alarms += [f"Warning: {words}" for words in summary.unsteady_words(facts)]
    return [summary.one_line(line) for line in (summary.verdict_line(facts), *alarms, *lines)]


def _outlier_context(found: outliers.Outliers | None, charts: drawing.Charts) -> dict[str, Any]:
    if found is None:
        return {"outliers": None, "hard_sets": []}
    return {
        "outliers": found,
        "hard_sets": outliers.hard_sets(found),
        "misled": outliers.misled,
        "score_words": outliers.score_words(found),
        "outlier_sizes": outliers.sizes(found),
        "kind_words": outliers.KINDS,
        "outlier_labels": _labels(found.metrics),
        "outlier_charts": _named(charts, "outliers-"),
        "score_sets": [each.name for each in found.hardest(found.ranked, len(found.sets))],
        "score_charts": _named(charts, "scores-"),
        "side_colours": (outlier_figures.INSIDE, outlier_figures.OUTSIDE),
        "gan_curve_labels": list(gans.CURVES.values()),
        "gan_curve_charts": _named(charts, "gan-curve-"),
    }


def _difference_context(found: differences.Differences | None, charts: drawing.Charts) -> dict[str, Any]:
    if found is None:
        return {"differences": None}
    return {
        "differences": found,
        "agreement": differences.agreement,
        "by_words": differences.by_words,
        "form_words": differences.FORMS,
        "spread_labels": _labels(found.metrics),
        "spread_charts": _named(charts, "spread-"),
        "posthoc_labels": [
            [f"{words.words_of(metric).label}, {method}" for metric, method in question.choices]
            for question in found.questions
        ],
        "posthoc_charts": [_named(charts, f"posthoc-{place}-") for place in range(len(found.questions))],
    }


def _dependability_context(found: dependability.Dependability | None, charts: drawing.Charts) -> dict[str, Any]:
    if found is None:
        return {"dependability": None}
    return {
        "dependability": found,
        "dependability_overview": dependability.overview(found),
        "dependability_charts": charts,
        "coverage_words": dependability.coverage_words(found),
        "scenario_labels": _labels(found.metrics),
        "pair_charts": _named(charts, "pairs-"),
        "expensive": dependability.confusion_pictures,
    }


def _labels(metrics: tuple[str, ...]) -> list[str]:
    return [words.words_of(metric).label for metric in metrics]


def _named(charts: drawing.Charts, start: str) -> list[str]:
    return [name for name in charts if name.startswith(start)]


def _page(template: str, charts: drawing.Charts, **context: Any) -> str:
    """A page that loads nothing from outside and runs no script but its own."""
    scripts = {"plotly": _plotly(), "report": (HERE / "report.js").read_text(encoding="utf-8")}
    page = (
        _environment()
        .get_template(template)
        .render(
            **context,
            colours=drawing.COLOURS,
            number=words.number,
            bounds=words.bounds,
            whole=words.whole,
            plural=words.plural,
            listing=words.listing,
            signed=words.signed,
            p_value=words.p_value,
            words_of=words.words_of,
            charts=_json_script(charts),
            style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
            scripts={name: Markup(script) for name, script in scripts.items()},
            script_hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts.values()),
        )
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script


def _sha256(script: str) -> str:
    """The hash by which the page's content security policy knows its own scripts, so that no other one can run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json_script(value: Any) -> Markup:
    """JSON that can stand inside a script element.

    >>> _json_script({"name": "</script><b>&"})
    Markup('{"name":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e\\\\u0026"}')
    """
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
