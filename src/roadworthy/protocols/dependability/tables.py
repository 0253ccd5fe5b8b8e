"""Evidence of dependability: the eight metrics from stored answers, conditions, activations and heat maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.engine.plan import PlannedCase
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import HIGHER_IS_BETTER, METRICS, Answers, occlusion, per_image, value_range
from roadworthy.metrics import reason as reason_of
from roadworthy.metrics.classification import OfRows
from roadworthy.metrics.confidence_loss import confidence_loss
from roadworthy.metrics.coverage import Coverage, condition_texts, is_missing, propose_scenarios, scenario_coverage
from roadworthy.metrics.neurons import NeuronCoverage, activation_pattern
from roadworthy.metrics.weighted_confusion import WeightedConfusion
from roadworthy.protocols import base
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.dependability import names, pictures
from roadworthy.protocols.dependability.names import ALL, DATA, NAME, FigureKey, explained
from roadworthy.protocols.dependability.probes import CONDITION
from roadworthy.protocols.dependability.settings import Context, Occlusion
from roadworthy.protocols.estimates import CONFIDENCE, RESAMPLES, Estimate, bootstrap_bounds, failed_estimate
from roadworthy.statistics import GroupBootstrap, Interval, mean_interval, proportion_interval
from roadworthy.statistics.degradation import domain_performance, time_between_failures
from roadworthy.statistics.slices import worst_slices
from roadworthy.verdict import Criterion, Measurement

RHOS = tuple(place / 20 for place in range(21))
MISREAD, BELOW = "misread without a patch", "below rho without a patch"
"""Why an image does not count: with every place hidden it has nothing left to lose, or nothing to compare with."""
COLUMNS: Mapping[str, Sequence[str]] = {
    "cells": ("count", "minimum", "weight", "status"),
    "uncovered": ("count", "minimum", "weight"),
    "proposals": names.PROPOSAL,
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

    n: int
    groups: int
    estimate: Bounded


@dataclass
class Found:
    """Figures, rows of companion tables, and why figures are missing, by (model, metric).

    A row may say more than the columns of its table: what pictures need.
    """

    figures: dict[FigureKey, Figure] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    missing: dict[tuple[str, str], str] = field(default_factory=dict)
    cover: Coverage | None = None

    def add(self, model: str, scope: str, metric: str, objects: NDArray[Any], estimate: Bounded) -> None:
        """One more figure, over images that show these objects (n,)."""
        self.figures[FigureKey(model, scope, metric)] = Figure(len(objects), _count(objects), estimate)

    def of(self, table: str, model: str) -> list[Row]:
        """The rows of a companion table that belong to a model."""
        return [row for row in self.rows[table] if row["model"] == model]


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
        resolved, (conditions,) = context.resolved, self._of("conditions")
        self.no_conditions = failed_estimate(conditions.failure).reason if conditions.failure else ""
        unknown: Row = {"conditions": None, "situations": [], "no_schema": self.no_conditions}
        self.resolved = resolved.model_copy(update=unknown) if self.no_conditions else resolved
        self.settings = resolved.settings
        stored = {name: CONDITION + name for name in resolved.columns if not self.no_conditions}
        names_of = ("id", "group", "label")
        readable = [case for case in (conditions, *self.clean.values()) if not case.failure]
        rows = readable[0].columns(*names_of, *stored.values()) if readable else dict.fromkeys(names_of, np.array([]))
        self.ids: tuple[str, ...] = tuple(rows["id"].tolist())
        self.row_of = {name: row for row, name in enumerate(self.ids)}
        self.groups, self.labels = rows["group"], rows["label"]
        self.columns = {name: rows[column] for name, column in stored.items()}
        self.objects = np.unique(self.groups, return_inverse=True)[1]

    def _of(self, role: str, model: str | None = None) -> list[StoredCase]:
        """The cases of a role, of all systems or of one, in the order of the plan."""
        return [case for case in self.cases if case.labels["role"] == role and model in (None, case.system)]

    @cached_property
    def conditions(self) -> dict[str, NDArray[np.str_]]:
        """The conditions of the schema as text, empty where an image has no value."""
        return {name: np.array(condition_texts(self.columns[name])) for name in self.resolved.conditions or {}}

    @cached_property
    def readouts(self) -> dict[str, Readouts]:
        """The undisturbed answers of every model that gave them."""
        readouts = {name: self.clean[name].load() for name in sorted(self.clean) if not self.clean[name].failure}
        for name, given in readouts.items():
            if given.ids != self.ids:
                raise InputError(f"the readouts of {name} are of other images than the run's conditions")
        return readouts

    @cached_property
    def found(self) -> Found:
        """All figures and rows."""
        found = Found()
        with explained():
            self._coverage(found)
            for name in self.readouts:
                self._neurons(found, name)
                self._loss(found, name)
                self._degradation(found, name)
                self._occlusion(found, name)
                self._confusion(found, name)
        return found

    @cached_property
    def figures(self) -> dict[FigureKey, Figure]:
        """Every figure that was planned, measured or not, the data's first, then model by model."""
        order = [key for name in (DATA, *sorted(self.clean)) for key in self.keys if key.model == name]
        return {key: self.found.figures.get(key) or self._absent(key) for key in order}

    def _absent(self, key: FigureKey) -> Figure:
        lacking = "" if key.scope.startswith(names.class_scope("")) else self.no_conditions
        why = self.found.missing.get((key.model, key.metric)) or lacking or "no image of this scope"
        if key.model in self.clean and self.clean[key.model].failure:
            why = failed_estimate(self.clean[key.model].failure).reason
        return Figure(0, 0, _no_value(why))

    def tables(self) -> dict[str, pd.DataFrame]:
        """One row per figure, and what the figures rest on."""
        rows = []
        for key, figure in self.figures.items():
            where = {"model": key.model, "scope": key.scope}
            rows.append(figure.estimate(CONFIDENCE).row(where, key.metric, figure.n, figure.groups))
        tables = {NAME: pd.DataFrame(rows)}
        places = [f"{part}_{place + 1}" for place in range(self.resolved.k) for part in ("condition", "value")]
        before = {"cells": places, "uncovered": places, "proposals": list(self.resolved.conditions or {})}
        with explained():
            contents = self.found.rows | self._searched()
        for name, columns in COLUMNS.items():
            wanted = dict.fromkeys([*before.get(name, ()), *columns])
            tables[f"{NAME}_{name}"] = pd.DataFrame(contents[name], columns=list(wanted))
        return tables

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """A measurement per figure that matches."""
        measurements = []
        for key in names.select(self.keys, criterion):
            figure = self.figures[key]
            estimate = figure.estimate(confidence)
            measurements.append(
                Measurement(
                    {"model": key.model, "scope": key.scope},
                    *(estimate.value, estimate.lo, estimate.hi, figure.n, figure.groups, estimate.method),
                    proportion=key.metric == "accuracy",
                    reason=estimate.reason,
                )
            )
        return measurements

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """Heat maps, the most expensive confusions and the images that lose most, worst first."""
        return pictures.save(self, cases, media)

    def _coverage(self, found: Found) -> None:
        schema = self.resolved.condition_schema()
        if schema is None:
            found.missing[DATA, "scenario_coverage"] = self.resolved.no_schema
            return
        k, needs = self.resolved.k, self.resolved.needs()
        found.cover = cover = scenario_coverage(schema, self.columns, k=k, needs=needs, groups=self._counted)
        left_out = [f"{count} images without {name}" for name, count in cover.missing.items() if count]
        left_out += [f"{name} is no condition: it has {why}" for name, why in self.resolved.left_out.items()]
        why = "nothing is needed" if math.isnan(cover.value) else "; ".join(left_out)
        exact = Estimate(cover.value, cover.value, cover.value, why, f"count of {cover.cells} cells of {k} conditions")
        found.add(DATA, ALL, "scenario_coverage", self.objects, lambda confidence: exact)
        for cell in cover.table():
            for place, (name, value) in enumerate(cell["scenario"].items(), start=1):
                cell |= {f"condition_{place}": name, f"value_{place}": value}
            found.rows["cells"].append(cell)
        found.rows["uncovered"] = [row for row in found.rows["cells"] if row["status"] == "uncovered"]

    @property
    def _counted(self) -> NDArray[Any] | None:
        """The objects whose number fills a cell; None where images are counted."""
        return self.groups if self.settings.count == "objects" else None

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
        k, needs, limit = self.resolved.k, self.resolved.needs(), self.settings.proposals
        proposed = propose_scenarios(cover.schema, self.columns, k=k, needs=needs, limit=limit, groups=self._counted)
        return {"slices": sliced, "proposals": list(_proposal_rows(cover, proposed))}

    def _neurons(self, found: Found, model: str) -> None:
        reasons = dict(self.context.models[model].reasons)
        metrics = [names.activation_metric(k) for k in self.settings.activation_k] + ["neuron_pattern"]
        for case in self._of("layer", model):
            layer = case.labels["layer"]
            if case.failure:
                reasons[names.layer_scope(layer)] = case.failure
                continue
            bits = case.columns("on", "neurons")
            on = np.unpackbits(bits["on"], axis=1, count=int(bits["neurons"][0])).astype(bool)
            for k in self.settings.activation_k:
                self._activation(found, model, layer, k, on)
            for scenario, rows in self._scenarios(0, 1):
                self._pattern(found, model, layer, scenario, rows, on)
        for key in self.keys:
            why = [why for at, why in reasons.items() if at == "activations" or f"{key.scope}, ".startswith(f"{at}, ")]
            if key.model == model and key.metric in metrics and why:
                found.figures.setdefault(key, Figure(0, 0, _no_value(why[-1])))

    def _activation(self, found: Found, model: str, layer: str, k: int, on: NDArray[np.bool_]) -> None:
        metric, neurons = names.activation_metric(k), on.shape[1]
        row: Row = {"model": model, "layer": layer, "k": k, "images": len(on), "neurons": neurons}
        row |= {"never_on": int((~on.any(axis=0)).sum()), "always_on": int(on.all(axis=0).sum())}
        found.rows["neurons"].append(row)
        if k > neurons:
            why = f"the layer has {neurons} neurons"
            found.figures[FigureKey(model, names.layer_scope(layer), metric)] = Figure(0, 0, _no_value(why))
            row |= {"value": math.nan, "exact": False, "reason": why}
            return
        counter = NeuronCoverage(neurons, k, threshold=0.5, seed=self.seed)
        counter.add(on)
        result = counter.result()
        row |= {name: getattr(result, name) for name in ("value", "occupied", "cells", "tuples", "exact", "reason")}

        def estimate(confidence: float) -> Estimate:
            if result.exact:
                return Estimate(result.value, result.value, result.value, result.reason, "count of all tuples")
            bounds = mean_interval(result.shares, range(result.tuples), 0, 1, confidence)
            return Estimate(bounds.value, bounds.lo, bounds.hi, result.reason, f"sample of {result.tuples} tuples")

        found.add(model, names.layer_scope(layer), metric, self.objects, estimate)

    def _pattern(
        self, found: Found, model: str, layer: str, scenario: str, rows: NDArray[np.intp], on: NDArray[np.bool_]
    ) -> None:
        pattern = activation_pattern(on[rows], self.settings.pattern_groups, threshold=0.5)
        bounded = _mean(pattern.apart, self.objects[rows], 0, 1, pattern.reason)
        scope = names.layer_scope(layer, scenario)
        found.add(model, scope, "neuron_pattern", self.objects[rows], bounded)
        where = {"model": model, "layer": layer, "scenario": scenario or ALL, "n": len(rows)}
        found.rows["patterns"].append(vars(pattern) | where | {"sizes": " ".join(map(str, pattern.sizes.tolist()))})

    def _loss(self, found: Found, model: str) -> None:
        clean, after = self.readouts[model], dict[str, Readouts]()
        reasons = dict(self.context.models[model].refused)
        shown = {case.labels["transformer"]: case for case in self._of("transformer", model)}
        for label, case in sorted(shown.items()):
            if case.failure:
                found.missing[model, "confidence_loss"] = reasons[label] = failed_estimate(case.failure).reason
            else:
                after[label] = case.load()
        for label, reason in reasons.items():
            row = {"model": model, "transformer": label, "wins": 0, "n": 0, "reason": reason}
            found.rows["transformers"].append(row)
        if not after:
            found.missing.setdefault((model, "confidence_loss"), "no transformer was shown")
            return
        ids = next(iter(after.values())).ids
        rows = np.array([self.row_of[name] for name in ids], dtype=np.int64)
        before, objects = clean.answers.p_label[rows], self.objects[rows]
        loss = confidence_loss([given.answers.p_label for given in after.values()], before, list(after))
        if (model, "confidence_loss") not in found.missing:
            found.add(model, ALL, "confidence_loss", objects, _mean(loss.per_image, objects, -1, 1, loss.reason))
        wins = loss.wins()
        for label, change in zip(loss.transformers, loss.change, strict=True):
            found.add(model, label, "confidence_loss", objects, _mean(change, objects, -1, 1, loss.reason))
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
        for index in np.argsort(loss.per_image, kind="stable").tolist():
            found.rows["loss"].append(
                {
                    "model": model,
                    **self._image(rows[index]),
                    "undisturbed": float(before[index]),
                    "worst": float(before[index] + loss.per_image[index]),
                    "change": float(loss.per_image[index]),
                    "transformer": loss.transformers[int(loss.winner[index])],
                }
            )

    def _image(self, row: int) -> Row:
        """How tables name an image."""
        return {"id": self.ids[row], "label": self.class_names[int(self.labels[row])]}

    def _degradation(self, found: Found, model: str) -> None:
        answers = self.readouts[model].answers
        coverage = math.nan if found.cover is None else found.cover.value
        for metric in self.settings.metrics:
            for count in (0, 1, 2):
                for scenario, rows in self._scenarios(count):
                    bounded, objects = self._metric(metric, answers, rows), self.objects[rows]
                    if count < 2:
                        found.add(model, scenario or ALL, metric, objects, bounded)
                    if not count and HIGHER_IS_BETTER[metric]:
                        discounted = _scaled(bounded, coverage, self.no_conditions)
                        found.add(model, ALL, f"{metric}_discounted", objects, discounted)
                    where = {"model": model, "conditions": count, "scenario": scenario or ALL}
                    row = bounded(CONFIDENCE).row(where, metric, len(rows), _count(objects))
                    found.rows["scenarios"].append(row)
        self._field(found, model, answers)
        self._axis(found, model, answers)

    def _metric(self, metric: str, answers: Answers, rows: NDArray[np.intp]) -> Bounded:
        """A metric over some images, bounded by objects."""
        part, objects = _take(answers, rows), self.objects[rows]
        value = float(METRICS[metric](part))
        if math.isnan(value):
            return _no_value(reason_of(metric, part) or "undefined")
        if metric == "accuracy":
            return _bounded(partial(proportion_interval, per_image(metric, part), objects))
        low, high = value_range(metric, answers.num_classes)
        if metric in ("brier", "brier_mean", "mean_confidence"):
            return _mean(per_image(metric, part), objects, low, high)
        return self._resampled(value, METRICS[metric].of_rows, part, objects, (low, high))

    def _resampled(
        self, value: float, of_rows: OfRows, answers: Answers, objects: NDArray[np.intp], bounds: tuple[float, float]
    ) -> Bounded:
        """The value of a metric, bounded by resampled objects."""
        bootstrap = GroupBootstrap(objects, resamples=self.resamples, seed=self.seed)
        resampled = np.concatenate([of_rows(answers, weights) for weights in bootstrap.chunks()])

        def estimate(confidence: float) -> Estimate:
            lo, hi, why = bootstrap_bounds(value, resampled, bootstrap.groups, confidence, bounds)
            return Estimate(value, lo, hi, why, "group bootstrap")

        return estimate

    def _slices(self, model: str, metric: str, answers: Answers) -> Iterator[Row]:
        sign = 1.0 if HIGHER_IS_BETTER[metric] else -1.0
        low, high = sorted(sign * end for end in value_range(metric, answers.num_classes))
        values, choice = sign * per_image(metric, answers), self.settings.slices
        look = partial(worst_slices, depth=choice.depth, support=choice.support, limit=choice.limit)
        worst = look(values, self.objects, self.conditions, low, high)
        for part in worst.worst:
            lo, hi = sorted((sign * part.interval.lo, sign * part.interval.hi))
            difference_lo, difference_hi = sorted((sign * part.lo, sign * part.hi))
            yield {
                "model": model,
                "metric": metric,
                "scenario": _named(part.scenario),
                "value": sign * part.interval.value,
                "lo": lo,
                "hi": hi,
                "elsewhere": sign * part.elsewhere,
                "difference": sign * part.difference,
                "difference_lo": difference_lo,
                "difference_hi": difference_hi,
                "p": part.p,
                "p_holm": part.p_holm,
                "n": part.interval.n,
                "groups": part.interval.groups,
                "looked_at": worst.looked_at,
                "too_small": worst.too_small,
            }

    def _field(self, found: Found, model: str, answers: Answers) -> None:
        """The share of situations in the field in which the first metric meets its threshold, and its expectation."""
        situations = self.resolved.situations
        if not situations:
            return
        metric, threshold = self.settings.metrics[0], self.settings.threshold
        values, (low, high) = per_image(metric, answers), value_range(metric, answers.num_classes)
        over = partial(domain_performance, values, self.objects, self.columns, situations, threshold, low, high)

        def share(confidence: float) -> Estimate:
            domain = over(confidence=confidence)
            why = f"{domain.untested:.1%} of the field is untested" if domain.untested else ""
            return Estimate(domain.share, domain.share_lo, domain.share_hi, why, "simultaneous bounds")

        def expected(confidence: float) -> Estimate:
            domain = over(confidence=confidence)
            why = "" if domain.untested < 1 else "no situation of the field was tested"
            return Estimate(domain.expected, domain.expected_lo, domain.expected_hi, why, "simultaneous bounds")

        found.add(model, ALL, "domain_share", self.objects, share)
        found.add(model, ALL, "domain_expected", self.objects, expected)
        for frequency, part in over(confidence=CONFIDENCE).by_situation:
            row = {"model": model, "metric": metric, "threshold": threshold, "frequency": frequency}
            row |= {"situation": _named(part.scenario), "reason": "" if part.interval.n else "untested"}
            found.rows["domain"].append(vars(part.interval) | row)

    def _axis(self, found: Found, model: str, answers: Answers) -> None:
        axis = self.settings.axis
        if axis is None or self.no_conditions:
            return
        positions = self.columns[axis.column].astype(np.float64)
        drives = self.groups if axis.sequence is None else self.columns[axis.sequence]
        no_drive = sum(is_missing(drive) for drive in drives.tolist())
        for count, column in ((int(np.isnan(positions).sum()), axis.column), (no_drive, axis.sequence)):
            if count:
                found.missing[model, "time_between_failures"] = f"{count} images have no {column}"
                return
        over = partial(time_between_failures, positions, ~answers.correct, drives)
        try:
            over()
        except ValueError as error:
            found.missing[model, "time_between_failures"] = str(error)
            return

        def estimate(confidence: float) -> Estimate:
            time = over(confidence)
            return Estimate(time.value, time.lo, time.hi, time.reason, "Poisson, widened where drives differ")

        found.add(model, ALL, "time_between_failures", drives, estimate)

    def _occlusion(self, found: Found, model: str) -> None:
        reasons = [self.context.models[model].reasons.get("heat_maps", "")]
        reasons += [case.failure for case in self._of("heat maps", model)]
        if any(reasons):
            metrics = ("interpretation_precision", "occlusion_covering")
            found.missing |= {(model, metric): "".join(reasons) for metric in metrics}
            return
        (case,) = self._of("heat maps", model)
        stored = case.columns("map", "cells", "undisturbed", "prediction", "row")
        labels = self.labels[stored["row"]]
        heat = Heat(
            rows=stored["row"],
            maps=stored["map"],
            cells=stored["cells"],
            undisturbed=stored["undisturbed"].astype(np.float64),
            misread=stored["prediction"] != labels,
            choice=self.settings.heat_maps,
        )
        scopes = {ALL: np.ones(len(labels), bool)}
        scopes |= {names.class_scope(name): labels == place for place, name in enumerate(self.class_names)}
        for scope, chosen in scopes.items():
            if not chosen.any():
                continue
            counted = chosen & heat.counts
            for metric, values, undefined in (
                ("interpretation_precision", heat.scores.precision, occlusion.NO_HOT),
                ("occlusion_covering", heat.scores.covering, occlusion.NO_OBJECT),
            ):
                known = counted & ~np.isnan(values)
                notes = {why: int((chosen & (heat.left_out == why)).sum()) for why in (MISREAD, BELOW)}
                notes[undefined] = int((counted & ~known).sum())
                words = "; ".join(f"{count} of {chosen.sum()} images: {note}" for note, count in notes.items() if count)
                objects = self.objects[heat.rows[known]]
                found.add(model, scope, metric, objects, _mean(values[known], objects, 0, 1, words))
                short = occlusion.summarise(values[counted])
                row = {"model": model, "scope": scope, "metric": metric, "value": short.mean}
                row |= {"images": int(chosen.sum()), "reason": words}
                found.rows["occlusion_classes"].append(vars(short) | row)
        images = heat.image_rows()
        found.rows["occlusion"] += [{"model": model, **self._image(image["row"]), **image} for image in images]
        found.rows["rho"] += [{"model": model, **point} for point in heat.curve()]

    def _confusion(self, found: Found, model: str) -> None:
        answers, metric = self.readouts[model].answers, "weighted_confusion"
        if self.resolved.severity is None:
            found.missing[model, metric] = "the study names no severity matrix"
            return
        cost = WeightedConfusion(np.array(self.resolved.severity))
        value, why = cost(answers), cost.reason(answers)
        if why:
            found.missing[model, metric] = why
            return
        bounded = self._resampled(value, cost.of_rows, answers, self.objects, (0.0, 1.0))
        found.add(model, ALL, metric, self.objects, bounded)
        confusions = cost.most_expensive(answers)
        total = math.fsum(confusion.cost for confusion in confusions)
        for confusion in confusions:
            label, prediction = self.class_names[confusion.label], self.class_names[confusion.prediction]
            row = {"model": model, "label": label, "prediction": prediction, "cost": confusion.cost}
            found.rows["confusions"].append(vars(confusion) | row | {"share": confusion.cost / total})

    def _scenarios(self, *counts: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Every combination of values of so many conditions that images show, with its rows; "" is all images."""
        if 0 in counts:
            yield "", np.arange(len(self.objects))
        for chosen in chain.from_iterable(combinations(self.conditions, count) for count in counts if count):
            columns = [self.conditions[name] for name in chosen]
            known = np.logical_and.reduce([column != "" for column in columns])
            for values in sorted(set(zip(*(column[known].tolist() for column in columns), strict=True))):
                rows = np.logical_and.reduce([c == value for c, value in zip(columns, values, strict=True)])
                yield _named(dict(zip(chosen, values, strict=True))), np.flatnonzero(rows)


@dataclass(frozen=True)
class Heat:
    """The heat maps of a model: the `rows` of their images in the data, and which of them are `misread` undisturbed."""

    rows: NDArray[np.int64]
    maps: NDArray[np.float32]
    cells: NDArray[np.bool_]
    undisturbed: NDArray[np.float64]
    misread: NDArray[np.bool_]
    choice: Occlusion

    def thresholds(self, rho: float) -> NDArray[np.float64]:
        """Below what probability a cell of each image is hot."""
        if self.choice.relative:
            return occlusion.relative_rho(rho, self.undisturbed)
        return np.full(len(self.undisturbed), rho)

    @cached_property
    def rho(self) -> NDArray[np.float64]:
        """The threshold that the study asks for, by image."""
        return self.thresholds(self.choice.rho)

    @cached_property
    def scores(self) -> occlusion.OcclusionScores:
        """Precision and covering of each image, also of those that do not count."""
        return occlusion.occlusion_scores(self.maps, self.cells, self.rho)

    @cached_property
    def left_out(self) -> NDArray[np.str_]:
        """Why an image does not count; empty where it does."""
        return np.where(self.misread, MISREAD, np.where(self.undisturbed < self.rho, BELOW, ""))

    @property
    def counts(self) -> NDArray[np.bool_]:
        """Which images count."""
        return np.asarray(self.left_out == "")

    def image_rows(self) -> Iterator[Row]:
        """What is known of each image: lowest precision first, then most covering; those without a value last."""
        precision, covering = (np.where(self.counts, s, np.nan) for s in (self.scores.precision, self.scores.covering))
        for place in np.lexsort((-np.nan_to_num(covering, nan=-1), np.nan_to_num(precision, nan=2))).tolist():
            why = str(self.left_out[place])
            yield {
                "row": int(self.rows[place]),
                "map": self.maps[place],
                "counts": not why,
                "undisturbed": float(self.undisturbed[place]),
                "rho": float(self.rho[place]),
                "hot": int(self.scores.hot[place]),
                "occluding": int(self.scores.occluding[place]),
                "both": int(self.scores.both[place]),
                "precision": float(precision[place]),
                "covering": float(covering[place]),
                "reason": why or self.scores.precision_reasons[place],
                "covering_reason": why or self.scores.covering_reasons[place],
            }

    def curve(self) -> Iterator[Row]:
        """The figures over rho, each of the images that are read right and not below it without a patch."""
        for rho in RHOS:
            thresholds = self.thresholds(rho)
            kept = ~self.misread & (self.undisturbed >= thresholds)
            scores = occlusion.occlusion_scores(self.maps[kept], self.cells[kept], thresholds[kept])
            row: Row = {"rho": rho, "relative": self.choice.relative}
            for name, values in (("precision", scores.precision), ("covering", scores.covering)):
                short = occlusion.summarise(values)
                row |= {name: short.mean, f"{name}_lowest": short.lowest, f"{name}_highest": short.highest}
                row[f"{name}_images"] = short.n
            yield row


def _named(scenario: Mapping[str, str]) -> str:
    return ", ".join(names.value_scope(name, value) for name, value in scenario.items())


def _count(objects: NDArray[Any]) -> int:
    return len(np.unique(objects))


def _no_value(reason: str) -> Bounded:
    return lambda confidence: Estimate(math.nan, math.nan, math.nan, reason, "")


def _bounded(interval: Callable[[float], Interval], reason: str = "") -> Bounded:
    """An interval as an estimate, with one more reason."""

    def estimate(confidence: float) -> Estimate:
        bounds = interval(confidence)
        reasons = "; ".join(filter(None, [reason, bounds.reason]))
        return Estimate(bounds.value, bounds.lo, bounds.hi, reasons, bounds.method)

    return estimate


def _mean(values: NDArray[Any], objects: NDArray[np.intp], low: float, high: float, reason: str = "") -> Bounded:
    """The mean of values within a range, bounded by objects."""
    if not len(values):
        return _no_value(reason or "no images")
    inside = np.clip(values.astype(np.float64), low, high)
    return _bounded(partial(mean_interval, inside, objects, low, high), reason)


def _scaled(bounded: Bounded, coverage: float, why: str) -> Bounded:
    """Discounted for scenarios without data; none where coverage is undefined, and `why`."""
    if math.isnan(coverage):
        return _no_value(why or "scenario coverage is undefined")

    def estimate(confidence: float) -> Estimate:
        whole = bounded(confidence).scaled(coverage)
        return replace(whole, method=f"{whole.method}, times coverage")

    return estimate


def _take(answers: Answers, rows: NDArray[np.intp]) -> Answers:
    if len(rows) == len(answers):
        return answers
    columns = {name: column[rows] for name, column in vars(answers).items() if name != "num_classes"}
    return replace(answers, **columns)


def _proposal_rows(cover: Coverage, proposed: Sequence[Mapping[str, str]]) -> Iterator[Row]:
    """Each proposed scenario with the cells it newly fills and the coverage it leads to."""
    grown = deepcopy(cover)
    for place, scenario in enumerate(proposed, start=1):
        codes = cover.schema.encode({name: [value] for name, value in scenario.items()})[0]
        filled = 0
        for projection in grown.projections:
            cell = tuple(codes[list(projection.members)])
            projection.counts[cell] += 1
            filled += int(projection.counts[cell] == projection.minimum[cell])
        yield {**scenario, "proposal": place, "new_cells": filled, "coverage_after": grown.value}
