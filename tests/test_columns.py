"""Systems answer in columns: a model without classes goes through plan, engine, readouts, export and stored answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

import roadworthy as rw
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.tables import TableSpec
from roadworthy.core.types import Stimulus, join_columns
from roadworthy.engine.plan import Bench, PlannedCase, PlannedStimulus, plan_cases
from roadworthy.protocols import PROTOCOLS
from roadworthy.protocols.base import Evidence, KnownCase, Part, Planned, Protocol, StoredCase, matching
from roadworthy.shifts import make_shift
from roadworthy.statistics import Estimate
from roadworthy.study import parse_study
from roadworthy.uncertainty import Ensemble
from roadworthy.uncertainty.measures import expected_entropy, variation_ratio
from roadworthy.verdict import Criterion, Measurement
from tiny import SIZE, save_onnx, study

MODEL = "where"


class Localizer(rw.Model):
    """Says that the object fills the middle of the picture, and how sure it is of that: not very."""

    name, concurrent = MODEL, True
    capabilities = frozenset({"boxes", "box_variance"})

    def fingerprint(self) -> str:
        return "the middle"

    def predict(self, batch: rw.Batch) -> rw.Prediction:
        side = batch.images.shape[1] / 4
        boxes = np.tile(np.float32([side, side, 3 * side, 3 * side]), (len(batch), 1))
        return rw.Prediction(boxes=boxes, box_variance=np.full_like(boxes, 4.0))


def iou(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Intersection over union (N,) of boxes (N, 4)."""
    sides = np.minimum(one[:, 2:], other[:, 2:]) - np.maximum(one[:, :2], other[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (one, other)]
    return np.asarray(shared / (areas[0] + areas[1] - shared))


class Settings(BaseModel, extra="forbid", frozen=True):
    shift: str = "rotation"


FITS = TableSpec(
    "located",
    "How well the boxes of one model fit under one shift.",
    key=("model", "shift", "metric"),
    columns=("model", "shift", "metric", "value"),
)


class Located(Protocol):
    """A protocol that asks for boxes: how well do they fit, undisturbed and under a shift?"""

    name, summary, settings = "located", "Where is the object?", Settings
    table_specs = (FITS,)
    columns = frozenset({"boxes"})

    def check_settings(self, settings: Settings) -> None:
        make_shift(settings.shift, 3)

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        return 2

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        data, shift = bench.data.fingerprint(), make_shift(settings.shift, 3)
        clean = PlannedStimulus(Stimulus(data, seed=bench.seed), bench.data)
        return [clean, PlannedStimulus(shift.stimulus(data, seed=bench.seed), bench.data, shift)]

    def plan(self, settings: Settings, bench: Bench) -> Planned:
        return Planned(plan_cases(self.name, self.planned_stimuli(settings, bench), bench))

    def check(self, cases: Sequence[KnownCase], criterion: Criterion, context: Any = None) -> None:
        rows = [SimpleNamespace(model=case.system, shift=case.stimulus.name) for case in cases]
        matching(f"criterion {criterion.id}", rows, ("model", "shift"), criterion)

    def evidence(self, part: Part, **options: Any) -> LocatedEvidence:
        return LocatedEvidence(part.cases)


class LocatedEvidence(Evidence):
    def __init__(self, cases: Sequence[StoredCase]) -> None:
        self.rows = []
        for case in cases:
            stored = case.load()
            assert stored.true_box is not None
            assert stored.boxes is not None
            fit = iou(stored.true_box, stored.boxes)
            self.rows.append(
                {"model": case.system, "shift": case.stimulus.name, "metric": "accuracy", "value": fit.mean()}
            )

    def tables(self) -> dict[str, pd.DataFrame]:
        return {FITS.name: FITS.frame(self.rows)}

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        return [
            Measurement(
                {"shift": row["shift"]}, Estimate(row["value"], row["value"] - 0.1, row["value"] + 0.1, n=10, groups=10)
            )
            for row in self.rows
            if row["shift"] == criterion.where["shift"]
        ]

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        return {}


@pytest.fixture(autouse=True)
def located() -> Iterator[None]:
    PROTOCOLS.register("located")(Located)
    yield
    PROTOCOLS._members.pop("located")


def content(folder: Path, models: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    protocols = {"classification": {"shifts": ["rotation"], "levels": [3]}, "located": {"shift": "rotation"}}
    asked = {"protocol": "located", "shift": "rotation"}
    criteria = [{"id": "L", "metric": "accuracy", "where": asked, "at_least": 0.05}]
    return study(folder, 70, models=dict(models), **{"protocols": protocols, "criteria": criteria, **changes})


def test_a_localizer_goes_all_the_way_beside_a_classifier(tmp_path: Path) -> None:
    onnx = str(save_onnx(tmp_path / "tiny.onnx"))
    asked = content(tmp_path, {"tiny": {"onnx": onnx}, MODEL: "<in memory>"})
    prepared = prepare(parse_study(asked, "study"), models={MODEL: Localizer()}, accept_chance=True)
    run = execute(prepared, tmp_path / "run", workers=2, progress=no_progress)
    table = run.tables["located"].set_index("shift")["value"]
    assert set(run.tables["located"]["model"]) == {MODEL}
    assert set(run.tables["classification"]["model"]) == {"tiny"}
    assert {name: part.sources[""].left_out for name, part in run.record.protocols.items()} == {
        "classification": {MODEL: f"model {MODEL} answers no probabilities"},
        "located": {"tiny": "model tiny answers no boxes"},
    }
    page = run.report().read_text()
    assert f"Left out of classification: model {MODEL} answers no probabilities." in page
    section = page.partition('<section id="located-table"')[2].partition("</section>")[0]
    assert "Where is the object?" in section
    assert f"<td>{MODEL}</td><td>rotation</td><td>accuracy</td><td>{table['rotation']:.4g}</td>" in section
    assert "2 rows; all of them: <code>tables/located.csv</code>" in section
    assert "located: 2 rows in tables/located.csv" in run.headline()
    assert run.verdict().status == "pass"
    assert run.verify() == []
    shown = {showing.stimulus.name: showing for showing in prepared.plan.stimuli.values()}
    for name, value in table.items():
        batch = shown[str(name)].show(prepared.sources[""].data.batch(slice(None)))
        assert batch.boxes is not None
        answer = Localizer().predict(batch).boxes
        assert answer is not None
        assert value == pytest.approx(iou(batch.boxes.astype(float), answer.astype(float)).mean(), abs=1e-6)
    assert table["rotation"] != table["none"], "the true boxes moved with the images"

    PROTOCOLS._members.pop("located")
    with pytest.raises(InputError, match="the protocol 'located' of the run is not here: name the code that brings it"):
        run.report()
    PROTOCOLS.register("located")(Located)

    rw.export_study(asked, tmp_path / "export")
    manifest = pd.read_csv(tmp_path / "export" / "manifest.csv", dtype=str)
    sides = {cv2.imread(str(tmp_path / "export" / path)).shape[0] for path in manifest["path"]}
    assert sides == {SIZE}
    columns = {f"box{k}": SIZE / 4 if k < 2 else 3 * SIZE / 4 for k in range(4)}
    manifest.drop(columns="path").assign(**columns).to_csv(tmp_path / "answers.csv", index=False)
    stored = content(tmp_path, {MODEL: {"predictions": str(tmp_path / "answers.csv")}})
    stored["protocols"].pop("classification")
    again = rw.run_study(stored, out=tmp_path / "stored", progress=no_progress, accept_chance=True)
    assert again.tables["located"].equals(run.tables["located"])


def test_stored_boxes_are_checked_before_the_run(tmp_path: Path) -> None:
    """They are not rehearsed, having no probabilities; that they answer everything is looked at all the same."""
    data = rw.open_dataset({"builtin": "signs", "n": 70}, size=SIZE)
    answers = pd.DataFrame({"id": data.ids} | {f"box{side}": 1.0 for side in range(4)})
    answers.to_csv(tmp_path / "answers.csv", index=False)
    asked = content(tmp_path, {MODEL: {"predictions": str(tmp_path / "answers.csv")}}, protocols={"located": {}})
    with pytest.raises(InputError, match=r"lacks 70 of 140 answers: \(rotation-3-.*it has no column 'stimulus'"):
        prepare(parse_study(asked, "study"))


def test_an_export_of_several_sources_says_which_image_is_of_which(tmp_path: Path) -> None:
    onnx = str(save_onnx(tmp_path / "tiny.onnx"))
    test = {name: {"builtin": "signs", "n": 28, "split": split} for name, split in (("a", "test"), ("b", "train"))}
    protocols = {"classification": {"shifts": ["fog"], "levels": [3]}, "ood": {"sets": ["scenery"], "transformed": []}}
    asked = {
        "size": SIZE,
        "protocols": protocols,
        "outliers": {"scenery": {"builtin": "scenery", "n": 28}},
        "sources": {name: {"data": {"test": data}, "models": {"tiny": onnx}} for name, data in test.items()},
    }
    run = rw.run_study(asked, out=tmp_path / "run", progress=no_progress)
    folder = tmp_path / "export"
    rw.export_study(asked, folder, progress=no_progress)
    manifest = pd.read_csv(folder / "manifest.csv", dtype=str)
    assert dict(manifest["source"].value_counts()) == {"a": 56, "b": 56, "a;b": 28}, "both meet the same scenery"
    howto = (folder / "HOWTO.md").read_text()
    for words in ("column `source`", "`classes-SOURCE.txt`", "predictions: answers-SOURCE.csv"):
        assert words in howto
    for entry in ("{predictions: answers-SOURCE.csv}", "{monitor: stored, scores: scores.csv}"):
        assert howto.count(entry) == 1
        howto = howto.replace(entry, "")
    assert "{" not in howto
    model = rw.load_model(onnx)
    for source in test:
        own = manifest[manifest["source"].str.split(";").map(lambda names, source=source: source in names)]
        names = (folder / f"classes-{source}.txt").read_text().splitlines()
        images = np.stack([cv2.imread(str(folder / path))[..., ::-1] for path in own["path"]])
        shown = rw.Batch(ids=tuple(own["id"]), images=images, labels=np.zeros(len(own), np.int64))
        answers = pd.DataFrame(model.answer(shown, 64).probabilities, columns=names, index=own.index)
        own.drop(columns="path").join(answers).to_csv(tmp_path / f"{source}.csv", index=False, float_format="%.9g")
        asked["sources"][source]["models"] = {"tiny": {"predictions": str(tmp_path / f"{source}.csv")}}
    again = rw.run_study(asked, out=tmp_path / "stored", progress=no_progress)
    assert again.tables["classification"]["value"].to_list() == pytest.approx(
        run.tables["classification"]["value"].to_list(), nan_ok=True
    )


def test_a_protocol_without_any_model_to_ask_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="protocol classification has no model to ask: model where answers no prob"):
        prepare(parse_study(content(tmp_path, {MODEL: "<>"}), "study"), models={MODEL: Localizer()})


def test_a_registered_protocol_has_its_settings_and_criteria_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown key 'protocols.located.shfit': did you mean 'shift'"):
        parse_study(content(tmp_path, {MODEL: "<>"}, protocols={"located": {"shfit": "fog"}}), "study")
    asked = [{"id": "L", "metric": "accuracy", "where": {"protocol": "located", "shift": "fog"}, "at_least": 0.1}]
    study_of_fog = content(tmp_path, {MODEL: "<>"}, protocols={"located": {}}, criteria=asked)
    with pytest.raises(InputError, match="asks for shift 'fog', but the run has"):
        prepare(parse_study(study_of_fog, "study"), models={MODEL: Localizer()})


def test_a_protocol_that_declares_no_table_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Located, "table_specs", ())
    asked = parse_study(content(tmp_path, {MODEL: "<>"}, protocols={"located": {}}), "study")
    with pytest.raises(InputError, match="protocol located declares no table: its author must list a TableSpec"):
        prepare(asked, models={MODEL: Localizer()})


def test_a_table_that_is_not_as_declared_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that ends so leaves the finished run as it was."""
    asked = parse_study(content(tmp_path, {MODEL: "<>"}, protocols={"located": {}}), "study")
    prepared = prepare(asked, models={MODEL: Localizer()}, accept_chance=True)
    run = execute(prepared, tmp_path / "run", workers=1, progress=no_progress)
    for tables, complaint in (
        (lambda self: {"fits": FITS.frame(self.rows)}, "no protocol declares the table fits: add a TableSpec"),
        (lambda self: {FITS.name: FITS.frame(self.rows).drop(columns="shift")}, "table located .* lacks the column sh"),
    ):
        monkeypatch.setattr(LocatedEvidence, "tables", tables)
        with pytest.raises(InputError, match=f"the protocol located is wrong about its tables.*{complaint}"):
            execute(prepared, run.path, workers=1, progress=no_progress)
    monkeypatch.undo()
    assert run.verify() == []


class Undeclared(Localizer):
    capabilities = frozenset({"boxes"})


class Silent(Localizer):
    capabilities = frozenset({"boxes", "box_variance", "certainty"})


@pytest.mark.parametrize(
    ("model", "complaint"),
    [(Undeclared(), "box_variance without declaring"), (Silent(), "declares certainty and does not answer")],
)
def test_columns_are_what_a_model_declares(model: rw.Model, complaint: str, tmp_path: Path) -> None:
    batch = rw.open_dataset("builtin:signs").batch(slice(0, 3))
    with pytest.raises(rw.ModelError, match=complaint):
        model.answer(batch, 3)


def test_what_passes_disagree_on_is_stored(tmp_path: Path) -> None:
    members = [rw.load_model(save_onnx(tmp_path / f"{gain}.onnx", gain=gain)) for gain in (1.0, 3.0)]
    ensemble = Ensemble(members, name="both")
    asked = study(tmp_path, 70, models={"both": "<>"}, protocols={"classification": {"shifts": ["fog"], "levels": [5]}})
    prepared = prepare(parse_study(asked, "study"), models={"both": ensemble})
    run = execute(prepared, tmp_path / "run", workers=1, progress=no_progress)
    parts = map(pd.read_parquet, run.path.glob("readouts/none-*/part-00000.parquet"))
    part = next(part for part in parts if "prediction" in part)  # the other one holds the conditions of the data
    samples = ensemble.answer(prepared.sources[""].data.batch(slice(None)), 64).samples
    assert samples is not None
    np.testing.assert_array_equal(part["sample_entropy"], expected_entropy(samples))
    np.testing.assert_array_equal(part["sample_dissent"], variation_ratio(samples))
    assert {"certainty", "true_box", "probabilities"} <= set(part.columns)


def test_columns_of_some_batches_only_are_an_error() -> None:
    one, two = {"boxes": np.zeros((2, 4))}, {"boxes": np.zeros((1, 4)), "certainty": np.zeros(1)}
    assert join_columns([one, one])["boxes"].shape == (4, 4)
    for parts in ([one, two], [two, one]):
        with pytest.raises(ModelError, match="the column certainty is answered for some batches and not for others"):
            join_columns(parts)
