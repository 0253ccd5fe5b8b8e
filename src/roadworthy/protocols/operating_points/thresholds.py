"""Fixing a threshold on held-out images: a share to reject, the least expected cost, or the threshold itself.

Higher scores are more in-distribution; what lies below a threshold is rejected, what equals it is accepted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from roadworthy.core.types import LOG_ODDS
from roadworthy.monitors.id_threshold import SHARE, IdRule, id_threshold
from roadworthy.protocols.operating_points.settings import Cost, Settings

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Shown:
    """Images of one condition: scores, whether the answer is wrong, and the objects, each (n,)."""

    scores: Floats
    wrong: Flags
    groups: NDArray[np.str_]

    def taken(self, rows: NDArray[np.intp]) -> Shown:
        """Some of the images."""
        return Shown(self.scores[rows], self.wrong[rows], self.groups[rows])

    def decided(self, threshold: float) -> Decided:
        """What a threshold does with them."""
        return Decided(self.scores >= threshold, self.wrong, self.groups)


@dataclass(frozen=True)
class Decided:
    """Images at a threshold: whether each is accepted, whether its answer is wrong, and its object, each (n,)."""

    accepted: Flags
    wrong: Flags
    groups: NDArray[np.str_]


@dataclass(frozen=True)
class Fixed:
    """A threshold, and what it rejects of the held-out images it was fixed on.

    rejected, cost   the share of these images, and the expected cost per image; NaN where there is none
    reason           why there is no threshold, or what must be known of it
    """

    threshold: float
    images: int = 0
    groups: int = 0
    rejected: float = math.nan
    cost: float = math.nan
    reason: str = ""


def fix_threshold(settings: Settings, held_out: Shown | None, outside: Floats | None = None) -> Fixed:
    """The threshold by the rule of a study; `outside` (m,) are scores of held-out outliers, for a cost with outliers.

    >>> held_out = Shown(np.linspace(0.5, 0.99, 50), np.zeros(50, bool), np.arange(50).astype(str))
    >>> fixed = fix_threshold(Settings(reject=0.1), held_out)
    >>> round(fixed.threshold, 4), fixed.rejected
    (0.55, 0.1)
    """
    if settings.threshold is not None and held_out is None:
        return Fixed(settings.threshold)
    if held_out is None or not len(held_out.scores):
        return Fixed(math.nan, reason="there are no held-out images to fix a threshold on")
    scores, groups = held_out.scores, len(np.unique(held_out.groups))
    reason, cost = "", math.nan
    if settings.threshold is not None:
        threshold = settings.threshold
    elif settings.cost is not None:
        threshold, cost = cheapest_threshold(scores, held_out.wrong, settings.cost, outside)
        if math.isinf(threshold):
            reason = "every held-out image is rejected: accepting any of them costs more than it saves"
    else:
        assert settings.reject is not None
        by_share = id_threshold(scores, held_out.groups, IdRule(SHARE, rejected=settings.reject))
        threshold, reason = by_share.threshold, by_share.reason
    rejected = float((scores < threshold).mean())
    return Fixed(threshold, len(scores), groups, rejected, cost, reason)


def as_probability(score: str, threshold: float) -> float:
    """A threshold as a largest class probability; NaN where the score is neither that nor its log-odds.

    >>> as_probability("log_odds", 0.0), as_probability("confidence", 0.9), as_probability("certainty", 0.9)
    (0.5, 0.9, nan)
    """
    if score == "confidence":
        return threshold
    return float(expit(threshold)) if score == LOG_ODDS else math.nan


def cheapest_threshold(
    scores: ArrayLike, wrong: ArrayLike, cost: Cost, outside: ArrayLike | None = None
) -> tuple[float, float]:
    """The threshold t of the least expected cost per image on held-out images, and that cost.

        (1 - s) (c_w P(wrong, score >= t) + c_r P(right, score < t)) + s c_o P(outlier score >= t)

    scores, wrong (n,) of in-distribution images;  outside (m,) scores of outliers, whose share of all images is s

    Every way to cut the scores is tried by one sort: below each distinct score, and above all (inf, which rejects
    everything). Of equally cheap ones the highest is taken, which rejects most.

    >>> cheapest_threshold([0.9, 0.8, 0.7, 0.6], [False, True, False, True], Cost(accepted_wrong=10, rejected_right=1))
    (0.9, 0.25)
    """
    inside, mistakes = np.asarray(scores, np.float64), np.asarray(wrong, bool)
    outliers = np.zeros(0) if outside is None else np.asarray(outside, np.float64)
    values, index = np.unique(np.concatenate([inside, outliers]), return_inverse=True)
    own, other = index[: len(inside)], index[len(inside) :]

    def below(rows: NDArray[np.intp], of_rows: Flags | None = None) -> Floats:
        """How many of these lie below each cut, (cuts,)."""
        counts = np.bincount(rows if of_rows is None else rows[of_rows], minlength=len(values))
        return np.append(0, np.cumsum(counts)).astype(np.float64)

    rejected_wrong, rejected_right = below(own, mistakes), below(own, ~mistakes)
    share = cost.share_outside
    expected = cost.accepted_wrong * (mistakes.sum() - rejected_wrong) + cost.rejected_right * rejected_right
    expected = (1 - share) * expected / len(inside)
    if share:
        expected = expected + share * (cost.accepted_outlier or 0.0) * (1 - below(other) / len(outliers))
    cut = int(np.flatnonzero(expected <= expected.min() + 1e-12 * expected.max())[-1])
    return (float(values[cut]) if cut < len(values) else math.inf), float(expected[cut])
