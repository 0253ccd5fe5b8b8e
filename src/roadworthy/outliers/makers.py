"""The makers of outliers: noise, and images of the data or of another set, each changed in one way.

colour_swap  colours exchanged: a blue stop sign
foreign      images of another data set: things that the tested data does not know
mixed        two halves, each of another class: what each half shows is known, the whole does not exist
noise        every value drawn on its own: the easiest outliers
shuffled     the pixels in random order: the colours of the data without their places
swirl        turned the more the nearer to the centre: the colours stay about where they were, the shapes do not
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache, partial

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.random import Streams, random_bytes
from roadworthy.core.roles import OUTLIERS, Dataset, Outliers
from roadworthy.core.types import Images
from roadworthy.data.base import OpenedDataset
from roadworthy.data.subset import Subset, rows_in_rounds
from roadworthy.outliers.base import OutlierSet, Painted, Rows, ids_of, opened, pixels, prefixed
from roadworthy.shifts.base import unit

LOOKED_AT = 64
"""Images that are looked at to see whether the data has any colour."""
STEPS = 2**16
"""Equally likely draws that stand for a normal distribution."""


@registered(OUTLIERS, "colour_swap")
class ColourSwap(Painted):
    """The colour channels in another order; `channels` names those that become red, green and blue.

    >>> from roadworthy.data import open_dataset
    >>> red = np.tile(np.array([200, 30, 20], np.uint8), (1, 2, 2, 1))
    >>> ColourSwap(channels="bgr").make(open_dataset((red, np.array([0]))), seed=0).batch([0]).images[0, 0, 0].tolist()
    [20, 30, 200]
    """

    channels: str = "bgr"

    def __post_init__(self) -> None:
        if not isinstance(self.channels, str) or sorted(self.channels) != sorted("rgb") or self.channels == "rgb":
            raise InputError(
                f"outliers {self.name}: channels must be the letters r, g and b in another order, such as bgr, "
                f"not {self.channels!r}"
            )

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """As many images as the data has, which must not be grey: they would stay what they are."""
        source = opened(data)
        looked_at = np.unique(np.linspace(0, len(source) - 1, LOOKED_AT).astype(np.int64))
        if source.channels == 1 or (np.ptp(pixels(source, looked_at), axis=-1) == 0).all():
            raise InputError(f"the images of {data.name} are grey: {self.name} would not change them, leave it out")
        return super().make(data, seed=seed)

    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """The images (N, H, W, 3) with their channels in the new order."""
        images = pixels(source, rows)
        swapped = np.empty_like(images)
        moves = [channel for new, letter in enumerate(self.channels) for channel in ("rgb".index(letter), new)]
        for image, target in zip(images, swapped, strict=True):
            cv2.mixChannels([image], [target], moves)
        return swapped


@registered(OUTLIERS, "foreign")
class Foreign(Outliers):
    """A random part of another data set, each image at most once, at the size and channels of the tested data.

    One image of every object is drawn, then a second of each, and so on.

    There are as many as the tested data has images, or all there are, which the notes then say. The set bears the name
    of the foreign one.
    """

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """Images of `foreign`, which must be given; whether it holds no class of the tested data is for you to know."""
        if foreign is None:
            raise InputError("foreign outliers need a foreign data set: give one, such as builtin:scenery")
        rows = np.sort(rows_in_rounds(foreign, "foreign", seed)[: len(data)])
        source = Subset(opened(foreign), rows.tolist()).resized(data.size)
        few = f"{foreign.name} holds {len(foreign)} images, the tested data {len(data)}: all of them are taken"
        notes = (*source.notes, *([few] if len(foreign) < len(data) else []))
        paint, groups = partial(_painted, data.channels), prefixed(foreign.name, source.groups)
        return OutlierSet(
            source, self, paint, seed, name=foreign.name, channels=data.channels, groups=groups, notes=notes
        )


def _painted(channels: int, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
    """The images with that many channels: grey by ITU-R BT.601 luma, colour by three equal channels."""
    images = pixels(source, rows)
    if images.shape[3] == channels:
        return images
    converted = np.empty((*images.shape[:3], channels), np.uint8)
    conversion = cv2.COLOR_RGB2GRAY if channels == 1 else cv2.COLOR_GRAY2RGB
    for image, target in zip(images, converted, strict=True):
        cv2.cvtColor(image, conversion, dst=target)
    return converted


@registered(OUTLIERS, "mixed")
class Mixed(Outliers):
    """The left half of an image beside the right half of a random one of another class, cut at column W // 2.

    Each image gives its left half once. The group is that of the left half.

    >>> from roadworthy.data import open_dataset
    >>> pictures = np.stack([np.full((4, 4, 1), 10), np.full((4, 4, 1), 20)]).astype(np.uint8)
    >>> made = Mixed().make(open_dataset((pictures, np.array([0, 1]))), seed=0).batch([0, 1]).images
    >>> made[0, 0, :, 0].tolist(), made[1, 0, :, 0].tolist()
    ([10, 10, 20, 20], [20, 20, 10, 10])
    """

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """As many mixed images as the data has images."""
        if data.size[1] < 2:
            raise InputError(f"mixed outliers need images at least 2 pixels wide; those of {data.name} are {data.size}")
        return OutlierSet(opened(data), self, partial(_joined, partners(data, seed)), seed)


def partners(data: Dataset, seed: int) -> Rows:
    """For every image the row (N,) of one of another class, each equally likely; the data's order plays no part."""
    labels, ids = np.asarray(data.labels), data.ids
    order = np.array(sorted(range(len(ids)), key=lambda row: (labels[row], ids[row])))
    starts, ends = (np.searchsorted(labels[order], labels, side=side) for side in ("left", "right"))
    others = len(ids) - (ends - starts)
    if not others.all():
        raise InputError(
            f"mixed outliers need images of at least two classes; those of {data.name} are all of class "
            f"{data.class_names[labels[0]]!r}"
        )
    drawn = np.array([rng.random() for rng in Streams("partners", seed).each(ids)])
    rank = (drawn * others).astype(np.int64)
    return np.asarray(order[np.where(rank < starts, rank, rank + ends - starts)], dtype=np.int64)


def _joined(partner: Rows, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
    both = pixels(source, np.concatenate([rows, partner[rows]]))
    images, others = both[: len(rows)], both[len(rows) :]
    middle = images.shape[2] // 2
    images[:, :, middle:] = others[:, :, middle:]
    return images


@dataclass(frozen=True, kw_only=True)
class NoiseImages(Painted):
    """Every pixel and channel drawn on its own: only the number, size and channels of the data count.

    No two images have anything in common, so each is its own group.
    """

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """As many noise images as the data has images, of their size and channels."""
        return OutlierSet(opened(data), self, self.paint, seed, groups=prefixed(self.name, data.ids))

    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """Noise (N, H, W, C), from one random stream per image."""
        images = np.empty((len(rows), *source.size, source.channels), np.uint8)
        for image, rng in zip(images, streams.each(ids_of(source, rows)), strict=True):
            image.reshape(-1)[:] = self._values(rng, image.size)
        return images

    @abstractmethod
    def _values(self, rng: np.random.Generator, count: int) -> NDArray[np.uint8]: ...


@registered(OUTLIERS, "uniform_noise")
class UniformNoise(NoiseImages):
    """Every value uniform on 0..255.

    >>> from roadworthy.data import open_dataset
    >>> data = open_dataset((np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])))
    >>> noise = UniformNoise().make(data, seed=0)
    >>> noise.ids, noise.batch([0]).images.shape
    (('uniform_noise/0', 'uniform_noise/1'), (1, 8, 8, 3))
    """

    def _values(self, rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
        return random_bytes(rng, count)


@registered(OUTLIERS, "normal_noise")
class NormalNoise(NoiseImages):
    """Every value round(m + s z), z standard normal, m = `mean`, s = `deviation`; below 0 it is 0, above 255 it is 255.

    z takes the 65,536 equally likely values Phi^-1((k + 0.5) / 65536): within 4.4 deviations of the mean.
    """

    mean: float = parameter(within=(0, 255), default=128.0)
    deviation: float = parameter(within=(0.1, 1000), default=64.0)

    def _values(self, rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
        draws = random_bytes(rng, 2 * count).view("<u2")
        return np.take(_normal_values(float(self.mean), float(self.deviation)), draws, mode="clip")


@lru_cache(maxsize=8)
def _normal_values(mean: float, deviation: float) -> NDArray[np.uint8]:
    """The value (65536,) that each draw stands for."""
    quantiles = ndtri((np.arange(STEPS) + 0.5) / STEPS)
    return np.asarray(np.clip(np.rint(mean + deviation * quantiles), 0, 255), dtype=np.uint8)


@registered(OUTLIERS, "shuffled")
class Shuffled(Painted):
    """The pixels of each image in an order of its own; a pixel keeps its colour.

    >>> from roadworthy.data import open_dataset
    >>> pictures = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    >>> made = Shuffled().make(open_dataset((pictures, np.array([0, 1]))), seed=0).batch([0]).images[0]
    >>> sorted(made.reshape(-1, 3).tolist()) == pictures[0].reshape(-1, 3).tolist()
    True
    """

    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """The images (N, H, W, C) with their pixels in random order."""
        images = pixels(source, rows)
        for image, rng in zip(images, streams.each(ids_of(source, rows)), strict=True):
            order = random_order(rng, image.shape[0] * image.shape[1])
            if image.shape[2] == 1:
                image[:] = image.reshape(-1)[order].reshape(image.shape)
            else:  # A colour that is one word moves at once.
                words = cv2.cvtColor(image, cv2.COLOR_RGB2RGBA).view(np.uint32).reshape(-1)
                moved = words[order].view(np.uint8).reshape(*image.shape[:2], 4)
                cv2.cvtColor(moved, cv2.COLOR_RGBA2RGB, dst=image)
        return images


def random_order(rng: np.random.Generator, count: int) -> NDArray[np.intp]:
    """A permutation of 0..count-1: the indices sorted by a random number of 16 bits each.

    Two places draw the same number with probability 2^-16 and then keep their order, so a pair does so with probability
    1/2 + 2^-17 instead of 1/2.

    >>> sorted(random_order(np.random.Generator(np.random.Philox(0)), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    return np.argsort(random_bytes(rng, 2 * count).view("<u2"), kind="stable")


@registered(OUTLIERS, "swirl")
class Swirl(Painted):
    """A whirl: the pixel at distance r from the centre is turned by a(r) = s 10^(-3 r / R) radians.

    s = `strength` is the turn at the centre in radians; at R = `radius`, in pixels of a 64x64 image, a thousandth of it
    is left. Bilinear; beyond its edge the image is mirrored.
    """

    strength: float = parameter(within=(-100, 100), default=10.0)
    radius: float = parameter(within=(1, 10_000), default=100.0)

    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """The images (N, H, W, C), swirled."""
        images = pixels(source, rows)
        swirled = np.empty_like(images)
        whole, fraction = _swirl_map(float(self.strength), float(self.radius), *source.size)
        for image, target in zip(images, swirled, strict=True):
            cv2.remap(image, whole, fraction, cv2.INTER_LINEAR, dst=target, borderMode=cv2.BORDER_REFLECT)
        return swirled


@lru_cache(maxsize=8)
def _swirl_map(strength: float, radius: float, height: int, width: int) -> tuple[NDArray[np.int16], NDArray[np.uint16]]:
    """Where every pixel comes from, as OpenCV requires it: whole pixels (H, W, 2) and the rest in 1/32 (H, W)."""
    y, x = np.mgrid[:height, :width] - np.array([(height - 1) / 2, (width - 1) / 2]).reshape(2, 1, 1)
    turn = strength * 10 ** (-3 * np.hypot(x, y) / (radius * unit(height, width)))
    from_x = x * np.cos(turn) - y * np.sin(turn) + (width - 1) / 2
    from_y = x * np.sin(turn) + y * np.cos(turn) + (height - 1) / 2
    whole, fraction = cv2.convertMaps(from_x.astype(np.float32), from_y.astype(np.float32), cv2.CV_16SC2)
    return np.asarray(whole, np.int16), np.asarray(fraction, np.uint16)
