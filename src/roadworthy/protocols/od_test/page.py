"""The page of an OD-test in the report."""

from __future__ import annotations

from pathlib import Path

from roadworthy.protocols.od_test import figures, words
from roadworthy.protocols.od_test.evaluation import NAME
from roadworthy.report.facts import NOT_RUN, Facts
from roadworthy.report.page import Page
from roadworthy.report.words import listing, whole


def page(run: Path, facts: Facts) -> Page:
    """The page of a run's OD-test."""
    found = words.load_od_test(run, facts)
    facts = words.by_subject(found, facts)
    sentences = tuple(words.sentences(found))
    failed = f", {len(found.failures)} of them failed" if found.failures else ""
    resamples = facts.record.protocols[NAME].settings.get("resamples", 0)
    context = {
        "test": found,
        "trained": {
            source.name: network
            for source in found.sources
            for network in sorted(facts.networks, key=lambda n: -n.clean_accuracy)
            if network.hash in source.networks
        },
        "words": words,
        "metric_labels": [words.metric_words(metric).label for metric in found.metrics],
        "heat_sources": figures.heat_sources(found),
        "not_run": NOT_RUN,
        "table_names": sorted(
            file.stem for file in (run / "tables").glob(f"*{NAME}*.csv") if file.with_suffix(".tex").is_file()
        ),
    }
    return Page(
        NAME,
        "OD-test",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: figures.charts(found),
        context,
        sentences=sentences,
        brief=sentences[:2],
        headline=tuple(words.headline(found, facts)),
        details=(("Outliers", listing(found.sets)), ("Monitors", f"{len(found.methods)}{failed}")),
        provenance={
            "OD-test": [*((name, str(value)) for name, value in found.aim.items()), ("resamples", str(resamples))],
            "Images of OD-test": [
                (source.named, f"{listing([f'{key} {whole(count)}' for key, count in source.images.items()])} images")
                for source in found.sources
            ],
        },
    )
