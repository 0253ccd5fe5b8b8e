"""The tables of ood: how well the scores of stored answers tell outliers from in-distribution images."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.grouping import grouped
from roadworthy.core.tables import TableSpec
from roadworthy.core.types import LOG_ODDS, UNDISTURBED
from roadworthy.engine.plan import PlannedCase
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import unknown_metric
from roadworthy.metrics.ranking import Ranking, tied_share, ties_in_words
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared, KnownCase, StoredCase, matching
from roadworthy.protocols.changes import (
    OTHER_IMAGES,
    by_bootstrap,
    by_ranked,
    by_units,
    not_paired,
    of_same_cases,
    same_cases,
)
from roadworthy.protocols.condition_columns import Breakdown
from roadworthy.protocols.condition_slices import Slicing, asked_slices, is_of_data
from roadworthy.protocols.monitor_scores import own_scores, with_scores
from roadworthy.protocols.ood import by_condition, gan_bounds, table_specs
from roadworthy.protocols.ood.deciding import decide
from roadworthy.protocols.ood.gallery import save_gallery
from roadworthy.protocols.ood.gan_bounds import GanKey
from roadworthy.protocols.ood.gans import training_of
from roadworthy.protocols.ood.metrics import AUPR_IN, AUPR_OUT, METRICS
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.protocols.ood.settings import Sides
from roadworthy.protocols.ood.table_specs import GAN
from roadworthy.statistics import Estimate, GroupBootstrap, paired_interval
from roadworthy.statistics.estimates import (
    CONFIDENCE,
    RESAMPLES,
    bootstrap_estimate,
    bounding_bootstrap,
    failed_estimate,
    mean_defined,
    mean_rows,
    no_estimate,
    standard_deviation,
)
from roadworthy.statistics.paired import PairedChange, smallest_paired_p
from roadworthy.statistics.ranked import SMALLEST_P, RankedFigure, ranked_estimate, ranked_figure
from roadworthy.verdict import Criterion, Measurement, Why
from roadworthy.verdict.why import no_single_images

NAMES = tuple(metric.name for metric in METRICS)
RANKED = tuple(metric.name for metric in METRICS if metric.ranked)
BINS = 20


@dataclass(frozen=True)
class Mixture:
    """Both sides of one set in one repeat: scores, which are in-distribution, and their objects.

    `score` is the name of the scores, and `rows` are those of the images in the readouts of their side. `shown` are the
    scores as people read them: of log-odds the probabilities.
    """

    scores: NDArray[np.float64]
    inside: NDArray[np.bool_]
    groups: tuple[str, ...]
    score: str
    rows: tuple[int, ...]
    shown: NDArray[np.float64]

    @property
    def ties(self) -> float:
        """The share of pairs of an image inside and an outlier that a score which is no log-odds cannot put in order.

        NaN where a side is empty.
        """
        return math.nan if self.score == LOG_ODDS else tied_share(self.scores, self.inside)


@dataclass(frozen=True)
class _Result:
    """What is kept of a set; metrics are bounded by what is `ranked`, in every repeat, or by what is `resampled`."""

    values: Mapping[str, Sequence[float]]
    ranked: Mapping[str, Sequence[RankedFigure]]
    resampled: Mapping[str, NDArray[np.float64]]
    n: int
    groups: int
    members: tuple[str, ...]
    score: str
    histogram: NDArray[np.int64]
    edges: NDArray[np.float64]
    repeats: tuple[int, ...]
    ties: float


class Evidence(base.Evidence):
    """What the readouts of one run say about separating outliers. One resampling serves all models of a set.

    Of GANs, `by_gan` has the results of each; those of their set are over all of them.
    """

    def __init__(
        self,
        cases: Sequence[StoredCase],
        class_names: Sequence[str] = (),
        monitor: str | None = None,
        *,
        seed: int = 0,
        workers: int = 1,
        resamples: int | None = None,
        breakdown: Breakdown | None = None,
        sides: Sides = "all",
    ) -> None:
        self.class_names, self.slicing = class_names, Slicing(breakdown or Breakdown(), cases)
        self.drawing: dict[str, Any] = {"monitor": monitor, "seed": seed, "workers": workers, "resamples": resamples}
        self.drawing["sides"] = sides
        self.cases = cases = with_scores([case for case in cases if not is_of_data(case)])
        inside = {(c.system, c.stimulus.name, c.stimulus.level, c.stimulus.repeat): c for c in cases if not c.labels}
        self.outside = outside = grouped((SetKey.of(case), case) for case in cases if "ood_set" in case.labels)
        self.keys = sorted(outside, key=SetKey.order)
        self.inside = inside
        self.failures: dict[SetKey, str] = {}
        self.results: dict[SetKey, _Result] = {}
        self.left_out: dict[SetKey, str] = {}
        self.by_gan: dict[tuple[SetKey, int], _Result] = {}
        self.gan_keys = gan_keys([case for own in outside.values() for case in own])
        self.counts_gans = any(case.labels.get("unit") == gan_bounds.GANS for own in outside.values() for case in own)

        def measure_set(keys: Sequence[SetKey]) -> None:
            bootstrap: tuple[tuple[str, ...], GroupBootstrap] | None = None
            for key in keys:
                all_pairs = self.pairs(key)
                failed = [(case.failure, pair[1]) for pair in all_pairs for case in pair if case.failure]
                pairs = [pair for pair in all_pairs if not any(case.failure for case in pair)]
                if failed and (key.kind != GAN or not pairs):
                    self.failures[key] = failed[0][0]
                    continue
                if failed:
                    lost, all_gans = ({_gan(case) for case in some} for some in ((c for _, c in failed), outside[key]))
                    self.left_out[key] = f"{len(lost)} of {len(all_gans)} GANs left out: {failed[0][0]}"
                shown = [case for _, case in pairs]
                mixtures = [mix(one.load(), other.load(), sides) for one, other in pairs]
                objects = {name: i for i, name in enumerate(sorted({n for m in mixtures for n in m.groups}))}
                measured = []
                for mixture in mixtures:
                    if bootstrap is None or bootstrap[0] != mixture.groups:
                        drawn = bounding_bootstrap(mixture.groups, resamples or RESAMPLES, seed)
                        bootstrap = mixture.groups, drawn
                    measured.append(_measured(mixture, objects, bootstrap[1]))
                self.results[key] = _result(measured, mixtures, shown, monitor=monitor)
                for gan in sorted({_gan(case) for case in shown}) if key.kind == GAN else ():
                    own = [row for row in zip(measured, mixtures, shown, strict=True) if _gan(row[2]) == gan]
                    self.by_gan[key, gan] = _result(*zip(*own, strict=True), monitor=monitor)

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(measure_set, grouped((key.ood_set, key) for key in self.keys).values()))
        self.results = {key: self.results[key] for key in self.keys if key in self.results}
        self.by_gan = {key: self.by_gan[key] for key in sorted(self.by_gan, key=lambda p: (p[0].order(), p[1]))}
        self.hardest = _hardest_gans(self.by_gan)

    def pairs(self, key: SetKey) -> list[tuple[StoredCase, StoredCase]]:
        """The cases of a set, or of one GAN of it, each with that of the test images it is told from."""
        gan = key.gan if isinstance(key, GanKey) else None
        cases = self.outside[key.of_set() if isinstance(key, GanKey) else key]
        return [(self._partner(case), case) for case in cases if gan is None or _gan(case) == gan]

    def _partner(self, case: StoredCase) -> StoredCase:
        condition = (case.labels.get("shift", UNDISTURBED), case.stimulus.level if "shift" in case.labels else 0)
        own = self.inside.get((case.system, *condition, case.stimulus.repeat))
        return own or self.inside[case.system, *condition, 0]

    def estimate(self, key: SetKey, metric: str, confidence: float = CONFIDENCE) -> Estimate:
        """A metric of one set, the mean over repeats, bounded by objects; of what GANs draw, by GANs."""
        return self._set_estimate(key, metric, confidence, counts_gans=True)

    def _set_estimate(self, key: SetKey, metric: str, confidence: float, *, counts_gans: bool) -> Estimate:
        if key in self.failures:
            return failed_estimate(self.failures[key])
        estimate = self._estimate(self.results[key], metric, confidence)
        if key.kind == GAN and counts_gans:
            estimate = gan_bounds.over_gans(estimate, [*self._of_gans(key, metric).values()], confidence)
        return replace(estimate, reason="; ".join(filter(None, [self.left_out.get(key, ""), estimate.reason])))

    def gan_estimate(self, key: GanKey, metric: str, confidence: float = CONFIDENCE) -> Estimate:
        """A metric of what a single GAN draws, the mean over repeats, bounded by test objects and its images."""
        result = self.by_gan.get((key.of_set(), key.gan))
        if result is None:
            cases = self.outside[key.of_set()]
            return failed_estimate(next(case.failure for case in cases if _gan(case) == key.gan and case.failure))
        return self._estimate(result, metric, confidence)

    def _of_gans(self, key: SetKey, metric: str) -> dict[int, Sequence[float]]:
        """The values of a metric in all repeats of each GAN of a configuration."""
        return {gan: result.values[metric] for (own, gan), result in self.by_gan.items() if own == key}

    @staticmethod
    def _estimate(result: _Result, metric: str, confidence: float = CONFIDENCE) -> Estimate:
        value, estimate = mean_defined(result.values[metric]), no_estimate("one side is empty")
        if not math.isnan(value):
            if metric in result.ranked:
                bounded = replace(ranked_estimate([result.ranked[metric]], (), confidence), value=value)
            else:
                bounded = bootstrap_estimate(value, result.resampled[metric], result.groups, confidence)
            reason = "; ".join(filter(None, [ties_in_words(result.ties), bounded.reason]))
            estimate = replace(bounded, sd=standard_deviation(result.values[metric]), reason=reason)
        return estimate.over(result.n, result.groups)

    def compare(self, other: Self, before: Compared, after: Compared, metrics: Sequence[str]) -> Iterator[PairedChange]:
        """Every set by each of the metrics, bounded by the objects of both sides; of GANs, by GANs."""
        keys, others = self._sets(before), other._sets(after)
        shown = [
            {name: _shown_as(evidence.outside[key]) for name, key in sets.items()}
            for evidence, sets in ((self, keys), (other, others))
        ]
        for name in dict.fromkeys([*keys, *others]):
            why = not_paired((before, after), shown, name)
            same = not why and self._reads_the_same(keys[name], other, others[name])
            for metric in metrics:
                change = after.change(name, (keys.get(name) or others[name]).level, metric, {"ood_set": name}, why)
                change = change if why else self._changed(change, keys[name], other, others[name])
                yield of_same_cases(change) if same else change

    def _reads_the_same(self, key: SetKey, other: Self, other_key: SetKey) -> bool:
        """Whether two models are told from a set by the same cases, and by certainties, which these hold."""
        read = [[*chain(*own.pairs(of_set))] for own, of_set in ((self, key), (other, other_key))]
        return same_cases(*read) and self.drawing == other.drawing and not self.drawing["monitor"]

    def _changed(self, change: PairedChange, key: SetKey, other: Self, other_key: SetKey) -> PairedChange:
        before, after = self.results.get(key), other.results.get(other_key)
        if before is None or after is None:
            return replace(change, reason="case failed")
        metric = change.metric
        values = [evidence.estimate(own, metric).value for evidence, own in ((self, key), (other, other_key))]
        change = replace(change, before=values[0], after=values[1], n=before.n, groups=before.groups)
        if before.members != after.members:
            return replace(change, reason=OTHER_IMAGES)
        by_objects, interval, smallest = _by_objects(change, before, after)
        if key.kind != GAN:
            return by_objects
        drawn = self._of_gans(key, metric), other._of_gans(other_key, metric)
        if set(drawn[0]) != set(drawn[1]):
            return replace(change, reason="a GAN failed for one of the two alone")
        return by_units(by_objects, gan_bounds.differences(*drawn), gan_bounds.GANS, interval, smallest)

    def _sets(self, system: Compared) -> dict[str, SetKey]:
        return {key.ood_set: key for key in self.keys if key.model == system.model}

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """A measurement per model and set, or per model and GAN where the criterion has the condition `gan`.

        Where it names conditions of the data, the same of each slice that it asks for.
        """
        asked = asked_slices(self.slicing.breakdown, criterion, by_condition.WHERE)
        keys = asked_sets(self.keys, self.gan_keys, asked.criterion)
        if not asked.slices:
            return [self.measurement(key, criterion, confidence) for key in keys]
        return [*by_condition.measurements(self, asked.slices, keys, criterion, confidence)]

    def deciding(self, criterion: Criterion, measured: Measurement) -> Why:
        """The objects that lose most pairs of a test image and an outlier."""
        if other := [name for name in measured.where if name not in {field.name for field in fields(GanKey)}]:
            return no_single_images(f"the condition {other[0]} speaks of a part of the images")
        asked = asked_sets(self.keys, self.gan_keys, criterion)
        wanted = measured.where.items()
        key = next(key for key in asked if all(getattr(key, name) == value for name, value in wanted))
        return decide(self.pairs(key), partial(mix, sides=self.drawing["sides"]), self.class_names, criterion)

    def measurement(self, key: SetKey, criterion: Criterion, confidence: float) -> Measurement:
        """What a criterion is told of a set, or of a single GAN."""
        metric = criterion.metric
        if isinstance(key, GanKey):
            return gan_bounds.gan_measurement(key, self.gan_estimate(key, metric, confidence))
        measured = Measurement({"model": key.model, "ood_set": key.ood_set}, self.estimate(key, metric, confidence))
        if key.kind != GAN:
            return measured
        measured = replace(measured, unit=gan_bounds.GANS)
        if measured.estimate.unbounded:
            return measured
        images, values = self._estimate(self.results[key], metric, confidence), self._of_gans(key, metric).values()
        return replace(measured, further=gan_bounds.further_gans(images, [*values], criterion.threshold, confidence))

    def tables(self) -> dict[str, pd.DataFrame]:
        """One row per model, set and metric; averages per kind; every repeat; scores of both sides in bins; GANs.

        The tables of a run that was planned before GANs were counted keep the bounds they had, by images; criteria and
        comparisons count GANs there too.
        """
        scores = {key: result.score for key, result in self.results.items()}
        rows = [
            self._set_estimate(key, name, CONFIDENCE, counts_gans=self.counts_gans).row(key.where(), name)
            | {"score": scores.get(key, "")}
            | self.unit(key)
            for key in self.keys
            for name in NAMES
        ]
        tables = {
            table_specs.SETS: rows,
            table_specs.BY_KIND: self._kind_rows(),
            table_specs.REPEATS: self._repeat_rows(),
            table_specs.SCORES: self._score_rows(),
            **self._gan_rows(),
            **by_condition.condition_tables(self),
        }
        return {spec.name: spec.frame(own) for spec, own in tables.items()}

    def unit(self, key: SetKey) -> dict[str, str]:
        """What the column `groups` counts; said where it is not the same in all rows."""
        return {"unit": gan_bounds.GANS if key.kind == GAN else "objects"} if self.counts_gans else {}

    def _gan_rows(self) -> dict[TableSpec, list[dict[str, Any]]]:
        """Every GAN by itself, the hardest of each configuration marked; and repeat by repeat. None without GANs."""
        if not self.by_gan:
            return {}
        rows, repeats = [], []
        for (key, gan), result in self.by_gan.items():
            one_gan = {"model": key.model, "ood_set": key.ood_set, "gan": gan}
            one_gan["hardest"] = self.hardest[key.ood_set] == gan
            where = one_gan | ({"unit": gan_bounds.ONE_GAN} if self.counts_gans else {})
            training = training_of(next(case for case in self.outside[key] if _gan(case) == gan))
            rows += [{**self._estimate(result, name).row(where, name), **training} for name in NAMES]
            repeats += [
                {**one_gan, "repeat": repeat, "metric": metric, "value": value}
                for metric, values in result.values.items()
                for repeat, value in zip(result.repeats, values, strict=True)
            ]
        return {table_specs.GANS: rows, table_specs.GAN_REPEATS: repeats}

    def _kind_rows(self) -> list[dict[str, Any]]:
        """Per model and kind of set the mean over its sets. Sets share images, so the mean has no bound of its own."""
        kinds = grouped(((key.model, kind), key) for key in self.results for kind in (key.kind, "all"))
        return [
            {
                "model": model,
                "kind": kind,
                "sets": len(keys),
                "metric": metric,
                "value": mean_defined([mean_defined(self.results[key].values[metric]) for key in keys]),
            }
            for (model, kind), keys in kinds.items()
            for metric in NAMES
        ]

    def _repeat_rows(self) -> list[dict[str, Any]]:
        return [
            {**key.where(), "repeat": repeat, "metric": metric, "value": value}
            for key, result in self.results.items()
            for metric, values in result.values.items()
            for repeat, value in _by_repeat(result.repeats, values)
        ]

    def _score_rows(self) -> list[dict[str, Any]]:
        return [
            {"model": key.model, "ood_set": key.ood_set, "from": result.edges[bin_], "to": result.edges[bin_ + 1]}
            | {"in": inside, "out": outside}
            for key, result in self.results.items()
            for bin_, (inside, outside) in enumerate(result.histogram.T.tolist())
        ]

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """A strip of images per set with the answers to them, and what GANs drew."""
        return {spec.name: spec.frame(own) for spec, own in save_gallery(self, cases, media).items()}


def _shown_as(cases: Sequence[StoredCase]) -> str:
    """What two systems must have been shown alike: the code of a set, and the GANs that drew it."""
    return " ".join([cases[-1].stimulus.code, *sorted({case.labels.get("artifact", "") for case in cases})])


def _gan(case: KnownCase | PlannedCase) -> int:
    return int(case.labels["gan"])


def _hardest_gans(results: Mapping[tuple[SetKey, int], _Result]) -> dict[str, int]:
    """Per configuration the GAN with the lowest mean AUROC over all models and repeats: chosen on the test data."""
    values: dict[str, dict[int, list[float]]] = {}
    for (key, gan), result in results.items():
        values.setdefault(key.ood_set, {}).setdefault(gan, []).extend(result.values["auroc"])
    return {name: min(by_gan, key=lambda gan: mean_defined(by_gan[gan])) for name, by_gan in values.items()}


def _by_repeat(repeats: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
    """One value per repeat: the mean where there are several, one per GAN."""
    by_repeat = grouped(zip(repeats, values, strict=True))
    return [(repeat, own[0] if len(own) == 1 else mean_defined(own)) for repeat, own in by_repeat.items()]


def _by_objects(
    change: PairedChange, before: _Result, after: _Result
) -> tuple[PairedChange, Callable[[float], tuple[float, float, str]], float]:
    """The change bounded by the objects of both sides, its interval at any confidence, and the smallest p."""
    metric, objects = change.metric, change.groups
    if metric in before.ranked:
        figures, figures_after = ([own.ranked[metric]] if own.ranked[metric] else [] for own in (before, after))

        def ranked(confidence: float) -> tuple[float, float, str]:
            estimate = ranked_estimate(figures_after, figures, confidence)
            return estimate.lo, estimate.hi, estimate.reason

        return by_ranked(change, figures, figures_after), ranked, SMALLEST_P
    drawn = before.resampled[metric], after.resampled[metric]

    def resampled(confidence: float) -> tuple[float, float, str]:
        return paired_interval(change.after, change.before, drawn[1], drawn[0], objects, confidence)

    return by_bootstrap(change, *drawn), resampled, smallest_paired_p(*drawn)


@dataclass(frozen=True)
class _Measured:
    """The metrics of one mixture, what bounds those of a ranking, and the others in every resample, (B,) each."""

    values: Mapping[str, float]
    ranked: Mapping[str, RankedFigure]
    resampled: Mapping[str, NDArray[np.float64]]


def _measured(mixture: Mixture, objects: Mapping[str, int], bootstrap: GroupBootstrap) -> _Measured:
    ranking = Ranking(np.asarray(mixture.scores, np.float64), mixture.inside)
    whole = ranking.separation(equal_shares=True)
    index = np.array([objects[name] for name in mixture.groups], np.intp)
    precisions = {AUPR_IN.name: ranking, AUPR_OUT.name: ranking.reversed}
    drawn: dict[str, list[NDArray[np.float64]]] = {name: [] for name in precisions}
    for weights in bootstrap.chunks():
        for name, own in precisions.items():
            drawn[name].append(own.average_precision(weights, equal_shares=True))
    by_image = {} if ranking.one_sided else {metric.name: metric.ranked for metric in METRICS if metric.ranked}
    return _Measured(
        values={name: float(getattr(whole, name)[0]) for name in NAMES},
        ranked={name: ranked_figure(of(ranking), index, len(objects)) for name, of in by_image.items()},
        resampled={name: np.concatenate(parts) for name, parts in drawn.items()},
    )


def _result(
    measured: Sequence[_Measured],
    mixtures: Sequence[Mixture],
    cases: Sequence[StoredCase],
    *,
    monitor: str | None = None,
) -> _Result:
    """What is kept of the mixtures of one set; the scores of a monitor are binned over all that it gives."""
    edges = np.arange(BINS + 1) / BINS if monitor is None else _edges(mixtures)
    histogram = np.zeros((2, BINS), np.int64)
    for mixture in mixtures:
        for side, of_side in enumerate((mixture.inside, ~mixture.inside)):
            inner = mixture.shown[of_side].clip(edges[0], edges[-1])
            histogram[side] += np.histogram(inner, bins=BINS, range=(edges[0], edges[-1]))[0]
    return _Result(
        values={name: [one.values[name] for one in measured] for name in NAMES},
        ranked={name: [one.ranked[name] for one in measured if name in one.ranked] for name in RANKED},
        resampled={name: mean_rows([one.resampled[name] for one in measured]) for name in measured[0].resampled},
        n=len(mixtures[0].scores),
        groups=len(set(mixtures[0].groups)),
        members=mixtures[0].groups,
        score=monitor or mixtures[0].score,
        histogram=histogram,
        edges=edges,
        repeats=tuple(case.stimulus.repeat for case in cases),
        ties=mean_defined([mixture.ties for mixture in mixtures]),
    )


def _edges(mixtures: Sequence[Mixture]) -> NDArray[np.float64]:
    """The edges (BINS + 1,) of equal bins from the lowest to the highest finite score."""
    scores = np.concatenate([mixture.shown for mixture in mixtures])
    finite = scores[np.isfinite(scores)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def mix(inside: Readouts, outside: Readouts, sides: Sides = "all") -> Mixture:
    """Both sides of a set. Where they are to be `equal`, of the larger one those whose ids have the smallest hashes."""
    most = min(len(inside.ids), len(outside.ids)) if sides == "equal" else max(len(inside.ids), len(outside.ids))
    one, other = _chosen(inside.ids, most), _chosen(outside.ids, most)
    score, own = own_scores([inside, outside])
    scores = np.concatenate([own[0][one], own[1][other]])
    shown = scores
    if score == LOG_ODDS:
        shown = np.concatenate([inside.answers.confidence[one], outside.answers.confidence[other]])
    groups = tuple(inside.groups[row] for row in one) + tuple(outside.groups[row] for row in other)
    return Mixture(scores, np.arange(len(scores)) < len(one), groups, score, (*one, *other), shown)


def _chosen(ids: Sequence[str], most: int) -> list[int]:
    if len(ids) <= most:
        return [*range(len(ids))]
    hashes = [hashlib.sha256(image_id.encode()).digest() for image_id in ids]
    return sorted(sorted(range(len(ids)), key=hashes.__getitem__)[:most])


def gan_keys(cases: Sequence[KnownCase]) -> list[GanKey]:
    """Every model and GAN of these cases, sorted."""
    drawn = {GanKey(**vars(SetKey.of(case)), gan=_gan(case)) for case in cases if case.labels.get("kind") == GAN}
    return sorted(drawn, key=lambda key: (key.order(), key.gan))


def asked_sets(
    keys: Sequence[SetKey], gans: Sequence[GanKey], criterion: Criterion, metrics: Sequence[str] = NAMES
) -> Sequence[SetKey]:
    """The sets, or the single GANs, that a criterion asks for; an `InputError` where it asks for what is not measured.

    It asks for single GANs where it has the condition `gan`: numbers as in the table `gan`, or `all` of them.
    """
    label = f"criterion {criterion.id}"
    if criterion.metric not in metrics:
        raise InputError(f"{label}: {unknown_metric(criterion.metric, metrics, METRICS)}")
    if criterion.over == "pooled":
        raise InputError(f"{label}: sets of outliers cannot be pooled: ask for each or worst")
    if "gan" in criterion.where:
        return gan_bounds.asked_gans(gans, criterion)
    return matching(label, list(dict.fromkeys(keys)), [field.name for field in fields(SetKey)], criterion)
