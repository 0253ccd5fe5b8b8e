"""Post-hoc detectors: each against a slow transcription of its formula on a real network, pytorch-ood, and at edges.

The network is a ResNet-20 for CIFAR-10, the images CIFAR-10 and Tiny ImageNet; what needs them is skipped where they
are absent. The comparison with pytorch-ood runs where that package is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from given_features import Given, numbered
from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Prediction
from roadworthy.data import Subset, open_dataset
from roadworthy.metrics import binary_auroc
from roadworthy.models import load_model, softmax
from roadworthy.models.head import Head
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors import (
    MONITORS,
    Aim,
    Ash,
    Dice,
    Entropy,
    Fdbd,
    FittedMonitor,
    Gen,
    GradNorm,
    GridMonitor,
    Learned,
    Margin,
    Monitor,
    Neco,
    NnGuide,
    Odin,
    RelativeMahalanobis,
    Residual,
    Scale,
    She,
    TemperatureMsp,
    make_monitor,
    represent_data,
)
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.monitors.neighbours import largest_products
from roadworthy.monitors.post_hoc import shaping
from roadworthy.monitors.post_hoc.dice import sparse_weights
from roadworthy.monitors.post_hoc.gen import generalised_entropy
from roadworthy.uncertainty.temperature import fit_temperature

ROOT = Path(__file__).parent.parent
CLOSE = 1e-4
"""Share of the spread of a score by which two computations of it may differ."""
TRAINED_ON, SHOWN = 300, 100


class Known(Training):
    """Training data whose signals are known."""

    def __init__(self, model: Model, data: Dataset, arrays: dict[str, Any]) -> None:
        super().__init__(model, data, [*arrays])
        self.arrays = arrays | {"labels": data.labels}

    def read(self, rows: slice, names: Any) -> Any:
        return tuple(self.arrays[name][rows] for name in names)


@dataclass(frozen=True)
class Shown:
    """What a network says of its training images and of `SHOWN` images each of CIFAR-10 and Tiny ImageNet.

    Capital letters are the training data: features F and f, logits Z and z, labels Y, in double precision; W and b are
    read from the file of weights.
    """

    model: Model
    training: Known
    signals: Signals
    F: Any
    Z: Any
    Y: Any
    f: Any
    z: Any
    W: Any
    b: Any

    @property
    def p(self) -> Any:
        """Probabilities of the images that are shown, (N, K)."""
        return np.array([probabilities_of(row) for row in self.z])

    def fitted(self, monitor: Monitor) -> FittedMonitor:
        return monitor.build(self.model, self.training)

    def rows(self, monitor: Monitor) -> Any:
        return self.fitted(monitor).represent_signals(self.signals).astype(float)


def probabilities_of(z: Any) -> Any:
    powers = [math.exp(value - max(z)) for value in z]
    return np.array([power / sum(powers) for power in powers])


@pytest.fixture(scope="module")
def shown(shared_data: Path) -> Shown:
    torch = pytest.importorskip("torch")
    weights = shared_data / "cifar10_resnet20.th"
    if not weights.exists():
        pytest.skip(f"no ResNet-20 at {weights}: set ROADWORTHY_TEST_DATA to the folder that holds it")
    arch = f"{ROOT / 'examples' / 'cifar10_resnet20.py'}:resnet20"
    model = load_model(weights, arch=arch, trust=True, range="imagenet")
    train = Subset(open_dataset(shared_data / "cifar10_train.npz"), range(TRAINED_ON))
    asked = Signals(model, train.batch(slice(None)))
    names = ("features:penultimate", "logits", "probabilities")
    training = Known(model, train, {name: asked[name] for name in names})
    inside, outside = (
        open_dataset(shared_data / f"{name}.npz", size=32).batch(slice(0, SHOWN))
        for name in ("cifar10_test", "tinyimagenet_val")
    )
    images = np.concatenate([inside.images, outside.images])
    ids = tuple(f"{side}/{row}" for side in ("in", "out") for row in range(SHOWN))
    signals = Signals(model, type(inside)(ids, images, np.zeros(len(ids), np.int64)))
    stored = torch.load(weights, weights_only=True, map_location="cpu")
    layer = {name.removeprefix("module.linear."): value for name, value in stored.get("state_dict", stored).items()}
    return Shown(
        model,
        training,
        signals,
        F=asked.features().astype(float),
        Z=asked.logits.astype(float),
        Y=train.labels,
        f=signals.features().astype(float),
        z=signals.logits.astype(float),
        W=layer["weight"].double().numpy(),
        b=layer["bias"].double().numpy(),
    )


# Slow transcriptions: a score per image, or a row of scores where there is a grid


def logsumexp(z: Any) -> float:
    return max(z) + math.log(sum(math.exp(value - max(z)) for value in z))


def slow_entropy(s: Shown) -> Any:
    return [sum(p * math.log(p) for p in row if p > 0) for row in s.p]


def slow_margin(s: Shown) -> Any:
    return [sorted(row)[-1] - sorted(row)[-2] for row in s.p]


def slow_gen(s: Shown, gamma: float, largest: int) -> Any:
    scores = []
    for row in s.p:
        order = np.argsort(row)[::-1]
        terms = [row[k] ** gamma * sum(row[j] for j in range(len(row)) if j != k) ** gamma for k in order[:largest]]
        scores.append(-sum(terms))
    return scores


def slow_temperature_msp(s: Shown, temperature: float) -> Any:
    return [max(probabilities_of(row / temperature)) for row in s.z]


def slow_gradnorm(s: Shown) -> Any:
    scores = []
    for f, p in zip(s.f, s.p, strict=True):
        gradient = [[(p_k - 1 / len(p)) * f_j for f_j in f] for p_k in p]
        scores.append(np.abs(gradient).sum())
    return scores


def slow_she(s: Shown) -> Any:
    correct = s.Z.argmax(axis=1) == s.Y
    patterns = [s.F[correct & (k == s.Y)].mean(axis=0) for k in range(10)]
    return [sum(f * patterns[z.argmax()]) for f, z in zip(s.f, s.z, strict=True)]


def slow_fdbd(s: Shown) -> Any:
    mean, scores = s.F.mean(axis=0), []
    for f, z in zip(s.f, s.z, strict=True):
        y = int(z.argmax())
        distances = [abs(z[y] - z[c]) / np.linalg.norm(s.W[y] - s.W[c]) for c in range(10) if c != y]
        scores.append(sum(distances) / 9 / np.linalg.norm(f - mean))
    return scores


def slow_relative_mahalanobis(s: Shown) -> Any:
    means = [s.F[k == s.Y].mean(axis=0) for k in range(10)]
    centred = np.array([f - means[y] for f, y in zip(s.F, s.Y, strict=True)])
    around = s.F - s.F.mean(axis=0)
    inverse, inverse_all = (np.linalg.inv(rows.T @ rows / len(rows)) for rows in (centred, around))
    scores = []
    for f in s.f:
        from_all = (f - s.F.mean(axis=0)) @ inverse_all @ (f - s.F.mean(axis=0))
        scores.append(-min((f - mean) @ inverse @ (f - mean) - from_all for mean in means))
    return scores


def slow_residual(s: Shown, dimensions: int) -> Any:
    origin = -np.linalg.pinv(s.W) @ s.b
    around = s.F - origin
    values, vectors = np.linalg.eig(around.T @ around / len(around))
    residual = vectors[:, np.argsort(-values.real)[dimensions:]].real
    return [-math.sqrt(sum(((f - origin) @ residual) ** 2)) for f in s.f]


def slow_neco(s: Shown, dimensions: int | None, times_logit: bool) -> Any:
    mean, deviation = s.F.mean(axis=0), s.F.std(axis=0)
    values, vectors = np.linalg.eig(np.corrcoef(s.F.T))
    order = np.argsort(-values.real)
    held = [values.real[order[:count]].sum() / values.real.sum() for count in range(65)]
    count = dimensions or next(number for number, share in enumerate(held) if share >= 0.9)
    principal, scores = vectors[:, order[:count]].real, []
    for f, z in zip(s.f, s.z, strict=True):
        h = (f - mean) / deviation
        scores.append(np.linalg.norm(h @ principal) / np.linalg.norm(h) * (max(z) if times_logit else 1))
    return scores


def slow_nnguide(s: Shown, k: int) -> Any:
    energies, lengths, scores = [logsumexp(z) for z in s.Z], [np.linalg.norm(f) for f in s.F], []
    for f, z in zip(s.f, s.z, strict=True):
        cosines = [f @ known / np.linalg.norm(f) / length for known, length in zip(s.F, lengths, strict=True)]
        products = sorted(energy * cosine for energy, cosine in zip(energies, cosines, strict=True))
        scores.append(logsumexp(z) * np.mean(products[-k:]))
    return scores


def slow_dice(s: Shown, percentiles: Any) -> Any:
    contributions = np.array([[s.W[k, j] * s.F[:, j].mean() for j in range(64)] for k in range(10)])
    layers = [np.where(contributions > np.percentile(contributions, p), s.W, 0) for p in percentiles]
    return [[logsumexp(layer @ f + s.b) for layer in layers] for f in s.f]


def slow_ash(s: Shown, percentiles: Any, variant: str) -> Any:
    scores = []
    for f in s.f:
        row = []
        for percentile in percentiles:
            k = 64 - round(64 * percentile / 100)
            kept = np.argsort(-f, kind="stable")[:k]
            g = np.zeros(64)
            g[kept] = {"p": f[kept], "b": sum(f) / k, "s": f[kept] * math.exp(sum(f) / sum(f[kept]))}[variant]
            row.append(logsumexp(s.W @ g + s.b))
        scores.append(row)
    return scores


def slow_scale(s: Shown, percentiles: Any) -> Any:
    scores = []
    for f in s.f:
        sums = [sum(sorted(f)[round(64 * percentile / 100) :]) for percentile in percentiles]
        scores.append([logsumexp(s.W @ (f * math.exp(sum(f) / largest)) + s.b) for largest in sums])
    return scores


GRID, SPARSE = shaping.PERCENTILES, (10.0, 30.0, 50.0, 70.0, 90.0)
TRANSCRIBED: dict[str, tuple[Monitor, Callable[[Shown], Any]]] = {
    "entropy": (Entropy(), slow_entropy),
    "margin": (Margin(), slow_margin),
    "gen": (Gen(), partial(slow_gen, gamma=0.1, largest=100)),
    "gen of 3": (Gen(gamma=0.5, largest=3), partial(slow_gen, gamma=0.5, largest=3)),
    "temperature_msp": (TemperatureMsp(temperature=2.5), partial(slow_temperature_msp, temperature=2.5)),
    "gradnorm": (GradNorm(), slow_gradnorm),
    "she": (She(), slow_she),
    "fdbd": (Fdbd(), slow_fdbd),
    "relative_mahalanobis": (RelativeMahalanobis(), slow_relative_mahalanobis),
    "residual": (Residual(), partial(slow_residual, dimensions=32)),
    "residual of 54": (Residual(dimensions=10), partial(slow_residual, dimensions=10)),
    "neco": (Neco(), partial(slow_neco, dimensions=None, times_logit=True)),
    "neco ratio": (Neco(dimensions=9, times_logit=False), partial(slow_neco, dimensions=9, times_logit=False)),
    "nnguide": (NnGuide(alpha=1.0), partial(slow_nnguide, k=10)),
    "dice": (Dice(), partial(slow_dice, percentiles=SPARSE)),
    "ash": (Ash(), partial(slow_ash, percentiles=GRID, variant="s")),
    "ash b": (Ash(variant="b"), partial(slow_ash, percentiles=GRID, variant="b")),
    "ash p": (Ash(variant="p", percentiles=90.0), partial(slow_ash, percentiles=(90.0,), variant="p")),
    "scale": (Scale(), partial(slow_scale, percentiles=GRID)),
}


def assert_close(ours: Any, theirs: Any, close: float = CLOSE) -> None:
    """Equal up to this share of the standard deviation of each column."""
    theirs = np.asarray(theirs, float).reshape(len(ours), -1)
    assert ours.shape == theirs.shape
    np.testing.assert_array_less(np.abs(ours - theirs) / theirs.std(axis=0), close)


@pytest.mark.parametrize("name", TRANSCRIBED)
def test_every_method_is_its_formula_on_a_real_network(name: str, shown: Shown) -> None:
    monitor, slow = TRANSCRIBED[name]
    assert_close(shown.rows(monitor), slow(shown))


@pytest.mark.parametrize("name", ["relative_mahalanobis", "she", "fdbd", "nnguide", "neco", "residual"])
def test_training_data_in_parts_gives_the_same(name: str, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the first part, from which sums are taken, is not that of all images then."""
    monkeypatch.setattr("roadworthy.models.signals.PART", 64)
    monitor, slow = TRANSCRIBED[name]
    assert_close(shown.rows(monitor), slow(shown))


def test_every_post_hoc_detector_has_a_transcription() -> None:
    own = {name for name in MONITORS if MONITORS.get(name).__module__.startswith("roadworthy.monitors.post_hoc")}
    assert own == {monitor.name for monitor, _ in TRANSCRIBED.values()}
    assert len(own) == 14


def test_they_tell_tiny_imagenet_from_cifar(shown: Shown) -> None:
    """Without any outlier they order the images far better than chance, all but the residual alone."""
    is_inside, areas = np.arange(2 * SHOWN) < SHOWN, {}
    for name, (monitor, _) in TRANSCRIBED.items():
        built = shown.fitted(monitor)
        rows = built.represent_signals(shown.signals)
        rule = Learned(monitor.tune(rows, None, Aim(), built.state))
        areas[name] = binary_auroc(monitor.rate(rows, rule, built.state), is_inside)
    assert {name for name, area in areas.items() if area < 0.7} == {"residual", "residual of 54"}, areas


# What is tuned


def test_how_many_images_keep_their_class(shown: Shown) -> None:
    """Counted one by one; of what is pruned for SCALE, which leaves every class as it is."""
    plain = [int(np.argmax(shown.W @ f + shown.b)) for f in shown.F]

    def kept(shape: Callable[[Any], Any]) -> int:
        return sum(int(np.argmax(shape(f))) == label for f, label in zip(shown.F, plain, strict=True))

    def largest(f: Any, percentile: float) -> Any:
        kept = np.argsort(-f, kind="stable")[: 64 - round(64 * percentile / 100)]
        return np.where(np.isin(np.arange(64), kept), f, 0)

    def prune(f: Any, percentile: float, sharp: bool) -> Any:
        g = largest(f, percentile)
        return shown.W @ g * (math.exp(f.sum() / g.sum()) if sharp else 1) + shown.b

    contributions = shown.W * shown.F.mean(axis=0)
    for monitor, shape in (
        (Ash(), partial(prune, sharp=True)),
        (Scale(), partial(prune, sharp=False)),
        (
            Dice(),
            lambda f, percentile: (
                np.where(contributions > np.percentile(contributions, percentile), shown.W, 0) @ f + shown.b
            ),
        ),
    ):
        state = shown.fitted(monitor).state
        counts = [kept(partial(shape, percentile=percentile)) for percentile in monitor.grid]
        assert state["class_kept"].tolist() == counts
        assert int(state["images"]) == TRAINED_ON
        allowed = [p for p, count in zip(monitor.grid, counts, strict=True) if count >= 0.99 * TRAINED_ON]
        chosen = monitor.grid[monitor.column_inside(np.zeros((1, len(counts)), np.float32), state)]
        assert chosen == max(allowed, default=min(monitor.grid))


@pytest.mark.parametrize(
    ("kept", "chosen"),
    [
        ((100, 100, 100), 90.0),
        ((99, 98, 99), 80.0),
        ((98, 98, 98), 70.0),
        ((100, 0, 0), 80.0),
    ],
)
def test_without_outliers_the_strongest_that_keeps_classes_is_taken(kept: Any, chosen: float) -> None:
    monitor = Ash(percentiles=(80.0, 90.0, 70.0))
    state = Learned({"class_kept": np.array(kept), "images": np.asarray(100)})
    rule = Learned(monitor.tune(np.zeros((5, 3), np.float32), None, Aim(), state))
    assert monitor.choice(rule) == chosen
    which = "lowest" if max(kept) < 99 else "highest"
    column = monitor.grid.index(chosen)
    sentence = f"{chosen:g}, the {which} of 3: {kept[column]} of 100 training images keep their class"
    assert monitor.notes(state, Learned()) == (f"without outliers the percentile is {sentence}",)
    assert monitor.notes(state, rule) == (f"the percentile is {sentence}",)
    other = Learned({"column": np.asarray((column + 1) % 3)})
    (note,) = monitor.notes(state, other)
    assert (
        note
        == f"the percentile is {monitor.choice(other):g}, of lowest cost on outliers; without them it is {sentence}"
    )
    assert Ash(percentiles=80).notes(state, rule) == ()


@pytest.mark.parametrize(
    "monitor", [Ash(percentiles=(70.0, 80.0, 90.0)), Odin(temperatures=(1.0,), epsilons=(0, 1, 2))]
)
def test_against_outliers_the_column_of_lowest_cost_is_taken(monitor: GridMonitor) -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.random((2, 60, 3)).astype(np.float32)
    outside[:, 1] -= 2
    assert int(monitor.tune(inside, outside, Aim(), Learned())["column"]) == 1
    outside[:, 2] -= 2  # as good: the first is taken
    assert int(monitor.tune(inside, outside, Aim(), Learned())["column"]) == 1
    rows = np.array([[1.0, 2.0, 3.0]], np.float32)
    assert monitor.rate(rows, Learned({"column": np.asarray(2)}), Learned()).tolist() == [3.0]


def test_a_grid_is_one_setting_however_it_is_written() -> None:
    monitors = [
        Ash(percentiles=90),
        Ash(percentiles=(90.0,)),
        make_monitor("ash", percentiles=90),
        make_monitor("ash", percentiles=[90]),
    ]
    assert all(monitor == monitors[0] for monitor in monitors)
    train = toy_data()[0]
    assert len({monitor.build(ToyModel(), train).fingerprint() for monitor in monitors}) == 1
    assert represent_data(monitors[0].build(ToyModel(), train), ToyModel(), train).shape == (240, 1)


def test_the_bank_of_nnguide_is_chosen_by_image_id(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    train, model = toy_data()[0], ToyModel()
    backwards = Subset(train, range(len(train))[::-1])
    for alpha, size in ((0.25, 60), (0.251, 61), (0.001, 10), (1.0, 240)):
        monitor = NnGuide(alpha=alpha)
        banks = [monitor.build(model, data).state["bank"] for data in (train, backwards)]
        assert [len(bank) for bank in banks] == [size, size]
        np.testing.assert_allclose(banks[0], banks[1][::-1], atol=1e-5)
        assert (monitor.notes(Learned({"bank": banks[0]}), Learned()) == ()) == (size > 10)
    monitor = NnGuide(k=7, alpha=0.05)
    numbers = [rng.random() for rng in Streams("monitor nnguide").each(train.ids)]
    chosen = Signals(model, train.batch(sorted(range(240), key=lambda row: numbers[row])[:12]))
    lengths = np.linalg.norm(monitor.build(model, train).state["bank"].astype(float), axis=1)
    np.testing.assert_allclose(sorted(lengths), sorted(map(logsumexp, chosen.logits.astype(float))), rtol=1e-5)
    whole = shown.rows(monitor)
    monkeypatch.setattr("roadworthy.monitors.neighbours.PANEL_BYTES", 1)
    np.testing.assert_allclose(shown.rows(monitor), whole, rtol=1e-6)


@pytest.mark.parametrize("count", [1, 3, 40, 200])
def test_the_largest_products_are_those_of_a_sort(count: int) -> None:
    rng = np.random.default_rng(count)
    queries, references = rng.normal(size=(9, 5)).astype(np.float32), rng.normal(size=(200, 5)).astype(np.float32)
    references[::3] = references[0]  # ties
    expected = np.sort(queries.astype(float) @ references.T.astype(float), axis=1)[:, -count:]
    np.testing.assert_allclose(np.sort(largest_products(queries, references, count), axis=1), expected, atol=1e-5)


def test_the_temperature_is_that_of_the_least_negative_log_likelihood(shown: Shown) -> None:
    def loss(temperature: float, labels: Any) -> float:
        return -sum(math.log(probabilities_of(z / temperature)[y]) for z, y in zip(shown.Z, labels, strict=True))

    labels = np.where(np.arange(TRAINED_ON) % 5 == 0, (shown.Y + 1) % 10, shown.Y)  # a fifth is wrong: overconfident
    training = Known(shown.model, shown.training.data, shown.training.arrays)
    training.labels = labels
    fitted = TemperatureMsp().build(shown.model, training)
    best = minimize_scalar(loss, bounds=(1, 20), args=(labels,), method="bounded")
    temperature = float(fitted.state["temperature"])
    assert 2 < temperature == pytest.approx(best.x, rel=1e-3)
    assert fitted.notes == (f"the temperature is {temperature:.4g}, fitted on training images",)
    assert_close(
        fitted.represent_signals(shown.signals).astype(float), slow_temperature_msp(shown, temperature), close=1e-3
    )
    low = shown.fitted(TemperatureMsp())  # the network knows these images
    assert low.notes == ("the temperature is 1, the least allowed, fitted on training images",)
    assert fit_temperature(shown.Z, shown.Y).temperature < 1
    given = TemperatureMsp(temperature=3.0)
    assert not given.learns
    assert given.build(shown.model).notes == ()


# pytorch-ood


@pytest.fixture(scope="module")
def peers(shown: Shown) -> Iterator[ModuleType]:
    """The detectors of pytorch-ood; empty modules stand in for torchvision, which they do not use."""
    if importlib.util.find_spec("pytorch_ood") is None:
        pytest.skip("pytorch-ood is not installed here: pip install pytorch-ood")
    spec = importlib.util.spec_from_file_location("benchmark_of_monitors", ROOT / "benchmarks" / "monitors.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    before, finder = set(sys.modules), benchmark.StandIn()
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module("pytorch_ood.detector")
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            del sys.modules[name]


def peer_scores(name: str, s: Shown, peers: ModuleType) -> Any:
    """Scores of pytorch-ood, turned so that higher is more in-distribution, in our units."""
    import torch

    features, known, labels, logits, weights, bias = (
        torch.from_numpy(np.asarray(array, kind))
        for array, kind in (
            *((array, np.float32) for array in (s.f, s.F)),
            (s.Y, np.int64),
            *((array, np.float32) for array in (s.z, s.W, s.b)),
        )
    )
    head = torch.nn.Linear(64, 10)
    head.load_state_dict({"weight": weights, "bias": bias})
    maps = features[:, :, None, None]

    def shaped(x: Any) -> Any:
        return head(x[:, :, 0, 0])

    vim = peers.ViM(None, 32, weights, bias).fit_features(known, labels)
    scaled = peers.TemperatureScaling(None)
    scaled.t.data, scaled._is_fitted = torch.tensor(2.5), True
    scores = {
        "entropy": lambda: peers.Entropy.score(logits),
        "temperature_msp": lambda: scaled.predict_logits(logits),
        "gradnorm": lambda: peers.GradNorm(head, param_filter=lambda own: own == "weight").predict(features),
        "she": lambda: peers.SHE(None, head).fit_features(known, labels).predict_features(features),
        "fdbd": lambda: peers.fDBD(None, head).fit_features(known).predict_features(features),
        "relative_mahalanobis": lambda: (
            peers.RMD(None).fit_features(known, labels).predict_features(features) * TRAINED_ON
        ),  # its covariances are sums, not means
        "residual": lambda: ((features - vim.u) @ vim.principal_subspace).norm(dim=1),
        "nnguide": lambda: peers.NNGuide(None, head, k=10).fit_features(known, labels).predict_features(features),
        "dice": lambda: torch.stack(
            [
                peers.DICE(None, weights, bias, p / 100).fit_features(known, labels).predict_features(features)
                for p in SPARSE
            ],
            dim=1,
        ),
        "scale": lambda: torch.stack(
            [peers.SCALE(None, shaped, percentile=p / 100).predict_feature_maps(maps.clone()) for p in GRID], dim=1
        ),
    } | {
        name: partial(
            lambda variant, grid: torch.stack(
                [
                    peers.ASH(None, shaped, variant=f"ash-{variant}", percentile=p / 100).predict_feature_maps(maps)
                    for p in grid
                ],
                dim=1,
            ),
            variant,
            grid,
        )
        for name, variant, grid in (("ash", "s", GRID), ("ash b", "b", GRID), ("ash p", "p", (90.0,)))
    }
    return -scores[name]().detach().double().numpy()


PEERS = {name: CLOSE for name in TRANSCRIBED if name.partition(" ")[0] not in ("gen", "margin", "neco")}
PEERS |= {"relative_mahalanobis": 1e-3, "residual": 1e-3}  # a matrix is decomposed in single precision there
del PEERS["residual of 54"]


@pytest.mark.parametrize("name", PEERS)
def test_pytorch_ood_gives_the_same(name: str, shown: Shown, peers: ModuleType) -> None:
    assert_close(shown.rows(TRANSCRIBED[name][0]), peer_scores(name, shown, peers), PEERS[name])


@pytest.mark.parametrize("largest", [3, 100])
def test_pytorch_ood_gives_the_same_generalised_entropy(largest: int, shown: Shown, peers: ModuleType) -> None:
    """Of flatter answers, since it cuts probabilities at 1e-7; it gives the mean, not the sum."""
    import torch

    logits = shown.z / 4
    theirs = peers.GEN.score(torch.from_numpy(logits), gamma=0.1, M=largest).numpy() * min(largest, 10)
    ours = generalised_entropy([probabilities_of(row) for row in logits], 0.1, largest)
    assert_close(ours[:, None], theirs)


# Edges


class Layered(Given):
    """Features that are given and a last layer that makes logits of them."""

    name = "layered"

    def __init__(self, features: Any, weights: Any, bias: Any) -> None:
        super().__init__(features, np.zeros(len(features), int))
        self.weights, self.bias = np.asarray(weights, np.float32), np.asarray(bias, np.float32)
        self.num_classes = len(self.weights)

    def predict(self, batch: Any) -> Prediction:
        logits = self.features(batch, "hidden") @ self.weights.T + self.bias
        return Prediction(probabilities=softmax(logits), logits=logits)

    def head(self) -> Head:
        return Head("hidden", self.weights, self.bias)


BIAS = (0.5, 0.25, 0.0, -90.0)
EDGES = {"zero": [0, 0, 0, 0, 0, 0], "tied": [2, 2.25, 2.5, 0, 0, 0], "certain": [300, 0, 0, 0, 0, 0]}


@pytest.fixture(scope="module")
def edges() -> tuple[Layered, Any, Any]:
    """A model that never answers class 3, its training images of four classes, and images at edges."""
    rng = np.random.default_rng(5)
    labels = np.arange(60) % 4
    features = rng.random((60, 6)) + 3 * np.eye(4, 6)[labels % 3]
    model = Layered(np.concatenate([features, [*EDGES.values()]]), np.eye(4, 6), BIAS)
    every = numbered(np.append(labels, [0] * len(EDGES)))
    return model, Subset(every, range(60)), Subset(every, range(60, 60 + len(EDGES)))


SMALL = {
    "nnguide": partial(NnGuide, k=3, alpha=0.5),
    "residual": partial(Residual, dimensions=2),
    "ash": partial(Ash, percentiles=(50.0, 70.0)),
    "scale": partial(Scale, percentiles=(50.0, 70.0)),
}
OWN = sorted({monitor.name for monitor, _ in TRANSCRIBED.values()})


@pytest.mark.parametrize("name", OWN)
def test_scores_at_edges_are_finite_and_the_same_for_one_image(name: str, edges: Any) -> None:
    model, train, shown = edges
    built = SMALL.get(name, MONITORS.get(name))().build(model, train)
    rows = represent_data(built, model, shown)
    assert np.isfinite(rows).all()
    for number in range(len(shown)):
        alone = built.represent(model, shown.batch(slice(number, number + 1)), size=1)
        np.testing.assert_allclose(alone[0], rows[number], rtol=1e-5, atol=1e-6)
    one = built.calibrate(rows[:1])
    assert one.reject(rows[:1]).tolist() == [False]


def test_what_scores_are_at_edges(edges: Any) -> None:
    model, train, shown = edges
    probabilities = Signals(model, shown.batch(slice(None))).probabilities
    assert probabilities[2].max() == 1.0

    def rows(monitor: Monitor) -> Any:
        return dict(zip(EDGES, represent_data(monitor.build(model, train), model, shown).tolist(), strict=True))

    assert rows(Margin())["tied"] == [0.0]
    for monitor in (Entropy(), Gen()):
        assert rows(monitor)["certain"] == [0.0]
    assert rows(Margin())["certain"] == rows(TemperatureMsp(temperature=1.0))["certain"] == [1.0]
    assert rows(GradNorm())["zero"] == [0.0]
    assert rows(NnGuide(k=3))["zero"] == [0.0]
    assert rows(She())["zero"] == [0.0]
    energy = pytest.approx([math.log(sum(map(math.exp, BIAS)))])
    for monitor in (Ash(percentiles=50.0), Ash(percentiles=50.0, variant="b"), Scale(percentiles=50.0)):
        assert rows(monitor)["zero"] == energy
    she = She().build(model, train)
    assert she.notes == ("classes without a correct training image have no pattern: [3]",)
    assert not she.state["patterns"][3].any()


def test_ties_of_percentiles_are_decided() -> None:
    equal = shaping.pruned(np.ones((1, 200), np.float32), np.array([3]))
    assert np.flatnonzero(equal).tolist() == [0, 1, 2]  # of equal features the first are kept
    middle = sparse_weights([[1.0, 2.0, 3.0, 4.0, 5.0]], np.ones(5), 50.0)
    assert middle.tolist() == [[0.0, 0.0, 0.0, 4.0, 5.0]]  # what is at the percentile goes


def test_the_boundary_to_a_class_of_equal_weights_is_left_out(edges: Any) -> None:
    model, train, _ = edges
    features = model.table[:60]
    doubled = Layered(features, np.eye(4, 6)[[0, 1, 2, 2]], (0.5, 0.25, 0.0, -1.0))
    built = Fdbd().build(doubled, train)
    mean = features.astype(float).mean(axis=0)
    logits = features.astype(float) @ doubled.weights.T + doubled.bias
    expected = []
    for f, z in zip(features, logits, strict=True):
        y = int(z.argmax())
        lengths = np.linalg.norm(doubled.weights - doubled.weights[y], axis=1)
        distances = [(z[y] - z[c]) / lengths[c] for c in range(4) if lengths[c]]
        expected.append(np.mean(distances) / np.linalg.norm(f - mean))
    np.testing.assert_allclose(represent_data(built, doubled, train)[:, 0], expected, rtol=1e-4)
    one = Layered(features, np.eye(1, 6), (0.0,))
    with pytest.raises(InputError, match="monitor fdbd needs a model of at least two classes: layered has one"):
        Fdbd().build(one, train)


def test_features_that_are_all_equal_stay_finite() -> None:
    """The factor of SCALE and ASH-S is at its largest, exp(D / k), and is cut."""
    features = np.ones((8, 200))
    model = Layered(features, np.eye(4, 200), np.zeros(4))
    data = numbered(np.arange(8) % 4)
    for monitor in (Scale(percentiles=99.5), Ash(percentiles=99.5)):
        rows = represent_data(monitor.build(model, data), model, data)
        assert np.isfinite(rows).all()
        assert rows.max() <= math.exp(shaping.LARGEST_EXPONENT) * 1.001
    with pytest.raises(InputError, match=r"monitor neco cannot be built on .*: its features never vary"):
        Neco().build(model, data)
    with pytest.raises(
        InputError, match=r"monitor relative_mahalanobis cannot be built on .*: the features of a class"
    ):
        RelativeMahalanobis().build(model, data)


def test_few_training_images_of_many_features() -> None:
    """Fewer images than features: the same by the matrix of images as by that of features."""
    rng = np.random.default_rng(2)
    features = rng.random((40, 60))
    model, data = Layered(features, rng.normal(size=(4, 60)), np.zeros(4)), numbered(np.arange(40) % 4)
    train = Subset(data, range(30))
    known = features[:30].astype(np.float32).astype(float)
    shifted = [(f - known.mean(axis=0)) / known.std(axis=0) for f in features.astype(np.float32).astype(float)]
    directions = np.linalg.svd(np.array(shifted[:30]))[2][:5]
    expected = [np.linalg.norm(directions @ h) / np.linalg.norm(h) for h in shifted]
    built = Neco(dimensions=5, times_logit=False).build(model, train)
    np.testing.assert_allclose(represent_data(built, model, data)[:, 0], expected, rtol=1e-4)
    means = np.array([known[np.arange(30) % 4 == k].mean(axis=0) for k in range(4)])
    spreads = known - means[np.arange(30) % 4], known - known.mean(axis=0)
    inverse, inverse_all = (np.linalg.pinv(rows.T @ rows / 30, rcond=1e-10, hermitian=True) for rows in spreads)

    def away(f: Any, mean: Any, matrix: Any) -> float:
        return float((f - mean) @ matrix @ (f - mean))

    expected = [
        -min(away(f, mean, inverse) for mean in means) + away(f, known.mean(axis=0), inverse_all)
        for f in features.astype(np.float32).astype(float)
    ]
    found = represent_data(RelativeMahalanobis().build(model, train), model, data)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.std(expected))
    with pytest.raises(InputError, match="dimensions must be from 1 to 29 for these features, not 30"):
        Neco(dimensions=30).build(model, train)


REFUSED = [
    ("gen", {"gamma": 0.0}, "gamma is a number above 0 and below 1, not 0.0"),
    ("gen", {"gamma": 1.0}, "gamma is a number above 0 and below 1"),
    ("gen", {"largest": 0}, "largest is a whole number of at least 1, not 0"),
    ("nnguide", {"k": 0}, "k is a whole number of at least 1, not 0"),
    ("nnguide", {"alpha": 0.0}, "alpha is a share above 0 and at most 1, not 0.0"),
    ("nnguide", {"alpha": 1.5}, "alpha is a share above 0 and at most 1, not 1.5"),
    ("ash", {"variant": "x"}, "unknown variant of monitor ash 'x'"),
    ("ash", {"percentiles": ()}, "percentiles are numbers from 0 to below 100, at least one, not "),
    ("scale", {"percentiles": (65.0, 100.0)}, "percentiles are numbers from 0 to below 100"),
    ("dice", {"percentiles": -1.0}, "percentiles are numbers from 0 to below 100, at least one, not -1.0"),
    ("dice", {"percentiles": float("nan")}, "percentiles are numbers from 0 to below 100"),
    ("dice", {"percentiles": "most"}, "percentiles cannot be 'most'"),
    ("neco", {"dimensions": 0}, "dimensions is a whole number of at least 1, not 0"),
    ("residual", {"dimensions": -1}, "dimensions is a whole number of at least 0, not -1"),
    ("temperature_msp", {"temperature": 0.0}, "the temperature is a number above 0, or None, not 0.0"),
    ("relative_mahalanobis", {"layer": ""}, "layer is the name of a layer of the model, or None, not ''"),
]


@pytest.mark.parametrize(("name", "settings", "sentence"), REFUSED)
def test_settings_out_of_range_are_refused(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_monitor(name, **settings)


def test_settings_that_do_not_fit_the_model_are_refused() -> None:
    train, model = toy_data()[0], ToyModel()
    for monitor, sentence in (
        (Ash(percentiles=99.0), "monitor ash: the percentile 99 leaves none of 24 features: lower it"),
        (Scale(percentiles=(50.0, 98.0)), "monitor scale: the percentile 98 leaves none of 24 features"),
        (Residual(dimensions=24), "monitor residual: dimensions must be from 0 to 23 for this model, not 24"),
        (Neco(dimensions=25), "monitor neco: dimensions must be from 1 to 24 for these features, not 25"),
        (NnGuide(k=241), "monitor nnguide with k=241 needs at least 241 training images, not 240"),
    ):
        with pytest.raises(InputError, match=sentence):
            monitor.build(model, train)
