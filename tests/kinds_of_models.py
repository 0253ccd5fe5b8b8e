"""What users of every kind have in hand: trained on drawn signs, as files in a folder and as live objects."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from roadworthy.core.types import Batch
from roadworthy.data import BuiltinDataset, Opening
from roadworthy.models import softmax
from tiny import save_onnx, templates

SIZE, CLASSES = 32, 14
MEAN, STD = (0.45, 0.4, 0.35), (0.25, 0.2, 0.3)


@cache
def signs(split: str, n: int) -> Batch:
    return BuiltinDataset("signs", Opening(size=SIZE), n=n, split=split).batch(slice(None))


@cache
def class_names() -> tuple[str, ...]:
    names = BuiltinDataset("signs", Opening(size=SIZE), n=14).class_names
    return tuple(f"{index:02d} {name}" for index, name in enumerate(names))


def write_images(folder: Path, n: int = 70) -> None:
    """A folder per class, as a user has it."""
    batch = signs("test", n)
    for number, (image, label) in enumerate(zip(batch.images, batch.labels, strict=True)):
        path = folder / class_names()[label] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image[..., ::-1])


def nearest_mean(channels_last: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Weights (D, K) and bias (K,) of the nearest class mean, for pixels in 0-1."""
    means = templates()
    if channels_last:
        means = means.reshape(CLASSES, 3, SIZE, SIZE).transpose(0, 2, 3, 1).reshape(CLASSES, -1)
    return (means.T / 10).astype(np.float32), (-(means**2).sum(1) / 20).astype(np.float32)


def torch_module() -> torch.nn.Module:
    """Flatten and Linear, for (N, 3, 32, 32) in 0-1."""
    weights, bias = nearest_mean()
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(len(weights), CLASSES))
    network[1].load_state_dict({"weight": torch.from_numpy(weights.T.copy()), "bias": torch.from_numpy(bias)})
    return network


class Normalised(torch.nn.Module):
    """A module that undoes (x - MEAN) / STD, as if it had been trained on it."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        mean, std = (torch.tensor(part).reshape(1, 3, 1, 1) for part in (MEAN, STD))
        return self.inner(values * std + mean)


def huggingface_model(folder: Path) -> tuple[Any, Any]:
    """A small ResNet whose last layer was fitted to its random features, with a processor that resizes and crops."""
    from transformers import BitImageProcessorPil, ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    names = dict(enumerate(class_names()))
    sizes: dict[str, Any] = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
    model = ResNetForImageClassification(
        ResNetConfig(**sizes, id2label=names, label2id={name: index for index, name in names.items()})
    ).eval()
    mean_std = {"image_mean": list(MEAN), "image_std": list(STD)}
    crop = {"height": 32, "width": 32}
    processor = BitImageProcessorPil(size={"shortest_edge": 36}, crop_size=crop, **mean_std)
    batch = signs("train", 420)
    with torch.no_grad():
        tensor = processor(images=[*batch.images], return_tensors="pt")["pixel_values"]
        features = model.resnet(tensor).pooler_output.flatten(1)
        rows = np.column_stack([features.numpy(), np.ones(len(batch))])
        fitted = np.linalg.lstsq(rows, 8 * np.eye(CLASSES)[batch.labels], rcond=1e-4)[0].T
        model.classifier[1].weight.copy_(torch.from_numpy(fitted[:, :-1]))
        model.classifier[1].bias.copy_(torch.from_numpy(fitted[:, -1]))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model, processor


def keras_network(rescale: bool = True) -> Any:
    """Rescaling, Flatten and Dense with softmax, for (N, 32, 32, 3) in 0-255; without `rescale` in 0-1."""
    import keras

    layers = [keras.layers.Rescaling(1 / 255)] if rescale else []
    last = keras.layers.Dense(CLASSES, activation="softmax")
    network = keras.Sequential([keras.Input((SIZE, SIZE, 3)), *layers, keras.layers.Flatten(), last])
    last.set_weights(nearest_mean(channels_last=True))
    return network


def quantise(source: Path, folder: Path) -> dict[str, Path]:
    """A graph quantised by ONNX Runtime: dynamically, and statically with QuantizeLinear and DequantizeLinear."""
    from onnxruntime import quantization

    class Calibration(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            images = signs("train", 420).images[:64].transpose(0, 3, 1, 2).astype(np.float32) / 255
            self.feeds = iter([{"image": images[start : start + 16]} for start in range(0, 64, 16)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.feeds, None)

    paths = {way: folder / f"{way}.onnx" for way in ("dynamic", "static")}
    quantization.quantize_dynamic(source, paths["dynamic"])
    quantization.quantize_static(source, paths["static"], Calibration(), quant_format=quantization.QuantFormat.QDQ)
    return paths


class Predictor:
    """An object of somebody's library: uint8 images (N, H, W, C) in, probabilities (N, K) out."""

    def __init__(self) -> None:
        self.weights, self.bias = nearest_mean(channels_last=True)

    def predict(self, images: np.ndarray) -> np.ndarray:
        rows = images.reshape(len(images), -1).astype(np.float32) / 255
        return np.asarray(softmax(rows @ self.weights + self.bias))


def save_all(folder: Path) -> dict[str, Any]:
    """Every file and folder of the docs in `folder`, and the live objects by the name that they have there."""
    write_images(folder / "signs" / "test")
    model, processor = huggingface_model(folder / "convnet-signs")
    module = Normalised(torch_module()).eval()
    example = torch.zeros(2, 3, SIZE, SIZE)
    torch.jit.trace(torch_module(), example).save(str(folder / "scripted.pt"))
    dynamic = ({0: torch.export.Dim("batch", min=1, max=512)},)
    torch.export.save(torch.export.export(torch_module(), (example,), dynamic_shapes=dynamic), folder / "exported.pt2")
    save_onnx(folder / "plain.onnx")
    quantise(folder / "plain.onnx", folder)["static"].rename(folder / "quantised.onnx")
    exported = keras_network(rescale=False)
    exported(np.zeros((1, SIZE, SIZE, 3), np.float32))
    exported.export(folder / "keras.onnx", format="onnx", verbose=False)
    network = keras_network()
    network.save(folder / "signs.keras")
    batch = signs("train", 420)
    return {
        "images": batch.images,
        "labels": batch.labels,
        "model": model,
        "processor": processor,
        "module": module,
        "network": network,
        "predictor": Predictor(),
    }
