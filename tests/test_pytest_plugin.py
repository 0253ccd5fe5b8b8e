"""The pytest plugin: criteria as tests of a run, and the fixture that evaluates models."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

import roadworthy as rw
from commands import snapshot
from roadworthy.core.record import read_record
from roadworthy.engine.folder import RunFolder
from roadworthy.pytest_plugin import Evaluations
from tiny import save_onnx, study, write_npz

ROOT = Path(__file__).parent.parent
PLUGIN = ("-p", "roadworthy.pytest_plugin")
PROTOCOLS = {"classification": {"shifts": ["fog"], "levels": [1, 5]}}
CRITERIA: list[dict[str, Any]] = [
    {"id": "PASSES", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.1},
    {"id": "FAILS", "metric": "accuracy", "where": {"shift": "fog"}, "at_least": 0.99},
    {"id": "OPEN", "metric": "ece", "where": {"shift": "none"}, "at_most": 0.5},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = tmp_path_factory.mktemp("run")
    return rw.run(study(folder, n=70, protocols=PROTOCOLS), out=folder / "run", progress=rw.no_progress)


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugins that happen to be installed take longer to load than the tests."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with criteria, in which the plugin is used as an installed one is."""
    (pytester.path / "criteria.yaml").write_text(yaml.safe_dump(CRITERIA))
    return pytester


def test_every_criterion_is_a_test(project: pytest.Pytester, run: rw.Run) -> None:
    before = snapshot(run.path)
    result = project.runpytest(*PLUGIN, "--roadworthy-run", run.path, "--junitxml=junit.xml", "-v")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["criteria.yaml::PASSES PASSED*", "criteria.yaml::FAILS FAILED*"])
    printed = result.stdout.str()
    fog = run.tables["classification"].query("shift == 'fog' and metric == 'accuracy'")
    for row in fog.itertuples():
        figures = f"accuracy {row.value:.4f} [{row.lo:.4f}, {row.hi:.4f}] (model tiny, shift fog, level {row.level})"
        assert f"{figures}: even the better bound misses 0.99" in printed
    assert "FAILS: fail: accuracy" in printed
    assert "OPEN: inconclusive: ece" in printed
    assert "Traceback" not in printed
    assert "pytest_plugin.py" not in printed, "figures, not our code"
    cases = {case.get("name"): case for case in ElementTree.parse(project.path / "junit.xml").iter("testcase")}
    properties = {entry.get("name"): entry.get("value") for entry in cases["FAILS"].iter("property")}
    assert properties["threshold"] == "0.99"
    assert float(properties["value"]) == pytest.approx(fog["value"].min()), "of the worst condition"
    assert snapshot(run.path) == before, "the run is only read"


def test_inconclusive_is_an_expected_failure_where_that_is_asked_for(project: pytest.Pytester, run: rw.Run) -> None:
    result = project.runpytest(*PLUGIN, "--roadworthy-run", run.path, "--roadworthy-inconclusive=xfail", "-rx")
    result.assert_outcomes(passed=1, failed=1, xfailed=1)
    assert "a bootstrap bound needs 50 objects" in result.stdout.str()


def test_the_ini_file_names_run_and_files(project: pytest.Pytester, run: rw.Run) -> None:
    (project.path / "criteria.yaml").rename(project.path / "fog_requirements.yaml")
    (project.path / "run").symlink_to(run.path)
    project.makeini(
        "[pytest]\nroadworthy_run = run\nroadworthy_inconclusive = xfail\nroadworthy_criteria = *_requirements.yaml\n"
    )
    project.makepyfile("def test_of_code(): pass")
    project.runpytest(*PLUGIN).assert_outcomes(passed=2, failed=1, xfailed=1)
    project.runpytest(*PLUGIN, "-m", "roadworthy").assert_outcomes(passed=1, failed=1, xfailed=1, deselected=1)
    project.runpytest(*PLUGIN, "--strict-markers", "-k", "PASSES").assert_outcomes(passed=1, deselected=3)
    project.makeini("[pytest]\nroadworthy_inconclusive = ignore\n")
    wrong = project.runpytest(*PLUGIN)
    wrong.stderr.fnmatch_lines(["*roadworthy_inconclusive is fail or xfail, not 'ignore'*"])


def test_without_a_run_criteria_are_just_a_file(project: pytest.Pytester) -> None:
    project.makepyfile("def test_of_code(): pass")
    project.runpytest(*PLUGIN).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "criteria.yaml").write_text("- {id: A, metric: accuracy}"), "at_least and at_most"),
        (lambda folder: (folder / "criteria.yaml").write_text("- {id: A"), "criteria.yaml"),
        (lambda folder: (folder / "run").unlink(), "*run*"),
    ],
    ids=["no threshold", "no YAML", "no run"],
)
def test_what_cannot_be_read_is_one_sentence(project: pytest.Pytester, run: rw.Run, spoil: Any, says: str) -> None:
    (project.path / "run").symlink_to(run.path)
    spoil(project.path)
    result = project.runpytest(*PLUGIN, "--roadworthy-run", "run")
    result.assert_outcomes(errors=1)
    assert says.strip("*") in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_a_criterion_that_does_not_fit_the_run_fails_with_its_reason(project: pytest.Pytester, run: rw.Run) -> None:
    unknown = {"id": "RAIN", "metric": "accuracy", "where": {"shift": "rain"}, "at_least": 0.5}
    (project.path / "criteria.yaml").write_text(yaml.safe_dump([unknown]))
    result = project.runpytest(*PLUGIN, "--roadworthy-run", run.path)
    result.assert_outcomes(failed=1)
    assert "RAIN: criterion RAIN asks for shift 'rain', but the run has" in result.stdout.str()


def test_a_part_of_the_run_that_failed_is_never_a_pass(project: pytest.Pytester, run: rw.Run, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run.path, tmp_path / "copy"))
    record = read_record(copy)
    key = next(key for key, case in record.cases.items() if case.stimulus.name == "fog" and case.stimulus.level == 5)
    record.cases[key] = record.cases[key].model_copy(update={"status": "failed", "reason": "out of memory"})
    RunFolder.existing(copy).write_record(record)
    (project.path / "criteria.yaml").write_text(yaml.safe_dump(CRITERIA[:1]))
    result = project.runpytest(*PLUGIN, "--roadworthy-run", copy)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*failed: *inconclusive: *out of memory*"])


def test_a_changed_file_inside_a_folder_or_beside_a_graph_is_evaluated_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("roadworthy.api.evaluate", lambda *given, **settings: calls.append(given))
    weights = onnx.numpy_helper.from_array(np.ones(2000, np.float32), "w")
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2000])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["w"], ["y"])], "g", [], [output], [weights])
    model, data = tmp_path / "m.onnx", tmp_path / "signs"
    onnx.save(onnx.helper.make_model(graph), model, save_as_external_data=True, location="weights.bin")
    image = data / "stop" / "0.png"
    image.parent.mkdir(parents=True)
    evaluations = Evaluations(tmp_path / "runs")
    changes: list[Callable[[], object]] = [
        lambda: image.write_bytes(b"x"),
        lambda: image.write_bytes(b"xx"),
        lambda: os.utime(tmp_path / "weights.bin", (1, 1)),
    ]
    for count, change in enumerate(changes, 1):
        change()
        for _ in range(2):
            evaluations.evaluate(model, data)
        assert len(calls) == count


def test_the_fixture_evaluates_once_for_equal_arguments(
    pytester: pytest.Pytester, run: rw.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("roadworthy.api.evaluate", lambda *given, **settings: (calls.append(settings), run)[1])
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("suite", ["quick", "quick", "standard"])
        def test_evaluations(roadworthy, suite):
            roadworthy.evaluate("m.onnx", "test.npz", suite=suite)
            roadworthy.evaluate("m.onnx", "test.npz")

        def test_too_much_is_asked(roadworthy):
            strict = [{"id": "ALL", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.9999}]
            run = roadworthy.evaluate("m.onnx", "test.npz")
            with pytest.raises(AssertionError, match="the verdict is (fail|inconclusive)\\n.*: ALL: accuracy 0"):
                roadworthy.require(run, strict)

        def test_the_folder_is_the_fixture_s(roadworthy):
            with pytest.raises(Exception, match="chooses the folder"):
                roadworthy.evaluate("m.onnx", "test.npz", out="here")
        """
    )
    pytester.runpytest(*PLUGIN).assert_outcomes(passed=5)
    assert [settings["suite"] for settings in calls] == ["quick", "standard"]
    assert len({settings["out"] for settings in calls}) == 2


def test_the_snippets_of_the_docs_work(pytester: pytest.Pytester, run: rw.Run) -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def test_" in block]
    (ini,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    save_onnx(pytester.path / "m.onnx")
    write_npz(pytester.path / "test.npz", 56)
    (pytester.path / "pytest.ini").write_text(ini)
    (pytester.path / "runs").mkdir()
    (pytester.path / "runs" / "m").symlink_to(run.path)
    (pytester.path / "criteria.yaml").write_text(yaml.safe_dump(CRITERIA[:1]))
    pytester.makepyfile(code.replace("signs/test", "test.npz"))
    pytester.runpytest(*PLUGIN).assert_outcomes(passed=3)


def test_what_makes_arguments_other_ones(tmp_path: Path) -> None:
    from roadworthy.pytest_plugin import Evaluations

    fixture, file = Evaluations(tmp_path), tmp_path / "m.onnx"
    file.write_text("1")
    model = object()
    keys = [fixture._key([file, {"suite": "quick", "n": 1}]), fixture._key([str(file), {"n": 1, "suite": "quick"}])]
    assert keys[0] == keys[1], "a path is a path"
    file.write_text("other")
    assert fixture._key([file, {"suite": "quick", "n": 1}]) != keys[0], "a file that changed is another one"
    assert fixture._key([model]) == fixture._key([model])
    assert fixture._key([model]) != fixture._key([object()])
    assert fixture._key([1]) != fixture._key(["1 "])
    assert fixture._key([True]) != fixture._key([1])


def test_it_is_an_entry_point_that_imports_nothing_heavy() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert groups["pytest11"] == {"roadworthy.pytest_plugin": "roadworthy.pytest_plugin"}, (
        "a name like the module's, so that -p and the entry point are one plugin"
    )
    heavy = "numpy pandas scipy pyarrow onnxruntime pydantic yaml typer torch"
    code = f"import sys, pytest, roadworthy.pytest_plugin; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
