"""Evidence of dependability: the eight metrics from stored answers, conditions, activations and heat maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.engine.plan import PlannedCase
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import HIGHER_IS_BETTER, METRICS, Answers, per_image, value_range
from roadworthy.metrics import reason as reason_of
from roadworthy.metrics.confidence_loss import ConfidenceLoss, confidence_loss
from roadworthy.metrics.coverage import (
    Coverage,
    Projection,
    condition_text,
    is_missing,
    propose_scenarios,
    scenario_coverage,
)
from roadworthy.metrics.neurons import NeuronCoverage, activation_pattern
from roadworthy.metrics.occlusion import (
    NO_HOT,
    NO_OBJECT,
    OcclusionScores,
    occlusion_scores,
    relative_rho,
    summarise,
)
from roadworthy.metrics.weighted_confusion import WeightedConfusion
from roadworthy.protocols import base
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.dependability import pictures
from roadworthy.protocols.dependability.names import (
    ALL,
    DATA,
    NAME,
    PROPOSAL,
    FigureKey,
    activation_metric,
    class_scope,
    layer_scope,
    select,
    value_scope,
)
from roadworthy.protocols.dependability.probes import CONDITION
from roadworthy.protocols.dependability.settings import Context
from roadworthy.protocols.estimates import CONFIDENCE, RESAMPLES, Estimate, bootstrap_bounds, failed_estimate
from roadworthy.statistics import GroupBootstrap, mean_interval, proportion_interval
from roadworthy.statistics.degradation import domain_performance, time_between_failures, worst_slices
from roadworthy.verdict import Criterion, Measurement

RHOS = tuple(place / 20 for place in range(21))
MISREAD, BELOW = "misread without a patch", "below rho without a patch"
"""Why an image does not count: with every place hidden it has nothing left to lose, or nothing to compare with."""
COLUMNS: Mapping[str, Sequence[str]] = {
    "cells": ("count", "minimum", "weight", "status"),
    "uncovered": ("count", "minimum", "weight"),
    "proposals": PROPOSAL,
    "neurons": (
        *("model", "layer", "k", "value", "occupied", "cells", "neurons", "tuples", "exact", "never_on", "always_on"),
        *("images", "reason"),
    ),
    "patterns": ("model", "layer", "scenario", "value", "n", "largest", "sizes", "reason"),
    "loss": ("model", "id", "label", "undisturbed", "worst", "change", "transformer"),
    "transformers": ("model", "transformer", "mean_change", "wins", "accuracy", "n", "reason"),
    "scenarios": ("model", "metric", "conditions", "scenario", "value", "lo", "hi", "n", "groups", "reason"),
    "slices": (
        *("model", "metric", "scenario", "value", "lo", "hi", "elsewhere", "difference", "difference_lo"),
        *("difference_hi", "p", "p_holm", "n", "groups", "looked_at", "too_small"),
    ),
    "domain": ("model", "metric", "threshold", "situation", "frequency", "value", "lo", "hi", "n", "groups", "reason"),
    "occlusion": (
        *("model", "id", "label", "undisturbed", "rho", "hot", "occluding", "both", "precision", "covering"),
        *("reason", "covering_reason"),
    ),
    "occlusion_classes": ("model", "scope", "metric", "value", "lowest", "highest", "n", "images", "reason"),
    "rho": (
        *("model", "rho", "relative", "precision", "precision_lowest", "precision_highest", "precision_images"),
        *("covering", "covering_lowest", "covering_highest", "covering_images"),
    ),
    "confusions": ("model", "label", "prediction", "count", "severity", "cost", "share"),
}
"""The companion tables and their columns; those of conditions come before."""

Row = dict[str, Any]
Bounded = Callable[[float], Estimate]


@dataclass(frozen=True)
class Figure:
    """One row of the table: its value with bounds for any confidence."""

    key: FigureKey
    n: int
    groups: int
    estimate: Bounded


@dataclass
class Found:
    """Figures, rows of companion tables, and why figures are missing, by (model, metric)."""

    figures: list[Figure] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    missing: dict[tuple[str, str], str] = field(default_factory=dict)
    cover: Coverage | None = None

    def add(self, model: str, scope: str, metric: str, n: int, groups: int, estimate: Bounded) -> None:
        """One more figure."""
        self.figures.append(Figure(FigureKey(model, scope, metric), n, groups, estimate))


@dataclass(frozen=True)
class Heat:
    """The heat maps of a model: `rows` of the data, why an image does not count, if so, and its scores."""

    rows: NDArray[np.int64]
    maps: NDArray[np.float32]
    cells: NDArray[np.bool_]
    undisturbed: NDArray[np.float64]
    left_out: NDArray[np.str_]
    rho: NDArray[np.float64]
    scores: OcclusionScores

    @property
    def counts(self) -> NDArray[np.bool_]:
        """Which images count."""
        return np.asarray(self.left_out == "")


class Evidence(base.Evidence):
    """What a run says about dependability. Rows come in an order that depends on names alone."""

    def __init__(
        self,
        cases: Sequence[StoredCase],
        class_names: Sequence[str],
        context: Context,
        *,
        seed: int = 0,
        resamples: int = RESAMPLES,
    ) -> None:
        self.cases, self.class_names, self.context = cases, tuple(class_names), context
        self.seed, self.resamples = seed, resamples
        self.keys = context.figures()
        self.clean = {case.system: case for case in self._of("undisturbed")}
        self.resolved, self.settings = context.resolved, context.resolved.settings
        names = {name: CONDITION + name for name in self.resolved.columns}
        (conditions,) = self._of("conditions")
        if conditions.failure:
            raise ModelError(conditions.failure)
        rows = conditions.columns("id", "group", "label", *names.values())
        self.ids: tuple[str, ...] = tuple(rows["id"].tolist())
        self.groups, self.labels = rows["group"], rows["label"]
        self.columns = {name: rows[stored] for name, stored in names.items()}
        self.objects = np.unique(self.groups, return_inverse=True)[1]
        self.losses: dict[str, tuple[ConfidenceLoss, NDArray[np.int64]]] = {}
        self.heat: dict[str, Heat] = {}

    def _of(self, role: str, model: str | None = None) -> list[StoredCase]:
        """The cases of a role, of all systems or of one, in the order of the plan."""
        return [case for case in self.cases if case.labels["role"] == role and model in (None, case.system)]

    @cached_property
    def conditions(self) -> dict[str, NDArray[np.str_]]:
        """The conditions of the schema as text, empty where an image has no value."""
        return {
            name: np.array([condition_text(value) for value in self.columns[name].tolist()])
            for name in self.resolved.conditions or {}
        }

    @cached_property
    def readouts(self) -> dict[str, Readouts]:
        """The undisturbed answers of every model that gave them."""
        found = {}
        for name in sorted(self.clean):
            if not self.clean[name].failure:
                found[name] = self.clean[name].load()
                if found[name].ids != self.ids:
                    raise InputError(f"the readouts of {name} are of other images than the run's conditions")
        return found

    @cached_property
    def found(self) -> Found:
        """All figures and rows."""
        found = Found()
        with _explained():
            cover = self._coverage(found)
            for name in sorted(self.clean):
                if self.clean[name].failure:
                    continue
                self._neurons(found, name)
                self._loss(found, name)
                self._degradation(found, name, math.nan if cover is None else cover.value)
                self._occlusion(found, name)
                self._confusion(found, name)
        return found

    @cached_property
    def figures(self) -> list[Figure]:
        """Every figure that was planned, measured or not, the data's first, then model by model."""
        measured = {figure.key: figure for figure in self.found.figures}
        order = [key for key in self.keys if key.model == DATA]
        order += [key for name in sorted(self.clean) for key in self.keys if key.model == name]
        return [measured.get(key) or self._absent(key) for key in order]

    def _absent(self, key: FigureKey) -> Figure:
        case = self.clean.get(key.model)
        if case is not None and case.failure:
            return Figure(key, 0, 0, lambda confidence: failed_estimate(case.failure))
        why = self.found.missing.get((key.model, key.metric), "no image of this scope")
        return Figure(key, 0, 0, lambda confidence: Estimate(math.nan, math.nan, math.nan, why, ""))

    def tables(self) -> dict[str, pd.DataFrame]:
        """One row per figure, and what the figures rest on."""
        rows = []
        for figure in self.figures:
            where = {"model": figure.key.model, "scope": figure.key.scope}
            rows.append(figure.estimate(CONFIDENCE).row(where, figure.key.metric, figure.n, figure.groups))
        tables = {NAME: pd.DataFrame(rows)}
        names = list(self.resolved.conditions or {})
        places = [f"{part}_{place + 1}" for place in range(self.resolved.k) for part in ("condition", "value")]
        before: Mapping[str, Sequence[str]] = {"cells": places, "uncovered": places, "proposals": names}
        with _explained():
            contents = self.found.rows | self._searched()
        for name, columns in COLUMNS.items():
            wanted = dict.fromkeys([*before.get(name, ()), *columns])
            tables[f"{NAME}_{name}"] = pd.DataFrame(contents[name], columns=list(wanted))
        return tables

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """A measurement per figure that matches."""
        figures = {figure.key: figure for figure in self.figures}
        found = []
        for key in select(self.keys, criterion):
            figure = figures[key]
            estimate = figure.estimate(confidence)
            found.append(
                Measurement(
                    where={"model": key.model, "scope": key.scope},
                    value=estimate.value,
                    lo=estimate.lo,
                    hi=estimate.hi,
                    n=figure.n,
                    groups=figure.groups,
                    method=estimate.method,
                    proportion=key.metric == "accuracy",
                    reason=estimate.reason,
                )
            )
        return found

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """Heat maps, the most expensive confusions and the images that lose most, worst first."""
        return pictures.save(self, cases, media)

    def _coverage(self, found: Found) -> Coverage | None:
        schema = self.resolved.condition_schema()
        if schema is None:
            found.missing[DATA, "scenario_coverage"] = self.resolved.no_schema
            return None
        groups = self.groups if self.settings.count == "objects" else None
        k, needs = self.resolved.k, self.resolved.needs()
        cover = scenario_coverage(schema, self.columns, k=k, needs=needs, groups=groups)
        left_out = [f"{count} images without {name}" for name, count in cover.missing.items() if count]
        left_out += [f"{name} is no condition: it has {why}" for name, why in self.resolved.left_out.items()]
        why = "nothing is needed" if math.isnan(cover.value) else "; ".join(left_out)
        exact = Estimate(cover.value, cover.value, cover.value, why, f"count of {cover.cells} cells of {k} conditions")
        found.add(DATA, ALL, "scenario_coverage", len(self.objects), self._groups(), lambda confidence: exact)
        for projection in cover.projections:
            found.rows["cells"] += _cell_rows(cover, projection)
        found.rows["uncovered"] = [row for row in found.rows["cells"] if row["status"] == "uncovered"]
        found.cover = cover
        return cover

    def _searched(self) -> dict[str, list[Row]]:
        """What is looked for: the worst slices, and scenarios to collect. No figure rests on it."""
        sliced = [
            row
            for model in self.readouts
            for metric in self.settings.sliced
            if self.conditions
            for row in self._slices(model, metric, self.readouts[model].answers)
        ]
        cover = self.found.cover
        if cover is None:
            return {"slices": sliced, "proposals": []}
        proposed = propose_scenarios(
            cover.schema,
            self.columns,
            k=self.resolved.k,
            needs=self.resolved.needs(),
            limit=self.settings.proposals,
            groups=self.groups if self.settings.count == "objects" else None,
        )
        return {"slices": sliced, "proposals": list(_proposal_rows(cover, proposed))}

    def _neurons(self, found: Found, model: str) -> None:
        why = self.context.models[model].reasons.get("activations", "")
        metrics = [activation_metric(k) for k in self.settings.activation_k] + ["neuron_pattern"]
        for case in self._of("layer", model):
            layer = case.labels["layer"]
            if case.failure:
                why = case.failure
                continue
            bits = case.columns("on", "neurons")
            on = np.unpackbits(bits["on"], axis=1, count=int(bits["neurons"][0])).astype(bool)
            for k in self.settings.activation_k:
                self._activation(found, model, layer, k, on)
            for scenario, rows in self._scenarios(1, everything=True):
                self._pattern(found, model, layer, scenario, rows, on)
        found.missing |= {(model, metric): why for metric in metrics if why}

    def _activation(self, found: Found, model: str, layer: str, k: int, on: NDArray[np.bool_]) -> None:
        where = {"model": model, "layer": layer, "k": k, "images": len(on), "neurons": on.shape[1]}
        where |= {"never_on": int((~on.any(axis=0)).sum()), "always_on": int(on.all(axis=0).sum())}
        if k > on.shape[1]:
            found.missing[model, activation_metric(k)] = why = f"the layer has {on.shape[1]} neurons"
            found.rows["neurons"].append({**where, "value": math.nan, "exact": False, "reason": why})
            return
        counter = NeuronCoverage(on.shape[1], k, threshold=0.5, seed=self.seed)
        counter.add(on)
        result = counter.result()

        def estimate(confidence: float) -> Estimate:
            if result.exact:
                return Estimate(result.value, result.value, result.value, result.reason, "count of all tuples")
            bounds = mean_interval(result.shares, range(result.tuples), 0, 1, confidence)
            return Estimate(bounds.value, bounds.lo, bounds.hi, result.reason, f"sample of {result.tuples} tuples")

        found.add(model, layer_scope(layer), activation_metric(k), len(on), self._groups(), estimate)
        names = ("value", "occupied", "cells", "tuples", "exact", "reason")
        found.rows["neurons"].append(where | {name: getattr(result, name) for name in names})

    def _pattern(
        self, found: Found, model: str, layer: str, scenario: str, rows: NDArray[np.intp], on: NDArray[np.bool_]
    ) -> None:
        pattern = activation_pattern(on[rows], self.settings.pattern_groups, threshold=0.5)
        group = np.minimum(on[rows].sum(axis=1) * len(pattern.sizes) // on.shape[1], len(pattern.sizes) - 1)
        apart = np.abs(group - pattern.largest) > 1
        bounded = _mean(apart, self.objects[rows], 0, 1, pattern.reason)
        scope = layer_scope(layer, scenario)
        found.add(model, scope, "neuron_pattern", len(rows), len(np.unique(self.objects[rows])), bounded)
        found.rows["patterns"].append(
            {
                "model": model,
                "layer": layer,
                "scenario": scenario or ALL,
                "value": pattern.value,
                "n": len(rows),
                "largest": pattern.largest,
                "sizes": " ".join(map(str, pattern.sizes.tolist())),
                "reason": pattern.reason,
            }
        )

    def _loss(self, found: Found, model: str) -> None:
        clean, place = self.readouts[model], {name: row for row, name in enumerate(self.ids)}
        after: dict[str, Readouts] = {}
        for label, reason in self.context.models[model].refused.items():
            found.rows["transformers"].append(
                {"model": model, "transformer": label, "wins": 0, "n": 0, "reason": reason}
            )
        shown = {case.labels["transformer"]: case for case in self._of("transformer", model)}
        for label, case in sorted(shown.items()):
            if case.failure:
                found.missing[model, "confidence_loss"] = why = f"case failed: {case.failure}"
                found.rows["transformers"].append(
                    {"model": model, "transformer": label, "wins": 0, "n": 0, "reason": why}
                )
            else:
                after[label] = case.load()
        if not after:
            found.missing.setdefault((model, "confidence_loss"), "no transformer was shown")
            return
        ids = next(iter(after.values())).ids
        rows = np.array([place[name] for name in ids], dtype=np.int64)
        loss = confidence_loss(
            [given.answers.p_label for given in after.values()], clean.answers.p_label[rows], list(after)
        )
        self.losses[model] = loss, rows
        objects = self.objects[rows]
        groups = len(np.unique(objects))
        if (model, "confidence_loss") not in found.missing:
            bounded = _mean(loss.per_image, objects, -1, 1, loss.reason)
            found.add(model, ALL, "confidence_loss", len(rows), groups, bounded)
        wins = loss.wins()
        for label, change in zip(loss.transformers, loss.change, strict=True):
            found.add(model, label, "confidence_loss", len(rows), groups, _mean(change, objects, -1, 1, loss.reason))
            found.rows["transformers"].append(
                {
                    "model": model,
                    "transformer": label,
                    "mean_change": float(change.mean()),
                    "wins": wins[label],
                    "accuracy": float(after[label].answers.correct.mean()),
                    "n": len(rows),
                    "reason": "",
                }
            )
        before = clean.answers.p_label[rows]
        for index in np.argsort(loss.per_image, kind="stable").tolist():
            found.rows["loss"].append(
                {
                    "model": model,
                    "id": ids[index],
                    "label": self.class_names[int(self.labels[rows[index]])],
                    "undisturbed": float(before[index]),
                    "worst": float(before[index] + loss.per_image[index]),
                    "change": float(loss.per_image[index]),
                    "transformer": loss.transformers[int(loss.winner[index])],
                }
            )

    def _degradation(self, found: Found, model: str, coverage: float) -> None:
        answers = self.readouts[model].answers
        for metric in self.settings.metrics:
            for count in (0, 1, 2):
                for scenario, rows in self._scenarios(count):
                    bounded = self._metric(metric, answers, rows)
                    groups = len(np.unique(self.objects[rows]))
                    if count < 2:
                        found.add(model, scenario or ALL, metric, len(rows), groups, bounded)
                    if not count and HIGHER_IS_BETTER[metric]:
                        found.add(model, ALL, f"{metric}_discounted", len(rows), groups, _scaled(bounded, coverage))
                    estimate = bounded(CONFIDENCE)
                    numbers = {"value": estimate.value, "lo": estimate.lo, "hi": estimate.hi, "reason": estimate.reason}
                    where = {"model": model, "metric": metric, "conditions": count, "scenario": scenario or ALL}
                    found.rows["scenarios"].append({**where, **numbers, "n": len(rows), "groups": groups})
            if math.isnan(coverage):
                found.missing[model, f"{metric}_discounted"] = (
                    self.resolved.no_schema or "scenario coverage is undefined"
                )
        self._field(found, model, answers)
        self._axis(found, model, answers)

    def _metric(self, metric: str, answers: Answers, rows: NDArray[np.intp]) -> Bounded:
        """A metric over some images, bounded by objects."""
        part, objects = _take(answers, rows), self.objects[rows]
        value = float(METRICS[metric](part))
        if math.isnan(value):
            why = reason_of(metric, part) or "undefined"
            return lambda confidence: Estimate(math.nan, math.nan, math.nan, why, "")
        low, high = value_range(metric, answers.num_classes)
        if metric == "accuracy":
            return _proportion(per_image(metric, part), objects)
        if metric in ("brier", "brier_mean", "mean_confidence"):
            return _mean(per_image(metric, part), objects, low, high)
        groups = len(np.unique(objects))
        resampled = GroupBootstrap(objects, resamples=self.resamples, seed=self.seed).distribution(
            METRICS[metric], part
        )

        def estimate(confidence: float) -> Estimate:
            lo, hi, why = bootstrap_bounds(value, resampled, groups, confidence, (low, high))
            return Estimate(value, lo, hi, why, "group bootstrap")

        return estimate

    def _slices(self, model: str, metric: str, answers: Answers) -> Iterator[Row]:
        sign = 1.0 if HIGHER_IS_BETTER[metric] else -1.0
        low, high = sorted(sign * end for end in value_range(metric, answers.num_classes))
        choice = self.settings.slices
        found = worst_slices(
            sign * per_image(metric, answers),
            self.objects,
            self.conditions,
            low,
            high,
            depth=min(choice.depth, len(self.conditions)),
            support=choice.support,
            limit=choice.limit,
        )
        for each in found.found:
            lo, hi = sorted((sign * each.interval.lo, sign * each.interval.hi))
            difference_lo, difference_hi = sorted((sign * each.lo, sign * each.hi))
            yield {
                "model": model,
                "metric": metric,
                "scenario": _named(each.scenario),
                "value": sign * each.interval.value,
                "lo": lo,
                "hi": hi,
                "elsewhere": sign * each.elsewhere,
                "difference": sign * each.difference,
                "difference_lo": difference_lo,
                "difference_hi": difference_hi,
                "p": each.p,
                "p_holm": each.p_holm,
                "n": each.interval.n,
                "groups": each.interval.groups,
                "looked_at": found.looked_at,
                "too_small": found.too_small,
            }

    def _field(self, found: Found, model: str, answers: Answers) -> None:
        """The share of situations in the field in which the first metric meets its threshold, and its expectation."""
        if not self.resolved.situations:
            return
        metric, threshold = self.settings.metrics[0], self.settings.threshold
        low, high = value_range(metric, answers.num_classes)
        names = self.resolved.situations[0][0]
        columns = {name: np.array([condition_text(v) for v in self.columns[name].tolist()]) for name in names}
        over = partial(
            domain_performance,
            per_image(metric, answers),
            self.objects,
            columns,
            self.resolved.situations,
            threshold,
            low,
            high,
        )

        def share(confidence: float) -> Estimate:
            domain = over(confidence=confidence)
            why = f"{domain.untested:.1%} of the field is untested" if domain.untested else ""
            return Estimate(domain.share, domain.share_lo, domain.share_hi, why, "simultaneous bounds")

        def expected(confidence: float) -> Estimate:
            domain = over(confidence=confidence)
            why = "" if domain.untested < 1 else "no situation of the field was tested"
            return Estimate(domain.expected, domain.expected_lo, domain.expected_hi, why, "simultaneous bounds")

        found.add(model, ALL, "domain_share", len(answers), self._groups(), share)
        found.add(model, ALL, "domain_expected", len(answers), self._groups(), expected)
        for frequency, part in over(confidence=CONFIDENCE).by_situation:
            found.rows["domain"].append(
                {
                    "model": model,
                    "metric": metric,
                    "threshold": threshold,
                    "situation": _named(part.scenario),
                    "frequency": frequency,
                    "value": part.interval.value,
                    "lo": part.interval.lo,
                    "hi": part.interval.hi,
                    "n": part.interval.n,
                    "groups": part.interval.groups,
                    "reason": "" if part.interval.n else "untested",
                }
            )

    def _axis(self, found: Found, model: str, answers: Answers) -> None:
        axis = self.settings.axis
        if axis is None:
            return
        positions = self.columns[axis.column].astype(np.float64)
        drives = self.groups if axis.sequence is None else self.columns[axis.sequence]
        no_drive = sum(is_missing(drive) for drive in drives.tolist())
        for count, column in ((int(np.isnan(positions).sum()), axis.column), (no_drive, axis.sequence)):
            if count:
                found.missing[model, "time_between_failures"] = f"{count} images have no {column}"
                return
        try:
            once = time_between_failures(positions, ~answers.correct, drives)
        except ValueError as error:
            found.missing[model, "time_between_failures"] = str(error)
            return

        def estimate(confidence: float) -> Estimate:
            time = time_between_failures(positions, ~answers.correct, drives, confidence)
            return Estimate(time.value, time.lo, time.hi, time.reason, "Poisson, widened where drives differ")

        found.add(model, ALL, "time_between_failures", len(answers), once.sequences, estimate)

    def _occlusion(self, found: Found, model: str) -> None:
        metrics = ("interpretation_precision", "occlusion_covering")
        reasons = [self.context.models[model].reasons.get("heat_maps", "")]
        reasons += [case.failure for case in self._of("heat maps", model)]
        if any(reasons):
            found.missing |= {(model, metric): "".join(reasons) for metric in metrics}
            return
        (case,) = self._of("heat maps", model)
        heat = self._heat(case.columns("map", "cells", "undisturbed", "prediction", "row"))
        self.heat[model] = heat
        values = {metrics[0]: heat.scores.precision, metrics[1]: heat.scores.covering}
        labels = self.labels[heat.rows]
        undefined = {metrics[0]: NO_HOT, metrics[1]: NO_OBJECT}
        for scope, chosen in [(ALL, np.ones(len(labels), bool))] + [
            (class_scope(name), labels == place) for place, name in enumerate(self.class_names)
        ]:
            if not chosen.any():
                continue
            counted = chosen & heat.counts
            for metric in metrics:
                known = counted & ~np.isnan(values[metric])
                notes = {why: int((chosen & (heat.left_out == why)).sum()) for why in (MISREAD, BELOW)}
                notes[undefined[metric]] = int((counted & ~known).sum())
                words = "; ".join(f"{count} of {chosen.sum()} images: {note}" for note, count in notes.items() if count)
                objects = self.objects[heat.rows[known]]
                bounded = _mean(values[metric][known], objects, 0, 1, words)
                found.add(model, scope, metric, int(known.sum()), len(np.unique(objects)), bounded)
                short = summarise(values[metric][counted], undefined[metric])
                found.rows["occlusion_classes"].append(
                    {
                        "model": model,
                        "scope": scope,
                        "metric": metric,
                        "value": short.mean,
                        "lowest": short.lowest,
                        "highest": short.highest,
                        "n": short.n,
                        "images": int(chosen.sum()),
                        "reason": words,
                    }
                )
        found.rows["occlusion"] += self._image_rows(model, heat)
        self._curve(found, model, heat)

    def _heat(self, arrays: Mapping[str, NDArray[Any]]) -> Heat:
        undisturbed = arrays["undisturbed"].astype(np.float64)
        rho = self._thresholds(self.settings.heat_maps.rho, undisturbed)
        rows = arrays["row"].astype(np.int64)
        misread = arrays["prediction"] != self.labels[rows]
        return Heat(
            rows=rows,
            maps=arrays["map"],
            cells=arrays["cells"],
            undisturbed=undisturbed,
            left_out=np.where(misread, MISREAD, np.where(undisturbed < rho, BELOW, "")),
            rho=rho,
            scores=occlusion_scores(arrays["map"], arrays["cells"], rho),
        )

    def _thresholds(self, rho: float, undisturbed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Below what probability a cell of each image is hot."""
        relative = self.settings.heat_maps.relative
        return relative_rho(rho, undisturbed) if relative else np.full(len(undisturbed), rho)

    def _image_rows(self, model: str, heat: Heat) -> Iterator[Row]:
        scores = heat.scores
        for place in worst_first(heat):
            counts = bool(heat.counts[place])
            yield {
                "model": model,
                "id": self.ids[heat.rows[place]],
                "label": self.class_names[int(self.labels[heat.rows[place]])],
                "undisturbed": float(heat.undisturbed[place]),
                "rho": float(heat.rho[place]),
                "hot": int(scores.hot[place]),
                "occluding": int(scores.occluding[place]),
                "both": int(scores.both[place]),
                "precision": float(scores.precision[place]) if counts else math.nan,
                "covering": float(scores.covering[place]) if counts else math.nan,
                "reason": scores.precision_reasons[place] if counts else str(heat.left_out[place]),
                "covering_reason": scores.covering_reasons[place] if counts else str(heat.left_out[place]),
            }

    def _curve(self, found: Found, model: str, heat: Heat) -> None:
        """The figures over rho, each of the images that are read right and not below it without a patch."""
        for rho in RHOS:
            thresholds = self._thresholds(rho, heat.undisturbed)
            kept = (heat.left_out != MISREAD) & (heat.undisturbed >= thresholds)
            scores = occlusion_scores(heat.maps[kept], heat.cells[kept], thresholds[kept])
            precision, covering = summarise(scores.precision, NO_HOT), summarise(scores.covering, NO_OBJECT)
            found.rows["rho"].append(
                {
                    "model": model,
                    "rho": rho,
                    "relative": self.settings.heat_maps.relative,
                    "precision": precision.mean,
                    "precision_lowest": precision.lowest,
                    "precision_highest": precision.highest,
                    "precision_images": precision.n,
                    "covering": covering.mean,
                    "covering_lowest": covering.lowest,
                    "covering_highest": covering.highest,
                    "covering_images": covering.n,
                }
            )

    def _confusion(self, found: Found, model: str) -> None:
        answers = self.readouts[model].answers
        if self.resolved.severity is None:
            found.missing[model, "weighted_confusion"] = "the study names no severity matrix"
            return
        cost = WeightedConfusion(np.array(self.resolved.severity))
        value, why = cost(answers), cost.reason(answers)
        if why:
            found.missing[model, "weighted_confusion"] = why
            return
        bootstrap = GroupBootstrap(self.objects, resamples=self.resamples, seed=self.seed)
        resampled = np.concatenate([cost.of_rows(answers, weights) for weights in bootstrap.chunks()])

        def estimate(confidence: float) -> Estimate:
            lo, hi, no_bound = bootstrap_bounds(value, resampled, self._groups(), confidence, (0.0, 1.0))
            return Estimate(value, lo, hi, no_bound, "group bootstrap")

        found.add(model, ALL, "weighted_confusion", len(answers), self._groups(), estimate)
        confusions = cost.most_expensive(answers)
        total = math.fsum(each.cost for each in confusions)
        for each in confusions:
            found.rows["confusions"].append(
                {
                    "model": model,
                    "label": self.class_names[each.label],
                    "prediction": self.class_names[each.prediction],
                    "count": each.count,
                    "severity": each.severity,
                    "cost": each.cost,
                    "share": each.cost / total,
                }
            )

    def _groups(self) -> int:
        return int(self.objects.max()) + 1

    def _scenarios(self, count: int, everything: bool = False) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Every combination of values of `count` conditions that images show, with its rows; "" is all images."""
        if everything or not count:
            yield "", np.arange(len(self.objects))
        for names in combinations(self.conditions, count) if count else ():
            columns = [self.conditions[name] for name in names]
            known = np.logical_and.reduce([column != "" for column in columns])
            for values in sorted(set(zip(*(column[known].tolist() for column in columns), strict=True))):
                rows = np.logical_and.reduce([c == value for c, value in zip(columns, values, strict=True)])
                yield _named(dict(zip(names, values, strict=True))), np.flatnonzero(rows)


@contextmanager
def _explained() -> Iterator[None]:
    """What the pure functions refuse, as an error of the study."""
    try:
        yield
    except ValueError as error:
        raise InputError(f"{NAME}: {error}") from None


def worst_first(heat: Heat) -> list[int]:
    """Places of the images of heat maps: lowest precision first, then most covering; those without a value last."""
    precision = np.where(heat.counts, heat.scores.precision, np.nan)
    covering = np.where(heat.counts, heat.scores.covering, np.nan)
    order = np.lexsort((np.arange(len(precision)), -np.nan_to_num(covering, nan=-1), np.nan_to_num(precision, nan=2)))
    places: list[int] = order.tolist()
    return places


def _named(scenario: Mapping[str, str]) -> str:
    return ", ".join(value_scope(name, value) for name, value in scenario.items())


def _mean(
    values: NDArray[Any], objects: NDArray[np.intp], low: float, high: float, reason: str = ""
) -> Callable[[float], Estimate]:
    """The mean of values within a range, bounded by objects."""
    if not len(values):
        return lambda confidence: Estimate(math.nan, math.nan, math.nan, reason or "no images", "")

    def estimate(confidence: float) -> Estimate:
        found = mean_interval(np.clip(values.astype(np.float64), low, high), objects, low, high, confidence)
        return Estimate(found.value, found.lo, found.hi, "; ".join(filter(None, [reason, found.reason])), found.method)

    return estimate


def _proportion(values: NDArray[Any], objects: NDArray[np.intp]) -> Callable[[float], Estimate]:
    def estimate(confidence: float) -> Estimate:
        found = proportion_interval(values, objects, confidence)
        return Estimate(found.value, found.lo, found.hi, found.reason, found.method)

    return estimate


def _scaled(bounded: Bounded, coverage: float) -> Bounded:
    """Discounted for scenarios without data; none where coverage is undefined."""
    if math.isnan(coverage):
        return lambda confidence: Estimate(math.nan, math.nan, math.nan, "scenario coverage is undefined", "")

    def estimate(confidence: float) -> Estimate:
        found = bounded(confidence).scaled(coverage)
        return replace(found, method=f"{found.method}, times coverage")

    return estimate


def _take(answers: Answers, rows: NDArray[np.intp]) -> Answers:
    if len(rows) == len(answers):
        return answers
    columns = ("label", "prediction", "confidence", "p_label", "sum_squares")
    return Answers(**{name: getattr(answers, name)[rows] for name in columns}, num_classes=answers.num_classes)


def _cell_rows(cover: Coverage, projection: Projection) -> Iterator[Row]:
    schema = cover.schema
    for cell in np.ndindex(projection.counts.shape):
        row: Row = {}
        for place, (member, code) in enumerate(zip(projection.members, cell, strict=True), start=1):
            name = schema.names[member]
            row |= {f"condition_{place}": name, f"value_{place}": schema.conditions[name][code]}
        count, minimum = int(projection.counts[cell]), int(projection.minimum[cell])
        status = "covered" if count >= minimum else "uncovered"
        row |= {"count": count, "minimum": minimum, "weight": float(projection.weight[cell])}
        yield row | {"status": status if projection.feasible[cell] else "impossible"}


def _proposal_rows(cover: Coverage, proposed: Sequence[Mapping[str, str]]) -> Iterator[Row]:
    """Each proposed scenario with the cells it newly fills and the coverage it leads to."""
    counts = [projection.counts.copy() for projection in cover.projections]
    for place, scenario in enumerate(proposed, start=1):
        codes = cover.schema.encode({name: [value] for name, value in scenario.items()})[0]
        filled = 0
        for projection, own in zip(cover.projections, counts, strict=True):
            cell = tuple(codes[list(projection.members)])
            own[cell] += 1
            filled += int(own[cell] == projection.minimum[cell])
        parts = tuple(replace(p, counts=own) for p, own in zip(cover.projections, counts, strict=True))
        after = Coverage(cover.schema, parts, cover.missing)
        yield {**scenario, "proposal": place, "new_cells": filled, "coverage_after": after.value}
