"""The oracle: what each decision of a monitor comes to, in every view, from what the model answered and what was shown.

An image is rejected (the monitor raises an alarm, the answer is cancelled) or accepted. With the model's answer right
or wrong, and the image from inside (ID) or outside (OOD):

| image | answer | rejected: detection, system   | accepted: detection, system   |
|-------|--------|-------------------------------|-------------------------------|
| ID    | right  | false positive, false positive | true negative, true negative  |
| ID    | wrong  | false positive, true positive  | true negative, false negative |
| OOD   | right  | true positive, false positive  | false negative, true negative |
| OOD   | wrong  | true positive, true positive   | false negative, false negative |

Of a novel class no answer is right: a rejection is a true positive, an acceptance a false negative, in every view.

The view `model_scope` has the positives of `system`: its decisions are the same. What it adds are shares of all images
(safety gain, residual hazard, availability cost) and the area under risk and coverage.

Ferreira et al.: SAS deliverable D1.1 (2020), section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.protocols.monitoring.names import DETECTION, MODEL_SCOPE, SYSTEM, SYSTEM_LABEL_LOST

Flags = NDArray[np.bool_]
TRUE_POSITIVE, FALSE_POSITIVE = "true positive", "false positive"
TRUE_NEGATIVE, FALSE_NEGATIVE = "true negative", "false negative"


@dataclass(frozen=True)
class Truth:
    """What is known of the images of a stream: whether each is from outside, and whether the model's answer is wrong.

    ood          (N,), True for an image from outside
    wrong        (N,), True where the answer differs from the label, or where the image has no label of the source (a
                 novel class): then no answer is right
    label_lost   (N,), True where the image no longer shows what its label says (a black frame), or has none
    """

    ood: Flags
    wrong: Flags
    label_lost: Flags

    def __len__(self) -> int:
        return len(self.ood)

    def take(self, rows: Flags | NDArray[np.intp]) -> Truth:
        """What is known of some of the images."""
        return Truth(self.ood[rows], self.wrong[rows], self.label_lost[rows])

    def positive(self, view: str) -> Flags:
        """The images (N,) that a monitor should reject in a view.

        detection           images from outside
        system              images whose answer is wrong
        system_label_lost   the same, and images that lost their label: whatever is answered cannot be relied on
        model_scope         those of `system`: it differs in what is measured of them, not in what is positive

        >>> ood, wrong = np.array([False, True]), np.array([True, False])
        >>> truth = Truth(ood, wrong, label_lost=ood)
        >>> [truth.positive(view).tolist() for view in ("detection", "system", "system_label_lost")]
        [[False, True], [True, False], [True, True]]
        """
        by_view = {
            DETECTION: self.ood,
            SYSTEM: self.wrong,
            SYSTEM_LABEL_LOST: self.wrong | self.label_lost,
            MODEL_SCOPE: self.wrong,
        }
        return by_view[view]


def truth_of(
    label: NDArray[np.int64],
    prediction: NDArray[np.int64],
    ood: Flags,
    *,
    has_label: bool = True,
    keeps_label: bool = True,
) -> Truth:
    """What is known of images (N,) with labels and predictions (N,), of which `ood` (N,) are from outside.

    `has_label` says whether the images from outside have labels of the source at all (those of a novel class have
    none), `keeps_label` whether they still show what these say.

    >>> truth_of(np.array([3, 3]), np.array([3, 3]), np.array([False, True]), has_label=False).wrong.tolist()
    [False, True]
    """
    without_label = ood & (not has_label)
    return Truth(ood, (prediction != label) | without_label, ood & (not (has_label and keeps_label)))


def outcomes(truth: Truth, rejected: Flags, view: str) -> NDArray[np.str_]:
    """What the decision on each image (N,) comes to in a view: true positive, false positive, and so on.

    >>> truth = Truth(ood=np.array([True]), wrong=np.array([False]), label_lost=np.array([False]))
    >>> outcomes(truth, np.array([True]), "detection").tolist(), outcomes(truth, np.array([True]), "system").tolist()
    (['true positive'], ['false positive'])
    """
    positive = truth.positive(view)
    names = np.array([[TRUE_NEGATIVE, FALSE_POSITIVE], [FALSE_NEGATIVE, TRUE_POSITIVE]])
    return names[positive.astype(np.intp), rejected.astype(np.intp)]
