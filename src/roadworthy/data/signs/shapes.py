"""The faces of the fourteen signs, as vector shapes in the manner of Belgian road signs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from roadworthy.data.signs.sprites import DRAWINGS, Colour, Drawing, Pen, Points, arc, rectangle

RED: Colour = (188, 22, 34)
BLUE: Colour = (14, 76, 158)
WHITE: Colour = (238, 240, 240)
BLACK: Colour = (22, 22, 24)
RIM: Colour = (200, 203, 205)

SPEEDS = (30, 50, 70, 90, 120)


def _ring(pen: Pen, field: Colour = WHITE, width: float = 0.19) -> None:
    """A red ring around a field: the ground of every prohibition."""
    pen.disc(0, 0, 1.0, RIM)
    pen.disc(0, 0, 0.975, RED)
    pen.disc(0, 0, 1.0 - width, field)


def _write(pen: Pen, text: str, colour: Colour, height: float, stroke: float, advance: float) -> None:
    """Text centred on the face, in letters of one height, from round strokes."""
    for index, letter in enumerate(text):
        left = (index - (len(text) - 1) / 2) * advance
        wide = (advance - stroke) / 2 * 0.82
        high = (height - stroke) / 2
        for path in _LETTERS[letter]:
            pen.stroke([(left + x * wide, y * high) for x, y in path], stroke, colour)


_LETTERS: dict[str, list[list[tuple[float, float]]]] = {
    "0": [arc(0, -0.3, 1, 0.7, 180, 360) + arc(0, 0.3, 1, 0.7, 0, 180) + [(-1, -0.3)]],
    "1": [[(-0.55, -0.55), (0.2, -1), (0.2, 1)]],
    "2": [[*arc(0, -0.45, 0.95, 0.55, 190, 380), (-0.95, 1), (1, 1)]],
    "3": [[*arc(-0.1, -0.5, 0.95, 0.5, 200, 445)], [*arc(-0.1, 0.47, 1.05, 0.53, 275, 520)]],
    "5": [[(0.85, -1), (-0.75, -1), (-0.85, -0.1), *arc(-0.05, 0.35, 1, 0.65, 225, 510)]],
    "7": [[(-1, -1), (1, -1), (-0.3, 1)]],
    "9": [arc(0, -0.4, 0.95, 0.6, 0, 360), [(0.95, -0.4), *arc(-0.1, 0.35, 1.05, 0.65, 0, 140)]],
    "S": [arc(0, -0.5, 0.9, 0.5, 330, 95) + arc(0, 0.5, 0.95, 0.5, 270, 510)],
    "T": [[(-1, -1), (1, -1)], [(0, -1), (0, 1)]],
    "O": [arc(0, 0, 1, 1, 0, 360)],
    "P": [[(-0.85, 1), (-0.85, -1), (0.1, -1), *arc(0.1, -0.42, 0.85, 0.58, 270, 450), (-0.85, 0.16)]],
}


def _speed_limit(pen: Pen, speed: int) -> None:
    _ring(pen)
    text = str(speed)
    _write(pen, text, BLACK, 0.92, 0.17, 0.58 if len(text) == 2 else 0.43)


def _goods_vehicles(pen: Pen) -> None:
    _ring(pen)
    pen.polygon(rectangle(-0.62, -0.36, 0.16, 0.2), BLACK)
    pen.polygon([(0.2, -0.2), (0.42, -0.2), (0.6, 0.02), (0.6, 0.2), (0.2, 0.2)], BLACK)
    pen.polygon([(0.28, -0.13), (0.39, -0.13), (0.5, 0.02), (0.28, 0.02)], WHITE)
    pen.polygon(rectangle(-0.62, 0.19, 0.62, 0.27), BLACK)
    for x in (-0.4, -0.12, 0.4):
        pen.disc(x, 0.3, 0.15, WHITE)
        pen.disc(x, 0.3, 0.115, BLACK)


def _car_from_behind(pen: Pen, x: float, colour: Colour) -> None:
    roof = [(x - 0.17, -0.26), (x + 0.17, -0.26), (x + 0.25, 0.0), (x - 0.25, 0.0)]
    pen.polygon(roof, colour)
    pen.polygon(rectangle(x - 0.3, -0.02, x + 0.3, 0.22), colour)
    pen.polygon([(x - 0.13, -0.2), (x + 0.13, -0.2), (x + 0.18, -0.04), (x - 0.18, -0.04)], WHITE)
    pen.polygons([rectangle(x - 0.28, 0.2, x - 0.14, 0.35), rectangle(x + 0.14, 0.2, x + 0.28, 0.35)], colour)


def _no_overtaking(pen: Pen) -> None:
    _ring(pen)
    _car_from_behind(pen, -0.36, RED)
    _car_from_behind(pen, 0.36, BLACK)


def _slash(pen: Pen, angle: float, width: float = 0.19, length: float = 0.86) -> None:
    x, y = length * float(np.cos(np.deg2rad(angle))), length * float(np.sin(np.deg2rad(angle)))
    pen.stroke([(-x, -y), (x, y)], width, RED)


def _no_standing(pen: Pen, *angles: float) -> None:
    _ring(pen, BLUE)
    for angle in angles:
        _slash(pen, angle)


def _octagon(radius: float) -> Points:
    angles = np.deg2rad(22.5 + 45 * np.arange(8))
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)


def _stop(pen: Pen) -> None:
    pen.polygon(_octagon(1.06), RIM)
    pen.polygon(_octagon(1.04), WHITE)
    pen.polygon(_octagon(0.96), RED)
    _write(pen, "STOP", WHITE, 0.64, 0.115, 0.405)


def _bicycle(pen: Pen) -> None:
    pen.disc(0, 0, 1.0, WHITE)
    pen.disc(0, 0, 0.95, BLUE)
    for x in (-0.4, 0.4):
        pen.stroke(arc(x, 0.16, 0.27, 0.27, 0, 360), 0.075, WHITE)
    frame: list[Points] = [
        [(-0.4, 0.16), (-0.2, -0.18), (0.22, -0.18), (-0.02, 0.16), (-0.4, 0.16)],
        [(-0.02, 0.16), (-0.25, -0.3)],
        [(0.4, 0.16), (0.19, -0.34), (0.36, -0.36)],
        [(-0.36, -0.31), (-0.14, -0.31)],
    ]
    for line in frame:
        pen.stroke(line, 0.075, WHITE)


def _triangle(radius: float, tip: float, rounded: float = 0.09) -> Points:
    """An equilateral triangle with blunt corners; `tip` is the angle of one corner, -90 up and 90 down."""
    corners = []
    for angle in (tip, tip + 120, tip + 240):
        x, y = (radius - rounded) * np.cos(np.deg2rad(angle)), (radius - rounded) * np.sin(np.deg2rad(angle))
        corners += arc(float(x), float(y), rounded, rounded, angle - 60, angle + 60)
    centre = 0.25 * radius if tip < 0 else -0.25 * radius
    return [(x, y + centre) for x, y in corners]


def _hump(pen: Pen) -> None:
    pen.polygon(_triangle(1.16, -90), RIM)
    pen.polygon(_triangle(1.14, -90), RED)
    pen.polygon(_triangle(0.79, -90, 0.03), WHITE)
    bumps = [(-0.46, 0.5), *arc(-0.2, 0.5, 0.19, 0.3, 180, 350), *arc(0.2, 0.5, 0.19, 0.3, 190, 360), (0.46, 0.5)]
    pen.polygon([*bumps, (0.46, 0.58), (-0.46, 0.58)], BLACK)


def _no_turn(pen: Pen, side: int) -> None:
    """An arrow that bends to the side (-1 left, 1 right), struck out."""
    _ring(pen)
    bend = [(-0.14 * side, 0.56), (-0.14 * side, 0.0), (-0.04 * side, -0.14), (0.2 * side, -0.14)]
    pen.stroke(bend, 0.17, BLACK)
    pen.polygon([(0.16 * side, -0.43), (0.16 * side, 0.15), (0.58 * side, -0.14)], BLACK)
    _slash(pen, 45 if side > 0 else 135, 0.15)


def _arrow(pen: Pen, x: float, tail: float, tip: float, width: float, colour: Colour) -> None:
    """An upright arrow from one height to another."""
    head = tip + (0.42 if tip < tail else -0.42)
    pen.polygon(rectangle(x - width / 2, min(tail, head), x + width / 2, max(tail, head)), colour)
    pen.polygon([(x - 1.25 * width, head), (x, tip), (x + 1.25 * width, head)], colour)


def _priority_to(pen: Pen) -> None:
    _ring(pen)
    _arrow(pen, -0.3, -0.58, 0.6, 0.2, BLACK)
    _arrow(pen, 0.34, 0.5, -0.54, 0.17, RED)


def _no_entry(pen: Pen) -> None:
    pen.disc(0, 0, 1.0, WHITE)
    pen.disc(0, 0, 0.96, RED)
    pen.polygon(rectangle(-0.72, -0.17, 0.72, 0.17), WHITE)


def _yield(pen: Pen) -> None:
    pen.polygon(_triangle(1.16, 90), RIM)
    pen.polygon(_triangle(1.14, 90), RED)
    pen.polygon(_triangle(0.72, 90, 0.03), WHITE)


def _parking(pen: Pen) -> None:
    pen.polygon(rectangle(-0.88, -0.88, 0.88, 0.88), WHITE)
    pen.polygon(rectangle(-0.83, -0.83, 0.83, 0.83), BLUE)
    _write(pen, "P", WHITE, 1.16, 0.24, 1.05)


FACES: dict[str, tuple[str, ...]] = {}
"""The class names in order, each with the names of the drawings that are its variants."""


def _class(name: str, draw: Callable[..., None], **variants: Drawing) -> None:
    drawings = {f"{name}{variant}": drawing for variant, drawing in variants.items()} or {name: draw}
    DRAWINGS.update(drawings)
    FACES[name] = tuple(drawings)


_class("speed limit", _speed_limit, **{f" {speed}": partial(_speed_limit, speed=speed) for speed in SPEEDS})
_class("goods vehicles", _goods_vehicles)
_class("no overtaking", _no_overtaking)
_class("no stopping", lambda pen: _no_standing(pen, 45, 135))
_class("no parking", lambda pen: _no_standing(pen, 45))
_class("stop", _stop)
_class("bicycle", _bicycle)
_class("hump", _hump)
_class("no left", partial(_no_turn, side=-1))
_class("no right", partial(_no_turn, side=1))
_class("priority to", _priority_to)
_class("no entry", _no_entry)
_class("yield", _yield)
_class("parking", _parking)
