"""What measures 6 and 7 share: they are means over the heat maps of a model, of all images and of every class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import occlusion
from roadworthy.protocols.dependability.bounds import from_mean
from roadworthy.protocols.dependability.heat_maps import BELOW, MISREAD, StoredHeatMaps
from roadworthy.protocols.dependability.measures.base import BeforeRun, Measure, Results, Row
from roadworthy.protocols.dependability.names import ALL, class_scope
from roadworthy.protocols.dependability.stored import StoredData


class OverHeatMaps(Measure):
    """A measure of heat maps; `undefined` says why an image that counts may have no value."""

    undefined: ClassVar[str]

    @property
    def metric(self) -> str:
        """The name of its one metric."""
        return self.metrics[0].name

    @abstractmethod
    def per_image(self, heat_maps: StoredHeatMaps) -> NDArray[np.float64]:
        """The value of each image, (n,); NaN where it is undefined."""

    def failure(self, data: StoredData, model: str) -> str:
        """Why the model has no value of it; empty where it has."""
        return data.heat_maps_failure(model)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """All images and every class."""
        return {self.metric: [ALL, *map(class_scope, before.class_names)]}

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """The mean over the images of each scope that count and have a value."""
        if why := self.failure(data, model):
            results.missing[model, self.metric] = why
            return
        heat_maps = data.heat_maps[model]
        values = self.per_image(heat_maps)
        for scope, chosen in scopes_of(heat_maps, data.class_names):
            known = chosen & heat_maps.counts & ~np.isnan(values)
            objects = data.objects[heat_maps.rows[known]]
            bounded = from_mean(values[known], objects, 0, 1, self.note(heat_maps, chosen))
            results.add(model, scope, self.metric, objects, bounded)

    def note(self, heat_maps: StoredHeatMaps, chosen: NDArray[np.bool_]) -> str:
        """How many of the chosen images have no part in the mean, and why; empty where all have."""
        undefined = chosen & heat_maps.counts & np.isnan(self.per_image(heat_maps))
        counts = {why: int((chosen & (heat_maps.left_out == why)).sum()) for why in (MISREAD, BELOW)}
        counts[self.undefined] = int(undefined.sum())
        return "; ".join(f"{count} of {chosen.sum()} images: {why}" for why, count in counts.items() if count)

    def summary_row(self, heat_maps: StoredHeatMaps, scope: str, chosen: NDArray[np.bool_]) -> Row:
        """Mean, lowest and highest value of a scope."""
        summary = occlusion.summarise(self.per_image(heat_maps)[chosen & heat_maps.counts])
        row = {"scope": scope, "metric": self.metric, "value": summary.mean, "images": int(chosen.sum())}
        return vars(summary) | row | {"reason": self.note(heat_maps, chosen)}


def scopes_of(heat_maps: StoredHeatMaps, class_names: Sequence[str]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """All images and every class that has heat maps: the name of the scope, and which images (n,) it holds."""
    scopes = {ALL: np.ones(len(heat_maps.labels), bool)}
    scopes |= {class_scope(name): heat_maps.labels == label for label, name in enumerate(class_names)}
    return ((scope, chosen) for scope, chosen in scopes.items() if chosen.any())
