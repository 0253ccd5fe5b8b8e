"""What a study may say of OD-test, and what the run notes of each source."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

HIGHEST_COST = 1e9
MOVED = {
    "sources": "sources stand at the top of a study now: sources: NAME: {data: {test: ..., train: ...}, models: "
    "{NAME: ...}}",
    "outliers": "outliers stand at the top of a study now; name those that od_test meets under sets, if not all",
    "monitors": "monitors stand at the top of a study now, by their label: monitors: {energy: {}, knn8: {monitor: "
    "deep_knn, k: 8}}",
    "mirror": "mirrored copies are of the data of a source now: data: {mirror: true}",
}
"""What was said here before, and how to write it now."""


class Settings(BaseModel):
    """What a study says under `protocols: od_test:`.

    sets       outliers of the study, or makers of noise, by name (default: all outliers of the study, and both noises
               where it names none)
    limit      most images per set and side
    prior, cost, threshold, rejected: as in `FittedMonitor.calibrate`
    resamples  of the bootstrap that bounds AUPR of each triple; 0 gives no bounds of AUPR, AUROC and FPR95
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sets: list[str] | None = None
    limit: Annotated[int, Field(ge=2)] | None = None
    prior: Annotated[float, Field(gt=0, lt=1)] = 0.5
    cost: Annotated[float, Field(gt=0, le=HIGHEST_COST, allow_inf_nan=False)] = 1.0
    threshold: Literal["exact", "hinge"] = "exact"
    rejected: Annotated[float, Field(ge=0, lt=1)] = 0.05
    resamples: Annotated[int, Field(ge=0, le=100_000)] = 0

    @model_validator(mode="before")
    @classmethod
    def _former_places(cls, value: Any) -> Any:
        for key, advice in MOVED.items() if isinstance(value, dict) else ():
            if value.get(key) is not None and (key != "sources" or isinstance(value[key], dict)):
                raise ValueError(advice)
        return value

    @field_validator("sets")
    @classmethod
    def _distinct(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and len({*value}) < len(value):
            raise ValueError("one is named twice")
        return value

    @field_validator("resamples")
    @classmethod
    def _enough(cls, value: int) -> int:
        if 0 < value < 100:
            raise ValueError(f"a bootstrap takes at least 100 resamples, not {value}; 0 leaves it out")
        return value


class MonitorNote(BaseModel):
    """A monitor of the study: its registered name, what is other than in its paper, and whether it asks the model.

    One that does not has the same answer on every model of a source; runs of an earlier version do not say so.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    monitor: str
    differs_from_paper: str = ""
    asks_model: bool = True


class Context(BaseModel):
    """What the tables need of a source besides readouts.

    architectures  of its models, by their name;  networks: hashes of the artifacts that each is made of
    near           outlier sets that are near;  overlap: labels of the source to leave out where it meets a set
    left_out       labels of monitors that none of its models serves;  left_out_of: of those that one model does not
                   serve, by the name of the model;  excluded: sets that it never meets
    images         per set, and of the training data;  size: height, width, channels
    failed         monitors without any stored answer, in runs of an earlier version
    valid_note     what must be known of a threshold on its validation part
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    architectures: dict[str, str]
    networks: dict[str, list[str]] = {}
    classes: int
    size: list[int]
    near: list[str]
    overlap: dict[str, list[int]]
    left_out: list[str]
    left_out_of: dict[str, list[str]] = {}
    excluded: list[str]
    images: dict[str, int]
    monitors: dict[str, MonitorNote]
    failed: dict[str, str] = {}
    valid_note: str = ""
