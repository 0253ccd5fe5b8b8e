"""What a network for road users has seldom or never seen: corner cases of known classes, and objects of no class."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from roadworthy.data.signs.sprites import DRAWINGS, Colour, Pen, arc, ellipse, rectangle
from roadworthy.data.signs.traffic import CLOTHES, GLASS, GROUND, LAMP, PAINTS, SKIN, SPANS, STEEL, STRIPE, TYRE

CHASSIS: Colour = (52, 54, 58)
BUILDERS: tuple[Colour, ...] = ((222, 168, 30), (214, 96, 32), (190, 44, 40), (218, 218, 212))
"""The paints of building machines."""
HAIR: Colour = (64, 44, 32)

UNUSUAL: dict[str, tuple[str, ...]] = {}
"""Kinds of corner case and of object outside the classes, each with the names of its drawings."""
SUPPORTS: dict[str, str] = {}
"""For a drawing that rests on something that is not part of it, the drawing of what it rests on."""


def _dark(colour: Colour, factor: float = 0.72) -> Colour:
    return (colour[0] * factor, colour[1] * factor, colour[2] * factor)


def _wheels(pen: Pen, radius: float, *centres: float) -> None:
    for x in centres:
        pen.disc(x, GROUND - radius, radius, TYRE)
        pen.disc(x, GROUND - radius, 0.5 * radius, (150, 152, 154))


def _caravan(pen: Pen, paint: Colour) -> None:
    """A caravan from the side: no cab, one axle, a drawbar in front."""
    pen.stroke([(0.6, 0.72), (0.96, 0.74)], 0.06, STEEL)
    pen.polygon(rectangle(0.88, 0.74, 0.93, GROUND), STEEL)
    outline = [(-0.92, -0.12), (-0.8, -0.28), (0.4, -0.28), (0.62, -0.08), (0.72, 0.3), (0.72, 0.74), (-0.92, 0.74)]
    pen.polygon(outline, (224, 222, 214))
    pen.polygon(rectangle(-0.92, 0.42, 0.72, 0.56), paint)
    pen.polygons([rectangle(-0.8, -0.12, -0.44, 0.18), rectangle(0.1, -0.12, 0.5, 0.18)], GLASS)
    pen.polygon(rectangle(-0.3, -0.16, -0.04, 0.7), (196, 194, 186))
    pen.polygon(rectangle(-0.92, 0.58, -0.87, 0.7), LAMP)
    _wheels(pen, 0.19, -0.1)


def _flat_trailer(pen: Pen, paint: Colour) -> None:
    """A flat trailer from the side with a load of pipes or trunks, two axles close together, a drawbar."""
    pen.stroke([(0.5, 0.6), (0.97, 0.68)], 0.06, STEEL)
    pen.polygon(rectangle(-0.95, 0.5, 0.62, 0.66), _dark(paint))
    for row, count in ((0.36, 5), (0.1, 4), (-0.14, 3)):
        for column in range(count):
            x = -0.17 + (column - (count - 1) / 2) * 0.3
            pen.disc(x, row, 0.145, (122, 88, 56))
            pen.disc(x, row, 0.1, (196, 158, 112))
    pen.polygons([rectangle(-0.93, -0.2, -0.87, 0.5), rectangle(0.53, -0.2, 0.59, 0.5)], paint)
    _wheels(pen, 0.17, -0.36, 0.0)


def _crane_truck(pen: Pen, paint: Colour) -> None:
    """A mobile crane from the side: four axles, a cab in front and a long boom that rises over it."""
    pen.stroke([(-0.5, 0.16), (0.93, -0.78)], 0.13, _dark(paint, 0.62))
    pen.stroke([(-0.5, 0.15), (0.93, -0.79)], 0.08, paint)
    for step in np.linspace(0.08, 0.92, 8).tolist():
        x, y = -0.5 + 1.43 * step, 0.15 - 0.94 * step
        pen.stroke([(x - 0.03, y - 0.06), (x + 0.03, y + 0.06)], 0.025, (40, 40, 42))
    pen.stroke([(0.92, -0.78), (0.92, -0.36)], 0.03, (30, 30, 32))
    pen.stroke(arc(0.9, -0.3, 0.05, 0.06, 0, 230), 0.04, (30, 30, 32))
    pen.polygon(rectangle(-0.95, 0.5, 0.95, 0.72), paint)
    pen.polygon(rectangle(-0.95, 0.68, 0.95, 0.78), CHASSIS)
    pen.polygon(rectangle(-0.82, 0.02, -0.4, 0.5), _dark(paint, 0.5))
    pen.polygon(rectangle(-0.4, 0.1, -0.12, 0.5), paint)
    pen.polygon(rectangle(-0.36, 0.15, -0.16, 0.34), GLASS)
    pen.polygon([(0.54, 0.14), (0.84, 0.14), (0.95, 0.4), (0.95, 0.72), (0.54, 0.72)], paint)
    pen.polygon([(0.62, 0.2), (0.81, 0.2), (0.9, 0.42), (0.62, 0.42)], GLASS)
    _wheels(pen, 0.15, -0.72, -0.36, 0.28, 0.7)


def _concrete_mixer(pen: Pen, paint: Colour) -> None:
    """A concrete mixer from the side: a tilted drum with bands on a chassis, a cab in front, a chute behind."""
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    tilt = np.deg2rad(14)
    turn = np.array([[np.cos(tilt), np.sin(tilt)], [-np.sin(tilt), np.cos(tilt)]])
    radius = 0.40 - 0.16 * np.clip(-np.cos(angles), 0, 1)
    drum = np.stack([0.68 * np.cos(angles), radius * np.sin(angles)], axis=1) @ turn
    centre = np.array((-0.24, 0.08))
    pen.stroke([(-0.9, -0.12), (-0.96, 0.5)], 0.1, STEEL)
    pen.polygon(centre + drum, (222, 222, 216))
    for along in (-0.34, -0.02, 0.3):
        band = np.array([(along - 0.02, -0.34), (along + 0.11, -0.34), (along - 0.01, 0.35), (along - 0.14, 0.35)])
        pen.polygon(centre + band * np.array((1, 0.94)) @ turn, paint)
    pen.polygon([(-0.98, -0.3), (-0.72, -0.22), (-0.8, 0.02), (-0.95, -0.06)], _dark(paint, 0.6))
    pen.polygons([rectangle(-0.8, 0.3, -0.68, 0.66), rectangle(0.32, 0.2, 0.44, 0.66)], CHASSIS)
    pen.polygon(rectangle(-0.95, 0.62, 0.97, 0.76), CHASSIS)
    pen.polygon([(0.5, -0.02), (0.84, -0.02), (0.97, 0.34), (0.97, 0.74), (0.5, 0.74)], paint)
    pen.polygon([(0.62, 0.06), (0.8, 0.06), (0.91, 0.34), (0.62, 0.34)], GLASS)
    _wheels(pen, 0.16, -0.66, -0.3, 0.72)


def _seated(pen: Pen, paint: Colour) -> None:
    """A person from the side who sits, the legs bent."""
    trousers = _dark(paint, 0.42)
    pen.stroke([(-0.22, 0.3), (0.38, 0.3), (0.4, 0.86)], 0.2, trousers)
    pen.stroke([(0.4, 0.89), (0.58, 0.89)], 0.1, (40, 34, 30))
    pen.stroke([(-0.24, 0.26), (-0.2, -0.3)], 0.34, paint)
    pen.stroke([(-0.16, -0.28), (0.06, 0.02), (0.36, 0.14)], 0.13, _dark(paint))
    pen.polygon(ellipse(-0.12, -0.66, 0.19, 0.22), SKIN)
    pen.polygon(arc(-0.14, -0.69, 0.21, 0.21, 160, 340), HAIR)


def _bench(pen: Pen, paint: Colour) -> None:
    """The bench under a seated person."""
    pen.polygon(rectangle(-0.62, 0.4, 0.3, 0.5), _dark(paint))
    pen.polygon([(-0.62, 0.44), (-0.52, 0.44), (-0.6, -0.22), (-0.7, -0.22)], paint)
    pen.polygons([rectangle(-0.54, 0.48, -0.46, GROUND), rectangle(0.16, 0.48, 0.24, GROUND)], (70, 70, 74))


def _bending(pen: Pen, paint: Colour) -> None:
    """A person from the side who bends forward and reaches to the ground."""
    trousers = _dark(paint, 0.42)
    for foot in (-0.36, -0.14):
        pen.stroke([(-0.3, -0.16), (foot, 0.36), (foot - 0.02, 0.88)], 0.2, trousers)
    pen.stroke([(-0.26, -0.22), (0.34, -0.3)], 0.36, paint)
    pen.stroke([(0.32, -0.24), (0.36, 0.2), (0.32, 0.62)], 0.13, _dark(paint))
    pen.polygon(ellipse(0.62, -0.16, 0.19, 0.2), SKIN)
    pen.polygon(arc(0.64, -0.18, 0.2, 0.21, 230, 410), HAIR)


def _wheelchair(pen: Pen, paint: Colour) -> None:
    """A person in a wheelchair, from the side."""
    pen.stroke([(-0.5, -0.2), (-0.44, 0.34), (0.2, 0.36), (0.42, 0.82)], 0.07, STEEL)
    pen.stroke([(-0.26, 0.24), (0.3, 0.26), (0.46, 0.78)], 0.2, _dark(paint, 0.42))
    pen.stroke([(-0.26, 0.2), (-0.24, -0.3)], 0.32, paint)
    pen.stroke([(-0.2, -0.26), (0.02, 0.06), (0.22, 0.1)], 0.13, _dark(paint))
    pen.stroke([(0.44, 0.82), (0.64, 0.82)], 0.1, (40, 34, 30))
    pen.polygon(ellipse(-0.18, -0.64, 0.18, 0.21), SKIN)
    pen.polygon(arc(-0.2, -0.67, 0.2, 0.2, 160, 340), HAIR)
    pen.stroke(arc(-0.22, 0.5, 0.41, 0.41, 0, 360), 0.08, TYRE)
    pen.disc(-0.22, 0.5, 0.06, STEEL)
    pen.disc(0.38, 0.83, 0.1, TYRE)


def _cone(pen: Pen, paint: Colour) -> None:
    """A traffic cone with two white bands on its foot."""
    pen.polygon([(-0.62, 0.8), (0.62, 0.8), (0.7, GROUND), (-0.7, GROUND)], _dark(paint, 0.8))
    pen.polygon([(-0.1, -0.95), (0.1, -0.95), (0.46, 0.82), (-0.46, 0.82)], paint)
    pen.polygon([(-0.19, -0.5), (0.19, -0.5), (0.26, -0.16), (-0.26, -0.16)], (238, 238, 234))
    pen.polygon([(-0.32, 0.14), (0.32, 0.14), (0.385, 0.46), (-0.385, 0.46)], (238, 238, 234))


def _wheeled_bin(pen: Pen, paint: Colour) -> None:
    """A bin with a lid and two wheels, as put out for collection."""
    pen.polygon([(-0.54, -0.6), (0.54, -0.6), (0.42, 0.88), (-0.42, 0.88)], paint)
    pen.polygon([(-0.6, -0.72), (-0.5, -0.92), (0.5, -0.92), (0.6, -0.72), (0.6, -0.58), (-0.6, -0.58)], _dark(paint))
    pen.polygon(rectangle(-0.24, -0.34, 0.24, 0.04), _dark(paint, 1.3))
    pen.polygons([rectangle(-0.5, 0.7, -0.34, GROUND), rectangle(0.34, 0.7, 0.5, GROUND)], TYRE)


def _litter_bin(pen: Pen, paint: Colour) -> None:
    """A round litter bin of slats with a dark mouth."""
    pen.polygon([(-0.46, -0.5), (0.46, -0.5), (0.42, GROUND), (-0.42, GROUND)], paint)
    for x in (-0.3, -0.1, 0.1, 0.3):
        pen.polygon(rectangle(x - 0.025, -0.4, x + 0.025, 0.9), _dark(paint, 0.55))
    pen.polygon(arc(0, -0.5, 0.5, 0.42, 180, 360), _dark(paint, 0.8))
    pen.polygon(ellipse(0, -0.6, 0.24, 0.12), (18, 18, 20))


def _four_legged(pen: Pen, coat: Colour, leg: float, body: float) -> None:
    """Legs and trunk of an animal from the side; the trunk's underside is `leg` above the ground."""
    belly = GROUND - leg
    for x in (-0.56, -0.4, 0.28, 0.44):
        pen.stroke([(x, belly - 0.1), (x + 0.03, belly + 0.5 * leg), (x, GROUND - 0.06)], 0.1, _dark(coat, 0.8))
    pen.polygon(ellipse(-0.06, belly - 0.55 * body, 0.62, 0.6 * body), coat)


def _dog(pen: Pen, paint: Colour) -> None:
    _four_legged(pen, paint, leg=0.42, body=0.38)
    pen.stroke([(-0.6, 0.24), (-0.84, -0.1)], 0.1, paint)
    pen.stroke([(0.4, 0.24), (0.6, -0.08)], 0.24, paint)
    pen.polygon(ellipse(0.64, -0.14, 0.2, 0.18), paint)
    pen.polygon(rectangle(0.7, -0.16, 0.94, 0.02), paint)
    pen.disc(0.92, -0.12, 0.05, (24, 20, 20))
    pen.polygon([(0.46, -0.26), (0.6, -0.3), (0.52, 0.06), (0.42, 0.0)], _dark(paint, 0.6))


def _deer(pen: Pen, paint: Colour) -> None:
    _four_legged(pen, paint, leg=0.66, body=0.4)
    pen.stroke([(0.4, 0.06), (0.62, -0.42)], 0.2, paint)
    pen.polygon(ellipse(0.72, -0.48, 0.2, 0.11), paint)
    pen.disc(-0.64, 0.04, 0.09, (226, 216, 200))
    for side in (-0.03, 0.05):
        pen.stroke([(0.6 + side, -0.56), (0.5 + 2 * side, -0.9)], 0.05, (92, 70, 48))
        pen.stroke([(0.55 + 1.5 * side, -0.72), (0.7 + 2 * side, -0.88)], 0.045, (92, 70, 48))


def _cow(pen: Pen, paint: Colour) -> None:
    _four_legged(pen, (232, 228, 220), leg=0.46, body=0.62)
    for x, y, wide, high in ((-0.34, 0.14, 0.2, 0.2), (0.14, 0.06, 0.18, 0.14), (0.3, 0.3, 0.1, 0.1)):
        pen.polygon(ellipse(x, y, wide, high), paint)
    pen.stroke([(0.48, 0.1), (0.68, -0.08)], 0.28, (232, 228, 220))
    pen.polygon(ellipse(0.76, -0.06, 0.17, 0.22), paint)
    pen.polygon(ellipse(0.84, 0.08, 0.1, 0.1), (216, 168, 156))
    pen.stroke([(0.66, -0.24), (0.6, -0.38)], 0.05, (214, 206, 190))
    pen.stroke([(-0.66, 0.06), (-0.78, 0.5)], 0.05, paint)


def _tram(pen: Pen, paint: Colour) -> None:
    """A tram from the front, with its pantograph on the roof."""
    pen.stroke([(-0.3, -0.7), (0.0, -0.94), (0.3, -0.7)], 0.035, STEEL)
    pen.stroke([(-0.34, -0.94), (0.34, -0.94)], 0.03, STEEL)
    pen.polygon([(-0.4, -0.68), (0.4, -0.68), (0.54, -0.5), (0.58, 0.66), (-0.58, 0.66), (-0.54, -0.5)], paint)
    pen.polygon([(-0.42, -0.38), (0.42, -0.38), (0.48, 0.16), (-0.48, 0.16)], GLASS)
    pen.polygon(rectangle(-0.26, -0.6, 0.26, -0.46), (240, 170, 50))
    pen.polygon(rectangle(-0.58, 0.4, 0.58, 0.5), STRIPE)
    pen.polygon([(-0.5, 0.66), (0.5, 0.66), (0.4, 0.9), (-0.4, 0.9)], CHASSIS)
    pen.disc(0, 0.3, 0.09, (250, 244, 220))


def _locomotive(pen: Pen, paint: Colour) -> None:
    """A locomotive from the side: cabs at both ends, grilles, two bogies, pantographs."""
    for x in (-0.5, 0.5):
        pen.stroke([(x - 0.12, 0.1), (x, -0.06), (x + 0.12, 0.1)], 0.025, STEEL)
        pen.stroke([(x - 0.14, -0.07), (x + 0.14, -0.07)], 0.025, STEEL)
    pen.polygon([(-0.97, 0.72), (-0.97, 0.4), (-0.88, 0.12), (0.88, 0.12), (0.97, 0.4), (0.97, 0.72)], paint)
    pen.polygons([rectangle(-0.9, 0.22, -0.76, 0.38), rectangle(0.76, 0.22, 0.9, 0.38)], GLASS)
    pen.polygons([rectangle(-0.6 + 0.26 * k, 0.24, -0.42 + 0.26 * k, 0.4) for k in range(5)], _dark(paint, 0.5))
    pen.polygon(rectangle(-0.97, 0.54, 0.97, 0.6), STRIPE)
    pen.polygon(rectangle(-0.9, 0.72, 0.9, 0.8), CHASSIS)
    _wheels(pen, 0.09, -0.72, -0.5, -0.28, 0.28, 0.5, 0.72)


def _kind(name: str, colours: tuple[Colour, ...], **drawings: tuple[Callable[..., None], float]) -> None:
    """Register the drawings of a kind in every colour, each with the metres from -1 to 1."""
    for form, (draw, span) in drawings.items():
        for number, colour in enumerate(colours):
            drawing = f"{name} {form} {number}"
            DRAWINGS[drawing], SPANS[drawing] = partial(draw, paint=colour), span
            UNUSUAL[name] = (*UNUSUAL.get(name, ()), drawing)


_COATS: tuple[Colour, ...] = ((96, 66, 42), (52, 44, 40), (168, 128, 84))
_BINS: tuple[Colour, ...] = ((48, 92, 58), (78, 80, 84), (40, 72, 128), (140, 104, 40))
_kind("trailer", PAINTS, caravan=(_caravan, 5.6), flat=(_flat_trailer, 6.4))
_kind("crane truck", BUILDERS, side=(_crane_truck, 9.5))
_kind("concrete mixer", BUILDERS[:3], side=(_concrete_mixer, 8.0))
_kind("seated person", CLOTHES, bench=(_seated, 1.45))
_kind("bending person", CLOTHES, side=(_bending, 1.35))
_kind("wheelchair user", CLOTHES, side=(_wheelchair, 1.5))
_kind("cone", ((230, 92, 30), (214, 60, 36)), upright=(_cone, 0.75))
_kind("bin", _BINS, wheeled=(_wheeled_bin, 1.1), litter=(_litter_bin, 1.0))
_kind("animal", _COATS, dog=(_dog, 1.1), deer=(_deer, 1.7), cow=(_cow, 2.4))
_kind("train", PAINTS, front=(_tram, 4.2), side=(_locomotive, 10.5))

DRAWINGS["bench"], SPANS["bench"] = partial(_bench, paint=(142, 100, 60)), 1.45
SUPPORTS.update(dict.fromkeys(UNUSUAL["seated person"], "bench"))
