"""Frames with annotated objects, the one form that every annotation format is read into, and the formats by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.registry import Registry, is_same
from roadworthy.core.validation import check_settings

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels of the frame; right and bottom edge exclusive."""
FrameImage = Path | Callable[[], NDArray[np.uint8]]
"""An image file, or a function that gives the picture as uint8 (H, W, 3) RGB."""
SplitMap = Mapping[str, str | Mapping[str, float] | None]
"""What becomes of a split of the annotations: a split of ours, shares of several, or None: it is dropped."""

OWN_COLUMNS = (
    *("path", "label", "id", "group", "mask", "box", "x0", "y0", "x1", "y1"),
    *("frame", "frame_width", "frame_height", "crop_x0", "crop_y0", "crop_x1", "crop_y1", "horizon", "distance"),
    *("kind", "occluded", "truncated"),
)
"""Columns of a curated manifest that a condition of a frame must not be named like."""


@dataclass(frozen=True, slots=True)
class AnnotatedObject:
    """An object in a frame as it is annotated.

    `id` is unique in the whole data set and stays the same when the annotations are read again: users list it in files
    of rejected ids and corrected boxes. Good ids are made of the frame's id and the object's number in it, see
    `object_id`. `kind` is the class as annotated, before any map. `track` names the physical object over frames and is
    unique in the data set; it is empty where the annotations have no tracks. `distance` is in metres along the
    camera's axis, above 0, and None where it is unknown. An object with a reason in `unusable` (a crowd, a region that
    nobody annotated, one that lies mostly outside the image) is not the main object of a crop unless a person corrects
    its box, but counts as another object beside it.

    >>> AnnotatedObject("f1_00", "car", (10, 20, 50, 60)).area
    1600
    >>> AnnotatedObject("f1_00", "car", (5, 2, 1, 6))
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: the box 5 2 1 6 of object 'f1_00' ends before it begins: boxes are x0 y0 x1 y1
    """

    id: str
    kind: str
    box: Box
    occluded: bool = False
    truncated: bool = False
    track: str = ""
    distance: float | None = None
    unusable: str = ""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.box)):
            raise InputError(f"the box {self._shown()} of object {self.id!r} holds a value that is not a finite number")
        if self.box[2] < self.box[0] or self.box[3] < self.box[1]:
            raise InputError(
                f"the box {self._shown()} of object {self.id!r} ends before it begins: boxes are x0 y0 x1 y1"
            )

    def _shown(self) -> str:
        return " ".join(f"{value:g}" for value in self.box)

    @property
    def area(self) -> float:
        """The area of the box in square pixels of the frame."""
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture with all objects that are annotated in it.

    `id` is unique in the data set. `image` is a file, or a function that gives uint8 (H, W, 3) RGB. `width` and
    `height` are those of the picture; a picture of another size is an error when it is cropped. `conditions` become
    columns of the manifest (`weather`, `scene`, `time_of_day` where they are known). `split` is the split as annotated
    (`train`, `val`, ...). `horizon` is the row of the frame where the horizon lies, None where it is unknown.
    `sequence` names the drive or video: its frames stay in one split, and one worker reads them in the given order,
    so that a video can be read forwards.
    """

    id: str
    image: FrameImage
    width: int
    height: int
    objects: tuple[AnnotatedObject, ...]
    conditions: Mapping[str, str] = field(default_factory=dict)
    split: str = ""
    horizon: float | None = None
    sequence: str = ""

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise InputError(f"frame {self.id!r} is {self.width} x {self.height} pixels, which is no picture")
        taken = [name for name in self.conditions if name in OWN_COLUMNS]
        if taken:
            raise InputError(f"frame {self.id!r} has a condition {taken[0]!r}, which is a column of the manifest")


def object_id(frame_id: str, number: int) -> str:
    """The id of an object: the frame's id and the object's position in its annotation, counted from 0.

    >>> object_id("000001", 3)
    '000001_03'
    """
    return f"{frame_id}_{number:02d}"


Read = Callable[..., Iterator[Frame]]
"""`read(root: Path, **options)`: the frames below a folder; options are keywords with annotations and defaults."""


@dataclass(frozen=True)
class AnnotationFormat:
    """How a format is read, and the settings that curation takes for it unless the user says otherwise.

    `classes` gives for each class of the curated data the kinds that become it, in the order of the classes; None
    keeps every kind under its own name. `drop` are kinds that are left out on purpose. `keep_hidden` are kinds whose
    occluded or truncated objects are kept. `splits` says what becomes of each split of the annotations. `kinds`, called
    like `read`, gives all kinds in the order in which the format numbers them; None where it has no such order.
    """

    read: Read
    classes: Mapping[str, tuple[str, ...]] | None
    drop: tuple[str, ...]
    keep_hidden: tuple[str, ...]
    splits: SplitMap
    kinds: Callable[..., Sequence[str]] | None = None


PLAIN_SPLITS: SplitMap = {
    **{"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"},
    **{"": "test", "unlisted": None},
}
"""Splits of formats that have no custom of their own; `unlisted` are frames that a list of splits leaves out."""
HIDDEN_KEPT = ("pedestrian", "bicycle")
"""Kinds whose occluded or truncated objects are kept unless a format says otherwise."""


class _Formats(Registry[AnnotationFormat]):
    """The registry of formats: an entry point may name the reader itself, as `annotation_format` leaves it."""

    def register(self, name: str) -> Callable[[Any], Any]:
        """Decorator that registers a format; a reader that is no format's yet gets the plain settings."""
        add = super().register(name)

        def add_format(member: Any) -> Any:
            known = self._members.get(name)
            if not isinstance(member, AnnotationFormat):
                if known is None or known.read is not member:
                    add_format(AnnotationFormat(member, None, (), HIDDEN_KEPT, PLAIN_SPLITS))
                return member
            if known is not None and is_same(known.read, member.read):
                self._members[name] = member
            return add(member)

        return add_format


READERS: Registry[AnnotationFormat] = _Formats("format")
"""Annotation formats by name."""


def annotation_format(
    name: str,
    *,
    classes: Mapping[str, tuple[str, ...]] | None = None,
    drop: tuple[str, ...] = (),
    keep_hidden: tuple[str, ...] = HIDDEN_KEPT,
    splits: SplitMap = PLAIN_SPLITS,
    kinds: Callable[..., Sequence[str]] | None = None,
) -> Callable[[Read], Read]:
    """Decorator that registers a reader with the settings of its format; the function itself stays as it is.

    A reader yields frames in a fixed order and raises an `InputError` of one sentence with file and line where an
    annotation is malformed: see `reading.malformed`. Its options are keyword arguments; the user gives them under
    `options:` in the settings.

    >>> @annotation_format("example", classes={"car": ("Car", "Van")}, splits={"training": "test"})
    ... def read_example(root: Path, *, camera: str = "front") -> Iterator[Frame]:
    ...     yield Frame("f", root / f"{camera}.png", 640, 480, ())
    >>> [frame.id for frame in READERS.get("example").read(Path())]
    ['f']
    >>> del READERS._members["example"]
    """

    def add(read: Read) -> Read:
        READERS.register(name)(AnnotationFormat(read, classes, drop, keep_hidden, splits, kinds))
        return read

    return add


def read_frames(name: str, root: Path, options: Mapping[str, Any]) -> Iterator[Frame]:
    """The frames of a format below a folder; an unknown format or option is an `InputError`."""
    read = READERS.get(name).read
    parameters = inspect.signature(read).parameters
    known = [name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    for option, value in options.items():
        if option not in known:
            raise UnknownName(f"option of the format {name}", option, known)
        if value is None and parameters[option].default is not None:
            raise InputError(f"{name} option {option} has no value: write one, or leave the option out")
    check_settings(read, options, f"{name} option")
    return read(root, **options)
