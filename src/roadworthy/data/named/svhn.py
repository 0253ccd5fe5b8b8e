"""SVHN: cropped digits of house numbers in MATLAB files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.validation import require_file, require_memory
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.base import Opening
from roadworthy.data.named.layout import array_set, find_home, naming

DIGITS = tuple("0123456789")
TEN = 10
"""How the digit 0 is labelled."""


def open_svhn(
    root: str | Path, opening: Opening | None = None, *, split: Literal["train", "test", "extra"] = "test"
) -> ArrayDataset:
    """SVHN, cropped digits (`test_32x32.mat`): 10 classes, 32x32; `split` train, test or extra."""
    from scipy.io import loadmat, whosmat

    opening = opening or Opening()
    name = f"{split}_32x32.mat"
    path = find_home(opening.path(root), [name], ["SVHN", "svhn"], "SVHN (cropped digits)") / name
    require_file(path, "data file")
    with naming(path, "data file"):
        with path.open("rb") as file:
            shapes = {variable: shape for variable, shape, _ in whosmat(file)}
            shape = shapes.get("X", ())
            if len(shape) != 4 or shape[2] != 3 or 0 in shape or int(np.prod(shapes.get("y", (0,)))) != shape[3]:
                raise InputError(f"it must hold X (32, 32, 3, N) and y (N, 1), not {shapes}")
            require_memory(2 * int(np.prod(shape, dtype=object)), f"data file {str(path)!r}")
            file.seek(0)
            arrays = loadmat(file, variable_names=["X", "y"])
        labels = np.asarray(arrays["y"])
        if labels.dtype.kind not in "iuf" or (labels != np.round(labels)).any():
            raise InputError("its labels y are not whole numbers")
        index = labels.reshape(-1).astype(np.int64)
        images = np.ascontiguousarray(np.asarray(arrays["X"]).transpose(3, 0, 1, 2))
        return array_set(images, np.where(index == TEN, 0, index), DIGITS, opening)
