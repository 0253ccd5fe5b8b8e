"""How the figures of dependability are called: protocol, scopes and metrics, the same in plan, tables and criteria."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.metrics import METRICS
from roadworthy.protocols.base import RefusedCriterion, matching
from roadworthy.protocols.dependability.table_specs import NAME as NAME
from roadworthy.verdict import Criterion

ALL = "all"
TRAIN, TEST = "train", "test"
"""The data that a figure speaks of: column `data` of the tables, condition `data` of criteria."""
COVERAGE, ACTIVATION = "scenario_coverage", "neuron_activation_"
"""The metric of coverage, and how those of neuron k-activation begin: both are counted on the training data first."""
DATA = "data"
"""The model of figures that speak of the data alone."""


@contextmanager
def explained(what: str = "") -> Iterator[None]:
    """What the pure functions refuse, as an error of the study that says `what` they were given."""
    try:
        yield
    except ValueError as error:
        raise InputError(f"{NAME}: {what}{error}") from None


def value_scope(condition: str, value: str) -> str:
    """Images with one value of a condition.

    >>> value_scope("weather", "rain")
    'weather=rain'
    """
    return f"{condition}={value}"


def scenario_scope(scenario: Mapping[str, str]) -> str:
    """Images with a value of each of several conditions.

    >>> scenario_scope({"weather": "rain", "road": "curvy"})
    'weather=rain, road=curvy'
    """
    return ", ".join(value_scope(name, value) for name, value in scenario.items())


def class_scope(name: str) -> str:
    """Images of one class."""
    return f"class {name}"


def layer_scope(layer: str, scenario: str = "") -> str:
    """A layer over all images, or over those of one scenario.

    >>> layer_scope("relu3"), layer_scope("relu3", "weather=rain")
    ('layer relu3', 'layer relu3, weather=rain')
    """
    return f"layer {layer}, {scenario}" if scenario else f"layer {layer}"


def activation_metric(k: int) -> str:
    """Neuron k-activation."""
    return f"{ACTIVATION}{k}"


def is_of_training_too(metric: str) -> bool:
    """Whether a metric is counted on the training data and on the test data, so that a criterion must say on which.

    >>> is_of_training_too("scenario_coverage"), is_of_training_too("neuron_activation_2"), is_of_training_too("ece")
    (True, True, False)
    """
    return metric == COVERAGE or metric.startswith(ACTIVATION)


def each_scenario_scope(layer: str) -> str:
    """A layer over the images of every full scenario by itself: a value of each condition.

    >>> each_scenario_scope("relu3")
    'layer relu3, each scenario'
    """
    return layer_scope(layer, "each scenario")


@dataclass(frozen=True)
class FigureKey:
    """One row of the table."""

    model: str
    scope: str
    metric: str
    data: str = TEST


def read_as_test(criterion: Criterion) -> bool:
    """Whether a criterion does not say on which data a metric is counted that is counted on both.

    One that an earlier version has stored means the test data, which was all that was counted.
    """
    return is_of_training_too(criterion.metric) and "data" not in criterion.where


def select(keys: Sequence[FigureKey], criterion: Criterion, *, of_test_alone: bool = False) -> list[FigureKey]:
    """The figures that match a criterion; without a scope, those of scope `all` where there are any.

    A criterion must say whether coverage and neuron k-activation are those of the training or of the test data, unless
    the run is of a version that counted them `of_test_alone`.
    """
    label = f"criterion {criterion.id}"
    known = list(dict.fromkeys(key.metric for key in keys))
    if criterion.metric not in known:
        why = " (named under dependability: metrics)" if criterion.metric in METRICS else ""
        raise InputError(f"{label}: {UnknownName('metric', criterion.metric, known)}{why}")
    if criterion.over == "pooled":
        raise InputError(f"{label}: figures of dependability cannot be pooled: ask for each or worst")
    chosen = [key for key in keys if key.metric == criterion.metric]
    if read_as_test(criterion) and not of_test_alone:
        raise RefusedCriterion(
            f"{label}: {criterion.metric} is counted on the training data and on the test data: write data: {TRAIN} or "
            f"data: {TEST} under where"
        )
    wanted = criterion.where.get("data", TEST)
    if TRAIN in (wanted if isinstance(wanted, list) else [wanted]) and not any(key.data == TRAIN for key in chosen):
        lacking = "it is of the test data alone"
        if is_of_training_too(criterion.metric):
            lacking = "the study names no training data: name it under data: train"
        raise InputError(f"{label} asks for {criterion.metric} on the training data, but {lacking}")
    if "scope" not in criterion.where:
        chosen = [key for key in chosen if key.scope == ALL] or chosen
    return matching(label, chosen, ("model", "scope", "data"), criterion)
