"""Data of every kind, and served models, from what users have in hand: each in at most five lines of their code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from model_server import serving
from test_ambiguous_input import BOX, Animals, Items, coco, saved, shards, yolo

MOST_LINES = 5
VOC = (
    "<annotation><filename>0.png</filename><size><width>8</width><height>8</height><depth>3</depth></size><object><name>a"
    "</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></object></annotation>"
)


def voc(folder: Path) -> None:
    for name in ("Annotations", "JPEGImages"):
        (folder / name).mkdir()
    (folder / "Annotations" / "0.xml").write_text(VOC)
    Image.new("RGB", (8, 8)).save(folder / "JPEGImages" / "0.png")


def on_disk(folder: Path) -> None:
    saved().save_to_disk(folder / "saved")


KINDS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "Hugging Face, saved": (on_disk, "data = rw.open_dataset('saved')"),
    "Hugging Face, live": (lambda _: {"rows": saved()}, "data = rw.open_dataset(rows)"),
    "torch": (lambda _: {"animals": Animals()}, "data = rw.open_dataset(animals)"),
    "MAITE": (lambda _: {"items": Items()}, "data = rw.open_dataset(items)"),
    "COCO": (coco((1, "a")), "data = rw.open_dataset({'coco': 'test.json', 'images': '.'})"),
    "VOC": (voc, "data = rw.open_dataset({'voc': '.'})"),
    "YOLO": (yolo("names: [a]\n", BOX), "data = rw.open_dataset({'yolo': '.'})"),
    "WebDataset": (shards("test-000.tar", "test-001.tar"), "data = rw.open_dataset('test-{000..001}.tar')"),
}
"""What a user has, made in a folder or live by name, and all that is written to open it."""


@pytest.mark.parametrize("kind", KINDS)
def test_data_is_opened(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, line = KINDS[kind]
    monkeypatch.chdir(tmp_path)
    in_hand = make(tmp_path)
    code = f"import roadworthy as rw\n{line}"
    assert len(code.splitlines()) <= MOST_LINES
    names = in_hand if isinstance(in_hand, dict) else {}
    exec(code, names)
    data = names["data"]
    batch = data.batch(slice(None))
    assert batch.images.shape == (len(data), 8, 8, 3)
    assert {*batch.labels} <= {*range(len(data.class_names))}


def test_a_served_model_is_checked(tmp_path: Path) -> None:
    images = np.repeat(np.array([10, 240], np.uint8), 8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    with serving() as server:
        names = {"address": server.url(), "data": (images, np.repeat([0, 1], 8), ["dark", "bright"])}
        code = "import roadworthy as rw\nreport = rw.check(address, data)"
        assert len(code.splitlines()) <= MOST_LINES
        exec(code, names)
    assert names["report"].ok
