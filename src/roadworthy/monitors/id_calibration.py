"""Calibration on in-distribution images alone: what a monitor learns from them, and its threshold by an `IdRule`.

A promise of rule conformal holds for scores that were fixed before the threshold's own images were seen. Where a
monitor learns anything from validation images (`tune`), one half of their objects teaches it, the other half gives the
threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset
from roadworthy.data.base import OpenedDataset
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import checked_arrays, checked_rows
from roadworthy.monitors.fitted import FittedMonitor
from roadworthy.monitors.id_threshold import OWN, IdRule, IdThreshold, id_threshold
from roadworthy.monitors.learned import Learned, Rep
from roadworthy.monitors.threshold import Aim


@dataclass(frozen=True)
class IdCalibration:
    """What a fitted monitor has from in-distribution validation images.

    rule       what `tune` learned;  threshold: on the scores by it
    found_on   the validation images (m,), as indices, that the threshold was found on: all, or those of one half of the
               objects
    """

    rule: Learned
    threshold: IdThreshold
    found_on: NDArray[np.intp]


def calibrate_inside(
    fitted: FittedMonitor,
    rows: Rep,
    groups: ArrayLike,
    rule: IdRule,
    *,
    predictions: ArrayLike | None = None,
    seed: int = 0,
    note: str = "",
) -> IdCalibration:
    """Tune a monitor on representations (n, D) of in-distribution images, and find its threshold by a rule.

    groups       the objects of the images (n,);  predictions: predicted classes (n,), for a threshold per class
    seed         of the halves and of the draw of one image per object, both for rule conformal
    note         what must be known of the images, which becomes part of the threshold's reason: see `note_of_mix`

    Rule conformal with a monitor that learns something in `tune` halves the objects: see `object_halves`. The reason of
    the threshold says so.

    >>> from roadworthy.monitors import make_monitor
    >>> fitted = FittedMonitor(make_monitor("combined", of=("msp",)), Learned(), ())
    >>> rows = np.column_stack([np.ones(200), np.arange(200.0)]).astype(np.float32)
    >>> threshold = calibrate_inside(fitted, rows, np.arange(200), IdRule("conformal")).threshold
    >>> threshold.objects, threshold.reason
    (100, 'the monitor learns from 100 of 200 validation objects, and the threshold is found on the others')
    """
    monitor = fitted.monitor
    check_own_share(monitor, rule)
    inside, objects = checked_rows(monitor, rows, "of in-distribution images"), np.asarray(groups)
    if not len(inside):
        raise InputError(f"monitor {monitor.name} cannot be calibrated without in-distribution images: give some")
    if objects.shape != (len(inside),):
        raise InputError(f"there must be an object for each of {len(inside)} images, not {objects.shape}")
    labels = None if predictions is None else np.asarray(predictions)
    everything = np.arange(len(inside))
    taught_by, found_on = object_halves(objects, seed) if rule.promises else (everything, everything)
    tuned = _tuned(fitted, inside[taught_by] if len(taught_by) else inside, rule)
    if not tuned:
        found_on = everything
    elif not len(taught_by):
        raise InputError(
            f"monitor {monitor.name} learns from validation images, so that rule {rule.rule} needs two objects or more"
        )
    threshold = id_threshold(
        fitted.scores(inside[found_on], tuned),
        objects[found_on],
        rule,
        predictions=None if labels is None else labels[found_on],
        own=monitor.own_threshold,
        seed=seed,
    )
    learned = ""
    if len(found_on) < len(inside):
        number = len(np.unique(objects))
        learned = (
            f"the monitor learns from {number - threshold.objects:,} of {number:,} validation objects, and the "
            "threshold is found on the others"
        )
    reason = "; ".join(filter(None, [threshold.reason, learned, note]))
    return IdCalibration(tuned, replace(threshold, reason=reason), found_on)


def note_of_mix(data: Dataset) -> str:
    """What must be known of a threshold on images that a limit took class by class; empty of others.

    >>> from roadworthy.data import BuiltinDataset, open_dataset
    >>> note_of_mix(open_dataset({"builtin": "signs", "n": 140, "limit": 70}))
    'a limit took as many images of each class as can be: the share rejected is that of this mix of classes'
    >>> note_of_mix(BuiltinDataset("signs", n=70))
    ''
    """
    if not isinstance(data, OpenedDataset) or not data.table.over_classes:
        return ""
    return "a limit took as many images of each class as can be: the share rejected is that of this mix of classes"


def _tuned(fitted: FittedMonitor, rows: Rep, rule: IdRule) -> Learned:
    monitor = fitted.monitor
    return checked_arrays(monitor, monitor.tune(rows, None, Aim(rule.rejected), fitted.state), "tune")


def object_halves(groups: ArrayLike, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The images, as indices, of two halves of the objects (n,): no object is in both, an odd one is in the second.

    An object's place depends on the seed, its name and the names of the others, never on the order of the images.

    >>> first, second = object_halves(["a", "a", "b", "c"])
    >>> sorted([*first.tolist(), *second.tolist()])
    [0, 1, 2, 3]
    """
    names, inverse = np.unique(np.asarray(groups), return_inverse=True)
    streams = Streams("half of the validation objects", seed)
    drawn = np.array([rng.random() for rng in streams.each(map(str, names.tolist()))])
    is_first = np.zeros(len(names), np.bool_)
    is_first[np.argsort(drawn, kind="stable")[: len(names) // 2]] = True
    return np.flatnonzero(is_first[inverse]), np.flatnonzero(~is_first[inverse])


def check_own_share(monitor: Monitor, rule: IdRule) -> None:
    """Refuse a share to reject beside rule own, for a monitor that does not use it."""
    if rule.rule == OWN and rule.rejected != IdRule.rejected and not monitor.tunes_to_share:
        raise InputError(
            f"monitor {monitor.name} does not use `rejected` with rule own: leave it out, or use rule share"
        )
