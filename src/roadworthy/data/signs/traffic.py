"""Road users as vector shapes: car, truck, bus, pedestrian, cyclist and motorcyclist, each from several sides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from roadworthy.data.signs.sprites import DRAWINGS, Colour, Pen, arc, ellipse, rectangle

GROUND = 0.95
"""Where wheels and feet touch the road, in the coordinates of a drawing."""

PAINTS = ((176, 32, 38), (40, 74, 140), (206, 208, 210), (52, 54, 58), (140, 144, 148), (214, 172, 40))
CLOTHES = ((170, 44, 44), (44, 72, 130), (60, 110, 70), (60, 60, 64), (206, 160, 60), (190, 190, 186))
TYRE: Colour = (24, 24, 26)
GLASS: Colour = (62, 80, 94)
LAMP: Colour = (220, 30, 30)
HEADLAMP: Colour = (246, 240, 214)
SKIN: Colour = (206, 160, 130)
STEEL: Colour = (120, 122, 124)
STRIPE: Colour = (226, 226, 222)


def _dark(colour: Colour, factor: float = 0.72) -> Colour:
    return (colour[0] * factor, colour[1] * factor, colour[2] * factor)


def _wheel(pen: Pen, x: float, radius: float) -> None:
    pen.disc(x, GROUND - radius, radius, TYRE)
    pen.disc(x, GROUND - radius, 0.55 * radius, (150, 152, 154))


def _car_end(pen: Pen, paint: Colour, lamp: Colour) -> None:
    """A car from behind, or from the front, by the colour of its lamps."""
    pen.polygons([rectangle(-0.84, 0.55, -0.52, GROUND), rectangle(0.52, 0.55, 0.84, GROUND)], TYRE)
    pen.polygon([(-0.58, -0.62), (0.58, -0.62), (0.8, -0.08), (-0.8, -0.08)], paint)
    pen.polygon([(-0.5, -0.54), (0.5, -0.54), (0.67, -0.1), (-0.67, -0.1)], GLASS)
    pen.polygon([(-0.84, -0.12), (0.84, -0.12), (0.92, 0.1), (0.9, 0.72), (-0.9, 0.72), (-0.92, 0.1)], paint)
    pen.polygon(rectangle(-0.9, 0.5, 0.9, 0.74), _dark(paint, 0.6))
    pen.polygons([rectangle(-0.88, 0.08, -0.56, 0.26), rectangle(0.56, 0.08, 0.88, 0.26)], lamp)
    pen.polygon(rectangle(-0.25, 0.28, 0.25, 0.42), (236, 232, 220))


def _car_side(pen: Pen, paint: Colour) -> None:
    outline = [(-1, 0.45), (-0.95, 0.24), (-0.62, 0.18), (-0.34, -0.12), (0.36, -0.12), (0.66, 0.18), (0.96, 0.26)]
    pen.polygon([*outline, (1, 0.5), (1, 0.76), (-1, 0.76)], paint)
    pen.polygon([(-0.5, 0.17), (-0.29, -0.05), (0, -0.05), (0, 0.17)], GLASS)
    pen.polygon([(0.06, 0.17), (0.06, -0.05), (0.32, -0.05), (0.53, 0.17)], GLASS)
    pen.polygon(rectangle(-1, 0.66, 1, 0.78), _dark(paint, 0.6))
    pen.polygon(rectangle(0.9, 0.34, 1.0, 0.46), HEADLAMP)
    pen.polygon(rectangle(-1.0, 0.34, -0.92, 0.46), LAMP)
    for x in (-0.58, 0.6):
        _wheel(pen, x, 0.2)


def _truck_end(pen: Pen, paint: Colour) -> None:
    pen.polygons([rectangle(-0.66, 0.6, -0.34, GROUND), rectangle(0.34, 0.6, 0.66, GROUND)], TYRE)
    pen.polygon(rectangle(-0.72, -0.96, 0.72, 0.66), paint)
    pen.polygon(rectangle(-0.64, -0.88, -0.02, 0.56), _dark(paint, 0.86))
    pen.polygon(rectangle(0.02, -0.88, 0.64, 0.56), _dark(paint, 0.86))
    pen.polygon(rectangle(-0.72, 0.64, 0.72, 0.76), (56, 56, 60))
    pen.polygons([rectangle(-0.7, 0.65, -0.46, 0.75), rectangle(0.46, 0.65, 0.7, 0.75)], LAMP)


def _truck_side(pen: Pen, paint: Colour) -> None:
    pen.polygon(rectangle(-1, -0.2, 0.5, 0.68), (216, 216, 212))
    pen.polygon(rectangle(-1, 0.12, 0.5, 0.26), paint)
    pen.polygon([(0.55, 0.0), (0.86, 0.0), (1, 0.34), (1, 0.76), (0.55, 0.76)], paint)
    pen.polygon([(0.66, 0.07), (0.83, 0.07), (0.93, 0.34), (0.66, 0.34)], GLASS)
    pen.polygon(rectangle(-1, 0.68, 1, 0.78), (56, 56, 60))
    for x in (-0.78, -0.48, 0.76):
        _wheel(pen, x, 0.15)


def _bus_end(pen: Pen, paint: Colour) -> None:
    pen.polygons([rectangle(-0.66, 0.6, -0.4, GROUND), rectangle(0.4, 0.6, 0.66, GROUND)], TYRE)
    pen.polygon([(-0.66, -0.95), (0.66, -0.95), (0.74, -0.8), (0.74, 0.8), (-0.74, 0.8), (-0.74, -0.8)], paint)
    pen.polygon(rectangle(-0.5, -0.88, 0.5, -0.7), (30, 30, 30))
    pen.polygon(rectangle(-0.4, -0.84, 0.4, -0.74), (240, 170, 50))
    pen.polygon(rectangle(-0.66, -0.62, 0.66, 0.18), GLASS)
    pen.polygons([rectangle(-0.68, 0.46, -0.42, 0.6), rectangle(0.42, 0.46, 0.68, 0.6)], HEADLAMP)


def _bus_side(pen: Pen, paint: Colour) -> None:
    pen.polygon(rectangle(-1, 0.18, 1, 0.86), paint)
    windows = [rectangle(-0.94 + 0.33 * k, 0.27, -0.68 + 0.33 * k, 0.52) for k in range(5)]
    pen.polygons(windows, GLASS)
    pen.polygon(rectangle(0.74, 0.25, 0.98, 0.78), GLASS)
    pen.polygon(rectangle(-1, 0.64, 0.7, 0.7), STRIPE)
    for x in (-0.6, 0.52):
        _wheel(pen, x, 0.12)


def _pedestrian(pen: Pen, paint: Colour, stride: float) -> None:
    trousers = _dark(paint, 0.42)
    pen.stroke([(0.0, 0.12), (-stride, 0.5), (-1.2 * stride, 0.9)], 0.17, trousers)
    pen.stroke([(0.0, 0.12), (stride, 0.5), (1.1 * stride, 0.9)], 0.17, trousers)
    pen.polygon([(-0.18, -0.56), (0.18, -0.56), (0.2, 0.2), (-0.2, 0.2)], paint)
    pen.stroke([(-0.15, -0.5), (-0.24, -0.15), (-0.2 - 0.5 * stride, 0.12)], 0.11, _dark(paint))
    pen.stroke([(0.15, -0.5), (0.24, -0.15), (0.2 + 0.5 * stride, 0.12)], 0.11, _dark(paint))
    pen.polygon(ellipse(0, -0.77, 0.14, 0.17), SKIN)
    pen.polygon(arc(0, -0.79, 0.15, 0.16, 180, 360), (64, 44, 32))


def _cyclist_side(pen: Pen, paint: Colour) -> None:
    for x in (-0.52, 0.52):
        pen.stroke(arc(x, 0.57, 0.36, 0.36, 0, 360), 0.06, TYRE)
    for line in ([(-0.52, 0.57), (-0.2, 0.1), (0.36, 0.08), (0.0, 0.58), (-0.52, 0.57)], [(0.52, 0.57), (0.36, -0.06)]):
        pen.stroke(line, 0.055, STEEL)
    pen.stroke([(-0.22, 0.02), (0.12, 0.2), (0.02, 0.6)], 0.15, _dark(paint, 0.42))
    pen.stroke([(-0.24, 0.0), (0.02, -0.5)], 0.25, paint)
    pen.stroke([(0.02, -0.46), (0.22, -0.16), (0.4, -0.06)], 0.1, _dark(paint))
    pen.polygon(ellipse(0.1, -0.74, 0.14, 0.16), SKIN)
    pen.polygon(arc(0.1, -0.78, 0.17, 0.16, 180, 360), (222, 222, 220))


def _cyclist_end(pen: Pen, paint: Colour) -> None:
    pen.stroke([(0, 0.2), (0, 0.9)], 0.09, TYRE)
    pen.stroke([(-0.1, 0.1), (-0.16, 0.4), (-0.12, 0.72)], 0.14, _dark(paint, 0.42))
    pen.stroke([(0.1, 0.1), (0.16, 0.3), (0.12, 0.55)], 0.14, _dark(paint, 0.42))
    pen.stroke([(-0.3, -0.08), (0.3, -0.08)], 0.06, STEEL)
    pen.stroke([(-0.18, -0.44), (-0.3, -0.1)], 0.1, _dark(paint))
    pen.stroke([(0.18, -0.44), (0.3, -0.1)], 0.1, _dark(paint))
    pen.polygon([(-0.22, -0.5), (0.22, -0.5), (0.17, 0.18), (-0.17, 0.18)], paint)
    pen.polygon(ellipse(0, -0.72, 0.14, 0.17), SKIN)
    pen.polygon(arc(0, -0.76, 0.17, 0.17, 180, 360), (222, 222, 220))
    pen.disc(0, 0.3, 0.06, LAMP)


def _motorcyclist_side(pen: Pen, paint: Colour) -> None:
    for x in (-0.6, 0.6):
        _wheel(pen, x, 0.28)
    pen.polygon([(-0.75, 0.32), (-0.1, 0.3), (0.3, 0.16), (0.5, 0.3), (0.2, 0.72), (-0.4, 0.72)], paint)
    pen.stroke([(0.6, 0.66), (0.36, 0.0)], 0.08, STEEL)
    pen.stroke([(-0.2, 0.24), (0.16, 0.34), (0.04, 0.7)], 0.17, (40, 40, 44))
    pen.stroke([(-0.22, 0.2), (0.0, -0.3)], 0.28, (50, 50, 56))
    pen.stroke([(0.0, -0.28), (0.22, 0.02), (0.4, 0.02)], 0.11, (50, 50, 56))
    pen.disc(0.12, -0.58, 0.2, paint)
    pen.polygon(rectangle(0.16, -0.64, 0.32, -0.52), GLASS)


def _motorcyclist_end(pen: Pen, paint: Colour) -> None:
    pen.polygon(rectangle(-0.09, 0.4, 0.09, GROUND), TYRE)
    pen.polygon([(-0.2, 0.12), (0.2, 0.12), (0.26, 0.5), (-0.26, 0.5)], paint)
    pen.stroke([(-0.2, 0.12), (-0.3, 0.42), (-0.22, 0.74)], 0.15, (40, 40, 44))
    pen.stroke([(0.2, 0.12), (0.3, 0.42), (0.22, 0.74)], 0.15, (40, 40, 44))
    pen.polygon([(-0.27, -0.34), (0.27, -0.34), (0.22, 0.2), (-0.22, 0.2)], (50, 50, 56))
    pen.stroke([(-0.25, -0.28), (-0.42, 0.02), (-0.36, 0.12)], 0.11, (50, 50, 56))
    pen.stroke([(0.25, -0.28), (0.42, 0.02), (0.36, 0.12)], 0.11, (50, 50, 56))
    pen.disc(0, -0.56, 0.2, paint)
    pen.disc(0, 0.3, 0.08, LAMP)


USERS: dict[str, tuple[str, ...]] = {}
"""The kinds of road user, each with the names of the drawings that are its variants."""
SPANS: dict[str, float] = {}
"""Metres from -1 to 1 of each drawing of a road user."""


def _kind(name: str, colours: tuple[Colour, ...], **sides: tuple[Callable[..., None], float]) -> None:
    for side, (draw, span) in sides.items():
        for number, colour in enumerate(colours):
            drawing = f"{name} {side} {number}"
            DRAWINGS[drawing] = partial(draw, paint=colour)
            SPANS[drawing] = span
            USERS[name] = (*USERS.get(name, ()), drawing)


_ENDS, _STRIDES = {"rear": LAMP, "front": HEADLAMP}, {"standing": 0.09, "walking": 0.24}
_kind("car", PAINTS, **{end: (partial(_car_end, lamp=_ENDS[end]), 1.9) for end in _ENDS}, side=(_car_side, 4.3))
_kind("truck", PAINTS, rear=(_truck_end, 3.8), side=(_truck_side, 7.5))
_kind("bus", PAINTS, front=(_bus_end, 3.4), side=(_bus_side, 9.5))
_kind("pedestrian", CLOTHES, **{pose: (partial(_pedestrian, stride=_STRIDES[pose]), 1.9) for pose in _STRIDES})
_kind("cyclist", CLOTHES, side=(_cyclist_side, 1.9), rear=(_cyclist_end, 1.9))
_kind("motorcyclist", PAINTS, side=(_motorcyclist_side, 2.1), rear=(_motorcyclist_end, 1.9))
