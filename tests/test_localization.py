"""The protocol localization: sets, views, tables and criteria, from stored answers of a localizer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import roadworthy as rw
from found_squares import CLASSES, SIDE, save_finder, save_squares, squares
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.metrics.boxes import BoxAnswers, box_ece, box_ece_interval, box_nll, box_reliability, iou, mae
from roadworthy.protocols.localization.tables import Evidence
from roadworthy.protocols.localization.views import View
from roadworthy.stored_evidence import load_evidence
from roadworthy.study import parse_study

MODEL = "finder"
POOLED = {"over": "pooled"}


class Finder(rw.Model):
    """Finds what is bright, and calls it a disc where it does not fill its box."""

    name, concurrent, uncertainty, family = MODEL, True, "ensemble", "threshold"
    num_classes, class_names = 2, CLASSES
    capabilities = frozenset({"probabilities", "boxes", "box_variance"})

    def fingerprint(self) -> str:
        return "bright"

    def predict(self, batch: rw.Batch) -> rw.Prediction:
        bright = batch.images.mean(axis=3) > 110
        boxes, filled = np.empty((len(batch), 4), np.float32), np.empty(len(batch))
        for index, mask in enumerate(bright):
            rows, columns = np.nonzero(mask) if mask.any() else (np.arange(SIDE), np.arange(SIDE))
            boxes[index] = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            width, height = boxes[index, 2:] - boxes[index, :2]
            filled[index] = mask.sum() / (width * height)
        square = np.clip((filled - 0.6) / 0.4, 0.05, 0.95)
        probabilities = np.stack([square, 1 - square], axis=1).astype(np.float32)
        return rw.Prediction(probabilities, boxes=boxes, box_variance=np.full_like(boxes, 0.25))


class Blind(Finder):
    """Says what it sees, and not where."""

    name, family, uncertainty = "blind", "", "none"
    capabilities = frozenset({"probabilities"})

    def fingerprint(self) -> str:
        return "classes alone"

    def predict(self, batch: rw.Batch) -> rw.Prediction:
        return rw.Prediction(super().predict(batch).probabilities)


def content(folder: Path, masks: bool = True, **changes: Any) -> dict[str, Any]:
    sets = {
        "noisy": {"shift": "noise", "level": 1},
        "turned": {"shift": "rotation", "level": 5},
        "others": {"outliers": "others"},
        "parents": {"outliers": "parents", "merge": {"thing": ["square", "disc"]}},
        "strange": {"outliers": "strange", "labels": False},
    }
    outliers = {
        "others": save_squares(folder / "others.npz", n=60, seed=1),
        "parents": save_parents(folder / "parents.npz"),
        "strange": save_squares(folder / "strange.npz", n=20, seed=3, classes=("cone", "bin")),
    }
    return {
        "name": "squares",
        "data": {"test": save_squares(folder / "test.npz", masks=masks)},
        "models": {MODEL: "<in memory>", "blind": "<in memory>"},
        "outliers": outliers,
        "protocols": {
            "localization": {"sets": sets, "views": {"discs": {"only": ["disc"]}}, "resamples": 200, "timed_images": 4}
        },
        **changes,
    }


def save_parents(path: Path) -> str:
    own = squares(n=20, seed=2)
    np.savez(path, **{**own, "labels": np.zeros(20, int), "class_names": np.array(["thing"])})
    return str(path)


def run_of(folder: Path, asked: dict[str, Any]) -> rw.Run:
    prepared = prepare(parse_study(asked, "study"), models={MODEL: Finder(), "blind": Blind()})
    return execute(prepared, folder / "run", workers=1, progress=no_progress)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = tmp_path_factory.mktemp("localization")
    return run_of(folder, content(folder))


def value(run: rw.Run, metric: str, **where: Any) -> pd.Series:
    table = run.tables["localization"]
    where = {"model": MODEL, "view": "all", "metric": metric, **where}
    chosen = table[np.logical_and.reduce([table[name] == wanted for name, wanted in where.items()])]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_figures_of_the_test_data_are_those_of_the_answers(run: rw.Run) -> None:
    own = squares()
    batch = rw.open_dataset(run.path.parent / "test.npz").batch(slice(None))
    answer = Finder().predict(batch)
    answers = BoxAnswers(own["boxes"], answer.boxes, answer.box_variance)
    for metric in (iou, mae, box_ece_interval, box_ece, box_nll):
        assert value(run, metric.name, set="test")["value"] == pytest.approx(metric(answers), rel=1e-6)
    right = (answer.probabilities.argmax(axis=1) == own["labels"]).mean()
    row = value(run, "accuracy", set="test")
    assert row["value"] == pytest.approx(right)
    assert (row["n"], row["groups"]) == (120, 60), "bounds count objects"
    assert row["lo"] < row["value"] < row["hi"]
    assert (row["family"], row["uncertainty"]) == ("threshold", "ensemble")


def test_sets_are_judged_by_the_classes_they_have(run: rw.Run) -> None:
    sets = run.tables["localization_sets"].set_index("set")
    assert [*sets.index] == ["test", "noisy", "turned", "others", "parents", "strange"]
    assert sets.loc["parents", "classes"] == "thing"
    assert (sets["truth"] == "mask").all()
    assert not sets.loc["strange", "labelled"]
    assert value(run, "accuracy", set="parents")["value"] == 1.0, "every answer is a child of the parent"
    assert value(run, "brier", set="parents")["value"] == pytest.approx(0.0, abs=1e-12)
    strange = value(run, "accuracy", set="strange")
    assert np.isnan(strange["value"])
    assert strange["reason"] == "the objects of this set belong to no class of the source"
    assert value(run, "iou", set="strange")["value"] > 0.9


def test_views_count_some_classes_alone(run: rw.Run) -> None:
    own, answer = squares(), Finder().predict(rw.open_dataset(run.path.parent / "test.npz").batch(slice(None)))
    discs = own["labels"] == 1
    expected = (answer.probabilities.argmax(axis=1) == 1)[discs].mean()
    row = value(run, "accuracy", set="test", view="discs")
    assert (row["value"], row["n"]) == (pytest.approx(expected), discs.sum())
    assert value(run, "iou", set="test", view="discs")["n"] == discs.sum()
    views = run.tables["localization"].groupby("set")["view"].unique()
    assert {name: len(some) for name, some in views.items() if name in ("parents", "strange")} == {
        "parents": 1,
        "strange": 1,
    }


def test_a_model_without_boxes_has_no_rows_of_boxes(run: rw.Run) -> None:
    table = run.tables["localization"]
    assert "iou" not in set(table.loc[table["model"] == "blind", "metric"])
    assert set(table.loc[table["model"] == "blind", "family"]) == {"blind"}


def test_drops_are_paired_with_the_undisturbed_images(run: rw.Run) -> None:
    clean, noisy, drop = (
        value(run, name, set=of) for name, of in (("iou", "test"), ("iou", "noisy"), ("iou_drop", "noisy"))
    )
    assert drop["value"] == pytest.approx(clean["value"] - noisy["value"])
    assert drop["method"].startswith("paired")
    table = run.tables["localization"]
    assert not table.loc[table["set"] == "others", "metric"].str.endswith("_drop").any()


def test_figures_by_size_and_distance_rest_on_all_images_once(run: rw.Run) -> None:
    table = run.tables["localization_by_size"]
    own = table[(table["model"] == MODEL) & (table["metric"] == "iou")]
    for _, part in own.groupby(["set", "by"]):
        assert part["n"].sum() == value(run, "iou", set=part["set"].iloc[0])["n"]
    assert set(own["by"]) == {"size", "distance"}


def test_reliability_and_sparsification_are_stored(run: rw.Run) -> None:
    reliability = run.tables["localization_reliability"]
    boxes = reliability[(reliability["task"] == "boxes") & (reliability["set"] == "test")]
    batch = rw.open_dataset(run.path.parent / "test.npz").batch(slice(None))
    answer = Finder().predict(batch)
    expected = box_reliability(BoxAnswers(squares()["boxes"], answer.boxes, answer.box_variance))
    by_coordinate = {name: own.sort_values("bin") for name, own in boxes.groupby("coordinate", sort=False)}
    assert [*by_coordinate] == ["x0", "y0", "x1", "y1"]
    for own, shares in zip(by_coordinate.values(), expected.observed, strict=True):
        assert own["expected"].to_list() == pytest.approx([0.1 * step for step in range(1, 11)])
        assert own["observed"].to_list() == pytest.approx(shares)
    assert set(reliability.loc[reliability["task"] == "classes", "coordinate"].fillna("")) == {""}
    sparse = run.tables["localization_sparsification"]
    whole = sparse[(sparse["kept"] == 1.0) & (sparse["task"] == "boxes") & (sparse["set"] == "test")]
    assert whole["error"].item() == pytest.approx(1 - value(run, "iou", set="test")["value"])
    assert whole["error"].item() == pytest.approx(whole["oracle"].item())


def test_the_run_verifies_and_times_its_models(run: rw.Run) -> None:
    assert run.verify() == []
    timing = run.tables["timing_localization"].set_index("model")
    assert set(timing.index) == {MODEL, "blind"}
    assert (timing["milliseconds"] > 0).all()
    assert len(run.tables["localization_gallery"]) == 6


@pytest.mark.parametrize(
    ("criterion", "status"),
    [
        ({"metric": "iou", "where": {"set": "noisy"}, "at_least": 0.6}, "pass"),
        ({"metric": "mae", "where": {"set": "turned"}, "at_most": 0.001}, "fail"),
        (
            {
                "metric": "accuracy",
                "where": {"model": "blind", "set": ["test", "noisy"]},
                "over": "pooled",
                "at_least": 0.5,
            },
            "pass",
        ),
        ({"metric": "iou_drop", "where": {"shift": "noise"}, "at_most": 0.5}, "pass"),
        ({"metric": "accuracy", "where": {"view": "discs", "set": "test", "model": "blind"}, "at_least": 0.05}, "pass"),
    ],
)
def test_criteria_are_judged_with_bounds(run: rw.Run, criterion: dict[str, Any], status: str) -> None:
    where = {"protocol": "localization", **criterion["where"]}
    assert run.verdict([{"id": "A", **criterion, "where": where}]).status == status


@pytest.mark.parametrize(
    ("where", "metric", "complaint"),
    [
        ({"set": "strange"}, "accuracy", "asks for set 'strange'"),
        ({"model": "blind"}, "iou", "asks for model 'blind'"),
        ({"set": "others"}, "iou_drop", "asks for set 'others'"),
        ({"set": "test"}, "iuo", "did you mean 'iou'"),
        ({"sett": "test"}, "iou", "unknown condition 'sett'"),
        ({"model": "blind"}, "iuo", "did you mean 'iou'"),
    ],
)
def test_criteria_that_match_nothing_are_refused(
    run: rw.Run, where: dict[str, Any], metric: str, complaint: str
) -> None:
    asked = [{"id": "A", "metric": metric, "where": {"protocol": "localization", **where}, "at_least": 0.5}]
    with pytest.raises(InputError, match=complaint):
        run.verdict(asked)


def test_a_criterion_that_unbiased_boxes_cannot_miss_is_remarked_on_in_the_verdict(run: rw.Run) -> None:
    where = {"protocol": "localization", "set": "test", "model": MODEL}
    asked = [{"id": name, "metric": name, "where": where, "at_most": 0.2} for name in ("box_ece", "box_ece_interval")]
    quantiles, intervals = run.verdict(asked).findings
    assert quantiles.remark.startswith("at_most 0.2 cannot fail a model whose errors go to both sides equally often")
    assert intervals.remark == ""


def test_a_mean_over_other_images_is_refused_before_the_run(run: rw.Run, tmp_path: Path) -> None:
    """Sets of the same number of images are not the same images."""
    asked = content(tmp_path)
    asked["outliers"]["others"] = save_squares(tmp_path / "as_many.npz", n=120, seed=11)
    criterion = {"id": "A", "metric": "iou", "where": {"protocol": "localization", "set": ["test", "others"]}}
    pooled = [{**criterion, **POOLED, "at_least": 0.5}]
    with pytest.raises(InputError, match="sets test and others show different images"):
        run_of(tmp_path, {**asked, "criteria": pooled})
    assert not (tmp_path / "run").exists()
    drop = {"id": "A", "metric": "iou_drop", "where": {"protocol": "localization"}, "at_most": 0.5, **POOLED}
    with pytest.raises(InputError, match="a drop is judged set by set"):
        run_of(tmp_path, {**asked, "criteria": [drop]})
    evidence = load_evidence(run.folder, run.record)["localization"]
    assert isinstance(evidence, Evidence)
    own = [key for key in evidence.keys if key.model == MODEL and key.set in ("parents", "strange")]
    assert evidence.estimate(own, iou).reason.startswith("the images differ"), "20 images each"


def test_turned_boxes_without_masks_are_no_truth_for_a_criterion(tmp_path: Path) -> None:
    asked = content(tmp_path, masks=False, models={MODEL: "<in memory>", "blind": "<in memory>"})
    sets = {"turned": {"shift": "rotation", "level": 5}}
    asked["protocols"]["localization"] |= {"sets": sets, "timed_images": 0}
    criterion = {"id": "A", "metric": "iou", "where": {"protocol": "localization", "set": "turned"}, "at_least": 0.1}
    with pytest.raises(InputError, match="the true boxes of set turned are the hulls of turned boxes"):
        run_of(tmp_path, {**asked, "criteria": [criterion]})
    asked["protocols"]["localization"]["hull_truth"] = True
    run = run_of(tmp_path, {**asked, "criteria": [criterion]})
    table = run.tables["localization_sets"].set_index("set")
    assert dict(table["truth"]) == {"test": "box", "turned": "hull"}
    assert 1.0 < table.loc["turned", "inflation"] < 2.0
    assert run.verdict().status == "pass"


def test_several_sources_have_their_rows_and_a_refused_criterion_is_refused_for_all(tmp_path: Path) -> None:
    with_masks, without = save_squares(tmp_path / "a.npz"), save_squares(tmp_path / "b.npz", n=40, seed=7, masks=False)
    models = {MODEL: "<in memory>", "blind": "<in memory>"}
    sources = {
        "a": {"data": {"test": with_masks}, "models": models},
        "b": {"data": {"test": without}, "models": models},
    }
    sets = {"turned": {"shift": "rotation", "level": 3}}
    settings = {"sets": sets, "resamples": 100, "timed_images": 1}
    run = run_of(tmp_path, {"name": "two", "sources": sources, "protocols": {"localization": settings}})
    assert run.verify() == []
    assert all(set(run.tables[name]["source"]) == {"a", "b"} for name in run.tables if "localization" in name)
    where = {"protocol": "localization", "set": "turned", "model": MODEL}
    criterion = {"id": "A", "metric": "iou", "where": where, "at_least": 0.5}
    with pytest.raises(InputError, match="hulls of turned boxes"):
        run.verdict([criterion])
    assert run.verdict([{**criterion, "where": {**where, "source": "a"}}]).status == "pass"


def test_a_model_that_fails_on_one_set_costs_the_figures_of_this_set_alone(tmp_path: Path) -> None:
    class Lost(Finder):
        def predict(self, batch: rw.Batch) -> rw.Prediction:
            if any(name.startswith("1-") for name in batch.ids):
                raise RuntimeError("never seen")
            return super().predict(batch)

    prepared = prepare(parse_study(content(tmp_path), "study"), models={MODEL: Lost(), "blind": Blind()})
    run = execute(prepared, tmp_path / "run", workers=1, progress=no_progress)
    assert value(run, "iou", set="others")["reason"] == "case failed: model finder raised RuntimeError: never seen"
    assert value(run, "iou", set="test")["value"] > 0.9
    assert value(run, "accuracy", set="others", model="blind")["n"] == 60
    where = {"protocol": "localization", "model": MODEL}
    assert run.verdict([{"id": "A", "metric": "iou", "where": where, "at_least": 0.1}]).status == "inconclusive"
    assert "1 case of 12 failed" in run.report().read_text()


def test_sets_without_boxes_and_views_without_images_say_so(tmp_path: Path) -> None:
    asked, own = content(tmp_path), squares(n=20, seed=9)
    is_square = own["labels"] == 0
    bare = {name: column if name == "class_names" else column[is_square] for name, column in own.items()}
    np.savez(tmp_path / "bare.npz", **{name: bare[name] for name in bare if name not in ("boxes", "masks")})
    np.savez(tmp_path / "squares.npz", **bare)
    asked["outliers"] = {name: str(tmp_path / f"{name}.npz") for name in ("bare", "squares")}
    sets = {name: {"outliers": name} for name in asked["outliers"]}
    asked["protocols"]["localization"] |= {"sets": sets, "timed_images": 0}
    run = run_of(tmp_path, asked)
    no_class = "no image of this set shows a class of this view"
    assert value(run, "accuracy", set="squares", view="discs")["reason"] == no_class
    assert value(run, "iou", set="squares", view="discs")["reason"] == no_class
    assert value(run, "iou", set="bare")["reason"] == "no image of this set has a true box"
    where = {"protocol": "localization", "model": MODEL}
    assert run.verdict([{"id": "A", "metric": "iou", "where": where, "at_least": 0.5}]).status == "pass"
    with pytest.raises(InputError, match="asks for set 'bare'"):
        run.verdict([{"id": "A", "metric": "iou", "where": {**where, "set": "bare"}, "at_least": 0.5}])


def test_a_crop_moves_boxes_without_making_them_too_large(tmp_path: Path) -> None:
    asked, own = content(tmp_path), squares(masks=False)
    own["boxes"][::5] = np.nan
    np.savez(tmp_path / "some.npz", **own)
    asked["data"] = {"test": str(tmp_path / "some.npz")}
    sets = {"cropped": {"shift": "crop", "level": 5}, "turned": {"shift": "rotation", "level": 1}}
    criterion = {"id": "A", "metric": "iou", "where": {"protocol": "localization", "set": "cropped"}, "at_least": 0.5}
    asked["protocols"]["localization"] |= {"sets": sets, "timed_images": 0}
    run = run_of(tmp_path, {**asked, "criteria": [criterion]})
    table = run.tables["localization_sets"].set_index("set")
    assert dict(table["truth"]) == {"test": "box", "cropped": "box", "turned": "hull"}
    assert (table["without_box"] == 24).all()
    assert run.verdict().status == "pass"


def test_merged_classes_add_their_probabilities() -> None:
    view = View(("car", "truck", "person"), merge={"vehicle": ["truck", "car"]})
    assert view.names == ("vehicle", "person")
    merged = view.merged(np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]]))
    np.testing.assert_allclose(merged, [[0.5, 0.5], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sets": {"a": {"outliers": "nowhere"}}}, "set a: unknown set of outliers 'nowhere'"),
        ({"sets": {"a": {"outliers": "strange"}}}, "set a: unknown class in data set strange 'cone'.*labels: false"),
        ({"sets": {"a": {"outliers": "others", "merge": {"car": ["disc"]}}}}, "merge names car, which is no class"),
        ({"sets": {"a": {"shift": "noise", "level": 9}}}, "set a: shift noise has levels"),
        ({"sets": {"a": {"shift": "noise", "labels": False}}}, "labels belong to a set outside"),
        ({"sets": {"test": {"shift": "noise"}}}, "not a valid name for a set"),
        ({"views": {"v": {"only": ["cat"]}}}, "view v: unknown class of the source 'cat'"),
        ({"views": {"v": {"merge": {"disc": ["square"]}}}}, "disc is a class of the source itself"),
        ({"sets": {"a": {"outliers": "parents", "merge": {"thing": []}}}}, "a parent class has at least one class"),
    ],
)
def test_bad_settings_get_one_sentence(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    asked = content(tmp_path)
    asked["protocols"]["localization"] |= changes
    with pytest.raises(InputError, match=complaint):
        run_of(tmp_path, asked)


def test_fog_over_data_without_distances_is_refused(tmp_path: Path) -> None:
    asked = content(tmp_path)
    asked["protocols"]["localization"] |= {"sets": {"a": {"shift": "fog_veil"}}}
    path = Path(asked["data"]["test"])
    with np.load(path, allow_pickle=False) as stored:
        np.savez(path, **{name: stored[name] for name in stored if name != "distance"})
    with pytest.raises(InputError, match="set a: shift fog_veil needs to know how far away image"):
        run_of(tmp_path, asked)


def black_box_study(folder: Path, models: dict[str, Any]) -> dict[str, Any]:
    sets = {"noisy": {"shift": "noise", "level": 2}, "strange": {"outliers": "strange", "labels": False}}
    criterion = {"id": "REQ", "metric": "iou", "where": {"protocol": "localization", "set": "noisy"}, "at_least": 0.7}
    return {
        "name": "black-box",
        "size": SIDE,
        "data": {"test": save_squares(folder / "test.npz")},
        "outliers": {"strange": save_squares(folder / "strange.npz", n=20, seed=3, classes=("cone", "bin"))},
        "models": models,
        "protocols": {"localization": {"sets": sets, "resamples": 200, "timed_images": 0}},
        "criteria": [{**criterion, "confidence": 0.95}],
    }


def test_a_black_box_localizer_answers_elsewhere_and_the_tables_are_the_same(tmp_path: Path) -> None:
    """Export, answers by ONNX Runtime alone in a process of its own, import."""
    finder = save_finder(tmp_path / "finder.onnx")
    asked = black_box_study(tmp_path, {MODEL: {"onnx": finder, "boxes": "centre relative variance"}})
    here = rw.run_study(asked, out=tmp_path / "here", progress=no_progress)
    rw.export_study(asked, tmp_path / "export", progress=no_progress)
    code = """
import sys, csv, numpy as np, onnxruntime
from PIL import Image
folder, side = sys.argv[1], 32
session = onnxruntime.InferenceSession(sys.argv[2])
rows = list(csv.DictReader(open(f"{folder}/manifest.csv")))
with open(sys.argv[3], "w", newline="") as file:
    names = [*(f"box{k}" for k in range(4)), *(f"variance{k}" for k in range(4))]
    writer = csv.DictWriter(file, ["id", "stimulus", *names])
    writer.writeheader()
    for row in rows:
        pixels = np.asarray(Image.open(f"{folder}/{row['path']}").convert("RGB"), np.float32) / 255
        answer = session.run(None, {"image": pixels.transpose(2, 0, 1)[None]})[0][0].astype(float)
        (x, y, w, h), variance = side * answer[:4], side**2 * answer[4:]
        corners = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
        spread = [variance[k % 2] + variance[2 + k % 2] / 4 for k in range(4)]
        writer.writerow({"id": row["id"], "stimulus": row["stimulus"], **dict(zip(names, corners + spread))})
assert "roadworthy" not in sys.modules
"""
    command = [sys.executable, "-c", code, str(tmp_path / "export"), finder, str(tmp_path / "answers.csv")]
    subprocess.run(command, check=True)
    there = rw.run_study(
        black_box_study(tmp_path, {MODEL: {"predictions": str(tmp_path / "answers.csv")}}),
        out=tmp_path / "there",
        progress=no_progress,
    )
    for name in ("localization", "localization_by_size", "localization_reliability", "localization_sets"):
        one, other = here.tables[name], there.tables[name]
        numbers = one.select_dtypes("number").columns
        loose = 1e-2 if name == "localization" else 1e-4  # equal errors are ordered by their last bits in box_ause
        pd.testing.assert_frame_equal(one[numbers], other[numbers], rtol=loose, atol=1e-4)
    assert here.verdict().status == there.verdict().status == "pass"


def test_a_criterion_on_what_no_model_answers_says_so(tmp_path: Path) -> None:
    finder = {"onnx": save_finder(tmp_path / "finder.onnx"), "boxes": "centre relative variance"}
    criterion = {"id": "A", "metric": "accuracy", "where": {"protocol": "localization"}, "at_least": 0.5}
    asked = {**black_box_study(tmp_path, {MODEL: finder}), "criteria": [criterion]}
    with pytest.raises(InputError, match="criterion A: no model answers classes, so that accuracy has no value"):
        prepare(parse_study(asked, "study"))
