"""The pictures of a curation: crops cut from frames and scaled, their files, and a contact sheet with boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, foreign_code
from roadworthy.data.curation.cutouts import Cutout
from roadworthy.data.curation.frames import Frame
from roadworthy.data.curation.selection import Crop
from roadworthy.data.images import decode, resize

THUMBNAIL, COLUMNS, GAP, LINE_HEIGHT = 160, 8, 6, 16
FONT, FONT_SCALE = cv2.FONT_HERSHEY_SIMPLEX, 0.4
WHITE, INK, FRAME_COLOUR = (255, 255, 255), (30, 30, 30), (255, 0, 80)
PNG_COMPRESSION = 4

Picture = NDArray[np.uint8]


def frame_picture(frame: Frame) -> Picture:
    """The picture of a frame, uint8 (H, W, 3) RGB; one of another size than annotated is an `InputError`."""
    if isinstance(frame.image, Path):
        picture = decode(frame.image)
    else:
        with foreign_code(lambda error: InputError(f"the picture of frame {frame.id!r} cannot be read: {error}")):
            picture = frame.image()
    if picture.shape != (frame.height, frame.width, 3) or picture.dtype != np.uint8:
        shown = f"image {str(frame.image)!r}" if isinstance(frame.image, Path) else f"picture of frame {frame.id!r}"
        raise InputError(
            f"the {shown} has {picture.shape[1]} x {picture.shape[0]} pixels, but its "
            f"annotations are for {frame.width} x {frame.height}: use the pictures that were annotated"
        )
    return picture


def cut(picture: Picture, cutout: Cutout, size: int) -> Picture:
    """The cut-out of a picture at size x size: shrunk by area average, enlarged by linear interpolation.

    >>> cut(np.zeros((48, 64, 3), np.uint8), Cutout(10, 8, 40), 16).shape
    (16, 16, 3)
    """
    x0, y0, side = cutout.x0, cutout.y0, cutout.side
    part = np.ascontiguousarray(picture[y0 : y0 + side, x0 : x0 + side])
    return np.asarray(resize(part, (size, size)), dtype=np.uint8)


def encode(picture: Picture, images: str, quality: int) -> bytes:
    """The bytes of an image file: PNG, or JPEG of that quality."""
    flags = [cv2.IMWRITE_PNG_COMPRESSION, PNG_COMPRESSION] if images == "png" else [cv2.IMWRITE_JPEG_QUALITY, quality]
    done, data = cv2.imencode(".png" if images == "png" else ".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), flags)
    if not done:
        raise InputError("a picture cannot be encoded: choose images: png")
    return bytes(data)


def sheet_crops(crops: Sequence[Crop], class_names: Sequence[str]) -> list[list[Crop]]:
    """The crops that the contact sheet shows: of every class the few of lowest rank, which is a random choice."""
    rows = []
    for name in class_names:
        of_class = sorted((crop for crop in crops if crop.label == name), key=lambda crop: (crop.rank, crop.object.id))
        if of_class:
            rows.append(of_class[:COLUMNS])
    return rows


def contact_sheet(rows: Sequence[Sequence[tuple[Crop, Picture]]], size: int) -> Picture:
    """A picture with a row of thumbnails per class, the box of each drawn in, its class, split and id below."""
    height, width = THUMBNAIL + 2 * LINE_HEIGHT + GAP, THUMBNAIL + GAP
    columns = max((len(row) for row in rows), default=1)
    sheet = np.full((GAP + len(rows) * height, GAP + columns * width, 3), WHITE, dtype=np.uint8)
    for row_number, row in enumerate(rows):
        for column, (crop, picture) in enumerate(row):
            top, left = GAP + row_number * height, GAP + column * width
            thumbnail = np.ascontiguousarray(resize(picture, (THUMBNAIL, THUMBNAIL)))
            x0, y0, x1, y1 = (round(value) for value in crop.cutout.scaled(crop.box, THUMBNAIL))
            cv2.rectangle(thumbnail, (x0, y0), (max(x1 - 1, x0), max(y1 - 1, y0)), FRAME_COLOUR, 1)
            sheet[top : top + THUMBNAIL, left : left + THUMBNAIL] = thumbnail
            for line, text in enumerate((f"{crop.label}, {crop.split}", crop.object.id)):
                caption = np.full((LINE_HEIGHT, THUMBNAIL, 3), WHITE, dtype=np.uint8)
                cv2.putText(caption, _fitting(text), (0, LINE_HEIGHT - 5), FONT, FONT_SCALE, INK, 1, cv2.LINE_AA)
                below = top + THUMBNAIL + line * LINE_HEIGHT
                sheet[below : below + LINE_HEIGHT, left : left + THUMBNAIL] = caption
    return sheet


def _fitting(text: str) -> str:
    """The end of a text, as much of it as is as wide as a thumbnail; characters that the font lacks become ?."""
    plain = text.encode("ascii", "replace").decode()
    while cv2.getTextSize(plain, FONT, FONT_SCALE, 1)[0][0] > THUMBNAIL:
        plain = plain[1:]
    return plain
