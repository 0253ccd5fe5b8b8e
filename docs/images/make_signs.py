"""Draws the contact sheets of docs/signs.md anew: `python docs/images/make_signs.py`."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from roadworthy.data.signs import SETS
from roadworthy.data.signs.sheet import signs_sheet

if __name__ == "__main__":
    for source in SETS:
        palette = Image.fromarray(signs_sheet(source)).quantize(256, dither=Image.Dither.NONE)
        palette.save(Path(__file__).parent / f"{source}.png", optimize=True)
