"""Any measure of any protocol can be judged: every metric that a protocol declares, or a sentence says why not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roadworthy as rw
from roadworthy.core.errors import InputError
from roadworthy.metrics import find_metric
from roadworthy.preparing import check_criteria
from roadworthy.protocols import PROTOCOLS, find_protocol
from roadworthy.stored import Run
from roadworthy.stored_evidence import load_evidence, stored_parts, stored_settings
from roadworthy.verdict import Criterion, judge
from samples import SIDE, fill, study

GOLDEN = Path(__file__).parent / "golden"
STORED = {"schema2": ("classification", "ood", "dependability", "od_test")}
STORED |= {"localization": ("localization",), "monitoring": ("monitoring",)}
SMALL: dict[str, Any] = {
    "break_point": {"shifts": ["noise"], "step": 1},
    "situations": {
        "frequencies": {"none": 0.8, "grey": {5: 0.2}},
        "requirements": [{"metric": "accuracy", "at_least": 0.5}],
    },
    "operating_points": {"shifts": ["grey"], "levels": [5], "outliers": {"sets": ["uniform_noise"]}},
}
"""What no stored run has, for a small one that is made here."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run that has each protocol, by the name of the protocol."""
    folder = fill(tmp_path_factory.mktemp("any"))
    content = study(data={"test": str(folder / "data.npz")}, models={"m": {"onnx": str(folder / "model.onnx")}})
    noise = np.random.default_rng(0).integers(0, 256, (6, SIDE, SIDE, 3), dtype=np.uint8)
    np.savez(folder / "noise.npz", images=noise, labels=np.zeros(6, int), class_names=np.array(["noise"]))
    content |= {"protocols": SMALL, "criteria": None, "outliers": {"noise": str(folder / "noise.npz")}}
    made = rw.run_study(content, out=folder / "run", workers=1, accept_chance=True, progress=rw.no_progress)
    by_protocol = dict.fromkeys(SMALL, made)
    for name, protocols in STORED.items():
        copied = Path(shutil.copytree(GOLDEN / name, folder / name))
        by_protocol |= dict.fromkeys(protocols, rw.open_run(copied))
    return by_protocol


def criteria_on(protocol: str, settings: Any, num_classes: int) -> Iterator[Criterion]:
    """A criterion on every metric of a protocol and on its drop, in every way to take several conditions together."""
    known = find_protocol(protocol)
    for metric in known.metrics_of(settings):
        names = [metric.name] + ([metric.drop().name] if metric.higher_is_better is not None else [])
        for name in names:
            low, high = find_metric(name, known.metrics_of(settings)).limits(num_classes)
            threshold = (low + high) / 2 if high < 1e6 else 1.0
            for over in ("each", "worst", "pooled"):
                where = {"protocol": protocol}
                yield Criterion(id=f"{name} {over}", metric=name, over=over, where=where, at_most=threshold)


def test_every_protocol_is_walked(runs: dict[str, Run]) -> None:
    assert runs.keys() >= {name for name in PROTOCOLS if PROTOCOLS.get(name).__module__.startswith("roadworthy.")}


@pytest.mark.parametrize("protocol", [*SMALL, *(name for names in STORED.values() for name in names)])
def test_every_metric_is_judged_or_refused_in_a_sentence(runs: dict[str, Run], protocol: str) -> None:
    run = runs[protocol]
    record, parts = run.record, stored_parts(run.folder, run.record)
    settings = stored_settings(record)
    only = record.model_copy(update={"protocols": {protocol: record.protocols[protocol]}})
    evidence = load_evidence(run.folder, only)[protocol]
    judged, refused = set[str](), dict[str, str]()
    classes = max(len(part.class_names) for part in parts[protocol])
    for criterion in criteria_on(protocol, settings[protocol], classes):
        try:
            check_criteria([criterion], parts, settings, ())
            verdict = judge([criterion], evidence.measure)
        except InputError as error:
            refused[criterion.id] = str(error)
            continue
        assert verdict.status in ("pass", "fail", "inconclusive")
        assert all(row.because for row in verdict.findings[0].rows)
        judged.add(criterion.metric)
    for name, sentence in refused.items():
        assert "\n" not in sentence, name
        assert sentence.startswith("criterion "), sentence
    declared = {metric.name for metric in find_protocol(protocol).metrics_of(settings[protocol])}
    never = {name.split()[0] for name in refused} & declared - judged
    reasons = {name: refused[f"{name} each"] for name in never}
    assert judged & declared, reasons
