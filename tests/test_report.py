"""The report: facts against a run of known values, hostile names, the same bytes twice, nothing from outside."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd

from roadworthy.engine.folder import RunFolder, write_json
from roadworthy.metrics import HIGHER_IS_BETTER, METRICS
from roadworthy.verdict import Criterion, Measurement, judge

Key = tuple[str, str, int]
NOWHERE = {"value": math.nan, "lo": math.nan, "hi": math.nan}


def accuracy_of(models: Sequence[str], shifts: Sequence[str], levels: Sequence[int]) -> dict[Key, float]:
    """Plausible accuracies: later models are worse, later shifts harder, higher levels harder."""
    found = {}
    for m, model in enumerate(models):
        found[model, "none", 0] = 0.98 - 0.03 * m
        for s, shift in enumerate(shifts):
            for level in levels:
                found[model, shift, level] = found[model, "none", 0] - 0.001 - 0.015 * s * level * (1 + 0.2 * m)
    return found


def make_run(
    path: Path,
    accuracy: Mapping[Key, float],
    *,
    classes: Sequence[str] = ("stop", "yield", "speed 50"),
    failed: Mapping[Key, str] | None = None,
    criteria: Sequence[Criterion] = (),
    mistakes: int = 2,
    images: int = 200,
    name: str = "signs",
    data: Mapping[str, Any] | None = None,
    image_id: str = "img/{}.png",
) -> Path:
    """A run folder in the layout and schema of a real one, whose accuracies are given."""
    failed = dict(failed or {})
    folder = RunFolder(path)
    (path / "media").mkdir(parents=True)
    keys = [*accuracy, *(key for key in failed if key not in accuracy)]
    models = list(dict.fromkeys(model for model, _, _ in keys))
    disturbed = [key for key in keys if key[1] != "none"]
    done = [key for key in keys if key not in failed]

    def row(where: dict[str, Any], metric: str, over: Sequence[Key], sign: float = 0.0) -> dict[str, Any]:
        """The mean of a metric over cells, or (sign) how much worse it is than undisturbed."""
        common = {"n": images, "groups": images // 2, "sd": math.nan}
        broken = next(
            (failed[key] for key in [*over, *([(over[0][0], "none", 0)] if sign else [])] if key in failed), None
        )
        if broken is not None:
            return {**where, "metric": metric, **NOWHERE, **common, "method": "", "reason": f"case failed: {broken}"}
        base = metric.removesuffix("_drop")
        value = float(np.mean([metric_of(base, accuracy[key]) for key in over]))
        if sign:
            value = sign * (metric_of(base, accuracy[over[0][0], "none", 0]) - value)
        if math.isnan(value):
            return {**where, "metric": metric, **NOWHERE, **common, "method": "", "reason": "no incorrect prediction"}
        bounds = {
            "value": value,
            "lo": value - 0.02,
            "hi": min(value + 0.015, 1.0) if base == metric else value + 0.015,
        }
        return {**where, "metric": metric, **bounds, **common, "method": "group bootstrap", "reason": ""}

    def estimates(where: dict[str, Any], over: Sequence[Key]) -> list[dict[str, Any]]:
        rows = [row(where, metric, over) for metric in METRICS]
        if over[0][1] != "none":
            rows += [
                row(where, f"{m}_drop", over, 1.0 if up else -1.0)
                for m, up in HIGHER_IS_BETTER.items()
                if up is not None
            ]
        return rows

    def averages(columns: Sequence[str]) -> pd.DataFrame:
        cells: dict[tuple[Any, ...], list[Key]] = {}
        for key in disturbed:
            named = dict(zip(("model", "shift", "level"), key, strict=True))
            cells.setdefault(tuple(named[column] for column in columns), []).append(key)
        rows = []
        for values, over in cells.items():
            rows += estimates({**dict(zip(columns, values, strict=True)), "cases": len(over)}, over)
        return pd.DataFrame(rows)

    def where(key: Key) -> dict[str, Any]:
        return {"model": key[0], "shift": key[1], "level": key[2]}

    folder.write_table("classification", pd.DataFrame([r for key in keys for r in estimates(where(key), [key])]))
    folder.write_table("classification_by_shift", averages(("model", "shift")))
    folder.write_table("classification_by_level", averages(("model", "level")))
    folder.write_table("classification_overall", averages(("model",)))
    severity = []
    for model, shift in dict.fromkeys((model, shift) for model, shift, _ in disturbed):
        steps = sorted(level for m, s, level in disturbed if (m, s) == (model, shift))
        if len(steps) > 1:
            change = {"model": model, "shift": shift, "from_level": steps[0], "to_level": steps[-1]}
            found = row(change, "accuracy_drop", [(model, shift, steps[-1])], 1.0)
            severity.append(found)
    folder.write_table("classification_severity", pd.DataFrame(severity))
    folder.write_table("classification_repeats", pd.DataFrame([{**where(key), "repeat": 0} for key in done]))
    recall, confusion, bins = [], [], []
    per_class = images // len(classes)
    for key in done:
        for index, label in enumerate(classes):
            value = max(accuracy[key] - 0.1 * index / len(classes), 0.0)
            bounds = {"n": per_class, "value": value, "lo": value, "hi": value, "groups": per_class, "reason": ""}
            recall.append({**where(key), "class": label, "metric": "recall", **bounds})
            right = round(value * per_class)
            counts = {label: right, classes[(index + 1) % len(classes)]: per_class - right}
            confusion += [
                {**where(key), "label": label, "prediction": taken, "count": n} for taken, n in counts.items() if n > 0
            ]
        for index in range(10):
            count = 0 if index < 2 else 10 * index
            inside = math.nan if not count else 0.05 + index / 10
            reached = math.nan if not count else min(inside * accuracy[key], 1.0)
            edges = {"bin": index, "from": index / 10, "to": (index + 1) / 10, "count": count}
            bins.append({**where(key), **edges, "confidence": inside, "accuracy": reached})
    folder.write_table("classification_recall", pd.DataFrame(recall))
    folder.write_table("classification_confusion", pd.DataFrame(confusion))
    folder.write_table("classification_reliability", pd.DataFrame(bins))
    gallery = []
    for shift, level in dict.fromkeys((shift, level) for _, shift, level in keys):
        picture(path / "media" / f"gallery-{len(gallery)}.png", 4, level)
        gallery.append({"shift": shift, "level": level, "media": f"gallery-{len(gallery)}.png", "images": 4})
    folder.write_table("classification_gallery", pd.DataFrame(gallery))
    wrong = []
    for place, key in enumerate(done):
        for number in range(mistakes):
            seen = f"seen-{place}-{number}.png"
            picture(path / "media" / seen, 1, key[2])
            names = {"id": image_id.format(number), "label": classes[0], "prediction": classes[-1]}
            wrong.append({**where(key), **names, "confidence": 0.9 - place / 1000, "p_label": 0.01, "media": seen})
    columns = ["model", "shift", "level", "id", "label", "prediction", "confidence", "p_label", "media"]
    folder.write_table("classification_mistakes", pd.DataFrame(wrong, columns=columns))

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        values = {key: accuracy[key] for key in done if key[1] != "none"}
        return [Measurement(where(k), v, v - 0.02, min(v + 0.015, 1), images, images // 2) for k, v in values.items()]

    write_json(path / "verdict.json", judge(criteria, measure).to_json())
    (path / "study.yaml").write_text(f"name: {json.dumps(name)}\nseed: 0\n")
    folder.write_record(
        {
            "study": name,
            "seed": 0,
            "created": "2026-03-01T12:30:00+00:00",
            "environment": {"python": "3.11.9", "cores": 2, "packages": {"roadworthy": "0.1.0", "numpy": "2.4.0"}},
            "settings": {"batch": 128, "chunk": 512, "size": [32, 32]},
            "data": {
                "name": "test set",
                "fingerprint": "d" * 64,
                "images": images,
                "groups": images // 2,
                "class_names": list(classes),
                "size": [32, 32],
                "bad_images": [],
                "notes": [],
                **(data or {}),
            },
            "models": {model: {"fingerprint": "f" * 64, "capabilities": ["probabilities"]} for model in models},
            "criteria": [criterion.model_dump() for criterion in criteria],
            "cases": [
                {
                    "protocol": "classification",
                    "key": f"{key[1]}-{key[2]}-r0-{place}",
                    "hash": str(place),
                    "system": key[0],
                    "stimulus": {"name": key[1], "level": key[2], "repeat": 0},
                    "status": "failed" if key in failed else "done",
                    "reason": failed.get(key, ""),
                }
                for place, key in enumerate(keys)
            ],
        }
    )
    return path


def metric_of(metric: str, accuracy: float) -> float:
    """A value of each metric that goes with an accuracy; AUROC does not exist where all is right."""
    wrong = 1 - accuracy
    return {
        "accuracy": accuracy,
        "auroc": math.nan if accuracy == 1 else 0.95 - 0.4 * wrong,
        "brier": 1.4 * wrong,
        "brier_mean": 1.4 * wrong / 3,
        "ece": 0.01 + 0.5 * wrong,
        "nll": 0.05 + 3 * wrong,
        "mean_confidence": accuracy + 0.4 * wrong,
        "overconfidence": 0.008 + 0.45 * wrong,
        "underconfidence": 0.002 + 0.05 * wrong,
    }[metric]


def picture(path: Path, images: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 255, (12, 12 * images, 3), dtype=np.uint8)
    cv2.imwrite(str(path), cv2.resize(pixels, (96 * images, 96), interpolation=cv2.INTER_NEAREST))
