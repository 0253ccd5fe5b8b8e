"""OD-test: the matrix by hand, thresholds that come from D_v alone, resume, further monitors, refusals, networks."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import roadworthy as rw
import tiny
from represented import by_hand, sample
from roadworthy.api import compare_runs
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.manifests import own_node
from roadworthy.core.types import Batch
from roadworthy.data import open_dataset, split_by_group
from roadworthy.data.subset import Mirrored
from roadworthy.engine.artifacts import read_artifact
from roadworthy.engine.readouts import read_columns
from roadworthy.models import ReferenceModel, load_model
from roadworthy.models.networks import resnet50, small_resnet, vgg16
from roadworthy.models.quick import QuickForward
from roadworthy.models.signals import Signals
from roadworthy.monitors import Aim, Monitor, hinge_threshold, make_monitor
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.opening import OpeningSource, open_monitors
from roadworthy.preparing import prepare
from roadworthy.protocols.od_test.criteria import check_criterion, check_triples, dropped_sources, measure
from roadworthy.protocols.od_test.evaluation import Represented, evaluate, evaluate_unsupervised
from roadworthy.protocols.od_test.means import clustered_interval, matrix_tables
from roadworthy.protocols.od_test.names import METRICS
from roadworthy.protocols.od_test.ranking import Source, rank_monitors
from roadworthy.protocols.od_test.subjects import triples_of
from roadworthy.statistics import Estimate
from roadworthy.study import load_study, parse_study
from roadworthy.uncertainty.temperature import Calibrated
from roadworthy.verdict import Criterion
from stand_ins import Broken

ROOT = Path(__file__).parent.parent
SIGNS = {"builtin": "signs", "n": 140}
TRAIN = {"builtin": "signs", "split": "train", "n": 70}
OUTLIERS: dict[str, Any] = {
    "scenery": {"builtin": "scenery", "n": 20},
    "uniform": "uniform_noise",
    "normal": "normal_noise",
}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads of torch on cores that others use are a hundred times as slow as one."""
    monkeypatch.setattr("roadworthy.models.training.THREADS", 1)


def values(rows: list[dict[str, Any]], metric: str = "accuracy") -> dict[tuple[str, str], float]:
    return {(row["valid_set"], row["test_set"]): row["value"] for row in rows if row["metric"] == metric}


def test_a_matrix_of_three_sets_worked_by_hand() -> None:
    """Thresholds 4.5 from a and 4.85 from b; against c nothing is better than to accept all."""
    represented = by_hand(near=frozenset({"b"}))
    rows = evaluate(represented, Aim())
    expected = {
        ("a", "b"): (3 / 4 + 2 / 4) / 2,
        ("a", "c"): (3 / 4 + 0) / 2,
        ("b", "a"): (3 / 4 + 1) / 2,
        ("b", "c"): (3 / 4 + 0) / 2,
        ("c", "a"): (1 + 0) / 2,
        ("c", "b"): (1 + 0) / 2,
    }
    assert values(rows) == pytest.approx(expected)
    assert values(rows, "expected_cost") == pytest.approx({key: 1 - value for key, value in expected.items()})
    assert values(rows, "auroc")["a", "c"] == 0
    assert values(rows, "auroc")["b", "a"] == 12 / 16 + 0.5 / 16
    assert {row["metric"] for row in rows} == set(METRICS)
    assert all(row["lo"] <= row["value"] <= row["hi"] for row in rows if row["metric"] == "accuracy")
    found = matrix_tables(rows, evaluate_unsupervised(represented, Aim()))
    means = found["od_test_methods"].query("metric == 'accuracy'").set_index(["source", "ood"])
    assert means.loc[("all", "all"), "value"] == pytest.approx(np.mean(list(expected.values())))
    assert means.loc[("source", "near"), "value"] == pytest.approx((0.625 + 0.5) / 2)
    assert means.loc[("all", "all"), "triples"] == 6
    assert means.loc[("all", "all"), "clusters"] == 3
    cells = found["od_test_heatmap"].set_index(["valid_set", "test_set"])["accuracy"]
    assert cells.to_dict() == pytest.approx(expected)


def test_without_outliers_the_threshold_comes_from_the_source_alone() -> None:
    """A quarter of the validation images is rejected: threshold 6."""
    rows = evaluate_unsupervised(by_hand(), Aim(rejected=0.25))
    found = {row["test_set"]: row["value"] for row in rows if row["metric"] == "accuracy"}
    assert found == pytest.approx({"a": (2 / 4 + 1) / 2, "b": (2 / 4 + 1) / 2, "c": (2 / 4 + 0) / 2})


@dataclass(frozen=True, kw_only=True)
class Coarse(Monitor):
    """Mean grey value in steps of `step`, so that many images tie."""

    step: float = 100.0
    name: ClassVar[str] = "coarse"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})
    differs_from_paper: ClassVar[str] = "there is <no> paper"

    def read(self, signals: Any, state: Any) -> Any:
        return np.floor(signals.images.mean(axis=(1, 2, 3)) / self.step)


def test_ties_and_what_differs_from_papers_are_told_by_table_terminal_and_report(onnx: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run(onnx, tmp_path / "run", Coarse(step=1000.0), Coarse(step=1e-9), "mahalanobis", rejected=0.25)
    table = found.tables["od_test_thresholds"].set_index("monitor")
    assert (table["asked"] == 0.25).all()
    assert table["tied"].tolist() == [True, False, False]
    assert table.loc["coarse step=1000.0", "achieved"] == 0
    assert "ties prevent it" in table.loc["coarse step=1000.0", "reason"]
    assert table.loc["coarse step=1e-09", "achieved"] == 0.25
    assert table.loc["coarse step=1e-09", "reason"] == ""
    line = "Ties keep coarse step=1000.0 from rejecting 25.0 % of the validation images"
    assert next(text for text in found.headline() if "Ties" in text).replace("\xa0", " ").startswith(line)
    page = found.report().read_text().replace("\xa0", " ")
    assert line in page
    assert "there is &lt;no&gt; paper" in page
    assert "neither the input perturbation nor the ensemble of layers" in page
    assert found.verify() == []


def test_a_run_of_an_earlier_version_verifies_and_reports(onnx: Path, tmp_path: Path) -> None:
    """Without the table of thresholds, with one FPR95, and with no word on papers."""
    found = run(onnx, tmp_path / "run", "msp")
    for name, table in found.tables.items():
        if "metric" in table:
            former = table[table["metric"] != "fpr95_out"]
            found.folder.write_table(name, former)
    for path in (found.path / "tables").glob("od_test_thresholds.*"):
        path.unlink()
    record = found.record
    for part in record.protocols["od_test"].sources.values():
        for note in part.context["monitors"].values():
            del note["differs_from_paper"]
    found.folder.write_record(record)
    assert found.verify() == []
    page = found.report().read_text()
    assert "FPR95-in: outliers accepted" in page
    assert "Validation images rejected" not in page
    assert found.verdict([{"id": "A", "metric": "fpr95_in", "at_most": 1.0}]).findings[0].rows


scores = st.lists(st.integers(0, 6), min_size=3, max_size=9)


@settings(max_examples=60, deadline=None)
@given(scores, scores, scores, scores, st.sampled_from([0.1, 0.5, 0.8]), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_best_threshold_of_d_v_is_what_d_t_is_judged_by(
    valid: list[int], test: list[int], d_v: list[int], d_t: list[int], prior: float, cost: float
) -> None:
    rows = evaluate(
        by_hand(valid=sample(valid), test=sample(test), outliers={"v": sample(d_v), "t": sample(d_t)}),
        Aim(prior=prior, cost=cost),
    )
    n = min(len(valid), len(d_v))
    inside, outside = np.array(valid[:n]), np.array(d_v[:n])

    def loss(cut: float, ins: Any, outs: Any) -> float:
        return float((1 - prior) * np.mean(ins < cut) + prior * cost * np.mean(outs >= cut))

    cuts = np.arange(-0.5, 7.5)
    best = next(
        cut for cut in cuts if loss(cut, inside, outside) <= min(loss(c, inside, outside) for c in cuts) + 1e-12
    )
    n = min(len(test), len(d_t))
    ins, outs = np.array(test[:n]), np.array(d_t[:n])
    lower = max([v for v in {*inside, *outside} if v < best], default=-np.inf)
    upper = min([v for v in {*inside, *outside} if v > best], default=np.inf)
    middle = (lower + upper) / 2 if np.isfinite([lower, upper]).all() else (-np.inf if upper < np.inf else np.inf)
    found = values(rows, "expected_cost")["v", "t"]
    assert found == pytest.approx(loss(middle, ins, outs)), "between neighbours any cut is as good: the middle decides"


def test_the_hinge_fit_can_be_asked_for() -> None:
    rng = np.random.default_rng(0)
    valid, test, d_v, d_t = (rng.normal(mean, 1, 60).round(3) for mean in (2, 2, 0, 1))
    rows = evaluate(
        by_hand(valid=sample(valid), test=sample(test), outliers={"v": sample(d_v), "t": sample(d_t)}),
        Aim(threshold="hinge"),
    )
    cut = hinge_threshold(valid.astype(np.float32), d_v.astype(np.float32))
    assert values(rows)["v", "t"] == pytest.approx((np.mean(test >= cut) + np.mean(d_t < cut)) / 2)


def test_shared_classes_of_the_source_do_not_meet_their_set() -> None:
    represented = by_hand(
        test=sample([5, 6, 7, 1], labels=[0, 0, 0, 1]), valid=sample([5, 6, 7, 8], labels=[0, 0, 1, 1]),
        overlap={"b": frozenset({1})},
    )  # fmt: skip
    rows = evaluate(represented, Aim())
    n = {(row["valid_set"], row["test_set"]): row["n"] for row in rows}
    assert n["a", "b"] == 6
    assert n["a", "c"] == 8
    assert values(rows)["a", "b"] == pytest.approx((3 / 3 + 1 / 3) / 2)


def test_bounds_by_the_bootstrap_hold_the_value() -> None:
    rng = np.random.default_rng(1)
    outliers = {name: sample(rng.normal(mean, 1, 80), name=name) for name, mean in (("v", 0), ("t", 1))}
    represented = by_hand(valid=sample(rng.normal(2, 1, 80)), test=sample(rng.normal(2, 1, 80)), outliers=outliers)
    rows = [row for row in evaluate(represented, Aim(), resamples=200) if row["metric"] == "auroc"]
    assert all(row["lo"] < row["value"] < row["hi"] and not row["reason"] for row in rows)


def test_clusters_of_one_give_student_s_interval_and_copies_are_no_evidence() -> None:
    x = np.array([0.4, 0.5, 0.7, 0.9])
    lo, hi, _ = clustered_interval(x, np.arange(4))
    half = 3.182446 * x.std(ddof=1) / 2
    assert (lo, hi) == pytest.approx((x.mean() - half, x.mean() + half), abs=1e-6)
    assert clustered_interval(np.repeat(x, 5), np.repeat(np.arange(4), 5)) == pytest.approx((lo, hi, ""))


@dataclass(frozen=True, kw_only=True)
class Brightness(Monitor):
    """Mean grey value; counts how often it is asked."""

    scale: float = 1.0
    name: ClassVar[str] = "brightness"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})
    seen: ClassVar[list[int]] = []

    def read(self, signals: Any, state: Any) -> Any:
        self.seen.append(len(signals))
        return self.scale * signals.images.mean(axis=(1, 2, 3))


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_onnx(tmp_path_factory.mktemp("od_test") / "tiny.onnx")


ASKED: dict[str, Any] = {
    **{"source": SIGNS, "train": TRAIN, "outliers": OUTLIERS, "size": 32, "limit": 28, "workers": 1},
    **{"name": "source", "progress": rw.no_progress},
}


def run(onnx: Path, out: Path, *monitors: Any, **changes: Any) -> Any:
    return rw.od_test(str(onnx), monitors=monitors or ["msp"], out=out, **(ASKED | changes))


def test_a_run_holds_every_table_and_follows_from_what_is_stored(onnx: Path, tmp_path: Path) -> None:
    found = run(onnx, tmp_path / "run", "msp", "knn_svm", make_monitor("knn_svm", k=2), near=["scenery"])
    matrix = found.tables["od_test"]
    assert len(matrix) == 3 * 6 * len(METRICS)
    assert set(matrix["monitor"]) == {"msp", "knn_svm", "knn_svm k=2"}
    assert set(matrix.query("test_set == 'scenery'")["ood"]) == {"near"}
    assert set(matrix.query("test_set == 'scenery'")["n"]) == {2 * 20}
    for name in found.tables:
        assert (found.path / "tables" / f"{name}.csv").is_file()
        if "od_test" in name and not name.endswith("_gallery"):
            assert (found.path / "tables" / f"{name}.tex").read_text().startswith(r"\begin{longtable}")
    assert {
        "od_test_methods",
        "od_test_heatmap",
        "od_test_unsupervised",
        "od_test_competence",
        "timing_od_test",
    } <= set(found.tables)
    competence = found.tables["od_test_competence"].set_index("part")["value"]
    assert competence["train"] > 1 / 14
    assert (found.tables["timing_od_test"]["seconds_per_image"] > 0).all()
    assert found.verify() == []
    rows = max((found.path / "readouts").glob("*/part-*.parquet"))
    rows.write_bytes(rows.read_bytes()[:-1])
    assert found.verify() == [f"{rows.relative_to(found.path)} was changed"]


def test_workers_change_nothing(onnx: Path, tmp_path: Path) -> None:
    one, two = run(onnx, tmp_path / "one"), run(onnx, tmp_path / "two", workers=3)
    for name in ("od_test.parquet", "od_test_methods.csv", "od_test_competence.tex"):
        assert (one.path / "tables" / name).read_bytes() == (two.path / "tables" / name).read_bytes()


def test_one_more_monitor_computes_only_that_one(onnx: Path, tmp_path: Path) -> None:
    Brightness.seen.clear()
    run(onnx, tmp_path / "run", Brightness())
    asked = len(Brightness.seen)
    assert asked == 5  # two parts of the source and three sets of outliers, each in one batch of 64
    stored = {path: path.stat().st_mtime_ns for path in (tmp_path / "run/readouts").glob("*/part-*")}
    found = run(onnx, tmp_path / "run", Brightness(), Brightness(scale=2.0))
    assert len(Brightness.seen) == 2 * asked
    assert all(path.stat().st_mtime_ns == before for path, before in stored.items())
    matrix = found.tables["od_test"].query("metric == 'accuracy'")
    both = matrix.pivot(index=["valid_set", "test_set"], columns="monitor", values="value")
    assert (both["brightness"] == both["brightness scale=2.0"]).all()


MINE = """
from dataclasses import dataclass
import numpy as np
from roadworthy.monitors import Monitor

@dataclass(frozen=True, kw_only=True)
class Mine(Monitor):
    name = "mine"
    needs = frozenset({"input"})
    seen = []

    def fit(self, training):
        return {"middle": np.array([usual(training)])}

    def read(self, signals, state):
        self.seen.append(len(signals))
        return -np.abs(signals.images.mean(axis=(1, 2, 3)) - state["middle"])

def usual(training):
    return 100.0
"""


def test_a_monitor_of_ones_own_that_was_edited_is_scored_anew(onnx: Path, tmp_path: Path) -> None:
    Brightness.seen.clear()
    values = []
    for source, asked in ((MINE, 5), (MINE, 0), (MINE.replace("100.0", "30.0"), 5)):
        module = tiny.import_text(source, tmp_path / "mine.py")
        found = run(onnx, tmp_path / "run", Brightness(), module.Mine())
        assert len(module.Mine.seen) == asked
        values.append(found.tables["od_test"].query("monitor == 'mine' and metric == 'accuracy'")["value"].tolist())
    assert values[0] == values[1] != values[2]
    assert len(Brightness.seen) == 5, "the other one is kept"


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_od_test as t
from roadworthy.engine import readouts
write, done = readouts.write_part, []
def until(*given):
    if len(done) == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    write(*given)
    done.append(given)
readouts.write_part = until
t.run(Path(sys.argv[2]), Path(sys.argv[3]), "msp", "random")
"""


def test_a_killed_run_goes_on_where_it_was(onnx: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    done = subprocess.run([sys.executable, "-c", KILLED, str(Path(__file__).parent), str(onnx), str(out)], check=False)
    assert done.returncode == -9
    assert not (out / "run.json").exists()
    stored = {path: path.stat().st_mtime_ns for path in out.glob("readouts/*/part-*.parquet")}
    assert len(stored) == 9
    damaged = min(stored)
    damaged.write_bytes(b"half")
    found, whole = run(onnx, out, "msp", "random"), run(onnx, tmp_path / "whole", "msp", "random")
    kept = {path for path, before in stored.items() if path.stat().st_mtime_ns == before}
    assert kept == {*stored} - {damaged}
    assert tiny.contents(out) == tiny.contents(whole.path)
    assert found.verify() == []


ONE_CLASS = (np.random.default_rng(0).integers(0, 255, (20, 32, 32, 3), dtype=np.uint8), np.zeros(20, np.int64))
ONE_KIND = (ONE_CLASS[0], np.zeros(20, np.int64), [*open_dataset(SIGNS).class_names])
SHARED = {"scenery": {"outliers": ["scenery"]}}
EVERY_SIGN = [*open_dataset(SIGNS).class_names]


@dataclass(frozen=True, kw_only=True)
class Darkness(Brightness):
    """Another class under a name that is taken."""

    scale: float = -1.0


class Impostor(Darkness):
    """A class under a name that is registered."""

    name: ClassVar[str] = "msp"


@dataclass(frozen=True, kw_only=True)
class Raising(Monitor):
    """Raises where it is told to: what its author did not foresee."""

    stage: str = "read"
    error: ClassVar[type[BaseException]] = OSError
    name: ClassVar[str] = "raising"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})

    def at(self, stage: str) -> None:
        if stage == self.stage:
            raise self.error("no luck\nat all")

    def recipe(self, *given: Any, **settings: Any) -> Any:
        if self.stage == "recipe":
            raise ValueError("no luck")
        return super().recipe(*given, **settings)

    def fit(self, training: Any) -> Any:
        self.at("fit")
        return {"one": np.ones(1)}

    def read(self, signals: Any, state: Any) -> Any:
        self.at("read")
        return signals.images.mean(axis=(1, 2, 3))

    def tune(self, inside: Any, outside: Any, aim: Any, state: Any) -> Any:
        self.at("tune" if outside is None else "tune with outliers")
        return {"inside": inside, **({} if outside is None else {"outside": outside})}

    def rate(self, rows: Any, rule: Any, state: Any) -> Any:
        self.at("rate" if any(np.array_equal(rows, known) for known in rule.values()) else "calibrated")
        return rows[:, 0]


class Nameless(Darkness):
    """Bears an empty name."""

    name: ClassVar[str] = ""


class Everything(Darkness):
    """Bears the name that stands for all monitors."""

    name: ClassVar[str] = "all"


REQUIRED = {"id": "R", "metric": "accuracy", "at_least": 0.0}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"monitors": ["odin"]}, "monitor odin needs gradients, which model .* supply a torch model"),
        ({"monitors": ["mc_dropout"]}, "needs samples"),
        ({"source": ONE_CLASS, "train": ONE_CLASS}, "name other images for one of the two"),
        ({"source": ONE_KIND, "train": None}, "one class only"),
        ({"train": ONE_KIND}, "source source holds images of one class only"),
        ({"monitors": [Nameless()]}, "the name '' of a monitor is empty"),
        ({"monitors": [Everything()]}, "a monitor cannot be called all"),
        (
            {"monitors": [Raising(stage="recipe")]},
            "raising stage=recipe cannot be planned: ValueError: no luck; or leave",
        ),
        ({"monitors": [Brightness]}, "a monitor is a name or a Monitor, not ABCMeta"),
        (
            {"outliers": OUTLIERS | {"signs": SIGNS}},
            "140 of 140 images of outliers signs are images of test data data of source source too",
        ),
        (
            {"outliers": OUTLIERS | {"seen": TRAIN}},
            "images of outliers seen are images of training data train of source source too",
        ),
        ({"outliers": OUTLIERS | {"again": OUTLIERS["scenery"]}}, "outliers again and outliers scenery share 20 of 20"),
        ({"outliers": OUTLIERS | {"again": "uniform_noise"}}, "uniform and again are the same images"),
        ({"outliers": {"uniform": "uniform_noise"}}, "meets 1 sets of outliers"),
        ({"outliers": OUTLIERS | {"s": "swirl"}}, "makers of noise"),
        ({"overlap": SHARED}, "outliers scenery are empty without the classes"),
        ({"overlap": {"scenery": {"source": ["no such"]}}}, "unknown class"),
        ({"near": ["moon"]}, "unknown set of outliers 'moon'"),
        ({"monitors": ["msp", "msp"]}, "named twice"),
        ({"monitors": []}, "needs a monitor"),
        (
            {"monitors": [Brightness(), Darkness(scale=-2.0)]},
            r"\.Darkness bears the name brightness .* name of its own",
        ),
        ({"monitors": [Impostor()]}, r"\.Impostor bears the name msp of another monitor, .*\.Msp: give it a name"),
        ({"overlap": {"scenery": {"source": EVERY_SIGN}}}, "no validation image left .* outliers scenery"),
        ({"name": "all"}, "'all' is not a valid name for a source"),
        ({"name": ""}, "'' is not a valid name for a source"),
        ({"outliers": OUTLIERS | {"all": "uniform_noise"}}, "'all' is not a valid name for a set of outliers"),
        ({"outliers": OUTLIERS | {" ": "uniform_noise"}}, "' ' is not a valid name for a set of outliers"),
        ({"cost": np.inf}, "cost: Input should be a finite number"),
        ({"cost": 1e300}, "cost: Input should be less than or equal to 1000000000"),
        ({"prior": 1.0}, "prior"),
        ({"threshold": "best"}, "threshold"),
        ({"criteria": [REQUIRED | {"where": {"monitor": "mspp"}}]}, "R: unknown monitor 'mspp': did you mean 'msp'"),
        ({"criteria": [REQUIRED | {"where": {"monitor": ["msp", "odin"]}}]}, "R: unknown monitor 'odin'"),
        ({"criteria": [REQUIRED | {"where": {"source": "sauce"}}]}, "R: unknown source 'sauce'"),
        ({"criteria": [REQUIRED | {"where": {"valid_set": "moon"}}]}, "R: unknown valid_set 'moon'"),
        ({"criteria": [REQUIRED | {"where": {"test_set": {"a": 1}}}]}, "R: unknown test_set"),
        ({"criteria": [REQUIRED | {"where": {"ood": "nera"}}]}, "R: unknown ood 'nera'"),
        ({"criteria": [REQUIRED | {"where": {"ood": "near"}}]}, "R matches no triple"),
        ({"criteria": [REQUIRED | {"where": {"protocol": "classification"}}]}, "R: unknown protocol 'classification'"),
    ],
)
def test_refused_before_anything_is_written(onnx: Path, tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    monitors = changes.get("monitors", ["msp"])
    rest = {key: value for key, value in changes.items() if key != "monitors"}
    with pytest.raises(InputError, match=sentence):
        rw.od_test(str(onnx), monitors=monitors, out=tmp_path / "run", **(ASKED | rest))
    assert not (tmp_path / "run").exists()


def test_a_temperature_is_fitted_on_validation_data_or_refused(onnx: Path, tmp_path: Path) -> None:
    model = Calibrated(load_model(str(onnx)))
    with pytest.raises(InputError, match="a temperature or a variance is fitted by the study: name held-out images"):
        rw.od_test(model, monitors=["msp"], out=tmp_path / "run", **ASKED)
    assert not (tmp_path / "run").exists()
    found = rw.od_test(
        model, monitors=["msp"], out=tmp_path / "run", **(ASKED | {"train": None, "source": SIGNS | {"n": 280}})
    )
    assert [artifact.builder for artifact in found.record.artifacts.values()].count("temperature") == 1
    assert found.verify() == []


def test_mirrored_copies_double_every_set(onnx: Path, tmp_path: Path) -> None:
    plain, doubled = run(onnx, tmp_path / "plain"), run(onnx, tmp_path / "doubled", mirror=True)
    n = [found.tables["od_test"].groupby("test_set")["n"].first() for found in (plain, doubled)]
    assert (2 * n[0] == n[1]).all()
    data = open_dataset({**SIGNS, "size": 16})
    both = Mirrored(data)
    assert set(both.groups) == set(data.groups)
    assert both.fingerprint() != data.fingerprint()
    assert both.resized((20, 20)).batch([0, len(data)]).images.shape == (2, 20, 20, 3)


def test_a_network_learns_from_mirrored_copies_and_holds_them_out_with_their_originals(
    onnx: Path, tmp_path: Path
) -> None:
    content = study(tmp_path, onnx, monitors={"knn_svm": {}})
    data, learned = content["sources"]["grey"]["data"], {}
    for mirror in (False, True):
        content["sources"]["grey"]["data"] = data | {"mirror": mirror}
        chosen = parse_study(content, "study")
        source = OpeningSource(
            chosen, "grey", chosen.by_source()["grey"], tmp_path, open_monitors(chosen), rw.no_progress
        )
        bench, _, _ = source.bench()
        network = bench.models["small"]
        assert isinstance(network, ReferenceModel)
        assert bench.train is network.data, "monitors learn from what the network learns from"
        learned[mirror] = network
    plain, mirrored = (network.data.batch(slice(None)) for network in learned.values())
    assert (mirrored.images == np.concatenate([plain.images, plain.images[:, :, ::-1]])).all()
    assert learned[False].recipe.hash != learned[True].recipe.hash
    trained_on, held_out = split_by_group(learned[True].data, (0.8, 0.2))
    assert not {*trained_on.groups} & {*held_out.groups}
    assert {image_id.removesuffix("/mirrored") for image_id in held_out.ids} == {*held_out.ids} & {*plain.ids}


def study(tmp_path: Path, onnx: Path, **changes: Any) -> dict[str, Any]:
    images = np.random.default_rng(3).integers(0, 255, (48, 16, 16), dtype=np.uint8)
    images[::2] //= 4
    np.savez(tmp_path / "grey.npz", images=images, labels=np.arange(48) % 2, class_names=["dark", "bright"])
    network = {"reference": "vgg", "epochs": 2, "width": 8, "hidden": 4, "batch": 8, "floor": 0.0}
    content = {
        "name": "tiny-od",
        "outliers": {**OUTLIERS, "signs": {**SIGNS}},
        "monitors": {
            "msp": {},
            "odin short": {"monitor": "odin", "temperatures": [1.0, 9.0], "epsilons": [0.0, 0.002]},
            "mc_dropout": {},
            "energy": {},
        },
        "sources": {
            "signs": {
                "data": {"test": {**SIGNS}, "train": {**TRAIN}},
                "models": {"tiny": {"onnx": str(onnx)}},
                "size": 32,
                "leave_out": ["odin", "mc_dropout"],
            },
            "grey": {
                "data": {"test": {"npz": str(tmp_path / "grey.npz")}, "split": [0.6, 0.2, 0.2]},
                "models": {"small": network},
                "exclude": ["normal"],
            },
        },
        "protocols": {"od_test": {"limit": 8}},
    }
    return content | changes


def test_a_study_of_two_sources_trains_its_network_and_matches_channels(
    onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study(tmp_path, onnx)))
    found = rw.run_study(path, out=tmp_path / "run", workers=1, progress=rw.no_progress)
    pairs = found.tables["od_test"].query("metric == 'accuracy'").groupby(["source", "monitor"]).size()
    assert pairs["signs"].to_dict() == {"energy": 6, "msp": 6}
    assert pairs["grey"].to_dict() == {"energy": 6, "mc_dropout": 6, "msp": 6, "odin short": 6}
    assert found.tables["od_test"]["n"].max() == 16
    overall = found.tables["od_test_methods"].query("source == 'all' and ood == 'all' and metric == 'accuracy'")
    assert overall.set_index("monitor")["reason"]["odin short"].startswith("1 of 2 sources only")
    builders = [artifact.builder for artifact in found.record.artifacts.values()]
    assert builders.count("reference_classifier") == 1
    assert found.verify() == []
    again = rw.run_study(found.path / "study.yaml", out=found.path, workers=1, progress=rw.no_progress)
    assert again.tables["od_test"].equals(found.tables["od_test"])

    def weak(home: Path) -> dict[str, Any]:
        return {**read_artifact(home), "competence": {"floor": 0.9, "clean_accuracy": 0.5}}

    monkeypatch.setattr("roadworthy.protocols.od_test.tables.read_artifact", weak)
    (row,) = again.verdict([REQUIRED | {"where": {"monitor": "msp"}, "over": "pooled"}]).findings[0].rows
    assert row.measurement.where == {"triples": 6, "without undertrained": "grey"}


def test_the_former_places_of_a_study_are_told_with_the_present_ones(onnx: Path, tmp_path: Path) -> None:
    content = study(tmp_path, onnx)
    for key, sentence in (
        ("sources", "sources: NAME: "),
        ("outliers", "under sets"),
        ("monitors", "monitor: deep_knn"),
    ):
        former = {"protocols": {"od_test": {key: content[key]}}, **{k: v for k, v in content.items() if k != key}}
        former["protocols"] = {"od_test": {key: content[key]}}
        with pytest.raises(InputError, match=f"protocols.od_test: .*{key} stand at the top of a study now.*{sentence}"):
            parse_study(former, "study")


def test_a_name_that_is_left_out_stands_for_all_its_settings(onnx: Path, tmp_path: Path) -> None:
    monitors = {"msp": {}, "knn_svm": {}, "two": {"monitor": "knn_svm", "k": 2}}
    content = study(tmp_path, onnx, monitors=monitors)
    content["sources"] = {"signs": content["sources"]["signs"] | {"leave_out": ["knn_svm"]}}
    lost = rw.run_study(content, out=tmp_path / "run", workers=1).tables["od_test_missing"]
    assert lost[["monitor", "triples"]].to_numpy().tolist() == [["knn_svm", 6], ["two", 6]]


def test_a_monitor_can_be_left_out_of_one_model_alone(onnx: Path, tmp_path: Path) -> None:
    """The other model has it; a criterion on the missing pair is refused, and a model that is not there is named."""
    content = study(tmp_path, onnx, monitors={"msp": {}, "energy": {}})
    signs = content["sources"]["signs"] | {"leave_out": ["twin/energy"]}
    signs["models"] = {"tiny": {"onnx": str(onnx)}, "twin": {"onnx": str(onnx)}}
    content["sources"] = {"signs": signs}
    run = rw.run_study(content, out=tmp_path / "run", workers=1)
    triples = run.tables["od_test"].query("metric == 'accuracy'").groupby(["model", "monitor"]).size().to_dict()
    assert triples == {("tiny", "energy"): 6, ("tiny", "msp"): 6, ("twin", "msp"): 6}
    lost = run.tables["od_test_missing"][["model", "monitor", "triples", "reason"]].to_numpy().tolist()
    assert lost == [["twin", "energy", 6, "left out by the study (leave_out)"]]
    assert run.verify() == []
    with pytest.raises(InputError, match="matches no triple"):
        run.verdict([REQUIRED | {"where": {"monitor": "energy", "model": "twin"}}])
    signs["leave_out"] = ["triplet/energy"]
    with pytest.raises(InputError, match="triplet/energy"):
        rw.run_study(content, out=tmp_path / "other")


def test_a_network_in_onnx_is_refused_gradients_before_it_is_trained(onnx: Path, tmp_path: Path) -> None:
    content = study(tmp_path, onnx, monitors={"odin": {}})
    del content["sources"]["signs"]
    content["sources"]["grey"]["models"] = {"plain": {"reference": "baseline"}}
    with pytest.raises(InputError, match="source grey: monitor odin needs gradients"):
        rw.run_study(content, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_fit_that_reads_the_last_layer_is_planned_before_its_network_is_trained(tmp_path: Path) -> None:
    content = {
        "data": {"test": SIGNS, "train": TRAIN | {"n": 350}},
        "models": {"plain": {"reference": "baseline", "epochs": 1, "width": 4, "hidden": 8, "floor": 0.0}},
        "size": 16,
        "outliers": OUTLIERS,
        "monitors": ["vim"],
        "protocols": {"od_test": {"limit": 20}},
    }
    found = rw.run_study(content, out=tmp_path / "run", workers=1, progress=rw.no_progress)
    matrix = found.tables["od_test"].query("metric == 'accuracy'")
    assert matrix["value"].notna().all()
    assert set(matrix["model"]) == {"plain"}, "a study of one source has no name for it"
    assert set(matrix["valid_set"]) == set(OUTLIERS), "noise is added where a study names none"


@pytest.mark.parametrize("name", ["od-test-small", "od-test-builtin", "od-test-seeds", "od-test-mirror", "od-test"])
def test_the_studies_that_come_with_it_can_be_read(name: str) -> None:
    chosen, _ = load_study(ROOT / "studies" / f"{name}.yaml")
    assert [protocol.name for protocol, _ in chosen.protocols.chosen()] == ["od_test"]
    assert open_monitors(chosen)
    for source in chosen.by_source().values():
        assert {*source.near, *source.exclude, *source.overlap} <= set(chosen.outliers)


def test_resnet50_has_the_weights_that_are_published_and_vgg16_the_layers_that_it_names() -> None:
    torch = pytest.importorskip("torch")
    count = sum(weight.numel() for weight in resnet50(1000, 32).parameters())
    assert count == 25_557_032 - 64 * 3 * (7 * 7 - 3 * 3)  # the stem is 3x3 in place of 7x7
    layers = [type(part).__name__ for part in vgg16(10, 32).modules()]
    assert (layers.count("Conv2d"), layers.count("Linear"), layers.count("Dropout")) == (13, 3, 3)
    assert small_resnet(7, 28, channels=1)(torch.zeros(1, 1, 28, 28)).shape == (1, 7)
    with pytest.raises(InputError, match="at least 32x32"):
        vgg16(10, 28)


@pytest.mark.parametrize("kind", ["vgg", "resnet"])
def test_reference_networks_give_what_monitors_need(kind: str, tmp_path: Path) -> None:
    data = open_dataset({"builtin": "signs", "n": 350, "size": 16})
    model = ReferenceModel(kind, epochs=1, width=16, hidden=4, batch=32).on(data)
    model.build(tmp_path)
    model.load(tmp_path)
    batch = data.batch(slice(0, 4))
    assert np.allclose(model.predict(batch).probabilities, model.opened().answer(batch, 4).probabilities, atol=1e-5)
    assert model.capabilities == model.untrained().capabilities == model.opened().capabilities
    for name in ("odin", "vim", "deep_knn"):
        make_monitor(name).check(model.untrained())


def test_settings_that_a_network_does_not_have_are_refused() -> None:
    with pytest.raises(InputError, match="no dropout"):
        ReferenceModel("resnet", dropout=0.5)
    with pytest.raises(InputError, match="its own width"):
        ReferenceModel("vgg16", width=8)


@dataclass(frozen=True, kw_only=True)
class Short(Monitor):
    """Keeps one row of each batch."""

    name: ClassVar[str] = "short"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})

    def read(self, signals: Any, state: Any) -> Any:
        return signals.images.mean(axis=(1, 2, 3))[:1]


def test_a_representation_is_there_whole_or_not_at_all(onnx: Path, tmp_path: Path) -> None:
    found = run(onnx, tmp_path / "run", Brightness(), Short())
    (reason,) = found.tables["od_test_missing"]["reason"]
    assert reason == ("failed: monitor short: read must return one row per image, (N,) or (N, D) with N = 64, not (1,)")
    asked = [(asked.labels, found.path / case.folder) for _, _, asked, case in found.record.asked()]
    homes = [home for labels, home in asked if (labels["role"], labels["set"]) == ("monitor", "test")]
    whole, lost = homes
    stored = read_columns(whole, own_node(whole), "representation", "id")
    assert stored["representation"].shape == (28, 1)
    assert len(set(stored["id"])) == 28
    assert not lost.exists()
    (whole / "manifest.json").unlink()
    with pytest.raises(InputError, match="manifest"):
        read_columns(whole, own_node(whole), "representation")


def weak(represented: Represented) -> Represented:
    return replace(represented, source="weak", architecture="resnet", undertrained=True)


def test_undertrained_sources_are_marked_and_left_out_of_the_means() -> None:
    good, poor = by_hand(architecture="vgg"), weak(by_hand(test=sample([0, 0, 0, 0])))
    only = replace(poor, label="alone")
    rows = [row for each in (good, poor, only) for row in evaluate(each, Aim())]
    found = matrix_tables(rows, [row for each in (good, poor, only) for row in evaluate_unsupervised(each, Aim())])
    means = found["od_test_methods"].query("ood == 'all' and metric == 'accuracy'").set_index(["source", "monitor"])
    assert means.loc[("all", "msp"), "value"] == pytest.approx(means.loc[("source", "msp"), "value"])
    assert means.loc[("all", "msp"), "reason"] == "without undertrained: weak"
    assert np.isnan(means.loc[("all", "alone"), "value"])
    assert means["undertrained"].to_dict() == {
        ("all", "msp"): False,
        ("all", "alone"): False,
        ("source", "msp"): False,
        ("weak", "msp"): True,
        ("weak", "alone"): True,
    }
    assert set(found["od_test_architectures"]["architecture"]) == {"all", "vgg", "resnet"}
    assert found["od_test_heatmap"]["sources"].max() == 1
    weak_alone = [row for row in rows if row["undertrained"]]
    everything = matrix_tables(weak_alone, [row | {} for row in evaluate(poor, Aim())])
    assert not everything["od_test_methods"]["value"].isna().any(), "where no other source is there, they count"


def test_a_calibration_that_is_refused_gives_no_value_and_says_why() -> None:
    represented = by_hand(outliers={"a": sample([1, 2, 3, 4]), "b": sample([0.0])})
    rows = evaluate(represented, Aim(threshold="hinge"))
    found = {(row["valid_set"], row["test_set"]): row for row in rows if row["metric"] == "accuracy"}
    assert np.isnan(found["b", "a"]["value"])
    assert "needs more images" in found["b", "a"]["reason"]
    assert found["a", "b"]["value"] > 0
    means = matrix_tables(rows, evaluate_unsupervised(represented, Aim()))["od_test_methods"]
    overall = means.query("source == 'all' and ood == 'all' and metric == 'accuracy'").iloc[0]
    assert (overall["triples"], overall["reason"].split(";")[0]) == (1, "1 of 2 triples have no value")


CRITERIA = [
    {"id": "easy", "metric": "accuracy", "where": {"monitor": "msp", "test_set": "uniform"}, "at_least": 0.01},
    {"id": "worst", "metric": "accuracy", "over": "worst", "at_least": 0.999},
    {"id": "mean", "metric": "accuracy", "where": {"ood": "far"}, "over": "pooled", "at_least": 0.01},
]


def test_a_run_ends_with_a_verdict_and_a_report_that_hide_nothing(onnx: Path, tmp_path: Path) -> None:
    found = run(onnx, tmp_path / "run", "msp", "random", Broken(), criteria=CRITERIA, near=["scenery"])
    assert found.verify() == []
    verdict = found.verdict()
    assert [finding.status for finding in verdict.findings] == ["pass", "fail", "inconclusive"]
    served = CRITERIA[2] | {"where": {"ood": "far", "monitor": ["msp", "random"]}}
    assert found.verdict([served]).findings[0].status == "pass"
    assert found.verdict([served]).status == "inconclusive", "a monitor failed, whether or not it is asked for"
    assert found.verdict([served]).findings[0].rows[0].measurement.where == {"triples": 8}
    wide, narrow = (
        found.verdict([CRITERIA[0] | {"confidence": c}]).findings[0].rows[0].measurement.estimate for c in (0.99, 0.5)
    )
    assert wide.lo < narrow.lo <= narrow.hi < wide.hi
    lost = found.tables["od_test_missing"]
    assert lost.to_dict("records") == [
        {
            "source": "source",
            "valid_set": "all",
            "test_set": "all",
            "monitor": "broken",
            "triples": 6,
            "reason": "failed: no <b>luck</b> today",
        }
    ]
    page = (found.path / "report.html").read_text()
    text = page.partition('<script type="application/json"')[0]
    assert "no &lt;b&gt;luck&lt;/b&gt; today" in text
    assert "<b>luck" not in page
    assert "positive class" in text
    assert {"tables/od_test.csv", "tables/od_test_methods.tex"} <= set(re.findall(r'href="([^"]+)"', text))
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
    charts = json.loads(page.partition('id="figures">')[2].partition("</script>")[0])
    names = ("ranking-chart", "source-0", "heat-0", "near-far", "cost-chart")
    assert {f"od_test-{name}" for name in names} <= set(charts)
    ids = re.findall(r'id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(charts) <= set(ids)
    best = found.tables["od_test_methods"].query("source == 'all' and ood == 'all' and metric == 'accuracy'")
    top = best.sort_values("value", ascending=False)["monitor"].iloc[0]
    assert charts["od_test-ranking-chart"][0]["layout"]["yaxis"]["ticktext"][0] == top
    before = page
    assert found.report().read_text() == before
    assert found.headline()[0].startswith("Verdict: fail")
    found.save_verdict(found.verdict([CRITERIA[0]]))
    assert "Verdict: inconclusive. The one criterion passes. 1 monitor failed" in found.headline()[0]
    found.save_verdict(found.verdict([served]))
    assert "</b> pairs of source and test set</span>" in found.report().read_text(), "what a pooled criterion counts"
    assert found.verify() == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"metric": "brier"}, "unknown metric 'brier'"),
        ({"where": {"shift": "fog"}}, "unknown condition 'shift'"),
        ({"where": {"monitor": "no such"}}, "unknown monitor 'no such'"),
        ({"where": {"protocol": ["od_test", "ood"]}}, "unknown protocol 'ood'"),
    ],
)
def test_criteria_that_speak_of_something_else_are_refused(changes: dict[str, Any], sentence: str) -> None:
    criterion = Criterion.model_validate(CRITERIA[0] | changes)

    def measured() -> None:
        check_criterion(criterion)
        check_triples(criterion, triples_of("source", ["msp"], "abc"))

    with pytest.raises(InputError, match=sentence):
        measured()


@pytest.mark.parametrize("over", ["each", "worst", "pooled"])
@pytest.mark.parametrize("where", [{}, {"monitor": "broken"}])
def test_no_criterion_passes_over_a_monitor_that_failed(
    onnx: Path, tmp_path: Path, over: str, where: dict[str, Any]
) -> None:
    criterion = REQUIRED | {"over": over, "where": where}
    found = run(onnx, tmp_path / "run", Brightness(), Broken(), criteria=[criterion])
    stored = json.loads((found.path / "verdict.json").read_text())
    assert stored["status"] == "inconclusive"
    assert "no <b>luck</b> today" in stored["criteria"][0]["because"]
    if over == "each":
        assert sum(row["value"] is None for row in stored["criteria"][0]["rows"]) == 6


def test_a_pooled_criterion_leaves_undertrained_sources_out_unless_it_speaks_of_no_other() -> None:
    good, poor = by_hand(), weak(by_hand(test=sample([0, 0, 0, 0])))
    alone = replace(poor, label="alone")
    rows = [row for each in (good, poor, alone) for row in evaluate(each, Aim())]

    def pooled(where: dict[str, Any], sources: dict[str, bool]) -> Any:
        criterion = Criterion.model_validate(REQUIRED | {"over": "pooled", "where": where})
        (found,) = measure(rows, criterion, 0.95, dropped_sources(sources, criterion))
        return found

    both = {"source": False, "weak": True}
    mean = {each.source: np.mean(list(values(evaluate(each, Aim())).values())) for each in (good, poor)}
    assert pooled({"monitor": "msp"}, both).estimate.value == pytest.approx(mean["source"])
    assert pooled({"monitor": "msp"}, both).where == {"triples": 6, "without undertrained": "weak"}
    assert pooled({"monitor": "msp", "source": "weak"}, both).estimate.value == pytest.approx(mean["weak"])
    every = dict.fromkeys(both, True)
    assert pooled({"monitor": "msp"}, every).estimate.value == pytest.approx(np.mean(list(mean.values())))
    assert np.isnan(pooled({"monitor": "alone"}, both).estimate.value)
    assert "undertrained" in pooled({"monitor": "alone"}, both).estimate.reason


def ranked(
    *known: tuple[str, str, str], missing: tuple[str, str, str] | None = None, judged: str = "accuracy"
) -> dict[str, int | None]:
    """Ranks of monitors that have these triples of (monitor, D_v, D_t), of a source that meets a, b and c."""
    sets = {f"outliers/{name}": 1 for name in "abc"}
    source = Source("s", "vgg", False, 2, "8 x 8", (), sets | {"test": 1}, {})
    triples = {("s", *each): Estimate(0.5) for each in known} | ({("s", *missing): Estimate(np.nan)} if missing else {})
    means = {("all", "all", label, judged): Estimate(0.5 + 0.1 * (label == "y")) for label in "xy"}
    return {method.label: method.rank for method in rank_monitors(means, triples, (source,), judged)}


def test_only_monitors_that_have_every_triple_are_ranked() -> None:
    pairs = [(one, other) for one in "abc" for other in "abc" if one != other]
    x, y = ([(label, *pair) for pair in pairs] for label in "xy")
    assert ranked(*x, *y) == {"y": 1, "x": 2}
    assert ranked(*x, *y, judged="expected_cost") == {"x": 1, "y": 2}
    assert ranked(*x, *y[1:], missing=y[0]) == {"x": 1, "y": None}
    assert ranked(*x[:-1], *y[1:]) == {"x": None, "y": None}, "as many, but others"


STAGES = ("fit", "read", "tune with outliers", "rate", "calibrated")


@pytest.fixture(scope="module")
def partly(onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    out = tmp_path_factory.mktemp("partly") / "run"
    found = run(onnx, out, "msp", Brightness(), *(Raising(stage=stage) for stage in STAGES))
    assert isinstance(found, rw.Run)
    return found


def test_a_monitor_that_raises_anything_fails_alone_and_says_why(partly: rw.Run) -> None:
    matrix = partly.tables["od_test"].query("metric == 'accuracy'").set_index("monitor")
    assert not matrix.loc[["msp", "brightness"], "value"].isna().any()
    lost = partly.tables["od_test_missing"]
    reasons = {label.removeprefix("raising stage="): set(rows["reason"]) for label, rows in lost.groupby("monitor")}
    assert reasons == {
        "fit": {"failed: OSError: no luck"},
        "raising": {"failed: OSError: no luck"},
        "tune with outliers": {"not calibrated: OSError: no luck"},
        "rate": {"not calibrated: OSError: no luck"},
        "calibrated": {"not scored: OSError: no luck"},
    }
    assert lost.groupby("monitor")["triples"].sum().eq(6).all()


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_is_out_of_a_monitor_s_hands_stops_the_run(
    onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr(Raising, "error", error)
    for stage in ("rate", "calibrated"):
        with pytest.raises(error):
            evaluate(by_hand(monitor=Raising(stage=stage).build(ToyModel(), toy_data()[0])), Aim())
    with pytest.raises(error):
        run(onnx, tmp_path / "run", Raising())


class FullDisk(OSError):
    def __init__(self, text: str) -> None:
        super().__init__(errno.ENOSPC, text)


def test_a_disk_that_is_full_stops_the_run_and_blames_no_monitor(
    onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "error", FullDisk)
    with pytest.raises(InputError, match=r"cannot write to .*: no luck"):
        run(onnx, tmp_path / "run", Raising(stage="fit"))


def test_an_attempt_that_fails_leaves_a_finished_run_as_it_was(onnx: Path, partly: rw.Run) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in partly.path.rglob("*") if path.is_file()}

    before = content()
    for stage in ("read", "rate"):
        with pytest.raises(ModelError, match=r"every monitor failed; the first: .*OSError: no luck"):
            run(onnx, partly.path, Raising(stage=stage), limit=20)
        assert content() == before


def test_a_run_knows_the_monitors_it_was_given_and_another_process_says_what_it_lacks(
    partly: rw.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert partly.verify() == []
    monkeypatch.setattr("roadworthy.monitors.kinds._SEEN", {})
    found = rw.open_run(partly.path)
    for ask in (found.verify, lambda: found.verdict([REQUIRED])):
        with pytest.raises(InputError, match=r"monitor brightness is not known here: import .* roadworthy\.monitors"):
            ask()


def test_a_run_is_compared_monitor_by_monitor(partly: rw.Run) -> None:
    with pytest.raises(InputError, match="holds one model only"):
        compare_runs([partly.path])
    table = compare_runs([partly.path, partly.path])
    assert set(table["protocol"]) == {"od_test"}
    told = {row["condition"].partition(":")[0]: row for row in table.to_dict("records")}
    assert {"msp", "brightness", "raising stage=calibrated"} <= set(told)
    assert (told["msp"]["result"], told["msp"]["change"]) == ("no clear difference", 0)
    assert told["raising stage=calibrated"]["reason"] == "not scored: OSError: no luck"
    assert told["raising stage=fit"]["reason"] == "failed: OSError: no luck"


def test_a_source_that_shared_classes_leave_empty_gives_no_value_and_a_reason() -> None:
    rows = evaluate(by_hand(test=sample([5, 6], labels=[1, 1]), overlap={"b": frozenset({1})}), Aim())
    lost = {(row["valid_set"], row["test_set"], row["reason"]) for row in rows if np.isnan(row["value"])}
    assert lost == {("a", "b", "no image is left on one side"), ("c", "b", "no image is left on one side")}


def test_held_out_images_that_are_trained_on_are_counted(onnx: Path, tmp_path: Path) -> None:
    held, train = (open_dataset({**spec, "n": 140, "size": 32}) for spec in (SIGNS, TRAIN))
    signs, others = (data.batch(range(len(data))) for data in (held, train))
    given = open_dataset((signs.images, signs.labels, EVERY_SIGN), name="signs")

    def trained_on(rows: slice) -> Any:
        images, labels = np.concatenate([others.images, signs.images[rows]]), [*others.labels, *signs.labels[rows]]
        return run(onnx, tmp_path / "run", Brightness(), source=given, train=(images, np.array(labels), EVERY_SIGN))

    with pytest.raises(InputError, match=f"2 of 140 images of test data .* too, such as {given.ids[5]}: take them out"):
        trained_on(slice(5, 7))
    assert not (tmp_path / "run").exists()
    with pytest.warns(UserWarning, match=f"1 of 140 images of test data .* too, such as {given.ids[5]}: take them out"):
        found = trained_on(slice(5, 6))
    assert found.record.sources["source"].data.seen == [given.ids[5]]


def test_a_set_that_bears_the_name_of_a_source_is_that_source(onnx: Path, tmp_path: Path) -> None:
    content = study(tmp_path, onnx, monitors={"msp": {}})
    signs = content["sources"]["signs"] | {"leave_out": []}

    def met(spec: Any, **changes: Any) -> set[str]:
        content["sources"], content["outliers"] = {"signs": signs | changes}, OUTLIERS | {"signs": spec}
        prepared = prepare(parse_study(content, "study"), progress=rw.no_progress)
        return {key.partition("/")[2] for key in prepared.contexts["od_test"]["signs"].images if "/" in key}

    assert met(SIGNS) == met(SIGNS | {"n": 70}) == met(TRAIN) == set(OUTLIERS)
    grey = {"npz": str(tmp_path / "grey.npz")}
    assert met(grey, exclude=["signs"]) == set(OUTLIERS)
    for other in (grey, "uniform_noise"):
        with pytest.raises(InputError, match="outliers signs bear the name of source signs but are other data"):
            met(other)


def test_a_report_without_ranks_says_so(onnx: Path, tmp_path: Path) -> None:
    content = study(tmp_path, onnx, monitors=["msp", "random"])
    signs = content["sources"]["signs"] | {"leave_out": ["msp"]}
    other = signs | {"leave_out": ["random"], "data": {"test": SIGNS | {"seed": 3}, "train": TRAIN}}
    content |= {"sources": {"signs": signs, "others": other}, "outliers": OUTLIERS}
    found = rw.run_study(content, out=tmp_path / "run", workers=1)
    assert "No monitor is ranked: none has a value for all of 12 triples" in (found.path / "report.html").read_text()
    assert "no monitor has a value for every triple" in found.headline()[1]
    kinds = set(found.tables["od_test_architectures"]["architecture"])
    assert kinds == {"all", onnx.stem}, "one file is one architecture, whatever the sources"


def test_a_model_may_fill_its_own_arrays_again() -> None:
    buffer = np.empty((4, 2), np.float32)

    def answer(images: Any) -> Any:
        buffer[:, 0] = images.mean(axis=(1, 2, 3)) / 255
        buffer[:, 1] = 1 - buffer[:, 0]
        return buffer

    given = load_model(answer, num_classes=2, version="1", outputs="logits", name="refills", size=4)

    def asked(value: int) -> Any:
        images = np.full((4, 4, 4, 3), value, np.uint8)
        return Signals(given, Batch(ids=tuple("abcd"), images=images, labels=np.zeros(4, np.int64)), 4).logits

    first = asked(0)
    assert asked(255)[0].tolist() == [1, 0]
    assert first[0].tolist() == asked(0)[0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 5
    assert buffer.flags.writeable


def test_the_quick_pass_is_torch_s_and_follows_the_weights() -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()
    images = np.random.default_rng(0).random((4, 3, 2, 2), dtype=np.float32)
    quick = QuickForward()

    def scores() -> Any:
        return network(torch.from_numpy(images)).detach().numpy()

    forward = quick.of(network, images, scores())
    assert forward is not None
    np.testing.assert_allclose(forward(images[:1]), scores()[:1], atol=1e-6)
    with torch.no_grad():
        network[1].weight.add_(1.0)
    again = quick.of(network, images, scores())
    assert again is not None
    np.testing.assert_allclose(again(images), scores(), atol=1e-5)
    assert quick.of(network, images, scores() + 1) is None, "another network's scores"
    assert quick.of(network, images, scores()) is again, "a batch that disagrees decides for itself alone"
    assert QuickForward().of(network.double(), images.astype(np.float64), scores) is None  # type: ignore[arg-type]


def test_the_choice_of_the_quick_pass_does_not_depend_on_what_was_asked_before() -> None:
    """A branch that an export cannot follow: it is taken for bright images, as the images of the trace are."""
    torch = pytest.importorskip("torch")

    class Branching(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.mean(dim=(2, 3)) if x.mean() > 0.25 else 1 - x.mean(dim=(2, 3))

    network = Branching().eval()
    bright = np.random.default_rng(0).random((8, 3, 4, 4), dtype=np.float32)
    mixed = bright.copy()
    mixed[:2] /= 100
    batches = {"bright": bright, "mixed": mixed, "dark": bright / 100, "upside down": bright[::-1].copy()}

    def chosen(order: list[str]) -> dict[str, bool]:
        quick = QuickForward()
        answers = {name: network(torch.from_numpy(batches[name])).numpy() for name in order}
        return {name: quick.of(network, batches[name], answers[name]) is not None for name in order}

    expected = {"bright": True, "mixed": True, "dark": False, "upside down": True}
    assert chosen([*batches]) == expected
    assert chosen([*reversed(batches)]) == expected
