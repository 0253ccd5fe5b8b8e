"""What a model's output means: logits or probabilities, decided once, and the one softmax that everything uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.types import Images, Prediction
from roadworthy.models.preprocess import parse_choice

OUTPUTS = ("auto", "probabilities", "logits")
DETECTION_COLUMNS = (4, 6, 7)
"""Columns of a row for a detected object: its box, or its box with score and class, and maybe the image's number."""
PROBES = 8
PROBE_SIZES = tuple((side, side) for side in (32, 64, 224, 28, 48, 40, 96, 128, 112, 160, 192, 240, 256, 299, 384, 512))
SUM_TOLERANCE = 1e-3
NEGATIVE_TOLERANCE = 1e-6
SAME = 1e-4
"""How much the scores of equal networks may differ, as a share of the largest score (of 1 where that is smaller)."""


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Probabilities (N, K) of logits (N, K): p_k = exp(z_k - max z) / sum_j exp(z_j - max z).

    The logits are taken as float32, the sum is made in float64 and the result is rounded to float32, row by row: stored
    logits give the same bits as the model that answered them, which `scipy.special.softmax` does not promise.

    >>> softmax(np.array([[0.0, np.log(3.0)], [1000.0, 0.0]])).tolist()
    [[0.25, 0.75], [1.0, 0.0]]
    """
    values = np.ascontiguousarray(np.asarray(logits, np.float32), np.float64)
    with np.errstate(invalid="ignore"):  # of infinite logits there are no probabilities: NaN, which is refused
        exponents = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(exponents / exponents.sum(axis=1, keepdims=True), np.float32)


def prediction(
    rows: NDArray[np.floating[Any]], kind: str, logits: NDArray[np.floating[Any]] | None = None
) -> Prediction:
    """The answer in rows (N, K) of `kind` `logits` or `probabilities`; `logits` where the model gives both.

    >>> prediction(np.zeros((1, 4)), "logits").probabilities.tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    if kind == "logits":
        logits = np.ascontiguousarray(rows, np.float32)
        return Prediction(probabilities=softmax(logits), logits=logits)
    own = None if logits is None else np.ascontiguousarray(logits, np.float32)
    return Prediction(probabilities=np.ascontiguousarray(rows, np.float32), logits=own)


def as_rows(output: NDArray[Any], count: int) -> NDArray[Any] | None:
    """An output as (N, K): (N, K, 1, 1) is squeezed and (K,) is the answer to one image; None where it is neither.

    >>> as_rows(np.zeros((2, 5, 1, 1)), 2).shape, as_rows(np.zeros(5), 1).shape, as_rows(np.zeros((3, 5)), 2)
    ((2, 5), (1, 5), None)
    """
    if count == 1 and output.ndim == 1:
        output = output[None]
    if output.ndim < 2 or len(output) != count or any(side != 1 for side in output.shape[2:]):
        return None
    return output.reshape(count, output.shape[1])


def refuse_detector(answer: Any, count: int, what: str) -> None:
    """Refuse, in one sentence, a model whose answer to `count` images looks like many boxes or cells per image.

    `answer` is as the model gives it: an array, a tensor, several of them, or a dictionary per image. Where an output
    has a row per image, as class scores have, it may still be the scores of an image's boxes: then boxes that are as
    many as these scores lie beside it.

    >>> refuse_detector({"boxes": np.zeros((2, 9, 4)), "scores": np.zeros((2, 9))}, 2, "m")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: m looks like a detector: for each image it answers several boxes...
    >>> refuse_detector(np.zeros((2, 43)), 2, "m.onnx")
    """
    shapes = _shapes(answer, count)
    of_boxes = [name for name, shape in shapes.items() if _is_boxes(shape, count)]
    answered = any(_is_row(shape, count) for shape in shapes.values())
    beside = [name for name in of_boxes for other in shapes if other != name and _corresponds(shapes, name, other)]
    maps = [name for name, shape in shapes.items() if _is_map(shape, count)]
    looks_like, found = "a detector: for each image it answers several boxes", beside if answered else of_boxes
    if not found and not answered:
        looks_like, found = "a detector or a segmenter: for each image it answers many rows of values", maps
    if found:
        shape = " x ".join(map(str, shapes[found[0]]))
        raise InputError(
            f"{what} looks like {looks_like} (output {found[0]!r} is {shape}), and only models that answer one class "
            "or one box per image are tested so far"
        )


def _shapes(answer: Any, count: int) -> dict[str, tuple[int, ...]]:
    """The shapes of all arrays in an answer, by name; of an answer that is a dictionary per image, of the first."""
    if isinstance(answer, list | tuple):
        if len(answer) == count and all(isinstance(part, Mapping) for part in answer):
            return _shapes(answer[0], 1)
        answer = dict(enumerate(answer))
    elif not isinstance(answer, Mapping):
        answer = {"output": answer} if hasattr(answer, "shape") else getattr(answer, "__dict__", {})
    return {str(name): tuple(part.shape) for name, part in answer.items() if hasattr(part, "shape")}


def _is_row(shape: tuple[int, ...], count: int) -> bool:
    """Whether an output has one row of several numbers per image, as class scores have: see `as_rows`."""
    shape = (1, *shape) if count == 1 and len(shape) == 1 else shape
    return len(shape) > 1 and shape[0] == count and shape[1] > 1 and math.prod(shape[2:]) == 1


def _is_boxes(shape: tuple[int, ...], count: int) -> bool:
    """Whether an output can be several boxes per image: (N, M, 4), or (M, 4) where there is one image."""
    if len(shape) == 2 and (count == 1 or shape[0] != count):
        return shape[1] in DETECTION_COLUMNS and shape[0] != 1
    return len(shape) == 3 and shape[0] == count and shape[1] != 1 and shape[2] in DETECTION_COLUMNS


def _corresponds(shapes: Mapping[str, tuple[int, ...]], boxes: str, other: str) -> bool:
    """Whether another output has as many entries per image as one of boxes."""
    entries = shapes[boxes][:-1]
    return shapes[other][: len(entries)] == entries


def _is_map(shape: tuple[int, ...], count: int) -> bool:
    """Whether an output has many rows or cells per image: (N, A, 5 + K), (N, 4 + K, A) or (N, C, H, W)."""
    return len(shape) in (3, 4) and shape[0] == count and sorted(shape[1:])[-2] > 4


def same_scores(
    scores: NDArray[np.floating[Any]], expected: NDArray[np.floating[Any]], tolerance: float = SAME
) -> bool:
    """Whether two ways to run a network give the same scores: none differs by more than the tolerance.

    >>> same_scores(np.array([[1.0, 50.0]]), np.array([[1.0, 50.001]])), same_scores(np.ones(2), np.zeros(2))
    (True, False)
    """
    if scores.shape != expected.shape:
        return False
    limit = tolerance * max(1.0, float(np.abs(expected).max(initial=0.0)))
    return bool(np.abs(scores - expected).max(initial=0.0) <= limit)


def are_probabilities(rows: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """(N,): which rows are not negative and sum to 1; rows of whole numbers or of booleans are taken as numbers.

    >>> are_probabilities(np.array([[0.5, 0.5], [0.9, 0.9], [-1.0, 2.0]])).tolist()
    [True, False, False]
    >>> are_probabilities(np.array([[0, 1], [3, -2]])).tolist()
    [True, False]
    """
    rows = np.asarray(rows, np.result_type(rows.dtype, np.float32))
    sums = rows.sum(axis=1, dtype=np.float64)
    within = rows.min(axis=1, initial=np.inf) >= -NEGATIVE_TOLERANCE
    return np.asarray(within & (np.abs(sums - 1.0) <= SUM_TOLERANCE))


def decide(declared: str, rows: NDArray[np.floating[Any]], what: str, stated: str = "") -> str:
    """`probabilities` or `logits`, from what the user declared and answers (N, K) that were seen.

    `stated` says for a message how the model itself calls its answers so, where it is not the user who does: `calls
    them`.

    >>> decide("auto", np.array([[0.2, 0.8], [1.0, 0.0]]), "m"), decide("auto", np.array([[-3.0, 8.0]]), "m")
    ('probabilities', 'logits')
    """
    parse_choice("outputs", declared, OUTPUTS)
    if rows.dtype.kind not in "fiub":
        raise InputError(f"{what} answers {rows.dtype}: class scores are real numbers")
    if rows.shape[1] < 2:
        raise InputError(f"{what} answers one number per image: a classifier has one column per class, at least two")
    rows = np.asarray(rows, np.result_type(rows.dtype, np.float32))
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows):
        raise InputError(f"{what} answers NaN or infinity to every image: check its range and its weights")
    looks_like = are_probabilities(rows)
    if stated and declared == "probabilities" and not looks_like.all():
        raise InputError(
            f"{what} {stated} probabilities, but {_sums(rows)}{_negative(rows)}: answer rows that sum to 1"
        )
    if stated and declared == "logits" and looks_like.all():
        raise InputError(f"{what} {stated} logits, but {_sums(rows)}: answer logits, or call them probabilities")
    if declared == "probabilities" and not looks_like.all():
        raise InputError(
            f"{what} answers logits where probabilities were declared ({_span(rows)}): declare `outputs='logits'`"
        )
    if declared == "logits" and looks_like.all():
        raise InputError(
            f"{what} answers probabilities where logits were declared ({_span(rows)}): "
            "declare `outputs='probabilities'`"
        )
    if declared != "auto":
        return declared
    if looks_like.all():
        return "probabilities"
    if rows.min() >= 0 and rows.max() <= 1:
        raise InputError(
            f"{what} answers values in 0 to 1 that do not sum to 1 ({_span(rows)}; a sigmoid per class?): "
            "declare `outputs='logits'` if they are scores, or add a softmax to the model"
            + ("; if they are a box, declare `boxes='corners relative'`" if rows.shape[1] in (4, 8) else "")
        )
    return "logits"


def probe_images(size: tuple[int, int], channels: int, count: int = PROBES) -> Images:
    """Black, white, a ramp, then noise of falling contrast (N, H, W, C): always the same.

    >>> probe_images((4, 4), 3, 5)[:2, 0, 0, 0].tolist()
    [0, 255]
    """
    (rng,) = Streams("probe").each(["images"])
    images = np.empty((count, *size, channels), np.uint8)
    flat = (0, 255, np.linspace(0, 255, size[1]).astype(np.uint8)[:, None])
    for index, image in enumerate(images):
        noise = rng.integers(0, 256, image.shape)
        image[...] = flat[index] if index < len(flat) else 128 + (noise - 128) // (index - len(flat) + 1)
    return images


def _span(rows: NDArray[np.floating[Any]]) -> str:
    return f"values {rows.min():.4g} to {rows.max():.4g}, {_sums(rows)}"


def _sums(rows: NDArray[np.floating[Any]]) -> str:
    sums = rows.sum(axis=1, dtype=np.float64)
    least, most = f"{sums.min():.4g}", f"{sums.max():.4g}"
    return f"rows sum to {least}" if least == most else f"rows sum to {least} to {most}"


def _negative(rows: NDArray[np.floating[Any]]) -> str:
    return f" and hold {rows.min():.4g}" if rows.min() < -NEGATIVE_TOLERANCE else ""
