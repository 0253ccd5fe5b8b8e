"""Roads and what stands beside them: roadsides that are drawn in any light, from far away or close up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.data.signs.camera import Floats, Image, Light
from roadworthy.data.signs.sprites import Colour, Pen, Points, ellipse, rectangle
from roadworthy.data.signs.textures import TEXELS_PER_METRE, clouds, grey, pavement, window

ROAD_SURFACE = ("asphalt", "concrete", "cobbles")
ROAD_LAYOUT = ("straight", "curve", "junction", "roundabout")

Shape = tuple[Points, Colour]
"""Corners and what fills them."""

ROAD_COLOURS: dict[str, Colour] = {"asphalt": (88, 89, 92), "concrete": (164, 160, 150), "cobbles": (122, 112, 102)}
VERGE_COLOURS: tuple[Colour, ...] = ((88, 116, 56), (104, 124, 66), (126, 120, 80), (150, 146, 138))
_LEAVES: tuple[Colour, ...] = ((52, 84, 40), (66, 98, 44), (84, 104, 50), (118, 96, 44))
_WALLS: tuple[Colour, ...] = ((158, 84, 62), (178, 128, 100), (206, 198, 184), (134, 72, 58), (190, 180, 150))
_ROOFS: tuple[Colour, ...] = ((104, 52, 42), (74, 74, 82), (92, 66, 52))
ROAD_PAINT: Colour = (222, 222, 216)
HALF_ROAD = 3.5
"""Half the width of every road, in metres: the measure of everything else."""


@dataclass(frozen=True)
class Camera:
    """Where a picture is taken from. Lengths are in shorter sides of the picture, from its centre, y down.

    horizon     height of the horizon
    vanish      where the road meets it
    foot        middle of the road at the lower edge
    half_road   half its width there
    bottom      the lower edge;  zoom: focal length
    """

    horizon: float
    vanish: float
    foot: float
    half_road: float
    bottom: float
    zoom: float

    def metre(self, nearness: float) -> float:
        """The length of one metre at that nearness: 1 at the lower edge of the picture, 0 at the horizon."""
        return self.half_road * nearness / HALF_ROAD

    def ground(self, nearness: float, aside: float) -> tuple[float, float]:
        """The point of the ground that many metres right of a straight road's middle."""
        x = self.vanish + (self.foot - self.vanish) * nearness + aside * self.metre(nearness)
        return x, self.horizon + (self.bottom - self.horizon) * nearness


@dataclass(frozen=True)
class Landmark:
    """Object beside the road: kind, nearness, metres from the middle of the road, and numbers (12,) that shape it."""

    kind: str
    nearness: float
    aside: float
    shape: Floats


@dataclass(frozen=True)
class Roadside:
    """A piece of road with its surroundings; the same one can be seen by day and by night, from near and from far."""

    surface: str
    layout: str
    bend: float
    verge: Colour
    hills: Floats
    landmarks: tuple[Landmark, ...]
    texture: tuple[float, float]

    @staticmethod
    def draw(rng: np.random.Generator, surface: str, layout: str, kinds: tuple[str, ...], count: int) -> Roadside:
        """A random roadside: verge, hills or houses far away, and `count` landmarks, the far ones first."""
        bend = rng.uniform(0.06, 0.11) * (1 if rng.random() < 0.5 else -1) if layout == "curve" else 0.0
        nearness = np.sort(0.08 + 0.42 * rng.random(count) ** 1.6)
        landmarks = []
        for near in nearness.tolist():
            shape = rng.random(12)
            side = 1 if shape[0] < 0.5 else -1
            landmarks.append(Landmark(kinds[int(shape[1] * len(kinds))], near, side * (6.0 + 7 * shape[2]), shape))
        x, y, verge = rng.random(3)
        colour = VERGE_COLOURS[int(verge * len(VERGE_COLOURS))]
        return Roadside(surface, layout, bend, colour, rng.random(13), tuple(landmarks), (x, y))

    def road(self, camera: Camera) -> list[Floats]:
        """Outlines of the road, overlapping, each (M, 2)."""
        outline = self.along(camera, *_BOTH_EDGES)
        if self.layout == "junction":
            top, bottom = camera.ground(0.4, 0)[1], camera.ground(0.62, 0)[1]
            return [outline, np.array(rectangle(-4, top, 4, bottom))]
        if self.layout == "roundabout":
            return [outline, self._ring(camera, 3.0)]
        return [outline]

    def along(self, camera: Camera, nearness: Floats, aside: Floats) -> Floats:
        """Points (M, 2) that many metres right of the road's middle."""
        points = np.empty((len(nearness), 2))
        points[:, 0] = camera.vanish + nearness * (camera.foot - camera.vanish + aside * (camera.half_road / HALF_ROAD))
        if self.bend:
            points[:, 0] += self.bend * (1 / (nearness + 0.12) - 1 / 1.12)
        points[:, 1] = camera.horizon + (camera.bottom - camera.horizon) * nearness
        return points

    def _ring(self, camera: Camera, half_roads: float) -> Floats:
        x, y = camera.ground(0.5, 0)
        wide = half_roads * camera.half_road * 0.4
        return ellipse(x, y, wide, min(0.13 * half_roads, 0.34) * (camera.bottom - camera.horizon))

    def island(self, camera: Camera) -> Floats:
        """The middle of a roundabout."""
        return self._ring(camera, 1.35)

    def marks(self, camera: Camera) -> Floats:
        """White dashes along the middle and lines along the edges, in pieces (M, 4, 2)."""
        ends, aside = _OPEN_MARKS if self.layout in ("junction", "roundabout") else _MARKS
        corners = self.along(camera, ends.ravel(), aside.ravel())
        return corners.reshape(-1, 4, 2)


def mark_corners(first: float) -> tuple[Floats, Floats]:
    """Nearness and metres aside, (M, 4) each, of the corners of all marks from that nearness on."""
    dashes = first * 1.42 ** np.arange(np.ceil(np.log(1.1 / first) / np.log(1.42)))
    pieces = [(near, near * 1.16, -0.12, 0.12) for near in dashes]
    steps = np.geomspace(first, 1.15, 5)
    for left in (-3.15, 3.0):
        pieces += [(near, end, left, left + 0.15) for near, end in pairwise(steps)]
    near, end, left, right = np.array(pieces).T
    return np.stack([near, end, end, near], axis=1), np.stack([left, left, right, right], axis=1)


_MARKS, _OPEN_MARKS = mark_corners(0.06), mark_corners(0.68)
_OUTLINE = np.array([0.03, 0.07, 0.13, 0.2, 0.3, 0.42, 0.56, 0.75, 1.0, 1.1])
_BOTH_EDGES = np.concatenate([_OUTLINE, _OUTLINE[::-1]]), np.repeat([-HALF_ROAD, HALF_ROAD], len(_OUTLINE))
_HILLS_X = np.linspace(-3, 3, 13)
_LUMPS = np.linspace(0, 2 * np.pi, 24, endpoint=False)
_ROUND = np.stack([np.cos(_LUMPS), np.sin(_LUMPS)], axis=1)


def draw_roadside(
    roadside: Roadside, camera: Camera, light: Light, size: tuple[int, int], stand: Sequence[Shape]
) -> Image:
    """The roadside in that light, as (H, W, 3) float32, with the shapes of `stand` before everything else."""
    height, width = size
    rows = (np.arange(height) + (0.5 - height / 2)) / min(size)
    nearness = (rows - camera.horizon) / (camera.bottom - camera.horizon)
    canvas, share = _ground(roadside, camera, light, rows, nearness, size)
    pen = Pen(canvas, min(size))
    _far_away(pen, roadside, camera, light)
    if roadside.layout == "roundabout":
        island = roadside.island(camera)
        pen.polygon(island + np.array((0, 0.012)), light.shade((170, 168, 160), 0.45))
        pen.polygon(island, light.shade((84, 112, 56), 0.4))
    if roadside.surface != "cobbles":
        pen.polygons(roadside.marks(camera), light.shade(ROAD_PAINT, 0.7))
    edge = width / min(size) / 2
    for landmark in roadside.landmarks:
        draw, reach = LANDMARK_DRAWINGS[landmark.kind]
        if abs(camera.ground(landmark.nearness, landmark.aside)[0]) < edge + reach * camera.metre(landmark.nearness):
            draw(pen, camera, light, landmark)
    for points, colour in stand:
        pen.polygon(points, colour)
    image = canvas.astype(np.float32)
    factors = window(clouds(), *roadside.texture, 110, size) * np.float32(0.085)
    visible = np.clip(3 * nearness, 0, 1).astype(np.float32)[:, None]
    factors += share * visible * (road_texture(roadside.surface, camera, size) - 1) + 1
    image *= grey(factors)
    if light.weather == "rain":
        _wet(image, share, camera)
    return image


def _ground(
    roadside: Roadside, camera: Camera, light: Light, rows: Floats, nearness: Floats, size: tuple[int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Sky, verge and road (H, W, 3), and the share (H, W) of each pixel that is road."""
    mask = np.zeros(size, dtype=np.uint8)
    stencil = Pen(mask, min(size))
    for outline in roadside.road(camera):
        stencil.polygon(outline, (255, 0, 0))
    above, low = (np.array(colour) for colour in light.sky)
    height = np.clip((camera.horizon - rows) / max(camera.horizon + 0.5, 0.3), 0, 1)[:, None]
    sky = low + (above - low) * np.sqrt(height)
    backdrop = np.where(nearness[:, None] < 0, sky, _hazy(roadside.verge, light, nearness))
    road = _hazy(ROAD_COLOURS[roadside.surface], light, nearness)
    share = mask * np.float32(1 / 255)
    canvas = cv2.blendLinear(over_rows(road, size), over_rows(backdrop, size), share, 1 - share)
    if roadside.layout == "roundabout":
        stencil.polygon(roadside.island(camera), (0, 0, 0))
        share = mask * np.float32(1 / 255)
    return np.asarray(canvas, dtype=np.uint8), share


def over_rows(rows: Floats, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The colour (H, 3) of each row, over the whole row: (H, W, 3)."""
    column = np.rint(rows).clip(0, 255).astype(np.uint8)[:, None]
    return np.asarray(cv2.resize(column, size[::-1], interpolation=cv2.INTER_NEAREST), dtype=np.uint8)


def _hazy(colour: Colour, light: Light, nearness: Floats) -> Floats:
    """Colour (H, 3) of the ground in each row."""
    samples = np.array([light.shade(colour, near) for near in _HAZE_STEPS])
    return np.stack([np.interp(nearness, _HAZE_STEPS, channel) for channel in samples.T], axis=1)


_HAZE_STEPS = (0.06, 0.14, 0.3, 0.6, 1.0)


def _far_away(pen: Pen, roadside: Roadside, camera: Camera, light: Light) -> None:
    """Woods and hills on the horizon."""
    outline = np.empty((15, 2))
    outline[:13, 0] = _HILLS_X
    outline[:13, 1] = camera.horizon - 0.02 - 0.05 * roadside.hills[:13]
    outline[13:] = (3, camera.horizon + 0.01), (-3, camera.horizon + 0.01)
    pen.polygon(outline, light.shade((70, 88, 60), 0.1))


def road_texture(surface: str, camera: Camera, size: tuple[int, int]) -> NDArray[np.float32]:
    """Factors (H, W) of the road's texture: the tile laid on the ground, fainter where it is too far to be seen."""
    height, width = size
    side = min(size)
    depth = camera.zoom * HALF_ROAD / camera.half_road
    across = [camera.half_road * depth / HALF_ROAD, camera.vanish, (camera.foot - camera.vanish) * depth]
    ground = np.array([across, [0, camera.horizon, (camera.bottom - camera.horizon) * depth], [0, 1, 0]])
    pixels = np.array([[side, 0, width / 2 - 0.5], [0, side, height / 2 - 0.5], [0, 0, 1]])
    metres = np.array([[1 / TEXELS_PER_METRE, 0, 0], [0, 1 / TEXELS_PER_METRE, 0], [0, 0, 1]])
    top = int(np.clip((camera.horizon + 0.04) * side + height / 2, 0, height - 1))
    shifted = np.array([[1, 0, 0], [0, 1, -top], [0, 0, 1]]) @ pixels @ ground @ metres
    factors = np.ones(size, dtype=np.float32)
    factors[top:] = cv2.warpPerspective(
        pavement(surface), shifted, (width, height - top), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP
    )
    return factors


def _wet(image: Image, share: NDArray[np.float32], camera: Camera) -> None:
    """The wet road mirrors what stands above the horizon, in place."""
    height = image.shape[0]
    line = int(np.clip(camera.horizon * min(image.shape[:2]) + height / 2, 1, height - 1))
    below = np.arange(line, height)
    mirrored = np.clip(2 * line - 1 - below, 0, line - 1)
    wet = np.float32(0.42) * share[line:]
    image[line:] += grey(wet) * (image[mirrored] - np.float32(0.9) * image[line:])


def _lumpy(shape: Floats) -> Floats:
    """A lumpy round outline (24, 2) of radius 1, as of a crown of leaves."""
    lumps = 1 + 0.1 * np.sin(5 * _LUMPS + 6 * shape[5]) + 0.08 * np.sin(9 * _LUMPS + 6 * shape[6])
    return np.asarray(lumps[:, None] * _ROUND)


def _tree(pen: Pen, camera: Camera, light: Light, landmark: Landmark) -> None:
    metre, (x, y) = camera.metre(landmark.nearness), camera.ground(landmark.nearness, landmark.aside)
    tall, wide = (6 + 6 * landmark.shape[3]) * metre, (1.6 + 1.4 * landmark.shape[4]) * metre
    trunk = rectangle(x - 0.2 * metre, y - 0.5 * tall, x + 0.2 * metre, y)
    pen.polygon(trunk, light.shade((78, 62, 48), landmark.nearness))
    red, green, blue = light.shade(_LEAVES[int(landmark.shape[7] * len(_LEAVES))], landmark.nearness)
    outline, middle, crown = _lumpy(landmark.shape), y - 0.64 * tall, np.array((wide, 0.37 * tall))
    for left, up, part, bright in ((0, 0, 1, 0.72), (0.16, 0.07, 0.75, 1.0), (0.3, 0.14, 0.36, 1.22)):
        leaves = np.array((x - left * wide, middle - up * tall)) + part * crown * outline
        pen.polygon(leaves, (min(bright * red, 255), min(bright * green, 255), min(bright * blue, 255)))


def _fir(pen: Pen, camera: Camera, light: Light, landmark: Landmark) -> None:
    metre, (x, y) = camera.metre(landmark.nearness), camera.ground(landmark.nearness, landmark.aside)
    tall, wide = (7 + 5 * landmark.shape[3]) * metre, (1.5 + landmark.shape[4]) * metre
    for step, colour in enumerate(((36, 62, 42), (42, 72, 48), (50, 82, 54))):
        low, top = y - (0.1 + 0.25 * step) * tall, y - (0.55 + 0.22 * step) * tall
        half = wide * (1 - 0.26 * step)
        pen.polygon([(x - half, low), (x + half, low), (x, top)], light.shade(colour, landmark.nearness))


def _bush(pen: Pen, camera: Camera, light: Light, landmark: Landmark) -> None:
    metre, (x, y) = camera.metre(landmark.nearness), camera.ground(landmark.nearness, landmark.aside)
    wide, tall = (2 + 2.5 * landmark.shape[3]) * metre, (0.7 + 0.9 * landmark.shape[4]) * metre
    red, green, blue = light.shade(_LEAVES[int(landmark.shape[7] * len(_LEAVES))], landmark.nearness)
    outline = np.array((wide, tall)) * _lumpy(landmark.shape)
    pen.polygon(np.array((x, y - 0.7 * tall)) + outline, (0.75 * red, 0.75 * green, 0.75 * blue))
    pen.polygon(np.array((x - 0.1 * wide, y - tall)) + 0.65 * outline, (red, green, blue))


def _house(pen: Pen, camera: Camera, light: Light, landmark: Landmark) -> None:
    metre, near = camera.metre(landmark.nearness), landmark.nearness
    x, y = camera.ground(near, landmark.aside + (4 if landmark.aside > 0 else -4))
    half, wall = (3.5 + 2.5 * landmark.shape[3]) * metre, (3.2 + 2.8 * landmark.shape[4]) * metre
    roof = (1.8 + 1.6 * landmark.shape[8]) * metre
    brick = light.shade(_WALLS[int(landmark.shape[7] * len(_WALLS))], near)
    pen.polygon(rectangle(x - half, y - wall, x + half, y), brick)
    gable = [(x - 1.08 * half, y - wall), (x - 0.5 * half, y - wall - roof), (x + 0.5 * half, y - wall - roof)]
    slope: Points = [*gable, (x + 1.08 * half, y - wall)]
    pen.polygon(slope, light.shade(_ROOFS[int(landmark.shape[9] * len(_ROOFS))], near))
    panes: list[Points] = [
        rectangle(x + (k - 0.17) * half, y - wall * 0.72, x + (k + 0.17) * half, y - wall * 0.36)
        for k in (-0.62, 0.0, 0.62)
    ]
    glow: Colour = (244, 206, 120)
    lit = light.lamps_are_lit and landmark.shape[10] < 0.6
    pen.polygons(panes, glow if lit else light.shade((66, 76, 88), near))


def _lamp(pen: Pen, camera: Camera, light: Light, landmark: Landmark) -> None:
    metre, near = camera.metre(landmark.nearness), landmark.nearness
    x, y = camera.ground(near, 0.7 * landmark.aside)
    reach = -1.4 * metre if landmark.aside > 0 else 1.4 * metre
    top, half = y - 7 * metre, max(0.09 * metre, 0.004)
    steel = light.shade((112, 116, 118), near)
    pen.polygon(rectangle(x - half, top, x + half, y), steel)
    pen.polygon(rectangle(min(x, x + reach), top - half, max(x, x + reach), top + half), steel)
    shine: Colour = (255, 226, 160)
    radius = (0.42 if light.lamps_are_lit else 0.22) * metre
    pen.disc(x + reach, top + half, radius, shine if light.lamps_are_lit else light.shade((210, 210, 205), near))


def _billboard(pen: Pen, camera: Camera, light: Light, landmark: Landmark) -> None:
    metre, near = camera.metre(landmark.nearness), landmark.nearness
    x, y = camera.ground(near, landmark.aside)
    half, low, high = (1.6 + 1.2 * landmark.shape[3]) * metre, y - 1.6 * metre, y - (3.6 + landmark.shape[4]) * metre
    legs = [rectangle(x + k * half - 0.1 * metre, low, x + k * half + 0.1 * metre, y) for k in (-0.7, 0.7)]
    pen.polygons(legs, light.shade((96, 92, 86), near))
    pen.polygon(rectangle(x - half, high, x + half, low), light.shade((226, 224, 218), near))
    red, green, blue = (60 + 170 * landmark.shape[8], 60 + 150 * landmark.shape[9], 60 + 170 * landmark.shape[10])
    inner, paint = 0.9 * half, light.shade((red, green, blue), near)
    pen.polygon(rectangle(x - inner, high + 0.2 * metre, x + inner, low - 0.2 * metre), paint)
    middle = (high + low) / 2
    pen.disc(x - 0.4 * half, middle, 0.28 * half, light.shade((255 - red, 255 - green, 255 - blue), near))
    text: list[Points] = [
        rectangle(x, middle + k * metre, x + 0.7 * half, middle + (k + 0.22) * metre) for k in (-0.5, 0.1)
    ]
    pen.polygons(text, light.shade((240, 240, 236), near))


def _fence(pen: Pen, camera: Camera, light: Light, landmark: Landmark) -> None:
    metre, near = camera.metre(landmark.nearness), landmark.nearness
    x, y = camera.ground(near, landmark.aside)
    wood = light.shade((150, 132, 108), near)
    posts = [rectangle(x + (k - 0.12) * metre, y - 1.2 * metre, x + (k + 0.12) * metre, y) for k in range(-4, 5, 2)]
    pen.polygons(posts, wood)
    for height in (0.5, 1.0):
        pen.polygon(rectangle(x - 4.2 * metre, y - (height + 0.1) * metre, x + 4.2 * metre, y - height * metre), wood)


LANDMARK_DRAWINGS: dict[str, tuple[Callable[[Pen, Camera, Light, Landmark], None], float]] = {
    "tree": (_tree, 3.6),
    "fir": (_fir, 2.6),
    "bush": (_bush, 5.5),
    "house": (_house, 10.5),
    "lamp": (_lamp, 6.0),
    "billboard": (_billboard, 3.0),
    "fence": (_fence, 4.5),
}
"""How each kind of landmark is drawn, and how many metres it may extend to a side of where it stands."""
LANDMARKS = tuple(LANDMARK_DRAWINGS)
