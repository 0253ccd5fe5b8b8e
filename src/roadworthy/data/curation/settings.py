"""The settings of a curation: the crop procedure, what is left out, and what becomes of classes and splits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from roadworthy.core.errors import InputError
from roadworthy.core.validation import MAX_SIDE, read_yaml, validated
from roadworthy.data.curation.frames import READERS

SPLITS = ("train", "validation", "test")
"""The splits of curated data, in the order of the tables."""

CAPS = {"train": 5000, "validation": 1000, "test": 1000}
"""The largest number of images per class in each split."""
Split = Literal["train", "validation", "test"]
Share = Annotated[float, Field(gt=0, le=1)]


class CurationSettings(BaseModel, extra="forbid", frozen=True):
    """What decides a curation; the same settings on the same annotations give the same bytes.

    `classes` gives for each class the kinds that become it; None takes the map of the format. `keep_hidden` are kinds
    (as annotated) whose occluded or truncated objects are kept. `most_others` is the largest area of other objects in
    the cut-out, as a share of the main object's area; with `others: union` they count together, with `others: each`
    every one is compared alone. `shift` and `zoom` are those of `cutouts.random_cutout`.

    `rejected` is a file with the ids of objects that are left out. `corrected` is a CSV file `id,x0,y0,x1,y1` with
    boxes that a person drew, in pixels of the frame. Such a box is the truth and overrules what the annotations say of
    the old one: the object is used where it counted as unusable, and it is truncated if the new box touches or crosses
    the edge of the frame, and not otherwise. Class, split and occlusion stay as annotated. An id in both files is
    rejected.
    """

    format: str
    root: str
    options: Mapping[str, Any] = Field(default_factory=dict)
    size: Annotated[int, Field(ge=8, le=MAX_SIDE)] = 256
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    min_width: Annotated[float, Field(ge=0)] = 30.0
    most_others: Annotated[float, Field(ge=0)] = 1 / 3
    others: Literal["union", "each"] = "union"
    shift: Annotated[float, Field(ge=0, le=10)] = 0.5
    zoom: tuple[Annotated[float, Field(ge=1, le=100)], Annotated[float, Field(ge=1, le=100)]] = (1.0, 2.0)
    classes: Mapping[str, tuple[str, ...]] | None = None
    drop: tuple[str, ...] | None = None
    keep_hidden: tuple[str, ...] | None = None
    splits: Mapping[str, Split | Mapping[Split, Share] | None] | None = None
    caps: Mapping[str, Annotated[int, Field(ge=1)] | None] = Field(default_factory=lambda: dict(CAPS))
    images: Literal["png", "jpeg"] = "png"
    quality: Annotated[int, Field(ge=1, le=100)] = 95
    rejected: str | None = None
    corrected: str | None = None

    @field_validator("classes", mode="before")
    @classmethod
    def _one_kind_may_stand_alone(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: (kinds,) if isinstance(kinds, str) else kinds for name, kinds in value.items()}
        return value

    @model_validator(mode="after")
    def _consistent(self) -> CurationSettings:
        if self.zoom[0] > self.zoom[1]:
            raise ValueError(f"zoom must be the smallest and the largest factor, not {self.zoom}")
        if "quality" in self.model_fields_set and self.images != "jpeg":
            raise ValueError("quality is that of JPEG files: add images: jpeg")
        kinds = [kind for names in (self.classes or {}).values() for kind in names]
        for kind in kinds:
            if kinds.count(kind) > 1 or kind in (self.drop or ()):
                raise ValueError(f"the kind {kind!r} stands in two classes, or is also dropped")
        for split in self.caps:
            if split not in SPLITS:
                raise ValueError(f"caps are for the splits {', '.join(SPLITS)}, not {split!r}")
        for name, shares in (self.splits or {}).items():
            if isinstance(shares, Mapping) and abs(sum(shares.values()) - 1) > 1e-9:
                raise ValueError(f"the shares of the split {name!r} must sum to 1")
        return self

    def complete(self) -> CurationSettings:
        """The settings with what the format says where the user said nothing; an unknown format is an error.

        Without `classes` and `drop` both are those of the format. A map of one's own replaces the format's; then kinds
        that the format drops are dropped only where they are not in that map.

        >>> complete = CurationSettings(format="kitti", root="KITTI").complete()
        >>> dict(complete.classes), complete.splits
        ({'car': ('Car',), 'pedestrian': ('Pedestrian',)}, {'training': 'test'})
        """
        own = READERS.get(self.format)
        classes = self.classes if self.classes is not None else own.classes
        mapped = {kind for kinds in (classes or {}).values() for kind in kinds}
        return self.model_copy(
            update={
                "classes": classes,
                "drop": self.drop if self.drop is not None else tuple(kind for kind in own.drop if kind not in mapped),
                "keep_hidden": self.keep_hidden if self.keep_hidden is not None else own.keep_hidden,
                "splits": self.splits if self.splits is not None else own.splits,
            }
        )

    def class_of(self) -> dict[str, str] | None:
        """The class of each kind in the map; None where every kind keeps its own name."""
        if self.classes is None:
            return None
        return {kind: name for name, kinds in self.classes.items() for kind in kinds}


def read_settings(path: Path | None, given: Mapping[str, Any]) -> CurationSettings:
    """Settings from the key `curate` of a YAML file, if there is one, and those given beside it, which win.

    Paths in the file (root, rejected, corrected) start at the folder of the file.
    """
    content: dict[str, Any] = {}
    if path is not None:
        stored = read_yaml(path, "curation settings")
        if not isinstance(stored, dict) or set(stored) != {"curate"} or not isinstance(stored["curate"], dict):
            raise InputError(f"curation settings {path} must hold one key: `curate: {{format: ..., root: ...}}`")
        content = dict(stored["curate"])
        for name in ("root", "rejected", "corrected"):
            if isinstance(content.get(name), str):
                content[name] = str(path.parent / content[name])
    content |= {name: value for name, value in given.items() if value is not None}
    for name in ("format", "root"):
        if name not in content:
            raise InputError(f"no {name} of the annotations is given: name it as an argument or in the settings")
    return validated(CurationSettings, content, "curation settings")
