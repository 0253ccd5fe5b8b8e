"""Shifts as transforms of data loaders: of a picture, of an array, or of an image with mask and boxes by keyword."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Shift
from roadworthy.core.types import Images
from roadworthy.core.validation import check_whole
from roadworthy.shifts.arrays import MOST_SEED, apply_shift, array_of, pixels_of, shift_of

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

CORNERS = 4
MODES = ("L", "RGB")
"""The modes of Pillow's images that shifts are defined for."""


class Transform:
    """A shift with its level and seed, to be called with images one by one.

    shift       the name of a registered shift, or a `Shift`
    level       1 to 5, or between (3 where nothing is said), or `parameters` of the shift in its place
    seed        the random numbers of an image follow from the seed and its pixels, so that neither the order nor the
                number of workers of a data loader changes what becomes of it

    `transform(image)` takes and gives a Pillow image (`L`, `RGB`) or a uint8 array (H, W) or (H, W, C): a transform of
    a torch data set, in front of the one that makes tensors. `transform(image=..., mask=..., masks=..., bboxes=...)`
    takes arrays by keyword and gives a dictionary of the same keys:

    mask    (H, W) of whole numbers: every value moves with its pixels, 0 comes in from outside
    masks   a list of such masks
    bboxes  rows x0, y0, x1, y1 in pixels, then anything (a label); boxes of which nothing is left are left out

    >>> transform = Transform("rotation", level=2, seed=1)
    >>> picture = np.zeros((32, 32, 3), np.uint8)
    >>> transform(picture).shape, sorted(transform(image=picture, bboxes=[(8, 8, 20, 20, "stop")]))
    ((32, 32, 3), ['bboxes', 'image'])
    """

    def __init__(self, shift: str | Shift, level: float | None = None, *, seed: int = 0, **parameters: Any) -> None:
        check_whole("seed", seed, 0, MOST_SEED)
        self.shift = shift_of(shift, level, parameters)
        self.seed = seed

    def __repr__(self) -> str:
        return f"Transform({self.shift!r}, seed={self.seed})"

    @overload
    def __call__(self, image: Picture, /) -> Picture: ...
    @overload
    def __call__(self, image: NDArray[np.uint8], /) -> Images: ...
    @overload
    def __call__(
        self,
        /,
        *,
        image: NDArray[np.uint8],
        mask: ArrayLike | None = None,
        masks: Sequence[ArrayLike] | None = None,
        bboxes: Any = None,
    ) -> dict[str, Any]: ...
    def __call__(self, picture: Any = None, /, **named: Any) -> Any:
        """The disturbed image, or a dictionary where keywords are given."""
        if picture is None:
            return self._by_name(**named)
        if named:
            raise InputError(f"give the image by keyword too, as `image=`, beside {', '.join(named)}")
        return self._picture(picture) if hasattr(picture, "getbands") else self._moved(picture)[0]

    def _picture(self, picture: Picture) -> Picture:
        from PIL import Image

        if picture.mode not in MODES:
            raise InputError(f"a picture has the mode L or RGB, not {picture.mode}: convert it with .convert('RGB')")
        return Image.fromarray(self._moved(np.asarray(picture))[0])

    def _by_name(self, **named: Any) -> dict[str, Any]:
        known = ("image", "mask", "masks", "bboxes")
        unknown = [name for name in named if name not in known]
        if unknown or "image" not in named:
            what = f"has no keyword {unknown[0]!r}" if unknown else "needs an image"
            raise InputError(f"a transform {what}: it takes {', '.join(known)}")
        image = pixels_of(named["image"])
        if image.ndim == 4:
            raise InputError("a transform takes one image (H, W, C): call rw.shifts functions with batches")
        result: dict[str, Any] = {"image": self._moved(image)[0]}
        if named.get("mask") is not None:
            result["mask"] = self._labels(image, named["mask"])
        if named.get("masks") is not None:
            result["masks"] = [self._labels(image, mask) for mask in named["masks"]]
        if named.get("bboxes") is not None:
            result["bboxes"] = self._boxes(image, named["bboxes"])
        return result

    def _moved(self, image: ArrayLike, **along: Any) -> tuple[Images, Any, Any]:
        pixels = pixels_of(image)
        return apply_shift(self.shift, pixels, seed=self.seed, id=content_id(pixels), **along)

    def _labels(self, image: ArrayLike, mask: ArrayLike) -> NDArray[Any]:
        """A mask of whole numbers (H, W), moved value by value."""
        labels = array_of("a mask", mask)
        if labels.shape != np.shape(image)[:2] or labels.dtype.kind not in "biu":
            raise InputError(f"a mask has whole numbers {np.shape(image)[:2]}, not {labels.dtype} {labels.shape}")
        values = [value for value in np.unique(labels) if value != 0]
        moved = np.zeros_like(labels)
        if values:
            _, _, parts = self._moved(image, masks=np.stack([labels == value for value in values]))
            for value, part in zip(values, parts, strict=True):
                moved[part] = value
        return moved

    def _boxes(self, image: ArrayLike, boxes: Any) -> Any:
        """Rows x0, y0, x1, y1 and more, moved; an array stays an array, all else becomes a list of tuples.

        Corners end up between pixels, so an array of whole numbers becomes one of floats.
        """
        try:
            rows = [tuple(row) for row in boxes]
        except TypeError:
            rows = [()]
        if any(len(row) < CORNERS for row in rows):
            raise InputError("a box of `bboxes=` is x0, y0, x1, y1 in pixels, and then anything, such as a label")
        is_array = isinstance(boxes, np.ndarray)
        dtype = np.float64 if is_array and boxes.dtype.kind in "iu" else getattr(boxes, "dtype", None)
        if not rows:
            return boxes.astype(dtype) if is_array else boxes
        _, moved, _ = self._moved(image, boxes=[row[:CORNERS] for row in rows])
        kept = [
            (*map(float, box), *row[CORNERS:]) for box, row in zip(moved, rows, strict=True) if not np.isnan(box).any()
        ]
        width = len(rows[0])
        return np.asarray(kept, dtype).reshape(-1, width) if is_array else kept


def content_id(image: ArrayLike) -> str:
    """An id that follows from the pixels of an image.

    >>> content_id(np.zeros((2, 2), np.uint8)) == content_id(np.zeros((1, 4), np.uint8))
    False
    """
    pixels = np.ascontiguousarray(image)
    return hashlib.blake2b(f"{pixels.shape}".encode() + pixels.tobytes(), digest_size=16).hexdigest()
