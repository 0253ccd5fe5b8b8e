"""Runs of the protocol `monitoring` as a real one lays them out, whose tables follow from a few known rates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from records import run_record, source_record
from reports import write_run
from roadworthy.core.record import ProtocolRecord, SourcePart
from roadworthy.protocols.monitoring import table_specs
from roadworthy.protocols.monitoring.settings import BenchmarkNote, Context, MonitorNote
from roadworthy.protocols.monitoring.summaries import overall_rows, rank_rows

SETS = (
    ("scenery", "novel_class", False, True),
    ("belgian_signs", "novel_class", True, True),
    ("fgsm_4", "adversarial", False, True),
    ("square_3", "adversarial", False, True),
    ("fog_3", "distributional_shift", False, True),
    ("snow_4", "distributional_shift", False, True),
    ("gaussian_3", "noise", False, True),
    ("smear_2", "noise", False, True),
    ("black_frame", "anomaly", False, False),
    ("rows_lost", "anomaly", False, True),
)
"""Name, kind, near, whether the label survives."""
MONITORS = {"energy": 0.8, "msp": 0.72, "mahalanobis": 0.66, "boxes": 0.35, "boxes_isomap": 0.25, "random": 0.0}
"""The quality of each monitor: 0 decides by chance, 1 is always right."""
VIEWS = ("detection", "system", "system_label_lost", "model_scope")
DECISIONS = ("mcc", "fpr", "fnr", "precision", "recall", "f1_weighted", "f1_micro", "balanced_accuracy")
IMAGES, BINS, LEVEL = 1000, 60, 0.05
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Sample:
    """What a run is to hold: models with their accuracy, sets, monitors with their quality, and failures."""

    models: Mapping[str, float] = field(default_factory=lambda: {"lenet": 0.95, "vgg": 0.98})
    sets: Sequence[tuple[str, str, bool, bool]] = SETS
    monitors: Mapping[str, float] = field(default_factory=lambda: dict(MONITORS))
    failed: Mapping[str, str] = field(default_factory=dict)
    undertrained: frozenset[str] = frozenset()
    has_pictures: bool = False

    def rates(self, model: str, place: int, monitor: str) -> tuple[float, float]:
        """The share of OOD images and of ID images that a monitor rejects."""
        quality = self.monitors[monitor] * (0.45 + 0.55 * math.sin(1 + place + len(model)) ** 2)
        wrongly = 0.05 if quality > 0.5 else 0.05 + 0.5 * (0.5 - quality) * self.monitors[monitor]
        return min(wrongly + quality * 0.95, 0.999), wrongly


def make_run(path: Path, sample: Sample | None = None, *, sources: Mapping[str, Sample] | None = None) -> Path:
    """A run folder of one source, or of several by name."""
    samples = {"": sample or Sample()} if sources is None else dict(sources)
    tables = {source: rows_of(own) for source, own in samples.items()}
    pictures = {row["media"]: row["images"] for own in samples.values() for row in _gallery(own)}
    return write_run(path, table_specs.TABLE_SPECS, tables, pictures, _record(samples))


def _record(samples: Mapping[str, Sample]) -> Any:
    settings = {"limit": IMAGES, "ratio": 0.5, "order": "blocks", "block": 50}
    records = {
        source: source_record(list(own.models), ["stop", "yield", "speed 50"], images=IMAGES, groups=IMAGES // 2)
        for source, own in samples.items()
    }
    first = next(iter(records.values()))
    parts = {source: SourcePart(cases=[], context=_context(own)) for source, own in samples.items()}
    part = ProtocolRecord(settings=settings, sources=parts)
    return run_record(first, "monitors", protocols={"monitoring": part}, sources=records)


def _context(sample: Sample) -> dict[str, Any]:
    own = {"differs_from_paper": "two dimensions", "parameters": {"tau": "0.0001", "clusters": "3"}}
    notes = {name: MonitorNote(monitor=name, **own) for name in sample.monitors}
    benchmarks = {
        name: BenchmarkNote(kind=kind, made_from=name, near=near, keeps_label=keeps)
        for name, kind, near, keeps in sample.sets
    }
    architectures = dict.fromkeys(sample.models, "small CNN")
    context = Context(architectures=architectures, monitors=notes, benchmarks=benchmarks)
    return context.model_dump(mode="json")


def rows_of(sample: Sample) -> dict[str, Rows]:
    """The rows of every table of one source."""
    cells = list(_cells(sample))
    rows: dict[str, Rows] = {
        table_specs.GALLERY.name: list(_gallery(sample)),
        table_specs.DECISIONS.name: cells,
        table_specs.OVERALL.name: overall_rows(cells),
        table_specs.IMPACT_ON_ID.name: list(_id(sample)),
        table_specs.THRESHOLDS.name: list(_thresholds(sample)),
        table_specs.COMPETENCE.name: list(_competence(sample)),
        table_specs.SETS.name: list(_sets(sample)),
        table_specs.RISK.name: list(_risk(sample)),
        table_specs.SWEEP.name: list(_sweep(sample)),
        table_specs.EVENTS.name: list(_stream(sample)),
        table_specs.TIMELINE.name: list(_timeline(sample)),
        table_specs.ALARMS.name: list(_alarms(sample)),
        table_specs.TIMING.name: list(_timing(sample)),
    }
    return rows | dict(zip((table_specs.RANKS.name, table_specs.PAIRS.name), rank_rows(cells), strict=True))


def _estimate(value: float, reason: str = "", spread: float = 0.04) -> dict[str, Any]:
    if math.isnan(value):
        numbers = {"value": value, "lo": math.nan, "hi": math.nan}
    else:
        numbers = {"value": value, "lo": value - spread, "hi": value + 0.8 * spread}
    common = {"n": 2 * IMAGES, "groups": IMAGES, "sd": math.nan, "method": "group bootstrap"}
    return {**numbers, **common, "reason": reason}


def _decisions(tp: float, fp: float, tn: float, fn: float) -> dict[str, float]:
    """The decision metrics of shares of the four outcomes; NaN where one is not defined."""

    def ratio(part: float, whole: float) -> float:
        return part / whole if whole > 0 else math.nan

    scale = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    f1, f1_other = ratio(2 * tp, 2 * tp + fp + fn), ratio(2 * tn, 2 * tn + fp + fn)
    return {
        "mcc": ratio(tp * tn - fp * fn, scale),
        "fpr": ratio(fp, fp + tn),
        "fnr": ratio(fn, fn + tp),
        "precision": ratio(tp, tp + fp),
        "recall": ratio(tp, tp + fn),
        "f1_weighted": (tp + fn) * f1 + (tn + fp) * f1_other,
        "f1_micro": tp + tn,
        "balanced_accuracy": (ratio(tp, tp + fn) + ratio(tn, tn + fp)) / 2,
    }


def _outcomes(sample: Sample, model: str, place: int, monitor: str, view: str) -> tuple[float, float, float, float]:
    """The shares of true and false positives, true and false negatives in the stream, half of which is OOD."""
    caught, wrongly = (0.0, 0.0) if monitor == "none" else sample.rates(model, place, monitor)
    if view == "detection":
        return caught / 2, wrongly / 2, (1 - wrongly) / 2, (1 - caught) / 2
    _, kind, _, keeps = sample.sets[place]
    lost = kind == "novel_class" or (view == "system_label_lost" and not keeps)
    wrong_id, wrong_ood = 1 - sample.models[model], 1.0 if lost else 0.35 + 0.05 * (place % 4)
    tp = (wrong_id * min(3 * wrongly, 1) + wrong_ood * caught) / 2
    fp = ((1 - wrong_id) * wrongly + (1 - wrong_ood) * 0.7 * caught) / 2
    fn = (wrong_id + wrong_ood) / 2 - tp
    return tp, fp, 1 - tp - fp - fn, fn


def _where(sample: Sample) -> Iterator[tuple[str, int, str]]:
    for model in sample.models:
        for place in range(len(sample.sets)):
            for monitor in sample.monitors:
                yield model, place, monitor


def _cells(sample: Sample) -> Iterator[dict[str, Any]]:
    for model in sample.models:
        for place, (name, kind, near, _) in enumerate(sample.sets):
            for monitor in ("none", *sample.monitors):
                where = {"model": model, "benchmark": name, "ood_kind": kind, "near": near, "monitor": monitor}
                for view in VIEWS:
                    if view == "detection" and monitor == "none":
                        continue
                    tp, fp, tn, fn = _outcomes(sample, model, place, monitor, view)
                    values = _decisions(tp, fp, tn, fn)
                    if view == "detection":
                        values |= {"auroc": 0.5 + 0.5 * sample.monitors[monitor] * values["balanced_accuracy"]}
                    if view == "model_scope":
                        values |= {"safety_gain": tp, "residual_hazard": fn, "availability_cost": fp}
                        values |= {"aurc": 0.3 * (1 - sample.monitors.get(monitor, 0)) + 0.01 * place}
                    for metric, value in values.items():
                        reason = "no image is rejected" if math.isnan(value) else ""
                        if monitor in sample.failed:
                            value, reason = math.nan, sample.failed[monitor]
                        yield {**where, "view": view, "part": "stream", "metric": metric, **_estimate(value, reason)}


def _id(sample: Sample) -> Iterator[dict[str, Any]]:
    for model, accuracy in sample.models.items():
        yield {"model": model, "monitor": "none", "metric": "class_mcc_alone", **_estimate(accuracy - 0.01)}
        for monitor in sample.monitors:
            _, wrongly = sample.rates(model, 0, monitor)
            values = {"class_mcc": accuracy - 0.01 - 1.5 * wrongly, "rejected": wrongly}
            values["relative_change"] = values["class_mcc"] / (accuracy - 0.01) - 1
            values["relative_change_perfect"] = 0.002
            for metric, value in values.items():
                reason = sample.failed.get(monitor, "")
                shown = math.nan if reason else value
                yield {"model": model, "monitor": monitor, "metric": metric, **_estimate(shown, reason, 0.02)}


def _thresholds(sample: Sample) -> Iterator[dict[str, Any]]:
    for model in sample.models:
        for place, monitor in enumerate(sample.monitors):
            _, wrongly = sample.rates(model, 0, monitor)
            rule = ("conformal", "share")[place % 2]
            is_broken = wrongly > 0.06
            promise = "none" if rule == "share" or monitor in sample.failed else "broken" if is_broken else "kept"
            common = {"rule": rule, "rejected": 0.05, "images": 500, "objects": 250, "rank": 6}
            common["confidence"] = 0.95 if rule == "conformal" else math.nan
            numbers = {"threshold": -1.25 + place, "achieved": 0.048, **_estimate(wrongly, spread=0.01)}
            kept = {name: numbers[name] for name in ("threshold", "achieved", "value", "lo", "hi", "n", "groups")}
            if monitor in sample.failed:
                kept |= {"threshold": math.nan, "achieved": math.nan, "value": math.nan}
            words = {"promise": promise, "notes": "", "reason": sample.failed.get(monitor, "")}
            yield {"model": model, "monitor": monitor, "class": "", **common, **kept, **words}


def _competence(sample: Sample) -> Iterator[dict[str, Any]]:
    for model, accuracy in sample.models.items():
        for part, more in (("train", 0.02), ("valid", 0.005), ("test", 0.0)):
            for metric, less in (("accuracy", 0.0), ("class_mcc_alone", 0.01)):
                where = {"model": model, "part": part, "metric": metric, "architecture": "small CNN"}
                where["undertrained"] = model in sample.undertrained
                yield {**where, **_estimate(min(accuracy + more - less, 1.0), spread=0.01)}


def _sets(sample: Sample) -> Iterator[dict[str, Any]]:
    for name, kind, near, keeps in sample.sets:
        counts = {"images_id": IMAGES, "images_ood": IMAGES, "objects": IMAGES, "ratio": 0.5, "leaked": 0}
        texts = {"made_from": f"{name} of the test data", "attacked": "", "order": "blocks", "note": ""}
        labels = {"has_label": kind != "novel_class", "keeps_label": keeps}
        yield {"benchmark": name, "ood_kind": kind, "near": near, **labels, **counts, **texts}


def _gallery(sample: Sample) -> Iterator[dict[str, Any]]:
    names = ["", *(name for name, *_ in sample.sets)] if sample.has_pictures else []
    yield from ({"benchmark": name, "media": f"monitoring-{name}.png", "images": 4} for name in names)


def _risk(sample: Sample) -> Iterator[dict[str, Any]]:
    for model, place, monitor in _where(sample):
        if monitor in sample.failed:
            continue
        tp, _, _, fn = _outcomes(sample, model, place, monitor, "system")
        for coverage in np.linspace(0, 1, 51)[1:]:
            risk = (tp + fn) * coverage ** (1 + 4 * sample.monitors[monitor])
            where = {"model": model, "benchmark": sample.sets[place][0], "monitor": monitor, "coverage": coverage}
            yield {**where, "accepted": coverage, "risk": risk, "threshold": 1 - coverage}


def _sweep(sample: Sample) -> Iterator[dict[str, Any]]:
    names = [*(name for name, *_ in sample.sets), "all"]
    for model in sample.models:
        for place, name in enumerate(names):
            for monitor, quality in sample.monitors.items():
                if monitor in sample.failed:
                    continue
                for share in np.linspace(0, 1, 21):
                    wrong, caught = 0.28 + 0.01 * (place % 5), share ** (1 - 0.8 * quality)
                    rates = {"recall": caught, "fpr": share, "threshold": 3 * share}
                    effects = {"safety_gain": wrong * caught, "residual_hazard": wrong * (1 - caught)}
                    where = {"model": model, "benchmark": name, "monitor": monitor, "rejected_id": share}
                    yield {**where, **rates, **effects, "availability_cost": (1 - wrong) * share}


def _stream(sample: Sample) -> Iterator[dict[str, Any]]:
    for model, place, monitor in _where(sample):
        caught, wrongly = sample.rates(model, place, monitor)
        values = {
            "detection_delay_median": round(1 / caught) - 1,
            "detection_delay_worst": math.inf if monitor == "random" else round(9 / caught),
            "missed_onsets": 2 if monitor == "random" else 0,
            "false_alarm_runs": round(wrongly * IMAGES * 0.9),
            "longest_false_alarm_run": round(20 * wrongly),
            "false_alarms_per_hour": 36000 * wrongly * 0.9,
        }
        for metric, value in values.items():
            reason = sample.failed.get(monitor, "")
            where = {"model": model, "benchmark": sample.sets[place][0], "monitor": monitor, "metric": metric}
            shown = math.nan if monitor in sample.failed else value
            yield {**where, "value": shown, "lo": 0.9 * shown, "hi": 1.2 * shown, "n": 20, "reason": reason}


def _timeline(sample: Sample) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(0)
    step = 2 * IMAGES // BINS
    for model, place, monitor in _where(sample):
        if monitor in sample.failed:
            continue
        caught, wrongly = sample.rates(model, place, monitor)
        first = second = 0.0
        known: set[str] = set()
        for index in range(BINS):
            ood = 0.0 if index < 12 else float(index // 6 % 2)
            rejected = float(np.clip(random.binomial(20, caught if ood else wrongly) / 20, 0, 1))
            first, second = max(first + 3 * (rejected - 0.08), -1.0), max(second + 2 * (rejected - 0.1), -1.0)
            reached = {"exchangeability": first, "rejection_rate": second}
            new = [name for name, value in reached.items() if value >= -math.log(LEVEL) and name not in known]
            known, alarm = known | {*new}, ", ".join(new)
            where = {"model": model, "benchmark": sample.sets[place][0], "monitor": monitor, "bin": index}
            shares = {"from": index * step, "to": (index + 1) * step, "ood": ood, "rejected": rejected}
            wealth = {"log_wealth_exchangeability": first, "log_wealth_rejection_rate": second}
            yield {**where, **shares, "wrong": 0.05 + 0.5 * ood, "alarm": alarm, **wealth}


def _alarms(sample: Sample) -> Iterator[dict[str, Any]]:
    for model, place, monitor in _where(sample):
        for test in ("exchangeability", "rejection_rate"):
            reached = monitor not in ("random", *sample.failed)
            where = {"model": model, "benchmark": sample.sets[place][0], "monitor": monitor, "test": test}
            numbers = {"level": LEVEL, "alarm_at": 240 if reached else None, "onset": 200}
            reason = sample.failed.get(monitor, "")
            yield {
                **where,
                **numbers,
                "delay": 40 if reached else None,
                "objects": 1000,
                "log_wealth": 6.7,
                "reason": reason,
            }


def _timing(sample: Sample) -> Iterator[dict[str, Any]]:
    for model in sample.models:
        for place, monitor in enumerate(("none", *sample.monitors)):
            if monitor in sample.failed:
                continue
            seconds = 0.002 * (1 + 0.3 * place)
            for form in ("guard", "exported"):
                taken = seconds if form == "guard" else seconds / 5
                quantiles = {"median": taken, "p95": 1.5 * taken, "p99": 2 * taken, "extra": 0.0006 * place}
                bounds = {
                    f"{name}_{end}": factor * value
                    for name, value in quantiles.items()
                    for end, factor in (("lo", 0.9), ("hi", 1.2))
                }
                resident = 2**20 * ((200 if form == "guard" else 60) + place)
                memory = {
                    "state_bytes": 4096 * place,
                    "resident_bytes": resident,
                    "extra_resident_bytes": 2**20 * place,
                }
                rest = {"overhead_median": 1 + 0.3 * place, "system": "0", "reason": "", "no_memory": ""}
                rest |= {"machine": "a processor, 2 cores", "measured": "2026-01-02T03:04:05+00:00", "asked": ""}
                where = {"model": model, "monitor": monitor, "form": form, "images": 1000, "different": 256}
                yield {**where, **quantiles, **bounds, **memory, **rest}
