"""Evidence of OD-test: every table and every measurement from stored representations, all sources together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from roadworthy.core.competence import is_undertrained
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.tables import SOURCE
from roadworthy.engine.artifacts import read_artifact
from roadworthy.engine.monitor_systems import REPRESENTATION
from roadworthy.engine.plan import PlannedCase
from roadworthy.monitors import Aim, FittedMonitor
from roadworthy.monitors.kinds import find_kind
from roadworthy.protocols import base
from roadworthy.protocols.base import Compared, Part, StoredCase
from roadworthy.protocols.changes import not_paired
from roadworthy.protocols.od_test import criteria, evaluation, means, table_specs
from roadworthy.protocols.od_test.comparison import compare_monitors
from roadworthy.protocols.od_test.evaluation import NO_VALUE, Represented, Sample
from roadworthy.protocols.od_test.gap import gap_rows, gap_tables
from roadworthy.protocols.od_test.learned import save_learned
from roadworthy.protocols.od_test.names import ACCURACY, ALL, NAME, OUTLIERS, TRIPLE, judged_metric
from roadworthy.protocols.od_test.network_table import building_cost, network_rows, training_costs
from roadworthy.protocols.od_test.settings import Settings
from roadworthy.protocols.od_test.stability import stability_tables
from roadworthy.protocols.od_test.subjects import Subject, Subjects
from roadworthy.protocols.od_test.surest import Surest, save_surest, surest_answers
from roadworthy.protocols.od_test.valid_size import size_rows, size_table
from roadworthy.statistics import proportion_interval
from roadworthy.statistics.paired import PairedChange
from roadworthy.verdict import Criterion, Measurement

NO_IMAGES = Sample(np.zeros((0, 1), np.float32), np.zeros(0, str), np.zeros(0, str), np.zeros(0, np.int64))
"""In place of a set that could not be represented."""
Rows = list[dict[str, Any]]


@dataclass
class Measured:
    """Rows that tables are made of.

    triples, alone  of algorithm 1 and of algorithm 2;  thresholds: of algorithm 2
    gaps            accuracy with two data sets beside three;  sizes: accuracy by the number of images of D_v
    """

    triples: Rows = field(default_factory=list)
    alone: Rows = field(default_factory=list)
    thresholds: Rows = field(default_factory=list)
    gaps: Rows = field(default_factory=list)
    sizes: Rows = field(default_factory=list)


def subjects_of(parts: Sequence[Part]) -> Subjects:
    """The subjects of all sources, planned or stored."""
    return Subjects({part.source: (part.cases, part.context) for part in parts})


class Evidence(base.Evidence):
    """What the stored representations of all sources say."""

    def __init__(self, parts: Sequence[Part], settings: Settings, *, seed: int = 0) -> None:
        self.subjects, self.settings, self.seconds = subjects_of(parts), settings, 0.0
        self.aim = Aim(settings.rejected, settings.prior, settings.cost, settings.threshold)
        self._bootstrap = {"resamples": settings.resamples, "seed": seed}
        self._class_names = {part.source: part.class_names for part in parts}

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
                if is_undertrained(competence):
                    weak.add(subject.label)
        return weak

    def _represented(self, wanted: Callable[[Mapping[str, str]], bool] = lambda subject: True) -> Iterator[Represented]:
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
                        source=subject.label,
                        label=label,
                        monitor=monitor,
                        valid=samples.pop("valid"),
                        test=samples.pop("test"),
                        outliers={key.partition("/")[2]: failures.get(key, sample) for key, sample in samples.items()},
                        near=frozenset(subject.context.near),
                        overlap={key: frozenset(labels) for key, labels in subject.context.overlap.items()},
                        architecture=subject.context.architectures[subject.model],
                        undertrained=subject.label in self.weak,
                        fitted_on=fitted_on,
                        domain=subject.source,
                        asks_model=note.asks_model,
                        undertrained_fit=_has_weak_fit(cases["valid"]),
                        valid_note=subject.context.valid_note,
                    )

    @cached_property
    def measured(self) -> Measured:
        """Every row that tables are made of; what a monitor keeps is read once for all."""
        rows, aim, seen = Measured(), self.aim, set[tuple[str, str]]()
        for represented in self._represented():
            started = time.perf_counter()
            triples = evaluation.evaluate(represented, aim, **self._bootstrap)
            rows.triples += triples
            if (represented.source, represented.label) not in seen:
                seen.add((represented.source, represented.label))
                rows.alone += evaluation.evaluate_unsupervised(represented, aim, **self._bootstrap)
                rows.thresholds.append(evaluation.threshold_row(represented, aim))
            self.seconds += time.perf_counter() - started
            rows.gaps += gap_rows(represented, triples, aim)
            rows.sizes += size_rows(represented, triples, aim)
        return rows

    def _failed_rows(self) -> Rows:
        """A row per triple and metric of the monitors that failed, so that criteria see what was not measured."""
        return [
            row
            for subject in self.subjects.all
            for label, reason in subject.failed().items()
            for row in evaluation.without_value(self._unmeasured(subject, label), f"failed: {reason}")
        ]

    def _unmeasured(self, subject: Subject, label: str) -> Rows:
        """The triples of a monitor that failed, with what means need of a row."""
        note = subject.context.monitors.get(label)
        network = {
            "architecture": subject.context.architectures[subject.model],
            "undertrained": subject.label in self.weak,
            "domain": subject.source,
            "asks_model": note is None or note.asks_model,
            "weak_network": subject.label in self.weak,
            "weak_fit": False,
        }
        return [triple | network for triple in subject.triples(label)]

    def lost(self) -> str:
        """Why no triple has a value."""
        triples = self.measured.triples
        if any(not math.isnan(row["value"]) for row in triples):
            return ""
        reasons = [why for subject in self.subjects.all for why in subject.failed().values()]
        reasons += [row["reason"] or NO_VALUE for row in triples]
        return f"every monitor failed; the first: {reasons[0]}"

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol."""
        rows = self.measured
        triples = rows.triples or self._failed_rows()
        tables = means.matrix_tables(triples, rows.alone or triples)
        tables |= {
            table_specs.COMPETENCE.name: self._competence(),
            table_specs.MISSING.name: self._missing(tables[NAME]),
            table_specs.THRESHOLDS.name: table_specs.THRESHOLDS.frame(rows.thresholds, first=["source"]),
            **gap_tables(rows.gaps, rows.triples),
            **stability_tables(rows.triples, self._expected(), judged_metric(self.aim.cost)),
            table_specs.VALID_SIZE.name: size_table(rows.sizes),
            table_specs.SUREST.name: table_specs.SUREST.frame([one.row for one in self.surest], first=["source"]),
        }
        tables = {name: self.subjects.with_own_columns(table) for name, table in tables.items()}
        return tables | {table_specs.NETWORKS.name: table_specs.NETWORKS.frame(self.networks, first=self._first)}

    @cached_property
    def networks(self) -> Rows:
        """Every network, the models' own and those of monitors."""
        return network_rows(self.subjects.all)

    def _expected(self) -> set[tuple[str, str, str]]:
        """The triples (source, D_v, D_t) that a monitor must have to be ranked: those of the models that count."""
        trained = [subject for subject in self.subjects.all if subject.label not in self.weak]
        counted = trained or self.subjects.all
        return {(subject.label, *pair) for subject in counted for pair in permutations(subject.outliers, 2)}

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion, evaluated anew with the confidence that it asks for."""
        asked = self.subjects.translated(criterion)
        rows = Rows()
        for represented in self._represented(partial(criteria.matches, criterion=asked)):
            rows += evaluation.evaluate(represented, self.aim, confidence=confidence, **self._bootstrap)
        rows += self._failed_rows()
        dropped = criteria.dropped_sources({s.label: s.label in self.weak for s in self.subjects.all}, asked)
        measured = criteria.measure(rows, asked, confidence, dropped)
        return [replace(one, where=self.subjects.where(one.where)) for one in measured]

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """The images outside that models are surest of, and what monitors learned."""
        rows = {
            table_specs.SUREST_GALLERY: save_surest(self.surest, cases, media),
            table_specs.LEARNED_GALLERY: save_learned(cases, media),
        }
        return {spec.name: spec.frame(own, first=self._first) for spec, own in rows.items()}

    @property
    def _first(self) -> list[str]:
        """The first column of tables whose rows belong to a source, whatever the model."""
        return [SOURCE] if SOURCE in self.subjects.columns else []

    @cached_property
    def surest(self) -> list[Surest]:
        """The surest answers of every model to every set outside."""
        return [*surest_answers(self.subjects.all, self._class_names)]

    def compare(
        self, other: Evidence, before: Compared, after: Compared, metrics: Sequence[str]
    ) -> Iterator[PairedChange]:
        """Every monitor that both models have, pair by pair of sets: see `compare_monitors`.

        A row for all pairs says why of a monitor that failed, or that one of the two does not have; so it does where
        the two runs calibrate by other settings.
        """
        systems = before, after
        aims = asdict(self.aim), asdict(other.aim)
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
                yield after.change(f"{label}: all", 0, ACCURACY, {"monitor": label}, why)
                continue
            for valid_set in dict.fromkeys([*ours, *theirs]):
                why = not_paired(systems, [dict.fromkeys(fits) for fits in (ours, theirs)], valid_set)
                if why:
                    where = {"monitor": label} | ({"valid_set": valid_set} if valid_set else {})
                    yield after.change(f"{label}: {valid_set or ALL} -> {ALL}", 0, ACCURACY, where, why)
                    continue
                then = replace(theirs[valid_set], source=ours[valid_set].source)
                yield from compare_monitors(ours[valid_set], then, self.aim, systems, after.confidence)

    def _monitors_on(self, model: str) -> dict[str, dict[str, Represented] | str]:
        """What monitors on a model keep, by label and the D_v that a fit is for ('' for all); or why one failed."""
        subject = next(subject for subject in self.subjects.all if subject.model == model)
        by_label: dict[str, dict[str, Represented] | str] = {
            label: f"failed: {reason}" for label, reason in subject.failed().items()
        }
        for represented in self._represented(lambda row: row["source"] == subject.label):
            fits = by_label.setdefault(represented.label, {})
            assert isinstance(fits, dict)
            fits[represented.fitted_on] = represented
        return by_label

    def timing(self, cases: pd.DataFrame, artifacts: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """What each monitor cost: to build, per image, in memory; and the share of all calibrations and tests."""
        _ = self.measured
        spent = {str(row["case"])[-16:]: row for row in cases.to_dict("records")}
        triples = sum(len(subject.triples()) for subject in self.subjects.all)
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
                        **building_cost(subject, homes, artifacts),
                        "state_bytes": state,
                        "images": images,
                        "seconds_per_image": sum(cost["seconds"] for cost in costs) / images if images else math.nan,
                        "bytes_per_image": 4 * _sample(shown[0]).rows.shape[1],
                        "pairs": subject.pairs,
                        "matrix_seconds": self.seconds * subject.pairs / triples,
                    }
                )
        networks = table_specs.TIMING_NETWORKS.frame(training_costs(self.networks, artifacts), first=self._first)
        by_monitor = self.subjects.with_own_columns(table_specs.TIMING.frame(rows, first=["source"]))
        return {table_specs.TIMING.name: by_monitor, table_specs.TIMING_NETWORKS.name: networks}

    def _missing(self, matrix: pd.DataFrame) -> pd.DataFrame:
        """Triples without a value and why; `all` stands for every one, `triples` says how many a row stands for."""
        rows = []
        for subject in self.subjects.all:
            every = {"source": subject.label, "valid_set": ALL, "test_set": ALL}
            left_out = [*subject.context.left_out, *subject.context.left_out_of.get(subject.model, [])]
            reasons = [(label, "left out by the study (leave_out)") for label in left_out]
            reasons += [(label, f"failed: {reason}") for label, reason in subject.failed().items()]
            rows += [{**every, "monitor": label, "triples": subject.pairs, "reason": why} for label, why in reasons]
            for key in subject.context.excluded:
                why = f"the source never meets {key} by the study (exclude)"
                rows.append({**every, "test_set": key, "monitor": ALL, "triples": 0, "reason": why})
        if self.measured.triples:
            lost = matrix[(matrix["metric"] == ACCURACY) & matrix["value"].isna()]
            rows += [
                {**{key: row[key] for key in TRIPLE}, "triples": 1, "reason": row["reason"] or NO_VALUE}
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
                if case.labels["set"].startswith(OUTLIERS):
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


def _has_weak_fit(case: StoredCase) -> bool:
    """Whether networks that the monitor of a case has of its own are below their floor."""
    return not case.failure and is_undertrained(read_artifact(case.artifact(case.labels["artifact"]))["competence"])


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
