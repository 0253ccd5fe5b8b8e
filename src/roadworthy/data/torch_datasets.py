"""Data sets of torch: any object with `len` and items (image, label), read once from the first to the last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.core.errors import InputError, first_line, foreign_code
from roadworthy.data.base import OpenedDataset, Opening
from roadworthy.data.manifest import table_of
from roadworthy.data.pixels import PictureRows, as_pixels

LOADERS = ("DataLoader",)
TORCH_ROOTS = ("Dataset", "IterableDataset")
ASKED_AGAIN = 3
"""Items that are read a second time, to see whether they are the same."""


def is_torch_dataset(value: object) -> bool:
    """Whether an object is a data set or a loader of torch, or has `len` and items like one; torch is not imported."""
    if isinstance(value, str | bytes | os.PathLike | Mapping | list | tuple | set | np.ndarray | type):
        return False
    return _is_torch(value, (*TORCH_ROOTS, *LOADERS)) or (hasattr(value, "__getitem__") and hasattr(value, "__len__"))


def _is_torch(value: object, names: Sequence[str]) -> bool:
    return any(c.__name__ in names and c.__module__.startswith("torch.utils.data") for c in type(value).__mro__)


def open_torch_dataset(source: Any, opening: Opening | None = None) -> OpenedDataset:
    """A torch `Dataset` in memory (from Python alone): items (image, label) as pictures, arrays or tensors from 0 to 1.

    Class names are its `classes`, or those of `class_to_idx`, where it has them; of a `Subset` those of the whole set.
    """
    opening = opening or Opening()
    if isinstance(source, str | Path):
        raise InputError(f"a torch data set is an object in memory: give it from Python, not as {str(source)!r}")
    if _is_torch(source, LOADERS):
        raise InputError("a DataLoader shuffles and stacks what it loads: give its data set, `loader.dataset`")
    what = f"data set {type(source).__name__}"
    pictures, labels = PictureRows(what), list[Any]()

    def explain(error: BaseException) -> InputError:
        where = f"item {len(labels)} of {what}" if reading else what
        return InputError(f"{where} cannot be read: {type(error).__name__}: {first_line(error)}")

    reading = True
    with foreign_code(explain):
        indexed = not _is_torch(source, ("IterableDataset",))
        for number, item in enumerate(_items(source, indexed, opening)):
            picture, label = _pair(item, f"item {number} of {what}")
            pictures.add(_checked(picture, f"item {number} of {what}"), f"item {number} of {what}")
            labels.append(label)
        reading = False
        if not labels:
            raise InputError(f"{what} holds no images")
        if indexed:
            _check_same(source, pictures, what)
        names, ids = _class_names(source, opening.class_names is not None, what), _ids(source, len(labels))
    label_names = names if names is not None and not any(isinstance(label, str) for label in labels) else None
    table, notes = table_of(
        {"label": labels}, ids, opening.class_names or (None if label_names else names), label_names
    )
    if not indexed:
        notes.append("the data is a stream: its images are numbered in the order in which they came")
    return pictures.dataset(table, opening, notes)


def _items(source: Any, indexed: bool, opening: Opening) -> Iterator[Any]:
    items: Iterable[Any] = (source[row] for row in range(len(source))) if indexed else source
    for item in items:
        yield item
        if opening.progress is not None:
            opening.progress(1)


def _checked(picture: Any, name: str) -> Any:
    """A picture as an object; the bytes of a file are none."""
    if isinstance(picture, bytes):
        raise InputError(f"{name}: a picture is a Pillow image, an array or a tensor, not bytes: decode it")
    return picture


def _pair(item: Any, name: str) -> tuple[Any, int | str]:
    """The picture and the label of an item."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        shown = f"{len(item)} values" if isinstance(item, tuple | list) else type(item).__name__
        raise InputError(f"{name} must be (image, label), not {shown}")
    picture, label = item
    if hasattr(label, "item") and getattr(label, "ndim", 1) == 0:  # a number of NumPy or torch
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, int | str):
        shape = getattr(label, "shape", None)
        shown = type(label).__name__ if shape is None else f"{type(label).__name__} of shape {tuple(shape)}"
        raise InputError(f"{name}: a label is the number or the name of one class, not {shown}")
    return picture, label


def _check_same(source: Any, pictures: PictureRows, what: str) -> None:
    """Refuse a data set that gives other pictures when it is asked again."""
    count = len(pictures)
    for row in {count * number // ASKED_AGAIN for number in range(ASKED_AGAIN)} | {count - 1}:
        name = f"item {row} of {what}"
        if not np.array_equal(as_pixels(_pair(source[row], name)[0], name), pictures.pixels(row)):
            raise InputError(
                f"{name} is another picture when it is asked for again: leave out random transforms (augmentation), "
                "so that a test can be repeated"
            )


def _chain(source: Any) -> Iterator[Any]:
    """The data set and, where it is a `Subset` of another, that one, and so on.

    Other wrappers are not followed, nor classes derived from `Subset`: they may number classes anew.
    """
    for _ in range(16):
        yield source
        if type(source).__name__ != "Subset" or not type(source).__module__.startswith("torch.utils.data"):
            return
        source = source.dataset


def _class_names(source: Any, are_given: bool, what: str) -> list[str] | None:
    """The names of its classes in order of their numbers; None where it has none.

    Where `classes` and `class_to_idx` contradict each other the user must give the names: without them an `InputError`.
    """
    for owner in _chain(source):
        names, numbers = getattr(owner, "classes", None), getattr(owner, "class_to_idx", None)
        if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
            if isinstance(numbers, Mapping) and not _agree(names, numbers):
                if are_given:
                    return None
                raise InputError(
                    f"{what}: its `classes` and its `class_to_idx` number the classes differently: give their names in "
                    "the order of the labels, as `classes=`"
                )
            return list(names)
        if isinstance(numbers, Mapping) and sorted(numbers.values()) == list(range(len(numbers))) and numbers:
            return sorted(map(str, numbers), key=lambda name: int(numbers[name]))
    return None


def _agree(names: Sequence[str], numbers: Mapping[Any, Any]) -> bool:
    """Whether names in their order and names with numbers are the same, or speak of other names altogether."""
    return not set(names) & set(numbers) or {name: row for row, name in enumerate(names)} == dict(numbers)


def _ids(source: Any, count: int) -> list[str]:
    """The name of each item: its file where the data set tells, else its number in the whole set."""
    rows, owners = list(range(count)), list(_chain(source))
    for owner, inner in zip(owners, [*owners[1:], None], strict=True):
        indices = getattr(owner, "indices", None)
        if inner is not None and indices is not None and all(row < len(indices) for row in rows):
            rows = [int(indices[row]) for row in rows]
    files, root = getattr(owners[-1], "samples", None), getattr(owners[-1], "root", None)
    if isinstance(files, list) and isinstance(root, str | os.PathLike) and all(row < len(files) for row in rows):
        names = [_below(files[row], root) for row in rows]
    else:
        names = list(map(str, rows))
    return names if len(set(names)) == count else list(map(str, range(count)))


def _below(sample: Any, root: str | os.PathLike[str]) -> str:
    """The path of a sample (file, label) below a folder."""
    path = str(sample[0]) if isinstance(sample, tuple | list) and sample else str(sample)
    return Path(os.path.relpath(path, root)).as_posix()
