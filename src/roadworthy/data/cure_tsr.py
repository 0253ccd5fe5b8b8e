"""Crops of traffic signs in the files of CURE-TSR, whose names say what they show and what was done to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.data.base import Opening
from roadworthy.data.files import FileDataset, Listing
from roadworthy.data.folder import check_folder, left_out_note, readable, walk
from roadworthy.data.table import Table, by_name, natural_key, some

SEQUENCES = ("real", "unreal")
"""Photographed or simulated: numbers 01 and 02."""
SIGNS = (
    *("speed limit", "goods vehicles", "no overtaking", "no stopping", "no parking", "stop", "bicycle"),
    *("hump", "no left", "no right", "priority to", "no entry", "yield", "parking"),
)
"""What a sign says: numbers 01 to 14."""
CHALLENGES = (
    *("none", "decolorization", "lens blur", "codec error", "darkening", "dirty lens", "exposure"),
    *("gaussian blur", "noise", "rain", "shadow", "snow", "haze"),
)
"""What was done to the picture: numbers 00 to 12."""
STRONGEST = 5
ALL_SEQUENCES, ALL_CHALLENGES = "both", "all"

UNKNOWN_OBJECTS = (
    "the file names do not say which crops show the same sign: each counts as an object of its own, so bounds may be "
    "too narrow"
)

_NAME = re.compile(r"(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d+)", re.ASCII)
_RANGES = ((1, len(SEQUENCES)), (1, len(SIGNS)), (0, len(CHALLENGES) - 1), (0, STRONGEST))


@dataclass(frozen=True)
class Crop:
    """What the name `sequence_sign_challenge_level_index` of a file says.

    >>> Crop.of("01_06_09_03_0012")
    Crop(sequence='real', sign='stop', challenge='rain', level=3, index='0012')
    """

    sequence: str
    sign: str
    challenge: str
    level: int
    index: str

    @classmethod
    def of(cls, stem: str) -> Crop | None:
        """The crop of that file name without its suffix; None where CURE-TSR does not name files so."""
        match = _NAME.fullmatch(stem)
        if match is None:
            return None
        numbers = [int(number) for number in match.groups()[:4]]
        if not all(low <= number <= high for number, (low, high) in zip(numbers, _RANGES, strict=True)):
            return None
        sequence, sign, challenge, level = numbers
        return cls(SEQUENCES[sequence - 1], SIGNS[sign - 1], CHALLENGES[challenge], level, match[5])

    @property
    def conditions(self) -> dict[str, Any]:
        """The conditions under which it was seen."""
        return {"sequence": self.sequence, "challenge": self.challenge, "level": self.level}

    @property
    def group(self) -> str:
        """The crop itself, under whatever challenge."""
        return f"{self.sequence}/{self.sign}/{self.index}"


Choice = tuple[str | None, str | None, int | None]
"""The sequence, challenge and level of the crops to open; None stands for all."""


def parse_choice(sequence: str, challenge: int | str, level: int | None) -> Choice:
    """The choice as a user writes it, challenges by name or number."""
    if sequence not in (*SEQUENCES, ALL_SEQUENCES):
        raise UnknownName("sequence of CURE-TSR", str(sequence), (*SEQUENCES, ALL_SEQUENCES))
    if isinstance(challenge, int) and not isinstance(challenge, bool) and 0 <= challenge < len(CHALLENGES):
        challenge = CHALLENGES[challenge]
    if challenge not in (*CHALLENGES, ALL_CHALLENGES):
        numbered = [f"{number} {name}" for number, name in enumerate(CHALLENGES)]
        raise UnknownName("challenge of CURE-TSR", str(challenge), (*numbered, ALL_CHALLENGES))
    if level is not None and (isinstance(level, bool) or level not in range(1, STRONGEST + 1)):
        raise InputError(f"level is a number from 1 to {STRONGEST}, or left out for all, not {level!r}")
    if level is not None and challenge == CHALLENGES[0]:
        raise InputError("level is for images with a challenge: name one, or leave the level out")
    chosen_challenge = None if challenge == ALL_CHALLENGES else str(challenge)
    return None if sequence == ALL_SEQUENCES else sequence, chosen_challenge, level


class CureTsrDataset(FileDataset):
    """CURE-TSR: crops of 14 kinds of signs, by their file names; with the conditions sequence, challenge and level.

    sequence   "real" (default), "unreal" or "both"
    challenge  a number or name of `CHALLENGES` (default 0, none), or "all"
    level      1 to 5, or None for all
    """

    def __init__(
        self,
        root: str | Path,
        opening: Opening | None = None,
        *,
        sequence: str = SEQUENCES[0],
        challenge: int | str = 0,
        level: int | None = None,
    ) -> None:
        opening = opening or Opening()
        choice = parse_choice(sequence, challenge, level)
        super().__init__(list_cure_tsr(opening.path(root), choice, opening.class_names), opening)


def list_cure_tsr(root: Path, choice: Choice, classes: Sequence[str] | None = None) -> Listing:
    """The chosen crops below `root`, in natural order of their paths; an image with another name is an error."""
    check_folder(root)
    left_out, others = Counter[str](), Counter[str]()
    crop_files, misnamed = list[tuple[str, Path, Crop]](), list[str]()
    for path, kind in walk(str(root)):
        if kind:
            left_out[kind] += 1
        elif (crop := Crop.of(path.stem)) is None:
            misnamed.append(readable(path.relative_to(root).as_posix()))
        elif all(chosen in (None, value) for chosen, value in zip(choice, crop.conditions.values(), strict=True)):
            crop_files.append((readable(path.relative_to(root).as_posix()), path, crop))
        else:
            others[f"{crop.sequence} images with challenge {crop.challenge}"] += 1
    if misnamed:
        raise InputError(
            f"{len(misnamed)} images in {str(root)!r} are not named as in CURE-TSR, sequence_sign_challenge_level_"
            f"index such as 01_06_00_00_0001.bmp: {some(sorted(misnamed, key=natural_key))}"
        )
    if not crop_files:
        present_kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(others.items())) or "no images"
        raise InputError(f"{str(root)!r} holds none of the images asked for; it holds {present_kinds}")
    crop_files.sort(key=lambda crop_file: natural_key(crop_file[0]))
    crops = [crop for *_, crop in crop_files]
    labels, class_names = by_name([crop.sign for crop in crops], classes or SIGNS)
    table = Table(
        ids=tuple(name for name, *_ in crop_files),
        labels=labels,
        class_names=class_names,
        groups=tuple(crop.group for crop in crops),
        conditions={name: np.array([crop.conditions[name] for crop in crops]) for name in crops[0].conditions},
    )
    notes = [*table.notes(), UNKNOWN_OBJECTS, *left_out_note(root, left_out + others)]
    return Listing(table=table, paths=tuple(path for _, path, _ in crop_files), notes=notes)
