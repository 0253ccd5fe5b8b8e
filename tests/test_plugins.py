"""One's own file is a plugin: loaded before the study is read, only where it is trusted, and named in the run."""
# ruff: noqa: F811 (fixtures that are imported are arguments too)

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import roadworthy as rw
from plugin_files import HELPER, PROTOCOL, SHIFT, call, clean_registries, folder, run, snapshot  # noqa: F401 (fixtures too)
from roadworthy.api import execute, no_progress, prepare
from roadworthy.cli import main
from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest_file
from roadworthy.core.registry import Registry
from roadworthy.engine.folder import RunFolder
from roadworthy.preparing import prepare_recipe
from roadworthy.study import load_study, parse_study
from tiny import forget_plugins, save_onnx, study

OWN_METRIC = Path(__file__).parent.parent / "docs" / "own_metric.md"


def test_a_run_names_its_plugins_and_loads_them_again(run: rw.Run, folder: Path) -> None:
    whole = [str(folder / name) for name in ("dim.py", "sure.py")]
    stored = yaml.safe_load((run.path / "study.yaml").read_text())["plugins"]
    assert stored == json.loads((run.path / "run.json").read_text())["plugins"]
    assert [named["plugin"] for named in stored] == whole
    assert stored[0]["files"] == {name: digest_file(folder / name) for name in ("dim.py", "helper_of_dim.py")}, (
        "its own file and what it imports"
    )
    assert set(run.tables["classification"]["shift"]) == {"none", "dim"}
    assert len(run.tables["sure"]) == 1
    page = (run.path / "report.html").read_text()
    assert f"SHA-256 of dim.py {digest_file(folder / 'dim.py')}" in page
    assert "roadworthy verify RUN --trust</code>" in page
    assert f"{len(run.folder.hashes())}, each with its SHA-256 in run.json or" in page

    for words in (["verify", run.path], ["report", run.path], ["verdict", run.path], ["compare", run.path, run.path]):
        before = snapshot(run.path)
        code, printed = call(*words)
        assert (code, printed) == (2, printed)
        assert printed.endswith("dim.py holds code that would be run: pass --trust if you trust its author")
        assert snapshot(run.path) == before
        assert call(*words, "--trust")[0] == 0
        forget_plugins()
    assert rw.open_run(run.path).tables["sure"].equals(run.tables["sure"]), "tables can be read without any code"

    (folder.parent / "elsewhere").mkdir()
    again = rw.run(run.path / "study.yaml", out=folder.parent / "elsewhere" / "run", trust=True, progress=no_progress)
    assert again.tables["sure"].equals(run.tables["sure"])
    assert again.verify() == [], "its plugins are loaded, so nothing is left to trust"


def test_without_trust_nothing_is_run_or_written(folder: Path) -> None:
    (folder / "dim.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n" + SHIFT)
    before = snapshot(folder.parent)
    for command in (["run", folder / "study.yaml", "--out", "new"], ["export", folder / "study.yaml", "new"]):
        code, printed = call(*command)
        assert code == 2
        assert printed == "home/dim.py holds code that would be run: pass --trust if you trust its author"
    assert call("list", "shifts", "--plugin", folder / "dim.py")[0] == 2
    assert snapshot(folder.parent) == before


def test_every_command_takes_a_plugin(folder: Path, tmp_path: Path) -> None:
    dim = ["--plugin", folder / "dim.py", "--trust"]
    assert re.search(r"^dim +Darken the image\.", call("list", "shifts", *dim)[1], re.MULTILINE)
    forget_plugins()
    assert call("preview", "dim", "--out", tmp_path / "sheet.png", "--images", "1", *dim)[0] == 0
    forget_plugins()
    plain = study(tmp_path, 56, protocols={"classification": {"shifts": ["dim"], "levels": [5]}})
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(plain))
    code, printed = call("run", tmp_path / "plain.yaml", "--dry-run")
    assert (code, printed.partition(".")[0]) == (2, "unknown shift 'dim'")
    assert "protocol  classification: 3 cases" in call("run", tmp_path / "plain.yaml", "--dry-run", *dim)[1]
    forget_plugins()
    assert call("export", tmp_path / "plain.yaml", tmp_path / "export", "--quiet", *dim)[0] == 0
    loaded, _ = load_study(tmp_path / "plain.yaml", plugins=folder / "dim.py", trust=True)
    assert [record.plugin for record in loaded.plugins] == [str(folder / "dim.py")]


def test_verify_names_changed_code_and_another_path_stands_in(run: rw.Run, folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    (folder / "helper_of_dim.py").write_text("FACTORS = (0.1, 0.2, 0.3, 0.4, 0.5)\n")
    code, printed = call("verify", run.path, "--trust")
    assert code == 1
    assert "dim.py was changed since the SHA-256 of helper_of_dim.py was noted" in printed
    assert "name the code to use with --plugin" in printed, "as an option of the command"
    assert printed.endswith(": 1 problem\n")
    code, printed = call("report", run.path, "--trust")
    assert code == 2
    assert printed.endswith("put it back as it was, or name the code to use with --plugin")
    assert call("verify", run.path, "--trust", "--plugin", moved / "dim.py")[0] == 0
    forget_plugins()

    (folder / "sure.py").unlink()
    code, printed = call("verify", run.path, "--trust", "--plugin", moved / "dim.py")
    assert code == 2
    gone = (
        f"the run was made with the plugin {folder / 'sure.py'}, which is gone: name it where it is now with --plugin"
    )
    assert printed == gone, "the whole path"
    both = [moved / "dim.py", moved / "sure.py"]
    assert rw.open_run(run.path, plugins=both, trust=True).verify() == []
    forget_plugins()

    (moved / "sure.py").write_text(PROTOCOL.replace("mean()", "min()"))
    changed, tables = rw.open_run(run.path, plugins=both, trust=True).verify()
    assert changed.endswith("sure.py is not the code that the run was made with")
    assert tables == "table sure does not follow from the readouts"
    with pytest.warns(UserWarning, match="is not the code that the run was made with"):
        rw.open_run(run.path, plugins=both, trust=True).report()


def test_the_same_code_in_two_folders_is_one_plugin(run: rw.Run, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copied")
    moved = rw.run(tmp_path / "copied" / "study.yaml", out=tmp_path / "second", trust=True, progress=no_progress)
    assert moved.record.plugins[0].plugin == str(tmp_path / "copied" / "dim.py")
    assert call("compare", run.path, moved.path)[0] == 0, "there is nothing left to trust"
    (tmp_path / "copied" / "dim.py").write_text(SHIFT.replace("Darken", "Dim"))
    with pytest.raises(InputError, match="holds code that would be run"):
        rw.run(tmp_path / "copied" / "study.yaml", out=tmp_path / "third", progress=no_progress)


def test_plugins_of_one_name_in_two_folders_are_two(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "dim.py").write_text(SHIFT.replace('"dim"', '"dusk"'))
    loaded = parse_study(study(folder, plugins=["dim.py", "other/dim.py"]), "study", base=folder, trust=True)
    assert {"dim", "dusk"} <= {*rw.SHIFTS}
    assert len(loaded.plugins) == 2


def test_an_error_of_a_plugin_is_not_blamed_on_us(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sure.py").write_text(PROTOCOL.replace('return {"sure"', '1 / 0; return {"sure"'))
    words = ["roadworthy", "run", str(folder / "study.yaml"), "--out", str(folder / "run"), "--trust", "--quiet"]
    monkeypatch.setattr(sys, "argv", words)
    with warnings.catch_warnings(), pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    printed = capsys.readouterr().err
    assert re.search(r"error: plugin .*sure\.py raised ZeroDivisionError: division by zero", printed)
    assert "1 / 0" in printed
    assert "executing.py" not in printed, "only lines of the plugin are shown"


def test_an_edited_plugin_is_loaded_again(folder: Path) -> None:
    """In a notebook: the class of the same name is replaced, what it no longer registers is gone, helpers are read."""
    given: dict[str, Any] = {"plugins": [folder / "dim.py"], "trust": True}
    load_study(study(folder), **given)
    first = rw.SHIFTS.get("dim")
    load_study(study(folder), **given)
    assert rw.SHIFTS.get("dim") is first, "unchanged code is not run again"
    (folder / "helper_of_dim.py").write_text("FACTORS = (0.9,)\n")
    load_study(study(folder), **given)
    assert rw.SHIFTS.get("dim").LEVELS == ({"factor": 0.9},)
    (folder / "dim.py").write_text(SHIFT.replace('"dim"', '"dusk"'))
    load_study(study(folder), **given)
    assert "dusk" in rw.SHIFTS
    assert "dim" not in rw.SHIFTS
    (folder / "dim.py").write_text("raise OSError('no disk')")
    with pytest.raises(InputError, match=r"cannot load plugin .*dim\.py: OSError: no disk"):
        load_study(study(folder), **given)
    assert "dusk" in rw.SHIFTS, "as it was before the attempt"


def test_settings_of_an_edited_protocol_are_those_of_the_edit(folder: Path) -> None:
    asked = study(folder, protocols={"sure": {"least": 0.1}})
    load_study(asked, plugins=folder / "sure.py", trust=True)
    (folder / "sure.py").write_text(PROTOCOL.replace("least: float", "most: float"))
    with pytest.raises(InputError, match=r"unknown key 'protocols\.sure\.least'"):
        load_study(asked, plugins=folder / "sure.py", trust=True)


MISTAKES = [
    ("raises", "1 / 0", r"cannot load plugin .*bad\.py: ZeroDivisionError: division by zero"),
    ("syntax", "def f(:", r"cannot load plugin .*bad\.py: SyntaxError: .*bad\.py, line 1"),
    ("leaves", "import sys; sys.exit(3)", r"cannot load plugin .*bad\.py: SystemExit: it called sys\.exit\(\)"),
    (
        "name taken",
        SHIFT.replace("Darken", "Dim"),
        r"bad\.py: there is already a shift 'dim' \(of .*dim\.py\): choose another name",
    ),
    ("name of ours", SHIFT.replace('"dim"', '"fog"'), r"bad\.py: there is already a shift 'fog' \(built in\): choose"),
    ("no module", "import nowhere_at_all", r"bad\.py: ModuleNotFoundError: No module named 'nowhere_at_all'"),
]


@pytest.mark.parametrize(("text", "says"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_plugin_that_cannot_be_loaded_is_one_sentence(text: str, says: str, folder: Path) -> None:
    (folder / "bad.py").write_text(text)
    before = {registry.kind: [*registry] for registry in Registry.everyone}
    with pytest.raises(InputError, match=says):
        load_study(study(folder), plugins=[folder / "dim.py", folder / "bad.py"], trust=True)
    rw.SHIFTS._members.pop("dim")
    assert {registry.kind: [*registry] for registry in Registry.everyone} == before


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (
            ["no.py"],
            r"there is no file /.*no\.py, which the study names under plugins \(paths start from the study's fold",
        ),
        (["home"], r"cannot load plugin home: ModuleNotFoundError: No module named 'home'"),
        (["a-b"], "plugin 'a-b' is neither a Python file"),
        ("dim.py", r"plugins is a list of Python files or modules: write plugins: \[my.py\]"),
        ([3], r"a plugin is a Python file \(my.py\) or a module \(package.module\), not 3"),
        ([""], r"a plugin is a Python file \(my.py\) or a module \(package.module\), not ''"),
        ([{"plugin": "home/dim.py", "files": "00"}], r"given by name: write files: \{my.py: 'its SHA-256'\}"),
        ([{"plugin": "home/dim.py", "files": {"dim.py": 12}}], r"dim.py is pinned by 12, which is not a SHA-256"),
        (["https://a.b/my.py"], r"plugin https://a.b/my.py is an address: download the file"),
        (["home/noext"], r"plugin home/noext is a file whose name does not end in .py"),
        ([{"plugin": "home/dim.py", "file": 1}], "unknown key 'plugins.0.file'"),
        (
            [{"plugin": "home/sure.py", "files": {"sure.py": "0" * 64}}],
            r"sure\.py was changed since the SHA-256 of sure",
        ),
    ],
)
def test_plugins_that_a_study_cannot_have(named: Any, says: str, folder: Path) -> None:
    (folder / "noext").write_text(SHIFT)
    with pytest.raises(InputError, match=says):
        parse_study(study(folder, plugins=named), "study", trust=True)


def test_a_plugin_that_registers_nothing_is_mentioned(folder: Path) -> None:
    (folder / "idle.py").write_text("x = 1\n")
    with pytest.warns(UserWarning, match=r"plugin .*idle\.py registers nothing"):
        load_study(study(folder), plugins=[folder / "idle.py"], trust=True)


def test_a_module_is_a_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "lamps"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "dim.py").write_text(SHIFT)
    monkeypatch.syspath_prepend(str(folder))
    loaded = parse_study(study(folder, plugins=["lamps.dim"]), "study", trust=True)
    assert loaded.plugins[0].plugin == "lamps.dim"
    assert loaded.plugins[0].files["dim.py"] == digest_file(package / "dim.py")
    assert "dim" in rw.SHIFTS
    pinned = {"plugin": "lamps.dim", "files": {"dim.py": "0" * 64}}
    for _ in ("imported already", "not imported yet"):
        with pytest.raises(InputError, match=r"plugin lamps\.dim was changed"):
            parse_study(study(folder, plugins=[pinned]), "study", trust=True)
        forget_plugins()
        sys.modules.pop("lamps.dim", None)
        (package / "dim.py").write_text("raise SystemExit('changed code ran')")


def test_a_node_made_elsewhere_has_the_plugins(folder: Path, tmp_path: Path) -> None:
    loaded, base = load_study(folder / "study.yaml", trust=True)
    prepared = prepare(loaded, base=base, trust=True, progress=no_progress)
    recipe = json.loads(json.dumps(prepared.recipe()))
    hashes = set(prepared.plan.graph().cases)
    forget_plugins()
    assert set(prepare_recipe(recipe).plan.graph().cases) == hashes
    forget_plugins()
    recipe["allowed"]["trust"] = False
    with pytest.raises(InputError, match="holds code that would be run"):
        prepare_recipe(recipe)


def test_a_run_without_plugins_says_nothing_of_them(tmp_path: Path) -> None:
    asked = parse_study(study(tmp_path, 28, protocols={"classification": {"shifts": ["fog"], "levels": [1]}}), "study")
    run = execute(prepare(asked, progress=no_progress), tmp_path / "run", progress=no_progress)
    assert "plugins" not in json.loads((run.path / "run.json").read_text())
    assert "plugins" not in yaml.safe_load((run.path / "study.yaml").read_text())
    assert RunFolder(run.path).record().plugins == []


def test_a_file_that_adds_a_metric(tmp_path: Path) -> None:
    """The five-minute page: its file, named on the command line, is in table, verdict, report and comparison."""
    (code,) = re.findall(r"```python\n(.*?)```", OWN_METRIC.read_text(), re.DOTALL)
    (tmp_path / "sure_and_wrong.py").write_text(code)
    plugin = ["--plugin", tmp_path / "sure_and_wrong.py", "--trust"]
    sure = {"shifts": ["fog"], "levels": [5], "metrics": ["sure_and_wrong"]}
    criterion = {"id": "SURE", "metric": "sure_and_wrong", "where": {"shift": "none"}, "at_most": 0.99}
    models = {name: str(save_onnx(tmp_path / f"{name}.onnx", gain=gain)) for name, gain in (("a", 1.0), ("b", 9.0))}
    content = study(tmp_path, 280, protocols={"classification": sure}, models=models, criteria=[criterion])
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    code_without, printed = call("run", tmp_path / "study.yaml", "--out", tmp_path / "run")
    assert (code_without, printed.partition(":")[0]) == (2, "unknown metric 'sure_and_wrong'")
    assert not (tmp_path / "run").exists()
    code_with, printed = call("run", tmp_path / "study.yaml", "--out", tmp_path / "run", *plugin)
    assert code_with == 0
    assert "pass  SURE: sure_and_wrong" in printed
    table = rw.open_run(tmp_path / "run").tables["classification"]
    table = table[table["metric"] == "sure_and_wrong"].set_index(["model", "shift"])
    mistakes = []
    for path in (tmp_path / "run").glob("readouts/none-*/part-*.parquet"):
        rows = pd.read_parquet(path)
        if "prediction" in rows:  # the conditions of the data are no answers
            mistakes.append(((rows["prediction"] != rows["label"]) & (rows["confidence"] >= 0.9)).mean())
    assert sorted(table.xs("none", level="shift")["value"]) == pytest.approx(sorted(mistakes))
    assert table["lo"].le(table["value"]).all()
    assert (
        "Share of images that are answered wrongly with a confidence of 90 % or more"
        in (tmp_path / "run" / "report.html").read_text()
    )
    assert "sure_and_wrong" in call("compare", tmp_path / "run", "--metric", "sure_and_wrong", "--trust")[1]
    forget_plugins()
    assert call("verify", tmp_path / "run", "--trust")[0] == 0
