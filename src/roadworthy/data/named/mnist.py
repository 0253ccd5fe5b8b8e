"""The MNIST family: MNIST, Fashion-MNIST, KMNIST and EMNIST in idx files, gzipped or not."""

from __future__ import annotations

import gzip
import io
import math
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.validation import require_file, require_memory
from roadworthy.data.arrays import ArrayDataset, Pixels
from roadworthy.data.base import Opening
from roadworthy.data.folder import check_folder
from roadworthy.data.named.layout import array_set, naming, read_names, whole_number
from roadworthy.data.row_views import ConvertedRows
from roadworthy.data.rows_on_disk import RowsOnDisk, rows_of_file

DIGITS = tuple("0123456789")
FASHION = (*("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),)
KUZUSHIJI = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
UNSIGNED_BYTES = 8
"""The code of the type in the header of an idx file."""
Split = Literal["train", "test"]
Variant = Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"]


def open_mnist(root: str | Path, opening: Opening | None = None, *, split: Split = "test") -> ArrayDataset:
    """MNIST: handwritten digits, 28x28 grey, from its idx files (`t10k-images-idx3-ubyte`, .gz or not)."""
    return _plain(root, opening or Opening(), split, DIGITS, "MNIST")


def open_fashion_mnist(root: str | Path, opening: Opening | None = None, *, split: Split = "test") -> ArrayDataset:
    """Fashion-MNIST: ten kinds of clothes, 28x28 grey, from its idx files (`t10k-images-idx3-ubyte`, .gz or not)."""
    return _plain(root, opening or Opening(), split, FASHION, "FashionMNIST")


def open_kmnist(root: str | Path, opening: Opening | None = None, *, split: Split = "test") -> ArrayDataset:
    """KMNIST: ten hiragana, 28x28 grey, from its idx files (`t10k-images-idx3-ubyte`, .gz or not)."""
    return _plain(root, opening or Opening(), split, KUZUSHIJI, "KMNIST")


def open_emnist(
    root: str | Path, opening: Opening | None = None, *, split: Split = "test", variant: Variant = "balanced"
) -> ArrayDataset:
    """EMNIST: handwritten letters and digits, 28x28 grey, turned upright; `variant` balanced, letters, digits, ...

    Class names are the characters that `emnist-VARIANT-mapping.txt` names.
    """
    opening = opening or Opening()
    stem = f"emnist-{variant}-{split}"
    images, labels = _files(opening.path(root), stem, ("EMNIST/raw", "raw", "gzip", "EMNIST"), "EMNIST")
    mapping = images.with_name(f"emnist-{variant}-mapping.txt")
    with naming(mapping, "class names"):
        pairs = [line.split() for line in read_names(mapping)]
        if not all(len(pair) in (2, 3) for pair in pairs) or not pairs:
            raise InputError("every line must hold a label and the code of its character")
        numbers = [(whole_number(pair[0], "a label"), whole_number(pair[1], "a character")) for pair in pairs]
        first = min(number for number, _ in numbers)  # letters count from 1
        if sorted(number - first for number, _ in numbers) != list(range(len(numbers))):
            raise InputError("the labels are not numbered one after the other")
        names = [chr(code) for _, code in sorted(numbers)]
    pixels = _idx(images, 3)
    upright = ConvertedRows(pixels, (pixels.shape[2], pixels.shape[1]), lambda block: block.swapaxes(1, 2))
    return _opened(upright, _labels(labels) - first, names, opening, labels)


def _plain(root: str | Path, opening: Opening, split: str, names: tuple[str, ...], folder: str) -> ArrayDataset:
    stem = "train" if split == "train" else "t10k"
    images, labels = _files(opening.path(root), stem, (f"{folder}/raw", "raw", folder), folder)
    return _opened(_idx(images, 3), _labels(labels), names, opening, labels)


def _opened(
    images: Pixels, labels: NDArray[np.int64], names: tuple[str, ...] | list[str], opening: Opening, path: Path
) -> ArrayDataset:
    with naming(path, "data file"):
        return array_set(images, labels, names, opening)


def _files(root: Path, stem: str, folders: tuple[str, ...], what: str) -> tuple[Path, Path]:
    """The file of images and the file of labels of a split, plain or gzipped, and with `-` or `.` in their names."""
    check_folder(root)
    for home in (root, *(root / folder for folder in folders)):
        paths = [
            next(
                (
                    home / f"{stem}-{kind}{mark}idx{dimensions}-ubyte{ending}"
                    for mark in "-."
                    for ending in ("", ".gz")
                    if (home / f"{stem}-{kind}{mark}idx{dimensions}-ubyte{ending}").is_file()
                ),
                None,
            )
            for kind, dimensions in (("images", 3), ("labels", 1))
        ]
        if paths[0] is not None and paths[1] is not None:
            return paths[0], paths[1]
    raise InputError(
        f"{str(root)!r} does not hold {what} in its usual layout: there are no {stem}-images-idx3-ubyte and "
        f"{stem}-labels-idx1-ubyte, plain or .gz, nor in {', '.join(folders)} below it"
    )


def _labels(path: Path) -> NDArray[np.int64]:
    rows = _idx(path, 1)
    values = rows if isinstance(rows, np.ndarray) else rows[np.arange(len(rows))]
    return values.reshape(-1).astype(np.int64)


def _idx(path: Path, dimensions: int) -> RowsOnDisk | NDArray[np.uint8]:
    """The bytes of an idx file in their shape: on disk where the file is plain, in memory where it is gzipped."""
    require_file(path, "data file")
    with naming(path, "data file"):
        if path.suffix != ".gz":
            with path.open("rb") as file:
                shape = _shape(file, dimensions)
                start, end = file.tell(), file.seek(0, io.SEEK_END)
            if end - start != math.prod(shape):
                raise InputError(
                    f"it holds {end - start:,} values, but its header says {math.prod(shape):,}: is it cut?"
                )
            return rows_of_file(path, shape if dimensions > 1 else (*shape, 1), start)
        with gzip.open(path, "rb") as packed:
            shape = _shape(packed, dimensions)
            require_memory(math.prod(shape), f"data file {str(path)!r}")
            content = packed.read(math.prod(shape) + 1)
        if len(content) != math.prod(shape):
            raise InputError(f"it does not hold the {math.prod(shape):,} values that its header says: is it cut?")
        return np.frombuffer(content, np.uint8).reshape(shape)


def _shape(file: IO[bytes] | gzip.GzipFile, dimensions: int) -> tuple[int, ...]:
    """The shape in the header of an idx file of unsigned bytes."""
    header = file.read(4 + 4 * dimensions)
    if len(header) < 4 + 4 * dimensions or header[:4] != bytes((0, 0, UNSIGNED_BYTES, dimensions)):
        raise InputError(f"it is not an idx file of unsigned bytes with {dimensions} dimensions")
    shape = tuple(int.from_bytes(header[start : start + 4]) for start in range(4, len(header), 4))
    if 0 in shape:
        raise InputError("it holds nothing")
    return shape
