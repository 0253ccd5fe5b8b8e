"""The command line as a newcomer uses it: output, exit codes, nothing on disk after a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from commands import call
from elsewhere import answer_elsewhere
from roadworthy import demo
from roadworthy.cli import app
from roadworthy.core.errors import InputError
from roadworthy.verdict import QUESTIONS
from tiny import contents, save_onnx, study, write_study


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    criteria = [
        {"id": "EASY", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.1},
        {"id": "HARD", "metric": "accuracy", "where": {"shift": "fog"}, "at_least": 0.999},
    ]
    output = call("run", write_study(folder, criteria=criteria), "--out", folder / "run", code=1)
    assert "fail  HARD" in output
    assert "Verdict: fail" in output
    assert (folder / "run" / "report.html").is_file()
    return folder / "run"


def test_help_answers_at_once() -> None:
    best = min(_timed([sys.executable, "-m", "roadworthy", "--help"]) for _ in range(3))
    empty = min(_timed([sys.executable, "-c", "pass"]) for _ in range(3))
    slow = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "roadworthy.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    for heavy in ("numpy", "pandas", "pyarrow", "torch", "onnxruntime", "scipy", "plotly"):
        assert f" {heavy}\n" not in slow, f"--help imports {heavy}"
    assert best < empty + 5, "far from what a person would wait for"


def _timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def test_verdict_exit_codes_and_junit(finished: Path, tmp_path: Path) -> None:
    assert "verdict: fail" in call("verdict", finished, code=1)
    for threshold, code, word in ((0.1, 0, "pass"), (0.999, 1, "fail")):
        criteria = tmp_path / "c.yaml"
        criteria.write_text(
            yaml.safe_dump([{"id": "A", "metric": "accuracy", "at_least": threshold, "over": "pooled"}])
        )
        output = call("verdict", finished, "--criteria", criteria, "--junit", tmp_path / "j.xml", code=code)
        assert f"verdict: {word}" in output
        assert (tmp_path / "j.xml").read_text().count("<testcase") == 1
    call("verify", finished)


def test_verify_report_and_list(finished: Path) -> None:
    assert "the tables follow from the readouts" in call("verify", finished)
    before = (finished / "report.html").read_bytes()
    assert "report.html" in call("report", finished)
    assert (finished / "report.html").read_bytes() == before
    shifts = call("list", "shifts")
    assert all(name in shifts for name in ("reflection", "c_saturate", "deepfool"))
    assert "standard@1" in call("list", "suites")
    for kind in ("outliers", "monitors", "metrics", "models", "data", "protocols"):
        assert call("list", kind).strip()


def test_evaluate_and_resume(tmp_path: Path) -> None:
    from roadworthy.data import BuiltinDataset, Opening

    signs = BuiltinDataset("signs", Opening(size=32), n=140)
    import numpy as np

    batch = signs.batch(slice(None))
    np.savez(
        tmp_path / "d.npz", images=batch.images, labels=batch.labels, class_names=signs.class_names, group=batch.group
    )
    words = ("evaluate", "--model", save_onnx(tmp_path / "m.onnx"), "--data", tmp_path / "d.npz", "--suite", "quick")
    output = call(*words, "--out", tmp_path / "run")
    assert "undisturbed" in output
    assert "under shifts" in output
    assert "Verdict: none" in output
    again = call(*words, "--out", tmp_path / "run")
    assert again == output


def test_the_study_in_a_run_can_be_run_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_onnx(tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text("[{id: A, metric: accuracy, at_least: 0.05, over: pooled}]")
    call("run", write_study(tmp_path, models={"m": {"onnx": "m.onnx"}}, criteria="c.yaml"), "--out", tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    call("run", tmp_path / "run" / "study.yaml", "--out", "again")
    assert contents(tmp_path / "run") == contents(tmp_path / "elsewhere" / "again")


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = write_study(tmp_path)
    before = sorted(tmp_path.iterdir())
    output = call("run", source, "--out", tmp_path / "run", "--dry-run")
    assert "cases     8, 0 of them done; 1,200 answers" in output
    assert "time      about" in output
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "nowhere.yaml"], "nowhere.yaml"),
        (["verify", "nowhere"], "is no run"),
        (["verdict", "nowhere"], "is no run"),
        (["report", "nowhere"], "is no run"),
        (["evaluate", "--model", "nowhere.onnx", "--data", "builtin:signs"], "nowhere.onnx"),
        (["check", "--model", "nowhere.onnx", "--data", "builtin:signs"], "nowhere.onnx"),
        (["preview", "fogg"], "did you mean 'fog'"),
        (["preview", "fog", "--model", "m.onnx"], "only used with --calibrate"),
        (["preview", "--levels", "l.yaml"], "needs the name of one shift"),
    ],
)
def test_mistakes_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    message = call(*words, code=2)
    assert complaint in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_one_sentence_without_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "roadworthy.cli", "run", str(tmp_path / "no.yaml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"error: cannot read study {tmp_path / 'no.yaml'}: No such file or directory\n"


def test_preview_and_calibrate(tmp_path: Path) -> None:
    import cv2

    output = call("preview", "fog", "--out", tmp_path / "fog.png")
    assert "contact sheet" in output
    assert cv2.imread(str(tmp_path / "fog.png")).shape[1] > 500
    (tmp_path / "levels.yaml").write_text("{1: {factor: 0.1}, 2: {factor: 0.9}}")
    output = call(
        *("preview", "noise", "--levels", tmp_path / "levels.yaml", "--calibrate", "--out", tmp_path / "noise.png"),
        *("--model", save_onnx(tmp_path / "m.onnx"), "--size", "32x32"),
    )
    lines = [line.split() for line in output.splitlines() if line.startswith("noise")]
    assert [line[:2] for line in lines] == [["noise", "1"], ["noise", "2"]]
    assert float(lines[0][2]) > float(lines[1][2]), "similarity falls"
    assert float(lines[0][3]) > float(lines[1][3]), "and so does accuracy"


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with fewer images, levels and sets: all its stations, in seconds."""
    data = {"train": {"builtin": "signs", "split": "train", "n": 210}, "test": {"builtin": "signs", "n": 42}}
    monkeypatch.setitem(demo.STUDY, "data", data)
    narrow = {"width": 4, "hidden": 8}
    monkeypatch.setitem(demo.STUDY["models"], "baseline", {"reference": "baseline", **narrow})
    monkeypatch.setitem(demo.STUDY["models"], "mc_dropout", {"reference": "mc_dropout", "passes": 2, **narrow})
    monkeypatch.setitem(demo.STUDY["protocols"], "classification", {"levels": [1, 2, 3]})
    outliers = {"sets": ["uniform_noise", "scenery"], "transformed": ["fog"]}
    monkeypatch.setitem(demo.STUDY["protocols"], "ood", outliers)
    monkeypatch.setitem(demo.STUDY["protocols"], "operating_points", {"levels": [1, 2, 3], "outliers": outliers})
    lines = call("demo", "--out", tmp_path / "demo").splitlines()
    heads = [line.split(":")[0] for line in lines if not line.startswith("No better than chance")]
    heads = [head.partition("?")[0] for head in heads]
    assert heads[0] == "Verdict"
    assert heads[1:4] == [question.sentence.rstrip("?") for question in QUESTIONS.values()]
    assert heads[4:6] == ["Accuracy", "Worst condition (lowest of any model)"]
    verdict = json.loads((tmp_path / "demo" / "verdict.json").read_text())
    assert verdict["decision"]["example"] is True
    assert sorted(criterion["id"] for criterion in verdict["criteria"]) == sorted(demo.THRESHOLDS)
    assert lines[-1] == f"report: {tmp_path / 'demo' / 'report.html'}"
    built = json.loads((tmp_path / "demo" / "run.json").read_text())["artifacts"]
    assert {(each["system"], each["competence"]["epochs"]) for each in built.values()} == {
        ("baseline", 4),
        ("mc_dropout", 8),
    }
    call("verify", tmp_path / "demo")


def test_the_demo_refuses_a_folder_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="file"):
        demo.run_demo(tmp_path / "file")


def test_export_predict_elsewhere_import(tmp_path: Path) -> None:
    """Tables from answers given in another process, by ONNX Runtime alone, equal those of the direct run."""
    model = save_onnx(tmp_path / "tiny.onnx", gain=3.0)
    asked: dict[str, Any] = {
        "data": {"test": {"builtin": "signs", "n": 130}, "train": {"builtin": "signs", "split": "train", "n": 70}},
        "outliers": {"scenery": {"builtin": "scenery", "n": 20}, "uniform_noise": "uniform_noise"},
        "monitors": ["msp", "kl_matching"],
        "protocols": {**study(tmp_path)["protocols"], "od_test": {"limit": 20}},
    }
    source = write_study(tmp_path, **asked)
    call("run", source, "--out", tmp_path / "direct")
    assert "1,060 images" in call("export", source, tmp_path / "images")
    assert "not empty" in call("export", source, tmp_path / "images", code=2)
    answer_elsewhere(tmp_path / "images", model, tmp_path / "answers.csv")
    back = study(tmp_path, models={"tiny": {"predictions": str(tmp_path / "answers.csv")}}, **asked)
    (tmp_path / "back.yaml").write_text(yaml.safe_dump(back))
    call("run", tmp_path / "back.yaml", "--out", tmp_path / "imported")
    names = [path.name for path in (tmp_path / "direct" / "tables").glob("[!t]*.*")]
    assert len(names) >= 36
    for name in names:
        direct, imported = ((tmp_path / run / "tables" / name).read_bytes() for run in ("direct", "imported"))
        assert direct == imported, name
    answers = (tmp_path / "answers.csv").read_text().splitlines(keepends=True)
    (tmp_path / "answers.csv").write_text("".join(answers[:-2]))
    message = call("run", tmp_path / "back.yaml", "--out", tmp_path / "incomplete", code=2)
    assert "2" in message
    assert not (tmp_path / "incomplete").exists()
    changed = {**back, "seed": 5}
    (tmp_path / "answers.csv").write_text("".join(answers))
    (tmp_path / "back.yaml").write_text(yaml.safe_dump(changed))
    assert "seed" in call("run", tmp_path / "back.yaml", "--out", tmp_path / "other", code=2)


def test_version() -> None:
    import roadworthy

    assert call("--version") == f"roadworthy {roadworthy.__version__}\n"


def test_check_strict_is_for_pipelines(tmp_path: Path) -> None:
    words = ("check", "--model", save_onnx(tmp_path / "m.onnx"), "--data", "builtin:signs", "--size", "32")
    assert "nothing wrong was found" in call(*words, "--strict")
    wrong = (*words, "--range", "0-255")
    assert "finding: with --range 0-1 accuracy is" in call(*wrong)
    assert "finding: with --range 0-1 accuracy is" in call(*wrong, "--strict", code=1)


def test_a_log_gets_one_line_per_stage_and_quiet_none(tmp_path: Path) -> None:
    words = ["run", str(write_study(tmp_path, n=70)), "--out", str(tmp_path / "run")]
    loud = CliRunner().invoke(app, words)
    assert [line.rstrip("0123456789 s") for line in loud.stderr.splitlines()] == [
        "reading images: 70 done in",
        "testing tiny: 560 done in",
        "computing tables: done in",
    ]
    assert loud.stdout.startswith("Verdict: ")
    quiet = CliRunner().invoke(app, [*words, "--quiet"])
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")
    exported = CliRunner().invoke(app, ["export", words[1], str(tmp_path / "images"), "--quiet"])
    assert (exported.exit_code, exported.output) == (0, "")


def test_quiet_keeps_errors_and_the_exit_code(finished: Path, tmp_path: Path) -> None:
    study_file = finished / "study.yaml"
    done = CliRunner().invoke(app, ["run", str(study_file), "--out", str(finished), "--quiet"])
    assert (done.exit_code, done.output) == (1, "")
    assert "no.yaml" in call("run", tmp_path / "no.yaml", "--quiet", code=2)


def test_a_long_stage_shows_life(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from roadworthy.engine import progress

    monkeypatch.setattr(progress, "ANNOUNCED_AFTER", 0.05)
    monkeypatch.setattr(progress, "REPEATED_AFTER", 0.2)
    with progress.terminal_progress("training a", 1000) as advance:
        advance(400)
        time.sleep(0.3)
        advance(600)
    first, second, *_, last = capsys.readouterr().err.splitlines()
    assert first == "training a ..."
    assert second.startswith("training a: 400 of 1,000 after ")
    assert last.startswith("training a: 1,000 done in ")
    with pytest.raises(ZeroDivisionError), progress.terminal_progress("training b", 1):
        _ = 1 / 0
    assert capsys.readouterr().err == "", "a stage that failed is not done"
