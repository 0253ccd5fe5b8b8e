"""The sets of localization: the test data, the same under shifts, and sets outside with the labels of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset, Shift
from roadworthy.core.types import Stimulus
from roadworthy.data import OpenedDataset, Subset
from roadworthy.data.base import identities
from roadworthy.data.leaks import shared_ids
from roadworthy.data.relabelled import Relabelled
from roadworthy.engine.plan import Bench, PlannedStimulus
from roadworthy.protocols.localization.names import BOX, HULL, MASK, TEST
from roadworthy.protocols.localization.settings import SetChoice, SetNote, Settings
from roadworthy.protocols.pictures import evenly_spaced
from roadworthy.shifts import Attack, chosen_shift

LOOKED_AT = 16
"""How many images tell whether a shift turns boxes."""
UNTURNED = 1 + 1e-4
"""The inflation of a box that is only moved and scaled, but for rounding."""
LEVEL = 1
"""The level of a shift, where a set names none."""


@dataclass(frozen=True)
class PlannedSet:
    """A set: what is shown in every repeat of it, and what is to be known of it."""

    showings: tuple[PlannedStimulus, ...]
    note: SetNote

    @property
    def data(self) -> Dataset:
        """Its images."""
        return self.showings[0].data


def plan_sets(settings: Settings, bench: Bench) -> dict[str, PlannedSet]:
    """The test data first, then every set of the settings; one that cannot be made of what is there is an error."""
    data = bench.data
    assert isinstance(data, OpenedDataset)
    fingerprint, repeats = data.fingerprint(), range(settings.repeats)
    clean = [PlannedStimulus(Stimulus(fingerprint, repeat=repeat, seed=bench.seed), data) for repeat in repeats]
    sets = {TEST: PlannedSet(tuple(clean), _noted(SetNote(), clean[0], data))}
    learned = (bench.train, bench.validation, bench.fitting)
    known = {content for own in (data, *learned) if own is not None for content in identities(own)}
    for name, choice in settings.chosen_sets().items():
        try:
            sets[name] = _shifted(choice, settings, bench) if choice.shift else _foreign(choice, settings, bench)
        except InputError as error:
            raise InputError(f"set {name}: {error}") from None
        if not sets[name].note.own_images:
            leaked = len(shared_ids(sets[name].data, known))
            sets[name] = replace(sets[name], note=sets[name].note.model_copy(update={"leaked": leaked}))
    return sets


def shift_of(choice: SetChoice) -> Shift:
    """The shift of a set; an unknown name, level or parameter is an `InputError`."""
    assert choice.shift is not None
    return chosen_shift(choice.shift, choice.level or LEVEL, choice.parameters)


def merged_children(merge: Mapping[str, Sequence[str]], class_names: Sequence[str]) -> dict[str, str]:
    """The class of the source that stands for each parent class: the first of its children."""
    for parent, children in merge.items():
        for child in children:
            if child not in class_names:
                raise UnknownName(f"class of the source for {parent}", child, class_names)
    return {parent: children[0] for parent, children in merge.items()}


def _shifted(choice: SetChoice, settings: Settings, bench: Bench) -> PlannedSet:
    shift, data = shift_of(choice), bench.data
    stimuli = [shift.stimulus(data.fingerprint(), seed=bench.seed, repeat=r) for r in range(settings.repeats)]
    showings = tuple(PlannedStimulus(stimulus, data, shift) for stimulus in stimuli)
    note = SetNote(shift=shift.name, level=shift.level, parameters=shift.parameters())
    return PlannedSet(showings, _noted(note, showings[0], data))


def _foreign(choice: SetChoice, settings: Settings, bench: Bench) -> PlannedSet:
    assert choice.outliers is not None
    if choice.outliers not in bench.foreign:
        raise UnknownName("set of outliers", choice.outliers, bench.foreign)
    whole, class_names = bench.foreign[choice.outliers], bench.data.class_names
    opened = whole if isinstance(whole, OpenedDataset) else Subset(whole, range(len(whole)))
    if opened.channels != bench.data.channels:
        raise InputError(f"images of {opened.name} have other channels than those of {bench.data.name}")
    if choice.labels:
        stands_for = merged_children(choice.merge, class_names)
        rename = {parent: child for parent, child in stands_for.items() if parent in opened.class_names}
        if unused := sorted(set(stands_for) - set(rename)):
            raise InputError(f"merge names {unused[0]}, which is no class of {opened.name}: leave it out")
    else:
        rename = dict.fromkeys(opened.class_names, class_names[0])
    try:
        data = Relabelled(opened, class_names, rename=rename)
    except UnknownName as error:
        raise InputError(
            f"{str(error).rstrip('.')}; map it to classes of the source with merge, rename it where the data is named "
            "(rename), or say labels: false"
        ) from None
    fingerprint, repeats = data.fingerprint(), range(settings.repeats)
    stimuli = [Stimulus(fingerprint, choice.outliers, repeat=repeat, seed=bench.seed) for repeat in repeats]
    showings = tuple(PlannedStimulus(stimulus, data) for stimulus in stimuli)
    note = SetNote(outliers=choice.outliers, merge=choice.merge, labelled=choice.labels, own_images=False)
    return PlannedSet(showings, _noted(note, showings[0], data))


def _noted(note: SetNote, showing: PlannedStimulus, data: Dataset) -> SetNote:
    """The note with what the images tell: how many there are, of which classes, and whether they have boxes."""
    present = [data.class_names[label] for label in np.unique(data.labels)] if note.labelled else []
    details = {"images": len(data), "objects": len(set(data.groups)), "classes": present}
    return note.model_copy(update={**details, "truth": _truth(showing, data)})


def _truth(showing: PlannedStimulus, data: Dataset) -> str:
    """Where the true boxes of a set come from, as a few of its images tell; a shift that cannot be applied is an error.

    A box that is moved without being turned, as by a crop, stays a box: its inflation is 1.
    """
    batch = data.batch(evenly_spaced(len(data), LOOKED_AT))
    inflation = None
    if showing.shift is not None and not isinstance(showing.shift, Attack):
        inflation = showing.show(batch).box_inflation
    if batch.boxes is None:
        return ""
    if batch.masks is not None:
        return MASK
    if inflation is None:
        return BOX
    known = inflation[~np.isnan(inflation)]
    return BOX if len(known) and bool((known <= UNTURNED).all()) else HULL
