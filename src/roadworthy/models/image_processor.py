"""The image processor of a Hugging Face model as our preprocessing: its steps where they give the same, else itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, first_line, foreign_code
from roadworthy.core.hashing import digest
from roadworthy.core.types import Images
from roadworthy.models.declared_input import range_of
from roadworthy.models.framing import METHODS, Frame
from roadworthy.models.outputs import probe_images
from roadworthy.models.preprocess import Preprocess

TRIED = ((40, 56), (300, 260))
"""Sizes of images, besides the processor's own, on which its steps are compared with ours."""
SAME = 1e-4
"""How much a value of a tensor may differ: rounding does by less, one level of a pixel by more."""
TRIED_IMAGES = 5
ANSWERED = "pixel_values"


def preprocess_of_processor(processor: Any) -> Preprocess:
    """How an image processor makes a tensor (N, 3, H, W) of images, as steps of ours or, where these differ, as it is.

    Its steps are compared with ours on images of several sizes. What is no image processor is an `InputError`.
    """
    if isinstance(processor, type):
        raise InputError(f"{processor.__name__} is a class, not an image processor: give an object of it")
    if not callable(processor) or not hasattr(processor, "to_dict"):
        raise InputError(f"a {type(processor).__name__} is not an image processor of transformers")
    steps = _steps(processor.to_dict())
    applied = AppliedProcessor.of(processor)
    sizes = [*TRIED, applied.data_size or TRIED[0]]
    if steps is not None and all(_agree(steps, applied, size) for size in sizes):
        return steps
    return applied


class AppliedProcessor(Preprocess):
    """An image processor that is applied as it is: it makes the tensor, and no gradient goes back through it."""

    processor: Any

    @classmethod
    def of(cls, processor: Any) -> AppliedProcessor:
        """The preprocessing of a processor, which answers a probe image to tell its size."""
        known = cls()
        object.__setattr__(known, "processor", processor)
        shapes = {known(probe_images(size, 3, 1)).shape[2:] for size in TRIED}
        size = shapes.pop() if len(shapes) == 1 else None
        object.__setattr__(known, "size", size)
        return known

    @property
    def has_adjoint(self) -> bool:
        """False: its steps are its own."""
        return False

    def __call__(self, images: Images) -> NDArray[Any]:
        """What the processor makes of images (N, H, W, C); grey ones are repeated to three channels."""
        coloured = np.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else images

        def explain(error: BaseException) -> ModelError:
            return ModelError(f"the image processor {self._name} failed: {first_line(error)}")

        with foreign_code(explain):
            answer = self.processor(images=[*coloured], return_tensors="np", input_data_format="channels_last")
            tensor = np.ascontiguousarray(answer[ANSWERED], np.float32)
        if tensor.ndim != 4 or len(tensor) != len(images) or tensor.shape[1] != 3:
            raise InputError(
                f"the image processor {self._name} gives {tensor.shape} for {len(images)} images, not one each"
            )
        return tensor

    def settings(self) -> dict[str, Any]:
        """The settings of the processor in place of ours."""
        content = {key: repr(value) for key, value in self.processor.to_dict().items()}
        return {"processor": digest(content)}

    def as_plain(self) -> dict[str, Any]:
        """What is known of it in another process, where it cannot be applied."""
        return {"stated": {"description": str(self), "size": self.size, "settings": self.settings()}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AppliedProcessor) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash(self.settings()["processor"])

    def __str__(self) -> str:
        size = "any size" if self.size is None else f"{self.size[0]}x{self.size[1]}"
        return f"{size}, by {self._name} as it is"

    @property
    def _name(self) -> str:
        return type(self.processor).__name__


def _agree(steps: Preprocess, applied: Preprocess, size: tuple[int, int]) -> bool:
    images = probe_images(size, 3, TRIED_IMAGES)
    ours, own = steps(images), applied(images)
    return ours.shape == own.shape and bool(np.abs(ours - own).max(initial=0.0) <= SAME)


def _steps(settings: Mapping[str, Any]) -> Preprocess | None:
    """The steps that settings of a processor speak of; None where they are of another form."""
    try:
        frame = _frame(settings)
        if frame is not None and isinstance(frame.resize, int) and frame.crop is None:
            return None  # the shape of the tensor follows that of the image
        size = None if frame is None else frame.crop or frame.before_crop
        return Preprocess(_range(settings), size=size, frame=frame)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, InputError):
        return None


def _range(settings: Mapping[str, Any]) -> str:
    """What a processor does with pixel values: (factor x - offset - mean) / std, as a range of x / 255."""
    rescales, normalises = settings.get("do_rescale"), settings.get("do_normalize")
    factor = 255 * float(settings["rescale_factor"]) if rescales else 255.0
    offset = 1.0 if rescales and settings.get("rescale_offset") else 0.0
    mean, std = (_values(settings[key]) for key in ("image_mean", "image_std")) if normalises else ([0.0], [1.0])
    if normalises and settings.get("include_top"):  # EfficientNet divides by it twice
        std = [value * value for value in std]
    return range_of([(value + offset) / factor for value in mean], [value / factor for value in std])


def _values(values: Any) -> list[float]:
    return [float(value) for value in (values if isinstance(values, list | tuple) else [values])]


def _frame(settings: Mapping[str, Any]) -> Frame | None:
    """How a processor resizes and crops; None where it does not, a `ValueError` where it does so in another way."""
    crop = settings["crop_size"] if settings.get("do_center_crop") else None
    part = None if crop is None else (int(crop["height"]), int(crop["width"]))
    if not settings.get("do_resize"):
        if part is not None:
            raise ValueError("a crop without a size before it")
        return None
    size, method = dict(settings["size"]), METHODS[int(settings["resample"])]
    given = {key: int(value) for key, value in size.items() if value}
    if settings.get("crop_pct") and part is None and given.keys() == {"shortest_edge"}:  # the way of ConvNeXt
        side = given["shortest_edge"]
        if side >= 384:
            return Frame((side, side), method)
        return Frame(math.floor(side / float(settings["crop_pct"])), method, (side, side))
    if given.keys() == {"height", "width"}:
        return Frame((given["height"], given["width"]), method, part)
    if given.keys() == {"shortest_edge"}:
        return Frame(given["shortest_edge"], method, part)
    raise ValueError(f"a size of another form: {size}")
