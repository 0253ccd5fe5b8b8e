"""The tables of a curation: manifests, images per class and per weather, and what was dropped and why."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from roadworthy.data.curation.selection import Crop, Selection
from roadworthy.data.curation.settings import SPLITS, CurationSettings
from roadworthy.data.table import natural_key

CONDITIONS = ("weather", "scene", "time_of_day")
"""Conditions that every manifest has, blank where the annotations do not have them."""
COLUMNS = (
    *("path", "label", "id", "group", "x0", "y0", "x1", "y1"),
    *("frame", "frame_width", "frame_height", "crop_x0", "crop_y0", "crop_x1", "crop_y1", "horizon", "distance"),
    *("kind", "occluded", "truncated", *CONDITIONS),
)
"""Columns of a manifest; further conditions of the annotations follow."""

Rows = list[list[str]]


def csv_bytes(rows: Iterable[Sequence[str]]) -> bytes:
    """Rows as a CSV file: UTF-8, commas, a line feed after each row."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(errors="backslashreplace")


def crop_path(crop: Crop, images: str) -> str:
    """Where the picture of a crop lies in the output folder: `images/SPLIT/CLASS/ID.png`.

    The class and the id may hold any character; all but letters, digits, dot, dash and underscore are replaced, and
    the name of the file then ends in a hash of the id.
    """
    ending = "png" if images == "png" else "jpg"
    return f"images/{crop.split}/{_plain(crop.label)}/{_safe(crop.object.id)}.{ending}"


def _safe(name: str) -> str:
    """A text as the name of a file, different for different texts.

    >>> _safe("000001_03"), _safe("val/7_00"), len(_safe("x" * 500))
    ('000001_03', 'val_7_00-d0cc584b', 109)
    """
    replaced = _plain(name)
    if replaced == name:
        return name
    return f"{replaced}-{hashlib.blake2b(name.encode(errors='surrogatepass'), digest_size=4).hexdigest()}"


def _plain(name: str) -> str:
    """A text with safe characters alone, at most 100 of them.

    >>> _plain("traffic sign"), _plain("../x")
    ('traffic_sign', '_x')
    """
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100].lstrip(".") or "_"


def manifest_rows(selection: Selection, split: str, settings: CurationSettings) -> Rows:
    """The manifest of a split with its header: a row per crop, in natural order of the ids."""
    others = [name for name in selection.conditions if name not in CONDITIONS]
    rows = [[*COLUMNS, *others]]
    for crop in selection.crops:
        if crop.split == split:
            box = [_number(value) for value in crop.cutout.scaled(crop.box, settings.size)]
            rows.append(
                [
                    *(crop_path(crop, settings.images), crop.label, crop.object.id, crop.group, *box),
                    *(crop.frame.id, str(crop.frame.width), str(crop.frame.height)),
                    *(str(value) for value in crop.cutout.box),
                    *(_optional(crop.frame.horizon), _optional(crop.object.distance)),
                    *(crop.object.kind, _yes_no(crop.object.occluded), _yes_no(crop.object.truncated)),
                    *(crop.frame.conditions.get(name, "") for name in (*CONDITIONS, *others)),
                ]
            )
    return rows


def _number(value: float) -> str:
    """A coordinate with at most four decimals.

    >>> _number(20.0), _number(1 / 3)
    ('20', '0.3333')
    """
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _optional(value: float | None) -> str:
    return "" if value is None else _number(value)


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def class_counts(selection: Selection) -> Rows:
    """Table 1: how many images each class has in each split, with a header."""
    return _counts("class", selection.class_names, selection.crops, lambda crop: crop.label)


def weather_counts(selection: Selection) -> Rows:
    """Table 2: how many images show each weather in each split, with a header; `unknown` where none is annotated."""

    def weather(crop: Crop) -> str:
        return crop.frame.conditions.get("weather") or "unknown"

    names = sorted({weather(crop) for crop in selection.crops}, key=natural_key)
    return _counts("weather", names, selection.crops, weather)


def _counts(first: str, names: Sequence[str], crops: Sequence[Crop], name_of: Callable[[Crop], str]) -> Rows:
    counts = Counter((name_of(crop), crop.split) for crop in crops)
    return [[first, *SPLITS], *([name, *(str(counts[name, split]) for split in SPLITS)] for name in names)]


def dropped_rows(selection: Selection) -> Rows:
    """What was left out, with a header: id of the object, file of its frame, reason."""
    return [["id", "file", "reason"], *([row.id, row.file, row.reason] for row in selection.dropped)]


def printed(rows: Rows) -> list[str]:
    """A table as lines of text: the first column left, the others right.

    >>> printed([["class", "train"], ["car", "12"]])
    ['class  train', 'car       12']
    """
    rows = [[_visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
