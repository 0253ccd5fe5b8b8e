"""Runs of known values as a real one lays them out, and their reports taken apart."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd

from browser import FLAGS, browser_program
from records import Shown, run_record, source_record, with_cases
from roadworthy import report
from roadworthy.core.record import RunRecord
from roadworthy.core.tables import TableSpec
from roadworthy.engine.folder import RunFolder, write_json
from roadworthy.protocols.classification import table_specs
from roadworthy.protocols.classification.settings import METRICS
from roadworthy.protocols.pages import pages_of
from roadworthy.report.facts import load_facts
from roadworthy.report.words import NO_BREAK
from roadworthy.statistics import Estimate
from roadworthy.verdict import Criterion, Measurement, judge

DIRECTIONS = {metric.name: metric.higher_is_better for metric in METRICS}

Key = tuple[str, str, int]
NOWHERE = {"value": math.nan, "lo": math.nan, "hi": math.nan}
HOSTILE = "<script>alert(1)</script>"


def render(run: Path) -> str:
    facts = load_facts(run)
    return report.render(facts, pages_of(facts))


def headline(run: Path) -> list[str]:
    facts = load_facts(run)
    return report.headline(facts, pages_of(facts))


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
        rows = [row(where, metric, over) for metric in DIRECTIONS]
        if over[0][1] != "none":
            rows += [
                row(where, f"{m}_drop", over, 1.0 if up else -1.0) for m, up in DIRECTIONS.items() if up is not None
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

    folder.write_table(table_specs.CELLS.name, pd.DataFrame([r for key in keys for r in estimates(where(key), [key])]))
    folder.write_table(table_specs.BY_SHIFT.name, averages(("model", "shift")))
    folder.write_table(table_specs.BY_LEVEL.name, averages(("model", "level")))
    folder.write_table(table_specs.OVERALL.name, averages(("model",)))
    severity = []
    for model, shift in dict.fromkeys((model, shift) for model, shift, _ in disturbed):
        steps = sorted(level for m, s, level in disturbed if (m, s) == (model, shift))
        if len(steps) > 1:
            change = {"model": model, "shift": shift, "from_level": steps[0], "to_level": steps[-1]}
            found = row(change, "accuracy_drop", [(model, shift, steps[-1])], 1.0)
            severity.append(found)
    folder.write_table(table_specs.SEVERITY.name, pd.DataFrame(severity))
    folder.write_table(table_specs.REPEATS.name, pd.DataFrame([{**where(key), "repeat": 0} for key in done]))
    recall, confusion, bins = [], [], []
    per_class = images // len(classes)
    for key in done:
        for index, label in enumerate(classes):
            value = max(accuracy[key] - 0.1 * index / len(classes), 0.0)
            bounds = {"n": per_class, "value": value, "lo": value, "hi": value, "groups": per_class, "reason": ""}
            recall.append({**where(key), "class": label, "metric": "recall", **bounds})
            right = round(value * per_class)
            counts = {classes[(index + 1) % len(classes)]: per_class - right, label: right}
            confusion += [
                {**where(key), "label": label, "prediction": taken, "count": n} for taken, n in counts.items() if n > 0
            ]
        for index in range(10):
            count = 0 if index < 2 else 10 * index
            inside = math.nan if not count else 0.05 + index / 10
            reached = math.nan if not count else min(inside * accuracy[key], 1.0)
            edges = {"bin": index, "from": index / 10, "to": (index + 1) / 10, "count": count}
            bins.append({**where(key), **edges, "confidence": inside, "accuracy": reached})
    folder.write_table(table_specs.RECALL.name, pd.DataFrame(recall))
    folder.write_table(table_specs.CONFUSION.name, pd.DataFrame(confusion))
    folder.write_table(table_specs.RELIABILITY.name, pd.DataFrame(bins))
    gallery = []
    for shift, level in dict.fromkeys((shift, level) for _, shift, level in keys):
        picture(path / "media" / f"gallery-{len(gallery)}.png", 4, level)
        gallery.append({"shift": shift, "level": level, "media": f"gallery-{len(gallery)}.png", "images": 4})
    folder.write_table(table_specs.GALLERY.name, pd.DataFrame(gallery))
    answers = []
    for key in done:
        for image in range(4):
            label, prediction = classes[image % len(classes)], classes[image // 2 % len(classes)]
            answer = {"id": image_id.format(image), "label": label, "prediction": prediction, "confidence": 0.8}
            answers.append({**where(key), "image": image, **answer})
    folder.write_table(table_specs.GALLERY_ANSWERS.name, pd.DataFrame(answers))
    wrong = []
    for place, key in enumerate(done):
        for count in range(mistakes):
            seen = f"seen-{place}-{count}.png"
            picture(path / "media" / seen, 1, key[2])
            names = {"id": image_id.format(count), "label": classes[0], "prediction": classes[-1]}
            wrong.append({**where(key), **names, "confidence": 0.9 - place / 1000, "p_label": 0.01, "media": seen})
    columns = ["model", "shift", "level", "id", "label", "prediction", "confidence", "p_label", "media"]
    folder.write_table(table_specs.MISTAKES.name, pd.DataFrame(wrong, columns=columns))

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        values = {key: accuracy[key] for key in done if key[1] != "none"}
        return [
            Measurement(where(k), Estimate(v, v - 0.02, min(v + 0.015, 1), n=images, groups=images // 2))
            for k, v in values.items()
        ]

    write_json(path / "verdict.json", judge(criteria, measure).to_json())
    asked = f"criteria: {json.dumps([criterion.model_dump() for criterion in criteria])}\n" if criteria else ""
    (path / "study.yaml").write_text(f"name: {json.dumps(name)}\nseed: 0\n{asked}")
    known = {"images": images, "groups": images // 2, **(data or {})}
    asked_for = [criterion.model_dump(mode="json") for criterion in criteria]
    record = run_record(source_record(models, classes, **known), name, criteria=asked_for)
    shown = [Shown(*key, failure=failed.get(key, "")) for key in keys]
    folder.write_record(with_cases(record, "classification", shown))
    return path


def write_run(
    path: Path,
    specs: Sequence[TableSpec],
    tables: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
    pictures: Mapping[str, int],
    record: RunRecord,
    optional: Sequence[str] = (),
) -> Path:
    """A run folder with these rows by source (one of no name: a run of one source) and table, each table checked.

    `pictures` are written with so many images each; an `optional` table without rows is left out.
    """
    folder, several = RunFolder(path), "" not in tables
    (path / "media").mkdir(parents=True)
    for name, images in pictures.items():
        picture(path / "media" / name, images, seed=0)
    for spec in specs:
        sources = [(source, own.get(spec.name, ())) for source, own in tables.items()]
        rows = [{"source": source, **row} if several else row for source, own in sources for row in own]
        if not rows and spec.name in optional:
            continue
        frame = spec.frame(rows, first=("source",) if several else ())
        spec.check(frame, several)
        folder.write_table(spec.name, frame)
    write_json(path / "verdict.json", judge([], lambda criterion, confidence: []).to_json())
    (path / "study.yaml").write_text(f"name: {record.study}\nseed: 0\n")
    folder.write_record(record)
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
        "fpr95_right": math.nan if accuracy == 1 else 0.2 + 0.7 * wrong,
        "fpr95_wrong": math.nan if accuracy == 1 else 0.1 + 0.8 * wrong,
    }[metric]


def picture(path: Path, images: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 255, (12, 12 * images, 3), dtype=np.uint8)
    cv2.imwrite(str(path), pixels)


class Elements(HTMLParser):
    """Every start tag with its attributes, the text outside of scripts and styles, and what each script holds."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        elif self.cdata_elem is None:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace(NO_BREAK, " ").split())


def without_charts(page: str) -> str:
    """The page without its charts, as a person reads it."""
    return page.partition('<script type="application/json"')[0].replace(NO_BREAK, " ")


def section_of(page: str, name: str) -> str:
    """A section of a page by its id, without charts."""
    return without_charts(page).partition(f'<section id="{name}"')[2].partition("</section>")[0]


def chart_data(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', html, re.DOTALL)
    assert found
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


def in_browser(page: Path, profile: Path, size: str = "1280,900") -> subprocess.CompletedProcess[str]:
    """A page as chromium leaves it when its scripts are done."""
    told = ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=60000"]
    command = [browser_program(), *FLAGS, *told, f"--window-size={size}", f"--user-data-dir={profile}"]
    return subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=180, check=True
    )
