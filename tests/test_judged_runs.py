"""Verdicts of runs that cannot mislead: thresholds, the history of verdicts, failed cases and stopped runs."""

from __future__ import annotations

import fcntl
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import roadworthy as rw
from roadworthy.cli import app
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.files import write_json
from roadworthy.core.hashing import digest, sealed
from roadworthy.metrics import find_metric
from roadworthy.protocols.classification import Classification
from roadworthy.protocols.classification.tables import metric_names
from roadworthy.protocols.dependability import Dependability
from roadworthy.protocols.od_test.plan import OdTest
from roadworthy.protocols.ood.plan import OutOfDistribution
from roadworthy.verdict.criteria import Criterion
from roadworthy.verdict.history import ImageSet, Subject, changes_since, make_entry, read_history, with_entry
from samples import arrays, fill, squares, study
from stand_ins import Broken
from tiny import save_onnx

HARD = {"id": "HARD", "metric": "accuracy", "at_least": 0.95, "over": "pooled"}
Change = Callable[[Path], None]
EASY = {"id": "EASY", "metric": "accuracy", "at_least": 0.01, "over": "pooled"}
MODEL = """
import numpy as np
def answer(images):
    answers = np.full((len(images), 3), 1 / 4)
    answers[:, 0] = 1 / 2
    return answers
"""
BREAKS_ON_GREY = """
import numpy as np
def answer(images):
    if np.ptp(images, axis=3).max() < 8 and images.std() > 1:
        raise RuntimeError("the lamp <b> is out")
    return np.full((len(images), 3), 1 / 3)
"""


def call(*words: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; errors come out as `main` would print them."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, RoadworthyError):
        return result.exception.exit_code, result.stdout, f"error: {result.exception}"
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def written(folder: Path, criteria: Any, name: str = "c.yaml") -> Path:
    (folder / name).write_text(yaml.safe_dump(criteria))
    return folder / name


def run_study(folder: Path, criteria: Any, model: str = MODEL) -> tuple[int, str, str]:
    """Run a study of twelve images and a model that takes all of them for the first class, into folder/run."""
    (folder / "model.py").write_text(model)
    grey = {"name": "grey", "levels": {1: {"factor": 0.1}, 5: {"factor": 1.0}}}
    asked = study(
        models={"m": {"callable": "model.py:answer", "num_classes": 3, "size": [8, 8]}},
        protocols={"classification": {"shifts": [grey]}},
        criteria=criteria,
    )
    options = ("--out", folder / "run", "--trust", "--accept-chance", "--workers", 1)
    return call("run", written(folder, asked, "study.yaml"), *options)


def bytes_of(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def history(run: Path) -> list[tuple[str, str]]:
    return [(entry["made"], entry["status"]) for entry in json.loads((run / "verdicts.json").read_text())]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that fails its study's criterion."""
    folder = fill(tmp_path_factory.mktemp("judged"))
    code, out, said = run_study(folder, [HARD])
    assert code == 1, (out, said)
    return folder / "run"


@pytest.fixture(scope="module")
def noted(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, judged by other criteria since."""
    run = Path(shutil.copytree(finished, tmp_path_factory.mktemp("noted") / "run"))
    assert call("verdict", run, "--criteria", written(run.parent, [EASY]))[0] == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def criterion_metrics() -> Iterator[str]:
    """Every metric that a criterion can name, of every protocol."""
    yield from metric_names(Classification.metrics)
    yield from (metric.name for protocol in (OutOfDistribution, OdTest, Dependability) for metric in protocol.metrics)
    yield "auroc_discounted"


def test_every_metric_of_a_criterion_has_a_range() -> None:
    for name in criterion_metrics():
        low, high = find_metric(name).limits(num_classes=3)
        assert math.isfinite(low), name
        assert low < high, name
    assert find_metric("accuracy_drop").limits(3) == find_metric("confidence_loss").limits(3) == (-1, 1)
    assert find_metric("brier_mean_drop").limits(4) == (-0.5, 0.5)
    dear = OdTest().metrics_of(OdTest.settings(prior=0.5, cost=5))
    assert find_metric("expected_cost", dear).limits(2) == (0, 3)
    assert find_metric("neuron_activation_4", Dependability().metrics_of(Dependability.settings(activation_k=[4])))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"metric": "accuracy_drop", "at_most": 5}, "at_most 5 .* accuracy_drop, which is -1 to 1: did you mean 0.05"),
        ({"metric": "accuracy", "at_least": 95}, "at_least 95 .* accuracy, which is 0 to 1: did you mean 0.95"),
        ({"metric": "accuracy", "at_least": -0.5}, "at_least -0.5 .* accuracy, which is 0 to 1: give a value inside"),
        ({"metric": "brier_mean", "at_most": 1.5}, "brier_mean, which is 0 to 0.666667: did you mean 0.015"),
        ({"metric": "brier_mean", "at_most": 0.7}, "brier_mean, which is 0 to 0.666667: give a value inside it"),
        ({"metric": "nll", "at_most": 28}, "nll, which is 0 to 27.631: give a value inside it"),
        ({"metric": "accuracy", "at_least": True}, "at_least: give a number, not true"),
    ],
)
def test_a_threshold_outside_the_range_is_refused_before_and_after_a_run(
    finished: Path, tmp_path: Path, asked: dict[str, Any], says: str
) -> None:
    before = bytes_of(finished)
    code, _, said = call("verdict", finished, "--criteria", written(tmp_path, [{"id": "A", **asked}]))
    assert code == 2
    assert re.search(says, said), said
    assert "\n" not in said
    assert bytes_of(finished) == before
    code, _, again = run_study(fill(tmp_path), [{"id": "A", **asked}])
    assert code == 2
    assert re.search(says, again), again
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"at_least": 0}, "at_least 0 cannot fail: no accuracy is below 0"),
        ({"at_most": 1}, "at_most 1 cannot fail: no accuracy is above 1"),
        (
            {"at_least": 1},
            "at_least 1 cannot pass: with finitely many objects the lower bound of accuracy stays below 1",
        ),
        ({"at_most": 0}, "at_most 0 cannot pass: with finitely many objects the upper bound of accuracy stays above 0"),
        ({"metric": "accuracy_drop", "at_most": 1}, "at_most 1 cannot fail: no accuracy_drop is above 1"),
        ({"at_most": 0.9}, "accepts the worse models, since a higher accuracy is better: did you mean at_least?"),
        ({"at_least": 0.01}, ""),
        ({"metric": "auroc", "at_least": 1}, ""),
    ],
)
def test_a_threshold_that_cannot_decide_is_said(
    finished: Path, tmp_path: Path, asked: dict[str, Any], says: str
) -> None:
    criterion = {"id": "A", "metric": "accuracy", "over": "pooled", **asked}
    verdict = rw.open_run(finished).verdict([criterion])
    assert verdict.to_json()["criteria"][0]["remark"].endswith(says)
    assert bool(verdict.to_json()["criteria"][0]["remark"]) == bool(says)
    if "cannot" in says:
        assert verdict.status not in ("fail" if "fail" in says else "pass", "none")


def test_what_cannot_decide_stands_on_standard_error_and_in_the_report(run: Path, tmp_path: Path) -> None:
    asked = written(tmp_path, [EASY | {"at_least": 0}])
    code, out, said = call("verdict", run, "--criteria", asked, "--replace")
    assert code == 0
    assert said.startswith("criterion EASY: at_least 0 cannot fail: no accuracy is below 0\n")
    assert "cannot fail" not in out
    assert "Note: at_least 0 cannot fail: no accuracy is below 0." in (run / "report.html").read_text()
    code, _, said = call("run", run / "study.yaml", "--dry-run", "--trust", "--accept-chance")
    assert code == 0
    assert "criterion" not in said


def test_judging_by_other_criteria_changes_nothing_but_the_history(run: Path, tmp_path: Path) -> None:
    before = bytes_of(run)
    code, out, said = call("verdict", run, "--criteria", written(tmp_path, [EASY]))
    assert (code, out.splitlines()[-1]) == (0, "verdict: pass")
    assert "the run's own verdict and criteria stay as they were" in said
    after = bytes_of(run)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"verdicts.json", "report.html", "run.json"}
    assert json.loads(after["run.json"])["criteria"][0]["id"] == "HARD"
    assert history(run) == [("study", "fail"), ("judged", "pass")]
    page = after["report.html"].decode()
    assert 'class="badge fail"' in page
    assert "are not those that the study was run with" not in page
    assert "EASY: accuracy at least 0.01" in page, "the history is listed"
    assert f"by other criteria, once, <code>{tmp_path / 'c.yaml'}</code>" in page
    assert re.search(r">By criteria of the study, \d{4}-\d\d-\d\d \d\d:\d\d UTC\.<", page)
    assert call("verdict", run)[0] == 1
    assert call("verdict", run, "--criteria", tmp_path / "c.yaml")[0] == 0
    assert bytes_of(run) == after, "the same judgement again is no news"
    assert call("verify", run)[0] == 0


def test_replacing_a_verdict_is_asked_for_and_leaves_a_trace(run: Path, tmp_path: Path) -> None:
    assert "name them with --criteria" in call("verdict", run, "--replace")[2]
    easy = written(tmp_path, [EASY])
    assert call("verdict", run, "--criteria", easy, "--replace")[0] == 0
    assert json.loads((run / "verdict.json").read_text())["status"] == "pass"
    assert history(run) == [("study", "fail"), ("replaced", "pass")]
    page = (run / "report.html").read_text()
    assert page.count("are not those that the study was run with") == 1
    assert "HARD: accuracy at least 0.95" in page
    assert re.search(r">By c\.yaml, \d{4}-\d\d-\d\d \d\d:\d\d UTC\.<", page)
    code, _, said = call("verdict", run)
    assert code == 0
    assert "not the criteria that the study was run with" in said
    assert call("verify", run)[0] == 0
    hard = written(tmp_path, [HARD])
    assert call("verdict", run, "--criteria", hard, "--replace")[0] == 1
    assert "are not those that the study was run with" not in (run / "report.html").read_text()
    assert history(run) == [("study", "fail"), ("replaced", "pass"), ("replaced", "fail")]


def test_an_entry_without_a_criteria_file_keeps_its_hash_and_one_with_it_seals_it() -> None:
    entry = make_entry({"status": "none"}, [], "study", "2026-03-01T12:30:00+00:00")
    later = {"sha256", "criteria_file", "other_code", "decision", "subject", "lost"}
    before = digest([entry.model_dump(exclude=later), ""])
    assert entry.sealed("").sha256 == before, "as versions that noted no file have stored it"
    named = entry.model_copy(update={"criteria_file": "a.yaml"})
    other = entry.model_copy(update={"criteria_file": "b.yaml"})
    marked = entry.model_copy(update={"other_code": ["m.py"]})
    assert len({variant.sealed("").sha256 for variant in (entry, named, other, marked)}) == 4


def test_a_rerun_with_edited_criteria_keeps_the_earlier_verdict(tmp_path: Path) -> None:
    fill(tmp_path)
    assert run_study(tmp_path, [HARD])[0] == 1
    assert run_study(tmp_path, [HARD])[0] == 1
    assert history(tmp_path / "run") == [("study", "fail")], "nothing new came out"
    assert run_study(tmp_path, [EASY])[0] == 0
    assert history(tmp_path / "run") == [("study", "fail"), ("study", "pass")]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "HARD: accuracy at least 0.95" in page
    assert "are not those that the study was run with" not in page, "the study was run with these"
    assert call("verify", tmp_path / "run")[0] == 0


def test_a_changed_test_set_is_told_apart_and_said(tmp_path: Path) -> None:
    fill(tmp_path)
    code, _, said = run_study(tmp_path, None)
    assert (code, "since the verdict" in said) == (0, False)
    images, labels = squares()
    np.savez(tmp_path / "data.npz", **arrays(images=images[2:], labels=labels[2:]))
    code, _, said = run_study(tmp_path, None)
    changed = "test data: 10 images of 10 objects, before 12 images of 12 objects"
    assert code == 0
    assert re.search(rf"since the verdict of 20.* \(none\): {changed}", said), said
    entries = read_history(tmp_path / "run")
    assert len({entry.verdict_sha256 for entry in entries}) == 1 < len(entries), "the verdicts themselves are equal"
    subjects = [entry.subject for entry in entries if entry.subject]
    assert [subject.data["test data"].images for subject in subjects] == [12, 10]
    assert {(subject.seed, *subject.models) for subject in subjects} == {(0, "m")}
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"Since the verdict of {entries[0].date} (none): {changed}" in page
    assert page.count("Not the first verdict of this folder.") == 1
    assert changed in call("verdict", tmp_path / "run")[2]
    assert call("verify", tmp_path / "run")[0] == 0
    assert run_study(tmp_path, None)[0] == 0
    assert len(read_history(tmp_path / "run")) == 2, "nothing new came out"


def test_what_is_other_between_two_verdicts_is_named() -> None:
    signs, cars = ImageSet(fingerprint="a", images=40, objects=8), ImageSet(fingerprint="b", images=1, objects=1)
    first = Subject(seed=0, data={"test data": signs, "recorded set rain": cars}, models={"m": "x", "n": "y"})
    second = Subject(seed=1, data={"test data": signs.model_copy(update={"fingerprint": "c"})}, models={"m": "z"})
    entries = [make_entry({"status": "none"}, [], "study", "d", subject=subject) for subject in (first, second)]
    history = with_entry(with_entry([], entries[0]), entries[1])
    assert changes_since(history, history[1]) == [
        "test data: other content, labels, names or order, as before 40 images of 8 objects",
        "recorded set rain: left out",
        "model m: another one",
        "model n: left out",
        "seed 1, before 0",
    ]
    criteria = [Criterion.model_validate(EASY).model_dump()]
    history = with_entry(history, make_entry({"status": "pass"}, criteria, "judged", "d"))
    assert changes_since(history, history[2]) == ["other criteria", "data, models and seed are not known of both"]
    assert changes_since(history, history[0]) == []


def run_again(finished: Path, run: Path, *more: str) -> str:
    code, _, said = call(
        "run", finished.parent / "study.yaml", "--out", run, "--trust", "--accept-chance", "--workers", 1, *more
    )
    assert code == 1, said
    return said


def without_the_file(run: Path) -> None:
    (run / "verdicts.json").unlink()


@pytest.mark.parametrize(
    ("change", "left", "says"),
    [
        (without_the_file, ["study", "lost"], "verdicts.json was removed, so that verdicts before"),
        (
            lambda run: (run / "verdicts.json").write_text("{"),
            ["lost", "study"],
            "verdicts.json or run.json was changed or damaged",
        ),
        (
            lambda run: write_json(run / "verdicts.json", json.loads((run / "verdicts.json").read_text())[:1]),
            ["study", "lost"],
            "verdicts.json or run.json was changed or damaged",
        ),
    ],
)
def test_a_gap_in_the_history_is_stated_by_the_next_entry(
    noted: Path, finished: Path, tmp_path: Path, change: Change, left: list[str], says: str
) -> None:
    run = Path(shutil.copytree(noted, tmp_path / "run"))
    change(run)
    with pytest.warns(UserWarning, match="the history of verdicts is not whole"):
        said = run_again(finished, run)
    assert says in said
    assert [entry.made for entry in read_history(run)] == left
    assert "<b>The history is not whole:</b>" in (run / "report.html").read_text()
    assert says in call("verdict", run)[2], "it is not forgotten"
    assert call("verify", run)[0] == 0
    run_again(finished, run)
    assert [entry.made for entry in read_history(run)] == left, "a gap is stated once"


def test_a_run_made_anew_keeps_its_history(noted: Path, finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(noted, tmp_path / "run"))
    before = read_history(run)
    assert [entry.made for entry in before] == ["study", "judged"]
    run_again(finished, run, "--fresh")
    assert read_history(run) == before
    assert call("verify", run)[0] == 0


def edited(name: str, change: Callable[[Any], None]) -> Change:
    """Change a JSON file of a run, and its hash in run.json with it, or the seal of that."""

    def edit(run: Path) -> None:
        content = json.loads((run / name).read_text())
        seal = content.pop("digest", None) if name == "run.json" else None
        change(content)
        write_json(run / name, content if seal is None else sealed(content))
        if name != "run.json":
            opened = rw.open_run(run)
            opened.folder.update_record([name])

    return edit


def renamed_data(run: Path) -> None:
    """An own verdict that names another test set, with whole seals."""
    before, sealed_again = "", []
    for entry in read_history(run):
        assert entry.subject
        other = entry.model_copy(update={"subject": entry.subject.model_copy(update={"seed": 7})}).sealed(before)
        before = other.sha256
        sealed_again.append(other.dump())
    write_json(run / "verdicts.json", sealed_again)
    rw.open_run(run).folder.update_record(["verdicts.json"])


def without_history(run: Path) -> None:
    (run / "verdicts.json").unlink()
    edited("run.json", lambda record: record["files"].pop("verdicts.json"))(run)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (edited("verdicts.json", lambda entries: entries[0].update(status="pass")), "entry 1 was changed"),
        (
            edited("verdicts.json", lambda entries: entries[1]["criteria"][0].update(at_least=0.9)),
            "entry 2 was changed",
        ),
        (edited("verdicts.json", lambda entries: entries.pop(0)), "entry 1 was changed"),
        (edited("verdict.json", lambda verdict: verdict.update(status="pass")), "verdict.json is not the run's own"),
        (edited("run.json", lambda record: record["criteria"][0].update(at_least=0.1)), "the criteria of run.json"),
        (renamed_data, "data, models or seed of run.json are not those of the run's own verdict"),
        (without_history, "verdicts.json is missing"),
        (lambda run: (run / "verdicts.json").write_text("[]"), "verdicts.json was changed"),
    ],
)
def test_verify_finds_a_verdict_that_was_changed_without_its_history(
    noted: Path, tmp_path: Path, change: Change, says: str
) -> None:
    run = Path(shutil.copytree(noted, tmp_path / "run"))
    change(run)
    code, out, _ = call("verify", run)
    assert code == 1
    assert says in out


def test_a_changed_history_is_not_blessed_by_a_further_verdict(noted: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(noted, tmp_path / "run"))
    entries = json.loads((run / "verdicts.json").read_text())
    (run / "verdicts.json").write_text(json.dumps(entries[:1]))
    code, _, said = call("verdict", run, "--criteria", written(tmp_path, [EASY | {"at_least": 0.02}]))
    assert code == 0
    assert "not recorded" in said
    code, _, said = call("verdict", run, "--criteria", tmp_path / "c.yaml", "--replace")
    assert (code, "verdicts.json was changed" in said) == (2, True)
    assert call("verify", run)[0] == 1


def test_a_run_that_cannot_be_written_is_judged_and_says_that_it_is_not_recorded(run: Path, tmp_path: Path) -> None:
    easy = written(tmp_path, [EASY])
    with (run / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = bytes_of(run)
        code, out, said = call("verdict", run, "--criteria", easy)
        assert (code, out.splitlines()[-1]) == (0, "verdict: pass")
        assert said.startswith("this verdict is not recorded in the history of the run: another process is writing")
        assert call("verdict", run, "--criteria", easy, "--replace")[0] == 2
        assert bytes_of(run) == before
    (run / ".lock").unlink()
    (run / ".lock").mkdir()
    assert "not recorded in the history of the run: cannot write" in call("verdict", run, "--criteria", easy)[2]


def test_a_run_without_a_history_gets_one_with_its_first_verdict_in_it(tmp_path: Path) -> None:
    """The golden run is of a version that kept none; so is a run of that version whose verdict was replaced."""
    old = Path(shutil.copytree(Path(__file__).parent / "golden" / "run", tmp_path / "old"))
    stored = json.loads((old / "verdict.json").read_text())["status"]
    assert call("verify", old)[0] == 0
    call("verdict", old, "--criteria", written(tmp_path, [EASY]))
    assert history(old) == [("study", stored), ("judged", "pass")]
    assert call("verify", old)[0] == 0
    swapped = Path(shutil.copytree(Path(__file__).parent / "golden" / "run", tmp_path / "swapped"))
    edited("verdict.json", lambda verdict: verdict["criteria"].pop())(swapped)
    edited("run.json", lambda record: record["criteria"].pop())(swapped)
    assert call("report", swapped)[0] == 0
    assert "are not those that the study was run with" in (swapped / "report.html").read_text()


@pytest.mark.parametrize("criteria", [None, [EASY | {"where": {"shift": "none"}}]])
def test_a_run_with_a_failed_case_is_never_a_pass(tmp_path: Path, criteria: Any) -> None:
    code, out, said = run_study(fill(tmp_path), criteria, BREAKS_ON_GREY)
    run = tmp_path / "run"
    assert code == 3
    assert out.splitlines()[0].endswith("1 case of 3 failed, which is never a pass.")
    assert re.search("^failed: m at grey 5: .*the lamp <b> is out", said, re.M)
    stored = json.loads((run / "verdict.json").read_text())
    assert (stored["status"], [each["name"] for each in stored["failed"]]) == ("inconclusive", ["m at grey 5"])
    code, out, said = call("verdict", run, "--junit", tmp_path / "j.xml")
    assert code == 3
    assert out.splitlines()[-1].startswith("verdict: inconclusive (")
    assert "1 case failed, which is never a pass" in out
    assert "failed: m at grey 5" in said
    code, out, said = call("run", tmp_path / "study.yaml", "--out", run, "--trust", "--accept-chance", "--quiet")
    assert (code, out, said.splitlines()[0][:19]) == (3, "", "failed: m at grey 5")
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert int(suite.get("errors") or 0) >= 1
    assert suite[-1].get("name") == "failed: m at grey 5"
    page = (run / "report.html").read_text()
    assert 'class="badge inconclusive"' in page
    assert "1 case of 3 failed" in page
    assert call("verify", run)[0] == 0


def test_a_criterion_that_fails_fails_a_run_with_a_failed_case(tmp_path: Path) -> None:
    code, out, _ = run_study(fill(tmp_path), [HARD | {"where": {"shift": "none"}}], BREAKS_ON_GREY)
    assert code == 1
    assert out.splitlines()[0] == "Verdict: fail. The one criterion fails. 1 case of 3 failed."


def test_an_od_test_keeps_its_history_and_never_passes_with_a_failed_monitor(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "source": {"builtin": "signs", "n": 280},
        "outliers": {"uniform": "uniform_noise", "normal": "normal_noise"},
        "size": 32,
        "limit": 14,
        "workers": 1,
    }
    easy = {"id": "EASY", "metric": "accuracy", "where": {"monitor": "msp"}, "at_least": 0.001}
    model = str(save_onnx(tmp_path / "m.onnx"))
    made = rw.od_test(model, monitors=["msp"], out=tmp_path / "run", criteria=[easy], **asked)
    run = made.path
    assert history(run) == [("study", "pass")]
    code, _, said = call(
        "verdict", run, "--criteria", written(tmp_path, [easy | {"metric": "expected_cost", "at_least": 0.99}])
    )
    assert code in (1, 3)
    assert "accepts the worse models" in said
    assert call("verify", run)[0] == 0
    cost = {"id": "COST", "metric": "expected_cost", "at_most": 5}
    code, _, said = call("verdict", run, "--criteria", written(tmp_path, [cost]))
    assert (code, said.endswith("expected_cost, which is 0 to 1: did you mean 0.05?")) == (2, True)
    rw.od_test(model, monitors=["msp", Broken()], out=run, criteria=[easy], **asked)
    code, _, said = call("verdict", run)
    assert code == 3
    assert "failed: monitor broken: no <b>luck</b> today" in said
    assert [made for made, _ in history(run)] == ["study", "judged", "study"]
    assert history(run)[2] == ("study", "inconclusive")
    page = (run / "report.html").read_text()
    assert 'class="badge inconclusive"' in page
    assert "1 monitor failed, which is never a pass." in page
    assert call("verify", run)[0] == 0


@pytest.mark.parametrize("left", ["no record", "no end"])
@pytest.mark.parametrize("command", ["report", "verdict"])
def test_a_run_that_was_stopped_is_called_that(run: Path, left: str, command: str) -> None:
    if left == "no record":
        (run / "run.json").unlink()
    else:
        edited("run.json", lambda record: record.pop("finished"))(run)
    before = bytes_of(run)
    code, _, said = call(command, run)
    assert code == 2
    assert said.endswith("was stopped before it finished; run the same command again to go on")
    assert bytes_of(run) == before
    with (run / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is still being written by another process" in call(command, run)[2]


def test_a_folder_that_never_was_a_run_is_not_called_stopped(tmp_path: Path) -> None:
    assert "is no run" in call("report", tmp_path)[2]
