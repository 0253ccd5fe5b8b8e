"""Reading what one model was shown: held-out images and the threshold fixed on them, test images and outliers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.grouping import grouped
from roadworthy.core.types import LOG_ODDS, UNDISTURBED
from roadworthy.engine.readouts import Readouts
from roadworthy.monitors.id_calibration import object_halves
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.monitor_scores import own_scores
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.protocols.ood.table_specs import GAN
from roadworthy.protocols.operating_points.keys import (
    HELD_OUT_OUTLIERS,
    ConditionKey,
    is_held_out,
    is_inside,
    is_outside,
)
from roadworthy.protocols.operating_points.settings import HALF, Context, Settings
from roadworthy.protocols.operating_points.thresholds import Fixed, Shown, fix_threshold

DERIVED = "derived"
"""The kind of outliers that are made from test images, and belong to their groups."""

Answered = tuple[StoredCase, Readouts | None]
"""A case and its readouts; None where it failed."""


@dataclass(frozen=True)
class Outside:
    """The outliers of one set in one repeat, and the GAN that drew them, if one did."""

    shown: Shown
    gan: int | None = None


@dataclass(frozen=True)
class ModelScores:
    """What one model has at its threshold.

    score       what the threshold is on;  fixed: the threshold;  held_out: the images that it was fixed on
    inside      by condition, the test images that figures are over, repeat by repeat
    outside     by set, outliers repeat by repeat and GAN by GAN;  left_out: GANs of a set that failed
    failures    why a condition or a set has no figures
    ids         of the test images that figures are over;  objects: the number of the object of each, (n,)
    """

    score: str
    fixed: Fixed
    held_out: Shown | None
    inside: Mapping[ConditionKey, Sequence[Shown]]
    outside: Mapping[SetKey, Sequence[Outside]]
    failures: Mapping[ConditionKey | SetKey, str]
    left_out: Mapping[SetKey, str]
    ids: tuple[str, ...]
    objects: NDArray[np.int64]


def read_model(answered: Sequence[Answered], settings: Settings, context: Context) -> ModelScores:
    """Fix the threshold of one model, and take the images that its figures are over.

    Without validation data the objects of the test data are halved by a hash of their names, seeded by the study: one
    half fixes the threshold, the figures are over the other, and outliers made of images of the first are left out.
    """
    score = _score([readouts for _, readouts in answered if readouts is not None], settings)
    inside = [(case, readouts) for case, readouts in answered if is_inside(case)]
    test = next((readouts for _, readouts in inside if readouts is not None), None)
    groups = np.asarray(test.groups if test else (), np.str_)
    held, kept = np.zeros(0, np.intp), np.arange(len(groups))
    if context.held_out == HALF:
        held, kept = object_halves(groups, context.seed)
    if test is not None and any(own is not None and own.ids != test.ids for _, own in inside):
        raise InputError("a model was shown other test images in some condition: run the study again")

    def shown(readouts: Readouts) -> Shown:
        return _shown(readouts, score)

    held_out, fixed = _fixed(answered, settings, context, shown, held)
    conditions = grouped((ConditionKey.of(case), (case, readouts)) for case, readouts in inside)
    sets = grouped((SetKey.of(case), (case, readouts)) for case, readouts in answered if is_outside(case))
    failures: dict[ConditionKey | SetKey, str] = {}
    left_out = {}
    every: list[tuple[ConditionKey | SetKey, Sequence[Answered]]] = [*conditions.items(), *sets.items()]
    for key, own in every:
        failed = [case for case, readouts in own if readouts is None]
        if failed and (not isinstance(key, SetKey) or key.kind != GAN or len(failed) == len(own)):
            failures[key] = failed[0].failure
        elif failed and isinstance(key, SetKey):
            lost, drawn = ({case.labels["gan"] for case in some} for some in (failed, [case for case, _ in own]))
            left_out[key] = f"{len(lost)} of {len(drawn)} GANs left out: {failed[0].failure}"
    held_groups = groups[held]
    return ModelScores(
        score=settings.score or score,
        fixed=fixed,
        held_out=held_out,
        inside={
            key: [shown(readouts).taken(kept) for _, readouts in own if readouts]
            for key, own in conditions.items()
            if key not in failures
        },
        outside={
            key: [_outside(case, shown(readouts), held_groups) for case, readouts in own if readouts]
            for key, own in sets.items()
            if key not in failures
        },
        failures=failures,
        left_out=left_out,
        ids=tuple(test.ids[row] for row in kept) if test else (),
        objects=np.unique(groups[kept], return_inverse=True)[1],
    )


def _score(known: Sequence[Readouts], settings: Settings) -> str:
    """The name of the score of one model; a threshold that the study gives is one on its certainty or probability."""
    if not known:
        return "confidence"
    if settings.threshold is not None:
        return "confidence" if any(readouts.certainty is None for readouts in known) else "certainty"
    return own_scores(known)[0]


def _shown(readouts: Readouts, score: str) -> Shown:
    """Scores, mistakes and objects."""
    answers = readouts.answers
    columns = {"certainty": readouts.certainty, LOG_ODDS: answers.log_odds, "confidence": answers.confidence}
    scores = columns[score]
    wrong = np.asarray(answers.prediction != answers.label)
    return Shown(np.asarray(scores, np.float64), wrong, np.asarray(readouts.groups, np.str_))


def _outside(case: StoredCase, shown: Shown, held_groups: NDArray[Any]) -> Outside:
    """The outliers of a case, without those that are made of images which the threshold was fixed on."""
    if case.labels["kind"] == DERIVED and len(held_groups):
        shown = shown.taken(np.flatnonzero(~np.isin(shown.groups, held_groups)))
    return Outside(shown, int(case.labels["gan"]) if "gan" in case.labels else None)


def _fixed(
    answered: Sequence[Answered],
    settings: Settings,
    context: Context,
    shown: Callable[[Readouts], Shown],
    half: NDArray[np.intp],
) -> tuple[Shown | None, Fixed]:
    """The held-out images of one model, those of all repeats together, and the threshold fixed on them."""
    held = [own for own in answered if is_held_out(own[0])]
    if context.held_out == HALF:
        held = [own for own in answered if is_inside(own[0]) and own[0].stimulus.name == UNDISTURBED]
    outliers = [own for own in answered if is_held_out(own[0], HELD_OUT_OUTLIERS)]
    failed = [case.failure for case, readouts in [*held, *outliers] if readouts is None]
    if failed:
        return None, Fixed(math.nan, reason=f"case failed: {failed[0]}")
    parts = [shown(readouts) for _, readouts in held if readouts]
    parts = [part.taken(half) for part in parts] if context.held_out == HALF else parts
    outside = [shown(readouts).scores for _, readouts in outliers if readouts]
    if not parts:
        return None, fix_threshold(settings, None)
    columns = zip(*((part.scores, part.wrong, part.groups) for part in parts), strict=True)
    together = Shown(*(np.concatenate(column) for column in columns))
    fixed = fix_threshold(settings, together, np.concatenate(outside) if outside else None)
    note = context.note if settings.threshold is None else ""
    return together, replace(fixed, images=len(parts[0].scores), reason="; ".join(filter(None, [fixed.reason, note])))
