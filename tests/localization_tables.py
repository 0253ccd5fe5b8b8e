"""Runs of the protocol `localization` as a real one lays them out, whose tables follow from a few known values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from records import run_record, source_record
from reports import write_run
from roadworthy.core.record import ProtocolRecord, SourcePart
from roadworthy.metrics.boxes import UNCERTAIN
from roadworthy.protocols.localization import table_specs
from roadworthy.protocols.localization.metrics import METRICS, TASK_OF
from roadworthy.protocols.localization.settings import Context, ModelNote

Rows = Iterator[dict[str, Any]]
SETS = (
    ("test", "none", 0, "", True, "mask", 0.0),
    ("other_camera", "none", 0, "traffic_other_camera", True, "mask", 0.01),
    ("corner_cases", "none", 0, "traffic_corner_cases", True, "mask", 0.06),
    ("real_weather", "none", 0, "traffic_weather", True, "mask", 0.03),
    ("light_fog", "fog_veil", 1, "", True, "mask", 0.04),
    ("light_rain", "rainfall", 1, "", True, "mask", 0.08),
    ("heavy_fog", "fog_veil", 2, "", True, "mask", 0.12),
    ("heavy_rain", "rainfall", 2, "", True, "mask", 0.2),
    ("ood_objects", "none", 0, "traffic_ood", False, "mask", 0.07),
)
"""Name, shift, level, outliers, labelled, truth, and how much harder than the undisturbed test data it is."""
MODELS = {
    "convnext": ("small_convnext", "none"),
    "convnext_last": ("small_convnext", "last_layer"),
    "convnext_after": ("small_convnext", "after_backbone"),
    "convnext_head": ("small_convnext", "head"),
    "convnext_full": ("small_convnext", "full"),
    "convnext_ensemble": ("small_convnext", "ensemble"),
    "resnet": ("small_resnet", "none"),
    "resnet_full": ("small_resnet", "full"),
    "efficientnet": ("small_efficientnet", "none"),
    "efficientnet_full": ("small_efficientnet", "full"),
}
QUALITY = {"small_convnext": 0.95, "small_resnet": 0.92, "small_efficientnet": 0.94}
GAIN = {"none": 0.0, "last_layer": 0.002, "after_backbone": 0.004, "head": 0.003, "full": -0.005, "ensemble": 0.012}
ONE_PASS = ("none", "ensemble")
BIAS = {"x0": 0.3, "y0": 0.0, "x1": -0.3, "y1": 0.0}
"""How far the line of a coordinate lies above the level: boxes are too narrow, and the mean of the four hides it."""
IMAGES = 400


@dataclass(frozen=True)
class Sample:
    """What a run is to hold."""

    models: Mapping[str, tuple[str, str]] = field(default_factory=lambda: dict(MODELS))
    sets: Sequence[tuple[str, str, int, str, bool, str, float]] = SETS
    tasks: Sequence[str] = ("classes", "boxes")
    views: Sequence[str] = ("vehicle_pedestrian",)
    repeats: int = 1
    losses: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    searched: Sequence[str] = ()
    has_pictures: bool = False

    def family(self, model: str) -> str:
        return self.models[model][0]

    def value(self, model: str, image_set: str, metric: str) -> float:
        """A plausible value of a metric: better networks and methods are better, harder sets worse."""
        family, method = self.models[model]
        hardness = next(row[-1] for row in self.sets if row[0] == image_set)
        accuracy = QUALITY.get(family, 0.9) + GAIN.get(method, 0.0) - hardness
        error = 1 - accuracy
        known = {"accuracy": accuracy, "ece": 0.1 * error + 0.01, "nll": 3 * error, "brier": 1.6 * error}
        known |= {"iou": accuracy - 0.1, "mae": 40 * error, "diou": accuracy - 0.12, "iou_at_50": accuracy + 0.02}
        known |= {"box_ece_interval": 0.15 + 0.5 * error, "box_ece": 0.05 + 0.2 * error}
        known |= {"box_nll": 5 + 30 * error, "sharpness": 2.0 + 10 * error}
        return known.get(metric, error)

    def is_missing(self, model: str, metric: str) -> bool:
        return self.models[model][1] == "none" and metric in {own.name for own in UNCERTAIN}


def make_run(path: Path, sample: Sample | None = None, *, sources: Mapping[str, Sample] | None = None) -> Path:
    """A run folder of one source, or of several by name."""
    samples = {"": sample or Sample()} if sources is None else dict(sources)
    tables = {source: rows_of(own) for source, own in samples.items()}
    pictures = {row["media"]: row["images"] for own in samples.values() for row in _gallery(own)}
    return write_run(
        path, table_specs.TABLE_SPECS, tables, pictures, _record(samples), optional=(table_specs.SEARCH.name,)
    )


def _record(samples: Mapping[str, Sample]) -> Any:
    records = {
        source: source_record(list(own.models), ["car", "truck", "pedestrian"], images=IMAGES, groups=IMAGES)
        for source, own in samples.items()
    }
    parts = {source: SourcePart(cases=[], context=_context(own)) for source, own in samples.items()}
    part = ProtocolRecord(settings={"repeats": 1, "resamples": 1000}, sources=parts)
    return run_record(next(iter(records.values())), "traffic", protocols={"localization": part}, sources=records)


def _context(sample: Sample) -> dict[str, Any]:
    notes = {
        name: ModelNote(family=family, uncertainty=method, tasks={task: {} for task in sample.tasks})
        for name, (family, method) in sample.models.items()
    }
    return Context(models=notes, sets={}, size=[64, 64]).model_dump(mode="json")


def rows_of(sample: Sample) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table of one source."""
    made = {
        table_specs.CELLS: _cells(sample),
        table_specs.MODELS: _models(sample),
        table_specs.SETS: _sets(sample),
        table_specs.REPEATS: _repeats(sample),
        table_specs.BY_SIZE: _by_size(sample),
        table_specs.RELIABILITY: _reliability(sample),
        table_specs.SPARSIFICATION: _sparsification(sample),
        table_specs.SEARCH: _search(sample),
        table_specs.GALLERY: _gallery(sample),
        table_specs.TIMING: _timing(sample),
    }
    return {spec.name: list(rows) for spec, rows in made.items()}


def _model(sample: Sample, model: str) -> dict[str, Any]:
    family, method = sample.models[model]
    return {"model": model, "family": family, "uncertainty": method}


def _estimate(value: float, reason: str = "", spread: float = 0.02) -> dict[str, Any]:
    width = spread * max(1.0, abs(value))
    common = {"n": IMAGES, "groups": IMAGES, "sd": math.nan, "method": "group bootstrap", "reason": reason}
    return {"value": value, "lo": value - width, "hi": value + 0.8 * width, **common}


def _cells(sample: Sample) -> Rows:
    for model in sample.models:
        for name, shift, level, _, labelled, truth, _ in sample.sets:
            where = {**_model(sample, model), "set": name, "shift": shift, "level": level}
            for view in ("all", *(sample.views if labelled else ())):
                for metric in METRICS:
                    task, value, reason = TASK_OF[metric.name], sample.value(model, name, metric.name), ""
                    if task not in sample.tasks:
                        continue
                    if task == "classes" and not labelled:
                        value, reason = math.nan, "the objects of this set belong to no class of the source"
                    if task == "boxes" and not truth:
                        value, reason = math.nan, "this set has no true boxes"
                    if sample.is_missing(model, metric.name):
                        value, reason = math.nan, "this model states no uncertainty of its boxes"
                    spread = 0.005 if "ece" in metric.name.split("_") else 0.02
                    yield {**where, "view": view, "metric": metric.name, **_estimate(value, reason, spread)}


def _models(sample: Sample) -> Rows:
    for model, (_, method) in sample.models.items():
        for task in sample.tasks:
            counts = {"passes": 1 if method in ONE_PASS else 20, "members": 5 if method == "ensemble" else 1}
            form, loss = sample.losses.get(model, ("corners", "mae"))
            boxes = {"boxes": form, "loss": loss} if task == "boxes" else {"boxes": "", "loss": ""}
            training = {"learning_rate": 1e-3, "dropout": 0.05, "hidden": 128, "seed": 0, "weights": 200_000}
            yield {**_model(sample, model), "task": task, **counts, **boxes, **training}


def _sets(sample: Sample) -> Rows:
    for name, shift, level, outliers, labelled, truth, _ in sample.sets:
        origin = {"set": name, "shift": shift, "level": level, "outliers": outliers, "truth": truth}
        origin["parameters"] = '{"mm_per_h": 50}' if shift == "rainfall" else ""
        counts = {"images": IMAGES, "objects": IMAGES, "without_box": 0, "leaked": 0}
        inflation = 1.31 if truth == "hull" else math.nan
        classes = "car, truck, pedestrian" if labelled else ""
        yield {**origin, **counts, "classes": classes, "labelled": labelled, "inflation": inflation}


def _repeats(sample: Sample) -> Rows:
    for model in sample.models:
        for name, *_ in sample.sets:
            for repeat in range(sample.repeats):
                for metric in ("accuracy", "ece", "iou", "mae"):
                    if TASK_OF[metric] in sample.tasks:
                        value = sample.value(model, name, metric) + 0.002 * repeat
                        where = {**_model(sample, model), "set": name, "repeat": repeat}
                        yield {**where, "metric": metric, "value": value}


def _by_size(sample: Sample) -> Rows:
    if "boxes" not in sample.tasks:
        return
    edges = {"size": (0.0, 0.25, 0.5, 0.75, math.inf), "distance": (0.0, 10.0, 20.0, 40.0, 80.0, math.inf)}
    for model in sample.models:
        for name, *_ in sample.sets:
            for by, ends in edges.items():
                for place, (low, high) in enumerate(pairwise(ends)):
                    less = 0.05 * (4 - place if by == "size" else place)
                    where = {**_model(sample, model), "set": name, "by": by, "from": low, "to": high}
                    for metric in ("iou", "mae"):
                        yield {**where, "metric": metric, **_estimate(sample.value(model, name, metric) - less)}


def _reliability(sample: Sample) -> Rows:
    for model in sample.models:
        for name, _, _, _, labelled, _, hardness in sample.sets:
            for task in sample.tasks:
                if (task == "classes" and not labelled) or (task == "boxes" and sample.is_missing(model, "box_ece")):
                    continue
                for coordinate, bias in BIAS.items() if task == "boxes" else [("", 0.0)]:
                    for index, level in enumerate(np.arange(1, 11) / 10):
                        expected = level if task == "boxes" else level - 0.05
                        observed = np.clip(expected + (0.5 - expected) * 2 * hardness + bias * (1 - expected), 0, 1)
                        where = {**_model(sample, model), "set": name, "task": task, "coordinate": coordinate}
                        yield {**where, "bin": index, "expected": expected, "observed": observed, "count": 10 * index}


def _sparsification(sample: Sample) -> Rows:
    for model in sample.models:
        for name, _, _, _, labelled, _, _ in sample.sets:
            for task in sample.tasks:
                if (task == "classes" and not labelled) or (task == "boxes" and sample.is_missing(model, "box_ece")):
                    continue
                whole = 1 - sample.value(model, name, "accuracy" if task == "classes" else "iou")
                for kept in np.arange(1, 21) / 20:
                    where = {**_model(sample, model), "set": name, "task": task, "kept": kept}
                    yield {**where, "error": whole * kept**0.7, "oracle": whole * kept**3}


def _search(sample: Sample) -> Rows:
    for model in sample.searched:
        for trial in range(12):
            settings = {"learning_rate": 10 ** -(2 + trial / 4), "dropout": 0.05 * (trial % 7), "hidden": 128}
            value = math.nan if trial == 5 else 0.9 - 0.01 * (trial - 6) ** 2
            state = "pruned" if trial == 5 else "complete"
            yield {"model": model, "task": "boxes", "trial": trial, **settings, "value": value, "state": state}


def _gallery(sample: Sample) -> Rows:
    if sample.has_pictures:
        yield from ({"set": row[0], "media": f"localization-{row[0]}.png", "images": 4} for row in sample.sets)


def _timing(sample: Sample) -> Rows:
    for model, (_, method) in sample.models.items():
        cost = {"none": 1.0, "ensemble": 5.0, "full": 20.0}.get(method, 1.15)
        numbers = {"milliseconds": 4.2 * cost, "relative": cost, "memory_mb": 12.5 * (5 if method == "ensemble" else 1)}
        where = {**_model(sample, model), "system": model, "images": 50, "passes": 1 if method in ONE_PASS else 20}
        yield {**where, **numbers, "reason": ""}
