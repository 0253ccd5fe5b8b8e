"""What measures 2 and 3 share: they are taken of every layer of a model, or say why a layer was not read."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from roadworthy.models.signals import PENULTIMATE
from roadworthy.protocols.dependability.bounds import no_value
from roadworthy.protocols.dependability.measures.base import Measure, Results
from roadworthy.protocols.dependability.settings import Settings
from roadworthy.protocols.dependability.stored import ReadLayer, StoredData


class OverLayers(Measure):
    """A measure of layers; the names of its metrics begin with `prefix`."""

    prefix: ClassVar[str]

    @abstractmethod
    def measure_layer(self, data: StoredData, results: Results, model: str, read: ReadLayer) -> None:
        """Add the figures and rows of a layer on training or test data."""

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """All layers that were read, and the reasons of the others."""
        for read in data.active_neurons(model):
            self.measure_layer(data, results, model, read)
        for key in data.context.figures():
            if key.model != model or not key.metric.startswith(self.prefix):
                continue
            if why := data.layer_failure(model, key.scope, key.data):
                results.figures.setdefault(key, no_value(why))


def layers_of(settings: Settings) -> list[str]:
    """The layers that are read: those that the study names, or what goes into the last linear layer."""
    return settings.layers or [PENULTIMATE]
