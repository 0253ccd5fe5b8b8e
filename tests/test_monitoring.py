"""The benchmark of monitors: a small study from end to end, figures by hand, criteria, refusals, what is not asked."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score
from typer.testing import CliRunner

import roadworthy as rw
import samples
from roadworthy.api import compare_runs
from roadworthy.cli import app
from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.engine.progress import no_progress
from roadworthy.executing import execute
from roadworthy.monitors import Monitor
from roadworthy.opening import Given
from roadworthy.preparing import prepare
from roadworthy.protocols.monitoring import benchmarks as monitoring_benchmarks
from roadworthy.protocols.monitoring.courses import median_interval, poisson_interval
from roadworthy.protocols.monitoring.metrics import METRICS
from roadworthy.protocols.monitoring.names import KINDS, VIEWS
from roadworthy.protocols.monitoring.scenes import Answered, make_scene
from roadworthy.protocols.monitoring.settings import BenchmarkNote, Settings
from roadworthy.protocols.monitoring.streams import Mixing
from roadworthy.protocols.monitoring.tables import Evidence
from roadworthy.stored import Run
from roadworthy.stored_evidence import load_evidence
from roadworthy.study import load_study, parse_study
from roadworthy.verdict import Criterion
from stand_ins import Broken

COLOURS = ("red", "green", "blue")
BENCHMARKS: dict[str, Any] = {
    "purple": {"kind": "novel_class", "outliers": "purple", "near": True},
    "attack": {"kind": "adversarial", "shift": "square", "level": 5},
    "pale": {"kind": "distributional_shift", "outliers": "pale"},
    "noise": {"kind": "noise", "shift": "noise", "level": 5},
    "black": {"kind": "anomaly", "shift": "sensor_black_frame", "level": 5},
    "uniform": {"kind": "anomaly", "outliers": "uniform_noise"},
}


def patches(path: Path, number: int, seed: int, per_object: int = 1, **changes: Any) -> str:
    """Noisy squares, brightest in the channel of their class; the paler, the harder to tell."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, number)
    images = rng.integers(0, 120, (number, 8, 8, 3))
    images += rng.integers(0, 30, (number, 1, 1, 3))
    images[np.arange(number), ..., labels] += changes.pop("gain", 14)
    objects = np.array([f"{path.stem} {row // per_object}" for row in range(number)])
    labels = np.repeat(labels[::per_object], per_object)[:number] if per_object > 1 else labels
    arrays = {"images": images.astype(np.uint8), "labels": labels, "class_names": np.array(COLOURS), "group": objects}
    np.savez(path, **{**arrays, **changes})
    return str(path)


@dataclass(frozen=True, kw_only=True)
class Redness(Monitor):
    """Accepts what is red: a score without a model, to be computed by hand. `rejects_below` is its own threshold."""

    name: ClassVar[str] = "redness"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})

    rejects_below: float | None = None

    @property
    def own_threshold(self) -> float | None:
        return self.rejects_below

    def read(self, signals: Any, state: Any) -> Any:
        return signals.images[..., 0].mean(axis=(1, 2))


@dataclass(frozen=True, kw_only=True)
class Twice(Redness):
    """Rejects an image only where the one before was to be rejected, too."""

    name: ClassVar[str] = "redness_twice"

    @property
    def is_sequential(self) -> bool:
        return True

    def in_order(self, rows: Any, rejected: Any, starts: Any, rule: Any, state: Any) -> Any:
        assert len(rows) == len(rejected) == len(starts)
        return rejected & np.append(False, rejected[:-1])


class CountingColours(Model):
    """The brightest channel, and how many images it was asked about."""

    num_classes = 3
    concurrent = True
    name = "counting"

    def __init__(self) -> None:
        self.asked = 0

    def fingerprint(self) -> str:
        return "counting colours"

    def predict(self, batch: Batch) -> Prediction:
        self.asked += len(batch)
        odds = np.exp(batch.images.mean(axis=(1, 2)) / 10 - 8)
        return Prediction((odds / odds.sum(1, keepdims=True)).astype(np.float32))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Data of two sources and what lies outside, and an ONNX model of the brightest channel."""
    folder = tmp_path_factory.mktemp("colours")
    (folder / "model.onnx").write_bytes(samples.network().SerializeToString())
    swapped = np.array([COLOURS[1], COLOURS[2], COLOURS[0]])
    purple = {"class_names": np.array([*COLOURS, "purple"])}
    return {
        "model": str(folder / "model.onnx"),
        "test": patches(folder / "test.npz", 120, 1),
        "train": patches(folder / "train.npz", 60, 2),
        "validation": patches(folder / "validation.npz", 100, 3),
        "purple": patches(folder / "purple.npz", 90, 4, labels=np.full(90, 3), **purple),
        "pale": patches(folder / "pale.npz", 80, 5, gain=4, class_names=swapped),
        "films": patches(folder / "films.npz", 150, 6, per_object=5),
        "folder": folder,
    }


def study(data: dict[str, Any], **settings: Any) -> dict[str, Any]:
    own = {key: data[key] for key in ("test", "train", "validation")}
    return {
        "name": "colours",
        "data": own,
        "models": {"m": {"onnx": data["model"]}},
        "outliers": {"purple": data["purple"], "pale": data["pale"]},
        "monitors": {"msp": {}, "energy": {}, "boxes": {}, "random": {}},
        "protocols": {
            "monitoring": {"benchmarks": BENCHMARKS, "resamples": 100, "timed_images": 3, "memory": False, **settings}
        },
    }


@pytest.fixture(scope="module")
def run(data: dict[str, Any]) -> Run:
    """The study, run once; a monitor that cannot be built and one by hand are among its monitors."""
    content = study(data)
    parsed = parse_study(content, "study")
    from roadworthy.opening import open_monitors

    monitors = {**open_monitors(parsed), "broken": Broken(), "redness": Redness(), "twice": Twice()}
    prepared = prepare(parsed, given=Given(monitors=monitors), accept_chance=True, progress=no_progress)
    return execute(prepared, data["folder"] / "run", workers=1, progress=no_progress)


def evidence_of(run: Run) -> Evidence:
    evidence = load_evidence(run.folder, run.record)["monitoring"]
    assert isinstance(evidence, Evidence)
    return evidence


def value(run: Run, table: str = "monitoring", **where: Any) -> float:
    rows = run.tables[table]
    for column, wanted in where.items():
        rows = rows[rows[column] == wanted]
    assert len(rows) == 1
    return float(rows["value"].iloc[0])


def test_every_table_is_there_and_follows_from_what_is_stored(run: Run) -> None:
    made = [name for name in run.tables if "monitoring" in name]
    assert len(made) == 17
    assert run.verify() == []
    table = run.tables["monitoring"]
    assert set(table["ood_kind"]) == set(KINDS)
    assert set(table["view"]) == set(VIEWS)
    assert set(table["metric"]) <= {metric.name for metric in METRICS}
    assert (table.loc[table["value"].isna(), "reason"] != "").all()
    assert set(table.loc[table["benchmark"] == "purple", "near"]) == {True}


def test_metrics_are_those_of_an_independent_library(run: Run) -> None:
    evidence = evidence_of(run)
    for benchmark in BENCHMARKS:
        scene, decided = evidence.scenes("m").scene(benchmark), evidence.decided("m", benchmark, "energy")
        assert not isinstance(scene, str)
        assert not isinstance(decided, str)
        where = {"model": "m", "benchmark": benchmark, "monitor": "energy", "part": "stream"}
        for view in ("detection", "system", "system_label_lost"):
            positive = scene.truth.positive(view)
            mcc = matthews_corrcoef(positive, decided.rejected)
            stored = value(run, **where, view=view, metric="mcc")
            assert mcc == pytest.approx(stored, abs=1e-12) if not math.isnan(stored) else mcc == 0
            f1 = f1_score(positive, decided.rejected, average="weighted", zero_division=0)
            assert value(run, **where, view=view, metric="f1_weighted") == pytest.approx(f1)
        auroc = roc_auc_score(~scene.stream.ood, decided.scores)
        assert value(run, **where, view="detection", metric="auroc") == pytest.approx(auroc)
        wrong = scene.truth.wrong
        assert value(run, **where, view="model_scope", metric="safety_gain") == (wrong & decided.rejected).mean()
        assert value(run, **{**where, "monitor": "none"}, view="model_scope", metric="residual_hazard") == wrong.mean()


def test_a_monitor_by_hand_decides_by_a_threshold_from_validation_images_alone(run: Run, data: dict[str, Any]) -> None:
    with np.load(data["validation"]) as file:
        scores = np.sort(file["images"][..., 0].mean(axis=(1, 2)).astype(np.float32))
    thresholds = run.tables["monitoring_thresholds"].set_index("monitor")
    assert thresholds.loc["redness", "threshold"] == scores[5]
    assert thresholds.loc["redness", "achieved"] == 0.05
    with np.load(data["purple"]) as file:
        outside = file["images"][..., 0].mean(axis=(1, 2)).astype(np.float32)
    scene = evidence_of(run).scenes("m").scene("purple")
    assert not isinstance(scene, str)
    rejected = (outside[scene.stream.rows[scene.stream.ood]] < scores[5]).mean()
    where = {"model": "m", "benchmark": "purple", "monitor": "redness", "view": "detection", "part": "ood"}
    assert value(run, **where, metric="recall") == pytest.approx(rejected)


def test_labels_of_a_set_outside_are_kept_by_class_name(run: Run, data: dict[str, Any]) -> None:
    answered = evidence_of(run).scenes("m").answered("ood/pale")
    assert not isinstance(answered, str)
    with np.load(data["pale"]) as file:
        names = [str(file["class_names"][label]) for label in file["labels"]]
    assert [COLOURS[label] for label in answered.label] == names
    sets = run.tables["monitoring_sets"].set_index("benchmark")
    assert sets.loc[["purple", "pale", "noise", "black", "uniform"], "keeps_label"].tolist() == [
        *(False, True, True, False, False)
    ]
    assert sets.loc["attack", "attacked"] == "m"
    assert sets.loc["purple", "images_ood"] == 90
    assert (sets["images_id"] + sets["images_ood"] <= sets["objects"] + 1e-9).all(), "every patch is an object"


def lenses(data: dict[str, Any], **kinds: str) -> dict[str, Any]:
    """A study of sets outside whose images are easily told; `lens` as noise is `lens` once more."""
    folder, gain = data["folder"], 110
    sets = {name: patches(folder / f"{name}.npz", 40, 7, gain=gain) for name in ("lens", "novel")}
    sets["dust"] = patches(folder / "dust.npz", 40, 8, gain=gain, class_names=np.array([*COLOURS[:2], "dust"]))
    chosen = {name: {"kind": kind, "outliers": name.removesuffix("_again")} for name, kind in kinds.items()}
    return {**study(data, benchmarks=chosen, timed_images=0, limit=40), "outliers": sets, "monitors": {"random": {}}}


@pytest.fixture(scope="module")
def labelled(data: dict[str, Any]) -> Run:
    kinds = {"lens": "anomaly", "lens_again": "noise", "novel": "novel_class", "dust": "noise"}
    content = lenses(data, **kinds, uniform_noise="anomaly")
    prepared = prepare(parse_study(content, "study"), accept_chance=True, progress=no_progress)
    return execute(prepared, data["folder"] / "labelled", workers=1, progress=no_progress)


def test_right_answers_to_a_labelled_set_of_noise_or_anomalies_count_as_right(labelled: Run) -> None:
    """A dirty lens, say: only a novel class, and a set of other classes, has no labels of the source."""
    hazard = labelled.tables["monitoring"].query(
        "view == 'model_scope' and part == 'ood' and monitor == 'none' and metric == 'residual_hazard'"
    )
    values = {"lens": 0.0, "lens_again": 0.0, "novel": 1.0, "dust": 1.0, "uniform_noise": 1.0}
    assert hazard.set_index("benchmark")["value"].to_dict() == values
    table = labelled.tables["monitoring_sets"].set_index("benchmark")
    assert table["has_label"].tolist() == table["keeps_label"].tolist() == [True, True, False, False, False]
    assert table.loc["dust", "note"].startswith("no labels: 'dust' is no class of the source")
    assert "no labels" in labelled.report().read_text()


def test_answers_that_were_stored_without_labels_are_not_taken_over(data: dict[str, Any]) -> None:
    hashes = []
    for kind in ("anomaly", "novel_class"):
        parsed = parse_study(lenses(data, lens=kind), "study")
        cases = prepare(parsed, accept_chance=True, progress=no_progress).plan.cases
        hashes.append({case.labels["set"]: case.case.hash for case in cases if case.labels["role"] == "answers"})
    labelled, without = hashes
    assert labelled["test"] == without["test"]
    assert labelled["ood/lens"] != without["ood/lens"]


def test_two_benchmarks_of_the_same_images_show_them_once(labelled: Run) -> None:
    gallery = labelled.tables["monitoring_gallery"].set_index("benchmark")
    assert gallery.loc["lens", "media"] == gallery.loc["lens_again", "media"]
    answers = labelled.tables["monitoring_gallery_answers"].query("benchmark in ('lens', 'lens_again')")
    once, again = (rows.drop(columns="benchmark").values.tolist() for _, rows in answers.groupby("benchmark"))
    assert once == again
    assert len(once) == gallery.loc["lens", "images"]
    page = labelled.report().read_text().partition("<h3>Benchmark sets</h3>")[2].partition("</section>")[0]
    titles = re.findall(r'<div class="card"><h4>([^<]+?) <span class="says">([^<]*)', page)
    assert titles == [
        ("ID side", "test data of the source"),
        ("novel", "Novel class"),
        ("lens_again, lens", "Noise, Anomaly"),
        ("dust", "Noise"),
        ("uniform_noise", "Anomaly"),
    ]


def test_a_black_frame_is_a_lucky_answer_by_the_letter_and_wrong_where_labels_count(run: Run) -> None:
    evidence = evidence_of(run)
    scene = evidence.scenes("m").scene("black")
    assert not isinstance(scene, str)
    lucky = scene.stream.ood & (scene.label == scene.prediction)
    assert lucky.any()
    assert not scene.truth.positive("system")[lucky].any()
    assert scene.truth.positive("system_label_lost")[scene.stream.ood].all()
    where = {"model": "m", "benchmark": "black", "monitor": "none", "part": "ood", "metric": "recall"}
    counts = run.tables["monitoring"].query("benchmark == 'black' and monitor == 'none' and part == 'ood'")
    assert counts.query("view == 'system_label_lost' and metric == 'fnr'")["n"].item() == scene.stream.ood.sum()
    assert value(run, **where, view="system_label_lost") == 0
    uniform = evidence.scenes("m").scene("uniform")
    assert not isinstance(uniform, str)
    assert uniform.truth.wrong[uniform.stream.ood].all(), "noise without a label has no right answer"


def test_a_monitor_that_fails_costs_its_own_rows_alone(run: Run) -> None:
    table = run.tables["monitoring"]
    broken = table[table["monitor"] == "broken"]
    assert len(broken) == len(table[table["monitor"] == "msp"])
    assert broken["value"].isna().all()
    assert broken["reason"].str.contains("no <b>luck</b> today").all()
    assert table[table["monitor"] == "msp"]["value"].notna().any()
    assert "broken" in set(run.tables["monitoring_thresholds"]["monitor"])


def test_sequential_monitors_decide_along_the_stream(run: Run) -> None:
    evidence = evidence_of(run)
    alone, in_order = evidence.decided("m", "noise", "redness"), evidence.decided("m", "noise", "twice")
    assert not isinstance(alone, str)
    assert not isinstance(in_order, str)
    assert in_order.rejected.tolist() == (alone.rejected & np.append(False, alone.rejected[:-1])).tolist()
    assert not len(run.tables["monitoring_sweep"].query("monitor == 'twice'"))
    watched, by_itself = evidence.watched("m", "twice"), evidence.watched("m", "redness")
    assert not isinstance(watched, str)
    assert not isinstance(by_itself, str)
    assert watched.rejected.sum() <= by_itself.rejected.sum()
    row = run.tables["monitoring_thresholds"].query("monitor == 'twice'")
    assert row["value"].item() == watched.rejected.mean()
    assert "decides in order" in row["notes"].item()


def test_table_five_counts_a_cancelled_answer_as_one_more_class(run: Run) -> None:
    evidence = evidence_of(run)
    test, watched = evidence.scenes("m").answered("test"), evidence.watched("m", "msp")
    assert not isinstance(test, str)
    assert not isinstance(watched, str)
    alone = matthews_corrcoef(test.label, test.prediction)
    together = matthews_corrcoef(test.label, np.where(watched.rejected, 3, test.prediction))
    where = {"table": "monitoring_id", "model": "m", "monitor": "msp"}
    assert value(run, **where, metric="class_mcc_alone") == pytest.approx(alone)
    assert value(run, **where, metric="class_mcc") == pytest.approx(together)
    assert value(run, **where, metric="relative_change") == pytest.approx((together - alone) / alone)
    assert value(run, **where, metric="rejected") == pytest.approx(watched.rejected.mean())


def test_the_change_of_a_stream_is_measured_where_both_sides_have_labels(run: Run) -> None:
    evidence, sets = evidence_of(run), run.tables["monitoring_sets"].set_index("benchmark")
    table = run.tables["monitoring"].query("metric == 'stream_change'")
    assert set(table["view"]) == {"model_scope"}
    assert set(table["part"]) == {"stream"}
    assert "none" not in set(table["monitor"])
    labelled = 0
    for row in table.to_dict("records"):
        scene = evidence.scenes(row["model"]).scene(row["benchmark"])
        decided = evidence.decided(row["model"], row["benchmark"], row["monitor"])
        assert not isinstance(scene, str)
        if isinstance(decided, str):
            assert row["reason"] == decided
            continue
        if not sets.loc[row["benchmark"], "has_label"]:
            assert row["reason"] == "there are OOD images without labels"
            assert math.isnan(row["value"])
            continue
        labelled += 1
        wanted = np.where(scene.label == scene.prediction, scene.prediction, 3)
        done = np.where(decided.rejected, 3, scene.prediction)
        alone = matthews_corrcoef(wanted, scene.prediction)
        if (done == 3).all():
            assert "all are cancelled" in row["reason"]
        else:
            assert row["value"] == pytest.approx(matthews_corrcoef(wanted, done) / alone - 1)
        where = {"model": row["model"], "benchmark": row["benchmark"], "monitor": row["monitor"]}
        assert value(run, **where, metric="stream_change_perfect") == pytest.approx(1 / alone - 1)
    assert 0 < labelled < len(table)
    test = evidence.scenes("m").answered("test")
    assert not isinstance(test, str)
    alone = matthews_corrcoef(test.label, test.prediction)
    perfect = matthews_corrcoef(test.label, np.where(test.label == test.prediction, test.prediction, 3))
    where = {"table": "monitoring_id", "model": "m", "monitor": "msp", "metric": "relative_change_perfect"}
    assert value(run, **where) == pytest.approx((perfect - alone) / alone)


def test_boxes_keep_their_own_threshold_and_risk_and_sweep_agree_with_the_decisions(run: Run) -> None:
    thresholds = run.tables["monitoring_thresholds"].set_index("monitor")
    assert thresholds.loc["boxes", "rule"] == "own"
    assert thresholds.loc["msp", "rule"] == "share"
    sweep = run.tables["monitoring_sweep"].query("benchmark == 'noise' and monitor == 'msp' and rejected_id == 0.05")
    where = {"model": "m", "benchmark": "noise", "monitor": "msp", "view": "model_scope", "part": "stream"}
    for metric in ("safety_gain", "residual_hazard", "availability_cost"):
        assert sweep[metric].item() == pytest.approx(value(run, **where, metric=metric))
    mean = run.tables["monitoring_sweep"].query("benchmark == 'all' and monitor == 'msp' and rejected_id == 0.05")
    every = run.tables["monitoring_sweep"].query("benchmark != 'all' and monitor == 'msp' and rejected_id == 0.05")
    assert mean["recall"].item() == pytest.approx(every["recall"].mean())
    risk = run.tables["monitoring_risk"].query("benchmark == 'noise' and monitor == 'msp'")
    assert len(risk) == 51
    alone = {**where, "monitor": "none"}
    assert risk["risk"].iloc[-1] == pytest.approx(value(run, **alone, metric="residual_hazard"))


def test_the_timeline_adds_up_and_alarms_name_the_object(run: Run) -> None:
    evidence = evidence_of(run)
    scene, decided = evidence.scenes("m").scene("purple"), evidence.decided("m", "purple", "msp")
    assert not isinstance(scene, str)
    assert not isinstance(decided, str)
    line = run.tables["monitoring_timeline"].query("benchmark == 'purple' and monitor == 'msp'")
    sizes = line["to"] - line["from"]
    assert sizes.sum() == len(scene)
    assert (line["rejected"] * sizes).sum() == pytest.approx(decided.rejected.sum())
    assert (line["ood"] * sizes).sum() == pytest.approx(scene.stream.ood.sum())
    alarms = run.tables["monitoring_alarms"]
    assert (alarms["reason"] != "").eq(alarms["alarm_at"].isna() | (alarms["delay"] < 0)).all()
    rates = alarms.query("test == 'rejection_rate' and monitor in ('boxes', 'msp')").set_index("monitor")["reason"]
    assert set(rates["boxes"]) == {"rule own promises nothing: name rule conformal"}
    assert set(rates["msp"]) == {"rule share promises nothing: name rule conformal"}
    assert line["log_wealth_rejection_rate"].isna().all()
    assert line["log_wealth_exchangeability"].notna().all()


def test_intervals_of_counts_and_medians() -> None:
    assert poisson_interval(0, 0.95) == (0.0, pytest.approx(3.6889, abs=1e-4))  # Garwood 1936
    assert poisson_interval(10, 0.95) == (pytest.approx(4.7954, abs=1e-4), pytest.approx(18.3904, abs=1e-4))
    delays = np.array([0.0, 1.0, 2.0, math.inf, math.inf, math.inf])
    assert median_interval(delays) == (0.0, math.inf)


def test_criteria_speak_of_every_table(run: Run) -> None:
    criteria = [
        {"id": "A", "metric": "residual_hazard", "where": {"monitor": "msp", "ood_kind": "noise"}, "at_most": 0.99},
        {
            "id": "B",
            "metric": "mcc",
            "where": {"monitor": "energy", "view": "detection"},
            "over": "pooled",
            "at_least": -1,
        },
        {"id": "C", "metric": "rejected", "where": {"monitor": ["msp", "energy"]}, "over": "worst", "at_most": 0.5},
        {"id": "D", "metric": "missed_onsets", "where": {"monitor": "random", "benchmark": "noise"}, "at_most": 1000},
        {"id": "E", "metric": "accuracy", "at_least": 0.2},
        {"id": "F", "metric": "recall", "where": {"monitor": "broken", "benchmark": "noise"}, "at_least": 0.1},
        {"id": "G", "metric": "auroc", "where": {"monitor": "msp", "benchmark": "purple"}, "at_least": 0.99},
    ]
    verdict = run.verdict(criteria)
    found = {finding.criterion.id: finding for finding in verdict.findings}
    assert [found[name].status for name in "ABCDE"] == ["pass", "pass", "pass", "pass", "pass"]
    assert found["F"].status == "inconclusive"
    assert found["G"].status == "fail"
    assert found["B"].rows[0].measurement.where["benchmarks"] == len(BENCHMARKS)
    measured = {one.where["monitor"] for one in (row.measurement for row in found["C"].rows)}
    assert measured <= {"msp", "energy"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "brightness"}, "metric"),
        ({"where": {"monitor": "mps"}}, "did you mean 'msp'"),
        ({"where": {"benchmark": "smoke"}}, "benchmark"),
        ({"where": {"view": "nowhere"}}, "view"),
        ({"where": {"colour": "red"}}, "condition"),
        ({"metric": "auroc", "where": {"view": "system"}}, "view"),
        ({"over": "pooled"}, "one monitor: name one"),
        ({"metric": "false_alarms_per_hour", "over": "pooled"}, "not averaged over benchmarks"),
        ({"where": {"benchmark": "purple", "ood_kind": "noise"}}, "matches nothing"),
        ({"metric": "overhead_median"}, "read it in the table timing_monitoring"),
        ({"metric": "alarm_delay_exchangeability"}, "no bound .* read it in the table monitoring_alarms"),
    ],
)
def test_criteria_that_match_nothing_are_refused(run: Run, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run.verdict([{"id": "A", "metric": "mcc", "at_least": 0, **changes}])


def test_the_confidence_of_a_criterion_counts(run: Run) -> None:
    evidence = evidence_of(run)
    criterion = Criterion(id="A", metric="fpr", where={"monitor": "msp", "benchmark": "noise"}, at_most=0.5)
    wide, narrow = (evidence.measure(criterion, confidence)[0].estimate for confidence in (0.99, 0.5))
    assert wide.value == narrow.value
    assert wide.lo < narrow.lo < narrow.hi < wide.hi


def test_another_ratio_order_or_threshold_asks_no_model(data: dict[str, Any], tmp_path: Path) -> None:
    model = CountingColours()
    content = study(data)
    content |= {"models": {"counting": "<counting>"}, "monitors": {"msp": {}, "random": {}}}
    content["protocols"]["monitoring"]["benchmarks"] = {name: BENCHMARKS[name] for name in ("purple", "attack")}

    def ran(**settings: Any) -> tuple[Run, int]:
        own = {**content["protocols"]["monitoring"], **settings}
        parsed = parse_study({**content, "protocols": {"monitoring": own}}, "study")
        prepared = prepare(
            parsed, given=Given(models={"counting": model}), accept_chance=True, rehearse=False, progress=no_progress
        )
        before = model.asked
        return execute(prepared, tmp_path / "run", workers=1, progress=no_progress), model.asked - before

    first, asked = ran()
    assert asked > 300
    before = {name: first.tables[name] for name in ("monitoring", "monitoring_stream", "timing_monitoring")}
    for settings in ({"ratio": 0.2}, {"order": "blocks", "block": 7, "threshold": {"rejected": 0.2}}):
        again, asked = ran(**settings)
        assert asked == 0, settings
        assert not again.tables["monitoring"].equals(before["monitoring"])
        assert not again.tables["monitoring_stream"].equals(before["monitoring_stream"])
    same, asked = ran()
    assert asked == 0
    for name, table in before.items():
        pd.testing.assert_frame_equal(same.tables[name], table)
    assert same.verify() == []


def test_a_case_of_images_that_were_drawn_one_by_one_is_not_taken_over(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a limit draws is data with a fingerprint of its own: a run of the former draw is asked anew."""
    model, content = CountingColours(), study(data, benchmarks={"noise": BENCHMARKS["noise"]}, limit=20)
    content |= {"models": {"counting": "<counting>"}, "monitors": {"msp": {}}}
    content["data"] = {"test": data["films"], "validation": data["validation"]}

    def objects_and_asked() -> tuple[int, int]:
        prepared = prepare(
            parse_study(content, "study"),
            given=Given(models={"counting": model}),
            accept_chance=True,
            rehearse=False,
            progress=no_progress,
        )
        before = model.asked
        run = execute(prepared, tmp_path / "run", workers=1, progress=no_progress)
        assert run.verify() == []
        return int(run.tables["monitoring_sets"].set_index("benchmark").loc["noise", "objects"]), model.asked - before

    def by_image(dataset: Dataset, purpose: str, seed: int) -> NDArray[np.intp]:
        return np.argsort([rng.random() for rng in Streams(purpose, seed).each(dataset.ids)], kind="stable")

    with monkeypatch.context() as former:
        former.setattr(monitoring_benchmarks, "rows_in_rounds", by_image)
        objects, asked = objects_and_asked()
    assert objects < 20
    assert asked >= 60
    assert objects_and_asked() == (20, asked), "three sets of 20 images, as before"
    assert objects_and_asked() == (20, 0)


def test_two_sources_and_what_they_do_not_meet(data: dict[str, Any], tmp_path: Path) -> None:
    content = study(data, order="runs", limit=50, whole_objects=True)
    models = {"m": {"onnx": data["model"]}}
    own = {key: data[key] for key in ("test", "train", "validation")}
    content["sources"] = {
        "patches": {"data": own, "models": models, "exclude": ["pale"]},
        "films": {"data": {"test": data["films"], "train": data["train"]}, "models": models},
    }
    content["protocols"]["monitoring"]["benchmarks"] = {
        "purple": {"kind": "novel_class", "outliers": "purple", "sources": ["patches"]},
        "pale": {"kind": "distributional_shift", "outliers": "pale"},
        "noise": {"kind": "noise", "shift": "noise"},
    }
    content["monitors"] = {"msp": {}, "random": {}}
    content["protocols"]["monitoring"]["thresholds"] = {
        "msp": {"rule": "conformal", "rejected": 0.5, "confidence": 0.5}
    }
    for key in ("data", "models"):
        del content[key]
    run = rw.run_study(content, out=tmp_path / "run", workers=1, accept_chance=True, progress=no_progress)
    sets = run.tables["monitoring_sets"].set_index(["source", "benchmark"])
    assert sets.loc[("films", "purple"), "note"] == "not met: it is for patches alone (sources)"
    assert sets.loc[("patches", "pale"), "note"] == "not met: the source never meets pale (exclude)"
    assert sets.loc[("films", "noise"), "objects"] <= 10
    assert set(run.tables["monitoring"]["source"]) == {"patches", "films"}
    thresholds = run.tables["monitoring_thresholds"].set_index(["source", "monitor"])
    assert thresholds.loc[("films", "random"), "promise"] == "none"
    assert thresholds.loc[("films", "msp"), "promise"] in ("kept", "broken")
    assert thresholds.loc[("films", "msp"), "images"] <= 50
    assert run.verify() == []
    where = {"protocol": "monitoring", "source": "films", "monitor": "msp", "benchmark": "noise"}
    assert run.verdict([{"id": "A", "metric": "fpr", "where": where, "at_most": 1.0}]).status == "pass"


def test_models_are_compared_by_their_monitors(data: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(samples.network(bias=0.0).SerializeToString())
    content = study(data)
    content["models"] = {
        "m": {"onnx": data["model"]},
        "other": {"onnx": str(tmp_path / "other.onnx"), "range": "0-255"},
    }
    content["monitors"] = {"msp": {}, "random": {}}
    content["protocols"]["monitoring"]["benchmarks"] = {name: BENCHMARKS[name] for name in ("purple", "noise")}
    run = rw.run_study(content, out=tmp_path / "run", workers=1, accept_chance=True, progress=no_progress)
    table = compare_runs(run, workers=1)
    assert set(table["metric"]) == {"mcc"}
    assert len(table) == 4
    assert set(run.tables["monitoring_ranks"]["model"]) == {"m", "other", "all"}
    random = table[table["condition"].str.startswith("random")]
    assert (random["reason"].fillna("") == "").all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"benchmarks": {"x": {"kind": "noise"}}}, "a set outside .* or a shift, one of the two"),
        ({"benchmarks": {"x": {"kind": "novel_class", "shift": "fog"}}}, "a shift makes no novel class"),
        ({"benchmarks": {"x": {"kind": "adversarial", "outliers": "purple"}}}, "needs an attack"),
        ({"benchmarks": {"x": {"kind": "adversarial", "shift": "fog"}}}, "attacks no model"),
        ({"benchmarks": {"x": {"kind": "noise", "shift": "fgsm"}}}, "is an attack"),
        ({"benchmarks": {"x": {"kind": "noise", "shift": "fogg"}}}, "did you mean 'fog'"),
        ({"benchmarks": {"x": {"kind": "noise", "shift": "fog", "level": 9}}}, "has levels"),
        ({"benchmarks": {"x": {"kind": "noise", "outliers": "purpel"}}}, "did you mean 'purple'"),
        (
            {"benchmarks": {"x": {"kind": "distributional_shift", "outliers": "purple"}}},
            r"[^.]; a distributional shift keeps the classes of the source",
        ),
        (
            {"benchmarks": {"x": {"kind": "distributional_shift", "outliers": "uniform_noise"}}},
            "no label of the source",
        ),
        ({"benchmarks": {"all": {"kind": "noise", "shift": "fog"}}}, "not a valid name for a benchmark"),
        ({"benchmarks": {"x": {"kind": "noise", "shift": "fog", "sources": ["a"]}}}, "has no sources"),
        ({"thresholds": {"mps": {}}}, "did you mean 'msp'"),
        ({"thresholds": {"msp": {"rule": "own"}}}, "no threshold of its own"),
        ({"threshold": {"rule": "smallest", "rejected": 0.1}}, "does not use"),
        ({"benchmarks": {"x": {"kind": "noise", "shift": "fog", "neer": True}}}, "x.neer': did you mean 'near'"),
        (
            {"benchmarks": {"x": {"kind": "noise", "shift": "fog", "qqq": 1}}},
            "x.qqq'; known keys: kind, level, near, out",
        ),
        ({"ratio": 1.0}, "ratio"),
        ({"order": "sorted"}, "order"),
        ({"resamples": 10}, "resamples"),
        ({"layers": ["nowhere"]}, "nowhere"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(data: dict[str, Any], settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        prepare(parse_study(study(data, **settings), "study"), accept_chance=True, rehearse=False, progress=no_progress)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (["sped"], "the source, valid data: monitor jumps: unknown condition .* 'sped': did you mean 'speed'"),
        (
            ["road"],
            "valid data: monitor jumps: monitor assertion: the condition road holds values that are not numbers",
        ),
        (["light"], "test data: monitor jumps: unknown condition .* 'light'"),
        (["speed"], ""),
    ],
)
@pytest.mark.parametrize("is_part", [False, True])
def test_an_assertion_about_a_condition_that_the_data_lack_is_refused_before_the_run(
    data: dict[str, Any], tmp_path: Path, conditions: list[str], message: str, is_part: bool
) -> None:
    own = {"speed": np.arange(60.0), "road": np.array(["wet", "dry"] * 30)}
    valid = patches(tmp_path / "valid.npz", 60, 3, **own, light=np.arange(60.0))
    entry: dict[str, Any] = {"monitor": "assertion", "predicate": "jump", "limit": 5.0, "conditions": conditions}
    content = study(data, benchmarks={"noise": BENCHMARKS["noise"]})
    content["data"] = {"test": patches(tmp_path / "test.npz", 60, 1, **own), "validation": valid}
    content["monitors"] = {"jumps": {"monitor": "combined", "of": ["msp", entry]} if is_part else entry}
    with pytest.raises(InputError, match=message) if message else nullcontext():
        prepare(parse_study(content, "study"), accept_chance=True, rehearse=False, progress=no_progress)


def test_a_combination_that_names_itself_is_refused(data: dict[str, Any]) -> None:
    content = study(data, benchmarks={"noise": BENCHMARKS["noise"]})
    content["monitors"] = {"msp": {}, "both": {"monitor": "combined", "of": ["msp", "both"]}}
    with pytest.raises(InputError, match=r"monitor both names itself among its parts \(of\)"):
        prepare(parse_study(content, "study"), accept_chance=True, rehearse=False, progress=no_progress)


def test_stored_scores_cannot_hold_those_of_an_attack(data: dict[str, Any], tmp_path: Path) -> None:
    content = study(data, benchmarks={name: BENCHMARKS[name] for name in ("attack", "noise")})
    content["monitors"] = {"msp": {}}
    with pytest.warns(UserWarning, match="benchmark attack attacks"):
        rw.export_study(content, tmp_path / "images", progress=no_progress)
    manifest = pd.read_csv(tmp_path / "images" / "manifest.csv")
    manifest.assign(score=0.5)[["stimulus", "id", "score"]].to_csv(tmp_path / "scores.csv", index=False)
    content["monitors"] = {"theirs": {"monitor": "stored", "scores": str(tmp_path / "scores.csv")}}
    with pytest.raises(InputError, match=r"square attacks model .* export leaves them out: leave out the attack"):
        prepare(parse_study(content, "study"), accept_chance=True, progress=no_progress)


def test_benchmark_images_that_the_source_knows_are_refused_or_counted(data: dict[str, Any], tmp_path: Path) -> None:
    with np.load(data["train"]) as train, np.load(data["test"]) as test, np.load(data["purple"]) as purple:
        images = purple["images"].copy()
        images[:40] = train["images"][:40]
        leaking = patches(tmp_path / "leaking.npz", 90, 4, images=images)
        many = np.concatenate([images[40:], np.random.default_rng(9).integers(0, 255, (100, 8, 8, 3), dtype=np.uint8)])
        many[0] = test["images"][0]
        few = patches(tmp_path / "few.npz", 150, 4, images=many)
    content = study(data, benchmarks={"x": {"kind": "novel_class", "outliers": "purple"}})
    content["monitors"] = {"msp": {}}
    options: dict[str, Any] = {"accept_chance": True, "rehearse": False, "progress": no_progress}
    with pytest.raises(InputError, match="40 of 60 images of training data train are images of outliers purple too"):
        prepare(parse_study({**content, "outliers": {"purple": leaking}}, "study"), **options)
    with pytest.warns(UserWarning, match=r"1 of 1.. images of .* are images of outliers purple too"):
        prepared = prepare(parse_study({**content, "outliers": {"purple": few}}, "study"), **options)
    context = prepared.contexts["monitoring"][""]
    assert context.model_dump()["benchmarks"]["x"]["leaked"] == 1


def test_without_validation_data_half_of_the_objects_give_thresholds(data: dict[str, Any]) -> None:
    content = study(data, benchmarks={"noise": BENCHMARKS["noise"]}, layers=["penultimate"])
    content["data"] = {"test": data["films"], "train": data["train"]}
    prepared = prepare(parse_study(content, "study"), accept_chance=True, rehearse=False, progress=no_progress)
    shown = {case.labels["set"]: case.showing.data for case in prepared.plan.cases if case.labels["role"] == "answers"}
    assert not {*shown["valid"].groups} & {*shown["test"].groups}
    assert "half of the objects" in prepared.contexts["monitoring"][""].model_dump()["valid_from"]
    layers = [case for case in prepared.plan.cases if case.labels["role"] == "layer"]
    assert {case.labels["set"] for case in layers} == {"train", "valid", "test", "ood/noise"}


def test_benchmarks_are_written_as_data_but_for_attacks(data: dict[str, Any], tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="benchmark attack attacks the model under test"):
        written = rw.export_study(study(data), tmp_path / "images", progress=no_progress)
    manifest = pd.read_csv(tmp_path / "images" / "manifest.csv")
    assert len(manifest) == written == 60 + 100 + 120 + 90 + 80 + 3 * 120
    assert not manifest["stimulus"].str.startswith("square").any()


def test_the_short_form_from_python(data: dict[str, Any], tmp_path: Path) -> None:
    run = rw.monitoring(
        data["model"],
        monitors=["msp", Redness(rejects_below=50.0)],
        source=data["films"],
        outliers={"purple": data["purple"]},
        benchmarks={"noise": BENCHMARKS["noise"]},
        settings={"resamples": 100, "timed_images": 0, "order": "runs"},
        out=tmp_path / "run",
        accept_chance=True,
        workers=1,
        progress=no_progress,
    )
    thresholds = run.tables["monitoring_thresholds"].set_index("monitor")
    assert thresholds.loc["redness rejects_below=50.0", "threshold"] == 50
    assert "timing_monitoring" not in run.tables
    with pytest.raises(InputError, match="not in memory"):
        rw.monitoring(data["model"], monitors=["msp"], source=data["films"], train=data["train"], validation=object())


def test_the_default_benchmarks_are_of_every_kind(data: dict[str, Any]) -> None:
    content = study(data)
    del content["protocols"]["monitoring"]["benchmarks"]
    prepared = prepare(parse_study(content, "study"), accept_chance=True, rehearse=False, progress=no_progress)
    notes = prepared.contexts["monitoring"][""].model_dump()["benchmarks"]
    assert {note["kind"] for note in notes.values()} == set(KINDS)
    assert notes["square"]["attacks"]


def test_objects_of_both_sides_are_apart_unless_shared_and_classes_can_be_left_out() -> None:
    ids = np.array([str(row) for row in range(20)])
    answered = Answered(ids, ids, np.arange(20) % 2, np.zeros(20, np.int64))
    apart, shared = (
        make_scene("x", BenchmarkNote(kind="noise", made_from="x", shared=is_shared), answered, answered, Mixing())
        for is_shared in (False, True)
    )
    assert len(np.unique(apart.groups)) == len(apart) == 40
    assert {*shared.groups} == {*ids}
    note = BenchmarkNote(kind="novel_class", made_from="x", has_label=False, left_out=[1])
    without = make_scene("x", note, answered, answered, Mixing())
    assert set(without.label[~without.stream.ood]) == {0}
    assert without.truth.wrong[without.stream.ood].all()
    assert without.gather(np.arange(20), np.arange(20)).tolist() == [int(name) for name in without.ids]


def test_a_shift_that_shows_other_images_of_the_id_side_is_noted(data: dict[str, Any]) -> None:
    frozen = {"kind": "anomaly", "shift": "sensor_frozen_frame", "level": 1}
    content = study(data, benchmarks={"frozen": frozen, "noise": BENCHMARKS["noise"]})
    prepared = prepare(parse_study(content, "study"), accept_chance=True, rehearse=False, progress=no_progress)
    notes = prepared.contexts["monitoring"][""].model_dump()["benchmarks"]
    assert "may be in the stream as ID images" in notes["frozen"]["note"]
    assert notes["noise"]["note"] == ""


def test_a_limit_can_take_whole_objects(data: dict[str, Any]) -> None:
    content = study(data, benchmarks={"noise": BENCHMARKS["noise"]}, limit=33, whole_objects=True)
    content["data"]["test"] = data["films"]
    content["monitors"] = {"msp": {}}
    prepared = prepare(parse_study(content, "study"), accept_chance=True, rehearse=False, progress=no_progress)
    shown = {case.labels["set"]: case.showing.data for case in prepared.plan.cases if case.labels["role"] == "answers"}
    assert len(shown["test"]) == 30
    assert len({*shown["test"].groups}) == 6
    assert len(shown["valid"]) == 33
    assert [*shown["test"].ids] == sorted(shown["test"].ids, key=lambda name: int(name))


def test_the_study_that_comes_with_it_has_two_sets_or_more_of_each_kind() -> None:
    chosen, _ = load_study(Path(__file__).parent.parent / "studies" / "monitoring-builtin.yaml")
    kinds = [own.kind for own in chosen.protocols.monitoring.benchmarks.values()]
    assert all(kinds.count(kind) >= 2 for kind in KINDS)


def test_the_documentation_has_every_setting_with_its_default() -> None:
    text = (Path(__file__).parent.parent / "docs" / "monitoring.md").read_text()
    table = text.partition("| setting | default |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    defaults = {name.strip("`"): default for name, default, _ in rows}
    own = Settings().model_dump()
    assert [*defaults] == [*own]
    words = {"benchmarks": "all five kinds", "threshold": "share of 0.05", "thresholds": "none", "layers": "none"}
    for name, default in defaults.items():
        plain = own[name] if isinstance(own[name], str | bool | dict | list | None) else f"{own[name]:g}"
        assert default == words.get(name, str(plain).lower()), name


def test_settings_are_stored_and_read_back() -> None:
    settings = Settings.model_validate({"benchmarks": BENCHMARKS, "thresholds": {"boxes": {"rule": "own"}}})
    assert Settings.model_validate(settings.model_dump(mode="json")) == settings


def test_decisions_made_elsewhere_give_the_same_figures(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    benchmarks = [option for name in ("purple", "noise", "black") for option in ("--benchmark", name)]
    command = ["monitor", "decisions", str(run.path), "--monitor", "msp", *benchmarks, "--out", str(path)]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code == 0, outcome.output
    decisions = pd.read_csv(path)
    assert (decisions["system_outcome"].isin(["true positive", "false negative"]))[decisions["label"].isna()].all()
    cancelled = decisions["reject"] == 1
    assert (decisions["detection_outcome"].str.endswith("positive") == cancelled).all()
    assert decisions["confidence"].between(1 / 3, 1).all()
    refused = CliRunner().invoke(app, [*command[:-1], str(tmp_path / "a.txt")])
    assert "neither .csv nor .parquet" in str(refused.exception)
    tables = rw.evaluate_decisions(path, resamples=100)
    keys = ["model", "benchmark", "monitor", "view", "part", "metric"]
    ours = tables["monitoring"].set_index(keys)["value"]
    assert len(ours) > 100
    theirs = run.tables["monitoring"].set_index(keys)["value"].loc[ours.index]
    pd.testing.assert_series_equal(ours, theirs, rtol=1e-9)
    assert len(tables["monitoring_ranks"]) == 2
    assert set(tables["monitoring_sets"]["benchmark"]) == {"purple", "noise", "black"}


ONE = {"id": ["a", "b"], "ood": [0, 1], "label": [3, None], "prediction": [3, 5], "reject": [0, 1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ood": None}, "lacks the column ood"),
        ({"reject": None}, "lacks the column reject"),
        ({"reject": [0, 2]}, "reject .* must be 0 or 1"),
        ({"scores": [0.1, 0.2]}, "did you mean 'score'"),
        ({"label": [None, 3]}, "every ID image a label"),
        ({"score": ["x", 1]}, "score .* must be a number"),
        ({"ood_kind": ["", "weather"]}, "ood_kind"),
        ({"id": ["a", "a"], "ood": [1, 1]}, "twice"),
        ({"benchmark": ["x", None]}, "every OOD image"),
    ],
)
def test_tables_of_decisions_that_cannot_be_read_are_refused(changes: dict[str, Any], message: str) -> None:
    columns = {name: column for name, column in {**ONE, **changes}.items() if column is not None}
    with pytest.raises(InputError, match=message):
        rw.evaluate_decisions(pd.DataFrame(columns))


def test_a_table_of_decisions_on_the_command_line(tmp_path: Path) -> None:
    pd.DataFrame(ONE).to_csv(tmp_path / "table.csv", index=False)
    result = CliRunner().invoke(
        app, ["monitor", "evaluate", str(tmp_path / "table.csv"), "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0
    assert "model, stream, monitor: detection mcc 1.000" in result.stdout
    assert (tmp_path / "out" / "monitoring.csv").is_file()


def test_a_table_of_decisions_by_hand() -> None:
    columns = {key: values for key, values in ONE.items() if key != "reject"}
    tables = rw.evaluate_decisions(pd.DataFrame({**columns, "score": [0.9, 0.2]}), threshold=0.5)
    rows = (
        tables["monitoring"].query("monitor == 'monitor' and part == 'stream'").set_index(["view", "metric"])["value"]
    )
    assert [rows[view, "mcc"] for view in VIEWS] == [1, 1, 1, 1]
    assert rows["detection", "auroc"] == 1
    assert rows["model_scope", "safety_gain"] == 0.5
    with pytest.raises(InputError, match="leave out `threshold="):
        rw.evaluate_decisions(pd.DataFrame(ONE), threshold=0.5)
    with pytest.raises(InputError, match="must be a number, not NaN"):
        rw.evaluate_decisions(pd.DataFrame({**columns, "score": [0.9, 0.2]}), threshold=math.nan)
