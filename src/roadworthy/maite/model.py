"""A model of MAITE as a model: images (C, H, W) in a list go in, targets come out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, RoadworthyError, first_line, foreign_code
from roadworthy.maite.data import KIND
from roadworthy.maite.reading import Detections, best_box, is_model, names_of_classes
from roadworthy.models import CallableModel
from roadworthy.models.outputs import PROBE_SIZES, probe_images
from roadworthy.models.preprocess import Preprocess, parse_choice, parse_range

AS_BYTES = "uint8"


class Model(CallableModel):
    """A model of MAITE, of image classification or of object detection, of which the box of the highest score counts.

    range    what its images hold: `uint8`, or float32 in `0-1`, `0-255`, `-1-1`, `imagenet` or MEAN/STD. MAITE does not
             say, so it follows from the data where that is a data set of MAITE, and must be given otherwise
    outputs  `probabilities`, `logits` or `auto`: its answers to probe images tell
    classes  names in the order of its answers, where its metadata has no `index2label`
    version  any text that changes when the answers do, where these are decided by what cannot be seen
    """

    float_channels = 0

    def __init__(
        self,
        model: Any,
        *,
        range: str | None = None,
        outputs: str = "auto",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        classes: str | Path | Sequence[str] | None = None,
        concurrent: bool = False,
        version: str | None = None,
        name: str | None = None,
        base: Path = Path(),
    ) -> None:
        if not is_model(model):
            raise InputError(
                f"a model of MAITE has metadata with an id and can be called, which {type(model).__name__} cannot"
            )
        own_name = name or str(model.metadata["id"])
        if range is None:
            raise InputError(
                f"MAITE does not say which pixels model {own_name} expects: say `range='uint8'`, `range='0-1'` or "
                "`range='0-255'` (it follows from the data where that is a data set of MAITE)"
            )
        shown = None if range == AS_BYTES else range
        if shown is not None:
            parse_range(shown)
        self.model = model
        locates = _answers_boxes(model, shown, colour)
        of_boxes: dict[str, Any] = {"boxes": "corners pixels", "box_output": "boxes", "class_output": "none"}
        of_classes: dict[str, Any] = {"outputs": parse_choice("outputs", outputs, ("auto", "probabilities", "logits"))}
        names = names_of_classes(model.metadata, 0, f"model {own_name}") if classes is None else None
        of_classes["classes"] = classes if names is None else names
        super().__init__(
            partial(_boxes if locates else _scores, model),
            range=shown,
            layout="nchw",
            colour=colour,
            size=size,
            concurrent=concurrent,
            version=version,
            name=own_name,
            base=base,
            **(of_boxes if locates else of_classes),
        )
        self.details = {"kind": KIND, "id": str(model.metadata["id"])}

    def turn_key(self) -> Hashable:
        """The model of MAITE."""
        return id(self.model)


def _scores(model: Any, tensor: NDArray[Any]) -> NDArray[Any]:
    """Class scores (N, Cl) of a model for images (N, C, H, W)."""
    targets = model(list(tensor))
    if len(targets) != len(tensor):
        raise ModelError(f"the model answered {len(targets)} targets to {len(tensor)} images")
    return np.stack([np.asarray(target) for target in targets])


def _boxes(model: Any, tensor: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Boxes (N, 4) of a detector for images (N, C, H, W)."""
    targets = model(list(tensor))
    if len(targets) != len(tensor):
        raise ModelError(f"the model answered {len(targets)} targets to {len(tensor)} images")
    return {"boxes": np.stack([best_box(target) for target in targets])}


def _answers_boxes(model: Any, shown: str | None, colour: str) -> bool:
    """Whether a model answers detections, by its answer to a probe image of the first size that it takes."""
    preprocess = Preprocess(shown or "0-255", "nchw", colour, None, 0, "float32" if shown else "uint8")
    for size in PROBE_SIZES:
        for number in (3, 1):
            try:
                with foreign_code(lambda error: ModelError(first_line(error))):
                    return isinstance(model(list(preprocess(probe_images(size, number, 1))))[0], Detections)
            except RoadworthyError:
                continue
    return False
