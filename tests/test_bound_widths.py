"""No interval without width: every metric of every protocol, of data that are all equal.

Answers that agree on every image that was shown do not say that they agree on the next one. Stored runs are read with
their answers made equal, so that every table, criterion and comparison meets the case in which resampling changes
nothing. The protocols and their metrics come from the registries: what is new is walked as well, or fails here.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import roadworthy as rw
from roadworthy import stored_evidence
from roadworthy.engine.readouts import Readouts, read_case, read_columns
from roadworthy.metrics import Answers
from roadworthy.metrics.base import DROP
from roadworthy.protocols import PROTOCOLS, find_protocol
from roadworthy.protocols.base import Part
from roadworthy.protocols.changes import SAME_CASES
from roadworthy.protocols.comparison import compare, load_systems
from roadworthy.protocols.dependability.measures.field_performance import DOMAIN_SHARE
from roadworthy.protocols.dependability.measures.time_between_failures import TIME_BETWEEN_FAILURES
from roadworthy.protocols.monitoring.metrics import COST_METRICS, DETECTION_DELAY_MEDIAN
from roadworthy.protocols.od_test.means import ALL_ALIKE, mean_columns
from roadworthy.statistics import bootstrap_interval, crossings, expectation, mean_interval
from roadworthy.statistics.anytime import anytime_interval
from roadworthy.statistics.bootstrap import ALL_EQUAL, NEARLY_EQUAL, difference_interval
from roadworthy.statistics.degradation import time_between_failures
from roadworthy.statistics.paired import NO_DIFFERENCE, NOT_COMPARED
from tiny import save_onnx, study

GOLDEN = Path(__file__).parent / "golden"
OWN, OTHERS = "own", ("schema2", "monitoring", "localization")
PENDING: frozenset[str] = frozenset()
"""Metrics whose bounds are still to be mended."""
COUNT = "count of"
NOTHING_ESTIMATED = {
    COUNT: "what was shown or reached among all there is: counted, and known without any sample",
    SAME_CASES: "both sides of a change read the same stored answers",
    crossings.METHOD: "a place on a grid or beyond its ends: bounds of the curve, which have width, decide which",
    expectation.JOINT: "a share of known situations: bounds of each, which have width, decide whether it counts",
}
"""By the method (of a count, how it begins), why bounds may be the value itself."""
DECIDED = {
    ("dependability", DOMAIN_SHARE.name): NOTHING_ESTIMATED[expectation.JOINT],
    ("monitoring_stream", DETECTION_DELAY_MEDIAN.name): "the median of whole numbers, exact by order statistics",
    ("od_test_ranks", ""): "a place among few: that no draw of the sets at hand moves it is what is said",
}
"""By table and metric, why bounds of what has few values may be the value itself."""
ELSEWHERE = {
    ("dependability", TIME_BETWEEN_FAILURES.name),
    *(("monitoring", metric.name) for metric in COST_METRICS),
}
"""Metrics that need data which these runs do not have: failures in time are walked by a test of their own, and times
are bounded by order statistics, which stored answers do not enter."""
SURE, NEGLIGIBLE, LEAST_COVERED = 0.9, 1e-9, 0.93
NOISE = {"one": 0.0, "two": 0.1}


def equal_answers(readouts: Readouts, right: bool) -> Readouts:
    """The same images, every answer right (or wrong) with one confidence, and every box exact (or far away)."""
    given, boxes = readouts.classified, readouts.boxes
    if given is not None:
        prediction = given.label if right else (given.label + 1) % given.num_classes
        numbers = {"confidence": SURE, "p_label": SURE if right else 0.05, "sum_squares": 0.82}
        columns = {name: np.full(len(given.label), number) for name, number in numbers.items()}
        given = Answers(label=given.label, prediction=prediction, num_classes=given.num_classes, **columns)
    if boxes is not None and readouts.true_box is not None:
        boxes = readouts.true_box + (0 if right else 1000)
    numbers = ("certainty", "sample_entropy", "sample_dissent", "box_variance")
    known = {name: getattr(readouts, name) for name in numbers}
    equal = {name: None if column is None else np.full_like(column, 0.5) for name, column in known.items()}
    return replace(readouts, classified=given, boxes=boxes, **equal)


def equal_columns(columns: Mapping[str, NDArray[Any]], right: bool) -> dict[str, NDArray[Any]]:
    """The same columns, with what a system answered to the first image as its answer to all."""
    equal = dict(columns)
    for name, values in columns.items():
        if name == "probabilities" and values.ndim == 2:
            answered = (columns["label"] + (0 if right else 1)) % values.shape[1]
            equal[name] = np.full(values.shape, (1 - SURE) / (values.shape[1] - 1), np.float32)
            equal[name][np.arange(len(answered)), answered] = SURE
        elif name not in ("label", "true_box", "box_inflation") and values.dtype.kind not in "US":
            equal[name] = np.repeat(values[:1], len(values), axis=0)
    return equal


def read_equal_answers(patch: pytest.MonkeyPatch, right: bool) -> None:
    """Read every stored case with its answers made equal; few objects are enough for a bound by resampling."""

    def columns(home: Path, node: str, *names: str, **options: Any) -> dict[str, NDArray[Any]]:
        needed = dict.fromkeys([*names, *(["label"] if "probabilities" in names else [])])
        return {
            name: equal
            for name, equal in equal_columns(read_columns(home, node, *needed, **options), right).items()
            if name in names
        }

    patch.setattr(stored_evidence, "read_case", lambda *at, **own: equal_answers(read_case(*at, **own), right))
    patch.setattr(stored_evidence, "read_columns", columns)
    for module in [module for name, module in sys.modules.items() if name.startswith("roadworthy.")]:
        if hasattr(module, "LEAST_BOOTSTRAP_GROUPS"):
            patch.setattr(module, "LEAST_BOOTSTRAP_GROUPS", 2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, rw.Run]:
    """Stored runs that have every protocol between them."""
    folder = tmp_path_factory.mktemp("equal")
    requirements = [{"metric": "accuracy", "at_least": 0.4}, {"metric": "brier", "at_most": 0.9, "id": "sharp"}]
    protocols = {
        "classification": {"shifts": ["c_contrast"], "levels": [1, 5]},
        "operating_points": {"shifts": ["c_contrast"], "levels": [1], "outliers": {"sets": ["uniform_noise"]}},
        "situations": {"frequencies": {"none": 0.9, "c_contrast": {1: 0.1}}, "requirements": requirements},
        "break_point": {"shifts": ["c_contrast"], "step": 2.5},
        "dependability": {
            "transformers": [{"name": "rotation", "level": 3}],
            "metrics": ["accuracy"],
            "frequencies": {"weather": {"clear": 0.5, "rain": 0.5}},
            "threshold": 0.5,
            "occlusion": {"patch": 16, "stride": 16, "images": 4},
        },
    }
    models = {name: {"onnx": str(save_onnx(folder / f"{name}.onnx", blur=blur))} for name, blur in NOISE.items()}
    content = study(folder, 56, models=models, protocols=protocols)
    own = rw.run_study(content, out=folder / OWN, workers=1, accept_chance=True, progress=rw.no_progress)
    copies = {name: rw.open_run(shutil.copytree(GOLDEN / name, folder / name)) for name in OTHERS}
    return {OWN: own, **copies}


def without_width(table: str, row: Mapping[str, Any]) -> bool:
    """Whether bounds have no width though something is estimated."""
    lo, hi, metric = row["lo"], row["hi"], str(row.get("metric", ""))
    if not (math.isfinite(lo) and math.isfinite(hi)) or hi - lo > NEGLIGIBLE * max(1.0, abs(hi)):
        return False
    method = str(row.get("method"))
    return (table, metric) not in DECIDED and method not in NOTHING_ESTIMATED and not method.startswith(COUNT)


@pytest.mark.parametrize("right", [True, False], ids=["all right", "all wrong"])
def test_no_figure_of_equal_answers_has_bounds_without_width(runs: dict[str, rw.Run], right: bool) -> None:
    seen, wrong = set[tuple[str, str]](), set[tuple[str, str]]()
    with pytest.MonkeyPatch.context() as patch:
        read_equal_answers(patch, right)
        for run in runs.values():
            for protocol, evidence in stored_evidence.load_evidence(run.folder, run.record).items():
                for name, table in evidence.tables().items():
                    rows = table.to_dict("records") if {"lo", "hi"} <= {*table.columns} else []
                    seen |= {(protocol, str(row.get("metric", ""))) for row in rows}
                    wrong |= {(name, str(row.get("metric", ""))) for row in rows if without_width(name, row)}
    assert sorted(entry for entry in wrong if entry[1].removesuffix(DROP) not in PENDING) == []
    own = [find_protocol(name) for name in PROTOCOLS if PROTOCOLS.get(name).__module__.startswith("roadworthy.")]
    every = {(protocol.name, metric.name) for protocol in own for metric in protocol.metrics}
    assert every - seen == ELSEWHERE, "metrics that no table of these runs has"


def renamed(parts: Mapping[str, list[Part]]) -> dict[str, list[Part]]:
    """The same answers as those of another model: from cases of another hash."""
    return {
        name: [replace(part, cases=[replace(case, hash=case.hash[::-1]) for case in part.cases]) for part in own]
        for name, own in parts.items()
    }


def changes(run: rw.Run, other: Mapping[str, list[Part]]) -> pd.DataFrame:
    """What a run comes to beside parts of another one, by every metric that it can be compared by."""
    settings = stored_evidence.stored_settings(run.record)
    known = {name: find_protocol(name).comparable(own) for name, own in settings.items()}
    metrics = sorted({metric.name for own in known.values() for metric in own})
    choices = [((0, name), (1, name)) for name in [*run.record.models][:1]]
    parts = [stored_evidence.stored_parts(run.folder, run.record), other]
    pairs = load_systems(choices, ["before", "after"], parts, [settings, settings], metrics)
    return compare(pairs, metrics)


@pytest.mark.parametrize("name", ["own", "schema2", "monitoring"])
def test_equal_answers_of_two_models_are_no_change_that_is_known(runs: dict[str, rw.Run], name: str) -> None:
    """0, with bounds that have width or with a reason; of the same cases it is known to be 0."""
    run = runs[name]
    with pytest.MonkeyPatch.context() as patch:
        read_equal_answers(patch, True)
        parts = stored_evidence.stored_parts(run.folder, run.record)
        of_another, of_the_same = changes(run, renamed(parts)), changes(run, parts)
    compared = of_another[of_another["change"].notna()]
    assert len(compared)
    assert [row["metric"] for row in compared.to_dict("records") if without_width("", row)] == []
    unbounded = compared[compared["lo"].isna() | compared["hi"].isna()]
    assert (unbounded["reason"] != "").all()
    assert set(of_another["result"]) <= {NO_DIFFERENCE, NOT_COMPARED}
    known = of_the_same[of_the_same["change"].notna()]
    assert (known[["change", "lo", "hi"]] == 0).all(axis=None)
    assert set(known["result"]) == {NO_DIFFERENCE}


def test_all_right_and_all_wrong_leave_the_time_between_failures_open() -> None:
    seconds, drives = np.arange(60.0), np.repeat(["a", "b"], 30)
    never, always = (time_between_failures(seconds, np.full(60, failed), drives) for failed in (False, True))
    assert (never.value, never.hi) == (math.inf, math.inf)
    assert 0 < never.lo < 60
    assert always.lo < always.value < always.hi


def test_test_sets_that_are_all_alike_have_the_bounds_of_their_triples_or_none() -> None:
    def row(test_set: str, **bounds: float) -> dict[str, Any]:
        return {"source": "s", "domain": "s", "test_set": test_set, "metric": "accuracy", "value": 1.0, **bounds}

    alike = mean_columns([row("a", lo=0.9, hi=1.0), row("b", lo=0.8, hi=1.0)])
    assert (alike["lo"], alike["hi"]) == (pytest.approx(0.85), 1.0)
    assert alike["reason"].startswith(ALL_ALIKE)
    unknown = mean_columns([row("a"), row("b")])
    assert math.isnan(unknown["lo"])
    assert unknown["reason"] == ALL_ALIKE


def test_bounds_by_looking_again_and_again_have_width() -> None:
    interval = anytime_interval(np.ones(200), np.arange(200), 1)
    assert 0.9 < interval.lo < interval.hi == 1


@pytest.mark.parametrize("value", [0.1 + 0.2, 0.0, 1e6])
def test_resamples_that_differ_by_rounding_give_no_interval(value: float) -> None:
    rounded = value * (1 + np.tile([0, 1e-16, -1e-16, 3e-16], 250))
    assert bootstrap_interval(value, rounded, 100)[2] == ALL_EQUAL
    rare = np.where(np.arange(1000) < 9, value + 0.5, value)
    assert bootstrap_interval(value, rare, 100)[2] == NEARLY_EQUAL


def sizes_of(objects: int, equal: bool) -> NDArray[np.int64]:
    """How many images each object has: one, or 20 for one in ten and 2 for the others."""
    return np.ones(objects, np.int64) if equal else np.where(np.arange(objects) < objects // 10, 20, 2)


def covered(objects: int, equal: bool, broken: float, alike: bool, runs: int, seed: int = 0) -> tuple[float, float]:
    """The share of runs in which bounds hold the true drop of accuracy, and of balanced accuracy (by resampling).

    A second model breaks a share of answers of the first, right for 95 % of images; `alike` whole objects at once.
    """
    generator = np.random.default_rng(seed)
    images = sizes_of(objects, equal)
    of_image = np.repeat(np.arange(objects), images)
    positive = (np.arange(objects) % 2 == 0)[of_image]
    weights = generator.multinomial(objects, np.full(objects, 1 / objects), 1000).astype(float)
    true, held = 0.95 * broken, np.zeros(2)
    for _ in range(runs):
        drawn = generator.random((2, objects))[:, of_image] if alike else generator.random((2, len(of_image)))
        right = drawn[0] < 0.95
        lost = right & (drawn[1] < broken)
        mean = mean_interval(lost.astype(float), of_image, -1, 1)
        shares, whole = [], []
        for side in (positive, ~positive):
            sums, count = np.bincount(of_image, lost & side, objects), np.bincount(of_image, side, objects)
            shares.append(weights @ sums / (weights @ count))
            whole.append(sums.sum() / count.sum())
        lo, hi, _ = difference_interval(np.mean(whole), np.mean(shares, axis=0), objects, room=1, sizes=images)
        held += [mean.lo <= true <= mean.hi, lo <= true <= hi]
    return held[0] / runs, held[1] / runs


@pytest.mark.parametrize(("objects", "broken"), [(50, 0.05), (200, 0.02)])
def test_drops_are_covered_where_few_objects_differ(objects: int, broken: float) -> None:
    """A bootstrap alone holds the truth in 63 to 85 % of such runs."""
    assert min(covered(objects, False, broken, True, runs=60)) >= LEAST_COVERED


@pytest.mark.slow
@pytest.mark.parametrize("objects", [50, 200, 1000])
@pytest.mark.parametrize(("equal", "alike"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("broken", [0.005, 0.02, 0.05])
def test_drops_are_covered_in_every_cell(objects: int, equal: bool, broken: float, alike: bool) -> None:
    assert min(covered(objects, equal, broken, alike, runs=2000)) >= LEAST_COVERED
