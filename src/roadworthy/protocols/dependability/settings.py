"""What a study may say under `protocols: dependability:`, and what it comes to on a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.protocols import Dataset, Model, Shift
from roadworthy.core.validation import read_yaml, validated
from roadworthy.data import OpenedDataset
from roadworthy.metrics import HIGHER_IS_BETTER, MEANS, METRICS
from roadworthy.metrics.coverage import Need, Schema, condition_texts, scenario_coverage
from roadworthy.metrics.neurons import LARGEST_K
from roadworthy.metrics.occlusion import PatchGrid
from roadworthy.metrics.weighted_confusion import severity_matrix
from roadworthy.models.occlusion import FILLS
from roadworthy.protocols.dependability.names import ALL, DATA, NAME, PROPOSAL, FigureKey, explained
from roadworthy.shifts import ATTACKS, Attack, make_shift
from roadworthy.shifts.adversarial import MaximumNorm
from roadworthy.statistics.degradation import independent_frequencies
from roadworthy.statistics.slices import check_slices

SEVERITIES = Path(__file__).parent.parent / "severities"
LEVEL = 3
DEFAULT_SHIFTS = ("rotation", "blur", "noise")
DEFAULT_ATTACKS = ("fgsm", "pgd", "deepfool")
BLACK_BOX = "square"
MOST_VALUES = 20
"""A column with more different values is no condition unless the study names it."""
MOST_LACKING = 1_000_000
"""Images that cells may lack, at most, where scenarios are proposed for all of them."""
USUAL_K = 2
PATCHES = 8
"""Patches side by side on an image, where the study does not say how large one is."""

Count = Annotated[int, Field(ge=1)]
Columns = Mapping[str, NDArray[Any]]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NeedChoice(_Part):
    """What the cells that contain `where` need: at least `minimum`, and their weight."""

    where: dict[str, str | list[str]] = {}
    minimum: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0


class ConditionsFile(_Part):
    """A file of operating conditions: their values, impossible combinations, and what cells need."""

    conditions: dict[str, list[str]]
    impossible: list[dict[str, str | list[str]]] = []
    needs: list[NeedChoice] = []


class Transformer(_Part):
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


class Slices(_Part):
    """How the worst slices are looked for: conjunctions of up to `depth` conditions that `support` objects show."""

    depth: Count = 2
    support: Annotated[int, Field(ge=2)] = 10
    limit: Count = 20


class Axis(_Part):
    """The column of time or distance along a drive; `sequence` is the column that names the drive (default: object)."""

    column: str
    sequence: str | None = None


class Situation(_Part):
    """How often a situation is met in the field, in any unit."""

    where: Annotated[dict[str, str], Field(min_length=1)]
    share: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Occlusion(_Part):
    """Heat maps: the patch in pixels (default: an eighth of the image), its stride (half a patch) and what it shows.

    rho       a cell is hot strictly below it; with `relative`, below this share of the undisturbed probability
    images    how many, spread over the classes;  pictures  how many of them the report shows, worst first
    """

    patch: Count | None = None
    stride: Count | None = None
    fill: str = "grey"
    rho: Annotated[float, Field(ge=0, le=1)] = 0.5
    relative: bool = False
    images: Count = 60
    pictures: Annotated[int, Field(ge=0)] = 12

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


class Settings(_Part):
    """What the study file may say under `protocols: dependability:`.

    conditions    values of each operating condition, or a YAML file of them (default: the data's columns)
    impossible, needs   combinations that cannot occur; minimum and weight of cells
    k             conditions per cell (default: 2, or 1 where there is one)
    count         what fills a cell: different `objects` or `images`;  proposals  scenarios to propose at most
    layers        of neuron coverage (default: what goes into the last linear layer);  activation_k  tuples of neurons
    pattern_groups      groups of equation 3;  activation_threshold  above it a neuron is on
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
    layers: Annotated[list[str], Field(min_length=1)] | None = None
    activation_k: Annotated[list[Annotated[int, Field(ge=1, le=LARGEST_K)]], Field(min_length=1)] = [1, 2, 3]
    activation_threshold: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    pattern_groups: Annotated[int, Field(ge=1, le=100_000)] = 10
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

    @field_validator("metrics")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in METRICS:
                raise ValueError(str(UnknownName("metric", name, METRICS)))
        return value

    @property
    def heat_maps(self) -> Occlusion:
        """How heat maps are made: as the study says, or as usual."""
        return self.occlusion or Occlusion()

    @property
    def sliced(self) -> list[str]:
        """The metrics whose worst slices are looked for: means over images of which one way is better."""
        return [name for name in self.metrics if name in MEANS and HIGHER_IS_BETTER[name] is not None]

    def inlined(self, base: Path) -> Settings:
        """The same with the content of the files it names, paths starting from `base`."""
        settings = self
        if isinstance(self.conditions, str):
            path = base / self.conditions
            content = read_yaml(path, "conditions")
            found = validated(ConditionsFile, content if isinstance(content, dict) else {}, f"conditions {path}")
            settings = settings.changed(
                conditions=found.conditions,
                impossible=[*found.impossible, *self.impossible],
                needs=[*found.needs, *self.needs],
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


class Resolved(_Part):
    """Settings made plain for one data set: all that evidence needs.

    conditions None where the data has none, and `no_schema` says why;  left_out  columns that are none, and why
    severity   (K, K) rows, or None;  situations  of the field, or none
    grid       height and width of the images, patch and stride of the heat maps: what makes a `PatchGrid`
    """

    settings: Settings
    conditions: dict[str, list[str]] | None
    no_schema: str
    severity: list[list[float]] | None
    situations: list[tuple[dict[str, str], float]]
    grid: tuple[int, int, int, int]
    left_out: dict[str, str] = {}

    @property
    def k(self) -> int:
        """Conditions per cell."""
        return self.settings.k or min(USUAL_K, len(self.conditions or ()) or USUAL_K)

    @property
    def columns(self) -> list[str]:
        """The condition columns of the data that figures read."""
        axis = self.settings.axis
        along = () if axis is None else (axis.column, axis.sequence)
        situation = self.situations[0][0] if self.situations else ()
        return [*dict.fromkeys(name for name in (*(self.conditions or ()), *situation, *along) if name is not None)]

    def condition_schema(self) -> Schema | None:
        """The conditions with what cannot occur."""
        return None if self.conditions is None else Schema(self.conditions, self.settings.impossible)

    def needs(self) -> list[Need]:
        """What cells need: one of everything, unless a rule says otherwise; the last that fits counts."""
        return [Need(), *(Need(n.where, n.minimum, n.weight) for n in self.settings.needs)]


class ModelContext(_Part):
    """What a plan notes of one model.

    reasons  why it has no `heat_maps` or `layer NAME` (schema 1: `activations`);  refused  the same of transformers
    scopes   those that each metric will have
    """

    reasons: dict[str, str] = {}
    scopes: dict[str, list[str]] = {}
    refused: dict[str, str] = {}


class Context(_Part):
    """What the tables need besides readouts: the settings as resolved on the data, and what was planned by model."""

    resolved: Resolved
    models: dict[str, ModelContext]

    def figures(self) -> list[FigureKey]:
        """Every figure that the run has: the data's, then those of each model by name."""
        found = [FigureKey(DATA, ALL, "scenario_coverage")]
        for name in sorted(self.models):
            for metric, scopes in self.models[name].scopes.items():
                found += [FigureKey(name, scope, metric) for scope in scopes]
        return list(dict.fromkeys(found))


def conditions_of(data: Dataset) -> dict[str, NDArray[Any]]:
    """Every condition column of a data set, (N,) each."""
    if isinstance(data, OpenedDataset):
        return dict(data.table.conditions)
    batches = [data.batch(slice(start, start + 256)) for start in range(0, len(data), 256)]
    names = dict.fromkeys(name for batch in batches for name in batch.conditions)
    return {name: np.concatenate([batch.conditions[name] for batch in batches]) for name in names}


def resolve(settings: Settings, data: Dataset) -> Resolved:
    """The settings on a data set; what does not fit it is an `InputError`."""
    settings = settings.inlined(Path())
    columns = conditions_of(data)
    values, left_out = _values(settings, columns, data.name)
    listed = "; ".join(f"{name} has {why}" for name, why in left_out.items())
    nothing = f"the data set {data.name} has no columns of conditions{f' ({listed})' if listed else ''}"
    resolved = Resolved(
        settings=settings,
        conditions=values or None,
        no_schema="" if values else nothing,
        severity=_severity(settings, data),
        situations=_situations(settings, columns, values, data.name),
        grid=astuple(settings.heat_maps.grid(data.size)),
        left_out=left_out,
    )
    with explained(f"conditions of {data.name}: "):
        _check_conditions(resolved, columns)
    return resolved


def _check_conditions(resolved: Resolved, columns: Columns) -> None:
    """A `ValueError` where conditions, needs or k do not fit the data or each other, or give too many slices."""
    settings, values, schema = resolved.settings, resolved.conditions, resolved.condition_schema()
    if values is None or schema is None:
        if settings.impossible or settings.needs:
            raise ValueError(f"impossible and needs speak of conditions, but {resolved.no_schema}")
        return
    reserved = [name for name in values if name in PROPOSAL]
    if reserved:
        raise ValueError(f"a condition cannot be called {reserved[0]!r}, a column of the proposed scenarios: rename it")
    if resolved.k > len(values):
        raise ValueError(f"k is {resolved.k}, but there are {len(values)} conditions: {', '.join(values)}")
    cover = scenario_coverage(schema, columns, k=resolved.k, needs=resolved.needs())
    lacking = sum(int(np.maximum(p.minimum - p.counts, 0)[p.feasible].sum()) for p in cover.projections)
    if lacking > MOST_LACKING:
        raise ValueError(
            f"needs ask for {lacking:,} more images than there are; at most {MOST_LACKING:,} are proposed for"
        )
    if settings.sliced:
        check_slices([len(_shown(columns[name])) for name in values], min(settings.slices.depth, len(values)))


def _shown(column: NDArray[Any]) -> set[str]:
    """The values that images show."""
    return {*condition_texts(column)} - {""}


def _values(settings: Settings, columns: Columns, name: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The conditions with their values, as the study says or as the data shows; and what makes other columns none."""
    axis = settings.axis
    if axis is not None:
        for column in (axis.column, axis.sequence):
            if column is not None and column not in columns:
                raise InputError(f"{NAME}: axis of {name}: {UnknownName('column', column, columns)}")
        if columns[axis.column].dtype.kind not in "iuf":
            raise InputError(f"{NAME}: the axis {axis.column!r} of {name} must hold numbers: a time or a distance")
    if isinstance(settings.conditions, dict):
        if not settings.conditions:
            raise InputError(f"{NAME}: conditions of {name}: name at least one condition with its values")
        return settings.conditions, {}
    skip = {axis.column, axis.sequence} if axis is not None else set()
    found, left_out = dict[str, list[str]](), dict[str, str]()
    for column, values in columns.items():
        kinds = sorted(_shown(values))
        if column in skip:
            continue
        if values.dtype.kind == "f" and not all(kind.lstrip("-").isdigit() for kind in kinds):
            left_out[column] = "numbers that are not whole"
        elif not 0 < len(kinds) <= MOST_VALUES:
            left_out[column] = f"{len(kinds)} values, more than {MOST_VALUES}" if kinds else "no values"
        else:
            found[column] = kinds
    return found, left_out


def _severity(settings: Settings, data: Dataset) -> list[list[float]] | None:
    if settings.severity is None:
        return None
    assert isinstance(settings.severity, dict)
    with explained(f"severity, for the classes of {data.name}: "):
        table = severity_matrix(data.class_names, settings.severity, settings.severity_default)
    rows: list[list[float]] = table.tolist()
    return rows


def _situations(
    settings: Settings, columns: Columns, conditions: Mapping[str, Sequence[str]], name: str
) -> list[tuple[dict[str, str], float]]:
    if settings.frequencies is None:
        return []
    with explained(f"frequencies for {name}: "):
        if isinstance(settings.frequencies, dict):
            found = independent_frequencies(settings.frequencies)
        else:
            found = [(situation.where, situation.share) for situation in settings.frequencies]
            if len({frozenset(where) for where, _ in found}) != 1:
                raise ValueError("all situations must name the same conditions")
        if not sum(share for _, share in found) > 0 or min(share for _, share in found) < 0:
            raise ValueError("frequencies must be at least 0, one of them above")
        for condition in found[0][0]:
            if condition not in columns:
                raise ValueError(str(UnknownName("condition", condition, columns)))
            known = set(conditions.get(condition, ())) or _shown(columns[condition])
            unknown = [where[condition] for where, share in found if share > 0 and where[condition] not in known]
            if unknown:
                raise ValueError(
                    f"{UnknownName(f'value of {condition}', unknown[0], known)} Name it under conditions if it is met "
                    "in the field but not shown, or give it the frequency 0."
                )
    first = settings.metrics[0]
    if first not in MEANS or HIGHER_IS_BETTER[first] is not True:
        raise InputError(f"{NAME}: frequencies ask for a mean over images of which more is better, not for {first}")
    return found


@dataclass(frozen=True)
class Choice:
    """A transformer as one model is shown it, or why it is not shown it."""

    label: str
    shift: Shift
    reason: str = ""


def transformers_for(settings: Settings, model: Model, stored: bool) -> list[Choice]:
    """The transformers of a model. One without gradients meets the black-box attack in place of those that need them.

    `stored` predictions can be asked nothing new: they meet the shifts alone.
    """
    chosen = settings.transformers or [Transformer(name=name) for name in (*DEFAULT_SHIFTS, *DEFAULT_ATTACKS)]
    found: dict[str, Choice] = {}
    for one in chosen:
        shift = one.shift()
        if not isinstance(shift, Attack):
            found[one.label] = Choice(one.label, shift)
        elif stored:
            found[one.label] = Choice(one.label, shift, "stored predictions cannot be attacked")
        elif model.capabilities >= shift.NEEDS:
            found.setdefault(one.label, Choice(one.label, shift))
        elif isinstance(shift, MaximumNorm):
            why = f"{model.name} gives no gradient: {BLACK_BOX} with the same epsilon stands in"
            found[one.label] = Choice(one.label, shift, why)
            instead = ATTACKS.get(BLACK_BOX).at(1, {1: {"epsilon": shift.epsilon}})
            label = f"{BLACK_BOX} epsilon {shift.epsilon}"
            found.setdefault(label, Choice(label, instead))
        else:
            found[one.label] = Choice(one.label, shift, f"{model.name} gives no gradient")
    return list(found.values())
