"""The same bits every time: workers, order, a kill and a resume never change a result."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest

import roadworthy as rw
from commands import snapshot
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.roles import OUTLIERS, Buildable, Model
from roadworthy.core.types import Artifact, Batch, Prediction
from roadworthy.engine import local
from roadworthy.engine.artifacts import ensure_artifact
from roadworthy.engine.estimating import estimate_time
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.plan import PlannedStimulus
from roadworthy.engine.readouts import read_case
from roadworthy.models.signals import Signals
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.outliers.base import Painted
from roadworthy.study import parse_study
from stand_ins import Counting
from tiny import contents, import_text, study, write_npz, write_study


def run(folder: Path, out: str, workers: int = 1, models: list[Model] | None = None, **changes: object) -> rw.Run:
    named = {model.name: model for model in models or []}
    if named:
        changes["models"] = dict.fromkeys(named, "<in memory>")
    prepared = prepare(parse_study(study(folder, **changes), "study"), models=named, accept_chance=True)
    return execute(prepared, folder / out, workers=workers, progress=no_progress)


def test_workers_and_order_never_change_a_result(tmp_path: Path) -> None:
    data = {"test": str(write_npz(tmp_path / "signs.npz", 1100))}
    one = run(tmp_path, "one", workers=1, data=data)
    two = run(tmp_path, "two", workers=2, data=data)
    turned = {"classification": {"shifts": ["rotation", "fog", "noise"], "levels": [5, 1]}}
    other = run(tmp_path, "other", workers=2, data=data, protocols=turned)
    assert len(contents(one.path)) > 30
    assert contents(one.path) == contents(two.path) == contents(other.path)


def test_answers_do_not_depend_on_how_many_images_there_are(tmp_path: Path) -> None:
    few, many = run(tmp_path, "few", n=70), run(tmp_path, "many", n=150)

    def answers(opened: rw.Run) -> dict[str, float]:
        node, case = next(own for own in opened.record.cases.items() if own[1].stimulus.name == "none")
        stored = read_case(opened.path / case.folder, node)
        return dict(zip(stored.ids, stored.answers.confidence.tolist(), strict=True))

    a, b = answers(few), answers(many)
    assert a == {image: b[image] for image in a}


def run_study_alone(source: str, out: str) -> None:
    """Run a study in a process of its own, which nobody else waits for."""
    rw.run_study(source, out=out, progress=no_progress)


def test_killed_at_random_moments_and_resumed(tmp_path: Path) -> None:
    """SIGKILL at least five times, at moments drawn from the whole run; then the bits of an undisturbed run."""
    source = write_study(tmp_path, data={"test": str(write_npz(tmp_path / "signs.npz", 2100))})
    moments = random.Random(4)
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["roadworthy.api"])
    target = tmp_path / "killed"

    def started(out: Path) -> ForkServerProcess:
        process = server.Process(target=run_study_alone, args=(str(source), str(out)))
        process.start()
        return process

    calm = started(tmp_path / "calm")
    calm.join()
    assert calm.exitcode == 0
    kills = 0
    for _ in range(6):
        stored = len(list(target.glob("readouts/*/part-*")))
        process = started(target)
        while process.is_alive() and len(list(target.glob("readouts/*/part-*"))) == stored < 21:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.03))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert kills >= 5
    last = started(target)
    last.join()
    assert last.exitcode == 0
    assert contents(target) == contents(tmp_path / "calm")
    assert rw.open_run(target).verify() == []


def test_an_edited_study_reruns_only_what_changed(tmp_path: Path) -> None:
    model = Counting()
    first = run(tmp_path, "run", models=[model])
    stimuli = {key.rsplit("-", 1)[0] for key, _ in model.shown}
    assert stimuli == {"none-0-r0", *(f"{s}-{level}-r0" for s in ("noise", "fog", "rotation") for level in (1, 5))}
    kept = {p: p.stat().st_mtime_ns for p in first.path.glob("readouts/**/part-*")}
    model.shown.clear()
    edited = {"classification": {"shifts": ["noise", "fog", "blur"], "levels": [1, 5]}}
    second = run(tmp_path, "run", models=[model], protocols=edited)
    prepared_and_run = {key.rsplit("-", 1)[0] for key, _ in model.shown}
    assert prepared_and_run == {"none-0-r0", "blur-1-r0", "blur-5-r0"}
    rehearsed = [key for key, _ in model.shown if key.startswith("none")]
    assert len(rehearsed) == 4, "one batch twice, and the other two, since the model is no better than chance"
    assert all(path.stat().st_mtime_ns == moment for path, moment in kept.items())
    assert set(second.tables["classification"]["shift"]) == {"none", "noise", "fog", "blur"}
    assert second.verify() == []
    assert (
        contents(second.path)["tables/classification.csv"]
        == contents(run(tmp_path, "fresh", models=[Counting()], protocols=edited).path)["tables/classification.csv"]
    )


DIM = """
from dataclasses import dataclass
import numpy as np
import roadworthy as rw

@dataclass(frozen=True, kw_only=True)
class Dim(rw.Shift):
    factor: float
    name = "dim"
    LEVELS = ({"factor": 0.5},)

    def __call__(self, batch, streams):
        return batch.with_images((batch.images * rest(self.factor)).astype(np.uint8))

def rest(factor):
    return 1 - factor
"""


def test_a_shift_of_ones_own_that_was_edited_is_shown_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undisturbed data is shown in every run: one batch to see that the model answers."""
    protocols, confidence = {"classification": {"shifts": ["noise", "dim"], "levels": [1]}}, []
    for source, expected in (
        (DIM, {"none", "noise", "dim"}),
        (DIM, {"none"}),
        (DIM.replace("1 -", "1.2 -"), {"dim", "none"}),
    ):
        monkeypatch.setitem(rw.SHIFTS._members, "dim", import_text(source, tmp_path / "dimming.py").Dim)
        model = Counting()
        found = run(tmp_path, "run", models=[model], protocols=protocols)
        assert {key.partition("-")[0] for key, _ in model.shown} == expected
        rows = found.tables["classification"].query("shift == 'dim' and metric == 'mean_confidence'")
        confidence.append(float(rows["value"].iloc[0]))
        assert found.verify() == []
    first, again, edited = confidence
    assert first == again != edited


def test_an_attempt_in_which_every_case_fails_leaves_a_finished_run_as_it_was(tmp_path: Path) -> None:
    class Tired(Counting):
        def predict(self, batch: Batch) -> Prediction:
            if len(self.shown) == 4:  # after the rehearsal
                raise RuntimeError("tired")
            return super().predict(batch)

    finished = run(tmp_path, "run", models=[Counting()])
    before = {path: path.read_bytes() for path in finished.path.rglob("*") if path.is_file()}
    with pytest.raises(ModelError, match=r"every case failed; the first: .*tired"):
        run(tmp_path, "run", models=[Tired("tired")])
    assert {path: path.read_bytes() for path in before if path.is_file()} == before
    assert finished.verify() == []
    with pytest.raises(ModelError, match="every case failed"):
        run(tmp_path, "other", models=[Tired("tired")])
    record = json.loads((tmp_path / "other/run.json").read_text())
    asked = [case["status"] for case in record["cases"].values() if case["system"] == "tired"]
    assert {*asked} == {"failed"}, "what reads the conditions of the data asks no model"


def test_a_stimulus_is_made_once_for_all_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = PlannedStimulus.show

    def counted(self: PlannedStimulus, batch: Batch) -> Batch:
        made.append(self.stimulus.key)
        return original(self, batch)

    monkeypatch.setattr(PlannedStimulus, "show", counted)
    prepared = prepare(
        parse_study(study(tmp_path, models={"a": "<>", "b": "<>", "c": "<>"}), "study"),
        models={name: Counting(name) for name in "abc"},
        accept_chance=True,
    )
    with RunFolder(tmp_path / "run").locked():
        local.LocalExecutor(workers=2).run(prepared.plan.graph(), RunFolder(tmp_path / "run"))
    assert len(made) == len(set(made)) == 7
    assert len(prepared.plan.cases) == 22, "seven stimuli for three models, and the conditions of the data"


def test_a_failing_case_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    good, bad = Counting("good"), Counting("bad", fails_on="fog-5")
    opened = run(tmp_path, "run", models=[good, bad])
    assert [failed.name for failed in opened.failures] == ["bad at fog 5"]
    assert opened.failures[0].reason == "model bad raised RuntimeError: out of luck"
    table = opened.tables["classification"].query("metric == 'accuracy'").set_index(["model", "shift", "level"])
    assert np.isnan(table.loc[("bad", "fog", 5), "value"])
    assert "out of luck" in table.loc[("bad", "fog", 5), "reason"]
    assert not table.drop(("bad", "fog", 5))["value"].isna().any()
    assert "out of luck" in (opened.path / "report.html").read_text()
    assert opened.verify() == []
    bad.fails_on = ""
    assert run(tmp_path, "run", models=[good, bad]).failures == [], "a failed case is tried again"


def test_killed_while_results_are_replaced_a_run_is_not_called_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: RunFolder) -> None:
        clear(self)
        raise KeyboardInterrupt

    opened, clear = run(tmp_path, "run", models=[Counting()]), RunFolder.clear_results
    monkeypatch.setattr(RunFolder, "clear_results", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "run", models=[Counting()], protocols=FOG)
    monkeypatch.undo()
    assert not opened.tables
    with pytest.raises(InputError, match="was stopped before it finished"):
        opened.report()
    again = run(tmp_path, "run", models=[Counting()], protocols=FOG)
    assert again.verify() == []
    assert set(again.tables["classification"]["shift"]) == {"none", "fog"}


def test_validation_images_that_are_trained_on_are_not_called_test_images(tmp_path: Path) -> None:
    paths = {role: write_npz(tmp_path / f"{role}.npz", 140, seed) for seed, role in enumerate(("train", "validation"))}
    train, validation = (dict(np.load(path)) for path in paths.values())
    validation["images"][5] = train["images"][9]
    np.savez(paths["validation"], **validation)
    data = {"test": {"builtin": "signs", "n": 70}, **{role: str(path) for role, path in paths.items()}}
    with pytest.warns(
        UserWarning,
        match="1 of 140 images of validation data validation are images of training data train too, such as 5",
    ):
        opened = run(tmp_path, "run", data=data, protocols=FOG)
    noted = opened.record.first.data
    assert (noted.seen, noted.validation_seen) == ([], ["5"])
    report = (opened.path / "report.html").read_text()
    assert "1 validation image is a training image too, such as 5." in report
    assert "test image is a training" not in report


def test_a_model_that_never_answers_right_leaves_nothing_on_disk(tmp_path: Path) -> None:
    class Short(Counting):
        def predict(self, batch: Batch) -> Prediction:
            return super().predict(batch).rows(len(batch) - 1)

    with pytest.raises(ModelError, match="answered"):
        run(tmp_path, "run", models=[Short()])
    assert not (tmp_path / "run").exists()


FOG = {"classification": {"shifts": ["fog"], "levels": [5]}}


class Trained(Counting, Buildable):
    """A model that is built first, and whose code raises there, or where it is read."""

    activity, work = "training", 1

    def __init__(self, name: str, error: BaseException, where: str) -> None:
        super().__init__(name)
        self.error, self.where, self.is_built = error, where, False

    @property
    def recipe(self) -> Artifact:
        return Artifact("test", {}, (self.name,))

    @property
    def loaded(self) -> bool:
        return self.is_built

    def build(self, workshop: Path, progress: object, store: object = None) -> dict[str, Any]:
        if self.where == "build":
            raise self.error
        (workshop / "weights").write_text("1")
        return {}

    def load(self, home: Path) -> None:
        self.is_built = True

    def read(self, signals: Any) -> Any:
        if self.where == "read":
            raise self.error
        if self.where == "rows":
            return {"boxes": np.zeros((1, 4), np.float32), **super().read(signals)}
        return super().read(signals)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("build", "training bad raised RuntimeError: out of luck"),
        ("read", "bad raised RuntimeError: out of luck"),
        ("rows", "bad raised ArrowInvalid: "),
    ],
)
def test_code_of_others_that_raises_costs_its_own_node_alone(tmp_path: Path, where: str, reason: str) -> None:
    bad = Trained("bad", RuntimeError("out of luck\nsecond line"), where)
    opened = run(tmp_path, "run", models=[bad, Counting("good")], protocols=FOG)
    table = opened.tables["classification"].groupby("model")["value"]
    assert table.count()["bad"] == 0 < table.count()["good"]
    assert {case.reason.startswith(reason) for case in opened.record.cases.values() if case.system == "bad"} == {True}
    assert opened.verify() == []


@pytest.mark.parametrize("where", ["build", "read"])
@pytest.mark.parametrize(
    ("error", "stops_with"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), pytest.raises(InputError, match="run: No space left")),
        (MemoryError(), pytest.raises(MemoryError)),
        (KeyboardInterrupt(), pytest.raises(KeyboardInterrupt)),
    ],
    ids=["full disk", "no memory", "Ctrl-C"],
)
def test_what_the_machine_refuses_stops_the_run(
    tmp_path: Path, where: str, error: BaseException, stops_with: Any
) -> None:
    with stops_with:
        run(tmp_path, "run", models=[Trained("bad", error, where)], protocols=FOG)


@dataclass(frozen=True, kw_only=True)
class Torn(Painted):
    """Outliers of one's own that cannot be made of every image."""

    name: ClassVar[str] = "torn"

    def paint(self, source: Any, rows: Any, streams: Any) -> Any:
        if 66 in rows:
            raise ZeroDivisionError("nothing to paint")
        return source.batch(rows.tolist()).images


def test_images_that_cannot_be_made_or_read_cost_their_own_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OUTLIERS._members, "torn", Torn)
    for place in range(3):
        (tmp_path / "lost" / "a").mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / "lost" / "a" / f"{place}.png"), np.full((24, 24, 3), 40 * place, np.uint8))
    ood = {"sets": ["torn", "lost", "uniform_noise"], "transformed": []}
    asked = study(tmp_path, outliers={"lost": str(tmp_path / "lost")}, protocols={"ood": ood})
    prepared = prepare(parse_study(asked, "study"), progress=no_progress)
    (tmp_path / "lost" / "a" / "1.png").unlink()
    opened = execute(prepared, tmp_path / "run", workers=2, progress=no_progress)
    reasons = {case.stimulus.name: case.reason for case in opened.record.cases.values() if case.reason}
    assert reasons["torn"] == "data set torn raised ZeroDivisionError: nothing to paint"
    assert re.search(r"data set lost: image .*1\.png", reasons["lost"])
    assert set(reasons) == {"torn", "lost"}
    assert set(opened.tables["ood"].dropna(subset="value")["ood_set"]) == {"uniform_noise"}
    assert opened.verify() == []


def test_two_writers_are_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.locked(), pytest.raises(InputError, match="another process is writing"), folder.locked():
        pass


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").write_text("years of work")
    with pytest.raises(InputError, match="holds no run"):
        run(tmp_path, "mine", models=[Counting()])
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.doc"]
    (tmp_path / "mine" / "study.yaml").write_text("# mine")
    with pytest.raises(InputError, match="holds no run"):
        run(tmp_path, "mine", models=[Counting()])
    assert (tmp_path / "mine" / "study.yaml").read_text() == "# mine"


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RunFolder, name: str, table: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_table", full)
    with pytest.raises(InputError, match="No space left on device; fix that and run again to resume"):
        run(tmp_path, "run", models=[Counting()])
    monkeypatch.undo()
    assert run(tmp_path, "run", models=[Counting()]).verify() == []


def test_a_model_that_is_not_concurrent_is_called_by_one_thread_at_a_time(tmp_path: Path) -> None:
    class Fragile(Counting):
        concurrent = False
        inside = 0
        most = 0

        def predict(self, batch: Batch) -> Prediction:
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.002)
            try:
                return super().predict(batch)
            finally:
                self.inside -= 1

    model = Fragile()
    run(tmp_path, "run", workers=4, models=[model])
    assert model.most == 1
    assert threading.active_count() < 50


def test_verify_finds_every_kind_of_tampering(tmp_path: Path) -> None:
    opened = run(tmp_path, "run", models=[Counting()])
    assert opened.verify() == []
    part = next(opened.path.glob("readouts/**/part-*"))
    content = part.read_bytes()
    part.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert opened.verify() == [f"{part.relative_to(opened.path)} was changed"]
    part.unlink()
    assert opened.verify() == [f"{part.relative_to(opened.path)} is missing"]
    part.write_bytes(content)
    (opened.path / "tables" / "extra.csv").write_text("")
    assert opened.verify() == ["tables/extra.csv is not part of the run"]
    (opened.path / "tables" / "extra.csv").unlink()
    table = opened.tables["classification"]
    table.loc[0, "value"] = 0.99
    opened.folder.write_table("classification", table)
    opened.folder.write_record(opened.record)
    assert opened.verify() == ["table classification does not follow from the readouts"]


def test_a_report_never_blesses_what_was_changed(tmp_path: Path) -> None:
    opened = run(tmp_path, "run", models=[Counting()])
    picture = next(opened.path.glob("media/*.png"))
    content = picture.read_bytes()
    picture.write_bytes(content + b"x")
    before = snapshot(opened.path)
    verdict = opened.verdict([{"id": "A", "metric": "accuracy", "at_least": 0.01, "over": "pooled"}])
    for change in (opened.report, lambda: opened.save_verdict(verdict), lambda: opened.note_verdict(verdict)):
        with pytest.raises(InputError, match=f"{picture.name} was changed"):
            change()
    assert snapshot(opened.path) == before
    assert opened.verify() == [f"media/{picture.name} was changed"]
    picture.write_bytes(content)
    opened.save_verdict(verdict)
    assert opened.verify() == []
    assert opened.record.criteria[0]["id"] == "A", "the run's criteria are those of its verdict"


def test_a_damaged_part_is_made_again(tmp_path: Path) -> None:
    before = contents(run(tmp_path, "run", models=[Counting()]).path)
    parts = sorted((tmp_path / "run").glob("readouts/**/part-*"))
    parts[0].write_bytes(b"not parquet")
    parts[1].unlink()
    model = Counting()
    assert contents(run(tmp_path, "run", models=[model]).path) == before
    assert len({key for key, _ in model.shown}) <= 3, "two cases, and one batch to see that the model answers"


def test_a_dry_run_takes_nothing_back(tmp_path: Path) -> None:
    opened = run(tmp_path, "run")
    part = next(opened.path.glob("readouts/**/part-*"))
    part.write_bytes(b"not parquet")
    before = contents(opened.path)
    graph = prepare(parse_study(study(tmp_path), "study")).plan.graph()
    estimate_time(graph, RunFolder(opened.path), workers=1)
    assert contents(opened.path) == before


def test_an_artifact_is_built_once_and_checked(tmp_path: Path) -> None:
    recipe = Artifact("anything", {"width": 3})
    built: list[Path] = []

    def build(folder: Path) -> dict[str, float]:
        built.append(folder)
        (folder / "weights.bin").write_bytes(b"123")
        (folder / "layers").mkdir(exist_ok=True)
        (folder / "layers" / "first.bin").write_bytes(b"456")
        return {"clean_accuracy": 0.5}

    folder = RunFolder(tmp_path)
    home = ensure_artifact(folder, recipe, build)
    assert ensure_artifact(folder, recipe, build) == home
    assert len(built) == 1
    assert json.loads((home / "manifest.json").read_text())["competence"] == {"clean_accuracy": 0.5}
    for count, name in enumerate(("weights.bin", "layers/first.bin", "manifest.json"), 2):
        before = (home / name).read_bytes()
        (home / name).write_bytes(before.replace(b"5", b"4").replace(b"3", b"4"))
        folder.sweep()
        assert ensure_artifact(folder, recipe, build) == home
        assert (len(built), (home / name).read_bytes()) == (count, before), "what was changed is built again"


def test_the_dry_run_estimates_and_writes_nothing(tmp_path: Path) -> None:
    prepared = prepare(parse_study(study(tmp_path), "study"))
    assert 0 < estimate_time(prepared.plan.graph(), RunFolder(tmp_path / "run"), workers=2).total < 60
    assert not (tmp_path / "run").exists()


class Clock:
    """Every look at it is a second later."""

    now = 0.0

    def perf_counter(self) -> float:
        self.now += 1
        return self.now


def test_the_dry_run_times_a_stimulus_once_for_all_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.engine.estimating.time", Clock())
    timed: list[str] = []
    show = PlannedStimulus.show
    monkeypatch.setattr(PlannedStimulus, "show", lambda own, batch: timed.append(own.stimulus.key) or show(own, batch))
    seconds = {}
    for repeats in (1, 20):
        timed.clear()
        protocols = {"classification": {"shifts": ["noise", "fog"], "levels": [1, 5], "repeats": repeats}}
        graph = prepare(parse_study(study(tmp_path, protocols=protocols), "study")).plan.graph()
        timed.clear()
        seconds[repeats] = estimate_time(graph, RunFolder(tmp_path / "run"), workers=1).total
        assert len(timed) == 7, "four disturbances and none, once more to ask the model, and to read the conditions"
    assert seconds[20] > 4 * seconds[1] > 0, "but every repeat counts"


def test_batches_of_one_concurrent_model_are_asked_at_the_same_time() -> None:
    """A lock that all threads share, such as that of a cached property, would break the barrier."""
    both = threading.Barrier(2)

    class Meeting(ToyModel):
        concurrent = True

        def predict(self, batch: Any) -> Any:
            both.wait(timeout=10)
            return super().predict(batch)

    model, batch = Meeting(), toy_data()[0].batch(slice(0, 4))
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda signals: signals.probabilities, [Signals(model, batch, 4) for _ in range(2)]))
    assert np.array_equal(*answers)
