"""The page of an OD-test in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.protocols.od_test import figures
from roadworthy.protocols.od_test.words import (
    NAME,
    OdTest,
    better,
    by_subject,
    cost_text,
    headline,
    load_od_test,
    metric_words,
    sentences,
)
from roadworthy.report.drawing import Charts
from roadworthy.report.facts import NOT_RUN, Facts
from roadworthy.report.page import Page, chart_names
from roadworthy.report.words import listing, whole

LINKS = {
    "ranking": "Ranking",
    "papers": "Papers",
    "sources": "By source",
    "pairs": "D_v and D_t",
    "near": "Near and far",
    "alone": "Without D_v",
    "cost": "Cost",
    "networks": "Networks",
    "missing": "Missing",
    "tables": "Tables",
}


def page(run: Path, facts: Facts) -> Page:
    """The page of a run's OD-test."""
    found = load_od_test(run, facts)
    facts = by_subject(found, facts)
    said, absent = tuple(sentences(found)), {"papers": not found.differs, "near": not found.has_near}
    failed = f", {len(found.failures)} of them failed" if found.failures else ""

    def draw() -> tuple[Charts, dict[str, Any]]:
        charts = figures.charts(found)
        return charts, {
            "test": found,
            "trained": {
                source.name: network
                for source in found.sources
                for network in sorted(facts.networks, key=lambda n: -n.clean_accuracy)
                if network.hash in source.networks
            },
            "metric_words": metric_words,
            "metric_labels": [metric_words(metric).label for metric in found.metrics],
            "better": better,
            "cost_text": cost_text,
            "monitor_labels": [method.label for method in found.methods],
            "breakdown_charts": [*chart_names(charts, "source-"), *chart_names(charts, "architecture-")],
            "heat_sources": figures.heat_sources(found),
            "heat_charts": chart_names(charts, "heat-"),
            "not_run": NOT_RUN,
            "table_names": _tables_of(run),
        }

    return Page(
        NAME,
        "OD-test",
        facts,
        Path(__file__).with_name("page.html.j2"),
        draw,
        {anchor: label for anchor, label in LINKS.items() if not absent.get(anchor)},
        sentences=said,
        brief=said[:2],
        headline=tuple(headline(found, facts)),
        details=(("Outliers", listing(found.sets)), ("Monitors", f"{len(found.methods)}{failed}")),
        provenance=_provenance(found, facts),
    )


def _tables_of(run: Path) -> list[str]:
    """The names of its stored tables, each there as CSV, LaTeX and Parquet."""
    return sorted(file.stem for file in (run / "tables").glob(f"*{NAME}*.csv") if file.with_suffix(".tex").is_file())


def _provenance(found: OdTest, facts: Facts) -> dict[str, list[tuple[str, str]]]:
    aim = [(name, str(value)) for name, value in found.aim.items()]
    return {
        "OD-test": [*aim, ("resamples", str(facts.record.protocols[NAME].settings.get("resamples", 0)))],
        "Images of OD-test": [
            (source.named, f"{listing([f'{key} {whole(count)}' for key, count in source.images.items()])} images")
            for source in found.sources
        ],
    }
