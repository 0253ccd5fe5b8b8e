"""From the study's uint8 images to the tensor a model needs: size, channels, colour order, range and layout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.types import Images
from roadworthy.core.validation import MAX_SIDE
from roadworthy.models.framing import Frame

RANGES = ("0-1", "0-255", "-1-1", "imagenet")
LAYOUTS = ("nchw", "nhwc")
COLOURS = ("rgb", "bgr")
DTYPES = ("float32", "float16", "float64", "uint8")
LUMA = (0.299, 0.587, 0.114)
MAX_BATCH = 4096
CACHED_PIXELS = 2**16
"""Pixels converted at a time, so that the work stays in the cache."""

_MEAN_STD: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "0-1": ((0.0,), (1.0,)),
    "0-255": ((0.0,), (1 / 255,)),
    "-1-1": ((0.5,), (0.5,)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class AmbiguousLayout(InputError):
    """The input shape fits both layouts, or neither dimension says which; the user must declare it."""


def parse_range(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation, one value or three (R, G, B), of (x / 255 - mean) / std.

    >>> parse_range("imagenet")
    ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    >>> parse_range("0.5/0.25")
    ((0.5,), (0.25,))
    """
    if isinstance(text, str) and text in _MEAN_STD:
        return _MEAN_STD[text]
    allowed = f"use {', '.join(RANGES)}, or MEAN/STD such as 0.5/0.5 or 0.485,0.456,0.406/0.229,0.224,0.225"
    try:
        mean, std = (tuple(float(value) for value in part.split(",")) for part in text.split("/"))
    except (ValueError, AttributeError):  # AttributeError: it is no text
        raise InputError(f"cannot read the range {text!r}: {allowed}") from None
    if len(mean) not in (1, 3) or len(std) not in (1, 3):
        raise InputError(f"the range {text!r} needs one or three values on each side of the slash: {allowed}")
    if not all(math.isfinite(value) for value in mean + std) or min(std) <= 0:
        raise InputError(f"the range {text!r} needs finite means and standard deviations above 0: {allowed}")
    return mean, std


def parse_choice(setting: str, value: str, allowed: Sequence[str]) -> str:
    """The value where it is allowed; else an error that lists what is.

    >>> parse_choice("layout", "nchw", LAYOUTS)
    'nchw'
    """
    if value not in allowed:
        raise InputError(f"unknown {setting} {value!r}: use {', '.join(allowed)}")
    return value


@dataclass(frozen=True)
class Preprocess:
    """uint8 images (N, H, W, C) to a model's tensor: resized, channels converted, then (x / 255 - mean) / std.

    range     `0-1`, `0-255`, `-1-1`, `imagenet` or `MEAN/STD`; three values stand for R, G, B whatever the colour order
    layout    `nchw` or `nhwc`;  colour `rgb` or `bgr`
    size      (H, W), or None where the model takes any
    channels  1 (luma of RGB), 3 (grey is repeated), or 0: as many as the images have
    dtype     `float32`, `float16`, `float64` or `uint8`; a uint8 model takes the pixels as they are (range `0-255`)
    frame     how Pillow brings images to the size, where the model says so; else OpenCV does, area down and linear up

    >>> white = np.full((1, 2, 2, 3), 255, np.uint8)
    >>> Preprocess(range="-1-1")(white).shape, float(Preprocess(range="-1-1")(white).min())
    ((1, 3, 2, 2), 1.0)
    """

    range: str = "0-1"
    layout: str = "nchw"
    colour: str = "rgb"
    size: tuple[int, int] | None = None
    channels: int = 3
    dtype: str = "float32"
    frame: Frame | None = None

    @property
    def data_size(self) -> tuple[int, int] | None:
        """(H, W) that data of many sizes is best brought to: what a frame cuts its part out of; None: any."""
        return self.size if self.frame is None else self.frame.before_crop

    @property
    def keeps_whole_image(self) -> bool:
        """Whether images of `data_size` reach the model pixel by pixel: nothing is cut off, and all steps are known."""
        return self.has_adjoint and self.data_size == self.size

    @property
    def has_adjoint(self) -> bool:
        """Whether a gradient can be carried back to pixels: its steps are known and linear."""
        return True

    def __post_init__(self) -> None:
        mean, std = parse_range(self.range)
        parse_choice("layout", self.layout, LAYOUTS)
        parse_choice("colour order", self.colour, COLOURS)
        parse_choice("input type", self.dtype, DTYPES)
        if self.channels not in (0, 1, 3):
            raise InputError(f"a model of {self.channels} input channels cannot be tested: 1 or 3 are supported")
        if self.channels == 1 and max(len(mean), len(std)) == 3:
            raise InputError(
                f"the range {self.range!r} has three values but the model takes one channel: give one value"
            )
        if self.dtype == "uint8" and self.range != "0-255":
            raise InputError(f"the model takes uint8 pixels: use the range 0-255 instead of {self.range!r}")

    def __call__(self, images: Images) -> NDArray[Any]:
        """The tensor (N, C, H, W) or (N, H, W, C) for images (N, H, W, C) uint8; it shares no memory with them."""
        if not self.channels:
            return replace(self, channels=images.shape[-1])(images)
        images = self._resize(images)
        if images.shape[-1] > self.channels:
            images = _by_rows(images, lambda rows: cv2.cvtColor(rows, cv2.COLOR_RGB2GRAY))
        return self._to_nchw(images) if self.layout == "nchw" else self._to_nhwc(images)

    def adjoint(self, gradient: NDArray[np.floating[Any]], shape: Sequence[int]) -> NDArray[np.float32]:
        """Carry a gradient by the tensor back to pixel values (0 to 255) of images of `shape` (N, H, W, C).

        Preprocessing is linear but for rounding, t = A x + b, so this is A transposed.
        """
        channels = self.channels or shape[-1]
        full = np.asarray(gradient, np.float64)
        full = full.transpose(0, 2, 3, 1) if self.layout == "nchw" else full
        full = full[..., ::-1] if self.colour == "bgr" else full
        full = full / (255.0 * np.asarray(parse_range(self.range)[1]))
        if shape[-1] > channels:
            full = full * np.asarray(LUMA)
        elif shape[-1] < channels:
            full = full.sum(axis=-1, keepdims=True)
        height, width = shape[1:3]
        if self.frame is not None or full.shape[1:3] != (height, width):
            down, across = self._matrices((height, width), full.shape[1:3])
            full = np.einsum("ph,npqc,qw->nhwc", down, full, across, optimize=True)
        return np.ascontiguousarray(full, dtype=np.float32)

    def settings(self) -> dict[str, Any]:
        """Everything that changes a tensor, as plain values in one form: `-1-1` and `0.5/0.5` are the same."""
        mean, std = (np.broadcast_to(values, self.channels or 3).tolist() for values in parse_range(self.range))
        size = None if self.size is None else list(self.size)
        rest = {"layout": self.layout, "colour": self.colour, "channels": self.channels, "dtype": self.dtype}
        frame = {} if self.frame is None else {"frame": self.frame.settings()}
        return {"mean": mean, "std": std, "size": size, **rest, **frame}

    def as_plain(self) -> dict[str, Any]:
        """What `preprocess_of` makes the same of in another process, as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        size = "any size" if self.size is None else f"{self.size[0]}x{self.size[1]}"
        size = size if self.frame is None else str(self.frame)
        channels = "grey" if self.channels == 1 else self.colour
        return f"{size} {channels}, layout {self.layout}, range {self.range}, {self.dtype}"

    @cached_property
    def _tables(self) -> NDArray[Any]:
        """(C, 256): what each pixel value of each channel (in the order R, G, B) becomes. Half floats as their bits."""
        mean, std = (np.broadcast_to(values, self.channels)[:, None] for values in parse_range(self.range))
        table: NDArray[Any] = ((np.arange(256.0) / 255.0 - mean) / std).astype(self.dtype)
        return table.view(np.uint16) if self.dtype == "float16" else table

    def _matrices(self, old: Sequence[int], new: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What resizing does along the height and the width, as matrices (new, old)."""
        if self.frame is not None:
            return self.frame.matrices(old[0], old[1])
        mode = _interpolation(old, new)
        return _resize_matrix(old[0], new[0], mode), _resize_matrix(old[1], new[1], mode)

    def _resize(self, images: Images) -> Images:
        if self.frame is not None:
            return self.frame(images)
        if self.size is None or images.shape[1:3] == self.size:
            return images
        out = np.empty((len(images), *self.size, images.shape[-1]), np.uint8)
        mode = _interpolation(images.shape[1:3], self.size)
        for image, target in zip(images, out, strict=True):
            target[...] = cv2.resize(image, self.size[::-1], interpolation=mode).reshape(target.shape)
        return out

    def _to_nchw(self, images: Images) -> NDArray[Any]:
        count, height, width, channels = images.shape
        images = np.ascontiguousarray(images)
        out = np.empty((count, self.channels, height, width), self._tables.dtype)
        step = max(1, CACHED_PIXELS // max(1, height * width))
        for start in range(0, count, step):
            part, target = images[start : start + step], out[start : start + step]
            planes = cv2.split(part.reshape(-1, width, channels))
            for channel, table in enumerate(self._tables):
                plane = planes[channel % channels]
                values = plane if self.dtype == "uint8" else cv2.LUT(plane, table)
                target[:, channel if self.colour == "rgb" else -1 - channel] = values.reshape(len(part), height, width)
        return out.view(self.dtype)

    def _to_nhwc(self, images: Images) -> NDArray[Any]:
        tables = self._tables
        if images.shape[-1] < self.channels:
            images = np.repeat(images, 3, axis=-1)
        if self.colour == "bgr" and self.channels == 3:
            images, tables = _by_rows(images, lambda rows: cv2.cvtColor(rows, cv2.COLOR_RGB2BGR)), tables[::-1]
        if self.dtype == "uint8":
            return np.array(images, order="C")
        lookup = np.ascontiguousarray(tables.T).reshape(1, 256, self.channels)
        return _by_rows(images, lambda rows: cv2.LUT(rows, lookup)).view(self.dtype)


class StatedPreprocess(Preprocess):
    """The preprocessing of a model in another process that can be carried out there alone: what is known of it."""

    description: str
    known: Mapping[str, Any]

    @classmethod
    def of(cls, description: str, size: Sequence[int] | None, settings: Mapping[str, Any]) -> StatedPreprocess:
        """The preprocessing that says this of itself."""
        stated = cls(size=None if size is None else (int(size[0]), int(size[1])))
        object.__setattr__(stated, "description", description)
        object.__setattr__(stated, "known", dict(settings))
        return stated

    @property
    def has_adjoint(self) -> bool:
        """False: its steps are not known here."""
        return False

    def __call__(self, images: Images) -> NDArray[Any]:
        """An error: the tensor is made in the process of the model."""
        raise InputError(f"images become a tensor in the process of the model alone ({self}): leave out `isolate=`")

    def settings(self) -> dict[str, Any]:
        """What it states of itself there."""
        return dict(self.known)

    def as_plain(self) -> dict[str, Any]:
        """What it states of itself."""
        return {"stated": {"description": self.description, "size": self.size, "settings": self.settings()}}

    def __str__(self) -> str:
        return self.description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StatedPreprocess) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash(self.description)


def preprocess_of(fields: Mapping[str, Any]) -> Preprocess:
    """The preprocessing that `as_plain` gives these fields of, as JSON leaves them.

    >>> preprocess_of({"size": [8, 8], "frame": {"resize": 9, "crop": [8, 8]}}).frame
    Frame(resize=9, method='bilinear', crop=(8, 8), rounds=False)
    """

    def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}

    if "stated" in fields:
        return StatedPreprocess.of(**fields["stated"])
    frame = fields.get("frame")
    return Preprocess(**with_tuples({**fields, "frame": Frame(**with_tuples(frame)) if frame else None}))


def read_shape(
    dims: Sequence[int | None], layout: str, size: tuple[int, int] | None, what: str
) -> tuple[str, int, tuple[int, int] | None, int | None]:
    """Layout, channels, size and batch size of an input shape with unknown dimensions as None.

    >>> read_shape((None, 3, 32, 32), "auto", None, "m.onnx")
    ('nchw', 3, (32, 32), None)
    """
    shown = "x".join("?" if dim is None else str(dim) for dim in dims)
    if len(dims) != 4:
        raise InputError(f"{what} takes an input of shape {shown}, not images (four dimensions)")
    fitting = [name for name, axis in (("nchw", 1), ("nhwc", 3)) if dims[axis] in (1, 3)]
    possible = [name for name, axis in (("nchw", 1), ("nhwc", 3)) if dims[axis] in (1, 3, None)]
    if not possible:
        raise InputError(f"{what} takes an input of shape {shown}: images have 1 or 3 channels")
    if layout == "auto":
        if len(fitting) != 1:
            raise AmbiguousLayout(
                f"the input shape {shown} of {what} fits both layouts: "
                "say which with `layout='nchw'` or `layout='nhwc'`"
            )
        layout = fitting[0]
    elif parse_choice("layout", layout, ("auto", *LAYOUTS)) not in possible:
        raise InputError(f"{what} takes an input of shape {shown}, which is not {layout}: use `layout={possible[0]!r}`")
    channel, height, width = (dims[1], dims[2], dims[3]) if layout == "nchw" else (dims[3], dims[1], dims[2])
    declared = (height, width)
    if size is not None and any(dim not in (None, given) for dim, given in zip(declared, size, strict=True)):
        raise InputError(f"{what} takes an input of shape {shown}: the size {size[0]}x{size[1]} does not fit it")
    if size is None and height is not None and width is not None:
        size = (height, width)
    if size is None and declared != (None, None):
        raise InputError(f"{what} fixes one side of its input only ({shown}): give the size with `size='HxW'`")
    if size is not None and max(size) > MAX_SIDE:
        raise InputError(f"{what} takes images of {size[0]}x{size[1]}: at most {MAX_SIDE} pixels a side are supported")
    if dims[0] is not None and dims[0] > MAX_BATCH:
        raise InputError(f"{what} insists on batches of {dims[0]} images: export it for at most {MAX_BATCH}")
    return layout, channel or 3, size, dims[0]


def _by_rows(images: Images, function: Any) -> NDArray[Any]:
    """Apply an OpenCV function of pixels to all images at once, as one tall image."""
    count, height, width, channels = images.shape
    rows = function(np.ascontiguousarray(images).reshape(count * height, width, channels))
    out: NDArray[Any] = rows.reshape(count, height, width, -1)
    return out


def _interpolation(old: Sequence[int], new: Sequence[int]) -> int:
    shrinks = new[0] <= old[0] and new[1] <= old[1]
    return int(cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def _resize_matrix(old: int, new: int, mode: int) -> NDArray[np.float64]:
    """(new, old): resizing along one axis as a matrix, read off OpenCV by resizing the identity."""
    return np.asarray(cv2.resize(np.eye(old), (old, new), interpolation=mode), np.float64).reshape(new, old)
