"""What MAITE's components hold: how they are recognised, images as arrays, true classes, boxes, ids, ranges of pixels.

MAITE says of an image that its shape is (C, H, W), and nothing of its numbers. So the range is decided here, once for a
whole data set, and what cannot be told is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError, first_line
from roadworthy.core.types import Images

BYTES, SHARES = "0-255", "0-1"
RANGES = (SHARES, BYTES)
LEAST_OF_BYTES = 16.0
"""Numbers of which the largest lies between 1 and this could be dark pixels of 0 to 255 or bright ones of 0 to 1."""
SUM_TOLERANCE = 1e-3


@runtime_checkable
class Detections(Protocol):
    """A target of MAITE's object detection: K boxes x0, y0, x1, y1 in pixels, labels (K,), scores (K,) or (K, Cl)."""

    @property
    def boxes(self) -> ArrayLike:
        """(K, 4)."""

    @property
    def labels(self) -> ArrayLike:
        """(K,)."""

    @property
    def scores(self) -> ArrayLike:
        """(K,) or (K, Cl)."""


def is_component(value: Any) -> bool:
    """Whether an object has the metadata that every component of MAITE has: a mapping with the text `id`."""
    metadata = getattr(value, "metadata", None)
    has_id = isinstance(metadata, Mapping) and isinstance(metadata.get("id"), str)
    return has_id and not isinstance(value, type)


def component_name(value: Any) -> str | None:
    """The id of a component, where it can name a folder; None for all else.

    >>> component_name(3) is None
    True
    """
    own_id = value.metadata["id"] if is_component(value) else ""
    return own_id if re.fullmatch(r"\w[\w.-]*", own_id) else None


def is_dataset(value: Any) -> bool:
    """Whether an object looks like a data set of MAITE: metadata, a length and items.

    >>> is_dataset([1, 2])
    False
    """
    return is_component(value) and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def is_model(value: Any) -> bool:
    """Whether an object looks like a model of MAITE: metadata, and it can be called."""
    return is_component(value) and callable(value)


class Datum(NamedTuple):
    """One item of a data set: its id, its image (C, H, W) as stored, its target and its metadata."""

    id: str
    image: NDArray[Any]
    target: Any
    metadata: Mapping[str, Any]


def read_datum(item: Any, what: str) -> Datum:
    """An item of a data set in its parts; one that is not MAITE's is an `InputError`."""
    if not isinstance(item, tuple | list) or len(item) != 3:
        raise InputError(f"{what} must be (image, target, metadata), as MAITE has it, not {type(item).__name__}")
    image, target, metadata = item
    own_id = datum_id(metadata, what)
    return Datum(own_id, image_array(image, f"{what}, id {own_id!r}"), target, metadata)


def datum_id(metadata: Any, what: str) -> str:
    """The id of a datum as text: a text or a whole number in its metadata.

    >>> datum_id({"id": 7}, "datum 0")
    '7'
    """
    own_id = metadata.get("id") if isinstance(metadata, Mapping) else None
    if isinstance(own_id, bool) or not isinstance(own_id, str | int | np.integer):
        raise InputError(f"{what}: its metadata must have an id, a text or a whole number, not {own_id!r}")
    return str(own_id)


def image_array(image: Any, what: str) -> NDArray[Any]:
    """An image (C, H, W) with C = 1 or 3 as an array; all else is an `InputError`."""
    try:
        array = np.asarray(image)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what}: its image cannot be read as an array ({first_line(error)})") from None
    if array.ndim != 3 or array.shape[0] not in (1, 3) or 0 in array.shape:
        hint = ": its channels come last" if array.ndim == 3 and array.shape[2] in (1, 3) else ""
        raise InputError(f"{what}: an image is (C, H, W) with C = 1 or 3, not {array.shape}{hint}")
    return array


@dataclass(frozen=True)
class PixelForm:
    """How images hold their pixels: the type of their numbers, and whether these go from 0 to 1 or from 0 to 255."""

    dtype: str
    range: str

    @property
    def model_range(self) -> str:
        """The setting `range` of a model that is to be shown such images."""
        return "uint8" if self.dtype == "uint8" else self.range

    def to_bytes(self, image: NDArray[Any], what: str) -> Images:
        """An image (C, H, W) of this form as uint8 (H, W, C): round(255 x) or round(x).

        >>> PixelForm("float32", "0-1").to_bytes(np.full((1, 1, 1), 0.5), "image").tolist()
        [[[128]]]
        """
        if self.dtype == "uint8":
            return np.ascontiguousarray(image.transpose(1, 2, 0))
        values = np.asarray(image, np.float64) * (255.0 if self.range == SHARES else 1.0)
        if not (np.isfinite(values).all() and values.min() >= -0.5 and values.max() <= 255.5):
            raise InputError(f"{what}: pixels lie outside {self.range}; images are uint8, or float from 0 to 1 or 255")
        return np.ascontiguousarray(np.rint(values).clip(0, 255).astype(np.uint8).transpose(1, 2, 0))

    def from_bytes(self, pixels: Images) -> NDArray[Any]:
        """uint8 pixels (H, W, C) as an image (C, H, W) of this form."""
        image = np.ascontiguousarray(pixels.transpose(2, 0, 1))
        return image if self.dtype == "uint8" else (image / (255.0 if self.range == SHARES else 1.0)).astype(self.dtype)


@dataclass
class PixelsSeen:
    """The types and the smallest and largest number of images seen so far."""

    dtypes: set[str]
    low: float = np.inf
    high: float = -np.inf

    def add(self, image: NDArray[Any], what: str) -> None:
        """Take one more image into account; one that does not hold numbers is an `InputError`."""
        if image.dtype.kind not in "fiu":
            raise InputError(f"{what}: pixels are numbers, uint8 or float, not {image.dtype}")
        self.dtypes.add(image.dtype.name)
        low, high = float(image.min()), float(image.max())
        if not np.isfinite([low, high]).all():
            raise InputError(f"{what}: its image holds NaN or infinity")
        self.low, self.high = min(self.low, low), max(self.high, high)

    def form(self, declared: str | None, what: str) -> PixelForm:
        """The form of all these images.

        uint8 is 0 to 255. Float pixels whose largest is at most 1 are 0 to 1; those (and whole numbers of other types)
        whose largest is at least 16 are 0 to 255. Between 1 and 16, below 0 or above 255 it cannot be told.

        >>> PixelsSeen({"float32"}, 0.0, 0.99).form(None, "data")
        PixelForm(dtype='float32', range='0-1')
        """
        if len(self.dtypes) > 1:
            raise InputError(f"{what} has images of several types, {', '.join(sorted(self.dtypes))}: give them one")
        if declared is not None and declared not in RANGES:
            raise InputError(f"unknown range {declared!r} of {what}: use {', '.join(RANGES)}")
        (dtype,) = self.dtypes
        if dtype == "uint8" and declared in (None, BYTES):
            return PixelForm(dtype, BYTES)
        span = f"{self.low:g} to {self.high:g}"
        if self.low < 0 or self.high > 255:
            raise InputError(
                f"{what} has pixels from {span} ({dtype}), so they were normalised: give images before that, as uint8 "
                "or float from 0 to 1 or from 0 to 255"
            )
        if declared is not None:
            return PixelForm(dtype, declared)
        if dtype.startswith("float") and self.high <= 1:
            return PixelForm(dtype, SHARES)
        if self.high < LEAST_OF_BYTES:
            raise InputError(
                f"{what} has pixels from {span} ({dtype}), of which it cannot be told whether white is 1 or 255: say "
                "it with roadworthy.maite.Dataset(data, range='0-1') or range='0-255'"
            )
        return PixelForm(dtype, BYTES)


def class_of(target: Any, what: str) -> tuple[int, int]:
    """The true class of a target (Cl,), one-hot or pseudo-probabilities, and the number of classes.

    >>> class_of([0.1, 0.8, 0.1], "datum 0")
    (1, 3)
    """
    try:
        values = np.asarray(target, np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{what}: its target must be numbers (Cl,), one per class, as MAITE has it") from None
    if values.ndim != 1 or len(values) < 2:
        hint = ": make a class index one-hot" if values.ndim == 0 else ""
        raise InputError(
            f"{what}: its target must have one number per class, (Cl,), not the shape {values.shape}{hint}"
        )
    if not np.isfinite(values).all() or values.min() < 0 or abs(values.sum() - 1) > SUM_TOLERANCE:
        raise InputError(f"{what}: its target must be one-hot, or probabilities that sum to 1, not {values.tolist()}")
    best = np.flatnonzero(values == values.max())
    if len(best) > 1:
        raise InputError(
            f"{what}: its target has no single largest class ({len(best)} are equal): which is the true one?"
        )
    return int(best[0]), len(values)


def numbers_of(values: Any, what: str) -> NDArray[np.float64]:
    """Values as an array of numbers; text, and rows of different lengths, are an `InputError`.

    >>> numbers_of([1, 2], "scores").tolist()
    [1.0, 2.0]
    """
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{what} must be numbers in rows of one length") from None


def boxes_of(target: Detections, what: str) -> NDArray[np.float64]:
    """The boxes (K, 4) of a target; what has not four numbers each is an `InputError`."""
    boxes = numbers_of(target.boxes, f"{what}: its boxes")
    if boxes.shape == (4,):
        return boxes[None]
    if boxes.size and (boxes.ndim != 2 or boxes.shape[1] != 4):
        raise InputError(f"{what}: a box is x0, y0, x1, y1 in pixels, so boxes are (K, 4), not {boxes.shape}")
    return boxes.reshape(-1, 4)


def single_box(target: Detections, what: str) -> tuple[int, NDArray[np.float64]]:
    """The label and the box (4,) of a true target with one object; several, or none, are an `InputError`."""
    boxes, labels = boxes_of(target, what), numbers_of(target.labels, f"{what}: its labels").reshape(-1)
    count = len(labels)
    if count != 1 or len(boxes) != 1:
        number = "no object" if not count else f"{count} objects"
        raise InputError(
            f"{what} has {number}: a localizer is tested on images with one object each; cut them out with "
            "`roadworthy data curate`, or leave such images out"
        )
    if not labels[0].is_integer():
        raise InputError(f"{what}: a label is the number of a class, not {labels[0]}")
    return int(labels[0]), boxes[0]


def best_box(target: Detections, what: str = "an answer") -> NDArray[np.float64]:
    """The box (4,) of the highest score, the first where several are equal; without detections one without area.

    >>> from types import SimpleNamespace
    >>> best_box(SimpleNamespace(boxes=[[0, 0, 2, 2], [1, 1, 4, 4]], labels=[0, 0], scores=[0.2, 0.9])).tolist()
    [1.0, 1.0, 4.0, 4.0]
    """
    boxes = boxes_of(target, what)
    if not len(boxes):
        return np.zeros(4)
    scores = numbers_of(target.scores, f"{what}: its scores")
    if scores.ndim not in (1, 2) or len(scores) != len(boxes) or not scores.size:
        raise InputError(f"{what} has {len(boxes)} boxes and scores of the shape {scores.shape}: give as many of each")
    scores = scores.reshape(len(boxes), -1).max(axis=1)
    return np.asarray(boxes[int(scores.argmax())])


def names_of_classes(metadata: Mapping[str, Any], count: int, what: str) -> tuple[str, ...] | None:
    """The names of `count` classes by `index2label`; None where there is none, an `InputError` where it lacks one."""
    given = metadata.get("index2label")
    if given is None:
        return None
    try:
        known = {int(index): str(label) for index, label in given.items()}
    except (AttributeError, TypeError, ValueError):
        raise InputError(f"{what}: its index2label must be a mapping from the number of a class to its name") from None
    if sorted(known) != list(range(max(count, len(given)))):
        raise InputError(f"{what}: its index2label must name the classes 0 to {max(count, len(known)) - 1}, each once")
    return tuple(known[index] for index in range(len(known)))
