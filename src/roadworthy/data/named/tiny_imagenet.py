"""Tiny ImageNet, 200 classes of photographs of 64x64 pixels, and its corrupted copy Tiny ImageNet-C."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from roadworthy.core.errors import InputError
from roadworthy.core.files import check_name_inside
from roadworthy.core.validation import require_file
from roadworthy.data.base import Opening
from roadworthy.data.files import FileDataset
from roadworthy.data.folder import check_folder, walk
from roadworthy.data.named.cifar import SEVERITIES, check_severity, chosen_corruptions
from roadworthy.data.named.layout import file_set, find_home, naming, read_names, whole_number
from roadworthy.data.table import natural_key

NO_BOX = (float("nan"),) * 4
_CLASS = re.compile("n[0-9]{8}")


def open_tiny_imagenet(
    root: str | Path, opening: Opening | None = None, *, split: Literal["train", "val"] = "val"
) -> FileDataset:
    """Tiny ImageNet: 200 classes in the order of their WordNet numbers, 64x64, with boxes; `split` train or val.

    A class is called by its number and words, as in `n01443537 goldfish, Carassius auratus`. The test part has no
    labels.
    """
    opening = opening or Opening()
    home = find_home(opening.path(root), ["wnids.txt", "words.txt", split], ["tiny-imagenet-200"], "Tiny ImageNet")
    numbers = sorted(read_names(home / "wnids.txt"))
    names = _names(numbers, home / "words.txt")
    rows = _train(home, numbers) if split == "train" else _validation(home)
    ids, labels, boxes = zip(*rows, strict=True) if rows else ((), (), ())
    unknown = sorted({*labels} - {*names})
    if unknown:
        raise InputError(f"{str(home)!r} has images of the class {unknown[0]!r}, which wnids.txt does not name")
    return file_set(
        ids, [home / name for name in ids], [names[label] for label in labels], [*names.values()], opening, boxes=boxes
    )


def open_tiny_imagenet_c(
    root: str | Path,
    opening: Opening | None = None,
    *,
    corruption: str | None = None,
    severity: int | None = None,
    words: str | Path | None = None,
) -> FileDataset:
    """Tiny ImageNet-C: photographs under a `corruption` by name, or `all`, at a `severity` 1 to 5, or all.

    Both are conditions, and copies of one image share a group. Classes are called by their WordNet numbers; with
    `words`, the file `words.txt` of Tiny ImageNet, as there.
    """
    opening = opening or Opening()
    folder = opening.path(root)
    check_folder(folder)
    home = folder / "Tiny-ImageNet-C" if (folder / "Tiny-ImageNet-C").is_dir() else folder
    known = sorted((path.parent.name for path in home.glob("*/1") if path.is_dir()), key=natural_key)
    if not known:
        raise InputError(f"{str(folder)!r} does not hold Tiny ImageNet-C: there is no folder such as fog/1/n01443537")
    kinds = chosen_corruptions(corruption, known, "Tiny ImageNet-C")
    check_severity(severity)
    rows = list[tuple[str, Path, str, int, str, str]]()
    for kind in kinds:
        for number in range(1, SEVERITIES + 1) if severity is None else (severity,):
            check_folder(home / kind / str(number))
            paths = [path for path, other in walk(str(home / kind / str(number))) if not other]
            for path in sorted(paths, key=lambda path: natural_key(path.as_posix())):
                label = path.relative_to(home / kind / str(number)).parts[0]
                if not _CLASS.fullmatch(label):
                    raise InputError(f"image {str(path)!r} does not lie in the folder of a class such as n01443537")
                rows.append((path.relative_to(home).as_posix(), path, kind, number, label, f"{label}/{path.name}"))
    if not rows:
        raise InputError(f"{str(home)!r} holds no image of what was asked for")
    ids, files, corruptions, severities, labels, groups = zip(*rows, strict=True)
    names = _names(sorted({*labels}), None if words is None else opening.path(words))
    texts = [names[label] for label in labels]
    conditions = {"corruption": corruptions, "severity": severities}
    return file_set(ids, files, texts, [*names.values()], opening, groups=groups, conditions=conditions)


def _names(numbers: Sequence[str], words: Path | None) -> dict[str, str]:
    """The name of each class by its WordNet number: the number and its words, or the number alone."""
    if words is None:
        return {number: number for number in numbers}
    lines = [line.partition("\t") for line in read_names(words)]
    words_of = {number: text.strip() for number, _, text in lines}
    return {number: f"{number} {words_of[number]}" if words_of.get(number) else number for number in numbers}


Row = tuple[str, str, Sequence[float]]
"""The path of an image below the folder, the number of its class, its box."""


def _train(home: Path, numbers: Sequence[str]) -> list[Row]:
    rows = list[Row]()
    for number in numbers:
        table = home / "train" / number / f"{number}_boxes.txt"
        boxes = {name: box for name, _, box in _annotations(table, labelled=False)} if table.exists() else {}
        paths = sorted((home / "train" / number / "images").glob("*.JPEG"), key=lambda path: natural_key(path.name))
        rows += [(path.relative_to(home).as_posix(), number, boxes.get(path.name, NO_BOX)) for path in paths]
    return rows


def _validation(home: Path) -> list[Row]:
    rows = _annotations(home / "val" / "val_annotations.txt", labelled=True)
    return [(f"val/images/{name}", label, box) for name, label, box in rows]


def _annotations(path: Path, labelled: bool) -> list[Row]:
    """The lines `file [class] x0 y0 x1 y1` of a file; the last pixel is part of a box."""
    require_file(path, "annotations")
    rows = list[Row]()
    with naming(path, "annotations"):
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
            cells = line.split("\t")
            if len(cells) != 5 + labelled:
                raise InputError(f"line {number} has {len(cells)} values where {5 + labelled} are expected")
            x0, y0, x1, y1 = (whole_number(cell, f"a box in line {number}") for cell in cells[-4:])
            try:
                check_name_inside(cells[0])
            except ValueError:
                raise InputError(f"the file name {cells[0]!r} leads outside its folder") from None
            rows.append((cells[0], cells[1] if labelled else "", (x0, y0, x1 + 1, y1 + 1)))
    return rows
