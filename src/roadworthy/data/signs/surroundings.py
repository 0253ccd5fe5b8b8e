"""A road with what stands beside it, drawn as a cut-out shows it, with the distance of every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.data.signs.camera import Floats, Image, Light, Plane
from roadworthy.data.signs.crops import FAR, REFERENCE, CropCamera, picture_rows
from roadworthy.data.signs.scenes import (
    HALF_ROAD,
    LANDMARK_DRAWINGS,
    ROAD_COLOURS,
    ROAD_PAINT,
    VERGE_COLOURS,
    Landmark,
    Shape,
    mark_corners,
    over_rows,
    road_texture,
)
from roadworthy.data.signs.sprites import Colour, CoverPen, Pen, rectangle
from roadworthy.data.signs.textures import clouds, grey, window

LAYOUTS = ("straight", "curve", "junction")
COUNT = 14
"""Landmarks along a road, most of them outside a cut-out."""
TALLEST = 12.5
"""Metres from the ground to the top of the tallest landmark, at most."""
SNOW: Colour = (232, 236, 242)

_OUTLINE = REFERENCE / np.array([FAR, 120, 60, 35, 22, 14, 9, 6, 4, 2.2, 1.2])
_BOTH_SIDES = np.concatenate([_OUTLINE, _OUTLINE[::-1]])
_MARKS = mark_corners(0.012)
_WOODS = 61


@dataclass(frozen=True)
class Surroundings:
    """A piece of road: the same one in all views of an object.

    surface, layout  of the road;  curvature of its curve;  crossing: metres to the road that crosses it
    paved            a pavement runs along it;  verge: colour of the ground beside it
    woods            (61,) heights of the woods on the horizon;  landmarks: the far ones first
    texture          where in the noise its unevenness begins
    """

    surface: str
    layout: str
    curvature: float
    crossing: float
    paved: bool
    verge: Colour
    woods: Floats
    landmarks: tuple[Landmark, ...]
    texture: tuple[float, float]

    @staticmethod
    def draw(rng: np.random.Generator, surface: str, layout: str, kinds: Sequence[str]) -> Surroundings:
        """Random surroundings with landmarks of these kinds."""
        x, y, verge, turn, crossing, paved = rng.random(6)
        curvature = np.sign(turn - 0.5) / (2 * (60 + 180 * abs(turn - 0.5))) if layout == "curve" else 0.0
        distances = np.sort(9 * 18 ** rng.random(COUNT))[::-1]
        landmarks = []
        for distance, shape in zip(distances.tolist(), rng.random((COUNT, 12)), strict=True):
            side = 1 if shape[0] < 0.5 else -1
            kind = kinds[int(shape[1] * len(kinds))]
            landmarks.append(Landmark(kind, REFERENCE / distance, side * (6.5 + 6 * shape[2]), shape))
        return Surroundings(
            surface,
            layout,
            float(curvature),
            10 + 30 * crossing,
            bool(paved < 0.5),
            VERGE_COLOURS[int(verge * len(VERGE_COLOURS))],
            rng.random(_WOODS),
            tuple(landmarks),
            (x, y),
        )


_FULL: Colour = (255, 0, 0)


def draw_surroundings(
    surroundings: Surroundings,
    camera: CropCamera,
    light: Light,
    size: tuple[int, int],
    *,
    posts: Sequence[Shape],
    shadows: Sequence[Shape],
    distance: float,
    snow: float,
) -> tuple[Image, Plane]:
    """The surroundings in that light, (H, W, 3) float32, and metres to what each pixel shows, (H, W).

    Before the object at `distance` metres nothing is drawn but the ground. Posts stand at that distance too, shadows
    lie on the ground. `snow` is the share of the ground that is white.
    """
    rows = picture_rows(size)
    metres = np.minimum(camera.ground_distance(rows), np.where(rows > camera.horizon, FAR, np.inf))
    nearness = REFERENCE / metres
    depth = np.repeat(metres.astype(np.float32)[:, None], size[1], axis=1)
    canvas, share = _ground(surroundings, camera, light, rows, nearness, size, snow)
    pen = CoverPen(canvas, min(size))
    _woods(pen, surroundings, camera, light, snow)
    pen.put(depth, FAR)
    _landmarks(pen, surroundings, camera, light, size, depth, distance)
    for points, colour in posts:
        pen.polygon(points, colour)
    pen.put(depth, distance)
    for points, colour in shadows:
        Pen(canvas, min(size)).polygon(points, colour)
    image = canvas.astype(np.float32)
    visible = np.clip(3 * nearness, 0, 1 - 0.8 * snow).astype(np.float32)[:, None]
    factors = window(clouds(), *surroundings.texture, 110, size) * np.float32(0.085)
    factors += share * visible * (road_texture(surroundings.surface, camera, size) - 1) + 1
    image *= grey(factors)
    return image, depth


def _landmarks(
    pen: CoverPen,
    surroundings: Surroundings,
    camera: CropCamera,
    light: Light,
    size: tuple[int, int],
    depth: Plane,
    distance: float,
) -> None:
    """What stands beside the road farther away than the object, as far as it is in the picture."""
    below, edge = (length / min(size) / 2 for length in size)
    for landmark in surroundings.landmarks:
        near = landmark.nearness
        if near * distance >= 0.97 * REFERENCE:
            break
        draw, reach = LANDMARK_DRAWINGS[landmark.kind]
        (x, foot), metre = camera.ground(near, landmark.aside), camera.metre(near)
        if abs(x) < edge + reach * metre and -below < foot < below + TALLEST * metre:
            draw(pen, camera, light, landmark)
            pen.put(depth, REFERENCE / near)


def _ground(
    surroundings: Surroundings,
    camera: CropCamera,
    light: Light,
    rows: Floats,
    nearness: Floats,
    size: tuple[int, int],
    snow: float,
) -> tuple[NDArray[np.uint8], Plane]:
    """Sky, ground and road (H, W, 3), and the share (H, W) of each pixel that is road."""
    above, low = (np.array(colour) for colour in light.sky)
    height = np.clip((camera.horizon - rows) / (0.35 * camera.zoom), 0, 1)[:, None]
    sky = low + (above - low) * np.sqrt(height)
    verge = _lit(_snowy(surroundings.verge, min(1.0, 1.3 * snow)), light, nearness)
    canvas = over_rows(np.where(nearness[:, None] > 0, verge, sky), size)
    mask = np.zeros(size, dtype=np.uint8)
    stencil = Pen(mask, min(size))
    if surroundings.paved:
        Pen(canvas, min(size)).polygon(_band(camera, HALF_ROAD + 2.2), light.shade(_snowy(_PAVING, snow), 0.2))
        Pen(canvas, min(size)).polygon(_band(camera, HALF_ROAD + 0.2), light.shade(_snowy(_KERB, snow), 0.2))
    stencil.polygon(_band(camera, HALF_ROAD), _FULL)
    if surroundings.layout == "junction":
        top, low_row = camera.ground_row(surroundings.crossing + 7), camera.ground_row(surroundings.crossing)
        stencil.polygon(rectangle(-4, top, 4, low_row), _FULL)
    share = mask * np.float32(1 / 255)
    road = over_rows(_lit(_snowy(ROAD_COLOURS[surroundings.surface], snow), light, nearness), size)
    canvas = np.asarray(cv2.blendLinear(road, canvas, share, 1 - share), dtype=np.uint8)
    pen = Pen(canvas, min(size))
    if surroundings.surface != "cobbles":
        corners = camera.along(_MARKS[0].ravel(), _MARKS[1].ravel()).reshape(-1, 4, 2)
        pen.polygons(corners, light.shade(_mixed(ROAD_PAINT, ROAD_COLOURS[surroundings.surface], 0.8 * snow), 0.2))
    if snow > 0:
        for aside in (-2.45, -1.05, 1.05, 2.45):
            pen.polygon(_band(camera, 0.24, aside), light.shade(_mixed((86, 88, 92), SNOW, 0.6 * snow), 0.2))
    return canvas, share


_PAVING: Colour = (158, 154, 148)
_KERB: Colour = (190, 188, 182)


def _band(camera: CropCamera, half: float, aside: float = 0.0) -> Floats:
    """The outline (M, 2) of a strip along the road, that many metres to both sides of a line."""
    return camera.along(_BOTH_SIDES, aside + np.repeat([-half, half], len(_OUTLINE)))


def _mixed(colour: Colour, other: Colour, share: float) -> Colour:
    red, green, blue = (one + share * (two - one) for one, two in zip(colour, other, strict=True))
    return red, green, blue


def _snowy(colour: Colour, snow: float) -> Colour:
    return _mixed(colour, SNOW, snow)


def _lit(colour: Colour, light: Light, nearness: Floats) -> Floats:
    """The colour (H, 3) of the ground in each row: as `Light.shade`, for all rows at once."""
    near = np.maximum(nearness, 0.008)[:, None]
    clear = np.exp(-0.22 * light.haze / near)
    lit = np.array(colour) * (np.array(light.ambient) + 0.6 * light.beam * np.minimum(near, 0.5))
    return np.asarray(clear * lit + (1 - clear) * np.array(light.sky[1]))


def _woods(pen: Pen, surroundings: Surroundings, camera: CropCamera, light: Light, snow: float) -> None:
    """Woods and hills at FAR metres, over the whole width of the view."""
    middle = camera.ground(REFERENCE / FAR, 0)[0]
    outline = np.empty((_WOODS + 2, 2))
    outline[:_WOODS, 0] = np.linspace(-1.5, 1.5, _WOODS) * camera.zoom + middle
    outline[:_WOODS, 1] = camera.horizon - camera.zoom * (0.012 + 0.035 * surroundings.woods)
    row = camera.ground_row(FAR)
    outline[_WOODS:] = (outline[_WOODS - 1, 0], row), (outline[0, 0], row)
    pen.polygon(outline, light.shade(_mixed((70, 88, 60), SNOW, 0.4 * snow), 0.05))
