"""How large a report is, how fast to make and to use: one of 20 models under 5,000 conditions, and a usual one.

    python benchmarks/report_scale.py [--models 20] [--shifts 1000] [--out result.json]

The run is made of known values in the layout of a real one: every model undisturbed and under every shift at five
levels, all metrics of classification with bounds, a criterion on every condition, recall, confusions, reliability,
pictures and mistakes. The report of each size is rendered in a process of its own, whose processor time and highest
resident size (VmHWM) are taken, and opened in chromium (skipped, and said so, where there is none): the first paint,
how long a table of all conditions takes to filter its rows once it is unfolded, three times in a row, and whether
anything complains. Prints a table of both sizes, with --out writes it as JSON too. Limits stand in `LIMITS`; exits with
1 where one is missed. A machine that does something else meanwhile misses the limits in seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LEVELS = 5
CLASSES = [f"class {label}" for label in range(10)]
IMAGES = 1000
PICTURES = 64
"""Different pictures on disk; rows of galleries and mistakes share them."""
USUAL = (2, 10)
"""Models and shifts of a report of the usual size."""
FILTERS = {"first_filter": 1.0, "second_filter": 0.5, "third_filter": 0.5}
LIMITS = {
    "usual": {"megabytes": 10, "render_seconds": 20, "render_gigabytes": 1.0, "first_paint": 2.0, **FILTERS},
    "large": {"megabytes": 40, "render_seconds": 90, "render_gigabytes": 1.5, "first_paint": 2.0, **FILTERS},
}
"""What each report may take, in megabytes, gigabytes and seconds."""
ROWS = {
    "models": "models",
    "conditions": "conditions of each model",
    "megabytes": "size of the file, MB",
    "render_seconds": "processor time to write it, s",
    "render_gigabytes": "highest memory, GB",
    "first_paint": "first paint, s",
    "first_filter": "first filter of a table of all conditions (it is unpacked), s",
    "second_filter": "second filter, s",
    "third_filter": "third filter, s",
}
"""The figures of the table that is printed, in words."""
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
Columns = dict[str, Any]


def metric_values(names: Sequence[str], accuracy: np.ndarray) -> dict[str, np.ndarray]:
    """A value of every metric that goes with an accuracy."""
    wrong = 1 - accuracy
    higher = {"accuracy": accuracy, "auroc": 0.95 - 0.4 * wrong, "mean_confidence": accuracy + 0.4 * wrong}
    return {name: higher.get(name, 0.01 + wrong * (0.2 + 0.1 * index)) for index, name in enumerate(names)}


def write_table(run: Path, name: str, columns: Mapping[str, Any]) -> None:
    """A table of the run; texts that repeat are stored once."""
    arrays = {key: pa.array(values) for key, values in columns.items()}
    pq.write_table(pa.table(arrays), run / "tables" / f"{name}.parquet", use_dictionary=True)


def estimates(where: Columns, metric: str, value: np.ndarray) -> Columns:
    rows = len(value)
    bounds = {"value": value, "lo": value - 0.02, "hi": value + 0.015, "sd": np.full(rows, np.nan)}
    counts = {"n": np.full(rows, IMAGES), "groups": np.full(rows, IMAGES // 2)}
    texts = {"method": np.full(rows, "group bootstrap"), "reason": np.full(rows, "")}
    return {**where, "metric": np.full(rows, metric), **bounds, **counts, **texts}


def stacked(tables: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def make_run(run: Path, models: int, shifts: int) -> None:
    """A run of classification with so many models and shifts, at five levels."""
    import cv2

    from roadworthy.core.record import (
        AskedCase,
        CaseRecord,
        DataRecord,
        ModelRecord,
        ProtocolRecord,
        RunRecord,
        SourcePart,
        SourceRecord,
        StimulusRecord,
    )
    from roadworthy.engine.folder import RunFolder, write_json
    from roadworthy.protocols.classification import table_specs
    from roadworthy.protocols.classification.settings import METRICS
    from roadworthy.statistics import Estimate
    from roadworthy.verdict import Criterion, Measurement, judge

    (run / "tables").mkdir(parents=True)
    (run / "media").mkdir()
    random = np.random.default_rng(0)
    names = [f"model {index:02d}" for index in range(models)]
    shift_names = np.array([f"weather {index:04d}" for index in range(shifts)])
    conditions = [("none", 0), *((str(s), level) for s in shift_names for level in range(1, LEVELS + 1))]
    shift = np.tile([name for name, _ in conditions], models)
    level = np.tile([value for _, value in conditions], models)
    model = np.repeat(names, len(conditions))
    hardness = np.concatenate([[0.0], np.repeat(random.uniform(0.0, 0.1, shifts), LEVELS)])
    accuracy = 0.99 - (np.tile(hardness, models) * level + np.repeat(0.002 * np.arange(models), len(conditions)))
    accuracy = np.clip(accuracy + random.normal(0, 0.005, len(accuracy)), 0.05, 0.999).round(6)
    where = {"model": model, "shift": shift, "level": level}
    values = metric_values([metric.name for metric in METRICS], accuracy)
    signs = {metric.name: metric.higher_is_better for metric in METRICS}
    disturbed = level > 0
    tables = [estimates(where, name, value) for name, value in values.items()]
    drops = {}
    for name, value in values.items():
        if signs[name] is not None:
            clean = np.repeat(value.reshape(models, -1)[:, 0], len(conditions))
            drops[f"{name}_drop"] = (clean - value if signs[name] else value - clean)[disturbed]
    under = {key: column[disturbed] for key, column in where.items()}
    tables += [estimates(under, name, value) for name, value in drops.items()]
    write_table(run, table_specs.CELLS.name, stacked(tables))
    cells = {**{name: value[disturbed] for name, value in values.items()}, **drops}
    shape, cases = (models, shifts, LEVELS), {"cases": np.array([])}
    for spec, axis, keys in (
        (table_specs.BY_SHIFT, (2,), {"model": np.repeat(names, shifts), "shift": np.tile(shift_names, models)}),
        (
            table_specs.BY_LEVEL,
            (1,),
            {"model": np.repeat(names, LEVELS), "level": np.tile(np.arange(1, LEVELS + 1), models)},
        ),
        (table_specs.OVERALL, (1, 2), {"model": np.array(names)}),
    ):
        count = len(keys["model"])
        cases = {"cases": np.full(count, models * shifts * LEVELS // count)}
        means = {name: value.reshape(shape).mean(axis).ravel() for name, value in cells.items()}
        write_table(run, spec.name, stacked([estimates(keys | cases, name, value) for name, value in means.items()]))
    ends = {"from_level": np.full(models * shifts, 1), "to_level": np.full(models * shifts, LEVELS)}
    pairs = {"model": np.repeat(names, shifts), "shift": np.tile(shift_names, models)} | ends
    change = (values["accuracy"][disturbed].reshape(shape) * [1, 0, 0, 0, -1]).sum(2).ravel()
    write_table(run, table_specs.SEVERITY.name, estimates(pairs, "accuracy_drop", change))
    write_table(run, table_specs.REPEATS.name, {**where, "repeat": np.zeros(len(level), int)})
    rows = len(level)
    _write_classes(run, where, accuracy, table_specs)
    bins = {"bin": np.tile(np.arange(10), rows), "from": np.tile(np.arange(10) / 10, rows)}
    inside = np.tile(0.05 + np.arange(10) / 10, rows)
    answered = {"count": np.full(10 * rows, 100), "confidence": inside, "accuracy": inside * accuracy.repeat(10)}
    spread = {key: column.repeat(10) for key, column in where.items()}
    write_table(
        run, table_specs.RELIABILITY.name, {**spread, **bins, "to": np.tile((np.arange(10) + 1) / 10, rows), **answered}
    )
    media = [f"picture-{index}.png" for index in range(PICTURES)]
    for index, name in enumerate(media):
        small = random.integers(0, 255, (8, 32, 3), dtype=np.uint8)
        image = cv2.resize(small, (128, 32), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(run / "media" / name), image if index % 2 else image[:, :32])
    shown = len(conditions)
    strips = {"shift": shift[:shown], "level": level[:shown], "media": np.resize(media[1::2], shown)}
    write_table(run, table_specs.GALLERY.name, strips | {"images": np.full(shown, 4)})
    four = {key: column.repeat(4) for key, column in where.items()} | {"image": np.tile(np.arange(4), rows)}
    said = {"id": np.full(4 * rows, "img/1.png"), "label": np.full(4 * rows, CLASSES[0])}
    given = {"prediction": np.full(4 * rows, CLASSES[1]), "confidence": np.full(4 * rows, 0.8)}
    write_table(run, table_specs.GALLERY_ANSWERS.name, four | said | given)
    chosen = np.flatnonzero(level >= LEVELS - 2)  # three of each shift and model
    wrong = {key: column[chosen] for key, column in where.items()}
    wrong |= {"id": np.array([f"img/{row}.png" for row in chosen]), "label": np.full(len(chosen), CLASSES[0])}
    wrong |= {"prediction": np.full(len(chosen), CLASSES[2]), "confidence": random.uniform(0.5, 1, len(chosen))}
    wrong |= {"p_label": np.full(len(chosen), 0.01), "media": np.resize(media[::2], len(chosen))}
    write_table(run, table_specs.MISTAKES.name, wrong)
    criterion = Criterion(id="REQ-1", metric="accuracy", at_least=0.9)
    keys = [*zip(model.tolist(), shift.tolist(), level.tolist(), accuracy.tolist(), strict=True)]
    judged = [
        Measurement(
            {"model": m, "shift": s, "level": n},
            Estimate(v, v - 0.02, min(1.0, v + 0.015), n=IMAGES, groups=IMAGES // 2),
        )
        for m, s, n, v in keys
        if n
    ]
    write_json(run / "verdict.json", judge([criterion], lambda criterion, confidence: judged).to_json())
    (run / "study.yaml").write_text("name: scale\nseed: 0\n")
    known = {"name": "test set", "fingerprint": "d" * 64, "size": [32, 32], "images": IMAGES, "groups": IMAGES // 2}
    source = SourceRecord(
        data=DataRecord(class_names=CLASSES, **known),
        models={name: ModelRecord(fingerprint="f" * 64, capabilities=["probabilities"]) for name in names},
    )
    entries, asked = {}, []
    for index, (m, s, n, _) in enumerate(keys):
        stimulus = StimulusRecord(data="d", name=s, level=n, parameters={}, repeat=0, seed=0)
        key = f"case-{index}"
        entries[key] = CaseRecord(folder=f"readouts/{key}", system=m, stimulus=stimulus, status="done", reason="")
        asked.append(AskedCase(case=key, system=m, labels={}))
    record = RunRecord(
        study="scale",
        seed=0,
        created="2026-03-01T12:30:00+00:00",
        environment={"python": "3.11", "packages": {"roadworthy": "0.1.0"}},
        criteria=[criterion.model_dump(mode="json")],
        cases=entries,
        protocols={"classification": ProtocolRecord(sources={"": SourcePart(cases=asked)})},
        files={},
        settings={},
        sources={"": source},
    )
    RunFolder(run).write_record(record)


def _write_classes(run: Path, where: Columns, accuracy: np.ndarray, table_specs: Any) -> None:
    """Recall of every class in every cell, and which class was taken for the next one."""
    classes, rows = len(CLASSES), len(accuracy)
    spread = {key: column.repeat(classes) for key, column in where.items()}
    recall = np.clip(accuracy.repeat(classes) - np.tile(0.01 * np.arange(classes), rows), 0, 1)
    own = {"class": np.tile(CLASSES, rows)}
    write_table(run, table_specs.RECALL.name, estimates(spread | own, "recall", recall))
    per_class = IMAGES // classes
    right = (recall * per_class).round().astype(int)
    label, other = np.tile(CLASSES, rows), np.tile(np.roll(CLASSES, -1), rows)
    both = {key: np.concatenate([column, column]) for key, column in spread.items()}
    counts = np.concatenate([right, per_class - right])
    pairs = {"label": np.concatenate([label, label]), "prediction": np.concatenate([label, other]), "count": counts}
    write_table(run, table_specs.CONFUSION.name, {key: column[counts > 0] for key, column in (both | pairs).items()})


def render(run: Path) -> dict[str, Any]:
    """Write the report of a run, and say how long it took and how much memory the process held at most."""
    from roadworthy import report
    from roadworthy.protocols.pages import pages_of
    from roadworthy.report.facts import load_facts

    started = time.process_time()
    facts = load_facts(run)
    page = report.render(facts, pages_of(facts))
    (run / "report.html").write_text(page, encoding="utf-8")
    seconds = time.process_time() - started
    status = Path("/proc/self/status").read_text() if Path("/proc/self/status").exists() else ""
    peak = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), math.nan)
    return {
        "megabytes": round((run / "report.html").stat().st_size / 1e6, 2),
        "render_seconds": round(seconds, 1),
        "render_gigabytes": round(peak / 1e9, 2),
    }


WORDS = ("0", "0001", "00")
"""What is typed into the filter: at every size each choice has another number of rows than the one before."""
PATIENCE = 60
"""Seconds after which a filter that changes nothing is an error."""
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
UNFOLD = "document.querySelectorAll('#classification-heat details').forEach(d => { d.open = true; })"


def use(page_file: Path, program: str) -> dict[str, Any]:
    """Open a report in a browser: its first paint, and how long its first table of numbers takes to filter."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("playwright is not installed, so first paint and filtering are not measured: pip install playwright")
        return {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_file.as_uri(), timeout=120_000)
        paint = page.evaluate(FIRST_PAINT)
        page.evaluate(UNFOLD)
        box = page.locator("#classification-heat details", has=page.locator("table.numbers")).first
        field, count = box.get_by_role("searchbox"), box.locator(".tools [role=status]").first
        seconds = {}
        before = ""
        for name, text in zip(FILTERS, WORDS, strict=True):
            started = time.perf_counter()
            field.fill(text)
            while count.inner_text() == before:
                page.wait_for_timeout(1)
                if time.perf_counter() - started > PATIENCE:
                    sys.exit(f"the filter {text!r} left the count of rows at {before!r} for {PATIENCE} s")
            seconds[name] = round(time.perf_counter() - started, 3)
            before = count.inner_text()
        browser.close()
    return {"first_paint": round((paint or math.nan) / 1000, 2), **seconds, "complaints": complaints}


def measured(models: int, shifts: int) -> dict[str, Any]:
    """All figures of a report of one size."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        make_run(run, models, shifts)
        child = [sys.executable, __file__, "--child", str(run)]
        done = subprocess.run(child, capture_output=True, text=True, check=True)
        figures: dict[str, Any] = {"models": models, "conditions": shifts * LEVELS, **json.loads(done.stdout)}
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            print("no chromium on this machine: first paint and filtering are not measured", file=sys.stderr)
            return figures
        return figures | use(run / "report.html", program)


def judged(sizes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which limits are missed."""
    missed = [
        f"{name}: {key} {sizes[name][key]}, limit {limit}"
        for name, limits in LIMITS.items()
        for key, limit in limits.items()
        if sizes[name].get(key, 0) > limit
    ]
    return missed + [f"{name}: {own['complaints']}" for name, own in sizes.items() if own.get("complaints")]


def table_of(sizes: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures of all sizes and their limits as a table in Markdown."""
    heads = [head for name in sizes for head in (name, "limit")]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + len(heads) * "---|"]
    for key, words in ROWS.items():
        cells = [str(cell) for name in sizes for cell in (sizes[name].get(key, "–"), LIMITS[name].get(key, ""))]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--shifts", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(render(arguments.child)))
        return
    sizes = {"usual": measured(*USUAL), "large": measured(arguments.models, arguments.shifts)}
    missed = judged(sizes)
    result = {"cores": os.cpu_count(), "limits": LIMITS, "sizes": sizes, "missed": missed}
    print(table_of(sizes))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit("; ".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
