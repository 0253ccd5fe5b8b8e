from __future__ import annotations

import io
import json
import multiprocessing
import os
import re
import shutil
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFile, ImageOps

from roadworthy.api import evaluate, no_progress, prepare
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.core.validation import read_classes
from roadworthy.data import DATA, BuiltinDataset, Opening, Subset, files, open_dataset, split_by_group
from roadworthy.data.images import decode, decode_mask, decode_noting, image_size, resize, resize_boxes, resize_mask
from roadworthy.data.parallel import in_threads
from roadworthy.data.pixels import PictureRows
from roadworthy.data.table import Table, condition, index_labels, natural_key
from roadworthy.models import CallableModel
from roadworthy.models.check import check_model
from roadworthy.study import parse_study
from tiny import study

RGB = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)


def encoded(image: Image.Image | np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(buffer, kind, **options)
    return buffer.getvalue()


def encoded_by_opencv(pixels: np.ndarray, suffix: str) -> bytes:
    return cv2.imencode(suffix, pixels[..., ::-1] if pixels.shape[-1] == 3 else pixels[..., [2, 1, 0, 3]])[1].tobytes()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, depth: int = 8, colour: int = 2, row: bytes = b"", key: bytes = b"") -> bytes:
    """A PNG of the same row of stored values, with a transparent colour where a key is given."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    transparent = chunk(b"tRNS", key) if key else b""
    pixels = zlib.compress((b"\0" + row) * height if row else b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [chunk(b"IHDR", header), transparent, chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    )


def save(path: Path, image: Image.Image | np.ndarray | bytes = RGB) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(image if isinstance(image, bytes) else encoded(image))
    return path


def picture(seed: int, size: tuple[int, int] = (6, 9)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Classes 2, 10 and stop with three images each."""
    for place, name in enumerate(["10", "2", "stop"]):
        for number in range(3):
            save(tmp_path / "signs" / name / f"{number}.png", picture(10 * place + number))
    return tmp_path / "signs"


# ---------------------------------------------------------------------------------------------------------- pictures


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_as_pillow_turns_it(kind: str, orientation: int) -> None:
    data = encoded(RGB, kind, exif=exif(orientation))
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    assert np.array_equal(decode(data), expected)
    assert image_size(data) == expected.shape[:2] == ((9, 6) if orientation > 4 else (6, 9))


def test_orientation_6_shows_the_left_edge_on_top() -> None:
    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[:, :16] = 255
    shown = decode(encoded(pixels, "JPEG", quality=95, exif=exif(6)))
    assert shown.shape == (32, 16, 3)
    assert shown[:12].min() > 200
    assert shown[20:].max() < 50


def test_orientation_behind_the_pixels_of_a_png() -> None:
    plain, tags = encoded(RGB), exif(6).tobytes().removeprefix(b"Exif\0\0")
    late = plain[:-12] + chunk(b"eXIf", tags) + plain[-12:]
    assert decode(late).shape[:2] == image_size(late) == (9, 6)


def test_an_unknown_orientation_is_upright() -> None:
    assert decode(encoded(RGB, "JPEG", exif=exif(0))).shape == (6, 9, 3)


GREY = RGB[..., 0]
LA = Image.merge("LA", [Image.fromarray(GREY), Image.new("L", (9, 6), 51)])
RGBA = Image.merge("RGBA", [*Image.fromarray(RGB).split(), Image.new("L", (9, 6), 51)])


def over_white(colour: np.ndarray) -> np.ndarray:
    return np.floor(colour * 0.2 + 255 * 0.8 + 0.5).astype(np.uint8)


def three(grey: np.ndarray) -> np.ndarray:
    return np.repeat(grey[..., None], 3, axis=2)


def keyed_palette() -> bytes:
    image = Image.fromarray(np.array([[0, 1]], dtype=np.uint8)).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    return encoded(image, transparency=0)


MODES = {
    "rgb": (encoded(RGB), RGB),
    "bmp": (encoded(RGB, "BMP"), RGB),
    "ppm": (encoded(RGB, "PPM"), RGB),
    "tiff": (encoded(RGB, "TIFF"), RGB),
    "webp": (encoded(RGB, "WEBP", lossless=True), RGB),
    "grey": (encoded(GREY), three(GREY)),
    "grey jpeg": (encoded(GREY, "JPEG"), three(np.asarray(Image.open(io.BytesIO(encoded(GREY, "JPEG")))))),
    "1 bit": (encoded(Image.fromarray(GREY > 127)), three(np.where(GREY > 127, 255, 0).astype(np.uint8))),
    "grey and alpha": (encoded(LA), three(over_white(GREY))),
    "rgba": (encoded(RGBA), over_white(RGB)),
    "palette": (encoded(Image.fromarray(GREY).convert("P")), three(GREY)),
    "palette with a transparent colour": (keyed_palette(), np.array([[[255] * 3, [40, 50, 60]]], dtype=np.uint8)),
    "2 bit": (
        png(4, 1, depth=2, colour=0, row=bytes([0b00011011])),
        three(np.array([[0, 85, 170, 255]], dtype=np.uint8)),
    ),
    "grey with a key": (png(2, 1, colour=0, row=b"\5\x09", key=b"\0\5"), three(np.array([[255, 9]], dtype=np.uint8))),
    "rgb with a key": (
        png(2, 1, row=b"\1\2\3\4\5\6", key=b"\0\1\0\2\0\3"),
        np.array([[[255] * 3, [4, 5, 6]]], dtype=np.uint8),
    ),
    "16-bit grey with a key": (
        png(2, 1, depth=16, colour=0, row=struct.pack(">2H", 5, 40000), key=struct.pack(">H", 5)),
        three(np.array([[255, 156]], dtype=np.uint8)),
    ),
    "16-bit rgb with a key": (
        png(2, 1, depth=16, row=struct.pack(">6H", 1, 2, 3, 60000, 50000, 257), key=struct.pack(">3H", 1, 2, 3)),
        np.array([[[255] * 3, [233, 195, 1]]], dtype=np.uint8),
    ),
    "16-bit grey and alpha": (
        png(2, 1, depth=16, colour=4, row=struct.pack(">4H", 0, 65535, 30000, 0)),
        three(np.array([[0, 255]], dtype=np.uint8)),
    ),
    "gif of one frame": (encoded(Image.fromarray(GREY), "GIF"), three(GREY)),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes_become_rgb(mode: str) -> None:
    data, expected = MODES[mode]
    shown = decode(data)
    assert np.array_equal(shown, expected)
    assert image_size(data) == expected.shape[:2]
    assert shown.flags.writeable


def test_cmyk_jpeg_is_nearly_its_rgb() -> None:
    colours = np.zeros((32, 48, 3), dtype=np.uint8)
    colours[:, :16], colours[:, 16:32] = (220, 30, 40), (20, 60, 200)
    shown = decode(encoded(Image.fromarray(colours).convert("CMYK"), "JPEG", quality=98))
    assert np.abs(shown.astype(int) - colours)[4:-4, [4, 10, 22, 28, 40]].max() <= 6


DEEP = np.array([0, 1, 128, 129, 257, 385, 386, 32767, 32768, 65406, 65407, 65535], dtype=np.uint16).reshape(1, 4, 3)


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".ppm"])
def test_16_bit_colour_is_rounded_by_257(suffix: str) -> None:
    expected = np.rint(DEEP / 257).astype(np.uint8)
    assert np.array_equal(decode(encoded_by_opencv(DEEP, suffix)), expected)


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".pgm"])
def test_16_bit_grey_is_rounded_by_257(suffix: str) -> None:
    grey = DEEP.reshape(3, 4)
    data = cv2.imencode(suffix, grey)[1].tobytes()
    assert np.array_equal(decode(data), three(np.rint(grey / 257).astype(np.uint8)))


def test_16_bit_rgba_lies_over_white() -> None:
    rgba = np.concatenate([DEEP, np.array([0, 65535, 32768, 1000], dtype=np.uint16).reshape(1, 4, 1)], axis=2)
    alpha = rgba[..., 3:] / 65535
    expected = np.rint((rgba[..., :3] * alpha + 65535 * (1 - alpha)) / 257)
    shown = decode(encoded_by_opencv(rgba, ".png"))
    assert np.abs(shown - expected).max() <= 1
    assert np.array_equal(shown[0, 0], [255] * 3)
    assert np.array_equal(shown[0, 1], expected[0, 1])


def test_16_bit_colour_is_turned_too() -> None:
    plain, tags = encoded_by_opencv(DEEP, ".png"), exif(6).tobytes().removeprefix(b"Exif\0\0")
    turned = plain[:33] + chunk(b"eXIf", tags) + plain[33:]
    assert np.array_equal(decode(turned), np.rint(DEEP / 257).astype(np.uint8).swapaxes(0, 1)[:, ::-1])


def frames(kind: str) -> bytes:
    return encoded(RGB, kind, save_all=True, append_images=[Image.fromarray(255 - RGB)])


WHOLE_PNG, WHOLE_JPEG = encoded(RGB), encoded(picture(1, (40, 60)), "JPEG", quality=95)
FLIPPED_PNG = WHOLE_PNG[:60] + bytes([WHOLE_PNG[60] ^ 1]) + WHOLE_PNG[61:]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"this is text", "not an intact PNG, JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an intact PNG, JPEG"),
        (WHOLE_PNG[: len(WHOLE_PNG) // 2], "truncated"),
        (WHOLE_PNG[:-12], "truncated"),
        (WHOLE_PNG[:-20], "truncated"),
        (FLIPPED_PNG, "checksum"),
        (WHOLE_JPEG[: len(WHOLE_JPEG) // 2], "truncated"),
        (WHOLE_JPEG[:-2], "truncated"),
        (encoded(RGB, "BMP")[:-9], "truncated"),
        (encoded(RGB, "WEBP", lossless=True)[:-60], "cannot be read"),
        (encoded(picture(2, (40, 60)), "GIF")[:1200], "truncated"),
        (frames("GIF"), "2 frames"),
        (frames("PNG"), "2 frames"),
        (frames("TIFF"), "2 frames"),
        (frames("WEBP"), "2 frames"),
        (png(0, 5), "not an intact"),
        (png(100_000, 100_000), "too many pixels .*10000000000 pixels"),
        (png(2**31 - 1, 2**31 - 1), "too many pixels .*4611686014132420609 pixels"),
        (encoded(Image.fromarray(np.ones((4, 4), dtype=np.float32)), "TIFF"), "32-bit"),
        (encoded(Image.fromarray(np.ones((4, 4), dtype=np.int32)), "TIFF"), "32-bit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_read_is_named(tmp_path: Path, data: bytes, reason: str) -> None:
    path = save(tmp_path / "it is\nthis one.png", data)
    with pytest.raises(InputError, match=reason) as caught:
        decode(path)
    assert r"it is\nthis one.png" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bomb_below_the_hard_limit_of_pillow_is_refused_by_its_header() -> None:
    with pytest.raises(InputError, match=r"too many pixels .108000000; at most 89478485"):
        image_size(png(12_000, 9_000))


def test_a_camera_picture_with_a_preview_is_the_picture() -> None:
    data = encoded(RGB, "MPO", save_all=True, append_images=[Image.fromarray(255 - RGB)])
    assert np.array_equal(decode(data), decode(encoded(RGB, "JPEG")))


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.png", tmp_path):
        for function in (decode, image_size, decode_mask):
            with pytest.raises(InputError, match=r"image .* cannot be read: (No such file|Is a directory)"):
                function(path)


def test_pillow_set_to_hide_broken_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(InputError, match="LOAD_TRUNCATED_IMAGES"):
        decode(WHOLE_JPEG[:-200])


def test_shrinking_averages_and_growing_interpolates() -> None:
    assert np.array_equal(resize(RGB, (6, 9)), RGB)
    thirds = RGB.reshape(3, 2, 3, 3, 3).mean(axis=(1, 3))
    assert np.abs(resize(RGB, (3, 3)) - thirds).max() <= 0.5
    ramp = np.array([[[0], [100]]], dtype=np.uint8)
    assert resize(ramp, (2, 4))[..., 0].tolist() == [[0, 25, 75, 100]] * 2
    column = np.array([[[0], [200]], [[100], [100]]], dtype=np.uint8)
    assert resize(column, (4, 1))[..., 0].tolist() == [[100]] * 4


def test_mask_values_are_stored_values() -> None:
    index = np.array([[0, 1, 2]], dtype=np.uint8)
    palette = Image.fromarray(index).convert("P")
    palette.putpalette([9, 9, 9, 0, 0, 0, 0, 0, 0])
    for image in (
        palette,
        Image.fromarray(index),
        Image.fromarray(index.astype(np.uint16)),
        Image.fromarray(index > 0),
    ):
        assert decode_mask(encoded(image)).tolist() == [[False, True, True]]
    assert decode_mask(encoded(three(index) * np.array([0, 0, 1], dtype=np.uint8))).tolist() == [[False, True, True]]
    with pytest.raises(InputError, match="transparent"):
        decode_mask(encoded(RGBA))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_masks_take_the_value_at_the_centre(height: int, width: int, new_height: int, new_width: int) -> None:
    mask = np.random.default_rng(height).random((height, width)) < 0.5
    expected = [
        [
            bool(mask[int((y + Fraction(1, 2)) * height / new_height), int((x + Fraction(1, 2)) * width / new_width)])
            for x in range(new_width)
        ]
        for y in range(new_height)
    ]
    assert resize_mask(mask, (new_height, new_width)).tolist() == expected


def test_boxes_scale_with_each_image() -> None:
    boxes = np.array([[1, 2, 3, 4], [np.nan] * 4], dtype=np.float32)
    scaled = resize_boxes(boxes, np.array([[10, 20], [5, 5]]), (20, 20))
    assert scaled[0].tolist() == [1, 4, 3, 8]
    assert np.isnan(scaled[1]).all()


# ------------------------------------------------------------------------------------------------------ tables, labels


@given(st.lists(st.from_regex(r"[a-c]?[0-9]{0,3}", fullmatch=True), unique=True))
def test_natural_order_is_total_and_numeric(names: list[str]) -> None:
    ordered = sorted(names, key=natural_key)
    for prefix in ("", "a", "b"):
        numbers = [
            int(name[len(prefix) :])
            for name in ordered
            if name[: len(prefix)] == prefix and name[len(prefix) :].isdigit()
        ]
        assert numbers == sorted(numbers)


@given(st.lists(st.text(), unique=True))
def test_natural_order_takes_any_text(names: list[str]) -> None:
    assert sorted(sorted(names), key=natural_key) == sorted(sorted(names, reverse=True), key=natural_key)
    assert len({natural_key(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("labels", "classes", "expected", "names"),
    [
        (["b", "a", "b"], None, [1, 0, 1], ("a", "b")),
        (["00002", "00010"], None, [0, 1], ("00002", "00010")),
        (["0", "2"], None, [0, 2], ("0", "1", "2")),
        (["1", "0"], ["0", "1", "2"], [1, 0], ("0", "1", "2")),
        (["2", "10"], ["0", "10", "2"], [2, 1], ("0", "10", "2")),
        (["1", "0"], ["stop", "yield"], [1, 0], ("stop", "yield")),
        (["yield"], ["stop", "yield"], [1], ("stop", "yield")),
    ],
)
def test_labels_become_indices(labels: list[str], classes: Any, expected: list[int], names: tuple[str, ...]) -> None:
    index, found = index_labels(labels, classes)
    assert (index.tolist(), found) == (expected, names)


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (["1", "2", "3"], None, "count from 1; give `classes=`"),
        (["-1", "0"], None, "not class indices"),
        (["0", "99999999999"], None, "not class indices"),
        (["0", "2"], ["a", "b"], "not class indices"),
        (["a", "c"], ["a", "b"], "labels without a class: 'c'"),
    ],
)
def test_labels_that_fit_no_class(labels: list[str], classes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        index_labels(labels, classes)


def test_conditions_are_numbers_only_where_all_values_are() -> None:
    assert condition(["1", "2"]).dtype == np.int64
    assert condition(["1", ""])[0] == 1.0
    assert np.isnan(condition(["1", ""])[1])
    assert condition(["1", "x"]).tolist() == ["1", "x"]
    assert condition(["NA", "007"]).tolist() == ["NA", "007"]
    assert condition(np.array([1.5, np.inf, 1e-7])).tolist() == [1.5, np.inf, 1e-7]
    assert condition([True, None]).tolist() == ["true", ""]
    assert condition([2**63]).tolist() == [2.0**63]


def test_tables_refuse_what_does_not_fit() -> None:
    def table(**changes: Any) -> Table:
        columns = {"ids": ("a", "b"), "labels": np.array([0, 1]), "class_names": ("x", "y"), "groups": ("a", "b")}
        return Table(**{**columns, **changes})

    for changes, message in [
        ({"ids": ("a", "a")}, "ids must be unique, these are not: 'a'"),
        ({"class_names": ("x", "x")}, "class names must be unique"),
        ({"labels": np.array([0, -1])}, "label -1 of image 'b' has no class"),
        ({"groups": ("a",)}, "2 images but 1 groups"),
        ({"ids": (), "labels": np.array([], dtype=np.int64), "groups": ()}, "no images"),
    ]:
        with pytest.raises(InputError, match=message):
            table(**changes)
    assert table(groups=("g", "g")).notes()[0].startswith("1 groups hold images of more than one class: 'g'")
    assert table(class_names=("x", "y", "z")).notes() == ["1 of 3 classes have no images: 'z'"]


# --------------------------------------------------------------------------------------------------------- conversions


def stored_pictures(folder: Path) -> Path:
    """Eight pictures of two classes: one partly and one nowhere transparent, one of 12 bits, two grey, three plain."""
    rgba = np.dstack([picture(0), np.full((6, 9), 255, np.uint8)])
    save(folder / "a/opaque.png", Image.fromarray(rgba))
    rgba[2, 3, 3] = 0
    save(folder / "a/hole.png", Image.fromarray(rgba))
    deep = np.random.default_rng(0).integers(0, 4096, (6, 9), dtype=np.uint16)
    deep[0, 0] = 4095
    save(folder / "a/deep.png", Image.fromarray(deep))
    save(folder / "b/grey.png", Image.fromarray(picture(1)).convert("L"))
    for number in range(4):
        save(folder / f"b/{number}.png", picture(number))
    return folder


CONVERTED = (
    "stored otherwise than as 8-bit RGB, and converted: of 8 images 2 grey (red, green and blue are equal); 1 partly "
    "transparent (laid over white); 1 of 16 bits (divided by 257; highest value 4095, 6.2 % of the range, so that "
    "pictures are dark: if the camera has 12 bits, multiply by 16 first)"
)


def test_what_is_converted_is_counted_in_one_note(tmp_path: Path) -> None:
    folder = stored_pictures(tmp_path / "stored")
    for on_bad_image in ("error", "skip"):
        data = open_dataset(folder, on_bad_image=on_bad_image)
        assert data.notes == (CONVERTED,)
        assert Subset(data, [0, 1]).notes == data.notes
    assert "of 4 images" in open_dataset(folder, limit=4).notes[0]
    shutil.rmtree(folder / "a")
    (folder / "b/grey.png").unlink()
    assert open_dataset(folder).notes == ()
    full = np.full((6, 9, 3), 65535, np.uint16)
    save(folder / "b/deep.png", cv2.imencode(".png", full)[1].tobytes())
    assert (
        open_dataset(folder)
        .notes[0]
        .endswith("1 of 16 bits (divided by 257; highest value 65535, 100.0 % of the range)")
    )


def test_conversions_are_said_by_check_and_before_a_run_and_stored(tmp_path: Path) -> None:
    stored_pictures(tmp_path / "stored")
    model = CallableModel(lambda images: np.full((len(images), 2), 0.5), num_classes=2, version="1")
    report = check_model(lambda **_: model, open_dataset(tmp_path / "stored"))
    assert f"  note: {CONVERTED}" in report.lines()
    content = study(tmp_path, n=28, outliers={"out": str(tmp_path / "stored")}, protocols={"ood": {"transformed": []}})
    with pytest.warns(UserWarning, match=re.escape(f"outliers out: {CONVERTED}")) as warned:
        prepared = prepare(parse_study(content, "test"), base=tmp_path)
    assert len(warned) == 1
    assert prepared.notes("") == [f"outliers out: {CONVERTED}"]
    options = {"suite": "quick", "out": tmp_path / "run", "accept_chance": True, "progress": no_progress}
    with pytest.warns(UserWarning, match=re.escape(f"test data: {CONVERTED}")):
        run = evaluate(model, tmp_path / "stored", **options)
    assert CONVERTED in run.record.sources[""].data.notes
    assert "6.2 % of the range" in (tmp_path / "run/report.html").read_text()


def test_pictures_of_other_libraries_are_counted_too() -> None:
    pictures = PictureRows("pictures")
    hole = Image.fromarray(picture(0)).convert("RGBA")
    hole.putpixel((0, 0), (1, 2, 3, 0))
    for number, one in enumerate(
        (hole, Image.new("L", (9, 6)), np.zeros((6, 9), np.uint8), Image.fromarray(picture(1)))
    ):
        pictures.add(one, f"row {number}")
    names = tuple(map(str, range(4)))
    table = Table(names, np.zeros(4, np.int64), ("x",), names)
    note = pictures.dataset(table, Opening(), []).notes[0]
    assert note.endswith("of 4 images 2 grey (red, green and blue are equal); 1 partly transparent (laid over white)")
    grey = PictureRows("pictures")
    grey.add(Image.new("L", (9, 6)), "row 0")
    alone = Table(("0",), np.zeros(1, np.int64), ("x",), ("0",))
    assert grey.dataset(alone, Opening(), []).notes == (), "pictures that are all grey stay as they are"


# ------------------------------------------------------------------------------------------------------------- folders


def test_folder(folder: Path) -> None:
    data = open_dataset(folder)
    assert data.class_names == ("2", "10", "stop")
    assert data.ids[:4] == ("2/0.png", "2/1.png", "2/2.png", "10/0.png")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.groups == data.ids
    assert (data.size, data.channels, data.native_size()) == ((6, 9), 3, (6, 9))
    assert np.array_equal(data.batch([3]).images[0], picture(0))
    assert "alphabetical" in data.notes[-1]


def test_classes_fix_the_order_of_a_folder(folder: Path, tmp_path: Path) -> None:
    data = open_dataset(folder, classes=["stop", "10", "2"])
    assert Counter(zip(data.labels.tolist(), [name.split("/")[0] for name in data.ids], strict=True)) == {
        (0, "stop"): 3,
        (1, "10"): 3,
        (2, "2"): 3,
    }
    (tmp_path / "names.txt").write_text("\ufeffstop\r\n10\r\n2\r\n\r\n", encoding="utf-8")
    assert open_dataset(folder, classes="names.txt", base=tmp_path).class_names == ("stop", "10", "2")
    with pytest.raises(InputError, match="not in `classes`: '2'"):
        open_dataset(folder, classes=["stop", "10"])
    more = open_dataset(folder, classes=["stop", "10", "2", "yield"])
    assert (more.class_names, more.notes) == (("stop", "10", "2", "yield"), ("1 of 4 classes have no images: 'yield'",))
    with pytest.raises(InputError, match=r"not in `classes`: '2'; classes without a folder: 'two'"):
        open_dataset(folder, classes=["stop", "10", "two"])
    with pytest.raises(InputError, match="unique"):
        open_dataset(folder, classes=["stop", "10", "2", "2"])


def test_class_files(tmp_path: Path) -> None:
    for text in ("", "a\n\nb\n"):
        (tmp_path / "classes.txt").write_text(text)
        with pytest.raises(InputError, match="one class name per line"):
            read_classes(tmp_path / "classes.txt")
    with pytest.raises(InputError, match="cannot read class file"):
        read_classes(tmp_path / "none.txt")
    (tmp_path / "classes.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(InputError, match="UTF-8"):
        read_classes(tmp_path / "classes.txt")


def test_an_empty_class_folder_is_an_error_unless_classes_are_given(folder: Path) -> None:
    (folder / "yield").mkdir()
    with pytest.raises(InputError, match="yield' holds no images"):
        open_dataset(folder)
    data = open_dataset(folder, classes=["2", "10", "stop", "yield"])
    assert data.notes == ("1 of 4 classes have no images: 'yield'",)


def test_what_is_no_image_is_counted(folder: Path) -> None:
    for name in ("stop/.hidden.png", "stop/notes.txt", "stop/more.TXT", "stop/README", "loose.png", ".DS_Store"):
        save(folder / name, b"x")
    save(folder / ".git" / "x.png")
    data = open_dataset(folder)
    assert len(data) == 9
    assert any(
        note.endswith("2 .txt, 3 hidden, 1 outside the class folders, 1 without suffix") and str(folder) in note
        for note in data.notes
    ), data.notes


def test_suffixes_count_in_any_case_and_folders_nest(tmp_path: Path) -> None:
    save(tmp_path / "a" / "deep" / "down" / "X.JPeG", encoded(RGB, "JPEG"))
    assert open_dataset(tmp_path).ids == ("a/deep/down/X.JPeG",)


def test_links_are_followed_but_not_round_in_circles(folder: Path, tmp_path: Path) -> None:
    (folder / "stop" / "again").symlink_to(folder / "stop")
    (folder / "stop" / "up").symlink_to(folder)
    (folder / "2" / "here").symlink_to(".")
    save(tmp_path / "elsewhere" / "far.png")
    (folder / "10" / "link").symlink_to(tmp_path / "elsewhere")
    data = open_dataset(folder)
    assert len(data) == 10
    assert "10/link/far.png" in data.ids
    assert any("3 link to a folder above" in note for note in data.notes)


def test_a_broken_link_is_a_bad_image(folder: Path) -> None:
    (folder / "2" / "gone.png").symlink_to(folder / "nowhere.png")
    with pytest.raises(InputError, match=r"gone.png' cannot be read: No such file"):
        open_dataset(folder)
    data = open_dataset(folder, on_bad_image="skip")
    assert [name for name, _ in data.bad_images] == ["2/gone.png"]


def test_links_to_themselves_and_pipes_do_not_hang(folder: Path) -> None:
    (folder / "2" / "self.png").symlink_to(folder / "2" / "self.png")
    (folder / "2" / "self").symlink_to(folder / "2" / "self")
    os.mkfifo(folder / "2" / "pipe.png")
    data = open_dataset(folder, on_bad_image="skip")
    assert len(data) == 9
    assert [name for name, _ in data.bad_images] == ["2/self.png"]
    assert any("1 neither file nor folder, 1 without suffix" in note for note in data.notes)


@pytest.mark.parametrize("name", ["new\nline", "quo\"te'", "señal 停", "a,b;c", "%s{}", " space "])
def test_any_file_name(tmp_path: Path, name: str) -> None:
    save(tmp_path / "data" / name / f"{name}.png")
    data = open_dataset(tmp_path / "data")
    assert data.ids == (f"{name}/{name}.png",)
    assert data.class_names == (name,)
    assert np.array_equal(data.batch([0]).images[0], RGB)


def test_names_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    save(Path(os.fsdecode(root + b"/caf\xe9/\xff.png")))
    data = open_dataset(tmp_path)
    assert data.ids == (r"caf\xe9/\xff.png",)
    assert data.class_names == (r"caf\xe9",)
    pa.array([*data.ids, *data.class_names, *data.groups])
    assert len(data.fingerprint()) == 64
    assert len(data.batch(slice(None))) == 1


def test_groups_by_pattern(tmp_path: Path) -> None:
    for label in ("0", "1"):
        for track, frame in ((0, 0), (0, 1), (12, 0)):
            save(tmp_path / label / f"{track:05}_{frame:05}.png")
    data = open_dataset({"folder": str(tmp_path), "group": r"/(\d+)_\d+\.png$"})
    assert Counter(data.groups) == {"0/00000": 2, "0/00012": 1, "1/00000": 2, "1/00012": 1}
    for pattern, message in (
        ("[", "not a valid regular expression"),
        (r"\d", "one capture"),
        (r"_(0+1)\.", "does not match 4 of 6"),
    ):
        with pytest.raises(InputError, match=message):
            open_dataset({"folder": str(tmp_path), "group": pattern})


def test_folders_that_hold_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no subfolders"):
        open_dataset(tmp_path)
    with pytest.raises(InputError, match="there is no data at"):
        open_dataset(tmp_path / "none")
    with pytest.raises(InputError, match="no folder"):
        open_dataset({"folder": str(tmp_path / "none")})


def test_a_folder_of_images_alone_is_a_set_of_outliers(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / "flat" / f"{number}.png", picture(number))
    (tmp_path / "flat" / "readme.txt").touch()
    content = study(
        tmp_path, n=28, outliers={"flat": str(tmp_path / "flat")}, protocols={"ood": {"transformed": ["fog"]}}
    )
    outside = prepare(parse_study(content, "test"), base=tmp_path).sources[""].foreign["flat"]
    assert (len(outside), outside.ids[0], outside.class_names) == (3, "0.png", ("(no class)",))
    assert isinstance(outside, Subset | files.FileDataset)
    assert outside.notes[0].endswith("has no subfolders: its images are taken without classes")
    assert "1 .txt" in outside.notes[1]
    for spec, message in (
        ("flat", "'.*flat' has no subfolders: put the images of each class"),
        ({"folder": "flat", "unlabelled": True}, "unknown option of a folder dataset 'unlabelled'"),
    ):
        with pytest.raises(InputError, match=message):
            open_dataset(spec, base=tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"'.*none' holds no images: name one that does$"):
        open_dataset("none", base=tmp_path, unlabelled=True)


def test_no_image_of_a_set_of_outliers_is_dropped_for_a_subfolder_beside_it(tmp_path: Path) -> None:
    for name in ("0.png", "1.png", "more/0.png"):
        save(tmp_path / "flat" / name, picture(len(name)))
    (tmp_path / "flat/labels").mkdir()
    outside = open_dataset(tmp_path / "flat", unlabelled=True)
    assert outside.ids == ("0.png", "1.png", "more/0.png")
    assert outside.notes[0].endswith("holds images beside its subfolders: all are taken without classes")
    (tmp_path / "flat/labels").rmdir()
    assert open_dataset(tmp_path / "flat").ids == ("more/0.png",), "a data set has classes, and a note on the others"


def test_shifts_of_both_sides_say_which_outliers_are_drawn(tmp_path: Path) -> None:
    content = study(tmp_path, n=28, outliers={"drawn": "uniform_noise"}, protocols={"ood": {"transformed": ["fog"]}})
    with pytest.raises(InputError, match=r"need pictures from elsewhere.*\(drawn: drawn or made from the test data\)"):
        prepare(parse_study(content, "test"), base=tmp_path)


def test_a_folder_one_level_too_high_is_recognised(tmp_path: Path) -> None:
    for part in ("train", "Test"):
        for number, name in enumerate(("a", "b")):
            save(tmp_path / "all" / part / name / "0.png", picture(number))
    with pytest.raises(InputError, match=r"holds 'Test', 'train', which are parts .* such as '.*all/Test'"):
        open_dataset(tmp_path / "all")
    with pytest.raises(InputError, match=r"without a folder: 'a', 'b'; they are folders of '.*all/train': name that"):
        open_dataset(tmp_path / "all", classes=["a", "b"])
    (tmp_path / "all/Test").rename(tmp_path / "all/signs")
    data = open_dataset(tmp_path / "all")
    hint = "every class folder holds the subfolders 'a', 'b' alone: is this folder one level too high?"
    assert data.notes[0] == hint
    for network in (lambda **_: CallableModel(lambda images: np.full((len(images), 3), 1 / 3), version="1"),):
        with pytest.raises(InputError, match=f"3 classes but the data has 2: fix .* with `classes=`; {hint[:-1]}"):
            check_model(network, data)
    save(tmp_path / "all/signs/own.png", picture(0))
    assert not any("level" in note for note in open_dataset(tmp_path / "all").notes)
    shutil.rmtree(tmp_path / "all/train")
    (tmp_path / "all/signs").rename(tmp_path / "all/test")
    assert open_dataset(tmp_path / "all").class_names == ("test",), "images of its own: a class of that name"


def test_a_coco_file_is_known_by_its_ending(tmp_path: Path) -> None:
    save(tmp_path / "images/0.png", picture(0))
    content = {
        "images": [{"id": 1, "file_name": "0.png", "width": 9, "height": 6}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 7, "bbox": [1, 1, 5, 4], "area": 20, "iscrowd": 0}],
        "categories": [{"id": 7, "name": "stop"}],
    }
    (tmp_path / "instances_val.json").write_text(json.dumps(content))
    assert open_dataset(str(tmp_path / "instances_val.json")).class_names == ("stop",)


# ----------------------------------------------------------------------------------------------------------- manifests


def manifest(folder: Path, text: str, name: str = "m.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for number in range(4):
        save(tmp_path / f"{number}.png", picture(number))
    mask = np.zeros((6, 9), dtype=np.uint8)
    mask[2:4, 3:6] = 7
    save(tmp_path / "mask.png", mask)
    return tmp_path


def test_manifest(pictures: Path) -> None:
    path = manifest(
        pictures,
        "path,label,x0,y0,x1,y1,group,weather,speed\n"
        "3.png,stop,0,0,9,6,a,rain,30\n"
        '0.png,yield,,,,,a,"dry, cold",40.5\n'
        "1.png,stop,3,2,6,4,,rain,\n",
    )
    data = open_dataset(path)
    assert data.ids == ("3.png", "0.png", "1.png")
    assert data.class_names == ("stop", "yield")
    assert data.groups == ("a", "a", "1.png")
    batch = data.batch([2, 0])
    assert batch.ids == ("1.png", "3.png")
    assert np.array_equal(batch.images[0], picture(1))
    assert batch.boxes is not None
    assert batch.boxes.tolist() == [[3, 2, 6, 4], [0, 0, 9, 6]]
    assert np.isnan(data.batch([1]).boxes).all()  # type: ignore[arg-type]
    assert data.batch([1]).conditions["weather"].tolist() == ["dry, cold"]
    assert batch.conditions["speed"].tolist()[1] == 30
    assert any("1 images have no group" in note for note in data.notes)
    assert any("more than one class: 'a'" in note for note in data.notes)


def test_manifest_with_masks_and_another_size(pictures: Path) -> None:
    path = manifest(pictures, "id,path,label,box,mask\nx,0.png,a,3 2 6 4,mask.png\n")
    batch = open_dataset(path, size=(12, 18)).batch([0])
    assert batch.ids == ("x",)
    assert batch.boxes is not None
    assert batch.boxes.tolist() == [[6, 4, 12, 8]]
    assert batch.masks is not None
    inside = np.zeros((12, 18), dtype=bool)
    inside[4:8, 6:12] = True
    assert np.array_equal(batch.masks[0], inside)


def test_parquet_and_csv_are_equal(pictures: Path) -> None:
    path = manifest(pictures, "path,label,box,speed,day\n0.png,1,1 2 3 4,1.5,true\n1.png,0,,2.5,false\n")
    columns = {
        "path": ["0.png", "1.png"],
        "label": [1, 0],
        "box": [[1.0, 2.0, 3.0, 4.0], None],
        "speed": [1.5, 2.5],
        "day": [True, False],
    }
    pq.write_table(pa.table(columns), pictures / "m.parquet")
    csv, parquet = open_dataset(path), open_dataset(pictures / "m.parquet")
    assert csv.class_names == ("0", "1")
    assert csv.labels.tolist() == [1, 0]
    assert csv.fingerprint() == parquet.fingerprint()


def test_paths_start_from_the_manifest_and_may_leave_its_folder(pictures: Path) -> None:
    sub = pictures / "lists"
    sub.mkdir()
    path = manifest(sub, f"path,label\n../0.png,a\n{pictures / '1.png'},a\n")
    assert np.array_equal(open_dataset(path).batch([1]).images[0], picture(1))
    assert np.array_equal(open_dataset("m.csv", base=sub).batch([0]).images[0], picture(0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path\n0.png\n", "no column 'label'; the columns are 'path'"),
        ("file,label\n0.png,a\n", "no column 'path'"),
        ("path;label\n0.png;a\n", "no column 'path'; the columns are 'path;label'"),
        ("", "no column 'path'"),
        ("path,label\n", "no images"),
        ("path,label\n0.png,a\n0.png,a\n", "ids must be unique, these are not: '0.png'"),
        ("id,path,label\nx,0.png,a\nx,1.png,a\n", "ids must be unique, these are not: 'x'"),
        ("path,label\n0.png,\n", "'label' is empty in 1 of 1 rows, first in row 1"),
        ("path,label\n,a\n", "'path' is empty"),
        ("path,label,label\n0.png,a,b\n", "two columns of one name"),
        ("path,label\n0.png,a,b\n", "3 values in row 1, but 2 columns"),
        ("path,label\n0.png\n", "1 values in row 1"),
        ('path,label\n"0.png,a\n', "not a valid UTF-8 CSV"),
        ("path,label,x0\n0.png,a,1\n", "needs the columns x0, y0, x1 and y1"),
        ("path,label,box,x0\n0.png,a,1 2 3 4,1\n", "'box' and also 'x0'"),
        ("path,label,box\n0.png,a,1 2 3\n", "four numbers"),
        ("path,label,box\n0.png,a,1 2 3 x\n", "not a number"),
        ("path,label,box\n0.png,a,5 2 3 4\n", "not x y width height"),
        ("path,label,box\n0.png,a,9 0 12 4\n", "outside their image"),
        ("path,label,x0,y0,x1,y1\n0.png,a,1,2,3,\n", "a value missing"),
        ("path,label,box\n0.png,a,0 0 inf 4\n", "infinite"),
        ("path,label,mask\n0.png,a,mask.png\n1.png,a,\n", "'mask' is empty in 1 of 2"),
        ("path,label\n0.png,a\n8.png,a\n9.png,a\n", "2 of 3 images cannot be used: .*8.png.*No such file"),
    ],
)
def test_manifests_that_cannot_be_used(pictures: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_dataset(manifest(pictures, text))


def test_manifest_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"path,label\n\xff,a\n")
    with pytest.raises(InputError, match="not a valid UTF-8 CSV"):
        open_dataset(tmp_path / "m.csv")
    (tmp_path / "m.parquet").write_bytes(b"no parquet")
    with pytest.raises(InputError, match="not a readable Parquet"):
        open_dataset(tmp_path / "m.parquet")
    with pytest.raises(InputError, match="No such file"):
        open_dataset({"manifest": str(tmp_path / "none.csv")})


def test_a_manifest_may_begin_with_a_byte_order_mark(pictures: Path) -> None:
    assert len(open_dataset(manifest(pictures, "\ufeffpath,label\r\n0.png,a\r\n\r\n"))) == 1


def test_an_empty_box_is_no_box_and_noted(pictures: Path) -> None:
    data = open_dataset(manifest(pictures, "path,label,box\n0.png,a,1 2 1 4\n1.png,a,1 2 3 4\n"))
    assert np.isnan(data.batch([0]).boxes).all()  # type: ignore[arg-type]
    assert data.notes == ("1 boxes are empty and count as no box: '0.png'",)


def test_a_mask_must_have_the_size_of_its_image(pictures: Path) -> None:
    save(pictures / "small.png", np.ones((3, 3), dtype=np.uint8))
    data = open_dataset(manifest(pictures, "path,label,mask\n0.png,a,small.png\n"))
    with pytest.raises(InputError, match=r"small.png' has size .3, 3., its image .6, 9."):
        data.verify_all()


# ----------------------------------------------------------------------------------------------------------------- npz


def npz(path: Path, **arrays: Any) -> Path:
    columns: dict[str, Any] = {
        "images": np.stack([picture(i) for i in range(4)]),
        "labels": np.array([0, 1, 1, 2], dtype=np.uint8),
    }
    columns |= arrays
    np.savez(path / "x.npz", **{name: array for name, array in columns.items() if array is not None})
    return path / "x.npz"


def test_npz(tmp_path: Path) -> None:
    masks = np.zeros((4, 6, 9), dtype=np.uint8)
    masks[:, 1, 2] = 3
    path = npz(
        tmp_path,
        class_names=np.array(["stop", "yield", "parking", "unused"]),
        boxes=np.array([[0, 0, 3, 3]] * 4),
        masks=masks,
        track=np.array([0, 0, 0, 1]),
        speed=np.array([1, 2, 3, 4], dtype=np.int16),
        weather=np.array(["dry", "wet", "wet", "dry"]),
        meta=np.array(json.dumps({"source": "drawn"})),
        corners=np.zeros((4, 2)),
    )
    data = open_dataset(path)
    assert data.class_names == ("stop", "yield", "parking", "unused")
    assert data.ids == ("0", "1", "2", "3")
    assert data.groups == ("stop/0", "yield/0", "yield/0", "parking/1")
    batch = data.batch([2, 1])
    assert np.array_equal(batch.images, np.stack([picture(2), picture(1)]))
    assert batch.conditions["speed"].tolist() == [3, 2]
    assert set(batch.conditions) == {"speed", "weather"}
    assert batch.masks is not None
    assert np.argwhere(batch.masks).tolist() == [[0, 1, 2], [1, 1, 2]]
    assert any("'corners'" in note for note in data.notes)
    assert any("no images: 'unused'" in note for note in data.notes)


def test_an_npz_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[str] = Counter()
    kind = np.lib.npyio.NpzFile
    original = kind.__getitem__
    monkeypatch.setattr(kind, "__getitem__", lambda self, key: (reads.update([key]), original(self, key))[1])
    data = open_dataset(npz(tmp_path))
    for _ in range(3):
        data.batch(slice(0, 4))
        data.fingerprint()
    assert reads == {"images": 1, "labels": 1}


def test_npz_batches_are_copies(tmp_path: Path) -> None:
    data = open_dataset(npz(tmp_path))
    data.batch(slice(0, 4)).images[:] = 0
    assert np.array_equal(data.batch([1]).images[0], picture(1))


def test_npz_groups_ids_and_named_labels(tmp_path: Path) -> None:
    path = npz(tmp_path, labels=np.array(["b", "a", "b", "c"]), id=np.array([9, 8, 7, 6]), group=np.array([1, 1, 2, 2]))
    data = open_dataset(path)
    assert (data.class_names, data.labels.tolist()) == (("a", "b", "c"), [1, 0, 1, 2])
    assert (data.ids, data.groups) == (("9", "8", "7", "6"), ("1", "1", "2", "2"))


def test_whole_labels_of_an_npz_are_places_even_where_names_are_numbers(tmp_path: Path) -> None:
    path = npz(tmp_path, class_names=np.array(["2", "1", "0"]))
    assert open_dataset(path).labels.tolist() == [0, 1, 1, 2]
    assert open_dataset(path, classes=["0", "1", "2"]).labels.tolist() == [2, 1, 1, 0]
    assert open_dataset(npz(tmp_path), classes=["c", "b", "a"]).class_names == ("c", "b", "a")


def test_grey_arrays_stay_grey_and_are_resized(tmp_path: Path) -> None:
    data = open_dataset(npz(tmp_path, images=np.full((4, 8, 8), 9, dtype=np.uint8)), size=4)
    assert (data.channels, data.size, data.native_size()) == (1, (4, 4), (8, 8))
    assert data.batch(slice(0, 3)).images.shape == (3, 4, 4, 1)
    assert data.batch([]).images.shape == (0, 4, 4, 1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.zeros((4, 3, 8, 8), dtype=np.uint8)}, r"channels first; store them as \(N, H, W, C\)"),
        ({"images": np.zeros((4, 1, 8, 8), dtype=np.uint8)}, "channels first"),
        ({"images": np.zeros((4, 8, 8, 4), dtype=np.uint8)}, "must have shape"),
        ({"images": np.zeros((4, 0, 8, 3), dtype=np.uint8)}, "must have shape"),
        ({"images": np.zeros((4, 8, 8, 3), dtype=np.float32)}, "uint8, 0 to 255, not float32"),
        ({"images": np.zeros((5, 8, 8, 3), dtype=np.uint8)}, r"labels must have shape \(5,\)"),
        ({"images": np.zeros((0, 8, 8, 3), dtype=np.uint8), "labels": np.zeros(0, dtype=int)}, "no images"),
        ({"labels": np.zeros((4, 1), dtype=int)}, r"labels must have shape \(4,\)"),
        ({"labels": np.zeros(4)}, "whole numbers or class names, not float64"),
        ({"labels": np.array([0, 1, -1, 2])}, "not class indices"),
        ({"labels": None}, "no array 'labels'; the arrays are 'images'"),
        ({"class_names": np.array(["a", "b"])}, "labels are 0 to 2, but there are 2 class names"),
        ({"class_names": np.array(["a", "b", "b"])}, "class names must be unique"),
        ({"class_names": np.array([1, 2, 3])}, "class_names must be a list of text"),
        ({"class_names": np.array(["a", "b", "c"], dtype=object)}, "Python objects; store text as a str array"),
        ({"boxes": np.zeros((4, 2))}, r"boxes must have shape \(4, 4\)"),
        ({"masks": np.zeros((4, 3, 3), dtype=bool)}, "masks must be"),
        ({"id": np.array([1, 1, 2, 3])}, "unique"),
        ({"track": np.zeros(3)}, "track must have shape"),
    ],
)
def test_npz_that_cannot_be_used(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(npz(tmp_path, **arrays))
    assert "x.npz" in str(caught.value)


def test_npz_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = npz(tmp_path)
    whole = path.read_bytes()
    np.save(tmp_path / "single.npy", np.zeros(3))
    for data in (b"", b"text", whole[:-40], whole[: len(whole) // 2], (tmp_path / "single.npy").read_bytes()):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"x.npz' cannot be read"):
            open_dataset(path)


# ------------------------------------------------------------------------------------------- opening, sizes, bad images


def test_images_in_memory() -> None:
    images = np.stack([picture(i) for i in range(3)])
    assert open_dataset((images, [0, 1, 2])).class_names == ("0", "1", "2")
    assert open_dataset((images, np.array([0, 1, 1]), ["stop", "yield"])).class_names == ("stop", "yield")
    with pytest.raises(InputError, match="not a tuple of 1"):
        open_dataset((images,))
    with pytest.raises(InputError, match="not list"):
        open_dataset([images, [0, 1, 2]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"foldr": "x"}, "unknown dataset 'foldr': did you mean 'folder'?"),
        ({}, "unknown dataset"),
        ({"folder": "x", "npz": "y"}, "of one kind"),
        ({"folder": "x", "groups": "(.)"}, "unknown option of a folder dataset 'groups': did you mean 'group'?"),
        ({"npz": "x.npz", "group": "(.)"}, "unknown option of a npz dataset 'group'"),
        ({"builtin": "sign"}, "unknown builtin data set 'sign': did you mean 'signs'?"),
        ({"builtin": "signs", "n": 0}, "n of at least 1"),
        ({"builtin": "signs", "limit": 0}, "limit is a number of images"),
        ({"builtin": "signs", "size": [0, 4]}, "read the size"),
        ({"builtin": "signs", "size": [64]}, "read the size"),
        ({"builtin": "signs", "on_bad_image": "ignore"}, "'error' or 'skip'"),
        ({"builtin": "signs", "classes": ["a"]}, "has its own classes"),
        ({"folder": 3}, "must be a path or a name"),
        ("builtin:draw", "unknown builtin data set 'draw'"),
        ("no/such/folder", "there is no data at"),
        (__file__, "is not a known kind of data set: give a folder or a file ending in .csv, .parquet, .npz"),
    ],
)
def test_specs_that_name_no_data_set(spec: Any, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        open_dataset(spec)


def test_every_kind_is_registered() -> None:
    assert {"folder", "manifest", "npz", "builtin"} <= set(DATA)
    with pytest.raises(UnknownName):
        DATA.get("zip")


def test_images_of_different_size_need_one(folder: Path) -> None:
    save(folder / "2" / "big.png", picture(1, (30, 40)))
    with pytest.raises(InputError, match="the images of signs differ in size"):
        open_dataset(folder, name="signs")
    assert open_dataset(folder, fallback_size=(8, 8)).size == (8, 8)
    assert open_dataset(folder, size=16, fallback_size=(8, 8)).size == (16, 16)
    data = open_dataset(folder, size=(12, 10))
    assert data.native_size() is None
    assert data.batch(slice(None)).images.shape == (10, 12, 10, 3)
    row = data.ids.index("2/big.png")
    assert np.array_equal(data.batch([row]).images[0], resize(picture(1, (30, 40)), (12, 10)))


def test_a_fallback_does_not_resize_images_of_one_size(folder: Path) -> None:
    assert open_dataset(folder, fallback_size=(32, 32)).size == (6, 9)


def test_turned_images_count_with_the_size_they_are_shown_in(tmp_path: Path) -> None:
    save(tmp_path / "a" / "upright.jpg", encoded(picture(0, (16, 8)), "JPEG"))
    save(tmp_path / "a" / "turned.jpg", encoded(picture(0, (8, 16)), "JPEG", exif=exif(6)))
    assert open_dataset(tmp_path).size == (16, 8)


def test_opening_and_batches_decode_no_more_than_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(RGB)
    (tmp_path / "a").mkdir()
    for number in range(2000):
        (tmp_path / "a" / f"{number}.png").write_bytes(data)
    decoded = recorded(monkeypatch)
    monkeypatch.setattr(Image.Image, "load", forbidden(Image.Image.load, allowed := threading.Event()))
    opened = open_dataset(tmp_path)
    assert (len(opened), decoded) == (2000, [])
    allowed.set()
    opened.batch(range(100, 116))
    assert sorted(decoded) == sorted(f"{number}.png" for number in range(100, 116))
    decoded.clear()
    opened.fingerprint()
    assert len(decoded) == 2000
    opened.fingerprint(), opened.verify_all(), opened.resized((3, 3)).fingerprint()
    assert len(decoded) == 2000


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are decoded from now on, by the careful decoder."""
    names: list[str] = []

    def recording(decoder: Callable[..., Any]) -> Callable[..., Any]:
        def record(data: bytes, name: str) -> Any:
            names.append(Path(name).name)
            return decoder(data, name=name)

        return record

    for decoder in (decode, decode_noting):
        monkeypatch.setattr(files, decoder.__name__, recording(decoder))
    return names


def forbidden(original: Callable[..., Any], allowed: threading.Event) -> Callable[..., Any]:
    def load(self: Image.Image) -> Any:
        assert allowed.is_set(), "pixels were decoded"
        return original(self)

    return load


def test_batches_keep_the_order_asked_for(tmp_path: Path) -> None:
    for number in range(60):
        save(tmp_path / "a" / f"{number}.png", picture(number, (4, 4 if number % 2 else 40)))
    data = open_dataset(tmp_path, size=(4, 4))
    rows = np.random.default_rng(0).permutation(60)
    batch = data.batch(rows.tolist())
    assert batch.ids == tuple(f"a/{row}.png" for row in rows)
    expected = np.stack([resize(picture(row, (4, 4 if row % 2 else 40)), (4, 4)) for row in rows])
    assert np.array_equal(batch.images, expected)
    assert np.array_equal(data.batch(slice(50, 10, -7)).images, data.batch(range(50, 10, -7)).images)
    assert np.array_equal(data.batch(rows).images, expected)  # type: ignore[arg-type]
    assert data.batch([3, 3]).ids == ("a/3.png", "a/3.png")


def test_checked_images_decode_fast_only_where_that_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "plain.png": encoded(RGB),
        "plain.jpg": encoded(RGB, "JPEG"),
        "turned.jpg": encoded(RGB.swapaxes(0, 1), "JPEG", exif=exif(6)),
        "grey.png": encoded(GREY),
        "deep.png": encoded_by_opencv(RGB.astype(np.uint16) * 256 + 255, ".png"),
        "glass.png": encoded(RGBA),
        "cmyk.jpg": encoded(Image.fromarray(RGB).convert("CMYK"), "JPEG"),
    }
    for name, data in sources.items():
        save(tmp_path / "a" / name, data)
    opened = open_dataset(tmp_path)
    slow = recorded(monkeypatch)
    before = opened.batch(slice(None))
    opened.verify_all()
    slow.clear()
    after = opened.batch(slice(None))
    assert np.array_equal(before.images, after.images)
    for row, name in enumerate(opened.ids):
        assert np.array_equal(after.images[row], decode(sources[name.removeprefix("a/")])), name
    assert {"deep.png", "glass.png"} <= set(slow)
    assert "plain.png" not in slow


@pytest.mark.parametrize("kind", ["folder", "npz", "subset"])
def test_rows_that_do_not_exist(folder: Path, tmp_path: Path, kind: str) -> None:
    data = open_dataset(folder) if kind == "folder" else open_dataset(npz(tmp_path))
    data = Subset(data, [1, 2]) if kind == "subset" else data
    empty = data.batch([])
    assert (len(empty), empty.images.shape[1:]) == (0, (6, 9, 3))
    assert len(data.batch(slice(5, 5))) == 0
    for rows in ([-1], [len(data)]):
        with pytest.raises(IndexError):
            data.batch(rows)
    with pytest.raises(TypeError):
        data.batch(np.ones(len(data), dtype=bool))  # type: ignore[arg-type]


def test_a_corrupt_image_is_found_before_it_is_used(folder: Path) -> None:
    save(folder / "2" / "1.png", WHOLE_PNG[:-20])
    data = open_dataset(folder)
    for find in (data.fingerprint, data.verify_all, lambda: data.batch([1])):
        with pytest.raises(InputError, match=r"2/1.png' cannot be read: it is truncated"):
            find()
    assert len(data.batch([0])) == 1


def test_skipped_images_are_recorded(folder: Path) -> None:
    whole = open_dataset(folder)
    save(folder / "2" / "1.png", WHOLE_PNG[:-20])
    save(folder / "10" / "0.png", b"text")
    data = open_dataset(folder, on_bad_image="skip")
    assert [name for name, _ in data.bad_images] == ["2/1.png", "10/0.png"]
    assert "truncated" in data.bad_images[0][1]
    assert "2 of 9 images cannot be read and were left out" in data.notes
    kept = [row for row, name in enumerate(whole.ids) if name not in dict(data.bad_images)]
    assert data.ids == tuple(whole.ids[row] for row in kept)
    assert np.array_equal(data.batch([1]).images[0], picture(12))
    assert data.fingerprint() == whole.fingerprint_of(kept)


def test_nothing_but_bad_images(tmp_path: Path) -> None:
    for number in range(5):
        save(tmp_path / "a" / f"{number}.png", b"text")
    for mode in ("error", "skip"):
        with pytest.raises(InputError, match=r"5 of 5 images cannot be used.*and 2 more") as caught:
            open_dataset(tmp_path, on_bad_image=mode)
        assert "0.png" in str(caught.value)


def test_a_file_that_changes_in_use_is_an_error(folder: Path) -> None:
    data = open_dataset(folder)
    save(folder / "2" / "0.png", picture(0, (9, 9)))
    with pytest.raises(InputError, match="changed its size while it was in use"):
        data.batch([0])
    save(folder / "2" / "0.png", picture(1))
    data.verify_all()
    data.batch([0])
    save(folder / "2" / "0.png", picture(2))
    with pytest.raises(InputError, match="changed while it was in use"):
        data.batch([0])


def test_progress_is_told(folder: Path) -> None:
    seen: list[int] = []
    open_dataset(folder, progress=seen.append)
    assert sum(seen) == 9


# -------------------------------------------------------------------------------------------------------- fingerprints


def test_fingerprints_do_not_depend_on_place_or_time(folder: Path, tmp_path: Path) -> None:
    before = open_dataset(folder).fingerprint()
    shutil.copytree(folder, tmp_path / "elsewhere")
    for path in (tmp_path / "elsewhere").rglob("*.png"):
        os.utime(path, (0, 0))
    assert open_dataset(tmp_path / "elsewhere", name="other").fingerprint() == before
    assert open_dataset("elsewhere", base=tmp_path).fingerprint() == before


def test_fingerprints_change_with_everything_a_batch_holds(pictures: Path) -> None:
    save(pictures / "other.png", np.ones((6, 9), dtype=np.uint8))
    rows = ["id,path,label,group,box,mask,speed", "u,0.png,a,g,1 2 3 4,mask.png,1", "v,1.png,b,h,1 2 3 4,mask.png,2"]

    def fingerprint(*changes: tuple[str, str], **options: Any) -> str:
        text = "\n".join(rows)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return open_dataset(manifest(pictures, text + "\n"), **options).fingerprint()

    prints = [
        fingerprint(),
        fingerprint(("u,", "w,")),
        fingerprint(("0.png", "2.png")),
        fingerprint(("a,g", "b,g")),
        fingerprint((",g,", ",i,")),
        fingerprint((",1 2 3 4,mask.png,1", ",1 2 3 5,mask.png,1")),
        fingerprint(("mask.png,1", "other.png,1")),
        fingerprint(("mask.png,1", "mask.png,3")),
        fingerprint(("speed", "velocity")),
        fingerprint(("\n".join(rows[1:]), "\n".join(rows[:0:-1]))),
        fingerprint(classes=["a", "b", "c"]),
        fingerprint(size=(3, 3)),
    ]
    assert len(set(prints)) == len(prints)
    changed = picture(0)
    changed[0, 0, 0] ^= 1
    save(pictures / "0.png", changed)
    assert fingerprint() not in prints


def test_fingerprints_of_arrays(tmp_path: Path) -> None:
    images = np.stack([picture(i) for i in range(4)])
    changed = images.copy()
    changed[3, 0, 0, 0] ^= 1
    variants: list[dict[str, Any]] = [
        {},
        {"images": changed},
        {"images": images.reshape(4, 9, 6, 3)},
        {"labels": np.array([0, 1, 2, 2])},
        {"group": np.array([0, 0, 1, 2])},
        {"masks": np.zeros((4, 6, 9), dtype=bool)},
        {"boxes": np.full((4, 4), np.nan)},
    ]
    prints = [open_dataset(npz(tmp_path, **arrays)).fingerprint() for arrays in variants]
    assert len(set(prints)) == len(variants)
    assert open_dataset(npz(tmp_path)).fingerprint() == prints[0]


# --------------------------------------------------------------------------------------------------- limits and parts


def test_limit_spreads_over_classes_and_groups() -> None:
    data = BuiltinDataset("signs", n=700)
    small = open_dataset(data, limit=70)
    assert len(small) == 70
    assert set(Counter(small.labels.tolist()).values()) == {5}
    assert len(set(small.groups)) == 70
    larger = open_dataset(data, limit=177)
    assert set(small.ids) < set(larger.ids)
    assert max(Counter(larger.labels.tolist()).values()) - min(Counter(larger.labels.tolist()).values()) == 1
    assert [data.ids.index(name) for name in larger.ids] == sorted(data.ids.index(name) for name in larger.ids)
    assert open_dataset(data, limit=70, seed=1).ids != small.ids
    assert open_dataset(data, limit=1000) is data


def test_limit_is_the_same_however_it_is_asked_for(folder: Path) -> None:
    whole = open_dataset(folder)
    first, second = open_dataset(folder, limit=4), open_dataset(whole, limit=4)
    assert first.ids == second.ids
    assert first.fingerprint() == second.fingerprint()


def test_limit_fills_up_from_larger_classes(tmp_path: Path) -> None:
    labels = np.array([0] + [1] * 9)
    data = open_dataset((np.zeros((10, 4, 4), dtype=np.uint8), labels), limit=6)
    assert Counter(data.labels.tolist()) == {0: 1, 1: 5}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=2, max_size=40),
    st.integers(1, 40),
    st.integers(0, 9),
)
def test_limit_holds_for_any_data(rows: list[tuple[int, int]], limit: int, seed: int) -> None:
    table = Table(
        ids=tuple(map(str, range(len(rows)))),
        labels=np.array([label for label, _ in rows]),
        class_names=("a", "b", "c", "d"),
        groups=tuple(f"{label}/{group}" for label, group in rows),
    )
    kept = files.rows_over_classes(table, limit, seed)
    assert len(kept) == min(limit, len(rows))
    assert np.array_equal(kept, np.unique(kept))
    taken, there = Counter(rows[i][0] for i in kept), Counter(label for label, _ in rows)
    most = max(taken.values())
    assert all(taken[label] >= min(there[label], most - 1) for label in there)
    for label in taken:
        groups = {group for other, group in rows if other == label}
        assert len({rows[i][1] for i in kept if rows[i][0] == label}) == min(taken[label], len(groups))


def test_splits_share_no_group_and_keep_the_shares() -> None:
    data = BuiltinDataset("signs", n=1400)
    parts = split_by_group(data, (0.6, 0.2, 0.2), seed=3)
    assert sorted(name for part in parts for name in part.ids) == sorted(data.ids)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not set(parts[one].groups) & set(parts[other].groups)
    for part, share in zip(parts, (0.6, 0.2, 0.2), strict=True):
        assert np.abs(np.bincount(part.labels) / np.bincount(data.labels) - share).max() <= 0.06
    again = split_by_group(Subset(data, range(len(data))[::-1]), (0.6, 0.2, 0.2), seed=3)
    assert [set(part.ids) for part in again] == [set(part.ids) for part in parts]
    assert split_by_group(data, (0.6, 0.2, 0.2), seed=4)[0].ids != parts[0].ids


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), min_size=2, max_size=40),
    st.sampled_from([(0.8, 0.2), (0.5, 0.5), (0.6, 0.2, 0.2)]),
    st.integers(0, 9),
    st.randoms(use_true_random=False),
)
def test_a_split_never_cuts_a_group(rows: list[tuple[int, int]], shares: Any, seed: int, random: Any) -> None:
    """Whatever classes a group holds: each image is in one part, each group on one side, in any order of the images."""
    names = [str(number) for number in range(len(rows))]

    def parts_of(order: list[int]) -> list[set[str]] | None:
        labels, groups = [rows[i][0] for i in order], [f"g{rows[i][1]}" for i in order]
        table = Table(tuple(names[i] for i in order), np.array(labels), ("a", "b", "c", "d"), tuple(groups))
        data = Rows(table)
        try:
            parts = split_by_group(data, shares, seed)
        except InputError:
            return None
        sides = [set(part.groups) for part in parts]
        assert sum(map(len, sides)) == len(set().union(*sides)) == len(set(groups))
        assert sorted(image_id for part in parts for image_id in part.ids) == sorted(table.ids)
        return [set(part.ids) for part in parts]

    shuffled = [*range(len(rows))]
    random.shuffle(shuffled)
    assert parts_of(shuffled) == parts_of([*range(len(rows))])


class Rows(Dataset):
    """A data set of which nothing but its table is read."""

    name, size, channels = "rows", (2, 2), 1
    ids: Any = ()
    labels: Any = ()
    groups: Any = ()

    def __init__(self, table: Table) -> None:
        self.ids, self.labels, self.groups, self.class_names = table.ids, table.labels, table.groups, table.class_names

    def __len__(self) -> int:
        return len(self.ids)

    def fingerprint(self) -> str:
        return "rows"

    def batch(self, rows: Any) -> Batch:
        raise AssertionError("no image is asked for")


@pytest.mark.parametrize("shares", [[0.8, 0.2], [0.5, 0.3, 0.2]])
def test_a_study_splits_one_data_set(shares: list[float], tmp_path: Path) -> None:
    content = study(tmp_path, data={"test": {"builtin": "signs", "n": 350}, "split": shares})
    bench = prepare(parse_study(content, "study"), progress=no_progress).sources[""]
    parts = [part for part in (bench.train, bench.validation, bench.data) if part is not None]
    assert len(parts) == len(shares)
    whole = open_dataset({"builtin": "signs", "n": 350}, size=32)
    assert sorted(image_id for part in parts for image_id in part.ids) == sorted(whole.ids)
    assert sum(len({*part.groups}) for part in parts) == len({*whole.groups})
    for part, share in zip(parts, shares, strict=True):
        assert len(part) == pytest.approx(share * len(whole), abs=14 * 5 / 2)


@pytest.mark.parametrize("shares", [[1.0], [0.8, 0.3], [0.25, 0.25, 0.25, 0.25]])
def test_a_study_splits_into_two_or_three(shares: list[float], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="split"):
        parse_study(study(tmp_path, data={"test": {"builtin": "signs", "n": 350}, "split": shares}), "study")


def test_splits_that_cannot_be() -> None:
    for fractions in ((), (0.5, 0.6), (1.5, -0.5), (1.0, 0.0)):
        with pytest.raises(InputError, match="add up to 1"):
            split_by_group(BuiltinDataset("signs", n=10), fractions)
    with pytest.raises(InputError, match="too few"):
        split_by_group(BuiltinDataset("signs", n=5), (0.5, 0.5))


def test_a_subset_is_a_data_set() -> None:
    data = BuiltinDataset("signs", n=20)
    part = Subset(Subset(data, range(5, 20)), [3, 0])
    batch = part.batch(slice(None))
    assert batch.ids == (data.ids[8], data.ids[5]) == part.ids
    assert part.fingerprint() == data.fingerprint_of([8, 5]) != data.fingerprint_of([5, 8])
    assert Subset(data, range(20)).fingerprint() == data.fingerprint()
    small = part.resized((32, 32))
    assert (small.size, small.batch([0]).images.shape, data.size) == ((32, 32), (1, 32, 32, 3), (64, 64))
    assert small.fingerprint() != part.fingerprint()


class Foreign(Dataset):
    """A data set of somebody else."""

    name, class_names, size, channels = "foreign", ("a", "b"), (2, 2), 1
    ids, labels, groups = ("x", "y", "z"), np.array([0, 1, 1]), ("x", "y", "y")  # type: ignore[assignment]

    def __len__(self) -> int:
        return 3

    def fingerprint(self) -> str:
        return "f"

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        whole = Batch(ids=self.ids, images=np.zeros((3, 2, 2, 1), dtype=np.uint8), labels=self.labels)
        return whole.take(rows)


def test_data_sets_of_others_are_taken() -> None:
    data = open_dataset(Foreign())
    assert (data.ids, data.notes, data.bad_images, data.native_size()) == (("x", "y", "z"), (), (), (2, 2))
    limited = open_dataset(Foreign(), limit=2)
    assert set(limited.labels.tolist()) == {0, 1}
    assert limited.batch([1]).ids == (limited.ids[1],)
    assert open_dataset(Foreign()).fingerprint() == data.fingerprint() != open_dataset(Foreign(), limit=2).fingerprint()
    assert open_dataset(Foreign(), size=(2, 2)).size == (2, 2)
    with pytest.raises(InputError, match="delivers"):
        open_dataset(Foreign(), size=(4, 4))
    with pytest.raises(InputError, match="has its own classes"):
        open_dataset(Foreign(), classes=["b", "a"])
    assert open_dataset(Foreign(), classes=["a", "b"]).class_names == ("a", "b")


# --------------------------------------------------------------------------------------------------- threads, real data


def test_errors_in_threads_are_those_of_the_first_item() -> None:
    def fail(item: int) -> int:
        if item % 7 == 3:
            raise ValueError(str(item))
        return item

    with pytest.raises(ValueError, match=r"^3$"):
        in_threads(fail, range(1000))
    assert in_threads(fail, []) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_decoding_works_after_a_fork(folder: Path) -> None:
    data = open_dataset(folder)
    expected = data.batch(slice(None)).images.sum()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_total, (data,)).get(timeout=20) == expected


def _total(data: Dataset) -> int:
    return int(data.batch(slice(None)).images.sum())


def test_gtsrb_tracks_are_groups_within_a_class(shared_data: Path) -> None:
    data = open_dataset(shared_data / "gtsrb_train.npz")
    with np.load(shared_data / "gtsrb_train.npz", allow_pickle=False) as arrays:
        pairs = set(zip(arrays["labels"].tolist(), arrays["track"].tolist(), strict=True))
    assert len(set(data.groups)) == len(pairs) == 1307
    assert not any("more than one class" in note for note in data.notes)
    train, test = split_by_group(data, (0.8, 0.2))
    assert not set(train.groups) & set(test.groups)
    assert len(test) == pytest.approx(0.2 * len(data), rel=0.05)
    assert set(test.labels.tolist()) == set(range(43))


def test_real_sets_open(shared_data: Path) -> None:
    data = open_dataset(shared_data / "btsc_test.npz")
    assert (len(data), len(data.class_names)) == (2520, 62)
    assert data.notes[0].startswith("9 of 62 classes have no images")
    digits = open_dataset(shared_data / "mnist_test.npz", classes=[str(i) for i in range(10)])
    assert (digits.channels, digits.size) == (1, (28, 28))
    tiny = open_dataset(shared_data / "tinyimagenet_val.npz")
    assert tiny.batch([0]).boxes.tolist() == [[52, 55, 57, 59]]  # type: ignore[union-attr]
    assert any("5 boxes are empty" in note for note in tiny.notes)


def test_a_path_may_start_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Opening(base=Path("base")).path("~/x") == tmp_path / "x"
    assert Opening(base=Path("base")).path("~nobody-of-this-name/x") == Path("base/~nobody-of-this-name/x")
