"""WebDataset shards: tar files in which the files of a sample share a name; read in place, never unpacked."""

from __future__ import annotations

import json
import os
import re
import stat
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, first_line
from roadworthy.core.validation import find_mode, require_file
from roadworthy.data.base import OpenedDataset, Opening
from roadworthy.data.files import FileDataset, Listing
from roadworthy.data.images import SUFFIXES
from roadworthy.data.manifest import RESERVED, table_of
from roadworthy.data.table import natural_key, some, stems

LABELS = ("cls", "json", "txt")
"""Endings of the file that holds the label, the first that a set has."""
JSON_LABELS = ("label", "cls", "class", "target")
MOST_SHARDS = 100_000
LARGEST_TEXT = 2**20
"""Bytes of a label, or of the facts of a sample, at most."""
BLOCK = 512
_BRACES = re.compile(r"\{([^{}]*)\}")
_NUMBERS = re.compile(r"([0-9]+)\.\.([0-9]+)")


def open_webdataset(
    source: str | Path, opening: Opening | None = None, *, image: str | None = None, label: str | None = None
) -> OpenedDataset:
    """WebDataset shards: a .tar file, a pattern such as `test-{000..003}.tar`, or a folder of them; images and labels.

    image  the ending of the images, where a sample has several pictures, such as `seg.png`
    label  the ending of the file with the label, `cls`, `txt` or `json`; a key in it as `json:sign`
    """
    opening = opening or Opening()
    shards = find_shards(source, opening)
    left_out = Counter[str]()
    samples = [sample for shard in shards for sample in _samples(shard, left_out)]
    if not samples:
        raise InputError(f"{str(source)!r} holds no samples: there is no file in its {len(shards)} tar files")
    ending, key = _label_of(samples, label)
    usable = [sample for sample in samples if _images(sample, image)]
    for sample in samples:
        if not _images(sample, image):
            left_out["without an image"] += 1
    if not usable:
        raise InputError(f"{str(source)!r} holds no images ending in {image or 'jpg, png or alike'}")
    columns = _columns(usable, ending, key, label is not None)
    table, notes = table_of(columns, _ids(usable), opening.class_names)
    if left_out:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
        notes.append(f"left out of {len(shards)} shards: {counts}")
    return FileDataset(Listing(table, tuple(_image(sample, image) for sample in usable), notes=notes), opening)


def is_shard_folder(folder: Path) -> bool:
    """Whether a folder holds tar files and no folders."""
    try:
        with os.scandir(folder) as entries:
            names = [(entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith(".")]
    except OSError:  # who opens it as another kind says so
        return False
    return any(name.endswith(".tar") for name, _ in names) and not any(is_folder for _, is_folder in names)


def find_shards(source: str | Path, opening: Opening) -> list[Path]:
    """The tar files that a path, a pattern with braces or a folder stands for, in their order."""
    if "{" in str(source) and not (opening.base / source).exists():
        return [opening.path(name) for name in expand_braces(str(source))]
    path = opening.path(source)
    if not stat.S_ISDIR(find_mode(path, "data")):
        require_file(path, "shard")
        return [path]
    shards = sorted((entry for entry in path.iterdir() if entry.suffix == ".tar"), key=lambda p: natural_key(p.name))
    if not shards:
        packed = [entry.name for entry in path.iterdir() if entry.name.endswith((".tar.gz", ".tgz"))]
        hint = ": unpack .tar.gz files to .tar first" if packed else ""
        raise InputError(f"folder {str(path)!r} holds no .tar files{hint}")
    parts = stems(shard.name for shard in shards)
    if len(parts) > 1:
        raise InputError(
            f"folder {str(path)!r} holds {some(parts)}: write the pattern of one, such as `test-{{000..003}}.tar`"
        )
    return shards


def expand_braces(pattern: str) -> list[str]:
    """The names that a pattern with braces stands for: ranges of numbers, and lists.

    >>> expand_braces("a-{08..10}.tar"), expand_braces("{train,val}.tar")
    (['a-08.tar', 'a-09.tar', 'a-10.tar'], ['train.tar', 'val.tar'])
    """
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    numbers = _NUMBERS.fullmatch(match[1])
    if numbers is not None and len(numbers[1]) < 10 and len(numbers[2]) < 10:
        first, last, width = int(numbers[1]), int(numbers[2]), len(numbers[1])
        if last - first >= MOST_SHARDS:
            raise InputError(f"the pattern {pattern!r} stands for more than {MOST_SHARDS:,} files")
        choices = [f"{number:0{width}d}" for number in range(first, last + 1)]
    else:
        choices = match[1].split(",")
    if not choices:
        raise InputError(f"the pattern {pattern!r} stands for no file: write the smaller number first")
    rests = expand_braces(pattern[match.end() :])
    if len(choices) * len(rests) > MOST_SHARDS:
        raise InputError(f"the pattern {pattern!r} stands for more than {MOST_SHARDS:,} files")
    return [f"{pattern[: match.start()]}{choice}{rest}" for choice in choices for rest in rests]


@dataclass(frozen=True)
class Member:
    """A file in a shard: where its bytes lie."""

    shard: Path
    name: str
    start: int
    size: int

    def read(self) -> bytes:
        """Its bytes."""
        try:
            with self.shard.open("rb") as file:
                file.seek(self.start)
                content = file.read(self.size)
        except OSError as error:
            raise InputError(f"{self} cannot be read: {error.strerror}") from error
        if len(content) != self.size:
            raise InputError(f"{self} cannot be read: the shard was cut while it was used")
        return content

    def text(self) -> str:
        """Its text, which must be short."""
        if self.size > LARGEST_TEXT:
            raise InputError(f"{self} has {self.size:,} bytes, which is too many for a label")
        try:
            return self.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{self} is not UTF-8 text") from None

    def __str__(self) -> str:
        return f"{self.shard.name}:{self.name}"


@dataclass(frozen=True)
class Sample:
    """The files of one name in a shard by their endings."""

    key: str
    shard: str
    members: Mapping[str, Member]


def _samples(shard: Path, left_out: Counter[str]) -> Iterator[Sample]:
    """The samples of a shard, in its order; files of one sample follow each other."""
    key, members = "", dict[str, Member]()
    for name, member in _members(shard, left_out):
        folder, slash, file = name.rpartition("/")
        stem, dot, ending = file.partition(".")
        if not dot or not stem or file.startswith("."):
            left_out["without an ending" if stem else "hidden"] += 1
            continue
        if f"{folder}{slash}{stem}" != key and members:
            yield Sample(key, shard.stem, members)
            members = {}
        key, ending = f"{folder}{slash}{stem}", ending.lower()
        if ending in members:
            raise InputError(f"shard {str(shard)!r} holds {name!r} twice: which one counts is not known")
        members[ending] = member
    if members:
        yield Sample(key, shard.stem, members)


def _members(shard: Path, left_out: Counter[str]) -> Iterator[tuple[str, Member]]:
    """The plain files of a tar file with their names; links and devices are left out, a damaged file is an error."""
    require_file(shard, "shard")
    try:
        size, end = shard.stat().st_size, 0
        with tarfile.open(shard, "r:") as archive:
            for entry in archive:
                if entry.issparse() or entry.offset_data + entry.size > size:
                    raise InputError(f"shard {str(shard)!r} is damaged: {entry.name!r} does not lie in it whole")
                end = entry.offset_data + -(-entry.size // BLOCK) * BLOCK if entry.isreg() else entry.offset_data
                if entry.isreg():
                    yield entry.name, Member(shard, entry.name, entry.offset_data, entry.size)
                elif not entry.isdir():
                    left_out["links" if entry.issym() or entry.islnk() else "devices"] += 1
            _check_end(shard, end)
    except InputError:
        raise
    except (tarfile.TarError, OSError, ValueError, OverflowError, EOFError, RecursionError) as error:
        packed = ": unpack it to .tar first" if shard.suffix in (".gz", ".tgz") else ""
        raise InputError(f"shard {str(shard)!r} is not an intact tar file ({first_line(error)}){packed}") from error


def _check_end(shard: Path, end: int) -> None:
    """Refuse a shard that goes on after its last file with anything but zeros, or has no end: Python ends silently."""
    with shard.open("rb") as file:
        file.seek(end)
        blocks = iter(lambda: file.read(2**20), b"")
        first = next(blocks, b"")
        is_end = len(first) >= BLOCK and not any(block.strip(b"\0") for block in chain([first], blocks))
    if not is_end:
        raise InputError(f"shard {str(shard)!r} is damaged, or was not closed: its end is not that of a tar file")


def _images(sample: Sample, image: str | None) -> list[str]:
    """The endings of the pictures of a sample, or the one asked for where it has it."""
    if image is not None:
        return [ending for ending in sample.members if ending == image.lower().lstrip(".")]
    return [ending for ending in sample.members if f".{ending}" in SUFFIXES]


def _image(sample: Sample, image: str | None) -> Member:
    endings = _images(sample, image)
    if len(endings) > 1:
        raise InputError(f"sample {sample.key!r} has several pictures, {some(endings)}: name one ending as `image`")
    return sample.members[endings[0]]


def _label_of(samples: Sequence[Sample], asked: str | None) -> tuple[str, str]:
    """The ending of the files with labels, and the key in them where they are JSON."""
    endings = {ending for sample in samples for ending in sample.members}
    ending, _, key = (asked or "").lstrip(".").partition(":")
    ending = ending.lower()
    if not ending:
        ending = next((name for name in LABELS if name in endings), "")
    if ending not in endings:
        shown = some(sorted(endings), 10)
        raise InputError(
            f"no sample has a label: there is no .{ending or 'cls, .json or .txt'}; the files end in {shown}"
        )
    if key and ending.rpartition(".")[2] != "json":
        raise InputError(f"label {asked!r}: only a .json file has keys")
    return ending, key


def _ids(samples: Sequence[Sample]) -> list[str]:
    """The names of samples, with that of their shard where a name is used again."""
    keys = [sample.key for sample in samples]
    return keys if len(set(keys)) == len(keys) else [f"{sample.shard}/{sample.key}" for sample in samples]


def _check_agree(label: str, ending: str, fact: Mapping[str, Any], sample: Sample) -> None:
    """Refuse a label that a JSON file contradicts: another number, or another name."""
    key = JSON_LABELS[0]
    other = str(fact.get(key, label))
    if other != label and other.isdecimal() == label.isdecimal():
        raise InputError(
            f"sample {sample.key!r} has the label {label!r} in its .{ending} file and {other!r} in its .json file: say "
            f"which counts with `label: {ending}` or `label: json:{key}`"
        )


def _columns(samples: Sequence[Sample], ending: str, key: str, is_asked: bool) -> dict[str, list[Any]]:
    """The label of every sample, and what else its JSON file says: group, box, conditions."""
    facts = [_facts(sample) for sample in samples]
    names = dict.fromkeys(name for fact in facts for name in fact)
    columns: dict[str, list[Any]] = {"label": []}
    if ending.rpartition(".")[2] == "json":
        key = key or next((name for name in JSON_LABELS if name in names), "")
        if key not in names:
            raise InputError(
                f"no .json file has a label: name its key as `label: json:KEY`; the keys are {some(names)}"
            )
    else:
        key = ""
    for sample, fact in zip(samples, facts, strict=True):
        if key:
            if fact.get(key) is None:
                raise InputError(f"sample {sample.key!r} has no label: its .json file says nothing of {key!r}")
            columns["label"].append(_class(fact[key], sample))
        else:
            if ending not in sample.members:
                raise InputError(
                    f"sample {sample.key!r} has no label: there is no {sample.key}.{ending} beside its other files, "
                    "which follow each other in a shard"
                )
            columns["label"].append(sample.members[ending].text().strip())
            if not is_asked:
                _check_agree(columns["label"][-1], ending, fact, sample)
    used = [name for name in names if name != key and name not in ("label", "id", "path", "mask")]
    for name in used:
        cells = [fact.get(name) for fact in facts]
        if name in RESERVED or all(isinstance(cell, str | int | float | bool | None) for cell in cells):
            columns[name] = cells
    return columns


def _class(label: Any, sample: Sample) -> str | int:
    """A label of a JSON file; what is neither a text nor a whole number is an `InputError`."""
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise InputError(f"sample {sample.key!r}: a label is the name or the number of a class, not {label!r:.60}")
    return label


def _facts(sample: Sample) -> Mapping[str, Any]:
    """What the JSON file of a sample says; nothing where it has none."""
    member = sample.members.get("json")
    if member is None:
        return {}
    try:
        content = json.loads(member.text())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{member} is not valid JSON: {first_line(error)}") from None
    if not isinstance(content, dict):
        return {"label": content} if isinstance(content, str | int) else {}
    return content
