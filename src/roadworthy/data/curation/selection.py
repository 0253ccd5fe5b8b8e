"""Which objects become crops: the rules in their order, each with the reason that a dropped object is listed under."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from roadworthy.core.errors import InputError, UnreadableFile
from roadworthy.core.random import Streams
from roadworthy.core.validation import require_file
from roadworthy.data.curation.cutouts import Cutout, area, clipped, random_cutout, touches_edge, union_area
from roadworthy.data.curation.frames import READERS, AnnotatedObject, Box, Frame
from roadworthy.data.curation.reading import finite
from roadworthy.data.curation.settings import SPLITS, CurationSettings
from roadworthy.data.table import natural_key, some

CORRECTED_COLUMNS = ["id", "x0", "y0", "x1", "y1"]


@dataclass(frozen=True, slots=True)
class Crop:
    """An object that was chosen: its class, split, cut-out and box, in pixels of the frame."""

    frame: Frame
    object: AnnotatedObject
    label: str
    split: str
    cutout: Cutout
    box: Box
    rank: float
    """A random number of the object: where a class has more crops than its cap, those of the lowest ranks stay."""
    position: int
    """The number of its frame in the order in which frames were read."""

    @property
    def group(self) -> str:
        """What bounds count: the track where the annotations have one, else the frame."""
        return self.object.track or self.frame.id


@dataclass(frozen=True, slots=True)
class Dropped:
    """An object that was left out: its id, the file of its frame, and why."""

    id: str
    file: str
    reason: str


@dataclass
class Selection:
    """The crops of a curation in natural order of their ids, what was dropped, and the classes in their order."""

    crops: list[Crop]
    dropped: list[Dropped]
    class_names: tuple[str, ...]
    frames: int
    objects: int
    conditions: tuple[str, ...]

    def reasons(self) -> dict[str, int]:
        """How many objects were dropped for each reason, the most frequent first."""
        counts = Counter(row.reason for row in self.dropped)
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


@dataclass
class _Seen:
    """What reading the frames has come across, to refuse ids that are not unique and entries that match nothing."""

    frames: set[str] = field(default_factory=set)
    objects: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    conditions: set[str] = field(default_factory=set)


def select(frames: Iterable[Frame], settings: CurationSettings, root: Path) -> Selection:
    """Apply every rule to every object of the frames; pixels are not read.

    The user's corrected boxes come first. The rules, in this order: the split of the frame, objects that cannot be the
    main one, the class map, the user's rejected ids, boxes outside the frame, the smallest width, occlusion and
    truncation, a cut-out that fits into the frame, other objects in it, and last the caps. Random numbers depend on
    seed and id alone, so the order of frames and objects plays no part.
    """
    settings = settings.complete()
    rules = _Rules(settings)
    seen, crops, dropped = _Seen(), list[Crop](), list[Dropped]()
    for position, annotated_frame in enumerate(frames):
        _note(annotated_frame, seen)
        frame = rules.with_corrections(annotated_frame)
        file = file_of(frame, root)
        split = rules.split_of(frame)
        for annotated in frame.objects:
            outcome = rules.judge(frame, annotated, split, position)
            if isinstance(outcome, str):
                dropped.append(Dropped(annotated.id, file, outcome))
            else:
                crops.append(outcome)
    rules.check_all_used(seen)
    crops, beyond = _capped(crops, settings)
    dropped += [Dropped(crop.object.id, file_of(crop.frame, root), _cap_reason(crop, settings)) for crop in beyond]
    dropped.sort(key=lambda row: natural_key(row.id))
    kinds = sorted({crop.label for crop in crops}, key=natural_key)
    names = tuple(kinds) if settings.classes is None else tuple(settings.classes)
    _check_names(names)
    return Selection(crops, dropped, names, len(seen.frames), len(seen.objects), tuple(sorted(seen.conditions)))


def file_of(frame: Frame, root: Path) -> str:
    """The image of a frame as a path from the root; the frame's id where the picture is not a file of its own."""
    if not isinstance(frame.image, Path):
        return frame.id
    for folder in (root, root.absolute()):
        if frame.image.is_relative_to(folder):
            return frame.image.relative_to(folder).as_posix()
    return frame.image.as_posix()


class _Rules:
    """The rules of a curation, with its random streams and the user's lists."""

    def __init__(self, settings: CurationSettings) -> None:
        self.settings = settings
        self.class_of = settings.class_of()
        self.rejected = read_rejected(Path(settings.rejected)) if settings.rejected else frozenset()
        self.corrected = read_corrected(Path(settings.corrected)) if settings.corrected else {}
        self._cutouts, self._ranks, self._splits = (
            Streams("curation", settings.seed, purpose) for purpose in ("cut-out", "rank", "split")
        )

    def split_of(self, frame: Frame) -> str | None:
        """The split that a frame goes to, drawn by its sequence (or its id) where there are several; None: dropped."""
        splits = self.settings.splits or {}
        if frame.split not in splits:
            raise InputError(
                f"frame {frame.id!r} is in the split {frame.split!r}, of which the settings say nothing: add it to "
                f"`splits:`, beside {some(splits)}, with the split that it becomes, or null to drop it"
            )
        target = splits[frame.split]
        if target is None or isinstance(target, str):
            return target
        draw = next(self._splits.each([frame.sequence or frame.id])).random() * sum(target.values())
        for name in sorted(target, key=SPLITS.index):
            draw -= target[name]
            if draw < 0:
                return name
        return name

    def with_corrections(self, frame: Frame) -> Frame:
        """The frame with the boxes that the user drew, each of which overrules what was annotated of the old box."""
        if not any(annotated.id in self.corrected for annotated in frame.objects):
            return frame
        return replace(frame, objects=tuple(self._corrected(annotated, frame) for annotated in frame.objects))

    def _corrected(self, annotated: AnnotatedObject, frame: Frame) -> AnnotatedObject:
        box = self.corrected.get(annotated.id)
        if box is None:
            return annotated
        return replace(annotated, box=box, truncated=touches_edge(box, frame.width, frame.height), unusable="")

    def judge(self, frame: Frame, annotated: AnnotatedObject, split: str | None, position: int) -> Crop | str:
        """The crop of an object, or the reason why there is none."""
        settings = self.settings
        label = annotated.kind if self.class_of is None else self.class_of.get(annotated.kind)
        if split is None:
            return f"the split {frame.split!r} is dropped"
        if annotated.unusable:
            return annotated.unusable
        if annotated.kind in (settings.drop or ()):
            return f"the class {annotated.kind!r} is dropped"
        if label is None:
            return f"the class {annotated.kind!r} is not in the class map"
        if annotated.id in self.rejected:
            return "rejected by hand"
        box = clipped(annotated.box, (0, 0, frame.width, frame.height))
        if box is None:
            return "the box has no area inside the frame"
        if box[2] - box[0] < settings.min_width:
            return f"less than {settings.min_width:g} pixels wide"
        if annotated.kind not in (settings.keep_hidden or ()):
            if annotated.occluded:
                return "occluded"
            if annotated.truncated:
                return "truncated"
        rng = next(self._cutouts.each([annotated.id]))
        cutout = random_cutout(box, frame.width, frame.height, rng, shift=settings.shift, zoom=settings.zoom)
        if cutout is None:
            return "no square in the frame holds the object"
        if self._others(frame, annotated, cutout) > settings.most_others * area(box):
            return "other objects in the cut-out are too large"
        rank = float(next(self._ranks.each([annotated.id])).random())
        return Crop(replace(frame, objects=()), annotated, label, split, cutout, box, rank, position)

    def _others(self, frame: Frame, main: AnnotatedObject, cutout: Cutout) -> float:
        """The area of other objects in a cut-out, of all together or of the largest, as the settings say."""
        boxes = [other.box for other in frame.objects if other is not main]
        window = cutout.box
        parts = [part for box in boxes if (part := clipped(box, window)) is not None]
        if self.settings.others == "union":
            return union_area(parts)
        return max(map(area, parts), default=0.0)

    def check_all_used(self, seen: _Seen) -> None:
        """Refuse rejected and corrected ids that no object has, and kinds that no object is annotated as."""
        for name, ids in (("rejected", self.rejected), ("corrected", self.corrected)):
            unknown = sorted(set(ids) - seen.objects, key=natural_key)
            if unknown:
                path = getattr(self.settings, name)
                raise InputError(f"{name} ids {path} name objects that are not annotated: {some(unknown)}; remove them")
        if not seen.objects:
            raise InputError(f"there is no annotated object below {self.settings.root}: name another folder")
        preset = READERS.get(self.settings.format)
        known = {kind for kinds in (preset.classes or {}).values() for kind in kinds} | {*preset.drop}
        known |= {*preset.keep_hidden} | seen.kinds
        for name, own in (
            ("classes", self.class_of or ()),
            ("drop", self.settings.drop or ()),
            ("keep_hidden", self.settings.keep_hidden or ()),
        ):
            unknown = [kind for kind in own if kind not in known]
            if unknown:
                kinds = some(sorted(seen.kinds, key=natural_key), 20)
                raise InputError(
                    f"no object is annotated as {unknown[0]!r}, which `{name}:` names; the annotations have {kinds}"
                )


def _note(frame: Frame, seen: _Seen) -> None:
    for annotated in frame.objects:
        if annotated.id in seen.objects:
            raise InputError(f"two objects have the id {annotated.id!r}: ids must be unique in the annotations")
        seen.objects.add(annotated.id)
        seen.kinds.add(annotated.kind)
    if frame.id in seen.frames:
        raise InputError(f"two frames have the id {frame.id!r}: ids must be unique in the annotations")
    seen.frames.add(frame.id)
    seen.conditions.update(frame.conditions)


def _check_names(class_names: Iterable[str]) -> None:
    """Refuse a class that a file with a name per line could not give back."""
    for name in class_names:
        if not name.isprintable() or name.strip() != name or not name:
            raise InputError(f"the class {name!r} cannot stand on a line of its own: map it to a name under `classes:`")


def _capped(crops: list[Crop], settings: CurationSettings) -> tuple[list[Crop], list[Crop]]:
    """The crops that stay and those beyond the cap of their class and split, both in natural order of their ids."""
    kept, beyond, counts = list[Crop](), list[Crop](), Counter[tuple[str, str]]()
    for crop in sorted(crops, key=lambda crop: (crop.rank, crop.object.id)):
        cap = settings.caps.get(crop.split)
        counts[crop.split, crop.label] += 1
        (kept if cap is None or counts[crop.split, crop.label] <= cap else beyond).append(crop)
    return sorted(kept, key=lambda crop: natural_key(crop.object.id)), beyond


def _cap_reason(crop: Crop, settings: CurationSettings) -> str:
    return f"beyond the cap of {settings.caps[crop.split]} images per class in {crop.split}"


def read_rejected(path: Path) -> frozenset[str]:
    """The ids in a file of rejected objects: a CSV file whose first column is `id`, or text with an id per line."""
    rows = [(line, row) for line, row in _csv_rows(path) if not (line == 1 and row[0] == "id")]
    for line, row in rows:
        if not row[0].strip():
            raise InputError(f"rejected ids {path}, line {line}: there is no id; write one in the first column")
    return frozenset(row[0].strip() for _, row in rows)


def read_corrected(path: Path) -> dict[str, Box]:
    """The boxes in a CSV file `id,x0,y0,x1,y1`, in pixels of the frame, by the id of their object."""
    rows = _csv_rows(path)
    if next(rows, (1, []))[1] != CORRECTED_COLUMNS:
        raise InputError(f"corrected boxes {path} must begin with the line {','.join(CORRECTED_COLUMNS)}")
    boxes: dict[str, Box] = {}
    for line, cells in rows:
        row = [cell.strip() for cell in cells]
        where = f"corrected boxes {path}, line {line}"
        if len(row) != len(CORRECTED_COLUMNS):
            raise InputError(f"{where}: there are {len(row)} values where id,x0,y0,x1,y1 are expected")
        if row[0] in boxes:
            raise InputError(f"{where}: the id {row[0]!r} stands there twice: keep one of its boxes")
        try:
            x0, y0, x1, y1 = (finite(value, name) for value, name in zip(row[1:], CORRECTED_COLUMNS[1:], strict=True))
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        if x1 <= x0 or y1 <= y0:
            raise InputError(f"{where}: the box ends before it begins: boxes are x0 y0 x1 y1")
        boxes[row[0]] = (x0, y0, x1, y1)
    return boxes


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of every line of a CSV file that is not blank."""
    require_file(path, "list of ids")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if row:
                    yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the list {path} is not a valid UTF-8 CSV file: {error}") from None
    except OSError as error:
        raise UnreadableFile(path, error) from None
