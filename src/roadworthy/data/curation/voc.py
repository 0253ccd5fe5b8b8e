"""Pascal VOC: an XML file per image, and lists of the images of each split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from roadworthy.core.errors import InputError
from roadworthy.data.curation.frames import AnnotatedObject, Frame, annotation_format, object_id
from roadworthy.data.curation.reading import (
    BAD_ANNOTATION,
    finite,
    malformed,
    read_lines,
    read_text,
    reason,
    require_folder,
    sorted_files,
    text,
    whole,
)

SPLITS = ("train", "val", "test")


@annotation_format("voc", keep_hidden=("person", "pedestrian", "bicycle"))
def read_voc(root: Path, *, first_pixel: int = 1, difficult: bool = False) -> Iterator[Frame]:
    """The images of `JPEGImages` with their objects from `Annotations/NAME.xml`; splits from `ImageSets/Main`.

    VOC counts pixels from 1 and includes the last one: a box becomes `xmin - 1, ymin - 1, xmax, ymax`. Tools that
    count from 0 need `first_pixel=0`: the box becomes `xmin, ymin, xmax + 1, ymax + 1`. Objects marked as difficult are
    never a main object, unless `difficult` is true. Where `ImageSets/Main` has `train.txt`, `val.txt` or `test.txt`,
    images that none of them names are the split `unlisted`, which curation drops.
    """
    if first_pixel not in (0, 1):
        raise InputError(f"`first_pixel` is the number of the first pixel, 0 or 1, not {first_pixel}")
    annotations = require_folder(root / "Annotations", "VOC keeps an XML file for each image there")
    split_of = _splits(root / "ImageSets" / "Main")
    for path in sorted_files(annotations, ".xml"):
        tree = parse_xml(path)
        line = tree.line
        try:
            size, objects = tree.child("size"), []
            for number, element in enumerate(tree.all("object")):
                line = element.line
                objects.append(_object(object_id(path.stem, number), element, first_pixel, difficult))
            line = size.line
            yield Frame(
                id=path.stem,
                image=root / "JPEGImages" / text(tree.child("filename").text, "filename"),
                width=whole(size.child("width").text, "width"),
                height=whole(size.child("height").text, "height"),
                objects=tuple(objects),
                split=split_of.get(path.stem, "unlisted") if split_of is not None else "",
            )
        except BAD_ANNOTATION as error:
            raise malformed(path, line, reason(error)) from None


def _splits(folder: Path) -> dict[str, str] | None:
    lists = [folder / f"{split}.txt" for split in SPLITS if (folder / f"{split}.txt").is_file()]
    if not lists:
        return None
    split_of: dict[str, str] = {}
    for path in lists:
        for line, words in read_lines(path):
            if words[0] in split_of and split_of[words[0]] != path.stem:
                raise malformed(path, line, f"{words[0]} is also in {split_of[words[0]]}.txt: keep one of the two")
            split_of[words[0]] = path.stem
    return split_of


def _object(name: str, element: Element, first_pixel: int, difficult: bool) -> AnnotatedObject:
    box = element.child("bndbox")
    x0, y0, x1, y1 = (finite(box.child(corner).text, corner) for corner in ("xmin", "ymin", "xmax", "ymax"))
    return AnnotatedObject(
        id=name,
        kind=text(element.child("name").text, "name"),
        box=(x0 - first_pixel, y0 - first_pixel, x1 + 1 - first_pixel, y1 + 1 - first_pixel),
        occluded=_flag(element, "occluded"),
        truncated=_flag(element, "truncated"),
        unusable="marked as difficult" if _flag(element, "difficult") and not difficult else "",
    )


def _flag(element: Element, name: str) -> bool:
    values = [child.text for child in element.all(name)] or ["0"]
    if values[0] not in ("0", "1"):
        raise ValueError(f"{name} must be 0 or 1, not {values[0]!r}")
    return values[0] == "1"


@dataclass
class Element:
    """An element of an XML file: its name, line, text without blanks around it, and children."""

    name: str
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, name: str) -> list[Element]:
        """The children of that name."""
        return [child for child in self.children if child.name == name]

    def child(self, name: str) -> Element:
        """The one child of that name; none, or several, is a `ValueError`."""
        children = self.all(name)
        if len(children) != 1:
            raise ValueError(f"<{self.name}> has {len(children) or 'no'} <{name}>, where one is expected")
        return children[0]


def parse_xml(path: Path) -> Element:
    """The root element of an XML file; broken XML, and any with a DOCTYPE, is an `InputError` with the line."""
    parser = expat.ParserCreate()
    top = Element("", 0)
    open_elements = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        element = Element(name, parser.CurrentLineNumber)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(name: str) -> None:
        element = open_elements.pop()
        element.text = element.text.strip()

    def characters(text: str) -> None:
        open_elements[-1].text += text

    def refuse(*_: object) -> None:
        raise malformed(path, parser.CurrentLineNumber, "a DOCTYPE is not allowed: remove it")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = characters, refuse
    try:
        parser.Parse(read_text(path), True)
    except expat.ExpatError as error:
        raise malformed(path, error.lineno, f"this is not valid XML ({expat.ErrorString(error.code)})") from None
    return top.children[0]
