"""Draws bars of mean accuracy with their intervals, published values beside them, by Pillow alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

SCALE = 2
"""Drawn so many times as large, then reduced, so that lines and letters are smooth."""
ROW, WIDTH, LABELS, MARGIN = 24, 520, 190, 14
"""Pixels: the height of a bar with its gap, the width of a panel's bars, of the names beside them, and around all."""
HEAD, FOOT, GAP, MOST_ACROSS = 30, 46, 34, 3
"""Above and below the bars of a panel, between panels, and the most of them side by side."""
CHANCE = 0.5
COLOURS = {"vgg": "#0072b2", "resnet": "#d55e00", "any": "#4d9a6a"}
KINDS = {"vgg": "VGG", "resnet": "ResNet", "any": "no network, or another"}
INK, GRID, MUTED = "#1c2530", "#dfe4ea", "#5b6673"


@dataclass(frozen=True)
class Bar:
    """The mean accuracy of one monitor on networks of one kind with its interval; shares from 0 to 1.

    `published` is None where there is no such figure; an `undertrained` bar is hollow and hatched.
    """

    label: str
    name: str
    kind: str
    value: float
    lo: float
    hi: float
    published: float | None
    undertrained: bool


def draw(panels: Mapping[str, Sequence[Bar]]) -> Image.Image:
    """A panel per name with its bars, whose names stand beside the first of each row of panels; one axis for all."""
    names = list(dict.fromkeys(bar.name for bars in panels.values() for bar in bars))
    if len(panels) == 1:
        names = [bar.name for bar in next(iter(panels.values()))]
    across = min(MOST_ACROSS, len(panels))
    down = -(-len(panels) // across)
    width = WIDTH if across == 1 else 300
    height = HEAD + ROW * len(names) + FOOT
    size = (LABELS + across * (width + GAP) + 2 * MARGIN, down * height + 2 * MARGIN + HEAD)
    picture = Image.new("RGB", (SCALE * size[0], SCALE * size[1]), "white")
    pen = _Pen(ImageDraw.Draw(picture))
    lowest = _lowest([bar for bars in panels.values() for bar in bars])
    _legend(pen, [bar for bars in panels.values() for bar in bars])
    for place, (title, bars) in enumerate(panels.items()):
        left = MARGIN + LABELS + (place % across) * (width + GAP)
        top = MARGIN + HEAD + (place // across) * height
        if place % across == 0:
            for row, name in enumerate(names):
                pen.text(left - 8, top + HEAD + ROW * row + ROW // 2, name, anchor="rm")
        _panel(pen, (left, top, width), title, {bar.name: bar for bar in bars}, names, lowest)
    return picture.resize(size, Image.Resampling.LANCZOS)


class _Pen:
    """Draws in pixels of the finished picture."""

    def __init__(self, drawing: ImageDraw.ImageDraw) -> None:
        self.drawing = drawing

    def text(self, x: float, y: float, text: str, *, anchor: str = "lm", size: int = 13, fill: str = INK) -> None:
        font = ImageFont.load_default(SCALE * size)
        self.drawing.text((SCALE * x, SCALE * y), text, fill=fill, font=font, anchor=anchor)

    def length(self, text: str, size: int = 13) -> float:
        return float(ImageFont.load_default(SCALE * size).getlength(text)) / SCALE

    def line(self, *points: tuple[float, float], fill: str = INK, width: float = 1.0) -> None:
        self.drawing.line([(SCALE * x, SCALE * y) for x, y in points], fill=fill, width=round(SCALE * width))

    def box(self, left: float, top: float, right: float, bottom: float, fill: str, outline: str | None = None) -> None:
        corners = (SCALE * left, SCALE * top, SCALE * max(left, right), SCALE * bottom)
        self.drawing.rectangle(corners, fill=fill, outline=outline, width=SCALE)

    def hatched(self, left: float, top: float, right: float, bottom: float, colour: str) -> None:
        """A hollow box with lines that rise to the right."""
        self.box(left, top, right, bottom, "white", colour)
        height = bottom - top
        for start in range(int(left - height), int(right), 7):
            begin, end = max(start, left), min(start + height, right)
            if begin < end:
                self.line((begin, bottom - (begin - start)), (end, bottom - (end - start)), fill=colour)

    def diamond(self, x: float, y: float, radius: float = 5.0) -> None:
        points = [(x - radius, y), (x, y - radius), (x + radius, y), (x, y + radius)]
        self.drawing.polygon([(SCALE * a, SCALE * b) for a, b in points], fill=INK, outline="white")


def _lowest(bars: Sequence[Bar]) -> float:
    """Where the axis begins: a whole ten per cent below all there is, and below chance."""
    ends = [
        end for bar in bars for end in (bar.value, bar.lo, bar.published) if end is not None and not math.isnan(end)
    ]
    return max(0.0, math.floor(10 * min([CHANCE, *ends]) - 1e-9) / 10)


def _legend(pen: _Pen, bars: Sequence[Bar]) -> None:
    x, y = float(MARGIN), MARGIN + HEAD / 2 - 4
    for kind in [kind for kind in COLOURS if any(bar.kind == kind for bar in bars)]:
        pen.box(x, y - 6, x + 16, y + 6, COLOURS[kind])
        pen.text(x + 22, y, KINDS[kind])
        x += 44 + pen.length(KINDS[kind])
    if any(bar.undertrained for bar in bars):
        pen.hatched(x, y - 6, x + 16, y + 6, MUTED)
        pen.text(x + 22, y, "undertrained")
        x += 44 + pen.length("undertrained")
    if any(bar.published is not None for bar in bars):
        pen.diamond(x + 6, y)
        pen.text(x + 18, y, "published")
        x += 40 + pen.length("published")
    pen.text(x, y, "lines: 95 % intervals; dashed: guessing", fill=MUTED)


def _panel(
    pen: _Pen,
    place: tuple[float, float, float],
    title: str,
    bars: Mapping[str, Bar],
    names: Sequence[str],
    lowest: float,
) -> None:
    """The bars of one panel, whose corner and width are given, on an axis from `lowest` to 1."""
    left, top, width = place
    first, last = top + HEAD, top + HEAD + ROW * len(names)

    def across(share: float) -> float:
        return left + width * (min(max(share, lowest), 1.0) - lowest) / (1 - lowest)

    pen.text(left, top + HEAD / 2, title, size=15)
    for tenth in range(round(10 * lowest), 11):
        pen.line((across(tenth / 10), first), (across(tenth / 10), last), fill=GRID)
        if width == WIDTH or tenth % 2 == 0:
            pen.text(across(tenth / 10), last + 10, f"{10 * tenth}", anchor="mm", size=12, fill=MUTED)
    pen.text(left + width / 2, last + 28, "mean test accuracy, %", anchor="mm", size=12, fill=MUTED)
    for row, bar in ((row, bars[name]) for row, name in enumerate(names) if name in bars):
        y = first + ROW * row + ROW / 2
        if not math.isnan(bar.value):
            (pen.hatched if bar.undertrained else pen.box)(left, y - 8, across(bar.value), y + 8, COLOURS[bar.kind])
            if not math.isnan(bar.lo):
                pen.line((across(bar.lo), y), (across(bar.hi), y), width=1.5)
                for end in (bar.lo, bar.hi):
                    pen.line((across(end), y - 4), (across(end), y + 4), width=1.5)
        if bar.published is not None:
            pen.diamond(across(bar.published), y)
    for start in range(int(first), int(last), 8):
        pen.line((across(CHANCE), start), (across(CHANCE), min(start + 4, last)), fill=MUTED)
