"""GANs in a study: what the study file may say of them, and the sets they draw."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.tables import TableSpec
from roadworthy.core.types import Images
from roadworthy.engine.artifacts import read_artifact
from roadworthy.engine.plan import Bench, PlannedCase
from roadworthy.outliers.gan import CONFIGURATIONS, PRESETS, SETTINGS, Configuration, Gan, GanSettings, configuration
from roadworthy.outliers.gan.training import KEPT_GRID, grid_name
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.choices import NAMED, Choice, distinct
from roadworthy.protocols.ood import table_specs
from roadworthy.protocols.pictures import write_picture

Rows = list[dict[str, Any]]

MARK = (213, 94, 0)
"""The colour around the epoch that is kept."""


class ConfigurationChoice(Choice):
    """One of the six configurations by name, or one of your own; what is given replaces what it has."""

    aim: str | None = None
    loss: str | None = None
    stop: str | None = None
    at: float | None = None
    beta: float | None = None
    surrogate: str | None = None
    surrogate_beta: float | None = None

    @field_validator("name")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", value):
            raise ValueError(f"{value!r} is not a valid name for a GAN: use letters, digits, _ . and -")
        return value

    def chosen(self) -> Configuration:
        """The whole configuration."""
        given = self.model_dump(exclude_none=True)
        if self.name in CONFIGURATIONS or len(given) == 1:
            return replace(configuration(self.name), **given)
        missing = [field for field in ("aim", "loss", "stop", "at") if field not in given]
        if missing:
            raise InputError(f"GAN {self.name} is none of {', '.join(CONFIGURATIONS)}, so it needs its {missing[0]}")
        return Configuration(**given)


class Gans(BaseModel):
    """What the study file may say under `protocols: ood: gans:`.

    preset          `small` or `thesis`: the settings that are not given here
    configurations  names, or mappings with a name and what is to be different (default: the six kinds of the thesis)
    count           GANs trained for each configuration, each with another seed
    width, latent, batch, learning_rate, momentum, clip, epochs, look_every, floor, threads: see `GanSettings` in
                    `outliers.gan`
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: str = "small"
    configurations: Annotated[list[ConfigurationChoice], Field(min_length=1), NAMED, distinct()] = [
        ConfigurationChoice(name=name) for name in CONFIGURATIONS
    ]
    count: Annotated[int, Field(ge=1)] = 2
    width: int | None = None
    latent: int | None = None
    batch: int | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    clip: float | None = None
    epochs: int | None = None
    look_every: int | None = None
    floor: float | None = None
    threads: int | None = None

    def check(self) -> None:
        """Refuse what is wrong whatever the data."""
        self.settings()
        for choice in self.configurations:
            choice.chosen()

    def settings(self) -> GanSettings:
        """How they train."""
        if self.preset not in PRESETS:
            raise UnknownName("preset of GANs", self.preset, PRESETS)
        given = self.model_dump(exclude_none=True, include=set(SETTINGS))
        return replace(PRESETS[self.preset], **given)


def planned_gans(chosen: Gans | None, bench: Bench) -> list[Gan]:
    """Every GAN of a study, configuration by configuration."""
    if chosen is None:
        return []
    if bench.train is None:
        raise InputError("GANs learn from the training data of a study: name it under data: train")
    settings = chosen.settings()
    return [
        Gan(choice.chosen(), settings, bench.train, seed=bench.seed, index=index)
        for choice in chosen.configurations
        for index in range(chosen.count)
    ]


def training_of(case: StoredCase) -> dict[str, Any]:
    """How a GAN's training ended, as columns of a table; `undertrained` where its surrogate is below its floor."""
    competence = read_artifact(case.artifact(case.labels["artifact"]))["competence"]
    names = ("surrogate_accuracy", "floor", "accuracy_on_generated", "classifier_loss")
    shown = {name: competence[name] for name in (*names, "stopped_by", "epochs", "kept_epoch")}
    moments = {name: _number(competence.get(name)) for name in ("competent_step", "steps", "kept_step")}
    shown |= {"surrogate": competence.get("surrogate", "real"), **moments}
    return shown | {"undertrained": competence["surrogate_accuracy"] < competence["floor"]}


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def save_gans(cases: Sequence[PlannedCase], media: Path) -> dict[TableSpec, Rows]:
    """Rows of every epoch of every GAN (losses, accuracies, what it drew), of every look at it, and of its pictures."""
    makers = {(case.labels["ood_set"], case.labels["gan"]): case.showing.requires[0] for case in cases}
    epochs, looks, courses = [], [], []
    for gan in makers.values():
        assert isinstance(gan, Gan)
        where, record = {"ood_set": gan.configuration.name, "gan": gan.index}, gan.training()
        name = f"gan-{gan.recipe.hash[:12]}"
        grids = []
        for epoch in record["history"]:
            picture = f"{name}-{grid_name(epoch['epoch'])}"
            grids.append(_read(gan.home / grid_name(epoch["epoch"])))
            write_picture(media / picture, grids[-1])
            kept = epoch["epoch"] == record["kept_epoch"]
            numbers = {key: _number(value) for key, value in epoch.items()}
            epochs.append({**where, **numbers, "kept": kept, "media": picture})
        for look in record["looks"]:
            ending = record["stopped_by"] if look is record["looks"][-1] else ""
            kept = look["step"] == record["kept_step"]
            numbers = {key: _number(value) for key, value in look.items()}
            looks.append({**where, **numbers, "kept": kept, "stopped_by": ending})
        course, drawn = f"{name}-course.png", f"{name}-{KEPT_GRID}"
        write_picture(media / course, _course(grids, gan.data.size, record["kept_epoch"]))
        write_picture(media / drawn, _read(gan.home / KEPT_GRID))
        courses.append({**where, "media": course, "drawn": drawn})
    return {table_specs.GAN_EPOCHS: epochs, table_specs.GAN_LOOKS: looks, table_specs.GAN_GALLERY: courses}


def _course(grids: Sequence[Images], size: tuple[int, int], kept: int) -> Images:
    """An epoch per column, three classes one below the other, a frame around the epoch that is kept."""
    height, width = size
    columns = []
    for epoch, grid in enumerate(grids):
        across = grid.shape[1] // width
        chosen = [round(third * (across - 1) / 2) for third in range(3)]
        tiles = [grid[:height, column * width : (column + 1) * width] for column in chosen]
        tower = cv2.resize(np.vstack(tiles), None, fx=2, fy=2, interpolation=cv2.INTER_NEAREST)
        colour = MARK if epoch == kept else (255, 255, 255)
        columns.append(cv2.copyMakeBorder(tower, 3, 3, 3, 3, cv2.BORDER_CONSTANT, value=colour))
    return np.hstack(columns)


def _read(path: Path) -> Images:
    """A stored picture as RGB."""
    pixels = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if pixels is None:
        raise InputError(f"{path} is missing or damaged: delete {path.parent} to train this GAN again")
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)
