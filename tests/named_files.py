"""Well-known data sets, a few images each, in the layout and bytes of the real ones."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image


def pictures(count: int, side: int = 32, channels: int = 3) -> np.ndarray:
    """Images (N, side, side, channels), all different; the first has its own top left and bottom left corner."""
    images = np.random.default_rng(count).integers(0, 256, (count, side, side, channels), dtype=np.uint8)
    images[0] = 0
    images[0, 0, -1, 0] = 250  # top right
    images[0, -1, 0, -1] = 120  # bottom left
    return images


def gtsrb(folder: Path) -> None:
    header = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n"
    train = folder / "GTSRB" / "Final_Training" / "Images"
    for label in (0, 14):
        home = train / f"{label:05d}"
        home.mkdir(parents=True)
        lines = []
        for track in range(2):
            for frame in range(3):
                name, width = f"{track:05d}_{frame:05d}.ppm", 20 + frame
                Image.fromarray(pictures(1 + label + 3 * track + frame, width)[-1]).save(home / name)
                lines.append(f"{name};{width};{width};5;6;{width - 5};{width - 4};{label}\n")
        (home / f"GT-{label:05d}.csv").write_text(header + "".join(lines))
    test = folder / "GTSRB" / "Final_Test" / "Images"
    test.mkdir(parents=True)
    for number in range(3):
        Image.fromarray(pictures(40 + number, 24)[-1]).save(test / f"{number:05d}.ppm")
    rows = [f"{number:05d}.ppm;24;24;5;5;19;20;{label}\n" for number, label in enumerate((14, 42, 0))]
    (folder / "GTSRB" / "GT-final_test.csv").write_text(header + "".join(rows))


def btsc(folder: Path) -> None:
    header = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n"
    for name, labels in (("Training", (0, 61)), ("Testing", (3,))):
        for label in labels:
            home = folder / name / f"{label:05d}"
            home.mkdir(parents=True)
            lines = []
            for file in ("01153_00000.ppm", "01153_00001.ppm", "02997_00000.ppm"):
                Image.fromarray(pictures(label + len(lines) + 1, 30)[-1]).save(home / file)
                lines.append(f"{file};30;30;3;3;27;28;{label}\n")
            (home / f"GT-{label:05d}.csv").write_text(header + "".join(lines))
    (folder / "Testing" / "00004").mkdir()
    (folder / "Testing" / "00004" / "GT-00004.csv").write_text(header)


def _planes(images: np.ndarray, *labels: list[int]) -> bytes:
    """Records of CIFAR: the labels, then the planes of each image."""
    columns = np.array(labels, np.uint8).T
    return np.concatenate([columns, images.transpose(0, 3, 1, 2).reshape(len(images), -1)], axis=1).tobytes()


def cifar10(folder: Path) -> None:
    home = folder / "cifar-10-batches-bin"
    home.mkdir()
    for number in range(1, 6):
        (home / f"data_batch_{number}.bin").write_bytes(_planes(pictures(number + 1)[1:], [number] * number))
    (home / "test_batch.bin").write_bytes(_planes(pictures(3), [3, 8, 0]))
    (home / "batches.meta.txt").write_text("airplane\nautomobile\n")


def cifar100(folder: Path) -> None:
    home = folder / "cifar-100-binary"
    home.mkdir()
    (home / "train.bin").write_bytes(_planes(pictures(2), [1, 0], [0, 4]))
    (home / "test.bin").write_bytes(_planes(pictures(3), [1, 0, 1], [0, 4, 1]))
    (home / "fine_label_names.txt").write_text("apple\naquarium_fish\nbaby\nbear\nbeaver\n")
    (home / "coarse_label_names.txt").write_text("aquatic_mammals\nfish\n\n")


def cifar_c(folder: Path, name: str, labels: list[int]) -> None:
    home = folder / name
    home.mkdir()
    for seed, corruption in enumerate(("fog", "zoom_blur")):
        np.save(home / f"{corruption}.npy", pictures(5 * len(labels) + seed)[: 5 * len(labels)])
    np.save(home / "labels.npy", np.tile(labels, 5))


def svhn(folder: Path) -> None:
    from scipy.io import savemat

    for name, labels in (("train", [1, 2]), ("test", [10, 1, 9])):
        content = {"X": pictures(len(labels)).transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]}
        savemat(folder / f"{name}_32x32.mat", content, do_compression=name == "test")


def tiny_imagenet(folder: Path) -> None:
    home = folder / "tiny-imagenet-200"
    numbers = ("n02124075", "n01443537")
    (home / "val" / "images").mkdir(parents=True)
    (home / "wnids.txt").write_text("\n".join(numbers))
    words = ("n01443537\tgoldfish, Carassius auratus", "n02124075\tEgyptian cat", "n00000001\tunused")
    (home / "words.txt").write_text("\n".join(words))
    for number in numbers:
        images = home / "train" / number / "images"
        images.mkdir(parents=True)
        for row in (0, 10, 9):
            Image.fromarray(pictures(row + 1, 64)[-1]).save(images / f"{number}_{row}.JPEG", "JPEG")
        boxes = "".join(f"{number}_{row}.JPEG\t{row}\t0\t63\t63\n" for row in (0, 9, 10))
        (home / "train" / number / f"{number}_boxes.txt").write_text(boxes)
    for row in range(3):
        Image.fromarray(pictures(row + 5, 64)[-1]).save(home / "val" / "images" / f"val_{row}.JPEG", "JPEG")
    lines = "".join(f"val_{row}.JPEG\t{numbers[row % 2]}\t{row}\t32\t44\t62\n" for row in range(3))
    (home / "val" / "val_annotations.txt").write_text(lines)


def tiny_imagenet_c(folder: Path) -> None:
    for corruption in ("brightness", "fog"):
        for severity in range(1, 6):
            for number in ("n01443537", "n02124075"):
                home = folder / "Tiny-ImageNet-C" / corruption / str(severity) / number
                home.mkdir(parents=True)
                Image.fromarray(pictures(severity + len(corruption), 64)[-1]).save(home / "test_7.JPEG", "JPEG")


def idx(array: np.ndarray) -> bytes:
    """The bytes of an idx file."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist(folder: Path) -> None:
    home = folder / "MNIST" / "raw"
    home.mkdir(parents=True)
    for stem, labels in (("train", [1, 0]), ("t10k", [7, 2, 1])):
        (home / f"{stem}-images-idx3-ubyte").write_bytes(idx(pictures(len(labels), 28, 1)[..., 0]))
        (home / f"{stem}-labels-idx1-ubyte").write_bytes(idx(np.array(labels, np.uint8)))


def zipped_mnist(folder: Path) -> None:
    """Files as they are given out for Fashion-MNIST and KMNIST."""
    mnist(folder)
    for path in (folder / "MNIST" / "raw").iterdir():
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def emnist(folder: Path) -> None:
    turned = pictures(3, 28, 1)[..., 0].transpose(0, 2, 1)
    (folder / "emnist-letters-test-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(np.ascontiguousarray(turned))))
    (folder / "emnist-letters-test-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.array([2, 1, 2], np.uint8))))
    (folder / "emnist-letters-mapping.txt").write_text("1 65 97\n2 66 98\n")


def stl10(folder: Path) -> None:
    home = folder / "stl10_binary"
    home.mkdir()
    for name, labels in (("train", [1, 10]), ("test", [10, 1, 2])):
        images = pictures(len(labels), 96)
        (home / f"{name}_X.bin").write_bytes(np.ascontiguousarray(images.transpose(0, 3, 2, 1)).tobytes())
        (home / f"{name}_y.bin").write_bytes(bytes(labels))
    names = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
    (home / "class_names.txt").write_text("\n".join(names) + "\n")


WRITERS: dict[str, Callable[[Path], None]] = {
    "gtsrb": gtsrb,
    "btsc": btsc,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "cifar10_c": lambda folder: cifar_c(folder, "CIFAR-10-C", [3, 8]),
    "cifar100_c": lambda folder: cifar_c(folder, "CIFAR-100-C", [99, 0]),
    "svhn": svhn,
    "tiny_imagenet": tiny_imagenet,
    "tiny_imagenet_c": tiny_imagenet_c,
    "mnist": mnist,
    "fashion_mnist": zipped_mnist,
    "kmnist": zipped_mnist,
    "emnist": emnist,
    "stl10": stl10,
}
"""Who writes the files of each set."""
