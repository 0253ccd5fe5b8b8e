"""MC-Dropout, ensembles, temperature and measures of agreement: closed forms, independent passes, laws and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models import CallableModel, TorchModel, load_model, softmax
from roadworthy.models.networks import thesis_cnn
from roadworthy.uncertainty import (
    Ensemble,
    McDropout,
    Temperature,
    fit_temperature,
    mean_prediction,
    mutual_information,
    predictive_entropy,
    variation_ratio,
)

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

SIZE = 8


def images(n: int = 7, seed: int = 0) -> Batch:
    pixels = np.random.default_rng(seed).integers(0, 256, (n, SIZE, SIZE, 3), dtype=np.uint8)
    return Batch(ids=tuple(f"i{row}" for row in range(n)), images=pixels, labels=np.zeros(n, np.int64))


def small(dropout: float = 0.5, gain: float = 20.0) -> Any:
    """A thesis network whose answers spread enough for passes to differ visibly."""
    torch.manual_seed(0)
    network = thesis_cnn(4, SIZE, width=4, hidden=16, dropout=dropout)
    with torch.no_grad():
        network.linear2.weight.mul_(gain)
    return network


# Measures


def test_measures_have_their_closed_forms() -> None:
    equal = np.tile([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]], (5, 1, 1))
    expected = -(0.7 * np.log(0.7) + 0.2 * np.log(0.2) + 0.1 * np.log(0.1))
    np.testing.assert_allclose(mean_prediction(equal), equal[0], rtol=1e-6)
    np.testing.assert_allclose(predictive_entropy(equal), [expected, 0.0], atol=1e-12)
    np.testing.assert_allclose(mutual_information(equal), [0.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(variation_ratio(equal), [0.0, 0.0])

    opposed = np.eye(3)[:, None]
    np.testing.assert_allclose(predictive_entropy(opposed), [np.log(3)])
    np.testing.assert_allclose(mutual_information(opposed), [np.log(3)])
    np.testing.assert_allclose(variation_ratio(opposed), [2 / 3])

    mixed = np.array([[[0.9, 0.1]], [[0.5, 0.5]]])
    entropy = [-(p * np.log(p) + (1 - p) * np.log(1 - p)) for p in (0.9, 0.5, 0.7)]
    np.testing.assert_allclose(mutual_information(mixed), [entropy[2] - (entropy[0] + entropy[1]) / 2])


def test_one_pass_has_no_disagreement() -> None:
    one = np.array([[[0.3, 0.7], [0.0, 1.0]]])
    np.testing.assert_array_equal(mutual_information(one), [0.0, 0.0])
    np.testing.assert_array_equal(variation_ratio(one), [0.0, 0.0])
    np.testing.assert_allclose(mean_prediction(one), one[0])


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(1, 5)), elements=st.floats(0, 9))
)
def test_measures_keep_their_bounds_whatever_the_order_of_passes(weights: np.ndarray) -> None:
    samples = (weights + 1e-9) / (weights + 1e-9).sum(axis=2, keepdims=True)
    classes = samples.shape[2]
    information, entropy, ratio = (
        measure(samples) for measure in (mutual_information, predictive_entropy, variation_ratio)
    )
    assert ((information >= 0) & (information <= entropy + 1e-9) & (entropy <= np.log(classes) + 1e-9)).all()
    assert ((ratio >= 0) & (ratio <= 1 - 1 / classes + 1e-12)).all()
    np.testing.assert_allclose(mutual_information(samples[::-1]), information, atol=1e-12)


@pytest.mark.parametrize(
    "bad", [np.zeros((2, 3)), np.zeros((0, 2, 3)), np.full((1, 1, 2), np.nan), -np.ones((1, 1, 2))]
)
def test_what_is_no_sample_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(InputError):
        predictive_entropy(bad)


# MC-Dropout


@pytest.fixture(scope="module")
def model() -> McDropout:
    return McDropout(small(), passes=6, seed=3, size=SIZE, name="net")


def by_hand(network: Any, model: McDropout, batch: Batch, index: int) -> np.ndarray:
    """One pass with the masks put in as layers: an independent way through the thesis network."""
    first, second, third = (torch.from_numpy(mask) for mask in model.masks(index))
    values = torch.from_numpy(batch.images).permute(0, 3, 1, 2).float() / 255
    with torch.inference_mode():
        values = F.relu(network.conv1(values)) * first
        values = F.relu(network.conv2(values)) * second
        values = F.relu(network.linear1(F.max_pool2d(values, 2).flatten(1))) * third
        return softmax(network.linear2(values).numpy())


def test_passes_are_those_of_the_masked_network(model: McDropout) -> None:
    batch, network = images(), small()
    answer = model.predict(batch)
    assert model.runtime == "onnx"
    assert not model.notes
    assert answer.samples is not None
    assert answer.certainty is not None
    for index in range(model.passes):
        np.testing.assert_allclose(answer.samples[index], by_hand(network, model, batch, index), atol=1e-5)
    np.testing.assert_allclose(answer.probabilities, answer.samples.mean(0), atol=1e-6)
    np.testing.assert_array_equal(answer.certainty, answer.probabilities.max(1))
    assert answer.logits is None


def test_onnx_and_torch_give_the_same_answers(model: McDropout) -> None:
    plain = McDropout(small(), passes=6, seed=3, size=SIZE, runtime="torch")
    assert plain.runtime == "torch"
    np.testing.assert_allclose(plain.predict(images()).samples, model.predict(images()).samples, atol=1e-5)


def test_passes_differ_and_the_seed_decides_them(model: McDropout) -> None:
    batch = images()
    samples = model.predict(batch).samples
    assert samples is not None
    assert all(np.abs(samples[i] - samples[j]).max() > 1e-3 for i in range(6) for j in range(i))
    again = McDropout(small(), passes=3, seed=3, size=SIZE, runtime="torch")
    other = McDropout(small(), passes=3, seed=4, size=SIZE, runtime="torch")
    np.testing.assert_allclose(again.predict(batch).samples, samples[:3], atol=1e-5)
    assert np.abs(other.predict(batch).samples - samples[:3]).max() > 1e-3


def test_an_answer_depends_on_neither_batch_nor_order(model: McDropout) -> None:
    batch = images()
    whole = model.predict(batch).probabilities
    np.testing.assert_allclose(model.answer(batch, 3).probabilities, whole, atol=1e-6)
    alone = np.concatenate([model.predict(batch.take([row])).probabilities for row in range(len(batch))])
    np.testing.assert_allclose(alone, whole, atol=1e-6)
    order = [4, 0, 6, 2]
    np.testing.assert_allclose(model.predict(batch.take(order)).probabilities, whole[order], atol=1e-6)
    np.testing.assert_array_equal(model.answer(batch, 4).probabilities, model.answer(batch, 4).probabilities)


def test_what_precedes_the_first_dropout_is_computed_once() -> None:
    model = McDropout(small(), passes=5, size=SIZE, runtime="torch")
    calls = {"before": 0, "after": 0}

    def counted(name: str, function: Any) -> Any:
        def call(*inputs: Any) -> Any:
            calls[name] += 1
            return function(*inputs)

        return call

    parts = model._parts
    model._parts = replace(parts, before=counted("before", parts.before), after=counted("after", parts.after))
    model.predict(images())
    assert calls == {"before": 1, "after": 5}
    (value,) = parts.before(model.preprocess(images().images))
    with torch.inference_mode():
        expected = F.relu(small().conv1(torch.from_numpy(model.preprocess(images().images))))
    torch.testing.assert_close(value, expected)


def test_masks_are_bernoulli_and_scaled() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.6), nn.Linear(192, 3))
    model = McDropout(network, passes=60, size=SIZE, runtime="torch")
    drawn = np.stack([model.masks(index)[0] for index in range(60)])
    assert set(np.unique(drawn)) == {np.float32(0), np.float32(1 / 0.4)}
    kept = (drawn > 0).mean()
    assert abs(kept - 0.4) < 4 * np.sqrt(0.4 * 0.6 / drawn.size)
    assert len(np.unique(drawn, axis=0)) == 60


def test_masks_that_are_too_large_to_keep_are_drawn_again(model: McDropout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.uncertainty.mc_dropout.MASK_BYTES", 0)
    forgetful = McDropout(small(), passes=6, seed=3, size=SIZE, runtime="torch")
    np.testing.assert_allclose(forgetful.predict(images()).samples, model.predict(images()).samples, atol=1e-5)
    assert not forgetful._kept


def test_the_network_is_left_alone_and_copied() -> None:
    network = small().train()
    model = McDropout(network, passes=2, size=SIZE, runtime="torch")
    assert network.training
    assert network.dropout1.training
    before, fingerprint = model.predict(images()).probabilities, model.fingerprint()
    with torch.no_grad():
        network.linear2.weight.zero_()
    np.testing.assert_array_equal(model.predict(images()).probabilities, before)
    assert model.fingerprint() == fingerprint


def test_the_fingerprint_holds_what_changes_an_answer() -> None:
    def fingerprint(network: Any = None, **changes: Any) -> str:
        settings = {"passes": 2, "seed": 0, "size": SIZE, "runtime": "torch"} | changes
        return McDropout(network or small(), **settings).fingerprint()

    changes = [{"passes": 3}, {"seed": 1}, {"placement": ["dropout3"]}, {"range": "-1-1"}, {"network": small(gain=2.0)}]
    assert fingerprint() == fingerprint(name="other")
    assert len({fingerprint(), *(fingerprint(**change) for change in changes)}) == 1 + len(changes)


class Functional(nn.Module):
    """Dropout as functions: one that heeds the mode, one by channel, one that is always on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.linear = nn.Conv2d(3, 5, 3), nn.Linear(5 * 36, 4)

    def forward(self, image: Any) -> Any:
        values = F.dropout(self.conv(image), 0.5, training=self.training)
        values = F.dropout2d(F.relu(values), p=0.25, training=self.training)
        return F.dropout(self.linear(values.flatten(1)), p=0.1)


class Reused(nn.Module):
    """One dropout behind two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.one, self.two = nn.Flatten(), nn.Linear(192, 6), nn.Linear(6, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, image: Any) -> Any:
        return self.two(self.drop(F.relu(self.one(self.drop(self.flatten(image))))))


def layers(network: Any, **settings: Any) -> list[tuple[str, float, tuple[int, ...]]]:
    model = McDropout(network, passes=2, size=SIZE, runtime="torch", **settings)
    return [(layer.name, layer.p, layer.shape) for layer in model.layers]


def test_placement_decides_which_dropout_is_active() -> None:
    full, maps = (4, SIZE, SIZE), (16,)
    every = [("dropout1", 0.5, full), ("dropout2", 0.5, full), ("dropout3", 0.5, maps)]
    assert layers(small()) == every
    assert layers(small(), placement="dropout3") == every[2:]
    assert layers(small(), placement=["dropout[13]"]) == [every[0], every[2]]
    bare = small(dropout=0.0)
    assert layers(bare, placement=["linear1"], p=0.2) == [("linear1", 0.2, maps)]
    assert layers(bare, placement=["conv*"], p=0.2) == [("conv1", 0.2, full), ("conv2", 0.2, full)]
    assert layers(small(), placement=["relu3", "dropout1"], p=0.3) == [every[0], ("relu3", 0.3, maps)]
    nested = nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(192, 8)), nn.Linear(8, 3))
    assert layers(nested, placement=["0"], p=0.3) == [("0", 0.3, (8,))]


def test_dropout_functions_and_channels_and_reuse() -> None:
    assert layers(Functional()) == [
        ("dropout", 0.5, (5, 6, 6)),
        ("dropout2d", 0.25, (5, 1, 1)),
        ("dropout_1", 0.1, (4,)),
    ]
    assert layers(Functional(), placement=["dropout2d"]) == [("dropout2d", 0.25, (5, 1, 1))]
    assert layers(Reused()) == [("drop", 0.5, (192,)), ("drop#2", 0.5, (6,))]
    by_channel = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(180, 3))
    assert layers(by_channel) == [("1", 0.5, (5, 1, 1))]


def test_dropout_that_is_not_chosen_does_nothing() -> None:
    model = McDropout(Functional(), passes=2, size=SIZE, runtime="torch", placement=["dropout2d"])
    network, batch = Functional(), images()
    mask = torch.from_numpy(model.masks(1)[0])
    with torch.inference_mode():
        values = F.relu(network.conv(torch.from_numpy(model.preprocess(batch.images)))) * mask
        expected = softmax(network.linear(values.flatten(1)).numpy())
    np.testing.assert_allclose(model.predict(batch).samples[1], expected, atol=1e-6)


def test_inserted_dropout_masks_what_the_module_answers() -> None:
    network = small(dropout=0.0)
    model = McDropout(network, passes=2, size=SIZE, placement=["relu3"], p=0.5)
    assert model.runtime == "onnx"
    batch = images()
    with torch.inference_mode():
        hidden = network[:-1](torch.from_numpy(model.preprocess(batch.images)))
        expected = softmax(network[-1](hidden * torch.from_numpy(model.masks(0)[0])).numpy())
    np.testing.assert_allclose(model.predict(batch).samples[0], expected, atol=1e-5)


class Branching(nn.Module):
    """What torch.fx cannot trace: a branch on values."""

    def __init__(self, functional: bool = False) -> None:
        super().__init__()
        self.inner, self.functional = small(), functional

    def forward(self, image: Any) -> Any:
        if image.sum() < -1:
            return self.inner(-image)
        return F.dropout(self.inner(image), 0.5, self.training) if self.functional else self.inner(image)


def test_a_network_that_cannot_be_traced_runs_whole_passes() -> None:
    whole = McDropout(Branching(), passes=6, seed=3, size=SIZE)
    assert whole.runtime == "torch"
    assert not whole.concurrent
    assert "cannot trace" in whole.notes[0]
    assert [layer.name for layer in whole.layers] == ["inner.dropout1", "inner.dropout2", "inner.dropout3"]
    batch = images()
    samples = whole.predict(batch).samples
    np.testing.assert_allclose(samples[2], by_hand(small(), whole, batch, 2), atol=1e-5)
    with pytest.raises(InputError, match=r"F\.dropout in code that torch\.fx cannot trace"):
        McDropout(Branching(functional=True), passes=2, size=SIZE)


class Sideways(nn.Module):
    """The images are not the first side where dropout acts."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.linear = nn.Dropout(0.5), nn.Linear(192, 3)

    def forward(self, image: Any) -> Any:
        return self.linear(self.drop(image.flatten(1).T).T)


@pytest.mark.parametrize(
    ("network", "settings", "sentence"),
    [
        (small(dropout=0.0), {}, "no active dropout"),
        (nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(192, 3)), {}, "no active dropout"),
        (nn.Sequential(nn.Flatten(), nn.AlphaDropout(0.5), nn.Linear(192, 3)), {}, "AlphaDropout '1' shifts"),
        (small(), {"placement": ["dropout9"]}, "did you mean 'dropout"),
        (small(), {"placement": ["linear1"]}, "give p"),
        (small(), {"placement": ["linear1"], "p": 1.0}, "between 0 and 1"),
        (small(), {"passes": 0}, "from 1 to 10,000"),
        (small(), {"runtime": "tensorflow"}, "unknown runtime"),
        (small().double(), {}, "float32"),
        (Sideways(), {}, "first side is not the images"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(network: Any, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        McDropout(network, **{"passes": 2, "size": SIZE, "runtime": "torch"} | settings)


def test_an_unknown_module_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName):
        McDropout(small(), passes=2, size=SIZE, placement=["liner1"], p=0.5)


# Ensembles


def constant(*rows: float, name: str = "m", classes: tuple[str, ...] | None = None) -> CallableModel:
    answer = np.array([rows], np.float32)

    def function(pixels: np.ndarray) -> np.ndarray:
        return np.repeat(answer, len(pixels), axis=0)

    settings = {"num_classes": len(rows), "version": str(rows), "outputs": "probabilities", "classes": classes}
    model = load_model(function, name=name, **{key: value for key, value in settings.items() if value is not None})
    assert isinstance(model, CallableModel)
    return model


def test_an_ensemble_is_the_mean_of_its_members(model: McDropout) -> None:
    both = Ensemble([constant(0.9, 0.1), constant(0.5, 0.5), constant(0.1, 0.9)])
    answer = both.predict(images(2))
    assert answer.samples is not None
    np.testing.assert_allclose(answer.probabilities, [[0.5, 0.5]] * 2, atol=1e-7)
    np.testing.assert_allclose(answer.samples[:, 0], [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    np.testing.assert_allclose(answer.certainty, [0.5, 0.5])
    of_passes = Ensemble([model, model])
    np.testing.assert_allclose(
        of_passes.answer(images(), 3).probabilities, model.predict(images()).probabilities, atol=1e-6
    )
    assert of_passes.input_size == (SIZE, SIZE)


def test_members_are_put_in_one_order_of_classes() -> None:
    one = constant(0.9, 0.1, classes=("stop", "yield"))
    other = constant(0.2, 0.8, classes=("yield", "stop"))
    ensemble = Ensemble([one, other])
    assert ensemble.class_names == ("stop", "yield")
    np.testing.assert_allclose(ensemble.predict(images(1)).probabilities, [[0.85, 0.15]], atol=1e-7)


def test_an_ensemble_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="no members"):
        Ensemble([])
    with pytest.raises(InputError, match="answers 3 classes and two 2"):
        Ensemble([constant(0.5, 0.5, name="two"), constant(0.5, 0.25, 0.25, name="three")])


def test_wrappers_have_fingerprints_of_what_they_hold() -> None:
    a, b = constant(0.9, 0.1), constant(0.5, 0.5)
    wrapped: list[Model] = [
        Ensemble([a]),
        Ensemble([a, b]),
        Temperature(a, 2.0),
        Temperature(a, 3.0),
        Temperature(b, 2.0),
    ]
    assert len({each.fingerprint() for each in wrapped}) == len(wrapped)
    assert Ensemble([a, b], name="x").fingerprint() == Ensemble([a, b]).fingerprint()


# Temperature


def test_temperature_scales_and_keeps_the_order() -> None:
    base = constant(0.7, 0.2, 0.1, 0.0)
    np.testing.assert_allclose(
        Temperature(base, 1.0).predict(images(1)).probabilities[0], [0.7, 0.2, 0.1, 0], atol=1e-6
    )
    for temperature in (0.3, 2.0, 5.0):
        answer = Temperature(base, temperature).predict(images(1)).probabilities[0]
        expected = np.array([0.7, 0.2, 0.1, np.finfo(np.float32).tiny]) ** (1 / temperature)
        np.testing.assert_allclose(answer, expected / expected.sum(), rtol=1e-5, atol=1e-9)
        assert (np.diff(answer) < 0).all()


def test_temperature_uses_logits_where_there_are_some(model: McDropout) -> None:
    base = TorchModel(small(dropout=0.0), size=SIZE, name="net")
    scaled = Temperature(base, 2.0)
    answer, plain = scaled.predict(images()), base.predict(images())
    np.testing.assert_allclose(answer.logits, plain.logits / 2, rtol=1e-6)
    np.testing.assert_array_equal(answer.probabilities, softmax(plain.logits / 2))
    assert scaled.capabilities == {"probabilities", "logits", "features"}
    assert Temperature(model, 2.0).capabilities == {"probabilities"}
    assert Temperature(model, 2.0).predict(images()).samples is None


@pytest.mark.parametrize("true", [0.5, 1.0, 2.5])
def test_the_fitted_temperature_is_that_of_the_labels(true: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (20_000, 5))
    cumulated = softmax(logits / true).cumsum(axis=1)
    labels = (rng.random((len(logits), 1)) * cumulated[:, -1:] > cumulated).sum(axis=1)
    fitted = fit_temperature(logits, labels)
    assert fitted.temperature == pytest.approx(true, rel=0.05)
    assert fitted.nll <= fitted.nll_before
    grid = np.linspace(0.8, 1.25, 91) * fitted.temperature

    def nll(temperature: float) -> float:
        return float(-np.log(softmax(logits / temperature)[np.arange(len(labels)), labels]).mean())

    assert min(map(nll, grid)) >= fitted.nll - 1e-6
    assert not fitted.notes


def test_a_temperature_beyond_the_bounds_is_said() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 3.0]])
    right = fit_temperature(logits, np.array([0, 1]))
    wrong = fit_temperature(logits, np.array([1, 0]))
    assert right.temperature == pytest.approx(0.05, rel=1e-3)
    assert wrong.temperature == pytest.approx(20.0, rel=1e-3)
    assert "all correct" in right.notes[0]
    assert "worse than chance" in wrong.notes[0]
    flat = fit_temperature(np.zeros((3, 2)), np.array([0, 1, 1]))
    assert (flat.temperature, flat.nll) == (1.0, pytest.approx(np.log(2)))
    assert flat.notes
    assert "one class" in fit_temperature(logits, np.array([0, 0])).notes[0]


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (np.array([[np.nan, 0.0]]), np.array([0])),
        (np.array([[-np.inf, 0.0]]), np.array([0])),
        (np.zeros((2, 1)), np.zeros(2, int)),
        (np.zeros((0, 2)), np.zeros(0, int)),
        (np.zeros((2, 2)), np.array([0, 2])),
        (np.zeros((2, 2)), np.array([0.0, 1.0])),
        (np.zeros((2, 2)), np.array([0])),
    ],
)
def test_a_temperature_is_not_fitted_on_what_is_wrong(logits: np.ndarray, labels: np.ndarray) -> None:
    with pytest.raises(InputError):
        fit_temperature(logits, labels)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_is_above_zero(bad: float) -> None:
    with pytest.raises(InputError):
        Temperature(constant(0.5, 0.5), bad)


def test_single_images_and_empty_batches() -> None:
    ensemble = Ensemble([constant(0.9, 0.1)])
    empty: Prediction = ensemble.answer(images(0), 4)
    assert empty.probabilities.shape == (0, 2)
    assert Temperature(ensemble, 2.0).answer(images(1), 4).probabilities.shape == (1, 2)
