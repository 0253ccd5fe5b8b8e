"""Activation patterns: distances against brute force and binary decision diagrams, the monitor by hand, edge cases."""

from __future__ import annotations

import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dd.autoref import BDD
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from given_features import Given, numbered
from roadworthy.core.errors import InputError
from roadworthy.data import Subset
from roadworthy.monitors import ActivationPatterns, FittedMonitor, PatternSet, make_monitor, represent_data
from roadworthy.monitors import patterns as patterns_module
from roadworthy.monitors.conformance import ToyModel, toy_data

TRAIN, HELD_OUT, TEST, OUTLIERS = toy_data()


def nearest(known: Any, asked: Any) -> Any:
    """The definition: differing bits with every known pattern, the fewest."""
    return (known[None] != asked[:, None]).sum(axis=2).min(axis=1)


def drawn(neurons: int, known: int, asked: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    patterns = rng.random((known, neurons)) < rng.random(neurons)
    others = patterns[rng.integers(known, size=asked)] ^ (rng.random((asked, neurons)) < 0.1)
    return patterns, others


@settings(max_examples=40)
@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 20), st.integers(0, 99))
def test_distances_are_those_of_the_definition(neurons: int, known: int, asked: int, seed: int) -> None:
    patterns, others = drawn(neurons, known, asked, seed)
    learned = PatternSet(neurons)
    learned.add(patterns[: known // 2])
    learned.add(patterns[known // 2 :])
    np.testing.assert_array_equal(learned.nearest(others), nearest(patterns, others))
    assert len(learned) == len(np.unique(patterns, axis=0))
    again = PatternSet(neurons, learned.words)
    np.testing.assert_array_equal(again.words, learned.words)
    np.testing.assert_array_equal(again.nearest(others), learned.nearest(others))


@pytest.mark.parametrize("neurons", [63, 64, 65, 84, 255, 256, 300])
def test_distances_do_not_depend_on_the_block(neurons: int, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns, others = drawn(neurons, 300, 30)
    others[0], others[1] = patterns[5], ~patterns[5]
    expected = (cdist(others, patterns, "hamming").min(axis=1) * neurons).round().astype(int)
    for block in (7, 64, 2**15):
        monkeypatch.setattr(patterns_module, "BLOCK", block)
        learned = PatternSet(neurons)
        learned.add(patterns)
        np.testing.assert_array_equal(learned.nearest(others), expected)
        np.testing.assert_array_equal([learned.nearest(row[None])[0] for row in others[:5]], expected[:5])


def test_a_first_number_that_says_nothing() -> None:
    """All patterns agree in their first 64 neurons, so none can be left out by these; and the farthest possible one."""
    patterns = np.zeros((500, 300), np.bool_)
    patterns[:, 100:110] = np.arange(500)[:, None] >> np.arange(10) & 1 == 1
    learned = PatternSet(300)
    learned.add(patterns)
    asked = np.zeros((1, 300), np.bool_)
    asked[0, 200:203] = True
    assert learned.nearest(asked).tolist() == [3]
    single = PatternSet(300)
    single.add(np.zeros((1, 300), np.bool_))
    assert single.nearest(np.ones((1, 300), np.bool_)).tolist() == [300]


def test_a_pattern_that_is_nearer_by_one_in_a_later_block_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns are sorted: the one at distance 5 comes first, then far ones, last the one at distance 4."""
    monkeypatch.setattr(patterns_module, "BLOCK", 16)
    patterns = np.zeros((200, 84), np.bool_)
    patterns[:, :56] = np.random.default_rng(0).random((200, 56)) < 0.6
    patterns[0], patterns[1] = np.arange(84) < 5, (np.arange(84) >= 56) & (np.arange(84) < 60)
    patterns[2:, 55] = True
    learned = PatternSet(84)
    learned.add(patterns)
    at_5, at_4 = (np.flatnonzero(np.bitwise_count(learned.words).sum(axis=1) == count)[0] for count in (5, 4))
    assert (at_5 < 16, at_4 >= 16) == (True, True)
    assert learned.nearest(np.zeros((1, 84), np.bool_)).tolist() == [4]


def test_an_empty_set_and_patterns_that_do_not_fit() -> None:
    empty = PatternSet(5)
    assert len(empty) == 0
    assert empty.nearest(np.zeros((2, 5), np.bool_)).tolist() == [6, 6]
    assert empty.nearest(np.zeros((0, 5), np.bool_)).tolist() == []
    for wrong in (np.zeros((2, 4), np.bool_), np.zeros((2, 5)), np.zeros(5, np.bool_)):
        with pytest.raises(InputError, match=r"patterns must be \(n, 5\) of True and False"):
            empty.nearest(wrong)
    with pytest.raises(InputError, match=r"patterns of 5 neurons are \(n, 1\) numbers, not \(3, 2\)"):
        PatternSet(5, np.zeros((3, 2), np.uint64))
    with pytest.raises(InputError, match="at least one neuron, not 0"):
        PatternSet(0)


def test_patterns_are_kept_once_and_in_little_memory() -> None:
    patterns, _ = drawn(84, 3000, 1)
    learned = PatternSet(84)
    tracemalloc.start()
    for _ in range(40):
        learned.add(patterns)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(learned) == len(np.unique(patterns, axis=0))
    assert learned.nbytes == 16 * len(learned)
    assert peak < 3 * 2**20


@pytest.mark.parametrize("seed", [0, 1])
def test_a_binary_decision_diagram_accepts_the_same_patterns(seed: int) -> None:
    """A diagram of the set, enlarged once per tolerated neuron by forgetting each of the neurons in turn."""
    neurons = 9
    patterns, others = drawn(neurons, 12, 150, seed)
    others[:50] = np.random.default_rng(seed).random((50, neurons)) < 0.5
    diagram, names = BDD(), [f"neuron{number}" for number in range(neurons)]
    diagram.declare(*names)
    accepted = diagram.false
    for row in patterns:
        accepted |= diagram.cube(dict(zip(names, row.tolist(), strict=True)))
    learned = PatternSet(neurons)
    learned.add(patterns)
    distances = learned.nearest(others)
    for gamma in range(4):
        answers = [diagram.let(dict(zip(names, row.tolist(), strict=True)), accepted) == diagram.true for row in others]
        np.testing.assert_array_equal(distances <= gamma, answers)
        enlarged = accepted
        for name in names:
            enlarged |= diagram.exist([name], accepted)
        accepted = enlarged
    assert {0, 1, 2, 3} <= set(distances.tolist())


# The monitor


def scores_of(
    monitor: ActivationPatterns, features: Any, classes: Any, labels: Any, trained_on: int
) -> tuple[Any, FittedMonitor]:
    model, data = Given(features, classes), numbered(labels)
    fitted = monitor.build(model, Subset(data, range(trained_on)))
    return fitted.scores(represent_data(fitted, model, data), fitted.state), fitted


def test_scores_by_hand() -> None:
    """Class a knows 100 and 111 (image 2 is misclassified), class b nothing."""
    features = [[1, 0, -2], [5, 1e-9, 3], [0, 0, 0], [2, 0, 0], [0, 0, 0], [0, 4, 0], [1, 1, 0], [1, 0, 0]]
    classes, labels = [0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0, 0]
    scores, fitted = scores_of(ActivationPatterns(gamma=1), features, classes, labels, 3)
    assert scores.tolist() == [0, 0, -1, 0, -1, -2, -1, -4]
    assert (scores < fitted.monitor.own_threshold).tolist() == [False] * 5 + [True, False, True]
    assert fitted.notes == ("classes without a correctly classified training image are always outside: [1, 2, 3]",)
    assert len(fitted.state["patterns"]) == 2


def test_neurons_of_largest_weight_are_looked_at() -> None:
    """The weights of class k of the toy network are largest at its own unit; all others are small and random."""
    model = ToyModel()
    fitted = ActivationPatterns(neurons=3).build(model, TRAIN)
    weights = np.abs(model.outer.astype(np.float32))
    for label, chosen in enumerate(fitted.state["neurons"]):
        assert label in chosen
        left_out = np.setdiff1d(np.arange(24), chosen)
        assert weights[label, chosen].min() >= weights[label, left_out].max()
    batch = TEST.batch(slice(None))
    features, predicted = model.features(batch, "hidden"), model.predict(batch).probabilities.argmax(axis=1)
    known = TRAIN.batch(slice(None))
    seen, right = model.features(known, "hidden"), model.predict(known).probabilities.argmax(axis=1) == TRAIN.labels
    scores = represent_data(fitted, model, TEST)[:, 0]
    for row in range(0, len(batch), 7):
        chosen = fitted.state["neurons"][predicted[row]]
        own = seen[right & (TRAIN.labels == predicted[row])][:, chosen] > 0
        assert scores[row] == -nearest(own, features[row : row + 1, chosen] > 0)[0]


def test_one_image_one_class_and_a_layer_that_is_always_on() -> None:
    scores, fitted = scores_of(ActivationPatterns(), [[1.0, 0.0], [0.0, 1.0]], [2, 2], [2, 2], 1)
    assert scores.tolist() == [0, -2]
    assert len(fitted.notes) == 2
    scores, fitted = scores_of(ActivationPatterns(), np.full((4, 3), 0.5), [0, 0, 1, 1], [0, 0, 1, 1], 4)
    assert (scores == 0).all()
    assert fitted.notes[-1].startswith("no class has more than one pattern: the layer should be one behind a ReLU")


def test_what_cannot_be_learned_or_read() -> None:
    with pytest.raises(InputError, match=r"monitor activation_patterns cannot be built: .* no image of .* correctly"):
        scores_of(ActivationPatterns(), [[0.0, 1.0]], [1], [0], 1)
    with pytest.raises(InputError, match="the features of 1 images are NaN or infinite"):
        scores_of(ActivationPatterns(), [[0.0, np.inf]], [0], [0], 1)
    with pytest.raises(InputError, match="NaN or infinity in 1 of 2"):
        scores_of(ActivationPatterns(), [[0.0, 1.0], [np.nan, 1.0]], [0, 0], [0, 0], 1)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    model = ToyModel()
    fitted = ActivationPatterns(gamma=2, neurons=20).build(model, TRAIN)
    fitted.save(tmp_path)
    loaded = FittedMonitor.load(tmp_path, model)
    np.testing.assert_array_equal(represent_data(loaded, model, TEST), represent_data(fitted, model, TEST))
    assert (loaded.monitor, loaded.monitor.own_threshold) == (fitted.monitor, -2.0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (partial(ActivationPatterns, gamma=-1), "gamma is a whole number of at least 0, not -1"),
        (partial(ActivationPatterns, neurons=0), "neurons is a whole number of at least 1, not 0"),
        (partial(ActivationPatterns, layer="inner", neurons=3), "weights of the last linear layer: leave out layer"),
        (partial(ActivationPatterns, layer=7), "layer is the name of a layer"),
        (partial(make_monitor, "activation_patterns", gamma=0.5), "monitor setting gamma cannot be 0.5"),
        (lambda: ActivationPatterns(neurons=25).build(ToyModel(), TRAIN), "neurons is at most 24 for this model"),
        (lambda: ActivationPatterns(gamma=24).build(ToyModel(), TRAIN), "gamma is at most 23 for this model"),
        (lambda: ActivationPatterns(gamma=4, neurons=4).build(ToyModel(), TRAIN), "gamma is at most 3 for this model"),
    ],
)
def test_settings_are_checked(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()
