"""From annotated frames to a folder of crops: chosen, cut, written beside the target and put in place at the end."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.files import TEMPORARY, json_bytes, remove
from roadworthy.core.hashing import digest_file
from roadworthy.data.curation.frames import Frame, read_frames
from roadworthy.data.curation.pictures import Picture, contact_sheet, cut, encode, frame_picture, sheet_crops
from roadworthy.data.curation.selection import Crop, Selection, select
from roadworthy.data.curation.settings import SPLITS, CurationSettings
from roadworthy.data.curation.tables import (
    class_counts,
    crop_path,
    csv_bytes,
    dropped_rows,
    manifest_rows,
    printed,
    weather_counts,
)
from roadworthy.data.table import some

RECORD = "curation.json"
SCHEMA = 1
LIBRARIES = ("roadworthy", "numpy", "opencv-python-headless", "pillow")
"""Packages whose version decides about the bytes of the result."""
MAY_CHANGE = ("rejected", "corrected")
"""Settings that may differ when a curation is done again into its folder: what inspection by hand brings."""

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar from a title and a total (0: unknown); what it yields is told about each advance."""


def no_bar(title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """A progress bar that shows nothing."""
    return nullcontext(lambda amount: None)


@dataclass(frozen=True)
class Curation:
    """What a curation chose, and where it was written: None for a dry run."""

    selection: Selection
    settings: CurationSettings
    out: Path | None

    def counts(self) -> dict[str, Any]:
        """The numbers of the record: frames, objects, crops, dropped by reason, images per split."""
        crops = self.selection.crops
        return {
            "frames": self.selection.frames,
            "objects": self.selection.objects,
            "crops": len(crops),
            "splits": {split: sum(crop.split == split for crop in crops) for split in SPLITS},
            "dropped": self.selection.reasons(),
        }

    def lines(self) -> list[str]:
        """What the command line prints: both tables, what was dropped and why, and where the files are."""
        counts = self.counts()
        dropped = [f"{count:>9,}  {reason}" for reason, count in counts["dropped"].items()]
        return [
            f"{counts['crops']:,} crops of {counts['objects']:,} objects in {counts['frames']:,} frames",
            *("", "Images per class", *printed(class_counts(self.selection))),
            *("", "Images per weather", *printed(weather_counts(self.selection))),
            *(["", f"Dropped objects: {len(self.selection.dropped):,}", *dropped] if dropped else []),
            "",
            "dry run: nothing was written" if self.out is None else f"the crops are in {self.out}",
        ]


def curate(
    settings: CurationSettings,
    out: Path | None,
    *,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Bar = no_bar,
) -> Curation:
    """Choose, cut and write the crops of annotated frames; with `dry_run` only choose and count them.

    The folder `out` is written whole or not at all: first beside itself, then renamed. A folder that holds something
    else is refused; one of the same settings (apart from rejected ids and corrected boxes) is replaced. Workers,
    the order of frames and the machine change no byte of the result.
    """
    settings = settings.complete()
    if not dry_run:
        if out is None:
            raise InputError("no folder is given for the crops: name it with `out=`, or count only with `dry_run=True`")
        _check_target(out, settings)
    root = Path(settings.root)
    if root.is_file():
        raise InputError(f"{root} is a file: unpack it if it is an archive, and name the folder with the annotations")
    if not root.exists():
        raise InputError(f"there is no folder {root} with annotations: name the one that holds them")
    with progress("reading annotations", 0) as advance:
        selection = select(_counted(read_frames(settings.format, root, settings.options), advance), settings, root)
    if dry_run or out is None:
        return Curation(selection, settings, None)
    if not selection.crops:
        reasons = some(selection.reasons())
        raise InputError(f"no object is left to crop: all {selection.objects} were dropped ({reasons}); see `dry_run=`")
    _check_images(selection)
    curation = Curation(selection, settings, out)
    _remove_leftovers(out)
    beside = out.with_name(f".{out.name}.{os.getpid()}{TEMPORARY}")
    try:
        beside.mkdir(parents=True)
        _write(curation, beside, workers or os.cpu_count() or 1, progress)
        _put_in_place(beside, out)
    finally:
        if beside.exists():
            remove(beside)
    return curation


def _remove_leftovers(out: Path) -> None:
    """Remove folders beside the target that a killed process was writing into."""
    for path in out.parent.glob(f".{glob.escape(out.name)}.*{TEMPORARY}"):
        process = path.name.removesuffix(TEMPORARY).rpartition(".")[2]
        if process.isdecimal() and (int(process) == os.getpid() or not _is_running(int(process))):
            remove(path)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _counted(frames: Iterator[Frame], advance: Callable[[int], None]) -> Iterator[Frame]:
    for frame in frames:
        yield frame
        advance(1)


def _check_target(out: Path, settings: CurationSettings) -> None:
    """Refuse an output folder that holds anything but an earlier result of these settings."""
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is a file: name a new folder for the crops")
    if not any(out.iterdir()):
        return
    again = "name a new folder, or remove this one"
    try:
        stored = json.loads((out / RECORD).read_text(encoding="utf-8"))["settings"]
        differing = [
            name
            for name, value in _comparable(settings).items()
            if name not in MAY_CHANGE and json.dumps(stored.get(name)) != json.dumps(value)
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"the folder {out} is not empty and holds no curation: {again}") from None
    if differing:
        raise InputError(f"the folder {out} holds a curation with another setting of {differing[0]!r}: {again}")


def _comparable(settings: CurationSettings) -> dict[str, Any]:
    """The settings as they stand in the record."""
    stored: dict[str, Any] = json.loads(settings.model_dump_json())
    return stored


def _check_images(selection: Selection) -> None:
    """Refuse to begin where the image of a chosen frame is not there."""
    images = {crop.frame.image for crop in selection.crops if isinstance(crop.frame.image, Path)}
    absent = sorted(str(image) for image in images if not image.is_file())
    if absent:
        raise InputError(f"{len(absent)} of {len(images)} images are not there: {some(absent, 3)}; put them there")


def _write(curation: Curation, folder: Path, workers: int, progress: Bar) -> None:
    selection, settings = curation.selection, curation.settings
    shown = sheet_crops(selection.crops, selection.class_names)
    pictures = _write_crops(
        selection, settings, {crop.object.id for row in shown for crop in row}, folder, workers, progress
    )
    files = {f"{split}.csv": csv_bytes(manifest_rows(selection, split, settings)) for split in SPLITS}
    files = {name: content for name, content in files.items() if content.count(b"\n") > 1}
    files["classes.txt"] = "".join(f"{name}\n" for name in selection.class_names).encode()
    files["images_per_class.csv"] = csv_bytes(class_counts(selection))
    files["images_per_weather.csv"] = csv_bytes(weather_counts(selection))
    files["dropped.csv"] = csv_bytes(dropped_rows(selection))
    sheet = contact_sheet([[(crop, pictures[crop.object.id]) for crop in row] for row in shown], settings.size)
    files["contact_sheet.png"] = encode(sheet, "png", 0)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    lists = {name: getattr(settings, name) for name in MAY_CHANGE}
    record = {
        "schema": SCHEMA,
        "settings": _comparable(settings),
        "lists": {name: digest_file(Path(path)) for name, path in lists.items() if path is not None},
        "versions": {name: version(name) for name in LIBRARIES},
        "counts": curation.counts(),
    }
    (folder / RECORD).write_bytes(json_bytes(record))


def _write_crops(
    selection: Selection, settings: CurationSettings, shown: set[str], folder: Path, workers: int, progress: Bar
) -> dict[str, Picture]:
    """Write every crop; gives the pictures of those that the contact sheet shows, by the id of their object."""
    for path in {(folder / crop_path(crop, settings.images)).parent for crop in selection.crops}:
        path.mkdir(parents=True, exist_ok=True)

    def work(parts: Sequence[Sequence[Crop]]) -> dict[str, Picture]:
        pictures = {}
        for crops in parts:
            frame = frame_picture(crops[0].frame)
            for crop in crops:
                picture = cut(frame, crop.cutout, settings.size)
                content = encode(picture, settings.images, settings.quality)
                (folder / crop_path(crop, settings.images)).write_bytes(content)
                if crop.object.id in shown:
                    pictures[crop.object.id] = picture
        return pictures

    pictures: dict[str, Picture] = {}
    with progress("cutting crops", len(selection.crops)) as advance, ThreadPoolExecutor(workers) as pool:
        sequences = _by_sequence(selection.crops)
        pending = [(pool.submit(work, parts), sum(map(len, parts))) for parts in sequences]
        try:
            for future, count in pending:
                pictures |= future.result()
                advance(count)
        finally:
            for future, _ in pending:
                future.cancel()
    return pictures


def _by_sequence(crops: Sequence[Crop]) -> list[list[list[Crop]]]:
    """The crops of each sequence, and in it those of each frame, in the order in which frames were read."""
    sequences: dict[str, dict[str, list[Crop]]] = {}
    for crop in sorted(crops, key=lambda crop: crop.position):
        frames = sequences.setdefault(crop.frame.sequence or f"frame {crop.frame.id}", {})
        frames.setdefault(crop.frame.id, []).append(crop)
    return [list(frames.values()) for frames in sequences.values()]


def _put_in_place(beside: Path, out: Path) -> None:
    """Rename the finished folder to its name; what was there, an earlier result, is removed after that.

    Where the renaming fails, or is interrupted, the earlier result gets its name back.
    """
    if not out.exists():
        beside.rename(out)
        return
    earlier = out.with_name(f".{out.name}.earlier.{os.getpid()}{TEMPORARY}")
    try:
        out.rename(earlier)
        beside.rename(out)
    except BaseException:
        if earlier.exists() and not out.exists():
            earlier.rename(out)
        raise
    remove(earlier)
