"""The user's conditions in classification and ood: slices, their bounds, criteria on them, and what a run stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import roadworthy as rw
from elsewhere import answer_elsewhere
from roadworthy.api import prepare
from roadworthy.core.errors import InputError
from roadworthy.core.types import Stimulus
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.table import Table
from roadworthy.engine.conditions import CONDITION
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers, accuracy, brier
from roadworthy.protocols.base import Part, StoredCase
from roadworthy.protocols.classification import Classification
from roadworthy.protocols.classification.by_condition import condition_tables
from roadworthy.protocols.classification.settings import Settings
from roadworthy.protocols.classification.stopped import Context
from roadworthy.protocols.classification.table_specs import BY_CONDITION
from roadworthy.protocols.condition_columns import ROLE, Breakdown, resolve_breakdown
from roadworthy.protocols.condition_slices import asked_slices
from roadworthy.protocols.ood import OutOfDistribution
from roadworthy.statistics import proportion_interval
from roadworthy.study import parse_study
from roadworthy.verdict import Criterion
from tiny import study, write_npz

CELL = ("model", "shift", "level")


def readouts(p_label: Sequence[float], groups: Sequence[str], ids: Sequence[str]) -> Readouts:
    """Answers of two classes to images of the first: right where the probability of it is above a half."""
    probability = np.asarray(p_label, float)
    answers = Answers.from_probabilities(np.stack([probability, 1 - probability], 1), np.zeros(len(probability), int))
    return Readouts(tuple(ids), tuple(groups), answers)


def of_data(columns: Mapping[str, Sequence[Any]], ids: Sequence[str]) -> StoredCase:
    """The stored conditions of images."""
    stored = {"id": np.array(ids), **{CONDITION + name: np.asarray(column) for name, column in columns.items()}}
    return StoredCase("data", Stimulus("test"), ROLE, columns=lambda *names: {name: stored[name] for name in names})


def evidence(
    answers: Mapping[tuple[str, int], Sequence[float]],
    groups: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
    conditions: Mapping[str, list[str]] | None = None,
    order: Sequence[int] | None = None,
    **breakdown: Any,
) -> Any:
    """The evidence of one model, with the probabilities of the right class by shift and level."""
    rows = list(range(len(groups)) if order is None else order)
    ids = [f"image{row}" for row in rows]
    cases = [
        StoredCase(
            "m", Stimulus("test", *key), load=partial(readouts, [p[r] for r in rows], [groups[r] for r in rows], ids)
        )
        for key, p in answers.items()
    ]
    cases.append(of_data({name: [column[r] for r in rows] for name, column in columns.items()}, ids))
    values = conditions or {name: sorted({*map(str, column)} - {""}) for name, column in columns.items()}
    part = Part("", cases, Context(conditions=values, **breakdown), ["a", "b"])
    return Classification().evidence(part, seed=0, resamples=20)


LIGHT = ["day", "day", "day", "night", "night", "night", "night", ""]
CAMERA = ["front", "front", "rear", "front", "rear", "rear", "rear", "rear"]
GROUPS = ["sign1", "sign1", "sign2", "sign1", "sign3", "sign3", "sign4", "sign4"]
CLEAN = [0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.2, 0.9]
FOG = [0.9, 0.3, 0.9, 0.3, 0.9, 0.3, 0.3, 0.3]


@pytest.fixture(scope="module")
def hand_made() -> Any:
    """Eight images of four signs; the first is seen by day and by night, and one image has no light."""
    return evidence({("none", 0): CLEAN, ("fog", 3): FOG}, GROUPS, {"light": LIGHT, "camera": CAMERA})


def criterion(metric: str = "accuracy", over: str = "each", **where: Any) -> Criterion:
    return Criterion(id="REQ", metric=metric, where=where, over=over, at_least=0.5)


def measured(of: Any, asked: Criterion) -> list[tuple[float, int, int]]:
    return [(round(m.estimate.value, 6), m.estimate.n, m.estimate.groups) for m in of.measure(asked, asked.confidence)]


def test_a_hand_computed_breakdown(hand_made: Any) -> None:
    """Day: 3 images of signs 1 and 2, all right; 2 of 3 in fog. Night: 4 of signs 1, 3, 4; 3 right, 1 in fog."""
    table = hand_made.tables()["classification_by_condition"]
    rows = table[(table.condition == "light") & (table.metric == "accuracy")]
    shown = {
        (row.shift, row.condition_value): (round(row.value, 6), row.n, row.groups)
        for row in rows.itertuples(index=False)
    }
    assert shown == {
        ("none", "day"): (1.0, 3, 2),
        ("none", "night"): (0.75, 4, 3),
        ("fog", "day"): (round(2 / 3, 6), 3, 2),
        ("fog", "night"): (0.25, 4, 3),
    }
    night = rows[(rows["shift"] == "none") & (rows["condition_value"] == "night")].iloc[0]
    expected = proportion_interval([1, 1, 1, 0], ["sign1", "sign3", "sign3", "sign4"])
    assert (night.lo, night.hi) == pytest.approx((expected.lo, expected.hi))
    overall = hand_made.tables()["classification_by_condition_overall"]
    drop = overall[(overall.condition_value == "night") & (overall.metric == "accuracy_drop")].iloc[0]
    assert (drop.value, drop.n, drop.groups, drop.cases) == (0.5, 4, 3, 1)


def test_columns_are_listed_with_what_they_lack(hand_made: Any) -> None:
    table = hand_made.tables()["classification_condition_columns"]
    assert table[["condition", "values", "images", "images_without"]].to_numpy().tolist() == [
        ["light", 2, 7, 1],
        ["camera", 2, 8, 0],
    ]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (criterion(light="night", shift="fog"), [(0.25, 4, 3)]),
        (criterion(light=["night", "day"], shift="fog"), [(0.25, 4, 3), (0.666667, 3, 2)]),
        (criterion(light=["night", "day"], shift="fog", over="pooled"), [(round(3 / 7, 6), 7, 4)]),
        (criterion(light="night"), [(0.75, 4, 3), (0.25, 4, 3)]),
        (criterion(light="night", over="pooled"), [(0.5, 4, 3)]),
        (criterion(light="night", camera="front", shift="none"), [(1.0, 1, 1)]),
        (criterion("accuracy_drop", light="night"), [(0.5, 4, 3)]),
        (criterion("accuracy_drop", light="day", camera="rear"), [(0.0, 1, 1)]),
        (criterion("brier_mean", light="night", shift="none"), [(round((0.01 + 0.01 + 0.04 + 0.64) / 4, 6), 4, 3)]),
        (criterion("auroc", light="night", shift="none"), [(round(2.5 / 3, 6), 4, 3)]),
        (criterion(shift="none", **{"condition:light": "night"}), [(0.75, 4, 3)]),
    ],
)
def test_criteria_on_slices(hand_made: Any, asked: Criterion, expected: list[tuple[float, int, int]]) -> None:
    assert measured(hand_made, asked) == expected


def test_a_measurement_says_its_slice(hand_made: Any) -> None:
    one = hand_made.measure(criterion(light="night", camera="rear", shift="fog"), 0.95)[0]
    assert one.where == {"model": "m", "shift": "fog", "level": 3, "light": "night", "camera": "rear"}
    both = hand_made.measure(criterion(light=["night", "day"], over="pooled", shift="fog"), 0.95)[0]
    assert both.where["light"] == "night or day"


def test_no_image_in_an_intersection_is_no_value_and_never_zero() -> None:
    own = evidence({("none", 0): CLEAN}, GROUPS, {"light": LIGHT, "camera": ["front", *["rear"] * 7]})
    for metric in ("accuracy", "auroc"):
        (empty,) = own.measure(criterion(metric, light="night", camera="front"), 0.95)
        assert empty.estimate.missing
        assert (empty.estimate.n, empty.estimate.groups) == (0, 0)
        assert "no image" in empty.estimate.reason


def test_a_range_without_images_has_a_row_with_a_reason() -> None:
    conditions = {"speed": ["0 to 10", "10 to 20", "20 and above"]}
    own = evidence(
        {("none", 0): CLEAN}, GROUPS, {"speed": [0, 1, 9.9, 20, 30, 40, 5, 6]}, conditions, cuts={"speed": [0, 10, 20]}
    )
    table = own.tables()["classification_by_condition"]
    rows = table[table.metric == "accuracy"].set_index("condition_value")
    assert rows.n.to_dict() == {"0 to 10": 5, "10 to 20": 0, "20 and above": 3}
    assert rows.reason["10 to 20"] == "no image shows it"
    assert np.isnan(rows.value["10 to 20"])


def test_failed_cases_and_unread_conditions_say_why(hand_made: Any) -> None:
    failed = [StoredCase("m", Stimulus("test", "fog", 3), failure="out of memory")]
    cases = [*(case for case in hand_made.cases if case.stimulus.name == "none"), *failed]
    conditions = of_data({"light": LIGHT}, [f"image{row}" for row in range(8)])
    breakdown = Context(conditions={"light": ["day", "night"]})
    asked = criterion(light="night", shift="fog")

    def result(*of: StoredCase) -> Any:
        own = Classification().evidence(Part("", of, breakdown, ["a", "b"]), seed=0, resamples=100)
        return own.measure(asked, 0.95)[0].estimate, own.tables()

    estimate, tables = result(*cases, conditions)
    assert estimate.missing
    assert estimate.reason == "case failed: out of memory"
    assert set(tables["classification_by_condition"].query("shift == 'fog'").reason) == {"case failed: out of memory"}
    estimate, _ = result(*failed, conditions)
    assert estimate.reason == "case failed: out of memory", "no case of the run has answers"
    unread = StoredCase("data", Stimulus("test"), ROLE, failure="disk full")
    estimate, tables = result(*hand_made.cases, unread)
    assert estimate.missing
    assert estimate.reason == "case failed: disk full"
    assert tables["classification_condition_columns"].reason.tolist() == ["case failed: disk full"]


def test_answers_to_some_of_the_images_find_their_conditions(hand_made: Any) -> None:
    ids = [f"image{row}" for row in (7, 6, 3)]
    case = StoredCase("m", Stimulus("test"), load=partial(readouts, [0.9, 0.2, 0.9], ["s4", "s4", "s1"], ids))
    conditions = of_data({"light": LIGHT}, [f"image{row}" for row in range(8)])
    part = Part("", [case, conditions], Context(conditions={"light": ["day", "night"]}), ["a", "b"])
    own = Classification().evidence(part, seed=0, resamples=100)
    assert measured(own, criterion(light="night")) == [(0.5, 2, 2)]
    assert own.measure(criterion(light="day"), 0.95)[0].estimate.reason == "no image shows it"


def test_conditions_of_other_images_are_refused(hand_made: Any) -> None:
    other = of_data({"light": LIGHT}, [f"other{row}" for row in range(8)])
    part = Part("", [*hand_made.cases, other], Context(conditions={"light": ["day", "night"]}), ["a", "b"])
    with pytest.raises(InputError, match="other images"):
        Classification().evidence(part, seed=0, resamples=100).tables()


IMAGES = st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abc"), st.sampled_from("uvwxy")), min_size=1, max_size=25)


@settings(max_examples=12, deadline=None)
@given(IMAGES, st.randoms(use_true_random=False))
def test_slices_partition_the_images_and_order_does_not_matter(images: Any, random: Any) -> None:
    p_label, light, groups = (list(column) for column in zip(*images, strict=True))
    order = list(range(len(images)))
    random.shuffle(order)
    answers = {("none", 0): p_label, ("fog", 1): p_label[::-1]}
    one, turned = (evidence(answers, groups, {"light": light}, order=rows) for rows in (None, order))
    parts, again = (BY_CONDITION.frame(condition_tables(own)[BY_CONDITION]) for own in (one, turned))
    for key in one.keys:
        for metric in (accuracy, brier):
            own = parts[(parts["shift"] == key.shift) & (parts["metric"] == metric.name)]
            whole = one.estimate([key], metric)
            assert own.n.sum() == whole.n == len(images)
            assert (own.n * own.value).sum() / own.n.sum() == pytest.approx(whole.value, abs=1e-6)
            assert (own.groups >= 1).all()
            assert own.groups.max() <= whole.groups <= own.groups.sum()
    means = [frame[frame.metric.isin(["accuracy", "brier"])].reset_index(drop=True) for frame in (parts, again)]
    np.testing.assert_allclose(*(frame[["value", "lo", "hi"]].to_numpy(float) for frame in means), atol=1e-6)
    assert means[0][["n", "groups", "condition_value"]].equals(means[1][["n", "groups", "condition_value"]])


def data_of(**columns: Any) -> ArrayDataset:
    n = len(next(iter(columns.values())))
    table = Table(
        tuple(map(str, range(n))), np.arange(n) % 2, ("a", "b"), tuple(map(str, range(n))), conditions=columns
    )
    return ArrayDataset(table, np.zeros((n, 4, 4, 3), np.uint8))


def test_columns_that_can_be_conditions_are_and_the_others_say_why_not() -> None:
    n = 30
    columns = {
        "light": np.array(["day", "night"] * 15),
        "wet": np.array([True, False] * 15),
        "lanes": np.arange(n) % 12,
        "speed": np.arange(n) / 7,
        "frame": np.arange(n),
        "blank": np.array([""] * n),
    }
    resolved = resolve_breakdown("classification", None, data_of(**columns))
    assert resolved.conditions == {
        "light": ["day", "night"],
        "wet": ["False", "True"],
        "lanes": [str(lane) for lane in range(12)],
    }
    assert resolved.left_out == {
        "speed": "numbers that are not whole: name it under conditions to use it",
        "frame": "30 values, more than 20: name it under conditions to use it",
        "blank": "no values",
    }
    named = resolve_breakdown("classification", ["frame", {"speed": [0, 2, 9]}], data_of(**columns))
    assert named.conditions["speed"] == ["0 to 2", "2 to 9"], "nothing is below 0, or 9 and above"
    assert len(named.conditions["frame"]) == 30
    assert named.left_out["light"] == "the study does not name it"
    assert resolve_breakdown("classification", [], data_of(**columns)) == Breakdown()
    strange = {"mark": np.array(["--1", "\u00b2", "3"] * 2)}
    assert resolve_breakdown("classification", None, data_of(**strange)).conditions == {"mark": ["--1", "3", "\u00b2"]}
    many = resolve_breakdown("ood", None, data_of(**{f"column{place}": np.arange(60) % 15 for place in range(9)}))
    assert len(many.conditions) == 6, "ninety values"
    assert many.left_out["column8"].startswith("15 values, with which there would be more than 100 in all")


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        (["lihgt"], "unknown column 'lihgt': did you mean 'light'"),
        ([{"light": [1]}], "light holds text, which cannot be cut into ranges"),
        (["blank"], "blank has no values"),
        (["frame"], "frame has 300 values, more than 200: cut it into ranges"),
    ],
)
def test_columns_that_do_not_fit_are_refused(choices: Any, sentence: str) -> None:
    data = data_of(light=np.array(["day"] * 300), frame=np.arange(300), blank=np.array([""] * 300))
    with pytest.raises(InputError, match=sentence):
        resolve_breakdown("classification", choices, data)


@pytest.mark.parametrize("choices", [["light", "light"], [{"speed": [3, 1]}], [{"speed": []}], [{"speed": [0, "a"]}]])
def test_settings_that_cannot_be_are_refused(choices: Any) -> None:
    with pytest.raises(ValueError, match="conditions"):
        Settings(conditions=choices)


def test_settings_are_stored_only_where_they_say_something() -> None:
    for protocol in (Classification, OutOfDistribution):
        assert "conditions" not in protocol.settings().model_dump()
        assert protocol.settings(conditions=[]).model_dump()["conditions"] == []
        assert protocol.settings(conditions=["light"]).model_dump()["conditions"] == ["light"]
        assert protocol.context().model_dump() == {}, "as runs of data without conditions have always stored it"


KNOWN = Breakdown(
    conditions={"light": ["day", "night"], "level": ["1", "2"], "wet": ["False", "True"], "lamp": ["off", "on"]},
    left_out={"speed": "numbers that are not whole"},
)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"ligth": "night"}, "unknown condition 'ligth': did you mean 'light'"),
        ({"light": "nigth"}, "unknown value of light 'nigth': did you mean 'night'"),
        ({"light": []}, "names no value of light"),
        ({"speed": 3}, "the column speed of the data is no condition here: numbers that are not whole"),
        ({"light": "day", "condition:light": "night"}, "names the condition 'light' twice"),
        ({"lamp": True}, "unquoted on, off, yes and no are truth values"),
    ],
)
def test_unknown_columns_and_values_are_one_sentence(where: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        asked_slices(KNOWN, criterion(**where), CELL)


@pytest.mark.parametrize(
    ("where", "own", "slices"),
    [
        ({"level": 2}, {"level": 2}, ()),
        ({"condition:level": 2, "level": 5}, {"level": 5}, ({"level": ("2",)},)),
        ({"wet": True}, {}, ({"wet": ("True",)},)),
        (
            {"light": ["day", "night"], "wet": False},
            {},
            ({"light": ("day",), "wet": ("False",)}, {"light": ("night",), "wet": ("False",)}),
        ),
    ],
)
def test_a_criterion_is_parted_into_the_protocols_conditions_and_the_datas(
    where: dict[str, Any], own: dict[str, Any], slices: Any
) -> None:
    asked = asked_slices(KNOWN, criterion(**where), CELL)
    assert asked.criterion.where == own
    assert asked.slices == slices


def test_outliers_against_the_images_of_a_slice() -> None:
    """Confidences by night .9 and .6 against outliers of .5, .7, .8: all 2 x 3 pairs count."""
    inside, outside = [0.9, 0.6, 0.95, 0.55], [0.5, 0.7, 0.8]
    ids, outlier_ids = [f"image{row}" for row in range(4)], [f"outlier{row}" for row in range(3)]
    labels = {"ood_set": "foreign", "kind": "literature"}
    cases = [
        StoredCase("m", Stimulus("test"), load=partial(readouts, inside, list("wxyz"), ids)),
        StoredCase("m", Stimulus("out"), labels, load=partial(readouts, outside, list("ABC"), outlier_ids)),
        of_data({"light": ["night", "night", "day", "day"]}, ids),
    ]
    part = Part("", cases, Breakdown(conditions={"light": ["day", "night"]}), ["a", "b"])
    own = OutOfDistribution().evidence(part, seed=0, resamples=50)
    alone = [StoredCase("m", Stimulus("test"), load=partial(readouts, inside[:2], list("wx"), ids[:2])), cases[1]]
    expected = OutOfDistribution().evidence(Part("", alone, None, ["a", "b"]), seed=0, resamples=50)
    asked = Criterion(id="O", metric="auroc", where={"light": "night"}, at_least=0.5)
    OutOfDistribution().check(cases, asked, part.context)
    (one,) = own.measure(asked, 0.95)
    (direct,) = expected.measure(asked.model_copy(update={"where": {}}), 0.95)
    assert one.where == {"model": "m", "ood_set": "foreign", "light": "night"}
    assert (one.estimate.value, one.estimate.n, one.estimate.groups) == (direct.estimate.value, 5, 5)
    table = own.tables()["ood_by_condition"].query("metric == 'auroc'").set_index("condition_value")
    assert table.value["night"] == one.estimate.value
    assert table.n.to_dict() == {"day": 5, "night": 5}
    with pytest.raises(InputError, match="did you mean 'light'"):
        own.measure(asked.model_copy(update={"where": {"lihgt": "night"}}), 0.95)


def conditioned(folder: Path) -> dict[str, Any]:
    """A study of a few images with columns of conditions, one of which has the name of a condition of the protocol."""
    path = write_npz(folder / "signs.npz", 84)
    content = dict(np.load(path))
    rows = np.arange(84)
    content |= {"light": np.array(["day", "<b>night</b>"])[rows % 2], "level": rows % 3, "speed": rows / 7}
    content["group"] = np.array([f"sign{row // 4}" for row in rows])
    np.savez(path, **content)
    return study(
        folder,
        data={"test": str(path)},
        protocols={
            "classification": {"shifts": ["fog"], "levels": [3]},
            "ood": {"sets": ["uniform_noise"], "transformed": []},
        },
        criteria=[
            {
                "id": "A",
                "metric": "accuracy",
                "where": {"light": "day", "condition:level": 2, "level": 3},
                "at_least": 0,
            },
            {"id": "B", "metric": "auroc", "where": {"protocol": "ood", "condition:level": [0, 1]}, "at_least": 0},
        ],
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = tmp_path_factory.mktemp("conditions")
    return rw.run(conditioned(folder), out=folder / "run", progress=rw.no_progress)


def test_a_run_has_the_tables_the_verdict_and_the_page(run: rw.Run) -> None:
    assert run.verify() == []
    table = run.tables["classification_by_condition"]
    assert set(table.condition) == {"light", "level"}
    assert run.tables["ood_by_condition"].condition_value.nunique() == 5
    assert "not whole" in run.tables["classification_condition_columns"].set_index("condition").reason["speed"]
    rows = [row.measurement.where for finding in run.verdict().findings for row in finding.rows]
    assert rows[0] == {"model": "tiny", "shift": "fog", "level": 3, "light": "day", "condition:level": "2"}
    assert [where["condition:level"] for where in rows[1:]] == ["0", "1"]
    html = (run.path / "report.html").read_text()
    assert html.count(">By your conditions<") == 2
    assert "speed is left out: numbers that are not whole" in html
    assert "<b>night</b>" not in html.partition('id="figures"')[0].replace("&lt;b&gt;night", "")


def test_protocols_share_the_case_of_the_conditions(run: rw.Run, tmp_path: Path) -> None:
    content = conditioned(tmp_path)
    content["protocols"]["dependability"] = {"transformers": [{"name": "fog", "level": 3}]}
    planned = prepare(parse_study(content, "study"), rehearse=False).plan
    of_conditions = [case for case in planned.cases if case.labels == ROLE]
    assert [case.protocol for case in of_conditions] == ["classification", "ood", "dependability"]
    assert len({case.case.hash for case in of_conditions}) == 1
    assert run.record.protocols["classification"].settings.get("conditions") is None


def test_stored_predictions_have_conditions_too(run: rw.Run, tmp_path: Path) -> None:
    """The images are exported and answered elsewhere; the conditions come from the data, and need no answer."""
    content = conditioned(tmp_path)
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    rw.export_study(path, tmp_path / "images", progress=rw.no_progress)
    answer_elsewhere(tmp_path / "images", tmp_path / "tiny.onnx", tmp_path / "answers.csv")
    content["models"] = {"tiny": {"predictions": str(tmp_path / "answers.csv")}}
    back = rw.run(content, out=tmp_path / "back", progress=rw.no_progress)
    for name in ("classification_by_condition", "ood_by_condition"):
        one, other = (opened.tables[name].drop(columns="method") for opened in (run, back))
        assert one.shape == other.shape
        np.testing.assert_allclose(one["value"].to_numpy(float), other["value"].to_numpy(float), atol=1e-6)
    assert back.verify() == []


def test_no_conditions_no_case_and_no_table(tmp_path: Path) -> None:
    content = conditioned(tmp_path)
    content |= {"criteria": None, "protocols": {"classification": {"shifts": ["fog"], "levels": [3], "conditions": []}}}
    opened = rw.run(content, out=tmp_path / "run", progress=rw.no_progress)
    assert len(opened.record.cases) == 2
    assert not [name for name in opened.tables if "condition" in name]
    before = {path: path.stat().st_mtime_ns for path in (opened.path / "readouts").rglob("*.parquet")}
    del content["protocols"]["classification"]["conditions"]
    again = rw.run(content, out=tmp_path / "run", progress=rw.no_progress)
    assert len(again.tables["classification_by_condition"])
    assert {path: path.stat().st_mtime_ns for path in before} == before, "no model was asked anew"
