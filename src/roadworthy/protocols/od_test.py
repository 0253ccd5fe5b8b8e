"""OD-test: how well a monitor rejects outliers of a kind that it was not calibrated with.

Three data sets at a time: the source (inside), D_v (outliers to calibrate with) and D_t (outliers to test with), over
all ordered pairs D_v != D_t. Everything here is computed from stored representations, never while a model runs.

Shafaei, Schmidt, Little: Does Your Model Know the Digit 6 Is Not a Cat? (2018), algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from scipy.special import stdtrit

from roadworthy.core.errors import InputError
from roadworthy.engine.representations import Sample
from roadworthy.metrics.ranking import separation
from roadworthy.monitors import Aim, Monitor
from roadworthy.protocols.estimates import CONFIDENCE, Estimate, bootstrap_bounds
from roadworthy.statistics import GroupBootstrap, Interval, proportion_interval

NAME = "od_test"
ACCURACY, COST = "accuracy", "expected_cost"
SEPARATION = ("auroc", "aupr_in", "aupr_out", "fpr95")
METRICS = (ACCURACY, COST, *SEPARATION)
ALL, NEAR, FAR = "all", "near", "far"
NO_BOUNDS = "no bounds asked for: set resamples"

Spec = str | dict[str, Any]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MonitorChoice(_Section):
    """A monitor by name, with settings of its own where the defaults do not fit."""

    name: str
    parameters: dict[str, Any] = {}


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Overlap(_Section):
    """Classes that a source and a set of outliers share: left out of the set, or of the source where they meet."""

    outliers: list[str] = []
    source: list[str] = []


class SourceSettings(_Section):
    """A source: the data inside, and the model under test.

    model     as in a study; a `reference` one is trained on `train`
    data      held-out images, split by group into validation and test; into three parts where there is no `train`
    train     what monitors learn from, and reference networks
    size      of its images and of the outliers it meets;  mirror: instead of the study's
    near      names of outlier sets that are near to this source; the others are far
    exclude   names of outlier sets that it never meets;  overlap: shared classes by outlier set
    leave_out names of monitors that its model cannot serve
    """

    model: Spec
    data: Spec
    train: Spec | None = None
    size: int | str | list[int] | None = None
    mirror: bool | None = None
    near: list[str] = []
    exclude: list[str] = []
    overlap: dict[str, Overlap] = {}
    leave_out: list[str] = []


class Settings(_Section):
    """What a study says under `protocols: od_test:`.

    outliers   data sets by name, or makers of noise (`uniform_noise`); a source may be named too
    limit      most images per set and side
    prior, cost, threshold, rejected: as in `Monitor.calibrate`;  mirror: add a mirrored copy of every image
    resamples  of the bootstrap that bounds AUROC, AUPR and FPR95 of each triple; 0 gives none
    """

    sources: Annotated[dict[str, SourceSettings], Field(min_length=1)]
    outliers: dict[str, Spec]
    monitors: Annotated[list[Annotated[MonitorChoice, BeforeValidator(_named)]], Field(min_length=1)]
    limit: Annotated[int, Field(ge=2)] | None = None
    mirror: bool = False
    prior: Annotated[float, Field(gt=0, lt=1)] = 0.5
    cost: Annotated[float, Field(gt=0)] = 1.0
    threshold: Literal["exact", "hinge"] = "exact"
    rejected: Annotated[float, Field(ge=0, lt=1)] = 0.05
    resamples: Annotated[int, Field(ge=0)] = 0

    @field_validator("resamples")
    @classmethod
    def _enough(cls, value: int) -> int:
        if 0 < value < 100:
            raise ValueError(f"a bootstrap takes at least 100 resamples, not {value}; 0 leaves it out")
        return value

    @property
    def aim(self) -> Aim:
        """What every calibration aims at."""
        return Aim(self.rejected, self.prior, self.cost, self.threshold)


@dataclass(frozen=True)
class Represented:
    """What one monitor keeps of a source and of every outlier set it meets.

    near     the outlier sets that are near;  overlap: labels of the source to leave out where it meets a set
    """

    source: str
    label: str
    monitor: Monitor
    valid: Sample
    test: Sample
    outliers: Mapping[str, Sample]
    near: frozenset[str] = frozenset()
    overlap: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def inside(self, sample: Sample, outlier_set: str) -> Sample:
        """The images of the source that may meet a set."""
        shared = self.overlap.get(outlier_set)
        return sample.take(~np.isin(sample.labels, list(shared))) if shared else sample


def evaluate(represented: Represented, aim: Aim, *, resamples: int = 0, seed: int = 0) -> list[dict[str, Any]]:
    """Algorithm 1: a row per ordered pair D_v != D_t and metric.

    The monitor is calibrated on the validation part of the source against D_v, once for all D_t; accuracy is
    (1 - prior) P(accepted | test part) + prior P(rejected | D_t). Both sides are cut to the shorter one's length,
    their first n images.
    """
    rows = []
    for valid_set, outside in represented.outliers.items():
        inside, outliers = balanced(represented.inside(represented.valid, valid_set), outside)
        _calibrate(represented.monitor, aim, inside.rows, outliers.rows)
        tested = [name for name in represented.outliers if name != valid_set]
        for test_set, estimates, n, groups in _tested(represented, tested, aim, resamples, seed):
            where = _where(represented, test_set) | {"valid_set": valid_set}
            rows += [estimate.row(where, metric, n, groups) for metric, estimate in estimates.items()]
    return rows


def evaluate_unsupervised(
    represented: Represented, aim: Aim, *, resamples: int = 0, seed: int = 0
) -> list[dict[str, Any]]:
    """Algorithm 2: a row per D_t and metric; the threshold rejects a share of the source's validation part alone."""
    _calibrate(represented.monitor, aim, represented.valid.rows, None)
    return [
        estimate.row(_where(represented, test_set), metric, n, groups)
        for test_set, estimates, n, groups in _tested(represented, [*represented.outliers], aim, resamples, seed)
        for metric, estimate in estimates.items()
    ]


def balanced(inside: Sample, outside: Sample) -> tuple[Sample, Sample]:
    """Both cut to the length of the shorter: their first images."""
    n = min(len(inside), len(outside))
    return inside.take(slice(n)), outside.take(slice(n))


def _where(represented: Represented, test_set: str) -> dict[str, Any]:
    return {
        "source": represented.source,
        "valid_set": "",
        "test_set": test_set,
        "ood": NEAR if test_set in represented.near else FAR,
        "monitor": represented.label,
    }


def _calibrate(monitor: Monitor, aim: Aim, inside: NDArray[Any], outside: NDArray[Any] | None) -> None:
    monitor.calibrate(inside, outside, rejected=aim.rejected, prior=aim.prior, cost=aim.cost, threshold=aim.threshold)


def _tested(
    represented: Represented, test_sets: Sequence[str], aim: Aim, resamples: int, seed: int
) -> Iterator[tuple[str, dict[str, Estimate], int, int]]:
    """The estimates of a calibrated monitor on each test set, with the numbers of images and of objects."""
    for test_set in test_sets:
        inside, outside = balanced(represented.inside(represented.test, test_set), represented.outliers[test_set])
        scores = [represented.monitor.score(side.rows) for side in (inside, outside)]
        groups = np.concatenate([_prefixed("in", inside.groups), _prefixed("out", outside.groups)])
        accepted, rejected = (scores[0] >= represented.monitor.threshold), (scores[1] < represented.monitor.threshold)
        shares = proportion_interval(accepted, inside.groups), proportion_interval(rejected, outside.groups)
        estimates = {
            ACCURACY: _weighted(shares, (1 - aim.prior, aim.prior)),
            COST: _weighted(tuple(map(_complement, shares)), (1 - aim.prior, aim.prior * aim.cost)),
            **_separated(scores[0], scores[1], groups, resamples, seed),
        }
        yield test_set, estimates, len(groups), len(np.unique(groups))


def _complement(share: Interval) -> Interval:
    return replace(share, value=1 - share.value, lo=1 - share.hi, hi=1 - share.lo)


def _weighted(shares: Sequence[Interval], weights: Sequence[float]) -> Estimate:
    """A weighted sum of the shares of independent sides, bounded by the square-and-add rule.

    With shares p_i in [l_i, u_i]: lo = p - sqrt(sum w_i^2 (p_i - l_i)^2), hi likewise (Zou & Donner 2008).
    """
    sides = list(zip(shares, weights, strict=True))
    value = sum(weight * share.value for share, weight in sides)
    below = math.hypot(*(weight * (share.value - share.lo) for share, weight in sides))
    above = math.hypot(*(weight * (share.hi - share.value) for share, weight in sides))
    return Estimate(value, value - below, value + above, "", "square and add")


def _separated(
    inside: NDArray[np.float64], outside: NDArray[np.float64], groups: NDArray[np.str_], resamples: int, seed: int
) -> dict[str, Estimate]:
    """How well the score tells the sides apart, whatever the threshold."""
    scores, positive = np.concatenate([inside, outside]), np.arange(len(inside) + len(outside)) < len(inside)
    if not resamples:
        found = separation(scores, positive)
        return {
            name: Estimate(float(getattr(found, name)[0]), math.nan, math.nan, NO_BOUNDS, "") for name in SEPARATION
        }
    bootstrap = GroupBootstrap(groups, resamples=resamples, seed=seed)
    weights = np.concatenate([np.ones((1, len(scores)), np.float32), *bootstrap.chunks()])
    found = separation(scores, positive, weights)
    estimates = {}
    for name in SEPARATION:
        value, *resampled = getattr(found, name)
        lo, hi, reason = bootstrap_bounds(float(value), np.asarray(resampled), bootstrap.groups, CONFIDENCE, (0.0, 1.0))
        estimates[name] = Estimate(float(value), lo, hi, reason, "group bootstrap")
    return estimates


def _prefixed(side: str, groups: NDArray[np.str_]) -> NDArray[np.str_]:
    return np.char.add(f"{side}/", groups)


def tables(triples: Sequence[Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """Every table from the rows of algorithm 1 and of algorithm 2."""
    if not triples:
        raise InputError("there is no triple of source, D_v and D_t: name at least two sets of outliers")
    matrix, alone = pd.DataFrame(triples), pd.DataFrame(pairs).drop(columns="valid_set")
    return {
        NAME: matrix,
        f"{NAME}_methods": methods(matrix),
        f"{NAME}_heatmap": heat_map(matrix),
        f"{NAME}_unsupervised": alone,
        f"{NAME}_unsupervised_methods": methods(alone),
    }


def methods(matrix: pd.DataFrame) -> pd.DataFrame:
    """The mean of each metric per monitor, over all sources and of each, over all, near and far test sets.

    lo, hi          95 % interval of Student's t whose independent unit is the pair of source and test set: triples that
                    share a test set are no further evidence of one another
    lo_triples ...  as published, with every triple as one independent experiment: too narrow, for comparison alone

    Test sets are chosen, not drawn, and share their source: both intervals describe the sets at hand. They are cut to
    0..1, which all metrics but the expected cost keep to.
    """
    rows = []
    sources = matrix["source"].nunique()
    for source in [ALL, *matrix["source"].unique()]:
        for ood in (ALL, NEAR, FAR):
            part = matrix[((matrix["source"] == source) | (source == ALL)) & ((matrix["ood"] == ood) | (ood == ALL))]
            for (monitor, metric), chosen in part.groupby(["monitor", "metric"], sort=False):
                values = chosen["value"].to_numpy(np.float64)
                clusters = chosen.groupby(["source", "test_set"], sort=False).ngroup().to_numpy()
                highest = math.inf if metric == COST else 1.0
                lo, hi, reason = clustered_interval(values, clusters, highest)
                lo_triples, hi_triples, _ = clustered_interval(values, np.arange(len(values)), highest)
                served = chosen["source"].nunique()
                if source == ALL and ood == ALL and served < sources:
                    reason = f"{served} of {sources} sources only: not comparable with the others; {reason}".rstrip(
                        "; "
                    )
                rows.append(
                    {
                        "source": source,
                        "ood": ood,
                        "monitor": monitor,
                        "metric": metric,
                        "value": float(values.mean()),
                        "lo": lo,
                        "hi": hi,
                        "lo_triples": lo_triples,
                        "hi_triples": hi_triples,
                        "triples": len(values),
                        "clusters": int(clusters.max()) + 1,
                        "sources": served,
                        "reason": reason,
                    }
                )
    return pd.DataFrame(rows)


def clustered_interval(
    values: NDArray[np.float64], clusters: NDArray[np.int64], highest: float = 1.0
) -> tuple[float, float, str]:
    """95 % interval of the mean of values (n,) whose clusters (n,), numbered from 0, are independent.

    mean -+ t_{C-1} sqrt(C / (C - 1) sum_c (sum_{i in c} (x_i - mean))^2) / n, cut to 0..highest. Gives (lo, hi,
    reason).

    >>> lo, hi, _ = clustered_interval(np.array([0.5, 0.52, 0.54]), np.array([0, 1, 2]))
    >>> round(lo, 3), round(hi, 3)
    (0.47, 0.57)
    >>> clustered_interval(np.array([0.5, 0.7]), np.array([0, 0]))
    (nan, nan, 'one test set only')
    """
    count = int(clusters.max()) + 1
    if count < 2:
        return math.nan, math.nan, "one test set only"
    mean = values.mean()
    sums = np.bincount(clusters, values - mean)
    error = math.sqrt(count / (count - 1) * float((sums**2).sum())) / len(values)
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * error
    return max(0.0, float(mean - half)), min(highest, float(mean + half)), ""


def heat_map(matrix: pd.DataFrame) -> pd.DataFrame:
    """The accuracy of each monitor for each D_v and D_t: the mean over the sources that meet both, and their number."""
    chosen = matrix[matrix["metric"] == ACCURACY]
    cells = chosen.groupby(["monitor", "valid_set", "test_set"], sort=False)["value"]
    return cells.agg(accuracy="mean", sources="count").reset_index()
