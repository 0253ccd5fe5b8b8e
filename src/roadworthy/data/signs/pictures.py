"""The three kinds of picture: a tight crop of a sign, a road scene with one object, and scenery without any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.data.signs.camera import (
    NEW,
    Image,
    Lens,
    Light,
    Seen,
    Wear,
    light_of,
    overlay,
    photograph,
    rain,
    relief,
)
from roadworthy.data.signs.scenes import LANDMARKS, Camera, Roadside, Shape, draw_roadside
from roadworthy.data.signs.shapes import FACES
from roadworthy.data.signs.sprites import Colour, Matrix, ellipse, placed, rectangle
from roadworthy.data.signs.traffic import GROUND, SPANS, USERS

Size = tuple[int, int]
Rng = np.random.Generator
Mask = NDArray[np.bool_]
Picture = tuple[NDArray[np.uint8], Mask]
"""Pixels (H, W, 3) and the mask (H, W) of the object."""

SIGN_CLASSES = tuple(FACES)
SCENE_CLASSES = ("traffic sign", *USERS)

_CROP_RADIUS = {"near": (0.39, 0.45), "middle": (0.35, 0.41), "far": (0.30, 0.36)}
_SCENE_RADIUS = {"near": (0.13, 0.17), "middle": (0.095, 0.12), "far": (0.065, 0.085)}
_SCENE_SHARE = {"near": (0.85, 1.0), "middle": (0.55, 0.7), "far": (0.34, 0.45)}
_STEEL: tuple[Colour, ...] = ((150, 153, 156), (112, 114, 116), (72, 92, 76))


@dataclass(frozen=True)
class Conditions:
    """The operating conditions of one picture."""

    weather: str
    time_of_day: str
    road_surface: str
    road_layout: str
    distance: str

    @property
    def light(self) -> Light:
        """The light they make."""
        return light_of(self.time_of_day, self.weather)


def sign_crop(kind: str, conditions: Conditions, instance: Rng, view: Rng, size: Size) -> Picture:
    """A sign that fills most of the picture. `instance` decides the sign and its place, `view` how it is seen."""
    sign = _Sign.draw(instance, kind)
    roadside = Roadside.draw(instance, conditions.road_surface, conditions.road_layout, LANDMARKS, count=5)
    radius = view.uniform(*_CROP_RADIUS[conditions.distance])
    room = 0.6 * max(0.0, 0.49 - 1.06 * radius)
    x, y = view.uniform(-room, room, 2)
    stand = sign.stand(conditions.light, x, y, radius)
    image = draw_roadside(roadside, _telephoto(view, size), conditions.light, size, stand)
    mask = sign.put(image, view, conditions, x, y, radius)
    return _finish(image, view, conditions, conditions.distance), mask


def road_scene(kind: str, conditions: Conditions, instance: Rng, view: Rng, size: Size) -> Picture:
    """A road with exactly one object on it or beside it: a sign or a road user."""
    sign = _Sign.draw(instance, SIGN_CLASSES[int(instance.integers(len(SIGN_CLASSES)))])
    drawing = None if kind == "traffic sign" else USERS[kind][int(instance.integers(len(USERS[kind])))]
    roadside = Roadside.draw(instance, conditions.road_surface, conditions.road_layout, LANDMARKS, count=8)
    camera = _dashcam(view, size)
    if drawing is not None:
        share = view.uniform(*_SCENE_SHARE[conditions.distance])
        shown, mask = _with_user(drawing, share, roadside, camera, conditions, view, size)
        return _finish(shown, view, conditions, "near"), mask
    radius = view.uniform(*_SCENE_RADIUS[conditions.distance])
    side = 1 if view.random() < 0.75 else -1
    x, y = side * view.uniform(0.16, 0.46 - radius), camera.horizon - view.uniform(0.6, 1.6) * radius
    stand = sign.stand(conditions.light, x, y, radius, length=4.6 * radius)
    image = draw_roadside(roadside, camera, conditions.light, size, stand)
    mask = sign.put(image, view, conditions, x, y, radius)
    return _finish(image, view, conditions, "near"), mask


def scenery(kind: str, conditions: Conditions, instance: Rng, view: Rng, size: Size) -> Picture:
    """A road, a part of it or one landmark beside it, without any sign; some with a road user or a bare post."""
    roadside = Roadside.draw(instance, conditions.road_surface, conditions.road_layout, LANDMARKS, count=8)
    users = [drawing for drawings in USERS.values() for drawing in drawings]
    drawing = users[int(instance.integers(len(users)))]
    post = _STEEL[int(instance.integers(len(_STEEL)))]
    share = view.uniform(0.3, 1.0)
    chance, x = view.random(), view.uniform(-0.4, 0.4)
    if conditions.distance == "near":
        camera = _close_up(view, size, roadside)
        image = draw_roadside(roadside, camera, conditions.light, size, ())
        return _finish(image, view, conditions, "near"), np.zeros(size, dtype=np.bool_)
    camera = _dashcam(view, size) if conditions.distance == "far" else _telephoto(view, size)
    if chance < 0.5:
        image, _ = _with_user(drawing, share, roadside, camera, conditions, view, size)
    else:
        half = 0.02 if conditions.distance == "middle" else 0.006
        bare = rectangle(x - half, camera.horizon - 0.35, x + half, 2.0 if half > 0.01 else camera.horizon + 0.12)
        stand: list[Shape] = [(bare, conditions.light.shade(post, 0.8))] if chance < 0.75 else []
        image = draw_roadside(roadside, camera, conditions.light, size, stand)
    return _finish(image, view, conditions, "near"), np.zeros(size, dtype=np.bool_)


@dataclass(frozen=True)
class _Sign:
    """One sign as it stands somewhere: its face, its age, how it is mounted."""

    face: str
    wear: Wear
    tilt: float
    steel: Colour
    post: float
    plate: bool

    @staticmethod
    def draw(rng: Rng, kind: str) -> _Sign:
        variants = FACES[kind]
        face = variants[int(rng.integers(len(variants)))]
        wear = Wear.draw(rng)
        steel = _STEEL[int(rng.integers(len(_STEEL)))]
        return _Sign(face, wear, rng.normal(0, 2.5), steel, rng.uniform(0.05, 0.09), rng.random() < 0.2)

    def stand(self, light: Light, x: float, y: float, radius: float, length: float = 4.0) -> list[Shape]:
        """The post, and the plate under some signs, to be drawn before the face."""
        half, near = self.post * radius, 0.8
        shapes: list[Shape] = [(rectangle(x - half, y, x + half, y + length), light.shade(self.steel, near))]
        if self.plate:
            low, high = y + 1.55 * radius, y + 1.08 * radius
            shapes.append((rectangle(x - 0.8 * radius, high, x + 0.8 * radius, low), light.shade((30, 30, 32), near)))
            inner = rectangle(x - 0.76 * radius, high + 0.04 * radius, x + 0.76 * radius, low - 0.04 * radius)
            shapes.append((inner, light.shade((222, 222, 218), near)))
        return shapes

    def put(self, image: Image, view: Rng, conditions: Conditions, x: float, y: float, radius: float) -> Mask:
        """Lay the face over the picture, in place, as seen from the view; its mask (H, W)."""
        size = (image.shape[0], image.shape[1])
        yaw, pitch = np.clip(view.normal(0, 13), -35, 35), view.uniform(-8, 8)
        matrix = to_pixels(x, y, radius, size) @ turned(yaw, pitch, self.tilt + view.normal(0, 2))
        face = placed(self.face, matrix, size)
        glow = conditions.light.on_sign(conditions.distance, view.uniform(0.8, 1.08))
        uneven = relief(view, size, conditions.light)
        veil = conditions.light.veil(conditions.distance)
        overlay(image, Seen(face, matrix, self.wear, glow, uneven), conditions.light, veil)
        return object_mask(face[..., 3])


def _with_user(
    drawing: str, share: float, roadside: Roadside, camera: Camera, conditions: Conditions, view: Rng, size: Size
) -> tuple[Image, Mask]:
    """The roadside with a road user that has that share of the largest size that fits, and its mask."""
    light, span = conditions.light, SPANS[drawing]
    side = view.uniform(-1, 1)
    half = share * min(0.43, 0.45 * camera.metre(0.95) * span)
    nearness = half / (span / 2) / camera.metre(1.0)
    reach = size[1] / min(size) / 2 - 1.04 * half
    aside = 4.6 * np.sign(side) if drawing.startswith("pedestrian") else 2.2 * side
    ahead, ground = roadside.along(camera, np.array([nearness]), np.array([aside]))[0]
    x, ground = float(np.clip(ahead, -reach, reach)), float(min(ground, camera.bottom - 0.02))
    shadow = (ellipse(x, ground, 0.95 * half, 0.07 * half), light.shade((34, 34, 36), nearness))
    image = draw_roadside(roadside, camera, light, size, [shadow])
    matrix = to_pixels(x, ground - GROUND * half, half, size)
    body = placed(drawing, matrix, size)
    glow = light.on_body(conditions.distance, view.uniform(0.85, 1.1))
    overlay(image, Seen(body, matrix, NEW, glow, relief(view, size, light)), light, light.veil(conditions.distance))
    return image, object_mask(body[..., 3])


def object_mask(opacity: NDArray[np.uint8]) -> Mask:
    """The pixels an object covers by half or more; where it is too small for that, those it covers most."""
    return np.asarray(opacity >= np.clip(opacity.max(), 1, 128))


def _telephoto(view: Rng, size: Size) -> Camera:
    """A narrow view past a sign: the road is a strip below."""
    horizon, side = view.uniform(0.1, 0.3), 1 if view.random() < 0.75 else -1
    foot = -side * view.uniform(0.1, 0.5)
    return Camera(horizon, foot * view.uniform(0.2, 0.8), foot, view.uniform(0.55, 0.95), _bottom(size), zoom=6)


def _dashcam(view: Rng, size: Size) -> Camera:
    """The view through a windscreen."""
    horizon, vanish = view.uniform(-0.12, 0.03), view.uniform(-0.12, 0.12)
    return Camera(horizon, vanish, view.uniform(-0.25, 0.1), view.uniform(0.85, 1.15), _bottom(size), zoom=1.3)


def _close_up(view: Rng, size: Size, roadside: Roadside) -> Camera:
    """A view that is filled by the nearest landmark."""
    landmark = roadside.landmarks[-1]
    half_road = view.uniform(1.2, 2.6)
    metre = half_road * landmark.nearness / 3.5
    foot = -landmark.aside * metre / landmark.nearness + view.uniform(-0.25, 0.25)
    return Camera(view.uniform(0.0, 0.3), 0.0, foot, half_road, _bottom(size), zoom=4)


def _bottom(size: Size) -> float:
    return size[0] / min(size) / 2


def _finish(image: Image, view: Rng, conditions: Conditions, cropped: str) -> NDArray[np.uint8]:
    """Rain, the lens and the sensor; `cropped` is the distance from which the picture was cropped out of a larger."""
    if conditions.weather == "rain":
        rain(image, view)
    lens = Lens.draw(view, cropped, conditions.time_of_day)
    return photograph(image, view, lens, conditions.time_of_day)


def to_pixels(x: float, y: float, radius: float, size: Size) -> Matrix:
    """From the coordinates of a drawing to pixels, its centre at (x, y) in shorter sides from the picture's centre."""
    side = min(size)
    right, down = side * x + size[1] / 2 - 0.5, side * y + size[0] / 2 - 0.5
    return np.array([[side * radius, 0, right], [0, side * radius, down], [0, 0, 1]])


def turned(yaw: float, pitch: float, roll: float) -> Matrix:
    """A flat thing turned by these angles in degrees, seen from six times its radius."""
    (cos_y, cos_p, cos_r), (sin_y, sin_p, sin_r) = (f(np.deg2rad([yaw, pitch, roll])) for f in (np.cos, np.sin))
    about_y = np.array([[cos_y, 0, sin_y], [0, 1, 0], [-sin_y, 0, cos_y]])
    about_x = np.array([[1, 0, 0], [0, cos_p, -sin_p], [0, sin_p, cos_p]])
    about_z = np.array([[cos_r, -sin_r, 0], [sin_r, cos_r, 0], [0, 0, 1]])
    turned = about_z @ about_y @ about_x
    return np.array([[*turned[0, :2], 0], [*turned[1, :2], 0], [*(turned[2, :2] / 6), 1]])
