"""A kind of data: a contact sheet for each class, cut into its images."""

from pathlib import Path

import cv2
import numpy as np

import roadworthy as rw
from roadworthy.data import DATA
from roadworthy.data.arrays import from_arrays


@DATA.register("sheets")
def open_sheets(source, opening, *, side: int = 32):
    """A folder with CLASS.png for each class, whose tiles of `side` pixels are its images: `{sheets: folder}`."""
    folder = opening.path(source)
    images, labels, names = [], [], []
    for path in sorted(Path(folder).glob("*.png")):
        sheet = cv2.imread(str(path))
        if sheet is None or sheet.shape[0] % side or sheet.shape[1] % side:
            raise rw.InputError(f"{path} is not a sheet of tiles of {side} pixels: give their size with `side:`")
        tiles = sheet[..., ::-1].reshape(sheet.shape[0] // side, side, -1, side, 3).swapaxes(1, 2)
        images.append(tiles.reshape(-1, side, side, 3))
        labels += [len(names)] * len(images[-1])
        names.append(path.stem)
    if not names:
        raise rw.InputError(f"{folder} holds no contact sheets: put CLASS.png into it for each class")
    return from_arrays(np.concatenate(images), labels, names, opening)
