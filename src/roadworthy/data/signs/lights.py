"""Traffic lights, and the lamps of vehicles that shine in the dark, as vector shapes."""

from __future__ import annotations

from functools import partial

from roadworthy.data.signs.sprites import DRAWINGS, Colour, Pen, Points, arc, rectangle
from roadworthy.data.signs.traffic import HEADLAMP, LAMP, SPANS

SIGNALS: dict[str, tuple[float, Colour, Colour]] = {
    "red": (-0.6, (255, 52, 40), (74, 20, 20)),
    "amber": (0.0, (255, 190, 40), (76, 58, 18)),
    "green": (0.6, (60, 245, 150), (16, 66, 44)),
}
"""Where each lamp of a traffic light is, its colour when it is lit and when it is not."""
HOUSINGS: dict[str, Colour] = {"black": (30, 31, 33), "green": (40, 62, 48), "yellow": (204, 158, 36)}

SHINING: dict[str, str] = {}
"""For a drawing with lamps, the name of the drawing that holds the lit lamps alone."""


def _traffic_light(pen: Pen, housing: Colour, lit: str, plate: bool) -> None:
    """A housing with three lamps, one of them lit, on a dark plate with a pale rim or without."""
    if plate:
        pen.polygon(rectangle(-0.5, -0.97, 0.5, 0.97), (206, 204, 190))
        pen.polygon(rectangle(-0.46, -0.93, 0.46, 0.93), (22, 23, 24))
    pen.polygon(rectangle(-0.34, -0.9, 0.34, 0.9), housing)
    for name, (y, bright, dark) in SIGNALS.items():
        pen.disc(0, y, 0.27, (16, 16, 18))
        pen.disc(0, y, 0.22, bright if name == lit else dark)
        pen.stroke(arc(0, y, 0.26, 0.26, 200, 340), 0.07, (12, 12, 14))


def _lit_lamp(pen: Pen, lit: str) -> None:
    y, bright, _ = SIGNALS[lit]
    pen.disc(0, y, 0.22, bright)
    pen.disc(0, y, 0.1, (255, 250, 230))


def _lamps(pen: Pen, parts: list[Points], colour: Colour) -> None:
    pen.polygons(parts, colour)


def _register_traffic_lights() -> tuple[str, ...]:
    """Put every traffic light and its lit lamp among the drawings; the names of the lights."""
    names = []
    for lit in SIGNALS:
        DRAWINGS[f"lit {lit}"], SPANS[f"lit {lit}"] = partial(_lit_lamp, lit=lit), 1.1
        for housing, colour in HOUSINGS.items():
            for plate in (False, True):
                name = f"traffic light {lit} {housing}{' plate' if plate else ''}"
                DRAWINGS[name] = partial(_traffic_light, housing=colour, lit=lit, plate=plate)
                SPANS[name], SHINING[name] = 1.1, f"lit {lit}"
                names.append(name)
    return tuple(names)


def _register_lamps(end: str, lamp: list[tuple[float, float]], colour: Colour) -> None:
    """Put the lit lamps of one end of a vehicle among the drawings: the right one, and the left one opposite."""
    variants = [name for name in SPANS if name.startswith(f"{end} ")]
    parts: list[Points] = [lamp, [(-x, y) for x, y in lamp]]
    DRAWINGS[f"lamps {end}"], SPANS[f"lamps {end}"] = partial(_lamps, parts=parts, colour=colour), SPANS[variants[0]]
    SHINING.update(dict.fromkeys(variants, f"lamps {end}"))


TRAFFIC_LIGHTS = _register_traffic_lights()
"""Names of all drawings of a traffic light."""
_register_lamps("car rear", rectangle(0.56, 0.08, 0.88, 0.26), LAMP)
_register_lamps("car front", rectangle(0.56, 0.08, 0.88, 0.26), HEADLAMP)
_register_lamps("truck rear", rectangle(0.46, 0.65, 0.7, 0.75), LAMP)
_register_lamps("bus front", rectangle(0.42, 0.46, 0.68, 0.6), HEADLAMP)
