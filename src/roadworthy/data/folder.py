"""A folder with a subfolder per class."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.validation import find_mode
from roadworthy.data.base import NO_CLASS, Opening
from roadworthy.data.files import FileDataset, Listing
from roadworthy.data.images import SUFFIXES
from roadworthy.data.table import Table, natural_key, some

SPLITS = frozenset({"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"})
"""How folders are called that hold a part of a data set, and no class."""
TOO_HIGH = "is this folder one level too high?"
MOST_FOLDERS = 100_000
"""Folders that are looked into at most, one that links lead to in several ways counted each time."""


class FolderDataset(FileDataset):
    """Images in `root/<class>/.../<file>`; an image's id is its path below `root`, with `/`.

    Classes are the subfolders in natural order, or those of `opening.classes` in that order. `group` is a regular
    expression with one capture, searched in the id: images of a class with the same capture show the same object.
    Where the opening is `unlabelled`, a folder that holds images itself is taken, too.
    """

    def __init__(self, root: str | Path, opening: Opening | None = None, *, group: str | None = None) -> None:
        opening = opening or Opening()
        listing = list_folder(opening.path(root), opening.class_names, group, unlabelled=opening.unlabelled)
        super().__init__(listing, opening)


def list_folder(
    root: Path, classes: Sequence[str] | None = None, group: str | None = None, *, unlabelled: bool = False
) -> Listing:
    """Every image below the class folders, in natural order of their ids; other files are counted in the notes.

    Where `unlabelled`, a folder that holds images itself is taken with all that is below it, without classes.
    """
    check_folder(root)
    top = _entries(root)
    folders = {readable(entry.name): entry for entry in top if _is_folder(entry)}
    if unlabelled and classes is None and (not folders or any(not _kind(entry) for entry in top)):
        return _list_flat(
            root, group, "holds images beside its subfolders: all" if folders else "has no subfolders: its images"
        )
    names = _class_names(root, sorted(folders, key=natural_key), classes)
    left_out = Counter(
        _kind(entry) or "outside the class folders" for entry in top if readable(entry.name) not in folders
    )
    image_files: list[tuple[str, Path, str]] = []
    for name in names:
        start = len(image_files)
        for path, kind in walk(folders[name].path, (_identity(root),)) if name in folders else ():
            if kind:
                left_out[kind] += 1
            else:
                image_files.append((readable(path.relative_to(root).as_posix()), path, name))
        if len(image_files) == start and classes is None:
            raise InputError(
                f"class folder {folders[name].path!r} holds no images: fill it, remove it or give `classes=`"
            )
    level_notes = _check_level(root, names, [image_file[0] for image_file in image_files]) if classes is None else []
    image_files.sort(key=lambda image_file: natural_key(image_file[0]))
    ids = tuple(image_file[0] for image_file in image_files)
    label_of = {name: index for index, name in enumerate(names)}
    table = Table(
        ids=ids,
        labels=np.array([label_of[image_file[2]] for image_file in image_files], dtype=np.int64),
        class_names=names,
        groups=_groups(ids, [image_file[2] for image_file in image_files], group),
    )
    notes = [*level_notes, *table.notes(), *left_out_note(root, left_out)]
    if classes is None and list(names) != sorted(names):
        notes.append(
            f"classes are in natural order ({some(names, 3)}); for a model trained in alphabetical order "
            f"({some(sorted(names), 3)}) give `classes=`"
        )
    return Listing(table=table, paths=tuple(image_file[1] for image_file in image_files), notes=notes)


def _list_flat(root: Path, group: str | None, why: str) -> Listing:
    """Every image of a folder and below it, all of them without a class; `why` they are taken so."""
    image_files: list[tuple[str, Path]] = []
    left_out: Counter[str] = Counter()
    for path, kind in walk(str(root)):
        if kind:
            left_out[kind] += 1
        else:
            image_files.append((readable(path.relative_to(root).as_posix()), path))
    if not image_files:
        raise InputError(f"folder {str(root)!r} holds no images: name one that does")
    image_files.sort(key=lambda image_file: natural_key(image_file[0]))
    ids = tuple(name for name, _ in image_files)
    table = Table(ids, np.zeros(len(ids), np.int64), (NO_CLASS,), _groups(ids, [NO_CLASS] * len(ids), group))
    notes = [f"folder {str(root)!r} {why} are taken without classes"]
    return Listing(table, tuple(path for _, path in image_files), notes=[*notes, *left_out_note(root, left_out)])


def check_folder(root: Path) -> None:
    """Refuse a path that is not a folder."""
    if not stat.S_ISDIR(find_mode(root, "folder")):
        raise InputError(f"there is no folder {str(root)!r}")


def left_out_note(root: Path, left_out: Mapping[str, int]) -> list[str]:
    """A note on how many files of each kind were left out, if any were.

    >>> left_out_note(Path("signs"), {".txt": 2, "hidden": 1})
    ["left out of 'signs': 2 .txt, 1 hidden"]
    """
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
    return [f"left out of {str(root)!r}: {counts}"] if counts else []


def readable(name: str) -> str:
    r"""A file name as valid text: bytes that are not UTF-8 become `\xff`.

    >>> print(readable(os.fsdecode(b"caf\xe9.png")))
    caf\xe9.png
    """
    return os.fsencode(name).decode(errors="backslashreplace")


def _class_names(root: Path, folders: list[str], classes: Sequence[str] | None) -> tuple[str, ...]:
    if not folders:
        raise InputError(
            f"folder {str(root)!r} has no subfolders: put the images of each class into a folder of its own"
        )
    if classes is None:
        return tuple(folders)
    missing = [name for name in classes if name not in folders]
    extra = [name for name in folders if name not in classes]
    if extra:
        lacking = f"; classes without a folder: {some(missing)}" if missing else ""
        if len(missing) == len(classes) and (root / extra[-1] / classes[0]).is_dir():
            lacking += f"; they are folders of {str(root / extra[-1])!r}: name that one"
        raise InputError(f"folders in {str(root)!r} that are not in `classes`: {some(extra)}{lacking}")
    return tuple(classes)


def _check_level(root: Path, names: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Refuse a folder whose subfolders are parts of a data set, not classes; a note where they may be none."""
    inside: dict[str, set[str]] = {name: set() for name in names}
    for image_id in ids:
        top, below, *rest = image_id.split("/")
        if not rest:
            return []
        inside[top].add(below)
    if all(name.lower() in SPLITS for name in names):
        part = max(names, key=lambda name: name.lower().startswith("test"))
        raise InputError(
            f"folder {str(root)!r} holds {some(names)}, which are parts of a data set and no classes: name one of "
            f"them, such as {str(root / part)!r}"
        )
    common = inside[names[0]]
    if len(common) < 2 or any(inside[name] != common for name in names):
        return []
    return [f"every class folder holds the subfolders {some(sorted(common, key=natural_key))} alone: {TOO_HIGH}"]


def level_hint(notes: Sequence[str]) -> str:
    """The end of a message on a wrong number of classes: the note that a folder may be one level too high, if any.

    >>> level_hint(["1 of 3 classes have no images: 'z'"])
    ''
    """
    return next((f"; {note}" for note in notes if note.endswith(TOO_HIGH)), "")


def _groups(ids: Sequence[str], labels: Sequence[str], pattern: str | None) -> tuple[str, ...]:
    """The group of every image: its id, or its class and what the pattern captures."""
    if pattern is None:
        return tuple(ids)
    try:
        search = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InputError(f"group {pattern!r} is not a valid regular expression: {error}") from error
    if search.groups != 1:
        raise InputError(f"group {pattern!r} must have one capture in parentheses, it has {search.groups}")
    matches = [search.search(name) for name in ids]
    missing = [name for name, match in zip(ids, matches, strict=True) if match is None or match[1] is None]
    if missing:
        raise InputError(f"group {pattern!r} does not match {len(missing)} of {len(ids)} images: {some(missing)}")
    return tuple(f"{label}/{match[1]}" for label, match in zip(labels, matches, strict=True) if match)


def walk(
    folder: str, above: tuple[tuple[int, int], ...] = (), entered: Iterator[int] | None = None
) -> Iterator[tuple[Path, str]]:
    """Every file below, with why it is not an image ("" where it is); a link to a folder above is not followed.

    `entered` counts folders: links that lead to the same folders in many ways are refused before they never end.
    """
    entered = entered or itertools.count(1)
    if next(entered) > MOST_FOLDERS:
        raise InputError(f"more than {MOST_FOLDERS:,} folders up to {folder!r}: do links lead to one in many ways?")
    here = _identity(folder)
    if here in above:
        yield Path(folder), "link to a folder above"
        return
    for entry in _entries(folder):
        if _is_folder(entry):
            yield from walk(entry.path, (*above, here), entered)
        else:
            yield Path(entry.path), _kind(entry)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and not entry.name.startswith(".")
    except OSError:  # a link to itself
        return False


def _kind(entry: os.DirEntry[str]) -> str:
    """The kind of a file that is not an image; "" for an image."""
    if entry.name.startswith("."):
        return "hidden"
    path = Path(entry.path)
    try:
        if not entry.is_file(follow_symlinks=False) and path.exists() and not path.is_file():
            return "neither file nor folder"
    except OSError:
        return "not accessible"
    suffix = path.suffix.lower()
    return "" if suffix in SUFFIXES else readable(suffix) or "without suffix"


def _identity(folder: str | Path) -> tuple[int, int]:
    try:
        status = Path(folder).stat()
    except OSError as error:
        raise InputError(f"folder {str(folder)!r} cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise InputError(f"folder {str(folder)!r} cannot be read: {error.strerror}") from error
