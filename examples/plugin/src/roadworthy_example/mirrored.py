"""A protocol: does a classifier give the same answer for an image and for its mirror image?

Measured is agreement, not correctness: a model that is wrong twice in the same way agrees. Some signs mean something
else when mirrored (no left turn), others are no signs any more (digits): a study names these classes under `leave_out`,
and their images do not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

import roadworthy as rw
from roadworthy.core.errors import UnknownName
from roadworthy.core.tables import ESTIMATE, TableSpec
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import Showing, plan_cases
from roadworthy.metrics import Metric
from roadworthy.protocols.base import PROTOCOLS, Compared, Evidence, Planned, Protocol, matching
from roadworthy.protocols.changes import OTHER_IMAGES, by_mcnemar
from roadworthy.report.facts import estimate_of
from roadworthy.report.page import ModelWords, Page
from roadworthy.report.reading import read_rows
from roadworthy.report.words import bounds, number
from roadworthy.statistics import Estimate, proportion_interval
from roadworthy.statistics.estimates import failed_estimate, no_estimate
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Measurement

NAME = "mirrored"
AGREEMENT = Metric(
    "mirror_agreement",
    label="Agreement with the mirror image",
    sentence="Share of images whose mirror image gets the same answer. Higher is better.",
    higher_is_better=True,
    percent=True,
    mean_over_objects=True,
    proportion=True,
)
TABLE = TableSpec(
    NAME,
    "How often a model gives the same answer for an image and its mirror image.",
    key=("model", "metric"),
    columns=("model", *ESTIMATE),
)


@dataclass(frozen=True, kw_only=True)
class Mirror(rw.Shift):
    """The image with left and right exchanged."""

    name = "mirror"

    def __call__(self, batch, streams):
        """The mirrored batch, boxes and masks moved along."""
        width, boxes, masks = batch.images.shape[2], batch.boxes, batch.masks
        if boxes is not None:
            boxes = np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)
        return replace(
            batch,
            images=np.ascontiguousarray(batch.images[:, :, ::-1]),
            boxes=boxes,
            masks=None if masks is None else np.ascontiguousarray(masks[:, :, ::-1]),
        )


class Settings(BaseModel):
    """What a study may say under `protocols: mirrored:`. `leave_out`: classes that mean something else mirrored."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    leave_out: list[str] = []


@PROTOCOLS.register(NAME)
class MirroredImages(Protocol):
    """Every test image shown as it is and mirrored, to every model."""

    name, settings = NAME, Settings
    summary = "Does an image get the same answer as its mirror image?"
    metrics = (AGREEMENT,)
    table_specs = (TABLE,)
    compared = (AGREEMENT.name,)
    subject = "mirror images"

    def check_settings(self, settings):
        """There is nothing to check before the classes are known."""

    def count_stimuli(self, settings, foreign, monitors):
        """The images, and the mirrored images."""
        return 2

    def showings(self, settings, bench):
        """Undisturbed data, which other protocols show too and which is then asked once, and mirrored data."""
        for name in settings.leave_out:
            if name not in bench.data.class_names:
                raise UnknownName(f"class of {bench.data.name}", name, bench.data.class_names)
        data, mirror = bench.data.fingerprint(), Mirror()
        undisturbed = Showing(Stimulus(data, seed=bench.seed), bench.data)
        return [undisturbed, Showing(mirror.stimulus(data, seed=bench.seed), bench.data, mirror)]

    def plan(self, settings, bench):
        """Both shown to every model."""
        return Planned(plan_cases(NAME, self.showings(settings, bench), bench))

    def check(self, cases, criterion, context=None):
        """Refuse a criterion on another metric, or on a model that the run does not have."""
        if criterion.metric != AGREEMENT.name:
            raise UnknownName(f"metric of {NAME}", criterion.metric, [AGREEMENT.name])
        _matching_models(cases, criterion)

    def evidence(self, part, *, seed, workers=1, resamples=None):
        """What stored cases of one source say."""
        return MirroredEvidence(part)

    def page(self, run, facts):
        """The page of the report, from the stored table alone."""
        cells = {row["model"]: estimate_of(row) for row in read_rows(run, TABLE.name, facts.source)}
        sentences = {
            model: f"{number(AGREEMENT, cell.value)} of the images get the same answer when they are mirrored "
            f"({bounds(AGREEMENT, cell.lo, cell.hi)})."
            for model, cell in cells.items()
        }
        words = {
            model: ModelWords((("Same answer mirrored", AGREEMENT.name, cells[model]),), (sentence,), (sentence,))
            for model, sentence in sentences.items()
        }
        template = Path(__file__).with_name("mirrored.html.j2")
        context = {"cells": cells, "agreement": AGREEMENT}
        headline = tuple(f"{model}: {sentence}" for model, sentence in sentences.items())
        return Page(NAME, "Mirrored images", facts, template, dict, context, models=words, headline=headline)


def _matching_models(cases, criterion) -> list[str]:
    """The models that a criterion speaks of; none is an error."""
    rows = [SimpleNamespace(model=name) for name in dict.fromkeys(case.system for case in cases)]
    return [row.model for row in matching(f"criterion {criterion.id}", rows, ("model",), criterion)]


class MirroredEvidence(Evidence):
    """Which images of a source get the same answer mirrored, model by model."""

    def __init__(self, part) -> None:
        self.cases = part.cases
        self.left_out = [part.class_names.index(name) for name in part.settings.leave_out]
        self.models = list(dict.fromkeys(case.system for case in part.cases))
        self.failures = {case.system: case.failure for case in part.cases if case.failure}
        self.agrees, self.ids, self.objects = {}, {}, {}
        for model in self.models:
            if model not in self.failures:
                self._read(model)

    def _read(self, model: str) -> None:
        """Keep of a model's answers which images count, of which objects, and whether both answers are the same."""
        plain, mirrored = (
            next(case for case in self.cases if case.system == model and case.stimulus.name == name).load()
            for name in ("none", Mirror.name)
        )
        counts = ~np.isin(plain.answers.label, self.left_out)
        self.agrees[model] = (plain.answers.prediction == mirrored.answers.prediction)[counts]
        self.ids[model] = np.array(plain.ids)[counts].tolist()
        self.objects[model] = np.unique(np.array(plain.groups)[counts], return_inverse=True)[1]

    def estimate(self, model: str, confidence: float = 0.95) -> Estimate:
        """The share of images that get the same answer, bounded by objects."""
        if model in self.failures:
            return failed_estimate(self.failures[model])
        agrees, objects = self.agrees[model], self.objects[model]
        if not agrees.size:
            return no_estimate("every class is left out")
        return replace(proportion_interval(agrees, objects, confidence), n=agrees.size, groups=len(np.unique(objects)))

    def tables(self) -> dict[str, pd.DataFrame]:
        """The one table: a row for each model."""
        rows = [self.estimate(model).row({"model": model}, AGREEMENT.name) for model in self.models]
        return {TABLE.name: TABLE.frame(rows)}

    def measure(self, criterion, confidence) -> list[Measurement]:
        """A measurement for each model that a criterion speaks of."""
        models = _matching_models(self.cases, criterion)
        return [Measurement({"model": model}, self.estimate(model, confidence), proportion=True) for model in models]

    def pictures(self, cases, media) -> dict[str, pd.DataFrame]:
        """None: everybody knows what a mirror image looks like."""
        return {}

    def compare(
        self, other: "MirroredEvidence", before: Compared, after: Compared, metrics: Sequence[str]
    ) -> Iterator[PairedChange]:
        """Do more images get the same answer mirrored than before? Paired image by image."""
        for metric in metrics:
            change, old, new = PairedChange(NAME, 0, metric), before.model, after.model
            failure = self.failures.get(old, "") or other.failures.get(new, "")
            if failure or self.ids[old] != other.ids[new]:
                yield replace(change, reason=failure or OTHER_IMAGES)
                continue
            shares = self.agrees[old].mean(), other.agrees[new].mean()
            change = replace(change, before=float(shares[0]), after=float(shares[1]))
            yield by_mcnemar(change, self.agrees[old], other.agrees[new], self.objects[old])
