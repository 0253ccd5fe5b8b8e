"""What a study may say under `protocols: dependability:`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Shift
from roadworthy.core.validation import read_yaml, validated
from roadworthy.metrics import METRICS
from roadworthy.metrics.neurons import LARGEST_K
from roadworthy.metrics.occlusion import PatchGrid
from roadworthy.models.occlusion import FILLS
from roadworthy.protocols.dependability.names import NAME, explained
from roadworthy.shifts import make_shift

SEVERITIES = Path(__file__).parent.parent / "severities"
LEVEL = 3
DEFAULT_SHIFTS = ("rotation", "blur", "noise")
DEFAULT_ATTACKS = ("fgsm", "pgd", "deepfool")
USUAL_K = 2
PATCHES = 8
"""Patches side by side on an image, where the study does not say how large one is."""

Count = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """A frozen value that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NeedChoice(Strict):
    """What the cells that contain `where` need: at least `minimum`, and their weight."""

    where: dict[str, str | list[str]] = {}
    minimum: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0


class ConditionsFile(Strict):
    """A file of operating conditions: their values, impossible combinations, and what cells need."""

    conditions: dict[str, list[str]]
    impossible: list[dict[str, str | list[str]]] = []
    needs: list[NeedChoice] = []


class Transformer(Strict):
    """A shift or attack: at a level of its own table, with an `epsilon`, or with parameters of its own."""

    name: str
    level: Count | None = None
    epsilon: float | int | None = None
    parameters: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one(self) -> Transformer:
        if sum(given is not None for given in (self.level, self.epsilon, self.parameters)) > 1:
            raise ValueError("give one of level, epsilon and parameters")
        return self

    @property
    def label(self) -> str:
        """Its name in tables.

        >>> Transformer(name="fgsm", epsilon=4).label, Transformer(name="fog").label
        ('fgsm epsilon 4', 'fog level 3')
        """
        own = {"epsilon": self.epsilon} if self.epsilon is not None else self.parameters
        if own is None:
            return f"{self.name} level {self.level or LEVEL}"
        return " ".join([self.name, *(f"{name} {value}" for name, value in own.items())])

    def shift(self) -> Shift:
        """The shift itself; an unknown name, level or parameter is an error."""
        own = {"epsilon": self.epsilon} if self.epsilon is not None else self.parameters
        if own is None:
            return make_shift(self.name, self.level or LEVEL)
        return make_shift(self.name, 1, {1: own})


class Slices(Strict):
    """How the worst slices are looked for: conjunctions of up to `depth` conditions that `support` objects show."""

    depth: Count = 2
    support: Annotated[int, Field(ge=2)] = 10
    limit: Count = 20


class Axis(Strict):
    """The column of time or distance along a drive; `sequence` is the column that names the drive (default: object)."""

    column: str
    sequence: str | None = None


class Situation(Strict):
    """How often a situation is met in the field, in any unit."""

    where: Annotated[dict[str, str], Field(min_length=1)]
    share: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Occlusion(Strict):
    """Heat maps: the patch in pixels (default: an eighth of the image), its stride (half a patch) and what it shows.

    rho       a cell is hot strictly below it; with `relative`, below this share of the undisturbed probability
    images    how many, spread over the classes;  pictures  how many of them the report shows, worst first
    control   whether heat maps are made of the same images without their objects too: as many answers again
    """

    patch: Count | None = None
    stride: Count | None = None
    fill: str = "grey"
    rho: Annotated[float, Field(ge=0, le=1)] = 0.5
    relative: bool = False
    images: Count = 60
    pictures: Annotated[int, Field(ge=0)] = 12
    control: bool = True

    @field_validator("fill")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in FILLS:
            raise ValueError(f"cannot hide a patch by {value!r}: use {', '.join(FILLS)}")
        return value

    def grid(self, size: tuple[int, int]) -> PatchGrid:
        """The places of the patch on an image of (height, width)."""
        patch = self.patch or max(2, round(min(size) / PATCHES))
        with explained("occlusion: "):
            return PatchGrid(*size, patch=patch, stride=self.stride or max(1, patch // 2))


class Settings(Strict):
    """What the study file may say under `protocols: dependability:`.

    conditions    values of each operating condition, or a YAML file of them (default: the data's columns)
    impossible, needs   combinations that cannot occur; minimum and weight of cells
    k             conditions per cell (default: 2, or 1 where there is one)
    count         what fills a cell: different `objects` or `images`;  proposals  scenarios to propose at most
    cell_accuracy what the accuracy of a cell must reach: it fails where the upper bound does not
    layers        of neuron coverage (default: what goes into the last linear layer);  activation_k  tuples of neurons
    pattern_groups      groups of equation 3;  activation_threshold  above it a neuron is on
    pattern_images      images that a full scenario needs to count in the pattern of each scenario
    transformers  shifts and attacks (default: rotation, blur, noise and attacks);  loss_images  how many are shown them
    metrics       that are taken per scenario;  slices  how the worst are found;  axis  time or distance
    frequencies, threshold   how often conditions are met in the field, and what the first metric must reach there
    occlusion     heat maps;  severity  a matrix by class, the name of a shipped one, or a YAML file
    """

    conditions: str | dict[str, list[str]] | None = None
    impossible: list[dict[str, str | list[str]]] = []
    needs: list[NeedChoice] = []
    k: Count | None = None
    count: Literal["objects", "images"] = "objects"
    proposals: Annotated[int, Field(ge=0)] = 20
    cell_accuracy: Annotated[float, Field(ge=0, le=1)] = 0.9
    layers: Annotated[list[str], Field(min_length=1)] | None = None
    activation_k: Annotated[list[Annotated[int, Field(ge=1, le=LARGEST_K)]], Field(min_length=1)] = [1, 2, 3]
    activation_threshold: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    pattern_groups: Annotated[int, Field(ge=1, le=100_000)] = 10
    pattern_images: Annotated[int, Field(ge=2)] = 5
    transformers: Annotated[list[Transformer], Field(min_length=1)] | None = None
    loss_images: Count | None = None
    metrics: Annotated[list[str], Field(min_length=1)] = ["accuracy"]
    slices: Slices = Slices()
    axis: Axis | None = None
    frequencies: dict[str, dict[str, float]] | list[Situation] | None = None
    threshold: float = 0.9
    occlusion: Occlusion | None = None
    severity: str | dict[str, Any] | None = None
    severity_default: float | str | None = None

    @field_validator("transformers", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, list):
            return [{"name": item} if isinstance(item, str) else item for item in value]
        return value

    @field_validator("transformers", "metrics", "layers", "activation_k")
    @classmethod
    def _distinct(cls, value: Any) -> Any:
        names = [item.label if isinstance(item, Transformer) else item for item in value or []]
        if len(set(names)) < len(names):
            raise ValueError("one is named twice")
        return value

    @property
    def heat_maps(self) -> Occlusion:
        """How heat maps are made: as the study says, or as usual."""
        return self.occlusion or Occlusion()

    @property
    def sliced(self) -> list[str]:
        """The metrics whose worst slices are looked for: bounded means over images of which one way is better."""
        named = [METRICS.get(name) for name in self.metrics]
        directed = [metric for metric in named if metric.of_images and metric.higher_is_better is not None]
        return [metric.name for metric in directed if np.isfinite(metric.limits(num_classes=2)).all()]

    def inlined(self, base: Path) -> Settings:
        """The same with the content of the files it names, paths starting from `base`."""
        settings = self
        if isinstance(self.conditions, str):
            path = base / self.conditions
            content = read_yaml(path, "conditions")
            listed = validated(ConditionsFile, content if isinstance(content, dict) else {}, f"conditions {path}")
            settings = settings.changed(
                conditions=listed.conditions,
                impossible=[*listed.impossible, *self.impossible],
                needs=[*listed.needs, *self.needs],
            )
        if isinstance(self.severity, str):
            shipped = SEVERITIES / f"{self.severity}.yaml"
            path = shipped if shipped.is_file() else base / self.severity
            if not path.is_file():
                known = sorted(file.stem for file in SEVERITIES.glob("*.yaml"))
                raise InputError(f"there is no severity file {path}; shipped are {', '.join(known)}")
            content = read_yaml(path, "severity")
            if not isinstance(content, dict) or not isinstance(content.get("severity"), dict):
                raise InputError(f"severity {path} must be a mapping with the key severity: a row per class")
            unknown = set(content) - {"severity", "default"}
            if unknown:
                raise InputError(
                    f"severity {path}: {UnknownName('key', str(sorted(unknown)[0]), ['severity', 'default'])}"
                )
            update = {"severity": content["severity"]}
            if "default" in content and self.severity_default is None:
                update["severity_default"] = content["default"]
            settings = settings.changed(**update)
        return settings

    def changed(self, **update: Any) -> Settings:
        """The same with other values, checked."""
        return validated(type(self), self.model_dump() | update, NAME)
