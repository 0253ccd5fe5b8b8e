"""What decides a criterion that is not met: contributions, counterfactuals, the table, pictures and the report."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import roadworthy as rw
from roadworthy.core.types import Stimulus
from roadworthy.metrics.ranking import binary_auroc
from roadworthy.protocols.base import BySource, Evidence, StoredCase
from roadworthy.protocols.deciding import ImageValues, weighing_objects
from roadworthy.protocols.explaining import explain
from roadworthy.protocols.ood.deciding import decide
from roadworthy.protocols.ood.tables import mix
from roadworthy.statistics import Estimate, proportion_interval
from roadworthy.statistics.deciding import fewest, heaviest_first, lost_pairs, shortfall_by_object
from roadworthy.statistics.intervals import wilson
from roadworthy.stored_evidence import load_evidence
from roadworthy.verdict import Criterion, Measurement, judge
from roadworthy.verdict.why import CRITERIA_EXPLAINED, OBJECTS_SHOWN, no_single_images
from samples import CLASSES, arrays, fill, study

ALWAYS_RED = """
import numpy as np
def answer(images):
    return np.tile([0.5, 0.25, 0.25], (len(images), 1))
"""
MISREAD = {"id": "<i>MISREAD</i>", "metric": "accuracy", "at_least": 0.95, "over": "worst"}


def test_contributions_are_the_hand_made_ones_and_the_heaviest_object_comes_first() -> None:
    # Three objects of 1, 2 and 3 images; threshold 0.8; 6 images, of which 3 are right: 0.8 - 0.5 = 0.3 are lacking.
    values, objects = [0, 1, 0, 1, 1, 0], [0, 1, 1, 2, 2, 2]
    contributions = shortfall_by_object(values, objects, 3, 0.8, 1)
    np.testing.assert_allclose(contributions, [0.8 / 6, (1.6 - 1) / 6, (2.4 - 2) / 6])
    assert contributions.sum() == pytest.approx(0.8 - 0.5)
    assert heaviest_first(contributions).tolist() == [0, 1, 2]
    np.testing.assert_allclose(shortfall_by_object(values, objects, 3, 0.2, -1).sum(), 0.5 - 0.2)
    assert heaviest_first([0.0, 0.0, 0.0]).tolist() == [0, 1, 2], "ties by name"
    assert weighing_objects(np.array([0.0, -0.1, 1e-15, 0.2])) == [3], "rounding does not weigh"


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5)), min_size=1, max_size=40),
    st.floats(0, 1),
    st.sampled_from([1, -1]),
    st.randoms(use_true_random=False),
)
def test_contributions_add_up_to_the_shortfall_whatever_the_order(
    images: list[tuple[float, int]], threshold: float, sign: int, random: Any
) -> None:
    values, objects = zip(*images, strict=True)
    contributions = shortfall_by_object(values, objects, 6, threshold, sign)
    assert contributions.sum() == pytest.approx(sign * (threshold - np.mean(values)), abs=1e-9)
    random.shuffle(images)
    again = shortfall_by_object(*zip(*images, strict=True), 6, threshold, sign)
    np.testing.assert_allclose(again, contributions, atol=1e-12)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=2, max_size=20))
def test_lost_pairs_are_those_of_brute_force_and_add_up_to_what_the_auroc_lacks(images: list[Any]) -> None:
    scores, inside = (np.array(column) for column in zip(*images, strict=True))
    lost = lost_pairs(scores, inside)
    expected, pairs = np.zeros(len(scores)), int(inside.sum() * (~inside).sum())
    for i, j in product(np.flatnonzero(inside), np.flatnonzero(~inside)):
        share = 1.0 if scores[j] > scores[i] else 0.5 if scores[j] == scores[i] else 0.0
        expected[[i, j]] += share / (2 * pairs)
    np.testing.assert_allclose(lost, expected, atol=1e-12)
    if pairs:
        assert lost.sum() == pytest.approx(1 - float(binary_auroc(scores, inside)))


def as_proportion(values: np.ndarray) -> Estimate:
    return proportion_interval(values, np.arange(len(values)))


@pytest.mark.parametrize(("right", "images", "threshold"), [(90, 100, 0.95), (190, 200, 0.95), (120, 400, 0.5)])
def test_so_few_objects_decide_as_the_closed_form_says(right: int, images: int, threshold: float) -> None:
    values = (np.arange(images) >= images - right).astype(np.float64)
    mean = ImageValues(values, np.ones(images), np.arange(images), images, as_proportion)
    criterion = Criterion(id="R", metric="accuracy", at_least=threshold)
    words = " ".join(mean.words(criterion, threshold, heaviest_first(mean.contributions(criterion, threshold))))
    by_bound = next(k for k in range(images) if wilson(right + k, images)[0] >= threshold)
    by_value = max(0, round(threshold * images) - right)
    of_all = f"of {images} objects"
    assert f"first {by_bound} {of_all}, the lower bound would reach {threshold:g}" in words
    assert (f"first {by_value} {of_all}, the value would reach {threshold:g}" in words) == (by_value > 0)


def test_where_all_objects_would_not_suffice_that_is_said() -> None:
    mean = ImageValues(np.zeros(5), np.ones(5), np.arange(5), 5, as_proportion)
    criterion = Criterion(id="R", metric="accuracy", at_least=0.9)
    words = mean.words(criterion, 0.9, np.arange(5))
    assert words[-1].endswith("all 5 objects the lower bound would not reach 0.9: there are too few objects.")
    assert fewest(5, lambda k: False) is None


class Silent(Evidence):
    """A protocol that does not tell which images decide; every value is 0.5 of 10 objects, surely."""

    def tables(self) -> dict[str, Any]:
        return {}

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        return [
            Measurement({"level": level}, Estimate(0.5 - level / 10, 0.0, 0.6, n=10, groups=10)) for level in range(3)
        ]

    def pictures(self, cases: Any, media: Path) -> dict[str, Any]:
        return {}


def test_without_single_images_the_reason_is_said_and_the_number_of_criteria_is_limited() -> None:
    evidence = {"classification": Silent()}
    criteria = [Criterion(id=f"R{k}", metric="accuracy", at_least=0.7) for k in range(CRITERIA_EXPLAINED + 1)]
    verdict = explain(judge(criteria, evidence["classification"].measure), evidence)
    whys = [finding.why for finding in verdict.findings]
    assert all(why is not None and not why.objects and not why.line for why in whys)
    assert whys[0]
    assert whys[0].sentences[0] == "Of 3 conditions that decide it, this one is the furthest from the threshold."
    assert "does not tell which" in whys[0].sentences[1]
    assert whys[0].where == {"level": 2}, "the condition that is furthest away is explained"
    assert whys[-1]
    assert f"{CRITERIA_EXPLAINED} criteria" in whys[-1].sentences[1]
    passed = judge([Criterion(id="P", metric="accuracy", at_most=0.9)], evidence["classification"].measure)
    assert explain(passed, evidence).findings[0].why is None
    assert "why" not in passed.to_json()["criteria"][0]


def test_of_several_sources_the_one_of_the_condition_is_asked() -> None:
    class Named(Silent):
        def __init__(self, name: str) -> None:
            self.name = name

        def deciding(self, criterion: Criterion, measured: Measurement) -> Any:
            assert "source" not in measured.where
            assert "source" not in criterion.where
            return no_single_images(self.name)

    both = BySource({"a": Named("a"), "b": Named("b")}, lambda criterion: ["a", "b"])
    criterion = Criterion(id="R", metric="accuracy", at_least=0.7, where={"source": "b"})
    measured = Measurement({"source": "b", "level": 1}, Estimate(0.5, 0.4, 0.6, n=10, groups=10))
    assert both.deciding(criterion, measured).sentences[0].endswith("here: b.")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    """A model that answers red to twelve squares of six objects, two images each; those of red are right."""
    folder = fill(tmp_path_factory.mktemp("deciding"))
    groups = np.array([f"<b>{row // 2}</b>" for row in range(12)])
    np.savez(folder / "data.npz", **arrays(group=groups))
    (folder / "model.py").write_text(ALWAYS_RED)
    asked = study(
        models={"m": {"callable": "model.py:answer", "num_classes": 3, "size": [8, 8]}},
        protocols={"classification": {"shifts": ["grey"], "levels": [5], "repeats": 2}},
        criteria=[
            MISREAD,
            {"id": "DROP", "metric": "accuracy_drop", "at_most": 0.1},
            {"id": "ECE", "metric": "ece", "at_most": 0.01, "over": "pooled"},
            {"id": "POOL", "metric": "brier", "at_most": 0.5, "over": "pooled"},
        ],
    )
    (folder / "study.yaml").write_text(yaml.safe_dump(asked))
    return rw.run_study(
        folder / "study.yaml", out=folder / "run", trust=True, accept_chance=True, workers=1, progress=rw.no_progress
    )


def test_the_objects_that_decide_are_in_a_table_with_pictures_and_in_the_report(finished: rw.Run) -> None:
    table = finished.tables["deciding"]
    own = table[table["criterion"] == MISREAD["id"]]
    assert [*own["group"]] == [f"<b>{k}</b>" for k in (2, 3, 4, 5)], "red objects are right and weigh nothing"
    assert [*own["label"]] == [CLASSES[1]] * 2 + [CLASSES[2]] * 2
    assert {*own["prediction"]} == {"red"}
    np.testing.assert_allclose(own["contribution"], 2 * 0.95 / 12)
    assert {*own["images"]} == {2}
    assert {*own["value"]} == {0.0}
    assert {*own["confidence"]} == {0.5}
    assert {*own["where"]} == {"model m, shift none, level 0"}
    assert all((finished.path / "media" / name).is_file() for name in own["media"])
    assert len(own) <= OBJECTS_SHOWN
    assert {*table["criterion"]} == {MISREAD["id"], "POOL"}
    page = (finished.path / "report.html").read_text()
    assert "<b>2</b>" not in page
    assert "&lt;b&gt;2&lt;/b&gt;" in page
    assert "<i>MISREAD" not in page
    assert page.count("as it was shown") >= len(table)
    assert "4 of 6 objects weigh against the threshold" in page
    assert "No single images are named here: it has no value with bounds." in page, "ECE of six objects"
    verdict = json.loads((finished.path / "verdict.json").read_text())
    assert verdict["criteria"][0]["why"]["line"] == (
        "decided by objects <b>2</b>, <b>3</b>, <b>4</b> and 1 more (blue 2 of 2, green 2 of 2)"
    )
    assert finished.verify() == []


def test_judged_later_the_objects_are_named_and_pictures_shown_where_they_are(finished: rw.Run, tmp_path: Path) -> None:
    run = rw.open_run(shutil.copytree(finished.path, tmp_path / "run"), trust=True)
    before = run.tables["deciding"]
    later = run.verdict([{"id": "NEW", "metric": "accuracy", "where": {"shift": "grey"}, "at_least": 0.9}])
    assert later.findings[0].why is not None
    assert later.findings[0].why.objects[0].group == "<b>2</b>"
    assert run.tables["deciding"].equals(before), "judging writes nothing"
    run.save_verdict(later)
    assert {*run.tables["deciding"]["criterion"]} == {"NEW"}
    media = {*run.tables["deciding"]["media"]}
    assert "" in media, "nothing was drawn for it"
    assert len(media) > 1, "but what other tables show of its images is there"
    assert "the images were not at hand" in (run.path / "report.html").read_text()
    assert run.verify() == []
    run.save_verdict(run.verdict([{"id": "EASY", "metric": "accuracy", "at_least": 0.01, "over": "pooled"}]))
    assert len(run.tables["deciding"]) == 0
    assert run.verify() == []
    changed = before.assign(contribution=0.5)
    run.save_verdict(run.verdict([MISREAD]))
    run.folder.write_table("deciding", changed[changed["criterion"] == MISREAD["id"]])
    run.folder.update_record(["tables/deciding.csv", "tables/deciding.parquet"])
    assert run.verify() == ["table deciding does not follow from the readouts and the criteria"]


def test_a_condition_that_is_not_one_of_the_cells_names_no_images(finished: rw.Run) -> None:
    evidence = load_evidence(finished.folder, finished.record)["classification"]
    criterion = Criterion(id="N", metric="accuracy", at_least=0.9, where={"light": "night"})
    measured = Measurement({"model": "m", "shift": "none", "level": 0, "light": "night"}, Estimate(0.5, 0.4, 0.6))
    assert "the condition light speaks of a part" in evidence.deciding(criterion, measured).sentences[0]


def stored(scores: list[float], groups: str, labels: dict[str, str]) -> StoredCase:
    columns = {"label": np.zeros(len(scores), int), "prediction": np.ones(len(scores), int), "log_odds": None}
    answers = SimpleNamespace(confidence=np.array(scores), **columns)
    readouts: Any = SimpleNamespace(ids=tuple(groups.upper()), groups=tuple(groups), certainty=None, answers=answers)
    return StoredCase("m", Stimulus("data"), labels, hash=groups, load=lambda: readouts)


def test_of_outliers_those_objects_decide_that_lose_most_pairs() -> None:
    inside, outside = stored([0.9, 0.4, 0.8], "abc", {}), stored([0.5, 0.3, 0.85], "xyz", {"ood_set": "mist"})
    criterion = Criterion(id="O", metric="auroc", at_least=0.9, where={"protocol": "ood"})
    why = decide([(inside, outside)], mix, ("stop", "yield"), criterion)
    # b loses to x and z, c loses to z: three of nine pairs, each shared by its two images.
    assert [(w.group, round(w.contribution * 18, 9)) for w in why.objects] == [("b", 2), ("z", 2), ("c", 1), ("x", 1)]
    assert [(w.id, w.label, w.prediction, w.confidence, w.case, w.row) for w in why.objects[:2]] == [
        ("B", "stop", "yield", 0.4, "abc", 1),
        ("Z", "outlier (mist)", "yield", 0.85, "xyz", 2),
    ]
    assert sum(w.contribution for w in why.objects) == pytest.approx(1 - 6 / 9)
    assert why.sentences[-1].startswith("Had the first 2 of 6 objects lost no pair, the value would reach 0.9")
    assert why.classes == "outliers 2 of 3, stop 2 of 3"
    other = decide([(inside, outside)], mix, ("stop", "yield"), criterion.model_copy(update={"metric": "fpr95_in"}))
    assert not other.objects
    assert "a figure of all scores together" in other.sentences[0]
