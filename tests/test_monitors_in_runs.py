"""Monitors in a run: what a model is asked, what is computed again, what fails alone, what is compared."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml

import roadworthy as rw
import tiny
from commands import call
from roadworthy.api import compare_runs
from roadworthy.monitors import Monitor, make_monitor
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.preparing import prepare, prepare_recipe
from roadworthy.study import load_study

TRAIN, HELD_OUT, _, FLAT = toy_data()
SETS: dict[str, Any] = {"flat": FLAT, "uniform": "uniform_noise", "normal": "normal_noise"}
EVERY = ["msp", "max_logit", "energy", "kl_matching", "random", "score_svm", "knn_svm", "openmax", "mahalanobis"]
EVERY += ["deep_knn", "vim", "react"]


class Asked(ToyModel):
    """Notes what it is asked: the kind of signal, the stimulus and the images."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, frozenset[str]]] = []

    def predict(self, batch: Any) -> Any:
        self.calls.append(("predict", batch.stimulus, frozenset(batch.ids)))
        return super().predict(batch)

    def features(self, batch: Any, layer: str) -> Any:
        self.calls.append((f"features:{layer}", batch.stimulus, frozenset(batch.ids)))
        return super().features(batch, layer)


def od_test(model: Any, out: Path, *monitors: Any, **changes: Any) -> rw.Run:
    given = {"source": HELD_OUT, "train": TRAIN, "outliers": SETS, "limit": 40, "workers": 1} | changes
    found: rw.Run = rw.od_test(model, monitors=monitors, out=out, progress=rw.no_progress, **given)
    return found


def asked(model: Asked, run: rw.Run) -> Counter[tuple[str, str]]:
    """How often a model was asked for a signal of an image by the cases of a run; what was noted is forgotten."""
    shown = {case.stimulus.value().key: case.stimulus.data for case in run.record.cases.values()}
    counts = Counter(
        (kind, f"{shown[stimulus]}/{name}") for kind, stimulus, ids in model.calls if stimulus in shown for name in ids
    )
    model.calls.clear()
    return counts


def images(counts: Counter[tuple[str, str]], kind: str) -> int:
    """Of how many images a signal was asked, of each once."""
    own = [number for (signal, _), number in counts.items() if signal == kind]
    assert set(own) <= {1}
    return len(own)


def test_one_more_monitor_asks_for_what_it_lacks_alone_and_once(tmp_path: Path) -> None:
    model, held = Asked(), 5 * 40

    def added(*monitors: str) -> Counter[tuple[str, str]]:
        return asked(model, od_test(model, tmp_path / "run", *monitors))

    first = added("msp", "kl_matching")
    assert images(first, "predict") == len(first) == held + len(TRAIN)
    second = added("msp", "kl_matching", "deep_knn")
    assert images(second, "features:hidden") == len(second) == held + len(TRAIN)
    third = added("msp", "kl_matching", "deep_knn", "mahalanobis")
    assert images(third, "features:hidden") == len(third) == held, "training signals are stored"
    fourth = added("msp", "kl_matching", "deep_knn", "mahalanobis", "energy")
    assert images(fourth, "predict") == len(fourth) == held
    assert not added("msp", "energy", "deep_knn"), "fewer ask for nothing"


def test_a_model_is_asked_once_for_each_signal_however_many_monitors(tmp_path: Path) -> None:
    model = Asked()
    further = [make_monitor("knn_svm", k=2), make_monitor("deep_knn", k=5), make_monitor("mahalanobis", layer="hidden")]
    run = od_test(model, tmp_path / "run", *EVERY, *further)
    assert run.tables["od_test"]["monitor"].nunique() == 15
    counts = asked(model, run)
    assert images(counts, "predict") == images(counts, "features:hidden") == 5 * 40 + len(TRAIN)
    assert len(counts) == 2 * (5 * 40 + len(TRAIN))


MODEL = """
import hashlib, os, pathlib
import numpy as np

def answer(images):
    if os.environ.get("COUNTING"):
        with pathlib.Path("asked").open("a") as file:
            file.writelines(hashlib.sha1(image.tobytes()).hexdigest() + "\\n" for image in images)
    light = images.mean(axis=(1, 2, 3)) / 255
    return np.stack([1 - light, light], axis=1).astype(np.float32)
"""
DRIVER = '''
import os, random, signal
from pathlib import Path
import roadworthy as rw
import roadworthy.report, roadworthy.protocols.pages  # once for all processes
from roadworthy.engine import plan, readouts
from roadworthy.engine.local import LocalExecutor

plan.CHUNK_IMAGES = 4
run, write_part, write_receipt = LocalExecutor.run, readouts.write_part, readouts.write_receipt

def counting(self, *given):
    os.environ["COUNTING"] = "1"
    return run(self, *given)

def attempt(out, left, moment):
    """Run the study in a process of its own, killed at the `left`th part: before it, without its receipt, or after."""
    def at(now):
        nonlocal left
        left -= now == "before"
        if left == 0 and now == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    def part(*given):
        at("before")
        write_part(*given)
        at("after")
    def receipt(*given):
        at("without receipt")
        write_receipt(*given)
    child = os.fork()
    if not child:
        readouts.write_part, readouts.write_receipt = part, receipt
        LocalExecutor.run = counting
        rw.run_study("study.yaml", out=out, workers=1, trust=True, progress=rw.no_progress)
        os._exit(0)
    return os.waitpid(child, 0)[1]

def parts():
    return {str(p): p.stat().st_mtime_ns for p in Path("killed").glob("readouts/*/part-*.parquet") if done(p)}

def done(path):
    return path.with_name(path.name + ".sha256").exists() or path.with_name("manifest.json").exists()

rng = random.Random(14)
kept = []
for _ in range(5):
    moment = rng.choice(["before", "without receipt", "after"])
    assert attempt("killed", rng.randint(2, 16), moment) == signal.SIGKILL
    kept.append(parts())
assert attempt("killed", -1, "") == 0
final = parts()
assert all(final[path] == written for known in kept for path, written in known.items()), "a part was computed again"
assert [len(known) for known in kept] == sorted(len(known) for known in kept)
assert any(path.endswith("part-00002.parquet") for known in kept for path in known)
os.rename("asked", "asked_killed")
assert attempt("whole", -1, "") == 0
'''


def test_a_killed_run_goes_on_by_chunk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(100) % 2
    pixels = (labels[:, None, None, None] * 120 + rng.integers(0, 60, (100, 8, 8, 3))).astype(np.uint8)
    np.savez(tmp_path / "data.npz", images=pixels, labels=labels, class_names=["dark", "bright"])
    (tmp_path / "m.py").write_text(MODEL)
    study = {
        "name": "s",
        "batch": 4,
        "data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]},
        "models": {"m": {"callable": "m.py:answer", "num_classes": 2, "version": "1", "isolate": False}},
        "outliers": {"a": "uniform_noise", "b": "normal_noise"},
        "monitors": ["msp", "kl_matching"],
        "protocols": {"od_test": {}},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    done = subprocess.run([sys.executable, "-c", DRIVER], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert tiny.contents(tmp_path / "killed") == tiny.contents(tmp_path / "whole")
    assert rw.open_run(tmp_path / "killed").verify() == []
    whole, killed = (len((tmp_path / name).read_text().splitlines()) for name in ("asked", "asked_killed"))
    assert whole == 60 + 4 * 20
    assert whole < killed <= whole + 5 * 4, "at most the chunk that was in work is asked for again"


@dataclass(frozen=True, kw_only=True)
class BesideOutliers(Monitor):
    """How much nearer an image is to the training images than to the validation outliers, by its mean grey value."""

    name: ClassVar[str] = "beside_outliers"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})
    learns_from: ClassVar[tuple[str, ...]] = ("train", "valid_outliers")
    seen: ClassVar[list[tuple[str, ...]]] = []

    def fit(self, training: Any) -> Any:
        self.seen.append(training.fingerprints())
        means = [part.gather("images").mean(axis=(1, 2, 3)).mean() for part in (training, training.outliers)]
        return {"means": np.array(means)}

    def read(self, signals: Any, state: Any) -> Any:
        inside, outside = np.abs(signals.images.mean(axis=(1, 2, 3))[:, None] - state["means"]).T
        return outside - inside


def test_a_monitor_that_fits_on_d_v_sees_that_set_alone(tmp_path: Path) -> None:
    BesideOutliers.seen.clear()
    run = od_test(ToyModel(), tmp_path / "run", "msp", BesideOutliers())
    matrix = run.tables["od_test"].query("monitor == 'beside_outliers' and metric == 'accuracy'")
    pairs = {(one, other) for one in SETS for other in SETS if one != other}
    assert set(zip(matrix["valid_set"], matrix["test_set"], strict=True)) == pairs
    assert matrix["value"].notna().all()
    shown = {asked.labels["set"]: case.stimulus.data for _, _, asked, case in run.record.asked()}
    assert [fingerprints[0] for fingerprints in BesideOutliers.seen] == [TRAIN.fingerprint()] * 3
    assert [fingerprints[1:] for fingerprints in BesideOutliers.seen] == [(shown[f"outliers/{name}"],) for name in SETS]
    fits = {
        asked.labels["fitted_on"]: asked.labels["artifact"]
        for _, _, asked, _ in run.record.asked()
        if asked.system == "beside_outliers"
    }
    assert list(fits) == list(SETS)
    assert len(set(fits.values())) == 3
    alone = run.tables["od_test_unsupervised"].query("monitor == 'beside_outliers'")
    assert alone["value"].isna().all()
    assert set(alone["reason"]) == {"it learns from the validation outliers, so it has no threshold without them"}
    thresholds = run.tables["od_test_thresholds"].set_index("monitor")
    assert "no threshold" in thresholds.loc["beside_outliers", "reason"]
    assert run.verify() == []
    compared = compare_runs([run, run]).query("condition.str.startswith('beside_outliers')")
    assert len(compared) == 6
    assert set(compared["result"]) == {"no clear difference"}


def mixed(folder: Path, **changes: Any) -> Path:
    """A study file that runs classification and OD-test on the same signs."""
    criteria = [
        {"id": "C", "metric": "accuracy", "where": {"shift": "none", "protocol": "classification"}, "at_least": 0.05},
        {"id": "O", "metric": "accuracy", "where": {"protocol": "od_test", "monitor": "msp"}, "at_least": 0.001},
    ]
    asked = {
        "data": {"test": {"builtin": "signs", "n": 140}, "train": {"builtin": "signs", "split": "train", "n": 70}},
        "outliers": {"scenery": {"builtin": "scenery", "n": 20}},
        "monitors": ["msp", "kl_matching"],
        "protocols": {"classification": {"shifts": ["noise"], "levels": [3]}, "od_test": {"limit": 28}},
        "criteria": criteria,
    }
    return tiny.write_study(folder, **(asked | changes))


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beside")
    call("run", mixed(folder), "--out", folder / "run", "--workers", 1)
    return folder


def test_od_test_stands_beside_classification_in_one_run(beside: Path) -> None:
    run = rw.open_run(beside / "run")
    assert list(run.record.protocols) == ["classification", "od_test"]
    assert {"classification", "od_test", "od_test_methods"} <= set(run.tables)
    assert [finding.criterion.id for finding in run.verdict().findings] == ["C", "O"]
    assert run.verdict().status == "pass"
    page = run.report().read_text()
    assert 'id="od_test-ranking"' in page
    assert 'id="classification-' in page
    assert call("verify", beside / "run").rstrip().endswith("follow from the readouts")
    before = {path for path in beside.rglob("*") if path.is_file()}
    lines = call("run", beside / "study.yaml", "--dry-run", "--out", beside / "run").splitlines()
    own = {name: len(part.sources[""].cases) for name, part in run.record.protocols.items()}
    assert [line.split(None, 1)[1] for line in lines if line.startswith("protocol")] == [
        f"{name}: {cases} cases" for name, cases in own.items()
    ]
    total = len(run.record.cases)
    assert any(line.startswith(f"cases     {total}, {total} of them done") for line in lines)
    assert {path for path in beside.rglob("*") if path.is_file()} == before


def test_two_mixed_runs_are_compared_by_models_and_monitors(beside: Path, tmp_path: Path) -> None:
    tiny.save_onnx(tmp_path / "tiny.onnx", blur=0.3)
    study = mixed(tmp_path, monitors=["msp", "random"])
    call("run", study, "--out", tmp_path / "run", "--workers", 1, "--accept-chance")
    table = compare_runs([beside / "run", tmp_path / "run"])
    assert set(table["protocol"]) == {"classification", "od_test"}
    own = table[table["protocol"] == "od_test"]
    pairs = own[own["condition"].str.startswith("msp: ")]
    assert set(pairs["subject"]) == {"monitors"}
    assert len(pairs) == 6
    assert pairs["p"].notna().all()
    reasons = own.set_index("condition")["reason"]
    assert reasons["kl_matching: all"] == "run/tiny has no monitor kl_matching"
    assert reasons["random: all"] == "run/tiny has no monitor random"


def test_workers_change_no_byte(tmp_path: Path) -> None:
    contents = []
    for workers in (1, 3):
        run = od_test(ToyModel(), tmp_path / str(workers), "msp", "kl_matching", "vim", "random", workers=workers)
        contents.append(tiny.contents(run.path))
    assert contents[0] == contents[1]
    assert len([name for name in contents[0] if "/part-" in name]) > 20


@dataclass(frozen=True, kw_only=True)
class Failing(Monitor):
    """Raises where it is told to."""

    where: str = "fit"
    name: ClassVar[str] = "failing"

    def fit(self, training: Any) -> Any:
        if self.where == "fit":
            raise KeyError("lost")
        return {}

    def read(self, signals: Any, state: Any) -> Any:
        raise ZeroDivisionError("nothing\nleft")


def test_a_monitor_that_fails_costs_its_rows_alone_and_is_never_a_pass(tmp_path: Path) -> None:
    easy = {"id": "EASY", "metric": "accuracy", "where": {"monitor": "msp"}, "at_least": 0.001}
    failing = (Failing(), Failing(where="read"))
    run = od_test(ToyModel(), tmp_path / "run", "msp", *failing, "energy", criteria=[easy])
    whole = od_test(ToyModel(), tmp_path / "whole", "msp", "energy", criteria=[easy])
    assert run.tables["od_test"].equals(whole.tables["od_test"])
    missing = run.tables["od_test_missing"].set_index("monitor")
    assert missing["triples"].to_dict() == {"failing": 6, "failing where=read": 6}
    assert missing["reason"].to_dict() == {
        "failing": "failed: KeyError: 'lost'",
        "failing where=read": "failed: ZeroDivisionError: nothing",
    }
    assert (whole.verdict().status, run.verdict().status) == ("pass", "inconclusive")
    assert {failed.kind for failed in run.failures} == {"monitor"}
    call("verdict", run.path, code=3)
    assert run.verify() == []


def grey(value: int, names: Any = HELD_OUT.class_names) -> Any:
    """A data set of twenty grey images of about one value."""
    pixels = value + np.random.default_rng(value).integers(-5, 6, (20, *HELD_OUT.size, 3))
    return pixels.clip(0, 255).astype(np.uint8), np.arange(20) % len(names), names


GLARE = 250
FOUR = SETS | {"glare": grey(GLARE)}
SIX = FOUR | {"dark": grey(20), "dim": grey(60)}


@dataclass(frozen=True, kw_only=True)
class Grey(Monitor):
    """How near the mean grey value is to that of the training data; infinite above `most`."""

    most: float = 300.0
    name: ClassVar[str] = "grey"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})

    def read(self, signals: Any, state: Any) -> Any:
        means = signals.images.mean(axis=(1, 2, 3), dtype=np.float32)
        return np.where(means > self.most, np.inf, -np.abs(means - 128))


def lost_triples(run: rw.Run, monitor: str) -> set[tuple[str, str]]:
    """The pairs of sets of a monitor that have no value, as the table of triples says and as that of missing ones."""
    own = run.tables["od_test"].query("monitor == @monitor and metric == 'accuracy'")
    lost = own[own["value"].isna()]
    missing = run.tables["od_test_missing"].query("monitor == @monitor")
    for table in (lost, missing):
        assert all(reason.startswith("failed: ") for reason in table["reason"])
    pairs = [{*zip(table["valid_set"], table["test_set"], strict=True)} for table in (lost, missing)]
    assert pairs[0] == pairs[1]
    assert (missing["triples"] == 1).all()
    return pairs[0]


def reading(name: str, sets: Any) -> set[tuple[str, str]]:
    """The pairs of sets that read one of them."""
    return {(name, other) for other in sets if other != name} | {(other, name) for other in sets if other != name}


def test_a_set_that_cannot_be_represented_costs_the_triples_that_read_it(tmp_path: Path) -> None:
    asked = [
        {"id": "REST", "metric": "accuracy", "where": {"valid_set": "flat", "test_set": "normal"}, "at_least": 0.001},
        {"id": "GLARE", "metric": "accuracy", "where": {"test_set": "glare"}, "at_least": 0.001},
    ]
    run = od_test(ToyModel(), tmp_path / "run", Grey(), Grey(most=240.0), outliers=SIX, criteria=asked)
    label = "grey most=240.0"
    assert lost_triples(run, "grey") == set()
    assert lost_triples(run, label) == reading("glare", SIX)
    both = run.tables["od_test"].query("metric == 'accuracy'")
    both = both.pivot(index=["valid_set", "test_set"], columns="monitor", values="value")
    assert (both[label] == both["grey"])[both[label].notna()].all()
    assert both[label].notna().sum() == 20
    alone = run.tables["od_test_unsupervised"].query("monitor == @label and metric == 'accuracy'").set_index("test_set")
    assert list(alone.index[alone["value"].isna()]) == ["glare"]
    assert {finding.criterion.id: finding.status for finding in run.verdict().findings} == {
        "REST": "pass",
        "GLARE": "inconclusive",
    }
    assert run.verdict().status == "inconclusive"
    assert run.verdict(asked[:1]).status == "inconclusive", "a run of which something failed never passes"
    assert set(run.tables["timing_od_test"]["monitor"]) == {"grey", label}
    lines = "\n".join(run.headline())
    assert "Monitors: 2, 1 of them ranked; 10 triples without a value" in lines
    assert f"{label} has no value for 10 triples, the first at toy, flat to glare: failed: " in lines
    page = run.report().read_text()
    assert "not ranked: 20 of 30 triples only" in page
    assert "of them failed" not in page
    assert run.verify() == []
    compared = compare_runs([run, run]).query("condition.str.startswith(@label)").set_index("condition")["reason"]
    assert {name for name, why in compared.items() if why.startswith("failed: ")} == {
        f"{label}: {one} -> {other}" for one, other in reading("glare", SIX)
    }
    assert len(compared) == 30


class Dazzled(ToyModel):
    """Raises where an image is very bright."""

    def predict(self, batch: Any) -> Any:
        if batch.images.mean() > 240:
            raise ValueError("too bright")
        return super().predict(batch)


def test_a_model_that_raises_on_one_set_costs_no_other(tmp_path: Path) -> None:
    run = od_test(Dazzled(), tmp_path / "run", "msp", "energy", outliers=FOUR)
    whole = od_test(ToyModel(), tmp_path / "whole", "msp", "energy", outliers=SETS)
    for monitor in ("msp", "energy"):
        assert lost_triples(run, monitor) == reading("glare", FOUR)
    names = ["valid_set", "test_set", "monitor", "metric"]
    kept = run.tables["od_test"].set_index(names).loc[whole.tables["od_test"].set_index(names).index, "value"]
    assert kept.to_numpy().tolist() == whole.tables["od_test"]["value"].tolist()
    assert run.verify() == []


@dataclass(frozen=True, kw_only=True)
class BesideFew(BesideOutliers):
    """Cannot be fitted beside very bright images."""

    name: ClassVar[str] = "beside_few"

    def fit(self, training: Any) -> Any:
        if training.outliers.gather("images").mean() > 240:
            raise ValueError("too bright")
        return super().fit(training)


def test_a_fit_that_fails_for_one_d_v_costs_that_d_v(tmp_path: Path) -> None:
    run = od_test(ToyModel(), tmp_path / "run", BesideFew(), outliers={"glare": grey(GLARE)} | SETS)
    assert lost_triples(run, "beside_few") == {("glare", other) for other in SETS}
    assert run.verdict().status == "inconclusive"
    assert run.verify() == []
    compared = compare_runs([run, run]).set_index("condition")["reason"]
    assert {name for name, why in compared.items() if why.endswith("too bright")} == {
        f"beside_few: glare -> {other}" for other in SETS
    }


def test_a_monitor_with_fewer_than_two_sets_left_failed_as_a_whole(tmp_path: Path) -> None:
    two = {"flat": FLAT, "glare": FOUR["glare"]}
    run = od_test(ToyModel(), tmp_path / "run", "msp", Grey(most=240.0), outliers=two)
    missing = run.tables["od_test_missing"].set_index("monitor")
    assert missing[["valid_set", "test_set", "triples"]].to_numpy().tolist() == [["all", "all", 2]]
    assert "grey most=240.0 failed at toy: " in "\n".join(run.headline())


def test_runs_that_calibrate_by_other_settings_are_not_compared(tmp_path: Path) -> None:
    run, *others = (
        od_test(ToyModel(), tmp_path / name, "msp", **changes)
        for name, changes in (("a", {}), ("b", {"threshold": "hinge"}), ("c", {"cost": 5.0, "prior": 0.25}))
    )
    for other, why in zip(others, ("threshold exact and hinge", "prior 0.5 and 0.25, cost 1.0 and 5.0"), strict=True):
        (row,) = compare_runs([run, other]).to_dict("records")
        assert (row["condition"], row["result"]) == ("msp: all", "not compared")
        assert row["reason"] == f"calibrated by other settings: {why}"
        assert np.isnan([row["before"], row["after"], row["p"]]).all()


def test_the_same_signs_at_another_size_are_other_images(tmp_path: Path) -> None:
    model = {"onnx": str(tiny.save_onnx(tmp_path / "tiny.onnx"))}
    own = {"data": {"test": {"builtin": "signs", "n": 140}}, "models": {"baseline": model}}
    study = {
        "sources": {"small": own | {"size": 32}, "large": own | {"size": 48}},
        "outliers": {"scenery": {"builtin": "scenery", "n": 20}, "uniform": "uniform_noise"},
        "monitors": ["msp"],
        "protocols": {"od_test": {"limit": 28}},
    }
    run = rw.run_study(study, out=tmp_path / "run", workers=1, accept_chance=True, progress=rw.no_progress)
    assert run.report().is_file(), "of a source without training data, too"
    table = compare_runs([run], models=["small/baseline", "large/baseline"])
    assert set(table["condition"]) == {"msp: scenery -> uniform", "msp: uniform -> scenery"}
    assert table["p"].isna().all()
    assert set(table["reason"]) == {"other images: they cannot be paired"}


def test_sets_stand_in_the_order_of_the_study(tmp_path: Path) -> None:
    order = {"a": "uniform_noise", "b": {"builtin": "scenery", "n": 20}, "c": "normal_noise"}
    study, base = load_study(mixed(tmp_path, outliers=order, monitors=["msp"], criteria=None))
    context: Any = prepare(study, base=base, progress=rw.no_progress).contexts["od_test"][""]
    assert [key.partition("/")[2] for key in context.images if "/" in key] == list(order)


def test_the_study_of_the_short_form_says_all_that_makes_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = tiny.save_onnx(tmp_path / "tiny.onnx")
    held, learned = (tiny.write_npz(tmp_path / f"{name}.npz", 70, seed=n) for n, name in enumerate(("held", "learned")))
    monkeypatch.setattr("roadworthy.protocols.short_form.execute", lambda prepared, *given, **settings: prepared)

    def prepared(train: Any, **changes: Any) -> Any:
        outliers = {"scenery": {"builtin": "scenery", "n": 20}, "uniform": "uniform_noise"}
        given = {"source": str(held), "train": train, "outliers": outliers, "limit": 28, "accept_chance": True}
        return rw.od_test(str(onnx), monitors=["kl_matching"], progress=rw.no_progress, **(given | changes))

    found = prepared(str(learned), trust=True, unpickle=True, device="cpu")
    recipe = found.recipe()
    assert recipe["study"]["data"]["train"] == str(learned)
    assert recipe["allowed"] == {"trust": True, "unpickle": True, "device": "cpu", "on_bad_image": "error"}
    graphs = [one.plan.graph() for one in (found, prepare_recipe(recipe))]
    assert [*graphs[0].cases] == [*graphs[1].cases]
    assert [*graphs[0].artifacts] == [*graphs[1].artifacts]
    with pytest.raises(rw.InputError, match="train <NpzDataset> lives in the memory of this process alone"):
        prepared(rw.open_dataset(learned)).recipe()


@pytest.mark.parametrize("wrapped_with", [None, {}, {"retrain": True}])
def test_stored_answers_without_a_stimulus_are_to_the_test_data_alone(
    tmp_path: Path, wrapped_with: dict[str, Any] | None
) -> None:
    """Training images bear the ids of test images: their answers are not those, in whatever model they are."""
    paths = [tiny.write_npz(tmp_path / f"{name}.npz", 70, seed=seed) for name, seed in (("test", 1), ("train", 2))]
    test, train = (rw.open_dataset(path) for path in paths)
    assert test.ids == train.ids
    rows = [",".join(["id", *(f"p{k}" for k in range(14))])]
    rows += [",".join([name, *(["0.05"] * 13), "0.35"]) for name in test.ids]
    (tmp_path / "answers.csv").write_text("\n".join(rows))
    model: dict[str, Any] = {"predictions": str(tmp_path / "answers.csv")}
    if wrapped_with is not None:
        model = {"ensemble": [{"reference": "baseline", **wrapped_with}, model]}
    study = {
        "data": {"test": str(paths[0]), "train": str(paths[1])},
        "models": {"m": model},
        "outliers": SETS | {"flat": "uniform_noise"},
        "monitors": ["msp"],
        "protocols": {"od_test": {"sets": ["flat", "normal"]}},
    }
    with pytest.raises(rw.InputError, match="no column 'stimulus', so it answers undisturbed test data only"):
        rw.run_study(study, out=tmp_path / "run", accept_chance=True, progress=rw.no_progress)
    assert not (tmp_path / "run").exists()


EPOCHS: list[int] = []
DIES: set[int] = set()
"""The epochs that were done, and those in which the fit is killed."""


@dataclass(frozen=True, kw_only=True)
class Slow(Monitor):
    """Learns a mean in three epochs, each of which reads all training data and ends with a checkpoint."""

    name: ClassVar[str] = "slow"

    def work(self, images: int) -> int:
        return 3 * images + 5

    def fit(self, training: Any) -> dict[str, np.ndarray]:
        checkpoint = training.workshop / "epoch.npz"
        epoch, mean = 0, np.zeros(1)
        if checkpoint.exists():
            with np.load(checkpoint) as stored:
                epoch, mean = int(stored["epoch"]), stored["mean"]
        while epoch < 3:
            for (rows,) in training.parts("probabilities"):
                mean = 0.5 * mean + rows.max(axis=1).mean(keepdims=True)
            if epoch + 1 in DIES:
                raise KeyboardInterrupt
            epoch += 1
            EPOCHS.append(epoch)
            np.savez(checkpoint.with_name("new.npz"), epoch=epoch, mean=mean)
            checkpoint.with_name("new.npz").replace(checkpoint)
        training.progress(5)
        return {"mean": mean}

    def read(self, signals: Any, state: Any) -> np.ndarray:
        return -np.abs(signals.probabilities.max(axis=1) - state["mean"])


def test_a_fit_that_is_killed_goes_on_from_its_checkpoint_with_the_same_bytes(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []

    @contextmanager
    def bar(title: str, total: int) -> Iterator[Any]:
        yield lambda images: told.append((title, images, total))

    def fitted(out: str) -> dict[str, bytes]:
        given = {"source": HELD_OUT, "train": TRAIN, "outliers": SETS, "limit": 40, "workers": 1}
        rw.od_test(ToyModel(), monitors=[Slow()], out=tmp_path / out, progress=bar, **given)
        paths = (tmp_path / out / "artifacts").rglob("*")
        return {str(path.relative_to(tmp_path / out)): path.read_bytes() for path in paths if path.is_file()}

    EPOCHS.clear()
    whole = fitted("whole")
    assert sorted(name.rpartition("/")[2] for name in whole) == ["manifest.json", "monitor.json", "monitor.npz"]
    assert EPOCHS == [1, 2, 3]
    fits = [(images, total) for title, images, total in told if title.startswith("fitting")]
    assert {total for _, total in fits} == {3 * len(TRAIN) + 5} == {sum(images for images, _ in fits)}
    assert len(fits) > 3
    EPOCHS.clear()
    DIES.add(3)
    with pytest.raises(KeyboardInterrupt):
        fitted("killed")
    (home,) = (tmp_path / "killed" / "artifacts").iterdir()
    assert [path.name for path in (home / "workshop").iterdir()] == ["epoch.npz"]
    DIES.clear()
    assert fitted("killed") == whole
    assert EPOCHS == [1, 2, 3], "no epoch was done twice"
    assert Slow().build(ToyModel(), TRAIN).state["mean"].size == 1, "and outside of a run"
