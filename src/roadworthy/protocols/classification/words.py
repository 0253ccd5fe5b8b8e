"""Classification under shifts in words: what it says about each model, in plain sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roadworthy.core.grouping import grouped
from roadworthy.metrics import compare_with_chance
from roadworthy.metrics.base import DROP
from roadworthy.protocols.answered_pictures import answered_images
from roadworthy.protocols.classification.facts import ROLE, ClassificationFacts, ClassRecall, Strip
from roadworthy.protocols.classification.table_specs import NAME
from roadworthy.report.facts import CLEAN, NOT_RUN, Condition, bounded, metrics_without_value
from roadworthy.report.page import AnsweredImage, HardCase, ModelWords
from roadworthy.report.words import MISSING, NO_BREAK, first_of, listing, number, plural, whole
from roadworthy.statistics import Estimate
from roadworthy.verdict import Criterion

GOOD_ACCURACY, WELL_ABOVE = 0.95, 0.97
"""The threshold for models that are well above it on undisturbed images."""
TOLERATED_LOSS = 0.05
"""How far below undisturbed the threshold of other models lies."""
CALIBRATED = 0.02
"""An expected calibration error that is called well calibrated."""
EVERYWHERE = "at every level"
BRIEF = 12
"""So many shifts are named in a line on one model among many."""


@dataclass(frozen=True)
class Threshold:
    """The accuracy below which a level is called out, the rule it follows from, and the criterion that sets it."""

    value: float
    rule: str
    criterion: str = ""


def summarise(facts: ClassificationFacts, model: str) -> ModelWords:
    """What the summary says of one model."""
    clean = facts.cell(model, CLEAN, ROLE)
    average = facts.overall.get((model, ROLE), Estimate(math.nan, reason="no disturbed condition was run"))
    thresholds = {shift: accuracy_threshold(facts, model, shift) for shift in facts.shifts}
    falls = _falls(facts, model, thresholds)
    unmeasured = _unmeasured(facts, model)
    return ModelWords(
        figures=(("Accuracy undisturbed", ROLE, clean), ("Average under shifts", ROLE, average)),
        sentences=(
            *(fall.sentence() for fall in falls),
            *unmeasured,
            *_lowest(facts, model),
            *_change(facts, model, average),
        ),
        brief=(*_brief(falls), *unmeasured),
        rule=_rules(thresholds),
    )


def accuracy_threshold(facts: ClassificationFacts, model: str, shift: str) -> Threshold:
    """The strictest criterion for accuracy at single levels of the shift, or one by the undisturbed accuracy."""
    criteria = [c.criterion for c in facts.criteria if _sets_accuracy(c.criterion, model, shift)]
    if not criteria:
        return default_threshold(facts.cell(model, CLEAN, ROLE), 1 / len(facts.class_names))
    strictest = max(criteria, key=lambda criterion: criterion.threshold)
    return Threshold(strictest.threshold, f"as {strictest.id} requires", strictest.id)


def default_threshold(clean: Estimate, chance: float = 0.0) -> Threshold:
    """The threshold where no criterion sets one: 95 %, or 5 points under an undisturbed accuracy below 97 %.

    It has one decimal in percent, as it is printed. Where it would not lie above chance, it is 95 % again.

    >>> default_threshold(Estimate(0.97)).value, default_threshold(Estimate(0.91234)).value
    (0.95, 0.862)
    >>> default_threshold(Estimate(0.007), chance=1 / 43).value
    0.95
    """
    if clean.missing or clean.value >= WELL_ABOVE or clean.value - TOLERATED_LOSS <= chance:
        return Threshold(GOOD_ACCURACY, "as no criterion on accuracy sets one")
    threshold = round(clean.value - TOLERATED_LOSS, 3)
    return Threshold(threshold, "5 points under undisturbed, as no criterion on accuracy sets one")


def _sets_accuracy(criterion: Criterion, model: str, shift: str) -> bool:
    where = {name: value for name, value in criterion.where.items() if name != "level"}
    known = {"protocol": "classification", "model": model, "shift": shift}
    return (
        criterion.metric == ROLE
        and criterion.at_least is not None
        and criterion.over != "pooled"
        and all(known.get(name) in (value if isinstance(value, list) else [value]) for name, value in where.items())
    )


def _rules(thresholds: Mapping[str, Threshold]) -> str:
    """Which threshold holds for which shifts; the names are left out where one holds for all."""
    by_criterion_first = sorted(thresholds.items(), key=lambda item: not item[1].criterion)
    shifts = grouped((threshold, shift) for shift, threshold in by_criterion_first)
    parts = []
    for threshold, names in shifts.items():
        limit = _percent(threshold.value)
        if len(shifts) > 1:
            limit = f"{limit} for {first_of(names)}" if threshold.criterion else f"otherwise {limit}"
        parts.append(f"{limit}, {threshold.rule}")
    return f"Threshold: {'; '.join(parts)}." if parts else ""


def _percent(share: float) -> str:
    """A threshold as it was set: nothing is rounded away.

    >>> _percent(0.9995).replace(NO_BREAK, " "), _percent(0.57).replace(NO_BREAK, " ")
    ('99.95 %', '57 %')
    """
    return f"{100 * share:.10g}{NO_BREAK}%"


@dataclass(frozen=True)
class Fall:
    """Shifts under which accuracy is below the same limit at the same levels; `where` is empty if it never is."""

    limit: str
    drops: bool
    where: str
    shifts: tuple[str, ...]

    def sentence(self) -> str:
        """The fall in a whole sentence.

        >>> Fall("95 %", True, "from level 3 on", ("fog", "rain")).sentence()
        'Accuracy drops below 95 % from fog and rain level 3 on.'
        >>> Fall("95 %", False, EVERYWHERE, ("fog",)).sentence()
        'Accuracy is below 95 % at every level of fog.'
        """
        names = first_of(self.shifts)
        if not self.where:
            return f"Accuracy stays at {self.limit} or above at every level measured of {names}."
        if self.where == EVERYWHERE:
            return f"Accuracy is below {self.limit} at every level of {names}."
        verb = "drops" if self.drops else "is"
        preposition, _, levels = self.where.partition(" ")
        return f"Accuracy {verb} below {self.limit} {preposition} {names} {levels}."


def _falls(facts: ClassificationFacts, model: str, thresholds: Mapping[str, Threshold]) -> list[Fall]:
    """Where accuracy is below the threshold, from the lowest level on; those where it never is come last."""
    clean = facts.cell(model, CLEAN, ROLE)
    shifts_by_fall: dict[tuple[float, str, bool, str], list[str]] = {}
    for shift in facts.shifts:
        limit = thresholds[shift].value
        levels = list(facts.levels_of[shift])
        values = {level: facts.cell(model, Condition(shift, level), ROLE).value for level in levels}
        measured = [level for level in levels if not math.isnan(values[level])]
        below = [level for level in measured if values[level] < limit]
        if measured:
            order = math.inf if not below else -math.inf if below == levels else below[0]
            key = (order, _percent(limit), clean.value >= limit, _levels_below(below, measured, levels))
            shifts_by_fall.setdefault(key, []).append(shift)
    return [Fall(*key[1:], tuple(shifts_by_fall[key])) for key in sorted(shifts_by_fall, key=lambda key: key[0])]


def _levels_below(below: Sequence[float], measured: Sequence[float], levels: Sequence[float]) -> str:
    """Which levels are below: all, from one on, or single ones where accuracy recovers.

    >>> [_levels_below(below, [1, 2, 3], [1, 2, 3]) for below in ([1, 2, 3], [2, 3], [3], [1, 3], [])]
    ['at every level', 'from level 2 on', 'at level 3', 'at levels 1 and 3, not at 2', '']
    """
    if not below:
        return ""
    if below == levels and len(levels) > 1:
        return EVERYWHERE
    if below != measured[measured.index(below[0]) :]:
        above = listing([str(level) for level in measured if level not in below])
        word = "levels" if len(below) > 1 else "level"
        return f"at {word} {listing([str(level) for level in below])}, not at {above}"
    return f"at level {below[0]}" if len(below) == 1 else f"from level {below[0]} on"


def _brief(falls: Sequence[Fall]) -> Iterator[str]:
    """The falls of each limit in one line.

    >>> list(_brief([Fall("95 %", True, EVERYWHERE, ("snow", "rain")), Fall("95 %", True, "at level 5", ("fog",))]))
    ['Below 95 %: snow and rain at every level; fog at level 5.']
    """
    for limit in dict.fromkeys(fall.limit for fall in falls):
        below = [f"{first_of(fall.shifts, BRIEF)} {fall.where}" for fall in falls if fall.limit == limit and fall.where]
        yield f"Below {limit}: {'; '.join(below)}." if below else f"Never below {limit}."


def _unmeasured(facts: ClassificationFacts, model: str) -> list[str]:
    gaps = grouped((c.shift, str(c.level)) for c in facts.conditions if facts.cell(model, c, ROLE).missing)
    words = first_of([f"{shift} level {listing(levels)}" for shift, levels in gaps.items()])
    return [f"Not measured: {words}."] if gaps else []


def _lowest(facts: ClassificationFacts, model: str) -> Iterator[str]:
    worst = facts.worst(model)
    if worst:
        figures = [f"{bounded(ROLE, facts.cell(model, c, ROLE))} at {c.shift} level {c.level}" for c in worst]
        yield f"Lowest: {listing(figures)}."


def _change(facts: ClassificationFacts, model: str, average: Estimate) -> Iterator[str]:
    """A sentence on what shifts cost on average, and whether confidence falls with accuracy."""
    drop = facts.overall.get((model, f"{ROLE}_drop"), NOT_RUN)
    confidence = facts.overall.get((model, "mean_confidence"), NOT_RUN)
    if average.missing or drop.missing:
        return
    change = "loses" if drop.value >= 0 else "gains"
    points = number(f"{ROLE}_drop", abs(drop.value))
    cost = f"On average over {plural(len(facts.conditions), 'disturbed condition')} it {change} {points}"
    if confidence.missing:
        yield f"{cost}."
        return
    gap = confidence.value - average.value
    word = "overconfident" if gap > CALIBRATED else "underconfident" if gap < -CALIBRATED else "about right"
    yield f"{cost}, with a mean confidence of {number('mean_confidence', confidence.value)}: {word}."


def hardest(facts: ClassificationFacts) -> list[HardCase]:
    """The hardest shifts over all models, each at its worst level, with pictures where the run has them."""
    strips = {strip.condition: strip for strip in facts.gallery}
    clean, cases = strips.get(CLEAN), []
    for condition in facts.hardest(facts.ranked):
        figures = tuple((model, facts.cell(model, condition, ROLE)) for model in facts.models)
        strip = strips.get(condition)
        pictures: tuple[str | None, str | None] = (None, None)
        if clean and strip and strip.images == clean.images:
            pictures = clean.tile(clean.clearest), strip.tile(clean.clearest)
        cases.append(HardCase(condition, figures, *pictures, _answered(facts, strip) if strip else ()))
    return cases


def _answered(facts: ClassificationFacts, strip: Strip) -> tuple[AnsweredImage, ...]:
    """The images of a strip with what the models that saw it answered; none where no answer is stored."""
    stored = [row for row in facts.gallery_answers.get(strip.condition, ()) if row["model"] in facts.models]
    return answered_images(strip, sorted(stored, key=lambda row: facts.models.index(row["model"])))


def first_view(facts: ClassificationFacts, metrics: Sequence[str]) -> int:
    """Which of the metrics a chart shows first: that of a criterion, a failed one before others; else the first."""
    names = [metric.removesuffix(DROP) for metric in metrics]
    for entry in sorted(facts.criteria, key=lambda entry: entry.status != "fail"):
        name = entry.criterion.metric.removesuffix(DROP)
        if entry.criterion.where.get("protocol", NAME) == NAME and name in names:
            return names.index(name)
    return 0


def without_value(facts: ClassificationFacts) -> list[str]:
    """A sentence on the metrics that have no value in any condition; none where every case failed."""
    if facts.extent(ROLE) is None:
        return []
    empty = {metric for metric in facts.metrics if facts.extent(metric) is None}
    cells = facts.cells.lacking() if empty else ()
    return metrics_without_value((metric, where, cell) for (_, where, metric), cell in cells if metric in empty)


def headline(facts: ClassificationFacts) -> list[str]:
    """Lines for a terminal: accuracy undisturbed and under shifts, the worst condition, metrics without a value."""
    accuracies = []
    for model in facts.models:
        clean, average = (_figure(facts, model, cell) for _, _, cell in summarise(facts, model).figures)
        both = (
            clean if clean == average and clean.startswith(MISSING) else f"{clean} undisturbed, {average} under shifts"
        )
        accuracies.append(f"{facts.named(model)} {both}")
    worst = "none was measured"
    for condition in facts.hardest(facts.ranked, 1):
        figures = [
            f"{facts.named(model)} {_figure(facts, model, facts.cell(model, condition, ROLE))}"
            for model in facts.models
        ]
        worst = f"{condition.shift} level {condition.level}: {', '.join(figures)}"
    of_any = " (lowest of any model)" if len(facts.models) > 1 else ""
    return [f"Accuracy: {'; '.join(accuracies)}", f"Worst condition{of_any}: {worst}", *without_value(facts)]


def _figure(facts: ClassificationFacts, model: str, cell: Estimate) -> str:
    """An accuracy with its bounds; where cases failed, how many of the model, since causes are printed elsewhere."""
    if not cell.missing or "case failed: " not in cell.reason:
        return bounded(ROLE, cell)
    cases = {
        entry.case: case
        for _, source, entry, case in facts.record.asked()
        if case.kind == "model" and model in (entry.system, f"{source}/{entry.system}")
        if facts.source in (None, source)
    }
    failed = sum(case.status == "failed" for case in cases.values())
    return f"{MISSING} ({whole(failed)} of {plural(len(cases), 'case')} failed)"


def calibration_words(ece: Estimate, over: Estimate, under: Estimate) -> str:
    """Words on whether confidence is too high or too low.

    >>> calibration_words(Estimate(0.10), Estimate(0.09), Estimate(0.01))
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


def chance_words(facts: ClassificationFacts) -> list[str]:
    """A sentence on each model that is no better than chance on undisturbed images."""
    sentences = []
    for model in facts.models:
        entries = facts.confusion.get((model, CLEAN), ())
        columns = np.array([(e.label, e.prediction, e.count) for e in entries], np.int64).reshape(-1, 3).T
        result = compare_with_chance(columns[0], columns[1], len(facts.class_names), columns[2])
        if result.is_chance:
            accuracy, chance = (number(ROLE, value) for value in (result.right / result.images, result.chance))
            sentences.append(f"{model} is right on {accuracy} of undisturbed images, and chance gives {chance}.")
    return sentences


@dataclass(frozen=True)
class Missing:
    """Values or bounds that are missing for one reason."""

    model: str
    metric: str
    reason: str
    conditions: tuple[Condition, ...]


def missing_values(facts: ClassificationFacts) -> list[Missing]:
    """Every value that is missing or has no bounds, grouped by reason."""
    by_metric = grouped(
        ((model, metric, cell.reason), condition)
        for (model, condition, metric), cell in facts.cells.lacking()
        if metric in facts.metrics
    )
    merged = grouped(((model, reason, conditions), metric) for (model, metric, reason), conditions in by_metric.items())
    return [
        Missing(model, listing(metrics), reason, conditions) for (model, reason, conditions), metrics in merged.items()
    ]


@dataclass(frozen=True)
class TopConfusion:
    """A class that is often taken for another."""

    label: str
    prediction: str
    count: int
    share: float


def top_confusions(facts: ClassificationFacts, model: str, condition: Condition, count: int = 10) -> list[TopConfusion]:
    """The most frequent mistakes, with the share of the true class's answers."""
    entries = facts.confusion[model, condition]
    totals: Counter[int] = Counter()
    for entry in entries:
        totals[entry.label] += entry.count
    wrong = sorted((e for e in entries if e.label != e.prediction), key=lambda e: (-e.count, e.label, e.prediction))
    names = facts.class_names
    return [
        TopConfusion(names[e.label], names[e.prediction], e.count, e.count / totals[e.label]) for e in wrong[:count]
    ]


def matrix_words(facts: ClassificationFacts, model: str, condition: Condition) -> str:
    """Which classes the confusion matrix shows, and what it leaves out; an empty text where it shows all of them."""
    classes = set(facts.matrix_classes(model, condition))
    if len(classes) == len(facts.class_names):
        return ""
    wrong = [entry for entry in facts.confusion[model, condition] if entry.label != entry.prediction]
    names = f"{len(classes)} of {plural(len(facts.class_names), 'class')}"
    if not wrong:
        return f"No answer is wrong: the matrix shows the first {names}."
    inside = sum(entry.count for entry in wrong if {entry.label, entry.prediction} <= classes)
    answers = f"{whole(inside)} of {plural(sum(entry.count for entry in wrong), 'wrong answer')}"
    return f"The matrix shows the {names} with most confusions, as true class or as prediction: {answers}."


def weakest_classes(facts: ClassificationFacts, model: str) -> list[ClassRecall]:
    """The classes that were shown, the one with the lowest recall under shifts first."""
    shown = [recall for recall in facts.recall[model] if not (recall.clean.missing and math.isnan(recall.shifted))]
    return sorted(shown, key=lambda r: (r.clean.value if math.isnan(r.shifted) else r.shifted, r.name))


@dataclass(frozen=True)
class SeverityRow:
    """One shift of one model: its average drop, and whether it grows with the level."""

    model: str
    shift: str
    drop: Estimate
    levels: str
    severity: Estimate
    words: str


def severity_rows(facts: ClassificationFacts) -> list[SeverityRow]:
    """Per model and shift, hardest first: the drop of accuracy on average and from the lowest level to the highest."""
    rows = []
    for model in facts.models:
        for shift in facts.shifts:
            drop = facts.by_shift.get((model, shift, f"{ROLE}_drop"), NOT_RUN)
            levels, change = facts.severities.get((model, shift), ("one level", NOT_RUN))
            words = "one level only" if change is NOT_RUN else _severity_words(change)
            rows.append(SeverityRow(model, shift, drop, levels, change, words))
    return rows


def _severity_words(drop: Estimate) -> str:
    if drop.missing or math.isnan(drop.lo) or math.isnan(drop.hi):
        return "not known"
    return "yes" if drop.lo > 0 else "no: it gets better" if drop.hi < 0 else "not shown: the bounds include 0"


def gallery(facts: ClassificationFacts) -> list[tuple[str, list[tuple[Strip, tuple[AnsweredImage, ...]]]]]:
    """Example strips by shift with the answers to their images: undisturbed first, then the hardest shift.

    Of very many shifts only the hardest are shown.
    """
    shown = {"none", *facts.shown_shifts} if len(facts.shown_shifts) < len(facts.shifts) else None
    strips = [strip for strip in facts.gallery if shown is None or strip.condition.shift in shown]
    strips.sort(key=lambda strip: strip.condition.level)
    by_shift = grouped((strip.condition.shift, (strip, _answered(facts, strip))) for strip in strips)
    return [
        ("undisturbed" if shift == "none" else shift, [*by_shift[shift]])
        for shift in dict.fromkeys(["none", *facts.shifts, *by_shift])
        if shift in by_shift
    ]
