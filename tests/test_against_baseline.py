"""Criteria against a baseline: known answers, the same bounds as a comparison, and what is said where none is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

import roadworthy as rw
from commands import call
from roadworthy.core.errors import InputError
from roadworthy.protocols.changes import SAME_CASES
from samples import CLASSES, SIDE, network

COUNT = 240
QUIET: dict[str, Any] = {"workers": 1, "accept_chance": True, "progress": rw.no_progress}
WORSE = {"id": "NEW", "metric": "accuracy", "where": {"shift": "none"}, "against": "baseline", "at_most": 0.02}


def write_squares(path: Path) -> Path:
    """Squares that are brightest in the channel of their class, each an object of its own."""
    labels = np.arange(COUNT) % len(CLASSES)
    images = np.random.default_rng(0).integers(0, 100, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    images[np.arange(COUNT), ..., labels] += 60
    np.savez(path, images=images, labels=labels, class_names=np.array(CLASSES))
    return path


def half_blind() -> ModelProto:
    """A version that takes every blue square for another one."""
    model = network()
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[:, 2] = 0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "weights"))
    return model


def study(folder: Path, model: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "versions",
        "data": {"test": str(folder / "test.npz")},
        "models": {"detector": {"onnx": str(folder / model)}},
        "protocols": {"classification": {"shifts": ["noise"], "levels": [5]}},
        **changes,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a version, and that of a worse one which is judged against it."""
    folder = tmp_path_factory.mktemp("versions")
    write_squares(folder / "test.npz")
    (folder / "v1.onnx").write_bytes(network().SerializeToString())
    (folder / "v2.onnx").write_bytes(half_blind().SerializeToString())
    rw.run_study(study(folder, "v1.onnx"), out=folder / "v1", **QUIET)
    rw.run_study(study(folder, "v2.onnx", criteria=[WORSE], baseline=str(folder / "v1")), out=folder / "v2", **QUIET)
    return folder


@pytest.fixture(scope="module")
def three(folder: Path) -> Iterator[Path]:
    """Both versions by three protocols, two of which compare their conditions one by one; few resamples of outliers."""
    noise = np.random.default_rng(1).integers(0, 256, (60, SIDE, SIDE, 3), dtype=np.uint8)
    np.savez(folder / "noise.npz", images=noise, labels=np.zeros(60, int), class_names=np.array(["noise"]))
    contents = {}
    for version in ("v1", "v2"):
        content = study(folder, f"{version}.onnx", outliers={"noise": str(folder / "noise.npz")})
        content["protocols"] |= {
            "ood": {"sets": ["uniform_noise"]},
            "operating_points": {"shifts": ["noise"], "levels": [5], "outliers": {"sets": ["uniform_noise"]}},
        }
        contents[version] = content
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("roadworthy.protocols.ood.tables.RESAMPLES", 100)
        for version, content in contents.items():
            rw.run_study(content, out=folder / "three" / version, **QUIET)
        yield folder / "three"


def worsening(folder: Path, **changes: Any) -> list[Any]:
    """The rows of one criterion on the new run against the old one."""
    verdict = rw.open_run(folder / "v2").verdict([{**WORSE, **changes}], baseline=folder / "v1")
    return [*verdict.findings[0].rows]


def test_a_known_loss_fails_and_is_stored_with_its_baseline(folder: Path) -> None:
    stored = json.loads((folder / "v2" / "verdict.json").read_text())
    row = stored["criteria"][0]["rows"][0]
    assert stored["status"] == "fail"
    assert row["value"] == pytest.approx(1 / 3), "a third of the squares is blue"
    assert (row["n"], row["groups"]) == (COUNT, COUNT)
    assert "worsening of accuracy against the baseline 0.3333" in row["because"]
    assert Path(stored["baseline"]["run"]) == folder / "v1"
    assert rw.open_run(folder / "v2").verify() == []
    assert "how much worse a metric is than in the run" in (folder / "v2" / "report.html").read_text()


def test_bounds_are_those_of_a_comparison_and_positive_is_worse(folder: Path) -> None:
    metrics = ["accuracy", "brier", "auroc", "ece"]
    changes = rw.compare_runs([folder / "v1", folder / "v2"], metrics=metrics).query("protocol == 'classification'")
    asked = [{**WORSE, "id": name, "metric": name, "where": {"protocol": "classification"}} for name in metrics]
    verdict = rw.open_run(folder / "v2").verdict(asked, baseline=folder / "v1")
    for finding in verdict.findings:
        worse = -1 if finding.criterion.metric in ("accuracy", "auroc") else 1
        own = changes[changes["metric"] == finding.criterion.metric].set_index(["condition", "level"])
        assert len(finding.rows) == len(own) == 2
        for row in finding.rows:
            where, estimate = row.measurement.where, row.measurement.estimate
            change = own.loc[(where["shift"], where["level"])]
            assert estimate.value == pytest.approx(worse * change["change"], nan_ok=True)
            expected = sorted([worse * change["lo"], worse * change["hi"]])
            assert [estimate.lo, estimate.hi] == pytest.approx(expected, nan_ok=True)
    assert verdict.findings[0].status == "fail"


def test_protocols_that_compare_one_by_one_are_judged_by_their_comparison(three: Path) -> None:
    changes = rw.compare_runs([three / "v1", three / "v2"]).set_index(["protocol", "condition", "level", "metric"])
    for protocol, metric in (("ood", "auroc"), ("operating_points", "accepted_wrong")):
        rows = worsening(three, metric=metric, where={"protocol": protocol}, at_most=1)
        for row in rows:
            where, estimate = row.measurement.where, row.measurement.estimate
            named = changes.loc[protocol, where.get("ood_set", where.get("shift")), :, metric]
            change = named.loc[where["level"]] if "level" in where else named.iloc[0]
            sign = -1 if metric == "auroc" else 1
            assert estimate.value == pytest.approx(sign * change["change"], nan_ok=True)
        assert rows
    assert worsening(three)[0].measurement.estimate.value == pytest.approx(1 / 3), "of classification, as it is alone"
    with pytest.raises(InputError, match=r"over: pooled: its conditions are compared one by one, say each or worst"):
        worsening(three, metric="accepted_wrong", where={"protocol": "operating_points"}, over="pooled")


def test_a_stricter_confidence_is_wider_and_pooled_conditions_are_one(folder: Path) -> None:
    noise = {"protocol": "classification", "shift": ["none", "noise"]}
    asked = [
        {**WORSE, "id": "usual"},
        {**WORSE, "id": "wide", "confidence": 0.999},
        *({**WORSE, "id": over, "where": noise, "over": over} for over in ("each", "pooled", "worst")),
    ]
    findings = {
        finding.criterion.id: [row.measurement for row in finding.rows]
        for finding in rw.open_run(folder / "v2").verdict(asked, baseline=folder / "v1").findings
    }
    usual, wide, pooled = (findings[name][0].estimate for name in ("usual", "wide", "pooled"))
    assert wide.lo < usual.lo < usual.value < usual.hi < wide.hi
    assert pooled.value == pytest.approx(np.mean([one.estimate.value for one in findings["each"]]))
    assert (len(findings["pooled"]), pooled.groups) == (1, COUNT)
    assert findings["worst"][0].where["of"] == "2 conditions"


def test_the_same_model_is_no_worse(folder: Path) -> None:
    verdict = rw.open_run(folder / "v1").verdict(
        [{**WORSE, "id": metric, "metric": metric, "at_most": 0.05} for metric in ("accuracy", "ece")],
        baseline=folder / "v1",
    )
    assert verdict.status == "pass"
    assert [row.rows[0].measurement.estimate.value for row in verdict.findings] == [0, 0]


def test_another_model_that_answers_the_same_may_differ_on_the_next_object(folder: Path) -> None:
    """Of the same weights nothing is estimated; of other ones 240 equal answers leave room for about 4 in 240."""
    other = network()
    other.doc_string = "trained again"
    (folder / "again.onnx").write_bytes(other.SerializeToString())
    run = rw.run_study(study(folder, "again.onnx"), out=folder / "again", **QUIET)
    asked = [
        {**WORSE, "id": f"{metric} {limit}", "metric": metric, "at_most": limit}
        for metric in ("accuracy", "brier", "ece", "overconfidence", "nll")
        for limit in (0.0, 0.08)
    ]
    same = rw.open_run(folder / "v1").verdict(asked, baseline=folder / "v1")
    estimates = [finding.rows[0].measurement.estimate for finding in same.findings]
    assert same.status == "pass"
    assert {(one.value, one.lo, one.hi, one.method) for one in estimates} == {(0.0, 0.0, 0.0, SAME_CASES)}
    verdict = run.verdict(asked, baseline=folder / "v1")
    findings = {finding.criterion.id: finding for finding in verdict.findings}
    for name, finding in findings.items():
        estimate = finding.rows[0].measurement.estimate
        expected = "pass" if name.endswith("0.08") and not name.startswith("nll") else "inconclusive"
        assert (estimate.value, finding.status) == (0.0, expected), name
        assert estimate.unbounded if name.startswith("nll") else estimate.lo < 0 < estimate.hi, name
    compared = rw.compare_runs([folder / "v1", folder / "again"], metrics=["accuracy", "brier", "ece", "nll"])
    assert set(compared["result"]) == {"no clear difference"}
    assert (compared["p"] == 1).all()
    unchanged = rw.compare_runs([folder / "v1", folder / "v1"], metrics=["accuracy", "brier", "ece", "nll"])
    assert (unchanged[["change", "lo", "hi"]] == 0).all(axis=None)
    assert set(unchanged["method"]) == {SAME_CASES}


def test_the_command_judges_later_and_a_missing_baseline_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    criteria = tmp_path / "c.yaml"
    criteria.write_text("- {id: NEW, metric: accuracy, where: {shift: none}, against: baseline, at_most: 0.02}\n")
    old = Path(shutil.copytree(folder / "v1", tmp_path / "old"))
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    says = call("verdict", old, "--criteria", criteria, code=2)
    assert "criterion NEW is judged against a baseline, and none is named" in says
    assert "with --baseline" in says
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
    says = call("verdict", old, "--criteria", criteria, "--baseline", tmp_path / "nowhere", code=2)
    assert "the baseline cannot be read" in says
    assert "verdict: pass" in call("verdict", old, "--criteria", criteria, "--baseline", folder / "v1", code=0)
    with pytest.raises(InputError, match="none is named"):
        rw.run_study(study(folder, "v2.onnx", criteria=[WORSE]), out=tmp_path / "new", **QUIET)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"metric": "accuracy_drop", "where": {"shift": "noise"}}, "it is a drop already, name accuracy"),
        ({"metric": "mean_confidence"}, "runs are compared by accuracy"),
        ({"at_most": 5}, "lies outside the range of worsening of accuracy against the baseline, which is -1 to 1"),
        ({"against": "clean"}, "'baseline'"),
    ],
)
def test_what_cannot_be_judged_so_is_refused(folder: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        worsening(folder, **changes)


def test_verify_says_where_the_baseline_is_gone(folder: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(folder / "v1", tmp_path / "gone"))
    asked = study(folder, "v2.onnx", criteria=[WORSE], baseline=str(moved))
    run = rw.run_study(asked, out=tmp_path / "new", **QUIET)
    shutil.rmtree(moved)
    with pytest.warns(UserWarning, match=r"not computed anew: criteria against the baseline \(NEW\)"):
        assert run.verify() == []
    with pytest.raises(InputError, match="the baseline cannot be read"):
        run.verdict()
    assert run.verdict(baseline=folder / "v1").status == "fail"


def test_a_baseline_that_cannot_be_paired_decides_nothing(folder: Path, tmp_path: Path) -> None:
    data = dict(np.load(folder / "test.npz"))
    np.savez(tmp_path / "other.npz", **{**data, "images": data["images"][::-1], "labels": data["labels"][::-1]})
    content = study(folder, "v1.onnx", data={"test": str(tmp_path / "other.npz")})
    other = rw.run_study(content, out=tmp_path / "other", **QUIET)
    verdict = rw.open_run(folder / "v2").verdict([WORSE], baseline=other)
    assert verdict.status == "inconclusive"
    assert "not compared with the baseline: other images" in verdict.findings[0].rows[0].because
