"""How the figures of dependability are called: protocol, scopes and metrics, the same in plan, tables and criteria."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.metrics import METRICS
from roadworthy.protocols.base import matching
from roadworthy.protocols.dependability.table_specs import NAME as NAME
from roadworthy.verdict import Criterion

ALL = "all"
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
    return f"neuron_activation_{k}"


@dataclass(frozen=True)
class FigureKey:
    """One row of the table."""

    model: str
    scope: str
    metric: str


def select(keys: Sequence[FigureKey], criterion: Criterion) -> list[FigureKey]:
    """The figures that match a criterion; without a scope, those of scope `all` where there are any."""
    label = f"criterion {criterion.id}"
    known = list(dict.fromkeys(key.metric for key in keys))
    if criterion.metric not in known:
        why = " (named under dependability: metrics)" if criterion.metric in METRICS else ""
        raise InputError(f"{label}: {UnknownName('metric', criterion.metric, known)}{why}")
    if criterion.over == "pooled":
        raise InputError(f"{label}: figures of dependability cannot be pooled: ask for each or worst")
    chosen = [key for key in keys if key.metric == criterion.metric]
    if "scope" not in criterion.where:
        chosen = [key for key in chosen if key.scope == ALL] or chosen
    return matching(label, chosen, ("model", "scope"), criterion)
