"""All that is known of the images of a data set but their pixels: one checked table for every loader."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest, digest_array
from roadworthy.core.validation import check_no_nul

Indices = NDArray[np.int64]
_MOST_CLASSES = 1_000_000


@dataclass(frozen=True)
class Table:
    """Rows that correspond: ids (unique), labels (N,), groups, boxes (N, 4) in stored pixels, conditions (N,) each.

    `over_classes` says that a limit took them, as many of each class as can be (`rows_over_classes`): their mix of
    classes is not that of the whole.

    >>> Table(ids=("a", "b"), labels=np.array([0, 2]), class_names=("x", "y"), groups=("a", "b"))
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: label 2 of image 'b' has no class: there are 2 class names
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    groups: tuple[str, ...]
    boxes: NDArray[np.float32] | None = None
    conditions: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    over_classes: bool = False

    def __post_init__(self) -> None:
        n = len(self.ids)
        if not n:
            raise InputError("the data set holds no images")
        for column_name, column in (("labels", self.labels), ("groups", self.groups), *self.conditions.items()):
            if len(column) != n:
                raise InputError(f"the data set has {n} images but {len(column)} {column_name}")
        named = {"image id": self.ids, "class name": self.class_names}
        for kind, names in (*named.items(), ("group", self.groups), ("condition", self.conditions)):
            check_no_nul(kind, names)
        for name, column in self.conditions.items():
            check_no_nul(f"value of {name}", np.unique(column).tolist() if column.dtype.kind == "U" else ())
        for kind, names in named.items():
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise InputError(f"{kind}s must be unique, these are not: {some(repeated)}")
        outside = np.flatnonzero((self.labels < 0) | (self.labels >= len(self.class_names)))
        if outside.size:
            row = int(outside[0])
            raise InputError(
                f"label {self.labels[row]} of image {self.ids[row]!r} has no class: "
                f"there are {len(self.class_names)} class names"
            )

    def take(self, rows: NDArray[np.int64]) -> Table:
        """Some of the rows, in the order given."""
        return replace(
            self,
            ids=tuple(self.ids[row] for row in rows),
            labels=self.labels[rows],
            groups=tuple(self.groups[row] for row in rows),
            boxes=None if self.boxes is None else self.boxes[rows],
            conditions={name: column[rows] for name, column in self.conditions.items()},
        )

    def limited(self, rows: NDArray[np.int64]) -> Table:
        """The rows that a limit takes over classes, which is noted where these are not all."""
        return replace(self.take(rows), over_classes=self.over_classes or len(rows) < len(self.ids))

    def digest(self) -> str:
        """SHA-256 of every value, in order."""
        values = {name: getattr(self, name) for name in ("ids", "labels", "class_names", "groups")}
        values["boxes"] = None if self.boxes is None else digest_array(self.boxes)
        values["conditions"] = {
            name: column.tolist() if column.dtype.kind == "U" else digest_array(column)
            for name, column in self.conditions.items()
        }
        return digest(values)

    def notes(self) -> list[str]:
        """What a reader of the results should know: classes without images, groups that span classes."""
        notes = []
        empty = np.flatnonzero(np.bincount(self.labels, minlength=len(self.class_names)) == 0)
        if empty.size:
            names = some([self.class_names[i] for i in empty])
            notes.append(f"{empty.size} of {len(self.class_names)} classes have no images: {names}")
        labels_of: dict[str, set[int]] = {}
        for group, label in zip(self.groups, self.labels.tolist(), strict=True):
            labels_of.setdefault(group, set()).add(label)
        mixed = [group for group, labels in labels_of.items() if len(labels) > 1]
        if mixed:
            notes.append(
                f"{len(mixed)} groups hold images of more than one class: {some(mixed)}; "
                "where group numbers restart in every class, put the class into the group"
            )
        return notes


def some(names: Iterable[str], most: int = 5) -> str:
    """The first few names, quoted, and how many there are in all.

    >>> some("abc", most=2)
    "'a', 'b', ... (3 in all)"
    """
    listed = list(names)
    shown = ", ".join(repr(name) for name in listed[:most])
    return shown if len(listed) <= most else f"{shown}, ... ({len(listed)} in all)"


def natural_key(text: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """A sort key that orders runs of digits by their number and all else by code point.

    >>> sorted(["10", "2", "b", "a10", "a9"], key=natural_key)
    ['2', '10', 'a9', 'a10', 'b']
    """
    parts = re.split("([0-9]+)", text)
    numbers = [part.lstrip("0") for part in parts[1::2]]
    key = [(0, part) for part in parts]
    key[1::2] = [(len(number), number) for number in numbers]
    return tuple(key), text


_NUMBER_AT_END = re.compile(r"[-_.]?[0-9]+(-of-[0-9]+(-[0-9a-f]{16})?)?$")


def stems(names: Iterable[str]) -> list[str]:
    """What names of files without their endings and their numbers are: the parts of a data set, in natural order.

    >>> stems(["test-00000-of-00001.parquet", "train-000.tar", "train-001.tar"])
    ['test', 'train']
    """
    return sorted({_NUMBER_AT_END.sub("", name.rpartition(".")[0]) for name in names}, key=natural_key)


def index_labels(labels: Sequence[str], classes: Sequence[str] | None = None) -> tuple[Indices, tuple[str, ...]]:
    """Labels as indices (N,), and the class names they index.

    With `classes`, labels are names in it, or else, where all are whole numbers, indices into it. Without, whole
    numbers from 0 keep their value, and anything else is numbered in natural order.

    >>> index_labels(["stop", "lane10", "lane9"])
    (array([2, 1, 0]), ('lane9', 'lane10', 'stop'))
    >>> index_labels(["2", "0"])
    (array([2, 0]), ('0', '1', '2'))
    """
    distinct = set(labels)
    whole = all(re.fullmatch("0|-?[1-9][0-9]*", label) for label in distinct)
    if classes is None and not whole:
        return by_name(labels, sorted(distinct, key=natural_key))
    if classes is not None and (distinct <= set(classes) or not whole):
        return by_name(labels, classes)
    numbers = [int(label) for label in labels]
    if min(numbers, default=0) < 0 or max(numbers, default=0) >= (len(classes) if classes else _MOST_CLASSES):
        raise InputError(f"labels are the numbers {min(numbers)} to {max(numbers)}, which are not class indices")
    if classes is None and min(numbers, default=0) > 0:
        raise InputError(
            f"labels are the numbers {min(numbers)} to {max(numbers)}, so it is unknown whether class 0 is absent or "
            "they count from 1; give `classes=`, the names in the order of the model's output"
        )
    names = tuple(classes) if classes is not None else tuple(map(str, range(max(numbers, default=0) + 1)))
    return np.array(numbers, dtype=np.int64), names


def by_name(labels: Sequence[str], classes: Sequence[str]) -> tuple[Indices, tuple[str, ...]]:
    """Labels as indices (N,) of their names in `classes`, and `classes`.

    >>> by_name(["b", "b"], ["a", "b"])
    (array([1, 1]), ('a', 'b'))
    """
    position = {name: index for index, name in enumerate(classes)}
    unknown = sorted(set(labels) - set(position), key=natural_key)
    if unknown:
        raise InputError(f"labels without a class: {some(unknown)}; the {len(classes)} classes are {some(classes)}")
    return np.array([position[label] for label in labels], dtype=np.int64), tuple(classes)


def condition(values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """An operating condition as numbers, int64 or float64, or else as text.

    >>> condition(["3", "4.5", ""]), condition(["day", None]), condition([True])
    (array([3. , 4.5, nan]), array(['day', ''], dtype='<U3'), array(['true'], dtype='<U4'))
    """
    cells = values.tolist() if isinstance(values, np.ndarray) else list(values)
    texts = [_text(cell) for cell in cells]
    filled = [text for text in texts if text]
    if not filled or not all(_NUMBER.fullmatch(text) for text in filled):
        return np.array(texts, dtype=np.str_)
    if len(filled) == len(texts) and all(_INTEGER.fullmatch(text) for text in texts):
        return np.array([int(text) for text in texts], dtype=np.int64)
    return np.array([float(text or "nan") for text in texts], dtype=np.float64)


_INTEGER = re.compile("-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|inf)")


def _text(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    return str(cell)


def checked_boxes(boxes: ArrayLike, ids: Sequence[str]) -> tuple[NDArray[np.float32], list[str]]:
    """Boxes (N, 4) as x0, y0, x1, y1, NaN where an image has none; empty ones become none and are noted.

    >>> checked_boxes([[1, 2, 3, 4], [1, 2, 1, 4]], ["a", "b"])[0].tolist()
    [[1.0, 2.0, 3.0, 4.0], [nan, nan, nan, nan]]
    """
    try:
        array = np.asarray(boxes)
        if array.dtype.kind == "c":
            raise ValueError("complex numbers")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as that
            array = np.array(array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"a box holds something that is not a number: {error}") from None
    if array.shape != (len(ids), 4):
        raise InputError(f"boxes must have shape ({len(ids)}, 4), x0 y0 x1 y1 for every image, not {array.shape}")
    known = np.isfinite(array).sum(axis=1)
    _refuse((known > 0) & (known < 4) | np.isinf(array).any(axis=1), ids, "boxes have a value missing or infinite")
    with np.errstate(over="ignore"):
        width, height = array[:, 2] - array[:, 0], array[:, 3] - array[:, 1]
    _refuse((width < 0) | (height < 0), ids, "boxes end before they begin (they are x0 y0 x1 y1, not x y width height)")
    empty = (width == 0) | (height == 0)
    array[empty] = np.nan
    names = some([ids[row] for row in np.flatnonzero(empty).tolist()])
    return array, [f"{empty.sum()} boxes are empty and count as no box: {names}"] if empty.any() else []


def check_boxes_inside(boxes: NDArray[np.float32], sizes: NDArray[np.int64], ids: Sequence[str]) -> None:
    """Refuse boxes that do not touch their image; `sizes` are (N, 2) as (H, W)."""
    outside = (boxes[:, 0] >= sizes[:, 1]) | (boxes[:, 1] >= sizes[:, 0]) | (boxes[:, 2] <= 0) | (boxes[:, 3] <= 0)
    _refuse(outside, ids, "boxes lie outside their image (they are in pixels of the stored image)")


def _refuse(bad: NDArray[np.bool_], ids: Sequence[str], problem: str) -> None:
    if bad.any():
        raise InputError(f"{int(bad.sum())} {problem}: {some([ids[row] for row in np.flatnonzero(bad).tolist()])}")
