"""Monitors with passes of their own: RankFeat, the whole Mahalanobis method, and the shift of OpenMax."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import logsumexp

from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.data import Subset
from roadworthy.models import CallableModel, TorchModel, align
from roadworthy.models.head import watched_layer
from roadworthy.models.networks import small_resnet, small_vgg
from roadworthy.models.signals import OnePass, Signals
from roadworthy.monitors import Mahalanobis, MahalanobisFull, OpenMax, RankFeat, make_monitor, represent_data
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.monitors.logistic import fit_logistic
from roadworthy.monitors.openmax import distance, fit_weibull, weibull_cdf
from roadworthy.monitors.rankfeat import without_rank_one
from roadworthy.monitors.stages import stage_layers

torch = pytest.importorskip("torch")
nn = torch.nn
TRAIN, HELD_OUT, TEST, OUTLIERS = toy_data()


class Staged(nn.Module):
    """Two stages of smooth layers for images of 8x8 pixels, and a submodule that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Softplus())
        self.second = nn.Sequential(nn.Conv2d(6, 10, 3, stride=2, padding=1), nn.Softplus())
        self.twice = nn.Softplus()
        self.spare = nn.Linear(1, 1)
        self.last = nn.Linear(10, 4)

    def forward(self, x: Any) -> Any:
        x = self.twice(self.second(self.twice(self.first(x))))
        return self.last(x.mean((2, 3)))


@pytest.fixture(scope="module")
def staged() -> TorchModel:
    torch.manual_seed(1)
    return TorchModel(Staged().eval(), size=8, name="staged", range="imagenet", outputs="logits", classes=list("abcd"))


def images(data: Any, count: int) -> Batch:
    return data.batch(slice(0, count))


# RankFeat


@pytest.mark.parametrize("shape", [(12, 5, 4), (3, 9, 9), (1, 4, 4), (7, 1, 1)])
@pytest.mark.parametrize("signed", [False, True])
def test_the_strongest_part_is_that_of_a_singular_value_decomposition(shape: Any, signed: bool) -> None:
    rng = np.random.default_rng(3)
    maps = rng.normal(0, 1, (5, *shape)) if signed else np.maximum(rng.normal(0.3, 1, (5, *shape)), 0)
    maps[1] = 0
    changed = without_rank_one(torch.from_numpy(maps), 2000).numpy()
    for image, result in zip(maps, changed, strict=True):
        left, values, right = np.linalg.svd(image.reshape(len(image), -1), full_matrices=False)
        expected = image.reshape(len(image), -1) - values[0] * np.outer(left[:, 0], right[0])
        np.testing.assert_allclose(result.reshape(expected.shape), expected, atol=1e-9)


def test_twenty_steps_are_enough_where_the_strongest_value_stands_out() -> None:
    """The error is at most (s2 / s1)^40 of the map; maps behind a ReLU have s2 / s1 of about a half."""
    rng = np.random.default_rng(0)
    maps = np.maximum(rng.normal(0.5, 1, (20, 16, 6, 6)), 0)
    values = np.linalg.svd(maps.reshape(20, 16, 36), compute_uv=False)
    exact = without_rank_one(torch.from_numpy(maps), 3000).numpy()
    for steps in (1, 5, 20):
        error = np.linalg.norm(
            (without_rank_one(torch.from_numpy(maps), steps).numpy() - exact).reshape(20, -1), axis=1
        )
        assert (error <= 3 * (values[:, 1] / values[:, 0]) ** (2 * steps) * values[:, 0] + 1e-9).all()
    np.testing.assert_allclose(without_rank_one(torch.from_numpy(maps).float(), 20).numpy(), exact, atol=1e-4)


def rank_feat_by_hand(module: Any, pixels: np.ndarray, stages: tuple[str, ...]) -> np.ndarray:
    """The score image by image, with numpy's decomposition and the rest of the network called by name."""
    mean, std = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    scores = []
    for image in pixels:
        tensor = torch.from_numpy(((image.transpose(2, 0, 1) / 255 - mean) / std).astype(np.float32))[None]
        logits = []
        for stage in stages:
            with torch.no_grad():
                maps = module.first(tensor) if stage == "first" else module.second(module.twice(module.first(tensor)))
                matrix = maps[0].double().numpy().reshape(maps.shape[1], -1)
                left, values, right = np.linalg.svd(matrix, full_matrices=False)
                rest = torch.from_numpy(matrix - values[0] * np.outer(left[:, 0], right[0]))
                rest = module.twice(rest.float().reshape(maps.shape))
                rest = module.twice(module.second(rest)) if stage == "first" else rest
                logits.append(module.last(rest.mean((2, 3)))[0].numpy())
        scores.append(logsumexp(np.mean(logits, axis=0)))
    return np.array(scores)


def test_rankfeat_removes_the_strongest_part_of_the_two_last_stages(staged: TorchModel) -> None:
    batch = images(OUTLIERS, 20)
    for layers in (None, ("first",), ("second",)):
        monitor = RankFeat(layers=layers, steps=200)
        rows = monitor.build(staged).represent(staged, batch)
        expected = rank_feat_by_hand(staged.module, batch.images, layers or ("first", "second"))
        np.testing.assert_allclose(rows[:, 0], expected, rtol=1e-5, atol=1e-5)
    turned = align(staged, ("d", "c", "b", "a"))
    np.testing.assert_array_equal(monitor.build(turned).represent(turned, batch), rows)


def test_the_stages_of_networks(staged: TorchModel) -> None:
    assert stage_layers(staged, images(TEST, 2)) == ("first", "second")
    resnet = TorchModel(small_resnet(4, 32).eval(), size=32, name="resnet")
    maps = resnet.feature_maps(images(toy_data(32)[2], 2))
    ends = stage_layers(resnet, images(toy_data(32)[2], 2))
    sizes = [maps[name][1:] for name in ends]
    assert sizes == sorted(set(sizes), reverse=True)
    assert len(ends) >= 3
    names = [*maps]
    for end, size in zip(ends, sizes, strict=True):
        assert all(maps[later][1:] != size for later in names[names.index(end) + 1 :])
    vgg = TorchModel(small_vgg(4, 32).eval(), size=32, name="vgg")
    assert len(stage_layers(vgg, images(toy_data(32)[2], 2))) >= 2


def test_rankfeat_refuses_what_it_cannot_change(staged: TorchModel) -> None:
    batch = images(TEST, 3)
    flat = TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), size=8, name="flat")
    black = CallableModel(lambda images: np.full((len(images), 4), 0.25), num_classes=4, version="1", name="black")
    traced = TorchModel(
        torch.jit.trace(Staged().eval(), torch.zeros(2, 3, 8, 8)), size=8, name="traced", outputs="logits"
    )
    for model, layers, sentence in (
        (flat, None, "finds no feature maps in model flat: name submodules"),
        (flat, ("1",), r"layer '1' of model flat gives \(\d+, 4\), not maps"),
        (staged, ("third",), "model staged has no layer 'third'"),
        (staged, ("spare",), "layer 'spare' of model staged is not run when the model answers"),
        (black, None, "monitor rankfeat needs features, which model black does not give"),
        (ToyModel(), None, "monitor rankfeat reaches into the layers of a torch module: supply a torch model"),
        (traced, None, "monitor rankfeat needs features, which model traced does not give"),
    ):
        with pytest.raises(InputError, match=sentence):
            RankFeat(layers=layers).build(model).represent(model, batch)
    with pytest.raises(InputError, match="the activations of model traced cannot be replaced: supply a torch module"):
        traced.predict_replacing(batch, "first", lambda maps: maps)
    for make, sentence in (
        (partial(RankFeat, layers=()), "monitor rankfeat: layers are the names of different layers"),
        (partial(RankFeat, layers=("a", "a")), "different layers of the model, or None, not"),
        (partial(RankFeat, layers="layer3"), "different layers of the model, or None, not 'layer3'"),
        (partial(RankFeat, steps=0), "steps is a whole number of at least 1, not 0"),
        (partial(MahalanobisFull, layers=("",)), "monitor mahalanobis_full: layers are the names"),
        (partial(MahalanobisFull, epsilons=()), "epsilons are numbers of at least 0"),
        (partial(MahalanobisFull, epsilons=(-0.1,)), "epsilons are numbers of at least 0"),
        (partial(MahalanobisFull, most=0), "most is a whole number of at least 1, not 0"),
        (partial(MahalanobisFull, attack=300), "attack is at most 255, not 300"),
    ):
        with pytest.raises(InputError, match=sentence):
            make()


def test_a_replaced_output_reaches_the_rest_of_this_call_alone(staged: TorchModel) -> None:
    batch = images(TEST, 6)
    plain = staged.predict(batch).logits
    same = staged.predict_replacing(batch, "second", lambda maps: maps).logits
    np.testing.assert_array_equal(same, plain)
    seen: list[Any] = []

    def replace(maps: Any) -> Any:
        other = threading.Thread(target=lambda: seen.append(staged.predict(batch).logits))
        other.start()
        other.join()
        return torch.zeros_like(maps)

    changed = staged.predict_replacing(batch, "second", replace).logits
    expected = staged.module.last(staged.module.twice(torch.zeros(1, 10))).detach().numpy()
    np.testing.assert_allclose(changed, np.repeat(expected, 6, axis=0), atol=1e-6)
    np.testing.assert_array_equal(seen[0], plain)
    np.testing.assert_array_equal(staged.predict(batch).logits, plain)
    assert not any(part._forward_hooks for part in staged.module.modules())


# Mahalanobis, the whole


def features_by_hand(model: TorchModel, pixels: np.ndarray, layer: str) -> np.ndarray:
    """Channel means of pixels (N, H, W, C) from 0 to 1 that need not be whole numbers of 255."""
    mean, std = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
    module = model.module.double()
    with torch.no_grad():
        first = module.first(torch.from_numpy(((pixels - mean) / std).transpose(0, 3, 1, 2).copy()))
        second = module.second(module.twice(first))
        maps = {"first": first, "second": second, "last:input": module.twice(second)}[layer]
    module.float()
    return np.asarray(maps.mean((2, 3)))


class ByHand:
    """The distance in one layer, written down as in the paper, and its gradient by finite differences."""

    def __init__(self, model: TorchModel, layer: str) -> None:
        self.model, self.layer = model, layer
        batch = TRAIN.batch(slice(None))
        rows = features_by_hand(model, batch.images / 255, layer)
        self.means = np.stack([rows[batch.labels == k].mean(axis=0) for k in range(4)])
        centred = rows - self.means[batch.labels]
        self.inverse = np.linalg.pinv(centred.T @ centred / len(rows), rcond=1e-10, hermitian=True)

    def score(self, pixels: np.ndarray) -> np.ndarray:
        away = features_by_hand(self.model, pixels, self.layer)[:, None] - self.means
        return -np.einsum("nkd,de,nke->nk", away, self.inverse, away).min(axis=1)

    def gradient(self, image: np.ndarray, step: float = 1e-5) -> np.ndarray:
        moves = step * np.eye(image.size).reshape(image.size, *image.shape)
        return (self.score(image + moves) - self.score(image - moves)).reshape(image.shape) / (2 * step)


LAYERS = ("first", "second", "last:input")


@pytest.fixture(scope="module")
def whole(staged: TorchModel) -> Any:
    return MahalanobisFull(epsilons=(0.0, 0.001, 0.02), most=100).build(staged, TRAIN)


def test_each_layer_steps_along_the_gradient_of_finite_differences(staged: TorchModel, whole: Any) -> None:
    epsilons, batch = whole.monitor.epsilons, images(OUTLIERS, 3)
    rows = whole.represent(staged, batch).reshape(3, len(epsilons), len(LAYERS))
    for number, layer in enumerate(LAYERS):
        by_hand = ByHand(staged, layer)
        for row, pixels in enumerate(batch.images / 255):
            direction = np.sign(by_hand.gradient(pixels))
            moved = [by_hand.score((pixels + epsilon * direction)[None])[0] for epsilon in epsilons]
            np.testing.assert_allclose(rows[row, :, number], moved, rtol=2e-3)
            assert moved[0] < moved[1] < moved[2]


def test_stepped_features_follow_any_score(staged: TorchModel) -> None:
    batch, weights = images(OUTLIERS, 2), np.linspace(-1, 1, 10)
    stepped = staged.stepped_features(
        batch, "second", lambda rows: rows.double() @ torch.from_numpy(weights), (0.0, 0.01)
    )
    for row, pixels in enumerate(batch.images / 255):
        moves = 1e-4 * np.eye(pixels.size).reshape(pixels.size, *pixels.shape)
        ahead, behind = (features_by_hand(staged, pixels + side * moves, "second") @ weights for side in (1, -1))
        direction = np.sign(ahead - behind).reshape(pixels.shape)
        expected = features_by_hand(staged, np.stack([pixels, pixels + 0.01 * direction]), "second")
        np.testing.assert_allclose(stepped[:, row], expected, atol=2e-5)


def test_a_layer_that_runs_twice_is_read_at_its_last_run(staged: TorchModel) -> None:
    """Passes behind a step end where the layer has answered, not at its first run."""
    batch = images(OUTLIERS, 3)
    stepped = staged.stepped_features(batch, "twice", lambda rows: rows.sum(1), (0.0, 0.01))
    behind = staged.stepped_features(batch, "last:input", lambda rows: rows.sum(1), (0.0, 0.01))
    np.testing.assert_array_equal(stepped, behind)
    assert not any(part._forward_hooks for part in staged.module.modules())


def test_without_a_step_it_is_the_plain_distance_of_each_layer(staged: TorchModel, whole: Any) -> None:
    rows = represent_data(whole, staged, TEST)
    for number, layer in enumerate(LAYERS):
        plain = represent_data(Mahalanobis(layer=layer).build(staged, TRAIN), staged, TEST)[:, 0]
        np.testing.assert_allclose(rows[:, number], plain, rtol=1e-3)
        np.testing.assert_allclose(plain, ByHand(staged, layer).score(TEST.batch(slice(None)).images / 255), rtol=1e-3)


def test_the_default_layers_end_in_the_last_linear_one_unless_that_reads_the_mean_of_the_last_map() -> None:
    torch.manual_seed(0)
    pooled = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.ReLU(), nn.Linear(9, 4))
    known = {"staged": (Staged(), LAYERS), "pooled": (pooled, ("1",)), "flat": (flat, ("3:input",))}
    for name, (network, layers) in known.items():
        model = TorchModel(network.eval(), size=8, name=name, outputs="logits")
        built = MahalanobisFull(epsilons=(0.0,), most=20).build(model, TRAIN)
        assert tuple(built.state["layers"].tobytes().decode().split("\n")) == layers
    given = MahalanobisFull(layers=("second", "first"), epsilons=(0.0,), most=20)
    model = TorchModel(Staged().eval(), size=8, name="given", outputs="logits")
    assert given.build(model, TRAIN).represent(model, images(TEST, 2)).shape == (2, 2)
    dead = MahalanobisFull(layers=("first", "second"), epsilons=(0.0,))
    nn.init.zeros_(model.module.second[0].weight)
    with pytest.raises(
        InputError, match=r"cannot use layer 'second' of model given on \w+: the features of a class never"
    ):
        dead.build(model, TRAIN)


def log_loss(vector: np.ndarray, rows: np.ndarray, target: np.ndarray, weights: np.ndarray) -> float:
    odds = rows @ vector[:-1] + vector[-1]
    return float(weights @ np.logaddexp(0, -target * odds) + vector[:-1] @ vector[:-1] / 2)


@pytest.mark.parametrize(("prior", "cost"), [(0.5, 1.0), (0.2, 3.0)])
def test_the_logistic_regression_is_the_one_of_the_least_loss(prior: float, cost: float) -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    inside, outside = rng.normal(1, 2, (70, 3)) * [1, 50, 0.01], rng.normal(0, 3, (40, 3)) * [1, 50, 0.01]
    found = fit_logistic(inside, outside, prior=prior, cost=cost)
    rows, target = np.concatenate([inside, outside]), np.repeat([1.0, -1.0], [70, 40])
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    share = np.array([1 - prior, prior * cost])
    weights = np.repeat(share / share.sum() * 110 / np.array([70, 40]), [70, 40])
    least = optimize.minimize(log_loss, np.zeros(4), (standard, target, weights), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(found(rows), standard @ least.x[:-1] + least.x[-1], atol=1e-5)
    theirs = LogisticRegression(tol=1e-10).fit(standard, target, sample_weight=weights)
    np.testing.assert_allclose(found(rows), theirs.decision_function(standard), atol=1e-4)


def test_the_logistic_regression_at_its_edges() -> None:
    apart = fit_logistic([[1.0, 5.0]], [[-1.0, 5.0]])
    assert apart([[1.0, 5.0]])[0] > 0 > apart([[-1.0, 5.0]])[0]
    assert apart.weights[1] == pytest.approx(0, abs=1e-12)
    same = fit_logistic(np.ones((4, 2)), np.ones((9, 2)))
    np.testing.assert_allclose(same(np.ones((1, 2))), 0, atol=1e-9)
    far = fit_logistic(np.full((50, 1), 1e8), np.full((50, 1), -1e8))
    assert np.isfinite(far([[1e8], [-1e8]])).all()
    for rows in (np.zeros((0, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(InputError, match="needs finite rows of both sides"):
            fit_logistic(rows, np.ones((3, 2)))


def test_epsilon_and_weights_are_learned_from_validation_outliers(whole: Any) -> None:
    """Only the second layer at the second epsilon tells the sides apart."""
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(-50, 1, (2, 80, 9))
    inside[:, 3 + 1] += 5
    calibrated = whole.calibrate(inside, outside)
    assert int(calibrated.rule["epsilon"]) == 1
    assert np.argmax(np.abs(calibrated.rule["weights"])) == 1
    assert calibrated.rule["weights"][1] > 0
    expected = fit_logistic(inside.astype(np.float32)[:, 3:6], outside.astype(np.float32)[:, 3:6])
    rows = inside.astype(np.float32)
    np.testing.assert_allclose(calibrated.score(rows), expected(rows[:, 3:6]), rtol=1e-9)
    assert calibrated.notes[0].startswith("epsilon is 0.001 and the weights of layers are first ")
    assert calibrated.notes[0].endswith(": validation outliers")


def test_without_outliers_both_are_learned_from_fgsm_copies_of_training_images(staged: TorchModel) -> None:
    from roadworthy.core.random import Streams
    from roadworthy.shifts.adversarial import Fgsm

    monitor = MahalanobisFull(epsilons=(0.0, 0.002), most=len(TRAIN), attack=20)
    built = monitor.build(staged, TRAIN)
    copies = Fgsm(epsilon=20).bound(staged)(TRAIN.batch(slice(None)), Streams("any"))
    clean, attacked = (built.represent(staged, batch) for batch in (TRAIN.batch(slice(None)), copies))
    against = built.calibrate(clean, attacked)
    alone = built.calibrate(represent_data(built, staged, HELD_OUT))
    assert not alone.rule
    np.testing.assert_allclose(alone.score(clean), against.score(clean), rtol=1e-6)
    assert alone.notes == (against.notes[0].replace("validation outliers", "FGSM copies of 240 training images"),)
    few = MahalanobisFull(epsilons=(0.0,), most=7)
    assert (int(few.build(staged, TRAIN).state["copies"]), few.work(240), few.work(5)) == (7, 247, 10)
    one = Subset(TRAIN, np.flatnonzero(TRAIN.labels == 1).tolist(), name="one")
    with pytest.raises(InputError, match="at least 2 classes: one has 1"):
        monitor.build(staged, one)


# OpenMax


class Spread(ToyModel):
    """Logits that vary within a class as those of real networks do."""

    def predict(self, batch: Batch) -> Any:
        answer = super().predict(batch)
        waves = 2 * np.sin(batch.images.reshape(len(batch), -1)[:, :4].astype(np.float32))
        return answer.changed(logits=answer.logits + waves)


@pytest.mark.filterwarnings("ignore:overflow encountered in power")
@pytest.mark.parametrize("network", [ToyModel, Spread])
@pytest.mark.parametrize("shift", [1.0, 10_000.0])
def test_openmax_weighs_as_both_kinds_of_libmr_do(shift: float, network: type[ToyModel]) -> None:
    """libMR moves the tail so that its smallest distance is `shift`, and fits a Weibull from 0 on."""
    model, asked_batch = network(), images(OUTLIERS, 30)
    built = OpenMax(tail=10, alpha=4, shift=shift).build(model, TRAIN)
    logits = model.answer(TRAIN.batch(slice(None)), 64).logits.astype(np.float64)
    asked = model.answer(asked_batch, 64).logits.astype(np.float64)
    weights = np.zeros_like(asked)
    for k in range(4):
        own = logits[(TRAIN.labels == k) & (logits.argmax(axis=1) == k)]
        tail = np.sort(distance(own, own.mean(axis=0)))[-10:]
        moved = tail - tail[0] + shift
        middle, width = stats.gumbel_l.fit(np.log(moved))  # the logarithm of a Weibull is a Gumbel
        shape, scale = 1 / width, np.exp(middle)
        np.testing.assert_allclose(fit_weibull(tail, tail[0] - shift), (shape, scale), rtol=1e-5)
        if shift == 1:  # farther away, scipy's own search for a Weibull ends early
            plain = stats.weibull_min.fit(moved, floc=0)
            np.testing.assert_allclose((shape, scale), (plain[0], plain[2]), rtol=1e-4)
        far = distance(asked, own.mean(axis=0)) - tail[0] + shift
        closed = 1 - np.exp(-((np.maximum(far, 0) / scale) ** shape))
        np.testing.assert_allclose(stats.weibull_min.cdf(far, shape, 0, scale), closed, atol=1e-9)
        ours = weibull_cdf(distance(asked, own.mean(axis=0)), *built.state["weibulls"][k])
        np.testing.assert_allclose(ours, closed, atol=1e-4)
        rank = (asked > asked[:, [k]]).sum(axis=1)
        weights[:, k] = closed * (4 - rank) / 4
    known = asked * (1 - weights)
    unknown = (asked * weights).sum(axis=1)
    expected = np.exp(unknown) / (np.exp(unknown) + np.exp(known).sum(axis=1))
    np.testing.assert_allclose(built.represent(model, asked_batch)[:, 0], expected, atol=1e-4)


def test_the_shift_of_openmax_counts_and_is_checked() -> None:
    batch = images(TEST, 100)
    present, old = (OpenMax(shift=s).build(Spread(), TRAIN).represent(Spread(), batch) for s in (1.0, 10_000.0))
    assert np.abs(present - old).max() > 1e-3
    np.testing.assert_array_equal(OpenMax().build(Spread(), TRAIN).represent(Spread(), batch), present)
    for wrong in (0.0, -1.0, np.inf, np.nan, True):
        with pytest.raises(InputError, match="monitor openmax: shift is a number above 0"):
            OpenMax(shift=wrong)
    for wrong in (-0.1, 1.5, np.nan, True):
        with pytest.raises(InputError, match="epsilon is a probability from 0 to 1, or None"):
            OpenMax(epsilon=wrong)


def test_a_tail_of_equal_distances_is_a_step_whatever_the_shift() -> None:
    for shift in (0.5, 1.0, 10_000.0):
        shape, scale = fit_weibull([0.3, 0.3, 0.3], 0.3 - shift)
        before, behind = weibull_cdf([0.3 - 1e-3, 0.3 + 1e-3], shape, 0.3 - shift, scale)
        assert (before, behind) == (0, 1)
    assert fit_weibull([0.3, 0.3 + 1e-15], 0.3 - 10_000) == fit_weibull([0.3, 0.3], 0.3 - 10_000)
    assert fit_weibull([1e-9, 1.0, 1e9], 0.0)[0] < 0.2


def test_the_own_decision_of_openmax() -> None:
    """Reject where the unknown class is the most probable, or where no class reaches epsilon."""
    monitor = make_monitor("openmax", epsilon=0.5)
    built = monitor.build(ToyModel(), TRAIN)
    rows = np.array([[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.3, 0.4, 0.3], [0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], np.float32)
    assert monitor.own_threshold == 0.5
    assert OpenMax().own_threshold is None
    for outliers in (None, rows[::-1]):
        scores = built.calibrate(rows, outliers).score(rows)
        np.testing.assert_allclose(scores, [-0.5, 0.7, 0.4, 0.5, 0.4], atol=1e-7)
        assert (scores < monitor.own_threshold).tolist() == [True, False, True, False, True]
    away = np.tile([[0.9, 0.05, 0.05]], (20, 1)).astype(np.float32)
    near = np.tile([[0.1, 0.8, 0.1]], (20, 1)).astype(np.float32)
    assert -0.9 < built.calibrate(near, away, threshold="hinge").threshold < 0.8


# One pass for answers and features


class Counting(Staged):
    """Counts its passes."""

    passes = 0

    def forward(self, x: Any) -> Any:
        type(self).passes += 1
        return super().forward(x)


@pytest.mark.parametrize("names", [("logits", "features"), ("features", "logits"), ("features",)])
def test_features_and_answer_come_from_one_pass(names: tuple[str, ...]) -> None:
    torch.manual_seed(1)
    model, batch = TorchModel(Counting().eval(), size=8, name="counting", outputs="logits"), images(TEST, 70)
    plain, layer = model.answer(batch, 64), model.head().layer
    features = np.concatenate([model.features(batch.take(slice(start, start + 35)), layer) for start in (0, 35)])
    signals, before = Signals(model, batch, 35), Counting.passes
    for name in names:
        assert len(signals[name]) == 70
    assert Counting.passes - before == 2
    np.testing.assert_array_equal(signals.features(), features)
    np.testing.assert_array_equal(signals.activations(), features)
    np.testing.assert_allclose(signals.logits, plain.logits, atol=1e-5)
    assert Counting.passes - before == 2
    signals.features("first")
    assert Counting.passes - before == 4
    assert not any(part._forward_hooks for part in model.module.modules())


def test_a_reader_of_features_pays_for_the_pass_once(staged: TorchModel) -> None:
    signals = Signals(staged, images(TEST, 64))
    _, first = signals.timed(lambda shown: shown.logits)
    _, second = signals.timed(lambda shown: shown.features())
    _, both = signals.timed(lambda shown: (shown.logits, shown.features(), shown.features()))
    assert second >= signals._cost["prediction"]
    assert both < 2 * signals._cost["prediction"] + 0.05
    assert first >= signals._cost["prediction"]


def test_features_of_ones_own_are_not_passed_by(staged: TorchModel) -> None:
    class Own(TorchModel):
        def features(self, batch: Batch, layer: str) -> Any:
            return -super().features(batch, layer)

    own = Own(staged.module, size=8, name="own", outputs="logits", range="imagenet")
    batch = images(TEST, 5)
    np.testing.assert_array_equal(Signals(own, batch).features(), -Signals(staged, batch).features())
    turned = align(staged, ("d", "c", "b", "a"))
    np.testing.assert_array_equal(Signals(turned, batch).features(), Signals(staged, batch).features())
    softmax = TorchModel(nn.Sequential(Staged(), nn.Softmax(1)).eval(), size=8, name="softmax")
    assert watched_layer(softmax) == ""
    assert Signals(softmax, batch).features("0.first").shape == (5, 6)


def test_several_layers_come_with_one_answer_to_the_bit(staged: TorchModel) -> None:
    passes: list[int] = []
    counted = staged.module.register_forward_hook(lambda module, inputs, output: passes.append(len(inputs[0])))
    one_pass, batch = OnePass(staged), images(TEST, 1)

    def read(signals: Signals) -> list[Any]:
        return [signals.features(), signals.features("first"), signals.activations("second")]

    one_pass.read(batch, read)
    passes.clear()
    signals, layers = one_pass.read(batch, read)
    counted.remove()
    assert passes == [1]
    apart = Signals(staged, batch, 1)
    for own, expected in zip([signals.logits, *layers], [apart.logits, *read(apart)], strict=True):
        np.testing.assert_array_equal(own, expected)


def test_a_layer_that_is_changed_in_place_comes_with_the_answer_as_it_does_by_itself() -> None:
    """As a batch norm before the ReLU of a ResNet: what a guard reads is what the monitor learned from."""
    torch.manual_seed(2)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 4)
    model = TorchModel(nn.Sequential(*layers).eval(), size=8, name="in place", outputs="logits")
    one_pass, batch = OnePass(model), images(TEST, 1)
    for layer in ("0", "1", "2"):
        signals, rows = one_pass.read(batch, lambda signals, layer=layer: signals.activations(layer))
        assert layer not in signals.asked_apart
        np.testing.assert_array_equal(rows, Signals(model, batch, 1).activations(layer))


def test_threads_that_share_a_network_see_their_own_images(staged: TorchModel) -> None:
    batches = [TRAIN.batch(slice(16 * part, 16 * part + 16)) for part in range(8)]
    expected = [Signals(staged, batch, 16).features() for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            seen = pool.map(lambda batch: Signals(staged, batch, 16).features(), batches)
            for rows, own in zip(seen, expected, strict=True):
                np.testing.assert_array_equal(rows, own)
