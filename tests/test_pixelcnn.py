"""PixelCNN++: its conditionals are a distribution, it never looks ahead, and its likelihood is that of the formula."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator

import mpmath
import numpy as np
import pytest
from scipy import stats

from roadworthy.core.errors import InputError

torch = pytest.importorskip("torch")

from roadworthy.models.density.baseline import independent_bits  # noqa: E402
from roadworthy.models.density.layers import NormalisedLayer  # noqa: E402
from roadworthy.models.density.logistics import bits_per_dimension, conditional, log_likelihood  # noqa: E402
from roadworthy.models.density.pixelcnn import initialise, pixelcnn  # noqa: E402
from roadworthy.models.density.rows import RowNetwork  # noqa: E402
from roadworthy.models.density.sampling import sample  # noqa: E402
from roadworthy.models.networks import onnx_bytes  # noqa: E402
from roadworthy.models.onnx import cpu_session  # noqa: E402

CASES = [(channels, trained) for channels in (1, 3) for trained in (False, True)]
case = pytest.mark.parametrize(("channels", "trained"), CASES, ids=lambda value: str(value))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images_of(count: int, channels: int, size: tuple[int, int], seed: int = 0) -> torch.Tensor:
    """Random images that hold k / 255, edges among them."""
    values = np.random.default_rng(seed).integers(-20, 276, (count, channels, *size)).clip(0, 255)
    return torch.from_numpy(values.astype(np.float32) / np.float32(255))


def network_of(channels: int, trained: bool, filters: int = 6, blocks: int = 1) -> torch.nn.Module:
    """A small network, with weights as they are drawn or as a few steps of training leave them."""
    return copy.deepcopy(_network_of(channels, trained, filters, blocks))


@functools.cache
def _network_of(channels: int, trained: bool, filters: int, blocks: int) -> torch.nn.Module:
    torch.manual_seed(channels)
    network = pixelcnn(channels, filters=filters, blocks=blocks)
    if trained:
        images = images_of(8, channels, (6, 5))
        initialise(network, images)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
        for _ in range(6):
            optimizer.zero_grad()
            bits_per_dimension(network(images), images).mean().backward()
            optimizer.step()
    return network.eval()


def slow_log_likelihood(parameters: np.ndarray, image: np.ndarray, mixtures: int) -> float:
    """The formula with 60 digits, pixel by pixel: parameters (P, H, W), image (C, H, W) of 0..255."""
    channels, height, width = image.shape
    with mpmath.workdps(60):
        return float(
            sum(
                mpmath.log(slow_likelihood(parameters[:, row, column], image[:, row, column], mixtures, channels))
                for row in range(height)
                for column in range(width)
            )
        )


def slow_likelihood(values: np.ndarray, pixel: np.ndarray, mixtures: int, channels: int) -> mpmath.mpf:
    """The probability of one pixel: its values (P,) are logits, means, log scales and coefficients."""
    logits, rest = [mpmath.mpf(float(value)) for value in values[:mixtures]], values[mixtures:].astype(float)
    x = [2 * mpmath.mpf(int(value)) / 255 - 1 for value in pixel]
    total = mpmath.mpf(0)
    for component in range(mixtures):
        mean = [mpmath.mpf(rest[channel * mixtures + component]) for channel in range(channels)]
        if channels == 3:
            a, b, c = (mpmath.tanh(rest[(6 + number) * mixtures + component]) for number in range(3))
            mean = [mean[0], mean[1] + a * x[0], mean[2] + b * x[0] + c * x[1]]
        mass = mpmath.exp(logits[component]) / sum(mpmath.exp(logit) for logit in logits)
        for channel in range(channels):
            scale = mpmath.exp(max(rest[(channels + channel) * mixtures + component], -7))
            upper = (x[channel] + mpmath.mpf(1) / 255 - mean[channel]) / scale if pixel[channel] < 255 else mpmath.inf
            lower = (x[channel] - mpmath.mpf(1) / 255 - mean[channel]) / scale if pixel[channel] > 0 else -mpmath.inf
            # A logistic is symmetric: in its upper tail both are turned round, so that no digits cancel.
            lower, upper = (-upper, -lower) if lower > 0 else (lower, upper)
            mass *= 1 / (1 + mpmath.exp(-upper)) - 1 / (1 + mpmath.exp(-lower))
        total += mass
    return total


@case
def test_each_conditional_sums_to_one(channels: int, trained: bool) -> None:
    network, images = network_of(channels, trained), images_of(2, channels, (7, 5))
    with torch.no_grad():
        parameters = network(images)
        for channel in range(channels):
            sums = conditional(parameters, images, channel).sum(1)
            torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-4, rtol=0)


@case
def test_conditionals_multiply_to_the_likelihood_of_the_image(channels: int, trained: bool) -> None:
    network, images = network_of(channels, trained), images_of(3, channels, (4, 5))
    with torch.no_grad():
        parameters = network(images)
        logs = torch.zeros(3)
        for channel in range(channels):
            values = (images[:, channel : channel + 1] * 255).round().long()
            logs += conditional(parameters, images, channel).gather(1, values).log().flatten(1).sum(1)
        torch.testing.assert_close(log_likelihood(parameters, images), logs, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("trained", [False, True])
def test_likelihoods_of_all_images_of_two_pixels_sum_to_one(trained: bool) -> None:
    network = network_of(1, trained, filters=3)
    values = torch.arange(256) / 255
    images = torch.cartesian_prod(values, values).view(-1, 1, 1, 2)
    with torch.no_grad():
        total = sum(log_likelihood(network(part), part).double().exp().sum() for part in images.split(8192))
    assert total == pytest.approx(1, abs=1e-3)


def influence(network: torch.nn.Module, channels: int, size: tuple[int, int]) -> torch.Tensor:
    """How much each pixel moves the parameters of each: (H * W of targets, H * W of sources), by gradients.

    Image number t of the batch is asked about its pixel number t.
    """
    count = size[0] * size[1]
    images = images_of(count, channels, size).requires_grad_()
    answer = network(images).flatten(2).diagonal(dim1=0, dim2=2)
    (answer * torch.linspace(1, 2, len(answer))[:, None]).sum().backward()
    assert images.grad is not None
    return images.grad.abs().sum(1).flatten(1)


def assert_sees_what_comes_before(moved: torch.Tensor) -> None:
    """Every target is moved by all pixels before it, and by nothing else."""
    before = torch.ones_like(moved).tril(-1).bool()
    assert (moved[before] > 0).all(), (~before | (moved > 0)).logical_not().nonzero()
    assert (moved[~before] == 0).all(), (before | (moved == 0)).logical_not().nonzero()


@pytest.mark.parametrize("size", [(7, 5), (1, 6), (6, 1)], ids=str)
@case
def test_a_pixel_is_predicted_from_all_that_come_before_it_and_from_nothing_else(
    channels: int, trained: bool, size: tuple[int, int]
) -> None:
    assert_sees_what_comes_before(influence(network_of(channels, trained, blocks=2), channels, size))


@case
def test_changed_pixels_leave_all_earlier_conditionals_as_they_were(channels: int, trained: bool) -> None:
    network, images = network_of(channels, trained), images_of(2, channels, (9, 6))
    with torch.no_grad():
        before = network(images).flatten(2)
        for first in (0, 1, 6, 25, 42, 50):
            changed = images.clone().flatten(2)
            changed[:, :, first:] = images_of(2, channels, (9, 6), seed=1).flatten(2)[:, :, first:]
            after = network(changed.view_as(images)).flatten(2)
            torch.testing.assert_close(after[:, :, : first + 1], before[:, :, : first + 1], atol=1e-6, rtol=0)
            assert first == 50 or not torch.equal(after, before)


def test_later_channels_of_a_pixel_leave_the_conditionals_of_earlier_ones() -> None:
    network, images = network_of(3, True), images_of(2, 3, (4, 4))
    with torch.no_grad():
        parameters = network(images)
        for channel in range(3):
            changed = images.clone()
            changed[:, channel:] = images_of(2, 3, (4, 4), seed=1)[:, channel:]
            ours, theirs = (conditional(parameters, given, channel) for given in (images, changed))
            assert torch.equal(ours, theirs)
            if channel:
                changed = images.clone()
                changed[:, channel - 1] = 1 - images[:, channel - 1]
                assert not torch.allclose(conditional(parameters, changed, channel), ours)


@pytest.mark.parametrize("spread", [0.3, 3.0, 20.0])
@pytest.mark.parametrize(("channels", "mixtures"), [(1, 1), (1, 5), (3, 1), (3, 10)])
def test_likelihood_is_that_of_the_slow_formula(channels: int, mixtures: int, spread: float) -> None:
    rng = np.random.default_rng(0)
    shape = (2, (3 if channels == 1 else 10) * mixtures, 4, 5)
    parameters = (rng.normal(size=shape) * spread).clip(-9, 9)
    values = rng.choice([0, 0, 1, 17, 128, 254, 255, 255], (2, channels, 4, 5))
    expected = [slow_log_likelihood(*pair, mixtures) for pair in zip(parameters, values, strict=True)]
    for kind in (torch.float64, torch.float32):
        images = torch.from_numpy(values).to(kind) / 255
        answer = log_likelihood(torch.from_numpy(parameters).to(kind), images)
        np.testing.assert_allclose(answer.numpy(), expected, rtol=1e-9 if kind == torch.float64 else 1e-4)
    bits = bits_per_dimension(torch.from_numpy(parameters), torch.from_numpy(values).double() / 255)
    np.testing.assert_allclose(bits.numpy(), -np.array(expected) / np.log(2) / values[0].size, rtol=1e-9)


def test_likelihood_of_trained_networks_is_that_of_the_slow_formula() -> None:
    for channels, mixtures in ((1, 5), (3, 10)):
        network, images = network_of(channels, True), images_of(2, channels, (5, 4))
        with torch.no_grad():
            parameters = network(images)
            answer = log_likelihood(parameters, images)
        values = (images * 255).round().int().numpy()
        expected = [slow_log_likelihood(*pair, mixtures) for pair in zip(parameters.numpy(), values, strict=True)]
        np.testing.assert_allclose(answer.numpy(), expected, rtol=1e-4)


def test_likelihood_and_its_gradient_stay_finite_for_extreme_parameters() -> None:
    parameters = torch.tensor([-200.0, 0.0, 200.0]).view(1, 3, 1).expand(10, 3, 6).reshape(1, 30, 2, 3)[:, :, :, :]
    parameters = parameters.clone().requires_grad_()
    for value in (0.0, 128 / 255, 1.0):
        answer = log_likelihood(parameters, torch.full((1, 3, 2, 3), value))
        answer.sum().backward()
        assert torch.isfinite(answer).all()
        assert torch.isfinite(parameters.grad).all()


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "parameters"), [(1, 15), (3, 100)])
def test_the_published_size_is_causal_and_normalised(channels: int, parameters: int) -> None:
    torch.manual_seed(0)
    network = pixelcnn(channels).eval()
    images = images_of(1, channels, (5, 3))
    with torch.no_grad():
        answer = network(images)
        assert answer.shape == (1, parameters, 5, 3)
        sums = conditional(answer, images, channels - 1).sum(1)
        torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-4, rtol=0)
    assert_sees_what_comes_before(influence(network, channels, (5, 3)))


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (3, 3), (28, 28), (5, 32)], ids=str)
def test_any_size_and_one_image(size: tuple[int, int]) -> None:
    for channels, parameters in ((1, 15), (3, 100)):
        network, images = network_of(channels, False), images_of(1, channels, size)
        answer = network(images)
        assert answer.shape == (1, parameters, *size)
        bits_per_dimension(answer, images).sum().backward()
        assert torch.isfinite(network.stem_above.direction.grad).all()


def test_rows_below_and_other_images_of_the_batch_do_not_matter() -> None:
    network, images = network_of(1, True), images_of(3, 1, (9, 6))
    with torch.no_grad():
        whole = network(images)
        for rows in range(1, 9):
            torch.testing.assert_close(network(images[:1, :, :rows]), whole[:1, :, :rows], atol=1e-5, rtol=0)


def test_weights_are_normalised_and_the_first_batch_sets_the_scale() -> None:
    torch.manual_seed(0)
    network = pixelcnn(3, filters=8, blocks=1, dropout=0).eval()
    images = images_of(8, 3, (8, 8))
    initialise(network, images)
    layers = {name: layer for name, layer in network.named_modules() if isinstance(layer, NormalisedLayer)}
    answers = {}
    for name, layer in layers.items():
        lengths = layer.weight().flatten(1).norm(dim=1)
        torch.testing.assert_close(lengths, layer.gain.abs(), atol=1e-5, rtol=1e-4)
        layer.register_forward_hook(lambda _, __, answer, name=name: answers.update({name: answer}))
    network(images)
    for name, layer in layers.items():
        means, deviations = answers[name].mean((0, 2, 3)), answers[name].std((0, 2, 3), correction=0)
        torch.testing.assert_close(means, torch.zeros_like(means), atol=1e-3, rtol=0, msg=name)
        torch.testing.assert_close(deviations, torch.full_like(means, layer.scale), atol=1e-3, rtol=1e-2, msg=name)
    assert {layer.scale for layer in layers.values()} == {1.0, 0.1}


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_the_likelihood_is_the_same_as_an_onnx_graph_for_any_number_of_images(channels: int) -> None:
    class Likelihood(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network_of(channels, True)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return log_likelihood(self.network(image), image)

    model, images = Likelihood(), images_of(5, channels, (6, 5))
    session = cpu_session(onnx_bytes(model, {"image": images[:2]}, ["log_likelihood"]))
    with torch.no_grad():
        np.testing.assert_allclose(session.run(None, {"image": images.numpy()})[0], model(images).numpy(), rtol=1e-5)


def test_dropout_acts_in_training_only() -> None:
    network, images = network_of(1, True), images_of(2, 1, (6, 6))
    assert torch.equal(network(images), network(images))
    network.train()
    assert not torch.equal(network(images), network(images))


@pytest.mark.parametrize("channels", [1, 3])
def test_samples_are_decided_by_the_seed_and_the_number_of_the_image(channels: int) -> None:
    network = network_of(channels, True)
    ours = sample(network, 3, (5, 4), channels, seed=7)
    assert (ours.shape, ours.dtype) == ((3, 5, 4, channels), np.uint8)
    np.testing.assert_array_equal(ours, sample(network, 3, (5, 4), channels, seed=7))
    np.testing.assert_array_equal(ours[:2], sample(network, 2, (5, 4), channels, seed=7))
    assert not np.array_equal(ours, sample(network, 3, (5, 4), channels, seed=8))
    assert not network.training


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(9, 5)], ids=str)
def test_rows_one_by_one_give_what_the_whole_network_gives(channels: int, size: tuple[int, int]) -> None:
    network, images = network_of(channels, True, blocks=2), images_of(2, channels, size)
    rows = RowNetwork(network)
    with torch.no_grad():
        whole = network(images)
        for number in range(size[0]):
            rows.start(images[:, :, [max(number - 1, 0)]])
            half = images[:, :, [number]].clone()
            half[..., size[1] // 2 :] = 0
            first = rows.parameters(half)[:, :, 0, : size[1] // 2]
            answer = rows.parameters(images[:, :, [number]])[:, :, 0]
            rows.finish()
            torch.testing.assert_close(answer, whole[:, :, number], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(first, whole[:, :, number, : size[1] // 2], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_first_pixels_follow_the_conditional(channels: int) -> None:
    network = network_of(channels, True)
    drawn = sample(network, 1500, 1, channels, seed=1)
    images = torch.from_numpy(drawn.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    rng = np.random.default_rng(0)
    with torch.no_grad():
        parameters = network(images)
        for channel in range(channels):
            probabilities = conditional(parameters, images, channel)[:, :, 0, 0].numpy().astype(float)
            values = drawn[:, 0, 0, channel]
            masses = np.take_along_axis(probabilities, values[:, None].astype(int), 1)[:, 0]
            upper = np.take_along_axis(probabilities.cumsum(1), values[:, None].astype(int), 1)[:, 0]
            # Within its bin a value is spread evenly: what comes out is uniform if the draws follow the conditional.
            assert stats.kstest(upper - masses * rng.random(len(values)), "uniform").pvalue > 1e-3


def test_independent_bits_are_those_of_counted_values() -> None:
    rng = np.random.default_rng(0)
    training, test = (rng.integers(0, 4, (count, 2, 3, 2)).astype(np.uint8) * 85 for count in (9, 5))
    expected = 0.0
    for image in test:
        for place in np.ndindex(2, 3, 2):
            times = sum(int(other[place] == image[place]) for other in training)
            expected -= np.log2((times + 0.5) / (9 + 128)) / test.size
    assert independent_bits(training, test) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(InputError, match="make them equal"):
        independent_bits(training, test[:, :1])
    with pytest.raises(InputError, match="must be uint8"):
        independent_bits(training.astype(float), test)


def test_what_cannot_be_built_is_refused() -> None:
    for wrong in ({"channels": 2}, {"filters": 0}, {"blocks": 0}, {"mixtures": 0}, {"dropout": 1.0}):
        with pytest.raises(InputError):
            pixelcnn(**{"channels": 1, **wrong})
    network = network_of(1, False)
    with pytest.raises(InputError, match=r"takes images \(N, 1, H, W\)"):
        network(torch.zeros(1, 3, 4, 4))
    with pytest.raises(InputError, match="do not fit"):
        log_likelihood(torch.zeros(1, 15, 4, 4), torch.zeros(1, 3, 4, 4))
    with pytest.raises(InputError, match="no channel 1"):
        conditional(torch.zeros(1, 15, 4, 4), torch.zeros(1, 1, 4, 4), 1)
    with pytest.raises(InputError, match="cannot be drawn"):
        sample(network, 0, 4, 1, seed=0)
