"""GTSRB and BelgiumTSC: crops of traffic signs in ppm files, with a CSV file per class that holds their boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roadworthy.core.errors import InputError
from roadworthy.core.files import check_name_inside
from roadworthy.data.base import Opening
from roadworthy.data.files import FileDataset
from roadworthy.data.folder import check_folder
from roadworthy.data.named.layout import file_set, naming, read_table, whole_number
from roadworthy.data.table import natural_key

GTSRB = (
    *("Speed limit (20km/h)", "Speed limit (30km/h)", "Speed limit (50km/h)", "Speed limit (60km/h)"),
    *("Speed limit (70km/h)", "Speed limit (80km/h)", "End of speed limit (80km/h)", "Speed limit (100km/h)"),
    *("Speed limit (120km/h)", "No passing", "No passing for vehicles over 3.5t", "Right-of-way at next intersection"),
    *("Priority road", "Yield", "Stop", "No vehicles", "Vehicles over 3.5t prohibited", "No entry", "General caution"),
    *("Dangerous curve left", "Dangerous curve right", "Double curve", "Bumpy road", "Slippery road"),
    *("Road narrows on the right", "Road work", "Traffic signals", "Pedestrians", "Children crossing"),
    *("Bicycles crossing", "Beware of ice/snow", "Wild animals crossing", "End of all limits", "Turn right ahead"),
    *("Turn left ahead", "Ahead only", "Go straight or right", "Go straight or left", "Keep right", "Keep left"),
    *("Roundabout mandatory", "End of no passing", "End of no passing by vehicles over 3.5t"),
)
"""What the signs say: numbers 0 to 42."""
BTSC = tuple(f"{number:05d}" for number in range(62))
"""BelgiumTSC has no names: its 62 classes are called like their folders."""

GTSRB_TRAIN = (
    "",
    "Final_Training/Images",
    "GTSRB/Final_Training/Images",
    "Training",
    "GTSRB/Training",
    "Images",
    "train",
)
GTSRB_TEST = ("", "Final_Test/Images", "GTSRB/Final_Test/Images", "GTSRB", "Images", "Final_Test", "test")
CLASS_LISTS = "[0-9]*/GT-*.csv"
"""The table of each class, in the folder of the class."""
GTSRB_LIST = "GT-final_test.csv"
NO_TRACKS = (
    "the files of the test part do not say which images show the same sign: each counts as an object of its own, so "
    "bounds may be too narrow"
)
COLUMNS = ("Filename", "Width", "Height", "Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2", "ClassId")
Split = Literal["train", "test"]


@dataclass(frozen=True)
class Crop:
    """An image of a sign: its id, file, class number, box, width in pixels and, where it is known, its track."""

    id: str
    path: Path
    label: int
    box: tuple[int, int, int, int]
    width: int
    track: str

    @property
    def group(self) -> str:
        """The physical sign: its class and track, or the image itself."""
        return f"{self.label:05d}/{self.track}" if self.track else self.id


def open_gtsrb(root: str | Path, opening: Opening | None = None, *, split: Split = "test") -> FileDataset:
    """GTSRB, German traffic signs: 43 classes, boxes, the image's `width` as a condition; `split` train or test.

    Images of one track (a physical sign) are a group in the training part; the test part does not tell tracks. It needs
    `GT-final_test.csv`, which holds the classes.
    """
    opening = opening or Opening()
    folder = opening.path(root)
    check_folder(folder)
    crops = list(_by_class(folder, GTSRB_TRAIN, "GTSRB") if split == "train" else _gtsrb_test(folder))
    return _opened(crops, GTSRB, opening, [] if split == "train" else [NO_TRACKS])


def open_btsc(root: str | Path, opening: Opening | None = None, *, split: Split = "test") -> FileDataset:
    """BelgiumTSC, Belgian traffic signs: 62 classes, boxes, tracks as groups, `width` as a condition; train or test."""
    opening = opening or Opening()
    folder = opening.path(root)
    check_folder(folder)
    name, other = ("Training", "Testing") if split == "train" else ("Testing", "Training")
    if folder.resolve().name in (other, f"BelgiumTSC_{other}") and any(folder.glob(CLASS_LISTS)):
        part, wanted = ("test", "test") if split == "train" else ("training", "train")
        raise InputError(f"{str(folder)!r}: this is the {part} part: say `split: {wanted}`")
    crops = list(_by_class(folder, (name, f"BelgiumTSC_{name}/{name}", f"BelgiumTSC_{name}", ""), "BelgiumTSC"))
    return _opened(crops, BTSC, opening, [])


def _opened(crops: Sequence[Crop], names: tuple[str, ...], opening: Opening, notes: list[str]) -> FileDataset:
    for crop in crops:
        if crop.label >= len(names):
            raise InputError(f"image {str(crop.path)!r} has the class {crop.label}, but there are {len(names)} classes")
    return file_set(
        [crop.id for crop in crops],
        [crop.path for crop in crops],
        [names[crop.label] for crop in crops],
        names,
        opening,
        groups=[crop.group for crop in crops],
        boxes=[crop.box for crop in crops],
        conditions={"width": [crop.width for crop in crops]},
        notes=notes,
    )


def _by_class(root: Path, folders: Sequence[str], what: str) -> Iterator[Crop]:
    """The crops of a folder with a folder per class, each with `GT-<class>.csv`; classes and files in natural order."""
    for folder in folders:
        lists = sorted((root / folder).glob(CLASS_LISTS), key=lambda path: natural_key(path.parent.name))
        if lists:
            break
    else:
        raise InputError(
            f"{str(root)!r} does not hold {what} in its usual layout: there is no 00000/GT-00000.csv, nor in "
            f"{', '.join(folder for folder in folders if folder)} below it"
        )
    for path in lists:
        crops = list(_crops(path, path.parent, f"{path.parent.name}/", tracks=True))
        yield from sorted(crops, key=lambda crop: natural_key(crop.id))


def _gtsrb_test(root: Path) -> Iterator[Crop]:
    homes = [root / folder for folder in GTSRB_TEST]
    table = next((home / GTSRB_LIST for home in homes if (home / GTSRB_LIST).is_file()), None)
    if table is None:
        raise InputError(
            f"{str(root)!r} has no {GTSRB_LIST}, the classes of the test part of GTSRB (it comes in an archive of its "
            "own, GTSRB_Final_Test_GT.zip): put it there, or give the training part with `split: train`"
        )
    images = next((home for home in (table.parent, *homes) if any(home.glob("[0-9]*.ppm"))), table.parent)
    return _crops(table, images, "", tracks=False)


def _crops(table: Path, folder: Path, prefix: str, tracks: bool) -> Iterator[Crop]:
    """The crops that a table names, which lie in a folder; `tracks`: their file names are `track_frame`."""
    with naming(table, "annotations"):
        for row in read_table(table, COLUMNS, ";", "annotations"):
            width, height, x0, y0, x1, y1, label = (whole_number(row[name], name) for name in COLUMNS[1:])
            name = row["Filename"]
            try:
                check_name_inside(name)
            except ValueError:
                raise InputError(f"the file name {name!r} leads outside its folder") from None
            if not (x0 <= x1 <= width and y0 <= y1 <= height):
                raise InputError(f"the box {x0} {y0} {x1} {y1} of {name!r} is not inside its {width}x{height} pixels")
            track = name.rpartition("/")[2].partition("_")[0] if tracks else ""
            yield Crop(prefix + name, folder / name, label, (x0, y0, x1, y1), width, track)
