"""The benchmark of monitors in words: which monitor helps the system, what it costs, and what nobody can promise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from roadworthy.core.grouping import grouped
from roadworthy.metrics import Metric
from roadworthy.protocols.monitoring.facts import FEWEST_SETS, MonitoringFacts
from roadworthy.protocols.monitoring.metrics import (
    ACCURACY,
    CLASS_MCC,
    CLASS_MCC_ALONE,
    FPR,
    MCC,
    RECALL,
    REJECTED,
    RELATIVE_CHANGE,
    RELATIVE_CHANGE_PERFECT,
)
from roadworthy.protocols.monitoring.names import (
    ADVERSARIAL,
    ALONE,
    ANOMALY,
    BROKEN,
    DETECTION,
    DISTRIBUTIONAL_SHIFT,
    EXCHANGEABILITY,
    EXPORTED,
    KEPT,
    MODEL_SCOPE,
    NO_PROMISE,
    NOISE,
    NOVEL_CLASS,
    REJECTION_RATE,
    SYSTEM,
    SYSTEM_LABEL_LOST,
    TEST,
)
from roadworthy.protocols.monitoring.settings import MonitorNote
from roadworthy.report.facts import NOT_RUN, bounded
from roadworthy.report.page import ModelWords
from roadworthy.report.reading import Row, number_of
from roadworthy.report.words import MISSING, bounds, listing, number, plural, whole
from roadworthy.statistics import Estimate

KIND_LABELS = {
    NOVEL_CLASS: "Novel class",
    ADVERSARIAL: "Adversarial",
    DISTRIBUTIONAL_SHIFT: "Distributional shift",
    NOISE: "Noise",
    ANOMALY: "Anomaly",
}
BETTER, UNCLEAR, WORSE, UNKNOWN = "better", "unclear", "worse", "unknown"
"""Where the bounds of a mean MCC lie: above 0, around it, below it; or there is no mean."""
NO_ALARM = "no alarm"
HALF = 0.5
CHOSEN_HERE = "; the monitor is chosen on these data"
"""Beside the figures of the best monitor: the bounds are those of one that is named beforehand."""
TEST_LABELS = {EXCHANGEABILITY: "exchangeability", REJECTION_RATE: "rejection rate"}
RULE = (
    "A monitor is better than chance where the bounds of its mean MCC over the benchmarks, which allow for the ID "
    "images that these share, lie above 0; in the view of the system: positive is a wrong answer of the model, and the "
    "monitor is right to cancel it."
)


class ViewWords(NamedTuple):
    """What the report calls a view, and which class is positive in it."""

    label: str
    positive: str


VIEW_WORDS = {
    DETECTION: ViewWords(
        "OOD detection",
        "Positive: an OOD image. The monitor is right to reject it, and wrong to reject an ID image, whatever the "
        "model answers.",
    ),
    SYSTEM: ViewWords(
        "System",
        "Positive: a wrong answer of the model. The monitor is right to cancel it and wrong to cancel a right one, on "
        "ID and OOD images alike; any answer to a novel class is wrong.",
    ),
    SYSTEM_LABEL_LOST: ViewWords(
        "System, lost labels are wrong",
        "Positive: a wrong answer of the model, and any answer to an image that no longer shows what its label says.",
    ),
    MODEL_SCOPE: ViewWords(
        "Model scope",
        "Positive: a wrong answer of the model, as for the system; what is won and lost is a share of all images.",
    ),
}


def view_label(view: str) -> str:
    """What the report calls a view.

    >>> view_label("detection")
    'OOD detection'
    """
    return VIEW_WORDS[view].label


def column_head(metric: Metric) -> str:
    """The head of a column: the label of a metric, or the short form that the field uses for error rates.

    >>> column_head(FPR), column_head(MCC)
    ('FPR', 'MCC')
    """
    return metric.name.upper() if metric.name in ("fpr", "fnr") else metric.label


def signed_change(value: float) -> str:
    """A relative change in percent, with its sign.

    >>> signed_change(0.031).replace(chr(160), " "), signed_change(-0.3854).replace(chr(160), " ")
    ('+3.1 %', '−38.5 %')
    """
    return f"{'+' if value > 0 else ''}{number(RELATIVE_CHANGE, value)}"


def short_value(value: float) -> str:
    """Two digits of a value between -1 and 1, for a square of the matrix.

    >>> short_value(-0.0712), short_value(0.5)
    ('−.07', '.50')
    """
    if math.isnan(value):
        return MISSING
    text = f"{abs(value):.2f}".removeprefix("0")
    return f"−{text}" if value < 0 and float(text) else text


def quantity(value: float) -> str:
    """Three digits of a measured quantity, all of a large one; n/a where it is not known.

    >>> quantity(0.0021), quantity(1912.3), quantity(float("nan"))
    ('0.0021', '1,912', 'n/a')
    """
    if math.isnan(value):
        return MISSING
    return whole(round(value)) if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def timed_text(row: Row, column: str) -> str:
    """A time in milliseconds with its bounds, where it has them.

    >>> timed_text({"p95": 0.0021, "p95_lo": 0.002, "p95_hi": None}, "p95")
    '2.1'
    >>> timed_text({"p95": 0.0021, "p95_lo": 0.002, "p95_hi": 0.0025}, "p95")
    '2.1 [2, 2.5]'
    """
    value, lo, hi = (1000 * number_of(row[name]) for name in (column, f"{column}_lo", f"{column}_hi"))
    return quantity(value) if math.isnan(lo + hi) else f"{quantity(value)} [{quantity(lo)}, {quantity(hi)}]"


def cost_notes(test: MonitoringFacts, model: str) -> Iterator[str]:
    """Where and when a model was timed, with how many images, and what was not measured, each with the reason."""
    rows = {(monitor, form): row for (own, monitor, form), row in test.timing.items() if own == model}
    for (machine, measured), _ in grouped(((r["machine"], r["measured"]), r) for r in rows.values()).items():
        on = (
            f"on {machine}, {measured[:16].replace('T', ' ')} UTC"
            if machine
            else "on a machine and at a time that the run does not name"
        )
        yield f"Timed {on}."
    images = [int(row["images"]) for row in rows.values() if not math.isnan(number_of(row["median"]))]
    different = max((int(number_of(row["different"])) for row in rows.values() if row["different"]), default=0)
    fewest, most = min(images, default=0), max(images, default=0)
    again = f" ({whole(different)} different ones, shown again)" if 0 < different < most else ""
    yield f"Each with {whole(most) if fewest == most else f'{whole(fewest)} to {whole(most)}'} images{again}."
    for column, what in (("reason", "times"), ("no_memory", "memory")):
        told = grouped((row[column], _system_label(*system)) for system, row in rows.items() if row[column])
        yield from (f"{listing(list(names))}, {what}: {reason}." for reason, names in told.items())


def _system_label(monitor: str, form: str) -> str:
    name = "model alone" if monitor == ALONE else monitor
    return f"{name} (file)" if form == EXPORTED else name


def event_text(metric: Metric, value: float) -> str:
    """What happened in a stream, in images or in events: whole numbers without digits.

    >>> from roadworthy.protocols.monitoring.metrics import DETECTION_DELAY_MEDIAN as DELAY
    >>> event_text(DELAY, 2.0), event_text(DELAY, 2.5), event_text(DELAY, 3240.4), event_text(DELAY, math.inf)
    ('2', '2.5', '3,240', 'missed')
    """
    if not math.isfinite(value):
        return number(metric, value)
    return whole(round(value)) if value >= 100 or value == round(value) else f"{value:.1f}"


def event_bounds(metric: Metric, cell: Estimate) -> str:
    """The bounds of what happened in a stream; an empty text where there are none.

    >>> from roadworthy.protocols.monitoring.metrics import DETECTION_DELAY_MEDIAN as DELAY
    >>> event_bounds(DELAY, Estimate(2.0, 1.0, 4.0)), event_bounds(DELAY, Estimate(2.0, 1.0, math.inf))
    ('1 to 4', 'at least 1')
    """
    if not math.isfinite(cell.lo):
        return ""
    lo = event_text(metric, cell.lo)
    return f"{lo} to {event_text(metric, cell.hi)}" if math.isfinite(cell.hi) else f"at least {lo}"


def count(value: int | float | None) -> str:
    """A count, or n/a where it is not known.

    >>> count(1200), count(None)
    ('1,200', 'n/a')
    """
    return MISSING if value is None or math.isnan(value) else whole(value)


def joined(*texts: str | None) -> str:
    """The texts that are not empty, as one."""
    return "; ".join(filter(None, texts))


def parameters_text(note: MonitorNote | None) -> str:
    """The settings of a monitor in words; those that are left to the monitor are not named.

    >>> parameters_text(MonitorNote(monitor="boxes", parameters={"tau": "0.0001", "clusters": "3"}))
    'tau 0.0001, clusters 3'
    """
    named = {name: value for name, value in (note.parameters if note else {}).items() if value != str(None)}
    return ", ".join(f"{name} {value}" for name, value in named.items()) or "none"


def asked_words(row: Row) -> str:
    """What a threshold was to reject of ID images, with the confidence of a promise.

    >>> asked_words({"rejected": 0.05, "confidence": 0.95}).replace(chr(160), " ")
    'at most 5.0 % (95.0 %)'
    """
    asked, confidence = number_of(row["rejected"]), number_of(row["confidence"])
    if math.isnan(asked):
        return "–"
    share = number(REJECTED, asked)
    return share if math.isnan(confidence) else f"at most {share} ({number(REJECTED, confidence)})"


def alarm_words(row: Row | None) -> str:
    """When a test raised its alarm, in objects.

    >>> alarm_words({"alarm_at": 240, "onset": 200, "reason": ""})
    '240, 40 after the onset'
    >>> alarm_words({"alarm_at": 150, "onset": 200, "reason": ""})
    '150, false: before the onset'
    """
    if row is None:
        return MISSING
    at, onset = number_of(row["alarm_at"]), number_of(row["onset"])
    if math.isnan(at):
        return NO_ALARM if (row["reason"] or NO_ALARM).startswith(NO_ALARM) else MISSING
    if math.isnan(onset):
        return whole(at)
    return f"{whole(at)}, {f'{whole(at - onset)} after the onset' if at >= onset else 'false: before the onset'}"


def standing(cell: Estimate) -> str:
    """Whether an MCC is better than chance by its bounds, worse, or neither.

    >>> standing(Estimate(0.4, 0.2, 0.6)), standing(Estimate(0.1, -0.1, 0.3)), standing(Estimate(-0.3, -0.4, -0.2))
    ('better', 'unclear', 'worse')
    """
    if cell.missing:
        return UNKNOWN
    if cell.lo > 0:
        return BETTER
    return WORSE if cell.hi < 0 else UNCLEAR


def system_standing(test: MonitoringFacts, model: str, monitor: str) -> str:
    """The standing of a monitor at cancelling wrong answers."""
    return standing(test.mean(model, monitor))


def model_words(test: MonitoringFacts, model: str) -> ModelWords:
    """What the summary says of a model and its monitors."""
    best = test.best(model)
    mean = NOT_RUN if best is None else test.mean(model, best)
    accuracy = test.competence.get((model, TEST, ACCURACY.name), NOT_RUN)
    figures = (("Accuracy, ID test data", ACCURACY.name, accuracy), ("Best monitor's MCC, system", MCC.name, mean))
    return ModelWords(figures, tuple(sentences(test, model)), tuple(brief(test, model)), RULE)


def sentences(test: MonitoringFacts, model: str) -> Iterator[str]:
    """What came out for one model: the best monitor, those that are no help, the price on ID data, and warnings."""
    yield best_words(test, model)
    yield from _standing_words(test, model)
    yield from _detection_words(test, model)
    yield from _id_words(test, model)
    yield from warnings(test, model)


def brief(test: MonitoringFacts, model: str) -> Iterator[str]:
    """The same in brief."""
    yield best_words(test, model)
    poor = _with_standing(test, model, UNCLEAR, WORSE)
    if poor:
        yield f"Not better than chance: {listing(poor)}."
    yield from _unclear_words(test, model)
    yield from warnings(test, model)


def best_words(test: MonitoringFacts, model: str) -> str:
    """The monitor with the highest MCC for the system, what it cancels, and at which price."""
    best = test.best(model)
    if best is None:
        return f"No monitor has an MCC for the system on any benchmark{_why_no_value(test, model)}."
    mean = test.mean(model, best)
    recall, fpr = (test.mean(model, best, metric.name) for metric in (RECALL, FPR))
    if system_standing(test, model, best) == BETTER:
        verdict = f"{best} helps the system most"
    elif _with_standing(test, model, BETTER):
        verdict = f"{best} has the highest MCC for the system, though not clearly better than chance"
    else:
        verdict = f"No monitor is clearly better than chance for the system; the highest MCC has {best}"
    left = " It leaves less than half of the right answers." if fpr.value > HALF else ""
    return (
        f"{verdict}: it cancels {bounded(RECALL, recall)} of the wrong answers at the price of "
        f"{bounded(FPR, fpr)} of the right ones; MCC {bounded(MCC, mean)}, {_sets(test, mean)}"
        f"{_choice(test)}.{left}"
    )


def _choice(test: MonitoringFacts) -> str:
    """That the best of several monitors is chosen by the figures that are given of it, which makes these too good."""
    return CHOSEN_HERE if len(test.monitors) > 1 else ""


def _sets(test: MonitoringFacts, mean: Estimate) -> str:
    """What a mean is over: all benchmarks, or those on which it has a value."""
    whole_number = len(test.benchmarks)
    if whole_number == 1:
        return f"on {test.benchmarks[0].name}"
    return f"mean of {'' if mean.n == whole_number else f'{mean.n} of '}{plural(whole_number, 'benchmark')}"


def _why_no_value(test: MonitoringFacts, model: str) -> str:
    """The reasons why monitors have no MCC for the system, after a colon; empty where none is known."""
    cells = [test.cell(model, benchmark.name, name) for benchmark in test.benchmarks for name in test.monitors]
    reasons = [*dict.fromkeys(cell.reason.rstrip(".") for cell in cells if cell.missing and cell.reason)]
    return f": {'; '.join(reasons)}" if reasons else ""


def _with_standing(test: MonitoringFacts, model: str, *standings: str) -> list[str]:
    return [monitor for monitor in test.monitors if system_standing(test, model, monitor) in standings]


def _standing_words(test: MonitoringFacts, model: str) -> Iterator[str]:
    labels = {
        BETTER: "Better than chance at cancelling wrong answers",
        UNCLEAR: "Not clearly better than chance",
        WORSE: "Worse than chance, so that they hurt the system",
    }
    parts = {label: _with_standing(test, model, key) for key, label in labels.items()}
    known = [f"{label}: {listing(monitors)}" for label, monitors in parts.items() if monitors]
    if known:
        yield f"{'. '.join(known)}."
    yield from _unclear_words(test, model)


def _unclear_words(test: MonitoringFacts, model: str) -> Iterator[str]:
    """Which monitors are not clearly better than chance for want of bounds on single benchmarks, and why."""
    monitors = _with_standing(test, model, UNCLEAR)
    for reason, names in grouped((_why_no_bounds(test, model, name), name) for name in monitors).items():
        if reason:
            yield f"Nothing is clear without bounds, and single benchmarks have none for {listing(names)}: {reason}."


def _why_no_bounds(test: MonitoringFacts, model: str, monitor: str) -> str:
    """Why the MCC of a monitor on single benchmarks has no bounds; empty where it has bounds, or no reason is known."""
    cells = [test.cell(model, benchmark.name, monitor) for benchmark in test.benchmarks]
    reasons = dict.fromkeys(cell.reason.rstrip(".") for cell in cells if not cell.missing and cell.unbounded)
    return "; ".join(filter(None, reasons))


def _detection_words(test: MonitoringFacts, model: str) -> Iterator[str]:
    best = test.best(model, view=DETECTION)
    if best is None:
        return
    mean = test.mean(model, best, view=DETECTION)
    other = " (the best OOD detector is not the best monitor of the system)" if best != test.best(model) else ""
    yield f"At telling OOD from ID images the best is {best}: MCC {bounded(MCC, mean)}{other}{_choice(test)}."


def _id_words(test: MonitoringFacts, model: str) -> Iterator[str]:
    """What monitors do to the model on ID data: the least and the most costly, and those that improve it."""
    changes = {
        monitor: change
        for monitor in test.monitors
        if not (change := test.id_value(model, monitor, RELATIVE_CHANGE.name)).missing
    }
    if not changes:
        return
    alone = alone_on_id(test, model)
    order = sorted(changes, key=lambda monitor: -changes[monitor].value)
    named = list(dict.fromkeys([order[0], order[-1]]))
    shown = [
        f"{_id_value(test, model, monitor)} with {monitor} ({_change_words(changes[monitor])})" for monitor in named
    ]
    between = "" if len(order) < 3 else ", the others lie between"
    perfect = perfect_on_id(test, model)
    most = "" if perfect.missing else f"; a perfect monitor would come to {signed_change(perfect.value)}"
    before = number(CLASS_MCC_ALONE, alone.value)
    yield f"On ID data alone the class MCC of {before} becomes {listing(shown)}{between}{most}."


def _id_value(test: MonitoringFacts, model: str, monitor: str) -> str:
    return number(CLASS_MCC, test.id_value(model, monitor, CLASS_MCC.name).value)


def _change_words(change: Estimate) -> str:
    interval = "" if change.unbounded else f", bounds {bounds(RELATIVE_CHANGE, change.lo, change.hi)}"
    return signed_change(change.value) + interval


def alone_on_id(test: MonitoringFacts, model: str) -> Estimate:
    """The class MCC of the model alone on ID test data."""
    known = (test.id_value(model, monitor, CLASS_MCC_ALONE.name) for monitor in (ALONE, *test.monitors))
    return next((cell for cell in known if not cell.missing), NOT_RUN)


def perfect_on_id(test: MonitoringFacts, model: str) -> Estimate:
    """The relative change that a perfect monitor would bring on ID test data."""
    known = (test.id_value(model, monitor, RELATIVE_CHANGE_PERFECT.name) for monitor in test.monitors)
    return next((cell for cell in known if not cell.missing), NOT_RUN)


def best_on_id(test: MonitoringFacts, model: str) -> str | None:
    """The monitor with which a model has the highest class MCC on ID test data; None where none has a value."""
    cells = {monitor: test.id_value(model, monitor, CLASS_MCC.name) for monitor in test.monitors}
    known = [monitor for monitor in test.monitors if not cells[monitor].missing]
    return max(known, key=lambda monitor: cells[monitor].value, default=None)


def warnings(test: MonitoringFacts, model: str) -> Iterator[str]:
    """What a reader must know before trusting the figures of a model."""
    if model in test.undertrained:
        yield f"{model} is undertrained: monitors of a poor model say little."
    yield from _promise_words(test, model)
    lost = grouped(((reason, benchmarks), monitor) for own, monitor, reason, benchmarks in test.missing if own == model)
    for (reason, benchmarks), monitors in lost.items():
        have = "has" if len(monitors) == 1 else "have"
        named = listing(monitors) if len(monitors) < len(test.monitors) or len(monitors) == 1 else "All monitors"
        yield f"{named} {have} no decision on {plural(benchmarks, 'benchmark')}: {reason.rstrip('.')}."


def _promise_words(test: MonitoringFacts, model: str) -> Iterator[str]:
    """Which thresholds break their promise or make none, and what the rule conformal lacks to make one."""
    kept, broken, none = (test.by_promise(model, promise) for promise in (KEPT, BROKEN, NO_PROMISE))
    promising = [*dict.fromkeys([*kept, *broken])]
    without = [monitor for monitor in none if monitor not in promising]
    conformal = test.conformal(model, without)
    reasons = "; ".join(dict.fromkeys(row["reason"].rstrip(".") for row in conformal if row["reason"]))
    if broken:
        yield f"The promise of the threshold is broken on ID test images: {listing(broken)}."
    if without and not promising:
        end = f": {reasons}" if reasons else "" if conformal else "; one of the rule conformal would"
        yield f"No threshold promises how many ID images it rejects{end}."
    elif len(without) > len(promising):
        why = f"; the others: {reasons}" if reasons else ""
        yield f"A promise on how many ID images are rejected is made only for {listing(promising)}{why}."
    elif without:
        why = f" ({reasons})" if reasons else ""
        yield f"Without a promise on how many ID images are rejected: {listing(without)}{why}."


def overview(test: MonitoringFacts) -> Iterator[str]:
    """What was compared, and what limits the comparison whatever the model."""
    settings = test.settings
    mixed = f", {number(REJECTED, settings['ratio'])} of a stream is OOD" if "ratio" in settings else ""
    order = f", in the order {settings['order']}" if "order" in settings else ""
    yield (
        f"Compared: {plural(len(test.monitors), 'monitor')} beside {plural(len(test.models), 'model')} on "
        f"{plural(len(test.benchmarks), 'benchmark')} of {plural(len(test.kinds), 'kind')}{mixed}{order}."
    )
    if len(test.benchmarks) < FEWEST_SETS:
        few = plural(len(test.benchmarks), "benchmark")
        yield f"Only {few}: with fewer than {FEWEST_SETS} a comparison of monitors has little power."
    for name, reason in left_out(test).items():
        yield f"Left out: {name}, {reason.rstrip('.')}."


def left_out(test: MonitoringFacts) -> dict[str, str]:
    """Benchmarks that the source does not meet and monitors that its models cannot serve, each with the reason."""
    return {**test.context.skipped, **test.context.left_out} if test.context else {}


def headline(test: MonitoringFacts) -> Iterator[str]:
    """Lines for a terminal: what was compared, the best monitor of each model, and every warning."""
    yield from overview(test)
    for model in test.models:
        yield f"{model}: {best_words(test, model)}"
        yield from (f"{model}: {sentence}" for sentence in _standing_words(test, model))
        yield from (f"{model}: {sentence}" for sentence in warnings(test, model))
