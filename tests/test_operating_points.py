"""Operating points: every rate and both rules by hand, laws, and a run through tables, criteria, report and export."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import roadworthy as rw
from commands import call
from elsewhere import answer_elsewhere
from roadworthy.api import choose_operating_point, compare_runs, execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.core.types import Stimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers
from roadworthy.protocols.base import Compared, StoredCase
from roadworthy.protocols.operating_points.choosing import choose_thresholds, parse_cost
from roadworthy.protocols.operating_points.metrics import ACCEPTED_ERROR, ACCEPTED_WRONG, INSIDE_METRICS
from roadworthy.protocols.operating_points.rates import inside_estimate
from roadworthy.protocols.operating_points.settings import HALF, NOTHING, VALIDATION, Context, Cost, Settings
from roadworthy.protocols.operating_points.table_specs import TABLE_SPECS
from roadworthy.protocols.operating_points.tables import Evidence
from roadworthy.protocols.operating_points.thresholds import Shown, cheapest_threshold, fix_threshold
from roadworthy.statistics import mean_interval, wilson
from roadworthy.statistics.paired import PairedChange
from roadworthy.study import parse_study
from roadworthy.verdict import Criterion
from stand_ins import Counting
from tiny import save_onnx, study

SCORES = [1.0, 1.0, 0.875, 0.875, 0.75, 0.75, 0.75, 0.625, 0.5625, 0.5625, 0.53125, 0.5]
WRONG = (1, 4, 8, 11)
"""Of the twelve images of the hand-made example, those that are answered wrong."""
HELD_OUT = [0.5, *[0.75] * 3, *[0.875] * 10, *[1.0] * 6]
A, B = [0.75, 0.5, 0.875, 1.0], [0.5, 0.5, 0.5]
OUT = {"kind": "literature"}


def case(
    data: str,
    scores: Sequence[float],
    wrong: Sequence[int] = (),
    labels: dict[str, str] | None = None,
    *,
    shift: str = "none",
    level: int = 0,
    repeat: int = 0,
    groups: Sequence[str] | None = None,
    model: str = "m",
) -> StoredCase:
    """What a model of two classes answered: always the first, with these confidences."""
    probabilities = np.array([[score, 1 - score] for score in scores]).reshape(-1, 2)
    ids = tuple(f"{data}{row}" for row in range(len(scores)))
    answers = Answers.from_probabilities(probabilities, [int(row in wrong) for row in range(len(scores))])
    readouts = Readouts(ids, tuple(groups or ids), answers)
    stimulus = Stimulus(data, shift, level, {}, repeat)
    return StoredCase(model, stimulus, labels or {}, load=lambda: readouts)


def example(held_out: Sequence[float] | None = None, *, wrong: Sequence[int] = (), **chosen: Any) -> Evidence:
    """The example: twelve test images, two sets of outliers, and held-out images where some are given."""
    cases = [case("test", SCORES, WRONG), case("test", SCORES[::-1], WRONG, shift="fog", level=5)]
    cases += [case(name, own, (), {**OUT, "ood_set": name}) for name, own in (("A", A), ("B", B))]
    if held_out is not None:
        cases.append(case("valid", held_out, wrong, {"shown": "held_out"}))
    return Evidence(cases, Settings(**chosen), Context(held_out=NOTHING if held_out is None else VALIDATION))


def rates(evidence: Evidence, shift: str = "none") -> dict[str, float]:
    table = evidence.tables()["operating_points"]
    inside = table[(table["shift"] == shift) & (table["ood_set"] == "")]
    return dict(zip(inside["metric"], inside["value"], strict=True))


def accepted(evidence: Evidence) -> dict[str, float]:
    table = evidence.tables()["operating_points"]
    outside = table[table["metric"] == "accepted_outlier"]
    return dict(zip(outside["ood_set"], outside["value"], strict=True))


def test_every_rate_of_twelve_images_by_hand_with_ties_at_the_threshold() -> None:
    evidence = example(threshold=0.75)
    assert rates(evidence) == pytest.approx(
        {"accepted_wrong": 2 / 12, "rejected_right": 3 / 12, "rejected": 5 / 12, "accepted_error": 2 / 7}
    )
    under_fog = {"accepted_wrong": 2 / 12, "rejected_right": 3 / 12, "rejected": 5 / 12, "accepted_error": 2 / 7}
    assert rates(evidence, "fog") == pytest.approx(under_fog)  # 8 and 11 are accepted there, 1 and 4 rejected
    assert accepted(evidence) == {"A": 3 / 4, "B": 0.0}
    row = evidence.tables()["operating_points"].iloc[0]
    assert (row["lo"], row["hi"]) == wilson(2, 12)
    assert (row["n"], row["groups"], row["unit"]) == (12, 12, "objects")


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0.5, (4 / 12, 0.0, 0.0, 4 / 12)),  # everything is accepted, what equals the threshold too
        (1.0, (1 / 12, 7 / 12, 10 / 12, 1 / 2)),  # a confidence of exactly 1 is accepted
        (1.5, (0.0, 8 / 12, 1.0, math.nan)),
    ],
)
def test_everything_accepted_and_nothing_accepted(threshold: float, expected: tuple[float, ...]) -> None:
    evidence = example(threshold=threshold)
    assert [*rates(evidence).values()] == pytest.approx([*expected], nan_ok=True)
    error = evidence.estimate(evidence.conditions[:1], ACCEPTED_ERROR)
    assert error.reason == ("nothing is accepted" if threshold > 1 else "")
    specs = {spec.name: spec for spec in TABLE_SPECS}
    for name, frame in evidence.tables().items():
        specs[name].check(frame)


@pytest.mark.parametrize("metric", ["accepted_wrong", "accepted_outlier"])
def test_a_model_that_accepts_nothing_does_not_pass(metric: str) -> None:
    criterion = Criterion(id="A", metric=metric, at_most=0.9)
    (measured,) = example(threshold=1.5).measure(criterion, 0.95)
    assert measured.estimate.reason.endswith("rejects every undisturbed image at its threshold: nothing is accepted")
    assert measured.estimate.unbounded
    assert not any(row.estimate.unbounded for row in example(threshold=1.0).measure(criterion, 0.95))


def test_a_single_image_has_bounds_and_one_class_has_rates() -> None:
    one = Evidence([case("test", [0.75])], Settings(threshold=0.5), Context(held_out=NOTHING))
    assert [*rates(one).values()] == [0, 0, 0, 0]
    assert one.estimate(one.conditions, ACCEPTED_WRONG).hi == wilson(0, 1)[1]


@pytest.mark.parametrize(
    ("share", "threshold", "rejected", "reason"),
    [
        (0.05, 0.75, 0.05, ""),
        (0.1, 0.75, 0.05, "images of equal score are rejected together, so that 5 % are rejected and not 10 %"),
        (0.2, 0.875, 0.2, ""),
        (0.04, 0.5, 0.0, "a share of 4 % needs 25 images, not 20: none of them is rejected"),
    ],
)
def test_a_share_of_held_out_images_is_rejected_and_what_ties_prevent_is_said(
    share: float, threshold: float, rejected: float, reason: str
) -> None:
    table = example(HELD_OUT, reject=share).tables()["operating_points_thresholds"].iloc[0]
    assert (table["threshold"], table["rejected"], table["reason"]) == (threshold, rejected, reason)
    assert (table["held_out"], table["images"], table["groups"]) == ("validation", 20, 20)


def test_the_least_expected_cost_by_hand_and_ties_go_to_the_more_cautious() -> None:
    def fixed(**cost: Any) -> tuple[float, float]:
        evidence = example(SCORES, wrong=WRONG, cost=cost)
        row = evidence.tables()["operating_points_thresholds"].iloc[0]
        return row["threshold"], row["cost"]

    # Twelve times the cost of 2 and 1, by threshold: 8 6 7 6 7 7 9 8; 0.53125 and 0.625 are equally cheap.
    assert fixed(accepted_wrong=2, rejected_right=1) == (0.625, pytest.approx(0.5))
    # Of 10 and 1: 40 30 31 22 23 15 17, and 8 where everything is rejected.
    assert fixed(accepted_wrong=10, rejected_right=1) == (math.inf, pytest.approx(8 / 12))
    # Of 1 and 10: 4 where everything is accepted, 3 where the wrong answer below all others is rejected.
    assert fixed(accepted_wrong=1, rejected_right=10) == (0.53125, pytest.approx(3 / 12))


def test_outliers_enter_the_cost_where_some_are_held_out() -> None:
    with_outliers = Cost(accepted_wrong=2, rejected_right=1, accepted_outlier=10, outlier_share=0.1, outliers="A")
    wrong = [row in WRONG for row in range(12)]
    assert cheapest_threshold(SCORES, wrong, with_outliers, B) == (0.625, pytest.approx(0.45))
    assert cheapest_threshold(SCORES, wrong, with_outliers, A) == (math.inf, pytest.approx(0.6))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25),
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_no_threshold_is_cheaper(rows: Any, outside: list[int], wrong: int, right: int, outlier: int) -> None:
    if not wrong + right + outlier:
        return
    scores, mistakes = np.array([r[0] for r in rows], float), np.array([r[1] for r in rows])
    cost = Cost(accepted_wrong=wrong, rejected_right=right, accepted_outlier=outlier, outlier_share=0.25, outliers="A")
    threshold, least = cheapest_threshold(scores, mistakes, cost, np.array(outside, float))

    def expected(t: float) -> float:
        inside = wrong * (mistakes & (scores >= t)).mean() + right * (~mistakes & (scores < t)).mean()
        return float(0.75 * inside + 0.25 * outlier * (np.array(outside) >= t).mean())

    tried = {t: expected(t) for t in (*range(6), math.inf)}
    assert least == pytest.approx(min(tried.values()))
    assert expected(threshold) == pytest.approx(least)
    assert all(value > least + 1e-12 for t, value in tried.items() if t > threshold and t in {*scores, math.inf})


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 4)), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
    st.lists(st.integers(0, 7), min_size=2, max_size=2).map(sorted),
)
def test_laws_of_the_rates(rows: Any, random: Any, steps: list[int]) -> None:
    def at(threshold: float, own: Any) -> dict[str, tuple[float, ...]]:
        scores, wrong, objects = (np.array(column) for column in zip(*own, strict=True))
        decided = Shown(scores.astype(float), wrong, objects.astype(str)).decided(threshold)
        estimates = {metric.name: inside_estimate([[decided]], objects, metric) for metric in INSIDE_METRICS}
        return {name: (own.value, own.lo, own.hi) for name, own in estimates.items()}

    low, high = (at(step, rows) for step in steps)
    for here in (low, high):
        rejected_wrong = here["rejected"][0] - here["rejected_right"][0]
        assert here["accepted_wrong"][0] + rejected_wrong == pytest.approx(np.mean([row[1] for row in rows]))
    shuffled = at(steps[0], random.sample(rows, len(rows)))
    assert all(low[name] == pytest.approx(shuffled[name], nan_ok=True) for name in low)
    for side in range(3):  # the value and both bounds
        assert high["accepted_wrong"][side] <= low["accepted_wrong"][side] + 1e-7
        assert high["rejected_right"][side] >= low["rejected_right"][side] - 1e-7


def halved(groups: Sequence[str], seed: int = 0, order: Sequence[int] | None = None) -> Evidence:
    rows = range(len(groups)) if order is None else order
    names, scores = [groups[row] for row in rows], [(8 + row % 7) / 16 for row in rows]
    cases = [case("test", scores, groups=names)]
    cases += [case("derived", scores, (), {"kind": "derived", "ood_set": "swirl"}, groups=names)]
    return Evidence(cases, Settings(reject=0.2), Context(held_out=HALF, seed=seed))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=24), st.integers(0, 9), st.randoms())
def test_no_group_is_on_both_sides_and_the_order_does_not_matter(groups: list[str], seed: int, random: Any) -> None:
    if len(set(groups)) < 2:
        return
    evidence = halved(groups, seed)
    scores = evidence.models["m"]
    assert scores.held_out is not None
    held, shown = {*scores.held_out.groups}, {*scores.inside[evidence.conditions[0]][0].groups}
    assert held.isdisjoint(shown)
    assert held | shown == {*groups}
    assert len(held) == len({*groups}) // 2
    assert {*scores.outside[evidence.sets[0]][0].shown.groups} == shown, "outliers of held-out images are left out"
    again = halved(groups, seed, random.sample(range(len(groups)), len(groups)))
    assert again.models["m"].fixed == scores.fixed
    assert {*again.models["m"].held_out.groups} == held


def test_the_seed_decides_which_half_is_held_out() -> None:
    groups = [f"sign {row}" for row in range(12)]
    chosen = {tuple(sorted({*halved(groups, seed).models["m"].held_out.groups})) for seed in range(5)}
    assert len(chosen) > 1


def test_repeats_do_not_raise_n_and_a_failed_case_is_said() -> None:
    cases = [case("test", SCORES, WRONG), case("test", SCORES, WRONG, shift="fog", level=1)]
    cases.append(case("test", [1.0] * 12, WRONG, shift="fog", level=1, repeat=1))
    evidence = Evidence(cases, Settings(threshold=0.75), Context(held_out=NOTHING))
    fog = evidence.estimate(evidence.conditions[1:], ACCEPTED_WRONG)
    assert (fog.value, fog.n, fog.groups) == (pytest.approx((2 / 12 + 4 / 12) / 2), 12, 12)
    assert fog.sd == pytest.approx(np.std([2 / 12, 4 / 12], ddof=1))
    failed = StoredCase("m", Stimulus("valid"), {"shown": "held_out"}, failure="out of luck")
    lost = Evidence([*cases, failed], Settings(), Context(held_out=VALIDATION))
    assert set(lost.tables()["operating_points"]["reason"]) == {"case failed: out of luck"}
    assert lost.lost() == "case failed: out of luck"


def test_gans_are_the_unit_of_what_they_draw() -> None:
    drawn = [
        case(f"g{gan}", scores, (), {"kind": "gan", "ood_set": "lee", "gan": str(gan), "artifact": f"g{gan}"})
        for gan, scores in enumerate([[1.0, 1.0, 0.5, 0.5], [1.0, 0.5, 0.5, 0.5]])
    ]
    evidence = Evidence([case("test", SCORES), *drawn], Settings(threshold=0.75), Context(held_out=NOTHING))
    row = evidence.tables()["operating_points"].query("ood_set == 'lee'").iloc[0]
    assert (row["value"], row["groups"], row["unit"]) == (0.375, 2, "GANs")
    criterion = Criterion(id="G", metric="accepted_outlier", at_most=0.1, where={"gan": 1})
    (single,) = evidence.measure(criterion, 0.95)
    assert (single.estimate.value, single.where["gan"]) == (0.25, 1)
    assert (
        Evidence([case("test", SCORES), drawn[0]], Settings(threshold=0.75), Context(held_out=NOTHING))
        .set_estimate(evidence.sets[0])
        .reason.startswith("a bound over GANs needs at least 2")
    )


def changes(before: Sequence[StoredCase], after: Sequence[StoredCase], metric: str) -> dict[str, PairedChange]:
    """What changed from one model to another, by condition, at the threshold 0.75 for both."""
    sides = [Evidence(own, Settings(threshold=0.75), Context(held_out=NOTHING)) for own in (before, after)]
    systems = [
        Compared(name, "m", {"operating_points": own}, {"operating_points": own.cases})
        for name, own in zip(("old", "new"), sides, strict=True)
    ]
    return {change.condition: change for change in sides[0].compare(sides[1], *systems, [metric])}


def test_changes_are_paired_image_by_image_and_object_by_object() -> None:
    better = [case("test", [0.5, *SCORES[1:]], WRONG), case("A", [0.5] * 4, (), {**OUT, "ood_set": "A"})]
    worse = [case("test", [0.5, 0.5, *[1.0] * 10], WRONG), case("A", A, (), {**OUT, "ood_set": "A"})]
    clean = changes(better, worse, "accepted_wrong")["none"]
    # before 1 and 4 are accepted and wrong, after 4, 8 and 11: two gained, one lost
    assert (clean.before, clean.after, clean.p) == (pytest.approx(2 / 12), pytest.approx(3 / 12), 1.0)
    outliers = changes(better, worse, "accepted_outlier")["A"]
    assert (outliers.change, outliers.p) == (0.75, 0.25)  # three coins on one side: 2 / 8
    other = changes([case("test", SCORES)], [case("other", SCORES)], "accepted_wrong")["none"]
    assert other.reason == "shown with other parameters or other code"


def test_changes_over_repeats_flip_signs_object_by_object() -> None:
    def shown(*repeats: list[float]) -> list[StoredCase]:
        clean = case("test", [0.5] * 4)
        fog = {"shift": "fog", "level": 1, "groups": ["a", "a", "b", "c"]}
        first = replace(clean, load=lambda: replace(clean.load(), groups=("a", "a", "b", "c")))
        return [first, *(case("test", own, range(4), repeat=index, **fog) for index, own in enumerate(repeats))]

    before, after = shown([0.5] * 4, [0.5] * 4), shown([1.0, 1.0, 1.0, 0.5], [1.0, 1.0, 0.5, 0.5])
    fog = changes(before, after, "accepted_wrong")["fog"]
    # by object: a gains 4 of 4 answers, b 1 of 2, c none; |+-4 +-1| reaches 5 in 2 of 4 ways
    assert (fog.change, fog.groups, fog.method) == (pytest.approx(5 / 8), 3, "sign flips and interval by group")
    assert fog.lo < 5 / 8 < fog.hi
    reaching = mean_interval([1, 1, 0.5, 0], list("aabc"), -1, 1, 1 - fog.p)
    assert fog.p > 0.5, "what the interval asks for is more"
    assert reaching.lo == pytest.approx(0, abs=1e-3)


def test_changes_of_what_gans_draw_count_gans() -> None:
    def drawn(*accepted: int) -> list[StoredCase]:
        labels = [{"kind": "gan", "ood_set": "lee", "gan": str(gan), "artifact": f"g{gan}"} for gan in range(3)]
        scores = [[1.0] * count + [0.5] * (40 - count) for count in accepted]
        return [case("test", SCORES), *(case(f"g{i}", s, (), labels[i]) for i, s in enumerate(scores))]

    lee = changes(drawn(0, 0, 0), drawn(40, 40, 38), "accepted_outlier")["lee"]
    assert (lee.groups, lee.change) == (3, pytest.approx(118 / 120))
    assert lee.lo < lee.change
    assert lee.p < 0.5
    assert (lee.p > 0.05) == (lee.lo <= 0), "three GANs are few"
    same = changes(drawn(5, 9, 3), drawn(5, 9, 3), "accepted_outlier")["lee"]
    assert (same.change, same.p) == (0, 1)


def test_criteria_ask_for_conditions_and_sets() -> None:
    evidence = example(threshold=0.75)
    pooled = Criterion(id="P", metric="accepted_wrong", at_most=0.2, over="pooled")
    (measured,) = evidence.measure(pooled, 0.95)
    assert measured.estimate.value == pytest.approx(2 / 12)
    assert measured.proportion
    assert measured.where == {"conditions": "2 pooled"}
    fog = Criterion(id="F", metric="accepted_error", at_most=0.2, where={"shift": "fog", "level": 5})
    assert [row.where["shift"] for row in evidence.measure(fog, 0.95)] == ["fog"]
    sets = Criterion(id="S", metric="accepted_outlier", at_most=0.2, where={"kind": "literature"})
    assert [row.where["ood_set"] for row in evidence.measure(sets, 0.95)] == ["A", "B"]
    for bad, message in (
        ({"metric": "accepted_outlier", "over": "pooled"}, "cannot be pooled"),
        ({"metric": "auroc"}, "unknown metric 'auroc'"),
        ({"metric": "accepted_wrong", "where": {"ood_set": "A"}}, "unknown condition 'ood_set'"),
    ):
        with pytest.raises(InputError, match=message):
            evidence.measure(Criterion(id="X", at_most=0.2, **bad), 0.95)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"reject": 0.1, "threshold": 0.5}, "one of reject, cost and threshold"),
        ({"cost": {"accepted_wrong": 0, "rejected_right": 0}}, "all costs are 0"),
        ({"cost": {"accepted_wrong": 1, "rejected_right": 1, "accepted_outlier": 2}}, "give all three, or none"),
        ({"cost": {"accepted_wrong": -1, "rejected_right": 1}}, "greater than or equal to 0"),
        ({"reject": 1.0}, "less than 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**chosen)


def test_the_usual_rule_is_stored() -> None:
    stored = Settings().model_dump(mode="json")
    assert (stored["reject"], stored["cost"], stored["threshold"]) == (0.05, None, None)
    assert Settings(**stored) == Settings()


def test_a_threshold_is_chosen_by_cost_or_by_a_bound() -> None:
    groups = [f"g{row}" for row in range(200)]
    scores = np.linspace(0.5, 1.0, 200)
    held = case("valid", scores.tolist(), range(20), {"shown": "held_out"}, groups=groups)
    evidence = Evidence([case("test", SCORES, WRONG), held], Settings(), Context(held_out=VALIDATION))
    (choice,) = choose_thresholds(evidence, accepted_wrong_at_most=0.05)
    below = Shown(scores, np.arange(200) < 20, np.array(groups))
    assert choice.held_out.hi <= 0.05
    lower = float(scores[scores < choice.threshold].max())
    (tight,) = choose_thresholds(evidence, accepted_wrong_at_most=choice.held_out.hi)
    assert tight.threshold == choice.threshold
    assert wilson(int((below.scores >= lower)[:20].sum()), 200)[1] > 0.05
    (none,) = choose_thresholds(evidence, accepted_wrong_at_most=0.001)
    assert "200 held-out groups cannot show" in none.reason
    (cheap,) = choose_thresholds(evidence, cost=parse_cost("accepted_wrong=10,rejected_right=1"))
    assert (cheap.threshold, cheap.reject) == (scores[20], 0.1)
    again = fix_threshold(Settings(reject=0.1), below)
    assert again.threshold == cheap.threshold, "the share that is printed gives the threshold again"
    with pytest.raises(InputError, match="a cost is written as"):
        parse_cost("accepted_wrong=10")
    with pytest.raises(InputError, match="not both"):
        choose_thresholds(evidence)


SIDE = {"sets": ["uniform_noise", "park", "swirl"], "transformed": ["fog"]}
POINTS = {"shifts": ["fog"], "levels": [1, 5], "outliers": SIDE}
PARK = {"park": {"builtin": "scenery", "n": 60}}


def run(folder: Path, out: str, *, n: int = 56, **changes: Any) -> rw.Run:
    changes = {"outliers": PARK, "protocols": {"operating_points": POINTS}, **changes}
    prepared = prepare(parse_study(study(folder, n, **changes), "study"), accept_chance=True)
    return execute(prepared, folder / out, workers=1, progress=no_progress)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    """A run of two models, with criteria."""
    folder = tmp_path_factory.mktemp("operating")
    paths = {"tiny": save_onnx(folder / "tiny.onnx"), "worse": save_onnx(folder / "worse.onnx", blur=0.2)}
    where = {"protocol": "operating_points", "model": "tiny"}
    criteria = [
        {"id": "S", "metric": "accepted_wrong", "at_most": 0.95, "over": "worst", "where": where},
        {"id": "O", "metric": "accepted_outlier", "at_most": 0.01, "over": "worst", "where": where},
    ]
    models = {name: {"onnx": str(path)} for name, path in paths.items()}
    return run(folder, "run", criteria=criteria, models=models)


def test_a_run_says_silent_failures_first_and_verifies(done: rw.Run) -> None:
    assert done.verify() == []
    table = done.tables["operating_points"]
    pairs = table[(table["model"] == "tiny") & (table["shift"] == "fog") & (table["level"] == 5)]
    assert [*pairs["metric"]] == [*(metric.name for metric in INSIDE_METRICS), "accepted_outlier"]
    assert [*pairs["ood_set"]] == ["", "", "", "", "fog-5"]
    assert set(done.tables["operating_points_curve"]["condition"]) == {
        "held-out", "undisturbed", "mean of shifts", "worst outliers",
    }  # fmt: skip
    report = (done.path / "report.html").read_text()
    assert "it fails silently in" in report
    assert "figures are over the other half alone" in report
    assert any("it fails silently in" in line for line in done.headline())
    verdict = done.verdict()
    assert [finding.criterion.id for finding in verdict.findings] == ["S", "O"]
    assert verdict.findings[0].remark == "over the half of the test groups that the threshold was not fixed on"
    assert verdict.findings[1].status == "fail"


def test_two_models_are_compared_on_the_same_images(done: rw.Run) -> None:
    table = compare_runs([done])
    assert set(table["metric"]) == {"accepted_wrong", "accepted_outlier"}
    rates = done.tables["operating_points"].set_index(["model", "shift", "level", "ood_set", "metric"])["value"]
    for row in table.itertuples():
        shift = ("none", 0, row.condition) if row.metric == "accepted_outlier" else (row.condition, row.level, "")
        shift = ("fog", 5, "fog-5") if row.condition == "fog-5" else shift
        assert row.reason == ""
        assert row.before == pytest.approx(rates["tiny", *shift, row.metric])
        assert row.after == pytest.approx(rates["worse", *shift, row.metric])


def test_the_command_prints_what_to_write_and_changes_nothing(done: rw.Run) -> None:
    before = {path: path.read_bytes() for path in done.path.rglob("*") if path.is_file()}
    printed = call("operating-point", done.path, "--cost", "accepted_wrong=3,rejected_right=1")
    assert "tiny: write operating_points: {" in printed
    assert "worst set" in printed
    assert "cannot show" in call("operating-point", done.path, "--accepted-wrong-at-most", "0.001", code=3)
    assert "not both" in call("operating-point", done.path, code=2)
    assert {path: path.read_bytes() for path in done.path.rglob("*") if path.is_file()} == before
    assert [choice.model for choice in choose_operating_point(done, accepted_wrong_at_most=0.5)] == ["tiny", "worse"]


def test_it_costs_nothing_beside_classification_and_ood(tmp_path: Path) -> None:
    both = {"classification": {"shifts": ["fog"], "levels": [1, 5]}, "ood": SIDE}
    shown = []
    for protocols in (both, {**both, "operating_points": POINTS}):
        model = Counting()
        content = study(tmp_path, 28, outliers=PARK, protocols=protocols, models={"counting": "<in memory>"})
        prepared = prepare(parse_study(content, "study"), models={"counting": model}, accept_chance=True)
        shown.append({planned.case.hash for planned in prepared.plan.cases})
    assert shown[0] == shown[1]


def test_validation_data_is_held_out_and_all_test_images_count(tmp_path: Path) -> None:
    data = {"test": {"builtin": "signs", "n": 56}, "validation": {"builtin": "signs", "split": "train", "n": 70}}
    cost = {"accepted_wrong": 2, "rejected_right": 1, "accepted_outlier": 5, "outlier_share": 0.1}
    chosen = {"shifts": [], "outliers": {**SIDE, "transformed": []}, "cost": {**cost, "outliers": "uniform_noise"}}
    finished = run(tmp_path, "run", data=data, protocols={"operating_points": chosen})
    row = finished.tables["operating_points_thresholds"].iloc[0]
    assert (row["held_out"], row["images"]) == ("validation", 70)
    table = finished.tables["operating_points"]
    assert set(table.loc[table["ood_set"] == "", "n"]) <= {56, *range(57)}
    assert {*table["ood_set"]} == {"", "park", "swirl"}, "what fixes the threshold has no figures"
    assert finished.verify() == []
    chosen["cost"]["outliers"] = "swirl"
    with pytest.raises(InputError, match="unknown set of outliers to hold out for cost"):
        run(tmp_path, "other", data=data, protocols={"operating_points": chosen})


def test_test_data_of_one_group_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name data: validation, or test data of two groups"):
        run(tmp_path, "run", n=1)
    assert not (tmp_path / "run").exists()


def test_the_score_of_a_monitor_fixes_the_threshold(tmp_path: Path) -> None:
    save_onnx(tmp_path / "tiny.onnx", softmax=False)
    small = {"shifts": ["fog"], "levels": [5], "outliers": SIDE}
    protocols = {"operating_points": {**small, "score": "msp"}, "ood": {**SIDE, "monitor": "energy"}}
    watched = run(tmp_path, "watched", n=28, monitors=["msp", "energy"], protocols=protocols)
    own = run(tmp_path, "own", n=28, protocols={"operating_points": small, "ood": SIDE})
    tables = watched.tables["operating_points"], own.tables["operating_points"]
    assert np.allclose(tables[0]["value"], tables[1]["value"]), "msp is the confidence"
    assert set(watched.tables["operating_points_thresholds"]["score"]) == {"msp"}
    assert set(watched.tables["ood"]["score"]) == {"energy"}
    assert not np.allclose(watched.tables["ood"]["value"], own.tables["ood"]["value"])
    bins = watched.tables["ood_scores"]
    assert bins.groupby("ood_set")["in"].sum().min() > 0
    assert bins["to"].max() > 1, "energies are no probabilities"
    assert watched.verify() == []
    assert own.record.protocols["ood"].settings.keys().isdisjoint({"monitor"})
    report = (watched.path / "report.html").read_text()
    assert "the score of the monitor msp" in report
    assert "that of the monitor energy" in report
    with pytest.raises(InputError, match="unknown monitor as the score of ood 'knn'"):
        run(tmp_path, "unknown", monitors=["msp"], protocols={"ood": {**SIDE, "monitor": "knn"}})


def test_a_monitor_that_learns_from_held_out_images_is_shown_them(tmp_path: Path) -> None:
    monitors = {"both": {"monitor": "combined", "of": ["msp", "energy"]}}
    save_onnx(tmp_path / "tiny.onnx", softmax=False)
    side = {"sets": ["park"], "transformed": []}
    protocols = {
        "operating_points": {"shifts": [], "outliers": side, "score": "both"},
        "ood": {**side, "monitor": "both"},
    }
    with pytest.raises(InputError, match="name held-out images under data: validation"):
        run(tmp_path, "run", n=28, monitors=monitors, protocols=protocols)
    data = {"test": {"builtin": "signs", "n": 28}, "validation": {"builtin": "signs", "split": "train", "n": 28}}
    finished = run(tmp_path, "run", data=data, monitors=monitors, protocols=protocols)
    assert finished.verify() == []
    assert not finished.tables["ood"]["value"].isna().any()
    row = finished.tables["operating_points_thresholds"].iloc[0]
    assert (row["score"], row["held_out"], row["images"]) == ("both", "half of the validation groups", 15)


def test_shifts_of_both_sides_need_a_foreign_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shifts of both sides need pictures from elsewhere"):
        run(tmp_path, "run", n=14, outliers={"grey": "uniform_noise"}, protocols={"operating_points": {}})


def test_answers_from_elsewhere_give_the_same_tables(tmp_path: Path) -> None:
    save_onnx(tmp_path / "tiny.onnx", gain=3.0, softmax=False)
    data = {"test": {"builtin": "signs", "n": 28}, "validation": {"builtin": "signs", "split": "train", "n": 28}}
    small = {"shifts": ["fog"], "levels": [5], "outliers": {"sets": ["park"], "transformed": ["fog"]}}
    content = study(tmp_path, data=data, outliers=PARK, protocols={"operating_points": small})
    direct = rw.run_study(content, out=tmp_path / "direct", workers=1, progress=no_progress)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    call("export", tmp_path / "study.yaml", tmp_path / "images")
    answer_elsewhere(tmp_path / "images", tmp_path / "tiny.onnx", tmp_path / "answers.csv")
    content["models"] = {"tiny": {"predictions": str(tmp_path / "answers.csv"), "outputs": "logits"}}
    back = rw.run_study(content, out=tmp_path / "back", workers=1, progress=no_progress)
    for name in ("operating_points", "operating_points_thresholds", "operating_points_curve"):
        assert back.tables[name].equals(direct.tables[name])
