"""AutoAugment's policy: its table, its operations against Pillow, its random streams."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from roadworthy.core.random import Streams
from roadworthy.models.perception import augment as augment_module
from roadworthy.models.perception.augment import GEOMETRIC, OPERATIONS, POLICY, apply, augment

MAGNITUDES = range(10)


def picture(channels: int = 3, side: int = 24) -> np.ndarray:
    rng = np.random.default_rng(4)
    return rng.normal(120, 45, (side, side, channels)).clip(0, 255).astype(np.uint8)


def by_pillow(operation: str, image: Image.Image, magnitude: int) -> Image.Image:
    factor = 0.1 + 1.8 * magnitude / 9
    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "colour": ImageEnhance.Color,
        "sharpness": ImageEnhance.Sharpness,
    }
    if operation in enhancers:
        return enhancers[operation](image).enhance(factor)
    simple = {"invert": ImageOps.invert, "equalize": ImageOps.equalize, "auto_contrast": ImageOps.autocontrast}
    if operation in simple:
        return simple[operation](image)
    if operation == "solarize":
        return ImageOps.solarize(image, 256 * (1 - magnitude / 9))
    return ImageOps.posterize(image, 8 - round(4 * magnitude / 9))


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - GEOMETRIC))
def test_operations_of_colour_are_those_of_pillow(operation: str) -> None:
    image = picture()
    for magnitude in MAGNITUDES:
        expected = np.asarray(by_pillow(operation, Image.fromarray(image), magnitude)).astype(int)
        rounding = {"colour": 2, "sharpness": 1, "contrast": 1, "brightness": 1, "auto_contrast": 1}.get(operation, 0)
        assert np.abs(apply(operation, image, magnitude) - expected).max() <= rounding


def test_geometric_operations_move_the_image_as_stated() -> None:
    image = picture(side=33)
    moved = apply("translate_x", image, 9)
    assert (moved[:, 15:] == image[:, :-15]).all()
    assert (moved[:, :15] == 128).all()
    assert (apply("translate_y", image, 9, -1)[:-15] == image[15:]).all()
    turned = apply("rotate", apply("rotate", image, 9), 9, -1).astype(int)
    assert np.abs(turned - image)[12:21, 12:21].mean() < np.abs(apply("rotate", image, 9).astype(int) - image).mean()
    rows, columns = np.mgrid[:33, :33]
    ramp = np.repeat((columns * 5)[..., None], 3, axis=2).astype(np.uint8)
    sheared = apply("shear_y", np.repeat((rows * 5)[..., None], 3, axis=2).astype(np.uint8), 9).astype(int)
    assert np.allclose(sheared[16, 6:27, 0], (16 - 0.3 * (np.arange(6, 27) - 16)) * 5, atol=1)
    assert (apply("shear_y", ramp, 9)[16, :] == ramp[16, :]).all()


def test_flat_and_grey_images_pass_every_operation() -> None:
    for operation in OPERATIONS:
        for image in (np.full((5, 7, 3), 90, np.uint8), picture(1), np.zeros((2, 2, 3), np.uint8)):
            changed = apply(operation, image, 9)
            assert changed.shape == image.shape
            assert changed.dtype == np.uint8
    for operation in ("equalize", "auto_contrast"):
        assert (apply(operation, np.full((5, 7, 3), 90, np.uint8), 5) == 90).all()


def test_policy_has_the_published_size_and_operations() -> None:
    counts = Counter(operation for pair in POLICY for operation, _, _ in pair)
    assert len(POLICY) == 25
    assert counts == {
        **{"equalize": 9, "auto_contrast": 7, "colour": 5, "brightness": 4, "solarize": 4, "sharpness": 5},
        **{"translate_y": 5, "invert": 3, "contrast": 2, "shear_y": 2, "translate_x": 2, "rotate": 1, "posterize": 1},
    }
    assert all(0 <= probability <= 1 and 0 <= m <= 9 for pair in POLICY for _, probability, m in pair)


def test_an_image_meets_the_same_operations_in_any_batch_and_others_in_another_epoch() -> None:
    images, ids = np.stack([picture()] * 40), [f"i{row}" for row in range(40)]
    whole = augment(images, ids, Streams("augmentation", 0, 1))
    assert (augment(images[7:9], ids[7:9], Streams("augmentation", 0, 1)) == whole[7:9]).all()
    assert (augment(images, ids, Streams("augmentation", 0, 2)) != whole).any()
    assert (images == picture()).all()
    assert 20 < sum((changed != picture()).any() for changed in whole) <= 40


def test_without_geometry_only_operations_of_colour_are_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    met: dict[bool, set[str]] = {True: set(), False: set()}

    def noted(operation: str, image: np.ndarray, magnitude: int, sign: int) -> np.ndarray:
        met[geometric].add(operation)
        return image

    monkeypatch.setattr(augment_module, "apply", noted)
    images, ids = np.zeros((900, 1, 1, 3), np.uint8), [str(row) for row in range(900)]
    for geometric in (True, False):
        augment(images, ids, Streams(0), geometric=geometric)
    assert met == {True: set(OPERATIONS), False: set(OPERATIONS) - GEOMETRIC}
