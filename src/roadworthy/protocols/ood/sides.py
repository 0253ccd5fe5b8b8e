"""Both sides of every set of outliers: what is shown of the test data and from outside it, repeat by repeat."""

from __future__ import annotations

from collections.abc import Mapping

from roadworthy.core.code import code_of
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.hashing import digest
from roadworthy.core.random import derive
from roadworthy.core.roles import OUTLIERS, Dataset, Outliers
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import Bench, PlannedStimulus
from roadworthy.outliers import make_outliers
from roadworthy.outliers.gan import GanOutliers
from roadworthy.protocols.ood.gan_bounds import GANS
from roadworthy.protocols.ood.gans import planned_gans
from roadworthy.protocols.ood.settings import DERIVED, FOREIGN, NOISE, OutlierSide, SetChoice
from roadworthy.protocols.ood.table_specs import GAN
from roadworthy.shifts import Attack

Side = tuple[PlannedStimulus, Mapping[str, str]]
"""One showing of a set: what is shown, and labels that say which set it belongs to; the test data has none."""


def check_outliers(settings: OutlierSide, protocol: str) -> None:
    """Every shift is known, has the levels asked for, and is no attack; every GAN is known."""
    if settings.gans is not None:
        settings.gans.check()
    for choice in settings.transformed:
        if any(isinstance(shift, Attack) for shift in choice.at(settings.levels)):
            raise InputError(
                f"{choice.name} is an attack on a model, and outliers are shown to all alike: name shifts under "
                f"{protocol}: transformed, and attacks under classification: shifts"
            )


def count_outliers(settings: OutlierSide, foreign: int) -> int:
    """How many stimuli a repeat shows besides undisturbed data, with so many sets outside: by arithmetic."""
    sets = len(settings.sets) if settings.sets else len(NOISE) + foreign + len(DERIVED)
    transformed = sum(choice.count(settings.levels) for choice in settings.transformed)
    gans = len(settings.gans.configurations) * settings.gans.count if settings.gans else 0
    return sets + 2 * transformed + gans


def outlier_sides(settings: OutlierSide, repeats: int, bench: Bench) -> list[Side]:
    """In-distribution sides first, then every set; in each repeat."""
    chosen = settings.sets
    if chosen is None:
        named = [name for name in bench.makers if name not in (*NOISE, *DERIVED)]
        chosen = [SetChoice(name=name) for name in (*NOISE, *bench.foreign, *named, *DERIVED)]
    known = [name for name in OUTLIERS if name != FOREIGN]
    for choice in chosen:
        if choice.name not in known and choice.name not in (*bench.foreign, *bench.makers):
            raise UnknownName("set of outliers", choice.name, [*known, *bench.foreign, *bench.makers])
    for name in bench.foreign:
        if name in known:
            raise InputError(f"the foreign set {name!r} has the name of a maker of outliers: call it otherwise")
    for name, own in bench.makers.items():
        if name in known and name != own.name:
            raise InputError(f"the outliers {name!r}, made by {own.name}, have the name of another maker: rename them")
    if settings.foreign is not None and settings.foreign not in bench.foreign:
        raise UnknownName("foreign set", settings.foreign, bench.foreign)
    shifts = [shift for choice in settings.transformed for shift in choice.at(settings.levels)]
    if shifts and not bench.foreign:
        made_here = f" ({', '.join(bench.makers)}: drawn or made from the test data)" if bench.makers else ""
        raise InputError(
            f"shifts of both sides need pictures from elsewhere, and none are named under outliers{made_here}: name a "
            "folder or file of them there, or transformed: []"
        )
    generators = planned_gans(settings.gans, bench)
    for gan in generators:
        if gan.configuration.name in (*known, *bench.foreign, *(f"{shift.name}-{shift.level}" for shift in shifts)):
            raise InputError(f"the GAN {gan.configuration.name!r} has the name of another set: call it otherwise")
    test, seed = bench.data.fingerprint(), bench.seed
    sides: list[Side] = []
    for repeat in range(repeats):
        sides.append((PlannedStimulus(Stimulus(test, repeat=repeat, seed=seed), bench.data), {}))
        for shift in shifts:
            sides.append((PlannedStimulus(shift.stimulus(test, seed=seed, repeat=repeat), bench.data, shift), {}))
        for choice in chosen:
            made, maker = _made(choice, bench, repeat)
            code = code_of(type(maker))
            stimulus = Stimulus(made.fingerprint(), choice.name, 0, maker.parameters(), repeat, seed, code)
            kind = "literature" if maker.name in (*NOISE, FOREIGN) else "derived"
            fresh = choice.name not in bench.foreign
            labels = {"ood_set": choice.name, "kind": kind} | ({} if fresh else {"foreign": choice.name})
            sides.append((PlannedStimulus(stimulus, made, fresh=fresh), labels))
        if shifts:
            name = settings.foreign or next(iter(bench.foreign))
            made, _ = _made(SetChoice(name=name), bench, repeat)
            for shift in shifts:
                shown_as = f"{name}_{shift.name}"
                stimulus = shift.stimulus(made.fingerprint(), seed=seed, repeat=repeat, name=shown_as)
                labels = {"ood_set": f"{shift.name}-{shift.level}", "kind": "transformed"}
                labels |= {"shift": shift.name, "foreign": name}
                sides.append((PlannedStimulus(stimulus, made, shift), labels))
        for gan in generators:
            name, drawer = gan.configuration.name, GanOutliers(gan=gan)
            drawn = drawer.make(bench.data, seed=_seed_of(drawer, bench, repeat))
            stimulus = Stimulus(drawn.fingerprint(), name, 0, drawer.parameters(), repeat, seed)
            labels = {"ood_set": name, "kind": GAN, "gan": str(gan.index), "artifact": gan.recipe.hash, "unit": GANS}
            sides.append((PlannedStimulus(stimulus, drawn, fresh=True, requires=(gan,)), labels))
    return sides


def _made(choice: SetChoice, bench: Bench, repeat: int) -> tuple[Dataset, Outliers]:
    """The outliers of a choice for a repeat, and what makes them."""
    foreign = bench.foreign.get(choice.name)
    own = bench.makers.get(choice.name)
    maker = own or make_outliers(FOREIGN if foreign is not None else choice.name, **choice.parameters)
    seed = bench.seed if foreign is not None else _seed_of(maker, bench, repeat)
    return maker.make(bench.data, seed=seed, foreign=foreign), maker


def _seed_of(maker: Outliers, bench: Bench, repeat: int) -> int:
    """That of the images made for a repeat; the first shows those of the study's seed, as other protocols do."""
    return derive(bench.seed, "outliers", digest([maker.name, maker.parameters()]), repeat) if repeat else bench.seed
