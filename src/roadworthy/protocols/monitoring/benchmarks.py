"""The data profile: the ID images of a source, and the OOD side of every benchmark that it meets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from roadworthy.core.code import code_of
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import OUTLIERS, SHIFTS, Dataset, Shift
from roadworthy.core.types import Stimulus
from roadworthy.data import OpenedDataset, Subset, split_by_group
from roadworthy.data.base import identities
from roadworthy.data.leaks import shared_ids
from roadworthy.data.relabelled import Relabelled
from roadworthy.data.subset import Mirrored, object_rounds, rows_in_rounds
from roadworthy.engine.monitor_systems import undisturbed
from roadworthy.engine.plan import Bench, PlannedStimulus, is_stored
from roadworthy.monitors.id_calibration import note_of_mix
from roadworthy.outliers import make_outliers
from roadworthy.outliers.makers import Foreign
from roadworthy.protocols.monitoring.names import (
    ADVERSARIAL,
    ANOMALY,
    DISTRIBUTIONAL_SHIFT,
    NOISE,
    NOVEL_CLASS,
    TEST,
    TRAIN,
    VALID,
)
from roadworthy.protocols.monitoring.settings import LEVEL, BenchmarkChoice, BenchmarkNote, Settings
from roadworthy.protocols.served import class_labels, source_words
from roadworthy.shifts import Attack, chosen_shift

HALVES = (0.5, 0.5)
LIMIT = "monitoring limit"
"""The purpose of the draws of a limit."""
USUAL_SHIFTS = {
    "fog": (DISTRIBUTIONAL_SHIFT, "fog", 3),
    "dark": (DISTRIBUTIONAL_SHIFT, "dark", 4),
    "noise": (NOISE, "noise", 3),
    "pixel_faults": (NOISE, "sensor_pixel_faults", 3),
    "black_frame": (ANOMALY, "sensor_black_frame", 5),
    "shifted_rows": (ANOMALY, "sensor_shifted_rows", 5),
}
"""The shifts of the benchmarks of a study that names none: kind, shift and level by name."""
ATTACK_LEVEL = 4
SHOWS_OTHERS = "OOD images show other ID test images or parts of them, and these may be in the stream as ID images too"
"""The note of a benchmark whose shift shows other images of the data."""
NO_LABELS = "no labels: {!r} is no class of the source, so no answer to its images is right"
"""The note of a set of noise or anomalies whose classes are not those of the source."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark of a source: what its OOD side shows, and what is to be known of it."""

    showing: PlannedStimulus
    note: BenchmarkNote


@dataclass(frozen=True)
class Profile:
    """All that a source shows.

    own         its undisturbed data: `valid` (thresholds come from it), `test` (the ID side) and, where there is any,
                `train`
    benchmarks  by name;  skipped: benchmarks that it does not meet, each with the reason
    valid_from  where the validation images come from;  valid_note: what must be known of a threshold on them
    leaked      ID test images that are among them
    """

    own: Mapping[str, PlannedStimulus]
    benchmarks: Mapping[str, Benchmark]
    skipped: Mapping[str, str] = field(default_factory=dict)
    valid_from: str = ""
    valid_note: str = ""
    leaked: int = 0


def make_profile(settings: Settings, bench: Bench) -> Profile:
    """What a source shows under these settings; an `InputError` where a benchmark cannot be made of what is there."""
    data = bench.data
    assert isinstance(data, OpenedDataset)
    valid: Dataset = data
    if bench.validation is not None:
        valid, test, valid_from = bench.validation, data, f"validation data {bench.validation.name}"
        if bench.fitting is not None:
            _check_classes(settings, bench.fitting, valid)
    else:
        valid, test = split_by_group(data, HALVES, bench.seed)
        valid_from = "half of the objects of the test data, which are not tested with"
    shown = {VALID: _chosen(valid, settings, bench), TEST: _chosen(test, settings, bench)}
    of_valid = set(identities(valid)).union(() if bench.fitting is None else identities(bench.fitting))
    known = of_valid.union(identities(shown[TEST]), () if bench.train is None else identities(bench.train))
    leaked = 0
    if bench.validation is not None:
        leaked = len(shared_ids(shown[TEST], of_valid))
    chosen = settings.benchmarks if settings.benchmarks is not None else default_benchmarks(bench)
    benchmarks, skipped = {}, {}
    for name, choice in chosen.items():
        reason = _not_met(choice, bench)
        if reason:
            skipped[name] = reason
        else:
            benchmarks[name] = _benchmark(name, choice, settings, bench, shown[TEST], known)
    if not benchmarks:
        why = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise InputError(f"{source_words(bench)} meets no benchmark ({why}): name one that it can meet")
    own = {name: undisturbed(bench, part) for name, part in shown.items()}
    if bench.train is not None:
        own[TRAIN] = undisturbed(bench, bench.train)
    valid_note = "; ".join(filter(None, [note_of_mix(shown[VALID]), bench.threshold_note()]))
    return Profile(own, benchmarks, skipped, valid_from, valid_note, leaked)


def _check_classes(settings: Settings, fitting: Dataset, valid: Dataset) -> None:
    """Refuse a threshold per class where the half of the validation data that gives it lacks one of its classes."""
    lacking = sorted({*fitting.labels.tolist()} - {*valid.labels.tolist()})
    if lacking and any(rule.per_class for rule in (settings.threshold, *settings.thresholds.values())):
        raise InputError(
            f"a threshold per class needs images of every class, and the half of the objects of validation data "
            f"{valid.name} that thresholds come from has none of {valid.class_names[lacking[0]]}: name more objects of "
            "that class, or leave out per_class"
        )


def default_benchmarks(bench: Bench) -> dict[str, BenchmarkChoice]:
    """The benchmarks of a study that names none: every kind, from the sets outside that there are and usual shifts.

    Sets outside are novel classes, images of makers anomalies. The attack is fgsm where every model gives gradients,
    and square otherwise; there is none where a model is stored predictions, which answer nothing new. Shifts that are
    not registered are left out.
    """
    kinds = {**dict.fromkeys(bench.foreign, NOVEL_CLASS), **dict.fromkeys(bench.makers, ANOMALY)}
    chosen = {name: BenchmarkChoice.model_validate({"kind": kinds[name], "outliers": name}) for name in kinds}
    has_gradients = all("input_gradient" in model.capabilities for model in bench.models.values())
    attack = "fgsm" if has_gradients else "square"
    usual = {attack: (ADVERSARIAL, attack, ATTACK_LEVEL)}
    if any(is_stored(model) for model in bench.models.values()):
        usual = {}
    usual |= {name: own for name, own in USUAL_SHIFTS.items() if own[1] in SHIFTS}
    for name, (kind, shift, level) in usual.items():
        unused = name if name not in chosen else f"{name}_shift"
        chosen[unused] = BenchmarkChoice.model_validate({"kind": kind, "shift": shift, "level": level})
    return chosen


def shift_of(choice: BenchmarkChoice) -> Shift:
    """The shift or attack of a benchmark; an unknown name, level or parameter is an `InputError`."""
    assert choice.shift is not None
    shift = chosen_shift(choice.shift, choice.level or LEVEL, choice.parameters)
    if isinstance(shift, Attack) and choice.kind != ADVERSARIAL:
        raise InputError(f"shift {shift.name} is an attack on a model: its benchmark is of the kind {ADVERSARIAL}")
    if not isinstance(shift, Attack) and choice.kind == ADVERSARIAL:
        raise InputError(f"shift {shift.name} attacks no model: name an attack such as fgsm, or another kind")
    return shift


def _not_met(choice: BenchmarkChoice, bench: Bench) -> str:
    """Why a source does not meet a benchmark; empty where it does."""
    if choice.sources is not None and not bench.source:
        raise InputError("a benchmark names sources, but the study has no sources: leave them out")
    if choice.sources is not None and bench.source not in choice.sources:
        return f"it is for {', '.join(choice.sources)} alone (sources)"
    if choice.outliers is not None and choice.outliers in bench.section.exclude:
        return f"the source never meets {choice.outliers} (exclude)"
    if choice.outliers is not None and choice.outliers == bench.source:
        return f"{choice.outliers} is the source itself"
    return ""


def _benchmark(
    name: str, choice: BenchmarkChoice, settings: Settings, bench: Bench, test: OpenedDataset, known: set[str]
) -> Benchmark:
    """The OOD side of one benchmark, of at most as many images as the ID side has."""
    note = BenchmarkNote(kind=choice.kind, made_from=choice.made_from(), near=bool(choice.near))
    if choice.shift is not None:
        shift = shift_of(choice)
        stimulus = shift.stimulus(test.fingerprint(), seed=bench.seed)
        remark = "" if type(shift).over is Shift.over else SHOWS_OTHERS
        details = {"keeps_label": shift.keeps_label, "attacks": isinstance(shift, Attack), "images": len(test)}
        update = {**details, "shared": True, "note": remark}
        return Benchmark(PlannedStimulus(stimulus, test, shift), note.model_copy(update=update))
    assert choice.outliers is not None
    if choice.near is None:
        note = note.model_copy(update={"near": choice.outliers in bench.section.near})
    if choice.outliers in bench.foreign:
        return _foreign(name, choice.outliers, note, settings, bench, test, known)
    maker = bench.makers.get(choice.outliers)
    if maker is None and choice.outliers not in OUTLIERS:
        raise UnknownName("set of outliers", choice.outliers, [*bench.outliers, *OUTLIERS])
    if choice.kind == DISTRIBUTIONAL_SHIFT:
        raise InputError(
            f"benchmark {name}: images of {choice.outliers} have no label of the source, so they are no distributional "
            "shift: name another kind, or a set with the classes of the source"
        )
    maker = maker or make_outliers(choice.outliers)
    made = maker.make(test, seed=bench.seed, foreign=next(iter(bench.foreign.values()), None))
    final = Subset(made, range(len(made)))
    stimulus = Stimulus(
        final.fingerprint(), choice.outliers, 0, maker.parameters(), 0, bench.seed, code_of(type(maker))
    )
    details = {"keeps_label": False, "has_label": False, "images": len(final), "shared": _shares(test, final)}
    return Benchmark(PlannedStimulus(stimulus, final), note.model_copy(update=details))


def _foreign(
    name: str,
    outliers: str,
    note: BenchmarkNote,
    settings: Settings,
    bench: Bench,
    test: OpenedDataset,
    known: set[str],
) -> Benchmark:
    """The OOD side that images of a set outside make: with labels where its classes are those of the source.

    A novel class has no label of the source, whatever it is called; a distributional shift must have them.
    """
    whole = bench.foreign[outliers]
    leaked = len(shared_ids(whole, known))
    present = [whole.class_names[label] for label in np.unique(whole.labels)]
    unknown = [class_name for class_name in present if class_name not in test.class_names]
    if unknown and note.kind == DISTRIBUTIONAL_SHIFT:
        error = UnknownName(f"class in data set {outliers}", unknown[0], test.class_names)
        raise InputError(
            f"benchmark {name}: {str(error).rstrip('.')}; a distributional shift keeps the classes of the source: "
            "rename those of the set (rename), keep some alone (only), or call the kind novel_class"
        )
    has_label = note.kind != NOVEL_CLASS and not unknown
    if has_label:
        final = _labelled(name, _chosen(whole, settings, bench), test)
        stimulus = Stimulus(final.fingerprint(), outliers, seed=bench.seed)
    else:
        mirrored = bench.section.data.mirror
        number = len(test) // 2 if mirrored else len(test)
        part = _limited(whole, number, bench.seed, settings.whole_objects)
        made = Foreign().make(Subset(test, range(number)), seed=bench.seed, foreign=part)
        final = Mirrored(made) if mirrored else made
        stimulus = Stimulus(final.fingerprint(), outliers, 0, Foreign().parameters(), 0, bench.seed)
    shared_classes = bench.section.overlap.get(outliers)
    left_out = sorted(class_labels(test, shared_classes.source)) if shared_classes is not None else []
    if left_out and np.isin(test.labels, left_out).all():
        raise InputError(
            f"{source_words(bench)} has no test image left without the classes that it shares with {outliers}: name "
            "fewer of them (overlap), or leave the set out (exclude)"
        )
    details = {"keeps_label": has_label, "has_label": has_label, "images": len(final), "leaked": leaked}
    remark = "" if has_label or note.kind == NOVEL_CLASS else NO_LABELS.format(unknown[0])
    update = {**details, "left_out": left_out, "note": remark}
    return Benchmark(PlannedStimulus(stimulus, final), note.model_copy(update=update))


def _labelled(name: str, data: OpenedDataset, test: OpenedDataset) -> OpenedDataset:
    """A set whose class names are those of the source, with the labels of the source."""
    if data.channels != test.channels:
        raise InputError(
            f"benchmark {name}: images of {data.name} have other channels than those of {test.name}: a set with labels "
            "of the source needs the same"
        )
    return data if data.class_names == test.class_names else Relabelled(data, test.class_names)


def _shares(test: OpenedDataset, made: OpenedDataset) -> bool:
    """Whether images that a maker made are of the objects of the ID side."""
    return bool({*test.groups} & {*made.groups})


def _chosen(data: Dataset, settings: Settings, bench: Bench) -> OpenedDataset:
    """At most `limit` images of a data set, with mirrored copies where the source has them."""
    part = _limited(data, settings.limit, bench.seed, settings.whole_objects)
    return Mirrored(part) if bench.section.data.mirror else part


def _limited(data: Dataset, limit: int | None, seed: int, whole_objects: bool) -> OpenedDataset:
    """At most `limit` images, drawn in rounds over objects, in the order of the data; or as many whole objects as fit.

    Where not even one object fits, the images of one that do.
    """
    if limit is None or len(data) <= limit:
        return data if isinstance(data, OpenedDataset) else Subset(data, range(len(data)))
    if not whole_objects:
        return Subset(data, np.sort(rows_in_rounds(data, LIMIT, seed)[:limit]).tolist())
    keys, (_, drawn) = data.groups, object_rounds(data.ids, data.groups, LIMIT, seed)
    order = np.argsort(drawn, kind="stable")[:limit]
    chosen = [keys[row] for row in order]
    cut = chosen[-1]
    if chosen.count(cut) < keys.count(cut) and len({*chosen}) > 1:
        order = np.array([row for row in order if keys[row] != cut], np.intp)
    return Subset(data, np.sort(order).tolist())
