"""Out-of-distribution evaluation: separation by hand, all images of both sides counted, nothing shown twice."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import roadworthy as rw
from commands import call
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch, Stimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers, Metric, auroc
from roadworthy.metrics.ranking import separation
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.ood.metrics import AUROC, FPR95_OUT, METRICS
from roadworthy.protocols.ood.settings import Sides
from roadworthy.protocols.ood.tables import Evidence
from roadworthy.study import parse_study
from stand_ins import Counting
from tiny import contents, study

FOREIGN = {"builtin": "scenery", "n": 100}
SMALL = {"sets": ["uniform_noise", "park", "swirl"], "transformed": ["fog"]}


def run(folder: Path, out: str, *, workers: int = 1, model: Counting | None = None, **changes: Any) -> rw.Run:
    models = {"counting": model} if model else {}
    if model:
        changes["models"] = {"counting": "<in memory>"}
    changes = {"outliers": {"park": FOREIGN}, "protocols": {"ood": SMALL}, **changes}
    return execute(
        prepare(parse_study(study(folder, **changes), "study"), models=models, accept_chance=True),
        folder / out,
        workers=workers,
        progress=no_progress,
    )


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 3)), min_size=2, max_size=60))
def test_separation_equals_scikit_learn_with_ties_and_weights(rows: list[tuple[int, bool, int]]) -> None:
    score, inside, weight = (np.array(column) for column in zip(*rows, strict=True))
    found = separation(score, inside, weight[None].astype(float))
    if not (weight[inside].sum() and weight[~inside].sum()):
        assert np.isnan([found.auroc, found.aupr_in, found.aupr_out, found.fpr95_in, found.fpr95_out]).all()
        return
    false, true, _ = roc_curve(inside, score, sample_weight=weight, drop_intermediate=False)
    assert found.auroc[0] == pytest.approx(roc_auc_score(inside, score, sample_weight=weight))
    assert found.aupr_in[0] == pytest.approx(average_precision_score(inside, score, sample_weight=weight))
    assert found.aupr_out[0] == pytest.approx(average_precision_score(~inside, -score, sample_weight=weight))
    assert found.fpr95_in[0] == pytest.approx(false[np.argmax(true >= 0.95 - 1e-12)])
    false, true, _ = roc_curve(~inside, -score, sample_weight=weight, drop_intermediate=False)
    assert found.fpr95_out[0] == pytest.approx(false[np.argmax(true >= 0.95 - 1e-12)])


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 3)), min_size=2, max_size=60))
def test_aupr_of_equal_shares_is_that_of_sides_of_one_weight(
    rows: list[tuple[int, bool, int]],
) -> None:
    score, inside, weight = (np.array(column) for column in zip(*rows, strict=True))
    found = separation(score, inside, weight[None].astype(float), equal_shares=True)
    sides = [weight[inside].sum(), weight[~inside].sum()]
    if not all(sides):
        assert np.isnan([found.aupr_in, found.aupr_out]).all()
        return
    shares = weight / np.where(inside, *sides)
    assert found.aupr_in[0] == pytest.approx(average_precision_score(inside, score, sample_weight=shares))
    assert found.aupr_out[0] == pytest.approx(average_precision_score(~inside, -score, sample_weight=shares))
    as_they_are = separation(score, inside, weight[None].astype(float))
    assert [found.auroc, found.fpr95_in, found.fpr95_out] == [
        as_they_are.auroc,
        as_they_are.fpr95_in,
        as_they_are.fpr95_out,
    ]


@pytest.mark.parametrize(
    ("inside", "outside", "fpr95_in", "fpr95_out"),
    [
        ([0.9, 0.8], [0.6, 0.7], 0.0, 0.0),
        ([0.6, 0.7], [0.9, 0.8], 1.0, 1.0),
        ([0.9] * 19 + [0.1], [0.5] * 10, 0.0, 0.05),  # one of 20 inside lies low: 95 % do without it
        ([0.9] * 10, [0.5] * 19 + [0.95], 0.05, 0.0),
        ([0.9] * 18 + [0.1] * 2, [0.5] * 10, 1.0, 0.1),
        ([0.5] * 4, [0.5] * 4, 1.0, 1.0),  # all equal
        ([0.9], [0.9], 1.0, 1.0),
    ],
)
def test_fpr95_takes_either_side_as_the_positive_class(
    inside: list[float], outside: list[float], fpr95_in: float, fpr95_out: float
) -> None:
    """Outliers accepted where 95 % inside are accepted; images inside rejected where 95 % of outliers are rejected."""
    found = evidence(stored("a", inside, {}, inside), stored("b", outside, OUT, outside))
    assert (value(found, "fpr95_in"), value(found, "fpr95_out")) == pytest.approx((fpr95_in, fpr95_out))


def stored(
    name: str, confidences: list[float], tags: dict[str, str], certainty: list[float] | None = None
) -> StoredCase:
    probabilities = np.array([[c, 1 - c] for c in confidences])
    ids = tuple(f"{name}{row}" for row in range(len(confidences)))
    own = None if certainty is None else np.array(certainty)
    readouts = Readouts(ids, ids, Answers.from_probabilities(probabilities, [0] * len(ids)), own)
    return StoredCase("m", Stimulus(name, name), tags, load=lambda: readouts)


def evidence(inside: StoredCase, *outside: StoredCase, sides: Sides = "all") -> Evidence:
    return Evidence([StoredCase("m", Stimulus("test"), {}, load=inside.load), *outside], sides=sides)


def value(found: Evidence, metric: str) -> float:
    return float(found.tables()["ood"].set_index("metric").loc[metric, "value"])


OUT = {"ood_set": "noise", "kind": "literature"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_direction_of_every_metric_is_that_of_better_separation(metric: Metric) -> None:
    """Else a criterion the wrong way has no remark, and a comparison calls the worse model the better one."""
    perfect, guessing = (
        value(evidence(stored("a", [0.9, 0.8], {}), stored("b", outside, OUT)), metric.name)
        for outside in ([0.6, 0.7], [0.8, 0.9])
    )
    assert (perfect > guessing) is metric.higher_is_better


def test_in_distribution_is_the_positive_class() -> None:
    found = evidence(stored("a", [0.9, 0.8, 0.95, 0.7], {}), stored("b", [0.6, 0.75, 0.55, 0.65], OUT))
    assert value(found, "auroc") == 15 / 16
    assert (value(found, "fpr95_in"), value(found, "fpr95_out")) == (0.25, 0.25)
    backwards = evidence(stored("b", [0.6, 0.75, 0.55, 0.65], {}), stored("a", [0.9, 0.8, 0.95, 0.7], OUT))
    assert value(backwards, "auroc") == 1 / 16


def test_the_models_own_certainty_is_the_score_where_it_has_one() -> None:
    sure, unsure = [0.9, 0.9], [0.9, 0.9]
    found = evidence(stored("a", sure, {}, [0.3, 0.4]), stored("b", unsure, OUT, [0.1, 0.2]))
    assert value(found, "auroc") == 1.0
    assert set(found.tables()["ood"]["score"]) == {"certainty"}
    mixed = evidence(stored("a", sure, {}, [0.3, 0.4]), stored("b", unsure, OUT))
    assert value(mixed, "auroc") == 0.5
    assert set(mixed.tables()["ood"]["score"]) == {"confidence"}


SURE, UNSURE = [0.9, 0.8, 0.7, 0.95, 0.85, 0.75, 0.65, 0.99, 0.6], [0.66, 0.58, 0.91, 0.72]


def test_all_images_of_both_sides_count_and_aupr_weighs_the_sides_alike() -> None:
    """Nine images against four: no draw decides which of the nine count, in this figure or in its siblings."""
    table = evidence(stored("a", SURE, {}), stored("b", UNSURE, OUT)).tables()["ood"]
    scores, inside = np.array(SURE + UNSURE), np.arange(13) < 9
    shares = np.where(inside, 1 / 9, 1 / 4)
    expected = {
        "auroc": roc_auc_score(inside, scores),
        "aupr_in": average_precision_score(inside, scores, sample_weight=shares),
        "aupr_out": average_precision_score(~inside, -scores, sample_weight=shares),
        "fpr95_in": 1.0 - 1 / 4,
        "fpr95_out": 7 / 9,
    }
    assert table.set_index("metric")["value"].to_dict() == pytest.approx(expected)
    assert {*table["n"]} == {13}
    guessing = evidence(stored("a", [0.9] * 9, {}), stored("b", [0.9] * 4, OUT))
    assert [value(guessing, name) for name in ("auroc", "aupr_in", "aupr_out")] == [0.5] * 3


def test_equal_sides_take_of_the_larger_one_as_many_as_the_smaller_one_has() -> None:
    sure = stored("a", SURE, {})
    found = evidence(sure, stored("b", UNSURE, OUT), sides="equal")
    row = found.tables()["ood"].iloc[0]
    assert row["n"] == 8
    assert "6 objects on the rarer side, not 4" in row["reason"]
    ids = sure.load().ids
    kept = sorted(range(9), key=lambda row: hashlib.sha256(ids[row].encode()).digest())[:4]
    area = roc_auc_score([True] * 4 + [False] * 4, [SURE[row] for row in kept] + UNSURE)
    assert value(found, "auroc") == pytest.approx(area)


def test_a_study_says_how_many_images_of_either_side_count(tmp_path: Path) -> None:
    some = {"sets": ["park"], "transformed": []}
    assert {*run(tmp_path, "all", protocols={"ood": some}).tables["ood"]["n"]} == {250}
    equal = run(tmp_path, "equal", protocols={"ood": {**some, "sides": "equal"}})
    assert {*equal.tables["ood"]["n"]} == {200}
    assert equal.verify() == []
    with pytest.raises(InputError, match="'all' or 'equal'"):
        run(tmp_path, "other", protocols={"ood": {**some, "sides": "half"}})


def test_a_failed_side_is_said() -> None:
    broken = StoredCase("m", Stimulus("b", "noise"), OUT, failure="out of luck")
    table = evidence(stored("a", [0.9], {}), broken).tables()["ood"]
    assert table["value"].isna().all()
    assert set(table["reason"]) == {"case failed: out of luck"}


def test_a_study_with_both_protocols_shows_nothing_twice(tmp_path: Path) -> None:
    model = Counting()
    both = {"classification": {"shifts": ["fog"], "levels": [5]}, "ood": SMALL}
    done = run(tmp_path, "run", model=model, protocols=both)
    table = done.tables["ood"]
    assert set(table["ood_set"]) == {"uniform_noise", "park", "swirl", "fog-5"}
    assert set(table.loc[table["ood_set"].isin(["park", "fog-5"]), "n"]) == {250}
    assert set(table.loc[table["ood_set"] == "swirl", "n"]) == {300}
    shown = [stimulus for stimulus, _ in model.shown]
    undisturbed = {s for s in shown if s.startswith("none-")}
    assert len(undisturbed) == 1
    batches_of_150 = 3
    rehearsal = 4  # the first batch twice, and the others, since the model is at chance
    assert shown.count(undisturbed.pop()) == batches_of_150 + rehearsal
    assert done.verify() == []


@dataclass(frozen=True, kw_only=True)
class Picky(rw.Shift):
    """A shift that the drawn signs, which have boxes, cannot be shown under."""

    name: ClassVar[str] = "picky"
    LEVELS = ({},) * 5

    def __call__(self, batch: Batch, streams: Any) -> Batch:
        if batch.boxes is not None:
            raise ValueError("not these")
        return batch


def test_a_shift_that_fails_on_the_test_data_alone_costs_its_own_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rw.SHIFTS._members, "picky", Picky)
    settings = {"sets": ["uniform_noise", "park"], "transformed": ["picky"]}
    done = run(tmp_path, "run", model=Counting(), protocols={"ood": settings})
    table = done.tables["ood"].query("metric == 'auroc'").set_index("ood_set")
    assert "not these" in table["reason"]["picky-5"]
    assert not table["value"][["uniform_noise", "park"]].isna().any()
    assert set(done.tables["ood_gallery"]["ood_set"]) == {"uniform_noise", "park"}
    assert done.verify() == []


def test_workers_never_change_a_result_and_repeats_are_drawn_anew(tmp_path: Path) -> None:
    protocols = {"ood": {**SMALL, "repeats": 2}}
    one = run(tmp_path, "one", protocols=protocols, workers=1)
    two = run(tmp_path, "two", protocols=protocols, workers=2)
    assert contents(one.path) == contents(two.path)
    repeats = (
        one.tables["ood_repeats"].query("metric == 'auroc'").pivot(index="ood_set", columns="repeat", values="value")
    )
    assert repeats.loc["uniform_noise", 0] != repeats.loc["uniform_noise", 1]
    assert repeats.loc["fog-5", 0] != repeats.loc["fog-5", 1]
    assert np.isnan(repeats.loc["park", 1]), "the same images to the same network are not shown again"


def test_criteria_speak_of_sets(tmp_path: Path) -> None:
    where = {"protocol": "ood", "ood_set": "park"}
    names = ("fpr95_in", "fpr95_out")
    criteria = [{"id": name, "metric": name, "where": where, "at_most": 1.0} for name in names]
    done = run(tmp_path, "run", criteria=criteria)
    assert done.verdict().status == "pass"
    inside, outside = (finding.rows[0].measurement for finding in done.verdict().findings)
    assert inside.where == {"model": "tiny", "ood_set": "park"}
    assert inside != outside
    assert inside.estimate.lo < inside.estimate.value < inside.estimate.hi, "bounded by the same bootstrap as AUROC"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    """A run of both protocols."""
    some = {"sets": ["uniform_noise", "park"], "transformed": []}
    protocols = {"ood": some, "classification": {"shifts": ["fog"], "levels": [1, 5]}}
    return run(tmp_path_factory.mktemp("both"), "run", protocols=protocols)


def test_a_run_stored_before_there_was_an_fpr95_for_either_class_verifies_and_reports(
    both: rw.Run, tmp_path: Path
) -> None:
    done = rw.open_run(shutil.copytree(both.path, tmp_path / "run"))
    before = {name: table for name, table in done.tables.items() if "metric" in table}

    def store(name: str, change: Any = lambda table: table) -> None:
        table = before[name][~before[name]["metric"].str.match("fpr95_(out|right|wrong)")]
        done.folder.write_table(name, change(table))
        done.folder.write_record(done.record)

    for name in before:
        store(name)
    assert not {"fpr95_out", "fpr95_right", "fpr95_wrong"} & set(done.tables["ood"]["metric"])
    assert done.verify() == []
    assert "FPR95-in: outliers accepted" in done.report().read_text()
    for change in (
        lambda table: table.assign(value=table["value"].where(table["metric"] != "fpr95_in", 0.123)),
        lambda table: table.replace({"metric": {"fpr95_in": "fpr95"}}),
        lambda table: table[table["metric"] != "aupr_in"],
    ):
        store("ood", change)
        assert done.verify() == ["table ood does not follow from the readouts"]


def test_every_report_and_list_says_which_class_is_positive(both: rw.Run) -> None:
    listed = {line.split()[0]: line for line in call("list", "metrics").splitlines()}
    for name, positive in (
        ("fpr95_in", "in-distribution images (the positive class)"),
        ("fpr95_out", "outliers (the positive class)"),
        ("fpr95_right", "right answers (the positive class)"),
        ("fpr95_wrong", "wrong answers (the positive class)"),
    ):
        assert positive in listed[name]
    page = (both.path / "report.html").read_text()
    for heading in (
        "outliers accepted",
        "in-distribution rejected",
        "wrong answers accepted",
        "right answers rejected",
    ):
        assert heading in page
    assert f"AUROC on outliers <code>auroc</code></dt><dd>{AUROC.sentence}</dd>" in page
    assert f"AUROC <code>auroc</code></dt><dd>{auroc.sentence}</dd>" in page


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        (
            {"protocol": "ood"},
            ("fpr95_in' (Share of outliers still accepted", "fpr95_out' (Share of in-distribution images"),
        ),
        ({}, ("fpr95_right' (Share of wrong answers still accepted", "fpr95_wrong' (Share of right answers rejected")),
    ],
)
def test_fpr95_alone_is_refused_with_what_each_means(
    both: rw.Run, where: dict[str, str], meant: tuple[str, str]
) -> None:
    with pytest.raises(InputError, match="unknown metric 'fpr95': did you mean") as refused:
        both.verdict([{"id": "R", "metric": "fpr95", "where": where, "at_most": 0.1}])
    assert all(words in str(refused.value) for words in meant)
    with pytest.raises(
        InputError, match=r"unknown metric to compare by 'fpr95': did you mean 'fpr95_in' \(Share of out"
    ):
        rw.compare_runs([both.path, both.path], metrics=["fpr95"])


@pytest.mark.parametrize(
    ("name", "owners"),
    [("fpr95_out", "protocols od_test and ood have"), ("accepted_outlier", "protocol operating_points has")],
)
def test_a_metric_of_another_protocol_is_not_taken_for_one_that_looks_like_it(
    both: rw.Run, name: str, owners: str
) -> None:
    """`fpr95_wrong` rejects right answers, `fpr95_in` accepts outliers: the nearest name can mean the opposite."""
    with pytest.raises(InputError, match=rf"'{name}': the {owners} it, ask for it with `where: \{{protocol: ...\}}`"):
        both.verdict([{"id": "R", "metric": name, "at_most": 0.1}])


def test_fpr95_of_open_ood_and_outlier_exposure_is_that_of_outliers() -> None:
    """The false positive rate at the first step of the ROC curve of outliers that reaches 95 %."""
    false, true, _ = roc_curve([False] * 9 + [True] * 4, -np.array(SURE + UNSURE))
    found = evidence(stored("a", SURE, {}), stored("b", UNSURE, OUT))
    assert value(found, "fpr95_out") == pytest.approx(false[np.argmax(true >= 0.95)])
    assert "OpenOOD and outlier exposure call this FPR95" in FPR95_OUT.sentence


@pytest.mark.parametrize(
    ("protocols", "criterion", "complaint"),
    [
        ({"ood": {"sets": ["unifrom_noise"]}}, None, "did you mean 'uniform_noise'"),
        ({"ood": {"sets": ["parc"]}}, None, "did you mean 'park'"),
        ({"ood": {"sets": [{"name": "swirl", "parameters": {"strenth": 3}}]}}, None, "did you mean 'strength'"),
        ({"ood": {"sets": ["swirl", "swirl"]}}, None, "named twice"),
        ({"ood": {"transformed": ["fgo"]}}, None, "did you mean 'fog'"),
        ({"ood": {"foreign": "sea"}}, None, "unknown foreign set 'sea'"),
        ({"ood": SMALL}, {"metric": "accuracy"}, "unknown metric 'accuracy'"),
        ({"ood": SMALL}, {"where": {"protocol": "ood", "ood_set": "sea"}}, "asks for ood_set 'sea'"),
        ({"ood": SMALL}, {"over": "pooled"}, "cannot be pooled"),
        ({"ood": SMALL}, {"where": {"protocol": "classification"}}, "unknown protocol 'classification'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    tmp_path: Path, protocols: dict[str, Any], criterion: dict[str, Any] | None, complaint: str
) -> None:
    asked = {"id": "A", "metric": "auroc", "at_least": 0.5, "where": {"protocol": "ood"}, **(criterion or {})}
    with pytest.raises(InputError, match=complaint):
        run(tmp_path, "run", protocols=protocols, criteria=[asked])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["../up", "a b", "", "uniform_noise"])
def test_names_of_foreign_sets_are_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name"):
        run(tmp_path, "run", outliers={name: FOREIGN}, protocols={"ood": {"sets": ["swirl"]}})
