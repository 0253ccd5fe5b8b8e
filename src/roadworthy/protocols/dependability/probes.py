"""What the dependability metrics need besides answers, built once and kept in the run: inputs, activations, heat maps.

Each is an artifact: named by what decides it, made of parts that a kill leaves whole, read without pickle.
"""

from __future__ import annotations

import io
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.files import write_bytes
from roadworthy.core.manifests import discard, has_receipt, write_receipt
from roadworthy.core.protocols import Buildable, Dataset, Model
from roadworthy.core.types import Artifact, Batch
from roadworthy.engine.artifacts import read_artifact
from roadworthy.metrics.coverage import condition_text
from roadworthy.metrics.occlusion import PatchGrid, cells_of_boxes, cells_of_masks
from roadworthy.models import ReferenceModel
from roadworthy.models.head import penultimate
from roadworthy.models.occlusion import occlusion_map
from roadworthy.models.signals import Signals
from roadworthy.protocols.dependability.settings import Occlusion, Resolved, conditions_of

ALGORITHM = 1
"""Part of every recipe; a change that gives other values raises it."""
PENULTIMATE = "penultimate"
"""The layer where the study names none: what goes into the last linear one."""
ACTIVATION_PART, MAP_PART = 1024, 8
"""Images per part of activations and of heat maps."""
CONDITION = "condition:"

Arrays = dict[str, NDArray[Any]]


class Probe(Buildable):
    """An artifact made part by part: some images each, in a file of its own."""

    builder: str
    size: int
    rows: Sequence[int]
    _loaded = False

    @abstractmethod
    def part(self, rows: Sequence[int]) -> Arrays:
        """What is stored of these rows of the data."""

    def build(self, workshop: Path, progress: Callable[[int], None]) -> dict[str, Any]:
        """Make every part that is not there yet."""
        for number, start in enumerate(range(0, len(self.rows), self.size)):
            path = workshop / f"part-{number:05d}.npz"
            rows = self.rows[start : start + self.size]
            if not has_receipt(path):
                discard(path)
                content = io.BytesIO()
                np.savez(content, **self.part(rows))  # type: ignore[arg-type]
                write_bytes(path, content.getvalue())
                write_receipt(path)
            progress(len(rows))
        return {"images": len(self.rows)}

    @property
    def work(self) -> int:
        """How many images there are."""
        return len(self.rows)

    def load(self, home: Path) -> None:
        """Nothing is kept in memory: evidence reads the files."""
        self._loaded = True

    @property
    def loaded(self) -> bool:
        """True once it is built."""
        return self._loaded


class Inputs(Probe):
    """The resolved settings with id, group, label and conditions of every image."""

    builder = "dependability_inputs"
    activity = "reading conditions for"

    def __init__(self, resolved: Resolved, data: Dataset) -> None:
        self.resolved, self.data = resolved, data
        self.rows, self.size = range(len(data)), max(1, len(data))

    @property
    def recipe(self) -> Artifact:
        """The settings and the data."""
        parameters = {"algorithm": ALGORITHM, **self.resolved.parameters()}
        return Artifact(self.builder, parameters, (self.data.fingerprint(),))

    def part(self, rows: Sequence[int]) -> Arrays:
        """All that is known of the images but their pixels."""
        return {
            "ids": _text(self.data.ids),
            "groups": _text(self.data.groups),
            "labels": self.data.labels,
            **{CONDITION + name: _plain(column) for name, column in conditions_of(self.data).items()},
        }


class Activations(Probe):
    """Which neurons of a layer are on, image by image; of a feature map, a channel is on where its highest value is."""

    builder = "activations"
    activity = "recording activations of"

    def __init__(self, model: Model, data: Dataset, layer: str, threshold: float, batch: int) -> None:
        self.model, self.data, self.layer, self.threshold, self.batch = model, data, layer, threshold, batch
        self.rows, self.size = range(len(data)), ACTIVATION_PART

    @property
    def recipe(self) -> Artifact:
        """The model, the data, the layer, and what fixes the bits of an answer."""
        own = {"layer": self.layer, "threshold": self.threshold, "batch": self.batch, "algorithm": ALGORITHM}
        return Artifact(self.builder, own, (self.model.fingerprint(), self.data.fingerprint()))

    def part(self, rows: Sequence[int]) -> Arrays:
        """`on` (n, bytes) and the number of `neurons`."""
        model = self.model.opened() if isinstance(self.model, ReferenceModel) else self.model
        layer = penultimate(model) if self.layer == PENULTIMATE else self.layer
        values = Signals(model, self.data.batch(rows), self.batch).activations(layer)
        if values.ndim > 2:
            values = values.max(axis=tuple(range(2, values.ndim)))
        if values.ndim != 2:
            raise InputError(f"layer {layer!r} of model {model.name} gives {values.shape}: no neurons per image")
        if np.isnan(values).any():
            raise InputError(f"layer {layer!r} of model {model.name} gives NaN: its activations cannot be counted")
        on = values > self.threshold
        return {"on": np.packbits(on, axis=1), "neurons": np.array(on.shape[1])}


class HeatMaps(Probe):
    """Occlusion maps of the true class, the cells that hide the object, and the probability without a patch."""

    builder = "occlusion_maps"
    activity = "making heat maps of"
    size = MAP_PART

    def __init__(
        self,
        model: Model,
        data: Dataset,
        rows: Sequence[int],
        choice: Occlusion,
        grid: PatchGrid,
        batch: int,
        seed: int,
    ) -> None:
        self.model, self.data, self.rows = model, data, rows
        self.choice, self.grid, self.batch, self.seed = choice, grid, batch, seed

    @property
    def recipe(self) -> Artifact:
        """The model, the data, which images, and the patch."""
        own = {
            "rows": list(self.rows),
            "patch": self.grid.patch,
            "stride": self.grid.stride,
            "fill": self.choice.fill,
            "batch": self.batch,
            "algorithm": ALGORITHM,
        }
        return Artifact(self.builder, own, (self.model.fingerprint(), self.data.fingerprint()), self.seed)

    def part(self, rows: Sequence[int]) -> Arrays:
        """`maps` and `cells` (n, rows, columns), `undisturbed` and `prediction` (n,), `row` of the data (n,)."""
        batch = self.data.batch(rows)
        cells = occluding_cells(batch, self.grid, self.data.name)
        answer = self.model.answer(batch, self.batch).probabilities
        patch, stride = self.grid.patch, self.grid.stride
        maps = occlusion_map(
            self.model, batch, patch=patch, stride=stride, fill=self.choice.fill, batch_size=self.batch, seed=self.seed
        )
        return {
            "maps": maps,
            "cells": cells,
            "undisturbed": answer[np.arange(len(batch)), batch.labels],
            "prediction": answer.argmax(axis=1),
            "row": np.asarray(rows, dtype=np.int64),
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
    for start in range(0, len(data), ACTIVATION_PART):
        batch = data.batch(slice(start, start + ACTIVATION_PART))
        marked: NDArray[Any] = np.zeros(len(batch), bool)
        if batch.masks is not None:
            marked = np.asarray(batch.masks.reshape(len(batch), -1).any(axis=1))
        elif batch.boxes is not None:
            marked = np.asarray(~np.isnan(batch.boxes).any(axis=1))
        for place in np.flatnonzero(marked).tolist():
            turns.setdefault(int(batch.labels[place]), {}).setdefault(batch.group[place], []).append(start + place)
    order = []
    for label, objects in turns.items():
        for turn, members in enumerate(objects.values()):
            order += [(again * len(objects) + turn, label, row) for again, row in enumerate(members)]
    return sorted(row for _, _, row in sorted(order)[:count])


@dataclass(frozen=True)
class StoredInputs:
    """What `Inputs` keeps, read back."""

    resolved: Resolved
    ids: tuple[str, ...]
    groups: NDArray[np.str_]
    labels: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    def read(cls, home: Path) -> StoredInputs:
        """From the artifact's folder."""
        arrays = read_parts(home)
        return cls(
            resolved=Resolved.of(read_artifact(home)["parameters"]),
            ids=tuple(arrays["ids"].tolist()),
            groups=arrays["groups"],
            labels=arrays["labels"],
            columns={n.removeprefix(CONDITION): column for n, column in arrays.items() if n.startswith(CONDITION)},
        )


def read_activations(home: Path) -> NDArray[np.bool_]:
    """Which neurons are on: (images, neurons)."""
    arrays = read_parts(home)
    return np.unpackbits(arrays["on"], axis=1, count=int(arrays["neurons"].flat[0])).astype(bool)


def read_parts(home: Path) -> Arrays:
    """The arrays of all parts, one after the other."""
    paths = sorted(home.glob("part-*.npz"))
    try:
        parts = []
        for path in paths:
            with np.load(path, allow_pickle=False) as file:
                parts.append({name: np.atleast_1d(file[name]) for name in file.files})
        if not parts:
            raise ValueError("it holds no parts")
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"the artifact {home} cannot be read: {error}; delete it and run the study again") from None


def _text(values: Sequence[str]) -> NDArray[np.str_]:
    """File names may hold bytes that are no UTF-8; what is stored may not."""
    return np.array([value.encode("utf-8", "backslashreplace").decode("utf-8") for value in values], dtype=np.str_)


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    """Numbers as they are, all else as text, so that nothing is pickled."""
    if column.dtype.kind in "iufU":
        return column
    return np.array([condition_text(value) for value in column.tolist()], np.str_)
