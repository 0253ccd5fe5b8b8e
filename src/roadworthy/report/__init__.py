"""The report: one HTML file that opens offline, made from the stored tables, pictures and verdict of a run alone."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from roadworthy.report import figures, summary, words
from roadworthy.report.facts import CLEAN, load_facts

__all__ = ["headline", "render"]

HERE = Path(__file__).parent
PILLS = 6
"""How many criteria are named beside the verdict."""


def render(path: str | Path) -> str:
    """The report of the run in a folder, as HTML: the same text every time for the same run."""
    facts = load_facts(path)
    charts = figures.charts(facts)
    summaries = [summary.summarise(facts, model) for model in facts.models]
    scripts = {"plotly": _plotly(), "report": (HERE / "report.js").read_text(encoding="utf-8")}
    page = _template().render(
        facts=facts,
        created=summary.created(facts),
        summaries=summaries,
        rules=list(dict.fromkeys(found.threshold for found in summaries)),
        hardest=summary.hardest(facts),
        verdict_words=summary.verdict_words(facts),
        notes=summary.notes(facts),
        missing=summary.missing_values(facts),
        severity_rows=summary.severity_rows(facts),
        gallery=summary.gallery(facts),
        provenance=summary.provenance(facts),
        calibration_words=summary.calibration_words,
        top_confusions=summary.top_confusions,
        weakest_classes=summary.weakest_classes,
        clean=CLEAN,
        few_models=summary.FEW_MODELS,
        pills=PILLS,
        metric_labels=[words.words_of(metric).label for metric in facts.metrics],
        drop_labels=[words.words_of(metric).label for metric in facts.drops],
        heat_charts=[name for name in charts if name.startswith("heat-")],
        curve_charts=[name for name in charts if name.startswith("curve-")],
        text_classes=figures.TEXT_CLASSES,
        colours=figures.COLOURS,
        number=words.number,
        bounds=words.bounds,
        whole=words.whole,
        plural=words.plural,
        listing=words.listing,
        words_of=words.words_of,
        charts=_json_script(charts),
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        scripts={name: Markup(script) for name, script in scripts.items()},
        script_hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts.values()),
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def headline(path: str | Path) -> list[str]:
    """What the run in a folder says, in three lines of plain text: verdict, accuracies with bounds, worst condition."""
    return summary.headline(load_facts(path))


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html.j2")


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
