"""The summary: what a run says about each model, in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from roadworthy.report.facts import CLEAN, NOT_RUN, REPORT, ROLE, Cell, ClassRecall, Condition, Facts, Strip
from roadworthy.report.words import NO_BREAK, bounds, listing, number, plural, whole

GOOD_ACCURACY = 0.95
TOLERATED_LOSS = 0.05
CALIBRATED = 0.02
"""An expected calibration error that is called well calibrated."""


@dataclass(frozen=True)
class Summary:
    """One model: key figures, the rule of the threshold, and where accuracy falls below it."""

    model: str
    clean: Cell
    average: Cell
    worst: tuple[tuple[Condition, Cell], ...]
    sentences: tuple[str, ...]
    threshold: str
    falls: tuple[str, ...]


def summarise(facts: Facts, model: str) -> Summary:
    """The summary of one model."""
    clean = facts.cell(model, CLEAN, ROLE)
    average = facts.overall.get((model, ROLE), Cell(float("nan"), reason="no disturbed condition was run"))
    threshold, rule = accuracy_threshold(clean)
    return Summary(
        model=model,
        clean=clean,
        average=average,
        worst=tuple((condition, facts.cell(model, condition, ROLE)) for condition in facts.worst(model)),
        sentences=tuple(_sentences(facts, model, clean, average)),
        threshold=rule,
        falls=tuple(_falls(facts, model, threshold)),
    )


def accuracy_threshold(clean: Cell) -> tuple[float, str]:
    """The accuracy below which a level is called out, and the rule it follows from, in words.

    >>> accuracy_threshold(Cell(0.97))[0], round(accuracy_threshold(Cell(0.90))[0], 6)
    (0.95, 0.85)
    """
    if clean.missing or clean.value >= GOOD_ACCURACY:
        return GOOD_ACCURACY, f"Levels are called out where accuracy is below {_percent(GOOD_ACCURACY)}."
    threshold = max(clean.value - TOLERATED_LOSS, 0.0)
    return threshold, (
        f"Accuracy on undisturbed images is itself below {_percent(GOOD_ACCURACY)}, so levels are called out where "
        f"accuracy is below {_percent(threshold)}: 5 points under undisturbed."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + f"{NO_BREAK}%"


def _sentences(facts: Facts, model: str, clean: Cell, average: Cell) -> Iterator[str]:
    if clean.missing:
        yield f"Accuracy on undisturbed images is missing: {clean.reason}."
    else:
        share = f"{number(ROLE, clean.value)} (95{NO_BREAK}% bounds {bounds(ROLE, clean.lo, clean.hi)})"
        evidence = f"{plural(clean.n, 'image')} of {plural(clean.groups, 'independent object')}"
        yield f"On undisturbed images {share} of the answers are right, measured on {evidence}."
    conditions = len(facts.conditions)
    if average.missing:
        yield f"There is no average under shifts: {average.reason}."
        return
    share = f"{number(ROLE, average.value)} (95{NO_BREAK}% bounds {bounds(ROLE, average.lo, average.hi)})"
    drop = facts.overall.get((model, f"{ROLE}_drop"))
    lost = ""
    if drop and not drop.missing:
        change = "fewer" if drop.value >= 0 else "more"
        lost = f", {number(f'{ROLE}_drop', abs(drop.value))} {change} than undisturbed"
    yield f"Averaged over {plural(conditions, 'disturbed condition')} it is {share}{lost}."
    confidence = facts.overall.get((model, "mean_confidence"))
    if confidence and not confidence.missing:
        gap = confidence.value - average.value
        word = "overconfident" if gap > CALIBRATED else "underconfident" if gap < -CALIBRATED else "about right"
        yield (
            f"Under shifts its mean confidence is {number('mean_confidence', confidence.value)} where accuracy is "
            f"{number(ROLE, average.value)}: {word} on average."
        )


def _falls(facts: Facts, model: str, threshold: float) -> Iterator[str]:
    """Where accuracy is below the threshold: the shifts that are at every level, then one by one, then those never."""
    limit = _percent(threshold)
    always, steady, unmeasured = [], [], []
    onsets: list[tuple[int, str]] = []
    for shift in facts.shifts:
        levels = [c.level for c in facts.conditions if c.shift == shift]
        cells = {level: facts.cell(model, Condition(shift, level), ROLE) for level in levels}
        measured = [level for level in levels if not cells[level].missing]
        below = [level for level in measured if cells[level].value < threshold]
        if len(measured) < len(levels):
            gaps = listing([str(level) for level in levels if level not in measured])
            unmeasured.append(f"{shift} level {gaps}")
        if below and below == levels:
            always.append(shift)
        elif below:
            onsets.append((below[0], f"Accuracy drops below {limit} {_place(shift, below, measured)}."))
        elif measured:
            steady.append(shift)
    if always:
        yield f"Accuracy is below {limit} at every level of {listing(always)}."
    yield from (sentence for _, sentence in sorted(onsets, key=lambda onset: onset[0]))
    if steady:
        yield f"Accuracy stays at {limit} or above at every level measured of {listing(steady)}."
    if unmeasured:
        yield f"Not measured: {listing(unmeasured)}."


def _place(shift: str, below: list[int], measured: list[int]) -> str:
    """Where accuracy is below the threshold: from a level on, or at single levels where it recovers.

    >>> _place("fog", [3, 4, 5], [1, 2, 3, 4, 5]), _place("fog", [5], [4, 5]), _place("fog", [1, 3], [1, 2, 3])
    ('from fog level 3 on', 'at fog level 5', 'at fog levels 1 and 3, not at 2')
    """
    if below != measured[measured.index(below[0]) :]:
        above = listing([str(level) for level in measured if level not in below])
        levels = "levels" if len(below) > 1 else "level"
        return f"at {shift} {levels} {listing([str(level) for level in below])}, not at {above}"
    return f"at {shift} level {below[0]}" if len(below) == 1 else f"from {shift} level {below[0]} on"


def calibration_words(ece: Cell, over: Cell, under: Cell) -> str:
    """Whether confidence promises too much or too little.

    >>> calibration_words(Cell(0.10), Cell(0.09), Cell(0.01))
    'overconfident'
    """
    if ece.missing or over.missing or under.missing:
        return "calibration not measured"
    if ece.value < CALIBRATED:
        return "well calibrated"
    if over.value > 2 * under.value:
        return "overconfident"
    if under.value > 2 * over.value:
        return "underconfident"
    return "over- and underconfident"


def verdict_words(facts: Facts) -> str:
    """The verdict in one sentence."""
    if not facts.criteria:
        return "No acceptance criteria were given, so nothing was judged."
    verbs = {
        "fail": ("fails", "fail"),
        "inconclusive": ("is inconclusive", "are inconclusive"),
        "pass": ("passes", "pass"),
    }
    parts = []
    for status, (one, many) in verbs.items():
        count = sum(criterion.status == status for criterion in facts.criteria)
        if count:
            parts.append(f"{count} {one if count == 1 else many}")
    if len(facts.criteria) == 1:
        return f"The one criterion {verbs[facts.status][0]}."
    return f"Of {len(facts.criteria)} criteria {listing(parts)}."


def notes(facts: Facts) -> list[str]:
    """What a reader must know about the data before trusting a number."""
    data = facts.record["data"]
    found = [str(note) for note in data["notes"]]
    if data["bad_images"]:
        found.append(f"Unreadable and left out of every figure: {plural(len(data['bad_images']), 'image')}.")
    if data["groups"] == data["images"]:
        found.append(
            "Every image counts as an independent object. If several images show the same object, the bounds are too "
            "narrow: name the object of each image (group) in the data."
        )
    return found


def provenance(facts: Facts) -> dict[str, list[tuple[str, str]]]:
    """What the run was made of and with: sections of (name, value)."""
    record = facts.record
    data, environment = record["data"], record["environment"]
    files = [name for name in record.get("files", {}) if name != REPORT]
    return {
        "Run": [
            ("study", str(record["study"])),
            ("created", str(record["created"])),
            ("seed", str(record["seed"])),
            ("cases", f"{whole(len(record['cases']))}, {whole(len(facts.failures))} failed"),
            ("repeats", str(facts.repeats)),
            *((name, _plain(value)) for name, value in record["settings"].items()),
            ("run schema", str(record.get("schema", "not recorded"))),
            ("files", f"{whole(len(files))}, each with its SHA-256 in run.json"),
        ],
        "Data": [
            ("name", str(data["name"])),
            ("images", whole(data["images"])),
            ("independent objects", whole(data["groups"])),
            ("classes", whole(len(facts.class_names))),
            ("image size", " x ".join(str(side) for side in data["size"])),
            ("fingerprint", str(data["fingerprint"])),
        ],
        "Models": [
            (name, f"fingerprint {model['fingerprint']}; gives {', '.join(model['capabilities'])}")
            for name, model in record["models"].items()
        ],
        "Environment": [
            *((name, _plain(value)) for name, value in environment.items() if name != "packages"),
            *((name, str(version)) for name, version in _packages(environment).items()),
        ],
    }


def _packages(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    packages = environment.get("packages", {})
    assert isinstance(packages, Mapping)
    return packages


def _plain(value: Any) -> str:
    return " x ".join(str(item) for item in value) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Missing:
    """Values or bounds that are missing for one reason."""

    model: str
    metric: str
    reason: str
    conditions: tuple[Condition, ...]


def missing_values(facts: Facts) -> list[Missing]:
    """Every value without which or without whose bounds the report must do, gathered by reason."""
    found: dict[tuple[str, str, str], list[Condition]] = {}
    for (model, condition, metric), cell in facts.cells.items():
        if metric in facts.metrics and (cell.missing or math.isnan(cell.lo)):
            found.setdefault((model, metric, cell.reason), []).append(condition)
    merged: dict[tuple[str, str, tuple[Condition, ...]], list[str]] = {}
    for (model, metric, reason), conditions in found.items():
        merged.setdefault((model, reason, tuple(conditions)), []).append(metric)
    return [Missing(model, listing(metrics), reason, places) for (model, reason, places), metrics in merged.items()]


@dataclass(frozen=True)
class TopConfusion:
    """A class that is often taken for another."""

    label: str
    prediction: str
    count: int
    share: float


def top_confusions(facts: Facts, model: str, condition: Condition, count: int = 10) -> list[TopConfusion]:
    """The most frequent mistakes, with the share of the true class's answers."""
    entries = facts.confusion[model, condition]
    totals: dict[int, int] = {}
    for entry in entries:
        totals[entry.label] = totals.get(entry.label, 0) + entry.count
    wrong = sorted((e for e in entries if e.label != e.prediction), key=lambda e: (-e.count, e.label, e.prediction))
    names = facts.class_names
    return [
        TopConfusion(names[e.label], names[e.prediction], e.count, e.count / totals[e.label]) for e in wrong[:count]
    ]


def weakest_classes(facts: Facts, model: str) -> list[ClassRecall]:
    """The classes that were shown, the one with the lowest recall under shifts first."""
    shown = [found for found in facts.recall[model] if not found.clean.missing or not math.isnan(found.shifted)]
    return sorted(shown, key=lambda f: (f.clean.value if math.isnan(f.shifted) else f.shifted, f.name))


@dataclass(frozen=True)
class SeverityRow:
    """One shift of one model: its average drop, and whether it grows with the level."""

    model: str
    shift: str
    drop: Cell
    levels: str
    severity: Cell
    words: str


def severity_rows(facts: Facts) -> list[SeverityRow]:
    """Per model and shift, hardest first: the drop of accuracy on average and from the lowest level to the highest."""
    severities = {(s.model, s.shift): s for s in facts.severities if s.metric == f"{ROLE}_drop"}
    rows = []
    for model in facts.models:
        for shift in facts.shifts:
            drop = facts.by_shift.get((model, shift, f"{ROLE}_drop"), NOT_RUN)
            found = severities.get((model, shift))
            if found is None:
                rows.append(SeverityRow(model, shift, drop, "one level", NOT_RUN, "one level only"))
                continue
            levels = f"level {found.from_level} to {found.to_level}"
            rows.append(SeverityRow(model, shift, drop, levels, found.drop, _severity_words(found.drop)))
    return rows


def _severity_words(drop: Cell) -> str:
    if drop.missing or math.isnan(drop.lo) or math.isnan(drop.hi):
        return "not known"
    return "yes" if drop.lo > 0 else "no: it gets better" if drop.hi < 0 else "not shown: the bounds include 0"


def gallery(facts: Facts) -> list[tuple[str, list[Strip]]]:
    """Example strips by shift: undisturbed first, then the hardest shift."""
    order = ["none", *facts.shifts]
    found: dict[str, list[Strip]] = {shift: [] for shift in order}
    for strip in facts.gallery:
        found.setdefault(strip.condition.shift, []).append(strip)
    return [
        ("undisturbed" if shift == "none" else shift, sorted(strips, key=lambda strip: strip.condition.level))
        for shift, strips in found.items()
        if strips
    ]


def created(facts: Facts) -> str:
    """When the run was made, to the minute.

    Times are stored in UTC; one that is no ISO time is shown as it is.
    """
    stored = str(facts.record["created"])
    try:
        return f"{datetime.fromisoformat(stored).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return stored
