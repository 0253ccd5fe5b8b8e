"""The robustness radius: exact on linear networks, and no change within it alters an answer."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.types import Batch
from roadworthy.models import CallableModel, TorchModel, align
from roadworthy.models.networks import small_resnet, small_vgg, thesis_cnn
from roadworthy.models.preprocess import parse_range
from roadworthy.monitors import RobustnessRadius, check_monitor, make_monitor
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.monitors.network_bounds import Box, chain_of
from roadworthy.shifts.adversarial import Pgd

torch = pytest.importorskip("torch")
nn = torch.nn
BOUNDS = ["interval", "linear"]
TRAIN, _, TEST, _ = toy_data()


def images(count: int, size: tuple[int, int] = (8, 8), channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *size, channels), dtype=np.uint8)


def batch_of(pixels: np.ndarray) -> Batch:
    ids = [str(index) for index in range(len(pixels))]
    return Batch(ids=ids, images=pixels, labels=np.zeros(len(pixels), np.int64))


def radii(monitor: RobustnessRadius, model: Any, pixels: np.ndarray) -> np.ndarray:
    return monitor.build(model).represent(model, batch_of(pixels), size=len(pixels))[:, 0]


def seeded(seed: int, *layers: Any) -> Any:
    """The layers with weights drawn from a seed, batch normalisations with statistics of their own."""
    generator = torch.Generator().manual_seed(seed)
    network = nn.Sequential(*layers).eval()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
                module.running_mean.normal_(generator=generator)
                module.running_var.uniform_(0.5, 2, generator=generator)
        for weights in network.parameters():
            spread = 1 / math.sqrt(weights[0].numel()) if weights.ndim > 1 else 0.3
            weights.normal_(0, spread, generator=generator)
    return network


def every_layer(seed: int) -> Any:
    """A network for 9x9 images with every kind of layer that can be bounded."""
    return seeded(
        seed,
        nn.Conv2d(3, 4, 3, padding="same", bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Sequential(nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2), nn.ReLU(), nn.Dropout2d(0.2)),
        nn.AvgPool2d(2, stride=1, padding=1),
        nn.Conv2d(6, 4, 2, stride=2),
        nn.MaxPool2d(2, 1),
        nn.Identity(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 6),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(6, 4),
    )


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(("range_", "colour"), [("0-1", "rgb"), ("-1-1", "rgb"), ("imagenet", "bgr"), ("0-255", "rgb")])
def test_a_linear_network_has_the_radius_of_its_closed_form(bounds: str, range_: str, colour: str) -> None:
    network = seeded(0, nn.Flatten(), nn.Linear(48, 5))
    model = TorchModel(network, size=4, range=range_, colour=colour, name="linear")
    pixels = images(6, (4, 4))
    found = radii(RobustnessRadius(bounds=bounds, steps=30), model, pixels)
    weight = network[1].weight.detach().double().numpy().reshape(5, 3, 16)
    std = np.broadcast_to(parse_range(range_)[1], 3)[:: -1 if colour == "bgr" else 1]
    logits = model.run(model.preprocess(pixels)).logits.astype(np.float64)
    for radius, row in zip(found, logits, strict=True):
        answer = row.argmax()
        reach = np.abs((weight[answer] - weight) / (255 * std[:, None])).sum((1, 2))
        others = np.arange(5) != answer
        assert radius == pytest.approx(((row[answer] - row) / np.where(others, reach, 1))[others].min(), rel=1e-3)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_layout_of_pixels_does_not_matter(bounds: str) -> None:
    network = seeded(1, nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    order = np.arange(12).reshape(3, 2, 2).transpose(1, 2, 0).ravel()
    turned = seeded(1, nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        turned[1].weight.copy_(network[1].weight[:, order])
    pixels, range_ = images(5, (2, 2)), "0.1,0.2,0.3/0.5,0.6,0.7"
    monitor = RobustnessRadius(bounds=bounds)
    straight = radii(monitor, TorchModel(network, size=2, range=range_), pixels)
    nhwc = radii(monitor, TorchModel(turned, size=2, range=range_, layout="nhwc"), pixels)
    np.testing.assert_allclose(straight, nhwc, rtol=0.03)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(BOUNDS))
def test_no_point_of_a_fine_grid_within_the_radius_has_another_answer(seed: int, bounds: str) -> None:
    network = seeded(seed, nn.Flatten(), nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model = TorchModel(network, size=1, outputs="logits", name="tiny")
    pixels = images(4, (1, 1), seed=seed)
    steps = np.linspace(-1, 1, 21)
    grid = np.array(list(product(steps, steps, steps)))
    for radius, pixel in zip(radii(RobustnessRadius(bounds=bounds), model, pixels), pixels, strict=True):
        points = (pixel.reshape(1, 3) + radius * grid) / 255
        with torch.no_grad():
            logits = network(torch.from_numpy(points).float().reshape(-1, 3, 1, 1))
        answers = logits.argmax(1)
        assert (answers == answers[len(grid) // 2]).all()


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.001, 0.05, 0.5, 3.0]), st.sampled_from(["float32", "float64"]))
def test_bounds_hold_on_all_of_the_box_for_every_kind_of_layer(seed: int, reach: float, dtype: str) -> None:
    network = every_layer(seed)
    chain = chain_of(network, (3, 9, 9), "every", dtype)
    generator = torch.Generator().manual_seed(seed)
    numbers = getattr(torch, dtype)
    centre = torch.randn(3, 3, 9, 9, generator=generator, dtype=numbers)
    functions = torch.randn(3, 5, 4, generator=generator, dtype=numbers)
    with torch.inference_mode():
        boxes = chain.boxes(Box(centre - reach, centre + reach))
        bounds = [chain.lowest(functions, boxes, linear=linear) for linear in (False, True)]
        signs = torch.randn(200, 1, 3, 9, 9, generator=generator, dtype=numbers)
        spots = torch.cat([signs[:100].sign(), signs[100:].clamp(-1, 1), torch.zeros_like(signs[:1])])
        reached = (centre + reach * spots).flatten(0, 1)
        logits = network.to(numbers)(reached).reshape(len(spots), 3, 1, 4)
        values = (logits * functions).sum(3)
        for lowest, scale in bounds:
            assert (values >= lowest - 1e-5 * scale).all()
        assert (bounds[1][0] >= bounds[0][0]).all()
        behind = boxes[0]
        for layer, box, following in zip(chain.layers, boxes, boxes[1:], strict=False):
            assert box is behind
            reached = layer.apply(reached)
            by_image = reached.reshape(len(spots), 3, *reached.shape[1:])
            room = 1e-5 * (1 + by_image.abs().amax())
            assert (by_image >= following.low - room).all()
            assert (by_image <= following.high + room).all()
            behind = following


def test_the_bound_of_a_point_is_the_value_itself() -> None:
    network = every_layer(3)
    chain = chain_of(network, (3, 9, 9), "every", "float64")
    centre = torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.inference_mode():
        logits = network.double()(centre)
        functions = torch.eye(4, dtype=torch.float64).expand(4, 4, 4)
        for linear in (False, True):
            lowest, _ = chain.lowest(functions, chain.boxes(Box(centre, centre)), linear=linear)
            np.testing.assert_allclose(lowest, logits, atol=1e-9)


def test_an_attack_within_the_radius_never_succeeds_and_one_beyond_does() -> None:
    network = seeded(5, nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4))
    model = TorchModel(network, size=8, name="attacked")
    pixels = images(40)
    found = radii(RobustnessRadius(bounds="linear"), model, pixels)
    answers = model.run(model.preprocess(pixels)).probabilities.argmax(1)
    batch = Batch(ids=[str(i) for i in range(40)], images=pixels, labels=answers.astype(np.int64))
    within, beyond = 0, 0
    for epsilon in (1, 2, 3, 5, 8, 64):
        attacked = Pgd(epsilon=epsilon, steps=5).bound(model)(batch, Streams(0)).images
        changed = model.run(model.preprocess(attacked)).probabilities.argmax(1) != answers
        safe = found >= epsilon
        assert not changed[safe].any()
        within, beyond = within + int(safe.sum()), beyond + int(changed.sum())
    assert within > 10
    assert beyond > 10


def test_linear_bounds_prove_more_than_intervals_and_both_order_alike() -> None:
    network = seeded(7, nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))
    model = TorchModel(network, size=8, name="deep")
    interval, linear = (radii(RobustnessRadius(bounds=bounds), model, images(30)) for bounds in BOUNDS)
    assert (linear >= 0.98 * interval).all()
    assert np.median(linear / interval) > 1.5
    assert np.corrcoef(np.argsort(np.argsort(linear)), np.argsort(np.argsort(interval)))[0, 1] > 0.6


@pytest.mark.parametrize("bounds", BOUNDS)
def test_equal_logits_have_radius_zero_and_a_constant_answer_the_largest(bounds: str) -> None:
    network = seeded(0, nn.Flatten(), nn.Linear(12, 2))
    with torch.no_grad():
        network[1].weight.zero_()
        network[1].bias.fill_(2.0)
    pixels = images(2, (2, 2))
    monitor = RobustnessRadius(bounds=bounds, largest=100.0, steps=20)
    assert radii(monitor, TorchModel(network, size=2, outputs="logits"), pixels).tolist() == [0, 0]
    with torch.no_grad():
        network[1].bias[1] = 3.0
    assert radii(monitor, TorchModel(network, size=2, outputs="logits"), pixels) == pytest.approx([100, 100], rel=1e-4)


def test_a_softmax_at_the_end_and_another_order_of_classes_change_nothing() -> None:
    layers = nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3)
    network = seeded(2, *layers)
    pixels = images(6, (2, 2))
    plain = TorchModel(network, size=2, classes=["a", "b", "c"], name="plain")
    expected = radii(RobustnessRadius(), plain, pixels)
    assert (expected > 0).all()
    soft = TorchModel(nn.Sequential(network, nn.Softmax(1)), size=2, name="soft")
    np.testing.assert_array_equal(radii(RobustnessRadius(), soft, pixels), expected)
    np.testing.assert_array_equal(radii(RobustnessRadius(), align(plain, ["c", "a", "b"]), pixels), expected)


def test_chunks_of_images_give_the_same_radii(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TorchModel(every_layer(1), size=9, name="every")
    pixels = images(7, (9, 9))
    whole = radii(RobustnessRadius(bounds="linear"), model, pixels)
    monkeypatch.setattr("roadworthy.monitors.robustness_radius.MOST_VALUES", 3000)
    np.testing.assert_allclose(radii(RobustnessRadius(bounds="linear"), model, pixels), whole, rtol=0.03)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_few_steps_come_close_to_the_radius_of_many(bounds: str) -> None:
    model = TorchModel(every_layer(2), size=9, name="every")
    few, many = (radii(RobustnessRadius(bounds=bounds, steps=steps), model, images(8, (9, 9))) for steps in (10, 30))
    np.testing.assert_allclose(few, many, rtol=0.02)
    assert len(np.unique(few)) == 8


def test_the_module_stays_as_it_was() -> None:
    network = every_layer(0).train()
    model = TorchModel(network, size=9, name="every")
    before = model.fingerprint()
    radii(RobustnessRadius(), model, images(2, (9, 9)))
    assert model.fingerprint() == before
    assert network.training


@pytest.mark.parametrize("bounds", ["interval", pytest.param("linear", marks=pytest.mark.slow)])
def test_it_keeps_the_promises_of_monitors(bounds: str) -> None:
    network = seeded(0, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48, 6), nn.ReLU(), nn.Linear(6, 4))
    check_monitor(lambda: RobustnessRadius(bounds=bounds), model=TorchModel(network, size=8, name="small"))


def test_reference_networks_can_be_bounded() -> None:
    for network in (thesis_cnn(4, 8, width=4, hidden=8, dropout=0.3), small_vgg(4, 8, width=2, hidden=8)):
        model = TorchModel(seeded(0, network), size=8, outputs="logits", name="reference")
        assert (radii(RobustnessRadius(), model, images(3)) > 0).all()


class Halved(nn.Sequential):
    def forward(self, values: Any) -> Any:
        return super().forward(values) / 2


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (lambda: small_resnet(4, 8), "because of its Residual: use a Sequential of Conv2d"),
        (lambda: seeded(0, nn.Flatten(), nn.Linear(192, 4), nn.Sigmoid(), nn.Linear(4, 4)), "because of its Sigmoid"),
        (lambda: Halved(nn.Flatten(), nn.Linear(192, 4)), "because of its Halved"),
    ],
)
def test_networks_of_other_layers_are_refused_before_they_run(network: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        RobustnessRadius().check(TorchModel(seeded(0, network()), size=8, outputs="logits", name="other"))


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ((nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.LazyLinear(4)), "MaxPool2d with padding"),
        ((nn.AvgPool2d(3, ceil_mode=True), nn.Flatten(), nn.LazyLinear(4)), "AvgPool2d with ceil_mode"),
        ((nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LazyLinear(4)), "AdaptiveAvgPool2d"),
        ((nn.Conv2d(3, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.LazyLinear(4)), "padding_mode 'refl"),
        ((nn.Conv2d(3, 2, 2, padding="same"), nn.Flatten(), nn.LazyLinear(4)), "padding 'same' and an even kernel"),
        ((nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten(), nn.LazyLinear(4)), "without running statistics"),
        ((nn.Linear(8, 8), nn.Flatten(), nn.LazyLinear(4)), "Linear of values"),
        ((nn.Flatten(2), nn.Flatten(), nn.LazyLinear(4)), "Flatten of some sides only"),
    ],
)
def test_settings_of_layers_that_cannot_be_bounded_are_refused(layers: tuple[Any, ...], sentence: str) -> None:
    nn.Sequential(*layers)(torch.zeros(2, 3, 8, 8))
    network = seeded(0, *layers)
    with pytest.raises(InputError, match=sentence):
        radii(RobustnessRadius(), TorchModel(network, size=8, outputs="logits", name="other"), images(2))


def test_a_network_that_answers_other_than_its_layers_is_refused() -> None:
    network = seeded(0, nn.Flatten(), nn.Linear(192, 4))
    network[1].register_forward_hook(lambda module, inputs, output: 2 * output + 1)
    with pytest.raises(InputError, match="answers other than its layers one after the other do; remove hooks"):
        radii(RobustnessRadius(), TorchModel(network, size=8, name="hooked"), images(2))


def test_models_that_show_no_network_are_refused() -> None:
    with pytest.raises(InputError, match="monitor robustness_radius bounds torch networks: supply a torch model"):
        RobustnessRadius().check(ToyModel())
    plain = CallableModel(lambda pixels: np.full((len(pixels), 2), 0.5, np.float32), classes=["a", "b"], name="plain")
    with pytest.raises(InputError, match="needs gradients, which model plain does not give"):
        RobustnessRadius().check(plain)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"bounds": "zonotope"}, "bounds are interval or linear, not 'zonotope'"),
        ({"steps": 0}, "steps is a whole number of at least 1"),
        ({"steps": 41}, "steps"),
        ({"smallest": 0.0}, "0 < smallest < largest"),
        ({"smallest": 2.0, "largest": 1.0}, "0 < smallest < largest"),
        ({"largest": math.inf}, "largest"),
        ({"smallest": math.nan}, "smallest"),
    ],
)
def test_bad_settings_are_refused(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_monitor("robustness_radius", **parameters)
