"""What a torch module says of its own input, as modules of timm do: mean, standard deviation, size and crop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.models.framing import METHODS, Frame
from roadworthy.models.preprocess import Preprocess

ATTRIBUTES = ("pretrained_cfg", "default_cfg")
"""Where a module of timm keeps what it was trained on, the later name first."""
CROP_SHARE = 0.875
"""The share of the image that timm keeps where a module does not say so."""


def read_declared(
    module: Any, range: str = "auto", size: tuple[int, int] | None = None, layout: str = "nchw", colour: str = "rgb"
) -> tuple[Preprocess | None, str]:
    """How images become the tensor of a module that says so, and a sentence on that; None where it says nothing.

    That is what timm does in an evaluation: the image is resized, its middle is cut out, then (x / 255 - mean) / std. A
    `range` or `size` of the user goes before what the module says; images are brought to that size as a whole. What
    cannot be carried out is an `InputError`.

    >>> read_declared(object())
    (None, '')
    """
    for attribute in ATTRIBUTES:
        settings = _plain(getattr(module, attribute, None))
        if settings is None or not {"mean", "std"} <= settings.keys() or (range != "auto" and size is not None):
            continue
        own = _preprocess(settings, f"{type(module).__name__}.{attribute}", size)
        taken = [what for what, is_own in (("range", range == "auto"), ("size", size is None)) if is_own]
        chosen = own.range if range == "auto" else range
        return replace(
            own, range=chosen, layout=layout, colour=colour
        ), f"its {attribute} says the {' and the '.join(taken)} of its input"
    return None, ""


def range_of(mean: Sequence[float], std: Sequence[float]) -> str:
    """Mean and standard deviation as the text of a range.

    >>> range_of([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])
    '0.5,0.5,0.5/0.25,0.25,0.25'
    """
    return "/".join(",".join(repr(float(value)) for value in values) for values in (mean, std))


def _plain(settings: Any) -> dict[str, Any] | None:
    """The settings as a dictionary: timm keeps them as one, or as a data class with `to_dict`."""
    if hasattr(settings, "to_dict"):
        settings = settings.to_dict()
    return dict(settings) if isinstance(settings, Mapping) else None


def _preprocess(settings: Mapping[str, Any], what: str, size: tuple[int, int] | None) -> Preprocess:
    """The preprocessing that settings of timm ask for, with images brought to `size` as a whole where it is given."""
    try:
        channels, height, width = (int(side) for side in settings.get("input_size") or (3, 224, 224))
        share = float(settings.get("crop_pct") or CROP_SHARE)
        mean, std = (tuple(map(float, settings[key])) for key in ("mean", "std"))
        resized = (math.floor(height / share), math.floor(width / share))
    except (TypeError, ValueError, ZeroDivisionError):
        raise InputError(f"{what} does not say the input in the way of timm: give `range=` and `size=`") from None
    if size is not None:
        return Preprocess(range_of(mean, std), size=size, channels=channels)
    method, mode = settings.get("interpolation") or "bicubic", settings.get("crop_mode") or "center"
    if method not in METHODS.values() or mode not in ("center", "squash") or (mode == "center" and height != width):
        raise InputError(
            f"{what} asks for a {mode} crop of {height}x{width} after {method} resizing, which is not supported: give "
            "`range=` and `size=`"
        )
    frame = Frame(resized[0] if mode == "center" else resized, method, (height, width), rounds=True)
    return Preprocess(range_of(mean, std), size=(height, width), channels=channels, frame=frame)
