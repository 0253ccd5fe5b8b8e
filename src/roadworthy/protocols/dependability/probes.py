"""The systems of dependability beside models: the neurons of a layer, heat maps, the boxes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Dataset, Model, System
from roadworthy.core.types import Batch, Prediction
from roadworthy.engine.conditions import DATA
from roadworthy.metrics.occlusion import PatchGrid, cells_of_boxes, cells_of_masks
from roadworthy.models.occlusion import SAME_OBJECT, found_probability, occlusion_map, true_boxes, without_objects
from roadworthy.models.signals import Signals

ALGORITHM = 1
"""Part of every fingerprint; a change that gives other values raises it."""
MAP_PART = 8
"""Heat maps that are stored together: each takes as many answers as it has cells."""
DECODED = 1024
"""Images that are decoded at once to look for objects."""

Arrays = dict[str, NDArray[Any]]


class _OfModel(System):
    """A system that reads what a model says. `known` is the model's fingerprint; `settings` decide its values too."""

    def __init__(self, model: Model, known: str, settings: Mapping[str, Any]) -> None:
        self.model, self.known, self.settings = model, known, settings
        self.name = f"{self.kind} of {model.name}"

    @property
    def underlying(self) -> Model:
        """The model."""
        return self.model

    def fingerprint(self) -> str:
        """That of the model, with the settings."""
        own = {"kind": self.kind, "algorithm": ALGORITHM, "model": self.known}
        return digest(own | dict(self.settings))


class Layer(_OfModel):
    """Which neurons of a layer are on; of a feature map, a channel is on where its highest value is."""

    kind = "layer"

    def __init__(self, model: Model, known: str, layer: str, threshold: float) -> None:
        super().__init__(model, known, {"layer": layer, "threshold": threshold})
        self.layer, self.threshold, self.name = layer, threshold, f"layer {layer} of {model.name}"

    def read(self, signals: Signals) -> Arrays:
        """`on` (n, bytes), a bit per neuron, and the number of `neurons` (n,)."""
        values = signals.activations(self.layer)
        if values.ndim > 2:
            values = values.max(axis=tuple(range(2, values.ndim)))
        where = f"layer {self.layer!r} of model {self.model.name}"
        if values.ndim != 2:
            raise InputError(f"{where} gives {values.shape}: no neurons per image")
        if np.isnan(values).any():
            raise InputError(f"{where} gives NaN: its activations cannot be counted")
        on = values > self.threshold
        return {"on": np.packbits(on, axis=1), "neurons": np.full(len(on), on.shape[1], np.int32)}


class HeatMaps(_OfModel):
    """Occlusion maps of the true class, the cells that hide the object, and the answer without a patch.

    A model that answers boxes finds the class only where its box is that of the object (`found_probability`); one that
    answers boxes alone is not asked for the class, and so never misreads it.

    rows    the row in the data `name` of each image that it is shown, by its id
    """

    kind = "heat maps"
    part_images = MAP_PART

    def __init__(
        self, model: Model, known: str, data: str, rows: Mapping[str, int], fill: str, grid: PatchGrid, seed: int
    ) -> None:
        own = {"patch": grid.patch, "stride": grid.stride, "fill": fill, "seed": seed, "rows": [*rows.values()]}
        super().__init__(model, known, own | ({"same_object": SAME_OBJECT} if "boxes" in model.columns else {}))
        self.data, self.rows, self.fill, self.grid, self.seed = data, rows, fill, grid, seed

    def read(self, signals: Signals) -> Arrays:
        """`map` and `cells` (n, rows, columns), `undisturbed` and `prediction` (n,), `row` of the data (n,).

        Images that only fill up the batch, which repeat the last one, are left out.
        """
        batch = _without_padding(signals.batch)
        answer = signals.prediction.rows(len(batch))
        return {
            "cells": occluding_cells(batch, self.grid, self.data),
            "map": self.maps_of(batch, batch.labels, signals.size),
            "undisturbed": found_probability(answer, batch.labels, _boxes_for(answer, batch)),
            "prediction": _answered(answer, batch),
            "row": np.array([self.rows[id_] for id_ in batch.ids], np.int64),
        }

    def maps_of(self, batch: Batch, classes: NDArray[np.int64], size: int) -> NDArray[np.float32]:
        """The heat maps (n, rows, columns) of these classes, (n,)."""
        grid = self.grid
        return occlusion_map(
            self.model,
            batch,
            patch=grid.patch,
            stride=grid.stride,
            fill=self.fill,
            classes=classes,
            batch_size=size,
            seed=self.seed,
        )


class MaskedHeatMaps(HeatMaps):
    """Occlusion maps of the same images without their objects: the controls of interpretation precision.

    Without its object an image is seldom read as its class. So there are two maps: that of the true class, which shows
    what is left of it, and that of the class which the model now answers, which shows what this answer rests on.
    """

    kind = "masked heat maps"

    def read(self, signals: Signals) -> Arrays:
        """Of the images without their objects: `map` of the true class and `own_map` of the answer, (n, rows, columns).

        `undisturbed` (n,) is the probability of the answer, `prediction` (n,).
        """
        batch = _without_padding(signals.batch)
        occluding_cells(batch, self.grid, self.data)  # says what is wrong with masks
        masked = without_objects(batch)
        answer = self.model.answer(masked, signals.size)
        own = _answered(answer, masked)
        return {
            "map": self.maps_of(masked, masked.labels, signals.size),
            "own_map": self.maps_of(masked, own, signals.size),
            "undisturbed": found_probability(answer, own, _boxes_for(answer, masked)),
            "prediction": own,
            "row": np.array([self.rows[id_] for id_ in masked.ids], np.int64),
        }


class ObjectBoxes(System):
    """Where the objects of the data are: `box` (n, 4), that of the mask where the data has no other."""

    kind = "object boxes"
    name = DATA

    def fingerprint(self) -> str:
        """The same for all data: the stimulus says which."""
        return digest({"kind": self.kind, "algorithm": ALGORITHM})

    def read(self, signals: Signals) -> Arrays:
        """A box per image, without asking a model; NaN where an image has no object."""
        return {"box": true_boxes(signals.batch).astype(np.float32)}


def _without_padding(batch: Batch) -> Batch:
    """The batch without the images that only fill it up, which repeat the last one."""
    return batch.take(slice(0, len(set(batch.ids))))


def _boxes_for(answer: Prediction, batch: Batch) -> NDArray[np.float32]:
    """The true boxes (n, 4), which are read only where the model answers boxes."""
    return true_boxes(batch) if answer.boxes is not None else np.empty((len(batch), 4), np.float32)


def _answered(answer: Prediction, batch: Batch) -> NDArray[np.int64]:
    """The classes answered, (n,); a model that answers boxes alone is not asked for the class."""
    return answer.probabilities.argmax(axis=1) if "probabilities" in answer.columns else batch.labels


def occluding_cells(batch: Batch, grid: PatchGrid, name: str) -> NDArray[np.bool_]:
    """The cells (n, rows, columns) whose patch hides some of the object: by its mask, else by its box."""
    try:
        if batch.masks is not None:
            return cells_of_masks(batch.masks, grid)
        if batch.boxes is not None:
            return cells_of_boxes(batch.boxes, grid)
    except ValueError as error:
        raise InputError(f"data set {name}: {error}: give every image a mask (or box) of its own size") from None
    raise InputError(f"data set {name} has neither masks nor boxes: heat maps need to know where the object is")


def rows_with_objects(data: Dataset, count: int) -> list[int]:
    """At most `count` rows of images whose object is marked, classes taking turns, another object each time."""
    turns: dict[int, dict[str, list[int]]] = {}
    for start in range(0, len(data), DECODED):
        batch = data.batch(slice(start, start + DECODED))
        boxes = np.full((len(batch), 4), np.nan) if batch.boxes is None else batch.boxes
        marked = ~np.isnan(boxes).any(axis=1) if batch.masks is None else batch.masks.any(axis=(1, 2))
        for index in np.flatnonzero(marked).tolist():
            turns.setdefault(int(batch.labels[index]), {}).setdefault(batch.group[index], []).append(start + index)
    order = []
    for label, objects in turns.items():
        for turn, members in enumerate(objects.values()):
            order += [(again * len(objects) + turn, label, row) for again, row in enumerate(members)]
    return sorted(row for _, _, row in sorted(order)[:count])
