"""The frame of the report: what is said of every run, whatever was tested, in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from roadworthy.core.grouping import grouped
from roadworthy.report.facts import WORST, Facts
from roadworthy.report.page import ModelWords, Page, WorstCondition
from roadworthy.report.questions import answer_lines as answer_lines
from roadworthy.report.words import listing, plural, whole
from roadworthy.statistics import Estimate
from roadworthy.verdict.failures import count_failed

OTHER_CRITERIA = "These criteria are not those that the study was run with."

EXAMPLE = "Thresholds are examples, not a judgement."
NO_NAME = "Nobody is named who decided on these thresholds."

SHORT_HASH = 12
"""How many digits of a SHA-256 tell files apart for a reader; all of them are in run.json."""


@dataclass(frozen=True)
class Topic:
    """What one page says of a model, in brief: the sentence that comes first, and the rest of them."""

    title: str
    first: str
    rest: tuple[str, ...]


@dataclass(frozen=True)
class Line(ModelWords):
    """A line of the summary: a model (of a source), and what all pages say of it; `topics` hold it page by page."""

    model: str = ""
    source: str | None = None
    colour_index: int | None = None
    topics: tuple[Topic, ...] = ()


def summary_lines(pages: Sequence[Page], parts: Sequence[Facts]) -> list[Line]:
    """A line per model of each part: the first page gives the key figures and whole sentences, others are brief."""
    leading = next((page for page in pages if page.models), None)
    if leading is None:
        return []
    absent = Estimate(math.nan, reason=f"not part of {leading.title}")
    labels = [(label, metric, absent) for label, metric, _ in next(iter(leading.models.values())).figures]
    lines = []
    for part in parts:
        own = [page for page in pages if page.source in (part.source, None) and page.models]
        # A model has one colour in all charts only where every page is about all models.
        coloured = len(part.models) > 1 and all(tuple(page.models) == part.models for page in own)
        for index, model in enumerate(part.models):
            speaking = [page for page in own if model in page.models]
            known = [page.models[model] for page in speaking]
            if not known:
                continue
            leads = bool(own) and own[0].title == leading.title and model in own[0].models
            figures = known[0].figures if leads else tuple(labels)
            sentences = (*known[0].sentences, *(sentence for later in known[1:] for sentence in later.brief))
            brief = tuple(sentence for model_words in known for sentence in model_words.brief)
            rule = " ".join(model_words.rule for model_words in known if model_words.rule)
            briefs = [(page.title, page.models[model].brief) for page in speaking]
            topics = tuple(_topic(title, in_brief) for title, in_brief in briefs if in_brief)
            colour_index = index if coloured else None
            lines.append(Line(figures, sentences, brief, rule, model, part.source, colour_index, topics))
    return lines


def _topic(title: str, brief: Sequence[str]) -> Topic:
    """What a page says of a model in brief, without the title where its first sentence opens with it.

    >>> _topic("Localization", ("Localization: IoU is lowest in fog.", "It is sure."))
    Topic(title='Localization', first='IoU is lowest in fog.', rest=('It is sure.',))
    """
    return Topic(title, brief[0].removeprefix(f"{title}: "), tuple(brief[1:]))


def worst_conditions(pages: Sequence[Page], count: int = WORST) -> list[tuple[Page, WorstCondition]]:
    """The worst conditions for the first screen: of the first page that ranks some, or of it for every source."""
    leading = next((page for page in pages if page.worst), None)
    known = [(page, own) for page in pages if leading and page.name == leading.name for own in page.worst]
    return sorted(known, key=lambda entry: entry[1].estimate.value)[:count]


def data_words(facts: Facts) -> str:
    """What was shown, in a line: how many images of how many objects, and how many classes."""
    data, counts = facts.data, []
    if data.images:
        counts.append(f"{plural(data.images, 'image')} of {plural(data.groups, 'object')}")
    return f"{data.name}: {', '.join([*counts, plural(len(facts.class_names), 'class')])}"


def verdict_line(facts: Facts) -> str:
    """The verdict, how many cases failed, and whether the criteria are the study's, in one line."""
    other = OTHER_CRITERIA if facts.has_other_criteria else ""
    words = [f"Verdict: {facts.status}.", verdict_words(facts), failure_words(facts), other, decision_mark(facts)]
    return " ".join(filter(None, words))


def decision_mark(facts: Facts) -> str:
    """What must be said of who decided on the thresholds: nobody, since they are examples or no name is there."""
    if facts.decision is not None and (facts.decision.example or facts.decision.words()):
        return EXAMPLE if facts.decision.example else ""
    return NO_NAME if facts.answers and facts.criteria else ""


def failed_words(facts: Facts) -> str:
    """How many cases or monitors failed; cases alone, of how many."""
    asked = {entry.case for _, _, entry, case in facts.record.asked() if case.kind == "model"}
    of = f" of {whole(len(asked))}" if {part.kind for part in facts.failed} == {"case"} else ""
    return f"{count_failed(facts.failed)}{of} failed"


def failure_words(facts: Facts) -> str:
    """How many failed, and what follows; nothing where none did."""
    if not facts.failed:
        return ""
    return f"{failed_words(facts)}{'' if facts.status == 'fail' else ', which is never a pass'}."


def verdict_words(facts: Facts) -> str:
    """The verdict in one sentence."""
    if not facts.criteria and facts.answers:
        return "Not judged: no threshold was given, so no question is answered with a pass."
    if not facts.criteria:
        return "No acceptance criteria were given, so nothing was judged."
    words = f"{_counted([answer.status for answer in facts.answers], 'question')} " if facts.answers else ""
    return words + _counted([criterion.status for criterion in facts.criteria], "criterion")


def _counted(statuses: Sequence[str], noun: str) -> str:
    """How many of some things fail, are inconclusive or pass, in a sentence.

    >>> _counted(["pass", "fail", "pass"], "question"), _counted(["pass"], "criterion")
    ('Of 3 questions 1 fails and 2 pass.', 'The one criterion passes.')
    """
    verbs = {
        "fail": ("fails", "fail"),
        "inconclusive": ("is inconclusive", "are inconclusive"),
        "pass": ("passes", "pass"),
    }
    if len(statuses) == 1:
        return f"The one {noun} {verbs[statuses[0]][0]}."
    counts = {status: statuses.count(status) for status in verbs}
    parts = [f"{count} {verbs[status][0 if count == 1 else 1]}" for status, count in counts.items() if count]
    several = {"criterion": "criteria"}.get(noun, f"{noun}s")
    return f"Of {len(statuses)} {several} {listing(parts)}."


def judged_words(facts: Facts) -> str:
    """By which criteria the run's own verdict was made, and when; an empty text where nothing was judged."""
    if not facts.criteria or facts.own is None:
        return ""
    unnamed = {"study": "criteria of the study"}.get(facts.own.made, "criteria that replaced those of the study")
    return f"By {PurePath(facts.own.criteria_file).name or unnamed}, {to_the_minute(facts.own.date)}."


def undertrained_words(facts: Facts) -> str:
    """How far networks are below their floors.

    Several networks stand for one model where it is trained anew for each repeat.
    """
    shortfalls = []
    for model in facts.models:
        networks = [network for network in facts.networks if network.system == model]
        below = [network for network in networks if network.undertrained]
        if below:
            lowest = min(below, key=lambda network: network.competence.value - network.competence.floor)
            share = f"{len(below)} of {len(networks)} networks, the lowest " if len(networks) > 1 else ""
            below_floor = f"{lowest.shown_value} on {lowest.competence.images}, below its floor of {lowest.shown_floor}"
            shortfalls.append(f"{model}: {share}{below_floor}")
    return f"{'; '.join(shortfalls)}." if shortfalls else ""


def unsteady_words(facts: Facts) -> list[str]:
    """Which models answered the same images differently when asked again, a sentence each."""
    changes = {name: model.changes_by for name, model in facts.known_models.items()}
    return [
        f"{name} answers the same images differently when asked again (probabilities change by up to {change:.2g})."
        for name, change in changes.items()
        if change
    ]


def found_words(facts: Facts) -> list[str]:
    """What the check before the run found of the models, a sentence each."""
    return [f"{name}: {text}." for name, model in facts.known_models.items() for text in model.found]


def notes(facts: Facts) -> list[str]:
    """What a reader must know about the data before trusting a number."""
    data = facts.data
    lines = list(data.notes)
    left_out = grouped(
        (reason, protocol)
        for protocol, own in facts.record.protocols.items()
        for source, part in own.sources.items()
        if facts.source in (None, source)
        for reason in part.left_out.values()
    )
    lines += [f"Left out of {listing([*dict.fromkeys(names)])}: {reason}." for reason, names in left_out.items()]
    if data.bad_images:
        lines.append(f"Unreadable and left out of every figure: {plural(len(data.bad_images), 'image')}.")
    for role, seen in (("test", data.seen), ("validation", data.validation_seen)):
        are = "is a training image" if len(seen) == 1 else "are training images"
        lines += [f"{plural(len(seen), f'{role} image')} {are} too, such as {name}." for name in seen[:1]]
    if data.images and data.groups == data.images:
        lines.append(
            "Every image counts as an independent object. If several images show the same object, the bounds are too "
            "narrow: name the object of each image (group) in the data."
        )
    return lines


def provenance(facts: Facts, parts: Sequence[Facts], pages: Sequence[Page]) -> dict[str, Sequence[tuple[str, str]]]:
    """What the run was made of and with: sections of (name, value), those of the pages last."""
    record, environment = facts.record, facts.record.environment
    failed = sum(case.status == "failed" for case in record.cases.values())
    run = [
        ("study", record.study),
        ("created", record.created),
        ("seed", str(record.seed)),
        ("cases", f"{whole(len(record.cases))}, {whole(failed)} failed"),
        ("repeats per condition", str(facts.repeats)),
        *((name, _plain(value)) for name, value in record.settings.items()),
        *(("plugin", f"{p.plugin}; SHA-256 of {_hashes(p.files)}") for p in record.plugins),
        ("run schema", str(record.schema_)),
        (
            "files",
            f"{whole(facts.file_count)}, each with its SHA-256 in run.json or in a manifest that run.json hashes",
        ),
    ]
    sections: dict[str, Sequence[tuple[str, str]]] = {"Run": run}
    for part in parts:
        of = "" if part.source is None else f" of {part.source}"
        sections |= {f"Data{of}": _data(part), f"Models{of}": _models(part)}
    sections["Environment"] = [
        *((name, _plain(value)) for name, value in environment.items() if name != "packages"),
        *((name, str(version)) for name, version in environment.get("packages", {}).items()),
    ]
    return {**sections, **{title: rows for page in pages for title, rows in page.provenance.items()}}


def _hashes(files: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in files.items())


def _data(facts: Facts) -> list[tuple[str, str]]:
    known = {"name": "name", "images": "images", "groups": "independent objects", "size": "image size"}
    rows = [(words, _plain(value)) for name, words in known.items() if (value := getattr(facts.data, name))]
    fingerprint = [("fingerprint", facts.data.fingerprint)] if facts.data.fingerprint else []
    return [*rows, ("classes", whole(len(facts.class_names))), *fingerprint]


def _models(facts: Facts) -> list[tuple[str, str]]:
    rows = []
    for name, model in facts.known_models.items():
        files = [f"{file} (SHA-256 {sha256[:SHORT_HASH]})" for file, sha256 in model.files.items()]
        parts = {
            "": " ".join(filter(None, [model.origin, listing(files)])),
            "input ": model.input,
            "outputs ": model.outputs,
            "gives ": ", ".join(model.capabilities),
            "fingerprint ": model.fingerprint,
            "ran in ": "a process of its own" if model.isolated else "the process of the run",
        }
        rows.append((facts.named(name), "; ".join(f"{label}{text}" for label, text in parts.items() if text)))
    return rows


def _plain(value: Any) -> str:
    if type(value) is int:
        return whole(value)
    return " x ".join(str(item) for item in value) if isinstance(value, list) else str(value)


def to_the_minute(stored: str) -> str:
    """A stored time. Times are stored in UTC; one that is no ISO time is shown as it is.

    >>> to_the_minute("2026-03-01T12:30:59+00:00"), to_the_minute("not known")
    ('2026-03-01 12:30 UTC', 'not known')
    """
    try:
        return f"{datetime.fromisoformat(stored).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return stored
