"""OD-test: how well a monitor rejects outliers of a kind that it was not calibrated with.

Three data sets at a time: the source (inside), D_v (outliers to calibrate with) and D_t (outliers to test with), over
all ordered pairs D_v != D_t. Everything here is computed from stored representations, never while a model runs.

Shafaei, Schmidt, Little: Does Your Model Know the Digit 6 Is Not a Cat? (2018), algorithms 1 and 2.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.metrics import find_metric
from roadworthy.metrics.ranking import separation
from roadworthy.monitors import Aim, CalibratedMonitor, FittedMonitor, TiesWarning
from roadworthy.monitors.base import monitor_errors
from roadworthy.protocols.od_test import metrics, table_specs
from roadworthy.protocols.od_test.table_specs import NAME as NAME
from roadworthy.statistics import Estimate, GroupBootstrap, proportion_interval
from roadworthy.statistics.estimates import CONFIDENCE, bootstrap_estimate, no_estimate
from roadworthy.verdict import Criterion, Measurement

METRICS = tuple(metric.name for metric in metrics.METRICS)
ACCURACY, COST, *SEPARATION = METRICS
ALL, NEAR, FAR = "all", "near", "far"
PLACES = ("source", "valid_set", "test_set", "monitor")
"""What names a triple, and what a criterion may ask for; `ood` (near or far) too."""
NO_BOUNDS = "no bounds asked for: set resamples"
NO_VALUE = "no value could be computed"
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

    near     the outlier sets that are near;  overlap: labels of the source to leave out where it meets a set
    architecture    of the source's model;  undertrained: that model is below its floor
    fitted_on       the one D_v that the monitor was fitted for, where it learns from those
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

    def sides(self, inside: Sample, outlier_set: str) -> tuple[Sample, Sample] | str:
        """The images of a part of the source that may meet a set, and the set: the first n of both; or why not."""
        shared, outside = self.overlap.get(outlier_set), self.outliers[outlier_set]
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
        for valid_set in represented.outliers
        if represented.fitted_on in ("", valid_set)
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
    reason = f"{represented.label} {share.sentence()}" if share.tied else ""
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
            "source": represented.source,
            "architecture": represented.architecture,
            "undertrained": represented.undertrained,
            "valid_set": valid_set,
            "test_set": test_set,
            "ood": NEAR if test_set in represented.near else FAR,
            "monitor": represented.label,
        }
        outcome = decide(represented, monitor, test_set)
        if isinstance(outcome, str):
            yield from without_value([where], outcome)
            continue
        sides = zip(outcome.right, outcome.sides, strict=True)
        shares = [proportion_interval(right, side.groups, confidence) for right, side in sides]
        wrong = [replace(share, value=1 - share.value, lo=1 - share.hi, hi=1 - share.lo) for share in shares]
        estimates = {
            ACCURACY: _weighted(shares, (1 - aim.prior, aim.prior)),
            COST: _weighted(wrong, (1 - aim.prior, aim.prior * aim.cost)),
            **_separated(outcome, resamples, seed, confidence),
        }
        counts = len(outcome.groups), len(np.unique(outcome.groups))
        yield from (estimate.over(*counts).row(where, metric) for metric, estimate in estimates.items())


def without_value(places: Iterable[Mapping[str, Any]], reason: str) -> list[dict[str, Any]]:
    """A row per place and metric where there is nothing to be measured."""
    missing = no_estimate(reason)
    return [missing.row(where, metric) for where in places for metric in METRICS]


def calibrate(represented: Represented, aim: Aim, valid_set: str = "") -> CalibratedMonitor | str:
    """The monitor calibrated against D_v, or on images inside alone; or why it cannot be.

    Ties are told by `threshold_row`.
    """
    if represented.fitted_on and not valid_set:
        return LEARNS_FROM_OUTLIERS
    monitor = represented.monitor
    sides = represented.sides(represented.valid, valid_set) if valid_set else (represented.valid,)
    if isinstance(monitor, str) or isinstance(sides, str):
        return monitor if isinstance(monitor, str) else str(sides)
    try:
        with monitor_errors(), warnings.catch_warnings():
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


def decide(represented: Represented, monitor: CalibratedMonitor | str, test_set: str) -> Decisions | str:
    """What a calibrated monitor makes of a test set, or why it says nothing: that it was not calibrated, too."""
    if isinstance(monitor, str):
        return monitor
    sides = represented.sides(represented.test, test_set)
    if isinstance(sides, str):
        return sides
    if not len(sides[0]):
        return "no image is left on one side"
    try:
        with monitor_errors():
            scores = monitor.score(sides[0].rows), monitor.score(sides[1].rows)
    except (InputError, ModelError) as error:
        return f"not scored: {error}"
    return Decisions(sides, scores, (scores[0] >= monitor.threshold, scores[1] < monitor.threshold))


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
    bootstrap = GroupBootstrap(decisions.groups, resamples=resamples, seed=seed) if resamples else None
    weights = [np.ones((1, len(scores)), np.float32), *(bootstrap.chunks() if bootstrap else ())]
    measured = separation(scores, positive, np.concatenate(weights))
    estimates = {}
    for name in SEPARATION:
        value, *resampled = map(float, getattr(measured, name))
        if bootstrap is None:
            estimates[name] = Estimate(value, reason=NO_BOUNDS)
        else:
            estimates[name] = bootstrap_estimate(value, np.array(resampled), bootstrap.groups, confidence)
    return estimates


def tables(triples: Sequence[Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """Every table from the rows of algorithm 1 and of algorithm 2."""
    if not triples:
        raise InputError("there is no triple of source, D_v and D_t: name at least two sets of outliers")
    matrix = table_specs.TRIPLES.frame(triples, first=["source"])
    alone = [{name: value for name, value in pair.items() if name != "valid_set"} for pair in pairs]
    tables = {
        table_specs.TRIPLES: matrix,
        table_specs.METHODS: methods(triples),
        table_specs.ARCHITECTURES: methods(triples, "architecture"),
        table_specs.HEAT_MAP: heat_map(matrix),
        table_specs.UNSUPERVISED: table_specs.UNSUPERVISED.frame(alone, first=["source"]),
        table_specs.UNSUPERVISED_METHODS: methods(pairs),
    }
    return {spec.name: table for spec, table in tables.items()}


def methods(triples: Sequence[Mapping[str, Any]], by: str = "source") -> pd.DataFrame:
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
    rows = []
    for group in [ALL, *dict.fromkeys(triple[by] for triple in triples)]:
        members = [triple for triple in triples if group in (ALL, triple[by])]
        weak = all(triple["undertrained"] for triple in members)
        counted = {triple["source"] for triple in members if weak or not triple["undertrained"]}
        dropped = sorted({triple["source"] for triple in members} - counted)
        for ood in (ALL, NEAR, FAR):
            by_metric: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
            for triple in members:
                if ood in (ALL, triple["ood"]):
                    chosen = by_metric.setdefault((triple["monitor"], triple["metric"]), [])
                    chosen += [triple] if triple["source"] in counted else []
            for (monitor, metric), chosen in by_metric.items():
                served = len({triple["source"] for triple in chosen})
                short = f"{served} of {len(counted)} sources only: not comparable with the others"
                noted = [
                    f"without undertrained: {', '.join(dropped)}" if dropped else "",
                    short if ood == ALL and served < len(counted) else "",
                ]
                where = {by: group, "ood": ood, "monitor": monitor, "metric": metric}
                rows.append(where | _mean(chosen, noted) | {"undertrained": weak})
    return pd.DataFrame(rows)


def _mean(
    chosen: Sequence[Mapping[str, Any]], noted: Sequence[str] = (), confidence: float = CONFIDENCE
) -> dict[str, Any]:
    """The mean of one metric of some triples with both intervals, and what is to be said of it."""
    known = [triple for triple in chosen if not math.isnan(triple["value"])]
    failed = f"{len(chosen) - len(known)} of {len(chosen)} triples have no value" if len(known) < len(chosen) else ""
    numbers = dict.fromkeys(("value", "lo", "hi", "lo_triples", "hi_triples"), math.nan)
    count, reason = 0, ""
    if known:
        values = np.array([triple["value"] for triple in known])
        clusters, pairs = pd.factorize(pd.Series([(triple["source"], triple["test_set"]) for triple in known]))
        highest = math.inf if known[0]["metric"] == COST else 1.0
        lo, hi, reason = clustered_interval(values, clusters, highest, confidence)
        alone = clustered_interval(values, np.arange(len(values)), highest, confidence)
        numbers = dict(zip(numbers, (float(values.mean()), lo, hi, *alone[:2]), strict=True))
        count = len(pairs)
    return {
        **numbers,
        "triples": len(known),
        "clusters": count,
        "sources": len({triple["source"] for triple in chosen}),
        "reason": "; ".join(filter(None, [*noted, failed, reason])),
    }


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


def dropped_sources(sources: Mapping[str, bool], criterion: Criterion) -> list[str]:
    """The sources that a criterion's mean leaves out, of sources by name with whether they are undertrained.

    These are the undertrained ones, unless the criterion can speak of no other.
    """
    meant = [name for name in sources if matches({"source": name}, criterion)]
    weak = [name for name in meant if sources[name]]
    return weak if len(weak) < len(meant) else []


def measure(
    rows: Sequence[Mapping[str, Any]], criterion: Criterion, confidence: float, dropped: Collection[str] = ()
) -> list[Measurement]:
    """What matches a criterion among rows of `evaluate` bounded with that confidence.

    `over: pooled` is the mean of the matching triples, without those of the `dropped` sources; its independent unit is
    the pair of source and test set.
    """
    chosen = [row for row in rows if row["metric"] == criterion.metric and matches(row, criterion)]
    if not chosen:
        raise InputError(f"criterion {criterion.id} matches no triple of this run: see the columns of table {NAME}")
    if criterion.over != "pooled":
        return [
            Measurement(
                {key: row[key] for key in PLACES},
                Estimate(**{key: row[key] for key in ("value", "lo", "hi", "n", "groups", "method", "reason")}),
                proportion=find_metric(criterion.metric, metrics.METRICS).proportion,
            )
            for row in chosen
        ]
    left = sorted({row["source"] for row in chosen} & set(dropped))
    noted = {"without undertrained": ", ".join(left)} if left else {}
    chosen = [row for row in chosen if row["source"] not in left]
    lost = [row["reason"] for row in chosen if math.isnan(row["value"])]
    if lost or not chosen:
        reason = "undertrained sources do not count where others are there: name such a source to judge it alone"
        if lost:
            reason = f"{len(lost)} of {len(chosen)} triples have no value, the first: {lost[0]}"
        return [Measurement(noted, no_estimate(reason))]
    mean = _mean(chosen, confidence=confidence)
    return [
        Measurement(
            {"triples": len(chosen), **noted},
            Estimate(
                **{key: mean[key] for key in ("value", "lo", "hi", "reason")},
                n=sum(row["n"] for row in chosen),
                groups=mean["clusters"],
                method="Student's t over pairs of source and test set",
            ),
            unit="pairs of source and test set",
        )
    ]


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
    if not any(matches(place, criterion) for place in triples):
        raise InputError(
            f"criterion {criterion.id} matches no triple: no source meets all that it names under where together"
        )


def _check_names(criterion: Criterion, key: str, known: Sequence[str]) -> None:
    wanted = criterion.where.get(key)
    for name in wanted if isinstance(wanted, list) else [wanted]:
        if wanted is not None and name not in known:
            raise InputError(f"criterion {criterion.id}: {UnknownName(key, str(name), known)}")


def matches(row: Mapping[str, Any], criterion: Criterion) -> bool:
    """Whether a criterion can speak of a row; what the row does not say is left open."""
    return all(
        wanted is None or row[key] in (wanted if isinstance(wanted, list) else [wanted])
        for key, wanted in criterion.where.items()
        if key in row
    )
