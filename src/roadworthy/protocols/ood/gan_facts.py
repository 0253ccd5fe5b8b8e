"""GANs in the report: what each one draws, how its training went, and what the models make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roadworthy.core.grouping import grouped
from roadworthy.protocols.ood import table_specs
from roadworthy.report.facts import NOT_RUN, estimate_of
from roadworthy.report.reading import Picture, Row, has_table, media_path, number_of, read_rows, strip_of_squares
from roadworthy.report.words import plural
from roadworthy.statistics import Estimate

ROLE = "auroc"
STOPS = {
    "accuracy": "the surrogate's accuracy",
    "classifier_loss": "the classifier loss",
    "epochs": "its number of epochs",
    "most_epochs": "the most epochs allowed, its own criterion not met",
}
SURROGATES = {"real": "real images alone", "joint": "real images, and to be unsure of drawn ones"}
CURVES = {
    "classifier_loss": "Classifier loss",
    "accuracy": "Surrogate's accuracy on drawn images",
    "surrogate_accuracy": "Surrogate's accuracy on real images",
    "generator_loss": "Generator loss",
    "discriminator_loss": "Discriminator loss",
}


@dataclass(frozen=True)
class Answer:
    """What a model said to one drawn image, and how sure it was."""

    prediction: str
    confidence: float


@dataclass(frozen=True)
class Gan:
    """One GAN: how its training ended, what it drew after each epoch, and the figures of every look at it.

    Runs of earlier versions have a look after each epoch alone, and do not know the steps (NaN).
    """

    configuration: str
    index: int
    hardest: bool
    surrogate_accuracy: float
    floor: float
    undertrained: bool
    accuracy_on_generated: float
    classifier_loss: float
    stopped_by: str
    epochs: int
    kept_epoch: int
    surrogate: str
    competent_step: float
    steps: float
    kept_step: float
    drawn: Picture
    course: Picture
    history: tuple[Row, ...]

    @property
    def ending(self) -> str:
        """When its training was stopped, by what, and what is kept of it."""
        if math.isnan(self.steps):
            epochs = plural(self.epochs, "epoch")
            return f"Stopped after {epochs} by {self.stopped_by}; epoch {self.kept_epoch} is kept."
        moment = f"Stopped after {plural(int(self.steps), 'step')}, in epoch {self.epochs}, by {self.stopped_by}"
        return f"{moment}; the generator of step {self.kept_step:.0f} is kept."

    @property
    def taught(self) -> str:
        """What its surrogate was taught."""
        return SURROGATES.get(self.surrogate, self.surrogate)

    @property
    def name(self) -> str:
        """How it is called beside others of its configuration: by its number in the table `gan`, from 0."""
        return f"GAN {self.index}"


@dataclass(frozen=True)
class Gans:
    """All GANs of a run, configurations in the order of their sets, and the AUROC of each by model."""

    gans: tuple[Gan, ...]
    cells: Mapping[tuple[str, str, int], Estimate]
    answers: Mapping[tuple[str, str], tuple[Answer, ...]]
    shown: Mapping[str, Picture]

    @cached_property
    def configurations(self) -> tuple[str, ...]:
        """Every configuration once."""
        return tuple(dict.fromkeys(gan.configuration for gan in self.gans))

    def of(self, configuration: str) -> tuple[Gan, ...]:
        """The GANs of a configuration."""
        return tuple(gan for gan in self.gans if gan.configuration == configuration)

    def hardest(self, configuration: str) -> Gan:
        """The one with the lowest mean AUROC over models and repeats."""
        return next(gan for gan in self.of(configuration) if gan.hardest)

    def cell(self, model: str, gan: Gan) -> Estimate:
        """AUROC of a model against a GAN's images."""
        return self.cells.get((model, gan.configuration, gan.index), NOT_RUN)

    def answers_of(self, model: str, configuration: str) -> tuple[Answer, ...]:
        """What a model answered to the shown images of the hardest GAN."""
        return self.answers.get((model, configuration), ())

    @cached_property
    def undertrained(self) -> tuple[Gan, ...]:
        """Those whose surrogate is below its floor."""
        return tuple(gan for gan in self.gans if gan.undertrained)


def load_gans(run: Path, order: Sequence[str], source: str | None) -> Gans | None:
    """Read the tables and pictures of GANs, configurations in this order; None where the run has none."""
    if not has_table(run, table_specs.GANS.name):
        return None
    rows = [row for row in read_rows(run, table_specs.GANS.name, source) if row["metric"] == ROLE]
    rows_by_gan = {(row["ood_set"], row["gan"]): row for row in rows}
    pictures = {(row["ood_set"], row["gan"]): row for row in read_rows(run, table_specs.GAN_GALLERY.name, source)}
    history = grouped(((row["ood_set"], row["gan"]), row) for row in _looks(run, source))
    gans = [_gan(run, row, pictures[key], history[key]) for key, row in rows_by_gan.items()]
    return Gans(
        gans=tuple(sorted(gans, key=lambda gan: (order.index(gan.configuration), gan.index))),
        cells={(row["model"], row["ood_set"], row["gan"]): estimate_of(row) for row in rows},
        answers=grouped(
            ((row["model"], row["ood_set"]), Answer(row["prediction"], number_of(row["confidence"])))
            for row in read_rows(run, table_specs.GAN_ANSWERS.name, source)
        ),
        shown={
            row["ood_set"]: strip_of_squares(media_path(run, row["media"]))
            for row in read_rows(run, table_specs.GALLERY.name, source)
            if row["kind"] == "gan"
        },
    )


def _looks(run: Path, source: str | None) -> list[Row]:
    """The looks at all GANs; of a run of an earlier version, its epochs."""
    if has_table(run, table_specs.GAN_LOOKS.name):
        return list(read_rows(run, table_specs.GAN_LOOKS.name, source))
    epochs = read_rows(run, table_specs.GAN_EPOCHS.name, source)
    return [{**row, "epochs": row["epoch"], "step": None} for row in epochs]


def _gan(run: Path, row: Row, pictures: Row, history: tuple[Row, ...]) -> Gan:
    names = ("surrogate_accuracy", "floor", "accuracy_on_generated", "classifier_loss")
    numbers: Row = {name: number_of(row[name]) for name in names}
    numbers |= {name: number_of(row.get(name)) for name in ("competent_step", "steps", "kept_step")}
    return Gan(
        configuration=row["ood_set"],
        index=row["gan"],
        **{name: row[name] for name in ("hardest", "undertrained", "epochs", "kept_epoch")},
        **numbers,
        surrogate=row.get("surrogate") or "real",
        stopped_by=STOPS.get(row["stopped_by"]) or str(row["stopped_by"]),
        drawn=Picture(media_path(run, pictures["drawn"])),
        course=Picture(media_path(run, pictures["media"])),
        history=history,
    )
