"""Other ways to feed a model: every plausible range, colour order and layout, for the check that tries them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from roadworthy.core.errors import RoadworthyError
from roadworthy.core.roles import Model
from roadworthy.models.base import Adapter
from roadworthy.models.preprocess import COLOURS, LAYOUTS, RANGES, Preprocess, parse_range

SIGNIFICANCE = 1e-3
MIN_GAIN = 0.02
MIN_SKILL = 0.1
"""How far from an answer that does not look at the image (0) to all right (1) an alternative must come. An untrained
model is easily a little better one way than another."""
MIN_SAMPLE = 128
"""Images by which an alternative is screened before it is tried on all."""
CAFFE = "0.485,0.456,0.406/0.00392157"
"""Pixels 0 to 255 minus the mean of ImageNet, as older BGR networks have it."""

Factory = Callable[..., Model]
Answered = TypeVar("Answered")


@dataclass(frozen=True)
class Finding:
    """Something the user should know: a sentence, the settings that put it right, and the accuracy or IoU they give.

    `settings` are keywords of `rw.evaluate`: `rw.evaluate(model, data, **finding.settings)`.
    """

    text: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    accuracy: float | None = None
    iou: float | None = None

    @property
    def helps(self) -> bool:
        """True where its settings make the model work better."""
        return self.accuracy is not None or self.iou is not None


def alternatives(
    build: Factory, model: Model, given: Mapping[str, str], channels: int, ask: Callable[[Model], Answered | None]
) -> Iterator[tuple[dict[str, str], Answered]]:
    """What the model answers under every other combination of range, colour order and layout that it takes.

    `given` are the changes that the model as given needed already, `channels` those of the images. `ask` gives the
    answer of a model, None where it is of no use. Yields the changed settings with the answer.
    """
    if not isinstance(model, Adapter):
        return
    refused: set[str] = set()
    for tried in _combinations(model.preprocess, channels):
        changes = {key: value for key, value in tried.items() if value != getattr(model.preprocess, key)}
        if tried["layout"] in refused:
            continue
        try:
            answered = ask(build(**{**given, **changes}))
        except RoadworthyError:
            if "layout" in changes:
                refused.add(tried["layout"])
            continue
        if answered is not None:
            yield {**given, **changes}, answered


def _combinations(now: Preprocess, data_channels: int) -> Iterator[dict[str, str]]:
    """Range, colour order and layout in every plausible combination but the present one."""
    ranges = [now.range, *(text for text in (*RANGES, CAFFE) if parse_range(text) != parse_range(now.range))]
    colours = [now.colour, *(colour for colour in COLOURS if colour != now.colour)]
    layouts = [now.layout, *(layout for layout in LAYOUTS if layout != now.layout)]
    if now.dtype == "uint8":
        del ranges[1:]
    if now.channels == 1 or data_channels == 1:
        del colours[1:]
    for layout, text, colour in itertools.islice(itertools.product(layouts, ranges, colours), 1, None):
        yield {"range": text, "colour": colour, "layout": layout}
