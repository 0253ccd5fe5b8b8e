"""Which objects decide how well outliers are told from test images: those that lose most pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.engine.readouts import Readouts
from roadworthy.metrics.ranking import binary_auroc
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.deciding import class_words, objects_in_words, picture_name, weighing_objects, weight_words
from roadworthy.statistics.deciding import DIGITS, Floats, fewest, heaviest_first, lost_pairs
from roadworthy.verdict import Criterion, Why
from roadworthy.verdict.why import OBJECTS_SHOWN, DecidingObject, no_single_images

if TYPE_CHECKING:
    from roadworthy.protocols.ood.tables import Mixture

OUTLIERS = "outliers"


def decide(
    pairs: Sequence[tuple[StoredCase, StoredCase]],
    mix: Callable[[Readouts, Readouts], Mixture],
    class_names: Sequence[str],
    criterion: Criterion,
) -> Why:
    """What decides a criterion on the AUROC of a set: the cases of test images and of outliers, repeat by repeat.

    The contribution of an object is the share of pairs that its images lose; all contributions add up to 1 - AUROC.
    """
    if criterion.metric != "auroc" or criterion.sign < 0:
        return no_single_images(f"{criterion.metric} is a figure of all scores together")
    whole = [pair for pair in pairs if not any(case.failure for case in pair)]
    sides = [(one, other, one.load(), other.load()) for one, other in whole]
    mixtures = [mix(inside, outside) for _, _, inside, outside in sides]
    names = sorted({name for mixture in mixtures for name in mixture.groups})
    index = {name: number for number, name in enumerate(names)}
    objects = [np.array([index[name] for name in mixture.groups], np.int64) for mixture in mixtures]
    lost = [lost_pairs(mixture.scores, mixture.inside) for mixture in mixtures]
    shares = [np.bincount(own, part, len(names)) for own, part in zip(objects, lost, strict=True)]
    contributions = np.asarray(np.mean(shares, axis=0), np.float64)
    order = heaviest_first(contributions)
    weighing = weighing_objects(contributions)
    classes = class_words(_classes(names, mixtures, sides, class_names), weighing, contributions)
    chosen = []
    for number in weighing[:OBJECTS_SHOWN]:
        rows = [np.flatnonzero(own == number) for own in objects]
        heaviest = [float(part[own].max(initial=-1)) for part, own in zip(lost, rows, strict=True)]
        repeat = heaviest.index(max(heaviest))
        position = min(rows[repeat], key=lambda row: (-round(float(lost[repeat][row]), DIGITS), row))
        scores = np.concatenate([mixture.shown[own] for mixture, own in zip(mixtures, rows, strict=True)])
        chosen.append(
            DecidingObject(
                group=names[number],
                images=max(len(own) for own in rows),
                value=float(scores.mean()),
                contribution=float(contributions[number]),
                **_image(mixtures[repeat], int(position), sides[repeat], class_names),
            )
        )
    sentences = [
        weight_words(contributions, weighing),
        f"What these objects are, the heaviest first: {classes}." if classes else "",
        _counterfactual(mixtures, objects, order, criterion),
    ]
    return Why(tuple(filter(None, sentences)), tuple(chosen), len(weighing), classes)


_Side = tuple[StoredCase, StoredCase, Readouts, Readouts]


def _image(mixture: Mixture, position: int, side: _Side, class_names: Sequence[str]) -> dict[str, Any]:
    """The image at a position of a mixture, as the table describes it."""
    inside = bool(mixture.inside[position])
    case, readouts = (side[0], side[2]) if inside else (side[1], side[3])
    row, answers = mixture.rows[position], readouts.answers
    return {
        "id": readouts.ids[row],
        "label": class_names[int(answers.label[row])] if inside else f"outlier ({side[1].labels['ood_set']})",
        "prediction": class_names[int(answers.prediction[row])],
        "confidence": float(answers.confidence[row]),
        "model": case.system,
        "case": case.hash,
        "row": row,
        "picture": picture_name(case, row),
    }


def _classes(
    names: Sequence[str], mixtures: Sequence[Mixture], sides: Sequence[_Side], class_names: Sequence[str]
) -> list[str]:
    """The class of every object, by its first image; all outliers are one."""
    known: dict[str, str] = {}
    for mixture, (_, _, inside, _) in zip(mixtures, sides, strict=True):
        for name, is_inside, row in zip(mixture.groups, mixture.inside, mixture.rows, strict=True):
            known.setdefault(name, class_names[int(inside.answers.label[row])] if is_inside else OUTLIERS)
    return [known[name] for name in names]


def _counterfactual(
    mixtures: Sequence[Mixture],
    objects: Sequence[NDArray[np.int64]],
    order: NDArray[np.int64],
    criterion: Criterion,
) -> str:
    """How few objects would have to lose no pair for the value to reach the threshold."""

    def value(first: int) -> float:
        chosen = np.zeros(len(order), np.bool_)
        chosen[order[:first]] = True
        areas: list[float] = []
        for mixture, own in zip(mixtures, objects, strict=True):
            safe: Floats = np.where(mixture.inside, np.inf, -np.inf)
            areas.append(float(binary_auroc(np.where(chosen[own], safe, mixture.scores), mixture.inside)))
        return float(np.mean(areas))

    number = fewest(len(order), lambda first: value(first) >= criterion.threshold - 1e-12)
    if not number:
        return "The value reaches the threshold; more objects would narrow its bounds."
    first = f"first {number}" if number > 1 else "first"
    return (
        f"Had the {first} of {objects_in_words(len(order))} lost no pair, the value would reach "
        f"{criterion.threshold:g} (its bounds are not computed for that)."
    )
