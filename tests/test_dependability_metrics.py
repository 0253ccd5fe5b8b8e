"""The dependability metrics: the paper's worked examples, closed forms, brute force, peers and edge cases."""

from __future__ import annotations

import math
import zipfile
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.core.validation import read_yaml
from roadworthy.metrics import Answers
from roadworthy.metrics.confidence_loss import confidence_loss
from roadworthy.metrics.coverage import Need, Schema, scenario_coverage
from roadworthy.metrics.neurons import MOST_CELLS, NeuronCoverage, activation_pattern, patterns_by_scenario
from roadworthy.metrics.occlusion import (
    PatchGrid,
    cells_of_boxes,
    cells_of_masks,
    occlusion_curve,
    occlusion_scores,
    relative_rho,
    summarise,
)
from roadworthy.metrics.weighted_confusion import WeightedConfusion, parse_severity, severity_matrix
from roadworthy.models import CallableModel, StoredPredictions
from roadworthy.models.occlusion import FILLS, occlusion_map
from roadworthy.protocols.dependability.measures import MEASURES
from roadworthy.statistics import GroupBootstrap, bootstrap_interval, mean_interval
from roadworthy.statistics.degradation import (
    discounted,
    domain_performance,
    independent_frequencies,
    scenario_values,
    time_between_failures,
)
from roadworthy.statistics.slices import check_slices, worst_slices
from roadworthy.verdict import Criterion, threshold_remark

SEVERITIES = Path(__file__).parent.parent / "src" / "roadworthy" / "protocols" / "severities"
PAPER = {"weather": ["sunny", "cloudy", "rainy"], "surface": ["stone", "mud", "tarmac"], "road": ["straight", "curvy"]}
FIRST = [("sunny", "stone", "straight"), ("rainy", "tarmac", "curvy")]


def columns(schema: Schema, rows: list[Any]) -> dict[str, list[Any]]:
    if rows and isinstance(rows[0], dict):
        rows = [tuple(row.values()) for row in rows]
    return {name: [row[place] for row in rows] for place, name in enumerate(schema.names)}


# Scenario coverage


def test_the_papers_coverage() -> None:
    schema = Schema(PAPER)
    before = scenario_coverage(schema, columns(schema, FIRST))
    after = scenario_coverage(schema, columns(schema, [*FIRST, ("cloudy", "mud", "curvy")]))
    assert (before.occupied, before.cells, after.occupied) == (6, 21, 9)
    assert before.value == pytest.approx(6 / 21)
    assert after.value == pytest.approx(9 / 21)
    assert len(list(before.uncovered())) == 15
    assert {"weather": "cloudy", "surface": "mud"} in [cell["scenario"] for cell in before.uncovered()]


@given(st.integers(1, 3), st.lists(st.tuples(*(st.sampled_from(values) for values in PAPER.values())), max_size=12))
def test_coverage_is_what_counting_by_hand_gives(k: int, rows: list[tuple[str, ...]]) -> None:
    schema = Schema(PAPER)
    found = scenario_coverage(schema, columns(schema, rows), k=k)
    names = list(PAPER)
    cells = [
        (members, cell)
        for members in combinations(range(3), k)
        for cell in product(*(PAPER[names[m]] for m in members))
    ]
    occupied = [(m, cell) for m, cell in cells if any(tuple(row[i] for i in m) == cell for row in rows)]
    assert (found.occupied, found.cells) == (len(occupied), len(cells))
    assert found.value == pytest.approx(len(occupied) / len(cells))


def test_impossible_cells_are_left_out_even_where_only_several_constraints_together_exclude_them() -> None:
    schema = Schema(
        {"a": ["0", "1"], "b": ["0", "1"], "c": ["0", "1"]},
        impossible=[{"a": "0", "b": "0"}, {"b": "1", "c": "1"}],
    )
    found = scenario_coverage(schema, columns(schema, [("0", "1", "0")]))
    # a=0 forces b=1, and b=1 forces c=0: a=0 with c=1 occurs in no scenario though no constraint names it.
    assert (found.occupied, found.cells, found.impossible) == (3, 9, 3)
    assert all(cell["scenario"] != {"a": "0", "c": "1"} for cell in found.uncovered())


def test_minimum_counts_weights_and_objects() -> None:
    schema = Schema({"weather": ["dry", "rain"], "light": ["day", "night"]})
    rows = columns(schema, [("dry", "day")] * 5 + [("rain", "night")])
    needs = [Need(minimum=2), Need({"weather": "rain"}, minimum=4, weight=3.0)]
    found = scenario_coverage(schema, rows, needs=needs)
    assert found.value == pytest.approx((2 + 0 + 0 + 3 * 1) / (2 + 2 + 3 * 4 + 3 * 4))
    assert found.occupied == 1
    one_object = scenario_coverage(schema, rows, needs=needs, groups=["a"] * 5 + ["b"])
    assert one_object.value == pytest.approx((1 + 3) / 28)
    assert math.isnan(scenario_coverage(schema, rows, needs=[Need(minimum=0)]).value)


def test_one_value_an_unused_value_and_missing_labels() -> None:
    schema = Schema({"sensor": ["front"], "weather": ["dry", "rain", "snow"]})
    rows = {"sensor": ["front", "front", None], "weather": ["dry", float("nan"), "rain"]}
    found = scenario_coverage(schema, rows)
    assert (found.occupied, found.cells, found.missing) == (1, 3, {"sensor": 1, "weather": 1})
    assert scenario_coverage(schema, rows, k=1).occupied == 3
    assert scenario_coverage(schema, {"sensor": [], "weather": []}).value == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Schema({}), "at least one condition"),
        (lambda: Schema({"a": ["x", "x"]}), "different values"),
        (lambda: Schema({"a": ["x"]}, [{"b": "x"}]), "condition 'b'"),
        (lambda: Schema({"a": ["x"]}, [{"a": "y"}]), "known are x"),
        (lambda: Schema({"a": ["x"]}, [{"a": "x"}]), "no scenario at all"),
        (lambda: Schema({"a": ["x"]}, [{}]), "at least one condition"),
        (lambda: scenario_coverage(Schema({"a": ["x"]}), {"a": ["z"]}, k=1), "row 0: a = 'z'"),
        (lambda: scenario_coverage(Schema({"a": ["x"]}), {"b": ["x"]}, k=1), "no condition 'a'"),
        (lambda: scenario_coverage(Schema({"a": ["x"]}), {"a": ["x"]}), "between 1 and"),
        (lambda: scenario_coverage(Schema({"a": ["x", "y"]}, [{"a": "y"}]), {"a": ["x", "y"]}, k=1), "row 1 shows"),
        (lambda: scenario_coverage(Schema({"a": ["x"]}), {"a": ["x"]}, k=1, groups=["g", "h"]), "group each"),
        (lambda: Need(minimum=-1), "at least 0"),
    ],
)
def test_bad_schemas_are_told(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


# Neurons


def by_hand(on: np.ndarray, k: int) -> float:
    cells = math.comb(on.shape[1], k) * 2**k
    return sum(len(np.unique(on[:, list(m)], axis=0)) for m in combinations(range(on.shape[1]), k)) / cells


@given(st.integers(1, 4), st.integers(4, 7), st.integers(1, 40), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_k_activation_is_what_counting_by_hand_gives_and_needs_no_whole_table(
    k: int, c: int, n: int, seed: int
) -> None:
    activations = np.random.default_rng(seed).standard_normal((n, c)) - 0.5
    whole, streamed = NeuronCoverage(c, k), NeuronCoverage(c, k)
    whole.add(activations)
    for part in np.array_split(activations, 3):
        streamed.add(part)
    assert whole.result().value == pytest.approx(by_hand(activations > 0, k))
    np.testing.assert_array_equal(whole.result().shares, streamed.result().shares)
    assert whole.result().exact


def test_a_sampled_estimate_holds_the_exact_value_in_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    activations = np.random.default_rng(0).standard_normal((40, 40)) - 1.0
    exact = NeuronCoverage(40, 3)
    exact.add(activations)
    monkeypatch.setattr("roadworthy.metrics.neurons.MOST_CELLS", 100)
    sampled = NeuronCoverage(40, 3, sample=2000, seed=1)
    for part in np.array_split(activations, 4):
        sampled.add(part)
    result = sampled.result()
    interval = mean_interval(result.shares, range(result.tuples), 0, 1)
    assert not result.exact
    assert result.occupied is None
    assert interval.lo < exact.result().value < interval.hi
    assert interval.hi - interval.lo < 0.03
    assert math.comb(1024, 3) << 3 > MOST_CELLS


def test_k1_is_neuron_coverage_and_layers_that_never_or_always_fire_are_told() -> None:
    layer = NeuronCoverage(3, k=1)
    layer.add([[0.0, 1.0, 1.0], [0.0, 2.0, 0.0]])
    result = layer.result()
    assert result.value == pytest.approx(4 / 6)
    assert (result.never_on, result.always_on, result.reason) == (1, 1, "")
    dead = NeuronCoverage(3, k=2)
    dead.add(np.zeros((5, 3)))
    assert dead.result().value == 0.25
    assert dead.result().reason == "no neuron is ever on"
    assert math.isnan(NeuronCoverage(3).result().value)
    assert NeuronCoverage(3).result().reason == "no images"
    with pytest.raises(ValueError, match=r"\(images, 3\)"):
        layer.add([[1.0, 2.0]])
    with pytest.raises(ValueError, match="NaN"):
        layer.add([[1.0, math.nan, 0.0]])
    with pytest.raises(ValueError, match="k must lie"):
        NeuronCoverage(3, k=4)


def active(counts: list[int], neurons: int) -> np.ndarray:
    return np.array([[1.0] * count + [0.0] * (neurons - count) for count in counts])


def test_equation_3_by_hand_edges_included() -> None:
    # 10 neurons, 5 groups: [0,2) [2,4) [4,6) [6,8) [8,10]. 2 is in the second, 10 in the last.
    found = activation_pattern(active([0, 1, 2, 3, 3, 4, 8, 10], 10), groups=5)
    assert found.sizes.tolist() == [2, 3, 1, 0, 2]
    assert (found.largest, found.value) == (1, 2 / 8)
    tie = activation_pattern(active([0, 0, 10, 10, 5], 10), groups=5)
    assert (tie.largest, tie.value) == (0, 3 / 5)
    # 7 neurons, 3 groups: edges at 7/3 and 14/3.
    assert activation_pattern(active([2, 3, 4, 5, 7], 7), groups=3).sizes.tolist() == [1, 2, 2]
    assert activation_pattern(active([0, 10], 10), groups=1).value == 0
    dead = activation_pattern(np.zeros((4, 6)))
    assert (dead.value, dead.reason) == (0.0, "no neuron is ever on")
    assert math.isnan(activation_pattern(np.zeros((0, 6))).value)
    with pytest.raises(ValueError, match="group"):
        activation_pattern(np.zeros((2, 2)), groups=0)


def test_patterns_belong_to_a_scenario_each() -> None:
    found = patterns_by_scenario(active([0, 0, 10, 10, 10], 10), ["day", "day", "day", "night", "night"], groups=5)
    assert {name: pattern.value for name, pattern in found.items()} == {"day": 1 / 3, "night": 0.0}


# Adversarial confidence loss


def test_the_papers_confidence_loss() -> None:
    car = confidence_loss([[0.88], [0.79], [0.69]], [0.91], ["rotation", "blur", "fgsm"])
    assert car.value == pytest.approx(-0.22)
    assert car.transformers[car.winner[0]] == "fgsm"


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("confidence_loss", {"at_least": -0.2}, {"at_most": -0.2}),
        ("neuron_activation_2", {"at_least": 0.5}, {"at_most": 0.5}),
        ("time_between_failures", {"at_least": 5}, {"at_most": 5}),
        ("neuron_pattern", {"at_most": 0.2}, {"at_least": 0.2}),
        ("weighted_confusion", {"at_most": 0.2}, {"at_least": 0.2}),
    ],
)
def test_a_criterion_the_wrong_way_gets_its_remark(name: str, right: dict[str, float], wrong: dict[str, float]) -> None:
    """The paper says of each how to improve it; of M_adv the largest performance drop is the most negative value."""
    metric = next(metric for measure in MEASURES for metric in measure.metrics if metric.name == name)
    said = threshold_remark(Criterion(id="R", metric=name, **wrong), metric, metric.limits(3))  # type: ignore[arg-type]
    assert "accepts the worse models" in said
    assert not threshold_remark(Criterion(id="R", metric=name, **right), metric, metric.limits(3))  # type: ignore[arg-type]


def test_confidence_loss_takes_the_worst_per_image_and_says_who_wins() -> None:
    loss = confidence_loss([[0.5, 0.9, 0.3], [0.7, 0.6, 0.3]], [0.8, 0.8, 0.2], ["a", "b"])
    np.testing.assert_allclose(loss.per_image, [-0.3, -0.2, 0.1])
    assert loss.value == pytest.approx(-0.4 / 3)
    assert loss.wins() == {"a": 2, "b": 1}
    assert loss.means() == pytest.approx({"a": -0.1 / 3, "b": -0.2 / 3})
    assert loss.distribution([0.0, 0.5, 1.0]) == pytest.approx({0.0: -0.3, 0.5: -0.2, 1.0: 0.1})
    assert loss.value <= min(loss.means().values())
    nothing = confidence_loss(np.zeros((2, 0)), [], ["a", "b"])
    assert math.isnan(nothing.value)
    assert nothing.reason == "no images"
    for bad in ([[0.5, 0.5]], [0.5, 0.5]), ([[1.5]], [0.5]), ([[math.nan]], [0.5]):
        with pytest.raises(ValueError, match=r"table|between"):
            confidence_loss(*bad, ["a"] if np.shape(bad[1]) == (1,) else ["a", "b"])


# Degradation


def test_values_per_condition_and_per_pair() -> None:
    conditions = {"weather": ["dry", "dry", "rain", "rain", None], "light": ["day", "night", "day", "night", "day"]}
    single = scenario_values([1, 0, 1, 0, 1], range(5), conditions, 0, 1)
    assert [(v.scenario, v.interval.value) for v in single] == [
        ({"weather": "dry"}, 0.5),
        ({"weather": "rain"}, 0.5),
        ({"light": "day"}, 1.0),
        ({"light": "night"}, 0.0),
    ]
    pairs = scenario_values([1, 0, 1, 0, 1], range(5), conditions, 0, 1, k=2)
    assert [v.interval.n for v in pairs] == [1, 1, 1, 1]
    assert scenario_values([1, 0, 1, 0, 1], range(5), conditions, 0, 1, k=0)[0].interval.n == 5
    assert discounted(0.9, 6 / 21) == pytest.approx(0.9 * 6 / 21)
    with pytest.raises(ValueError, match="coverage"):
        discounted(0.9, 1.2)


def test_time_between_failures_has_the_exact_poisson_bounds() -> None:
    times = np.arange(100.0)
    failed = np.isin(times, [10, 11, 12, 50, 80])
    found = time_between_failures(times, failed, ["drive"] * 100)
    assert (found.failures, found.exposure, found.dispersion) == (3, 100.0, 1.0)
    assert found.value == pytest.approx(100 / 3)
    assert found.lo == pytest.approx(2 * 100 / chi2.ppf(0.975, 8))
    assert found.hi == pytest.approx(2 * 100 / chi2.ppf(0.025, 6))
    none = time_between_failures(times, np.zeros(100), ["drive"] * 100)
    assert (none.value, none.hi, none.reason) == (math.inf, math.inf, "no failure")
    assert none.lo == pytest.approx(2 * 100 / chi2.ppf(0.975, 2))


def test_a_failure_never_spans_two_drives_and_unequal_drives_widen_the_interval() -> None:
    drives = np.repeat(["a", "b"], 3)
    edge = time_between_failures([0, 1, 2, 0, 1, 2], [0, 0, 1, 1, 0, 0], drives)
    assert (edge.failures, edge.exposure) == (2, 6.0)
    times, drive = np.tile(np.arange(50.0), 4), np.repeat(np.arange(4), 50)
    even = time_between_failures(times, times % 10 == 5, drive)
    clustered = time_between_failures(times, (drive == 0) & (times % 5 < 2) & (times % 5 > 0), drive)
    assert even.dispersion == 1
    assert clustered.dispersion > 5
    assert clustered.hi / clustered.lo > even.hi / even.lo
    with pytest.raises(ValueError, match="grows along"):
        time_between_failures([0, 0], [0, 1], ["a", "a"])
    with pytest.raises(ValueError, match="no sequence"):
        time_between_failures([0, 0], [0, 1], ["a", "b"])


def planted(seed: int, bad: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    conditions = {
        "weather": rng.choice(["dry", "rain", "snow"], 600),
        "light": rng.choice(["day", "night"], 600),
        "road": rng.choice(["a", "b", "c"], 600),
    }
    hard = (conditions["weather"] == "rain") & (conditions["light"] == "night")
    return (rng.random(600) < np.where(hard, bad, 0.95)).astype(float), conditions


def test_the_planted_slice_is_found_first() -> None:
    values, conditions = planted(0, bad=0.5)
    result = worst_slices(values, range(600), conditions, 0, 1, depth=2, limit=3)
    first = result.worst[0]
    assert first.scenario == {"weather": "rain", "light": "night"}
    assert first.p_holm < 0.001
    assert first.hi < 0
    assert first.difference == pytest.approx(first.interval.value - first.elsewhere)
    assert result.looked_at == 3 + 2 + 3 + 6 + 9 + 6
    assert first.p_holm >= min(1, first.p * result.looked_at) * 0.999


def test_without_a_bad_slice_the_family_is_hardly_ever_wrong() -> None:
    wrong = 0
    for seed in range(12):
        values, conditions = planted(seed, bad=0.95)
        found = worst_slices(values, range(600), conditions, 0, 1, depth=2, limit=2).worst
        wrong += any(one.p_holm < 0.05 for one in found)
    assert wrong <= 1


def test_slices_count_objects_and_leave_out_those_too_small() -> None:
    values, conditions = planted(0, bad=0.5)
    by_image = worst_slices(values, range(600), conditions, 0, 1, depth=1, limit=1).worst[0]
    doubled = worst_slices(
        np.tile(values, 2),
        np.tile(np.arange(600), 2),
        {k: np.tile(v, 2) for k, v in conditions.items()},
        0,
        1,
        depth=1,
        limit=1,
    ).worst[0]
    assert doubled.p == pytest.approx(by_image.p, rel=1e-6)
    small = worst_slices([0, 0, 1, 1, 1, 1], range(6), {"w": ["r", "r", "d", "d", "d", "d"]}, 0, 1, support=3)
    assert (small.worst, small.looked_at, small.too_small) == ((), 0, 2)
    with pytest.raises(ValueError, match="NaN"):
        worst_slices([math.nan], [0], {"w": ["r"]}, 0, 1)


def test_a_more_general_slice_says_it_all() -> None:
    rain = np.array(["rain", "dry"] * 100)
    light = np.repeat(["day", "night"], 100)
    found = worst_slices((rain == "dry").astype(float), range(200), {"weather": rain, "light": light}, 0, 1).worst
    assert [one.scenario for one in found] == [{"weather": "rain"}]


def test_the_domain_counts_situations_by_their_frequency() -> None:
    weather = np.repeat(["dry", "rain", "fog"], [200, 200, 6])
    values = np.concatenate([np.ones(200), np.zeros(200), np.ones(6)])
    frequencies = [({"weather": w}, f) for w, f in (("dry", 6), ("rain", 2), ("fog", 1), ("snow", 1))]
    found = domain_performance(values, range(406), {"weather": weather}, frequencies, 0.9, 0, 1)
    assert found.share == pytest.approx(0.7)
    # Six images in fog do not show 0.9; snow is untested.
    assert (found.share_lo, found.share_hi) == pytest.approx((0.6, 0.8))
    assert found.untested == pytest.approx(0.1)
    assert found.expected == pytest.approx((6 * 1 + 2 * 0 + 1 * 1) / 9)
    assert found.expected_lo < 0.7 < found.expected_hi
    assert [one.interval.reason for _, one in found.by_situation] == ["", "", "", "no images"]
    joint = independent_frequencies({"w": {"dry": 0.8, "rain": 0.2}, "l": {"d": 0.5, "n": 0.5}})
    assert sum(share for _, share in joint) == pytest.approx(1)
    with pytest.raises(ValueError, match="twice"):
        domain_performance(values, range(406), {"weather": weather}, frequencies + frequencies[:1], 0.9, 0, 1)
    with pytest.raises(ValueError, match="same conditions"):
        domain_performance(values, range(406), {"weather": weather}, [*frequencies, ({"x": "y"}, 1)], 0.9, 0, 1)


# Occlusion


def figure_4() -> tuple[np.ndarray, np.ndarray]:
    """A pedestrian of 30 cells on a grid; nine hot cells of which five lie on the head."""
    person = np.zeros((10, 12), bool)
    person[0:2, 4:7] = True
    person[2:6, 3:8] = True
    person[6:8, 4:6] = True
    heat = np.full((10, 12), 0.9)
    heat[0, 4:7] = heat[1, 4:6] = 0.2
    heat[0, 8:12] = 0.3
    return heat[None], person[None]


def test_the_papers_precision_and_covering() -> None:
    heat, person = figure_4()
    assert person.sum() == 30
    scores = occlusion_scores(heat, person, rho=0.5)
    assert (scores.hot[0], scores.occluding[0], scores.both[0]) == (9, 30, 5)
    assert scores.precision[0] == pytest.approx(5 / 9)
    assert scores.covering[0] == pytest.approx(5 / 30)


def test_hot_is_strictly_below_and_nothing_hot_is_undefined() -> None:
    heat, person = figure_4()
    cold = occlusion_scores(heat, person, rho=0.2)
    assert math.isnan(cold.precision[0])
    assert cold.precision_reasons == ("no hot cell",)
    assert cold.covering[0] == 0
    empty = occlusion_scores(heat, np.zeros_like(person), rho=0.5)
    assert math.isnan(empty.covering[0])
    assert empty.covering_reasons == ("no cell hides the object",)
    assert empty.precision[0] == 0
    relative = occlusion_scores(heat, person, relative_rho(0.5, [0.5]))
    assert relative.hot[0] == 5
    curve = occlusion_curve(heat, person, [0.1, 0.25, 0.5, 1.0])
    assert [point[1].n for point in curve] == [0, 1, 1, 1]
    assert curve[0][1].reason == "no hot cell"
    assert [point[2].mean for point in curve] == pytest.approx([0, 5 / 30, 5 / 30, 1])
    assert summarise([]).reason == "no images"
    with pytest.raises(ValueError, match="one shape"):
        occlusion_scores(heat, person[:, :5], rho=0.5)


@given(st.integers(1, 14), st.integers(1, 14), st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_cells_that_hide_a_mask_are_those_found_patch_by_patch(
    h: int, w: int, patch: int, stride: int, seed: int
) -> None:
    patch, stride = min(patch, h, w), min(stride, patch, h, w)
    grid = PatchGrid(h, w, patch, stride)
    mask = np.random.default_rng(seed).random((1, h, w)) < 0.1
    by_hand = [[mask[0, t : t + patch, x : x + patch].any() for x in grid.lefts] for t in grid.tops]
    assert cells_of_masks(mask, grid)[0].tolist() == by_hand
    assert grid.tops[-1] + patch >= h
    assert grid.tops[-1] < h
    x0, y0 = seed % w, seed % h
    box = np.zeros((1, h, w), bool)
    box[0, y0 : y0 + 3, x0 : x0 + 2] = True
    found = cells_of_boxes([[x0, y0, min(x0 + 2, w), min(y0 + 3, h)]], grid)
    np.testing.assert_array_equal(found, cells_of_masks(box, grid))


def test_masks_of_the_wrong_size_and_patches_that_leave_gaps_are_errors() -> None:
    grid = PatchGrid(8, 8, patch=2, stride=2)
    with pytest.raises(ValueError, match="size of the images"):
        cells_of_masks(np.zeros((1, 8, 9), bool), grid)
    with pytest.raises(ValueError, match="gaps"):
        PatchGrid(8, 8, patch=2, stride=3)
    with pytest.raises(ValueError, match="does not fit"):
        PatchGrid(8, 8, patch=9, stride=1)
    assert not cells_of_boxes([[math.nan] * 4, [2, 2, 2, 4]], grid).any()


def corner_model(images: np.ndarray) -> np.ndarray:
    """Sure of class 0 by the brightness of the upper left 4x4 pixels alone."""
    light = images[:, :4, :4].mean(axis=(1, 2, 3)) / 255
    return np.stack([light, 1 - light], axis=1)


def white(count: int = 3, size: int = 12) -> Batch:
    ids = tuple(f"i{i}" for i in range(count))
    return Batch(ids, np.full((count, size, size, 3), 255, np.uint8), np.zeros(count, np.int64))


def test_the_map_is_hot_where_the_model_looks() -> None:
    model = CallableModel(corner_model, num_classes=2, version="1")
    maps = occlusion_map(model, white(), patch=4, stride=4, batch_size=5)
    expected = np.ones((3, 3, 3), np.float32)
    expected[:, 0, 0] = 128 / 255
    np.testing.assert_allclose(maps, expected, atol=1e-6)
    other = occlusion_map(model, white(), patch=4, stride=4, classes=np.ones(3, int))
    np.testing.assert_allclose(other, 1 - expected, atol=1e-6)
    mask = np.zeros((3, 12, 12), bool)
    mask[:, :3, :3] = True
    scores = occlusion_scores(maps, cells_of_masks(mask, PatchGrid(12, 12, 4, 4)), rho=0.9)
    assert scores.precision.tolist() == scores.covering.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("fill", FILLS)
def test_maps_do_not_depend_on_the_batch(fill: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 10, 12, 3), dtype=np.uint8)
    batch = Batch(("a", "b", "c", "d"), images, np.array([0, 1, 0, 1]))
    model = CallableModel(corner_model, num_classes=2, version="1")
    whole = occlusion_map(model, batch, patch=5, stride=2, fill=fill, batch_size=7)
    single = np.concatenate(
        [occlusion_map(model, batch.take([i]), patch=5, stride=2, fill=fill, batch_size=64) for i in range(4)]
    )
    np.testing.assert_array_equal(whole, single)
    assert whole.shape == (4, *PatchGrid(10, 12, 5, 2).shape)
    assert (batch.images == images).all()


def test_maps_refuse_what_cannot_be(tmp_path: Path) -> None:
    model = CallableModel(corner_model, num_classes=2, version="1")
    for settings_, words in (
        ({"fill": "black"}, "grey"),
        ({"patch": 99}, "does not fit"),
        ({"classes": [0, 1, 2]}, "0..1"),
    ):
        with pytest.raises(InputError, match=words):
            occlusion_map(model, white(), **{"patch": 4, "stride": 4, **settings_})
    (tmp_path / "answers.csv").write_text("id,p0,p1\ni0,0.9,0.1\ni1,0.9,0.1\ni2,0.9,0.1\n")
    with pytest.raises(InputError):
        occlusion_map(StoredPredictions(tmp_path / "answers.csv"), white(), patch=4, stride=4)


def test_real_masks_of_pedestrians(shared_data: Path) -> None:
    import cv2

    if not (shared_data / "pennfudan.zip").exists():
        pytest.skip("no pennfudan.zip among the real data")
    with zipfile.ZipFile(shared_data / "pennfudan.zip") as archive:
        name = next(n for n in sorted(archive.namelist()) if "mask" in n.lower() and n.endswith(".png"))
        raw = cv2.imdecode(np.frombuffer(archive.read(name), np.uint8), cv2.IMREAD_GRAYSCALE)
    mask = (raw > 0)[None]
    grid = PatchGrid(*mask.shape[1:], patch=32, stride=16)
    cells = cells_of_masks(mask, grid)
    assert 0 < cells.sum() < cells.size
    y, x = np.nonzero(mask[0])
    box = cells_of_boxes([[x.min(), y.min(), x.max() + 1, y.max() + 1]], grid)
    assert (cells <= box).all()
    scores = occlusion_scores(np.where(cells, 0.1, 0.9), cells, rho=0.5)
    assert scores.precision[0] == scores.covering[0] == 1


# Weighted confusion


def answers(pairs: list[tuple[int, int]], classes: int) -> Answers:
    label, prediction = np.array(pairs).T
    return Answers.from_probabilities(np.eye(classes)[prediction], label)


def test_table_i_and_a_cost_by_hand() -> None:
    table = read_yaml(SEVERITIES / "road_users.yaml", "severities")["severity"]
    severity = severity_matrix(["pedestrian", "vehicle", "background"], table)
    assert severity.tolist() == [[0, 2, 4], [1, 0, 3], [1, 1, 0]]
    cost = WeightedConfusion(severity)
    said = answers([(0, 2), (0, 0), (1, 0), (2, 2), (2, 1), (0, 2)], 3)
    assert cost(said) == pytest.approx((4 + 0 + 1 + 0 + 1 + 4) / (4 + 4 + 3 + 1 + 1 + 4))
    first = cost.most_expensive(said, limit=1)[0]
    assert (first.label, first.prediction, first.count, first.cost) == (0, 2, 2, 8.0)
    assert [c.cost for c in cost.most_expensive(said)] == [8.0, 1.0, 1.0]
    assert cost(answers([(0, 0), (1, 1)], 3)) == 0
    assert cost(answers([(0, 2), (1, 2)], 3)) == 1
    weighted = cost(said, np.array([[1.0] * 6, [0, 1, 0, 0, 0, 0]]))
    np.testing.assert_allclose(weighted, [cost(said), 0])
    resampled = GroupBootstrap(range(6), resamples=400).distribution(cost, said)
    lo, hi, reason = bootstrap_interval(cost(said), resampled, 6, bounds=(0, 1))
    assert not reason
    assert 0 <= lo < cost(said) < hi <= 1


def test_equal_severities_give_the_error_rate() -> None:
    rng = np.random.default_rng(0)
    said = answers(list(zip(rng.integers(0, 4, 50), rng.integers(0, 4, 50), strict=True)), 4)
    assert WeightedConfusion(1.0 - np.eye(4))(said) == pytest.approx(1 - said.correct.mean())


def test_the_traffic_sign_example_fits_the_builtin_signs() -> None:
    from roadworthy.data import BuiltinDataset, Opening

    names = BuiltinDataset("signs", Opening(size=32), n=14).class_names
    severity = severity_matrix(names, read_yaml(SEVERITIES / "traffic_signs.yaml", "severities")["severity"])
    assert severity[names.index("stop"), names.index("parking")] == 4
    assert severity[names.index("parking"), names.index("stop")] == 2
    assert (severity[~np.eye(len(names), dtype=bool)] >= 1).all()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"a": {"c": 1}}, "not a class"),
        ({"x": 1}, "not a class"),
        ({"a": 1}, "no severity for 'b'"),
        ({"a": {"a": 1, "b": 1}, "b": 1}, "right answer"),
        ({"a": "bad", "b": 1}, "plus signs"),
        ({"a": -1, "b": 1}, "at least 0"),
    ],
)
def test_bad_severities_are_told(rows: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        severity_matrix(["a", "b"], rows)


def test_costs_that_do_not_exist() -> None:
    assert parse_severity("++++") == 4
    free = WeightedConfusion(np.array([[0.0, 0.0], [1.0, 0.0]]))
    said = answers([(0, 1)], 2)
    assert math.isnan(free(said))
    assert "costs anything" in free.reason(said)
    with pytest.raises(ValueError, match="diagonal"):
        WeightedConfusion(np.ones((2, 2)))
    with pytest.raises(ValueError, match="do not fit"):
        free(answers([(0, 2)], 3))


def seen_in_both(seed: int, opposite: bool, objects: int = 40) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Objects seen four times in each weather. Half are hard in both; or, where `opposite`, each is hard in one.

    The weather itself changes nothing: over many objects both are as hard.
    """
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(objects), 8)
    rain = np.tile([True, False], 4 * objects)
    hard = (rng.random(objects) < 0.5)[rows] == rain if opposite else (rng.random(objects) < 0.5)[rows]
    return np.where(hard, 0.0, 1.0), rows, {"weather": np.where(rain, "rain", "dry")}


def test_objects_seen_inside_and_elsewhere_count_on_both_sides() -> None:
    weather = np.array(["dry", "rain"] * 60)
    objects = np.repeat(np.arange(60), 2)
    found = worst_slices((weather == "dry").astype(float), objects, {"weather": weather}, 0, 1)
    assert (found.looked_at, found.too_small) == (2, 0)
    assert found.worst[0].scenario == {"weather": "rain"}
    assert found.worst[0].p_holm < 1e-6
    # All ten objects are seen in rain, only two of them elsewhere.
    few = ["rain"] * 20 + ["dry"] * 2
    alone = worst_slices([0] * 20 + [1] * 2, [*range(10), *range(10), 0, 1], {"weather": few}, 0, 1, support=3)
    assert (alone.looked_at, alone.too_small) == (0, 2)


def test_images_without_a_value_are_neither_inside_nor_elsewhere() -> None:
    weather = ["rain"] * 20 + ["dry"] * 20 + [""] * 200
    values = [0.5] * 20 + [1.0] * 20 + [0.0] * 200
    found = worst_slices(values, range(240), {"weather": weather}, 0, 1).worst
    assert [(one.scenario["weather"], one.elsewhere) for one in found] == [("rain", 1.0)]
    assert worst_slices(values, range(240), {"weather": ["rain"] * 20 + [None] * 220}, 0, 1).looked_at == 0


def test_the_difference_of_a_slice_knows_the_objects_of_both_sides() -> None:
    def width(opposite: bool) -> float:
        values, objects, conditions = seen_in_both(0, opposite)
        values[np.flatnonzero(conditions["weather"] == "rain")[:8]] = 0.0
        one = next(iter(worst_slices(values, objects, conditions, 0, 1, depth=1).worst))
        return one.hi - one.difference

    # Hard in one weather only, an object's difference is +1 or -1: the mean of 40 such has a deviation of 1 / sqrt(40).
    assert width(opposite=True) == pytest.approx(1.96 / math.sqrt(40), rel=0.2)
    assert width(opposite=False) < width(opposite=True) / 3


def test_slices_with_objects_on_both_sides_are_hardly_ever_wrong() -> None:
    wrong = 0
    for seed in range(60):
        values, objects, conditions = seen_in_both(seed, opposite=True, objects=60)
        wrong += any(one.p < 0.025 for one in worst_slices(values, objects, conditions, 0, 1, depth=1).worst)
    # Two slices, each other's elsewhere: at most about 3 of 60 by chance, and 10 if the sides were independent.
    assert wrong <= 5


def test_too_many_slices_are_refused_by_number() -> None:
    check_slices([100, 900], 2)
    with pytest.raises(ValueError, match="more than 100,000 slices"):
        check_slices([400, 400], 2)


def test_a_need_of_more_conditions_than_a_cell_has_is_refused() -> None:
    schema = Schema({"a": ["0", "1"], "b": ["0", "1"], "c": ["0", "1"]})
    with pytest.raises(ValueError, match=r"names 3 conditions \(a, b, c\), but a cell has 2"):
        scenario_coverage(schema, {name: ["0"] for name in "abc"}, needs=[Need({"a": "0", "b": "0", "c": "0"})])


def test_whole_numbers_are_the_same_with_and_without_gaps() -> None:
    schema = Schema({"lanes": ["1", "2"]})
    assert schema.encode({"lanes": np.array([1.0, np.nan, 2.0])}).tolist() == [[0], [-1], [1]]
    assert schema.encode({"lanes": np.array([1, 2])}).tolist() == [[0], [1]]
    found = scenario_values([1, 0, 1], range(3), {"lanes": np.array([1.0, np.nan, 2.0])}, 0, 1)
    assert [part.scenario for part in found] == [{"lanes": "1"}, {"lanes": "2"}]


def test_cells_not_tuples_bound_what_is_counted_exactly() -> None:
    # 4,292,145 tuples of 29 neurons, but over a thousand million cells; 311 neurons have 39.7 million cells of k = 3.
    assert not NeuronCoverage(29, 8).exact
    assert NeuronCoverage(311, 3).exact
