"""The expected situations of a source: what is shown in each, and how often it occurs."""

from __future__ import annotations

import math
from collections.abc import Collection

from pydantic import BaseModel, ConfigDict

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import SHIFTS, Shift
from roadworthy.core.types import UNDISTURBED, Stimulus
from roadworthy.engine.plan import Bench, PlannedStimulus
from roadworthy.protocols.shift_choices import ShiftChoice
from roadworthy.protocols.situations.requirements import Requirement
from roadworthy.protocols.situations.settings import EXAMPLE, FORM, Settings, entries
from roadworthy.protocols.situations.table_specs import NAME
from roadworthy.shifts import Attack, find_shift

TEST = "test"
"""The set of situations that are shown on test data."""


class Situation(BaseModel):
    """An expected situation: a shift at a level (`none` and 0 where undisturbed) on a set, and the share it occurs in.

    `count` is how often it was observed, where shares are estimated by that; otherwise 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    shift: str = UNDISTURBED
    level: int = 0
    set: str = TEST
    share: float
    count: int = 0


class Context(BaseModel):
    """What the tables need besides readouts: situations and requirements; `example` where nobody named frequencies."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    situations: list[Situation]
    requirements: list[Requirement] = []
    example: bool = False

    @property
    def counts(self) -> list[int] | None:
        """How often each situation was observed; None where shares were given."""
        counts = [situation.count for situation in self.situations]
        return counts if all(counts) else None


def find_situations(settings: Settings, recorded: Collection[str] | None = None) -> list[Situation]:
    """The situations of the settings: undisturbed data, then shifts, then recorded sets, each by name.

    What is neither a shift nor among `recorded` sets is an `InputError`; None takes any name as that of a set.
    """
    situations: dict[str, Situation] = {}
    for name, level, number in entries(settings.frequencies):
        if level:
            _shift_at(settings, name, level)
            situation = Situation(name=f"{name}-{level}", shift=name, level=level, share=number)
        elif name == UNDISTURBED:
            situation = Situation(name=name, share=number)
        elif name in SHIFTS:
            raise InputError(f"{NAME}: {name} is a shift, and its frequency is given by level: {FORM}")
        elif recorded is None or name in recorded:
            situation = Situation(name=name, set=name, share=number)
        else:
            raise UnknownName("situation", name, [UNDISTURBED, *SHIFTS, *recorded])
        if situation.name in situations:
            raise InputError(f"{NAME}: {situation.name} names a recorded set and a shift at a level: rename the set")
        situations[situation.name] = situation
    for name in recorded or ():
        if name in SHIFTS:
            raise InputError(f"{NAME}: recorded set {name} has the name of a shift: call it otherwise")
        if name not in {situation.set for situation in situations.values()}:
            raise InputError(
                f"{NAME}: recorded set {name} has no frequency: give it one under frequencies, or leave it out of data"
            )
    if settings.rest:
        left = 1 - math.fsum(situation.share for situation in situations.values())
        known = situations.get(UNDISTURBED, Situation(name=UNDISTURBED, share=0.0))
        situations[UNDISTURBED] = known.model_copy(update={"share": known.share + left})
    ordered = sorted(situations.values(), key=lambda s: (s.set != TEST, s.level > 0, s.shift, s.level, s.name))
    total = math.fsum(situation.share for situation in ordered)
    return [
        situation.model_copy(
            update={"share": situation.share / total, "count": round(situation.share) if settings.counted else 0}
        )
        for situation in ordered
    ]


def _shift_at(settings: Settings, name: str, level: int) -> Shift:
    """A shift at a level, by the level table of the settings where they have one; an unknown one is an `InputError`."""
    if issubclass(find_shift(name), Attack):
        raise InputError(f"{NAME}: {name} is an attack on a model, which no frequency can be given for: leave it out")
    choice = next((choice for choice in settings.shifts if choice.name == name), ShiftChoice(name=name))
    known = {shift.level: shift for shift in choice.at([level])}
    if level not in known:
        raise InputError(f"{NAME}: shift {name} has no level {level} in its table, but {', '.join(map(str, known))}")
    return known[level]


def make_context(settings: Settings, bench: Bench) -> Context:
    """What the tables need, of one source."""
    situations = find_situations(settings, bench.recorded)
    return Context(
        situations=situations, requirements=list(settings.requirements), example=settings.frequencies == EXAMPLE
    )


def showing_of(situation: Situation, settings: Settings, bench: Bench) -> PlannedStimulus:
    """What is shown in a situation; test data is shown as under classification, so that cases are shared."""
    if situation.set != TEST:
        data = bench.recorded[situation.set]
        return PlannedStimulus(Stimulus(data.fingerprint(), situation.set, seed=bench.seed), data)
    fingerprint = bench.data.fingerprint()
    if not situation.level:
        return PlannedStimulus(Stimulus(fingerprint, seed=bench.seed), bench.data)
    shift = _shift_at(settings, situation.shift, situation.level)
    stimulus = shift.stimulus(fingerprint, seed=bench.seed, repeat=0, name=situation.shift)
    return PlannedStimulus(stimulus, bench.data, shift)
