"""Perception networks: backbones against transformers, dropout counted by placement, training, storage and ONNX."""

from __future__ import annotations

import copy
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from roadworthy.core.errors import InputError, MissingExtra, UnknownName
from roadworthy.models.networks import load_weights, onnx_bytes, save_weights
from roadworthy.models.onnx import cpu_session
from roadworthy.models.perception import BACKBONES, PLACEMENTS, active_layers, perception_network
from roadworthy.models.perception.big_backbones import IMAGENET_MEAN, IMAGENET_STD, build_big
from roadworthy.models.perception.small_backbones import Bottleneck, ConvNextBlock, MBConv, PositionReadout
from roadworthy.uncertainty import McDropout
from roadworthy.uncertainty.subnetworks import subnetworks

BIG = {
    "resnet50": (23_508_032, 2048, 48),
    "efficientnet_b0": (4_007_548, 1280, 15),
    "convnext_tiny": (27_820_128, 768, 18),
}
"""Published numbers of weights without the classifier, features, and dropout layers inside the backbone."""
SMALL = {"small_resnet": 15, "small_efficientnet": 5, "small_convnext": 5}
HEAD_LAYERS = {"none": 0, "last_layer": 1, "after_backbone": 1, "head": 3, "full": 3}
SIDE = 32
OUTPUTS = 7


def seeded(backbone: str, outputs: int = OUTPUTS, size: int | tuple[int, int] = 64, **settings: Any) -> nn.Module:
    torch.manual_seed(3)
    return perception_network(backbone, outputs, size=size, **settings)


def placed(backbone: str, placement: str, size: int = 64) -> nn.Module:
    return seeded(backbone, size=size, placement=placement, p=0.0 if placement == "none" else 0.05)


def images(number: int = 2, side: int = 64) -> torch.Tensor:
    return torch.rand(number, 3, side, side, generator=torch.Generator().manual_seed(1))


def answers(network: nn.Module, tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        values: torch.Tensor = network.eval()(tensor)
    return values


def train_one_step(network: nn.Module, tensor: torch.Tensor) -> list[str]:
    """One step of Adam; the names of the weights that got no gradient, or one that is not finite."""
    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    torch.nn.functional.cross_entropy(network(tensor), torch.arange(len(tensor)) % OUTPUTS).backward()
    optimizer.step()
    gradients = {name: weight.grad for name, weight in network.named_parameters()}
    return [name for name, gradient in gradients.items() if gradient is None or not gradient.isfinite().all()]


@cache
def full_network(backbone: str) -> nn.Module:
    """A big network with dropout everywhere, trained for one step; tests share it and leave it as it is."""
    network = placed(backbone, "full", size=SIDE)
    before = {name: weight.clone() for name, weight in network.named_parameters()}
    assert train_one_step(network, images(side=SIDE)) == []
    assert any(not torch.equal(weight, before[name]) for name, weight in network.named_parameters())
    return network.eval()


@cache
def reloaded(backbone: str, placement: str) -> nn.Module:
    """A network of a placement with the same weights, made without drawing random ones first."""
    with torch.device("meta"):
        network = placed(backbone, placement, size=SIDE)
    network.load_state_dict(full_network(backbone).state_dict(), assign=True)
    return network.eval()


class TestBigBackbones:
    @pytest.mark.parametrize("name", BIG)
    def test_weights_and_features_are_those_of_the_paper(self, name: str) -> None:
        weights, features, dropout_layers = BIG[name]
        backbone = full_network(name).backbone
        assert sum(weight.numel() for weight in backbone.parameters()) == weights
        assert answers(backbone, images(side=SIDE)).shape == (2, features)
        assert BACKBONES.get(name).dropout_layers == dropout_layers

    @pytest.mark.parametrize("name", BIG)
    def test_features_are_the_pooled_output_of_transformers(self, name: str) -> None:
        backbone, tensor = copy.deepcopy(reloaded(name, "none").backbone).train(), images(side=64)
        with torch.no_grad():
            expected = backbone.model(tensor).pooler_output.flatten(1)
            torch.testing.assert_close(backbone(tensor), expected)
        assert expected.std(0).mean() > 0.05

    @pytest.mark.parametrize("name", BIG)
    @pytest.mark.parametrize("placement", PLACEMENTS)
    def test_active_layers_are_counted_and_answers_without_dropout_agree(self, name: str, placement: str) -> None:
        network = reloaded(name, placement)
        layers = active_layers(network)
        inside = [layer for layer in layers if layer.startswith("backbone.")]
        assert len(inside) == (BIG[name][2] if placement == "full" else 0)
        assert len(layers) - len(inside) == HEAD_LAYERS[placement]
        modules = [module for module in network.modules() if isinstance(module, nn.Dropout)]
        assert len(modules) == len(layers)
        tensor = images(side=SIDE)
        torch.testing.assert_close(answers(network, tensor), answers(full_network(name), tensor))

    @pytest.mark.parametrize("name", BIG)
    def test_dropout_stands_behind_the_activations_that_the_paper_names(self, name: str) -> None:
        activations = {"resnet50": nn.ReLU, "efficientnet_b0": nn.SiLU, "convnext_tiny": None}
        modules = dict(full_network(name).named_modules())
        behind = [modules[layer.removesuffix("dropout") + "activation"] for layer in inside_layers(name)]
        kind = activations[name]
        assert all("GELU" in type(module).__name__ if kind is None else type(module) is kind for module in behind)

    @pytest.mark.parametrize("name", BIG)
    @pytest.mark.parametrize("placement", ["head", "full"])
    def test_passes_are_traced_and_what_precedes_dropout_runs_once(self, name: str, placement: str) -> None:
        network, tensor = reloaded(name, placement), images(3, SIDE)
        parts = subnetworks(network, tensor.numpy(), "all", None, "torch", "the network")
        assert parts.notes == ()
        assert [layer.name for layer in parts.layers] == active_layers(network)
        values = parts.before(tensor.numpy())
        if placement == "head":
            assert [tuple(value.shape) for value in values] == [(3, BIG[name][1])]
        ones = [np.ones(layer.shape, np.float32) for layer in parts.layers]
        np.testing.assert_allclose(parts.after(values, ones), answers(network, tensor), rtol=1e-4, atol=1e-6)
        dropped = [np.random.default_rng(0).random(layer.shape, np.float32) for layer in parts.layers]
        assert np.abs(parts.after(values, dropped) - parts.after(values, ones)).max() > 0

    def test_a_network_is_stored_and_reloaded_with_the_same_answers(self, tmp_path: Path) -> None:
        network, tensor = full_network("efficientnet_b0"), images(side=SIDE)
        save_weights(tmp_path / "network.safetensors", network.state_dict())
        other = placed("efficientnet_b0", "full", size=SIDE)
        other.load_state_dict(load_weights(tmp_path / "network.safetensors")[0])
        assert torch.equal(answers(other, tensor), answers(network, tensor))

    def test_efficientnet_starts_from_weights_that_can_be_trained(self) -> None:
        torch.manual_seed(0)
        backbone = build_big("efficientnet_b0", 3)
        norms = [module for module in backbone.modules() if isinstance(module, nn.BatchNorm2d)]
        assert {norm.momentum for norm in norms} == {0.01}
        assert all(torch.equal(norm.weight, torch.ones_like(norm.weight)) for norm in norms)
        features = backbone.train()(images(4)).detach()
        assert features.std(0).mean() > 0.05

    def test_grey_images(self) -> None:
        with torch.device("meta"):
            network = perception_network("convnext_tiny", 4, size=(32, 64), channels=1)
            assert tuple(network(torch.zeros(2, 1, 32, 64)).shape) == (2, 4)

    def test_without_transformers_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtra, match=r"\[huggingface\]"):
            build_big("resnet50", 3)


def inside_layers(name: str) -> list[str]:
    return [layer for layer in active_layers(full_network(name)) if layer.startswith("backbone.")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `save_pretrained` of a classifier writes: a configuration, and weights with a prefix and a classifier."""
    folder = tmp_path_factory.mktemp("efficientnet")
    model = full_network("efficientnet_b0").backbone.model
    tensors = {f"efficientnet.{name}": tensor for name, tensor in model.state_dict().items()}
    save_weights(folder / "model.safetensors", tensors | {"classifier.bias": torch.zeros(1000)})
    (folder / "config.json").write_text(json.dumps(model.config.to_dict()))
    return folder


class TestWeightsOfTheUser:
    @pytest.mark.parametrize("part", ["", "model.safetensors"])
    def test_of_transformers_get_the_normalisation_of_imagenet(self, folder: Path, part: str) -> None:
        network = perception_network("efficientnet_b0", 4, size=SIDE, weights=folder / part)
        tensor = images(side=SIDE)
        shape = (1, 3, 1, 1)
        normalised = (tensor - torch.tensor(IMAGENET_MEAN).reshape(shape)) / torch.tensor(IMAGENET_STD).reshape(shape)
        expected = answers(full_network("efficientnet_b0").backbone, normalised)
        torch.testing.assert_close(answers(network.backbone, tensor), expected)

    def test_the_normalisation_is_stored_with_a_network(self, folder: Path) -> None:
        network = perception_network("efficientnet_b0", 4, size=SIDE, weights=folder)
        other = seeded("efficientnet_b0", 4, SIDE)
        other.load_state_dict(network.state_dict())
        assert torch.equal(answers(other, images(side=SIDE)), answers(network, images(side=SIDE)))

    def test_of_this_project_keep_their_normalisation(self, tmp_path: Path) -> None:
        first = seeded("small_convnext")
        save_weights(tmp_path / "network.safetensors", first.state_dict())
        torch.manual_seed(8)
        second = perception_network("small_convnext", 4, size=64, weights=str(tmp_path / "network.safetensors"))
        assert torch.equal(answers(second.backbone, images()), answers(first.backbone, images()))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda tensors: tensors.pop("stem.0.weight"), "lacks stem.0.weight"),
            (lambda tensors: tensors.update({"other": torch.zeros(1)}), "has unknown other"),
            (lambda tensors: tensors.update({"stem.0.weight": torch.zeros(1)}), "has other shapes for stem.0.weight"),
        ],
    )
    def test_that_do_not_fit_are_refused(self, tmp_path: Path, change: Any, message: str) -> None:
        tensors = dict(seeded("small_convnext").backbone.state_dict())
        change(tensors)
        save_weights(tmp_path / "weights.safetensors", tensors)
        with pytest.raises(InputError, match=f"does not fit backbone small_convnext: it {message}"):
            perception_network("small_convnext", 4, size=64, weights=tmp_path / "weights.safetensors")

    def test_of_another_network_are_refused(self, folder: Path, tmp_path: Path) -> None:
        configuration = json.loads((folder / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(configuration | {"width_coefficient": 2.0}))
        with pytest.raises(InputError, match=r"its width_coefficient is 2\.0, not 1\.0"):
            perception_network("efficientnet_b0", 4, size=SIDE, weights=tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(configuration | {"model_type": "resnet"}))
        with pytest.raises(InputError, match="its model_type is resnet, not efficientnet"):
            perception_network("efficientnet_b0", 4, size=SIDE, weights=tmp_path)

    @pytest.mark.parametrize("content", ["{", "[]"])
    def test_with_a_broken_configuration_are_refused(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(InputError, match="a folder that transformers wrote"), torch.device("meta"):
            perception_network("efficientnet_b0", 4, size=SIDE, weights=tmp_path)

    def test_that_are_absent_or_in_another_form_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there are no weights"):
            perception_network("small_resnet", 4, size=64, weights=tmp_path / "absent.safetensors")
        with pytest.raises(InputError, match="is not from transformers"):
            perception_network("small_resnet", 4, size=64, weights=tmp_path)
        (tmp_path / "weights.bin").write_bytes(b"\x80\x02}q\x00.")
        with pytest.raises(InputError, match="cannot be read as safetensors"):
            perception_network("small_resnet", 4, size=64, weights=tmp_path / "weights.bin")

    def test_for_colour_are_refused_for_grey_images(self, folder: Path) -> None:
        with pytest.raises(InputError, match="`channels` must be 3"):
            perception_network("efficientnet_b0", 4, size=SIDE, channels=1, weights=folder)


class TestHead:
    @pytest.mark.parametrize(
        ("placement", "order"),
        [
            ("none", "Linear ReLU Linear ReLU Linear"),
            ("last_layer", "Linear ReLU Linear ReLU Dropout Linear"),
            ("after_backbone", "Dropout Linear ReLU Linear ReLU Linear"),
            ("head", "Dropout Linear ReLU Dropout Linear ReLU Dropout Linear"),
            ("full", "Dropout Linear ReLU Dropout Linear ReLU Dropout Linear"),
        ],
    )
    def test_has_its_layers_in_the_order_of_the_paper(self, placement: str, order: str) -> None:
        head = placed("small_convnext", placement).head
        assert " ".join(type(layer).__name__ for layer in head) == order
        assert [layer.out_features for layer in head if isinstance(layer, nn.Linear)] == [128, 128, OUTPUTS]
        assert {layer.p for layer in head if isinstance(layer, nn.Dropout)} <= {0.05}


class TestSmallBackbones:
    @pytest.mark.parametrize("name", SMALL)
    @pytest.mark.parametrize("placement", PLACEMENTS)
    def test_active_layers_are_counted_and_random_weights_are_the_same(self, name: str, placement: str) -> None:
        network = placed(name, placement)
        layers = active_layers(network)
        inside = [layer for layer in layers if layer.startswith("backbone.")]
        assert len(inside) == (SMALL[name] if placement == "full" else 0)
        assert len(layers) - len(inside) == HEAD_LAYERS[placement]
        plain = placed(name, "none")
        assert sum(isinstance(module, nn.Dropout) for module in plain.modules()) == 0
        state = network.state_dict()
        assert all(torch.equal(tensor, state[key]) for key, tensor in plain.state_dict().items())
        assert len(state) == len(plain.state_dict())

    @pytest.mark.parametrize("name", SMALL)
    def test_number_of_weights_and_a_step_of_training(self, name: str) -> None:
        network = placed(name, "full").to(memory_format=torch.channels_last)
        assert 100_000 <= sum(weight.numel() for weight in network.parameters()) <= 600_000
        assert train_one_step(network, images(4)) == []

    @pytest.mark.parametrize("name", SMALL)
    def test_gradients_are_those_of_double_precision(self, name: str) -> None:
        """Up to single activations near 0, whose ReLU opens in one precision alone: a few percent of a gradient."""
        network, exact = seeded(name), seeded(name).double()
        tensor = images(8)
        train_one_step(network.to(memory_format=torch.channels_last), tensor)
        train_one_step(exact, tensor.double())
        for weight, reference in zip(network.parameters(), exact.parameters(), strict=True):
            assert weight.grad is not None
            assert reference.grad is not None
            difference = (weight.grad.double() - reference.grad).norm()
            assert difference <= 0.1 * reference.grad.norm() + 1e-6

    @pytest.mark.parametrize("name", SMALL)
    def test_the_onnx_graph_gives_the_same_answers(self, name: str) -> None:
        network = placed(name, "full").eval()
        session = cpu_session(onnx_bytes(network, {"image": images()}, ["answer"]))
        tensor = images(3)
        (scores,) = session.run(None, {"image": tensor.numpy()})
        np.testing.assert_allclose(scores, answers(network, tensor).numpy(), atol=1e-5)

    @pytest.mark.parametrize("name", SMALL)
    def test_passes_are_traced_and_run_in_onnx(self, name: str) -> None:
        model = McDropout(placed(name, "full"), passes=2, size=64)
        assert (model.runtime, model.notes) == ("onnx", ())
        assert [layer.name for layer in model.layers] == active_layers(placed(name, "full"))

    @pytest.mark.parametrize("name", SMALL)
    @pytest.mark.parametrize("size", [(16, 16), (17, 40), (128, 144)])
    def test_any_size_from_16_pixels_on(self, name: str, size: tuple[int, int]) -> None:
        network = seeded(name, 4, size, channels=1)
        assert tuple(answers(network, torch.rand(2, 1, *size)).shape) == (2, 4)

    def test_the_readout_is_the_mean_and_a_map_that_keeps_positions(self) -> None:
        readout = PositionReadout(3, (8, 8))
        values = torch.zeros(2, 3, 8, 8)
        values[0, 1, 2, 5] = values[1, 1, 6, 0] = 64.0
        features = answers(readout, values)
        assert torch.equal(features[0, :3], torch.tensor([0.0, 1.0, 0.0]))
        assert torch.equal(features[0, :3], features[1, :3])
        maps = features[:, 3:].reshape(2, -1, 8, 8)
        torch.testing.assert_close(maps[0, :, 2, 5], maps[1, :, 6, 0])
        assert not torch.equal(maps[0], maps[1])

    def test_the_readout_takes_means_of_cells_in_a_large_map(self) -> None:
        readout = PositionReadout(2, (16, 8))
        maps = answers(readout, torch.ones(1, 2, 16, 8))[:, 2:].reshape(1, -1, 8, 8)
        expected = answers(readout.reduce, torch.ones(1, 2, 1, 1))
        torch.testing.assert_close(maps, expected.expand_as(maps))


class TestBlocksAgainstTransformers:
    """Each block with the weights of the block of transformers gives its answers."""

    def same(self, ours: nn.Module, theirs: nn.Module, values: torch.Tensor) -> None:
        """Copy the weights over in their order, give both random statistics, and compare the answers."""
        for source in theirs.modules():
            if isinstance(source, nn.BatchNorm2d):
                source.running_mean.uniform_(-1, 1)
                source.running_var.uniform_(0.5, 2)
        state = [tensor for name, tensor in theirs.state_dict().items() if "num_batches" not in name]
        names = [name for name in ours.state_dict() if "num_batches" not in name]
        ours.load_state_dict(dict(zip(names, state, strict=True)), strict=False)
        with torch.inference_mode():
            torch.testing.assert_close(ours.eval()(values), theirs.eval()(values))

    @pytest.mark.parametrize(("depth", "stride"), [(64, 1), (32, 2)])
    def test_bottleneck(self, depth: int, stride: int) -> None:
        from transformers.models.resnet.modeling_resnet import ResNetBottleNeckLayer

        theirs = ResNetBottleNeckLayer(depth, 64, stride=stride)
        theirs.shortcut = theirs._modules.pop("shortcut")
        self.same(Bottleneck(depth, 64, stride), theirs, torch.randn(2, depth, 8, 8))

    def test_mbconv(self) -> None:
        from transformers import EfficientNetConfig
        from transformers.models.efficientnet.modeling_efficientnet import EfficientNetBlock

        theirs = EfficientNetBlock(EfficientNetConfig(batch_norm_eps=1e-5), 16, 16, 1, 4, 3, 0.0, False, True)
        self.same(MBConv(16, 16), theirs, torch.randn(2, 16, 8, 8))

    def test_convnext_block(self) -> None:
        from transformers import ConvNextConfig
        from transformers.models.convnext.modeling_convnext import ConvNextLayer

        theirs = ConvNextLayer(ConvNextConfig(layer_scale_init_value=0.5), 16)
        ours = ConvNextBlock(16)
        assert next(iter(ours.state_dict())) == "scale"
        self.same(ours, theirs, torch.randn(2, 16, 8, 8))


class TestBadSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"placement": "everywhere"}, "unknown placement"),
            ({"p": 0.1}, "leave out `p`"),
            ({"placement": "head"}, "above 0 and below 1, not 0"),
            ({"placement": "head", "p": 1.0}, "above 0 and below 1, not 1"),
            ({"placement": "head", "p": float("nan")}, "above 0 and below 1"),
            ({"size": 15}, "at least 16x16, not 15x15"),
            ({"width": 8}, "a `width` of at least 16, not 8"),
            ({"hidden": 0}, "hidden units"),
            ({"outputs": 0}, "outputs"),
            ({"channels": 0}, "at least one channel"),
            ({"backbone": "resnet50", "width": 16}, "leave out `width`"),
            ({"backbone": "resnet50", "size": 31}, "at least 32x32, not 31x31"),
        ],
    )
    def test_are_refused_in_one_sentence(self, settings: dict[str, Any], message: str) -> None:
        complete = {"backbone": "small_resnet", "outputs": 4, "size": 64} | settings
        with pytest.raises(InputError, match=message):
            perception_network(**complete)

    def test_an_unknown_backbone_gets_a_hint(self) -> None:
        with pytest.raises(UnknownName, match="did you mean 'small_convnext'"):
            perception_network("small_convnex", 4, size=64)
