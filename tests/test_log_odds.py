"""Very sure answers are told apart: log p - log(1 - p) from logits, in double precision, puts them in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, logsumexp, softmax
from sklearn.metrics import roc_auc_score

import roadworthy as rw
from elsewhere import answer_elsewhere
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.manifests import own_node
from roadworthy.core.roles import Model
from roadworthy.core.types import MOST_LOG_ODDS, Batch, Case, Prediction, Stimulus, log_odds
from roadworthy.damages.answers import NeverAnswered, SwappedPair, WrongConfidence
from roadworthy.damages.base import DamagedModel
from roadworthy.engine import plan
from roadworthy.engine.readouts import Readouts, commit, read_case, write_part
from roadworthy.maite.metric import Metric
from roadworthy.metrics import Answers, auroc, fpr95_right, fpr95_wrong
from roadworthy.metrics.selective import class_aurc
from roadworthy.models import CallableModel, OnnxModel, TorchModel
from roadworthy.models.classes import align
from roadworthy.models.joint import JointModel
from roadworthy.models.predictions import StoredPredictions
from roadworthy.models.signals import Signals
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.classification import summaries
from roadworthy.protocols.monitor_scores import own_scores
from roadworthy.protocols.od_test.surest import surest_images
from roadworthy.protocols.ood.tables import Evidence
from roadworthy.protocols.operating_points.facts import Threshold, of_log_odds
from roadworthy.statistics.accumulator import Accumulator
from roadworthy.uncertainty import Ensemble, McDropout, Temperature
from tiny import save_onnx, study

SIDE, IMAGES = 8, 240


def gaps(images: np.ndarray) -> np.ndarray:
    """How far the logit of class 1 lies above that of class 0: from 2 to 40, by the brightness; 0.15 a step."""
    return 2 + np.asarray(images, np.float64).reshape(len(images), -1).mean(1) * (38 / 255)


def sure(images: np.ndarray) -> np.ndarray:
    """Logits of two classes: class 1 always, and from about 17 on with a probability of 1 in single precision."""
    return np.stack([np.zeros(len(images)), gaps(images)], 1)


def sure_probabilities(images: np.ndarray) -> np.ndarray:
    return softmax(sure(images), axis=1).astype(np.float32)


def shown(seed: int = 0, brighter: float = 0.0) -> Batch:
    """Images of one brightness each; class 1 is the likelier to be right the brighter they are."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 256 - int(brighter), IMAGES) + int(brighter)
    images = np.broadcast_to(values[:, None, None, None], (IMAGES, SIDE, SIDE, 3)).astype(np.uint8)
    labels = (rng.random(IMAGES) < 0.25 + 0.7 * values / 255).astype(np.int64)
    return Batch(tuple(f"i{row}" for row in range(IMAGES)), images, labels)


def logits_model(**settings: Any) -> CallableModel:
    return CallableModel(sure, num_classes=2, version="1", outputs="logits", size=SIDE, name="sure", **settings)


def probabilities_model() -> CallableModel:
    return CallableModel(
        sure_probabilities, num_classes=2, version="1", outputs="probabilities", size=SIDE, name="sure"
    )


def stored(folder: Path, model: Model, batch: Batch) -> Readouts:
    """The readouts of a case of one part, written and read as a run does."""
    write_part(folder, 0, batch, model.read(Signals(model, batch, len(batch))))
    case = Case(Stimulus("data"), model.name, {})
    commit(folder, case, 1, model.num_classes)
    return read_case(folder, case.hash)


def test_auroc_of_very_sure_answers_is_that_of_logits_in_double_precision(tmp_path: Path) -> None:
    batch = shown()
    right, gap = batch.labels == 1, gaps(batch.images)
    answers = stored(tmp_path / "logits", logits_model(), batch).answers
    before = stored(tmp_path / "probabilities", probabilities_model(), batch).answers
    assert (answers.confidence == 1).mean() > 0.5, "most are saturated"
    assert np.array_equal(answers.confidence, before.confidence), "the probability stays what it was"
    exact = roc_auc_score(right, gap)
    assert auroc(answers) == pytest.approx(exact, abs=1e-12)
    assert abs(auroc(before) - exact) > 0.03
    threshold = np.sort(gap[right])[int(np.floor(0.05 * right.sum()))]
    assert fpr95_right(answers) == pytest.approx((gap[~right] >= threshold).mean())
    threshold = np.sort(gap[~right])[int(np.ceil(0.95 * (~right).sum())) - 1]
    assert fpr95_wrong(answers) == pytest.approx((gap[right] <= threshold).mean())
    order = np.argsort(-gap, kind="stable")
    _, first, count = np.unique(-gap[order], return_index=True, return_counts=True)
    risk = np.cumsum(~right[order])[first + count - 1] / (first + count)
    assert class_aurc.of_rows(answers, np.ones((1, IMAGES)))[0] == pytest.approx((count * risk).sum() / IMAGES)


def by_logits(model: Model, batch: Batch) -> np.ndarray:
    """Log-odds of the predicted class from what the model answers, by another formula."""
    answer = model.answer(batch, 64)
    chosen = answer.probabilities.argmax(axis=1)
    assert answer.logits is not None
    logs = log_softmax(answer.logits.astype(np.float64), axis=1)
    others = np.where(np.arange(logs.shape[1]) == chosen[:, None], -np.inf, logs)
    return np.asarray(logs[np.arange(len(logs)), chosen] - logsumexp(others, axis=1))


def network(gain: float = 30.0) -> torch.nn.Module:
    torch.manual_seed(0)
    last = torch.nn.Linear(16, 3)
    with torch.no_grad():
        last.weight.mul_(gain)
    parts = [torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5), last]
    return torch.nn.Sequential(*parts)


def torch_model(gain: float = 30.0) -> TorchModel:
    return TorchModel(network(gain).eval(), size=SIDE, outputs="logits", classes=["a", "b", "c"])


def where() -> CallableModel:
    return CallableModel(
        lambda images: np.full((len(images), 4), 0.5), boxes="corners relative", version="1", size=SIDE
    )


KNOWING: dict[str, Callable[[], Model]] = {
    "function": logits_model,
    "torch": torch_model,
    "temperature": lambda: Temperature(torch_model(), 2.0),
    "other order": lambda: align(torch_model(), ["c", "a", "b"]),
    "with boxes": lambda: JointModel(torch_model(), where()),
    "swapped": lambda: DamagedModel(torch_model(), SwappedPair()),
    "never answered": lambda: DamagedModel(torch_model(), NeverAnswered()),
    "too sure": lambda: DamagedModel(torch_model(), WrongConfidence(temperature=0.2)),
}
WITHOUT: dict[str, Callable[[], Model]] = {
    "function": probabilities_model,
    "temperature": lambda: Temperature(probabilities_model(), 2.0),
    "one member without": lambda: Ensemble([logits_model(), probabilities_model()]),
    "damaged passes": lambda: DamagedModel(Ensemble([logits_model(), logits_model()]), SwappedPair()),
}


def noise(n: int = 70) -> Batch:
    images = np.random.default_rng(1).integers(0, 256, (n, SIDE, SIDE, 3), dtype=np.uint8)
    return Batch(tuple(map(str, range(n))), images, np.zeros(n, np.int64))


@pytest.mark.parametrize("kind", KNOWING)
def test_a_model_that_knows_logits_answers_log_odds(kind: str) -> None:
    model, batch = KNOWING[kind](), noise()
    assert "log_odds" in model.columns
    answer = model.answer(batch, 64)
    odds, confidence = answer.log_odds, answer.probabilities.max(axis=1)
    assert odds is not None
    assert odds.dtype == np.float64
    np.testing.assert_allclose(odds, by_logits(model, batch), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(expit(odds), confidence, atol=1e-5)
    few = model.answer(batch.take(slice(60, 70)), 64).log_odds
    assert few is not None
    assert few.tobytes() == odds[60:].tobytes(), "neither batch nor padding changes a bit"


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_model_that_knows_no_logits_answers_none(kind: str) -> None:
    model = WITHOUT[kind]()
    assert "log_odds" not in model.columns
    assert model.answer(noise(3), 4).log_odds is None


@pytest.mark.parametrize("kind", ["ensemble", "mc_dropout"])
def test_several_passes_have_the_log_odds_of_their_mean(kind: str) -> None:
    batch = noise()
    if kind == "ensemble":
        members = [torch_model(3e3), torch_model(6e3)]
        model: Model = Ensemble(members)
        logits = [member.answer(batch, 64).logits for member in members]
    else:
        model = McDropout(network(), passes=5, size=SIDE, outputs="logits", runtime="torch")
        assert isinstance(model, McDropout)
        tensor = model.preprocess(batch.images)
        with torch.no_grad():
            logits = [model._parts.after(model._parts.before(tensor), model.masks(one)) for one in range(5)]
    answer = model.answer(batch, 64)
    logs = logsumexp([log_softmax(np.asarray(one, np.float64), axis=1) for one in logits], axis=0) - np.log(len(logits))
    chosen = answer.probabilities.argmax(axis=1)
    others = np.where(np.arange(3) == chosen[:, None], -np.inf, logs)
    expected = logs[np.arange(len(logs)), chosen] - logsumexp(others, axis=1)
    assert model.columns[:2] == ("probabilities", "log_odds")
    assert answer.log_odds is not None
    np.testing.assert_allclose(answer.log_odds, expected, rtol=1e-4, atol=1e-4)
    assert (answer.probabilities.max(axis=1) == 1).any() or kind == "mc_dropout"


@given(st.lists(st.tuples(*[st.floats(-12, 12, width=32)] * 3), min_size=2, max_size=30))
def test_log_odds_order_answers_as_their_probabilities_do(rows: list[tuple[float, ...]]) -> None:
    """Where nothing saturates the order is that of the probability, which is 1 / (1 + exp(-log-odds))."""
    logits = np.array(rows)
    chosen = logits.argmax(axis=1)
    odds, p = log_odds(logits, chosen), softmax(logits, axis=1).max(axis=1)
    np.testing.assert_allclose(expit(odds), p, rtol=1e-12)
    apart = p[:, None] > p[None] + 1e-12
    assert (odds[:, None] > odds[None])[apart].all()


def test_edge_values_of_log_odds() -> None:
    with np.errstate(all="raise"):
        extreme = log_odds(np.array([[3e38, -3e38], [0.0, -np.inf], [5.0, 5.0], [0.0, 700.0]]), np.array([0, 0, 1, 1]))
    assert extreme.tolist() == [6e38, MOST_LOG_ODDS, 0.0, 700.0]
    assert log_odds(np.zeros((0, 3)), np.zeros(0, np.int64)).shape == (0,)
    assert np.isnan(log_odds(np.array([[np.nan, 0.0], [np.inf, np.inf]]), np.array([1, 0]))).all()


def test_what_is_no_number_is_refused_in_answers_and_in_readouts(tmp_path: Path) -> None:
    half = np.full((1, 2), 0.5, np.float32)
    nothing = Prediction(half, logits=np.float32([[np.nan, 0]]))
    with pytest.raises(ModelError, match="NaN or infinity for 1 of 1 images"):
        nothing.check(1, 2, "m", ("probabilities", "log_odds"))
    with pytest.raises(ModelError, match=r"answered logits \(1, 3\)"):
        Prediction(half, logits=np.zeros((1, 3), np.float32)).check(1, 2, "m", ("probabilities", "log_odds"))
    with pytest.raises(ModelError, match="answers log_odds without declaring them"):
        Prediction(half, log_odds=np.zeros(1)).check(1, 2, "m")
    answers = Answers.from_probabilities(half, [0])
    with pytest.raises(ValueError, match="log_odds must be finite"):
        Answers(**vars(answers) | {"log_odds": np.array([np.nan])})
    with pytest.raises(ValueError, match="columns of one length"):
        Answers(**vars(answers) | {"log_odds": np.zeros(2)})


def test_readouts_with_log_odds_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    batch, model = noise(3), logits_model()
    odds: dict[str, Any] = {"log_odds": np.array([1.0, np.nan, 2.0])}
    write_part(tmp_path, 0, batch, {"probabilities": model.answer(batch, 4).probabilities} | odds)
    case = Case(Stimulus("data"), "m", {})
    commit(tmp_path, case, 1, 2)
    with pytest.raises(InputError, match="cannot be read: log_odds must be finite numbers"):
        read_case(tmp_path, case.hash)


def test_batches_come_with_log_odds_in_any_order_or_with_none() -> None:
    batch = shown()
    logits, labels = sure(batch.images), batch.labels
    exact = roc_auc_score(labels == 1, gaps(batch.images))
    meter, backwards = Accumulator("auroc"), Accumulator("auroc")
    for part in (slice(0, 100), slice(100, None)):
        meter.update(softmax(logits[part], axis=1).astype(np.float32), labels[part], log_odds=logits[part, 1])
    for part in (slice(50, None), slice(0, 50)):
        backwards.update(softmax(logits[part], axis=1).astype(np.float32), labels[part], log_odds=logits[part, 1])
    assert meter.compute()["auroc"].value == backwards.compute()["auroc"].value == pytest.approx(exact, abs=1e-12)
    with pytest.raises(InputError, match="`log_odds=` must be given with every batch or with none"):
        meter.update(logits[:1] * 0 + 0.5, [0])
    plain = Accumulator("auroc")
    plain.update([[0.5, 0.5]], [0])
    with pytest.raises(InputError, match="given log-odds and the other was not"):
        plain.merge(meter)
    with pytest.raises(InputError, match="a finite number for each of 1 images"):
        plain.update([[0.5, 0.5]], [0], log_odds=[np.nan])
    metric = Metric("auroc", outputs="logits")
    metric.update([*logits.astype(np.float32)], [*np.eye(2)[labels]], [{"id": row} for row in range(IMAGES)])
    assert metric.compute()["auroc"] == pytest.approx(exact, abs=1e-12)


def test_stored_predictions_with_logits_have_log_odds_and_others_have_none(tmp_path: Path) -> None:
    batch = shown()
    logits, ids = sure(batch.images), list(batch.ids)
    pd.DataFrame({"id": ids, "logit0": logits[:, 0], "logit1": logits[:, 1]}).to_csv(tmp_path / "logits.csv")
    model = StoredPredictions(tmp_path / "logits.csv")
    odds = model.answer(batch, 64).log_odds
    assert odds is not None
    np.testing.assert_allclose(odds, logits[:, 1], rtol=1e-6)
    both = {"id": ids, "probabilities": list(sure_probabilities(batch.images)), "logits": list(logits)}
    pq.write_table(pa.table(both), tmp_path / "both.parquet")
    assert "log_odds" in StoredPredictions(tmp_path / "both.parquet").columns
    alone = {name: column for name, column in both.items() if name != "logits"}
    pq.write_table(pa.table(alone), tmp_path / "alone.parquet")
    assert StoredPredictions(tmp_path / "alone.parquet").columns == ("probabilities",)
    pq.write_table(pa.table(both | {"logits": list(logits / 3)}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"logits that are not those of its probabilities in \d+ of 240 rows"):
        StoredPredictions(tmp_path / "other.parquet")


def sides(tmp_path: Path, inside: Model, outside: Model) -> list[StoredCase]:
    """Both sides of a set, the test images the brighter ones."""
    one = stored(tmp_path / "in", inside, shown(0, brighter=100))
    other = stored(tmp_path / "out", outside, shown(1))
    tags = {"ood_set": "noise", "kind": "literature"}
    return [
        StoredCase("m", Stimulus("test"), {}, load=lambda: one),
        StoredCase("m", Stimulus("noise", "noise"), tags, load=lambda: other),
    ]


def test_outliers_are_told_by_log_odds_where_both_sides_have_them(tmp_path: Path) -> None:
    found = Evidence(sides(tmp_path / "a", logits_model(), logits_model())).tables()
    rows = found["ood"].set_index("metric")
    scores = np.concatenate([gaps(shown(0, brighter=100).images), gaps(shown(1).images)])
    inside = np.arange(2 * IMAGES) < IMAGES
    assert rows.loc["auroc", "value"] == pytest.approx(roc_auc_score(inside, scores), abs=1e-12)
    assert set(rows["score"]) == {"log_odds"}
    assert set(rows["reason"]) == {""}
    lacking = Evidence(sides(tmp_path / "b", logits_model(), probabilities_model())).tables()
    without = lacking["ood"].set_index("metric")
    assert set(without["score"]) == {"confidence"}, "one side alone would order nothing"
    assert rows.loc["auroc", "value"] - without.loc["auroc", "value"] > 0.02
    probabilities = [sure_probabilities(batch.images).max(1) for batch in (shown(0, brighter=100), shown(1))]
    tied = np.equal.outer(*probabilities).mean()
    assert tied > 0.4
    assert without.loc["auroc", "reason"] == f"{100 * tied:.2f} % of pairs have equal scores and are in no order"
    assert found["ood_scores"].equals(lacking["ood_scores"]), "people see probabilities"


def test_the_largest_mean_probability_is_no_certainty_of_its_own(tmp_path: Path) -> None:
    """A certainty that says more than the probability is what orders answers; that of passes gives way to log-odds."""
    readouts = stored(tmp_path / "passes", Ensemble([logits_model(), logits_model()]), shown())
    assert readouts.certainty is not None
    assert own_scores([readouts])[0] == "log_odds"
    other = Readouts(readouts.ids, readouts.groups, readouts.answers, readouts.certainty / 2)
    assert own_scores([readouts, other])[0] == "certainty"


def test_a_run_orders_by_log_odds_and_shows_thresholds_as_probabilities(tmp_path: Path) -> None:
    save_onnx(tmp_path / "tiny.onnx", gain=400.0, blur=0.3)
    points = {"shifts": ["fog"], "levels": [5], "outliers": None}
    content = study(tmp_path, 56, protocols={"operating_points": points})
    run = rw.run_study(content, out=tmp_path / "run", workers=1, progress=rw.no_progress)
    assert run.verify() == []
    (row,) = run.tables["operating_points_thresholds"].to_dict("records")
    assert row["score"] == "log_odds"
    assert row["probability"] == pytest.approx(expit(row["threshold"]))
    words = Threshold("log_odds", "", row["threshold"], "", 0, 0, 0.0, "").words
    assert words == f"{row['threshold']:.4g} on log-odds{of_log_odds(row['threshold'])}"
    given = content | {"protocols": {"operating_points": points | {"threshold": 0.9}}}
    (row,) = (
        rw.run_study(given, out=tmp_path / "given", workers=1, progress=rw.no_progress)
        .tables["operating_points_thresholds"]
        .to_dict("records")
    )
    assert (row["score"], row["threshold"], row["probability"]) == ("confidence", 0.9, 0.9)


def answered(run: rw.Run) -> set[str]:
    """The folders of the cases of the model."""
    return {Path(case.folder).name for case in run.record.cases.values() if case.system == "tiny"}


def test_a_case_that_was_stored_without_log_odds_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column belongs to the case: an unfinished run of an earlier version asks such a model anew."""
    content = study(tmp_path, 28, protocols={"classification": {"shifts": ["fog"], "levels": [5]}})
    columns = Model.columns
    with monkeypatch.context() as former:
        former.setattr(Model, "columns", property(lambda model: ("probabilities",)))
        before = rw.run_study(content, out=tmp_path / "run", workers=1, progress=rw.no_progress)
        old = answered(before)
    assert Model.columns is columns
    run = rw.run_study(content, out=tmp_path / "run", workers=1, progress=rw.no_progress)
    used = answered(run)
    assert len(used) == len(old) == 2
    assert not used & old
    for name in used:
        assert read_case(run.path / "readouts" / name, own_node(Path(name))).answers.log_odds is not None
    assert run.verify() == []


def test_a_model_of_probabilities_keeps_its_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(model: Model) -> str:
        data: Any = type("Data", (), {"size": (SIDE, SIDE), "channels": 3})()
        bench = plan.Bench(data, {}, 0, 64, 64)
        return bench.case(plan.PlannedStimulus(Stimulus("data"), data), model).case.hash

    models = probabilities_model(), logits_model()
    before = [key(model) for model in models]
    monkeypatch.setattr(plan, "COLUMN_VERSION", 2)
    after = [key(model) for model in models]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]


def test_ties_of_right_and_wrong_answers_are_stated_where_no_logits_are_known(tmp_path: Path) -> None:
    save_onnx(tmp_path / "tiny.onnx", gain=400.0, blur=0.3)
    content = study(tmp_path, 56, protocols={"classification": {"shifts": ["fog"], "levels": [5]}})
    direct = rw.run_study(content, out=tmp_path / "direct", workers=1, progress=rw.no_progress)
    rw.export_study(content, tmp_path / "images", progress=rw.no_progress)
    answer_elsewhere(tmp_path / "images", tmp_path / "tiny.onnx", tmp_path / "answers.csv")
    content["models"] = {"tiny": {"predictions": str(tmp_path / "answers.csv")}}
    back = rw.run_study(content, out=tmp_path / "back", workers=1, progress=rw.no_progress)
    rows = [run.tables["classification"].set_index(["metric", "shift"]).loc["auroc", "none"] for run in (direct, back)]
    assert "in no order" not in rows[0]["reason"]
    assert "% of pairs have equal scores and are in no order" in rows[1]["reason"]
    assert rows[0]["value"] != rows[1]["value"]


def test_onnx_reads_logits_before_a_softmax(tmp_path: Path) -> None:
    model = OnnxModel(save_onnx(tmp_path / "m.onnx", gain=400.0))
    batch = Batch(
        ("a", "b"), np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8), np.zeros(2, np.int64)
    )
    assert model.outputs == "probabilities"
    odds = model.answer(batch, 2).log_odds
    assert odds is not None
    np.testing.assert_allclose(odds, by_logits(model, batch), rtol=1e-9)


def test_pictures_of_the_surest_answers_go_by_log_odds_too() -> None:
    columns = {"label": [0, 0, 0], "prediction": [1, 1, 1], "p_label": [0.0] * 3, "sum_squares": [1.0] * 3}
    sure = Answers(**{name: np.array(own) for name, own in columns.items()}, confidence=np.ones(3), num_classes=2)
    ordered = replace(sure, log_odds=np.array([20.0, 40.0, 30.0]))
    assert (surest_images(sure, "abc"), surest_images(ordered, "abc")) == ([0, 1, 2], [1, 2, 0])
    assert [mistake.row for mistake in summaries._mistakes([ordered])] == [1, 2, 0]
