"""The page of an OD-test in the report."""

from __future__ import annotations

from pathlib import Path

from roadworthy.protocols.od_test import figures, finding_figures, words
from roadworthy.protocols.od_test.gallery_facts import load_learned, load_surest
from roadworthy.protocols.od_test.loading import by_subject, load_od_test
from roadworthy.protocols.od_test.names import NAME
from roadworthy.protocols.od_test.network_facts import load_networks
from roadworthy.report.facts import NOT_RUN, Facts
from roadworthy.report.page import Page
from roadworthy.report.words import listing, whole


def page(run: Path, facts: Facts) -> Page:
    """The page of a run's OD-test."""
    test, networks = load_od_test(run, facts), load_networks(run)
    facts = by_subject(test, facts)
    sentences = tuple(words.sentences(test))
    failed = f", {len(test.failures)} of them failed" if test.failures else ""
    resamples = facts.record.protocols[NAME].settings.get("resamples", 0)
    context = {
        "test": test,
        "trained": {
            source.name: network
            for source in test.sources
            for network in sorted(facts.networks, key=lambda n: -n.competence.value)
            if network.hash in source.networks
        },
        "words": words,
        "metric_labels": [words.metric_words(metric).label for metric in test.metrics],
        "heat_sources": figures.heat_sources(test),
        "gap_labels": finding_figures.gap_labels(test, test.findings.gaps) if test.findings.gaps else [],
        "size_names": finding_figures.size_names(test, test.findings.sizes) if test.findings.sizes else [],
        "side_by_side": finding_figures.SIDE_BY_SIDE,
        "resamples": words.resamples(test.findings.order) if test.findings.order else 0,
        "not_run": NOT_RUN,
        "surest": load_surest(run),
        "learned": load_learned(run, networks),
        "own_networks": networks,
        "table_names": sorted(
            file.stem for file in (run / "tables").glob(f"*{NAME}*.csv") if file.with_suffix(".tex").is_file()
        ),
    }
    return Page(
        NAME,
        "OD-test",
        facts,
        Path(__file__).with_name("page.html.j2"),
        lambda: figures.charts(test) | finding_figures.charts(test),
        context,
        sentences=sentences,
        brief=sentences[:2],
        headline=tuple(words.headline(test, facts)),
        details=(("Outliers", listing(test.sets)), ("Monitors", f"{len(test.methods)}{failed}")),
        provenance={
            "OD-test": [*((name, str(value)) for name, value in test.aim.items()), ("resamples", str(resamples))],
            "Images of OD-test": [
                (source.named, f"{listing([f'{key} {whole(count)}' for key, count in source.images.items()])} images")
                for source in test.sources
            ],
        },
    )
