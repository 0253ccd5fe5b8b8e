"""OD-test: how well a monitor rejects outliers of a kind that it was not calibrated with.

Three data sets at a time: the source (inside), D_v (outliers to calibrate with) and D_t (outliers to test with), over
all ordered pairs D_v != D_t. Everything here is computed from stored representations, never while a model runs.

Shafaei, Schmidt, Little: Does Your Model Know the Digit 6 Is Not a Cat? (2018), algorithms 1 and 2.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.metrics import value_range
from roadworthy.metrics.ranking import Separation, separation
from roadworthy.monitors import Aim, CalibratedMonitor, FittedMonitor, TiesWarning
from roadworthy.monitors.base import monitor_errors
from roadworthy.protocols.estimates import CONFIDENCE, Estimate, bootstrap_bounds
from roadworthy.statistics import GroupBootstrap, Interval, proportion_interval
from roadworthy.verdict import Criterion, Measurement

NAME = "od_test"
ACCURACY, COST = "accuracy", "expected_cost"
SEPARATION = tuple(field.name for field in fields(Separation))
METRICS = (ACCURACY, COST, *SEPARATION)
ALL, NEAR, FAR = "all", "near", "far"
PLACES = ("source", "valid_set", "test_set", "monitor")
"""What names a triple, and what a criterion may ask for; `ood` (near or far) too."""
NO_BOUNDS = "no bounds asked for: set resamples"
NO_VALUE = "no value could be computed"


@dataclass(frozen=True)
class Sample:
    """A represented data set: rows (N, D) float32, and of each image its id, group and label (N,)."""

    rows: NDArray[np.float32]
    ids: NDArray[np.str_]
    groups: NDArray[np.str_]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Any) -> Sample:
        """Some of the images."""
        return Sample(self.rows[rows], self.ids[rows], self.groups[rows], self.labels[rows])


@dataclass(frozen=True)
class Represented:
    """What one monitor keeps of a source and of every outlier set it meets.

    near     the outlier sets that are near;  overlap: labels of the source to leave out where it meets a set
    architecture    of the source's model;  undertrained: that model is below its floor
    """

    source: str
    label: str
    monitor: FittedMonitor
    valid: Sample
    test: Sample
    outliers: Mapping[str, Sample]
    near: frozenset[str] = frozenset()
    overlap: Mapping[str, frozenset[int]] = field(default_factory=dict)
    architecture: str = ""
    undertrained: bool = False

    def inside(self, sample: Sample, outlier_set: str) -> Sample:
        """The images of the source that may meet a set."""
        shared = self.overlap.get(outlier_set)
        return sample.take(~np.isin(sample.labels, list(shared))) if shared else sample


def evaluate(
    represented: Represented,
    aim: Aim,
    *,
    valid_sets: Sequence[str] | None = None,
    resamples: int = 0,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> list[dict[str, Any]]:
    """Algorithm 1: a row per ordered pair D_v != D_t and metric.

    The monitor is calibrated on the validation part of the source against D_v, once for all D_t; accuracy is
    (1 - prior) P(accepted | test part) + prior P(rejected | D_t). Both sides are cut to the shorter one's length,
    their first n images. Where the monitor cannot be calibrated or cannot score, its rows have no value and say why.
    `valid_sets` are the D_v that it was fitted for, where it learns from those; all otherwise.
    """
    rows = []
    for valid_set, outside in represented.outliers.items():
        if valid_sets is not None and valid_set not in valid_sets:
            continue
        inside, outliers = balanced(represented.inside(represented.valid, valid_set), outside)
        tested = [name for name in represented.outliers if name != valid_set]
        found = _judged(represented, inside, outliers, tested, aim, resamples, seed, confidence)
        for test_set, estimates, n, groups in found:
            where = _where(represented, test_set) | {"valid_set": valid_set}
            rows += [estimate.row(where, metric, n, groups) for metric, estimate in estimates.items()]
    return rows


def evaluate_unsupervised(
    represented: Represented, aim: Aim, *, resamples: int = 0, seed: int = 0, refused: str = ""
) -> list[dict[str, Any]]:
    """Algorithm 2: a row per D_t and metric; the threshold rejects a share of the source's validation part alone.

    `refused` says why there can be none.
    """
    tested = [*represented.outliers]
    found: Iterable[Tested] = (_without_estimates(test_set, refused) for test_set in tested)
    if not refused:
        found = _judged(represented, represented.valid, None, tested, aim, resamples, seed)
    return [
        estimate.row(_where(represented, test_set), metric, n, groups)
        for test_set, estimates, n, groups in found
        for metric, estimate in estimates.items()
    ]


def threshold_row(represented: Represented, aim: Aim, refused: str = "") -> dict[str, Any]:
    """What the threshold of algorithm 2 rejects of the source's validation part, beside the share it was asked for.

    `tied` is true where images of equal score keep it from rejecting that share; `reason` says so in a sentence.
    """
    where = {"source": represented.source, "monitor": represented.label, "asked": aim.rejected}
    calibrated = refused or _calibrated(represented, represented.valid, None, aim)
    if isinstance(calibrated, str) or calibrated.rejected is None:
        reason = calibrated if isinstance(calibrated, str) else ""
        return {**where, "achieved": math.nan, "images": 0, "tied": False, "reason": reason}
    share = calibrated.rejected
    reason = f"{represented.label} {share.sentence()}" if share.tied else ""
    return {**where, "achieved": share.achieved, "images": share.images, "tied": share.tied, "reason": reason}


def balanced(inside: Sample, outside: Sample) -> tuple[Sample, Sample]:
    """Both cut to the length of the shorter: their first images."""
    n = min(len(inside), len(outside))
    return inside.take(slice(n)), outside.take(slice(n))


def _where(represented: Represented, test_set: str) -> dict[str, Any]:
    return {
        "source": represented.source,
        "architecture": represented.architecture,
        "undertrained": represented.undertrained,
        "valid_set": "",
        "test_set": test_set,
        "ood": NEAR if test_set in represented.near else FAR,
        "monitor": represented.label,
    }


Tested = tuple[str, dict[str, Estimate], int, int]


def _without_estimates(test_set: str, reason: str) -> Tested:
    missing = Estimate(math.nan, math.nan, math.nan, reason, "")
    return test_set, dict.fromkeys(METRICS, missing), 0, 0


def _judged(
    represented: Represented,
    inside: Sample,
    outside: Sample | None,
    test_sets: Sequence[str],
    aim: Aim,
    resamples: int,
    seed: int,
    confidence: float = CONFIDENCE,
) -> Iterator[Tested]:
    """The estimates on each test set after a calibration, with its numbers of images and objects; empty if refused."""
    calibrated = _calibrated(represented, inside, outside, aim)
    for test_set in test_sets:
        outcome = calibrated if isinstance(calibrated, str) else decide(represented, calibrated, test_set)
        if isinstance(outcome, str):
            yield _without_estimates(test_set, outcome)
            continue
        sides = zip(outcome.right, outcome.sides, strict=True)
        shares = tuple(proportion_interval(right, side.groups, confidence) for right, side in sides)
        groups = outcome.groups
        estimates = {
            ACCURACY: _weighted(shares, (1 - aim.prior, aim.prior)),
            COST: _weighted(tuple(map(_complement, shares)), (1 - aim.prior, aim.prior * aim.cost)),
            **_separated(*outcome.scores, groups, resamples, seed, confidence),
        }
        yield test_set, estimates, len(groups), len(np.unique(groups))


def _calibrated(represented: Represented, inside: Sample, outside: Sample | None, aim: Aim) -> CalibratedMonitor | str:
    """The calibrated monitor, or why it cannot be calibrated. Ties are told by `threshold_row`."""
    try:
        with monitor_errors(), warnings.catch_warnings():
            warnings.simplefilter("ignore", TiesWarning)
            rows = None if outside is None else outside.rows
            return represented.monitor.calibrate(inside.rows, rows, **asdict(aim))
    except (InputError, ModelError) as error:
        return f"not calibrated: {error}"


class Decisions(NamedTuple):
    """The images of a test set that are inside and those that are outside, n each, with their scores (n,).

    `right` says of each side which images were decided right: accepted inside, rejected outside.
    """

    sides: tuple[Sample, Sample]
    scores: tuple[NDArray[np.float64], NDArray[np.float64]]
    right: tuple[NDArray[np.bool_], NDArray[np.bool_]]

    @property
    def groups(self) -> NDArray[np.str_]:
        """The object of every image, (2n,): those inside and those outside share none."""
        return np.concatenate([_prefixed("in", self.sides[0].groups), _prefixed("out", self.sides[1].groups)])


def decide(represented: Represented, calibrated: CalibratedMonitor, test_set: str) -> Decisions | str:
    """What a calibrated monitor makes of a test set, or why it says nothing."""
    sides = balanced(represented.inside(represented.test, test_set), represented.outliers[test_set])
    if not len(sides[0]):
        return "no image is left on one side"
    try:
        with monitor_errors():
            scores = calibrated.score(sides[0].rows), calibrated.score(sides[1].rows)
    except (InputError, ModelError) as error:
        return f"not scored: {error}"
    return Decisions(sides, scores, (scores[0] >= calibrated.threshold, scores[1] < calibrated.threshold))


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
    inside: NDArray[np.float64],
    outside: NDArray[np.float64],
    groups: NDArray[np.str_],
    resamples: int,
    seed: int,
    confidence: float,
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
        lo, hi, reason = bootstrap_bounds(float(value), np.asarray(resampled), bootstrap.groups, confidence, (0.0, 1.0))
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
        f"{NAME}_architectures": methods(matrix, "architecture"),
        f"{NAME}_heatmap": heat_map(matrix),
        f"{NAME}_unsupervised": alone,
        f"{NAME}_unsupervised_methods": methods(alone),
    }


def methods(matrix: pd.DataFrame, by: str = "source") -> pd.DataFrame:
    """The mean of each metric per monitor, over all sources and of each (or of each architecture), over all, near and
    far test sets.

    lo, hi          95 % interval of Student's t whose independent unit is the pair of source and test set: triples that
                    share a test set are no further evidence of one another
    lo_triples ...  as published, with every triple as one independent experiment: too narrow, for comparison alone
    undertrained    the source's network is below its floor. Means over several sources leave such ones out, unless
                    there are no others

    Test sets are chosen, not drawn, and share their source: both intervals describe the sets at hand. They are cut to
    0..1, which all metrics but the expected cost keep to.
    """
    names = ("source", by, "undertrained", "ood", "monitor", "metric", "test_set", "value")
    triples = [_Triple(*row) for row in zip(*(matrix[name].tolist() for name in names), strict=True)]
    rows = []
    for group in [ALL, *dict.fromkeys(triple.group for triple in triples)]:
        members = [triple for triple in triples if group in (ALL, triple.group)]
        weak = all(triple.undertrained for triple in members)
        counted = {triple.source for triple in members if weak or not triple.undertrained}
        dropped = sorted({triple.source for triple in members} - counted)
        for ood in (ALL, NEAR, FAR):
            found: dict[tuple[str, str], list[_Triple]] = {}
            for triple in members:
                if ood in (ALL, triple.ood):
                    chosen = found.setdefault((triple.monitor, triple.metric), [])
                    chosen += [triple] if triple.source in counted else []
            for (monitor, metric), chosen in found.items():
                served = len({triple.source for triple in chosen})
                short = f"{served} of {len(counted)} sources only: not comparable with the others"
                noted = [
                    f"without undertrained: {', '.join(dropped)}" if dropped else "",
                    short if ood == ALL and served < len(counted) else "",
                ]
                where = {by: group, "ood": ood, "monitor": monitor, "metric": metric}
                rows.append(where | _mean(chosen, metric, noted) | {"undertrained": weak})
    return pd.DataFrame(rows)


class _Triple(NamedTuple):
    """One metric of one triple; `group` is what means are made of."""

    source: str
    group: str
    undertrained: bool
    ood: str
    monitor: str
    metric: str
    test_set: str
    value: float


def _mean(chosen: Sequence[_Triple], metric: str, noted: Sequence[str]) -> dict[str, Any]:
    """The mean of some triples with both intervals, and what is to be said of it."""
    known = [triple for triple in chosen if not math.isnan(triple.value)]
    failed = f"{len(chosen) - len(known)} of {len(chosen)} triples have no value" if len(known) < len(chosen) else ""
    counts = {"triples": len(known), "clusters": 0, "sources": len({triple.source for triple in chosen})}
    if not known:
        numbers = dict.fromkeys(("value", "lo", "hi", "lo_triples", "hi_triples"), math.nan)
        return {**numbers, **counts, "reason": "; ".join(filter(None, [*noted, failed]))}
    values = np.array([triple.value for triple in known])
    clusters = _numbered([(triple.source, triple.test_set) for triple in known])
    highest = math.inf if metric == COST else 1.0
    lo, hi, reason = clustered_interval(values, clusters, highest)
    lo_triples, hi_triples, _ = clustered_interval(values, np.arange(len(values)), highest)
    return {
        "value": float(values.mean()),
        "lo": lo,
        "hi": hi,
        "lo_triples": lo_triples,
        "hi_triples": hi_triples,
        **counts,
        "clusters": int(clusters.max()) + 1,
        "reason": "; ".join(filter(None, [*noted, failed, reason])),
    }


def _numbered(pairs: Sequence[tuple[str, str]]) -> NDArray[np.int64]:
    """The number of each pair's cluster, by first appearance."""
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    return np.array([numbers[pair] for pair in pairs], np.int64)


def clustered_interval(
    values: NDArray[np.float64], clusters: NDArray[np.int64], highest: float = 1.0, confidence: float = CONFIDENCE
) -> tuple[float, float, str]:
    """Interval of the mean of values (n,) whose clusters (n,), numbered from 0, are independent.

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
    half = float(stdtrit(count - 1, (1 + confidence) / 2)) * error
    return max(0.0, float(mean - half)), min(highest, float(mean + half)), ""


def heat_map(matrix: pd.DataFrame) -> pd.DataFrame:
    """The accuracy of each monitor for each D_v and D_t: the mean over the sources that meet both, and their number.

    Undertrained sources are left out, unless there are no others.
    """
    known = matrix[(matrix["metric"] == ACCURACY) & matrix["value"].notna()]
    chosen = known if known["undertrained"].all() else known[~known["undertrained"]]
    cells = chosen.groupby(["monitor", "valid_set", "test_set"], sort=False)["value"]
    return cells.agg(accuracy="mean", sources="count").reset_index()


def places(
    source: str, monitors: Sequence[str], outlier_sets: Sequence[str], near: Collection[str] = ()
) -> list[dict[str, str]]:
    """Where a source's triples are: a place per monitor and ordered pair D_v != D_t, as rows and criteria name it.

    >>> [(place["valid_set"], place["test_set"], place["ood"]) for place in places("signs", ["msp"], "ab", near="a")]
    [('a', 'b', 'far'), ('b', 'a', 'near')]
    """
    return [
        {"source": source, "valid_set": valid_set, "test_set": test_set, "monitor": monitor}
        | {"ood": NEAR if test_set in near else FAR}
        for monitor in monitors
        for valid_set, test_set in permutations(outlier_sets, 2)
    ]


def without_value(triples: Sequence[Mapping[str, str]], reason: str) -> list[dict[str, Any]]:
    """A row per place and metric for a monitor that failed, so that criteria see what was not measured."""
    missing = Estimate(math.nan, math.nan, math.nan, f"failed: {reason}", "")
    return [missing.row(place, metric, 0, 0) for place in triples for metric in METRICS]


def dropped_sources(sources: Mapping[str, bool], criterion: Criterion) -> list[str]:
    """The sources that a criterion's mean leaves out, of sources by name with whether they are undertrained.

    These are the undertrained ones, unless the criterion can speak of no other.
    """
    meant = [name for name in sources if _allows(criterion.where.get("source"), name)]
    weak = [name for name in meant if sources[name]]
    return weak if len(weak) < len(meant) else []


def measure(
    rows: Sequence[Mapping[str, Any]], criterion: Criterion, confidence: float, dropped: Collection[str] = ()
) -> list[Measurement]:
    """What matches a criterion among rows of `evaluate` bounded with that confidence.

    `over: pooled` is the mean of the matching triples, without those of the `dropped` sources; its independent unit is
    the pair of source and test set.
    """
    chosen = [row for row in rows if row["metric"] == criterion.metric and _matches(row, criterion)]
    if not chosen:
        raise InputError(f"criterion {criterion.id} matches no triple of this run: see the columns of table {NAME}")
    if criterion.over != "pooled":
        return [_measurement({key: row[key] for key in PLACES}, row, criterion.metric) for row in chosen]
    left = sorted({row["source"] for row in chosen} & set(dropped))
    noted = {"without undertrained": ", ".join(left)} if left else {}
    chosen = [row for row in chosen if row["source"] not in left]
    if not chosen:
        reason = "undertrained sources do not count where others are there: name such a source to judge it alone"
        return [Measurement(noted, math.nan, math.nan, math.nan, 0, 0, reason=reason)]
    lost = [row["reason"] for row in chosen if math.isnan(row["value"])]
    if lost:
        reason = f"{len(lost)} of {len(chosen)} triples have no value, the first: {lost[0]}"
        return [Measurement(noted, math.nan, math.nan, math.nan, 0, 0, reason=reason)]
    clusters = _numbered([(row["source"], row["test_set"]) for row in chosen])
    values, highest = np.array([row["value"] for row in chosen]), math.inf if criterion.metric == COST else 1.0
    lo, hi, reason = clustered_interval(values, clusters, highest, confidence)
    images, count = sum(row["n"] for row in chosen), int(clusters.max()) + 1
    where, method = {"triples": len(chosen), **noted}, "Student's t over pairs of source and test set"
    return [
        Measurement(
            where,
            float(values.mean()),
            lo,
            hi,
            images,
            count,
            method,
            reason=reason,
            unit="pairs of source and test set",
        )
    ]


def metric_range(metric: str, aim: Aim) -> tuple[float, float]:
    """The range of a metric; the expected cost is highest where every decision is wrong."""
    return value_range(metric, num_classes=2, highest_cost=(1 - aim.prior) + aim.prior * aim.cost)


def check_criterion(criterion: Criterion, subject_columns: Sequence[str] = ("source",)) -> None:
    """Refuse a criterion that speaks of what an OD-test does not measure; subjects are told apart by these columns."""
    if criterion.metric not in METRICS:
        raise InputError(f"criterion {criterion.id}: {UnknownName('metric', criterion.metric, METRICS)}")
    known = (*subject_columns, *PLACES[1:], "ood")
    for key in criterion.where:
        if key not in {*known, "protocol"}:
            raise InputError(f"criterion {criterion.id}: {UnknownName('condition', str(key), known)}")
    for key, names in (("protocol", (NAME,)), ("ood", (NEAR, FAR))):
        _check_names(criterion, key, names)


def check_places(criterion: Criterion, triples: Sequence[Mapping[str, str]]) -> None:
    """Refuse a criterion that names a source, set or monitor that is not there, or matches none of these places."""
    for key in PLACES:
        _check_names(criterion, key, list(dict.fromkeys(place[key] for place in triples)))
    if not any(_matches(place, criterion) for place in triples):
        raise InputError(
            f"criterion {criterion.id} matches no triple: no source meets all that it names under where together"
        )


def _check_names(criterion: Criterion, key: str, known: Sequence[str]) -> None:
    wanted = criterion.where.get(key)
    for name in wanted if isinstance(wanted, list) else [wanted]:
        if wanted is not None and name not in known:
            raise InputError(f"criterion {criterion.id}: {UnknownName(key, str(name), known)}")


def matches_monitor(source: str, monitor: str, criterion: Criterion) -> bool:
    """Whether a criterion can speak of this monitor of this source."""
    return all(_allows(criterion.where.get(key), value) for key, value in (("source", source), ("monitor", monitor)))


def _matches(row: Mapping[str, Any], criterion: Criterion) -> bool:
    return all(_allows(wanted, row[key]) for key, wanted in criterion.where.items() if key != "protocol")


def _allows(wanted: Any, value: Any) -> bool:
    return wanted is None or value in (wanted if isinstance(wanted, list) else [wanted])


def _measurement(where: Mapping[str, Any], row: Mapping[str, Any], metric: str) -> Measurement:
    said = {key: row[key] for key in ("value", "lo", "hi", "n", "groups", "method", "reason")}
    return Measurement(where, **said, proportion=metric == ACCURACY)
