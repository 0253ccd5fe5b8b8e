"""Contact sheets of the built-in sets: every class and every condition at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.data.base import Opening
from roadworthy.data.signs import PLACE_CONDITIONS, VIEW_CONDITIONS, VIEWS, BuiltinDataset
from roadworthy.data.signs.traffic_sets import TRAFFIC_SETS

Sheet = NDArray[np.uint8]

LARGE, SMALL, WIDE = 112, 64, 816
"""Sides of the pictures of classes and of conditions, and the width of a sheet, in pixels."""
_GAP, _LINE, _ACROSS = 4, 18, 12
_INK, _FONT, _FONT_SCALE = (30, 30, 30), cv2.FONT_HERSHEY_SIMPLEX, 0.42


def signs_sheet(source: str = "signs", n: int = 2100) -> Sheet:
    """A picture (H, WIDE, 3) of a built-in set: each class once, large, then each condition with all its levels.

    Pictures are taken from the first `n` of the set, in clear daylight but for the condition that is shown: signs from
    near, places from far.

    >>> signs_sheet("scenery", n=90).shape
    (538, 816, 3)
    """
    small = BuiltinDataset(source, Opening(size=SMALL), n=n)
    conditions = {**VIEW_CONDITIONS, **PLACE_CONDITIONS}
    rows = [_condition(small, name, levels) for name, levels in conditions.items()]
    if len(small.class_names) > 1:
        large = small.resized((LARGE, LARGE))
        best = [_best(large, large.labels == label, "near", 1)[0] for label in range(len(large.class_names))]
        lines = [slice(start, start + 7) for start in range(0, len(best), 7)]
        rows = [_row(large, best[line], dict(enumerate(large.class_names[line]))) for line in lines] + rows
    return np.vstack([_heading(f"builtin:{source}"), *rows])


def traffic_sheet(size: int = SMALL) -> Sheet:
    """A picture (H, WIDE, 3) of the traffic sets: a row or two of each, every class in turn, in any condition."""
    across = WIDE // (size + _GAP)
    rows = []
    for source, traffic in TRAFFIC_SETS.items():
        data = BuiltinDataset(source, Opening(size=size), n=3 * across * VIEWS)
        rows.append(_heading(f"builtin:{source}"))
        lines = 2 if len(traffic.class_names) > 2 else 1
        for line in range(lines):
            shown = range(line * across * VIEWS + line, (line + 1) * across * VIEWS, VIEWS)
            names = (str(data.table.conditions["object"][row]) for row in shown)
            captions = {index: name if len(name) < 13 else name.split()[0] for index, name in enumerate(names)}
            rows.append(_row(data, list(shown), captions))
    return np.vstack(rows)


def _condition(data: BuiltinDataset, name: str, levels: Sequence[str]) -> Sheet:
    """A row in which each level of a condition has its share, under its name."""
    per_level = _ACROSS // len(levels)
    distance = "near" if name in VIEW_CONDITIONS else "far"
    rows = [row for level in levels for row in _best(data, data.table.conditions[name] == level, distance, per_level)]
    captions = {index * per_level: level for index, level in enumerate(levels)}
    return np.vstack([_heading(name.replace("_", " ")), _row(data, rows, captions)])


def _best(data: BuiltinDataset, matching: NDArray[np.bool_], distance: str, count: int) -> list[int]:
    """Rows of matching pictures that are clear, by day and at that distance as far as can be, of different classes."""
    best = {"weather": "clear", "time_of_day": "day", "distance": distance}
    marks = sum((data.table.conditions[name] == level).astype(np.int64) for name, level in best.items())
    rows = np.flatnonzero(matching)
    ranked = rows[np.argsort(-np.asarray(marks)[rows], kind="stable")]
    top = ranked[: max(count, int((np.asarray(marks)[rows] == np.asarray(marks)[ranked[0]]).sum()))]
    by_class = top[np.argsort(data.labels[top], kind="stable")]
    positions = (np.arange(count) + 0.5) * len(by_class) / count
    return [int(row) for row in by_class[positions.astype(np.int64)]]


def _row(data: BuiltinDataset, rows: Sequence[int], captions: Mapping[int, str]) -> Sheet:
    """Pictures side by side, with captions above some of them."""
    height, width = data.size
    sheet = np.full((_LINE + height + _GAP, WIDE, 3), 255, dtype=np.uint8)
    for position, image in enumerate(data.batch(list(rows)).images):
        left = _GAP // 2 + position * (width + _GAP)
        sheet[_LINE : _LINE + height, left : left + width] = image
        _write(sheet, captions.get(position, ""), left)
    return sheet


def _heading(text: str) -> Sheet:
    sheet = np.full((_LINE, WIDE, 3), 232, dtype=np.uint8)
    _write(sheet, text, _GAP)
    return sheet


def _write(sheet: Sheet, text: str, left: int) -> None:
    cv2.putText(sheet, text, (left, _LINE - 5), _FONT, _FONT_SCALE, _INK, 1, cv2.LINE_AA)
