"""Whose code is it? Verdicts by other code, two codes of one name, and mistakes that the author of a plugin makes."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from plugin_files import PROTOCOL, SHIFT, call, clean_registries, folder, run, snapshot  # noqa: F401 (fixtures too)
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.core.files import json_bytes
from roadworthy.core.hashing import digest_file, sealed
from roadworthy.core.record import RECORD
from roadworthy.metrics import METRICS, mean_metric, metric
from roadworthy.plugins import load_given, plugin_behind
from roadworthy.protocols import PROTOCOLS
from roadworthy.study import load_study
from tiny import forget_plugins, save_onnx, study, write_npz

METRIC = """
import roadworthy as rw
from roadworthy.metrics import mean_metric

@mean_metric(label="Sure", higher_is_better=True)
def own_sure(answers):
    '''How sure the answers are.'''
    return answers.confidence
"""
HALF = METRIC.replace("return answers.confidence", "return answers.confidence / 2")
SURE = {"id": "S", "metric": "own_sure", "where": {"shift": "none"}, "at_least": 0.05}


def judged_study(path: Path, code: str, **changes: Any) -> rw.Run:
    """The run of a study in a folder of its own, whose plugin m.py has this code."""
    path.mkdir()
    (path / "m.py").write_text(code)
    protocols = {"classification": {"shifts": ["fog"], "levels": [1], "metrics": ["own_sure"]}}
    asked = study(path, 28, protocols=protocols, plugins=["m.py"], criteria=[SURE], **changes)
    (path / "study.yaml").write_text(yaml.safe_dump(asked))
    return rw.run(path / "study.yaml", out=path / "run", trust=True, progress=no_progress)


def test_other_code_never_makes_the_run_s_own_verdict(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    made = judged_study(tmp_path / "a", METRIC)
    (tmp_path / "new").mkdir()
    other = tmp_path / "new" / "m.py"
    other.write_text(HALF)
    forget_plugins()
    (tmp_path / "c.yaml").write_text(yaml.safe_dump([{**SURE, "at_least": 0.01}]))
    given = ["verdict", made.path, "--criteria", tmp_path / "c.yaml", "--plugin", other, "--trust"]
    before = snapshot(tmp_path)
    code, printed = call(*given, "--replace", "--junit", tmp_path / "j.xml")
    assert code == 2
    assert re.match(r"a verdict that is made with other code of plugin .*m\.py cannot become the run's own", printed)
    assert snapshot(tmp_path) == before, "nothing was written, no JUnit file either"
    opened = rw.open_run(made.path, plugins=other, trust=True)
    with pytest.warns(UserWarning, match="is not the code that the run was made with"):
        judged = opened.verdict([{**SURE, "at_least": 0.01}])
    with pytest.raises(InputError, match="cannot become the run's own"):
        rw.open_run(made.path, trust=True).save_verdict(judged)

    recwarn.clear()
    assert call(*given)[0] == 0
    assert len([warning for warning in recwarn if "is not the code" in str(warning.message)]) == 1
    entries = json.loads((made.path / "verdicts.json").read_text())
    assert ["other_code" in entry for entry in entries] == [False, True], "an entry without it has its former form"
    assert entries[1]["other_code"] == [str(other)]
    assert f"made with other code of plugin {other}" in (made.path / "report.html").read_text()
    forget_plugins()
    assert call("verify", made.path, "--trust")[0] == 0

    (made.path / "tables" / "classification.csv").write_text("changed")
    (tmp_path / "a" / "m.py").write_text(HALF)
    code, printed = call("verify", made.path)
    assert code == 1
    assert "tables/classification.csv was changed" in printed
    assert "m.py was changed since the SHA-256 of m.py was noted" in printed, "changed code is named beside files"


def test_two_runs_with_different_code_of_one_name(tmp_path: Path) -> None:
    first, second = (judged_study(tmp_path / name, code) for name, code in (("a", METRIC), ("b", HALF)))
    runs = [rw.open_run(made.path, trust=True) for made in (first, second, first)]
    assert [opened.verify() for opened in runs] == [[], [], []], "each with its own code, whichever was loaded last"
    values = [opened.verdict().findings[0].rows[0].measurement.estimate.value for opened in runs]
    assert values[0] == values[2] == pytest.approx(2 * values[1])
    words = ["compare", first.path, second.path, "--trust"]
    code, printed = call(*words, "--metric", "own_sure")
    assert code == 2
    assert printed == (
        "two runs bring different code for the metric 'own_sure': name the file to use for both with --plugin"
    )
    assert call(*words, "--metric", "accuracy")[0] == 0, "a metric that no plugin brings"
    with pytest.warns(UserWarning, match="is not the code that the run was made with"):
        assert call(*words, "--metric", "own_sure", "--plugin", tmp_path / "b" / "m.py")[0] == 0

    (tmp_path / "other_name.py").write_text(METRIC)
    load_given([tmp_path / "a" / "m.py"], trust=True)
    load_given([tmp_path / "other_name.py"], trust=False)
    asked, base = load_study(tmp_path / "a" / "study.yaml", trust=True)
    prepared = prepare(asked, base=base, trust=True, progress=no_progress)
    load_given([tmp_path / "b" / "m.py"], trust=True)
    with pytest.raises(InputError, match=r"m\.py was replaced by other code since the study was prepared"):
        execute(prepared, tmp_path / "late", progress=no_progress)
    assert not (tmp_path / "late").exists()


def test_evaluate_measures_a_metric_of_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classification = PROTOCOLS.get("classification")
    tiny = classification.settings(shifts=["fog"], levels=[1])
    monkeypatch.setattr(classification, "suites", {"tiny@1": tiny})
    suite = PROTOCOL.replace("    def check_settings", "    suites = {'sure@1': Settings()}\n    def check_settings")
    (tmp_path / "sure.py").write_text(suite)
    (tmp_path / "m.py").write_text(METRIC)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump([SURE]))
    plugins = ["--plugin", tmp_path / "m.py", "--plugin", tmp_path / "sure.py", "--trust"]
    words = ["evaluate", "--model", save_onnx(tmp_path / "m.onnx"), "--data", write_npz(tmp_path / "d.npz", 28)]
    words += [*plugins, "--out", tmp_path / "run", "--quiet", "--accept-chance"]
    code, printed = call(*words, "--suite", "tiny", "--criteria", tmp_path / "c.yaml")
    assert code == 2
    assert printed.endswith("Ask for it with --metric own_sure (under classification in a study).")
    code, printed = call(*words, "--suite", "tiny", "--metric", "own_sur")
    assert (code, printed.partition("?")[0]) == (2, "unknown metric 'own_sur': did you mean 'own_sure'")
    code, printed = call(*words, "--suite", "sure", "--metric", "own_sure")
    assert (code, printed) == (2, "suite sure takes no further metrics (--metric): its protocol sure has none")
    assert not (tmp_path / "run").exists()
    measured = [*words, "--suite", "tiny", "--metric", "own_sure", "--criteria", tmp_path / "c.yaml"]
    assert call(*measured) == (0, "")
    stored = yaml.safe_load((tmp_path / "run" / "study.yaml").read_text())
    assert stored["protocols"]["classification"]["metrics"] == ["own_sure"]
    table = rw.open_run(tmp_path / "run").tables["classification"]
    assert {"own_sure", "own_sure_drop"} <= set(table["metric"])


BAD_METRICS: list[tuple[dict[str, Any], str]] = [
    ({}, "@mean_metric needs a label and higher_is_better: write @mean_metric"),
    ({"label": 3, "higher_is_better": True}, "label must be text, not 3"),
    ({"label": "A", "higher_is_better": "yes"}, "higher_is_better must be True, False or None, not 'yes'"),
    ({"label": "A", "higher_is_better": True, "sentence": 1}, "sentence must be text, not 1"),
    ({"label": "A", "higher_is_better": True, "range": [0, 1]}, r"range must be a pair \(low, high\) of numbers"),
    ({"label": "A", "higher_is_better": True, "range": (0, "1")}, r"range must be a pair \(low, high\) of numbers"),
    ({"label": "A", "higher_is_better": True, "percents": True}, "unknown setting 'percents': did you mean 'percent'"),
]


def test_decorators_say_what_they_need() -> None:
    for details, says in BAD_METRICS:
        with pytest.raises(ValueError, match=says):
            mean_metric(**details)
    for bare in (metric, mean_metric):
        with pytest.raises(ValueError, match="needs a label and higher_is_better: write @"):
            bare(lambda answers: answers.confidence)


BAD_PROTOCOLS = [
    ("    def count_stimuli(self, settings, foreign, monitors): return 1\n", "", "does not define count_stimuli"),
    (', "How sure is it?", Settings', ', "How sure is it?", dict', "settings that are not a class derived from pydant"),
    ("least: float = 0.5", "least: float", r"settings without a default \(least\)"),
    ("name, summary, settings =", "name, summary, setting =", "lacks settings"),
    ("    table_specs = (TableSpec", "    specs = (TableSpec", "declares no table"),
    ('register("sure")', 'register("surely")', "has the name 'sure', but is registered as 'surely'"),
    ("(Protocol):", ":", "must be a class that is derived from Protocol"),
]


def test_a_protocol_that_lacks_something_is_refused_when_it_is_loaded(folder: Path) -> None:  # noqa: F811
    for old, new, says in BAD_PROTOCOLS:
        assert old in PROTOCOL
        (folder / "sure.py").write_text(PROTOCOL.replace(old, new))
        with pytest.raises(InputError, match=rf"cannot load plugin .*sure\.py: the protocol 'sure.*{says}"):
            load_given(folder / "sure.py", trust=True)
    (folder / "sure.py").write_text(PROTOCOL.replace('TableSpec("sure"', 'TableSpec("classification"'))
    with pytest.raises(InputError, match=r"the protocol sure is wrong about its tables.* declared already"):
        prepare(load_study(folder / "study.yaml", trust=True)[0], base=folder, trust=True, progress=no_progress)


def test_what_a_user_can_name_as_a_plugin(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = ["list", "shifts", "--trust", "--plugin"]
    assert call(*listed, "") == (2, "plugin '' is neither a Python file (my.py) nor a module (package.module)")
    missing = folder.parent / "no.py"
    assert call(*listed, "no.py") == (2, f"there is no file {missing}, which --plugin names")
    monkeypatch.setenv("HOME", str(folder))
    (folder / "dim.py").write_text(f"print('hello')\n{SHIFT}")
    load_given("~/dim.py", trust=True)
    assert "dim" in rw.SHIFTS
    assert capsys.readouterr() == ("", "hello\n"), "what a plugin prints is no result"
    with pytest.warns(UserWarning, match="plugin os registers nothing"):
        load_given("os", trust=True)
    load_given("roadworthy.shifts", trust=True)  # no warning: its shifts are registered already
    (folder / "helper_of_dim.py").unlink()
    pinned = yaml.safe_load((folder / "study.yaml").read_text())
    helper = {"dim.py": digest_file(folder / "dim.py"), "helper_of_dim.py": "0" * 64}
    pinned["plugins"][0] = {"plugin": str(folder / "dim.py"), "files": helper}
    with pytest.raises(InputError, match=r"dim\.py imports helper_of_dim\.py, which is gone: put it back"):
        load_study(pinned, trust=True)


def test_plugins_with_helpers_of_one_name_have_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shift.py").write_text(SHIFT.replace('"dim"', f'"dim_{name}"'))
        (tmp_path / name / "helper_of_dim.py").write_text(f"FACTORS = ({0.2 if name == 'a' else 0.4},)\n")
    load_given([tmp_path / "a" / "shift.py", tmp_path / "b" / "shift.py"], trust=True)
    levels = [rw.SHIFTS.get(f"dim_{name}").LEVELS[0]["factor"] for name in ("a", "b")]
    assert levels == [0.2, 0.4]


def test_a_run_whose_package_is_not_installed_says_which(run: rw.Run) -> None:  # noqa: F811
    record = json.loads((run.path / RECORD).read_text())
    record["plugins"] = []
    record["environment"]["packages"]["our-protocols"] = "1.2"
    record.pop("digest")
    (run.path / RECORD).write_bytes(json_bytes(sealed(record)))
    before = snapshot(run.path)
    says = (
        "the protocol 'sure' of the run is not here: install the package our-protocols 1.2, which the run was made with"
    )
    for command in (["report"], ["verify"], ["verdict"], ["compare", run.path]):
        assert call(*command, run.path) == (2, says)
    assert snapshot(run.path) == before


def test_an_error_of_an_installed_package_is_not_blamed_on_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lamp_package"
    package.mkdir()
    (package / "__init__.py").write_text(METRIC)
    (package / "inner.py").write_text("def fail():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    inner = importlib.import_module("lamp_package.inner")
    assert METRICS.get("own_sure").__module__ == "lamp_package"
    with pytest.raises(ZeroDivisionError) as raised:
        inner.fail()
    assert plugin_behind(raised.value) == ("", [])
    monkeypatch.setitem(METRICS.packages, "own_sure", "lamp-package")
    author, frames = plugin_behind(raised.value)
    assert (author, [frame.line for frame in frames]) == ("the installed package lamp-package", ["return 1 / 0"])


def test_help_names_what_options_take() -> None:
    for command, names, repeated in (("evaluate", ("FILE", "NAME"), 3), ("compare", ("FILE", "NAME", "RUN"), 2)):
        printed = call(command, "--help")[1]
        assert "list[str]" not in printed.partition("Options:")[2]
        assert all(name in printed for name in names)
        assert " ".join(printed.split()).count("can be repeated") == repeated
