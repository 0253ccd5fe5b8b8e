"""The protocol `break_point`, from a study to its report, with a model whose failures over severity are known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import roadworthy as rw
from commands import call
from elsewhere import answer_elsewhere
from reports import Elements
from roadworthy.core.errors import InputError
from roadworthy.protocols.break_point.facts import Point, sentence
from roadworthy.protocols.break_point.plan import BreakPoints
from roadworthy.protocols.break_point.settings import Finer, SearchedShift, Settings, chosen_metric
from roadworthy.statistics import Estimate
from tiny import study as tiny_study

GROUPS, FRAMES = 40, 2
READER = """
import numpy as np

GAINS, SEVERITIES = [0.2, 0.3, 0.4, 0.55, 0.7, 1.0], [5, 4, 3, 2, 1, 0]


def answer(images):
    '''Right as long as the severity, read from the darkness, does not exceed the resistance that the image states.'''
    red, green, blue = (images[..., channel].mean(axis=(1, 2)) for channel in range(3))
    severity = np.interp(red / 250, GAINS, SEVERITIES)
    right = 5 * green / red >= severity
    truth = blue > 0.5 * red
    return np.stack([truth != right, truth == right], axis=1).astype(np.float32)


def sturdy(images):
    truth = images[..., 2].mean(axis=(1, 2)) > 0.5 * images[..., 0].mean(axis=(1, 2))
    return np.stack([~truth, truth], axis=1).astype(np.float32)
"""


def resistances() -> np.ndarray:
    """One per image, evenly spread over (0, 5) by group: the chance to fail at a severity s is s / 5 exactly."""
    of_groups = 5 * (np.arange(GROUPS) + 0.5) / GROUPS
    return np.repeat(of_groups, FRAMES)


def breaking(folder: Path, **settings: Any) -> dict[str, Any]:
    """A study of uniform pictures: red is light, green says how much darkness the model stands, blue is the label."""
    labels = np.arange(GROUPS * FRAMES) % 2
    colours = np.stack([np.full(len(labels), 250), 50 * resistances(), 20 + 200 * labels], axis=1)
    images = np.broadcast_to(np.rint(colours)[:, None, None], (len(labels), 8, 8, 3)).astype(np.uint8)
    group = [f"sign {row // FRAMES}" for row in range(len(labels))]
    np.savez(folder / "data.npz", images=images, labels=labels, class_names=["a", "b"], group=group)
    (folder / "m.py").write_text(READER)
    code = {"num_classes": 2}
    return {
        "name": "breaking",
        "data": {"test": str(folder / "data.npz")},
        "models": {
            name: {"callable": f"{folder / 'm.py'}:{name}", "version": name, **code} for name in ("answer", "sturdy")
        },
        "protocols": {"break_point": {"shifts": ["dark"], "at_least": 0.6, "step": 0.5, **settings}},
        "criteria": [
            {"id": m, "metric": "break_severity", "at_least": 4.5, "where": {"protocol": "break_point", "model": m}}
            for m in ("answer", "sturdy")
        ],
    }


def run(study: dict[str, Any], out: Path, workers: int = 1) -> rw.Run:
    return rw.run_study(study, out=out, workers=workers, trust=True, progress=rw.no_progress)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("break")
    run(breaking(folder), folder / "run")
    return folder


def test_a_known_break_point_lies_within_its_bounds(done: Path) -> None:
    opened = rw.open_run(done / "run")
    rows = opened.tables["break_point"].set_index("model")
    point, sturdy = rows.loc["answer"], rows.loc["sturdy"]
    assert point["value"] == pytest.approx(2.0, abs=0.15), "accuracy is 1 - s / 5: it leaves 0.6 at 2"
    assert 0 < point["lo"] <= 2 <= point["hi"] < 5
    assert (point["groups"], point["n"], point["before"], point["after"]) == (GROUPS, GROUPS * FRAMES, 2.0, 2.5)
    assert (point["quantity"], point["unit"]) == ("light", "of the pixel values")
    assert point["value_in_unit"] == pytest.approx(np.interp(point["value"], [2, 3], [0.55, 0.4]))
    assert point["hi_in_unit"] < point["value_in_unit"] < point["lo_in_unit"]
    assert (sturdy["value"], sturdy["lo"], sturdy["hi"]) == (math.inf, 5.0, math.inf)
    assert sturdy["reason"] == "beyond level 5"
    curve = opened.tables["break_point_curve"].set_index(["model", "metric", "severity"])["value"]
    for severity in np.arange(0, 5.5, 0.5):
        failing = curve["answer", "failure_probability", severity]
        assert failing == pytest.approx(severity / 5, abs=0.04)
        assert curve["answer", "accuracy", severity] == pytest.approx(1 - failing)
    assert opened.verify() == []


def test_criteria_are_judged_by_the_bounds(done: Path) -> None:
    verdict = {one.criterion.id: one for one in rw.open_run(done / "run").verdict().findings}
    assert verdict["answer"].status == "fail"
    assert verdict["sturdy"].status == "pass"
    assert "has no limit (beyond level 5), at least 5.0000" in verdict["sturdy"].rows[0].because


def test_the_report_answers_from_which_severity_on(done: Path) -> None:
    text = Elements(rw.open_run(done / "run").report().read_text()).text
    assert "From which severity on?" in text
    assert "Beyond level 5: accuracy at least 60.0" in text
    assert "it misses accuracy at least 60.0" in text
    row = rw.open_run(done / "run").tables["break_point"].set_index("model").loc["answer"]
    line = f"{{name: dark, finer: {{start: {row['lo']:g}, end: {row['hi']:g}, step: 0.05}}}}"
    assert f"- {line}" in text
    assert SearchedShift.model_validate(yaml.safe_load(line)).finer is not None
    gallery = rw.open_run(done / "run").tables["break_point_gallery"]
    assert {*zip(gallery["model"], gallery["side"], gallery["severity"], strict=True)} == {
        ("answer", "before", 2.0),
        ("answer", "after", 2.5),
        ("sturdy", "before", 5.0),
    }
    assert all((done / "run" / "media" / name).exists() for name in gallery["media"])


def test_a_finer_grid_reuses_what_is_there_and_splits_the_error(done: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "run" / "readouts").rglob("part*")}
    coarse = rw.open_run(done / "run").tables["break_point_curve"]
    finer = {"name": "dark", "finer": {"start": 1.5, "end": 2.5, "step": 0.125}}
    study = breaking(done, shifts=[finer])
    for workers in (1, 2):
        opened = run(study, done / "run", workers)
    after = {path: path.stat().st_mtime_ns for path in (done / "run" / "readouts").rglob("part*")}
    assert before.items() <= after.items()
    assert len(after) == len(before) + 2 * 6
    row = opened.tables["break_point"].set_index("model").loc["answer"]
    assert row["severities"] == 17
    assert row["value"] == pytest.approx(2.0, abs=0.1)
    again = opened.tables["break_point_curve"]
    at_two = [t[(t.severity == 2) & (t.model == "answer") & (t.metric == "accuracy")].iloc[0] for t in (coarse, again)]
    assert at_two[0]["value"] == at_two[1]["value"]
    assert at_two[1]["lo"] < at_two[0]["lo"], "two looks: each bound holds with half the error"
    assert (done / "run" / "readouts").is_dir()
    assert any("dark-1.625-r0-" in path.name for path in (done / "run" / "readouts").iterdir())


def test_a_shift_whose_cases_fail_has_no_break_point_and_says_why(tmp_path: Path) -> None:
    study = breaking(tmp_path, shifts=["fog_veil", "dark"], metric="brier", at_least=None, at_most=1.2, step=1)
    opened = run(study | {"criteria": None}, tmp_path / "run")
    rows = opened.tables["break_point"].set_index(["model", "shift"])
    assert rows.loc["answer", "fog_veil"]["reason"].startswith("case failed: ")
    assert math.isnan(rows.loc["answer", "fog_veil"]["value"])
    assert 0 < rows.loc["answer", "dark"]["lo"] < rows.loc["answer", "dark"]["hi"]
    assert set(opened.tables["break_point_curve"]["metric"]) == {"brier"}
    text = Elements(opened.report().read_text()).text
    assert "No break point: case failed: " in text
    assert "Brier" in text


def test_several_sources_and_exported_images(tmp_path: Path) -> None:
    settings = {"shifts": [{"name": "fog", "levels": {1: {"factor": 0.3}, 2: {"factor": 0.7}}}], "step": 0.5}
    study = tiny_study(tmp_path, n=28, protocols={"break_point": {**settings, "at_least": 0.2}})
    source = {"data": study.pop("data"), "models": study.pop("models")}
    both = study | {"sources": {"one": source, "two": source}}
    direct = run(study | source, tmp_path / "direct")
    joined = run(both, tmp_path / "both").tables["break_point"]
    assert list(joined["source"]) == ["one", "two"]
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study | source))
    call("export", path, tmp_path / "images")
    answer_elsewhere(tmp_path / "images", tmp_path / "tiny.onnx", tmp_path / "answers.csv")
    source["models"] = {"tiny": {"predictions": str(tmp_path / "answers.csv")}}
    path.write_text(yaml.safe_dump(study | source))
    call("run", path, "--out", tmp_path / "back")
    back = rw.open_run(tmp_path / "back").tables["break_point"]
    assert back.to_csv() == direct.tables["break_point"].to_csv()
    severities = rw.open_run(tmp_path / "back").tables["break_point_curve"]["severity"]
    assert sorted(set(severities)) == [0, 0.5, 1, 1.5, 2]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"shifts": ["c_spatter"]}, "no severity between 3 and 4: its liquid is water at one and mud at the other"),
        ({"metric": "ece"}, "ece is no mean of a bounded value per image"),
        ({"metric": "brier"}, "brier needs the threshold it must meet"),
        ({"metric": "brier", "at_least": 0.3}, "less brier is better: give `at_most`"),
        ({"at_least": 0.9, "at_most": 0.1}, "`at_least` or `at_most`, not both"),
        ({"at_least": 1.5}, "it has no threshold 1.5"),
        ({"metric": "acuracy"}, "accuracy"),
        ({"shifts": ["fogg"]}, "fog"),
        ({"shifts": [{"name": "fog", "finer": {"start": 4, "end": 6}}]}, "its last level is 5"),
        ({"shifts": [{"name": "fog", "finer": {"start": 2, "end": 3, "step": 5}}]}, "adds no severity"),
        ({"shifts": [{"name": "c_jpeg_compression", "finer": {"start": 0.2, "end": 0.8}}]}, "starts at severity 1"),
        ({"shifts": [{"name": "fog", "finer": {"start": 4, "end": math.inf}}]}, "its last level is 5"),
        ({"shifts": [{"name": "fog", "levels": {10**12: {"factor": 1}}}]}, "more than 1,000 severities"),
        ({"at_least": math.nan}, "it has no threshold nan"),
    ],
)
def test_settings_that_cannot_be_searched_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        BreakPoints().check_settings(Settings.model_validate(settings))


@pytest.mark.parametrize("settings", [{"step": 0}, {"confidence": 1}, {"shifts": []}, {"repeats": 0}, {"stp": 1}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"validation error"):
        Settings.model_validate(settings)


@pytest.mark.parametrize(
    ("criterion", "says"),
    [
        ({"metric": "accuracy"}, "break_severity"),
        ({"over": "pooled"}, "cannot be pooled"),
        ({"where": {"protocol": "break_point", "shift": "fog"}}, "asks for shift 'fog'"),
    ],
)
def test_criteria_that_cannot_be_judged_are_refused(tmp_path: Path, criterion: dict[str, Any], says: str) -> None:
    given = {"id": "C", "metric": "break_severity", "at_least": 3, "where": {"protocol": "break_point"}, **criterion}
    study = breaking(tmp_path) | {"criteria": [given]}
    with pytest.raises(InputError, match=says):
        run(study, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_grids_and_stored_settings() -> None:
    assert SearchedShift(name="fog").grid(0.25) == [k / 4 for k in range(1, 21)]
    assert SearchedShift(name="fog").grid(0.3)[-3:] == [4.5, 4.8, 5]
    assert SearchedShift(name="c_snow").grid(0.5) == [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]
    assert all(isinstance(one, int) for one in SearchedShift(name="fog").grid(1))
    own = SearchedShift(
        name="rain", levels={1: {"intensities": [0.1]}, 3: {"intensities": [1]}}, finer=Finer(start=1, end=2)
    )
    assert len(own.grid(1)) == 3 + 19
    plain = Settings(shifts=[SearchedShift(name="fog"), own])
    stored = plain.model_dump(mode="json")
    assert stored["shifts"][0] == "fog"
    assert Settings.model_validate(stored) == plain
    assert BreakPoints().count_stimuli(Settings(repeats=2), 0, 0) == 2 * (1 + 10 * 20)
    assert chosen_metric(Settings(metric="brier", at_most=0.3)).name == "brier"
    assert math.isnan(SearchedShift(name="c_jpeg_compression").in_unit(0.5))


def test_sentences_for_people() -> None:
    from roadworthy.protocols.break_point.facts import BreakFacts

    breaks = BreakFacts(("m",), ("fog_veil",), {}, {}, {}, "accuracy", "at least", 0.9, 0.95, 100, 10)
    point = Point("fog_veil", Estimate(2.7, 2.5, 3.0, n=9, groups=9), 5.0, "visual range", "m", (60.0, 75.0, 50.0))
    said = sentence(breaks, point).replace("\u00a0", " ")
    assert said == (
        "From severity 2.7 on (bounds 2.50 to 3.00, visual range 60 (75 to 50) m) it misses accuracy at least 90.0 %."
    )
    never = Point("fog", Estimate(math.inf, 4.5, math.inf, n=9, groups=9, reason="beyond level 5"), 5.0)
    assert sentence(breaks, never).startswith("Beyond level 5: ")
    assert "surely up to 4.5" in sentence(breaks, never)
    failed = Point("fog", Estimate(math.nan, reason="case failed: no power"))
    assert sentence(breaks, failed) == "No break point: case failed: no power."
