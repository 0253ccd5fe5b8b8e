"""Occlusion maps: the probability of a class that is left while a patch hides one part of an image after another.

A localizer finds a class where its box is that of the true object: the maps of both kinds of model are read alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.boxes import tight_boxes
from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams, random_bytes
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Images, Prediction
from roadworthy.metrics.box_overlap import intersection_over_union
from roadworthy.metrics.occlusion import PatchGrid

GREY = 128
SAME_OBJECT = 0.5
"""The IoU from which a box is one of the true object."""
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
    Of a model that answers boxes, p is that of `found_probability`: 0 where its box misses the true one.

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
    boxes = true_boxes(batch) if "boxes" in model.columns else np.full((count, 4), np.nan, np.float32)
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
        left_over[start : start + size] = found_probability(model.answer(shown, size), class_of[images], boxes[images])
    return left_over.reshape(count, *grid.shape)


def found_probability(
    answer: Prediction, classes: NDArray[np.int64], boxes: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The probability with which the object of each image is found, (n,) float32.

    That of its class, where the answer has no boxes. Of an answer with a box, that of its class where the box has an
    IoU of at least 0.5 with the true one, else 0; a model that answers boxes alone is sure of what it finds, 1. Of
    several boxes it is the maximum, `most_probable_box`.

    classes  (n,), the class whose probability is asked;  boxes  (n, 4), the true boxes, not read without boxes

    >>> answer = Prediction(boxes=np.float32([[0, 0, 4, 4], [0, 0, 4, 4]]))
    >>> found_probability(answer, np.zeros(2, np.int64), np.float32([[0, 0, 4, 3], [2, 2, 4, 4]]))
    array([1., 0.], dtype=float32)
    """
    probability = np.ones(len(answer), np.float32)
    if "probabilities" in answer.columns:
        probability = answer.probabilities[np.arange(len(answer)), classes]
    if answer.boxes is None:
        return probability
    return most_probable_box(probability[:, None], answer.boxes[:, None], boxes)


def most_probable_box(
    probabilities: NDArray[np.float32], boxes: NDArray[np.float32], true: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The largest probability of a box that has an IoU of at least 0.5 with the true one, (n,); 0 where none has.

    probabilities  (n, k), of the class asked;  boxes  (n, k, 4);  true  (n, 4), NaN where an image has no box: 0

    >>> boxes = np.float32([[[0, 0, 4, 4], [0, 0, 4, 3], [9, 9, 12, 12]]])
    >>> most_probable_box(np.float32([[0.3, 0.6, 0.9]]), boxes, np.float32([[0, 0, 4, 4]]))
    array([0.6], dtype=float32)
    """
    count, each_image = probabilities.shape
    repeated = np.repeat(true.astype(np.float64), each_image, axis=0)
    overlap = intersection_over_union(np.nan_to_num(repeated), boxes.reshape(-1, 4).astype(np.float64))
    near = overlap.reshape(count, each_image) >= SAME_OBJECT
    return np.asarray(np.where(near, probabilities, 0).max(axis=1, initial=0.0), np.float32)


def true_boxes(batch: Batch) -> NDArray[np.float32]:
    """The boxes (N, 4) of the objects, where there is none that of the mask; a batch with neither is an error.

    >>> masks = np.ones((1, 2, 2), bool)
    >>> without = np.full((1, 4), np.nan, np.float32)
    >>> true_boxes(Batch(("a",), np.zeros((1, 2, 2, 3), np.uint8), np.zeros(1, np.int64), without, masks)).tolist()
    [[0.0, 0.0, 2.0, 2.0]]
    """
    if batch.boxes is not None and batch.masks is not None:
        return np.where(np.isnan(batch.boxes).any(axis=1, keepdims=True), tight_boxes(batch.masks), batch.boxes)
    if batch.boxes is not None:
        return batch.boxes
    if batch.masks is not None:
        return tight_boxes(batch.masks)
    raise InputError("occlusion map: the data needs boxes or masks: without them nobody knows where the object is")


def without_objects(batch: Batch) -> Batch:
    """The batch with every object gone: its box (and mask, where that reaches further) in the colour around it.

    The colour is the mean of all pixels outside, of each channel; grey where the object fills the image. The whole box
    is filled, since the outline of a filled mask would still show the shape. An image without an object stays.

    >>> masks = np.zeros((1, 2, 2), bool)
    >>> masks[0, 0, 0] = True
    >>> images = np.uint8([[[[255], [10]], [[10], [40]]]])
    >>> without_objects(Batch(("a",), images, np.zeros(1, np.int64), masks=masks)).images[0, :, :, 0].tolist()
    [[20, 10], [10, 40]]
    """
    images = batch.images.copy()
    height, width = images.shape[1:3]
    for index, (image, box) in enumerate(zip(images, true_boxes(batch), strict=True)):
        hidden = np.zeros((height, width), bool) if batch.masks is None else batch.masks[index].copy()
        if not np.isnan(box).any():
            x0, y0, x1, y1 = np.clip([np.floor(box[0]), np.floor(box[1]), *np.ceil(box[2:])], 0, None).astype(int)
            hidden[y0:y1, x0:x1] = True
        around = image[~hidden]
        image[hidden] = np.rint(around.mean(axis=0)).astype(np.uint8) if len(around) else GREY
    return batch.with_images(images, stimulus=OCCLUDED)


def _classes(classes: ArrayLike, count: int, model: Model) -> NDArray[np.int64]:
    indices = np.asarray(classes)
    if indices.shape != (count,) or indices.dtype.kind not in "iu":
        raise InputError(f"{count} images need a class index each, not {indices.dtype} {indices.shape}")
    if count and "probabilities" in model.columns and not 0 <= indices.min() <= indices.max() < model.num_classes:
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
