"""Boxes of features: scores by hand and by bisection, clusters and reductions against scikit-learn, edge cases."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap

from given_features import Given, numbered
from roadworthy.core.errors import InputError
from roadworthy.data import Subset
from roadworthy.models import signals as signals_module
from roadworthy.models.signals import LiveTraining
from roadworthy.monitors import Boxes, FittedMonitor, make_monitor, represent_data
from roadworthy.monitors import kmeans as kmeans_module
from roadworthy.monitors.boxes import NEVER_INSIDE, least_enlargement
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.monitors.kmeans import growing_k_means, k_means, nearest_centres
from roadworthy.monitors.reduction import apply_isomap, apply_pca, fit_isomap, fit_pca

TRAIN, HELD_OUT, TEST, OUTLIERS = toy_data()
EVERY = ({}, {"clusters": 3}, {"reduction": "two_neurons"}, {"reduction": "pca"}, {"reduction": "isomap"})


def scores_of(monitor: Boxes, features: Any, classes: Any, labels: Any, trained_on: int) -> tuple[Any, FittedMonitor]:
    """Scores of all images of a table, by a monitor that learned from the first of them."""
    model, data = Given(features, classes), numbered(labels)
    fitted = monitor.build(model, Subset(data, range(trained_on)))
    return fitted.scores(represent_data(fitted, model, data), fitted.state), fitted


# Scores


def test_scores_by_hand() -> None:
    """Class a: a box from (0, 0) to (4, 2). Image 2 is misclassified and lies far away: it is no part of the box."""
    features = [[0, 0], [4, 2], [90, 90], [4, 2], [0, 0], [6, 1], [2, 4], [-1, 1], [2, 1]]
    classes, labels = [0, 0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0, 0, 0]
    scores, fitted = scores_of(Boxes(clusters=1), features, classes, labels, 3)
    np.testing.assert_allclose(scores[:8], [0, 0, -88, 0, 0, -1, -2, -0.5], atol=1e-4)
    assert scores[8] == np.float32(NEVER_INSIDE)
    assert scores[3] == scores[4] == 0
    assert not np.signbit(scores[:2]).any()
    assert fitted.monitor.own_threshold == -0.0001
    rejected = scores < -1.2
    assert rejected.tolist() == [False, False, True, False, False, False, True, False, True]
    assert fitted.notes == ("classes without a correctly classified training image are always outside: [1, 2, 3]",)


def test_the_origin_and_the_edges_are_inside_at_an_enlargement_of_0() -> None:
    rng = np.random.default_rng(0)
    features = np.maximum(rng.normal(0, 1, (40, 6)), 0).astype(np.float32)
    features[0] = 0
    for settings_ in EVERY:
        scores, fitted = scores_of(Boxes(tau=0.0, **settings_), features, np.zeros(40, int), np.zeros(40, int), 40)
        assert (scores == 0).all(), settings_
        assert fitted.monitor.own_threshold == 0
        assert not (scores < fitted.monitor.own_threshold).any()


coordinate = st.integers(-8, 8).map(float)


@settings(max_examples=40)
@given(st.lists(st.tuples(coordinate, coordinate), min_size=2, max_size=12), st.tuples(coordinate, coordinate))
def test_the_score_is_the_least_enlargement_at_which_a_box_holds_the_point(
    rows: list[tuple[float, float]], asked: tuple[float, float]
) -> None:
    """Against the definition: enlarge every box about its centre and look whether the point lies in one of them."""
    points, tolerance = np.array(rows), 1e-7
    members = k_means(points, 2).members
    boxes = [(points[members == label].min(axis=0), points[members == label].max(axis=0)) for label in set(members)]
    centres, half_widths = (np.array([f(*box) / 2 for box in boxes]) for f in (np.add, lambda low, high: high - low))
    least = float(least_enlargement(np.array([asked]), centres, half_widths, tolerance)[0])

    def is_inside(enlargement: float) -> bool:
        reach = half_widths + np.maximum(half_widths, tolerance) * enlargement + tolerance
        return bool((np.abs(np.array(asked) - centres) <= reach).all(axis=1).any())

    assert is_inside(least * (1 + 1e-9) + 1e-12)
    assert least == 0 or not is_inside(least * (1 - 1e-6))
    assert (least_enlargement(points, centres, half_widths, tolerance) == 0).all()


def test_a_neuron_that_never_varies_counts_with_the_tolerance() -> None:
    """The second neuron is 3 on every training image: 3 is inside, and 3.003 is 999 tolerances over the edge."""
    features = [[0, 3], [2, 3], [1, 3], [1, 3.003]]
    scores, _ = scores_of(Boxes(clusters=1), features, [0] * 4, [0] * 4, 2)
    assert scores[2] == 0
    assert scores[3] == pytest.approx(-(0.003 / 3e-6 - 1), rel=1e-3)


def test_features_that_are_all_equal_and_a_class_of_one_image() -> None:
    features = [[0, 0], [0, 0], [0, 0], [5, 5], [0, 0], [0, 1e-3]]
    for settings_ in (*EVERY, {"clusters": 7}, {"reduction": "pca", "dimensions": 3}):
        scores, fitted = scores_of(Boxes(**settings_), features, [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0], 4)
        assert (scores[:4] == 0).all()
        assert len(fitted.state["centres"]) == 2
        assert "classes with a box that has no width, around one image or equal ones: [0, 1]" in fitted.notes
        if fitted.monitor.parameters()["reduction"] in ("none", "two_neurons"):
            assert scores[4] < -1000
            assert scores[5] == pytest.approx(-999, rel=1e-3)


def test_nothing_to_learn_from_and_features_that_are_not_finite() -> None:
    with pytest.raises(InputError, match=r"cannot be built: model given classifies no image of .* correctly"):
        scores_of(Boxes(), [[0.0], [1.0]], [1, 1], [0, 0], 2)
    with pytest.raises(InputError, match="the features of 1 images are NaN or infinite; name another layer"):
        scores_of(Boxes(), [[0.0], [np.nan]], [0, 0], [0, 0], 2)
    for value in (np.nan, np.inf):
        with pytest.raises(InputError, match="NaN or infinity in 1 of 3"):
            scores_of(Boxes(), [[0.0], [1.0], [value]], [0, 0, 0], [0, 0, 0], 2)
    scores, _ = scores_of(Boxes(), [[0.0], [1.0], [3e38]], [0, 0, 0], [0, 0, 0], 2)
    assert scores[2] == np.float32(NEVER_INSIDE)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (partial(Boxes, clusters=0), "clusters is a whole number of at least 1, not 0"),
        (partial(Boxes, tau=-0.1), "tau is a number of at least 0, not -0.1"),
        (partial(Boxes, tau=float("nan")), "tau is a number of at least 0, not nan"),
        (partial(Boxes, layer=""), "layer is the name of a layer"),
        (partial(Boxes, reduction="umap"), "unknown reduction of monitor boxes 'umap'"),
        (partial(Boxes, dimensions=2), "dimensions are those of the reductions pca and isomap: leave them out"),
        (partial(Boxes, reduction="pca", dimensions=0), "dimensions is a whole number of at least 1"),
        (partial(Boxes, most=0), "most is a whole number of at least 1"),
        (partial(make_monitor, "boxes", tau="wide"), "boxes monitor setting tau cannot be 'wide'"),
    ],
)
def test_settings_are_checked(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


# What is learned


def test_boxes_hold_every_correct_training_image_whatever_the_sample_and_the_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ToyModel()
    for settings_ in EVERY:
        monitor = Boxes(most=15, **settings_)
        fitted = monitor.build(model, TRAIN)
        correct = model.predict(TRAIN.batch(slice(None))).probabilities.argmax(axis=1) == TRAIN.labels
        scores = fitted.scores(represent_data(fitted, model, TRAIN), fitted.state)
        assert (scores[correct] == 0).all(), settings_
        assert fitted.notes[-1] == "classes whose clusters were learned from 15 of their images: [0, 1, 2, 3]"
        monkeypatch.setattr(signals_module, "PART", 64)
        again = monitor.build(model, TRAIN)
        monkeypatch.undo()
        for name, array in fitted.state.items():
            np.testing.assert_allclose(again.state[name], array, rtol=1e-6, atol=1e-7)


def test_the_data_is_read_again_only_where_a_class_has_more_images() -> None:
    for most, reads in ((500, 1), (15, 2)):
        training, told = LiveTraining(ToyModel(), TRAIN, ["features:penultimate", "probabilities"]), [0]
        read = training.read
        asked: list[slice] = []
        training.read = lambda rows, names, asked=asked, read=read: asked.append(rows) or read(rows, names)  # type: ignore[method-assign]
        training.progress = lambda images, told=told: told.__setitem__(0, told[0] + images)
        Boxes(most=most).build(ToyModel(), training)
        assert (len(asked), told[0]) == (reads, Boxes().work(len(TRAIN)))


def test_saved_and_loaded_it_scores_the_same(tmp_path: Path) -> None:
    model = ToyModel()
    for settings_ in EVERY:
        fitted = Boxes(most=30, **settings_).build(model, TRAIN)
        folder = tmp_path / json.dumps(settings_).replace('"', "")
        fitted.save(folder)
        loaded = FittedMonitor.load(folder, model)
        np.testing.assert_array_equal(represent_data(loaded, model, TEST), represent_data(fitted, model, TEST))
        assert loaded.monitor == fitted.monitor


def test_one_class_and_one_image_are_enough() -> None:
    model = ToyModel()
    for settings_ in EVERY:
        one = Boxes(**settings_).build(model, Subset(TRAIN, [0]))
        assert one.scores(represent_data(one, model, Subset(TRAIN, [0])), one.state).tolist() == [0.0]
        assert len(one.notes) == 2


# Clusters


def test_k_means_ends_where_scikit_learn_does() -> None:
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.normal(centre, 1.0, (40, 5)) for centre in (0.0, 4.0, 9.0)])
    start = points[[0, 50, 100]]
    ours = kmeans_module._settled(points, start)
    theirs = KMeans(3, init=start, n_init=1, tol=0.0).fit(points)
    np.testing.assert_allclose(ours.centres, theirs.cluster_centers_, rtol=1e-9)
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=1e-9)
    best = min(KMeans(3, n_init=10, random_state=0).fit(points).inertia_, theirs.inertia_)
    assert k_means(points, 3).inertia == pytest.approx(best, rel=1e-6)
    np.testing.assert_array_equal(k_means(points, 3).centres, k_means(points, 3).centres)
    np.testing.assert_array_equal(nearest_centres(points, ours.centres), theirs.labels_)


def test_clusters_are_added_until_the_gain_is_below_a_tenth() -> None:
    """Two far pairs: one cluster has inertia 101, two have 1, three 0.5 and four 0: each gains at least half."""
    pairs = np.array([[0.0], [1.0], [10.0], [11.0]])
    assert [round(k_means(pairs, k).inertia, 6) for k in (1, 2, 3, 4)] == [101.0, 1.0, 0.5, 0.0]
    assert len(growing_k_means(pairs).centres) == 4
    assert len(growing_k_means(pairs, least_gain=0.6).centres) == 2
    ball = np.random.default_rng(0).normal(0, 1, (300, 30))
    assert len(growing_k_means(ball).centres) == 1
    assert len(growing_k_means(np.ones((5, 2))).centres) == 1


def test_there_are_never_more_clusters_than_distinct_points() -> None:
    points = np.array([[0.0], [0.0], [0.0], [7.0]])
    assert sorted(k_means(points, 5).centres.ravel().tolist()) == [0.0, 7.0]
    assert k_means(points[:1], 3).centres.tolist() == [[0.0]]


def test_a_cluster_that_loses_all_points_starts_anew() -> None:
    points = np.array([[0.0], [1.0], [10.0], [11.0]])
    clusters = kmeans_module._settled(points, np.array([[0.0], [500.0], [900.0]]))
    assert sorted(np.bincount(clusters.members).tolist()) == [1, 1, 2]
    assert clusters.inertia == 0.5


# Reductions


def test_pca_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    points, others = rng.normal(0, [3.0, 2.0, 1.0, 0.1], (50, 4)), rng.normal(0, 3, (20, 4))
    theirs = PCA(2).fit(points)
    ours = apply_pca(others, fit_pca(points, 2))
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs.transform(others)), rtol=1e-9, atol=1e-9)
    assert not fit_pca(points[:1], 2)["directions"].any()
    assert fit_pca(points[:, :1], 3)["directions"].shape == (1, 3)


@pytest.mark.filterwarnings("ignore:Changing the sparsity structure")
@pytest.mark.parametrize("case", ["curve", "two parts", "few", "repeated"])
def test_isomap_is_that_of_scikit_learn(case: str) -> None:
    rng = np.random.default_rng(1)
    angles = rng.uniform(0, 5, 80)
    points = np.stack([angles * np.cos(angles), angles * np.sin(angles), rng.uniform(0, 2, 80)], axis=1)
    points = {
        "curve": points,
        "two parts": np.concatenate([points, points[:40] + 50.0]),
        "few": points[:4],
        "repeated": np.concatenate([points, points[:30]]),
    }[case].astype(np.float32)
    others = points[:20] + rng.normal(0, 0.1, (min(20, len(points)), 3)).astype(np.float32)
    distinct = np.unique(points, axis=0).astype(np.float64)
    theirs = Isomap(n_neighbors=min(5, len(distinct) - 1), n_components=2, eigen_solver="dense")
    with pytest.warns(UserWarning, match="connected components") if case == "two parts" else np.errstate():
        theirs.fit(distinct)
    learned = fit_isomap(points.astype(np.float64), 2)
    for shown in (distinct, others.astype(np.float64)):
        expected = theirs.transform(shown)
        signs = np.sign((apply_isomap(shown, learned) * expected).sum(axis=0))
        limit = 2e-5 * np.abs(expected).max()
        if case == "few":
            assert apply_isomap(shown, learned).shape == expected.shape
        else:
            np.testing.assert_allclose(apply_isomap(shown, learned) * signs, expected, atol=limit)
    np.testing.assert_allclose(learned["geodesics"], theirs.dist_matrix_, rtol=1e-6)


def test_isomap_of_points_that_leave_no_direction() -> None:
    one = fit_isomap(np.array([[3.0, 4.0]]), 2)
    assert apply_isomap(np.array([[3.0, 4.0], [9.0, 9.0]]), one).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    two = fit_isomap(np.array([[0.0, 0.0], [0.0, 2.0]]), 2)
    np.testing.assert_allclose(np.sort(apply_isomap(two["points"].astype(float), two)[:, 0]), [-1, 1], atol=1e-6)
