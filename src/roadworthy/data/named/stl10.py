"""STL-10 in its binary version: labelled photographs of 96x96 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.validation import require_file
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.base import Opening
from roadworthy.data.named.layout import array_set, find_home, naming, read_names
from roadworthy.data.row_views import ConvertedRows
from roadworthy.data.rows_on_disk import rows_of_file

SIDE, CHANNELS = 96, 3


def open_stl10(
    root: str | Path, opening: Opening | None = None, *, split: Literal["train", "test"] = "test"
) -> ArrayDataset:
    """STL-10, binary version (`test_X.bin`, `test_y.bin`, `class_names.txt`): 10 classes, 96x96; `split` train or test.

    The unlabelled part has no classes and is not read.
    """
    opening = opening or Opening()
    files = [f"{split}_X.bin", f"{split}_y.bin", "class_names.txt"]
    home = find_home(opening.path(root), files, ["stl10_binary"], "STL-10")
    images, labels = home / files[0], home / files[1]
    for path in (images, labels):
        require_file(path, "data file")
    with naming(images, "data file"):
        size, record = images.stat().st_size, CHANNELS * SIDE * SIDE
        if not size or size % record:
            raise InputError(
                f"it has {size:,} bytes, which is no multiple of {record:,}: it is cut, or not this format"
            )
        rows = rows_of_file(images, (size // record, record))
    with naming(labels, "data file"):
        if labels.stat().st_size != len(rows):
            raise InputError(f"it holds {labels.stat().st_size} labels, but {images.name} {len(rows)} images")
        index = np.frombuffer(labels.read_bytes(), np.uint8).astype(np.int64) - 1
        return array_set(
            ConvertedRows(rows, (SIDE, SIDE, CHANNELS), _upright), index, read_names(home / files[2]), opening
        )


def _upright(block: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Records (M, 27648), a colour after the other and each column by column, as images (M, 96, 96, 3)."""
    return block.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 3, 2, 1)
