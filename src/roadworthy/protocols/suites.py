"""Suites: settings of protocols with a name and a version, which never change, so that figures stay comparable."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import Model
from roadworthy.protocols.base import PROTOCOLS
from roadworthy.verdict.questions import QUESTIONS

ASKED: Mapping[str, tuple[str, ...]] = {"approval@1": tuple(QUESTIONS)}
"""The questions that the criteria of a run of a suite must answer."""
DEFAULTS = ("standard", "localization")
"""The suites of an evaluation that names none: the first of them that can ask one of its models."""


@dataclass(frozen=True)
class Suite:
    """What a suite runs: the settings of each protocol that declares it, and the questions that it asks."""

    name: str
    settings: Mapping[str, BaseModel]
    questions: tuple[str, ...] = ()

    def describe(self) -> str:
        """What it asks for, in a few words; each protocol by its name where there are several."""
        words = {name: PROTOCOLS.get(name)().describe(settings) for name, settings in self.settings.items()}
        return next(iter(words.values())) if len(words) == 1 else "; ".join(f"{n}: {text}" for n, text in words.items())

    def why_not(self, models: Collection[Model]) -> str:
        """Why one of its protocols has none of the models to ask; empty where each has one at least."""
        for name in self.settings:
            needed = PROTOCOLS.get(name).columns
            lacking = {model.name: sorted(needed - {*model.columns}) for model in models}
            if all(lacking.values()):
                return "; ".join(f"model {own} answers no {' and no '.join(some)}" for own, some in lacking.items())
        return ""

    def settings_for(self, given: Mapping[str, Any]) -> dict[str, BaseModel]:
        """The settings where this is given besides the test data: `outliers`, `train`, `validation`, `monitor`."""
        return {name: PROTOCOLS.get(name)().suite_settings(own, given) for name, own in self.settings.items()}

    @property
    def uses(self) -> frozenset[str]:
        """The data besides the test data that its protocols make use of where it is given."""
        return frozenset[str]().union(*(PROTOCOLS.get(name).uses for name in self.settings))


def known_suites() -> dict[str, Suite]:
    """Every suite by its name; one that several protocols declare spans them.

    Only built-in protocols are part of a built-in suite: one that is installed or plugged in must not change it.
    """
    parts: dict[str, dict[str, BaseModel]] = {}
    for name in PROTOCOLS:
        protocol = PROTOCOLS.get(name)
        for suite, settings in protocol.suites.items():
            own = parts.setdefault(suite, {})
            if own and is_built_in(PROTOCOLS.get(next(iter(own)))) and not is_built_in(protocol):
                raise InputError(f"the protocol {name} declares the suite {suite}, which is built in: rename its own")
            own[name] = settings
    return {name: Suite(name, settings, ASKED.get(name, ())) for name, settings in parts.items()}


def find_suite(suite: str) -> Suite:
    """A suite by its name; a bare name is its newest version.

    >>> find_suite("quick").settings["classification"].levels
    [1, 3, 5]
    >>> [*find_suite("approval").settings], find_suite("approval").questions
    (['classification', 'ood', 'operating_points'], ('outliers', 'conditions', 'certainty'))
    """
    known = known_suites()
    versions = [name for name in known if suite in (name, name.split("@")[0])]
    if not versions:
        raise UnknownName("suite", suite, [*known, *{name.split("@")[0] for name in known}])
    return known[versions[-1]]


def suite_for(models: Collection[Model], named: str | None = None) -> Suite:
    """The suite by which models are tested: the one that is named, else the first of `DEFAULTS` that can ask one.

    A named one that can ask none of them is an `InputError`, which says which can.
    """
    chosen = find_suite(named if named is not None else DEFAULTS[0])
    reason = chosen.why_not(models)
    if not reason:
        return chosen
    fitting = next((suite for suite in map(find_suite, DEFAULTS) if not suite.why_not(models)), None)
    if named is None and fitting is not None:
        return fitting
    instead = f": choose `suite='{fitting.name.split('@')[0]}'`" if fitting else ""
    raise InputError(f"suite {chosen.name} has no model to ask: {reason}{instead}")
