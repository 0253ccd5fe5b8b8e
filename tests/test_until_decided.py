"""Stopping once it is decided: which parts count, what a stopped case shows, and how often it decides wrongly."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import roadworthy as rw
from commands import call, check_sentence
from roadworthy.api import compare_runs, execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction, Stimulus
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.subset import Subset, in_random_order
from roadworthy.data.table import Table
from roadworthy.engine import readouts
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.ledger import Outcome
from roadworthy.engine.local import show
from roadworthy.engine.plan import Bench, Graph, PlannedCase, PlannedStimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import find_metric
from roadworthy.opening import Given
from roadworthy.protocols.changes import SAME_CASES
from roadworthy.protocols.classification import Classification
from roadworthy.protocols.classification.looks import why_no_mean
from roadworthy.protocols.classification.settings import METRICS, Settings
from roadworthy.protocols.shift_choices import ShiftChoice
from roadworthy.study import parse_study
from roadworthy.verdict import Criterion
from tiny import contents, save_onnx, write_npz

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from until_decided import error_rates, measured_saving

N, FRAMES, CLASSES = 640, 4, ("a", "b", "c", "d")
FULL_ACCURACY, FOG_ACCURACY = 0.9, 0.45


def drawn_data(n: int = N, frames: int = FRAMES) -> ArrayDataset:
    """Objects in some frames each, whose class and number are in their id alone."""
    labels = np.arange(n) // frames % len(CLASSES)
    ids = tuple(f"{row}" for row in range(n))
    groups = tuple(f"object {row // frames}" for row in range(n))
    pixels = np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)
    return ArrayDataset(Table(ids=ids, labels=labels, class_names=CLASSES, groups=groups), pixels)


class Knowing(Model):
    """A model that knows the images by their id, and answers a share of them right that depends on the shift."""

    num_classes, concurrent = len(CLASSES), True

    def __init__(self, name: str = "knowing", seed: int = 0, fails_at: str = "") -> None:
        self.name, self.seed, self.fails_at = name, seed, fails_at
        self.asked: list[str] = []

    def fingerprint(self) -> str:
        return f"knowing {self.name} {self.seed}"

    def predict(self, batch: Batch) -> Prediction:
        self.asked += [f"{batch.stimulus} {image_id}" for image_id in batch.ids]
        if self.fails_at in batch.ids:
            raise RuntimeError("out of luck")
        share = FOG_ACCURACY if batch.stimulus.startswith("fog") else FULL_ACCURACY
        luck = [np.random.default_rng([self.seed, int(image_id)]).random() for image_id in batch.ids]
        answered = np.where(np.array(luck) < share, batch.labels, (batch.labels + 1) % len(CLASSES))
        probabilities = np.full((len(batch), len(CLASSES)), 0.1, np.float32)
        probabilities[np.arange(len(batch)), answered] = 0.7
        return Prediction(probabilities)


ACCURATE = {"id": "A", "metric": "accuracy", "at_least": 0.7}
RANKED = {"id": "R", "metric": "auroc", "at_least": 0.4, "where": {"shift": "noise"}}


def decided_run(folder: Path, *, model: Model | None = None, workers: int = 2, n: int = N, **changes: Any) -> rw.Run:
    """A run of the knowing model, until it is decided unless the changes say otherwise."""
    model = model or Knowing()
    content = {
        "data": {"test": "<drawn>"},
        "models": {model.name: "<in memory>"},
        "protocols": {"classification": {"shifts": ["fog", "noise"], "levels": [1]}},
        "criteria": [ACCURATE, RANKED],
        "until_decided": True,
    }
    study = parse_study({**content, **changes}, "study")
    given = Given({model.name: model}, test=drawn_data(n))
    return execute(prepare(study, given=given, progress=no_progress), folder, workers=workers, progress=no_progress)


# ---- The engine: which parts count


def planned_case(model: Model, stop: Any, n: int = 150, chunk: int = 16) -> PlannedCase:
    data = in_random_order(drawn_data(n), 0)
    bench = Bench(data, {model.name: model}, 0, 16, chunk)
    showing = PlannedStimulus(Stimulus(data.fingerprint(), seed=0), data)
    case = bench.case(showing, model)
    return PlannedCase(case.case, case.showing, case.system, stop=stop)


def shown_into(folder: Path, planned: PlannedCase, workers: int = 1) -> Outcome:
    outcome = Outcome()
    show([planned], RunFolder(folder), outcome, batch=16, workers=workers, progress=lambda _: None)
    return outcome


def stored_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@given(
    lengths=st.sets(st.integers(1, 12), max_size=4),
    workers=st.sampled_from([1, 2, 4]),
    left=st.sets(st.integers(0, 9)),
)
@settings(max_examples=12, deadline=None)
def test_the_first_parts_that_decide_are_stored_whoever_made_which(
    lengths: set[int], workers: int, left: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The rule says yes to some numbers of parts, in any order: the lowest is the stop, also after a kill that left any
    parts behind."""

    def rule(seen: Readouts) -> bool:
        return len(seen.ids) / 16 in lengths

    folder = tmp_path_factory.mktemp("stop")
    planned = planned_case(Knowing(), rule)
    assert planned.parts == 10
    shown_into(folder / "calm", planned)
    stop = min((length for length in lengths if length < 10), default=10)
    names = {Path(name).name for name in stored_files(folder / "calm")}
    assert names == {"manifest.json", *(f"part-{chunk:05d}.parquet" for chunk in range(stop))}

    shown_into(folder / "killed", planned_case(Knowing(), None))
    home = RunFolder(folder / "killed").case(planned.case.key)
    (home / "manifest.json").unlink()
    for chunk in range(10):
        path = readouts.part_path(home, chunk)
        readouts.write_receipt(path) if chunk in left else path.unlink()
    shown_into(folder / "killed", planned, workers)
    assert stored_files(folder / "killed") == stored_files(folder / "calm")


def test_a_full_run_extends_a_stopped_one_without_asking_again(tmp_path: Path) -> None:
    model = Knowing()
    shown_into(tmp_path / "run", planned_case(model, lambda seen: len(seen.ids) >= 48))
    first = set(model.asked)
    assert len(first) == 48
    model.asked.clear()
    shown_into(tmp_path / "run", planned_case(model, None))
    assert first.isdisjoint(model.asked), "what was stored is asked again"
    shown_into(tmp_path / "full", planned_case(Knowing(), None))
    assert stored_files(tmp_path / "run") == stored_files(tmp_path / "full")


def test_parts_of_an_extension_that_was_killed_are_taken_back(tmp_path: Path) -> None:
    stopping = planned_case(Knowing(), lambda seen: len(seen.ids) >= 48)
    shown_into(tmp_path / "run", stopping)
    stopped = stored_files(tmp_path / "run")
    shown_into(tmp_path / "full", planned_case(Knowing(), None))
    further = readouts.part_path(RunFolder(tmp_path / "run").case(stopping.case.key), 4)
    further.write_bytes(readouts.part_path(RunFolder(tmp_path / "full").case(stopping.case.key), 4).read_bytes())
    readouts.write_receipt(further)
    shown_into(tmp_path / "run", stopping)
    assert stored_files(tmp_path / "run") == stopped
    shown_into(tmp_path / "full", stopping)
    assert stored_files(tmp_path / "full") == stopped, "what is complete is cut to the stop"


def test_what_fails_after_the_stop_is_no_failure(tmp_path: Path) -> None:
    late = planned_case(Knowing(), None).showing.data.ids[40]
    for workers in (1, 4):
        planned = planned_case(Knowing(fails_at=late), lambda seen: len(seen.ids) >= 32)
        outcome = shown_into(tmp_path / str(workers), planned, workers)
        assert not outcome.failures
    outcome = shown_into(tmp_path / "early", planned_case(Knowing(fails_at=late), lambda seen: len(seen.ids) >= 64))
    assert len(outcome.failures) == 1
    assert stored_files(tmp_path / "1") == stored_files(tmp_path / "4")


def test_groups_are_visited_in_a_random_order_and_stay_together() -> None:
    data = drawn_data(100)
    one, same, other = (in_random_order(data, seed) for seed in (1, 1, 2))
    assert one.ids == same.ids != other.ids
    assert one.fingerprint() == same.fingerprint() != data.fingerprint()
    assert len([*dict.fromkeys(one.groups)]) == sum(a != b for a, b in zip(one.groups, ("", *one.groups), strict=False))


def test_the_order_follows_from_what_images_show_and_not_from_names() -> None:
    data = drawn_data(100)
    other_names = replace(
        data.table,
        ids=tuple(f"renamed {row * 37 % 101}" for row in range(100)),
        groups=tuple(f"{(row // FRAMES * 7) % 25}" for row in range(100)),
    )
    reversed_objects = [row for first in range(96, -1, -FRAMES) for row in range(first, first + FRAMES)]
    renamed = Subset(ArrayDataset(other_names, data.batch(slice(None)).images), reversed_objects)
    shown, again = (in_random_order(one, 1).batch(slice(None)).images for one in (data, renamed))
    assert np.array_equal(shown, again), "objects are visited in another order where they are called otherwise"
    signs = [rw.open_dataset({"builtin": "signs", "n": 60, "seed": seed}, size=32) for seed in (0, 1)]
    places = [[one.ids.index(name) for name in in_random_order(one, 0).ids] for one in signs]
    assert places[0] != places[1], "of drawn images the recipe and the id tell what they show"


def test_files_that_are_renamed_are_visited_in_the_same_order(tmp_path: Path) -> None:
    orders = []
    for folder, prefix in (("first", "a"), ("second", "z")):
        for number, image in enumerate(drawn_data(12).batch(slice(None)).images):
            home = tmp_path / folder / CLASSES[number % 2]
            home.mkdir(parents=True, exist_ok=True)
            place = number if prefix == "a" else 100 - number
            Image.fromarray(image).save(home / f"{prefix}{place:03d}.png")
        opened = in_random_order(rw.open_dataset(str(tmp_path / folder)), 3)
        orders.append(opened.batch(slice(None)).images)
    assert np.array_equal(*orders)


# ---- A whole run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    return decided_run(tmp_path_factory.mktemp("decided") / "run")


def test_cases_stop_and_their_tables_say_so(stopped: rw.Run) -> None:
    stopping = stopped.tables["classification_stopping"].set_index("shift")
    assert stopping.loc[["none", "fog"], "status"].tolist() == ["pass", "fail"]
    assert (stopping.loc[["none", "fog"], "images"] < N).all()
    assert (stopping.loc[["none", "fog"], "images"] == stopping.loc[["none", "fog"], "decided_after"]).all()
    assert stopping.loc["noise", "images"] == N
    cells = stopped.tables["classification"].set_index(["shift", "metric"])
    for shift in ("none", "fog"):
        used = int(stopping.loc[shift, "images"])
        accuracy, auroc = cells.loc[shift, "accuracy"], cells.loc[shift, "auroc"]
        assert (accuracy["method"], accuracy["reason"]) == (
            "anytime betting",
            f"stopped after {used} of {N} images: decided",
        )
        assert accuracy["n"] == used
        assert accuracy["groups"] == used // FRAMES
        assert np.isnan(auroc["lo"])
        assert auroc["reason"] == "stopped early: no bound"
    assert cells.loc[("noise", "accuracy"), "n"] == N
    assert cells.loc[("noise", "accuracy"), "method"] != "anytime betting"
    drop = cells.loc[("noise", "accuracy_drop")]
    assert drop["n"] == stopping.loc["none", "images"]
    assert drop["method"] == "paired anytime betting"
    common = int(stopping["images"].min())
    assert stopped.tables["classification_overall"].set_index("metric").loc["accuracy", "n"] == common
    recall = stopped.tables["classification_recall"].query("shift == 'fog'")
    assert recall["n"].sum() == stopping.loc["fog", "images"]


def test_the_verdict_is_that_of_the_stop_and_follows_from_the_readouts(stopped: rw.Run) -> None:
    verdict = json.loads((stopped.path / "verdict.json").read_text())
    accurate, ranked = verdict["criteria"]
    assert [row["status"] for row in accurate["rows"]] == ["pass", "fail", "pass"]
    assert {row["method"] for row in accurate["rows"][:2]} == {"anytime betting"}
    assert ranked["remark"] == "run in full: auroc is no mean over images"
    assert stopped.verify() == []
    assert stopped.headline()[-1].startswith("answers: ")


def test_workers_and_a_resume_change_nothing(stopped: rw.Run, tmp_path: Path) -> None:
    again = decided_run(tmp_path / "run", workers=1)
    assert contents(again.path) == contents(stopped.path)
    for manifest in again.path.glob("readouts/*/manifest.json"):
        manifest.unlink()
    for part in sorted(again.path.glob("readouts/*/part-00000.parquet"))[:2]:
        part.unlink()
    assert contents(decided_run(tmp_path / "run", workers=2).path) == contents(stopped.path)


def test_completed_it_holds_every_image_and_the_same_decisions(tmp_path: Path) -> None:
    model = Knowing()
    first = decided_run(tmp_path / "run", model=model)
    before = {p: p.stat().st_mtime_ns for p in first.path.glob("readouts/*/part-*")}
    statuses = first.tables["classification_stopping"].query("criterion == 'A'")["status"].tolist()
    whole = decided_run(tmp_path / "run", model=model, until_decided="complete")
    assert all(path.stat().st_mtime_ns == moment for path, moment in before.items()), "a part was made again"
    stopping = whole.tables["classification_stopping"]
    assert (stopping["images"] == N).all()
    assert stopping.query("criterion == 'A'")["status"].tolist() == statuses
    assert set(whole.tables["classification"].query("metric == 'ece'")["lo"].notna()) == {True}
    assert whole.verify() == []
    with_itself = compare_runs([whole, whole], metrics=["accuracy", "ece"]).set_index(["condition", "metric"])
    assert set(with_itself["method"]) == {SAME_CASES}
    assert (with_itself["n"] == N).all()
    assert (with_itself["p"] == 1).all()


def test_runs_are_compared_on_common_images(stopped: rw.Run, tmp_path: Path) -> None:
    other = decided_run(tmp_path / "other", model=Knowing("knowing", seed=3), criteria=[{**ACCURATE, "at_least": 0.85}])
    changes = compare_runs([stopped, other], metrics=["accuracy", "ece"]).set_index(["condition", "metric"])
    lengths = [run.tables["classification_stopping"].set_index("shift")["images"] for run in (stopped, other)]
    for shift in ("none", "fog", "noise"):
        change = changes.loc[(shift, "accuracy")]
        assert change["n"] == min(int(length[shift]) for length in lengths)
        assert change["method"] == "paired anytime betting"
        assert 0 < change["p"] <= 1
    assert "stopped early" in changes.loc[("fog", "ece"), "reason"]


def test_a_drop_needs_undisturbed_data_in_full(tmp_path: Path) -> None:
    drop = {"id": "D", "metric": "accuracy_drop", "at_most": 0.9, "where": {"shift": "fog"}}
    run = decided_run(tmp_path / "run", criteria=[ACCURATE, drop])
    images = run.tables["classification_stopping"].set_index("shift")["images"]
    assert images["none"] == images["fog"] == N > images["noise"]
    remarks = {c["id"]: c["remark"] for c in json.loads((run.path / "verdict.json").read_text())["criteria"]}
    assert remarks == {"A": "", "D": "run in full: accuracy_drop compares two cases"}


def test_a_run_in_which_nothing_can_stop_verifies(tmp_path: Path) -> None:
    run = decided_run(tmp_path / "run", criteria=[RANKED], n=160)
    assert {*run.tables["classification_stopping"]["images"]} == {160}
    assert run.verify() == []


def test_a_drop_against_images_that_stopped_earlier_is_judged_on_those_of_both(stopped: rw.Run) -> None:
    shown = stopped.tables["classification_stopping"].set_index("shift")["images"]
    assert shown["none"] < shown["noise"]
    drop = {"id": "D", "metric": "accuracy_drop", "where": {"shift": "noise"}, "at_most": 0.0}
    (finding,) = stopped.verdict([drop]).findings
    assert finding.rows[0].measurement.estimate.n <= shown["none"]
    assert finding.why is not None
    assert "judged while answers came in" in " ".join(finding.why.sentences)


def test_cases_that_another_protocol_asks_for_run_in_full_and_say_so(tmp_path: Path) -> None:
    situations = {"frequencies": {"none": 0.9, "fog": {1: 0.1}}}
    protocols = {"classification": {"shifts": ["fog"], "levels": [1]}, "situations": situations}
    run = decided_run(tmp_path / "run", criteria=[ACCURATE], protocols=protocols, n=160)
    cells = run.tables["classification"].query("metric == 'accuracy'")
    assert {*cells["n"]} == {160}
    assert not cells["method"].str.contains("betting").any()
    (criterion,) = json.loads((run.path / "verdict.json").read_text())["criteria"]
    assert criterion["remark"] == "run in full: protocol situations needs the same cases in full"


def test_the_worst_of_many_is_decided_with_the_correction_that_judges_it(tmp_path: Path) -> None:
    worst = {**ACCURATE, "over": "worst"}
    run = decided_run(tmp_path / "run", criteria=[worst])
    verdict = json.loads((run.path / "verdict.json").read_text())
    assert verdict["status"] == "fail"
    assert run.tables["classification_stopping"].set_index("shift")["status"].to_dict() == {
        "none": "pass",
        "fog": "fail",
        "noise": "pass",
    }


def test_the_worst_of_several_sources_counts_the_conditions_of_all() -> None:
    model = Knowing()
    bench = Bench(drawn_data(40), {model.name: model}, 0, 16, 16)
    protocol, chosen = Classification(), Settings(shifts=[ShiftChoice(name="fog")], levels=[1, 3])
    sources = {source: protocol.plan(chosen, replace(bench, source=source)) for source in ("a", "b")}
    worst = Criterion(id="W", metric="accuracy", over="worst", at_least=0.5)
    single = Criterion(id="S", metric="brier_mean", at_most=0.5, where={"source": "b", "level": 3})
    ruled = protocol.looked_at(sources, [worst, single], chosen, {})
    watched = {source: planned.context.looks for source, planned in ruled.items()}  # type: ignore[attr-defined]
    assert watched["a"].criteria["W"].conditions == 6
    assert watched["a"].criteria["W"].strict == pytest.approx(1 - 0.05 / 6)
    assert [len(looks.watched) for looks in watched.values()] == [3, 3]
    assert [*map(sorted, watched["b"].watched.values())] == [["W"], ["W"], ["S", "W"]]
    assert all(planned.stop is not None for part in ruled.values() for planned in part.cases)


@pytest.mark.parametrize(
    ("criterion", "reason"),
    [
        ({"metric": "accuracy"}, ""),
        ({"metric": "brier_mean", "over": "worst"}, ""),
        ({"metric": "accuracy", "over": "pooled"}, "its conditions are pooled"),
        ({"metric": "accuracy", "where": {"light": "night"}}, "it speaks of some of the images"),
        ({"metric": "ece"}, "ece is no mean over images"),
        ({"metric": "nll"}, "the range of nll is too wide for bounds of a mean"),
        ({"metric": "brier_drop"}, "brier_drop compares two cases"),
    ],
)
def test_why_a_criterion_runs_in_full(criterion: dict[str, Any], reason: str) -> None:
    parsed = Criterion(id="C", at_most=0.1, **criterion)
    assert why_no_mean(parsed, find_metric(parsed.metric, METRICS)) == reason


def test_a_case_that_another_asks_for_too_stops_where_both_have_enough() -> None:
    rules = [lambda seen: len(seen.ids) >= 16, lambda seen: len(seen.ids) >= 48, None]
    cases = [planned_case(Knowing(), rule) for rule in rules]
    data = cases[0].showing.data
    shown = {rows: Readouts(data.ids[:rows], data.groups[:rows]) for rows in (16, 48)}
    both = next(iter(Graph(cases[:2]).cases.values())).planned.stop
    assert both is not None
    assert [both(shown[rows]) for rows in (16, 48)] == [False, True]
    assert next(iter(Graph(cases).cases.values())).planned.stop is None


def test_without_it_a_study_is_stored_as_ever() -> None:
    content = {"data": {"test": "x"}, "models": {"m": "y"}}
    assert "until_decided" not in parse_study(content, "study").to_yaml()
    assert "until_decided: true" in parse_study({**content, "until_decided": True}, "study").to_yaml()


def test_criteria_are_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        decided_run(tmp_path / "run", criteria=None)
    check_sentence(f"error: {error.value}\n", "`until_decided=True` needs criteria")
    assert not (tmp_path / "run").exists()
    model, data = save_onnx(tmp_path / "m.onnx"), write_npz(tmp_path / "signs.npz", 40)
    said = call("evaluate", "--model", model, "--data", data, "--until-decided", "--out", tmp_path / "run", code=2)
    assert said == "--until-decided needs criteria that can be decided: name some with --criteria"


# ---- How often it is wrong, and what it saves


def test_false_passes_and_false_fails_are_not_above_the_stated_rate() -> None:
    rates = error_rates(50, images=512, confidence=0.8)
    assert all(row["p"] >= 0.01 for row in rates.values()), rates
    assert min(rates["above"]["pass"], rates["below"]["fail"]) > 0.5, rates


@pytest.mark.slow
def test_a_real_network_takes_a_third_of_the_answers(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    saved = measured_saving(shared_data, tmp_path)
    assert saved["full"]["answers"] == 4000
    assert min(saved["saving"], saved["saving_in_all"]) >= 3, saved
    assert saved["full"]["verdict"] == saved["until_decided"]["verdict"]
    assert saved["full"]["verdict"] == {"A0.88": "pass", "A0.95": "fail", "fog": "pass"}
