"""Validation data that is fitted on and gives thresholds, too, is divided by object; else all of it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.special import log_softmax, softmax
from scipy.stats import binom

import roadworthy as rw
import tiny
from commands import call
from elsewhere import answer_elsewhere
from roadworthy.api import prepare
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.data import Subset, open_dataset
from roadworthy.engine.plan import Bench
from roadworthy.engine.progress import no_progress
from roadworthy.models import load_model
from roadworthy.monitors.guard import Guard
from roadworthy.monitors.id_calibration import object_halves
from roadworthy.monitors.id_threshold import IdRule, id_threshold
from roadworthy.opening import Given, OpeningSource, images_bench
from roadworthy.study import parse_study
from roadworthy.uncertainty import Calibrated, fit_temperature

VALIDATION = {"builtin": "signs", "split": "train", "n": 56}
MONITORING = {
    "benchmarks": {"bright": {"kind": "distributional_shift", "shift": "fog", "level": 3}},
    "resamples": 100,
    "timed_images": 3,
    "memory": False,
}
POINTS = {"shifts": [], "outliers": None, "reject": 0.1}
CLASSIFICATION = {"shifts": ["fog"], "levels": [3]}
WORDS = "half of the validation objects, none of which is fitted on"


def study(folder: Path, model: Any, validation: Any = VALIDATION, **changes: Any) -> dict[str, Any]:
    """A study of one model that takes thresholds from validation data, unless `protocols` say otherwise."""
    tiny.save_onnx(folder / "tiny.onnx", gain=8.0, softmax=False)
    data = {"test": {"builtin": "signs", "n": 42}, "validation": validation}
    protocols = {"monitoring": MONITORING, "operating_points": POINTS, "classification": CLASSIFICATION}
    own = {"monitors": ["msp"], "protocols": protocols, "models": model} | changes
    return tiny.study(folder, data=data, **own)


def tempered(folder: Path) -> dict[str, Any]:
    return {"tiny": {"temperature": str(folder / "tiny.onnx")}}


def bench_of(content: dict[str, Any], **given: Any) -> Bench:
    prepared = prepare(parse_study(content, "study"), given=Given(**given), accept_chance=True, progress=no_progress)
    (bench,) = prepared.sources.values()
    return bench


def halves(bench: Bench) -> tuple[Dataset, Dataset]:
    assert bench.fitting is not None
    assert bench.validation is not None
    assert not {*bench.fitting.groups} & {*bench.validation.groups}
    return bench.fitting, bench.validation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("halves")


@pytest.fixture(scope="module")
def done(folder: Path) -> rw.Run:
    """A study that fits a temperature and finds thresholds, run once."""
    return rw.run_study(study(folder, tempered(folder)), out=folder / "run", workers=1, progress=no_progress)


def test_what_is_fitted_and_what_gives_thresholds_share_no_object(folder: Path, done: rw.Run) -> None:
    content = study(folder, tempered(folder))
    fitting, thresholds = halves(bench_of(content))
    number = [len({*part.groups}) for part in (fitting, thresholds)]
    assert len(fitting) + len(thresholds) == VALIDATION["n"]
    assert 0 <= number[1] - number[0] <= 1

    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    printed = " ".join(call("run", folder / "study.yaml", "--dry-run").split())
    sentence = (
        f"is divided by object: {len(fitting)} images of {number[0]} objects are fitted on, and thresholds are found "
        f"on {len(thresholds)} images of {number[1]} objects."
    )
    assert sentence in printed
    (artifact,) = (own for own in done.record.artifacts.values() if own.builder == "temperature")
    assert artifact.competence["images"] == len(fitting)
    assert any(sentence in note for note in done.record.sources[""].data.notes)
    assert sentence in " ".join((done.path / "report.html").read_text().split())
    (row,) = done.tables["operating_points_thresholds"].itertuples()
    assert (row.held_out, row.images, row.groups) == ("half of the validation groups", len(thresholds), number[1])
    assert WORDS in row.reason
    (row,) = done.tables["monitoring_thresholds"].itertuples()
    assert (row.images, row.objects) == (len(thresholds), number[1])
    assert WORDS in row.reason
    assert done.verify() == []


@pytest.mark.parametrize(
    ("entry", "protocols"),
    [
        ("temperature", {"classification": CLASSIFICATION}),
        ("temperature", {"operating_points": {**POINTS, "reject": None, "threshold": 0.5}}),
        ("known temperature", {"monitoring": MONITORING, "operating_points": POINTS}),
        ("onnx", {"monitoring": MONITORING, "operating_points": POINTS}),
    ],
)
def test_where_only_one_of_the_two_happens_all_images_serve_it(tmp_path: Path, entry: str, protocols: Any) -> None:
    file = str(tmp_path / "tiny.onnx")
    models = {"temperature": {"temperature": file}, "known temperature": {"temperature": file, "value": 2.0}}
    content = study(tmp_path, {"tiny": models.get(entry, file)}, protocols=protocols)
    if "monitoring" not in protocols:
        del content["monitors"]
    bench = bench_of(content)
    assert bench.fitting is None
    assert bench.division() == bench.threshold_note() == ""
    assert bench.validation is not None
    whole = bench_of(study(tmp_path, {"tiny": file})).validation
    assert whole is not None
    assert bench.validation.fingerprint() == whole.fingerprint()
    if entry == "temperature":
        assert whole.fingerprint() in bench.models["tiny"].recipe.inputs  # type: ignore[attr-defined]


def test_every_fit_and_every_threshold_counts_and_all_models_have_the_same_halves(tmp_path: Path) -> None:
    file = str(tmp_path / "tiny.onnx")
    one = bench_of(study(tmp_path, tempered(tmp_path)))
    mixed = {"plain": file, "both": {"ensemble": [file, {"temperature": file}]}}
    od_test = {"od_test": {}}
    sets = {"a": {"builtin": "scenery", "n": 20}, "b": "uniform_noise", "c": "normal_noise"}
    points = {"operating_points": {**POINTS, "score": "two"}}
    two = {"two": {"monitor": "combined", "of": ["msp", "energy"]}}
    others = [
        bench_of(study(tmp_path, mixed)),
        bench_of(study(tmp_path, tempered(tmp_path), protocols=od_test, outliers=sets)),
        bench_of(study(tmp_path, {"tiny": file}, protocols=points, monitors=two)),
    ]
    for bench in others:
        for part, expected in zip(halves(bench), halves(one), strict=True):
            assert part.fingerprint() == expected.fingerprint()
    other_seed = halves(bench_of(study(tmp_path, tempered(tmp_path), seed=1)))
    assert other_seed[0].fingerprint() != halves(one)[0].fingerprint()


def test_the_epoch_of_a_network_is_chosen_on_the_half_that_gives_no_threshold(tmp_path: Path) -> None:
    content = study(tmp_path, {"net": {"perception": "small_resnet", "task": "classes", "epochs": 1}})
    content["data"]["train"] = {"builtin": "signs", "split": "train", "n": 28, "seed": 5}
    bench = bench_of(content)
    fitting, _ = halves(bench)
    assert fitting.fingerprint() in bench.models["net"].recipe.inputs  # type: ignore[attr-defined]
    content["protocols"], content["monitors"] = {"classification": CLASSIFICATION}, {}
    assert bench_of(content).fitting is None


def test_a_monitor_learns_from_the_other_half_than_the_threshold_on_its_score(tmp_path: Path) -> None:
    monitors = {"two": {"monitor": "combined", "of": ["msp", "energy"]}}
    protocols = {
        "operating_points": {**POINTS, "score": "two"},
        "ood": {"sets": ["swirl"], "transformed": [], "monitor": "two"},
    }
    content = study(tmp_path, {"tiny": str(tmp_path / "tiny.onnx")}, monitors=monitors, protocols=protocols)
    run = rw.run_study(content, out=tmp_path / "run", workers=1, progress=no_progress)
    fitting, thresholds = halves(bench_of(content))
    shown = {case.stimulus.data: case.kind for case in run.record.cases.values() if case.kind == "monitor"}
    assert {fitting.fingerprint(), thresholds.fingerprint()} < {*shown}
    (row,) = run.tables["operating_points_thresholds"].itertuples()
    assert (row.score, row.images) == ("two", len(thresholds))
    assert not run.tables["ood"]["value"].isna().any()
    assert run.verify() == []


def test_images_that_answer_from_elsewhere_get_are_the_halves_of_the_run(tmp_path: Path) -> None:
    content = study(tmp_path, tempered(tmp_path) | {"far": str(tmp_path / "tiny.onnx")}, name="away")
    del content["protocols"]["monitoring"], content["monitors"]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    call("export", tmp_path / "study.yaml", tmp_path / "images")
    answer_elsewhere(tmp_path / "images", tmp_path / "tiny.onnx", tmp_path / "answers.csv")
    direct = rw.run_study(content, out=tmp_path / "direct", workers=1, progress=no_progress)
    content["models"]["far"] = {"predictions": str(tmp_path / "answers.csv"), "outputs": "logits"}
    back = rw.run_study(content, out=tmp_path / "back", workers=1, progress=no_progress)
    for name in ("operating_points", "operating_points_thresholds"):
        assert back.tables[name].equals(direct.tables[name])
    again = images_bench(parse_study(content, "study"), "", tmp_path, None)
    for part, expected in zip(halves(again), halves(bench_of(content)), strict=True):
        assert part.fingerprint() == expected.fingerprint()


def test_a_run_resumes_and_nothing_of_an_undivided_run_is_taken_over(
    folder: Path, done: rw.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = study(folder, tempered(folder))
    again = rw.run_study(content, out=done.path, workers=1, progress=no_progress)
    assert again.record.cases.keys() == done.record.cases.keys()

    points = {"operating_points": POINTS}
    content |= {"protocols": points, "monitors": {}}
    with monkeypatch.context() as patch:
        patch.setattr(OpeningSource, "_fits_and_calibrates", lambda self, opened: False)
        earlier = rw.run_study(content, out=folder / "earlier", workers=1, progress=no_progress)
    later = rw.run_study(
        content | {"baseline": str(earlier.path)}, out=folder / "later", workers=1, progress=no_progress
    )
    assert earlier.tables["operating_points_thresholds"]["images"].item() == VALIDATION["n"]
    assert earlier.record.artifacts.keys().isdisjoint(later.record.artifacts)
    assert {hash_ for hash_ in later.record.cases if hash_ in earlier.record.cases} == set()
    for name in ("operating_points", "operating_points_thresholds"):
        assert later.tables[name].equals(done.tables[name]), "a baseline leaves the figures as they are"


def test_too_few_objects_end_in_one_sentence(tmp_path: Path) -> None:
    one = {"builtin": "signs", "split": "train", "n": 1}
    content = study(tmp_path, tempered(tmp_path), one)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    printed = " ".join(call("run", tmp_path / "study.yaml", "--dry-run", code=2).split())
    assert "holds 1 object: the study fits on one half of its objects and finds thresholds on the other" in printed

    per_class = {"rule": "conformal", "per_class": True}
    few = study(
        tmp_path,
        tempered(tmp_path),
        {**VALIDATION, "n": 14},
        protocols={"monitoring": MONITORING | {"threshold": per_class}},
    )
    with pytest.raises(InputError, match="a threshold per class needs images of every class, and the half"):
        bench_of(few)
    few["models"] = {"tiny": str(tmp_path / "tiny.onnx")}
    assert bench_of(few).fitting is None


def test_a_guard_refuses_images_that_its_model_was_fitted_on(tmp_path: Path) -> None:
    tiny.save_onnx(tmp_path / "tiny.onnx", softmax=False)
    shown = open_dataset(VALIDATION, size=(tiny.SIZE, tiny.SIZE))
    fitting, thresholds = (Subset(shown, rows.tolist()) for rows in object_halves(shown.groups))
    model = Calibrated(load_model(tmp_path / "tiny.onnx"), fitting, name="warm")
    model.build(tmp_path, lambda images: None)
    model.load(tmp_path)
    assert Guard.make(model, "msp", None, thresholds).threshold.images == len(thresholds)
    with pytest.raises(InputError, match=f"fitted on {len(fitting)} of the validation images"):
        Guard.make(model, "msp", None, shown)


# The promise

OBJECTS, CLASSES, FEATURES, CANDIDATES = 30, 2, 50, 50
RULE = IdRule("conformal", rejected=0.2, confidence=0.95)


def most_broken(runs: int) -> int:
    """Of so many runs, where each breaks its promise with a chance of 5 %."""
    return int(binom.ppf(0.99, runs, 0.05))


def sureness(logits: np.ndarray) -> np.ndarray:
    return np.asarray(softmax(logits, axis=-1).max(axis=-1))


def is_broken(calibrating: np.ndarray, new: np.ndarray) -> bool:
    """Whether a threshold on scores of images (n,), an object each, rejects more of new ones (m,) than it promises."""
    return bool((new < id_threshold(calibrating, np.arange(len(calibrating)), RULE).threshold).mean() > RULE.rejected)


def parts(run: int, is_halved: bool) -> tuple[np.ndarray, np.ndarray]:
    """What is fitted on and what a threshold is found on, as indices of images."""
    return object_halves(np.arange(OBJECTS), run) if is_halved else (np.arange(OBJECTS), np.arange(OBJECTS))


def broken_by_choice(runs: int, *, is_halved: bool) -> int:
    """In how many runs a promise breaks for the best of several networks: as the best epoch is chosen, by accuracy, and
    of equal ones by loss.
    """
    rng, broken = np.random.default_rng(0), 0
    centres = rng.normal(size=(CLASSES, FEATURES)) / FEATURES**0.5

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, CLASSES, count)
        return centres[labels] + rng.normal(size=(count, FEATURES)) / FEATURES**0.5, labels

    new, _ = images(4000)
    for run in range(runs):
        noise = 3 * rng.normal(size=(CANDIDATES, CLASSES, FEATURES)) / FEATURES**0.5
        networks, (shown, labels) = 4 * (centres + noise), images(OBJECTS)
        chosen_on, found_on = parts(run, is_halved)
        logits, truth = np.einsum("nd,mkd->mnk", shown[chosen_on], networks), labels[chosen_on]
        loss = -log_softmax(logits, axis=2)[:, np.arange(len(truth)), truth].mean(axis=1)
        best = networks[np.lexsort((loss, (logits.argmax(axis=2) != truth).mean(axis=1)))[0]].T
        broken += is_broken(sureness(shown[found_on] @ best), sureness(new @ best))
    return broken


def broken_by_temperature(runs: int, *, is_halved: bool) -> int:
    """The same of a temperature that is fitted to a model which is far too sure of itself."""
    rng, broken = np.random.default_rng(0), 0

    def answers(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, 10, count)
        return 8 * (rng.normal(size=(count, 10)) + 1.5 * np.eye(10)[labels]), labels

    new, _ = answers(4000)
    for run in range(runs):
        logits, labels = answers(OBJECTS)
        fitted_on, found_on = parts(run, is_halved)
        temperature = fit_temperature(logits[fitted_on], labels[fitted_on]).temperature
        broken += is_broken(sureness(logits[found_on] / temperature), sureness(new / temperature))
    return broken


@pytest.mark.parametrize("runs", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_promise_for_a_network_that_was_chosen_on_the_same_images_breaks_and_with_halves_is_kept(runs: int) -> None:
    assert broken_by_choice(runs, is_halved=False) > 1.2 * most_broken(runs)
    assert broken_by_choice(runs, is_halved=True) <= most_broken(runs)


@pytest.mark.parametrize("runs", [50, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_promise_beside_a_temperature_is_kept_with_halves(runs: int) -> None:
    """One number moves the order of images so little that no break was seen on the same images, either."""
    assert broken_by_temperature(runs, is_halved=True) <= most_broken(runs)
    assert broken_by_temperature(runs, is_halved=False) <= most_broken(runs)
