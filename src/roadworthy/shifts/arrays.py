"""Shifts of plain arrays: one image or a batch in, the same out, with boxes and masks moved along where given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import Shift
from roadworthy.core.types import Batch, Images
from roadworthy.core.validation import check_whole

MOST_SEED = 2**64 - 1
ROWS_AT_ONCE = 16
"""Copies of an image at once, where several boxes or masks of it are moved."""


class Moved(NamedTuple):
    """A disturbed image, or a batch, with what moved along; None for what was not given.

    image  like the one given
    boxes  like those given, float32: x0, y0, x1, y1 in pixels; NaN where nothing of a box is left in the image
    masks  like those given, bool
    """

    image: Images
    boxes: NDArray[np.float32] | None
    masks: NDArray[np.bool_] | None


class ShiftFunction:
    """A registered shift as a function of arrays. `rw.shifts.fog` is one.

    image       (H, W), (H, W, 1) or (H, W, 3) uint8, or a batch (N, H, W, 1 or 3)
    level       1 to 5, or between: how strong it is; where nothing is said, 3 of five, 1 of two
    seed, id    the random numbers of an image follow from the seed and its id alone; a batch has an id for each image.
                Without ids an image is `0`, and the images of a batch are `0`, `1`, ...
    boxes       of one image (4,) or (K, 4), of a batch (N, 4): x0, y0, x1, y1 in pixels, NaN for none
    masks       of one image (H, W) or (K, H, W), of a batch (N, H, W); where there are masks, boxes are those of the
                moved masks
    depth       (H, W), of a batch (N, H, W): metres, for shifts that depend on it
    parameters  those of the shift, in place of a level, or beside it in place of some of the level's

    It returns an array of the shape of the image; where boxes or masks are given, a `Moved`.

    >>> grey = np.full((32, 32, 3), 90, np.uint8)
    >>> fog = ShiftFunction("fog")
    >>> fog(grey, level=2).shape, bool((fog(grey, factor=0.4) == fog(grey, level=2)).all())
    ((32, 32, 3), True)
    >>> ShiftFunction("crop")(grey, size=48, boxes=[8, 8, 24, 24]).boxes.shape
    (4,)
    """

    def __init__(self, name: str) -> None:
        shift = _find(name)
        self.__name__ = self.__qualname__ = name
        self.__doc__ = inspect.getdoc(shift)
        call = inspect.signature(ShiftFunction.__call__)
        common = [entry for entry in call.parameters.values() if entry.name not in ("self", "parameters")]
        keyword = inspect.Parameter.KEYWORD_ONLY
        own = [inspect.Parameter(entry, keyword, annotation=type_) for entry, type_ in parameter_types(shift).items()]
        self.__signature__ = call.replace(parameters=[*common, *(one.replace(default=None) for one in own)])

    def __repr__(self) -> str:
        return f"<function roadworthy.shifts.{self.__name__}{self.__signature__}>"

    @overload
    def __call__(
        self,
        image: ArrayLike,
        level: float | None = None,
        *,
        seed: int = 0,
        id: str | int | Sequence[str | int] | None = None,
        depth: ArrayLike | None = None,
        boxes: None = None,
        masks: None = None,
        **parameters: Any,
    ) -> Images: ...
    @overload
    def __call__(
        self,
        image: ArrayLike,
        level: float | None = None,
        *,
        seed: int = 0,
        id: str | int | Sequence[str | int] | None = None,
        depth: ArrayLike | None = None,
        boxes: ArrayLike,
        masks: ArrayLike | None = None,
        **parameters: Any,
    ) -> Moved: ...
    @overload
    def __call__(
        self,
        image: ArrayLike,
        level: float | None = None,
        *,
        seed: int = 0,
        id: str | int | Sequence[str | int] | None = None,
        depth: ArrayLike | None = None,
        boxes: None = None,
        masks: ArrayLike,
        **parameters: Any,
    ) -> Moved: ...
    def __call__(
        self,
        image: ArrayLike,
        level: float | None = None,
        *,
        seed: int = 0,
        id: str | int | Sequence[str | int] | None = None,
        depth: ArrayLike | None = None,
        boxes: ArrayLike | None = None,
        masks: ArrayLike | None = None,
        **parameters: Any,
    ) -> Images | Moved:
        """The disturbed image, or a `Moved` where boxes or masks are given; what cannot be used is an `InputError`."""
        given = {name: value for name, value in parameters.items() if value is not None}
        shift = shift_of(self.__name__, level, given)
        moved = apply_shift(shift, image, seed=seed, id=id, depth=depth, boxes=boxes, masks=masks)
        return moved.image if boxes is None and masks is None else moved


def shift_of(shift: str | Shift, level: float | None = None, parameters: dict[str, Any] | None = None) -> Shift:
    """A shift by name at a level, with parameters of its own, or with both; a `Shift` comes back as it is.

    Without a level it is at the middle one, 3 of five, unless parameters that levels set are given: then all of these
    must be.

    >>> shift_of("fog"), shift_of("fog", 2), shift_of("fog", parameters={"factor": 0.15})
    (Fog(level=3, factor=0.5), Fog(level=2, factor=0.4), Fog(level=1, factor=0.15))
    >>> shift_of("c_spatter", 2, {"liquid": "mud"}).liquid
    'mud'
    """
    given = parameters or {}
    if isinstance(shift, Shift):
        if level is not None or given:
            raise InputError(f"shift {shift.name} is complete: leave out `level=` and its parameters")
        return shift
    cls = _find(shift)
    if level is None and not any(name in row for row in cls.LEVELS for name in given):
        level = (len(cls.LEVELS) + 1) // 2
    if level is None:
        return cls.at(1, {1: given})
    base = cls.at(level)
    return cls.at(1, {1: {**base.parameters(), **given}}) if given else base


def _find(name: str) -> type[Shift]:
    """The registered shift of that name; an attack is refused, since it needs a model."""
    from roadworthy.shifts import ATTACKS, find_shift

    if name in ATTACKS:
        raise InputError(f"{name} is an attack on a model, not a function of images: name it in a study or a suite")
    return find_shift(name)


def apply_shift(
    shift: Shift,
    image: ArrayLike,
    *,
    seed: int = 0,
    id: str | int | Sequence[str | int] | None = None,
    depth: ArrayLike | None = None,
    boxes: ArrayLike | None = None,
    masks: ArrayLike | None = None,
) -> Moved:
    """A shift of one image, with any number of boxes and masks, or of a batch, with one of each per image.

    Arguments are those of `ShiftFunction`. Random numbers follow from the name of the shift, the seed and the ids: a
    stronger level of the same shift disturbs the same places.
    """
    check_whole("seed", seed, 0, MOST_SEED)
    pixels = pixels_of(image)
    if pixels.ndim == 4:
        return _shift_batch(shift, pixels, seed, _ids(id, len(pixels)), depth, boxes, masks)
    (own_id,) = _ids(None if id is None else [id], 1)
    return _shift_one(shift, pixels, seed, own_id, depth, boxes, masks)


def _shift_batch(
    shift: Shift,
    images: Images,
    seed: int,
    ids: tuple[str, ...],
    depth: ArrayLike | None,
    boxes: ArrayLike | None,
    masks: ArrayLike | None,
) -> Moved:
    count, *size = images.shape[:3]
    batch = Batch(
        ids,
        images,
        np.zeros(count, np.int64),
        boxes=None if boxes is None else _numbers("boxes", boxes, (count, 4)),
        masks=None if masks is None else _flags(masks, (count, *size)),
        depth=None if depth is None else _numbers("depth", depth, (count, *size)),
    )
    moved = shift(batch, Streams(seed, shift.name)) if count else batch
    return Moved(moved.images, moved.boxes, moved.masks)


def _shift_one(
    shift: Shift,
    image: Images,
    seed: int,
    own_id: str,
    depth: ArrayLike | None,
    boxes: ArrayLike | None,
    masks: ArrayLike | None,
) -> Moved:
    """One image with K boxes and masks: shown K times with one id, it moves in the same way every time."""
    size = image.shape[:2]
    box_table = None if boxes is None else _numbers("boxes", boxes, (4,), "K")
    mask_table = None if masks is None else _flags(masks, size, "K")
    depth_table = None if depth is None else _numbers("depth", depth, size)[None]
    counts = {len(table) for table in (box_table, mask_table) if table is not None}
    if len(counts) > 1:
        raise InputError(f"one image has {max(counts)} boxes or masks and {min(counts)} of the other: give as many")
    count = max(counts, default=0)
    shown = image.reshape(1, *size, -1)

    def rows(start: int, stop: int) -> Batch:
        many = max(stop - start, 1)
        return Batch(
            (own_id,) * many,
            np.repeat(shown, many, axis=0),
            np.zeros(many, np.int64),
            boxes=None if box_table is None or stop == start else box_table[start:stop],
            masks=None if mask_table is None or stop == start else mask_table[start:stop],
            depth=None if depth_table is None else np.repeat(depth_table, many, axis=0),
        )

    def disturbed(batch: Batch) -> Batch:
        return shift(batch, Streams(seed, shift.name))

    if count == 0 or shift.keeps_places:
        painted = disturbed(rows(0, 0)).images[0].reshape(image.shape)
        return Moved(painted, _shaped(box_table, boxes), _shaped(mask_table, masks))
    parts = [disturbed(rows(start, min(start + ROWS_AT_ONCE, count))) for start in range(0, count, ROWS_AT_ONCE)]
    return Moved(
        parts[0].images[0].reshape(image.shape),
        _shaped(None if boxes is None else np.concatenate([np.asarray(part.boxes) for part in parts]), boxes),
        _shaped(None if masks is None else np.concatenate([np.asarray(part.masks) for part in parts]), masks),
    )


def _shaped(table: NDArray[Any] | None, given: ArrayLike | None) -> Any:
    """A table of boxes or masks in the shape in which they were given."""
    return None if table is None else table.reshape(np.shape(given))  # type: ignore[arg-type]


def array_of(what: str, values: ArrayLike) -> NDArray[Any]:
    """Values as an array; rows of different lengths are an `InputError`."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{what} must have rows of one length") from None


def pixels_of(image: ArrayLike) -> Images:
    """Pixels (H, W), (H, W, C) or (N, H, W, C) uint8 as an array of its own; all else is an `InputError`."""
    if type(image).__module__.startswith("torch"):
        raise InputError("an image is a uint8 array (H, W, C): apply the shift before the image becomes a tensor")
    pixels = array_of("an image", image)
    if pixels.dtype != np.uint8:
        raise InputError(f"an image has uint8 pixels, 0 to 255, not {pixels.dtype}: scale and round it first")
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3):
        raise InputError(f"an image {pixels.shape} has its channels first: give (H, W, C), image.transpose(1, 2, 0)")
    if pixels.ndim not in (2, 3, 4) or (pixels.ndim > 2 and pixels.shape[-1] not in (1, 3)):
        raise InputError(f"an image is (H, W), (H, W, 1 or 3), a batch (N, H, W, 1 or 3), not {pixels.shape}")
    if 0 in (pixels.shape[-3:-1] if pixels.ndim > 2 else pixels.shape):
        raise InputError(f"an image has at least one pixel, not {pixels.shape}")
    return np.ascontiguousarray(pixels)


def _ids(given: Any, count: int) -> tuple[str, ...]:
    """The ids of so many images: those given, else their numbers."""
    if given is None:
        return tuple(map(str, range(count)))
    given = given.tolist() if isinstance(given, np.ndarray) else given
    listed = [] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if len(listed) != count or not all(isinstance(one, str | int | np.integer) for one in listed):
        raise InputError(f"`id=` must be {'a text or a number' if count == 1 else f'{count} texts or numbers'}")
    return tuple(map(str, given))


def _numbers(what: str, given: ArrayLike, shape: tuple[int, ...], many: Literal["K", ""] = "") -> NDArray[np.float32]:
    return np.asarray(_table(what, given, shape, many, lambda kind: kind in "iuf"), np.float32)


def _flags(given: ArrayLike, shape: tuple[int, ...], many: Literal["K", ""] = "") -> NDArray[np.bool_]:
    return np.asarray(_table("masks", given, shape, many, lambda kind: kind in "biu") != 0)


def _table(
    what: str, given: ArrayLike, shape: tuple[int, ...], many: Literal["K", ""], allowed: Callable[[str], bool]
) -> NDArray[Any]:
    """What is given as an array of that shape; with `many`, of any number of these, a single one as the first."""
    table = array_of(f"`{what}=`", given)
    if many and table.size == 0 and table.ndim == 1:
        table = table.reshape(0, *shape)
    if not allowed(table.dtype.kind) and table.size:
        raise InputError(f"`{what}=` are numbers, not {table.dtype}")
    if many and table.shape == shape:
        table = table[None]
    if (table.shape[1:] if many else table.shape) != shape:
        expected = f"{shape}{f' or (K, {str(shape)[1:-1]})' if many else ''}".replace(",)", ")")
        raise InputError(f"`{what}=` must have the shape {expected}, not {np.shape(given)}")
    return table


def parameter_types(shift: type[Shift]) -> dict[str, str]:
    """The parameters of a shift by name, each with its type as its class writes it.

    >>> from roadworthy.shifts import Perspective
    >>> parameter_types(Perspective)
    {'strength': 'float', 'scale': 'float'}
    """
    known = (entry for entry in fields(shift) if entry.name != "level" and not entry.name.startswith("_"))
    return {entry.name: entry.type if isinstance(entry.type, str) else str(entry.type) for entry in known}
