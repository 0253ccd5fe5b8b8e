"""Reading a run folder: its JSON, tables and pictures, with one clear sentence where one of them cannot be read."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from PIL import Image, ImageStat

from roadworthy.core.errors import DamagedFile, InputError
from roadworthy.core.files import inside
from roadworthy.core.parquet import parquet_table
from roadworthy.core.record import read_recorded, recorded_hash

PICTURE_QUALITY = 85
"""WebP quality at which compression is not seen."""

Row = dict[str, Any]


def read_text(run: Path, name: str) -> str:
    """The text of a file of a run, by its name in it, as it was written."""
    try:
        return read_recorded(run, name).decode("utf-8")
    except DamagedFile:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{run / name} cannot be read: {error}; finish the run first, or check it with roadworthy verify"
        ) from None


def read_json(run: Path, name: str) -> dict[str, Any]:
    """The JSON object that a file of a run holds."""
    try:
        content = json.loads(read_text(run, name))
    except ValueError as error:
        raise InputError(f"{run / name} is not valid JSON: {error}; check the run with roadworthy verify") from None
    if not isinstance(content, dict):
        raise InputError(f"{run / name} does not hold a JSON object; check the run with roadworthy verify")
    return content


def has_table(run: Path, name: str) -> bool:
    """Whether a run holds a table."""
    return inside(run, "tables", f"{name}.parquet").is_file()


def read_arrow(
    run: Path, name: str, source: str | None, columns: Sequence[str] | None = None, encoded: bool = False
) -> Any:
    """A stored table, or its rows of one source, without that column, where a run has several.

    `columns` are those to read, all where it is None. With `encoded`, texts stay dictionaries (`parquet_table`), for
    tables of millions of rows.
    """
    path, sha = inside(run, "tables", f"{name}.parquet"), recorded_hash(run, f"tables/{name}.parquet")
    chosen = columns if columns is None or source is None else ["source", *columns]
    try:
        table = parquet_table(path, chosen, encoded, sha)
        return table if source is None else table.filter(pc.field("source") == source).drop_columns(["source"])
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read: {error}; finish the run first, or check it with roadworthy verify"
        ) from None


def read_rows(run: Path, name: str, source: str | None) -> list[Row]:
    """The rows of a stored table, or those of one source."""
    rows: list[Row] = read_arrow(run, name, source).to_pylist()
    return rows


def number_of(value: Any) -> float:
    """A stored number; NaN where there is none."""
    return math.nan if value is None else float(value)


def media_path(run: Path, name: str) -> Path:
    """Where a stored picture lies: among those of the run, and nowhere else."""
    path = inside(run, "media", name)
    if path.parent != run / "media":
        raise InputError(f"{path} is no picture of the run: check the run with roadworthy verify")
    return path


@dataclass(frozen=True)
class Picture:
    """A stored picture (see `media_path`) of one or several images side by side, read when it is shown."""

    path: Path
    images: int = 1

    @cached_property
    def pixels(self) -> Image.Image:
        """The whole picture."""
        try:
            content = read_recorded(self.path.parent.parent, f"media/{self.path.name}")
            with Image.open(io.BytesIO(content)) as image:
                pixels = image.convert("RGB")
        except DamagedFile:
            raise
        except OSError as error:
            raise InputError(f"{self.path} cannot be shown: {error}; check the run with roadworthy verify") from None
        if not 1 <= self.images <= pixels.width:
            raise InputError(
                f"{self.path} cannot be shown: it is {pixels.width} pixels wide and cannot hold {self.images} images; "
                "check the run with roadworthy verify"
            )
        return pixels

    @property
    def uri(self) -> str:
        """The whole picture as a data URI."""
        return _uri(self.pixels)

    def tile(self, index: int) -> str:
        """One of its images as a data URI."""
        return _uri(self._tile(self.pixels, index))

    @cached_property
    def clearest(self) -> int:
        """The index of the image with the strongest contrast, which stands for the others where one must do."""
        grey = self.pixels.convert("L")
        deviations = [ImageStat.Stat(self._tile(grey, index)).stddev[0] for index in range(self.images)]
        return deviations.index(max(deviations))

    def _tile(self, strip: Image.Image, index: int) -> Image.Image:
        width = strip.width // self.images
        return strip.crop((index * width, 0, (index + 1) * width, strip.height))


def strip_of_squares(path: Path) -> Picture:
    """A picture of square images side by side."""
    width, height = Picture(path).pixels.size
    return Picture(path, max(1, width // height))


def _uri(picture: Image.Image) -> str:
    """A picture as a data URI, compressed for the page; the exact one stays in the run's media folder."""
    content = io.BytesIO()
    picture.save(content, "WEBP", quality=PICTURE_QUALITY, method=4)
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"
