"""OD-test: how well a monitor rejects outliers of a kind that it was not calibrated with.

Three data sets at a time: the source (inside), D_v (outliers to calibrate with) and D_t (outliers to test with), over
all ordered pairs D_v != D_t. Everything here is computed from stored representations, never while a model runs.

Shafaei, Schmidt, Little: Does Your Model Know the Digit 6 Is Not a Cat? (2018), algorithms 1 and 2.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, foreign_code, is_the_machine_s
from roadworthy.metrics.ranking import Ranking
from roadworthy.monitors import Aim, CalibratedMonitor, FittedMonitor, TiesWarning
from roadworthy.protocols.od_test.metrics import AUPR_IN, AUPR_OUT, SEPARATION_METRICS
from roadworthy.protocols.od_test.names import ACCURACY, COST, DISTANCE, FAR, METRICS, NEAR
from roadworthy.statistics import Estimate, GroupBootstrap, proportion_interval
from roadworthy.statistics.estimates import CONFIDENCE, bootstrap_estimate, no_estimate
from roadworthy.statistics.ranked import ranked_estimate, ranked_figure

Floats = NDArray[np.float64]

NO_BOUNDS = "no bounds asked for: set resamples"
NO_VALUE = "no value could be computed"
NO_IMAGE_LEFT = "no image is left on one side"
LEARNS_FROM_OUTLIERS = "it learns from the validation outliers, so it has no threshold without them"


@dataclass(frozen=True)
class Sample:
    """A represented data set: rows (N, D) float32, and of each image its id, group and label (N,).

    `data` is the fingerprint of the images that were shown.
    """

    rows: NDArray[np.float32]
    ids: NDArray[np.str_]
    groups: NDArray[np.str_]
    labels: NDArray[np.int64]
    data: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Any) -> Sample:
        """Some of the images."""
        return Sample(self.rows[rows], self.ids[rows], self.groups[rows], self.labels[rows], self.data)


@dataclass(frozen=True)
class Represented:
    """What one monitor keeps of a source and of every outlier set it meets.

    source   names the model that the monitor is tested on;  domain: its source, where that has several models
    near     the outlier sets that are near;  overlap: labels of the source to leave out where it meets a set
    architecture    of the source's model;  undertrained: that model is below its floor
    fitted_on       the one D_v that the monitor was fitted for, where it learns from those
    asks_model      whether the monitor asks the model;  undertrained_fit: networks of its own are below their floor
    valid_note      what must be known of a threshold on the validation part
    monitor         or why it has no representation of the source;  outliers: a set, or why it has none of that
    """

    source: str
    label: str
    monitor: FittedMonitor | str
    valid: Sample
    test: Sample
    outliers: Mapping[str, Sample | str]
    near: frozenset[str] = frozenset()
    overlap: Mapping[str, frozenset[int]] = field(default_factory=dict)
    architecture: str = ""
    undertrained: bool = False
    fitted_on: str = ""
    domain: str | None = None
    asks_model: bool = True
    undertrained_fit: bool = False
    valid_note: str = ""

    @property
    def named(self) -> dict[str, Any]:
        """What every row of it says: source, monitor and what `POOLED_BY` names."""
        return {
            "source": self.source,
            "monitor": self.label,
            "domain": self.source if self.domain is None else self.domain,
            "asks_model": self.asks_model,
            "weak_network": self.undertrained,
            "weak_fit": self.undertrained_fit,
        }

    @property
    def valid_sets(self) -> list[str]:
        """The sets that the monitor can be calibrated with: all, or the one that it was fitted for."""
        return [name for name in self.outliers if self.fitted_on in ("", name)]

    def sides(self, inside: Sample, outlier_set: str, part: Sample | None = None) -> tuple[Sample, Sample] | str:
        """The images of a part of the source that may meet a set, and the set (or a `part` of its images).

        The first n of both, n the length of the shorter; or why not.
        """
        shared, outside = self.overlap.get(outlier_set), self.outliers[outlier_set] if part is None else part
        if isinstance(outside, str):
            return outside
        inside = inside.take(~np.isin(inside.labels, list(shared))) if shared else inside
        n = min(len(inside), len(outside))
        return inside.take(slice(n)), outside.take(slice(n))


def evaluate(
    represented: Represented, aim: Aim, *, resamples: int = 0, seed: int = 0, confidence: float = CONFIDENCE
) -> list[dict[str, Any]]:
    """Algorithm 1: a row per ordered pair D_v != D_t and metric.

    The monitor is calibrated on the validation part of the source against D_v, once for all D_t; accuracy is
    (1 - prior) P(accepted | test part) + prior P(rejected | D_t). Both sides are cut to the shorter one's length,
    their first n images. Where the monitor cannot be calibrated or cannot score, its rows have no value and say why.
    """
    return [
        row
        for valid_set in represented.valid_sets
        for row in _tested(represented, aim, valid_set, resamples, seed, confidence)
    ]


def evaluate_unsupervised(
    represented: Represented, aim: Aim, *, resamples: int = 0, seed: int = 0
) -> list[dict[str, Any]]:
    """Algorithm 2: a row per D_t and metric; the threshold rejects a share of the source's validation part alone."""
    return [*_tested(represented, aim, "", resamples, seed)]


def threshold_row(represented: Represented, aim: Aim) -> dict[str, Any]:
    """What the threshold of algorithm 2 rejects of the source's validation part, beside the share it was asked for.

    `tied` is true where images of equal score keep it from rejecting that share; `reason` says so in a sentence.
    """
    where = {"source": represented.source, "monitor": represented.label, "asked": aim.rejected}
    monitor = calibrate(represented, aim)
    if isinstance(monitor, str):
        return {**where, "achieved": math.nan, "images": 0, "tied": False, "reason": monitor}
    share = monitor.rejected
    assert share is not None
    tied = f"{represented.label} {share.sentence()}" if share.tied else ""
    reason = "; ".join(filter(None, [tied, represented.valid_note]))
    return {**where, "achieved": share.achieved, "images": share.images, "tied": share.tied, "reason": reason}


def _tested(
    represented: Represented, aim: Aim, valid_set: str, resamples: int, seed: int, confidence: float = CONFIDENCE
) -> Iterator[dict[str, Any]]:
    """A row per metric and test set but D_v, which is empty where there is none."""
    monitor = calibrate(represented, aim, valid_set)
    for test_set in represented.outliers:
        if test_set == valid_set:
            continue
        where = {
            **represented.named,
            "architecture": represented.architecture,
            "undertrained": represented.undertrained or represented.undertrained_fit,
            "valid_set": valid_set,
            "test_set": test_set,
            DISTANCE: NEAR if test_set in represented.near else FAR,
        }
        outcome = decide(represented, monitor, test_set)
        if isinstance(outcome, str):
            yield from without_value([where], outcome)
            continue
        shares = _right_shares(outcome, confidence)
        wrong = [replace(share, value=1 - share.value, lo=1 - share.hi, hi=1 - share.lo) for share in shares]
        estimates = {
            ACCURACY: _weighted(shares, (1 - aim.prior, aim.prior)),
            COST: _weighted(wrong, (1 - aim.prior, aim.prior * aim.cost)),
            **_separated(outcome, resamples, seed, confidence),
        }
        counts = len(outcome.groups), len(np.unique(outcome.groups))
        yield from (estimate.over(*counts).row(where, metric) for metric, estimate in estimates.items())


def without_value(triples: Iterable[Mapping[str, Any]], reason: str) -> list[dict[str, Any]]:
    """A row per triple and metric where there is nothing to be measured."""
    missing = no_estimate(reason)
    return [missing.row(where, metric) for where in triples for metric in METRICS]


def calibrate(represented: Represented, aim: Aim, valid_set: str = "") -> CalibratedMonitor | str:
    """The monitor calibrated against D_v, or on images inside alone; or why it cannot be.

    Ties are told by `threshold_row`.
    """
    if represented.fitted_on and not valid_set:
        return LEARNS_FROM_OUTLIERS
    sides = represented.sides(represented.valid, valid_set) if valid_set else (represented.valid,)
    return calibrate_on(represented, aim, sides)


def calibrate_on(represented: Represented, aim: Aim, sides: Sequence[Sample] | str) -> CalibratedMonitor | str:
    """The monitor calibrated on these images of the source and of D_v (if any); or why it cannot be."""
    monitor = represented.monitor
    if isinstance(monitor, str) or isinstance(sides, str):
        return monitor if isinstance(monitor, str) else str(sides)
    try:
        with foreign_code("", is_the_machine_s), warnings.catch_warnings():
            warnings.simplefilter("ignore", TiesWarning)
            return monitor.calibrate(*(side.rows for side in sides), **asdict(aim))
    except (InputError, ModelError) as error:
        return f"not calibrated: {error}"


@dataclass(frozen=True)
class Decisions:
    """The images of a test set that are inside and those that are outside, n each, with their scores (n,).

    `right` says of each side which images were decided right: accepted inside, rejected outside.
    """

    sides: tuple[Sample, Sample]
    scores: tuple[NDArray[np.float64], NDArray[np.float64]]
    right: tuple[NDArray[np.bool_], NDArray[np.bool_]]

    @cached_property
    def groups(self) -> NDArray[np.str_]:
        """The object of every image, (2n,): those inside and those outside share none."""
        inside, outside = self.sides
        return np.concatenate([np.char.add("in/", inside.groups), np.char.add("out/", outside.groups)])


def decide(
    represented: Represented, monitor: CalibratedMonitor | str, test_set: str, part: Sample | None = None
) -> Decisions | str:
    """What a calibrated monitor makes of a test set (or a `part` of it), or why it says nothing.

    That it was not calibrated is such a reason too.
    """
    if isinstance(monitor, str):
        return monitor
    sides = represented.sides(represented.test, test_set, part)
    if isinstance(sides, str):
        return sides
    if not len(sides[0]):
        return NO_IMAGE_LEFT
    try:
        with foreign_code("", is_the_machine_s):
            scores = monitor.score(sides[0].rows), monitor.score(sides[1].rows)
    except (InputError, ModelError) as error:
        return f"not scored: {error}"
    return Decisions(sides, scores, (scores[0] >= monitor.threshold, scores[1] < monitor.threshold))


def accuracy(decisions: Decisions, aim: Aim, confidence: float = CONFIDENCE) -> Estimate:
    """(1 - prior) P(accepted | inside) + prior P(rejected | outside), bounded by objects."""
    share = _weighted(_right_shares(decisions, confidence), (1 - aim.prior, aim.prior))
    return share.over(len(decisions.groups), len(np.unique(decisions.groups)))


def _right_shares(decisions: Decisions, confidence: float) -> list[Estimate]:
    """The share of right decisions on either side."""
    sides = zip(decisions.right, decisions.sides, strict=True)
    return [proportion_interval(right, side.groups, confidence) for right, side in sides]


def _weighted(shares: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """A weighted sum of the shares of independent sides, bounded by the square-and-add rule.

    With shares p_i in [l_i, u_i]: lo = p - sqrt(sum w_i^2 (p_i - l_i)^2), hi likewise (Zou & Donner 2008).
    """
    sides = list(zip(shares, weights, strict=True))
    value = sum(weight * share.value for share, weight in sides)
    below = math.hypot(*(weight * (share.value - share.lo) for share, weight in sides))
    above = math.hypot(*(weight * (share.hi - share.value) for share, weight in sides))
    return Estimate(value, value - below, value + above, method="square and add")


def _separated(decisions: Decisions, resamples: int, seed: int, confidence: float) -> dict[str, Estimate]:
    """How well the score tells the sides apart, whatever the threshold."""
    scores = np.concatenate(decisions.scores)
    positive = np.arange(len(scores)) < len(decisions.sides[0])
    ranking = Ranking(np.asarray(scores, np.float64), positive)
    whole, drawn = ranking.separation(), dict[str, list[Floats]]()
    bootstrap = GroupBootstrap(decisions.groups, resamples=resamples, seed=seed) if resamples else None
    for weights in bootstrap.chunks() if bootstrap else ():
        for name, own in ((AUPR_IN.name, ranking), (AUPR_OUT.name, ranking.reversed)):
            drawn.setdefault(name, []).append(own.average_precision(weights))
    estimates = {}
    for metric in SEPARATION_METRICS:
        name, value = metric.name, float(getattr(whole, metric.name)[0])
        if bootstrap is None or math.isnan(value):
            estimates[name] = Estimate(value, reason=NO_BOUNDS if bootstrap is None else "no value")
        elif metric.ranked:
            figure = ranked_figure(metric.ranked(ranking), bootstrap.index, bootstrap.groups)
            estimates[name] = replace(ranked_estimate([[figure]], (), confidence), groups=bootstrap.groups)
        else:
            estimates[name] = bootstrap_estimate(value, np.concatenate(drawn[name]), bootstrap.groups, confidence)
    return estimates
