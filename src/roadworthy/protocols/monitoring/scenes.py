"""Scenes: what a model answered to the images of one benchmark, mixed and put in order, and what the oracle knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.monitors.id_threshold import random_frames
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.monitoring.names import TEST, ood_set
from roadworthy.protocols.monitoring.oracle import Truth, truth_of
from roadworthy.protocols.monitoring.settings import BenchmarkNote, Settings
from roadworthy.protocols.monitoring.streams import Mixing, Side, Stream, mixed

NO_NOTE = BenchmarkNote(kind="", made_from="")


@dataclass(frozen=True)
class Answered:
    """What a model answered to the images of one set: ids, objects, labels and predictions, each (N,).

    `data` is the fingerprint of the images, `confidence` (N,) that of the answers, where they were stored with it.
    """

    ids: NDArray[np.str_]
    groups: NDArray[np.str_]
    label: NDArray[np.int64]
    prediction: NDArray[np.int64]
    data: str = ""
    confidence: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, case: StoredCase) -> Answered:
        """What a stored case holds."""
        columns = case.columns("id", "group", "label", "prediction", "confidence")
        label, prediction = (columns[name].astype(np.int64) for name in ("label", "prediction"))
        return cls(columns["id"], columns["group"], label, prediction, case.stimulus.data, columns["confidence"])

    def side(self) -> Side:
        """Its ids and objects, for a stream."""
        return Side(self.ids.tolist(), self.groups.tolist())


@dataclass(frozen=True)
class Scene:
    """The stream of one benchmark as one model met it.

    kept    the rows (n,) of the ID side that may be shown in it: all, unless classes are left out
    groups  the object of every image of the stream (N,); images of both sides share one only where the OOD side shows
            ID images, disturbed
    shown   fingerprints of the data of both sides
    """

    benchmark: str
    note: BenchmarkNote
    stream: Stream
    truth: Truth
    kept: NDArray[np.intp]
    ids: NDArray[np.str_]
    groups: NDArray[np.str_]
    label: NDArray[np.int64]
    prediction: NDArray[np.int64]
    seed: int = 0
    shown: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.stream)

    @cached_property
    def group_codes(self) -> NDArray[np.int64]:
        """The objects of the images as numbers (N,), in the order of their names."""
        return np.unique(self.groups, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def frames(self) -> NDArray[np.int64]:
        """The places (m,) in the stream of one random image of each object, in order."""
        return random_frames(self.groups, self.seed)

    def gather(self, inside: NDArray[Any], outside: NDArray[Any]) -> NDArray[Any]:
        """Values of the images of the stream, from those of all ID test images and of all OOD images."""
        return self.stream.gather(inside[self.kept], outside)


def mixing_of(settings: Settings, seed: int) -> Mixing:
    """How the settings mix streams."""
    return Mixing(settings.ratio, settings.order, settings.block, seed)


def make_scene(benchmark: str, note: BenchmarkNote, inside: Answered, outside: Answered, mixing: Mixing) -> Scene:
    """The stream of a benchmark from what the model answered to all images of both sides."""
    mixing = replace(mixing, name=benchmark)
    kept = np.flatnonzero(~np.isin(inside.label, note.left_out))
    ood_side = outside.side()
    id_side = Side(inside.ids[kept].tolist(), inside.groups[kept].tolist())
    stream = mixed(id_side, ood_side, mixing, shared=note.shared)

    def gathered(name: str) -> NDArray[Any]:
        return stream.gather(getattr(inside, name)[kept], getattr(outside, name))

    label, prediction, groups = gathered("label"), gathered("prediction"), gathered("groups")
    if not note.shared:
        groups = np.char.add(np.where(stream.ood, "ood/", "id/"), groups)
    truth = truth_of(label, prediction, stream.ood, has_label=note.has_label, keeps_label=note.keeps_label)
    return Scene(
        benchmark,
        note,
        stream,
        truth,
        kept,
        gathered("ids"),
        groups,
        label,
        prediction,
        mixing.seed,
        (inside.data, outside.data),
    )


class ModelScenes:
    """All that one model answered: its data, and a scene per benchmark, or why there is none."""

    def __init__(
        self, model: str, cases: Sequence[StoredCase], notes: Mapping[str, BenchmarkNote], mixing: Mixing
    ) -> None:
        self.model, self.mixing = model, mixing
        self._cases = {case.labels["set"]: case for case in cases if case.labels["role"] == "answers"}
        self._notes = notes
        self._answered: dict[str, Answered | str] = {}
        self._scenes: dict[str, Scene | str] = {}

    def answered(self, name: str) -> Answered | str:
        """What the model answered to a set, or why there is no answer."""
        if name not in self._answered:
            case = self._cases.get(name)
            if case is None:
                self._answered[name] = "the model was not shown it"
            else:
                self._answered[name] = f"failed: {case.failure}" if case.failure else Answered.of(case)
        return self._answered[name]

    def scene(self, benchmark: str) -> Scene | str:
        """The stream of a benchmark, or why there is none."""
        if benchmark not in self._scenes:
            inside, outside = self.answered(TEST), self.answered(ood_set(benchmark))
            self._answered.pop(ood_set(benchmark))
            if isinstance(inside, str) or isinstance(outside, str):
                self._scenes[benchmark] = inside if isinstance(inside, str) else str(outside)
            else:
                try:
                    scene = make_scene(benchmark, self._notes[benchmark], inside, outside, self.mixing)
                except InputError as error:
                    self._scenes[benchmark] = str(error)
                else:
                    self._scenes[benchmark] = scene
        return self._scenes[benchmark]
