"""Two runs of OD-test side by side: does a monitor decide better than before, on the same images?

For every ordered pair D_v != D_t, what the monitor of either run decides of each image of D_t and of the source, after
its calibration against D_v, is paired: an image inside is right where it is accepted, an outlier where it is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from roadworthy.monitors import Aim
from roadworthy.protocols.changes import OTHER_IMAGES, by_mcnemar, not_paired
from roadworthy.protocols.od_test.evaluation import Decisions, Represented, Sample, calibrate, decide
from roadworthy.protocols.od_test.names import ACCURACY
from roadworthy.statistics.estimates import CONFIDENCE
from roadworthy.statistics.paired import PairedChange

PAIRED_PRIOR = 0.5
"""With this prior accuracy is the share of right decisions, every image counting alike: what McNemar's test is for."""


def compare_monitors(
    before: Represented,
    after: Represented,
    aim: Aim,
    names: Sequence[object] = ("the baseline", "the model"),
    confidence: float = CONFIDENCE,
) -> Iterator[PairedChange]:
    """The accuracy of one monitor on one source in two runs, by McNemar's test: a row per ordered pair D_v != D_t.

    `names` are those of the two systems, for reasons; `confidence` is that of the interval. Where one of them was not
    shown a set, was calibrated or tested with other images, or says nothing, the row has a reason and no p value; so it
    does with a prior other than 0.5.
    """
    pair = before, after
    if (before.source, before.label) != (after.source, after.label):
        labels = " and ".join(f"{one.label} on {one.source}" for one in pair)
        raise ValueError(f"only one monitor on one source can be compared between runs, not {labels}")
    shown = [dict.fromkeys(one.outliers) for one in pair]
    sets = dict.fromkeys([*before.outliers, *after.outliers])
    for valid_set in [before.fitted_on] if before.fitted_on else sets:
        missing = not_paired(names, shown, valid_set)
        monitors = [] if missing else [calibrate(one, aim, valid_set) for one in pair]
        for test_set in sets:
            if test_set != valid_set:
                change = PairedChange(f"{before.label}: {valid_set} -> {test_set}", 0, ACCURACY, confidence=confidence)
                where = {"valid_set": valid_set, "test_set": test_set, "monitor": before.label}
                change = replace(change, columns=where)
                why = missing or not_paired(names, shown, test_set)
                if why:
                    yield replace(change, reason=why)
                else:
                    decisions = [decide(*own, test_set) for own in zip(pair, monitors, strict=True)]
                    met = [one.sides(one.valid, valid_set) for one in pair]
                    yield _changed(change, decisions, [sides for sides in met if not isinstance(sides, str)], aim)


def _changed(
    change: PairedChange, decisions: Sequence[Decisions | str], calibrated: Sequence[Sequence[Sample]], aim: Aim
) -> PairedChange:
    """What both monitors decided, compared; `calibrated` are the images that each was calibrated with."""
    one, other = decisions
    if isinstance(one, str) or isinstance(other, str):
        return replace(change, reason=one if isinstance(one, str) else str(other))
    before, after = ((1 - aim.prior) * d.right[0].mean() + aim.prior * d.right[1].mean() for d in (one, other))
    change = replace(change, before=float(before), after=float(after))
    change = replace(change, n=len(one.groups), groups=len(np.unique(one.groups)))
    if not _same_images(one.sides, other.sides):
        return replace(change, reason=OTHER_IMAGES)
    if not _same_images(*calibrated):
        return replace(change, reason=f"calibrated with {OTHER_IMAGES}")
    if aim.prior != PAIRED_PRIOR:
        why = f"decisions are paired with a prior of {PAIRED_PRIOR} only, not {aim.prior:g}"
        return replace(change, change=change.after - change.before, reason=why)
    return by_mcnemar(change, np.concatenate(one.right), np.concatenate(other.right), one.groups)


def _same_images(one: Sequence[Sample], other: Sequence[Sample]) -> bool:
    """Whether both were shown the same images of the same objects; ids alone say nothing of pixels."""
    return all(
        a.data == b.data and np.array_equal(a.ids, b.ids) and np.array_equal(a.groups, b.groups)
        for a, b in zip(one, other, strict=True)
    )
