"""A format of annotations: one CSV file with a line for each object."""

import csv
from itertools import groupby

import roadworthy as rw
from roadworthy.data.curation import AnnotatedObject, Frame, annotation_format, object_id
from roadworthy.data.images import image_size


@annotation_format("box_list")
def read_box_list(root, *, file: str = "boxes.csv"):
    """Frames below a folder with a CSV file of the columns image, kind, x0, y0, x1, y1, sorted by image."""
    path = root / file
    if not path.is_file():
        raise rw.InputError(f"there is no {path}: name the file with `file:` under `options:`")
    with path.open(newline="", encoding="utf-8") as lines:
        for image, rows in groupby(csv.DictReader(lines), key=lambda row: row["image"]):
            height, width = image_size(root / image)
            objects = []
            for row in rows:
                box = tuple(float(row[name]) for name in ("x0", "y0", "x1", "y1"))
                objects.append(AnnotatedObject(object_id(image, len(objects)), row["kind"], box))
            yield Frame(image, root / image, width, height, tuple(objects))
