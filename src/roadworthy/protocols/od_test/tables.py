"""Evidence of OD-test: every table and every measurement from stored representations, all sources together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from roadworthy.core.errors import InputError, RoadworthyError, UnknownName
from roadworthy.engine.artifacts import read_artifact
from roadworthy.engine.monitoring import REPRESENTATION
from roadworthy.engine.plan import PlannedCase
from roadworthy.monitors import FittedMonitor
from roadworthy.monitors.base import find_kind
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared, Part, StoredCase
from roadworthy.protocols.changes import not_paired
from roadworthy.protocols.od_test import evaluation, table_specs
from roadworthy.protocols.od_test.comparison import compare_monitors
from roadworthy.protocols.od_test.evaluation import ACCURACY, ALL, NAME, NO_VALUE, PLACES, Represented, Sample
from roadworthy.protocols.od_test.settings import Context, Settings
from roadworthy.statistics import proportion_interval
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Criterion, Measurement

LEAST_REPRESENTED = 4
"""The sets of a triple: validation and test images of the source, D_v and D_t."""
NO_IMAGES = Sample(np.zeros((0, 1), np.float32), np.zeros(0, str), np.zeros(0, str), np.zeros(0, np.int64))
"""In place of a set that could not be represented."""
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Subject:
    """A model of a source, which monitors are tested on: the `source` of a triple. `label` names it in the rows."""

    label: str
    source: str
    model: str
    cases: Sequence[Any]
    context: Context

    @property
    def outliers(self) -> list[str]:
        """The outlier sets that it meets."""
        return [key.partition("/")[2] for key in self.context.images if key.startswith("outliers/")]

    def places(self, *monitors: str) -> list[dict[str, str]]:
        """The triples of some monitors, or of all: those that failed, too."""
        chosen = monitors or [*{**self.context.monitors, **self.context.failed}]
        return evaluation.places(self.label, chosen, self.outliers, self.context.near)

    @cached_property
    def fits(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The cases of its monitors: by label, by the D_v that a fit is for ('' for all), by set."""
        fits: dict[str, dict[str, dict[str, Any]]] = {}
        for case in self.cases:
            if (case.labels["role"], case.labels.get("model")) == ("monitor", self.model):
                own = fits.setdefault(case.system, {}).setdefault(case.labels.get("fitted_on", ""), {})
                own[case.labels["set"]] = case
        return fits

    def failed(self, failure: Callable[[Any], str] = lambda case: str(case.failure)) -> dict[str, str]:
        """The monitors without any triple whose four sets were represented, with the reason.

        `failure` says of a case why it failed. A monitor that lacks some sets loses the triples that read them alone.
        """
        reasons = dict(self.context.failed)
        for label, fits in self.fits.items():
            left = {on: {key for key, case in sets.items() if not failure(case)} for on, sets in fits.items()}
            needed = {on: {"valid", "test", *([f"outliers/{on}"] if on else [])} for on in fits}
            if not any(needed[on] <= left[on] and len(left[on]) >= LEAST_REPRESENTED for on in fits):
                reasons[label] = next(filter(None, (failure(case) for sets in fits.values() for case in sets.values())))
        return reasons

    @property
    def pairs(self) -> int:
        """How many triples each monitor has: the ordered pairs of the sets."""
        return len(self.outliers) * (len(self.outliers) - 1)


class Subjects:
    """All models of all sources. Tables tell them apart by `source`, or by `model` where a study has one source.

    Where a source of several has several models, by both.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        several = "" not in {part.source for part in parts}
        both = several and any(len(part.context.architectures) > 1 for part in parts)
        self.columns: tuple[str, ...] = ("source", "model") if both else ("source",) if several else ("model",)
        self.all = [
            Subject(f"{p.source}/{model}" if both else p.source or model, p.source, model, p.cases, p.context)
            for p in parts
            for model in p.context.architectures
        ]

    def places(self) -> list[dict[str, str]]:
        """Every triple."""
        return [place for subject in self.all for place in subject.places()]

    def translated(self, criterion: Criterion) -> Criterion:
        """A criterion that speaks of the labels of subjects in place of sources and models."""
        asked = {name: criterion.where[name] for name in ("source", "model") if name in criterion.where}
        if not asked:
            return criterion
        where = {name: wanted for name, wanted in criterion.where.items() if name not in asked}
        chosen = self.all
        for name, wanted in asked.items():
            names = wanted if isinstance(wanted, list) else [wanted]
            known = [*dict.fromkeys(getattr(subject, name) for subject in self.all)]
            for unknown in (one for one in names if one not in known):
                raise InputError(f"criterion {criterion.id}: {UnknownName(name, str(unknown), known)}")
            chosen = [subject for subject in chosen if getattr(subject, name) in names]
        return criterion.model_copy(update={"where": where | {"source": [subject.label for subject in chosen]}})

    def named(self, label: str) -> dict[str, str]:
        """The columns that tell a subject apart; `all` stays what it is."""
        subject = next((subject for subject in self.all if subject.label == label), None)
        return {column: label if subject is None else getattr(subject, column) for column in self.columns}

    def told(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table with the columns that tell subjects apart, in place of their label."""
        if self.columns == ("source",) or "source" not in table:
            return table
        place = list(table.columns).index("source")
        named = {label: self.named(label) for label in table["source"].unique()}
        columns = pd.DataFrame([named[label] for label in table["source"]], table.index, self.columns)
        return pd.concat([table.iloc[:, :place], columns, table.iloc[:, place + 1 :]], axis=1)

    def where(self, where: Mapping[str, Any]) -> dict[str, Any]:
        """The same of what a measurement says of its place."""
        named = self.named(where["source"]) if "source" in where else {}
        return {**named, **{key: value for key, value in where.items() if key != "source"}}


class Evidence(base.Evidence):
    """What the stored representations of all sources say."""

    def __init__(self, parts: Sequence[Part], settings: Settings, *, seed: int = 0) -> None:
        self.subjects, self.settings, self.seconds = Subjects(parts), settings, 0.0
        self._bootstrap = {"resamples": settings.resamples, "seed": seed}

    @cached_property
    def weak(self) -> set[str]:
        """The subjects whose network is below the clean accuracy that was asked of it."""
        weak = set()
        for subject in self.subjects.all:
            for network in subject.context.networks.get(subject.model, ()):
                try:
                    competence = read_artifact(subject.cases[0].artifact(network))["competence"]
                except RoadworthyError:
                    continue
                if competence.get("clean_accuracy", 1.0) < competence.get("floor", 0.0):
                    weak.add(subject.label)
        return weak

    def _represented(self, wanted: Callable[[Mapping[str, str]], bool] = lambda place: True) -> Iterator[Represented]:
        """What every monitor keeps of every subject, read one by one; once for every D_v that it was fitted for."""
        for subject in self.subjects.all:
            failed = subject.failed()
            for label, note in subject.context.monitors.items():
                if label in failed or not wanted({"source": subject.label, "monitor": label}):
                    continue
                for fitted_on, cases in subject.fits.get(label, {}).items():
                    failures = {key: f"failed: {case.failure}" for key, case in cases.items() if case.failure}
                    monitor = failures.get("valid") or failures.get("test") or _fitted(cases["valid"], note.monitor)
                    samples = {key: _sample(case) for key, case in cases.items()}
                    yield Represented(
                        subject.label,
                        label,
                        monitor,
                        samples.pop("valid"),
                        samples.pop("test"),
                        {key.partition("/")[2]: failures.get(key, sample) for key, sample in samples.items()},
                        frozenset(subject.context.near),
                        {key: frozenset(labels) for key, labels in subject.context.overlap.items()},
                        subject.context.architectures[subject.model],
                        subject.label in self.weak,
                        fitted_on,
                    )

    @cached_property
    def rows(self) -> tuple[Rows, Rows, Rows]:
        """The rows of algorithm 1, of algorithm 2, and of its thresholds."""
        started, aim = time.perf_counter(), self.settings.aim
        triples, alone, thresholds = Rows(), Rows(), Rows()
        seen: set[tuple[str, str]] = set()
        for represented in self._represented():
            triples += evaluation.evaluate(represented, aim, **self._bootstrap)
            if (represented.source, represented.label) not in seen:
                seen.add((represented.source, represented.label))
                alone += evaluation.evaluate_unsupervised(represented, aim, **self._bootstrap)
                thresholds.append(evaluation.threshold_row(represented, aim))
        self.seconds = time.perf_counter() - started
        return triples, alone, thresholds

    def _failed_rows(self) -> Rows:
        """A row per triple and metric of the monitors that failed, so that criteria see what was not measured."""
        return [
            row
            for subject in self.subjects.all
            for label, reason in subject.failed().items()
            for row in evaluation.without_value(subject.places(label), f"failed: {reason}")
        ]

    def lost(self) -> str:
        """Why no triple has a value."""
        triples = self.rows[0]
        if any(not math.isnan(row["value"]) for row in triples):
            return ""
        reasons = [why for subject in self.subjects.all for why in subject.failed().values()]
        reasons += [row["reason"] or NO_VALUE for row in triples]
        return f"every monitor failed; the first: {reasons[0]}"

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol."""
        triples, alone, thresholds = self.rows
        if not triples:
            triples = [row | {"architecture": "", "undertrained": False} for row in self._failed_rows()]
            alone = alone or triples
        tables = evaluation.tables(triples, alone)
        tables |= {
            table_specs.COMPETENCE.name: self._competence(),
            table_specs.MISSING.name: self._missing(tables[NAME]),
            table_specs.THRESHOLDS.name: table_specs.THRESHOLDS.frame(thresholds, first=["source"]),
        }
        return {name: self.subjects.told(table) for name, table in tables.items()}

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion, evaluated anew with the confidence that it asks for."""
        asked = self.subjects.translated(criterion)
        rows = Rows()
        for represented in self._represented(partial(evaluation.matches, criterion=asked)):
            rows += evaluation.evaluate(represented, self.settings.aim, confidence=confidence, **self._bootstrap)
        rows += self._failed_rows()
        dropped = evaluation.dropped_sources({s.label: s.label in self.weak for s in self.subjects.all}, asked)
        measured = evaluation.measure(rows, asked, confidence, dropped)
        return [replace(one, where=self.subjects.where(one.where)) for one in measured]

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """None: the report draws charts alone."""
        return {}

    def compare(
        self, other: Evidence, before: Compared, after: Compared, metrics: Sequence[str]
    ) -> Iterator[PairedChange]:
        """Every monitor that both models have, pair by pair of sets: see `compare_monitors`.

        A row for all pairs says why of a monitor that failed, or that one of the two does not have; so it does where
        the two runs calibrate by other settings.
        """
        systems = before, after
        aims = asdict(self.settings.aim), asdict(other.settings.aim)
        differing = [f"{key} {aims[0][key]} and {aims[1][key]}" for key in aims[0] if aims[0][key] != aims[1][key]]
        known = self._monitors_on(before.model), other._monitors_on(after.model)
        for label in dict.fromkeys([*known[0], *known[1]]) if metrics else ():
            ours, theirs = (
                on_model.get(label, f"{system} has no monitor {label}")
                for on_model, system in zip(known, systems, strict=True)
            )
            if differing:
                ours = f"calibrated by other settings: {', '.join(differing)}"
            if isinstance(ours, str) or isinstance(theirs, str):
                why = ours if isinstance(ours, str) else str(theirs)
                yield PairedChange(f"{label}: all", 0, ACCURACY, reason=why)
                continue
            for valid_set in dict.fromkeys([*ours, *theirs]):
                why = not_paired(systems, [dict.fromkeys(fits) for fits in (ours, theirs)], valid_set)
                if why:
                    yield PairedChange(f"{label}: {valid_set or ALL} -> {ALL}", 0, ACCURACY, reason=why)
                    continue
                then = replace(theirs[valid_set], source=ours[valid_set].source)
                yield from compare_monitors(ours[valid_set], then, self.settings.aim, systems)

    def _monitors_on(self, model: str) -> dict[str, dict[str, Represented] | str]:
        """What monitors on a model keep, by label and the D_v that a fit is for ('' for all); or why one failed."""
        subject = next(subject for subject in self.subjects.all if subject.model == model)
        found: dict[str, dict[str, Represented] | str] = {
            label: f"failed: {reason}" for label, reason in subject.failed().items()
        }
        for represented in self._represented(lambda place: place["source"] == subject.label):
            fits = found.setdefault(represented.label, {})
            assert isinstance(fits, dict)
            fits[represented.fitted_on] = represented
        return found

    def timing(self, cases: pd.DataFrame, artifacts: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """What each monitor cost: to build, per image, in memory; and the share of all calibrations and tests."""
        _ = self.rows
        spent = {str(row["case"])[-16:]: row for row in cases.to_dict("records")}
        built = {str(row["artifact"]): float(row["seconds"]) for row in artifacts.to_dict("records")}
        triples = sum(len(subject.places()) for subject in self.subjects.all)
        rows = []
        for subject in self.subjects.all:
            failed = subject.failed()
            for label, fits in subject.fits.items():
                if label in failed:
                    continue
                shown = [case for sets in fits.values() for case in sets.values() if not case.failure]
                costs = [spent[case.hash[:16]] for case in shown if case.hash[:16] in spent]
                homes = list(dict.fromkeys(case.labels["artifact"] for case in shown))
                state = sum(read_artifact(shown[0].artifact(home))["competence"]["state_bytes"] for home in homes)
                images = sum(cost["images"] for cost in costs)
                rows.append(
                    {
                        "source": subject.label,
                        "monitor": label,
                        "build_seconds": sum(built.get(home, math.nan) for home in homes),
                        "state_bytes": state,
                        "images": images,
                        "seconds_per_image": sum(cost["seconds"] for cost in costs) / images if images else math.nan,
                        "bytes_per_image": 4 * _sample(shown[0]).rows.shape[1],
                        "pairs": subject.pairs,
                        "matrix_seconds": self.seconds * subject.pairs / triples,
                    }
                )
        return {table_specs.TIMING.name: self.subjects.told(table_specs.TIMING.frame(rows, first=["source"]))}

    def _missing(self, matrix: pd.DataFrame) -> pd.DataFrame:
        """Triples without a value and why; `all` stands for every one, `triples` says how many a row stands for."""
        rows = []
        for subject in self.subjects.all:
            every = {"source": subject.label, "valid_set": ALL, "test_set": ALL}
            reasons = [(label, "left out by the study (leave_out)") for label in subject.context.left_out]
            reasons += [(label, f"failed: {reason}") for label, reason in subject.failed().items()]
            rows += [{**every, "monitor": label, "triples": subject.pairs, "reason": why} for label, why in reasons]
            for key in subject.context.excluded:
                why = f"the source never meets {key} by the study (exclude)"
                rows.append({**every, "test_set": key, "monitor": ALL, "triples": 0, "reason": why})
        if self.rows[0]:
            lost = matrix[(matrix["metric"] == ACCURACY) & matrix["value"].isna()]
            rows += [
                {**{key: row[key] for key in PLACES}, "triples": 1, "reason": row["reason"] or NO_VALUE}
                for _, row in lost.iterrows()
            ]
        return table_specs.MISSING.frame(rows, first=["source"])

    def _competence(self) -> pd.DataFrame:
        """The clean accuracy of each subject's model, on the images it was trained on and on others."""
        rows = []
        for subject in self.subjects.all:
            for case in subject.cases:
                if case.labels["role"] == "monitor" or case.labels.get("model") != subject.model or case.failure:
                    continue
                share = proportion_interval(*_correct(case))
                what = {"source": subject.label, "architecture": subject.context.architectures[subject.model]}
                where = {
                    **what,
                    "undertrained": subject.label in self.weak,
                    "part": case.labels["set"],
                    "metric": ACCURACY,
                }
                rows.append(where | {key: getattr(share, key) for key in ("value", "lo", "hi", "n", "groups")})
        return table_specs.COMPETENCE.frame(rows, first=["source"])


def _fitted(case: StoredCase, monitor: str) -> FittedMonitor:
    """The fitted monitor that was asked in a case, by its registered name."""
    return FittedMonitor.load(case.artifact(case.labels["artifact"]), kind=find_kind(monitor))


def _sample(case: StoredCase) -> Sample:
    """What a monitor keeps of a set; nothing where it failed."""
    if case.failure:
        return NO_IMAGES
    columns = case.columns(REPRESENTATION, "id", "group", "label")
    labels = columns["label"].astype(np.int64)
    return Sample(columns[REPRESENTATION], columns["id"], columns["group"], labels, case.stimulus.data)


def _correct(case: StoredCase) -> tuple[Any, Any]:
    """Which images a model classifies correctly, (N,), and their objects."""
    if case.labels["role"] == "correct":  # a run of an earlier version
        columns = case.columns(REPRESENTATION, "group")
        return columns[REPRESENTATION][:, 0], columns["group"]
    readouts = case.load()
    return readouts.answers.correct.astype(np.float32), np.array(readouts.groups)
