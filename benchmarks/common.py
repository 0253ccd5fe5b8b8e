"""What several benchmarks share: drawn images, times of turns that take each other's place, and a stand-in."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from roadworthy.core.roles import Dataset
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.table import Table

SIZE, CLASSES = 32, 10
ROUNDS = 3


def best_of(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest of some rounds."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def images(count: int, seed: int, name: str = "data") -> Dataset:
    """Blotches of random colours, a class for each of ten sizes of blotch."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    small = rng.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    pixels = np.repeat(np.repeat(small, SIZE // 8, axis=1), SIZE // 8, axis=2)
    pixels = (
        pixels // 2
        + rng.integers(0, 60, pixels.shape, dtype=np.uint8)
        + (labels * 6)[:, None, None, None].astype(np.uint8)
    )
    ids = tuple(f"{name}/{row}" for row in range(count))
    return ArrayDataset(Table(ids=ids, labels=labels, class_names=tuple(map(str, range(CLASSES))), groups=ids), pixels)


def processor_times(turns: Sequence[Callable[[], Any]], rounds: int = 15) -> np.ndarray:
    """Seconds of processor time (rounds, turns), the turns interleaved."""
    seconds = np.empty((rounds, len(turns)))
    for row in seconds:
        for place, turn in enumerate(turns):
            started = time.process_time()
            turn()
            row[place] = time.process_time() - started
    return seconds


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty modules in place of torchvision and timm."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        ours = fullname.partition(".")[0] in ("torchvision", "timm")
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if ours else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class EmptyModule(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stand_in_for_torchvision() -> None:
    """Let empty modules stand in for torchvision where it cannot be imported; pytorch-ood imports it."""
    try:
        importlib.import_module("torchvision")
    except Exception:  # it fails in many ways
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.meta_path.insert(0, StandIn())
