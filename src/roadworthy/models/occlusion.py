"""Occlusion maps: the probability of a class that is left while a patch hides one part of an image after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams, random_bytes
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Images
from roadworthy.metrics.occlusion import PatchGrid

GREY = 128
BLUR = 0.5
"""Sigma of the blur that hides, as a share of the patch."""
OCCLUDED = "occluded"
"""The stimulus that occluded images carry: stored predictions have no answers to it, and report that."""


def occlusion_map(
    model: Model,
    batch: Batch,
    *,
    patch: int,
    stride: int,
    fill: str = "grey",
    classes: ArrayLike | None = None,
    batch_size: int = 32,
    seed: int = 0,
) -> NDArray[np.float32]:
    """Heat maps (N, rows, columns): the probability of a class while the patch of that cell hides the image.

        H[i, r, c] = p(class_i | image i with pixels [top_r, top_r + patch) x [left_c, left_c + patch) replaced)

    The cells are those of `PatchGrid(H, W, patch, stride)`. `classes` (N,) are the labels unless given; give the
    model's own predictions to ask what its answer rests on. Images and positions fill the model's batches together.

    fill  what hides: `grey` (128), `mean` (the image's mean colour), `blur` (the image, Gaussian, sigma half a patch),
          or `noise` (uniform, one noise image per image, from its own random stream)

    >>> from roadworthy.models import CallableModel
    >>> def brightness(images):
    ...     light = images.mean(axis=(1, 2, 3)) / 255
    ...     return np.stack([light, 1 - light], axis=1)
    >>> model = CallableModel(brightness, num_classes=2, version="1")
    >>> white = Batch(("a",), np.full((1, 4, 4, 3), 255, np.uint8), np.zeros(1, np.int64))
    >>> occlusion_map(model, white, patch=2, stride=2)[0].round(4)
    array([[0.8755, 0.8755],
           [0.8755, 0.8755]], dtype=float32)
    """
    if fill not in FILLS:
        raise InputError(f"cannot hide a patch by {fill!r}: use {', '.join(FILLS)}")
    if batch_size < 1:
        raise InputError(f"a batch needs at least one image, not {batch_size}")
    count, height, width, _ = batch.images.shape
    try:
        grid = PatchGrid(height, width, patch, stride)
    except ValueError as error:
        raise InputError(f"occlusion map: {error}") from None
    class_of = _classes(batch.labels if classes is None else classes, count, model)
    cover = FILLS[fill](batch, patch, seed)
    corners = [(top, left) for top in grid.tops for left in grid.lefts]
    size = model.fixed_batch or batch_size
    left_over = np.empty(count * len(corners), np.float32)
    for start in range(0, len(left_over), size):
        images, cells = np.divmod(np.arange(start, min(start + size, len(left_over))), len(corners))
        hidden = batch.images[images]
        for target, image, cell in zip(hidden, images, cells, strict=True):
            top, left = corners[cell]
            area = np.s_[top : top + patch, left : left + patch]
            target[area] = cover[image][area]
        shown = Batch(tuple(batch.ids[i] for i in images), hidden, batch.labels[images], stimulus=OCCLUDED)
        answer = model.answer(shown, size).probabilities
        left_over[start : start + size] = answer[np.arange(len(images)), class_of[images]]
    return left_over.reshape(count, *grid.shape)


def _classes(classes: ArrayLike, count: int, model: Model) -> NDArray[np.int64]:
    indices = np.asarray(classes)
    if indices.shape != (count,) or indices.dtype.kind not in "iu":
        raise InputError(f"{count} images need a class index each, not {indices.dtype} {indices.shape}")
    if count and not 0 <= indices.min() <= indices.max() < model.num_classes:
        raise InputError(f"classes must lie within 0..{model.num_classes - 1}, those of model {model.name}")
    return indices.astype(np.int64)


def _grey(batch: Batch, patch: int, seed: int) -> Images:
    return np.broadcast_to(np.uint8(GREY), batch.images.shape)


def _mean(batch: Batch, patch: int, seed: int) -> Images:
    colour = np.rint(batch.images.mean(axis=(1, 2), keepdims=True)).astype(np.uint8)
    return np.broadcast_to(colour, batch.images.shape)


def _blur(batch: Batch, patch: int, seed: int) -> Images:
    shape: Any = batch.images.shape[1:]
    blurred = [cv2.GaussianBlur(image, (0, 0), BLUR * patch).reshape(shape) for image in batch.images]
    return np.array(blurred, np.uint8).reshape(batch.images.shape)


def _noise(batch: Batch, patch: int, seed: int) -> Images:
    shape = batch.images.shape[1:]
    count = int(np.prod(shape))
    noise = [random_bytes(rng, count).reshape(shape) for rng in Streams(seed, "occlusion").each(batch.ids)]
    return np.array(noise, np.uint8).reshape(batch.images.shape)


FILLS: dict[str, Callable[[Batch, int, int], Images]] = {"grey": _grey, "mean": _mean, "blur": _blur, "noise": _noise}
"""What hides a patch, by name: images of the batch's shape from (batch, patch, seed)."""
