"""The pages of a run: each of its protocols is asked for its own, once for every source where there are several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from roadworthy.protocols import PROTOCOLS
from roadworthy.report.facts import Facts, asked_by
from roadworthy.report.page import Page, plain_page


def pages_of(facts: Facts) -> list[Page]:
    """The pages of a run in the order of the registry, then those of protocols that are not registered here."""
    stored = facts.record.protocols
    by_source = {part.source: part for part in facts.of_sources}
    known = [name for name in PROTOCOLS if name in stored]
    pages = []
    for name in [*known, *(name for name in stored if name not in known)]:
        together = name in known and PROTOCOLS.get(name).shows_sources_together
        several = facts.sources and not together
        parts = [by_source.get(source, facts) for source in stored[name].sources] if several else [facts]
        pages += [_page(name, facts.path, asked_by(name, part)) for part in parts]
    return pages


def _page(name: str, run: Path, facts: Facts) -> Page:
    if name not in PROTOCOLS:
        return plain_page(name, run, facts, "")
    protocol = PROTOCOLS.get(name)()
    page = protocol.page(run, facts) or plain_page(name, run, facts, protocol.summary)
    stated = {"test_limits": protocol.limits, "page_sentences": page.sentences, "page_models": page.models}
    return replace(page, context={**page.context, **stated})
