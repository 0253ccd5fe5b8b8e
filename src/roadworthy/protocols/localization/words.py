"""The words of localization in the report: what came out for networks, sets and methods, as sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from roadworthy.metrics import Metric
from roadworthy.protocols.localization.facts import METHOD_LABELS, PLAIN, ImageSet, LocalizationFacts, Network
from roadworthy.protocols.localization.names import BOXES, CLASSES, HULL, MASK, SIZE, TEST
from roadworthy.report.facts import bounded
from roadworthy.report.page import Answer, ModelWords
from roadworthy.report.reading import Row, number_of
from roadworthy.report.words import MISSING, listing, number, plural, whole
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import no_estimate

QUALITY = {CLASSES: "accuracy", BOXES: "iou"}
"""How good the answers of a task are."""
CALIBRATION = {CLASSES: "ece", BOXES: "box_ece_interval"}
"""How well a model knows how sure it is, by task."""
TASK_LABELS = {CLASSES: "Classes", BOXES: "Boxes"}
TRUTH_LABELS = {MASK: "masks", "box": "annotated boxes", HULL: "hulls of turned boxes", "": "none"}
NO_TASK = {CLASSES: "it does not say what it sees", BOXES: "it does not say where"}
RULE = "Each network stands here as it is, without a method, where it was tested so."
SHIFTS_NAMED = 2
"""How many of the sets that cost most are named."""


def method_label(method: str) -> str:
    """What the report calls a method.

    >>> method_label("after_backbone"), method_label("none"), method_label("my_way")
    ('after-backbone dropout', 'plain', 'my way')
    """
    return METHOD_LABELS.get(method, method.replace("_", " "))


def set_label(image_set: ImageSet, task: str) -> str:
    """The name of a set for a column or an axis, with a star where boxes are measured by hulls."""
    return f"{image_set.label}{' *' if image_set.has_hulls and task == BOXES else ''}"


def quantity(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, or n/a.

    >>> quantity(0.00012345), quantity(1234.5), quantity(None), quantity(20.0), quantity(0.00001)
    ('0.000123', '1,234', 'n/a', '20', '0.00001')
    """
    known = number_of(value)
    if not math.isfinite(known):
        return MISSING
    return whole(round(known)) if abs(known) >= 1000 else f"{Decimal(f'{known:.{digits}g}'):f}"


def parameters_text(stored: str | None) -> str:
    """Parameters of a shift, stored as JSON, in words.

    >>> parameters_text('{"mm_per_h": 50, "angle": 10, "distance": null}'), parameters_text("")
    ('mm_per_h 50, angle 10', '')
    """
    given = {name: value for name, value in json.loads(stored or "{}").items() if value is not None}
    return ", ".join(f"{name} {value}" for name, value in given.items())


def bin_label(low: float, high: float, by: str) -> str:
    """The sizes (in percent) or distances (in metres) of a bin.

    >>> bin_label(0.25, 0.5, SIZE), bin_label(80.0, math.inf, "distance")
    ('25 to 50', 'from 80')
    """
    factor = 100 if by == SIZE else 1
    return f"from {factor * low:g}" if math.isinf(high) else f"{factor * low:g} to {factor * high:g}"


def overview(test: LocalizationFacts) -> Iterator[str]:
    """What was compared, which network is best on ID data, how far each falls, which method knows itself best."""
    tasks = listing([{CLASSES: "what it is", BOXES: "where it is"}[task] for task in test.tasks])
    yield (
        f"Compared: {plural(len(test.families), 'network')}, {plural(len(test.methods), 'method')} and "
        f"{plural(len(test.networks), 'model')} in all on {plural(len(test.sets), 'set')} of images with one object "
        f"each; asked is {tasks}."
    )
    for task in test.tasks:
        yield from best_on_id(test, task)
        yield from hardest_set(test, task)
        yield from best_method(test, task)
    yield from hull_words(test)
    if test.undrawn:
        yield (
            "Not in figures and tables of this page, since another model of the same network and method comes first "
            f"in the study: {listing(test.undrawn)}; tables/localization.csv has them."
        )


def best_on_id(test: LocalizationFacts, task: str) -> Iterator[str]:
    """Which network is best on the undisturbed test data, and which ones its bounds do not exclude.

    A network stands for itself without a method, or with its first one where it was not tested without.
    """
    metric = test.metric(QUALITY[task])
    networks = [own for family in test.families if (own := test.representative(family, task)) is not None]
    best = test.best_model([network.name for network in networks], TEST, metric.name)
    if best is None:
        return
    top = test.cell(best, TEST, metric.name)
    others = [network for network in networks if network.name not in (best, *test.undertrained)]
    close = [network_label(network) for network in others if _overlap(top, test.cell(network.name, TEST, metric.name))]
    named = next(network_label(network) for network in networks if network.name == best)
    verdict = f"{named} is best with" if others else f"{named} has"
    rivals = f"; by their bounds {listing(close)} may be as good" if close else ""
    yield f"{metric.label} on ID data: {verdict} {bounded(metric, top)}{rivals}."


def network_label(network: Network) -> str:
    """A network by its name, with its method where it is not plain."""
    return network.family if network.method == PLAIN else f"{network.family} ({network.method_label})"


def _overlap(one: Estimate, other: Estimate) -> bool:
    """Whether the bounds of two values meet; a value without bounds is as if it had any."""
    return not (one.lo > other.hi or other.lo > one.hi)


def hardest_set(test: LocalizationFacts, task: str) -> Iterator[str]:
    """How far each plain network falls, and where most."""
    metric, parts = test.metric(QUALITY[task]), []
    for family in test.families:
        network = test.representative(family, task)
        falls = _falls(test, network.name, metric, task) if network else []
        if network and falls:
            image_set, fall = falls[0]
            before, after = (test.cell(network.name, name, metric.name).value for name in (TEST, image_set.name))
            if fall > 0:
                parts.append(
                    f"{family} falls most in {image_set.label} ({number(metric, before)} to {number(metric, after)})"
                )
            else:
                parts.append(f"{family} falls nowhere")
    if parts:
        yield f"{metric.label} under shift: {'; '.join(parts)}."


def _falls(test: LocalizationFacts, model: str, metric: Metric, task: str) -> list[tuple[ImageSet, float]]:
    """How much worse a metric is on each set than on ID data, the worst first."""
    sign = 1 if metric.higher_is_better else -1
    at_first = test.cell(model, TEST, metric.name).value
    falls = [
        (own, sign * (at_first - test.cell(model, own.name, metric.name).value)) for own in test.shifted_sets(task)
    ]
    return sorted((pair for pair in falls if not math.isnan(pair[1])), key=lambda pair: -pair[1])


def best_method(test: LocalizationFacts, task: str) -> Iterator[str]:
    """Which method of the network with most methods has the lowest mean calibration error over the shifted sets."""
    metric = test.metric(CALIBRATION[task])
    for family in test.compared_families[:1]:
        own = [network for network in test.of_family(family, task) if network.name not in test.undertrained]
        means = {network.method_label: test.mean_over_shifts(network.name, metric.name) for network in own}
        known = {label: mean for label, mean in means.items() if not math.isnan(mean)}
        if len(known) < 2:
            continue
        order = sorted(known, key=known.__getitem__)
        rest = ", ".join(f"{label} {number(metric, known[label])}" for label in order[1:])
        sets = plural(len(test.shifted_sets(task)), "set")
        yield (
            f"{metric.label} of {family}, mean of {sets} besides ID: {order[0]} is lowest with "
            f"{number(metric, known[order[0]])} ({rest}); means have no bounds, and the order is chosen on these data."
        )


def hull_words(test: LocalizationFacts) -> Iterator[str]:
    """Which sets have true boxes that are too large."""
    hulls = [image_set.label for image_set in test.sets if image_set.has_hulls]
    if hulls:
        yield (
            f"In {listing(hulls)} the true boxes are hulls of turned boxes, which are too large: IoU is too low there, "
            "and the sentences on boxes leave them out."
        )


def family_words(test: LocalizationFacts, family: str) -> ModelWords:
    """What the summary says of a network: its plain model, or its first where it has no plain one."""
    figures = []
    for task in test.tasks:
        metric, network = test.metric(QUALITY[task]), test.representative(family, task)
        cell = no_estimate(NO_TASK[task]) if network is None else test.cell(network.name, TEST, metric.name)
        figures.append((f"{metric.label}, ID", metric.name, cell))
    return ModelWords(tuple(figures), tuple(sentences(test, family)), tuple(brief(test, family)), RULE)


def sentences(test: LocalizationFacts, family: str) -> Iterator[str]:
    """Where a network falls most, what its methods gain, and what is missing."""
    for task in test.tasks:
        network = test.representative(family, task)
        if network is None:
            continue
        metric = test.metric(QUALITY[task])
        falls = _falls(test, network.name, metric, task)
        worst = [pair for pair in falls if pair[1] > 0][:SHIFTS_NAMED]
        if falls and not worst:
            yield _no_fall(metric)
        if worst:
            named = [f"{own.label} ({_value(test, network, own, metric)})" for own, _ in worst]
            on_id = _value(test, network, test.sets[0], metric)
            yield f"{metric.label} is {on_id} on ID data, lowest in {listing(named)}."
        yield from _calibration_words(test, network, task)
        yield from _method_words(test, family, task)
    yield from _poor_words(test, family)


def brief(test: LocalizationFacts, family: str) -> Iterator[str]:
    """The same in brief."""
    for task in test.tasks:
        network = test.representative(family, task)
        if network is None:
            continue
        metric = test.metric(QUALITY[task])
        for own, fall in _falls(test, network.name, metric, task)[:1]:
            lowest = f"Localization: {metric.label} is lowest in {own.label}, {_value(test, network, own, metric)}."
            yield lowest if fall > 0 else _no_fall(metric)
        yield from _method_words(test, family, task)
    yield from _poor_words(test, family)


def _no_fall(metric: Metric) -> str:
    return f"{metric.label} is lower in no set than on ID data."


def _method_words(test: LocalizationFacts, family: str, task: str) -> Iterator[str]:
    """Which method of a network has the best values in the mean of the shifted sets."""
    metric = test.metric(QUALITY[task])
    own = [network for network in test.of_family(family, task) if network.name not in test.undertrained]
    means = {network.method_label: test.mean_over_shifts(network.name, metric.name) for network in own}
    known = {label: mean for label, mean in means.items() if not math.isnan(mean)}
    if len(known) > 1:
        best = max(known, key=known.__getitem__)
        yield f"Its highest mean of the shifted sets: {number(metric, known[best])} with method {best}."


def _poor_words(test: LocalizationFacts, family: str) -> Iterator[str]:
    poor = [network.name for network in test.networks if network.family == family and network.name in test.undertrained]
    if poor:
        yield f"Undertrained, and left out of every order: {listing(poor)}."


def _value(test: LocalizationFacts, network: Network, image_set: ImageSet, metric: Metric) -> str:
    return number(metric, test.cell(network.name, image_set.name, metric.name).value)


def _calibration_words(test: LocalizationFacts, network: Network, task: str) -> Iterator[str]:
    metric = test.metric(CALIBRATION[task])
    on_id, mean = test.cell(network.name, TEST, metric.name), test.mean_over_shifts(network.name, metric.name)
    if on_id.missing:
        yield f"{metric.label}: no value, {on_id.reason.rstrip('.')}."
    elif not math.isnan(mean):
        values = number(metric, on_id.value), number(metric, mean)
        yield f"{metric.label} is {values[0]} on ID data and {values[1]} in the mean of the shifted sets."


def headline(test: LocalizationFacts) -> Iterator[str]:
    """Lines for a terminal."""
    yield from overview(test)
    for network in test.networks:
        if network.name in test.undertrained:
            yield f"{network.name}: undertrained."


def passes_words(network: Network, task: str) -> str:
    """How often a network is asked for one answer.

    >>> passes_words(Network("m", "f", "ensemble", {"boxes": {"passes": 1, "members": 5}}), "boxes")
    '5 members'
    """
    row = network.tasks.get(task, {})
    members, passes = (number_of(row.get(name)) for name in ("members", "passes"))
    if members > 1:
        return plural(int(members), "member")
    return plural(int(passes), "pass") if passes > 1 else "1 pass"


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the variance (n - 1) of the values of several trainings; the variance of one is NaN.

    >>> spread([1.0, 3.0])
    (2.0, 2.0)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    return mean, math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


@dataclass(frozen=True)
class ShownBox:
    """A box on a square picture of an image, as shares of its side."""

    x: float
    y: float
    width: float
    height: float


def has_box(row: Row) -> bool:
    """Whether a stored answer has a box."""
    return not math.isnan(number_of(row["x0"]))


def shown_box(row: Row, size: Sequence[int]) -> ShownBox:
    """The box of a stored answer on the square picture of its image, which lies in its middle.

    >>> row = {"x0": 0.0, "y0": 0.0, "x1": 1.0, "y1": 0.5}
    >>> shown_box(row, [32, 64])
    ShownBox(x=0.0, y=0.25, width=1.0, height=0.25)
    """
    height, width = size or (1, 1)
    across, down = width / max(size or (1,)), height / max(size or (1,))
    x0, x1 = (round((1 - across) / 2 + across * row[name], 4) for name in ("x0", "x1"))
    y0, y1 = (round((1 - down) / 2 + down * row[name], 4) for name in ("y0", "y1"))
    return ShownBox(x0, y0, round(max(x1 - x0, 0), 4), round(max(y1 - y0, 0), 4))


def class_answer(row: Row) -> list[Answer]:
    """The class that a stored answer has, if it has one."""
    if not row["prediction"]:
        return []
    right = row["prediction"] == row["label"] if row["label"] else None
    return [Answer(row["model"], row["prediction"], row["confidence"], right)]
