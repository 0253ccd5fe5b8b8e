"""What measures 2 and 3 share: they are taken of every layer of a model, or say why a layer was not read."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.models.signals import PENULTIMATE
from roadworthy.protocols.dependability.measures.base import Measure, Results, no_figure
from roadworthy.protocols.dependability.names import FigureKey
from roadworthy.protocols.dependability.settings import Settings
from roadworthy.protocols.dependability.stored import StoredData


class OverLayers(Measure):
    """A measure of layers; the names of its metrics begin with `prefix`."""

    prefix: ClassVar[str]

    @abstractmethod
    def measure_layer(self, data: StoredData, results: Results, model: str, layer: str, on: NDArray[np.bool_]) -> None:
        """Add the figures and rows of a layer; `on` (N, neurons) says which of its neurons each image activates."""

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """All layers that were read, and the reasons of the others."""
        for layer, on in data.active_neurons(model):
            self.measure_layer(data, results, model, layer, on)
        for metric, scopes in data.context.models[model].scopes.items():
            for scope in scopes if metric.startswith(self.prefix) else ():
                if why := data.layer_failure(model, scope):
                    results.figures.setdefault(FigureKey(model, scope, metric), no_figure(why))


def layers_of(settings: Settings) -> list[str]:
    """The layers that are read: those that the study names, or what goes into the last linear layer."""
    return settings.layers or [PENULTIMATE]
