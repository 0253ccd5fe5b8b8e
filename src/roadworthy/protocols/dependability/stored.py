"""What a run has stored for the measures: answers, conditions, objects, activations and heat maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.engine.conditions import CONDITION
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics.coverage import Coverage, condition_texts, scenario_coverage
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.dependability import names
from roadworthy.protocols.dependability.context import Context
from roadworthy.protocols.dependability.heat_maps import StoredHeatMaps
from roadworthy.statistics import GroupBootstrap
from roadworthy.statistics.estimates import failed_estimate


def data_of(case: StoredCase) -> str:
    """Whether a case shows training or test data; those of earlier versions show test data."""
    return case.labels.get("data", names.TEST)


@dataclass(frozen=True)
class ReadLayer:
    """Which neurons of a layer are on, (n, neurons), for images of training or test `data` that show `groups`, (n,)."""

    layer: str
    data: str
    on: NDArray[np.bool_]
    groups: NDArray[Any]


@dataclass(frozen=True)
class Shown:
    """What the images of training or test data show: their conditions and objects, (n,) each.

    columns  by condition;  groups  the objects;  reason  why there are no conditions; empty where there are
    """

    columns: Mapping[str, NDArray[Any]]
    groups: NDArray[Any]
    reason: str = ""


class StoredData:
    """The stored cases of one source, as the measures read them; all but the cases is read when it is asked for.

    ids, groups, labels  of the N images of the data;  objects  the index of the object that each shows, (N,)
    clean                the undisturbed case of every model
    no_conditions        why the conditions of the data could not be read; empty where they could
    """

    def __init__(
        self, cases: Sequence[StoredCase], class_names: Sequence[str], context: Context, seed: int, resamples: int
    ) -> None:
        self.cases, self.class_names, self.context = cases, tuple(class_names), context
        self.seed, self.resamples = seed, resamples
        self.clean = {case.system: case for case in self.cases_of("undisturbed")}
        resolved = context.resolved
        (conditions,) = (case for case in self.cases_of("conditions") if data_of(case) == names.TEST)
        self.no_conditions = failed_estimate(conditions.failure).reason if conditions.failure else ""
        unknown: dict[str, Any] = {"conditions": None, "situations": [], "no_schema": self.no_conditions}
        self.resolved = resolved.model_copy(update=unknown) if self.no_conditions else resolved
        self.settings = resolved.settings
        stored = {name: CONDITION + name for name in resolved.columns if not self.no_conditions}
        keys = ("id", "group", "label")
        readable = [case for case in (conditions, *self.clean.values()) if not case.failure]
        rows = readable[0].columns(*keys, *stored.values()) if readable else dict.fromkeys(keys, np.array([]))
        self.ids: tuple[str, ...] = tuple(rows["id"].tolist())
        self.row_of = {name: row for row, name in enumerate(self.ids)}
        self.groups, self.labels = rows["group"], rows["label"]
        self.columns = {name: rows[column] for name, column in stored.items()}
        self.objects = np.unique(self.groups, return_inverse=True)[1]

    def cases_of(self, role: str, model: str | None = None) -> list[StoredCase]:
        """The cases of a role, of all systems or of one, in the order of the plan."""
        return [case for case in self.cases if case.labels["role"] == role and model in (None, case.system)]

    def failure(self, model: str) -> str:
        """Why a model gave no undisturbed answers; empty where it did."""
        return failed_estimate(self.clean[model].failure).reason if self.clean[model].failure else ""

    @cached_property
    def readouts(self) -> dict[str, Readouts]:
        """The undisturbed answers of every model that gave them, by its name, in order."""
        readouts = {name: self.clean[name].load() for name in sorted(self.clean) if not self.clean[name].failure}
        for name, given in readouts.items():
            if given.ids != self.ids:
                raise InputError(f"the readouts of {name} are of other images than the run's conditions")
        return readouts

    @cached_property
    def conditions(self) -> dict[str, NDArray[np.str_]]:
        """The conditions of the schema as text (N,), empty where an image has no value."""
        return {name: np.array(condition_texts(self.columns[name])) for name in self.resolved.conditions or {}}

    @cached_property
    def shown(self) -> dict[str, Shown]:
        """What the training data, where the study names some, and the test data show, in this order."""
        shown = {names.TRAIN: self._training()} if self.resolved.training else {}
        return shown | {names.TEST: Shown(self.columns, self.groups, self.resolved.no_schema)}

    def _training(self) -> Shown:
        """The conditions of the training data as they are stored, or why they are not."""
        reason = self.resolved.no_schema or self.resolved.no_training_conditions
        cases = [case for case in self.cases_of("conditions") if data_of(case) == names.TRAIN]
        reason = reason or "".join(failed_estimate(case.failure).reason for case in cases if case.failure)
        if reason:
            return Shown({}, np.array([]), reason)
        stored = {name: CONDITION + name for name in self.resolved.conditions or {}}
        rows = cases[0].columns("group", *stored.values())
        return Shown({name: rows[column] for name, column in stored.items()}, rows["group"])

    @cached_property
    def coverages(self) -> dict[str, Coverage]:
        """The scenario coverage of the training and of the test data, where it can be counted."""
        schema, coverages = self.resolved.condition_schema(), dict[str, Coverage]()
        for name, shown in self.shown.items() if schema is not None else ():
            if not shown.reason and schema is not None:
                groups = shown.groups if self.settings.count == "objects" else None
                k, needs = self.resolved.k, self.resolved.needs()
                coverages[name] = scenario_coverage(schema, shown.columns, k=k, needs=needs, groups=groups)
        return coverages

    def scenarios(self, *counts: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Every combination of values of so many conditions that images show, with its rows; "" is all images."""
        if 0 in counts:
            yield "", np.arange(len(self.objects))
        for chosen in chain.from_iterable(combinations(self.conditions, count) for count in counts if count):
            columns = [self.conditions[name] for name in chosen]
            known = np.flatnonzero(np.logical_and.reduce([column != "" for column in columns]))
            codes = np.stack([np.unique(column[known], return_inverse=True)[1] for column in columns], axis=1)
            scenario_of = np.unique(codes, axis=0, return_inverse=True)[1].ravel()
            ends = np.cumsum(np.bincount(scenario_of))[:-1]
            for rows in np.split(known[np.argsort(scenario_of, kind="stable")], ends) if len(known) else ():
                values = {name: str(self.conditions[name][rows[0]]) for name in chosen}
                yield names.scenario_scope(values), rows

    def identity(self, row: int) -> dict[str, str]:
        """How tables name an image."""
        return {"id": self.ids[row], "label": self.class_names[int(self.labels[row])]}

    def bootstrap(self, objects: NDArray[np.intp]) -> GroupBootstrap:
        """Resamples of the objects (n,) of some images, the same for the same objects."""
        return GroupBootstrap(objects, resamples=self.resamples, seed=self.seed)

    def active_neurons(self, model: str) -> Iterator[ReadLayer]:
        """Every layer of a model that was read, on the training data where the study names some, and on the test data.

        Those on the training data come first.
        """
        for case in sorted(self.cases_of("layer", model), key=lambda case: data_of(case) == names.TEST):
            if not case.failure:
                bits, data = case.columns("on", "neurons"), data_of(case)
                on = np.unpackbits(bits["on"], axis=1, count=int(bits["neurons"][0])).astype(bool)
                groups = self.groups if data == names.TEST else case.columns("group")["group"]
                yield ReadLayer(case.labels["layer"], data, on, groups)

    def layer_failure(self, model: str, scope: str, data: str) -> str:
        """Why the layer of a scope was not read; empty where it was. `activations` of schema 1 speak of all layers."""
        reasons = dict(self.context.models[model].reasons)
        for case in self.cases_of("layer", model):
            if case.failure and data_of(case) == data:
                reasons[names.layer_scope(case.labels["layer"])] = case.failure
        fitting = [why for at, why in reasons.items() if at == "activations" or f"{scope}, ".startswith(f"{at}, ")]
        return fitting[-1] if fitting else ""

    def heat_maps_failure(self, model: str) -> str:
        """Why a model has no heat maps; empty where it has."""
        failures = [case.failure for case in self.cases_of("heat maps", model)]
        return "".join([self.context.models[model].reasons.get("heat_maps", ""), *failures])

    @cached_property
    def heat_maps(self) -> dict[str, StoredHeatMaps]:
        """The heat maps of every model that has them."""
        return {model: self._heat_maps(model) for model in self.readouts if not self.heat_maps_failure(model)}

    def control_failure(self, model: str) -> str:
        """Why a model has no heat maps of images without their objects; empty where it has."""
        if why := self.heat_maps_failure(model):
            return why
        cases = self.cases_of("masked heat maps", model)
        return "".join(case.failure for case in cases) if cases else "the study leaves out the control"

    def _heat_maps(self, model: str) -> StoredHeatMaps:
        (case,) = self.cases_of("heat maps", model)
        stored = case.columns("map", "cells", "undisturbed", "prediction", "row")
        boxes = [case.columns("box")["box"] for case in self.cases_of("object boxes") if not case.failure]
        controls = dict[str, NDArray[np.float32]]()
        if not self.control_failure(model):
            (control,) = self.cases_of("masked heat maps", model)
            controls = control.columns("map", "own_map")
        return StoredHeatMaps(
            rows=stored["row"],
            labels=self.labels[stored["row"]],
            maps=stored["map"],
            cells=stored["cells"],
            undisturbed=stored["undisturbed"].astype(np.float64),
            predictions=stored["prediction"],
            choice=self.settings.heat_maps,
            masked=controls.get("map"),
            own_masked=controls.get("own_map"),
            boxes=boxes[0] if boxes else None,
        )
