"""What a study may say of localization, and what the run notes of each source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from roadworthy.protocols.choices import check_names
from roadworthy.protocols.localization.names import ALL, TEST

DEFAULT_SETS: dict[str, dict[str, Any]] = {
    "light_rain": {"shift": "rainfall", "level": 1},
    "heavy_rain": {"shift": "rainfall", "level": 2},
    "light_fog": {"shift": "fog_veil", "level": 1},
    "heavy_fog": {"shift": "fog_veil", "level": 2},
}
"""The sets of a study that names none: light and heavy rain and fog on the test data."""
SUITE_SHIFTS, SUITE_LEVELS = ("noise", "grey", "snow", "rain", "fog", "blur", "reflection", "crop"), (1, 3, 5)
"""The suite of localization: shifts of any image, whatever is known of distances, after which boxes are exact."""
LEAST_RESAMPLES = 100


def check_merge(merge: Mapping[str, Sequence[str]]) -> None:
    """Refuse parents without a class, and classes with two parents, as a `ValueError`."""
    children = [child for some in merge.values() for child in some]
    if len(set(children)) < len(children) or not all(merge.values()):
        raise ValueError("a parent class has at least one class, and a class has one parent at most")


class Strict(BaseModel):
    """A frozen value that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ViewChoice(Strict):
    """Which classes count: `only` some of them, or classes merged into parent classes (`merge`: parent to children).

    In a merged view the probability of a parent class is the sum over its children.
    """

    only: list[str] = []
    merge: dict[str, list[str]] = {}

    @model_validator(mode="after")
    def _says_something(self) -> ViewChoice:
        if not self.only and not self.merge:
            raise ValueError("a view names the classes that count (only) or parent classes (merge)")
        check_merge(self.merge)
        return self


class SetChoice(Strict):
    """A set of images besides the test data: the test data under a shift, or a set outside that the study names.

    shift       at a `level` of its own table (default 1) or with `parameters` of its own
    outliers    the name of the set; its classes are those of the source, or parents that `merge` maps to them
    labels      false where its objects belong to no class of the source: then only their boxes are measured
    """

    shift: str | None = None
    level: Annotated[int, Field(ge=1)] | None = None
    parameters: dict[str, Any] | None = None
    outliers: str | None = None
    labels: bool = True
    merge: dict[str, list[str]] = {}

    @model_validator(mode="after")
    def _one_origin(self) -> SetChoice:
        if (self.outliers is None) == (self.shift is None):
            raise ValueError("name what it shows: the test data under a shift, or a set outside (outliers)")
        if self.shift is None and (self.level is not None or self.parameters is not None):
            raise ValueError("level and parameters belong to a shift: name it, or leave them out")
        if self.level is not None and self.parameters is not None:
            raise ValueError("give the level of the shift or parameters of its own, not both")
        if self.shift is not None and (self.merge or not self.labels):
            raise ValueError("merge and labels belong to a set outside: the test data has its own classes")
        if self.merge and not self.labels:
            raise ValueError("merge says which classes a set has: leave it out, or leave out labels: false")
        check_merge(self.merge)
        return self


class Settings(Strict):
    """What a study says under `protocols: localization:`.

    sets          by name (default: light and heavy rain and fog on the test data)
    views         further choices of classes by name, in which the classes of labelled sets are measured too
    repeats       of networks that are trained anew for each (`retrain`): how much the figures scatter over seeds
    hull_truth    accept criteria on boxes where the true box is the hull of turned corners, which is too large
    resamples     of the bootstrap that bounds what is not a mean over images
    timed_images  how many images the models are timed with, one by one; 0 times nothing
    """

    sets: dict[str, SetChoice] | None = None
    views: dict[str, ViewChoice] = {}
    repeats: Annotated[int, Field(ge=1)] = 1
    hull_truth: bool = False
    resamples: Annotated[int, Field(ge=LEAST_RESAMPLES, le=100_000)] = 1000
    timed_images: Annotated[int, Field(ge=0, le=10_000)] = 50

    @field_validator("sets", "views")
    @classmethod
    def _valid_names(cls, value: Any) -> Any:
        check_names("set or view", value or (), (TEST, ALL))
        return value

    def chosen_sets(self) -> dict[str, SetChoice]:
        """The sets by name, the default ones where none is named."""
        if self.sets is not None:
            return self.sets
        return {name: SetChoice.model_validate(choice) for name, choice in DEFAULT_SETS.items()}


def suite_settings() -> Settings:
    """The settings of the suite `localization@1`: every one of its shifts at every level, as sets such as `fog_3`."""
    pairs = [(shift, level) for shift in SUITE_SHIFTS for level in SUITE_LEVELS]
    return Settings(sets={f"{shift}_{level}": SetChoice(shift=shift, level=level) for shift, level in pairs})


class ModelNote(Strict):
    """A model of the study: what it is a variant of, how it knows how sure it is, and what each of its networks is.

    tasks  by task (`classes`, `boxes`) what is known of the network: passes, members, weights, loss, ...
    """

    family: str
    uncertainty: str
    tasks: dict[str, dict[str, Any]]
    searches: dict[str, str] = {}


class SetNote(Strict):
    """A set as it was planned.

    classes    that occur in it, as the source calls them;  merge: parent classes by which its labels count
    labelled   whether its images have a class of the source
    truth      where the true boxes come from: mask, box or hull; empty where there are none
    own_images whether it shows the images of the test data
    leaked     how many of its images are images of the training, validation or test data
    """

    shift: str = "none"
    level: int | float = 0
    parameters: dict[str, Any] = {}
    outliers: str = ""
    images: int = 0
    objects: int = 0
    classes: list[str] = []
    merge: dict[str, list[str]] = {}
    labelled: bool = True
    truth: str = ""
    own_images: bool = True
    leaked: int = 0


class Context(Strict):
    """What the tables need of a source besides readouts.

    size        (height, width) of the images;  networks: hashes of the artifacts that each model is made of
    views       names of the further views;  hull_truth: whether criteria may judge boxes by hulls of turned ones
    by_coordinate  whether the reliability of boxes is told coordinate by coordinate, as earlier versions did not
    """

    models: dict[str, ModelNote]
    sets: dict[str, SetNote]
    size: list[int]
    views: list[str] = []
    hull_truth: bool = False
    by_coordinate: bool = False
    networks: dict[str, list[str]] = {}
