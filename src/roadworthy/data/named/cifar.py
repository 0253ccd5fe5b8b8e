"""CIFAR-10 and CIFAR-100 in their binary version, and their corrupted copies CIFAR-10-C and CIFAR-100-C."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.validation import require_file
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.base import Opening
from roadworthy.data.folder import check_folder
from roadworthy.data.named.layout import array_set, find_home, naming, read_names
from roadworthy.data.row_views import ConvertedRows, JoinedRows
from roadworthy.data.rows_on_disk import RowsOnDisk, rows_of_file, rows_of_npy
from roadworthy.data.table import natural_key

SIDE, PIXELS = 32, 3 * 32 * 32
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = (
    *("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy"),
    *("bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock"),
    *("cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish"),
    *("forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion"),
    *("lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange"),
    *("orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine"),
    *("possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk"),
    *("skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank"),
    *("telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale"),
    *("willow_tree", "wolf", "woman", "worm"),
)
SEVERITIES, ALL = 5, "all"
Split = Literal["train", "test"]
PICKLED = (
    "this is the Python version of {what}, which is pickled, and pickle runs any code in a file: give the folder of "
    "the binary version, or, from Python, the data set object of the library that reads it"
)


def open_cifar10(root: str | Path, opening: Opening | None = None, *, split: Split = "test") -> ArrayDataset:
    """CIFAR-10, binary version (`data_batch_1.bin` ... `test_batch.bin`): 10 classes, 32x32; `split` train or test."""
    opening = opening or Opening()
    numbers = range(1, 6) if split == "train" else ()
    names = [f"data_batch_{number}.bin" for number in numbers] or ["test_batch.bin"]
    home = _home(opening.path(root), names, "cifar-10-batches-bin", "cifar-10-batches-py", "CIFAR-10")
    records = [_records(home / name, labels=1) for name in names]
    labels = np.concatenate([_column(part, 0) for part in records])
    with naming(home, "CIFAR-10"):
        return array_set(_images(records, labels=1), labels, CIFAR10, opening)


def open_cifar100(
    root: str | Path,
    opening: Opening | None = None,
    *,
    split: Split = "test",
    labels: Literal["fine", "coarse"] = "fine",
) -> ArrayDataset:
    """CIFAR-100, binary version (`train.bin`, `test.bin`): 100 classes, with `labels: coarse` 20; train or test.

    The other kind of label is a condition, `superclass` or `subclass`.
    """
    opening = opening or Opening()
    files = [f"{split}.bin", "fine_label_names.txt", "coarse_label_names.txt"]
    home = _home(opening.path(root), files, "cifar-100-binary", "cifar-100-python", "CIFAR-100")
    records = [_records(home / files[0], labels=2)]
    coarse_names, fine_names = (read_names(home / f"{kind}_label_names.txt") for kind in ("coarse", "fine"))
    columns = {"coarse": (_column(records[0], 0), coarse_names), "fine": (_column(records[0], 1), fine_names)}
    other = "coarse" if labels == "fine" else "fine"
    with naming(home / files[0], "CIFAR-100"):
        for kind, (column, names) in columns.items():
            if column.max() >= len(names):
                raise InputError(f"a {kind} label is {column.max()}, but {kind}_label_names.txt has {len(names)} names")
        texts = {"superclass" if other == "coarse" else "subclass": np.array(columns[other][1])[columns[other][0]]}
        return array_set(_images(records, labels=2), *columns[labels], opening, conditions=texts)


def open_cifar10_c(
    root: str | Path, opening: Opening | None = None, *, corruption: str | None = None, severity: int | None = None
) -> ArrayDataset:
    """CIFAR-10-C: the test images of CIFAR-10 under a `corruption` by name, or `all`, at a `severity` 1 to 5, or all.

    Both are conditions. Copies of one image share a group.
    """
    return _corrupted(root, opening or Opening(), corruption, severity, CIFAR10, "CIFAR-10-C")


def open_cifar100_c(
    root: str | Path, opening: Opening | None = None, *, corruption: str | None = None, severity: int | None = None
) -> ArrayDataset:
    """CIFAR-100-C: the test images of CIFAR-100 under a `corruption`, or `all`, at a `severity` 1 to 5, or all.

    Both are conditions. Copies of one image share a group.
    """
    return _corrupted(root, opening or Opening(), corruption, severity, CIFAR100, "CIFAR-100-C")


def _home(root: Path, files: list[str], folder: str, pickled: str, what: str) -> Path:
    check_folder(root)
    try:
        return find_home(root, files, [folder], what)
    except InputError:
        if root.name == pickled or (root / pickled).is_dir():
            raise InputError(f"{str(root)!r}: {PICKLED.format(what=what)}") from None
        raise


def _records(path: Path, labels: int) -> RowsOnDisk:
    """The records of a file (N, labels + 3072): so many bytes of labels, then the red, green and blue plane."""
    require_file(path, "data file")
    with naming(path, "data file"):
        size, record = path.stat().st_size, labels + PIXELS
        if not size or size % record:
            raise InputError(
                f"it has {size:,} bytes, which is no multiple of {record:,}: it is cut, or not this format"
            )
        return rows_of_file(path, (size // record, record))


def _column(records: RowsOnDisk, number: int, together: int = 4096) -> NDArray[np.int64]:
    """One byte of every record (N,)."""
    blocks = [np.arange(start, min(start + together, len(records))) for start in range(0, len(records), together)]
    return np.concatenate([records[block][:, number] for block in blocks]).astype(np.int64)


def _images(records: list[RowsOnDisk], labels: int) -> JoinedRows:
    def convert(block: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return block[:, labels:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)

    return JoinedRows([ConvertedRows(part, (SIDE, SIDE, 3), convert) for part in records])


def _corrupted(
    root: str | Path, opening: Opening, corruption: str | None, severity: int | None, names: tuple[str, ...], what: str
) -> ArrayDataset:
    folder = opening.path(root)
    home = find_home(folder, ["labels.npy"], [what], what)
    known = sorted((path.stem for path in home.glob("*.npy") if path.stem != "labels"), key=natural_key)
    if not known:
        raise InputError(f"{str(home)!r} holds {what} without a corruption: there is no file such as fog.npy")
    kinds = chosen_corruptions(corruption, known, what)
    check_severity(severity)
    labels = _npy_labels(home / "labels.npy")
    count = len(labels) // SEVERITIES
    chosen = range(1, SEVERITIES + 1) if severity is None else (severity,)
    rows = np.concatenate([np.arange(count) + (number - 1) * count for number in chosen])
    parts, ids = [], list[str]()
    for kind in kinds:
        with naming(home / f"{kind}.npy", "data file"):
            images = rows_of_npy(home / f"{kind}.npy")
            if images.shape != (len(labels), SIDE, SIDE, 3):
                raise InputError(f"its shape is {images.shape}, where {(len(labels), SIDE, SIDE, 3)} is expected")
        parts.append(images.take(rows))
        ids += [f"{kind}/{number}/{row}" for number in chosen for row in range(count)]
    conditions = {"corruption": np.repeat(kinds, len(rows)), "severity": np.tile(rows // count + 1, len(kinds))}
    groups = np.tile(rows % count, len(kinds)).astype(np.str_).tolist()
    with naming(home / "labels.npy", "data file"):
        stacked = JoinedRows(parts)
        return array_set(
            stacked, np.tile(labels[rows], len(kinds)), names, opening, ids=ids, groups=groups, conditions=conditions
        )


def chosen_corruptions(corruption: str | None, known: list[str], what: str) -> list[str]:
    """The corruptions to open: the one that is named, or all that there are; none is an `InputError`."""
    if corruption is None:
        raise InputError(f"{what} holds {len(known)} corruptions: name one, such as `corruption: {known[0]}`, or `all`")
    if corruption != ALL and corruption not in known:
        raise UnknownName(f"corruption of {what}", corruption, (*known, ALL))
    return known if corruption == ALL else [corruption]


def check_severity(severity: int | None) -> None:
    """Refuse a severity that is not 1 to 5, or None for all."""
    if severity is not None and (isinstance(severity, bool) or severity not in range(1, SEVERITIES + 1)):
        raise InputError(f"severity is a number from 1 to {SEVERITIES}, or left out for all, not {severity!r}")


def _npy_labels(path: Path) -> NDArray[np.int64]:
    """The labels (N,) of the images of a file: those of one severity five times, one after the other."""
    with naming(path, "data file"), path.open("rb") as file:
        labels = np.lib.format.read_array(file, allow_pickle=False)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or len(labels) % SEVERITIES:
            raise InputError(f"it must hold whole numbers, {SEVERITIES} times as many as images, not {labels.shape}")
        per_severity = labels.reshape(SEVERITIES, -1)
        if (per_severity != per_severity[0]).any():
            raise InputError("the severities have different labels, which CIFAR-C does not have: is it damaged?")
        return labels.astype(np.int64)
