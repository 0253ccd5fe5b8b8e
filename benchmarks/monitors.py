"""What monitors cost, against peers in the same run and by what grows with the data.

    python benchmarks/monitors.py [--images 10000] [--out result.json]

neighbours  exact nearest neighbours of 10,000 byte images of 32x32x3 among as many, against scikit-learn's brute force,
            each the best of three. Target: at most half its time
memory      peak memory that fitting Mahalanobis and deep nearest neighbours allocates, at two sizes of training data.
            Targets: twice the data takes at most twice the memory (and a fifth), and for Mahalanobis no more at all
scores      energy, MSP, Mahalanobis, ViM and deep nearest neighbours against pytorch-ood on the same network, in
            processor time, fifteen turns each, one after the other. Target: a median ratio of neighbouring turns of
            at most 1. That package imports torchvision, which does not import beside a CPU build of torch; none of
            these detectors uses it, so empty modules stand in for it here
matrix      all ordered pairs of eight outlier sets calibrated and judged, against one representation per data set.
            Target: at most a fifth more
together    fifteen monitors without passes of their own on one model, through the engine and into a run's readouts,
            against the model's signals alone plus each monitor's own algebra on signals that are there. Targets: each
            signal is asked once per batch (counted), and at most 1.15 times as long, median of five turns

Exits with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from common import CLASSES, SIZE, best_of, images, processor_times, stand_in_for_torchvision
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch, Prediction, Stimulus
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.local import LocalExecutor
from roadworthy.engine.monitor_systems import MonitorFit, MonitorOn
from roadworthy.engine.plan import Bench, Graph, PlannedStimulus
from roadworthy.models import TorchModel
from roadworthy.models.networks import thesis_cnn
from roadworthy.models.signals import Signals
from roadworthy.monitors import (
    DeepKnn,
    Energy,
    KlMatching,
    KnnSvm,
    Mahalanobis,
    MaxLogit,
    Monitor,
    Msp,
    Neighbours,
    OpenMax,
    PytorchOod,
    Random,
    React,
    ScoreSvm,
    Vim,
    represent_data,
)

K = 8
SETS = 8


def race_neighbours(count: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    known, asked = (rng.integers(0, 256, (count, 3 * SIZE * SIZE), dtype=np.uint8) for _ in range(2))
    peer = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(known.astype(np.float32))
    queries, own = asked.astype(np.float32), Neighbours(known)
    np.testing.assert_allclose(own.distances(asked[:50], K), peer.kneighbors(queries[:50])[0], rtol=1e-4)
    ours, theirs = best_of(lambda: own.distances(asked, K)), best_of(lambda: peer.kneighbors(queries))
    return {"ours": ours, "scikit-learn": theirs, "ratio": theirs / ours}


def peak_bytes(monitor: Monitor, model: TorchModel, data: Dataset) -> int:
    tracemalloc.start()
    monitor.build(model, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measure_memory(model: TorchModel, count: int) -> dict[str, list[int]]:
    sets = [images(part, 1) for part in (count, 2 * count)]
    for data in sets:
        data.fingerprint()
    kinds: dict[str, Callable[[], Monitor]] = {"mahalanobis": Mahalanobis, "deep_knn": DeepKnn}
    return {name: [peak_bytes(make(), model, data) for data in sets] for name, make in kinds.items()}


def race_scores(model: TorchModel, count: int) -> dict[str, Any]:
    train, asked = images(count, 2), images(count, 3)
    pairs: dict[str, tuple[Monitor, PytorchOod]] = {
        "energy": (Energy(), PytorchOod(detector="EnergyBased")),
        "msp": (Msp(), PytorchOod(detector="MaxSoftmax")),
        "mahalanobis": (Mahalanobis(), PytorchOod(detector="Mahalanobis")),
        "vim": (Vim(dimensions=64), PytorchOod(detector="ViM", options={"d": 64})),
        "deep_knn": (DeepKnn(), PytorchOod(detector="KNN")),
    }
    times: dict[str, Any] = {}
    for name, (own, peer) in pairs.items():
        try:
            fitted = [monitor.build(model, train) for monitor in (own, peer)]
        except InputError as error:
            return {"pytorch-ood": str(error)}
        turns = [partial(represent_data, monitor, model, asked) for monitor in fitted]
        seconds = processor_times(turns)
        ours, theirs = (float(median) for median in np.median(seconds, axis=0))
        ratio = float(np.median(seconds[:, 0] / seconds[:, 1]))
        times[name] = {"ours": ours, "pytorch-ood": theirs, "ratio": ratio}
    return times


def measure_matrix(model: TorchModel, count: int) -> dict[str, dict[str, float]]:
    train, valid, test = (images(count, seed) for seed in (4, 5, 6))
    others = [images(count, 10 + number) for number in range(SETS)]
    found = {}
    monitors: tuple[Monitor, ...] = (Msp(), Energy(), ScoreSvm(), KnnSvm(k=8), Mahalanobis(), OpenMax())
    for monitor in monitors:
        fitted = monitor.build(model, train)
        started = time.perf_counter()
        inside, shown, *outside = (represent_data(fitted, model, data) for data in (valid, test, *others))
        represented = time.perf_counter() - started
        for judged in outside:
            calibrated = fitted.calibrate(inside, judged)
            for tested in (other for other in outside if other is not judged):
                calibrated.reject(tested), calibrated.reject(shown)
        found[monitor.name] = {"represent": represented, "ratio": (time.perf_counter() - started) / represented}
    total = sum(row["represent"] for row in found.values())
    whole = sum(row["represent"] * row["ratio"] for row in found.values())
    return {**found, "all": {"represent": total, "ratio": whole / total}}


class Counted(TorchModel):
    """Counts how many batches it is asked about, by signal."""

    asked: ClassVar[dict[str, int]] = {}

    def predict(self, batch: Batch) -> Prediction:
        self.asked["prediction"] = self.asked.get("prediction", 0) + 1
        return super().predict(batch)

    def features(self, batch: Batch, layer: str) -> np.ndarray:
        self.asked[layer] = self.asked.get(layer, 0) + 1
        return super().features(batch, layer)


def measure_together(network: torch.nn.Module, count: int) -> dict[str, Any]:
    """Seconds of fifteen monitors in the engine, and of what they are made of."""
    model = Counted(network, size=SIZE, name="cnn")
    train, asked = images(count, 7), images(count, 8)
    kinds = [Msp(), MaxLogit(), Energy(), KlMatching(), ScoreSvm(), OpenMax(), Mahalanobis(), DeepKnn(), Vim()]
    kinds += [React(), Random(), *(KnnSvm(k=k) for k in (1, 2, 4, 8))]
    systems = []
    for number, monitor in enumerate(kinds):
        fit = SimpleNamespace(model=model, fitted=monitor.build(model, train), recipe=SimpleNamespace(hash=str(number)))
        systems.append(MonitorOn(f"{monitor.name} {number}", cast(MonitorFit, fit)))
    bench = Bench(asked, {}, 0, 64, 1024)
    showing = PlannedStimulus(Stimulus(asked.fingerprint()), asked)
    graph = Graph([replace(bench.case(showing, system), system=Bare(system)) for system in systems])
    ours, parts = [], []
    for _ in range(5):
        Counted.asked.clear()
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            outcome = LocalExecutor().run(graph, RunFolder(folder))
            ours.append(time.perf_counter() - started)
        assert not outcome.failures, outcome.failures
        counted = dict(Counted.asked)
        signals = [Signals(model, asked.batch(slice(start, start + 64)), 64) for start in range(0, count, 64)]
        started = time.perf_counter()
        for batch in signals:
            batch.prediction, batch.features()
        asking = time.perf_counter() - started
        started = time.perf_counter()
        for system in systems:
            for batch in signals:
                system.fit.fitted.represent_signals(batch)
        parts.append(asking + time.perf_counter() - started)
    ratio = float(np.median(np.array(ours) / np.array(parts)))
    batches = -(-count // 64)
    return {"asked per batch": {name: n / batches for name, n in counted.items()}, "ratio": ratio, "seconds": min(ours)}


class Bare(MonitorOn):
    """A monitor that is fitted already: nothing is built for it."""

    def __init__(self, system: MonitorOn) -> None:
        super().__init__(system.name, system.fit)

    def requires(self) -> tuple[Any, ...]:
        return ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    stand_in_for_torchvision()
    model = TorchModel(thesis_cnn(CLASSES, SIZE), size=SIZE, name="thesis")
    misses = []

    neighbours = race_neighbours(options.images)
    shown = ", ".join(f"{who} {seconds:.2f} s" for who, seconds in neighbours.items() if who != "ratio")
    print(f"neighbours, {options.images:,} x 3,072: {shown}")
    if neighbours["ratio"] < 2:
        misses.append(f"neighbours: {neighbours['ratio']:.2f} times as fast as scikit-learn, not 2")

    memory = measure_memory(model, options.images // 5)
    for name, (once, twice) in memory.items():
        print(f"memory of {name}: {once / 2**20:.1f} MiB, {twice / 2**20:.1f} MiB for twice the data")
        if twice > (1.2 if name == "mahalanobis" else 2.4) * once:
            misses.append(f"memory of {name}: {twice / once:.2f} times for twice the data")

    scores = race_scores(model, options.images // 10)
    for name, row in scores.items():
        shown = row if isinstance(row, str) else ", ".join(f"{who} {value:.3f}" for who, value in row.items())
        print(f"scores of {name}: {shown}")
        if isinstance(row, dict) and row["ratio"] > 1.0:
            misses.append(f"scores of {name}: slower than pytorch-ood")

    matrix = measure_matrix(model, options.images // 20)
    for name, ratios in matrix.items():
        print(f"matrix of {name}: {ratios['ratio']:.3f} times {ratios['represent']:.2f} s")
    if matrix["all"]["ratio"] > 1.2:
        misses.append(f"matrix: {matrix['all']['ratio']:.2f} times one representation per data set, not 1.2")

    together = measure_together(thesis_cnn(CLASSES, SIZE), options.images // 5)
    print(f"together: {together['ratio']:.3f} times signals and algebra; asked per batch {together['asked per batch']}")
    if together["ratio"] > 1.15 or set(together["asked per batch"].values()) != {1.0}:
        misses.append(f"together: {together}, not 1.15 times and each signal once per batch")

    for miss in misses:
        print(f"MISSED: {miss}")
    if options.out:
        result = {"neighbours": neighbours, "memory": memory, "scores": scores, "matrix": matrix}
        result |= {"together": together, "misses": misses}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
