"""Criteria against a baseline: how much worse than an earlier run the models of a run are, on the same objects."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest_file
from roadworthy.core.record import RECORD, RunRecord, read_recorded
from roadworthy.core.validation import read_yaml
from roadworthy.engine.folder import STUDY, RunFolder
from roadworthy.metrics import find_metric
from roadworthy.protocols import protocol_of
from roadworthy.protocols.base import Compared
from roadworthy.protocols.changes import worse_of_same_cases
from roadworthy.protocols.comparison import Choice, load_systems
from roadworthy.statistics.estimates import Estimate, no_estimate
from roadworthy.stored_evidence import stored_parts, stored_settings
from roadworthy.verdict import Criterion, Measure, Measurement
from roadworthy.verdict.judge import BaselineRun

Stored = tuple[RunFolder, RunRecord]
"""The folder of a run and its record."""
Pairs = dict[str, tuple[Compared, Compared] | str]
"""By the name of a model: the baseline's and its own; or why there is no counterpart."""


class AgainstBaseline:
    """What criteria against a baseline are told of a run; the runs are read when the first of them is judged.

    A model is held against that of the same name, or the only one against the only one, as `compare` does it; so are
    bounds: paired by object, both resampled alike.
    """

    def __init__(self, baseline: Stored, own: Stored, workers: int | None = None) -> None:
        self.baseline, self.own = baseline, own
        self.name = baseline[0].address
        self.workers = workers or os.cpu_count() or 1
        self._known: dict[str, Pairs] = {}

    @property
    def run(self) -> BaselineRun:
        """The baseline as a verdict names it."""
        return BaselineRun(self.name, digest_file(self.baseline[0].path / RECORD))

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """How much worse each model is that a criterion speaks of, condition by condition: positive is worse."""
        _, record = self.own
        protocol = protocol_of(criterion, record.protocols)
        metric = find_metric(criterion.metric, protocol.metrics_of(stored_settings(record)[protocol.name]))
        measured, refusals = list[Measurement](), list[InputError]()
        for source, model in _spoken_of(criterion, record):
            where = {"source": source, "model": model} if source else {"model": model}
            pair = self._pairs(protocol.name).get(f"{source}/{model}" if source else model)
            if isinstance(pair, str) or pair is None or protocol.name not in pair[1].evidence:
                why = pair if isinstance(pair, str) else f"{model} has no part in {protocol.name}"
                measured.append(Measurement(where, no_estimate(f"not compared with the baseline: {why}")))
                continue
            before, after = pair
            if protocol.name not in before.evidence:
                why = f"{self.name} has no {protocol.name} of its model"
                measured.append(Measurement(where, no_estimate(f"not compared with the baseline: {why}")))
                continue
            evidence = [system.evidence[protocol.name] for system in (after, before)]
            try:
                own = evidence[0].worsening(
                    evidence[1], before, replace(after, confidence=confidence), _of_one_model(criterion), metric
                )
            except InputError as error:
                refusals.append(error)
                continue
            own = [*map(worse_of_same_cases, own)] if before.reads_the_same(after, protocol.name) else own
            measured += [replace(one, where={**where, **one.where}) for one in own]
        if not measured:
            raise [*refusals, InputError(f"criterion {criterion.id} speaks of no model of the run")][0]
        return measured

    def _pairs(self, protocol: str) -> Pairs:
        """Each model of the run with its counterpart, as a protocol tested both; read once."""
        if protocol not in self._known:
            self._known[protocol] = self._load_pairs(protocol)
        return self._known[protocol]

    def _load_pairs(self, protocol: str) -> Pairs:
        """Each model of the run with its counterpart, what stored cases say of both; or why there is no counterpart."""
        records = self.baseline[1], self.own[1]
        names = [[*record.models] for record in records]
        alone = len(names[0]) == len(names[1]) == 1
        counterparts = {name: names[0][0] if alone else name for name in names[1]}
        paired = {name: other for name, other in counterparts.items() if other in names[0]}
        pairs: Pairs = {name: f"{name} has no counterpart in {self.name}" for name in names[1] if name not in paired}
        choices: list[tuple[Choice, Choice]] = [((0, other), (1, name)) for name, other in paired.items()]
        if choices:
            parts = stored_parts(*self.baseline), stored_parts(*self.own)
            systems = load_systems(
                choices,
                [folder.path.name for folder, _ in (self.baseline, self.own)],
                [{name: own for name, own in some.items() if name == protocol} for some in parts],
                [stored_settings(record) for record in records],
                workers=self.workers,
            )
            pairs |= dict(zip(paired, systems, strict=True))
        return pairs


def named_baseline(run: Path) -> str:
    """The baseline of a run: that of its own verdict, or the one that its study names; empty where it has none."""
    with suppress(OSError, ValueError, LookupError, TypeError, InputError):
        verdict = json.loads(read_recorded(run, "verdict.json"))
        return str(verdict.get("baseline", {}).get("run", "") or read_yaml(run / STUDY, "study").get("baseline") or "")
    return ""


def stored_measure(run: Path) -> Measure:
    """What the criteria of a run's own verdict were told, as verdict.json holds it: for where the baseline is gone."""
    verdict = json.loads(read_recorded(run, "verdict.json"))
    rows = {criterion["id"]: criterion["rows"] for criterion in verdict["criteria"]}

    def measure(criterion: Criterion, confidence: float) -> list[Measurement]:
        measured = []
        for row in rows.get(criterion.id, ()):
            value, lo, hi = (math.nan if row[name] is None else float(row[name]) for name in ("value", "lo", "hi"))
            estimate = Estimate(value, lo, hi, **{name: row[name] for name in ("n", "groups", "method")})
            where = {name: value for name, value in row["where"].items() if name != "of"}
            measured.append(Measurement(where, estimate, unit=row["unit"]))
        return measured

    return measure


def _spoken_of(criterion: Criterion, record: RunRecord) -> list[tuple[str, str]]:
    """The models, with their source, that a criterion speaks of."""
    chosen: dict[str, Sequence[Any]] = {
        name: wanted if isinstance(wanted, list) else [wanted]
        for name, wanted in criterion.where.items()
        if name in ("source", "model")
    }
    return [
        (source, model)
        for source, own in record.sources.items()
        for model in own.models
        if source in chosen.get("source", [source]) and model in chosen.get("model", [model])
    ]


def _of_one_model(criterion: Criterion) -> Criterion:
    """The same criterion for the evidence of one model of one source."""
    where = {name: wanted for name, wanted in criterion.where.items() if name not in ("source", "model")}
    return criterion.model_copy(update={"where": where})
