"""One picture of a traffic set: an object in its surroundings, cut out of a larger picture, with mask and depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.data.signs.camera import NEW, Floats, Image, Lens, Light, Plane, Seen, Wear, overlay, photograph, relief
from roadworthy.data.signs.camera import rain as falling_rain
from roadworthy.data.signs.crops import REFERENCE, Stance, aimed
from roadworthy.data.signs.lights import SHINING, TRAFFIC_LIGHTS
from roadworthy.data.signs.pictures import Mask, Rng, Size, object_mask, to_pixels, turned
from roadworthy.data.signs.scenes import LANDMARKS, Shape
from roadworthy.data.signs.shapes import FACES
from roadworthy.data.signs.sprites import MARGIN, Colour, Matrix, ellipse, picture, placed, rectangle
from roadworthy.data.signs.surroundings import Surroundings, draw_surroundings
from roadworthy.data.signs.textures import grey
from roadworthy.data.signs.traffic import GROUND, SPANS, USERS
from roadworthy.data.signs.unusual import SUPPORTS, UNUSUAL
from roadworthy.data.signs.weather import (
    FLAKES,
    cloudy_sky,
    on_object,
    snow_caps,
    snowfall,
    traffic_light_of,
    veil,
    wet_lens,
)

DrawnTraffic = tuple[NDArray[np.uint8], Mask, Plane]
"""Pixels (H, W, 3), the mask (H, W) of the object and metres to what each pixel shows (H, W)."""

LARGER_SIDE = (0.4, 0.82)
"""The larger side of an object's box, as a share of the picture's shorter side: from, to."""
_EDGE = 0.02
"""What is left free between an object and the picture's edges."""
_STEEL: tuple[Colour, ...] = ((150, 153, 156), (112, 114, 116), (72, 92, 76))
_SNOW_ON_GROUND = {"none": 0.0, "partly": 0.55, "full": 0.95}


@dataclass(frozen=True)
class Recording:
    """A camera and the region it was driven through.

    focal      focal length in pixels of the whole frame, which decides how coarse a far object is
    view       width of the frame over its focal length: no cut-out is wider
    heights    of the camera over the road in metres, from and to
    landmarks  kinds of what stands beside the roads
    colours    (3, 3) from the scene's colours to those of the camera;  gamma: of its tone curve
    sharpening how much the camera sharpens; negative is softer
    """

    focal: float
    view: float
    heights: tuple[float, float]
    landmarks: tuple[str, ...]
    colours: tuple[tuple[float, float, float], ...] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    gamma: float = 1.0
    sharpening: float = 0.0


BDD_LIKE = Recording(1800.0, 1.07, (1.2, 1.5), LANDMARKS)
"""The camera behind the windscreen with which `traffic` is recorded."""
KITTI_LIKE = Recording(
    720.0,
    1.72,
    (1.6, 1.7),
    ("house", "house", "bush", "tree", "fence", "lamp", "house"),
    ((0.84, 0.1, 0.0), (0.05, 0.93, 0.04), (0.04, 0.1, 0.96)),
    gamma=1.3,
    sharpening=0.7,
)
"""A camera on the roof with a shorter focal length, in a residential area: darker, cooler, sharpened."""
WINTER = Recording(
    1250.0,
    1.02,
    (1.45, 1.6),
    ("tree", "fir", "fir", "house", "lamp"),
    ((0.95, 0.02, 0), (0.02, 0.96, 0), (0, 0.02, 1.02)),
)
"""A camera on a winter drive."""


@dataclass(frozen=True)
class _RoadObject:
    """One object: its drawing, how it stands, and its size in metres.

    half     metres from the drawing's middle to 1;  lift: metres from the ground to its middle
    aside    metres right of the road's middle;  mirror: -1 where it faces the other way;  stretch: of its width
    returns  how much of the light of lamps it returns;  yaw: how far it may be turned, in degrees
    """

    drawing: str
    half: float
    lift: float
    aside: float
    mirror: int
    stretch: float
    wear: Wear
    steel: Colour
    returns: float
    yaw: float

    @staticmethod
    def draw(rng: Rng, kind: str) -> _RoadObject:
        """A random object of that kind."""
        side, mirror, stretch, lateral, scale, steel = rng.random(6)
        right = 1 if side < 0.7 else -1
        metal = _STEEL[int(steel * len(_STEEL))]
        upright = 1 if kind in ("traffic sign", "traffic light") or mirror < 0.5 else -1
        common = {"mirror": upright, "stretch": 0.94 + 0.12 * stretch, "steel": metal}
        if kind == "traffic sign":
            faces = [face for names in FACES.values() for face in names]
            drawing, wear = faces[int(rng.integers(len(faces)))], Wear.draw(rng)
            half, lift, aside = 0.3 + 0.12 * scale, 1.9 + 0.8 * lateral, right * (4.3 + 1.2 * lateral)
            return _RoadObject(drawing, half, lift, aside, wear=wear, returns=1.0, yaw=14, **{**common, "stretch": 1.0})
        if kind == "traffic light":
            drawing = TRAFFIC_LIGHTS[int(rng.integers(len(TRAFFIC_LIGHTS)))]
            overhead = lateral < 0.4
            lift, aside = (5.0 + scale, 3 * side - 1) if overhead else (2.7 + 0.7 * scale, right * (4.1 + lateral))
            return _RoadObject(drawing, 0.55, lift, aside, wear=NEW, returns=0.3, yaw=10, **common)
        drawings = USERS[kind] if kind in USERS else UNUSUAL[kind]
        drawing = drawings[int(rng.integers(len(drawings)))]
        half = SPANS[drawing] / 2 * (0.95 + 0.1 * scale)
        largest_yaw = 16 if kind in ("car", "truck", "bus", "trailer", "crane truck", "concrete mixer", "train") else 8
        aside = _aside(kind, right, lateral)
        return _RoadObject(drawing, half, GROUND * half, aside, wear=NEW, returns=0.45, yaw=largest_yaw, **common)

    def shape(self, yaw: float) -> Matrix:
        """From the coordinates of the drawing to those of the turned object, in units of `half`."""
        return turned(yaw, 0, 0) @ np.diag([self.mirror * self.stretch, 1.0, 1.0])

    def largest(self) -> float:
        """The larger of its width and height, in metres."""
        left, top, right, bottom = _extent(self.drawing)
        return self.half * max(right - left, bottom - top)

    def posts(self, x: float, y: float, metre: float, light: Light, nearness: float) -> list[Shape]:
        """The post of a sign or of a traffic light, or the mast that a light hangs on, where its middle is (x, y)."""
        colour, is_light = light.shade(self.steel, nearness), self.drawing in TRAFFIC_LIGHTS
        if is_light and self.lift > 4.5:
            return [(rectangle(x - 9 * metre, y - 0.75 * metre, x + 1.2 * metre, y - 0.6 * metre), colour)]
        half = (0.08 if is_light else 0.045) * metre
        return [(rectangle(x - half, y, x + half, y + self.lift * metre), colour)] if self.is_raised else []

    def shadows(self, x: float, y: float, metre: float, light: Light, nearness: float) -> list[Shape]:
        """The shadow under what stands on the ground, where its middle is (x, y)."""
        if self.is_raised:
            return []
        half, (left, _, right, _) = self.half * metre, _extent(self.drawing)
        middle = x + self.mirror * self.stretch * half * (left + right) / 2
        wide = 0.47 * self.stretch * half * (right - left)
        return [(ellipse(middle, y + GROUND * half, wide, 0.05 * half), light.shade((34, 34, 36), nearness))]

    @property
    def is_raised(self) -> bool:
        """It hangs on a post or a mast and does not touch the ground."""
        return self.lift > self.half


def _aside(kind: str, side: int, lateral: float) -> float:
    """Metres right of the road's middle where an object of that kind may be; `lateral` is from 0 to 1."""
    if kind in ("pedestrian", "animal"):
        return 11 * lateral - 5.5
    if kind in ("seated person", "bin"):
        return side * (4.0 + 1.6 * lateral)
    if kind in ("cyclist", "motorcyclist"):
        return side * (1.4 + 1.6 * lateral)
    if kind in ("bending person", "wheelchair user", "cone"):
        return side * (1.0 + 4.0 * lateral)
    return side * (1.2 + 1.4 * lateral)


def draw_traffic(
    kind: str, recording: Recording, conditions: Mapping[str, Any], instance: Rng, view: Rng, size: Size
) -> DrawnTraffic:
    """A picture of one object of that kind.

    `instance` decides the object and its place, `view` the cut-out: the larger side of the object's box takes a share
    of LARGER_SIDE of the picture, and the box lies anywhere within it.
    """
    road_object = _RoadObject.draw(instance, kind)
    surroundings = Surroundings.draw(
        instance, conditions["road_surface"], conditions["road_layout"], recording.landmarks
    )
    weather, distance = conditions["weather"], float(conditions["distance"])
    light = traffic_light_of(conditions["time_of_day"], weather)
    shape = road_object.shape(
        float(np.clip(view.normal(0, road_object.yaw), -2 * road_object.yaw, 2 * road_object.yaw))
    )
    smallest = np.clip(road_object.largest() / (distance * recording.view), *LARGER_SIDE)
    low, high = recording.heights
    share, across, down, height, gain = view.uniform((smallest, -1, -1, low, 0.85), (LARGER_SIDE[1], 1, 1, high, 1.1))
    x, y, half = _position(road_object, shape, share, (across, down), size)
    unit = road_object.half / (half * distance)
    foot = y + road_object.lift / (unit * distance)
    camera = aimed(Stance(distance, road_object.aside), (x, foot), unit, height, surroundings.curvature)
    snow = _SNOW_ON_GROUND[conditions.get("snow_cover", "partly" if weather == "snow" else "none")]
    standing = (x, y, camera.zoom / distance, light, REFERENCE / distance)
    image, depth = draw_surroundings(
        surroundings,
        camera,
        light,
        size,
        posts=road_object.posts(*standing),
        shadows=road_object.shadows(*standing),
        distance=distance,
        snow=snow,
    )
    if weather == "partly cloudy":
        cloudy_sky(image, depth, light, view)
    matrix = to_pixels(x, y, half, size) @ shape
    glow = on_object(light, distance, gain, road_object.returns)
    mask = _put(image, depth, road_object, matrix, light, glow, distance, view)
    if snow > 0.5 and "snow_cover" in conditions:
        rows = np.flatnonzero(mask.any(axis=1))
        snow_caps(image, mask, max(1, round(0.06 * len(rows))), light)
    image = _through_air_and_lens(image, light, conditions, view)
    lens = Lens.draw(view, "near", light.time_of_day)
    lens = replace(lens, shrink=min(1.0, max(0.3, unit * recording.focal / min(size))))
    return _recorded(photograph(_developed(image, recording), view, lens, light.time_of_day), recording), mask, depth


def _position(
    road_object: _RoadObject, shape: Matrix, share: float, position: tuple[float, float], size: Size
) -> tuple[float, float, float]:
    """Where the drawing's middle is (x, y), and half its size, so that the object's box is where it should be.

    `position` is from -1 to 1 each: from one edge of the picture to the other.
    """
    corners = _hull(road_object.drawing) @ shape[:2, :2].T
    corners /= (1 + _hull(road_object.drawing) @ shape[2, :2])[:, None]
    low, high = corners.min(axis=0), corners.max(axis=0)
    half = share / float((high - low).max())
    room = np.array((size[1], size[0])) / min(size) / 2 - _EDGE - half * (high - low) / 2
    x, y = np.array(position) * np.maximum(room, 0) - half * (high + low) / 2
    return float(x), float(y), half


@cache
def _hull(drawing: str) -> Floats:
    """The corners (M, 2) of the hull of a drawing, in its coordinates."""
    side = 128
    opaque = (picture(drawing, side)[..., 3] >= 128).astype(np.uint8)
    rows, columns = np.nonzero(opaque)
    pixels = np.stack([columns, rows], axis=1).astype(np.int32)
    hull = cv2.convexHull(pixels)[:, 0]
    return np.asarray((hull + 0.5) * (2 * MARGIN / side) - MARGIN, dtype=np.float64)


@cache
def _extent(drawing: str) -> tuple[float, float, float, float]:
    """The first and last x and y of a drawing, in its coordinates: left, top, right, bottom."""
    (left, top), (right, bottom) = _hull(drawing).min(axis=0).tolist(), _hull(drawing).max(axis=0).tolist()
    return left, top, right, bottom


def _put(
    image: Image,
    depth: Plane,
    road_object: _RoadObject,
    matrix: Matrix,
    light: Light,
    glow: Floats,
    distance: float,
    view: Rng,
) -> Mask:
    """Lay the object over the picture and its distance over the depth, in place; its mask (H, W)."""
    size = (image.shape[0], image.shape[1])
    uneven, hazy = relief(view, size, light), veil(light.weather, distance)
    if road_object.drawing in SUPPORTS:
        support = placed(SUPPORTS[road_object.drawing], matrix, size)
        overlay(image, Seen(support, matrix, NEW, glow, uneven), light, hazy)
        depth[support[..., 3] >= 128] = distance
    body = placed(road_object.drawing, matrix, size)
    overlay(image, Seen(body, matrix, road_object.wear, glow, uneven), light, hazy)
    if road_object.drawing in SHINING and (light.lamps_are_lit or road_object.drawing in TRAFFIC_LIGHTS):
        lamps = placed(SHINING[road_object.drawing], matrix, size).astype(np.float32)
        opacity = grey(np.ascontiguousarray(lamps[..., 3])) * np.float32((1 - hazy) / 255)
        image *= 1 - opacity
        image += lamps[..., :3] * np.float32(1 - hazy)
    mask = object_mask(body[..., 3])
    depth[mask] = distance
    return mask


def _through_air_and_lens(image: Image, light: Light, conditions: Mapping[str, Any], view: Rng) -> Image:
    """Rain or snow between camera and scene, and drops on the lens."""
    if light.weather in ("rain", "heavy rain"):
        for _ in range(1 if light.weather == "rain" else 2):
            falling_rain(image, view)
    if light.weather in FLAKES:
        snowfall(image, light.weather, light, view)
    return wet_lens(image, view, int(view.integers(3, 8))) if conditions.get("lens") == "wet" else image


def _developed(image: Image, recording: Recording) -> Image:
    """The colours and the tone curve of the camera."""
    if recording.gamma == 1 and recording.colours == BDD_LIKE.colours:
        return image
    shown = cv2.transform(image, np.array(recording.colours, dtype=np.float32))
    curved = 255 * (np.clip(shown, 0, 255) / np.float32(255)) ** np.float32(recording.gamma)
    return np.asarray(curved, dtype=np.float32)


def _recorded(pixels: NDArray[np.uint8], recording: Recording) -> NDArray[np.uint8]:
    """The camera's sharpening: pixels + amount (pixels - blurred pixels)."""
    if not recording.sharpening:
        return pixels
    blurred = cv2.GaussianBlur(pixels, (0, 0), 1.0)
    return np.asarray(cv2.addWeighted(pixels, 1 + recording.sharpening, blurred, -recording.sharpening, 0), np.uint8)
