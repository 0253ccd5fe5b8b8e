"""The systems of dependability beside models: the neurons of a layer, heat maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Dataset, Model, System
from roadworthy.core.types import Batch
from roadworthy.metrics.occlusion import PatchGrid, cells_of_boxes, cells_of_masks
from roadworthy.models.occlusion import SAME_OBJECT, found_probability, occlusion_map, true_boxes
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
        batch = signals.batch.take(slice(0, len(set(signals.batch.ids))))
        answer, grid, size = signals.prediction.rows(len(batch)), self.grid, signals.size
        boxes = true_boxes(batch) if answer.boxes is not None else np.empty((len(batch), 4), np.float32)
        maps = occlusion_map(
            self.model, batch, patch=grid.patch, stride=grid.stride, fill=self.fill, batch_size=size, seed=self.seed
        )
        return {
            "cells": occluding_cells(batch, grid, self.data),
            "map": maps,
            "undisturbed": found_probability(answer, batch.labels, boxes),
            "prediction": answer.probabilities.argmax(axis=1) if "probabilities" in answer.columns else batch.labels,
            "row": np.array([self.rows[id_] for id_ in batch.ids], np.int64),
        }


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
