"""Pictures as files: decoded as a viewer shows them, measured by their header alone, resized by one rule.

Pillow decodes (it knows orientation, colour modes and broken files); OpenCV reads 16-bit colour, which Pillow cuts to
its upper byte, and resizes.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError

from roadworthy.core.errors import InputError

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".ppm", ".pgm", ".pbm", ".pnm", ".tif", ".tiff", ".webp", ".gif"}
)
"""File name endings, in lower case, of what counts as an image."""

GREY = frozenset({"1", "L", "LA", "La"})
"""What Pillow calls pictures without colour, but those of 16 bits, whose names begin with I."""

FORMATS = ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP", "GIF")
"""What Pillow may decode: nothing else, since some of its other formats start programs."""

CONVERTED = "stored otherwise than as 8-bit RGB, and converted: "
"""How the note on the pictures of a data set begins that are changed when they are read."""

Source = str | os.PathLike[str] | bytes
Pixels = NDArray[np.uint8]

_ORIENTATION = 0x0112
_TURNED: dict[int, Callable[[NDArray[Any]], NDArray[Any]]] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a.swapaxes(0, 1)[:, ::-1],
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: a.swapaxes(0, 1)[::-1],
}
_SMALL = 2**16
_TURNING_PNG_TEXT = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")
_TURNING_PNG_INFO = ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp")


@dataclass(frozen=True)
class StoredForm:
    """What of a stored picture is not 8-bit RGB: `grey`, some pixels `transparent`, its `highest` value of 16 bits."""

    grey: bool = False
    transparent: bool = False
    highest: int | None = None


def conversion_note(forms: Sequence[StoredForm]) -> list[str]:
    """One note on how many of some pictures were converted, and how; none where all are 8-bit RGB.

    >>> conversion_note([StoredForm(), StoredForm(transparent=True)])
    ['stored otherwise than as 8-bit RGB, and converted: of 2 images 1 partly transparent (laid over white)']
    >>> conversion_note([StoredForm(grey=True, highest=4095)])[0].partition("; ")[2]  # doctest: +ELLIPSIS
    '1 of 16 bits (divided by 257; highest value 4095, 6.2 % of the range, so that pictures are dark: if the camera ...
    """
    transparent, grey = sum(form.transparent for form in forms), sum(form.grey for form in forms)
    deep = [form.highest for form in forms if form.highest is not None]
    parts = [f"{grey} grey (red, green and blue are equal)"] if grey else []
    parts += [f"{transparent} partly transparent (laid over white)"] if transparent else []
    if deep:
        highest, bits = max(deep), max(deep).bit_length()
        dark = f", so that pictures are dark: if the camera has {bits} bits, multiply by {2 ** (16 - bits)} first"
        used = f"highest value {highest}, {highest / 65535:.1%} of the range".replace("%", " %")
        parts.append(f"{len(deep)} of 16 bits (divided by 257; {used}{dark if bits < 16 else ''})")
    return [f"{CONVERTED}of {len(forms)} images {'; '.join(parts)}"] if parts else []


def read(path: str | os.PathLike[str]) -> bytes:
    """The bytes of an image file; one that is empty or cannot be read is an `InputError`."""
    with _naming(path, None):
        return _bytes(path)


def decode(source: Source, size: tuple[int, int] | None = None, name: str | None = None) -> Pixels:
    """The image as uint8 (H, W, 3) RGB, turned as its EXIF orientation says, resized to `size` (H, W) where given.

    Grey, palette, CMYK and 1-bit become RGB; transparency lies over white; 16 bits become 8 by round(v / 257). Whatever
    cannot be read in one certain way (broken, animated, floating point, too many pixels) is an `InputError` that calls
    the file `name` (default: its path).

    >>> buffer = io.BytesIO()
    >>> Image.new("LA", (4, 2), (0, 51)).save(buffer, "PNG")  # black, one fifth opaque
    >>> decode(buffer.getvalue()).shape, decode(buffer.getvalue())[0, 0].tolist()
    ((2, 4, 3), [204, 204, 204])
    """
    with _naming(source, name):
        pixels = _load(_bytes(source), _rgb)
        return pixels if size is None else resize(pixels, size)


def decode_noting(source: Source, name: str | None = None) -> tuple[Pixels, StoredForm]:
    """What `decode` makes of an image file, and how the picture is stored."""
    forms: list[StoredForm] = []

    def convert(image: Image.Image, stored: str, data: bytes) -> Pixels:
        pixels = _rgb(image, stored, data)
        forms.append(_stored_form(image, stored, data))
        return pixels

    with _naming(source, name):
        return _load(_bytes(source), convert), forms[0]


def decode_fast(data: bytes) -> Pixels | None:
    """What OpenCV makes of a file that `decode` can read: two to four times as fast, and the same for plain pictures.

    It cuts 16 bits, drops transparency and lets broken JPEG pass, so it is used only where a check gave the same.
    """
    try:
        pixels = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        return None
    return None if pixels is None else np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def pillow_pixels(image: Image.Image, name: str) -> Pixels:
    """An open Pillow image as uint8, not turned: (H, W, 1) where it is grey, else (H, W, 3) RGB as `decode` makes it.

    >>> pillow_pixels(Image.new("L", (4, 2), 7), "row 0").shape
    (2, 4, 1)
    """
    with _naming(b"", name):
        if not image.size[0] * image.size[1]:
            raise ValueError("it has no pixels")
        return np.array(image)[..., None] if image.mode == "L" else _rgb(image, "", b"")


def pillow_form(image: Image.Image, name: str) -> StoredForm:
    """How the picture is stored that an open Pillow image holds."""
    with _naming(b"", name):
        return _stored_form(image, "", b"")


def decode_mask(source: Source, name: str | None = None) -> NDArray[np.bool_]:
    """The mask (H, W) in an image file: True where any stored value (a palette's index, not its colour) is not zero."""
    with _naming(source, name):
        return _load(_bytes(source), _nonzero)


def image_size(source: Source, name: str | None = None) -> tuple[int, int]:
    """(H, W) as `decode` would deliver, from the header alone; TIFF and turned PNG files are decoded.

    >>> buffer = io.BytesIO()
    >>> Image.new("RGB", (4, 2)).save(buffer, "PNG")
    >>> image_size(buffer.getvalue())
    (2, 4)
    """
    with _naming(source, name), _opened(source) as (image, file):
        return _upright_size(source, image, file)


def header(source: Source, name: str | None = None) -> tuple[tuple[int, int], StoredForm | None]:
    """(H, W) as `image_size` has it, and how the picture is stored; None where its pixels alone tell that.

    >>> buffer = io.BytesIO()
    >>> Image.new("L", (4, 2)).save(buffer, "PNG")
    >>> header(buffer.getvalue())
    ((2, 4), StoredForm(grey=True, transparent=False, highest=None))
    """
    with _naming(source, name), _opened(source) as (image, file):
        size = _upright_size(source, image, file)
        if image.has_transparency_data or image.mode.startswith("I") or ";16" in _stored_mode(image):
            return size, None
        return size, StoredForm(grey=image.mode in GREY)


def _upright_size(source: Source, image: Image.Image, file: IO[bytes]) -> tuple[int, int]:
    if image.format == "TIFF" or (image.format == "PNG" and _png_may_be_turned(image, file)):
        height, width = _load(_bytes(source), _rgb).shape[:2]
        return height, width
    turned = image.format != "PNG" and image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
    return image.size if turned else image.size[::-1]


def resize(image: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """An image (H, W, C) at another size: axes that shrink by area average, axes that grow by linear interpolation.

    >>> resize(np.array([[[0], [100]], [[100], [200]]], dtype=np.uint8), (1, 1)).tolist()
    [[[100]]]
    """
    height, width, channels = image.shape
    smaller = (min(height, size[0]), min(width, size[1]))
    for step, method in ((smaller, cv2.INTER_AREA), (size, cv2.INTER_LINEAR)):
        if image.shape[:2] != step:
            image = cv2.resize(image, step[::-1], interpolation=method).reshape(*step, channels)
    return image


def resize_mask(mask: NDArray[np.bool_], size: tuple[int, int]) -> NDArray[np.bool_]:
    """A mask (H, W) at another size: every pixel takes the value at its centre.

    >>> resize_mask(np.array([[True, False]]), (1, 4)).tolist()
    [[True, True, False, False]]
    """
    if mask.shape == size:
        return mask
    rows, columns = ((2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(mask.shape, size, strict=True))
    return mask[np.ix_(rows, columns)]


def resize_boxes(boxes: NDArray[np.float32], old: NDArray[Any], new: tuple[int, int]) -> NDArray[np.float32]:
    """Boxes (N, 4) of images of sizes `old`, (N, 2) or (2,) as (H, W), in pixels of the `new` size.

    >>> resize_boxes(np.array([[0, 5, 10, 20]], dtype=np.float32), np.array([20, 10]), (40, 40)).tolist()
    [[0.0, 10.0, 40.0, 40.0]]
    """
    factor = np.asarray(new, dtype=np.float64) / np.asarray(old, dtype=np.float64)
    return np.asarray(boxes * np.concatenate([factor[..., ::-1]] * 2, axis=-1), dtype=np.float32)


def _bytes(source: Source) -> bytes:
    data = source if isinstance(source, bytes) else _regular(source).read_bytes()
    if not data:
        raise ValueError("the file is empty")
    return data


def _regular(source: str | os.PathLike[str]) -> Path:
    """The path of a file; a pipe or device would never end."""
    path = Path(source)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError("it is a pipe or device, not a file")
    return path


@contextmanager
def _naming(source: Source, name: str | None) -> Iterator[None]:
    """Turn any error of a decoder into one sentence that names the file."""
    try:
        yield
    except Exception as error:
        shown = name or ("in memory" if isinstance(source, bytes) else os.fspath(source))
        raise InputError(f"image {shown!r} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"it is not an intact {', '.join(FORMATS)} file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rstrip(".") or type(error).__name__


@contextmanager
def _opened(source: Source) -> Iterator[tuple[Image.Image, IO[bytes]]]:
    """A picture whose header alone was read, and its file; a small file is read at once, which is faster."""
    with io.BytesIO(source) if isinstance(source, bytes) else _regular(source).open("rb") as file:
        head = file.read(_SMALL)
        if not head:
            raise ValueError("the file is empty")
        small = io.BytesIO(head) if len(head) < _SMALL else file
        small.seek(0)
        with _open(small) as image:
            yield image, small


def _open(file: IO[bytes]) -> Image.Image:
    try:
        image = Image.open(file, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"it has too many pixels ({error})") from error
    limit, pixels = Image.MAX_IMAGE_PIXELS, image.size[0] * image.size[1]
    if limit is not None and pixels > limit:
        raise ValueError(f"it has too many pixels ({pixels}; at most {limit} are read)")
    if not pixels:
        raise ValueError("it has no pixels")
    # A camera's MPO is a JPEG with previews behind the picture; in all other formats no frame is the picture.
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
        raise ValueError(f"it holds {getattr(image, 'n_frames', 0)} frames; save the right one in a file of its own")
    return image


def _load(data: bytes, convert: Callable[[Image.Image, str, bytes], NDArray[Any]]) -> NDArray[Any]:
    """Decode, convert and turn."""
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ValueError("PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on, which hides broken files; turn it off")
    with _open(io.BytesIO(data)) as image:
        if image.format == "PNG":
            _check_png(data)
        stored = _stored_mode(image)
        image.load()
        orientation = image.getexif().get(_ORIENTATION, 1)
        pixels = convert(image, stored, data)
    return np.ascontiguousarray(_TURNED[orientation](pixels)) if orientation in _TURNED else pixels


def _stored_mode(image: Image.Image) -> str:
    """Pillow's name of the layout in the file, such as `RGB;16B`."""
    tiles = getattr(image, "tile", [])
    arguments = tiles[0][3] if tiles else ""
    return str(arguments[0] if isinstance(arguments, tuple) and arguments else arguments)


def _stored_form(image: Image.Image, stored: str, data: bytes) -> StoredForm:
    """How a picture is stored that was read, by its mode and its pixels."""
    if image.mode.startswith("I"):
        deep = np.array(image)
        hidden = deep == image.info.get("transparency", -1)
        return StoredForm(True, bool(hidden.any()), int(deep[~hidden].max(initial=0)))
    transparent = image.has_transparency_data and np.array(image.convert("RGBA"))[..., 3].min() < 255
    highest = int(_deep_values(data)[..., :3].max()) if ";16" in stored else None
    return StoredForm(image.mode in GREY, bool(transparent), highest)


def _rgb(image: Image.Image, stored: str, data: bytes) -> Pixels:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        deep = np.array(image)
        deep[deep == image.info.get("transparency", -1)] = 65535
        return np.repeat(_eight_bits(deep)[..., None], 3, axis=2)
    if ";16" in stored:
        return _eight_bits(_deep_colour(image, stored, data))
    if image.mode in ("I", "F"):
        raise ValueError("its pixels are 32-bit numbers of unknown range; save it with 8 or 16 bits")
    if image.has_transparency_data:
        return _eight_bits(_over_white(np.asarray(image.convert("RGBA")).astype(np.uint32) * 257))
    return np.array(image.convert("RGB"))


def _deep_colour(image: Image.Image, stored: str, data: bytes) -> NDArray[np.uint32]:
    """16-bit colour (H, W, 3), read by OpenCV; it turns TIFF files its own way, so only upright ones are taken."""
    if image.format != "PNG" and not stored.startswith("RGB;16"):
        raise ValueError("16-bit colour with transparency is read from PNG alone; save it as PNG")
    if image.format == "TIFF" and getattr(image, "tag_v2", {}).get(_ORIENTATION, 1) != 1:
        raise ValueError("a turned 16-bit TIFF is not read; save it upright or as PNG")
    pixels = _deep_values(data)
    channels = [2, 1, 0, 3][: pixels.shape[2]]
    deep: NDArray[np.uint32] = pixels[..., channels].astype(np.uint32)
    return _over_white(deep) if deep.shape[2] == 4 else deep


def _deep_values(data: bytes) -> NDArray[np.uint16]:
    """The values (H, W, 3 or 4) of a 16-bit colour picture, blue first."""
    pixels = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype != np.uint16 or pixels.ndim != 3 or pixels.shape[2] not in (3, 4):
        raise ValueError("its 16-bit colour layout is not known; save it with 8 bits")
    return np.asarray(pixels, np.uint16)


def _over_white(rgba: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """16-bit RGBA over white: round(colour * alpha + white * (1 - alpha))."""
    colour, alpha = rgba[..., :3].astype(np.uint64), rgba[..., 3:].astype(np.uint64)
    return ((colour * alpha + 65535 * (65535 - alpha) + 32767) // 65535).astype(np.uint32)


def _eight_bits(deep: NDArray[Any]) -> Pixels:
    """round(v / 257): 65535 becomes 255."""
    return ((deep.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _nonzero(image: Image.Image, stored: str, data: bytes) -> NDArray[np.bool_]:
    if image.has_transparency_data and image.mode != "P":
        raise ValueError("a mask must not be transparent; save it as grey, zero where there is no object")
    values = np.asarray(image)
    return np.asarray(values if values.ndim == 2 else values.any(axis=2), dtype=np.bool_)


def _png_may_be_turned(image: Image.Image, file: IO[bytes]) -> bool:
    """Whether a PNG has metadata that can turn it, before its pixels (Pillow has seen it) or after (in the tail)."""
    if any(key in image.info for key in _TURNING_PNG_INFO):
        return True
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 65536))
    tail = file.read()
    return any(text in tail for text in _TURNING_PNG_TEXT)


def _check_png(data: bytes) -> None:
    """Check what Pillow skips: the sums of the chunks that make the picture, and that the last one is there."""
    start = 8
    while start + 12 <= len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4])
        kind, total = data[start + 4 : start + 8], data[end - 4 : end]
        if kind in (b"IHDR", b"PLTE", b"IDAT", b"IEND"):
            if int.from_bytes(total) != zlib.crc32(memoryview(data)[start + 4 : end - 4]):
                raise ValueError("it is truncated" if end > len(data) else "its checksum is wrong")
            if kind == b"IEND":
                return
        start = end
    raise ValueError("it is truncated")
