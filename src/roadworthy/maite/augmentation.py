"""Shifts as augmentations of MAITE, for image classification and for object detection."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Shift
from roadworthy.core.types import Images
from roadworthy.core.validation import check_whole
from roadworthy.maite.reading import (
    BYTES,
    RANGES,
    SHARES,
    Detections,
    PixelForm,
    boxes_of,
    datum_id,
    image_array,
    numbers_of,
)
from roadworthy.shifts.arrays import MOST_SEED, apply_shift, shift_of

if TYPE_CHECKING:
    from maite.protocols import AugmentationMetadata

Metadata = TypeVar("Metadata", bound=Mapping[str, object])


@dataclass(frozen=True)
class DetectionTarget:
    """What is left of the objects of an image after a shift: boxes (K, 4), labels (K,), scores (K,) or (K, Cl).

    masks  (K, H, W) bool, where the target before had some
    """

    boxes: NDArray[np.float32]
    labels: NDArray[Any]
    scores: NDArray[Any]
    masks: NDArray[np.bool_] | None = None


class Augmentation:
    """A shift as an augmentation of MAITE: a batch of images, targets and metadata in, a disturbed one out.

    shift       the name of a registered shift, or a `Shift`
    level       1 to 5, or between (3 of five where nothing is said); or parameters of the shift in its place
    seed        the random numbers of an image follow from the seed and its datum's id, so that neither the order nor
                the size of batches changes what becomes of it
    range       `0-1` (default) or `0-255`: what float pixels hold; uint8 is 0 to 255 and needs none

    Images are (C, H, W), uint8 or float, and come back in the same form, float ones rounded to 256 values; tensors
    come back as tensors. In object detection boxes, labels and scores become a `DetectionTarget`: boxes move with the
    pixels, and those of which nothing is left in the image are left out. Where a target has `masks` (K, H, W), a box is
    that of its moved mask; otherwise the upright one around the moved corners.

    >>> fog = Augmentation("fog", level=2, seed=1)
    >>> images, targets, metadata = fog(([np.zeros((3, 8, 8), np.uint8)], [np.eye(2)[0]], [{"id": 7}]))
    >>> images[0].shape, fog.metadata["id"]
    ((3, 8, 8), 'roadworthy fog level 2 seed 1')
    """

    shift: ClassVar[str] = ""
    """The shift of a class that stands for one."""

    def __init__(
        self,
        shift: str | Shift,
        level: float | None = None,
        seed: int = 0,
        *,
        range: str = SHARES,
        **parameters: Any,
    ) -> None:
        check_whole("seed", seed, 0, MOST_SEED)
        if range not in RANGES:
            raise InputError(f"unknown range {range!r} of an augmentation: use {', '.join(RANGES)}")
        self.applied, self.seed, self.range = shift_of(shift, level, parameters), seed, range
        how = f"level {self.applied.level:g}" if not parameters else f"{self.applied.parameters()}"
        self.metadata: AugmentationMetadata = {"id": f"roadworthy {self.applied.name} {how} seed {seed}"}

    @overload
    def __call__(
        self, batch: tuple[Sequence[ArrayLike], Sequence[Detections], Sequence[Metadata]], /
    ) -> tuple[Sequence[ArrayLike], Sequence[DetectionTarget], Sequence[Metadata]]: ...
    @overload
    def __call__(
        self, batch: tuple[Sequence[ArrayLike], Sequence[ArrayLike], Sequence[Metadata]], /
    ) -> tuple[Sequence[ArrayLike], Sequence[ArrayLike], Sequence[Metadata]]: ...
    def __call__(self, batch: tuple[Sequence[Any], Sequence[Any], Sequence[Metadata]], /) -> Any:
        """The disturbed batch; the one given is left as it is."""
        if not isinstance(batch, tuple | list) or len(batch) != 3:
            raise InputError("a batch is (images, targets, metadata), as MAITE has it: give these three")
        images, targets, metadata = batch
        if not len(images) == len(targets) == len(metadata):
            counts = f"{len(images)} images, {len(targets)} targets and {len(metadata)} metadata"
            raise InputError(f"a batch has as many targets and metadata as images, not {counts}")
        disturbed = [self._disturb(*datum) for datum in zip(images, targets, metadata, strict=True)]
        return [image for image, _ in disturbed], [target for _, target in disturbed], list(metadata)

    def _disturb(self, image: Any, target: Any, metadata: Any) -> tuple[Any, Any]:
        own_id = datum_id(metadata, "a datum of the batch")
        what = f"datum {own_id!r}"
        array = image_array(image, what)
        form = PixelForm(array.dtype.name, BYTES if array.dtype == np.uint8 else self.range)
        if array.dtype.kind != "f" and array.dtype != np.uint8:
            raise InputError(f"{what}: pixels are uint8 or float, not {array.dtype}")
        if form.range == SHARES and float(array.max()) > 1 + 0.5 / 255:
            raise InputError(f"{what} has float pixels above 1: give `range='0-255'`, or images before normalisation")
        pixels = form.to_bytes(array, what)
        if isinstance(target, Detections):
            moved_image, moved_target = self._detections(pixels, target, own_id, what)
        else:
            moved_image = apply_shift(self.applied, pixels, seed=self.seed, id=own_id).image
            moved_target = target
        return _like(image, form.from_bytes(moved_image)), moved_target

    def _detections(self, pixels: Images, target: Detections, own_id: str, what: str) -> tuple[Images, DetectionTarget]:
        boxes = boxes_of(target, what).astype(np.float32)
        labels, scores = _column(target.labels, f"{what}: its labels"), _column(target.scores, f"{what}: its scores")
        if not len(boxes) == len(labels) == len(scores):
            raise InputError(
                f"{what} has {len(boxes)} boxes, {len(labels)} labels and {len(scores)} scores: give as many of each"
            )
        masks = getattr(target, "masks", None)
        moved = apply_shift(self.applied, pixels, seed=self.seed, id=own_id, boxes=boxes, masks=masks)
        left = ~np.isnan(np.asarray(moved.boxes)).any(axis=1)
        rest = None if moved.masks is None else moved.masks[left]
        return moved.image, DetectionTarget(np.asarray(moved.boxes)[left], labels[left], scores[left], rest)


class ShiftAugmentation(Augmentation):
    """An augmentation that stands for one shift, under the name of the class: see `roadworthy.maite.by_shift`."""

    def __init__(self, level: float | None = None, seed: int = 0, *, range: str = SHARES, **parameters: Any) -> None:
        super().__init__(self.shift, level, seed, range=range, **parameters)


def _column(values: Any, what: str) -> NDArray[Any]:
    """Numbers with one row per box, in their own type."""
    numbers_of(values, what)
    return np.atleast_1d(np.asarray(values))


def _like(given: Any, image: NDArray[Any]) -> Any:
    """An image as a tensor where a tensor was given."""
    torch = sys.modules.get("torch")
    return torch.from_numpy(image) if torch is not None and isinstance(given, torch.Tensor) else image
