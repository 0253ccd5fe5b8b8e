"""The traffic sets: cut-outs with one object each, as recorded with several cameras, in several weathers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.random import Streams
from roadworthy.data.signs.rows import Key, Turns
from roadworthy.data.signs.scenes import ROAD_SURFACE
from roadworthy.data.signs.surroundings import LAYOUTS
from roadworthy.data.signs.traffic_pictures import BDD_LIKE, KITTI_LIKE, WINTER, Recording
from roadworthy.data.table import Table

TRAFFIC_VERSION = 1
"""Of the drawing of these sets: a change of any pixel is a new version, and so another fingerprint."""
RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"near": (6.0, 15.0), "middle": (15.0, 25.0), "far": (25.0, 40.0)}
)
"""Metres from and to of each level of `distance_range`."""
LARGE_FROM = 12.0
"""Metres to the nearest truck, bus or other large object: nearer, it would not fit into the frame."""
_LARGE = ("truck", "bus", "vehicle", "train")

_WEATHER = ("clear",) * 13 + ("overcast",) * 4 + ("partly cloudy",) * 3 + ("rain",) * 2 + ("snow",) * 2 + ("fog",)
_TIME = ("day",) * 13 + ("dusk",) * 3 + ("night",) * 4


@dataclass(frozen=True)
class TrafficSet:
    """One set: its classes with the kinds of object they hold, the camera, and the levels of its conditions.

    A level that is named several times is that many times as frequent.
    """

    kinds: Mapping[str, tuple[str, ...]]
    recording: Recording
    weather: tuple[str, ...]
    time_of_day: tuple[str, ...]
    extra_conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in order."""
        return tuple(self.kinds)

    def table(self, key: Key, n: int, prefix: str) -> Table:
        """Ids, labels, groups and conditions of the first n pictures.

        `distance` is in metres, with one decimal, and `distance_range` the range of `RANGES` it lies in; `object` is
        the kind of object.
        """
        turns, streams = Turns(n, self.class_names), Streams(*key, "conditions")
        of_views = {"weather": self.weather, "time_of_day": self.time_of_day, "distance_range": tuple(RANGES)}
        of_objects = {"road_surface": ROAD_SURFACE, "road_layout": LAYOUTS}
        conditions = dict(turns.balanced_conditions({**of_views, **self.extra_conditions}, of_objects, streams))
        count, index = turns.of_views()
        (rng,) = streams.each(["distance"])
        share = rng.random((count, len(self.kinds)))[index, turns.label]
        nearest = np.array([LARGE_FROM if name in _LARGE else 0.0 for name in self.kinds])[turns.label]
        low, high = np.array([RANGES[name] for name in conditions["distance_range"].tolist()]).T
        low = np.maximum(low, nearest)
        metres = np.floor(10 * (low * (high / low) ** share)) / 10
        conditions["distance"] = np.maximum(metres, low).astype(np.float32)
        conditions["object"] = self._objects(turns, streams)
        return turns.table(prefix, conditions)

    def _objects(self, turns: Turns, streams: Streams) -> NDArray[Any]:
        """The kind (n,) of each picture's object, balanced within its class."""
        names = np.empty(turns.n, dtype=object)
        count, index = turns.of_objects()
        for label, kinds in enumerate(self.kinds.values()):
            (rng,) = streams.each([f"object {label}"])
            order = rng.random((-(-count // len(kinds)), len(kinds))).argsort(axis=1).ravel()
            rows = np.flatnonzero(turns.label == label)
            names[rows] = np.array(kinds, dtype=object)[order[index[rows]]]
        return names.astype(np.str_)


_SEVEN = {
    "traffic sign": ("traffic sign",),
    "traffic light": ("traffic light",),
    "car": ("car",),
    "truck": ("truck",),
    "pedestrian": ("pedestrian",),
    "bus": ("bus",),
    "bike": ("cyclist", "motorcyclist"),
}
_TWO = {"car": ("car",), "pedestrian": ("pedestrian",)}
_CORNER_CASES = {
    "vehicle": ("trailer", "crane truck", "concrete mixer"),
    "pedestrian": ("seated person", "bending person", "wheelchair user"),
}
_OUTSIDE = {name: (name,) for name in ("cone", "bin", "animal", "train")}

TRAFFIC_SETS: Mapping[str, TrafficSet] = MappingProxyType(
    {
        "traffic": TrafficSet(_SEVEN, BDD_LIKE, _WEATHER, _TIME),
        "traffic_other_camera": TrafficSet(_TWO, KITTI_LIKE, ("clear", "clear", "partly cloudy", "overcast"), ("day",)),
        "traffic_weather": TrafficSet(
            _TWO,
            WINTER,
            ("snowfall", "snowfall", "snowfall", "drifting snow", "heavy rain"),
            ("day", "day", "day", "dusk"),
            {"snow_cover": ("partly", "full", "full"), "lens": ("clean", "wet")},
        ),
        "traffic_corner_cases": TrafficSet(_CORNER_CASES, BDD_LIKE, _WEATHER, _TIME),
        "traffic_ood": TrafficSet(_OUTSIDE, BDD_LIKE, _WEATHER, _TIME),
    }
)
"""The traffic sets by name."""
