"""Draws the contact sheets of docs/signs.md anew: `python docs/images/make_signs.py`."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from roadworthy.data.signs import SETS
from roadworthy.data.signs.sheet import signs_sheet, traffic_sheet

if __name__ == "__main__":
    sheets = {source: signs_sheet(source) for source in SETS} | {"traffic": traffic_sheet()}
    for name, sheet in sheets.items():
        palette = Image.fromarray(sheet).quantize(256, dither=Image.Dither.NONE)
        palette.save(Path(__file__).parent / f"{name}.png", optimize=True)
