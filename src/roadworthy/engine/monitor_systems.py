"""Monitors in the graph: fitted as artifacts from stored signals of the training data, then systems that are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import ModelError, foreign_code, is_the_machine_s, is_the_store_s
from roadworthy.core.files import remove
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Buildable, Dataset, Model, System
from roadworthy.core.types import Artifact, Stimulus
from roadworthy.engine.artifacts import read_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import Bench, PlannedStimulus
from roadworthy.engine.readouts import read_columns
from roadworthy.models.signals import OF_DATA, Training
from roadworthy.monitors import FittedMonitor, Monitor
from roadworthy.monitors.networks.base import OwnNetwork, weakest

SIGNAL, REPRESENTATION = "signal", "representation"


class SignalOf(System):
    """One signal of a model, stored as it is: 'features of layer L of M'. Fits read it, and it can be exported."""

    kind: ClassVar[str] = "signal"

    def __init__(self, model: Model, signal: str, fingerprint: str) -> None:
        self.model, self.signal, self.name = model, signal, f"{signal} of {model.name}"
        self._fingerprint = digest({"signal": signal, "model": fingerprint})

    @property
    def underlying(self) -> Model:
        """The model."""
        return self.model

    def fingerprint(self) -> str:
        """Of the model and the name of the signal."""
        return self._fingerprint

    def read(self, signals: Any) -> Mapping[str, NDArray[Any]]:
        """The signal, a row per image."""
        return {SIGNAL: signals[self.signal]}


class StoredTraining(Training):
    """Data whose signals a model was asked for before, in the cases that were planned for it."""

    def __init__(self, planned: PlannedTraining, store: RunFolder, outliers: Training | None = None) -> None:
        super().__init__(planned.model, planned.data, [*planned.cases, *OF_DATA], outliers)
        self._cases, self._home = planned.cases, store.case
        self._part = lru_cache(maxsize=2 * len(self._cases) or 1)(self._read_part)

    def _read_part(self, name: str, part: int) -> NDArray[Any]:
        case = self._cases[name].case
        return read_columns(self._home(case.key), case.hash, SIGNAL, parts=[part])[SIGNAL]

    def read(self, rows: slice, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
        """The signals of these rows, as stored."""
        signals: dict[str, Any] = {"labels": self.labels[rows]}
        if "images" in names:
            signals["images"] = self.data.batch(rows).images
        for name in set(names) - set(OF_DATA):
            chunk = self._cases[name].chunk
            first = rows.start // chunk
            parts = [self._part(name, part) for part in range(first, -(-rows.stop // chunk))]
            signals[name] = np.concatenate(parts)[rows.start - first * chunk : rows.stop - first * chunk]
        return tuple(np.asarray(signals[name]) for name in names)


class PlannedTraining:
    """What a fit will read of a model and some data: a case for each signal, by its full name, in batches of `size`."""

    def __init__(self, bench: Bench, model: Model, shown: PlannedStimulus | Dataset, names: Sequence[str]) -> None:
        showing = undisturbed(bench, shown) if isinstance(shown, Dataset) else shown
        self.model, self.data, self.size = model, showing.data, model.fixed_batch or bench.batch
        asked = [SignalOf(model, name, bench.fingerprint(model)) for name in names if name not in OF_DATA]
        self.cases = {system.signal: bench.case(showing, system) for system in asked}

    def stored(self, store: RunFolder, outliers: Training | None = None) -> StoredTraining:
        """The signals, once the cases are done."""
        return StoredTraining(self, store, outliers)


class MonitorFit(Buildable):
    """A monitor to be fitted on a model, from stored signals of the training data (and of validation outliers)."""

    activity = "fitting"

    def __init__(self, monitor: Monitor, model: Model, bench: Bench, outliers: PlannedStimulus | None = None) -> None:
        self.monitor, self.model = monitor, model
        names = monitor.signals(model)
        self.training, self.outliers = (
            PlannedTraining(bench, model, shown, names) if monitor.learns and shown is not None else None
            for shown in (bench.train, outliers)
        )
        self.networks: Mapping[str, OwnNetwork] = {}
        if self.training:
            self.networks = monitor.networks(model, self.training.data, self.outliers.data if self.outliers else None)
            for network in self.networks.values():
                network.study_seed = bench.seed
        self._size = model.fixed_batch or bench.batch
        self._fitted: FittedMonitor | None = None

    @cached_property
    def recipe(self) -> Artifact:
        """Its settings and code, the model and the data it learns from."""
        read = [planned for planned in (self.training, self.outliers) if planned]
        outliers = self.outliers.data if self.outliers else None
        recipe = self.monitor.recipe(self.model, read[0].data if read else None, outliers=outliers, size=self._size)
        of_model = self.model.requires() if self.monitor.asks_model else ()
        networks = tuple(self.networks.values())
        needs = (*of_model, *networks, *(case for planned in read for case in planned.cases.values()))
        inputs = (*recipe.inputs, *(network.recipe.hash for network in networks))
        return Artifact(recipe.builder, recipe.parameters, inputs, recipe.seed, needs)

    @property
    def work(self) -> int:
        """The images that its fit counts."""
        return self.monitor.work(len(self.training.data)) if self.training else 0

    def build(self, workshop: Path, progress: Callable[[int], None], store: Any = None) -> dict[str, Any]:
        """Fit it and save it; says how much it keeps, and what a reader should know."""
        training, left, own_files = None, self.work, workshop / "workshop"

        def advance(images: int) -> None:
            nonlocal left
            progress(min(images, left))
            left -= min(images, left)

        if self.training:
            training = self.training.stored(store, self.outliers.stored(store) if self.outliers else None)
            training.workshop, training.progress, training.networks = own_files, advance, self.networks
            own_files.mkdir(exist_ok=True)
        with foreign_code("", is_the_machine_s):
            fitted = self.monitor.build(self.model, training)
            kept = sum(array.nbytes for array in fitted.state.values())
            competence = {"state_bytes": kept, "notes": [*fitted.notes]} | self._of_networks(store)
        with foreign_code("", is_the_store_s):
            fitted.write_parts(workshop)
        remove(own_files)
        progress(left)
        return competence

    def _of_networks(self, store: Any) -> dict[str, Any]:
        """The hashes of the networks of its own, by role, and how good the weakest of them is."""
        hashes = {role: network.recipe.hash for role, network in self.networks.items()}
        stored = {role: read_artifact(store.artifact(hash_))["competence"] for role, hash_ in hashes.items()}
        return {"networks": hashes, **weakest(stored)} if hashes else {}

    def load(self, home: Path) -> None:
        """Take it from the folder it was saved in."""
        with foreign_code("", is_the_store_s):
            self._fitted = FittedMonitor.load(home, self.model, kind=type(self.monitor))

    @property
    def loaded(self) -> bool:
        """True once it is fitted."""
        return self._fitted is not None

    @property
    def fitted(self) -> FittedMonitor:
        """The fitted monitor; an error before `load`."""
        if self._fitted is None:
            raise ModelError(f"monitor {self.monitor.name} is not fitted yet: build it, then load it")
        return self._fitted


class MonitorOn(System):
    """A monitor on a model: it answers a representation of each image; score and decision follow from a calibration."""

    kind: ClassVar[str] = "monitor"

    def __init__(self, label: str, fit: MonitorFit) -> None:
        self.name, self.fit = label, fit

    @property
    def underlying(self) -> Model:
        """The model it watches."""
        return self.fit.model

    def fingerprint(self) -> str:
        """That of the recipe of the fitted monitor."""
        return self.fit.recipe.hash

    def requires(self) -> tuple[Buildable, ...]:
        """What the model requires, where it is asked, and the fitted monitor."""
        return (*(self.fit.model.requires() if self.fit.monitor.asks_model else ()), self.fit)

    def read(self, signals: Any) -> Mapping[str, NDArray[Any]]:
        """What it keeps of each image (N, D)."""
        with foreign_code("", is_the_machine_s):
            return {REPRESENTATION: self.fit.fitted.represent_signals(signals)}


def undisturbed(bench: Bench, data: Dataset) -> PlannedStimulus:
    """Data of a source as it is."""
    return PlannedStimulus(Stimulus(data.fingerprint(), seed=bench.seed), data)
