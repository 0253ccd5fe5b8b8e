"""Evidence of the benchmark of monitors: every table and every measurement, from stored answers and representations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from roadworthy.core.competence import is_undertrained
from roadworthy.core.errors import RoadworthyError
from roadworthy.engine.artifacts import read_artifact
from roadworthy.engine.plan import PlannedCase
from roadworthy.monitors.id_threshold import IdThreshold, Promise, class_promises, promise_kept
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared, Part, StoredCase
from roadworthy.protocols.in_service import Watchable, measured_bound
from roadworthy.protocols.monitoring import table_specs
from roadworthy.protocols.monitoring.comparison import compare_monitors
from roadworthy.protocols.monitoring.costs import Costs
from roadworthy.protocols.monitoring.courses import courses, event_estimates, timeline_rows
from roadworthy.protocols.monitoring.criteria import asked_conditions, family_of, measurements
from roadworthy.protocols.monitoring.evaluation import Bounds, evaluate, resamples_of, risk_rows, sweep_rows
from roadworthy.protocols.monitoring.gallery import save_sets
from roadworthy.protocols.monitoring.live import timed
from roadworthy.protocols.monitoring.metrics import ACCURACY, CLASS_MCC_ALONE, ID_METRICS, REJECTED
from roadworthy.protocols.monitoring.names import ALONE, TEST, TRAIN, VALID
from roadworthy.protocols.monitoring.scenes import Answered, ModelScenes, Scene, mixing_of
from roadworthy.protocols.monitoring.settings import Context, Settings
from roadworthy.protocols.monitoring.summaries import overall_rows, rank_rows, with_mean_sweep
from roadworthy.protocols.monitoring.watching import Decided, Watched, nothing_rejected, watch
from roadworthy.statistics import Estimate, class_mcc_estimates, proportion_interval
from roadworthy.statistics.estimates import CONFIDENCE, no_estimate
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Criterion, Measurement

Rows = list[dict[str, Any]]
PLACES = ("model", "benchmark", "monitor")


class Evidence(base.Evidence):
    """What the stored cases of one source say."""

    def __init__(self, part: Part, settings: Settings, *, seed: int = 0) -> None:
        self.cases: Sequence[StoredCase] = part.cases
        self.context: Context = part.context
        self.classes, self.class_names = len(part.class_names), part.class_names
        self.settings, self.seed = settings, seed
        self.bounds = Bounds(CONFIDENCE, settings.resamples, seed)
        self.costs = Costs.of_tables(*(part.measured(spec.name) for spec in (table_specs.TIMING, table_specs.TIMES)))
        self._scenes: dict[str, ModelScenes] = {}
        self._watched: dict[tuple[str, str], Watched | str] = {}

    def scenes(self, model: str) -> ModelScenes:
        """What a model answered."""
        if model not in self._scenes:
            own = [case for case in self.cases if case.labels["model"] == model]
            mixing = mixing_of(self.settings, self.seed)
            self._scenes[model] = ModelScenes(model, own, self.context.benchmarks, mixing)
        return self._scenes[model]

    def monitor_cases(self, model: str, label: str) -> list[StoredCase]:
        """The cases of one monitor on one model."""
        return [
            case
            for case in self.cases
            if case.labels["role"] == "monitor" and case.labels["model"] == model and case.system == label
        ]

    def watched(self, model: str, label: str) -> Watched | str:
        """What one monitor on one model decides, or why it decides nothing."""
        if (model, label) not in self._watched:
            self._watched[model, label] = watch(
                label,
                self.context,
                self.monitor_cases(model, label),
                self.scenes(model),
                [*self.context.benchmarks],
                self.settings,
                self.seed,
            )
        return self._watched[model, label]

    def decided(self, model: str, benchmark: str, label: str) -> Decided | str:
        """The decisions of a monitor, or of the model alone, in a stream; or why there are none."""
        if label == ALONE:
            scene = self.scenes(model).scene(benchmark)
            return scene if isinstance(scene, str) else nothing_rejected(scene)
        watched = self.watched(model, label)
        return watched if isinstance(watched, str) else watched.decided[benchmark]

    @cached_property
    def weak(self) -> list[str]:
        """The models whose network is below the clean accuracy that was asked of it."""
        weak = []
        for model, networks in self.context.networks.items():
            for network in networks:
                try:
                    competence = read_artifact(self.cases[0].artifact(network))["competence"]
                except RoadworthyError:
                    continue
                if is_undertrained(competence):
                    weak.append(model)
        return weak

    def _where(self, model: str, benchmark: str, monitor: str) -> dict[str, Any]:
        note = self.context.benchmarks[benchmark]
        where = {"model": model, "benchmark": benchmark, "ood_kind": note.kind}
        return {**where, "near": note.near, "monitor": monitor}

    @cached_property
    def rows(self) -> Rows:
        """The rows of the main table, stream by stream."""
        rows = Rows()
        for model in self.context.architectures:
            for benchmark in self.context.benchmarks:
                scene = self.scenes(model).scene(benchmark)
                resampled = None if isinstance(scene, str) else resamples_of(scene, self.bounds)
                for label in (ALONE, *self.context.monitors):
                    where, decided = self._where(model, benchmark, label), self.decided(model, benchmark, label)
                    rows += evaluate(where, scene, decided, self.bounds, resampled=resampled)
        return rows

    def lost(self) -> str:
        """Why no monitor has any decision."""
        reasons = [
            self.decided(model, benchmark, label)
            for model in self.context.architectures
            for label in self.context.monitors
            for benchmark in self.context.benchmarks
        ]
        if any(isinstance(reason, Decided) for reason in reasons):
            return ""
        return f"every monitor failed; the first: {reasons[0]}"

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol."""
        ranks, pairs = rank_rows(self.rows, self.weak)
        risk, sweep, events, timeline, alarms = self._stream_rows()
        rows = {
            table_specs.DECISIONS: self.rows,
            table_specs.OVERALL: overall_rows(self.rows),
            table_specs.IMPACT_ON_ID: self._impact_rows(),
            table_specs.THRESHOLDS: self._threshold_rows(),
            table_specs.COMPETENCE: self._competence_rows(),
            table_specs.SETS: self._set_rows(),
            table_specs.RISK: risk,
            table_specs.SWEEP: with_mean_sweep(sweep),
            table_specs.RANKS: ranks,
            table_specs.PAIRS: pairs,
            table_specs.EVENTS: events,
            table_specs.TIMELINE: timeline,
            table_specs.ALARMS: alarms,
        }
        made = {spec.name: spec.frame(own) for spec, own in rows.items()}
        return made | ({table_specs.TIMING.name: self.costs.frame()} if self.costs.facts else {})

    def _decisions(self) -> Iterator[tuple[dict[str, Any], Scene | str, Decided | str, Watched | str]]:
        """Every monitor in every stream: model, benchmark and monitor, the stream, the decisions and the monitor."""
        for model in self.context.architectures:
            for benchmark in self.context.benchmarks:
                scene = self.scenes(model).scene(benchmark)
                for label in self.context.monitors:
                    where = dict(zip(PLACES, (model, benchmark, label), strict=True))
                    yield where, scene, self.decided(model, benchmark, label), self.watched(model, label)

    def _stream_rows(self) -> tuple[Rows, Rows, Rows, Rows, Rows]:
        """The rows of risk and coverage, of sweeps, of events, of the timeline and of alarms."""
        risk, sweep, events, timeline, alarms = Rows(), Rows(), Rows(), Rows(), Rows()
        for where, scene, decided, watched in self._decisions():
            for metric, estimate in event_estimates(scene, decided, self.settings).items():
                events.append(_event_row(where, metric, estimate))
            if isinstance(scene, str) or isinstance(decided, str) or isinstance(watched, str):
                continue
            by_test = courses(scene, decided, watched, self.settings)
            risk += risk_rows(where, scene, decided)
            sweep += sweep_rows(where, scene, decided, watched) if watched.has_sweep else []
            timeline += timeline_rows(where, scene, decided, by_test)
            alarms += [course.row(where) for course in by_test.values()]
        return risk, sweep, events, timeline, alarms

    def _impact(self, model: str, label: str, confidence: float) -> dict[str, Estimate]:
        """What a monitor does to a model on all ID test images, by metric."""
        watched, test = self.watched(model, label), self.scenes(model).answered(TEST)
        if isinstance(watched, str) or isinstance(test, str):
            reason = watched if isinstance(watched, str) else str(test)
            return {metric.name: no_estimate(reason) for metric in ID_METRICS}
        estimates = class_mcc_estimates(
            test.label,
            test.prediction,
            watched.rejected,
            test.groups,
            self.classes,
            confidence=confidence,
            resamples=self.settings.resamples,
            seed=self.seed,
        )
        return {**estimates, REJECTED.name: proportion_interval(watched.rejected, test.groups, confidence)}

    def _impact_rows(self) -> Rows:
        return [
            estimate.row({"model": model, "monitor": label}, metric)
            for model in self.context.architectures
            for label in self.context.monitors
            for metric, estimate in self._impact(model, label, CONFIDENCE).items()
        ]

    def _threshold_rows(self) -> Rows:
        """The thresholds of every monitor, with what they reject of ID test images; monitors left out, too."""
        rows = Rows()
        for model in self.context.architectures:
            for label in self.context.monitors:
                watched, test = self.watched(model, label), self.scenes(model).answered(TEST)
                where = {"model": model, "monitor": label}
                if isinstance(watched, str) or isinstance(test, str):
                    reason = watched if isinstance(watched, str) else str(test)
                    rows.append({**where, "class": "", "value": math.nan, "reason": reason})
                    continue
                rows += _thresholds(where, watched, test, self.class_names)
            rows += [
                {"model": model, "monitor": label, "class": "", "value": math.nan, "reason": reason}
                for label, reason in self.context.left_out.items()
            ]
        return rows

    def _competence(self, model: str, part: str, confidence: float) -> dict[str, Estimate]:
        """How well a model classifies a part of its undisturbed data, by metric."""
        answered = self.scenes(model).answered(part)
        if isinstance(answered, str):
            return {metric.name: no_estimate(answered) for metric in (ACCURACY, CLASS_MCC_ALONE)}
        right = answered.label == answered.prediction
        nothing = np.zeros(len(answered), bool)
        estimates = class_mcc_estimates(
            answered.label,
            answered.prediction,
            nothing,
            answered.groups,
            self.classes,
            confidence=confidence,
            resamples=self.settings.resamples,
            seed=self.seed,
        )
        accuracy = proportion_interval(right, answered.groups, confidence)
        return {ACCURACY.name: accuracy, CLASS_MCC_ALONE.name: estimates[CLASS_MCC_ALONE.name]}

    def _competence_rows(self) -> Rows:
        shown = {case.labels["set"] for case in self.cases}
        return [
            estimate.row(
                {"model": model, "architecture": architecture, "undertrained": model in self.weak, "part": part}, metric
            )
            for model, architecture in self.context.architectures.items()
            for part in (TRAIN, VALID, TEST)
            if part in shown
            for metric, estimate in self._competence(model, part, CONFIDENCE).items()
        ]

    def _set_rows(self) -> Rows:
        """Every benchmark, and those that the source does not meet, with the reason."""
        rows = Rows()
        mixed_by = {"ratio": self.settings.ratio, "order": self.settings.order}
        for name, note in self.context.benchmarks.items():
            scenes = [self.scenes(model).scene(name) for model in self.context.architectures]
            scene = next((scene for scene in scenes if isinstance(scene, Scene)), None)
            reasons = [scene for scene in scenes if isinstance(scene, str)]
            ood = 0 if scene is None else int(scene.stream.ood.sum())
            leaked = f"{self.context.leaked} ID test images are validation images too" if self.context.leaked else ""
            rows.append(
                {
                    "benchmark": name,
                    "ood_kind": note.kind,
                    "near": note.near,
                    "made_from": note.made_from,
                    "has_label": note.has_label,
                    "keeps_label": note.keeps_label,
                    "attacked": ", ".join(self.context.architectures) if note.attacks else "",
                    "images_id": 0 if scene is None else len(scene) - ood,
                    "images_ood": ood,
                    "objects": 0 if scene is None else len(np.unique(scene.groups)),
                    **mixed_by,
                    "leaked": note.leaked,
                    "note": "; ".join(filter(None, [note.note, leaked, *dict.fromkeys(reasons)])),
                }
            )
        for name, reason in self.context.skipped.items():
            nothing = {"images_id": 0, "images_ood": 0, "objects": 0, "leaked": 0}
            rows.append({"benchmark": name, "ood_kind": "", **nothing, **mixed_by, "note": f"not met: {reason}"})
        return rows

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion, evaluated anew with the confidence that it asks for."""
        asked = asked_conditions(criterion, self.context)
        measured = [(condition, self._measured(condition, criterion.metric, confidence)) for condition in asked]
        return measurements(criterion, measured, confidence)

    def _measured(self, condition: Mapping[str, Any], metric: str, confidence: float) -> Estimate:
        """One metric at one condition."""
        family, model = family_of(metric), condition["model"]
        if family == "competence":
            return self._competence(model, condition["part"], confidence)[metric]
        label = condition["monitor"]
        if family == "cost":
            return self.costs.estimate((model, label, condition["form"]), metric, confidence)
        if family == "id":
            return self._impact(model, label, confidence)[metric]
        benchmark = condition["benchmark"]
        scene, decided = self.scenes(model).scene(benchmark), self.decided(model, benchmark, label)
        if family == "stream":
            return event_estimates(scene, decided, self.settings, confidence)[metric]
        bounds = Bounds(confidence, self.settings.resamples, self.seed)
        rows = evaluate(self._where(model, benchmark, label), scene, decided, bounds, [metric])
        row = next(row for row in rows if row["view"] == condition["view"] and row["part"] == condition["part"])
        fields = ("value", "lo", "hi", "n", "groups", "method", "reason")
        return Estimate(**{name: row[name] for name in fields})

    def compare(self, other: Self, before: Compared, after: Compared, metrics: Sequence[str]) -> Iterator[PairedChange]:
        """Every monitor in every stream that both models have: see `compare_monitors`."""
        yield from compare_monitors(self, other, before, after, metrics)

    def in_service(self) -> list[Watchable]:
        """The share of ID test images that each monitor rejects."""
        return [
            self._rejection(model, label) for model in self.context.architectures for label in self.context.monitors
        ]

    def _rejection(self, model: str, label: str) -> Watchable:
        watched = self.watched(model, label)
        below = "" if isinstance(watched, str) else f" (its score lies below {watched.threshold.threshold!r})"
        classes = "" if isinstance(watched, str) or not watched.threshold.classes else ", by the threshold of its class"
        share = Watchable(
            REJECTED.name,
            {"model": model, "monitor": label},
            adds=f"1 where monitor {label} rejects the image{classes or below}, else 0",
            images="every image that the monitor decides about, one of each object",
            measured=self._impact(model, label, CONFIDENCE)[REJECTED.name],
        )
        return measured_bound(share, "at_most")

    def live(self, cases: Sequence[PlannedCase], earlier: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """What models and monitors cost image by image, as far as that was not measured before."""
        facts, times = timed(self, cases, earlier)
        self.costs = Costs.of_tables(facts, times)
        if not len(times):
            return {}
        return {table_specs.TIMING.name: self.costs.frame(), table_specs.TIMES.name: times}

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """A strip of a few images of every benchmark, and of the ID side, with what the models answered."""
        sets, answers = save_sets(self, cases, media)
        rows = {table_specs.GALLERY: sets, table_specs.GALLERY_ANSWERS: answers}
        return {spec.name: spec.frame(own) for spec, own in rows.items()}


def _event_row(where: Mapping[str, Any], metric: str, estimate: Estimate) -> dict[str, Any]:
    numbers = {"value": estimate.value, "lo": estimate.lo, "hi": estimate.hi, "n": estimate.n}
    return {**where, "metric": metric, **numbers, "reason": estimate.reason}


def _thresholds(where: Mapping[str, Any], watched: Watched, test: Answered, class_names: Sequence[str]) -> Rows:
    """The threshold of a monitor for all answers, then those of predicted classes."""
    threshold = watched.threshold
    promise = promise_kept(threshold, watched.test, test.groups, predictions=test.prediction)
    notes = [*watched.notes]
    if watched.in_order:
        promise = Promise(math.nan, math.nan, proportion_interval(watched.rejected, test.groups), None, False)
        notes.append("it decides in order, so that its threshold promises nothing of what it rejects")
    rows = [_threshold_row({**where, "class": ""}, threshold, promise, "; ".join(notes))]
    if threshold.classes:
        promises = class_promises(threshold, watched.test, test.groups, test.prediction)
        rows += [
            _threshold_row({**where, "class": class_names[label]}, threshold.classes[label], own, "")
            for label, own in promises.items()
        ]
    return rows


def _threshold_row(where: Mapping[str, Any], threshold: IdThreshold, promise: Promise, notes: str) -> dict[str, Any]:
    measured, rule = promise.measured, threshold.rule
    uses_share = rule.rule in ("share", "conformal")
    return {
        **where,
        "rule": f"{rule.rule} per class" if rule.per_class else rule.rule,
        "threshold": threshold.threshold,
        "rejected": rule.rejected if uses_share else math.nan,
        "confidence": rule.confidence if rule.promises else math.nan,
        "achieved": threshold.achieved,
        "images": threshold.images,
        "objects": threshold.objects,
        "rank": math.nan if threshold.rank is None else float(threshold.rank),
        **{name: getattr(measured, name) for name in ("value", "lo", "hi", "n", "groups")},
        "promise": promise.word,
        "notes": notes,
        "reason": "; ".join(filter(None, [threshold.reason, measured.reason])),
    }
