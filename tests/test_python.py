"""`import roadworthy as rw` as a newcomer uses it: names, what a run says of itself, check, errors in its words."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import roadworthy as rw
from roadworthy import cli
from roadworthy.core import errors
from samples import CLASSES, arrays, network, picture, squares, study

SOURCE = Path(rw.__file__).parent
COMMANDS = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]


@pytest.fixture
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good model and good data, and nothing else."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(network().SerializeToString())
    np.savez(tmp_path / "data.npz", **arrays())
    return tmp_path


def test_every_public_name_is_listed_and_there() -> None:
    assert {"check", "compare", "evaluate", "run", "compare_runs", "run_study"} <= set(dir(rw))
    assert sorted(rw.__all__) == sorted(set(dir(rw)) - {"__version__"})
    for name in dir(rw):
        assert getattr(rw, name) is not None
    assert (rw.run, rw.compare) == (rw.run_study, rw.compare_runs)
    with pytest.raises(AttributeError, match="evalute"):
        _ = rw.evalute


def test_listing_the_names_imports_nothing_heavy() -> None:
    code = "import sys, roadworthy; dir(roadworthy); assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_says_what_it_is(kitchen: Path) -> None:
    criteria = [{"id": "A", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.1}]
    run = rw.run(study(criteria=criteria), out="out", progress=rw.no_progress)
    assert repr(run) == f"<Run small in out: models m; 12 images; verdict pass; {len(run.tables)} tables>"
    assert "classification" in repr(run.tables)
    assert repr(rw.open_run(run)) == repr(run), "a run is given where its path is"
    record = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps({key: value for key, value in record.items() if key != "finished"}))
    assert "; not finished; " in repr(rw.open_run("out"))


def brightest(images: np.ndarray) -> np.ndarray:
    """The class is the brightest channel."""
    means = images.astype(float).mean(axis=(1, 2)) / 10
    return np.exp(means) / np.exp(means).sum(axis=1, keepdims=True)


def test_check_takes_paths_functions_modules_and_arrays(kitchen: Path) -> None:
    torch = pytest.importorskip("torch")
    report = rw.check("model.onnx", "data.npz")
    assert (report.ok, report.accuracy, report.of) == (True, 1.0, 12)
    assert str(report) == repr(report) == "\n".join(report.lines())
    assert "nothing wrong was found" in str(report)
    images, labels = squares()
    assert rw.check(brightest, (images, labels), name="mine").model == "mine"
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    assert rw.check(module, (images, labels), sample=5, size="8x8").sample == 5
    with pytest.raises(rw.InputError, match="sample must be a number from 1"):
        rw.check("model.onnx", "data.npz", sample=0)
    with pytest.raises(rw.InputError, match=r"unknown onnx model setting 'rnage': did you mean 'range'"):
        rw.check("model.onnx", "data.npz", rnage="0-255")


def test_check_takes_the_keywords_of_evaluate() -> None:
    outcome = {"suite", "metrics", "criteria", "out", "workers", "progress", "accept_chance", "fresh"}
    outcome |= {"until_decided", "complete", "engine", "address", "memory"}
    outcome |= {"outliers", "train", "validation", "monitor", "baseline"}
    shared = set(inspect.signature(rw.evaluate).parameters) - outcome
    assert set(inspect.signature(rw.check).parameters) == shared | {"sample"}


def test_what_check_finds_can_be_given_to_evaluate(kitchen: Path) -> None:
    from coloured_patches import nearest_template, patches
    from roadworthy.models import Preprocess

    data = patches()
    nearest_template(kitchen / "m.onnx", data, Preprocess("imagenet"))
    np.savez(kitchen / "d.npz", images=data.images, labels=data.truth)
    report = rw.check("m.onnx", "d.npz")
    (finding,) = report.findings
    assert "with `range='imagenet'` accuracy is" in str(report)
    assert rw.check("m.onnx", "d.npz", **finding.settings).ok


@pytest.mark.parametrize("command", COMMANDS)
def test_a_message_names_the_option_of_every_command(command: str) -> None:
    for parameter in COMMANDS[command].params:
        for option in (name for name in parameter.opts if name.startswith("--")):
            keyword = option.removeprefix("--").replace("-", "_")
            assert cli.spelled(f"give `{keyword}=`", command) == f"give {option}"
            value, shown = ("True", "") if parameter.is_flag else ("'some.py:value'", " some.py:value")
            assert cli.spelled(f"(`{keyword}={value}`)", command) == f"({option}{shown})"


PYTHON = {
    "evaluate": (rw.evaluate, rw.load_model, rw.models.CallableModel, rw.models.load_torch, rw.models.HttpModel),
    "check": (rw.check, rw.models.CallableModel, rw.models.load_torch, rw.models.HttpModel),
    "run": (rw.run,),
    "export": (rw.export_study,),
    "compare": (rw.compare,),
}
"""Who takes the options of a command in Python."""
ONLY_COMMAND_LINE = {
    "--quiet",
    "--strict",
    "--dry-run",
    "--write-study",
    "--engine",
    "--fail-on",
    "--html",
    "--markdown",
    "--help",
    "--metric",
    "--all",
}


@pytest.mark.parametrize("command", PYTHON)
def test_every_option_has_the_same_name_in_python(command: str) -> None:
    known = {name for function in PYTHON[command] for name in inspect.signature(function).parameters}
    for parameter in COMMANDS[command].params:
        for option in set(parameter.opts) - ONLY_COMMAND_LINE:
            if option.startswith("--") and (command, option) != ("compare", "--out"):
                keyword = option.removeprefix("--").replace("-", "_")
                assert {v: k for k, v in cli.OTHER_NAMES.items()}.get(keyword, keyword) in known, option


MISTAKES: list[tuple[str, dict[str, Any], str, str]] = [
    ("code.py:answer", {}, "pass `trust=True` if", "pass --trust if"),
    ("model.onnx", {"out": "."}, "another folder with `out=`", "another folder with --out"),
    ("logits.onnx", {"outputs": "probabilities"}, "declare `outputs='logits'`", "declare --outputs logits"),
    ("free.onnx", {}, "give `size='HxW'`", "give --size HxW"),
    ("model.onnx", {"data": "broken"}, "with `on_bad_image='skip'`", "with --on-bad-image skip"),
]


@pytest.mark.parametrize(("model", "settings", "python", "command_line"), MISTAKES)
def test_an_error_speaks_the_language_of_its_reader(
    kitchen: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    settings: dict[str, Any],
    python: str,
    command_line: str,
) -> None:
    (kitchen / "code.py").write_text("def answer(images): ...")
    (kitchen / "logits.onnx").write_bytes(network(softmax=False).SerializeToString())
    free = network()
    for side in (2, 3):
        free.graph.input[0].type.tensor_type.shape.dim[side].dim_param = f"side{side}"
    (kitchen / "free.onnx").write_bytes(free.SerializeToString())
    for label in CLASSES:
        (kitchen / "broken" / label).mkdir(parents=True)
        (kitchen / "broken" / label / "1.png").write_bytes(picture() if label != "red" else b"\x89PNG")
    chosen = {"data": "data.npz", **settings}
    with pytest.raises(rw.RoadworthyError) as raised:
        rw.evaluate(model, **chosen)
    assert python in str(raised.value)
    assert "--" not in str(raised.value)
    words = [word for name, value in chosen.items() for word in (f"--{name}", value)]
    monkeypatch.setattr(sys, "argv", ["roadworthy", "evaluate", "--model", model, *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert command_line in (said := capsys.readouterr().err)
    assert "`" not in said


@pytest.mark.parametrize(
    "text",
    [
        "no model my--size.onnx",
        "no file --trust in /tmp/a --out",
        "Pool(size='same', trust=True) failed",
        "unknown `momentum=0.1` and `Size='a'`",
    ],
)
def test_what_users_wrote_stays_as_it_is(text: str) -> None:
    assert cli.spelled(text) == text
    assert str(rw.InputError(text)) == text


def test_a_study_is_told_its_key_where_its_command_has_no_option() -> None:
    assert cli.spelled("give `size='HxW'` or `device='cpu'`", "run") == "give `size: HxW` or --device cpu"


def messages(file: Path) -> list[str]:
    """Every text in a file that is not a docstring."""
    tree = ast.parse(file.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node.value for node in texts if id(node) not in docs]


COMMAND_LINE_ONLY = {*(SOURCE / "cli").glob("*.py"), SOURCE / "preview.py"}


def test_messages_name_python_keywords() -> None:
    """Write `size='HxW'` in backticks, not --size: the command line turns the keyword into its option."""
    ours = {option for command in COMMANDS.values() for parameter in command.params for option in parameter.opts}
    files = {*SOURCE.rglob("*.py")} - COMMAND_LINE_ONLY
    texts = [text for file in files for text in messages(file) if set(re.findall(r"--[a-z-]+", text)) & ours]
    assert [text for text in texts if text != "pipx install --force"] == []


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, origin: Any = None, tool: str = "pip") -> str:
    """The hint of a package that was installed from somewhere by some tool."""
    (folder / "INSTALLER").write_text(f"{tool}\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(errors, "distribution", lambda name: PathDistribution(folder))
    monkeypatch.setattr(sys, "prefix", str(folder))
    return str(errors.MissingExtra("torch models", "torch")).partition(": ")[2]


GIT = {"url": "https://git/rw.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}


@pytest.mark.parametrize(
    ("origin", "tool", "hint"),
    [
        (None, "pip", "pip install 'roadworthy[torch]'"),
        (None, "uv", "uv pip install 'roadworthy[torch]'"),
        ({"url": "file:///my%20rw", "dir_info": {"editable": True}}, "pip", "pip install -e '/my rw[torch]'"),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, "uv", "uv pip install -e '/clone[torch]'"),
        ({"url": "file:///clone", "dir_info": {}}, "pip", "pip install '/clone[torch]'"),
        (GIT, "pip", "pip install 'roadworthy[torch] @ git+https://git/rw.git@abc'"),
        ({"url": "file:///rw.whl", "archive_info": {}}, "pip", "pip install 'roadworthy[torch] @ file:///rw.whl'"),
    ],
)
def test_the_hint_for_an_extra_fits_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: Any, tool: str, hint: str
) -> None:
    assert installed(tmp_path, monkeypatch, origin, tool) == hint


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("pipx_metadata.json", "pipx install --force 'roadworthy[torch]'"),
        ("uv-receipt.toml", "uv tool install 'roadworthy[torch]'"),
    ],
)
def test_the_hint_for_an_extra_knows_tools_with_environments_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, hint: str
) -> None:
    (tmp_path / file).touch()
    assert installed(tmp_path, monkeypatch) == hint
