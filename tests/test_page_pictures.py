"""All six protocols in one report: answers below every image, classes beside confusions, limits on every page."""

from __future__ import annotations

import html as entities
import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest

import roadworthy as rw
from records import record_anew
from reports import Elements, render
from roadworthy.metrics.box_overlap import intersection_over_union
from roadworthy.protocols import PROTOCOLS
from roadworthy.protocols.classification.facts import load_classification
from roadworthy.protocols.localization.words import shown_box
from roadworthy.protocols.pictures import CLASS_SIDE, thumbnail
from roadworthy.report.facts import load_facts
from tiny import save_onnx

GOLDEN = Path(__file__).parent / "golden"
DATA = {"builtin": "signs", "n": 98}
SIX = ("classification", "ood", "od_test", "monitoring", "dependability", "localization")


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.report._plotly", lambda: "var Plotly = {};")


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of all six protocols: a classifier, and a localizer that answers boxes alone."""
    folder = tmp_path_factory.mktemp("six")
    study: dict[str, Any] = {
        "name": "six",
        "size": 32,
        "data": {"test": DATA, "train": {"builtin": "signs", "split": "train", "n": 70}},
        "models": {
            "tiny": {"onnx": str(save_onnx(folder / "tiny.onnx", blur=0.3))},
            "finder": {"onnx": str(GOLDEN / "finder.onnx"), "boxes": "centre relative variance"},
        },
        "outliers": {"scenery": {"builtin": "scenery", "n": 20}},
        "monitors": ["msp", "energy"],
        "protocols": {
            "classification": {"shifts": ["fog"], "levels": [3]},
            "ood": {"sets": ["scenery"], "transformed": ["fog"]},
            "od_test": {"sets": ["scenery", "uniform_noise"], "limit": 20},
            "monitoring": {
                "limit": 40,
                "resamples": 100,
                "timed_images": 0,
                "benchmarks": {
                    "scenery": {"kind": "novel_class", "outliers": "scenery"},
                    "fog": {"kind": "distributional_shift", "shift": "fog"},
                    "black": {"kind": "anomaly", "shift": "sensor_black_frame", "level": 5},
                },
            },
            "dependability": {
                "transformers": [{"name": "blur", "level": 3}],
                "loss_images": 14,
                "occlusion": {"patch": 16, "stride": 16, "images": 42},
            },
            "localization": {"sets": {"fog": {"shift": "fog"}}, "resamples": 100, "timed_images": 0},
        },
    }
    return rw.run_study(study, out=folder / "run", progress=rw.no_progress, accept_chance=True).path


def table(run: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(run / "tables" / f"{name}.parquet")


def test_every_protocol_states_the_limits_of_its_test_on_its_page(six: Path) -> None:
    text = Elements(render(six)).text
    for name in PROTOCOLS:
        limits = PROTOCOLS.get(name).limits
        assert 1 <= len(re.findall(r"[.](?: |$)", limits)) <= 3, f"{name} states no limits, or too many"
        assert text.count(limits) == (name in SIX), name
    assert text.count("Limits of this test.") == len(SIX)


def test_a_page_among_others_opens_with_what_came_out(six: Path) -> None:
    page = Elements(render(six)).text
    heat = page[page.index("By shift and level") :]
    assert heat.index("tiny. ") < heat.index("Limits of this test.") < heat.index("Darker is worse")


def test_the_stored_answers_are_those_of_the_model(six: Path, tmp_path: Path) -> None:
    data = rw.open_dataset(DATA, size=32)
    model = rw.load_model(str(save_onnx(tmp_path / "tiny.onnx", blur=0.3)))
    rows = {name: row for row, name in enumerate(data.ids)}
    sides = {
        "monitoring": table(six, "monitoring_gallery_answers").query("benchmark == ''"),
        "ood": table(six, "ood_gallery_answers").query("side == 'in' and ood_set == 'scenery'"),
        "localization": table(six, "localization_gallery_answers").query("set == 'test' and model == 'tiny'"),
        "dependability": table(six, "dependability_heat_gallery"),
    }
    for name, answers in sides.items():
        assert len(answers), name
        chosen = [rows[image] for image in answers["id"]]
        probabilities = model.predict(data.batch(chosen)).probabilities
        assert [data.class_names[k] for k in probabilities.argmax(axis=1)] == answers["prediction"].tolist(), name
        np.testing.assert_allclose(probabilities.max(axis=1), answers["confidence"], atol=1e-5)
        assert [data.class_names[data.labels[row]] for row in chosen] == answers["label"].tolist(), name


def test_images_that_show_none_of_the_classes_have_no_true_class(six: Path) -> None:
    outside, monitored = table(six, "ood_gallery_answers"), table(six, "monitoring_gallery_answers")
    assert set(outside["label"][outside["side"] == "out"]) == {""}
    assert "" not in set(outside["label"][outside["side"] == "in"])
    without = monitored.groupby("benchmark")["label"].agg(lambda labels: set(labels) == {""})
    assert without.to_dict() == {"": False, "black": True, "fog": False, "scenery": True}


def test_boxes_of_the_gallery_are_those_that_were_measured(six: Path) -> None:
    data = rw.open_dataset(DATA, size=32)
    answers = table(six, "localization_gallery_answers").query("model == 'finder' and set == 'test'")
    assert answers["prediction"].isna().all()
    batch = data.batch([data.ids.index(name) for name in answers["id"]])
    boxes = 32 * answers[["x0", "y0", "x1", "y1"]].to_numpy()
    expected = intersection_over_union(np.asarray(batch.boxes, np.float64), boxes)
    np.testing.assert_allclose(answers["iou"], expected, atol=1e-4)
    html = render(six)
    examples = html[html.index("A few images of each, with their true boxes") :]
    assert examples.count("<rect ") == len(table(six, "localization_gallery_answers").query("model == 'finder'"))


def test_a_box_lies_on_the_square_picture_as_on_its_image() -> None:
    whole = {"x0": 0.0, "y0": 0.0, "x1": 1.0, "y1": 1.0}
    assert vars(shown_box(whole, [64, 32])) == {"x": 0.25, "y": 0.0, "width": 0.5, "height": 1.0}
    assert vars(shown_box({**whole, "x0": 0.6, "x1": 0.4}, [32, 32]))["width"] == 0.0


def test_every_class_has_a_picture_of_its_own(six: Path) -> None:
    classes, data = table(six, "classification_classes"), rw.open_dataset(DATA, size=32)
    assert classes["class"].tolist() == [*data.class_names]
    picture = cv2.cvtColor(cv2.imread(str(six / "media" / classes["media"][0])), cv2.COLOR_BGR2RGB)
    assert picture.shape == (CLASS_SIDE, CLASS_SIDE * len(classes), 3)
    for row in classes.to_dict("records"):
        batch = data.batch([data.ids.index(row["id"])])
        assert data.class_names[batch.labels[0]] == row["class"]
        own = picture[:, CLASS_SIDE * row["image"] : CLASS_SIDE * (row["image"] + 1)]
        np.testing.assert_array_equal(own, thumbnail(batch.images[0], CLASS_SIDE))


def test_class_pictures_stand_beside_confusions(six: Path) -> None:
    html = render(six)
    section = html[html.index("Most frequent confusions") : html.index("Recall of the ten weakest")]
    facts = load_classification(six, load_facts(six))
    confused = re.findall(r'<img src="(data:[^"]+)" alt=""[^>]*><span>([^<]+)</span>', section)
    assert len(confused) > 2
    assert all(uri == facts.class_picture(entities.unescape(name.strip())) for uri, name in confused)


def test_a_run_without_answers_and_class_pictures_is_shown_as_before(six: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(six, tmp_path / "earlier"))
    for path in [*run.glob("tables/*gallery_answers.*"), *run.glob("tables/classification_classes.*")]:
        path.unlink()
    for name in ("dependability_heat_gallery", "dependability_loss_gallery"):
        path = run / "tables" / f"{name}.parquet"
        pd.read_parquet(path).drop(columns=["prediction", "confidence"]).to_parquet(path)
    html = render(record_anew(run))
    assert "Most frequent confusions" in html
    assert html.count('class="strip') > 3
    assert html.count("✓") < render(six).count("✓") / 2
